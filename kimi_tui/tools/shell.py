"""Shell runs one command in a fresh shell and shows its output while it runs; TaskOutput and TaskStop handle commands in the
background.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kimi_tui.app_paths import home_of, reason_of
from kimi_tui.display_names import signal_name, some_of
from kimi_tui.foreign_text import one_line
from kimi_tui.prompts import prompt
from kimi_tui.tool_cards import ALLOWED_BY, IN_THE_WAY, ShellBlock
from kimi_tui.tools.base import TO_GO_OUTSIDE, TO_RUN, ApprovalQuestion, Changes, ToolEnv, TypedTool
from kimi_tui.tools.command_groups import judge
from kimi_tui.tools.jobs import Job, Jobs, OutputTail
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.paths import with_tilde
from kimi_tui.tools.process import (
    ProcessEnd,
    RunningCommand,
    child_environment,
    user_environment,
)
from kimi_tui.tools.programs import find_program, planted_in
from kimi_tui.tools.sandbox.git_watch import GitWatch, WatchedCommand
from kimi_tui.tools.sandbox.policy import NoSandbox, refused
from kimi_tui.tools.sandbox.refusals import hidden_reads
from kimi_tui.tools.sandbox.sandbox import Confined
from kimi_tui.tools.text import format_size

DEFAULT_TIMEOUT_S = 60
MAX_TIMEOUT_S = 600
MAX_WAIT_S = 600
"""Seconds for which TaskOutput may wait for the end of a command."""
USER_TIMEOUT_S = 3600
"""Seconds for a command of the user, who sees it run and can stop it."""
_AT_ONCE_S = 0.5
"""A command that ends within this many seconds is reported as if it had not been sent to the background."""
_OLD_S = 0.5
"""Seconds for which a look at the folder counts, when a question is asked between it and the start."""
_MOST_NAMED = 5
_LONGEST_COMMAND = 100_000
"""Characters. The kernel accepts 128 KiB for one argument."""
_UNFIT = re.compile("[\0\ud800-\udfff]")
_CHANGED = "\nThe user changed the command before it ran. What ran is:\n"
# A stored session may contain the word "person", from older versions.
_STORED_CHANGED = re.compile(_CHANGED.replace("user", "(?:user|person)"))


class ShellParams(BaseModel):
    """The arguments of Shell: the command."""

    model_config = ConfigDict(extra="forbid")

    command: str = Field(min_length=1)
    timeout: int = Field(
        default=DEFAULT_TIMEOUT_S,
        description="Seconds until it is stopped; no limit in the background.",
        ge=1,
        le=MAX_TIMEOUT_S,
    )
    background: bool = Field(
        default=False,
        description="Return at once while the command runs on.",
    )
    sandbox: Literal["on", "network", "off"] = Field(
        default="on",
        description="`network`: sandboxed, with network access; `off`: outside the sandbox. Both ask the user.",
    )
    why: str = Field(
        default="", description="One sentence for the user: why it needs that.", max_length=500
    )

    @model_validator(mode="before")
    @classmethod
    def _without_description(cls, value: Any) -> Any:
        """Models that were trained with other tools describe their commands, which nobody reads here."""
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            return {name: given[name] for name in given if name != "description"}
        return value


class Shell(TypedTool[ShellParams]):
    """Runs shell commands."""

    name = "Shell"
    changes: Changes = "anything"
    params = ShellParams
    lean_params = ("command", "timeout", "sandbox", "why")

    async def run(self, params: ShellParams, env: ToolEnv) -> ToolOutcome:
        """Run the command, after the user's approval."""
        command = params.command
        _check(command)
        if params.sandbox != "on" and not params.why.strip():
            raise ToolProblem(
                f'`sandbox` "{params.sandbox}" needs `why`: the user reads it to decide.',
                brief="no reason",
            )
        if params.background and env.jobs is not None:
            env.jobs.check_room()
        where = with_tilde(env.work_dir, home_of(env.environ))
        how_long = "in the background" if params.background else f"at most {params.timeout} s"
        changed = ""
        while True:
            env = env.renewed(env)
            start = await _prepared(command, params, env)
            if env.renewed(env) != env:
                continue
            asked_at = time.monotonic()
            instead = await env.approver.ask(
                ApprovalQuestion(
                    asks=TO_GO_OUTSIDE if start.beyond else TO_RUN,
                    question="Run this command?",
                    detail=command,
                    where=f"in {where}, {how_long}; {start.beyond or _asked_for(params)}{start.warning}",
                    session_key=start.group,
                    session_offer=start.offer,
                    project_rule=start.rule,
                    project_offer=start.project_offer,
                    sandboxed=start.confined is not None and not start.beyond,
                    changeable=True,
                )
            )
            if instead:
                command = changed = instead
                _check(command)
                # The user wrote this command, so no approval is needed.
                start = await _prepared(command, params, env, is_judged=True)
            elif start.confined is not None and time.monotonic() - asked_at > _OLD_S:
                # A secret, or a file that is to be protected, may have come while the question was read.
                again = await _prepared(command, params, env)
                if again.confined is None or again.beyond != start.beyond:
                    continue
                start = again
            # The mode may have changed since it was read; the mode at the start of the command decides where it runs.
            if env.renewed(env) == env:
                break
        tail = OutputTail()

        def hear(text: str) -> None:
            tail.add(text)
            env.emit(text)

        confined = start.confined
        watched = WatchedCommand(confined.policy.watch) if confined else None
        running = RunningCommand(
            start.argv,
            work_dir=env.work_dir,
            environ=start.environ,
            timeout_s=params.timeout,
            on_output=hear,
            confined_to=confined.words if confined else (),
            ends_all=confined is not None,
            around=env.sandbox.git_watch.around(watched) if watched and env.sandbox else None,
            afterwards=partial(env.sandbox.set_up_ahead, confined, env.work_dir)
            if confined and env.sandbox
            else None,
        )
        if watched is not None:
            watched.end = running.end
        # The command runs in a task of its own, as it may continue when the call has ended.
        task = asyncio.create_task(
            _to_its_end(
                running,
                command,
                params.timeout,
                env,
                confined,
                watched,
                is_outside=confined is None and bool(start.beyond),
            ),
            name="command",
        )
        outcome = await _awaited(task, running, env.jobs, _AT_ONCE_S if params.background else None)
        if outcome is None:
            assert env.jobs is not None
            job = env.jobs.add(command, running, task, tail, env.key)
            outcome = _moved(job, asked=params.background)
            if confined is not None and watched is not None and env.sandbox is not None:
                watch = env.sandbox.git_watch
                facts, brief = await asyncio.to_thread(_noticed, confined, watched, watch)
                outcome = replace(
                    outcome,
                    message=" ".join((outcome.message, *facts)),
                    brief=outcome.brief + brief,
                )
        if not changed:
            return outcome
        return replace(outcome, message=outcome.message + _CHANGED + command)


async def run_as_user(command: str, env: ToolEnv) -> ToolOutcome:
    """Run a command that the user typed: in their own environment, outside the sandbox, without approval.

    Raises:
        ToolProblem: the command cannot be run.
        asyncio.CancelledError: the command was stopped; every process that it started has been ended.
    """
    _check(command)
    running = RunningCommand(
        shell_argv(command, env),
        work_dir=env.work_dir,
        environ=user_environment(env.environ),
        timeout_s=USER_TIMEOUT_S,
        on_output=env.emit,
    )
    return await _to_its_end(running, command, USER_TIMEOUT_S, env)


async def _to_its_end(
    running: RunningCommand,
    command: str,
    timeout_s: int,
    env: ToolEnv,
    confined: Confined | None = None,
    watched: WatchedCommand | None = None,
    *,
    is_outside: bool = False,
) -> ToolOutcome:
    """Run a command to its end; return its result, with the effects of the sandbox.

    Args:
        running: the command, not yet started.
        command: the text of the command.
        timeout_s: the requested time limit in seconds.
        env: the environment of the call.
        confined: its sandbox; None if it runs outside.
        watched: the notes about its changes while it runs.
        is_outside: whether the user allowed it to leave the sandbox.
    """
    home = home_of(env.environ)
    if not env.work_dir.is_dir():
        where = with_tilde(env.work_dir, home)
        raise ToolProblem(f"The work folder {where} no longer exists.", brief="no folder")

    def report(ended: ProcessEnd) -> ToolOutcome:
        env.ended()
        outcome = _outcome(command, timeout_s, ended)
        if is_outside:
            return replace(outcome, brief=f"{outcome.brief} · outside the sandbox")
        if confined is None or watched is None or env.sandbox is None:
            return outcome
        return _of_sandbox(outcome, confined, watched, env.sandbox.git_watch, env.environ)

    try:
        # The effects of the sandbox are looked for in the command's thread, as that takes less than another one to answer.
        return await running.run_to(report)
    except OSError as error:
        raise ToolProblem(
            f"The command could not be started: {reason_of(error)}.", brief="not started"
        ) from error


async def _awaited(
    task: asyncio.Task[ToolOutcome],
    running: RunningCommand,
    jobs: Jobs | None,
    limit_s: float | None,
) -> ToolOutcome | None:
    """Return the outcome of the command; None if it continues in the background. Cancelling this call stops the command."""
    try:
        if jobs is None:
            return await asyncio.shield(task)
        with jobs.foreground() as moved:
            await asyncio.wait((task, moved), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        # What its processes change until they are gone is the agent's.
        await running.gone()
        raise


def _moved(job: Job, *, asked: bool) -> ToolOutcome:
    """Return the result of a call whose command continues in the background."""
    so_far = job.running.take_output()
    how = "It runs in the background" if asked else "The user moved it to the background"
    cut = " The output so far was shortened to its beginning and end." if so_far.shortened else ""
    return ToolOutcome(
        output=so_far.text,
        message=f"{how}, id {job.id}. TaskOutput reads its further output and can wait for it, TaskStop ends it. "
        f"You are told when it has ended, so do not poll.{cut}",
        brief=f"background task {job.id}",
    )


class _Start(NamedTuple):
    """The way in which a command starts.

    Attributes:
        argv: the program and its arguments.
        environ: its variables.
        confined: the sandbox that it runs in; None if it runs outside.
        beyond: the words of the question if it leaves the sandbox or has the network; else empty.
        group: the key of a yes for the session, empty if there is none; `offer` is the label of that answer.
        rule: the permission of a yes for the project; `project_offer` is the label of that answer.
        warning: a clause about programs in it that commands in the sandbox could have planted; else empty.
    """

    argv: Sequence[str]
    environ: Mapping[str, str]
    confined: Confined | None = None
    beyond: str = ""
    group: str = ""
    offer: str = ""
    rule: str = ""
    project_offer: str = ""
    warning: str = ""


def _asked_for(params: ShellParams) -> str:
    """Describe what a command may do without a sandbox, with the model's reason if it asked to leave the sandbox."""
    why = one_line(params.why)
    match params.sandbox:
        case "off":
            return f"OUTSIDE THE SANDBOX, with all your permissions. The agent's reason: {why}"
        case "network":
            return f"can change files and use the network. The agent's reason: {why}"
        case _:
            return "can change files"


async def _prepared(
    command: str, params: ShellParams, env: ToolEnv, *, is_judged: bool = False
) -> _Start:
    """Prepare a command of the model, or the one with which the user replaced it (`is_judged`), for the mode of `env`."""
    argv, environ, beyond = shell_argv(command, env), child_environment(env.environ), ""
    if env.sandbox is not None:
        why = one_line(params.why)
        if params.sandbox == "off":
            if env.reads_only:
                raise ToolProblem(prompt("plan_refused"), brief="plan mode")
            beyond = _asked_for(params)
        else:
            network = params.sandbox == "network"
            try:
                confined = await asyncio.to_thread(
                    env.sandbox.confined,
                    argv,
                    env.work_dir,
                    network=network,
                    writes=not env.reads_only,
                )
            except NoSandbox as no:
                beyond = f"OUTSIDE THE SANDBOX: {no}"
            except OSError as error:
                raise ToolProblem(
                    f"The sandbox cannot be set up: {error}.", brief="no sandbox"
                ) from error
            else:
                if network and not env.sandbox.settings.network:
                    beyond = f"in the sandbox, but WITH THE NETWORK. The agent's reason: {why}"
                return _Start(confined.argv, confined.environ, confined, beyond)
    start = _Start(argv, environ, beyond=beyond)
    if is_judged:
        return start
    if planted := await asyncio.to_thread(planted_in, command, environ, env.work_dir):
        home = home_of(env.environ)
        named = some_of([with_tilde(Path(one), home) for one in planted], _MOST_NAMED)
        start = start._replace(
            warning=f"; runs {named}, a file that an earlier sandboxed command may have changed"
        )
    verdict = await asyncio.to_thread(judge, command, env.work_dir, env.environ)
    if env.reads_only and verdict.kind == "project":
        return start
    if not verdict.group:
        return start._replace(offer=verdict.offer)
    return start._replace(
        argv=verdict.argv,
        environ={**environ, **verdict.environ},
        group=verdict.group,
        offer=verdict.offer,
        rule=verdict.rule,
        project_offer=verdict.project_offer,
    )


def _of_sandbox(
    outcome: ToolOutcome,
    confined: Confined,
    watched: WatchedCommand,
    watch: GitWatch,
    environ: Mapping[str, str],
) -> ToolOutcome:
    """Return the outcome with the effects of the sandbox. It looks at files, so call it in a thread."""
    home = home_of(environ)
    facts = [outcome.message]
    network = " with network" if confined.policy.network else ""
    brief = f"{outcome.brief} · sandbox{network}"
    what = refused(outcome.output, confined.policy) if outcome.is_error else []
    hidden = hidden_reads(outcome.output, confined.policy, environ)
    # The refusal is reported even if the command continued without the file.
    said = {confined.policy.real(one.removeprefix("reading ")) for one in what}
    what += [f"reading {path}" for path in hidden.paths if path not in said]
    if what:
        facts.append(
            f"{IN_THE_WAY} {', '.join(what)}. If the task needs this, call again with `sandbox` and "
            "`why`; do not work around it."
        )
        # The card shows the command beside it, so there is room for one name.
        more = f" and {len(what) - 1} more" if len(what) > 1 else ""
        short = what[0].replace(f" {home}/", " ~/")
        is_secret = confined.policy.real(what[0].removeprefix("reading ")) in hidden.secret
        short += " (credentials)" if is_secret else ""
        brief = f"{outcome.brief} · the sandbox blocked {short}{more}"
    if hidden.setting:
        facts.append(
            f"The user can allow it for every command with `{hidden.setting}` in the section `[sandbox]` of config.toml."
        )
    if hidden.secret:
        named = some_of([with_tilde(Path(path), home) for path in hidden.secret], _MOST_NAMED)
        facts.append(f"{named} is a place for credentials: do not read it.")
    more_facts, more_brief = _noticed(confined, watched, watch)
    facts += more_facts
    brief += more_brief
    if replaced := confined.policy.replaced():
        start = f"{confined.policy.work}/"
        named = some_of(
            [with_tilde(Path(path.removeprefix(start)), home) for path in replaced], _MOST_NAMED
        )
        facts.append(
            f"Another program replaced {named} while the command ran, so the replacement was not protected from the command. Tell the user."
        )
        brief += f" · replaced by another program: {named}"
    if hidden.setting:
        brief += f" · {ALLOWED_BY}{hidden.setting}"
    return replace(outcome, message=" ".join(facts), brief=brief)


def _noticed(confined: Confined, watched: WatchedCommand, watch: GitWatch) -> tuple[list[str], str]:
    """Return the command's effects so far on git's levers and on files that run later: facts for the model, and words for the card."""
    facts: list[str] = []
    brief = ""
    if watched.undone:
        named = some_of(watched.undone, _MOST_NAMED)
        facts.append(
            f"kimi-tui undid what the command changed in {named}: git could have run other programs because of it. Tell the user."
        )
        brief += f" · kimi-tui reverted: {named}"
    if watched.is_ended:
        facts.append("The command was stopped because it kept changing these files.")
    found = confined.policy.watch
    if changed := found.changed():
        watch.has_named(changed)
        named = some_of(changed, _MOST_NAMED)
        facts.append(
            f"The command changed files that other programs run or read settings from: {named}. Tell the user."
        )
        brief += f" · changed files that other programs run: {named}"
    if named := _new_folders(found.work, found.memory.unseen, found.unseen):
        facts.append(
            f"The command put more files into {named} than can be checked for secrets: sandboxed commands cannot read "
            'that folder from now on. If the folder is not needed, delete it with `sandbox` "off".'
        )
        brief += f" · too many files to check for secrets, so hidden from commands: {named}"
    if named := _new_folders(found.work, found.memory.closed, found.closed):
        facts.append(
            f"The command left {named} without the right to read it, so it cannot be checked for secrets: sandboxed commands "
            'cannot read that folder from now on. If it is needed, change its mode with `sandbox` "off".'
        )
        brief += f" · unreadable, so hidden from commands: {named}"
    return facts, brief


def _new_folders(work: str, now: Sequence[str], before: Sequence[str]) -> str:
    """Return the first folders that were not there before, relative to the work folder; empty if there are none."""
    new = sorted({*now} - {*before})
    return some_of([os.path.relpath(path, work) for path in new], _MOST_NAMED)


def command_that_ran(asked_for: str, message: str) -> str:
    """Return the command of a call, or the one with which the user replaced it.

    Args:
        asked_for: the command of the call.
        message: the message of its result, which names a replacement.
    """
    _, *ran = _STORED_CHANGED.split(message, 1)
    return ran[0] if ran else asked_for


def shell_argv(command: str, env: ToolEnv) -> list[str]:
    """Return the arguments that run the command in bash without start-up files, or in sh if there is no bash."""
    return bash_argv(command, env.environ, env.work_dir)


def bash_argv(command: str, environ: Mapping[str, str], work_dir: Path) -> list[str]:
    """Return the same arguments; no program in the work folder is taken for bash."""
    usual = (place for place in ("/bin/bash", "/usr/bin/bash") if os.access(place, os.X_OK))
    if bash := next(usual, None) or find_program("bash", environ, work_dir):
        # Without the `--`, a command that begins with a dash would be options of bash.
        return [bash, "--noprofile", "--norc", "-c", "--", command]
    return ["/bin/sh", "-c", "--", command]


def _check(command: str) -> None:
    if not command.strip():
        raise ToolProblem("The command is empty.", brief="no command")
    if _UNFIT.search(command):
        raise ToolProblem(
            "The command has characters that a command line cannot contain (NUL, surrogates).",
            brief="bad command",
        )
    if len(command.encode()) > _LONGEST_COMMAND:
        raise ToolProblem(
            f"The command is longer than {_LONGEST_COMMAND:,} bytes: write it to a script with WriteFile, then run that.",
            brief="too long",
        )


def _outcome(command: str, timeout_s: int, ended: ProcessEnd) -> ToolOutcome:
    took = f"{ended.duration_s:.1f} s"
    code = ended.exit_code
    if code is not None and code < 0:
        code = 128 - code
    if ended.ending == "timeout":
        verdict, brief = (
            f"Stopped after {timeout_s} s (its timeout){', with everything it started' if ended.n_alive == 0 else ''}.",
            f"stopped after {timeout_s} s",
        )
    elif ended.ending == "ended":
        verdict, brief = f"Ended after {took}.", "ended"
    elif code is None:
        verdict, brief = f"Stopped after {took}.", "stopped"
    elif ended.exit_code is not None and ended.exit_code < 0:
        verdict, brief = (
            f"Ended by {signal_name(-ended.exit_code)} (exit code {code}) after {took}.",
            f"exit {code}",
        )
    else:
        verdict, brief = f"Exit code {code} after {took}.", f"exit {code}"
    facts = [verdict]
    if ended.n_bytes == 0:
        facts.append("No output.")
    if ended.output.shortened:
        facts.append(
            f"The output of {format_size(ended.n_bytes)} was shortened to its beginning and end."
            " To see more, write it to a file and read parts of it."
        )
    if ended.output.binary:
        facts.append("The output looks binary.")
    if ended.n_alive is None:
        facts.append(
            "The command ended its supervising process, so processes that it started may still run."
        )
    elif ended.n_alive:
        facts.append(f"{ended.n_alive} processes that it started could not be ended.")
    if ended.n_left:
        processes = "process" if ended.n_left == 1 else "processes"
        facts.append(
            f"{ended.n_left} background {processes} kept the output open and had to be ended; to keep one running, "
            "use `background`, or send its output to a file."
        )
    return ToolOutcome(
        output=ended.output.text,
        message=" ".join(facts),
        is_error=code != 0,
        brief=brief,
        effects=(ShellBlock(command, code, ended.duration_s),),
    )


# --- commands in the background


STILL_RUNS = "still runs"
"""The brief fact about a background command that has not ended."""


class TaskOutputParams(BaseModel):
    """The arguments of TaskOutput: the command in the background."""

    model_config = ConfigDict(extra="forbid")

    id: int = Field(description="The id that Shell returned.")
    wait: int = Field(
        default=0,
        description="Seconds to wait at most for its end; 0 returns at once.",
        ge=0,
        le=MAX_WAIT_S,
    )


class TaskOutput(TypedTool[TaskOutputParams]):
    """Reads what a command in the background has printed."""

    name = "TaskOutput"
    changes: Changes = "nothing"
    params = TaskOutputParams

    async def run(self, params: TaskOutputParams, env: ToolEnv) -> ToolOutcome:
        """Return the output when the command has ended or the wait is over."""
        job = _job_of(params.id, env)
        if params.wait:
            await asyncio.wait([job.task], timeout=params.wait)
        return _reported(job)


class TaskStopParams(BaseModel):
    """Which command."""

    model_config = ConfigDict(extra="forbid")

    id: int = Field(description="The id that Shell returned.")


class TaskStop(TypedTool[TaskStopParams]):
    """Ends a command in the background."""

    name = "TaskStop"
    changes: Changes = "order"
    params = TaskStopParams

    async def run(self, params: TaskStopParams, env: ToolEnv) -> ToolOutcome:
        """Stop the command with all its processes."""
        job = _job_of(params.id, env)
        was_running = not job.ended
        if was_running and env.jobs is not None:
            await env.jobs.stop(job)
        outcome = _reported(job)
        if not was_running:
            return outcome
        return ToolOutcome(
            outcome.output, "The command was stopped, with everything it started.", brief="stopped"
        )


def _job_of(job_id: int, env: ToolEnv) -> Job:
    job = env.jobs.get(job_id) if env.jobs is not None else None
    if job is not None:
        return job
    known = ", ".join(str(one.id) for one in env.jobs.running) if env.jobs is not None else ""
    raise ToolProblem(
        f"No background task has the id {job_id}. "
        + (f"These are running: {known}." if known else "No background task is running."),
        brief="no such id",
    )


def _reported(job: Job) -> ToolOutcome:
    """Return the output since the last report, and whether the command still runs."""
    ended = job.outcome
    if ended is None:
        fresh = job.running.take_output()
        facts = [f"It still runs, for {job.ran_s:.0f} s so far."]
        if not fresh.text:
            facts.append("No new output.")
        if fresh.shortened:
            facts.append("The new output was shortened to its beginning and end.")
        return ToolOutcome(fresh.text, " ".join(facts), brief=STILL_RUNS)
    # The end is reported last, and the output that came with it only once.
    if job.is_read:
        output = ""
    elif job.task.cancelled():
        output = job.running.take_output().text
    else:
        output = ended.output
    job.is_told = job.is_read = True
    return ToolOutcome(output, f"It has ended. {ended.message}", ended.is_error, ended.brief)
