"""Jobs: commands that run in the background, until they end, are stopped, or the session ends.

A `Job` has a started command and its output. `Jobs` are those of one session: the tools read and stop them, the user lists
and stops them, and the owner of the session ends them. Nothing of them is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from kimi_tui.foreign_text import clean
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem, failure
from kimi_tui.tools.process import RunningCommand

MOST_RUNNING = 8
_MOST_KEPT = 24
_TAIL_CHARS = 32_768


class OutputTail:
    """The newest output of a command, for the user to see."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._size = 0

    def add(self, text: str) -> None:
        """Append output."""
        self._pieces.append(text)
        self._size += len(text)
        while self._size - len(self._pieces[0]) >= _TAIL_CHARS:
            self._size -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        """The kept output, sanitized."""
        return clean("".join(self._pieces)[-_TAIL_CHARS:])


@dataclass(slots=True, eq=False)
class Job:
    """A command that runs in the background.

    Attributes:
        id: the number of the job in the session.
        key: the key of the call that started it.
        command: the text of the command.
        running: the process.
        task: a task whose result is the outcome, with the unread output.
        tail: the newest output.
        started: the time of the start, in monotonic seconds.
        ended: the time of the end, likewise; 0 while the command runs.
        is_told: whether the model has been told that it ended.
        is_read: whether the model has got all of its output.
    """

    id: int
    key: str
    command: str
    running: RunningCommand
    task: asyncio.Task[ToolOutcome]
    tail: OutputTail
    started: float
    ended: float = 0.0
    is_told: bool = False
    is_read: bool = False

    @property
    def ran_s(self) -> float:
        """The seconds for which the command has run."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def how_it_ended(self) -> str:
        """How the command ended, in one sentence; empty while it runs."""
        return self.outcome.message if self.outcome is not None else ""

    @property
    def outcome(self) -> ToolOutcome | None:
        """The result of the command; None while it runs."""
        if not self.task.done():
            return None
        if self.task.cancelled():
            return ToolOutcome(message="It was stopped.", is_error=True, brief="stopped")
        error = self.task.exception()
        if error is not None:
            brief = error.brief if isinstance(error, ToolProblem) else "failed"
            return failure(str(error) or type(error).__name__, brief=brief)
        return self.task.result()


class Jobs:
    """The jobs of one session, used on the event loop.

    Args:
        changed: called with each job that starts or ends.
    """

    def __init__(self, changed: Callable[[Job], None] = lambda job: None) -> None:
        self._changed = changed
        self._jobs: dict[int, Job] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._n = 0

    @property
    def all(self) -> tuple[Job, ...]:
        """The running commands and the newest of those that have ended, oldest first."""
        return tuple(self._jobs.values())

    @property
    def running(self) -> tuple[Job, ...]:
        """The commands that still run."""
        return tuple(job for job in self._jobs.values() if not job.ended)

    def get(self, job_id: int) -> Job | None:
        """Return the job with a number."""
        return self._jobs.get(job_id)

    def check_room(self) -> None:
        """Check that one more command may run.

        Raises:
            ToolProblem: too many run already.
        """
        if len(self.running) >= MOST_RUNNING:
            raise ToolProblem(
                f"{MOST_RUNNING} background tasks are running already: stop one with TaskStop, or wait until one ends.",
                brief="too many",
            )

    def add(
        self,
        command: str,
        running: RunningCommand,
        task: asyncio.Task[ToolOutcome],
        tail: OutputTail,
        key: str,
    ) -> Job:
        """Take over a running command, which has no time limit any more."""
        running.lift_limit()
        self._n += 1
        job = Job(self._n, key, command, running, task, tail, running.started)
        self._jobs[job.id] = job
        for old in [one for one in self._jobs.values() if one.ended][:-_MOST_KEPT]:
            del self._jobs[old.id]
        task.add_done_callback(lambda _: self._has_ended(job))
        self._changed(job)
        return job

    def _has_ended(self, job: Job) -> None:
        job.ended = time.monotonic()
        if not job.task.cancelled():
            # Reading the exception keeps asyncio from reporting it.
            job.task.exception()
        self._changed(job)

    @contextmanager
    def foreground(self) -> Generator[asyncio.Future[None]]:
        """Mark that a call waits for a command. The yielded future is done when the call must continue without the command's end."""
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(moved)
        try:
            yield moved
        finally:
            self._waiting.remove(moved)

    def move_to_background(self) -> bool:
        """Make calls continue without the commands for which they wait; return False if no call waits."""
        waiting = [moved for moved in self._waiting if not moved.done()]
        for moved in waiting:
            moved.set_result(None)
        return bool(waiting)

    def take_ended(self) -> list[Job]:
        """Return the commands that have ended since the last call; the caller tells the model."""
        ended = [job for job in self._jobs.values() if job.ended and not job.is_told]
        for job in ended:
            job.is_told = True
        return ended

    async def stop(self, job: Job) -> None:
        """Stop a job with everything that it started; returns when it has ended, or shortly after the signal."""
        job.task.cancel()
        await asyncio.wait([job.task])

    async def aclose(self) -> None:
        """End all jobs."""
        tasks = [job.task for job in self.running]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
