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
from typing import Literal, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.process import child_environment
from kimi_tui.tools.web.page_text import MAX_CHARS

READ_S = 45.0
"""Seconds after which the process is ended. It has limits of its own, which it reaches earlier."""
_MOST_AT_ONCE = 2
_MOST_BYTES = MAX_CHARS * 4 + 16_384

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
        if out is None:
            raise ToolProblem(
                "The page cannot be read: it needs too much time or memory.", brief="too complex"
            )
        return await asyncio.to_thread(_page_text, out)


class _PageProcess:
    """One process that reads a page. It may be stopped at any time, also before it was started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, data: bytes, environ: Mapping[str, str]) -> bytes | None:
        """Hand the page over and return the output; None if the process fails, takes too long, or says more than any page has."""
        with self._lock:
            if self._is_stopped:
                return None
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", "-m", "kimi_tui.tools.web.page_text"],
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


def _page_text(out: bytes) -> PageText:
    head, _, text = out.partition(b"\n")
    try:
        facts = lenient_json.mapping(json.loads(head))
    except (ValueError, RecursionError):
        facts = {}
    title = one_line(lenient_json.text(facts.get("title")))[:300]
    note = one_line(lenient_json.text(facts.get("note")))[:400]
    return PageText(title, clean(text.decode("utf-8", "replace")), note)
