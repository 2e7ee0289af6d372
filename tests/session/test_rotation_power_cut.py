"""A power cut at any call takes what was never synced, and nothing else; zeros in its place do no harm.

A cut at every call in its turn is for `make test-all`; else it is at every few of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import kill_runner
from support.faulty_storage import CHANGING, PowerStorage

from kimi_tui.session import context as contexts
from kimi_tui.session.session import Session

# After these steps of the scenario nothing may be lost: a sync, or an operation (which syncs).
SAFE = {2, 4, 6, 7, 8, 9, 11, 12, 14, 15, 16}
PREPARED_SAFE = {3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18}


async def cuts(
    root: Path, how: str, scenario: Sequence[kill_runner.Step], every: int
) -> tuple[list[tuple[Path, int]], list[Any]]:
    """Return the scenario, and for each of its calls the folder that a power cut just before it leaves."""
    folder = root / "session"
    storage = PowerStorage(folder)
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    told: list[Any] = []
    made: list[tuple[Path, int]] = []
    n_calls = 0
    one_by_one = threading.Lock()

    def before(name: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal n_calls
        if name not in CHANGING or not folder.exists():
            return
        with contextlib.suppress(BlockingIOError):
            told.extend(
                json.loads(line) for line in os.read(read_end, 1 << 20).split(b"\n") if line
            )
        # Copying ahead runs in a thread.
        with one_by_one:
            n_calls += 1
            if n_calls % every:
                return
            target = root / f"cut{len(made)}"
            storage.cut(target, how)
            made.append((target, told[-1][0] if told else -1))

    storage.before = before
    await kill_runner.play(folder, storage, write_end, scenario)
    before("open", ())
    os.close(write_end)
    os.close(read_end)
    assert n_calls > 200
    return made, [state for _, state in told]


@pytest.mark.sample(3)
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("how", ["lost", "zeros", "kept"])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
async def test_nothing_that_was_synced_is_lost(
    tmp_path: Path, how: str, prepared: bool, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "WORTH_COPYING_BYTES", 1)
    scenario = kill_runner.PREPARED if prepared else kill_runner.SCENARIO
    made, whole = await cuts(tmp_path, how, scenario, every)
    assert len(made) > 200 // every
    for folder, reached in made:
        steps = PREPARED_SAFE if prepared else SAFE
        safe = max((step for step in steps if step <= reached), default=-1)
        session = Session(folder, Path("/w"))
        await session.open()
        found = kill_runner.state(session.context)
        if safe >= 0:
            assert found[0] in [state[0] for state in whole[safe : reached + 2]], (folder, reached)
            stored = whole[safe][2]
            assert found[2][: len(stored)] == stored
            assert all(session.world_lines.index(n).n_skipped == 0 for n, _ in stored)
        await session.aclose()
