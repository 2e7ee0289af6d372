"""`kimi-tui mcp`: add, remove, list and test MCP servers, and log in at their addresses."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from kimi_tui.app_paths import data_dir, mcp_files, short
from kimi_tui.commands.console import CommandLineParser, complain, print_json, print_table, say
from kimi_tui.display_names import counted
from kimi_tui.foreign_text import one_line, visible
from kimi_tui.mcp.config import (
    BadEntry,
    Found,
    ServerConfig,
    check_encryption,
    configured,
    read_entries,
    server_of,
    write_entry,
)
from kimi_tui.mcp.package import NoPackage, check
from kimi_tui.mcp.permissions import Permissions
from kimi_tui.program import DONE, FAILED, USAGE

_VERBS = {
    "add": "add a server, or replace one",
    "remove": "remove a server",
    "list": "list the servers of this folder, with their files",
    "test": "start a server and list its tools",
    "login": "log in to a server",
    "logout": "log out of a server",
    "revoke": "revoke the permission of an MCP server of this folder",
}


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui mcp ARGUMENTS`; return the exit code."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, command = arguments[:at], arguments[at + 1 :]
    parser = _parser()
    options = parser.parse_args(own)
    if command and options.verb != "add":
        parser.error("only add takes a command after --")
    try:
        match options.verb:
            case "add":
                return _add(options, command)
            case "remove":
                return _remove(options)
            case "list":
                return _list(json=options.json)
            case "test":
                return asyncio.run(_test(_named(options.name)))
            case "login":
                check()
                return asyncio.run(_login(_named(options.name), opens=not options.no_browser))
            case "revoke":
                return _revoke(options.name)
            case _:
                return _logout(_named(options.name))
    except NoPackage as no:
        complain(str(no))
        return FAILED
    except BadEntry as bad:
        complain(f"{str(bad)[:1].upper()}{str(bad)[1:]}.")
        return USAGE


def _parser() -> CommandLineParser:
    parser = CommandLineParser(
        prog="kimi-tui mcp",
        description="Set up MCP servers, whose tools the agent uses. docs/mcp.md describes the configuration file.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    made = {
        name: verbs.add_parser(
            name, help=about, description=f"{about[:1].upper()}{about[1:]}.", allow_abbrev=False
        )
        for name, about in _VERBS.items()
    }
    add = made["add"]
    add.usage = "%(prog)s NAME [OPTIONS] (URL | -- COMMAND [ARGUMENT]...)"
    add.add_argument("name", metavar="NAME")
    add.add_argument("url", metavar="URL", nargs="?", default="", help="the address of a server")
    add.add_argument(
        "-t",
        "--transport",
        choices=("stdio", "http", "sse"),
        help="the transport (default: http for a URL, stdio for a command)",
    )
    add.add_argument(
        "-e",
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_pair_of("=", "a variable"),
        help="an environment variable for the server; ${VAR} in VALUE is replaced with your environment variable VAR",
    )
    add.add_argument(
        "-H",
        "--header",
        metavar="NAME: VALUE",
        action="append",
        default=[],
        type=_pair_of(":", "a header"),
        help="a header of the requests to the server; ${VAR} in VALUE is replaced with your environment variable VAR",
    )
    add.add_argument(
        "--no-network", action="store_true", help="the server's program cannot use the network"
    )
    add.add_argument(
        "--readable",
        metavar="PATH",
        action="append",
        default=[],
        help="a path that the server's program may read",
    )
    add.add_argument(
        "--no-sandbox", action="store_true", help="the server's program runs outside the sandbox"
    )
    for name in ("add", "remove"):
        made[name].add_argument(
            "--project",
            action="store_true",
            help="use .mcp.json of this folder instead of your own file",
        )
    for name in ("remove", "test", "login", "logout", "revoke"):
        made[name].add_argument("name", metavar="NAME")
    made["list"].add_argument("--json", action="store_true", help="print JSON")
    made["login"].add_argument("--no-browser", action="store_true", help="only print the address")
    return parser


def _pair_of(sign: str, what: str) -> Any:
    def pair(text: str) -> tuple[str, str]:
        name, found, value = text.partition(sign)
        if not found or not name.strip():
            raise ArgumentTypeError(f"{text!r} is not {what} of the form NAME{sign}VALUE")
        return name.strip(), value.strip() if sign == ":" else value

    return pair


def _file(*, project: bool) -> Path:
    own, folder, _ = mcp_files(Path.cwd())
    return folder if project else own


def _add(options: Any, command: Sequence[str]) -> int:
    if bool(options.url) == bool(command):
        raise BadEntry("name the server's address, or its command after --")
    entry: dict[str, object] = {}
    if command:
        entry |= {"command": command[0], "args": [*command[1:]]}
        if options.env:
            entry["env"] = dict(options.env)
        if options.no_network:
            entry["network"] = False
        if options.readable:
            entry["readable"] = [
                os.path.abspath(os.path.expanduser(one)) for one in options.readable
            ]
        if options.no_sandbox:
            entry["sandbox"] = False
    else:
        entry |= {"type": options.transport or "http", "url": options.url}
        if options.header:
            entry["headers"] = dict(options.header)
    path = _file(project=options.project)
    made = server_of(options.name, entry, path, "user")
    if made.headers and "${" not in made.url:
        check_encryption(made)
    existed = _has(path, options.name)
    write_entry(path, options.name, entry)
    verb = "Replaced" if existed else "Added"
    say(
        f"{verb} the MCP server {made.name} in {short(path)}. To test it, run kimi-tui mcp test {made.name}."
    )
    return DONE


def _has(path: Path, name: str) -> bool:
    try:
        return name in read_entries(path)
    except FileNotFoundError:
        return False


def _remove(options: Any) -> int:
    path = _file(project=options.project)
    if not _has(path, options.name):
        raise BadEntry(f'there is no MCP server "{one_line(options.name)[:40]}" in {short(path)}')
    write_entry(path, options.name, None)
    say(f"Removed the MCP server {options.name} from {short(path)}.")
    return DONE


def _named(name: str) -> ServerConfig:
    found = configured(Path.cwd())
    for one in found.servers:
        if one.name == name:
            return one
    for words in found.problems:
        complain(words)
    raise BadEntry(f'there is no MCP server "{one_line(name)[:40]}"; kimi-tui mcp list shows all')


def _list(*, json: bool) -> int:
    found = configured(Path.cwd())
    permissions = Permissions(Path.cwd())
    states = {one.name: _state(one, permissions) for one in found.servers}
    for words in found.problems:
        complain(words)
    if json:
        print_json(
            [
                {
                    "name": one.name,
                    "type": one.transport,
                    "target": one.target,
                    "file": str(one.path),
                    "state": states[one.name],
                }
                for one in found.servers
            ]
        )
    elif not found.servers:
        say("No MCP server is configured. kimi-tui mcp add NAME -- COMMAND adds one.")
    else:
        rows = [[one.name, one.target, short(one.path), states[one.name]] for one in found.servers]
        print_table(["NAME", "COMMAND OR ADDRESS", "FILE", "STATE"], rows)
    return DONE


def _state(one: ServerConfig, permissions: Permissions) -> str:
    if not one.enabled or "" in permissions.switched_off(one):
        return "off"
    if permissions.yes_to(one) is None:
        return "not allowed"
    return "on"


class _Console:
    """The host of a server that is tried: no session, and the usual sandbox."""

    def __init__(self) -> None:
        self.work_dir = Path.cwd()
        self.results = data_dir()
        self.told: list[str] = []

    async def window(self) -> int:
        return 0

    async def sandbox(self) -> Any:
        from kimi_tui.app_paths import config_dir
        from kimi_tui.config.file import read_config
        from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
        from kimi_tui.tools.sandbox.sandbox import find_sandbox

        def find() -> Any:
            settings = SandboxSettings(*read_config(config_dir() / "config.toml").sandbox)
            try:
                return find_sandbox(settings, os.environ, self.work_dir), ""
            except NoSandbox as no:
                return None, str(no)

        return await asyncio.to_thread(find)

    def change_tools(self, added: Iterable[Any], removed: Collection[str]) -> None:
        """Do nothing: there is no session."""

    def tell(
        self,
        level: Literal["info", "warning", "error"],
        text: str,
        advice: str,
        topic: str,
        *,
        solved: bool,
    ) -> None:
        self.told.append(f"{text} {advice}".strip())


async def _test(config: ServerConfig) -> int:
    from kimi_tui.mcp.servers import McpServers

    host, began = _Console(), time.monotonic()
    servers = McpServers(
        Found((config,)), host, os.environ, Permissions(Path.cwd()), is_attended=False
    )
    servers.start()
    try:
        await servers.started()
        row = servers.named(config.name)
        for words in host.told:
            complain(words)
        if row.state != "ready":
            return FAILED
        tokens = sum(one.tokens for one in row.tools)
        say(
            f"{config.name} connected after {time.monotonic() - began:.1f} s ({row.why}), {row.place}: "
            f"{counted(len(row.tools), 'tool')}, about {tokens:,} tokens in each request."
        )
        if row.tools:
            print_table(
                ["TOOL", "TOKENS", "DESCRIPTION"],
                [
                    [visible(one.raw), f"{one.tokens:,}", one_line(one.description)]
                    for one in row.tools
                ],
            )
        return DONE
    finally:
        await servers.aclose()


async def _login(config: ServerConfig, *, opens: bool) -> int:
    from kimi_tui.mcp.oauth import LoginFailed, login

    if not config.url:
        raise BadEntry(f"{config.name} is a local program (no URL), so it needs no login")
    made, unset = config.replaced(os.environ)
    if unset:
        raise BadEntry(f"environment variable not set: {', '.join(unset)}")

    async def shown(url: str) -> None:
        say("Open this address and log in there:")
        say(f"  {visible(url)}")
        say(
            "If the browser is on another machine, copy the address of the page that it shows after the login, even if that page does not load, and paste it here:"
        )
        sys.stdout.flush()
        if opens and not os.environ.get("SSH_CONNECTION"):
            import webbrowser

            await asyncio.to_thread(webbrowser.open, url)

    reader = asyncio.StreamReader(limit=64 << 10)
    try:
        if not sys.stdin.isatty() and stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
            # The event loop takes /dev/null for a pipe, and then cannot wait for it.
            raise ValueError("nobody can paste anything")
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
    except (OSError, ValueError):
        reader.feed_eof()

    n_pasted = 0

    async def pasted() -> str:
        nonlocal n_pasted
        n_pasted += 1
        if n_pasted > 1:
            say(
                'That is not the address of the page that the browser shows after the login, which contains "code=". Paste the whole address:'
            )
            sys.stdout.flush()
        line = await reader.readline()
        if not line:
            # Nobody can paste anything; the redirect may still come.
            await asyncio.Event().wait()
        return line.decode("utf-8", "replace")

    try:
        await login(made, shown, pasted)
    except LoginFailed as failed:
        complain(f"Could not log in to {config.name}: {failed}.")
        return FAILED
    say(f"Logged in to {config.name}.")
    return DONE


def _revoke(name: str) -> int:
    if not Permissions(Path.cwd()).revoke(name):
        allowed = ", ".join(Permissions(Path.cwd()).allowed)
        raise BadEntry(
            f'you have not allowed an MCP server "{one_line(name)[:40]}" in this folder'
            f"{f'; allowed: {one_line(allowed)}' if allowed else ''}"
        )
    say(
        f"The permission of the MCP server {name} was revoked. The server does not start until you allow it again in /mcp."
    )
    return DONE


def _logout(config: ServerConfig) -> int:
    from kimi_tui.mcp.package import check as check_package

    check_package()
    from kimi_tui.mcp.oauth import Keeping

    made, _ = config.replaced(os.environ)
    if Keeping(made).forget():
        say(f"Logged out of {config.name}.")
    else:
        say(f"You were not logged in to {config.name}.")
    return DONE
