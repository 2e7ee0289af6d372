"""The legend of the timeline and the gauge: every sign, colour and number that they show, with its unit and its meaning.

The help shows it. Signs are those of the set in use, so that the legend looks like the screen; the figures are examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tui.gauge import GRAVE_SHARE, WARN_SHARE
from kimi_tui.tui.glyphs import drawn

if TYPE_CHECKING:
    from kimi_tui.tui.glyphs import Glyphs

Section = tuple[str, tuple[tuple[str, str], ...]]
"""A title, and pairs of a sign or an example with its meaning."""


def legend(glyphs: Glyphs) -> tuple[Section, ...]:
    """Return the sections of the legend.

    Args:
        glyphs: the set of signs in use.
    """
    sections = (
        ("Timeline signs", _signs(glyphs)),
        ("Timeline numbers", _numbers(glyphs)),
        ("Timeline curve", _curve(glyphs)),
        ("Gauge signs", _gauge(glyphs)),
    )
    return tuple(
        (title, tuple((sign, drawn(meaning, glyphs)) for sign, meaning in pairs))
        for title, pairs in sections
    )


def _signs(glyphs: Glyphs) -> tuple[tuple[str, str], ...]:
    branch = f"{glyphs.fork}{glyphs.rule}{glyphs.lost}"
    arrow = f"{glyphs.dmail}{glyphs.rule}{glyphs.arc}"
    return (
        (f"{glyphs.turn} #5", "your message and its checkpoint (a point to rewind to)"),
        (f"{glyphs.turn} now", "the current end of the conversation"),
        (f"{glyphs.step} #6", "a step: one answer of the model, with the tools it used"),
        (glyphs.failed, "a step in which a tool or the model request failed"),
        (glyphs.stopped, "a step that you stopped"),
        (
            glyphs.dmail,
            "a D-Mail: the agent's note to its past self replaced the steps since then",
        ),
        (f"{glyphs.compaction} Compacted", "a compaction: a summary replaced older messages"),
        (f"{glyphs.lost} 2", "world line 2: a branch beside the current conversation"),
        (branch, "the world line branched off here"),
        (
            f"{branch[:2]}{glyphs.running} 1",
            "future 1: another continuation from this checkpoint, running",
        ),
        (f"{glyphs.pending} {glyphs.caution}", "a queued future; one that is waiting for you"),
        (
            f"{glyphs.done} {glyphs.failed} {glyphs.stopped}",
            "a future that is done; that failed or failed its check; that you stopped",
        ),
        (arrow, "this D-Mail created the world line below it"),
        (glyphs.before, "messages from before a compaction, which the model no longer sees"),
        (glyphs.bookmark, "a bookmarked checkpoint: you gave it a name (key b)"),
        (glyphs.pinned, "a pinned message: compactions and D-Mails keep it (key P)"),
        (glyphs.done, "in a /bisect search: the command passes here"),
        (glyphs.failed, "in a /bisect search: the command fails here"),
        (
            glyphs.pending,
            "in a /bisect search: skipped, the command could not test this checkpoint",
        ),
        (glyphs.running, "in a /bisect search: the command is running here"),
        ("grey rows", "a rewind to the selected row removes them from the conversation"),
        (glyphs.playhead, "in a replay: the moment that is shown"),
    )


def _numbers(glyphs: Glyphs) -> tuple[tuple[str, str], ...]:
    minus = glyphs.minus
    return (
        ("18.4k", "tokens in the context at your message (k: thousand)"),
        ("+0.4k", "tokens that the step added to the context"),
        (f"{minus}13.3k", "tokens that the D-Mail removed from the context"),
        ("~+7k", "tokens, estimated until the server has counted them"),
        (f"28k{glyphs.to}12k", "tokens in the context before and after a compaction"),
        ("+2", "after a tool's name: the step made 2 more tool calls"),
        ("· 12 steps", "the step started a sub-agent, which made 12 steps of its own"),
        (f"{glyphs.files}3", "3 files changed in the step"),
        ("+11 steps", "11 collapsed steps; Space expands them"),
        ("1 18.4k", "on a future: tokens of all its requests so far"),
        ("rewind 5 min", "on a world line: a rewind created it 5 minutes ago"),
    )


def _curve(glyphs: Glyphs) -> tuple[tuple[str, str], ...]:
    low, middle, high = glyphs.levels[1], glyphs.levels[4], glyphs.levels[-1]
    return (
        (f"{low}{middle}{high}", "tokens in the context at each checkpoint"),
        (glyphs.freed * 3, "the size at which the context is compacted, or its limit"),
        (f"{glyphs.up} 262k", "the context window in tokens, when it is above the chart"),
        (
            f"{glyphs.dmail} {glyphs.compaction} {glyphs.turn}",
            "below the curve: a D-Mail, a compaction, now",
        ),
    )


def _gauge(glyphs: Glyphs) -> tuple[tuple[str, str], ...]:
    if glyphs.used == glyphs.used_tools:
        used = glyphs.used * 3
    else:
        used = f"{glyphs.used_system}{glyphs.used}{glyphs.used_tools}"
    freed = f"{glyphs.dmail} {glyphs.minus}13.3k"
    return (
        (used, "context in use, left to right: system prompt, conversation, tool results"),
        (glyphs.rule * 3, "free context"),
        (glyphs.freed * 3, "context that was just freed"),
        ("yellow, red", f"the context is more than {WARN_SHARE:.0%}, {GRAVE_SHARE:.0%} full"),
        (f"{glyphs.compaction} on the bar", "the context is compacted when the bar gets here"),
        ("12k / 262k  5%", "tokens in the context, its limit, and the share in use"),
        (f"{glyphs.compaction} in ~9 steps", "compaction is expected in about 9 steps"),
        (f"{glyphs.compaction} at 212k", "compaction happens at 212k tokens"),
        ("+1.2k", "tokens that the text in the prompt will add"),
        ("snapshot: 40%", "the first file snapshot is 40% done"),
        (
            freed,
            f"tokens freed by a D-Mail; {glyphs.lost} by a rewind, {glyphs.compaction} by a compaction",
        ),
        (f"58k {glyphs.to} 53k", "in a preview: tokens in the context now and afterwards"),
        ("now 58k, 22%", "while you look at an earlier step: tokens in the context now"),
    )
