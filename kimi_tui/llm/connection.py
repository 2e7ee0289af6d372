"""Connections of the HTTP library on which a request leaves in one piece.

The library writes the head of a request, and then its body. Each write takes a system call and a turn of the event loop, in which
other threads may take the interpreter from it, and a server can do nothing with the head alone.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from kimi_tui.late_imports import deferred

with deferred("socksio", "anyio.streams.tls"):
    # Proxies that speak SOCKS, and TLS: each is executed with the first connection that needs it.
    import httpcore2
    import httpx2

_HELD_BYTES = 16 * 1024
"""Bytes. Less than this is held back until more is written or the answer is read."""


class OnePieceStream(httpcore2.AsyncNetworkStream):
    """A connection on which a short piece is sent together with the next one, or before the next read.

    Args:
        stream: the connection that carries the bytes.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._socket = stream.get_extra_info("socket")
        self._held = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Send what is held back, then return what arrives next; empty at the end."""
        if self._held:
            held, self._held = self._held, b""
            # A server that closes the connection early may have said why, so the library reads after such an error, too.
            with suppress(httpcore2.WriteError):
                await self._stream.write(held, timeout)
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes, after what is held back, or hold them back if they are few."""
        whole, self._held = self._held + buffer, b""
        if len(whole) < _HELD_BYTES:
            self._held = whole
        else:
            await self._stream.write(whole, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Return the connection, encrypted from now on."""
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return OnePieceStream(stream)

    def get_extra_info(self, info: str) -> Any:
        """Return a fact about the connection, as the library names it."""
        # The library asks this twice for each request, and its own stream collects all other facts for the answer.
        return self._is_readable() if info == "is_readable" else self._stream.get_extra_info(info)

    def _is_readable(self) -> bool:
        """Return whether a read would not wait; true for a closed connection, and for one that was answered ahead of the request that
        is held back here. The library uses neither for another request.
        """
        if self._held:
            return True
        descriptor = -1 if self._socket is None else self._socket.fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))


class OnePieceBackend(httpcore2.AsyncNetworkBackend):
    """Makes connections on which requests leave in one piece, out of those of the library's own backend."""

    def __init__(self) -> None:
        backend = cast("type[httpcore2.AsyncNetworkBackend]", httpcore2.AnyIOBackend)
        self._backend = backend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to a port; see the base class."""
        return OnePieceStream(
            await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        )


class OnePieceTransport(httpx2.AsyncHTTPTransport):
    """Sends requests over connections without a proxy.

    Args:
        trusted: the certificates that are trusted.
        limits: the limits of the pool of connections.
    """

    def __init__(self, trusted: ssl.SSLContext, limits: httpx2.Limits) -> None:
        super().__init__(verify=trusted, trust_env=False, limits=limits)
        # The base class makes this pool without a choice of the backend.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=OnePieceBackend(),
        )
