"""The argument parser of the command line: what is wrong is said in one line with exit code 2, `--help` has the rest."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from typing import NoReturn

from kimi_tui.foreign_text import one_line

DONE = 0
FAILED = 1
USAGE = 2
CONFLICTS = 3
HELD = 4
"""Exit codes: done, failed, wrong use, done but conflicts were left alone, someone has the session open."""

_MAX_DIGITS = 9


class Parser(ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Leave with the usage code."""
        self.exit(USAGE, f"kimi-tui: {one_line(message)}; see {self.prog} --help\n")


def command(name: str, description: str) -> Parser:
    """The parser of `kimi-tui NAME`, which is about one session and can answer in JSON."""
    parser = Parser(prog=f"kimi-tui {name}", description=description, allow_abbrev=False)
    parser.add_argument(
        "--session", metavar="ID", help="which session (default: the newest of this folder)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def checkpoint_number(text: str) -> int:
    """`7` or `#7`."""
    number = _number(text.removeprefix("#"))
    if number is None:
        raise ArgumentTypeError(f"the number of a checkpoint is needed, not {text!r}")
    return number


def line_number(text: str) -> int:
    """The number of a world line, from 1."""
    number = _number(text)
    if not number:
        raise ArgumentTypeError(f"the number of a world line is needed (1, 2, …), not {text!r}")
    return number


def place_on_a_line(text: str) -> tuple[int, int | None]:
    """`K` for all of world line K, `K:N` for what precedes its checkpoint N."""
    line, colon, point = text.partition(":")
    return line_number(line), checkpoint_number(point) if colon else None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(rf"[0-9]{{1,{_MAX_DIGITS}}}", text) else None
