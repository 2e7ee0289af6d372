"""Waiting for a thread that must not be left half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def settled(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread and wait for its end even when cancelled.

    A write cannot be stopped half-way: when the caller goes on, it must have happened or not.

    Raises:
        asyncio.CancelledError: cancelled meanwhile; the function has ended.
    """
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise
