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

PROGRAM = str(Path(sys.executable).parent / "kimi-tui")


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
    ) -> Terminal:
        """Start it; it is killed at the end of the test if it still runs."""
        return self.stack.enter_context(
            Terminal(
                [PROGRAM, *arguments],
                size=size,
                cwd=self.work,
                env={
                    "KIMI_TUI_HOME": str(self.home),
                    "HOME": str(self.home),
                    **self.environment,
                    **(env or {}),
                },
            )
        )

    def session_dir(self) -> Path:
        """The folder of the only session."""
        (found,) = self.home.glob("sessions/*/*/context.jsonl")
        return found.parent

    def context(self, name: str = "context.jsonl") -> list[dict[str, Any]]:
        """The records of one of the session's files."""
        path = self.session_dir() / name
        return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
