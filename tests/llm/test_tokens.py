"""Counting tokens: each message once, for as long as it lives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.llm import tokens
from kimi_tui.llm.message import FunctionCall, Message, TextPart, ThinkPart, ToolCall


def test_a_message_that_outlives_the_module_goes_quietly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = Message(role="user", content=[TextPart(text="Hello")])
    assert tokens.message_tokens(message) > 0
    assert tokens.is_counted(message)
    complaints: list[Any] = []
    hook: Callable[[Any], None] = complaints.append
    monkeypatch.setattr(sys, "unraisablehook", hook)
    with monkeypatch.context() as ending:
        # The names of the module are gone at the interpreter's exit.
        for name in ("_known", "_forget"):
            ending.setattr(tokens, name, None)
        del message
    assert complaints == []


@given(st.text(st.sampled_from("aBcXyZ019 \n\t_-(){}.\x01\x1c\x7f"), max_size=80))
def test_plain_text_counts_as_much_as_beside_other_signs(text: str) -> None:
    # Five of these are four tokens.
    assert tokens.estimate(f"漢漢漢漢漢 {text}") - 4 == tokens.estimate(f"x {text}") - 1


def test_a_message_that_is_counted_in_steps_costs_as_much_and_no_more_time() -> None:
    calls = [
        ToolCall(id="a", function=FunctionCall(name="Run", arguments=f'{{"n": {n}}}'))
        for n in range(9)
    ]
    parts = [TextPart(text="Some words."), ThinkPart(think="Hm.")]
    made = [Message(role="assistant", content=parts, tool_calls=calls) for _ in range(2)]
    assert len([*tokens.count_in_steps(made[0])]) == len(calls) + len(parts)
    assert tokens.is_counted(made[0])
    assert [*tokens.count_in_steps(made[0])] == []
    for count in (tokens.message_tokens, tokens.said_tokens):
        assert count(made[0]) == count(made[1])


def test_an_image_without_a_size_counts_as_a_usual_one() -> None:
    usual = tokens.stored_image_tokens(None, None)
    for width, height in ((0, 10), (10, 0), (-1, 5), ("10", 10), (10, 1.5)):
        assert tokens.stored_image_tokens(width, height) == usual
    assert 0 < tokens.stored_image_tokens(1, 1) < usual
