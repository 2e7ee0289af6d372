"""The streams of messages between a server and the package `mcp`: our own transport for `stdio`, and `repaired` for the others.

Whatever a server sends, a line that is no message is skipped, and a description of a tool that the package would refuse is
put right, since one such tool would hide all others. Lines are read in linear time; long ones are parsed in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from kimi_tui import lenient_json
from kimi_tui.mcp.process import LineTooLong, ServerStart, ServerStreams, lines_of

if TYPE_CHECKING:
    from mcp.client._transport import Transport, TransportStreams

log = logging.getLogger(__name__)

_IN_THREAD_BYTES = 256 << 10
_MOST_TOOLS = 500
"""The most tools of one page, and characters of a name, a description and a schema. More is left out."""
_MOST_NAME, _MOST_DESCRIPTION, _MOST_SCHEMA = 128, 4_000, 60_000
_NOTES_AT_ONCE = 50
_NOTES_PAUSE_S = 0.02
"""Seconds of pause after so many messages that answer nothing: a flood of them waits in the server's pipe."""


class StdioTransport:
    """Starts the program of a server and passes messages, as an async context manager of two streams.

    Args:
        start: how the program is started.
        errors: the file for its standard error.

    Attributes:
        ended: set when its output has ended.
        why: how it ended, as a clause; empty as long as that is unknown.
    """

    def __init__(self, start: ServerStart, errors: Path) -> None:
        self._start = start
        self._errors = errors
        self._streams: ServerStreams | None = None
        self._jobs: list[asyncio.Task[None]] = []
        self._closing = False
        self.ended = asyncio.Event()
        self.why = ""

    async def __aenter__(self) -> TransportStreams:
        self._streams = streams = await ServerStreams.opened(self._start, self._errors)
        to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        write, from_session = anyio.create_memory_object_stream[SessionMessage](16)

        async def read_all() -> None:
            async with to_session:
                try:
                    async for message in _messages(streams.source):
                        await to_session.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
                except LineTooLong as end:
                    self.why = str(end)
                # Calls that wait get their error when the stream is closed, and it says why.
                await self._note_end()

        async def write_all() -> None:
            with contextlib.suppress(OSError, anyio.ClosedResourceError):
                async for one in from_session:
                    text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                    streams.sink.write(text.encode("utf-8", "replace") + b"\n")
                    await streams.sink.drain()

        self._jobs = [asyncio.create_task(read_all()), asyncio.create_task(write_all())]
        return cast("TransportStreams", (read, write))

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        if self._streams is not None:
            try:
                await self._streams.close()
            finally:
                for job in self._jobs:
                    job.cancel()
        self.ended.set()

    async def _note_end(self) -> None:
        if self._streams is not None and not self.why and not self._closing:
            self.why = await self._streams.how_ended()
        self.ended.set()


async def _messages(source: asyncio.StreamReader) -> AsyncGenerator[SessionMessage]:
    """Yield the messages of a server's output.

    Raises:
        LineTooLong: a line is too long.
    """
    n_notes = 0
    async for line in lines_of(source):
        found = (
            await asyncio.to_thread(message_in, line)
            if len(line) > _IN_THREAD_BYTES
            else message_in(line)
        )
        if found is None:
            n_notes += 1
        else:
            n_notes += isinstance(found.message, mcp_types.JSONRPCNotification)
            yield found
        if n_notes >= _NOTES_AT_ONCE:
            n_notes = 0
            await asyncio.sleep(_NOTES_PAUSE_S)


def message_in(line: bytes) -> SessionMessage | None:
    """Return the message of a line, repaired; None if it is none."""
    try:
        found: object = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    fields = lenient_json.mapping(found)
    if isinstance(fields.get("result"), dict):
        repair(lenient_json.mapping(fields["result"]))
    try:
        return SessionMessage(
            mcp_types.jsonrpc_message_adapter.validate_python(fields, by_name=False)
        )
    except (ValueError, RecursionError):
        return None


def repair(result: dict[str, Any]) -> None:
    """Put right the descriptions of tools in a result, so that one bad tool does not hide the others.

    Schemas of results are left out: the package would check results by them, with whatever pattern a server wrote.
    """
    tools = result.get("tools")
    if isinstance(tools, list):
        found = (_tool(one) for one in lenient_json.listing(tools)[: _MOST_TOOLS * 2])
        result["tools"] = [one for one in found if one is not None][:_MOST_TOOLS]


def _tool(found: object) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    fields = lenient_json.mapping(found)
    name, said = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME:
        return None
    schema = {**lenient_json.mapping(fields.get("inputSchema"))}
    schema["type"] = "object"
    if not isinstance(schema.get("properties", {}), dict):
        del schema["properties"]
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(
        isinstance(one, str) for one in lenient_json.listing(required)
    ):
        del schema["required"]
    try:
        if len(json.dumps(schema)) > _MOST_SCHEMA:
            return None
    except (ValueError, RecursionError):
        return None
    description = said[:_MOST_DESCRIPTION] if isinstance(said, str) else ""
    return {"name": name, "description": description, "inputSchema": schema}


@asynccontextmanager
async def repaired(
    transport: AbstractAsyncContextManager[TransportStreams], ended: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Pass the messages of another transport, with the descriptions of tools repaired.

    Args:
        transport: the transport.
        ended: called when the server sends no more.
    """
    async with transport as (read, write):
        to_session, mended = anyio.create_memory_object_stream[SessionMessage | Exception](16)

        async def pass_on() -> None:
            n_notes = 0
            async with to_session:
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async for one in read:
                        if isinstance(one, SessionMessage):
                            message = one.message
                            if isinstance(message, mcp_types.JSONRPCResponse):
                                repair(message.result)
                            n_notes += isinstance(message, mcp_types.JSONRPCNotification)
                        await to_session.send(one)
                        if n_notes >= _NOTES_AT_ONCE:
                            n_notes = 0
                            await asyncio.sleep(_NOTES_PAUSE_S)
            ended()

        job = asyncio.create_task(pass_on())
        try:
            yield cast("TransportStreams", (mended, write))
        finally:
            job.cancel()


def as_transport(made: object) -> Transport:
    """Return a context manager of streams as the package's type."""
    return cast("Transport", made)


def log_path(folder: Path, name: str) -> Path:
    """Return the file for the standard error of a server's program."""
    return folder / f"{os.path.basename(name)}.log"
