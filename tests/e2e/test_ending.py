"""Ended by the system: commands that run are ended too, the session is saved, the terminal is as it was."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.cases import first_only
from support.chat_server import ChatServerThread, call, say
from support.program import PROGRAM, Program
from support.terminal import Terminal

from kimi_tui.tui.keyboard import QUIET_S
from kimi_tui.tui.shutdown import SIGNALS

COMMAND = "sleep 300 & echo $! > child; echo begun; wait"


def _state(pid: int) -> str:
    """Return the letter of the system for the state of a process; Z if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def _catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 50
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def _processes_in(folder: Path) -> Iterator[int]:
    """Yield the processes that stand in a folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").resolve() == folder.resolve():
                yield int(entry.name)


def _own_number(pid: int) -> str:
    """Return the ID that a process has for itself, which differs from that outside of a sandbox."""
    numbers = re.search(r"^NSpid:.*\t(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return numbers[1] if numbers is not None else str(pid)


def _working(program: Program, server: ChatServerThread) -> tuple[Terminal, int]:
    """Return the program while a command of the agent runs, and that command's process."""
    server.script(call("Shell", {"command": COMMAND}), say("Not reached."))
    terminal = program.start("--yolo")
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Go")
    terminal.key("enter")
    terminal.wait_for(re.compile("^ +begun", re.MULTILINE))
    number = (program.work / "child").read_text().strip()
    return terminal, next(pid for pid in _processes_in(program.work) if _own_number(pid) == number)


def _is_kept(program: Program) -> None:
    """The turn is in the file, and the command that was cut off has its result."""
    assert program.context()[-1]["role"] in ("tool", "_usage")


def _restored(written: bytes) -> None:
    """The last word on each mode of the terminal is that it is off (of the cursor: on); the instant prompt sets only some."""
    for mode, last in {b"1049": b"l", b"25": b"h", b"1000": b"l", b"1003": b"l", b"1006": b"l", b"2004": b"l", b"1004": b"l"}.items():  # fmt: skip
        switches = re.findall(rb"\x1b\[\?" + mode + rb"([hl])", written)
        assert switches[-1:] in ([], [last]), mode
    assert re.findall(rb"\x1b\[>4(;1)?m", written)[-1:] in ([], [b""])
    assert b"\x1b[?1049h" in written
    assert len(re.findall(rb"\x1b\[>\d+u", written)) == written.count(b"\x1b[<u")


@pytest.mark.sample
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGINT, signal.SIGPROF])
def test_every_signal_that_ends_it_leaves_the_terminal_as_it_was(
    configured: Program, number: signal.Signals
) -> None:
    terminal = configured.start(fresh=number == signal.SIGPROF)
    terminal.wait_for("Ctrl+T timeline")
    # The rarer ones are caught from a moment after the first picture on.
    _until(lambda: _catches(terminal.pid, number))
    os.kill(terminal.pid, number)
    assert terminal.wait_exit() == 128 + number
    _restored(terminal.raw)


EARLY = """
import asyncio, os, sys
from kimi_tui import cli
from kimi_tui.tui import app
from kimi_tui.tui.main.screen import MainScreen

def told(where, name):
    before = getattr(where, name)
    def early(self):
        os.kill(os.getpid(), {number})
        return before(self)
    setattr(where, name, early)

async def late(self):
    os.kill(os.getpid(), {number})
    while self.is_attached:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
    await opened(self)

opened = MainScreen._open_session
match {moment!r}:
    case "parsing":
        cli.parse = lambda arguments: os.kill(os.getpid(), {number})
    case "composing":
        told(app.KimiApp, "get_default_screen")
    case "mounting":
        told(app.KimiApp, "on_mount")
    case "opening":
        MainScreen._open_session = late
sys.exit(cli.main([]))
"""


@pytest.mark.sample
@pytest.mark.parametrize("moment", ["parsing", "composing", "mounting", "opening"])
def test_a_signal_in_the_first_moments_is_the_end_too(configured: Program, moment: str) -> None:
    number = signal.SIGINT if moment != "mounting" else signal.SIGTERM
    terminal = configured.start_python(EARLY.format(number=int(number), moment=moment))
    assert terminal.wait_exit() == 128 + number
    assert "Traceback" not in terminal.screen_text()
    assert not (configured.home / "logs" / "kimi-tui.log").exists()
    if moment != "parsing":
        _restored(terminal.raw)


def test_no_signal_that_ends_a_program_is_forgotten() -> None:
    for number in (
        *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT, signal.SIGUSR1),
        *(signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU),
        *(signal.SIGTRAP, signal.SIGSYS),
    ):
        assert number in SIGNALS
    for number in (signal.SIGSEGV, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCHLD, signal.SIGPIPE):
        assert number not in SIGNALS


@pytest.mark.sample
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGTRAP])
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


def _suspended(terminal: Terminal) -> int:
    """Press Ctrl+Z and see the program stop, with the terminal restored; how many bytes it has written until then."""
    before = terminal.n_bytes
    terminal.key("ctrl+z")
    terminal.wait_stopped()
    terminal.wait_raw(b"\x1b[?1004l", start=before)
    _restored(terminal.raw)
    return terminal.n_bytes


def test_it_sleeps_and_wakes(configured: Program, server: ChatServerThread) -> None:
    server.script(say("Awake."))
    terminal = configured.start()
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Draft")
    terminal.wait_for("› Draft")
    asleep = _suspended(terminal)
    terminal.resume()
    awake = terminal.wait_raw(b"\x1b[?1049h", start=asleep)
    # All of it is drawn, for nothing is left of what stood there.
    terminal.wait_raw(b"timeline", start=awake)
    terminal.type("ed")
    terminal.wait_for("› Drafted")
    terminal.key("enter")
    terminal.wait_for("Awake.")
    for _ in range(2):
        before = terminal.n_bytes
        terminal.key("ctrl+z")
        terminal.wait_stopped()
        terminal.wait_raw(b"\x1b[?1004l", start=before)
        _restored(terminal.raw)
        terminal.resume()
        terminal.wait_raw(b"timeline", start=terminal.wait_raw(b"\x1b[?1049h", start=before))
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    _restored(terminal.raw)


@pytest.mark.exhaustive
def test_it_sleeps_and_wakes_behind_what_stands_over_the_chat(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("Heard."))
    terminal = configured.start()
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Words")
    terminal.key("enter")
    terminal.wait_for("Heard.")
    terminal.type("/rewind 0")
    terminal.key("enter")
    terminal.wait_for("Rewind to #0")
    asleep = _suspended(terminal)
    # Typed for the shell: it answers nothing.
    terminal.key("enter")
    terminal.resume()
    terminal.wait_raw(b"Rewind", start=terminal.wait_raw(b"\x1b[?1049h", start=asleep))
    terminal.key("escape")
    terminal.wait_gone("Rewind to #0")
    assert not list(configured.session_dir().glob("context_*.jsonl"))


def test_what_is_typed_while_it_is_stopped_answers_no_question(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(call("Shell", {"command": "echo > ran"}), say("Well."))
    terminal = configured.start()
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("go")
    terminal.key("enter")
    terminal.wait_for("Run this command?")
    for _ in range(3):
        # The pause is as long as any quiet that is waited for.
        time.sleep(2 * QUIET_S)
        terminal.stop()
        terminal.type("y")
        time.sleep(QUIET_S)
        start = terminal.n_bytes
        terminal.resume()
        terminal.wait_raw(b"Run this command?", start=start)
    time.sleep(3 * QUIET_S)
    # Only one reader has the terminal: a letter still counts for another one that waited for it.
    terminal.type("n")
    terminal.wait_gone("Run this command?", 10)
    assert not (configured.work / "ran").exists()


HELD_UP = """
import sys, time
from kimi_tui import cli
from kimi_tui.tui import app
on_event = app.KimiApp.on_event

async def slow(self, event):
    if getattr(event, "key", "") == "shift+tab" and not event.is_forwarded:
        time.sleep(1.5)
    await on_event(self, event)

app.KimiApp.on_event = slow
sys.exit(cli.main([]))
"""


@pytest.mark.exhaustive
def test_a_click_counts_by_when_it_was_read(configured: Program, server: ChatServerThread) -> None:
    server.script(call("Shell", {"command": "echo > ran"}), say("Well."))
    terminal = configured.start_python(HELD_UP)
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("go")
    terminal.key("enter")
    terminal.wait_for("Yes, once")
    time.sleep(2 * QUIET_S)
    terminal.key("shift+tab")
    # The click is read right after that key, and handled when the quiet time after it is long over.
    terminal.click_text("Yes, once")
    time.sleep(1.5 + 3 * QUIET_S)
    assert not (configured.work / "ran").exists()
    terminal.click_text("Yes, once")
    terminal.wait_gone("Run this command?", 10)
    _until((configured.work / "ran").exists)


@pytest.mark.exhaustive
def test_ctrl_c_once_more_than_it_takes_ends_it_no_other_way(configured: Program) -> None:
    terminal = configured.start(fresh=True)
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("\x03")
    terminal.wait_for("again to quit")
    terminal.type("\x03")
    restored = terminal.wait_raw(b"\x1b[?1049l")
    # From here on the terminal makes a signal of it.
    while terminal.running:
        with suppress(OSError):
            terminal.type("\x03")
        time.sleep(0.001)
    assert terminal.wait_exit() == 0
    assert b"Traceback" not in terminal.raw[restored:]
    assert b"KeyboardInterrupt" not in terminal.raw[restored:]


INTERRUPTED = """
import os, signal, sys
from kimi_tui import cli

real = signal.signal

def interrupted(number, handler):
    before = real(number, handler)
    if number == signal.SIGINT:
        os.kill(os.getpid(), signal.SIGINT)
    return before

def is_quitting(frame, event, _):
    # From the moment on in which the terminal is as it was.
    if frame.f_code.co_name == "end_interrupts":
        signal.signal = interrupted

sys.setprofile(is_quitting)
sys.exit(cli.main([]))
"""


@pytest.mark.exhaustive
def test_ctrl_c_in_the_moment_in_which_interrupts_are_turned_off_is_ignored(
    configured: Program,
) -> None:
    terminal = configured.start_python(INTERRUPTED)
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("\x03")
    terminal.wait_for("again to quit")
    terminal.type("\x03")
    assert terminal.wait_exit() == 0
    assert b"Traceback" not in terminal.raw
    assert b"KeyboardInterrupt" not in terminal.raw


@pytest.mark.exhaustive
@pytest.mark.parametrize("over", first_only(["/help", ""]))
def test_ctrl_c_twice_quits_also_beside_commands_in_the_background(
    configured: Program, server: ChatServerThread, over: str
) -> None:
    server.script(call("Shell", {"command": "sleep 600", "background": True}), say("It waits."))
    terminal = configured.start("--yolo")
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("go")
    terminal.key("enter")
    terminal.wait_for("It waits.")
    terminal.wait_for("1 task /tasks")
    if over:
        terminal.type(over)
        terminal.key("enter")
        terminal.wait_for("Esc close")
    terminal.type("\x03")
    terminal.wait_for("1 background task is running")
    terminal.type("\x03")
    assert terminal.wait_exit() == 0


def test_closing_the_window_ends_it_in_order(configured: Program, server: ChatServerThread) -> None:
    terminal, child = _working(configured, server)
    terminal.close_window()
    assert terminal.wait_exit() == 128 + signal.SIGHUP
    _until(lambda: _state(child) == "Z")
    _is_kept(configured)


@pytest.mark.exhaustive
def test_a_window_that_closes_untold_ends_it_as_well(
    configured: Program, server: ChatServerThread
) -> None:
    # A shell may ignore hang-ups, or the signal may come before the terminal is gone.
    server.script(say("word " * 400, pause_s=0.01))
    terminal = configured.start_python(
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "from kimi_tui.cli import main; sys.exit(main([]))"
    )
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("go")
    terminal.key("enter")
    terminal.wait_for("word word")
    terminal.close_window()
    assert terminal.wait_exit(4) == 128 + signal.SIGHUP
    assert "word word" in str(configured.context())


@pytest.mark.exhaustive
def test_two_hundred_sizes_in_two_seconds(configured: Program, server: ChatServerThread) -> None:
    server.script(say("word " * 400 + "the end.", pause_s=0.004))
    terminal = configured.start()
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("go")
    terminal.key("enter")
    terminal.wait_for("word word")
    for n in range(200):
        terminal.resize(20 + n * 7 % 160, 5 + n * 3 % 50)
        time.sleep(0.01)
    terminal.resize(80, 24)
    terminal.wait_for("the end.")
    terminal.wait_for("Enter send")
    terminal.type("still here")
    terminal.wait_for("still here")
    assert "continue" in _leave(terminal)


@pytest.mark.exhaustive
def test_what_a_smaller_window_cut_off_is_drawn_again(configured: Program) -> None:
    terminal = configured.start(size=(100, 30))
    terminal.wait_for("Ctrl+T timeline")
    terminal.wait_quiet(0.5)
    before = terminal.screen_text()
    # Zooming a pane twice does this: the program gets one signal, and no other size.
    terminal.resize(60, 20)
    terminal.resize(100, 30)
    terminal.wait_for(before)


SIZES_CLOSE_BEHIND_ONE_ANOTHER = """
import fcntl, os, struct, sys, termios, time
from textual.drivers.linux_driver import LinuxDriver
from kimi_tui.cli import main

read = LinuxDriver._get_terminal_size

def interrupted(driver):
    size = read(driver)
    if size == (60, 20):
        # The next signal comes before this size is told.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        os.write(1, b"\\x1b]2;interrupted\\x07")
        while not os.path.exists("go on"):
            time.sleep(0.01)
    return size

LinuxDriver._get_terminal_size = interrupted
sys.exit(main([]))
"""


@pytest.mark.exhaustive
def test_of_two_sizes_the_newer_one_is_drawn(configured: Program) -> None:
    terminal = configured.start_python(SIZES_CLOSE_BEHIND_ONE_ANOTHER, size=(100, 30))
    # All that the start brings is on the screen: the page, what is in the folder, and the gauge.
    for shown in ("Nothing is lost", "No files in", "≡ at"):
        terminal.wait_for(shown)
    terminal.wait_quiet(0.5)
    before = terminal.screen_text()
    terminal.resize(60, 20)
    terminal.wait_raw(b"interrupted")
    terminal.resize(100, 30)
    (configured.work / "go on").touch()
    terminal.wait_for(before)
    terminal.type("still here")
    terminal.wait_for(lambda screen: "› still here" in screen.split("\n")[27])


def _leave(terminal: Terminal) -> str:
    """Quit; what stands on the terminal then."""
    before = terminal.n_bytes
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    return terminal.raw[before:].rpartition(b"\x1b[?1049l")[2].decode()


def test_quitting_says_how_to_go_on(configured: Program, server: ChatServerThread) -> None:
    server.script(say("Answered."))
    terminal = configured.start()
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Fix the parser")
    terminal.key("enter")
    terminal.wait_for("Answered.")
    terminal.wait_for("Enter send")
    first = configured.session_dir().name
    said = _leave(terminal)
    assert f'continue "Fix the parser": {PROGRAM} --session {first}' in said
    # The command that it prints works.
    terminal = configured.start("--session", first)
    terminal.wait_for("Answered.")
    terminal.wait_for("Enter send")
    terminal.type("/new")
    terminal.key("enter")
    terminal.wait_gone("Answered.")
    terminal.wait_for("What shall we work on?")
    # Nothing was said in the new one: the one before is the newest.
    assert f"kimi-tui --session {first}" in _leave(terminal)


@pytest.mark.exhaustive
def test_quitting_an_empty_session_says_nothing(configured: Program) -> None:
    terminal = configured.start()
    terminal.wait_for("Ctrl+T timeline")
    assert "kimi-tui" not in _leave(terminal)


BROKEN = """
import asyncio, ctypes, sys, time
from kimi_tui import cli
from kimi_tui.tui import app, shutdown, terminal_input
shutdown.PATIENCE_S = 1.0
on_event = app.KimiApp.on_event

async def broken(self, event):
    match getattr(event, "key", ""):
        case "f2":
            raise RuntimeError("broken sk-abcdefgh12345678")
        case "f3":
            await asyncio.sleep(10_000)
        case "f4":
            time.sleep(10_000)
        case "f5":
            raise KeyboardInterrupt
        case "f6":
            def refuse(self):
                raise ValueError("broken for sk-abcdefgh12345678")
            terminal_input.Outgoing._wait_for_room = refuse
        case "f7":
            ctypes.string_at(0)
    await on_event(self, event)

app.KimiApp.on_event = broken
sys.exit(cli.main([]))
"""


def test_a_program_that_is_killed_takes_its_command_with_it(
    configured: Program, server: ChatServerThread
) -> None:
    terminal, child = _working(configured, server)
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait_exit() == -signal.SIGKILL
    _until(lambda: _state(child) == "Z")


def _broken(program: Program, code: str = BROKEN) -> Terminal:
    """Return the program with something that breaks."""
    return program.start_python(code)


def test_a_crash_is_one_line_and_the_way_back(
    configured: Program, server: ChatServerThread
) -> None:
    server.script(say("Answered."))
    terminal = _broken(configured)
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Hello")
    terminal.key("enter")
    terminal.wait_for("Answered.")
    terminal.wait_for("Enter send")
    before = terminal.n_bytes
    terminal.key("f2")
    assert terminal.wait_exit() == 1
    said = terminal.raw[before:].rpartition(b"\x1b[?1049l")[2].decode()
    assert "kimi-tui.log" in said
    assert f"kimi-tui --session {configured.session_dir().name}" in said
    assert "Traceback" not in said
    log = (configured.home / "logs" / "kimi-tui.log").read_text()
    assert "RuntimeError: broken" in log
    assert "12345678" not in log


UNDRAWN = """
import importlib, pathlib, sys
from kimi_tui import cli

kind = getattr(importlib.import_module("kimi_tui.tui.{module}"), "{kind}")
drawn = kind.{method}

def broken(self, *arguments):
    if pathlib.Path("break").exists():
        raise RuntimeError("broken sk-abcdefgh12345678")
    return drawn(self, *arguments)

kind.{method} = broken
sys.exit(cli.main([]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("module", "kind", "method"),
    [
        ("approval.panel", "ApprovalPanel", "render_line"),
        *first_only(
            [
                ("prompt.area", "PromptArea", "render_line"),
                ("notices", "Notices", "lay_out"),
            ],
            3,
        ),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_the_session_goes_on(
    configured: Program, server: ChatServerThread, module: str, kind: str, method: str
) -> None:
    server.script(say("Answered."), call("Shell", {"command": "echo > ran"}), say("Again."))
    terminal = _broken(configured, UNDRAWN.format(module=module, kind=kind, method=method))
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("Hello")
    terminal.key("enter")
    terminal.wait_for("Answered.")
    terminal.wait_for("Enter send")
    before = terminal.n_bytes
    (configured.work / "break").touch()
    terminal.type("/usage" if kind == "Notices" else "run it")
    terminal.key("enter")
    assert terminal.wait_exit() == 1
    _restored(terminal.raw)
    said = terminal.raw[before:].rpartition(b"\x1b[?1049l")[2].decode()
    assert "kimi-tui.log" in said
    assert "Traceback" not in said
    log = (configured.home / "logs" / "kimi-tui.log").read_text()
    assert "RuntimeError: broken" in log
    assert "12345678" not in log
    assert not (configured.work / "ran").exists()
    terminal = configured.start("--continue")
    terminal.wait_for("Answered.")
    terminal.wait_for("Enter send")


def _is_not_lost(program: Program, said: str) -> None:
    """Check that the text that was being written is stored, or on the terminal if its session was not open yet."""
    if "half a thought" not in said:
        program.wait_kept("draft.json", "half a thought")


@pytest.mark.sample
@pytest.mark.parametrize("key", ["f3", "f4"], ids=["waits", "computes"])
def test_ctrl_c_twice_quits_while_something_blocks(configured: Program, key: str) -> None:
    terminal = _broken(configured)
    terminal.wait_for("Ctrl+T timeline")
    before = terminal.n_bytes
    terminal.type("half a thought")
    terminal.wait_for("› half a thought")
    terminal.key(key)
    terminal.key("ctrl+c")
    terminal.key("ctrl+c")
    assert terminal.wait_exit() != 0
    _restored(terminal.raw)
    said = terminal.raw[before:].rpartition(b"\x1b[?1049l")[2].decode()
    assert "kimi-tui hung and was killed" in said
    assert "kimi-tui.log" in said
    assert "in broken" in (configured.home / "logs" / "kimi-tui.log").read_text() or key == "f3"
    _is_not_lost(configured, said)


@pytest.mark.exhaustive
def test_an_interrupt_out_of_a_handler_is_one_line_and_keeps_what_was_written(
    configured: Program,
) -> None:
    terminal = _broken(configured)
    terminal.wait_for("Ctrl+T timeline")
    before = terminal.n_bytes
    terminal.type("half a thought")
    terminal.wait_for("› half a thought")
    terminal.key("f5")
    assert terminal.wait_exit() == 128 + signal.SIGINT
    _restored(terminal.raw)
    said = terminal.raw[before:].rpartition(b"\x1b[?1049l")[2].decode()
    assert "ended by KeyboardInterrupt" in said
    assert "Traceback" not in said
    assert "KeyboardInterrupt" in (configured.home / "logs" / "kimi-tui.log").read_text()
    _is_not_lost(configured, said)


@pytest.mark.exhaustive
def test_a_fault_in_the_thread_that_writes_ends_nothing(configured: Program) -> None:
    terminal = _broken(configured)
    terminal.wait_for("Ctrl+T timeline")
    terminal.key("f6")
    terminal.type("go on")
    terminal.wait_for("› go on")
    terminal.wait_for("kimi-tui had an internal error")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    _restored(terminal.raw)
    log = (configured.home / "logs" / "kimi-tui.log").read_text()
    assert "ValueError: broken for" in log
    assert "12345678" not in log


@pytest.mark.exhaustive
def test_what_the_interpreter_dies_of_is_in_the_log(configured: Program) -> None:
    terminal = _broken(configured)
    terminal.wait_for("Ctrl+T timeline")
    log = configured.home / "logs" / "kimi-tui.log"
    _until(log.exists)
    terminal.key("f7")
    assert terminal.wait_exit() == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in log.read_text()


@pytest.mark.exhaustive
def test_a_thread_that_hangs_does_not_hold_up_the_end(configured: Program) -> None:
    hangs = """
import sys, threading
from kimi_tui import cli
from kimi_tui.tui import shutdown
from kimi_tui.workspace import git_branch
shutdown.PATIENCE_S = 1.0
git_branch.branch_of = lambda folder: threading.Event().wait() or ""
sys.exit(cli.main([]))
"""
    terminal = _broken(configured, hangs)
    terminal.wait_for("Ctrl+P commands")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


def test_what_breaks_before_the_screen_stands_is_one_line(configured: Program) -> None:
    terminal = _broken(
        configured,
        """
import sys
from kimi_tui import cli
from kimi_tui.tui import app

def broken(self, *args, **keywords):
    raise RuntimeError("broken at the start")

app.KimiApp.__init__ = broken
sys.exit(cli.main([]))
""",
    )
    assert terminal.wait_exit() == 1
    assert "Traceback" not in terminal.screen_text()
    assert "kimi-tui.log" in terminal.screen_text().replace("\n", "")
    assert "broken at the start" in (configured.home / "logs" / "kimi-tui.log").read_text()
