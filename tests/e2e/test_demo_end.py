"""The demo in a real terminal: what is left of it when the program has ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.program import Program
from support.terminal import Terminal


@pytest.fixture
def temporary(program: Program, tmp_path: Path) -> Path:
    """Where the demo makes its folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    program.environment["TMPDIR"] = str(folder)
    return folder


def demo(program: Program) -> Terminal:
    """The demo, ready for its first message."""
    terminal = program.start("--demo", "--speed", "20")
    terminal.wait_for("› Rows with")
    return terminal


def test_it_takes_its_folder_away(program: Program, temporary: Path) -> None:
    terminal = demo(program)
    assert len(list(temporary.glob("kimi-*"))) == 1
    terminal.key("ctrl+u")
    terminal.wait_for("› Ask for a change")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert list(temporary.glob("kimi-*")) == []


def test_what_is_said_in_it_is_not_in_the_folders_history(
    program: Program, temporary: Path
) -> None:
    terminal = demo(program)
    terminal.key("enter")
    terminal.wait_for("y  Yes, once")
    terminal.key("ctrl+q")
    terminal.wait_exit()
    assert not (program.home / "history").exists()


def test_also_when_it_is_asked_to_end(program: Program, temporary: Path) -> None:
    terminal = demo(program)
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.wait_exit()
    assert list(temporary.glob("kimi-*")) == []


def test_a_file_of_the_persons_own_keeps_it(program: Program, temporary: Path) -> None:
    terminal = demo(program)
    (folder,) = temporary.glob("kimi-*")
    (folder / "importer" / "mine.txt").write_text("mine", encoding="utf-8")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    # It may go over the end of a line.
    terminal.wait_for(lambda screen: folder.name in screen.replace("\n", ""))
    assert (folder / "importer" / "mine.txt").read_text(encoding="utf-8") == "mine"
