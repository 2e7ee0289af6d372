"""One notice at each start names the parts of kimi-cli's configuration that this program does not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.config.kimi_cli_guards import not_run_notice
from kimi_tui.launch import Options, launch_of


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "share"
    place.mkdir()
    monkeypatch.setenv("KIMI_SHARE_DIR", str(place))
    return place


def test_nothing_is_said_where_there_is_nothing_to_run(share: Path, tmp_path: Path) -> None:
    (share / "config.toml").write_text('default_model = "x"\nhooks = []\n[mcp]\n')
    (share / "mcp.json").write_text('{"mcpServers": {}}')
    assert not_run_notice(tmp_path / "none.toml") == ""


def test_services_are_named_with_their_files(share: Path, tmp_path: Path) -> None:
    (share / "config.toml").write_text(
        '[[hooks]]\nevent = "Stop"\ncommand = "x"\n'
        '[mcp.client]\ntool_call_timeout_ms = 1\n[services.moonshot_search]\nbase_url = "x"\n'
    )
    # Its servers are used, if this program can.
    (share / "mcp.json").write_text('{"mcpServers": {"a": {}, "b": {}}}')
    assert not_run_notice(tmp_path / "none.toml") == (
        f"kimi-tui ignores [mcp] and [services] in {share}/config.toml: only kimi-cli uses such settings."
    )
    # The notice is shown once at the start, and by `doctor`, which shows the same notices; not in the demo.
    (words,) = launch_of(Options()).notices
    assert "[mcp] and [services] in" in words
    assert launch_of(Options(demo=True)).notices == ()
