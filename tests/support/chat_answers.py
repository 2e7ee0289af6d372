"""What the scripted server of `chat_server` can be told to answer, and what no server should be sent. Plain values."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Json = Any
AUTO = (-1, -1)
"""The usage is counted by the server itself: a quarter of the request's bytes, a quarter of the answer's characters."""


# -- what the server was sent ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Json:
        """Return the JSON body, or None."""
        return json.loads(self.raw) if self.raw else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of a chat request."""
        return self.body["messages"]

    @property
    def image_urls(self) -> list[str]:
        """Return the images of a chat request, in order."""
        contents = [message["content"] for message in self.messages]
        parts = [part for found in contents if isinstance(found, list) for part in found]
        return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


# -- what it does in return --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of the stream: an object is sent as JSON, a string unchanged."""

    data: Json
    event: str = ""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes put unchanged into the body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Pause for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Gate:
    """Pause until the test calls `server.release()`; `server.at_gate` says that it was reached."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Send nothing more until the client goes away."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection here; with `reset` by RST, otherwise in order."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class UsageHere:
    """The place of the chunk with the usage, which is made once the request's length is known."""

    usage: tuple[int, ...]
    output_chars: int
    choice: bool = False


Op = Chunk | Raw | Wait | Gate | Stall | Drop | UsageHere


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request: `before` precedes the status line, then come the head and the `ops` of the body."""

    ops: tuple[Op, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "text/event-stream"
    before: tuple[Op, ...] = ()
    bare: bool = False
    """Whether to send only `ops`, without our head (they bring their own)."""


Responder = Callable[[Request], "Answer | None"]

_ids = itertools.count()


def _pieces(text: str, size: int) -> list[str]:
    if size:
        return [text[i : i + size] for i in range(0, len(text), size)]
    return re.findall(r"\s*\S+|\s+$", text)


def delta(finish: str | None = None, **fields: Json) -> Chunk:
    """Return one ordinary chunk with this delta."""
    return Chunk(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "stand-in",
            "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
        }
    )


def tool_delta(
    index: int | None = 0,
    *,
    id: str | None = None,  # noqa: A002 - the wire's own name
    name: str | None = None,
    arguments: str | None = None,
    **more: Json,
) -> Chunk:
    """Return a chunk with one piece of one tool call; fields that are None are left out."""
    function = {k: v for k, v in {"name": name, "arguments": arguments}.items() if v is not None}
    entry: dict[str, Json] = {"type": "function", "function": function, **more}
    if index is not None:
        entry["index"] = index
    if id is not None:
        entry["id"] = id
    return delta(tool_calls=[entry])


def stream(
    *ops: Op,
    finish: str | None = "stop",
    usage: tuple[int, ...] | None = AUTO,
    done: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Return a stream of these ops, closed by a finish reason, usage and `[DONE]` as asked."""
    tail: list[Op] = []
    if finish is not None:
        tail.append(delta(finish=finish))
    if usage is not None:
        tail.append(UsageHere(usage, sum(_chars(op) for op in ops)))
    if done:
        tail.append(Chunk("[DONE]"))
    return Answer((*ops, *tail), headers=headers or {})


def _chars(op: Op) -> int:
    if isinstance(op, Chunk) and isinstance(op.data, dict) and op.data.get("choices"):
        return sum(len(json.dumps(v)) for v in op.data["choices"][0].get("delta", {}).values() if v)
    return 0


def say(
    text: str,
    *,
    think: str = "",
    think_field: str = "reasoning_content",
    usage: tuple[int, ...] | None = AUTO,
    finish: str | None = "stop",
    piece: int = 0,
    pause_s: float = 0.0,
    done: bool = True,
) -> Answer:
    """Return an answer that says `text` (in pieces of `piece` characters, or in words), after thinking `think`."""
    ops: list[Op] = [delta(role="assistant", content="")]
    for key, whole in ((think_field, think), ("content", text)):
        for part in _pieces(whole, piece):
            ops.append(delta(**{key: part}))
            if pause_s:
                ops.append(Wait(pause_s))
    return stream(*ops, finish=finish, usage=usage, done=done)


def calls(
    wanted: Iterable[tuple[str, Mapping[str, Json] | str]],
    *,
    text: str = "",
    think: str = "",
    ids: Sequence[str] | None = None,
    usage: tuple[int, ...] | None = AUTO,
    piece: int = 9,
    pause_s: float = 0.0,
    finish: str | None = "tool_calls",
) -> Answer:
    """Return an answer that calls these tools, each a name and its arguments (a mapping, or text that need not be JSON)."""
    ops: list[Op] = [
        op
        for op in say(text, think=think, pause_s=pause_s).ops
        if not (isinstance(op, Chunk) and (op.data == "[DONE]" or _finished(op)))
        and not isinstance(op, UsageHere)
    ]
    for index, (name, arguments) in enumerate(wanted):
        call_id = ids[index] if ids is not None else f"call_{next(_ids)}"
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        ops.append(tool_delta(index, id=call_id, name=name, arguments=""))
        for part in _pieces(written, piece):
            ops.append(tool_delta(index, arguments=part))
            if pause_s:
                ops.append(Wait(pause_s))
    return stream(*ops, finish=finish, usage=usage)


def _finished(op: Chunk) -> bool:
    return isinstance(op.data, dict) and op.data["choices"][0]["finish_reason"] is not None


def call(
    name: str,
    arguments: Mapping[str, Json] | str,
    *,
    text: str = "",
    think: str = "",
    id: str | None = None,  # noqa: A002 - the wire's own name
    usage: tuple[int, ...] | None = AUTO,
    piece: int = 9,
) -> Answer:
    """Return an answer that calls one tool."""
    ids = None if id is None else [id]
    return calls([(name, arguments)], text=text, think=think, ids=ids, usage=usage, piece=piece)


def status(
    code: int,
    body: Json = None,
    *,
    headers: Mapping[str, str] | None = None,
    content_type: str = "",
) -> Answer:
    """Return an error answer; a `str` body is sent unchanged, anything else as JSON."""
    if body is None:
        body = {"error": {"message": f"status {code}", "type": "error"}}
    text = body if isinstance(body, str) else json.dumps(body)
    kind = content_type or ("text/plain" if isinstance(body, str) else "application/json")
    return Answer((Raw(text.encode()),), status=code, headers=headers or {}, content_type=kind)


def reply(body: Json) -> Answer:
    """Return an ordinary JSON answer with status 200."""
    return status(200, body)


def raw(*parts: bytes) -> Answer:
    """Return an answer of exactly these bytes, head included; then the connection is closed."""
    return Answer((*(Raw(part) for part in parts), Drop()), bare=True)


def cut(answer: Answer, n_chunks: int, *then: Op) -> Answer:
    """Return `answer` with everything after its first `n_chunks` chunks replaced by `then`."""
    kept: list[Op] = []
    seen = 0
    for op in answer.ops:
        if isinstance(op, Chunk):
            if seen == n_chunks:
                break
            seen += 1
        kept.append(op)
    return replace(answer, ops=(*kept, *then))


_LONG = "This sentence is being written when something happens to it."


def drop_after(n_chunks: int, answer: Answer | None = None, *, reset: bool = False) -> Answer:
    """Return an answer whose connection breaks after so many chunks."""
    return cut(answer or say(_LONG), n_chunks, Drop(reset))


def drop(*, reset: bool = True) -> Answer:
    """Return an answer whose connection breaks before its first byte."""
    return Answer(before=(Drop(reset),))


def stall(n_chunks: int = 0, answer: Answer | None = None) -> Answer:
    """Return an answer of headers and `n_chunks` chunks, then silence."""
    return cut(answer or say(_LONG), n_chunks, Stall())


def slow_headers() -> Answer:
    """Return an answer that never sends its status line."""
    return replace(say("late"), before=(Stall(),))


def gate(n_chunks: int, answer: Answer | None = None) -> Answer:
    """Return an answer of `n_chunks` chunks that waits until the test calls `release()`, then sends the rest."""
    whole = answer or say(_LONG)
    head = cut(whole, n_chunks)
    return replace(whole, ops=(*head.ops, Gate(), *whole.ops[len(head.ops) :]))


# -- what no server should be sent -------------------------------------------------------------------------------


def sequence_fault(
    messages: Sequence[Mapping[str, Json]], *, user_after_tool: bool = True
) -> str | None:
    """Return what a strict server would refuse in this list of messages; None if nothing.

    `user_after_tool`: a user message may follow a tool result, as everywhere but at Mistral's.
    """
    open_ids: list[str] = []
    for position, message in enumerate(messages):
        role = message.get("role")
        where = f"message {position} ({role})"
        if any(value is None for value in message.values()):
            return f"{where}: null is not allowed"
        if role not in {"system", "user", "assistant", "tool"}:
            return f"{where}: unknown role"
        if role == "system" and position:
            return f"{where}: System message must be at the beginning."
        if open_ids and role != "tool":
            return f"{where}: tool_call_ids did not have response messages: {open_ids}"
        if role == "tool":
            if message.get("tool_call_id") not in open_ids:
                return f"{where}: no call has this tool_call_id: {message.get('tool_call_id')}"
            open_ids.remove(message["tool_call_id"])
        before = messages[position - 1].get("role") if position else None
        if role == "user" and (before == "user" or (before == "tool" and not user_after_tool)):
            return f"{where}: Unexpected role 'user' after role '{before}'"
        if role == "assistant":
            if before in {"assistant", "system", None}:
                return f"{where}: Unexpected role 'assistant' after role '{before}'"
            open_ids = [entry["id"] for entry in message.get("tool_calls", [])]
            if len(set(open_ids)) != len(open_ids) or not all(open_ids):
                return f"{where}: tool call ids are empty or repeat"
            for entry in message.get("tool_calls", []):
                try:
                    json.loads(entry["function"]["arguments"])
                except ValueError:
                    return f"{where}: arguments are not JSON"
            if not open_ids and not message.get("content"):
                return f"{where}: must not be empty"
        elif not message.get("content") and role != "tool":
            return f"{where}: text content is empty"
    if open_ids:
        return f"tool_call_ids did not have response messages: {open_ids}"
    if messages and messages[-1]["role"] not in {"user", "tool"}:
        return "Expected last role User or Tool"
    return None


def strict(request: Request) -> Answer | None:
    """Check requests for `ChatServer(check=strict)`: refuse with 400 what `sequence_fault` finds."""
    fault = sequence_fault(request.messages)
    return None if fault is None else status(400, {"error": {"message": fault, "type": "strict"}})
