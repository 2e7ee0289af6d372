"""The notices about a copy and its obstacles; a link opens in a window or is copied, and nothing takes the terminal."""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.cases import each
from support.chat_server import ChatServer, say
from support.screens import Desk, desk
from support.still_screen import still_screen

from kimi_tui.config.settings import NotifyConfig
from kimi_tui.tools.programs import find_program
from kimi_tui.tui import desktop
from kimi_tui.tui.desktop import (
    CLIPBOARD_BYTES,
    ClipboardContent,
    WindowStatus,
    asks_tmux,
    browser_command,
    browser_environment,
    clipboard_advice,
    clipboard_command,
    clipboard_part,
    draws_progress,
    has_desktop,
    image_reader,
    notification,
    notification_method,
    open_in_browser,
    read_clipboard,
    text_amount,
    tmux_option,
)
from kimi_tui.tui.transcript.transcript import Transcript

ANSWER = "Look:\n\n```python\nif a:\n\tb()\n```\n\nand\n\n```\nx\n```"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, in a terminal of which nothing is known."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    for name in ("TMUX", "STY", "TERM_PROGRAM", "VTE_VERSION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return tmp_path


def test_how_much_it_is() -> None:
    assert text_amount("a") == "1 character"
    assert text_amount("a" * 1_234) == "1,234 characters"
    assert text_amount("a\nb", "python") == "2 lines of python"


@each(
    "environ, option, words",
    [
        ({"TERM": "xterm-kitty"}, "", ""),
        ({"TERM_PROGRAM": "Apple_Terminal"}, "", "Hold Fn"),
        (
            {"TMUX": "/tmp/tmux-0/default,1,0", "TERM_PROGRAM": "tmux"},
            "external",
            "set-clipboard on",
        ),
        ({"TMUX": "/tmp/tmux-0/default,1,0"}, "", "set-clipboard on"),
        ({"TMUX": "/tmp/tmux-0/default,1,0", "VTE_VERSION": "7600"}, "on", ""),
        ({"STY": "1.pts"}, "", "Shift"),
        ({"TERM": "linux"}, "", "no clipboard"),
        ({"VTE_VERSION": "7600"}, "", "Ctrl+Shift+C"),
    ],
)
def test_what_may_keep_it(environ: dict[str, str], option: str, words: str) -> None:
    told = clipboard_advice(environ, option)
    assert words in told
    assert bool(words) == bool(told)


@pytest.mark.exhaustive
def test_tmux_is_asked_only_in_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not asks_tmux({"TERM": "screen"})
    (tmp_path / "tmux").write_text("#!/bin/sh\necho on\n")
    (tmp_path / "tmux").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert tmux_option(os.environ, []) == "on"
    (tmp_path / "tmux").write_text('#!/bin/sh\necho "$MY_MODEL"\n')
    assert tmux_option({**os.environ, "MY_MODEL": "sk-by-another-name"}, []) == ""
    (tmp_path / "tmux").write_text("#!/bin/sh\necho on\n")
    # A program in the work folder is not run, whatever the path says.
    assert tmux_option(os.environ, [tmp_path]) == ""
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert tmux_option(os.environ, []) == ""


async def test_the_desktop_gets_it_and_the_terminal_behind_tmux(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path = tmp_path_factory.mktemp("programs")
    (programs / "xclip").write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/how\ncat > {tmp_path}/got\n'
    )
    (programs / "xclip").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,1,0")
    assert not has_desktop({"DISPLAY": ":0", "SSH_CONNECTION": "1"}, "linux")
    assert clipboard_command({"DISPLAY": ":0", "PATH": str(programs)}, [programs], "linux") is None
    async with still_screen(home) as one:
        driver = one.app._driver
        assert driver is not None
        out: list[str] = []
        monkeypatch.setattr(driver, "write", out.append)
        one.app.copy_to_clipboard("a\tb")
        await one.sees("Copied 3 characters.")
        assert "set-clipboard" not in one.text()
    assert (tmp_path / "got").read_text() == "a\tb"
    assert (tmp_path / "how").read_text() == "-selection clipboard\n"
    assert "\x1bPtmux;\x1b\x1b]52;c;YQli\x07\x1b\\" in out


async def answered(one: Desk, server: ChatServer) -> None:
    """A session in which something was answered."""
    server.script(say(ANSWER))
    await one.ready()
    await one.say("Please  show it")
    await one.sees("and")
    await one.idle()


def written_to(one: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return a function that returns the texts written to the clipboard of the terminal from now on."""
    driver = one.app._driver
    assert driver is not None
    out: list[str] = []
    monkeypatch.setattr(driver, "write", out.append)

    def copies() -> list[str]:
        taken = [one for one in out if one.startswith("\x1b]52;c;")]
        return [base64.b64decode(one[7:-1]).decode() for one in taken]

    return copies


async def test_every_copy_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await answered(one, server)
        copies = written_to(one, monkeypatch)
        await one.say("/copy")
        await one.sees("Copied the last answer, 12 lines.")
        await one.say("/copy code")
        await one.sees("Copied 1 character (2 of 2).")
        await one.say("/copy code")
        await one.sees("Copied 2 lines of python (1 of 2).")
        await one.say("/copy 1")
        await one.sees("Copied 2 lines of python (1 of 2).")
        await one.say("/copy 3")
        await one.sees("The last answer with code has 2 code blocks.")
        await one.say("/copy that")
        await one.sees("is not an argument of /copy")
        chat = one.screen.transcript
        await one.pilot.mouse_down(chat, offset=(4, 0))
        await one.pilot.hover(chat, offset=(15, 0))
        await one.pilot.mouse_up(chat, offset=(15, 0))
        one.screen.bench.focus_prompt()
        await one.pilot.press("ctrl+c")
        await one.sees("Copied 12 characters.")
        code = "if a:\n\tb()"
        assert copies() == [ANSWER, "x", code, code, "Please  show"]
        assert one.screen.get_selected_text() is None
        # The same holds if the chat has the focus.
        chat.focus()
        await one.pilot.press("ctrl+a", "ctrl+c")
        await one.sees("Copied 14 lines.")
        assert copies()[-1] == f"Please  show it\n\n{ANSWER}"
        assert one.app.is_running


def test_what_terminals_take_of_a_text() -> None:
    assert clipboard_part("é" * 30_000) == "é" * 30_000
    many = "\n".join(f"Zeile {n} mit Ä" for n in range(20_000))
    taken = clipboard_part(many)
    assert CLIPBOARD_BYTES - 30 < len(taken.encode()) <= CLIPBOARD_BYTES
    assert many.startswith(f"{taken}\n")
    assert clipboard_part("é" * 90_000) == "é" * (CLIPBOARD_BYTES // 2)
    # A short line does not hide a long one after it.
    assert len(clipboard_part("Zeile\n" + "a" * 90_000)) == CLIPBOARD_BYTES


async def test_a_copy_that_terminals_do_not_take_is_kept_in_a_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        text = "\n".join(f"- item {n} of many{' words' * 16}" for n in range(40))
        monkeypatch.setattr("kimi_tui.tui.desktop.CLIPBOARD_BYTES", 2_000)
        server.script(say(text))
        await one.ready()
        await one.say("List them")
        await one.sees("item 39")
        await one.idle()
        copies = written_to(one, monkeypatch)
        await one.say("/copy")
        shown = await one.sees("of 40 lines. Terminals accept no more.")
        (copied,) = copies()
        assert f"Copied the first {copied.count(chr(10)) + 1:,} lines of" in shown
        assert text.startswith(f"{copied}\n")
        soul = one.screen.conversation.soul
        assert soul is not None
        path = soul.session.dir / "copied.txt"
        assert path.read_text("utf-8") == text
        assert path.stat().st_mode & 0o077 == 0
        assert "The full text is in copied.txt in" in shown
        # If the file cannot be written, a notice says so.
        path.unlink()
        path.mkdir()
        (path / "x").touch()
        await one.say("/copy")
        await one.sees("The full text could not be written")


@pytest.mark.exhaustive
async def test_with_nothing_to_copy_that_is_said(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/copy")
        await one.sees("There is no answer to copy yet.")
        await one.say("/copy code")
        await one.sees("There is no code block to copy here.")


@pytest.mark.exhaustive
async def test_tmux_that_keeps_copies_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tmux").write_text("#!/bin/sh\necho external\n")
    (tmp_path / "tmux").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("TMUX", "/tmp/none,1,0")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await answered(one, server)
        await one.say("/copy")
        shown = await one.sees("Copied the last answer, 12 lines.")
        assert "set -g set-clipboard on" in shown


@pytest.mark.exhaustive
async def test_the_place_in_the_chat_is_the_same_after_a_world_line(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        for n in range(2):
            server.script(say("\n\n".join(f"part {n}.{k}" for k in range(60))))
            await one.say(f"Question {n}")
            await one.sees(f"part {n}.59")
            await one.idle()
        await one.say("/rewind 2")
        await one.sees("Rewind")
        await one.pilot.press("enter")
        await one.sees("Rewound")
        chat = one.screen.transcript
        assert isinstance(chat, Transcript)
        # A notice takes rows from the chat until it goes by itself.
        one.screen.bench.chat_pane.dismiss()
        await one.until(lambda: not chat.is_moving)
        chat.scroll_relative(y=-20)
        await one.pilot.pause()
        top = chat.top
        rows = [chat.render_line(y).text for y in range(10)]
        one.screen.prompt.area.put("/worldline 1")
        await one.pilot.press("enter")
        await one.sees("World line 1")
        await one.pilot.resize_terminal(90, 30)
        await one.pilot.resize_terminal(120, 40)
        one.screen.action_command("worldline", "")
        await one.until(lambda: not one.screen.bench.reading)
        await one.pilot.pause()
        one.screen.bench.chat_pane.dismiss()
        await one.until(lambda: chat.is_ready and chat.top == top)
        assert [chat.render_line(y).text for y in range(10)] == rows


URL = "https://example.org/a?b=c&d"


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_only_where_there_is_a_desktop(tmp_path: Path, work: Path) -> None:
    path = str(tmp_path / "bin")
    for name in ("xdg-open", "open", "wslview", "w3m", "www-browser"):
        program(tmp_path / "bin", name)
    env = {"PATH": path}
    assert browser_command(URL, env, [work], "linux") is None
    assert browser_command(URL, {**env, "DISPLAY": ""}, [work], "linux") is None
    assert browser_command(URL, {**env, "DISPLAY": ":0"}, [work], "linux") == [
        f"{path}/xdg-open",
        URL,
    ]
    assert browser_command(URL, {**env, "WSL_INTEROP": "x"}, [work], "linux") == [
        f"{path}/wslview",
        URL,
    ]
    assert browser_command(URL, env, [work], "darwin") == [f"{path}/open", URL]
    assert browser_command(URL, {"PATH": str(work), "DISPLAY": ":0"}, [work], "linux") is None


@pytest.mark.exhaustive
def test_no_opener_of_a_work_folder(tmp_path: Path, work: Path) -> None:
    program(work, "xdg-open")
    env = {"PATH": str(work), "WAYLAND_DISPLAY": "w"}
    assert browser_command(URL, env, [work], "linux") is None
    elsewhere = tmp_path / "elsewhere"
    assert browser_command(URL, env, [elsewhere, work], "linux") is None
    assert browser_command(URL, env, [elsewhere], "linux") == [f"{work}/xdg-open", URL]


def test_the_environment_holds_no_keys_and_no_text_browser() -> None:
    env = {
        "HOME": "/h", "DISPLAY": ":0", "KIMI_API_KEY": "k", "GITHUB_TOKEN": "t", "BROWSER": "/usr/bin/w3m %s",
        "MY_MODEL": "sk-by-another-name", "DATABASE_URL": "pg://a:b@c", "HTTPS_PROXY": "http://a:b@c",
    }  # fmt: skip
    passed = browser_environment(env)
    assert passed == {"HOME": "/h", "DISPLAY": ":0", "PATH": passed["PATH"]}
    assert browser_environment({"BROWSER": "firefox"})["BROWSER"] == "firefox"
    assert "BROWSER" not in browser_environment({"BROWSER": "/work/bin/firefox"}, [Path("/work")])


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "darwin", reason="needs another opener there")
def test_the_opener_has_no_terminal(tmp_path: Path, work: Path) -> None:
    said = tmp_path / "said"
    script = f'(exec 3</dev/tty) 2>/dev/null && echo terminal >{said} || echo "$1" >{said}'
    program(tmp_path / "bin", "xdg-open", script)
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "DISPLAY": ":0"}
    assert open_in_browser(URL, env, [work])
    assert said.read_text().strip() == URL
    program(tmp_path / "bin", "xdg-open", "exit 3")
    assert not open_in_browser(URL, env, [work])
    assert not open_in_browser(URL, {"PATH": env["PATH"]}, [work])


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "darwin", reason="needs another opener there")
async def test_no_opener_of_the_folder_of_a_session_that_was_begun_elsewhere(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(work, "xdg-open", f"echo run > {tmp_path}/ran")
    monkeypatch.setenv("PATH", f"{work}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("kimi_tui.tools.programs.find_program", only_in(tmp_path))
    (tmp_path / "home").mkdir()
    async with still_screen(tmp_path / "home") as one:
        one.screen.transcript.work_dir = str(work)
        one.app.open_url("https://example.org/")
        await one.sees("No browser can be opened from here")
        one.screen.transcript.work_dir = str(tmp_path / "home")
        one.app.open_url("https://example.org/")
        await one.until((tmp_path / "ran").exists)


@pytest.mark.exhaustive
def test_no_link_in_the_work_folder_stands_in_for_a_program(tmp_path: Path, work: Path) -> None:
    # `bash -selection clipboard` runs `clipboard`.
    commands = work / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "xclip").symlink_to("/bin/bash")
    (tmp_path / "bin").symlink_to(commands)
    for folder in (commands, tmp_path / "bin"):
        assert find_program("xclip", {"PATH": str(folder)}, work) is None
        assert find_program("xclip", {"PATH": str(folder)}) == f"{folder}/xclip"


@pytest.mark.exhaustive
def test_no_program_of_the_repository_around_the_work_folder(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "home/outer/sub/inner/src"
    work.mkdir(parents=True)
    program(home / "outer" / "bin", "xclip")
    environ = {"PATH": f"{home}/outer/bin", "HOME": str(home)}
    found = f"{home}/outer/bin/xclip"
    # The home folder's own repository holds the user's settings, and their programs.
    (home / ".git").mkdir()
    assert find_program("xclip", environ, work) == found
    (home / "outer/sub/inner/.git").mkdir()
    assert find_program("xclip", environ, work) == found
    (home / "outer" / ".git").write_text("gitdir: elsewhere\n")
    assert find_program("xclip", environ, work) is None
    assert find_program("xclip", {**environ, "HOME": str(tmp_path / "x")}, work) is None


def only_in(folder: Path) -> Callable[..., str | None]:
    """`find_program`, but the programs of the machine are none."""

    def find(name: str, environ: Mapping[str, str], *work_dirs: Path) -> str | None:
        found = find_program(name, environ, *work_dirs)
        return found if found and found.startswith(str(folder)) else None

    return find


def _program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_the_clipboard_gives_an_image_else_text_else_says_why(tmp_path: Path) -> None:
    bins = tmp_path / "bin"
    path = {"PATH": f"{bins}:/usr/bin:/bin"}
    wayland, x = {**path, "WAYLAND_DISPLAY": "w"}, {**path, "DISPLAY": ":0"}
    assert read_clipboard({**path}, [], "linux").trouble.startswith(
        "The clipboard is on another machine"
    )
    assert "wl-clipboard" in read_clipboard(wayland, [], "linux").trouble
    assert "pngpaste" in read_clipboard(path, [], "darwin").trouble
    only_image = 'case "$*" in *image/png*) printf PNGDATA;; *) exit 1;; esac'
    only_text = 'case "$*" in *image/png*) exit 1;; *) printf "a\\nb";; esac'
    _program(bins, "wl-paste", only_image)
    _program(bins, "xclip", only_text)
    _program(bins, "powershell.exe", 'case "$*" in *GetImage*) printf UE5H;; *) exit 1;; esac')
    assert read_clipboard(wayland, [], "linux") == ClipboardContent(b"PNGDATA")
    assert read_clipboard(x, [], "linux") == ClipboardContent(text="a\nb")
    assert read_clipboard({**path, "WSL_DISTRO_NAME": "U"}, [], "linux") == ClipboardContent(b"PNG")
    assert image_reader(wayland, [], "linux") == (str(bins / "wl-paste"), "")
    # A program in the work folder is not run, and one that hangs is killed.
    assert read_clipboard(wayland, [bins], "linux").trouble
    _program(bins, "wl-paste", "exit 1")
    assert "neither" in read_clipboard(wayland, [], "linux").trouble


def test_a_clipboard_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "bin", "xclip", "exec sleep 30")
    monkeypatch.setattr("kimi_tui.tui.desktop._READINGS", _impatient())
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "DISPLAY": ":0"}
    assert "not answer" in read_clipboard(environ, [], "linux").trouble


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.sample
@pytest.mark.parametrize("kind", ["image", "text"])
def test_a_clipboard_without_an_end_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # A child of the program holds the pipe, too.
    endless = f"echo $$ >> {tmp_path / 'pids'}; yes & yes"
    only = (
        f'case "$*" in *image/png*) {"exit 1" if kind == "text" else endless};; *) {endless};; esac'
    )
    _program(tmp_path / "bin", "xclip", only)
    monkeypatch.setattr("kimi_tui.images.MAX_FILE_BYTES", 1_000_000)
    monkeypatch.setattr(desktop, "MOST_TEXT_BYTES", 1_000_000)
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "DISPLAY": ":0"}
    assert "more data than" in read_clipboard(environ, [], "linux").trouble
    (group,) = (tmp_path / "pids").read_text().split()
    while _is_there(int(group)):
        time.sleep(0.01)


def _impatient() -> dict[str, object]:
    return {name: one._replace(timeout_s=0.05) for name, one in desktop._READINGS.items()}  # pyright: ignore[reportPrivateUsage]


PUSH, POP = "\x1b[22;2t", "\x1b[23;2t"


@each(
    "environ, way, progress",
    [
        ({"TERM": "xterm-256color"}, "bell", False),
        ({"TERM": "xterm-kitty"}, "osc99", False),
        ({"TERM_PROGRAM": "ghostty"}, "osc9", True),
        ({"TERM_PROGRAM": "iTerm.app"}, "osc9", False),
        ({"TERM": "foot"}, "osc777", False),
        ({"VTE_VERSION": "7600"}, "osc777", False),
        ({"VTE_VERSION": "8000"}, "osc777", True),
        ({"VTE_VERSION": "8000", "TMUX": "/tmp/t,1,0"}, "bell", False),
        ({"WT_SESSION": "x"}, "bell", True),
    ],
)
def test_what_terminals_take(environ: dict[str, str], way: str, progress: bool) -> None:
    assert notification_method("auto", environ) == way
    assert notification_method("off", environ) == "off"
    assert draws_progress(environ) is progress


def test_notifications_hold_nothing_that_a_terminal_obeys() -> None:
    words = "app: \x1b]52;c;eA==\x07 is; done\x9c\nnow"
    for way in ("osc9", "osc777", "osc99"):
        said = notification(way, words, {})
        assert said.count("\x1b") == 2
        assert "\x07" not in said
        assert "\x9c" not in said
        assert "\n" not in said
    assert notification("osc777", words, {}).count(";") == 3
    wrapped = notification("osc9", "done", {"TMUX": "x"})
    assert wrapped == "\x1bPtmux;\x1b\x1b]9;done\x1b\x1b\\\x1b\\"
    assert notification("bell", words, {}) == "\x07"
    assert notification("off", words, {}) == ""


def test_the_title_follows_and_is_given_back() -> None:
    out: list[str] = []
    one = WindowStatus(out.append, NotifyConfig(), {"WT_SESSION": "1"})
    one.end()
    one.update(folder="app", title="", working=False, asking=False)
    one.update(folder="app", title="Fix\x07 it", working=True, asking=False)
    one.update(folder="app", title="Fix\x07 it", working=True, asking=False)
    one.update(folder="app", title="Fix it", working=True, asking=True)
    one.alert("asks", asking=True)
    one.alert("done", asking=False)
    one.end()
    one.end()
    titles = ["app", "* app: Fix it", "? app: Fix it", ""]
    said = "".join(out)
    assert [part.partition("\x1b\\")[0] for part in said.split("\x1b]2;")[1:]] == titles
    assert said.startswith(PUSH)
    assert said.endswith(POP)
    assert (said.count(PUSH), said.count(POP)) == (1, 1)
    assert said.count("\x1b]9;4;3;0") == said.count("\x1b]9;4;0;0") == 1
    assert said.count("\x07") == 1
