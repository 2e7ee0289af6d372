"""The actions on a summary that is being read."""

from __future__ import annotations

from kimi_tui.soul.token_meter import WindowPart
from kimi_tui.tui.dialogs.text_screen import Summary, figure_rows
from kimi_tui.tui.formatting import window_pairs


def test_only_the_newest_summary_is_edited_and_a_whole_one_is_not_rewound_to() -> None:
    assert [key for key, _, _ in Summary(0, "x").answers] == ["e", "u"]
    assert [key for key, _, _ in Summary(4, "x").answers] == ["e", "u", "r"]
    assert [key for key, _, _ in Summary(4, "x", can_edit=False).answers] == ["r"]


def test_figures_stand_in_columns_and_sentences_are_wrapped() -> None:
    parts = [WindowPart("tools", 4_100, 12), WindowPart("answers", 181, 5), WindowPart("x", 30)]
    figures = [*window_pairs(parts), ("note", "a sentence " * 4)]
    assert [row.text for row in figure_rows("", figures, 40)] == [
        "tools (12)    ~4.1k  95%",
        "answers (5)    ~181   4%",
        "x               ~30  <1%",
        "note          a sentence a sentence a",
        "              sentence a sentence",
    ]
