"""How long until the first frame stands, a typed letter is on the screen, and the app has it: the program beside a bare Textual
app and a bare interpreter, each in a pty, in turns.

`python -m bench.startup [--rounds N]`. Prints medians and ratios; ends with 1 where a ratio is over its goal.
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
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.ready import READY

GOAL = 1.10
"""The most that the whole app takes until it has a typed key, as a factor of the bare app."""
FRAME_GOAL, LETTER_GOAL = 0.30, 0.40
"""The most that the first frame and the first letter take, as factors of the bare app's first key: 60 and 80 ms of 202."""
KEY = b"Q"
APP = b"\x1b[?1000h"
"""The bytes that Textual's driver writes first, as the mouse is its alone: the app has the terminal."""
TIMEOUT_S = 20.0
SIZE = (120, 40)


@dataclass(frozen=True, slots=True)
class Start:
    """The times of one program in a round, in seconds since the command was run.

    `ready_s` is the time until its field is drawn, `key_s` until the echo of a key that was pressed then. `app_s` is the time
    until the echo of a key that was pressed when the app had drawn its field.
    """

    ready_s: float
    key_s: float
    app_s: float


def measure(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Start:
    """Start a command twice in a pty, press a key when its field is drawn, wait for the key's echo."""
    ready, key = _first_key(command, environment, folder, b"")
    return Start(ready, key, _first_key(command, environment, folder, APP)[1])


def _first_key(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, after: bytes
) -> tuple[float, float]:
    """Return when the field was drawn, after some output, and when a key that was pressed then was echoed."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        os.execvpe(command[0], list(command), {**inherited, **environment})
    try:
        size = struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
        ready = _wait_for(terminal, (after, READY.encode()), began)
        os.write(terminal, KEY)
        return ready, _wait_for(terminal, (KEY,), began)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _wait_for(terminal: int, words: Sequence[bytes], began: float) -> float:
    """Return the seconds from `began` until the words came, one after the other."""
    seen = b""
    for one in filter(None, words):
        while one not in seen:
            rest = began + TIMEOUT_S - time.perf_counter()
            if rest <= 0 or not select.select([terminal], [], [], rest)[0]:
                raise TimeoutError(f"{one!r} did not come in {TIMEOUT_S:.0f} s")
            seen += os.read(terminal, 65_536)
        seen = seen.partition(one)[2]
    return time.perf_counter() - began


def interpreter_s() -> float:
    """Return the seconds that a bare interpreter takes from start to end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
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
    rounds = parser.parse_args().rounds
    results = starts(rounds)
    bare_s = statistics.median(interpreter_s() for _ in range(rounds))
    print(f"python -c pass {bare_s * 1000:6.0f} ms")
    medians: dict[str, Start] = {}
    for name, found in results.items():
        ready, key, app = (
            statistics.median(getattr(one, kind) for one in found)
            for kind in ("ready_s", "key_s", "app_s")
        )
        medians[name] = Start(ready, key, app)
        least = min(one.app_s for one in found) * 1000
        print(
            f"{name:<14} first frame {ready * 1000:6.0f} ms   typed letter {key * 1000:6.0f} ms"
            f"   app's first key {app * 1000:6.0f} ms   best {least:6.0f} ms"
        )
    bare, ours = medians.values()
    ratios = {
        "first frame": (ours.ready_s / bare.app_s, FRAME_GOAL),
        "typed letter": (ours.key_s / bare.app_s, LETTER_GOAL),
        "app's first key": (ours.app_s / bare.app_s, GOAL),
    }
    for name, (ratio, goal) in ratios.items():
        print(f"{name}: {ratio:.2f} of the bare app's first key, goal {goal:.2f}")
    return 0 if all(ratio <= goal for ratio, goal in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
