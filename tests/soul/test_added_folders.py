"""Folders beside the work folder: read without a question, used as the mode allows, never restored."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, say
from support.covered import has_landlock
from support.soul import Stage, stage

from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.added_folders import AddedFolders, BadFolder
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.wire import events as ev


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    folder = tmp_path / "beside"
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / "notes").write_text("hello\n")
    (folder / ".env").write_text("KEY=1\n")
    return folder


async def asked_about(on: Stage, *calls: Any) -> list[str]:
    """Have the model make calls; return what the user was asked about, which is refused."""
    on.server.script(*calls, say("Done."))
    turn = asyncio.create_task(on.soul.run("Go"))
    asked: list[str] = []
    async for record in on.soul.wire.subscribe():
        if isinstance(record.event, ev.ApprovalRequest):
            asked.append(record.event.question)
            on.soul.answer(record.event.id, "no", "not now")
        if isinstance(record.event, ev.TurnEnd):
            break
    await turn
    return asked


async def test_files_are_read_without_a_question_and_edited_by_the_mode(
    tmp_path: Path, beside: Path
) -> None:
    async with stage(tmp_path, mode="ask") as on:
        read = call("ReadFile", {"path": f"{beside}/notes"})
        assert await asked_about(on, read) == ["Read this file?"]
        on.soul.added.add("../beside")
        found = call("Grep", {"pattern": "hello", "path": str(beside)})
        assert await asked_about(on, read, found) == []
        assert "hello" in on.ear.of(ev.ToolResult)[-2].output
        # The model was told, once.
        sent = "\n".join(text for _, text in on.sent())
        assert sent.count("The user added folders beside the work folder") == 1
        assert str(beside) in sent
        secret = call("ReadFile", {"path": f"{beside}/.env"})
        write = call("WriteFile", {"path": f"{beside}/new", "content": "x"})
        hook = call("WriteFile", {"path": f"{beside}/.git/hooks/post-checkout", "content": "x"})
        assert await asked_about(on, secret, write) == ["Read this file?", "Create this file?"]
        await on.soul.set_mode("edits")
        assert await asked_about(on, write, hook) == ["Create this file?"]
        assert (beside / "new").read_text() == "x"
        # Removed, it is any other folder again.
        on.soul.added.remove(str(beside))
        assert await asked_about(on, read) == ["Read this file?"]


async def test_a_folder_that_was_replaced_counts_no_longer(tmp_path: Path, beside: Path) -> None:
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "notes").write_text("secret\n")
    async with stage(tmp_path, mode="ask") as on:
        on.soul.added.add(str(beside))
        os.rename(beside, tmp_path / "gone")
        os.symlink(tmp_path / "hostile", beside)
        assert on.soul.added.paths == ()
        read = call("ReadFile", {"path": f"{beside}/notes"})
        assert await asked_about(on, read) == ["Read this file?"]
        os.unlink(beside)
        os.mkdir(beside)
        assert on.soul.added.paths == ()


async def test_a_link_in_it_leads_nowhere_unasked(tmp_path: Path, beside: Path) -> None:
    (tmp_path / "elsewhere").write_text("secret\n")
    (beside / "link").symlink_to(tmp_path / "elsewhere")
    os.link(tmp_path / "elsewhere", beside / "hard")
    async with stage(tmp_path, mode="ask") as on:
        on.soul.added.add(str(beside))
        reads = [call("ReadFile", {"path": f"{beside}/{name}"}) for name in ("link", "hard")]
        dots = call("ReadFile", {"path": f"{beside}/../elsewhere"})
        beyond = call("ReadFile", {"path": f"{beside}2/x"})
        assert len(await asked_about(on, *reads, dots, beyond)) == 4


@pytest.mark.skipif(not has_landlock(), reason="there is no sandbox here")
async def test_commands_write_there_but_not_into_its_repository_nor_read_its_secrets(
    tmp_path: Path, beside: Path
) -> None:
    async with stage(tmp_path, mode="sandboxed", sandbox=SandboxSettings()) as on:
        if on.soul.no_sandbox:
            pytest.skip(on.soul.no_sandbox)
        command = (
            f"cd {beside}; echo 1 > new; echo 1 > .git/hooks/post-checkout; echo 1 > .git/commondir; "
            "echo 1 > .envrc; cat .env notes; true"
        )
        assert await asked_about(on, call("Shell", {"command": command})) == []
        assert not (beside / "new").exists()
        on.soul.added.add(str(beside))
        (beside / ".envrc").write_text("own\n")
        assert await asked_about(on, call("Shell", {"command": command})) == []
        result = on.ear.of(ev.ToolResult)[-1]
        assert (beside / "new").read_text() == "1\n"
        assert (beside / ".envrc").read_text() == "own\n"
        assert os.listdir(beside / ".git") == ["hooks"]
        assert os.listdir(beside / ".git" / "hooks") == []
        assert "hello" in result.output
        assert "KEY=1" not in result.output


async def test_the_preview_of_a_rewind_says_that_its_files_stay(
    tmp_path: Path, beside: Path
) -> None:
    async with stage(tmp_path, mode="all") as on:
        await on.soul.files_ready()
        on.soul.added.add(str(beside))
        on.server.script(
            call("WriteFile", {"path": f"{beside}/notes", "content": "x"}), say("Done.")
        )
        await on.soul.run("Go")
        preview = await on.soul.travel.preview(Target(0))
        assert preview.files is not None
        assert preview.files.not_covered[0] == (f"{beside}/", "added folder, never restored")
        await on.soul.travel.rewind(Target(0), "restore")
        assert (beside / "notes").read_text() == "x\n"


def test_what_cannot_be_added_is_said(tmp_path: Path, beside: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "home" / "code" / "work"
    (home / ".ssh").mkdir(parents=True)
    (work / "below").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "to_ssh").symlink_to(home / ".ssh")
    added = AddedFolders(work, {"HOME": str(home)})
    for written, why in (
        ("", "is not a folder"),
        ("nothing", "is not a folder"),
        (f"{tmp_path}/file", "is not a folder"),
        ("below", "is in the work folder already"),
        (".", "is in the work folder already"),
        ("..", "contains the work folder"),
        (str(home), "contains"),
        ("/", "contains"),
        ("/etc", "parts of the system"),
        (str(home / ".ssh"), "a place for secrets"),
        (f"{tmp_path}/to_ssh", "a place for secrets"),
        ("\x1b[31m\n", "is not a folder"),
    ):
        with pytest.raises(BadFolder, match=why) as caught:
            added.add(written)
        assert "\x1b" not in str(caught.value)
    assert added.add(str(beside)) == str(beside)
    assert added.add(f"{beside}/../beside/") == str(beside)
    assert added.paths == (str(beside),)
