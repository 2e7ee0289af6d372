"""The rules of `.gitignore` against git itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kimi_tui.workspace.entries import Limits
from kimi_tui.workspace.scan import Scanner
from kimi_tui.workspace.store import BlobStore

TREE = [
    "a.py", "a.pyc", "b.txt", "sub/c.txt", "sub/d.log", "sub/deep/e.txt", "sub/deep/f.py",
    "build/x.o", "build/keep", "build/in/y.o", "vendor/m/n.go", "vendor/m/.keep", "vendor/top.txt",
    "node_modules/p/index.js", "doc/build/z", "doc/foo", "foo/bar", "dir/foo/baz", "we ird/na me.txt",
    "#hash", "!bang", "x[1].txt", "x1.txt", "trailing ", ".hidden/f", ".env",
]  # fmt: skip

RULES = [
    "*.pyc\n", "build/\n", "/build\n", "build/**\n!build/keep\n", "*\n!*/\n!*.txt\n",
    "/vendor/**\n!/vendor/**/\n!/vendor/**/.keep\n", "foo\n", "foo/\n", "/foo\n", "doc/*\n!doc/foo\n",
    "**/deep\n", "sub/**/f.py\n", "\\#hash\n", "\\!bang\n", "x[1].txt\n", "trailing\\ \n", "a?py\n",
    "# a comment\n\n*.log  \n", "*.txt\n!b.txt\n", "a\\\n*.py\n", "/*\n!/sub\n/sub/*\n!/sub/deep\n",
    "node_modules\n.env\n", "sub/\n!sub/c.txt\n", "*.txt\r\n!b.txt\r\n", "",
]  # fmt: skip


def grow(root: Path) -> None:
    for name in TREE:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def seen(root: Path, store: Path) -> set[str]:
    scan = Scanner(str(root), BlobStore(store, 1 << 30), Limits()).scan()
    return {path for path, entry in scan.manifest.items() if entry.kept}


def by_git(root: Path) -> set[str]:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=environ)
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "-o", "--exclude-standard"],
        check=True, capture_output=True, env=environ,
    ).stdout  # fmt: skip
    return {os.fsdecode(name) for name in listing.split(b"\0") if name}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle here")
@pytest.mark.parametrize("rules", RULES, ids=repr)
def test_top_rules_agree_with_git(tmp_path: Path, rules: str) -> None:
    root = tmp_path / "work"
    grow(root)
    (root / ".gitignore").write_text(rules, newline="")
    assert seen(root, tmp_path / "store") == by_git(root)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle here")
def test_a_deeper_file_wins(tmp_path: Path) -> None:
    root = tmp_path / "work"
    grow(root)
    (root / ".gitignore").write_text("*.txt\n/sub/deep/\n")
    (root / "sub/.gitignore").write_text("!c.txt\n/d.log\n")
    (root / "sub/deep/.gitignore").write_text("!*\n")
    assert seen(root, tmp_path / "store") == by_git(root)
