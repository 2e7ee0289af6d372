"""`AgentServices`: what an external agent may ask of this program: the user's permission, files of the work folder, commands.

Files are served in the work folder only. A change of one is asked for as an edit of our own agent is, and a command as one of our
own `Shell`, in the sandbox where the mode has one; neither is asked for again where the user has just allowed exactly that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import acp
from acp import RequestError, schema

from kimi_tui.app_paths import bare_reason
from kimi_tui.external.commands import bare_command, shell_line
from kimi_tui.external.connection import AgentConnection
from kimi_tui.external.looks import CHANGING, CallFacts, shown_path
from kimi_tui.external.reading import AgentAnswer, ReadCall
from kimi_tui.filesystem import read_regular
from kimi_tui.foreign_text import one_line, visible
from kimi_tui.mcp.forms import filled_form, opened_address
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.tool_calls import ToolRuntime
from kimi_tui.tool_cards import ShellBlock
from kimi_tui.tools.base import (
    RESULTS_NAME,
    ApprovalQuestion,
    Asks,
    FileVersions,
    Mode,
    ToolEnv,
)
from kimi_tui.tools.file_edit import WriteFile
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem, ToolRejected, failure
from kimi_tui.tools.paths import ResolvedPath, locate
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.shell import MAX_TIMEOUT_S, Shell, ShellParams

log = logging.getLogger(__name__)

_MOST_FILE_BYTES = 32 << 20
_MOST_OPTIONS = 12
_MOST_OUTPUT = 1 << 20
"""Characters of a terminal's output that are kept for the agent."""
_MOST_TERMINALS = 64
_LONGEST_DETAIL = 100_000
_QUESTIONS = {
    "execute": "Run this command?",
    "edit": "Make this change?",
    "delete": "Delete this?",
    "move": "Move this?",
    "fetch": "Fetch this page?",
    "read": "Read this?",
    "search": "Search this?",
    "switch_mode": "Let the agent change its mode?",
}


@dataclass(slots=True)
class _Terminal:
    """A command that runs for the agent.

    Attributes:
        task: runs it.
        output: the end of its output; `cut`, whether there was more.
        limit: the most characters of it.
        outcome: its result; None while it runs.
    """

    limit: int
    output: str = ""
    cut: bool = False
    outcome: ToolOutcome | None = None
    task: asyncio.Task[None] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, text: str) -> None:
        self.output += text
        if len(self.output) > self.limit:
            self.output, self.cut = self.output[-self.limit :], True

    @property
    def exit_code(self) -> int | None:
        outcome = self.outcome
        blocks = outcome.effects if outcome is not None else ()
        return next((one.exit_code for one in blocks if isinstance(one, ShellBlock)), None)


class AgentServices(acp.Client):
    """Answers the requests of an agent.

    Args:
        tools: the parts that tool calls of the session share.
        title: the name of the agent in sentences.

    Attributes:
        reader: reads the answer to the prompt that runs; None between prompts, when nothing is allowed.
        connection: the connection whose requests are answered.
        settled: waits until all updates that have come are read.
    """

    def __init__(self, tools: ToolRuntime, title: str) -> None:
        self._tools = tools
        self._title = title
        self._terminals: dict[str, _Terminal] = {}
        self._working: set[asyncio.Task[Any]] = set()
        self._versions: dict[str, str] = {}
        self.reader: AgentAnswer | None = None
        self.connection: AgentConnection | None = None
        self.settled: Callable[[], Any] = _at_once

    def on_connect(self, conn: Any) -> None:
        """Take the connection; requests are answered when they come."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Take an update."""
        if self.connection is not None:
            self.connection.note(session_id, update)

    async def stop(self) -> None:
        """Stop what is done for the agent, at the end of a prompt."""
        self.reader = None
        mine = {task for task in self._working if not task.done()}
        for task in mine:
            task.cancel()
        for terminal in self._terminals.values():
            if terminal.task is not None:
                terminal.task.cancel()
        running = [one.task for one in self._terminals.values() if one.task is not None]
        if running or mine:
            await asyncio.wait({*mine, *running}, timeout=0.5)

    def begin(self, reader: AgentAnswer) -> None:
        """Let the agent ask for things, at the beginning of a prompt."""
        self._terminals = {
            name: one for name, one in self._terminals.items() if one.outcome is None
        }
        self.reader = reader

    async def _check(self, session_id: str) -> AgentAnswer:
        """Return the reader of the prompt that runs, once all earlier updates are read.

        Raises:
            RequestError: no prompt runs, or it is another session's.
        """
        await self.settled()
        connection = self.connection
        if connection is None or session_id != connection.session:
            raise RequestError.invalid_params({"details": "unknown session"})
        if self.reader is None:
            raise _refused("no prompt is running")
        return self.reader

    # -- permission --------------------------------------------------------------------------------

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        """Put the agent's question to the user, with its own answers."""
        cancelled = schema.RequestPermissionResponse(
            outcome=schema.DeniedOutcome(outcome="cancelled")
        )
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            reader = await self._check(session_id)
            call = await reader.call(tool_call, is_question=True)
            command = ""
            if call is not None:
                reader.show(call)
                # The agent may name another command by the time of the answer.
                command = call.facts.command
            said = await self._ask(tool_call, options[:_MOST_OPTIONS], call)
        except (asyncio.CancelledError, RequestError):
            return cancelled
        except (SoulError, ToolProblem) as error:
            log.warning("a question of an external agent could not be put: %s", error)
            return cancelled
        finally:
            self._working.discard(task)
        if said is None:
            return cancelled
        if call is not None and said.kind.startswith("allow"):
            call.allowed, call.allowed_command = True, command
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=said.option_id)
        )

    async def _ask(
        self,
        tool_call: schema.ToolCallUpdate,
        options: Sequence[schema.PermissionOption],
        call: ReadCall | None,
    ) -> schema.PermissionOption | None:
        """Return the answer that the user chose; None if the agent offers no way to say no and they said no."""
        facts = call.facts if call is not None else CallFacts(tool_call.tool_call_id)
        if call is None:
            facts.take(tool_call)
        no = next((one for one in options if one.kind.startswith("reject")), None)
        offered: dict[str, schema.PermissionOption] = {}
        for one in options:
            if one is not no:
                offered[_distinct(one_line(one.name)[:120] or one.option_id, offered)] = one
        work_dir = str(self._tools.work_dir)
        edits = facts.edits(work_dir)
        question = _QUESTIONS.get(facts.kind, "Allow this?")
        asked = ApprovalQuestion(
            asks=Asks("pause", stops=False),
            question=question,
            detail="" if edits else _detail(facts, work_dir, question),
            where=f"asked by {self._title}, which runs outside the sandbox of kimi-tui",
            edits=edits,
            protected=True,
            options=tuple(offered) or ("Yes",),
            no_offer=one_line(no.name)[:120] if no is not None else "No, and stop the turn",
        )
        key, name = (call.key, call.look.name) if call is not None else ("", self._title)
        try:
            said = await self._tools.approval.ask(asked, key=key, tool=name)
        except ToolRejected:
            return no
        return offered.get(said) or next(iter(offered.values()), None)

    # -- forms -------------------------------------------------------------------------------------

    async def create_elicitation(
        self, message: str, mode: schema.ElicitationMode, **_: Any
    ) -> schema.CreateElicitationResponse:
        """Put a form of the agent to the user, or an address that they are to open."""
        cancelled = schema.CancelElicitationResponse(action="cancel")
        declined = schema.DeclineElicitationResponse(action="decline")
        scope: Any = getattr(mode, "root", mode)
        if not isinstance(scope, schema.ElicitationSessionScope):
            # No turn runs during another request, so nothing shows a question.
            return declined
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            reader = await self._check(scope.session_id)
            call = next((one for one in reader.running if one.facts.id == scope.tool_call_id), None)
            asker = _Asker(self._tools, self._title, call)
            if isinstance(scope, schema.ElicitationUrlSessionMode):
                done = await opened_address(self._title, message, str(scope.url), asker)
                return schema.AcceptElicitationResponse(action="accept") if done else declined
            if not isinstance(scope, schema.ElicitationFormSessionMode):
                return declined
            fields = scope.requested_schema.model_dump(by_alias=True, exclude_none=True)
            content = await filled_form(self._title, self._title, message, fields, asker)
        except (asyncio.CancelledError, RequestError):
            return cancelled
        except ToolRejected:
            return declined
        except (SoulError, ToolProblem) as error:
            log.warning("a form of an external agent could not be shown: %s", error)
            return cancelled
        finally:
            self._working.discard(task)
        if content is None:
            return declined
        return schema.AcceptElicitationResponse(action="accept", content=content)

    # -- files -------------------------------------------------------------------------------------

    async def _place(self, path: str) -> ResolvedPath:
        """Return a path of the work folder.

        Raises:
            RequestError: it is none, or leads out of the folder.
        """
        if not os.path.isabs(path):
            raise _refused("the path must be absolute")
        try:
            found = await asyncio.to_thread(locate, path, self._tools.work_dir, self._tools.environ)
        except ToolProblem as problem:
            raise _refused(str(problem)) from problem
        if not found.inside:
            raise _refused("kimi-tui serves only files in the work folder")
        return found

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> schema.ReadTextFileResponse:
        """Return the text of a file in the work folder."""
        if self.connection is None or session_id != self.connection.session:
            raise RequestError.invalid_params({"details": "unknown session"})
        place = await self._place(path)

        def read() -> str:
            text = read_regular(place.real, _MOST_FILE_BYTES).decode("utf-8", "replace")
            if line is None and limit is None:
                return text
            first = max(0, (line or 1) - 1)
            lines = text.splitlines(keepends=True)
            return "".join(lines[first : None if limit is None else first + limit])

        try:
            return schema.ReadTextFileResponse(content=await asyncio.to_thread(read))
        except FileNotFoundError as error:
            raise RequestError.resource_not_found(path) from error
        except OSError as error:
            raise _refused(bare_reason(error)) from error

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> schema.WriteTextFileResponse:
        """Write a file in the work folder, after the user's approval."""
        reader = await self._check(session_id)
        place = await self._place(path)
        shown = shown_path(str(place.real), str(place.root))
        call = next(
            (
                one
                for one in reader.running
                if one.facts.kind in CHANGING
                and any(
                    shown_path(each, str(self._tools.work_dir)) == shown
                    for each in one.facts.paths()
                )
            ),
            None,
        )
        own = call or await self._own_call(reader, "edit", f"Write {shown}", path=str(place.real))
        approver = _Approver(self._tools, own, call is not None and call.allowed)
        # The agent read the file itself, so that its version is not known here.
        env = self._env(own, approver, lambda _: None)
        tool = WriteFile()
        try:
            outcome = await tool.run(tool.parse({"path": shown, "content": content}), env)
        except ToolRejected as no:
            outcome = failure(f"The user refused this. {no.feedback}".strip(), brief="refused")
        except ToolProblem as problem:
            is_same = problem.brief == "no change"
            outcome = (
                ToolOutcome(message=str(problem), brief="no change")
                if is_same
                else failure(str(problem), brief=problem.brief)
            )
        if call is None:
            own.served = True
            await reader.end_served(own, outcome)
        elif not outcome.is_error:
            reader.note_changes(own.key)
        if outcome.is_error:
            raise _refused(outcome.message)
        return schema.WriteTextFileResponse()

    async def _own_call(
        self, reader: AgentAnswer, kind: schema.ToolKind, title: str, *, path: str = ""
    ) -> ReadCall:
        """Show a call for something that the agent asks for without a call of its own."""
        update = schema.ToolCallUpdate(
            tool_call_id=f"served-{uuid4().hex[:12]}",
            title=title,
            kind=kind,
            locations=[schema.ToolCallLocation(path=path)] if path else None,
        )
        call = await reader.call(update)
        if call is None:
            raise _refused("there are too many calls in this step")
        return call

    # -- commands ----------------------------------------------------------------------------------

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> schema.CreateTerminalResponse:
        """Start a command, after the user's approval."""
        reader = await self._check(session_id)
        if sum(one.outcome is None for one in self._terminals.values()) >= _MOST_TERMINALS:
            raise _refused("too many terminals are open")
        variables = [(one.name, one.value) for one in env or ()]
        if not all(name.isidentifier() for name, _ in variables):
            raise _refused("the name of a variable is not valid in a shell")
        line = shell_line(command, args or (), variables)
        bare = bare_command(command, args or (), variables, str(self._tools.work_dir))
        if cwd and cwd.rstrip("/") != str(self._tools.work_dir):
            folder = await self._place(cwd)
            line = f"cd {shlex.quote(folder.shown)} && {line}"
        open_calls = [
            one for one in reader.running if one.facts.kind == "execute" and not one.served
        ]
        named = [one for one in open_calls if one.facts.command in (line, bare)]
        call = named[0] if named else open_calls[0] if len(open_calls) == 1 else None
        allowed = (
            call is not None
            and call.allowed_command != ""
            and (call.allowed_command in (line, bare))
        )
        if call is None:
            call = await self._own_call(reader, "execute", bare or line)
        call.served = True
        call.facts.kind = "execute"
        call.facts.raw_input = {"command": bare or line}
        reader.show(call)
        limit = min(output_byte_limit or _MOST_OUTPUT, _MOST_OUTPUT)
        terminal = _Terminal(limit)
        name = f"terminal-{uuid4().hex[:12]}"
        self._terminals[name] = terminal
        terminal.task = asyncio.create_task(
            self._run(reader, call, line, terminal, allowed=allowed), name="terminal of an agent"
        )
        return schema.CreateTerminalResponse(terminal_id=name)

    async def _run(
        self, reader: AgentAnswer, call: ReadCall, line: str, terminal: _Terminal, *, allowed: bool
    ) -> None:
        def hear(text: str) -> None:
            terminal.hear(text)
            reader.emit(call, text)

        approver = _Approver(self._tools, call, allowed, lambda: reader.started(call))
        try:
            await self._tools.ready()
            outcome = await Shell().run(
                ShellParams(command=line, timeout=MAX_TIMEOUT_S),
                self._env(call, approver, hear),
            )
        except ToolRejected as no:
            outcome = failure(
                f"The user refused this command. {no.feedback}".strip(), brief="refused"
            )
            terminal.hear(outcome.message)
        except (ToolProblem, SoulError, ValueError) as problem:
            outcome = failure(str(problem), brief=getattr(problem, "brief", ""))
            terminal.hear(outcome.message)
        except asyncio.CancelledError:
            terminal.outcome = failure("The command was stopped.", brief="stopped")
            terminal.done.set()
            with contextlib.suppress(asyncio.CancelledError):
                await reader.end_served(call, terminal.outcome)
            raise
        terminal.outcome = outcome
        await reader.end_served(call, outcome)
        terminal.done.set()

    def _terminal(self, session_id: str, name: str) -> _Terminal:
        if self.connection is None or session_id != self.connection.session:
            raise RequestError.invalid_params({"details": "unknown session"})
        found = self._terminals.get(name)
        if found is None:
            raise RequestError.resource_not_found(name)
        return found

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.TerminalOutputResponse:
        """Return the output of a command so far."""
        terminal = self._terminal(session_id, terminal_id)
        status = None
        if terminal.outcome is not None:
            status = schema.TerminalExitStatus(exit_code=_code(terminal))
        return schema.TerminalOutputResponse(
            output=terminal.output, truncated=terminal.cut, exit_status=status
        )

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        """Wait for the end of a command."""
        terminal = self._terminal(session_id, terminal_id)
        await terminal.done.wait()
        return schema.WaitForTerminalExitResponse(exit_code=_code(terminal))

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        """End a command; its output stays."""
        terminal = self._terminal(session_id, terminal_id)
        if terminal.task is not None and not terminal.task.done():
            terminal.task.cancel()
            await asyncio.wait([terminal.task], timeout=1.0)

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        """End a command and forget it."""
        await self.kill_terminal(session_id, terminal_id)
        self._terminals.pop(terminal_id, None)

    # -- what is not offered -----------------------------------------------------------------------

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        """Nothing waits for it: the user says when they have opened an address."""

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Refuse methods outside of the protocol."""
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore notifications outside of the protocol."""

    # -- how it is carried out ---------------------------------------------------------------------

    def _env(self, call: ReadCall, approver: _Approver, emit: Callable[[str], None]) -> ToolEnv:
        tools, conversation = self._tools, self._tools.conversation
        mode = tools.approval.mode
        return ToolEnv(
            work_dir=tools.work_dir,
            approver=approver,
            send_dmail=conversation.send_dmail,
            versions=FileVersions({}),
            emit=emit,
            environ=tools.environ,
            key=call.key,
            sandbox=self._sandbox(mode),
            reads_only=mode == "plan",
            results=conversation.context.folder / RESULTS_NAME,
        )

    def _sandbox(self, mode: Mode) -> Sandbox | None:
        sandbox = self._tools.sandbox
        if mode in ("sandboxed", "all") or (mode == "plan" and sandbox and sandbox.is_whole):
            return sandbox
        return None


class _Asker:
    """Puts the questions of a form to the user.

    Args:
        tools: the parts of the session.
        title: the name of the agent.
        call: the call during which it asks; None for none.
    """

    def __init__(self, tools: ToolRuntime, title: str, call: ReadCall | None) -> None:
        self._tools = tools
        self._key, self._tool = (call.key, call.look.name) if call is not None else ("", title)

    async def ask(self, ask: ApprovalQuestion) -> str:
        """Return the answer.

        Raises:
            ToolRejected: the user said no.
        """
        return await self._tools.approval.ask(ask, key=self._key, tool=self._tool)


class _Approver:
    """Asks the user about something that an agent has this program do.

    Args:
        tools: the parts of the session.
        call: its call.
        allowed: whether the user has just allowed exactly that.
        began: called when it may begin.
    """

    def __init__(
        self,
        tools: ToolRuntime,
        call: ReadCall,
        allowed: bool,
        began: Callable[[], object] = bool,
    ) -> None:
        self._tools = tools
        self._call = call
        self._allowed = allowed
        self._began = began

    async def ask(self, ask: ApprovalQuestion) -> str:
        """Return an empty text for a yes, or the command in place of the one in question.

        Raises:
            ToolRejected: the user said no.
        """
        instead = ""
        is_covered = self._allowed and not ask.protected and ask.asks.unasked
        if not (is_covered and self._tools.approval.mode != "plan"):
            asked_at = time.monotonic()
            instead = await self._tools.approval.ask(
                ask, key=self._call.key, tool=self._call.look.name
            )
            self._call.began += time.monotonic() - asked_at
        await self._tools.conversation.context.sync()
        self._began()
        return instead


async def _at_once() -> None:
    """No update waits."""


def _code(terminal: _Terminal) -> int | None:
    """Return the exit code of a command that has ended; 1 for one that did not begin."""
    code = terminal.exit_code
    if code is None and terminal.outcome is not None and terminal.outcome.is_error:
        return 1
    return code


def _distinct(name: str, taken: dict[str, schema.PermissionOption]) -> str:
    shown, number = name, 2
    while shown in taken:
        shown, number = f"{name} ({number})", number + 1
    return shown


def _detail(facts: CallFacts, work_dir: str, question: str) -> str:
    """Return what the agent wants to do, in full, without the question that is asked above it."""
    text = facts.text()
    if facts.says_command:
        # An agent may repeat the command between other words, such as the folder in which it runs.
        words = [one.strip("\n") for one in text.split("\n\n") if facts.command not in one]
        lines = [facts.command, *(f"\n{one}" for one in words if one.strip() not in ("", question))]
    else:
        lines = [facts.title, *(shown_path(path, work_dir) for path in facts.paths())]
        if facts.raw_input:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                lines.append(json.dumps(facts.raw_input, ensure_ascii=False, indent=1))
        lines.append(text)
    words = visible("\n".join(dict.fromkeys(filter(None, lines))))
    if len(words) > _LONGEST_DETAIL:
        left = len(words) - _LONGEST_DETAIL
        words = f"{words[:_LONGEST_DETAIL]}\n[… {left:,} characters are not shown …]"
    return words or "The agent did not say what it wants to do."


def _refused(why: str) -> RequestError:
    return RequestError(-32603, why, {"details": why})
