"""A chat-completions server for measurements, in a process of its own: `python -m bench.model_server [SECONDS]`.

It prints its base URL. The last user message says what it answers: `burst 2000` sends so many tokens as fast as the
socket takes them, `pace 200 5000` sends 5,000 at 200 a second. One token is one event. `read 40` asks for the notes
forty times, a step each, and then answers with forty tokens. `steps shell 30` asks for thirty steps with one call each, of
a kind in `_CALLS`, and ends with a word; `GET /steps` has the milliseconds between each of these answers and the
request after it; with SECONDS it waits so long before each of these answers, as a model does. `agents 5 pace 200 3000` has five sub-agents stream 3,000 tokens each, and then answers with ten tokens.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.answers import tokens
from bench.long_session import NOTES

VALUE = "value.txt"
"""The file that `steps replace` edits; it holds "value 0"."""

DONE = "All steps are done."
"""The text of the answer after the last step."""
_ORDER = re.compile(
    r"(?:agents (?P<agents>\d+) )?(?:burst|pace (?P<pace>\d+)|(?P<read>read)|steps (?P<call>\w+)) (?P<n>\d+)"
)
_WRITTEN = "a line that the agent writes\n" * 40
_CALLS: dict[str, dict[str, Callable[[int], dict[str, Any]]]] = {
    "shell": dict.fromkeys(("Shell", "bash"), lambda n: {"command": f"true {n}"}),
    "read": {
        "ReadFile": lambda n: {"path": NOTES, "line_offset": n % 7 + 1},
        "read": lambda n: {"path": NOTES, "offset": n % 7 + 1},
        "read_file": lambda n: {"path": NOTES, "offset": n % 7 + 1},
    },
    "write": dict.fromkeys(
        ("WriteFile", "write", "write_file"),
        lambda n: {"path": "new.txt", "content": f"{n}\n{_WRITTEN}"},
    ),
    "replace": {
        "StrReplaceFile": lambda n: {
            "path": VALUE,
            "edit": [{"old": _value(n), "new": _value(n + 1)}],
        },
        "edit": lambda n: {
            "path": VALUE,
            "edits": [{"oldText": _value(n), "newText": _value(n + 1)}],
        },
        "edit file_path": lambda n: {
            "file_path": VALUE,
            "old_string": _value(n),
            "new_string": _value(n + 1),
        },
    },
    "grep": dict.fromkeys(("Grep", "grep"), lambda n: {"pattern": f"line of notes|{n}{n}{n}{n}"}),
    "glob": {"Glob": lambda n: {"pattern": f"{{notes,{n}}}.txt"}},
    "two": {
        "Shell": lambda n: {
            "command": f"echo {n} >> part000/file0.py; echo {n} > part001/file100.py"
        },
        "bash": lambda n: {
            "command": f"echo {n} >> part000/file0.py; echo {n} > part001/file100.py"
        },
    },
}
"""The arguments of each kind of call by the name of the tool, from the number of the step. Where two programs have a tool of the same
name, one of its parameters stands behind it."""


def _value(n: int) -> str:
    return f"value {n % 2}\n"


_steps: list[float] = []
"""The milliseconds of the steps of the newest order."""
_answered_at = [0.0]
_thinks_s = [0.0]


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
    # The program asks about a call that is made three times in a row, so every other one begins a line later.
    arguments = json.dumps({"path": NOTES, "offset": n % 2 + 1})
    function = {"name": "ReadFile", "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": f"c{n}", "type": "function", "function": function}]}


def _agents(order: re.Match[str]) -> dict[str, Any]:
    """Return the calls that start the sub-agents of an order."""
    count = int(order["agents"])
    prompt = order[0].partition(f"agents {count} ")[2]
    arguments = [
        {"description": f"Read part {n}", "prompt": prompt, "kind": "explore"} for n in range(count)
    ]
    calls = [
        {
            "index": n,
            "id": f"a{n}",
            "type": "function",
            "function": {"name": "Agent", "arguments": json.dumps(each)},
        }
        for n, each in enumerate(arguments)
    ]
    return {"tool_calls": calls}


async def _answer(body: dict[str, Any], asked_at: float, writer: asyncio.StreamWriter) -> None:
    order = _order(body)
    n_tokens = int(order["n"]) if order is not None else 10
    # A request without tools is about something else, such as the title of the session.
    if order is not None and order["call"] and body.get("tools"):
        await _step(order, body, asked_at, writer)
        return
    finish, pace = "stop", order["pace"] if order is not None else None
    if order is not None and order["agents"]:
        pace, n_tokens = None, 10
        events = [_event({"content": piece}) for piece in tokens(n_tokens)]
        if not _results(body):
            events, finish = [_event(_agents(order))], "tool_calls"
    elif order is not None and order["read"] and (done := _results(body)) < n_tokens:
        events, finish = [_event(_read(done))], "tool_calls"
    else:
        events = [_event({"content": piece}) for piece in tokens(n_tokens)]
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    if pace is None:
        for start in range(0, len(events), 50):
            writer.write(b"".join(_chunked(event) for event in events[start : start + 50]))
            await writer.drain()
    else:
        loop = asyncio.get_running_loop()
        began, per_second = loop.time(), float(pace)
        for n, event in enumerate(events):
            if writer.is_closing():
                return
            writer.write(_chunked(event))
            await asyncio.sleep(max(0.0, began + (n + 1) / per_second - loop.time()))
    n_in = len(json.dumps(body)) // 4
    tail = _event({}, finish) + _usage(n_in, n_tokens) + b"data: [DONE]\n\n"
    writer.write(_chunked(tail) + b"0\r\n\r\n")
    await writer.drain()


async def _step(
    order: re.Match[str], body: dict[str, Any], asked_at: float, writer: asyncio.StreamWriter
) -> None:
    """Answer with the next call of the order, or with a word after the last, and note when."""
    await asyncio.sleep(_thinks_s[0])
    done, n_steps = _results(body), int(order["n"])
    if done == 0:
        _steps.clear()
    else:
        _steps.append((asked_at - _answered_at[0]) * 1000)
    events, finish = [_event({"content": DONE})], "stop"
    offered = {
        tool["function"]["name"]: tool["function"]["parameters"].get("properties", {})
        for tool in body.get("tools", ())
    }
    for names, arguments in _CALLS[order["call"]].items():
        name, _, parameter = names.partition(" ")
        known = offered.get(name)
        if known is not None and (not parameter or parameter in known) and done < n_steps:
            function = {"name": name, "arguments": json.dumps(arguments(done))}
            # Vibe takes a key that it has seen in an earlier turn for the same call.
            key = f"c{len(body['messages'])}"
            call = {"index": 0, "id": key, "type": "function", "function": function}
            events, finish = [_event({"tool_calls": [call]})], "tool_calls"
    n_in = len(json.dumps(body)) // 4
    events += [_event({}, finish) + _usage(n_in, 10) + b"data: [DONE]\n\n"]
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        + _chunked(b"".join(events))
        + b"0\r\n\r\n"
    )
    await writer.drain()
    _answered_at[0] = time.perf_counter()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            asked_at = time.perf_counter()
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            if first.startswith("GET"):
                found = b'{"object":"list","data":[{"id":"bench","object":"model"}]}'
                if first.split()[1].endswith("/steps"):
                    found = json.dumps(_steps).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(found), found)
                )
                await writer.drain()
            else:
                await _answer(json.loads(raw), asked_at, writer)
    except (asyncio.IncompleteReadError, ConnectionError, OSError):
        writer.close()


async def main() -> None:
    """Serve until killed."""
    _thinks_s[:] = map(float, sys.argv[1:2] or ["0"])
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
