"""The log file, in which errors are written down, without any key.

Nothing is ever logged to the screen. Only the owner can read the file; at 5 MB a new one is started, and one old file is kept.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import open_regular

LIMIT_BYTES = 5 * 1024 * 1024

_SECRETS = re.compile(
    r"(?i)(\bsk-[a-z0-9_-]{4})[a-z0-9_-]{8,}"
    r"|(\bbearer\s+)\S+"
    r"|((?:api[-_]?key|authorization|token|secret|password)[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic)\s+)?)[^\s\"',}]+"
    # A login in the address of a proxy or a server is removed.
    r"|(://)[^\s/@]{1,500}(?=@)"
)


_known: set[str] = set()
"""The keys with which logging was ever started: a crash handler cannot read a keyring's key from the configuration."""


def written_forms(key: str) -> set[str]:
    """Return a key as it is written in a text and in an address, where other characters than letters and digits may be
    percent-encoded.
    """
    in_address = quote(key, safe="")
    lower = re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), in_address)
    return {key, in_address, lower}


def redacted(text: str, keys: tuple[str, ...] = ()) -> str:
    """Return the text with every key removed: known keys, and texts that look like one."""
    forms = {form for key in (*keys, *_known) if len(key) >= 6 for form in written_forms(key)}
    # The longest form comes first, as one form may be the beginning of another.
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "[key]")
    return _SECRETS.sub(lambda found: f"{next(filter(None, found.groups()))}[key]", text)


class _Redacting(logging.Formatter):
    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._keys = keys

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record), self._keys)


class _LogFile(logging.FileHandler):
    """A log file that may be removed, or whose disk may be full, while the program runs: records that cannot be written are dropped."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Print nothing: the base class would put a traceback on the terminal."""


def start_logging(path: Path, keys: tuple[str, ...] = ()) -> None:
    """Write warnings and errors of all modules, and this program's own notes, to the file.

    If it cannot be written, they are dropped.

    Args:
        path: the log file; its folder is created.
        keys: keys that must never be written to it.
    """
    _known.update(keys)
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h.formatter, _Redacting)]:
        root.removeHandler(old)
        old.close()
    handler: logging.Handler
    try:
        make_private(path.parent)
        if path.exists() and path.stat().st_size > LIMIT_BYTES:
            path.replace(path.with_suffix(".old.log"))
        opened = open_regular(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, links=True)
        if faulthandler.is_enabled():
            os.close(opened)
        else:
            # The handler has a file of its own for good: for a fatal error the interpreter writes to its descriptor.
            faulthandler.enable(opened)
        handler = _LogFile(path, encoding="utf-8", errors="replace")
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(_Redacting(keys))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("kimi_tui").setLevel(logging.INFO)
    logging.captureWarnings(True)


def begin_logging(path: Path, keys: tuple[str, ...] = ()) -> None:
    """Do the same as `start_logging`, unless that was called before."""
    if not any(
        isinstance(handler.formatter, _Redacting) for handler in logging.getLogger().handlers
    ):
        start_logging(path, keys)


def log_fault(path: Path, error: BaseException, keys: tuple[str, ...] = ()) -> None:
    """Write a survivable error with its traceback into the log, even before logging was started."""
    begin_logging(path, keys)
    logging.getLogger("kimi_tui").error("the program has a fault", exc_info=error)


def log_fault_again(kind: str, file: str, line: int) -> None:
    """Note that an error of a kind, raised at that line and already logged by `log_fault`, occurred again."""
    logging.getLogger("kimi_tui").error("the same fault again: %s at %s:%d", kind, file, line)


def log_hang(path: Path, keys: tuple[str, ...] = ()) -> None:
    """Write the stacks of all threads into the log, for a program that does not end by itself and is ended.

    Args:
        path: the log file.
        keys: keys that must never be written to it.
    """
    begin_logging(path, keys)
    logging.getLogger("kimi_tui").error(
        "the program ended while it was not responding; at that moment it was at"
    )
    opened = open_regular(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, links=True)
    try:
        faulthandler.dump_traceback(opened)
    finally:
        os.close(opened)


def log_crash(path: Path, error: BaseException, keys: tuple[str, ...] = ()) -> None:
    """Write a crash with its traceback into the log, in any state of the program."""
    start_logging(path, keys)
    logging.getLogger("kimi_tui").critical("crashed", exc_info=error)
    logging.shutdown()
