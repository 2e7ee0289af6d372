"""The list to pick from: what was typed narrows it, and the chosen entry is among what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chat_server import ChatServer
from support.screens import desk

from kimi_tui.tui.dialogs.list_screen import ListedItem, ListScreen
from kimi_tui.tui.formatting import cut_middle
from kimi_tui.tui.pick_list import Entry, PickModel, _Table  # pyright: ignore[reportPrivateUsage]


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=30),
    st.lists(st.text("ab", max_size=3), max_size=20),
    st.integers(0, 29),
)
def test_the_chosen_entry_holds_what_was_typed(names: list[str], typed: list[str], at: int) -> None:
    model = PickModel([Entry(name) for name in names])
    chosen = at if at < len(names) else 0
    for needle in typed:
        place = model.type(needle, chosen)
        assert len(model) == sum(model.needle in name for name in names)
        if not names:
            continue
        before, chosen = chosen, model.matching[place]
        if model.needle and model.needle == needle and needle in names:
            assert names[chosen] == needle
        elif model.needle in names[before]:
            assert chosen == before


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


async def test_enter_behind_text_that_no_entry_holds_picks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slash command that is typed into a list that revokes what is chosen must revoke nothing."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    picked: list[str] = []

    async def revoke() -> str:
        picked.append("revoked")
        return "Revoked."

    async def same() -> list[ListedItem]:
        return items

    items = [ListedItem(Entry(name), verb="revoke", act=revoke) for name in ("gradle", "make")]
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        screen = ListScreen("Permissions", same, first=items, empty="")
        one.app.push_screen(screen)
        await one.asked(ListScreen)
        # The last letters are in the name of an entry, and yet belong to the text that is not.
        await one.pilot.press("slash", "m", "a", "k", "e", "enter")
        await one.until(lambda: "No entry has" not in one.text())
        assert not picked
        await one.pilot.press("slash", "m")
        await one.sees("No entry has the typed text; Backspace removes it")
        await one.pilot.press("backspace", "m", "a")
        await one.sees("filter: ma")
        assert "gradle" not in one.text()
        await one.pilot.press("enter")
        await one.sees("Revoked.")
