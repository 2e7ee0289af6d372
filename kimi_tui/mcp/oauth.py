"""Logins at the addresses of servers by OAuth: kept ones for sessions, and a new one by the person (`login`).

The package's `OAuthClientProvider` does the protocol. Kept are the registered client, the tokens with the absolute time of
their end, and what is known of the authorization server: without these a later run could not refresh the tokens. A session
never opens a browser: without tokens that work its server needs a login (`LoginNeeded`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import html
import ipaddress
import json
import logging
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import ValidationError

from kimi_tui import lenient_json
from kimi_tui.app_paths import data_dir, make_private
from kimi_tui.base_url import is_loopback, literal_address
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.mcp.config import BadEntry, ServerConfig, check_encryption
from kimi_tui.tools.web.addresses import is_public

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)

LOGIN_S = 300.0
"""Seconds that the person has for a login."""
_EARLY_S = 30.0
"""Seconds before its end from which a token is refreshed."""
_MAX_BYTES = 1 << 20
_MAX_REQUEST = 16 << 10
_PATH = "/callback"


class LoginNeeded(Exception):
    """A server wants a login, and there is none that works."""

    def __init__(self) -> None:
        super().__init__("it needs a login")


class LoginFailed(Exception):
    """A login did not succeed; the text says why, as a clause."""


class Keeping:
    """The kept login of one server, as the package's `TokenStorage`.

    Args:
        config: the server, with variables replaced.
    """

    def __init__(self, config: ServerConfig) -> None:
        mark = hashlib.sha256(config.url.encode()).hexdigest()[:12]
        self.path: Path = data_dir() / "mcp" / f"{config.name}-{mark}.json"
        self._kept: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """Return what is kept. It reads a file."""
        if self._kept is None:
            try:
                found: object = lenient_json.parse(read_regular(self.path, _MAX_BYTES))
            except (OSError, ValueError):
                found = {}
            self._kept = lenient_json.mapping(found)
        return self._kept

    def change(self, **values: object) -> None:
        """Keep values, or forget those that are None. It writes a file that only the user can read.

        Raises:
            OSError: it cannot be written.
        """
        kept = {**self.read(), **values}
        self._kept = {name: value for name, value in kept.items() if value is not None}
        make_private(self.path.parent)
        Storage().replace_file(self.path, json.dumps(self._kept).encode())
        self.path.chmod(0o600)

    def forget(self) -> bool:
        """Forget the login; return whether there was one."""
        self._kept = None
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    @property
    def ends_at(self) -> float | None:
        """The time at which the kept token ends, in seconds since 1970; None if unknown."""
        found = self.read().get("ends_at")
        return float(found) if isinstance(found, int | float) else None

    @property
    def metadata(self) -> OAuthMetadata | None:
        """The kept facts about the authorization server."""
        with contextlib.suppress(ValidationError):
            return (
                OAuthMetadata.model_validate(self.read()["metadata"])
                if "metadata" in self.read()
                else None
            )
        return None

    async def get_tokens(self) -> OAuthToken | None:
        """Return the kept tokens."""
        with contextlib.suppress(ValidationError):
            found = (await asyncio.to_thread(self.read)).get("tokens")
            return OAuthToken.model_validate(found) if found else None
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, with the time of their end."""
        ends = time.time() + tokens.expires_in - _EARLY_S if tokens.expires_in else None
        await asyncio.to_thread(
            self.change, tokens=tokens.model_dump(mode="json", exclude_none=True), ends_at=ends
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registered client."""
        with contextlib.suppress(ValidationError):
            found = (await asyncio.to_thread(self.read)).get("client")
            return OAuthClientInformationFull.model_validate(found) if found else None
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registered client."""
        await asyncio.to_thread(
            self.change, client=client_info.model_dump(mode="json", exclude_none=True)
        )


class _NoLogin(httpx2.Auth):
    """The login of a server for which none is kept: it is needed if the server says so."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        response = yield request
        if response.status_code == 401:
            raise LoginNeeded


def kept_login(config: ServerConfig) -> httpx2.Auth:
    """Return the login of a server for a session. It reads a file, so call it in a thread.

    Raises:
        BadEntry: its token would be sent unencrypted.
    """
    keeping = Keeping(config)
    if not keeping.read().get("tokens"):
        return _NoLogin()
    check_encryption(config, has_login=True)

    async def needed(_: str = "") -> Any:
        raise LoginNeeded

    return _provider(config, keeping, _redirect(keeping, config), needed, needed)


def _provider(
    config: ServerConfig,
    keeping: Keeping,
    redirect: str,
    on_redirect: Callable[[str], Awaitable[None]],
    on_callback: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> OAuthClientProvider:
    provider = OAuthClientProvider(
        server_url=config.url,
        client_metadata=OAuthClientMetadata.model_validate(
            {"client_name": "kimi-tui", "redirect_uris": [redirect]}
        ),
        storage=keeping,
        redirect_handler=on_redirect,
        callback_handler=on_callback,
    )
    # The package would take a kept token for a valid one whatever its age, and refresh it at a guessed address.
    provider.context.token_expiry_time = keeping.ends_at
    provider.context.oauth_metadata = keeping.metadata
    return provider


def _redirect(keeping: Keeping, config: ServerConfig) -> str:
    client = lenient_json.mapping(keeping.read().get("client"))
    known = [
        one for one in lenient_json.listing(client.get("redirect_uris")) if isinstance(one, str)
    ]
    port = config.callback_port or (urlsplit(known[0]).port if known else None) or 0
    return f"http://127.0.0.1:{port}{_PATH}"


class _McpHttpClient(httpx2.AsyncClient):
    """A client that asks no proxy for an address of this machine, however that is written."""

    def _transport_for_url(self, url: httpx2.URL) -> httpx2.AsyncBaseTransport:
        # The library compares hosts as text, and an IPv6 address has many forms.
        return self._transport if is_loopback(url.host) else super()._transport_for_url(url)


def client_of(
    config: ServerConfig,
    headers: Mapping[str, str] | None,
    timeout: httpx2.Timeout | float | None,
    auth: httpx2.Auth | None,
) -> httpx2.AsyncClient:
    """Return an HTTP client for the address of a server. Each request is checked by `check_near`, and none to this machine uses a
    proxy of the environment: it would carry unencrypted tokens away from it.
    """

    async def guard(request: httpx2.Request) -> None:
        await check_near(request, config)

    return _McpHttpClient(
        headers=headers,
        timeout=timeout,
        auth=auth,
        event_hooks={"request": [guard]},
    )


async def check_near(request: httpx2.Request, config: ServerConfig) -> None:
    """Check that a login does not lead a public server's answers to this machine or its network, and no token over a network
    unencrypted.

    Raises:
        LoginFailed: it does.
    """
    url, own = request.url, urlsplit(config.url)
    if (url.scheme, url.host, url.port) == (own.scheme, own.hostname, own.port):
        return
    is_near = await _is_near(own.hostname or "")
    shown = one_line(f"{url.scheme}://{url.host}")[:120]
    if url.scheme != "https" and not (is_near and is_loopback(url.host)):
        raise LoginFailed(f"its login leads to {shown}, which is not encrypted")
    if not is_near and await _is_near(url.host):
        raise LoginFailed(f"its login leads to {shown}, which is on this machine or its network")


async def _is_near(host: str) -> bool:
    """Return whether a host is this machine, or one of its network; a name that is unknown is not."""
    literal = literal_address(host)
    if literal is not None:
        return not is_public(literal)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(
        not is_public(ipaddress.ip_address(str(one[4][0]).partition("%")[0])) for one in found
    )


async def login(
    config: ServerConfig,
    shown: Callable[[str], Awaitable[None]],
    pasted: Callable[[], Awaitable[str]] | None = None,
) -> None:
    """Log in at a server, with a new token even if there is one.

    Args:
        config: the server, with variables replaced.
        shown: shows the address to the person, or opens it.
        pasted: returns the address to which the browser was sent, as the person pastes it; None if nobody can.

    Raises:
        LoginFailed: it did not succeed, or the token would be sent unencrypted.
    """
    try:
        check_encryption(config, has_login=True)
    except BadEntry as bad:
        raise LoginFailed(str(bad)) from bad
    keeping = Keeping(config)
    await asyncio.to_thread(keeping.change, tokens=None, ends_at=None, metadata=None)
    got: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
    wanted = urlsplit(await asyncio.to_thread(_redirect, keeping, config)).port or 0
    server, port = await _listening(got, wanted)
    if port != wanted:
        # The client is registered with its redirect.
        await asyncio.to_thread(keeping.change, client=None)
    if config.client_id:
        redirect = f"http://127.0.0.1:{port}{_PATH}"
        client = {
            "client_id": config.client_id,
            "redirect_uris": [redirect],
            "token_endpoint_auth_method": "none",
        }
        await asyncio.to_thread(keeping.change, client=client)

    async def on_redirect(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (
            parts.scheme == "http" and is_loopback(parts.hostname or "")
        ):
            raise LoginFailed(
                f'the address of its login page does not begin with https://: "{one_line(url)[:120]}"'
            )
        await shown(url)

    async def on_callback() -> AuthorizationCodeResult:
        waiting: list[asyncio.Future[Any]] = [got]
        paste = asyncio.ensure_future(_from_paste(pasted)) if pasted is not None else None
        if paste is not None:
            waiting.append(paste)
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=LOGIN_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise LoginFailed("nobody logged in within five minutes")
            return next(iter(done)).result()
        finally:
            if paste is not None:
                paste.cancel()

    provider = _provider(
        config, keeping, f"http://127.0.0.1:{port}{_PATH}", on_redirect, on_callback
    )
    try:
        async with asyncio.timeout(LOGIN_S + 60):
            await _run(config, provider)
    except TimeoutError as error:
        raise LoginFailed("it did not answer in time") from error
    except (OAuthFlowError, ValidationError, httpx2.HTTPError, OSError) as error:
        raise LoginFailed(one_line(str(error))[:300] or type(error).__name__) from error
    finally:
        server.close()
    metadata = provider.context.oauth_metadata
    if metadata is not None:
        await asyncio.to_thread(
            keeping.change, metadata=metadata.model_dump(mode="json", exclude_none=True)
        )


async def _run(config: ServerConfig, provider: OAuthClientProvider) -> None:
    """Make a request that needs the login.

    Raises:
        LoginFailed: the server wants none, or refused it.
    """
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "kimi-tui", "version": "1"},
        },
    }
    headers = {
        **dict(config.headers),
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-06-18",
    }
    async with (
        client_of(config, headers, 30.0, provider) as client,
        client.stream(
            "POST" if config.transport == "http" else "GET", config.url, json=hello
        ) as response,
    ):
        status = response.status_code
    if provider.context.current_tokens is None:
        if status < 400:
            raise LoginFailed("it needs no login")
        raise LoginFailed(f"it answered with HTTP status {status} and asks for no login")
    if status in (401, 403):
        raise LoginFailed(f"it refused the new token with HTTP status {status}")


async def _from_paste(pasted: Callable[[], Awaitable[str]]) -> AuthorizationCodeResult:
    """Return the result in what the person pastes; what holds none is waited for again."""
    while True:
        text = await pasted()
        if (found := result_in(text)) is not None:
            return found


def result_in(text: str) -> AuthorizationCodeResult | None:
    """Return the result of a login in the address of a redirect; None if it holds none.

    Raises:
        LoginFailed: the address says that the login was refused.
    """
    try:
        query = parse_qs(urlsplit(text.strip()).query)
    except ValueError:
        return None
    fields = {name: values[0] for name, values in query.items()}
    if "error" in fields:
        why = one_line(fields.get("error_description") or fields["error"])[:200]
        raise LoginFailed(f'the login was refused: "{why}"')
    if not fields.get("code"):
        return None
    return AuthorizationCodeResult(
        code=fields["code"], state=fields.get("state"), iss=fields.get("iss")
    )


async def _listening(
    got: asyncio.Future[AuthorizationCodeResult], port: int
) -> tuple[asyncio.Server, int]:
    """Listen for the redirect on this machine alone; return the server and its port, another one if the wanted one is taken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words, code = "This is not a login page.", "404 Not Found"
        with contextlib.suppress(OSError, ValueError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            target = (
                head.split(b" ")[1].decode("ascii", "replace") if head.startswith(b"GET ") else ""
            )
            if target.partition("?")[0] == _PATH:
                try:
                    found = result_in(target)
                    if found is not None:
                        words, code = "You are logged in. You can close this page.", "200 OK"
                        if not got.done():
                            got.set_result(found)
                except LoginFailed as failed:
                    words, code = f"{failed}.", "200 OK"
                    if not got.done():
                        got.set_exception(failed)
        body = f"<!doctype html><title>kimi-tui</title><p>{html.escape(words)}".encode()
        with contextlib.suppress(OSError):
            writer.write(
                f"HTTP/1.1 {code}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_MAX_REQUEST)
    except OSError:
        if not port:
            raise
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_MAX_REQUEST)
    return server, server.sockets[0].getsockname()[1]
