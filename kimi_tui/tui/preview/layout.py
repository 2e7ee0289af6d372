"""The preview of a rewind as rows, for every size: two columns where there is room, else the details behind a key.

Nothing here draws. `PreviewState` holds the choices and what is chosen, `preview_rows` lays it out and says what a click
on a row means; the sentences are at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len

from kimi_tui.foreign_text import one_line
from kimi_tui.tool_names import short_name
from kimi_tui.tui import formatting
from kimi_tui.tui.formatting import Span, cost_words, fitted, spans_width
from kimi_tui.tui.frame.footer import GAP, fit
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.preview.files import (
    FilesState,
    file_keys,
    hidden_words,
    listed_rows,
    summary_rows,
)

if TYPE_CHECKING:
    from kimi_tui.soul.rewind import DroppedMessage, FilePreview, RewindPreview

WIDE_FROM = 92
"""Cells inside the frame from which the list of what goes stands beside the choices."""
AIR = 3
LEFT_WIDTH = 38
RIGHT_AT = 43
WIDEST = 104
"""Cells of the frame with its border."""
_LEAST_FOR_FILES = 3
_NAME_WIDTH = 5
_LINE_NAME_WIDTH = 30
_NOTHING_LOST = "Nothing is lost: what goes becomes a world line, and u brings it back."
_NOTHING_LOST_BY_JUMP = (
    "Nothing is lost: what you leave becomes a world line, and u brings it back."
)
_NOTHING_CUT = "Nothing is lost: what goes is left out of the fork, and stays here."
_NOTHING_LEFT = "Nothing is lost: that line goes on from here, and u leads back."


@dataclass(frozen=True, slots=True)
class PreviewAction:
    """One choice.

    Attributes:
        key: the letter that chooses it.
        name: what the screen answers.
        title: what stands in its row.
        hint: what it costs or leaves alone, in a few words.
        verb: what Enter does, in a word.
        group: a blank row stands between two groups.
    """

    key: str
    name: str
    title: str
    hint: str = ""
    verb: str = "choose"
    group: int = 0


@dataclass(frozen=True, slots=True)
class PreviewAnswer:
    """What the user chose."""

    action: str
    files: Literal["keep", "restore", "only"] = "keep"
    """What becomes of the files."""
    chosen: frozenset[str] | None = None
    """The files to bring back; None for what is brought back without asking."""


REWIND = PreviewAction("r", "rewind", "Rewind the conversation", "files stay", verb="rewind")
JUMP = replace(REWIND, title="Jump there", verb="jump")
"""The same on a line that was left."""
BOTH = PreviewAction("f", "both", "Conversation and files", verb="rewind")
FILES = PreviewAction("o", "files", "Files only", "conversation stays", verb="bring back")
FORK = PreviewAction("n", "fork", "Fork into a new session", "this one stays", verb="fork")
DMAIL = PreviewAction("d", "dmail", "Send a D-Mail here", verb="write", group=1)
COMPACT_FROM = PreviewAction("c", "compact-from", "Compact from here on", verb="compact", group=1)
COMPACT_TO = PreviewAction("p", "compact-to", "Compact up to here", verb="compact", group=1)
WHOLE = PreviewAction("e", "whole", "Look at its end", verb="look", group=1)
"""From a checkpoint of another line to the end of that."""
COPY = PreviewAction("y", "copy", "Copy up to here as Markdown", verb="copy", group=1)
UNDO = PreviewAction("u", "undo", "Undo it", verb="undo")
LEAVE = PreviewAction("r", "leave", "Go on", "files stay as they are", verb="go on")
BRING = replace(FILES, title="Bring the files back", hint="")
"""Where a conversation begins whose files are not what they were."""
LETTERS = frozenset(
    one.key
    for one in (REWIND, BOTH, FILES, FORK, DMAIL, COMPACT_FROM, COMPACT_TO, WHOLE, COPY, UNDO)
)
"""What answers in some preview or other."""
WITH_A_WORD = frozenset({FORK.name, DMAIL.name})
"""What may take the files along, and asks whether it does where there are any."""

CONVERSATION_ACTIONS: Sequence[PreviewAction] = (REWIND, FORK, COPY)
"""What works without snapshots of files."""


def actions_at(
    checkpoint_id: int,
    world_line: int,
    *,
    has_dmail: bool = True,
    is_there: bool = False,
    compacts: Sequence[PreviewAction] = (COMPACT_FROM, COMPACT_TO),
) -> Sequence[PreviewAction]:
    """What can be done at a checkpoint, or at the end of a line that was left.

    Only of the live line a part can be compacted: `compacts` are the parts in which there is anything. Where the
    conversation `is_there` already, it need not go there.
    """
    go = () if is_there else (JUMP if world_line else REWIND,)
    if checkpoint_id < 0:
        return (*go, FORK, COPY)
    dmail = (DMAIL,) if has_dmail else ()
    if world_line:
        return (*go, FORK, *dmail, WHOLE, COPY)
    return (*go, FORK, *dmail, *compacts, COPY)


def with_files(
    actions: Sequence[PreviewAction], hint: str, going: PreviewAction | None = None
) -> Sequence[PreviewAction]:
    """The actions where there are files to bring back; `hint` says what that does to them.

    Where a fork or a D-Mail, `going`, waits for a word on the files, these are the two answers.
    """
    place = next((i for i, one in enumerate(actions) if one.name == REWIND.name), -1) + 1
    verb = actions[place - 1].verb if place else BOTH.verb
    if going is not None:
        what = "Fork" if going.name == FORK.name else "D-Mail"
        stay = replace(going, title=f"{what}; files stay as they are", hint="", group=0)
        back = replace(BOTH, title=f"{what}; files come back", hint=hint, verb=going.verb)
        return (stay, back)
    # Without a way for the conversation to go, there is none for both.
    both = replace(BOTH, hint=hint, verb=verb)
    files = (both, FILES) if place else (replace(FILES, hint=hint),)
    return (*actions[:place], *files, *actions[place:])


@dataclass(slots=True)
class PreviewState:
    """What the preview shows.

    Attributes:
        preview: the facts.
        actions: the choices, in order.
        running: a turn is under way and is stopped first.
        selected: index of the chosen action.
        details: below the width for two columns: the list of what goes is shown in place of the choices.
        scroll: how many rows of what goes are scrolled away.
        plain_actions: the choices without those on files.
        title: what stands in the border; empty for what is said of a rewind or a jump.
        line_name: what the target's world line is called, or the one that what goes becomes.
        asked: the action that was chosen and now waits for a second word, because it would undo what someone else did.
        going: the fork or D-Mail that was chosen and now waits for a word on the files.
        files: what is chosen of the files; None where none are followed.
        heights: how many rows the fullest view takes, by width and room: measured once, because it reads whole diffs.
    """

    preview: RewindPreview
    actions: Sequence[PreviewAction]
    running: bool = False
    selected: int = 0
    details: bool = False
    scroll: int = 0
    plain_actions: Sequence[PreviewAction] = ()
    title: str = ""
    line_name: str = ""
    asked: str = ""
    going: PreviewAction | None = None
    files: FilesState | None = field(init=False)
    heights: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def __post_init__(self) -> None:
        self.files = FilesState(self.preview.files) if self.preview.files else None
        self.plain_actions = self.actions
        self.refresh()

    def refresh(self) -> None:
        """The choices as they are after files were chosen."""
        if self.files is None or not self.files.n_restorable:
            return
        if self.files.files.goes_along:
            self.actions = [replace(one, hint=self.files.hint()) for one in self.plain_actions]
        elif any(one.name == BRING.name for one in self.plain_actions):
            bring = replace(BRING, hint=self.files.hint())
            self.actions = [bring if one.name == BRING.name else one for one in self.plain_actions]
        else:
            self.actions = with_files(self.plain_actions, self.files.hint(), self.going)


@dataclass(slots=True)
class PreviewRows:
    """The rows inside the frame.

    Attributes:
        rows: from the top.
        actions: which choice stands in a row.
        files: which file stands in a row.
        files_at: the cell in which the rows of the files begin, with their signs.
        selected: the rows that have a ground.
        band: first and last (exclusive) cell of that ground.
        can_scroll: not all of what goes is seen.
        page: how many rows of what goes are seen.
    """

    rows: list[list[Span]] = field(default_factory=list[list[Span]])
    actions: dict[int, int] = field(default_factory=dict[int, int])
    files: dict[int, int] = field(default_factory=dict[int, int])
    files_at: int = 0
    selected: set[int] = field(default_factory=set[int])
    band: tuple[int, int] = (0, 0)
    can_scroll: bool = False
    page: int = 1


def frame_width(screen_width: int) -> int:
    """How wide the frame is, its border included."""
    margin = 2 if screen_width < 70 else 6
    return min(WIDEST, screen_width - margin)


def rows_for(screen_height: int) -> int:
    """How many rows inside the frame a screen of this height allows."""
    return screen_height - 4 if screen_height < 30 else screen_height * 3 // 4 - 2


def preview_rows(state: PreviewState, width: int, max_height: int, glyphs: Glyphs) -> PreviewRows:
    """The rows for a frame of `width` cells inside and at most `max_height` rows."""
    inner = width - 2 * AIR
    top: list[list[Span]] = [
        [],
        question_row(state.preview, inner, glyphs.cut),
        *consequence_rows(state.preview, inner, glyphs, state.going),
    ]
    if state.running:
        top.append(stopped_first_row(glyphs))
    if state.preview.run_on:
        top.append(runs_on_row(state.preview.run_on, inner, glyphs))
    n_fixed = len(top)
    room = max_height - n_fixed - 3
    height = _height(state, width, room, glyphs) if state.files is not None else 0
    if state.asked and state.files is not None:
        key = next((one.key for one in state.actions if one.name == state.asked), "")
        top.append(confirmation_row(state.files.unasked, key, inner, glyphs))
    elif state.going is not None and state.files is not None:
        top.append(files_question_row(state.files.n_restorable, inner, glyphs))
    if len(top) > n_fixed:
        height -= 1
        room = room - 1 if width >= WIDE_FROM else height
    top.append([])
    made = _view(state, width, room, height, glyphs)
    made.rows += [[] for _ in range(height - len(made.rows))]
    start = len(top)
    result = PreviewRows(
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
    keys = key_row(_keys(state, width, result.can_scroll, glyphs), inner + 1)
    result.rows.append([(" " * AIR, "quiet"), *keys])
    result.rows = [fitted(row, width) for row in result.rows[:max_height]]
    return result


def _view(state: PreviewState, width: int, room: int, height: int, glyphs: Glyphs) -> PreviewRows:
    """What stands between the question and the keys: in `height` rows, or where that is 0 as high as it is."""
    if width >= WIDE_FROM:
        return _two_columns(state, width, room, height, glyphs)
    if state.details or (state.files is not None and state.files.focused):
        return _details(state, width, height or room, glyphs)
    return _choices(state, width, room, glyphs)


def _height(state: PreviewState, width: int, room: int, glyphs: Glyphs) -> int:
    """As many rows as the fullest view takes, so that the frame keeps still while files are chosen."""
    known = state.heights.get((width, room))
    if known is not None or state.files is None:
        return known or 0
    sizes = [len(one.rows) for one in state.files.rows]
    places = [sizes.index(max(sizes))] if sizes else []
    places += [len(sizes)] if state.files.files.not_covered else []
    views: list[PreviewState] = []
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


def _keys(
    state: PreviewState, width: int, can_scroll: bool, glyphs: Glyphs
) -> Sequence[tuple[str, str]]:
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
    choose = [(arrows, "choose")] if len(state.actions) > 1 else []
    return [("Enter", verb), *choose, *tab, ("Esc", "cancel")]


def _choices(state: PreviewState, width: int, room: int, glyphs: Glyphs) -> PreviewRows:
    """The choices alone, a row each, and under them that nothing is lost."""
    made = PreviewRows(band=(1, width - 1))
    _add_actions(made, state, width - 1, room, glyphs, hint_below=False)
    if state.files is not None:
        _add_files_below(made, state.files, width - 2 * AIR + 2, room, glyphs)
    lost = nothing_lost_rows(state.preview, width - 2 * AIR, state.line_name, state.going)
    if len(made.rows) + 1 + len(lost) <= room:
        made.rows += [[], *([(" " * AIR, "quiet"), *row] for row in lost)]
    return made


def _add_files_below(
    made: PreviewRows, files: FilesState, width: int, room: int, glyphs: Glyphs
) -> None:
    """The files under the choices: as a list where there is room, else counted."""
    apart: list[list[Span]] = [[]] if room - len(made.rows) > 1 else []
    space = room - len(made.rows) - len(apart)
    if space < 1:
        return
    places: dict[int, int] = {}
    rows = listed_rows(files, width, space, glyphs, with_diff=False, places=places)
    notes = len(files.files.not_covered) > 0
    if len(files.rows) + 1 + 2 * notes > space and not files.files.reason:
        rows, places = summary_rows(files, width, space, glyphs), {}
    _place_files(made, places, len(made.rows) + len(apart), AIR - 2)
    made.rows += [*apart, *([(" " * (AIR - 2), "quiet"), *row] for row in rows)]


def _details(state: PreviewState, width: int, room: int, glyphs: Glyphs) -> PreviewRows:
    """What goes, or the files, alone."""
    made = PreviewRows()
    air = AIR
    if state.files is not None and state.files.focused:
        air -= 2
        places: dict[int, int] = {}
        rows = listed_rows(state.files, width - 2 * AIR + 2, room, glyphs, places=places)
        _place_files(made, places, 0, air)
    else:
        rows = _goes(made, state, width - 2 * AIR, room, glyphs)
    made.rows = [[(" " * air, "quiet"), *row] for row in rows]
    return made


def _two_columns(
    state: PreviewState, width: int, room: int, height: int, glyphs: Glyphs
) -> PreviewRows:
    """Choices at the left, what goes at the right."""
    made = PreviewRows(band=(1, 1 + LEFT_WIDTH))
    lost = nothing_lost_rows(state.preview, LEFT_WIDTH - 1, state.line_name, state.going)
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
        row = fitted(left[position], RIGHT_AT - 2)
        made.rows.append(row + (right[position] if position < len(right) else []))
    return made


def _right(
    made: PreviewRows, state: PreviewState, width: int, room: int, height: int, glyphs: Glyphs
) -> list[list[Span]]:
    """What goes, and under it the files that changed since; two cells at the left are for signs."""
    files = state.files
    if files is not None and files.whole:
        return listed_rows(files, width + 2, height, glyphs)
    least = 0 if files is None else 1 + min(room // 2, 12 if files.rows else 3)
    top = _goes(made, state, width, max(2, room - least), glyphs)
    rows = [[("  ", "quiet"), *row] for row in top]
    if files is None:
        return rows
    places: dict[int, int] = {}
    listed = listed_rows(files, width + 2, height - len(rows) - 1, glyphs, places=places)
    _place_files(made, places, len(rows) + 1, RIGHT_AT - 2)
    return [*rows, [], *listed]


def _place_files(made: PreviewRows, places: dict[int, int], first: int, at: int) -> None:
    """Note where files stand, so that a click finds them."""
    made.files = {row + first: place for row, place in places.items()}
    made.files_at = at


def _add_actions(
    made: PreviewRows, state: PreviewState, end: int, room: int, glyphs: Glyphs, *, hint_below: bool
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
        # Where there is no room for how many files stay, those are named below.
        hints = (action.hint, action.hint.partition(";")[0]) if not hint_below else ()
        gaps = ((hint, end - 2 - spans_width(row) - cell_len(hint)) for hint in hints if hint)
        if (fitting := next(((hint, gap) for hint, gap in gaps if gap >= 2), None)) is not None:
            row += [(" " * fitting[1], "quiet"), (fitting[0], "quiet")]
        made.rows.append(row)
        if action.hint and hint_below:
            made.actions[len(made.rows)] = index
            made.rows.append([(" " * 6, "quiet"), (action.hint, "quiet")])


def _goes(
    made: PreviewRows, state: PreviewState, width: int, room: int, glyphs: Glyphs
) -> list[list[Span]]:
    """The list of what goes with a heading, as much as has room."""
    goes = state.preview.goes
    if not goes:
        return [nothing_goes_row(state.preview)]
    rows = [going_heading(state.preview, width, state.going)]
    space = max(1, room - 1)
    if len(goes) <= space:
        state.scroll = 0
        return rows + [going_row(message, width, glyphs) for message in goes]
    made.can_scroll = True
    made.page = space - 1
    state.scroll = max(0, min(state.scroll, len(goes) - made.page))
    shown = goes[state.scroll : state.scroll + made.page]
    rows += [going_row(message, width, glyphs) for message in shown]
    above, below = state.scroll, len(goes) - state.scroll - len(shown)
    rows.append([(f"  {hidden_words(above, below, glyphs)}", "quiet")])
    return rows


def frame_title(state: PreviewState) -> str:
    """The title in the border."""
    target = state.preview.target
    where = f"#{target.id}"
    if target.world_line:
        line = formatting.line_words(target.world_line, state.line_name, _LINE_NAME_WIDTH)
        where = f"{line}, {'its end' if target.is_end else where}"
    if state.going is not None:
        return f"{'Fork at' if state.going.name == FORK.name else 'D-Mail to'} {where}"
    return state.title or f"{'Jump' if target.world_line else 'Rewind'} to {where}"


def question_row(preview: RewindPreview, width: int, mark: str) -> list[Span]:
    """What stands at the checkpoint, in one row."""
    target = preview.target
    name = f"World line {target.world_line}" if target.is_end else f"Checkpoint #{target.id}"
    words = one_line(preview.label) or name
    return [(formatting.cut(words, width, mark), "strong")]


def consequence_rows(
    preview: RewindPreview, width: int, glyphs: Glyphs, going: PreviewAction | None = None
) -> list[list[Span]]:
    """`Takes back 5 steps, 11 messages; frees 4.6k tokens`, and from how much to how much where there is room.

    A jump leaves them, and what is there may be more: `Leaves 1 step; adds 400 tokens`. A fork leaves them out.
    Where prices are set, what it had cost follows, in a row of its own where it would not be seen whole.
    """
    if preview.is_there:
        begins = preview.target.is_end and not preview.target.world_line
        where = "goes on from here" if begins else "is there already"
        return [[(f"The conversation {where}.", "quiet")]]
    counts = [(preview.steps, "step"), (preview.messages, "message")]
    if preview.turns > 1:
        counts.insert(0, (preview.turns, "turn"))
    parts = [formatting.counted(count, noun) for count, noun in counts if count]
    jumps = bool(preview.target.world_line)
    change = preview.tokens_after - preview.tokens_before
    verb = "Leaves " if jumps else "Takes back "
    does = (verb, "; adds " if change > 0 else "; frees ")
    if _is_fork(going):
        # It takes nothing from here, and frees nothing.
        does = ("Leaves out ", ", ")
    freed = formatting.tokens(abs(change), estimated=preview.estimated)
    # Numbers are never cut: where there is no room for all of them, the less telling ones are left out.
    unit = " token" if abs(change) == 1 else " tokens"
    shorter = ((parts, unit), (parts, ""), ([*parts[:1], *parts[-1:]], unit))
    wordings = [_sizes(does, counted, f"{freed}{unit}") for counted, unit in shorter]
    fitting = (wording for wording in wordings if spans_width(wording) <= width)
    left = next(fitting, _sizes(does, parts[-1:], freed))
    after = formatting.tokens(preview.tokens_after, estimated=preview.estimated)
    before = formatting.tokens(preview.tokens_before)
    right: list[Span] = [(f"{before} {glyphs.to} ", "quiet"), (after, "strong")]
    if before == after.lstrip("~"):
        right = [(after, "strong")]  # what changes is said at the left
    money = cost_words(preview.cost) if preview.cost is not None else ""
    spent: list[Span] = [("; its calls cost ", "quiet"), (money, "ink")]
    below: list[list[Span]] = []
    if money and spans_width(left) + spans_width(spent) <= width:
        left += spent
    elif money:
        below = [[("Its calls cost ", "quiet"), (money, "ink")]]
    gap = width - spans_width(left) - spans_width(right)
    return [[*left, (" " * gap, "quiet"), *right] if gap >= 3 else left, *below]


def _sizes(does: tuple[str, str], parts: Sequence[str], change: str) -> list[Span]:
    return [
        (does[0], "quiet"),
        (", ".join(parts) or "nothing", "ink"),
        (does[1], "quiet"),
        (change, "ink"),
    ]


def stopped_first_row(glyphs: Glyphs) -> list[Span]:
    """Where a turn is running."""
    return [
        (f"{glyphs.caution} ", "warn"),
        ("The agent is working.", "ink"),
        (" It is stopped first.", "quiet"),
    ]


def runs_on_row(commands: Sequence[str], width: int, glyphs: Glyphs) -> list[Span]:
    """`! In the background runs on: npm run dev`."""
    lead = "In the background runs on: " if len(commands) == 1 else "In the background run on: "
    names = formatting.cut(", ".join(map(one_line, commands)), width - 2 - len(lead), glyphs.cut)
    return [(f"{glyphs.caution} ", "warn"), (lead, "quiet"), (names, "ink")]


def confirmation_row(
    files: Sequence[FilePreview], key: str, width: int, glyphs: Glyphs
) -> list[Span]:
    """`! Also changed outside: notes.md   f again brings it back too`, where a first word is not enough."""
    reasons = {one.reason.removesuffix(" before") for one in files}
    why = reasons.pop() if len(reasons) == 1 else "also changed by others"
    lead, end = f"{why.capitalize()}: ", f"   {key} again"
    names = ", ".join(one_line(one.path) for one in files)
    room = width - 2 - cell_len(lead) - cell_len(end)
    more = f" brings {'it' if len(files) == 1 else 'them'} back too"
    if cell_len(names) + cell_len(more) <= room:
        end += more
    names = formatting.cut(names, max(0, room), glyphs.cut)
    return [
        (f"{glyphs.caution} ", "warn"),
        (lead, "quiet"),
        (names, "strong"),
        (end, "ink"),
    ]


def files_question_row(n_files: int, width: int, glyphs: Glyphs) -> list[Span]:
    """`! 2 files changed since. Do they come back as well?`, which the choices answer."""
    said = f"{formatting.counted(n_files, 'file')} changed since. "
    asked = f"{'Does it' if n_files == 1 else 'Do they'} come back as well?"
    if cell_len(said + asked) > width - 2:
        said, asked = "", "Do the files come back as well?"
    return [(f"{glyphs.caution} ", "warn"), (said, "quiet"), (asked, "ink")]


def nothing_lost_rows(
    preview: RewindPreview, width: int, line_name: str = "", going: PreviewAction | None = None
) -> list[list[Span]]:
    """The way back, in as many rows as it takes; `line_name` is that of the line that what goes becomes."""
    said = _NOTHING_LOST
    if _is_fork(going):
        said = _NOTHING_CUT
    elif preview.left_as:
        line = formatting.line_words(preview.left_as, line_name, _LINE_NAME_WIDTH)
        said = f"Nothing is lost: what goes stays as {line}, and U brings it back."
    elif preview.is_there:
        said = "Nothing is lost: u takes it back."
    elif preview.target.world_line:
        said = _NOTHING_LOST_BY_JUMP if preview.goes else _NOTHING_LEFT
    rows: list[list[Span]] = []
    place = 0
    for line in formatting.wrap_words(said, width):
        row: list[Span] = []
        for word in line.split():
            row += [(" ", "quiet")] if row else []
            row.append((word, "ink" if place < 3 or word in ("u", "U") else "quiet"))
            place += 1
        rows.append(row)
    return rows


def _is_fork(going: PreviewAction | None) -> bool:
    return going is not None and going.name == FORK.name


def going_heading(
    preview: RewindPreview, width: int, going: PreviewAction | None = None
) -> list[Span]:
    """What stands over the list of what goes, or what a fork leaves out."""
    name = "Becomes a world line" if preview.target.world_line else "Goes"
    if _is_fork(going):
        name = "Stays here, left out of the fork"
    return [
        (name, "quiet"),
        (" " * (width - len(name) - len("tokens")), "quiet"),
        ("tokens", "quiet"),
    ]


def nothing_goes_row(preview: RewindPreview) -> list[Span]:
    """In the place of a list that is empty."""
    if preview.target.world_line:
        return [("Nothing goes: that line goes on from here.", "quiet")]
    if preview.messages and preview.prompt:
        return [("Your message goes, back to the prompt.", "quiet")]
    if not preview.steps:
        return [("Nothing of the conversation goes.", "quiet")]
    return [("Nothing goes but the checkpoint itself.", "quiet")]


def going_row(message: DroppedMessage, width: int, glyphs: Glyphs) -> list[Span]:
    """One thing that goes: its sign, what it is, and its tokens at the right."""
    cost = formatting.tokens(message.tokens) if message.tokens is not None else ""
    room = width - 2 - (cell_len(cost) + 2 if cost else 0)
    text = one_line(message.text)
    match message.kind:
        case "user":
            left = [(f"{glyphs.turn} ", "accent"), (formatting.cut(text, room, glyphs.cut), "ink")]
        case "tool":
            sign = (glyphs.failed, "error") if message.failed else (glyphs.done, "ok")
            if message.tokens is None:
                sign = (glyphs.running, "quiet")
            name = short_name(message.name).ljust(_NAME_WIDTH)
            room -= cell_len(name) + 1
            left = [
                (f"{sign[0]} ", sign[1]),
                (f"{name} ", "tool"),
                (formatting.cut(text, room, glyphs.cut), "ink"),
            ]
        case "dmail":
            words = formatting.cut(f"D-Mail  {text}".rstrip(), room, glyphs.cut)
            left = [(f"{glyphs.dmail} ", "dmail"), (words, "dmail")]
        case "summary":
            words = formatting.cut(f"Summary  {text}".rstrip(), room, glyphs.cut)
            left = [(f"{glyphs.compaction} ", "compaction"), (words, "compaction")]
        case _:
            left = [("  ", "quiet"), (formatting.cut(text, room, glyphs.cut), "quiet")]
    gap = width - spans_width(left) - cell_len(cost)
    return [*left, (" " * max(0, gap), "quiet"), (cost, "ink")]


def key_row(pairs: Sequence[tuple[str, str]], width: int) -> list[Span]:
    """`Enter rewind   ↑↓ choose   Esc cancel`: whole pairs only."""
    spans: list[Span] = []
    for key, meaning in fit(pairs, width):
        spans += [(" " * GAP, "quiet")] if spans else []
        spans += [(key, "ink"), (f" {meaning}", "quiet")]
    return spans
