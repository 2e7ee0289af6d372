"""The results of tool calls: `ToolOutcome` with its effects, `ToolProblem` (an error for the model), `ToolRejected` (the user's no)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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


@dataclass(frozen=True, slots=True)
class TodoEntry:
    """One item of the todo list."""

    title: str
    status: Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class TodoChange:
    """The tool replaced the todo list."""

    items: tuple[TodoEntry, ...]


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command ended; `exit_code` is None where it was stopped."""

    command: str
    exit_code: int | None
    duration_s: float


Effect = FileEdit | TodoChange | CommandRun


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool gives back.

    Attributes:
        output: for the model, already capped.
        message: one sentence about it, for the model too.
        is_error: whether the tool failed.
        brief: a fact in a few words for the card (`184 lines`).
        effects: what changed.
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
