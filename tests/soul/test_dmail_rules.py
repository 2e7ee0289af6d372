"""Rules of D-Mails: which fires after a step, what comes of it, and what the statistics say of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.cases import each
from support.chat_server import call, calls, say
from support.soul import next_event, stage

from kimi_tui.config.settings import DMailConfig, DMailRule, ModelPrices
from kimi_tui.soul.dmail_rules import QUIET_STEPS, DMailRules, StepFacts, pays_back_after
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.tool_calls import Call, CallResult
from kimi_tui.soul.usage import RuleSavings
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import Decoder, encode_record


def done(output: str = "x", **more: Any) -> CallResult:
    return CallResult(Call("k", "", "Shell", '{"command": "make"}'), ToolOutcome(output, **more))


def facts(n: int = 0, *, size: int = 100, used: int = 20_000, **more: Any) -> StepFacts:
    return StepFacts(n, f"u{n}", [size], used, 100_000, **more)


FAILED = done(is_error=True)
OTHER_FAILED = CallResult(
    Call("k", "", "Shell", '{"command": "ls"}'), ToolOutcome("x", is_error=True)
)
# The rule, the steps, the step at which it fires (-1: never), and the checkpoint that is its target.
CASES: dict[str, tuple[DMailRule, Sequence[tuple[CallResult, StepFacts]], int, str]] = {
    "a large result": (
        DMailRule("r", result_tokens=500),
        [(done(), facts(0)), (done(), facts(1, size=500))],
        1,
        "u1",
    ),
    "a share": (DMailRule("r", result_share=0.1), [(done(), facts(0, size=10_000))], 0, "u0"),
    "less than the share": (
        DMailRule("r", result_share=0.1),
        [(done(), facts(0, size=9_999))],
        -1,
        "",
    ),
    "it pays": (DMailRule("r", payback=5), [(done(), facts(0, size=10_000))], 0, "u0"),
    "it does not pay": (
        DMailRule("r", payback=5),
        [(done(), facts(0, size=4_000))],
        -1,
        "",
    ),
    "nor where the cache is free": (
        DMailRule("r", payback=5),
        [(done(), facts(0, size=10_000, prices=ModelPrices(1.0, 0.0, 2.0)))],
        -1,
        "",
    ),
    "failures": (
        DMailRule("r", same_call_failed=2),
        [(done(), facts(0)), (FAILED, facts(1)), (FAILED, facts(2)), (FAILED, facts(3))],
        2,
        "u1",
    ),
    "one before the pause for circles": (
        DMailRule("r", same_call_failed=9),
        [(FAILED, facts(0)), (FAILED, facts(1))],
        1,
        "u0",
    ),
    "failures of another call each time": (
        DMailRule("r", same_call_failed=2),
        [(FAILED, facts(0)), (OTHER_FAILED, facts(1)), (FAILED, facts(2))],
        -1,
        "",
    ),
    "failures behind those of another call": (
        DMailRule("r", same_call_failed=2),
        [(OTHER_FAILED, facts(0)), (FAILED, facts(1)), (FAILED, facts(2))],
        2,
        "u1",
    ),
    "a circle": (
        DMailRule("r", circle=True),
        [(done(), facts(0)), (done(), facts(1)), (done(), facts(2))],
        1,
        "u0",
    ),
    "no check": (
        DMailRule("r", steps_without_check=2),
        [
            (done("1"), facts(0)),
            (done("2"), facts(1, checks=[True])),
            (done("3"), facts(2, checks=[False])),
            (done("4"), facts(3)),
        ],
        3,
        "u3",
    ),
    "a check after an edit failed": (
        DMailRule("r", check_failed=True),
        [(done(), facts(0, checks=[True])), (done(), facts(1, checks=[False]))],
        1,
        "u1",
    ),
    "the largest result where the window fills": (
        DMailRule("r", window_share=0.5),
        [(done("1"), facts(0, size=900)), (done("2"), facts(1, used=50_000))],
        1,
        "u0",
    ),
    "all must hold": (
        DMailRule("r", result_tokens=50, window_share=0.5),
        [(done(), facts(0))],
        -1,
        "",
    ),
}


@each("name", CASES)
def test_when_it_fires(name: str) -> None:
    rule, steps, at, target = CASES[name]
    rules = DMailRules([rule], 3)
    found = [rules.after_step([one], about, lambda _: True) for one, about in steps]
    assert [n for n, one in enumerate(found) if one is not None] == ([at] if at >= 0 else [])
    if at >= 0:
        firing = found[at]
        assert firing is not None
        assert (firing.uid, firing.rule) == (target, rule)
        assert firing.why.endswith(".")


def test_it_is_quiet_for_some_steps_and_fires_once_over_a_share_of_the_window() -> None:
    rules = DMailRules([DMailRule("r", result_tokens=100)], 3)
    fired = [rules.after_step([done()], facts(n), bool) is not None for n in range(7)]
    assert fired == [n % QUIET_STEPS == 0 for n in range(7)]
    new = DMailRules([DMailRule("r", result_tokens=100)], 3)
    outputs = ["a", "b", "b", "c"]
    fired = [new.after_step([done(o)], facts(n), bool) is not None for n, o in enumerate(outputs)]
    assert fired == [True, True, False, True]
    over = DMailRules([DMailRule("w", window_share=0.5)], 0)
    used = [50_000] * 5 + [100] + [60_000]
    fired = [
        over.after_step([done()], facts(n, used=u), bool) is not None for n, u in enumerate(used)
    ]
    assert fired == [True, *[False] * 5, True]


def test_what_a_dmail_costs_and_saves() -> None:
    # The figures of a prefix cache that is read at a tenth, with output five times the input: see docs/dmail-rules.md.
    assert round(pays_back_after(10_000, 20_000, None), 1) == 4.6
    assert round(pays_back_after(30_000, 20_000, None), 1) == 1.5
    assert pays_back_after(400, 20_000, None) == float("inf")


def with_rules(*rules: DMailRule, review: bool = False) -> LoopLimits:
    return LoopLimits(dmail=DMailConfig(review=review, rules=rules))


LARGE = DMailRule("logs", "draft", result_tokens=500)


async def large(on: Any) -> None:
    await asyncio.to_thread((on.work / "big.txt").write_text, "some words of a line\n" * 400)


@each("answer", ["once", "no"])
async def test_a_draft_is_shown_and_sent_or_refused(tmp_path: Path, answer: Any) -> None:
    async with stage(tmp_path, limits=with_rules(LARGE)) as on:
        await large(on)
        on.server.script(call("ReadFile", {"path": "big.txt"}), say("Line 7 matters."), say("ok"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("read"))
        asked = await next_event(heard, ev.ApprovalRequest)
        assert (asked.kind, asked.detail) == ("dmail", "Line 7 matters.")
        assert "logs" in asked.question
        on.soul.answer(asked.id, answer)
        await turn
        did = [one.did for one in on.ear.of(ev.RuleApplied)]
        sent = on.ear.of(ev.ContextReverted)
        assert did == ["fired", "drafted", *(["refused"] if answer == "no" else [])]
        assert [one.rule for one in sent] == ([] if answer == "no" else ["logs"])
        assert ("some words" in str(on.sent())) == (answer == "no")
        [rule] = (await on.soul.statistics()).dmail_rules
        refused = answer == "no"
        assert (rule.name, rule.fired, rule.drafted) == ("logs", 1, 1)
        assert (rule.sent, rule.refused) == (int(not refused), int(refused))
        # A draft that was refused only cost something.
        assert rule.net < 0 if refused else rule.taken > 500


async def test_it_is_sent_where_nothing_is_reviewed(tmp_path: Path) -> None:
    rule = LARGE._replace(then="send")
    async with stage(tmp_path, limits=with_rules(rule)) as on:
        await large(on)
        on.server.script(call("ReadFile", {"path": "big.txt"}), say("Line 7 matters."), say("ok"))
        await on.soul.run("read")
        assert not on.ear.of(ev.ApprovalRequest)
        assert [one.rule for one in on.ear.of(ev.ContextReverted)] == ["logs"]


async def test_a_dmail_after_a_reminder_is_the_rules(tmp_path: Path) -> None:
    async with stage(tmp_path, limits=with_rules(LARGE._replace(then="remind"))) as on:
        await large(on)
        mail = ("SendDMail", {"message": "Line 7.", "checkpoint_id": 1})
        on.server.script(call("ReadFile", {"path": "big.txt"}), calls([mail]), say("ok"))
        await on.soul.run("read")
        assert "The last tool results take about" in str(on.sent(1))
        assert [one.rule for one in on.ear.of(ev.ContextReverted)] == ["logs"]
        [rule] = (await on.soul.statistics()).dmail_rules
        assert (rule.fired, rule.drafted, rule.sent, rule.calls) == (1, 0, 1, 1)


def test_a_rule_in_the_record_is_read_back_and_skipped_by_kimi_cli() -> None:
    event = ev.RuleApplied("a", "drafted", "draft", 3, input=5, cached=2, output=1)
    line = encode_record(ev.EventRecord(1, 1.0, event))
    assert line["protocol_version"] == ""
    assert Decoder().decode_record(line, 1) == ev.EventRecord(1, 1.0, event)


def test_savings_in_several_currencies_are_told_in_tokens() -> None:
    prices = {
        "one": ModelPrices(2.0, 0.2, 8.0, "USD"),
        "other": ModelPrices(14.0, 1.4, 56.0, "CNY"),
    }

    def told(*models: str) -> tuple[str, float]:
        savings = RuleSavings(prices)
        for n, model in enumerate(models):
            savings.apply(ev.StatusUpdate(1, 9, 8, model=model, total_input=n))
            savings.apply(ev.RuleApplied("a", "fired", "draft", n))
            savings.apply(ev.RuleApplied("a", "drafted", "draft", n, input=1_000, output=100))
        [rule] = savings.rules()
        return rule.currency, round(rule.cost, 9)

    assert told("one") == ("USD", 0.0028)
    assert told("other", "other") == ("CNY", 0.0392)
    assert told("one", "other") == ("", 2_800)
    assert told("one", "unpriced") == ("", 1_400 + 1_500)
