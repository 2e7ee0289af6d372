"""Which working files the agent had changed by a moment, and in which step each got the form that it had then."""

from __future__ import annotations

from typing import NamedTuple

from kimi_tui.foreign_text import one_line
from kimi_tui.wire.events import (
    CheckpointCreated,
    ContextReverted,
    FilesChanged,
    FilesRestored,
    LineChanged,
    Record,
)


class FileThen(NamedTuple):
    """A file as it was: since checkpoint `id`, of the line that was live then or of one that was left."""

    path: str
    id: int
    is_left: bool = False
    is_restored: bool = False


class FilesModel:
    """The files that were changed, the newest change first."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._live: list[str] = []
        self._lines: dict[int, list[str]] = {}
        self._changed: dict[str, tuple[str, bool]] = {}

    def apply(self, record: Record) -> bool:
        """Take in one event; tells whether the list may be another one."""
        match record.event:
            case CheckpointCreated(id=number, uid=uid, kind=kind):
                if kind == "compaction" and number == 0:
                    self._live = []
                self._ids[uid] = number
                self._live.append(uid)
                return False
            case FilesChanged(uid=uid, paths=paths):
                self._note(paths, uid, restored=False)
            case FilesRestored(uid=uid, restored=restored, deleted=deleted):
                self._note(restored, uid, restored=True)
                for path in deleted:
                    self._changed.pop(path, None)
            case ContextReverted(uid=uid, world_line=n, reason=reason):
                if n:
                    self._lines[n] = list(self._live)
                if reason == "clear":
                    self._live = []
                elif uid in self._live:
                    del self._live[self._live.index(uid) :]
            case LineChanged(op="jump" | "undo" | "redo", from_line=left, to_line=n, uid=uid) if n:
                if left:
                    self._lines[left] = list(self._live)
                line = self._lines.get(n, self._live)
                self._live = line[: line.index(uid)] if uid in line else list(line)
            case _:
                return False
        return True

    @property
    def files(self) -> tuple[FileThen, ...]:
        """What there is to show."""
        live = set(self._live)
        return tuple(
            FileThen(one_line(path), self._ids.get(uid, -1), uid not in live, restored)
            for path, (uid, restored) in reversed(self._changed.items())
        )

    def _note(self, paths: tuple[str, ...], uid: str, *, restored: bool) -> None:
        for path in paths:
            self._changed.pop(path, None)
            self._changed[path] = (uid, restored)
