"""The engine's knowledge of the work folder comes from the one scan that it needs anyway, and from the text that the model was sent."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from support.soul import stage, until_end

from kimi_tui.soul.system_prompt import FolderFacts
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.scan import Scan, Scanner


def furnish(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


async def test_files_and_notes_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Scanner] = []
    scan = Scanner.scan

    def counted(scanner: Scanner, also: Collection[str] = (), **how: bool) -> Scan:
        looks.append(scanner)
        return scan(scanner, also, **how)

    monkeypatch.setattr(Scanner, "scan", counted)
    furnish(tmp_path, "AGENTS.md", "src/a", "src/b", ".gitignore", "left/out")
    (tmp_path / "work" / ".gitignore").write_text("left/\n")
    async with stage(tmp_path) as on:
        assert await on.soul.files_ready() == FolderFacts(4, is_more=False, notes=("AGENTS.md",))
        assert await on.soul.files_ready() == FolderFacts(4, is_more=False, notes=("AGENTS.md",))
        assert len(looks) == 1


async def test_notes_that_came_after_the_prompt_was_made_were_not_read(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await until_end(on.soul.run("hi"))
        furnish(tmp_path, "AGENTS.md")
        await on.reopen()
        assert await on.soul.files_ready() == FolderFacts(1)


async def test_a_folder_over_the_limits(tmp_path: Path) -> None:
    furnish(tmp_path, "a", "b", "c", "d", "e/f")
    async with stage(tmp_path, file_limits=Limits(max_files=3)) as on:
        assert await on.soul.files_ready() == FolderFacts(3, is_more=True)


async def test_a_folder_that_is_not_followed(tmp_path: Path) -> None:
    furnish(tmp_path, "agents.md", "a")
    home = {"HOME": str(tmp_path / "work")}
    async with stage(tmp_path, environ=home) as on:
        facts = await on.soul.files_ready()
        assert facts.n_files is None
        assert [name.lower() for name in facts.notes] == ["agents.md"]
