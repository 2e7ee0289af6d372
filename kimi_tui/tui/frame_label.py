"""`FrameLabel`: the title or subtitle in the border of a frame, in the set of signs in use.

Textual shortens a label that does not fit into its border, and ends it with a sign of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from kimi_tui.tui.formatting import cut
from kimi_tui.tui.glyphs import UNICODE, Glyphs, drawn, glyphs_of

if TYPE_CHECKING:
    from textual.message_pump import MessagePump


class FrameLabel(Content):
    """A text without styles that ends with the sign for what is cut where it does not fit.

    Args:
        text: the text, with the signs of the Unicode set.
        glyphs: the set of signs in use.
    """

    __slots__ = ("_glyphs",)

    def __init__(self, text: str = "", glyphs: Glyphs = UNICODE) -> None:
        super().__init__(drawn(text, glyphs))
        self._glyphs = glyphs

    def truncate(self, max_width: int, *, ellipsis: bool = False, pad: bool = False) -> Content:
        """Shorten to a number of cells, as `Content.truncate`."""
        if ellipsis and self.cell_length > max_width:
            return Content(cut(self.plain, max_width, self._glyphs.cut))
        return super().truncate(max_width, ellipsis=ellipsis, pad=pad)


def frame_label(node: MessagePump, text: str) -> FrameLabel:
    """Return a text as the label of a frame, in the signs of the app that contains a widget."""
    return FrameLabel(text, glyphs_of(node))
