"""The end of the program: on signals, on pressing a key twice, and within bounded time in any case.

The app itself saves sessions and stops commands; `Ending` ends the process if that takes longer than some seconds.
`App.print_exit_messages` prints how to resume.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from kimi_tui.tui.faults import Callbacks

_PASSED_BY = frozenset(
    getattr(signal, name)
    for name in (
        # No program can catch these.
        *("SIGKILL", "SIGSTOP"),
        # With these the program continues, or is only stopped.
        *("SIGCHLD", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH", "SIGINFO"),
        # The interpreter ignores these: the failed write reports the error.
        *("SIGPIPE", "SIGXFSZ"),
        # A program that returns from a fault runs into it again, for ever; an abort ends it anyway, and the handler that
        # writes its place to the log must not be replaced.
        *("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGEMT"),
    )
    if hasattr(signal, name)
)
SIGNALS = tuple(sorted(signal.valid_signals() - _PASSED_BY))
"""All signals whose default action would end the process at once, without restoring the terminal."""
COMMON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""The signals that are handled from the very start; the others once the app is up."""
PATIENCE_S = 5.0
TWICE_S = 2.0
_RESTORING_S = 1.0


class Ending:
    """Ends the process if it still exists some seconds after the app began to exit.

    Otherwise the event loop and the interpreter would wait for ever for a hanging thread, as on a network disk that is gone.

    Args:
        restore: restores the terminal and prints the exit messages; called in a thread.
        code: returns the exit code.
    """

    def __init__(self, restore: Callable[[], None], code: Callable[[], int]) -> None:
        self._restore = restore
        self._code = code
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Start the timer after which the process ends at once. Only the first call counts."""
        if self._timer is None:
            self._timer = later(self.end_at_once)

    def end_at_once(self) -> None:
        """End the process, with the terminal as it was; may be called in a thread."""
        # A terminal that accepts no output (Ctrl+S) must not block the end either.
        restoring = threading.Thread(target=self._restore, daemon=True)
        restoring.start()
        restoring.join(_RESTORING_S)
        os._exit(self._code())


def listen(
    callbacks: Callbacks, leave: Callable[[int], None], signals: Iterable[int] = SIGNALS
) -> None:
    """Handle signals that end the program: call `leave` with the exit code.

    A signal that is ignored, as under nohup, stays so.

    Args:
        callbacks: the callbacks of the app.
        leave: called within the event loop.
        signals: the signals.
    """
    for number in signals:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue
        # The system reserves some of the numbers.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            hear = callbacks.on_signal if number in COMMON else callbacks.on_rare_signal
            hear(number, partial(_end, number, leave))


def end_interrupts() -> None:
    """Ignore SIGINT from here on: the restored terminal makes a signal of Ctrl+C again.

    Otherwise pressing the key once more would show a traceback of the interpreter's shutdown. Call this within the event loop.
    """
    with contextlib.suppress(RuntimeError, ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # `remove_signal_handler`, and the loop's end, set Python's own handler, with which a key in that moment would raise
        # KeyboardInterrupt.
        handlers: dict[int, object] = getattr(asyncio.get_running_loop(), "_signal_handlers", {})
        handlers.pop(signal.SIGINT, None)


class QuitWatchdog:
    """Makes pressing a key twice to quit work even if the event loop is blocked, or exiting hangs.

    Keys that quit are counted in the input thread, and counted down when the app has handled them. Some seconds after the
    second of two presses the process is ended, if the app has not handled it or is still exiting.

    Args:
        is_leaving: returns whether the app is exiting.
        end: ends the process at once; called in a thread.
    """

    def __init__(self, is_leaving: Callable[[], bool], end: Callable[[], None]) -> None:
        self._is_leaving = is_leaving
        self._end = end
        self._pressed_at = 0.0
        self._n_pressed = 0
        self._n_handled = 0
        self._timer: threading.Timer | None = None

    def pressed(self) -> None:
        """Count a key that was read; called in the reading thread."""
        now = time.monotonic()
        is_second = now - self._pressed_at < TWICE_S
        self._pressed_at = now
        self._n_pressed += 1
        if is_second and (self._timer is None or not self._timer.is_alive()):
            self._timer = later(partial(self._look, self._n_pressed))

    def handled(self) -> None:
        """Count a key that the app has handled; called on the event loop."""
        self._n_handled += 1

    def _look(self, n_pressed: int) -> None:
        if self._n_handled < n_pressed or self._is_leaving():
            self._end()


def later(call: Callable[[], None]) -> threading.Timer:
    """Call a function in a thread of its own, after the time in which the program should have ended."""
    timer = threading.Timer(PATIENCE_S, call)
    timer.daemon = True
    timer.start()
    return timer


def _end(number: int, leave: Callable[[int], None]) -> None:
    lose_terminal()
    leave(128 + number)


def lose_terminal() -> bool:
    """Ignore errors of all later writes to the terminal, if it is gone; return whether it is.

    An error would end Textual's writing thread, and the event loop would then wait for ever for room in that thread's queue.
    The window may be closed at any moment, even while the program is ending, or with SIGHUP ignored.
    """
    try:
        termios.tcgetattr(0)
    except termios.error:
        pass
    else:
        return False
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    return True
