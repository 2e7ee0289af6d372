"""Bisect: which change of the files made a command fail?

`candidates_of` lists the changes between two states of the files along a world line: of the agent's steps, of someone else, of
background tasks, and those that a rewind or another world line brought. `Bisection` finds the one by halving, after both ends were
tried; it knows nothing of how a command runs. Exit codes mean what they mean to `git bisect run`: 0 is good, 125 says nothing,
128 and more end the search, all others are bad.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple, Protocol, TypeVar

from kimi_tui.display_names import some_of
from kimi_tui.tools.past_command import NOT_RUN, PastRun
from kimi_tui.tools.process import word_set
from kimi_tui.workspace.base import FileState, NoBase, Past
from kimi_tui.workspace.snapshots import By, Snapshot

Verdict = Literal["good", "bad", "skipped"]
Cause = Literal["step", "other", "task", "line"]
"""The author of a change: the agent's step; someone else; a background task or someone else meanwhile; a rewind, a switch, or
another world line whose files stayed.
"""

_CAUSES: dict[By, Cause] = {
    "agent": "step",
    "other": "other",
    "rescue": "other",
    "first": "other",
    "job": "task",
    "restore": "line",
}
SIGNALS_FROM = 128
LIMIT_S = 600
"""The most seconds of a run of the command, if nothing else is said."""
MOST_LIMIT_S = 7 * 86_400
"""The largest limit in seconds that can be said."""
MOST_TIMES = 100
"""The most runs over one state."""
_BUILD_FILES = word_set("""pyproject.toml setup.py setup.cfg requirements.txt uv.lock poetry.lock Pipfile.lock pdm.lock package.json package-lock.json
    pnpm-lock.yaml yarn.lock bun.lock bun.lockb Cargo.toml Cargo.lock go.mod go.sum Gemfile Gemfile.lock composer.json composer.lock
    mix.lock pom.xml build.gradle build.gradle.kts flake.lock""")
"""Files that say what ignored folders such as `.venv` should hold."""


class Point(Protocol):
    """A checkpoint: its number, and its unique names."""

    @property
    def id(self) -> int:
        """Its number on its world line."""
        ...

    @property
    def uid(self) -> str:
        """Its unique name."""
        ...

    @property
    def was(self) -> str | None:
        """Its unique name before a compaction; None if it had no other."""
        ...


P = TypeVar("P", bound=Point)


class NoBisect(Exception):
    """A search cannot begin or go on; the message is a sentence for the user."""


class Place(NamedTuple):
    """A state of the files on a world line.

    Attributes:
        state: the files.
        name: the words for it.
        uid: the checkpoint at which the files are so, or the next one; empty for the end.
        id: its number; -1 for the end.
    """

    state: FileState
    name: str
    uid: str = ""
    id: int = -1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change between two neighbouring states.

    Attributes:
        cause: who made it.
        before: the state before it.
        after: the state after it.
        uid: the checkpoint of the step, or the last one before the change; empty if it came before the first one.
        id: its number; -1 if there is none.
        next_id: the number of the next checkpoint; -1 if there is none.
        at: when it was seen first, in seconds since the epoch; 0 if no snapshot has it.
    """

    cause: Cause
    before: Place
    after: Place
    uid: str = ""
    id: int = -1
    next_id: int = -1
    at: float = 0.0

    @property
    def where(self) -> str:
        """The words for the place of the change."""
        if self.cause == "step":
            return f"the step of checkpoint #{self.id}"
        if self.id < 0:
            return f"before checkpoint #{self.next_id}"
        if self.next_id < 0:
            return f"after checkpoint #{self.id}"
        return f"between checkpoints #{self.id} and #{self.next_id}"

    @property
    def words(self) -> str:
        """The change in words."""
        match self.cause:
            case "step":
                return self.where
            case "other":
                return f"a change made outside kimi-tui {self.where}"
            case "task":
                return f"a change made while a background task ran, {self.where}"
            case "line":
                return f"a rewind or world line switch {self.where}"


def state_at(past: Past, point: Point) -> FileState | None:
    """Return the files at a checkpoint, before its step; None if no snapshot has them."""
    snapshot = _at(past, point)
    return None if snapshot is None else FileState(snapshot)


def _at(past: Past, point: Point) -> Snapshot | None:
    return past.log.at_checkpoint(point.was or "", point.uid)


def _marked(past: Past, point: Point) -> str:
    """Return the name under which the snapshots know a checkpoint."""
    was = point.was
    return was if was and past.log.at_checkpoint(was) is not None else point.uid


def candidates_of(
    past: Past,
    points: Sequence[Point],
    *,
    good: Point | None = None,
    bad: Point | None = None,
    is_current: bool = True,
) -> list[Candidate]:
    """Return the changes along a world line, oldest first; each begins with the state with which the one before it ends.

    Args:
        past: the states of the files.
        points: the checkpoints of the line, oldest first.
        good: the checkpoint before whose step they begin; None for the first snapshot.
        bad: the checkpoint before whose step they end; None for the end of the line, which is now if it is the current one.
        is_current: whether it is the current line.

    Raises:
        NoBisect: there are no snapshots of these times, or nothing changed.
    """
    if past.log.first is None:
        raise NoBisect("This session has no file snapshots, so there is nothing to search.")
    chain = _Chain(past)
    chain.follow([point for point in points if _at(past, point) is not None])
    if is_current:
        chain.end()
    first, last = chain.place_of(good, 0), chain.place_of(bad, len(chain.places) - 1)
    for at, point in ((first, good), (last, bad)):
        if point is not None:
            chain.places[at] = Place(
                chain.places[at].state, f"checkpoint #{point.id}", point.uid, point.id
            )
    if first > last:
        raise NoBisect("The good checkpoint has to come before the bad one.")
    if first == last:
        raise NoBisect("The files are the same at both ends, so there is nothing to search.")
    return [chain.candidate(at) for at in range(first, last)]


def point_of(points: Sequence[P], number: int | None) -> P | None:
    """Return the checkpoint with a number; None for None.

    Raises:
        NoBisect: there is none.
    """
    if number is None:
        return None
    found = next((point for point in points if point.id == number), None)
    if found is None:
        known = f"#{points[0].id} to #{points[-1].id}" if points else "none"
        raise NoBisect(f"There is no checkpoint #{number} on this world line; it has {known}.")
    return found


class _Chain:
    """The states of the files along a line, and what brought each of them.

    Attributes:
        places: the states.
    """

    def __init__(self, past: Past) -> None:
        self._past = past
        self._snapshots = past.log.snapshots
        self._position = 0
        self.places = [Place(FileState(self._snapshots[0]), "the first file snapshot")]
        self._changes: list[tuple[Cause, Point | None]] = []
        self._begun: dict[str, int] = {}
        self._points: list[Point] = []
        self._starts: list[int] = []
        self._last: Point | None = None

    def follow(self, points: Sequence[Point]) -> None:
        """Take the changes up to the end of the last checkpoint's step."""
        log = self._past.log
        self._points = [*points]
        for point in points:
            snapshot = _at(self._past, point)
            assert snapshot is not None
            # At first come the changes since the last step: of others, or of another line.
            if not self._is_next(point):
                self._take_net(log.marked_at(_marked(self._past, point)))
            self._take(log.place(snapshot))
            self._starts.append(len(self.places) - 1)
            self._begun[point.uid] = self._starts[-1]
            if not self.places[-1].uid:
                # Later checkpoints may have the same files.
                name = f"checkpoint #{point.id}" if self._changes else self.places[0].name
                self.places[-1] = Place(self.places[-1].state, name, point.uid, point.id)
            self._last = point
            ended = log.after_checkpoint(_marked(self._past, point))
            if ended is not None:
                self._take(log.place(ended))

    def end(self) -> None:
        """Take the changes since the last step until now."""
        last = len(self._snapshots) - 1
        log = self._past.log
        if self._last is not None and log.next_mark(_marked(self._past, self._last)) is not None:
            self._take_net(last)
        self._take(last)
        now = self._past.now
        if now is not None and now.further:
            self._add("other", now)
        self.places[-1] = self.places[-1]._replace(name="the files as they are now")

    def place_of(self, point: Point | None, otherwise: int) -> int:
        """Return the place at which the files are as at a checkpoint.

        Raises:
            NoBisect: no snapshot has them.
        """
        if point is None:
            return otherwise
        if point.uid not in self._begun:
            raise NoBisect(f"There is no file snapshot of checkpoint #{point.id}.")
        return self._begun[point.uid]

    def candidate(self, at: int) -> Candidate:
        """Return the change between a place and the next one."""
        before, after = self.places[at], self.places[at + 1]
        cause, point = self._changes[at]
        behind = bisect_right(self._starts, at)
        following = self._points[behind] if behind < len(self._points) else None
        return Candidate(
            cause,
            before,
            after,
            "" if point is None else point.uid,
            -1 if point is None else point.id,
            -1 if following is None else following.id,
            0.0 if after.state.further else after.state.snapshot.at,
        )

    def _is_next(self, point: Point) -> bool:
        """Return whether no checkpoint of another line was made between the last one and this."""
        if self._last is None:
            return True
        following = self._past.log.next_mark(_marked(self._past, self._last))
        return following == _marked(self._past, point)

    def _take(self, until: int) -> None:
        """Take the snapshots up to a place of the log; neighbours that one cause made are one change."""
        places = range(self._position + 1, until + 1)
        for cause, some in groupby(places, self._cause):
            self._add(cause, FileState(self._snapshots[[*some][-1]]))
        self._position = max(self._position, until)

    def _cause(self, at: int) -> Cause:
        # The log of another version may know other authors.
        return _CAUSES.get(self._snapshots[at].by, "other")

    def _take_net(self, until: int) -> None:
        """Take the snapshots up to a place of the log as one change, if anything differs after all of them."""
        if until > self._position:
            state = FileState(self._snapshots[until])
            if _differs(self._past, self.places[-1].state, state):
                self._add("line", state)
            else:
                self.places[-1] = self.places[-1]._replace(state=state)
            self._position = until

    def _add(self, cause: Cause, state: FileState) -> None:
        name = "the first file snapshot"
        if self._last is not None:
            name = f"the files after checkpoint #{self._last.id}"
        self._changes.append((cause, self._last))
        self.places.append(Place(state, name))


def _differs(past: Past, old: FileState, new: FileState) -> bool:
    """Return whether a file differs whose contents are known before or after."""
    changed = past.differing(old, new)
    known = [*changed.values(), *past.entries(old, changed.keys()).values()]
    return any(entry is not None and entry.is_known for entry in known)


def build_remark(past: Past, candidates: Sequence[Candidate]) -> str:
    """Name in a sentence the files that say what ignored folders should hold and that differ between the ends; empty if none does."""
    changed = past.differing(candidates[0].before.state, candidates[-1].after.state)
    files = sorted(path for path in changed if path.rpartition("/")[2] in _BUILD_FILES)
    if not files:
        return ""
    return (
        f"The result may be wrong: files that define dependencies changed during these steps ({some_of(files, 3)}), "
        "but every test uses the current contents of ignored folders, such as .venv."
    )


# -- the search -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tested:
    """One state and what the command said of it.

    Attributes:
        place: the state.
        verdict: what it means.
        runs: the runs of the command.
        failed: how many of them failed.
        why: why it was skipped, in words; empty otherwise.
    """

    place: Place
    verdict: Verdict
    runs: tuple[PastRun, ...] = ()
    failed: int = 0
    why: str = ""

    @property
    def is_flaky(self) -> bool:
        """Whether some of its runs failed and others did not."""
        return 0 < self.failed < len(self.runs)

    @property
    def seconds(self) -> float:
        """The time of all runs."""
        return sum(run.seconds for run in self.runs)

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.is_flaky:
            return f"{self.verdict} (flaky: {self.failed} of {len(self.runs)} runs failed)"
        return f"{self.verdict} ({self.why})" if self.why else self.verdict


@dataclass(slots=True)
class Outcome:
    """The end of a search.

    Attributes:
        found: the change that made the command fail; several if states between them could not be tested; none if none was found.
        reason: why none was found, as sentences.
        tested: the tested states, in order.
    """

    found: Sequence[Candidate] = ()
    reason: str = ""
    tested: list[Tested] = field(default_factory=list[Tested])

    @property
    def n_runs(self) -> int:
        """The number of runs of the command."""
        return sum(len(one.runs) for one in self.tested)

    def of(self, place: Place) -> Tested | None:
        """Return the test of a state."""
        return next((one for one in self.tested if one.place is place), None)


Run = Callable[[Place], Awaitable[PastRun]]


class Bisection:
    """One search.

    Args:
        candidates: the changes, oldest first.
        run: runs the command over a state.
        times: how often it runs over each state; a state is bad if one of these runs fails.
        asks: asks, once in a search, whether exit code 126 or 127 counts as a failure.
        told: called with each state before it is tested (None), and with its test.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        run: Run,
        *,
        times: int = 1,
        asks: Callable[[Place, PastRun], Awaitable[bool]],
        told: Callable[[Place, Tested | None], None] = lambda _place, _tested: None,
    ) -> None:
        self._candidates = candidates
        self._run = run
        self._times = times
        self._asks = asks
        self._told = told
        self._counts_not_found: bool | None = None
        self.outcome = Outcome()

    @property
    def n_left(self) -> int:
        """The most states that are still to be tested when both ends are known."""
        return max(0, (len(self._candidates) - 1).bit_length())

    async def search(self) -> Outcome:
        """Find the change that made the command fail.

        Raises:
            asyncio.CancelledError: it was stopped; nothing runs any more.
        """
        try:
            await self._search()
        except NoBisect as no:
            self.outcome.reason = str(no)
        return self.outcome

    async def _search(self) -> None:
        places = [self._candidates[0].before, *(one.after for one in self._candidates)]
        good, bad = 0, len(places) - 1
        await self._end(places[bad], "bad")
        await self._end(places[good], "good")
        skipped: set[int] = set()
        while bad - good > 1:
            middle = (good + bad) // 2
            open_ones = [at for at in range(good + 1, bad) if at not in skipped]
            if not open_ones:
                break
            at = min(open_ones, key=lambda one: abs(one - middle))
            tested = await self._test(places[at])
            if tested.verdict == "good":
                good = at
            elif tested.verdict == "bad":
                bad = at
            else:
                skipped.add(at)
        self.outcome.found = self._candidates[good:bad]

    async def _end(self, place: Place, wanted: Verdict) -> None:
        tested = await self._test(place)
        if tested.verdict == wanted:
            return
        if tested.verdict == "skipped":
            raise NoBisect(f"The command could not test {place.name}: {tested.why}.")
        if wanted == "bad":
            raise NoBisect(
                f"The command does not fail on {place.name}, so there is no failure to search for."
            )
        raise NoBisect(
            f"The command already fails on {place.name}. "
            "Give an earlier checkpoint with --good, or check that the command can pass at all."
        )

    async def _test(self, place: Place) -> Tested:
        self._told(place, None)
        runs: list[PastRun] = []
        failed, why = 0, ""
        for _ in range(self._times):
            try:
                run = await self._run(place)
            except NoBase as no:
                why = str(no).rstrip(".")
                break
            runs.append(run)
            code = run.exit_code
            if code is None:
                why = f"the command did not end within {run.seconds:.0f} s"
                break
            if code == NOT_RUN:
                why = f"exit code {NOT_RUN}"
                break
            if code >= SIGNALS_FROM:
                tested = Tested(place, "skipped", tuple(runs), failed, f"exit code {code}")
                self._add(tested)
                raise NoBisect(
                    f"The command exited with code {code} on {place.name}. "
                    "An exit code of 128 or more ends the search, as in git bisect run."
                )
            if run.is_not_found and self._counts_not_found is None:
                self._counts_not_found = await self._asks(place, run)
            if run.is_not_found and not self._counts_not_found:
                self._add(Tested(place, "skipped", tuple(runs), failed, f"exit code {code}"))
                raise NoBisect(
                    f"The command was not found or cannot be executed on {place.name} (exit code {code})."
                )
            failed += code != 0
        verdict: Verdict = "skipped" if why else "bad" if failed else "good"
        tested = Tested(place, verdict, tuple(runs), failed, why)
        self._add(tested)
        return tested

    def _add(self, tested: Tested) -> None:
        self.outcome.tested.append(tested)
        self._told(tested.place, tested)


async def never(_place: Place, _run: PastRun) -> bool:
    """Answer that a command that is not found is no failure, as there is nobody to ask."""
    await asyncio.sleep(0)
    return False
