"""The values of a rewind: `Target`, `RewindPreview`, `RewindOutcome`, and the changes of files.

Plain values for the screens, without imports of the engine; `rewind_preview` computes the preview, `operations` carries a
rewind out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kimi_tui.soul.usage import Cost
    from kimi_tui.tool_cards import Card, DiffLine, ImageBlock
    from kimi_tui.wire.events import LineChanged


END = -1
"""The id of a `Target` that is the end of its world line."""


@dataclass(frozen=True, slots=True)
class Target:
    """A checkpoint by name: `id` on world line `world_line` (0: the live one), or with the id `END` all of that line.

    `said` chooses one of the messages that the user said behind it, counted from 0: that one comes back into the prompt
    after a rewind. -1 chooses none of them.
    """

    id: int
    world_line: int = 0
    said: int = -1

    @property
    def is_end(self) -> bool:
        """Whether it is the end of the line, and no checkpoint."""
        return self.id == END


FilesChoice = Literal["keep", "restore", "only"]
"""Whether a rewind keeps the files, restores them too, or restores the files only and keeps the conversation."""

FileFate = Literal["restore", "create", "delete", "conflict", "skip"]
"""What bringing the files back does to one: it gets its old contents, is there again, goes, or is left alone: as a
`conflict` because someone else changed it too, as a `skip` because no snapshot holds it."""


@dataclass(frozen=True, slots=True)
class DroppedMessage:
    """One row of what a rewind drops: a message, or one tool call with its result.

    Attributes:
        kind: how to draw it.
        text: the first line of the message, or the target of the call.
        name: the tool's name.
        failed: whether the call failed.
        tokens: what the result takes in the context; None where there is none yet.
        card: of the tool; None where it is known by its name.
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

    `would` is what becomes of a conflict that is chosen. `added`, `removed` and `rows` are the change since then, which
    bringing it back takes away; `is_text` is false where there are none to show. `rows` may be cut. `only_rights` is
    true where the contents are the same, and only who may read or run it changed; `is_folder` is an empty folder.
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
    """The files that changed since a checkpoint, and what bringing them back would do.

    `reason` says why nothing can be brought back, empty where it can. What cannot come back: `not_covered` are paths in which
    nobody looked, `remarks` further sentences; `ran_commands` is true where commands ran since, whose effects elsewhere stay.
    `goes_along` is true where the files come back with the operation, and there is nothing to choose.
    """

    files: tuple[FilePreview, ...] = ()
    not_covered: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""
    ran_commands: bool = False
    goes_along: bool = False

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
    """What became of a file; `reason` is why it was left alone, `is_lost` whether it is not what it was and cannot come back."""

    path: str
    fate: FileFate
    reason: str = ""
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class RewindPreview:
    """The preview of a rewind to `target`: what it would drop, and the window after it. Tokens are estimates with `estimated`.

    `dropped` are the dropped messages, each read when it is accessed. `cost` is what their model calls have cost; None where no
    prices are set. `ran_commands` is true where any of them ran a command. `is_there` is true where the conversation is at
    the target already, so that only files can be restored. `run_on` are the background commands, which continue. `left_as` is
    the number of the world line that the dropped messages will be on, where that is known, and `left_from` the first
    checkpoint that will be on that line alone; -1 for none.
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


@dataclass(frozen=True, slots=True)
class RewindOutcome:
    """The outcome of a rewind. `prompt` is the message for the prompt (empty for a step within a turn), with its `images`.

    `is_open` says whether the conversation ends within a turn, so that the agent could continue. `change` is the event of the
    operation; None where only files were restored, or a D-Mail was sent.
    """

    checkpoint_id: int
    messages_dropped: int
    tokens_before: int
    tokens_after: int
    prompt: str
    files: tuple[FileOutcome, ...] = ()
    is_open: bool = False
    images: tuple[ImageBlock, ...] = ()
    change: LineChanged | None = None
