"""The words around the list: the title row, the facts about one row at the foot, and the list of keys.

Pure: model in, pieces of text with style names out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from kimi_tui.tui import numbers
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.spans import Span
from kimi_tui.tui.timeline.points import Point, WorldLine

if TYPE_CHECKING:
    from kimi_tui.tui.timeline.model import TimelineModel

FORESEEABLE_STEPS = 99
EMPTY = "Each step of the agent will stand here. Choose one to go back to it."


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
    # The end of what is typed is what the person looks at.
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


def point_facts(
    model: TimelineModel,
    point: Point,
    line: WorldLine | None,
    *,
    width: int,
    rows: int,
    glyphs: Glyphs,
) -> list[list[Span]]:
    """When and how long, the whole label in at most `rows` rows, and what a rewind there frees."""
    first: list[Span] = [(_clock_time(point.at), "ink")]
    if point.kind == "dmail" and point.from_id >= 0:
        first.append((f"  sent from #{point.from_id}", "quiet"))
    if point.ended_at > point.at:
        first.append((f"  {numbers.duration(point.ended_at - point.at)}", "quiet"))
    elif model.running and point is model.head:
        first.append(("  still running", "quiet"))
    if point.state == "stopped":
        first.append(("  stopped", "quiet"))
    if point.folded:
        first.append(("  folded", "quiet"))
    facts = [first]
    facts += [[(text, "quiet")] for text in _wrapped(whole_label(point), width, rows, glyphs.cut)]
    if line is not None:
        facts.append([(f"On world line {line.n}, left behind", "quiet")])
    elif point.is_summary:
        facts.append(
            [
                ("Compacted ", "quiet"),
                (numbers.tokens(point.before), "ink"),
                (" to ", "quiet"),
                (numbers.tokens(point.before + (point.saved or 0)), "ink"),
            ]
        )
    else:
        freed = numbers.tokens(model.frees(point), estimated=model.estimated or not point.measured)
        facts.append([("Rewinding here frees ", "quiet"), (freed, "ink")])
    return facts


def whole_label(point: Point) -> str:
    """Everything that happened at a checkpoint; of several tools, what each result cost."""
    if point.bookmark:
        return f"{point.bookmark}: {_plain_label(point)}"
    return _plain_label(point)


def _plain_label(point: Point) -> str:
    if point.kind == "dmail":
        return f"D-Mail from #{point.from_id}" if point.from_id >= 0 else point.words or "D-Mail"
    if point.is_summary:
        return "Compacted"
    if point.is_heading or not point.calls:
        return point.words
    calls = point.calls
    total = sum(call.size_chars for call in calls)
    parts: list[str] = []
    # What cost most comes first: the room may not be enough for all.
    for call in sorted(calls, key=lambda call: -call.size_chars):
        text = f"{call.name} {call.target}".rstrip()
        if len(calls) > 1 and total and point.change > 0:
            cost = round(point.change * call.size_chars / total)
            text += f" {numbers.tokens(cost, estimated=True)}"
        parts.append(text)
    return ", ".join(parts)


_KEYS = (
    ("[ ]", "turn before, turn after"),
    ("Home End", "now, beginning"),
    ("Enter", "preview a rewind"),
    ("Space", "fold, unfold"),
    ("w", "read this world line"),
    ("b P", "bookmark, pin"),
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
    """What left a line, in words of the person: `your rewind`."""
    return _LEFT_BY.get(reason, "a change of line")


def line_facts(line: WorldLine, now: float) -> list[list[Span]]:
    """Why and when a world line was left."""
    age = numbers.age(_local(line.at), _local(now))
    why = left_by(line.reason)
    where = ""
    if line.by_person and line.reason == "dmail":
        why = "your D-Mail"
    if line.reason == "dmail" and line.from_id >= 0 and not line.by_person:
        where = f" from #{line.from_id}"
    elif line.reason in ("rewind", "dmail") and line.to_id >= 0:
        where = f" to #{line.to_id}"
    steps = numbers.counted(len(line.points), "step")
    if line.tokens_before:
        steps += f", {numbers.tokens(line.tokens_before)} tokens"
    when = age if age == "now" else f"{age} ago" if age[0].isdigit() and "-" not in age else age
    return [
        [(f"World line {line.n}", "ink"), (f"  {when}", "quiet")],
        [(f"left by {why}{where}", "quiet")],
        [(steps, "quiet")],
    ]


def now_facts(model: TimelineModel) -> list[list[Span]]:
    """How full the window is, and when it is compacted."""
    if model.limit <= 0:
        return [[(f"{numbers.tokens(model.used)} tokens", "ink")]] if model.used > 0 else []
    return [
        [
            (numbers.tokens(model.used, estimated=model.estimated), "ink"),
            (f" of {numbers.tokens(model.limit)} tokens", "quiet"),
        ],
        [(forecast_words(model.used, model.trigger, model.per_step), "quiet")],
    ]


def forecast_words(used: int, trigger: int, per_step: int) -> str:
    """When the context will be compacted, in words."""
    if trigger <= 0:
        return ""
    if used >= trigger:
        return "Compacts before the next step"
    if per_step <= 0:
        return f"Compacts at {numbers.tokens(trigger)}"
    return f"Compacts in about {numbers.counted(max(1, -(-(trigger - used) // per_step)), 'step')}"


def forecast_forms(used: int, trigger: int, per_step: int) -> list[str]:
    """The same beside the curve, longest first; none where it is far off or unknown."""
    if trigger <= 0 or per_step <= 0:
        return []
    steps = max(1, -(-(trigger - used) // per_step))
    if steps > FORESEEABLE_STEPS:
        return []
    if used >= trigger:
        return ["compacts at the next step", "next step"]
    return [f"compacts in about {numbers.counted(steps, 'step')}", f"in ~{steps} steps"]


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


def _clock_time(seconds: float) -> str:
    return _local(seconds).strftime("%H:%M:%S")
