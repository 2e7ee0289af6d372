"""Long work with the installed program: what the agent knows from the start, an overload, commands in the background."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread, call, say, status
from support.program import Program

READY = "Ctrl+T timeline"


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.exhaustive
def test_notes_and_an_overload(configured: Program, server: ChatServerThread) -> None:
    work = configured.work
    subprocess.run(["git", "init", "-q", "-b", "trunk"], cwd=work, check=True)
    (work / "CLAUDE.md").write_text("Run make check.\n" * 40)
    (work / "src").mkdir()
    (work / "src" / "AGENTS.md").write_text("Tabs only.\n")
    (work / "src" / "a.py").write_text("x = 1\n")
    server.script(
        call("ReadFile", {"path": "src/a.py"}),
        status(503, {"error": {"message": "busy"}}, headers={"Retry-After": "300"}),
        say("It says x."),
    )
    terminal = configured.start(size=(80, 24))
    terminal.wait_for(READY)
    terminal.type("What does it say?")
    terminal.key("enter")
    # A wait of five minutes is no reason to give up: it is counted down, and cut short.
    terminal.wait_for("Retrying in 29")
    screen = terminal.wait_for("gives up in")
    assert "gives up in 10 min" in screen
    assert "Enter now" in screen
    terminal.key("enter")
    terminal.wait_for("It says x.")
    first, last = server.requests[0], server.requests[-1]
    system = str(first.messages[0]["content"])
    assert "Run make check." in system
    assert "No commits yet on trunk" in system
    assert "Tabs only." not in system
    assert last.messages[0] == first.messages[0]
    assert "Tabs only." in str(last.messages[1:])
    terminal.wait_for("Enter send")
    terminal.type("/context")
    terminal.key("enter")
    # Not words that the menu has too.
    screen = terminal.wait_for("src/AGENTS.md")
    assert "CLAUDE.md" in screen
    assert "tool results" in screen
    assert "system prompt" in screen


@pytest.mark.exhaustive
def test_a_command_runs_on_in_the_background(configured: Program, server: ChatServerThread) -> None:
    (configured.home / "config.toml").write_text('mode = "ask"\n[sandbox]\nenabled = false\n')
    server.script(
        # Its words stand on the screen before it runs.
        call("Shell", {"command": "echo $$ >pid; echo ser''ving; sleep 600"}),
        say("It serves."),
    )
    terminal = configured.start(size=(100, 30))
    terminal.wait_for(READY)
    terminal.type("Serve it")
    terminal.key("enter")
    terminal.wait_for("Yes, once")
    terminal.wait_quiet(0.7)
    terminal.key("y")
    terminal.wait_for("Ctrl+B background")
    terminal.wait_for("serving")
    terminal.key("ctrl+b")
    terminal.wait_for("It serves.")
    terminal.wait_for("1 task /tasks")
    pid = int((configured.work / "pid").read_text())
    terminal.type("/jobs output 1")
    terminal.key("enter")
    terminal.wait_for("running for")
    terminal.key("escape")
    terminal.wait_gone("running for")
    # A running command is reported before it ends with the session.
    terminal.key("ctrl+q")
    terminal.wait_for("1 background task is running")
    assert _is_alive(pid)
    terminal.wait_quiet(0.3)  # what was pressed before that could be read is no answer to it
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert not _is_alive(pid)
