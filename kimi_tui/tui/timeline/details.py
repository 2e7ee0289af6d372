"""The words around the list of rows: the title, the details of one row at the foot, the forecast, and the list of keys.

Pure: model in, pieces of text with style names out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from kimi_tui.projection.timeline_tree import Checkpoint, WorldLine
from kimi_tui.tui import formatting as numbers
from kimi_tui.tui.formatting import Span
from kimi_tui.tui.gauge import forecast
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.projection.timeline import TimelineModel


EMPTY = "Each step of the agent will stand here. Choose one to go back to it."


NOTHING_FOUND = "No step, tool or file holds that. Esc shows all steps again."


def title_spans(n_steps: int, n_lines: int, width: int, glyphs: Glyphs) -> list[Span]:
    """`Timeline   16 steps · 3 world lines`, shorter where there is less room."""
    if n_steps == 0 and n_lines == 0:
        return [("Timeline", "quiet")]
    steps = numbers.counted(n_steps, "step")
    forms = [steps]
    if n_lines:
        forms = [
            f"{steps} {glyphs.pending} {numbers.counted(n_lines, 'world line')}",
            f"{steps} {glyphs.pending} {numbers.counted(n_lines, 'line')}",
            steps,
        ]
    for form in forms:
        gap = width - len("Timeline") - cell_len(form)
        if gap >= 2:
            return [("Timeline" + " " * gap + form, "quiet")]
    return [(numbers.cut(f"Timeline  {steps}", width, glyphs.cut), "quiet")]


def entitled_spans(words: str, width: int, glyphs: Glyphs) -> list[Span]:
    """The title row with these words at its right end."""
    gap = max(2, width - len("Timeline") - cell_len(words))
    return [(numbers.cut("Timeline" + " " * gap + words, width, glyphs.cut), "quiet")]


def filter_spans(
    needle: str, n_found: int, width: int, glyphs: Glyphs, *, is_open: bool
) -> list[Span]:
    """The title row while the list is filtered."""
    found = f"{numbers.grouped(n_found)} found"
    room = width - len(found) - 5
    # The end of what is typed is what the user looks at.
    shown = needle if cell_len(needle) <= room else needle[-room:]
    cursor = glyphs.edge if is_open else " "
    gap = width - 2 - cell_len(shown) - 1 - len(found)
    return [
        ("/ ", "accent"),
        (shown, "strong"),
        (cursor, "accent"),
        (" " * max(1, gap), "quiet"),
        (found, "quiet"),
    ]


def checkpoint_details(
    model: TimelineModel,
    checkpoint: Checkpoint,
    line: WorldLine | None,
    *,
    width: int,
    rows: int,
    glyphs: Glyphs,
    said: int = -1,
) -> list[list[Span]]:
    """When and how long, the whole label (or what was `said` there) in at most `rows` rows, and what a rewind there frees."""
    first: list[Span] = [(f"{_local(checkpoint.at):%H:%M:%S}", "ink")]
    if said >= 0:
        words = "Carried over with the D-Mail" if said < checkpoint.n_carried else "Said meanwhile"
        first = [(words, "quiet")]
    else:
        first += _circumstances(model, checkpoint)
    facts = [first]
    label = whole_label(checkpoint) if said < 0 else checkpoint.said[said]
    facts += [[(text, "quiet")] for text in _wrapped(label, width, rows, glyphs.cut)]
    if line is not None:
        where = numbers.line_words(line.n, model.tree.name_of(line), width - 18)
        facts.append([(f"On {where}", "quiet")])
    elif checkpoint.before:
        after = checkpoint.before + (checkpoint.saved or 0)
        facts.append(
            [
                ("Compacted ", "quiet"),
                (numbers.tokens(checkpoint.before), "ink"),
                (" to ", "quiet"),
                (numbers.tokens(after, estimated=not checkpoint.saved_measured), "ink"),
            ]
        )
    elif not checkpoint.is_summary:
        freed = numbers.tokens(
            model.frees(checkpoint), estimated=model.estimated or not checkpoint.measured
        )
        facts.append([("Rewinding here frees ", "quiet"), (freed, "ink")])
    return facts


def _circumstances(model: TimelineModel, checkpoint: Checkpoint) -> list[Span]:
    """Where a D-Mail came from, how long it took, and how it ended."""
    facts: list[Span] = []
    if checkpoint.kind == "dmail" and checkpoint.from_id >= 0:
        facts.append((f"  sent from #{checkpoint.from_id}", "quiet"))
    if checkpoint.ended_at > checkpoint.at:
        facts.append((f"  {numbers.duration(checkpoint.ended_at - checkpoint.at)}", "quiet"))
    elif model.running and checkpoint is model.tree.head:
        facts.append(("  still running", "quiet"))
    if checkpoint.state == "stopped":
        facts.append(("  stopped", "quiet"))
    if checkpoint.folded:
        facts.append(("  folded", "quiet"))
    return facts


def whole_label(checkpoint: Checkpoint) -> str:
    """Everything that happened at a checkpoint; of several tools, what each result cost."""
    name = f"{checkpoint.bookmark}: " if checkpoint.bookmark else ""
    return name + _label(checkpoint)


def _label(checkpoint: Checkpoint) -> str:
    if checkpoint.kind == "dmail":
        return (
            f"D-Mail from #{checkpoint.from_id}"
            if checkpoint.from_id >= 0
            else checkpoint.words or "D-Mail"
        )
    if checkpoint.is_summary:
        return "Compacted"
    if checkpoint.is_heading or not checkpoint.calls:
        return checkpoint.words
    calls = checkpoint.calls
    total = sum(call.size_chars for call in calls)
    parts: list[str] = []
    # What cost most comes first: the room may not be enough for all.
    for call in sorted(calls, key=lambda call: -call.size_chars):
        text = f"{call.name} {call.target}".rstrip()
        if len(calls) > 1 and total and checkpoint.change > 0:
            cost = round(checkpoint.change * call.size_chars / total)
            text += f" {numbers.tokens(cost, estimated=True)}"
        parts.append(text)
    return ", ".join(parts)


_KEYS = (
    ("[ ]", "turn before, turn after"),
    ("Home End", "now, beginning"),
    ("Enter", "preview a rewind"),
    ("Space", "fold, unfold"),
    ("w", "read from there on"),
    ("{ }", "branch before, after"),
    ("b P", "name a step or line, pin"),
    ("/", "filter: text, tool, file"),
    ("u U", "undo, redo"),
    ("p", "play the session back"),
    ("Esc", "back to the prompt"),
)
_LEFT_BY = {
    "rewind": "your rewind",
    "dmail": "a D-Mail",
    "compaction": "a compaction",
    "clear": "your /clear",
    "jump": "your jump",
    "undo": "your undo",
    "redo": "your redo",
}


def left_by(reason: str) -> str:
    """What left a line, as the user is told: `your rewind`."""
    return _LEFT_BY.get(reason, "a change of line")


def line_details(
    line: WorldLine, now: float, name: str, width: int, glyphs: Glyphs
) -> list[list[Span]]:
    """What a world line is called, and why and when it was left."""
    age = numbers.age(_local(line.at), _local(now))
    why = left_by(line.reason)
    where = ""
    if line.by_user and line.reason == "dmail":
        why = "your D-Mail"
    if line.reason == "dmail" and line.from_id >= 0 and not line.by_user:
        where = f" from #{line.from_id}"
    elif line.reason in ("rewind", "dmail") and line.to_id >= 0:
        where = f" to #{line.to_id}"
    steps = numbers.counted(len(line.checkpoints), "step")
    if line.tokens_before:
        # As the gauge has it, which cannot know what of it the server would count.
        steps += f", {numbers.tokens(line.tokens_before, estimated=True)} tokens"
    return [
        *([(row, "ink")] for row in _wrapped(name, width, 2, glyphs.cut)),
        [(f"World line {line.n}", "ink"), (f"  {numbers.ago(age)}", "quiet")],
        [(f"left by {why}{where}", "quiet")],
        [(steps, "quiet")],
    ]


def now_details(model: TimelineModel) -> list[list[Span]]:
    """How full the window is, and when it is compacted."""
    if model.limit <= 0:
        return [[(f"{numbers.tokens(model.used)} tokens", "ink")]] if model.used > 0 else []
    words = forecast(model.used, model.trigger, model.per_step)
    return [
        [
            (numbers.tokens(model.used, estimated=model.estimated), "ink"),
            (f" of {numbers.tokens(model.limit)} tokens", "quiet"),
        ],
        [(f"Compacts {words.replace('next', 'before the next')}", "quiet")] if words else [],
    ]


def key_spans(glyphs: Glyphs) -> list[list[Span]]:
    """The keys and their meanings, a row each."""
    keys = ((f"{glyphs.up} {glyphs.down}", "move"), *_KEYS)
    widest = max((cell_len(key) for key, _ in keys), default=0)
    return [[(key.ljust(widest + 2), "ink"), (meaning, "quiet")] for key, meaning in keys]


def _wrapped(text: str, width: int, rows: int, mark: str) -> list[str]:
    """At most `rows` rows; breaks at blanks where it can, and says where it was cut."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < rows:
        if cell_len(rest) <= width:
            lines.append(rest)
            rest = ""
        elif len(lines) == rows - 1:
            lines.append(numbers.cut(rest, width, mark))
            rest = ""
        else:
            head = set_cell_size(rest, width)
            blank = head.rfind(" ")
            # A blank far to the left would waste most of the row.
            stop = blank if blank > width // 2 else len(head.rstrip())
            lines.append(rest[:stop])
            rest = rest[stop:].lstrip()
    return lines


def _local(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0, UTC)
