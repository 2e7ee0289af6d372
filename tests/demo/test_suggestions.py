"""What stands in the demo's prompt follows the person, also back through a rewind."""

from __future__ import annotations

from kimi_tui.demo.suggestions import Suggestions


def test_one_after_the_other() -> None:
    suggestions = Suggestions(["one", "two"])
    assert suggestions.next == "one"
    suggestions.said("one")
    assert suggestions.next == "two"
    suggestions.said("two")
    assert suggestions.next == ""


def test_words_of_ones_own_change_nothing() -> None:
    suggestions = Suggestions(["one", "two"])
    suggestions.said("something else")
    assert suggestions.next == "one"


def test_after_a_rewind_it_goes_on_from_what_is_said_again() -> None:
    suggestions = Suggestions(["one", "two", "three"])
    for text in ("one", "two", "one "):
        suggestions.said(text)
    assert suggestions.next == "two"
