"""The programs that a measurement runs beside one another: ours, two floors, and the peers that are installed.

Each is started in a 120x40 pty with a home folder of its own and talks to the model server of the measurements. A peer is measured where
its command is on PATH: `pi` 0.73 (configured as its docs/models.md says) and `vibe` 3.0 (Mistral Vibe).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.terminal import ScreenTimeout, Terminal  # noqa: E402 - needs the path above

_LETTER = "\N{CYRILLIC SMALL LETTER YA}"
_SCHED_CLOCK = 2
"""The kind of CPU clock that counts nanoseconds of the scheduler."""
_IDLE_S = 0.02
"""A program that uses no more CPU seconds in half a second has nothing left to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """One column of the table.

    Attributes:
        name: head of the column.
        launch: (base URL, folder) to command and environment; may write configuration into the folder.
        calls: the kinds of tool calls that it can be asked for (`bench.steps`).
    """

    name: str
    launch: Callable[[str, Path], tuple[list[str], dict[str, str]]]
    calls: tuple[str, ...] = ()

    @contextmanager
    def running(
        self, base_url: str, *arguments: str, folder: Path | None = None
    ) -> Generator[Terminal]:
        """Run the program until it is ready for typing; `folder` holds its `home` and `work`, or both are fresh without one."""
        # A peer may leave a process that still writes there.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as fresh:
            place = folder or Path(fresh)
            (place / "work").mkdir(exist_ok=True)
            command, environment = self.launch(base_url, place)
            with Terminal(
                [*command, *arguments], env=environment, cwd=place / "work", screen=False
            ) as terminal:
                _ready(terminal)
                yield terminal


def _ours(base_url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    program = str(Path(sys.executable).parent / "kimi-tui")
    return [program, "--work-dir", str(folder / "work")], {
        "KIMI_TUI_HOME": str(folder / "home"),
        "KIMI_BASE_URL": base_url,
        "KIMI_API_KEY": "bench",
        "KIMI_MODEL_NAME": "bench",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": "1000000",
    }


def _module(name: str) -> Callable[[str, Path], tuple[list[str], dict[str, str]]]:
    return lambda base_url, _: (
        [sys.executable, "-m", f"bench.{name}", base_url],
        {"PYTHONPATH": str(ROOT)},
    )


def _pi(base_url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    home = folder / "pi"
    home.mkdir(exist_ok=True)
    provider = {
        "baseUrl": base_url,
        "api": "openai-completions",
        "apiKey": "bench",
        "compat": {"supportsDeveloperRole": False, "supportsReasoningEffort": False},
        "models": [{"id": "bench", "contextWindow": 1_000_000}],
    }
    (home / "models.json").write_text(json.dumps({"providers": {"bench": provider}}))
    arguments = ["--offline", "--provider", "bench", "--model", "bench"]
    arguments += ["--tools", "read,bash,edit,write,grep"]
    # It searches with `rg`, which it would download; without one its search is an error, and over at once.
    path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"
    return ["pi", *arguments], {
        "PI_CODING_AGENT_DIR": str(home),
        "HOME": str(folder),
        "PATH": path,
    }


def _vibe(base_url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    home = folder / "vibe"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        'active_model = "bench"\nenable_telemetry = false\nenable_update_checks = false\nenable_notifications = false\n'
        "cursor_blink = false\ndisable_welcome_banner_animation = true\n"
        f'[[providers]]\nname = "bench"\napi_base = "{base_url}"\napi_key_env_var = "BENCH_KEY"\n'
        'api_style = "openai"\nbackend = "generic"\n'
        '[[models]]\nname = "bench"\nprovider = "bench"\nalias = "bench"\n'
    )
    variables = {"VIBE_HOME": str(home), "BENCH_KEY": "bench", "HOME": str(home)}
    return ["vibe", "--trust", "--auto-approve"], variables


OURS = Program("kimi-tui", _ours, ("shell", "read", "write", "replace", "grep", "glob"))
BARE = Program("bare Textual", _module("bare_textual"))
SKETCH = Program("sketch", _module("sketch"))
PEERS = (
    Program("pi", _pi, ("shell", "read", "write", "replace", "grep")),
    Program("vibe", _vibe, ("shell", "read", "write", "replace")),
)


def programs(*, floors: bool = True) -> list[Program]:
    """Return our program first, then the floors and the peers whose commands are on PATH."""
    others = [BARE, SKETCH, *(peer for peer in PEERS if shutil.which(peer.name))]
    return [OURS, *(others if floors else [])]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads, also those that have ended; without its children."""
    # Linux makes the number of a process's CPU clock from its pid, as clock_getcpuclockid(3) does. The sum over /proc/PID/task
    # would lack the threads that have ended, and /proc/PID/stat counts ticks of ten milliseconds.
    return time.clock_gettime(~pid << 3 | _SCHED_CLOCK)


@contextmanager
def model_server(thinks_s: float = 0.0) -> Generator[str]:
    """Run the server for measurements, which waits so many seconds before it answers with a step; yields its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.model_server", str(thinks_s)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def _ready(terminal: Terminal) -> None:
    """Wait until a typed letter is drawn, delete it, and wait until background imports have ended."""
    terminal.wait_raw(b"\x1b[", timeout_s=30)
    terminal.wait_quiet(0.3, 30)
    n_typed, is_drawn = 0, False
    while not is_drawn:
        # A program may drop what is typed before it is ready.
        terminal.type(_LETTER)
        n_typed += 1
        try:
            terminal.wait_raw(_LETTER.encode(), timeout_s=5)
            is_drawn = True
        except ScreenTimeout:
            if n_typed > 12:
                raise
    for _ in range(n_typed):
        terminal.key("backspace")
    terminal.wait_quiet(0.4, 30)
    used = -1.0
    while cpu_s(terminal.pid) - used > _IDLE_S:
        used = cpu_s(terminal.pid)
        time.sleep(0.5)
