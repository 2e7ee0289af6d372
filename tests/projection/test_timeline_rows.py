"""The rows that are updated event by event equal those that are built from nothing, whatever the events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import n_steps
from support.story import Teller, whole_story

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_rows import Builder, TimelineRow, TimelineRows
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.wire.events import EventRecord, LineChanged

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "turn",
                "step",
                "step",
                "rewind",
                "dmail",
                "steer",
                "compact",
                "undo",
                "jump",
                "fold",
                "open",
                "filter",
                "clear",
            ]
        ),
        st.integers(0, 1_000),
    ),
    max_size=40,
)


def model_of(records: Iterable[EventRecord]) -> TimelineModel:
    model = TimelineModel()
    for record in records:
        model.apply(record)
    return model


def facts_of(rows: TimelineRows) -> list[tuple[object, ...]]:
    return [(row.kind, row.key, row.order, row.lanes, row.is_tip, row.hidden) for row in rows]


def headings_of(rows: TimelineRows, model: TimelineModel) -> list[CheckpointNode | None]:
    return [rows.heading_of(index) for index in range(len(model.tree.live))]


def perform(teller: Teller, model: TimelineModel, name: str, number: int) -> None:
    length = len(teller.line)
    match name:
        case "turn":
            teller.turn(f"Do {number}")
        case "step" if length:
            teller.step(("Shell", {"command": f"run {number}"}))
        case "rewind" if length:
            teller.rewind(number % length)
        case "dmail" if length:
            teller.dmail(number % length, carried=("Run this", "And that")[: number % 3])
        case "steer" if length:
            teller.steer(f"Rather run {number}")
        case "compact" if length:
            teller.compact()
        case "clear" if length:
            teller.cut(0, "clear")
        case "undo" if teller.stored:
            numbers = sorted(teller.stored)
            teller.jump(numbers[number % len(numbers)], op="undo")
        case "jump" if teller.stored:
            numbers = sorted(teller.stored)
            target = numbers[number % len(numbers)]
            teller.jump(target, stop=number % (len(teller.stored[target]) + 1))
        case "fold" if len(model.rows):
            row = model.rows[number % len(model.rows)]
            if row.line is None:
                model.toggle(row)
        case "open" if len(model.rows):
            named = [row for row in model.rows if row.line is not None]
            if named:
                model.toggle(named[number % len(named)])
        case "filter":
            model.rows.filter("" if number % 3 else "run")
        case _:
            pass


@given(OPERATIONS)
def test_rows_kept_up_to_date_are_those_built_anew(operations: list[tuple[str, int]]) -> None:
    teller, model = Teller(), TimelineModel()
    applied = 0
    for name, number in operations:
        if model.rows.needle and name in ("fold", "open"):
            continue
        perform(teller, model, name, number)
        for record in teller.records[applied:]:
            model.apply(record)
        applied = len(teller.records)
        live = [(checkpoint.uid, checkpoint.index) for checkpoint in model.tree.live]
        assert live == [(uid, index) for index, (uid, _) in enumerate(teller.line)]
        kept = facts_of(model.rows)
        fresh = TimelineRows(model.tree)
        fresh.filter(model.rows.typed)
        assert kept == facts_of(fresh)
        assert headings_of(model.rows, model) == headings_of(fresh, model)
        assert [row.order for row in model.rows] == sorted(row.order for row in model.rows)


@given(OPERATIONS, st.integers(1, 9), st.integers(0, 30))
def test_rows_that_nobody_looked_at_are_built_when_somebody_does(
    operations: list[tuple[str, int]], pause: int, taken: int
) -> None:
    teller, model = Teller(), TimelineModel()
    applied = 0
    for place, (name, number) in enumerate(operations):
        perform(teller, model, name, number)
        for record in teller.records[applied:]:
            model.apply(record)
        applied = len(teller.records)
        if place % pause:
            continue
        steps = model.rows.settle()
        for _ in islice(steps, taken):
            pass
        # Somebody looks before it is over; what was begun must not come twice.
        n_rows = len(model.rows)
        for _ in steps:
            pass
        assert len(model.rows) == n_rows
        fresh = TimelineRows(model.tree)
        fresh.filter(model.rows.typed)
        assert facts_of(model.rows) == facts_of(fresh)
        assert headings_of(model.rows, model) == headings_of(fresh, model)


def test_an_undo_builds_what_it_changed_and_no_more() -> None:
    teller, model = Teller(), TimelineModel()
    for n in range(40):
        teller.turn(f"Do {n}")
        teller.step(("Shell", {"command": f"run {n}"}))
    teller.rewind(76)
    for record in teller.records:
        model.apply(record)
    applied = len(teller.records)
    shown = [*model.rows]
    teller.jump(max(teller.stored), op="undo")
    for record in teller.records[applied:]:
        model.apply(record)
    kept = [row for row in model.rows if row in shown]
    # A row is equal to itself alone.
    assert len(kept) >= len(shown) - 4
    assert len(model.rows) > len(shown)


def test_many_undos_of_a_history_are_one_build(monkeypatch: pytest.MonkeyPatch) -> None:
    teller, model = Teller(), TimelineModel()
    for n in range(30):
        teller.turn(f"Do {n}")
    for _ in range(6):
        teller.rewind(1)
        teller.jump(max(teller.stored), op="undo")
    built: list[int] = []
    live = Builder.live

    def watched(self: Builder, start: int, end: int) -> Iterator[TimelineRow | None]:
        built.append(end - start)
        return live(self, start, end)

    monkeypatch.setattr(Builder, "live", watched)
    for record in teller.records:
        model.apply(record)
    assert sum(built) < 40
    steps = model.rows.settle()
    assert sum(1 for _ in islice(steps, 5)) == 5
    # Somebody looks in between: nothing is missing, and nothing comes twice.
    n_rows = len(model.rows)
    assert n_rows >= 30
    for _ in steps:
        pass
    assert len(model.rows) == n_rows
    told = sum(built)
    for _ in model.rows.settle():
        pass
    assert sum(built) == told


@given(OPERATIONS, OPERATIONS, st.integers(0, 60))
def test_a_search_that_is_overtaken_finds_what_is_there_now(
    before: list[tuple[str, int]], meanwhile: list[tuple[str, int]], taken: int
) -> None:
    teller, model = Teller(), TimelineModel()
    applied = 0

    def go_on(operations: list[tuple[str, int]]) -> None:
        nonlocal applied
        for name, number in operations:
            if name in ("fold", "open", "filter"):
                continue
            perform(teller, model, name, number)
            for record in teller.records[applied:]:
                model.apply(record)
            applied = len(teller.records)

    go_on(before)
    shown = facts_of(model.rows)
    search = model.search("run")
    is_over = sum(1 for _ in islice(search, taken)) < taken
    # Nothing is half found: before the end the rows are what they were.
    assert is_over or facts_of(model.rows) == shown
    go_on(meanwhile[:3])
    for _ in search:
        pass
    fresh = TimelineRows(model.tree)
    fresh.filter("run")
    assert facts_of(model.rows) == facts_of(fresh)


@given(OPERATIONS)
def test_no_checkpoint_is_ever_lost(operations: list[tuple[str, int]]) -> None:
    teller, model = Teller(), TimelineModel()
    seen: set[str] = set()
    for name, number in operations:
        first = len(teller.records)
        perform(teller, model, name, number)
        for record in teller.records[first:]:
            model.apply(record)
        seen.update(uid for uid, _ in teller.line)
    tree = model.tree
    held = [checkpoint.uid for checkpoint in tree.live]
    held += [checkpoint.uid for line in tree.lines.values() for checkpoint in line.checkpoints]
    assert len(held) == len(set(held))
    assert seen <= set(held)
    # Every line can still be gone back to, as it was.
    for n, stored in teller.stored.items():
        probe = model_of([*teller.records, EventRecord(0, 0.0, LineChanged("jump", 0, n, ""))])
        assert [checkpoint.uid for checkpoint in probe.tree.live] == [uid for uid, _ in stored]


@given(OPERATIONS)
def test_a_history_gives_the_same_view(operations: list[tuple[str, int]]) -> None:
    teller, model = Teller(), TimelineModel()
    for name, number in operations:
        if name in ("fold", "open", "filter"):
            continue
        first = len(teller.records)
        perform(teller, model, name, number)
        for record in teller.records[first:]:
            model.apply(record)
    assert facts_of(model_of(teller.records).rows) == facts_of(model.rows)


def test_rows_that_are_made_at_the_end_are_the_same_for_less_work() -> None:
    grown, late = TimelineModel(), TimelineModel()
    late.rows.reset()
    records = whole_story().records

    def tell(model: TimelineModel) -> None:
        for record in records:
            model.apply(record)
        for _ in model.settle():
            pass

    work = n_steps(lambda: tell(grown))
    assert n_steps(lambda: tell(late)) < work
    assert [(row.kind, row.order, row.lanes, row.key) for row in late.rows] == [
        (row.kind, row.order, row.lanes, row.key) for row in grown.rows
    ]
