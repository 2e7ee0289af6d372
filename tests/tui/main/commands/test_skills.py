"""Skills on the screen: /skills lists them, those of the folder are allowed there, and each is a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import desk

from kimi_tui.tui.main.commands.custom import CustomCommandScreen


async def test_skills_are_listed_allowed_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for place, name in ((tmp_path, "paint"), (tmp_path / "app", "deploy"), (tmp_path, "review")):
        path = place / ".agents" / "skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\ndescription: How to {name}.\n---\nDo the {name} of $ARGUMENTS.")
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        server.script(
            say("Painted."), call("Skill", {"name": "deploy", "arguments": "it"}), say("Deployed.")
        )
        await one.ready()
        await one.sees("This folder has a skill that the agent cannot use until you allow it.")
        await one.until(lambda: "paint" in one.screen.commands)
        await one.say("/skills")
        await one.sees("How to paint.")
        await one.pilot.press("escape")
        await one.say("/skills allow")
        await one.sees("Do the deploy of $ARGUMENTS.")
        question = one.app.screen
        assert isinstance(question, CustomCommandScreen)
        await one.until(lambda: question.seen.is_open)
        await one.pilot.press("y")
        await one.sees("The agent may use 1 skill of this folder.")
        await one.say("/skill:paint red")
        await one.sees("Painted.")
        await one.idle()
        request = server.requests[-1]
        assert "Do the paint of red." in str(request.messages[-1])
        tool = next(one for one in request.body["tools"] if one["function"]["name"] == "Skill")
        assert "- deploy: How to deploy." in tool["function"]["description"]
        assert "- review: How to review." in tool["function"]["description"]
        await one.say("deploy it")
        await one.sees("Deployed.")
        assert "Do the deploy of it." in str(server.requests[-1].messages[-1])
        await one.idle()
        await one.say("/context")
        await one.sees("skills")
