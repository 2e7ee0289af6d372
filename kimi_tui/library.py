"""The program as a library: `open_session` opens a session of the agent for another program. docs/library.md describes it.

It is the engine of the app and of `kimi-tui -p`, opened in the same way: the same configuration, sandbox and stored sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from kimi_tui.agent_parts import Mode
from kimi_tui.config.settings import ConfigError
from kimi_tui.headless import checks
from kimi_tui.headless.answers import Answers
from kimi_tui.headless.options import HeadlessOptions
from kimi_tui.headless.report import Result, TurnReport
from kimi_tui.launch import CannotOpen, Options, launch_of
from kimi_tui.llm.errors import LLMError
from kimi_tui.session.world_lines import WorldLine
from kimi_tui.soul.checkpoint_table import CheckpointRow, list_checkpoints
from kimi_tui.soul.errors import RunCancelled, SoulError
from kimi_tui.soul.kimisoul import TURN_ERRORS, KimiSoul
from kimi_tui.soul.opening import open_session as open_engine
from kimi_tui.soul.rewind_values import RewindOutcome, Target
from kimi_tui.wire.events import (
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalResolved,
    EventRecord,
    TurnEnd,
)

Answer = ApprovalAnswer | tuple[ApprovalAnswer, str]
"""An answer to a request: `once`, `session` or `no`, or one of these with the reason or the chosen option."""
Answerer = Callable[[ApprovalRequest], Awaitable[Answer]]

__all__ = [
    "AgentSession",
    "Answer",
    "Answerer",
    "CannotOpen",
    "ConfigError",
    "LLMError",
    "Result",
    "RunCancelled",
    "SoulError",
    "open_session",
]


@asynccontextmanager
async def open_session(
    work_dir: str | Path = ".",
    *,
    session: str | None = None,
    fork: bool = False,
    model: str | None = None,
    base_url: str | None = None,
    mode: Mode | None = None,
    answer: Answerer | None = None,
    sandbox: bool = True,
    add_dirs: Sequence[str | Path] = (),
    bare: bool = False,
    ephemeral: bool = False,
    max_tokens: int = 0,
    max_cost: float = 0.0,
) -> AsyncGenerator[AgentSession]:
    """Open a session of the agent; it is saved and closed at the end of the context.

    Args:
        work_dir: the folder that the agent works in.
        session: the id of a stored session, the beginning of one, or `newest` for the newest of the folder; None for a new one.
        fork: whether to work on a copy of it.
        model: a model of the configuration, or a name that the server knows; None for the configured one.
        base_url: the OpenAI-compatible server; None for the configured one.
        mode: what the agent may do without a question; None for the configured mode.
        answer: answers the requests of the agent; without it they are refused, and the agent is told so.
        sandbox: whether commands run in the sandbox, where there is one.
        add_dirs: further folders that the agent may use as the work folder; a rewind does not restore their files.
        bare: whether notes of the project and of the user, and hooks, are left out.
        ephemeral: whether the session is removed at the end.
        max_tokens: the most tokens of all calls, input and output; 0 for any number.
        max_cost: the most money, by the configured prices; 0 for any amount.

    Raises:
        ConfigError: the configuration or an argument cannot be used.
        CannotOpen: there is no such session or no model, or another process has the session open.
    """
    options = Options(
        newest=session == "newest",
        session=None if session == "newest" else session,
        fork=fork,
        work_dir=str(work_dir),
        model=model,
        base_url=base_url,
        mode=mode,
        no_sandbox=not sandbox,
        added=tuple(map(str, add_dirs)),
    )
    launch = await asyncio.to_thread(launch_of, options)
    limits = HeadlessOptions(bare=bare, max_tokens=max_tokens, max_cost=max_cost)
    async with checks.ephemeral(checks.with_options(launch, limits), wanted=ephemeral) as launch:
        opened = await open_engine(launch, waits_for_sandbox=False)
        found = AgentSession(opened.soul, answer)
        try:
            yield found
        finally:
            await found.aclose()


class AgentSession:
    """An open session. Turns and operations run one at a time; they raise `SoulBusy` while another one runs.

    Args:
        soul: its engine.
        answer: answers requests; None to refuse them.

    Attributes:
        soul: the engine, for what this class does not have: a `Soul` with all parts.
    """

    def __init__(self, soul: KimiSoul, answer: Answerer | None) -> None:
        self.soul = soul
        self._answer = answer
        self._report = TurnReport(strict=False)
        self._results: asyncio.Queue[Result] = asyncio.Queue()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._following = asyncio.create_task(self._follow(), name="library")

    @property
    def id(self) -> str:
        """The id of the session, for `open_session` and `kimi-tui --session`."""
        return self.soul.session.id

    async def run(self, prompt: str, *, piped: str = "") -> Result:
        """Run one turn: from the prompt until the agent stops.

        Args:
            prompt: the message; files that it names with `@` are attached.
            piped: a text that comes with it, in which no names of files are looked for.

        Returns:
            the answer, with the steps, tokens and refusals of the turn.

        Raises:
            LLMError: the model could not be asked.
            MaxStepsReached, BudgetSpent: a limit was reached.
            RunCancelled: the turn was stopped.
            SoulError: another error ended the turn.
            StorageTrouble: the disk refused.
        """
        self._report.begin(self.soul.spent)
        while not self._results.empty():
            self._results.get_nowait()
        begun: list[bool] = []
        try:
            await self.soul.run(prompt, piped=piped, begins=lambda: begun.append(True))
        except TURN_ERRORS:
            if begun:
                # The end of this turn must not be taken for that of the next one.
                await self._results.get()
            raise
        return await self._results.get()

    def steer(self, text: str) -> None:
        """Send a message into the running turn, before its next step; without a turn it waits for the next one."""
        self.soul.say(text)

    async def stop(self) -> None:
        """Stop the running turn or operation; what is complete is kept, and `run` raises `RunCancelled`."""
        await self.soul.interrupt()

    async def events(self) -> AsyncGenerator[EventRecord]:
        """Yield every event from now on, until the session is closed."""
        subscription = self.soul.wire.subscribe()
        try:
            async for record in subscription:
                yield record
        finally:
            self.soul.wire.unsubscribe(subscription)

    async def set_mode(self, mode: Mode) -> None:
        """Set what the agent may do without a question.

        Raises:
            NoSandbox: there is no sandbox for the mode `sandboxed`.
        """
        await self.soul.set_mode(mode)

    # -- time travel -----------------------------------------------------------------------------

    async def checkpoints(self) -> Sequence[CheckpointRow]:
        """Return the checkpoints of the current world line, oldest first."""
        await self.soul.flush()
        return await asyncio.to_thread(list_checkpoints, self.soul.session)

    async def rewind(
        self, checkpoint: int, *, files: Literal["keep", "restore", "only"] = "keep"
    ) -> RewindOutcome:
        """Go back to before a checkpoint of the current world line.

        Args:
            checkpoint: its number.
            files: whether the files of that time are restored, too, or only they are.

        Raises:
            KeyError: there is no such checkpoint.
            FilesUnknown: the files cannot be restored; nothing changed.
        """
        if files != "keep":
            await self.soul.files_ready()
        return await self.soul.travel.rewind(Target(checkpoint), files)

    async def undo(self) -> str:
        """Undo the newest operation; return a sentence about it.

        Raises:
            SessionError: there is nothing to undo.
        """
        return (await self.soul.travel.undo()).text

    async def redo(self) -> str:
        """Do again the operation that was undone last; return a sentence about it."""
        return (await self.soul.travel.redo()).text

    async def fork(self) -> str:
        """Copy the current world line into a new session; return its id."""
        return (await self.soul.travel.fork()).session_id

    async def compact(self, instructions: str = "") -> bool:
        """Replace older messages with a summary that keeps what the instructions name; return whether there is one now."""
        return await self.soul.compact(instructions)

    async def send_dmail(
        self, checkpoint: int, text: str, *, files: Literal["keep", "restore"] = "keep"
    ) -> RewindOutcome:
        """Send a D-Mail, a note to the agent's past self: the steps since the checkpoint leave the context.

        Raises:
            KeyError: there is no such checkpoint.
            SoulError: the text is empty, D-Mails are off, or the files cannot be restored.
        """
        if files != "keep":
            await self.soul.files_ready()
        return await self.soul.dmails.send(Target(checkpoint), text, files)

    async def world_lines(self) -> Sequence[WorldLine]:
        """Return the world lines, the branches of the conversation that were left, in order of number."""
        return await self.soul.lines.all()

    async def read_world_line(self, number: int) -> Sequence[EventRecord]:
        """Return the events of one world line.

        Raises:
            KeyError: there is no such world line.
        """
        return await self.soul.lines.read(number)

    # -- implementation --------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Stop what runs, save, and close the session. `open_session` does this at its end."""
        await self.soul.aclose()
        await self._following
        for task in self._answering.values():
            task.cancel()

    async def _follow(self) -> None:
        refusing = Answers(self.soul, (), lambda _: None, lambda _: None)
        async for record in self.soul.wire.subscribe():
            if record.source:
                continue
            self._report.follow(record.event)
            match record.event:
                case ApprovalRequest() as request:
                    work = (
                        refusing.answer(request) if self._answer is None else self._asked(request)
                    )
                    self._answering[request.id] = asyncio.create_task(work, name="answer")
                case ApprovalResolved(id=request_id) if request_id in self._answering:
                    task = self._answering.pop(request_id)
                    if task is not asyncio.current_task():
                        # The turn was stopped: nobody waits for this answer any more.
                        task.cancel()
                case TurnEnd() as end:
                    self._results.put_nowait(self._report.result(end, self.soul.spent))
                case _:
                    pass

    async def _asked(self, request: ApprovalRequest) -> None:
        """Have the caller answer a request; an error of the caller is a no."""
        assert self._answer is not None
        said: Answer = "no"
        try:
            said = await self._answer(request)
        finally:
            answer, feedback = (said, "") if isinstance(said, str) else said
            self.soul.answer(request.id, answer, feedback)
