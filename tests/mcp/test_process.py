"""The program of a server as a process: how its end is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kimi_tui.mcp import process
from kimi_tui.mcp.process import ServerProcess, ServerStart


def test_the_last_words_are_those_before_the_end_of_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_END_S", 30.0)
    program = "(sleep 0.1; echo late >&2) & echo early >&2; exit 3"
    start = ServerStart(("/bin/sh", "-c", program), {"PATH": os.environ["PATH"]}, tmp_path)
    server = ServerProcess(start, tmp_path / "log")
    try:
        assert server.how_ended() == "it exited with code 3; its last output: late"
    finally:
        server.close()
        os.close(server.stdin)
        os.close(server.stdout)
