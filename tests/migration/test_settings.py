"""Settings of other agents: what is found, what of it is shown, and where it is written after a yes."""

from __future__ import annotations

import json
import random
import stat
from pathlib import Path
from typing import Any

import pytest

from kimi_tui.config.custom_commands import custom_commands
from kimi_tui.config.file import read_config
from kimi_tui.config.permissions import FILE_NAME, ProjectPermissions
from kimi_tui.hooks.definitions import find_hooks
from kimi_tui.mcp.config import configured
from kimi_tui.migration.settings import FoundSetting, find_settings
from kimi_tui.migration.settings_taking import NotTaken, take

SECRET = "sk-very-secret-value-1234567890"
FILES: dict[str, Any] = {
    ".claude.json": {
        "mcpServers": {
            "db": {
                "command": "npx",
                "args": ["-y", "db", "--token", SECRET, f"--api-key={SECRET}"],
                "env": {"API_KEY": SECRET},
            },
            "web": {"type": "http", "url": f"https://mcp.example/x?key={SECRET}"},
            "no name": {"command": "x"},
        },
        "projects": {
            "WORK": {
                "allowedTools": [
                    "Bash(npm run test:*)",
                    "WebFetch(domain:docs.python.org)",
                    "Bash",
                    "Bash(bash:*)",
                    "mcp__db__query",
                ]
            }
        },
    },
    ".claude/settings.json": {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch ran"}]}]},
        "permissions": {"deny": ["Read(.env)"]},
        "statusLine": {"type": "command", "command": "line.sh", "refreshInterval": 10},
    },
    ".claude/agents/reviewer.md": "---\ndescription: Reviews code\n---\nYou review.",
    ".gemini/agents/finder.md": "---\nname: finder\ndescription: Finds\ntools:\n  - read_file\n  - search_file_content\nmodel: inherit\n---\nUse read_file.",
    ".claude/CLAUDE.md": "Use tabs.",
    ".codex/config.toml": '[mcp_servers.docs]\ncommand = "docs"\ntool_timeout_sec = 20\nenv_vars = ["TOKEN"]\n',
    ".codex/prompts/explain.md": "Explain $ARGUMENTS",
    ".codex/AGENTS.md": "Use spaces.",
    ".gemini/settings.json": {
        "mcpServers": {"files": {"httpUrl": "http://127.0.0.1:9/mcp", "timeout": 5_000}},
        "hooks": {
            "BeforeTool": [
                {
                    "matcher": "run_shell_command|write_file",
                    "hooks": [{"type": "command", "command": "guard", "timeout": 90_000}],
                }
            ],
            "BeforeModel": [{"hooks": [{"type": "command", "command": "x"}]}],
        },
    },
    ".gemini/commands/git/commit.toml": 'description = "c"\nprompt = "Commit {{args}}"\n',
    ".gemini/commands/run.toml": 'prompt = "!{rm -rf /}"\n',
    ".gemini/skills/release/SKILL.md": "---\ndescription: Releases\n---\nRelease.",
    ".gemini/skills/release/run.sh": "echo",
    ".kimi-code/config.toml": '[[hooks]]\nevent = "PreToolUse"\ncommand = "kguard"\n',
    ".kimi-code/mcp.json": {"mcpServers": {"k": {"command": "k"}}},
    ".kimi/mcp.json": {"mcpServers": {"old": {"command": "old"}}},
    "work/.gemini/settings.json": {"mcpServers": {"theirs": {"command": "theirs"}}},
    "work/GEMINI.md": "Notes of the folder.",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of somebody who used all of them."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("KIMI_CODE_HOME", raising=False)
    monkeypatch.delenv("KIMI_SHARE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "ours"))
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text.replace("WORK", str(tmp_path / "work")))
    return tmp_path


def found_in(home: Path) -> dict[str, FoundSetting]:
    found, remarks = find_settings(home / "work")
    assert not remarks
    return {f"{one.agent}: {one.kind} {one.name}": one for one in found}


def test_all_of_them_are_found_with_what_can_be_done(home: Path) -> None:
    found = found_in(home)
    assert {name: one.state for name, one in found.items()} == {
        "Claude Code: MCP server db": "new",
        "Claude Code: MCP server web": "new",
        "Claude Code: MCP server no name": "unusable",
        "Claude Code: permission Bash(npm run test:*)": "new",
        "Claude Code: permission WebFetch(domain:docs.python.org)": "new",
        "Claude Code: permission Bash": "unusable",
        "Claude Code: permission Bash(bash:*)": "unusable",
        "Claude Code: permission mcp__db__query": "unusable",
        "Claude Code: permission Read(.env)": "unusable",
        "Claude Code: hook settings.json": "used",
        "Claude Code: status line line.sh": "new",
        "Claude Code: agent reviewer": "used",
        "Claude Code: note CLAUDE.md": "new",
        "Codex: MCP server docs": "new",
        "Codex: command explain": "new",
        "Codex: note AGENTS.md": "new",
        "Gemini CLI: MCP server files": "new",
        "Gemini CLI: MCP server theirs": "new",
        "Gemini CLI: hook PreToolUse: guard": "new",
        "Gemini CLI: hook BeforeModel": "unusable",
        "Gemini CLI: command git-commit": "new",
        "Gemini CLI: command run": "unusable",
        "Gemini CLI: agent finder": "new",
        "Gemini CLI: skill release": "new",
        "Gemini CLI: note GEMINI.md": "unusable",
        "kimi-cli: MCP server mcp.json": "used",
        "kimi-code: hook PreToolUse: kguard": "new",
        "kimi-code: MCP server k": "new",
    }
    assert all(one.why for one in found.values() if one.state in ("unusable", "used"))
    # Nothing was run or written, and nothing that is secret is shown.
    assert not (home / "ours").exists()
    assert not (home / "work" / "ran").exists()
    assert not any(SECRET in f"{one!r}{one.about}{one.why}" for one in found.values())
    assert found["Gemini CLI: skill release"].about.endswith("Other files: run.sh")
    assert "API_KEY; their values are not shown" in found["Claude Code: MCP server db"].about


def test_each_is_written_to_where_its_own_command_writes(home: Path) -> None:
    work = home / "work"
    for one in found_in(home).values():
        if one.state == "new":
            assert take(one, work)
        else:
            with pytest.raises(NotTaken):
                take(one, work)
    servers = {one.name: one for one in configured(work).servers}
    assert {"db", "web", "docs", "files", "k", "theirs"} <= servers.keys()
    assert dict(servers["db"].env) == {"API_KEY": SECRET}
    assert stat.S_IMODE((home / "ours" / "mcp.json").stat().st_mode) == 0o600
    assert dict(servers["docs"].env) == {"TOKEN": "${TOKEN}"}
    assert servers["docs"].tool_timeout_s == 20
    # The server of a folder stays the folder's, which needs a yes of its own before it runs.
    assert servers["theirs"].origin == "project"
    hooks = [hook for hook in find_hooks(work).own if hook.path.name == "config.toml"]
    assert [(hook.command, hook.matcher, hook.timeout_s) for hook in hooks] == [
        ("guard", "Shell|WriteFile", 90.0),
        ("kguard", "", 30.0),
    ]
    commands = {one.name: one for one in custom_commands(work, home / "ours", home)}
    assert commands["git-commit"].with_arguments("now") == "Commit now"
    assert commands["explain"].text == "Explain $ARGUMENTS"
    assert (home / "ours" / "agents" / "finder.md").read_text() == (
        "---\nname: finder\ndescription: Finds\ntools:\n  - ReadFile\n  - Grep\nmodel: inherit\n---\nUse read_file."
    )
    assert commands["release"].for_agent
    assert (home / "ours" / "skills" / "release" / "run.sh").read_text() == "echo"
    assert (home / "ours" / "AGENTS.md").read_text() == "Use tabs.\n\nUse spaces.\n"
    line = read_config(home / "ours" / "config.toml").statusline
    assert (line.command, line.refresh_interval) == ("line.sh", 10)
    rules = ProjectPermissions(home / "ours" / FILE_NAME, work).rules
    assert "host:docs.python.org" in rules
    # All of that is here now, and is said to be.
    states = {name: one.state for name, one in found_in(home).items()}
    assert [name for name, state in states.items() if state == "new"] == []


def test_what_exists_is_never_replaced(home: Path) -> None:
    work, found = home / "work", found_in(home)
    ours = home / "ours"
    for name in ("agents", "commands"):
        (ours / name).mkdir(parents=True)
    (ours / "agents" / "finder.md").write_text("mine")
    (ours / "commands" / "explain.md").write_text("mine")
    (ours / "mcp.json").write_text('{"mcpServers": {"db": {"command": "mine"}}}')
    text = "hooks = 5\n[statusline]\ncommand = 'mine'\n"
    (ours / "config.toml").write_text(text)
    for name in (
        "Claude Code: status line line.sh",
        "Gemini CLI: agent finder",
        "Codex: command explain",
        "Claude Code: MCP server db",
        "kimi-code: hook PreToolUse: kguard",
    ):
        with pytest.raises(NotTaken):
            take(found[name], work)
    assert (ours / "commands" / "explain.md").read_text() == "mine"
    assert json.loads((ours / "mcp.json").read_text())["mcpServers"]["db"]["command"] == "mine"
    assert (ours / "config.toml").read_text() == text


def test_damaged_files_are_said_and_end_nothing(home: Path) -> None:
    chance = random.Random(5)
    for _ in range(40):
        name = chance.choice([*FILES])
        data = (home / name).read_bytes()
        place = chance.randrange(len(data) + 1)
        odd = chance.choice([b"\0", b"\xff", b"[" * 5_000, b'{"a":', b"\x1b[2J", b"null"])
        (home / name).write_bytes(data[:place] + odd + data[place + chance.randrange(9) :])
        found, remarks = find_settings(home / "work")
        said = "".join([*remarks, *(f"{one.name}{one.about}{one.why}" for one in found)])
        assert "\x1b" not in said
        assert "\0" not in said
        (home / name).write_bytes(data)
    (home / ".claude" / "agents" / "link.md").symlink_to("/etc/passwd")
    (home / ".codex" / "config.toml").unlink()
    (home / ".codex" / "config.toml").mkdir()
    found, remarks = find_settings(home / "work")
    assert not any("link" in one.name for one in found)
    assert len(remarks) == 1
