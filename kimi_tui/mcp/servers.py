"""`McpServers`: the servers of one session. Each has one task that connects, waits for its end, and connects again.

The tools of all servers come into the session together, once each is there or has failed, so that the beginning of requests
stays the same. A later change, by a server or the person, changes them again, except where they are called through
`CallTool`: then requests stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from kimi_tui.app_paths import log_file, short
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.mcp import package
from kimi_tui.mcp.config import BadEntry, Found, ServerConfig, check_encryption, check_url
from kimi_tui.mcp.permissions import Permissions, Yes, digest_of_tools
from kimi_tui.mcp.process import ServerStart, program_path
from kimi_tui.mcp.tools import (
    LAZY_SHARE,
    CallTool,
    FindTools,
    ServerTool,
    ToolFacts,
    facts_of,
)
from kimi_tui.tools.base import Tool, ToolEnv
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.process import child_environment
from kimi_tui.tools.sandbox.policy import NoSandbox, Policy
from kimi_tui.tools.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from kimi_tui.mcp.connection import Connection, Listed, ServerCallbacks

log = logging.getLogger(__name__)

State = Literal["off", "asks", "starting", "ready", "failed", "login"]
"""Switched off; waits for the person's yes; starts; connected; not running; needs a login."""
PATIENCE_S = 10.0
"""Seconds that a turn waits for servers that are still starting, where a person waits for the turn."""
_PAUSES_S = (1.0, 4.0, 15.0)
"""Seconds before each attempt to start a server that ended or could not be reached. After these it stays down."""
_STEADY_S = 60.0
"""Seconds after which a connection counts as steady, so that its end begins the pauses anew."""
_CHANGES_S = 0.3
_CALL_S = 600.0
_CLOSE_S = 12.0
_MOST_QUESTIONS = 10
"""Questions that a server may put during one call."""
_FETCHERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx", "docker", "podman"})
"""Programs that fetch what they run."""


class Host(Protocol):
    """The session, as the servers need it."""

    @property
    def work_dir(self) -> Path:
        """The work folder."""
        ...

    @property
    def results(self) -> Path:
        """The folder for results that are too long."""
        ...

    async def window(self) -> int:
        """Return the tokens of the context window; 0 if unknown."""
        ...

    async def sandbox(self) -> tuple[Sandbox | None, str]:
        """Return the sandbox of programs, and why there is none."""
        ...

    def change_tools(self, added: Iterable[Tool[Any]], removed: Collection[str]) -> None:
        """Change the tools of the session."""
        ...

    def tell(
        self,
        level: Literal["info", "warning", "error"],
        text: str,
        advice: str,
        topic: str,
        *,
        solved: bool,
    ) -> None:
        """Tell the person."""
        ...


class ServerRow(NamedTuple):
    """The facts about a server for the person.

    Attributes:
        config: the server.
        state: what it is doing.
        why: the reason, as a clause, or what it said of itself.
        place: where its program runs, in words.
        tools: its tools.
        off: the names of its tools that are switched off, as the server names them.
        n_prompts, n_resources: how many of these it has.
        is_withheld: whether its tools are other ones than the person allowed, so that the agent does not get them.
    """

    config: ServerConfig
    state: State
    why: str
    place: str
    tools: tuple[ToolFacts, ...]
    off: frozenset[str]
    n_prompts: int
    n_resources: int
    is_withheld: bool


class PromptFacts(NamedTuple):
    """A prompt of a server: its names, what it is for, and its arguments (name, whether it is required)."""

    server: str
    name: str
    about: str
    arguments: tuple[tuple[str, bool], ...]


class ResourceFacts(NamedTuple):
    """A resource of a server: its address and its name."""

    server: str
    uri: str
    name: str


@dataclass(slots=True)
class _Server:
    config: ServerConfig
    state: State = "starting"
    why: str = ""
    place: str = ""
    is_confined: bool = False
    missing: str = ""
    """Why the sandbox may keep it from starting, as a clause; empty for no reason."""
    tools: tuple[ToolFacts, ...] = ()
    is_withheld: bool = False
    off: frozenset[str] = frozenset()
    prompts: tuple[PromptFacts, ...] = ()
    resources: tuple[ResourceFacts, ...] = ()
    connection: Connection | None = None
    task: asyncio.Task[None] | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is connected, or will not be."""
    callers: list[ToolEnv] = field(default_factory=list[ToolEnv])
    n_questions: int = 0

    def stop(self) -> None:
        """Have it end: in order if it is connected, at once if it has not answered yet."""
        self.stopping.set()
        if self.task is not None and self.connection is None:
            self.task.cancel()


class McpServers:
    """The servers of one session.

    Args:
        found: the configured servers, and what could not be used.
        host: the session.
        environ: the environment of the program.
        permissions: what the person allowed.
        is_attended: whether a person is there who can be told what to do.
    """

    def __init__(
        self,
        found: Found,
        host: Host,
        environ: Mapping[str, str],
        permissions: Permissions,
        *,
        is_attended: bool = True,
    ) -> None:
        self._problems = found.problems
        self._host = host
        self._environ = environ
        self._permissions = permissions
        self._is_attended = is_attended
        self._servers = {one.name: _Server(one) for one in found.servers}
        self._installed: dict[str, Tool[Any]] = {}
        self._tools: dict[str, ServerTool] = {}
        self._is_lazy = False
        self._is_offering = False
        self._window = 0
        self._started_at = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._closed = False
        self._sandboxes: list[Sandbox] = []

    # -- what there is ---------------------------------------------------------------------------

    @property
    def rows(self) -> list[ServerRow]:
        """All servers, in the order of the files."""
        return [
            ServerRow(
                *(one.config, one.state, one.why, one.place, one.tools, one.off),
                *(len(one.prompts), len(one.resources), one.is_withheld),
            )
            for one in self._servers.values()
        ]

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about entries of files that cannot be used."""
        return self._problems

    @property
    def is_lazy(self) -> bool:
        """Whether the tools are called through `CallTool`."""
        return self._is_lazy

    @property
    def prompts(self) -> list[PromptFacts]:
        """The prompts of all connected servers."""
        return [one for server in self._servers.values() for one in server.prompts]

    @property
    def resources(self) -> list[ResourceFacts]:
        """The resources of all connected servers."""
        return [one for server in self._servers.values() for one in server.resources]

    # -- start and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start the servers, in the background."""
        self._started_at = time.monotonic()
        self._starting = asyncio.create_task(self._start(), name="mcp servers")

    async def settled(self) -> None:
        """Wait until every server is connected or has failed; where a person waits, `PATIENCE_S` after the start at most."""
        if self._starting is None or self._starting.done():
            return
        left = None
        if self._is_attended:
            left = max(self._started_at + PATIENCE_S - time.monotonic(), 0)
        done, _ = await asyncio.wait([self._starting], timeout=left)
        if not done:
            # A turn begins with the servers that are there; the others come later.
            await self._offer()

    async def started(self) -> None:
        """Wait until every server is connected or has failed."""
        if self._starting is not None:
            await asyncio.wait([self._starting])

    async def aclose(self) -> None:
        """End all servers with their processes."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
        tasks = [one.task for one in self._servers.values() if one.task is not None]
        for one in self._servers.values():
            one.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSE_S)
            for task in late:
                task.cancel()
        for sandbox in self._sandboxes:
            await asyncio.to_thread(sandbox.remove_temporary)

    async def _start(self) -> None:
        for words in self._problems:
            self._host.tell("warning", words, "", "", solved=False)
        waiting: list[str] = []
        for one in self._servers.values():
            if not one.config.enabled:
                one.state, one.why = "off", "its configuration file disables it"
                continue
            off, yes = await asyncio.to_thread(self._known, one.config)
            one.off = off
            if "" in off:
                one.state, one.why = "off", "you turned it off"
            elif yes is None:
                one.state, one.why = "asks", "this folder's server is not allowed yet"
                waiting.append(one.config.name)
            else:
                self._begin(one, yes)
        if waiting:
            self._tell_waiting(waiting)
        tasks = [
            asyncio.create_task(one.settled.wait()) for one in self._servers.values() if one.task
        ]
        if tasks:
            await asyncio.wait(tasks)
            await self._offer()
        self._is_offering = True

    async def _offer(self) -> None:
        """Put the tools into the session, and from now on every change of them."""
        self._window = self._window or await self._host.window()
        self._is_offering = True
        self._sync()

    def _known(self, config: ServerConfig) -> tuple[frozenset[str], Yes | None]:
        return self._permissions.switched_off(config), self._permissions.yes_to(config)

    def _tell_waiting(self, names: Sequence[str]) -> None:
        are, them = ("server is", "it") if len(names) == 1 else ("servers are", "them")
        shown = some_of(names, 5)
        if self._is_attended:
            advice = f"/mcp allow {names[0]} shows what it runs and asks whether to start it."
        else:
            advice = "Start kimi-tui in this folder and use /mcp allow NAME."
        self._host.tell(
            "warning",
            f"This folder's MCP {are} not started until you allow {them}: {shown}.",
            advice,
            "",
            solved=False,
        )

    def _begin(self, one: _Server, yes: Yes) -> None:
        one.state, one.why = "starting", ""
        one.stopping, one.settled = asyncio.Event(), asyncio.Event()
        one.task = asyncio.create_task(self._own(one, yes), name=f"mcp {one.config.name}")

    async def _stop(self, one: _Server) -> None:
        if one.task is not None:
            one.stop()
            await asyncio.wait([one.task], timeout=_CLOSE_S)
            one.task = None

    # -- one server ------------------------------------------------------------------------------

    async def _own(self, one: _Server, yes: Yes) -> None:
        """Connect to a server, again after each end, until it is stopped or has failed too often."""
        pauses = iter(_PAUSES_S)
        topic = f"mcp {one.config.name}"
        was_ready = False
        while not one.stopping.is_set():
            began = time.monotonic()
            connected = is_for_good = False
            try:
                connected = await self._connection(one, yes)
                why = one.why
            except asyncio.CancelledError:
                one.settled.set()
                one.news.set()
                raise
            except Exception as error:
                log.info("MCP server %s: %s", one.config.name, error)
                is_for_good = isinstance(error, BadEntry | package.NoPackage)
                why = str(error) if _is_failure(error) else f"{type(error).__name__}: {error}"
                why = one_line(why)[:500]
            one.connection = None
            if one.stopping.is_set() or self._closed:
                break
            if connected:
                was_ready = True
                if time.monotonic() - began > _STEADY_S:
                    pauses = iter(_PAUSES_S)
            pause = next(pauses, None) if was_ready or one.config.transport != "stdio" else None
            if one.state == "login" or is_for_good or pause is None:
                one.state = one.state if one.state == "login" else "failed"
                one.why = why
                self._tell_failed(one, topic)
                break
            one.state, one.why = "starting", f"{why}; restarting"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(one.stopping.wait(), pause)
        one.settled.set()
        one.news.set()

    def _tell_failed(self, one: _Server, topic: str) -> None:
        name = one.config.name
        if one.state == "login":
            advice = f"To log in, run kimi-tui mcp login {name} in a shell."
            if self._is_attended:
                advice = f"To log in, type /mcp login {name}."
            self._host.tell(
                "warning", f"The MCP server {name} needs a login.", advice, "", solved=False
            )
            return
        advice = f"/mcp restart {name} tries again." if self._is_attended else ""
        if one.why.startswith("MCP servers need"):
            words = one.why
        else:
            words = f"The MCP server {name} is not running: {one.why}."
        self._host.tell("warning", words, advice, "", solved=False)
        del topic

    async def _connection(self, one: _Server, yes: Yes) -> bool:
        """Connect, and stay until the server ends or is stopped; return whether it was connected.

        Raises:
            ConnectionFailed, NoPackage, BadEntry, OSError: it could not be connected.
        """
        await asyncio.to_thread(package.check)
        found = await asyncio.to_thread(_imported)
        config, unset = one.config.replaced(self._environ)
        if unset:
            raise BadEntry(f"environment variable not set: {some_of(list(unset), 3)}")
        start = None
        auth = None
        if config.transport == "stdio":
            start = await self._start_of(one, config, yes)
        else:
            check_url(config.url)
            check_encryption(config)
            one.place = f"at {_host_of(config.url)}"
            auth = await self._login_of(config)
        errors = log_file().parent / "mcp" / f"{config.name}.log"
        callbacks: ServerCallbacks = found.ServerCallbacks(
            partial(self._elicit, one), one.changed.set, [self._host.work_dir]
        )
        try:
            async with found.connected(config, start, errors, callbacks, auth) as connection:
                one.changed.clear()
                listed = await connection.listed()
                await self._take(one, listed)
                one.connection, one.state, one.why = connection, "ready", connection.version
                one.settled.set()
                one.news.set()
                if self._starting is not None and self._starting.done():
                    await self._offer()
                await self._serve(one, connection)
                if connection.ended.is_set():
                    one.why = connection.why
                return True
        except found.ConnectionFailed as failed:
            if type(failed.__cause__).__name__ == "LoginNeeded":
                one.state = "login"
            if (
                start is not None
                and self._may_need_network(config, yes)
                and "in time" in str(failed)
            ):
                raise found.ConnectionFailed(
                    f'{failed}; {os.path.basename(config.command)} downloads the program that it runs, but this server has no network access: set "network": true in its entry'
                ) from failed
            if start is not None and one.missing and not one.connection:
                raise found.ConnectionFailed(f"{failed}; {one.missing}") from failed
            raise

    def _may_need_network(self, config: ServerConfig, yes: Yes) -> bool:
        return not yes.network and os.path.basename(config.command) in _FETCHERS

    async def _serve(self, one: _Server, connection: Connection) -> None:
        """Wait for the end of a connection, and take changed lists meanwhile."""
        while not one.stopping.is_set() and not connection.ended.is_set():
            waits = [
                asyncio.create_task(event.wait())
                for event in (one.stopping, connection.ended, one.changed)
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()
            if one.changed.is_set() and not one.stopping.is_set() and not connection.ended.is_set():
                # Servers that change several things say so several times.
                await asyncio.sleep(_CHANGES_S)
                one.changed.clear()
                with contextlib.suppress(Exception):
                    await self._take(one, await connection.listed())
                    self._sync()

    async def _take(self, one: _Server, listed: Listed) -> None:
        """Take what a server offers; a project's server with other tools than the person allowed waits for another yes."""
        config = one.config
        one.tools, digest = await asyncio.to_thread(_read_tools, config, listed)
        one.prompts = tuple(
            PromptFacts(
                config.name,
                found.name,
                one_line((found.description or "")[:300]),
                tuple((arg.name, bool(arg.required)) for arg in (found.arguments or [])[:9]),
            )
            for found in listed.prompts
        )
        one.resources = tuple(
            ResourceFacts(config.name, found.uri, one_line(found.name[:100]))
            for found in listed.resources
        )
        if config.origin != "project":
            return
        yes = await asyncio.to_thread(self._permissions.yes_to, config)
        if yes is not None and not yes.tools:
            await asyncio.to_thread(self._permissions.note_tools, config, digest)
        elif yes is None or yes.tools != digest:
            if not one.is_withheld:
                how = f"/mcp allow {config.name} shows them and asks again."
                self._host.tell(
                    "warning",
                    f"The tools of this folder's MCP server {config.name} changed since you allowed them, so the agent cannot use them.",
                    how if self._is_attended else "",
                    "",
                    solved=False,
                )
            one.is_withheld = True
            return
        one.is_withheld = False

    async def _start_of(self, one: _Server, config: ServerConfig, yes: Yes) -> ServerStart:
        """Return how the program of a server is started: in the sandbox, where there is one.

        Raises:
            OSError, BadEntry: it cannot be started.
        """
        work_dir = self._host.work_dir
        folder = _folder(config, work_dir)
        sandbox, why_none = await self._host.sandbox()
        environ = {**child_environment(self._environ), **dict(config.env)}
        argv = [program_path(config.command, environ, folder, work_dir), *config.args]
        one.missing = ""
        if config.sandbox and sandbox is not None:
            if config.readable:
                settings = sandbox.settings
                readable = (*settings.readable, *config.readable)
                sandbox = Sandbox(
                    sandbox.backend,
                    settings._replace(readable=readable),
                    sandbox.environ,
                    sandbox.program,
                )
                self._sandboxes.append(sandbox)
            try:
                confined = await asyncio.to_thread(
                    sandbox.confined, argv, work_dir, network=yes.network
                )
            except NoSandbox as no:
                why_none = str(no)
            else:
                has_network = confined.policy.network
                one.missing = await asyncio.to_thread(_missing, argv, confined.policy)
                one.place = (
                    f"in the sandbox, {'with the network' if has_network else 'without network'}"
                )
                one.is_confined = sandbox.is_whole and not has_network
                environ = {**confined.environ, **dict(config.env)}
                return ServerStart(confined.argv, environ, folder, confined.words)
        one.is_confined = False
        one.place = "outside the sandbox, with your permissions"
        if config.sandbox and why_none:
            one.place = f"{one.place} ({one_line(why_none).rstrip('.')})"
        return ServerStart(tuple(argv), environ, folder)

    async def _login_of(self, config: ServerConfig) -> Any:
        """Return the login at the address of a server; None if it has a token or a header for that."""
        if any(name.lower() == "authorization" for name, _ in config.headers):
            return None
        oauth = await in_daemon_thread(import_module, "kimi_tui.mcp.oauth")
        return await asyncio.to_thread(oauth.kept_login, config)

    # -- questions of a server -------------------------------------------------------------------

    async def _elicit(self, one: _Server, params: Any) -> Any:
        """Have the person answer a question of a server, which it may put only during a call."""
        elicitation = import_module("kimi_tui.mcp.elicitation")
        one.n_questions += 1
        if not one.callers or one.n_questions > _MOST_QUESTIONS:
            return elicitation.declined()
        return await elicitation.answered(one.config.name, params, one.callers[-1].approver)

    # -- tools -----------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Put the tools of all servers into the session, as they are now. While the servers start, nothing is done: what
        they add one by one would change the beginning of the requests each time.
        """
        if self._closed or not self._is_offering:
            return
        offered = [
            facts
            for one in self._servers.values()
            if not one.is_withheld and one.state in ("ready", "starting", "failed")
            for facts in one.tools
            if facts.raw not in one.off
        ]
        self._tools = {
            facts.name: self._kept_or_new(facts)
            for facts in {one.name: one for one in offered}.values()
        }
        # Tools that are looked up stay so: the way back would change the beginning of the requests.
        total = sum(one.tokens for one in offered)
        self._is_lazy = self._is_lazy or 0 < self._window < total * LAZY_SHARE
        wanted: dict[str, Tool[Any]] = dict(self._tools)
        if self._is_lazy:
            # The two stay as they are, whatever changes behind them.
            wanted = {
                name: self._installed[name]
                for name in (FindTools.name, CallTool.name)
                if name in self._installed
            } or self._two(offered)
        if wanted == self._installed:
            return
        gone = [name for name in self._installed if wanted.get(name) is not self._installed[name]]
        kept = {name: tool for name, tool in self._installed.items() if name not in gone}
        added = [tool for name, tool in wanted.items() if name not in kept]
        try:
            self._host.change_tools(added, gone)
        except ValueError:
            log.exception("tools of MCP servers could not be added")
            return
        self._installed = wanted

    def _kept_or_new(self, facts: ToolFacts) -> ServerTool:
        known = self._tools.get(facts.name)
        if known is not None and known.facts == facts:
            return known
        return ServerTool(facts, self._call, self._place_of)

    def _two(self, offered: Sequence[ToolFacts]) -> dict[str, Tool[Any]]:
        named: dict[str, list[str]] = {}
        for one in offered:
            named.setdefault(one.server, []).append(one.name.split("__", 2)[-1])
        finds = FindTools(named, lambda: [tool.facts for tool in self._tools.values()])
        calls = CallTool(self._tool_named, lambda: [*self._tools][:500])
        return {finds.name: finds, calls.name: calls}

    def _tool_named(self, name: str) -> ServerTool | None:
        found = self._tools.get(name)
        if found is not None:
            return found
        return next(
            (t for t in self._tools.values() if f"{t.facts.server}/{t.facts.raw}" == name), None
        )

    def _place_of(self, server: str) -> tuple[str, bool]:
        one = self._servers[server]
        return one.place, one.is_confined

    async def _call(
        self, facts: ToolFacts, arguments: Mapping[str, Any], env: ToolEnv
    ) -> ToolOutcome:
        """Call a tool at its server; a server that is starting is waited for."""
        one = self._servers[facts.server]
        connection = await self._connected(one)
        results = import_module("kimi_tui.mcp.results")
        failed: type[Exception] = import_module("kimi_tui.mcp.connection").ConnectionFailed
        told = _Progress(env.emit)
        if not one.callers:
            one.n_questions = 0
        one.callers.append(env)
        try:
            answer = await connection.call(
                facts.raw, arguments, one.config.tool_timeout_s or _CALL_S, told
            )
        except failed as error:
            raise ToolProblem(
                f"The MCP server {facts.server} failed: {error}.", brief="failed"
            ) from error
        finally:
            one.callers.remove(env)
        return await results.outcome_of(
            answer, facts.server, env, env.results or self._host.results
        )

    async def _connected(self, one: _Server) -> Connection:
        """Return the connection of a server.

        Raises:
            ToolProblem: there is none.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(one.config.start_timeout_s):
                while _open(one) is None and one.state in ("starting", "ready"):
                    one.news.clear()
                    await one.news.wait()
        found = _open(one)
        if found is None:
            why = f": {one.why}" if one.why else ""
            raise ToolProblem(
                f"The MCP server {one.config.name} is not running{why}. The user can restart it.",
                brief="not running",
            )
        return found

    # -- prompts and resources -------------------------------------------------------------------

    async def prompt_text(self, server: str, name: str, words: Sequence[str]) -> str:
        """Return the text of a prompt, with its arguments filled in in their order.

        Raises:
            KeyError: there is no such prompt.
            ToolProblem: the server did not give it.
        """
        found = next(
            (one for one in self.prompts if (one.server, one.name) == (server, name)), None
        )
        if found is None:
            raise KeyError(f"The MCP server {server} has no prompt {name}.")
        values = dict(zip([arg for arg, _ in found.arguments], words, strict=False))
        if found.arguments and len(words) > len(found.arguments):
            last = found.arguments[-1][0]
            values[last] = " ".join(words[len(found.arguments) - 1 :])
        missing = [arg for arg, required in found.arguments if required and arg not in values]
        if missing:
            raise ToolProblem(f"/{server}:{name} needs {', '.join(missing)}.")
        connection = await self._connected(self._servers[server])
        results = import_module("kimi_tui.mcp.results")
        answer = await self._asked(server, connection.prompt(name, values))
        texts, _ = await results.parts_of([one.content for one in answer.messages], sees=False)
        return "\n\n".join(texts)

    async def resource_text(self, server: str, uri: str) -> str | None:
        """Return a resource as text; None if there is no such server, or it lists no resource that begins like this.

        Raises:
            ToolProblem: the server did not give it.
        """
        one = self._servers.get(server)
        if one is None:
            return None
        is_listed = any(found.uri == uri for found in one.resources)
        # A text with a colon need not be a resource, and an end of a sentence is no part of an address.
        if not is_listed and ("://" not in uri or uri[-1:] in ".,;:!?)]}'"):
            return None
        connection = await self._connected(one)
        results = import_module("kimi_tui.mcp.results")
        answer = await self._asked(server, connection.resource(uri))
        texts, _ = await results.resource_texts(answer.contents, sees=False)
        cut, told = await results.shortened(
            "\n".join(texts), None, self._host.results, self._environ
        )
        return f"{cut}\n{told}".rstrip()

    async def _asked(self, server: str, work: Awaitable[Any]) -> Any:
        failed: type[Exception] = import_module("kimi_tui.mcp.connection").ConnectionFailed
        try:
            return await work
        except failed as error:
            raise ToolProblem(f"The MCP server {server} failed: {error}.") from error

    # -- what the person changes -----------------------------------------------------------------

    def named(self, name: str) -> ServerRow:
        """Return a server.

        Raises:
            KeyError: there is none.
        """
        row = next((one for one in self.rows if one.config.name == name), None)
        if row is None:
            raise KeyError(name)
        return row

    async def allow(self, name: str, *, network: bool) -> None:
        """Note the person's yes to a project's server, with the tools that it has now, and start it.

        Raises:
            KeyError: there is no such server.
            OSError: the yes cannot be stored.
        """
        one = self._servers[name]
        digest = _digest(one.tools) if one.is_withheld else ""
        yes = Yes(network, digest)
        await asyncio.to_thread(self._permissions.allow, one.config, yes)
        one.is_withheld = False
        await self.restart(name)

    async def revoke(self, name: str) -> bool:
        """Take back the person's yes to a project's server, and stop it; return whether there was one.

        Args:
            name: its name; it need not be configured any more.

        Raises:
            OSError: this cannot be stored; the server runs on.
        """
        was_allowed = await asyncio.to_thread(self._permissions.revoke, name)
        one = self._servers.get(name)
        if was_allowed and one is not None and one.state != "off":
            await self.restart(name)
        return was_allowed

    async def restart(self, name: str) -> None:
        """Stop a server if it runs, start it, and wait until it is connected or has failed.

        Raises:
            KeyError: there is no such server.
        """
        one = self._servers[name]
        await self._stop(one)
        one.off, yes = await asyncio.to_thread(self._known, one.config)
        if yes is None:
            one.state, one.why = "asks", "this folder's server is not allowed yet"
        elif "" in one.off:
            one.state, one.why = "off", "you turned it off"
        else:
            self._begin(one, yes)
            await one.settled.wait()
        self._sync()

    async def login(
        self,
        name: str,
        shown: Callable[[str], Awaitable[None]],
        pasted: Callable[[], Awaitable[str | None]],
    ) -> str:
        """Log in at the address of a server, and start it again.

        Args:
            name: the name of the server.
            shown: shows the address of the login to the person.
            pasted: returns the address at which the browser ended, as the person pastes it; None if they gave up.

        Returns:
            why it failed, as a clause; empty if it did not.

        Raises:
            KeyError: there is no such server.
        """
        config, unset = self._servers[name].config.replaced(self._environ)
        if not config.url:
            return "it is a local program (no URL), so it needs no login"
        if unset:
            return f"environment variable not set: {some_of(list(unset), 3)}"
        try:
            await asyncio.to_thread(package.check)
            oauth = await in_daemon_thread(import_module, "kimi_tui.mcp.oauth")
        except package.NoPackage as no:
            return str(no)

        async def typed() -> str:
            text = await pasted()
            if text is None:
                raise oauth.LoginFailed("you cancelled it")
            return text

        try:
            await oauth.login(config, shown, typed)
        except oauth.LoginFailed as failed:
            return str(failed)
        await self.restart(name)
        return ""

    async def switch(self, name: str, tool: str, *, on: bool) -> None:
        """Switch a tool of a server on or off, or (an empty name) the whole server.

        Raises:
            KeyError: there is no such server or tool.
            OSError: it cannot be stored.
        """
        one = self._servers[name]
        if tool and tool not in {facts.raw for facts in one.tools}:
            raise KeyError(tool)
        off = one.off - {tool} if on else one.off | {tool}
        await asyncio.to_thread(self._permissions.switch_off, one.config, off)
        one.off = off
        if tool:
            self._sync()
        elif on:
            await self.restart(name)
        else:
            await self._stop(one)
            one.state, one.why = "off", "you turned it off"
            self._sync()


def _open(one: _Server) -> Connection | None:
    """Return the connection of a server that has not ended."""
    found = one.connection
    return found if found is not None and not found.ended.is_set() else None


class _Progress:
    """Shows a server's progress as output of the call, not more often than it can be read."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._said = ""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        of = f" of {total:g}" if total else ""
        said = one_line(f"{(message or '')[:200]} {progress:g}{of}")
        if said != self._said:
            self._said = said
            self._emit(f"{said}\n")


def _read_tools(config: ServerConfig, listed: Listed) -> tuple[tuple[ToolFacts, ...], str]:
    """Return the tools of a server that its entry lets through, and the digest of all. Schemas may be long: call it in a thread."""
    found: dict[str, ToolFacts] = {}
    for tool in listed.tools:
        facts = facts_of(config.name, tool.name, tool.description or "", tool.input_schema)
        found.setdefault(facts.name, facts)
    digest = _digest(found.values())
    chosen = (
        one
        for one in found.values()
        if (not config.enabled_tools or one.raw in config.enabled_tools)
        and one.raw not in config.disabled_tools
    )
    return tuple(chosen), digest


def _digest(tools: Iterable[ToolFacts]) -> str:
    return digest_of_tools((one.raw, one.description, one.schema) for one in tools)


def _imported() -> Any:
    """Import the package; call it in a thread."""
    import_module("kimi_tui.mcp.results")
    return import_module("kimi_tui.mcp.connection")


def _is_failure(error: Exception) -> bool:
    """Return whether the text of an error is for the person."""
    return (
        isinstance(error, BadEntry | package.NoPackage | OSError)
        or type(error).__name__ == "ConnectionFailed"
    )


def _host_of(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return one_line(parts.hostname or "")[:80]


def _folder(config: ServerConfig, work_dir: Path) -> Path:
    """Return the folder in which the program of a server runs."""
    return Path(os.path.normpath(work_dir / os.path.expanduser(config.cwd or ".")))


def _missing(argv: Sequence[str], policy: Policy) -> str:
    """Return a clause about a file that a command names and that it does not find in the sandbox; empty for none.

    It looks at files, so call it in a thread.
    """
    for word in argv:
        path = os.path.expanduser(word)
        if not os.path.isabs(path) or not os.path.lexists(path):
            continue
        real, shown = policy.real(path), one_line(short(Path(path)))[:200]
        if policy.hides(real):
            return f'the sandbox hides "{shown}": in the entry of this server, list a folder with everything that the server needs under "readable"'
        if Path(real).is_relative_to("/tmp") and not any(
            map(Path(real).is_relative_to, policy.writable)
        ):
            return (
                f'the sandbox has a /tmp of its own, without "{shown}": move that to another folder'
            )
    return ""
