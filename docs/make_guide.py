"""Fills in the guide what the program itself knows, keys and commands: `python docs/make_guide.py`.

What stands between `<!-- keys: Timeline -->` (a title of the help), `<!-- commands -->` or `<!-- subcommands -->` and the next
`<!-- end -->` is made anew; all else is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kimi_tui.commands.dispatch import COMMANDS as SUBCOMMANDS
from kimi_tui.tui.dialogs.help import FIRST, sections
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.main.commands.table import COMMANDS
from kimi_tui.tui.timeline.legend import legend

GUIDE = Path(__file__).resolve().parent / "guide"
_PLACE = re.compile(
    r"(<!-- (keys: ([^>]+)|commands|subcommands) -->\n).*?(<!-- end -->)", re.DOTALL
)


def filled(page: str) -> str:
    """The page with its tables as they are now.

    Raises:
        KeyError: the help has no such title.
    """
    return _PLACE.sub(lambda found: f"{found[1]}{_table(found[2], found[3])}{found[4]}", page)


def keys_of_places() -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the keys of each place that the help lists besides commands, and what they do."""
    return {
        title: tuple(pairs)
        for title, pairs in sections(COMMANDS, {}, UNICODE)
        if title not in ("Commands", FIRST)
    }


def _table(what: str, title: str | None) -> str:
    if title is not None:
        pairs = keys_of_places()[title]
        is_legend = title in {one for one, _ in legend(UNICODE)}
        head = ("sign", "meaning") if is_legend else ("key", "does")
        return _rows(head, ((f"`{key}`", words) for key, words in pairs))
    if what == "subcommands":
        return _rows(
            ("command", "does"), ((f"`kimi-tui {one}`", said) for one, said in SUBCOMMANDS.items())
        )
    return _rows(
        ("command", "does"), ((f"`{one.usage}`", _said(one.name, one.help)) for one in COMMANDS)
    )


def _said(name: str, words: str) -> str:
    key = key_of(name, {})
    return f"{words} `{key}`" if key else words


def _rows(head: tuple[str, str], pairs: Iterable[tuple[str, str]]) -> str:
    rows = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    rows += [f"| {one.replace('|', chr(92) + '|')} | {words} |" for one, words in pairs]
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write the pages anew."""
    for path in sorted(GUIDE.glob("*.md")):
        path.write_text(filled(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
