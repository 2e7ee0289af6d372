"""Threads for long reads: the end of the program does not wait for them.

The event loop, when it closes, waits for each function under `asyncio.to_thread`. Functions that write belong there, so that no
file is left half written; those that only read, and may take long, belong here.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


async def in_daemon_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a function that runs in a thread of its own, which never keeps the program from ending.

    The function must not write files: the process may end in the middle of it. A cancel returns at once; the thread goes on.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def set_result(result: T | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(work, *args, **kwargs)
        except Exception as failed:
            error = failed
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_result, result, error)

    threading.Thread(target=run, daemon=True, name="daemon").start()
    return await done
