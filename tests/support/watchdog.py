"""Tells which callbacks of an event loop held it up: those that took more CPU time of its thread than they may.

CPU time, so that others' programs count for nothing while they only wait for a core; what they slow down beyond that is
measured while the callback runs and right after it. Not counted are

- what is imported for the first time: it happens once in a program's life, and where the user would feel it the product
  imports in a thread or before the first picture;
- collections of garbage, where the process is one of tests and holds what they left;
- two parses of all style sheets by Textual that cannot be sliced and that nobody types into: the first one, before
  anything is on the screen, and the one that it does when another screen comes in by a switch of modes.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import importlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic, thread_time  # a test may give others another clock
from types import FrameType
from typing import Any

LIMIT_S = 0.1
"""CPU seconds of the loop's thread, on a machine that takes `REFERENCE_S` for the fixed work."""
REFERENCE_S = 0.00025
READ_S = LIMIT_S / 100
"""CPU seconds of earlier work that may be counted with a callback."""
LOOK_S = LIMIT_S / 2
"""Seconds between two looks at what runs: one of them falls into the second half of whatever takes too long. Each wakes a process."""
SAMPLES = 20
SWITCHES = frozenset({"switch_mode", "_init_mode"})
"""The functions of Textual's app whose parses of style sheets are spared."""
held_up: list[str] = []
"""The reports in this process, by the watchdog of tests without a terminal."""
TESTS = str(Path(__file__).resolve().parent.parent)


class Watchdog:
    """Watches every event loop of the process, once it is installed.

    Args:
        tell: called with a sentence on each callback that took too long.
        with_garbage: whether collections of garbage count.
    """

    def __init__(self, tell: Callable[[str], None], *, with_garbage: bool) -> None:
        self._tell = tell
        self._with_garbage = with_garbage
        self._spared_s = 0.0
        self._read_at = 0.0
        self._read_s = (0.0, 0.0)
        self._sparing = 0
        self._began = 0.0
        self._thread = 0
        self._stack = ""
        self._work_s: list[float] = []
        self._spares_parses = False

    def install(self) -> None:
        """Start watching."""
        run = asyncio.events.Handle._run

        def watched(handle: Any) -> None:
            if not self._spares_parses:
                self._spare_parses()
            began, thread = monotonic(), threading.get_ident()
            # Reading the clock of CPU time is expensive: it is read again only if uncounted time may have passed.
            if began - self._read_at > READ_S or thread != self._thread:
                self._read_at, self._read_s = began, (thread_time(), self._spared_s)
            before = self._read_s
            self._work_s = []
            self._thread, self._stack, self._began = thread, "", began
            try:
                run(handle)
            finally:
                self._began = 0.0
                if monotonic() - began > LIMIT_S:
                    self._judge(handle, *before)

        asyncio.events.Handle._run = watched  # pyright: ignore[reportAttributeAccessIssue]
        self._spare_imports()
        if not self._with_garbage:
            self._spare_garbage()
        self._begin_to_look()
        # A process that runs tests is a fork, in which no thread goes on.
        os.register_at_fork(after_in_child=self._begin_to_look)

    def _judge(self, handle: Any, start_s: float, spared_s: float) -> None:
        """Report a callback that has just ended, if it took too long."""
        took = thread_time() - start_s - (self._spared_s - spared_s)
        if took > LIMIT_S and not is_of_a_test(handle) and took > LIMIT_S * self._slow():
            self._tell(f"{took * 1000:.0f} ms of CPU in {_named(handle)}\n{self._stack}")

    def _slow(self) -> float:
        """Return how many times longer than the reference this machine takes for the same work, while a callback ran and now.

        On one that is shared with many, CPU time itself grows: others have its caches, or the whole core for a while.
        It is the mean that counts: what takes the core away for a moment lengthens few samples, and those by much.
        """
        now = [_fixed_work() for _ in range(SAMPLES)]
        during = self._work_s or now
        return max(1.0, *(sum(some) / len(some) / REFERENCE_S for some in (now, during)))

    def _spare_parses(self) -> None:
        """Spare Textual's parses. The program calls this once Textual is imported."""
        module: Any = sys.modules.get("textual.css.stylesheet")
        kind = getattr(module, "Stylesheet", None)
        if kind is None:
            return
        self._spares_parses = True
        parse = kind.parse

        def spared(sheet: Any) -> None:
            is_watched = threading.get_ident() == self._thread and not self._sparing
            if not is_watched or not _is_spared(sheet, sys._getframe(1)):
                parse(sheet)
                return
            self._sparing += 1
            start = thread_time()
            try:
                parse(sheet)
            finally:
                self._sparing -= 1
                self._spared_s += thread_time() - start

        kind.parse = spared

    def _spare_imports(self) -> None:
        bootstrap: Any = importlib._bootstrap  # pyright: ignore[reportAttributeAccessIssue]
        find = bootstrap._find_and_load

        def spared(name: str, import_: object) -> object:
            if threading.get_ident() != self._thread or self._sparing:
                return find(name, import_)
            self._sparing += 1
            start = thread_time()
            try:
                return find(name, import_)
            finally:
                self._sparing -= 1
                self._spared_s += thread_time() - start

        bootstrap._find_and_load = spared

    def _spare_garbage(self) -> None:
        start = 0.0

        def heard(phase: str, info: dict[str, int]) -> None:
            nonlocal start
            if threading.get_ident() != self._thread:
                return
            if phase == "start":
                start = thread_time()
            else:
                self._spared_s += thread_time() - start

        gc.callbacks.append(heard)

    def _begin_to_look(self) -> None:
        threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    def _look(self) -> None:
        """Note which line a long callback is at, to help find the cause."""
        while True:
            time.sleep(LOOK_S)
            began = self._began
            if began and monotonic() - began > LIMIT_S / 2:
                self._work_s.append(_fixed_work())
                self._stack = _stack_of(self._thread)


def _stack_of(thread: int) -> str:
    """Return the innermost calls of a thread that continues meanwhile, the last one first.

    By Python's own dump, which nothing interrupts: frames that the other thread leaves while they are walked through by
    code in Python have ended the whole process, in 3.11.
    """
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        dump = file.read().decode(errors="replace")
    for part in dump.split("\n\n"):
        first, *calls = part.splitlines()
        if f"0x{thread:016x} " in first:
            return "\n".join(calls[:9])
    return ""


def _fixed_work() -> float:
    """Return the CPU time of a fixed piece of work."""
    start = thread_time()
    table: dict[int, str] = {}
    for number in range(3_000):
        table[number % 97] = str(number)
    return thread_time() - start


def _is_spared(sheet: Any, caller: FrameType | None) -> bool:
    """Return whether a parse is the first of an app's style sheets, or the one for a switch of modes."""
    if caller is None or caller.f_code.co_name != "reparse":
        return not sheet._rules
    for _ in range(2):
        caller = caller.f_back
        if caller is None:
            return False
        if caller.f_code.co_name in SWITCHES:
            return True
    return False


def _task_of(handle: Any) -> asyncio.Task[Any] | None:
    owner = getattr(handle._callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


def is_of_a_test(handle: Any) -> bool:
    """Return whether a callback belongs to the test itself, or to its server, in the loop of the program."""
    task = _task_of(handle)
    code = getattr(task.get_coro(), "cr_code", None) if task is not None else None
    if code is None:
        code = getattr(getattr(handle._callback, "__func__", handle._callback), "__code__", None)
    return code is not None and (code.co_filename.startswith(TESTS) or "pytest" in code.co_filename)


def _named(handle: Any) -> str:
    task = _task_of(handle)
    if task is None:
        return repr(handle._callback)
    return f"{task.get_name()}: {getattr(task.get_coro(), '__qualname__', '')}"
