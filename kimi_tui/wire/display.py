"""What a tool result shows beside its text: plain values that any screen can draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One row of a diff. `number` is the line's number on its own side, counted from 1."""

    sign: Literal[" ", "-", "+"]
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A change of one file. `lines` may be cut; `added` and `removed` always count the whole change."""

    path: str
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    created: bool = False


@dataclass(frozen=True, slots=True)
class ShellBlock:
    """A command that ran. `exit_code` is None where it was stopped or never ended."""

    command: str
    exit_code: int | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One entry of the agent's list."""

    title: str
    status: Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class TodoBlock:
    """The whole list as it is after the call."""

    items: tuple[TodoItem, ...]


@dataclass(frozen=True, slots=True)
class BriefBlock:
    """A fact in a few words for the right side of a card: `184 lines`, `6 files`, `no such file`."""

    text: str


DisplayBlock = DiffBlock | ShellBlock | TodoBlock | BriefBlock
