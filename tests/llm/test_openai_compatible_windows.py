"""What is taken for an overflow, what teaches a window, and what takes it back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.cases import each
from support.chat_server import ChatServer, say, status

from kimi_tui.llm.completion import RetryPolicy, complete, stream_answer
from kimi_tui.llm.errors import ContextOverflowError, LLMError, ResponseContext, error_of_response
from kimi_tui.llm.message import Message, user_message
from kimi_tui.llm.models import DEFAULT_WINDOW
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.llm.provider import Completion, ToolSpec

LONG = [user_message("a word and another " * 2_000)]
WORDY = ToolSpec("Run", "Runs the thing. " * 4_000, {"type": "object", "properties": {}})


def failed(body: Any, *, accepted: int = 0, code: int = 400) -> LLMError:
    return error_of_response(
        json.dumps(body).encode(), ResponseContext("h", "m", code, accepted=accepted)
    )


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": text, **more}}


async def asked(
    server: ChatServer,
    provider: OpenAICompatible,
    *tools: ToolSpec,
    history: Sequence[Message] = LONG,
) -> Completion:
    return await complete(
        stream_answer(provider, "", tools, history, policy=RetryPolicy(max_attempts=1))
    )


def connected(server: ChatServer, **options: Any) -> OpenAICompatible:
    settings: dict[str, Any] = {"model": "m", "dialect": "generic", **options}
    return OpenAICompatible(provider="p", base_url=server.base_url, api_key="", **settings)


@each(
    "body",
    [
        said("Invalid 'messages[3].name': string exceeds the limit of 256 characters"),
        said("image exceeds max length of 8000 pixels"),
        said("messages.1.content.0.image: image exceeds the limit of 5242880 bytes"),
        said("Too many tools: 140 exceeds the limit of 128"),
        said("The tool list exceeds the limit of 2048 tokens of tools"),
        said("The prompt field 'name' exceeds max length of 64 characters"),
        said("Input is too long: at most 5000 characters"),
        said("tokens exceeds the limit of 256"),
        said("Invalid 'messages': array too long, limit: 2048", code="array_above_max_length"),
        said("prompt is too long", code="string_above_max_length"),
        said("max_tokens exceeds the limit of 8192 completion tokens"),
        # What was sent is said back, and speaks of overflows: that is no sentence of the server.
        {"detail": [{"msg": "Field required", "input": "maximum context length is 8192 tokens"}]},
    ],
)
def test_limits_of_other_things_are_no_overflow(body: Any) -> None:
    assert not isinstance(failed(body), ContextOverflowError)


@each(
    "body, window",
    [
        (said("The prompt exceeds the limit of 32768 tokens"), 32_768),
        (said("prompt tokens exceeded the model's context, limit: 16384"), 16_384),
        (said("Input is too long for requested model."), None),
        (said("no words", code="context_length_exceeded"), None),
        (said("sorry", type="exceed_context_size_error", n_ctx=8_192), 8_192),
        (
            said(
                "litellm.ContextWindowExceededError: litellm.BadRequestError: "
                "ContextWindowExceededError: OpenAIException - too much"
            ),
            None,
        ),
        (said("maximum context length is 128 tokens"), None),
        (said("maximum context length is " + "9" * 5_000), None),
    ],
)
def test_what_speaks_of_the_window_is_one(body: Any, window: int | None) -> None:
    error = failed(body)
    assert isinstance(error, ContextOverflowError)
    assert error.window == window


def test_no_window_below_what_was_accepted_is_believed() -> None:
    strict = failed(said("This model's maximum context length is 8192 tokens."), accepted=50_000)
    assert isinstance(strict, ContextOverflowError)
    assert strict.window is None
    loose = failed(said("The prompt exceeds the limit of 8192 tokens"), accepted=50_000)
    assert not isinstance(loose, ContextOverflowError)


async def test_what_was_accepted_last_is_remembered() -> None:
    refusal = status(400, said("This model's maximum context length is 4096 tokens."))
    async with ChatServer() as server:
        provider = connected(server)
        server.script(say("fine", usage=(7_000, 5)), refusal)
        await asked(server, provider)
        with pytest.raises(ContextOverflowError):
            await asked(server, provider)
        assert provider.info.window == DEFAULT_WINDOW
        await provider.aclose()


@pytest.mark.parametrize(
    ("options", "read", "window", "estimated"),
    [
        ({}, 54_321, DEFAULT_WINDOW, True),
        ({"model": "kimi-k3"}, 54_321, 1_048_576, True),
        ({}, 190_000, 200_000, True),
        ({"window": 40_000}, 54_321, 128_000, True),
    ],
)
async def test_a_learned_window_that_an_answer_exceeds_is_corrected(
    options: dict[str, Any], read: int, window: int, estimated: bool
) -> None:
    refusal = status(400, said("This model's maximum context length is 8192 tokens."))
    async with ChatServer() as server:
        provider = connected(server, **options)
        server.script(refusal, say("fine", usage=(read, 5)))
        with pytest.raises(ContextOverflowError):
            await asked(server, provider)
        assert (provider.info.window, provider.info.window_estimated) == (8_192, False)
        longer = [user_message("a word and another " * (read // 8))]
        done = await asked(server, provider, history=longer)
        assert not done.usage.prompt_cut
        assert (provider.info.window, provider.info.window_estimated) == (window, estimated)
        again = connected(server, **options)
        assert again.info.window != 8_192
        await provider.aclose()


async def test_a_configured_window_stays_whatever_the_model_takes() -> None:
    async with ChatServer() as server:
        provider = connected(server, window=9_000)
        server.script(say("fine", usage=(12_000, 5)))
        assert not (await asked(server, provider)).usage.prompt_cut
        assert provider.info.window == 9_000
        await provider.aclose()


async def test_quirks_of_another_dialect_are_others() -> None:
    refusal = status(400, said("This model's maximum context length is 8192 tokens."))
    async with ChatServer() as server:
        provider = connected(server)
        server.script(refusal)
        with pytest.raises(ContextOverflowError):
            await asked(server, provider)
        assert connected(server).info.window == 8_192
        assert connected(server, dialect="vllm").info.window == DEFAULT_WINDOW
        await provider.aclose()


@pytest.mark.parametrize("model", ["kimi-k3", "qwen3:8b", "nobody-knows"])
async def test_a_window_guessed_from_a_name_is_an_estimate(model: str) -> None:
    async with ChatServer(models=[{"id": "told", "max_input_tokens": 50_000}]) as server:
        assert connected(server, model=model).info.window_estimated
        assert not connected(server, model=model, window=9_000).info.window_estimated
        told = connected(server, model="told")
        await told.prepare()
        assert (told.info.window, told.info.window_estimated) == (50_000, False)
        await told.aclose()


@pytest.mark.parametrize(
    ("figures", "options", "models"),
    [
        # No tools are counted: a tenth of all that was sent, but all of its messages.
        ([7_000], {}, ["m"]),
        # Words, or anything, are counted: never more than a part of what was sent.
        ([10], {}, ["m"]),
        # Far less than the window that the server itself told.
        ([2_000], {}, [{"id": "m", "max_model_len": 131_072}]),
    ],
)
async def test_who_counts_otherwise_cut_nothing(
    figures: list[int], options: dict[str, Any], models: list[Any]
) -> None:
    async with ChatServer(models=models) as server:
        provider = connected(server, **options)
        await provider.prepare()
        for figure in figures:
            server.script(say("fine", usage=(figure, 5)))
            assert not (await asked(server, provider, WORDY)).usage.prompt_cut
        await provider.aclose()


async def test_who_fills_a_small_window_cut_the_prompt_each_time() -> None:
    async with ChatServer() as server:
        provider = connected(server)
        for _ in range(2):
            server.script(say("fine", usage=(2_048, 5)))
            assert (await asked(server, provider, WORDY)).usage.prompt_cut
        await provider.aclose()


async def test_a_local_program_behind_a_path_is_asked_there() -> None:
    from support.chat_server import reply

    async with ChatServer(models=["qwen3:8b"]) as server:
        running = {"name": "qwen3:8b", "context_length": 4_096}
        server.route("GET", "/ollama/v1/models", reply({"data": [{"id": "qwen3:8b"}]}))
        server.route("GET", "/api/version", reply({"version": "0.6.5"}))  # of the gateway
        server.route("GET", "/ollama/api/version", reply({"version": "0.20"}))
        server.route("POST", "/ollama/api/show", reply({"capabilities": ["tools"]}))
        server.route("GET", "/ollama/api/ps", reply({"models": [running]}))
        provider = OpenAICompatible(
            provider="p", base_url=f"{server.origin}/ollama/v1", api_key="", model="qwen3:8b"
        )
        await provider.prepare()
        assert provider.dialect.name == "ollama"
        assert (provider.info.window, provider.info.window_estimated) == (4_096, False)
        assert "OLLAMA_CONTEXT_LENGTH" in provider.info.larger
        await provider.aclose()


async def test_a_base_url_without_its_end_is_completed_and_said() -> None:
    async with ChatServer() as server:
        for path in ("/models", "/chat/completions"):
            method = "GET" if path == "/models" else "POST"
            server.route(method, path, status(404, "no page", content_type="text/html"))
        for prepared in (True, False):
            provider = OpenAICompatible(
                provider="p", base_url=server.origin, api_key="", model="m", dialect="generic"
            )
            if prepared:
                assert server.base_url in (await provider.prepare())[0]
            server.script(say("fine"))
            assert (await asked(server, provider)).message.text == "fine"
            assert server.requests[-1].path == "/v1/chat/completions"
            await provider.aclose()
