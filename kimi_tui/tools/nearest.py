"""What the model probably meant: the nearest file name, tool name or passage of a text.

All searches are bounded, so that a huge folder or a hostile text costs no more than a fraction of a second.
"""

from __future__ import annotations

import difflib
import os
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

_NAMES_LIMIT = 5000
_LINES_LIMIT = 20_000
_PASSAGE_LINES = 20
_LINE_CHARS = 200
_SEARCH_S = 0.25


def nearest_words(wanted: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """Those of `known` that look most like `wanted`, without regard to case."""
    by_fold = {name.casefold(): name for name in known}
    matches = difflib.get_close_matches(wanted.casefold(), list(by_fold), n=limit, cutoff=0.55)
    return [by_fold[match] for match in matches]


def nearest_names(wanted: str, folder: Path) -> list[str]:
    """Names in the folder that look like `wanted`; empty where it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            names = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, _NAMES_LIMIT)
            ]
    except OSError:
        return []
    return nearest_words(wanted, names)


def nearest_passage(text: str, wanted: str) -> str:
    """The lines of `text` that look most like `wanted`, each with its number; empty where nothing is alike."""
    lines = text.split("\n")[:_LINES_LIMIT]
    asked = [line.strip() for line in wanted.strip("\n").split("\n")][:_LINES_LIMIT]
    start = _start_by_equal_lines(lines, asked)
    if start is None:
        start = _start_by_alike_line(lines, asked)
    if start is None:
        return ""
    shown = lines[start : start + min(max(len(asked), 1), _PASSAGE_LINES)]
    return "\n".join(f"{start + i + 1:>6}\t{line[:_LINE_CHARS]}" for i, line in enumerate(shown))


def _start_by_equal_lines(lines: list[str], asked: list[str]) -> int | None:
    """Where the most lines are equal but for the blanks around them: each equal line votes for a start."""
    places: dict[str, list[int]] = {}
    for offset, line in enumerate(asked):
        if len(line) > 1:
            places.setdefault(line, []).append(offset)
    votes: Counter[int] = Counter()
    for number, line in enumerate(lines):
        for offset in places.get(line.strip(), ())[:8]:
            votes[max(number - offset, 0)] += 1
    if not votes:
        return None
    most = max(votes.values())
    return min(start for start, count in votes.items() if count == most)


def _start_by_alike_line(lines: list[str], asked: list[str]) -> int | None:
    longest = max(range(len(asked)), key=lambda i: len(asked[i]), default=0)
    if not asked or not asked[longest]:
        return None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(asked[longest][:_LINE_CHARS])
    best, found = 0.6, None
    deadline = time.monotonic() + _SEARCH_S
    for number, line in enumerate(lines):
        if time.monotonic() > deadline:
            break
        matcher.set_seq1(line.strip()[:_LINE_CHARS])
        if matcher.real_quick_ratio() <= best or matcher.quick_ratio() <= best:
            continue
        ratio = matcher.ratio()
        if ratio > best:
            best, found = ratio, max(number - longest, 0)
    return found
