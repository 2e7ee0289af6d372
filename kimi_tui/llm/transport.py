"""The way to a server: its base URL, the `openai` client and its headers, and the errors of its connections.

A base URL is judged by its text alone: nothing is resolved or connected. Nothing of the environment leaks into a request.
The client does transport, authentication and connection pooling; retries, redirects and the reading of streams are done
elsewhere. Both it and the HTTP library take half a second to import, so that happens inside functions.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kimi_tui.llm.errors import APIConnectionError, APITimeoutError, LLMError, redact

if TYPE_CHECKING:
    from openai import AsyncOpenAI, Omit


NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_CONNECT_S = 10.0
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
_importing = threading.Lock()


def host_of(base_url: str) -> str:
    """The host of a base URL in lower case, or an empty string."""
    try:
        return (urlsplit(base_url).hostname or "").lower()
    except ValueError:
        return ""


def origin_of(base_url: str) -> str:
    """Scheme, host and port of a base URL."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


def is_loopback(host: str) -> bool:
    """Whether the host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_origin(base_url: str, api_key: str, headers: Mapping[str, str] = NO_HEADERS) -> str:
    """The host of a base URL that a key and the user's own headers may be sent to.

    Raises:
        LLMError: this is no web address, or one of them would cross a network unencrypted.
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
    if parts.scheme == "http" and (api_key or headers) and not is_loopback(host):
        what = "key" if api_key else "configured headers"
        raise LLMError(
            f"The {what} would go to {host} unencrypted.",
            advice=f"Use https, or no {what} for a server in your own network.",
        )
    return host


def preload() -> None:
    """Import what a request needs. Half a second of CPU: for a thread, after the first paint."""
    with _importing:
        # OPENAI_LOG makes the library write to the terminal as soon as it is imported, unless the log has a handler.
        # The variable itself stays as it is: other threads read the environment meanwhile.
        root, silent = logging.getLogger(), logging.NullHandler()
        root.addHandler(silent)
        try:
            import tenacity
            from openai import AsyncOpenAI

            from kimi_tui.llm import http_client
        finally:
            root.removeHandler(silent)
        logging.getLogger("openai").setLevel(logging.WARNING)
        del tenacity, AsyncOpenAI, http_client


def request_headers(api_key: str) -> dict[str, str | Omit]:
    """The headers of a request: what we take, and nothing about this machine or from its environment."""
    from openai import Omit

    from kimi_tui.llm.http_client import USER_AGENT

    headers: dict[str, str | Omit] = {name: Omit() for name in _custom_headers()}
    headers |= {f"X-Stainless-{name}": Omit() for name in _ABOUT_THE_MACHINE}
    headers |= {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
    headers["User-Agent"] = USER_AGENT
    headers["Accept"] = "text/event-stream, application/json"
    headers["Authorization"] = f"Bearer {api_key}" if api_key else Omit()
    return headers


def _custom_headers() -> list[str]:
    """The headers that the library takes out of the environment into every request."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    return [line.partition(":")[0].strip() for line in lines if ":" in line]


def openai_client(
    base_url: str, api_key: str, headers: Mapping[str, str] = NO_HEADERS, *, read_s: float
) -> AsyncOpenAI:
    """A client for one origin with one key, and the user's own headers for it.

    Raises:
        LLMError: the base URL is none, or the key would cross a network unencrypted.
    """
    check_origin(base_url, api_key, headers)
    preload()
    from openai import AsyncOpenAI

    from kimi_tui.llm.http_client import USER_AGENT, CarefulClient

    return AsyncOpenAI(
        api_key=api_key or _NO_KEY,
        base_url=base_url,
        # What is not named here, the library looks up in the environment.
        organization="",
        project="",
        admin_api_key="",
        webhook_secret="",
        max_retries=0,
        http_client=CarefulClient(base_url, headers, connect_s=_CONNECT_S, read_s=read_s),
        default_headers={"User-Agent": USER_AGENT},
    )


@dataclass(frozen=True, slots=True)
class NetworkFailures:
    """Makes the errors for failed connections to one server. `secrets`, the key among them, are never shown."""

    host: str
    secrets: tuple[str, ...] = field(repr=False)
    stream_timeout_s: float

    def timeout(self, error: BaseException) -> APITimeoutError:
        """Connecting took too long, or nothing came for too long."""
        import httpx2

        cause = error.__cause__ or error
        if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            return APITimeoutError(
                f"{self.host} did not accept a connection within {_CONNECT_S:g} s.",
                advice="Check the network and the base URL.",
            )
        return APITimeoutError(
            f"{self.host} was silent for {self.stream_timeout_s:g} s.",
            advice="If it stays silent, choose another model with /model.",
        )

    def unreachable(self, error: BaseException) -> APIConnectionError:
        """The server refused, has no such name or a wrong certificate, or closed the connection before it answered."""
        import httpx2

        cause = error.__cause__ or error
        if not isinstance(cause, httpx2.ConnectError):
            return APIConnectionError(
                f"{self.host} closed the connection before it answered.",
                advice="This usually passes.",
            )
        why = redact(str(cause), self.secrets).strip()[:200]
        return APIConnectionError(
            f"{self.host} cannot be reached" + (f": {why}" if why else "."),
            advice="Is the server running?"
            if is_loopback(self.host)
            else "Check the network and the base URL.",
        )
