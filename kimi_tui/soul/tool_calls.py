"""Runs the tool calls of one step: reading calls in parallel, changing calls one after another, but for sub-agents that write.

Calls keep their order if it matters: a reading call after a changing one waits for it, so that it sees the change. No call
changes anything before it is on the disk itself, so that no change is without its cause after a power cut. Every call
always gets a result. The output of a running tool goes to the wire, cleaned and at a bounded rate. A command that the user
runs (`!make test`) is run here too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from uuid import uuid4

from kimi_tui.foreign_text import Cleaner, one_line
from kimi_tui.hooks.runner import Hooks
from kimi_tui.llm.message import user_message
from kimi_tui.llm.tokens import text_tokens
from kimi_tui.prompts import INTERRUPTED, NOT_BEGUN, prompt
from kimi_tui.soul.approval import Approval, Mode
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.conversation_text import shortened
from kimi_tui.soul.edit_checks import EditChecks
from kimi_tui.soul.folder_snapshots import ChangingTool
from kimi_tui.soul.messages import label_of, quoted, user_words
from kimi_tui.soul.request_form import CHARS_A_TOKEN
from kimi_tui.soul.tasks import TimeSlices, clear_in_slices
from kimi_tui.soul.tool_results import (
    NOT_RUN,
    blocks_of,
    call_key,
    rejection,
)
from kimi_tui.tool_cards import AGENT_NAMES, OWN_COMMAND, short_name
from kimi_tui.tools.added_folders import AddedFolders
from kimi_tui.tools.agent_kind import AgentTask
from kimi_tui.tools.base import (
    RESULTS_NAME,
    TO_GO_OUTSIDE,
    ApprovalQuestion,
    Asks,
    Changes,
    FileVersions,
    ToolEnv,
)
from kimi_tui.tools.credentials import (
    count_in_words,
    find_keys,
    key_lines,
    redact_keys,
    with_count,
)
from kimi_tui.tools.jobs import Jobs
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem, ToolRejected, failure
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.shell import run_as_user
from kimi_tui.wire.events import ToolOutput, ToolResult, ToolStarted
from kimi_tui.wire.queue import Wire

_OUTPUT_INTERVAL_S = 0.05
_OUTPUT_CHARS = 16_384
_SHOWN_AS_STARTED_AFTER_S = 0.03
_STOP_PATIENCE_S = 0.7
_SEARCHED_AT_ONCE = 2_000
"""The number of characters in which keys are searched on the event loop: that takes less than a thread takes to answer."""
_SIDE_BY_SIDE = 16
"""The number of reading calls that run at once: more would only wait for the same few threads, and an answer may have thousands."""


class Call(NamedTuple):
    """One call of a step. `key` is this program's unique one, `id` the provider's."""

    key: str
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call. `noted` are the file versions that it saw, `hooks_say` is what hooks say about it to the model;
    with `ends_turn` a hook ends the turn.
    """

    call: Call
    outcome: ToolOutcome
    rejected: bool = False
    interrupted: bool = False
    feedback: str = ""
    duration_s: float = 0.0
    noted: Mapping[str, str] | None = None
    hooks_say: str = ""
    ends_turn: bool = False


async def _at_once() -> None:
    """Wait for nothing: everything that calls need is there."""


@dataclass(slots=True)
class ToolRuntime:
    """The parts that all tool calls of a session share: conversation, approvals, work folder, environment, sandboxes, background jobs.

    `search_sandbox` is the sandbox of search programs. With `asks_for_keys` the user is asked before a result with API keys
    goes to the model. `ready` waits for what calls need. `moved_from` is the path that the work folder had before; empty if it has had one path only. Without
    `reads_notes` the notes of folders are not read. `hooks` run before and after calls, `checks` after edits; None for none.
    `added` are the folders that the user added beside the work folder. `unsaved` returns the text of a file in the user's editor.
    `run_agent` runs a sub-agent; None where there can be none. `paused` returns the keys of calls whose sub-agents can go on.
    `together` is told the keys of calls of sub-agents that write and begin at the same time, in their order.
    """

    conversation: Conversation
    approval: Approval
    work_dir: Path
    environ: Mapping[str, str]
    sandbox: Sandbox | None
    search_sandbox: Sandbox | None
    asks_for_keys: bool
    jobs: Jobs
    moved_from: str = ""
    reads_notes: bool = True
    ready: Callable[[], Coroutine[Any, Any, None]] = _at_once
    hooks: Hooks | None = None
    checks: EditChecks | None = None
    added: AddedFolders | None = None
    unsaved: Callable[[str], Awaitable[str | None]] | None = None
    run_agent: Callable[[AgentTask, str], Awaitable[ToolOutcome]] | None = None
    paused: Callable[[], Collection[str]] = tuple
    together: Callable[[Sequence[str]], CallsTogether] | None = None


class CallsTogether(Protocol):
    """Calls of sub-agents that write and run at the same time."""

    def ended(self, key: str) -> None:
        """Take the end of a call, also of one that never began: what comes after it in order need not wait for it any more."""
        ...


class ToolBatch:
    """The calls of one step, from their start to their results."""

    def __init__(self, runtime: ToolRuntime, calls: Sequence[Call]) -> None:
        self._runtime = runtime
        self._conversation = runtime.conversation
        self._calls = tuple(calls)
        self._done: dict[str, CallResult] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._runners: dict[str, _RunningCall] = {}
        self._refused = False
        self._stopped = False
        self._together: dict[str, CallsTogether] = {}
        """The calls of sub-agents that run with others, although they write, by key."""
        self._between = frozenset[str]()
        """The calls of other sub-agents between these, which need not wait for them."""

    @property
    def results(self) -> list[CallResult]:
        """The results so far, in the order of the calls."""
        return [self._done[call.key] for call in self._calls if call.key in self._done]

    async def run(self) -> list[CallResult]:
        """Run all calls.

        Raises:
            asyncio.CancelledError: cancelled; call `stop` then, which gives a result to every call.
        """
        await self._runtime.ready()
        slices = TimeSlices()
        self._find_together()
        is_together = False
        for call in self._calls:
            is_alone = self._changes_of(call) != "nothing"
            if call.key in self._together:
                if not is_together:
                    self._conversation.context.sync_soon()
                    await self._wait(0)
                if self._failures:
                    break
                is_together = True
                self._begin(call)
                continue
            if is_together and call.key not in self._between:
                is_together = False
                await self._wait(0)
            if is_alone:
                # The disk is waited for just before the change, and by then it may be done.
                self._conversation.context.sync_soon()
            await self._wait(0 if is_alone else _SIDE_BY_SIDE - 1)
            if self._failures:
                break
            if is_alone and self._refused:
                await self._finish(call, CallResult(call, failure(NOT_RUN, brief="not run")))
                await slices.yield_if_over()
                continue
            self._begin(call)
            if is_alone:
                await self._wait(0)
        await self._wait(0)
        if self._failures:
            raise self._failures[0]
        # The changes must be known before the next step, which may be a rewind.
        await self._conversation.files.settled()
        return self.results

    def _changes_of(self, call: Call) -> Changes:
        tool = self._conversation.toolset.get(call.name)
        return "nothing" if tool is None else tool.changes_of(call.arguments)

    def _find_together(self) -> None:
        """Find the calls of sub-agents that follow one another, of which two or more write: these begin at the same time."""
        begin = self._runtime.together
        if begin is None:
            return
        for is_agents, found in groupby(self._calls, lambda one: one.name in AGENT_NAMES):
            keys = [one.key for one in found]
            calls = (one for one in self._calls if is_agents and one.key in keys)
            writing = [one.key for one in calls if self._changes_of(one) != "nothing"]
            if len(writing) > 1:
                self._together |= dict.fromkeys(writing, begin(writing))
                self._between |= set(keys[: keys.index(writing[-1])])

    def _begin(self, call: Call) -> None:
        self._running.add(asyncio.create_task(self._run_one(call), name=f"tool {call.name}"))

    async def stop(self) -> set[asyncio.Task[None]]:
        """Cancel the running calls, and give a result to every call without one.

        Returns:
            tasks that are still ending their processes; the owner of the engine awaits them.
        """
        running = {task for task in self._running if not task.done()}
        for task in running:
            task.cancel()
        late: set[asyncio.Task[None]] = set()
        if running:
            _, late = await asyncio.wait(running, timeout=_STOP_PATIENCE_S)
        self._stopped = True
        slices = TimeSlices()
        for call in self._calls:
            if call.key not in self._done:
                runner = self._runners.get(call.key)
                begun = runner is not None and runner.may_have_acted
                outcome = failure(INTERRUPTED if begun else NOT_BEGUN, brief="stopped")
                await self._finish(call, CallResult(call, outcome, interrupted=True))
                await slices.yield_if_over()
            if call.key in self._together and call.key not in self._runners:
                self._together[call.key].ended(call.key)
        return late

    async def release(self) -> None:
        """Drop the results, to free their memory."""
        results = [*self._done.values()]
        self._done.clear()
        await clear_in_slices(results)

    async def _wait(self, most: int) -> None:
        """Wait until at most `most` calls run; errors of the program itself are collected in `_failures`."""
        while len(self._running) > most:
            # `gather` would delay a cancellation until the last call has ended.
            done, self._running = await asyncio.wait(
                self._running, return_when=asyncio.FIRST_COMPLETED
            )
            self._failures += [error for task in done if (error := task.exception()) is not None]

    async def _run_one(self, call: Call) -> None:
        room = self._conversation.result_chars(len(self._calls))
        runner = _RunningCall(self._runtime, call, room)
        self._runners[call.key] = runner
        try:
            done = await runner.run()
        finally:
            if call.key in self._together:
                self._together[call.key].ended(call.key)
        if done.rejected and not done.feedback:
            self._refused = True
        if not self._stopped:
            await self._finish(call, done)
            del self._runners[call.key]

    async def _finish(self, call: Call, done: CallResult) -> None:
        outcome = done.outcome
        display = await blocks_of(outcome.effects, outcome.brief, outcome.images)
        if call.key in self._done:
            return
        self._done[call.key] = done
        self._conversation.memory.update(done.outcome)
        self._conversation.wire.publish(
            ToolResult(
                key=call.key,
                is_error=done.outcome.is_error,
                output=done.outcome.output,
                message=done.outcome.message,
                display=display,
                duration_s=done.duration_s,
                interrupted=done.interrupted,
                rejected=done.rejected,
                id=call.id,
            )
        )


class _RunningCall:
    """One call while it runs."""

    def __init__(self, runtime: ToolRuntime, call: Call, room_chars: int | None) -> None:
        self._room_chars = room_chars
        self._runtime = runtime
        self._conversation = runtime.conversation
        self._call = call
        self._arguments = call.arguments
        """The arguments as hooks have left them."""
        self._hooks_say: list[str] = []
        self._tool = self._conversation.toolset.get(call.name)
        self._output: LiveOutput | None = None
        self._has_ended = False
        self._versions = FileVersions(self._conversation.memory.versions)
        self._limit: asyncio.Timeout | None = None
        self._asking = False
        self._has_begun = False
        self._waited_s = 0.0
        self._is_published = False
        self._changes: list[ChangingTool] = []

    @property
    def _name(self) -> str:
        """The name of the tool for hooks: its own, also if the model called it by another one."""
        return self._call.name if self._tool is None else self._tool.name

    @property
    def may_have_acted(self) -> bool:
        """Whether the call got further than to a first question without an answer."""
        return not self._asking or self._has_begun

    async def run(self) -> CallResult:
        runtime, conversation, call = self._runtime, self._conversation, self._call
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        mode = runtime.approval.mode
        env = ToolEnv(
            work_dir=runtime.work_dir,
            approver=self,
            send_dmail=conversation.send_dmail,
            versions=self._versions,
            emit=self._emit,
            environ=runtime.environ,
            key=call.key,
            todos=conversation.memory.todos,
            sandbox=self._sandbox(mode),
            search_sandbox=runtime.search_sandbox,
            reads_only=mode == "plan",
            jobs=runtime.jobs,
            added=() if runtime.added is None else runtime.added.paths,
            sees=conversation.model.sees,
            results=conversation.context.folder / RESULTS_NAME,
            room_chars=self._room_chars,
            unsaved=runtime.unsaved,
            run_agent=None if runtime.run_agent is None else self._run_agent,
            named=conversation.files.folder.sync_names_soon,
            writer=self._write,
            ended=self._scan_at_end,
            renewed=self._renewed,
        )
        is_timed = self._tool is None or self._tool.is_timed
        limit_s = conversation.limits.tool_timeout_s if is_timed else None
        timer: asyncio.TimerHandle | None = None
        if self._tool is not None and self._tool.changes == "order":
            # All other tools that change something ask before (`ask`).
            await conversation.context.sync()
        rejected, feedback, ends_turn = False, "", False
        refusal: ToolOutcome | None = None
        try:
            refusal = await self._before_hooks()
            if refusal is not None:
                outcome = refusal
            else:
                if self._tool is None or self._tool.changes == "nothing":
                    # A changing call begins when it may; a reading call that has not asked by then is shown as running.
                    timer = loop.call_later(_SHOWN_AS_STARTED_AFTER_S, self._publish_started)
                elif self._tool.changes == "anything":
                    conversation.files.scan_ahead()
                async with asyncio.timeout(limit_s) as self._limit:
                    outcome = await conversation.toolset.run(call.name, self._arguments, env)
        except ToolRejected as no:
            rejected, feedback = True, no.feedback
            outcome = rejection(feedback)
        except TimeoutError:
            outcome = failure(
                f"{call.name} was stopped: it ran longer than {limit_s or 0:.0f} seconds.",
                brief="timed out",
            )
        finally:
            if timer is not None:
                timer.cancel()
            self._has_ended = True
            if self._output is not None:
                self._output.close()
            self._end_changes()
        if not rejected and refusal is None:
            self._asking = False
            self._publish_started()
            outcome = await self._with_checks(outcome)
            ends_turn = await self._after_hooks(outcome)
            if outcome.images:
                outcome = await self._with_images_stored(outcome)
            outcome = await self._with_keys_marked(outcome)
            outcome = _within(outcome, self._room_chars)
        # The duration excludes the time that the user took to answer.
        duration_s = time.monotonic() - began - self._waited_s
        done = CallResult(
            call,
            outcome,
            rejected=rejected,
            feedback=feedback,
            duration_s=duration_s,
            hooks_say="\n".join(self._hooks_say),
            ends_turn=ends_turn,
        )
        return replace(done, noted=self._versions.noted) if self._versions.noted else done

    async def _run_agent(self, task: AgentTask, key: str) -> ToolOutcome:
        """Run a sub-agent, whose call is shown as running while it works: it asks nothing itself."""
        assert self._runtime.run_agent is not None
        self._publish_started()
        return await self._runtime.run_agent(task, key)

    async def _before_hooks(self) -> ToolOutcome | None:
        """Run the hooks before the call, which may change its arguments; return the outcome if one refuses it.

        What the user is asked afterwards is about the changed arguments.

        Raises:
            ToolRejected: a hook had the user asked, who said no.
        """
        hooks, call = self._runtime.hooks, self._call
        if hooks is None or not hooks.has("PreToolUse"):
            return None
        # A call that is stopped meanwhile has not begun. A hook is a program of the user, which may change anything.
        self._asking = True
        await self._conversation.context.sync()
        asked_at = time.monotonic()
        said = await hooks.before_tool(self._name, call.arguments, call.key)
        if said.asks and not said.by:
            shown = short_name(call.name, None if self._tool is None else self._tool.card)
            question = ApprovalQuestion(
                TO_GO_OUTSIDE,
                f"Run {shown}? A hook wants you to decide.",
                call.arguments if said.arguments is None else said.arguments,
                where=f"{said.asks}: {one_line(said.reason)}",
            )
            await self._runtime.approval.ask(question, key=call.key, tool=call.name)
        self._waited_s += time.monotonic() - asked_at
        self._asking = False
        if said.by:
            return ToolOutcome(
                said.reason,
                f"Not run: the hook {said.by} refused this call.",
                is_error=True,
                brief="refused by a hook",
            )
        if said.arguments is not None:
            self._arguments = said.arguments
            self._hooks_say.append(
                f"Hooks changed the input of this call. What ran: {said.arguments}"
            )
        if said.context:
            self._hooks_say.append(said.context)
        return None

    async def _with_checks(self, outcome: ToolOutcome) -> ToolOutcome:
        """Run the checks after an edit, with their changes of files counted as the agent's; return the outcome with what they
        found.
        """
        checks, files, call = self._runtime.checks, self._conversation.files, self._call
        if checks is None or outcome.is_error:
            return outcome
        due = checks.for_files(outcome)
        if not due:
            return outcome
        await files.settled()
        change = await files.before_change(None)
        try:
            return await checks.run(due, outcome, self._runtime.sandbox, self._versions)
        finally:
            files.after_change(change, call.key.rpartition(":")[0], call.key)

    async def _after_hooks(self, outcome: ToolOutcome) -> bool:
        """Run the hooks after the call, with their changes of files counted as the agent's; return whether one ends the turn."""
        hooks, call = self._runtime.hooks, self._call
        event: Literal["PostToolUse", "PostToolUseFailure"] = (
            "PostToolUseFailure" if outcome.is_error else "PostToolUse"
        )
        if hooks is None or not hooks.has(event):
            return False
        files = self._conversation.files
        is_change = self._tool is not None and self._tool.changes in ("edits", "anything")
        change = None
        if is_change:
            # The scan after the call must come before the one that finds what others changed.
            await files.settled()
            change = await files.before_change(None)
        asked_at = time.monotonic()
        try:
            said = await hooks.after_tool(
                self._name,
                self._arguments,
                call.key,
                outcome.output,
                outcome.message,
                is_error=outcome.is_error,
            )
        finally:
            self._waited_s += time.monotonic() - asked_at
            if change is not None:
                files.after_change(change, call.key.rpartition(":")[0], call.key)
        if said.by:
            self._hooks_say.append(f"The hook {said.by} objects: {said.reason}")
        if said.context:
            self._hooks_say.append(said.context)
        return said.stops

    def _emit(self, text: str) -> None:
        """Publish output of the tool. A command that continues in the background may print after the call's end."""
        if self._has_ended:
            return
        if self._output is None:
            self._output = LiveOutput(self._conversation.wire, self._call.key)
        self._output.emit(text)

    async def _with_images_stored(self, outcome: ToolOutcome) -> ToolOutcome:
        """Store the images of the outcome, so that a message can name them."""
        try:
            for image in outcome.images:
                await asyncio.to_thread(self._conversation.images.put, image)
        except OSError as error:
            return failure(f"The image was read but cannot be shown. {error}", brief="not stored")
        return outcome

    async def _with_keys_marked(self, outcome: ToolOutcome) -> ToolOutcome:
        """Return the outcome, marked if it has texts that look like keys, and without them if the user wants that.

        Both the output and the message are searched, as tools quote files in their messages too.
        """
        said, output = outcome.message, outcome.output
        if len(said) + len(output) <= _SEARCHED_AT_ONCE:
            in_said, in_output = find_keys(said), find_keys(output)
        else:
            in_said, in_output = await asyncio.to_thread(
                lambda: (find_keys(said), find_keys(output))
            )
        keys = in_said + in_output
        if not keys:
            return outcome
        told = count_in_words(keys)
        brief = with_count(outcome.brief, keys)
        if not self._runtime.asks_for_keys:
            return replace(outcome, brief=brief)
        call = self._call
        question = ApprovalQuestion(
            asks=Asks(stops=False),
            question=f"Send the result of {call.name} to the model, with {told}?",
            detail="\n".join(
                [
                    *(f"in the tool's message, {line}" for line in key_lines(said, in_said)),
                    *key_lines(output, in_output),
                ]
            ),
            where='"No" leaves them out and sends the rest',
            session_key="send API keys",
            session_offer="Yes, and do not ask again about possible API keys in this session",
        )
        asked_at = time.monotonic()
        try:
            await self._runtime.approval.ask(question, key=call.key, tool=f"{call.name} result")
        except ToolRejected as no:
            why = f" They say: {no.feedback}" if no.feedback else ""
            rest = redact_keys(said, in_said)
            return replace(
                outcome,
                output=redact_keys(output, in_output),
                message=f"{rest} The user left {told} out of the output.{why}".strip(),
                brief=f"{brief}, left out",
            )
        finally:
            self._waited_s += time.monotonic() - asked_at
        return replace(outcome, brief=brief)

    async def ask(self, ask: ApprovalQuestion) -> str:
        """Ask the user about this call (as the tools' `Approver`); the time limit is suspended meanwhile.

        Returns:
            the command with which the user replaced the one in the question; empty if they did not.

        Raises:
            ToolRejected: the answer is no.
        """
        call, conversation = self._call, self._conversation
        self._asking = True
        # What the user changes while the question is read is theirs.
        self._end_changes()
        asked_at = time.monotonic()
        if self._limit is not None:
            self._limit.reschedule(None)
        approval = self._runtime.approval
        instead = await approval.ask(ask, key=call.key, tool=call.name)
        while self._tool is not None and self._tool.changes != "nothing":
            mode = approval.mode
            inside = [edit.path for edit in ask.edits if not edit.path.startswith(("/", "~"))]
            paths = None if self._tool.changes == "anything" else inside
            sync, files = asyncio.ensure_future(conversation.context.sync()), conversation.files
            if paths is not None:
                # The files are scanned last, because the tool then overwrites them at once.
                await sync
                self._changes.append(await files.before_change(paths))
            else:
                self._changes.append(await files.before_change(None, sync))
            if approval.mode == mode:
                break
            # The command was replaced meanwhile, and the earlier permission may not cover the new one.
            self._end_changes()
            if ask.changeable and instead:
                ask = replace(ask, detail=instead, session_key="")
            instead = await approval.ask(ask, key=call.key, tool=call.name) or instead
        self._asking, self._has_begun = False, True
        self._waited_s += time.monotonic() - asked_at
        if self._limit is not None and (self._tool is None or self._tool.is_timed):
            loop = asyncio.get_running_loop()
            self._limit.reschedule(loop.time() + conversation.limits.tool_timeout_s)
        self._publish_started()
        return instead

    def _end_changes(self) -> None:
        """Have the changes of the call so far scanned."""
        key = self._call.key
        changes, self._changes = self._changes, []
        for change in changes:
            self._conversation.files.after_change(change, key.rpartition(":")[0], key)

    async def _write(self, work: Callable[[], None]) -> None:
        """Run a function that writes the files which the user, or the mode, has let the call change."""
        if self._changes:
            await self._conversation.files.write(self._changes[-1], work)
        else:
            await asyncio.to_thread(work)

    def _scan_at_end(self) -> None:
        """Begin to scan the files; called in any thread."""
        for change in tuple(self._changes):
            self._conversation.files.scan_at_end(change)

    def _renewed(self, env: ToolEnv) -> ToolEnv:
        """Return the environment of a tool again, for the present mode."""
        mode = self._runtime.approval.mode
        return replace(env, sandbox=self._sandbox(mode), reads_only=mode == "plan")

    def _sandbox(self, mode: Mode) -> Sandbox | None:
        """Return the sandbox of commands in this mode; None if each command needs approval."""
        sandbox = self._runtime.sandbox
        if mode in ("sandboxed", "all") or (mode == "plan" and sandbox and sandbox.is_whole):
            return sandbox
        return None

    def _publish_started(self) -> None:
        if not self._is_published and not self._asking:
            self._is_published = True
            call = self._call
            self._conversation.wire.publish(ToolStarted(call.key, call.name, self._arguments))


def within_room(text: str, most_chars: int | None) -> str:
    """Return a text with its middle cut out if it exceeds the room in a small window; digits and signs take more room."""
    if most_chars is None:
        return text
    tokens, most = text_tokens(text), most_chars // CHARS_A_TOKEN
    if tokens > most:
        most_chars = min(most_chars, len(text) * most // tokens)
    return shortened(text, most_chars)


def _within(outcome: ToolOutcome, most_chars: int | None) -> ToolOutcome:
    """Return the outcome with as much of its output as fits in a small window."""
    output = within_room(outcome.output, most_chars)
    if output == outcome.output:
        return outcome
    told = "The output was shortened to fit your small context: ask for less in one call."
    return replace(
        outcome,
        output=output,
        message=f"{outcome.message} {told}".strip(),
    )


class LiveOutput:
    """Publishes the output of one call twenty times a second; of a flood of output only the newest part.

    Args:
        wire: the wire on which it is published.
        key: the key of the call.
    """

    def __init__(self, wire: Wire, key: str) -> None:
        self._wire = wire
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._cleaner = Cleaner()
        self._pieces: deque[str] = deque()
        self._size = 0
        self._n_skipped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def emit(self, text: str) -> None:
        """Take more output. Call it on the event loop."""
        if self._closed or not text:
            return
        if len(text) > _OUTPUT_CHARS:
            self._n_skipped += len(text) - _OUTPUT_CHARS
            text = text[-_OUTPUT_CHARS:]
        self._pieces.append(text)
        self._size += len(text)
        while self._size - len(self._pieces[0]) >= _OUTPUT_CHARS:
            gone = self._pieces.popleft()
            self._size -= len(gone)
            self._n_skipped += len(gone)
        if self._timer is None:
            self._timer = self._loop.call_later(_OUTPUT_INTERVAL_S, self._flush)

    def close(self) -> None:
        """Publish the rest; later output is ignored."""
        if not self._closed:
            self._flush()
            self._closed = True

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._n_skipped:
            # The skipped text may have contained half a terminal sequence, so the cleaner starts anew.
            self._cleaner = Cleaner()
            text = f"\n[… {self._n_skipped:,} characters …]\n{text}"
            self._n_skipped = 0
        clean = self._cleaner.feed(text)
        if clean:
            self._wire.publish(ToolOutput(self._key, clean))


async def run_user_command(command: str, runtime: ToolRuntime, *, told: bool) -> Literal["done"]:
    """Run a shell command of the user to its end: its card is published on the wire, its output added to the context.

    In the context the command is a message of the user after a checkpoint of its own, followed by its result as a reminder.
    So a rewind to it restores the files that it changed, and puts it into the prompt again.

    Args:
        command: the command as the user typed it.
        runtime: the runtime; its sandbox is not used.
        told: whether the model is told of it; if not, the context does not change.

    Raises:
        asyncio.CancelledError: the command was stopped; it is published and reported as stopped.
        OSError: the disk refused.
    """
    conversation = runtime.conversation
    uid = ""
    if told:
        said = f"!{command}"
        point = await conversation.checkpoint("user", label_of(said))
        uid = point.uid
        await conversation.append([user_words(said)])
    elif conversation.context.checkpoints:
        uid = conversation.context.checkpoints[-1].uid
    key = call_key(uid if told else uuid4().hex, 0)
    output = LiveOutput(conversation.wire, key)
    env = ToolEnv(
        work_dir=runtime.work_dir,
        approver=_NoQuestion(),
        send_dmail=conversation.send_dmail,
        versions=FileVersions(conversation.memory.versions),
        emit=output.emit,
        environ=runtime.environ,
        key=key,
    )
    await conversation.context.sync()
    change = await conversation.files.before_change(None)
    conversation.wire.publish(ToolStarted(key, OWN_COMMAND, json.dumps({"command": command})))
    began = time.monotonic()
    stopped = False
    try:
        outcome = await run_as_user(command, env)
    except ToolProblem as problem:
        outcome = failure(str(problem), brief=problem.brief)
    except asyncio.CancelledError:
        stopped, outcome = True, failure(INTERRUPTED, brief="stopped")
    finally:
        output.close()
        conversation.files.after_change(change, uid, key)
    sent, brief = outcome.output, outcome.brief
    if not told:
        # The card looks like those of commands that the agent is told of, so it says that this one is not.
        brief = f"{brief}, not sent to the model"
    elif keys := await asyncio.to_thread(find_keys, sent):
        brief = with_count(brief, keys)
        if runtime.asks_for_keys:
            sent, brief = redact_keys(sent, keys), f"{brief}, left out"
    conversation.wire.publish(
        ToolResult(
            key=key,
            is_error=outcome.is_error,
            output=outcome.output,
            message=outcome.message,
            display=await blocks_of(outcome.effects, brief),
            duration_s=time.monotonic() - began,
            interrupted=stopped,
        )
    )
    if told:
        sent = within_room(sent, conversation.result_chars())
        told_words = prompt("user_command", FACTS=outcome.message, OUTPUT=quoted(sent))
        await conversation.append([user_message(told_words)])
        conversation.publish_status()
    await conversation.files.settled()
    if stopped:
        raise asyncio.CancelledError
    return "done"


class _NoQuestion:
    """The approver of the user's own commands: approves without a question."""

    async def ask(self, ask: ApprovalQuestion) -> str:
        return ""
