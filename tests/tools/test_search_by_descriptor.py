"""Searches read the folder that was asked about, whatever stands under its name by then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

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


async def test_a_folder_that_becomes_a_link_while_it_is_searched_gives_nothing(
    bench: Bench, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("sub/deep/own.txt", "needle\n")
    sub = bench.work_dir / "sub"
    swap = swapping(sub, keys)
    search, open_folder = grep._search, glob.open_folder  # pyright: ignore[reportPrivateUsage]

    async def late_search(query: grep._Query, environ: dict[str, str]) -> grep.Found:  # pyright: ignore[reportPrivateUsage]
        swap()
        found = await search(query, environ)
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
