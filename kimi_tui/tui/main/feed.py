"""From the wire's events to chat, timeline and gauge: at most sixty times a second, in slices that never hold up a key.

`Feed` listens and cuts the slices, `Views` hands them to the three models. Timeline and gauge are imported when they are
first shown, after the first paint.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.tui.callbacks import Callbacks, Report, each, report_of

if TYPE_CHECKING:
    import asyncio

    from kimi_tui.projection.gauge import GaugeModel
    from kimi_tui.projection.timeline import TimelineModel
    from kimi_tui.projection.timeline_tree import Checkpoint
    from kimi_tui.projection.transcript import TranscriptModel
    from kimi_tui.tui.gauge import Gauge
    from kimi_tui.tui.timeline.timeline import Timeline
    from kimi_tui.tui.transcript.transcript import Transcript
    from kimi_tui.tui.transcript.viewport import Flow
    from kimi_tui.wire.events import EventRecord
    from kimi_tui.wire.queue import Subscription, Wire

FRAME_S = 1 / 60
SLICE_S = 0.004
HISTORY_SLICE_S = 0.0015
"""Of a long history; a key takes several turns of the loop, and each of them waits for a slice."""
CHUNK = 32
STEPS = 64
"""Of what is made ready at the end of a history, between two looks at the clock."""


def _raise(error: Exception) -> None:
    raise error


class Feed:
    """Listens to one wire. The first event after a pause is shown at once, what follows once a frame.

    Args:
        show: takes the records of a slice; called on the event loop.
        caught_up: called once, when the history has been shown.
        settle: gives what remains to be done before that, in small steps.
        report: told what one of these raises; the feed goes on.
    """

    def __init__(
        self,
        show: Callable[[Sequence[EventRecord]], None],
        caught_up: Callable[[], None],
        settle: Callable[[], Iterator[None]] = lambda: iter(()),
        report: Report = _raise,
    ) -> None:
        self._show = show
        self._caught_up = caught_up
        self._settle = settle
        self._report = report
        self._callbacks = Callbacks(report)
        self._settling: Iterator[None] | None = None
        self._wire: Wire | None = None
        self._subscription: Subscription | None = None
        self._waiting: deque[EventRecord] = deque()
        self._history_left = 0
        self._in_history = False
        self._drawn_at = 0.0
        self._handle: asyncio.Handle | None = None

    def follow(self, wire: Wire, history: Sequence[EventRecord]) -> None:
        """Show `history`, then what the wire tells from now on."""
        self.stop()
        self._wire = wire
        self._in_history = True
        self._history_left = len(history)
        # Not through the wire's queue, which would take a long history in one go.
        self._waiting.extend(history)
        self._subscription = wire.subscribe(wake=self._wake)
        # The wire wakes only for what it tells itself; the history, or that there is none, is up to us.
        self._schedule(0.0)

    def stop(self) -> None:
        """Listen no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._wire is not None and self._subscription is not None:
            self._wire.unsubscribe(self._subscription)
        self._wire = self._subscription = self._settling = None
        self._waiting.clear()

    def _wake(self) -> None:
        self._schedule(max(0.0, self._drawn_at + FRAME_S - time.monotonic()))

    def _schedule(self, delay_s: float) -> None:
        if self._handle is None:
            self._handle = self._callbacks.call_later(delay_s, self._draw)

    def _draw(self) -> None:
        self._handle = None
        if self._subscription is None:
            return
        self._waiting += self._subscription.drain()
        until = time.monotonic() + (HISTORY_SLICE_S if self._in_history else SLICE_S)
        while time.monotonic() < until and (chunk := self._chunk()):
            self._attempt(partial(self._show, chunk))
        if self._in_history and not self._history_left:
            self._catch_up(until)
        self._drawn_at = time.monotonic()
        if self._waiting or self._settling is not None:
            self._schedule(0.0)

    def _catch_up(self, until: float) -> None:
        """What remains to be done before the history is through; where that fails, it is through all the same."""
        try:
            self._settling = self._settling or self._settle()
            if not _at_end(self._settling, until):
                return
        except Exception as error:
            self._report(error)
        self._in_history, self._settling = False, None
        self._attempt(self._caught_up)

    def _attempt(self, work: Callable[[], None]) -> None:
        """What follows comes also behind something that cannot be shown."""
        try:
            work()
        except Exception as error:
            self._report(error)

    def _chunk(self) -> list[EventRecord]:
        """What is shown next, in one go. What happens now is told apart from the history: that left nothing open."""
        count = min(CHUNK, len(self._waiting))
        if self._in_history:
            count = min(count, self._history_left)
            self._history_left -= count
        return [self._waiting.popleft() for _ in range(count)]


def _at_end(steps: Iterator[None], until: float) -> bool:
    """Take steps until that time; whether there are no more."""
    while sum(1 for _ in islice(steps, STEPS)) == STEPS:
        if time.monotonic() >= until:
            return False
    return True


FLOW_SLICE = 300
"""Blocks that are put into their places in one go, in about two milliseconds."""


class Models(NamedTuple):
    """What the three pictures are drawn from."""

    chat: TranscriptModel
    flow: Flow
    timeline: TimelineModel
    gauge: GaugeModel

    @classmethod
    def new(cls, transcript: Transcript) -> Models:
        """Those of a session in which nothing has happened, to be shown there."""
        from kimi_tui.projection.gauge import GaugeModel
        from kimi_tui.projection.timeline import TimelineModel
        from kimi_tui.projection.transcript import TranscriptModel
        from kimi_tui.tui.transcript.viewport import Flow

        chat = TranscriptModel(work_dir=transcript.work_dir)
        return cls(chat, Flow(transcript.room()), TimelineModel(), GaugeModel())

    def take(self, records: Sequence[EventRecord], report: Report) -> None:
        """This happened next. What one of the three cannot take is reported, and the others take it."""
        chat = self.chat
        changed: list[int] = []

        def draw(record: EventRecord) -> None:
            first = chat.apply(record).first
            if first is not None:
                changed.append(first)

        for take in (draw, self.timeline.apply, self.gauge.apply):
            each(records, take, report)
        if changed:
            # A little each time: at the end it would be a tenth of a second in one go.
            self.flow.update(chat.blocks, min(changed))


class Views:
    """The three pictures of one session.

    Args:
        transcript: the chat.
        broken: told what one of them cannot take; they should then be rebuilt from the record.
    """

    def __init__(self, transcript: Transcript, broken: Report | None = None) -> None:
        from kimi_tui.tui.gauge import Gauge
        from kimi_tui.tui.timeline.timeline import Timeline

        self._transcript = transcript
        self._broken = broken or report_of(transcript)
        self._timeline = Timeline()
        self._gauge = Gauge()
        self._untold: Models | None = None

    @property
    def timeline(self) -> Timeline:
        """The line of checkpoints."""
        return self._timeline

    @property
    def gauge(self) -> Gauge:
        """How full the window is."""
        return self._gauge

    def fit(self, timeline_width: int) -> None:
        """The timeline stands beside the chat in this width, or (0) floats over it."""
        self._timeline.overlay = timeline_width == 0
        self._gauge.timeline_width = timeline_width

    def live_point(self, checkpoint_id: int) -> Checkpoint | None:
        """A checkpoint of the live line, as the timeline knows it; None where there is none."""
        live = self._timeline.model.tree.live if self._timeline.model is not None else ()
        return next((point for point in live if point.id == checkpoint_id), None)

    def mark(self, bookmarks: Mapping[str, str], pins: frozenset[tuple[str, int]]) -> None:
        """Show which checkpoints bear names, and where messages are pinned."""
        timeline, _ = self._models()
        for uid in timeline.bookmarks.keys() - bookmarks.keys():
            timeline.set_bookmark(uid, "")
        for uid, name in bookmarks.items():
            timeline.set_bookmark(uid, name)
        timeline.set_pins(frozenset(uid for uid, _ in pins))
        self._timeline.changed(motion=False)
        self._transcript.pins = pins

    def apply(self, records: Sequence[EventRecord], *, live: bool) -> None:
        """Show what happened; what is history is shown when all of it is told (`history_told`)."""
        if live:
            each((records,), self._transcript.apply, self._broken)
            self._take(records, live=True)
            return
        if self._untold is None:
            self._untold = Models.new(self._transcript)
        # There is nothing to rebuild it from but this.
        self._untold.take(records, report_of(self._transcript))

    def settle_history(self) -> Iterator[None]:
        """Make ready what the history tells, in small steps."""
        if self._untold is not None:
            if (shown := self._timeline.model) is not None and shown.arrangement:
                self._untold.timeline.arrange(shown.arrangement)
            yield from self._untold.timeline.rows.settle()

    def history_told(self) -> None:
        """Show what the history tells; whoever was reading its end goes on doing so."""
        untold, self._untold = self._untold, None
        if untold is None:
            return
        self._transcript.show_whole(untold.chat, untold.flow)
        self._timeline.show_whole(untold.timeline)
        self._gauge.model = untold.gauge

    def glance(self, records: Sequence[EventRecord]) -> None:
        """Show the end of a history until all of it is told."""
        end = Models.new(self._transcript)
        end.take(records, report_of(self._transcript))
        self.show(end.chat, end.timeline, end.gauge)

    def play(self, records: Sequence[EventRecord], *, live: bool) -> None:
        """Show again what happened once, as if it happened now where `live`."""
        self._transcript.apply(records, live=live)
        self._take(records, live=live)

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
        self._timeline.model, self._gauge.model = timeline, gauge

    def _take(self, records: Sequence[EventRecord], *, live: bool) -> None:
        timeline, gauge = self._models()
        changed = [False, False]

        def take_timeline(record: EventRecord) -> None:
            changed[0] |= timeline.apply(record)

        def take_gauge(record: EventRecord) -> None:
            changed[1] |= gauge.apply(record)

        # One that cannot take something is no reason for the other to stand still.
        each(records, take_timeline, self._broken)
        each(records, take_gauge, self._broken)
        if changed[0]:
            self._timeline.changed(motion=live)
        if changed[1]:
            self._gauge.changed(motion=live)

    async def rebuild(
        self,
        records: Sequence[EventRecord],
        since: Callable[[], Sequence[EventRecord]],
        report: Report | None = None,
    ) -> bool:
        """Show these events in place of what is shown, without those that cannot be shown; whether all of them can.

        What is shown stays until all of them are taken, a few milliseconds at a time.

        Args:
            records: what happened, in order.
            since: takes what has happened behind them, and is empty when nothing more has.
            report: told what cannot be shown.
        """
        report = report or report_of(self._transcript)
        anew = Models.new(self._transcript)
        arrangement = self._timeline.model.arrangement if self._timeline.model is not None else None
        whole = True

        def tell(error: Exception) -> None:
            nonlocal whole
            whole = False
            report(error)

        from kimi_tui.soul.tasks import Pace

        pace, taken = Pace(), 0
        # Nothing is awaited behind the last look at what has happened meanwhile.
        while chunk := records[taken : taken + CHUNK] or since():
            taken += len(chunk)
            anew.take(chunk, tell)
            await pace.rest()
        if arrangement is not None:
            anew.timeline.arrange(arrangement)
        is_same_room = anew.flow.room == self._transcript.room()
        self.show(anew.chat, anew.timeline, anew.gauge, anew.flow if is_same_room else None)
        return whole

    def _models(self) -> tuple[TimelineModel, GaugeModel]:
        from kimi_tui.projection.gauge import GaugeModel
        from kimi_tui.projection.timeline import TimelineModel

        if self._timeline.model is None:
            self._timeline.model = TimelineModel()
        if self._gauge.model is None:
            self._gauge.model = GaugeModel()
        return self._timeline.model, self._gauge.model
