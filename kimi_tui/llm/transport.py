"""The `openai` client, made so that nothing of the environment leaks into a request, and imported late.

It does transport, authentication and connection pooling; retries, redirects and the reading of streams are not its part.
"""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kimi_tui.llm.errors import LLMError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, Omit


_NO_KEY = "none"
_ABOUT_THE_MACHINE = (
    "Lang",
    "Package-Version",
    "OS",
    "Arch",
    "Runtime",
    "Runtime-Version",
    "Async",
)
_environment = threading.Lock()


def preload() -> None:
    """Import what a request needs. Takes half a second of CPU: for a thread, after the first paint."""
    # OPENAI_LOG would make the library write to the terminal as soon as it is imported.
    with _without_environment("OPENAI_LOG"):
        import tenacity
        from openai import AsyncOpenAI

        from kimi_tui.llm import http_client

        del tenacity, AsyncOpenAI, http_client


@contextmanager
def _without_environment(*prefixes: str) -> Generator[None]:
    """Without environment variables of these prefixes, for a moment."""
    with _environment:
        hidden = {key: os.environ[key] for key in list(os.environ) if key.startswith(prefixes)}
        for key in hidden:
            os.environ.pop(key, None)
        try:
            yield
        finally:
            for key, value in hidden.items():
                os.environ.setdefault(key, value)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_origin(base_url: str, api_key: str) -> str:
    """The host of a base URL that a key may be sent to.

    Raises:
        LLMError: this is no web address, or the key would cross a network unencrypted.
    """
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").lower()
        _ = parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise LLMError(
            f"{base_url!r} is no base URL.", advice="It looks like https://api.moonshot.ai/v1."
        )
    if parts.scheme == "http" and api_key and not is_loopback(host):
        raise LLMError(
            f"The key would go to {host} unencrypted.",
            advice="Use https, or no key for a server in your own network.",
        )
    return host


def request_headers(*, with_key: bool) -> dict[str, str | Omit]:
    """The headers of a request: what we take, and nothing about this machine; no key where there is none."""
    from openai import Omit

    headers: dict[str, str | Omit] = {"Accept": "text/event-stream, application/json"}
    for name in _ABOUT_THE_MACHINE:
        headers[f"X-Stainless-{name}"] = Omit()
    if not with_key:
        headers["Authorization"] = Omit()
    return headers


def openai_client(base_url: str, api_key: str, *, connect_s: float, read_s: float) -> AsyncOpenAI:
    """A client for one origin with one key.

    Raises:
        LLMError: the base URL is none, or the key would cross a network unencrypted.
    """
    check_origin(base_url, api_key)
    preload()
    from openai import AsyncOpenAI

    from kimi_tui.llm.http_client import USER_AGENT, CarefulClient

    with _without_environment("OPENAI_", "AZURE_OPENAI"):
        return AsyncOpenAI(
            api_key=api_key or _NO_KEY,
            base_url=base_url,
            max_retries=0,
            http_client=CarefulClient(base_url, connect_s=connect_s, read_s=read_s),
            default_headers={"User-Agent": USER_AGENT},
        )
