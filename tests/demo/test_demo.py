"""The suggestion in the demo's prompt follows the user, also back through a rewind and past a stop."""

from __future__ import annotations

from kimi_tui.demo import Suggestions


def told(suggestions: Suggestions, *texts: str) -> None:
    """Turns that were done."""
    for text in texts:
        suggestions.said(text)
        suggestions.ended(is_done=True)


def test_one_after_the_other() -> None:
    suggestions = Suggestions(["one", "two"])
    assert suggestions.next == "one"
    told(suggestions, "one")
    assert suggestions.next == "two"
    told(suggestions, "two")
    assert suggestions.next == ""


def test_words_of_ones_own_change_nothing() -> None:
    suggestions = Suggestions(["one", "two"])
    told(suggestions, "something else")
    assert suggestions.next == "one"


def test_after_a_rewind_it_goes_on_from_what_is_said_again() -> None:
    suggestions = Suggestions(["one", "two", "three"])
    told(suggestions, "one", "two", "one ")
    assert suggestions.next == "two"


def test_what_was_refused_or_stopped_is_offered_again() -> None:
    suggestions = Suggestions(["one", "two"])
    suggestions.said("one")
    suggestions.ended(is_done=False)
    assert suggestions.next == "one"
    told(suggestions, "something else")
    assert suggestions.next == "one"
    told(suggestions, "one")
    assert suggestions.next == "two"


def test_a_stopped_turn_that_goes_on_is_done_in_the_end() -> None:
    suggestions = Suggestions(["one", "two"])
    suggestions.said("one")
    suggestions.ended(is_done=False)
    suggestions.ended(is_done=True)
    assert suggestions.next == "two"


def test_steering_is_no_other_message() -> None:
    suggestions = Suggestions(["one", "two"])
    suggestions.said("one")
    suggestions.said("and quickly")
    suggestions.ended(is_done=True)
    assert suggestions.next == "two"
