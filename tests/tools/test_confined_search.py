"""Searches in the sandbox: what links that change meanwhile lead to, what is found all the same, and what is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support.covered import search_sandbox
from support.tool_env import Bench

from kimi_tui.tools import grep
from kimi_tui.tools.file_list import FileList
from kimi_tui.tools.prepared import PreparedProcess
from kimi_tui.tools.sandbox import search
from kimi_tui.workspace import ignore

KEY = "needle in a key"
ROUNDS = min(50, settings().max_examples // 3)
"""How often each search is tried while links change: as with the examples of properties, few times but in `make test-all`."""
SWAPPER = """
import ctypes, os, sys
exchange = ctypes.CDLL(None, use_errno=True).renameat2
pairs = [(os.fsencode(one), os.fsencode(f"{one}.link")) for one in sys.argv[1:]]
print("begun", flush=True)
while True:
    for one, other in pairs:
        exchange(-100, one, -100, other, 2)
"""


@pytest.fixture(params=["landlock", "bwrap"])
def confined(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    bench.search_sandbox = search_sandbox(request.param)
    return bench


@pytest.fixture
def home(bench: Bench, tmp_path: Path) -> Path:
    """A home folder with keys in it."""
    home = tmp_path / "home"
    for name in (".ssh/id", ".ssh/own.txt", ".aws/credentials"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{KEY}\n")
    for name in ("notes/own.txt", "plain.txt"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("needle of mine\n")
    bench.environ["HOME"] = str(home)
    return home


@contextmanager
def swapping(folders: list[Path], target: Path) -> Iterator[None]:
    """Exchanges folders and links all the time."""
    for folder in folders:
        folder.with_name(f"{folder.name}.link").symlink_to(target)
    argv = [sys.executable, "-c", SWAPPER, *map(str, folders)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


async def raw_output(bench: Bench, **arguments: str) -> bytes:
    """Return the output of rg itself in a search, before anything is left out."""
    found: list[bytes] = []
    whole = grep._search  # pyright: ignore[reportPrivateUsage]

    async def heard(*rest: Any) -> grep.GrepOutput:
        told = await whole(*rest)
        found.append(told.output)
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grep, "_search", heard)
        await bench.run("Grep", pattern="needle", output_mode="content", **arguments)
    return b"".join(found)


def in_turns(bench: Bench) -> list[Path]:
    """Folders to be exchanged with links; in each of them a file of the name of one where the links lead."""
    folders = [bench.work_dir / "sub" / f"{number:02}" for number in range(40)]
    for folder in folders:
        bench.write(f"{folder}/own.txt", "needle of mine\n")
    return folders


@pytest.mark.sample
async def test_links_that_change_all_the_time_lead_to_no_key(confined: Bench, home: Path) -> None:
    with swapping(in_turns(confined), home / ".ssh"):
        for _ in range(ROUNDS):
            for path in (".", "sub"):
                assert KEY.encode() not in await raw_output(confined, path=path)


async def test_without_the_sandbox_they_do(bench: Bench, home: Path) -> None:
    """So that the test above can fail."""
    with swapping(in_turns(bench), home / ".ssh"):
        for _ in range(50):
            if KEY.encode() in await raw_output(bench, path="sub"):
                return
    raise AssertionError("no key was read")


@pytest.mark.sample
async def test_of_one_subfolder_nothing_beside_it_is_read(confined: Bench) -> None:
    confined.write("beside/own.txt", f"{KEY}\n")
    with swapping(in_turns(confined), confined.work_dir / "beside"):
        for _ in range(ROUNDS):
            assert KEY.encode() not in await raw_output(confined, path="sub")


@pytest.mark.sample
async def test_secrets_are_not_read_but_where_they_are_asked_for(
    confined: Bench, home: Path
) -> None:
    found = await raw_output(confined, path=str(home))
    assert found.count(b"needle of mine") == 2
    for path in (".ssh", ".ssh/id", ".aws/credentials"):
        outcome = await confined.run("Grep", pattern="needle", path=str(home / path))
        assert outcome.output.startswith(str(home / path)), path
    folders = [home / f"{number}" for number in range(40)]
    for folder in folders:
        folder.mkdir()
        (folder / "own.txt").write_text("needle of mine\n")
    with swapping(folders, home / ".ssh"):
        for _ in range(ROUNDS):
            assert KEY.encode() not in await raw_output(confined, path=str(home))


@pytest.mark.parametrize("where", ["work", "path"])
async def test_a_script_in_the_place_of_rg_does_not_even_start(
    where: str, confined: Bench, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rg = home.parent / "bin" / "rg"
    rg.parent.mkdir()
    rg.write_text(f"#!/bin/sh\necho ran > {home}/ran\nprintf './own.txt\\0001:%s\\n' ran\n")
    rg.chmod(0o755)
    if where == "path":
        monkeypatch.setattr(grep, "bundled_rg", lambda: None)
        confined.environ["PATH"] = str(rg.parent)
    else:
        monkeypatch.setattr(grep, "bundled_rg", lambda: str(rg))
    confined.write("own.txt", "needle\n")
    outcome = await confined.run("Grep", pattern="needle")
    assert (outcome.is_error, outcome.output) == (True, "")
    assert outcome.message.startswith("The search could not be run in the sandbox: ")
    assert "\n" not in outcome.message.strip()
    assert not (home / "ran").exists()
    confined.search_sandbox = None
    await confined.run("Grep", pattern="needle")
    assert (home / "ran").exists()


async def test_where_it_cannot_be_confined_it_is_not_run(
    confined: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    confined.write("own.txt", "needle\n")
    sandbox = confined.search_sandbox
    assert sandbox is not None
    monkeypatch.setattr(search, "__file__", str(confined.work_dir / "no" / "search.py"))
    # The prepared process has loaded what confines, so there it fails by a word that it does not know.
    real = grep.search_words
    monkeypatch.setattr(grep, "search_words", lambda *told: (["odd:word"], real(*told)[1]))
    for is_prepared in (True, False):
        if not is_prepared:
            monkeypatch.setattr(PreparedProcess, "search", lambda *_: None)
        outcome = await confined.run("Grep", pattern="needle")
        assert (outcome.is_error, outcome.brief, outcome.output) == (True, "no sandbox", "")
    assert outcome.message == "The search could not be run in the sandbox: it did not start"
    files = FileList(confined.work_dir, confined.environ, sandbox)
    files.paths = ["known"]
    await files.scan()
    assert files.paths == ["known"]


def world(work: Path) -> None:
    """A working tree of a repository elsewhere, in a repository, with rules at each place where there can be some."""
    outer = work.parent
    (work.parent / "main").mkdir()
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
    for arguments in (
        ("init", "-q"),
        ("commit", "-q", "--allow-empty", "-m", "1"),
        ("worktree", "add", "-q", "--detach", str(work / "tree")),
    ):
        subprocess.run([*git, *arguments], cwd=outer / "main", check=True, capture_output=True)
    rules = {
        outer / ".gitignore": "of-above\n",
        outer / ".ignore": "of-above-2\n",
        outer / "main/.git/info/exclude": "of-tree\n",
        outer / "home/.config/git/ignore": "of-home\n",
        work / ".rgignore": "of-work\n",
        work / "sub/.gitignore": "of-sub\n",
    }
    for path, text in rules.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = [text.strip() for text in rules.values()]
    for folder in ("", "sub", "sub/deep", "tree", "tree/sub", ".hidden"):
        for name in (*names, "own.txt", "own.py"):
            path = work / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("needle\n")


async def test_the_same_is_found_as_without(bench: Bench) -> None:
    world(bench.work_dir)
    bench.environ["HOME"] = str(bench.work_dir.parent / "home")
    sandboxes = (None, search_sandbox("landlock"), search_sandbox("bwrap"))
    (bench.work_dir / "link").symlink_to("sub")
    (bench.work_dir / "away").symlink_to(bench.work_dir.parent / "main")
    n_found: list[int] = []
    for arguments in (
        *({"path": path} for path in (".", "sub", "sub/deep", "tree", "tree/sub", ".hidden")),
        *(
            {"path": path}
            for path in ("sub/own.txt", "link", "link/own.py", "away", "tree/of-tree")
        ),
        {"path": str(bench.work_dir.parent)},
        {"glob": "*.py"},
        {"glob": "!sub/**", "path": "."},
        {"type": "py", "path": "tree"},
        {"type": "nosuch"},
        {"pattern": "("},
        {"output_mode": "content", "context": 1, "path": "sub"},
    ):
        told: list[tuple[str, str]] = []
        for bench.search_sandbox in sandboxes:
            outcome = await bench.run("Grep", **{"pattern": "needle", **arguments})
            told.append((outcome.output, outcome.message))
        assert told[0] == told[1] == told[2], arguments
        n_found.append(told[0][0].count("\n") + bool(told[0][0]))
    assert n_found[:6] == [18, 6, 3, 8, 4, 4]
    listed: list[list[str]] = []
    for one in sandboxes:
        files = FileList(bench.work_dir, bench.environ, one)
        await files.scan()
        listed.append(sorted(files.paths))
    assert listed[0] == listed[1] == listed[2] != []


async def test_rules_are_read_in_the_folder_that_was_opened(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("sub/own.txt", "")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / ".gitignore").write_text("*\n")
    sub, read_rules = bench.work_dir / "sub", ignore.read_rules

    def late(*arguments: Any, **more: Any) -> ignore.IgnoreFile | None:
        sub.rename(sub.with_name("moved"))
        sub.symlink_to(tmp_path / "others")
        try:
            return read_rules(*arguments, **more)
        finally:
            sub.unlink()
            sub.with_name("moved").rename(sub)

    monkeypatch.setattr(ignore, "read_rules", late)
    for pattern in ("sub/*.txt", "**/*.txt"):
        assert (await bench.run("Glob", pattern=pattern)).output == "sub/own.txt"
    assert (await bench.run("Glob", pattern="*", directory="sub")).output == "sub/own.txt"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
async def test_root_searches_what_others_closed(confined: Bench) -> None:
    path = confined.write("closed/own.txt", "needle\n")
    path.chmod(0o600)
    path.parent.chmod(0o700)
    for one in (path, path.parent):
        os.chown(one, 1234, 1234)
    assert (await confined.run("Grep", pattern="needle")).output == "closed/own.txt"
