"""What stands in the rows of the scrubber."""

from __future__ import annotations

import pytest
from support.story import until_arrived

from kimi_tui.projection.replay import PlaybackClock, Recording
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.replay.scrubber import (
    column_of,
    label_spans,
    state_spans,
    time_at,
    track_spans,
)
from kimi_tui.tui.rows import Span
from kimi_tui.wire.events import CompactionEnd


@pytest.mark.parametrize("width", [1, 2, 20, 56, 116])
def test_the_line_fills_its_width_with_the_playhead_where_the_time_is(width: int) -> None:
    recording = Recording(until_arrived().records)
    player = PlaybackClock(recording)
    for position in (0, *recording.stops):
        player.go_to(position)
        line = "".join(span.text for span in track_spans(recording, player, width, UNICODE))
        assert len(line) == width
        assert line[column_of(recording, player.time_s, width)] == "█"
        for spans in (
            label_spans(recording, player, max(20, width), 12),
            state_spans(recording, player, max(40, width), UNICODE),
        ):
            assert len("".join(span.text for span in spans)) <= max(40, width)
    for column in range(width):
        assert (
            column_of(recording, time_at(recording, column, width), width) == column or width == 1
        )


@pytest.mark.parametrize("width", [-4, 0])
def test_a_line_without_room_is_empty(width: int) -> None:
    recording = Recording(until_arrived().records)
    player = PlaybackClock(recording)
    assert track_spans(recording, player, width, UNICODE) == []
    label_spans(recording, player, width, 12)
    state_spans(recording, player, width, UNICODE)


def test_only_the_next_cut_ahead_is_coloured() -> None:
    recording = Recording(until_arrived().records)
    player = PlaybackClock(recording)
    player.go_to(recording.turns[0])
    ahead = track_spans(recording, player, 116, UNICODE)
    styles = {span.style for span in ahead[ahead.index(Span("█", "head")) + 1 :]}
    assert styles == {"ahead", "later", "compaction"}
    compacted = next(
        n
        for n, record in enumerate(recording.records, 1)
        if isinstance(record.event, CompactionEnd)
    )
    player.go_to(compacted)
    words = "".join(span.text for span in state_spans(recording, player, 116, UNICODE))
    assert "next: rewind" in words
    rewind = recording.next_cut(compacted)
    assert rewind is not None
    player.go_to(rewind.position)
    words = "".join(span.text for span in state_spans(recording, player, 116, UNICODE))
    assert "next: D-Mail from #12 in " in words
