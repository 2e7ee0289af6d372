"""Reads pages in a process of their own, `page_text`, which is ended where it takes too long."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.process import child_environment
from kimi_tui.tools.web.page_text import MAX_CHARS, NO_PARSER

READ_S = 45.0
"""Seconds after which the process is ended. It has limits of its own, which it reaches earlier."""
_MOST_AT_ONCE = 2
_MOST_BYTES = MAX_CHARS * 4 + 16_384
_BEGIN = """import sys
sys.path += sys.argv[1:]
from kimi_tui.tools.web.page_text import main
sys.exit(main())
"""

PageKind = Literal["html", "pdf", "text"]


class PageText(NamedTuple):
    """The text of a page, clean: title (one line, empty for none), text, and a note about how it was read."""

    title: str
    text: str
    note: str


class PageReader:
    """Reads pages, no more than two at once."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def read(
        self, data: bytes, kind: PageKind, charset: str, url: str, environ: Mapping[str, str]
    ) -> PageText:
        """Return the text of a page.

        Args:
            data: the bytes.
            kind: what they are.
            charset: the encoding that the server named; empty if it named none.
            url: the URL of the page, for its links.
            environ: the environment variables of this program.

        Raises:
            ToolProblem: the page cannot be read.
            asyncio.CancelledError: the process was ended.
        """
        head = json.dumps({"kind": kind, "charset": charset, "base": url}).encode()
        async with self._slots:
            reading = _PageProcess()
            try:
                out = await asyncio.to_thread(reading.run, head + b"\n" + data, environ)
            finally:
                reading.stop()
        if reading.lacks_parser:
            raise ToolProblem(
                "The page cannot be read: lxml, markdownify or pypdf is missing or has the wrong version. "
                "Installing kimi-tui again repairs this.",
                brief="packages missing",
            )
        if out is None:
            raise ToolProblem(
                "The page cannot be read: it needs too much time or memory.", brief="too complex"
            )
        return await asyncio.to_thread(_page_text, out)


class _PageProcess:
    """One process that reads a page. It may be stopped at any time, also before it was started.

    Attributes:
        lacks_parser: whether it ended because a package that reads such pages cannot be imported.
    """

    def __init__(self) -> None:
        self.lacks_parser = False
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, data: bytes, environ: Mapping[str, str]) -> bytes | None:
        """Hand the page over and return the output; None if the process fails, takes too long, or says more than any page has."""
        with self._lock:
            if self._is_stopped:
                return None
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", "-c", _BEGIN, *_folders()],
                cwd="/",
                env=child_environment(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            out, _ = process.communicate(data, timeout=READ_S)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            self.stop()
            process.communicate()
            return None
        self.lacks_parser = process.returncode == NO_PARSER
        return out if process.returncode == 0 and len(out) <= _MOST_BYTES else None

    def stop(self) -> None:
        """End the process, if it still runs."""
        with self._lock:
            self._is_stopped = True
            process = self._process
            if process is not None and process.poll() is None:
                # It has not been reaped, so its id cannot have been used again.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)


@cache
def _folders() -> tuple[str, ...]:
    """Return the folders of this program and of the parsers: `-I` leaves out those of `pip install --user` and PYTHONPATH."""
    found: dict[str, None] = {}
    for name in ("kimi_tui", "lxml", "markdownify", "pypdf"):
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            found[os.path.dirname(os.path.dirname(os.path.abspath(spec.origin)))] = None
    return tuple(found)


def _page_text(out: bytes) -> PageText:
    head, _, text = out.partition(b"\n")
    try:
        facts = lenient_json.mapping(json.loads(head))
    except (ValueError, RecursionError):
        facts = {}
    title = one_line(lenient_json.text(facts.get("title")))[:300]
    note = one_line(lenient_json.text(facts.get("note")))[:400]
    return PageText(title, clean(text.decode("utf-8", "replace")), note)
