"""The curve: which checkpoint stands in which column, and how high."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.story import LIMIT, TRIGGER, Teller, whole_story

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_tree import Checkpoint
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.timeline import details
from kimi_tui.tui.timeline.token_curve import columns_of, curve_spans, with_forecast


def checkpoints(count: int, start: int = 0) -> list[Checkpoint]:
    return [
        Checkpoint(
            start + i,
            i,
            f"u{i}",
            "step",
            i,
            0.0,
            tokens=1_000 * (i + 1),
            tokens_end=1_000 * (i + 2),
        )
        for i in range(count)
    ]


def test_the_story_has_its_past_its_marks_and_its_height() -> None:
    model = TimelineModel()
    for record in whole_story().records:
        model.apply(record)
    past = model.tree.before_now()
    assert len(past) == 64
    columns = columns_of(past, model.tree.live, 35)
    lines = curve_spans(columns, width=35, rows=3, limit=LIMIT, trigger=TRIGGER, glyphs=UNICODE)
    assert ["".join(text for text, _ in line) for line in lines] == [
        "╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌▁▂▃╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌",
        "       ▁▁▃▄▅▆▇████                 ",
        "▁▂▃▄▅▆▇███████████▂▂▂▂▃▃▃▃▃▃▃▄▄▄▄▄▄",
        "                  ≡       ◆       ●",
    ]


def test_few_checkpoints_have_a_column_each() -> None:
    live = checkpoints(5)
    columns = columns_of([], live, 35)
    assert [column.checkpoint for column in columns] == live
    assert columns[-1].tokens == 6_000


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 60))
def test_columns_are_in_order_fit_and_keep_the_highest(
    n_past: int, n_live: int, width: int
) -> None:
    past, live = checkpoints(n_past, 1_000), checkpoints(n_live)
    columns = columns_of(past, live, width)
    assert len(columns) <= width
    now = [column for column in columns if not column.is_past]
    assert [c.checkpoint.index for c in now] == sorted({c.checkpoint.index for c in now})
    if now:
        assert max(c.tokens for c in now) == live[-1].tokens_end
        assert now[-1].mark == "now"
    then = [column for column in columns if column.is_past]
    if then:
        assert max(c.tokens for c in then) == past[-1].tokens


def test_a_mark_survives_resampling() -> None:
    live = checkpoints(400)
    live[200].kind, live[200].saved = "dmail", -5
    columns = columns_of([], live, 30)
    assert [c.mark for c in columns].count("dmail") == 1
    assert columns[200 * 30 // 400].mark == "dmail"


@pytest.mark.parametrize(
    ("n_columns", "words"),
    [
        (8, "compacts in about 3 steps"),
        (9, "in ~3 steps"),
        (22, "in ~3 steps"),
        (23, ""),
    ],
)
def test_the_forecast_stands_beside_the_curve_where_there_is_room(
    n_columns: int, words: str
) -> None:
    marks = [(" " * (n_columns - 1), "quiet"), ("●", "accent"), (" " * (35 - n_columns), "quiet")]
    forms = details.forecast_forms(used=170_000, trigger=200_000, per_step=12_000)
    row = "".join(text for text, _ in with_forecast(marks, forms, n_columns, 35))
    assert len(row) == 35
    assert row.split("●")[1].split("  ")[-1].strip() == words


def test_what_is_far_off_or_unknown_is_not_foretold() -> None:
    assert details.forecast_forms(10_000, 200_000, 100) == []
    assert details.forecast_forms(10_000, 200_000, 0) == []
    assert details.forecast_forms(10_000, 0, 100) == []
    assert details.forecast_forms(200_000, 200_000, 100)[0] == "compacts at the next step"


def test_a_line_that_went_on_is_past_only_up_to_the_compaction() -> None:
    teller, model = Teller(), TimelineModel()
    teller.turn("first")
    for _ in range(5):
        teller.step(("Shell", {"command": "ls"}))
    teller.rewind(3)
    teller.compact()
    for record in teller.records:
        model.apply(record)
    assert [checkpoint.id for checkpoint in model.tree.before_now()] == [0, 1, 2]
    (line,) = model.tree.lines.values()
    # It was left by the rewind, and held then what it holds.
    assert [checkpoint.id for checkpoint in line.checkpoints] == [0, 1, 2, 3, 4, 5]
    assert line.tokens_before == max(checkpoint.tokens_end for checkpoint in line.checkpoints)
