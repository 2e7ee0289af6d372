"""Keys and frames of the main line while three futures stream beside it: `python -m bench.beside_futures`, about a minute.

The program runs in a 120x40 pty. Letters are typed while the main line streams 200 tokens a second, first alone, then while three
futures, each a process of its own, stream as many. A machine with fewer than four free cores also measures how these share them.
"""

from __future__ import annotations

from bench.beside import alone, compare
from bench.programs import Terminal

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


def _futures(terminal: Terminal, n_keys: int) -> tuple[float, dict[str, float]]:
    """Start three futures that stream, and type keys while the main line streams, too."""
    _begin_futures(terminal)
    return alone(terminal, n_keys)


if __name__ == "__main__":
    compare(__doc__, {"alone": alone, f"beside {_N_FUTURES} futures": _futures})
