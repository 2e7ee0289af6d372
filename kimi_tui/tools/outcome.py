"""The results of tool calls: `ToolOutcome` with its effects, `ToolProblem` (an error for the model), `ToolRejected` (the user's no)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_tui.tool_cards import DisplayBlock

if TYPE_CHECKING:
    from kimi_tui.images import Image


class ToolProblem(Exception):
    """The tool cannot do what was asked. The text tells the model what is wrong, and what to do instead.

    The toolset turns the problem into an error outcome.

    Attributes:
        brief: the problem in a few words, for the card.
    """

    def __init__(self, message: str, *, brief: str = "") -> None:
        super().__init__(message)
        self.brief = brief


class ToolRejected(Exception):
    """The user said no. `feedback` is the reason, empty for a bare no (which ends the turn)."""

    def __init__(self, feedback: str = "") -> None:
        super().__init__(feedback or "The user said no.")
        self.feedback = feedback


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A file was created or changed. The texts are those of the whole file; None means that the file did not exist."""

    path: str
    before: str | None
    after: str
    unseen: str = ""
    """The change of the file's bytes if its lines look the same."""


Effect = FileEdit | DisplayBlock
"""A change of a file, whose card shows its diff, or a block that the card shows. A `TodoBlock` becomes the agent's todo list."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a tool call.

    Attributes:
        output: the text for the model, already limited in length.
        message: one sentence about the result, for the model too.
        is_error: whether the tool failed.
        brief: a fact in a few words for the card (`184 lines`).
        effects: the changes, and other parts of the card.
        images: the images for the model.
        check_passed: whether all checks after the edit passed; None if none ran.
    """

    output: str = ""
    message: str = ""
    is_error: bool = False
    brief: str = ""
    effects: tuple[Effect, ...] = ()
    images: tuple[Image, ...] = ()
    check_passed: bool | None = None


def failure(message: str, *, brief: str = "") -> ToolOutcome:
    """Return an error outcome; `message` tells the model what went wrong, and what to do instead."""
    return ToolOutcome(message=message, is_error=True, brief=brief)
