"""Hands events to the models of chat, timeline and gauge, which are made when the first of them comes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.gauge.widget import Gauge
from kimi_tui.tui.timeline.widget import Timeline

if TYPE_CHECKING:
    from kimi_tui.tui.chat.flow import Flow
    from kimi_tui.tui.chat.model import ChatModel
    from kimi_tui.tui.gauge.model import GaugeModel
    from kimi_tui.tui.timeline.model import TimelineModel
    from kimi_tui.wire.events import Record

FLOW_SLICE = 300
"""Blocks that are put into their places in one go, in about two milliseconds."""


class Models(NamedTuple):
    """What the three pictures are drawn from."""

    chat: ChatModel
    flow: Flow
    timeline: TimelineModel
    gauge: GaugeModel

    @classmethod
    def new(cls, transcript: Transcript) -> Models:
        """Those of a session in which nothing has happened, to be shown there."""
        from kimi_tui.tui.chat.flow import Flow
        from kimi_tui.tui.chat.model import ChatModel
        from kimi_tui.tui.gauge.model import GaugeModel
        from kimi_tui.tui.timeline.model import TimelineModel

        chat = ChatModel(work_dir=transcript.work_dir)
        return cls(chat, Flow(transcript.room()), TimelineModel(), GaugeModel())

    def take(self, records: Sequence[Record]) -> None:
        """This happened next."""
        chat = self.chat
        changed: list[int] = []
        for record in records:
            first = chat.apply(record).first
            if first is not None:
                changed.append(first)
            self.timeline.apply(record)
            self.gauge.apply(record)
        if changed:
            # A little each time: at the end it would be a tenth of a second in one go.
            self.flow.update(chat.blocks, min(changed))


class Views:
    """The three pictures of one session."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
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

    def apply(self, records: Sequence[Record], *, live: bool) -> None:
        """Show what happened; what is history is shown when all of it is told (`history_told`)."""
        if live:
            self._transcript.apply(records)
            self._take(records, live=True)
            return
        if self._untold is None:
            self._untold = Models.new(self._transcript)
        self._untold.take(records)

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

    def glance(self, records: Sequence[Record]) -> None:
        """Show the end of a history until all of it is told."""
        end = Models.new(self._transcript)
        end.take(records)
        self.show(end.chat, end.timeline, end.gauge)

    def play(self, records: Sequence[Record], *, live: bool) -> None:
        """Show again what happened once, as if it happened now where `live`."""
        self._transcript.apply(records, live=live)
        self._take(records, live=live)

    def settle(self, chat: ChatModel, timeline: TimelineModel) -> Generator[None, None, Flow]:
        """Make ready in small steps what is to be shown; returns where the blocks of the chat stand."""
        from kimi_tui.tui.chat.flow import Flow

        flow = Flow(self._transcript.room())
        for start in range(0, len(chat.blocks), FLOW_SLICE):
            flow.update(chat.blocks[: start + FLOW_SLICE], start)
            yield
        yield from timeline.rows.settle()
        return flow

    def show(
        self,
        chat: ChatModel,
        timeline: TimelineModel,
        gauge: GaugeModel,
        flow: Flow | None = None,
    ) -> None:
        """Show these in place of what is shown; with a flow it is known where the chat's blocks stand."""
        self._transcript.show_model(chat, flow)
        self._timeline.model, self._gauge.model = timeline, gauge

    def _take(self, records: Sequence[Record], *, live: bool) -> None:
        timeline, gauge = self._models()
        timeline_changed = gauge_changed = False
        for record in records:
            timeline_changed |= timeline.apply(record)
            gauge_changed |= gauge.apply(record)
        if timeline_changed:
            self._timeline.changed(motion=live)
        if gauge_changed:
            self._gauge.changed(motion=live)

    def rebuild(self, records: Sequence[Record]) -> None:
        """Show these events in place of what is shown."""
        self._transcript.show_history(records)
        timeline, gauge = self._models()
        timeline.rebuild(records)
        self._timeline.changed(motion=False)
        for record in records:
            gauge.apply(record)
        self._gauge.changed(motion=False)

    def _models(self) -> tuple[TimelineModel, GaugeModel]:
        from kimi_tui.tui.gauge.model import GaugeModel
        from kimi_tui.tui.timeline.model import TimelineModel

        if self._timeline.model is None:
            self._timeline.model = TimelineModel()
        if self._gauge.model is None:
            self._gauge.model = GaugeModel()
        return self._timeline.model, self._gauge.model
