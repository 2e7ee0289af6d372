"""Mixed Markdown in tokens: headings, prose, lists, tables and code, always the same for a given length."""

from __future__ import annotations

import re
from itertools import count


def end_of(n_tokens: int) -> str:
    """Return the last word of an answer of this length; it appears nowhere else, so the screen shows when all is drawn."""
    return f"END{n_tokens}ANSWER"


_PROSE = (
    "The tokenizer walks the line once and keeps two numbers: where the field began and where it is now. "
    "When it meets a quote it looks one character ahead, because a doubled quote is *part of the field* and "
    "a single one ends it. That is **all** the state there is, so a line can be read `again` at any time."
)


def _section(n: int) -> str:
    return (
        f"## Part {n}: reading the fields\n\n{_PROSE}\n\n"
        "- the first field is short, and plain\n- the second has a [link](https://example.org/a) in it\n"
        "- the third is **strong** and a little longer than the others, so that it wraps\n"
        "  - one below it\n\n"
        "1. read the line\n2. split it\n3. check the number of fields\n\n"
        f"```python\ndef part_{n}(line: str, at: int = 0) -> list[str]:\n"
        '    """The fields of one line."""\n    found: list[str] = []\n'
        "    while at <= len(line):\n        value, at = field(line, at)  # one field\n"
        "        found.append(value)\n    return found\n```\n\n"
        "| field | type | note |\n|---|---|---|\n"
        f"| id | number | row {n} |\n| name | text | may hold a comma |\n| city | text | may be empty |\n\n"
        f"{_PROSE}\n\n"
    )


def tokens(n_tokens: int) -> list[str]:
    """Return `n_tokens` pieces of about six characters (as models write them) whose text ends in `end_of(n_tokens)`."""
    pieces: list[str] = []
    for section in count(1):
        # Words of any length are cut into pieces like those of a tokenizer.
        pieces += re.findall(r"\s*\S{1,12}(?: \S{1,2}(?=\s))?|\s+\Z", _section(section))
        if len(pieces) >= n_tokens:
            break
    text_end = (
        ["\n", "```\n\n"] if "".join(pieces[: n_tokens - 4]).count("```") % 2 else ["\n\n", ""]
    )
    return [*pieces[: n_tokens - 4], *text_end, "Done: ", end_of(n_tokens)]
