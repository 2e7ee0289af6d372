"""The servers that a key can be for, and how their models are written in a list."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_tui.config.choosing import (
    KIMI_CODE_URL,
    MOONSHOT_CHINA_URL,
    MOONSHOT_URL,
    OPENAI_URL,
    origin,
)
from kimi_tui.tui.numbers import tokens


@dataclass(frozen=True, slots=True)
class Server:
    """A server by name; an empty `base_url` is asked for."""

    name: str
    title: str
    base_url: str


SERVERS: tuple[Server, ...] = (
    Server("moonshot", "Moonshot (Kimi), global", MOONSHOT_URL),
    Server("moonshot-cn", "Moonshot (Kimi), China", MOONSHOT_CHINA_URL),
    Server("kimi-code", "Kimi Code plan", KIMI_CODE_URL),
    Server("openai", "OpenAI", OPENAI_URL),
    Server("server", "Another server", ""),
)


def server_of(base_url: str) -> int:
    """Which of the servers a base URL is; the last one, where it is none of them."""
    for index, server in enumerate(SERVERS):
        if server.base_url and origin(server.base_url) == origin(base_url):
            return index
    return len(SERVERS) - 1


def model_facts(window: int | None, *, thinks: bool) -> str:
    """What stands beside a model: `262k   thinking`."""
    size = tokens(window) if window else ""
    return f"{size:<6} thinking".strip() if thinks else size
