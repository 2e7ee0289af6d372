"""What can be done at a checkpoint, as data: a letter, words, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Action:
    """One choice. `name` is what the screen answers, `verb` what Enter does in a word; groups stand apart."""

    key: str
    name: str
    title: str
    hint: str = ""
    verb: str = "choose"
    group: int = 0


@dataclass(frozen=True, slots=True)
class PreviewAnswer:
    """What the person chose."""

    action: str
    chosen: frozenset[str] | None = None
    """The files to bring back; None for what is brought back without asking."""


REWIND = Action("r", "rewind", "Rewind the conversation", "files stay", verb="rewind")
JUMP = replace(REWIND, title="Jump there", verb="jump")
"""The same on a line that was left."""
BOTH = Action("f", "both", "Conversation and files", verb="rewind")
FILES = Action("o", "files", "Files only", "conversation stays", verb="bring back")
FORK = Action("n", "fork", "Fork into a new session", "this one stays", verb="fork")
LETTER = Action("d", "dmail", "Send a D-Mail here", verb="write", group=1)
COMPACT_FROM = Action("c", "compact-from", "Compact from here on", verb="compact", group=1)
COMPACT_TO = Action("p", "compact-to", "Compact up to here", verb="compact", group=1)
COPY = Action("y", "copy", "Copy as Markdown", verb="copy", group=1)

CONVERSATION_ACTIONS: Sequence[Action] = (REWIND, FORK, COPY)
"""What works without snapshots of files."""


_BOTH_PARTS = (COMPACT_FROM, COMPACT_TO)


def actions_at(checkpoint_id: int, world_line: int) -> Sequence[Action]:
    """What can be done at a checkpoint; only of the live line a part can be compacted, and nothing is before its first."""
    compact = () if world_line else (COMPACT_FROM,) if checkpoint_id == 0 else _BOTH_PARTS
    return (JUMP if world_line else REWIND, FORK, LETTER, *compact, COPY)


def with_files(actions: Sequence[Action], hint: str) -> Sequence[Action]:
    """The actions where there are files to bring back; `hint` says what that does to them."""
    place = next((i for i, one in enumerate(actions) if one.name == REWIND.name), -1) + 1
    verb = actions[place - 1].verb if place else BOTH.verb
    files = (replace(BOTH, hint=hint, verb=verb), FILES)
    return (*actions[:place], *files, *actions[place:])
