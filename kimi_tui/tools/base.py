"""What a tool is, what it gets and what it gives back.

Tools know nothing of the wire, the session or the soul: the small protocols here are what the soul fills in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel

from kimi_tui.llm.provider import ToolSpec
from kimi_tui.tools.schema import tool_schema

Params = TypeVar("Params", bound=BaseModel)


class ToolRejected(Exception):
    """The person said no. `feedback` is why, empty for a bare no (which ends the turn)."""

    def __init__(self, feedback: str = "") -> None:
        super().__init__(feedback or "The person said no.")
        self.feedback = feedback


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A file was created or changed. Texts are whole; None means the file did not exist."""

    path: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class TodoEntry:
    """One item of the todo list."""

    title: str
    status: Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class TodoChange:
    """The todo list is now this."""

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

    `output` is for the model (already capped), `message` one sentence about it for the model, `brief` a fact in a few
    words for the card (`184 lines`), `effects` what changed.
    """

    output: str = ""
    message: str = ""
    is_error: bool = False
    brief: str = ""
    effects: tuple[Effect, ...] = ()


def failure(message: str, *, brief: str = "") -> ToolOutcome:
    """An outcome that tells the model what went wrong and what to do instead."""
    return ToolOutcome(message=message, is_error=True, brief=brief)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the person before something is changed.

    `action` is one of a few fixed words; `detail` is exactly what will run or where will be written, `where` says in what
    folder and for how long, `edits` are the changes to show as diffs. `session_key` names the group that a
    yes for the session covers (empty: not offered). `protected` asks even where everything is allowed.
    """

    action: Literal[
        "run command",
        "edit file",
        "edit outside",
        "edit protected",
        "read outside",
        "restore files",
        "send D-Mail",
    ]
    question: str
    detail: str
    where: str = ""
    edits: tuple[FileEdit, ...] = ()
    session_key: str = ""
    session_offer: str = ""
    protected: bool = False


class Asker(Protocol):
    """Who answers an `Ask`."""

    async def ask(self, ask: Ask) -> str:
        """Return on yes: empty, or what the person wants run in the place of a command.

        Raises:
            ToolRejected: on no.
        """
        ...


class Mailbox(Protocol):
    """Who takes a D-Mail."""

    def send_dmail(self, message: str, checkpoint_id: int, restore_files: bool = False) -> None:
        """Queue a D-Mail for the end of this step.

        Raises:
            ValueError: the checkpoint does not exist; the text is for the model.
        """
        ...


class FileVersions(Protocol):
    """What the agent knows of the files it read: an edit of a file that changed since is refused until read again."""

    def seen(self, path: Path) -> str | None:
        """The version token under which the agent last saw this file (by reading or writing), or None."""
        ...

    def saw(self, path: Path, version: str) -> None:
        """The agent has now seen this version."""
        ...


@dataclass(frozen=True, slots=True)
class ToolEnv:
    """Everything a running tool may use.

    `emit` takes live output (text, already decoded); `key` names the call; `environ` is the environment the parent has
    (children get an allowlist of it).
    """

    work_dir: Path
    asker: Asker
    mailbox: Mailbox
    versions: FileVersions
    emit: Callable[[str], None]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    key: str = ""
    todos: tuple[TodoEntry, ...] | None = None


class Tool(ABC, Generic[Params]):
    """One tool. Stateless: whatever it needs comes in by `ToolEnv`."""

    name: ClassVar[str]
    changes: ClassVar[bool]
    """True where it may change the world: such tools run one after another, the others at once."""
    params: type[Params]

    @property
    @abstractmethod
    def description(self) -> str:
        """What the model is told, from the `.md` beside the module."""

    @abstractmethod
    async def run(self, params: Params, env: ToolEnv) -> ToolOutcome:
        """Do it.

        Raises:
            ToolRejected: the person said no.
            asyncio.CancelledError: stopped; whatever it started has been ended.
        """

    def spec(self) -> ToolSpec:
        """The tool as the model is told of it."""
        return ToolSpec(self.name, self.description, tool_schema(self.params))
