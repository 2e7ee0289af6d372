"""What is shown of a session that is played back: brings chat, timeline, gauge and files to a moment.

The clock and the keys are elsewhere; this knows only which moment is on the screen and how to get to another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kimi_tui.tui.main.views import Views
from kimi_tui.tui.numbers import counted, tokens
from kimi_tui.tui.replay.model import sliced
from kimi_tui.tui.replay.playing import Player
from kimi_tui.tui.replay.scrubber import Scrubber
from kimi_tui.tui.replay.shelf import Shelf
from kimi_tui.tui.replay.times import streamed_text
from kimi_tui.wire.events import Record, TextPart, ThinkPart

if TYPE_CHECKING:
    from kimi_tui.tui.chat.flow import Flow
    from kimi_tui.tui.replay.files import FilesModel
    from kimi_tui.tui.replay.model import Moment, Replay
    from kimi_tui.tui.timeline.points import Point

NEAR = 400
"""Up to so many records ahead are applied to what is shown; farther ones from a kept state."""


class Stage:
    """Shows a replay.

    Args:
        replay: the session.
        player: where its clock stands.
        views: chat, timeline and gauge.
        scrubber: is told of every move.
        shelf: the list of files.
    """

    def __init__(
        self, replay: Replay, player: Player, views: Views, scrubber: Scrubber, shelf: Shelf
    ) -> None:
        self._replay = replay
        self._player = player
        self._views = views
        self._scrubber = scrubber
        self._shelf = shelf
        self._files: FilesModel | None = None
        self._shown: tuple[Moment, Flow] | None = None
        self._at = 0
        self._said = 0

    @property
    def head(self) -> Point | None:
        """The newest checkpoint of the moment that is shown."""
        model = self._views.timeline.model
        return model.head if model is not None else None

    @property
    def is_whole(self) -> bool:
        """Whether all that began by the moment that is shown is complete in it."""
        return not self._said and self._replay.course.is_stop(self._at)

    def position_of(self, number: int, line: int = 0) -> int | None:
        """Where a checkpoint that is shown was complete; None for one that is not told of."""
        model = self._views.timeline.model
        if model is None or (line and line not in model.tree.lines):
            return None
        points = model.tree.lines[line].points if line else model.tree.live
        uid = next((point.uid for point in points if point.id == number), "")
        return self._replay.course.stop_of(uid)

    async def seek(self, position: int) -> None:
        """Show the moment at a position: by what happens until then, or from a kept state."""
        if self._files is not None and not self._said and 0 <= position - self._at <= NEAR:
            self._apply(self._replay.course.records[self._at : position], live=False)
            self._at = position
        else:
            moment = await self._replay.reach(position)
            flow = await sliced(self._views.settle(moment.chat, moment.timeline))
            self._views.show(moment.chat, moment.timeline, moment.gauge, flow)
            before, self._shown = self._shown, (moment, flow)
            self._files = moment.files
            self._at, self._said = position, 0
            self._moved()
            # To let go of a long conversation takes milliseconds, which would come on top of those for showing this one.
            await asyncio.sleep(0)
            del before
            return
        self._moved()

    def play_on(self) -> None:
        """Let happen what the player's clock has reached, a text as far as it was streamed by then."""
        course = self._replay.course
        reached = self._player.position
        records = list(course.records[self._at : reached])
        if records and self._said:
            records[0] = _streamed(records[0], self._said)
            self._said = 0
        self._at = reached
        said = course.said_by(reached, self._player.time_s)
        if said > self._said:
            records.append(_streamed(course.records[reached], self._said, said))
            self._said = said
        if records:
            self._apply(records, live=True)
            self._moved()
        else:
            self._scrubber.refresh()

    def _apply(self, records: Sequence[Record], *, live: bool) -> None:
        self._views.play(records, live=live)
        for record in records:
            if self._files is not None:
                self._files.apply(record)

    def _moved(self) -> None:
        """Bring what is told about the moment up to date."""
        replay, timeline, head = self._replay, self._views.timeline, self.head
        self._scrubber.moved(head.id if head is not None else None)
        if self._files is not None:
            self._shelf.files = self._files.files
        timeline.foresee(replay.ahead.after(self._at, replay.course.next_fold(self._at)))
        n_steps = replay.ahead.n_steps(self._at)
        if n_steps:
            at = f"at #{head.id}" if head is not None else "at the beginning"
            timeline.entitle(f"{at}, of {counted(max(n_steps, head.id if head else 0), 'step')}")
        at_end = self._at == replay.course.end
        self._views.gauge.remark("" if at_end else f"then; now {tokens(replay.used_at_end)}")


def _streamed(record: Record, start: int, end: int | None = None) -> Record:
    """A part of a text."""
    part = streamed_text(record.event)[start:end]
    event = TextPart(part) if isinstance(record.event, TextPart) else ThinkPart(part)
    return replace(record, event=event)
