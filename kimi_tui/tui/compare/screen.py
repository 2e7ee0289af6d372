"""A world line beside the live line: their messages from where they part, and the files. Answers with what to do with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from kimi_tui.projection.comparison import Comparison
from kimi_tui.tui import formatting
from kimi_tui.tui.compare.panes import SIDES, CompareFiles, CompareSides, RowsPane
from kimi_tui.tui.frame.footer import Footer, Hint, roomiest
from kimi_tui.tui.frame.frame import SHORT_BELOW, NoticingPane, timeline_width
from kimi_tui.tui.frame.header import Header, Heading
from kimi_tui.tui.gauge import Gauge
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.letters import LetterGate
from kimi_tui.tui.screens import AnswersOnce, app_of, sheets
from kimi_tui.tui.worldline import left_when

if TYPE_CHECKING:
    from kimi_tui.soul.world_line_reader import WorldLineComparison, WorldLineInfo, WorldLineMessage
    from kimi_tui.tui.frame.notices import Level
    from kimi_tui.tui.transcript.thumbnails import LoadImage

MARGIN = 2
LONG_HINTS = (
    ("Tab", "other side"),
    ("n", "next difference"),
    ("Enter", "unfold"),
    ("j", "jump back"),
    ("s", "send to now"),
    ("Esc", "back"),
)
_SHORT = {"n": "next", "s": "send"}
HINTS = tuple((key, _SHORT.get(key, meaning)) for key, meaning in LONG_HINTS)


class CompareAnswer(NamedTuple):
    """What to do with the other line.

    Attributes:
        action: make it live again, or send one of its messages to the live line.
        message: before which to stop, or which to send; None for the whole line, or its newest words.
    """

    action: Literal["jump", "send"]
    message: WorldLineMessage | None


class CompareHead(Static):
    """Title and the names of both sides."""


class CompareFilesHead(Static):
    """The title of the files."""


_LEAST_NAME = 8


class CompareScreen(AnswersOnce[CompareAnswer | None]):
    """Two lines side by side.

    Args:
        found: what the engine says of them.
        info: of the line that was left.
        name: what it is called.
        used: tokens of the live line.
        heading: of the main screen.
        gauge: the row of the gauge, as it is now.
        comparison: of their messages, where it was made already.
        load_image: reads an image of theirs; None where images are only named.
    """

    HELP_TITLE = "Comparison"
    CSS_PATH = [*sheets("compare")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Above", id="compare.up", show=False),
        Binding("down", "move(1)", "Below", id="compare.down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="compare.page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="compare.page_down", show=False),
        Binding("tab", "side", "Other side", id="compare.side", show=False),
        Binding("n", "next", "Next difference", id="compare.next", show=False),
        Binding("enter,space", "unfold", "Unfold", id="compare.unfold", show=False),
        Binding("j", "answer('jump')", "Jump back", id="compare.jump", show=False),
        Binding("J", "whole", "Jump to its end", id="compare.whole", show=False),
        Binding("s", "answer('send')", "Send to now", id="compare.send", show=False),
        Binding("escape,q", "leave", "Back", id="compare.leave", show=False),
    ]

    def __init__(
        self,
        found: WorldLineComparison,
        info: WorldLineInfo,
        *,
        name: str = "",
        used: int,
        heading: Heading,
        gauge: Gauge | None = None,
        comparison: Comparison | None = None,
        load_image: LoadImage | None = None,
        write: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._write = write
        self._letters = LetterGate(self, self._write_over)
        self._found = found
        self._info = info
        self._name = name
        self._used = used
        self._heading = heading
        self._gauge = gauge
        self._head = CompareHead()
        self._sides = CompareSides(comparison or Comparison(found.other, found.live), load_image)
        self._pane = NoticingPane(self._sides)
        self._files = CompareFiles(found)
        self._files_head = CompareFilesHead()
        self._footer = Footer()

    def compose(self) -> ComposeResult:
        """The parts, from the top."""
        yield Header(self._heading)
        yield self._head
        yield self._pane
        yield self._files_head
        yield self._files
        if self._gauge is not None:
            yield Container(self._gauge, id="gauge-row")
        yield self._footer

    def on_resize(self) -> None:
        """Fit the head, and say what the keys do."""
        app = app_of(self)
        self._name_keys()
        self.set_class(app.size.height < SHORT_BELOW, "-short")
        if self._gauge is not None:
            self._gauge.timeline_width = timeline_width(app.size.width)
        self._head.update(self._title(app.size.width))
        head = self._files.table(app.size.width).head()
        self._files_head.update(Content.styled("".join(text for text, _ in head), "$ink-quiet"))

    def _title(self, width: int) -> Content:
        glyphs = glyphs_of(self)
        info, fork = self._info, self._found.fork
        if fork < 0:
            shared = "they share nothing"
        else:
            shared = "both share #0" + (f" to #{fork}" if fork else "")
            if self._found.shared_tokens:
                shared += f", {formatting.tokens(self._found.shared_tokens)}"
        left = Content.assemble(
            ("  Compare", "bold $ink-strong"),
            (f"  from the fork at #{fork} on" if fork >= 0 else "", "$ink-quiet"),
        )
        gap = width - 2 - left.cell_length - cell_len(shared)
        if gap >= 3:
            left = Content.assemble(left, " " * gap, (shared, "$ink-quiet"))
        column = (width - 1) // 2
        when = left_when(info, datetime.now(UTC))
        names = Content.assemble(
            _side_head(
                glyphs.lost,
                "$kind-lost",
                f"World line {info.n}",
                self._name,
                when,
                formatting.tokens(info.tokens_before) if info.tokens_before else "",
                column,
            ),
            (glyphs.step, "$line"),
            _side_head(
                glyphs.turn,
                "$accent",
                "Now",
                "",
                "",
                formatting.tokens(self._used),
                width - column - 1,
            ),
        )
        blank = Content.assemble(" " * column, (glyphs.step, "$line"))
        if self.has_class("-short"):
            return Content("\n").join([left, names, blank])
        return Content("\n").join([Content(""), left, Content(""), names, blank])

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice for a few seconds."""
        self._pane.notices.tell(text, level=level, advice=advice)

    # --- keys

    def _show(self) -> None:
        self._sides.focused_here = not self._files.focused_here
        self._name_keys()
        self._sides.refresh()
        self._files.refresh()

    def _name_keys(self) -> None:
        wordings: list[tuple[Hint, ...]] = [LONG_HINTS, HINTS]
        if self._files.focused_here:
            wordings = [
                tuple((key, "file diff" if key == "Enter" else meaning) for key, meaning in one)
                for one in wordings
            ]
        room = app_of(self).size.width - 2 * MARGIN
        self._footer.hints = tuple(roomiest(wordings, room))

    async def on_key(self, event: events.Key) -> None:
        """A letter waits whether it begins prose."""
        if await self._letters.takes(event):
            event.stop()

    def _write_over(self, text: str) -> None:
        if self._write is not None:
            self._write(text)
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Select the message or file above or below."""
        here = self._files if self._files.focused_here else self._sides
        here.select(here.selected + step)

    def action_page(self, step: int) -> None:
        """Scroll by a page."""
        here = self._files if self._files.focused_here else self._sides
        here.scroll_relative(y=step * max(1, here.size.height - 1), animate=False)

    def action_side(self) -> None:
        """Give the keys to the other side, then to the files, then back."""
        if self._files.focused_here:
            self._files.focused_here = False
            self._sides.side = SIDES[0]
        elif self._sides.side == SIDES[0]:
            self._sides.side = SIDES[1]
        elif self._files.count:
            self._files.focused_here = True
        else:
            self._sides.side = SIDES[0]
        self._show()

    def action_next(self) -> None:
        """Select the next message that the other side has not."""
        sides = self._sides
        self._files.focused_here = False
        self._show()
        found = sides.comparison.next_difference(sides.side, sides.selected)
        if found is not None:
            sides.select(found)

    def action_unfold(self) -> None:
        """Show a message or a file's diff whole, or short again."""
        (self._files if self._files.focused_here else self._sides).toggle()

    def on_rows_pane_clicked(self, event: RowsPane.Clicked) -> None:
        """The side or file that was clicked gets the keys."""
        self._files.focused_here = event.rows is self._files
        if event.rows is self._files:
            self._files.choose_at(event.row)
        else:
            self._sides.choose_at(event.x, event.row)
        self._show()

    def action_answer(self, action: Literal["jump", "send"]) -> None:
        """Close with what to do, and with which message of the other line."""
        entries = self._sides.comparison.sides["other"]
        index = self._sides.selected if self._sides.side == "other" else -1
        message = entries[index].message if 0 <= index < len(entries) else None
        self.dismiss(CompareAnswer(action, message))

    def action_whole(self) -> None:
        """Close with a jump to the end of the other line, whatever is selected."""
        self.dismiss(CompareAnswer("jump", None))

    def action_leave(self) -> None:
        """Return to where we were."""
        self.dismiss(None)


def _side_head(
    glyph: str, colour: str, which: str, name: str, when: str, figure: str, width: int
) -> Content:
    left = Content.assemble("  ", (glyph, colour), " ", (which, "bold $ink-strong"))
    room = width - left.cell_length - cell_len(figure) - 2 - 4
    if name and room >= _LEAST_NAME:
        name = formatting.cut(name, room)
        left = Content.assemble(left, "  ", (name, "$ink"))
        room -= cell_len(name) + 2
    said = next((one for one in (when, when.removeprefix("left ")) if cell_len(one) <= room), "")
    if said:
        left = Content.assemble(left, "  ", (said, "$ink-quiet"))
    gap = width - 2 - left.cell_length - cell_len(figure)
    return Content.assemble(left, " " * max(1, gap), (figure, "$ink"), "  ")
