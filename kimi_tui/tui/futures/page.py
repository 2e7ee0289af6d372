"""The page that sets the futures of a checkpoint side by side, while they run and at their end. Its result is an action on one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from kimi_tui.display_names import counted
from kimi_tui.foreign_text import clean
from kimi_tui.futures.values import ranked
from kimi_tui.projection.blocks import Block
from kimi_tui.projection.comparison import SideBySide
from kimi_tui.projection.futures import FutureGroup
from kimi_tui.tui.compare.screen import CompareHead, CompareSides, SidesScreen
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import wrap_words
from kimi_tui.tui.frame import Header
from kimi_tui.tui.frame_rows import SHORT_BELOW, HeaderText, Hint, roomiest
from kimi_tui.tui.futures.layout import FilesAcross, detail_rows, name_rows, table_rows
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.pictures import LoadImage
from kimi_tui.tui.row_list import PaintedRows
from kimi_tui.tui.rows import BLANK, Line, Span, sides
from kimi_tui.tui.screens import app_of, sheets

if TYPE_CHECKING:
    from kimi_tui.wire.events import FutureChanged
    from kimi_tui.workspace.diff import FileDifference

MARGIN = 2
DETAIL, DETAIL_SHORT = 4, 1
"""Rows about the chosen future under the table, on a high and on a low screen."""
OPINION, OPINION_SHORT = 8, 3
"""Rows of a model's opinion."""
TICK_S = 1.0
"""Seconds after which the times of running futures are drawn again."""
PageAction = Literal["current", "send", "file", "read", "prune", "new"]


class FuturesShown(NamedTuple):
    """The contents of the page.

    Attributes:
        group: the futures.
        blocks: the messages of each, from where they part, by key.
        files: the changed files of each that has ended, by key.
    """

    group: FutureGroup
    blocks: Mapping[str, Sequence[Block]]
    files: Mapping[str, Sequence[FileDifference]]


class PageAnswer(NamedTuple):
    """The result of the page.

    Attributes:
        action: `current` makes a future the current conversation, `send` copies one of its messages there, `file` takes one of
            its files over, `read` shows all of it, `prune` removes it, `new` starts others.
        key: the future.
        block: the message to copy; None for its newest text.
        path: the file to take over.
    """

    action: PageAction
    key: str
    block: Block | None = None
    path: str = ""


class FuturesTable(PaintedRows):
    """The table of the futures.

    Args:
        page: makes its rows for a width in cells.
    """

    ALLOW_SELECT = False
    """False: a click chooses a future."""

    class Clicked(Message):
        """A row was clicked."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    def __init__(self, rows: Callable[[int], Sequence[Line]]) -> None:
        super().__init__()
        self._rows = rows

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows."""
        return self._rows(width)

    def on_click(self, event: events.Click) -> None:
        """Post which row was clicked."""
        event.prevent_default()
        at = event.get_content_offset(self)
        if at is not None:
            self.post_message(self.Clicked(at.y))


class FuturesPage(SidesScreen[PageAnswer | None]):
    """Shows futures side by side: facts, messages, files, and the actions on the chosen one.

    Args:
        shown: the futures, their messages and files.
        heading: the heading of the main screen.
        title: where they begin, such as `Futures from #12`.
        currency: the sign of amounts.
        stop: stops a future.
        opinion: asks a model what it thinks of them; its text is shown as a note. None if no model can be asked.
        load_image: reads an image of a message; None if images are only named.
        write: called with text that is typed here and meant for the prompt.
        chosen: the key of the future that is chosen at first; empty for the first one.
    """

    HELP_TITLE = "Futures side by side"
    CSS_PATH = [*sheets("rows", "compare", "futures")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "future(-1)", "Future before", id="futures.before", show=False),
        Binding("right", "future(1)", "Next future", id="futures.next", show=False),
        Binding("up,k", "move(-1)", "Row above", id="futures.up", show=False),
        Binding("down", "move(1)", "Row below", id="futures.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="futures.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="futures.page_down", show=False),
        Binding("tab,shift+tab", "files", "Files, messages", id="futures.files", show=False),
        Binding("enter,space", "unfold", "Expand", id="futures.unfold", show=False),
        Binding("j", "answer('current')", "Make it current", id="futures.current", show=False),
        Binding("s", "take", "Copy to current", id="futures.send", show=False),
        Binding("w", "answer('read')", "Read it", id="futures.read", show=False),
        Binding("o", "opinion", "A model's opinion", id="futures.opinion", show=False),
        Binding("x", "stop", "Stop it", id="futures.stop", show=False),
        Binding("d", "answer('prune')", "Delete it", id="futures.prune", show=False),
        Binding("n", "answer('new')", "Start others", id="futures.new", show=False),
        Binding("escape,q", "leave", "Back", id="futures.leave", show=False),
    ]

    def __init__(
        self,
        shown: FuturesShown,
        heading: HeaderText,
        *,
        title: str,
        currency: str = "$",
        stop: Callable[[str], Awaitable[None]],
        opinion: Callable[[], Awaitable[str]] | None = None,
        load_image: LoadImage | None = None,
        write: Callable[[str], None] | None = None,
        chosen: str = "",
    ) -> None:
        self._across = FilesAcross(shown.group, shown.files)
        sides = CompareSides(SideBySide(shown.blocks), load_image)
        super().__init__(sides, self._across, write)
        if chosen in shown.blocks:
            sides.side = chosen
        self._shown = shown
        self._heading = heading
        self._title = title
        self._currency = currency
        self._stop = stop
        self._opinion = opinion
        self._note = ""
        self._head = CompareHead(self._title_rows, "futures-head")
        self._table = FuturesTable(self._table_rows)
        self._detail = CompareHead(self._detail_rows, "futures-detail")
        self._names = CompareHead(self._name_rows, "futures-names")
        self._files_head = CompareHead(self._files_heading, "files-head")

    def compose(self) -> ComposeResult:
        """Yield the parts, from the top."""
        self.set_class(app_of(self).size.height < SHORT_BELOW, "-short", update=False)
        yield Header(self._heading)
        yield self._head
        yield self._table
        yield self._detail
        yield self._names
        yield self._pane
        yield self._files_head
        yield self._files
        yield self._footer

    def on_mount(self) -> None:
        """Draw the times again while futures run."""
        self._name_keys()
        self.set_interval(TICK_S, self._tick)

    def on_resize(self) -> None:
        """Fit the rows to the width, and show the keys in the footer."""
        self.set_class(app_of(self).size.height < SHORT_BELOW, "-short")
        self._show()

    def _tick(self) -> None:
        if not self._shown.group.is_over:
            self._table.refresh()

    def show(self, shown: FuturesShown) -> None:
        """Show what has changed; the choice stays."""
        before, self._shown = self._shown, shown
        steps = [(one.step, one.state) for one in before.group.futures]
        # While a message is written nothing is measured: the future itself shows that.
        if shown.blocks != before.blocks or steps != [
            (one.step, one.state) for one in shown.group.futures
        ]:
            self._sides.show_comparison(SideBySide(shown.blocks))
        if shown.files != before.files or shown.group.is_over != before.group.is_over:
            across = FilesAcross(shown.group, shown.files)
            across.keep(self._across)
            self._across = self._files.list.model = across
            self._files.list.most = max(1, len(across))
            self._files.list.offered(max(0, self._files.selected) if len(across) else None)
        self._show()

    # --- rows

    @property
    def chosen(self) -> FutureChanged:
        """The future that the keys act on."""
        side = self._sides.side
        return next(
            (one for one in self._shown.group.futures if one.key == side),
            self._shown.group.futures[0],
        )

    @property
    def _is_short(self) -> bool:
        return self.has_class("-short")

    def _title_rows(self, width: int) -> Sequence[Line]:
        group = self._shown.group
        left = [Span(f"  {self._title}", "strong")]
        running = sum(not one.is_over for one in group.futures)
        words = group.words
        if running:
            words = f"{running} of {len(group.futures)} still running"
        elif group.has_check:
            first = ranked(group.futures)[0]
            if first.check == "passed":
                words += f"; future {first.number} ranks first (by check, unchanged tests, diff size, cost)"
        room = width - 6 - sum(len(span.text) for span in left)
        if len(words) > room:
            words = group.words if len(group.words) <= room else ""
        row = Line(tuple(sides(left, [Span(f"{words}  ", "quiet")], width)))
        return [row] if self._is_short else [BLANK, row, BLANK]

    def _table_rows(self, width: int) -> Sequence[Line]:
        rows = table_rows(
            self._shown.group,
            self.chosen.key,
            width,
            glyphs_of(self),
            now=time.time(),
            currency=self._currency,
        )
        chosen = [one.key for one in self._shown.group.futures].index(self.chosen.key)
        ground = "band" if self._files.focused_here else "select"
        return [
            Line(
                tuple(span._replace(style=f"{span.style}@{ground}") for span in row)
                if at == chosen
                else tuple(row)
            )
            for at, row in enumerate(rows)
        ]

    def _detail_rows(self, width: int) -> Sequence[Line]:
        most = DETAIL_SHORT if self._is_short else DETAIL
        glyphs = glyphs_of(self)
        found = detail_rows(self.chosen, width - 6, most, glyphs)
        rows = [Line((Span("    "), *row)) for row in found]
        if self._note:
            # It stands apart from the facts, and changes nothing in their order.
            lines = wrap_words(f"A model's opinion: {self._note}", max(10, width - 8))
            most = OPINION_SHORT if self._is_short else OPINION
            if len(lines) > most:
                lines = [*lines[: most - 1], f"{lines[most - 1]} {glyphs.cut}"]
            rows += [Line((Span("      "), Span(line, "ink/i"))) for line in lines]
        return rows if self._is_short else [BLANK, *rows, *([BLANK] if rows else [])]

    def _name_rows(self, width: int) -> Sequence[Line]:
        del width
        columns = {side: self._sides.column_of(side) for side in self._sides.shown_sides}
        chosen = "" if self._files.focused_here else self.chosen.key
        return [Line(tuple(name_rows(self._shown.group, columns, chosen, glyphs_of(self))))]

    def _files_heading(self, width: int) -> Sequence[Line]:
        return [Line(tuple(self._across.head(width, glyphs_of(self))))]

    def _show(self) -> None:
        for part in (self._head, self._table, self._detail, self._names, self._files_head):
            part.refresh(layout=True)
        self._sides.focused_here = not self._files.focused_here
        self._sides.refresh()
        self._name_keys()

    def _name_keys(self) -> None:
        arrows = f"{glyphs_of(self).back}{glyphs_of(self).to}"
        one, here = self.chosen, self._files.focused_here
        take: Hint = ("s", "copy file to work folder" if here else "copy message to current")
        short: Hint = ("s", "copy file" if here else "copy")
        end: list[Hint] = [("j", "switch")] if one.is_over else [("x", "stop")]
        other: Hint = ("Tab", "messages" if here else "files")
        opinion: list[Hint] = (
            [("o", "opinion")] if self._opinion and self._shown.group.is_over else []
        )
        wordings: list[list[Hint]] = [
            [
                (arrows, "future"),
                *end,
                take,
                other,
                ("Enter", "expand"),
                ("w", "read"),
                *opinion,
                ("n", "new"),
                ("d", "delete"),
                ("Esc", "back"),
            ],
            [(arrows, "future"), *end, short, other, ("w", "read"), *opinion, ("Esc", "back")],
            [(arrows, "future"), *end, short, other, ("Esc", "back")],
            [
                (arrows, "future"),
                *((key, said.split()[-1]) for key, said in end),
                short,
                other,
                ("Esc", "back"),
            ],
        ]
        self._footer.hints = tuple(roomiest(wordings, app_of(self).size.width - 2 * MARGIN))

    # --- keys

    async def on_key(self, event: events.Key) -> None:
        """Choose a future by its number; delay a letter until it is clear whether it is a key or begins text for the prompt."""
        digit = event.character or ""
        if digit.isascii() and digit.isdigit() and not self._letters.run.is_pending:
            at = int(digit) - 1
            if 0 <= at < len(self._shown.group.futures):
                event.stop()
                self._choose(self._shown.group.futures[at].key)
                return
        if await self._letters.intercept(event):
            event.stop()

    def _choose(self, key: str) -> None:
        self._sides.side = key
        self._show()

    def action_future(self, step: int) -> None:
        """Choose the next future, or the one before."""
        keys = [one.key for one in self._shown.group.futures]
        self._choose(keys[(keys.index(self.chosen.key) + step) % len(keys)])

    def action_files(self) -> None:
        """Move the keyboard focus to the files, or back to the messages."""
        self._files.focused_here = not self._files.focused_here and bool(len(self._across))
        self._show()

    @on(FuturesTable.Clicked)
    def _row_clicked(self, event: FuturesTable.Clicked) -> None:
        """Choose the clicked future."""
        if 0 <= event.row < len(self._shown.group.futures):
            self._choose(self._shown.group.futures[event.row].key)

    # --- actions

    def action_answer(self, action: PageAction) -> None:
        """Close the page with an action on the chosen future."""
        one = self.chosen
        if action in ("current", "prune") and not one.is_over:
            self.tell(f"Future {one.number} is still running.", advice="x stops it.")
        elif action == "current" and one.state != "done" and not one.world_line:
            self.tell(f"You cannot switch to future {one.number}, because it has no finished step.")
        else:
            self.dismiss(PageAnswer(action, one.key))

    def action_take(self) -> None:
        """Copy the chosen message to the current conversation, or take the chosen file over."""
        one = self.chosen
        if not one.is_over:
            self.tell(f"Future {one.number} is still running.", advice="x stops it.")
            return
        if self._files.focused_here:
            at = self._files.selected
            if not self._across.has(at, one.key):
                self.tell(
                    f"Future {one.number} has not changed this file.",
                    advice="Left and Right choose another future.",
                )
                return
            self.dismiss(PageAnswer("file", one.key, path=self._across.paths[at]))
            return
        entries = self._sides.comparison.sides[one.key]
        at = self._sides.selected
        block = entries[at].block if 0 <= at < len(entries) else None
        self.dismiss(PageAnswer("send", one.key, block))

    def action_stop(self) -> None:
        """Stop the chosen future."""
        one = self.chosen
        if one.is_over:
            self.tell(f"Future {one.number} has ended already.")
            return
        self.run_worker(reported(self, partial(self._stop, one.key)), group="stop", exclusive=False)

    def action_opinion(self) -> None:
        """Ask a model for its opinion, which is shown as a note."""
        if self._opinion is None:
            return
        if not self._shown.group.is_over:
            self.tell("A model can give its opinion only when all futures have ended.")
            return
        self.tell(
            f"A model is reading {counted(len(self._shown.group.futures), 'future')} to give its opinion.",
            topic="opinion",
        )
        self.run_worker(
            reported(self, partial(self._ask, self._opinion)), group="opinion", exclusive=True
        )

    async def _ask(self, opinion: Callable[[], Awaitable[str]]) -> None:
        from kimi_tui.llm.errors import LLMError
        from kimi_tui.soul.errors import SoulBusy, SoulError

        try:
            self._note = " ".join(clean(await opinion()).split())
        except (LLMError, SoulBusy, SoulError) as error:
            self.tell(str(error), level="warning")
        finally:
            self._pane.dismiss("opinion")
        self._detail.refresh(layout=True)

    def action_leave(self) -> None:
        """Close the page without an action."""
        self.dismiss(None)
