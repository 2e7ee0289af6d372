"""What the thread of a running command waits for: its output, its exit, and being asked to stop."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import threading

READ_BYTES = 120 << 10
"""Larger ones would each be mapped anew by the allocator."""
_PIPE_BYTES = 1 << 20
"""What Linux lets everybody ask for: the more a command can write ahead, the less often the two take turns."""


def widen(pipe: int) -> None:
    """Let a pipe hold more where the system allows it."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class Watch:
    """The three things a command's thread waits for: output, the exit, and being asked to stop."""

    def __init__(self, output: int, exit_descriptor: int, wake: int) -> None:
        self._output = output
        self._exit = exit_descriptor
        self._poll = select.poll()
        self._poll.register(output, select.POLLIN)
        self._poll.register(exit_descriptor, select.POLLIN)
        self._poll.register(wake, select.POLLIN)
        self._wake = wake
        self._woken = False
        self.at_end = False
        self.exited = False

    def read(self) -> bytes:
        """What is there; empty where nothing is, or at the end."""
        if self.at_end:
            return b""
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self.at_end = True
            self._poll.unregister(self._output)
        return data

    def wait(self, timeout_s: float) -> None:
        """Wait until something happens, at most so long."""
        for descriptor, _ in self._poll.poll(timeout_s * 1000):
            if descriptor == self._exit and not self.exited:
                self.exited = True
                self._poll.unregister(self._exit)
            elif descriptor == self._wake and not self._woken:
                self._woken = True
                self._poll.unregister(self._wake)


class ExitSignal:
    """A descriptor that becomes readable when the process ends. Reaped only on leaving, so that until then the
    number of its group cannot belong to anyone else."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._thread: threading.Thread | None = None
        if hasattr(os, "pidfd_open"):
            self.descriptor = os.pidfd_open(process.pid)
            return
        self.descriptor, write_end = os.pipe()
        self._thread = threading.Thread(target=self._wait, args=(write_end,), daemon=True)
        self._thread.start()

    def _wait(self, write_end: int) -> None:
        self._process.wait()
        os.close(write_end)

    def exit_code(self) -> int | None:
        """The exit code; None where even KILL did not end it within a second."""
        try:
            return self._process.wait(1)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> ExitSignal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
