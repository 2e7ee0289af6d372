"""Header, chat beside timeline, and gauge of a session in their places: what the main screen and a replay have in common.

Only header and chat stand on the first picture; what else is in the panes is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from kimi_tui.launch import Launch
from kimi_tui.tui.compositor import draw_changed_rows
from kimi_tui.tui.frame.header import Header, Heading
from kimi_tui.tui.screens import add_sheets, app_of
from kimi_tui.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.tui.faults import Report
    from kimi_tui.tui.frame.notices import Level, Notices
    from kimi_tui.tui.frame.views import Views
    from kimi_tui.tui.prompt.command import Command
    from kimi_tui.tui.prompt.menu import CommandMenu, Offer
    from kimi_tui.tui.timeline.timeline import Timeline


NARROW_BELOW = 80
SHORT_BELOW = 30
"""Rows, below which there is less air."""
OVERLAY_BELOW = 100
SLIM_BELOW = 112
SLIM_TIMELINE = 30
WIDE_TIMELINE = 38
BROAD_FROM = 160
"""Cells of the screen from which there is room for longer names on the timeline."""
BROAD_TIMELINE = 52


def timeline_width(screen_width: int) -> int:
    """How wide the timeline beside the chat is; 0 where it floats over it."""
    if screen_width < OVERLAY_BELOW:
        return 0
    if screen_width >= BROAD_FROM:
        return BROAD_TIMELINE
    return SLIM_TIMELINE if screen_width < SLIM_BELOW else WIDE_TIMELINE


Place = Literal["timeline", "begun", "filter", "missed", "found"]
"""What the keys of the timeline do: act on its rows, write a filter (which is empty, finds something, or finds nothing), or
act on the rows that were found."""
_FRAME_KEYS: Mapping[Place, str] = {
    "timeline": "Enter preview  ? keys",
    "begun": "Esc all steps",
    "missed": "Esc all steps",
    "filter": "Enter go there  Esc all steps",
    "found": "Enter preview  Esc all steps",
}


@runtime_checkable
class ShowsNotices(Protocol):
    """A screen on which a notice can be seen."""

    def tell(self, text: str, *, level: Level = "info", advice: str = "") -> None:
        """Show a notice for a few seconds."""
        ...


class NoticingPane(Container):
    """A pane over whose last rows notices are shown."""

    _notices: Notices | None = None

    @property
    def notices(self) -> Notices:
        """The notices. Imported and put in their place with the first one."""
        if self._notices is None:
            from kimi_tui.tui.frame.notices import Notices

            self._notices = Notices()
            self.mount(self._notices)
        return self._notices

    def solved(self, topic: str) -> None:
        """Take the notice of a topic away."""
        if self._notices is not None:
            self._notices.solve(topic)

    def clear_notices(self) -> None:
        """Take away what would go by itself."""
        if self._notices is not None:
            self._notices.clear()


class ChatPane(NoticingPane):
    """The chat.

    Args:
        transcript: all of it.
        new_menu: makes the menu of commands when a slash is typed first; None for none.
    """

    def __init__(
        self, transcript: Transcript, new_menu: Callable[[], CommandMenu] | None = None
    ) -> None:
        super().__init__(transcript, id="chat-pane")
        self._new_menu = new_menu
        self._menu: CommandMenu | None = None
        self._closed_for = ""
        """The text for which no menu is made: it was closed before there was one."""
        self._notice_rows = 0

    async def read(self, world_line: Widget) -> None:
        """Put a world line in front of the chat."""
        self.add_class("-reading")
        await self.mount(world_line)

    def end_reading(self, world_line: Widget) -> None:
        """Show the chat again."""
        self.remove_class("-reading")
        world_line.remove()

    @property
    def command(self) -> Command | None:
        """The command that is chosen in the menu; None while there is none."""
        return self._menu.chosen if self._menu is not None else None

    @property
    def menu(self) -> CommandMenu | None:
        """The menu while it has something to choose from."""
        return self._menu if self._menu is not None and self._menu.active else None

    def follow(self, text: str, offers: Sequence[Offer] | None = None) -> CommandMenu | None:
        """Show which commands the text in the prompt may become, or what is offered; returns the menu once there is one."""
        is_wanted = bool(offers) or (text.startswith("/") and text != self._closed_for)
        if self._menu is None and self._new_menu is not None and is_wanted:
            self._menu = self._new_menu()
            self._place_menu()
            self.mount(self._menu)
        if self._menu is not None:
            self._menu.follow(text, offers)
        return self._menu

    def on_notices_grown(self, event: Notices.Grown) -> None:
        """The menu stands above the notices."""
        if event.rows != self._notice_rows:
            self._notice_rows = event.rows
            self._place_menu()

    def _place_menu(self) -> None:
        if self._menu is not None:
            self._menu.styles.margin = (0, 0, self._notice_rows, 0)

    def close_menu(self, text: str) -> None:
        """Offer no command until the prompt holds another text than this."""
        self._closed_for = text
        if self._menu is not None:
            self._menu.close(text)


class TimelinePane(NoticingPane):
    """The place of the timeline: beside the chat, or floating over it."""

    def __init__(self) -> None:
        super().__init__(id="timeline-pane")
        self._timeline: Timeline | None = None

    def furnish(self, timeline: Timeline) -> None:
        """Put the timeline in its place."""
        self._timeline = timeline
        self.border_title = "Timeline"
        self.name_keys()
        self.mount(timeline)

    def on_unmount(self) -> None:
        """Let go of it."""
        self._timeline = None

    @property
    def has_keys(self) -> bool:
        """Whether the timeline has the focus."""
        return self._timeline is not None and self._timeline.has_focus

    @property
    def acts(self) -> bool:
        """Whether letters act on the rows of the timeline; else they are written, or any of them ends something."""
        timeline = self._timeline
        return timeline is not None and timeline.has_focus and not timeline.takes_any_letter

    @property
    def floats(self) -> bool:
        """Whether it stands over the chat now."""
        return self.has_class("-open") and self.screen.has_class("-overlay")

    @property
    def place(self) -> Place:
        """What the keys do there."""
        match self._timeline.filter_state if self._timeline is not None else "":
            case "typed":
                return "filter"
            case "kept":
                return "found"
            case "":
                return "timeline"
            case state:
                return state

    def name_keys(self) -> None:
        """Say in the frame what the keys do now."""
        self.border_subtitle = Content(_FRAME_KEYS[self.place])

    def open(self) -> None:
        """Show it, and give it the keys."""
        self.add_class("-open")
        self.settle()
        if self._timeline is not None:
            self._timeline.focus()

    def close(self) -> None:
        """Hide it where it floats."""
        self.remove_class("-open")
        self.settle()

    def settle(self) -> None:
        """Let the chat recede while this floats over it."""
        floats = self.floats
        for transcript in self.screen.query(Transcript):
            transcript.behind = floats


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
