"""The frame of every screen that shows a session: header, chat beside timeline, gauge and footer.

The first frame on the screen has header and chat only; timeline and gauge are imported when first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from textual import events
from textual.containers import Container
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from kimi_tui.launch import Launch
from kimi_tui.tui.faults import Callbacks, report_of
from kimi_tui.tui.formatting import cut
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.frame_rows import (
    BROAD_FROM,
    GAP,
    NARROW_BELOW,
    OVERLAY_BELOW,
    SHORT_BELOW,
    SLIM_BELOW,
    TINY_BELOW,
    HeaderText,
    Hint,
    fit_heading,
    fit_hints,
    heading_spans,
    hint_cells,
    hint_spans,
    timeline_width,
)
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.notices import NoticingPane
from kimi_tui.tui.row_list import PaintedRows, plain
from kimi_tui.tui.rows import COLOUR, Line, Span, fitted, sides, spans_width
from kimi_tui.tui.screens import add_sheets, app_of
from kimi_tui.tui.stored_rows import StoredRows
from kimi_tui.tui.textual_patches.compositor import draw_changed_rows
from kimi_tui.tui.textual_patches.frames import draw_when_wanted
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.instant.stored_frame import Cells
    from kimi_tui.tui.faults import Report
    from kimi_tui.tui.timeline.timeline import Timeline
    from kimi_tui.tui.views import Views


# --- header, the first row


class Header(PaintedRows):
    """The first row of the main screen."""

    heading: reactive[HeaderText] = reactive(HeaderText())

    class PartClicked(Message):
        """The model or the mode was clicked."""

        def __init__(self, part: Literal["model", "mode"]) -> None:
            super().__init__()
            self.part: Literal["model", "mode"] = part

    def __init__(self, heading: HeaderText) -> None:
        super().__init__()
        self.set_reactive(Header.heading, heading)

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the row, fitted to its width."""
        return [Line(tuple(heading_spans(self.heading, width, glyphs_of(self))))]

    def on_click(self, event: events.Click) -> None:
        """Post which part was clicked."""
        width = self.content_size.width
        shown = fit_heading(self.heading, width, glyphs_of(self).cut, glyphs_of(self).caution)
        at = event.x - self.content_region.x + self.region.x
        mode_at = width - cell_len(shown.mode)
        model_at = mode_at - GAP - cell_len(shown.model)
        if at >= mode_at:
            self.post_message(self.PartClicked("mode"))
        elif shown.model and model_at <= at < mode_at - GAP:
            self.post_message(self.PartClicked("model"))


# --- footer, the last row


def hint_row(hints: Sequence[Hint], width: int) -> Line:
    """Return a row of at most `width` cells with as many hints as fit."""
    return Line(tuple(hint_spans(hints, width)))


class Footer(PaintedRows):
    """The last row of a screen, with its keys. It is empty while a modal screen, which shows its own keys, covers this one."""

    hints: reactive[tuple[Hint, ...]] = reactive(())
    urgent: reactive[str] = reactive("")
    """A short message shown instead of the hints; empty for none."""

    class HintClicked(Message):
        """A hint was clicked; `key` is the displayed key."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def on_click(self, event: events.Click) -> None:
        """Post which hint was clicked."""
        at = event.x - self.content_region.x + self.region.x
        for hint in () if self.urgent else fit_hints(self.hints, self.content_size.width):
            if 0 <= at < hint_cells(hint):
                self.post_message(self.HintClicked(hint[0]))
            at -= hint_cells(hint) + GAP

    def on_mount(self) -> None:
        """Watch the screen stack, to know when another screen covers this one."""
        self.watch(self.screen, "stack_updates", self._covered, init=False)

    def _covered(self) -> None:
        self.refresh()

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return as many hints as fit."""
        if self.urgent:
            return [plain(self.urgent, "strong")]
        return [hint_row(self.hints, width)] if app_of(self).screen is self.screen else []


# --- status line, the row above the footer


class StatusRow(PaintedRows):
    """The row of the status line: what a command printed at its left, and facts at its right; or the facts alone."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[list[Span], list[str]] = [], []

    def show(self, printed: list[Span], facts: list[str]) -> None:
        """Show other texts.

        Args:
            printed: the spans of a command's line, in the styles of `ansi_line.ansi_spans`.
            facts: texts of one line each, the most important first.
        """
        if self._shown != (printed, facts):
            self._shown = printed, facts
            self.refresh()

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the row, with as many facts as fit beside what was printed."""
        printed, facts = self._shown
        room = width - (cells + GAP if (cells := spans_width(printed)) else 0)
        glyphs = glyphs_of(self)
        dot = f" {glyphs.pending} "
        shown: list[str] = []
        for fact in facts:
            if cell_len(dot.join([*shown, fact])) <= room:
                shown.append(fact)
            elif not shown and not printed:
                shown.append(cut(fact, room, glyphs.cut))
        words = Span(dot.join(shown), "quiet")
        left = [span._replace(style=self._style(span.style)) for span in printed]
        if spans_width(left) > width:
            left = [*fitted(left, width - 1), Span(glyphs.cut, "quiet")]
        return [Line(tuple(sides(left, [words], width) if left else [words]))]

    def _style(self, style: str) -> str:
        """Return a style that the painter knows: a colour of the program's own stands on its background, or on that of the row."""
        if not style.startswith(COLOUR):
            return style
        back = self.rich_style.bgcolor
        if back is None or back.triplet is None:
            # The colours are those of the terminal, which has perhaps sixteen.
            return "ink"
        return style if not style.endswith("@") else f"{style}{back.triplet.hex}"


# --- panes and frame


Place = Literal["timeline", "future row", "begun", "filter", "missed", "found"]
"""The part of the timeline on which keys act: its rows (`timeline`; `future row` if a running future is selected), an empty filter being
typed (`begun`), a filter with matches (`filter`) or without (`missed`), or the rows of a kept filter (`found`).
"""
_FRAME_KEYS: Mapping[Place, str] = {
    "timeline": "Enter preview  ? keys",
    "future row": "Enter read  ? keys",
    "begun": "Esc show all steps",
    "missed": "Esc show all steps",
    "filter": "Enter go to the step  Esc show all steps",
    "found": "Enter preview  Esc show all steps",
}


class ChatPane(NoticingPane):
    """The pane of the chat, with notices over its last rows.

    Args:
        transcript: the chat.
    """

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript, id="chat-pane")
        self._menu: Widget | None = None
        self._hides_menu = False

    async def read(self, world_line: Widget) -> None:
        """Show a world line instead of the chat."""
        self.add_class("-reading")
        await self.mount(world_line)

    def end_reading(self, world_line: Widget) -> None:
        """Remove a world line and show the chat again."""
        self.remove_class("-reading")
        world_line.remove()

    def put_menu(self, menu: Widget) -> None:
        """Mount the completion menu of the prompt over the last rows of the pane."""
        self._menu = menu
        menu.visible = not self._hides_menu
        self.on_notices_height_changed()
        self.mount(menu)

    def hide_menu(self, hides: bool) -> None:
        """Hide the completion menu, or show it again: while a question has the place of the prompt, no key acts on it."""
        self._hides_menu = hides
        if self._menu is not None:
            self._menu.visible = not hides

    def on_notices_height_changed(self) -> None:
        """Move the completion menu above the notices."""
        if self._menu is not None:
            rows = self.notices.n_rows if self.notices is not None else 0
            self._menu.styles.margin = (0, 0, rows, 0)


class TimelinePane(NoticingPane):
    """The pane of the timeline: beside the chat, or floating over it on a narrow screen."""

    def __init__(self) -> None:
        super().__init__(id="timeline-pane")
        self._timeline: Timeline | None = None
        """The visible timeline."""
        self._own: Timeline | None = None
        """The timeline of the session, which another one may cover."""

    def mount_timeline(self, timeline: Timeline) -> None:
        """Mount the timeline in the pane."""
        self._timeline = self._own = timeline
        self.border_title = frame_label(self, "Timeline")
        self.name_keys()
        self.mount(timeline)

    def on_unmount(self) -> None:
        """Drop the timeline: Textual may keep the pane alive longer than it shows it."""
        self._timeline = self._own = None

    def read(self, timeline: Timeline) -> None:
        """Show another timeline in place of that of the session."""
        if self._own is not None:
            self._timeline, self._own.display = timeline, False
            timeline.overlay = self._own.overlay
            self.name_keys()
            self.mount(timeline)

    def end_reading(self) -> None:
        """Remove another timeline, and show that of the session again."""
        timeline, own = self._timeline, self._own
        if timeline is not None and own is not None and timeline is not own:
            self._timeline, own.display = own, True
            self.name_keys()
            timeline.remove()

    def fit(self, *, floats: bool) -> None:
        """Place the visible timeline beside the chat, or floating over it."""
        if self._timeline is not None:
            self._timeline.overlay = floats

    @property
    def shown(self) -> Timeline | None:
        """The visible timeline: that of the session, or another one in its place."""
        return self._timeline

    @property
    def has_keys(self) -> bool:
        """Whether the timeline has the focus."""
        return self._timeline is not None and self._timeline.has_focus

    @property
    def acts(self) -> bool:
        """Whether letters are keys of the timeline; they are not while a filter is typed, or the list of keys is shown."""
        timeline = self._timeline
        return timeline is not None and timeline.has_focus and not timeline.takes_any_letter

    @property
    def needle(self) -> str:
        """The text of the filter that is typed; empty for none."""
        return self._timeline.needle if self._timeline is not None else ""

    def end_filter(self) -> None:
        """Show all rows of the timeline again."""
        if self._timeline is not None:
            self._timeline.end_filter()

    @property
    def floats(self) -> bool:
        """Whether the pane is shown floating over the chat now."""
        return self.has_class("-open") and self.screen.has_class("-overlay")

    @property
    def place(self) -> Place:
        """The part of the pane on which keys act now."""
        match self._timeline.filter_state if self._timeline is not None else "":
            case "typed":
                return "filter"
            case "kept":
                return "found"
            case "":
                is_on_future = self._timeline is not None and self._timeline.is_on_future
                return "future row" if is_on_future else "timeline"
            case state:
                return state

    def name_keys(self) -> None:
        """Show the present keys in the border of the floating pane."""
        self.border_subtitle = frame_label(self, _FRAME_KEYS[self.place])

    def open(self) -> None:
        """Show the pane and focus the timeline."""
        self.add_class("-open")
        self.settle()
        if self._timeline is not None:
            self._timeline.focus()

    def close(self) -> None:
        """Hide the pane if it floats."""
        self.remove_class("-open")
        self.settle()

    def settle(self) -> None:
        """Dim the colours of the chat while the pane floats over it."""
        floats = self.floats
        for transcript in self.screen.query(Transcript):
            transcript.behind = floats


class SessionFrame:
    """The widgets of a screen that shows a session, and their places.

    Args:
        screen: the screen.
        launch: how the app was started.
        size: the size of the terminal in cells.
        heading: the initial content of the header.
        transcript: the chat.
        stored: the last frame of the session, shown until it is read: the rows of the panes and of the gauge; empty for none.

    Attributes:
        header: the first row.
        chat_pane: the pane with the transcript.
        timeline_pane: the pane of the timeline, which is empty until `mount_views`.
        views: chat, timeline and gauge; None until `mount_views`.
    """

    def __init__(
        self,
        screen: Screen[Any],
        launch: Launch,
        size: Size,
        heading: HeaderText,
        transcript: Transcript,
        stored: Sequence[Sequence[Cells]] = (),
    ) -> None:
        self._screen = screen
        self._stored = [StoredRows(stored[:-1]), StoredRows(stored[-1:])] if stored else []
        self._stored_for = size
        self._transcript = transcript
        self.header = Header(heading)
        self.chat_pane = ChatPane(transcript)
        self.timeline_pane = TimelinePane()
        self._gauge_row = Container(*self._stored[1:], id="gauge-row")
        self.views: Views | None = None
        draw_changed_rows(screen)
        draw_when_wanted(screen, Callbacks(report_of(screen)).call_at)
        screen.set_class(launch.config.glyphs == "ascii", "-ascii")
        # The size is set before anything is styled or laid out, so that this happens only once.
        self.fit(size)

    def compose(self) -> Iterator[Widget]:
        """Yield the parts, from the top."""
        yield self.header
        yield Container(self.chat_pane, self.timeline_pane, *self._stored[:1], id="body")
        yield self._gauge_row

    def mount_views(
        self,
        *style_sheets: str,
        broken: Report | None = None,
        cost_words: Callable[[], str] = str,
    ) -> Views:
        """Import and mount timeline and gauge.

        Args:
            style_sheets: names of further style sheets that the screen needs from now on.
            broken: called with an exception that chat, timeline or gauge raises for an event.
            cost_words: returns what the session has cost so far, in words; empty if no prices are set.
        """
        from kimi_tui.tui.views import Views

        add_sheets(self._screen, "timeline", "gauge", *style_sheets)
        views = self.views = Views(self._transcript, broken, cost_words)
        self.timeline_pane.mount_timeline(views.timeline)
        self._gauge_row.mount(views.gauge)
        self.fit(app_of(self._screen).size)
        return views

    def drop_stored(self) -> None:
        """Remove the last frame of the session, as the session itself can be seen now."""
        stored, self._stored = self._stored, []
        for rows in stored:
            rows.remove()

    def fit(self, size: Size) -> None:
        """Place the timeline beside or over the chat, and set the margins, for a size of the screen in cells."""
        if size != self._stored_for:
            self.drop_stored()
        floats = size.width < OVERLAY_BELOW
        # All classes are set at once, as each change styles the whole screen anew.
        self._screen.update_classes(
            {
                "-overlay": floats,
                "-narrow": size.width < NARROW_BELOW,
                "-slim": size.width < SLIM_BELOW and not floats,
                "-broad": size.width >= BROAD_FROM,
                "-short": size.height < SHORT_BELOW,
                "-tiny": size.height < TINY_BELOW,
            }
        )
        if self.views is not None:
            self.views.fit(timeline_width(size.width))
            self.timeline_pane.fit(floats=timeline_width(size.width) == 0)
            self.timeline_pane.settle()
