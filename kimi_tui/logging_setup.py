"""The log file: where whatever went wrong is written down, without any key.

Nothing is ever logged to the screen. The file is for its owner alone and is started anew at 5 MB, one old one kept.
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
    # Who logs in, in the address of a proxy or a server.
    r"|(://)[^\s/@]{1,500}(?=@)"
)


_known: set[str] = set()
"""The keys that logging was ever begun with: one of the keyring stands in no configuration that a crash could ask."""


def written_forms(key: str) -> set[str]:
    """A key as it stands in a text or in an address, where what is neither a letter nor a digit may be a percent sign and two digits."""
    in_address = quote(key, safe="")
    lower = re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), in_address)
    return {key, in_address, lower}


def redacted(text: str, keys: tuple[str, ...] = ()) -> str:
    """The text with every key taken out: those that are known, and whatever looks like one."""
    forms = {form for key in (*keys, *_known) if len(key) >= 6 for form in written_forms(key)}
    # The longest first: one may be the beginning of another.
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
    """A log file that may be taken away while the program runs: what cannot be written is dropped."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        with suppress(OSError):
            super().emit(record)


def start_logging(path: Path, keys: tuple[str, ...] = ()) -> None:
    """Send warnings and errors of all parts, and what we note ourselves, to the file.

    Where it cannot be written, they are dropped.

    Args:
        path: the log file; its folder is made.
        keys: keys that must never stand in it.
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
            # It has the file to itself and for good: what the interpreter itself dies of is written by its number.
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
    """As `start_logging`, unless that was called before."""
    if not any(
        isinstance(handler.formatter, _Redacting) for handler in logging.getLogger().handlers
    ):
        start_logging(path, keys)


def log_fault(path: Path, error: BaseException, keys: tuple[str, ...] = ()) -> None:
    """Write an error that ends nothing with its traceback into the log, also before logging was started."""
    begin_logging(path, keys)
    logging.getLogger("kimi_tui").error("the program has a fault", exc_info=error)


def log_fault_again(kind: str, file: str, line: int) -> None:
    """Note that an error of a kind, raised at that line, which `log_fault` has written down came again."""
    logging.getLogger("kimi_tui").error("the same fault again: %s at %s:%d", kind, file, line)


def log_hang(path: Path, keys: tuple[str, ...] = ()) -> None:
    """Write into the log where all threads are, of a program that is ended because it comes to no end itself.

    Args:
        path: the log file.
        keys: keys that must never stand in it.
    """
    begin_logging(path, keys)
    logging.getLogger("kimi_tui").error("ended while it did not answer; it was at")
    opened = open_regular(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, links=True)
    try:
        faulthandler.dump_traceback(opened)
    finally:
        os.close(opened)


def log_crash(path: Path, error: BaseException, keys: tuple[str, ...] = ()) -> None:
    """Write a crash with its traceback into the log, whatever state the program is in."""
    start_logging(path, keys)
    logging.getLogger("kimi_tui").critical("crashed", exc_info=error)
    logging.shutdown()
