"""What an approval tells the screen; apart from the panel, which is imported only when something is asked."""

from __future__ import annotations

from typing import Literal

from textual.message import Message


class ApprovalKeysChanged(Message):
    """The keys of the question do other things now."""


class ApprovalAnswered(Message):
    """The person decided; `feedback` is why not."""

    def __init__(
        self, request_id: str, answer: Literal["once", "session", "no"], feedback: str = ""
    ) -> None:
        super().__init__()
        self.request_id = request_id
        self.answer: Literal["once", "session", "no"] = answer
        self.feedback = feedback
