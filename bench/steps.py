"""The cost of a step between the model's answer and the next request: `python -m bench.steps [--rounds N] [--thinks MS]`, about seven minutes with a peer.

The server asks for one tool call a step. A step lasts from the last byte of that answer to the head of the next request, as the server
sees it; its CPU is that of the program with all its processes. The same calls are made in a folder of 2 files and in one of 20,000,
by our program (sandboxed, every file covered by snapshots) and by the peers that are on PATH, in turns. The model thinks for 100 ms
before each answer, less than any does: what a program does meanwhile belongs to its CPU and not to the step, and a step begins with the
caches of a processor that had other work. `--thinks 0` measures a model that answers at once. With `--long` also a turn of 1,000 steps
of which each changes two files, by such a model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench import resume
from bench.model_server import DONE
from bench.programs import OURS, Program, Terminal, model_server, programs
from bench.table import Bar, Figures, Goal, table

N_STEPS = 30
_WARM = 4
"""Steps before those that are measured. Both numbers are even, so that the edits of a file leave it as it was."""
_FEW, _MANY, _A_FOLDER = 2, 20_000, 100
_LONG_STEPS = 1_000
_THINKS_MS = 100
_TENTH, _SIDE = 10, 20
"""The medians of so many steps, from the tenth on and up to the last of a long turn, are compared."""
CALLS = ("shell", "read", "write", "replace", "grep", "glob")
_TICKS = os.sysconf("SC_CLK_TCK")
_NAMES = {
    "shell": "Shell `true`",
    "read": "ReadFile",
    "write": "WriteFile",
    "replace": "StrReplaceFile",
    "grep": "Grep",
    "glob": "Glob",
}
_MS, _CPU = ", ms a step", ", CPU ms a step"
_TO_PI, _TO_PI_CPU = Goal(1.2, ("pi",)), Goal(1.0, ("pi",))


def _row(call: str, n_files: int) -> str:
    return f"{_NAMES[call]}, {n_files:,} files"


GOALS = {
    f"{_row(call, n_files)}{kind}": goal
    for call in CALLS
    for n_files in (_FEW, _MANY)
    for kind, goal in ((_MS, _TO_PI), (_CPU, _TO_PI_CPU))
}


def write_files(folder: Path, n_files: int) -> None:
    """Write so many small files, a hundred in a folder, with the two that the calls read and change among them; wait until the
    disk has them, as the first sync of a program would wait for all of them.
    """
    (folder / "notes.txt").write_text("a line of notes\n" * 40)
    (folder / "value.txt").write_text("value 0\nanother line\n")
    for n in range(n_files - 2):
        place = folder / f"part{n // _A_FOLDER:03}"
        if n % _A_FOLDER == 0:
            place.mkdir()
        (place / f"file{n}.py").write_text(f"def function_{n}():\n    return {n}\n")
    os.sync()


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, of its descendants, and of those that they have waited for."""
    parents: dict[int, list[int]] = defaultdict(list)
    used: dict[int, float] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(fields[1])].append(int(name))
        used[int(name)] = sum(map(int, fields[11:15])) / _TICKS
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        total += used.get(one, 0.0)
        waiting += parents[one]
    return total


def _asked(base_url: str) -> list[float]:
    """Return the milliseconds of the steps of the newest order, as the server measured them."""
    with urllib.request.urlopen(f"{base_url}/steps", timeout=10) as answer:
        found: Any = json.load(answer)
    return found


def take_steps(
    terminal: Terminal, base_url: str, call: str, n_steps: int, timeout_s: float = 120
) -> tuple[list[float], float]:
    """Have the agent take so many steps; return the milliseconds of each, and the CPU milliseconds of a step."""
    terminal.type(f"steps {call} {n_steps}")
    terminal.wait_quiet(0.3)
    cpu = tree_cpu_s(terminal.pid)
    terminal.key("enter")
    deadline = time.monotonic() + timeout_s
    while len(_asked(base_url)) < n_steps:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{call}: {len(_asked(base_url))} of {n_steps} steps in {timeout_s:.0f} s"
            )
        time.sleep(0.2)
    terminal.wait_quiet(0.4, 60)
    used = tree_cpu_s(terminal.pid) - cpu
    return _asked(base_url), used * 1000 / n_steps


def measure(
    program: Program, base_url: str, n_files: int, calls: tuple[str, ...] = CALLS
) -> dict[str, float]:
    """Measure one round of one program in a new folder; return figures by the name of their row."""
    found: dict[str, float] = {}
    # A peer may leave a process that still writes there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / "work").mkdir()
        write_files(folder / "work", n_files)
        with program.running(base_url, folder=folder) as terminal:
            for call in calls:
                if call not in program.calls:
                    continue
                take_steps(terminal, base_url, call, _WARM)
                steps, cpu = take_steps(terminal, base_url, call, N_STEPS)
                row = _row(call, n_files)
                found[f"{row}{_MS}"] = statistics.median(steps)
                found[f"{row}{_CPU}"] = cpu
    return found


def figures(
    rounds: int,
    *,
    alone: bool = False,
    calls: tuple[str, ...] = CALLS,
    thinks_ms: int = _THINKS_MS,
) -> Figures:
    """Return the medians of all rounds, by program; the programs take turns."""
    taken: dict[str, dict[str, list[float]]] = {}
    measured = [one for one in programs(floors=not alone) if one.calls]
    with model_server(thinks_ms / 1000) as base_url:
        for number in range(rounds):
            for n_files in (_FEW, _MANY):
                for program in measured:
                    print(
                        f"steps, round {number + 1}: {program.name}, {n_files:,} files",
                        file=sys.stderr,
                        flush=True,
                    )
                    rows = taken.setdefault(program.name, defaultdict(list))
                    for row, figure in measure(program, base_url, n_files, calls).items():
                        rows[row].append(figure)
    return {
        name: {row: statistics.median(values) for row, values in rows.items()}
        for name, rows in taken.items()
    }


def long_turn(base_url: str, n_steps: int = _LONG_STEPS) -> list[Bar]:
    """Return the rows of a turn of so many steps, each of which changes two of 20,000 files."""
    with tempfile.TemporaryDirectory() as place:
        home, work = Path(place) / "home", Path(place) / "work"
        for folder in (home, work):
            folder.mkdir()
        write_files(work, _MANY)
        (home / "config.toml").write_text("[loop_control]\nmax_steps_per_turn = 100000\n")
        with OURS.running(base_url, folder=Path(place)) as terminal:
            take_steps(terminal, base_url, "two", _WARM)
            before = resume.rss_mb(terminal.pid)
            steps, _ = take_steps(terminal, base_url, "two", n_steps, timeout_s=n_steps)
            more = resume.rss_mb(terminal.pid) - before
        whole = resume.open_it(home, work, "--continue", end=DONE.encode())
    first = statistics.median(steps[_TENTH : _TENTH + _SIDE])
    last = statistics.median(steps[-_SIDE:])
    name = f"{n_steps:,} steps that change two of {_MANY:,} files"
    return [
        Bar(f"{name}, last step of the tenth", last / first, Goal(1.5)),
        Bar(f"{name}, MB more", more, Goal(20)),
        # From the command line on: the first frame of an empty start is the instant prompt's, long before the app has begun.
        Bar(f"{name}, opened until its end is drawn, s", whole.drawn_s, Goal(1)),
    ]


def bars() -> list[Bar]:
    """Return the rows of a long turn in the table of all measurements."""
    with model_server() as base_url:
        return long_turn(base_url)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.steps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--thinks", type=int, default=_THINKS_MS, metavar="MS", help="how long the model thinks"
    )
    parser.add_argument("--alone", action="store_true", help="measure only kimi-tui")
    parser.add_argument("--calls", nargs="*", choices=CALLS, default=CALLS)
    parser.add_argument("--long", type=int, default=0, metavar="N", help="a turn of N steps, too")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = (
        figures(
            options.rounds,
            alone=options.alone,
            calls=tuple(options.calls),
            thinks_ms=options.thinks,
        )
        if options.calls
        else {OURS.name: {}}
    )
    goals = {row: goal for row, goal in GOALS.items() if row in found[OURS.name]}
    if options.long:
        with model_server() as base_url:
            rows = long_turn(base_url, options.long)
        found[OURS.name] |= {bar.row: bar.ours for bar in rows}
        goals |= {bar.row: bar.goal for bar in rows}
    print(table(found, goals))
    return 0


if __name__ == "__main__":
    sys.exit(main())
