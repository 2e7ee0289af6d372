"""`kimi-tui import --from AGENT` and `kimi-tui import-settings`, as they are typed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.commands import Place
from support.foreign_sessions import FILES, PROJECT

from kimi_tui.app_paths import short


@pytest.fixture
def pi(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A work folder in which pi was used."""
    home = place.folder / "pi-home"
    monkeypatch.setenv("HOME", str(home))
    shutil.copytree(FILES / "pi", home / ".pi" / "agent")
    (path,) = home.rglob("*.jsonl")
    path.write_text(path.read_text().replace(PROJECT, str(place.work)))
    named = f"--{str(place.work)[1:].replace('/', '-')}--"
    path.parent.rename(path.parent.with_name(named))
    return place


def test_sessions_are_listed_then_imported_and_only_once(pi: Place) -> None:
    listed = pi.run("import", "--from", "pi", "--dry-run")
    assert listed.code == 0
    assert "Hello pi." in listed.out
    assert "would be imported" in listed.out
    assert "there are no file snapshots of those steps" in listed.out
    assert pi.store.list(pi.work) == []
    (row,) = pi.run("import", "--from", "pi", "--json").json
    assert (row["state"], row["messages"], row["tool_calls"], row["forks"]) == (
        "imported",
        10,
        3,
        1,
    )
    (info,) = pi.store.list(pi.work)
    assert info.id == row["id"]
    assert "already imported" in pi.run("import", "--from", "pi").out
    checkpoints = pi.run("checkpoints", "--json").json
    assert [point["kind"] for point in checkpoints] == ["compaction", "user", "step"]
    # What is rewound is the conversation.
    assert pi.run("rewind", "1").code == 0
    assert "Hello pi." in pi.run("sessions").out


def test_an_unknown_agent_and_one_without_sessions_are_said(pi: Place) -> None:
    complaint = pi.run("import", "--from", "pie").complaint
    assert complaint.startswith("'pie' is neither an agent nor a folder. Use claude, codex,")
    assert pi.run("import", "--from", "gemini").out == (
        "Gemini CLI has no sessions for this folder (--all imports from every folder).\n"
    )


def test_settings_are_listed_and_one_is_imported_by_its_id(pi: Place) -> None:
    home = Path(pi.folder / "pi-home")
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text('[mcp_servers.docs]\ncommand = "docs"\n')
    (one,) = pi.run("import-settings", "--json").json
    assert (one["agent"], one["kind"], one["state"]) == ("Codex", "MCP server", "new")
    assert one["id"] in pi.run("import-settings").out
    assert pi.run("import-settings", "0").complaint.startswith("There is no setting '0'.")
    assert "This needs a terminal to answer" in pi.run("import-settings", one["id"]).err
    ours = Path(os.environ["KIMI_TUI_HOME"], "mcp.json")
    ours.mkdir(parents=True)
    refused = pi.run("import-settings", one["id"], "--yes")
    assert refused.code == 1
    assert "docs was not imported: it is a folder" in refused.err
    assert short(ours) in refused.err
    ours.rmdir()
    assert "docs was added to " in pi.run("import-settings", one["id"], "--yes").out
    assert pi.run("import-settings", one["id"], "--yes").code == 1
    assert json.loads(pi.run("mcp", "list", "--json").out)[0]["name"] == "docs"
