"""The curve: which checkpoint stands in which column, and how high."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.story import LIMIT, TRIGGER, whole_story

from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.timeline.curve import columns_of, curve_spans, past_of
from kimi_tui.tui.timeline.model import TimelineModel
from kimi_tui.tui.timeline.points import Point


def points(count: int, start: int = 0) -> list[Point]:
    return [
        Point(
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
    past = past_of(model.tree)
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
    live = points(5)
    columns = columns_of([], live, 35)
    assert [column.point for column in columns] == live
    assert columns[-1].tokens == 6_000


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 60))
def test_columns_are_in_order_fit_and_keep_the_highest(
    n_past: int, n_live: int, width: int
) -> None:
    past, live = points(n_past, 1_000), points(n_live)
    columns = columns_of(past, live, width)
    assert len(columns) <= width
    now = [column for column in columns if not column.is_past]
    assert [c.point.index for c in now] == sorted({c.point.index for c in now})
    if now:
        assert max(c.tokens for c in now) == live[-1].tokens_end
        assert now[-1].mark == "now"
    then = [column for column in columns if column.is_past]
    if then:
        assert max(c.tokens for c in then) == past[-1].tokens


def test_a_mark_survives_resampling() -> None:
    live = points(400)
    live[200].kind, live[200].saved = "dmail", -5
    columns = columns_of([], live, 30)
    assert [c.mark for c in columns].count("dmail") == 1
    assert columns[200 * 30 // 400].mark == "dmail"
