"""A yes for the session to a command, from the model's call to the next one that it covers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.covered import has_landlock
from support.soul import stage

from kimi_tui.config.permissions import ProjectPermissions
from kimi_tui.tools.command_groups import find_shfmt
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.wire import events as ev


@pytest.mark.exhaustive
async def test_a_yes_for_the_session_covers_commands_like_it(tmp_path: Path) -> None:
    if find_shfmt(os.environ, tmp_path) is None:
        pytest.skip("there is no shfmt")
    commands = ["ls -a", "ls", "ls; id", "ls /", "wc -l notes"]
    async with stage(tmp_path, mode="ask") as on:
        (on.work / "notes").write_text("one\n")
        on.server.script(
            *(call("Shell", {"command": command}) for command in commands), say("Done.")
        )
        turn = asyncio.create_task(on.soul.run("Go"))
        seen: list[str] = []
        async for record in on.soul.wire.subscribe():
            if isinstance(record.event, ev.ApprovalRequest):
                seen.append(record.event.detail)
                on.soul.answer(record.event.id, "session")
            if isinstance(record.event, ev.TurnEnd):
                break
        await turn
        # The second is like the first; of the others none may be, nor is there a yes that stands for two of them.
        assert seen == ["ls -a", "ls; id", "ls /", "wc -l notes"]
        assert [words.split()[3] for words in on.soul.permissions.of_session] == ["ls", "wc"]
        results = [result.output for result in on.ear.of(ev.ToolResult)]
        assert (results[1], results[4]) == ("notes\n", "1 notes\n")


async def test_a_yes_for_the_project_holds_in_the_next_session_until_it_is_revoked(
    tmp_path: Path,
) -> None:
    if find_shfmt(os.environ, tmp_path) is None:
        pytest.skip("there is no shfmt")
    own = tmp_path / "own" / "permissions.json"
    commands = [
        *("ls -a", "ls", "ls; id", "'ls' -a", "ls /", "env ls", 'ls "$(id)"', "lsof"),
    ]
    asked = ["ls -a", "ls; id", "ls /", "env ls", 'ls "$(id)"', "lsof"]
    seen = await _asked_about(tmp_path, own, commands, "project")
    # The first yes is offered and covers what is the same simple command; a rule widens nothing that a session's yes would not.
    assert [detail for detail, _ in seen] == asked
    assert [offer for _, offer in seen] == [
        "Yes, and do not ask again for ls in this folder",
        *[""] * (len(asked) - 1),
    ]
    seen = await _asked_about(tmp_path, own, commands, "project")
    assert [detail for detail, _ in seen] == asked[1:]
    ProjectPermissions(own, tmp_path / "work").remove("ls")
    seen = await _asked_about(tmp_path, own, ["ls"], "once")
    assert [detail for detail, _ in seen] == ["ls"]


async def test_a_permission_that_cannot_be_stored_holds_for_the_session(tmp_path: Path) -> None:
    if find_shfmt(os.environ, tmp_path) is None:
        pytest.skip("there is no shfmt")
    own = tmp_path / "own" / "permissions.json"
    own.parent.mkdir()
    own.write_text("{damaged")
    seen = await _asked_about(tmp_path, own, ["ls -a", "ls"], "project")
    assert [detail for detail, _ in seen] == ["ls -a"]
    assert own.read_text() == "{damaged"


async def test_a_configuration_inside_the_folder_offers_nothing_for_the_project(
    tmp_path: Path,
) -> None:
    if find_shfmt(os.environ, tmp_path) is None:
        pytest.skip("there is no shfmt")
    own = tmp_path / "work" / "app" / "permissions.json"
    seen = await _asked_about(tmp_path, own, ["ls"], "project")
    assert [offer for _, offer in seen] == [""]
    assert not own.exists()


async def _asked_about(
    folder: Path, own: Path, commands: Sequence[str], answer: ev.ApprovalAnswer
) -> list[tuple[str, str]]:
    """Have a new session run commands; return those that it asks about, with what a yes for the project would cover."""
    permissions = ProjectPermissions(own, folder / "work")
    seen: list[tuple[str, str]] = []
    async with stage(folder, mode="ask", permissions=permissions) as on:
        on.server.script(*(call("Shell", {"command": one}) for one in commands), say("Done."))
        turn = asyncio.create_task(on.soul.run("Go"))
        async for record in on.soul.wire.subscribe():
            if isinstance(record.event, ev.ApprovalRequest):
                seen.append((record.event.detail, record.event.project_offer))
                on.soul.answer(record.event.id, answer if record.event.project_offer else "once")
            if isinstance(record.event, ev.TurnEnd):
                break
        await turn
    return seen


async def test_the_agent_cannot_give_itself_a_permission(tmp_path: Path) -> None:
    """Neither by a tool nor by a command, in no mode."""
    own = tmp_path / "own"
    (tmp_path / "work").mkdir()
    ProjectPermissions(own / "permissions.json", tmp_path / "work").add("git log")
    before = (own / "permissions.json").read_bytes()
    environ = {
        "PATH": os.environ["PATH"],
        "KIMI_TUI_HOME": str(own),
        "HOME": str(tmp_path / "home"),
    }
    names = ("permissions.json", "hooks_off.json", "config.toml")
    script = "; ".join(f"echo '{{}}' > {own}/{name}; ln -sf x {own}/{name}" for name in names)
    sandbox = SandboxSettings() if has_landlock() else None
    async with stage(tmp_path, mode="all", environ=environ, sandbox=sandbox) as on:
        writes = [call("WriteFile", {"path": f"{own}/{name}", "content": "{}"}) for name in names]
        edit = call(
            "StrReplaceFile",
            {"path": "../OWN/../own/permissions.json", "edit": [{"old": "git", "new": "rm"}]},
        )
        commands = [call("Shell", {"command": f"{script}; true"})] if not on.soul.no_sandbox else []
        on.server.script(*writes, edit, *commands, say("Done."))
        turn = asyncio.create_task(on.soul.run("Go"))
        asked: list[str] = []
        async for record in on.soul.wire.subscribe():
            if isinstance(record.event, ev.ApprovalRequest):
                asked.append(record.event.where)
                on.soul.answer(record.event.id, "no", "no")
            if isinstance(record.event, ev.TurnEnd):
                break
        await turn
    assert len(asked) >= 3
    assert all("kimi-tui's own settings" in one or "outside" in one for one in asked)
    assert (own / "permissions.json").read_bytes() == before
    # The sandbox keeps its private caches beside it.
    assert {*os.listdir(own)} <= {"permissions.json", "sandbox"}
