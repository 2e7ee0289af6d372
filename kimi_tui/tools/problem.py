"""The one error with which the inner parts of a tool say what is wrong; the toolset makes an outcome of it."""

from __future__ import annotations


class ToolProblem(Exception):
    """The tool cannot do what was asked. The text tells the model what is wrong and what to do instead.

    Attributes:
        brief: the same in a few words, for the card.
    """

    def __init__(self, message: str, *, brief: str = "") -> None:
        super().__init__(message)
        self.brief = brief
