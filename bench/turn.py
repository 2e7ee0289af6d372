"""A turn of 10 tokens without a screen, from the start of the command to its exit, beside peers and a floor.

`python -m bench.turn [--rounds N]`. The floor is a Python program that imports the same HTTP library, asks once and ends: less cannot
be had with it. The peer is `pi`, where it is on PATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.programs import OURS, PEERS, model_server
from bench.table import FLOOR, Bar, Figures, Goal, table

ROW = "turn of 10 tokens, start to exit, ms"
GOAL = Goal(0.55, ("pi",))
PROMPT = "burst 10"
_FLOOR = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="bench")
said = client.chat.completions.create(
    model="bench", messages=[{"role": "user", "content": "burst 10"}], stream=True
)
print("".join(one.choices[0].delta.content or "" for one in said if one.choices))
"""


def _took(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> float:
    """Return the seconds from the start of a command to its exit, which must be a success."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=300,
    )
    return time.perf_counter() - began


def figures(rounds: int) -> Figures:
    """Return the medians in milliseconds, by program; the programs take turns."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place,
        model_server() as base_url,
    ):
        folder = Path(place)
        (folder / "work").mkdir()
        runs = {FLOOR: ([sys.executable, "-c", _FLOOR, base_url], dict[str, str]())}
        for program in (OURS, *(peer for peer in PEERS if shutil.which(peer.name))):
            command, environment = program.launch(base_url, folder)
            runs[program.name] = ([*command, "-p", PROMPT], environment)
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(rounds + 1):
            for name, (command, environment) in runs.items():
                took = _took(command, environment, folder / "work")
                # The first run of each compiles modules and warms the disk.
                if number:
                    taken[name].append(took * 1000)
    return {
        name: {ROW: statistics.median(taken[name])}
        for name in sorted(taken, key=lambda name: name != OURS.name)
    }


def measured(rounds: int) -> tuple[Figures, Bar]:
    """Return the figures of all programs, and ours as a row of the table of all measurements."""
    found = figures(rounds)
    return found, Bar(ROW, found[OURS.name][ROW], GOAL, found[FLOOR][ROW])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.turn")
    parser.add_argument("--rounds", type=int, default=9)
    found, _ = measured(parser.parse_args().rounds)
    print(table(found, {ROW: GOAL}))
    ours, pi = found[OURS.name][ROW], found.get("pi", {}).get(ROW)
    return 0 if pi is None or ours <= GOAL.most * pi else 1


if __name__ == "__main__":
    sys.exit(main())
