"""All measurements that have a goal, in one table: `python -m bench`, about half an hour with one peer.

The stream first, beside floors and peers (`bench.stream`), then memory, long sessions, the timeline and the shell, each with a floor of
its own or none; what those print is on stderr. Ratios are compared with the stored ones, as `bench.stream` does. A part that fails, as
where a program does not answer in time, is named at the end with the reason, and the rows of the others are printed all the same.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TypeVar

from bench import futures, memory, resume, shell, steps, stream, timeline, turn
from bench.programs import OURS
from bench.table import Bar, Figures, table, with_bars

T = TypeVar("T")


def main() -> int:
    """Measure everything, print one table, compare with the stored ratios."""
    options = stream.arguments("python -m bench")
    failed: list[str] = []

    def tried(name: str, measured: Callable[[], T], otherwise: T) -> T:
        try:
            return measured()
        except Exception as error:
            traceback.print_exc()
            first_line = str(error).partition("\n")[0]
            failed.append(f"failed: {name}: {type(error).__name__}: {first_line}")
            return otherwise

    nothing: Figures = {OURS.name: {}}
    no_bars: list[Bar] = []
    figures = tried("stream", lambda: stream.measured(options), nothing)
    with redirect_stdout(sys.stderr):
        turns, headless = tried(
            "turn", lambda: _with_list(turn.measured(3 * options.rounds)), (nothing, no_bars)
        )
        a_step = tried("steps", lambda: steps.figures(options.rounds), nothing)
        bars = [
            *headless,
            *tried("long turn", steps.bars, no_bars),
            *tried("memory", lambda: memory.measured(options.rounds), no_bars),
            *tried("resume", lambda: resume.bars(options.rounds), no_bars),
            *tried("timeline", timeline.bars, no_bars),
            *tried("shell", lambda: shell.bars(3 * options.rounds), no_bars),
            *tried("futures", lambda: futures.bars(options.rounds), no_bars),
        ]
    figures = with_bars(figures, bars)
    for name, row in (*turns.items(), *a_step.items()):
        figures.setdefault(name, {}).update(row)
    print(table(figures, {**stream.GOALS, **steps.GOALS, **{bar.row: bar.goal for bar in bars}}))
    code = stream.compared(figures, store=options.store)
    print(*failed, sep="\n")
    return 1 if failed else code


def _with_list(measured: tuple[Figures, Bar]) -> tuple[Figures, list[Bar]]:
    return measured[0], [measured[1]]


if __name__ == "__main__":
    sys.exit(main())
