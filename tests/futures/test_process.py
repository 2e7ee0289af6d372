"""The program's side of the process of a future: when it is taken for ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kimi_tui.futures import process
from kimi_tui.futures.orders import Order
from kimi_tui.futures.process import FutureProcess, StartServer

END = '{"ended": {"reason": "done", "checks": false}}'


class ScriptServer(StartServer):
    """Starts a shell script in the place of the engine."""

    def __init__(self, script: str) -> None:
        super().__init__(["one"], os.environ)
        self._script = script
        self._shell: asyncio.subprocess.Process | None = None
        (read, write), (out, told), (errors, said) = os.pipe(), os.pipe(), os.pipe()
        self._theirs = read, told, said
        self._ends["one"] = process._Ends(write, out, errors)

    async def begin(
        self, key: str, words: Sequence[str], folder: Path, *, agent: bool = False
    ) -> int:
        read, told, said = self._theirs
        self._shell = await asyncio.create_subprocess_exec(
            "sh", "-c", self._script, stdin=read, stdout=told, stderr=said
        )
        for one in self._theirs:
            os.close(one)
        return self._shell.pid

    async def exit_code(self, key: str) -> int:
        assert self._shell is not None
        return await self._shell.wait()


class FullServer(ScriptServer):
    """Cannot start anything."""

    async def begin(
        self, key: str, words: Sequence[str], folder: Path, *, agent: bool = False
    ) -> int:
        for one in self._theirs:
            os.close(one)
        raise OSError(28, "No space left on device")


async def ran(script: str, heard: list[Mapping[str, Any]]) -> str:
    """Run a script as the process of a future; return why it ended too early."""
    one = FutureProcess("one", ScriptServer(script), heard.append, (), Path())
    async with asyncio.timeout(20):
        return await one.run(Order("", "", {}, {}))


async def test_one_that_hangs_after_its_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_ENDING_S", 0.01)
    heard: list[Mapping[str, Any]] = []
    assert await ran(f"echo '{END}'; exec sleep 60", heard) == "Its process was killed by SIGKILL."
    assert [*heard[0]] == ["ended"]


async def test_a_check_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_ENDING_S", 0.01)
    heard: list[Mapping[str, Any]] = []
    checks = END.replace("false", "true")
    assert await ran(f"echo '{checks}'; sleep 0.3; echo '{{\"checked\": {{}}}}'", heard) == ""
    assert [*heard[1]] == ["checked"]


async def test_what_it_has_started_and_left_behind_does_not_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_LAST_LINES_S", 0.05)
    heard: list[Mapping[str, Any]] = []
    script = f"sleep 60 & echo '{{\"left\": '$!'}}'; echo '{END}'; echo too bad >&2; exit 3"
    try:
        assert await ran(script, heard) == "too bad"
        assert [*heard[1]] == ["ended"]
    finally:
        os.kill(heard[0]["left"], signal.SIGKILL)


async def test_nobody_waits_for_the_engine_that_nobody_needs() -> None:
    server = StartServer(["one"], os.environ)
    await server.start()
    await server.close()
    started = server._process
    assert started is not None
    assert started.returncode == -signal.SIGKILL


async def test_one_that_cannot_be_started_is_over_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 60)
    one = FutureProcess("one", FullServer(""), lambda _: None, (), Path())
    with pytest.raises(OSError, match="No space left"):
        await one.run(Order("", "", {}, {}))
    # There is no process whose end a stop would wait for.
    await asyncio.wait_for(one.stop(), 20)


async def test_one_that_is_given_up_is_killed_and_no_longer_listened_to() -> None:
    heard, server = asyncio.Event(), ScriptServer("echo '{}'; exec sleep 60")
    one = FutureProcess("one", server, lambda _: heard.set(), (), Path())
    before = asyncio.all_tasks()
    running = asyncio.create_task(one.run(Order("", "", {}, {})))
    await asyncio.wait_for(heard.wait(), 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert all(task.cancelling() for task in asyncio.all_tasks() - before - {running})
    assert await asyncio.wait_for(server.exit_code("one"), 20) == -signal.SIGKILL
