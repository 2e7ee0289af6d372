"""The rows of the page that sets futures side by side: a table of them, what is known of the chosen one, and their files.

This module has no widget. The check comes first, then whether the future changed what the check depends on, then the size of
its difference, its cost and its time. Nothing here is a model's opinion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import one_line, shown_name
from kimi_tui.projection.futures import future_name, model_words, state_words
from kimi_tui.tui import formatting
from kimi_tui.tui.diff import change_counts, diff_rows
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.row_list import Look, RowModel
from kimi_tui.tui.rows import Line, Span, fitted, sides, spans_width
from kimi_tui.tui.timeline.layout import future_sign

if TYPE_CHECKING:
    from kimi_tui.projection.futures import FutureGroup
    from kimi_tui.wire.events import FutureChanged
    from kimi_tui.workspace.diff import FileDifference, SideChange

GAP = 2
WIDE_FROM = 100
"""Cells from which on facts have their whole words."""
USUAL_NAME, LEAST_NAME = 24, 10
"""Cells of a name below which model and tokens are left out of the table, and below which facts to compare are."""
_COMPARED = 5
"""The number of facts by which futures are compared; the others are model and tokens."""
_MOST_NAMED = 3
"""Files that a sentence names before it counts the rest."""


def table_rows(
    group: FutureGroup, chosen: str, width: int, glyphs: Glyphs, *, now: float, currency: str
) -> list[list[Span]]:
    """Return a row for each future: its sign, its number and name, and facts in columns.

    Args:
        group: the futures.
        chosen: the key of the chosen one.
        width: cells of a row.
        glyphs: the set of signs.
        now: seconds since 1970.
        currency: the sign of amounts.
    """
    is_narrow = width < WIDE_FROM
    facts = [
        _facts(one, glyphs, now=now, currency=currency, is_narrow=is_narrow)
        for one in group.futures
    ]
    names = [future_name(one) for one in group.futures]
    widths = [
        max((spans_width(row[at]) for row in facts), default=0) for at in range(len(facts[0]))
    ]
    longest = max(map(cell_len, names))
    while widths and _room(width, widths) < min(
        USUAL_NAME if len(widths) > _COMPARED else LEAST_NAME, longest
    ):
        widths.pop()
    room = max(4, _room(width, widths))
    rows: list[list[Span]] = []
    for one, name, row in zip(group.futures, names, facts, strict=True):
        is_chosen = one.key == chosen
        spans: list[Span] = [
            Span(f"{glyphs.edge if is_chosen else ' '} ", "accent"),
            future_sign(one, glyphs),
            Span(f" {one.number} ", "strong" if is_chosen else "quiet"),
            *fitted(
                [Span(formatting.cut(name, room, glyphs.cut), "strong" if is_chosen else "ink")],
                room,
            ),
        ]
        for at, column in enumerate(widths):
            if column:
                spans += [Span(" " * GAP), *fitted(row[at], column)]
        rows.append(fitted(spans, width))
    return rows


_BEFORE = 6
"""Cells before the name of a row."""


def _room(width: int, widths: Sequence[int]) -> int:
    return width - _BEFORE - 2 - sum(GAP + column for column in widths if column)


def _facts(
    one: FutureChanged, glyphs: Glyphs, *, now: float, currency: str, is_narrow: bool
) -> tuple[list[Span], ...]:
    """Return the facts of a future, the most important first."""
    does = state_words(one)
    check = "quiet"
    if one.check:
        check = "ok" if one.check == "passed" else "error"
    elif one.state == "asking":
        check = "warn"
    elif one.state == "failed":
        check = "error"
    judges = "changed its check" if one.check else "changed tests"
    own = [Span(judges, "warn")] if one.own_check else []
    if is_narrow:
        # The rows about the chosen future have the words.
        own = [Span(glyphs.caution, "warn")] if one.own_check else []
        does = one.check or does
    size = change_counts(one.added, one.removed, glyphs)
    if one.files and not is_narrow:
        size = [Span(f"{formatting.counted(one.files, 'file')}  ", "quiet"), *size]
    elif one.is_over and not size:
        size = [Span("no change", "quiet")]
    cost = formatting.money(one.cost, currency) if one.cost > 0 else ""
    tokens = f"{formatting.tokens(one.tokens)} tokens" if one.tokens else ""
    seconds = (one.ended_at or now) - one.began_at if one.began_at else 0.0
    time = formatting.duration(max(0.0, seconds)) if seconds else ""
    return (
        [Span(does, check)],
        own,
        size,
        [Span(cost or tokens, "ink")],
        [Span(time, "quiet")],
        [Span(model_words(one), "quiet")],
        [Span(tokens if cost else "", "quiet")],
    )


def detail_rows(one: FutureChanged, width: int, rows: int, glyphs: Glyphs) -> list[list[Span]]:
    """Return what is to be known of one future, in at most `rows` rows: why it failed, its own check, its last words."""
    found: list[list[Span]] = []
    if one.state == "asking":
        asks = "It is waiting for your answer. Press Esc to go to the question."
        found += _wrapped(asks, "warn", width, min(2, rows), glyphs)
    if one.why and one.state in ("failed", "waiting", "stopped", "preparing"):
        style = "error" if one.state == "failed" else "quiet"
        found += _wrapped(one_line(one.why), style, width, min(2, rows - len(found)), glyphs)
    if one.own_check:
        files = some_of([shown_name(path) for path in one.own_check], _MOST_NAMED)
        judging = "files that its check depends on" if one.check else "tests or their settings"
        room = min(2, rows - len(found))
        found += _wrapped(f"It changed {judging}: {files}", "warn", width, room, glyphs)
    if one.check in ("failed", "not run") and (last := _last_line(one.check_output)):
        found.append([Span("Check: ", "quiet"), Span(formatting.cut(last, width - 7, glyphs.cut))])
    if one.last_words:
        found += _wrapped(one_line(one.last_words), "quiet", width, rows - len(found), glyphs)
    return [[Span("  "), *row] for row in found[:rows]]


def _wrapped(text: str, style: str, width: int, rows: int, glyphs: Glyphs) -> list[list[Span]]:
    if rows <= 0:
        return []
    lines = formatting.wrap_words(text, max(10, width))
    if len(lines) > rows:
        rest = " ".join(lines[rows - 1 :])
        lines = [*lines[: rows - 1], formatting.cut(rest, width, glyphs.cut)]
    return [[Span(line, style)] for line in lines]


def _last_line(output: str) -> str:
    lines = [line for line in map(one_line, output.splitlines()) if line.strip()]
    return lines[-1] if lines else ""


def name_rows(
    group: FutureGroup, columns: Mapping[str, range], chosen: str, glyphs: Glyphs
) -> list[Span]:
    """Return the row over the columns of messages: which future each has.

    Args:
        group: the futures.
        columns: the cells of the columns that are shown, by the keys of their futures.
        chosen: the key of the future whose column has the keys.
        glyphs: the set of signs.
    """
    spans: list[Span] = []
    for one in group.futures:
        if (column := columns.get(one.key)) is None:
            continue
        if spans:
            spans.append(Span(glyphs.step, "line"))
        words = formatting.cut(
            f"{one.number} {future_name(one)}", max(1, len(column) - 5), glyphs.cut
        )
        style = "strong" if one.key == chosen else "quiet"
        spans += fitted(
            [Span("  "), future_sign(one, glyphs), Span(f" {words}", style)], len(column)
        )
    return spans


class FilesAcross(RowModel):
    """The files that any of the futures changed, with a column for each future.

    Args:
        group: the futures.
        files: the changed files of each, by key.

    Attributes:
        unfolded: the indexes of the files whose diffs are shown.
    """

    def __init__(self, group: FutureGroup, files: Mapping[str, Sequence[FileDifference]]) -> None:
        self.unfolded: frozenset[int] = frozenset()
        self._group = group
        self._by_path: dict[str, dict[str, SideChange]] = {}
        for key, changed in files.items():
            for one in changed:
                self._by_path.setdefault(one.path, {})[key] = one.side
        # The files that most of them changed are the most interesting ones.
        self.paths = sorted(self._by_path, key=lambda path: (-len(self._by_path[path]), path))

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.paths)

    def has(self, index: int, key: str) -> bool:
        """Return whether a future changed a file."""
        return 0 <= index < len(self.paths) and key in self._by_path[self.paths[index]]

    def keep(self, before: FilesAcross) -> None:
        """Take over which diffs are shown."""
        shown = {before.paths[index] for index in before.unfolded}
        self.unfolded = frozenset(at for at, path in enumerate(self.paths) if path in shown)

    def head(self, width: int, glyphs: Glyphs) -> list[Span]:
        """Return the heading over the columns."""
        title = [Span("  Files", "quiet")]
        if not self.paths:
            return title
        cells = [[Span(str(one.number), "quiet")] for one in self._group.futures]
        return self._row(title, cells, width, glyphs)

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        """Return the row of each file on view."""
        return [
            [Line(tuple(self._file(self.paths[index], look.width, look.glyphs)))]
            for index in look.on_view
        ]

    def below(self, index: int, look: Look) -> Sequence[Line]:
        """Return the diffs of a file, of each future that changed it, if it is unfolded."""
        if index not in self.unfolded:
            return ()
        return [
            Line(tuple(spans)) for spans in self._diffs(self.paths[index], look.width, look.glyphs)
        ]

    def empty(self, look: Look) -> Sequence[Line]:
        """Return the sentence in place of files."""
        words = "No future has changed a file."
        if not self._group.is_over:
            words = "The files are listed when a future has ended."
        return [Line((Span(f"    {words}", "quiet"),))]

    def _file(self, path: str, width: int, glyphs: Glyphs) -> list[Span]:
        found = self._by_path[path]
        cells = [
            _side(found[one.key], glyphs) if one.key in found else [Span(glyphs.pending, "quiet")]
            for one in self._group.futures
        ]
        column = self._column(width)
        room = max(8, width - 6 - len(cells) * (column + GAP))
        name = formatting.path(shown_name(path), room, glyphs.cut)
        return self._row([Span("    "), Span(name, "ink")], cells, width, glyphs)

    def _column(self, width: int) -> int:
        count = len(self._group.futures)
        return max(5, min(12, (width - 26) // count - GAP))

    def _row(
        self, left: list[Span], cells: Sequence[list[Span]], width: int, glyphs: Glyphs
    ) -> list[Span]:
        column = self._column(width)
        right: list[Span] = []
        for cell in cells:
            # Lines that do not fit are shown in the diff.
            shown = cell if spans_width(cell) <= column else [Span(f"{glyphs.files}", "ink")]
            right += [Span(" " * (column + GAP - spans_width(shown))), *shown]
        return sides(left, [*right, Span("  ")], width)

    def _diffs(self, path: str, width: int, glyphs: Glyphs) -> Iterator[list[Span]]:
        found = self._by_path[path]
        for one in self._group.futures:
            side = found.get(one.key)
            if side is None:
                continue
            same = [each.number for each in self._group.futures if found.get(each.key) == side]
            if same[0] != one.number:
                continue  # it was shown for the first of them
            which = ", ".join(map(str, same))
            noun = "Future" if len(same) == 1 else "Futures"
            yield [
                Span("      "),
                Span(f"{noun} {which}", "strong"),
                Span(f"  {side.outcome}", "quiet"),
            ]
            rows = () if side.diff is None else side.diff.rows
            yield from diff_rows(rows, width - 2, glyphs, indent=6, digits=4, context="quiet")
            if not rows:
                yield [Span("      There is no diff to show.", "quiet")]


def _side(side: SideChange, glyphs: Glyphs) -> list[Span]:
    if side.outcome == "gone":
        return [Span("deleted", "del")]
    if side.diff is None:
        return [Span("not text", "quiet")]
    counts = change_counts(side.diff.added, side.diff.removed, glyphs)
    return counts or [Span("empty", "quiet")]
