"""Doing a thing to its end although the one who waits for it is being cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` so that a cancel waits for it: the context is changed wholly or not at all.

    Raises:
        asyncio.CancelledError: cancelled meanwhile; the work has ended (its own error, if any, gives way).
    """
    task = asyncio.ensure_future(work)
    try:
        # The shield protects the write that is under way, not the caller.
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
