"""The words around the list."""

from __future__ import annotations

import pytest
from support.story import Teller, until_arrived, whole_story

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.timeline import details
from kimi_tui.wire.events import EventRecord, StatusUpdate


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def model_of(teller: Teller) -> TimelineModel:
    model = TimelineModel()
    for record in teller.records:
        model.apply(record)
    return model


def text_of(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (35, "Timeline   16 steps · 3 world lines"),
        (29, "Timeline   16 steps · 3 lines"),
        (23, "Timeline       16 steps"),
    ],
)
def test_the_title_says_as_much_as_fits(width: int, words: str) -> None:
    assert text_of([details.title_spans(16, 3, width, UNICODE)]) == [words]


def test_the_facts_of_a_turn() -> None:
    model = model_of(whole_story())
    lines = details.checkpoint_details(
        model, model.tree.live[6], None, width=34, rows=2, glyphs=UNICODE
    )
    assert text_of(lines)[1:] == ["Why is the import slow?", "Rewinding here frees 16.5k"]
    assert "min" in text_of(lines)[0] or " s" in text_of(lines)[0]


def test_the_facts_of_a_d_mail() -> None:
    model = model_of(until_arrived())
    lines = details.checkpoint_details(
        model, model.tree.live[8], None, width=34, rows=2, glyphs=UNICODE
    )
    first = text_of(lines)[0]
    assert first[2] == ":"
    assert "sent from #12" in first
    assert text_of(lines)[2] == "Rewinding here frees ~300"


def test_a_step_of_several_tools_says_what_each_cost() -> None:
    t = Teller()
    t.turn("One")
    t.step(
        ("ReadFile", {"path": "a.py"}),
        ("ReadFile", {"path": "b.py"}),
        cost=8_000,
    )
    checkpoint = model_of(t).tree.live[1]
    assert details.whole_label(checkpoint) == "Read a.py ~4.0k, Read b.py ~4.0k"


def test_of_several_tools_the_one_that_cost_most_comes_first() -> None:
    t = Teller()
    t.turn("One")
    t.step(("Grep", {"pattern": "x"}), ("ReadFile", {"path": "b.py"}), cost=8_000)
    checkpoint = model_of(t).tree.live[1]
    assert checkpoint.calls is not None
    checkpoint.calls[0].size_chars = checkpoint.calls[1].size_chars // 3
    assert details.whole_label(checkpoint) == 'Read b.py ~6.0k, Grep "x" ~2.0k'


def test_a_world_line_tells_why_it_was_left() -> None:
    model = model_of(whole_story())
    line = model.tree.lines[2]
    told = details.line_details(line, line.at + 7_300, model.tree.name_of(line), 34, UNICODE)
    assert text_of(told) == [
        "Use a regular expression for the",
        "whole line.",
        "World line 2  2 h ago",
        "left by your rewind to #4",
        "14 steps, ~53.2k tokens",
    ]
    assert (
        text_of(details.line_details(model.tree.lines[3], line.at, "", 34, UNICODE))[1]
        == "left by a D-Mail from #12"
    )


def test_a_line_that_an_undo_left_tells_its_tokens_too() -> None:
    t = Teller()
    t.turn("One")
    for _ in range(2):
        t.step(("Shell", {"command": "ls"}), cost=2_000)
    left = t.rewind(1)
    t.step(("Shell", {"command": "pwd"}), cost=9_000)
    used = t.used
    t.jump(left, op="undo")
    line = model_of(t).tree.lines[2]
    assert (line.reason, line.tokens_before) == ("undo", used)
    told = text_of(details.line_details(line, line.at, "", 34, UNICODE))
    assert told[-3:] == ["World line 2  just now", "left by your undo", "1 step, ~14.2k tokens"]


def test_the_forecast_in_words() -> None:
    model = TimelineModel()
    for used, trigger, per_step, words in (
        (10, 100, 30, "Compacts in ~3 steps"),
        (99, 100, 30, "Compacts before the next step"),
        (10, 212_000, 0, "Compacts at 212k"),
        (10, 212_000, 100, "Compacts at 212k"),
        (100, 100, 5, "Compacts before the next step"),
    ):
        status = StatusUpdate(used=used, limit=262_144, trigger=trigger, per_step=per_step)
        model.apply(EventRecord(1, 0.0, status))
        assert text_of(details.now_details(model))[1] == words


def test_a_long_label_is_wrapped_then_cut() -> None:
    t = Teller()
    t.turn("alpha beta gamma delta " * 8)
    model = model_of(t)
    lines = text_of(
        details.checkpoint_details(
            model, model.tree.live[0], None, width=20, rows=2, glyphs=UNICODE
        )
    )
    assert lines[1] == "alpha beta gamma"
    assert lines[2].endswith("…")
    assert len(lines) == 4
