"""`Views`: chat, timeline and gauge of one session, which show one model of it.

Timeline and gauge are imported when first shown, after the first paint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from kimi_tui.tui.faults import Report, report_of
from kimi_tui.tui.slices import in_slices

if TYPE_CHECKING:
    from kimi_tui.projection.blocks import Block, Change
    from kimi_tui.projection.session_model import SessionModel
    from kimi_tui.projection.session_state import SessionState
    from kimi_tui.projection.timeline_tree import CheckpointNode
    from kimi_tui.soul.rewind_values import Prospect
    from kimi_tui.tui.transcript.transcript import Transcript
    from kimi_tui.tui.transcript.viewport import Flow
    from kimi_tui.wire.events import EventRecord

CHUNK = 32
"""Events that are taken in one go where a session is built anew."""
GLANCE_CHUNK = 8
GLANCE_SLICE_S = 0.003
FLOW_SLICE = 300
"""Blocks that are put into their places in one go, in about two milliseconds."""


class UnshownChat:
    """Where the blocks of a chat stand that is read to be shown, so that showing it takes little.

    Args:
        transcript: what will show it.

    Attributes:
        flow: the layout; None while there are no blocks.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.flow: Flow | None = None
        self._room = transcript.room()
        self._n_rows = transcript.size.height
        self._changed_from: int | None = None

    @property
    def is_settled(self) -> bool:
        """Whether all blocks stand in the layout; otherwise `settle` it before it is shown."""
        return self._changed_from is None

    def changed(self, blocks: Sequence[Block], first: int) -> None:
        """Take in the blocks from `first` on; where those are many, as after a rewind that was undone, `settle` does so."""
        known = self._changed_from
        first = first if known is None else min(known, first)
        if self.flow is None:
            from kimi_tui.tui.transcript.viewport import Flow

            self.flow = Flow(self._room)
        if max(len(blocks), len(self.flow.views)) - first > FLOW_SLICE:
            self._changed_from = first
        else:
            # A little each time: at the end it would be a tenth of a second in one go.
            self._changed_from = None
            self.flow.update(blocks, first)

    def settle(self, blocks: Sequence[Block]) -> Generator[None]:
        """Take in the remaining blocks, sum up their heights, and lay out the last page, in small steps.

        The blocks must not change meanwhile.
        """
        flow = self.flow
        if flow is None:
            return
        if self._changed_from is not None:
            if (arranged := (yield from flow.arranged(blocks))) is not None:
                yield from flow.take(arranged)
            self._changed_from = None
        yield from flow.sum_up()
        index, n_rows = len(flow.views), 0
        while index and n_rows < self._n_rows:
            index -= 1
            flow.lay_out(index)
            n_rows += flow.views[index].rows
            yield


class UnshownSession:
    """A session that is read to be shown: its model, and where the blocks of its chat stand (None while there are none)."""

    def __init__(self, transcript: Transcript, state: SessionState | None = None) -> None:
        from kimi_tui.projection.session_model import SessionModel

        self.session = SessionModel(transcript.work_dir, state)
        self._chat = UnshownChat(transcript)

    @property
    def flow(self) -> Flow | None:
        """The layout of the chat; None while it has no blocks."""
        return self._chat.flow

    @property
    def is_settled(self) -> bool:
        """Whether all blocks of the chat stand in the layout."""
        return self._chat.is_settled

    def take(self, records: Sequence[EventRecord], report: Report) -> None:
        """Apply events. Where a part of the model cannot take one that is reported, and the others take it."""
        changes = [self.session.apply(record, report).chat.first for record in records]
        if changed := [first for first in changes if first is not None]:
            self._chat.changed(self.session.chat.blocks, min(changed))

    def settle(self) -> Generator[None]:
        """Make the chat ready to be shown, in small steps, during which no event is taken."""
        yield from self._chat.settle(self.session.chat.blocks)


class Views:
    """Chat, timeline and gauge of one session, updated together from the same events.

    Args:
        transcript: the chat.
        broken: called with an exception that one of them raises for an event; they should then be rebuilt from the session.
        cost_words: returns what the session has cost so far, in words; empty if no prices are set.

    Attributes:
        timeline: the timeline widget.
        gauge: the gauge widget.
    """

    def __init__(
        self,
        transcript: Transcript,
        broken: Report | None = None,
        cost_words: Callable[[], str] = str,
    ) -> None:
        from kimi_tui.tui.gauge import Gauge
        from kimi_tui.tui.timeline.timeline import Timeline

        self._transcript = transcript
        self._broken = broken or report_of(transcript)
        self.timeline = Timeline()
        self.gauge = Gauge(cost_words)
        self._session: SessionModel | None = None
        self._untold: UnshownSession | None = None
        self._is_told = False
        self._begins_with: SessionState | None = None

    @property
    def session(self) -> SessionModel:
        """The session that is shown."""
        if self._session is None:
            from kimi_tui.projection.session_model import SessionModel

            session = SessionModel(self._transcript.work_dir, self._begins_with)
            self.show(session)
            return session
        return self._session

    def held(self) -> list[object]:
        """Return the objects of which a long session has thousands, so that they can be freed a few at a time."""
        sessions = [self._session, None if self._untold is None else self._untold.session]
        found: list[object] = []
        for session in sessions:
            if session is not None:
                found += session.chat.blocks
                found += session.timeline.held()
        return found

    def begin(self, state: SessionState) -> None:
        """Set the state of the session that is known before its history is read."""
        self._begins_with = state

    def fit(self, timeline_width: int) -> None:
        """Place the timeline beside the chat in this width, or (0) floating over it."""
        self.timeline.overlay = timeline_width == 0
        self.gauge.timeline_width = timeline_width

    def live_point(self, checkpoint_id: int) -> CheckpointNode | None:
        """A checkpoint of the live line, as the timeline knows it; None where there is none."""
        live = self.timeline.model.tree.live
        return next((point for point in live if point.id == checkpoint_id), None)

    def show_prospect(self, prospect: Prospect | None) -> None:
        """Show a prospect: in grey what would be dropped from the chat, and on the gauge the window after it; None ends it."""
        if prospect is None:
            self.gauge.prospect = None
            self._transcript.show_dropped(None)
            return
        target, used, is_guess, words_stay = prospect
        self.gauge.prospect = None if used is None else (used, is_guess)
        going = -1 if target.world_line else target.id
        self._transcript.show_dropped(going, words_stay=words_stay)

    def add_history(self, records: Sequence[EventRecord]) -> None:
        """Take in events of the history, which are shown when it is complete (`history_told`)."""
        if self._untold is None:
            self._untold = UnshownSession(self._transcript, self._begins_with)
            # `settle_history` makes the rows, which costs less than growing them with each step.
            self._untold.session.timeline.rows.reset()
        # There is nothing to rebuild it from but this.
        self._untold.take(records, report_of(self._transcript))

    def settle_history(self) -> Generator[None]:
        """Lay out the timeline of the history and sum up its chat, in small steps, before `history_told` shows them."""
        if self._untold is not None:
            if arrangement := self.timeline.model.arrangement:
                self._untold.session.timeline.arrange(arrangement)
            yield from self._untold.session.timeline.settle()
            yield from self._untold.settle()

    def history_told(self) -> None:
        """Show the whole history; the position is kept if its end was being read."""
        self.timeline.reading = ""
        self._is_told = True
        untold, self._untold = self._untold, None
        if untold is None:
            return
        session = self._session = untold.session
        self._transcript.show_whole(session.chat, untold.flow)
        self.timeline.show_whole(session.timeline)
        self.gauge.show_model(session.gauge)

    async def glance(self, records: Sequence[EventRecord]) -> None:
        """Show the end of a history until all of it is read, which may be before this is ready."""
        end, report = UnshownSession(self._transcript), report_of(self._transcript)

        def steps() -> Generator[None]:
            for start in range(0, len(records), GLANCE_CHUNK):
                end.take(records[start : start + GLANCE_CHUNK], report)
                yield
            yield from end.settle()

        await in_slices(steps(), GLANCE_SLICE_S)
        if not self._is_told:
            self.show(end.session, end.flow)

    def play(self, records: Sequence[EventRecord], *, live: bool | None = None) -> None:
        """Show what happens.

        Args:
            records: the events.
            live: whether they may move something; None: by their age.
        """
        session, left = self.session, deque(records)
        is_moved = is_measured = False

        def take(record: EventRecord) -> Change:
            nonlocal is_moved, is_measured
            applied = session.apply(left.popleft(), self._broken)
            is_moved |= applied.timeline
            is_measured |= applied.gauge
            return applied.chat

        try:
            self._transcript.apply(records, live=live, take=take)
        except Exception as error:
            # The model takes the remaining events although one of them could not be drawn.
            self._broken(error)
            while left:
                take(left[0])
        if is_moved:
            self.timeline.changed(motion=live is not False)
        if is_measured:
            self.gauge.changed(motion=live is not False)

    def play_beside(self, records: Sequence[EventRecord]) -> None:
        """Show what the sub-agents of the session do, as far as their cards do."""
        self._transcript.apply(records, live=True, take=self.session.chat.apply_beside)

    def settle(self, session: SessionModel) -> Generator[None, None, Flow]:
        """Make ready in small steps what is to be shown; returns where the blocks of the chat stand."""
        from kimi_tui.tui.transcript.viewport import Flow

        flow, blocks = Flow(self._transcript.room()), session.chat.blocks
        for start in range(0, len(blocks), FLOW_SLICE):
            flow.update(blocks[: start + FLOW_SLICE], start)
            yield
        yield from flow.sum_up()
        yield from session.timeline.settle()
        return flow

    def show(self, session: SessionModel, flow: Flow | None = None) -> None:
        """Show another session in place of the one shown; with a flow it is known where the chat's blocks stand."""
        self._session = session
        self._transcript.show_model(session.chat, flow)
        self.timeline.show_model(session.timeline)
        self.gauge.show_model(session.gauge)

    async def rebuild(
        self,
        records: Sequence[EventRecord],
        since: Callable[[], Sequence[EventRecord]],
    ) -> bool:
        """Show these events in place of what is shown, without those that cannot be shown; whether all of them can.

        What is shown stays until all of them are taken, a few milliseconds at a time.

        Args:
            records: what happened, in order.
            since: takes what has happened behind them, and is empty when nothing more has.
        """
        report = report_of(self._transcript)
        anew = UnshownSession(self._transcript)
        arrangement = self.timeline.model.arrangement
        whole = True

        def tell(error: Exception) -> None:
            nonlocal whole
            whole = False
            report(error)

        from kimi_tui.soul.tasks import TimeSlices

        slices, taken = TimeSlices(), 0
        # Nothing is awaited behind the last look at what has happened meanwhile.
        while (chunk := records[taken : taken + CHUNK] or since()) or not anew.is_settled:
            taken += len(chunk)
            anew.take(chunk, tell)
            await slices.yield_if_over()
            if taken >= len(records):
                for _ in anew.settle():
                    await slices.yield_if_over()
        if arrangement:
            anew.session.timeline.arrange(arrangement)
        # All events have gone into what was shown, too, and nothing of the state is lost there.
        anew.session.take_state(self.session)
        self.show(anew.session, anew.flow)
        return whole
