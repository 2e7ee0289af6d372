"""The paths that are offered for a text typed after an @, and their order."""

from __future__ import annotations

import os
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from kimi_tui.tools import file_list
from kimi_tui.tools.file_list import FileList


def make(root: Path, *paths: str) -> None:
    """Files, each a second newer than the one before."""
    for age, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
        os.utime(root / path, (1_000_000 + age, 1_000_000 + age))


async def test_newest_first_and_without_what_is_ignored(tmp_path: Path) -> None:
    make(tmp_path, "old/app.py", ".github/ci.yml", "new/deep/view.py", "out.log", ".git/config")
    (
        tmp_path
        / "bad\udcff.txt".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    ).write_text("")
    (tmp_path / "two\nlines").write_text("")
    (tmp_path / ".gitignore").write_text("*.log\n")
    os.utime(tmp_path / ".gitignore", (1, 1))
    (tmp_path / "away").symlink_to("/etc")
    files = FileList(tmp_path, os.environ)
    assert files.matching("a", 5) == []
    await files.scan()
    assert files.paths == [
        "new/deep/view.py",
        "new/deep/",
        "new/",
        ".github/ci.yml",
        ".github/",
        "old/app.py",
        "old/",
        ".gitignore",
    ]
    assert files.matching("", 2) == ["new/deep/view.py", "new/deep/"]
    assert files.matching("vw", 5) == ["new/deep/view.py"]
    # A removed file is not offered after the next scan; before that, it is not checked.
    (tmp_path / "new/deep/view.py").unlink()
    assert files.matching("vw", 5) == ["new/deep/view.py"]
    await files.scan()
    assert files.matching("vw", 5) == []


async def test_a_name_counts_more_than_its_folders_and_the_newest_of_equals_is_first(
    tmp_path: Path,
) -> None:
    make(tmp_path, "a/test.py", "parser/other.py", "lib/parser.py", "b/test.py")
    files = FileList(tmp_path, os.environ)
    await files.scan()
    assert files.matching("parser", 5)[0] in ("parser/", "lib/parser.py")
    assert files.matching("parser.py", 5)[0] == "lib/parser.py"
    assert files.matching("test.py", 5) == ["b/test.py", "a/test.py"]


@pytest.mark.exhaustive
async def test_of_a_large_folder_the_newest_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_list, "MOST", 20)
    monkeypatch.setattr(file_list, "_CHUNK_BYTES", 64)
    make(tmp_path, *(f"some file with a long name {n:03}" for n in range(400)))
    files = FileList(tmp_path, os.environ)
    await files.scan()
    assert 20 <= len(files.paths) < 30
    assert files.paths[0].endswith("399")


async def test_a_scan_that_saw_all_kills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Process] = []
    monkeypatch.setattr(Process, "kill", killed.append)
    (tmp_path / "a.py").touch()
    files = FileList(tmp_path, os.environ)
    await files.scan()
    assert files.paths == ["a.py"]
    assert not killed


async def test_a_folder_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path / "work", "app.py")
    files = FileList(tmp_path / "work", os.environ)
    await files.scan()
    (tmp_path / "work").rename(tmp_path / "elsewhere")
    await files.scan()
    assert files.paths == ["app.py"]


@pytest.mark.exhaustive
async def test_long_paths_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_list, "MOST_CHARS", 100_000)
    monkeypatch.setattr(file_list, "_CHUNK_BYTES", 4_096)
    folder = tmp_path.joinpath(*["d" * 200] * 5)
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / f"{number}").write_text("")
    files = FileList(tmp_path, os.environ)
    await files.scan()
    assert 90 < len(files.paths) < 120
