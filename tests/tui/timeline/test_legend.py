"""The legend: every sign of the timeline and the gauge is in it, in each set of signs, and every number has its unit."""

from __future__ import annotations

import inspect
import re

import pytest

from kimi_tui.tui import gauge
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.tui.timeline import layout
from kimi_tui.tui.timeline.legend import legend

LINES = {"cut", "pending", "edge", "minus", "up", "down", "foot", "corner_bottom"}
"""Signs that mean nothing of their own: marks of a cut, of a selection, in front of a number, and the corners of lines."""


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_every_sign_that_is_drawn_is_explained(glyphs: Glyphs) -> None:
    drawn = set(
        re.findall(r"\bglyphs\.(\w+)", inspect.getsource(layout) + inspect.getsource(gauge))
    )
    signs = "".join(sign for _, pairs in legend(glyphs) for sign, _ in pairs)
    names = (drawn & set(Glyphs._fields)) - LINES
    assert len(names) > 15
    for name in names:
        assert any(sign in signs for sign in getattr(glyphs, name)), name


def test_every_number_has_its_unit() -> None:
    units = re.compile(r"tokens?|steps?|calls?|files?|checkpoint|limit|world line|% full")
    for _, pairs in legend(UNICODE):
        for sign, meaning in pairs:
            if re.search(r"\d", sign):
                assert units.search(meaning), (sign, meaning)


def test_no_row_is_longer_than_a_terminal_of_eighty_columns() -> None:
    widest = max(len(sign) for _, pairs in legend(UNICODE) for sign, _ in pairs)
    assert widest <= 14
    assert all(len(text) <= 74 for _, pairs in legend(UNICODE) for _, text in pairs)
