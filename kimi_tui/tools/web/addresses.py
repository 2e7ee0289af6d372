"""Addresses of pages: the accepted URLs, and the IP addresses that a connection may be made to.

Only addresses of the public internet are connected to. A name tells nothing about that, so the IP address is checked when
the connection is made (`fetching`); names and literal addresses that can only be near are refused earlier, before the user is asked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kimi_tui.base_url import is_near, literal_address

MAX_URL_CHARS = 2_000
_HOST_CHARS = 253
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_LEAST_PORT = 1_024

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# The service of Azure's machines has a public address (Microsoft Learn, "What is IP address 168.63.129.16").
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
# These networks are reserved for protocols; one address in them is the metadata service of Oracle's machines.
_KEPT = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("192.88.99.0/24"))
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class BadAddress(Exception):
    """The URL cannot be fetched. The text says why, for the model.

    Attributes:
        brief: the reason in a few words, for the card.
    """

    def __init__(self, message: str, *, brief: str) -> None:
        super().__init__(message)
        self.brief = brief


@dataclass(frozen=True, slots=True)
class PageURL:
    """The URL of a page, in its parts. All of them are ASCII: a host in another script is written in Punycode.

    Attributes:
        scheme: `http` or `https`.
        host: the name or the IP address, in lower case, without brackets and without a dot at its end.
        port: the port.
        target: path and query.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def has_usual_port(self) -> bool:
        """Whether the port is the usual one of the scheme, which is not written."""
        return self.port == _PORTS[self.scheme]

    @property
    def site(self) -> str:
        """The host, with the port unless it is the usual one of the scheme: what a permission covers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.has_usual_port else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.site}{self.target}"


def page_url(text: str, base: PageURL | None = None) -> PageURL:
    """Return the parts of a URL.

    Args:
        text: the URL, as a model or a server wrote it.
        base: the page that a redirect comes from; None if the URL must be absolute.

    Raises:
        BadAddress: the URL cannot be fetched.
    """
    # The library is loaded by every command that only knows the tools otherwise.
    import httpx2

    text = text.strip()
    if len(text) > MAX_URL_CHARS:
        raise BadAddress(
            f"The URL has {len(text):,} characters; at most {MAX_URL_CHARS:,} are sent.",
            brief="URL too long",
        )
    try:
        url = httpx2.URL(text)
        if base is not None:
            url = httpx2.URL(str(base)).join(url)
        scheme, host, port = url.scheme.lower(), url.raw_host.decode("ascii").lower(), url.port
        target = url.raw_path.decode("ascii") or "/"
        userinfo = url.userinfo
    # The library lets some errors of `ipaddress` and `idna` through.
    except (httpx2.InvalidURL, ValueError) as error:
        raise BadAddress(f"{text[:200]!r} is not a valid URL.", brief="invalid URL") from error
    if scheme not in _PORTS:
        raise BadAddress(
            f"{text[:200]!r} cannot be fetched: only http:// and https:// URLs can. Read files with ReadFile.",
            brief="not a web URL",
        )
    if userinfo:
        raise BadAddress(
            "A URL with a user name or password is not fetched. Leave out the part before the @.",
            brief="user name in the URL",
        )
    if not host:
        raise BadAddress(f"{text[:200]!r} has no host.", brief="invalid URL")
    port = _PORTS[scheme] if port is None else port
    if port != _PORTS[scheme] and not (port in _PORTS.values() or _LEAST_PORT <= port < 1 << 16):
        raise BadAddress(f"Port {port} is not a port of web servers.", brief=f"port {port}")
    host = host.removesuffix(".")
    if ":" not in host and not (len(host) <= _HOST_CHARS and _HOST.fullmatch(host)):
        raise BadAddress(f"{host[:200]!r} is not a valid host.", brief="invalid URL")
    return PageURL(scheme, host, port, target)


def is_public(address: IPAddress) -> bool:
    """Return whether an address belongs to the public internet; an IPv4 address inside an IPv6 address counts as itself.

    Not public are this machine, private and shared networks (RFC 1918, RFC 4193, RFC 6598), link-local addresses with the
    metadata services of clouds, multicast and reserved addresses.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id or address.is_site_local:
            return False
        inner = _embedded(address)
        if inner is not None:
            return is_public(inner)
    is_special = address.is_multicast or address.is_reserved or address.is_unspecified
    if is_special or address in _METADATA or any(address in network for network in _KEPT):
        return False
    return address.is_global


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address may be sent on to."""
    teredo = address.teredo
    if teredo is not None:
        return teredo[1]
    if address in _COMPATIBLE or any(address in network for network in _NAT64):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def refuse_near(url: PageURL, may_connect: Callable[[IPAddress], bool] = is_public) -> None:
    """Refuse a host that is not on the public internet, as its name or its literal address tells.

    Args:
        url: the URL.
        may_connect: whether an address may be connected to.

    Raises:
        BadAddress: it is one.
    """
    literal = literal_address(url.host)
    if (not may_connect(literal)) if literal is not None else is_near(url.host):
        raise near(url.host)


def near(host: str, address: str = "") -> BadAddress:
    """Return the refusal of a host that is this machine or in a private network.

    Args:
        host: the host.
        address: the IP address that its name stands for; empty if the host itself is one.
    """
    stands = f" stands for {address}, which" if address and address != host else ""
    return BadAddress(
        f"{host}{stands} is this machine or in a private network. FetchURL reads only pages of the public internet. "
        "If the user wants this page, read it with curl in the shell, which asks them.",
        brief="private address",
    )


def is_allowed(url: PageURL, allowed: Sequence[str]) -> bool:
    """Return whether the user's configuration allows a page: by its host, a domain above it (`*.example.org`), or `*`."""
    for entry in allowed:
        pattern = entry.strip().lower().removesuffix(".")
        if pattern == "*" or pattern in (url.site, url.host):
            return True
        if pattern.startswith("*.") and url.host.endswith(pattern[1:]):
            return True
    return False
