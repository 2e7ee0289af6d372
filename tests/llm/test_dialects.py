"""Every dialect against a server that refuses what the real one refuses; and an unknown server that teaches us."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.cases import each
from support.chat_server import ChatServer, Request, say, sequence_fault, status
from support.strict_dialects import (
    STRICT,
    Check,
    blind,
    devstral,
    gpt_oss,
    llama3,
    mistral_local,
    moonshot_schemas,
    refuse,
)

from kimi_tui.llm.completion import RetryPolicy, complete, stream_answer
from kimi_tui.llm.dialects import (
    DIALECTS,
    MAX_LEARNED_PER_REQUEST,
    LearnedQuirks,
    dialect_for,
    dialect_named,
    dialect_of_host,
    quirks_of,
)
from kimi_tui.llm.errors import APIStatusError, LLMError
from kimi_tui.llm.message import (
    FunctionCall,
    ImagePart,
    ImageURL,
    Message,
    TextPart,
    ThinkPart,
    ToolCall,
    user_message,
)
from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.llm.provider import ToolSpec

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
            stream_answer(provider, "You are.", TOOLS, messages, policy=RetryPolicy(max_attempts=1))
        )
        assert done.message.text == "fine"
    finally:
        await provider.aclose()
    return provider


@pytest.mark.exhaustive
@each("thinking", ["", "off", "on"])
@each("name", STRICT)
async def test_a_known_server_refuses_nothing(name: str, thinking: str) -> None:
    model, check = STRICT[name]
    for field in ("reasoning_content", "reasoning"):
        async with ChatServer(check=check) as server:
            await talk(server, name, model, history(model, field), thinking=thinking)
            assert server.refused == []
            assert not has_learned(server, model, name)


def has_learned(server: ChatServer, model: str, dialect: str) -> bool:
    """Return whether any refusal or odd answer of this server changes the next request."""
    quirks = quirks_of(server.base_url, model, dialect)
    return replace(quirks, accepted=0, counted_share=0.0) != LearnedQuirks()


def learned(*names: str) -> list[Any]:
    return [pytest.param(*STRICT[name], id=name) for name in names]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("model", "check"),
    [
        *learned("openai", "azure", "groq", "glm", "deepseek", "openrouter", "gemini"),
        pytest.param("gpt-oss-20b", gpt_oss, id="gpt-oss"),
        pytest.param("my-finetune", devstral, id="alternating template"),
        pytest.param("llama-3.3-70b", llama3, id="single calls"),
        pytest.param("my-nemo", mistral_local, id="ids of nine"),
        pytest.param("kimi-by-another-name", moonshot_schemas, id="schemas"),
        pytest.param("kimi-k2.6", lambda request: _resold(request), id="resold kimi"),
    ],
)
async def test_an_unknown_server_is_asked_in_vain_once_for_each_quirk(
    model: str, check: Check
) -> None:
    async with ChatServer(check=check) as server:
        await talk(server, "generic", model, history(model, "reasoning_content"))
        assert 1 <= len(server.refused) <= MAX_LEARNED_PER_REQUEST
        assert has_learned(server, model, "generic")
        refused = len(server.refused)
        await talk(server, "generic", model, history(model, "reasoning_content"))
        assert len(server.refused) == refused


def _resold(request: Request) -> Any:
    """Return a reseller's copy of Moonshot's rule, whose schemas are forgiving."""
    for position, message in enumerate(request.messages):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            text = f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {position}"
            return status(400, {"code": 20015, "message": text, "data": None})
    return None


async def test_no_more_than_three_quirks_are_learned_of_a_request() -> None:
    fields = iter(("stream_options", "reasoning_content", "thinking", "max_tokens", "model"))

    def check(request: Request) -> Any:
        return refuse(f"Unknown parameter: '{next(fields)}'.")

    model = "deepseek-v4"
    async with ChatServer(check=check) as server:
        with pytest.raises(APIStatusError, match="max_tokens"):
            await talk(
                server,
                "deepseek",
                model,
                history(model, "reasoning_content"),
                thinking="on",
            )
        assert len(server.requests) == MAX_LEARNED_PER_REQUEST + 1


async def test_what_is_no_field_of_ours_teaches_nothing() -> None:
    async with ChatServer(check=lambda request: refuse("Unknown parameter: 'colour'.")) as server:
        with pytest.raises(APIStatusError, match="colour"):
            await talk(server, "generic", "m", [user_message("x")])
        assert len(server.requests) == 1
        assert not has_learned(server, "m", "generic")


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
        await complete(stream_answer(provider, "", [], [user_message("x")]))
        await provider.aclose()
        assert "tools" not in server.requests[1].body


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        ("kimi-k2.6", "on", {"thinking": {"type": "enabled"}}),
        ("kimi-k2.6", "off", {"thinking": {"type": "disabled"}}),
        ("kimi-k2.6", "", {}),
        ("kimi-k2.7-code", "off", {}),
        ("kimi-for-coding", "off", {}),
        ("kimi-k3", "on", {}),
        ("kimi-k3", "off", {}),
        ("kimi-k3", "low", {"reasoning_effort": "low"}),
    ],
)
async def test_thinking_is_asked_for_as_each_kimi_model_wants(
    model: str, thinking: str, expected: dict[str, Any]
) -> None:
    async with ChatServer() as server:
        provider = await talk(server, "moonshot", model, [user_message("x")], thinking=thinking)
        body = server.requests[0].body
        known = {"model", "messages", "stream", "stream_options", "tools", "prompt_cache_key"}
        assert {key: value for key, value in body.items() if key not in known} == expected
        assert body["prompt_cache_key"] == "s-1"
        assert provider.info.thinking == (thinking == "on" or model not in {"kimi-k2.6"})


@each(
    "host, name",
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
    assert dialect_for("https://api.openai.com/v1", "m", "Mistral").name == "mistral"
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


async def test_a_step_of_several_calls_goes_as_one_call_and_its_result_after_the_other() -> None:
    async with ChatServer(check=llama3) as server:
        past = [user_message("go"), *step("first", None, "a", "b", "c"), user_message("and?")]
        await talk(server, "generic", "llama-3.3-70b", past)
        assert len(server.refused) == 1
        shown = [
            (one["role"], one.get("content"), [call["id"] for call in one.get("tool_calls", ())])
            for one in server.requests[-1].messages[2:]
        ]
        assert shown == [
            ("assistant", "first", ["a"]),
            ("tool", "done", []),
            ("assistant", None, ["b"]),
            ("tool", "done", []),
            ("assistant", None, ["c"]),
            ("tool", "done", []),
            ("user", "and?", []),
        ]
        await talk(server, "generic", "llama-3.3-70b", past)
        assert len(server.refused) == 1  # from then on


async def test_a_server_that_takes_no_images_after_all_gets_none() -> None:
    shown = Message(
        role="user",
        content=[
            TextPart(text="see"),
            ImagePart(image_url=ImageURL(url="data:image/png;base64,AA")),
        ],
    )
    async with ChatServer(check=blind) as server:
        await talk(server, "generic", "m", [shown], capabilities=["image_in"])
        assert len(server.refused) == 1
        assert "cannot see" in server.requests[-1].messages[1]["content"]
