"""Parses base URLs: host and origin, whether it is this machine, and whether a key may be sent there.

Nothing is resolved or connected.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit, urlunsplit

from kimi_tui.llm.errors import LLMError

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


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


def shown_url(base_url: str) -> str:
    """A base URL as it may be shown: without a password in front of the host, or what stands behind the path."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return "(unreadable)"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


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
        LLMError: this is no web address, one of them would cross a network unencrypted, or cannot stand in a header.
    """
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").lower()
        _ = parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise LLMError(
            f"{shown_url(base_url)!r} is no base URL.",
            advice="It looks like https://api.moonshot.ai/v1.",
        )
    if parts.scheme == "http" and (api_key or headers) and not is_loopback(host):
        what = "key" if api_key else "configured headers"
        raise LLMError(
            f"The {what} would go to {host} unencrypted.",
            advice=f"Use https, or no {what} for a server in your own network.",
        )
    for what, value in (("key", api_key), *((f"header {name}", headers[name]) for name in headers)):
        if not (value.isascii() and value.isprintable()):
            # Of those that send it, some name the text in their error, and some send what follows a line's end.
            raise LLMError(
                f"The {what} for {host} has characters that no header can hold.",
                advice="Copy it again: it may hold a line's end, or a letter of another script.",
            )
    return host
