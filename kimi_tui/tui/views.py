"""`Views`: chat, timeline and gauge of one session, three models that apply the same events, with their widgets.

Timeline and gauge are imported when first shown, after the first paint.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from kimi_tui.tui.faults import Report, each, report_of

if TYPE_CHECKING:
    from kimi_tui.projection.timeline import TimelineModel
    from kimi_tui.projection.timeline_tree import CheckpointNode
    from kimi_tui.projection.tokens import GaugeModel
    from kimi_tui.projection.transcript import TranscriptModel
    from kimi_tui.tui.state import Prospect
    from kimi_tui.tui.transcript.transcript import Transcript
    from kimi_tui.tui.transcript.viewport import Flow
    from kimi_tui.wire.events import EventRecord

CHUNK = 32
"""Events that are taken in one go where a session is built anew."""
FLOW_SLICE = 300
"""Blocks that are put into their places in one go, in about two milliseconds."""


class Models:
    """The models of chat, timeline and gauge of one session; at first empty.

    `flow` is where the blocks of the chat stand; None, and nothing of that imported, while there are none.
    """

    def __init__(self, transcript: Transcript) -> None:
        from kimi_tui.projection.timeline import TimelineModel
        from kimi_tui.projection.tokens import GaugeModel
        from kimi_tui.projection.transcript import TranscriptModel

        self.chat = TranscriptModel(work_dir=transcript.work_dir)
        self.timeline = TimelineModel()
        self.gauge = GaugeModel()
        self.flow: Flow | None = None
        self._room = transcript.room

    def take(self, records: Sequence[EventRecord], report: Report) -> None:
        """Apply an event to the three models. What one of them cannot take is reported, and the others take it."""
        chat = self.chat
        changed: list[int] = []

        def draw(record: EventRecord) -> None:
            first = chat.apply(record).first
            if first is not None:
                changed.append(first)

        for take in (draw, self.timeline.apply, self.gauge.apply):
            each(records, take, report)
        if changed:
            if self.flow is None:
                from kimi_tui.tui.transcript.viewport import Flow

                self.flow = Flow(self._room())
            # A little each time: at the end it would be a tenth of a second in one go.
            self.flow.update(chat.blocks, min(changed))


class Views:
    """Chat, timeline and gauge of one session, updated together from the same events.

    Args:
        transcript: the chat.
        broken: called with an exception that one of them raises for an event; they should then be rebuilt from the session.

    Attributes:
        timeline: the timeline widget.
        gauge: the gauge widget.
    """

    def __init__(self, transcript: Transcript, broken: Report | None = None) -> None:
        from kimi_tui.tui.gauge import Gauge
        from kimi_tui.tui.timeline.timeline import Timeline

        self._transcript = transcript
        self._broken = broken or report_of(transcript)
        self.timeline = Timeline()
        self.gauge = Gauge()
        self._untold: Models | None = None

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
            self._untold = Models(self._transcript)
        # There is nothing to rebuild it from but this.
        self._untold.take(records, report_of(self._transcript))

    def settle_history(self) -> Generator[None]:
        """Lay out the timeline of the history, in small steps, before `history_told` shows it."""
        if self._untold is not None:
            if arrangement := self.timeline.model.arrangement:
                self._untold.timeline.arrange(arrangement)
            yield from self._untold.timeline.rows.settle()

    def history_told(self) -> None:
        """Show the whole history; the position is kept if its end was being read."""
        self.timeline.reading = ""
        untold, self._untold = self._untold, None
        if untold is None:
            return
        self._transcript.show_whole(untold.chat, untold.flow)
        self.timeline.show_whole(untold.timeline)
        self.gauge.show_model(untold.gauge)

    def glance(self, records: Sequence[EventRecord]) -> None:
        """Show the end of a history until all of it is read."""
        end = Models(self._transcript)
        end.take(records, report_of(self._transcript))
        self.show(end.chat, end.timeline, end.gauge)

    def play(self, records: Sequence[EventRecord], *, live: bool | None = None) -> None:
        """Show what happens.

        Args:
            records: the events.
            live: whether they may move something; None: by their age.
        """
        # One that cannot take something is no reason for the others to stand still.
        try:
            self._transcript.apply(records, live=live)
        except Exception as error:
            self._broken(error)
        for shown in (self.timeline, self.gauge):
            changed = False
            for record in records:
                try:
                    changed |= shown.model.apply(record)
                except Exception as error:
                    self._broken(error)
            if changed:
                shown.changed(motion=live is not False)

    def settle(self, chat: TranscriptModel, timeline: TimelineModel) -> Generator[None, None, Flow]:
        """Make ready in small steps what is to be shown; returns where the blocks of the chat stand."""
        from kimi_tui.tui.transcript.viewport import Flow

        flow = Flow(self._transcript.room())
        for start in range(0, len(chat.blocks), FLOW_SLICE):
            flow.update(chat.blocks[: start + FLOW_SLICE], start)
            yield
        yield from timeline.rows.settle()
        return flow

    def show(
        self,
        chat: TranscriptModel,
        timeline: TimelineModel,
        gauge: GaugeModel,
        flow: Flow | None = None,
    ) -> None:
        """Show these in place of what is shown; with a flow it is known where the chat's blocks stand."""
        self._transcript.show_model(chat, flow)
        self.timeline.show_model(timeline)
        self.gauge.show_model(gauge)

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
        anew = Models(self._transcript)
        arrangement = self.timeline.model.arrangement
        whole = True

        def tell(error: Exception) -> None:
            nonlocal whole
            whole = False
            report(error)

        from kimi_tui.soul.tasks import TimeSlices

        slices, taken = TimeSlices(), 0
        # Nothing is awaited behind the last look at what has happened meanwhile.
        while chunk := records[taken : taken + CHUNK] or since():
            taken += len(chunk)
            anew.take(chunk, tell)
            await slices.yield_if_over()
        if arrangement:
            anew.timeline.arrange(arrangement)
        self.show(anew.chat, anew.timeline, anew.gauge, anew.flow)
        return whole
