"""Carries requests to a server: the HTTP client under every request, and the `openai` library over it for those of a chat.

`RestrictedClient` follows no redirect, sends only headers that are listed here, and reads no more of an error than can be
shown. `OpenAIClient` posts chat requests; the `openai` library does authentication and connection pooling for it. What that
library would take from the environment into a request, or tell of this machine, is left out.

Import this module in a thread, after the first paint: the HTTP library takes long to import, and the `openai` library (by
`preload`) half a second. Most of the latter are types of requests and answers, packages that `deferred_imports` has executed only
when an attribute is first read: `importlib.util.LazyLoader` would run them already where one of their modules is imported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import httpx2
from h11 import SEND_BODY, Data, EndOfMessage
from h11._readers import READERS, ChunkedReader
from h11._receivebuffer import ReceiveBuffer

from kimi_tui import __version__
from kimi_tui.base_url import is_loopback
from kimi_tui.llm.errors import (
    AnswerOverdueError,
    APIConnectionError,
    APITimeoutError,
    APITLSError,
    LLMError,
    cannot_be_reached,
)
from kimi_tui.llm.network_settings import EnvironmentProxy, proxy_to, trusted_certificates
from kimi_tui.llm.provider import NO_HEADERS, check_origin
from kimi_tui.llm.waiting import WaitedTooLong

if TYPE_CHECKING:
    from openai import Omit

USER_AGENT = f"kimi-tui/{__version__}"
MAX_ERROR_BYTES = 256 * 1024
CONNECT_S = 10.0
# The library adds others from the environment, some of them undocumented.
_HEADERS = frozenset(
    (
        *("host", "accept", "accept-encoding", "authorization", "connection"),
        *("content-length", "content-type", "transfer-encoding", "user-agent"),
    )
)
_ERROR_BODY_S = 10.0
_SLICE_BYTES = 64 * 1024
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_CHUNK_END = b"\r\n"
_NO_KEY = "none"
_ABOUT_THE_MACHINE = (
    "Lang",
    "Package-Version",
    "OS",
    "Arch",
    "Runtime",
    "Runtime-Version",
    "Async",
)
_SHAPES = (
    "openai.types",
    *(f"openai.types.{name}" for name in ("chat", "graders", "responses", "shared")),
)
"""The library's types of requests and answers: an eighth of the memory, and not used here."""
_importing = threading.Lock()


class RestrictedClient(httpx2.AsyncClient):
    """An HTTP client that follows no redirects and limits how much of a response is read.

    Args:
        base_url: the one server that is asked.
        own_headers: the user's, for every request to its origin.
        connect_s: seconds for a connection.
        read_s: seconds of silence in an answer; None for no limit.

    Attributes:
        proxy: the proxy in between, which the environment names.

    Raises:
        NetworkSettingError: the environment names a proxy or certificates that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        own_headers: Mapping[str, str] = NO_HEADERS,
        *,
        connect_s: float,
        read_s: float | None,
    ) -> None:
        self._origin = httpx2.URL(base_url)
        self._own_headers = own_headers
        self.proxy: EnvironmentProxy | None = proxy_to(base_url)
        # The authorities take 2 MB, and the variables that name others may be wrong: they are only read where one of the
        # connections is encrypted. A context without any trusts nobody.
        is_encrypted = self._origin.scheme == "https"
        by_https = self.proxy is not None and self.proxy.url.startswith("https:")
        trusted = (
            trusted_certificates()
            if is_encrypted or by_https
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        super().__init__(
            verify=trusted,
            proxy=None
            if self.proxy is None
            else httpx2.Proxy(self.proxy.url, ssl_context=trusted if by_https else None),
            follow_redirects=False,
            # The proxy and the certificates of the environment are settled above.
            trust_env=False,
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
        response = await self._sent(request, **options)
        if response.status_code >= 300:
            return await _cut(response)
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
            # The library asserts what the proxy answers, and `socksio` has errors of its own.
            raise httpx2.ProxyError("it does not answer as SOCKS5 does") from error


class _Slices(httpx2.AsyncByteStream):
    """A long body (images) piece by piece: written at once, the event loop would copy the rest of it after every partial write."""

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


@dataclass(frozen=True, slots=True)
class NetworkFailures:
    """Makes the errors for failed connections to one server, and for those to the proxy in between, if there is one.

    `secrets`, the key among them, are never shown.
    """

    host: str
    secrets: tuple[str, ...] = field(repr=False)
    proxy: EnvironmentProxy | None = None

    def timeout(self, error: BaseException) -> APITimeoutError:
        """Connecting took too long, or nothing came for too long."""
        cause = error.__cause__ or error
        if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            asked = self.host if self.proxy is None else self.proxy.called
            return APITimeoutError(
                f"{asked} did not accept a connection within {CONNECT_S:g} s.",
                advice="Check the network and the base URL."
                if self.proxy is None
                else f"Check the proxy, or add {self.host} to NO_PROXY.",
            )
        advice = "If it stays silent, choose another model with /model."
        if isinstance(cause, WaitedTooLong):
            return AnswerOverdueError(f"{self.host} {cause}", advice=advice, again=cause.again)
        return APITimeoutError(f"{self.host} took too long.", advice=advice)

    def unreachable(self, error: BaseException) -> LLMError:
        """The server refused, has no such name or a wrong certificate, or closed the connection before it answered."""
        cause = error.__cause__ or error
        return connection_error(self.host, cause, self.secrets, self.proxy) or APIConnectionError(
            f"{self.host} closed the connection before it answered.",
            advice="This usually passes.",
        )


def connection_error(
    host: str,
    error: BaseException,
    secrets: tuple[str, ...],
    proxy: EnvironmentProxy | None,
) -> LLMError | None:
    """The error for a connection that was not made; None where it was made, and broke.

    Args:
        host: of the server.
        error: of the HTTP library.
        secrets: never shown.
        proxy: in between; it is named where it is the one that cannot be reached or refuses.
    """
    if not isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return None
    if (refused := tls_error(host, error)) is not None:
        return refused
    if proxy is not None:
        return proxy.failure(host, error)
    return APIConnectionError(
        cannot_be_reached(host, error, secrets),
        advice="Is the server running?"
        if is_loopback(host)
        else "Check the network and the base URL.",
    )


def tls_error(host: str, error: BaseException | None) -> APITLSError | None:
    """The error for a connection that could not be made private; None where it failed otherwise.

    Args:
        host: of the server.
        error: what was raised; looked at with its causes.
    """
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None:
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return APITLSError(
            f"{host} has a certificate that is not trusted: {error.verify_message}.",
            advice="SSL_CERT_FILE in the environment names a file of certificates to trust.",
        )
    reason = (error.reason or "the handshake ended").lower().replace("_", " ")
    return APITLSError(
        f"{host} does not answer as https does: {reason}.",
        advice="Check the base URL: its port, and whether it begins with https:// or http://.",
    )


class OpenAIClient:
    """Carries requests to one origin with one key. Its constructor imports the HTTP library: call it in a thread.

    Args:
        base_url: of the API.
        api_key: sent to this origin alone; empty for none.
        headers: the user's own, sent as the key is.

    Attributes:
        failures: makes the errors for failed connections.

    Raises:
        LLMError: the base URL is none, the key would cross a network unencrypted, or the environment names a proxy or
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
        from openai import AsyncOpenAI

        self._api_key = api_key
        # How long an answer is waited for is decided where it is read.
        http = RestrictedClient(base_url, headers, connect_s=CONNECT_S, read_s=None)
        self._proxy = http.proxy
        secrets = (api_key, *headers.values(), *(http.proxy.secrets if http.proxy else ()))
        self.failures = NetworkFailures(host, secrets, http.proxy)
        self._client = AsyncOpenAI(
            api_key=api_key or _NO_KEY,
            base_url=base_url,
            # What is not named here, the library looks up in the environment.
            organization="",
            project="",
            admin_api_key="",
            webhook_secret="",
            max_retries=0,
            http_client=http,
            default_headers={"User-Agent": USER_AGENT},
        )

    async def post(self, body: bytes) -> httpx2.Response:
        """The response to one request: its body is a stream, or of a refusal has been read.

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
                options={"headers": _request_headers(self._api_key)},
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
        """Close its connections."""
        await self._client.close()


def _request_headers(api_key: str) -> dict[str, str | Omit]:
    """The headers of a request, without what the library adds about this machine or from its environment."""
    from openai import Omit

    # The library takes others out of the environment into every request.
    custom = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    headers: dict[str, str | Omit] = {
        line.partition(":")[0].strip(): Omit() for line in custom if ":" in line
    }
    headers |= {f"X-Stainless-{name}": Omit() for name in _ABOUT_THE_MACHINE}
    headers |= {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
    headers["User-Agent"] = USER_AGENT
    headers["Accept"] = "text/event-stream, application/json"
    headers["Authorization"] = f"Bearer {api_key}" if api_key else Omit()
    return headers


class ChunkedBody:
    """Reads one chunked body, all chunks that have come in one piece: servers send every token in a chunk of its own.

    h11's `ChunkedReader` passes each of them through an event, a state machine and five generators, which costs more than
    all the processing of the token afterwards. Whatever is not a whole plain chunk goes to it, as do all errors.
    """

    def __init__(self) -> None:
        self._reader = ChunkedReader()
        self._is_between = True
        """Whether a chunk begins here, behind the end of the last one where the reader wants that."""
        self._wants_end = False

    def __call__(self, buffer: ReceiveBuffer) -> Data | EndOfMessage | None:
        """The next piece of the body, or its end; None where more bytes are needed."""
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
        """The connection was closed within the body: the reader raises what h11 has for that."""
        self._reader.read_eof()


def whole_chunks(came: bytes, start: int) -> tuple[list[bytes], int]:
    """The plain chunks that are whole, from a place on, and where the next one begins; the last one is left."""
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


def preload() -> None:
    """Import what a request needs. Half a second of CPU: for a thread, after the first paint."""
    with _importing:
        # OPENAI_LOG makes the library write to the terminal as soon as it is imported, unless the log has a handler.
        # The variable itself stays as it is: other threads read the environment meanwhile.
        root, silent = logging.getLogger(), logging.NullHandler()
        root.addHandler(silent)
        try:
            import tenacity

            with deferred_imports(*_SHAPES):
                from openai import AsyncOpenAI
        finally:
            root.removeHandler(silent)
        logging.getLogger("openai").setLevel(logging.WARNING)
        del tenacity, AsyncOpenAI


@contextmanager
def deferred_imports(*names: str) -> Generator[None]:
    """Packages of these names that are imported in this context are executed when an attribute is first read from them. Their
    modules can be imported one by one before that."""
    finder = _DeferredFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _DeferredFinder(MetaPathFinder):
    """Finds packages as the path finder does, for `_DeferredLoader`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the package, if it is one of those that are executed later."""
        found = PathFinder.find_spec(fullname, path) if fullname in self._names else None
        if found is not None and found.loader is not None:
            found.loader = _DeferredLoader(found.loader)
        return found


class _DeferredLoader(Loader):
    """Makes a module that its own loader executes later."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        return _DeferredModule(spec.name, self._loader)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is executed when an attribute of it is read."""


class _DeferredModule(ModuleType):
    """A module that is executed when an attribute is read that it does not have."""

    def __init__(self, name: str, loader: Loader) -> None:
        super().__init__(name)
        self._loader: Loader | None = loader
        self._running = threading.RLock()

    def __getattr__(self, name: str) -> object:
        if not name.startswith("__"):
            with self._running:
                loader, self._loader = self._loader, None
                if loader is not None:
                    loader.exec_module(self)
        return super().__getattribute__(name)
