"""Every fault of a network or a server: what it becomes, and that the next call works."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from support.chat_server import (
    Answer,
    ChatServer,
    Chunk,
    Drop,
    Raw,
    Stall,
    call,
    calls,
    delta,
    drop,
    drop_after,
    raw,
    reply,
    say,
    slow_headers,
    stall,
    status,
    stream,
    tool_delta,
)

from kimi_tui.base_url import shown_url
from kimi_tui.llm.completion import AnswerItem, RetryNotice, RetryPolicy, complete, stream_answer
from kimi_tui.llm.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
    ContextOverflowError,
    LLMError,
    LLMNotSupported,
)
from kimi_tui.llm.message import ImagePart, ImageURL, Message, user_message
from kimi_tui.llm.models import chat_models
from kimi_tui.llm.openai_compatible import OpenAICompatible, _end
from kimi_tui.llm.provider import Completion, StreamItem, TextDelta, ToolSpec
from kimi_tui.llm.transport import RestrictedClient

Connect = Callable[..., OpenAICompatible]
# Only ends a test that hangs.
_PATIENCE_S = 20.0
HASTY = RetryPolicy(max_attempts=3, initial_s=0.001, max_s=0.002, jitter_s=0.0)
ONCE = RetryPolicy(max_attempts=1)
HELLO = [user_message("hello")]
RUN = ToolSpec("Run", "Runs.", {"type": "object", "properties": {}})


async def ask(
    provider: OpenAICompatible,
    policy: RetryPolicy = ONCE,
    on_retry: Callable[[RetryNotice], None] = lambda notice: None,
    **options: Any,
) -> Completion:
    asked = stream_answer(provider, "sys", [RUN], HELLO, policy=policy, **options)
    return await complete(
        asked, lambda item: on_retry(item) if isinstance(item, RetryNotice) else None
    )


async def test_a_history_is_not_read_from_the_disk_on_the_event_loop(
    server: ChatServer, connect: Connect
) -> None:
    read_by: list[int] = []

    class Stored(list[Message]):
        def __iter__(self) -> Iterator[Message]:
            read_by.append(threading.get_ident())
            return super().__iter__()

    server.script(say("fine"))
    await complete(stream_answer(connect(), "sys", [], Stored(HELLO)))
    assert read_by
    assert threading.get_ident() not in read_by


async def works(server: ChatServer, provider: OpenAICompatible) -> bool:
    server.script(say("fine"))
    return (await ask(provider)).message.text == "fine"


FAULTS: dict[str, tuple[Answer, type[LLMError], str]] = {
    "reset before headers": (drop(), APIConnectionError, "closed the connection"),
    "closed before headers": (drop(reset=False), APIConnectionError, "closed the connection"),
    "dropped in mid-stream": (drop_after(4), APIStreamError, "was complete"),
    "reset in mid-stream": (drop_after(4, reset=True), APIStreamError, "was complete"),
    "dropped in mid-arguments": (
        drop_after(4, call("Run", {"command": "ls -la /tmp"})),
        APIStreamError,
        "was complete",
    ),
    "cut in the middle of a chunk": (
        Answer((delta(content="a"), Raw(b'data: {"choices":[{"del'), Drop())),
        APIStreamError,
        "was complete",
    ),
    "malformed chunk": (stream(delta(content="a"), Chunk("{oops")), APIStreamError, "not JSON"),
    "no finish reason": (
        say("a", finish=None, usage=None, done=False),
        APIStreamError,
        "before it was",
    ),
    "empty answer": (say(""), APIEmptyResponseError, "empty answer"),
    "only reasoning": (say("", think="hm"), APIEmptyResponseError, "empty answer"),
    "only [DONE]": (stream(finish=None, usage=None), APIEmptyResponseError, "empty answer"),
    "empty stream": (stream(finish=None, usage=None, done=False), APIStreamError, "before it was"),
    "408": (status(408), APIStatusError, "408"),
    "429": (status(429), APIStatusError, "429"),
    "500": (status(500), APIStatusError, "500"),
    "502": (status(502), APIStatusError, "502"),
    "503": (status(503), APIStatusError, "503"),
    "504": (status(504), APIStatusError, "504"),
    "529": (status(529), APIStatusError, "529"),
    "error page": (
        status(502, "<html><title>Bad gateway</title>", content_type="text/html"),
        APIStatusError,
        "Bad gateway",
    ),
    "error in the stream": (
        stream(delta(content="a"), Chunk({"error": {"message": "Overloaded", "code": 503}})),
        APIStatusError,
        "Overloaded",
    ),
    "named error in the stream": (
        stream(Chunk({"message": "engine overloaded_error"}, event="error")),
        APIStatusError,
        "overloaded",
    ),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "closed"])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_that_may_pass_is_tried_again(name: str, chunked: bool, far: None) -> None:
    fault, kind, words = FAULTS[name]
    async with ChatServer(chunked=chunked) as server:
        provider = OpenAICompatible(
            provider="p",
            base_url=server.base_url,
            api_key="",
            model="m",
            dialect="generic",
            stream_timeout_s=5.0,
        )
        try:
            server.script(fault)
            with pytest.raises(kind, match=words):
                await ask(provider)
            server.script(fault, say("fine"))
            notices: list[RetryNotice] = []
            done = await ask(provider, HASTY, on_retry=notices.append)
            assert done.message.text == "fine"
            assert done.message.thinking == ""  # nothing of the failed attempt is left
            assert [notice.attempt for notice in notices] == [2]
            assert words in notices[0].reason
        finally:
            await provider.aclose()


@pytest.mark.parametrize("chunked", [True, False])
async def test_the_last_event_needs_no_blank_line_behind_it(chunked: bool, far: None) -> None:
    end = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}'
    async with ChatServer(chunked=chunked) as server:
        provider = OpenAICompatible(
            provider="p", base_url=server.base_url, api_key="", model="m", dialect="generic"
        )
        server.script(Answer((delta(content="a"), Raw(end))))
        assert (await ask(provider)).message.text == "a"
        await provider.aclose()


FINAL: dict[str, tuple[Answer, type[LLMError], str]] = {
    "400": (status(400), APIStatusError, "400"),
    "401": (status(401), APIStatusError, "401"),
    "403": (status(403), APIStatusError, "403"),
    "404": (status(404), APIStatusError, "404"),
    "overflow": (
        status(400, {"error": {"message": "maximum context length is 9000 tokens"}}),
        ContextOverflowError,
        "maximum",
    ),
    "overflow in the stream": (
        stream(Chunk({"error": {"message": "exceed_context_size_error", "n_ctx": 9000}})),
        ContextOverflowError,
        "exceed",
    ),
    "redirect": (
        status(307, "", headers={"Location": "http://127.0.0.2/steal"}),
        APIStatusError,
        "307",
    ),
    "web page with 200": (
        status(200, "<html><title>Log in</title>", content_type="text/html"),
        APIStatusError,
        "Log in",
    ),
    "web page without a title": (
        status(200, "<html>Log in", content_type="text/html"),
        APIStatusError,
        r"answered with a web page instead of a model's answer\.\Z",
    ),
    "error with 200": (
        reply({"error": {"message": "No such model", "code": 404}}),
        APIStatusError,
        "No such",
    ),
    "filter": (say("", finish="content_filter"), APIStatusError, "filter"),
    "length without a word": (say("", finish="length"), APIStatusError, "output limit"),
    "quota": (
        status(429, {"error": {"message": "x", "code": "insufficient_quota"}}),
        APIStatusError,
        "429",
    ),
    "wait too long": (status(429, headers={"Retry-After": "3600"}), APIStatusError, "429"),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", FINAL)
async def test_a_fault_that_stays_is_told_at_once(
    name: str, server: ChatServer, connect: Connect
) -> None:
    fault, kind, words = FINAL[name]
    provider = connect()
    server.script(fault)
    with pytest.raises(kind, match=words) as caught:
        await ask(provider, HASTY)
    assert caught.value.advice
    assert "sk-secret" not in caught.value.message + caught.value.advice
    assert len(server.requests) == 1
    assert await works(server, provider)


async def test_nobody_listens(server: ChatServer, connect: Connect) -> None:
    provider = connect()
    await server.stop()
    with pytest.raises(APIConnectionError, match="cannot be reached"):
        await ask(provider, HASTY)
    await server.start_again()
    assert await works(server, provider)


async def test_a_learned_window_is_kept(server: ChatServer, connect: Connect) -> None:
    provider = connect()
    server.script(FINAL["overflow"][0])
    with pytest.raises(ContextOverflowError) as caught:
        await ask(provider)
    assert caught.value.window == 9_000
    assert provider.info.window == 9_000
    assert not provider.info.window_estimated
    assert connect().info.window == 9_000


async def test_retry_after_is_honoured_and_counted_down(
    server: ChatServer, connect: Connect
) -> None:
    notices: list[RetryNotice] = []
    server.script(status(429, headers={"Retry-After": "0.2"}), say("fine"))
    began = time.monotonic()
    await ask(connect(), HASTY, on_retry=notices.append)
    assert time.monotonic() - began >= 0.2
    assert notices[0].wait_s == pytest.approx(0.2, abs=0.01)
    assert notices[0].status == 429


async def test_a_key_pressed_before_the_wait_does_not_cut_it_short(
    server: ChatServer, connect: Connect
) -> None:
    now = asyncio.Event()
    now.set()
    server.script(status(429, headers={"Retry-After": "0.1"}), say("fine"))
    began = time.monotonic()
    await ask(connect(), HASTY, retry_now=now)
    assert time.monotonic() - began >= 0.1


async def test_attempts_end(server: ChatServer, connect: Connect) -> None:
    server.script(*[status(503)] * 5)
    notices: list[RetryNotice] = []
    with pytest.raises(APIStatusError, match="503"):
        await ask(connect(), HASTY, on_retry=notices.append)
    assert len(server.requests) == 3
    assert [(notice.attempt, notice.max_attempts) for notice in notices] == [(2, 3), (3, 3)]


async def test_a_wait_is_cut_short(server: ChatServer, connect: Connect) -> None:
    now = asyncio.Event()
    server.script(status(429, headers={"Retry-After": "30"}), say("fine"))
    waiting = asyncio.Event()

    def noticed(notice: RetryNotice) -> None:
        asyncio.get_running_loop().call_soon(waiting.set)

    asked = asyncio.create_task(ask(connect(), HASTY, on_retry=noticed, retry_now=now))
    await waiting.wait()
    now.set()
    async with asyncio.timeout(_PATIENCE_S):
        assert (await asked).message.text == "fine"


# -- what is no fault --


async def test_an_answer_needs_no_done_and_no_usage(server: ChatServer, connect: Connect) -> None:
    server.script(say("fine", done=False, usage=None))
    done = await ask(connect())
    assert done.message.text == "fine"
    assert done.usage.estimated
    assert done.usage.input > 5
    assert done.usage.output > 0


async def test_zero_is_no_figure(server: ChatServer, connect: Connect) -> None:
    server.script(
        say("fine", usage=(0, 0)), say("fine", usage=(77, 0)), say("fine", usage=(77, 5, 70))
    )
    provider = connect()
    first = (await ask(provider)).usage
    assert first.estimated
    assert first.input > 0
    second = (await ask(provider)).usage
    assert (second.input, second.estimated) == (77, True)
    third = (await ask(provider)).usage
    assert (third.input, third.output, third.cached, third.estimated) == (77, 5, 70, False)


async def test_a_connection_that_stays_open_after_the_end_holds_nobody_up(
    server: ChatServer, connect: Connect
) -> None:
    whole = say("fine", done=False)
    server.script(Answer((*whole.ops, Chunk("[DONE]"), Stall())))
    async with asyncio.timeout(_PATIENCE_S):
        assert (await ask(connect())).message.text == "fine"
    server.script(Answer((*whole.ops, Drop())))
    assert (await ask(connect())).message.text == "fine"


async def test_a_server_that_does_not_stream(server: ChatServer, connect: Connect) -> None:
    made = {"id": "a", "function": {"name": "Run", "arguments": "{}"}}
    server.script(
        reply(
            {
                "choices": [
                    {
                        "message": {"role": "assistant", "content": "whole", "tool_calls": [made]},
                        "finish_reason": "tool_calls",
                    }
                ],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1},
            }
        )
    )
    done = await ask(connect())
    assert done.message.text == "whole"
    assert done.message.tool_calls is not None
    assert done.usage.input == 5


async def test_a_server_that_never_gives_a_reason_is_believed_the_second_time(
    server: ChatServer, connect: Connect
) -> None:
    server.script(say("fine", finish=None), say("fine", finish=None), say("again", finish=None))
    provider = connect()
    notices: list[RetryNotice] = []
    assert (await ask(provider, HASTY, on_retry=notices.append)).message.text == "fine"
    assert len(notices) == 1
    assert (await ask(provider, HASTY, on_retry=notices.append)).message.text == "again"
    assert len(notices) == 1


async def test_connections_are_used_again(server: ChatServer, connect: Connect) -> None:
    provider = connect()
    for _ in range(3):
        assert await works(server, provider)
    assert server.n_connections == 1


async def test_arguments_that_are_not_json_are_stored_as_they_came_and_sent_repaired(
    server: ChatServer, connect: Connect
) -> None:
    server.script(call("Run", '{"a": '), say("fine"))
    provider = connect()
    first = (await ask(provider)).message
    assert first.tool_calls is not None
    assert first.tool_calls[0].function.arguments == '{"a": '
    result = Message(role="tool", content="bad", tool_call_id=first.tool_calls[0].id)
    done = await complete(stream_answer(provider, "", [RUN], [*HELLO, first, result]))
    assert done.message.text == "fine"  # the strict server took it


async def test_calls_of_one_index_and_without_ids_arrive(
    server: ChatServer, connect: Connect
) -> None:
    server.script(
        stream(
            tool_delta(0, name="Run", arguments='{"a":1}'),
            tool_delta(0, name="Run", arguments='{"b":2}'),
            finish="stop",
        ),
        say("fine"),
    )
    provider = connect()
    made = await ask(provider)
    assert made.finish == "tool_calls"
    assert [one.function.arguments for one in made.message.tool_calls or []] == [
        '{"a":1}',
        '{"b":2}',
    ]
    results = [Message(role="tool", content=text, tool_call_id="") for text in ("1", "2")]
    await complete(stream_answer(provider, "", [RUN], [*HELLO, made.message, *results]))
    assert [one["content"] for one in server.requests[1].messages if one["role"] == "tool"] == [
        "1",
        "2",
    ]


@pytest.mark.exhaustive
async def test_ten_megabytes_arrive_and_the_loop_is_never_held(
    server: ChatServer, connect: Connect
) -> None:
    piece = "0123456789abcdef" * 64
    server.script(stream(*[delta(content=piece)] * 10_240, usage=(5, 5)))
    provider = connect()
    await provider.prepare()
    done = await ask(provider)
    assert len(done.message.text) == 10_240 * 1_024


async def test_ten_megabytes_of_error_are_not_all_read(
    server: ChatServer, connect: Connect
) -> None:
    body = json.dumps({"message": "The disk is full."}) + " " * 10_000_000
    server.script(status(500, body))
    with pytest.raises(APIStatusError, match="disk is full"):
        await ask(connect())
    async with asyncio.timeout(_PATIENCE_S):
        await server.client_gone.wait()


async def test_one_line_of_ten_megabytes(server: ChatServer, connect: Connect) -> None:
    server.script(say("x" * 10_000_000, piece=10_000_000))
    assert len((await ask(connect())).message.text) == 10_000_000


async def test_garbage_in_place_of_http(server: ChatServer, connect: Connect) -> None:
    provider = connect()
    server.script(raw(b"SSH-2.0-OpenSSH_9\r\n"))
    with pytest.raises(APIConnectionError):
        await ask(provider)
    assert await works(server, provider)


async def test_a_redirect_is_not_followed(connect: Connect, server: ChatServer) -> None:
    async with ChatServer() as thief:
        server.script(status(308, "", headers={"Location": f"{thief.base_url}/chat/completions"}))
        with pytest.raises(APIStatusError) as caught:
            await ask(connect())
        assert thief.base_url in caught.value.advice
        assert caught.value.message.endswith(" 308: no reason given")
        assert not thief.requests


async def test_own_headers_go_to_their_server_alone_and_are_never_shown(
    connect: Connect, server: ChatServer
) -> None:
    own = {"X-Org": "org-secret-of-mine", "x-route": "blue"}
    said = {"error": {"message": "no access for org-secret-of-mine"}}
    async with ChatServer() as other:
        server.script(status(403, said))
        with pytest.raises(APIStatusError) as caught:
            await ask(connect(headers=own))
        assert "no access for [key]" in caught.value.message
        assert "was sent" not in caught.value.advice
        assert await works(server, connect(headers=own))
        await chat_models(server.base_url, "", own)
        for request in (*server.requests, *server.other_requests):
            assert request.headers["x-org"] == "org-secret-of-mine"
            assert request.headers["x-route"] == "blue"
        async with RestrictedClient(server.base_url, own, connect_s=5, read_s=5) as client:
            await client.get(f"{other.base_url}/models")
        assert "x-org" not in other.other_requests[-1].headers
    with pytest.raises(LLMError, match=r"headers would be sent to example\.org unencrypted"):
        await chat_models("http://example.org/v1", "", own)


@pytest.mark.parametrize("code", [401, 403])
async def test_a_server_that_refuses_without_a_key_is_not_said_to_refuse_the_key(
    connect: Connect, server: ChatServer, code: int
) -> None:
    server.script(status(code), status(code))
    with pytest.raises(APIStatusError) as caught:
        await ask(connect(api_key=""))
    assert "was sent" in caught.value.advice
    with pytest.raises(APIStatusError) as caught:
        await ask(connect(api_key="sk-own"))
    assert "was sent" not in caught.value.advice


# -- stopping --


@pytest.mark.parametrize(
    "answer",
    [
        slow_headers(),
        stall(0),
        stall(4, say("in text")),
        stall(3, say("", think="in thought")),
        stall(5, calls([("Run", {"command": "in arguments"})], text="")),
    ],
    ids=["before headers", "before the first token", "text", "reasoning", "arguments"],
)
async def test_stopping_closes_the_connection_at_once(
    answer: Answer, server: ChatServer, connect: Connect
) -> None:
    server.script(answer)
    provider = connect()
    seen: asyncio.Queue[AnswerItem] = asyncio.Queue()
    asked = asyncio.create_task(
        complete(stream_answer(provider, "", [], HELLO, policy=ONCE), seen.put_nowait)
    )
    if answer.before:
        await server.received(1)
    else:
        await server.at_gate.wait()
        async with asyncio.timeout(_PATIENCE_S):
            if sum(isinstance(op, Chunk) for op in answer.ops) > 2:
                await seen.get()
    asked.cancel()
    async with asyncio.timeout(_PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await asked
        await server.client_gone.wait()
    assert await works(server, provider)


async def test_leaving_the_stream_closes_the_connection(
    server: ChatServer, connect: Connect
) -> None:
    server.script(stall(4))
    stream_: AsyncIterator[StreamItem] = connect().generate("", [], HELLO)
    async with contextlib.aclosing(stream_) as items:  # pyright: ignore[reportArgumentType]
        async for item in items:
            if isinstance(item, TextDelta):
                break
    async with asyncio.timeout(_PATIENCE_S):
        await server.client_gone.wait()


# -- what is sent along --


async def test_nothing_of_the_environment_reaches_the_server(
    server: ChatServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "leak-1")
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "X-Leak: leak-2\nauthorization: leak-3\nuser-agent: leak-4"
    )
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/leak")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert await works(server, connect())
    assert await works(server, connect(api_key=""))
    for request in server.requests:
        assert "leak" not in json.dumps(dict(request.headers))
        assert not [one for one in request.headers if one.startswith(("x-stainless", "openai"))]
        assert request.headers["user-agent"].startswith("kimi-tui/")
    assert server.requests[0].headers["authorization"] == "Bearer sk-secret-secret-secret"
    assert "authorization" not in server.requests[1].headers
    assert os.environ["OPENAI_ORG_ID"] == "leak-1"


async def test_the_environment_is_never_changed_for_other_threads(
    server: ChatServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[str] = []
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("OPENAI_LOG", "debug")
    monkeypatch.setattr(os, "unsetenv", lambda name: changed.append(name))
    monkeypatch.setattr(os, "putenv", lambda name, value: changed.append(name))
    assert await works(server, connect())
    monkeypatch.undo()
    assert changed == []


async def test_retries_are_in_the_log_and_the_key_is_not(
    server: ChatServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-secret-secret-secret"
    server.script(status(503, {"error": {"message": f"busy with {key}"}}), drop(), say("fine"))
    await ask(connect(), HASTY)
    lines = [one.getMessage() for one in caplog.records if one.name == "kimi_tui.llm.completion"]
    assert len(lines) == 2
    assert "m failed (503)" in lines[0]
    assert "attempt 2 of 3" in lines[0]
    assert "(APIConnectionError)" in lines[1]
    assert key not in caplog.text


@pytest.mark.parametrize("what", ["sk-one\r\nX-Other: 1", "sk-\u2028", "sk-\udc80", "sk-\xe9"])
def test_a_key_that_no_header_can_hold_is_refused_without_saying_it(what: str) -> None:
    for key, headers, which in ((what, {}, "key"), ("", {"X-Key": what}, "header X-Key")):
        with pytest.raises(
            LLMError, match=f"The {which} for localhost contains characters"
        ) as refused:
            OpenAICompatible(
                base_url="http://localhost/v1",
                api_key=key,
                headers=headers,
                provider="p",
                model="m",
            )
        assert "sk-" not in str(refused.value)


def test_a_base_url_is_shown_without_what_may_be_a_password() -> None:
    assert shown_url("https://me:sk-one@h:8/v1?key=sk-two#x") == "https://h:8/v1"
    assert shown_url("http://[bad") == "(unreadable)"
    with pytest.raises(LLMError) as refused:
        OpenAICompatible(base_url="ftp://me:sk-one@h/v1", api_key="", provider="p", model="m")
    assert "sk-one" not in str(refused.value)


async def test_a_host_that_the_http_library_does_not_take_is_no_base_url() -> None:
    url = "https://[v1.x]/v1"
    provider = OpenAICompatible(base_url=url, api_key="k", provider="p", model="m")
    with pytest.raises(LLMError, match="is not a base URL"):
        await chat_models(url, "k")
    with pytest.raises(LLMError, match="is not a base URL"):
        await ask(provider)


def test_a_key_never_crosses_a_network_unencrypted() -> None:
    options: dict[str, Any] = {"provider": "p", "model": "m"}
    with pytest.raises(LLMError, match="unencrypted"):
        OpenAICompatible(base_url="http://192.168.1.5:8000/v1", api_key="k", **options)
    OpenAICompatible(base_url="http://192.168.1.5:8000/v1", api_key="", **options)
    OpenAICompatible(base_url="http://[::1]:8000/v1", api_key="k", **options)
    for wrong in (
        "ftp://x/v1",
        "api.moonshot.ai/v1",
        "https://",
        "http://[bad/v1",
        "http://h:99999/",
    ):
        with pytest.raises(LLMError, match="base URL"):
            OpenAICompatible(base_url=wrong, api_key="", **options)


async def test_new_images_for_a_blind_model_are_refused_before_any_request(
    server: ChatServer, connect: Connect
) -> None:
    shown = Message(
        role="user", content=[ImagePart(image_url=ImageURL(url="data:image/png;base64,AA=="))]
    )
    blind = connect()
    with pytest.raises(LLMNotSupported, match="images"):
        await complete(stream_answer(blind, "", [], [shown]))
    assert not server.requests
    server.script(say("fine"), say("fine"))
    answered = [shown, Message(role="assistant", content="seen"), user_message("and?")]
    await complete(stream_answer(blind, "", [], answered))
    assert "cannot see" in server.requests[0].messages[0]["content"]
    await complete(stream_answer(connect(capabilities=["image_in"]), "", [], [shown]))
    assert server.requests[1].messages[0]["content"][0]["type"] == "image_url"


async def test_a_figure_that_no_prompt_can_have_is_not_believed(
    server: ChatServer, connect: Connect
) -> None:
    provider = connect()
    window = provider.info.window
    asked = [Message(role="user", content="Is it so?")]
    for read in (10**12, 900_000, window * 3 // 4):
        server.script(say("yes", usage=(read, 5, read // 10)))
        done = await complete(stream_answer(provider, "", [], asked))
        assert done.usage.estimated
        assert (done.usage.input < 100, done.usage.cached) == (True, 0)
        assert provider.info.window == window
    server.script(say("yes", usage=(40, window + 1)))
    done = await complete(stream_answer(provider, "", [], asked))
    assert (done.usage.input, done.usage.estimated) == (40, True)
    assert done.usage.output < 10


async def test_what_a_server_adds_to_a_prompt_is_believed_and_what_images_may_cost(
    server: ChatServer, connect: Connect
) -> None:
    provider = connect(capabilities=["image_in"], window=100_000)
    picture = ImagePart(image_url=ImageURL(url="data:image/png;base64," + 200_000 * "A"))
    words = Message(role="user", content="Is it so?")
    for asked, read, believed in (
        (words, 49_000, True),
        (words, 52_000, False),
        (Message(role="user", content=[picture]), 99_000, True),
        (Message(role="user", content=[picture]), 120_000, False),
        (Message(role="user", content="字" * 20_000), 99_000, True),
    ):
        server.script(say("yes", usage=(read, 5)))
        done = await complete(stream_answer(provider, "", [], [asked]))
        assert (done.usage.input == read) is believed


async def test_a_prompt_cut_without_a_word_is_noticed(server: ChatServer, connect: Connect) -> None:
    provider = connect()
    long = [user_message("a word and another " * 2_000)]
    server.script(
        say("fine", usage=(2_000, 5)),
        say("fine", usage=(8_000, 5)),
        say("", usage=None, finish="length"),
        stream(finish=None, usage=None, done=False),
    )
    assert (await complete(stream_answer(provider, "", [], long))).usage.prompt_cut
    assert not (await complete(stream_answer(provider, "", [], long))).usage.prompt_cut
    small = connect(window=8_000)
    for _ in range(2):
        with pytest.raises(ContextOverflowError, match="did not answer"):
            await complete(stream_answer(small, "", [], long))


async def test_an_answer_that_came_as_its_request_was_given_up_is_closed() -> None:
    class Answered:
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True

    async def send() -> Any:
        return None, response

    response = Answered()
    sending = asyncio.ensure_future(send())
    await asyncio.wait({sending})
    await _end(sending)
    assert response.is_closed
