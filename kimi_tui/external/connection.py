"""`AgentConnection`: the program of an external agent with one session of it, by the client side of the Agent Client Protocol.

Its updates are put into a queue in the order in which they came; the turn that runs takes them out. Errors are `AgentFailed`, in
sentences for the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import acp
from acp import RequestError, schema
from pydantic import ValidationError

from kimi_tui import lenient_json
from kimi_tui.app_paths import reason_of
from kimi_tui.external.agents import AgentProgram
from kimi_tui.external.pipe import AgentPipe
from kimi_tui.external.places import AgentPlace
from kimi_tui.external.servers import Server
from kimi_tui.foreign_text import one_line
from kimi_tui.program import VERSION
from kimi_tui.soul.errors import SoulError

T = TypeVar("T")
log = logging.getLogger(__name__)

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)
_START_S = 90.0
"""Seconds for the first answer: some agents look for updates first."""
_ANSWER_S = 60.0
"""Seconds for every other answer but that to a prompt."""
_DELETE_S = 10.0
"""Seconds for the answer to the closing or deletion of a session, for which nobody waits."""
_MOST_AHEAD = 2_000
"""Updates that wait to be shown; the agent waits then."""
_AUTH_REQUIRED = -32000
_METHOD_MISSING = -32601
_LONGEST = 300
"""Characters of what an agent says of an error."""
_MOST_CHOICES = 200


class AgentFailed(SoulError):
    """The external agent could not do what was asked of it."""


class AgentChoice(NamedTuple):
    """A value of a setting of the agent."""

    value: str
    name: str
    help: str = ""


class AgentSetting(NamedTuple):
    """A setting that the agent offers: its mode, its model, or another one.

    Attributes:
        id: its id at the agent.
        name: its name on the screen.
        category: what it is (`mode`, `model`, `thought_level`); empty for anything else.
        value: the current value.
        choices: the values.
    """

    id: str
    name: str
    category: str
    value: str
    choices: tuple[AgentChoice, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values."""
        return tuple(one.name for one in self.choices)

    @property
    def shown(self) -> str:
        """The name of the current value."""
        return next((one.name for one in self.choices if one.value == self.value), self.value)


@dataclass(slots=True)
class Abilities:
    """The abilities of the agent, as it named them at the start.

    Attributes:
        loads: whether it opens an earlier session and repeats its messages; `resumes`, whether it does so without repeating.
        forks: whether it copies a session.
        sees: whether prompts may have images.
        closes: whether sessions can be closed.
        deletes: whether sessions can be deleted.
        http, sse: whether it connects to MCP servers in these ways.
        version: its version; empty if it does not say.
        logins: what it says about logging in.
    """

    loads: bool = False
    resumes: bool = False
    forks: bool = False
    sees: bool = False
    closes: bool = False
    deletes: bool = False
    http: bool = False
    sse: bool = False
    version: str = ""
    logins: tuple[str, ...] = ()


@dataclass(slots=True)
class AgentFacts:
    """The facts that the agent tells of its session: settings, commands, title."""

    settings: dict[str, AgentSetting] = field(default_factory=dict[str, AgentSetting])
    commands: tuple[tuple[str, str], ...] = ()
    title: str = ""


class AgentConnection:
    """A running agent.

    Args:
        program: its program.
        work_dir: the folder in which it works.
        errors: the file for what it writes to standard error.
        serves: answers its requests, as a client of the package.

    Attributes:
        session: the id of the session in use; empty before there is one.
        is_fresh: whether no prompt was sent in that session since it was begun, opened or copied.
        begun_at: the place at which it was opened or copied; None for a new one.
        abilities: what it can do.
        facts: what it says of the session.
        servers: the MCP servers that it is told of.
        on_facts: called when the agent has changed a setting, its commands or the title.
    """

    def __init__(
        self, program: AgentProgram, work_dir: Path, errors: Path, serves: acp.Client
    ) -> None:
        self.program = program
        self._work_dir = str(work_dir)
        self._serves = serves
        self._room = asyncio.Event()
        self._pipe = AgentPipe(program, work_dir, errors, self._has_room)
        self._agent: acp.Agent | None = None
        self._prompting: asyncio.Task[schema.PromptResponse] | None = None
        self._repeats = False
        """Whether the agent repeats messages that are in the context already."""
        self._is_read = False
        """Whether somebody reads the updates."""
        self.on_facts: Callable[[], object] = bool
        self.session = ""
        self.is_fresh = False
        self.begun_at: AgentPlace | None = None
        self.abilities = Abilities()
        self.facts = AgentFacts()
        self.servers: Sequence[Server] = ()
        self._open: dict[str, None] = {}
        """The sessions that are open at the agent, in the order in which they were opened."""
        self._updates: deque[Any] = deque()
        self._news = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the program runs and answered."""
        return self._agent is not None and not self._pipe.ended.is_set()

    @property
    def is_busy(self) -> bool:
        """Whether a prompt has no answer yet."""
        return self._prompting is not None and not self._prompting.done()

    @property
    def n_skipped(self) -> int:
        """The number of lines of the agent that were no messages."""
        return self._pipe.n_skipped

    async def _has_room(self) -> None:
        while len(self._updates) >= _MOST_AHEAD and not self._pipe.ended.is_set():
            self._room.clear()
            await self._room.wait()

    def note(self, session: str, update: Any) -> None:
        """Take an update of the agent: a fact at once, anything else into the queue."""
        if self.session and session != self.session and not self._repeats:
            return
        match update:
            case schema.CurrentModeUpdate(current_mode_id=mode):
                self._took_mode(mode)
            case schema.ConfigOptionUpdate(config_options=options):
                self._take_settings(options)
            case schema.AvailableCommandsUpdate(available_commands=commands):
                self.facts.commands = tuple(
                    (one_line(one.name)[:60], one_line(one.description)[:200])
                    for one in commands[:_MOST_CHOICES]
                )
            case schema.SessionInfoUpdate(title=title):
                self.facts.title = one_line(title or "")[:_LONGEST]
            case _:
                if self._is_read:
                    self._updates.append(update)
                    self._news.set()
                return
        self.on_facts()

    def next_update(self) -> Any:
        """Take the oldest update that nobody has taken; None if there is none."""
        if not self._updates:
            self._news.clear()
            return None
        self._room.set()
        return self._updates.popleft()

    def end_reading(self) -> None:
        """Drop what the agent says from now on, until the next prompt: nobody reads it."""
        self._is_read = False
        self._updates.clear()
        self._room.set()

    async def told(self) -> None:
        """Wait until there is an update to take."""
        await self._news.wait()

    async def start(self) -> None:
        """Start the program and agree on the protocol.

        Raises:
            AgentFailed: it could not be started, or does not speak the protocol.
        """
        title = self.program.title
        try:
            await self._pipe.open()
        except (OSError, ValueError) as error:
            raise AgentFailed(f"{title} could not be started: {reason_of(error)}.") from error
        self._agent = acp.connect_to_agent(self._serves, self._pipe, use_unstable_protocol=True)
        capabilities = schema.ClientCapabilities(
            fs=schema.FileSystemCapabilities(
                read_text_file=not self.program.reads_files, write_text_file=True
            ),
            terminal=True,
            elicitation=schema.ElicitationCapabilities(
                form=schema.ElicitationFormCapabilities(), url=schema.ElicitationUrlCapabilities()
            ),
        )
        said = await self._answer(
            self._agent.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=capabilities,
                client_info=schema.Implementation(
                    name="kimi-tui", title="kimi-tui", version=VERSION
                ),
            ),
            "start",
            _START_S,
        )
        if said.protocol_version != acp.PROTOCOL_VERSION:
            raise AgentFailed(
                f"{title} uses version {said.protocol_version} of the Agent Client Protocol, "
                f"but kimi-tui needs version {acp.PROTOCOL_VERSION}.",
                advice=f"Update {title} or kimi-tui.",
            )
        able = said.agent_capabilities or schema.AgentCapabilities()
        sessions = able.session_capabilities or schema.SessionCapabilities()
        prompts, servers = able.prompt_capabilities, able.mcp_capabilities
        self.abilities = Abilities(
            loads=bool(able.load_session),
            resumes=sessions.resume is not None,
            forks=sessions.fork is not None,
            sees=bool(prompts is not None and prompts.image),
            closes=sessions.close is not None,
            deletes=sessions.delete is not None,
            http=bool(servers is not None and servers.http),
            sse=bool(servers is not None and servers.sse),
            version=one_line(said.agent_info.version)[:40] if said.agent_info else "",
            logins=tuple(self._login_words(one) for one in said.auth_methods or ()),
        )

    # -- sessions ----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Begin a new session.

        Raises:
            AgentFailed: it could not, for instance because the user is not logged in.
        """
        agent = self._running()
        said = await self._answer(
            agent.new_session(cwd=self._work_dir, mcp_servers=list(self.servers)), "begin a session"
        )
        self._use(said.session_id, said)

    async def go_to(self, session: str) -> None:
        """Use an earlier session, without showing its messages again.

        Raises:
            AgentFailed: it is gone, or the agent cannot.
        """
        agent = self._running()
        said: Any
        self._repeats = True
        try:
            if self.abilities.resumes:
                said = await self._answer(
                    agent.resume_session(
                        cwd=self._work_dir, session_id=session, mcp_servers=list(self.servers)
                    ),
                    "resume its session",
                )
            else:
                said = await self._answer(
                    agent.load_session(
                        cwd=self._work_dir, session_id=session, mcp_servers=list(self.servers)
                    ),
                    "load its session",
                )
        finally:
            self._repeats = False
        self._use(session, said)

    async def fork(self, session: str) -> None:
        """Use a copy of a session.

        Raises:
            AgentFailed: it cannot be copied.
        """
        agent = self._running()
        self._repeats = True
        try:
            said = await self._answer(
                agent.fork_session(
                    cwd=self._work_dir, session_id=session, mcp_servers=list(self.servers)
                ),
                "copy its session",
            )
        finally:
            self._repeats = False
        self._use(said.session_id, said)

    async def leave_others(self) -> None:
        """Close the sessions that are open at the agent and not in use, if it can open them again: some have a process for each."""
        if not (self.abilities.closes and self.goes_back):
            return
        for session in [one for one in self._open if one != self.session]:
            self._open.pop(session, None)
            with contextlib.suppress(AgentFailed):
                await self._answer(
                    self._running().close_session(session_id=session), "close a session", _DELETE_S
                )

    async def delete(self, session: str) -> None:
        """Delete a session at the agent.

        Raises:
            AgentFailed: it refuses.
        """
        self._running()
        asked = {"sessionId": session}
        await self._answer(self._request("session/delete", asked), "delete a session", _DELETE_S)

    def _request(self, method: str, params: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        """Send a request for which the package has no method."""
        connection: Any = getattr(self._running(), "_conn")  # noqa: B009 - a private part
        return connection.send_request(method, params)

    @property
    def goes_back(self) -> bool:
        """Whether an earlier session of the agent can be used again."""
        return self.abilities.loads or self.abilities.resumes

    def _use(self, session: str, said: Any) -> None:
        self.session, self.is_fresh, self.begun_at = session, True, None
        self._open[session] = None
        self.facts = AgentFacts(commands=self.facts.commands)
        if said is None:
            return
        self._take_settings(getattr(said, "config_options", None))
        modes = getattr(said, "modes", None)
        if isinstance(modes, schema.SessionModeState) and not self._of("mode"):
            choices = tuple(
                AgentChoice(
                    one.id, one_line(one.name)[:60] or one.id[:60], one_line(one.description or "")
                )
                for one in modes.available_modes[:_MOST_CHOICES]
            )
            self.facts.settings[_MODE] = AgentSetting(
                _MODE, "Mode", "mode", modes.current_mode_id, choices
            )
        if not self._of("model"):
            self._take_models()

    def _take_models(self) -> None:
        """Take over the models of an agent without options, if it has told any."""
        told, self._pipe.models = self._pipe.models, {}
        found: list[AgentChoice] = []
        for item in lenient_json.listing(told.get("availableModels"))[:_MOST_CHOICES]:
            fields = lenient_json.mapping(item)
            if name := lenient_json.text(fields.get("modelId")):
                shown = one_line(lenient_json.text(fields.get("name")))[:80] or name[:80]
                about = one_line(lenient_json.text(fields.get("description")))[:200]
                found.append(AgentChoice(name, shown, about))
        if found:
            current = lenient_json.text(told.get("currentModelId"))
            self.facts.settings[_MODEL] = AgentSetting(
                _MODEL, "Model", "model", current, tuple(found)
            )

    def _take_settings(self, options: Sequence[Any] | None) -> None:
        """Take over the settings that the agent offers."""
        for one in options or ():
            if not isinstance(one, schema.SessionConfigOptionSelect):
                continue
            found: list[AgentChoice] = []
            for choice in one.options:
                if isinstance(choice, schema.SessionConfigSelectGroup):
                    found += map(_choice, choice.options)
                else:
                    found.append(_choice(choice))
            self.facts.settings[one.id] = AgentSetting(
                one.id,
                one_line(one.name)[:60],
                str(one.category or ""),
                one.current_value,
                tuple(found[:_MOST_CHOICES]),
            )

    def _took_mode(self, mode: str) -> None:
        """Note that the agent is in another mode now."""
        if (known := self._of("mode")) is not None:
            self.facts.settings[known.id] = known._replace(value=mode)

    def _of(self, category: str) -> AgentSetting | None:
        return next((one for one in self.facts.settings.values() if one.category == category), None)

    def setting(self, category: str) -> AgentSetting | None:
        """Return the setting of a category; None if the agent has none."""
        return self._of(category)

    async def set(self, setting: AgentSetting, value: str) -> None:
        """Change a setting.

        Raises:
            AgentFailed: the agent refuses.
        """
        agent = self._running()
        if setting.id == _MODE:
            await self._answer(
                agent.set_session_mode(session_id=self.session, mode_id=value), "change its mode"
            )
            self._took_mode(value)
            return
        if setting.id == _MODEL:
            asked = {"sessionId": self.session, "modelId": value}
            await self._answer(self._request("session/set_model", asked), "change its model")
            self.facts.settings[_MODEL] = setting._replace(value=value)
            return
        said = await self._answer(
            agent.set_config_option(session_id=self.session, config_id=setting.id, value=value),
            f"change {setting.name}",
        )
        self.facts.settings[setting.id] = setting._replace(value=value)
        self._take_settings(getattr(said, "config_options", None))

    # -- turns -------------------------------------------------------------------------------------

    def prompt(self, blocks: Sequence[Block]) -> asyncio.Task[schema.PromptResponse]:
        """Send a prompt; return a task that ends with its answer. `prompt_failed` puts its error into words."""
        agent = self._running()
        self.is_fresh, self._is_read = False, True
        self._prompting = asyncio.create_task(
            agent.prompt(session_id=self.session, prompt=list(blocks)), name="prompt of an agent"
        )
        return self._prompting

    async def cancel(self) -> None:
        """Ask the agent to stop the prompt."""
        try:
            async with asyncio.timeout(0.5):
                await self._running().cancel(session_id=self.session)
        except (ConnectionError, AgentFailed, TimeoutError):
            return

    async def free(self, timeout_s: float) -> bool:
        """Wait until no prompt is under way; return whether none is."""
        if self._prompting is not None and not self._prompting.done():
            await asyncio.wait([self._prompting], timeout=timeout_s)
        return not self.is_busy

    async def close(self) -> None:
        """End the program."""
        agent, self._agent = self._agent, None
        if self._prompting is not None:
            self._prompting.cancel()
        self._room.set()
        # The program is ended first: the package waits for tasks that wait for it.
        await self._pipe.close()
        if agent is not None:
            closing = asyncio.create_task(_closed(agent), name="close the connection")
            await asyncio.wait([closing], timeout=1.0)

    # -- errors ------------------------------------------------------------------------------------

    def _running(self) -> acp.Agent:
        if self._agent is None or self._pipe.ended.is_set():
            raise self.has_ended()
        return self._agent

    def has_ended(self) -> AgentFailed:
        """Return the error that says that the program has ended."""
        why = f": {self._pipe.why}" if self._pipe.why else ""
        return AgentFailed(
            f"{self.program.title} is no longer running{why}.",
            advice="Your next message starts it again.",
        )

    async def failure_of(self, error: BaseException, doing: str) -> AgentFailed:
        """Return an error of a request in words.

        Args:
            error: the error.
            doing: what was asked, as an infinitive.
        """
        title = self.program.title
        if isinstance(error, ConnectionError):
            await asyncio.wait([asyncio.ensure_future(self._pipe.ended.wait())], timeout=1.0)
            return self.has_ended()
        if isinstance(error, ValidationError):
            return AgentFailed(
                f"{title} did not answer in the Agent Client Protocol when asked to {doing}."
            )
        if not isinstance(error, RequestError):
            log.warning("a request of an external agent failed", exc_info=error)
            return AgentFailed(f"{title} could not {doing}: {type(error).__name__}.")
        said = one_line(_said(error))[:_LONGEST].rstrip(".")
        if error.code == _AUTH_REQUIRED:
            return AgentFailed(f"{title} is not logged in: {said}.", advice=self.login_words())
        if error.code == _METHOD_MISSING:
            return AgentFailed(f"{title} cannot {doing}.")
        return AgentFailed(f"{title} could not {doing}: {said}.")

    def login_words(self) -> str:
        """Say how the user logs in; kimi-tui does not see the password or key."""
        ways = list(filter(None, self.abilities.logins))
        if self.program.login:
            # Its own command is the one that its documentation names.
            own = f"run {self.program.login} in a terminal"
            ways = [own, *(one for one in ways if one.startswith("set "))]
        if not ways:
            return "Log in with its own program in a terminal, then send the message again."
        return f"To log in, {'; or '.join(ways[:3])}. Then send the message again."

    def _login_words(self, method: Any) -> str:
        """Return a way of logging in that the agent names, as words after "To log in,"; empty for one that needs its own program."""
        match method:
            case schema.EnvVarAuthMethod(vars=variables):
                names = ", ".join(one_line(one.name)[:60] for one in variables[:3])
                return f"set {names} and restart kimi-tui"
            case schema.TerminalAuthMethod(args=arguments):
                program, *own = self.program.argv
                words = (Path(program).name, *own, *(arguments or ()))
                return f"run {one_line(' '.join(words))[:120]} in a terminal"
            case _:
                return ""

    async def _answer(
        self, request: Coroutine[Any, Any, T], doing: str, timeout_s: float = _ANSWER_S
    ) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await request
        except TimeoutError:
            raise AgentFailed(
                f"{self.program.title} did not {doing} within {timeout_s:.0f} seconds.",
                advice="It may be waiting for the network; your next message tries again.",
            ) from None
        except Exception as error:
            raise await self.failure_of(error, doing) from error


_MODE = "\0mode"
"""The id of the setting that stands for the modes of an agent without options; no option of an agent has it."""
_MODEL = "\0model"
"""Likewise for its models."""


async def _closed(agent: Any) -> None:
    try:
        await agent.close()
    except Exception as error:
        log.info("the connection to an external agent closed with an error", exc_info=error)


def _choice(one: schema.SessionConfigSelectOption) -> AgentChoice:
    return AgentChoice(
        one.value, one_line(one.name)[:80] or one.value[:80], one_line(one.description or "")[:200]
    )


def _said(error: RequestError) -> str:
    """Return what an agent says of an error: its message, with the details that some put beside it."""
    data: object = error.data
    details = ""
    if isinstance(data, Mapping):
        facts = lenient_json.mapping(cast("object", data))
        details = next(
            (
                text
                for key in ("details", "message", "error")
                if isinstance(text := facts.get(key), str) and text.strip()
            ),
            "",
        )
    elif isinstance(data, str):
        details = data
    said = str(error).strip() or "an error without a message"
    return f"{said}: {details}" if details and details not in said else said
