"""The shell tool with a command that prints 100 MB: `python -m bench.shell`, a few seconds.

Beside the bare command with its output thrown away, in turns. The best of all rounds counts for the time: whatever else
runs on the machine only ever makes it longer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
import time
from pathlib import Path

from kimi_tui.tools.process import RunningCommand

_COMMANDS = {
    "seq": "seq 1 12388888",
    "yes": "yes 'a line that some program prints' | head -c 100000000",
}


def _rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _bare(command: str) -> float:
    began = time.perf_counter()
    subprocess.run(["/bin/bash", "-c", command], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _ours(command: str, folder: Path) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    running = RunningCommand(
        ["/bin/bash", "--noprofile", "--norc", "-c", command],
        work_dir=folder,
        environ=dict(os.environ),
        timeout_s=60,
        on_output=lambda _text: None,
    )
    asyncio.run(running.run())
    return time.perf_counter() - began, time.process_time() - cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.shell")
    parser.add_argument("--rounds", type=int, default=9)
    rounds: int = parser.parse_args().rounds
    print(
        "| command | bare | shell tool | ratio | its own CPU | memory | goal |\n|---|---|---|---|---|---|---|"
    )
    for name, command in _COMMANDS.items():
        with tempfile.TemporaryDirectory() as folder:
            before = _rss_mb()
            pairs = [(_bare(command), *_ours(command, Path(folder))) for _ in range(rounds)]
            bare, ours, cpu = (min(values) * 1000 for values in zip(*pairs, strict=True))
            more = _rss_mb() - before
        print(
            f"| `{name}`, 100 MB | {bare:.0f} ms | {ours:.0f} ms | {ours / bare:.2f} | {cpu:.0f} ms "
            f"| +{more:.0f} MB | ≤ 1.7 x, +30 MB |"
        )


if __name__ == "__main__":
    main()
