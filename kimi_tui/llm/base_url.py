"""Base URLs of servers: host, origin, whether the server is this machine, and whether a key may be sent there.

Works on the text of the URL alone: nothing is resolved or connected, and the HTTP library is not imported.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from kimi_tui.llm.errors import LLMError


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
