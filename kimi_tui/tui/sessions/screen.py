"""The sessions of this folder and of all: found by what was said in them, gone on with, renamed, put away, thrown away."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import Choice
from kimi_tui.foreign_text import one_line
from kimi_tui.launch import Launch
from kimi_tui.tui.callbacks import reported
from kimi_tui.tui.field import LineField
from kimi_tui.tui.formatting import cut
from kimi_tui.tui.frame.footer import Footer, Hint
from kimi_tui.tui.frame.header import Header, Heading
from kimi_tui.tui.keyboard import key_of, keys_of
from kimi_tui.tui.screens import AnswersOnce, QuitChosen, SessionChosen, sheets
from kimi_tui.tui.sessions.list import SessionList, SessionPreview
from kimi_tui.tui.state import STAYS_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from textual.timer import Timer

    from kimi_tui.tui.frame.notices import Level
    from kimi_tui.tui.sessions.shelf import Row, Shelf

BATCH = 64
"""Sessions that are described, or searched, before the list is drawn again."""
PREVIEW_DELAY_S = 0.06
BESIDE_FROM = 100
BELOW_FROM = 80
TITLE_CELLS = 40
FIND_WORDS = "type to search titles and messages"
RENAME_WORDS = "what it is called; empty: what was said first"

Field = Literal["", "find", "rename"]


class SessionsScreen(AnswersOnce[Launch | None]):
    """Lists sessions. Ends with how to open the chosen one, or None.

    Args:
        launch: how the app was started; for what is opened.
        root: the data folder; None for the usual one.
        own_id: of the session that it was opened over; None where it is the first screen.
        rename_own: calls that one something.
        words: what is searched for at first.
    """

    AUTO_FOCUS = ""
    SHEETS = sheets("sessions")
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
        Binding("escape,q", "leave", "Back", id="sessions.leave", show=False),
        # The answer to a question is no key of one's own.
        Binding("y", "yes", "Yes", show=False),
    ]

    def __init__(
        self,
        launch: Launch,
        root: Path | None = None,
        own_id: str | None = None,
        rename_own: Callable[[str], object] | None = None,
        words: str = "",
    ) -> None:
        super().__init__()
        self._launch = launch
        self._root = root
        self._own_id = own_id
        self._rename_own = rename_own
        self._shelf: Shelf | None = None
        self._everywhere = self._archived = False
        self._field: Field = ""
        self._found = words
        """What is searched for."""
        self._doomed: Row | None = None
        """Of which it is asked whether it goes into the trash."""
        self._n_here = self._n_all = 0
        self._previewing: Timer | None = None
        self._said: Timer | None = None
        self._header = Header(Heading(title="Sessions", folder=short(launch.work_dir), words=" "))
        self._sign = Static("/", id="sign", markup=False)
        self._input = LineField(words, placeholder=FIND_WORDS)
        self.list = SessionList(own_id or "", self._takes)
        self._preview = SessionPreview()
        self._words = Static("", id="said", markup=False)
        self._footer = Footer()

    def compose(self) -> ComposeResult:
        """Field, list and preview between the header and the keys."""
        yield self._header
        yield Horizontal(self._sign, self._input, id="find")
        yield Horizontal(self.list, self._preview, id="shelf")
        yield self._words
        yield self._footer

    def on_mount(self) -> None:
        """Read what there is once the first picture stands."""
        self.list.focus()
        self.list.find(self._found)
        self._list()
        self._update()

    def on_resize(self, event: events.Resize) -> None:
        """The preview stands at the side, below, or not at all."""
        width = event.size.width
        self.set_class(width >= BESIDE_FROM, "-beside")
        self.set_class(BELOW_FROM <= width < BESIDE_FROM, "-below")
        self.set_class(event.size.height < 30, "-short")

    # --- reading

    def _list(self) -> None:
        self.run_worker(reported(self, self._read()), group="read", exclusive=True)

    async def _read(self) -> None:
        """List the sessions piece by piece, the newest first."""
        shelf = await self._opened()
        here = await asyncio.to_thread(shelf.folders, everywhere=False)
        everywhere = await asyncio.to_thread(shelf.folders, everywhere=True)
        self._n_here, self._n_all = len(here), len(everywhere)
        self.list.empty_words = ""
        self.list.begin(folders=self._everywhere)
        own = set(here)
        await self._describe(shelf, everywhere if self._everywhere else here, own)
        self.list.empty_words = self._nothing_words()
        self.list.refresh()
        self._update()
        if self._found:
            self._find()
        if not self._everywhere:
            rest = [folder for folder in everywhere if folder not in own]
            await self._describe(shelf, rest, own, lists=False)

    async def _describe(
        self, shelf: Shelf, folders: list[Path], own: set[Path], *, lists: bool = True
    ) -> None:
        """List these, or only count them: one in which nothing was said is none to choose."""
        size = BATCH // 2  # a screenful at once
        while folders:
            batch, folders = folders[:size], folders[size:]
            rows = await asyncio.to_thread(shelf.described, batch)
            empty = set(batch).difference(row.folder for row in rows)
            self._n_all -= len(empty)
            self._n_here -= len(own & empty)
            if lists:
                self.list.add(rows)
            size = 4 * BATCH
            self._update()

    async def _opened(self) -> Shelf:
        if self._shelf is None:
            module = await asyncio.to_thread(import_module, "kimi_tui.tui.sessions.shelf")
            from kimi_tui.app_paths import data_dir

            root = self._root or await asyncio.to_thread(data_dir)
            made: Shelf = module.Shelf(root, self._launch.work_dir, self._own_id or "")
            self._shelf = made
        return self._shelf

    def _nothing_words(self) -> str:
        if self._found:
            return "Nothing that was said here holds these words."
        where = "yet" if self._everywhere else "of this folder; Tab shows those of all folders"
        return f"There is no session {where}."

    def _find(self) -> None:
        self.run_worker(reported(self, self._search()), group="find", exclusive=True)

    async def _search(self) -> None:
        """Look through what was said; what is found joins the list."""
        shelf = await self._opened()
        rows, parts = self.list.rows, self.list.parts
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            if found := await asyncio.to_thread(shelf.search, batch, parts):
                self.list.also(found)
                self._update()
        self.list.empty_words = self._nothing_words()
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
        self.run_worker(reported(self, self._read_preview()), group="preview", exclusive=True)

    async def _read_preview(self) -> None:
        shelf, row = await self._opened(), self.list.chosen
        if row is not None:
            self._preview.show(row, await asyncio.to_thread(shelf.last_said, row))

    # --- the field: searching and renaming

    def action_field(self, field: Field) -> None:
        """Give the keys to the field."""
        row = self.list.chosen
        if field == "rename" and (row is None or row.held):
            if row is not None:
                self._change(self._rename_if_free(row))
            return
        self._keep()
        self._field = field
        is_find = field == "find"
        self._sign.update("/" if is_find else "Rename")
        self._input.placeholder = FIND_WORDS if is_find else RENAME_WORDS
        self._input.value = self._found if is_find or row is None else row.title
        # At once: what is typed next is meant for it.
        self.set_focus(self._input)
        self._update()

    def _takes(self, event: events.Key) -> bool:
        """Keys that came to the list before the field had the focus: what opens that, and what is written in it."""
        keys = self._launch.config.keys
        for field in ("find", "rename"):
            if not self._field and event.key in keys_of(f"sessions.{field}", keys):
                self.action_field(field)
                return True
        if self._field and event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)
            return True
        return False

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
        """Enter goes on with what was found, or keeps the name."""
        if self._field == "rename":
            title, row = one_line(self._input.value).strip(), self.list.chosen
            self._close_field()
            if row is not None:
                self._change(self._rename(row, title))
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

    def on_key(self, event: events.Key) -> None:
        """In the field the arrows move in the list."""
        keys = ("up", "down", "pageup", "pagedown")
        if self._input.has_focus and self._field != "rename" and event.key in keys:
            self.list.move(event.key)
            event.stop()

    def on_descendant_focus(self) -> None:
        """A click on the field begins a search."""
        if self._input.has_focus and not self._field:
            self._field = "find"
        elif self.list.has_focus and self._field:
            self._close_field()
        self._update()

    # --- what is done with a session

    def _change(self, work: Coroutine[Any, Any, None]) -> None:
        self.run_worker(reported(self, self._guarded(work)), group="change")

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Await it; why it could not be done is said."""
        from kimi_tui.session.errors import SessionError, StorageTrouble

        try:
            await work
        except StorageTrouble as error:
            self.tell(error.message, level="warning", advice=error.advice)
        except SessionError as error:
            self.tell(str(error), level="warning")

    @on(SessionList.Picked)
    def _picked(self) -> None:
        if self._keep():
            self._update()
        elif self.list.chosen is not None:
            self._change(self._open(self.list.chosen))

    async def _open(self, row: Row) -> None:
        if row.id == self._own_id:
            self.dismiss(None)
            return
        if await self._is_free(row):
            self._leave_for(row, row.id)

    async def _is_free(self, row: Row) -> bool:
        """Whether nobody has it open now; else it is said who."""
        shelf = await self._opened()
        row.held = await asyncio.to_thread(shelf.holder, row)
        if row.held:
            self.tell(f"It is open in {row.held}.", level="warning", advice="f works on a copy.")
        self.list.refresh()
        return not row.held

    async def _rename_if_free(self, row: Row) -> None:
        if await self._is_free(row) and row is self.list.chosen:
            self.action_field("rename")

    def _leave_for(self, row: Row, session_id: str, *notices: str) -> None:
        if not isinstance(self._launch.choice, Choice) and self._launch.in_demo is None:
            self.tell("No model is set up yet: start kimi-tui once to choose one.")
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
        """Go on in a copy."""
        self._keep()
        if self.list.chosen is not None:
            self._change(self._fork(self.list.chosen))

    async def _fork(self, row: Row) -> None:
        copy = await (await self._opened()).fork(row)
        words = "This is a fork; the session it was made from is as it was."
        self._leave_for(row, copy, words)

    async def _rename(self, row: Row, title: str) -> None:
        if row.id == self._own_id and self._rename_own is not None:
            self._rename_own(title)
            row.title = title or row.title
        else:
            shelf = await self._opened()
            await asyncio.to_thread(shelf.rename, row, title)
            anew = await asyncio.to_thread(shelf.described, [row.folder])
            row.title = anew[0].title if anew else title
        self.list.also()
        self._preview.refresh()
        self.tell(f"It is now called {cut(row.title, TITLE_CELLS)}.")

    def action_archive(self) -> None:
        """Put the chosen one away, or back."""
        self._keep()
        row = self.list.chosen
        if row is not None and row.id == self._own_id:
            self.tell("This is the session you are in.", level="warning")
        elif row is not None:
            self._change(self._archive(row))
        self._update()

    async def _archive(self, row: Row) -> None:
        archived = not row.archived
        await asyncio.to_thread((await self._opened()).archive, row, archived)
        row.archived = archived
        self.list.also()
        name = cut(row.title, TITLE_CELLS)
        self.tell(f"{name} is {'put away; v shows it' if archived else 'back in the list'}.")

    def action_archived(self) -> None:
        """Show also what was put away, or not."""
        self._archived = not self._archived
        self.list.show_archived(self._archived)
        self._update()

    def action_everywhere(self) -> None:
        """Show the sessions of all folders, or of this one."""
        self._everywhere = not self._everywhere
        self._list()

    def action_delete(self) -> None:
        """Ask whether the chosen one goes into the trash."""
        row = self.list.chosen
        if row is None or self._shelf is None:
            return
        if row.id == self._own_id:
            self.tell("This is the session you are in.", level="warning")
            return
        self._doomed = row
        self._say(
            Content.assemble(
                (f"Delete {cut(row.title, TITLE_CELLS)}?", "bold $ink-strong"),
                (f"  It stays in {self._shelf.trash} for 30 days.", "$ink"),
            )
        )
        self._update()

    def _keep(self) -> bool:
        """Ask no longer whether something is deleted; False where nothing was asked."""
        was_asked = self._doomed is not None
        self._doomed = None
        if was_asked:
            self._say(Content(""))
        return was_asked

    def action_yes(self) -> None:
        """Put it into the trash."""
        if (row := self._doomed) is not None:
            self._doomed = None
            self._change(self._delete(row))

    async def _delete(self, row: Row) -> None:
        where = await asyncio.to_thread((await self._opened()).throw_away, row)
        self._n_all -= 1
        self._n_here -= not self._everywhere or row.work_dir == str(self._launch.work_dir)
        self.list.drop(row)
        self.tell(f"Deleted {cut(row.title, TITLE_CELLS)}.", advice=where)

    def action_leave(self) -> None:
        """Out of the question, the field, the search; then back to where the user came from."""
        if self._keep():
            self._update()
        elif self._field:
            if self._field == "find":
                self._input.value = ""
            self._close_field()
        elif self._found:
            self._input.value = ""
        elif self._own_id is None:
            self.post_message(QuitChosen())
        else:
            self.dismiss(None)

    # --- what is said

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Say something above the keys for a few seconds."""
        style = {"warning": "$warn", "error": "$kind-error"}.get(level, "$ink-strong")
        said = Content.assemble((one_line(text), style), "  ", (one_line(advice), "$ink"))
        self._say(said)
        self._said = self.set_timer(STAYS_S, lambda: self._say(Content("")))

    def _say(self, words: Content) -> None:
        if self._said is not None:
            self._said.stop()
            self._said = None
        self._words.update(words)

    def _update(self) -> None:
        """The count at the right of the header, and the keys that count now."""
        count = f"{self._n_here:,} here, {self._n_all:,} in all" if self._n_all else " "
        if self._found.strip():
            count = f"{self.list.n_shown:,} found"
        where = "all folders" if self._everywhere else short(self._launch.work_dir)
        self._header.heading = Heading(title="Sessions", folder=where, words=count)
        self._footer.hints = self._hints()

    def _hints(self) -> tuple[Hint, ...]:
        back_key = self._key("leave")
        if self._doomed is not None:
            return ("y", "delete"), (back_key, "keep it")
        if self._input.has_focus:
            done = "rename" if self._field == "rename" else "continue"
            return ("Enter", done), (back_key, "back")
        row = self.list.chosen
        hints = (
            ("Enter", "continue"),
            (self._key("find"), "search"),
            (self._key("everywhere"), "this folder" if self._everywhere else "all folders"),
            (self._key("rename"), "rename"),
            (self._key("fork"), "fork"),
            (self._key("archive"), "put back" if row is not None and row.archived else "archive"),
            (self._key("delete"), "delete"),
            (self._key("archived"), "hide archived" if self._archived else "archived ones"),
            (back_key, "back" if self._own_id is not None else "quit"),
        )
        return tuple(hint for hint in hints if hint[0])

    def _key(self, action: str) -> str:
        return key_of(f"sessions.{action}", self._launch.config.keys)
