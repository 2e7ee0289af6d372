"""What a screen may ask of the engine. Everything else it learns by listening to the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from kimi_tui.soul.travel_protocol import TimeTravel

if TYPE_CHECKING:
    from collections.abc import Collection

    from kimi_tui.soul.money import Cost
    from kimi_tui.soul.statistics import Statistics
    from kimi_tui.soul.work_folder import FolderFacts
    from kimi_tui.wire.display import DiffLine
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


FileFate = Literal["restore", "create", "delete", "conflict", "skip"]
"""What bringing the files back does to one: it gets its old contents, is there again, goes, or is left alone: as a
`conflict` because someone else changed it too, as a `skip` because no snapshot holds it."""

FilesChoice = Literal["keep", "restore", "only"]
"""Whether a rewind leaves the files alone, brings them back too, or leaves the conversation alone instead."""


@dataclass(frozen=True, slots=True)
class FilePreview:
    """A file that changed since a checkpoint.

    `would` is what becomes of a conflict that is chosen. `added`, `removed` and `rows` are the change since then, which
    bringing it back takes away; `is_text` is false where there are none to show. `rows` may be cut. `only_rights` is true
    where the contents are the same, and only who may read or run it changed.
    """

    path: str
    fate: FileFate
    reason: str = ""
    would: FileFate = "skip"
    added: int = 0
    removed: int = 0
    rows: tuple[DiffLine, ...] = ()
    is_text: bool = True
    is_new: bool = False
    is_gone: bool = False
    only_rights: bool = False


@dataclass(frozen=True, slots=True)
class FilesPreview:
    """The files that changed since a checkpoint, and what bringing them back would do.

    `reason` says why nothing can be brought back, empty where it can. `not_covered` are paths in which nobody looked,
    `remarks` further sentences; `ran_commands` is true where commands ran since, whose effects elsewhere stay.
    """

    files: tuple[FilePreview, ...] = ()
    not_covered: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""
    ran_commands: bool = False

    @property
    def restorable(self) -> tuple[FilePreview, ...]:
        """What is brought back without asking further."""
        return tuple(one for one in self.files if one.fate in ("restore", "create", "delete"))

    @property
    def conflicts(self) -> tuple[FilePreview, ...]:
        """What someone else changed too."""
        return tuple(one for one in self.files if one.fate == "conflict")


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of a file; `reason` is why it was left alone."""

    path: str
    fate: FileFate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RewindPreview:
    """What a rewind to `target` would take and give; nothing has happened yet. Tokens are estimates with `estimated`.

    `cost` is what the calls that go have cost; None where no prices are set.
    """

    target: Target
    label: str
    steps: int
    turns: int
    messages: int
    tokens_before: int
    tokens_after: int
    estimated: bool
    goes: tuple[GoingMessage, ...]
    prompt: str
    files: FilesPreview | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class RewindOutcome:
    """A rewind happened. `prompt` goes back into the prompt (empty for a step in the middle of a turn).

    `is_open` says whether the line ends in the middle of something, so that the agent could go on from there.
    """

    checkpoint_id: int
    world_line: int
    messages_dropped: int
    tokens_before: int
    tokens_after: int
    prompt: str
    files: tuple[FileOutcome, ...] = ()
    is_open: bool = False


class SoulBusy(Exception):
    """The engine is in the middle of a turn or an operation; the message says what to do."""


class Soul(TimeTravel, Protocol):
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

    async def compact(
        self,
        instructions: str = "",
        *,
        start: Target | None = None,
        until: Target | None = None,
    ) -> None:
        """Summarise the context now, or exactly the part from before `start` to before `until`. Undo brings it back.

        The whole is told as `CompactionBegin`, `CheckpointCreated` #0, `CompactionEnd`, `LineChanged`. A part from `start`
        on is cut first: `ContextReverted` with the reason `compaction` stands before the summary's checkpoint, which has
        the id of `start` and the kind "summary"; what is before it stays as it is. With `until` what follows from there
        stays: a `CheckpointCreated` with `was` for each of its checkpoints, renumbered behind the summary, stands before
        `CompactionEnd`. What goes wrong is told on the wire.

        Args:
            instructions: what the summary must keep.
            start: the first checkpoint that the summary replaces ("compact from here"); None for the beginning.
            until: the first one after it that stays ("compact up to here"); None for the end.

        Raises:
            KeyError: no such checkpoint on the live line.
            SoulBusy: something runs; interrupt it first.
        """
        ...

    async def preview(self, target: Target) -> RewindPreview:
        """What a rewind there would do.

        Raises:
            KeyError: no such checkpoint; the text is for the person.
        """
        ...

    async def rewind(
        self,
        target: Target,
        files: FilesChoice = "keep",
        chosen: Collection[str] | None = None,
    ) -> RewindOutcome:
        """Cut the conversation back to before the checkpoint, bring the files of that time back, or both.

        Args:
            target: the checkpoint.
            files: what of it.
            chosen: the paths to bring back, conflicts among them; None for all that are no conflicts.

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

    async def files_ready(self) -> FolderFacts:
        """Wait until the files have been looked at for the first time; what is known of the folder then."""
        ...

    async def set_mode(self, mode: Literal["ask", "edits", "all"]) -> None:
        """Ask before changes, accept edits in the work folder, or allow everything but what is protected."""
        ...

    async def save(self) -> str:
        """Bring all that is complete to the disk; returns a sentence on what it did not take, empty if it took all."""
        ...

    async def rename(self, title: str) -> str:
        """Call the session something; without a title, what it began with. Returns the title it has now.

        Raises:
            StorageTrouble: the disk refused; the old title stands.
        """
        ...

    async def statistics(self) -> Statistics:
        """What the session did and cost so far."""
        ...

    async def aclose(self) -> None:
        """Stop, sync and release the session."""
        ...
