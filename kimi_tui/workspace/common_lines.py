"""Which lines two texts have in common, in bounded time.

Their common beginning and end are found by comparisons of slices, without a list of lines; between them small differences are
compared exactly and large ones by windows of lines that come again nearby. A line is a text up to and including its line feed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

_WINDOW_LINES = 3
"""Equal lines in a row that count as the same place again after a change."""
_NEAR_LINES = 400
"""Lines on each side of a change among which that place is looked for."""
_NEAR_CHARS = 16_000
"""Characters behind a change among which that place is looked for in the texts."""
_MOST_PAIRS = 250_000
"""Pairs of lines that are compared exactly; larger changes are compared by lines that are unique on both sides."""


class EqualLines(NamedTuple):
    """Lines that are the same on both sides: their places, and how many they are."""

    old: int
    new: int
    n: int


def split_lines(text: str) -> list[str]:
    """Return the lines with their line feeds."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def count_lines(text: str, start: int) -> int:
    """Return the number of lines from a place on."""
    whole = text.count("\n", start)
    return whole + (start < len(text) and not text.endswith("\n"))


def common_head(old: str, new: str) -> int:
    """Return the length of the whole lines that both texts begin with."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return old.rfind("\n", 0, low) + 1


def common_tail(old: str, new: str, head: int) -> int:
    """Return the length of the whole lines that both texts end with, behind their common head."""
    low, high = 0, min(len(old), len(new)) - head
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    start = len(old) - low
    if _begins_line(old, start) and _begins_line(new, len(new) - low):
        return low
    line = old.find("\n", start)
    return 0 if line < 0 else len(old) - line - 1


def _begins_line(text: str, place: int) -> bool:
    return place == 0 or text[place - 1] == "\n"


def common_lines(old: str, new: str, n_lines: int = -1) -> Iterator[EqualLines]:
    """Yield the lines that two texts have in common, in order; runs may touch one another. The last run is empty and at both ends.

    Args:
        old: the one text.
        new: the other one.
        n_lines: the number of lines of the old one; -1 if it is not known.
    """
    head = common_head(old, new)
    tail = common_tail(old, new, head)
    old_end, new_end = len(old) - tail, len(new) - tail
    n_tail = count_lines(old, old_end) if n_lines < 0 or tail < head else -1
    if n_lines >= 0 and n_tail >= 0:
        n_old = n_new = n_lines - n_tail - count_lines(old[head:old_end], 0)
    else:
        n_old = n_new = old.count("\n", 0, head)
    if head:
        yield EqualLines(0, 0, n_old)
    i = j = head
    while i < old_end and j < new_end:
        place = _next_place(old, new, i, j, old_end, new_end)
        x, y = place or (old_end, new_end)
        before, after = split_lines(old[i:x]), split_lines(new[j:y])
        for run in _equal_runs(before, after):
            yield EqualLines(n_old + run.old, n_new + run.new, run.n)
        n_old, n_new = n_old + len(before), n_new + len(after)
        size = common_head(old[x:old_end], new[y:new_end])
        if n := old.count("\n", x, x + size):
            yield EqualLines(n_old, n_new, n)
        n_old, n_new, i, j = n_old + n, n_new + n, x + size, y + size
    n_old += count_lines(old[i:old_end], 0)
    n_new += count_lines(new[j:new_end], 0)
    n_tail = n_tail if n_tail >= 0 else n_lines - n_old
    if tail:
        yield EqualLines(n_old, n_new, n_tail)
    yield EqualLines(n_old + n_tail, n_new + n_tail, 0)


def _next_place(
    old: str, new: str, i: int, j: int, old_end: int, new_end: int
) -> tuple[int, int] | None:
    """Return the nearest places in both texts from which a window of lines is the same again; None if there is none near."""
    best: tuple[int, int] | None = None
    room, start = _NEAR_CHARS, i
    for _ in range(_NEAR_LINES):
        if start - i > room:
            break
        end = start
        for _ in range(_WINDOW_LINES):
            end = old.find("\n", end, old_end) + 1
            if not end:
                return best
        window = old[start:end]
        limit = min(new_end, j + room - (start - i) + len(window))
        at = new.find(window, j, limit)
        while at >= 0 and not _begins_line(new, at):
            at = new.find(window, at + 1, limit)
        if at >= 0:
            best = (start, at)
            room = (start - i) + (at - j) - 1
        start = old.find("\n", start, old_end) + 1
    return best


def _equal_runs(old: Sequence[str], new: Sequence[str]) -> Iterator[EqualLines]:
    """Yield the lines that stay, in order."""
    if not old or not new:
        return
    if len(old) * len(new) <= _MOST_PAIRS:
        yield from _exact_runs(old, new, 0, 0)
        return
    # Lines are compared as numbers of four bytes, in which the C library finds a window of lines.
    numbers: dict[str, int] = {}
    both = [
        array("I", (numbers.setdefault(line, len(numbers)) for line in side)) for side in (old, new)
    ]
    one, other = both[0].tobytes(), both[1].tobytes()
    i = j = 0
    while i < len(old) and j < len(new):
        if n := _run_length(one, other, i, j):
            yield EqualLines(i, j, n)
            i, j = i + n, j + n
            continue
        place = _next_window(one, other, i, j)
        x, y = place or (len(old), len(new))
        if (x - i) * (y - j) <= _MOST_PAIRS:
            yield from _exact_runs(old[i:x], new[j:y], i, j)
        else:
            yield from _unique_runs(both[0][i:x], both[1][j:y], i, j)
        i, j = x, y


def _exact_runs(old: Sequence[str], new: Sequence[str], i: int, j: int) -> Iterator[EqualLines]:
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    yield from (EqualLines(i + x, j + y, n) for x, y, n in matcher.get_matching_blocks() if n)


def _run_length(one: bytes, other: bytes, i: int, j: int) -> int:
    """Return the number of lines that are the same from two places on; the steps double while they are."""
    n, step, most = 0, 16, min(len(one) // 4 - i, len(other) // 4 - j)
    while n < most:
        size = min(step, most - n)
        start, end = i + n, j + n
        if one[4 * start : 4 * (start + size)] == other[4 * end : 4 * (end + size)]:
            n, step = n + size, step * 4
        elif size == 1:
            break
        else:
            step = max(1, size // 4)
    return n


def _next_window(one: bytes, other: bytes, i: int, j: int) -> tuple[int, int] | None:
    """Return the nearest places from which a window of lines is the same again; None if there is none near."""
    best: tuple[int, int] | None = None
    room = _NEAR_LINES
    for ahead in range(_NEAR_LINES):
        if ahead > room or 4 * (i + ahead + _WINDOW_LINES) > len(one):
            break
        window = one[4 * (i + ahead) : 4 * (i + ahead + _WINDOW_LINES)]
        end = 4 * (j + room - ahead + _WINDOW_LINES)
        at = other.find(window, 4 * j, end)
        while at >= 0 and at % 4:
            at = other.find(window, at + 1, end)
        if at >= 0:
            best = (i + ahead, at // 4)
            room = ahead + at // 4 - j - 1
    return best


def _unique_runs(old: array[int], new: array[int], i: int, j: int) -> Iterator[EqualLines]:
    """Yield lines that stand once on each side, as many as are in order, with their equal neighbours."""
    places = _unique(new)
    pairs = [(x, places[line]) for line, x in _unique(old).items() if line in places]
    one, other = old.tobytes(), new.tobytes()
    end_old = end_new = 0
    for x, y in _in_order(sorted(pairs)):
        if x < end_old or y < end_new:
            continue
        back = 0
        while (
            min(x - back - end_old, y - back - end_new) > 0
            and old[x - back - 1] == new[y - back - 1]
        ):
            back += 1
        n = back + _run_length(one, other, x, y)
        yield EqualLines(i + x - back, j + y - back, n)
        end_old, end_new = x - back + n, y - back + n


def _unique(lines: array[int]) -> dict[int, int]:
    """Return the place of each line that stands once."""
    seen: dict[int, int] = {}
    for place, line in enumerate(lines):
        seen[line] = -1 if line in seen else place
    return {line: place for line, place in seen.items() if place >= 0}


def _in_order(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the most pairs whose second places increase as well (the longest increasing subsequence)."""
    ends: list[int] = []
    chosen: list[int] = []
    before: list[int] = []
    for place, (_, y) in enumerate(pairs):
        k = bisect_left(ends, y)
        before.append(chosen[k - 1] if k else -1)
        if k == len(ends):
            ends.append(y)
            chosen.append(place)
        else:
            ends[k], chosen[k] = y, place
    found: list[tuple[int, int]] = []
    place = chosen[-1] if chosen else -1
    while place >= 0:
        found.append(pairs[place])
        place = before[place]
    return found[::-1]
