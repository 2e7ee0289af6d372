"""A session of 50,000 messages (100 MB): `python -m bench.resume`, about two minutes.

Opened with `--continue` beside an empty one: until a key shows, until its end is drawn, until all of it is read, and the
memory of it. Then rewound to its newest turns from the timeline: from Enter in the preview until drawn.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.terminal import Terminal  # noqa: E402 - needs the path above

from bench.answers import end_of  # noqa: E402
from bench.long_session import first_of_last_turn, write_long_session  # noqa: E402
from bench.programs import cpu_s  # noqa: E402
from bench.ready import READY  # noqa: E402

_KEY = "\N{CYRILLIC SMALL LETTER YA}"
_BACK = b"your message is back"


@dataclass(frozen=True, slots=True)
class Opening:
    """One start; seconds, and MB of memory when all was read."""

    key_s: float
    drawn_s: float
    settled_cpu_s: float
    rss_mb: float
    rewind_s: float = 0.0


def rss_mb(pid: int) -> float:
    """The memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1000


def settle(terminal: Terminal) -> float:
    """Wait until nothing is computed any more; the CPU used so far."""
    used = -1.0
    while cpu_s(terminal.pid) - used > 0.02:
        used = cpu_s(terminal.pid)
        time.sleep(0.5)
    return cpu_s(terminal.pid)


def open_it(
    home: Path, work: Path, *arguments: str, end: bytes, rewind: int | None = None
) -> Opening:
    """Start the program, type a letter, wait for `end` on the screen; then rewind where that is wanted."""
    environment = {
        "KIMI_TUI_HOME": str(home),
        "KIMI_BASE_URL": "http://127.0.0.1:9/v1",
        "KIMI_API_KEY": "bench",
        "KIMI_MODEL_NAME": "bench",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": "1000000",
    }
    program = str(Path(sys.executable).parent / "kimi-tui")
    command = [program, "--work-dir", str(work), *arguments]
    began = time.perf_counter()
    with Terminal(command, env=environment, cwd=work, screen=False) as terminal:
        terminal.wait_raw(READY.encode(), timeout_s=60)
        terminal.type(_KEY)
        terminal.wait_raw(_KEY.encode(), timeout_s=60)
        key_s = time.perf_counter() - began
        terminal.wait_raw(end, timeout_s=60)
        drawn_s = time.perf_counter() - began
        cpu = settle(terminal)
        rss = rss_mb(terminal.pid)
        took = 0.0 if rewind is None else _rewind(terminal, rewind)
        return Opening(key_s, drawn_s, cpu, rss, took)


def _rewind(terminal: Terminal, checkpoint: int) -> float:
    terminal.key("backspace")
    terminal.wait_quiet(0.3)
    start = terminal.n_bytes
    terminal.type(f"/rewind {checkpoint}")
    terminal.wait_quiet(0.3)
    terminal.key("enter")
    terminal.wait_raw(b"Rewind", start=start, timeout_s=20)
    terminal.wait_quiet(0.6)
    start = terminal.n_bytes
    began = time.perf_counter()
    terminal.key("enter")
    terminal.wait_raw(_BACK, start=start, timeout_s=60)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.resume")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=50_000)
    options = parser.parse_args()
    empties: list[Opening] = []
    larges: list[Opening] = []
    with tempfile.TemporaryDirectory() as folder:
        empty, large, each, work = (Path(folder) / n for n in ("empty", "large", "each", "work"))
        work.mkdir()
        session = write_long_session(large, work, options.messages)
        newest = first_of_last_turn(options.messages)
        size_mb = (session / "context.jsonl").stat().st_size / 1e6
        for number in range(options.rounds + 1):
            shutil.copytree(large, each, symlinks=True)
            first = open_it(empty, work, end=READY.encode())
            second = open_it(each, work, "--continue", end=end_of(200).encode(), rewind=newest)
            shutil.rmtree(each)
            # The first of each warms the disk.
            if number:
                empties.append(first)
                larges.append(second)

    def median(values: list[float]) -> float:
        return statistics.median(values)

    print(f"{options.messages:,} messages, {size_mb:.0f} MB\n")
    print(
        "| what | this session | an empty one | difference or ratio | goal |\n|---|---|---|---|---|"
    )
    for name, ours, bare in (
        ("key shows", [o.key_s for o in larges], [o.key_s for o in empties]),
        ("end is drawn", [o.drawn_s for o in larges], [o.key_s for o in empties]),
        (
            "CPU until all is read",
            [o.settled_cpu_s for o in larges],
            [o.settled_cpu_s for o in empties],
        ),
    ):
        more = median(ours) - median(bare)
        goal = "≤ 1.0 s more" if name == "end is drawn" else ""
        print(f"| {name} | {median(ours):.2f} s | {median(bare):.2f} s | +{more:.2f} s | {goal} |")
    rss, bare_rss = median([o.rss_mb for o in larges]), median([o.rss_mb for o in empties])
    print(
        f"| memory | {rss:.0f} MB | {bare_rss:.0f} MB | {rss / size_mb:.2f} x the file | ≤ 2 x the file |"
    )
    print(
        f"| rewind until drawn | {median([o.rewind_s for o in larges]) * 1000:.0f} ms | | | ≤ 150 ms |"
    )


if __name__ == "__main__":
    main()
