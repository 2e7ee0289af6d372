"""The course of a replay without a screen: any moment is what its events make of it, and the line's geometry."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.story import Teller, until_arrived, whole_story

from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.replay.course import LONGEST_PAUSE_S, Course
from kimi_tui.tui.replay.files import FilesModel
from kimi_tui.tui.replay.line import (
    column_of,
    label_spans,
    line_spans,
    state_spans,
    time_at,
)
from kimi_tui.tui.replay.model import Moment, Replay
from kimi_tui.tui.replay.playing import Player
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
    kept = sum(len(state) for _, state in replay._kept)  # pyright: ignore[reportPrivateUsage]
    assert len(replay._kept) > 20  # pyright: ignore[reportPrivateUsage]
    assert kept < 2_000_000


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
    spent: list[float] = []
    for position in (9_999, 9_001, 5_499, 9_480, 7_000):
        began = time.perf_counter()
        replay.at(position)
        spent.append(time.perf_counter() - began)
    # 25 ms on a quiet machine; all of it applied anew takes ten times that.
    assert sorted(spent)[2] < 0.1


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

    def tell(event: Event) -> None:
        model.apply(Record(1, 0.0, event))

    for number in range(4):
        tell(CheckpointCreated(number, f"u{number}", "step"))
    tell(FilesChanged("u1", ("a", "b")))
    tell(FilesChanged("u3", ("a",)))
    assert [(f.path, f.id, f.is_left) for f in model.files] == [("a", 3, False), ("b", 1, False)]
    tell(ContextReverted("rewind", 2, "u2", 3, 1, 1, 1, 9, 5))
    assert [(f.path, f.id, f.is_left) for f in model.files] == [("a", 3, True), ("b", 1, False)]
    tell(FilesRestored("u2", restored=("a",), deleted=("b",)))
    assert [(f.path, f.is_restored) for f in model.files] == [("a", True)]
    tell(LineChanged("undo", 0, 1, ""))
    tell(FilesChanged("u3", ("a",)))
    assert [(f.path, f.id, f.is_left) for f in model.files] == [("a", 3, False)]


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
