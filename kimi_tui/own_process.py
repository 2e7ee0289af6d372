"""This process: the memory that it may have, hardening before it holds API keys, returning freed memory to the system, and the garbage collector.

The C library keeps freed memory between blocks in use (fragmentation), and is told to return it. The garbage collector is
suspended while a stored session is read: nearly all objects made then stay, and scanning them again and again takes a tenth
of the time, in pauses of up to 0.1 s. After a long session its objects are frozen (`gc.freeze`) until another one is opened.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

_PR_SET_DUMPABLE = 4
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BYTES = 512 * 1024
SWITCH_S = 0.001
LONG = 2_000
"""The number of events from which on a history is long enough for freezing."""
THRESHOLDS = 1_000, 5, 1_000
"""The argument of `gc.set_threshold`: each collection visits so few objects that none takes longer than a few milliseconds."""


LEAST_ADDRESS_MIB = 384
"""The address space, in MiB, with which the program works; a start and a short session take 220."""


def check_address_space() -> None:
    """Refuse to run under a limit of memory that is too low.

    Under such a limit threads die before they begin, and whoever waits for one waits for ever.

    Raises:
        MemoryError: a limit is too low; the message is one line for the user.
    """
    import resource

    for option, limit in (("-v", resource.RLIMIT_AS), ("-d", resource.RLIMIT_DATA)):
        most, _ = resource.getrlimit(limit)
        if 0 <= most < LEAST_ADDRESS_MIB << 20:
            raise MemoryError(
                f"Memory is limited to {most >> 20} MiB here (ulimit {option}), and kimi-tui needs {LEAST_ADDRESS_MIB} MiB. "
                "Start it in a shell with a higher limit."
            )


def lack_of_memory(error: BaseException) -> str:
    """Return what an error says about memory or threads that the system refused, for the user; empty if it is another error."""
    if isinstance(error, MemoryError):
        # Python's own errors of this kind have no words.
        return (
            str(error)
            or "There is not enough memory. Close other programs, or raise the limit (ulimit -v)."
        )
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return "The system refused another thread. Close other programs, or raise the limits (ulimit -u, ulimit -v)."
    return ""


def harden() -> None:
    """Keep other processes of this user, such as the agent's commands, from reading our memory and environment.

    Otherwise a child could read keys from `/proc/PPID/environ`. On systems without such a setting it does nothing.
    """
    if sys.platform != "linux":
        return
    _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def share_interpreter() -> None:
    """Have a thread that computes give up the interpreter's lock within a millisecond of another one's wish for it.

    The event loop wishes for it after each wait, many times from a key to its picture. With Python's own five milliseconds a key
    would wait a tenth of a second while a long request is built. Two threads that compute do so as fast as before.
    """
    sys.setswitchinterval(SWITCH_S)


def tune_malloc() -> None:
    """Make the C library map large allocations, so that these are unmapped when they are freed, and use one arena.

    By default the library raises the size from which on it maps as allocations come and go, and keeps smaller ones in one
    arena per thread: requests of some megabytes, made again in every step, would stay in memory several times. One arena is
    enough, as only one thread runs Python at a time. It does nothing if the library has no such settings.
    """
    _call("mallopt", _M_MMAP_THRESHOLD, _LARGE_BYTES)
    _call("mallopt", _M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return freed memory to the system, if the C library can; it takes some milliseconds, so call it in a thread."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library with integers of 32 bits, if the library has it."""
    # This is done before the first paint of the app, and the import of `ctypes` takes four times as long as that of this module.
    from _ctypes import call_function, dlopen, dlsym

    try:
        # Without a name this opens the process itself, with the libraries that it has loaded.
        function = dlsym(dlopen(None, 0), name)  # pyright: ignore[reportArgumentType]
    except OSError:
        return
    call_function(function, arguments)


class GarbageCollector:
    """Controls Python's garbage collector, of which a process has only one."""

    def __init__(self) -> None:
        self._is_held = False
        self._has_frozen = False

    def begin(self) -> None:
        """Enable collections from now on, unless a session is being read."""
        gc.set_threshold(*THRESHOLDS)
        if not self._is_held:
            gc.enable()

    def hold(self) -> None:
        """Suspend the garbage collection while a stored session is read."""
        if self._has_frozen:
            # The frozen objects of the previous session may be garbage by now.
            gc.unfreeze()
            self._has_frozen = False
        gc.disable()
        self._is_held = True

    def release(self, n_events: int = 0) -> None:
        """Resume garbage collection after a session of `n_events` events was read. Does nothing if it is not suspended."""
        if not self._is_held:
            return
        self._is_held = False
        if n_events >= LONG:
            gc.freeze()
            self._has_frozen = True
        gc.enable()

    def abandon(self) -> None:
        """Resume garbage collection although a session was not read to its end: nothing that was read so far is scanned.

        The collection that follows would take a third of a second after a long session.
        """
        self.release(LONG)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Suspend garbage collection while this context is entered, as nearly all of the thousands of objects that an event
        creates stay.
        """
        if not gc.isenabled():
            yield
            return
        gc.disable()
        try:
            yield
        finally:
            if not self._is_held:
                gc.enable()


COLLECTOR = GarbageCollector()
