"""A replay without a screen: any moment is what its events make of it, and so are its files."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import n_calls
from support.story import Teller, moment_at, until_arrived, whole_story

from kimi_tui.projection.replay import (  # pyright: ignore[reportPrivateUsage]
    LONGEST_PAUSE_S,
    PlaybackClock,
    Recording,
    Replay,
    ReplayState,
    _StateUnpickler,
)
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.replay.scrubber import (
    track_spans,
)
from kimi_tui.tui.rows import Span
from kimi_tui.tui.timeline.layout import columns_of
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    FilesChanged,
    FilesRestored,
    LineChanged,
    TextPart,
    ThinkPart,
    TurnBegin,
)

STORY = whole_story().records


def replayed(records: Sequence[EventRecord], keyframe_every: int) -> Replay:
    """Return a replay with keyframes so many records apart."""
    with patch("kimi_tui.projection.replay.KEYFRAME_EVERY", keyframe_every):
        return Replay(records)


def shown(moment: ReplayState) -> str:
    """Return everything that a moment would draw."""
    tree = moment.session.timeline.tree
    rows = moment.session.timeline.rows
    told = repr(
        (
            [repr(block) for block in moment.session.chat.blocks],
            moment.session.chat.streaming,
            [repr(point) for point in tree.live],
            [(n, repr(line)) for n, line in sorted(tree.lines.items())],
            [
                (row.kind, row.order, row.lanes, row.hidden)
                for row in (rows[i] for i in range(len(rows)))
            ],
            moment.session.timeline.used,
            moment.session.timeline.running,
            moment.session.gauge.status,
            moment.session.gauge.freed,
            moment.files.files,
        )
    )
    return re.sub(r" at 0x[0-9a-f]+", "", told)


def failed(error: Exception) -> None:
    """No event of these is beyond a reducer."""
    raise error


def prefix(records: Sequence[EventRecord], position: int) -> ReplayState:
    """Return the moment by its definition."""
    moment = ReplayState(SessionModel())
    moment.apply(records[:position], failed)
    return moment


@st.composite
def recordings(draw: st.DrawFn) -> list[EventRecord]:
    """Sessions of any shape, with all that can happen to a line."""
    teller = Teller()
    for number in range(draw(st.integers(1, 8))):
        teller.turn(f"question {number} " + "long " * draw(st.sampled_from([1, 80])))
        for _ in range(draw(st.integers(0, 4))):
            text = draw(st.sampled_from(["", "An answer. ", "Words. " * 60]))
            teller.step(("ReadFile", {"path": "a.py"}), cost=90, text=text)
            if draw(st.booleans()):
                teller.tell(FilesChanged(teller.line[-1][0], ("a.py", "b.py")))
        what = draw(st.sampled_from(["", "", "dmail", "rewind", "compact", "jump"]))
        target = draw(st.integers(0, len(teller.line) - 1))
        if what == "dmail":
            teller.dmail(target)
        elif what == "rewind":
            teller.end()
            teller.rewind(target)
        elif what == "compact":
            teller.compact()
        elif what == "jump" and teller.stored:
            teller.jump(draw(st.sampled_from(sorted(teller.stored))))
        if what != "rewind":
            teller.end()
    return teller.records


@given(recordings(), st.lists(st.integers(0, 400), min_size=1, max_size=6), st.integers(1, 40))
def test_any_moment_is_its_events_whatever_was_looked_at_before(
    records: list[EventRecord], positions: list[int], keyframe_every: int
) -> None:
    replay = replayed(records, keyframe_every)
    at_the_end = shown(prefix(records, len(records)))
    for wanted in positions:
        position = min(wanted, len(records))
        moment = moment_at(replay, wanted)
        assert moment.position == position
        assert shown(moment) == shown(prefix(records, position))
        # The moment continues from there as if it had come there by itself, and leaves no trace in the kept ones.
        moment.apply(records[position:], failed)
        assert shown(moment) == at_the_end


@given(recordings())
def test_every_checkpoint_has_a_moment_of_its_own(records: list[EventRecord]) -> None:
    recording = Recording(records)
    assert recording.stops[0] == 0
    assert recording.stops[-1] == len(records)
    moment, at = ReplayState(SessionModel()), 0
    for record in records:
        event = record.event
        if not isinstance(event, CheckpointCreated):
            continue
        stop = recording.stop_of(event.uid)
        assert stop is not None
        moment.apply(records[at:stop], failed)
        at = stop
        head = moment.session.timeline.tree.head
        assert head is not None
        assert head.uid == event.uid
    for position in range(len(records)):
        assert recording.step(position, 1) > position
        assert recording.step(position + 1, -1) <= position
        assert recording.turn(position, 1) > position


def test_a_step_is_shown_when_it_is_complete() -> None:
    recording = Recording(STORY)
    moment, at, n_shown = ReplayState(SessionModel()), 0, 0
    for stop in recording.stops[1:-1]:
        moment.apply(STORY[at:stop], failed)
        at = stop
        if moment.session.chat.blocks:
            n_shown += 1
            assert getattr(moment.session.chat.blocks[-1], "state", "") != "running"
    assert n_shown > 20


def test_long_texts_are_kept_once_however_many_states_hold_them() -> None:
    teller = Teller()
    teller.turn("x" * 100_000)
    for _ in range(100):
        teller.step(("ReadFile", {"path": "a"}))
    replay = replayed(teller.records, 20)
    kept = sum(len(state.state) for state in replay._keyframes)  # pyright: ignore[reportPrivateUsage]
    assert len(replay._keyframes) > 20  # pyright: ignore[reportPrivateUsage]
    assert kept < 2_000_000


@pytest.mark.exhaustive
def test_a_kept_state_is_read_in_small_pieces() -> None:
    teller = Teller()
    for _ in range(60):
        teller.turn("Go on.")
        for _ in range(8):
            teller.step(("ReadFile", {"path": "src/a.py"}), cost=30, text="I look at it.")
    replay = Replay(teller.records)
    sizes: list[int] = []
    state, pieces = replay._keyframes[-1].state, replay._keyframes[-1].n_pieces  # pyright: ignore[reportPrivateUsage]
    stream = io.BytesIO(state)
    reader = _StateUnpickler(stream, replay._texts)  # pyright: ignore[reportPrivateUsage]
    for _ in range(pieces):
        before = stream.tell()
        reader.load()
        sizes.append(stream.tell() - before)
    assert len(state) > 200_000
    assert max(sizes) < 60_000
    assert stream.read() == b""


@pytest.mark.exhaustive
def test_going_back_in_a_long_session_is_quick() -> None:
    teller = Teller()
    while len(teller.records) < 6_000:
        teller.turn("Go on.")
        for _ in range(8):
            teller.step(("ReadFile", {"path": "src/a.py"}), cost=30, text="I look at it. " * 10)
        if len(teller.line) % 5 == 0:
            teller.rewind(len(teller.line) - 6)
        else:
            teller.end()
    replay = Replay(teller.records)
    from_the_start = n_calls(lambda: prefix(teller.records, 3_000))
    for position in (5_999, 5_401, 3_299, 5_688, 4_200):
        assert n_calls(lambda: moment_at(replay, position)) < from_the_start / 3  # noqa: B023


def test_the_way_to_a_moment_leaves_room_for_others() -> None:
    slices = replayed(STORY, 10_000).slices(len(STORY) - 1)
    n_stops = 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            moment = end.value
            break
        n_stops += 1
    assert shown(moment) == shown(prefix(STORY, len(STORY) - 1))
    # The building pauses once for each hundred records, and between reading the models.
    assert n_stops > len(STORY) // 100


# --- time


def test_what_lies_ahead_on_the_curve() -> None:
    replay = Replay(STORY)
    recording = replay.recording
    dmail = next(mark for mark in recording.markers if mark.kind == "dmail")
    before = recording.step(dmail.position, -2)
    future = replay.upcoming.after(before, recording.next_cut(before))
    assert future is replay.upcoming.after(before, recording.next_cut(before))
    assert [point.id for point in future.checkpoints][:3] == [12, 8, 9]
    assert future.awaited == future.checkpoints[1].uid
    assert future.checkpoints[-1].tokens_end == replay.used_at_end
    columns = columns_of([], moment_at(replay, before).session.timeline.tree.live, 35, future)
    markers = [column.mark for column in columns if column.mark]
    assert markers == ["compaction", "playhead", "dmail", "end"]
    assert [column.is_ahead for column in columns] == sorted(c.is_ahead for c in columns)
    assert not replay.upcoming.after(recording.end, None).checkpoints


def test_the_curve_has_room_for_what_was_and_what_comes() -> None:
    replay = Replay(STORY)
    for position in replay.recording.stops[::3]:
        tree = moment_at(replay, position).session.timeline.tree
        future = replay.upcoming.after(position, None)
        for width in (1, 2, 7, 35):
            columns = columns_of(tree.before_now(), tree.live, width, future)
            assert len(columns) <= width
            alone = replace(future, peaks=None)
            assert columns == columns_of(tree.before_now(), tree.live, width, alone)
            if width > 1 and tree.live:
                assert [c.mark for c in columns].count("playhead") == 1
                assert any(c.is_ahead for c in columns) == bool(future.checkpoints)


def test_an_empty_session_has_one_moment() -> None:
    replay = Replay([])
    player = PlaybackClock(replay.recording)
    player.toggle()
    assert not player.is_playing
    assert replay.recording.step(0, 1) == replay.recording.turn(0, -1) == 0
    assert moment_at(replay, 7).position == 0
    assert replay.recording.clock_at(0) == 0.0
    assert track_spans(replay.recording, player, 20, UNICODE)[0] == Span("█", "head")


# --- files


def test_files_at_a_moment() -> None:
    state = ReplayState(SessionModel())

    def tell(event: Event) -> list[tuple[str, int, bool]]:
        state.apply([EventRecord(1, 0.0, event)], lambda error: pytest.fail(str(error)))
        return [(f.path, f.id, f.is_left) for f in state.files.files]

    for number in range(4):
        tell(CheckpointCreated(number, f"u{number}", "step"))
    tell(FilesChanged("u1", ("a", "b")))
    tell(FilesChanged("u2", ("c",)))
    changed = tell(FilesChanged("u3", ("a",)))
    assert changed == [("a", 3, False), ("c", 2, False), ("b", 1, False)]
    # Without its files, what the left line wrote is still there.
    tell(ContextReverted("rewind", 2, "u2", 3, 1, 1, 1, 9, 5))
    left = tell(LineChanged("rewind", 1, 0, "u2"))
    assert left == [("a", 3, True), ("c", 2, True), ("b", 1, False)]
    assert tell(FilesRestored("u2", restored=("a",), deleted=("c",))) == [
        ("a", 1, False),
        ("b", 1, False),
    ]
    # An undo tells of the files first and then of the line.
    tell(FilesRestored("u2", restored=("a", "c")))
    undone = tell(LineChanged("undo", 0, 1, ""))
    assert undone == [("c", 2, False), ("a", 3, False), ("b", 1, False)]


def test_files_that_came_back_without_the_conversation() -> None:
    state = ReplayState(SessionModel())

    def tell(event: Event) -> list[tuple[str, int]]:
        state.apply([EventRecord(1, 0.0, event)], lambda error: pytest.fail(str(error)))
        return [(f.path, f.id) for f in state.files.files]

    for number in range(3):
        tell(CheckpointCreated(number, f"u{number}", "step"))
    tell(FilesChanged("u0", ("a",)))
    tell(FilesChanged("u1", ("a", "b")))
    assert tell(FilesRestored("u1", restored=("a",), deleted=("b",))) == [("a", 0)]
    tell(FilesRestored("u1", restored=("a", "b")))
    assert tell(LineChanged("undo", 0, 0, "u1")) == [("b", 1), ("a", 1)]


def test_files_from_before_a_compaction_are_of_the_same_line() -> None:
    state = ReplayState(SessionModel())

    def tell(*events: Event) -> tuple[tuple[str, int, bool, bool], ...]:
        for event in events:
            state.apply([EventRecord(1, 0.0, event)], lambda error: pytest.fail(str(error)))
        return tuple((f.path, f.id, f.is_left, f.is_compacted) for f in state.files.files)

    tell(CheckpointCreated(0, "u0", "user"), FilesChanged("u0", ("a",)))
    compacted = tell(CheckpointCreated(0, "u1", "compaction"), CompactionEnd(9, 1, "", 1))
    assert compacted == (("a", 0, False, True),)
    assert tell(LineChanged("undo", 2, 1, "")) == (("a", 0, False, False),)
    assert tell(LineChanged("redo", 1, 2, "")) == (("a", 0, False, True),)


# --- the line


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
    assert recording.streamed_by(1, 7.0) == 0  # the text is there as a whole
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


def test_a_time_that_only_one_of_two_events_has_gives_no_pause() -> None:
    steps = [CheckpointCreated(n, str(n), "step") for n in range(3)]
    recording = Recording(records_of(*zip((100.0, 0.0, 100.0), steps, strict=True)))
    # Both pauses are those of events without times.
    assert recording.time_of(2) == recording.length_s / 2 > 0


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
