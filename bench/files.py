"""Fuzzy completion of files behind `@`: 100,000 paths, listed by `rg` and matched key by key.

usage: python -m bench.files
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from kimi_tui.tools.file_list import FileList

N_FILES = 100_000
WORDS = (
    "app",
    "core",
    "model",
    "view",
    "test",
    "parser",
    "lexer",
    "config",
    "server",
    "cache",
    "main",
)


def make_tree(root: Path) -> None:
    """Make a folder of so many empty files, with names of words."""
    chance = random.Random(1)
    for n in range(N_FILES // 50):
        folder = root.joinpath(*(chance.choice(WORDS) for _ in range(3)), f"part{n}")
        folder.mkdir(parents=True)
        for k in range(50):
            name = f"{chance.choice(WORDS)}_{chance.choice(WORDS)}_{n}_{k}.py"
            os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY, 0o644))


async def longest_turn(work: asyncio.Future[None]) -> float:
    """Return the largest CPU time in seconds of the event loop's thread between two turns of the loop."""
    longest, last = 0.0, time.thread_time()
    while not work.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest


async def main() -> None:
    """Print the figures; milliseconds are CPU time, so that another load does not count."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_tree(root)
        files = FileList(root, os.environ)
        began = time.perf_counter()
        longest = await longest_turn(asyncio.ensure_future(files.scan()))
        took = time.perf_counter() - began
        print(
            f"scan: {len(files.paths):,} paths in {took:.2f} s, loop kept {longest * 1000:.1f} ms"
        )
        queries = ["a", "ap", "app", "parser_cache", "core/lexer", "tstutl", "part77/main", "zzz"]
        spent: list[float] = []
        for _ in range(10):
            for query in queries:
                began = time.thread_time()
                files.matching(query, 50)
                spent.append((time.thread_time() - began) * 1000)
        spent.sort()
        print(
            f"a key: median {statistics.median(spent):.1f} ms, "
            f"p95 {spent[len(spent) * 95 // 100]:.1f} ms, worst {spent[-1]:.1f} ms"
        )


if __name__ == "__main__":
    asyncio.run(main())
