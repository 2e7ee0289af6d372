"""The titles and subtitles of frames have the signs in use, also where Textual shortens them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.drawn import text_of
from textual.app import App, ComposeResult
from textual.containers import Vertical

from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs


class Framed(App[None]):
    """An app with one frame, whose labels are longer than it is wide."""

    CSS = "Vertical { border: ascii white; width: 24; height: 5; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs

    def compose(self) -> ComposeResult:
        """Yield the frame."""
        frame = Vertical()
        frame.border_title = frame_label(self, "A title [of] 日付 that is long")
        frame.border_subtitle = frame_label(self, "↑↓ scroll  Esc close  more")
        yield frame


def labels(text: str) -> Iterator[str]:
    for row in text.splitlines():
        if row.strip(" |"):
            yield row[:24].strip("+- |")


@pytest.mark.parametrize(
    ("glyphs", "title", "below"),
    [
        (UNICODE, "A title [of] 日付…", "↑↓ scroll  Esc cl…"),
        (ASCII, "A title [of] 日付~", "^v scroll  Esc cl~"),
    ],
)
async def test_a_label_that_is_too_long_ends_with_the_sign_in_use(
    glyphs: Glyphs, title: str, below: str
) -> None:
    app = Framed(glyphs)
    async with app.run_test(size=(40, 8)):
        assert list(labels(text_of(app))) == [title, below]
