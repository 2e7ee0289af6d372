"""`Supervised`: a program below its supervisor (`supervisor.py`), its end, and the end of everything that it started.

Commands, hooks and the programs of MCP servers end by this one mechanism. Their processes are found in three ways: by the
supervisor; on Linux by a random mark in the program's environment, which its descendants inherit in any process group or session;
elsewhere by the parents that `ps` lists. A program outside the sandbox can stop, kill or imitate its supervisor, so for such a
program only what is read from `/proc` here counts. It blocks, so call it in a thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from kimi_tui.tools.prepared import Started
from kimi_tui.tools.supervisor import MARK_NAME, alive_below, all_below

_KILL_WAIT_S = 3.0
_TICK_S = 0.1
_KILL_ROUNDS = 3
_REPORT_BYTES = 64 << 10
"""Bytes: more than the longest report, which may contain a path."""
_LONGEST_NUMBER = 9
_HAS_PROC = sys.platform == "linux" and Path("/proc/self/environ").exists()


class Supervised:
    """A program with its supervisor: its exit code, and the signals to its descendants.

    The supervisor is reaped on leaving the context or later, so that its process id cannot be reused before.

    Args:
        started: the supervisor, which is started.
        mark: the value of `MARK_NAME` in the environment of everything that the program starts.
        is_confined: whether it is confined, so that it can reach neither the supervisor nor its pipes.

    Attributes:
        pid: the process id of the supervisor.
        reports: the descriptor of its reports, readable when there is one.
        at_end: whether the supervisor was heard to have ended.
        is_left: whether it is left to the caller to `reap` it: nothing but the supervisor was alive at the end of the context.
    """

    def __init__(self, started: Started, mark: str, *, is_confined: bool) -> None:
        self._process, self._orders, self.reports = (
            started.process,
            started.orders,
            started.reports,
        )
        self.pid = self._process.pid
        self._mark = mark
        self._is_confined = is_confined
        self.at_end = self.is_left = False
        self._heard = b""
        self._exit: str | None = None
        self._others: list[int] | None = None

    def exit_code(self, timeout_s: float = 1.0) -> int | None:
        """Wait for the program's exit code, negative for a signal; None if it has not ended in time, or if its end was not reported.

        Raises:
            OSError: the program could not be started.
        """
        self._next_report("X", timeout_s)
        if self._exit is None:
            return None
        kind, _, number = self._exit.partition(" ")
        if kind == "E":
            code, _, why = number.partition(" ")
            raise OSError(int(code), why or os.strerror(int(code)))
        return int(number)

    def terminate(self) -> None:
        """Send SIGTERM to everything that the program started."""
        others = self._listed()
        self._order("T")
        signal_all(self._mark, others, signal.SIGTERM)

    def kill_all(self) -> int | None:
        """Kill everything that the program started; return the number of processes left, None if it is unknown."""
        others = self._listed()
        self._order("K")
        left = self._next_report("L", _KILL_WAIT_S)
        if left is not None and self._is_confined:
            self.is_left = left == "0"
            return int(left)
        n_left = int(left) if left is not None else None
        if _HAS_PROC:
            n_left = self._kill_below()
        if left is None:
            # The program stopped or killed its supervisor.
            self._process.kill()
        for _ in range(_KILL_ROUNDS):
            signal_all(self._mark, others, signal.SIGKILL)
            if not marked(self._mark):
                break
        return n_left

    def _listed(self) -> list[int]:
        """Return the descendants that only `ps` lists, as they were before the first signal."""
        if self._others is None:
            self._others = [] if _HAS_PROC else descendants_by_ps(self.pid)
        return self._others

    def _kill_below(self) -> int | None:
        """Kill the supervisor's descendants from this process; return the number left, None if the supervisor has ended.

        While the supervisor is only stopped, all of them still have it as an ancestor.
        """
        for _ in range(_KILL_ROUNDS):
            below = alive_below(self.pid)
            if self._process.poll() is not None:
                return None
            if not below:
                return 0
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_TICK_S)
        return len(alive_below(self.pid)) if self._process.poll() is None else None

    def _order(self, code: str) -> None:
        """Send an order (see `supervisor.py`); does nothing if the supervisor has ended."""
        with contextlib.suppress(OSError):
            os.write(self._orders, code.encode())

    def _next_report(self, wanted: str, timeout_s: float) -> str | None:
        """Return the text of the next report of a kind; None if none comes in time."""
        deadline = time.monotonic() + timeout_s
        has_read = False
        while True:
            *lines, self._heard = self._heard.split(b"\n")
            for line in lines:
                text = line.decode("ascii", "replace")
                if not _is_report(text):
                    continue
                # After a failed start, the end of the process that tried is reported next; it is not the program's exit.
                if text[:1] in ("X", "E") and self._exit is None:
                    self._exit = text
                if text[:1] == "L" and wanted == "L":
                    return text[2:]
            if wanted == "X" and self._exit is not None:
                return self._exit
            waiter = select.poll()
            waiter.register(self.reports, select.POLLIN)
            left_s = deadline - time.monotonic()
            # Another process may be writing, without end.
            if (left_s < 0 and has_read) or not waiter.poll(max(left_s, 0) * 1000):
                return None
            data = os.read(self.reports, _REPORT_BYTES)
            has_read = True
            if not data:
                self.at_end = True
                return None
            self._heard = (self._heard + data)[-_REPORT_BYTES:]

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, *_: object) -> None:
        """Have the supervisor end, and reap it unless that can wait; what the program started and is not killed goes on."""
        self._order("Q")
        os.close(self._orders)
        if not self.is_left:
            self.reap()

    def reap(self) -> None:
        """Wait for the end of the supervisor, which has been told to end. It takes its namespaces apart, which takes a while."""
        # The pipe's end ends the reports. Waiting for the process alone would poll it at ever longer intervals.
        self._next_report("end", 1.0)
        os.close(self.reports)
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            # Process 1 of a command's namespaces ends after all others; one of them may hang in the kernel, at a dead network disk.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_WAIT_S)


def _is_report(line: str) -> bool:
    """Return whether a line has the form of a report; a program outside the sandbox can write other lines into the pipe."""
    kind, _, rest = line.partition(" ")
    number = rest.partition(" ")[0].removeprefix("-")
    return kind in ("X", "E", "L") and number.isdecimal() and len(number) <= _LONGEST_NUMBER


def marked(mark: str) -> list[int]:
    """Return the ids of the processes whose environment has the mark."""
    if not _HAS_PROC:
        return []
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _has_mark(int(entry.name), mark)
    ]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return f"{MARK_NAME}={mark}".encode() in file.readall().split(b"\0")
    except OSError:
        return False


def descendants_by_ps(pid: int) -> list[int]:
    """Parse all descendants of a process from the output of `ps`; call it before the process ends."""
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
    return all_below(pid, children)


def signal_all(mark: str, others: list[int], number: signal.Signals) -> None:
    """Send a signal to the processes with the mark, and to others."""
    for other in marked(mark):
        _signal_marked(other, mark, number)
    for other in others:
        with contextlib.suppress(OSError):
            os.kill(other, number)


def _signal_marked(pid: int, mark: str, number: signal.Signals) -> None:
    """Signal a process only if it still is the marked one: process ids are reused, process descriptors are not."""
    if not hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _has_mark(pid, mark):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
