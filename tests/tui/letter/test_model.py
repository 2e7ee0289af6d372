"""The editor over the page: when Enter does something, what a draft does to what was written, and the keys."""

from __future__ import annotations

from kimi_tui.tui.letter.model import Letter, can_send, keys, with_draft
from kimi_tui.tui.letter.screen import AROUND
from kimi_tui.tui.letter.summary import Summary
from kimi_tui.tui.main.footer import fit

LETTER = Letter("D-Mail", "What?", "It goes back.")


def test_an_empty_letter_goes_only_where_it_may() -> None:
    assert not can_send(LETTER, "  \n")
    assert can_send(LETTER, "x")
    assert can_send(LETTER._replace(may_be_empty=True), "")


def test_a_draft_never_replaces_what_was_written() -> None:
    assert with_draft("", "draft\n") == "draft"
    assert with_draft(" mine ", "draft") == "mine\n\ndraft"
    assert with_draft("mine", "") == "mine"


def test_the_keys() -> None:
    assert keys(LETTER, can_draft=False, drafting=False)[0] == ("Enter", "send")
    # In a frame of 60 columns the model's draft is told of, and the way out.
    able = keys(LETTER, can_draft=True, drafting=False)
    assert [key for key, _ in fit(able, 60 * 96 // 100 - AROUND)] == ["Enter", "Ctrl+L", "Esc"]
    assert keys(LETTER, can_draft=True, drafting=True) == (("Esc", "stop the draft"),)


def test_only_the_newest_summary_is_edited_and_a_whole_one_is_not_rewound_to() -> None:
    assert [key for key, _, _ in Summary(0, "x").answers] == ["e", "u"]
    assert [key for key, _, _ in Summary(4, "x").answers] == ["e", "u", "r"]
    assert [key for key, _, _ in Summary(4, "x", can_edit=False).answers] == ["r"]
