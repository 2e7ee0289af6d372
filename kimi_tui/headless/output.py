"""Standard output and standard error of a run without a screen.

Standard output gets the answer alone. It is written in a thread, and each text is waited for, so that a slow reader delays
the run and loses nothing; meanwhile the wire merges what comes.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable

from kimi_tui.app_paths import reason_of
from kimi_tui.foreign_text import one_line

STDOUT = 1


class OutputGone(Exception):
    """Nothing more can be written. The text says why; it is empty if the reader has closed the pipe."""


class Output:
    """Standard output.

    Args:
        descriptor: the file descriptor.
    """

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._fd = descriptor
        self._jobs: queue.SimpleQueue[tuple[bytes, Callable[[OSError | None], None]]] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    async def write(self, text: str) -> None:
        """Write a text, and return when it is written.

        Raises:
            OutputGone: it cannot be written.
        """
        if not text:
            return
        if self._thread is None:
            # A daemon: a reader that never reads must not keep a stopped program from ending.
            self._thread = threading.Thread(target=self._work, daemon=True, name="standard output")
            self._thread.start()
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def done(error: OSError | None) -> None:
            if written.done():
                return
            if error is None:
                written.set_result(None)
            else:
                why = "" if isinstance(error, BrokenPipeError) else reason_of(error)
                written.set_exception(OutputGone(why))

        def tell(error: OSError | None) -> None:
            try:
                loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                return  # The loop is closed: the program ends without waiting for its reader.

        self._jobs.put((text.encode("utf-8", "replace"), tell))
        await written

    def _work(self) -> None:
        while True:
            data, tell = self._jobs.get()
            error: OSError | None = None
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError as failed:
                error = failed
            tell(error)


def complain(text: str) -> None:
    """Write a warning or an error in one line to standard error."""
    _to_stderr(f"kimi-tui: {one_line(text)}")


def progress(text: str) -> None:
    """Write a line of progress to standard error."""
    _to_stderr(one_line(text))


def _to_stderr(line: str) -> None:
    try:
        print(line.encode("utf-8", "replace").decode(), file=sys.stderr, flush=True)
    except (OSError, ValueError, UnicodeEncodeError):
        return  # Nobody reads it.
