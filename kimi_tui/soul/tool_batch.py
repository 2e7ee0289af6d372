"""Runs the calls of one step: those that only read at once, those that change something one after another.

Calls keep their order where it matters: a reading call behind a changing one waits for it, so that it sees the change.
Whatever happens, every call ends up with a result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kimi_tui.soul.approval import Approval, CallAsker
from kimi_tui.soul.display import blocks_of
from kimi_tui.soul.file_history import Change, FileHistory
from kimi_tui.soul.limits import LoopLimits
from kimi_tui.soul.live_output import LiveOutput
from kimi_tui.soul.memory import CallVersions, LineMemory
from kimi_tui.soul.tool_message import INTERRUPTED, NOT_BEGUN, NOT_RUN, rejection
from kimi_tui.tools.base import Ask, Mailbox, ToolEnv, ToolOutcome, ToolRejected, failure
from kimi_tui.tools.toolset import Toolset
from kimi_tui.wire.events import ToolResult, ToolStarted
from kimi_tui.wire.queue import Wire

_SHOWN_AS_STARTED_AFTER_S = 0.03
_STOP_PATIENCE_S = 0.7


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a step. `key` is ours and unique, `id` the provider's own."""

    key: str
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Done:
    """How a call ended. `noted` are the file versions it saw."""

    call: Call
    outcome: ToolOutcome
    rejected: bool = False
    interrupted: bool = False
    feedback: str = ""
    duration_s: float = 0.0
    noted: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ToolWorld:
    """Everything that running a tool needs beside the call."""

    toolset: Toolset
    approval: Approval
    mailbox: Mailbox
    memory: LineMemory
    wire: Wire
    work_dir: Path
    environ: Mapping[str, str]
    limits: LoopLimits
    files: FileHistory
    clock: Callable[[], float] = time.monotonic


class ToolBatch:
    """The calls of one step, from their start to their results."""

    def __init__(self, world: ToolWorld, calls: Sequence[Call]) -> None:
        self._world = world
        self._calls = tuple(calls)
        self._done: dict[str, Done] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runners: dict[str, _Runner] = {}
        self._refused = False
        self._stopped = False

    @property
    def results(self) -> list[Done]:
        """The results there are, in the order of the calls."""
        return [self._done[call.key] for call in self._calls if call.key in self._done]

    async def run(self) -> list[Done]:
        """Run all calls.

        Raises:
            asyncio.CancelledError: call `stop` then, which gives a result to every call.
        """
        for group in self._groups():
            if self._refused and self._changes(group[0]):
                await self._finish(group[0], Done(group[0], failure(NOT_RUN, brief="not run")))
                continue
            tasks = {
                call.key: asyncio.create_task(self._run_one(call), name=f"tool {call.name}")
                for call in group
            }
            self._tasks |= tasks
            # Not gather: it would hold up a cancel until the last of them has ended.
            await asyncio.wait(tasks.values())
            for task in tasks.values():
                task.result()
        # What was changed is known before the next step, which may go back.
        await self._world.files.settled()
        return self.results

    async def stop(self) -> set[asyncio.Task[None]]:
        """Cancel what runs and settle what has no result.

        Returns:
            tasks that are still ending what they started; whoever owns the engine awaits them.
        """
        running = {task for task in self._tasks.values() if not task.done()}
        for task in running:
            task.cancel()
        late: set[asyncio.Task[None]] = set()
        if running:
            _, late = await asyncio.wait(running, timeout=_STOP_PATIENCE_S)
        self._stopped = True
        for call in self._calls:
            if call.key not in self._done:
                runner = self._runners.get(call.key)
                begun = runner is not None and runner.may_have_acted
                outcome = failure(INTERRUPTED if begun else NOT_BEGUN, brief="stopped")
                await self._finish(call, Done(call, outcome, interrupted=True))
        return late

    def _groups(self) -> list[list[Call]]:
        groups: list[list[Call]] = []
        for call in self._calls:
            joins = groups and not self._changes(call) and not self._changes(groups[-1][-1])
            if joins:
                groups[-1].append(call)
            else:
                groups.append([call])
        return groups

    def _changes(self, call: Call) -> bool:
        tool = self._world.toolset.get(call.name)
        return tool is not None and tool.changes

    async def _run_one(self, call: Call) -> None:
        runner = _Runner(self._world, call)
        self._runners[call.key] = runner
        done = await runner.run()
        if done.rejected and not done.feedback:
            self._refused = True
        if not self._stopped:
            await self._finish(call, done)

    async def _finish(self, call: Call, done: Done) -> None:
        display = await blocks_of(done.outcome.effects, done.outcome.brief)
        if call.key in self._done:
            return
        self._done[call.key] = done
        self._world.memory.took(done.outcome)
        self._world.wire.publish(
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


class _Runner:
    """One call while it runs."""

    def __init__(self, world: ToolWorld, call: Call) -> None:
        self._world = world
        self._call = call
        self._output = LiveOutput(world.wire, call.key)
        self._versions = CallVersions(world.memory)
        self._limit: asyncio.Timeout | None = None
        self._asking = False
        self._asked_at = self._waited_s = 0.0
        self._told = False
        self._changes: list[Change] = []

    @property
    def may_have_acted(self) -> bool:
        """Whether it got further than to a first question that nobody has answered."""
        return not self._asking or bool(self._changes)

    async def run(self) -> Done:
        world, call = self._world, self._call
        loop = asyncio.get_running_loop()
        began = world.clock()
        env = ToolEnv(
            work_dir=world.work_dir,
            asker=CallAsker(
                world.approval,
                key=call.key,
                tool=call.name,
                before=self._before_asking,
                allowed=self._allowed,
                after=self._after_asking,
            ),
            mailbox=world.mailbox,
            versions=self._versions,
            emit=self._output.emit,
            environ=world.environ,
            key=call.key,
            todos=world.memory.todos,
        )
        # A call that asks begins when it may; one that has not asked by then is running.
        timer = loop.call_later(_SHOWN_AS_STARTED_AFTER_S, self._tell_started)
        rejected, feedback = False, ""
        try:
            async with asyncio.timeout(world.limits.tool_timeout_s) as self._limit:
                outcome = await world.toolset.run(call.name, call.arguments, env)
        except ToolRejected as no:
            rejected, feedback = True, no.feedback
            outcome = rejection(feedback)
        except TimeoutError:
            outcome = failure(
                f"{call.name} was stopped: it ran longer than {world.limits.tool_timeout_s:.0f} seconds.",
                brief="timed out",
            )
        finally:
            timer.cancel()
            self._output.close()
            for change in self._changes:
                world.files.after_change(change, call.key.rpartition(":")[0])
        if not rejected:
            self._asking = False
            self._tell_started()
        # How long a tool took is its own doing; the person may think as long as they want.
        duration_s = world.clock() - began - self._waited_s
        done = Done(call, outcome, rejected=rejected, feedback=feedback, duration_s=duration_s)
        return replace(done, noted=self._versions.noted) if self._versions.noted else done

    def _before_asking(self) -> None:
        self._asking = True
        self._asked_at = self._world.clock()
        if self._limit is not None:
            self._limit.reschedule(None)  # the person may take all the time they want

    async def _allowed(self, ask: Ask) -> None:
        tool = self._world.toolset.get(self._call.name)
        if tool is not None and tool.changes:
            inside = [edit.path for edit in ask.edits if not edit.path.startswith(("/", "~"))]
            is_command = ask.action == "run command"
            paths = None if is_command else inside
            self._changes.append(await self._world.files.before_change(paths))

    def _after_asking(self) -> None:
        self._asking = False
        self._waited_s += self._world.clock() - self._asked_at
        if self._limit is not None:
            loop = asyncio.get_running_loop()
            self._limit.reschedule(loop.time() + self._world.limits.tool_timeout_s)
        self._tell_started()

    def _tell_started(self) -> None:
        if not self._told and not self._asking:
            self._told = True
            call = self._call
            self._world.wire.publish(ToolStarted(call.key, call.name, call.arguments))
