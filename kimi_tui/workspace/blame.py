"""Blame: which version of a file wrote each of its lines.

`LineOrigins` follows one text through its versions. `versions_of` finds the versions of a file among the snapshots of a
session, also under the names that it had before it was renamed; `FileBlame` puts both together. Everything here blocks, and works on one file in time that
grows with its changes: a version that differs in one place costs a comparison of strings, without a list of its lines.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi_tui.workspace.common_lines import common_lines
from kimi_tui.workspace.diff import StoredTexts
from kimi_tui.workspace.manifest import ManifestEntry
from kimi_tui.workspace.patch import are_alike
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.store import BlobDamaged

_MOST_CANDIDATES = 20
"""Files that went in a snapshot and whose contents are compared with those of a new one."""


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
        origins, changed, own = self._origins, array("l"), array("l", [version])
        for run in common_lines(self._text, text, len(origins)):
            changed += own * (run.new - len(changed))
            changed += origins[run.old : run.old + run.n]
        self._origins, self._text = changed, text

    def line(self, number: int) -> str:
        """Return a line of the newest text, counted from 1."""
        return self._text.split("\n", number)[number - 1]

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


def versions_of(
    log: SnapshotLog, path: str, texts: StoredTexts | None = None, until: int | None = None
) -> list[FileVersion]:
    """Return the states of a file, oldest first, back through renames: another file went in the same snapshot, and has the same
    contents or, where `texts` can tell, half of them.

    Args:
        log: the snapshots of the session.
        path: the name of the file, relative to the work folder.
        texts: the contents.
        until: the place of the last snapshot to look at, at which the file has that name; None for the newest.
    """
    found: list[FileVersion] = []
    name = path
    snapshots = log.snapshots
    last = len(snapshots) - 1 if until is None else min(until, len(snapshots) - 1)
    for position in range(last, -1, -1):
        changed = snapshots[position].changed
        if name not in changed:
            continue
        entry = changed[name]
        found.append(FileVersion(position, name, entry))
        if entry is None or not entry.kept or not position:
            continue
        gone = [one for one, now in changed.items() if now is None]
        if not gone:
            continue
        before = log.manifest_before(snapshots[position], [name, *gone])
        if before[name] is None:
            name = _former_name(name, entry, before, texts) or name
    found.reverse()
    return found


def _former_name(
    name: str,
    entry: ManifestEntry,
    before: Mapping[str, ManifestEntry | None],
    texts: StoredTexts | None,
) -> str:
    """Return the name that a new file had before, if it is one of the files that went; empty if it is none of them."""
    gone = {path: one for path, one in before.items() if one is not None and one.kept}
    file = name.rpartition("/")[2]
    order = sorted(gone, key=lambda one: (one.rpartition("/")[2] != file, one))
    # An empty file has the contents of every other empty file.
    same = [path for path in order if entry.size and gone[path].blob == entry.blob]
    if same or texts is None:
        return same[0] if same else ""
    try:
        content = texts.content(entry)
        for path in order[:_MOST_CANDIDATES]:
            if gone[path].kind == entry.kind and are_alike(texts.content(gone[path]), content):
                return path
    except BlobDamaged:
        pass
    return ""


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
        self._taken: list[FileVersion] = []
        self._state = _Restorable(frozenset())

    def versions(self) -> list[FileVersion]:
        """Return the states of the file, oldest first."""
        return versions_of(self._log, self._path, self._texts)

    def origins(self, versions: list[FileVersion], now: str) -> Sequence[int]:
        """Return the place of the snapshot (in the log) that wrote each line.

        Args:
            versions: the states of the file, as `versions` returns them.
            now: the present text of the file; its lines that no snapshot has get the place of the next snapshot.
        """
        self._continue(versions)
        beyond = self._state.lines.copy()
        beyond.advance(now, len(self._log))
        return beyond.origins

    def _continue(self, versions: list[FileVersion]) -> None:
        n_taken = len(self._taken)
        wanted = _brought_back(self._log, versions)
        if versions[:n_taken] != self._taken or not wanted <= self._state.kept.keys() | (
            wanted - {_blob(one.entry) for one in self._taken}
        ):
            self._state, n_taken = _Restorable(wanted), 0
        self._state.wanted = wanted
        with self._texts.reading():
            for one in versions[n_taken:]:
                self._state.take(one, self._log.snapshots[one.position].by, self._texts)
        self._taken = versions


def line_origin(
    log: SnapshotLog, texts: StoredTexts, path: str, span: range, number: int, text: str
) -> FileVersion | None:
    """Return the version that wrote a line of a file as the file was at one of some snapshots; None if none has that line.

    Args:
        log: the snapshots of the session.
        texts: the contents.
        path: the file's name at the last of these snapshots.
        span: the places of the snapshots in the log, the likeliest first one first.
        number: the line, counted from 1.
        text: the line, or its beginning.
    """
    if not span:
        return None
    with texts.reading():
        return _line_origin(log, texts, path, span, number, text)


def _line_origin(
    log: SnapshotLog, texts: StoredTexts, path: str, span: range, number: int, text: str
) -> FileVersion | None:
    versions = versions_of(log, path, texts, until=span[-1])
    state = _Restorable(_brought_back(log, versions))
    for n, one in enumerate(versions):
        state.take(one, log.snapshots[one.position].by, texts)
        ends = versions[n + 1].position if n + 1 < len(versions) else span[-1] + 1
        origins = state.lines.origins
        if ends > span[0] and number <= len(origins) and state.lines.line(number).startswith(text):
            return next(known for known in versions if known.position == origins[number - 1])
    return None


class _Restorable:
    """The lines of a file through its versions, where a restore brings back an earlier one.

    Args:
        wanted: the contents that come back later.
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self.lines = LineOrigins()
        self.wanted = wanted
        self.kept: dict[str, Sequence[int]] = {}

    def take(self, one: FileVersion, by: str, texts: StoredTexts) -> None:
        """Take the next version."""
        text, blob = texts.of(one.entry) or "", _blob(one.entry)
        if by == "restore" and blob in self.kept:
            self.lines.restore(text, self.kept[blob])
        else:
            self.lines.advance(text, one.position)
        if blob in self.wanted:
            self.kept[blob] = self.lines.origins


def _brought_back(log: SnapshotLog, versions: Sequence[FileVersion]) -> frozenset[str]:
    """Return the contents that a restore brought back."""
    return frozenset(
        _blob(one.entry) for one in versions if log.snapshots[one.position].by == "restore"
    )


def _blob(entry: ManifestEntry | None) -> str:
    return entry.blob if entry is not None and entry.kept else ""
