"""Ended by the system: commands that run are ended too, the session is saved, the terminal is as it was."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread, call, say
from support.program import Program
from support.terminal import Terminal

COMMAND = "sleep 300 & echo $! > child; echo begun; wait"


def _state(pid: int) -> str:
    """The letter that the system has for what a process does; Z where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def _working(program: Program, server: ChatServerThread) -> tuple[Terminal, int]:
    """The program while a command of the agent runs, and that command's process."""
    server.script(call("Shell", {"command": COMMAND}), say("Not reached."))
    terminal = program.start("--yolo")
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Go")
    terminal.key("enter")
    terminal.wait_for(re.compile("^ +begun", re.MULTILINE))
    return terminal, int((program.work / "child").read_text())


def _is_kept(program: Program) -> None:
    """The turn is in the file, and the command that was cut off has its result."""
    assert program.context()[-1]["role"] in ("tool", "_usage")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(
    configured: Program, server: ChatServerThread, number: signal.Signals
) -> None:
    terminal, child = _working(configured, server)
    before = terminal.n_bytes
    os.kill(terminal.pid, number)
    assert terminal.wait_exit() == 128 + number
    left = terminal.raw[before:]
    for restored in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l", b"\x1b[?2004l"):
        assert restored in left
    _until(lambda: _state(child) == "Z")
    _is_kept(configured)


def test_it_sleeps_and_wakes(configured: Program, server: ChatServerThread) -> None:
    server.script(say("Awake."))
    terminal = configured.start()
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Draft")
    terminal.wait_for("› Draft")
    before = terminal.n_bytes
    terminal.key("ctrl+z")
    _until(lambda: _state(terminal.pid) == "T")
    terminal.wait_raw(b"\x1b[?1049l", start=before)
    asleep = terminal.n_bytes
    os.kill(terminal.pid, signal.SIGCONT)
    awake = terminal.wait_raw(b"\x1b[?1049h", start=asleep)
    # All of it is drawn, for nothing is left of what stood there.
    terminal.wait_raw(b"timeline", start=awake)
    terminal.type("ed")
    terminal.wait_for("› Drafted")
    terminal.key("enter")
    terminal.wait_for("Awake.")


def test_closing_the_window_ends_it_in_order(configured: Program, server: ChatServerThread) -> None:
    terminal, child = _working(configured, server)
    terminal.close_window()
    assert terminal.wait_exit() == 128 + signal.SIGHUP
    _until(lambda: _state(child) == "Z")
    _is_kept(configured)
