"""Carries requests to a server: the HTTP client for every request, and the `openai` library over it for chat requests.

`RestrictedClient` follows no redirect, sends only headers that are listed here, and reads no more of an error than can be
shown. `OpenAIClient` posts chat requests; the `openai` library does authentication and connection pooling for it. Values that
the library would add from the environment or about this machine are left out.

Import this module in a thread, after the first paint: the HTTP library takes long to import, and the `openai` library (by
`preload`) a sixth of a second, and three times that if the packages of types of requests and answers were not deferred.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

import httpx2
from h11 import SEND_BODY, Data, EndOfMessage
from h11._readers import READERS, ChunkedReader
from h11._receivebuffer import ReceiveBuffer

from kimi_tui.base_url import is_loopback
from kimi_tui.late_imports import called_later, deferred, left_out
from kimi_tui.llm.connection import OnePieceTransport
from kimi_tui.llm.errors import (
    AnswerOverdueError,
    APIConnectionError,
    APITimeoutError,
    APITLSError,
    LLMError,
    cannot_be_reached,
)
from kimi_tui.llm.network_settings import EnvironmentProxy, proxy_to, trusted_certificates
from kimi_tui.llm.provider import NO_HEADERS, check_origin, no_base_url
from kimi_tui.llm.waiting import WaitedTooLong
from kimi_tui.program import VERSION

USER_AGENT = f"kimi-tui/{VERSION}"
MAX_ERROR_BYTES = 256 * 1024
CONNECT_S = 10.0
# The library adds other headers from the environment, some of them undocumented.
_HEADERS = frozenset(
    (
        *("host", "accept", "accept-encoding", "authorization", "connection"),
        *("content-length", "content-type", "transfer-encoding", "user-agent"),
    )
)
_ERROR_BODY_S = 10.0
_SLICE_BYTES = 256 * 1024
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_CHUNK_END = b"\r\n"
_NO_KEY = "none"
_SHAPES = (
    "openai.types",
    *(f"openai.types.{name}" for name in ("chat", "graders", "responses", "shared")),
)
"""The library's types of requests and answers, which take an eighth of the memory and are not used here."""
_FUNCTIONS = ("openai.lib._parsing", "openai.lib._tools")
"""Modules of its functions for schemas of Python classes, which execute the types of chats."""
_CLOUDS = ("openai.lib.azure", "openai.lib.bedrock")
"""Its clients of two clouds with ways of their own to log in, which take an eighth of its import and are not used here."""
_OTHER_CLIENT = "openai._vendor.httpx_aiohttp"
"""The library's adapter of another HTTP library, which it imports where that is installed; that takes as long as all the rest of it."""
_CONNECTION = ("anyio._backends._asyncio", "httpcore2")
"""Modules that the HTTP library imports with its first connection, on the event loop."""
_importing = threading.Lock()


class RestrictedClient(httpx2.AsyncClient):
    """An HTTP client that follows no redirects and limits how much of a response is read.

    Args:
        base_url: the URL of the one server.
        own_headers: the user's headers, for every request to its origin.
        connect_s: seconds until a connection must be made.
        read_s: seconds of silence in an answer; None for no limit.

    Attributes:
        proxy: the proxy that the environment names; None for none.

    Raises:
        LLMError: the base URL names no possible host, or the environment a proxy or certificates that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        own_headers: Mapping[str, str] = NO_HEADERS,
        *,
        connect_s: float,
        read_s: float | None,
    ) -> None:
        try:
            self._origin = httpx2.URL(base_url)
        except httpx2.InvalidURL as error:
            # Names of hosts have further rules, such as those for letters beyond ASCII.
            raise no_base_url(base_url) from error
        self._last: tuple[tuple[str, httpx2.URL | str, dict[str, Any]], httpx2.Request] | None = (
            None
        )
        self._own_headers = own_headers
        self.proxy: EnvironmentProxy | None = proxy_to(base_url)
        # Certificate authorities take 2 MB, and the variables that name others may be wrong, so they are only read if one of
        # the connections is encrypted. A context without authorities trusts nobody.
        is_encrypted = self._origin.scheme == "https"
        by_https = self.proxy is not None and self.proxy.url.startswith("https:")
        trusted = (
            trusted_certificates()
            if is_encrypted or by_https
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        limits = httpx2.Limits(max_connections=20, max_keepalive_connections=5, keepalive_expiry=30)
        super().__init__(
            verify=trusted,
            limits=limits,
            transport=OnePieceTransport(trusted, limits) if self.proxy is None else None,
            proxy=None
            if self.proxy is None
            else httpx2.Proxy(self.proxy.url, ssl_context=trusted if by_https else None),
            follow_redirects=False,
            # The code above has settled the proxy and the certificates of the environment.
            trust_env=False,
            timeout=httpx2.Timeout(connect=connect_s, read=read_s, write=read_s, pool=connect_s),
            headers={"User-Agent": USER_AGENT},
        )

    def build_request(
        self, method: str, url: httpx2.URL | str, *, content: Any = None, **options: Any
    ) -> httpx2.Request:
        """Build a request as `httpx2` does; one that differs from the last one only in its body gets what that one was made of."""
        if not isinstance(content, bytes):
            return super().build_request(method, url, content=content, **options)
        asked = (method, url, options)
        if self._last is None or self._last[0] != asked:
            self._last = asked, super().build_request(method, url, content=b"", **options)
        like = self._last[1]
        headers = [item for item in like.headers.raw if item[0].lower() != b"content-length"]
        return httpx2.Request(
            method, like.url, headers=headers, content=content, extensions=like.extensions
        )

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Send the request; an error response is returned with at most `MAX_ERROR_BYTES` of its body, already read."""
        options["follow_redirects"] = False
        for name in [name for name in request.headers if name.lower() not in _HEADERS]:
            del request.headers[name]
        there, ours = request.url, self._origin
        if (there.scheme, there.host, there.port) == (ours.scheme, ours.host, ours.port):
            request.headers.update(self._own_headers)
        if len(request.content) > _SLICE_BYTES:
            request.stream = _Slices(request.content)
        response = await self._sent(request, **options)
        if response.status_code >= 300:
            return await _with_bounded_error(response)
        if not stream:
            await response.aread()
        return response

    async def _sent(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, stream=True, **options)
        except httpx2.HTTPError:
            raise
        except Exception as error:
            if self.proxy is None or not self.proxy.is_socks:
                raise
            # httpx2 asserts the form of the proxy's answer, and `socksio` raises errors of its own.
            raise httpx2.ProxyError("it does not answer in the SOCKS5 protocol") from error


class _Slices(httpx2.AsyncByteStream):
    """Yields a long body (images) piece by piece: if it were written at once, the event loop would copy the rest after each
    partial write.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), _SLICE_BYTES):
            yield self._body[start : start + _SLICE_BYTES]


async def _with_bounded_error(response: httpx2.Response) -> httpx2.Response:
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
        pass  # the status alone is enough
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


@dataclass(frozen=True, slots=True)
class NetworkFailures:
    """Makes the errors for failed connections to one server, and to the proxy in between if there is one.

    `secrets`, which include the key, are never shown.
    """

    host: str
    secrets: tuple[str, ...] = field(repr=False)
    proxy: EnvironmentProxy | None = None

    def timeout(self, error: BaseException) -> APITimeoutError:
        """Return the error for a connection that took too long, or for too long a silence."""
        cause = error.__cause__ or error
        if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            asked = self.host if self.proxy is None else self.proxy.called
            return APITimeoutError(
                f"{asked} did not accept a connection within {CONNECT_S:g} s.",
                advice="Check the network and the base URL."
                if self.proxy is None
                else f"Check the proxy, or add {self.host} to NO_PROXY.",
            )
        advice = "If it keeps happening, choose another model with /model."
        if isinstance(cause, WaitedTooLong):
            return AnswerOverdueError(f"{self.host} {cause}", advice=advice, again=cause.again)
        return APITimeoutError(f"{self.host} took too long.", advice=advice)

    def unreachable(self, error: BaseException) -> LLMError:
        """Return the error for a server that refused, has no such name or a wrong certificate, or closed the connection
        before it answered.
        """
        cause = error.__cause__ or error
        made = connection_error(self.host, cause, self.secrets, self.proxy)
        if made is not None:
            return made
        if self.proxy is not None:
            return APIConnectionError(
                f"{self.host}, or {self.proxy.between}, closed the connection before it answered.",
                advice=f"If it keeps happening, check the proxy, or add {self.host} to NO_PROXY.",
            )
        return APIConnectionError(
            f"{self.host} closed the connection before it answered.",
            advice="This is usually temporary.",
        )


def connection_error(
    host: str,
    error: BaseException,
    secrets: tuple[str, ...],
    proxy: EnvironmentProxy | None,
) -> LLMError | None:
    """Return the error for a connection that was not made; None if it was made and broke later.

    Args:
        host: the host of the server.
        error: the HTTP library's error.
        secrets: texts that are never shown.
        proxy: the proxy in between; the error names it if it cannot be reached or refuses.
    """
    if not isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return None
    if (refused := tls_error(host, error)) is not None:
        return refused
    if proxy is not None:
        return proxy.failure(host, error)
    return APIConnectionError(
        cannot_be_reached(host, error, secrets),
        advice="Check that the server is running."
        if is_loopback(host)
        else "Check the network and the base URL.",
    )


def tls_error(host: str, error: BaseException | None) -> APITLSError | None:
    """Return the error for a connection that could not be encrypted; None if it failed otherwise.

    Args:
        host: the host of the server.
        error: the raised exception; its causes are checked too.
    """
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None:
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return APITLSError(
            f"{host} has a certificate that is not trusted: {error.verify_message}.",
            advice="To trust it, set SSL_CERT_FILE to a file with its certificate.",
        )
    reason = (error.reason or "the handshake ended").lower().replace("_", " ")
    return APITLSError(
        f"{host} does not answer with HTTPS: {reason}.",
        advice="Check the port of the base URL, and whether it starts with https:// or http://.",
    )


class OpenAIClient:
    """Carries requests to one origin with one key. Its constructor imports the HTTP library: call it in a thread.

    Args:
        base_url: the URL of the API.
        api_key: the key, sent to this origin alone; empty for none.
        headers: the user's own headers, sent wherever the key is.

    Attributes:
        failures: makes the errors for failed connections.

    Raises:
        LLMError: the base URL is invalid, the key would cross a network unencrypted, or the environment names a proxy or
            certificates that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        host = check_origin(base_url, api_key, headers)
        preload()
        from openai import AsyncOpenAI, Omit

        # `waiting` limits the wait for an answer, at the place where it is read.
        http = RestrictedClient(base_url, headers, connect_s=CONNECT_S, read_s=None)
        self._proxy = http.proxy
        secrets = (api_key, *headers.values(), *(http.proxy.secrets if http.proxy else ()))
        self.failures = NetworkFailures(host, secrets, http.proxy)
        self._client = AsyncOpenAI(
            api_key=api_key or _NO_KEY,
            base_url=base_url,
            max_retries=0,
            http_client=http,
        )
        # They hold against those that the library takes from the environment; `http` sends no other headers.
        self._headers = {
            "User-Agent": USER_AGENT,
            "Accept": "text/event-stream, application/json",
            "Authorization": f"Bearer {api_key}" if api_key else Omit(),
        }

    async def post(self, body: bytes) -> httpx2.Response:
        """Return the response to one request: its body is an unread stream or, for a refusal, has been read.

        Raises:
            LLMError: the server could not be reached, or did not answer in time.
        """
        import openai

        try:
            response = await self._client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                content=body,
                stream=True,
                stream_cls=openai.AsyncStream[object],
                options={"headers": self._headers},
            )
            return cast("httpx2.Response", response)
        except openai.APITimeoutError as error:
            raise self.failures.timeout(error) from error
        except openai.APIConnectionError as error:
            raise self.failures.unreachable(error) from error
        except openai.APIStatusError as error:
            if error.response.status_code == 407 and self._proxy is not None:
                raise self._proxy.wants_login() from error
            return error.response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class ChunkedBody:
    """Reads one chunked body, and returns all chunks that have come as one piece: servers send every token in a chunk of its own.

    h11's `ChunkedReader` passes each chunk through an event, a state machine and five generators, which takes longer than all
    later processing of the token. It still gets everything that is not a whole plain chunk, and all errors.
    """

    def __init__(self) -> None:
        self._reader = ChunkedReader()
        self._is_between = True
        """Whether a chunk begins at this point; after a chunk the reader may still expect its end."""
        self._wants_end = False

    def __call__(self, buffer: ReceiveBuffer) -> Data | EndOfMessage | None:
        """Return the next piece of the body, or its end; None if more bytes are needed."""
        if self._is_between:
            came = bytes(buffer)
            start = len(_CHUNK_END) if self._wants_end and came.startswith(_CHUNK_END) else 0
            chunks, end = whole_chunks(came, start)
            if chunks:
                buffer.maybe_extract_at_most(end)
                self._reader, self._wants_end = ChunkedReader(), False
                return Data(b"".join(chunks))
        event = self._reader(buffer)
        self._is_between = self._wants_end = isinstance(event, Data) and event.chunk_end
        return event

    def read_eof(self) -> None:
        """Raise h11's error for a connection that was closed within the body."""
        self._reader.read_eof()


def whole_chunks(came: bytes, start: int) -> tuple[list[bytes], int]:
    """Return the plain chunks that are complete, from a place on, and the place where the next one begins; the last chunk is left."""
    chunks: list[bytes] = []
    while (found := _CHUNK_SIZE.match(came, start)) is not None:
        first = found.end()
        end = first + int(found[1], 16)
        if end == first or came[end : end + len(_CHUNK_END)] != _CHUNK_END:
            break
        chunks.append(came[first:end])
        start = end + len(_CHUNK_END)
    return chunks, start


cast("dict[str, Any]", READERS[SEND_BODY])["chunked"] = ChunkedBody


def preload_connection() -> None:
    """Import what a first connection needs. Call it in a thread."""
    for name in _CONNECTION:
        import_module(name)


def preload() -> None:
    """Import everything that a request needs. It takes a sixth of a second of CPU: call it in a thread, after the first paint."""
    preload_connection()
    with _importing:
        import tenacity

        if "openai" not in sys.modules:
            # An entry of None has the import of that name fail, and the library does without it.
            cast("dict[str, object]", sys.modules)[_OTHER_CLIENT] = None
        try:
            with deferred(*_SHAPES), called_later(*_FUNCTIONS), left_out(*_CLOUDS):
                from openai import AsyncOpenAI
        finally:
            if cast("dict[str, object]", sys.modules).get(_OTHER_CLIENT, "") is None:
                del sys.modules[_OTHER_CLIENT]

        # OPENAI_LOG in the environment would have whole requests logged; the terminal is safe where the log was begun before.
        logging.getLogger("openai").setLevel(logging.WARNING)
        del tenacity, AsyncOpenAI
