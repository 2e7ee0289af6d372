"""The field in which letters, reasons and names are written: the prompt's, but for what Enter leaves behind."""

from __future__ import annotations

from kimi_tui.tui.prompt.area import PromptArea


class LetterArea(PromptArea):
    """Where the person writes; Enter hands over, and what is written stays until it was taken."""

    def action_send(self) -> None:
        """Hand over what stands here."""
        self.post_message(self.Sent(self.text))
