"""The end of everything that a hook or the program of an MCP server has started, also if it stopped or ended its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from pathlib import Path

import pytest
from support.watching import until

from kimi_tui.hooks.process import run_hook
from kimi_tui.mcp import process
from kimi_tui.mcp.process import ServerProcess, ServerStart
from kimi_tui.tools import supervised

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes so")

DEEDS = ["true", "kill -STOP $PPID", "kill -KILL $PPID", "printf 'L 0\\nX 0\\n' > /proc/$PPID/fd/4"]
SCRIPT = """
trap '' TERM HUP
setsid sleep 300 > /dev/null 2>&1 < /dev/null &
echo $! $$ > pids
%s
sleep 300
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_KILL_WAIT_S", 0.3)
    monkeypatch.setattr(process, "_CLOSE_S", 0.1)


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and that nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def all_end(folder: Path) -> bool:
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    try:
        return await until(lambda: not any(map(alive, pids)), 3)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


def argv(deed: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", SCRIPT % deed)


@pytest.mark.parametrize("deed", DEEDS)
async def test_no_server_outlives_its_session(tmp_path: Path, deed: str) -> None:
    server = ServerProcess(ServerStart(argv(deed), dict(os.environ), tmp_path), tmp_path / "log")
    assert await until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").stat().st_size)
    await asyncio.sleep(0.05)
    os.close(server.stdin)
    os.close(server.stdout)
    server.close()
    assert await all_end(tmp_path)


@pytest.mark.parametrize("deed", DEEDS)
async def test_no_hook_outlives_its_limit(tmp_path: Path, deed: str) -> None:
    end = run_hook(
        argv(deed),
        b"{}",
        work_dir=tmp_path,
        environ=dict(os.environ),
        timeout_s=0.4,
        stop=threading.Event(),
    )
    assert end.ending in ("timeout", "exited")
    assert await all_end(tmp_path)


def test_a_hook_that_ends_its_supervisor_counts_as_killed(tmp_path: Path) -> None:
    end = run_hook(
        ("/bin/sh", "-c", "kill -KILL $PPID; sleep 300"),
        b"{}",
        work_dir=tmp_path,
        environ=dict(os.environ),
        timeout_s=20,
        stop=threading.Event(),
    )
    assert (end.ending, end.code) == ("exited", -9)
