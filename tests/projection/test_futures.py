"""Futures beside the current line: their order by the facts, their words, and their rows on the timeline."""

from __future__ import annotations

import pytest
from support.story import whole_story

from kimi_tui.projection.futures import (
    ChangedSize,
    CheckResult,
    FuturesAt,
    FutureState,
    ShownFuture,
    ranked,
    state_words,
)
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.wire.events import ContextReverted, EventRecord


def done(
    number: int, exit_code: int = 0, *, lines: int = 1, spent: float = 1.0, own: bool = False
) -> ShownFuture:
    """Return a future that has ended."""
    return ShownFuture(
        number,
        f"Try {number}",
        "kimi-k2",
        "done",
        size=ChangedSize(1, lines),
        spent=spent,
        check=CheckResult(exit_code, own),
    )


def test_a_passed_check_comes_first_then_an_unchanged_one_then_the_smaller_difference() -> None:
    futures = [
        done(1, 1, lines=1),
        done(2, own=True, lines=1),
        done(3, lines=9),
        done(4, lines=3, spent=2.0),
        done(5, lines=3, spent=1.0),
        ShownFuture(6, state="stopped"),
    ]
    assert [one.number for one in ranked(futures)] == [5, 4, 3, 2, 1, 6]


@pytest.mark.parametrize(
    ("state", "words"),
    [("preparing", "copying files"), ("asking", "asks you"), ("running", "step 4")],
)
def test_a_state_is_told_in_words(state: FutureState, words: str) -> None:
    assert state_words(ShownFuture(1, state=state, step=4)) == words
    assert state_words(done(1)) == "check passed"
    assert state_words(done(1, 2)) == "check: exit 2"
    assert state_words(done(1, own=True)) == "check passed, changed"


def story() -> TimelineModel:
    """Return the timeline of the story."""
    model = TimelineModel()
    for record in whole_story().records:
        model.apply(record)
    return model


def kinds(model: TimelineModel) -> list[tuple[str, int]]:
    """Return the rows with futures, and the checkpoints around them, oldest first."""
    rows = [model.rows[at] for at in range(len(model.rows))]
    places = [at for at, row in enumerate(rows) if row.future is not None]
    return [
        (row.kind, row.future.number if row.future else row.checkpoint.id if row.checkpoint else -1)
        for row in rows[max(0, places[0] - 1) : places[-1] + 2]
    ]


def at(model: TimelineModel, index: int, *numbers: int) -> FuturesAt:
    """Return futures that branch off before the live checkpoint at an index."""
    live = model.tree.live
    futures = tuple(ShownFuture(n, f"Try {n}", state="running") for n in numbers)
    return FuturesAt(live[index].uid, live[index - 1].uid, live[index].id, futures)


def test_futures_stand_between_their_checkpoint_and_the_one_before_it() -> None:
    model = story()
    futures = at(model, -2, 1, 2)
    model.show_futures(futures)
    here = model.tree.live[-2].id
    assert kinds(model) == [
        ("checkpoint", here - 1),
        *(("facts", 2), ("future", 2), ("facts", 1), ("future", 1)),
        ("checkpoint", here),
    ]
    before = len(model.rows)
    changed = futures.futures[0]._replace(state="done", world_line=0)
    model.show_futures(futures._replace(futures=(changed, futures.futures[1])))
    assert len(model.rows) == before
    assert model.rows[len(model.rows) - 1].future is None


def test_futures_stay_where_a_rewind_takes_their_checkpoint_away() -> None:
    model = story()
    model.show_futures(at(model, -2, 1))
    live = model.tree.live
    cut = live[-4]
    model.apply(
        EventRecord(
            99_999, 0.0, ContextReverted("rewind", cut.id, cut.uid, live[-1].id, 9, 1, 1, 10, 5)
        )
    )
    rows = [model.rows[at] for at in range(len(model.rows))]
    assert [row.future.number for row in rows if row.kind == "future" and row.future] == [1]


def test_a_future_with_a_world_line_of_its_own_has_no_second_branch() -> None:
    model = story()
    futures = at(model, -2, 1, 2)
    n = next(iter(model.tree.lines))
    model.show_futures(
        futures._replace(futures=(futures.futures[0]._replace(world_line=n), futures.futures[1]))
    )
    rows = [model.rows[at] for at in range(len(model.rows))]
    assert [row.future.number for row in rows if row.kind == "future" and row.future] == [2]


def test_the_filter_finds_a_future_by_its_name() -> None:
    model = story()
    model.show_futures(at(model, -2, 1, 2))
    list(model.search("try 2"))
    assert [model.rows[at].kind for at in range(len(model.rows))] == ["facts", "future"]
