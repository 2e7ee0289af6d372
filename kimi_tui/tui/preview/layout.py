"""The preview of a rewind as rows, for every size: two columns if there is room, else one, with the details behind a key.

This module draws nothing. `FilesState` holds the selection among the files, `PreviewState` the actions and the selection
among all; `preview_rows` lays them out and gives the meaning of a click on each row. The sentences are at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.cells import cell_len

from kimi_tui.display_names import unmarked
from kimi_tui.foreign_text import one_line, shown_name
from kimi_tui.tool_cards import short_name
from kimi_tui.tui import formatting
from kimi_tui.tui.diff import change_counts, diff_rows
from kimi_tui.tui.formatting import cost_words
from kimi_tui.tui.frame_rows import GAP, Hint, fit_hints, roomiest
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.row_window import ListState, RowWindow
from kimi_tui.tui.rows import Span, fitted, sides, spans_width

if TYPE_CHECKING:
    from kimi_tui.soul.rewind_values import DroppedMessage, FilePreview, FilesPreview, RewindPreview
    from kimi_tui.tool_cards import DiffLine


WIDE_FROM = 92
"""Width in cells inside the frame from which on the dropped messages are listed beside the choices."""
AIR = 3
LEFT_WIDTH = 38
RIGHT_AT = 43
WIDEST = 104
"""Width of the frame in cells, with its border."""
_LEAST_FOR_FILES = 3
_NAME_WIDTH = 5
_LINE_NAME_WIDTH = 30
_NOTHING_LOST = (
    "Nothing is lost: these messages become a world line (a branch), and /undo restores them."
)
_NOTHING_LOST_BY_SWITCH = (
    "Nothing is lost: the current messages become a world line (a branch), and /undo restores them."
)
_NOTHING_CUT = "Nothing is lost: this session keeps these messages; only the fork leaves them out."
_NOTHING_LEFT = (
    "Nothing is lost: the conversation continues on that world line, and /undo switches back."
)
_HEADING = "Files changed since then"
_ALONG = "Files that will change"
_ELSEWHERE = "Files that differ on that world line"
_SHORTEST_NAME = 12
_ROOMY = 8
_ORDER = {"conflict": 0, "skip": 3}


@dataclass(slots=True)
class FilesState:
    """The state of the file list: which files would be restored, and which one is selected.

    Attributes:
        files: the preview of the files.
        chosen: the paths that would be restored.
        rows: the files in the order of the list.
        entries: the choice among the rows; after the last one, the entry for files that no snapshot holds.
        diff: the rows on view of the whole diff of the selected file.
        focused: whether the arrows select files.
        decided: the paths that the user has explicitly chosen or deselected.
        whole: whether the whole diff is shown in place of the list.
        line: the place of the chosen line in it; None if none is chosen.
    """

    files: FilesPreview
    chosen: set[str] = field(init=False)
    rows: list[FilePreview] = field(init=False)
    entries: ListState = field(init=False)
    diff: RowWindow = field(default_factory=RowWindow)
    focused: bool = False
    whole: bool = False
    line: int | None = None
    decided: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.chosen = {one.path for one in self.files.restorable}
        # Files that need a confirmation come first, then those that are restored, then those that cannot be.
        self.rows = sorted(self.files.files, key=_order)
        self.entries = ListState(len(self.rows) + bool(self.files.not_covered))
        self.entries.choose(0)

    @property
    def can_restore(self) -> bool:
        """Whether any file can be restored, those that need a confirmation included."""
        return self.n_restorable > 0 and not self.files.goes_along

    @property
    def n_restorable(self) -> int:
        """The number of files that can be restored, those that need a confirmation included."""
        return len(self.files.restorable) + len(self.files.conflicts)

    @property
    def selected(self) -> int:
        """The index of the selected entry."""
        return self.entries.chosen or 0

    @property
    def current(self) -> FilePreview | None:
        """The selected file, whose diff is shown."""
        return None if self.at_rest or not self.rows else self.rows[self.selected]

    @property
    def at_rest(self) -> bool:
        """Whether the entry after the last file is selected, which lists the files that no snapshot holds."""
        return self.selected >= len(self.rows) and bool(self.files.not_covered)

    @property
    def can_focus(self) -> bool:
        """Whether the list has anything to select."""
        return bool(self.rows or self.files.not_covered)

    @property
    def unasked(self) -> list[FilePreview]:
        """The files that would be restored although another program changed them, and that the user has not confirmed."""
        return [
            one
            for one in self.files.restorable
            if one.reason and one.path in self.chosen and one.path not in self.decided
        ]

    def select(self, index: int) -> None:
        """Select a file; for the selected one, toggle between its whole diff and the list."""
        if self.focused and index == self.selected:
            self.toggle_whole()
        else:
            self.focused, self.whole = True, False
            self.entries.choose(index)

    def toggle_whole(self) -> None:
        """Show the whole diff of the selected file from its first row on, or the list again."""
        self.whole, self.diff.top, self.line = not self.whole, 0, None

    def choose_line(self, step: int) -> DiffLine | None:
        """Choose the next line of the whole diff, or the one before, and return it; the first one is the first on view."""
        rows = self.current.rows if self.current is not None else ()
        if not self.whole or not rows:
            return None
        on_view = self.diff.on_view
        wanted = self.line + step if self.line is not None else on_view.start
        self.line = max(0, min(wanted, len(rows) - 1))
        self.diff.show(self.line, self.line)
        return rows[self.line]

    def move(self, step: int) -> None:
        """Select another file, or scroll the whole diff."""
        if self.whole:
            self.diff.move(step)
        else:
            self.entries.choose(self.entries.moved(step))

    def toggle(self) -> None:
        """Switch whether the current file is restored."""
        one = self.current
        if one is not None and self.may_choose(one):
            self.chosen ^= {one.path}
            self.decided.add(one.path)

    def may_choose(self, one: FilePreview) -> bool:
        """Return whether the user may choose if a file is restored."""
        return one.fate != "skip" and not self.files.goes_along

    def answer(self) -> frozenset[str] | None:
        """Return the paths to restore; None for the default, which is the files that need no confirmation."""
        if self.chosen == {one.path for one in self.files.restorable}:
            return None
        return frozenset(self.chosen)

    def hints(self) -> tuple[str, ...]:
        """Return the effect on the files in several lengths, longest first: `1 file restored, 1 deleted; 2 kept` to `2 files, 1 deleted`.

        The files that are kept need a confirmation.
        """
        fates = [
            one.would if one.fate == "conflict" else one.fate
            for one in self.files.files
            if one.path in self.chosen
        ]
        deleted = fates.count("delete")
        restored = len(fates) - deleted
        kept = sum(one.path not in self.chosen for one in self.files.conflicts)
        if not fates:
            said = ["no file chosen"]
        elif not restored or not deleted:
            said = [
                f"{formatting.counted(len(fates), 'file')} {'deleted' if deleted else 'restored'}"
            ]
        else:
            said = [f"{formatting.counted(restored, 'file')} restored, {deleted} deleted"]
            said.append(f"{formatting.counted(len(fates), 'file')}, {deleted} deleted")
        return (f"{said[0]}; {kept} kept", *said) if kept else tuple(said)


def _summary_rows(state: FilesState, width: int, room: int, glyphs: Glyphs) -> list[list[Span]]:
    """Return rows in place of the list in small frames: `2 files changed   +17 −1`, changes of other programs, and the rest."""
    stays = [one for one in state.rows if state.files.goes_along and one.fate == "skip"]
    foreign = [one for one in state.rows if _is_foreign(one)]
    named = [_file_row(state, one, width, glyphs) for one in (*foreign, *stays)]
    counted = [one for one in state.rows if one not in foreign and one not in stays]
    what = "changed"
    if state.files.is_effect:
        differ = "differs" if len(counted) == 1 else "differ"
        what = "will change" if state.files.goes_along else differ
    said = f"  {formatting.counted(len(counted), 'file')} {what}"
    if len(named) >= room:
        # Not every file can be named here, but their number must be shown.
        said = f"  {formatting.counted(len(state.rows), 'file')} {what}"
        said += f", {len(named)} also changed outside kimi-tui" if named else ""
        counted, named = state.rows, []
    rows = named
    notes = _notes(state.files, width, glyphs)
    fits = len(rows) + bool(counted) + len(notes) <= room
    if counted:
        lost = 0 if state.files.goes_along else sum(one.fate == "skip" for one in counted)
        unnamed = 0 if fits else len(state.files.not_covered)
        more = ""
        if lost:
            more = f", {formatting.grouped(lost + unnamed)} cannot be restored"
        elif unnamed:
            more = f", {formatting.grouped(unnamed)} not in a snapshot"
        said += more if cell_len(said + more) <= width else ""
        added, removed = sum(one.added for one in counted), sum(one.removed for one in counted)
        rows = [sides([Span(said, "quiet")], change_counts(added, removed, glyphs), width), *rows]
    return [*rows, *notes] if fits else rows


def _listed_rows(
    state: FilesState, width: int, room: int, glyphs: Glyphs, *, with_diff: bool = True
) -> list[Row]:
    """Return the list with the diff of the selected file under it, in at most `room` rows.

    The first two cells of each row are for signs, so that texts are aligned with and without a sign.
    """
    files = state.files
    if files.reason:
        lines = formatting.wrap_words(one_line(files.reason), width - 2)[:room]
        return [Row([Span(f"  {line}", "quiet")]) for line in lines]
    if state.whole:
        return _whole(state, width, room, glyphs)
    notes = [Row(spans) for spans in _notes(files, width, glyphs)]
    if state.focused and state.at_rest and notes:
        notes[0] = Row([span._replace(style="accent") for span in notes[0].spans])
    if not state.rows:
        said = "No file changed since then."
        if files.is_effect:
            differs = "No file differs on that world line."
            said = "No file will change." if files.goes_along else differs
        return [Row([Span(f"  {said}", "quiet")]), *notes][:room]
    heading = Span(
        f"  {_ALONG if files.goes_along else _ELSEWHERE if files.is_effect else _HEADING}",
        "accent" if state.focused else "quiet",
    )
    space = max(1, room - 1)
    reserved = len(notes) + 1 if notes and (space >= _ROOMY or state.at_rest) else 0
    n_shown = min(len(state.rows), max(1, space - reserved))
    left = space - n_shown
    notes = notes[:left]
    apart = [Row()] if len(notes) < left else []
    left -= len(notes) + len(apart) if notes else 0
    shown = RowWindow(len(state.rows), n_shown)
    shown.centre(state.selected)
    more = _hidden_words(shown, glyphs)
    rows = [Row(sides([heading], [Span(more, "quiet")], width) if more else [heading])]
    for place in shown.on_view:
        one = state.rows[place]
        rows.append(Row(_file_row(state, one, width, glyphs), file=place))
        if place == state.selected and left > 0 and with_diff:
            rows += [Row(spans) for spans in _cut(_diff(one, width, glyphs), left, glyphs)]
    return [*rows, *([*apart, *notes] if notes else [])]


def _file_row(state: FilesState, one: FilePreview, width: int, glyphs: Glyphs) -> list[Span]:
    is_current = state.focused and one is state.current
    is_chosen = one.path in state.chosen
    name = shown_name(one.path)
    least = min(_SHORTEST_NAME, cell_len(name))
    sign = Span(" ", "quiet")
    if state.focused and is_chosen:
        sign = Span(glyphs.done, "ok")
    elif one.reason:
        sign = Span(glyphs.caution, "warn")
    lead: list[Span] = [sign, Span(" ", "quiet")]
    right: list[Span] = []
    if one.fate == "skip" and one.is_gone:
        right = [Span(one_line(one.reason), "quiet")]
    elif not is_chosen:
        right = [Span(f"{one_line(one.reason)}; kept" if one.reason else "kept", "quiet")]
        if width - spans_width(right) - 4 < least:
            right = [Span("kept", "quiet")]
    else:
        if one.only_rights:
            right = [Span("only permissions", "quiet")]
        elif one.is_folder:
            right = [Span("empty folder", "quiet")]
        elif one.is_text:
            right = change_counts(one.added, one.removed, glyphs)
        else:
            right = [Span("not text", "quiet")]
        mark = _mark(one, state.files)
        if mark:
            right = [Span(mark, "quiet"), *([Span("  ", "quiet"), *right] if right else [])]
        if one.reason:
            gap = "  " if right else ""
            said: list[Span] = [Span(f"{one_line(one.reason)}{gap}", "quiet"), *right]
            right = said if width - spans_width(said) - 4 >= least else right
    room = width - 2 - spans_width(right) - 2
    if room < least:
        right, room = [], width - 2
    name = formatting.path(name, room, glyphs.cut)
    return sides([*lead, Span(name, "accent" if is_current else "ink")], right, width)


def _mark(one: FilePreview, files: FilesPreview) -> str:
    """Return the words for a file that a restore creates or deletes, which its figures do not tell."""
    if one.is_new:
        if files.goes_along:
            return "will be deleted"
        return "restoring deletes it" if files.is_effect else "new: restoring deletes it"
    if one.is_gone:
        if files.goes_along:
            return "will be created"
        return "restoring creates it" if files.is_effect else "gone: restoring creates it"
    return ""


def _order(one: FilePreview) -> int:
    return _ORDER.get(one.fate, 1 if one.reason else 2)


def _is_foreign(one: FilePreview) -> bool:
    """Return whether another program changed the file as well."""
    return bool(one.reason) and one.fate != "skip"


def _diff(one: FilePreview, width: int, glyphs: Glyphs) -> list[list[Span]]:
    if one.only_rights:
        return [[Span("    Only its permissions changed.", "quiet")]]
    if one.is_folder:
        return [[Span("    This is an empty folder.", "quiet")]]
    if not one.is_text:
        return [[Span("    This is not a text file.", "quiet")]]
    return diff_rows(one.rows, width, glyphs, indent=2, banded=True)


def _cut(rows: list[list[Span]], room: int, glyphs: Glyphs) -> list[list[Span]]:
    if len(rows) <= room:
        return rows
    more = f"    {formatting.grouped(len(rows) - room + 1)} more rows {glyphs.down}"
    return [*rows[: room - 1], [Span(more, "quiet")]]


def _whole(state: FilesState, width: int, room: int, glyphs: Glyphs) -> list[Row]:
    one = state.current
    if one is not None:
        heading, rows = _file_row(state, one, width, glyphs), _diff(one, width, glyphs)
    else:
        heading: list[Span] = [
            Span("  There is no snapshot of these files; they stay as they are.", "ink")
        ]
        rows = [
            sides(
                [Span(f"    {formatting.path(shown_name(path), width - 24, glyphs.cut)}", "quiet")],
                [Span(one_line(why), "quiet")],
                width,
            )
            for path, why in state.files.not_covered
        ]
    on_view = state.diff.fit(len(rows), max(1, room - 2))
    more = f"  {_hidden_words(state.diff, glyphs)}"
    has_lines = one is not None and len(one.rows) == len(rows)
    lines = [
        Row(rows[n], line=n if has_lines else None, is_selected=has_lines and n == state.line)
        for n in on_view
    ]
    return [Row(heading), *lines, Row([Span(more, "quiet")])][:room]


def _hidden_words(window: RowWindow, glyphs: Glyphs) -> str:
    """Return the number of rows below and above the visible ones, as `12 more ↓   3 more ↑`."""
    parts = [f"{formatting.grouped(window.below)} more {glyphs.down}"] if window.below else []
    parts += [f"{formatting.grouped(window.above)} more {glyphs.up}"] if window.above else []
    return "   ".join(parts)


def _notes(files: FilesPreview, width: int, glyphs: Glyphs) -> list[list[Span]]:
    """Return rows about files that cannot be restored."""
    sentences: list[str] = []
    if files.not_covered:
        named = [f"{shown_name(path)} ({one_line(why)})" for path, why in files.not_covered[:3]]
        count = len(files.not_covered)
        more = f" ({formatting.grouped(count)})" if count > len(named) else ""
        sentences.append(f"No snapshot{more} of: {', '.join(named)}")
    sentences += [one_line(remark) for remark in files.remarks]
    if files.ran_commands:
        sentences.append("Changes outside this folder are not undone.")
    cut = [formatting.cut(sentence, width - 2, glyphs.cut) for sentence in sentences]
    return [[Span(f"  {sentence}", "quiet")] for sentence in cut]


def file_keys(files: FilesState, arrows: str, width: int) -> Sequence[Hint]:
    """Return the hints on the keys of the file list, worded so that all of them fit.

    Args:
        files: the state of the file list.
        arrows: the signs of the arrow keys.
        width: the cells for all hints.
    """
    if files.whole:
        return [(arrows, "scroll"), ("Esc", "back")]
    one = files.current
    is_chosen = one is not None and one.path in files.chosen
    space = [("Space", "skip file" if is_chosen else "restore file")]
    if one is None or not files.may_choose(one):
        space = []
    what = "list" if files.at_rest else "diff"
    first, last = (arrows, "choose"), (("Tab", "back"), ("Esc", "cancel"))
    # If there is little room, the meaning of Space and Enter is more useful than that of the arrows.
    short = [("Space", "skip" if is_chosen else "restore")] if space else space
    return roomiest(
        (
            (first, *space, ("Enter", f"full {what}"), *last),
            (first, *space, ("Enter", what), *last),
            (*short, ("Enter", what), *last),
        ),
        width,
    )


@dataclass(frozen=True, slots=True)
class PreviewAction:
    """An action that the preview of a rewind offers.

    Attributes:
        key: the letter that chooses it.
        name: its name in `PreviewAnswer`.
        title: the text of its row.
        hint: its cost, or the parts that it leaves alone, in a few words.
        shorter: wordings of the hint for less room, longest first.
        verb: the effect of Enter, in a word.
        group: a blank row stands between two groups.
    """

    key: str
    name: str
    title: str
    hint: str = ""
    verb: str = "choose"
    group: int = 0
    shorter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreviewAnswer:
    """The user's answer to the preview of a rewind."""

    action: str
    files: Literal["keep", "restore", "only"] = "keep"
    """Whether files are kept, restored, or the only thing that is restored."""
    chosen: frozenset[str] | None = None
    """The files to restore; None for those that need no confirmation."""


REWIND = PreviewAction("r", "rewind", "Rewind the conversation", "files unchanged", verb="rewind")
SWITCH = replace(REWIND, title="Switch the conversation", verb="switch")
"""The rewind of the current world line, as a switch to another one."""
BOTH = PreviewAction("f", "both", "Rewind and restore files", verb="rewind")
FILES = PreviewAction("o", "files", "Restore files only", "conversation unchanged", verb="restore")
FORK = PreviewAction("n", "fork", "Fork into a new session", "this session unchanged", verb="fork")
DMAIL = PreviewAction(
    "d", "dmail", "Send a D-Mail here", "rewinds and leaves a note", verb="write", group=1
)
COMPACT_FROM = PreviewAction("c", "compact-from", "Compact from here on", verb="compact", group=1)
COMPACT_TO = PreviewAction("p", "compact-to", "Compact up to here", verb="compact", group=1)
FUTURES = PreviewAction(
    "x", "futures", "Try several ways from here", "beside this conversation", verb="ask", group=1
)
"""Starts futures: continuations that run beside the current conversation."""
WHOLE = PreviewAction(
    "e", "whole", "Preview a switch to the end of the world line", verb="preview", group=1
)
"""Previews the end of a world line in place of one of its checkpoints."""
COPY = PreviewAction("y", "copy", "Copy up to here as Markdown", verb="copy", group=1)
UNDO = PreviewAction("u", "undo", "Undo", verb="undo")
LEAVE = PreviewAction("r", "leave", "Continue", "files unchanged", verb="continue")
BRING = replace(FILES, title="Restore the files", hint="")
"""For a session whose files differ from those at the end of its conversation."""
LETTERS = frozenset(
    one.key
    for one in (
        *(REWIND, BOTH, FILES, FORK, DMAIL, FUTURES),
        *(COMPACT_FROM, COMPACT_TO, WHOLE, COPY, UNDO),
    )
)
"""The keys of all actions; each of them answers in some preview."""
WITH_A_WORD = frozenset({FORK.name, DMAIL.name})
"""Actions that may include the files, and ask about them if there are any."""

CONVERSATION_ACTIONS: Sequence[PreviewAction] = (REWIND, FORK, COPY)
"""The actions that need no snapshots of files."""


def actions_at(
    checkpoint_id: int,
    world_line: int,
    *,
    has_dmail: bool = True,
    has_lines: bool = True,
    has_futures: bool = True,
    is_there: bool = False,
    compacts: Sequence[PreviewAction] = (COMPACT_FROM, COMPACT_TO),
) -> Sequence[PreviewAction]:
    """Return the actions for a checkpoint, or for the end of another world line.

    Only parts of the current world line can be compacted: `compacts` are the actions for parts that hold messages. If the conversation
    `is_there` already, there is no action that goes there. `has_dmail`, `has_lines` and `has_futures` say whether the agent accepts
    D-Mails, gives its conversation as a text, and can be tried several ways.
    """
    go = () if is_there else (SWITCH if world_line else REWIND,)
    copy = (COPY,) if has_lines else ()
    if checkpoint_id < 0:
        return (*go, FORK, *copy)
    dmail = (DMAIL,) if has_dmail else ()
    futures = (FUTURES,) if has_lines and has_futures else ()
    if world_line:
        return (*go, FORK, *dmail, *futures, WHOLE, *copy)
    return (*go, FORK, *dmail, *futures, *compacts, *copy)


def _with_files(
    actions: Sequence[PreviewAction], hints: Sequence[str], pending: PreviewAction | None = None
) -> Sequence[PreviewAction]:
    """Return the actions if files can be restored; `hints` say how the files would change, longest first.

    If a fork or a D-Mail, `pending`, waits for the choice whether files are restored, its two answers are returned.
    """
    place = next((i for i, one in enumerate(actions) if one.name == REWIND.name), -1) + 1
    verb = actions[place - 1].verb if place else BOTH.verb
    if pending is not None:
        what = "Fork" if pending.name == FORK.name else "Send"
        stay = replace(pending, title=f"{what} and keep the files", hint="", group=0)
        back = replace(BOTH, title=f"{what} and restore the files", verb=pending.verb)
        back = _hinted(back, hints)
        return (stay, back)
    # If the conversation has nowhere to go, there is no action for both.
    both = _hinted(replace(BOTH, title=f"{verb.capitalize()} and restore files", verb=verb), hints)
    files = (both, FILES) if place else (_hinted(FILES, hints),)
    return (*actions[:place], *files, *actions[place:])


def _hinted(action: PreviewAction, hints: Sequence[str]) -> PreviewAction:
    return replace(action, hint=hints[0], shorter=tuple(hints[1:]))


@dataclass(slots=True)
class PreviewState:
    """The state of the preview of a rewind: what would be dropped, the selected action, and the files.

    Attributes:
        preview: the preview that the engine computed.
        actions: the choices, in order.
        running: whether a turn is running, which would be stopped first.
        choices: the choice among the actions.
        details: in one column, whether the dropped messages are listed in place of the choices.
        messages: the dropped messages on view.
        plain_actions: the choices without those that restore files.
        title: the title in the border; empty for that of a rewind or a jump.
        line_name: the name of the target's world line, or of the line that the dropped messages will be on.
        asked: the action that waits for a confirmation, because it would revert another program's changes.
        pending: the fork or D-Mail that waits for an answer on the files.
        files: the state of the file list; None if files are not followed.
        heights: the rows of the highest view, by width and room. Each is measured once, because measuring reads whole diffs.
    """

    preview: RewindPreview
    actions: Sequence[PreviewAction]
    running: bool = False
    choices: ListState = field(default_factory=ListState)
    details: bool = False
    messages: RowWindow = field(default_factory=RowWindow)
    plain_actions: Sequence[PreviewAction] = ()
    title: str = ""
    line_name: str = ""
    asked: str = ""
    pending: PreviewAction | None = None
    files: FilesState | None = field(init=False)
    heights: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def __post_init__(self) -> None:
        self.files = FilesState(self.preview.files) if self.preview.files else None
        self.plain_actions = self.actions
        self.refresh()

    def refresh(self) -> None:
        """Compute the choices again after files were chosen."""
        self._offer_files()
        self.choices.count = len(self.actions)
        self.choices.choose(self.selected)

    @property
    def selected(self) -> int:
        """The index of the selected action."""
        return self.choices.chosen or 0

    def select(self, name: str) -> None:
        """Select the action of a name."""
        self.choices.choose([one.name for one in self.actions].index(name))

    def _offer_files(self) -> None:
        if self.files is None or not self.files.n_restorable:
            return
        if self.files.files.goes_along:
            self.actions = [_hinted(one, self.files.hints()) for one in self.plain_actions]
        elif any(one.name == BRING.name for one in self.plain_actions):
            hints = self.files.hints()
            self.actions = [
                _hinted(one, hints) if one.name == BRING.name else one for one in self.plain_actions
            ]
        else:
            self.actions = _with_files(self.plain_actions, self.files.hints(), self.pending)


class Row(NamedTuple):
    """One row inside the frame.

    Attributes:
        spans: its text with styles.
        action, file: the action, or the file, that a click on it means; None for none.
        is_selected: whether it has the background of the selection.
        line: the place of the file's line in the diff that a click on it means; None for none.
    """

    spans: Sequence[Span] = ()
    action: int | None = None
    file: int | None = None
    is_selected: bool = False
    line: int | None = None

    @property
    def text(self) -> str:
        """Its text without styles."""
        return "".join(span.text for span in self.spans)

    def indented(self, cells: int) -> Row:
        """Return the row, indented by further cells."""
        return self._replace(spans=[Span(" " * cells, "quiet"), *self.spans])


@dataclass(slots=True)
class PreviewRows:
    """The preview of a rewind laid out as rows.

    Attributes:
        rows: the rows from the top.
        files_at: the column at which the rows of files begin, with their signs.
        band: first and last (exclusive) column of the choices, in which a click counts for the choice of its row.
        can_scroll: whether more messages are dropped than are visible.
        page: the number of visible rows of dropped messages.
    """

    rows: list[Row] = field(default_factory=list[Row])
    files_at: int = 0
    band: tuple[int, int] = (0, 0)
    can_scroll: bool = False
    page: int = 1


def frame_width(screen_width: int) -> int:
    """Return the width of the frame with its border, in cells."""
    margin = 2 if screen_width < 70 else 6
    return min(WIDEST, screen_width - margin)


def rows_for(screen_height: int) -> int:
    """Return the largest number of rows inside the frame on a screen of this height."""
    return screen_height - 4 if screen_height < 30 else screen_height * 3 // 4 - 2


def preview_rows(state: PreviewState, width: int, max_height: int, glyphs: Glyphs) -> PreviewRows:
    """Return the rows for a frame of `width` cells inside and at most `max_height` rows."""
    inner = width - 2 * AIR
    top: list[list[Span]] = [
        [],
        _question_row(state.preview, inner, glyphs.cut),
        *consequence_rows(state.preview, inner, glyphs, state.pending),
    ]
    if state.running:
        top.append(_stopped_first_row(glyphs))
    if state.preview.run_on:
        top.append(_runs_on_row(state.preview.run_on, inner, glyphs))
    if width < WIDE_FROM and max_height - len(top) - 3 <= len(state.actions) + 1:
        # In a low frame the note that nothing is lost needs the blank row at the top.
        del top[0]
    n_fixed = len(top)
    room = max_height - n_fixed - 3
    height = _height(state, width, room, glyphs) if state.files is not None else 0
    if state.asked and state.files is not None:
        key = next((one.key for one in state.actions if one.name == state.asked), "")
        top.append(_confirmation_row(state.files.unasked, key, inner, glyphs))
    elif state.pending is not None and state.files is not None and state.files.n_restorable:
        top.append(_files_question_row(state.files.n_restorable, inner, glyphs))
    if len(top) > n_fixed:
        height -= 1
        room = room - 1 if width >= WIDE_FROM else height
    top.append([])
    made = _view(state, width, room, height, glyphs)
    rows = [Row(spans).indented(AIR) if spans else Row() for spans in top] + made.rows
    rows += [Row()] * (height - len(made.rows))
    if len(rows) + 2 <= max_height:
        rows.append(Row())
    keys = _key_row(_keys(state, width, made.can_scroll, glyphs), inner + 1)
    rows.append(Row(keys).indented(AIR))
    made.rows = [row._replace(spans=fitted(row.spans, width)) for row in rows[:max_height]]
    return made


def _view(state: PreviewState, width: int, room: int, height: int, glyphs: Glyphs) -> PreviewRows:
    """Return the rows between the question and the keys: `height` of them, or as many as there are if that is 0."""
    if width >= WIDE_FROM:
        return _two_columns(state, width, room, height, glyphs)
    if state.details or (state.files is not None and state.files.focused):
        return _details(state, width, height or room, glyphs)
    return _choices(state, width, room, glyphs)


def _height(state: PreviewState, width: int, room: int, glyphs: Glyphs) -> int:
    """Return the rows of the highest view, so that the frame keeps its size while files are chosen."""
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
            other.messages = copy(state.messages)
            other.files = copy(state.files)
            other.files.entries = ListState(state.files.entries.count, chosen=place)
            other.files.focused, other.files.whole = focused, False
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
        tab = [("Tab", "scroll messages")] if can_scroll and not state.details else []
        if state.files is not None and state.files.can_focus:
            tab = [("Tab", "files")]
        if state.details:
            return [(arrows, "scroll"), ("Tab", "choices"), ("Enter", verb), ("Esc", "cancel")]
    elif state.details:
        return [(arrows, "scroll"), ("Tab", "choices"), ("Esc", "cancel")]
    else:
        tab = [("Tab", "messages" if width > 60 else "details")] if state.preview.dropped else []
        if state.files is not None and state.files.can_focus:
            tab = [("Tab", "files")]
    if len(state.actions) == 1:
        return [("Enter", verb), *tab, ("Esc", "cancel")]
    # Digits are named if there is room, as in an approval.
    return roomiest(
        [
            [("Enter", verb), (f"{digits}{arrows}", "choose"), *tab, ("Esc", "cancel")]
            for digits in (f"1-{min(len(state.actions), 9)} ", "")
        ],
        width - 2 * AIR + 1,
    )


def _choices(state: PreviewState, width: int, room: int, glyphs: Glyphs) -> PreviewRows:
    """Return one column: the choices, a row each, then the files, then the note that nothing is lost."""
    least = len(state.actions) + (state.files is not None)
    # The note has a row of its own, if need be a short one and without a blank row above it.
    room_above = room - 1 if room > least else room
    rows = _action_rows(state, width - 1, room_above, glyphs, hint_below=False)
    if state.files is not None:
        rows += _files_below(state.files, width - 2 * AIR + 2, room_above - len(rows), glyphs)
    lost, short = (
        _nothing_lost_rows(
            state.preview, width - 2 * AIR, state.line_name, state.pending, short=short
        )
        for short in (False, True)
    )
    left = room - len(rows)
    note = lost if len(lost) < left else short
    if len(note) <= left:
        rows += [Row()] if len(note) < left else []
        rows += [Row(spans).indented(AIR) for spans in note]
    return PreviewRows(rows, files_at=AIR - 2, band=(1, width - 1))


def _files_below(files: FilesState, width: int, room: int, glyphs: Glyphs) -> list[Row]:
    """Return the files below the choices: as a list if there is room, else their number."""
    apart = [Row()] if room > 1 else []
    space = room - len(apart)
    if space < 1:
        return []
    rows = _listed_rows(files, width, space, glyphs, with_diff=False)
    notes = len(files.files.not_covered) > 0
    if len(files.rows) + 1 + 2 * notes > space and not files.files.reason:
        rows = [Row(spans) for spans in _summary_rows(files, width, space, glyphs)]
    return [*apart, *(row.indented(AIR - 2) for row in rows)]


def _details(state: PreviewState, width: int, room: int, glyphs: Glyphs) -> PreviewRows:
    """Return one column: the dropped messages, or the files."""
    if state.files is not None and state.files.focused:
        listed = _listed_rows(state.files, width - 2 * AIR + 2, room, glyphs)
        return PreviewRows([row.indented(AIR - 2) for row in listed], files_at=AIR - 2)
    made = _dropped_rows(state, width - 2 * AIR, room, glyphs)
    made.rows = [row.indented(AIR) for row in made.rows]
    return made


def _two_columns(
    state: PreviewState, width: int, room: int, height: int, glyphs: Glyphs
) -> PreviewRows:
    """Return two columns: the choices, and the dropped messages with the files."""
    lost = _nothing_lost_rows(state.preview, LEFT_WIDTH - 1, state.line_name, state.pending)
    wanted = sum(2 if action.hint else 1 for action in state.actions) + len(lost) + 3
    left = _action_rows(state, 1 + LEFT_WIDTH, room, glyphs, hint_below=wanted <= room)
    made = _right(state, width - RIGHT_AT - AIR, room, height or room, glyphs)
    # The note on undo stands at the foot of the left column, and both columns have the height of the higher one.
    n_left = len(left) + 1 + len(lost)
    height = height or min(room, max(n_left, len(made.rows)))
    left += [Row()] * (height - len(left))
    if n_left <= height:
        left[height - len(lost) :] = [Row(spans).indented(AIR) for spans in lost]
    right = made.rows + [Row()] * (height - len(made.rows))
    made.rows = [
        row._replace(spans=[*fitted(row.spans, RIGHT_AT - 2), *beside.spans], file=beside.file)
        for row, beside in zip(left[:height], right, strict=False)
    ]
    made.files_at, made.band = RIGHT_AT - 2, (1, 1 + LEFT_WIDTH)
    return made


def _right(state: PreviewState, width: int, room: int, height: int, glyphs: Glyphs) -> PreviewRows:
    """Return the right column: the dropped messages, then the files that changed since; the first two cells are for signs."""
    files = state.files
    if files is not None and files.whole:
        return PreviewRows(_listed_rows(files, width + 2, height, glyphs))
    least = 0 if files is None else 1 + min(room // 2, 12 if files.rows else 3)
    made = _dropped_rows(state, width, max(2, room - least), glyphs)
    made.rows = [row.indented(2) for row in made.rows]
    if files is not None:
        space = height - len(made.rows) - 1
        made.rows += [Row(), *_listed_rows(files, width + 2, space, glyphs)]
    return made


def _action_rows(
    state: PreviewState, end: int, room: int, glyphs: Glyphs, *, hint_below: bool
) -> list[Row]:
    """Return the rows of the choices; `end` is the column at which their background ends."""
    rows: list[Row] = []
    group = state.actions[0].group if state.actions else 0
    spare = room - len(state.actions)
    if state.files is not None:
        spare -= _LEAST_FOR_FILES + (1 if state.files.files.not_covered else 0)
    for index, action in enumerate(state.actions):
        if action.group != group and spare > 0:
            rows.append(Row())
            spare -= 1
        group = action.group
        is_selected = index == state.selected
        edge = Span(glyphs.edge if is_selected else " ", "quiet" if state.details else "accent")
        spans: list[Span] = [
            Span(" ", "quiet"),
            edge,
            Span(" ", "quiet"),
            Span(f"{action.key}  ", "accent" if is_selected else "quiet"),
            Span(action.title, "strong" if is_selected else "ink"),
        ]
        # If the number of files that stay does not fit here, these files are named below.
        hints = (action.hint, *action.shorter) if not hint_below else ()
        gaps = ((hint, end - 2 - spans_width(spans) - cell_len(hint)) for hint in hints if hint)
        if (fitting := next(((hint, gap) for hint, gap in gaps if gap >= 2), None)) is not None:
            spans += [Span(" " * fitting[1], "quiet"), Span(fitting[0], "quiet")]
        rows.append(Row(spans, action=index, is_selected=is_selected))
        if action.hint and hint_below:
            wordings = (action.hint, *action.shorter)
            hint = next((one for one in wordings if 6 + cell_len(one) <= end + 1), wordings[-1])
            rows.append(Row([Span(" " * 6, "quiet"), Span(hint, "quiet")], action=index))
    return rows


def _dropped_rows(state: PreviewState, width: int, room: int, glyphs: Glyphs) -> PreviewRows:
    """Return the list of dropped messages with a heading, as much as fits."""
    dropped = state.preview.dropped
    if not dropped:
        said = formatting.wrap_words(_nothing_dropped(state.preview), width)[: max(1, room)]
        return PreviewRows([Row([Span(line, "quiet")]) for line in said])
    made = PreviewRows([Row(_dropped_heading(state.preview, width, state.pending))])
    space = max(1, room - 1)
    made.can_scroll = len(dropped) > space
    if made.can_scroll:
        made.page = space - 1
    on_view = state.messages.fit(len(dropped), made.page if made.can_scroll else len(dropped))
    shown = dropped[on_view.start : on_view.stop]
    made.rows += [Row(dropped_row(message, width, glyphs)) for message in shown]
    if made.can_scroll:
        made.rows.append(Row([Span(f"  {_hidden_words(state.messages, glyphs)}", "quiet")]))
    return made


def frame_title(state: PreviewState) -> str:
    """Return the title in the border."""
    target = state.preview.target
    where = f"#{target.id}"
    if target.world_line:
        line = formatting.line_words(target.world_line, state.line_name, _LINE_NAME_WIDTH)
        where = f"{'the end' if target.is_end else where} of {line}"
    if state.pending is not None:
        return f"{'Fork at' if state.pending.name == FORK.name else 'D-Mail to'} {where}"
    return state.title or f"{'Switch' if target.world_line else 'Rewind'} to {where}"


def _question_row(preview: RewindPreview, width: int, mark: str) -> list[Span]:
    """Return the message at the checkpoint, in one row."""
    target = preview.target
    name = f"World line {target.world_line}" if target.is_end else f"Checkpoint #{target.id}"
    label = preview.label if preview.prompt else unmarked(preview.label)
    words = one_line(label) or name
    return [Span(formatting.cut(words, width, mark), "strong")]


def consequence_rows(
    preview: RewindPreview, width: int, glyphs: Glyphs, pending: PreviewAction | None = None
) -> list[list[Span]]:
    """Return a sentence such as `Removes 5 steps, 11 messages; frees 4.6k tokens`, with the context before and after if that fits.

    A switch leaves the steps, and the other line may be longer: `Leaves 1 step; adds 400 tokens`. A fork leaves them out. If
    prices are set, the cost of the dropped model calls follows, in a row of its own if it would be cut.
    """
    if preview.is_there:
        said = "The conversation is already at this checkpoint."
        if preview.target.world_line:
            said = "The conversation stays as it is."
        elif preview.target.is_end:
            said = "The conversation continues from here."
        return [[Span(said, "quiet")]]
    counts = [(preview.steps, "step"), (preview.messages, "message")]
    if preview.turns > 1:
        counts.insert(0, (preview.turns, "turn"))
    parts = [formatting.counted(count, noun) for count, noun in counts if count]
    jumps = bool(preview.target.world_line)
    change = preview.tokens_after - preview.tokens_before
    verb = "Leaves " if jumps else "Removes "
    does = (verb, "; adds " if change > 0 else "; frees ")
    if _is_fork(pending):
        # A fork removes nothing from this conversation, and frees nothing.
        does = ("The fork omits ", ", ")
    freed = formatting.tokens(abs(change), estimated=preview.estimated)
    # Numbers are never cut: if there is no room for all of them, the less informative ones are left out.
    unit = " token" if abs(change) == 1 else " tokens"
    shorter = (parts, [*parts[:1], *parts[-1:]], parts[:1])
    wordings = [_sizes(does, counted, f"{freed}{unit}") for counted in shorter]
    fitting = (wording for wording in wordings if spans_width(wording) <= width)
    left = next(fitting, wordings[-1])
    after = formatting.tokens(preview.tokens_after, estimated=preview.estimated)
    before = formatting.tokens(preview.tokens_before)
    right: list[Span] = [Span(f"{before} {glyphs.to} ", "quiet"), Span(after, "strong")]
    if before == after.lstrip("~"):
        right = [Span(after, "strong")]  # the left side names the change
    if spans_width(left) + 3 + len("context ") + spans_width(right) <= width:
        right = [Span("context ", "quiet"), *right]
    money = cost_words(preview.cost) if preview.cost is not None else ""
    spent: list[Span] = [Span("; spent on these steps: ", "quiet"), Span(money, "ink")]
    below: list[list[Span]] = []
    if money and spans_width(left) + spans_width(spent) <= width:
        left += spent
    elif money:
        below = [[Span("Spent on these steps: ", "quiet"), Span(money, "ink")]]
    has_room = spans_width(left) + 3 + spans_width(right) <= width
    return [sides(left, right, width) if has_room else left, *below]


def _sizes(does: tuple[str, str], parts: Sequence[str], change: str) -> list[Span]:
    return [
        Span(does[0], "quiet"),
        Span(", ".join(parts) or "nothing", "ink"),
        Span(does[1], "quiet"),
        Span(change, "ink"),
    ]


def _stopped_first_row(glyphs: Glyphs) -> list[Span]:
    """Return the row that says that a running turn is stopped first."""
    return [
        Span(f"{glyphs.caution} ", "warn"),
        Span("The agent is working.", "ink"),
        Span(" It will be stopped first.", "quiet"),
    ]


def _runs_on_row(commands: Sequence[str], width: int, glyphs: Glyphs) -> list[Span]:
    """Return the row `! Background task keeps running: npm run dev`."""
    lead = "Background task keeps running: "
    if len(commands) > 1:
        lead = "Background tasks keep running: "
    names = formatting.cut(", ".join(map(one_line, commands)), width - 2 - len(lead), glyphs.cut)
    return [Span(f"{glyphs.caution} ", "warn"), Span(lead, "quiet"), Span(names, "ink")]


def _confirmation_row(
    files: Sequence[FilePreview], key: str, width: int, glyphs: Glyphs
) -> list[Span]:
    """Return the row that asks for a confirmation: `! Changed outside kimi-tui: notes.md   f again to restore it too`."""
    reasons = {one.reason.removeprefix("also ") for one in files}
    why = reasons.pop() if len(reasons) == 1 else "changed outside kimi-tui"
    lead, end = f"{why.capitalize()}: ", f"   {key} again"
    names = ", ".join(shown_name(one.path) for one in files)
    room = width - 2 - cell_len(lead) - cell_len(end)
    more = f" to restore {'it' if len(files) == 1 else 'them'} too"
    if cell_len(names) + cell_len(more) <= room:
        end += more
    names = formatting.cut(names, max(0, room), glyphs.cut)
    return [
        Span(f"{glyphs.caution} ", "warn"),
        Span(lead, "quiet"),
        Span(names, "strong"),
        Span(end, "ink"),
    ]


def _files_question_row(n_files: int, width: int, glyphs: Glyphs) -> list[Span]:
    """Return the row `! 2 files changed since then. Restore them as well?`, which the choices answer."""
    said = f"{formatting.counted(n_files, 'file')} changed since then. "
    asked = f"Restore {'it' if n_files == 1 else 'them'} as well?"
    if cell_len(said + asked) > width - 2:
        said, asked = "", "Restore the files as well?"
    return [Span(f"{glyphs.caution} ", "warn"), Span(said, "quiet"), Span(asked, "ink")]


def _nothing_lost_rows(
    preview: RewindPreview,
    width: int,
    line_name: str = "",
    pending: PreviewAction | None = None,
    *,
    short: bool = False,
) -> list[list[Span]]:
    """Return the rows that say how to undo it, or one short row.

    `line_name` is that of the world line that the dropped messages will be on.
    """
    said = "Nothing is lost: /undo restores these messages." if short else _NOTHING_LOST
    if _is_fork(pending):
        said = "Nothing is lost: this session is unchanged." if short else _NOTHING_CUT
    elif preview.left_as:
        # The label names the world line on which they stay.
        said = "Nothing is lost: /redo restores these messages."
    elif preview.is_there:
        said = "Nothing is lost: /undo reverses it."
    elif preview.target.world_line:
        said = _NOTHING_LOST_BY_SWITCH if preview.dropped else _NOTHING_LEFT
        if short:
            said = "Nothing is lost: /undo switches back."
    rows: list[list[Span]] = []
    place = 0
    for line in formatting.wrap_words(said, width):
        row: list[Span] = []
        for word in line.split():
            row += [Span(" ", "quiet")] if row else []
            row.append(Span(word, "ink" if place < 3 or word in ("/undo", "/redo") else "quiet"))
            place += 1
        rows.append(row)
    return rows


def _is_fork(pending: PreviewAction | None) -> bool:
    return pending is not None and pending.name == FORK.name


def _dropped_heading(
    preview: RewindPreview, width: int, pending: PreviewAction | None = None
) -> list[Span]:
    """Return the heading of the list of messages that are dropped, or that a fork leaves out."""
    name = "Left as a world line" if preview.target.world_line else "Removed from the conversation"
    if _is_fork(pending):
        name = "Left out of the fork"
    return sides([Span(name, "quiet")], [Span("tokens", "quiet")], width)


def _nothing_dropped(preview: RewindPreview) -> str:
    """Return the sentence in place of an empty list of dropped messages."""
    if preview.target.world_line and not preview.is_there:
        return "Nothing is removed: the conversation continues on that world line."
    if preview.messages and preview.prompt:
        return "Only your message is removed; it returns to the prompt."
    if not preview.steps:
        return "Nothing is removed from the conversation."
    return "No message is removed; only the checkpoint leaves the timeline."


def dropped_row(message: DroppedMessage, width: int, glyphs: Glyphs) -> list[Span]:
    """Return the row of a dropped message: its sign, its text, and its tokens at the right."""
    cost = formatting.tokens(message.tokens) if message.tokens is not None else ""
    room = width - 2 - (cell_len(cost) + 2 if cost else 0)
    text = one_line(message.text)
    match message.kind:
        case "user":
            left = [
                Span(f"{glyphs.turn} ", "accent"),
                Span(formatting.cut(text, room, glyphs.cut), "ink"),
            ]
        case "tool":
            sign = Span(glyphs.failed, "error") if message.failed else Span(glyphs.done, "ok")
            if message.tokens is None:
                sign = Span(glyphs.running, "quiet")
            name = short_name(message.name, message.card).ljust(_NAME_WIDTH)
            room -= cell_len(name) + 1
            left = [
                sign._replace(text=f"{sign.text} "),
                Span(f"{name} ", "tool"),
                Span(formatting.cut(text, room, glyphs.cut), "ink"),
            ]
        case "dmail":
            words = formatting.cut(f"D-Mail  {text}".rstrip(), room, glyphs.cut)
            left = [Span(f"{glyphs.dmail} ", "dmail"), Span(words, "dmail")]
        case "summary":
            words = formatting.cut(f"Summary  {text}".rstrip(), room, glyphs.cut)
            left = [Span(f"{glyphs.compaction} ", "compaction"), Span(words, "compaction")]
        case _:
            words = one_line(unmarked(message.text))
            left = [Span("  ", "quiet"), Span(formatting.cut(words, room, glyphs.cut), "quiet")]
    return sides(left, [Span(cost, "ink")], width)


def _key_row(pairs: Sequence[tuple[str, str]], width: int) -> list[Span]:
    """Return a row such as `Enter rewind   ↑↓ choose   Esc cancel`, with complete pairs only."""
    spans: list[Span] = []
    for key, meaning in fit_hints(pairs, width):
        spans += [Span(" " * GAP, "quiet")] if spans else []
        spans += [Span(key, "ink"), Span(f" {meaning}", "quiet")]
    return spans
