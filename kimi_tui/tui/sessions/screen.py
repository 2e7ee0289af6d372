"""The screen that lists the sessions of this folder or of all: search in messages, open, fork, rename, archive, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.geometry import Size
from textual.widgets import Input, Static

from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import counted, titled
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.launch import FORKED, Launch
from kimi_tui.tools.credentials import words_of_keys
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import cut, path, wrap_words
from kimi_tui.tui.frame import Footer, Header
from kimi_tui.tui.frame_rows import HeaderText, Hint
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.keyboard import TOO_EARLY, AskingScreen, KeyList
from kimi_tui.tui.line_field import LineField
from kimi_tui.tui.notices import STAYS_S
from kimi_tui.tui.row_list import Look, PaintedRows, RowList, RowModel, Words, plain
from kimi_tui.tui.rows import BLANK, Line, Span
from kimi_tui.tui.screens import QuitChosen, SessionChosen, app_of, sheets

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from textual.timer import Timer

    from kimi_tui.session.listing import PreviewMessage
    from kimi_tui.tui.notices import Level
    from kimi_tui.tui.sessions.catalog import SessionCatalog, SessionRow
    from kimi_tui.tui.sessions.others import OtherSessions


BATCH = 64
"""Sessions that are read, or searched, between two updates of the list."""
PREVIEW_DELAY_S = 0.06
BESIDE_FROM = 100
BELOW_FROM = 80
TITLE_CELLS = 40
FIND_WORDS = "type to search titles and messages"
RENAME_WORDS = "new title; empty for the first message"

AGE_CELLS = 11
MESSAGES_CELLS = 11
FOLDER_CELLS = 24
MESSAGES_FROM = 56
"""The least width in cells at which the list shows the number of messages."""
FOLDERS_FROM = 68
BOTH_FROM = 76
SAID_ROWS = 8
"""The most rows of a message in the preview."""

Field = Literal["", "find", "rename"]


class SessionRowModel(RowModel):
    """The sessions that match the search.

    Args:
        own_id: the id of the session that is open in this program; empty for none.

    Attributes:
        shown: their rows.
        shows_folders: whether a row shows the work folder of its session.
        empty_words: the text of an empty list.
    """

    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self.shown: list[SessionRow] = []
        self.shows_folders = False
        self.empty_words = ""

    def __len__(self) -> int:
        """Return the number of sessions that match."""
        return len(self.shown)

    def heading(self, look: Look) -> str:
        """Return the names of the columns."""
        head = self._facts(look, "age", "messages", "folder")
        return " " * max(0, look.width - 2 - cell_len(head)) + head if self.shown else ""

    def empty(self, look: Look) -> Sequence[Line]:
        """Return the reason why there are no sessions, below the names of the columns."""
        words = wrap_words(self.empty_words, max(16, look.width - 6))
        return [BLANK, *(plain(f"    {row}", "quiet") for row in words)]

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        """Return a row for each session: its sign and title, and its facts in columns."""
        return [[self._row(self.shown[i], look, is_chosen=i == look.chosen)] for i in look.on_view]

    def _facts(self, look: Look, age: str, messages: str, folder: str) -> str:
        facts = f"{age:>{AGE_CELLS}}"
        has_folders = self.shows_folders and look.width >= FOLDERS_FROM
        if look.width >= (BOTH_FROM if has_folders else MESSAGES_FROM):
            facts += f"{messages:>{MESSAGES_CELLS}}"
        if has_folders:
            folder = path(folder, FOLDER_CELLS - 3, look.glyphs.cut)
            facts += "   " + folder + " " * (FOLDER_CELLS - 3 - cell_len(folder))
        return f"{facts}  "

    def _row(self, row: SessionRow, look: Look, *, is_chosen: bool) -> Line:
        glyphs = look.glyphs
        sign, style = " ", "quiet"
        if row.id == self._own_id:
            sign, style = glyphs.turn, "accent"
        elif row.forked_from:
            sign = glyphs.fork
        state = "open elsewhere" if row.held else "archived" if row.archived else ""
        note = "".join(f"   {words}" for words in (row.external_agent, state) if words)
        facts = self._facts(look, row.age, row.messages, row.place)
        room = max(4, look.width - 4 - cell_len(facts) - cell_len(note))
        title = cut(row.title, room, glyphs.cut)
        gap = " " * max(0, look.width - 4 - cell_len(title) - cell_len(note) - cell_len(facts))
        return Line(
            (
                Span(f"  {sign} "[:4], style),
                Span(title, "strong" if is_chosen else "ink"),
                Span(f"{note}{gap}{facts}", "quiet"),
            )
        )


class SessionList(RowList, KeyList):
    """The list of sessions that match the search, one of them selected: the first click selects, a second one picks.

    Args:
        own_id: the id of the session that is open in this program; empty for none.

    Attributes:
        rows: the sessions read so far, newest first.
        parts: the words of the search, in lower case.
    """

    LETTERS = True
    SECOND_CLICK = True
    KEEPS_LOOK = True

    model: SessionRowModel

    def __init__(self, own_id: str) -> None:
        super().__init__(SessionRowModel(own_id))
        self.rows: list[SessionRow] = []
        self.parts: tuple[str, ...] = ()
        self._found: set[SessionRow] = set()
        """The sessions whose messages contain the words of the search."""
        self._shows_archived = False

    @property
    def chosen(self) -> SessionRow | None:
        """The selected row, on which keys act; None if none matches."""
        place = self.state.chosen
        return None if place is None else self.model.shown[place]

    @property
    def room(self) -> int:
        """Rows below the names of the columns."""
        return max(1, super().room - 1)

    def begin(self, *, folders: bool) -> None:
        """Remove all rows.

        Args:
            folders: whether rows show the work folder of their session.
        """
        self.rows, self.model.shows_folders = [], folders
        self._match()

    def add(self, rows: Sequence[SessionRow]) -> None:
        """Append rows of older sessions."""
        self.rows += rows
        self._match()

    def drop(self, row: SessionRow) -> None:
        """Remove a row; the one below is selected."""
        shown = self.model.shown
        place = shown.index(row) if row in shown else 0
        self.rows.remove(row)
        self._match()
        self.select(place)

    def find(self, words: str) -> None:
        """Show only sessions with all of these words in their name; those found by their messages are added by `update_matches`."""
        self.parts = tuple(words.casefold().split())
        self._found = set()
        self._match()
        self.select(0)

    def show_archived(self, shown: bool) -> None:
        """Show or hide archived sessions."""
        self._shows_archived = shown
        self._match()

    def update_matches(self, found: Sequence[SessionRow] = ()) -> None:
        """Add sessions that were found by their messages; also called after a title or archived state has changed."""
        self._found.update(found)
        self._match()

    def _match(self) -> None:
        chosen = self.chosen
        self.model.shown = shown = [
            row
            for row in self.rows
            if (self._shows_archived or not row.archived)
            and (row in self._found or all(part in row.name for part in self.parts))
        ]
        self.offered(shown.index(chosen) if chosen in shown else 0)
        if self.chosen is not chosen or chosen is None:
            self.post_message(self.Moved(self))


class SessionPreview(PaintedRows):
    """The title, facts and last messages of the selected session."""

    def __init__(self) -> None:
        super().__init__()
        self._row: SessionRow | None = None
        self._said: Sequence[PreviewMessage] | None = None

    def show(self, row: SessionRow | None, said: Sequence[PreviewMessage] | None) -> None:
        """Show a session; `said` is None while its messages are read."""
        self._row, self._said = row, said
        self.refresh()

    def lay_out(self, width: int) -> Sequence[Line]:
        """Title and facts, then as many of the last messages as there is room for, the newest lowest."""
        row, width = self._row, max(16, width)
        if row is None:
            return ()
        facts = [row.facts, row.place]
        if row.external_agent:
            facts.insert(0, f"agent: {row.external_agent}")
        if row.forked_from:
            facts.append(f"fork of {row.forked_from[:8]}")
        if row.held:
            facts.append(f"open in {row.held}")
        lines = [plain(text, "strong") for text in wrap_words(row.title, width)[:2]]
        said_of_it = wrap_words(", ".join(fact for fact in facts if fact), width)
        lines += [plain(text, "quiet") for text in said_of_it[:4]]
        lines.append(BLANK)
        room = self.content_size.height - len(lines)
        said: list[Line] = []
        for one in reversed(self._said or ()):
            rows = self._message(one, width)
            # The beginning of the newest message is shown even if there is little room.
            if said and len(said) + len(rows) > room:
                break
            said = [*rows, *said][: max(1, room)]
        if not said and self._said is not None and room > 0:
            said = [plain("There are no messages in this session.", "quiet")]
        return [*lines, *said]

    def _message(self, one: PreviewMessage, width: int) -> list[Line]:
        glyphs = glyphs_of(self)
        texts = clean(titled(one.text)).splitlines()
        rows = [row for text in texts for row in wrap_words(text, width - 2) or [""]]
        if len(rows) > SAID_ROWS:
            rows = [*rows[: SAID_ROWS - 1], glyphs.cut]
        style, edge = ("strong", f"{glyphs.edge} ") if one.role == "user" else ("ink", "  ")
        return [
            *(
                Line((Span(edge, "user"), Span(cut(row, width - 2, glyphs.cut), style)))
                for row in rows
            ),
            BLANK,
        ]


class SessionsScreen(AskingScreen[Launch | None]):
    """Lists the stored sessions, and renames, archives, forks and deletes them. Its result is the launch of one, or None.

    Args:
        launch: how the app was started; the basis of the launch of the chosen session.
        root: the data folder; None for the usual one.
        own_id: the id of the session that it was opened over; None if it is the first screen.
        rename_own: sets the title of that session and returns it; raises `StorageTrouble` where it could not be written.
        words: the initial text of the search.
    """

    AUTO_FOCUS = ""
    SHEETS = sheets("rows", "sessions")
    HELP_TITLE = "Sessions"
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash,ctrl+f", "field('find')", "Search", id="sessions.find", show=False),
        Binding("tab", "everywhere", "All folders", id="sessions.everywhere", show=False),
        Binding("n", "field('rename')", "Rename", id="sessions.rename", show=False),
        Binding("a", "archive", "Archive", id="sessions.archive", show=False),
        Binding("v", "archived", "Show archived", id="sessions.archived", show=False),
        Binding("f", "fork", "Fork", id="sessions.fork", show=False),
        Binding("d,delete", "delete", "Delete", id="sessions.delete", show=False),
        Binding("i", "others", "Sessions of other agents", id="sessions.others", show=False),
        Binding("escape,q", "leave", "Back", id="sessions.leave", show=False),
        # The `y` that confirms a deletion is not configurable.
    ]

    def __init__(
        self,
        launch: Launch,
        root: Path | None = None,
        own_id: str | None = None,
        rename_own: Callable[[str], Awaitable[str]] | None = None,
        words: str = "",
    ) -> None:
        super().__init__()
        self._launch = launch
        self._root = root
        self._own_id = own_id
        self._rename_own = rename_own
        self._catalog: SessionCatalog | None = None
        self._everywhere = self._archived = False
        self._field: Field = ""
        self._found = words
        """The words of the search."""
        self._doomed: SessionRow | None = None
        """The session that is about to be moved to the trash or imported, while the user is asked."""
        self._others: OtherSessions | None = None
        """The sessions of other agents, once they are found."""
        self._n_others = 0
        self._shows_others = False
        self._imported = ""
        """The id of the session that was imported last, which is selected when the list has it."""
        self._n_here = self._n_all = 0
        self._previewing: Timer | None = None
        self._said: Timer | None = None
        self._header = Header(
            HeaderText(title="Sessions", folder=short(launch.work_dir), words=" ")
        )
        self._sign = Static("/", id="sign", markup=False)
        self._input = LineField(words, placeholder=FIND_WORDS)
        self.list = SessionList(own_id or "")
        self._preview = SessionPreview()
        self._words = Words(widget_id="said")
        self._footer = Footer()

    def compose(self) -> ComposeResult:
        """Field, list and preview between the header and the keys."""
        # The classes are set before the widgets are styled, so that this happens only once.
        self._set_classes(app_of(self).size, is_shown=False)
        yield self._header
        yield Horizontal(self._sign, self._input, id="find")
        yield Horizontal(self.list, self._preview, id="catalog")
        yield self._words
        yield self._footer

    def on_mount(self) -> None:
        """Read the sessions after the first frame."""
        self.list.focus()
        self.list.find(self._found)
        self._list()
        self._update()

    def on_resize(self, event: events.Resize) -> None:
        """Place the preview at the side, below, or not at all."""
        self._set_classes(event.size)

    def _set_classes(self, size: Size, *, is_shown: bool = True) -> None:
        self.update_classes(
            {
                "-beside": size.width >= BESIDE_FROM,
                "-below": BELOW_FROM <= size.width < BESIDE_FROM,
                "-short": size.height < 30,
            },
            update=is_shown,
        )

    # --- reading

    def _list(self) -> None:
        read = self._read_others if self._shows_others else self._read_sessions
        self.run_worker(reported(self, read), group="read", exclusive=True)

    async def _read_sessions(self) -> None:
        """List the sessions in batches, the newest first."""
        catalog = await self._opened()
        here = await in_daemon_thread(catalog.folders, everywhere=False)
        everywhere = await in_daemon_thread(catalog.folders, everywhere=True)
        self._n_here, self._n_all = len(here), len(everywhere)
        self.list.model.empty_words = ""
        self.list.begin(folders=self._everywhere)
        own = set(here)
        await self._describe(catalog, everywhere if self._everywhere else here, own)
        self.list.model.empty_words = self._nothing_words()
        self.list.refresh()
        self._update()
        if self._found:
            self._find()
        if not self._everywhere:
            rest = [folder for folder in everywhere if folder not in own]
            await self._describe(catalog, rest, own, lists=False)
        if self._others is None and self._launch.in_demo is None:
            self.run_worker(reported(self, self._look_for_others), group="others")

    async def _look_for_others(self) -> None:
        """Look for sessions of other agents, when all of ours are listed; what is there is said and a key lists it."""
        catalog = await self._opened()
        module = await in_daemon_thread(import_module, "kimi_tui.tui.sessions.others")
        others: OtherSessions = module.OtherSessions(catalog.store, self._launch.work_dir)
        words = await in_daemon_thread(others.find)
        self._others, self._n_others = others, others.n_here
        if words and self._doomed is None and self._said is None:
            key = self._key("others")
            self._say(Span(words, "bright"), *([Span(f"  {key} lists them")] if key else []))
        self._update()

    async def _read_others(self) -> None:
        """List the sessions of other agents in this folder, or of all."""
        if self._others is None:
            return
        self.list.model.empty_words = ""
        self.list.begin(folders=True)
        self.list.add(await in_daemon_thread(self._others.rows, everywhere=self._everywhere))
        self.list.model.empty_words = self._nothing_words()
        self.list.refresh()
        self._update()

    async def _describe(
        self, catalog: SessionCatalog, folders: list[Path], own: set[Path], *, lists: bool = True
    ) -> None:
        """List the sessions in these folders, or only count them. One without messages is neither listed nor counted."""
        size = BATCH // 2  # a screenful at once
        while folders:
            batch, folders = folders[:size], folders[size:]
            rows = await in_daemon_thread(catalog.described, batch)
            empty = set(batch).difference(row.folder for row in rows)
            self._n_all -= len(empty)
            self._n_here -= len(own & empty)
            if lists:
                self.list.add(rows)
                self._select_imported()
            size = 4 * BATCH
            self._update()

    def _select_imported(self) -> None:
        """Select the session that was imported, once the list has it."""
        shown = self.list.model.shown
        place = next((n for n, row in enumerate(shown) if row.id == self._imported), None)
        if place is not None:
            self._imported = ""
            self.list.select(place)

    async def _opened(self) -> SessionCatalog:
        if self._catalog is None:
            module = await in_daemon_thread(import_module, "kimi_tui.tui.sessions.catalog")
            from kimi_tui.app_paths import data_dir

            root = self._root or await asyncio.to_thread(data_dir)
            made: SessionCatalog = module.SessionCatalog(
                root, self._launch.work_dir, self._own_id or ""
            )
            self._catalog = made
        return self._catalog

    def _nothing_words(self) -> str:
        if self._found:
            return "No session contains these words."
        if self._shows_others:
            if self._everywhere:
                return "There are no more sessions of other agents to import."
            return "There are no more sessions of other agents to import in this folder. Tab lists all folders."
        where = (
            "yet" if self._everywhere else "in this folder. Tab shows the sessions of all folders"
        )
        return f"There is no session {where}."

    def _find(self) -> None:
        self.run_worker(reported(self, self._search), group="find", exclusive=True)

    async def _search(self) -> None:
        """Search the messages of all sessions, and add those that match to the list."""
        if self._shows_others:
            # Only their titles are known before they are read.
            return
        catalog = await self._opened()
        rows, parts = self.list.rows, self.list.parts
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            if found := await in_daemon_thread(catalog.search, batch, parts):
                self.list.update_matches(found)
                self._update()
        self.list.model.empty_words = self._nothing_words()
        self.list.refresh()

    @on(SessionList.Moved)
    def _moved(self) -> None:
        self._keep()
        if self._field == "rename":
            self._close_field()
        self._preview.show(self.list.chosen, None)
        if self._previewing is not None:
            self._previewing.stop()
        self._previewing = self.set_timer(PREVIEW_DELAY_S, self._show_preview)
        self._update()

    def _show_preview(self) -> None:
        self.run_worker(reported(self, self._read_preview), group="preview", exclusive=True)

    async def _read_preview(self) -> None:
        catalog, row = await self._opened(), self.list.chosen
        if row is not None and row.agent and self._others is not None:
            self._preview.show(row, await in_daemon_thread(self._others.look, row))
        elif row is not None:
            self._preview.show(row, await in_daemon_thread(catalog.last_said, row))

    # --- the field: searching and renaming

    def action_field(self, field: Field) -> None:
        """Focus the field, to search or to rename."""
        row = self.list.chosen
        if field == "rename" and row is not None and self._is_other(row):
            return
        if field == "rename" and (row is None or row.held):
            if row is not None:
                self._change(partial(self._rename_if_free, row))
            return
        self._keep()
        self._field = field
        is_find = field == "find"
        self._sign.update("/" if is_find else "Rename")
        self._input.placeholder = FIND_WORDS if is_find else RENAME_WORDS
        self._input.value = self._found if is_find or row is None else row.title
        # The focus is set at once, as the next typed text is meant for the field.
        self.set_focus(self._input)
        self._update()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if self._field != "rename" and event.value != self._found:
            self._field = "find"
            self._found = event.value
            self.list.find(event.value)
            if event.value.strip():
                self._find()
            self._update()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        """Open the selected session, or rename it, as the field is used for."""
        if self._field == "rename":
            title, row = one_line(self._input.value).strip(), self.list.chosen
            if words_of_keys(title):
                self.tell(
                    "This looks like an API key, which a title would show. The title was not changed."
                )
                return
            self._close_field()
            if row is not None:
                self._change(partial(self._rename, row, title))
        elif self.list.chosen is not None:
            self._picked()

    def _close_field(self) -> None:
        self._field = ""
        self._sign.update("/")
        self._input.placeholder = FIND_WORDS
        with self.prevent(Input.Changed):
            self._input.value = self._found
        self.list.focus()
        self._update()

    async def on_key(self, event: events.Key) -> None:
        """Move in the list by the arrows while the field has the focus; answer the question about a deletion or an import."""
        row = self._doomed
        if row is not None and event.key == "y":
            event.stop()
            if not await self.seen.answer_with(event, partial(self._confirmed, row)):
                self._ask(row, f"{TOO_EARLY.capitalize()}.")
            return
        if event.key == "n" and self._keep():
            # In the question this key means no, and not renaming.
            self._update()
            event.stop()
            event.prevent_default()
            return
        if row is not None and event.is_printable:
            await self.seen.answer_with(event, None)
        keys = ("up", "down", "pageup", "pagedown")
        if self._input.has_focus and self._field != "rename" and event.key in keys:
            self.list.press(event.key)
            event.stop()

    def takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are no keys: a question is asked, which one key answers."""
        del text
        return self._doomed is not None

    def on_descendant_focus(self) -> None:
        """Begin a search where the field was clicked."""
        if self._input.has_focus and not self._field:
            self._field = "find"
        elif self.list.has_focus and self._field:
            self._close_field()
        self._update()

    # --- changing a session

    def _change(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.run_worker(reported(self, partial(self._guarded, work)), group="change")

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Change a session; if that fails, a notice says why."""
        from kimi_tui.session.errors import SessionError, StorageTrouble

        try:
            await work()
        except StorageTrouble as error:
            self.tell(error.message, level="warning", advice=error.advice)
        except SessionError as error:
            self.tell(str(error), level="warning")

    @on(SessionList.Picked)
    def _picked(self) -> None:
        if self._keep():
            self._update()
        elif self.list.chosen is not None and self.list.chosen.agent:
            # The list has moved, too, which withdraws a question.
            self.call_later(self._ask_to_import, self.list.chosen)
        elif self.list.chosen is not None:
            self._change(partial(self._open, self.list.chosen))

    async def _open(self, row: SessionRow) -> None:
        if row.id == self._own_id:
            self.dismiss(None)
            return
        if await self._is_free(row):
            self._leave_for(row, row.id)

    async def _is_free(self, row: SessionRow) -> bool:
        """Return whether no process has a session open now; else a notice names the one that has."""
        catalog = await self._opened()
        row.held = await asyncio.to_thread(catalog.holder, row)
        if row.held:
            self.tell(
                f"This session is open in {row.held}.",
                level="warning",
                advice="Press f to continue in a copy (fork).",
            )
        self.list.refresh()
        return not row.held

    async def _rename_if_free(self, row: SessionRow) -> None:
        if await self._is_free(row) and row is self.list.chosen:
            self.action_field("rename")

    def _leave_for(self, row: SessionRow, session_id: str, *notices: str) -> None:
        if not isinstance(self._launch.choice, ModelChoice) and self._launch.in_demo is None:
            self.tell(
                "No model is configured. Quit, then run kimi-tui without options to choose one."
            )
            return
        work_dir = Path(row.work_dir)
        launch = self._launch._replace(
            resume=session_id,
            fork=False,
            picks=False,
            notices=notices,
            work_dir=work_dir if work_dir.is_dir() else self._launch.work_dir,
        )
        if self._own_id is None:
            self.post_message(SessionChosen(launch))
        else:
            self.dismiss(launch)

    def action_fork(self) -> None:
        """Fork the selected session, and open the fork."""
        self._keep()
        if self.list.chosen is not None and not self._is_other(self.list.chosen):
            self._change(partial(self._fork, self.list.chosen))

    async def _fork(self, row: SessionRow) -> None:
        copy = await (await self._opened()).fork(row)
        self._leave_for(row, copy, FORKED)

    async def _rename(self, row: SessionRow, title: str) -> None:
        if row.id == self._own_id and self._rename_own is not None:
            row.title = await self._rename_own(title) or row.title
        else:
            catalog = await self._opened()
            await asyncio.to_thread(catalog.rename, row, title)
            anew = await in_daemon_thread(catalog.described, [row.folder])
            row.title = anew[0].title if anew else title
        self.list.update_matches()
        self._preview.refresh()
        self.tell(f"The session is now called {cut(row.title, TITLE_CELLS)}.")

    def action_archive(self) -> None:
        """Archive the selected session, or bring it back into the usual list."""
        self._keep()
        row = self.list.chosen
        if row is not None and row.id == self._own_id:
            self.tell("This is the session you are in.", level="warning")
        elif row is not None and not self._is_other(row):
            self._change(partial(self._archive, row))
        self._update()

    async def _archive(self, row: SessionRow) -> None:
        archived = not row.archived
        await asyncio.to_thread((await self._opened()).archive, row, archived)
        row.archived = archived
        self.list.update_matches()
        name = cut(row.title, TITLE_CELLS)
        self.tell(
            f"{name} is {'archived; v shows archived sessions' if archived else 'in the list again'}."
        )

    def action_archived(self) -> None:
        """Show or hide archived sessions."""
        self._archived = not self._archived
        self.list.show_archived(self._archived)
        self._update()

    def action_everywhere(self) -> None:
        """Show the sessions of all folders, or of this one."""
        self._everywhere = not self._everywhere
        self._list()

    def action_others(self) -> None:
        """List the sessions of other agents, or ours again."""
        self._keep()
        if self._others is None:
            self.tell("Still searching for sessions of other agents.")
            return
        self._shows_others = not self._shows_others
        self._say()
        self._list()

    def _is_other(self, row: SessionRow) -> bool:
        """Return whether a session is another agent's, and say that it has to be imported before it is changed."""
        if row.agent:
            self.tell("This is a session of another agent. Press Enter to import it first.")
        return bool(row.agent)

    def _ask_to_import(self, row: SessionRow) -> None:
        """Ask whether to import the selected session, with what its import leaves out."""
        self._doomed = row
        self.seen.ask()
        self._ask(row, f"The original session in {row.agent} is not changed.")
        self._update()

    async def _import(self, row: SessionRow) -> None:
        assert self._others is not None
        name = cut(row.title, TITLE_CELLS)
        name = name.rstrip(".")
        self._say(Span(f"Importing {name}…", "bright"))
        left_out = await asyncio.to_thread(self._others.take, row)
        self._n_others = self._others.n_here
        self._shows_others, self._imported = False, row.id
        self._everywhere = self._everywhere or row.work_dir != str(self._launch.work_dir)
        self._list()
        self.tell(f"Imported {name}. Enter continues it.", advice=left_out)

    def action_delete(self) -> None:
        """Ask whether to move the selected session to the trash."""
        row = self.list.chosen
        if row is None or self._catalog is None:
            return
        if row.id == self._own_id:
            self.tell("This is the session you are in.", level="warning")
            return
        if self._is_other(row):
            return
        self._doomed = row
        self.seen.ask()
        self._ask(row, f"It stays in {self._catalog.trash_words}.")
        self._update()

    def _ask(self, row: SessionRow, words: str) -> None:
        question = f"{'Import' if row.agent else 'Delete'} {cut(row.title, TITLE_CELLS)}?"
        self._say(Span(question, "strong"), Span(f"  {words}"))

    def _keep(self) -> bool:
        """Withdraw the question about a deletion or an import; False if none was asked."""
        was_asked = self._doomed is not None
        self._doomed = None
        if was_asked:
            self._say()
        return was_asked

    def _confirmed(self, row: SessionRow) -> None:
        """Move a session to the trash or import it, if the question about it was not withdrawn."""
        if self._doomed is row:
            self._doomed = None
            self._change(partial(self._import if row.agent else self._delete, row))

    async def _delete(self, row: SessionRow) -> None:
        where = await asyncio.to_thread((await self._opened()).move_to_trash, row)
        self._n_all -= 1
        self._n_here -= not self._everywhere or row.work_dir == str(self._launch.work_dir)
        self.list.drop(row)
        self.tell(f"Deleted {cut(row.title, TITLE_CELLS)}.", advice=where)

    def action_leave(self) -> None:
        """Close the question, the field or the search, whichever is open; else the screen."""
        if self._keep():
            self._update()
        elif self._field:
            if self._field == "find":
                self._input.value = ""
            self._close_field()
        elif self._found:
            self._input.value = ""
        elif self._shows_others:
            self.action_others()
        elif self._own_id is None:
            self.post_message(QuitChosen())
        else:
            self.dismiss(None)

    # --- notices

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice above the footer for a few seconds."""
        style = {"warning": "warn", "error": "error"}.get(level, "bright")
        self._say(Span(one_line(text), style), Span(f"  {one_line(advice)}"))
        self._said = self.set_timer(STAYS_S, self._say)

    def _say(self, *spans: Span) -> None:
        if self._said is not None:
            self._said.stop()
            self._said = None
        self._words.show(Line(spans))

    def _update(self) -> None:
        """Update the count at the right of the header, and the keys in the footer."""
        count = f"{self._n_here:,} here, {self._n_all:,} in all" if self._n_all else " "
        if self._shows_others:
            count = f"{counted(len(self.list.rows), 'session')} of other agents"
        if self._found.strip():
            count = f"{len(self.list.model):,} found"
        where = "all folders" if self._everywhere else short(self._launch.work_dir)
        self._header.heading = HeaderText(title="Sessions", folder=where, words=count)
        self._footer.hints = self._hints()

    def _hints(self) -> tuple[Hint, ...]:
        back_key = self._key("leave")
        if self._doomed is not None and self._doomed.agent:
            return ("y", "import"), (back_key, "cancel")
        if self._doomed is not None:
            return ("y", "delete"), (back_key, "keep it")
        if self._input.has_focus:
            done = "rename" if self._field == "rename" else "continue"
            return ("Enter", done), (back_key, "back")
        row = self.list.chosen
        if self._shows_others:
            return (
                *((("Enter", "import"),) if row is not None else ()),
                (self._key("find"), "search"),
                (self._key("everywhere"), "this folder" if self._everywhere else "all folders"),
                (back_key, "back to your sessions"),
            )
        others = [(self._key("others"), f"{self._n_others:,} to import")] if self._n_others else []
        of_row = (
            (self._key("rename"), "rename"),
            (self._key("fork"), "fork"),
            (self._key("archive"), "unarchive" if row is not None and row.archived else "archive"),
            (self._key("delete"), "delete"),
        )
        hints = (
            *((("Enter", "continue"),) if row is not None else ()),
            (self._key("find"), "search"),
            *others,
            (self._key("everywhere"), "this folder" if self._everywhere else "all folders"),
            *(of_row if row is not None else ()),
            (self._key("archived"), "hide archived" if self._archived else "show archived"),
            (back_key, "back" if self._own_id is not None else "quit"),
        )
        return tuple(hint for hint in hints if hint[0])

    def _key(self, action: str) -> str:
        return key_of(f"sessions.{action}", self._launch.config.keys)
