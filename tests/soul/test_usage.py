"""The cost of calls, counted from events: the same after the session was left, and from the context if the events are lost.

Below it, what a session did, counted from hand-made records with known times.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.chat_server import call, say
from support.effort import n_steps
from support.soul import Stage, stage

from kimi_tui.config.settings import ModelPrices
from kimi_tui.projection.tokens import CheckpointTokens, DMailCuts, saved_by
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.usage import Cost, Ledger, ModelUsage, cost_of, session_statistics, statistics
from kimi_tui.tui.formatting import statistics_pairs
from kimi_tui.wire import events as ev

PRICES = {"stand-in": ModelPrices(1.0, 0.1, 10.0), "other": ModelPrices(2.0, 2.0, 2.0, "¥")}


async def cost_from(on: Stage, checkpoint: int) -> Cost | None:
    """Return the cost of the calls from a checkpoint on, as the preview says it."""
    return (await on.soul.travel.preview(Target(checkpoint))).cost


def dollars(amount: float, *, exact: bool = True) -> Cost:
    """Return an amount of the stand-in's price."""
    return Cost((("$", round(amount, 9)),), exact)


def rounded(cost: Cost | None) -> Cost | None:
    """Return a cost without the inexact digits of floats."""
    if cost is None:
        return None
    amounts = tuple((currency, round(amount, 9)) for currency, amount in cost.amounts)
    return Cost(amounts, cost.is_exact, cost.is_whole)


async def three_calls(on: Stage) -> None:
    """A turn of two calls (#0: #1, #2) and one of one call (#3: #4)."""
    on.server.script(
        call("Shell", {"command": "true"}, usage=(100_000, 1_000, 0)),
        say("done", usage=(200_000, 2_000, 100_000)),
        say("more", usage=(300_000, 3_000, 200_000)),
    )
    await on.soul.run("first")
    await on.soul.run("second")


FIRST, SECOND, THIRD = 0.1 + 0.01, 0.1 + 0.01 + 0.02, 0.1 + 0.02 + 0.03


@pytest.mark.exhaustive
async def test_the_preview_says_what_the_undone_part_had_cost(tmp_path: Path) -> None:
    async with stage(tmp_path, prices=PRICES, window=2_000_000) as on:
        await three_calls(on)
        whole = FIRST + SECOND + THIRD
        for checkpoint, cost in ((0, whole), (1, whole), (2, SECOND + THIRD), (3, THIRD)):
            assert rounded(await cost_from(on, checkpoint)) == dollars(cost)
        assert rounded(on.soul.cost) == dollars(whole)
        await on.soul.travel.rewind(Target(3))
        assert rounded(await cost_from(on, 0)) == dollars(FIRST + SECOND)
        # Undone steps still cost.
        assert rounded(on.soul.cost) == dollars(whole)
        await on.reopen()
        assert rounded(await cost_from(on, 0)) == dollars(FIRST + SECOND)
        assert rounded(on.soul.cost) == dollars(whole)
        assert rounded((await on.soul.statistics()).cost) == dollars(whole)
        await on.soul.travel.undo()
        assert rounded(await cost_from(on, 3)) == dollars(THIRD)


@pytest.mark.exhaustive
async def test_without_the_record_the_line_itself_tells_about_it(tmp_path: Path) -> None:
    async with stage(tmp_path, prices=PRICES, window=2_000_000) as on:
        await three_calls(on)
        record = on.session.record.path
        await on.soul.aclose()
        record.unlink()
        on.session = on.store.find(on.session.id, on.work)
        await on.open()
        # Nobody knows any more what was cached.
        assert rounded(await cost_from(on, 2)) == dollars(0.2 + 0.02 + 0.3 + 0.03, exact=False)


async def test_estimated_usage_is_said_to_be_about(tmp_path: Path) -> None:
    async with stage(tmp_path, prices=PRICES) as on:
        on.server.script(say("without figures", usage=None))
        await on.soul.run("first")
        found = await cost_from(on, 0)
        assert found is not None
        assert not found.is_exact
        assert found.amounts[0][1] > 0


@pytest.mark.exhaustive
async def test_a_compaction_is_paid_too(tmp_path: Path) -> None:
    async with stage(tmp_path, prices=PRICES, window=2_000_000) as on:
        await three_calls(on)
        on.server.script(say("the summary", usage=(50_000, 100, 0)))
        await on.soul.compact()
        assert rounded(on.soul.cost) == dollars(FIRST + SECOND + THIRD + 0.05 + 0.001)


@pytest.mark.exhaustive
async def test_a_fork_counts_what_came_along_and_says_so(tmp_path: Path) -> None:
    async with stage(tmp_path, prices=PRICES, window=2_000_000) as on:
        await three_calls(on)
        whole = await on.soul.statistics()
        forked = await on.session.fork()
        await forked.open()
        try:
            found = session_statistics(forked, PRICES)
        finally:
            await forked.aclose()
        assert (whole.is_fork, found.is_fork) == (False, True)
        assert rounded(found.cost) == rounded(whole.cost)
        assert statistics_pairs(found)[:-1] == statistics_pairs(whole)
        assert statistics_pairs(found)[-1][0] == "a fork"


@pytest.mark.exhaustive
async def test_without_prices_nothing_is_said(tmp_path: Path) -> None:
    async with stage(tmp_path, window=1_000_000) as on:
        await three_calls(on)
        assert await cost_from(on, 0) is None
        assert on.soul.cost is None
        assert (await on.soul.statistics()).cost is None


def test_sums_over_models_and_currencies() -> None:
    million = ModelUsage(1_000_000, 0, 0)
    assert cost_of({"stand-in": million, "other": million}, PRICES) == Cost(
        (("$", 1.0), ("¥", 2.0))
    )
    # A model without a price: it cost at least the rest. One that nobody named: about what the one in use costs.
    assert cost_of({"stand-in": million, "free": million}, PRICES) == Cost(
        (("$", 1.0),), is_whole=False
    )
    assert cost_of({"": million}, PRICES, "other") == Cost((("¥", 2.0),), is_exact=False)
    assert cost_of({"free": million}, PRICES, "other") is None
    assert cost_of({}, PRICES, "other") == Cost((("¥", 0.0),))


def told(*events: tuple[float, ev.Event]) -> list[ev.EventRecord]:
    return [ev.EventRecord(seq, at, event) for seq, (at, event) in enumerate(events, 1)]


def reverted(reason: ev.Operation, before: int, after: int) -> ev.ContextReverted:
    return ev.ContextReverted(reason, 1, "u", 5, 1, 8, 3, before, after)


def test_time_goes_to_the_user_then_to_tools_then_to_the_model() -> None:
    found = statistics(
        told(
            (100.0, ev.TurnBegin("do it")),
            (100.0, ev.StepBegin(1)),
            (103.0, ev.ToolCall("a", "Shell")),
            (104.0, ev.ToolStarted("a", "Shell", "{}")),
            (104.0, ev.ToolCall("b", "WriteFile")),
            (104.0, ev.ApprovalRequest("q", "b", "WriteFile", "?", "x")),
            (114.0, ev.ApprovalResolved("q", "once")),
            (120.0, ev.ToolResult("a", True, "no")),
            (121.0, ev.ToolResult("b", False, "ok")),
            (125.0, ev.TurnEnd("done")),
        )
    )
    assert (found.turns, found.steps) == (1, 1)
    assert found.tool_calls == {"Shell": 1, "WriteFile": 1}
    assert found.tool_failures == 1
    assert (found.model_s, found.tools_s, found.user_s) == (9.0, 6.0, 10.0)


def test_a_turn_that_was_killed_waits_for_nobody() -> None:
    found = statistics(
        told(
            (10.0, ev.TurnBegin("a")),
            (10.0, ev.StepBegin(1)),
            (12.0, ev.TextPart("half")),
            (90_000.0, ev.TurnBegin("b")),
            (90_000.0, ev.StepBegin(1)),
            (90_001.0, ev.TurnEnd("done")),
        )
    )
    assert found.model_s == 3.0
    assert found.turns == 2


def test_time_travel_is_counted_with_what_it_saved() -> None:
    found = statistics(
        told(
            (1.0, reverted("dmail", 50_000, 30_000)),
            (2.0, reverted("dmail", 40_000, 39_000)),
            (2.5, ev.CheckpointCreated(0, "d", "dmail", tokens=39_000)),
            (3.0, reverted("rewind", 39_000, 20_000)),
            (3.5, ev.CheckpointCreated(0, "a", "summary", tokens=900)),
            (4.0, ev.CompactionEnd(200_000, 20_100, "summary", 3)),
            (5.0, ev.CompactionEnd(100, 100, error="failed")),
            (6.0, ev.StatusUpdate(20_000, 262_144, 222_000, total_input=9, total_cached=4, total_output=2)),
        )
    )  # fmt: skip
    assert (found.dmails, found.dmail_tokens_saved, found.rewinds) == (2, 21_000, 1)
    # The server has told by now what was estimated.
    assert found.compactions == ((200_000, 20_000, True),)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (9, 4, 2)


def test_a_dmail_saved_what_the_server_counts_and_one_at_the_end_nothing() -> None:
    records = told(
        (1.0, ev.CheckpointCreated(0, "a", "user", tokens=500)),
        (1.5, ev.StatusUpdate(1_000, 262_144, 222_000, estimated=False)),
        (2.0, replace(reverted("dmail", 1_000, 753), uid="a", checkpoint_id=0, from_checkpoint=0)),
        (2.1, ev.CheckpointCreated(1, "d", "dmail", tokens=753)),
        (2.2, ev.StatusUpdate(753, 262_144, 222_000, estimated=True)),
        (2.3, ev.CheckpointCreated(2, "s", "step", tokens=753)),
        (3.0, ev.StatusUpdate(756, 262_144, 222_000, estimated=False, step_input=756)),
        (4.0, ev.CheckpointCreated(3, "e", "dmail", tokens=790)),
        (4.1, replace(reverted("dmail", 790, 780), uid="e", checkpoint_id=3, from_checkpoint=2)),
    )
    found = statistics(records)
    assert (found.dmails, found.dmail_tokens_saved) == (2, 244)
    figures, sent = CheckpointTokens(), DMailCuts()
    for record in records:
        figures.apply(record.event)
        sent.apply(record.event)
    assert [saved_by(uid, cut, figures) for uid, cut in sent.all] == [244, 0]


def test_the_cost_of_all_is_known_without_adding_it_up() -> None:
    def work(n_calls_made: int) -> int:
        ledger = Ledger(PRICES)
        for n in range(n_calls_made):
            ledger.follow(ev.CheckpointCreated(n, f"u{n}", "step"))
            model = "other" if n % 2 else "stand-in"
            ledger.follow(ev.StatusUpdate(1, 9, 9, model=model, total_input=10 * n, total_output=n))
        half = n_calls_made // 2
        spent = {"other": ModelUsage(10 * half, 0, half)}
        spent["stand-in"] = ModelUsage(10 * (half - 1), 0, half - 1)
        assert ledger.total_cost() == cost_of(spent, PRICES)
        return n_steps(ledger.total_cost)

    assert work(1_000) == work(10)


def test_a_sum_is_exact_where_all_of_it_is() -> None:
    exact, estimated = ModelUsage(1, 0, 1), ModelUsage(1, 0, 1, is_exact=False)
    assert (exact + exact).is_exact
    for one, other in ((exact, estimated), (estimated, exact), (estimated, estimated)):
        assert not (one + other).is_exact
