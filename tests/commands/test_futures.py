"""The output of `kimi-tui futures`; what it runs is tested with the futures."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from support.fake_futures import FakeFutures

from kimi_tui.commands import futures as command
from kimi_tui.wire.events import FutureChanged
from kimi_tui.wire.queue import Wire

if TYPE_CHECKING:
    from kimi_tui.futures.running import Futures
    from kimi_tui.launch import Launch


def test_each_reason_to_wait_is_told_once_and_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeFutures(Wire())
    fake.states = [FutureChanged("a", "g", 1, name="one"), FutureChanged("b", "g", 2, name="two")]
    run = command._FuturesRun(Namespace(quiet=False), cast("Launch", None))  # pyright: ignore[reportPrivateUsage]
    turn = "Waiting for a free slot at the server."

    def changed(at: int, state: str, step: int = 0, why: str = "") -> None:
        one = fake.states[at]
        fake.states[at] = replace(one, state=state, step=step, why=why)  # pyright: ignore[reportArgumentType]
        run._changed(cast("Futures", fake), one.key)  # pyright: ignore[reportPrivateUsage]

    changed(0, "preparing", why="Writing its files: 1 of 2.")
    for step in (1, 2):
        for at in (0, 1):
            changed(at, "waiting", step, turn)
            changed(at, "running", step)
            changed(at, "waiting", step, turn)
            changed(at, "running", step)
    for _ in range(2):
        changed(0, "failed", 2, "The server refused.")
        changed(1, "done", 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"· one: waiting, step 1 ({turn})",
        "· two: running, step 1",
        "· one: running, step 2",
        "· two: running, step 2",
        "· one: failed, step 2 (The server refused.)",
        "· two: done, step 2",
    ]


def test_a_narrow_terminal_has_a_paragraph_of_the_facts_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = FutureChanged(
        "a", "g", 1, name="one", state="done", step=3, began_at=1.0, ended_at=9.0, world_line=4
    )
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    command._print([one])  # pyright: ignore[reportPrivateUsage]
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == (
        "1 one done, changes 0 files, lines +0 -0, steps 3, tokens 0, time 8 s, world line 4"
    )
