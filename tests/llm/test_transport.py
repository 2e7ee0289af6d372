from __future__ import annotations

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
from kimi_tui.llm.transport import ChunkedBody, RestrictedClient

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


def test_a_further_request_is_built_as_the_first_one_would_be() -> None:
    def client() -> RestrictedClient:
        return RestrictedClient("http://127.0.0.1:1/v1", connect_s=1, read_s=2)

    url, kept = "http://127.0.0.1:1/v1/chat", client()
    asked: list[tuple[str, bytes, dict[str, str]]] = [
        ("POST", b"first", {"Authorization": "a"}),
        ("POST", b"longer than that", {"Authorization": "a"}),
        ("POST", b"", {"Authorization": "a"}),
        ("POST", b"longer than that", {"Authorization": "b"}),
        ("PUT", b"x", {"Authorization": "b"}),
    ]
    for method, content, headers in asked:
        made, fresh = (
            one.build_request(method, url, content=content, headers=headers)
            for one in (kept, client())
        )
        # A request may be changed before it is sent.
        assert sorted(made.headers.raw) == sorted(fresh.headers.raw)
        assert (made.method, made.url, made.content) == (method, fresh.url, content)
        assert made.extensions == fresh.extensions
        made.headers.clear()
