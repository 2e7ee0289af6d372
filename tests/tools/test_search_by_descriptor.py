"""Searches read the folder that was asked about, whatever stands under its name by then."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tool_env import Bench

from kimi_tui.tools import glob, grep


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    (folder / "deep").mkdir(parents=True)
    for path in (folder / "stolen.txt", folder / "deep" / "stolen.txt"):
        path.write_text("needle in a key\n")
    return folder


def swapping(folder: Path, keys: Path) -> Callable[[], None]:
    """Puts a link to `keys` in the place of a folder, once."""

    def swap() -> None:
        if not folder.is_symlink():
            folder.rename(folder.with_name("moved"))
            folder.symlink_to(keys)

    return swap


async def test_a_folder_that_became_a_link_after_the_yes_is_not_searched(
    bench: Bench, tmp_path: Path, keys: Path
) -> None:
    notes = tmp_path / "notes" / "mine"
    notes.mkdir(parents=True)
    (notes / "own.txt").write_text("needle\n")
    (keys / "mine").mkdir()
    (keys / "mine" / "stolen.txt").write_text("needle in a key\n")
    for folder in (notes, notes.parent):
        shown = str(notes)
        bench.approver.before_yes = swapping(folder, keys)
        for name, arguments in (
            ("Grep", {"pattern": "needle", "path": shown, "output_mode": "content"}),
            ("Glob", {"pattern": "**/*", "directory": shown}),
        ):
            outcome = await bench.run(name, **arguments)
            assert (outcome.is_error, outcome.brief) == (True, "path changed"), name
            assert "stolen" not in outcome.output + outcome.message
            folder.unlink()
            folder.with_name("moved").rename(folder)


@pytest.mark.parametrize("names_descriptors", [True, False], ids=["linux", "macos"])
async def test_a_search_starts_in_the_folder_that_was_opened(
    bench: Bench, keys: Path, monkeypatch: pytest.MonkeyPatch, *, names_descriptors: bool
) -> None:
    bench.write("sub/own.txt", "needle\n")
    swap, program = swapping(bench.work_dir / "sub", keys), grep.rg_program

    def late_program(environ: dict[str, str], *folders: Path) -> str:
        swap()
        return program(environ, *folders)

    monkeypatch.setattr(grep, "rg_program", late_program)
    monkeypatch.setattr(grep, "_NAMES_DESCRIPTORS", names_descriptors)
    found: list[grep.GrepOutput] = []
    search = grep._search  # pyright: ignore[reportPrivateUsage]

    async def heard(query: grep._Query, environ: dict[str, str], work_dir: Path) -> grep.GrepOutput:  # pyright: ignore[reportPrivateUsage]
        # The folder itself, as `searched` opened it.
        query = replace(query, cwd=query.cwd / query.root, root=".", folder=sub)
        found.append(await search(query, environ, work_dir))
        return found[-1]

    monkeypatch.setattr(grep, "_search", heard)
    sub = os.open(bench.work_dir / "sub", os.O_RDONLY)
    try:
        await bench.run("Grep", pattern="needle", path="sub", output_mode="content")
    finally:
        os.close(sub)
    assert b"own.txt" in found[0].output
    assert b"stolen" not in found[0].output


async def test_a_folder_that_becomes_a_link_while_it_is_searched_gives_nothing(
    bench: Bench, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("sub/deep/own.txt", "needle\n")
    sub = bench.work_dir / "sub"
    swap = swapping(sub, keys)
    search, open_folder = grep._search, glob.open_folder  # pyright: ignore[reportPrivateUsage]

    async def late_search(
        query: grep._Query, environ: dict[str, str], work_dir: Path
    ) -> grep.GrepOutput:  # pyright: ignore[reportPrivateUsage]
        swap()
        found = await search(query, environ, work_dir)
        assert b"stolen" in found.output
        return found

    def late_folder(root: Path | int, parts: Sequence[str]) -> int:
        if parts == ("sub",):
            swap()
        return open_folder(root, parts)

    monkeypatch.setattr(grep, "_search", late_search)
    for mode in ("content", "files_with_matches", "count"):
        outcome = await bench.run("Grep", pattern="needle", path="sub", output_mode=mode)
        assert (outcome.output, outcome.brief) == ("", "no match")
        sub.unlink()
        sub.with_name("moved").rename(sub)
    monkeypatch.setattr(glob, "open_folder", late_folder)
    outcome = await bench.run("Glob", pattern="**/*.txt")
    assert outcome.output == ""


async def test_a_folder_exchanged_with_a_link_and_back_by_a_job_gives_nothing(
    bench: Bench, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("sub/deep/own.txt", "needle\n")
    bench.write("sub/stolen.txt", "nothing\n")
    sub, search = bench.work_dir / "sub", grep._search  # pyright: ignore[reportPrivateUsage]

    async def exchanged(query: grep._Query, *rest: Any) -> grep.GrepOutput:  # pyright: ignore[reportPrivateUsage]
        swapping(sub, keys)()
        found = await search(query, *rest)
        assert b"stolen" in found.output
        sub.unlink()
        sub.with_name("moved").rename(sub)
        return found

    try:
        await bench.run("Shell", command="sleep 100", background=True)
        monkeypatch.setattr(grep, "_search", exchanged)
        outcome = await bench.run("Grep", pattern="needle", path="sub", output_mode="content")
        assert outcome.output == ""
        assert (
            "1 file is not in the results, because a background task changed its folder"
            in outcome.message
        )
        monkeypatch.undo()
        outcome = await bench.run("Grep", pattern="needle", path="sub")
        assert outcome.output == "sub/deep/own.txt"
    finally:
        await bench.jobs.aclose()
