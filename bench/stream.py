"""How the program starts and keeps up with a model: `python -m bench.stream`, about six minutes with one peer.

Each program of `bench.programs` runs in a 120x40 pty against a server in a process of its own, in turns, so that a machine that drifts
drifts for all. Only ratios of one run are compared: `bench/ratios.json` has those of the last stored run, and a ratio that is worse by
more than a fifth is said and ends the command with 1 (`--store` writes new ones).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.answers import end_of
from bench.long_session import write_session
from bench.programs import OURS, Program, Terminal, cpu_s, model_server, programs
from bench.startup import starts
from bench.table import Figures, Goal, table

# No answer contains these letters. Each is typed once, so its first appearance on the pty is its echo.
_LETTERS = [chr(code) for code in (*range(0x0410, 0x0450), *range(0x03B1, 0x03CA))]
_STORED = Path(__file__).parent / "ratios.json"
_WORSE = 1.2
"""A ratio larger than the stored one by this factor is reported."""
_PACE = 200
_BURSTS = (2_000, 20_000, 40_000)

_START = "start, until a key shows"
_FRAME = "start, until the first frame"
_APP = "start, until the app has a key"
_FLOORS = ("sketch", "pi")
GOALS = {
    _FRAME: Goal(0.4, ("bare Textual",)),
    _START: Goal(0.4, ("bare Textual",)),
    _APP: Goal(1.1, ("bare Textual",)),
    "2,000 tokens, until drawn": Goal(0.5, _FLOORS),
    "2,000 tokens, CPU": Goal(0.5, _FLOORS),
    "20,000 tokens, until drawn": Goal(0.4, ("pi",)),
    "20,000 tokens, CPU": Goal(0.4, ("pi",)),
    "40,000 tokens, until drawn": Goal(2.1, row="20,000 tokens, until drawn"),
    "key at 200 tokens/s, median ms": Goal(0.5, ("pi",)),
    "key at 200 tokens/s, p95 ms": Goal(0.5, ("pi",)),
    "key at 200 tokens/s, worst ms": Goal(50),
    "kB/s written at 200 tokens/s": Goal(1.5, ("pi",)),
    "idle, 500 messages, CPU %": Goal(0.3),
    "idle, 500 messages, bytes": Goal(0),
}


def burst(terminal: Terminal, n_tokens: int) -> dict[str, float]:
    """Ask for an answer; return milliseconds until it is drawn, CPU milliseconds and kilobytes written for it."""
    terminal.type(f"burst {n_tokens}")
    terminal.wait_quiet(0.3)
    start, cpu = terminal.n_bytes, cpu_s(terminal.pid)
    began = time.perf_counter()
    terminal.key("enter")
    terminal.wait_raw(end_of(n_tokens).encode(), start=start, timeout_s=120)
    took = time.perf_counter() - began
    terminal.wait_quiet(0.4, 60)
    used = cpu_s(terminal.pid) - cpu
    written = (terminal.n_bytes - start) / 1000
    return {"until drawn": took * 1000, "CPU": used * 1000, "written": written}


def keys_beside(terminal: Terminal, n_keys: int) -> dict[str, float]:
    """Return the milliseconds from a typed letter to its echo, and kilobytes a second written, while 200 tokens a second stream."""
    terminal.type(f"pace {_PACE} 5000")
    terminal.wait_quiet(0.3)
    begin = terminal.n_bytes
    terminal.key("enter")
    terminal.wait_raw(b"tokenizer", start=begin, timeout_s=20)
    return typed_keys(terminal, n_keys)


def typed_keys(terminal: Terminal, n_keys: int) -> dict[str, float]:
    """Return the same while something streams already."""
    begin, began = terminal.n_bytes, time.perf_counter()
    found: list[float] = []
    pause = began
    for n, letter in enumerate(_LETTERS[:n_keys]):
        # The pauses have a typist's rhythm, which is never in step with frames.
        pause += 0.061 + 0.0137 * (n % 7)
        time.sleep(max(0.0, pause - time.perf_counter()))
        start, typed = terminal.n_bytes, time.perf_counter()
        terminal.type(letter)
        terminal.wait_raw(letter.encode(), start=start, timeout_s=10)
        found.append((time.perf_counter() - typed) * 1000)
    written = (terminal.n_bytes - begin) / 1000 / (time.perf_counter() - began)
    at = "key at 200 tokens/s, "
    return {
        at + "median ms": statistics.median(found),
        at + "p95 ms": statistics.quantiles(found, n=20)[-1],
        at + "worst ms": max(found),
        "kB/s written at 200 tokens/s": written,
    }


def idle(terminal: Terminal, seconds: float) -> dict[str, float]:
    """Return the percent of one CPU and bytes written while the program is idle."""
    time.sleep(2.0)
    cpu, written = cpu_s(terminal.pid), terminal.n_bytes
    time.sleep(seconds)
    percent = 100 * (cpu_s(terminal.pid) - cpu) / seconds
    at = "idle, 500 messages, "
    return {at + "CPU %": percent, at + "bytes": float(terminal.n_bytes - written)}


def measure(program: Program, base_url: str, n_keys: int) -> dict[str, float]:
    """Measure one round of one program; return figures by the name of their row."""
    found: dict[str, float] = {}
    with program.running(base_url) as terminal:
        # The first answer includes its imports.
        first = burst(terminal, 2_001)["until drawn"]
        found["the very first 2,000, until drawn"] = first
        for n_tokens in _BURSTS:
            if program.name == "bare Textual" and n_tokens > 2_000:
                # This program makes a widget for each block: 20,000 tokens take it minutes.
                continue
            for kind, figure in burst(terminal, n_tokens).items():
                found[f"{n_tokens:,} tokens, {kind}"] = figure
    with program.running(base_url) as terminal:
        found |= keys_beside(terminal, n_keys)
    return found


def at_rest(base_url: str, seconds: float) -> dict[str, float]:
    """Measure our program idle over a session of 500 messages."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work").mkdir()
        write_session(Path(folder) / "home", Path(folder) / "work", 500)
        with OURS.running(base_url, "--continue", folder=Path(folder)) as terminal:
            return idle(terminal, seconds)


def ratios(figures: Figures) -> dict[str, dict[str, float]]:
    """Return row by row our figure divided by each other program's."""
    ours, *_ = figures.values()
    return {
        row: {
            name: round(figure / other[row], 3)
            for name, other in list(figures.items())[1:]
            if other.get(row)
        }
        for row, figure in ours.items()
    }


def worse(now: dict[str, dict[str, float]], stored: dict[str, dict[str, float]]) -> list[str]:
    """Return a line for each ratio that is worse than the stored one by more than a fifth."""
    return [
        f"worse: {row} is {ratio:.2f} of {name}, was {before:.2f}"
        for row, by_name in now.items()
        for name, ratio in by_name.items()
        if (before := stored.get(row, {}).get(name)) and ratio > before * _WORSE
    ]


def not_compared(
    now: dict[str, dict[str, float]], stored: dict[str, dict[str, float]]
) -> list[str]:
    """Return a line for each reason why rows were compared with no stored ratio, with these rows."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for row, by_name in now.items():
        if not by_name:
            reasons["nothing was measured beside"].append(row)
        for name in by_name:
            if name not in stored.get(row, {}):
                reasons[f"no ratio to {name} is stored (--store does that) for"].append(row)
    for row, by_name in stored.items():
        for name in by_name:
            if name not in now.get(row, {}):
                reasons[f"no ratio to {name} was measured for"].append(row)
    return [f"not compared: {reason} {'; '.join(rows)}" for reason, rows in reasons.items()]


def arguments(program: str) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=80)
    parser.add_argument("--idle-s", type=float, default=10.0)
    parser.add_argument("--alone", action="store_true", help="measure only kimi-tui")
    parser.add_argument("--store", action="store_true", help="keep this run's ratios")
    return parser.parse_args()


def measured(options: argparse.Namespace) -> Figures:
    """Return the medians of all rounds."""
    rounds: dict[str, dict[str, list[float]]] = {}
    if not options.alone:
        for name, found in starts(3 * options.rounds).items():
            rows = rounds.setdefault(name, defaultdict(list))
            rows[_FRAME] += [start.ready_s * 1000 for start in found]
            rows[_START] += [start.key_s * 1000 for start in found]
            rows[_APP] += [start.app_s * 1000 for start in found]
    with model_server() as base_url:
        for n in range(options.rounds):
            for program in programs(floors=not options.alone):
                print(
                    f"round {n + 1} of {options.rounds}: {program.name}",
                    file=sys.stderr,
                    flush=True,
                )
                rows = rounds.setdefault(program.name, defaultdict(list))
                for row, figure in measure(program, base_url, options.keys).items():
                    rows[row].append(figure)
        for row, figure in at_rest(base_url, options.idle_s).items():
            rounds[OURS.name][row] = [figure]
    return {
        program.name: {
            row: statistics.median(values) for row, values in rounds[program.name].items()
        }
        for program in programs(floors=not options.alone)
    }


def compared(figures: Figures, *, store: bool) -> int:
    """Print which ratios are worse than the stored ones, and which are compared with none; return the exit code.

    With `store` the present ones are stored instead.
    """
    found = ratios(figures)
    stored: dict[str, dict[str, float]] = (
        json.loads(_STORED.read_text()) if _STORED.exists() else {}
    )
    if store:
        stored |= found
        _STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    said = worse(found, stored)
    print(*said, *not_compared(found, stored), sep="\n")
    return 1 if said else 0


def main() -> int:
    """Measure, print the table, compare with the stored ratios."""
    options = arguments("python -m bench.stream")
    figures = measured(options)
    print(table(figures, GOALS))
    return compared(figures, store=options.store)


if __name__ == "__main__":
    sys.exit(main())
