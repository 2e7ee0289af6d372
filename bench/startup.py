"""How long until a typed key is on the screen: the program beside a bare Textual app, each in a pty, in turns.

`python -m bench.startup [--rounds N]`. Prints medians and the ratio; ends with 1 where the ratio is over the goal.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.ready import READY

GOAL = 1.10
KEY = b"Q"
TIMEOUT_S = 20.0
SIZE = (120, 40)


@dataclass(frozen=True, slots=True)
class Start:
    """The times of one start, in seconds since the command was run."""

    ready_s: float
    key_s: float


def measure(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Start:
    """Start a command in a pty, press a key when its field is drawn, wait for the key's echo."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        os.execvpe(command[0], list(command), {**inherited, **environment})
    try:
        size = struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
        ready = _wait_for(terminal, READY.encode(), began)
        os.write(terminal, KEY)
        return Start(ready, _wait_for(terminal, KEY, began))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _wait_for(terminal: int, words: bytes, began: float) -> float:
    """Return the seconds from `began` until the words came."""
    seen = b""
    while words not in seen:
        rest = began + TIMEOUT_S - time.perf_counter()
        if rest <= 0 or not select.select([terminal], [], [], rest)[0]:
            raise TimeoutError(f"{words!r} did not come in {TIMEOUT_S:.0f} s")
        seen += os.read(terminal, 65_536)
    return time.perf_counter() - began


def starts(rounds: int) -> dict[str, list[Start]]:
    """Return so many starts of the program and of the bare app, made in turns."""
    program = str(Path(sys.executable).parent / "kimi-tui")
    root = str(Path(__file__).parent.parent)
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "KIMI_TUI_HOME": home,
            "KIMI_API_KEY": "none",
            "KIMI_BASE_URL": "http://127.0.0.1:9/v1",
            "KIMI_MODEL_NAME": "stand-in",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": root,
        }
        bare = [sys.executable, "-m", "bench.bare_prompt"]
        results: dict[str, list[Start]] = {"bare Textual": [], "kimi-tui": []}
        for number in range(rounds + 1):
            for name, command in (("bare Textual", bare), ("kimi-tui", [program])):
                start = measure(command, environment, Path(home))
                # The first start of each compiles modules and warms the disk.
                if number:
                    results[name].append(start)
    return results


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    results = starts(parser.parse_args().rounds)
    for name, found in results.items():
        ready = statistics.median(s.ready_s for s in found) * 1000
        key = statistics.median(s.key_s for s in found) * 1000
        least = min(s.key_s for s in found) * 1000
        print(f"{name:<14} field {ready:6.0f} ms   first key {key:6.0f} ms   best {least:6.0f} ms")
    medians = [statistics.median(s.key_s for s in found) for found in results.values()]
    ratio = medians[1] / medians[0]
    print(f"ratio {ratio:.2f}, goal {GOAL:.2f}")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
