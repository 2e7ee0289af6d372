"""`kimi-tui mcp`: what it writes, lists and tries, and what it says to wrong arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kimi_tui.cli import main
from kimi_tui.mcp import package

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KIMI_SHARE_DIR", str(tmp_path / ".kimi"))
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[sandbox]\nenabled = false\n")
    return tmp_path


def test_servers_are_added_listed_tried_and_removed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = home / "home" / "mcp.json"
    assert (
        main(
            [
                "mcp",
                "add",
                "made",
                "-e",
                "A=${B:-c}",
                "--no-sandbox",
                "--",
                sys.executable,
                str(SERVER),
            ]
        )
        == 0
    )
    assert (
        main(["mcp", "add", "web", "https://x.example/mcp", "-H", "X-Key: ${K}", "--project"]) == 0
    )
    assert json.loads(own.read_text())["mcpServers"]["made"] == {
        "command": sys.executable,
        "args": [str(SERVER)],
        "env": {"A": "${B:-c}"},
        "sandbox": False,
    }
    assert json.loads((home / "work" / ".mcp.json").read_text())["mcpServers"]["web"] == {
        "type": "http",
        "url": "https://x.example/mcp",
        "headers": {"X-Key": "${K}"},
    }
    capsys.readouterr()
    assert main(["mcp", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["state"]) for one in listed] == [
        ("made", "on"),
        ("web", "not allowed"),
    ]
    assert main(["mcp", "test", "made"]) == 0
    out = capsys.readouterr().out
    assert "outside the sandbox, with your permissions: 6 tools" in out
    assert "Add two numbers." in out
    assert main(["mcp", "test", "web"]) == 1
    assert "use /mcp allow NAME" in capsys.readouterr().err
    assert main(["mcp", "remove", "made"]) == 0
    assert json.loads(own.read_text()) == {"mcpServers": {}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "a b", "--", "x"], "A name has 1 to 32"),
        (["add", "x"], "Name the server's address, or its command after --."),
        (
            ["add", "x", "https://x.example", "--", "y"],
            "Name the server's address, or its command after --.",
        ),
        (["add", "x", "ftp://x.example"], "is not an address"),
        (["add", "x", "-e", "novalue", "--", "y"], "is not a variable of the form NAME=VALUE"),
        (
            ["add", "x", "http://nas.lan/mcp", "-H", "A: b"],
            "Its headers would be sent to nas.lan unencrypted; use https, or leave out the headers (",
        ),
        (["remove", "x"], 'There is no MCP server "x" in '),
        (["test", "x\x1b[2J"], 'There is no MCP server "x"'),
        (["login", "x"], 'There is no MCP server "x"'),
        (["revoke", "x"], 'You have not allowed an MCP server "x" in this folder'),
        (["list", "--", "x"], "only add takes a command after --"),
        ([], "COMMAND"),
        (["nope"], "invalid choice"),
    ],
)
def test_a_wrong_argument_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["mcp", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_without_the_package_the_line_is_printed(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "is_installed", lambda: False)
    main(["mcp", "add", "made", "--", "x"])
    assert main(["mcp", "test", "made"]) == 1
    assert "Install it with: " in capsys.readouterr().err
