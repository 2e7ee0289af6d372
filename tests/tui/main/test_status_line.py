"""The status line: what the user chose of the session's facts, and what a command of theirs prints."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import desk

from kimi_tui.config.settings import Config, ModelConfig, ModelPrices, StatuslineConfig
from kimi_tui.tui.main import status_line
from kimi_tui.tui.main.status_line import run_command

SCRIPT = """\
cat > facts.new; mv facts.new facts.json
env > names.new; mv names.new names.txt
printf '\\033[31mred\\033[0m %s\\033]0;title\\007\\nsecond\\n' "$COLUMNS"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-it")
    return tmp_path


def printed(command: str, folder: Path) -> str:
    spans = run_command(command, {}, folder=folder, width=80, stop=threading.Event())
    return "".join(span.text for span in spans)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo; echo one; echo two", "one"),
        ("exit 3", "The status line command failed (exit code 3)."),
        ("kill -9 $$", "The status line command was killed by SIGKILL."),
        ("true", ""),
        ("printf '\\377\\000\\376'", "\ufffd\ufffd"),
    ],
)
def test_what_a_command_prints(command: str, words: str, tmp_path: Path) -> None:
    assert printed(command, tmp_path) == words


def test_a_flood_is_ended_with_its_first_line(tmp_path: Path) -> None:
    assert printed("echo first; yes", tmp_path) == "first"


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_line, "LIMIT_S", 0.2)
    words = printed("sleep 1000 & echo $! > pid; wait", tmp_path)
    assert words.startswith("The status line command took longer than")
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        # Its parent is gone, and the one that takes it over may be slow to collect it.
        if "zombie" in Path(f"/proc/{pid}/status").read_text():
            return
        time.sleep(0.01)
    pytest.fail("the command still runs")


async def test_items_and_a_command_follow_the_session(home: Path) -> None:
    prices = {"k": ModelConfig("k", "p", "kimi-test", prices=ModelPrices(1.0, 0.1, 5.0))}
    config = Config(
        statusline=StatuslineConfig(("checkpoint", "context", "cost"), SCRIPT), models=prices
    )
    work = home / "app"
    async with (
        ChatServer() as server,
        desk(home, server.base_url, config=config, mode="edits") as one,
    ):
        server.script(
            call("WriteFile", {"path": "a.txt", "content": "one\ntwo\n"}),
            say("Written.", usage=(16_000, 100)),
        )
        await one.ready()
        shown = await one.sees("red 116")
        assert "second" not in shown
        await one.say("Write it")
        await one.sees("Written.")
        await one.idle()
        await one.sees("context 50%")
        assert "#2" in one.text()

        def told() -> dict[str, dict[str, object]]:
            return json.loads((work / "facts.json").read_text())

        await one.until(lambda: told()["cost"]["total_lines_added"] == 2)
        await one.until(lambda: told()["context_window"]["used_percentage"] == 50.3)
        facts = told()
        soul = one.screen.conversation.soul
        assert soul is not None
        assert facts["session_id"] == soul.session.id
        assert str(facts["transcript_path"]).endswith(f"{soul.session.id}/context.jsonl")
        assert facts["workspace"] == {
            "current_dir": str(work),
            "project_dir": str(work),
            "added_dirs": [],
        }
        assert facts["model"]["id"] == "kimi-test"
        assert 0.0 < float(str(facts["cost"]["total_cost_usd"])) < 1.0
        names = (work / "names.txt").read_text()
        assert "PATH=" in names
        assert "sk-not-for-it" not in names
        # Another choice is seen at once, and none removes the row.
        one.screen.show_status_line(StatuslineConfig(("version",)))
        await one.sees("kimi-tui 0.")
        assert "red 116" not in one.text()
        one.screen.show_status_line(StatuslineConfig())
        await one.until(lambda: "kimi-tui 0." not in one.text())
        one.screen.show_status_line(StatuslineConfig((), "echo again"))
        await one.sees("again")
        # With an interval the command runs again although nothing happens; without one it does not.
        one.screen.show_status_line(StatuslineConfig((), "date +%s >> runs.txt; echo ran", 1))
        runs = work / "runs.txt"
        await one.until(lambda: runs.exists() and len(runs.read_text().split()) == 3)
        first, *_, last = map(int, runs.read_text().split())
        assert last - first >= 1
