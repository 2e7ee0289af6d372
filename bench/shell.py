"""The shell tool with a command that prints 100 MB: `python -m bench.shell`, a few seconds.

Beside the bare command, in turns: once into a pipe that a loop of `os.read` empties, which is the least that whoever wants its
output can do, and once into /dev/null, where a write costs nothing and nobody has the output. The goal is of the first. The best
of all rounds counts for the time: whatever else runs on the machine only ever makes it longer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.table import FLOOR, Bar, Goal
from kimi_tui.tools.process import RunningCommand

_COMMANDS = {
    "seq": "seq 1 12388888",
    "yes": "yes 'a line that some program prints' | head -c 100000000",
}


def _rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


_BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
GOAL = 1.7
_READ_BYTES = 65_536


def _thrown_away(command: str) -> float:
    began = time.perf_counter()
    subprocess.run([*_BASH, command], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _read(command: str) -> float:
    began = time.perf_counter()
    with subprocess.Popen([*_BASH, command], stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), _READ_BYTES):
            pass
    return time.perf_counter() - began


def _ours(command: str, folder: Path) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    running = RunningCommand(
        [*_BASH, command],
        work_dir=folder,
        environ=dict(os.environ),
        timeout_s=60,
        on_output=lambda _text: None,
    )
    asyncio.run(running.run())
    return time.perf_counter() - began, time.process_time() - cpu


@dataclass(frozen=True, slots=True)
class Flood:
    """The figures of one command, best of all rounds: milliseconds, and memory in MB."""

    thrown_away: float
    read: float
    ours: float
    own_cpu: float
    more_mb: float


def floods(rounds: int) -> dict[str, Flood]:
    """Return the figures of each command by its name."""
    found: dict[str, Flood] = {}
    for name, command in _COMMANDS.items():
        with tempfile.TemporaryDirectory() as folder:
            before = _rss_mb()
            taken = [
                (_thrown_away(command), _read(command), *_ours(command, Path(folder)))
                for _ in range(rounds)
            ]
            thrown_away, read, ours, cpu = (
                min(values) * 1000 for values in zip(*taken, strict=True)
            )
            found[name] = Flood(thrown_away, read, ours, cpu, _rss_mb() - before)
    return found


def bars(rounds: int) -> list[Bar]:
    """Return the rows of these figures in the table of all measurements."""
    return [
        Bar(f"shell, `{name}`, 100 MB, ms", one.ours, Goal(GOAL, (FLOOR,)), one.read)
        for name, one in floods(rounds).items()
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.shell")
    parser.add_argument("--rounds", type=int, default=9)
    found = floods(parser.parse_args().rounds)
    print(
        "| command, 100 MB | into /dev/null | into a pipe that is read | shell tool | of the pipe | of /dev/null | its own CPU | memory | goal |"
    )
    print("|---" * 9 + "|")
    for name, one in found.items():
        print(
            f"| `{name}` | {one.thrown_away:.0f} ms | {one.read:.0f} ms | {one.ours:.0f} ms | {one.ours / one.read:.2f} "
            f"| {one.ours / one.thrown_away:.2f} | {one.own_cpu:.0f} ms | +{one.more_mb:.0f} MB | ≤ {GOAL} x the pipe, +30 MB |"
        )
    return 0 if all(one.ours <= GOAL * one.read for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
