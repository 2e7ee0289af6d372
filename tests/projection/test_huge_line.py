"""A compaction, its undo and its redo cost the same in a short line and in a huge one, and change what is past all the same."""

from __future__ import annotations

from support.effort import n_steps
from support.story import Teller

from kimi_tui.projection.session_model import SessionModel
from kimi_tui.wire.events import EventRecord, StatusUpdate

LITTLE_MORE = 60
"""Steps of work that bisections of a longer list may take more."""


def told(turns: int) -> tuple[SessionModel, Teller]:
    teller = Teller()
    for n in range(turns):
        teller.turn(f"Do part {n}.")
        teller.step(("ReadFile", {"path": f"part{n}.py"}), cost=9)
        teller.step(("Shell", {"command": f"pytest {n}"}), cost=9)
        teller.end()
    return model_of(teller.records), teller


def model_of(records: list[EventRecord]) -> SessionModel:
    model = SessionModel()
    for record in records:
        model.apply(record)
    # As a screen does that shows all of it.
    for _ in model.timeline.settle():
        pass
    return model


def effort(model: SessionModel, teller: Teller, first: int) -> int:
    """Apply the events from an index on; return the work for all but token figures, which look for their cards."""
    work = 0
    for record in teller.records[first:]:
        if isinstance(record.event, StatusUpdate):
            model.apply(record)
        else:
            work += n_steps(lambda record=record: model.apply(record))
    return work


def test_compaction_undo_and_redo_cost_what_they_change() -> None:
    spent: list[list[int]] = []
    for turns in (40, 300):
        model, teller = told(turns)
        chat, work = model.chat, list[int]()
        before = [(block.key, block.version) for block in chat.blocks]
        first = len(teller.records)
        teller.compact()
        work.append(effort(model, teller, first))
        assert not any(block.live for block in chat.blocks[:-1])
        assert chat.blocks[-1].live
        first = len(teller.records)
        teller.jump(1, op="undo")
        work.append(effort(model, teller, first))
        assert all(block.live and not block.is_past for block in chat.blocks)
        assert [block.key for block in chat.blocks] == [key for key, _ in before]
        # Views draw again what they drew as past.
        assert not {block.version for block in chat.blocks} & {version for _, version in before}
        first = len(teller.records)
        teller.jump(2, op="redo")
        work.append(effort(model, teller, first))
        assert [block.live for block in chat.blocks] == [False] * len(before) + [True]
        spent.append(work)
    small, huge = spent
    for name, few, many in zip(("compaction", "undo", "redo"), small, huge, strict=True):
        assert many <= few + LITTLE_MORE, (name, few, many)


def test_a_rewind_to_the_beginning_costs_what_stays() -> None:
    spent: list[int] = []
    for turns in (40, 300):
        model, _ = told(turns)
        steps = model.chat._steps  # pyright: ignore[reportPrivateUsage]
        spent.append(n_steps(lambda steps=steps: steps.cut(3)))
        assert sorted(steps._known) == [0, 1, 2]  # pyright: ignore[reportPrivateUsage]
    assert spent[1] <= spent[0] + 5


def test_blocks_that_another_line_brings_back_are_those_of_that_line() -> None:
    _, teller = told(4)
    number = len(teller.line) - 3
    teller.rewind(number)
    teller.compact()
    teller.turn("Something else.")
    teller.end()
    teller.jump(1)
    again = model_of(teller.records)
    assert all(block.live for block in again.chat.blocks)
    teller.jump(2)
    back = model_of(teller.records)
    past = [block.is_past for block in back.chat.blocks]
    assert past == sorted(past, reverse=True)
    assert any(past)
    assert not past[-1]


def test_the_turn_of_the_newest_step_is_known_before_the_rows_of_a_line_are_made() -> None:
    spent: list[int] = []
    for turns in (40, 300):
        model, _ = told(turns)
        rows, live = model.timeline.rows, model.timeline.tree.live
        wanted = [rows.heading_of(index) for index in range(len(live))]

        def asked(rows=rows, live=live) -> None:  # pyright: ignore[reportMissingParameterType]
            rows.reset()
            rows.heading_of(len(live) - 1)

        spent.append(n_steps(asked))
        assert [rows.heading_of(index) for index in range(len(live))] == wanted
        for _ in model.timeline.settle():
            pass
        assert [rows.heading_of(index) for index in range(len(live))] == wanted
    assert spent[1] <= spent[0] + LITTLE_MORE
