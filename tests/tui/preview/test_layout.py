"""The hints on keys for the files, and the number of lost files, are complete at every width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimi_tui.soul.rewind_values import FilePreview, FilesPreview
from kimi_tui.tui.frame_rows import fit_hints
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.preview.layout import FilesState, _summary_rows, file_keys  # pyright: ignore[reportPrivateUsage]

WIDTHS = {60: 51, 80: 67, 120: 99}
"""Cells inside the frame, by the width of the terminal."""


def keys(width: int, *, chosen: bool) -> str:
    """Return the row."""
    state = FilesState(FilesPreview((FilePreview("a.py", "restore", "delete"),)))
    if not chosen:
        state.toggle()
    shown = fit_hints(file_keys(state, "↑↓", WIDTHS[width]), WIDTHS[width])
    return "   ".join(f"{key} {meaning}" for key, meaning in shown)


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_key_of_a_file_is_named(width: int, chosen: bool) -> None:
    row = keys(width, chosen=chosen)
    assert "Space skip" in row if chosen else "Space restore" in row
    assert "diff   Tab back   Esc cancel" in row


def test_the_words_are_as_long_as_there_is_room() -> None:
    whole = "↑↓ choose   Space skip file   Enter full diff   Tab back   Esc cancel"
    assert keys(120, chosen=True) == whole
    assert keys(80, chosen=True) == whole.replace("full ", "")
    assert keys(60, chosen=True) == "Space skip   Enter diff   Tab back   Esc cancel"


@pytest.mark.parametrize("width", WIDTHS.values())
def test_in_small_frames_it_is_counted_what_cannot_come_back(width: int) -> None:
    lost = [
        FilePreview(name, "skip", reason=why, is_gone=True, is_text=False)
        for name, why in (("big.log", "ignored"), ("huge.bin", "too large"), ("pipe", "no file"))
    ]
    state = FilesState(FilesPreview((FilePreview("a.py", "restore", added=1, removed=5), *lost)))
    (row,) = _summary_rows(state, width, 3, UNICODE)
    text = "".join(span.text for span in row)
    assert text.split() == [
        "4",
        "files",
        "changed,",
        "3",
        "cannot",
        "be",
        "restored",
        "+1",
        "−5",
    ]
    # Files that nobody looked at are counted with them if they cannot be named.
    files = replace(state.files, not_covered=(("np", "not a regular file"),) * 3)
    (row,) = _summary_rows(FilesState(files), width, 1, UNICODE)
    assert "6 cannot be restored  " in "".join(span.text for span in row)
    assert sum(len(span.text) for span in row) <= width
    (row,) = _summary_rows(
        FilesState(FilesPreview(tuple(state.files.files[:1]))), width, 3, UNICODE
    )
    assert "".join(span.text for span in row).split() == [
        "1",
        "file",
        "changed",
        "+1",
        "−5",
    ]


def test_one_file_that_differs_is_one_where_another_one_is_named() -> None:
    foreign = FilePreview("b.py", "conflict", "also changed outside kimi-tui", would="restore")
    other = FilePreview("a.py", "delete", removed=3)
    files = FilesPreview((other, foreign), is_effect=True)
    first, second = _summary_rows(FilesState(files), WIDTHS[60], 3, UNICODE)
    assert "1 file differs" in "".join(span.text for span in first)
    assert "b.py" in "".join(span.text for span in second)
