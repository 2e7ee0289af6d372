"""`kimi-tui serve`: serves the app to a browser."""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Sequence
from importlib.util import find_spec

from kimi_tui.app_paths import bare_reason, log_file
from kimi_tui.commands.console import CommandLineParser, complain, say
from kimi_tui.logging_setup import begin_logging
from kimi_tui.mcp.package import install_line
from kimi_tui.program import FAILED, USAGE

REQUIREMENT = "textual-serve>=1.1.3,<2"
"""The package that has the terminal in the page; it needs aiohttp itself."""


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui serve ARGUMENTS`; return the exit code."""
    parser = CommandLineParser(
        prog="kimi-tui serve",
        usage="%(prog)s [--port PORT] [--host ADDRESS] [-- ARGUMENTS]",
        description="Serve the app to a browser on this machine. Open the printed address; the token in it lets you in. "
        "Each tab runs kimi-tui with the ARGUMENTS in this folder, for example: kimi-tui serve -- --continue",
    )
    parser.add_argument("--port", type=_port, default=0, help="the port (default: a free one)")
    parser.add_argument(
        "--host",
        type=_address,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listen on another address of this machine; then everybody who sees the network traffic can read the token and "
        "run commands as you",
    )
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    if missing := _missing():
        complain(missing)
        return FAILED
    begin_logging(log_file())
    from kimi_tui.browser.server import Served, serve

    if not ipaddress.ip_address(options.host).is_loopback:
        complain(
            f"listening on {options.host}, not only on this machine. The connection is not encrypted: whoever can read it can "
            "run commands as you. Use an SSH tunnel instead: ssh -L PORT:127.0.0.1:PORT HOST"
        )
    served = Served(tuple(arguments[at + 1 :]), os.getcwd(), options.host, options.port)
    try:
        return serve(served, _tell)
    except OSError as error:
        complain(f"{options.host}:{options.port} cannot be used: {bare_reason(error)}.")
        return USAGE


def _tell(address: str) -> None:
    say(address)
    say(f"To watch the newest tab without typing in it: {address.replace('/#', '/?watch#')}")
    say("Press Ctrl+C to stop.")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65_536):
        raise argparse.ArgumentTypeError(f'"{text}" is not a port; use a number from 0 to 65535')
    return int(text)


def _address(text: str) -> str:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        found = None
    if found is None:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not an IP address; use one such as 127.0.0.1'
        )
    if found.is_unspecified:
        raise argparse.ArgumentTypeError(
            f'"{text}" means all addresses; use one address of this machine, such as 127.0.0.1'
        )
    return str(found)


def _missing() -> str:
    """Return that packages are missing, with the line that installs them; empty if they are there."""
    if all(map(find_spec, ("aiohttp", "textual_serve"))):
        return ""
    return (
        "kimi-tui serve needs the Python package textual-serve, which is not installed. "
        f"Install it with: {install_line(requirement=REQUIREMENT)}"
    )
