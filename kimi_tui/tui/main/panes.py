"""The two panes between header and gauge, with what floats over the chat: notices and the menu of commands.

Only the chat stands on the first picture; the other widgets are imported when they are first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.containers import Container
from textual.content import Content

from kimi_tui.tui.chat.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.tui.main.commands import Command
    from kimi_tui.tui.main.hints import Place
    from kimi_tui.tui.main.menu import CommandMenu
    from kimi_tui.tui.main.notices import Level, Notices
    from kimi_tui.tui.timeline.widget import Timeline
    from kimi_tui.tui.worldline.view import Reading

OVERLAY_BELOW = 100
SLIM_BELOW = 112
SLIM_TIMELINE = 30
WIDE_TIMELINE = 38


def timeline_width(screen_width: int) -> int:
    """How wide the timeline beside the chat is; 0 where it floats over it."""
    if screen_width < OVERLAY_BELOW:
        return 0
    return SLIM_TIMELINE if screen_width < SLIM_BELOW else WIDE_TIMELINE


_FRAME_KEYS: Mapping[str, str] = {
    "timeline": "Enter preview  ? keys",
    "filter": "Enter go there  Esc all steps",
    "found": "Enter preview  Esc all steps",
}


class NoticingPane(Container):
    """A pane over whose last rows notices are shown."""

    _notices: Notices | None = None

    def tell(self, text: str, level: Level, advice: str, topic: str = "") -> None:
        """Show a notice for a few seconds; with a topic, until that is solved."""
        if self._notices is None:
            from kimi_tui.tui.main.notices import Notices

            self._notices = Notices()
            self.mount(self._notices)
        self._notices.tell(text, level=level, advice=advice, topic=topic)

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
        keys: those of the configuration, by command, as the menu of commands names them.
    """

    def __init__(self, transcript: Transcript, keys: Mapping[str, str]) -> None:
        super().__init__(transcript, id="chat-pane")
        self._keys = keys
        self._menu: CommandMenu | None = None

    async def read(self, reading: Reading) -> None:
        """Put a world line in front of the chat."""
        self.add_class("-reading")
        await self.mount(reading)

    def end_reading(self, reading: Reading) -> None:
        """Show the chat again."""
        self.remove_class("-reading")
        reading.remove()

    @property
    def command(self) -> Command | None:
        """The command that is chosen in the menu; None while there is no menu."""
        return self._menu.chosen if self._menu is not None else None

    def follow(self, text: str) -> CommandMenu | None:
        """Show which commands the text in the prompt may become; returns the menu once there is one."""
        if self._menu is None and text.startswith("/"):
            from kimi_tui.tui.main.menu import CommandMenu

            self._menu = CommandMenu(self._keys)
            self.mount(self._menu)
        if self._menu is not None:
            self._menu.follow(text)
        return self._menu


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

    @property
    def has_keys(self) -> bool:
        """Whether the timeline has the focus."""
        return self._timeline is not None and self._timeline.has_focus

    @property
    def floats(self) -> bool:
        """Whether it stands over the chat now."""
        return self.has_class("-open") and self.screen.has_class("-overlay")

    @property
    def place(self) -> Place:
        """What the keys do there."""
        state = self._timeline.filter_state if self._timeline is not None else ""
        return "filter" if state == "typed" else "found" if state == "kept" else "timeline"

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
