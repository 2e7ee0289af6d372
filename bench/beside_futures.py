"""Keys and frames of the main line while three futures stream beside it: `python -m bench.beside_futures`, about a minute.

The program runs in a 120x40 pty. Letters are typed while the main line streams 200 tokens a second, first alone, then while three
futures, each a process of its own, stream as many. A machine with fewer than four free cores also measures how these share them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from bench.programs import OURS, Terminal, cpu_s, model_server
from bench.stream import keys_beside
from bench.table import Figures, table

_N_FUTURES = 3


def _begin_futures(terminal: Terminal) -> None:
    """Start three futures that stream, and wait until all of them do."""
    terminal.type(f"/futures {_N_FUTURES} pace 200 20000")
    terminal.wait_quiet(0.3)
    start = terminal.n_bytes
    terminal.key("enter")
    terminal.wait_raw(b"first requests send", start=start, timeout_s=60)
    terminal.wait_quiet(0.5)
    start = terminal.n_bytes
    terminal.key("enter")
    terminal.wait_raw(b"started", start=start, timeout_s=60)
    for _ in range(_N_FUTURES):
        terminal.wait_raw(b"step 1", start=start, timeout_s=120)
    terminal.wait_quiet(2.0, 60)


def measure(base_url: str, n_keys: int, *, futures: bool) -> dict[str, float]:
    """Return the figures of one round, by the name of their row."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "work").mkdir()
        (place / "work" / "a.py").write_text("a = 1\n")
        with OURS.running(base_url, folder=place) as terminal:
            terminal.type("burst 50")
            terminal.wait_quiet(0.3)
            terminal.key("enter")
            terminal.wait_quiet(2.0, 60)
            if futures:
                _begin_futures(terminal)
            before = cpu_s(terminal.pid)
            found = keys_beside(terminal, n_keys)
            found["CPU of the screen, s"] = cpu_s(terminal.pid) - before
            return found


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    figures: Figures = {"alone": {}, f"beside {_N_FUTURES} futures": {}}
    with model_server() as base_url:
        for _ in range(options.rounds):
            for name, is_beside in zip(figures, (False, True), strict=True):
                for row, figure in measure(base_url, options.keys, futures=is_beside).items():
                    kept = figures[name].get(row)
                    figures[name][row] = figure if kept is None else min(kept, figure)
    print(f"{os.cpu_count()} cores")
    print(table(figures, {}))


if __name__ == "__main__":
    main()
