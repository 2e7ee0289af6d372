"""Keys and frames of the prompt while something else streams beside it, against those while the main line streams alone."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.programs import OURS, Terminal, cpu_s, model_server
from bench.stream import keys_beside
from bench.table import Figures, table

Measured = Callable[[Terminal, int], tuple[float, dict[str, float]]]
"""Types so many keys; returns the seconds of CPU that the program had used at the beginning, and the figures by the name of their row."""


def alone(terminal: Terminal, n_keys: int) -> tuple[float, dict[str, float]]:
    """Type keys while the main line streams, and nothing beside it."""
    before = cpu_s(terminal.pid)
    return before, keys_beside(terminal, n_keys)


def _measure(base_url: str, n_keys: int, measured: Measured) -> dict[str, float]:
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
            before, found = measured(terminal, n_keys)
            found["CPU of the screen, s"] = cpu_s(terminal.pid) - before
            return found


def compare(description: str | None, columns: dict[str, Measured]) -> None:
    """Measure each column as often as the command line says, and print the table of the smallest figures.

    Args:
        description: the text of `--help`.
        columns: what is measured, by the name of its column.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    figures: Figures = {name: {} for name in columns}
    with model_server() as base_url:
        for _ in range(options.rounds):
            for name, measured in columns.items():
                for row, figure in _measure(base_url, options.keys, measured).items():
                    kept = figures[name].get(row)
                    figures[name][row] = figure if kept is None else min(kept, figure)
    print(f"{os.cpu_count()} cores")
    print(table(figures, {}))
