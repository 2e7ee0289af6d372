from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpcore2
import httpx2
import pytest

from kimi_tui.llm.connection import OnePieceBackend, OnePieceStream
from kimi_tui.llm.transport import RestrictedClient


class RecordedStream(httpcore2.AsyncNetworkStream):
    """Notes the order of reads and writes; a write of `refuse` fails."""

    def __init__(self) -> None:
        self.seen: list[bytes | str] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.seen.append("read")
        return b"answer"

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.seen.append(buffer)
        if buffer == b"refuse":
            raise httpcore2.WriteError

    def get_extra_info(self, info: str) -> Any:
        return None


async def test_a_head_leaves_with_its_body_and_at_the_latest_before_the_answer_is_read() -> None:
    inner = RecordedStream()
    stream = OnePieceStream(inner)
    body = b"b" * 20_000
    await stream.write(b"head ")
    assert inner.seen == []
    await stream.write(body)
    assert await stream.read(100) == b"answer"
    await stream.write(b"head ")
    await stream.write(b"short")
    await stream.read(100)
    await stream.read(100)
    assert inner.seen == [b"head " + body, "read", b"head short", "read", "read"]


async def test_the_answer_is_read_also_where_the_server_takes_no_more() -> None:
    inner = RecordedStream()
    stream = OnePieceStream(inner)
    await stream.write(b"refuse")
    assert await stream.read(100) == b"answer"


async def test_a_connection_that_the_server_closed_meanwhile_is_made_anew() -> None:
    answered: list[int] = []
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(4)
            answered.append(writer.get_extra_info("peername")[1])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    async with RestrictedClient(url, connect_s=5, read_s=5) as client:
        for _ in range(2):
            response = await client.post(url, content=b"body")
            assert (response.status_code, response.content) == (200, b"ok")
            await closed.wait()
            closed.clear()
    server.close()
    assert len(set(answered)) == 2


async def test_a_request_that_was_answered_ahead_is_not_sent_before_the_next_one() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    bodies: list[list[bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append([])
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                bodies[-1].append(await reader.readexactly(4))
                # The first connection gets two answers for one request.
                writer.write(answer * (2 if len(bodies) == 1 else 1))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with RestrictedClient(url, connect_s=5, read_s=5) as client:
        for body in (b"one.", b"two.", b"tre."):
            assert (await client.post(url, content=body)).content == b"ok"
    server.close()
    assert bodies == [[b"one."], [b"tre."]]


async def test_a_closed_connection_is_readable() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    stream = await OnePieceBackend().connect_tcp(*server.sockets[0].getsockname()[:2])
    await stream.aclose()
    assert stream.get_extra_info("is_readable") is True
    server.close()


async def test_errors_of_the_network_are_the_librarys() -> None:
    async with RestrictedClient("http://127.0.0.1:9/v1", connect_s=5, read_s=5) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.post("http://127.0.0.1:9/v1", content=b"x")
