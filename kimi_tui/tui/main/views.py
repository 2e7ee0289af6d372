"""Hands events to the models of chat, timeline and gauge, which are made when the first of them comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kimi_tui.tui.chat.transcript import Transcript
from kimi_tui.tui.gauge.widget import Gauge
from kimi_tui.tui.timeline.widget import Timeline

if TYPE_CHECKING:
    from kimi_tui.tui.chat.model import ChatModel
    from kimi_tui.tui.gauge.model import GaugeModel
    from kimi_tui.tui.timeline.model import TimelineModel
    from kimi_tui.wire.events import Record


class Views:
    """The three pictures of one session."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._timeline = Timeline()
        self._gauge = Gauge()

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
        for uid in timeline.bookmarks - bookmarks.keys():
            timeline.set_bookmark(uid, "")
        for uid, name in bookmarks.items():
            timeline.set_bookmark(uid, name)
        timeline.set_pins(frozenset(uid for uid, _ in pins))
        self._timeline.changed(motion=False)
        self._transcript.pins = frozenset(uid for uid, number in pins if number == 0)

    def apply(self, records: Sequence[Record], *, live: bool) -> None:
        """Show what happened; what is history moves nothing."""
        self._transcript.apply(records)
        self._take(records, live=live)

    def play(self, records: Sequence[Record], *, live: bool) -> None:
        """Show again what happened once, as if it happened now where `live`."""
        self._transcript.apply(records, live=live)
        self._take(records, live=live)

    def show(self, chat: ChatModel, timeline: TimelineModel, gauge: GaugeModel) -> None:
        """Show these in place of what is shown."""
        self._transcript.show_model(chat)
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
