"""The output of tools is kept compressed, and comes back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.projection.blocks import PackedText


@given(st.text(), st.integers(1, 2_000))
def test_it_comes_back_as_it_was(piece: str, times: int) -> None:
    text = piece * times
    packed = PackedText.of(text)
    assert packed.text == text
    assert packed.line_ends == text.count("\n")
    assert bool(packed) == bool(text)


@pytest.mark.parametrize("text", ["\ud800" * 2_000, "a\r\n\0\x1b" * 900, "x", ""])
def test_what_was_never_text_too(text: str) -> None:
    assert PackedText.of(text).text == text


def test_a_log_takes_less_room() -> None:
    log = "".join(f"2024-03-02 09:14:07 INFO  row {n:04} in 0.8 ms\n" for n in range(400))
    held = PackedText.of(log)._held  # pyright: ignore[reportPrivateUsage]
    assert isinstance(held, bytes)
    assert len(held) * 5 < len(log)
