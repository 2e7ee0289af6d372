"""Finding and ending what a command left behind: its process group, and whatever left the group.

On Linux each command carries a random mark in its environment, which all of its descendants inherit, whatever group or
session they moved to. Elsewhere the children are followed by their parents as `ps` tells them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

MARK_NAME = "KIMI_TUI_COMMAND"
_HAS_PROC = sys.platform == "linux" and Path("/proc/self/environ").exists()


def marked(mark: str) -> list[int]:
    """The processes that bear the mark."""
    if not _HAS_PROC:
        return []
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _bears(int(entry.name), mark)
    ]


def _bears(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return f"{MARK_NAME}={mark}".encode() in file.readall().split(b"\0")
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """All descendants of a process where there is no `/proc`; must be asked before the process ends."""
    if _HAS_PROC:
        return []
    return descendants_by_ps(pid)


def descendants_by_ps(pid: int) -> list[int]:
    """All descendants of a process, by the parents that `ps` tells."""
    try:
        listed = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid="],
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) == 2 and all(field.isdigit() for field in fields):
            children.setdefault(int(fields[1]), []).append(int(fields[0]))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def signal_all(pid: int, mark: str, others: list[int], number: signal.Signals) -> None:
    """Send a signal to the group of `pid` (not yet reaped, so the number is still its own) and to what left it."""
    with contextlib.suppress(OSError):
        os.killpg(pid, number)
    for other in marked(mark):
        _signal_marked(other, mark, number)
    for other in others:
        with contextlib.suppress(OSError):
            os.kill(other, number)


def _signal_marked(pid: int, mark: str, number: signal.Signals) -> None:
    """Signal a process only if it still is the marked one: ids are used again, descriptors of processes are not."""
    if not hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _bears(pid, mark):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
