"""A patch is what git writes, and `git apply` makes the files after it of the files before it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_tui.workspace import patch
from kimi_tui.workspace.manifest import ManifestEntry
from kimi_tui.workspace.patch import find_pairs, patch_file, quoted, similarity, with_renames

Files = dict[str, tuple[str, bytes]]
"""Mode and contents by path; the mode of a link is `l`."""


class Two:
    """Two states of a folder."""

    def __init__(self, before: Files, after: Files) -> None:
        self._contents: dict[str, bytes] = {}
        self.was_read: list[str] = []
        self.before, self.after = self._manifest(before), self._manifest(after)

    def _manifest(self, files: Files) -> dict[str, ManifestEntry]:
        found: dict[str, ManifestEntry] = {}
        for path, (mode, content) in files.items():
            blob = hashlib.sha256(content).hexdigest()
            self._contents[blob] = content
            kind = "link" if mode == "l" else "file"
            found[path] = ManifestEntry(kind, blob, {"x": 0o755}.get(mode, 0o644), len(content))
        return found

    def patch(self) -> bytes:
        pairs, left = find_pairs(self.before, self.after, {*self.before, *self.after})
        assert not left
        return b"".join(patch_file(one, self.read).text for one in with_renames(pairs, self.read))

    def read(self, entry: ManifestEntry) -> bytes:
        self.was_read.append(entry.blob)
        return self._contents[entry.blob]

    def renames(self) -> dict[str, str]:
        """The new paths of the files that were renamed, by their old ones."""
        pairs, _ = find_pairs(self.before, self.after, {*self.before, *self.after})
        found = with_renames(pairs, self.read)
        return {one.old_path: one.path for one in found if one.status == "renamed"}


def put(folder: Path, files: Files) -> None:
    for path, (mode, content) in files.items():
        file = Path(os.fsdecode(os.fsencode(folder) + b"/" + os.fsencode(path)))
        file.parent.mkdir(parents=True, exist_ok=True)
        if mode == "l":
            os.symlink(content, os.fsencode(file))
        else:
            file.write_bytes(content)
            file.chmod(0o755 if mode == "x" else 0o644)


def got(folder: Path) -> Files:
    found: Files = {}
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*names, *(one for one in folders if Path(top, one).is_symlink())]:
            file = Path(top, name)
            path = file.relative_to(folder).as_posix()
            if file.is_symlink():
                found[path] = ("l", os.fsencode(os.readlink(file)))
            else:
                found[path] = ("x" if file.stat().st_mode & 0o100 else "f", file.read_bytes())
    return found


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environ, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stderr, stdin)
    return done.stdout


LINES = b"".join(b"line %d\n" % n for n in range(40))
EDITED = LINES.replace(b"line 7\n", b"line seven\n").replace(b"line 30\n", b"")
BINARY = bytes(range(256)) * 5
BEFORE: Files = {
    "same": ("f", b"same\n"),
    "edited.py": ("f", b"def one():\n" + LINES),
    "mode.sh": ("f", b"#!/bin/sh\n"),
    "mode and text": ("x", b"a\nb\n"),
    "gone": ("f", b"gone\n"),
    "no newline": ("f", b"a\nb"),
    "newline goes": ("f", b"a\nb\n"),
    "binary": ("f", BINARY),
    "binary goes": ("f", b"\0" * 100),
    "old/name.py": ("f", LINES * 2),
    "old/edited name.py": ("f", LINES),
    "link": ("l", b"same"),
    "file to link": ("f", b"text\n"),
    "link to file": ("l", b"nowhere"),
    "folder/file": ("f", b"1\n"),
    "file": ("f", b"to a folder\n"),
    "crlf": ("f", b"a\r\nb\r\n"),
    "latin": ("f", b"caf\xe9\n"),
    "tab\tname": ("f", b"1\n"),
}
AFTER: Files = {
    "same": ("f", b"same\n"),
    "edited.py": ("f", b"def one():\n" + EDITED),
    "mode.sh": ("x", b"#!/bin/sh\n"),
    "mode and text": ("f", b"a\nB\n"),
    "new empty": ("x", b""),
    'new "quoted" \\ name': ("f", b"x\n"),
    "new\nline": ("f", b"x\n"),
    "grün/ü": ("f", b"x"),
    "no newline": ("f", b"a\nb\n"),
    "newline goes": ("f", b"a\nb"),
    "binary": ("f", BINARY[:-7] + b"\1\2"),
    "binary new": ("f", b"\0" + b"z" * 53),
    "new/name.py": ("x", LINES * 2),
    "new/edited name.py": ("f", EDITED),
    "link": ("l", b"edited.py"),
    "file to link": ("l", b"same"),
    "link to file": ("f", b"text\n"),
    "folder": ("f", b"a file now\n"),
    "file/inside": ("f", b"1\n"),
    "crlf": ("f", b"a\r\nB\r\n"),
    "latin": ("f", b"caf\xe9s\n"),
    "tab\tname": ("f", b"2\n"),
}


@pytest.mark.parametrize("way", ["forward", "back"])
def test_git_applies_a_patch_of_everything(tmp_path: Path, way: str) -> None:
    one, other = (BEFORE, AFTER) if way == "forward" else (AFTER, BEFORE)
    put(tmp_path, one)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "apply", "--index", "-", stdin=Two(one, other).patch())
    assert got(tmp_path) == other


def test_a_patch_is_what_git_writes(tmp_path: Path) -> None:
    put(tmp_path, BEFORE)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x")
    git(tmp_path, "rm", "-rq", ".")
    put(tmp_path, AFTER)
    git(tmp_path, "add", "-A")
    theirs = git(tmp_path, "diff", "--cached", "--full-index", "--binary", "-M", "HEAD")

    def parts(patch: bytes) -> list[bytes]:
        # git may write binary contents as the difference to the former ones.
        return sorted(one.split(b"GIT binary patch")[0] for one in patch.split(b"diff --git "))

    assert parts(Two(BEFORE, AFTER).patch()) == parts(theirs)


def test_names_are_quoted_as_git_does() -> None:
    assert quoted("a/", "with space.py") == b"a/with space.py"
    assert quoted("a/", 'ü"\n\x1b') == b'"a/\\303\\274\\"\\n\\033"'
    assert quoted("", "\udcff") == b'"\\377"'


def test_what_is_not_known_is_left_out_with_its_reason() -> None:
    two = Two({"a": ("f", b"1")}, {})
    two.before["b"] = ManifestEntry("secret")
    two.after |= {"b": ManifestEntry("file", "0" * 64), "c": ManifestEntry("large")}
    pairs, left = find_pairs(two.before, two.after, {"a", "b", "c"})
    assert [one.path for one in pairs] == ["a"]
    assert left == [("b", "it may contain secrets"), ("c", "it is too large for snapshots")]


def test_a_file_with_few_equal_lines_is_not_renamed() -> None:
    assert similarity(LINES, EDITED) > 0.9
    two = Two({"a": ("f", LINES)}, {"b": ("f", LINES[:40] + b"other\n" * 50)})
    assert b"rename" not in two.patch()


def test_a_file_that_kept_exactly_half_of_its_bytes_is_renamed_as_in_git(tmp_path: Path) -> None:
    before: Files = {"a": ("f", LINES), "x/b": ("f", b"kept\n" * 20 + b"gone\n" * 20)}
    after: Files = {"c": ("f", LINES * 2), "x/d": ("f", b"kept\n" * 20 + b"came\n" * 20)}
    put(tmp_path, before)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x")
    git(tmp_path, "rm", "-rq", ".")
    put(tmp_path, after)
    git(tmp_path, "add", "-A")
    theirs = git(tmp_path, "diff", "--cached", "--name-status", "-M", "HEAD").split(b"\n")
    assert [one.split(b"\t")[0] for one in theirs if one] == [b"R050", b"R050"]
    assert Two(before, after).renames() == {"a": "c", "x/b": "x/d"}


def test_a_file_is_renamed_once_and_to_the_path_that_is_most_like_it() -> None:
    near, far = b"1\n" + EDITED, EDITED[: len(EDITED) * 3 // 4]
    assert Two({"a": ("f", LINES)}, {"b": ("f", far), "c": ("f", near)}).renames() == {"a": "c"}
    assert Two({"b": ("f", far), "c": ("f", near)}, {"a": ("f", LINES)}).renames() == {"c": "a"}


def test_links_and_empty_files_are_not_renamed_by_likeness() -> None:
    one, other = b"a/long/way/down/to/here", b"a/long/way/down/to/there"
    for old, new in ("ll", "lf", "fl"):
        assert not Two({"a": (old, LINES)}, {"b": (new, EDITED)}).renames()
    assert Two({"a": ("l", one)}, {"b": ("l", one), "c": ("l", other)}).renames() == {"a": "b"}
    assert not Two({"a": ("f", b"")}, {"b": ("f", b"")}).renames()


def test_only_the_contents_of_files_of_a_like_size_are_read_and_each_once() -> None:
    short, more = ("f", LINES[: len(LINES) // 3]), ("f", EDITED + b"more\n")
    two = Two({"a": ("f", LINES), "short": short}, {"b": ("f", EDITED), "c": more})
    assert two.renames() == {"a": "b"}
    read = {two.before["a"].blob, two.after["b"].blob, two.after["c"].blob}
    assert sorted(two.was_read) == sorted(read)


def test_beyond_a_number_of_pairs_no_contents_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "_MOST_PAIRS", 2)
    after: Files = {"b": ("f", EDITED), "c": ("f", b"x" + EDITED)}
    assert Two({"a": ("f", LINES)}, after).renames() == {"a": "b"}
    two = Two({"a": ("f", LINES)}, {**after, "d": ("f", b"y" + EDITED)})
    assert not two.renames()
    assert not two.was_read


texts = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"a", b"\0"]), max_size=12).map(
    b"".join
)
contents = st.tuples(st.sampled_from("fx"), texts)
folders = st.dictionaries(st.sampled_from(["a", "b", "d e", "f/g", "f/h"]), contents, max_size=5)


@settings(max_examples=min(100, 2 * settings().max_examples))
@given(before=folders, after=folders)
def test_git_applies_any_patch(
    tmp_path_factory: pytest.TempPathFactory, before: Files, after: Files
) -> None:
    folder = tmp_path_factory.mktemp("any")
    put(folder, before)
    if patch := Two(before, after).patch():
        git(folder, "apply", "-", stdin=patch)
    assert got(folder) == after
