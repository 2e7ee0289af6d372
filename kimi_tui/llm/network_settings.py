"""The environment's settings for connections: the proxy, if any, and the trusted certificates.

`proxy_to` and `trusted_certificates` read the variables that curl and git also read (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`,
`SSL_CERT_FILE`, `SSL_CERT_DIR`), for the one server of a client. A value that cannot be used raises `NetworkSettingError`,
whose text names the variable; there is no fallback to a connection that the user did not choose.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx2

from kimi_tui.base_url import host_of, is_loopback, shown_url
from kimi_tui.foreign_text import one_line
from kimi_tui.llm.errors import APIConnectionError, LLMError, NetworkSettingError, ProxyError

_SCHEMES: Mapping[str, str] = {
    "http": "http",
    "https": "https",
    # GNOME and v2rayN write `socks`. With all three schemes the proxy resolves the server's name.
    "socks": "socks5",
    "socks5": "socks5",
    "socks5h": "socks5h",
}
_SYSTEM = "the system's settings"
_HOST = re.compile(rb"[0-9A-Za-z._:-]{1,253}")
_HASHED = re.compile(r"[0-9a-fA-F]{8}\.\d{1,4}")
_SEPARATORS = re.compile(r"[,\s]+")
_LONGEST_SHOWN = 120


@dataclass(frozen=True, slots=True)
class EnvironmentProxy:
    """A proxy for one server.

    Attributes:
        variable: the variable that holds the address, for texts.
        shown: the address without user name and password.
        url: the address, with a scheme that the HTTP library knows.
        secrets: user name and password, both as written and as sent; they are never shown.
    """

    variable: str
    shown: str
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def is_socks(self) -> bool:
        """Whether the proxy speaks SOCKS5, else HTTP."""
        return self.url.startswith("socks")

    @property
    def between(self) -> str:
        """The name of the proxy, within a sentence."""
        return f"the proxy {self.shown}, set by {self.variable}"

    def answers_for(self, base_url: str) -> str:
        """Return the name of the proxy within a sentence if it can answer in place of the server; else an empty string.

        A proxy cannot answer an encrypted request, and a SOCKS proxy only passes requests on.
        """
        is_encrypted = urlsplit(base_url).scheme.lower() == "https"
        return "" if is_encrypted or self.is_socks else self.between

    @property
    def called(self) -> str:
        """The name of the proxy, as the subject of a sentence."""
        return f"The proxy {self.shown}, set by {self.variable},"

    def failure(self, host: str, error: httpx2.TransportError) -> LLMError:
        """Return the error for a connection to a server that this proxy did not make.

        Args:
            host: the host of the server.
            error: the HTTP library's error: it could not connect to the proxy, or the proxy refused.
        """
        if not isinstance(error, httpx2.ProxyError):
            why = one_line(str(error))[:_LONGEST_SHOWN]
            return APIConnectionError(
                f"{self.called} cannot be reached" + (f": {why}" if why else "."),
                advice=f"Check that the proxy runs. To connect without it, unset {self.variable}, or add {host} to NO_PROXY.",
            )
        said = one_line(str(error))[:_LONGEST_SHOWN].strip()
        status = said[:3]
        if status == "407" or "username/password" in said or said.startswith("Requested "):
            return self.wants_login(said if status == "407" else "")
        if status.isdecimal() and status[0] == "4":
            return ProxyError(
                f"{self.called} refuses to connect to {host}: {said}.",
                advice=f"Add {host} to NO_PROXY, or have the proxy allow it.",
            )
        return APIConnectionError(
            f"{self.called} could not connect to {host}: {said or 'without giving a reason'}.",
            advice="Check the base URL and the proxy.",
        )

    def wants_login(self, said: str = "") -> ProxyError:
        """Return the error for a proxy that asks for a name and a password, or rejects those it got."""
        given = "does not accept the user name and password given there" if self.secrets else ""
        return ProxyError(
            f"{self.called} "
            + (given or "asks for a user name and a password")
            + (f": {said.rstrip('.')}." if said else "."),
            advice=f"Add them to {self.variable}, for example http://NAME:PASSWORD@HOST:PORT.",
        )


def proxy_to(base_url: str, environ: Mapping[str, str] | None = None) -> EnvironmentProxy | None:
    """Return the proxy through which a server must be reached; None for a direct connection.

    `NO_PROXY` is read first, as the value of an unused variable does not matter. Names in lower case come before those in
    capitals, and the variable of the server's scheme before `ALL_PROXY`. Servers on this machine never use a proxy.

    Args:
        base_url: the base URL of the server.
        environ: the environment variables; those of this process by default.

    Raises:
        NetworkSettingError: the variable that applies holds no usable proxy address.
    """
    environ = os.environ if environ is None else environ
    host = host_of(base_url)
    if is_loopback(host) or _is_excepted(base_url, _value(environ, "no_proxy")[1]):
        return None
    scheme = urlsplit(base_url).scheme.lower()
    for name in (f"{scheme}_proxy", "all_proxy"):
        variable, value = _value(environ, name)
        if value:
            return _proxy(variable, value, host)
    if sys.platform == "darwin" and not urllib.request.getproxies_environment():
        return _system_proxy(scheme, host)
    return None


def _system_proxy(scheme: str, host: str) -> EnvironmentProxy | None:
    """Return the proxy in the network settings of macOS."""
    value = urllib.request.getproxies().get(scheme, "")
    if not value or urllib.request.proxy_bypass(host):
        return None
    return _proxy(_SYSTEM, value, host)


def _value(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the set variable with this name, in lower case or in capitals, and its value without blanks and quotes."""
    for variable in (name, name.upper()):
        if variable == "HTTP_PROXY" and "REQUEST_METHOD" in environ:
            continue  # a CGI program gets the request's `Proxy` header in this variable
        if value := environ.get(variable, "").strip().strip("\"'").strip():
            return variable, value
    return name.upper(), ""


def _proxy(variable: str, value: str, host: str) -> EnvironmentProxy:
    written = value if "://" in value else f"http://{value}"
    scheme, _, rest = written.partition("://")
    shown = shown_url(f"{scheme}://{rest.partition('/')[0]}")
    shown = one_line(shown)[:_LONGEST_SHOWN]
    or_else = f"or add {host} to NO_PROXY."
    if (known := _SCHEMES.get(scheme.lower())) is None:
        raise NetworkSettingError(
            f'{variable} is "{shown}", and kimi-tui cannot use a proxy that speaks '
            f'"{one_line(scheme)[:20]}".',
            advice=f"Set {variable} to an http://, https:// or socks5:// address, {or_else}",
        )
    url = f"{known}://{rest}"
    try:
        parsed = httpx2.Proxy(url)
        is_usable = _HOST.fullmatch(parsed.url.raw_host) and (parsed.url.port or 1) < 1 << 16
    except (ValueError, httpx2.InvalidURL):
        parsed, is_usable = None, False
    if parsed is None or not is_usable:
        raise NetworkSettingError(
            f'{variable} is "{shown}", which is not the address of a proxy.',
            advice=f"Set {variable} to an address such as http://HOST:PORT, {or_else}",
        )
    userinfo = rest.partition("/")[0].rpartition("@")[0]
    name, _, password = userinfo.partition(":")
    secrets = dict.fromkeys((password, unquote(password), *(parsed.auth or ())[1:]))
    if not password:
        secrets = dict.fromkeys((name, unquote(name)))
    return EnvironmentProxy(variable, shown, url, tuple(filter(None, secrets)))


def _is_excepted(base_url: str, no_proxy: str) -> bool:
    """Return whether `NO_PROXY` names this server: by its name, a domain above it, its address, a network, or `*`.

    An entry may have a port, and a dot or `*.` in front of a domain.
    """
    try:
        parts = urlsplit(base_url)
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port
    except ValueError:
        return False
    port = port or (443 if parts.scheme == "https" else 80)
    for entry in _SEPARATORS.split(no_proxy.lower()):
        name = entry.rpartition("://")[2]
        if name == "*":
            return True
        if _network_holds(name, host):
            return True
        before, colon, behind = name.rpartition(":")
        if colon and behind.isdecimal() and (before.endswith("]") or ":" not in before):
            if int(behind[:6]) != port:
                continue
            name = before
        name = name.strip("[]").removeprefix("*").strip(".")
        if name and (host == name or host.endswith(f".{name}")):
            return True
    return False


def _network_holds(entry: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return False


def trusted_certificates(environ: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Return a context for connections to servers that trusts the certificates named by the environment, else the system's.

    It reads a file of 200 kB or more, so call it in a thread.

    Args:
        environ: the environment variables; those of this process by default.

    Raises:
        NetworkSettingError: a variable names no certificates.
    """
    environ = os.environ if environ is None else environ
    file = environ.get("SSL_CERT_FILE", "").strip()
    folders = environ.get("SSL_CERT_DIR", "").strip()
    if not file and not folders:
        # httpx2's own reading of the environment raises errors that name no variable.
        return httpx2.create_ssl_context(trust_env=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if file:
        _load_file(context, file)
    if folders:
        has_certificates = any(_has_certificates(Path(one)) for one in folders.split(os.pathsep))
        if has_certificates:
            context.load_verify_locations(capath=folders)
        elif not file:
            raise NetworkSettingError(
                f'SSL_CERT_DIR is "{_shown(folders)}", and there are no certificates under the '
                "names that OpenSSL looks for, such as 1a2b3c4d.0.",
                advice="Run openssl rehash there, set SSL_CERT_FILE to a certificate file, or unset SSL_CERT_DIR.",
            )
    return context


def _load_file(context: ssl.SSLContext, file: str) -> None:
    named = f'SSL_CERT_FILE is "{_shown(file)}"'
    if os.path.isdir(file):
        raise NetworkSettingError(
            f"{named}, which is a folder and not a file of certificates.",
            advice="Set it to a PEM file, or set SSL_CERT_DIR to the folder instead.",
        )
    advice = "Set it to a file of PEM certificates, or unset SSL_CERT_FILE."
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError:
        raise NetworkSettingError(
            f"{named}, which contains no certificates in PEM format.", advice=advice
        ) from None
    except (OSError, ValueError) as error:
        why = "which does not exist"
        if not isinstance(error, FileNotFoundError):
            why = f"which cannot be read: {getattr(error, 'strerror', None) or error}"
        raise NetworkSettingError(f"{named}, {why}.", advice=advice) from None


def _has_certificates(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(_HASHED.fullmatch(entry.name) for entry in entries)
    except (OSError, ValueError):
        return False


def _shown(text: str) -> str:
    return one_line(text)[:_LONGEST_SHOWN]
