"""The part of the main screen that takes the person's wishes about checkpoints and world lines to where they are done.

What does them is imported with the first wish, after the first paint.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from kimi_tui.tui.app_of import app_of

if TYPE_CHECKING:
    from kimi_tui.soul.protocol import Target
    from kimi_tui.tui.chat.transcript import Transcript
    from kimi_tui.tui.main.screen import MainScreen
    from kimi_tui.tui.main.travel import Travel
    from kimi_tui.tui.timeline.widget import Timeline
    from kimi_tui.tui.worldline.view import LineTranscript
    from kimi_tui.wire.events import Record


class TravellingScreen(Screen[None]):
    """Handles messages of the timeline and of the chat. Their classes are named by their handlers, not imported."""

    def __init__(self) -> None:
        super().__init__()
        self._travel: Travel | None = None

    @abstractmethod
    def action_command(self, name: str, argument: str = "") -> None:
        """Run a command of the table."""
        ...

    @property
    def travel(self) -> Travel:
        """What does these wishes."""
        if self._travel is None:
            from kimi_tui.tui.main.travel import Travel
            from kimi_tui.tui.styles import add_sheets

            add_sheets(app_of(self), "worldline")
            self._travel = Travel(cast("MainScreen", self))
        return self._travel

    @property
    def reading(self) -> int:
        """The number of the world line on view; 0 where now is shown."""
        return self._travel.reader.world_line if self._travel is not None else 0

    @property
    def on_view(self) -> Transcript:
        """The chat, or the world line in its place."""
        transcript = self._travel.reader.transcript if self._travel is not None else None
        return transcript or cast("MainScreen", self).transcript

    def search(self, query: str) -> None:
        """Look for a text in what is on view; an empty one is asked for."""
        cast("MainScreen", self).timeline_pane.close()
        self.on_view.begin_search(query)

    def end_search(self) -> bool:
        """End the search of what is on view; False where there is none."""
        is_searched = self.on_view.is_searched
        self.on_view.end_search()
        return is_searched

    def on_searched_surface_search_ended(self) -> None:
        """The search is over: the keys go back to where they were, and the footer lists them."""
        screen = cast("MainScreen", self)
        screen.return_to_prompt()
        screen.on_descendant_focus()

    def preview(self, target: Target) -> None:
        """Show what a rewind would take, then do what is chosen there."""
        from kimi_tui.tui.main.rewinding import rewind_flow

        screen = cast("MainScreen", self)
        conversation = screen.conversation
        conversation.engine.start(rewind_flow(screen, screen, conversation, target))

    def on_timeline_checkpoint_chosen(self, event: Timeline.CheckpointChosen) -> None:
        """The person wants to see what a rewind would take."""
        self.preview(event.target)

    def on_timeline_wished(self, event: Timeline.Wished) -> None:
        """Something else is wanted of a row."""
        self.travel.of_row(event.wish, event.target, event.uid)

    def on_timeline_undo_requested(self) -> None:
        """The newest operation should be undone."""
        self.action_command("undo")

    def on_timeline_replay_requested(self) -> None:
        """The session should be played back."""
        self.action_command("replay")

    def on_timeline_redo_requested(self) -> None:
        """What was undone should be done again."""
        self.action_command("redo")

    def on_transcript_checkpoint_clicked(self, event: Transcript.CheckpointClicked) -> None:
        """A number was clicked, in the chat or in a world line on view."""
        from kimi_tui.soul.protocol import Target

        screen = cast("MainScreen", self)
        is_now = event.transcript is screen.transcript
        timeline = screen.views.timeline.model
        live = timeline.tree.live if timeline is not None and is_now else []
        point = next((one for one in live if one.id == event.id), None)
        target = Target(event.id, 0 if is_now else self.reading)
        if point is not None and point.is_summary:
            self.travel.of_row("summary", target, point.uid)
        else:
            self.preview(target)

    def on_transcript_pin_wanted(self, event: Transcript.PinWanted) -> None:
        """A message of the chat should be kept, or no longer."""
        self.travel.pin_message(event.uid, event.number)

    def return_to_now(self) -> None:
        """Give the prompt the keys, and show the live line where another one was on view."""
        if not self.reading or not self.travel.reader.leave():
            cast("MainScreen", self).return_to_prompt()

    def show_marks(self) -> None:
        """Show the names and pins that were kept."""
        screen = cast("MainScreen", self)
        soul = screen.conversation.engine.soul
        if soul is not None and (soul.bookmarks or soul.pins):
            screen.views.mark(soul.bookmarks, soul.pins)

    def move_marks(self, records: Sequence[Record]) -> None:
        """Names and pins go along where an operation gave their messages another place."""
        from kimi_tui.wire.events import LineChanged

        if any(isinstance(record.event, LineChanged) for record in records):
            self.show_marks()

    def on_line_transcript_wished(self, event: LineTranscript.Wished) -> None:
        """Something is wanted of the world line on view."""
        self.travel.of_line(event.wish)
