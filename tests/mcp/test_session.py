"""Servers in a session without a screen: their tools in requests, refusals, and where none is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from headless.conftest import Scripts, scripts
from support.chat_server import call, say
from support.mcp_session import configure, entry

from kimi_tui.mcp import package

__all__ = ["scripts"]


def tools_of(one: Scripts) -> list[str]:
    """Return the names of the tools in the newest request."""
    return [tool["function"]["name"] for tool in one.server.requests[-1].body["tools"]]


def test_a_server_is_used_without_a_screen(scripts: Scripts) -> None:
    configure(scripts.home / "mcp.json", made=entry(), gone={"command": "no-such-program"})
    scripts.server.script(
        call("mcp__made__write", {"path": str(scripts.work / "new.txt")}), say("It is written.")
    )
    ran = scripts.run("--mode", "all", "-p", "write")
    assert (ran.code, ran.out) == (0, "It is written.\n")
    assert (
        'The MCP server gone is not running: the program "no-such-program" was not found.'
        in ran.err
    )
    assert (scripts.work / "new.txt").exists()
    assert tools_of(scripts)[-6] == "mcp__made__add"
    # Nothing is left running, and the next session takes the same tools.
    scripts.server.script(call("mcp__made__echo", {"text": "x"}), say("Refused."))
    ran = scripts.run("--strict", "-p", "echo")
    assert ran.code == 3
    assert "refused: mcp__made__echo" in ran.err
    scripts.server.script(call("mcp__made__echo", {"text": "x"}), say("Done."))
    assert scripts.run("--strict", "--allow", "mcp__made", "-p", "echo").code == 0


@pytest.mark.exhaustive
def test_a_server_with_too_many_tools_for_each_request(scripts: Scripts) -> None:
    configure(scripts.home / "mcp.json", made=entry("many:300"))
    for rule, code in (("mcp__made__echo", 0), ("mcp__made", 0), ("mcp__other", 3)):
        asked = call("CallTool", {"tool": "mcp__made__echo", "arguments": {"text": "x"}})
        scripts.server.script(asked, say("Done."))
        ran = scripts.run("--strict", "--allow", rule, "-p", "echo")
        assert ran.code == code, ran.err
        is_done = "The answer of the MCP server made" in str(scripts.server.requests[-1].body)
        assert is_done == (code == 0)
    assert "refused: mcp__made__echo" in ran.err
    assert "allow it with --allow mcp__made__echo" in ran.err
    assert tools_of(scripts)[-2:] == ["FindTools", "CallTool"]
    scripts.server.script(say("None."))
    assert scripts.run("--bare", "-p", "hi").code == 0
    assert "mcp__made__add" not in tools_of(scripts)


def test_a_projects_server_is_one_line(scripts: Scripts) -> None:
    mark = scripts.work / "started"
    configure(scripts.work / ".mcp.json", theirs={"command": "touch", "args": [str(mark)]})
    scripts.server.script(say("Hello."))
    ran = scripts.run("-p", "hi")
    assert (ran.code, ran.out) == (0, "Hello.\n")
    (line,) = [line for line in ran.err.splitlines() if "MCP" in line]
    assert line.startswith(
        "kimi-tui: This folder's MCP server is not started until you allow it: theirs."
    )
    assert not mark.exists()


def test_without_the_package_the_line_that_installs_it_is_said(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "is_installed", lambda: False)
    configure(scripts.home / "mcp.json", made=entry())
    scripts.server.script(say("Hello."))
    ran = scripts.run("-p", "hi")
    assert (ran.code, ran.out) == (0, "Hello.\n")
    (line,) = [line for line in ran.err.splitlines() if "MCP" in line]
    assert "which is not installed. Install it with: " in line
    assert "pip install 'mcp>=2.3,<3'" in line


@pytest.mark.exhaustive
def test_without_servers_nothing_of_them_is_loaded(tmp_path: Path) -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import asyncio, sys\n"
            "from kimi_tui.library import open_session\n"
            "async def main():\n"
            "    async with open_session('.', base_url='http://127.0.0.1:9/v1', model='m', sandbox=False): pass\n"
            "asyncio.run(main())\n"
            "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'lxml', 'markdownify', 'bs4', 'pypdf') or 'kimi_tui.mcp' in name or name in ('kimi_tui.soul.subagents', 'kimi_tui.soul.stored_agents')])",
        ],
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "KIMI_TUI_HOME": str(tmp_path / "home"),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.stdout, said.stderr) == ("[]\n", "")


@pytest.mark.exhaustive
def test_the_rest_of_a_long_result_is_read_without_a_question(scripts: Scripts) -> None:
    text = "\n".join(f"row {n}" for n in range(20_000))
    configure(scripts.home / "mcp.json", made=entry())
    scripts.server.script(call("mcp__made__echo", {"text": text}), say("Long."))
    assert scripts.run("--mode", "all", "-p", "echo").code == 0
    (path,) = scripts.home.glob("sessions/*/*/results/*.txt")
    assert str(path) in str(scripts.server.requests[-1].body["messages"][-1])
    scripts.server.script(call("ReadFile", {"path": str(path), "line_offset": -1}), say("The end."))
    ran = scripts.run("--continue", "--strict", "-p", "and its end?")
    assert ran.code == 0, ran.err
    assert "row 19999" in str(scripts.server.requests[-1].body["messages"][-1])
