from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chat_server import sequence_fault

from kimi_tui.llm.dialects import DIALECTS, GENERIC, Dialect, family, for_model
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
from kimi_tui.llm.request import BRIDGE, GO_ON, INTERRUPTED_RESULT, Recipient, sent_messages

ME = Recipient("p", "kimi-k2.6")
MARKER = "<system>CHECKPOINT 3</system>"


def assistant(
    text: str = "", *calls: ToolCall, think: ThinkPart | None = None, **more: Any
) -> Message:
    parts: list[Any] = [think] if think else []
    if text:
        parts.append(TextPart(text=text))
    return Message(role="assistant", content=parts, tool_calls=list(calls) or None, **more)


def call(
    call_id: str = "a", name: str = "Run", arguments: str | None = "{}", **more: Any
) -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=arguments), **more)


def result(text: str, call_id: str = "a") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


def sent(
    *history: Message, dialect: Dialect = GENERIC, system: str = "", to: Recipient = ME
) -> list[dict[str, Any]]:
    return sent_messages(system, history, dialect, to)


def shape(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(one["role"], one.get("content")) for one in messages]


# -- any history at all becomes something valid --

texts = st.sampled_from(
    ["", " ", "hello", MARKER, "<system-reminder>x</system-reminder>", "\ud800bad", "日本"]
)
ids = st.sampled_from(["", "a", "b", "functions.Run:0", "x" * 60])
calls = st.builds(
    call,
    ids,
    st.sampled_from(["Run", "", "bad name!"]),
    st.sampled_from([None, "", "{}", '{"a": 1}', "{bad", "[1]", '"\ud800"']),
)
thoughts = st.builds(
    ThinkPart,
    think=texts,
    field=st.sampled_from(
        [None, "reasoning", "reasoning_content", "think_tag", "reasoning_details"]
    ),
    provider=st.sampled_from([None, "p", "q"]),
    model=st.just("kimi-k2.6"),
    details=st.sampled_from([None, [{"type": "reasoning.text", "text": "x"}]]),
)
images = st.sampled_from(
    [
        ImagePart(image_url=ImageURL(url="data:image/png;base64,AA==")),
        ImagePart(image_url=ImageURL(url="https://example.org/a.png")),
    ]
)
parts = st.lists(st.one_of(st.builds(TextPart, text=texts), thoughts, images), max_size=3)
messages = st.one_of(
    st.builds(user_message, texts),
    st.builds(lambda content: Message(role="user", content=content), parts),
    st.builds(
        lambda content, made, cut: Message(
            role="assistant", content=content, tool_calls=made or None, interrupted=cut
        ),
        parts,
        st.lists(calls, max_size=3),
        st.sampled_from([None, True]),
    ),
    st.builds(result, texts, ids),
    st.builds(
        lambda content, call_id: Message(role="tool", content=content, tool_call_id=call_id),
        parts,
        ids,
    ),
    st.just(Message(role="system", content="more")),
)


@given(
    st.lists(messages, max_size=9),
    st.sampled_from(sorted(DIALECTS)),
    st.sampled_from(["", "sys"]),
    st.booleans(),
)
def test_whatever_is_stored_what_is_sent_is_valid(
    history: list[Message], name: str, system: str, sees: bool
) -> None:
    dialect = for_model(DIALECTS[name], ME.model)
    made = sent_messages(system, history, dialect, replace(ME, image_in=sees))
    assert sequence_fault(made, user_after_tool=not dialect.bridge) is None
    json.dumps(made, ensure_ascii=False).encode()  # no lone surrogate is left


@given(st.lists(messages, max_size=6), messages.filter(lambda one: one.role != "system"))
def test_what_was_sent_stays_the_same_when_more_is_said(
    history: list[Message], more: Message
) -> None:
    # Prompt caches hit only on equal beginnings; later messages may still be joined to the last one.
    before = sent_messages("sys", history, GENERIC, ME)
    after = sent_messages("sys", [*history, more], GENERIC, ME)
    settled = before[:-1]
    if more.role == "tool":
        # A late result takes the place of the one that stood in for it.
        settled = settled[
            : next((i for i, one in enumerate(before) if one.get("tool_calls")), len(settled))
        ]
    assert after[: len(settled)] == settled


# -- roles --


def test_one_system_message_first() -> None:
    made = sent(Message(role="system", content="b"), user_message("x"), system="a")
    assert shape(made) == [("system", "a\n\nb"), ("user", "x")]


def test_neighbouring_user_messages_are_one_with_a_blank_line_between() -> None:
    assert shape(sent(user_message(MARKER), user_message("do it"))) == [
        ("user", f"{MARKER}\n\ndo it")
    ]


def test_a_marker_after_results_goes_to_the_end_of_the_last_result() -> None:
    made = sent(
        user_message("x"),
        assistant("", call("a"), call("b")),
        result("1", "a"),
        result("2", "b"),
        user_message(MARKER),
        user_message("<system-reminder>r</system-reminder>"),
    )
    assert [one.get("content") for one in made[2:]] == [
        "1",
        f"2\n\n{MARKER}\n\n<system-reminder>r</system-reminder>",
    ]


def test_a_persons_words_stay_a_users_message_even_if_they_look_like_a_marker() -> None:
    said = Message.model_validate({"role": "user", "content": MARKER, "by": "person"})
    made = sent(user_message("x"), assistant("", call()), result("1"), said)
    assert shape(made)[-1] == ("user", MARKER)


def test_a_steer_after_results_is_bridged_only_where_it_must_be() -> None:
    history = [user_message("x"), assistant("", call()), result("1"), user_message("rather y")]
    assert [one["role"] for one in sent(*history)] == ["user", "assistant", "tool", "user"]
    made = sent(*history, dialect=DIALECTS["mistral"])
    assert shape(made)[-2:] == [("assistant", BRIDGE), ("user", "rather y")]
    assert for_model(GENERIC, "Devstral-Small-2507").bridge


def test_what_was_said_among_the_results_comes_after_them() -> None:
    made = sent(
        user_message("x"),
        assistant("", call("a"), call("b")),
        result("1", "a"),
        user_message("wait"),
        result("2", "b"),
    )
    assert [one["role"] for one in made] == ["user", "assistant", "tool", "tool", "user"]


def test_an_interrupted_answer_keeps_its_text_and_its_mark_is_not_sent() -> None:
    thought = ThinkPart(
        think="half a th", field="reasoning_content", provider="p", model="kimi-k2.6"
    )
    made = sent(
        user_message("x"), assistant("half", think=thought, interrupted=True), user_message("go")
    )
    assert made[1] == {"role": "assistant", "content": "half"}


def test_an_empty_answer_is_not_sent_and_its_neighbours_are_joined() -> None:
    assert shape(sent(user_message("x"), assistant(), user_message("y"))) == [("user", "x\n\ny")]


def test_between_two_answers_the_person_says_to_go_on() -> None:
    made = sent(user_message("x"), assistant("a"), assistant("b", call()), result("1"))
    assert [one["role"] for one in made] == ["user", "assistant", "user", "assistant", "tool"]
    assert made[2]["content"] == GO_ON


def test_a_history_that_ends_with_an_answer_asks_to_go_on() -> None:
    assert shape(sent(user_message("x"), assistant("a")))[-1] == ("user", GO_ON)


def test_calls_without_text_have_no_content_and_nothing_is_null() -> None:
    made = sent(user_message("x"), assistant("", call()), result(""))
    assert "content" not in made[1]
    assert made[2]["content"] == "(no output)"


# -- calls, results, ids --


def test_a_call_without_result_gets_one_and_a_result_without_call_goes() -> None:
    made = sent(
        result("stray"),
        user_message("x"),
        assistant("", call("a"), call("b")),
        result("2", "b"),
        result("9", "zzz"),
    )
    assert [(one["tool_call_id"], one["content"]) for one in made if one["role"] == "tool"] == [
        ("a", "9"),
        ("b", "2"),
    ]
    made = sent(user_message("x"), assistant("", call("a")))
    assert made[-1]["content"] == INTERRUPTED_RESULT


def test_ids_stay_as_they_came_though_they_repeat_across_steps() -> None:
    step = [assistant("", call("functions.Run:0")), result("1", "functions.Run:0")]
    made = sent(user_message("x"), *step, *step)
    assert [one["tool_call_id"] for one in made if one["role"] == "tool"] == ["functions.Run:0"] * 2


def test_missing_and_shared_ids_are_made_unique_within_their_step() -> None:
    made = sent(
        user_message("x"),
        assistant("", call(""), call("a"), call("a")),
        result("1", ""),
        result("2", "a"),
        result("3", "a"),
    )
    sent_ids = [one["id"] for one in made[1]["tool_calls"]]
    assert len(set(sent_ids)) == 3
    assert sent_ids[1] == "a"
    assert [(one["tool_call_id"], one["content"]) for one in made[2:]] == list(
        zip(sent_ids, "123", strict=True)
    )


def test_long_ids_are_shortened_and_short_ones_made_where_wanted() -> None:
    history = [user_message("x"), assistant("", call("y" * 41)), result("1", "y" * 41)]
    long = sent(*history)
    assert len(long[1]["tool_calls"][0]["id"]) <= 40
    assert long == sent(*history)
    nine = sent(*history, dialect=DIALECTS["mistral"])
    made = nine[1]["tool_calls"][0]["id"]
    assert len(made) == 9
    assert made.isalnum()
    assert nine[2]["tool_call_id"] == made


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (None, "{}"),
        ("", "{}"),
        ("{bad", '{"not_json": "{bad"}'),
        ("[1]", '{"not_json": "[1]"}'),
        ('{"a":1}', '{"a":1}'),
    ],
)
def test_arguments_are_always_an_object(arguments: str | None, expected: str) -> None:
    made = sent(user_message("x"), assistant("", call(arguments=arguments)), result("1"))
    assert made[1]["tool_calls"][0]["function"]["arguments"] == expected


def test_invented_names_cannot_poison_the_history() -> None:
    made = sent(user_message("x"), assistant("", call(name="a b.c"), call("b", "")), result("1"))
    assert [one["function"]["name"] for one in made[1]["tool_calls"]] == ["a_b_c", "unknown"]


# -- reasoning --


def thought(field: str | None = "reasoning_content", **more: Any) -> ThinkPart:
    return ThinkPart(
        **{"think": "why", "field": field, "provider": "p", "model": "kimi-k2.5", **more}
    )


def fields_of(
    dialect: Dialect, part: ThinkPart | None, *made: ToolCall, model: str = ME.model
) -> dict[str, Any]:
    history = [
        user_message("x"),
        assistant("t", *made, think=part),
        *(result("1", one.id) for one in made),
    ]
    entry = sent(*history, dialect=dialect, to=replace(ME, model=model))[1]
    return {key: value for key, value in entry.items() if key.startswith("reasoning")}


MOONSHOT = for_model(DIALECTS["moonshot"], ME.model)


def test_reasoning_goes_back_whole_to_its_own_family_in_its_own_field() -> None:
    assert fields_of(GENERIC, thought("reasoning")) == {"reasoning": "why"}
    assert fields_of(DIALECTS["vllm"], thought()) == {"reasoning": "why"}
    assert fields_of(MOONSHOT, thought()) == {"reasoning_content": "why"}
    assert fields_of(DIALECTS["groq"], thought()) == {}
    assert family("moonshotai/Kimi-K2.7-code") == family("kimi-k2.5") != family("kimi-k3")


def test_reasoning_of_others_is_dropped_and_what_is_wanted_stands_in_its_place() -> None:
    for other in (thought(provider="q"), thought(model="kimi-k3"), None):
        assert fields_of(GENERIC, other, call()) == {}
        assert fields_of(MOONSHOT, other, call()) == {"reasoning_content": " "}
        assert fields_of(MOONSHOT, other) == {}
        assert fields_of(DIALECTS["deepseek"], other) == {"reasoning_content": ""}


def test_empty_reasoning_goes_back_empty() -> None:
    assert fields_of(GENERIC, thought(think=""), call()) == {"reasoning_content": ""}
    assert fields_of(MOONSHOT, thought(think=""), call()) == {"reasoning_content": " "}


def test_imported_reasoning_without_a_name_goes_to_moonshot_alone() -> None:
    imported = ThinkPart(think="why")
    assert fields_of(MOONSHOT, imported) == {"reasoning_content": "why"}
    assert fields_of(GENERIC, imported) == {}


def test_details_go_back_unchanged() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x", "format": "f", "index": 0}]
    part = thought("reasoning_details", details=details)
    assert fields_of(DIALECTS["openrouter"], part) == {"reasoning_details": details}
    assert fields_of(DIALECTS["openrouter"], thought("reasoning")) == {"reasoning": "why"}


def test_tagged_reasoning_goes_back_as_it_came() -> None:
    made = sent(user_message("x"), assistant("t", think=thought("think_tag")), user_message("y"))
    assert made[1]["content"] == "<think>\nwhy\n</think>\n\nt"


def test_gemini_gets_its_signatures_back_in_their_places() -> None:
    signature = {"google": {"thought_signature": "s"}}
    history = [
        user_message("x"),
        assistant("", call("a", extras={"extra_content": signature}), call("b")),
        result("1", "a"),
        result("2", "b"),
        assistant("", call("c")),
        result("3", "c"),
    ]
    made = sent(*history, dialect=DIALECTS["gemini"])
    assert [one.get("extra_content") for one in made[1]["tool_calls"]] == [signature, None]
    assert "skip" in json.dumps(made[4]["tool_calls"][0]["extra_content"])
    assert "extra_content" not in json.dumps(sent(*history))


# -- images --

IMAGE = ImagePart(image_url=ImageURL(url="data:image/png;base64,AA=="))


def test_images_of_results_come_in_a_users_message_after_all_results() -> None:
    shown = Message(role="tool", tool_call_id="a", content=[TextPart(text="1"), IMAGE])
    history = [user_message("x"), assistant("", call("a"), call("b")), shown, result("2", "b")]
    made = sent(*history)
    assert [one["role"] for one in made] == ["user", "assistant", "tool", "tool", "user"]
    assert made[2]["content"] == "1"
    assert made[4]["content"][1]["type"] == "image_url"
    assert [one["role"] for one in sent(*history, dialect=DIALECTS["mistral"])][-2:] == [
        "assistant",
        "user",
    ]


def test_a_model_that_cannot_see_gets_a_word_instead() -> None:
    made = sent(
        Message(role="user", content=[TextPart(text="look"), IMAGE]), to=replace(ME, image_in=False)
    )
    assert isinstance(made[0]["content"], str)
    assert "cannot see" in made[0]["content"]
