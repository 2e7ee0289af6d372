"""A chat-completions server on a real socket whose every answer is scripted.

It speaks HTTP/1.1 and server-sent events over asyncio streams alone, records what it was sent, and can misbehave in
every way a network or a provider can. Run it by hand with `python tests/support/chat_server.py SCRIPT.toml [PORT]`.

    async with ChatServer() as server:
        server.script(call("ReadFile", {"path": "a.py"}), say("It is empty.", usage=(120, 4)))
        ... talk to server.base_url ...
        assert server.requests[1].messages[-1]["role"] == "tool"

In tests without an event loop (pty tests) use `with ChatServerThread() as server:`, which has the same names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
import threading
import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from kimi_tui.prompts import prompt
from support.chat_answers import (
    AUTO,
    Answer,
    Chunk,
    Drop,
    Gate,
    Json,
    Op,
    Raw,
    Request,
    Responder,
    Stall,
    UsageHere,
    Wait,
    call,
    calls,
    cut,
    delta,
    drop,
    drop_after,
    gate,
    raw,
    reply,
    say,
    sequence_fault,
    slow_headers,
    stall,
    status,
    stream,
    strict,
    tool_delta,
)

__all__ = [
    "AUTO",
    "Answer",
    "ChatServer",
    "ChatServerThread",
    "Chunk",
    "Drop",
    "Gate",
    "Raw",
    "Request",
    "Responder",
    "Stall",
    "UsageHere",
    "Wait",
    "call",
    "calls",
    "cut",
    "delta",
    "drop",
    "drop_after",
    "gate",
    "raw",
    "reply",
    "say",
    "sequence_fault",
    "slow_headers",
    "stall",
    "status",
    "stream",
    "strict",
    "tool_delta",
]

# -- the server --------------------------------------------------------------------------------------------------


class ChatServer:
    """A scripted server. Answers are used up in order; a request too many gets a 418 that says so.

    Args:
        check: asked before every chat request; an answer from it takes the place of the scripted one, which stays.
        models: what `/v1/models` lists; strings or whole objects.
        chunked: send bodies in HTTP chunks, else up to the end of the connection.
        port: 0 for any free one.
    """

    def __init__(
        self,
        *,
        check: Responder | None = None,
        models: Sequence[str | Mapping[str, Json]] = ("stand-in",),
        chunked: bool = True,
        port: int = 0,
        loop_forever: bool = False,
    ) -> None:
        self.requests: list[Request] = []
        """The chat requests, in order."""
        self.other_requests: list[Request] = []
        """All other requests."""
        self.title: Answer | None = None
        """The answer with the title of a session; without one, asking for a title fails."""
        self.title_answers: Callable[[Request], Answer] | None = None
        """Answers requests for a title instead of `title`."""
        self.title_requests: list[Request] = []
        self.models = models
        self.chunked = chunked
        self.check = check
        self.refused: list[str] = []
        """The faults for which `check` refused requests."""
        self.at_gate = asyncio.Event()
        self.client_gone = asyncio.Event()
        """This event is set when a client closes its connection in mid-answer."""
        self.n_connections = 0
        self.port = port
        self._port = port
        self._loop_forever = loop_forever
        self._answers: deque[Answer | Responder] = deque()
        self._routes: dict[tuple[str, str], Answer | Responder] = {}
        self._gate = asyncio.Event()
        self._news = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # Methods and properties for tests follow.

    @property
    def origin(self) -> str:
        """Return `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """Return the base URL for a client."""
        return f"{self.origin}/v1"

    @property
    def left(self) -> int:
        """Return how many scripted answers have not been used."""
        return len(self._answers)

    def script(self, *answers: Answer | Responder) -> None:
        """Queue answers; a function is called with the request and gives the answer."""
        self._answers.extend(answers)

    def route(self, method: str, path: str, answer: Answer | Responder) -> None:
        """Always answer this path so."""
        self._routes[method, path] = answer

    def release(self) -> None:
        """Let an answer that waits at a gate go on."""
        self._gate.set()

    async def received(self, n: int) -> None:
        """Wait until `n` chat requests have arrived."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.requests) >= n)

    async def __aenter__(self) -> ChatServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def start_again(self) -> None:
        """Listen on the same port as before."""
        self._port = self.port
        await self.start()

    async def stop(self) -> None:
        """Close everything, running answers too."""
        if self._server is not None:
            self._server.close()
        # A connection that was just accepted has its task after a few rounds of the event loop.
        for _ in range(5):
            await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    # This serves one connection.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.n_connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                answer = await self._choose(request)
                if not await self._answer(request, answer, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_gone.set()
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                writer.close()
                await writer.wait_closed()

    async def _choose(self, request: Request) -> Answer:
        path = request.path.partition("?")[0]
        routed = self._routes.get((request.method, request.path)) or self._routes.get(
            (request.method, path)
        )
        if request.method == "POST" and path.endswith("/chat/completions"):
            if _asks_for_title(request):
                # Titles have answers of their own: a title is asked for after the first turn of any session.
                self.title_requests.append(request)
                if self.title_answers is not None:
                    return self.title_answers(request)
                return self.title or status(404, {"error": {"message": "no title here"}})
            async with self._news:
                self.requests.append(request)
                self._news.notify_all()
            if self.check is not None and (refusal := self.check(request)) is not None:
                self.refused.append(
                    "".join(op.data.decode() for op in refusal.ops if isinstance(op, Raw))
                )
                return refusal
            if routed is None:
                return self._next_answer(request)
        else:
            self.other_requests.append(request)
        if routed is not None:
            answer = routed(request) if callable(routed) else routed
            if answer is not None:
                return answer
        if request.method == "GET" and path.endswith("/models"):
            return reply({"object": "list", "data": [_model(entry) for entry in self.models]})
        return status(404, {"error": {"message": f"nothing at {path}", "type": "not_found"}})

    def _next_answer(self, request: Request) -> Answer:
        if not self._answers:
            return status(418, {"error": {"message": "the script has no more answers"}})
        chosen = self._answers.popleft()
        if self._loop_forever:
            self._answers.append(chosen)
        answer = chosen(request) if callable(chosen) else chosen
        assert answer is not None
        return answer

    async def _answer(
        self,
        request: Request,
        answer: Answer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Send one answer; return False if the connection is over."""
        length = len(request.raw)
        for op in answer.before:
            if not await self._do(op, reader, writer, length, chunked=False):
                return False
        if not answer.bare:
            writer.write(self._head(answer))
        for op in answer.ops:
            if not await self._do(op, reader, writer, length, self.chunked and not answer.bare):
                return False
        if self.chunked and not answer.bare:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return self.chunked

    def _head(self, answer: Answer) -> bytes:
        framing = "Transfer-Encoding: chunked" if self.chunked else "Connection: close"
        lines = [
            f"HTTP/1.1 {answer.status} Status",
            f"Content-Type: {answer.content_type}",
            framing,
        ]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _do(
        self,
        op: Op,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request_length: int,
        chunked: bool,
    ) -> bool:
        data = b""
        match op:
            case Chunk(text, event):
                written = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
                named = f"event: {event}\n" if event else ""
                data = f"{named}data: {written}\n\n".encode("utf-8", "surrogatepass")
            case Raw(data):
                pass
            case UsageHere():
                data = _usage_event(op, request_length)
            case Wait(seconds):
                await writer.drain()
                await asyncio.sleep(seconds)
            case Gate():
                await writer.drain()
                self.at_gate.set()
                await self._open_or_gone(reader)
            case Stall():
                await writer.drain()
                self.at_gate.set()
                await reader.read(1)
                raise ConnectionResetError
            case Drop(reset):
                await writer.drain()
                if reset:
                    sock: socket.socket = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    writer.transport.abort()
                return False
        if data:
            writer.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
            await writer.drain()
        return True

    async def _open_or_gone(self, reader: asyncio.StreamReader) -> None:
        opened = asyncio.ensure_future(self._gate.wait())
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({opened, gone}, return_when=asyncio.FIRST_COMPLETED)
        left = gone.done()
        for waiter in (opened, gone):
            waiter.cancel()
        await asyncio.gather(opened, gone, return_exceptions=True)
        self._gate.clear()
        if left:
            raise ConnectionResetError


def _asks_for_title(request: Request) -> bool:
    # The prompt is compared with the bytes of the request, which may be no JSON.
    return json.dumps(prompt("title_system"))[1:-1].encode() in request.raw[:2_000]


def _model(entry: str | Mapping[str, Json]) -> Mapping[str, Json]:
    return (
        {"id": entry, "object": "model", "owned_by": "tests"} if isinstance(entry, str) else entry
    )


def _usage_event(op: UsageHere, request_length: int) -> bytes:
    if op.usage == AUTO:
        numbers: tuple[int, ...] = (request_length // 4, max(1, op.output_chars // 4))
    else:
        numbers = op.usage
    usage: dict[str, Json] = {
        "prompt_tokens": numbers[0],
        "completion_tokens": numbers[1],
        "total_tokens": numbers[0] + numbers[1],
    }
    if len(numbers) > 2:
        usage["prompt_tokens_details"] = {"cached_tokens": numbers[2]}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage}
    return f"data: {json.dumps(body)}\n\n".encode()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = await reader.readline()
        if not line:
            return None
        head += line
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    raw_body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, raw_body)


class ChatServerThread:
    """A `ChatServer` in a thread of its own, for tests that have no event loop."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: ChatServer | None = None

    def __enter__(self) -> ChatServerThread:
        self._thread.start()
        self._server = self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> ChatServer:
        server = ChatServer(**self._options)
        await server.start()
        return server

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    @property
    def server(self) -> ChatServer:
        """Return the server itself; use it only in its own thread, except to read lists."""
        assert self._server is not None
        return self._server

    @property
    def base_url(self) -> str:
        """Return the base URL for a client."""
        return self.server.base_url

    @property
    def requests(self) -> list[Request]:
        """Return the chat requests so far."""
        return list(self.server.requests)

    @property
    def other_requests(self) -> list[Request]:
        """Return all other requests so far."""
        return list(self.server.other_requests)

    def script(self, *answers: Answer | Responder) -> None:
        """Queue answers."""
        self._loop.call_soon_threadsafe(self.server.script, *answers)

    def release(self) -> None:
        """Open the gate."""
        self._loop.call_soon_threadsafe(self.server.release)

    def wait_at_gate(self) -> None:
        """Wait until an answer has reached a gate or a stall."""
        asyncio.run_coroutine_threadsafe(self.server.at_gate.wait(), self._loop).result(20)


# -- by hand -----------------------------------------------------------------------------------------------------


def from_toml(path: Path) -> list[Answer]:
    """Return answers from a file of `[[answer]]` tables.

    A table has think, text, calls (name, arguments), usage and pause_s, or status with body and headers;
    `drop_after` and `stall_after` cut an answer short.
    """
    answers: list[Answer] = []
    for entry in tomllib.loads(path.read_text("utf-8"))["answer"]:
        if "status" in entry:
            answers.append(status(entry["status"], entry.get("body"), headers=entry.get("headers")))
            continue
        common: dict[str, Any] = {
            "think": entry.get("think", ""),
            "usage": tuple(entry["usage"]) if "usage" in entry else AUTO,
            "pause_s": entry.get("pause_s", 0.0),
        }
        wanted = [(one["name"], one.get("arguments", {})) for one in entry.get("calls", [])]
        text = entry.get("text", "")
        answer = calls(wanted, text=text, **common) if wanted else say(text, **common)
        if "drop_after" in entry:
            answer = drop_after(entry["drop_after"], answer)
        if "stall_after" in entry:
            answer = stall(entry["stall_after"], answer)
        answers.append(answer)
    return answers


async def _serve_file(path: Path, port: int) -> None:
    async with ChatServer(port=port, loop_forever=True) as server:
        server.script(*from_toml(path))
        print(server.base_url, flush=True)
        shown = 0
        while True:
            await server.received(shown + 1)
            for request in server.requests[shown:]:
                last = json.dumps(request.messages[-1], ensure_ascii=False)
                print(f"{len(request.messages)} messages, last {last[:160]}", flush=True)
            shown = len(server.requests)


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3}:
        sys.exit("usage: chat_server.py SCRIPT.toml [PORT]")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_file(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 0))
