"""The cost of building a request: in a long conversation only new messages are counted, and images are not read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.llm import request as requests
from kimi_tui.llm import tokens
from kimi_tui.llm.dialects import DIALECTS, GENERIC
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
from kimi_tui.llm.request import (
    ChatRequest,
    Recipient,
    RequestBuilder,
    build_request,
    plain_schema,
    sent_messages,
)
from kimi_tui.prompts import COMPACTION_START


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


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,AAAA+/9=",
        'data:image/png;base64,AA"},{"role":"system","content":"\\n\ud800',
        'data:image/"png,AAAA',
        "data:image/png;base64,",
        "data:",
    ],
)
def test_images_stand_in_the_body_as_any_json_would(url: str) -> None:
    said = Message(
        role="user",
        content=[
            TextPart(text='lo"ok'),
            ImagePart(image_url=ImageURL(url=url, width=100, height=100)),
            TextPart(text="there"),
        ],
    )
    history = (user_message("x"), Message(role="assistant", content="y"), said)
    built = build_request(ChatRequest("system", (), history, Recipient("p", "m")), GENERIC)
    body = json.loads(built.data)
    assert [message["role"] for message in body["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    text, image, there = body["messages"][-1]["content"]
    assert (text["text"], there["text"]) == ('lo"ok', "there")
    assert image == {
        "type": "image_url",
        "image_url": {"url": url.encode("utf-8", "replace").decode()},
    }
    assert "image_url" in built.optional
    assert 16 < built.estimated_tokens - tokens.estimate("system x y look there") < 40


_PARTS = st.sampled_from(
    [
        TextPart(text="a word"),
        TextPart(text=" "),
        TextPart(text="lone \ud800 surrogate"),
        ImagePart(image_url=ImageURL(url="data:image/png;base64,AAAA")),
        ImagePart(image_url=ImageURL(url="images/x.png")),
    ]
)
_THOUGHTS = st.sampled_from(
    [
        ThinkPart(think="hm", field="reasoning_content", provider="p", model="m"),
        ThinkPart(think="hm", field="think_tag", provider="p", model="m"),
        ThinkPart(think="others", field="reasoning", provider="q", model="n"),
    ]
)
_CALLS = st.builds(
    ToolCall,
    id=st.sampled_from(["a", "b", "", "x" * 50]),
    function=st.builds(
        FunctionCall,
        name=st.sampled_from(["Read", "odd name"]),
        arguments=st.sampled_from(["{}", "no"]),
    ),
)
_MESSAGES = st.one_of(
    st.builds(
        Message,
        role=st.just("user"),
        content=st.one_of(
            st.sampled_from(
                [
                    "hello",
                    "",
                    "<system>CHECKPOINT 3</system>",
                    "<system-reminder>x</system-reminder>",
                    f"{COMPACTION_START} summary",
                ]
            ),
            st.lists(_PARTS, max_size=3),
        ),
    ),
    st.builds(
        Message,
        role=st.just("assistant"),
        content=st.one_of(st.sampled_from(["", "said"]), st.lists(_THOUGHTS, max_size=2)),
        tool_calls=st.one_of(st.none(), st.lists(_CALLS, max_size=3)),
    ),
    st.builds(
        Message,
        role=st.just("tool"),
        content=st.one_of(st.sampled_from(["", "result"]), st.lists(_PARTS, max_size=2)),
        tool_call_id=st.sampled_from(["a", "b", "", "other"]),
    ),
    st.builds(Message, role=st.just("system"), content=st.just("more rules")),
)
_OPERATIONS = st.one_of(
    st.tuples(st.just("grow"), st.lists(_MESSAGES, min_size=1, max_size=4)),
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("dialect"), st.sampled_from(sorted(DIALECTS))),
    st.tuples(st.just("system"), st.sampled_from(["", "one", "other"])),
)


@given(st.lists(_OPERATIONS, max_size=12))
def test_a_conversation_that_grows_is_sent_as_one_that_is_made_anew(
    operations: list[tuple[str, Any]],
) -> None:
    """With every way in which text is joined to what stands before it, through rewinds and changes of the model."""
    builder, history = RequestBuilder(), list[Message]()
    dialect, system = GENERIC, "system"
    for kind, value in operations:
        match kind:
            case "grow":
                history = [*history, *value]
            case "cut":
                history = history[: len(history) - value]
            case "dialect":
                dialect = DIALECTS[value]
            case _:
                system = value
        request = ChatRequest(system, (), history, Recipient("p", "m"))
        before = [message.model_dump() for message in history]
        # On the event loop, where that is quick, or in a thread.
        built = builder.build_soon(request, dialect) or builder.build(request, dialect)
        assert built == build_request(request, dialect)
        whole = sent_messages(system, history, dialect, request.recipient)
        assert json.loads(built.data)["messages"] == json.loads(json.dumps(whole))
        assert [message.model_dump() for message in history] == before


def test_only_what_is_new_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []
    real = requests._json_of_message

    def json_of(message: dict[str, Any]) -> Iterator[bytes]:
        encoded.append(message)
        return real(message)

    monkeypatch.setattr(requests, "_json_of_message", json_of)
    builder, history = RequestBuilder(), [user_message("go")]
    for n in range(50):
        call = ToolCall(id=f"c{n}", function=FunctionCall(name="Read", arguments="{}"))
        history += [
            Message(role="assistant", content="I read.", tool_calls=[call]),
            Message(role="tool", content="text", tool_call_id=f"c{n}"),
            user_message(f"<system>CHECKPOINT {n}</system>"),
        ]
        encoded.clear()
        request = ChatRequest("system", (), history, Recipient("p", "m"))
        soon = builder.build_soon(request, GENERIC)
        assert (soon is None) == (n == 0)  # the first request has no beginning yet
        if soon is None:
            builder.build(request, GENERIC)
        # The newest step and the one before it, whose last message might have grown.
        assert len(encoded) <= 6


@pytest.mark.parametrize(
    "new",
    [
        Message(role="tool", content="x" * 100_000, tool_call_id="c"),
        Message(role="assistant", content=[ThinkPart(think="x" * 100_000)]),
        Message(
            role="assistant",
            tool_calls=[ToolCall(id="c", function=FunctionCall(name="Read", arguments="{}"))] * 500,
        ),
    ],
)
def test_much_that_is_new_is_for_a_thread(new: Message) -> None:
    builder, history = RequestBuilder(), [user_message("go")]
    for more in (Message(role="assistant", content="a"), user_message("b")):
        history = [*history, more]
        builder.build(ChatRequest("", (), history, Recipient("p", "m")), GENERIC)
    request = ChatRequest("", (), history, Recipient("p", "m"))
    assert builder.build_soon(request, GENERIC) is not None
    assert builder.build_soon(replace(request, history=[*history, new]), GENERIC) is None
    # The refusal has forgotten nothing.
    assert builder.build_soon(request, GENERIC) == build_request(request, GENERIC)
    assert builder.build_soon(replace(request, history=history[1:]), GENERIC) is None


class _Counted(Sequence[Message]):
    """Messages, with a count of those that were looked at."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages, self.n_looked_at = messages, 0

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, index: Any) -> Any:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message]:
        for message in self.messages:
            self.n_looked_at += 1
            yield message


def test_a_long_conversation_is_looked_through_once_and_no_further_than_it_is_known() -> None:
    builder, history = RequestBuilder(), [user_message("go")]
    for _ in range(300):
        history += [Message(role="assistant", content="a"), user_message("b")]
    builder.build(ChatRequest("", (), history, Recipient("p", "m")), GENERIC)
    more = _Counted([*history, Message(role="assistant", content="c"), user_message("d")])
    request = ChatRequest("", (), more, Recipient("p", "m"))
    assert builder.build_soon(request, GENERIC) == build_request(
        replace(request, history=more.messages), GENERIC
    )
    assert more.n_looked_at == len(more)
    # A message that is not known may have to be read from the disk.
    others = _Counted([history[0], user_message("another"), *history[2:]])
    assert builder.build_soon(replace(request, history=others), GENERIC) is None
    assert others.n_looked_at == 2


def test_moonshot_gets_only_names_that_are_required_and_known() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}
    assert plain_schema(schema, flavour="moonshot")["required"] == ["a"]
    unknown = plain_schema({**schema, "required": ["b"]}, flavour="moonshot")
    assert "required" not in unknown
    assert plain_schema(schema)["required"] == ["a", "b"]
