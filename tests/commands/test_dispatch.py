"""Commands as a whole: the program itself as a child, and every way in which a command ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Place
from support.program import PROGRAM

from kimi_tui.cli import main
from kimi_tui.commands import dispatch


def program(place: Place, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kimi_tui", *arguments],
        cwd=place.work,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_program_itself(place: Place) -> None:
    place.three_turns()
    # In a terminal that knows only ASCII.
    wrong = program(place, "undo", "--session", "grün ✓", PYTHONIOENCODING="ascii")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("kimi-tui: There is no session 'gr?n ?'.")
    assert wrong.stderr.count("\n") == 1


def test_help_names_every_command(place: Place) -> None:
    shown = " ".join(program(place, "--help").stdout.split())
    for name, words in dispatch.COMMANDS.items():
        assert f"{name} {words}" in shown
        ran = place.run(name, "--help")
        assert ran.code == 0
        assert ran.out.startswith(f"usage: kimi-tui {name}")


@pytest.mark.sample
@pytest.mark.parametrize("command", ["--version", "checkpoints"])
def test_a_reader_that_has_seen_enough(place: Place, command: str) -> None:
    if command != "--version":
        place.three_turns()
    read, write = os.pipe()
    os.close(read)
    child = subprocess.run(
        [sys.executable, "-m", "kimi_tui", command],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(write)
    assert child.stderr == b""
    assert child.returncode == 1


def test_ctrl_c(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatch, "_run", stop)
    ran = place.run("undo")
    assert (ran.code, ran.err) == (130, "")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("secret details"), "an internal error occurred (ValueError)."),
        (PermissionError(13, "Permission denied", "/a/b"), "Permission denied (/a/b)"),
    ],
)
def test_no_traceback(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(dispatch, "_run", fail)
    ran = place.run("undo")
    assert ran.code == 1
    assert words in ran.complaint
    log = place.folder / "data" / "logs" / "kimi-tui.log"
    assert log.exists() == isinstance(error, ValueError)


@pytest.mark.exhaustive
def test_closed_streams_end_nothing(tmp_path: Path) -> None:
    shell = f"{PROGRAM} sessions <&- >&- 2>&-; echo $?"
    ran = subprocess.run(
        ["bash", "-c", shell],
        cwd=tmp_path,
        env={"KIMI_TUI_HOME": str(tmp_path / "kt"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ran.stdout, ran.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [(["sessions", "--help"], "stdout", 0), (["checkpoints"], "stderr", 2)],
)
def test_one_closed_stream_ends_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, arguments: list[str], closed: str, code: int
) -> None:
    # If the shell has closed a stream, Python has none, and its number is free.
    number = ("stdin", "stdout", "stderr").index(closed)
    kept = os.dup(number)
    monkeypatch.setattr(sys, closed, None)
    monkeypatch.setattr(sys, f"__{closed}__", None)
    os.close(number)
    try:
        assert main(arguments) == code
        assert getattr(sys, closed).fileno() == number
    finally:
        os.dup2(kept, number)
        os.close(kept)


def test_a_command_waits_for_no_import_that_it_does_not_need(place: Place) -> None:
    place.three_turns()
    code = (
        "import sys\n"
        "from kimi_tui.cli import main\n"
        "heavy = ('kimi_tui.config', 'kimi_tui.session', 'asyncio')\n"
        "assert main(['--version']) == main(['--help']) == 0\n"
        "assert not [name for name in sys.modules if name.startswith(heavy)]\n"
        "heavy = ('pydantic.', 'openai', 'rich.console', 'kimi_tui.llm.message', 'kimi_tui.tools', 'kimi_tui.wire')\n"
        "assert main(['sessions']) == main(['rewind', '--help']) == main(['checkpoints', '--help']) == 0\n"
        "found = [name for name in sys.modules if name.startswith(heavy)]\n"
        "assert not found, found\n"
        # This imports neither the screen nor the network.
        "main(['checkpoints'])\n"
        "found = [name for name in ('textual', 'openai', 'httpx', 'httpx2') if name in sys.modules]\n"
        "assert not found, found\n"
        "assert main(['export', '--html']) == 0\n"
        "assert 'textual' not in sys.modules\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=place.work, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "kimi-tui 0." in run.stdout
    assert "tokens" in run.stdout
