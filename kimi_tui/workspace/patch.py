"""Differences of files as a patch in git's format, which `git apply` takes: lines, modes, links, renames and binary contents.

It works on bytes, as git does: no text is decoded for good, and nothing is left out of a patch but files whose contents are not
known; `FilePatch` is one file of it, `pair_files` finds which files belong together.
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from base64 import b85encode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kimi_tui.workspace.common_lines import common_lines, split_lines
from kimi_tui.workspace.manifest import Manifest, ManifestEntry, was_looked_for

_CONTEXT_LINES = 3
_PROBE_BYTES = 8_000
"""The bytes in which git looks for a zero byte, which makes a file binary."""
_MOST_TEXT_BYTES = 32 << 20
"""Larger files are written whole, as binary ones are."""
_ALIKE = 0.5
"""The share of its bytes that a file keeps when it counts as renamed, which is git's."""
_MOST_PAIRS = 2_500
"""Pairs of a removed and a new file whose contents are compared."""
_MOST_ALIKE_BYTES = 2 << 20
_CHUNK = re.compile(rb"[^\n]{0,63}\n|[^\n]{1,64}")
_NO_BLOB = "0" * 40
_LINK_MODE = "120000"
_BINARY_LINE = 52
_HEADING = re.compile(r"[A-Za-z_$]")
_HEADING_CHARS = 80
_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}

Status = Literal["new", "gone", "changed", "renamed"]
Read = Callable[[ManifestEntry], bytes]
"""Returns the contents of an entry that is kept."""


class FilePair(NamedTuple):
    """A file before and after; an entry is None where there was no file. The paths differ if it was renamed."""

    old_path: str
    old: ManifestEntry | None
    path: str
    new: ManifestEntry | None

    @property
    def status(self) -> Status:
        """The kind of the change."""
        if self.old is None:
            return "new"
        if self.new is None:
            return "gone"
        return "changed" if self.old_path == self.path else "renamed"


class LeftOut(NamedTuple):
    """A file that changed or may have changed, and whose contents are not known: its path, and why."""

    path: str
    why: str


_WHY_LEFT_OUT = {
    "secret": "it may contain secrets",
    "large": "it is too large for snapshots",
    "ignored": "file snapshots ignore it",
    "special": "it is not a regular file",
    "unreadable": "it could not be read",
    "over": "there were too many files for a snapshot",
}


def find_pairs(
    before: Manifest, after: Manifest, paths: Collection[str]
) -> tuple[list[FilePair], list[LeftOut]]:
    """Return the files that differ, in order of their paths, and those whose difference is not known.

    A file that became a link, or a link that became a file, is removed and made anew, as in git.

    Args:
        before: the files before.
        after: the files after.
        paths: the paths that may differ.
    """
    pairs: list[FilePair] = []
    left_out: list[LeftOut] = []
    for path in sorted(paths):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        why = _unknown(before, path, old) or _unknown(after, path, new)
        if why:
            left_out.append(LeftOut(path, why))
            continue
        # git knows no empty folders, and of the permissions only whether the owner may execute a file.
        then, now = (one if one and one.kept else None for one in (old, new))
        if _identity(then) == _identity(now):
            continue
        if then and now and then.kind != now.kind:
            pairs += [FilePair(path, then, path, None), FilePair(path, None, path, now)]
        else:
            pairs.append(FilePair(path, then, path, now))
    return pairs, left_out


def _unknown(manifest: Manifest, path: str, entry: ManifestEntry | None) -> str:
    if entry is None:
        return "" if was_looked_for(manifest, path) else _WHY_LEFT_OUT["over"]
    return "" if entry.is_known else _WHY_LEFT_OUT.get(entry.kind, "its contents are not known")


def _identity(entry: ManifestEntry | None) -> tuple[str, str]:
    return (git_mode(entry), entry.blob) if entry is not None else ("", "")


def git_mode(entry: ManifestEntry) -> str:
    """Return the mode that git stores for a file or a link."""
    if entry.kind == "link":
        return _LINK_MODE
    return "100755" if entry.mode & 0o100 else "100644"


# -- renames -------------------------------------------------------------------------------------


def with_renames(pairs: Sequence[FilePair], read: Read) -> list[FilePair]:
    """Join removed and new files that are the same file under another name: with the same contents, or with half of them."""
    gone = {one.path: one for one in pairs if one.old and not one.new}
    made = {one.path: one for one in pairs if one.new and not one.old}
    # A path that is removed and made anew changed its kind.
    for path in gone.keys() & made.keys():
        del gone[path], made[path]
    joined = dict(_same_contents(gone, made))
    for source, target in joined.items():
        del gone[source], made[target]
    joined |= _alike(gone, made, read)
    sources = {target: source for source, target in joined.items()}
    olds = {one.path: one.old for one in pairs if one.path in joined and one.new is None}
    found: list[FilePair] = []
    for one in pairs:
        if one.new is None and one.path in joined:
            continue
        if one.old is None and one.path in sources:
            source = sources[one.path]
            found.append(FilePair(source, olds[source], one.path, one.new))
        else:
            found.append(one)
    return found


def _same_contents(
    gone: Mapping[str, FilePair], made: Mapping[str, FilePair]
) -> Iterator[tuple[str, str]]:
    by_blob: dict[tuple[str, str], list[str]] = {}
    for path, one in gone.items():
        # An empty file has the contents of every other empty file.
        if one.old is not None and one.old.size:
            by_blob.setdefault((one.old.kind, one.old.blob), []).append(path)
    for path, one in made.items():
        if one.new is not None and (sources := by_blob.get((one.new.kind, one.new.blob))):
            name = path.rpartition("/")[2]
            source = min(sources, key=lambda it: (it.rpartition("/")[2] != name, it))
            sources.remove(source)
            yield source, path


def _alike(
    gone: Mapping[str, FilePair], made: Mapping[str, FilePair], read: Read
) -> dict[str, str]:
    if not gone or not made or len(gone) * len(made) > _MOST_PAIRS:
        return {}
    olds = {path: one.old for path, one in gone.items() if one.old and _is_comparable(one.old)}
    news = {path: one.new for path, one in made.items() if one.new and _is_comparable(one.new)}
    chunks: dict[str, Counter[bytes]] = {}

    def of(entry: ManifestEntry) -> Counter[bytes]:
        if entry.blob not in chunks:
            chunks[entry.blob] = _chunks(read(entry))
        return chunks[entry.blob]

    scores: list[tuple[float, bool, str, str]] = []
    for path, new in news.items():
        name = path.rpartition("/")[2]
        for source, old in olds.items():
            if min(old.size, new.size) < _ALIKE * max(old.size, new.size):
                continue
            score = _score(of(old), of(new), max(old.size, new.size))
            if score >= _ALIKE:
                scores.append((-score, source.rpartition("/")[2] != name, source, path))
    found: dict[str, str] = {}
    for _, _, source, path in sorted(scores):
        if source not in found and path not in found.values():
            found[source] = path
    return found


def _is_comparable(entry: ManifestEntry) -> bool:
    return entry.kind == "file" and 0 < entry.size <= _MOST_ALIKE_BYTES


def similarity(old: bytes, new: bytes) -> float:
    """Return the share of bytes that two contents have in common, from 0 to 1, counted in lines of at most 64 bytes as in git."""
    if old == new:
        return 1.0
    if not old or not new:
        return 0.0
    return _score(_chunks(old), _chunks(new), max(len(old), len(new)))


def are_alike(old: bytes, new: bytes) -> bool:
    """Return whether one file may be the other one, edited."""
    is_near = 2 * min(len(old), len(new)) >= max(len(old), len(new))
    return (
        is_near and max(len(old), len(new)) <= _MOST_ALIKE_BYTES and similarity(old, new) >= _ALIKE
    )


def _chunks(content: bytes) -> Counter[bytes]:
    return Counter(_CHUNK.findall(content))


def _score(old: Counter[bytes], new: Counter[bytes], size: int) -> float:
    return sum(len(one) * min(n, new[one]) for one, n in old.items() if one in new) / size


# -- one file ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilePatch:
    """The difference of one file.

    Attributes:
        pair: the file.
        added: the number of added lines; 0 for a binary file.
        removed: the number of removed lines; 0 for a binary file.
        is_binary: whether it has no lines.
        old_bytes: the size before, in bytes.
        new_bytes: the size after, in bytes.
        text: its part of the patch.
    """

    pair: FilePair
    added: int
    removed: int
    is_binary: bool
    old_bytes: int
    new_bytes: int
    text: bytes


def patch_file(pair: FilePair, read: Read) -> FilePatch:
    """Return the difference of a file.

    Args:
        pair: the file.
        read: returns the contents of an entry; what it raises is not caught.
    """
    old = read(pair.old) if pair.old else b""
    new = read(pair.new) if pair.new else b""
    is_binary = old != new and (_is_binary(old) or _is_binary(new))
    added = removed = 0
    body = b""
    if is_binary:
        body = _binary_body(old, new)
    elif old != new:
        lines = _LineChanges(old, new)
        added, removed = lines.added, lines.removed
        body = _names(pair) + lines.hunks()
    text = _head(pair, old, new, is_binary=is_binary) + body
    return FilePatch(pair, added, removed, is_binary, len(old), len(new), text)


def _is_binary(content: bytes) -> bool:
    return b"\0" in content[:_PROBE_BYTES] or len(content) > _MOST_TEXT_BYTES


def quoted(prefix: str, path: str) -> bytes:
    """Return a path as git writes it: in quotes where it has signs that a reader could take for something else."""
    name = prefix.encode() + os.fsencode(path)
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in name):
        return name
    return b'"' + b"".join(map(_escaped, name)) + b'"'


def _escaped(byte: int) -> bytes:
    if byte in _ESCAPES:
        return b"\\" + _ESCAPES[byte].encode()
    return b"%c" % byte if 32 <= byte < 127 else b"\\%03o" % byte


def _head(pair: FilePair, old: bytes, new: bytes, *, is_binary: bool) -> bytes:
    lines = [b"diff --git " + quoted("a/", pair.old_path) + b" " + quoted("b/", pair.path)]
    mode = ""
    match pair.old, pair.new:
        case None, ManifestEntry() as entry:
            lines.append(b"new file mode " + git_mode(entry).encode())
        case ManifestEntry() as entry, None:
            lines.append(b"deleted file mode " + git_mode(entry).encode())
        case ManifestEntry() as one, ManifestEntry() as other:
            mode = git_mode(other)
            if git_mode(one) != mode:
                lines += [b"old mode " + git_mode(one).encode(), b"new mode " + mode.encode()]
                mode = ""
        case _:
            pass
    if pair.status == "renamed":
        share = b"%d" % int(100 * similarity(old, new))
        lines += [
            b"similarity index " + share + b"%",
            b"rename from " + quoted("", pair.old_path),
            b"rename to " + quoted("", pair.path),
        ]
    blobs = [
        _NO_BLOB if entry is None else blob_name(content)
        for entry, content in ((pair.old, old), (pair.new, new))
    ]
    if blobs[0] != blobs[1]:
        lines.append(f"index {blobs[0]}..{blobs[1]} {mode}".rstrip().encode())
    return b"".join(line + b"\n" for line in lines)


def blob_name(content: bytes, algorithm: str = "sha1") -> str:
    """Return the name that git gives to contents, in a repository with that algorithm."""
    named = b"blob %d\0" % len(content) + content
    return hashlib.new(algorithm, named, usedforsecurity=False).hexdigest()


def _names(pair: FilePair) -> bytes:
    """Return the lines with the names before the hunks; a tab ends a name with a space."""

    def name(prefix: str, path: str, entry: ManifestEntry | None) -> bytes:
        if entry is None:
            return b"/dev/null"
        return quoted(prefix, path) + b"\t" * (" " in path)

    old, new = name("a/", pair.old_path, pair.old), name("b/", pair.path, pair.new)
    return b"--- " + old + b"\n+++ " + new + b"\n"


def _binary_body(old: bytes, new: bytes) -> bytes:
    return b"GIT binary patch\n" + _literal(new) + _literal(old)


def _literal(content: bytes) -> bytes:
    packed = zlib.compress(content)
    lines = [b"literal %d\n" % len(content)]
    for start in range(0, len(packed), _BINARY_LINE):
        piece = packed[start : start + _BINARY_LINE]
        size = b"%c" % (64 + len(piece) if len(piece) <= 26 else 70 + len(piece))
        lines.append(size + b85encode(piece, pad=True) + b"\n")
    return b"".join([*lines, b"\n"])


class _LineChanges:
    """The changed lines of two texts. One character stands for each byte."""

    def __init__(self, old: bytes, new: bytes) -> None:
        before, after = old.decode("latin-1"), new.decode("latin-1")
        self._old, self._new = split_lines(before), split_lines(after)
        self._changes: list[tuple[int, int, int, int]] = []
        i = j = 0
        for run in common_lines(before, after, len(self._old)):
            if (i, j) != (run.old, run.new):
                self._changes.append((i, run.old, j, run.new))
            i, j = run.old + run.n, run.new + run.n
        self.added = sum(j2 - j1 for _, _, j1, j2 in self._changes)
        self.removed = sum(i2 - i1 for i1, i2, _, _ in self._changes)

    def hunks(self) -> bytes:
        """Return the hunks, with lines around the changes."""
        parts: list[str] = []
        looked_to, heading = 0, ""
        for group in self._groups():
            i1, j1 = group[0][0], group[0][2]
            before = min(_CONTEXT_LINES, i1)
            i2, j2 = group[-1][1], group[-1][3]
            after = min(_CONTEXT_LINES, len(self._old) - i2)
            start, end = i1 - before, i2 + after
            for line in reversed(self._old[looked_to:start]):
                if _HEADING.match(line):
                    heading = line.rstrip()[:_HEADING_CHARS]
                    break
            looked_to = start
            old_range = _range(start, end)
            new_range = _range(j1 - before, j2 + after)
            parts.append(f"@@ -{old_range} +{new_range} @@{' ' * bool(heading)}{heading}\n")
            at = start
            for o1, o2, n1, n2 in group:
                parts += [_row(" ", line) for line in self._old[at:o1]]
                parts += [_row("-", line) for line in self._old[o1:o2]]
                parts += [_row("+", line) for line in self._new[n1:n2]]
                at = o2
            parts += [_row(" ", line) for line in self._old[at:end]]
        return "".join(parts).encode("latin-1")

    def _groups(self) -> Iterator[list[tuple[int, int, int, int]]]:
        group: list[tuple[int, int, int, int]] = []
        for change in self._changes:
            if group and change[0] - group[-1][1] > 2 * _CONTEXT_LINES:
                yield group
                group = []
            group.append(change)
        if group:
            yield group


def _range(start: int, end: int) -> str:
    n = end - start
    if n == 1:
        return f"{start + 1}"
    return f"{start + 1 if n else start},{n}"


def _row(sign: str, line: str) -> str:
    return (
        f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
    )
