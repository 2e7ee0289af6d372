"""`AgentHost`: an external agent over the life of a session: its program, its connection, and how far its sessions reach."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kimi_tui.app_paths import log_file
from kimi_tui.config.settings import ExternalAgentConfig
from kimi_tui.external.agents import AgentMissing, AgentProgram, agent_program, known_agents
from kimi_tui.external.connection import AgentConnection, AgentFailed, AgentSetting
from kimi_tui.external.model import AgentModel
from kimi_tui.external.places import AgentPlaces
from kimi_tui.external.servers import OfferedServers, offered_servers
from kimi_tui.external.serving import AgentServices
from kimi_tui.session.session import Session

_MOST_DELETED = 100
"""The copies of sessions that are deleted after one start of the program; others are deleted after the next one."""
_STUCK_S = 3.0
"""Seconds that an agent has to end a stopped prompt, before its program is started anew."""


class AgentHost:
    """The agent of a session. The program is started when it is first needed, and again after it has ended.

    Args:
        name: the name of the agent.
        arguments: further arguments of its program.
        configured: the agents of the configuration.
        session: the open session.
        model: stands for its model.
        environ: the environment of this program.

    Attributes:
        title: its name in sentences.
        connection: the connection; None before the first one.
        services: answers its requests.
        places: how far its sessions know the conversation.
        cost: what it says that its session has cost: the currency, and the amount; None if it does not say.
        on_news: called when it has said something of its settings.
        tell: shows the user a notice: a sentence, and another one about what follows from it.
        tells_servers: whether it is told of the user's MCP servers, if its configuration does not say no.
        offered: the servers that it was told of, and those that were left out.
        title_told: the title that it gave its session; empty for none.
        tidying: closes its other sessions and deletes copies; None before that has begun.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        configured: Mapping[str, ExternalAgentConfig],
        session: Session,
        model: AgentModel,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = name
        known = known_agents(configured).get(name)
        self.title = known.title if known is not None else name
        self.model = model
        self._arguments = tuple(arguments)
        self._configured = configured
        self._session = session
        self._environ = dict(environ)
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._ending: asyncio.Task[None] | None = None
        self.tidying: asyncio.Task[None] | None = None
        self._tidied: AgentConnection | None = None
        self.connection: AgentConnection | None = None
        self.services: AgentServices | None = None
        self.on_news: Callable[[], object] = bool
        self._wanted: dict[str, str] = {}
        self._told: set[str] = set()
        self.tell: Callable[[str, str], object] = _no_notice
        self.tells_servers = True
        self.offered = OfferedServers()
        self.cost: tuple[str, float] | None = None
        self.title_told = ""
        self.places = AgentPlaces(session.dir, session.storage, name)

    async def program(self) -> AgentProgram:
        """Return the program.

        Raises:
            AgentFailed: it is not installed.
        """
        try:
            return await asyncio.to_thread(
                agent_program,
                self.name,
                self._arguments,
                self._configured,
                self._environ,
                self._session.work_dir,
            )
        except AgentMissing as missing:
            raise AgentFailed(
                str(missing),
                advice="To continue with another agent, run kimi-tui --external-agent NAME --continue.",
            ) from missing

    async def connected(self) -> AgentConnection:
        """Return the connection to the running agent, which is started if it does not run.

        Raises:
            AgentFailed: it cannot be started.
        """
        async with self._starting:
            connection = self.connection
            if connection is not None and connection.is_open:
                if await connection.free(_STUCK_S):
                    return connection
                # It does not end a prompt that was stopped: another one would wait for it.
                await connection.close()
            assert self.services is not None
            if self._is_closed:
                raise AgentFailed("The session is being closed.")
            program = await self.program()
            made = AgentConnection(
                program, self._session.work_dir, log_of(self.name), self.services
            )
            made.on_facts = self.on_facts
            self.services.connection = self.connection = made
            try:
                await made.start()
            except asyncio.CancelledError:
                # A stop does not wait for the end of the program.
                self._ending = asyncio.create_task(made.close(), name="end an agent")
                raise
            except BaseException:
                await made.close()
                raise
            self.model.learn(sees=made.abilities.sees)
            if program.mcp and self.tells_servers:
                able = made.abilities
                self.offered = await asyncio.to_thread(
                    partial(offered_servers, http=able.http, sse=able.sse),
                    self._session.work_dir,
                    self._environ,
                )
                made.servers = self.offered.servers
                self._tell_left_out(self.offered)
            return made

    def _tell_left_out(self, offered: OfferedServers) -> None:
        """Say once which MCP servers the agent is not told of."""
        words = offered.left_out_words(self.title)
        if words and words not in self._told:
            self._told.add(words)
            self.tell(words, "/external-agent lists the MCP servers that the agent gets.")

    def on_facts(self) -> None:
        """Take over what the agent says of its settings."""
        connection = self.connection
        if connection is not None and (setting := connection.setting("model")) is not None:
            # Some agents shorten names so far that they say nothing.
            name = setting.shown if len(setting.shown) > 2 else setting.value
            self.model.learn(name=name)
        self.on_news()

    async def set(self, setting: AgentSetting, value: str) -> None:
        """Change a setting, also of the sessions that follow.

        Raises:
            AgentFailed: the agent refuses.
        """
        if self.connection is None:
            raise AgentFailed(f"{self.title} is not running.")
        await self.connection.set(setting, value)
        self._wanted[setting.id] = value
        self.on_facts()

    async def renew_settings(self, connection: AgentConnection) -> None:
        """Give a session that has just begun the settings that the user chose before, as far as the agent takes them."""
        for name, value in self._wanted.items():
            setting = connection.facts.settings.get(name)
            if setting is not None and setting.value != value:
                with contextlib.suppress(AgentFailed):
                    await connection.set(setting, value)
        self.on_facts()

    @property
    def settings(self) -> tuple[AgentSetting, ...]:
        """The settings that the agent offers, as far as it has said."""
        return tuple(self.connection.facts.settings.values()) if self.connection else ()

    def setting(self, category: str) -> AgentSetting | None:
        """Return the setting of a category (`mode`, `model`); None if the agent has not offered one."""
        return self.connection.setting(category) if self.connection else None

    def tidy(self, connection: AgentConnection) -> None:
        """Begin to close sessions that are not in use, and once for each start of the program to delete copies that no world line needs."""
        if self.tidying is None or self.tidying.done():
            self.tidying = asyncio.create_task(self._tidy(connection), name="tidy sessions")

    async def _tidy(self, connection: AgentConnection) -> None:
        await connection.leave_others()
        if not connection.abilities.deletes or connection is self._tidied:
            return
        self._tidied = connection
        unneeded = await self.places.unneeded(self._session, connection.session)
        try:
            for session in unneeded[:_MOST_DELETED]:
                if connection.session != session:
                    with contextlib.suppress(AgentFailed):
                        await connection.delete(session)
                    self.places.forget_copy(session)
        finally:
            if unneeded:
                await asyncio.to_thread(self.places.write)

    async def close(self) -> None:
        """End the program."""
        self._is_closed = True
        if self.tidying is not None:
            self.tidying.cancel()
            await asyncio.wait([self.tidying])
        if self._ending is not None:
            await asyncio.wait([self._ending])
        if self.connection is not None:
            await self.connection.close()


def _no_notice(text: str, advice: str) -> None:
    """Tell nobody."""


def log_of(name: str) -> Path:
    """Return the file for what the program of an agent writes to standard error."""
    return log_file().parent / "agents" / f"{name}.log"
