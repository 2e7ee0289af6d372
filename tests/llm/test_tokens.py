"""Counting tokens: each message once, for as long as it lives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.llm import tokens
from kimi_tui.llm.message import Message, TextPart


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
        # As at the interpreter's exit, when the names of the module are gone.
        for name in ("_known", "_forget"):
            ending.setattr(tokens, name, None)
        del message
    assert complaints == []


@given(st.text(st.sampled_from("aBcXyZ019 \n\t_-(){}.\x01\x1c\x7f"), max_size=80))
def test_plain_text_counts_as_much_as_beside_other_signs(text: str) -> None:
    # Five of these are four tokens.
    assert tokens.estimate(f"漢漢漢漢漢 {text}") - 4 == tokens.estimate(f"x {text}") - 1
