"""The HTTP client under every request: it follows no redirect, and reads no more of an error than can be shown.

Apart from `transport` because its class needs the HTTP library at import: import this module late.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from kimi_tui import __version__
from kimi_tui.llm import chunked_body
from kimi_tui.llm.transport import NO_HEADERS, host_of, is_loopback

USER_AGENT = f"kimi-tui/{__version__}"
MAX_ERROR_BYTES = 256 * 1024
# The library adds others from the environment, some of them undocumented.
_HEADERS = frozenset(
    (
        *("host", "accept", "accept-encoding", "authorization", "connection"),
        *("content-length", "content-type", "transfer-encoding", "user-agent"),
    )
)
_ERROR_BODY_S = 10.0
_SLICE_BYTES = 64 * 1024
chunked_body.install()


class CarefulClient(httpx2.AsyncClient):
    """An HTTP client that a hostile or broken server can neither redirect nor flood.

    Args:
        base_url: the one server that is asked.
        own_headers: the user's, for every request to its origin.
        connect_s: seconds for a connection.
        read_s: seconds of silence in an answer.
    """

    def __init__(
        self,
        base_url: str,
        own_headers: Mapping[str, str] = NO_HEADERS,
        *,
        connect_s: float,
        read_s: float,
    ) -> None:
        server = urlsplit(base_url)
        self._origin = httpx2.URL(base_url)
        self._own_headers = own_headers
        is_local = is_loopback(host_of(base_url))
        super().__init__(
            # A local server needs no authorities, which take 2 MB; a context without any trusts nobody.
            verify=not (is_local and server.scheme == "http")
            or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            follow_redirects=False,
            # A proxy named in the environment is the user's own setting, but never meant for this machine.
            trust_env=not is_local,
            timeout=httpx2.Timeout(connect=connect_s, read=read_s, write=read_s, pool=connect_s),
            limits=httpx2.Limits(
                max_connections=20, max_keepalive_connections=5, keepalive_expiry=30
            ),
            headers={"User-Agent": USER_AGENT},
        )

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Send, and give an error back with at most `MAX_ERROR_BYTES` of its body, already read."""
        options["follow_redirects"] = False
        for name in [name for name in request.headers if name.lower() not in _HEADERS]:
            del request.headers[name]
        there, ours = request.url, self._origin
        if (there.scheme, there.host, there.port) == (ours.scheme, ours.host, ours.port):
            request.headers.update(self._own_headers)
        if len(request.content) > _SLICE_BYTES:
            request.stream = _Slices(request.content)
        response = await super().send(request, stream=True, **options)
        if response.status_code >= 300:
            return await _cut(response)
        if not stream:
            await response.aread()
        return response


class _Slices(httpx2.AsyncByteStream):
    """A long body (images) piece by piece: written at once, the event loop would move what is left of it again and again."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _SLICE_BYTES):
            yield self._body[start : start + _SLICE_BYTES]


async def _cut(response: httpx2.Response) -> httpx2.Response:
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            async for piece in response.aiter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size >= MAX_ERROR_BYTES:
                    break
    except (httpx2.HTTPError, TimeoutError):
        pass  # the status alone says enough
    finally:
        await response.aclose()
    kept = [
        (name, value)
        for name, value in response.headers.multi_items()
        if name.lower() not in {"content-encoding", "content-length", "transfer-encoding"}
    ]
    return httpx2.Response(
        response.status_code,
        headers=kept,
        content=b"".join(pieces)[:MAX_ERROR_BYTES],
        request=response.request,
    )
