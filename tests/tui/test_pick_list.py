"""The list to pick from: what was typed narrows it, and the chosen entry is among what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.tui.formatting import cut_middle
from kimi_tui.tui.pick_list import Entry, PickState, _Table  # pyright: ignore[reportPrivateUsage]


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=30),
    st.lists(st.one_of(st.integers(-12, 12), st.text("ab", max_size=2)), max_size=20),
    st.integers(1, 8),
)
def test_the_chosen_entry_matches_and_is_shown(
    names: list[str], doings: list[int | str], rows: int
) -> None:
    state = PickState(tuple(Entry(name) for name in names))
    for doing in doings:
        if isinstance(doing, str):
            state.type(doing)
        else:
            state.move(doing)
        shown = state.window(rows)
        assert len(shown) == min(rows, len(state.matching))
        if state.matching:
            assert state.chosen in state.matching
            assert state.chosen in shown


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (31, ["262k  sees  thinks  $0.60/$2.50", "8k          thinks", "a text"]),
        (30, ["262k  sees  thinks", "8k          thinks", "a text"]),
        (17, ["262k  sees", "8k", "a text"]),
        (3, ["", "", "a text"]),
    ],
)
def test_facts_stand_in_columns_and_go_whole_and_from_the_end(room: int, shown: list[str]) -> None:
    facts = [("262k", "sees", "", "thinks", "$0.60/$2.50"), ("8k", "", "", "thinks", ""), "a text"]
    table = _Table(facts, room)
    assert [table.row(one) for one in facts] == shown


def test_of_a_long_name_beginning_and_end_are_left() -> None:
    assert cut_middle("moonshotai-kimi-k2-thinking-turbo", 21) == "moonshotai…king-turbo"
    assert cut_middle("日本語日本語日本語", 9) == "日本…本語"
    assert cut_middle("short", 5) == "short"
