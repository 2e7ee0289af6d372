"""Token figures: the server's own where there are any, and estimates that learn."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.images import Image, image_tokens
from kimi_tui.llm.message import Message, user_message
from kimi_tui.llm.provider import ModelInfo, ToolSpec, Usage
from kimi_tui.llm.tokens import message_tokens
from kimi_tui.session.context import Context
from kimi_tui.session.context_index import (
    ContextIndex,
    MessageList,
    TokenScale,
    TokenSums,
    WorldLineContent,
)
from kimi_tui.session.images import image_part
from kimi_tui.session.schema import message_line
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.tasks import TimeSlices
from kimi_tui.soul.token_meter import TokenMeter, WorldLineTokens

INFO = ModelInfo("p", "m", 100_000)


def meter_of(
    folder: Path, messages: list[Message], prompt: str = "prompt", tools: Sequence[ToolSpec] = ()
) -> TokenMeter:
    """Return the meter of a context that holds these messages, also those that are added to the list."""
    context = Context(folder)
    context.messages = cast("MessageList", messages)
    return TokenMeter(context, prompt, tools)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "tool", "cut"]), st.integers(0, 30)), max_size=30)
)
def test_sums_follow_a_list_that_grows_and_is_cut(steps: list[tuple[str, int]]) -> None:
    messages: list[Message] = []
    sums = TokenSums()
    for what, number in steps:
        if what == "cut":
            del messages[number:]
            sums.cut(number)
        else:
            role = "tool" if what == "tool" else "user"
            messages.append(Message(role=role, content="word " * number, tool_call_id="x"))
        sums.add(messages)
        fresh = TokenSums()
        fresh.add(messages)
        assert sums.counted == len(messages)
        assert sums.between() == fresh.between()
        assert sums.total(number) + sums.total(0, number) == sums.total()


async def test_the_factor_is_learned_and_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [user_message("word " * 1_000)]
    tools = [ToolSpec("T", "does", {"type": "object"})]
    meter = meter_of(tmp_path, messages, "prompt " * 100, tools)
    await meter.count_appended(TimeSlices())
    guess = meter.used
    with caplog.at_level(logging.INFO):
        for _ in range(6):
            meter.add_step(Usage(2 * guess, 10), 2 * guess)
    assert meter.scale.factor == pytest.approx(2.0, abs=0.05)
    assert "the server says" in caplog.text
    meter.set_figure(2 * guess, estimated=False)
    assert (meter.used, meter.is_estimated) == (2 * guess, False)
    messages.append(user_message("word " * 500))
    await meter.count_appended(TimeSlices())
    assert meter.is_estimated
    assert meter.used == pytest.approx(2 * guess + 1_000, rel=0.05)
    # An estimate teaches nothing, and one odd figure cannot throw it far.
    before = meter.scale.factor
    meter.add_step(Usage(50 * guess, 1, estimated=True), 50 * guess)
    assert meter.scale.factor == before
    meter.add_step(Usage(1_000 * guess, 1), 1_000 * guess)
    assert meter.scale.factor <= 4


async def test_the_parts_add_up_and_growth_is_a_mean(tmp_path: Path) -> None:
    said = [user_message("hello"), Message(role="tool", content="out " * 50)]
    meter = meter_of(tmp_path, said)
    await meter.count_appended(TimeSlices())
    assert meter.status(INFO, LoopLimits()).correction == 0
    for figure in (1_000, 1_400, 2_000):
        meter.add_step(Usage(figure, 100, cached=50), figure)
    meter.set_figure(2_100, estimated=False)
    status = meter.status(INFO, LoopLimits())
    assert not status.estimated
    assert meter.texts(2) == meter.uncorrected - meter.fixed_uncorrected
    assert status.system + status.talk + status.tools == 2_100
    assert status.tools > status.talk
    assert status.per_step == 500
    assert (status.total_input, status.total_cached, status.total_output) == (4_400, 150, 300)
    assert (status.step_input, status.step_output) == (2_000, 100)
    # In another context the next call is no growth.
    await meter.recount(2)
    meter.add_step(Usage(9_000, 1), 9_000)
    assert meter.status(INFO, LoopLimits()).per_step == 500
    assert meter.status(None, LoopLimits()).limit == 0


async def test_what_was_taken_back_does_not_count_as_growth(tmp_path: Path) -> None:
    messages = [user_message("hello")]
    meter = meter_of(tmp_path, messages)
    for figure in (1_000, 1_400, 1_800, 15_000):
        messages.append(user_message("more"))
        await meter.count_appended(TimeSlices())
        meter.add_step(Usage(figure, 100), figure)
    assert meter.status(INFO, LoopLimits()).per_step > 4_000
    del messages[4:]
    await meter.recount(4)
    assert meter.status(INFO, LoopLimits()).per_step == 400


@pytest.mark.parametrize(
    ("window", "trigger"),
    [(262_144, 212_144), (1_048_576, 891_289), (8_000, 6_000), (100_000, 75_000), (4_096, 3_072)],
)
def test_where_compaction_starts(window: int, trigger: int) -> None:
    assert LoopLimits().compaction_trigger(window) == trigger


LARGE = Image("image/png", b"", 2_000, 1_500, "large.png")


@pytest.mark.exhaustive
def test_a_long_line_is_counted_by_size_but_for_its_newest_part() -> None:
    said = [
        message
        for n in range(3_000)
        for message in (
            user_message(f"Question {n}: what does the importer do with a doubled quote?"),
            *([Message(role="user", content=[image_part(LARGE)])] if not n % 100 else []),
            Message(role="tool", content="a line of the log, as plain as all\n" * 20),
        )
    ]
    data = b"".join(map(message_line, said))
    index = ContextIndex.scan(lambda size, offset: data[offset : offset + size])
    whole, skimmed = TokenSums(), TokenSums()
    whole.add(said)
    skimmed.add_sampled(index, said)
    assert len(data) > 2 << 20
    assert skimmed.counted == whole.counted == index.n_messages
    for counted, exact in zip(skimmed.between(), whole.between(), strict=True):
        assert abs(counted - exact) < exact / 20
    # The size of an image's record says nothing about its tokens.
    assert (
        sum(message.images != () for message in said) * image_tokens(LARGE.width, LARGE.height)
        > whole.total() / 10
    )
    newest = slice(-100, None)
    # A line without any figure of a server has the same in a list of checkpoints.
    tokens = WorldLineTokens(WorldLineContent(index, said), TokenScale())
    assert abs(tokens.before(index.size).tokens - whole.total()) < whole.total() / 20
    half = index.place(len(said) // 2)[0]
    assert abs(tokens.before(half).tokens - whole.total(0, len(said) // 2)) < whole.total() / 20
    assert (
        skimmed.total(len(said) - 100)
        == whole.total(len(said) - 100)
        == sum(map(message_tokens, said[newest]))
    )
