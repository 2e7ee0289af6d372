"""The configured MCP servers: `mcp.json` of the user, `.mcp.json` of a project, and kimi-cli's `mcp.json`.

All three have the form of Claude and kimi-cli, `{"mcpServers": {NAME: {...}}}`. If two servers have one name, the first found
counts, the user's own before a project's. A file that cannot be read, or an entry that cannot be used, is a problem in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from kimi_tui import lenient_json
from kimi_tui.app_paths import make_private, mcp_files, reason_of, short
from kimi_tui.base_url import host_of, is_loopback
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.foreign_text import one_line

Transport = Literal["stdio", "http", "sse"]
Origin = Literal["user", "project"]

PROJECT_FILE = ".mcp.json"
START_TIMEOUT_S = 30.0
"""Seconds in which a server must have started: the usual figure, as `npx` and `uvx` fetch packages first."""
_MOST_SERVERS = 64
_MAX_BYTES = 1 << 20
_LONGEST_TIMEOUT_S = 3600.0
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,200})(?::-([^}]{0,1000}))?\}")
_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "sse": "sse",
}


class BadEntry(Exception):
    """An entry of a file, or the file, cannot be used; the text says why, as a clause."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server as its file describes it. Values are as written, with variables not yet replaced.

    Attributes:
        name: the name, which is part of the names of its tools.
        transport: how it is reached: a program with pipes, streamable HTTP, or the older SSE.
        path: the file.
        origin: the owner of the file.
        command, args, env, cwd: the program of a `stdio` server.
        url, headers: the address of another one.
        network: whether its program has the network; None if the file does not say.
        readable: paths that its program may read besides those of commands in the sandbox.
        sandbox: whether its program runs in the sandbox.
        enabled: whether it is started.
        start_timeout_s, tool_timeout_s: limits in seconds; 0 for the usual one of tool calls.
        enabled_tools: the tools that are offered; empty for all.
        disabled_tools: the tools that are not.
        token_variable: the variable with a bearer token for the address; empty for none.
        client_id: the client that is registered at the server's OAuth login; empty to register one.
        callback_port: the port of the login's redirect; 0 for any.
    """

    name: str
    transport: Transport
    path: Path
    origin: Origin
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    network: bool | None = None
    readable: tuple[str, ...] = ()
    sandbox: bool = True
    enabled: bool = True
    start_timeout_s: float = START_TIMEOUT_S
    tool_timeout_s: float = 0.0
    enabled_tools: tuple[str, ...] = ()
    disabled_tools: tuple[str, ...] = ()
    token_variable: str = ""
    client_id: str = ""
    callback_port: int = 0

    @property
    def has_network(self) -> bool:
        """Whether its program has the network, if nobody was asked: the user's own servers have it unless their file says no."""
        return self.origin == "user" if self.network is None else self.network

    @property
    def target(self) -> str:
        """The command with its arguments, or the address, in one line, as written."""
        return one_line(self.url or " ".join((self.command, *self.args)))

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables of the user's environment that the entry is given, sorted."""
        texts = (
            *(self.command, *self.args, self.cwd, self.url),
            *(value for _, value in (*self.env, *self.headers)),
        )
        names = {found[1] for text in texts for found in _VARIABLE.finditer(text)}
        return tuple(sorted(names | ({self.token_variable} if self.token_variable else set())))

    def replaced(self, environ: Mapping[str, str]) -> tuple[ServerConfig, tuple[str, ...]]:
        """Return the server with variables replaced, and the names of those that are not set, which stay as written."""
        unset: dict[str, None] = {}

        def value_of(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            value = environ.get(name)
            if value or (value is not None and default is None):
                return value
            if default is not None:
                return default
            unset[name] = None
            return found[0]

        def filled(text: str) -> str:
            return _VARIABLE.sub(value_of, text)

        headers = tuple((name, filled(value)) for name, value in self.headers)
        if self.token_variable:
            token = environ.get(self.token_variable, "")
            if token:
                headers = (*headers, ("Authorization", f"Bearer {token}"))
            else:
                unset[self.token_variable] = None
        made = replace(
            self,
            command=filled(self.command),
            args=tuple(map(filled, self.args)),
            env=tuple((name, filled(value)) for name, value in self.env),
            cwd=filled(self.cwd),
            url=filled(self.url),
            headers=headers,
        )
        return made, tuple(unset)


class Found(NamedTuple):
    """The servers by name, in order, and sentences about what could not be used."""

    servers: tuple[ServerConfig, ...] = ()
    problems: tuple[str, ...] = ()


def config_files(work_dir: Path) -> list[tuple[Path, Origin]]:
    """Return the paths of all files, the first of which counts where a name is in several."""
    own, project, kimi_cli = mcp_files(work_dir)
    return [(own, "user"), (project, "project"), (kimi_cli, "user")]


def configured(work_dir: Path) -> Found:
    """Return all servers. It reads files, so call it in a thread."""
    servers: dict[str, ServerConfig] = {}
    problems: list[str] = []
    for path, origin in config_files(work_dir):
        try:
            entries = read_entries(path, origin)
        except FileNotFoundError:
            continue
        except (BadEntry, OSError) as error:
            why = reason_of(error, named_in_text=path)
            problems.append(f"The MCP servers of {short(path)} cannot be read: {why}.")
            continue
        for name, entry in entries.items():
            if name in servers:
                continue
            if len(servers) >= _MOST_SERVERS:
                problems.append(f"Only the first {_MOST_SERVERS} MCP servers are used.")
                break
            try:
                servers[name] = server_of(name, entry, path, origin)
            except BadEntry as bad:
                problems.append(
                    f'The MCP server "{one_line(name)[:40]}" in {short(path)} cannot be used: {bad}.'
                )
    return Found(tuple(servers.values()), tuple(problems))


def read_entries(path: Path, origin: Origin = "user") -> dict[str, Any]:
    """Return the entries of a file by their names, as they are.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read. A project's file must not be a link.
        BadEntry: it has another form.
    """
    data = read_regular(path, _MAX_BYTES, links=origin == "user")
    if not data.strip():
        return {}
    try:
        found = lenient_json.parse(data)
    except ValueError as error:
        raise BadEntry(f"it is not valid JSON ({one_line(str(error))[:120]})") from error
    entries = lenient_json.mapping(found).get("mcpServers", {})
    if not isinstance(found, dict) or not isinstance(entries, dict):
        raise BadEntry('it has no object "mcpServers"')
    return lenient_json.mapping(entries)


def check_name(name: str) -> None:
    """Check the name of a server.

    Raises:
        BadEntry: it cannot be a part of the names of tools.
    """
    if not _NAME.fullmatch(name) or "__" in name:
        raise BadEntry(
            "a name has 1 to 32 letters, digits, hyphens and single underscores, and begins with a letter or digit"
        )


def server_of(name: str, entry: object, path: Path, origin: Origin) -> ServerConfig:
    """Return the server that an entry describes.

    Raises:
        BadEntry: it cannot be used.
    """
    check_name(name)
    if not isinstance(entry, dict):
        raise BadEntry("the entry is not an object")
    read = _Entry(lenient_json.mapping(entry))
    kind = read.text("type") or read.text("transport")
    url, command = read.text("url"), read.text("command")
    if kind and kind not in _TRANSPORTS:
        raise BadEntry(f'"{one_line(kind)[:40]}" is not a type; use stdio, http or sse')
    transport = _TRANSPORTS[kind] if kind else "http" if url else "stdio"
    if transport == "stdio" and not command.strip():
        raise BadEntry('it has neither "command" nor "url"')
    if transport != "stdio":
        check_url(url)
    return ServerConfig(
        name=name,
        transport=transport,
        path=path,
        origin=origin,
        command=command if transport == "stdio" else "",
        args=read.texts("args"),
        env=read.pairs("env"),
        cwd=read.text("cwd"),
        url=url if transport != "stdio" else "",
        headers=read.pairs("headers"),
        network=read.flag("network"),
        readable=read.texts("readable"),
        sandbox=read.flag("sandbox") is not False,
        enabled=read.flag("enabled") is not False and read.flag("disabled") is not True,
        start_timeout_s=read.seconds("startupTimeoutMs") or START_TIMEOUT_S,
        tool_timeout_s=read.seconds("toolTimeoutMs") or read.seconds("timeout"),
        enabled_tools=read.texts("enabledTools"),
        disabled_tools=read.texts("disabledTools"),
        token_variable=read.text("bearerTokenEnvVar"),
        client_id=read.text("oauthClientId"),
        callback_port=int(read.number("oauthCallbackPort")),
    )


def check_url(url: str) -> None:
    """Check the address of a server.

    Raises:
        BadEntry: it is not one of HTTP.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = None, None
    # A variable may be a part of the address; it is checked again with its value.
    if "${" in url:
        return
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise BadEntry(
            f'"{one_line(url)[:80]}" is not an address that begins with https:// or http://'
        )
    if parts.username or parts.password:
        raise BadEntry("its address has a user or a password; put them into headers")


def check_encryption(config: ServerConfig, *, has_login: bool = False) -> None:
    """Check that no secret crosses a network unencrypted. As with models' servers, each header may be one.

    Args:
        config: the server, with variables replaced.
        has_login: whether the token of a login is sent too.

    Raises:
        BadEntry: one would; the text says to which host, and what to do.
    """
    host = host_of(config.url)
    if config.url.lower().startswith("https://") or is_loopback(host):
        return
    if config.token_variable:
        what, remedy = f"the token of {config.token_variable}", 'leave out "bearerTokenEnvVar"'
    elif config.headers:
        what, remedy = "its headers", "leave out the headers"
    elif has_login:
        what, remedy = "its login", "use it without one"
    else:
        return
    raise BadEntry(
        f"{what} would be sent to {one_line(host)[:60]} unencrypted; use https, or {remedy} "
        f"({short(config.path)})"
    )


class _Entry:
    """Reads the fields of an entry; a field of another type is a `BadEntry`."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        value = self._fields.get(name, "")
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BadEntry(f'"{name}" is not a string')
        if "\0" in value:
            raise BadEntry(f'"{name}" contains the character U+0000')
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value: object = self._fields.get(name) or []
        if not isinstance(value, list):
            raise BadEntry(f'"{name}" is not a list of strings')
        found = lenient_json.listing(value)
        if not all(isinstance(one, str) and "\0" not in one for one in found):
            raise BadEntry(f'"{name}" is not a list of strings')
        return tuple(found)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        value: object = self._fields.get(name) or {}
        if not isinstance(value, dict):
            raise BadEntry(f'"{name}" is not an object with strings')
        found: dict[str, str] = {}
        for key, one in lenient_json.mapping(value).items():
            text = json.dumps(one) if isinstance(one, bool | int | float) else one
            if (
                not isinstance(text, str)
                or re.search(r"[\0\r\n]", text)
                or re.search(r"[\0\r\n=:]", key)
            ):
                raise BadEntry(
                    f'"{name}" has a value that cannot be used for "{one_line(key)[:40]}"'
                )
            found[key] = text
        return tuple(found.items())

    def flag(self, name: str) -> bool | None:
        value = self._fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise BadEntry(f'"{name}" is neither true nor false')
        return value

    def number(self, name: str) -> float:
        value = self._fields.get(name) or 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise BadEntry(f'"{name}" is not a number')
        return float(value)

    def seconds(self, name: str) -> float:
        return min(self.number(name) / 1000, _LONGEST_TIMEOUT_S)


def write_entry(path: Path, name: str, entry: Mapping[str, object] | None) -> None:
    """Add, replace or (None) remove an entry of a file; the others stay as they are.

    Raises:
        BadEntry: the file has another form.
        OSError: it cannot be read or written.
    """
    whole: dict[str, Any] = {}
    try:
        # The user's dotfiles are often links, and the file behind the link is the one to change.
        real = path.resolve() if path.is_symlink() else path
        data = read_regular(real, _MAX_BYTES)
    except FileNotFoundError:
        real = path
    else:
        read_entries(real)
        whole = lenient_json.mapping(lenient_json.parse(data)) if data.strip() else {}
    entries = {**lenient_json.mapping(whole.get("mcpServers"))}
    if entry is None:
        entries.pop(name, None)
    else:
        entries[name] = dict(entry)
    whole["mcpServers"] = entries
    if path.name != PROJECT_FILE:
        make_private(real.parent)
    text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    Storage().replace_file(real, text.encode(), shared=path.name == PROJECT_FILE)
