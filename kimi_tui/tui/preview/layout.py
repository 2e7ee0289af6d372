"""The preview as rows, for every size: two columns where there is room, else the details behind a key.

Pure: the screen draws these rows and asks `action_at` what a click means.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.tui import numbers
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.preview import files as file_rows
from kimi_tui.tui.preview import words
from kimi_tui.tui.preview.actions import Action, with_files
from kimi_tui.tui.preview.files import FilesState
from kimi_tui.tui.preview.keys import file_keys
from kimi_tui.tui.spans import Span

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import RewindPreview

WIDE_FROM = 92
"""Cells inside the frame from which the list of what goes stands beside the choices."""
AIR = 3
LEFT_WIDTH = 38
RIGHT_AT = 43
_LEAST_FOR_FILES = 3
WIDEST = 104


@dataclass(slots=True)
class State:
    """What the preview shows.

    Attributes:
        preview: the facts.
        actions: the choices, in order.
        running: a turn is under way and is stopped first.
        selected: index of the chosen action.
        details: below the width for two columns: the list of what goes is shown in place of the choices.
        scroll: how many rows of what goes are scrolled away.
    """

    preview: RewindPreview
    actions: Sequence[Action]
    running: bool = False
    selected: int = 0
    details: bool = False
    scroll: int = 0
    plain_actions: Sequence[Action] = ()
    asked: str = ""
    """The action that was chosen and now waits for a second word, because it would undo what someone else did."""
    files: FilesState | None = field(init=False)
    heights: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """How many rows the fullest view takes, by width and room: measured once, because it reads whole diffs."""

    def __post_init__(self) -> None:
        self.files = FilesState(self.preview.files) if self.preview.files else None
        self.plain_actions = self.actions
        self.refresh()

    def refresh(self) -> None:
        """The choices as they are after files were chosen."""
        if self.files is not None and self.files.can_restore:
            self.actions = with_files(self.plain_actions, self.files.hint())


@dataclass(slots=True)
class Sheet:
    """The rows inside the frame. `actions` tells by row which choice stands there, `files` which file; `selected` rows
    have a ground."""

    rows: list[list[Span]] = field(default_factory=list[list[Span]])
    actions: dict[int, int] = field(default_factory=dict[int, int])
    files: dict[int, int] = field(default_factory=dict[int, int])
    files_at: int = 0
    """The cell in which the rows of the files begin, with their signs."""
    selected: set[int] = field(default_factory=set[int])
    band: tuple[int, int] = (0, 0)
    """First and last (exclusive) cell of the selected row's ground."""
    can_scroll: bool = False
    page: int = 1
    """How many rows of what goes are seen."""


def frame_width(screen_width: int) -> int:
    """How wide the frame is, its border included."""
    margin = 2 if screen_width < 70 else 6
    return min(WIDEST, screen_width - margin)


def rows_for(screen_height: int) -> int:
    """How many rows inside the frame a screen of this height allows."""
    return screen_height - 4 if screen_height < 30 else screen_height * 3 // 4 - 2


def sheet(state: State, width: int, max_height: int, glyphs: Glyphs) -> Sheet:
    """The rows for a frame of `width` cells inside and at most `max_height` rows."""
    inner = width - 2 * AIR
    top: list[list[Span]] = [
        [],
        words.question(state.preview, inner, glyphs.cut),
        *words.consequence(state.preview, inner, glyphs),
    ]
    if state.running:
        top.append(words.stopped_first(glyphs))
    room = max_height - len(top) - 3
    height = _height(state, width, room, glyphs) if state.files is not None else 0
    if state.asked and state.files is not None:
        key = next((one.key for one in state.actions if one.name == state.asked), "")
        top.append(words.asked(state.files.unasked, key, inner, glyphs))
        height -= 1
        room = room - 1 if width >= WIDE_FROM else height
    top.append([])
    made = _view(state, width, room, height, glyphs)
    made.rows += [[] for _ in range(height - len(made.rows))]
    start = len(top)
    result = Sheet(
        [[(" " * AIR, "quiet"), *row] if row else [] for row in top],
        {row + start: action for row, action in made.actions.items()},
        {row + start: place for row, place in made.files.items()},
        made.files_at,
        {row + start for row in made.selected},
        made.band,
        made.can_scroll,
        made.page,
    )
    result.rows += made.rows
    if len(result.rows) + 2 <= max_height:
        result.rows.append([])
    keys = words.keys(_keys(state, width, result.can_scroll, glyphs), inner + 1)
    result.rows.append([(" " * AIR, "quiet"), *keys])
    result.rows = [words.fitted(row, width) for row in result.rows[:max_height]]
    return result


def _view(state: State, width: int, room: int, height: int, glyphs: Glyphs) -> Sheet:
    """What stands between the question and the keys: in `height` rows, or where that is 0 as high as it is."""
    if width >= WIDE_FROM:
        return _two_columns(state, width, room, height, glyphs)
    if state.details or (state.files is not None and state.files.focused):
        return _details(state, width, height or room, glyphs)
    return _choices(state, width, room, glyphs)


def _height(state: State, width: int, room: int, glyphs: Glyphs) -> int:
    """As many rows as the fullest view takes, so that the frame keeps still while files are chosen."""
    known = state.heights.get((width, room))
    if known is not None or state.files is None:
        return known or 0
    sizes = [len(one.rows) for one in state.files.rows]
    places = [sizes.index(max(sizes))] if sizes else []
    places += [len(sizes)] if state.files.files.not_covered else []
    views: list[State] = []
    for place in places or [0]:
        for focused, details in ((True, False), (False, False), (False, True)):
            other = copy(state)
            other.details = details
            other.files = copy(state.files)
            other.files.selected, other.files.focused, other.files.whole = place, focused, False
            views.append(other)
    height = max(len(_view(one, width, room, 0, glyphs).rows) for one in views)
    state.heights[width, room] = height
    return height


def _keys(state: State, width: int, can_scroll: bool, glyphs: Glyphs) -> Sequence[tuple[str, str]]:
    verb = state.actions[state.selected].verb
    arrows = f"{glyphs.up}{glyphs.down}"
    if state.files is not None and state.files.focused:
        return file_keys(state.files, arrows, width - 2 * AIR + 1)
    if width >= WIDE_FROM:
        tab = [("Tab", "scroll what goes")] if can_scroll and not state.details else []
        if state.files is not None and state.files.can_focus:
            tab = [("Tab", "files")]
        if state.details:
            return [(arrows, "scroll"), ("Tab", "choices"), ("Enter", verb), ("Esc", "cancel")]
    elif state.details:
        return [(arrows, "scroll"), ("Tab", "choices"), ("Esc", "cancel")]
    else:
        tab = [("Tab", "messages" if width > 60 else "details")] if state.preview.goes else []
        if state.files is not None and state.files.can_focus:
            tab = [("Tab", "files")]
    return [("Enter", verb), (arrows, "choose"), *tab, ("Esc", "cancel")]


def _choices(state: State, width: int, room: int, glyphs: Glyphs) -> Sheet:
    """The choices alone, a row each, and under them that nothing is lost."""
    made = Sheet(band=(1, width - 1))
    _add_actions(made, state, width - 1, room, glyphs, hint_below=False)
    if state.files is not None:
        _add_files_below(made, state.files, width - 2 * AIR + 2, room, glyphs)
    lost = words.nothing_lost(state.preview, width - 2 * AIR)
    if len(made.rows) + 1 + len(lost) <= room:
        made.rows += [[], *([(" " * AIR, "quiet"), *row] for row in lost)]
    return made


def _add_files_below(made: Sheet, files: FilesState, width: int, room: int, glyphs: Glyphs) -> None:
    """The files under the choices: as a list where there is room, else counted."""
    apart: list[list[Span]] = [[]] if room - len(made.rows) > 1 else []
    space = room - len(made.rows) - len(apart)
    if space < 1:
        return
    places: dict[int, int] = {}
    rows = file_rows.listed(files, width, space, glyphs, with_diff=False, places=places)
    notes = len(files.files.not_covered) > 0
    if len(files.rows) + 1 + 2 * notes > space and not files.files.reason:
        rows, places = file_rows.summary(files, width, space, glyphs), {}
    _place_files(made, places, len(made.rows) + len(apart), AIR - 2)
    made.rows += [*apart, *([(" " * (AIR - 2), "quiet"), *row] for row in rows)]


def _details(state: State, width: int, room: int, glyphs: Glyphs) -> Sheet:
    """What goes, or the files, alone."""
    made = Sheet()
    air = AIR
    if state.files is not None and state.files.focused:
        air -= 2
        places: dict[int, int] = {}
        rows = file_rows.listed(state.files, width - 2 * AIR + 2, room, glyphs, places=places)
        _place_files(made, places, 0, air)
    else:
        rows = _goes(made, state, width - 2 * AIR, room, glyphs)
    made.rows = [[(" " * air, "quiet"), *row] for row in rows]
    return made


def _two_columns(state: State, width: int, room: int, height: int, glyphs: Glyphs) -> Sheet:
    """Choices at the left, what goes at the right."""
    made = Sheet(band=(1, 1 + LEFT_WIDTH))
    lost = words.nothing_lost(state.preview, LEFT_WIDTH - 1)
    wanted = sum(2 if action.hint else 1 for action in state.actions) + len(lost) + 3
    _add_actions(made, state, 1 + LEFT_WIDTH, room, glyphs, hint_below=wanted <= room)
    right = _right(made, state, width - RIGHT_AT - AIR, room, height or room, glyphs)
    # The way back stands at the foot of the left column, and the columns are as high as the higher one.
    height = height or min(room, max(len(made.rows) + 1 + len(lost), len(right)))
    left = made.rows + [[] for _ in range(height - len(made.rows))]
    if len(made.rows) + 1 + len(lost) <= height:
        left[height - len(lost) :] = [[(" " * AIR, "quiet"), *row] for row in lost]
    made.rows = []
    for position in range(height):
        row = words.fitted(left[position], RIGHT_AT - 2)
        made.rows.append(row + (right[position] if position < len(right) else []))
    return made


def _right(
    made: Sheet, state: State, width: int, room: int, height: int, glyphs: Glyphs
) -> list[list[Span]]:
    """What goes, and under it the files that changed since; two cells at the left are for signs."""
    files = state.files
    if files is not None and files.whole:
        return file_rows.listed(files, width + 2, height, glyphs)
    least = 0 if files is None else 1 + min(room // 2, 12 if files.rows else 3)
    top = _goes(made, state, width, max(2, room - least), glyphs)
    rows = [[("  ", "quiet"), *row] for row in top]
    if files is None:
        return rows
    places: dict[int, int] = {}
    listed = file_rows.listed(files, width + 2, height - len(rows) - 1, glyphs, places=places)
    _place_files(made, places, len(rows) + 1, RIGHT_AT - 2)
    return [*rows, [], *listed]


def _place_files(made: Sheet, places: dict[int, int], first: int, at: int) -> None:
    """Note where files stand, so that a click finds them."""
    made.files = {row + first: place for row, place in places.items()}
    made.files_at = at


def _add_actions(
    made: Sheet, state: State, end: int, room: int, glyphs: Glyphs, *, hint_below: bool
) -> None:
    """The rows of the choices; `end` is where their ground ends."""
    group = state.actions[0].group if state.actions else 0
    spare = room - len(state.actions)
    if state.files is not None:
        spare -= _LEAST_FOR_FILES + (1 if state.files.files.not_covered else 0)
    for index, action in enumerate(state.actions):
        if action.group != group and spare > 0:
            made.rows.append([])
            spare -= 1
        group = action.group
        is_selected = index == state.selected
        made.actions[len(made.rows)] = index
        if is_selected:
            made.selected.add(len(made.rows))
        edge = (glyphs.edge if is_selected else " ", "quiet" if state.details else "accent")
        row: list[Span] = [
            (" ", "quiet"),
            edge,
            (" ", "quiet"),
            (f"{action.key}  ", "accent" if is_selected else "quiet"),
            (action.title, "strong" if is_selected else "ink"),
        ]
        if action.hint and not hint_below:
            gap = end - 2 - words.spans_width(row) - cell_len(action.hint)
            if gap >= 2:
                row += [(" " * gap, "quiet"), (action.hint, "quiet")]
        made.rows.append(row)
        if action.hint and hint_below:
            made.actions[len(made.rows)] = index
            made.rows.append([(" " * 6, "quiet"), (action.hint, "quiet")])


def _goes(made: Sheet, state: State, width: int, room: int, glyphs: Glyphs) -> list[list[Span]]:
    """The list of what goes with a heading, as much as has room."""
    goes = state.preview.goes
    if not goes:
        return [words.nothing_goes(state.preview)]
    rows = [words.heading(state.preview, width)]
    space = max(1, room - 1)
    if len(goes) <= space:
        state.scroll = 0
        return rows + [words.going(message, width, glyphs) for message in goes]
    made.can_scroll = True
    made.page = space - 1
    state.scroll = max(0, min(state.scroll, len(goes) - made.page))
    shown = goes[state.scroll : state.scroll + made.page]
    rows += [words.going(message, width, glyphs) for message in shown]
    above, below = state.scroll, len(goes) - state.scroll - len(shown)
    parts = [f"{numbers.grouped(below)} more {glyphs.down}"] if below else []
    if above:
        parts.append(f"{numbers.grouped(above)} {glyphs.up}")
    rows.append([("  " + "   ".join(parts), "quiet")])
    return rows
