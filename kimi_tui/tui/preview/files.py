"""The files in a preview: what is chosen of them, and as rows what changed since, what would come back, and whose change it is.

Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.foreign_text import one_line
from kimi_tui.tui import formatting
from kimi_tui.tui.diff import change_counts, diff_rows
from kimi_tui.tui.formatting import Span, spans_width
from kimi_tui.tui.frame.footer import Hint, roomiest
from kimi_tui.tui.glyphs import Glyphs

if TYPE_CHECKING:
    from kimi_tui.soul.rewind import FilePreview, FilesPreview


_HEADING = "Files changed since"
_ALONG = "Files that go along"
_SHORTEST_NAME = 12
_ROOMY = 8
_ORDER = {"conflict": 0, "skip": 3}


@dataclass(slots=True)
class FilesState:
    """What is chosen of the files, and which one is looked at.

    Attributes:
        files: the facts.
        chosen: the paths that would be brought back.
        rows: the files in the order in which they are shown.
        selected: index of the one whose diff is shown.
        focused: the arrows move among the files, and behind them to what no snapshot holds.
        decided: the paths of which the user has said whether they come back.
        whole: the diff alone is shown, all of it.
        scroll: how many rows of that diff are scrolled away.
    """

    files: FilesPreview
    chosen: set[str] = field(init=False)
    rows: list[FilePreview] = field(init=False)
    selected: int = 0
    focused: bool = False
    whole: bool = False
    scroll: int = 0
    decided: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.chosen = {one.path for one in self.files.restorable}
        # What needs a word first, then what comes back, then what cannot.
        self.rows = sorted(self.files.files, key=_order)

    @property
    def can_restore(self) -> bool:
        """Whether there is anything to bring back for who wants it."""
        return self.n_restorable > 0 and not self.files.goes_along

    @property
    def n_restorable(self) -> int:
        """How many files can be brought back, with those that need a word."""
        return len(self.files.restorable) + len(self.files.conflicts)

    @property
    def current(self) -> FilePreview | None:
        """The file whose diff is shown."""
        return None if self.at_rest or not self.rows else self.rows[self.selected]

    @property
    def at_rest(self) -> bool:
        """Whether not a file is selected but what no snapshot holds."""
        return self.selected >= len(self.rows) and bool(self.files.not_covered)

    @property
    def can_focus(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.rows or self.files.not_covered)

    @property
    def unasked(self) -> list[FilePreview]:
        """What would come back although someone else had changed it, and the user has not said so."""
        return [
            one
            for one in self.files.restorable
            if one.reason and one.path in self.chosen and one.path not in self.decided
        ]

    def select(self, index: int) -> None:
        """Look at one file; the one that is looked at shows its whole diff, or again less of it."""
        if self.focused and index == self.selected:
            self.whole, self.scroll = not self.whole, 0
        else:
            self.focused, self.whole, self.selected = True, False, index

    def move(self, step: int) -> None:
        """Look at another file, or scroll the whole diff."""
        if self.whole:
            self.scroll = max(0, self.scroll + step)
        elif self.can_focus:
            last = len(self.rows) - (0 if self.files.not_covered else 1)
            self.selected = max(0, min(last, self.selected + step))

    def toggle(self) -> None:
        """Bring the file that is looked at back, or leave it alone."""
        one = self.current
        if one is not None and self.may_choose(one):
            self.chosen ^= {one.path}
            self.decided.add(one.path)

    def may_choose(self, one: FilePreview) -> bool:
        """Whether it is for the user to say what becomes of a file."""
        return one.fate != "skip" and not self.files.goes_along

    def answer(self) -> frozenset[str] | None:
        """The paths to bring back; None where it is just what is brought back without asking."""
        if self.chosen == {one.path for one in self.files.restorable}:
            return None
        return frozenset(self.chosen)

    def hint(self) -> str:
        """`restores 1, deletes 1; 2 stay`: those that stay need a word."""
        fates = [
            one.would if one.fate == "conflict" else one.fate
            for one in self.files.files
            if one.path in self.chosen
        ]
        deletes = fates.count("delete")
        parts = [f"restores {len(fates) - deletes}"] if len(fates) > deletes else []
        parts += [f"deletes {deletes}"] if deletes else []
        stays = sum(one.path not in self.chosen for one in self.files.conflicts)
        said = ", ".join(parts) or "none of them chosen"
        return said + (f"; {stays} {'stays' if stays == 1 else 'stay'}" if stays else "")


def summary_rows(state: FilesState, width: int, room: int, glyphs: Glyphs) -> list[list[Span]]:
    """`2 files changed since   +17 −1`, what someone else changed and what is not covered, where there is no room for more."""
    stays = [one for one in state.rows if state.files.goes_along and one.fate == "skip"]
    foreign = [one for one in state.rows if _is_foreign(one)]
    named = [_file_row(state, one, width, glyphs) for one in (*foreign, *stays)]
    counted = [one for one in state.rows if one not in foreign and one not in stays]
    what = "to go along" if state.files.goes_along else "changed since"
    said = f"  {formatting.counted(len(counted), 'file')} {what}"
    if len(named) >= room:
        # Not each can be named here; that there are some must be said all the same.
        said = f"  {formatting.counted(len(state.rows), 'file')} {what}"
        said += f", {len(named)} also outside" if named else ""
        counted, named = state.rows, []
    rows = named
    notes = _notes(state.files, width, glyphs)
    fits = len(rows) + bool(counted) + len(notes) <= room
    if counted:
        added, removed = sum(one.added for one in counted), sum(one.removed for one in counted)
        if state.files.not_covered and not fits:
            said += f", {len(state.files.not_covered)} not covered"
        rows = [_sides([(said, "quiet")], change_counts(added, removed, glyphs), width), *rows]
    return [*rows, *notes] if fits else rows


def listed_rows(
    state: FilesState,
    width: int,
    room: int,
    glyphs: Glyphs,
    *,
    with_diff: bool = True,
    places: dict[int, int] | None = None,
) -> list[list[Span]]:
    """The list with the diff of the selected file under it, in at most `room` rows.

    `places` is told which row shows which file. Two cells at the left of each row are for signs, so it stands two cells further left than what has none.
    """
    files = state.files
    if files.reason:
        lines = formatting.wrap_words(one_line(files.reason), width - 2)[:room]
        return [[(f"  {line}", "quiet")] for line in lines]
    if state.whole:
        return _whole(state, width, room, glyphs)
    notes = _notes(files, width, glyphs)
    if state.focused and state.at_rest and notes:
        notes[0] = [(text, "accent") for text, _ in notes[0]]
    if not state.rows:
        return [[("  No file changed since.", "quiet")], *notes][:room]
    heading: Span = (
        f"  {_ALONG if files.goes_along else _HEADING}",
        "accent" if state.focused else "quiet",
    )
    space = max(1, room - 1)
    reserved = len(notes) + 1 if notes and (space >= _ROOMY or state.at_rest) else 0
    n_shown = min(len(state.rows), max(1, space - reserved))
    left = space - n_shown
    notes = notes[: max(0, left - 1)]
    left -= len(notes) + 1 if notes else 0
    first = max(0, min(state.selected - n_shown // 2, len(state.rows) - n_shown))
    more = hidden_words(first, len(state.rows) - first - n_shown, glyphs)
    rows: list[list[Span]] = [_sides([heading], [(more, "quiet")], width) if more else [heading]]
    for place in range(first, first + n_shown):
        one = state.rows[place]
        if places is not None:
            places[len(rows)] = place
        rows.append(_file_row(state, one, width, glyphs))
        if place == state.selected and left > 0 and with_diff:
            rows += _cut(_diff(one, width, glyphs), left, glyphs)
    return [*rows, *([[], *notes] if notes else [])]


def _file_row(state: FilesState, one: FilePreview, width: int, glyphs: Glyphs) -> list[Span]:
    is_current = state.focused and one is state.current
    is_chosen = one.path in state.chosen
    sign: Span = (" ", "quiet")
    if state.focused and is_chosen:
        sign = (glyphs.done, "ok")
    elif one.reason:
        sign = (glyphs.caution, "warn")
    lead: list[Span] = [sign, (" ", "quiet")]
    right: list[Span] = []
    if not is_chosen:
        reason = f"{one_line(one.reason)}; " if one.reason else ""
        right = [(f"{reason}stays", "quiet")]
    else:
        if one.only_rights:
            right = [("permissions", "quiet")]
        elif one.is_text:
            right = change_counts(one.added, one.removed, glyphs)
        else:
            right = [("no text", "quiet")]
        mark = "new" if one.is_new else "gone" if one.is_gone else ""
        if mark:
            right = [(mark, "quiet"), *([("  ", "quiet"), *right] if right else [])]
        if one.reason:
            gap = "  " if right else ""
            said: list[Span] = [(f"{one_line(one.reason)}{gap}", "quiet"), *right]
            right = said if width - spans_width(said) - 4 >= _SHORTEST_NAME else right
    room = width - 2 - spans_width(right) - 2
    if room < _SHORTEST_NAME:
        right, room = [], width - 2
    name = _path(one.path, room, glyphs)
    return _sides([*lead, (name, "accent" if is_current else "ink")], right, width)


def _order(one: FilePreview) -> int:
    return _ORDER.get(one.fate, 1 if one.reason else 2)


def _is_foreign(one: FilePreview) -> bool:
    """Whether someone else changed it too."""
    return bool(one.reason) and one.fate != "skip"


def _path(path: str, room: int, glyphs: Glyphs) -> str:
    """A path whose end is what matters."""
    text = one_line(path)
    if cell_len(text) <= room:
        return text
    while text and cell_len(text) > room - cell_len(glyphs.cut):
        text = text[1:]
    return glyphs.cut + text


def _diff(one: FilePreview, width: int, glyphs: Glyphs) -> list[list[Span]]:
    if one.only_rights:
        return [[("    only its permissions changed", "quiet")]]
    if not one.is_text:
        return [[("    no text to show", "quiet")]]
    return diff_rows(one.rows, width, glyphs, indent=2, banded=True)


def _cut(rows: list[list[Span]], room: int, glyphs: Glyphs) -> list[list[Span]]:
    if len(rows) <= room:
        return rows
    more = f"    {formatting.grouped(len(rows) - room + 1)} more rows {glyphs.down}"
    return [*rows[: room - 1], [(more, "quiet")]]


def _whole(state: FilesState, width: int, room: int, glyphs: Glyphs) -> list[list[Span]]:
    one = state.current
    if one is not None:
        heading, rows = _file_row(state, one, width, glyphs), _diff(one, width, glyphs)
    else:
        heading: list[Span] = [("  No snapshot holds these; they stay what they are.", "ink")]
        rows = [
            _sides(
                [(f"    {_path(path, width - 24, glyphs)}", "quiet")],
                [(one_line(why), "quiet")],
                width,
            )
            for path, why in state.files.not_covered
        ]
    page = max(1, room - 2)
    state.scroll = max(0, min(state.scroll, len(rows) - page))
    shown = rows[state.scroll : state.scroll + page]
    below = len(rows) - state.scroll - len(shown)
    more = f"  {hidden_words(state.scroll, below, glyphs)}"
    return [heading, *shown, [(more, "quiet")]][:room]


def hidden_words(above: int, below: int, glyphs: Glyphs) -> str:
    """`12 more ↓   3 ↑`: how much there is that is not seen."""
    parts = [f"{formatting.grouped(below)} more {glyphs.down}"] if below else []
    parts += [f"{formatting.grouped(above)} {glyphs.up}"] if above else []
    return "   ".join(parts)


def _notes(files: FilesPreview, width: int, glyphs: Glyphs) -> list[list[Span]]:
    """What cannot be brought back, before anything happens."""
    sentences: list[str] = []
    if files.not_covered:
        named = [f"{one_line(path)} ({one_line(why)})" for path, why in files.not_covered[:3]]
        count = len(files.not_covered)
        more = f" ({formatting.grouped(count)})" if count > len(named) else ""
        sentences.append(f"Not covered{more}: {', '.join(named)}")
    sentences += [one_line(remark) for remark in files.remarks]
    if files.ran_commands:
        sentences.append("What commands did elsewhere stays done.")
    cut = [formatting.cut(sentence, width - 2, glyphs.cut) for sentence in sentences]
    return [[(f"  {sentence}", "quiet")] for sentence in cut]


def _sides(left: list[Span], right: Iterable[Span], width: int) -> list[Span]:
    right = list(right)
    gap = width - spans_width(left) - spans_width(right)
    return [*left, (" " * max(0, gap), "quiet"), *right]


def file_keys(files: FilesState, arrows: str, width: int) -> Sequence[Hint]:
    """What the keys do among the files, in words that leave room for all of them.

    Args:
        files: what is chosen, and which one is looked at.
        arrows: the signs of the arrow keys.
        width: cells for all of them.
    """
    if files.whole:
        return [(arrows, "scroll"), ("Esc", "back")]
    one = files.current
    is_chosen = one is not None and one.path in files.chosen
    space = [("Space", "leave alone" if is_chosen else "bring back")]
    if one is None or not files.may_choose(one):
        space = []
    what = "list" if files.at_rest else "diff"
    first, last = (arrows, "choose"), (("Tab", "on"), ("Esc", "cancel"))
    # Where there is little room, what Space and Enter do says more than that arrows move.
    short = [("Space", "leave")] if is_chosen and space else space
    return roomiest(
        (
            (first, *space, ("Enter", f"whole {what}"), *last),
            (first, *space, ("Enter", what), *last),
            (*short, ("Enter", what), *last),
        ),
        width,
    )
