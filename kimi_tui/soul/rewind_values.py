"""The values of a rewind: `Target`, `Prospect`, `RewindPreview`, `RewindOutcome`, and the changes of files.

They are plain values for the screens, without imports of the engine; `rewind_preview` computes the preview, `operations`
carries out a rewind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from kimi_tui.soul.usage import Cost
    from kimi_tui.tool_cards import Card, DiffLine, ImageBlock
    from kimi_tui.wire.events import LineChanged
    from kimi_tui.workspace.restore import FileFate


END = -1
"""The id of a `Target` that means the end of its world line."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target checkpoint: `id` on world line `world_line` (0: the live one), or with the id `END` the end of that line.

    `said` chooses one of the user's messages after it, counted from 0, which goes back into the prompt after a rewind. -1
    chooses none of them.
    """

    id: int
    world_line: int = 0
    said: int = -1

    @property
    def is_end(self) -> bool:
        """Whether the target is the end of the line, and no checkpoint."""
        return self.id == END


class Prospect(NamedTuple):
    """The state that a rewind, jump or D-Mail would lead to, shown in chat and gauge before it is done.

    `used` is the number of tokens that would be in the window; None if that is the present number, or unknown. With
    `words_stay` the user's messages and pinned messages stay, as after a D-Mail. A target with the id -1 drops nothing.
    """

    target: Target
    used: int | None = None
    estimated: bool = False
    words_stay: bool = False


FilesChoice = Literal["keep", "restore", "only"]
"""Whether a rewind keeps the files, restores them too, or restores only the files and keeps the conversation."""


@dataclass(frozen=True, slots=True)
class DroppedMessage:
    """One row of the dropped part: a message, or one tool call with its result.

    Attributes:
        kind: the kind of the row, for drawing.
        text: the first line of the message, or the target of the call.
        name: the tool's name.
        failed: whether the call failed.
        tokens: the tokens of the result in the context; None if there is no result yet.
        card: the card of the tool; None if the name is enough to find it.
    """

    kind: Literal["user", "agent", "tool", "dmail", "summary"]
    text: str
    name: str = ""
    failed: bool = False
    tokens: int | None = None
    card: Card | None = None


@dataclass(frozen=True, slots=True)
class FilePreview:
    """A file that changed since a checkpoint.

    `would` is the effect on a conflict that is chosen. `added`, `removed` and `rows` are the change since then, which a
    restore reverses; where `FilesPreview.is_effect`, they are the effect of the restore on the file. `is_text`
    is false if there are no lines to show. `rows` may be shortened. `only_rights` is true if only the permissions changed;
    `is_folder` is true for an empty folder.
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
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class FilesPreview:
    """The files that changed since a checkpoint, and the effects of restoring them.

    `reason` says why nothing can be restored; empty if files can be. `not_covered` are paths that were not scanned, `remarks`
    further sentences about files that cannot be restored; `ran_commands` is true if commands ran since, whose effects
    elsewhere stay. `goes_along` is true if the operation restores the files, and there is nothing to choose. `is_effect` is true if the files are compared
    the other way round, from now to then: so for an undo, and for another world line, which need not be earlier.
    """

    files: tuple[FilePreview, ...] = ()
    not_covered: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""
    ran_commands: bool = False
    goes_along: bool = False
    is_effect: bool = False

    @property
    def restorable(self) -> tuple[FilePreview, ...]:
        """The files that are restored without asking further."""
        return tuple(one for one in self.files if one.fate in ("restore", "create", "delete"))

    @property
    def conflicts(self) -> tuple[FilePreview, ...]:
        """The files that somebody else changed too."""
        return tuple(one for one in self.files if one.fate == "conflict")


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The outcome of a file; `reason` says why it was left unchanged, `is_lost` whether it has changed and cannot be restored."""

    path: str
    fate: FileFate
    reason: str = ""
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class RewindPreview:
    """The preview of a rewind to `target`: what it would drop, and the window after it. Tokens are estimates with `estimated`.

    `dropped` are the dropped messages, each read when it is accessed. `cost` is the cost of their model calls; None if no
    prices are set. `ran_commands` is true if any of them ran a command; `servers` are the MCP servers that they called. `is_there` is true if the conversation is at the
    target already, so that only files can be restored. `run_on` are the background commands, which continue. `left_as` is the
    number of the world line on which the dropped messages will be, if it is known, and `left_from` the first checkpoint that
    will be only on that line; -1 for none.
    """

    target: Target
    label: str
    steps: int
    turns: int
    messages: int
    tokens_before: int
    tokens_after: int
    estimated: bool
    dropped: Sequence[DroppedMessage]
    prompt: str
    files: FilesPreview | None = None
    cost: Cost | None = None
    ran_commands: bool = False
    is_there: bool = False
    left_as: int = 0
    left_from: int = -1
    servers: tuple[str, ...] = ()
    run_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forked:
    """The outcome of a fork: the new session's id, the user's message before which it ends, and the files' outcome.

    `images` were pasted into that message.
    """

    session_id: str
    prompt: str = ""
    files: tuple[FileOutcome, ...] = ()
    images: tuple[ImageBlock, ...] = ()


class Reversal(NamedTuple):
    """What an undo or redo did, in sentences for the user.

    Attributes:
        operation: the operation.
        toll: what an undo took along, which the chat has as a row; empty for nothing.
        files: the files, which the chat has as a row; empty for none.
    """

    operation: str
    toll: str = ""
    files: str = ""

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(filter(None, self))


@dataclass(frozen=True, slots=True)
class RewindOutcome:
    """The outcome of a rewind. `prompt` is the message for the prompt (empty for a step within a turn), with its `images`.

    `is_open` says whether the conversation ends within a turn, so that the agent could continue. `change` is the event of the
    operation; None if only files were restored, or a D-Mail was sent.
    """

    checkpoint_id: int
    messages_dropped: int
    tokens_before: int
    tokens_after: int
    prompt: str = ""
    files: tuple[FileOutcome, ...] = ()
    is_open: bool = False
    images: tuple[ImageBlock, ...] = ()
    change: LineChanged | None = None

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The files that should have been restored but were left unchanged, or cannot be restored."""
        return tuple(one.path for one in self.files if one.fate == "conflict" or one.is_lost)

    @property
    def changed(self) -> tuple[str, ...]:
        """The files that were created, changed or deleted."""
        return tuple(one.path for one in self.files if one.fate not in ("conflict", "skip"))
