"""The rules of `.gitignore` against git itself."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from kimi_tui.workspace.ignore import (
    MOST_EXPRESSIONS,
    IgnoreFile,
    IgnoreStack,
    is_of_version_control,
)
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.scan import Scanner
from kimi_tui.workspace.store import BlobStore

TREE = [
    "a.py", "a.pyc", "b.txt", "sub/c.txt", "sub/d.log", "sub/deep/e.txt", "sub/deep/f.py",
    "build/x.o", "build/keep", "build/in/y.o", "vendor/m/n.go", "vendor/m/.keep", "vendor/top.txt",
    "node_modules/p/index.js", "doc/build/z", "doc/foo", "foo/bar", "dir/foo/baz", "we ird/na me.txt",
    "#hash", "!bang", "x[1].txt", "x1.txt", "trailing ", ".hidden/f", ".dotted",
]  # fmt: skip

RULES = [
    "*.pyc\n", "build/\n", "/build\n", "build/**\n!build/keep\n", "*\n!*/\n!*.txt\n",
    "/vendor/**\n!/vendor/**/\n!/vendor/**/.keep\n", "foo\n", "foo/\n", "/foo\n", "doc/*\n!doc/foo\n",
    "**/deep\n", "sub/**/f.py\n", "\\#hash\n", "\\!bang\n", "x[1].txt\n", "trailing\\ \n", "a?py\n",
    "# a comment\n\n*.log  \n", "*.txt\n!b.txt\n", "a\\\n*.py\n", "/*\n!/sub\n/sub/*\n!/sub/deep\n",
    "node_modules\n.dotted\n", "sub/\n!sub/c.txt\n", "*.txt\r\n!b.txt\r\n", "",
    "[[:alpha:]].txt\n", "[[:]a].py\n", "[!a-z]*\n", "[]x]*\n", "x[[]1].txt\n", "[a\n*.py\n", "?.??\n", "***/deep\n", "/**/e.txt\n",
    "sub/**\n!sub/deep\n", "**/in/**\n", "s?b/[cd].*\n", "\ufeff*.txt\n", "*.txt\t\n", "[[:nonsense:]]*\n", "a.[^p]*\n",
    "build/*\n!build/i*\n", "*a*.*t*\n", "n*e_m*s/p\n", "trailing   \\ \n", "/*/deep/\n", "\\*\n", "b.tx\\t\n",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in (".git", ".GIT ", ".git:stream", "git~1", "a\\.hg", ".svn.")),
        *((name, False) for name in ("git", ".gitignore", "x:.git", "git~", "a\\b", "a~1")),
    ],
)
def test_folders_of_version_control_by_any_name(name: str, is_one: bool) -> None:
    assert is_of_version_control(name) == is_one


@pytest.mark.parametrize(
    ("rule", "name", "is_ignored"),
    [
        # What ends no class of characters is a set of them; git reads it so.
        *(("[[:]a", name, True) for name in ("[a", ":a")),
        *(("[[:digit:]]a", "1a", True), ("[[:digit:]]a", "xa", None), ("[[:]a", "1a", None)),
    ],
)
def test_sets_and_classes_of_characters(rule: str, name: str, is_ignored: bool | None) -> None:
    assert IgnoreFile(f"{rule}\n").verdict(name, is_folder=False) is is_ignored


def grow(root: Path) -> None:
    for name in TREE:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def seen(root: Path, store: Path) -> set[str]:
    scanner = Scanner(str(root), BlobStore(store, 1 << 30), Limits())
    scanner.scan()
    return {path for path, entry in scanner.manifest.items() if entry.kept}


def by_git(root: Path) -> set[str]:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=environ)
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "-o", "--exclude-standard"],
        check=True, capture_output=True, env=environ,
    ).stdout  # fmt: skip
    return {os.fsdecode(name) for name in listing.split(b"\0") if name}


@pytest.mark.sample(11)
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


PIECES = [
    "a",
    "b",
    ".",
    "*",
    "?",
    "[ab]",
    "[!a]",
    "\\a",
    "x",
    "/",
    "/**/",
    "**/",
    "[[:alpha:]]",
    "-",
]


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle here")
def test_patterns_by_chance_agree_with_git(tmp_path: Path) -> None:
    chance = random.Random(7)
    root = tmp_path / "work"
    names = ["a", "b", "ab", "a.b", ".a", "x-a", "aab", "é", "[ab]"]
    for _ in range(60):
        path = root.joinpath(*chance.choices(names, k=chance.randint(1, 3)))
        if not any(above.is_file() for above in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    for _ in range(80):
        rules = "".join(
            "".join([chance.choice(["", "", "!", "/"]), *chance.choices(PIECES, k=4), "\n"])
            for _ in range(3)
        )
        # Git takes what stands before the first wildcard of a path apart, so that `a**/b` is something else to it.
        if "a**" in rules or "b**" in rules or "x**" in rules or "-**" in rules or ".**" in rules:
            continue
        (root / ".gitignore").write_text(rules)
        assert walked(root) == by_git(root), rules


def walked(root: Path) -> set[str]:
    """Return the files that a walk through all folders keeps by the rules at the top."""
    stack = IgnoreStack().entered("", IgnoreFile((root / ".gitignore").read_text()))
    found: set[str] = set()
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        for item in os.scandir(root / folder):
            path = f"{folder}{item.name}"
            if not stack.ignores(path, is_folder=item.is_dir()):
                if item.is_dir():
                    waiting.append(f"{path}/")
                else:
                    found.add(path)
    return found


def cpu_s(rules: IgnoreFile, path: str) -> float:
    started = time.process_time()
    for _ in range(20):
        rules.verdict(path, is_folder=False)
    return time.process_time() - started


@pytest.mark.parametrize(
    "rule", ["*a" * 40 + "b", "**/*a*a*a*a*a*a*/b", "**/a/" * 30 + "b", "*" * 500 + "b?", "*?" * 60 + "b"]
)  # fmt: skip
def test_a_hostile_rule_takes_no_longer_than_its_length_says(rule: str) -> None:
    rules = IgnoreFile(rule)
    short, long = cpu_s(rules, "a" * 60 + "/a" * 30), cpu_s(rules, "a" * 240 + "/a" * 120)
    # Four times the text: twenty would be nearly cubic. A backtracking one never came back at all.
    assert long < 20 * short + 0.05


@pytest.mark.exhaustive
def test_twenty_thousand_rules_are_bounded() -> None:
    names = IgnoreFile("\n".join(f"name{number}" for number in range(20_000)))
    assert names.n_expressions == 0
    assert names.verdict("deep/name17777", is_folder=False) is True
    endings = IgnoreFile("\n".join(f"*.e{number}" for number in range(20_000)))
    assert endings.n_expressions == 0
    assert endings.verdict("x.e19999", is_folder=False) is True
    others = IgnoreFile("\n".join(f"r?{number}" for number in range(20_000)))
    assert others.n_expressions <= MOST_EXPRESSIONS
    # The last ones count, as they do where all of them do.
    assert others.verdict("rx19999", is_folder=False) is True
    assert others.verdict("rx1", is_folder=False) is None
    stack = IgnoreStack().entered("", others)
    inner = IgnoreFile("in?er\n", stack.room)
    assert stack.entered("in", inner).room == max(0, MOST_EXPRESSIONS - others.n_expressions - 1)
