"""The stored form of a message, by the rules of kimi-cli's reader and, if available, with that reader itself."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.effort import n_calls

from kimi_tui.llm import message as message_module
from kimi_tui.llm.completion import Collector
from kimi_tui.llm.message import (
    MANY,
    FunctionCall,
    ImagePart,
    ImageURL,
    Message,
    TextPart,
    ThinkPart,
    ToolCall,
)
from kimi_tui.llm.provider import ThinkDelta, ToolCallDelta
from kimi_tui.session.schema import message_line, message_of

_TEXTS = st.text(max_size=20)
_PARTS = st.one_of(
    st.builds(TextPart, text=_TEXTS),
    st.builds(
        ThinkPart,
        think=_TEXTS,
        field=st.sampled_from([None, "reasoning", "reasoning_details"]),
        provider=st.none() | _TEXTS,
        details=st.none() | st.just([{"type": "reasoning.text", "text": "x"}]),
    ),
    st.builds(ImagePart, image_url=st.builds(ImageURL, url=_TEXTS, id=st.none() | st.just("1"))),
)
_CALLS = st.builds(
    ToolCall,
    id=_TEXTS,
    function=st.builds(FunctionCall, name=_TEXTS, arguments=st.none() | _TEXTS),
    extras=st.none() | st.just({"extra_content": {"google": {}}}),
)
_CALL = ToolCall(id="a", function=FunctionCall(name="Run", arguments="{}"))
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=_TEXTS | st.lists(_PARTS, max_size=3),
    tool_calls=st.none() | st.lists(_CALLS, max_size=2),
    tool_call_id=st.none() | _TEXTS,
    interrupted=st.sampled_from([None, True]),
)


def written(message: Message) -> dict[str, Any]:
    return json.loads(message_line(message))


def calls_alone() -> Message:
    collector = Collector("p", "m")
    collector.add(ToolCallDelta(0, "a", "Run"))
    found = collector.message()
    assert found is not None
    return found


def test_calls_without_text_have_a_content_that_is_empty() -> None:
    assert written(calls_alone())["content"] == []
    assert written(Message(role="user"))["content"] == []
    assert written(Message(role="tool", content="", tool_call_id="a"))["content"] == ""


def test_a_call_that_came_without_arguments_has_the_key() -> None:
    call = ToolCall(id="a", function=FunctionCall(name="Run"))
    assert written(Message(role="assistant", tool_calls=[call]))["tool_calls"][0]["function"] == {
        "name": "Run",
        "arguments": "",
    }


def test_what_json_has_no_form_for_is_written_by_the_same_rules() -> None:
    call = {"id": "a", "function": {"name": "Run"}}
    odd = Message.model_validate({"role": "assistant", "tool_calls": [call], "when": object()})
    assert written(odd)["content"] == []
    assert written(odd)["tool_calls"][0]["function"]["arguments"] == ""


def test_a_session_of_ours_without_the_key_opens_as_before() -> None:
    old = json.loads(
        '{"role":"assistant","tool_calls":[{"type":"function","id":"a","function":{"name":"Run"}}]}'
    )
    found = Message.model_validate(old)
    assert found.parts == []
    assert found.tool_calls is not None
    assert found.tool_calls[0].function.name == "Run"


@given(MESSAGES)
def test_whatever_is_written_has_what_kimi_cli_requires(message: Message) -> None:
    record = written(message)
    assert isinstance(record["content"], str | list)
    for part in record["content"] if isinstance(record["content"], list) else ():
        required = {"text": {"text"}, "think": {"think"}, "image_url": {"image_url"}}[part["type"]]
        assert required <= part.keys()
    for call in record.get("tool_calls", ()):
        assert {"id", "function"} <= call.keys()
        assert isinstance(call["function"]["arguments"], str)
    assert None not in record.values()
    assert Message.model_validate(record).text == message.text


@pytest.mark.skipif(importlib.util.find_spec("kosong") is None, reason="kosong is not installed")
@given(MESSAGES)
def test_kimi_clis_own_reader_takes_whatever_is_written(message: Message) -> None:
    from importlib import import_module

    reader: Any = import_module("kosong.message")
    for one in (message, calls_alone()):
        read = reader.Message.model_validate(written(one))
        assert read.extract_text() == one.text


def test_reasoning_alone_is_a_list_of_its_part() -> None:
    collector = Collector("p", "m")
    collector.add(ThinkDelta("why"))
    found = collector.message()
    assert found is not None
    assert [part["type"] for part in written(found)["content"]] == ["think"]


@given(MESSAGES, st.sampled_from(["calls", "parts"]))
def test_a_message_of_many_calls_or_parts_is_stored_and_read_as_any(
    message: Message, of: str
) -> None:
    calls = (message.tool_calls or [_CALL]) * (MANY + 1) if of == "calls" else message.tool_calls
    parts = (message.parts or [TextPart(text="x")]) * (MANY + 1)
    long = message.model_copy(
        update={"tool_calls": calls, "content": message.content if of == "calls" else parts}
    )
    assert long.is_long
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_module, "MANY", 10 * MANY * 3)
        in_one_go = json.dumps(long.stored())
    assert json.dumps(long.stored()) == in_one_go
    assert (
        message_line(long)
        == json.dumps(long.stored(), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    )
    record = json.loads(in_one_go)
    assert Message.of(record) == Message.model_validate(record)


def test_of_many_calls_that_make_no_sense_the_others_are_kept() -> None:
    calls = [*([_CALL.model_dump()] * MANY), {"id": 5}, "x"]
    with pytest.raises(ValueError, match="id"):
        Message.of({"role": "assistant", "tool_calls": calls})
    found = message_of({"role": "assistant", "tool_calls": calls})
    assert found is not None
    assert found.tool_calls == [_CALL] * MANY


def test_a_plain_text_is_read_without_making_parts_of_it() -> None:
    plain = Message(role="assistant", content="word " * 1_000)
    assert (plain.text, plain.thinking, plain.attached) == ("word " * 1_000, "", ())
    assert n_calls(lambda: (plain.text, plain.thinking, plain.attached)) <= 8
