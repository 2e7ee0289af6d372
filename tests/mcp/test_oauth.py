"""Logins: what is kept of them, in which files, and when a token is refreshed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from support.mcp_session import configure, session

from kimi_tui.mcp import oauth
from kimi_tui.mcp.config import ServerConfig, server_of


class Authority:
    """A server of tools with its authorization server, at one address, as far as a login needs them.

    Attributes:
        posts: the paths and forms of the posts to it.
        token: the access token that it accepts.
    """

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str]]] = []
        self.token = "first"
        self.base = ""

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[ServerConfig]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield server_of("made", {"url": f"{self.base}/mcp"}, Path(), "user")
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client only opened a connection.
            writer.close()
            return
        size = next(
            (
                int(line[15:])
                for line in head.lower().split("\r\n")
                if line.startswith("content-length:")
            ),
            0,
        )
        body = (await reader.readexactly(size)).decode()
        method, path = head.split(" ")[:2]
        status, answer = self._answer(method, path, head, body)
        data = json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        writer.close()

    def _answer(self, method: str, path: str, head: str, body: str) -> tuple[int, object]:
        form = {key: values[0] for key, values in parse_qs(body).items()}
        match method, path.partition("?")[0]:
            case _, "/mcp":
                if f"authorization: bearer {self.token}" not in head.lower():
                    return 401, {}
                message = json.loads(body)
                if "id" not in message:
                    return 202, {}
                result: dict[str, object] = {"tools": [{"name": "a", "inputSchema": {}}]}
                if message["method"] == "initialize":
                    result = {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "a", "version": "1"},
                    }
                return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}
            case "GET", "/.well-known/oauth-authorization-server":
                return 200, {
                    "issuer": self.base,
                    "authorization_endpoint": f"{self.base}/authorize",
                    "token_endpoint": f"{self.base}/elsewhere/token",
                    "registration_endpoint": f"{self.base}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                }
            case "POST", "/register":
                self.posts.append((path, {}))
                return 201, {"client_id": "c1", **json.loads(body)}
            case "POST", "/elsewhere/token":
                self.posts.append((path, form))
                return 200, {
                    "access_token": self.token,
                    "token_type": "Bearer",
                    "expires_in": 3600,
                    "refresh_token": "r1",
                }
            case _:
                return 404, {}


async def log_in(config: ServerConfig, *, pastes: bool) -> str:
    """Log in as a person would; returns the address that was shown."""
    addresses: asyncio.Queue[str] = asyncio.Queue()

    def redirect(url: str) -> str:
        query = parse_qs(urlsplit(url).query)
        return f"{query['redirect_uri'][0]}?code=abc&state={query['state'][0]}"

    async def shown(url: str) -> None:
        addresses.put_nowait(url)
        if not pastes:
            async with httpx2.AsyncClient() as browser:
                assert (
                    await browser.get(redirect(url).replace("/callback", "/other"))
                ).status_code == 404
                assert "You are logged in" in (await browser.get(redirect(url))).text

    pasted = iter(["nonsense"])

    async def paste() -> str:
        return next(pasted, None) or redirect(addresses._queue[0])  # type: ignore[attr-defined]

    await oauth.login(config, shown, paste if pastes else None)
    return addresses.get_nowait()


@pytest.mark.sample
@pytest.mark.parametrize("pastes", [True, False])
async def test_a_login_is_kept_and_refreshed_at_its_own_address(folder: Path, pastes: bool) -> None:
    authority = Authority()
    async with authority.serving() as config:
        configure(folder / "home" / "mcp.json", made={"url": config.url})
        async with session(folder) as one:
            assert one.state("made") == "login"
            assert one.host.told == [
                "The MCP server made needs a login. To log in, run kimi-tui mcp login made in a shell."
            ]
        assert authority.posts == []
        url = await log_in(config, pastes=pastes)
        assert url.startswith(f"{authority.base}/authorize?")
        keeping = oauth.Keeping(config)
        assert keeping.path.stat().st_mode & 0o77 == 0
        assert keeping.ends_at is not None
        assert keeping.ends_at > time.time() + 3000
        async with session(folder) as one:
            assert one.state("made") == "ready"
        # A token whose time is over is refreshed, in another run of the program, where the login said.
        authority.token = "second"
        keeping.change(ends_at=time.time() - 1)
        del authority.posts[:]
        async with session(folder) as one:
            assert one.state("made") == "ready"
        ((path, form),) = authority.posts
        assert (path, form["grant_type"]) == ("/elsewhere/token", "refresh_token")
        assert oauth.Keeping(config).read()["tokens"]["access_token"] == "second"
        # One that is refused although its time is not over needs the person.
        authority.token = "third"
        async with session(folder) as one:
            assert one.state("made") == "login"
        assert oauth.Keeping(config).forget()


async def test_a_login_is_not_for_an_unencrypted_address_elsewhere(folder: Path) -> None:
    async def shown(url: str) -> None:
        raise AssertionError(url)

    config = server_of("made", {"url": "http://10.255.255.1/mcp"}, folder / "mcp.json", "user")
    with pytest.raises(
        oauth.LoginFailed, match=r"its login would be sent to 10\.255\.255\.1 unenc"
    ):
        await oauth.login(config, shown)
    # A login that an earlier version kept is not sent either.
    oauth.Keeping(config).change(tokens={"access_token": "s3cret", "token_type": "Bearer"})
    configure(folder / "home" / "mcp.json", made={"url": config.url})
    async with session(folder) as one:
        assert one.state("made") == "failed"
        assert "its login would be sent" in one.servers.named("made").why


async def test_a_server_without_a_login_says_so(folder: Path) -> None:
    authority = Authority()
    async with authority.serving() as config:
        authority.token = "x"

        async def shown(url: str) -> None:
            raise AssertionError(url)

        with pytest.raises(oauth.LoginFailed, match="it needs no login"):
            await oauth.login(
                server_of(
                    "made",
                    {"url": config.url, "headers": {"Authorization": "Bearer x"}},
                    Path(),
                    "user",
                ),
                shown,
            )
