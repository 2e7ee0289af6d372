"""What the keys do among the files is said whole at every width."""

from __future__ import annotations

import pytest

from kimi_tui.soul.rewind_values import FilePreview, FilesPreview
from kimi_tui.tui.frame import fit_hints
from kimi_tui.tui.preview.layout import FilesState, file_keys

WIDTHS = {60: 51, 80: 67, 120: 99}
"""Cells inside the frame, by the width of the terminal."""


def keys(width: int, *, chosen: bool) -> str:
    """The row."""
    state = FilesState(FilesPreview((FilePreview("a.py", "restore", "delete"),)))
    if not chosen:
        state.toggle()
    shown = fit_hints(file_keys(state, "↑↓", WIDTHS[width]), WIDTHS[width])
    return "   ".join(f"{key} {meaning}" for key, meaning in shown)


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_key_of_a_file_is_named(width: int, chosen: bool) -> None:
    row = keys(width, chosen=chosen)
    assert "Space leave" in row if chosen else "Space bring back" in row
    assert "diff   Tab on   Esc cancel" in row


def test_the_words_are_as_long_as_there_is_room() -> None:
    whole = "↑↓ choose   Space leave alone   Enter whole diff   Tab on   Esc cancel"
    assert keys(120, chosen=True) == whole
    assert keys(80, chosen=True) == whole.replace("whole ", "")
    assert keys(60, chosen=True) == "Space leave   Enter diff   Tab on   Esc cancel"
