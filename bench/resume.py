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
from bench.programs import cpu_s, model_server  # noqa: E402
from bench.ready import READY  # noqa: E402
from bench.table import Bar, Goal  # noqa: E402

_KEY = "\N{CYRILLIC SMALL LETTER YA}"
_BACK = b"edit your message in the prompt"
_NOBODY = "http://127.0.0.1:9/v1"
_PREVIEWED = b"Rewind to #"
_LONGEST = 70_000
"""Messages of the session in which a preview is opened while a turn runs."""


@dataclass(frozen=True, slots=True)
class Opening:
    """One start; seconds, and MB of memory when all was read."""

    key_s: float
    drawn_s: float
    settled_cpu_s: float
    rss_mb: float
    rewind_s: float = 0.0


def rss_mb(pid: int) -> float:
    """Return the memory in MB that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1000


def settle(terminal: Terminal) -> float:
    """Wait until the CPU is idle; return the CPU seconds used so far."""
    used = -1.0
    while cpu_s(terminal.pid) - used > 0.02:
        used = cpu_s(terminal.pid)
        time.sleep(0.5)
    return cpu_s(terminal.pid)


def _started(home: Path, work: Path, *arguments: str, base_url: str = _NOBODY) -> Terminal:
    environment = {
        "KIMI_TUI_HOME": str(home),
        "KIMI_BASE_URL": base_url,
        "KIMI_API_KEY": "bench",
        "KIMI_MODEL_NAME": "bench",
        # With such a window nothing is compacted.
        "KIMI_MODEL_MAX_CONTEXT_SIZE": "100000000",
    }
    program = str(Path(sys.executable).parent / "kimi-tui")
    return Terminal([program, *arguments], env=environment, cwd=work, screen=False)


def open_it(
    home: Path, work: Path, *arguments: str, end: bytes, rewind: int | None = None
) -> Opening:
    """Start the program, type a letter, wait for `end` on the screen; then rewind to `rewind` unless it is None."""
    began = time.perf_counter()
    with _started(home, work, *arguments) as terminal:
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
    terminal.wait_raw(_PREVIEWED, start=start, timeout_s=20)
    terminal.wait_quiet(0.6)
    start = terminal.n_bytes
    began = time.perf_counter()
    terminal.key("enter")
    terminal.wait_raw(_BACK, start=start, timeout_s=60)
    return time.perf_counter() - began


def openings(messages: int, rounds: int) -> tuple[list[Opening], list[Opening], float]:
    """Open, in turns, an empty session and one of so many messages; return both lists, and the size of the large session in MB."""
    empties: list[Opening] = []
    larges: list[Opening] = []
    with tempfile.TemporaryDirectory() as folder:
        empty, large, each, work = (Path(folder) / n for n in ("empty", "large", "each", "work"))
        work.mkdir()
        session = write_long_session(large, work, messages)
        newest = first_of_last_turn(messages)
        size_mb = (session / "context.jsonl").stat().st_size / 1e6
        for number in range(rounds + 1):
            shutil.copytree(large, each, symlinks=True)
            first = open_it(empty, work, end=READY.encode())
            second = open_it(each, work, "--continue", end=end_of(200).encode(), rewind=newest)
            shutil.rmtree(each)
            # The first opening of each warms the disk.
            if number:
                empties.append(first)
                larges.append(second)
    return empties, larges, size_mb


def preview_beside_a_turn(home: Path, work: Path, base_url: str, checkpoint: int) -> float:
    """Return the seconds until the preview of a rewind is drawn while the model answers, for the second one: the first imports it."""
    with _started(home, work, "--continue", base_url=base_url) as terminal:
        terminal.wait_raw(end_of(200).encode(), timeout_s=60)
        settle(terminal)
        terminal.type(f"/rewind {checkpoint}")
        terminal.wait_quiet(0.3)
        terminal.key("enter")
        terminal.wait_raw(_PREVIEWED, timeout_s=20)
        terminal.wait_quiet(0.6)
        terminal.key("escape")
        terminal.wait_quiet(0.6)
        start = terminal.n_bytes
        terminal.type("pace 200 5000")
        terminal.wait_quiet(0.3)
        terminal.key("enter")
        terminal.wait_raw(b"tokenizer", start=start, timeout_s=120)
        terminal.type(f"/rewind {checkpoint}")
        time.sleep(1.0)
        start, began = terminal.n_bytes, time.perf_counter()
        terminal.key("enter")
        terminal.wait_raw(_PREVIEWED, start=start, timeout_s=20)
        return time.perf_counter() - began


def bars(rounds: int) -> list[Bar]:
    """Return the rows of these figures in the table of all measurements: sessions of 20,000, 50,000 and 70,000 messages."""
    median = statistics.median
    found: list[Bar] = []
    empties, larges, _ = openings(20_000, rounds)
    at, over = "20,000 messages, ", "s over an empty start"
    page = median([o.drawn_s for o in larges]) - median([o.drawn_s for o in empties])
    found.append(Bar(f"{at}last page, {over}", page, Goal(0.6)))
    settled = median([o.settled_cpu_s for o in larges]) - median([o.settled_cpu_s for o in empties])
    found.append(Bar(f"{at}settled, CPU {over}", settled, Goal(2)))
    _, larges, _ = openings(50_000, rounds)
    took = median([o.rewind_s for o in larges]) * 1000
    found.append(Bar("50,000 messages, rewind until drawn, ms", took, Goal(150)))
    with tempfile.TemporaryDirectory() as folder, model_server() as base_url:
        home, work = Path(folder) / "home", Path(folder) / "work"
        work.mkdir()
        write_long_session(home, work, _LONGEST, result_bytes=500)
        newest = first_of_last_turn(_LONGEST)
        times = [preview_beside_a_turn(home, work, base_url, newest) for _ in range(rounds)]
        at = f"{_LONGEST:,} messages, "
        found.append(Bar(f"{at}preview beside a turn, ms", median(times) * 1000, Goal(100)))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.resume")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=50_000)
    options = parser.parse_args()
    empties, larges, size_mb = openings(options.messages, options.rounds)

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
