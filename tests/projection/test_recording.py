"""When the events of a recording are played, where it stops, and how its clock goes."""

from __future__ import annotations

import pytest
from support.story import until_arrived, whole_story

from kimi_tui.projection.recording import LONGEST_PAUSE_S, PlaybackClock, Recording
from kimi_tui.wire.events import (
    CheckpointCreated,
    Event,
    EventRecord,
    TextPart,
    ThinkPart,
    TurnBegin,
)

STORY = whole_story().records


def records_of(*events: tuple[float, Event]) -> list[EventRecord]:
    return [EventRecord(n, at, event) for n, (at, event) in enumerate(events, 1)]


def test_long_pauses_are_shortened_and_time_never_goes_back() -> None:
    recording = Recording(
        records_of(
            (100.0, TurnBegin("a")),
            (100.5, TextPart("b")),
            (9_000.0, TextPart("c")),
            (50.0, TextPart("d")),
            (51.0, TextPart("e")),
        )
    )
    times = [recording.time_of(position) for position in range(6)]
    assert times == [0.0, 0.0, 0.5, 0.5 + LONGEST_PAUSE_S, 0.5 + LONGEST_PAUSE_S, 3.5]
    assert recording.length_s == 3.5
    assert recording.position_at(0.4) == 1
    assert recording.position_at(2.5) == 4
    assert recording.clock_at(5) == 51.0


def test_a_text_is_played_as_it_was_streamed() -> None:
    words = "It was streamed for six seconds, then nobody was there for an hour. " * 2
    recording = Recording(
        records_of(
            (100.0, TurnBegin("a")),
            (101.0, ThinkPart(words)),
            (107.0, TextPart(words)),
            (4_000.0, TurnBegin("b")),
        )
    )
    assert recording.time_of(2) == pytest.approx(7.0)  # pyright: ignore[reportUnknownMemberType]
    assert recording.streamed_by(1, 1.0) == 0
    assert recording.streamed_by(1, 4.0) == len(words) // 2
    assert recording.streamed_by(1, 7.0) == 0  # It is there as a whole.
    assert recording.position_at(4.0) == 1
    # No model is that slow: what came after the last word was a pause.
    assert recording.time_of(3) == pytest.approx(7.0 + len(words) / 20)  # pyright: ignore[reportUnknownMemberType]
    assert recording.length_s == recording.time_of(3) + LONGEST_PAUSE_S


def test_what_has_no_times_is_played_at_a_pace_of_its_own() -> None:
    records = [EventRecord(r.seq, 0.0, r.event) for r in STORY]
    recording = Recording(records)
    n_steps = sum(isinstance(record.event, CheckpointCreated) for record in records)
    assert n_steps * 0.5 <= recording.length_s <= n_steps * 2
    assert len({recording.time_of(stop) for stop in recording.stops}) > n_steps * 0.9
    assert recording.clock_at(7) == 0.0


def test_what_lies_ahead() -> None:
    recording = Recording(until_arrived().records)
    kinds = [mark.kind for mark in recording.markers]
    assert kinds.count("turn") == 5
    assert [kind for kind in kinds if kind != "turn"] == ["compaction", "rewind", "dmail"]
    dmail = recording.markers[-1]
    assert dmail.from_id == 12
    assert recording.next_cut(dmail.position - 1) == dmail
    assert recording.next_cut(dmail.position) is None
    assert recording.cut_between(0, recording.end) == recording.next_cut(0)


def test_the_clock_waits_at_cuts_and_keeps_its_pace() -> None:
    recording = Recording(until_arrived().records)
    player = PlaybackClock(recording)
    assert player.advance(100.0) == 0  # paused
    player.toggle()
    player.change_speed(9)
    assert player.speed == 16
    reached: list[int] = []
    for _ in range(100_000):
        if not player.is_playing:
            break
        reached.append(player.advance(0.05))
    assert reached == sorted(reached)
    assert reached[-1] == recording.end
    for mark in recording.markers:
        if mark.kind != "turn":
            waits = reached.count(mark.position)
            assert waits >= (20 if mark.kind == "dmail" else 8)
    player.toggle()
    assert player.position == 0
    assert player.is_playing


def test_the_clock_waits_for_nothing_where_nothing_moves() -> None:
    recording = Recording(until_arrived().records)
    player = PlaybackClock(recording, waits=False)
    player.toggle()
    assert player.advance(recording.length_s + 1) == recording.end
    assert not player.is_playing
