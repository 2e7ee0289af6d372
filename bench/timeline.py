"""The timeline with 10,000 checkpoints on 200 world lines: building, scrolling, selecting, filtering; time a frame and memory.

Run `python -m bench.timeline`; prints medians and the slowest frame, and exits with 1 where a goal is missed.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.story import Teller
from support.time_travel_app import TimeTravelApp
from textual.pilot import Pilot

from bench.table import Bar, Goal
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.wire.events import EventRecord

CHECKPOINTS = 10_000
WORLD_LINES = 200
FRAME_GOAL_MS = 16.0
MEMORY_GOAL_MB = 40.0
ROUNDS = 60


def told() -> Teller:
    """Return a session of the wanted size: rewinds and D-Mails again and again, each of which leaves 30 steps."""
    teller = Teller()
    kept = (CHECKPOINTS - 30 * WORLD_LINES) // WORLD_LINES
    for line in range(WORLD_LINES):
        teller.turn(f"Do the part {line} of the work, with care and with tests.")
        for step in range(kept - 2):
            teller.step(("ReadFile", {"path": f"src/part{line}/file{step}.py"}), cost=10)
        back = len(teller.line)
        for step in range(29):
            teller.step(("Shell", {"command": f"pytest -q tests/part{line} -k {step}"}), cost=9)
        if line % 3:
            teller.begin_step()
            teller.rewind(back)
        else:
            teller.dmail(back)
        teller.end()
    return teller


def milliseconds(action: Callable[[], object]) -> float:
    """Return the CPU milliseconds of one call. The wall clock would count other programs' load."""
    started = time.thread_time()
    action()
    return (time.thread_time() - started) * 1_000


def report(name: str, times: list[float]) -> float:
    """Print median and maximum; return the maximum."""
    print(f"{name:<28}{statistics.median(times):8.2f} ms   slowest {max(times):6.2f} ms")
    return max(times)


async def frames(teller: Teller) -> float:
    """Return the milliseconds of the slowest frame of all ways to move about."""
    app = TimeTravelApp()
    slowest = 0.0
    async with app.run_test(size=(120, 40)) as pilot:
        model = TimelineModel()
        for record in teller.records:
            model.apply(record)
        timeline = app.timeline
        # The app does the same once it has started: its lasting objects are not collected again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(5_000, 5, 200)

        def draw() -> None:
            timeline.render_lines(timeline.size.region)

        def opened() -> None:
            timeline.show_model(model)
            draw()

        timeline.focus()
        await pilot.pause()
        slowest = max(slowest, report("open: first frame", [milliseconds(opened)]))
        await pilot.pause()

        def scrolled(y: int) -> Callable[[], None]:
            def act() -> None:
                timeline.scroll_to(y=y, animate=False)
                draw()

            return act

        jumps = [milliseconds(scrolled((7_919 * i) % 9_000)) for i in range(ROUNDS)]
        slowest = max(slowest, report("scroll anywhere", jumps))

        def acted(action: Callable[[], None]) -> Callable[[], None]:
            def act() -> None:
                action()
                draw()

            return act

        for name, action in (
            ("select down", lambda: timeline.action_move(1)),
            ("page down", lambda: timeline.action_page(1)),
            ("turn before", lambda: timeline.action_turn(1)),
            ("unfold, fold", timeline.action_fold),
            ("now, beginning", lambda: timeline.action_edge(1)),
        ):
            times: list[float] = []
            for _ in range(ROUNDS):
                times.append(milliseconds(acted(action)))
                await asyncio.sleep(0)
            slowest = max(slowest, report(name, times))

        def arrived(new: Sequence[EventRecord]) -> None:
            for record in new:
                model.apply(record)
            timeline.changed()
            draw()

        timeline.action_edge(-1)
        times = []
        for number in range(ROUNDS):
            first = len(teller.records)
            teller.step(("Shell", {"command": f"ls {number}"}), cost=1)
            new = teller.records[first:]

            times.append(milliseconds(partial(arrived, new)))
            await asyncio.sleep(0)
        slowest = max(slowest, report("a step arrives", times))
        for keys in (["slash", *"part19"], ["escape"], ["slash", *"shell"], ["escape"]):
            for key in keys:
                slowest = max(slowest, report(f"filter: {key}", await callbacks_of(pilot, key)))
    return slowest


async def callbacks_of(pilot: Pilot[None], key: str) -> list[float]:
    """Return the CPU milliseconds of each callback of the event loop for one key, frames included."""
    times: list[float] = []
    run = asyncio.Handle._run
    measuring = asyncio.current_task()

    def timed(self: asyncio.Handle) -> None:
        taken = milliseconds(lambda: run(self))
        # The callbacks of the measurement itself do not count.
        if getattr(cast(Any, self)._callback, "__self__", None) is not measuring:
            times.append(taken)

    asyncio.Handle._run = timed
    try:
        await pilot.press(key)
        await pilot.pause()
        while len(pilot.app.workers):
            await pilot.pause()
    finally:
        asyncio.Handle._run = run
    # Most callbacks do next to nothing.
    return [taken for taken in times if taken > 0.1] or times


def measured() -> tuple[float, float]:
    """Measure and print; return the milliseconds of the slowest frame, and the memory in MB."""
    teller = told()
    gc.collect()
    model = TimelineModel()
    built = milliseconds(lambda: [model.apply(record) for record in teller.records])
    n_points = len(model.tree.live) + sum(
        len(line.checkpoints) for line in model.tree.lines.values()
    )
    print(
        f"{n_points:,} checkpoints, {len(model.tree.lines)} world lines, {len(teller.records):,} events"
    )
    print(f"{'build':<28}{built:8.0f} ms   {1_000 * built / len(teller.records):6.1f} µs an event")
    del model
    gc.collect()
    tracemalloc.start()
    model = TimelineModel()
    for record in teller.records:
        model.apply(record)
    gc.collect()
    size_mb = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    print(f"{'memory':<28}{size_mb:8.1f} MB")
    slowest = asyncio.run(frames(teller))
    return slowest, size_mb


def bars() -> list[Bar]:
    """Return the rows of these figures in the table of all measurements."""
    slowest, size_mb = measured()
    at = f"timeline, {CHECKPOINTS:,} checkpoints, "
    return [
        Bar(f"{at}slowest frame, ms", slowest, Goal(FRAME_GOAL_MS)),
        Bar(f"{at}MB", size_mb, Goal(MEMORY_GOAL_MB)),
    ]


def main() -> int:
    """Measure, print, and return 1 if a goal is missed."""
    slowest, size_mb = measured()
    met = slowest < FRAME_GOAL_MS and size_mb < MEMORY_GOAL_MB
    print(
        "goals met" if met else f"goals missed: {FRAME_GOAL_MS:g} ms a frame, {MEMORY_GOAL_MB:g} MB"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
