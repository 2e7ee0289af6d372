"""What an external agent has beside its turns: MCP servers and hooks of the user, forms, copies of its sessions, and what it lacks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kimi_tui.commands import dispatch
from kimi_tui.config.file import read_config
from kimi_tui.config.settings import ConfigError
from kimi_tui.external.agents import AgentMissing, agent_program
from kimi_tui.external.servers import offered_servers
from kimi_tui.external.soul import ExternalSoul
from kimi_tui.launch import Options, launch_of
from kimi_tui.mcp.config import configured
from kimi_tui.mcp.permissions import Permissions, Yes
from kimi_tui.session.store import prune
from kimi_tui.soul.errors import RefusedByHook
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.main.commands import external_agents
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.tui.sessions.catalog import SessionCatalog
from kimi_tui.wire import events as ev

from .conftest import AgentDesk

Able = Callable[[str], None]


def _write_servers(desk: AgentDesk, project: bool = False, **servers: Any) -> None:
    path = desk.work / ".mcp.json" if project else desk.home / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))


async def test_the_users_servers_are_told_where_the_agent_takes_them(
    desk: AgentDesk, able: Able, monkeypatch: pytest.MonkeyPatch
) -> None:
    able("http fork load")
    monkeypatch.setenv("MY_TOKEN", "geheim")
    _write_servers(
        desk,
        files={"command": "cat", "args": ["-u"], "env": {"TOKEN": "${MY_TOKEN}"}},
        web={"url": "https://example.org/mcp", "headers": {"X-Token": "${MY_TOKEN}"}},
        old={"url": "https://example.org/sse", "type": "sse"},
        off={"command": "cat", "enabled": False},
        few={"command": "cat", "disabledTools": ["delete"]},
        alone={"command": "cat", "network": False},
        unset={"command": "cat", "env": {"A": "${NO_SUCH_VARIABLE}"}},
        gone={"command": "no-such-program"},
    )
    async with desk.session() as one:
        await one.say("say one")
        await one.say("say two")
        told = [desk.sent_of("session/new")[0], desk.sent_of("session/fork")[0]]
        for asked in told:
            files, web = asked["mcpServers"]
            assert (files["name"], files["args"]) == ("files", ["-u"])
            assert os.path.isabs(files["command"])
            assert files["env"] == [{"name": "TOKEN", "value": "geheim"}]
            assert web == {
                "type": "http",
                "name": "web",
                "url": "https://example.org/mcp",
                "headers": [{"name": "X-Token", "value": "geheim"}],
            }
        (said,) = [each for each in one.of(ev.Notice) if "MCP" in each.text]
        for name in ("old (the agent connects to no servers over SSE)", "few (some", "alone (it"):
            assert name in said.text
        assert "and 1 more" in said.text
        assert one.soul.host.offered.names == ("files", "web")
    able("sse")
    async with desk.session() as one:
        await one.say("say again")
        assert one.soul.host.offered.names == ("files", "old")
    text = (desk.home / "config.toml").read_text()
    (desk.home / "config.toml").write_text(
        text.replace("[external_agents.scripted]\n", "[external_agents.scripted]\nmcp = false\n")
    )
    async with desk.session() as one:
        await one.say("say three")
        assert desk.sent_of("session/new")[-1]["mcpServers"] == []


def test_a_projects_server_that_was_allowed_in_the_sandbox_stays_there(desk: AgentDesk) -> None:
    _write_servers(desk, project=True, a={"command": "cat"}, b={"command": "cat", "sandbox": False})
    environ = dict(os.environ)
    assert offered_servers(desk.work, environ, http=True, sse=True) == ((), ())
    for server in configured(desk.work).servers:
        Permissions(desk.work).allow(server, Yes(network=True))
    offered = offered_servers(desk.work, environ, http=True, sse=True)
    assert offered.names == ("b",)
    assert [name for name, _ in offered.left_out] == ["a"]
    # A program that a command in the sandbox could have written is not started outside.
    planted = desk.work / "server"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    _write_servers(desk, c={"command": str(planted)})
    offered = offered_servers(desk.work, environ, http=True, sse=True)
    assert offered.names == ("b",)
    assert "sandboxed commands can change it" in offered.left_out_words("scripted")


def test_a_server_whose_headers_would_cross_a_network_unencrypted_is_left_out(
    desk: AgentDesk,
) -> None:
    headers = {"Authorization": "Bearer geheim"}
    _write_servers(
        desk,
        far={"url": "http://tracker.example/mcp", "headers": headers},
        near={"url": "http://localhost:8080/mcp", "headers": headers},
        open={"url": "http://tracker.example/mcp"},
    )
    offered = offered_servers(desk.work, dict(os.environ), http=True, sse=True)
    assert offered.names == ("near", "open")
    assert "its headers would be sent to tracker.example unencrypted" in offered.left_out_words("x")


async def test_hooks_about_turns_run_and_those_around_tools_do_not(
    desk: AgentDesk, able: Able
) -> None:
    log = desk.folder / "hooks"
    hooks = "".join(
        f'[[hooks]]\nevent = "{event}"\ncommand = "{command}"\n'
        for event, command in (
            ("SessionStart", "echo from-start"),
            (
                "UserPromptSubmit",
                "grep -q forbidden && { echo not this >&2; exit 2; }; echo from-prompt",
            ),
            ("PreToolUse", f"echo tool >> {log}; exit 2"),
            ("PostToolUse", f"echo after >> {log}"),
            ("Stop", f"echo stop >> {log}"),
        )
    )
    with (desk.home / "config.toml").open("a") as file:
        file.write(hooks)
    opened: list[str] = []
    async with desk.session(notices=opened) as one:
        assert [words for words in opened if "PreToolUse" in words] == [
            "1 hook for PreToolUse does not run with scripted, which runs its tools itself; /hooks lists them."
        ]
        await one.say("write a.txt x", "know")
        prompt = str(desk.sent_of("session/prompt")[0]["prompt"])
        assert "from-start" in prompt
        assert "from-prompt" in prompt
        assert log.read_text() == "stop\n"
        with pytest.raises(RefusedByHook, match="not this"):
            await one.say("say forbidden")
        assert len(desk.sent_of("session/prompt")) == 1
        assert one.soul.hooks is not None
        assert len(one.soul.hooks.unheard) == 2


async def test_a_form_is_asked_for_field_by_field(desk: AgentDesk) -> None:
    form = {
        "properties": {
            "kind": {
                "type": "string",
                "oneOf": [{"const": "a", "title": "Plan A"}, {"const": "b", "title": "Plan B"}],
            },
            "parts": {
                "type": "array",
                "items": {"anyOf": [{"const": "x", "title": "X; Y"}, {"const": "z", "title": "Z"}]},
            },
            "many": {"type": "integer"},
            "sure": {"type": "boolean"},
        },
        "required": ["kind", "sure"],
    }
    answers = iter(["Plan B", "X, Y; Z", "7", "Yes"])
    async with desk.session() as one:
        one.answer = lambda _: next(answers)
        said = json.loads(await one.say(f"form {json.dumps(form)}"))
        content = {"kind": "b", "parts": ["x", "z"], "many": 7, "sure": True}
        assert said == {"action": "accept", "content": content}
        assert [each.kind for each in one.asked] == ["question"] * 4
        assert one.asked[0].question == "scripted asks: Fill in."
        assert one.asked[0].options == ("Plan A", "Plan B")
        assert (one.asked[0].no_offer, one.asked[1].no_offer) == (
            "Do not answer",
            "Leave it empty",
        )
        assert one.asked[1].multi_select
        one.answer = lambda _: "no"
        assert json.loads(await one.say(f"form {json.dumps(form)}")) == {"action": "decline"}
        # A field for another answer is no question of its own.
        with_own = {"q": form["properties"]["kind"], "q_custom": {"type": "string"}}
        for answer, content in (("Plan A", {"q": "a"}), ("Neither", {"q_custom": "Neither"})):
            one.answer = lambda _, said=answer: said
            before = len(one.asked)
            said = json.loads(await one.say(f"form {json.dumps({'properties': with_own})}"))
            assert said == {"action": "accept", "content": content}
            assert len(one.asked) == before + 1
        one.answer = lambda asked: asked.options[0]
        assert json.loads(await one.say("address https://example.org/login")) == {
            "action": "accept"
        }
        assert json.loads(await one.say("address file:///etc/passwd")) == {"action": "decline"}


async def test_copies_that_no_world_line_needs_are_deleted(desk: AgentDesk, able: Able) -> None:
    able("fork load delete")
    async with desk.session() as one:
        session_id = one.soul.session.id
        await one.say("say one")
        await one.say("say two")
        await one.soul.travel.rewind(Target(one.point))
        await one.say("say three")
        assert not desk.sent_of("session/delete")
    async with desk.session(session=session_id) as one:
        await one.say("say four")
        assert not desk.sent_of("session/delete")
        prune(one.soul.session)
    async with desk.session(session=session_id) as one:
        assert json.loads(await one.say("know")) == ["say one", "say three", "say four", "know"]
        assert one.soul.host.tidying is not None
        await one.soul.host.tidying
        (gone,) = desk.sent_of("session/delete")
        # The copy in which "say two" was said.
        assert gone["sessionId"] == desk.sent_of("session/prompt")[1]["sessionId"]
    async with desk.session(session=session_id) as one:
        await one.say("say five")
        assert one.soul.host.tidying is not None
        await one.soul.host.tidying
        assert len(desk.sent_of("session/delete")) == 1


def test_every_command_that_an_external_agent_lacks_has_another_way() -> None:
    lacking = {one.name for one in COMMANDS if one.needs in ExternalSoul.lacks}
    assert lacking == set(external_agents.INSTEAD)


async def test_commands_of_our_own_agent_are_refused_in_one_line(
    desk: AgentDesk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.session() as one:
        session_id = one.soul.session.id
        await one.say("say hello")
    monkeypatch.chdir(desk.work)
    for name, arguments in (("futures", ["0", "--message", "hi"]), ("dmail", ["0", "hi"])):
        assert await asyncio.to_thread(dispatch.run, name, arguments) == 1
        said = capsys.readouterr().err
        assert said.startswith(
            f"kimi-tui: kimi-tui {name} works only with kimi-tui's own agent, and session {session_id[:8]} uses scripted."
        )
    assert await asyncio.to_thread(dispatch.run, "sessions", []) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "agent"
    assert row.split()[-1] == "scripted"
    catalog = SessionCatalog(desk.home, desk.work)
    (listed,) = catalog.described(catalog.folders(everywhere=False))
    assert listed.external_agent == "scripted"
    with pytest.raises(ConfigError, match="--model works only with kimi-tui's own agent"):
        launch_of(Options(work_dir=str(desk.work), newest=True, model="x"))
    with pytest.raises(ConfigError, match="--no-thinking works only"):
        launch_of(Options(work_dir=str(desk.work), external_agent="scripted", thinking=False))


def test_an_agent_that_is_known_needs_no_command(desk: AgentDesk) -> None:
    (desk.home / "config.toml").write_text(
        "[external_agents.kimi-tui]\nmcp = true\n[external_agents.nobody]\nmcp = false\n"
        "[external_agents.codex]\ncommand = 5\n"
    )
    agents = read_config(desk.home / "config.toml").external_agents
    assert sorted(agents) == ["kimi-tui", "nobody"]
    program = agent_program("kimi-tui", (), agents, os.environ, desk.work)
    assert (program.argv[0], program.mcp) == (sys.executable, False)
    with pytest.raises(AgentMissing, match="has no command"):
        agent_program("nobody", (), agents, os.environ, desk.work)


async def test_one_session_is_open_at_the_agent(desk: AgentDesk, able: Able) -> None:
    able("fork resume close")
    async with desk.session() as one:
        for word in ("one", "two", "three"):
            await one.say(f"say {word}")
            assert one.soul.host.tidying is not None
            await one.soul.host.tidying
        opened = [each["sessionId"] for each in desk.sent_of("session/prompt")]
        closed = [each["sessionId"] for each in desk.sent_of("session/close")]
        assert closed == opened[:2]
        # A rewind opens a closed one again.
        await one.soul.travel.rewind(Target(one.point))
        await one.soul.travel.rewind(Target(one.soul.session.context.checkpoints[2].id))
        assert json.loads(await one.say("know")) == ["say one", "know"]
        assert [each["sessionId"] for each in desk.sent_of("session/resume")] == [opened[0]]
        assert len(desk.sent_of("session/new")) == 1
