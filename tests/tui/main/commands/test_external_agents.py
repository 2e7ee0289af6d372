"""The screen with an external agent: what it offers, its settings in the place of ours, and the list of agents."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.screens import desk

pytest.importorskip("acp", reason="the package agent-client-protocol is not installed")

from kimi_tui.config.settings import Config, ExternalAgentConfig
from kimi_tui.tui.main.commands.table import COMMANDS

SCRIPT = Path(__file__).parents[3] / "support" / "scripted_agent.py"
AGENT = ExternalAgentConfig("scripted", (sys.executable, "-S", str(SCRIPT)), ("AGENT_ABLE",))
GONE = ExternalAgentConfig("gone", ("no-such-agent",))


@pytest.mark.exhaustive
async def test_what_the_agent_has_is_offered_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_ABLE", "options")
    config = Config(external_agents={"scripted": AGENT, "gone": GONE})
    no_server = "http://127.0.0.1:9/v1"
    async with desk(
        tmp_path, no_server, config=config, mode="edits", external_agent=("scripted",)
    ) as one:
        await one.ready()
        offered = {command.name for command in one.screen.commands}
        assert {"rewind", "undo", "worldline", "blame", "mode", "model"} <= offered
        missing = {command.name for command in COMMANDS} - offered
        assert {"compact", "dmail", "tools", "tasks", "futures"} <= missing
        await one.say("write a.txt one")
        await one.sees("Edit  a.txt")
        await one.sees("Small   scripted, Ask")
        await one.idle()
        # The keys of what it lacks say so.
        await one.pilot.press("ctrl+o")
        await one.sees("works only with kimi-tui's own agent")
        await one.say("hang")
        await one.sees("Your message is sent when the turn has ended")
        await one.say("say Later.")
        await one.sees("queued")
        await one.pilot.press("escape")
        await one.sees("Stopped")
        await one.until(lambda: one.screen.prompt.area.text == "say Later.")
        await one.pilot.press("enter")
        await one.sees("Later.")
        await one.idle()
        await one.say("/mode code")
        await one.sees("scripted, Code")
        await one.say("/model nothing")
        await one.sees('scripted has no model "nothing". It has Small, Large.')
        await one.say("/rewind 0")
        preview = await one.sees("Rewind and restore files")
        assert "Compact" not in preview
        assert "several ways" not in preview
        await one.pilot.press("escape")
        await one.say("/external-agent")
        listed = await one.sees("kimi-tui's own agent")
        assert "Settings of scripted" in listed
        assert "in use" in listed
        await one.pilot.press("escape")
        await one.say("/external-agent gone")
        await one.sees('The program "no-such-agent" of the external agent gone is not')
