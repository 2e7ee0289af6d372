"""One connection to a server: it is opened, served and closed in one task, as the package `mcp` demands.

This module imports that package, so it is imported in a thread with the first connection. Calls come from any task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import ValidationError

from kimi_tui.app_paths import reason_of
from kimi_tui.foreign_text import one_line
from kimi_tui.mcp.config import ServerConfig
from kimi_tui.mcp.oauth import client_of
from kimi_tui.mcp.process import ServerStart
from kimi_tui.mcp.transport import StdioTransport, as_transport, repaired
from kimi_tui.program import VERSION

if TYPE_CHECKING:
    from mcp.client.client import ConnectMode
    from mcp.client.session import ClientRequestContext
    from mcp.shared.dispatcher import ProgressFnT

log = logging.getLogger(__name__)

# The warning would be printed over the screen.
warnings.simplefilter("ignore", MCPDeprecationWarning)
logging.getLogger("mcp").setLevel(logging.ERROR)

_MOST_PAGES = 50
_MOST_LISTED = 2_000
_MODERN_ONLY = -32022
"""The error of a server that speaks none of the handshake's versions."""
_LONGEST_EVENT = 64 << 20
_HTTP_S = 30.0
_LONGEST_WORDS = 300

Elicit = Callable[[mcp_types.ElicitRequestParams], Awaitable[mcp_types.ElicitResult]]


class ConnectionFailed(Exception):
    """A server could not be reached, or the connection is gone; the text says why, as a clause."""


class Listed(NamedTuple):
    """The things that a server offers."""

    tools: tuple[mcp_types.Tool, ...] = ()
    prompts: tuple[mcp_types.Prompt, ...] = ()
    resources: tuple[mcp_types.Resource, ...] = ()


class ServerCallbacks(NamedTuple):
    """The functions with which a server reaches the person and the program.

    `elicit` answers a question of the server, `changed` is called when it says that its lists have changed, `roots` are the
    folders that it is told of.
    """

    elicit: Elicit
    changed: Callable[[], None]
    roots: Sequence[Path] = ()


class Connection:
    """An open connection.

    Args:
        client: the package's client.
        ended: set when the server has ended.
        why: returns how it ended.
    """

    def __init__(self, client: Client, ended: asyncio.Event, why: Callable[[], str]) -> None:
        self._client = client
        self.ended = ended
        self._why = why

    @property
    def why(self) -> str:
        """How the connection ended, as a clause."""
        return self._why() or "the connection was closed"

    @property
    def version(self) -> str:
        """The server's name and version, and the version of the protocol."""
        info = self._client.server_info
        named = one_line(f"{info.name} {info.version}")[:80] if info is not None else ""
        return f"{named}, protocol {self._client.protocol_version}".lstrip(", ")

    @property
    def instructions(self) -> str:
        """The server's description of itself for the model; may be empty."""
        return self._client.instructions or ""

    async def listed(self) -> Listed:
        """Return what the server offers; what it does not support is empty.

        Raises:
            ConnectionFailed: it does not answer.
        """
        can = self._client.server_capabilities
        client = self._client
        tools: list[mcp_types.Tool] = []
        prompts: list[mcp_types.Prompt] = []
        resources: list[mcp_types.Resource] = []
        with _failures(self):
            if can.tools is not None:
                async for page in _pages(client.list_tools):
                    tools += page.tools
            # A server that fails at these keeps its tools.
            with contextlib.suppress(MCPError, ValueError, TimeoutError):
                if can.prompts is not None:
                    async for page in _pages(client.list_prompts):
                        prompts += page.prompts
            with contextlib.suppress(MCPError, ValueError, TimeoutError):
                if can.resources is not None:
                    async for page in _pages(client.list_resources):
                        resources += page.resources
        return Listed(
            tuple(tools[:_MOST_LISTED]),
            tuple(prompts[:_MOST_LISTED]),
            tuple(resources[:_MOST_LISTED]),
        )

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout_s: float,
        progress: ProgressFnT | None = None,
    ) -> mcp_types.CallToolResult:
        """Call a tool. Cancelled, it tells the server so.

        Raises:
            ConnectionFailed: the server answered with an error, or not at all.
        """
        with _failures(self):
            return await self._client.call_tool(
                name, dict(arguments), read_timeout_seconds=timeout_s, progress_callback=progress
            )

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> mcp_types.GetPromptResult:
        """Return the messages of a prompt.

        Raises:
            ConnectionFailed: the server answered with an error, or not at all.
        """
        with _failures(self):
            return await self._client.get_prompt(name, dict(arguments))

    async def resource(self, uri: str) -> mcp_types.ReadResourceResult:
        """Return a resource.

        Raises:
            ConnectionFailed: the server answered with an error, or not at all.
        """
        with _failures(self):
            return await self._client.read_resource(uri)


async def _pages(ask: Callable[..., Awaitable[Any]]) -> AsyncGenerator[Any]:
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(_MOST_PAGES):
        page = await ask(cursor=cursor)
        yield page
        cursor = page.next_cursor
        if not cursor or cursor in seen:
            return
        seen.add(cursor)


@contextlib.contextmanager
def _failures(connection: Connection) -> Generator[None]:
    """Turn the errors of the package into `ConnectionFailed`."""
    try:
        yield
    except MCPError as error:
        if connection.ended.is_set():
            raise ConnectionFailed(connection.why) from error
        raise ConnectionFailed(words_of(error)) from error
    except TimeoutError as error:
        raise ConnectionFailed("it did not answer in time") from error
    except (ValueError, RuntimeError, OSError, httpx2.HTTPError) as error:
        raise ConnectionFailed(words_of(error)) from error


@asynccontextmanager
async def connected(
    config: ServerConfig,
    start: ServerStart | None,
    errors: Path,
    callbacks: ServerCallbacks,
    auth: httpx2.Auth | None = None,
) -> AsyncGenerator[Connection]:
    """Open a connection. Enter and leave it in the same task, and do not cancel the task while it is open.

    Args:
        config: the server, with variables replaced.
        start: how its program is started; None for a server with an address.
        errors: the file for the standard error of its program.
        callbacks: the functions for the server.
        auth: the login at its address; None for none.

    Raises:
        ConnectionFailed: it could not be opened.
    """
    modes: list[ConnectMode] = ["legacy", "auto"] if start is None else ["legacy"]
    for mode in modes:
        stack = contextlib.AsyncExitStack()
        try:
            opened = await stack.enter_async_context(
                _opened(config, start, errors, callbacks, auth, mode)
            )
        except ConnectionFailed as failed:
            cause = failed.__cause__
            code = cause.error.code if isinstance(cause, MCPError) else 0
            if code == _MODERN_ONLY and mode != modes[-1]:
                continue
            raise
        async with stack:
            yield opened
        return


@asynccontextmanager
async def _opened(
    config: ServerConfig,
    start: ServerStart | None,
    errors: Path,
    callbacks: ServerCallbacks,
    auth: httpx2.Auth | None,
    mode: ConnectMode,
) -> AsyncGenerator[Connection]:
    ended = asyncio.Event()
    program = StdioTransport(start, errors) if start is not None else None
    if program is not None:
        ended = program.ended

    async def on_elicit(
        context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        return await callbacks.elicit(params)

    async def on_roots(context: ClientRequestContext) -> mcp_types.ListRootsResult:
        roots = [
            mcp_types.Root.model_validate({"uri": folder.as_uri(), "name": folder.name})
            for folder in callbacks.roots
        ]
        return mcp_types.ListRootsResult(roots=roots)

    async def on_message(message: object) -> None:
        if isinstance(
            message,
            mcp_types.ToolListChangedNotification
            | mcp_types.PromptListChangedNotification
            | mcp_types.ResourceListChangedNotification,
        ):
            callbacks.changed()

    async with contextlib.AsyncExitStack() as stack:
        try:
            if program is not None:
                transport: object = program
            else:
                transport = await _http(stack, config, auth, ended)
            client = await stack.enter_async_context(
                Client(
                    as_transport(transport),
                    mode=mode,
                    read_timeout_seconds=config.start_timeout_s,
                    elicitation_callback=on_elicit,
                    list_roots_callback=on_roots,
                    message_handler=on_message,
                    client_info=mcp_types.Implementation(name="kimi-tui", version=VERSION),
                    cache=None,
                )
            )
        except BaseException as error:
            if program is not None and program.why:
                raise ConnectionFailed(program.why) from error
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                raise
            inner = innermost(error)
            raise ConnectionFailed(words_of(inner)) from inner
        try:
            yield Connection(client, ended, lambda: program.why if program is not None else "")
        finally:
            with contextlib.suppress(Exception):
                await stack.aclose()


async def _http(
    stack: contextlib.AsyncExitStack,
    config: ServerConfig,
    auth: httpx2.Auth | None,
    ended: asyncio.Event,
) -> object:
    """Return the transport of a server with an address. Redirects to other hosts are not followed by the package."""
    if config.transport == "sse":

        def client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return client_of(config, headers, timeout, auth)

        made = sse_client(
            config.url,
            headers=dict(config.headers),
            timeout=_HTTP_S,
            sse_read_timeout=max(config.tool_timeout_s, 3600.0),
            httpx_client_factory=client,
            auth=auth,
        )
        return repaired(made, ended.set)
    timeout = httpx2.Timeout(_HTTP_S, read=max(config.tool_timeout_s, 3600.0))
    http = await stack.enter_async_context(client_of(config, dict(config.headers), timeout, auth))
    made = streamable_http_client(config.url, http_client=http, max_sse_event_size=_LONGEST_EVENT)
    return repaired(made, ended.set)


def innermost(error: BaseException) -> BaseException:
    """Return the first error inside nested groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def words_of(error: BaseException) -> str:
    """Return the reason of an error as a clause for the person, without lines and terminal sequences."""
    error = innermost(error)
    if isinstance(error, httpx2.HTTPStatusError):
        return f"its address answered with HTTP status {error.response.status_code}"
    if isinstance(error, httpx2.ConnectError):
        return "nothing answers at its address"
    if isinstance(error, TimeoutError | httpx2.TimeoutException) or (
        isinstance(error, MCPError) and error.error.code == mcp_types.REQUEST_TIMEOUT
    ):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return f"it could not be started: {reason_of(error)}"
    if isinstance(error, ValidationError):
        return "its answer does not follow the protocol"
    text = one_line(str(error))[:_LONGEST_WORDS] or type(error).__name__
    return f'it says "{text.rstrip(".")}"' if isinstance(error, MCPError) else text.rstrip(".")
