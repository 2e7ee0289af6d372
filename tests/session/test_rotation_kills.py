"""Killed at any call, the session opens as either before or after the step it was in, and goes on.

Every call in its turn is for `make test-all`; else it is every few of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import kill_runner
from support.quick_disk import memory_folder

from kimi_tui.llm.message import user_message
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.session import Session

LIMIT_S = 180
"""Hundreds of processes, on a machine that others may use too."""
pytestmark = pytest.mark.timeout(LIMIT_S + 20)
TESTS = Path(__file__).parent.parent
# A few more than the scenario makes.
CALLS = {
    "each": 250,
    "each-without-links": 350,
    "prepared": 250,
}


def runs(root: Path, how: str, count: int, every: int = 1) -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    done = subprocess.run(
        [sys.executable, kill_runner.__file__, str(root), how, str(count), str(every)],
        capture_output=True,
        env=environment,
        check=True,
        timeout=LIMIT_S,
    )
    assert not done.stderr, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


async def check(run: dict[str, Any], whole: list[Any]) -> None:
    """The session opens as one of the two states around the step that was under way, and takes what comes next."""
    folder = Path(run["folder"])
    if stored_world_lines(folder):
        # The live name never leads nowhere, not even for a moment.
        assert (folder / "context.jsonl").exists()
    session = Session(folder, Path("/w"))
    report = await session.open()
    assert not report.n_skipped, report
    reached: int = run["done"]
    # Between two steps that make two records each, a checkpoint without its message may stand.
    found = kill_runner.state(session.context)
    before = whole[reached] if reached >= 0 else [[], [], []]
    after = whole[reached + 1] if reached + 1 < len(whole) else before
    seen = [(state[0], [n for n, _ in state[2]]) for state in (found, before, after)]
    assert seen[0] in seen[1:], reached
    ids = [point[0] for point in found[1]]
    assert ids in ([point[0] for point in state[1]] for state in (before, after))
    assert (folder / "context.jsonl").stat().st_nlink == 1
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]
    for n in stored_world_lines(folder):
        assert session.world_lines.index(n).n_skipped == 0
        assert not session.world_lines.index(n).torn
    await session.context.append([user_message("goes on")])
    await session.aclose()
    again = Session(folder, Path("/w"))
    assert not (await again.open()).sentences()
    assert [message.text for message in again.context.messages] == [*found[0], "goes on"]
    await again.aclose()
    for name in os.listdir(folder.parent):
        if name != "session" and not name.startswith("."):
            copy = Session(folder.parent / name, Path("/w"))
            assert not (await copy.open()).sentences()
            assert kill_runner.state(copy.context)[0] == whole[-1][0]
            await copy.aclose()


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        yield Path(folder)


def begun(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs that died, less those that died before there was a folder."""
    dead = [result for result in results if result["status"]]
    assert all(os.path.exists(result["folder"]) or result["done"] == -1 for result in dead)
    return [result for result in dead if os.path.exists(result["folder"])]


@pytest.mark.sample
@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.exhaustive)])
async def test_killed_at_each_call_in_turn(root: Path, how: str, every: int) -> None:
    *results, whole = runs(root, how, CALLS[how], every)
    assert whole["status"] == 0
    scenario = kill_runner.PREPARED if how == "prepared" else kill_runner.SCENARIO
    assert len(whole["states"]) == len(scenario)
    # The scenario has fewer calls than are counted: every one of them was the last of one run, or every few of them.
    assert results[-1]["status"] == 0
    assert results[200 // every]["status"] == signal.SIGKILL
    for result in begun(results):
        await check(result, whole["states"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [20, pytest.param(400, marks=pytest.mark.exhaustive)])
async def test_killed_at_random_times(root: Path, count: int) -> None:
    *results, whole = runs(root, "random", count)
    assert whole["status"] == 0
    for result in begun(results):
        await check(result, whole["states"])
