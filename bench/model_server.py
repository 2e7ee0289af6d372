"""A chat-completions server for measurements, in a process of its own: `python -m bench.model_server`.

It prints its base URL. The last user message says what it answers: `burst 2000` sends so many tokens as fast as the
socket takes them, `pace 200 5000` sends 5,000 at 200 a second. One token is one event. `read 40` asks for the notes
forty times, a step each, and then answers with forty tokens.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from bench.answers import tokens
from bench.long_session import NOTES

_ORDER = re.compile(r"(?:burst|pace (?P<pace>\d+)|(?P<read>read)) (?P<n>\d+)")


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    body = {
        "id": "b",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _usage(n_in: int, n_out: int) -> bytes:
    usage = {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out}
    body: dict[str, Any] = {"id": "b", "choices": [], "usage": usage}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _order(body: dict[str, Any]) -> re.Match[str] | None:
    """Return the newest order of the user; None if there is none."""
    for message in reversed(body["messages"]):
        if message["role"] == "user":
            # The program's own markers may stand beside the order, so it is searched for and not split off.
            found = list(_ORDER.finditer(json.dumps(message.get("content"))))
            if found:
                return found[-1]
    return None


def _results(body: dict[str, Any]) -> int:
    """Return how many results came since the user's last message."""
    n = 0
    for message in reversed(body["messages"]):
        if message["role"] == "user" and _ORDER.search(json.dumps(message.get("content"))):
            break
        n += message["role"] == "tool"
    return n


def _read(n: int) -> dict[str, Any]:
    function = {"name": "ReadFile", "arguments": json.dumps({"path": NOTES})}
    return {"tool_calls": [{"index": 0, "id": f"c{n}", "type": "function", "function": function}]}


async def _answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    order = _order(body)
    n_tokens = int(order["n"]) if order is not None else 10
    finish = "stop"
    if order is not None and order["read"] and (done := _results(body)) < n_tokens:
        events, finish = [_event(_read(done))], "tool_calls"
    else:
        events = [_event({"content": piece}) for piece in tokens(n_tokens)]
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    if order is None or order["pace"] is None:
        for start in range(0, len(events), 50):
            writer.write(b"".join(_chunked(event) for event in events[start : start + 50]))
            await writer.drain()
    else:
        loop = asyncio.get_running_loop()
        began, per_second = loop.time(), float(order["pace"])
        for n, event in enumerate(events):
            if writer.is_closing():
                return
            writer.write(_chunked(event))
            await asyncio.sleep(max(0.0, began + (n + 1) / per_second - loop.time()))
    n_in = len(json.dumps(body)) // 4
    tail = _event({}, finish) + _usage(n_in, n_tokens) + b"data: [DONE]\n\n"
    writer.write(_chunked(tail) + b"0\r\n\r\n")
    await writer.drain()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            if first.startswith("GET"):
                found = b'{"object":"list","data":[{"id":"bench","object":"model"}]}'
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(found), found)
                )
                await writer.drain()
            else:
                await _answer(json.loads(raw), writer)
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        writer.close()


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
