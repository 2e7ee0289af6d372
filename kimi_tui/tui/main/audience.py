"""Who draws a conversation. Needed for types alone, so that no protocol is built before the first paint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kimi_tui.tui.main.state import MainState

if TYPE_CHECKING:
    from kimi_tui.soul.work_folder import FolderFacts
    from kimi_tui.tui.main.notices import Level
    from kimi_tui.wire.events import Record


class Audience(Protocol):
    """Who draws the session."""

    def draw(self, records: Sequence[Record], *, live: bool) -> None:
        """Something happened, now (`live`) or before the session was opened."""
        ...

    def glance(self, records: Sequence[Record]) -> None:
        """This is how the session ended; all of it will be drawn when it has been read."""
        ...

    @property
    def sees_end(self) -> bool:
        """Whether the end of the conversation is on the screen."""
        ...

    def settle_history(self) -> Iterator[None]:
        """Make ready, in small steps, what is to be seen when all that happened before has been drawn."""
        ...

    def folder_known(self, facts: FolderFacts) -> None:
        """This is known of the work folder, in which nothing was done yet."""
        ...

    def history_told(self) -> None:
        """All that happened before has been drawn."""
        ...

    def redraw(self, records: Sequence[Record]) -> None:
        """Everything is another: this is what happened."""
        ...

    def state_changed(self, old: MainState, new: MainState) -> None:
        """The frame's state is another one."""
        ...

    def tell(self, text: str, *, level: Level = "info", advice: str = "", topic: str = "") -> None:
        """Show a notice for a few seconds; with a topic, until that is solved."""
        ...

    def solved(self, topic: str) -> None:
        """Take the notice of a topic away."""
        ...

    def suggest(self, text: str) -> None:
        """Put a message into the prompt, if it is empty."""
        ...

    def give_back(self, text: str) -> None:
        """Put a message that was not sent into the prompt, before what stands there."""
        ...
