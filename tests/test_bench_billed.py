"""The bill of generated sessions: the same each time, and the common prefix of requests is what the server has cached."""

from __future__ import annotations

from bench.billed import RULES, Bill, play, session


def test_the_bill() -> None:
    rule = RULES[0]
    bill = Bill(rule)
    bill.call([("a", 2_000)], 10)
    assert bill.cost == 2_000 * 1.25 + 50
    bill.call([("a", 2_000), ("b", 100)], 0)
    assert bill.cost == 2_550 + 200 + 125
    steps = session(1, 0.3)
    assert steps == session(1, 0.3)
    costs = {one: play(one, steps, rule).cost for one in ("plain", "masking", "D-Mails")}
    assert costs["D-Mails"] < costs["plain"] < costs["masking"]
