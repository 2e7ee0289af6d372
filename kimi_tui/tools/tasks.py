"""TaskOutput and TaskStop: what a command in the background has printed, and its end."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.tools.base import Tool, ToolEnv, ToolOutcome, ToolProblem
from kimi_tui.tools.jobs import Job

MAX_WAIT_S = 600


class TaskOutputParams(BaseModel):
    """Of which command."""

    model_config = ConfigDict(extra="forbid")

    id: int = Field(description="The id that Shell gave.")
    wait: int = Field(
        default=0,
        description="Wait for its end at most so many seconds; 0 looks at once.",
        ge=0,
        le=MAX_WAIT_S,
    )


class TaskOutput(Tool[TaskOutputParams]):
    """Reads what a command in the background has printed."""

    name: ClassVar[str] = "TaskOutput"
    changes: ClassVar[bool] = False
    params = TaskOutputParams

    async def run(self, params: TaskOutputParams, env: ToolEnv) -> ToolOutcome:
        """Read it, when the command has ended or the wait is over."""
        job = _job(params.id, env)
        if params.wait:
            await asyncio.wait([job.task], timeout=params.wait)
        return _told(job)


class TaskStopParams(BaseModel):
    """Which command."""

    model_config = ConfigDict(extra="forbid")

    id: int = Field(description="The id that Shell gave.")


class TaskStop(Tool[TaskStopParams]):
    """Ends a command in the background."""

    name: ClassVar[str] = "TaskStop"
    changes: ClassVar[bool] = True
    params = TaskStopParams

    async def run(self, params: TaskStopParams, env: ToolEnv) -> ToolOutcome:
        """End it, with everything it started."""
        job = _job(params.id, env)
        was_running = not job.ended
        if was_running and env.jobs is not None:
            await env.jobs.stop(job)
        outcome = _told(job)
        if not was_running:
            return outcome
        return ToolOutcome(
            outcome.output, "It was stopped, with everything it started.", brief="stopped"
        )


def _job(job_id: int, env: ToolEnv) -> Job:
    job = env.jobs.get(job_id) if env.jobs is not None else None
    if job is not None:
        return job
    known = ", ".join(str(one.id) for one in env.jobs.running) if env.jobs is not None else ""
    raise ToolProblem(
        f"No command has the id {job_id}. "
        + (f"In the background run: {known}." if known else "None runs in the background."),
        brief="no such id",
    )


def _told(job: Job) -> ToolOutcome:
    """What it has printed since it was looked at last, and whether it still runs."""
    ended = job.outcome
    if ended is None:
        fresh = job.new_output()
        facts = [f"It still runs, for {job.ran_s:.0f} s now."]
        if not fresh.text:
            facts.append("Nothing new was printed.")
        if fresh.shortened:
            facts.append("The new output was shortened: beginning and end are kept.")
        return ToolOutcome(fresh.text, " ".join(facts), brief="still runs")
    # Its end is the last thing there is to say of it; the output that came with it is read once.
    output = "" if job.is_read else job.new_output().text if job.task.cancelled() else ended.output
    job.is_told = job.is_read = True
    return ToolOutcome(output, f"It has ended. {ended.message}", ended.is_error, ended.brief)
