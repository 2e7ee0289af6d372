"""Base URLs of servers: as users type them, and their parts, such as the host and whether that is this machine.

Nothing is resolved or connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

_NUMBER = r"(?i:0x[0-9a-f]*|[0-9]+)"
"""A part of an IPv4 address: decimal, octal or hexadecimal."""


def host_of(url: str) -> str:
    """Return the host of a URL in lower case, or an empty string."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host is, in any spelling that the C library takes (`127.1`, `0x7f000001`, `017700000001`);
    None for a name.
    """
    host = host.strip("[]")
    if not (":" in host or host[:1].isdigit()):
        return None
    import ipaddress  # most hosts have a name, and this import takes milliseconds before the first paint
    import re
    import socket

    try:
        # Only an IPv6 address has a zone.
        return ipaddress.ip_address(host.partition("%")[0] if ":" in host else host)
    except ValueError:
        pass
    if not all(re.fullmatch(_NUMBER, part) for part in host.split(".")):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether the host is this machine, by its name or its address in any spelling; a full stop at its end is no part of it."""
    host = host.lower().removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = literal_address(host)
    inner = getattr(address, "ipv4_mapped", None)
    return address is not None and (inner or address).is_loopback


_NEAR_ENDINGS = (".local", ".lan", ".internal", ".home.arpa")
"""Endings of names in a private network (RFC 6762, RFC 8375, and the habits of routers and containers)."""


def is_near(host: str) -> bool:
    """Return whether the host is this machine or one in the same private network, by its name or its address."""
    if not host or is_loopback(host) or host.endswith(_NEAR_ENDINGS):
        return bool(host)
    address = literal_address(host.removesuffix("."))
    if address is None:
        return "." not in host
    # Private and link-local addresses count, and carriers' addresses, which a VPN gives to its own machines.
    return not address.is_global


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, the port always written out: the origin to which a key belongs."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    standing = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port or standing}"


def root_of(url: str) -> str:
    """Return scheme, host and port of a URL as they are written in it, to which the path of a request is appended."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def shown_url(url: str) -> str:
    """Return a base URL as it may be shown: without a password before the host, and without the part after the path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(unreadable)"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def is_url(url: str) -> bool:
    """Return whether the text can be a server's base URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/embeddings", "/models")


def clean_url(text: str) -> str:
    """Return a base URL without the parts that users copy along: blanks and quotes around it, a slash or an endpoint at its end."""
    url = text.strip().strip("\"'`<>").strip().rstrip("/")
    for ending in _ENDPOINTS:
        if url.lower().endswith(ending):
            return url[: -len(ending)].rstrip("/")
    return url


_HOST_SIGNS = dict.fromkeys(map(ord, ".-"))


def with_scheme(url: str) -> str:
    """Add `https://` (`http://` on this machine) to a base URL that was typed without it; return anything else unchanged.

    A text with neither a port nor a path is no base URL: a key with a dot would be looked up as a host.
    """
    try:
        parts = urlsplit(f"//{url}")
        host = parts.hostname or ""
        is_meant = "://" not in url and bool(parts.port or parts.path)
    except ValueError:
        return url
    guess = f"http://{url}" if is_loopback(host.lower()) else f"https://{url}"
    is_host = is_loopback(host.lower()) or ("." in host and host.translate(_HOST_SIGNS).isalnum())
    return guess if is_meant and is_host and is_url(guess) else url
