"""Header, chat beside timeline, and gauge of a session in their places: what the main screen and a replay have in common.

Only header and chat stand on the first picture; timeline and gauge are imported when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from textual.containers import Container
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from kimi_tui.launch import Launch
from kimi_tui.tui.compositor import draw_changed_rows
from kimi_tui.tui.frame.header import Header, Heading
from kimi_tui.tui.frame.panes import (
    BROAD_FROM,
    NARROW_BELOW,
    OVERLAY_BELOW,
    SHORT_BELOW,
    SLIM_BELOW,
    ChatPane,
    TimelinePane,
    timeline_width,
)
from kimi_tui.tui.screens import add_sheets, app_of
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.tui.callbacks import Report
    from kimi_tui.tui.frame.views import Views
    from kimi_tui.tui.prompt.menu import CommandMenu


class SessionFrame:
    """The parts of a screen that shows a session.

    Args:
        screen: that has them.
        launch: how the app was started.
        size: of the terminal.
        heading: what the header says at first.
        transcript: the chat.
        new_menu: makes the menu of commands when a slash is typed first; None for none.

    Attributes:
        header: the first row.
        chat_pane: with the transcript.
        timeline_pane: empty until `furnish`.
        views: None until `furnish`.
    """

    def __init__(
        self,
        screen: Screen[Any],
        launch: Launch,
        size: Size,
        heading: Heading,
        transcript: Transcript,
        new_menu: Callable[[], CommandMenu] | None = None,
    ) -> None:
        self._screen = screen
        self._transcript = transcript
        self.header = Header(heading)
        self.chat_pane = ChatPane(transcript, new_menu)
        self.timeline_pane = TimelinePane()
        self._gauge_row = Container(id="gauge-row")
        self.views: Views | None = None
        draw_changed_rows(screen)
        screen.set_class(launch.config.glyphs == "ascii", "-ascii")
        # Before anything is styled or laid out, so that it need not be done twice.
        self.fit(size)

    def compose(self) -> Iterator[Widget]:
        """The parts, from the top."""
        yield self.header
        yield Container(self.chat_pane, self.timeline_pane, id="body")
        yield self._gauge_row

    def furnish(self, *style_sheets: str, broken: Report | None = None) -> Views:
        """Put timeline and gauge in their places.

        Args:
            style_sheets: those that the screen needs from now on beside those of the two, by name.
            broken: told what chat, timeline or gauge cannot take.
        """
        from kimi_tui.tui.frame.views import Views

        add_sheets(self._screen, "timeline", "gauge", *style_sheets)
        views = self.views = Views(self._transcript, broken)
        self.timeline_pane.furnish(views.timeline)
        self._gauge_row.mount(views.gauge)
        self.fit(app_of(self._screen).size)
        return views

    def fit(self, size: Size) -> None:
        """Other sizes have other places for the timeline and less air."""
        floats = size.width < OVERLAY_BELOW
        # All at once: each change styles the whole screen anew.
        self._screen.update_classes(
            {
                "-overlay": floats,
                "-narrow": size.width < NARROW_BELOW,
                "-slim": size.width < SLIM_BELOW and not floats,
                "-broad": size.width >= BROAD_FROM,
                "-short": size.height < SHORT_BELOW,
            }
        )
        if self.views is not None:
            self.views.fit(timeline_width(size.width))
            self.timeline_pane.settle()
