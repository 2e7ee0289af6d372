"""Fetches one page by GET: where a connection may go, and how much of an answer is read.

The name of a host is resolved once, and the connection is made to the address that was checked, with the name for TLS: a
server of names that answers differently the next time changes nothing. Each redirect is a new page, checked in the same way.
A proxy of the environment resolves names itself; here they are then resolved only to refuse those that are private, and
the proxy's own rules decide about the rest.

Nothing of the user is sent: no cookies, no credentials, no referrer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import httpcore2
import httpx2

from kimi_tui.llm.errors import LLMError, cannot_be_reached
from kimi_tui.llm.network_settings import EnvironmentProxy, proxy_to, trusted_certificates
from kimi_tui.llm.transport import USER_AGENT, tls_error
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.web.addresses import (
    BadAddress,
    IPAddress,
    PageURL,
    is_public,
    near,
    page_url,
    refuse_near,
)

MAX_BYTES = 10_000_000
"""The largest size of a body, as sent and as unpacked."""
MAX_REDIRECTS = 5
TOTAL_S = 60.0
"""Seconds for a page with all its redirects, without the time in which the user is asked."""
_CONNECT_S = 10.0
_SILENCE_S = 20.0
_RESOLVE_S = 10.0
_PROXIED_RESOLVE_S = 2.0
_ADDRESSES = 4
_PIECE_BYTES = 1 << 16
_ACCEPTED = (
    "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, "
    "application/json;q=0.8, application/pdf;q=0.7, image/*;q=0.6, */*;q=0.5"
)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer of a server.

    Attributes:
        url: the URL that it came from, after all redirects.
        status: the HTTP status.
        content_type: the media type that the server named, in lower case; empty if it named none.
        charset: the encoding that it named; empty if it named none.
        body: the bytes, unpacked.
        is_cut: whether there was more.
    """

    url: PageURL
    status: int
    content_type: str
    charset: str
    body: bytes
    is_cut: bool = False


async def system_addresses(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host, as the system resolves its name.

    Raises:
        OSError: the name is unknown.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class PageFetcher:
    """Fetches pages.

    Args:
        resolve: returns the IP addresses of a host and a port; tests give another one.
        may_connect: whether an address may be connected to; tests on this machine give another one.
        trusted: returns the certificates to trust, for the environment variables.
    """

    def __init__(
        self,
        resolve: Resolve = system_addresses,
        may_connect: Callable[[IPAddress], bool] = is_public,
        trusted: Callable[[Mapping[str, str]], ssl.SSLContext] = trusted_certificates,
    ) -> None:
        self._resolve = resolve
        self._may_connect = may_connect
        self._trusted = trusted

    def check(self, text: str) -> PageURL:
        """Return the parts of a URL that may be fetched, as far as its text tells. Nothing is resolved.

        Raises:
            ToolProblem: it may not be fetched.
        """
        try:
            url = page_url(text)
            refuse_near(url, self._may_connect)
        except BadAddress as bad:
            raise ToolProblem(str(bad), brief=bad.brief) from bad
        return url

    async def fetch(
        self,
        url: PageURL,
        environ: Mapping[str, str],
        may_follow: Callable[[PageURL], Awaitable[None]],
    ) -> Fetched:
        """Fetch a page, and follow redirects.

        Args:
            url: its URL.
            environ: the environment variables, for proxies and certificates.
            may_follow: called before a redirect to another site is followed; it raises what ends the call.

        Raises:
            ToolProblem: the page cannot be fetched; the text says why.
        """
        try:
            async with asyncio.timeout(TOTAL_S) as limit:
                for _ in range(MAX_REDIRECTS + 1):
                    answer = await self._get(url, environ)
                    if isinstance(answer, Fetched):
                        return answer
                    if answer.site != url.site:
                        left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
                        limit.reschedule(None)
                        await may_follow(answer)
                        limit.reschedule(asyncio.get_running_loop().time() + left)
                    url = answer
        except TimeoutError as error:
            raise ToolProblem(
                f"{url.host} did not send the page within {TOTAL_S:.0f} s.", brief="timed out"
            ) from error
        except BadAddress as bad:
            raise ToolProblem(str(bad), brief=bad.brief) from bad
        raise ToolProblem(
            f"The page redirects more than {MAX_REDIRECTS} times.", brief="too many redirects"
        )

    async def _get(self, url: PageURL, environ: Mapping[str, str]) -> Fetched | PageURL:
        """Return the answer of a server, or the URL that it redirects to."""
        try:
            proxy = proxy_to(str(url), environ)
            is_encrypted = url.scheme == "https" or (proxy and proxy.url.startswith("https:"))
            trusted = await asyncio.to_thread(self._trusted, environ) if is_encrypted else None
        except LLMError as error:
            raise ToolProblem(f"{error.message} {error.advice}".strip(), brief="proxy") from error
        if proxy is not None:
            await self._check_for_proxy(url)
        try:
            async with self._pool(proxy, trusted) as pool:
                return await self._answer(pool, url)
        except httpcore2.TimeoutException as error:
            said = f"{url.host} does not answer."
            raise ToolProblem(said, brief="no answer") from error
        except (httpcore2.NetworkError, httpcore2.ProxyError) as error:
            raise _unreachable(url, error, proxy) from error
        except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
            raise ToolProblem(
                f"{url.host} does not answer in valid HTTP.", brief="broken answer"
            ) from error
        except (AssertionError, UnicodeError) as error:
            # The library asserts the form of a SOCKS proxy's answer, and encodes names without asking.
            raise ToolProblem(f"{url.host} cannot be reached.", brief="unreachable") from error

    def _pool(
        self, proxy: EnvironmentProxy | None, trusted: ssl.SSLContext | None
    ) -> httpcore2.AsyncConnectionPool:
        if proxy is None:
            backend = _CheckedBackend(self._resolve, self._may_connect)
            return httpcore2.AsyncConnectionPool(ssl_context=trusted, network_backend=backend)
        parsed = httpx2.Proxy(proxy.url)
        place = httpcore2.URL(
            scheme=parsed.url.raw_scheme,
            host=parsed.url.raw_host,
            port=parsed.url.port,
            target=parsed.url.raw_path,
        )
        if proxy.is_socks:
            return httpcore2.AsyncSOCKSProxy(place, parsed.raw_auth, ssl_context=trusted)  # pyrefly: ignore[bad-return]
        by_https = proxy.url.startswith("https:")
        return httpcore2.AsyncHTTPProxy(
            place,
            parsed.raw_auth,
            ssl_context=trusted,
            proxy_ssl_context=trusted if by_https else None,
        )

    async def _check_for_proxy(self, url: PageURL) -> None:
        """Refuse a host that is near, where a proxy will resolve its name. A name that is unknown here is the proxy's to resolve.

        Raises:
            BadAddress: it is near.
        """
        try:
            async with asyncio.timeout(_PROXIED_RESOLVE_S):
                found = await self._resolve(url.host, url.port)
        except (OSError, UnicodeError, TimeoutError):
            return
        _refuse_near_ones(url.host, found, self._may_connect)

    async def _answer(self, pool: httpcore2.AsyncConnectionPool, url: PageURL) -> Fetched | PageURL:
        request = httpcore2.URL(
            scheme=url.scheme.encode(),
            host=url.host.encode(),
            # A proxy is given the URL as it is written.
            port=None if url.has_usual_port else url.port,
            target=url.target.encode(),
        )
        headers = [
            ("Host", url.site),
            ("User-Agent", USER_AGENT),
            ("Accept", _ACCEPTED),
            ("Accept-Encoding", "gzip, deflate"),
        ]
        limits = {"connect": _CONNECT_S, "read": _SILENCE_S, "write": _SILENCE_S, "pool": 1.0}
        async with pool.stream(
            "GET", request, headers=headers, extensions={"timeout": limits}
        ) as response:
            sent = _headers(response.headers)
            place = sent.get("location", "")
            if response.status in _REDIRECTS and place:
                return self._redirect(url, place)
            media_type, charset = _content_type(sent.get("content-type", ""))
            pieces = _unpacked(response.aiter_stream(), sent.get("content-encoding", ""))
            body, is_cut = await _bounded(pieces)
            return Fetched(url, response.status, media_type, charset, body, is_cut)

    def _redirect(self, url: PageURL, place: str) -> PageURL:
        """Return the URL of a redirect, as far as its text tells that it may be followed.

        Raises:
            BadAddress: it may not.
        """
        try:
            there = page_url(place, url)
            refuse_near(there, self._may_connect)
        except BadAddress as bad:
            # The server's words do not belong into ours.
            raise BadAddress(
                f"{url.host} redirects to an address that is not fetched: {bad.brief}.",
                brief=bad.brief,
            ) from bad
        if url.scheme == "https" and there.scheme == "http":
            raise BadAddress(
                f"{url.host} redirects to {there.site} without encryption. It was not followed.",
                brief="unencrypted redirect",
            )
        return there


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, resolve: Resolve, may_connect: Callable[[IPAddress], bool]) -> None:
        self._resolve = resolve
        self._may_connect = may_connect
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve the name, check all its addresses, and connect to one of them."""
        try:
            async with asyncio.timeout(_RESOLVE_S):
                found = await self._resolve(host, port)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host} was not resolved") from error
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(str(error)) from error
        _refuse_near_ones(host, found, self._may_connect)
        failed: Exception = httpcore2.ConnectError("the name has no address")
        for address in found[:_ADDRESSES]:
            try:
                return await self._backend.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def _refuse_near_ones(
    host: str, found: Iterable[str], may_connect: Callable[[IPAddress], bool]
) -> None:
    """Refuse a host if one of its addresses is near: its name is not to be trusted then.

    Raises:
        BadAddress: one is.
    """
    for text in found:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise near(host, text) from None
        if not may_connect(address):
            raise near(host, text)


def _unreachable(url: PageURL, error: Exception, proxy: EnvironmentProxy | None) -> ToolProblem:
    said = tls_error(url.host, error)
    if said is not None:
        # The advice is about the model's server.
        return ToolProblem(f"{said.message} The page was not read.", brief="no trusted connection")
    if proxy is not None:
        kind = httpx2.ProxyError if isinstance(error, httpcore2.ProxyError) else httpx2.ConnectError
        told = proxy.failure(url.host, kind(str(error)))
        return ToolProblem(f"{told.message} {told.advice}", brief="proxy")
    if isinstance(error, httpcore2.ConnectError):
        return ToolProblem(cannot_be_reached(url.host, error, ()), brief="unreachable")
    return ToolProblem(f"{url.host} closed the connection.", brief="connection closed")


def _headers(given: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by name in lower case; of several with one name the first counts."""
    found: dict[str, str] = {}
    for name, value in given:
        found.setdefault(name.decode("ascii", "replace").lower(), value.decode("latin-1"))
    return found


def _content_type(value: str) -> tuple[str, str]:
    """Return media type and encoding of a Content-Type header."""
    media_type, *parameters = value.split(";")
    charset = ""
    for one in parameters:
        name, _, said = one.partition("=")
        if name.strip().lower() == "charset":
            charset = said.strip().strip("\"'")[:40]
    return media_type.strip().lower()[:100], charset


async def _unpacked(
    pieces: AsyncGenerator[bytes, None], encoding: str
) -> AsyncGenerator[bytes, None]:
    """Yield the unpacked body in pieces of bounded size, however much a packed one stands for."""
    named = [one.strip().lower() for one in encoding.split(",")]
    named = [one for one in named if one and one != "identity"]
    if not named:
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
        return
    if len(named) > 1 or named[0] not in ("gzip", "x-gzip", "deflate"):
        raise ToolProblem(
            "The page is compressed in a format that was not requested.",
            brief="unknown encoding",
        )
    unpacker: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]
    async with aclosing(pieces):
        async for piece in pieces:
            rest = piece
            while rest:
                if unpacker is None:
                    unpacker = zlib.decompressobj(_window(named[0], rest))
                try:
                    out = unpacker.decompress(rest, _PIECE_BYTES)
                except zlib.error as error:
                    raise ToolProblem(
                        "The page is compressed and cannot be decompressed.",
                        brief="broken answer",
                    ) from error
                yield out
                rest = unpacker.unconsumed_tail
                if unpacker.eof:
                    # A body may be several packed files one after another.
                    rest, unpacker = unpacker.unused_data, None
                    if rest and not rest.startswith(b"\x1f\x8b"):
                        return
                await asyncio.sleep(0)


def _window(encoding: str, start: bytes) -> int:
    """Return the `wbits` of zlib: some servers send raw data as `deflate`, without its header."""
    if encoding != "deflate":
        return zlib.MAX_WBITS | 16
    has_header = len(start) > 1 and start[0] & 0x0F == 8 and (start[0] * 256 + start[1]) % 31 == 0
    return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS


async def _bounded(pieces: AsyncGenerator[bytes, None]) -> tuple[bytes, bool]:
    """Return the first `MAX_BYTES` bytes, and whether there are more."""
    found: list[bytes] = []
    size = 0
    async with aclosing(pieces):
        async for piece in pieces:
            found.append(piece)
            size += len(piece)
            if size > MAX_BYTES:
                break
    return b"".join(found)[:MAX_BYTES], size > MAX_BYTES
