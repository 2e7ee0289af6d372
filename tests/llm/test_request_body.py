"""What building a request costs: of a long conversation only what is new is counted."""

from __future__ import annotations

import pytest

from kimi_tui.llm import tokens
from kimi_tui.llm.dialects import GENERIC
from kimi_tui.llm.message import user_message
from kimi_tui.llm.request import ChatRequest, Recipient, build_request


def test_each_message_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    real = tokens.estimate

    def estimate(text: str) -> int:
        counted.append(len(text))
        return real(text)

    monkeypatch.setattr(tokens, "estimate", estimate)
    history = [user_message(f"message {n} of them") for n in range(200)]
    receiver = Recipient("p", "m")
    first = build_request(ChatRequest("", (), tuple(history), receiver), GENERIC)
    assert len(counted) >= 200
    counted.clear()
    history.append(user_message("one more"))
    second = build_request(ChatRequest("", (), tuple(history), receiver), GENERIC)
    assert counted == [len("one more")]
    assert second.estimated_tokens > first.estimated_tokens


def test_a_long_conversation_is_not_counted_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    real = tokens.estimate

    def estimate(text: str) -> int:
        counted.append(len(text))
        return real(text)

    monkeypatch.setattr(tokens, "estimate", estimate)
    history = tuple(user_message("some words here " * 1_000) for _ in range(100))
    built = build_request(ChatRequest("", (), history, Recipient("p", "m")), GENERIC)
    assert sum(counted) <= 200_000
    whole = sum(real(message.text) for message in history)
    assert 0.5 * whole < built.estimated_tokens < 2 * whole
