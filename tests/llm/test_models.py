from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cases import each
from support.chat_server import (
    ChatServer,
    Request,
    Wait,
    drop,
    reply,
    say,
    slow_headers,
    status,
)

from kimi_tui.llm import models
from kimi_tui.llm import models as discovery
from kimi_tui.llm.completion import complete, stream_answer
from kimi_tui.llm.dialects import DIALECTS, quirks_of
from kimi_tui.llm.errors import (
    LEAST_WINDOW,
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    APITLSError,
    LLMError,
)
from kimi_tui.llm.message import user_message
from kimi_tui.llm.models import (
    DEFAULT_WINDOW,
    chat_models,
    enlarged_name,
    known_window,
    local_servers,
    read_models,
)
from kimi_tui.llm.openai_compatible import OpenAICompatible

# -- lists of models --


@each(
    "entry, window",
    [
        ({"id": "kimi-k3", "context_length": 1_048_576}, 1_048_576),
        ({"id": "llama", "context_window": 131_072}, 131_072),
        ({"id": "mistral-large", "max_context_length": 128_000}, 128_000),
        ({"id": "qwen", "max_model_len": 32_768}, 32_768),
        ({"id": "lite", "max_input_tokens": 50_000}, 50_000),
        ({"id": "lite", "model_info": {"max_input_tokens": 50_000}}, 50_000),
        ({"id": "a/b", "context_length": None, "top_provider": {"context_length": 9_000}}, 9_000),
        ({"id": "gpt-5"}, None),
        ({"id": "odd", "context_length": "many"}, None),
    ],
)
def test_windows_have_many_names(entry: dict[str, Any], window: int | None) -> None:
    found = read_models({"data": [entry]})
    assert found is not None
    assert found[0].window == window


def test_capabilities_are_read_where_they_are_told() -> None:
    found = read_models(
        {
            "data": [
                {"id": "k", "supports_image_in": True, "supports_reasoning": True},
                {
                    "id": "o",
                    "supported_parameters": ["tools"],
                    "architecture": {"input_modalities": ["text", "image"]},
                },
                {"id": "m", "capabilities": {"function_calling": True, "vision": False}},
                {"id": "models/gemini-3"},
                {"no": "id"},
                "nonsense",
            ]
        }
    )
    assert found is not None
    assert [(one.id, one.capabilities) for one in found] == [
        ("k", {"tools", "image_in", "thinking"}),
        ("o", {"tools", "image_in"}),
        ("m", {"tools"}),
        ("gemini-3", None),
    ]


@each(
    "pricing, price",
    [
        ({"prompt": "0.000002", "completion": "0.00001"}, (2.0, 10.0)),
        ({"prompt": "0", "completion": "0"}, (0.0, 0.0)),
        ({"prompt": "-1", "completion": "-1"}, None),
        ({"prompt": "nan", "completion": "0"}, None),
        ({"prompt": "1e300", "completion": "0"}, None),
        ({"prompt": "0.1"}, None),
        ({"prompt": 1, "completion": []}, None),
        ("free", None),
    ],
)
def test_prices_are_read_in_openrouters_words(
    pricing: object, price: tuple[float, float] | None
) -> None:
    models = read_models([{"id": "m", "pricing": pricing}])
    assert models is not None
    (found,) = models
    assert found.price == (None if price is None else pytest.approx(price))


async def test_models_are_listed_with_the_key_and_without_following(server: ChatServer) -> None:
    found = await chat_models(server.base_url + "/", "sk-the-key")
    assert [one.id for one in found.models] == ["stand-in"]
    assert {one.headers["authorization"] for one in server.other_requests} == {"Bearer sk-the-key"}
    server.other_requests.clear()
    await chat_models(server.base_url, "")
    assert server.other_requests
    assert not any("authorization" in one.headers for one in server.other_requests)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            status(401, {"error": {"message": "Invalid Authentication"}}),
            APIStatusError,
            "Invalid Auth",
        ),
        (status(307, "", headers={"Location": "http://127.0.0.2/"}), APIStatusError, "307"),
        (
            status(200, "<html><title>Wiki</title>", content_type="text/html"),
            APIStatusError,
            "Wiki",
        ),
        (reply({"hello": "world"}), APIStatusError, "list of models"),
        (reply([]), LLMError, ""),
        (drop(), APIConnectionError, "closed"),
        (slow_headers(), APITimeoutError, "in time"),
    ],
)
async def test_what_is_no_list_is_told(
    answer: Any, kind: type[LLMError], words: str, server: ChatServer
) -> None:
    server.route("GET", "/v1/models", answer)
    if words:
        with pytest.raises(kind, match=words):
            await chat_models(server.base_url, "sk-k", timeout_s=0.3)
    else:
        assert (await chat_models(server.base_url, "sk-k", timeout_s=0.3)).models == ()


async def test_a_list_is_not_read_on_the_event_loop(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by: list[int] = []

    def read(body: Any) -> list[models.FoundModel] | None:
        read_by.append(threading.get_ident())
        return read_models(body)

    monkeypatch.setattr(models, "read_models", read)
    assert (await chat_models(server.base_url, "sk-k")).models
    assert threading.get_ident() not in read_by
    server.route("GET", "/v1/models", reply({"data": "none"}))
    with pytest.raises(APIStatusError, match="answered, but not with a list of models"):
        await chat_models(server.base_url, "sk-k")


async def test_nobody_there(server: ChatServer) -> None:
    await server.stop()
    with pytest.raises(APIConnectionError, match="cannot be reached"):
        await chat_models(server.base_url, "")


def certificate(folder: Path) -> None:
    """Make a certificate of this machine for itself, in `cert`, with its `key`."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    made += ["-keyout", "key", "-out", "cert", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
async def test_a_certificate_that_is_not_trusted_is_named_with_the_way_to_trust_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"data": [{"id": "m"}]}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(APITLSError, match="not trusted: self-signed") as caught:
            await chat_models(url, "sk-k")
        assert "SSL_CERT_FILE" in caught.value.advice
        provider = OpenAICompatible(provider="p", base_url=url, api_key="", model="m")
        with pytest.raises(APITLSError, match="not trusted"):
            await complete(stream_answer(provider, "s", [], [user_message("hello")]))
        await provider.aclose()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
        assert [model.id for model in (await chat_models(url, "sk-k")).models] == ["m"]


async def test_a_server_that_speaks_no_https_is_named_so() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(APITLSError, match="does not answer with HTTPS") as caught:
            await chat_models(url, "sk-k")
        assert "http://" in caught.value.advice


@pytest.mark.parametrize(
    ("place", "typed"),
    [
        ("/v1", ""),
        ("/v1", "/"),
        ("/v1", "/v1/"),
        ("/api/v1", ""),
        ("/proxy/v1", "/proxy"),
        ("/api/paas/v4", "/api/paas/v4"),
    ],
)
async def test_a_missing_end_of_the_base_url_is_found(place: str, typed: str) -> None:
    async with ChatServer() as server:
        for path in ("/models", "/v1/models", "/api/v1/models", "/proxy/models"):
            server.route("GET", path, status(404, "no such page", content_type="text/html"))
        server.route("GET", f"{place}/models", reply({"data": [{"id": "m"}]}))
        found = await chat_models(server.origin + typed, "sk-k")
        assert found.base_url == server.origin + place
        assert [model.id for model in found.models] == ["m"]
        assert all(
            one.headers["authorization"] == "Bearer sk-k"
            for one in server.other_requests
            if one.path.endswith("/models") and "/api/v0/" not in one.path
        )


async def test_a_server_without_a_list_is_told_of_as_it_was_named() -> None:
    async with ChatServer() as server:
        for path in ("/models", "/v1/models", "/api/v1/models"):
            server.route("GET", path, status(404, {"error": {"message": f"no {path}"}}))
        with pytest.raises(APIStatusError, match="no /models"):
            await chat_models(server.origin, "")
        # A refused key is no reason to look elsewhere.
        server.route("GET", "/models", status(401, {"error": {"message": "bad key"}}))
        asked = len(server.other_requests)
        with pytest.raises(APIStatusError, match="bad key"):
            await chat_models(server.origin, "sk-k")
        assert len(server.other_requests) == asked + 1
        for code in (401, 403):
            server.route("GET", "/models", status(code, {"error": {"message": "no"}}))
            with pytest.raises(APIStatusError) as caught:
                await chat_models(server.origin, "")
            assert "was sent" in caught.value.advice
            with pytest.raises(APIStatusError) as caught:
                await chat_models(server.origin, "", {"X-Key": "of-the-user"})
            assert "was sent" not in caught.value.advice


@each(
    "entry, chats",
    [
        ({"id": "kimi-k3"}, True),
        ({"id": "text-embedding-3-small"}, False),
        ({"id": "nomic-embed-text:latest"}, False),
        ({"id": "BAAI/bge-reranker-v2-m3"}, False),
        ({"id": "whisper-large-v3-turbo"}, False),
        ({"id": "gpt-4o-mini-tts"}, False),
        ({"id": "gpt-4o-audio-preview"}, True),
        ({"id": "dall-e-3"}, False),
        ({"id": "omni-moderation-latest"}, False),
        ({"id": "embedded-coder-7b"}, True),
        ({"id": "/models/bge/llama-3.gguf"}, True),
        ({"id": "x", "type": "embeddings"}, False),
        ({"id": "x", "type": "vlm"}, True),
        ({"id": "x", "mode": "image_generation"}, False),
        ({"id": "x", "architecture": {"output_modalities": ["image"]}}, False),
        ({"id": "x", "architecture": {"output_modalities": ["text", "image"]}}, True),
        ({"id": "mistral-ocr-2", "capabilities": {"completion_chat": False}}, False),
        ({"id": "mistral-large", "capabilities": {"completion_chat": True}}, True),
        ({"id": "x", "type": ["odd"], "capabilities": {"completion_chat": "odd"}}, True),
    ],
)
async def test_only_models_that_chat_are_offered(entry: dict[str, Any], chats: bool) -> None:
    async with ChatServer(models=[entry, "other"]) as server:
        found = await chat_models(server.base_url, "")
        assert [model.id for model in found.models] == [entry["id"], "other"][not chats :]
        assert found.others == (not chats)


async def test_windows_that_local_programs_tell_elsewhere_are_listed() -> None:
    async with ChatServer(models=["a", "b", "kimi-k3", "nobody-knows"]) as server:
        server.route(
            "GET",
            "/api/v0/models",
            reply(
                {
                    "data": [
                        {"id": "a", "loaded_context_length": 4_096, "max_context_length": 99_000},
                        {"id": "b", "type": "embeddings"},
                    ]
                }
            ),
        )
        found = await chat_models(server.base_url, "")
        assert [(model.id, *model.likely_window) for model in found.models] == [
            ("a", 4_096, False),
            ("kimi-k3", 1_048_576, True),
            ("nobody-knows", None, True),
        ]


async def test_local_servers_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_LOOPBACK_TIMEOUT_S", 0.3)
    async with ChatServer(models=["llama3.2"]) as ollama, ChatServer() as web, ChatServer() as dead:
        web.route("GET", "/v1/models", status(200, "<html>", content_type="text/html"))
        dead.route("GET", "/v1/models", slow_headers())
        found = await local_servers(
            {"Ollama": ollama.port, "vLLM": web.port, "LM Studio": dead.port, "llama.cpp": 9}
        )
        assert [(one.name, one.base_url) for one in found] == [("Ollama", ollama.base_url)]
        assert [model.id for model in found[0].models] == ["llama3.2"]


# -- what a server says of itself --


async def prepared(
    server: ChatServer, model: str = "m", **options: Any
) -> tuple[OpenAICompatible, tuple[str, ...]]:
    provider = OpenAICompatible(
        provider="p", base_url=server.base_url, api_key="", model=model, **options
    )
    notices = await provider.prepare()
    await provider.aclose()
    return provider, notices


async def test_ollama_tells_its_real_window_once_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "_LOCAL_TIMEOUT_S", 0.5)  # loading takes longer than that
    loaded: list[Request] = []

    def running(_: Request) -> Any:
        entry = {"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 4_096}
        return reply({"models": [entry] if loaded else []})

    def load(request: Request) -> Any:
        loaded.append(request)
        return replace(reply({"done": True}), before=(Wait(0.7),))

    async with ChatServer(models=["qwen3:8b"]) as server:
        server.route("GET", "/api/version", reply({"version": "0.20"}))
        shown = {
            "capabilities": ["completion", "tools", "vision"],
            "model_info": {"q.context_length": 40_960},
        }
        server.route("POST", "/api/show", reply(shown))
        server.route("GET", "/api/ps", running)
        server.route("POST", "/api/generate", load)
        provider, notices = await prepared(server, "qwen3:8b")
        assert provider.dialect.name == "ollama"
        assert provider.info.window == 4_096
        assert not provider.info.window_estimated
        assert provider.info.capabilities == {"tools", "image_in"}
        assert loaded[0].body == {"model": "qwen3:8b"}
        assert not notices
        assert "OLLAMA_CONTEXT_LENGTH" in provider.info.larger
        assert provider.info.enlarged == 32_768


async def test_ollama_makes_a_model_with_a_larger_window() -> None:
    made: list[dict[str, Any]] = []

    def create(request: Request) -> Any:
        made.append(request.body)
        return reply({"status": "success"})

    async with ChatServer(models=["qwen3:8b"]) as server:
        server.route("GET", "/api/version", reply({"version": "0.20"}))
        info = {"general.architecture": "qwen3", "qwen3.context_length": 20_480}
        server.route("POST", "/api/show", reply({"capabilities": ["tools"], "model_info": info}))
        running = {"models": [{"name": "qwen3:8b", "context_length": 4_096}]}
        server.route("GET", "/api/ps", reply(running))
        server.route("POST", "/api/create", create)
        provider, _ = await prepared(server, "qwen3:8b")
        # No larger than it was trained for.
        assert provider.info.enlarged == 20_480
        assert await provider.enlarge() == "qwen3:8b-20k"
        assert made == [
            {
                "model": "qwen3:8b-20k",
                "from": "qwen3:8b",
                "parameters": {"num_ctx": 20_480},
                "stream": False,
            }
        ]
        server.route("POST", "/api/create", status(400, {"error": "no space left"}))
        with pytest.raises(LLMError, match="no space left"):
            await provider.enlarge()
        assert enlarged_name("llama3", 32_768) == "llama3:32k"


@pytest.mark.parametrize(
    ("caps", "takes_tools"),
    [
        ({"supports_tools": False}, False),
        ({"supports_tools": True}, True),
        # A missing fact excludes nothing.
        ({}, True),
        (None, True),
        ("no", True),
    ],
)
async def test_llamacpp_says_whether_its_template_has_tools(caps: Any, takes_tools: bool) -> None:
    props = {"default_generation_settings": {"n_ctx": 8_192}, "chat_template_caps": caps}
    async with ChatServer() as server:
        server.route("GET", "/props", reply(props))
        provider, _ = await prepared(server)
        assert ("tools" in provider.info.capabilities) is takes_tools


@pytest.mark.parametrize("vision", [True, False, None])
async def test_llamacpp_says_whether_its_model_sees(vision: bool | None) -> None:
    props = {"default_generation_settings": {"n_ctx": 8_192}, "modalities": {"vision": vision}}
    async with ChatServer() as server:
        server.route("GET", "/props", reply(props))
        provider, _ = await prepared(server)
        assert ("image_in" in provider.info.capabilities) is (vision is True)


async def test_llamacpp_tells_its_window() -> None:
    async with ChatServer(models=[{"id": "m", "meta": {"n_ctx_train": 131_072}}]) as server:
        server.route("GET", "/props", reply({"default_generation_settings": {"n_ctx": 32_768}}))
        provider, notices = await prepared(server)
        assert (provider.dialect.name, provider.info.window, notices) == ("llamacpp", 32_768, ())


async def test_a_llamacpp_router_is_asked_by_name() -> None:
    async with ChatServer() as server:
        server.route("GET", "/props", reply({"default_generation_settings": {"n_ctx": 0}}))
        server.route(
            "GET",
            "/props?model=m&autoload=false",
            reply({"default_generation_settings": {"n_ctx": 8_192}}),
        )
        provider, notices = await prepared(server)
        assert provider.info.window == 8_192
        assert not notices
        assert "-c" in provider.info.larger


async def test_lm_studio_tells_what_is_loaded() -> None:
    async with ChatServer() as server:
        entry = {
            "id": "m",
            "type": "vlm",
            "loaded_context_length": 4_096,
            "max_context_length": 131_072,
        }
        server.route("GET", "/api/v0/models", reply({"data": [entry]}))
        provider, notices = await prepared(server)
        assert (provider.dialect.name, provider.info.window) == ("lmstudio", 4_096)
        assert "image_in" in provider.info.capabilities
        assert not notices
        assert "LM Studio" in provider.info.larger


async def test_vllm_is_known_by_who_owns_the_models() -> None:
    entry = {"id": "Qwen/Qwen3", "owned_by": "vllm", "max_model_len": 40_960}
    async with ChatServer(models=[entry]) as server:
        provider, _ = await prepared(server, "Qwen/Qwen3")
        assert (provider.dialect.name, provider.info.window) == ("vllm", 40_960)


async def test_what_is_configured_wins_over_what_is_told() -> None:
    entry = {"id": "m", "owned_by": "vllm", "max_model_len": 40_960, "supports_image_in": True}
    async with ChatServer(models=[entry]) as server:
        provider, _ = await prepared(
            server, window=9_000, dialect="mistral", capabilities=["thinking"]
        )
        assert provider.dialect.name == "mistral"
        assert provider.info.window == 9_000
        assert provider.info.capabilities == {"tools", "thinking"}


async def test_a_known_host_keeps_its_dialect_whoever_owns_the_models_that_it_lists() -> None:
    facts = models.ServerFacts(DIALECTS["vllm"], window=LEAST_WINDOW)
    for host, name in (("api.moonshot.ai", "moonshot"), ("example.org", "vllm")):
        provider = OpenAICompatible(
            provider="p", base_url=f"https://{host}/v1", api_key="", model="m"
        )
        provider.facts = facts
        await provider.prepare()
        assert (provider.dialect.name, provider.info.window) == (name, LEAST_WINDOW)


async def test_a_window_too_small_for_any_request_is_not_believed_and_no_dialect_is_none() -> None:
    provider = OpenAICompatible(
        provider="p", base_url="https://example.org/v1", api_key="", model="m"
    )
    provider.facts = models.ServerFacts(window=LEAST_WINDOW - 1)
    await provider.prepare()
    assert (provider.dialect.name, provider.info.window) == ("generic", DEFAULT_WINDOW)


async def test_a_provider_that_was_closed_while_it_asked_asks_anew() -> None:
    entry = {"id": "m", "owned_by": "vllm", "max_model_len": 40_960}
    async with ChatServer(models=[entry]) as server:
        provider = OpenAICompatible(provider="p", base_url=server.base_url, api_key="", model="m")
        asking = asyncio.ensure_future(provider.prepare())
        await asyncio.sleep(0)
        await provider.aclose()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await provider.prepare()
        assert provider.info.window == 40_960
        await provider.aclose()


async def test_a_silent_server_stays_unknown_and_still_answers() -> None:
    async with ChatServer() as server:
        for path in ("/props", "/api/v0/models", "/api/version", "/v1/models"):
            server.route("GET", path, status(500))
        provider, notices = await prepared(server)
        assert (provider.dialect.name, notices) == ("generic", ())
        assert provider.info.window == DEFAULT_WINDOW
        assert provider.info.window_estimated
        server.script(say("fine"))
        done = await complete(stream_answer(provider, "", [], [user_message("x")]))
        assert done.message.text == "fine"
        assert len(server.other_requests) == 4  # asked once
        await provider.aclose()


def test_windows_of_known_models() -> None:
    assert known_window("moonshotai/kimi-k2.6") == 262_144
    assert known_window("kimi-k3") == known_window("k3") == 1_048_576
    assert known_window("moonshot-v1-8k-vision-preview") == 8_192
    assert known_window("deepseek-v4-pro") == 1_048_576
    assert known_window("nobody-knows-1") is None


async def test_of_an_endless_answer_no_more_is_read_than_a_small_one_may_have() -> None:
    sent: list[int] = []
    piece = b" " * 1_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        try:
            while len(sent) < 1_200:
                writer.write(piece)
                await writer.drain()
                sent.append(len(piece))
        except ConnectionError:
            pass
        finally:
            writer.close()

    endless = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with endless:
        port = endless.sockets[0].getsockname()[1]
        with pytest.raises(LLMError):
            await chat_models(f"http://127.0.0.1:{port}/v1", "", timeout_s=30.0)
    assert sum(sent) < 40_000_000  # what stood in the buffers between them is not read


async def test_a_server_that_loads_its_model_is_no_absent_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "_LOOPBACK_TIMEOUT_S", 5.0)
    async with ChatServer() as server:
        loading = status(503, {"error": {"code": 503, "message": "Loading model"}})
        server.route("GET", "/v1/models", loading)
        found = await local_servers({"llama.cpp": server.port})
        assert [(one.name, one.loading, one.models) for one in found] == [("llama.cpp", True, ())]
        server.route("GET", "/v1/models", status(503, {"error": {"message": "overloaded"}}))
        assert await local_servers({"llama.cpp": server.port}) == []


def test_of_a_list_without_end_the_beginning_is_taken() -> None:
    found = read_models({"data": [{"id": f"model-{n}"} for n in range(100_000)]})
    assert found is not None
    assert len(found) == models.MOST_MODELS
    assert found[-1].id == f"model-{models.MOST_MODELS - 1}"


async def test_a_wrong_key_is_said_also_where_the_end_of_the_base_url_is_missing() -> None:
    async with ChatServer() as server:
        refusal = {"error": {"message": "Incorrect API key provided"}}
        server.route("GET", "/models", status(404, "<html>no"))
        server.route("GET", "/v1/models", status(401, refusal))
        with pytest.raises(APIStatusError, match="401: Incorrect API key") as caught:
            await chat_models(server.origin, "sk-wrong")
        assert "API key" in caught.value.advice
        assert (
            f"Base URLs usually end in /v1; the API answered at {server.base_url}."
            in caught.value.advice
        )
        server.route("GET", "/v1/models", status(404, "no"))
        server.route("GET", "/api/v1/models", status(404, "no"))
        with pytest.raises(APIStatusError, match="404") as caught:
            await chat_models(server.origin, "sk-wrong")
        assert caught.value.advice == "Check the base URL: it usually ends in /v1."


async def test_a_window_that_the_server_tells_takes_the_place_of_one_that_was_learned() -> None:
    """The server may have been started anew, with another window."""
    url = "https://relearned.example.org/v1"
    quirks_of(url, "m").window = 9_000
    made = partial(OpenAICompatible, provider="p", base_url=url, api_key="", model="m")
    provider = made()
    assert provider.info.window == 9_000
    provider.facts = models.ServerFacts(window=40_960)
    await provider.prepare()
    assert provider.info.window == 40_960
    assert made().info.window == DEFAULT_WINDOW
