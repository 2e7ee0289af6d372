from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from pathlib import Path

import h11
import pytest
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from h11._util import LocalProtocolError
from hypothesis import example, given
from hypothesis import strategies as st

from kimi_tui.llm import transport
from kimi_tui.llm.errors import APIConnectionError
from kimi_tui.llm.transport import ChunkedBody, OpenAIClient

_CHUNK = st.one_of(
    st.binary(min_size=1, max_size=40).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data)),
    st.just(b"0003;name=value\r\nabc\r\n"),
    st.sampled_from(
        [b"2\r\nabc", b"0x1\r\na\r\n", b"-1\r\n", b"\r\n", b"3 \r\nabc\r\n", b"1\na\r\n"]
    ),
)


def outcome(reader: ChunkedReader | ChunkedBody, pieces: list[bytes]) -> tuple[bytes, str]:
    """Return the body that was read, and how it ended."""
    buffer, body = ReceiveBuffer(), b""
    for piece in pieces:
        buffer += piece
        try:
            while (event := reader(buffer)) is not None:
                if isinstance(event, h11.EndOfMessage):
                    return body, f"{list(event.headers)} {bytes(buffer)!r}"
                body += event.data
        except LocalProtocolError as error:
            return body, str(error)
    return body, "waits"


@given(st.lists(_CHUNK, max_size=8), st.booleans(), st.lists(st.integers(0, 400), max_size=12))
@example([b"3\r\nabc\r\n", b"1\r\na\r\n"], True, [7, 8, 9])
def test_a_body_is_what_h11_reads_wherever_it_is_cut(
    chunks: list[bytes], ends: bool, places: list[int]
) -> None:
    data = b"".join(chunks) + b"0\r\nx: y\r\n\r\nHTTP/1.1" * ends
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    assert outcome(ChunkedBody(), pieces) == outcome(ChunkedReader(), pieces)


def test_the_http_library_hands_on_all_chunks_that_came_at_once() -> None:
    assert transport.RestrictedClient
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"5\r\ntoken\r\n" * 300
        + b"5\r\nto"
    )
    events = [client.next_event() for _ in range(4)]
    assert [bytes(event.data) for event in events if isinstance(event, h11.Data)] == [
        b"token" * 300,
        b"to",
    ]
    client.receive_data(b"ken\r\n5\r\ntoken\r\n0\r\n\r\n")
    rest = [client.next_event() for _ in range(3)]
    assert [type(event) for event in rest] == [h11.Data, h11.Data, h11.EndOfMessage]


def test_a_body_that_breaks_off_is_said_to() -> None:
    with pytest.raises(h11.RemoteProtocolError, match="incomplete chunked read"):
        ChunkedBody().read_eof()


CLIENT = """
import sys
from kimi_tui.llm.transport import OpenAIClient
OpenAIClient("http://127.0.0.1:1/v1", "")
assert "openai.types.responses.response" not in sys.modules
assert "openai.types.chat.chat_completion" not in sys.modules
assert not [name for name in sys.modules if name.partition(".")[0] == "aiohttp"]
from openai._vendor.httpx_aiohttp import Httpx2AiohttpClient
import openai
assert issubclass(Httpx2AiohttpClient, openai.DefaultAsyncHttpxClient.__mro__[1])
from openai.types.responses import Response
assert Response.model_fields
class Named(Response):
    pass
assert openai.pydantic_function_tool(Named)["function"]["name"] == "Named"
"""
SILENT = """
import logging, sys
from pathlib import Path
from kimi_tui.llm.transport import OpenAIClient
from kimi_tui.logging_setup import start_logging
start_logging(Path(sys.argv[1]))
OpenAIClient("http://127.0.0.1:1/v1", "")
logging.getLogger("openai").debug("a whole request")
"""


@pytest.mark.exhaustive
def test_the_client_is_made_without_shapes_that_nobody_asks_for() -> None:
    subprocess.run([sys.executable, "-c", CLIENT], check=True, timeout=30)


@pytest.mark.exhaustive
def test_what_the_library_would_log_goes_neither_to_the_terminal_nor_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    log = tmp_path / "log"
    command = [sys.executable, "-c", SILENT, str(log)]
    ended = subprocess.run(command, check=True, timeout=30, capture_output=True)
    assert (ended.stdout, ended.stderr, log.read_bytes()) == (b"", b"", b"")


async def test_a_further_request_differs_from_the_first_one_only_in_its_body() -> None:
    heads: list[list[str]] = []
    bodies: list[bytes] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n"):
                length = next(line for line in head if line.lower().startswith("content-length"))
                bodies.append(await reader.readexactly(int(length.partition(":")[2])))
                heads.append(sorted(line for line in head if line != length))
                status = "400 Bad Request" if len(heads) == 1 else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = OpenAIClient(f"http://127.0.0.1:{port}/v1", "a key", {"X-Own": "yes"})
    sent = [b"first", b"longer than that", b"x" * 300_000, b"last"]
    statuses: list[int] = []
    for body in sent:
        response = await client.post(body)
        await response.aread()
        statuses.append(response.status_code)
    await client.aclose()
    await ended.wait()
    server.close()
    assert statuses == [400, 200, 200, 200]
    assert bodies == sent
    assert heads[1:] == heads[:1] * 3
    assert {"authorization: bearer a key", "x-own: yes"} <= {line.lower() for line in heads[0]}
    assert "POST /v1/chat/completions HTTP/1.1" in heads[0]


async def test_a_further_request_fails_as_the_first_one_does() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    first, second = (OpenAIClient(f"http://127.0.0.1:{port}/v1", "") for _ in range(2))
    await (await second.post(b"")).aread()
    server.close()
    await server.wait_closed()
    failures: list[str] = []
    for client in (first, second):
        with pytest.raises(APIConnectionError) as failure:
            await client.post(b"")
        failures.append(f"{failure.value.message} {failure.value.advice}")
        await client.aclose()
    assert failures[0] == failures[1]
    assert failures[0].endswith("Check that the server is running.")
