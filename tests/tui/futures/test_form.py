"""The form of a set of futures: its fields, the plan that they make, and the sentences about its cost."""

from __future__ import annotations

import pytest
from support.fake_futures import estimated

from kimi_tui.futures.values import Caps, Estimate, FutureCost, FuturesPlan, NoFutures, Variant
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.futures.form import FuturesForm, estimate_rows, parsed_limits


@pytest.mark.parametrize(
    ("written", "caps"),
    [
        ("", Caps()),
        ("200k", Caps(tokens=200_000)),
        ("1.5M tokens, $0.50", Caps(tokens=1_500_000, cost=0.5)),
        ("900 tokens", Caps(tokens=900)),
        ("$0.50, 10 min", Caps(cost=0.5, seconds=600)),
        (" 90 s ,20 steps,", Caps(seconds=90, steps=20)),
    ],
)
def test_limits_are_read_as_they_are_written(written: str, caps: Caps) -> None:
    assert parsed_limits(written, "$") == caps


@pytest.mark.parametrize("written", ["much", "0", "$", "200q", "-5k", "k", "5m", "1e9", "9" * 200])
def test_a_limit_that_is_none_is_named_in_one_line(written: str) -> None:
    with pytest.raises(NoFutures) as no:
        parsed_limits(written, "$")
    assert no.value.field == "caps"
    assert "\n" not in str(no.value)
    assert len(str(no.value)) < 160


def test_the_same_message_and_model_go_to_all() -> None:
    form = FuturesForm(Target(5), ("", "other"), count=3)
    form.messages[0] = " Use a set "
    form.chosen[0] = 1
    assert form.plan() == FuturesPlan(Target(5), (Variant("Use a set", "other"),) * 3)
    assert ("message", 1) not in form.fields()


def test_each_future_can_have_its_own() -> None:
    form = FuturesForm(Target(5), ("", "other"), count=2)
    form.turn("same-message", 0, 1)
    form.turn("same-model", 0, 1)
    form.turn("model", 1, 1)
    form.turn("count", 0, 1)
    form.messages[:3] = ["a", "b", "c"]
    variants = form.plan().variants
    assert [(one.message, one.model) for one in variants] == [("a", ""), ("b", "other"), ("c", "")]
    assert [field for field in form.fields() if field[0] == "message"] == [
        ("message", 0),
        ("message", 1),
        ("message", 2),
    ]
    for _ in range(9):
        form.turn("count", 0, 1)
    assert form.count == 4


def test_the_network_is_asked_about_only_with_a_check() -> None:
    form = FuturesForm(Target(5), has_network=True)
    assert ("network", 0) not in form.fields()
    assert not form.plan().network
    form.check = "make test"
    assert ("network", 0) in form.fields()
    assert form.plan().network


def words(found: Estimate, plan: FuturesPlan) -> list[str]:
    """Return the rows about an estimate."""
    return [row.text for row in estimate_rows(found, plan, "$")]


def test_an_estimate_says_what_it_costs_and_what_is_not_isolated() -> None:
    plan = FuturesPlan(Target(5), (Variant(), Variant(), Variant()), caps=Caps(cost=0.5, steps=9))
    rows = words(estimated(plan), plan)
    assert rows[0] == (
        "The first requests together send 72.3k tokens, the conversation so far once for each future, 48.2k of them probably cached: about $0.09."
    )
    assert rows[1] == "All futures together use at most $1.50. Each stops after 9 steps."
    assert any("lets 2 futures use this server at a time" in row for row in rows)
    assert any(row.startswith("Not isolated: Databases") for row in rows)


def test_without_prices_and_limits_that_is_said() -> None:
    plan = FuturesPlan(Target(5))
    cold = Estimate((FutureCost("a", "m", 10, 0), FutureCost("b", "m", 10, 0)), 20, 0)
    rows = words(cold, plan)
    assert rows[:2] == [
        "The first requests together send 20 tokens, the conversation so far once for each future.",
        "There is no limit: each future works until it is done.",
    ]
