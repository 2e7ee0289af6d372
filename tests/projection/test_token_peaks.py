"""The peaks of token figures are those of the checkpoints, through any changes, and a step in a long session is as cheap as in a short one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import n_steps
from support.story import Teller, whole_story

from kimi_tui.projection import token_peaks
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.projection.token_peaks import TokenPeaks
from kimi_tui.tui.timeline.layout import columns_of

WIDTH = 35


def node(place: int, tokens: int) -> CheckpointNode:
    saved = 1 if tokens % 5 == 0 else None
    return CheckpointNode(
        place, place, f"u{place}", "step", place, 0.0, tokens=tokens, tokens_end=2, saved=saved
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(["grow", "cut", "newest", "older"]), st.integers(0, 300)),
        max_size=30,
    )
)
def test_peaks_are_those_of_the_checkpoints(changes: list[tuple[str, int]]) -> None:
    peaks, points = TokenPeaks(), list[CheckpointNode]()
    for what, number in changes:
        match what:
            case "grow":
                points += [node(len(points) + n, number * n % 401) for n in range(1 + number % 97)]
            case "cut":
                del points[number:]
                peaks.cut(len(points))
            case "newest" if points:
                points[-1].tokens = number
            case "older" if points:
                place = number % len(points)
                points[place].tokens_end = points[place].tokens = number
                peaks.cut(place)
            case _:
                pass
        figures = [one.tokens for one in points]
        assert peaks.most(points) == max([*figures, *(one.tokens_end for one in points)], default=0)
        assert peaks.savings(points) == [n for n, one in enumerate(points) if one.saved is not None]
        for start in range(0, len(points), 13):
            end = min(len(points), start + 1 + number)
            assert peaks.largest(points, start, end) == max(figures[start:end])
    for _ in peaks.settle(points):
        pass
    assert peaks.n_missing(points) < token_peaks.GROUP + token_peaks.NEWEST
    assert peaks.most(points) == max((max(p.tokens, p.tokens_end) for p in points), default=0)


def test_the_curve_with_what_is_known_is_the_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_peaks, "GROUP", 3)
    model, n_drawn = TimelineModel(), 0
    for record in whole_story().records:
        model.apply(record)
        live, past = model.tree.live, model.tree.before_now()
        known = columns_of(past, live, 20, None, (TokenPeaks(), model.peaks))
        assert known == columns_of(past, live, 20)
        n_drawn += bool(known)
    assert n_drawn > 100


def model_of(turns: int) -> tuple[TimelineModel, Teller]:
    told, model = Teller(), TimelineModel()
    for n in range(turns):
        told.turn(f"Question {n}")
        told.step(("Shell", {"command": "ls"}), cost=1)
        told.step(text="Done.", cost=1)
        told.end()
    for record in told.records:
        model.apply(record)
    for _ in model.settle():
        pass
    return model, told


def work_of_a_step(turns: int) -> int:
    """Return the work of the events of one step, and of what the timeline draws after each, in a session of so many turns."""
    model, told = model_of(turns)
    first = len(told.records)
    told.turn("One more")
    told.step(("Shell", {"command": "ls"}))
    past = TokenPeaks()

    def follow() -> None:
        for record in told.records[first:]:
            model.apply(record)
            columns_of([], model.tree.live, WIDTH, None, (past, model.peaks))
            model.most_tokens()

    return n_steps(follow)


def test_a_step_in_a_long_session_is_nearly_as_cheap_as_in_a_short_one() -> None:
    short, long = work_of_a_step(200), work_of_a_step(2_000)
    # Without what is known this is ten times the work of the short one.
    assert long < 2 * short


def test_figures_that_change_late_leave_the_others_known() -> None:
    model, told = model_of(600)
    n_known = len(model.peaks._groups)
    first = len(told.records)
    newest = len(told.line) - 3
    told.rewind(newest)
    told.turn("Again")
    told.step(text="Done.")
    for record in told.records[first:]:
        model.apply(record)
        assert len(model.peaks._groups) >= n_known - 1
    assert n_known > 50
