"""Comparisons in bounded time: lines of two texts, two contents of the store, and the files of two world lines.

The common beginning and end of two texts are cut off first; if the rest is too long to be compared in bounded time, all of it
counts as replaced. Two world lines (the one that was left, at its end, and the live one, now) are each compared with the
files at their fork, which shows which side changed a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from kimi_tui.text_encoding import UTF8, as_shown, encoding_of
from kimi_tui.tool_cards import DiffLine
from kimi_tui.workspace.manifest import Manifest, ManifestEntry, was_looked_for
from kimi_tui.workspace.patch import FilePair, Read, with_renames
from kimi_tui.workspace.restore import FileChange, as_file
from kimi_tui.workspace.snapshots import FOREIGN, By, Snapshot, SnapshotLog
from kimi_tui.workspace.store import BlobDamaged, BlobStore

CONTEXT_LINES = 2
MAX_COMPARED_LINES = 5_000
_PROBE_BYTES = 8_192
MOST_COMPARED_BYTES = 2 << 20
"""The largest file, in bytes, whose lines are compared."""
_UNKNOWN = "There is no file snapshot of the checkpoint where the two world lines diverge."
_MOST_FILES_COMPARED = 300
_MOST_ROWS = 20_000

Outcome = Literal["same", "changed", "new", "gone"]
Authors = Literal["agent", "others", "both"]


@dataclass(frozen=True, slots=True)
class LineDiff:
    """The change of one text. `rows` may be shortened; the counts are of the whole change."""

    added: int
    removed: int
    rows: tuple[DiffLine, ...]


def diff_lines(before: str, after: str, max_rows: int | None = None) -> LineDiff:
    """Return the change from one text to another.

    Args:
        before: the whole old text.
        after: the whole new text.
        max_rows: the largest number of rows to keep; None for all of them.
    """
    old, new = _lines(before), _lines(after)
    if before.endswith("\n") != after.endswith("\n") and old and new:
        # Lines do not show a difference in the final newline, so an empty last row stands for it.
        (old if before.endswith("\n") else new).append("")
    head = _common_head(old, new)
    tail = _common_tail(old, new, head)
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(old_middle), len(new_middle)) > MAX_COMPARED_LINES and old_middle and new_middle:
        rows = _replaced(old_middle, new_middle, head) if max_rows is None else ()
        return LineDiff(len(new_middle), len(old_middle), rows)
    codes = SequenceMatcher(None, old_middle, new_middle).get_opcodes()
    changes = [
        (i1 + head, i2 + head, j1 + head, j2 + head)
        for tag, i1, i2, j1, j2 in codes
        if tag != "equal"
    ]
    added = sum(j2 - j1 for _, _, j1, j2 in changes)
    removed = sum(i2 - i1 for i1, i2, _, _ in changes)
    return LineDiff(added, removed, _rows(changes, old, new, max_rows))


def text_of(content: bytes) -> str | None:
    """Return the content as text, or None if it is not text."""
    if encoding_of(content) == UTF8 and b"\0" in content[:_PROBE_BYTES]:
        return None
    return as_shown(content)


def _rows(
    changes: Sequence[tuple[int, int, int, int]],
    old: Sequence[str],
    new: Sequence[str],
    max_rows: int | None,
) -> tuple[DiffLine, ...]:
    rows: list[DiffLine] = []
    shown_to = 0
    for position, (i1, i2, j1, j2) in enumerate(changes):
        start = max(shown_to, j1 - CONTEXT_LINES)
        rows += [DiffLine(" ", j + 1, new[j]) for j in range(start, j1)]
        rows += [DiffLine("-", i + 1, old[i]) for i in range(i1, i2)]
        rows += [DiffLine("+", j + 1, new[j]) for j in range(j1, j2)]
        following = changes[position + 1][2] if position + 1 < len(changes) else len(new)
        shown_to = min(j2 + CONTEXT_LINES, following)
        rows += [DiffLine(" ", j + 1, new[j]) for j in range(j2, shown_to)]
        if max_rows is not None and len(rows) >= max_rows:
            return tuple(rows[:max_rows])
    return tuple(rows)


def _replaced(old: Sequence[str], new: Sequence[str], head: int) -> tuple[DiffLine, ...]:
    removed = [DiffLine("-", head + i + 1, text) for i, text in enumerate(old)]
    added = [DiffLine("+", head + j + 1, text) for j, text in enumerate(new)]
    return (*removed, *added)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _common_head(old: Sequence[str], new: Sequence[str]) -> int:
    count = 0
    for first, second in zip(old, new, strict=False):
        if first != second:
            break
        count += 1
    return count


def _common_tail(old: Sequence[str], new: Sequence[str], head: int) -> int:
    most = min(len(old), len(new)) - head
    count = 0
    while count < most and old[-1 - count] == new[-1 - count]:
        count += 1
    return count


def shown_text(
    entry: ManifestEntry | None, content: Callable[[ManifestEntry], bytes]
) -> str | None:
    """Return the text of a file's state, empty if there is no file; None if it is not text or too large to show.

    Args:
        entry: the state.
        content: reads the contents of a file, and may raise `BlobDamaged`.
    """
    if entry is None:
        return ""
    if not entry.kept or entry.size > MOST_COMPARED_BYTES:
        return None
    try:
        return text_of(content(entry))
    except BlobDamaged:
        return None


class StoredTexts:
    """Reads texts from the store and compares them. It blocks, and belongs in the one thread that uses the store.

    Args:
        store: the store of the contents.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def of(self, entry: ManifestEntry | None) -> str | None:
        """Return the text of a file's state, as `shown_text` does."""
        return shown_text(entry, self.content)

    def content(self, entry: ManifestEntry) -> bytes:
        """Return the contents of a file, or the target of a link.

        Raises:
            BlobDamaged: they are missing, or are not those of the snapshot.
        """
        return self._store.recall(entry.blob, entry.size)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which many texts are read faster."""
        return self._store.reading()

    def compared(
        self, before: ManifestEntry | None, after: ManifestEntry | None, max_rows: int | None
    ) -> LineDiff | None:
        """Return the difference of two states of a file, or None if they are not text or too large to show.

        Args:
            before: the old state; None if there was no file.
            after: the new state; None if there is no file.
            max_rows: the largest number of rows to list, None for all; the counts are always of the whole change.
        """
        old, new = self.of(before), self.of(after)
        return None if old is None or new is None else diff_lines(old, new, max_rows)

    def compared_all(self, changes: Sequence[FileChange], most_rows: int) -> list[LineDiff | None]:
        """Compare each change of a plan, before with after; at most `most_rows` rows are listed for all of them together."""
        found: list[LineDiff | None] = []
        room = most_rows
        for one in changes:
            diff = self.compared(one.then, one.now, max(0, room))
            room -= 0 if diff is None else len(diff.rows)
            found.append(diff)
        return found


@dataclass(frozen=True, slots=True)
class SideChange:
    """A file's difference from the fork on one side, and who changed it. `diff` is None if the file is not text or too large to show."""

    outcome: Outcome
    authors: Authors = "agent"
    diff: LineDiff | None = None


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A file that differs between two moments. `is_secret` says that its contents are not looked at; `old_path` is its name
    before, empty if it was not renamed.
    """

    path: str
    side: SideChange
    is_secret: bool = False
    old_path: str = ""

    def name_of(self, sign: str) -> str:
        """Return its name on the side of a line: before for a removed line, after for any other."""
        return self.old_path or self.path if sign == "-" else self.path


def former_names(
    files: Mapping[str, tuple[ManifestEntry | None, ManifestEntry | None]], read: Read
) -> dict[str, str]:
    """Return the name before of each file that was renamed, found as git finds it.

    Args:
        files: the states before and after of the files that differ.
        read: returns the contents of a state.
    """
    pairs = [
        FilePair(path, as_file(old), path, as_file(new))
        for path, (old, new) in files.items()
        if all(one is None or one.is_known for one in (old, new))
    ]
    try:
        joined = with_renames(pairs, read)
    except BlobDamaged:
        return {}
    return {one.path: one.old_path for one in joined if one.status == "renamed"}


@dataclass(frozen=True, slots=True)
class Changes:
    """The files that differ between two moments, in order. `reason` says why nothing is known; `remarks` are sentences for
    the user.
    """

    files: tuple[FileDifference, ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DivergedFile:
    """A file that differs from the fork on at least one side: on the line that was left, or now. `alike` is true if it is the
    same on both.
    """

    path: str
    left: SideChange
    now: SideChange
    alike: bool = False


@dataclass(frozen=True, slots=True)
class Divergence:
    """All diverged files in order. `reason` says why nothing is known; `remarks` are sentences for the user."""

    files: tuple[DivergedFile, ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""


def find_changes(
    log: SnapshotLog,
    texts: StoredTexts,
    now: Manifest,
    start: Snapshot | None,
    end: Snapshot | None = None,
) -> Changes:
    """Find the files that differ between two snapshots.

    Args:
        log: the snapshots, including one of `now`.
        texts: the reader of contents.
        now: a fresh scan.
        start: the earlier snapshot; None if there is none of that time.
        end: the later one; None for now.
    """
    if start is None:
        return Changes(reason="There is no file snapshot of that time.")
    changed_by = log.changed_since(start, end)
    nothing: Manifest = {}
    before = log.manifest_at(start) if changed_by else nothing
    after = now if end is None else log.manifest_at(end) if changed_by else nothing
    files: list[FileDifference] = []
    room = _MOST_ROWS
    known = [path for path in changed_by if _is_known(before, path) and _is_known(after, path)]
    names = former_names(
        {path: (before.get(path), after.get(path)) for path in known}, texts.content
    )
    for path in sorted(changed_by.keys() - names.values()):
        was = names.get(path, "")
        old, new = before.get(was or path), after.get(path)
        if any(one is not None and one.kind == "secret" for one in (old, new)):
            if old != new:
                files.append(FileDifference(path, SideChange("changed"), is_secret=True))
            continue
        if not (_is_known(before, path) and _is_known(after, path)):
            continue
        compared = texts if len(files) < _MOST_FILES_COMPARED else None
        by: list[By] = [*changed_by.get(was, ()), *changed_by[path]]
        side = _side(compared, as_file(old), as_file(new), by, room)
        if was and side.outcome == "same":
            side = SideChange("changed", _authors(by), diff_lines("", ""))
        if side.outcome != "same":
            room -= _n_rows(side)
            files.append(FileDifference(path, side, old_path=was))
    return Changes(tuple(files), tuple(log.notes_at(start)))


def patch_of(files: Sequence[FileDifference], most_chars: int) -> str:
    """Return changes as text for a model: the path of each file, then its changed lines with their numbers.

    Args:
        files: the files.
        most_chars: the largest number of characters; the rest is left out, and named as such.
    """
    parts: list[str] = []
    room = most_chars
    for one in files:
        diff = one.side.diff
        head = f"=== {one.path} ({f'renamed from {one.old_path}' if one.old_path else one.side.outcome})"
        if one.is_secret:
            text = f"{head}: its contents are not shown, because it may contain secrets\n"
        elif diff is None:
            text = f"{head}: not text, or too large to show\n"
        else:
            rows = "".join(f"{row.sign}{row.number:>5} {row.text}\n" for row in diff.rows)
            text = f"{head} +{diff.added} -{diff.removed}\n{rows}"
        if len(text) > room:
            parts.append(
                f"{text[: max(0, room)]}\n… the rest is left out: read the files themselves\n"
            )
            break
        parts.append(text)
        room -= len(text)
    return "\n".join(parts)


def find_divergence(
    log: SnapshotLog,
    texts: StoredTexts,
    now: Manifest,
    begins: Sequence[str],
    newest: Sequence[str],
) -> Divergence:
    """Find the changes on a line that was left, and the changes until now, since the two diverged.

    Args:
        log: the snapshots, including one of `now`.
        texts: the reader of contents.
        now: a fresh scan.
        begins: the uids of the first checkpoints that are on one side only; the one that was made first is at the fork.
        newest: the uids of the newest checkpoint of the line that was left, the preferred one first.
    """
    fork = log.at_first_of(begins)
    end = log.after_checkpoint(*newest)
    if fork is None or end is None:
        return Divergence(reason=_UNKNOWN)
    end = log.later(fork, end)
    left_by, now_by = log.changed_since(fork, end), log.changed_since(fork)
    then, left = log.manifest_at(fork), log.manifest_at(end)
    files: list[DivergedFile] = []
    room = _MOST_ROWS
    for path in sorted(now_by):
        if not all(_is_known(manifest, path) for manifest in (then, left, now)):
            continue
        before, here, there = (
            as_file(then.get(path)),
            as_file(now.get(path)),
            as_file(left.get(path)),
        )
        if before == here == there:
            continue
        compared = texts if len(files) < _MOST_FILES_COMPARED else None
        other_side = _side(compared, before, there, left_by.get(path, ()), room)
        room -= _n_rows(other_side)
        if here == there:
            this_side = SideChange(other_side.outcome, _authors(now_by[path]), other_side.diff)
        else:
            this_side = _side(compared, before, here, now_by[path], room)
            room -= _n_rows(this_side)
        files.append(DivergedFile(path, other_side, this_side, alike=here == there))
    return Divergence(tuple(files), tuple(log.notes_at(end)))


def _is_known(manifest: Mapping[str, ManifestEntry], path: str) -> bool:
    """Return whether the contents of a path, or its absence, are known."""
    entry = manifest.get(path)
    return was_looked_for(manifest, path) if entry is None else entry.is_known


def _side(
    texts: StoredTexts | None,
    before: ManifestEntry | None,
    after: ManifestEntry | None,
    by: Sequence[By],
    room: int,
) -> SideChange:
    if before == after:
        return SideChange("same")
    outcome: Outcome = "new" if before is None else "gone" if after is None else "changed"
    diff = texts.compared(before, after, max(0, room)) if texts is not None else None
    return SideChange(outcome, _authors(by), diff)


def _authors(by: Sequence[By]) -> Authors:
    """Return who changed a file since its last restore."""
    since = by[len(by) - by[::-1].index("restore") :] if "restore" in by else by
    if not since or FOREIGN.isdisjoint(since):
        return "agent"
    return "others" if FOREIGN.issuperset(since) else "both"


def _n_rows(side: SideChange) -> int:
    return 0 if side.diff is None else len(side.diff.rows)
