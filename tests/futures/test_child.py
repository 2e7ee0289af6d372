"""The process of a future, as an object: that all it tells leaves, that it ends, and what it tells of its check."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kimi_tui.config.settings import ConfigError
from kimi_tui.futures import child
from kimi_tui.futures.child import FutureChild
from kimi_tui.futures.orders import Order
from kimi_tui.headless.output import Output
from kimi_tui.tools.sandbox.policy import NoSandbox


class TellingChild(FutureChild):
    """Has nothing to do but to tell two lines."""

    async def _whole(self) -> int:
        self._tell({"line": 1})
        self._tell({"line": 2})
        return 0


async def _no_lines() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def test_the_end_that_comes_together_with_lines_ends_it() -> None:
    read, write = os.pipe()
    one = TellingChild(Order("", "", {}, {}), _no_lines(), Output(write))
    try:
        assert await asyncio.wait_for(one.run(), 20) == 0
    finally:
        os.close(write)
    with os.fdopen(read) as told:
        assert [json.loads(line) for line in told] == [{"line": 1}, {"line": 2}]


class CheckingChild(FutureChild):
    """Has nothing to do but the check."""

    def __init__(self, sandbox: Any, work: Path, out: int, check: str, **order: Any) -> None:
        super().__init__(Order("", "", {}, {}, check=check, **order), _no_lines(), Output(out))
        self._stand_in: Any = SimpleNamespace(
            sandbox=sandbox, sandbox_ready=_ready, session=SimpleNamespace(work_dir=work)
        )

    async def _whole(self) -> int:
        await self._check(self._stand_in)
        return 0


async def _ready() -> None:
    pass


class NoConfinement:
    """A sandbox that only notes whether the command may use the network, and may not be possible."""

    def __init__(self, problem: str = "") -> None:
        self.networks: list[bool] = []
        self._problem = problem

    def confined(self, argv: list[str], _work: Path, *, network: bool) -> Any:
        self.networks.append(network)
        if self._problem:
            raise NoSandbox(self._problem)
        return SimpleNamespace(argv=argv, environ=dict(os.environ), words=())


async def checked(
    work: Path, check: str, sandbox: NoConfinement | None = None, **order: Any
) -> dict[str, Any]:
    """Return what a future tells of its check."""
    read, write = os.pipe()
    try:
        one = CheckingChild(sandbox, work, write, check, **order)
        assert await asyncio.wait_for(one.run(), 20) == 0
    finally:
        os.close(write)
    with os.fdopen(read) as told:
        (line,) = told
    return json.loads(line)["checked"]


@pytest.mark.parametrize(
    ("check", "code", "output"),
    [
        ("pwd; exit 3", 3, "{work}"),
        ("echo one; echo two >&2; true", 0, "one\ntwo"),
        ("kill -9 $$", 137, ""),
        ("no-such-program-anywhere 2>/dev/null", 127, ""),
    ],
)
async def test_a_check_ends_as_the_shell_says_it(
    tmp_path: Path, check: str, code: int, output: str
) -> None:
    found = await checked(tmp_path, check)
    assert (found["exit"], found["output"]) == (code, output.format(work=tmp_path))


async def test_a_check_has_a_limit_of_time_and_leaves_nothing_running(tmp_path: Path) -> None:
    found = await checked(tmp_path, "sleep 60", check_s=0.1)
    assert found["exit"] != 0
    assert found["seconds"] < 30
    found = await checked(tmp_path, "sleep 60 > /dev/null 2>&1 & echo $!")
    assert found["exit"] == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(found["output"]), 0)


@pytest.mark.parametrize("network", [False, True])
async def test_a_check_has_the_network_only_if_the_plan_says_so(
    tmp_path: Path, network: bool
) -> None:
    sandbox = NoConfinement()
    found = await checked(tmp_path, "echo ran", sandbox, network=network)
    assert (found["output"], sandbox.networks) == ("ran", [network])


async def test_a_check_does_not_run_outside_a_sandbox_that_is_not_possible(tmp_path: Path) -> None:
    found = await checked(tmp_path, "touch made", NoConfinement("There is no user namespace"))
    assert found == {"exit": None, "seconds": 0.0, "output": "There is no user namespace"}
    assert not (tmp_path / "made").exists()


class NotingChild(FutureChild):
    """Says for which order it is, and prints as a library may."""

    async def _whole(self) -> int:
        print("noise")
        self._tell({"message": self._order.message})
        return 0


START = """
import sys
from {module} import NotingChild
from kimi_tui.futures import child
sys.exit(child.main(NotingChild))
"""


def started(told: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run the process of a future that is told this on its standard input."""
    script = START.format(module=Path(__file__).stem)
    environ = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{os.pathsep.join(sys.path)}"}
    return subprocess.run(
        [sys.executable, "-c", script], input=told, capture_output=True, env=environ, timeout=60
    )


def test_only_its_lines_are_on_its_standard_output() -> None:
    order = {"session": "", "message": "go", "choice": {}, "options": {}}
    ended = started(json.dumps(order).encode() + b"\n")
    assert (ended.returncode, ended.stdout) == (0, b'{"message": "go"}\n')
    assert ended.stderr == b"noise\n"


@pytest.mark.parametrize("told", [b"{", b"[" * 100_000, b'{"message": "go"}', b"7", b"\xff"])
async def test_an_order_that_cannot_be_read_is_one_sentence(
    told: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    _orders(monkeypatch, told)
    with pytest.raises(ConfigError, match=r"^The instructions for this future cannot be read: "):
        await child._main(1, NotingChild)


async def test_a_program_that_ends_before_its_order_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _orders(monkeypatch)
    assert await child._main(1, NotingChild) == 0


def _orders(monkeypatch: pytest.MonkeyPatch, *lines: bytes) -> None:
    async def told() -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    monkeypatch.setattr(child, "StandardInput", lambda _complain: SimpleNamespace(lines=told))
