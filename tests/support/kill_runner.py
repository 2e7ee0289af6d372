"""Runs a scenario on a session again and again and kills it each time somewhere else; run as a program.

One interpreter forks a child for each run, so that hundreds of deaths cost seconds. The child says on a pipe which step it has
completed; the parent writes one JSON line a run: `{"folder", "done", "ended"}`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from kimi_tui.llm.message import user_message
from kimi_tui.session import context as contexts
from kimi_tui.session import rotation
from kimi_tui.session.context import Context
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.schema import NewCheckpoint
from kimi_tui.session.session import Session
from kimi_tui.session.undo import jump, redo, undo
from support.faulty_storage import WatchedStorage, failing, killing

NEVER = 1_000_000
Step = Callable[[Session], Awaitable[object]]


def say(words: str) -> Step:
    """Return a step that makes a checkpoint and a message."""

    async def step(session: Session) -> None:
        await session.context.checkpoint(False)
        await session.context.append([user_message(words)])

    return step


def on(act: Callable[[Context], Awaitable[object]]) -> Step:
    """Return a step that calls a function with the context."""
    return lambda session: act(session.context)


SCENARIO: list[Step] = [
    say("one"),
    say("two"),
    on(lambda c: c.sync()),
    say("three"),
    on(lambda c: c.revert_to(1, reason="rewind")),
    say("four"),
    on(
        lambda c: c.revert_to(
            1, reason="dmail", text="x", then=[NewCheckpoint(), user_message("dmail")]
        )
    ),
    on(undo),
    on(redo),
    on(lambda c: jump(c, 1, 2)),
    say("five"),
    on(lambda c: jump(c, 2)),
    on(
        lambda c: c.clear(
            reason="compaction", text="s", then=[NewCheckpoint(), user_message("summary")]
        )
    ),
    say("six"),
    on(lambda c: c.clear(reason="clear")),
    on(lambda session: session.sync()),
    lambda session: session.fork(),
]


def prepare(checkpoint_id: int, *, wait: bool = True) -> Step:
    """Return a step in which a user previews a rewind, and the copy for it is made (or, without `wait`, just begun)."""

    async def step(session: Session) -> None:
        await session.context.sync()
        session.context.prepare_revert(checkpoint_id)
        task = session.context._prefix._task  # pyright: ignore[reportPrivateUsage]
        assert task is not None
        if wait:
            assert await task is not None

    return step


PREPARED: list[Step] = [
    say("one"),
    say("two"),
    say("three"),
    prepare(1),
    on(lambda c: c.revert_to(1, reason="rewind")),
    say("four"),
    prepare(1),
    on(
        lambda c: c.revert_to(
            1, reason="dmail", text="x", then=[NewCheckpoint(), user_message("dmail")]
        )
    ),
    prepare(1),
    on(undo),
    prepare(1, wait=False),
    say("five"),
    prepare(2),
    prepare(1),
    on(lambda c: c.revert_to(2, reason="rewind")),
    prepare(1, wait=False),
    on(lambda c: c.revert_to(1, reason="rewind")),
    say("six"),
    prepare(1),
]


def state(context: Context) -> list[list[Any]]:
    """Return what the user would see: the live line's messages and checkpoints, and the lengths of the other lines."""
    points = [[point.id, point.offset] for point in context.checkpoints]
    lines = [[n, size] for n, size in stored_world_lines(context.folder).items()]
    return [[message.text for message in context.messages], points, lines]


async def play(
    folder: Path, storage: WatchedStorage, report: int, scenario: Sequence[Step] = SCENARIO
) -> None:
    """Play the whole scenario; after each step write its number and the state to `report`."""
    session = Session(folder, Path("/w"), storage)
    await session.open()
    for number, step in enumerate(scenario):
        await step(session)
        os.write(report, json.dumps([number, state(session.context)]).encode() + b"\n")
    await session.aclose()


def run(
    folder: Path,
    arm: Callable[[WatchedStorage], None],
    wait_s: float | None,
    scenario: Sequence[Step],
) -> None:
    """Run the scenario once in a child process, and print its outcome."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        storage = WatchedStorage()
        arm(storage)
        try:
            asyncio.run(play(folder, storage, write_end, scenario))
        except BaseException as error:  # a failed run must not go on as a second parent
            sys.stderr.write(f"{error!r}\n")
            os._exit(70)
        os._exit(0)
    os.close(write_end)
    if wait_s is not None:
        time.sleep(wait_s)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read_end, "rb") as pipe:
        told = [json.loads(line) for line in pipe.read().split(b"\n") if line]
    _, status = os.waitpid(child, 0)
    done = told[-1][0] if told else -1
    states = [told_state for _, told_state in told]
    result = {"folder": str(folder), "done": done, "states": states, "status": status}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def copy_short_lines_too() -> None:
    """Have files of any length copied ahead, which the program does only for long ones."""
    contexts.WORTH_COPYING_BYTES = 1
    rotation.SPARE_BYTES = 0


def main() -> None:
    """Handle `kill_runner.py ROOT each|prepared|each-without-links|random COUNT EVERY`. The last run is not killed."""
    root, how, count, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    at_random = how == "random"
    scenario = PREPARED if how == "prepared" else SCENARIO
    copy_short_lines_too()
    draw = random.Random(4)
    gc.freeze()
    for number in [*range(0, count, every), NEVER]:
        folder = root / f"{number}" / "session"
        folder.parent.mkdir(parents=True)

        def arm(storage: WatchedStorage, number: int = number) -> None:
            kill = killing(number) if not at_random else None
            refuse = failing({"link"}, 95) if how == "each-without-links" else None

            def before(name: str, arguments: tuple[object, ...]) -> None:
                if kill is not None:
                    kill(name, arguments)
                if refuse is not None:
                    refuse(name, arguments)

            storage.before = before

        by_time = at_random and number != NEVER
        run(folder, arm, draw.uniform(0.0, 0.04) if by_time else None, scenario)


if __name__ == "__main__":
    main()
