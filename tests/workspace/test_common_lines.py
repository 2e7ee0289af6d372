"""Lines that two texts have in common, with bounds so narrow that small texts reach each way in which they are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.workspace import common_lines as module
from kimi_tui.workspace.common_lines import EqualLines, common_lines, count_lines, split_lines

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "ab\n", "\n"]), max_size=25)
BOUNDS = st.fixed_dictionaries(
    {
        "_WINDOW_LINES": st.sampled_from([1, 2, 3]),
        "_NEAR_LINES": st.sampled_from([1, 3, 8]),
        "_NEAR_CHARS": st.sampled_from([0, 4, 16]),
        "_MOST_PAIRS": st.sampled_from([0, 1, 12]),
    }
)


@given(LINES, LINES, LINES, st.sampled_from(["", "end"]), BOUNDS)
def test_they_are_equal_in_order_and_each_is_one_of_a_pair(
    first: list[str], second: list[str], third: list[str], end: str, bounds: dict[str, int]
) -> None:
    old = [*first, *second, *filter(None, [end])]
    new = [*third, *second, *first[:4], *filter(None, [end])]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bounds.items():
            patch.setattr(module, name, value)
        runs = [*common_lines("".join(old), "".join(new))]
        assert runs == [*common_lines("".join(old), "".join(new), len(old))]
    assert runs[-1] == (len(old), len(new), 0)
    end_old = end_new = 0
    for run in runs:
        assert run.old >= end_old
        assert run.new >= end_new
        assert len(old[run.old : run.old + run.n]) == run.n >= 0
        assert old[run.old : run.old + run.n] == new[run.new : run.new + run.n]
        end_old, end_new = run.old + run.n, run.new + run.n


def numbered(*parts: range | str) -> str:
    return "".join(
        part if isinstance(part, str) else "".join(f"line {n}\n" for n in part) for part in parts
    )


def test_only_the_lines_around_a_change_are_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split: list[int] = []

    def counted(text: str) -> list[str]:
        lines = split_lines(text)
        split.append(len(lines))
        return lines

    monkeypatch.setattr(module, "split_lines", counted)
    old = numbered(range(9_000))
    changes = ("one\n", "two\n" * 5, "")
    new = numbered(
        *(range(10), changes[0], range(12, 4_000), changes[1]),
        *(range(4_000, 8_000), changes[2], range(8_003, 8_990), "last\n", range(8_990, 9_000)),
    )
    runs = [run for run in common_lines(old, new) if run.n]
    assert sum(run.n for run in runs) == 9_000 - 2 - 3
    assert sum(split) == (2 + 1) + 5 + 3
    # The place may be behind hundreds of new lines, and behind long ones.
    for added in ("new\n" * 300, "x" * 3_000 + "\n" + "y" * 9_000 + "\n"):
        split.clear()
        new = numbered(range(4_000), added, range(4_000, 9_000), "last\n")
        assert sum(run.n for run in common_lines(old, new)) == 9_000
        assert sum(split) <= added.count("\n") + 1


def test_lines_that_stand_once_pull_their_equal_neighbours_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_PAIRS", 0)
    monkeypatch.setattr(module, "_NEAR_LINES", 0)
    monkeypatch.setattr(module, "_NEAR_CHARS", -1)
    # `same` stands more than once on each side, so that it counts only beside a line that stands once.
    old = ["x\n", "same\n", "same\n", "once\n", "same\n", "y\n", "same\n", "z\n"]
    new = ["same\n", "p\n", "same\n", "same\n", "once\n", "same\n", "q\n", "same\n", "r\n"]
    runs = [run for run in common_lines("".join(old), "".join(new)) if run.n]
    assert runs == [EqualLines(1, 2, 4)]


def test_lines_of_texts_with_and_without_an_end() -> None:
    for text, lines in (("", []), ("a", ["a"]), ("a\n", ["a\n"]), ("\n\nb", ["\n", "\n", "b"])):
        assert split_lines(text) == lines
        assert count_lines(text, 0) == len(lines)
    assert count_lines("a\nb\nc", 2) == 2
    assert count_lines("a\n", 2) == 0
