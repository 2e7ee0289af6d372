from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.chat_server import ChatServer, strict

from kimi_tui.llm.dialects import learned_quirks
from kimi_tui.llm.openai_compatible import OpenAICompatible


@pytest.fixture(autouse=True)
def _no_quirks() -> None:
    learned_quirks.clear()


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    """A strict server that is not recognised as any local program."""
    async with ChatServer(check=strict) as running:
        yield running


Connect = Callable[..., OpenAICompatible]


@pytest.fixture
async def connect(server: ChatServer) -> AsyncIterator[Connect]:
    """Makes providers that talk to the server, and closes them."""
    made: list[OpenAICompatible] = []

    def make(**options: Any) -> OpenAICompatible:
        settings: dict[str, Any] = {
            "provider": "p",
            "base_url": server.base_url,
            "api_key": "sk-secret-secret-secret",
            "model": "m",
            "dialect": "generic",
            **options,
        }
        made.append(OpenAICompatible(**settings))
        return made[-1]

    yield make
    for provider in made:
        await provider.aclose()
