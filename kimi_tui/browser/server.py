"""`serve`: serves the app to browsers. Each tab is a terminal with a process of its own, or looks on at the newest one.

Only whoever knows the token gets a terminal. A page of another site cannot connect, since the browser names its origin; nor
can a name that was made to point here (DNS rebinding), since the host is compared. Nothing on the page is from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import textual_serve
from aiohttp import WSCloseCode, WSMsgType, web

from kimi_tui.browser.terminal import BrowserTerminal, Watching
from kimi_tui.program import DONE, INTERRUPTED, TERMINATED

log = logging.getLogger(__name__)

MOST_TERMINALS = 8
"""The largest number of tabs at a time: each is a process of some 80 MB."""
MOST_MESSAGE_BYTES = 4_000_000
"""The largest message of a tab, which is a paste."""
_PAGE = Path(__file__).parent / "page"
_STATIC = Path(textual_serve.__file__).parent / "static"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Served(NamedTuple):
    """The contents that are served, by their paths.

    Attributes:
        arguments: the arguments of the app in each tab.
        work_dir: the folder in which it starts.
        host: the address of this machine on which the server listens.
        port: its port; 0 for a free one.
    """

    arguments: Sequence[str]
    work_dir: str
    host: str = "127.0.0.1"
    port: int = 0


class BrowserServer:
    """The server.

    Args:
        served: what it serves.

    Attributes:
        token: the secret of this run.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self.token = secrets.token_urlsafe(32)
        self._hosts: frozenset[str] = frozenset()
        self._terminals: dict[BrowserTerminal, None] = {}
        """In the order in which they were started."""
        self._n_watching = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Begin to listen; return the address to open, with the token.

        Raises:
            OSError: the address or the port cannot be used.
        """
        app = web.Application(middlewares=[self._guard], client_max_size=1024)
        app.router.add_get("/", self._index)
        app.router.add_get("/ws/{token}", self._terminal)
        app.router.add_static("/page", _PAGE)
        app.router.add_static("/static", _STATIC)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._served.host, self._served.port)
        await site.start()
        port = int(self._runner.addresses[0][1])
        named = f"[{self._served.host}]" if ":" in self._served.host else self._served.host
        self._hosts = frozenset(f"{host}:{port}" for host in (named, *_LOOPBACK))
        return f"http://{named}:{port}/#{self.token}"

    async def aclose(self) -> None:
        """End all terminals, and stop listening."""
        await asyncio.gather(*(one.aclose() for one in list(self._terminals)))
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse what names another host, and give every answer the headers that keep the page alone."""
        if request.headers.get("Host", "") not in self._hosts:
            return web.Response(
                status=403,
                text="This address does not belong to this server. Open the address that kimi-tui serve printed.\n",
            )
        try:
            response = await handler(request)
        except web.HTTPException as refused:
            response = web.Response(status=refused.status, text=f"{refused.reason}\n")
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    async def _index(self, _request: web.Request) -> web.StreamResponse:
        return web.FileResponse(_PAGE / "index.html", headers=_HEADERS)

    async def _terminal(self, request: web.Request) -> web.StreamResponse:
        origin = request.headers.get("Origin", "")
        if origin.removeprefix("http://") not in self._hosts or not origin.startswith("http://"):
            return web.Response(
                status=403,
                text="A page from another address may not open a terminal here. Open the address that kimi-tui serve printed.\n",
            )
        given = request.match_info["token"].encode("utf-8", "replace")
        if not secrets.compare_digest(given, self.token.encode()):
            return web.Response(
                status=403,
                text="The token in the address is wrong. Open the address that kimi-tui serve printed.\n",
            )
        is_watching = "watch" in request.query
        if (self._n_watching if is_watching else len(self._terminals)) >= MOST_TERMINALS:
            return web.Response(
                status=503, text=f"At most {MOST_TERMINALS} tabs can be open. Close one of them.\n"
            )
        if is_watching:
            return await self._watch(request)
        size = (_cells(request, "width", 80), _cells(request, "height", 24))
        try:
            terminal = BrowserTerminal(self._served.arguments, self._served.work_dir, size)
        except OSError as error:
            log.warning("a tab got no terminal: %s", error)
            return web.Response(
                status=503,
                text="kimi-tui could not be started for this tab. See the terminal in which kimi-tui serve runs.\n",
            )
        self._terminals[terminal] = None
        socket = web.WebSocketResponse(heartbeat=15, max_msg_size=MOST_MESSAGE_BYTES)
        try:
            await socket.prepare(request)
            showing = asyncio.create_task(_show(terminal, socket))
            try:
                await _listen(terminal, socket)
            finally:
                showing.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await showing
        finally:
            await terminal.aclose()
            self._terminals.pop(terminal, None)
        return socket

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """Show the newest terminal to another tab, which may type nothing."""
        socket = web.WebSocketResponse(heartbeat=15, max_msg_size=1 << 16)
        self._n_watching += 1
        try:
            await socket.prepare(request)
            terminal = next(reversed(self._terminals), None)
            if terminal is None:
                await socket.close(code=WSCloseCode.OK)
                return socket
            size = _cells(request, "width", 80), _cells(request, "height", 24)
            async with terminal.watched(*size) as watching:
                showing = asyncio.create_task(_show(watching, socket))
                try:
                    await _listen(terminal, socket, watching)
                finally:
                    showing.cancel()
                    with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                        await showing
        finally:
            self._n_watching -= 1
        return socket


async def _show(terminal: BrowserTerminal | Watching, socket: web.WebSocketResponse) -> None:
    async for data in terminal.output():
        await socket.send_bytes(data)
    await socket.close(code=WSCloseCode.OK)


async def _listen(
    terminal: BrowserTerminal, socket: web.WebSocketResponse, watching: Watching | None = None
) -> None:
    """Carry out the messages of a tab until it is closed. One that has another form is ignored, and what a tab types that only
    looks on.
    """
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        try:
            found: object = json.loads(message.data)
        except (ValueError, RecursionError):
            continue
        match found:
            case ["stdin", str(text)] if watching is None:
                await terminal.type(text.encode("utf-8", "replace"))
            case ["resize", {"width": int(columns), "height": int(rows)}]:  # pyrefly: ignore[not-callable]
                terminal.resize(columns, rows, watching)
            case ["ping", str(text)]:
                await socket.send_json(["pong", text[:40]])
            case _:
                continue


def _cells(request: web.Request, name: str, otherwise: int) -> int:
    given = request.query.get(name, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 6 else otherwise


def serve(served: Served, tell: Callable[[str], None]) -> int:
    """Serve until a signal ends it; return the exit code.

    Args:
        served: what is served.
        tell: called with the address to open.

    Raises:
        OSError: the address or the port cannot be used.
    """
    return asyncio.run(_serve(served, tell))


async def _serve(served: Served, tell: Callable[[str], None]) -> int:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    for number, code in (
        (signal.SIGINT, INTERRUPTED),
        (signal.SIGTERM, TERMINATED),
        (signal.SIGHUP, TERMINATED),
    ):
        asyncio.get_running_loop().add_signal_handler(number, _end, ended, code)
    server = BrowserServer(served)
    try:
        tell(await server.start())
        code = await ended
    finally:
        await server.aclose()
    return DONE if code == INTERRUPTED else code


def _end(ended: asyncio.Future[int], code: int) -> None:
    if not ended.done():
        ended.set_result(code)
