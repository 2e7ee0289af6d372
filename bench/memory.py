"""The memory that the program holds: `python -m bench.memory`, about four minutes.

A bare Textual app that loaded pydantic and openai, the empty program, and the program with sessions in which files are
read: a thousand messages with 5 MB of tool output, opened and told live by a server, and ten thousand more of the
same kind. Then some hundred pages of it are scrolled through.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.terminal import Terminal  # noqa: E402 - needs the path above

from bench.answers import end_of  # noqa: E402
from bench.long_session import MESSAGES_A_TURN, write_long_session, write_notes  # noqa: E402
from bench.programs import model_server  # noqa: E402
from bench.ready import READY  # noqa: E402
from bench.resume import rss_mb, settle  # noqa: E402
from bench.table import FLOOR, Bar, Goal  # noqa: E402

MESSAGES = 1_000
MORE = 10_000
OUTPUT_BYTES = 5_000_000

_MESSAGES_A_STEP = 3
"""Messages of a step of a live turn: the marker, the call, its result."""

_STEPS = 40
_PAGES = 300
_PAGES_AT_ONCE = 20
_ROOM_TOKENS = 100_000_000
"""Tokens of a window so large that nothing is compacted."""


def bare_mb() -> float:
    """Return the memory in MB of the bare app, once it is ready."""
    with Terminal([sys.executable, "-m", "bench.bare_imports"], cwd=ROOT, screen=False) as terminal:
        terminal.wait_raw(READY.encode(), timeout_s=60)
        settle(terminal)
        return rss_mb(terminal.pid)


def held_mb(
    home: Path,
    work: Path,
    base_url: str,
    *arguments: str,
    end: bytes,
    then: Callable[[Terminal], None] | None = None,
) -> tuple[float, float]:
    """Return the program's memory in MB once `end` is drawn and the CPU is idle, and again after `then`."""
    environment = {
        "KIMI_TUI_HOME": str(home),
        "KIMI_BASE_URL": base_url,
        "KIMI_API_KEY": "bench",
        "KIMI_MODEL_NAME": "bench",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": str(_ROOM_TOKENS),
    }
    program = str(Path(sys.executable).parent / "kimi-tui")
    command = [program, *arguments]
    with Terminal(command, env=environment, cwd=work, screen=False) as terminal:
        terminal.wait_raw(end, timeout_s=60)
        settle(terminal)
        first = rss_mb(terminal.pid)
        if then is None:
            return first, first
        then(terminal)
        settle(terminal)
        return first, rss_mb(terminal.pid)


def work_live(terminal: Terminal) -> None:
    """Give orders until the session has the wanted number of messages."""
    left = MESSAGES // _MESSAGES_A_STEP
    # Each answer ends in a word of its own, so no two turns may have the same length.
    length = _STEPS
    while left > 0:
        length += 1
        left -= length
        start = terminal.n_bytes
        terminal.type(f"read {length}")
        terminal.wait_quiet(0.3)
        terminal.key("enter")
        terminal.wait_raw(end_of(length).encode(), start=start, timeout_s=300)
        terminal.wait_quiet(0.3)


def look_through(terminal: Terminal) -> None:
    """Page up through a few hundred screens."""
    for _ in range(_PAGES // _PAGES_AT_ONCE):
        for _ in range(_PAGES_AT_ONCE):
            terminal.key("pageup")
        terminal.wait_quiet(0.2, 60)


def measured(rounds: int) -> list[Bar]:
    """Measure and print; return the bars that have a goal."""
    bare: list[float] = []
    empty: list[float] = []
    live: list[float] = []
    opened: list[tuple[float, float]] = []
    long: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder, model_server() as base_url:
        end = end_of(200).encode()
        places = [Path(folder) / name for name in ("opened", "long", "live")]
        homes, works = [p / "home" for p in places], [p / "work" for p in places]
        for work in works:
            work.mkdir(parents=True)
        a_turn = OUTPUT_BYTES * MESSAGES_A_TURN // MESSAGES
        sizes = [
            (write_long_session(home, work, n, result_bytes=a_turn) / "context.jsonl")
            .stat()
            .st_size
            / 1e6
            for home, work, n in zip(homes, works, (MESSAGES, MESSAGES + MORE), strict=False)
        ]
        write_notes(works[2], OUTPUT_BYTES * _MESSAGES_A_STEP // MESSAGES)
        for n in range(rounds):
            print(f"round {n + 1} of {rounds}", file=sys.stderr, flush=True)
            bare.append(bare_mb())
            first, after = held_mb(homes[2], works[2], base_url, end=READY.encode(), then=work_live)
            empty.append(first)
            live.append(after)
            opened.append(
                held_mb(homes[0], works[0], base_url, "--continue", end=end, then=look_through)
            )
            long.append(
                held_mb(homes[1], works[1], base_url, "--continue", end=end, then=look_through)
            )

    median = statistics.median
    base, nothing = median(bare), median(empty)
    print("| what | memory | more than before it | goal |\n|---|---|---|---|")
    print(f"| bare Textual with pydantic and openai | {base:.0f} MB | | |")
    print(f"| empty | {nothing:.0f} MB | {nothing / base:.2f} x bare | ≤ 1.3 x |")
    few, many = median([o[0] for o in opened]), median([o[0] for o in long])
    told = median(live)
    kind = f"{MESSAGES:,} messages, {OUTPUT_BYTES / 1e6:.0f} MB of tool output"
    print(f"| {kind}, live | {told:.0f} MB | +{told - nothing:.0f} MB | ≤ +60 MB |")
    print(
        f"| the same, opened ({sizes[0]:.0f} MB) | {few:.0f} MB | +{few - nothing:.0f} MB | ≤ +60 MB |"
    )
    seen = median([o[1] for o in opened])
    print(
        f"| {_PAGES} pages of it scrolled through | {seen:.0f} MB | +{seen - few:.0f} MB | bounded |"
    )
    grown = (many - few) / (sizes[1] - sizes[0])
    print(
        f"| {MORE:,} more ({sizes[1]:.0f} MB) | {many:.0f} MB | +{many - few:.0f} MB: "
        f"{grown:.2f} a MB | bounded |"
    )
    seen = median([o[1] for o in long])
    print(
        f"| {_PAGES} pages of it scrolled through | {seen:.0f} MB | +{seen - many:.0f} MB | bounded |"
    )
    return [
        Bar("memory, empty, MB", nothing, Goal(1.3, (FLOOR,)), base),
        Bar(f"memory, {kind}, live, MB more", told - nothing, Goal(60)),
        Bar(f"memory, {kind}, opened, MB more", few - nothing, Goal(60)),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory")
    parser.add_argument("--rounds", type=int, default=3)
    measured(parser.parse_args().rounds)


if __name__ == "__main__":
    main()
