"""`serve`: the agent side of the Agent Client Protocol over standard input and output, for any number of sessions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import acp
from acp import RequestError, schema

from kimi_tui.acp.messages import Block
from kimi_tui.acp.pipe import Pipe
from kimi_tui.acp.session import EditorSession
from kimi_tui.app_paths import data_dir
from kimi_tui.config.model_choice import NeedsChoice
from kimi_tui.config.settings import ConfigError
from kimi_tui.foreign_text import one_line
from kimi_tui.launch import CannotOpen, Options, launch_of
from kimi_tui.program import DONE, INTERRUPTED, TERMINATED, VERSION
from kimi_tui.session.errors import SessionError, SessionNotFound
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.opening import open_session

if TYPE_CHECKING:
    from acp import Client

    from kimi_tui.mcp.config import ServerConfig
    from kimi_tui.session.listing import SessionInfo

log = logging.getLogger(__name__)

Server = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio
_PAGE = 50
_AUTH_REQUIRED = -32000
_INVALID = -32602
_FAILED = -32603
_SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}


class EditorAgent(acp.Agent):
    """The methods that an editor calls.

    Args:
        options: the options of the command line, for every session.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: Client
        self._reads_files = False
        self._shows_forms = False
        self._sessions: dict[str, EditorSession] = {}

    def on_connect(self, conn: Client) -> None:
        """Take the connection to the editor."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> schema.InitializeResponse:
        """Say what this agent can do. The version of the protocol is 1, also if the editor asks for another one."""
        files = client_capabilities.fs if client_capabilities is not None else None
        self._reads_files = bool(files is not None and files.read_text_file)
        asks = client_capabilities.elicitation if client_capabilities is not None else None
        self._shows_forms = asks is not None and asks.form is not None
        return schema.InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="kimi-tui", title="kimi-tui", version=VERSION),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                    delete=schema.SessionDeleteCapabilities(),
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[
                schema.TerminalAuthMethod(
                    type="terminal",
                    id="setup",
                    name="Choose a model",
                    description="Run kimi-tui in a terminal, choose a model there and enter its API key",
                )
            ],
        )

    async def authenticate(self, method_id: str, **kwargs: Any) -> schema.AuthenticateResponse:
        """Check that a model is configured by now."""
        await self._launch(Options())
        return schema.AuthenticateResponse()

    # -- sessions ----------------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **kwargs: Any,
    ) -> schema.NewSessionResponse:
        """Begin a session in a folder."""
        session = await self._open(cwd, additional_directories, mcp_servers)
        answer = schema.NewSessionResponse(
            session_id=session.id, modes=session.modes(), config_options=session.options()
        )
        session.begin()
        return answer

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Server] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> schema.LoadSessionResponse:
        """Open a stored session, and tell its conversation again before answering."""
        session = await self._opened_again(cwd, additional_directories, mcp_servers, session_id)
        await session.replay()
        answer = schema.LoadSessionResponse(modes=session.modes(), config_options=session.options())
        session.begin()
        return answer

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **kwargs: Any,
    ) -> schema.ResumeSessionResponse:
        """Open a stored session of which the editor still has the conversation."""
        session = await self._opened_again(cwd, additional_directories, mcp_servers, session_id)
        answer = schema.ResumeSessionResponse(
            modes=session.modes(), config_options=session.options()
        )
        session.begin()
        return answer

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **kwargs: Any,
    ) -> schema.ForkSessionResponse:
        """Open a copy of a session; the original stays as it is, also while it is open."""
        if (known := self._sessions.get(session_id)) is not None:
            if known.soul.running:
                raise RequestError(
                    _INVALID,
                    "The agent is working. To fork the session, stop it or wait until it finishes.",
                )
            forked = (await known.soul.travel.fork()).session_id
            session = await self._open(cwd, additional_directories, mcp_servers, forked)
        else:
            session = await self._open(
                cwd, additional_directories, mcp_servers, session_id, fork=True
            )
        answer = schema.ForkSessionResponse(
            session_id=session.id, modes=session.modes(), config_options=session.options()
        )
        session.begin()
        return answer

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> schema.ListSessionsResponse:
        """List the stored sessions of a folder, or all of them, the newest first."""
        first = int(cursor) if cursor and cursor.isascii() and cursor.isdecimal() else 0
        where = Path(cwd) if cwd else None

        def listed() -> list[SessionInfo]:
            return SessionStore(data_dir()).list(where)

        found = await asyncio.to_thread(listed)
        rest = first + _PAGE
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=one.id,
                    cwd=one.work_dir,
                    title=one_line(one.title) or None,
                    updated_at=datetime.fromtimestamp(one.updated_at, UTC).isoformat(),
                )
                for one in found[first:rest]
            ],
            next_cursor=str(rest) if len(found) > rest else None,
        )

    async def close_session(
        self, session_id: str, **kwargs: Any
    ) -> schema.CloseSessionResponse | None:
        """Stop what runs in a session, and close it; nothing if it is not open."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.aclose()
        return schema.CloseSessionResponse()

    async def _opened_again(
        self,
        cwd: str,
        added: Sequence[str] | None,
        servers: Sequence[Server] | None,
        session_id: str,
    ) -> EditorSession:
        """Return a stored session, opened anew; an open one without a message, which is not stored yet, as it is."""
        known = self._sessions.get(session_id)
        if known is not None and known.is_empty:
            return known
        await self.close_session(session_id)
        return await self._open(cwd, added, servers, session_id)

    async def _open(
        self,
        cwd: str,
        added: Sequence[str] | None,
        servers: Sequence[Server] | None,
        session_id: str = "",
        *,
        fork: bool = False,
    ) -> EditorSession:
        if not Path(cwd).is_absolute():
            raise RequestError(
                _INVALID,
                f'"{one_line(cwd)[:200]}" is not an absolute path. The editor must send the full path of the folder.',
            )
        options = self._options._replace(
            work_dir=cwd,
            session=session_id or None,
            fork=fork,
            added=(*self._options.added, *(added or ())),
        )
        launch = await self._launch(options)
        try:
            given = await asyncio.to_thread(_servers, servers or ()) if servers else ()
            opened = await open_session(launch, waits_for_sandbox=False, servers=given)
        except CannotOpen as error:
            raise RequestError(_INVALID, str(error)) from error
        except ConfigError as error:
            raise RequestError(_INVALID, str(error)) from error
        session = EditorSession(
            self._client,
            launch,
            opened,
            reads_files=self._reads_files,
            shows_forms=self._shows_forms,
        )
        self._sessions[session.id] = session
        return session

    async def _launch(self, options: Options) -> Any:
        try:
            launch = await asyncio.to_thread(launch_of, options)
        except ConfigError as error:
            raise RequestError(_INVALID, str(error)) from error
        if isinstance(launch.choice, NeedsChoice):
            raise RequestError(
                _AUTH_REQUIRED,
                "No model is configured. Run kimi-tui in a terminal to choose one, or set KIMI_API_KEY and KIMI_MODEL_NAME.",
            )
        return launch

    # -- in a session ------------------------------------------------------------------------------

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(
                _INVALID, f'There is no open session "{one_line(session_id)[:80]}". Load it first.'
            )
        return session

    async def prompt(
        self, session_id: str, prompt: list[Block], **kwargs: Any
    ) -> schema.PromptResponse:
        """Run a turn; the answer comes when it has ended."""
        return await self._session(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """Stop the turn of a session; its prompt is answered with `cancelled`."""
        if (session := self._sessions.get(session_id)) is not None:
            await session.cancel()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> schema.SetSessionModeResponse:
        """Set what the agent may do without asking."""
        await self._session(session_id).set_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> schema.SetSessionConfigOptionResponse:
        """Set mode, model or thinking; the answer has all options."""
        session = self._session(session_id)
        await session.set_option(config_id, str(value))
        return schema.SetSessionConfigOptionResponse(config_options=session.options())

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Delete a session (`session/delete`); refuse any other method that the package does not know."""
        if method != "session/delete":
            raise RequestError.method_not_found(f"_{method}")
        session_id = params.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise RequestError(_INVALID, "The request names no session.")
        await self.close_session(session_id)
        try:
            await asyncio.to_thread(_throw_away, session_id)
        except SessionError as error:
            raise RequestError(_INVALID, str(error)) from error
        return {}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore a notification that the protocol does not have."""

    async def aclose(self) -> None:
        """Close all sessions."""
        for session_id in list(self._sessions):
            with contextlib.suppress(Exception):
                await self.close_session(session_id)


def _throw_away(session_id: str) -> None:
    """Move a session to the trash, from which `kimi-tui sessions restore` brings it back; nothing if there is none with this id.

    Raises:
        SessionError: another process has it open, or it could not be moved.
    """
    store = SessionStore(data_dir())
    with contextlib.suppress(SessionNotFound):
        found = store.find(session_id)
        # Nothing but the complete id is enough to delete a session.
        if found.id == session_id:
            store.move_to_trash(found)


def _servers(given: Sequence[Server]) -> tuple[ServerConfig, ...]:
    """Return the MCP servers of an editor as configured ones.

    Raises:
        ConfigError: one cannot be used.
    """
    from kimi_tui.mcp.config import BadEntry, server_of

    found: list[ServerConfig] = []
    for one in given:
        name = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in one.name)
        name = "-".join(filter(None, name.split("-")))[:32] or "editor"
        match one:
            case schema.McpServerStdio():
                entry: dict[str, object] = {
                    "command": one.command,
                    "args": list(one.args),
                    "env": {variable.name: variable.value for variable in one.env},
                }
            case schema.HttpMcpServer() | schema.SseMcpServer():
                entry = {
                    "type": one.type,
                    "url": one.url,
                    "headers": {header.name: header.value for header in one.headers},
                }
            case _:
                raise ConfigError(
                    f'The MCP server "{one_line(one.name)[:40]}" runs inside the editor, which kimi-tui does not support. Use a server with a command or an HTTP address.'
                )
        try:
            found.append(server_of(name, entry, Path("the editor"), "user"))
        except BadEntry as bad:
            raise ConfigError(
                f'The MCP server "{one_line(one.name)[:40]}" from the settings of the editor cannot be used: {bad}.'
            ) from bad
    return tuple(found)


def serve(options: Options) -> int:
    """Serve one editor until it closes standard input; return the exit code."""
    return asyncio.run(_serve(options))


async def _serve(options: Options) -> int:
    agent = EditorAgent(options)
    loop = asyncio.get_running_loop()
    code = DONE
    listening = asyncio.create_task(
        acp.run_agent(agent, Pipe.standard(), use_unstable_protocol=True), name="listen"
    )

    def stop(number: int) -> None:
        nonlocal code
        code = number
        listening.cancel()

    for number, exit_code in _SIGNALS.items():
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, exit_code)
    try:
        await listening
    except asyncio.CancelledError:
        pass
    except ConnectionError:
        log.info("the editor closed the connection")
    finally:
        await agent.aclose()
    return code
