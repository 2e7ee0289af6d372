from __future__ import annotations

import itertools
import json
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each

from kimi_tui.llm.completion import Collector
from kimi_tui.llm.errors import (
    APIStatusError,
    APIStreamError,
    ContextOverflowError,
    ResponseContext,
    error_of_response,
)
from kimi_tui.llm.message import Message, ThinkPart
from kimi_tui.llm.provider import StreamItem, TextDelta, ThinkDelta, Usage
from kimi_tui.llm.stream import ChunkDecoder, SSEDecoder, SSEvent


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def collected(*chunks: Any, done: bool = False) -> Collector:
    decoder = ChunkDecoder(ResponseContext("host", "model"))
    collector = Collector("p", "model")
    for one in chunks:
        data = one if isinstance(one, bytes) else json.dumps(one).encode()
        for item in decoder.decode(SSEvent("", data)):
            collector.add(item)
    if done:
        decoder.decode(SSEvent("", b"[DONE]"))
    for item in decoder.finish():
        collector.add(item)
    return collector


def message(*chunks: Any, done: bool = False) -> Message:
    found = collected(*chunks, chunk(finish="stop"), done=done).message()
    assert found is not None
    return found


def called(found: Message) -> list[tuple[str, str, str | None]]:
    return [(c.id, c.function.name, c.function.arguments) for c in found.tool_calls or []]


def tool(index: Any = None, **fields: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"function": {}}
    for key, value in fields.items():
        target = entry["function"] if key in {"name", "arguments"} else entry
        target[key] = value
    if index is not None:
        entry["index"] = index
    return chunk({"tool_calls": [entry]})


# -- text and reasoning --


FRAMES = (
    (b'{"id": "1", "choices": [{"index": 0, "delta": {"content": "', b'"}}]}'),
    (b'{"id":"1","choices":[{"delta":{"role":"assistant","content":"', b'"}}],"usage":null}'),
    (b'{"choices":[{"delta":{"content":"', b'"},"finish_reason":"stop"}]}'),
    (b'{"content":"","choices":[{"delta":{"content":"', b'"}}]}'),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(FRAMES),
            st.lists(
                st.sampled_from(
                    [b"a", b" ", b'\\"', b'"', b"\\n", b"\t", "漢".encode(), b"\xe6", b'"}', b"\\"]
                )
            ).map(b"".join),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 1_000), max_size=4),
)
def test_what_differs_in_its_words_alone_is_read_as_every_other_chunk(
    parts: list[tuple[tuple[bytes, bytes], bytes]], places: list[int]
) -> None:
    def data(part: tuple[tuple[bytes, bytes], bytes]) -> bytes:
        (before, behind), words = part
        return b"data: " + before + words + behind + b"\n\n"

    # The first words show that no thought comes, the second how others will look.
    first = [data((FRAMES[0], words)) for words in (b"Hi", b"!")]
    rest = b"".join(map(data, parts))
    edges = [0, *sorted(place for place in places if place < len(rest)), len(rest)]
    pieces = [*first, *(rest[a:b] for a, b in itertools.pairwise(edges))]

    def read(*, at_once: bool) -> str:
        decoder, events, said = ChunkDecoder(ResponseContext("host", "model")), SSEDecoder(), ""
        for piece in pieces:
            found = events.feed(piece, decoder.alike) if at_once else events.feed(piece)
            try:
                for event in found:
                    items = decoder.decode(event)
                    said += "".join(item.text for item in items if isinstance(item, TextDelta))
            except APIStreamError:
                return said + "!"
        return said + decoder.reason if decoder.reason else said

    assert read(at_once=True) == read(at_once=False)


def test_what_differs_in_its_words_alone_is_read_in_one_go() -> None:
    decoder, events = ChunkDecoder(ResponseContext("host", "model")), SSEDecoder()
    words = ["Hi", "!", *(f' "{n}"\n' for n in range(100))]
    written = [b"data: " + json.dumps(chunk({"content": text})).encode() for text in words]
    for event in events.feed(b"\n\n".join((*written[:2], b"")), decoder.alike):
        decoder.decode(event)
    found = events.feed(b"\n\n".join((*written[2:], b"data: [DO")), decoder.alike)
    assert found == ["".join(words[2:])]
    assert events.feed(b"NE]\n\n", decoder.alike) == [SSEvent("", b"[DONE]")]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_keeps_the_field_it_came_under(field: str) -> None:
    found = message(chunk({field: "hm "}), chunk({field: "ja"}), chunk({"content": "Yes."}))
    assert found.text == "Yes."
    (thought,) = [part for part in found.parts if isinstance(part, ThinkPart)]
    assert (thought.think, thought.field, thought.provider, thought.model) == (
        "hm ja",
        field,
        "p",
        "model",
    )


def test_both_names_in_one_chunk_count_once() -> None:
    found = message(chunk({"reasoning": "a", "reasoning_content": "a"}), chunk({"content": "b"}))
    assert found.thinking == "a"


def test_empty_reasoning_is_kept_and_null_is_not() -> None:
    empty = message(chunk({"reasoning_content": "", "content": None}), chunk({"content": "b"}))
    assert [part.type for part in empty.parts] == ["think", "text"]
    null = message(chunk({"reasoning_content": None}), chunk({"content": "b"}))
    assert [part.type for part in null.parts] == ["text"]


def test_details_are_merged_by_entry_and_kept_in_order() -> None:
    def one(**fields: Any) -> dict[str, Any]:
        return chunk(
            {"content": "", "reasoning": fields.get("text"), "reasoning_details": [fields]}
        )

    found = message(
        one(type="reasoning.text", index=0, text="a", format="x"),
        one(type="reasoning.text", index=0, text="b"),
        one(type="reasoning.text", index=0, signature="sig"),
        one(type="reasoning.encrypted", index=1, data="zzz"),
        chunk({"content": "c"}),
    )
    (thought,) = [part for part in found.parts if isinstance(part, ThinkPart)]
    assert thought.think == "ab"
    assert thought.field == "reasoning_details"
    assert thought.details == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "format": "x", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "zzz"},
    ]


@given(
    st.text("ab<>/think \n", max_size=20),
    st.text("ab<>/think \n", max_size=20),
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
)
def test_think_tags_are_split_off_wherever_they_are_cut(
    thought: str, text: str, sizes: list[int]
) -> None:
    if "</think>" in thought or "<think>" in thought + text:
        return
    whole = f"<think>{thought}</think>{text}"
    pieces: list[str] = []
    while whole:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(whole[:size])
        whole = whole[size:]
    found = collected(*(chunk({"content": one}) for one in pieces), chunk(finish="stop")).message()
    shown = found.text if found else ""
    # How much white space survives beside the tags is nobody's business.
    assert shown.strip() == text.strip()
    assert (found.thinking if found else "").strip() == thought.strip()


def test_a_tag_in_the_middle_is_text() -> None:
    found = message(chunk({"content": "see <thi"}), chunk({"content": "nk>x</think>"}))
    assert found.text == "see <think>x</think>"
    assert message(chunk({"content": "<thi"})).text == "<thi"


def test_content_may_be_a_list_of_parts() -> None:
    found = message(
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]}),
        chunk({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
    )
    assert (found.thinking, found.text) == ("t", "ab")


# -- tool calls --


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=12), max_size=4),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
)
def test_arguments_survive_any_cut(arguments: dict[str, str], sizes: list[int]) -> None:
    whole = json.dumps(arguments)
    left, pieces = whole, list[str]()
    while left:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(left[:size])
        left = left[size:]
    found = message(tool(0, id="a", name="Run"), *(tool(0, arguments=one) for one in pieces))
    assert called(found) == [("a", "Run", whole)]


def test_two_calls_side_by_side() -> None:
    found = message(
        tool(0, id="a", name="A", arguments='{"x"'),
        tool(1, id="b", name="B", arguments="{}"),
        tool(0, arguments=":1}"),
    )
    assert called(found) == [("a", "A", '{"x":1}'), ("b", "B", "{}")]


def test_one_index_for_two_calls_is_told_by_the_id() -> None:
    found = message(
        tool(0, id="a", name="A", arguments='{"x":1}'), tool(0, id="b", name="B", arguments="{}")
    )
    assert called(found) == [("a", "A", '{"x":1}'), ("b", "B", "{}")]


def test_one_index_and_no_id_is_told_by_the_second_object() -> None:
    found = message(tool(0, name="A", arguments='{"x":1}'), tool(0, name="B", arguments='{"y":2}'))
    assert called(found) == [("", "A", '{"x":1}'), ("", "B", '{"y":2}')]


def test_no_index_and_an_empty_id() -> None:
    found = message(
        chunk(
            {
                "tool_calls": [
                    {"index": None, "id": "", "function": {"name": "A", "arguments": "{}"}},
                    {"id": "", "function": {"name": "A", "arguments": '{"a":{}}'}},
                ]
            }
        )
    )
    assert called(found) == [("", "A", "{}"), ("", "A", '{"a":{}}')]


def test_names_and_ids_said_again_and_arguments_said_twice_change_nothing() -> None:
    found = message(
        tool(0, id="a", name="A", arguments="{"),
        tool(0, id="a", name="A", arguments='"x":1}'),
        tool(0, arguments='{"x":1}'),
    )
    assert called(found) == [("a", "A", '{"x":1}')]


def test_arguments_that_are_an_object_or_null_are_read() -> None:
    found = message(
        tool(0, id="a", name="A", arguments={"x": 1}), tool(1, id="b", name="B", arguments=None)
    )
    assert called(found) == [("a", "A", '{"x": 1}'), ("b", "B", "")]


def test_extra_content_of_a_call_is_kept() -> None:
    signature = {"google": {"thought_signature": "s"}}
    found = message(tool(0, id="a", name="A", arguments="{}", extra_content=signature))
    assert found.tool_calls is not None
    assert found.tool_calls[0].extras == {"extra_content": signature}


def test_an_old_function_call_is_read() -> None:
    found = message(chunk({"function_call": {"name": "A", "arguments": "{}"}}))
    assert called(found) == [("", "A", "{}")]


# -- how it ends --


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("END_TURN", "stop"),
        ("model_length", "length"),
        ("sensitive", "content_filter"),
        ("whatever", "stop"),
    ],
)
def test_reasons_are_normalised(reason: str, expected: str) -> None:
    finish = collected(chunk({"content": "a"}), chunk(finish=reason)).finish
    assert finish is not None
    assert finish.reason == expected


def test_calls_win_over_stop_and_over_null() -> None:
    stop = collected(tool(0, id="a", name="A", arguments="{}"), chunk(finish="stop")).finish
    assert stop is not None
    assert stop.reason == "tool_calls"
    null = collected(tool(0, id="a", name="A", arguments="{}"), done=True).finish
    assert null is not None
    assert null.reason == "tool_calls"


def test_a_stream_without_an_end_is_broken() -> None:
    with pytest.raises(APIStreamError):
        collected(chunk({"content": "a"}))
    with pytest.raises(APIStreamError):
        collected(tool(0, id="a", name="A", arguments='{"x'), done=True)
    with pytest.raises(APIStreamError):
        collected(chunk({"content": "a"}), chunk(finish="insufficient_system_resource"))
    with pytest.raises(ContextOverflowError):
        collected(chunk({"content": "a"}), chunk(finish="model_context_window_exceeded"))


# -- usage --

FIGURES = {"prompt_tokens": 10, "completion_tokens": 2}


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [], "usage": FIGURES},
        chunk(finish="stop", usage=FIGURES),
        {"choices": [{"delta": {}, "finish_reason": "stop", "usage": FIGURES}]},
        chunk(finish="stop", x_groq={"usage": FIGURES}),
    ],
)
def test_usage_is_found_wherever_it_is(last: dict[str, Any]) -> None:
    assert collected(chunk({"content": "a"}), chunk(finish="stop"), last).usage == Usage(10, 2)


def test_the_last_usage_counts_and_is_never_added() -> None:
    more = {"prompt_tokens": 10, "completion_tokens": 5}
    found = collected(
        chunk({"content": "a"}, usage=FIGURES),
        chunk(finish="stop", usage=more),
        {"choices": [], "usage": more},
    )
    assert found.usage == Usage(10, 5)


@pytest.mark.parametrize(
    "extra",
    [
        {"prompt_tokens_details": {"cached_tokens": 7}},
        {"prompt_cache_hit_tokens": 7},
        {"cached_tokens": 7},
    ],
)
def test_cached_tokens_have_three_names(extra: dict[str, Any]) -> None:
    assert collected(chunk(finish="stop", usage={**FIGURES, **extra})).usage == Usage(10, 2, 7)


# -- what no one should send --


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "content",
                        "tool_calls",
                        "function",
                        "usage",
                        "index",
                        "id",
                        "prompt_tokens",
                        "reasoning_details",
                        "finish_reason",
                        "error",
                        "message",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_shape_of_json_is_an_accident(value: Any) -> None:
    decoder = ChunkDecoder(ResponseContext("host", "model"))
    try:
        decoder.decode(SSEvent("", json.dumps(value).encode()))
        decoder.finish()
    except (APIStreamError, APIStatusError):
        pass


def test_surrogates_and_control_characters_are_read() -> None:
    found = message(b'{"choices":[{"delta":{"content":"a\\ud800b\x01\xff"}}]}')
    assert found.text == "a\ufffdb\x01\ufffd"


def test_errors_in_a_stream() -> None:
    with pytest.raises(APIStatusError) as caught:
        collected({"error": {"message": "Overloaded", "type": "overloaded_error"}})
    assert caught.value.retryable
    with pytest.raises(APIStatusError) as caught:
        collected(
            {"error": {"message": "No", "code": 403}, "choices": [{"finish_reason": "error"}]}
        )
    assert caught.value.status == 403
    assert not caught.value.retryable
    with pytest.raises(APIStatusError, match="plain words"):
        ChunkDecoder(ResponseContext("h", "m")).decode(SSEvent("error", b"plain words"))
    with pytest.raises(APIStreamError):
        collected(b"{not json")


def test_events_without_a_blank_line_between_are_parted() -> None:
    joined = b"\n".join(json.dumps(chunk({"content": one})).encode() for one in "ab")
    assert message(joined).text == "ab"


HALVES = ["\ud83d", "\ude00"]


def chunks(*deltas: dict[str, Any], reason: str = "stop") -> bytes:
    """Return a stream of these deltas, with all that is not ASCII written as escapes."""
    every = [{"choices": [{"index": 0, "delta": one}]} for one in deltas]
    every.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in every)


def streamed(data: bytes, size: int = 10_000) -> Message:
    """Return the message in a stream that comes in pieces of a size; nothing in it has half a character."""
    events, decoder, collector = (
        SSEDecoder(),
        ChunkDecoder(ResponseContext("host", "m")),
        Collector(),
    )
    items: list[StreamItem] = []
    for start in range(0, len(data), size):
        for event in events.feed(data[start : start + size], decoder.alike):
            items += decoder.decode(event)
    items += decoder.finish()
    for item in items:
        collector.add(item)
        # The raw entries of reasoning are joined in the result.
        shown = [one for one in astuple(item) if not isinstance(one, tuple)]
        json.dumps(shown, ensure_ascii=False).encode()
    found = collector.message()
    assert found is not None
    json.dumps(found.stored(), ensure_ascii=False).encode()
    return found


def content(*pieces: str) -> list[dict[str, Any]]:
    return [{"content": piece} for piece in pieces]


@each("size", [7, 60, 10_000])
@each(
    "pieces, text",
    [
        (["so ", *HALVES, "!"], "so 😀!"),
        ([*HALVES, " so"], "😀 so"),
        (["so \ud83d", "\ude00\ud83d", "\ude00 on"], "so 😀😀 on"),
        (["so ", "\ud83d", " on"], "so \ufffd on"),
        (["so \ude00", " on"], "so \ufffd on"),
        (["so ", "\ud83d"], "so \ufffd"),
        (["\ud83d"], "\ufffd"),
        (["a", "b", "c", "\ud83d", "", "\ude00", "d", "e", "f"], "abc😀def"),
        (["\ud83d\ud83d\ude00"], "\ufffd😀"),
    ],
)
def test_characters_that_were_split_are_whole_and_halves_end_nothing(
    pieces: list[str], text: str, size: int
) -> None:
    assert streamed(chunks(*content(*pieces)), size).text == text
    thought = streamed(
        chunks(*({"reasoning_content": piece} for piece in pieces), {"content": "done"}), size
    )
    assert (thought.thinking, thought.text) == (text, "done")
    parts = [[{"type": "text", "text": piece}] for piece in pieces]
    assert streamed(chunks(*({"content": part} for part in parts)), size).text == text
    refused = streamed(chunks(*({"refusal": piece} for piece in pieces)), size)
    assert refused.text == text


def test_halves_in_all_else_of_an_answer() -> None:
    details = [{"type": "reasoning.text", "text": half, "\ud800": ["\ude00"]} for half in HALVES]
    entry = {
        "index": 0,
        "id": "c\ud83d",
        "function": {"name": "Read\ude00", "arguments": '{"path": "\ud83d'},
        "extra_content": {"google": {"thought_signature": "\udfff"}},
    }
    more = {"index": 0, "function": {"arguments": '\ude00"}'}}
    found = streamed(
        chunks(
            *({"reasoning_details": [one]} for one in details),
            {"tool_calls": [entry]},
            {"tool_calls": [more]},
            reason="tool_calls",
        )
    )
    assert found.tool_calls is not None
    (call,) = found.tool_calls
    assert (call.id, call.function.name) == ("c\ufffd", "Read\ufffd")
    assert call.function.arguments == '{"path": "😀"}'
    assert found.thinking == "😀"


def test_halves_in_an_error() -> None:
    for body in (
        b'{"error": {"message": "no \\ud83d", "code": "\\ude00", "type": "\\ud800"}}',
        b'"\\ud83d"',
    ):
        context = ResponseContext("host", "m", status=400, headers={"location": "\ud83d"})
        error = error_of_response(body, context)
        f"{error} {error.message} {error.advice} {error!r}".encode()
        with pytest.raises(APIStatusError) as caught:
            ChunkDecoder(ResponseContext("host", "m")).decode(SSEvent("error", body))
        f"{caught.value}{caught.value.code}".encode()


@each("size", [3, 40, 10_000])
@each(
    "pieces, thought, text",
    [
        (["reasoning here", "</think>", "The answer"], "reasoning here", "The answer"),
        (["so\n", "</", "thi", "nk>", "\n\nThe answer", " is"], "so\n", "The answer is"),
        (["so a < b </b> <", "/think>The", " answer"], "so a < b </b> ", "The answer"),
        (["so</think>It ends with </think>."], "so", "It ends with </think>."),
        (["\n</think>\n\n", "The answer"], "", "The answer"),
        (["</think>The answer"], "", "The answer"),
        # Text about tags is text.
        (["It ends with `</think>`."], "", "It ends with `</think>`."),
        (["Use <think> and </think>."], "", "Use <think> and </think>."),
        (["Like so:\n```\n", "so\n</think>\n", "```\n"], "", "Like so:\n```\nso\n</think>\n```\n"),
        (["It is '", "</think>", "'."], "", "It is '</think>'."),
        (["a <", "b> c </", "p>"], "", "a <b> c </p>"),
        (["the end </thin"], "", "the end </thin"),
    ],
)
def test_the_end_of_reasoning_without_a_beginning(
    pieces: list[str], thought: str, text: str, size: int
) -> None:
    found = streamed(chunks(*content(*pieces)), size)
    assert (found.thinking, found.text) == (thought, text)
    # The reasoning is sent back unchanged.
    assert {part.field for part in found.parts if isinstance(part, ThinkPart)} == (
        {"think_tag"} if thought else set()
    )


def test_an_end_without_a_beginning_behind_reasoning_of_its_own() -> None:
    found = streamed(chunks({"reasoning": "so "}, *content("it is", "</think>", "The answer")))
    assert (found.thinking, found.text) == ("so it is", "The answer")
    (thought, _) = found.parts
    assert isinstance(thought, ThinkPart)
    assert thought.field == "reasoning"


def test_no_tag_is_looked_for_behind_a_call() -> None:
    entry = {"index": 0, "id": "c", "function": {"name": "Read", "arguments": "{}"}}
    found = streamed(chunks(*content("so "), {"tool_calls": [entry]}, *content("it</think>")))
    assert (found.thinking, found.text) == ("", "so it</think>")


def test_the_first_choice_counts_wherever_it_is() -> None:
    two = [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]
    other = [{"index": 1, "delta": {"content": "no"}}]
    end = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    for order in (two, two[::-1]):
        every = [{"choices": one} for one in (order, other, order, end)]
        data = b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in every)
        assert streamed(data).text == "yesyes"
    alone = chunks({"content": "only"}).replace(b'"index": 0', b'"index": 1')
    assert streamed(alone).text == "only"


def test_content_that_is_an_object() -> None:
    parts = [{"text": "so "}, {"type": "text", "text": "it is"}]
    assert streamed(chunks(*({"content": one} for one in parts))).text == "so it is"


def test_an_empty_field_of_reasoning_is_kept_only_where_no_reasoning_came() -> None:
    empty, words = chunk({"reasoning_content": ""}), chunk({"content": "x"})
    for chunks, thoughts in (
        ((empty, words), [""]),
        ((empty, chunk({"reasoning_content": "so"}), words), ["so"]),
    ):
        found = message(*chunks)
        assert [part.think for part in found.parts if isinstance(part, ThinkPart)] == thoughts


def test_of_several_values_in_an_event_each_has_to_be_json() -> None:
    decoder = ChunkDecoder(ResponseContext("h", "m"))
    chunk = b'{"choices": [{"index": 0, "delta": {"content": "a"}}]}'
    assert decoder.decode(SSEvent("", chunk + b"\n[DONE]")) == [TextDelta("a")]
    assert decoder.done
    # What a server sends behind the end takes nothing of it back.
    decoder.decode(SSEvent("", chunk + b"\n" + chunk))
    assert decoder.done
    with pytest.raises(APIStreamError, match="not JSON"):
        decoder.decode(SSEvent("", chunk + b"\n{oops"))


def test_reasoning_that_comes_in_two_fields_is_taken_once() -> None:
    decoder = ChunkDecoder(ResponseContext("h", "m"))
    details = [{"type": "reasoning.text", "text": "as details"}]
    delta = {"reasoning": "in words", "reasoning_details": details}
    data = json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()
    (thought,) = decoder.decode(SSEvent("", data))
    assert isinstance(thought, ThinkDelta)
    assert (thought.text, thought.details) == ("in words", tuple(details))
