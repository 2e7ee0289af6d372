"""Shows a screen over the page and waits for what the person answers there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from kimi_tui.tui.app_of import app_of

if TYPE_CHECKING:
    from textual.screen import Screen

T = TypeVar("T")


async def ask(screen: Screen[Any], question: Screen[T | None]) -> T | None:
    """The answer of a screen over `screen`; None where the person stays where they are."""
    answered: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

    def take(answer: T | None) -> None:
        if not answered.done():
            answered.set_result(answer)

    app_of(screen).push_screen(question, take)
    return await answered
