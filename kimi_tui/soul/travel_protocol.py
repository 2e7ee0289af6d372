"""What a screen may ask of the engine about other lines, letters, summaries and marks: the rest of the `Soul` protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_tui.soul.protocol import RewindOutcome, Target
    from kimi_tui.wire.display import DiffLine, DisplayBlock
    from kimi_tui.wire.events import Record


MessageKind = Literal["user", "agent", "tool", "dmail", "summary", "reminder"]


@dataclass(frozen=True, slots=True)
class WorldLineInfo:
    """A line that was left.

    Attributes:
        n: Its number.
        reason: The operation that left it; `foreign` or `unknown` where nothing tells.
        checkpoint_id: Where that operation went back to (-1: nowhere in particular), `uid` its name.
        at: When it was left, ISO 8601.
        text: The letter or the summary of that operation.
        n_checkpoints: All of its checkpoints; the first `shared` of them are the live line's too.
        newest: The id of its newest checkpoint, -1 where it has none.
        n_messages: How many messages it holds.
    """

    n: int
    reason: str
    checkpoint_id: int
    uid: str
    at: str
    tokens_before: int
    tokens_after: int
    messages_dropped: int
    text: str
    n_checkpoints: int
    shared: int
    newest: int
    n_messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LineMessage:
    """A message of a line, whole. `uid` and `number` name it for `carry` and `pin`.

    Attributes:
        checkpoint_id: Behind which checkpoint it stands.
        number: Its place behind that checkpoint, from 0.
        kind: How to draw it; of a `tool` the text is the result, `name` and `target` are those of the call.
        calls: The tools that an agent's message calls, each as name and target.
        pinned: Whether neither a compaction nor a D-Mail may drop it.
        display: What a tool's card draws beside its result, where the record tells it (in a comparison).
        sent_from: Of a D-Mail the checkpoint that it was sent from, and `saved` the tokens it took away; -1 and 0 where
            nothing tells.
    """

    checkpoint_id: int
    uid: str
    number: int
    kind: MessageKind
    text: str
    name: str = ""
    target: str = ""
    failed: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    pinned: bool = False
    display: tuple[DisplayBlock, ...] = ()
    sent_from: int = -1
    saved: int = 0


@dataclass(frozen=True, slots=True)
class FileSide:
    """What one line made of a file since the fork: `became` and the lines; `hands` is who changed it.

    `is_text` is false where there are no lines to show. `rows` may be cut.
    """

    became: Literal["same", "changed", "new", "gone"]
    hands: Literal["agent", "others", "both"] = "agent"
    added: int = 0
    removed: int = 0
    rows: tuple[DiffLine, ...] = ()
    is_text: bool = True


@dataclass(frozen=True, slots=True)
class PartedPath:
    """A file that one of the lines changed; `alike` is true where it is the same on both now."""

    path: str
    other: FileSide
    live: FileSide
    alike: bool = False


@dataclass(frozen=True, slots=True)
class PartedFiles:
    """The files that a line which was left, or the live one, changed since they parted.

    `reason` says why that is not known, empty where it is; `remarks` are sentences for the person.
    """

    files: tuple[PartedPath, ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LineComparison:
    """Two courses of a conversation from where they part.

    Attributes:
        world_line: The line that was left.
        fork: The newest checkpoint that both have, -1 where they share none.
        shared_tokens: What the window holds there; 0 where that is not known.
        live, other: The messages of each side from there on, oldest first.
        files: What each of them made of the working files since they parted.
    """

    world_line: int
    fork: int
    live: tuple[LineMessage, ...]
    other: tuple[LineMessage, ...]
    files: PartedFiles
    shared_tokens: int = 0


class TimeTravel(Protocol):
    """Letters by hand, other lines, summaries and marks. Nothing here may be asked while something runs, unless it says so."""

    async def jump(self, world_line: int, checkpoint_id: int | None = None) -> RewindOutcome:
        """Make a line that was left the live one, up to before a checkpoint of it, or all of it.

        Raises:
            KeyError: no such checkpoint or world line.
            SoulBusy: something runs; interrupt it first.
            SessionError: it is the live line already.
            OSError: the disk refused; nothing changed.
        """
        ...

    async def dmail(self, target: Target, text: str, *, go_on: bool = False) -> RewindOutcome:
        """Send the person's letter to the agent's past self: back to before `target`, with the letter there.

        What the person said since, and what they pinned, stands before it. Told as an agent's D-Mail is
        (`ContextReverted` with `author` "person", `CheckpointCreated` of the kind "dmail", `LineChanged`). A target on
        another line makes that line live first, which is an operation of its own for undo.

        Args:
            target: the checkpoint whose place the letter takes.
            text: the letter.
            go_on: let the agent go on with it at once, as `resume` does; returns when that turn has ended.

        Raises:
            KeyError: no such checkpoint.
            SoulError: the letter is empty.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused; nothing changed.
        """
        ...

    async def draft_dmail(self, target: Target) -> str:
        """Have the model draft a letter to a checkpoint, about what followed it; nothing of that is kept.

        Can be stopped by `interrupt`; returns an empty text then. The call counts in the session's totals.

        Raises:
            KeyError: no such checkpoint.
            LLMError, SoulError: there is no draft; `message` and `advice` are for the person.
            SoulBusy: something runs.
        """
        ...

    async def carry(
        self,
        world_line: int,
        uid: str,
        number: int,
        *,
        note: str = "",
        to: Target | None = None,
        go_on: bool = False,
    ) -> RewindOutcome:
        """Send one message of a line that was left to the present: as a letter at the end of the live line.

        Nothing is cut then, and `ContextReverted` says so (`from_checkpoint` is less than `checkpoint_id`); a rewind to
        the letter's checkpoint takes it back, undo does not. With `to` it is a D-Mail to that checkpoint instead.

        Args:
            world_line: where the message is.
            uid: its checkpoint.
            number: its place behind that, as `LineMessage.number`.
            note: words of the person that stand before it.
            to: the checkpoint that it goes to.
            go_on: let the agent go on with it at once.

        Raises:
            KeyError: no such message.
            SoulBusy: something runs; interrupt it first.
            OSError: the disk refused; nothing changed.
        """
        ...

    async def edit_summary(self, text: str) -> None:
        """Put another text in the place of the newest summary on the live line. Undo brings the one before back.

        Told as a compaction is, without `CompactionBegin`: `CheckpointCreated` of the summary and of what follows it,
        each with `was`, then `CompactionEnd` and `LineChanged`.

        Raises:
            SoulError: the text is empty, or there is no summary.
            SoulBusy: something runs.
            OSError: the disk refused; nothing changed.
        """
        ...

    async def summary(self) -> str:
        """The newest summary on the live line, for reading and editing; empty where there is none.

        Raises:
            SoulBusy: something runs.
        """
        ...

    @property
    def pins(self) -> frozenset[tuple[str, int]]:
        """Pinned messages, as (uid of the checkpoint, number behind it). At any time."""
        ...

    async def pin(self, uid: str, number: int = 0, pinned: bool = True) -> None:
        """Keep a message from being dropped by a compaction or a D-Mail, or no longer. At any time.

        `number` counts the messages behind the checkpoint from 0, markers not counted: of a turn 0 are the person's words,
        of a step 0 is the agent's message and 1 its first tool result. A call never parts from its results. Nothing is
        told on the wire.

        Raises:
            OSError: the disk refused.
        """
        ...

    @property
    def bookmarks(self) -> Mapping[str, str]:
        """The person's names of checkpoints, by uid. At any time."""
        ...

    async def bookmark(self, uid: str, name: str) -> None:
        """Give a checkpoint (of any line) a name, or with an empty one take it away. At any time; not told on the wire.

        Raises:
            OSError: the disk refused.
        """
        ...

    async def world_lines(self) -> Sequence[WorldLineInfo]:
        """The lines that were left, in order of number. At any time."""
        ...

    async def read_line(self, world_line: int) -> list[Record]:
        """The events of one line from its first checkpoint on, as a listener should hear them to show it read-only.

        Feed them to new models. Letters and summaries on it are told too, without what they undid. At any time.

        Raises:
            KeyError: no such world line.
        """
        ...

    async def messages(self, world_line: int = 0) -> Sequence[LineMessage]:
        """All messages of a line, markers left out (0: the live one).

        Raises:
            KeyError: no such world line.
            SoulBusy: something runs.
        """
        ...

    async def compare(self, world_line: int) -> LineComparison:
        """A line that was left beside the live one, from where they part.

        Raises:
            KeyError: no such world line.
            SoulBusy: something runs.
        """
        ...
