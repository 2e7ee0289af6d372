"""How the program keeps up with a model: `python -m bench.stream`, about three minutes.

The program runs in a 120x40 pty against a server in a process of its own. A bare Textual app that does the same with
Textual's own widgets is measured in the same run: machines drift, so the ratios count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.terminal import Terminal  # noqa: E402 - needs the path above

from bench.answers import end_of  # noqa: E402
from bench.long_session import write_session  # noqa: E402

# Letters that no answer holds: each is typed once, so its first appearance on the pty is its echo.
_LETTERS = [chr(code) for code in (*range(0x0410, 0x0450), *range(0x03B1, 0x03CA))]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Figures:
    """All rounds of one measurement, in one unit."""

    name: str
    unit: str
    goal: str
    ours: list[float] = field(default_factory=list[float])
    bare: list[float] = field(default_factory=list[float])

    def row(self) -> str:
        """One line of the table."""
        ours = _median(self.ours)
        ratio = f"{ours / _median(self.bare):.2f}" if self.bare and _median(self.bare) else ""
        bare = f"{_median(self.bare):.1f}" if self.bare else ""
        return f"| {self.name} | {ours:.1f} {self.unit} | {bare} | {ratio} | {self.goal} |"


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else float("nan")


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, its own threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def model_server() -> Generator[str]:
    """The server for measurements; yields its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.model_server"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


@contextmanager
def our_app(base_url: str, *arguments: str, folder: Path | None = None) -> Generator[Terminal]:
    """The program, ready for typing; `folder` holds its `home` and `work`."""
    with tempfile.TemporaryDirectory() as fresh:
        place = folder or Path(fresh)
        work = place / "work"
        work.mkdir(exist_ok=True)
        environment = {
            "KIMI_TUI_HOME": str(place / "home"),
            "KIMI_BASE_URL": base_url,
            "KIMI_API_KEY": "bench",
            "KIMI_MODEL_NAME": "bench",
            "KIMI_MODEL_MAX_CONTEXT_SIZE": "1000000",
        }
        command = [str(Path(sys.executable).parent / "kimi-tui"), "--work-dir", str(work)]
        with Terminal([*command, *arguments], env=environment, cwd=work, screen=False) as terminal:
            _ready(terminal)
            yield terminal


@contextmanager
def bare_app(base_url: str) -> Generator[Terminal]:
    """Textual's own widgets doing the same, ready for typing."""
    command = [sys.executable, "-m", "bench.bare_textual", base_url]
    with Terminal(command, cwd=ROOT, screen=False) as terminal:
        _ready(terminal)
        yield terminal


def _ready(terminal: Terminal) -> None:
    """Wait until a typed letter shows, take it back, and let what is loaded in the background end."""
    terminal.wait_raw(b"\x1b[?1049h", timeout_s=30)
    terminal.wait_quiet(0.3, 30)
    terminal.type("\N{CYRILLIC SMALL LETTER YA}")
    terminal.wait_raw("\N{CYRILLIC SMALL LETTER YA}".encode(), timeout_s=30)
    terminal.key("backspace")
    terminal.wait_quiet(0.4, 30)
    used = -1.0
    while cpu_s(terminal.pid) - used > 2 / _TICKS:
        used = cpu_s(terminal.pid)
        time.sleep(0.5)


def burst(terminal: Terminal, n_tokens: int) -> tuple[float, float]:
    """Ask for an answer; milliseconds until it is drawn, and CPU milliseconds used for it."""
    terminal.type(f"burst {n_tokens}")
    terminal.wait_quiet(0.3)
    start, cpu = terminal.n_bytes, cpu_s(terminal.pid)
    began = time.perf_counter()
    terminal.key("enter")
    terminal.wait_raw(end_of(n_tokens).encode(), start=start, timeout_s=120)
    took = time.perf_counter() - began
    terminal.wait_quiet(0.4, 60)
    return took * 1000, (cpu_s(terminal.pid) - cpu) * 1000


def key_latency(terminal: Terminal, n_keys: int) -> list[float]:
    """Milliseconds from a typed letter to its echo while 200 tokens a second stream."""
    terminal.type("pace 200 5000")
    terminal.wait_quiet(0.3)
    start = terminal.n_bytes
    terminal.key("enter")
    terminal.wait_raw(b"tokenizer", start=start, timeout_s=20)
    found: list[float] = []
    pause = time.perf_counter()
    for n, letter in enumerate(_LETTERS[:n_keys]):
        # A person's rhythm, never in step with a frame.
        pause += 0.061 + 0.0137 * (n % 7)
        time.sleep(max(0.0, pause - time.perf_counter()))
        start = terminal.n_bytes
        began = time.perf_counter()
        terminal.type(letter)
        terminal.wait_raw(letter.encode(), start=start, timeout_s=10)
        found.append((time.perf_counter() - began) * 1000)
    return found


def idle(terminal: Terminal, seconds: float) -> tuple[float, float]:
    """Percent of one CPU and bytes written while nobody does anything."""
    time.sleep(2.0)
    cpu, written = cpu_s(terminal.pid), terminal.n_bytes
    time.sleep(seconds)
    return 100 * (cpu_s(terminal.pid) - cpu) / seconds, float(terminal.n_bytes - written)


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=80)
    parser.add_argument("--idle-s", type=float, default=10.0)
    parser.add_argument("--no-bare", action="store_true", help="measure only kimi-tui")
    options = parser.parse_args()

    two = Figures("2,000 tokens, until drawn", "ms", "≤ 0.1 of bare, ≤ 170 ms")
    two_cpu = Figures("2,000 tokens, CPU", "ms", "≤ 250 ms")
    first = Figures("the same as the very first answer", "ms", "")
    twenty = Figures("20,000 tokens, until drawn", "ms", "≤ 1,200 ms")
    twenty_cpu = Figures("20,000 tokens, CPU", "ms", "≤ 1,200 ms")
    key_median = Figures("key at 200 tokens/s, median", "ms", "≤ 8 ms")
    key_p95 = Figures("key at 200 tokens/s, p95", "ms", "≤ 17 ms")
    idle_cpu = Figures("idle, 500 messages, CPU", "%", "≤ 0.3 %")
    idle_bytes = Figures("idle, 500 messages, written", "bytes", "0")

    with model_server() as base_url:
        for n in range(options.rounds):
            print(f"round {n + 1} of {options.rounds}", file=sys.stderr, flush=True)
            with our_app(base_url) as terminal:
                first.ours.append(burst(terminal, 2_001)[0])
                took, cpu = burst(terminal, 2_000)
                two.ours.append(took)
                two_cpu.ours.append(cpu)
                took, cpu = burst(terminal, 20_000)
                twenty.ours.append(took)
                twenty_cpu.ours.append(cpu)
            with our_app(base_url) as terminal:
                keys = key_latency(terminal, options.keys)
                key_median.ours.append(statistics.median(keys))
                key_p95.ours.append(statistics.quantiles(keys, n=20)[-1])
            if options.no_bare:
                continue
            with bare_app(base_url) as terminal:
                first.bare.append(burst(terminal, 2_001)[0])
                took, cpu = burst(terminal, 2_000)
                two.bare.append(took)
                two_cpu.bare.append(cpu)
            with bare_app(base_url) as terminal:
                keys = key_latency(terminal, options.keys)
                key_median.bare.append(statistics.median(keys))
                key_p95.bare.append(statistics.quantiles(keys, n=20)[-1])
                terminal.key("escape")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "work").mkdir()
            write_session(Path(folder) / "home", Path(folder) / "work", 500)
            with our_app(base_url, "--continue", folder=Path(folder)) as terminal:
                percent, written = idle(terminal, options.idle_s)
                idle_cpu.ours.append(percent)
                idle_bytes.ours.append(written)
        if not options.no_bare:
            with bare_app(base_url) as terminal:
                percent, written = idle(terminal, options.idle_s)
                idle_cpu.bare.append(percent)
                idle_bytes.bare.append(written)

    print("| what | kimi-tui | bare Textual | ratio | goal |\n|---|---|---|---|---|")
    for figures in (
        two,
        two_cpu,
        first,
        twenty,
        twenty_cpu,
        key_median,
        key_p95,
        idle_cpu,
        idle_bytes,
    ):
        print(figures.row())


if __name__ == "__main__":
    main()
