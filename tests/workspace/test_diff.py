"""Differences by lines, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.workspace.diff import diff_lines, text_of

TEXTS = st.lists(st.sampled_from(["a", "b", "", "c d"]), max_size=12).map("\n".join)


@given(TEXTS, TEXTS)
def test_the_rows_turn_the_old_text_into_the_new(before: str, after: str) -> None:
    diff = diff_lines(before, after)
    old, new = before.split("\n"), after.split("\n")
    assert sum(row.sign == "+" for row in diff.rows) == diff.added
    assert sum(row.sign == "-" for row in diff.rows) == diff.removed
    assert (diff.added == diff.removed == 0) == (before == after)
    for row in diff.rows:
        side = old if row.sign == "-" else new
        assert row.number > len(side) or side[row.number - 1] == row.text


def test_a_hopeless_comparison_is_given_up() -> None:
    before = "\n".join(f"{number * 7919 % 110}" for number in range(60_000))
    after = "\n".join(f"{number * 104_729 % 110}" for number in range(60_000))
    diff = diff_lines(before, after, 200)
    assert diff.added > 5_000
    assert diff.rows == ()


def test_what_is_no_text_is_said_so() -> None:
    assert text_of(b"\x7fELF\0\0") is None
    assert text_of(b"caf\xe9") == "caf\ufffd"
