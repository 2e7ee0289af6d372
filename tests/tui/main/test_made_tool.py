"""A tool that no module of the program names, as the user sees it: its question, its card, search, copy, replay and export."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.made_tool import Deploy
from support.screens import Desk, desk

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.projection.blocks import ToolBlock
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.replay.screen import ReplayScreen
from kimi_tui.tui.transcript.copied_text import source_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.exhaustive
async def test_a_tool_of_a_running_session_is_like_the_others(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        soul = one.screen.conversation.soul
        assert soul is not None
        soul.change_tools([Deploy()])
        server.script(
            call("mcp__ship__deploy", {"site": "docs.example", "files": ["a"]}), say("It is out.")
        )
        await one.say("Deploy the documentation")
        shown = await one.sees("Deploy this site?")
        assert "docs.example" in shown
        assert "every deploy in this session" in shown
        panel = one.screen.bench.question
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.sees("It is out.")
        await one.idle()
        shown = await one.sees("deployed.txt")
        (row,) = [row for row in shown.split("\n") if "to docs.example" in row and "1 sent" in row]
        assert "Deploy to docs.example" in " ".join(row.split())
        assert "1 file changed, can be restored" in shown
        # The step on the timeline has its name, too.
        assert any("Deploy to docs" in " ".join(line.split()) for line in shown.split("\n"))
        transcript = one.screen.transcript
        (block,) = [b for b in transcript.blocks if isinstance(b, ToolBlock)]
        assert source_of(block) == "1 files sent to docs.example"
        await one.pilot.press("ctrl+f")
        await one.until(lambda: one.screen.bench.on_view.is_searched)
        await one.pilot.press(*"files sent to", "enter")
        await one.sees("1 files sent to docs.example")
        await one.pilot.press("escape")
        await one.say("/export out.md")
        await one.sees("Exported the conversation to out.md")
        assert "**mcp__ship__deploy**" in (home / "app" / "out.md").read_text()
        session = soul.session.id
    # Another process, in which there is no such tool.
    launch = Launch(
        work_dir=home / "app",
        config_path=home / "config.toml",
        config=Config(reduced_motion=True),
        choice=ModelChoice("test", "http://127.0.0.1:9/v1", "kimi-test"),
        resume=session,
        replay=True,
    )
    app = KimiApp(launch)
    async with app.run_test(size=(120, 40)) as pilot:
        later = Desk(app, pilot)
        await later.until(lambda: isinstance(app.screen, ReplayScreen))
        await pilot.press("end")
        await later.sees("It is out.")
        # The card may be drawn a frame after what follows it.
        await later.until(lambda: "Deploy to docs.example" in " ".join(later.text().split()))
