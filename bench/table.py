"""One table: what was measured of the program, of the floors and of its peers, with each goal and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Figures = dict[str, dict[str, float]]
"""Figures by program, ours first, and by row."""

FLOOR = "floor"
"""The name of the column with floors that are no program of `bench.programs`."""
_UNITS = {"until a key shows": "ms", "until drawn": "ms", "CPU": "ms", "written": "kB"}
"""Units of figures by the end of the row's name; other rows have theirs in the name."""


class Goal(NamedTuple):
    """A goal: at most `most` times the figure of each program in `of`, or of our own in `row`; without both, `most` itself."""

    most: float
    of: tuple[str, ...] = ()
    row: str = ""

    def __str__(self) -> str:
        others = " and ".join(self.of) or (f"{self.row}" if self.row else "")
        return f"≤ {self.most:g}" + (f" of {others}" if others else "")


class Bar(NamedTuple):
    """A row with a goal of its own; `floor` is the least possible figure, if it was measured."""

    row: str
    ours: float
    goal: Goal
    floor: float | None = None


def with_bars(figures: Figures, bars: list[Bar]) -> Figures:
    """Return the figures with more rows."""
    ours, *others = figures
    return {
        ours: {**figures[ours], **{bar.row: bar.ours for bar in bars}},
        **{name: figures[name] for name in others},
        FLOOR: {bar.row: bar.floor for bar in bars if bar.floor is not None},
    }


def table(figures: Figures, goals: Mapping[str, Goal]) -> str:
    """Return rows of medians by program, with our ratios to each other program in the last columns. Unmeasured goals have rows, too."""
    names = list(figures)
    others = names[1:]
    head = ["what", *names, *(f"/ {name}" for name in others), "goal", "holds"]
    lines = [_line(head), "|---" * len(head) + "|"]
    for row, ours in figures[names[0]].items():
        cells = [f"{f[row]:,.1f}" if row in f else "" for f in figures.values()]
        cells += [f"{ours / figures[n][row]:.2f}" if figures[n].get(row) else "" for n in others]
        goal = goals.get(row)
        kept = {True: "yes", False: "**no**", None: ""}[_holds(row, goal, figures)]
        unit = _UNITS.get(row.rsplit(", ", 1)[-1], "")
        lines.append(_line([f"{row} {unit}".rstrip(), *cells, str(goal or ""), kept]))
    for row in [row for row in goals if row not in figures[names[0]]]:
        lines.append(_line([row, *[""] * (len(head) - 3), str(goals[row]), "not measured"]))
    return "\n".join(lines)


def _holds(row: str, goal: Goal | None, figures: Figures) -> bool | None:
    """Return whether a goal is reached; None if there is no goal, or nothing to compare with."""
    if goal is None:
        return None
    ours = next(iter(figures.values()))
    compared = [ours[goal.row]] if goal.row else [1.0]
    if goal.of:
        compared = [figures[name][row] for name in goal.of if row in figures.get(name, {})]
    return all(ours[row] <= goal.most * other for other in compared) if compared else None


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
