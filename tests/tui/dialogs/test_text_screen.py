"""What can be done about a summary that is read."""

from __future__ import annotations

from kimi_tui.tui.dialogs.text_screen import Summary


def test_only_the_newest_summary_is_edited_and_a_whole_one_is_not_rewound_to() -> None:
    assert [key for key, _, _ in Summary(0, "x").answers] == ["e", "u"]
    assert [key for key, _, _ in Summary(4, "x").answers] == ["e", "u", "r"]
    assert [key for key, _, _ in Summary(4, "x", can_edit=False).answers] == ["r"]
