"""`EditChecks` runs programs of the user's configuration after each edit of the agent: `[checks] after_edit`.

They run in the sandbox, without a shell. The output of a check that fails goes to the model, shortened; a check that changes the
file, such as a formatter, has its change shown as a diff of its own.
"""

from __future__ import annotations

import asyncio
import fnmatch
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kimi_tui.config.settings import EditCheck
from kimi_tui.foreign_text import one_line
from kimi_tui.tools import text as texts
from kimi_tui.tools.base import FileVersions
from kimi_tui.tools.files import Content, read_whole
from kimi_tui.tools.outcome import FileEdit, ToolOutcome, ToolProblem
from kimi_tui.tools.paths import locate
from kimi_tui.tools.process import ProcessEnd, RunningCommand
from kimi_tui.tools.sandbox.git_watch import WatchedCommand
from kimi_tui.tools.sandbox.policy import NoSandbox
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.workspace.diff import diff_lines

LIMIT_S = 30.0
"""Seconds for one check of one file."""
MOST_LINES = 20
"""Lines of a check's output, and of the change that it makes, that go to the model."""
_LINE_CHARS = 400
_ENV = "/usr/bin/env"
_NOT_FOUND = (126, 127)
FILE = "{file}"


class _CheckFound(NamedTuple):
    """The result of one check. `text` is for the model, `brief` for the card; `edit` is its own change."""

    text: str = ""
    brief: str = ""
    edit: FileEdit | None = None
    passed: bool | None = None
    """None if the check could not be run."""


@dataclass(slots=True)
class EditChecks:
    """The checks of one session.

    Attributes:
        checks: the checks, in order.
        work_dir: the work folder.
        environ: the environment of the program.
        tell: publishes a warning: what happened, and what to do.
        off: the checks that are turned off in this session.
    """

    checks: Sequence[EditCheck]
    work_dir: Path
    environ: Mapping[str, str]
    tell: Callable[[str, str], None]
    off: set[EditCheck] = field(default_factory=set[EditCheck])
    _told: set[str] = field(default_factory=set[str])

    def for_files(self, outcome: ToolOutcome) -> list[tuple[EditCheck, str]]:
        """Return the checks to run after a call, each with the path of a file that it changed in the work folder."""
        edits = [one for one in outcome.effects if isinstance(one, FileEdit)]
        paths = dict.fromkeys(one.path for one in edits if not one.path.startswith(("/", "~")))
        return [
            (check, path)
            for path in paths
            for check in self.checks
            if check not in self.off and _is_for(check, path)
        ]

    async def run(
        self,
        due: Sequence[tuple[EditCheck, str]],
        outcome: ToolOutcome,
        sandbox: Sandbox | None,
        versions: FileVersions,
    ) -> ToolOutcome:
        """Run the checks that are due; return the outcome of the call with what they found."""
        if sandbox is None or not sandbox.is_whole:
            self._say_once(
                "Checks after edits did not run: they need the sandbox, and there is no sandbox here.",
                "/checks lists them.",
            )
            return outcome
        for check, path in due:
            found = await self._check(check, path, sandbox, versions)
            if found.text:
                outcome = replace(outcome, output=f"{outcome.output}\n{found.text}".strip())
            if found.brief:
                outcome = replace(outcome, brief=f"{outcome.brief} · {found.brief}")
            if found.edit is not None:
                outcome = replace(outcome, effects=(*outcome.effects, found.edit))
            if found.passed is not None:
                passed = found.passed and outcome.check_passed is not False
                outcome = replace(outcome, check_passed=passed)
        return outcome

    async def _check(
        self, check: EditCheck, path: str, sandbox: Sandbox, versions: FileVersions
    ) -> _CheckFound:
        named = f"./{path}" if path.startswith("-") else path
        words = [word.replace(FILE, named) for word in check.words]
        shown = one_line(shlex.join(words))[:_LINE_CHARS]
        before = await self._content(path)
        try:
            end = await self._run([_ENV, "--", *words], sandbox)
        except (NoSandbox, OSError) as error:
            self._say_once(
                f"The check {shown} could not be started: {error}.", "/checks lists them."
            )
            return _CheckFound()
        if end.exit_code in _NOT_FOUND:
            self._say_once(
                f"The check {one_line(words[0])[:80]} cannot be run in the sandbox: {_first(end)}.",
                "You can turn the check off in /checks.",
            )
            return _CheckFound()
        after = await self._content(path)
        change = await asyncio.to_thread(_change_of, path, before, after)
        if change is not None and after is not None:
            versions.saw(self.work_dir.resolve() / path, after.version)
        name = one_line(" ".join(words[:2]))[:40]
        parts: list[str] = []
        brief = ""
        if change is not None:
            parts.append(f"{shown} changed {path}:\n{await asyncio.to_thread(_diff_text, change)}")
            brief = f"{name} changed it"
        if end.exit_code != 0:
            how = f"exit code {end.exit_code}"
            if end.ending != "exited":
                how = f"stopped after {LIMIT_S:.0f} s"
            parts.append(f"{shown} failed ({how}):\n{_shortened(end.output.text)}")
            brief = f"{name} failed"
        return _CheckFound("\n".join(parts), brief, change, end.exit_code == 0)

    async def _run(self, argv: list[str], sandbox: Sandbox) -> ProcessEnd:
        confined = await asyncio.to_thread(sandbox.confined, argv, self.work_dir)
        watched = WatchedCommand(confined.policy.watch)
        running = RunningCommand(
            confined.argv,
            work_dir=self.work_dir,
            environ=confined.environ,
            timeout_s=LIMIT_S,
            on_output=lambda _: None,
            confined_to=confined.words,
            ends_all=True,
            around=sandbox.git_watch.around(watched),
            afterwards=partial(sandbox.set_up_ahead, confined, self.work_dir),
        )
        watched.end = running.end
        return await running.run()

    async def _content(self, path: str) -> Content | None:
        def read() -> Content | None:
            try:
                return read_whole(locate(path, self.work_dir, self.environ))
            except ToolProblem:
                return None

        return await asyncio.to_thread(read)

    def _say_once(self, text: str, advice: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.tell(text, advice)


def _is_for(check: EditCheck, path: str) -> bool:
    name = path.rpartition("/")[2]
    return not check.files or any(
        fnmatch.fnmatchcase(path if "/" in pattern else name, pattern) for pattern in check.files
    )


def _first(end: ProcessEnd) -> str:
    lines = [one_line(line) for line in end.output.text.splitlines() if line.strip()]
    return lines[0][:120].rstrip(".") if lines else f"exit code {end.exit_code}"


def _shortened(text: str) -> str:
    lines = [line.rstrip()[:_LINE_CHARS] for line in text.strip().split("\n")]
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES:,} more lines"])


def _change_of(path: str, before: Content | None, after: Content | None) -> FileEdit | None:
    if before is None or after is None or before.version == after.version:
        return None
    shown = [texts.for_display(texts.decode(one.data)) for one in (before, after)]
    return FileEdit(path, shown[0], shown[1])


def _diff_text(edit: FileEdit) -> str:
    diff = diff_lines(edit.before or "", edit.after, MOST_LINES)
    rows = [f"{row.sign}{row.number:>5} {row.text[:_LINE_CHARS]}" for row in diff.rows]
    return "\n".join([*rows, f"(+{diff.added} −{diff.removed} lines)"])
