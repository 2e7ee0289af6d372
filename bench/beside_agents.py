"""Keys and frames of the prompt while five sub-agents stream: `python -m bench.beside_agents`, about a minute.

The program runs in a 120x40 pty. Letters are typed while the main line streams 200 tokens a second, and then while five sub-agents
stream as many each, of which the chat shows the cards.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from bench.programs import OURS, cpu_s, model_server
from bench.stream import keys_beside, typed_keys
from bench.table import Figures, table

_N_AGENTS = 5


def measure(base_url: str, n_keys: int, *, agents: bool) -> dict[str, float]:
    """Return the figures of one round, by the name of their row."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "work").mkdir()
        with OURS.running(base_url, folder=place) as terminal:
            terminal.type("burst 50")
            terminal.wait_quiet(0.3)
            terminal.key("enter")
            terminal.wait_quiet(2.0, 60)
            before = cpu_s(terminal.pid)
            if not agents:
                found = keys_beside(terminal, n_keys)
            else:
                start = terminal.n_bytes
                terminal.type(f"agents {_N_AGENTS} pace 200 20000")
                terminal.wait_quiet(0.3)
                terminal.key("enter")
                for n in range(_N_AGENTS):
                    terminal.wait_raw(f"Read part {n}".encode(), start=start, timeout_s=60)
                terminal.wait_raw(b"step 1", start=start, timeout_s=60)
                found = typed_keys(terminal, n_keys)
            found["CPU of the screen, s"] = cpu_s(terminal.pid) - before
            return found


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    figures: Figures = {"main line": {}, f"{_N_AGENTS} sub-agents": {}}
    with model_server() as base_url:
        for _ in range(options.rounds):
            for name, is_beside in zip(figures, (False, True), strict=True):
                for row, figure in measure(base_url, options.keys, agents=is_beside).items():
                    kept = figures[name].get(row)
                    figures[name][row] = figure if kept is None else min(kept, figure)
    print(f"{os.cpu_count()} cores")
    print(table(figures, {}))


if __name__ == "__main__":
    main()
