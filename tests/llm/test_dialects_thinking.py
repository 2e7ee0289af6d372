"""The thinking setting as it is sent, dialect by dialect, and as it is reported."""

from __future__ import annotations

from typing import Any

import pytest
from support.cases import each
from support.chat_server import ChatServer, Request, say
from support.strict_dialects import refuse

from kimi_tui.llm.completion import complete, stream_answer
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.message import user_message
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.llm.provider import ToolSpec

PLAIN = {"model", "messages", "stream", "stream_options", "tools", "prompt_cache_key"}
RUN = ToolSpec("Run", "Runs.", {"type": "object", "properties": {}})
TEMPLATE = "chat_template_kwargs"


def provider(server: ChatServer, dialect: str, model: str, **options: Any) -> OpenAICompatible:
    return OpenAICompatible(
        provider="p",
        base_url=server.base_url,
        api_key="",
        model=model,
        dialect=dialect,
        **options,
    )


async def sent(server: ChatServer, asked: OpenAICompatible) -> dict[str, Any]:
    """Return the fields of the next request that the plain one lacks."""
    server.script(say("fine"))
    await complete(stream_answer(asked, "", [RUN], [user_message("x")]))
    body = server.requests[-1].body
    return {key: value for key, value in body.items() if key not in PLAIN | {"reasoning_split"}}


@pytest.mark.exhaustive
@each(
    "dialect, model, word, expected, thinks",
    [
        ("moonshot", "kimi-k2.6", "on", {"thinking": {"type": "enabled"}}, True),
        ("moonshot", "kimi-k2.6", "off", {"thinking": {"type": "disabled"}}, False),
        ("moonshot", "kimi-k3", "low", {"reasoning_effort": "low"}, True),
        ("moonshot", "kimi-k3.1-pro", "max", {"reasoning_effort": "max"}, True),
        ("deepseek", "deepseek-v4-pro", "off", {"thinking": {"type": "disabled"}}, False),
        (
            "deepseek",
            "deepseek-v4-pro",
            "high",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
            True,
        ),
        ("glm", "glm-5", "off", {"thinking": {"type": "disabled"}}, False),
        ("glm", "glm-5", "on", {"thinking": {"type": "enabled", "clear_thinking": False}}, True),
        ("qwen", "qwen3-max", "on", {"enable_thinking": True}, True),
        ("qwen", "qwen3-max", "off", {"enable_thinking": False}, False),
        ("openrouter", "x/y", "on", {"reasoning": {"effort": "medium"}}, True),
        ("openrouter", "x/y", "off", {"reasoning": {"effort": "none"}}, False),
        ("openrouter", "x/y", "high", {"reasoning": {"effort": "high"}}, True),
        ("openai", "gpt-5-mini", "minimal", {"reasoning_effort": "minimal"}, True),
        ("openai", "gpt-5.2", "off", {"reasoning_effort": "none"}, False),
        ("openai", "o3", "high", {"reasoning_effort": "high"}, True),
        ("gemini", "gemini-2.5-flash", "off", {"reasoning_effort": "none"}, False),
        ("gemini", "gemini-3-pro", "low", {"reasoning_effort": "low"}, True),
        ("groq", "qwen/qwen3-32b", "off", {"reasoning_effort": "none"}, False),
        ("groq", "openai/gpt-oss-120b", "low", {"reasoning_effort": "low"}, True),
        ("ollama", "qwen3:8b", "off", {"reasoning_effort": "none"}, False),
        ("ollama", "qwen3:8b", "on", {"reasoning_effort": "medium"}, True),
        ("vllm", "Qwen/Qwen3", "off", {TEMPLATE: {"enable_thinking": False}}, False),
        ("llamacpp", "qwen3", "on", {TEMPLATE: {"enable_thinking": True}}, True),
        ("llamacpp", "gpt-oss-20b", "high", {TEMPLATE: {"reasoning_effort": "high"}}, True),
        ("sglang", "qwen3", "off", {TEMPLATE: {"enable_thinking": False}}, False),
    ],
)
async def test_what_is_set_is_what_is_sent_and_what_is_said(
    dialect: str, model: str, word: str, expected: dict[str, Any], thinks: bool
) -> None:
    async with ChatServer() as server:
        asked = provider(server, dialect, model)
        always = asked.dialect.extra
        assert await sent(server, asked) == always  # nobody said anything
        asked.set_thinking(word.upper())
        assert await sent(server, asked) == {**always, **expected}
        assert asked.info.thinking is thinks
        assert asked.info.effort == (word if word not in ("on", "off") else "")
        assert word in (*asked.thinking_choices, "on")
        await asked.aclose()


@pytest.mark.parametrize(
    ("dialect", "model", "word", "words"),
    [
        (
            "moonshot",
            "kimi-k3",
            "off",
            "kimi-k3 always reasons. Its settings are low, high or max.",
        ),
        ("moonshot", "kimi-k3", "medium", "Use low, high or max"),
        ("moonshot", "kimi-k2.7-code", "off", "always reasons"),
        ("moonshot", "kimi-k2.6", "high", "Use on or off"),
        ("qwen", "qwen3-max", "low", "Use on or off"),
        ("minimax", "MiniMax-M2.5", "off", "always reasons"),
        ("mistral", "mistral-large", "on", "no known setting for reasoning"),
        ("generic", "m", "on", "no known setting for reasoning"),
        ("openai", "gpt-5.6", "high", "cannot use reasoning together with tools"),
    ],
)
async def test_what_a_model_does_not_take_is_refused_in_one_line(
    dialect: str, model: str, word: str, words: str
) -> None:
    async with ChatServer() as server:
        asked = provider(server, dialect, model)
        before = asked.info
        with pytest.raises(LLMError) as caught:
            asked.set_thinking(word)
        assert words in caught.value.message
        assert "\n" not in caught.value.message
        assert asked.info == before
        await asked.aclose()


async def test_a_model_that_is_said_to_think_is_asked_to() -> None:
    async with ChatServer() as server:
        asked = provider(server, "qwen", "qwen3-max", capabilities=["thinking"])
        assert asked.info.thinking
        assert await sent(server, asked) == {"enable_thinking": True}
        await asked.aclose()


async def test_a_refused_field_is_not_said_to_be_sent() -> None:
    def check(request: Request) -> Any:
        return refuse('"m" does not support thinking') if TEMPLATE in request.body else None

    async with ChatServer(check=check) as server:
        asked = provider(server, "vllm", "m")
        asked.set_thinking("on")
        assert asked.info.thinking
        assert await sent(server, asked) == {}
        assert not asked.info.thinking
        await asked.aclose()


async def test_a_model_that_cannot_be_stopped_from_thinking_is_said_to_think() -> None:
    def check(request: Request) -> Any:
        if request.body.get("thinking", {}).get("type") == "disabled":
            return refuse("invalid thinking: only type=enabled is allowed for this model")
        return None

    async with ChatServer(check=check) as server:
        asked = provider(server, "moonshot", "kimi-k2.5")
        asked.set_thinking("off")
        assert await sent(server, asked) == {}
        assert asked.info.thinking
        await asked.aclose()


async def test_an_effort_of_the_configuration_that_is_not_taken_is_said_once() -> None:
    async with ChatServer() as server:
        asked = provider(server, "moonshot", "kimi-k3", thinking="medium")
        assert [note for note in await asked.prepare() if "low, high or max" in note]
        assert await sent(server, asked) == {}
        await asked.aclose()
