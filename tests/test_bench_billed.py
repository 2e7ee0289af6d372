"""The bill of generated sessions: the same each time, and the common prefix of requests is what the server has cached."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.billed import RULES, Bill, play, session
from bench.billed_agents import N_FILES, OURS, Request, Task, run


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


def test_the_scripted_model_reads_on_and_follows_a_reminder() -> None:
    task = Task(Path("/work"))
    asked = Request(["[]", "Read"], ["ReadFile", "SendDMail"], "chat")
    assert task.answer(asked).arguments == {"path": "/work/part00.txt"}
    ends = "VALUE of part 0 is 1234\n", "call SendDMail with checkpoint_id 3: the"
    letter = task.answer(asked._replace(texts=[*asked.texts, *ends]))
    assert letter.arguments == {"message": "VALUE of part 0 is 1234.", "checkpoint_id": 3}
    assert task.answer(asked._replace(tools=[])).text
    assert task.answer(asked).arguments == {"path": "/work/part01.txt"}
    assert task.n_requests == 4


@pytest.mark.exhaustive
def test_rules_make_the_scripted_task_cheaper_and_keep_what_matters() -> None:
    ours, without = map(run, OURS)
    assert ours.is_done
    assert without.is_done
    assert ours.kept == without.kept == N_FILES
    assert ours.bills[0].cost < without.bills[0].cost
