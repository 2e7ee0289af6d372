"""The course of a replay without a screen: any moment is what its events make of it, and the line's geometry."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import n_calls
from support.story import Teller, until_arrived, whole_story

from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.replay.course import Course
from kimi_tui.tui.replay.files import FilesModel
from kimi_tui.tui.replay.line import (
    column_of,
    label_spans,
    line_spans,
    state_spans,
    time_at,
)
from kimi_tui.tui.replay.model import Moment, Replay, _Reader  # pyright: ignore[reportPrivateUsage]
from kimi_tui.tui.replay.playing import Player
from kimi_tui.tui.replay.times import LONGEST_PAUSE_S
from kimi_tui.tui.timeline.curve import columns_of, past_of
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    FilesChanged,
    FilesRestored,
    LineChanged,
    Record,
    TextPart,
    ThinkPart,
    TurnBegin,
)

STORY = whole_story().records


def shown(moment: Moment) -> str:
    """All that a moment would draw."""
    tree = moment.timeline.tree
    rows = moment.timeline.rows
    told = repr(
        (
            [repr(block) for block in moment.chat.blocks],
            moment.chat.streaming,
            [repr(point) for point in tree.live],
            [(n, repr(line)) for n, line in sorted(tree.lines.items())],
            [
                (row.kind, row.order, row.lanes, row.hidden)
                for row in (rows[i] for i in range(len(rows)))
            ],
            moment.timeline.used,
            moment.timeline.running,
            moment.gauge.usage,
            moment.gauge.freed,
            moment.files.files,
        )
    )
    return re.sub(r" at 0x[0-9a-f]+", "", told)


def prefix(records: Sequence[Record], position: int) -> Moment:
    """The moment by its definition."""
    moment = Moment()
    moment.apply(records[:position])
    return moment


@st.composite
def courses(draw: st.DrawFn) -> list[Record]:
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


@settings(max_examples=40, deadline=None)
@given(courses(), st.lists(st.integers(0, 400), min_size=1, max_size=6), st.integers(1, 40))
def test_any_moment_is_its_events_whatever_was_looked_at_before(
    records: list[Record], positions: list[int], kept_every: int
) -> None:
    replay = Replay(records, kept_every=kept_every)
    for wanted in positions:
        position = min(wanted, len(records))
        moment = replay.at(wanted)
        assert moment.position == position
        assert shown(moment) == shown(prefix(records, position))
        # It goes on from there as if it had come there by itself, and leaves no trace in what is kept.
        moment.apply(records[position:])
        assert shown(moment) == shown(prefix(records, len(records)))


@settings(max_examples=40, deadline=None)
@given(courses())
def test_every_checkpoint_has_a_moment_of_its_own(records: list[Record]) -> None:
    course = Course(records)
    assert course.stops[0] == 0
    assert course.stops[-1] == len(records)
    for record in records:
        event = record.event
        if not isinstance(event, CheckpointCreated):
            continue
        stop = course.stop_of(event.uid)
        assert stop is not None
        head = prefix(records, stop).timeline.head
        assert head is not None
        assert head.uid == event.uid
    for position in range(len(records)):
        assert course.step(position, 1) > position
        assert course.step(position + 1, -1) <= position
        assert course.turn(position, 1) > position


def test_a_step_is_shown_when_it_is_complete() -> None:
    course = Course(STORY)
    texts = [
        prefix(STORY, stop).chat.blocks[-1]
        for stop in course.stops[1:]
        if prefix(STORY, stop).chat.blocks
    ]
    assert not any(getattr(block, "state", "") == "running" for block in texts[:-1])


def test_long_texts_are_kept_once_however_many_states_hold_them() -> None:
    teller = Teller()
    teller.turn("x" * 100_000)
    for _ in range(100):
        teller.step(("ReadFile", {"path": "a"}))
    replay = Replay(teller.records, kept_every=20)
    kept = sum(len(state.state) for state in replay._kept)  # pyright: ignore[reportPrivateUsage]
    assert len(replay._kept) > 20  # pyright: ignore[reportPrivateUsage]
    assert kept < 2_000_000


def test_a_kept_state_is_read_in_small_pieces() -> None:
    teller = Teller()
    for _ in range(60):
        teller.turn("Go on.")
        for _ in range(8):
            teller.step(("ReadFile", {"path": "src/a.py"}), cost=30, text="I look at it.")
    replay = Replay(teller.records)
    sizes: list[int] = []
    state, pieces = replay._kept[-1].state, replay._kept[-1].n_pieces  # pyright: ignore[reportPrivateUsage]
    stream = io.BytesIO(state)
    reader = _Reader(stream, replay._texts)  # pyright: ignore[reportPrivateUsage]
    for _ in range(pieces):
        before = stream.tell()
        reader.load()
        sizes.append(stream.tell() - before)
    assert len(state) > 200_000
    assert max(sizes) < 60_000
    assert stream.read() == b""


def test_going_back_in_a_long_session_is_quick() -> None:
    teller = Teller()
    while len(teller.records) < 10_000:
        teller.turn("Go on.")
        for _ in range(8):
            teller.step(("ReadFile", {"path": "src/a.py"}), cost=30, text="I look at it. " * 10)
        if len(teller.line) % 5 == 0:
            teller.rewind(len(teller.line) - 6)
        else:
            teller.end()
    replay = Replay(teller.records)
    from_the_start = n_calls(lambda: prefix(teller.records, 5_000))
    for position in (9_999, 9_001, 5_499, 9_480, 7_000):
        assert n_calls(lambda: replay.at(position)) < from_the_start / 4  # noqa: B023


async def test_the_way_to_a_moment_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # However quick the machine: every piece of work counts as long enough.
    monkeypatch.setattr("kimi_tui.tui.replay.model.SLICE_S", 0.0)
    replay = Replay(STORY, kept_every=10_000)
    n_others = 0

    async def others() -> None:
        nonlocal n_others
        while True:
            n_others += 1
            await asyncio.sleep(0)

    busy = asyncio.create_task(others())
    moment = await replay.reach(len(STORY) - 1)
    busy.cancel()
    assert shown(moment) == shown(prefix(STORY, len(STORY) - 1))
    # Once for each hundred records, and between reading the models.
    assert n_others > len(STORY) // 100


# --- time


def records_of(*events: tuple[float, Event]) -> list[Record]:
    return [Record(n, at, event) for n, (at, event) in enumerate(events, 1)]


def test_long_pauses_are_shortened_and_time_never_goes_back() -> None:
    course = Course(
        records_of(
            (100.0, TurnBegin("a")),
            (100.5, TextPart("b")),
            (9_000.0, TextPart("c")),
            (50.0, TextPart("d")),
            (51.0, TextPart("e")),
        )
    )
    times = [course.time_of(position) for position in range(6)]
    assert times == [0.0, 0.0, 0.5, 0.5 + LONGEST_PAUSE_S, 0.5 + LONGEST_PAUSE_S, 3.5]
    assert course.length_s == 3.5
    assert course.position_at(0.4) == 1
    assert course.position_at(2.5) == 4
    assert course.clock_at(5) == 51.0


def test_a_text_is_played_as_it_was_streamed() -> None:
    words = "It was streamed for six seconds, then nobody was there for an hour. " * 2
    course = Course(
        records_of(
            (100.0, TurnBegin("a")),
            (101.0, ThinkPart(words)),
            (107.0, TextPart(words)),
            (4_000.0, TurnBegin("b")),
        )
    )
    assert course.time_of(2) == pytest.approx(7.0)  # pyright: ignore[reportUnknownMemberType]
    assert course.said_by(1, 1.0) == 0
    assert course.said_by(1, 4.0) == len(words) // 2
    assert course.said_by(1, 7.0) == 0  # It is there as a whole.
    assert course.position_at(4.0) == 1
    # No model is that slow: what came after the last word was a pause.
    assert course.time_of(3) == pytest.approx(7.0 + len(words) / 20)  # pyright: ignore[reportUnknownMemberType]
    assert course.length_s == course.time_of(3) + LONGEST_PAUSE_S


def test_what_has_no_times_is_played_at_a_pace_of_its_own() -> None:
    records = [Record(r.seq, 0.0, r.event) for r in STORY]
    course = Course(records)
    n_steps = sum(isinstance(record.event, CheckpointCreated) for record in records)
    assert n_steps * 0.5 <= course.length_s <= n_steps * 2
    assert len({course.time_of(stop) for stop in course.stops}) > n_steps * 0.9
    assert course.clock_at(7) == 0.0


def test_what_lies_ahead_on_the_curve() -> None:
    replay = Replay(STORY)
    course = replay.course
    letter = next(mark for mark in course.marks if mark.kind == "dmail")
    before = course.step(letter.position, -2)
    future = replay.ahead.after(before, course.next_fold(before))
    assert future is replay.ahead.after(before, course.next_fold(before))
    assert [point.id for point in future.points][:3] == [12, 8, 9]
    assert future.awaited == future.points[1].uid
    assert future.points[-1].tokens_end == replay.used_at_end
    columns = columns_of([], replay.at(before).timeline.tree.live, 35, future)
    marks = [column.mark for column in columns if column.mark]
    assert marks == ["compaction", "playhead", "dmail", "end"]
    assert [column.is_ahead for column in columns] == sorted(c.is_ahead for c in columns)
    assert not replay.ahead.after(course.end, None).points


@pytest.mark.parametrize("width", [1, 2, 7, 35])
def test_the_curve_has_room_for_what_was_and_what_comes(width: int) -> None:
    replay = Replay(STORY)
    for position in replay.course.stops:
        tree = replay.at(position).timeline.tree
        future = replay.ahead.after(position, None)
        columns = columns_of(past_of(tree), tree.live, width, future)
        assert len(columns) <= width
        if width > 1 and tree.live:
            assert [c.mark for c in columns].count("playhead") == 1
            assert any(c.is_ahead for c in columns) == bool(future.points)


def test_what_lies_ahead() -> None:
    course = Course(until_arrived().records)
    kinds = [mark.kind for mark in course.marks]
    assert kinds.count("turn") == 5
    assert [kind for kind in kinds if kind != "turn"] == ["compaction", "rewind", "dmail"]
    letter = course.marks[-1]
    assert letter.from_id == 12
    assert course.next_fold(letter.position - 1) == letter
    assert course.next_fold(letter.position) is None
    assert course.fold_between(0, course.end) == course.next_fold(0)


def test_the_player_waits_at_folds_and_keeps_its_pace() -> None:
    course = Course(until_arrived().records)
    player = Player(course)
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
    assert reached[-1] == course.end
    for mark in course.marks:
        if mark.kind != "turn":
            waits = reached.count(mark.position)
            assert waits >= (20 if mark.kind == "dmail" else 8)
    player.toggle()
    assert player.position == 0
    assert player.is_playing


def test_the_player_waits_for_nothing_where_nothing_moves() -> None:
    course = Course(until_arrived().records)
    player = Player(course, waits=False)
    player.toggle()
    assert player.advance(course.length_s + 1) == course.end
    assert not player.is_playing


def test_an_empty_session_has_one_moment() -> None:
    replay = Replay([])
    player = Player(replay.course)
    player.toggle()
    assert not player.is_playing
    assert replay.course.step(0, 1) == replay.course.turn(0, -1) == 0
    assert replay.at(7).position == 0
    assert replay.course.clock_at(0) == 0.0
    assert line_spans(replay.course, player, 20, UNICODE)[0] == ("█", "head")


# --- files


def test_files_at_a_moment() -> None:
    model = FilesModel()

    def tell(event: Event) -> list[tuple[str, int, bool]]:
        model.apply(Record(1, 0.0, event))
        return [(f.path, f.id, f.is_left) for f in model.files]

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
    model = FilesModel()

    def tell(event: Event) -> list[tuple[str, int]]:
        model.apply(Record(1, 0.0, event))
        return [(f.path, f.id) for f in model.files]

    for number in range(3):
        tell(CheckpointCreated(number, f"u{number}", "step"))
    tell(FilesChanged("u0", ("a",)))
    tell(FilesChanged("u1", ("a", "b")))
    assert tell(FilesRestored("u1", restored=("a",), deleted=("b",))) == [("a", 0)]
    tell(FilesRestored("u1", restored=("a", "b")))
    assert tell(LineChanged("undo", 0, 0, "u1")) == [("b", 1), ("a", 1)]


def test_files_from_before_a_compaction_are_of_the_same_line() -> None:
    model = FilesModel()

    def tell(*events: Event) -> tuple[tuple[str, int, bool, bool], ...]:
        for event in events:
            model.apply(Record(1, 0.0, event))
        return tuple((f.path, f.id, f.is_left, f.is_compacted) for f in model.files)

    tell(CheckpointCreated(0, "u0", "user"), FilesChanged("u0", ("a",)))
    compacted = tell(CheckpointCreated(0, "u1", "compaction"), CompactionEnd(9, 1, "", 1))
    assert compacted == (("a", 0, False, True),)
    assert tell(LineChanged("undo", 2, 1, "")) == (("a", 0, False, False),)
    assert tell(LineChanged("redo", 1, 2, "")) == (("a", 0, False, True),)


# --- the line


@pytest.mark.parametrize("width", [1, 2, 20, 56, 116])
def test_the_line_fills_its_width_with_the_playhead_where_the_time_is(width: int) -> None:
    course = Course(until_arrived().records)
    player = Player(course)
    for position in (0, *course.stops):
        player.go_to(position)
        line = "".join(text for text, _ in line_spans(course, player, width, UNICODE))
        assert len(line) == width
        assert line[column_of(course, player.time_s, width)] == "█"
        for spans in (
            label_spans(course, player, max(20, width), 12),
            state_spans(course, player, max(40, width), UNICODE),
        ):
            assert len("".join(text for text, _ in spans)) <= max(40, width)
    for column in range(width):
        assert column_of(course, time_at(course, column, width), width) == column or width == 1


@pytest.mark.parametrize("width", [-4, 0])
def test_a_line_without_room_is_empty(width: int) -> None:
    course = Course(until_arrived().records)
    player = Player(course)
    assert line_spans(course, player, width, UNICODE) == []
    label_spans(course, player, width, 12)
    state_spans(course, player, width, UNICODE)


def test_only_the_next_fold_ahead_is_coloured() -> None:
    course = Course(until_arrived().records)
    player = Player(course)
    player.go_to(course.turns[0])
    ahead = line_spans(course, player, 116, UNICODE)
    styles = {style for _, style in ahead[ahead.index(("█", "head")) + 1 :]}
    assert styles == {"ahead", "later", "compaction"}
    compacted = next(
        n for n, record in enumerate(course.records, 1) if isinstance(record.event, CompactionEnd)
    )
    player.go_to(compacted)
    words = "".join(text for text, _ in state_spans(course, player, 116, UNICODE))
    assert "next: rewind" in words
    rewind = course.next_fold(compacted)
    assert rewind is not None
    player.go_to(rewind.position)
    words = "".join(text for text, _ in state_spans(course, player, 116, UNICODE))
    assert "next: D-Mail from #12 in " in words
