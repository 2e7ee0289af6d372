"""What a screen may ask of the engine. Everything else it learns by listening to the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from kimi_tui.wire.queue import Wire


@dataclass(frozen=True, slots=True)
class Target:
    """A checkpoint by name: `id` on world line `world_line` (0 = the live line)."""

    id: int
    world_line: int = 0


@dataclass(frozen=True, slots=True)
class GoingMessage:
    """One thing that a rewind takes back, as the preview lists it.

    `kind` says how to draw it, `name` is the tool's name, `text` its target or the words, `tokens` what it cost.
    """

    kind: Literal["user", "agent", "tool", "dmail", "summary"]
    text: str
    name: str = ""
    failed: bool = False
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RewindPreview:
    """What a rewind to `target` would take and give; nothing has happened yet. Tokens are estimates with `estimated`."""

    target: Target
    label: str
    is_user_turn: bool
    steps: int
    turns: int
    messages: int
    tokens_before: int
    tokens_after: int
    estimated: bool
    goes: tuple[GoingMessage, ...]
    prompt: str


@dataclass(frozen=True, slots=True)
class RewindOutcome:
    """A rewind happened. `prompt` goes back into the prompt (empty for a step in the middle of a turn)."""

    checkpoint_id: int
    world_line: int
    messages_dropped: int
    tokens_before: int
    tokens_after: int
    prompt: str


class SoulBusy(Exception):
    """The engine is in the middle of a turn or an operation; the message says what to do."""


class Soul(Protocol):
    """The engine as a screen sees it. Methods are called on the event loop and never block it."""

    @property
    def wire(self) -> Wire:
        """Where its events come from."""
        ...

    @property
    def running(self) -> bool:
        """Whether a turn or an operation is under way."""
        ...

    async def run(self, text: str) -> None:
        """One turn: from the person's words until the agent stops. Errors of the model are events, not exceptions.

        Raises:
            SoulBusy: a turn is already running (use `steer`).
        """
        ...

    async def resume(self) -> None:
        """Go on from where the context stands, without a new message (after an error, a stop or a rewind)."""
        ...

    def steer(self, text: str) -> str:
        """Queue text for the running turn; returns its id."""
        ...

    def withdraw_steer(self, steer_id: str) -> str | None:
        """Take queued text back for editing; None if it has already gone in."""
        ...

    async def interrupt(self) -> None:
        """Stop whatever runs, within a second; what is complete is kept."""
        ...

    def retry_now(self) -> None:
        """End the wait before a retry at once."""
        ...

    def answer(
        self, request_id: str, answer: Literal["once", "session", "no"], feedback: str = ""
    ) -> None:
        """Answer an approval request; unknown or answered ids are passed over."""
        ...

    async def compact(self, instructions: str = "") -> None:
        """Summarise the context now; `instructions` says what to keep."""
        ...

    async def preview(self, target: Target) -> RewindPreview:
        """What a rewind there would do.

        Raises:
            KeyError: no such checkpoint; the text is for the person.
        """
        ...

    async def rewind(self, target: Target) -> RewindOutcome:
        """Cut the conversation back to before the checkpoint. Files stay.

        Raises:
            KeyError: no such checkpoint.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused; nothing changed.
        """
        ...

    async def undo(self) -> str:
        """Reverse the newest operation that is not undone; returns a sentence for the person."""
        ...

    async def redo(self) -> str:
        """Do again what was undone last; returns a sentence for the person."""
        ...

    async def fork(self, target: Target | None = None) -> str:
        """Copy the live line (up to before `target`) into a new session; returns its id."""
        ...

    async def set_mode(self, mode: Literal["ask", "edits", "all"]) -> None:
        """Ask before changes, accept edits in the work folder, or allow everything but what is protected."""
        ...

    async def aclose(self) -> None:
        """Stop, sync and release the session."""
        ...
