"""`PastSearch`, a part of the engine: finds the change that made a command fail, over the files of the session's past."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.prompts import prompt
from kimi_tui.session.session import Session
from kimi_tui.soul.bisect import (
    LIMIT_S,
    Bisection,
    Candidate,
    NoBisect,
    Outcome,
    Place,
    Tested,
    build_remark,
    candidates_of,
    point_of,
)
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.tasks import OneAtATime
from kimi_tui.tools.credentials import find_keys, redact_keys
from kimi_tui.tools.past_command import PastCommands, PastRun, last_lines
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.workspace.base import NoBase, Past
from kimi_tui.workspace.diff import Changes, patch_of

_LETTER_CHARS = 4000
_LETTER_LINES = 20
_MOST_LINE_CHARS = 300


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The user's choices: the command, the numbers of the ends (None: the first snapshot, and now), runs over each state,
    whether the command has the network, the number of the world line (0: the current one), and the most seconds of a run.
    """

    command: str
    good: int | None = None
    bad: int | None = None
    times: int = 1
    network: bool = False
    world_line: int = 0
    timeout_s: int = LIMIT_S


@dataclass(frozen=True, slots=True)
class Begun:
    """A search that begins: its candidates, the most tests behind the two ends, and sentences for the user."""

    n_candidates: int
    n_left: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundChange:
    """The end of a search.

    Attributes:
        outcome: what was found.
        changes: the differences of the one change; none if none or several were found.
        output: the last lines of the failing command.
    """

    outcome: Outcome
    changes: Changes = field(default_factory=Changes)
    output: tuple[str, ...] = ()

    @property
    def change(self) -> Candidate | None:
        """The one change; None if none or several were found."""
        return self.outcome.found[0] if len(self.outcome.found) == 1 else None


class PastSearch:
    """Searches the past of a session.

    Args:
        session: the session.
        conversation: the live conversation, whose snapshots are searched.
        environ: the environment of the program.
        sandbox: returns the sandbox of commands, once it is found; None if there is none.
        no_sandbox: returns why there is none.
        alone: what runs one turn or operation at a time.

    Attributes:
        is_searching: whether a search runs.
    """

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        environ: Mapping[str, str],
        sandbox: Callable[[], Sandbox | None],
        no_sandbox: Callable[[], str],
        alone: OneAtATime,
    ) -> None:
        self._session = session
        self._conversation = conversation
        self._environ = environ
        self._sandbox = sandbox
        self._no_sandbox = no_sandbox
        self._alone = alone
        self.is_searching = False

    async def bisect(
        self,
        options: SearchOptions,
        *,
        began: Callable[[Begun], None],
        told: Callable[[Place, Tested | None], None],
        asks: Callable[[Place, PastRun], Awaitable[bool]],
    ) -> FoundChange | None:
        """Find the change that made a command fail; return None if the search was stopped. The agent waits meanwhile.

        Args:
            options: what to search for.
            began: called when the candidates are known.
            told: called with each state before it is tested (None), and with its test.
            asks: asks, once in a search, whether exit code 126 or 127 counts as a failure.

        Raises:
            NoBisect: it cannot begin, or go on; the text is for the user.
            UnknownWorldLine: there is no such world line.
            SoulBusy: something runs.
        """
        return await self._alone.run(self._search(options, began, told, asks), stoppable=True)

    async def _search(
        self,
        options: SearchOptions,
        began: Callable[[Begun], None],
        told: Callable[[Place, Tested | None], None],
        asks: Callable[[Place, PastRun], Awaitable[bool]],
    ) -> FoundChange | None:
        files = self._conversation.files
        if files.reason:
            raise NoBisect(files.reason)
        commands: PastCommands | None = None
        self.is_searching = True
        try:
            line = await in_daemon_thread(self._session.world_line, options.world_line)
            points = [*line.checkpoints]
            good, bad = point_of(points, options.good), point_of(points, options.bad)
            await files.folder.take("other")
            past = await asyncio.to_thread(
                Past, self._session.dir / FILES_NAME, self._session.work_dir
            )
            candidates = await in_daemon_thread(
                candidates_of,
                past,
                points,
                good=good,
                bad=bad,
                is_current=not options.world_line,
            )
            sandbox = self._sandbox()
            settings = SandboxSettings(enabled=False) if sandbox is None else sandbox.settings
            commands = PastCommands(self._session.dir, past, settings, self._environ)
            await commands.open(scans=False, sandbox=sandbox)
            search = Bisection(
                candidates,
                _runner(commands, options),
                times=options.times,
                asks=asks,
                told=told,
            )
            remarks = await asyncio.to_thread(self._remarks, commands, candidates)
            began(Begun(len(candidates), search.n_left, remarks))
            outcome = await search.search()
            return await asyncio.to_thread(_described, past, outcome)
        except (NoBase, OSError) as error:
            raise NoBisect(str(error)) from error
        except asyncio.CancelledError:
            return None
        finally:
            if commands is not None:
                await commands.close()
            self.is_searching = False

    def _remarks(self, commands: PastCommands, candidates: list[Candidate]) -> tuple[str, ...]:
        past, found = commands.past, list[str]()
        if commands.unconfined:
            why = self._no_sandbox() or commands.unconfined
            found.append(f"The command runs without a sandbox: {why}.")
        if commands.tier == "elsewhere":
            found.append("The files are copied to another path.")
        found += filter(None, [past.gaps(candidates[0].before.state)])
        found += filter(None, [build_remark(past, candidates)])
        return tuple(found)


def _runner(
    commands: PastCommands, options: SearchOptions
) -> Callable[[Place], Awaitable[PastRun]]:
    async def run(place: Place) -> PastRun:
        return await commands.run(
            options.command, place.state, network=options.network, timeout_s=options.timeout_s
        )

    return run


def _described(past: Past, outcome: Outcome) -> FoundChange:
    if len(outcome.found) != 1:
        return FoundChange(outcome)
    one = outcome.found[0]
    differences = past.differences(one.before.state, one.after.state)
    tested = outcome.of(one.after)
    output: tuple[str, ...] = ()
    if tested is not None and tested.runs:
        failing = next((run for run in tested.runs if run.exit_code), tested.runs[-1])
        output = tuple(last_lines(failing.output, _LETTER_LINES))
    return FoundChange(outcome, Changes(tuple(differences)), output)


def drafted_dmail(found: FoundChange, command: str) -> str:
    """Return a D-Mail for the checkpoint whose step made a command fail: the change, and the output of the command, without keys."""
    patch = patch_of(found.changes.files, _LETTER_CHARS).rstrip()
    output = "\n".join(line[:_MOST_LINE_CHARS] for line in found.output)
    text = prompt("bisect_dmail", COMMAND=command, CHANGES=patch, OUTPUT=output or "(no output)")
    return redact_keys(text, find_keys(text))
