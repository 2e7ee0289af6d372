"""Which hints find room in the last row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kimi_tui.tui.compare.screen import HINTS as COMPARE_HINTS
from kimi_tui.tui.frame.footer import fit
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.main.hints import hints
from kimi_tui.tui.state import MainState


@given(st.integers(0, 120))
def test_the_footer_shows_whole_pairs_only(width: int) -> None:
    pairs = hints("prompt", MainState(running=True), {}, UNICODE, 0.0)
    shown = fit(pairs, width)
    assert [pair for pair in shown if pair[0] != "Esc"] == [
        pair for pair in pairs if pair[0] != "Esc"
    ][: sum(pair[0] != "Esc" for pair in shown)]
    assert cell_len("   ".join(f"{key} {meaning}" for key, meaning in shown)) <= width


@pytest.mark.parametrize("width", [9, 20, 56, 76, 116])
def test_the_footer_names_the_way_out_before_anything_else(width: int) -> None:
    pairs = hints("timeline", MainState(), {}, UNICODE, 0.0)
    assert ("Esc", "close") in fit(pairs, width)
    assert fit((("Enter", "send"),), 3) == ()


def test_the_footer_of_a_comparison_has_all_its_keys_in_eighty_cells() -> None:
    assert fit(COMPARE_HINTS, 76) == COMPARE_HINTS
    assert fit(COMPARE_HINTS, 56)[-1] == ("Esc", "back")
