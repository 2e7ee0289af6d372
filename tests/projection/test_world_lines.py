"""The world lines that exist after each operation."""

from __future__ import annotations

from kimi_tui.projection.world_lines import CheckpointName, LineEdit, WorldLines
from kimi_tui.wire.events import (
    CheckpointCreated,
    CheckpointKind,
    CompactionEnd,
    ContextReverted,
    Event,
    LineChanged,
)


class Lines:
    """World lines, and the events that make them."""

    def __init__(self, uids: str = "") -> None:
        self.lines = WorldLines[CheckpointName]()
        for uid in uids:
            self.add(uid)

    def add(self, uid: str, number: int = -1, kind: CheckpointKind = "step") -> None:
        number = len(self.lines.live.points) if number < 0 else number
        self.lines.add(CheckpointCreated(number, uid, kind), CheckpointName(uid, number))

    def tell(self, event: Event) -> LineEdit[CheckpointName] | None:
        return self.lines.apply(event, 0.0)

    def cut(self, number: int, n: int, *, newest: int = 9) -> LineEdit[CheckpointName] | None:
        uid = self.live[number] if number < len(self.live) else ""
        return self.tell(ContextReverted("dmail", number, uid, newest, n, 0, 0, 0, 0))

    @property
    def live(self) -> str:
        return "".join(point.uid for point in self.lines.live.points)

    @property
    def left(self) -> dict[int, str]:
        return {n: "".join(p.uid for p in one.path.points) for n, one in self.lines.left.items()}


def test_what_is_cut_is_a_line_and_comes_back_up_to_any_place() -> None:
    lines = Lines("abcd")
    cut = lines.cut(1, 1)
    assert cut is not None
    assert (cut.kept, [p.uid for p in cut.gone], cut.left) == (1, ["b", "c", "d"], 1)
    lines.add("x")
    back = lines.tell(LineChanged("jump", 2, 1, "d"))
    assert back is not None
    assert back.stop is not None
    assert (back.kept, back.left, back.back, back.stop.uid) == (1, 2, 1, "d")
    assert (lines.live, lines.left) == ("abc", {1: "abcd", 2: "ax"})


def test_the_beginning_of_a_line_that_is_kept_is_no_line_of_its_own() -> None:
    lines = Lines("abcd")
    lines.cut(3, 1)
    # The line that is left now is the beginning of line 1, whether or not it is called that.
    for number in (0, 1):
        cut = lines.cut(2 - number, number)
        assert cut is not None
        assert cut.left == 0
    assert (lines.live, lines.left) == ("a", {1: "abcd"})


def test_a_line_that_was_looked_at_and_left_unchanged_keeps_its_number() -> None:
    lines = Lines("abcd")
    lines.cut(3, 1)
    lines.add("x")
    lines.tell(LineChanged("jump", 2, 1, ""))
    assert (lines.live, lines.left) == ("abcd", {1: "abcd", 2: "abcx"})
    back = lines.tell(LineChanged("jump", 1, 2, ""))
    assert back is not None
    assert back.left == 1
    assert (lines.live, lines.left) == ("abcx", {1: "abcd", 2: "abcx"})


def test_checkpoints_without_uids_are_found_by_their_numbers() -> None:
    lines = Lines()
    for number in (3, 4, 5):
        lines.add("", number)
    assert [lines.lines.find("", number) for number in (2, 3, 4, 5)] == [None, 0, 1, 2]


def test_a_rewind_to_the_beginning_leaves_the_whole_line() -> None:
    lines = Lines("abc")
    event = ContextReverted("rewind", 0, "a", 2, 1, 0, 0, 0, 0)
    cut = lines.tell(event)
    assert cut is not None
    assert (cut.kept, cut.left) == (0, 1)
    assert (lines.live, lines.left) == ("", {1: "abc"})


def test_a_dmail_at_the_end_takes_nothing() -> None:
    lines = Lines("ab")
    assert lines.cut(2, 0, newest=1) is None
    assert (lines.live, lines.lines.is_lost) == ("ab", False)


def test_a_compaction_stands_upon_what_it_replaced_also_when_it_is_done_again() -> None:
    lines = Lines("abc")
    lines.add("S", 0, "compaction")
    lines.tell(CompactionEnd(9, 1, "s", world_line=1))
    lines.add("d")
    for _ in range(2):
        assert ("".join(p.uid for p in lines.lines.before_now()), lines.live) == ("abc", "Sd")
        lines.tell(LineChanged("undo", 2, 1, ""))
        assert (lines.lines.before_now(), lines.live) == ([], "abc")
        lines.tell(LineChanged("redo", 1, 2, ""))
    assert [one.reason for one in lines.lines.left.values()] == ["undo", "compaction"]


def test_what_no_event_told_of_is_lost_and_not_guessed() -> None:
    lines = Lines("ab")
    edit = lines.tell(LineChanged("undo", 1, 7, "b"))
    assert edit is not None
    assert not edit.is_known
    assert (lines.live, lines.lines.is_lost) == ("a", True)
