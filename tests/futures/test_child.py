"""The process of a future, as an object: that all it tells leaves, and that it ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator

from kimi_tui.futures.child import FutureChild
from kimi_tui.futures.orders import Order
from kimi_tui.headless.output import Output


class TellingChild(FutureChild):
    """Has nothing to do but to tell two lines."""

    async def _whole(self) -> int:
        self._tell({"line": 1})
        self._tell({"line": 2})
        return 0


async def _no_lines() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def test_the_end_that_comes_together_with_lines_ends_it() -> None:
    read, write = os.pipe()
    child = TellingChild(Order("", "", {}, {}), _no_lines(), Output(write))
    try:
        assert await asyncio.wait_for(child.run(), 20) == 0
    finally:
        os.close(write)
    with os.fdopen(read) as told:
        assert [json.loads(line) for line in told] == [{"line": 1}, {"line": 2}]
