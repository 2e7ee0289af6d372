"""Futures beside the current line: their words, their groups, and their rows on the timeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.story import whole_story

from kimi_tui.projection.futures import groups, state_words
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.wire.events import (
    CheckpointCreated,
    ContextReverted,
    EventRecord,
    FutureChanged,
    FutureStatus,
)


@pytest.mark.parametrize(
    ("state", "words"),
    [("preparing", "preparing"), ("asking", "waiting for you"), ("running", "step 4")],
)
def test_a_state_is_told_in_words(state: FutureStatus, words: str) -> None:
    assert state_words(FutureChanged("a", state=state, step=4)) == words


def test_a_check_is_told_in_words() -> None:
    one = FutureChanged("a", state="done", check="passed")
    assert state_words(one) == "check passed"
    assert state_words(replace(one, check="failed", check_exit=2)) == "check failed (exit 2)"
    assert state_words(replace(one, check="")) == "done"


def test_a_group_is_over_when_all_are() -> None:
    one = FutureChanged("a", "g", 1, state="done", check="passed")
    two = FutureChanged("b", "g", 2, state="running")
    (found,) = groups([two, one])
    assert [each.number for each in found.futures] == [1, 2]
    assert not found.is_over
    assert found.words == "1 of 2 passed the check"
    assert groups([one, replace(two, group="h")])[1].futures == (replace(two, group="h"),)


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


def shown(model: TimelineModel) -> list[int]:
    """Return the numbers of the futures that have a row."""
    rows = [model.rows[at] for at in range(len(model.rows))]
    return [row.future.number for row in rows if row.kind == "future" and row.future is not None]


def begins(model: TimelineModel, index: int, number: int) -> FutureChanged:
    """Return a future that branches off before the live checkpoint at an index."""
    point = model.tree.live[index]
    return FutureChanged(
        f"f{number}",
        "g",
        number,
        f"Try {number}",
        "running",
        checkpoint_id=point.id,
        uid=point.uid,
        step=1,
    )


def test_futures_stand_between_their_checkpoint_and_the_one_before_it() -> None:
    model = story()
    futures = [begins(model, -2, number) for number in (1, 2)]
    for one in futures:
        assert model.apply(EventRecord(9_000, 0.0, one))
    here = model.tree.live[-2].id
    assert kinds(model) == [
        ("checkpoint", here - 1),
        *(("facts", 2), ("future", 2), ("facts", 1), ("future", 1)),
        ("checkpoint", here),
    ]
    before = len(model.rows)
    model.apply(EventRecord(9_001, 0.0, replace(futures[0], state="done")))
    assert len(model.rows) == before
    model.apply(EventRecord(9_001, 0.0, replace(futures[0], removed_at=1.0)))
    assert shown(model) == [2]


def test_a_future_of_the_end_stays_at_what_was_the_end() -> None:
    model = story()
    head = model.tree.live[-1]
    model.show_futures([FutureChanged("a", "g", 1, state="running")])
    last = CheckpointCreated(head.id + 1, "new", "step")
    model.apply(EventRecord(9_000, 0.0, last))
    stays = [
        ("checkpoint", head.id),
        ("facts", 1),
        ("future", 1),
        ("checkpoint", head.id + 1),
    ]
    assert kinds(model) == stays
    model.apply(EventRecord(9_001, 0.0, FutureChanged("a", "g", 1, state="running", step=1)))
    assert kinds(model) == stays


def test_a_future_of_a_session_without_a_checkpoint_stands_at_its_beginning() -> None:
    model = TimelineModel()
    model.show_futures([FutureChanged("a", "g", 1, state="running")])
    assert shown(model) == [1]


def test_futures_stay_where_a_rewind_takes_their_checkpoint_away() -> None:
    model = story()
    model.show_futures([begins(model, -2, 1)])
    live = model.tree.live
    cut = live[-4]
    event = ContextReverted("rewind", cut.id, cut.uid, live[-1].id, 9, 1, 1, 10, 5)
    model.apply(EventRecord(9_000, 0.0, event))
    assert shown(model) == [1]


def test_a_future_with_a_world_line_of_its_own_has_no_second_branch() -> None:
    model = story()
    one, two = (begins(model, -2, number) for number in (1, 2))
    model.show_futures([replace(one, world_line=9, state="done"), two])
    assert shown(model) == [2]


def test_the_filter_finds_a_future_by_its_name() -> None:
    model = story()
    model.show_futures([begins(model, -2, number) for number in (1, 2)])
    list(model.search("try 2"))
    assert [model.rows[at].kind for at in range(len(model.rows))] == ["facts", "future"]


def test_a_future_that_is_deleted_takes_its_world_line_along() -> None:
    model = story()
    n = next(iter(model.tree.lines))
    one = replace(begins(model, -2, 1), world_line=n, state="done", check="passed")
    model.show_futures([one])
    assert model.future_of(n) == one
    model.apply(EventRecord(9_000, 0.0, replace(one, removed_at=1.0)))
    assert n not in model.tree.lines
    lines = [model.rows[at].line for at in range(len(model.rows))]
    assert n not in {line.n for line in lines if line is not None}
