"""The field of a question that is answered in words. It is imported with the first question."""

from __future__ import annotations

from kimi_tui.tui.prompt.area import PromptArea


class AnswerArea(PromptArea):
    """The field of a question, like that of the prompt, but Enter leaves the text in it until the question is closed."""

    has_chips = False

    def action_send(self) -> None:
        """Hand over what stands here."""
        self.post_message(self.Sent(self.text))
