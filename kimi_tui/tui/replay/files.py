"""Which working files the agent had changed by a moment, and in which step each got the form that it had then.

A file that was brought back has the form of an earlier step again, or none of the agent's and is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kimi_tui.foreign_text import one_line
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    FilesChanged,
    FilesRestored,
    LineChanged,
    Record,
)


class FileThen(NamedTuple):
    """A file as it was: since checkpoint `id` of the line that was live then, of one that was left, or of one that was
    compacted since."""

    path: str
    id: int
    is_left: bool = False
    is_compacted: bool = False


class _Line(NamedTuple):
    """The checkpoints of a line by their uids: those that a compaction replaced, and those since."""

    before: list[str]
    live: list[str]


class FilesModel:
    """The files that were changed, the newest change first."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._live: list[str] = []
        self._before: list[str] = []
        """What stood before the newest compaction of the live line."""
        self._lines: dict[int, _Line] = {}
        self._replaced: _Line | None = None
        self._history: dict[str, list[str]] = {}
        """The steps that changed a file, whatever became of them."""
        self._changed: dict[str, str] = {}
        self._brought_back: tuple[str, ...] = ()

    def apply(self, record: Record) -> bool:
        """Take in one event; tells whether the list may be another one."""
        match record.event:
            case CheckpointCreated(id=number, uid=uid, kind=kind):
                if kind == "compaction" and number == 0:
                    self._replaced = self._line()
                    self._before, self._live = self._before + self._live, []
                self._ids[uid] = number
                self._live.append(uid)
                return False
            case FilesChanged(uid=uid, paths=paths):
                for path in paths:
                    self._history.setdefault(path, []).append(uid)
                    self._note(path, uid)
            case FilesRestored(uid=uid, restored=restored, deleted=deleted):
                self._brought_back = (*restored, *deleted)
                stop = self._live.index(uid) if uid in self._live else len(self._live)
                self._bring_back(self._brought_back, (*self._before, *self._live[:stop]))
            case CompactionEnd(error="", world_line=n) if n and self._replaced is not None:
                self._lines[n], self._replaced = self._replaced, None
            case ContextReverted(uid=uid, world_line=n, reason=reason):
                if n:
                    self._lines[n] = self._line()
                if reason == "clear":
                    self._before, self._live = [], []
                elif uid in self._live:
                    del self._live[self._live.index(uid) :]
            case LineChanged(op="jump" | "undo" | "redo") as event:
                self._switch(event)
            case _:
                return False
        return True

    @property
    def files(self) -> tuple[FileThen, ...]:
        """What there is to show."""
        live, before = set(self._live), set(self._before)
        return tuple(
            FileThen(
                one_line(path),
                self._ids.get(uid, -1),
                uid not in live and uid not in before,
                uid in before and uid not in live,
            )
            for path, uid in reversed(self._changed.items())
        )

    def _line(self) -> _Line:
        return _Line(self._before, list(self._live))

    def _switch(self, event: LineChanged) -> None:
        """Another line is live. The files that came with it were told of before, when it was not yet."""
        if event.to_line:
            if event.from_line:
                self._lines[event.from_line] = self._line()
            self._before, line = self._lines.get(event.to_line, self._line())
            self._live = line[: line.index(event.uid)] if event.uid in line else list(line)
        if event.to_line or event.op == "undo":
            self._bring_back(self._brought_back, (*self._before, *self._live))
        self._brought_back = ()

    def _bring_back(self, paths: Iterable[str], line: Sequence[str]) -> None:
        """These files are as this line left them."""
        on_line = set(line)
        for path in paths:
            self._changed.pop(path, None)
            uid = next((u for u in reversed(self._history.get(path, ())) if u in on_line), None)
            if uid is not None:
                self._note(path, uid)

    def _note(self, path: str, uid: str) -> None:
        self._changed.pop(path, None)
        self._changed[path] = uid
