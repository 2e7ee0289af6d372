"""Which request of which future leaves next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.futures.turns import ModelServer, ModelTurns

URL = "http://server"


class Line:
    """Futures at one server, with what they were told."""

    def __init__(self, most: int, models: list[str]) -> None:
        self.gone: list[str] = []
        self.waits: dict[str, str] = {}
        self.turns = ModelTurns(lambda _: most, self.gone.append, self.waits.__setitem__)
        for number, model in enumerate(models):
            self.turns.join(str(number), ModelServer(URL, model))


def test_the_first_request_leaves_alone_and_the_others_when_its_answer_begins() -> None:
    line = Line(3, ["a", "a", "a"])
    for key in "210":
        line.turns.ask(key)
    assert line.gone == ["0"]
    assert line.waits == {"2": "first", "1": "first", "0": ""}
    line.turns.begun("0")
    assert line.gone == ["0", "2", "1"]


def test_futures_with_other_models_do_not_wait_for_one_another() -> None:
    line = Line(3, ["a", "b", "a"])
    for key in "012":
        line.turns.ask(key)
    assert line.gone == ["0", "1"]


def test_a_server_gets_only_so_many_at_once() -> None:
    line = Line(2, ["a", "b", "c"])
    for key in "012":
        line.turns.ask(key)
    assert (line.gone, line.waits["2"]) == (["0", "1"], "turn")
    line.turns.left("0")
    assert line.gone == ["0", "1", "2"]


def test_another_future_leads_if_the_first_ends_without_an_answer() -> None:
    line = Line(2, ["a", "a"])
    line.turns.ask("0")
    line.turns.ask("1")
    line.turns.left("0")
    assert line.gone == ["0"]
    line.turns.leave("0")
    assert line.gone == ["0", "1"]


def test_a_server_that_refused_gets_one_at_a_time() -> None:
    line = Line(2, ["a", "b"])
    line.turns.ask("0")
    line.turns.ask("1")
    line.turns.refused("0")
    line.turns.left("0")
    line.turns.left("1")
    line.turns.ask("0")
    line.turns.ask("1")
    assert line.gone == ["0", "1", "0"]


@given(
    st.integers(1, 3),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["ask", "begun", "left", "leave"]))),
)
def test_never_too_many_run_and_all_that_ask_leave_in_the_end(
    most: int, models: list[str], moves: list[tuple[int, str]]
) -> None:
    line = Line(most, models)
    alive = {str(number) for number in range(len(models))}
    asking: set[str] = set()
    for number, move in moves:
        key = str(number)
        if key not in alive or (move == "ask") == (key in asking):
            continue
        if move == "begun" and key not in line.gone:
            continue
        getattr(line.turns, move)(key)
        if move == "ask":
            asking.add(key)
        elif move in ("left", "leave"):
            asking.discard(key)
            alive -= {key} if move == "leave" else set()
        while key in line.gone and move == "left":
            line.gone.remove(key)
    assert sum(key in line.gone for key in asking) <= most
    for _ in range(len(models) + 1):
        for key in [key for key in line.gone if key in asking]:
            line.turns.begun(key)
            line.turns.left(key)
            asking.discard(key)
        # Those that have not asked end, so that nobody waits for their answers.
        for key in sorted(alive - asking):
            line.turns.leave(key)
            alive.discard(key)
    assert not asking
