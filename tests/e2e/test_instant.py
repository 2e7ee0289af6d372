"""The instant prompt in a terminal: what it shows while the app is imported, and what it hands over."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import termios
import time
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread, say
from support.emulator import QuickScreen, QuickStream
from support.program import Program
from support.terminal import _NOT_FOR_PYTE, Terminal

from kimi_tui.session.unsent import read_waiting
from kimi_tui.tui.main.drafts import read_draft

HELD = """
import os, sys, time
from kimi_tui import cli

run = cli._run_app

def held(launch, instant):
    while not os.path.exists({gate!r}):
        time.sleep(0.005)
    {then}
    return run(launch, instant)

cli._run_app = held
sys.exit(cli.main({arguments!r}))
"""
TAKEN = b"\x1b[?1000h"
"""The app's driver has the terminal: only it takes the mouse."""
PAGE = "What shall we work on?"


class Held:
    """The program, whose app is not imported before `go_on`."""

    def __init__(
        self,
        program: Program,
        *arguments: str,
        then: str = "pass",
        columns: int = 100,
        rows: int = 30,
    ) -> None:
        self._gate = program.home.parent / "gate"
        code = HELD.format(gate=str(self._gate), arguments=list(arguments), then=then)
        self.terminal = program.start_python(code, size=(columns, rows))

    def go_on(self) -> Terminal:
        """Let the app start, and wait until it has the terminal."""
        self._gate.touch()
        self.terminal.wait_raw(TAKEN)
        return self.terminal


def frames(terminal: Terminal, raw: bytes) -> list[str]:
    """Return what the screen showed after every few bytes of the output, from the first whole page on."""
    screen = QuickScreen(terminal.columns, terminal.rows)
    stream = QuickStream(screen)
    shown: list[str] = []
    data = _NOT_FOR_PYTE.sub(b"", raw)
    for piece in re.findall(rb"\x1b\[[^\x1b]*|[^\x1b]+", data):
        stream.feed(piece)
        text = "\n".join(line.rstrip() for line in screen.rows_of_text())
        if not shown or shown[-1] != text:
            shown.append(text)
    first = next(at for at, text in enumerate(shown) if "F1 help" in text)
    return shown[first:]


def test_letters_are_echoed_and_handed_over_without_a_flicker(
    configured: Program, server: ChatServerThread
) -> None:
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    terminal.wait_for("› Ask for a change")
    terminal.type("hé 你x")
    terminal.wait_for("› hé 你x")
    terminal.write(b"\x7f")
    terminal.wait_for(lambda text: "› hé 你" in text and "你x" not in text)
    held.go_on()
    terminal.type("!")
    terminal.wait_for("› hé 你!")
    terminal.wait_for("Timeline")
    seen = frames(terminal, terminal.raw)
    assert all(PAGE in text and "sandboxed" not in text for text in seen)
    prompts = [found[1] for text in seen if (found := re.search("› (.*)", text)) is not None]
    begun = next(at for at, text in enumerate(prompts) if text.startswith("h"))
    # The text was never gone, not even for a moment.
    assert all(text.startswith("h") for text in prompts[begun:])
    assert terminal.raw.count(b"\x1b[?1049h") == 1


@pytest.mark.exhaustive
def test_a_burst_of_letters_is_whole(configured: Program, server: ChatServerThread) -> None:
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    text = " ".join(f"word{n}" for n in range(300))
    for at in range(0, len(text), 150):
        terminal.type(text[at : at + 150])
    terminal.wait_for("word299")
    server.script(say("Read."))
    held.go_on()
    terminal.key("enter")
    terminal.wait_for("Read.")
    (asked,) = [one["content"] for one in server.requests[-1].messages if one["role"] == "user"]
    assert text in str(asked)


def test_every_key_is_kept_in_order(configured: Program, server: ChatServerThread) -> None:
    server.script(say("First."), say("Second."))
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    terminal.type("ine")
    terminal.wait_for("› ine")
    terminal.key("home")
    terminal.type("F")
    terminal.key("enter")
    terminal.paste("Pasted")
    held.go_on()
    terminal.wait_for("First.")
    terminal.wait_for("› Pasted")
    terminal.key("enter")
    terminal.wait_for("Second.")
    said = [one["content"] for one in server.requests[-1].messages if one["role"] == "user"]
    assert ["Fine" in str(said), "Pasted" in str(said)] == [True, True]


def test_it_follows_the_size_of_the_window(configured: Program) -> None:
    held = Held(configured, columns=120, rows=40)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    terminal.type("abc")
    for size in ((60, 20), (20, 5), (8, 3), (100, 33)):
        terminal.resize(*size)
    terminal.wait_for(lambda text: "› abc" in "".join(text.splitlines()[30:31]))
    assert terminal.find("F1 help", last=True) is not None
    terminal.resize(70, 24)
    held.go_on()
    terminal.wait_for(lambda text: "› abc" in text and PAGE in text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_restores_the_terminal(configured: Program, number: signal.Signals) -> None:
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    os.kill(terminal.pid, number)
    assert terminal.wait_exit() == 128 + number
    assert terminal.raw.endswith(b"\x1b[?2004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h")
    # The settings of a pty are the same at both ends.
    assert termios.tcgetattr(terminal._master)[3] & termios.ECHO
    assert not [*configured.home.glob("sessions/*/*")]


def test_what_was_typed_is_kept_whatever_ends_it(configured: Program) -> None:
    held = Held(configured)
    held.terminal.wait_for(PAGE)
    held.terminal.type("Fix\rit")
    held.terminal.wait_for("› Fix")
    held.terminal.close_window()
    assert held.terminal.wait_exit() == 128 + signal.SIGHUP
    folder = configured.wait_kept("draft.json", '"Fix\\nit"')
    assert (folder / "lock").exists()
    terminal = configured.start()
    terminal.wait_for(lambda text: "› Fix" in text and "it" in text)


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ["\r", " "])
def test_what_is_typed_at_full_speed_is_kept_once_whenever_the_window_is_closed(
    configured: Program, end: str
) -> None:
    for n_ms in range(200, 1400, 40):
        terminal = configured.start(fresh=True)
        terminal.wait_raw(b"\x1b[?1049h")
        begun = time.monotonic()
        typed: list[float] = []
        while time.monotonic() - begun < n_ms / 1000:
            terminal.type(f"{len(typed):03x}{end}")
            typed.append(time.monotonic())
            time.sleep(0.003)
        terminal.close_window()
        closed_at = time.monotonic()
        assert terminal.wait_exit() == 128 + signal.SIGHUP
        kept: list[str] = []
        for folder in configured.home.glob("sessions/*/*"):
            draft = read_draft(folder)
            # Many lines that come at once are a pasted text.
            texts = [*read_waiting(folder), draft.text, *draft.pastes.values()]
            if (folder / "context.jsonl").exists():
                told = (folder / "context.jsonl").read_text().splitlines()
                texts += [
                    str(one["content"]) for one in map(json.loads, told) if one["role"] == "user"
                ]
            kept += re.findall(r"\b[0-9a-f]{3}\b", " ".join(texts))
            shutil.rmtree(folder)
        assert len(kept) == len(set(kept))
        # The newest keys may not have been read.
        n_read = sum(closed_at - at > 0.15 for at in typed)
        assert {f"{n:03x}" for n in range(n_read)} <= set(kept)


@pytest.mark.exhaustive
def test_what_was_typed_is_kept_if_the_app_cannot_start(configured: Program) -> None:
    held = Held(configured, then="raise ImportError('no textual')")
    held.terminal.wait_for(PAGE)
    held.terminal.type("abc")
    held.terminal.wait_for("› abc")
    (configured.home.parent / "gate").touch()
    assert held.terminal.wait_exit() == 1
    configured.wait_kept("draft.json", '"abc"')


def test_it_sleeps_and_wakes(configured: Program) -> None:
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    terminal.type("abc")
    terminal.wait_for("› abc")
    asleep = terminal.n_bytes
    # The second signal finds the first one being handled.
    os.kill(terminal.pid, signal.SIGTSTP)
    os.kill(terminal.pid, signal.SIGTSTP)
    terminal.wait_stopped()
    terminal.wait_raw(b"\x1b[?1049l", start=asleep)
    terminal.resume()
    terminal.wait_raw(b"F1", start=terminal.wait_raw(b"\x1b[?1049h", start=asleep))
    held.go_on()
    terminal.type("d")
    terminal.wait_for("› abcd")


@pytest.mark.parametrize(
    ("then", "code", "words"),
    [
        (
            "raise ImportError('no textual')",
            1,
            "an internal error occurred while starting or exiting.",
        ),
        ("sys.exit(3)", 3, ""),
    ],
)
def test_a_failing_import_is_one_line_on_the_usual_screen(
    configured: Program, then: str, code: int, words: str
) -> None:
    held = Held(configured, then=then)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    terminal.type("abc")
    (configured.home.parent / "gate").touch()
    assert terminal.wait_exit() == code
    usual = terminal.raw.rpartition(b"\x1b[?1049l")[2].decode()
    assert words in usual
    assert "Traceback" not in usual


def test_ctrl_c_ends_it_though_the_app_never_comes(configured: Program) -> None:
    terminal = Held(configured).terminal
    terminal.wait_for(PAGE)
    terminal.key("ctrl+c", "ctrl+c")
    terminal.key("ctrl+c")
    assert terminal.wait_exit() == 130
    assert b"\x1b[?1049l" in terminal.raw


def test_ctrl_c_and_ctrl_d_act_in_the_app(configured: Program) -> None:
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    terminal.key("ctrl+c")
    held.go_on()
    terminal.wait_for("Press Ctrl+C again to quit")
    terminal.key("ctrl+c")
    assert terminal.wait_exit() == 0


@pytest.mark.parametrize(
    ("arguments", "config", "env"),
    [
        (["--mode", "nope"], "", {}),
        ([], "mode = \n", {}),
        (["--work-dir", "/nowhere"], "", {}),
        ([], "", {"TERM": "dumb"}),
    ],
)
def test_what_is_wrong_never_takes_the_screen(
    configured: Program, arguments: list[str], config: str, env: dict[str, str]
) -> None:
    if config:
        (configured.home / "config.toml").write_text(config)
    terminal = configured.start(*arguments, env=env)
    assert terminal.wait_exit() == 2
    assert b"\x1b[?1049h" not in terminal.raw


def test_the_page_is_in_the_colours_that_the_terminal_tells(configured: Program) -> None:
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    # Nothing is known yet, so the colours are the terminal's own.
    assert b"38;2" not in terminal.raw
    terminal.write(b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\")
    terminal.wait_raw(b"48;2;251;250;247")
    held.go_on()
    terminal.wait_for("Timeline")
    assert b"48;2;16;19;24" not in terminal.raw


def test_a_key_is_on_no_screen(configured: Program, tmp_path: Path) -> None:
    held = Held(configured)
    terminal = held.terminal
    terminal.wait_for(PAGE)
    terminal.type("/model http://127.0.0.1:9/v1 sk-abcdefghijklmnop")
    terminal.wait_for("› /model")
    held.go_on()
    terminal.wait_for("127.0.0.1")
    assert b"sk-abcdef" not in terminal.raw


def _left(program: Program, server: ChatServerThread, answer: str) -> Path:
    """Have a turn in a session, with a light terminal, and leave it; return the folder of the session."""
    server.script(say(answer))
    (program.home / "config.toml").write_text('theme = "light"\n')
    terminal = program.start(size=(100, 30))
    terminal.wait_for("Timeline")
    terminal.type("Say it")
    terminal.key("enter")
    terminal.wait_for(answer.split()[0])
    terminal.wait_for("≡ at")
    terminal.wait_quiet()
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
    return program.session_dir()


def test_the_last_frame_stands_until_the_session_is_read(
    configured: Program, server: ChatServerThread
) -> None:
    session = _left(configured, server, "Seldom said.")
    stored = session / "last_frame.json"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert "sk-test" not in stored.read_text()
    held = Held(configured, "--continue")
    terminal = held.terminal
    for words in ("Opening the session", "Seldom said.", "Timeline", "≡ at"):
        terminal.wait_for(words)
    terminal.type("and more")
    terminal.wait_for("› and more")
    held.go_on()
    terminal.wait_for(lambda text: "Opening the session" not in text)
    configured.wait_kept("last_frame.json", "")  # it was for this once
    terminal.wait_quiet()
    assert all("Seldom said." in text for text in frames(terminal, terminal.raw))
    assert "› and more" in terminal.screen_text()
    assert terminal.find("≡ at") is not None


@pytest.mark.sample
@pytest.mark.parametrize(
    "change", ["context", "journal", "size", "theme", "mode", "escape", "other"]
)
def test_a_frame_of_something_else_is_not_shown(
    configured: Program, server: ChatServerThread, change: str
) -> None:
    session = _left(configured, server, "Seldom said.")
    stored, columns = session / "last_frame.json", 100
    match change:
        case "context":
            os.utime(session / "context.jsonl")
        case "journal":
            with (session / "worldlines.jsonl").open("a") as file:
                file.write("\n")
        case "size":
            columns = 99
        case "theme":
            (configured.home / "config.toml").write_text('theme = "dark"\n')
        case "mode":
            stored.chmod(0o644)
        case "escape":
            stored.write_text(stored.read_text().replace("Seldom", "\\u001b[2J"))
        case _:
            other = session.with_name("00000000-0000-0000-0000-000000000000")
            other.mkdir()
            (other / "context.jsonl").write_text("")
    terminal = Held(configured, "--continue", columns=columns).terminal
    terminal.wait_for("Reading the session")
    assert "Seldom" not in terminal.screen_text()


def test_a_frame_with_a_key_is_not_stored(configured: Program, server: ChatServerThread) -> None:
    session = _left(configured, server, f"Yes: sk-{'aB3dE5fG' * 5}")
    assert not (session / "last_frame.json").exists()
