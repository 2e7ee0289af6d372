"""A session that cannot be opened never keeps the program from starting, from saying so, or from being left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.program import Program

# A network disk that is gone answers no call: the thread that made it is never free again.
HANGING = """
import sys, threading
from kimi_tui import cli
from kimi_tui.session.{module} import {owner}
from kimi_tui.tui import shutdown
shutdown.PATIENCE_S = 1.0
def hang(*_arguments, **_more):
    threading.Event().wait()
{owner}.{name} = hang
sys.exit(cli.main(["--continue"]))
"""


@pytest.mark.sample
@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        ("store", "SessionStore", "newest"),
        ("session", "Session", "_lock_folder"),
        ("jsonl", "JsonlLog", "read"),
    ],
)
def test_a_session_that_hangs_while_it_is_opened_can_be_left(
    configured: Program, module: str, owner: str, name: str
) -> None:
    code = HANGING.format(module=module, owner=owner, name=name)
    terminal = configured.start_python(code, size=(80, 24))
    terminal.wait_for("Ask for a change")
    terminal.wait_quiet(0.5)
    before = terminal.n_bytes
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert b"\x1b[?1049l" in terminal.raw[before:]


@pytest.mark.exhaustive
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_the_screen_is_drawn_whatever_encoding_the_environment_names(
    configured: Program, encoding: str
) -> None:
    terminal = configured.start(env={"PYTHONIOENCODING": encoding}, fresh=True)
    terminal.wait_for("/ 100k")
    assert b"\\u2502" not in terminal.raw
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


def test_a_configuration_that_is_a_fifo_is_named(program: Program) -> None:
    program.home.mkdir(exist_ok=True)
    os.mkfifo(program.home / "config.toml")
    terminal = program.start(fresh=True)
    assert terminal.wait_exit() == 2
    # The temporary folder's name is as long as it is: the line may break anywhere.
    shown = "".join(terminal.screen_text().split())
    assert "itisaFIFO,notaregularfile" in shown


@pytest.mark.exhaustive
def test_a_session_whose_files_are_no_files_is_refused_in_a_line(
    configured: Program, tmp_path: Path
) -> None:
    bucket = configured.home / "sessions" / ("0" * 32)
    (bucket / "abc").mkdir(parents=True)
    os.mkfifo(bucket / "abc" / "context.jsonl")
    terminal = configured.start("--session", "abc")
    assert terminal.wait_exit() == 1
    said = terminal.screen_text().replace("\n", "")
    assert "Could not open the session: it is a FIFO" in said
    assert "Traceback" not in said
    assert "go on" not in said  # with what cannot be opened
