"""All measurements that have a goal, in one table: `python -m bench`, about half an hour with one peer.

The stream first, beside floors and peers (`bench.stream`), then memory, long sessions, the timeline and the shell, each with a floor of
its own or none; what those print is on stderr. Ratios are compared with the stored ones, as `bench.stream` does.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from bench import futures, memory, resume, shell, steps, stream, timeline, turn
from bench.table import table, with_bars


def main() -> int:
    """Measure everything, print one table, compare with the stored ratios."""
    options = stream.arguments("python -m bench")
    figures = stream.measured(options)
    with redirect_stdout(sys.stderr):
        turns, headless = turn.measured(3 * options.rounds)
        a_step, long_turn = steps.bars(options.rounds)
        bars = [
            headless,
            *long_turn,
            *memory.measured(options.rounds),
            *resume.bars(options.rounds),
            *timeline.bars(),
            *shell.bars(3 * options.rounds),
            *futures.bars(options.rounds),
        ]
    figures = with_bars(figures, bars)
    for name, row in (*turns.items(), *a_step.items()):
        figures.setdefault(name, {}).update(row)
    print(table(figures, {**stream.GOALS, **steps.GOALS, **{bar.row: bar.goal for bar in bars}}))
    return stream.compared(figures, store=options.store)


if __name__ == "__main__":
    sys.exit(main())
