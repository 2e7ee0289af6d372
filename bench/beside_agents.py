"""Keys and frames of the prompt while five sub-agents stream: `python -m bench.beside_agents`, about a minute.

The program runs in a 120x40 pty. Letters are typed while the main line streams 200 tokens a second, and then while five sub-agents
stream as many each, of which the chat shows the cards.
"""

from __future__ import annotations

from bench.beside import alone, compare
from bench.programs import Terminal, cpu_s
from bench.stream import typed_keys

_N_AGENTS = 5


def _agents(terminal: Terminal, n_keys: int) -> tuple[float, dict[str, float]]:
    """Start five sub-agents that stream, and type keys."""
    before, start = cpu_s(terminal.pid), terminal.n_bytes
    terminal.type(f"agents {_N_AGENTS} pace 200 20000")
    terminal.wait_quiet(0.3)
    terminal.key("enter")
    for n in range(_N_AGENTS):
        terminal.wait_raw(f"Read part {n}".encode(), start=start, timeout_s=60)
    terminal.wait_raw(b"step 1", start=start, timeout_s=60)
    return before, typed_keys(terminal, n_keys)


if __name__ == "__main__":
    compare(__doc__, {"main line": alone, f"{_N_AGENTS} sub-agents": _agents})
