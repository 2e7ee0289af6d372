"""The parts of the command line that commands share: parsing arguments, exit codes, tables and JSON, and asking for a yes."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, HelpFormatter
from collections.abc import Sequence
from typing import NoReturn

from kimi_tui.foreign_text import one_line
from kimi_tui.program import USAGE

_MAX_DIGITS = 9
_LEAST_WIDTH = 16
"""Cells that a column of a table keeps on a narrow terminal."""
_MOST_PADDED = 80
"""Cells to which shorter texts of a column are padded if nothing is cut."""


class CommandLineParser(ArgumentParser):
    """An argument parser that reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with the usage code."""
        self.exit(USAGE, f"kimi-tui: {one_line(message)}; see {self.prog} --help\n")


class ListingFormatter(HelpFormatter):
    """A formatter that keeps the lines of a description; a line that is too long goes on below its second column."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from textwrap import fill

        lines: list[str] = []
        for line in text.splitlines():
            name = re.match(r"  \S+ +", line)
            behind = " " * (name.end() if name else 0)
            lines.append(
                fill(line, width, initial_indent=indent, subsequent_indent=indent + behind)
            )
        return "\n".join(lines)


def command(name: str, description: str) -> CommandLineParser:
    """Return the parser of `kimi-tui NAME`, a command about one session that can answer in JSON."""
    parser = CommandLineParser(prog=f"kimi-tui {name}", description=description, allow_abbrev=False)
    parser.add_argument(
        "--session",
        metavar="ID",
        help="the id of the session (default: the newest session of this folder)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def checkpoint_number(text: str) -> int:
    """Parse the number of a checkpoint, `7` or `#7`."""
    number = _number(text.removeprefix("#"))
    if number is None:
        raise ArgumentTypeError(f"{text!r} is not the number of a checkpoint")
    return number


def line_number(text: str) -> int:
    """Parse the number of a world line, from 1."""
    number = _number(text)
    if not number:
        raise ArgumentTypeError(
            f"{text!r} is not the number of a world line (a branch of the conversation; 1, 2, …)"
        )
    return number


def with_world_line(parser: CommandLineParser, about: str) -> CommandLineParser:
    """Add the option `--world-line K` and return the parser; without the option, `world_line` is 0, the current one.

    Args:
        parser: the parser of the command.
        about: what the option chooses, for its help.
    """
    parser.add_argument("--world-line", metavar="K", type=line_number, default=0, help=about)
    return parser


def place_on_a_line(text: str) -> tuple[int, int | None]:
    """Parse `K` (all of world line K) or `K:N` (the part of it before checkpoint N)."""
    line, colon, point = text.partition(":")
    return line_number(line), checkpoint_number(point) if colon else None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(rf"[0-9]{{1,{_MAX_DIGITS}}}", text) else None


def say(message: str) -> None:
    """Print a line for the user on standard output."""
    print(one_line(message))


def complain(message: str) -> None:
    """Print one line on standard error; the command continues if standard error is closed."""
    with contextlib.suppress(OSError):
        print(f"kimi-tui: {one_line(message)}", file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a value as one JSON document."""
    print(json.dumps(value, ensure_ascii=True, indent=2))


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print rows under a header, columns two cells apart; foreign text is cleaned.

    On a terminal the texts of the widest column lose their middle, so that each row fits. Elsewhere nothing is shortened, and
    one long text does not widen the other rows.

    Args:
        right: the columns to align at their right end.
    """
    # The parser of this module is made at starts that print no table.
    from rich.cells import cell_len

    from kimi_tui.tui.formatting import cut_middle

    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(head))]
    is_terminal = sys.stdout.isatty()
    if is_terminal:
        columns = shutil.get_terminal_size().columns - 2 * (len(head) - 1)
        while (over := sum(widths) - columns) > 0 and max(widths) > _LEAST_WIDTH:
            widest = widths.index(max(widths))
            widths[widest] = max(widths[widest] - over, _LEAST_WIDTH)
    else:
        widths = [min(width, _MOST_PADDED) for width in widths]
    for row in cells:
        parts: list[str] = []
        for column, text in enumerate(row):
            shown = cut_middle(text, widths[column]) if is_terminal else text
            padding = " " * (widths[column] - cell_len(shown))
            parts.append(padding + shown if column in right else shown + padding)
        print("  ".join(parts).rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and their values, one pair per line."""
    from rich.cells import cell_len

    width = max((cell_len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        print(f"{name}{' ' * (width - cell_len(name))}  {one_line(text)}".rstrip())


def confirmed(question: str) -> bool:
    """Return whether the user says yes; anything but a clear yes, or no terminal to ask in, counts as no."""
    if not sys.stdin.isatty():
        complain(f"{question} This needs a terminal to answer; use --yes to answer yes.")
        return False
    try:
        return input(f"{one_line(question)} [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False
