"""How commands print: plain aligned tables for people, JSON for scripts, one line on stderr for what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from kimi_tui.foreign_text import one_line


def say(message: str) -> None:
    """A line for the person on standard output."""
    print(one_line(message))


def complain(message: str) -> None:
    """One line on standard error."""
    print(f"kimi-tui: {one_line(message)}", file=sys.stderr)


def print_json(value: object) -> None:
    """The value as one JSON document."""
    print(json.dumps(value, ensure_ascii=True, indent=2))


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Rows under a head, columns two cells apart; foreign text is cleaned.

    Args:
        right: the columns to align at their right end.
    """
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        parts = [
            " " * (widths[column] - cell_len(text)) + text
            if column in right
            else set_cell_size(text, widths[column])
            for column, text in enumerate(row)
        ]
        print("  ".join(parts).rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and what is to be said of them, below each other."""
    width = max((cell_len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        print(f"{name}{' ' * (width - cell_len(name))}  {one_line(text)}".rstrip())


def confirmed(question: str) -> bool:
    """Whether the person says yes; anything but a clear yes, or no terminal to ask on, is a no."""
    if not sys.stdin.isatty():
        complain(f"{question} Not asked, since there is no terminal: give --yes.")
        return False
    try:
        return input(f"{one_line(question)} [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False
