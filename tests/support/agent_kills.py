"""A program that works without a screen and is killed at a phase of the sub-agent `general-1`, which its lines tell."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import os, signal, sys
from kimi_tui.cli import main
{patch}
sys.exit(main(["-p", {prompt!r}, "--mode", {mode!r}, "--output-format", "stream-json"]))
"""
Line = dict[str, Any]


def tells(line: Line, kind: str, **facts: object) -> bool:
    """Return whether a line tells an event of this kind with these facts."""
    return line["type"] == kind and all(line.get(name) == value for name, value in facts.items())


PHASES: dict[str, Callable[[Line], bool]] = {
    "called": lambda line: tells(line, "ToolCall", name="Agent"),
    "waiting": lambda line: tells(line, "AgentChanged", state="waiting"),
    "begun": lambda line: tells(line, "AgentChanged", state="working"),
    "its first message": lambda line: tells(line, "CheckpointCreated", source="general-1"),
    "its first call": lambda line: tells(line, "ToolCall", source="general-1"),
    "its first file": lambda line: tells(line, "ToolResult", source="general-1"),
    "its last answer": lambda line: tells(line, "TurnEnd", source="general-1"),
    "ended": lambda line: tells(line, "AgentChanged", state="done"),
    "its result": lambda line: tells(line, "ToolResult", source=""),
}
"""What tells that a phase has begun."""


@asynccontextmanager
async def program(
    work: Path, prompt: str, mode: str, patch: str = ""
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run the program in a folder; it is killed at the end of the context.

    Args:
        work: the folder.
        prompt: the message that it is given.
        mode: the approval mode.
        patch: Python that runs before it.
    """
    code = PROGRAM.format(patch=patch, prompt=prompt, mode=mode)
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=work, stdout=asyncio.subprocess.PIPE, limit=1 << 24
    )
    try:
        yield started
    finally:
        kill([started.pid])
        await started.wait()


def kill(pids: Iterable[int]) -> None:
    """Kill processes that may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def until(started: asyncio.subprocess.Process, holds: Callable[[Line], bool] | None) -> None:
    """Read what a program tells until a line is as wanted, or it ends."""
    assert started.stdout is not None
    async with asyncio.timeout(150):
        async for data in started.stdout:
            if holds is not None and holds(json.loads(data)):
                return
    if holds is not None:
        pytest.fail("the phase was not reached")
