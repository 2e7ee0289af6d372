"""A web server on real sockets whose every answer is scripted, byte by byte, and a fetcher that takes it for the public internet."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kimi_tui.tools.web.addresses import IPAddress
from kimi_tui.tools.web.fetching import PageFetcher

PUBLIC, PRIVATE = "127.0.0.1", "127.0.0.2"
"""The addresses that `fetcher` takes for one of the public internet, and for one of a private network."""
Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(
    body: bytes | str = b"",
    content_type: str = "text/html",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return a whole answer."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Words", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def redirect(to: str, status: int = 302) -> bytes:
    """Return an answer that sends the client elsewhere."""
    return answer("", "", status, {"Location": to})


class PageServer:
    """A server with pages by path.

    Attributes:
        pages: the answers by path: bytes, or what is called with the connection.
        requests: the heads of the requests so far.
        reached: the addresses at which they came in.
    """

    def __init__(
        self, context: ssl.SSLContext | None = None, hosts: Sequence[str] = (PUBLIC,)
    ) -> None:
        self.pages: dict[str, bytes | Talk] = {}
        self.requests: list[str] = []
        self.reached: list[str] = []
        self.port = 0
        self._context = context
        self._hosts = hosts
        self._server: asyncio.Server | None = None

    def url(self, path: str = "/", host: str = "docs.example") -> str:
        """Return the URL of a path, under a name that `fetcher` resolves."""
        return f"{'https' if self._context else 'http'}://{host}:{self.port}{path}"

    async def __aenter__(self) -> PageServer:
        self._server = await asyncio.start_server(self._serve, self._hosts[0], 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.requests.append(head)
            self.reached.append(writer.get_extra_info("sockname")[0])
            path = head.split(" ", 2)[1].partition("?")[0]
            page = self.pages.get(path, answer("<h1>Not here</h1>", status=404))
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


def fetcher(
    names: Mapping[str, Sequence[str]] | None = None,
    trusted: Callable[[Mapping[str, str]], ssl.SSLContext] | None = None,
) -> PageFetcher:
    """Return a fetcher for which this machine is the public internet.

    Args:
        names: the addresses of hosts, one list for each time that the name is resolved; every other host is at `PUBLIC`.
        trusted: returns the certificates to trust.
    """
    times: dict[str, int] = {}

    async def resolve(host: str, port: int) -> list[str]:
        given = (names or {}).get(host, (host if host[0].isdigit() else PUBLIC,))
        turn = times[host] = times.get(host, -1) + 1
        return given[min(turn, len(given) - 1)].split()

    def may_connect(address: IPAddress) -> bool:
        return str(address) == PUBLIC

    return PageFetcher(resolve, may_connect, *([trusted] if trusted else []))
