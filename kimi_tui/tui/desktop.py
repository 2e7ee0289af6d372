"""The terminal and desktop around the program: number of colours, clipboard, window title, notifications, browser.

Copies go to the terminal as OSC 52, which tmux or the terminal may drop (`clipboard_advice`); where the desktop is this
machine's, its own clipboard program gets them, too. A browser is never started in this terminal. Title, progress and
notifications are control sequences; which of them the terminal understands is inferred from the environment, and every
text in them is cleaned of control characters.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from kimi_tui.config.settings import NotifyConfig
from kimi_tui.foreign_text import one_line
from kimi_tui.helper_programs import desktop_environment, run_helper
from kimi_tui.tui.formatting import counted, cut

CLIPBOARD_BYTES = 74_994
"""The largest number of bytes that are copied by OSC 52: base64 makes 100,000 of them, and some terminals drop or print
longer sequences.
"""
TMUX_TIMEOUT_S = 1.0
CLIPBOARD_TIMEOUT_S = 2.0
WINDOWS_TIMEOUT_S = 8.0
"""Timeout in seconds for PowerShell, which takes a second to start, and longer the first time."""
MOST_TEXT_BYTES = 10_000_000
_MOST_OPTION_BYTES = 1_000
_TMUX = ("show-options", "-gv", "set-clipboard")
TEXT_BROWSERS = frozenset(
    ("w3m", "lynx", "links", "links2", "elinks", "www-browser", "browsh", "carbonyl", "chawan")
)
BROWSER_TIMEOUT_S = 20.0
_FROM_WINDOWS = (
    "Add-Type -AssemblyName System.Windows.Forms,System.Drawing; "
    "$image = [Windows.Forms.Clipboard]::GetImage(); if (-not $image) { exit 1 }; "
    "$file = New-Object IO.MemoryStream; $image.Save($file, [Drawing.Imaging.ImageFormat]::Png); "
    "[Convert]::ToBase64String($file.ToArray())"
)


def text_amount(text: str, language: str = "") -> str:
    """Return the size of a copied text in words: `12 lines of python`, `34 characters`."""
    lines = text.count("\n") + 1
    size = counted(lines, "line") if lines > 1 else counted(len(text), "character")
    return f"{size} of {language}" if language else size


def clipboard_part(text: str) -> str:
    """Return the part of a text that fits into OSC 52 (`CLIPBOARD_BYTES`): all of it, or its first whole lines.

    If the first line is longer, it is the line's beginning.
    """
    data = text[:CLIPBOARD_BYTES].encode("utf-8", "replace")
    if len(text) <= CLIPBOARD_BYTES and len(data) <= CLIPBOARD_BYTES:
        return text
    beginning = data[:CLIPBOARD_BYTES].decode("utf-8", "ignore")
    lines = beginning.rpartition("\n")[0]
    return lines if 2 * len(lines) > len(beginning) else beginning


def clipboard_command(
    environ: Mapping[str, str], work_dirs: Sequence[Path], platform: str = sys.platform
) -> list[str] | None:
    """Return the command that copies its standard input to the clipboard of this desktop.

    None if there is none, or if the desktop is on another machine (ssh).

    Args:
        environ: the environment of the program.
        work_dirs: programs below them are not run.
        platform: the platform, as in `sys.platform`.
    """
    if not has_desktop(environ, platform):
        return None
    from kimi_tui.tools.programs import find_program

    commands = [["pbcopy"]] if platform == "darwin" else []
    if environ.get("WAYLAND_DISPLAY"):
        commands.append(["wl-copy"])
    if environ.get("DISPLAY"):
        commands += [["xclip", "-selection", "clipboard"], ["xsel", "-ib"]]
    for name, *arguments in commands:
        if (program := find_program(name, environ, *work_dirs)) is not None:
            return [program, *arguments]
    return None


def has_desktop(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether the user's desktop may be that of this process."""
    if environ.get("SSH_CONNECTION"):
        return False
    return bool(platform == "darwin" or environ.get("WAYLAND_DISPLAY") or environ.get("DISPLAY"))


def _run_apart(
    command: Sequence[str],
    environ: Mapping[str, str],
    work_dirs: Sequence[Path],
    timeout_s: float,
    given: bytes | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program of the desktop to its end, in a session of its own and nowhere near the work folder.

    Raises:
        OSError: the program could not be started.
        subprocess.TimeoutExpired: the program takes longer than `timeout_s` seconds.
    """
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL if given is None else None,
        input=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=browser_environment(environ, work_dirs),
        cwd="/",
        start_new_session=True,
        timeout=timeout_s,
        check=False,
    )


def copy_to_desktop(text: str, environ: Mapping[str, str], work_dirs: Sequence[Path]) -> bool:
    """Copy a text to the desktop's clipboard. It runs a process, so call it in a thread.

    Returns:
        whether it was copied.
    """
    command = clipboard_command(environ, work_dirs)
    if command is None:
        return False
    try:
        # Some clipboard programs keep running, to hand the text out when it is pasted, so they must hold no pipe of ours.
        ended = _run_apart(
            command, environ, work_dirs, CLIPBOARD_TIMEOUT_S, text.encode("utf-8", "replace")
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return ended.returncode == 0


class ClipboardContent(NamedTuple):
    """The content of the desktop's clipboard: the bytes of an image, or a text; nothing if `trouble` says why."""

    image: bytes = b""
    text: str = ""
    trouble: str = ""


class _Reading(NamedTuple):
    """The way to read a clipboard: the commands that print its image and its text, and their time limit in seconds."""

    image: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    timeout_s: float = CLIPBOARD_TIMEOUT_S
    is_base64: bool = False


_READINGS = {
    "windows": _Reading(
        ("powershell.exe", "-NoProfile", "-STA", "-Command", _FROM_WINDOWS),
        ("powershell.exe", "-NoProfile", "-Command", "Get-Clipboard -Raw"),
        WINDOWS_TIMEOUT_S,
        is_base64=True,
    ),
    "mac": _Reading(("pngpaste", "-"), ("pbpaste",)),
    "wayland": _Reading(
        ("wl-paste", "--type", "image/png"), ("wl-paste", "--no-newline", "--type", "text")
    ),
    "x": _Reading(
        ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
        ("xclip", "-selection", "clipboard", "-o"),
    ),
}
_MISSING = {
    "mac": "Pasting images needs pngpaste: brew install pngpaste.",
    "wayland": "Pasting needs wl-paste. Install wl-clipboard.",
    "x": "Pasting needs xclip. Install xclip.",
}


def _desktop_of(environ: Mapping[str, str], platform: str) -> str:
    """Return the kind of desktop whose clipboard is read; empty if there is none on this machine."""
    if "WSL_DISTRO_NAME" in environ or "WSL_INTEROP" in environ:
        return "windows"
    if not has_desktop(environ, platform):
        return ""
    if platform == "darwin":
        return "mac"
    return "wayland" if environ.get("WAYLAND_DISPLAY") else "x"


def image_reader(
    environ: Mapping[str, str], work_dirs: Sequence[Path], platform: str = sys.platform
) -> tuple[str, str]:
    """Return the program that reads images from the clipboard, and advice if there is none.

    Args:
        environ: the environment of the program.
        work_dirs: programs below them are not run.
        platform: the platform, as in `sys.platform`.
    """
    from kimi_tui.tools.programs import find_program

    desktop = _desktop_of(environ, platform)
    if not desktop:
        return "", "The clipboard is on another machine. Drag a file here, or paste its path."
    found = find_program(_READINGS[desktop].image[0], environ, *work_dirs)
    return found or "", "" if found else _MISSING.get(desktop, "")


def read_clipboard(
    environ: Mapping[str, str], work_dirs: Sequence[Path], platform: str = sys.platform
) -> ClipboardContent:
    """Read the content of the desktop's clipboard. It runs processes, so call it in a thread.

    Args:
        environ: the environment of the program.
        work_dirs: programs below them are not run.
        platform: the platform, as in `sys.platform`.
    """
    import base64
    import binascii

    from kimi_tui.images import MAX_FILE_BYTES
    from kimi_tui.tools.programs import find_program

    desktop = _desktop_of(environ, platform)
    reading = _READINGS.get(desktop, _Reading())

    def printed(command: tuple[str, ...], most: int) -> bytes | None:
        program = find_program(command[0], environ, *work_dirs) if command else None
        if program is None:
            return b""
        try:
            found = run_helper(
                [program, *command[1:]],
                folder=Path("/"),
                env=_environment(environ, work_dirs),
                timeout_s=reading.timeout_s,
                most=most,
            )
        except OSError:
            return b""
        if found.code is None:
            return None
        return b"" if found.code else found.data

    try:
        image = printed(reading.image, MAX_FILE_BYTES * (4 if reading.is_base64 else 3) // 3)
        if image and reading.is_base64:
            try:
                image = base64.b64decode(image)
            except binascii.Error:
                image = b""
        if image:
            return ClipboardContent(image)
        text = printed(reading.text, MOST_TEXT_BYTES) if image is not None else None
        if text:
            return ClipboardContent(text=text.decode("utf-8", "replace"))
        if text is None:
            return ClipboardContent(trouble="The clipboard holds more data than can be pasted.")
    except subprocess.TimeoutExpired:
        # The program that owns the clipboard does not answer.
        return ClipboardContent(trouble="The clipboard does not answer.")
    trouble = image_reader(environ, work_dirs, platform)[1]
    return ClipboardContent(trouble=trouble or "The clipboard holds neither an image nor text.")


def asks_tmux(environ: Mapping[str, str]) -> bool:
    """Return whether the program runs in tmux, so that tmux's option `set-clipboard` decides on copies; reading that runs a process."""
    return bool(environ.get("TMUX"))


def clipboard_advice(environ: Mapping[str, str], tmux_option: str = "") -> str:
    """Advice if a copy by OSC 52 may not reach the user's clipboard: why, and what to configure.

    Args:
        environ: the environment of the program.
        tmux_option: the value of tmux's `set-clipboard`; empty if it is unknown.
    """
    if asks_tmux(environ):
        if tmux_option == "on":
            return ""
        return 'In tmux, copying needs "set -g set-clipboard on" in ~/.tmux.conf.'
    if environ.get("STY"):
        return "GNU screen does not pass copied text on. Hold Shift and select, then copy with the terminal."
    if environ.get("TERM_PROGRAM") == "Apple_Terminal":
        return "Terminal.app does not let programs copy. Hold Fn and select, then press Cmd+C."
    if environ.get("TERM") == "linux":
        return "This console has no clipboard."
    if environ.get("VTE_VERSION"):
        return "If the clipboard stays empty, hold Shift and select, then press Ctrl+Shift+C."
    return ""


def tmux_option(environ: Mapping[str, str], work_dirs: Sequence[Path]) -> str:
    """Return the value of tmux's `set-clipboard`; empty if it is unknown. It runs a process, so call it in a thread.

    Args:
        environ: the environment of the program.
        work_dirs: programs below them are not run.
    """
    from kimi_tui.tools.programs import find_program

    program = find_program("tmux", environ, *work_dirs)
    if program is None:
        return ""
    try:
        asked = run_helper(
            [program, *_TMUX],
            folder=Path("/"),
            env=_environment(environ, work_dirs),
            timeout_s=TMUX_TIMEOUT_S,
            most=_MOST_OPTION_BYTES,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.data[:_MOST_OPTION_BYTES].decode("utf-8", "replace").strip()


def browser_command(
    url: str,
    environ: Mapping[str, str],
    work_dirs: Sequence[Path],
    platform: str = sys.platform,
) -> list[str] | None:
    """Return the command that opens an address in a window; None if there is no desktop.

    Args:
        url: http or https.
        environ: the environment of the program.
        work_dirs: programs below them are not run.
        platform: the platform, as in `sys.platform`.
    """
    from kimi_tui.tools.programs import find_program

    if platform == "darwin":
        names = ["open"]
    elif "WSL_DISTRO_NAME" in environ or "WSL_INTEROP" in environ:
        names = ["wslview", "explorer.exe"]
    elif environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"):
        names = ["xdg-open", "gio"]
    else:
        return None
    for name in names:
        program = find_program(name, environ, *work_dirs)
        if program is not None:
            return [program, "open", url] if name == "gio" else [program, url]
    return None


def browser_environment(
    environ: Mapping[str, str], work_dirs: Sequence[Path] = ()
) -> dict[str, str]:
    """Return the environment of the browser: the variables that the desktop needs, without a terminal browser or one that commands
    can change.
    """
    passed = _environment(environ, work_dirs)
    chosen = passed.get("BROWSER", "").split(":")[0].split(" ")[0]
    if Path(chosen).name in TEXT_BROWSERS or _is_out_of_place(chosen, environ, work_dirs):
        del passed["BROWSER"]
    return passed


def _environment(environ: Mapping[str, str], work_dirs: Sequence[Path]) -> dict[str, str]:
    """Return the variables that a program of the desktop needs, with a path that contains no program that commands can change."""
    from kimi_tui.tools.programs import trusted_path

    return {**desktop_environment(environ), "PATH": trusted_path(environ, *work_dirs)}


def _is_out_of_place(program: str, environ: Mapping[str, str], work_dirs: Sequence[Path]) -> bool:
    from kimi_tui.tools.programs import find_program

    return "/" in program and find_program(program, environ, *work_dirs) is None


def open_in_browser(url: str, environ: Mapping[str, str], work_dirs: Sequence[Path]) -> bool:
    """Open an address. It waits for the opener, so call it in a thread.

    The opener has no terminal, so no program that it starts can draw over this one.

    Returns:
        Whether it was opened, as far as can be told.
    """
    command = browser_command(url, environ, work_dirs)
    if command is None:
        return False
    try:
        ended = _run_apart(command, environ, work_dirs, BROWSER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # Some openers run as long as the window is open.
        return True
    except OSError:
        return False
    # The Windows explorer always exits with 1.
    return ended.returncode == 0 or command[0].endswith("explorer.exe")


NotificationMethod = Literal["bell", "osc9", "osc777", "osc99", "off"]

TITLE_CELLS = 80
WORDS_CELLS = 120
APP = "kimi-tui"
_END = "\x1b\\"
_KEEP_TITLE, _GIVE_TITLE_BACK = "\x1b[22;2t", "\x1b[23;2t"
_WORKS, _RESTS = f"\x1b]9;4;3;0{_END}", f"\x1b]9;4;0;0{_END}"
# From this version on GNOME's terminals draw progress; older ones ignored it.
_VTE_WITH_PROGRESS = 7900


def notification_method(how: str, environ: Mapping[str, str]) -> NotificationMethod:
    """Return the method of notifying the user: the configured one, or for `auto` the best one the terminal is known to support."""
    if how != "auto":
        return how  # pyright: ignore[reportReturnType] - checked where the file is read
    if _in_multiplexer(environ):
        return "bell"
    if environ.get("KITTY_WINDOW_ID") or environ.get("TERM") == "xterm-kitty":
        return "osc99"
    if environ.get("TERM_PROGRAM") in ("iTerm.app", "ghostty", "WezTerm"):
        return "osc9"
    if environ.get("TERM", "").startswith(("foot", "rxvt")) or environ.get("VTE_VERSION"):
        return "osc777"
    return "bell"


def _in_multiplexer(environ: Mapping[str, str]) -> bool:
    """Return whether tmux or screen stands between the program and the terminal."""
    return bool(environ.get("TMUX") or environ.get("STY"))


def draws_progress(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to draw progress (OSC 9;4); others may show the sequence as a notification."""
    if _in_multiplexer(environ):
        return False
    if environ.get("WT_SESSION") or environ.get("ConEmuANSI") == "ON":
        return True
    vte = environ.get("VTE_VERSION", "")
    is_new_vte = vte.isascii() and vte.isdigit() and int(vte[:9]) >= _VTE_WITH_PROGRESS
    return is_new_vte or environ.get("TERM_PROGRAM") == "ghostty"


def through_tmux(sequence: str, environ: Mapping[str, str]) -> str:
    """Return a sequence wrapped for the terminal behind tmux, which passes it on where `allow-passthrough` is on."""
    if not environ.get("TMUX"):
        return sequence
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}{_END}"


def tmux_clipboard_sequence(text: str, environ: Mapping[str, str]) -> str:
    """Return the sequence (OSC 52) that copies a text to the clipboard of the terminal behind tmux.

    Textual writes the same one for tmux itself, which passes it on only where it keeps a clipboard of its own.

    Args:
        text: the part of a copy that `clipboard_part` returns.
        environ: the environment of the program.
    """
    import base64

    data = base64.b64encode(text.encode("utf-8", "replace")).decode()
    return through_tmux(f"\x1b]52;c;{data}\a", environ)


def notification(way: NotificationMethod, words: str, environ: Mapping[str, str]) -> str:
    """Return the sequence that notifies the user by a method: with these words, or for `bell` without words; empty for `off`."""
    # A semicolon separates the fields of OSC 777 and 99.
    said = cut(one_line(words), WORDS_CELLS).replace(";", ",")
    match way:
        case "bell":
            return "\x07"
        case "osc9":
            return through_tmux(f"\x1b]9;{said}{_END}", environ)
        case "osc777":
            return through_tmux(f"\x1b]777;notify;{APP};{said}{_END}", environ)
        case "osc99":
            return through_tmux(f"\x1b]99;;{said}{_END}", environ)
        case "off":
            return ""


class WindowStatus:
    """Writes window title, progress and notifications to the terminal, each only when it changes.

    Args:
        write: writes a sequence to the terminal between two frames.
        settings: which events notify, and by which method.
        environ: the environment of the program.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        settings: NotifyConfig,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._write = write
        self._settings = settings
        self._environ = environ
        self._way: NotificationMethod = notification_method(settings.how, environ)
        self._draws_progress = draws_progress(environ)
        self._title: str | None = None
        self._works = False

    def update(self, *, folder: str, title: str, working: bool, asking: bool) -> None:
        """Update title and progress of the window.

        Args:
            folder: the work folder's name.
            title: the session's title.
            working: whether a turn or operation is running.
            asking: whether the agent waits for an answer of the user.
        """
        sign = "? " if asking else "* " if working else ""
        name = f"{one_line(folder)}: {one_line(title)}" if title else one_line(folder)
        words = cut(f"{sign}{name}", TITLE_CELLS)
        if words != self._title:
            kept = _KEEP_TITLE if self._title is None else ""
            self._title = words
            self._write(f"{kept}\x1b]2;{words}{_END}")
        works = working and not asking
        if works != self._works and self._draws_progress:
            self._works = works
            self._write(_WORKS if works else _RESTS)

    def alert(self, words: str, *, asking: bool) -> None:
        """Notify the user, whose window is in the background, if the settings say so.

        Args:
            words: the text of the notification.
            asking: whether it is about a question, else about the end of a turn.
        """
        if self._settings.asking if asking else self._settings.finished:
            self._write(notification(self._way, words, self._environ))

    def end(self) -> None:
        """Restore the title of the window. May be called again."""
        if self._title is not None:
            self._title = None
            rests = _RESTS if self._works else ""
            self._write(f"{rests}\x1b]2;{_END}{_GIVE_TITLE_BACK}")
