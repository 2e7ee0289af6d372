"""The cards of tools: known by name, given with a call, or read from a record that anyone may have written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.projection.tool_calls import target
from kimi_tui.tool_cards import (
    COMMANDS,
    KNOWN,
    PLAIN,
    Card,
    card_from,
    card_of,
    card_record,
    short_name,
)
from kimi_tui.tools.toolset import default_toolset
from kimi_tui.tools.web.search_web import SearchService, SearchWeb

SHIP = Card("Ship", ("site",), form="to {}")


def test_a_known_tool_has_its_own_card_whatever_a_record_says() -> None:
    assert card_of("Shell", SHIP) is KNOWN["Shell"]
    assert short_name("Shell", SHIP) == "Shell"
    assert card_of("mcp__a__b", SHIP) is SHIP
    assert card_of("mcp__a__b") is PLAIN
    assert {"Shell"} == COMMANDS


def test_the_tools_of_the_program_are_known_by_name() -> None:
    # Records of earlier versions have no card of their tools, so no call of these tools may need one.
    tools = default_toolset()
    # A search service has to be configured.
    tools = tools.with_added([SearchWeb(SearchService("brave", "https://x.example", "key"))])
    assert set(tools.names) >= set(KNOWN)
    assert {tools.card(name) for name in KNOWN} == {None}


def test_tools_have_short_names() -> None:
    assert short_name("StrReplaceFile") == "Edit"
    assert short_name("mcp__files__read") == "files/read"
    assert short_name("a\x1b[2Jb") == "ab"
    assert short_name("") == "tool"


def test_no_card_calls_a_tool_by_the_name_of_another() -> None:
    assert short_name("mcp__a__b", SHIP) == "Ship"
    assert short_name("mcp__a__b", Card("Read")) == "a/b"
    assert short_name("mcp__a__b", Card("Read\n")) == "a/b"
    assert short_name("mcp__a__b", Card("x" * 500)) == "x" * 40


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["short", "keys", "kind", "form", "shows", "text", "does", "other"]),
        json_values,
    ),
    st.text(max_size=200),
)
def test_any_record_makes_a_card_that_can_be_drawn(
    record: dict[str, object], arguments: str
) -> None:
    card = card_from(record)
    assert len(card.keys) <= 8
    assert "{}" in card.form
    for text in (short_name("tool", card), target(card, arguments), card.text):
        assert len(text) <= 1_100
        assert not set(text) & {"\n", "\x1b", "\x9b"}


def test_a_card_is_read_back_as_it_was() -> None:
    cards = (*KNOWN.values(), PLAIN, SHIP)
    assert [card_from(card_record(card)) for card in cards] == [*cards]
    assert card_record(PLAIN) == {}
