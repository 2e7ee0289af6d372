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
    LineChanged,
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


def test_a_view_that_joins_later_has_a_future_of_the_end_where_the_end_was() -> None:
    model = story()
    live = list(model.tree.live)
    place = len(live) - 4
    before = FutureChanged("a", "g", 1, state="running")
    here = replace(before, after=live[place].uid)
    at_first = replace(before, key="b", number=2, after="")
    model.show_futures([before, here, at_first])
    stays = [("checkpoint", live[place].id), ("facts", 1), ("future", 1)]
    assert kinds(model)[-3:] != stays
    assert shown(model) == [2, 1]
    rows = [model.rows[at] for at in range(len(model.rows))]
    at = next(n for n, row in enumerate(rows) if row.kind == "facts" and row.future is here)
    assert rows[at - 1].checkpoint is live[place]
    # A rewind takes that away: it stays with the line that was left.
    cut = live[place - 1]
    event = ContextReverted("rewind", cut.id, cut.uid, live[-1].id, 9, 1, 1, 10, 5)
    other = story()
    for one in (model, other):
        one.apply(EventRecord(9_000, 0.0, event))
    other.show_futures([here, at_first])
    assert around(other, 1) == around(model, 1)
    assert around(other, 2) == around(model, 2)


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


def around(model: TimelineModel, number: int) -> list[str]:
    """Return the rows below and above a future: its own are left out, lines are named by number, checkpoints by number and lanes."""
    rows = [
        f"line {row.line.n}"
        if row.names_line and row.line is not None
        else f"{row.kind} {row.lanes}{row.checkpoint.id if row.checkpoint else ''}"
        if row.future is None
        else f"{row.kind} {row.lanes}{row.future.number}"
        for row in (model.rows[at] for at in range(len(model.rows)))
    ]
    places = [at for at, row in enumerate(rows) if row.split(" ")[-1].lstrip("lb") == str(number)]
    places = [at for at in places if rows[at].startswith(("facts", "future"))]
    assert len(places) == 2
    return [rows[places[0] - 1], rows[places[0]], *rows[places[1] + 1 : places[1] + 2]]


@pytest.mark.parametrize("n", [2, 3])
def test_a_future_of_another_line_stands_at_that_line(n: int) -> None:
    model = story()
    line = model.tree.lines[n]
    own = line.checkpoints
    end = FutureChanged("end", "g", 7, state="running", from_line=n)
    inside = replace(end, key="inside", number=8, checkpoint_id=own[2].id, uid=own[2].uid)
    first = replace(end, key="first", number=9, checkpoint_id=own[0].id, uid=own[0].uid)
    model.show_futures([end, inside, first])
    # Folded, the line has those inside above its name; the one that begins where the line does branches off beside it.
    assert around(model, 8)[0] == f"line {n}"
    assert shown(model)[-3:] == [8, 7, 9]
    rows = [model.rows[at] for at in range(len(model.rows))]
    name = next(row for row in rows if row.line is line)
    model.toggle(name)
    assert around(model, 8) == [f"checkpoint l{own[1].id}", "facts l8", f"checkpoint l{own[2].id}"]
    assert shown(model)[-3:] == [8, 7, 9]
    # Its end is one of the steps that are not shown, if there are many.
    hidden = len(own) > 6
    before = own[4] if hidden else own[-1]
    assert around(model, 7)[0] == f"checkpoint l{before.id}"
    if hidden:
        more = next(row for row in model.rows if row.kind == "more")
        model.toggle(more)
        assert around(model, 7)[0] == f"checkpoint l{own[-1].id}"
    model.toggle(name)
    assert shown(model)[-3:] == [8, 7, 9]


def test_a_future_of_what_a_compaction_replaced_stands_below_the_summary() -> None:
    model = story()
    base = model.tree.lines[1]
    model.show_futures([FutureChanged("end", "g", 7, state="running", from_line=1)])
    assert shown(model) == [7]
    assert [row.kind for row in model.rows][:3] == ["facts", "future", "base"]
    model.toggle(model.rows[2])
    assert around(model, 7)[0] == f"checkpoint b{base.checkpoints[-1].id}"


def test_a_future_stays_with_its_line_when_that_is_left_and_comes_back() -> None:
    model = story()
    one = begins(model, -2, 1)
    model.show_futures([one])
    live = list(model.tree.live)
    cut = live[-4]
    model.apply(
        EventRecord(
            9_000, 0.0, ContextReverted("rewind", cut.id, cut.uid, live[-1].id, 9, 1, 1, 10, 5)
        )
    )
    assert around(model, 1)[0] == "line 9"
    model.apply(EventRecord(9_001, 0.0, CheckpointCreated(cut.id, "new", "user")))
    assert around(model, 1) == ["line 9", "facts 1", "gap "]
    model.apply(EventRecord(9_002, 0.0, LineChanged("undo", 10, 9, "")))
    assert around(model, 1) == [f"checkpoint {live[-3].id}", "facts 1", f"checkpoint {live[-2].id}"]


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
