"""The chat of a replay: the one of the main screen, without the welcome that asks what to do.

Stands on the first picture, so nothing of the engine is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tui.chat.transcript import Transcript

if TYPE_CHECKING:
    from kimi_tui.tui.chat.lines import Line


class PastTranscript(Transcript):
    """A chat that asks nothing while it is empty."""

    def empty_rows(self) -> list[Line]:
        """Nothing."""
        return []
