"""A running set of futures without processes: it has the methods of `kimi_tui.futures.running.Futures`, and a test moves it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kimi_tui.futures.values import Estimate, FutureCost, FuturesPlan, NoFutures
from kimi_tui.soul.rewind_values import RewindOutcome, RewindPreview, Target
from kimi_tui.tool_cards import DiffLine
from kimi_tui.wire.events import (
    AgentChanged,
    ApprovalAnswer,
    ApprovalRequest,
    CheckpointCreated,
    Event,
    EventRecord,
    FutureChanged,
    StatusUpdate,
    StepBegin,
    TextPart,
    TurnBegin,
)
from kimi_tui.wire.queue import Wire
from kimi_tui.workspace.diff import FileDifference, LineDiff, SideChange


def estimated(plan: FuturesPlan, *, past: int = 24_100, cost: float = 0.03) -> Estimate:
    """Return an estimate as the engine makes one."""
    count = len(plan.variants)
    each = tuple(
        FutureCost(f"Future {n + 1}", one.model or "kimi-k2", past, past if n else 0)
        for n, one in enumerate(plan.variants)
    )
    return Estimate(
        each,
        past * count,
        past * (count - 1),
        cost * count,
        plan.caps.tokens * count,
        plan.caps.cost * count if plan.caps.cost else -1.0,
        120.0,
        2,
        "overlay",
        "Each future has the files of this checkpoint at the path of the work folder, in an overlay of its own.",
        184,
        2_400_000,
        (".venv", "node_modules"),
        (".env",),
        (
            "Databases, containers and everything outside the work folder are the same for all.",
            "With the network on, ports are shared.",
        ),
    )


def changed_file(path: str, added: int = 3, removed: int = 1) -> FileDifference:
    """Return a changed file."""
    rows = (
        DiffLine(" ", 1, "def fields(text):"),
        *(DiffLine("-", 2 + n, f"    old {n}") for n in range(removed)),
        *(DiffLine("+", 2 + n, f"    new {n}") for n in range(added)),
    )
    return FileDifference(path, SideChange("changed", "agent", LineDiff(added, removed, rows)))


class FakeFutures:
    """Futures of a session, which do what a test says.

    Args:
        wire: the wire of the session.
        seq: counts the events of the futures.

    Attributes:
        plans: the plans that were started.
        said: what was sent to which future.
        answers: the answers that were given.
        stopped: the futures that were stopped.
        calls: the other methods that were called, with their arguments.
        refused: raised by the next `start` or `estimate`.
        files: the changed files, by future.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.states: list[FutureChanged] = []
        self.plans: list[FuturesPlan] = []
        self.said: list[tuple[str, str]] = []
        self.answers: list[tuple[str, str, str, str]] = []
        self.stopped: list[str] = []
        self.calls: list[tuple[object, ...]] = []
        self.refused: NoFutures | None = None
        self.files: dict[str, list[FileDifference]] = {}
        self.asked: list[tuple[str, ApprovalRequest]] = []
        self.text = "Both pass; future 2 is the shorter one."
        self._wires: dict[str, Wire] = {}
        self._records: dict[str, list[EventRecord]] = {}
        self._agents: dict[tuple[str, str], tuple[Wire, list[EventRecord]]] = {}
        self._wakes: list[Callable[[str], None]] = []

    # --- what a test does

    def change(self, key: str, **values: Any) -> None:
        """Change the state of a future."""
        at = next(n for n, one in enumerate(self.states) if one.key == key)
        self.states[at] = replace(self.states[at], **values)
        self._wire.publish(self.states[at])
        for wake in self._wakes:
            wake(key)

    def tell(self, key: str, *events: Event) -> None:
        """Publish events of a future."""
        for event in events:
            self._records[key].append(self._wires[key].publish(event))

    def tell_agent(self, key: str, state: AgentChanged, *events: Event) -> None:
        """Publish the state of a sub-agent of a future, and events of it."""
        wire, records = self._agents.setdefault((key, state.name), (Wire(), []))
        self.tell(key, state)
        records += [wire.publish(event) for event in (state, *events)]

    def work(self, key: str, text: str, *, step: int = 1) -> None:
        """Have a future do a step in which it says something."""
        uid = f"{key}-{step}"
        self.tell(
            key,
            StepBegin(step),
            CheckpointCreated(10 + step, uid, "step"),
            TextPart(text),
            StatusUpdate(18_400 + step, 262_000, 212_000),
        )
        self.change(key, state="running", step=step, input=18_400 * step, output=20)

    def ask(self, key: str, request: ApprovalRequest) -> None:
        """Have a future ask something."""
        self.asked.append((key, request))
        self.tell(key, request)
        self.change(key, state="asking", asks=(request.id,))

    def end(self, key: str, **values: Any) -> None:
        """End a future."""
        self.change(key, **{"state": "done", "ended_at": time.time(), **values})

    # --- what the screens call

    @property
    def is_running(self) -> bool:
        """Whether any has not ended."""
        return any(not one.is_over for one in self.states)

    def use(self, launch: object) -> None:
        """Take other options, which change nothing here."""

    async def estimate(self, plan: FuturesPlan) -> Estimate:
        """Return a made estimate, or refuse."""
        if self.refused is not None:
            raise self.refused
        return estimated(plan)

    async def start(self, plan: FuturesPlan) -> tuple[str, ...]:
        """Begin futures, which do nothing yet."""
        if self.refused is not None:
            raise self.refused
        self.plans.append(plan)
        group = f"g{len(self.plans)}"
        keys: list[str] = []
        for n, one in enumerate(plan.variants, 1):
            key = f"{group}-{n}"
            keys.append(key)
            self._wires[key], self._records[key] = Wire(), []
            state = FutureChanged(
                key,
                group,
                n,
                one.message or f"Future {n}",
                checkpoint_id=plan.target.id,
                message=one.message,
                model=one.model or "kimi-k2",
                cost=0.01 * n,
                began_at=time.time(),
            )
            self.states.append(state)
            self._wire.publish(state)
            self.tell(
                key,
                TurnBegin(one.message or "the message"),
                CheckpointCreated(10, f"{key}-0", "user"),
            )
        return tuple(keys)

    def state(self, key: str) -> FutureChanged:
        """Return the state of a future."""
        return next(one for one in self.states if one.key == key)

    def wire(self, key: str) -> Wire:
        """Return the wire of a future."""
        return self._wires[key]

    def records(self, key: str) -> Sequence[EventRecord]:
        """Return the events of a future so far."""
        return tuple(self._records[key])

    def agent(self, key: str, name: str) -> tuple[Wire, Sequence[EventRecord]]:
        """Return the wire of a sub-agent of a future, and its events so far."""
        if (key, name) not in self._agents:
            raise NoFutures("It has not begun.")
        wire, records = self._agents[key, name]
        return wire, tuple(records)

    async def history(self, key: str) -> Sequence[EventRecord]:
        """Return no past."""
        return ()

    def steer(self, key: str, text: str) -> None:
        """Note a message to a future."""
        self.said.append((key, text))

    async def stop(self, key: str) -> None:
        """Stop a future."""
        self.stopped.append(key)
        self.end(key, state="stopped")

    async def stop_all(self) -> None:
        """Stop all that run."""
        for one in [one for one in self.states if not one.is_over]:
            await self.stop(one.key)

    def answer(self, key: str, request_id: str, answer: ApprovalAnswer, feedback: str = "") -> None:
        """Note an answer."""
        self.answers.append((key, request_id, answer, feedback))
        self.asked = [one for one in self.asked if one[1].id != request_id or one[0] != key]
        self.change(key, state="running", asks=())

    def set_mode(self, key: str, mode: str) -> None:
        """Note a mode."""
        self.calls.append(("mode", key, mode))

    async def differences(self, key: str) -> list[FileDifference]:
        """Return the changed files of a future."""
        return self.files.get(key, [])

    async def preview(self, key: str) -> RewindPreview:
        """Return a preview of making a future current."""
        line = next(one.world_line for one in self.states if one.key == key)
        return RewindPreview(Target(-1, line), "", 1, 1, 2, 100, 200, False, (), "")

    async def make_current(
        self, key: str, files: str = "restore", chosen: frozenset[str] | None = None
    ) -> RewindOutcome:
        """Note that a future is to be current."""
        self.calls.append(("current", key, files, chosen))
        return RewindOutcome(-1, 0, 0, 0)

    async def take_file(self, key: str, path: str) -> RewindOutcome:
        """Note that a file is taken over."""
        self.calls.append(("file", key, path))
        return RewindOutcome(-1, 0, 0, 0)

    async def prune(self, keys: Sequence[str]) -> None:
        """Remove futures."""
        for key in keys:
            self.change(key, removed_at=time.time())
            self.states = [one for one in self.states if one.key != key]

    async def opinion(self, keys: Sequence[str] = ()) -> str:
        """Return a made opinion."""
        return self.text

    def subscribe(self, wake: Callable[[str], None]) -> None:
        """Tell of changes."""
        self._wakes.append(wake)

    def unsubscribe(self, wake: Callable[[str], None]) -> None:
        """Tell of no changes any more."""
        self._wakes.remove(wake)

    async def aclose(self) -> None:
        """Note the end."""
        self.calls.append(("close",))
