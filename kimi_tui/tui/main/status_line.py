"""`StatusLine`: the facts that the user chose for the row below the prompt, and the first line that a command of theirs prints.

The command is called as Claude Code calls one: with the facts as JSON on its standard input, after events and at most about
three times a second; by the clock only if the user set an interval. It runs without a sandbox, as the user's own program, but gets no keys in its
environment. Its output is foreign text: bounded, one line, and without any sequence but those for colours. The module is
imported only if there is such a row.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, NamedTuple

from kimi_tui.agent_parts import MODE_TITLES
from kimi_tui.app_paths import reason_of
from kimi_tui.display_names import signal_name
from kimi_tui.foreign_text import one_line
from kimi_tui.helper_programs import desktop_environment, run_helper
from kimi_tui.hooks.payload import claude_mode
from kimi_tui.program import VERSION
from kimi_tui.session.rotation import live_path
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.tools.programs import trusted_path
from kimi_tui.tui import formatting
from kimi_tui.tui.ansi_line import ansi_spans
from kimi_tui.tui.rows import Span
from kimi_tui.wire.events import (
    EventRecord,
    StatusUpdate,
    StepBegin,
    StepInterrupted,
    ToolResult,
    ToolStarted,
    TurnEnd,
)

if TYPE_CHECKING:
    from kimi_tui.config.settings import StatuslineConfig
    from kimi_tui.projection.session_state import SessionState
    from kimi_tui.tui.frame import StatusRow
    from kimi_tui.tui.frame_rows import HeaderText
    from kimi_tui.tui.main.conversation import ConversationController
    from kimi_tui.tui.main.workbench import Workbench

EVERY_S = 0.3
"""The least seconds from one look at the facts to the next; so the command runs about three times a second at most."""
LIMIT_S = 5.0
MOST_OUTPUT = 64 << 10
"""Bytes; a command that prints more is ended, and its first line is shown."""
_LARGE_CONTEXT = 200_000
_ENVIRONMENT = {
    # A command such as `git status` must not run what a repository names, nor hold up the agent's git.
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
}
_TERMINAL = ("TERM", "COLORTERM", "NO_COLOR")


class Worked(NamedTuple):
    """The work since the program was started: seconds that the model took, and lines of files in the agent's edits."""

    model_s: float = 0.0
    added: int = 0
    removed: int = 0


class StatusFacts(NamedTuple):
    """The facts that a status line can show.

    Attributes:
        state: the state of the session.
        heading: folder, branch, model and mode, as the header shows them.
        folder: the work folder.
        session: the id of the session, and `transcript` its file; empty for an agent without one.
        checkpoint: the number of the newest checkpoint; -1 for none.
        world_lines: the number of world lines, the current one included.
        cost: the cost in words; empty if no prices are set. `dollars` is the amount in US dollars, 0 if there is none.
        duration_s: the seconds since the program was started.
        worked: the work in that time.
        vim: the mode of vim keys in the prompt; empty without them.
    """

    state: SessionState
    heading: HeaderText
    folder: str
    session: str = ""
    transcript: str = ""
    checkpoint: int = -1
    world_lines: int = 1
    cost: str = ""
    dollars: float = 0.0
    duration_s: float = 0.0
    worked: Worked = Worked()
    vim: str = ""


def _context(facts: StatusFacts) -> str:
    usage = facts.state.usage
    if usage is None or usage.limit <= 0:
        return ""
    return f"context {formatting.percent(usage.used, usage.limit)}"


def _tokens(facts: StatusFacts) -> str:
    usage = facts.state.usage
    if usage is None:
        return ""
    into, out = formatting.tokens(usage.total_input), formatting.tokens(usage.total_output)
    return f"tokens: {into} in, {out} out"


_WORDS: Mapping[str, Callable[[StatusFacts], str]] = {
    "model": lambda facts: facts.heading.model,
    "mode": lambda facts: facts.heading.words or MODE_TITLES[facts.heading.mode],
    "title": lambda facts: facts.state.title,
    "folder": lambda facts: facts.heading.folder,
    "branch": lambda facts: facts.heading.branch,
    "checkpoint": lambda facts: f"#{facts.checkpoint}" if facts.checkpoint >= 0 else "",
    "worldlines": lambda facts: f"{facts.world_lines} world lines" if facts.world_lines > 1 else "",
    "context": _context,
    "tokens": _tokens,
    "cost": lambda facts: facts.cost,
    "tasks": lambda facts: formatting.counted(facts.state.jobs, "task") if facts.state.jobs else "",
    "session": lambda facts: facts.session[:8],
    "time": lambda facts: time.strftime("%H:%M"),
    "version": lambda facts: f"kimi-tui {VERSION}",
}


def item_words(items: Sequence[str], facts: StatusFacts) -> list[str]:
    """Return the words of these items, each on one line, without those that there is nothing to say about."""
    return [words for item in items if (words := one_line(_WORDS[item](facts)))]


def as_json(facts: StatusFacts) -> dict[str, Any]:
    """Return the facts under the names that Claude Code's documentation gives them; those that only exist here are under `kimi_tui`.

    Claude's amount is in US dollars; an unknown one is 0, as scripts calculate with it.
    """
    state, usage = facts.state, facts.state.usage or StatusUpdate(0, 0, 0)
    model, used = state.model, usage.used
    limit = max(0, usage.limit)
    share = min(100.0, 100 * used / limit) if limit else None
    told: dict[str, Any] = {
        "hook_event_name": "Status",
        "session_id": facts.session,
        "session_name": state.title,
        "transcript_path": facts.transcript,
        "cwd": facts.folder,
        "permission_mode": claude_mode(facts.heading.mode),
        "model": {
            "id": model.name if model is not None else facts.heading.model,
            "display_name": facts.heading.model,
        },
        "workspace": {
            "current_dir": facts.folder,
            "project_dir": facts.folder,
            "added_dirs": [],
        },
        "version": VERSION,
        "output_style": {"name": "default"},
        "cost": {
            "total_cost_usd": facts.dollars,
            "total_duration_ms": round(1000 * facts.duration_s),
            "total_api_duration_ms": round(1000 * facts.worked.model_s),
            "total_lines_added": facts.worked.added,
            "total_lines_removed": facts.worked.removed,
        },
        "context_window": {
            "total_input_tokens": usage.total_input,
            "total_output_tokens": usage.total_output,
            "context_window_size": limit,
            "used_percentage": None if share is None else round(share, 1),
            "remaining_percentage": None if share is None else round(100 - share, 1),
            "current_usage": {
                "input_tokens": usage.used,
                "output_tokens": usage.step_output or 0,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        },
        "exceeds_200k_tokens": used > _LARGE_CONTEXT,
        "thinking": {"enabled": bool(model is not None and model.thinking)},
        "kimi_tui": {
            "mode": facts.heading.mode,
            "branch": facts.heading.branch,
            "checkpoint": facts.checkpoint if facts.checkpoint >= 0 else None,
            "world_lines": facts.world_lines,
            "cost": facts.cost,
            "background_tasks": state.jobs,
            "running": state.running,
        },
    }
    if model is not None and model.effort:
        told["effort"] = {"level": model.effort}
    if facts.vim:
        told["vim"] = {"mode": facts.vim.upper()}
    return told


def run_command(
    command: str, given: Mapping[str, Any], *, folder: Path, width: int, stop: Flag
) -> list[Span]:
    """Run the command of a status line; return its first line, or what went wrong. It blocks, so call it in a thread.

    Args:
        command: the command line, for `/bin/sh`.
        given: the facts, for its standard input.
        folder: the folder in which it runs.
        width: the cells that its line can have, which it finds in `COLUMNS`.
        stop: set when it is to be ended.
    """
    environ = {
        **desktop_environment(os.environ),
        **{name: os.environ[name] for name in _TERMINAL if name in os.environ},
        **_ENVIRONMENT,
        "PATH": trusted_path(os.environ, folder),
        "COLUMNS": str(width),
        "CLAUDE_PROJECT_DIR": str(folder),
        "KIMI_PROJECT_DIR": str(folder),
    }
    try:
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(given).encode())
            file.seek(0)
            data, code = run_helper(
                ("/bin/sh", "-c", command),
                folder=folder,
                env=environ,
                timeout_s=LIMIT_S,
                most=MOST_OUTPUT,
                given=file.fileno(),
                stop=stop,
            )
    except subprocess.TimeoutExpired:
        return _said(f"The status line command took longer than {LIMIT_S:.0f} s.")
    except OSError as error:
        reason = reason_of(error)
        return _said(f"The status line command could not be started: {reason}.")
    if code:
        if code < 0:
            return _said(f"The status line command was killed by {signal_name(-code)}.")
        return _said(f"The status line command failed (exit code {code}).")
    lines = data.decode("utf-8", "replace").split("\n")
    return ansi_spans(next((line for line in lines if line.strip()), ""))


def _said(words: str) -> list[Span]:
    return [Span(words, "quiet")]


class StatusLine:
    """Keeps the status line up to date.

    Args:
        row: the row.
        bench: the workbench of the session.
        conversation: the session.
        config: the items and the command.
    """

    def __init__(
        self,
        row: StatusRow,
        bench: Workbench,
        conversation: ConversationController,
        config: StatuslineConfig,
    ) -> None:
        self._row = row
        self._bench = bench
        self._conversation = conversation
        self._config = config
        self._began = time.monotonic()
        self._worked = Worked()
        self._asked_at = 0.0
        """The time of the event with which the model was asked; 0 while it is not."""
        self._printed: list[Span] = []
        self._given: dict[str, Any] | None = None
        """The facts of the last run of the command."""
        self._run: asyncio.Task[None] | None = None
        self._stop = Flag()
        self._newest: StatusFacts | None = None
        """The facts that the command has not been run for."""
        self._clock: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        """Runs the command again at the end of the interval."""
        self._looking: asyncio.TimerHandle | None = None
        self._looked_at = self._began - EVERY_S

    def use(self, config: StatuslineConfig) -> None:
        """Use other items, or another command."""
        if config.command != self._config.command:
            self._given, self._printed = None, []
        self._config = config
        self._wait_again()
        self._look()

    def apply(self, records: Sequence[EventRecord]) -> None:
        """Take events of the session, in order."""
        for record in records:
            match record.event:
                case StepBegin():
                    self._asked_at = record.at
                case ToolStarted() | TurnEnd() | StepInterrupted() if self._asked_at:
                    passed = max(0.0, record.at - self._asked_at)
                    self._worked = self._worked._replace(model_s=self._worked.model_s + passed)
                    self._asked_at = 0.0
                case ToolResult(display=display):
                    diffs = [block for block in display if isinstance(block, DiffBlock)]
                    self._worked = self._worked._replace(
                        added=self._worked.added + sum(one.added for one in diffs),
                        removed=self._worked.removed + sum(one.removed for one in diffs),
                    )
                case _:
                    pass
        self.changed()

    def changed(self) -> None:
        """Look at the facts soon: at once, unless that was done a moment ago."""
        if self._looking is None and not self._stop.is_set():
            delay_s = max(0.0, self._looked_at + EVERY_S - time.monotonic())
            self._looking = self._bench.tasks.call_later(delay_s, self._look)

    def stop(self) -> None:
        """End the command if it runs, and the timers."""
        self._stop.set()
        for timer in (self._looking, self._clock, self._again):
            if timer is not None:
                timer.cancel()

    def _look(self) -> None:
        """Show the facts as they are now, and have the command run if they are not those of its last run."""
        if self._looking is not None:
            self._looking.cancel()
        self._looking, self._looked_at = None, time.monotonic()
        facts = self._facts()
        self._row.show(self._printed, item_words(self._config.items, facts))
        if self._config.command:
            self._newest = facts
            if self._run is None or self._run.done():
                self._run = self._bench.start(self._follow())
        if "time" in self._config.items and self._clock is None:
            self._clock = self._bench.tasks.call_later(60 - time.time() % 60, self._minute)

    def _wait_again(self) -> None:
        """Have the command run again after the interval, if there is one; each run begins it anew."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._config.refresh_interval and self._config.command and not self._stop.is_set():
            self._again = self._bench.tasks.call_later(
                self._config.refresh_interval, self._run_again
            )

    def _run_again(self) -> None:
        self._again, self._given = None, None
        self.changed()
        # A run that is skipped, because the one before has not ended, must not end the interval.
        self._wait_again()

    def _minute(self) -> None:
        self._clock = None
        self.changed()

    async def _follow(self) -> None:
        """Run the command, and again as long as the facts have changed meanwhile."""
        while (facts := self._newest) is not None and not self._stop.is_set():
            self._newest = None
            command, given = self._config.command, as_json(facts)
            if not command or self._given == (known := _without_durations(given)):
                continue
            self._given = known
            self._wait_again()
            printed = await asyncio.to_thread(
                run_command,
                command,
                given,
                folder=Path(facts.folder),
                width=self._row.content_size.width,
                stop=self._stop,
            )
            if command == self._config.command and not self._stop.is_set():
                self._printed = printed
                self.changed()

    def _facts(self) -> StatusFacts:
        conversation, bench = self._conversation, self._bench
        soul = conversation.soul
        tree = bench.views.timeline.model.tree
        # It is a sum over all checkpoints.
        is_asked = bool(self._config.command) or "cost" in self._config.items
        cost = soul.cost if is_asked and soul is not None else None
        return StatusFacts(
            conversation.state,
            bench.header.heading,
            bench.transcript.work_dir,
            soul.session.id if soul is not None else "",
            str(live_path(soul.session.dir)) if soul is not None else "",
            tree.live[-1].id if tree.live else -1,
            1 + len(tree.lines),
            formatting.cost_words(cost) if cost is not None else "",
            next((amount for name, amount in cost.amounts if name == "$"), 0.0) if cost else 0.0,
            time.monotonic() - self._began,
            self._worked,
            bench.prompt.area.mode or "",
        )


def _without_durations(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts without those that change although nothing happens."""
    cost = {name: one for name, one in given["cost"].items() if name != "total_duration_ms"}
    return {**given, "cost": cost}
