"""Writes what the wire tells into the session's record, one line for each run of text, in a thread.

Live output is not stored (the result holds what is kept of it), and arguments are stored once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from kimi_tui.soul.finishing import to_its_end
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.events import (
    Record,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolCallPart,
    ToolOutput,
    ToolResult,
    ToolStarted,
)
from kimi_tui.wire.queue import Wire

Json = dict[str, Any]
GATHERED_S = 0.1


class Appendable(Protocol):
    """A file that takes records and never raises for the disk's sake."""

    def append(self, record: Json, /) -> None:
        """Add one record."""
        ...


class Recorder:
    """A subscriber of the wire that writes.

    Args:
        file: where to.
        wire: what to.
    """

    def __init__(self, file: Appendable, wire: Wire) -> None:
        self._file = file
        self._wire = wire
        self._woken = asyncio.Event()
        self._subscription = wire.subscribe(wake=self._woken.set)
        self._lock = asyncio.Lock()
        self._open: Record | None = None
        self._pieces: list[str] = []
        self._lines: list[Json] = []
        self._arguments: dict[str, str] = {}
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="recorder")

    async def flush(self) -> None:
        """Write everything that has been published."""
        self._take_all()
        self._close()
        await to_its_end(self._write_out())

    async def aclose(self) -> None:
        """Write what is left and listen no more."""
        self._closing.set()
        self._woken.set()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.flush()
        self._wire.unsubscribe(self._subscription)

    async def _run(self) -> None:
        # Never cancelled: a write that waits for its thread would be lost.
        while not self._closing.is_set():
            await self._woken.wait()
            self._woken.clear()
            # Not once for each token: what comes in this time is merged by the queue and written together.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHERED_S):
                    await self._closing.wait()
            self._take_all()
            # A token of a growing text costs no thread.
            if self._lines:
                await self._write_out()

    def _take_all(self) -> None:
        for record in self._subscription.drain():
            self._take(record)

    async def _write_out(self) -> None:
        async with self._lock:
            lines, self._lines = self._lines, []
            if lines:
                await asyncio.to_thread(self._write, lines)

    def _write(self, lines: Sequence[Json]) -> None:
        for line in lines:
            self._file.append(line)

    def _take(self, record: Record) -> None:
        event = record.event
        if isinstance(event, ToolOutput):
            return
        if self._open is not None and (text := _continuation(self._open, record)) is not None:
            self._pieces.append(text)
            self._open = replace(self._open, seq=record.seq)
            return
        self._close()
        match event:
            case TextPart(text) | ThinkPart(text):
                self._open, self._pieces = record, [text]
            case ToolCall(arguments=text) | ToolCallPart(arguments=text):
                self._open, self._pieces = record, [text]
            case ToolStarted(key, name, arguments):
                line = encode_record(record)
                if self._arguments.get(key) == arguments:
                    line["message"]["payload"] = {"key": key, "name": name}
                self._lines.append(line)
            case ToolResult(key=key):
                self._arguments.pop(key, None)
                self._lines.append(encode_record(record))
            case _:
                self._lines.append(encode_record(record))

    def _close(self) -> None:
        record, self._open = self._open, None
        if record is None:
            return
        text = "".join(self._pieces)
        self._pieces = []
        event = record.event
        match event:
            case TextPart() | ThinkPart():
                event = replace(event, text=text)
            case ToolCall(key=key):
                self._arguments[key] = text
                event = replace(event, arguments=text)
            case ToolCallPart(key=key):
                self._arguments[key] = self._arguments.get(key, "") + text
                event = replace(event, arguments=text)
            case _:
                pass
        self._lines.append(encode_record(replace(record, event=event)))


def _continuation(first: Record, second: Record) -> str | None:
    """The text that the second event adds to the first, or None where it is no continuation."""
    match first.event, second.event:
        case (TextPart(), TextPart(text)) | (ThinkPart(), ThinkPart(text)):
            return text
        case (ToolCall(key=key), ToolCallPart(key=other, arguments=text)) if key == other:
            return text
        case (ToolCallPart(key=key), ToolCallPart(key=other, arguments=text)) if key == other:
            return text
        case _:
            return None
