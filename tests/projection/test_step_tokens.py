"""What a step cost is forgotten with the step, in time that the rewind alone decides."""

from __future__ import annotations

from support.effort import n_steps

from kimi_tui.projection.transcript import StepTokens
from kimi_tui.wire.events import StatusUpdate


def told(n_steps_told: int) -> StepTokens:
    tokens = StepTokens()
    for n in range(n_steps_told):
        tokens.begin(n, 100 * n, is_step=True)
        tokens.status(StatusUpdate(100 * n + 50, 1_000_000, 0, step_input=100 * n))
    return tokens


def test_a_rewind_forgets_what_it_drops() -> None:
    tokens = told(10)
    tokens.cut(8)
    assert tokens.begin(8, 5_000, is_step=True) is None
    counted = StatusUpdate(6_000, 1_000_000, 0, step_input=5_000)
    # The step before stays known, and its cost becomes the server's own figure.
    assert tokens.status(counted) == (7, 5_000 - 700, counted.estimated)


def test_a_rewind_takes_no_longer_in_a_long_session() -> None:
    long, short = told(5_000), told(50)
    assert n_steps(lambda: long.cut(4_997)) == n_steps(lambda: short.cut(47))


def test_numbers_of_a_damaged_record_take_no_longer() -> None:
    tokens = told(5)
    tokens.begin(2**53, 1, is_step=True)
    tokens.cut(3)
    assert tokens.begin(3, 9, is_step=True) is None
