"""Every dialect against a server that refuses what the real one refuses; and an unknown server that teaches us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.chat_server import ChatServer, Request, say, sequence_fault, status
from support.strict_dialects import STRICT, Check, devstral, gpt_oss, refuse

from kimi_tui.llm.complete import complete
from kimi_tui.llm.dialects import DIALECTS, choose, dialect_named, dialect_of_host
from kimi_tui.llm.errors import APIStatusError, LLMError
from kimi_tui.llm.lessons import MAX_LESSONS_PER_REQUEST, all_lessons
from kimi_tui.llm.message import FunctionCall, Message, TextPart, ThinkPart, ToolCall, user_message
from kimi_tui.llm.openai_compat import OpenAICompatible
from kimi_tui.llm.provider import RetryPolicy, ToolSpec

TOOLS = [
    ToolSpec(
        "Edit",
        "Edits.",
        {
            "title": "Edit",
            "$defs": {
                "One": {"type": "object", "title": "One", "properties": {"old": {"type": "string"}}}
            },
            "type": "object",
            "properties": {
                "path": {"type": "string", "title": "Path", "pattern": "[a-z]+"},
                "edit": {
                    "anyOf": [
                        {"$ref": "#/$defs/One"},
                        {"type": "array", "items": {"$ref": "#/$defs/One"}},
                    ]
                },
                "mode": {"const": "fast"},
                "level": {"enum": [1, 2]},
                "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
                "odd": {"type": "string", "anyOf": [{"minLength": 1}, {"maxLength": 3}]},
            },
            "required": ["path", "gone"],
        },
    )
]


def thought(
    model: str, field: str = "reasoning_content", provider: str = "p", **more: Any
) -> ThinkPart:
    return ThinkPart(think="because", field=field, provider=provider, model=model, **more)


def step(
    text: str, part: ThinkPart | None, *ids: str, extras: dict[str, Any] | None = None
) -> list[Message]:
    calls = [
        ToolCall(
            id=one, function=FunctionCall(name="Edit", arguments='{"path": "a"}'), extras=extras
        )
        for one in ids
    ]
    content: list[Any] = [*([part] if part else []), *([TextPart(text=text)] if text else [])]
    made = Message(role="assistant", content=content, tool_calls=calls or None)
    return [made, *(Message(role="tool", content="done", tool_call_id=one) for one in ids)]


def history(model: str, field: str) -> list[Message]:
    """Everything that happens: reasoning of ours and of others, markers, steers, letters, odd ids, a cut-off call."""
    return [
        user_message("<system>CHECKPOINT 0</system>"),
        user_message("change it"),
        user_message("<system>CHECKPOINT 1</system>"),
        *step("first", thought(model, field), "Edit:0", "Edit:1"),
        user_message("<system>CHECKPOINT 2</system>"),
        user_message("and mind the tests"),
        *step("", thought("other-9", provider="q"), "Edit:0", ""),
        user_message("<system>CHECKPOINT 3</system>"),
        *step(
            "third",
            None,
            "x" * 60,
            extras={"extra_content": {"google": {"thought_signature": "s"}}},
        ),
        *step("", None, "lost")[:1],
        user_message("why did you stop?"),
        *step("Here it is.", thought(model, field)),
        user_message("<system>CHECKPOINT 4</system>"),
        user_message("thanks, go on"),
    ]


async def talk(
    server: ChatServer, dialect: str, model: str, messages: Sequence[Message], **options: Any
) -> OpenAICompatible:
    provider = OpenAICompatible(
        provider="p",
        base_url=server.base_url,
        api_key="",
        model=model,
        dialect=dialect,
        session_id="s-1",
        **options,
    )
    try:
        server.script(say("fine"))
        done = await complete(
            provider,
            "You are.",
            TOOLS,
            messages,
            on_item=lambda item: None,
            policy=RetryPolicy(max_attempts=1),
        )
        assert done.message.text == "fine"
    finally:
        await provider.aclose()
    return provider


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("name", STRICT)
async def test_a_known_server_refuses_nothing(name: str, thinking: bool) -> None:
    model, check = STRICT[name]
    for field in ("reasoning_content", "reasoning"):
        async with ChatServer(check=check) as server:
            await talk(
                server, name, model, history(model, field), thinking=thinking, max_output=20_000
            )
            assert server.refused == []
            assert not all_lessons()


def learned(*names: str) -> list[Any]:
    return [pytest.param(*STRICT[name], id=name) for name in names]


@pytest.mark.parametrize(
    ("model", "check"),
    [
        *learned("openai", "azure", "groq", "glm", "deepseek", "openrouter", "gemini"),
        pytest.param("gpt-oss-20b", gpt_oss, id="gpt-oss"),
        pytest.param("my-finetune", devstral, id="alternating template"),
        pytest.param("kimi-k2.6", lambda request: _resold(request), id="resold kimi"),
    ],
)
async def test_an_unknown_server_teaches_each_lesson_once(model: str, check: Check) -> None:
    async with ChatServer(check=check) as server:
        await talk(server, "generic", model, history(model, "reasoning_content"))
        assert 1 <= len(server.refused) <= MAX_LESSONS_PER_REQUEST
        assert all_lessons()[server.base_url, model]
        refused = len(server.refused)
        await talk(server, "generic", model, history(model, "reasoning_content"))
        assert len(server.refused) == refused


def _resold(request: Request) -> Any:
    """A reseller's copy of Moonshot's rule, whose schemas are forgiving."""
    for position, message in enumerate(request.messages):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            text = f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {position}"
            return status(400, {"code": 20015, "message": text, "data": None})
    return None


async def test_the_output_limit_is_named_the_other_way() -> None:
    def check(request: Request) -> Any:
        if "max_tokens" in request.body:
            return refuse(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            )
        return None

    async with ChatServer(check=check) as server:
        await talk(server, "generic", "m", [user_message("x")], max_output=5)
        assert server.requests[-1].body["max_completion_tokens"] == 5


async def test_lessons_end_after_three() -> None:
    fields = iter(("stream_options", "reasoning_content", "thinking", "max_tokens", "model"))

    def check(request: Request) -> Any:
        return refuse(f"Unknown parameter: '{next(fields)}'.")

    model = "deepseek-v4"
    async with ChatServer(check=check) as server:
        with pytest.raises(APIStatusError, match="max_tokens"):
            await talk(server, "deepseek", model, history(model, "reasoning_content"), max_output=9)
        assert len(server.requests) == MAX_LESSONS_PER_REQUEST + 1


async def test_what_is_no_field_of_ours_teaches_nothing() -> None:
    async with ChatServer(check=lambda request: refuse("Unknown parameter: 'colour'.")) as server:
        with pytest.raises(APIStatusError, match="colour"):
            await talk(server, "generic", "m", [user_message("x")])
        assert len(server.requests) == 1
        assert not all_lessons()


async def test_an_unknown_server_gets_the_smallest_request() -> None:
    async with ChatServer() as server:
        await talk(server, "generic", "m", [user_message("x")])
        body = server.requests[0].body
        assert set(body) == {"model", "messages", "stream", "stream_options", "tools"}
        assert body["messages"] == [
            {"role": "system", "content": "You are."},
            {"role": "user", "content": "x"},
        ]
        provider = OpenAICompatible(
            provider="p", base_url=server.base_url, api_key="", model="m", dialect="generic"
        )
        server.script(say("fine"))
        await complete(provider, "", [], [user_message("x")], on_item=lambda item: None)
        await provider.aclose()
        assert "tools" not in server.requests[1].body


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        ("kimi-k2.6", True, {"thinking": {"type": "enabled"}}),
        ("kimi-k2.6", False, {"thinking": {"type": "disabled"}}),
        ("kimi-k2.7-code", False, {}),
        ("kimi-for-coding", False, {}),
        ("kimi-k3", True, {}),
    ],
)
async def test_thinking_is_asked_for_as_each_kimi_model_wants(
    model: str, thinking: bool, expected: dict[str, Any]
) -> None:
    async with ChatServer() as server:
        provider = await talk(server, "moonshot", model, [user_message("x")], thinking=thinking)
        body = server.requests[0].body
        known = {"model", "messages", "stream", "stream_options", "tools", "prompt_cache_key"}
        assert {key: value for key, value in body.items() if key not in known} == expected
        assert body["prompt_cache_key"] == "s-1"
        assert provider.info.thinking == (thinking or model not in {"kimi-k2.6"})


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.moonshot.cn", "moonshot"),
        ("api.kimi.com", "moonshot"),
        ("api.openai.com", "openai"),
        ("me.openai.azure.com", "azure"),
        ("codestral.mistral.ai", "mistral"),
        ("openrouter.ai", "openrouter"),
        ("generativelanguage.googleapis.com", "gemini"),
        ("europe-west1-aiplatform.googleapis.com", "gemini"),
        ("dashscope-intl.aliyuncs.com", "qwen"),
        ("open.bigmodel.cn", "glm"),
        ("api.minimax.io", "minimax"),
        ("api.deepseek.com", "deepseek"),
        ("api.groq.com", "groq"),
        ("localhost", "generic"),
        ("evil-api.openai.com.example.org", "generic"),
        ("notopenrouter.ai", "generic"),
        ("", "generic"),
    ],
)
def test_a_dialect_is_found_by_its_host(host: str, name: str) -> None:
    assert dialect_of_host(host).name == name


def test_a_configured_dialect_wins_and_a_wrong_one_names_the_right_ones() -> None:
    assert choose("https://api.openai.com/v1", "m", "Mistral").name == "mistral"
    with pytest.raises(LLMError) as caught:
        dialect_named("klingon")
    assert "moonshot" in caught.value.advice


def test_strict_servers_are_strict() -> None:
    """The stand-ins refuse a careless request; else the tests above would prove nothing."""
    careless = Request(
        "POST",
        "/",
        {},
        b'{"model":"gpt-5.6","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}],"user":"x"}',
    )
    for _, check in STRICT.values():
        assert check(careless) is not None
    assert sequence_fault([{"role": "tool", "tool_call_id": "a", "content": "x"}]) is not None
    assert set(STRICT) == set(DIALECTS) - {"generic"}
