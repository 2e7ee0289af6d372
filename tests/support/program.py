"""The installed program as a person starts it, with a home and a work folder of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.terminal import Terminal

SITE = Path(__file__).parent / "site"
PROGRAM = str(Path(sys.executable).parent / "kimi-tui")
_ENTRY = "import sys; from kimi_tui.cli import main; sys.exit(main())"
"""What the installed file does."""


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
        fresh: bool = False,
    ) -> Terminal:
        """Start it; it is killed at the end of the test if it still runs.

        `fresh` starts the installed file itself; otherwise the imports are spared.
        """
        code = "" if fresh else _ENTRY
        return self._start([PROGRAM, *arguments], code, size, env)

    def start_python(self, code: str, *, size: tuple[int, int] = (120, 40)) -> Terminal:
        """Start Python code that runs it in another way."""
        return self._start([sys.executable, "-c", code], code, size, None)

    def _start(
        self, command: list[str], code: str, size: tuple[int, int], env: Mapping[str, str] | None
    ) -> Terminal:
        return self.stack.enter_context(
            Terminal(
                command,
                size=size,
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
        """Where it tells what held up its event loop."""
        return self.home.parent / "lag.txt"

    def assert_never_held_up(self) -> None:
        """See that no callback of its event loop took too long."""
        held_up = self.lag_file.read_text("utf-8") if self.lag_file.exists() else ""
        assert not held_up, f"the event loop was held up:\n{held_up}"

    def session_dir(self) -> Path:
        """The folder of the only session."""
        (found,) = self.home.glob("sessions/*/*/context.jsonl")
        return found.parent

    def context(self, name: str = "context.jsonl") -> list[dict[str, Any]]:
        """The records of one of the session's files."""
        path = self.session_dir() / name
        return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
