"""Several futures of one session: `python -m bench.futures`.

A folder of 20,000 files and three futures, with a model server in this process. How long until the frozen files stand, from then until
the folder of a future stands and until its first request leaves, the disk that each takes, and the private memory of each process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.chat_server import Answer, ChatServer, Request, call, say  # noqa: E402 - needs the path above

from bench.table import FLOOR, Bar, Goal, table, with_bars  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimi_tui.futures.running import Futures

FILES = 20_000
FUTURES = 3
_LINES = 40


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.futures")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=FILES)
    options = parser.parse_args()
    found = bars(options.rounds, options.files)
    figures = with_bars({"kimi-tui": {}}, found)
    figures.pop(FLOOR)
    print(table(figures, {bar.row: bar.goal for bar in found}))


def bars(rounds: int, files: int = FILES) -> list[Bar]:
    """Return the rows, medians of some rounds."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        work = top / "work"
        for number in range(files):
            path = work / f"part{number % 150}" / f"file{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"value = {number}\n" * _LINES)
        (top / "user").mkdir()
        os.environ |= {"KIMI_TUI_HOME": str(top / "home"), "HOME": str(top / "user")}
        size = _disk_mb(work.rglob("*"))
        found = asyncio.run(_measured(work, rounds))
    median = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return [
        Bar("futures: frozen files, ms", 1e3 * median["base"], Goal(1000)),
        Bar("futures: frozen files of an earlier set, ms", 1e3 * median["kept"], Goal(1000)),
        Bar("futures: folder stands behind them, ms", 1e3 * median["folder"], Goal(300)),
        Bar("futures: first request behind them, ms", 1e3 * median["request"], Goal(1200)),
        Bar("futures: disk of frozen files, MB", median["frozen"], Goal(round(1.1 * size))),
        Bar("futures: disk of each beside its changes, MB", median["disk"], Goal(0.5)),
        Bar("futures: private memory of each, MB", median["memory"], Goal(30.0)),
    ]


class _Server:
    """A model that writes a file and says so; it looks at the processes at the second request of each future."""

    def __init__(self) -> None:
        self.first_at = 0.0
        self.memory: list[float] = []
        self.pids: set[int] = set()

    def answer(self, request: Request) -> Answer:
        """Answer a request."""
        if not any("begin now" in str(message["content"]) for message in request.messages):
            return say("Hello.", usage=(100, 5))
        self.first_at = self.first_at or time.perf_counter()
        if request.messages[-1]["role"] != "tool":
            return call("WriteFile", {"path": "made.txt", "content": "made"}, usage=(1000, 20))
        self.memory += [mb for pid in self.pids if (mb := _private_mb(pid))]
        return say("Done.", usage=(1100, 5))


async def _measured(work: Path, rounds: int) -> list[dict[str, float]]:
    from kimi_tui.futures.running import Futures
    from kimi_tui.launch import Options, launch_of
    from kimi_tui.soul.opening import open_session

    found: list[dict[str, float]] = []
    server = _Server()
    async with ChatServer(check=server.answer) as chat:
        os.environ |= {
            "KIMI_BASE_URL": chat.base_url,
            "KIMI_API_KEY": "bench",
            "KIMI_MODEL_NAME": "bench",
        }
        launch = launch_of(Options(work_dir=str(work), mode="sandboxed"))
        for _ in range(rounds):
            # A new session has no frozen files yet; its second set takes those of the first.
            soul = (await open_session(launch)).soul
            await soul.run("Say hello.")
            await soul.files_ready()
            futures = Futures(soul, launch)
            first, again = await _set(futures, server), await _set(futures, server)
            found.append({**first, "kept": again["base"]})
            await soul.aclose()
    return found


async def _set(futures: Futures, server: _Server) -> dict[str, float]:
    """Run a set of futures; return its figures in seconds and MB."""
    from kimi_tui.futures.running import STARTS
    from kimi_tui.futures.values import FuturesPlan, Variant
    from kimi_tui.soul.rewind_values import END, Target

    top = Path(os.environ["KIMI_TUI_HOME"]) / "futures"
    seen: dict[str, float] = {}
    sizes: list[tuple[float, float]] = []
    server.first_at, server.memory = 0.0, []

    def wake(key: str) -> None:
        state, now = futures.state(key), time.perf_counter()
        if state.tier:
            seen.setdefault("base", now)
        if state.why == STARTS:
            seen.setdefault("folder", now)
        if pid := futures.process_id(key):
            server.pids.add(pid)
        if state.is_over and not sizes:
            # The frozen files of the rounds before may be there still.
            frozen = max(_disk_mb(base.rglob("*")) for base in top.glob("*/base"))
            sizes.append((frozen, _disk_mb(top.glob("*/run-*/**/*"))))

    futures.subscribe(wake)
    begun = time.perf_counter()
    variants = tuple(Variant("Please begin now.") for _ in range(FUTURES))
    keys = await futures.start(FuturesPlan(Target(END), variants))
    await futures.ended()
    futures.unsubscribe(wake)
    await futures.prune(keys)
    return {
        "base": seen["base"] - begun,
        "folder": seen["folder"] - seen["base"],
        "request": server.first_at - seen["base"],
        "frozen": sizes[0][0],
        "disk": sizes[0][1] / FUTURES,
        "memory": max(server.memory, default=0.0),
    }


def _private_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().split("\n")
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def _disk_mb(paths: Iterable[Path]) -> float:
    """Return the disk that some files take."""
    return sum(path.lstat().st_blocks * 512 for path in paths) / 1e6


if __name__ == "__main__":
    main()
