"""However events come: the rows kept up to date event by event are those that a build from nothing gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.story import Teller

from kimi_tui.tui.timeline.model import TimelineModel
from kimi_tui.tui.timeline.rows import Rows
from kimi_tui.wire.events import LineChanged, Record

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "turn",
                "step",
                "step",
                "rewind",
                "dmail",
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


def facts_of(rows: Rows) -> list[tuple[object, ...]]:
    return [(row.kind, row.key, row.order, row.lanes, row.is_tip, row.hidden) for row in rows]


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
            teller.dmail(number % length)
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
            model.filter("" if number % 3 else "run")
        case _:
            pass


@given(OPERATIONS)
@settings(deadline=None, max_examples=150)
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
        live = [(point.uid, point.index) for point in model.tree.live]
        assert live == [(uid, index) for index, (uid, _) in enumerate(teller.line)]
        kept = facts_of(model.rows)
        fresh = Rows(model.tree)
        fresh.needle = model.rows.needle
        fresh.reset()
        assert kept == facts_of(fresh)
        assert model.rows.headings == fresh.headings
        assert [row.order for row in model.rows] == sorted(row.order for row in model.rows)


@given(OPERATIONS)
@settings(deadline=None, max_examples=60)
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
    held = [point.uid for point in tree.live]
    held += [point.uid for line in tree.lines.values() for point in line.points]
    assert len(held) == len(set(held))
    assert seen <= set(held)
    # Every line can still be gone back to, as it was.
    for n, stored in teller.stored.items():
        probe = TimelineModel()
        probe.rebuild([*teller.records, Record(0, 0.0, LineChanged("jump", 0, n, ""))])
        assert [point.uid for point in probe.tree.live] == [uid for uid, _ in stored]


@given(OPERATIONS)
@settings(deadline=None, max_examples=60)
def test_a_history_gives_the_same_view(operations: list[tuple[str, int]]) -> None:
    teller, model = Teller(), TimelineModel()
    for name, number in operations:
        if name in ("fold", "open", "filter"):
            continue
        first = len(teller.records)
        perform(teller, model, name, number)
        for record in teller.records[first:]:
            model.apply(record)
    again = TimelineModel()
    again.rebuild(teller.records)
    assert facts_of(again.rows) == facts_of(model.rows)
    model.rebuild(teller.records)
    assert facts_of(again.rows) == facts_of(model.rows)
