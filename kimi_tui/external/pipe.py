"""`AgentPipe`: the program of an external agent, and the messages of the protocol over its standard streams.

Whatever the program sends, a line that is no message of the protocol is skipped and counted, so that it cannot end the package's
own loop. Lines are read in linear time, and long ones parsed in a thread. A program that sends more than is taken waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from acp import schema
from pydantic import ValidationError

from kimi_tui import lenient_json
from kimi_tui.app_paths import reason_of
from kimi_tui.external.agents import AgentProgram
from kimi_tui.mcp.process import LineTooLong, ServerStart, ServerStreams, lines_of

_IN_THREAD_BYTES = 256 << 10
_UPDATES = frozenset(
    (
        *("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call"),
        *("tool_call_update", "plan", "available_commands_update", "current_mode_update"),
        *("config_option_update", "session_info_update", "usage_update"),
    )
)
"""The updates that are understood; others are new kinds, and no fault."""
_MOST_SKIPPED = 2_000
"""Lines that are no messages, before the first message, after which the program is taken for another one."""
_MOST_ASKED = 64
"""The requests of the agent that are worked on at once; further ones wait."""


class AgentPipe:
    """A transport of the package `acp`, with the program at its other end.

    Args:
        program: how the program is started.
        work_dir: the folder in which it runs.
        errors: the file for its standard error.
        has_room: waits until more messages may be taken.

    Attributes:
        ended: set when the program's output has ended.
        why: how it ended, as a clause; empty as long as that is unknown.
        n_skipped: the number of lines that were no messages.
        models: the models in the newest answer that had some, as agents tell them that offer no options; the package leaves
            them out.
    """

    def __init__(
        self,
        program: AgentProgram,
        work_dir: Path,
        errors: Path,
        has_room: Callable[[], Any],
    ) -> None:
        self._start = ServerStart(program.argv, program.environ, work_dir)
        self._errors = errors
        self._has_room = has_room
        self._streams: ServerStreams | None = None
        self._lines: AsyncGenerator[bytes] | None = None
        self._writing = asyncio.Lock()
        self._asked: set[object] = set()
        self._answered = asyncio.Event()
        self._is_closing = False
        self._has_spoken = False
        """Whether a message of the protocol has come."""
        self.ended = asyncio.Event()
        self.why = ""
        self.n_skipped = 0
        self.models: dict[str, Any] = {}

    async def open(self) -> None:
        """Start the program.

        Raises:
            OSError: it could not be started.
        """
        self._streams = await ServerStreams.opened(self._start, self._errors)
        self._lines = lines_of(self._streams.source)

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            ConnectionError: the program has ended, or takes no messages any more.
        """
        if self._streams is None or self._is_closing or self.ended.is_set():
            raise ConnectionError(self.why or "the program is no longer running")
        if "method" not in message:
            self._asked.discard(_hashable(message.get("id")))
            self._answered.set()
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        async with self._writing:
            try:
                self._streams.sink.write(line)
                await self._streams.sink.drain()
            except OSError as error:
                raise ConnectionError(f"it does not accept messages: {reason_of(error)}") from error

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        assert self._lines is not None
        try:
            async for line in self._lines:
                if not line.strip():
                    continue
                long = len(line) > _IN_THREAD_BYTES
                found = await asyncio.to_thread(message_in, line) if long else message_in(line)
                if found is None:
                    self.n_skipped += 1
                    if not self._has_spoken and self.n_skipped >= _MOST_SKIPPED:
                        self.why = "its output is not the Agent Client Protocol"
                        break
                    if self.n_skipped % 64 == 0:
                        await asyncio.sleep(0)
                    continue
                self._has_spoken = True
                await self._has_room()
                result = lenient_json.mapping(found.get("result"))
                if isinstance(result.get("models"), dict):
                    self.models = lenient_json.mapping(result["models"])
                if "method" in found and "id" in found:
                    await self._note_asked(found["id"])
                return found
        except LineTooLong as error:
            self.why = str(error)
        await self._note_end()
        return None

    async def _note_asked(self, request: object) -> None:
        while len(self._asked) >= _MOST_ASKED and not self._is_closing:
            self._answered.clear()
            await self._answered.wait()
        self._asked.add(_hashable(request))

    async def _note_end(self) -> None:
        if self._streams is not None and not self.why and not self._is_closing:
            self.why = await self._streams.how_ended()
        self.ended.set()

    async def close(self) -> None:
        """End the program and everything that it started. It may be called again."""
        if self._is_closing:
            return
        self._is_closing = True
        self._answered.set()
        if self._streams is not None:
            await self._streams.close()
        self.ended.set()


def message_in(line: bytes) -> dict[str, Any] | None:
    """Return the message of a line; None if it is none that the package can take."""
    try:
        found: object = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    message = lenient_json.mapping(found)
    if "method" in message:
        return _asked(message)
    number = message.get("id")
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    error = message.get("error")
    if error is None:
        return message if "result" in message else None
    facts = lenient_json.mapping(error)
    code = facts.get("code")
    return {
        "jsonrpc": "2.0",
        "id": number,
        "error": {
            "code": code if isinstance(code, int) else -32603,
            "message": str(facts.get("message") or "an error without a message"),
            "data": facts.get("data"),
        },
    }


def _asked(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return a request or notification of the agent, or None."""
    method, params = message["method"], message.get("params")
    if not isinstance(method, str) or not isinstance(params, dict | None):
        return None
    if "id" in message and not isinstance(message["id"], int | str):
        return None
    if method == "session/update":
        facts = lenient_json.mapping(lenient_json.mapping(params).get("update"))
        if facts.get("sessionUpdate") not in _UPDATES:
            return None
        try:
            schema.SessionNotification.model_validate(params)
        except (ValidationError, RecursionError):
            return None
    elif "id" not in message and not method.startswith("_"):
        # No other notification concerns a client, and the package logs each that it does not know.
        return None
    return message


def _hashable(value: object) -> object:
    return value if isinstance(value, int | str) else None
