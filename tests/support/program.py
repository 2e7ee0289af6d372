"""The installed program as a person starts it, with a home and a work folder of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.terminal import Terminal

SITE = Path(__file__).parent / "site"
PROGRAM = str(Path(sys.executable).parent / "kimi-tui")
_ENTRY = """
import atexit, os, sys, threading
from kimi_tui.cli import main

code = main()
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""
"""The code of the installed file. At its end the interpreter is not taken apart: that would copy all that a fork shares, and cost
as much as a start."""


@dataclass
class Program:
    """Starts `kimi-tui` in ptys, all with the same home and work folder."""

    home: Path
    work: Path
    environment: dict[str, str]
    stack: ExitStack = field(default_factory=ExitStack)

    def start(
        self,
        *arguments: str,
        size: tuple[int, int] = (120, 40),
        env: Mapping[str, str] | None = None,
        cell: tuple[int, int] = (0, 0),
        fresh: bool = False,
    ) -> Terminal:
        """Start it; it is killed at the end of the test if it still runs.

        `fresh` starts the installed file itself; otherwise the imports are spared.
        """
        code = "" if fresh else _ENTRY
        return self._start([PROGRAM, *arguments], code, size, env, cell)

    def start_python(self, code: str, *, size: tuple[int, int] = (120, 40)) -> Terminal:
        """Start Python code that runs the program in another way."""
        return self._start([sys.executable, "-c", code], code, size, None)

    def _start(
        self,
        command: list[str],
        code: str,
        size: tuple[int, int],
        env: Mapping[str, str] | None,
        cell: tuple[int, int] = (0, 0),
    ) -> Terminal:
        return self.stack.enter_context(
            Terminal(
                command,
                size=size,
                cell=cell,
                cwd=self.work,
                env={
                    "KIMI_TUI_HOME": str(self.home),
                    "HOME": str(self.home),
                    "PYTHONPATH": str(SITE),
                    "KIMI_TUI_TEST_LAG_FILE": str(self.lag_file),
                    **self.environment,
                    **(env or {}),
                },
                code=code,
            )
        )

    @property
    def lag_file(self) -> Path:
        """Return the file in which the program reports what held up its event loop."""
        return self.home.parent / "lag.txt"

    def assert_never_held_up(self) -> None:
        """Check that no callback of the program's event loop took too long."""
        held_up = self.lag_file.read_text("utf-8") if self.lag_file.exists() else ""
        assert not held_up, f"the event loop was held up:\n{held_up}"

    def wait_kept(self, name: str, words: str) -> Path:
        """Wait until a file of a session contains these words (without words, until it is gone); return the session's folder."""
        deadline = time.monotonic() + 50
        while True:
            found = [*self.home.glob(f"sessions/*/*/{name}")]
            if not found and not words:
                return self.session_dir()
            for path in found if words else ():
                if words in path.read_text("utf-8"):
                    return path.parent
            assert time.monotonic() < deadline, f"{name}: never {words!r}"
            time.sleep(0.02)

    def session_dir(self) -> Path:
        """Return the folder of the only session."""
        (found,) = self.home.glob("sessions/*/*/context.jsonl")
        return found.parent

    def context(self, name: str = "context.jsonl") -> list[dict[str, Any]]:
        """Return the records of one of the session's files."""
        path = self.session_dir() / name
        return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
