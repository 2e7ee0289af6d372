"""`Pipe`: the messages of the protocol over standard input and output, one JSON object a line.

Standard output belongs to the protocol alone: whatever else the process prints there goes to standard error. A line that is
no message is answered with an error and otherwise ignored; the package's own transport would end at some of these.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any, cast

from kimi_tui.headless.output import STDOUT, Output, OutputGone
from kimi_tui.headless.standard_input import STDIN, StandardInput

_STDERR = 2
_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_MOST_AHEAD = 1 << 20
_UNKNOWN = frozenset({"session/delete"})
"""The methods of the protocol that the package does not pass on; they are passed on as methods outside of it, with a `_`."""


class Pipe:
    """A transport of the package `acp`.

    Args:
        source: what the editor sends.
        output: what it is sent. No more than `_MOST_AHEAD` characters wait for a slow editor; then the sender waits.
    """

    def __init__(self, source: StandardInput, output: Output) -> None:
        self._lines: AsyncIterator[bytes] = source.lines()
        self._output = output
        self._ahead: list[str] = []
        self._ahead_chars = 0
        self._room = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._gone = ""

    @classmethod
    def standard(cls) -> Pipe:
        """Return the pipe of this process, and send what is printed from now on to standard error."""
        descriptor = os.dup(STDOUT)
        os.dup2(_STDERR, STDOUT)
        return cls(StandardInput(lambda _: None, STDIN), Output(descriptor))

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message, after those before it.

        Raises:
            ConnectionError: the editor is gone.
        """
        if self._gone:
            raise ConnectionError(self._gone)
        line = json.dumps(message, ensure_ascii=False) + "\n"
        self._ahead.append(line)
        self._ahead_chars += len(line)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="write to the editor")
        while self._ahead_chars > _MOST_AHEAD and not self._gone:
            self._room.clear()
            await self._room.wait()

    async def _write(self) -> None:
        while self._ahead and not self._gone:
            text = "".join(self._ahead)
            self._ahead.clear()
            try:
                await self._output.write(text)
            except OutputGone as gone:
                self._gone = str(gone) or "the editor closed the pipe"
            self._ahead_chars -= len(text)
            self._room.set()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        async for line in self._lines:
            if not line.strip():
                continue
            try:
                found: object = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(_PARSE_ERROR, "This line is not valid JSON.")
                continue
            if isinstance(found, dict):
                message = cast("dict[str, Any]", found)
                if isinstance(method := message.get("method", ""), str):
                    return {**message, "method": f"_{method}"} if method in _UNKNOWN else message
            await self._refuse(_INVALID_REQUEST, "This line is not a JSON-RPC message.")
        return None

    async def close(self) -> None:
        """Write what waits. The streams themselves are those of the process, and stay open."""
        if self._writing is not None:
            await self._writing

    async def _refuse(self, code: int, words: str) -> None:
        error = {"code": code, "message": words}
        await self.send({"jsonrpc": "2.0", "id": None, "error": error})
