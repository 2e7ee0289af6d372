"""Blame: which version of a file wrote each of its lines.

`LineOrigins` follows one text through its versions. `versions_of` finds the versions of a file among the snapshots of a
session, also under the names that it had before it was renamed; `FileBlame` puts both together. Everything here blocks, and works on one file in time that
grows with its changes: a version that differs in one place costs a comparison of strings, without a list of its lines.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from kimi_tui.workspace.common_lines import (
    common_head,
    common_tail,
    count_lines,
    equal_runs,
    split_lines,
)
from kimi_tui.workspace.diff import StoredTexts
from kimi_tui.workspace.manifest import ManifestEntry
from kimi_tui.workspace.snapshots import SnapshotLog


class LineOrigins:
    """The version that each line of a text came from. A line is a text up to and including its line feed."""

    def __init__(self) -> None:
        self._text = ""
        self._origins: array[int] = array("l")

    @property
    def origins(self) -> Sequence[int]:
        """The version of each line of the newest text."""
        return self._origins

    def advance(self, text: str, version: int) -> None:
        """Take the next version of the text; its new lines have the origin `version`."""
        old, origins = self._text, self._origins
        head = common_head(old, text)
        tail = common_tail(old, text, head)
        old_end, new_end = len(old) - tail, len(text) - tail
        n_head, n_tail = old.count("\n", 0, head), count_lines(old, old_end)
        before, after = split_lines(old[head:old_end]), split_lines(text[head:new_end])
        changed = array("l", [version]) * len(after)
        for run in equal_runs(before, after):
            changed[run.new : run.new + run.n] = origins[
                n_head + run.old : n_head + run.old + run.n
            ]
        self._origins = origins[:n_head] + changed + origins[len(origins) - n_tail :]
        self._text = text

    def copy(self) -> LineOrigins:
        """Return the same state, which goes on by itself."""
        other = LineOrigins()
        other.restore(self._text, self._origins)
        return other

    def restore(self, text: str, origins: Sequence[int]) -> None:
        """Take a version that is an earlier one again, whose origins are known."""
        self._text, self._origins = text, array("l", origins)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One state of a file: the place of its snapshot in the log, its name then, and its entry (None: there was no file)."""

    position: int
    path: str
    entry: ManifestEntry | None


def versions_of(log: SnapshotLog, path: str) -> list[FileVersion]:
    """Return the states of a file, oldest first, back through exact renames: the same contents under another name that went.

    Args:
        log: the snapshots of the session.
        path: the present name of the file, relative to the work folder.
    """
    found: list[FileVersion] = []
    name = path
    snapshots = log.snapshots
    for position in range(len(snapshots) - 1, -1, -1):
        changed = snapshots[position].changed
        if name not in changed:
            continue
        entry = changed[name]
        found.append(FileVersion(position, name, entry))
        if entry is None or not entry.kept:
            continue
        gone = [one for one, now in changed.items() if now is None]
        before = log.manifest_before(snapshots[position], [name, *gone])
        if before[name] is not None:
            continue
        # An empty file has the contents of every other empty file.
        same = [one for one in gone if entry.size and _blob(before[one]) == entry.blob]
        if same:
            name = min(
                same, key=lambda one: (one.rpartition("/")[2] != name.rpartition("/")[2], one)
            )
    found.reverse()
    return found


class FileBlame:
    """The lines of one file with the snapshots that wrote them, continued from call to call.

    A restore brings back lines with the origin that they had; a state that is no text (too large, ignored, not UTF-8) has no lines.

    Args:
        log: the snapshots of the session.
        texts: the store's texts.
        path: the file, relative to the work folder.
    """

    def __init__(self, log: SnapshotLog, texts: StoredTexts, path: str) -> None:
        self._log = log
        self._texts = texts
        self._path = path
        self._lines = LineOrigins()
        self._taken: list[FileVersion] = []
        self._kept: dict[str, Sequence[int]] = {}

    def versions(self) -> list[FileVersion]:
        """Return the states of the file, oldest first."""
        return versions_of(self._log, self._path)

    def origins(self, versions: list[FileVersion], now: str) -> Sequence[int]:
        """Return the place of the snapshot (in the log) that wrote each line.

        Args:
            versions: the states of the file, as `versions` returns them.
            now: the present text of the file; its lines that no snapshot has get the place of the next snapshot.
        """
        self._continue(versions)
        beyond = self._lines.copy()
        beyond.advance(now, len(self._log))
        return beyond.origins

    def _continue(self, versions: list[FileVersion]) -> None:
        n_taken = len(self._taken)
        by = [self._log.snapshots[one.position].by for one in versions]
        wanted = {
            _blob(one.entry) for one, who in zip(versions, by, strict=True) if who == "restore"
        }
        if versions[:n_taken] != self._taken or not wanted <= self._kept.keys():
            self._lines, n_taken, self._kept = LineOrigins(), 0, {}
        for one, who in zip(versions[n_taken:], by[n_taken:], strict=True):
            text, blob = self._texts.of(one.entry) or "", _blob(one.entry)
            if who == "restore" and blob in self._kept:
                self._lines.restore(text, self._kept[blob])
            else:
                self._lines.advance(text, one.position)
            if blob in wanted:
                self._kept[blob] = self._lines.origins
        self._taken = versions


def _blob(entry: ManifestEntry | None) -> str:
    return entry.blob if entry is not None and entry.kept else ""
