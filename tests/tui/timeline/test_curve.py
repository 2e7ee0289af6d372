"""The curve: which checkpoint stands in which column, and how high."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from support.story import LIMIT, TRIGGER, Teller, whole_story
from textual.strip import Strip

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.rows import Span
from kimi_tui.tui.timeline.layout import columns_of, curve_spans, with_forecast
from kimi_tui.tui.timeline.viewport import TimelineViewport


def checkpoints(count: int, start: int = 0) -> list[CheckpointNode]:
    return [
        CheckpointNode(
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
    assert ["".join(span.text for span in line) for line in lines] == [
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


@pytest.mark.parametrize(("n_columns", "words"), [(20, "≡ in ~3 steps"), (21, "")])
def test_the_forecast_stands_beside_the_curve_where_there_is_room(
    n_columns: int, words: str
) -> None:
    marks = [Span(" " * (n_columns - 1)), Span("●", "accent"), Span(" " * (35 - n_columns))]
    row = "".join(span.text for span in with_forecast(marks, "in ~3 steps", n_columns, 35, UNICODE))
    assert len(row) == 35
    assert row.split("●")[1].strip() == words


def picture(tokens: list[int], limit: int, rows: int = 3) -> list[str]:
    """Return the curve over checkpoints with so many tokens."""
    live = checkpoints(len(tokens))
    for checkpoint, count in zip(live, tokens, strict=True):
        checkpoint.tokens = checkpoint.tokens_end = count
    columns = columns_of([], live, 20)
    trigger = limit * 8 // 10
    lines = curve_spans(columns, width=20, rows=rows, limit=limit, trigger=trigger, glyphs=UNICODE)
    return ["".join(span.text for span in line).rstrip() for line in lines[:-1]]


def test_little_of_a_large_window_is_not_flat_and_the_window_is_a_line_above_it() -> None:
    used = [5_000, 10_000, 15_000, 20_000, 25_000]
    assert picture(used, 262_144) == ["╌╌╌╌╌╌╌╌╌╌╌╌╌ ↑ 262k", "  ▁▄▇", "▃▆███"]
    assert picture(used, 262_144, rows=2) == ["╌╌╌╌╌╌╌╌╌╌╌╌╌ ↑ 262k", "▁▃▄▅▇"]
    # Where much of it is used the height is the share of the window.
    assert picture([200_000], 300_000) == ["╌" * 20, "█", "█"]
    # A window of unknown size has no line.
    assert picture(used, 0) == ["", "  ▁▄▇", "▃▆███"]


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


def test_other_colours_paint_the_same_curve_and_another_model_has_its_own() -> None:
    painted: list[str] = []

    def strip(spans: list[Span], width: int, ground: str) -> Strip:
        painted.append("".join(span.text for span in spans))
        return Strip([Segment(painted[-1])])

    models = [TimelineModel(), TimelineModel()]
    for model, records in zip(models, (whole_story().records, ()), strict=True):
        for record in records:
            model.apply(record)
    models[1].revision = models[0].revision
    view = TimelineViewport(strip)
    view.width = view.full_width = 38
    view.height = view.screen_height = 40
    view.show(models[0])
    view.lines(0, 40)
    curve, rows = view.curve, painted.copy()
    painted.clear()
    view.clear()
    view.lines(0, 40)
    assert painted == rows
    assert view.curve is curve
    view.show(models[1])
    for record in whole_story().records[:60]:
        models[1].apply(record)
    models[1].revision = models[0].revision
    view.lines(0, 40)
    assert view.curve != curve
