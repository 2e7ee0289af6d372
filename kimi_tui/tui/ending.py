"""Being ended by the system: asked to terminate, or the terminal's window is gone. Either way the app leaves in order.

What is to be saved, and which commands still run, is the app's affair: here are only the signals.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import threading
from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 5.0


def listen(leave: Callable[[int], None]) -> None:
    """Call `leave` with the exit code when the system wants the program to end.

    A signal that is ignored, as under nohup, stays so.

    Args:
        leave: called within the event loop.
    """
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, _end, number, leave)


def _end(number: signal.Signals, leave: Callable[[int], None]) -> None:
    code = 128 + number
    if not _has_terminal():
        _point_to_nowhere()
    last_resort = threading.Timer(PATIENCE_S, os._exit, (code,))
    last_resort.daemon = True
    last_resort.start()
    leave(code)


def _has_terminal() -> bool:
    try:
        termios.tcgetattr(0)
    except termios.error:
        return False
    return True


def _point_to_nowhere() -> None:
    """Writing to a terminal that is gone fails, and Textual's writing thread would end with it: the event loop would
    then wait for ever for room in that thread's queue."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
