"""The results of tool calls: `ToolOutcome` with its effects, `ToolProblem` (an error for the model), `ToolRejected` (the user's no)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_tui.tool_cards import DisplayBlock

if TYPE_CHECKING:
    from kimi_tui.images import Image


class ToolProblem(Exception):
    """The tool cannot do what was asked. The text is for the model: what is wrong, and what to do instead.

    The toolset makes an error outcome of it.

    Attributes:
        brief: the same in a few words, for the card.
    """

    def __init__(self, message: str, *, brief: str = "") -> None:
        super().__init__(message)
        self.brief = brief


class ToolRejected(Exception):
    """The user said no. `feedback` is why, empty for a bare no (which ends the turn)."""

    def __init__(self, feedback: str = "") -> None:
        super().__init__(feedback or "The user said no.")
        self.feedback = feedback


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A file was created or changed. Texts are whole; None means the file did not exist."""

    path: str
    before: str | None
    after: str
    unseen: str = ""
    """What changes of the file's bytes though its lines look the same."""


Effect = FileEdit | DisplayBlock
"""A change of a file, whose card shows a diff of it, or what the card shows as it is. A `TodoBlock` is the agent's list from then on."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool gives back.

    Attributes:
        output: for the model, already capped.
        message: one sentence about it, for the model too.
        is_error: whether the tool failed.
        brief: a fact in a few words for the card (`184 lines`).
        effects: what changed, and what else the card shows.
        images: for the model to look at.
    """

    output: str = ""
    message: str = ""
    is_error: bool = False
    brief: str = ""
    effects: tuple[Effect, ...] = ()
    images: tuple[Image, ...] = ()


def failure(message: str, *, brief: str = "") -> ToolOutcome:
    """An error outcome; `message` is for the model: what went wrong, and what to do instead."""
    return ToolOutcome(message=message, is_error=True, brief=brief)
