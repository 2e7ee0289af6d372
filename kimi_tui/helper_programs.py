"""Runs a helper program such as git, a clipboard tool or a keyring command: bounded in time and output. It blocks, so call it
in a thread.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from typing import NamedTuple

_PIECE_BYTES = 65_536
_AFTER_END_S = 0.2
_LOOK_S = 0.05


_DESKTOP = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TMP",
        "TEMP",
        "DISPLAY",
        "XAUTHORITY",
        "WAYLAND_DISPLAY",
        "BROWSER",
        "DBUS_SESSION_BUS_ADDRESS",
        "DESKTOP_SESSION",
        "SESSION_MANAGER",
        "ICEAUTHORITY",
        "GNOME_KEYRING_CONTROL",
        "TMUX",
        "TMUX_TMPDIR",
        "WSL_DISTRO_NAME",
        "WSL_INTEROP",
        "WSLENV",
        "LD_LIBRARY_PATH",
        "NIX_PROFILES",
        "GIO_EXTRA_MODULES",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "__CF_USER_TEXT_ENCODING",
    ]
)
_DESKTOP_FAMILIES = ("LC_", "XDG_", "KDE_", "GTK_", "GDK_", "QT_", "MOZ_", "GNOME_DESKTOP_")


def desktop_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program of the user's desktop needs, such as a clipboard, a keyring or a browser: no keys,
    whatever their names.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _DESKTOP or name.startswith(_DESKTOP_FAMILIES)
    }


class HelperOutput(NamedTuple):
    """The first bytes of the output, and the exit code; None if the program printed more than requested and was ended."""

    data: bytes
    code: int | None


def run_helper(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    timeout_s: float,
    most: int,
    given: int = subprocess.DEVNULL,
    stop: Flag | None = None,
) -> HelperOutput:
    """Run a program in a session of its own, and read about `most` bytes of its output.

    Processes that still run at the end are killed, with everything in their session. They may hold the output open after the
    program itself has ended, so they are awaited only for a moment.

    Args:
        command: the program and its arguments.
        folder: the folder in which it runs.
        env: its variables.
        timeout_s: the seconds after which it is ended.
        most: the bytes of output after which it is ended.
        given: the descriptor of its standard input; none by default.
        stop: set when it is to be ended; then its time is over.

    Raises:
        OSError: the program could not be started.
        subprocess.TimeoutExpired: the program takes longer than `timeout_s` seconds.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    pipe, printed = process.stdout.fileno(), bytearray()
    ends_at = time.monotonic() + timeout_s
    is_ended = False
    # `select` accepts no descriptor above a thousand.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    try:
        while len(printed) <= most:
            if stop is not None and stop.is_set():
                raise subprocess.TimeoutExpired(command, timeout_s)
            left_s = ends_at - time.monotonic()
            if not poll.poll(max(0.0, min(left_s, _LOOK_S)) * 1000):
                if left_s > 0 and not is_ended and _has_ended(process.pid):
                    is_ended, ends_at = True, min(ends_at, time.monotonic() + _AFTER_END_S)
                elif left_s <= 0 and is_ended:
                    break
                elif left_s <= 0:
                    raise subprocess.TimeoutExpired(command, timeout_s)
            elif piece := os.read(pipe, _PIECE_BYTES):
                printed += piece
            else:
                code = process.wait(max(0.1, ends_at - time.monotonic()))
                return HelperOutput(bytes(printed), code)
    finally:
        process.stdout.close()
        if process.returncode is None:
            # The process has not been reaped yet, so its id cannot have been reused.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return HelperOutput(bytes(printed), None if len(printed) > most else process.returncode)


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended; it is not reaped by this."""
    if not hasattr(os, "waitid"):
        # macOS with an older Python lacks `waitid`.
        return False
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
