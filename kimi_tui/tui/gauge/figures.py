"""The bar and the figures of the gauge as pieces of text with style names, for every width.

Pure and free of the wire, so that the widget can know it before the first paint.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len

from kimi_tui.tui import numbers
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.spans import Span, joined

WARN_SHARE = 0.70
GRAVE_SHARE = 0.85
MARGIN = 2
_WIDE_FIGURES = 33
_NARROW_FIGURES = 18
_NARROW_BELOW = 72


@dataclass(frozen=True, slots=True)
class Usage:
    """The state of the window, in tokens; `trigger` is where compaction starts, `per_step` the mean growth."""

    used: int = 0
    limit: int = 0
    trigger: int = 0
    estimated: bool = False
    limit_estimated: bool = False
    system: int = 0
    talk: int = 0
    tools: int = 0
    per_step: int = 0
    total_input: int = 0
    total_cached: int = 0
    total_output: int = 0

    @property
    def share(self) -> float:
        """The used part of the window, from 0."""
        return self.used / self.limit if self.limit > 0 else 0.0

    @property
    def alarm(self) -> str:
        """The style that the bar and the percentage take on, empty while there is room."""
        return "error" if self.share >= GRAVE_SHARE else "warn" if self.share >= WARN_SHARE else ""


@dataclass(frozen=True, slots=True)
class Freed:
    """What an operation took away. `serial` counts them."""

    reason: str = ""
    before: int = 0
    after: int = 0
    serial: int = 0

    @property
    def style(self) -> str:
        """Amber for a D-Mail, violet for a compaction, grey for what a person took back."""
        return {"dmail": "dmail", "compaction": "compaction"}.get(self.reason, "lost")

    def glyph(self, glyphs: Glyphs) -> str:
        """The sign before the number."""
        by_reason = {"dmail": glyphs.dmail, "compaction": glyphs.compaction}
        return by_reason.get(self.reason, glyphs.lost)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the bar and the figures stand."""

    bar: int
    bar_width: int
    figures: int
    figures_width: int

    @classmethod
    def of(cls, width: int, timeline_width: int) -> Places:
        """The places for a screen of this width.

        Args:
            width: all cells of the row.
            timeline_width: of the timeline beside the chat; 0 where it is an overlay.
        """
        if timeline_width:
            chat = width - timeline_width - 1
            figures = chat + 2
            return cls(MARGIN, max(0, chat - 2 * MARGIN), figures, max(0, width - figures))
        room = _NARROW_FIGURES if width < _NARROW_BELOW else _WIDE_FIGURES
        figures = max(0, width - MARGIN - room)
        return cls(MARGIN, max(0, figures - 2 * MARGIN), figures, room)


def bar_spans(
    usage: Usage, shown: float, width: int, glyphs: Glyphs, *, freed: Freed | None, mono: bool
) -> list[Span]:
    """The bar.

    Args:
        usage: the final state, for its segments and the mark.
        shown: tokens drawn as used; lags behind `usage.used` while the bar moves.
        width: cells.
        freed: what was just taken away, to be marked; None for nothing.
        mono: there are no colours, so the segments differ by glyph.
    """
    if usage.limit <= 0 or width <= 0:
        return [(glyphs.rule * width, "free")]

    def cell(tokens: float) -> int:
        return max(0, min(width, round(tokens * width / usage.limit)))

    used = cell(shown)
    if shown > 0:
        used = max(1, used)
    cells: list[Span] = [(glyphs.rule, "free")] * width
    if freed is not None:
        for position in range(used, max(used, cell(freed.before))):
            cells[position] = (glyphs.freed, freed.style)
    for position, span in enumerate(_segments(usage, used, glyphs, mono=mono)):
        cells[position] = span
    if usage.trigger > 0:
        mark = min(width - 1, usage.trigger * width // usage.limit)
        cells[mark] = (glyphs.compaction, "mark")
    return joined(cells)


def _segments(usage: Usage, used: int, glyphs: Glyphs, *, mono: bool) -> list[Span]:
    total = usage.system + usage.talk + usage.tools
    if total <= 0:
        return [(glyphs.used, usage.alarm or "talk")] * used
    system = round(used * usage.system / total)
    talk = round(used * (usage.system + usage.talk) / total) - system
    if usage.system > 0 and system == 0 and used > 1:
        system, talk = 1, max(0, talk - 1)
    tools = used - system - talk
    kinds = (
        (system, glyphs.used_system, "system"),
        (talk, glyphs.used, "talk"),
        (tools, glyphs.used_tools, "tools"),
    )
    return [
        (glyph if mono else glyphs.used, usage.alarm or style)
        for count, glyph, style in kinds
        for _ in range(count)
    ]


def figure_spans(
    usage: Usage,
    shown: float,
    width: int,
    glyphs: Glyphs,
    *,
    freed: Freed | None,
    aside: str = "",
) -> list[Span]:
    """Used, limit, percentage, and one thing more where there is room; of an unknown window only what is used."""
    used = round(shown)
    if usage.limit <= 0 and used <= 0:
        return [(" " * width, "quiet")]
    spans: list[Span] = [(numbers.tokens(used, estimated=usage.estimated), "strong")]
    if usage.limit > 0:
        spans += [
            (" / ", "quiet"),
            (numbers.tokens(usage.limit, estimated=usage.limit_estimated), "quiet"),
            ("  ", "quiet"),
            (numbers.percent(used, usage.limit), usage.alarm or "ink"),
        ]
    else:
        spans.append((" tokens", "quiet"))
    length = sum(cell_len(text) for text, _ in spans)
    asides: list[list[Span]] = [[(aside, "quiet")]] if aside and freed is None else []
    for extra in asides or _extras(usage, glyphs, freed):
        size = sum(cell_len(text) for text, _ in extra)
        if length + 2 + size <= width:
            spans += [("  ", "quiet"), *extra]
            length += 2 + size
            break
    spans.append((" " * max(0, width - length), "quiet"))
    return spans


def now_words(usage: Usage) -> str:
    """`now 58.3k, 22%`: what stands beside the figures of another moment."""
    used = numbers.tokens(usage.used, estimated=usage.estimated)
    if usage.limit > 0:
        return f"now {used}, {numbers.percent(usage.used, usage.limit)}"
    return f"now {used}" if usage.used > 0 else ""


def _extras(usage: Usage, glyphs: Glyphs, freed: Freed | None) -> list[list[Span]]:
    """The one thing more, longest form first."""
    if freed is not None:
        fall = numbers.change(freed.after - freed.before).replace(numbers.MINUS, glyphs.minus)
        return [[(f"{freed.glyph(glyphs)} {fall}", freed.style)]]
    words = forecast(usage)
    style = usage.alarm or "quiet"
    forms = [words, words.removeprefix("in ")]
    return [[(glyphs.compaction, "mark"), (f" {form}", style)] for form in forms if form]


_FORESEEABLE_STEPS = 99


def forecast(usage: Usage) -> str:
    """`in ~9 steps`, `next step`, or `at 212k` while it is far off or unknown; empty without a mark."""
    if usage.trigger <= 0:
        return ""
    if usage.used >= usage.trigger:
        return "next step"
    if usage.per_step <= 0:
        return f"at {_round(usage.trigger)}"
    steps = -(-(usage.trigger - usage.used) // usage.per_step)
    if steps > _FORESEEABLE_STEPS:
        return f"at {_round(usage.trigger)}"
    return "next step" if steps <= 1 else f"in ~{steps} steps"


def _round(tokens: int) -> str:
    return f"{round(tokens / 1_000)}k" if 9_950 <= tokens < 999_500 else numbers.tokens(tokens)


def details(usage: Usage, cost: str = "") -> list[str]:
    """What hovering tells: the split of the window and the totals of the session, with its cost where that is known."""
    if usage.limit <= 0:
        return ["The size of the window is not known."] if usage.used > 0 else []
    lines = [
        f"System prompt and tools  {numbers.tokens(usage.system)}",
        f"Conversation  {numbers.tokens(usage.talk)}",
        f"Tool results  {numbers.tokens(usage.tools)}",
        f"Free  {numbers.tokens(max(0, usage.limit - usage.used))}",
    ]
    if usage.trigger > 0:
        lines.append(f"Compacts at {_round(usage.trigger)}")
    if usage.total_input or usage.total_output:
        cached = numbers.tokens(usage.total_cached)
        lines += [
            "",
            f"This session: input {numbers.tokens(usage.total_input)} ({cached} cached)",
            f"output {numbers.tokens(usage.total_output)}",
        ]
    if cost:
        lines.append(f"cost {cost}")
    if usage.estimated:
        lines.append("~ is an estimate until the next answer.")
    return lines
