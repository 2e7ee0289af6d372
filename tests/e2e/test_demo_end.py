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
    """The folder in which the demo makes its own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    program.environment["TMPDIR"] = str(folder)
    return folder


def demo(program: Program) -> Terminal:
    """Return the demo, ready for its first message."""
    terminal = program.start("--demo", "--speed", "20")
    terminal.wait_for("› Rows with")
    return terminal


@pytest.mark.exhaustive
def test_enter_begins_it_also_before_its_message_stands_in_the_prompt(
    program: Program, temporary: Path
) -> None:
    terminal = program.start("--demo", "--speed", "20")
    terminal.wait_for("Press Enter to start")
    assert "› Rows with" not in terminal.screen_text()
    terminal.key("enter")
    terminal.wait_for("y  Yes, once")


@pytest.mark.exhaustive
def test_it_takes_its_folder_away(program: Program, temporary: Path) -> None:
    terminal = demo(program)
    assert len(list(temporary.glob("kimi-*"))) == 1
    terminal.key("ctrl+u")
    terminal.wait_for("› Ask for a change")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert list(temporary.glob("kimi-*")) == []


@pytest.mark.exhaustive
def test_a_fork_goes_on_in_the_same_demo(program: Program, temporary: Path) -> None:
    terminal = demo(program)
    terminal.key("enter")
    terminal.wait_for("y  Yes, once")
    terminal.wait_quiet(0.6)
    terminal.key("n")
    terminal.wait_gone("y  Yes, once")
    (folder,) = temporary.glob("kimi-*")
    terminal.wait_for("› Rows with")
    terminal.key("ctrl+u")
    terminal.wait_gone("› Rows with")
    terminal.type("/fork 0")
    terminal.key("enter")
    terminal.wait_for("This is a fork")
    terminal.wait_for("› Rows with")
    assert len(list(folder.glob("data/sessions/*/*/context.jsonl"))) == 2
    terminal.key("enter")
    terminal.wait_for("y  Yes, once")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    assert list(temporary.glob("kimi-*")) == []


@pytest.mark.exhaustive
def test_what_is_said_in_it_is_not_in_the_folders_history(
    program: Program, temporary: Path
) -> None:
    terminal = demo(program)
    terminal.key("enter")
    terminal.wait_for("y  Yes, once")
    terminal.key("ctrl+q")
    terminal.wait_exit()
    assert not (program.home / "history").exists()


@pytest.mark.exhaustive
def test_also_when_it_is_asked_to_end(program: Program, temporary: Path) -> None:
    terminal = demo(program)
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.wait_exit()
    assert list(temporary.glob("kimi-*")) == []


@pytest.mark.exhaustive
def test_a_file_of_the_persons_own_keeps_it(program: Program, temporary: Path) -> None:
    terminal = demo(program)
    (folder,) = temporary.glob("kimi-*")
    (folder / "importer" / "mine.txt").write_text("mine", encoding="utf-8")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    # The path may be wrapped at the end of a row.
    terminal.wait_for(lambda screen: folder.name in screen.replace("\n", ""))
    assert (folder / "importer" / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.exhaustive
def test_the_demo_says_that_it_is_one_and_how_it_begins(program: Program) -> None:
    for size in ((120, 40), (80, 24), (60, 20)):
        terminal = program.start("--demo", size=size)
        terminal.wait_for("This is a demo. Press Enter to start.")
        terminal.wait_for("sends the message below")
        terminal.wait_for("› Rows with")
        terminal.key("ctrl+q")
        assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [(80, 24)])
def test_the_demo_plays_by_itself_to_its_end(program: Program, size: tuple[int, int]) -> None:
    terminal = program.start("--demo", "--play", "--speed", "50", size=size)
    terminal.wait_for("Any key  takes over")
    terminal.wait_for("That was the demo.", timeout_s=240)
    terminal.wait_for("To start your own work:")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_a_key_takes_the_demo_over(program: Program) -> None:
    terminal = program.start("--demo", "--play")
    terminal.wait_for("› Rows wi")
    terminal.key("left")
    terminal.wait_for("You have taken over from the demo.")
    terminal.wait_for("with a test.")
    terminal.key("enter")
    terminal.wait_for("#0")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_playing_is_for_the_demo(program: Program) -> None:
    terminal = program.start("--play", fresh=True)
    terminal.wait_for("kimi-tui: --play needs --demo")
    assert terminal.wait_exit() == 2
