"""The installed program, a home of its own and a model server, for tests that use it as a person does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread, strict
from support.program import Program

from kimi_tui.tui.main.first_time_hints import WORDS


@pytest.fixture
def server() -> Iterator[ChatServerThread]:
    """A strict model server on a socket: it refuses what a strict provider would refuse."""
    with ChatServerThread(check=strict) as running:
        yield running


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """The program with nothing configured."""
    home, work = tmp_path / "home", tmp_path / "importer"
    home.mkdir()
    work.mkdir()
    # A hint may come at any time, and has a test of its own, so all of them count as seen here.
    (home / "hints.json").write_text(json.dumps([*WORDS]))
    made = Program(home, work, {})
    with made.stack:
        yield made
    made.assert_never_held_up()


@pytest.fixture
def configured(program: Program, server: ChatServerThread) -> Program:
    """The program with the server as its model, by environment; it asks before everything."""
    (program.home / "config.toml").write_text('mode = "ask"\n')
    program.environment |= {
        "KIMI_BASE_URL": server.base_url,
        "KIMI_API_KEY": "sk-test",
        "KIMI_MODEL_NAME": "stand-in",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": "100000",
    }
    return program
