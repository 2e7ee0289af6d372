"""Events survive `wire.jsonl`, kimi-cli's own records are read, and nothing in the file can break the reader."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.agent_parts import Mode
from kimi_tui.foreign_text import one_line
from kimi_tui.session import schema
from kimi_tui.tool_cards import (
    BriefBlock,
    Card,
    DiffBlock,
    DiffLine,
    Does,
    ImageBlock,
    RequestKind,
    ShellBlock,
    Shows,
    TargetKind,
    TodoBlock,
    TodoItem,
)
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import Decoder, encode_record

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=20)
COUNT = st.integers(0, 10**9)


def encode(event: ev.Event) -> dict[str, Any]:
    """Return the event as a line of the record holds it."""
    return encode_record(ev.EventRecord(1, 0.0, event))["message"]


@st.composite
def diff_blocks(draw: st.DrawFn) -> DiffBlock:
    lines: list[DiffLine] = []
    old = new = 1
    for _ in range(draw(st.integers(0, 3))):
        old += draw(st.integers(0, 50))
        new += draw(st.integers(0, 50))
        for sign in draw(
            st.lists(st.sampled_from(get_args(get_type_hints(DiffLine)["sign"])), max_size=8)
        ):
            lines.append(DiffLine(sign, old if sign == "-" else new, draw(LINE)))
            old += sign != "+"
            new += sign != "-"
    return DiffBlock(
        draw(TEXT), draw(COUNT), draw(COUNT), tuple(lines), created=draw(st.booleans())
    )


IMAGES = st.builds(
    ImageBlock,
    st.text("ab .png", max_size=9).map(one_line),
    TEXT.map(one_line),
    COUNT,
    COUNT,
    COUNT,
    TEXT,
)
BLOCKS = st.one_of(
    IMAGES,
    st.builds(BriefBlock, TEXT),
    st.builds(
        ShellBlock,
        TEXT,
        st.none() | st.integers(-255, 255),
        st.floats(0, 1e6).map(lambda x: round(x, 3)),
    ),
    st.builds(
        TodoBlock,
        st.lists(
            st.builds(TodoItem, TEXT, st.sampled_from(["pending", "in_progress", "done"])),
            max_size=3,
        ).map(tuple),
    ),
    diff_blocks(),
)
WORD = st.text("ab_", max_size=9)
CARDS = st.builds(
    Card,
    WORD,
    st.lists(WORD, max_size=3).map(tuple),
    st.sampled_from(get_args(TargetKind)),
    st.sampled_from(["{}", "job {}", '"{}"']),
    st.sampled_from(get_args(Shows)),
    WORD,
    st.sampled_from(get_args(Does)),
)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXT,
    "str | None": st.none() | TEXT,
    "bool": st.booleans(),
    "int": COUNT,
    "int | None": st.none() | COUNT,
    "float": st.floats(0, 1e6).map(lambda x: round(x, 3)),
    "tuple[str, ...]": st.lists(TEXT, max_size=3).map(tuple),
    "tuple[int, ...]": st.lists(COUNT, max_size=3).map(tuple),
    "tuple[DisplayBlock, ...]": st.lists(BLOCKS, max_size=3).map(tuple),
    "tuple[ImageBlock, ...]": st.lists(IMAGES, max_size=3).map(tuple),
    "CheckpointKind": st.sampled_from(get_args(ev.CheckpointKind)),
    "Operation": st.sampled_from(get_args(ev.Operation)),
    "When": st.sampled_from(get_args(ev.When)),
    "ApprovalAnswer": st.sampled_from(get_args(ev.ApprovalAnswer)),
    "FailureKind": st.sampled_from(get_args(ev.FailureKind)),
    "PauseTopic": st.sampled_from(get_args(ev.PauseTopic)),
    "Literal['done', 'interrupted', 'rejected', 'error']": st.sampled_from(
        ["done", "interrupted", "rejected", "error"]
    ),
    "Literal['info', 'warning', 'error']": st.sampled_from(["info", "warning", "error"]),
    "Literal['fired', 'drafted', 'refused', 'failed']": st.sampled_from(["fired", "failed"]),
    "Literal['remind', 'draft', 'send']": st.sampled_from(["remind", "send"]),
    "Literal['agent', 'person']": st.sampled_from(["agent", "person"]),
    "Literal['', 'on', 'lean', 'off']": st.sampled_from(["", "on", "lean", "off"]),
    "Mode": st.sampled_from(get_args(Mode)),
    "tuple[tuple[str, str], ...]": st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    "tuple[tuple[str, int], ...]": st.lists(st.tuples(TEXT, COUNT), max_size=3).map(tuple),
    "AgentState": st.sampled_from(get_args(ev.AgentState)),
    "FutureStatus": st.sampled_from(get_args(ev.FutureStatus)),
    "CheckResult": st.sampled_from(get_args(ev.CheckResult)),
    "tuple[CheckpointKind, ...]": st.lists(
        st.sampled_from(get_args(ev.CheckpointKind)), max_size=3
    ).map(tuple),
    "RequestKind": st.sampled_from(get_args(RequestKind)),
    "Card | None": st.none() | CARDS,
    "LeftBehind": st.builds(
        ev.LeftBehind, COUNT, COUNT, st.lists(TEXT, max_size=3).map(tuple), TEXT
    ),
}
NOT_EMPTY = {("ToolCall", "key"), ("ToolCallPart", "key"), ("ToolStarted", "key")} | {
    ("ToolResult", "key"),
    ("ApprovalRequest", "id"),
    ("ApprovalResolved", "id"),
}


def events_of(kind: type) -> st.SearchStrategy[ev.Event]:
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for name, hint in kind.__annotations__.items():
        # Named tuples make an object of it.
        strategy = SPECIAL[str(getattr(hint, "__forward_arg__", hint)).replace('"', "'")]
        if (kind.__name__, name) in NOT_EMPTY:
            strategy = st.text("abc:0", min_size=1, max_size=9)
        strategies[name] = strategy
    return st.builds(kind, **strategies)


KINDS: tuple[type, ...] = get_args(ev.Event)
STORED_AS_OTHERS = {ev.TextPart, ev.ThinkPart, ev.ApprovalResolved, ev.SteerTaken}


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    if isinstance(event, ev.ToolCall | ev.ToolResult) and event.id == event.key:
        return  # stored once, and an id of its own is not needed then
    source = data.draw(st.sampled_from(["", "reviewer"]))
    record = ev.EventRecord(7, 12.5, event, source=source)
    line = json.loads(json.dumps(encode_record(record)))
    assert ("reviewer" in str(line)) == bool(source)
    assert Decoder().decode_record(line, 1) == record
    assert (encode(event)["type"] != kind.__name__) == (kind in STORED_AS_OTHERS)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (ev.TextPart("Hello."), "ContentPart"),
        (ev.ThinkPart("Hm."), "ContentPart"),
        (ev.ApprovalResolved("a-1", "once"), "ApprovalResponse"),
        (ev.SteerTaken("s-1", "and the tests"), "SteerInput"),
        (ev.SteerTaken("s-1", "and the tests", withdrawn=True), "SteerWithdrawn"),
    ],
)
def test_an_event_is_read_under_the_name_it_is_stored_with_alone(event: Any, name: str) -> None:
    stored = encode(event)
    assert stored["type"] == name
    assert Decoder().decode(stored) == event
    own = {"type": type(event).__name__, "payload": json.loads(json.dumps(asdict(event)))}
    assert Decoder().decode(own) is None


def test_what_an_undo_leaves_is_stored_among_the_fields_of_its_event() -> None:
    left = ev.LeftBehind(3, 7, ("made.txt",), "fix the quotes")
    event = ev.LineChanged("undo", 2, 1, "abc", left=left)
    stored = {
        "steps_left": 3,
        "messages_left": 7,
        "files_left": ["made.txt"],
        "line_name": "fix the quotes",
    }
    assert encode(event)["payload"].items() >= stored.items()
    assert "left" not in encode(event)["payload"]


# These are as large as JSON allows, which is larger than any float, and include the other texts that Python reads as numbers.
HUGE = st.integers(300, 4000).flatmap(lambda n: st.sampled_from([10**n, -(10**n), 10**n + 1]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | HUGE | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data())
def test_nothing_in_the_file_breaks_the_reader(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    message = encode(data.draw(events_of(kind)))
    payload = message["payload"]
    for key in list(payload):
        action = data.draw(st.sampled_from(["keep", "drop", "spoil"]))
        if action == "drop":
            del payload[key]
        elif action == "spoil":
            payload[key] = data.draw(JSON)
    line = {"message": message, "timestamp": data.draw(JSON), "seq": data.draw(JSON)}
    record = Decoder().decode_record(line, 1)
    if record is not None:
        json.dumps(encode_record(record))
        datetime.fromtimestamp(record.at, UTC)
        for number in numbers_in(record):
            # The number is shown after divisions, roundings and multiplications.
            assert math.isfinite(float(number))
            assert round(number / 3 * 1000) < 10**20


def numbers_in(value: object) -> Iterator[int | float]:
    """Yield every number in an event, wherever it stands."""
    if is_dataclass(value):
        for field in fields(value):
            yield from numbers_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from numbers_in(item)
    elif isinstance(value, int | float):
        yield value


HUGE_NUMBERS = {"big": 10**309, "negative": -(10**309), "inf": math.inf, "nan": math.nan}


@pytest.mark.parametrize("huge", HUGE_NUMBERS.values(), ids=HUGE_NUMBERS)
def test_a_number_that_no_float_holds_is_no_error(huge: float) -> None:
    result = {"tool_call_id": "c", "return_value": {"is_error": False}, "duration_s": huge}
    message = {"type": "ToolResult", "payload": result}
    record = Decoder().decode_record({"message": message, "timestamp": huge, "seq": huge}, 7)
    assert record == ev.EventRecord(7, 0.0, ev.ToolResult("c", False, "", ""))
    retry = {"n": 1, "next_attempt": 2, "max_attempts": 3, "wait_s": huge, "left_s": huge}
    assert Decoder().decode({"type": "StepRetry", "payload": retry}) == ev.StepRetry(
        1, 2, 3, 0.0, ""
    )


@given(JSON)
def test_any_json_is_read_or_passed_over(value: Any) -> None:
    Decoder().decode_record({"message": value, "seq": value}, 1)
    Decoder().decode_record({"message": {"type": value, "payload": value}}, 1)


def test_names_and_keys_are_kimi_clis() -> None:
    assert encode(ev.TextPart("a")) == {
        "type": "ContentPart",
        "payload": {"type": "text", "text": "a"},
    }
    assert encode(ev.ThinkPart("a"))["payload"] == {
        "type": "think",
        "think": "a",
        "encrypted": None,
    }
    assert encode(ev.TurnBegin("hi")) == {"type": "TurnBegin", "payload": {"user_input": "hi"}}
    assert encode(ev.StepRetry(1, 2, 3, 0.5, "busy", 503))["payload"]["next_attempt"] == 2
    call = encode(ev.ToolCall("u:0", "Shell", "{}", "functions.Shell:0"))["payload"]
    assert call["id"] == "functions.Shell:0"
    assert call["function"] == {"name": "Shell", "arguments": "{}"}
    result = encode(ev.ToolResult("u:0", False, "out", "ok", (), 1.0, id="functions.Shell:0"))
    assert result["payload"]["tool_call_id"] == "functions.Shell:0"
    assert result["payload"]["return_value"]["output"] == "out"
    status = encode(ev.StatusUpdate(500, 1000, 850, step_input=400, step_output=100))["payload"]
    assert status["context_usage"] == 0.5
    assert status["token_usage"]["input_other"] == 400
    assert encode(ev.ApprovalResolved("1", "session"))["payload"]["response"] == (
        "approve_for_session"
    )


def test_kimi_cli_records_without_our_keys_are_read() -> None:
    decoder = Decoder()

    def read(kind: str, payload: dict[str, Any]) -> ev.Event | None:
        record = decoder.decode_record(
            {"timestamp": 1.5, "message": {"type": kind, "payload": payload}}, 4
        )
        assert record is None or (record.at, record.seq) == (1.5, 4)
        return record.event if record else None

    assert read("TurnBegin", {"user_input": [{"type": "text", "text": "look"}]}) == ev.TurnBegin(
        "look"
    )
    usage = {"input_other": 900, "output": 20, "input_cache_read": 100, "input_cache_creation": 0}
    assert read(
        "StatusUpdate",
        {"context_tokens": 1000, "max_context_tokens": 200000, "token_usage": usage},
    ) == ev.StatusUpdate(
        1000,
        200000,
        0,
        total_input=1000,
        total_cached=100,
        total_output=20,
        step_input=1000,
        step_output=20,
    )
    assert read("StatusUpdate", {"context_tokens": None, "plan_mode": True}) == ev.StatusUpdate(
        1000, 200000, 0, total_input=1000, total_cached=100, total_output=20
    )
    again = read("StatusUpdate", {"context_tokens": 1200, "token_usage": usage})
    assert isinstance(again, ev.StatusUpdate)
    # Each call has its own figures, and the session has the sums.
    assert (again.total_input, again.total_cached, again.total_output) == (2000, 200, 40)
    call = {"type": "function", "id": "c:0", "function": {"name": "Shell", "arguments": "{"}}
    result = {"tool_call_id": "c:0", "return_value": {"is_error": True, "output": "x"}}
    first = read("ToolCall", call)
    assert isinstance(first, ev.ToolCall)
    assert read("ToolCallPart", {"arguments_part": "}"}) == ev.ToolCallPart(first.key, "}")
    assert read("ToolResult", result) == ev.ToolResult(first.key, True, "x", id="c:0")
    # The same id in a later turn is another call.
    second = read("ToolCall", call)
    assert isinstance(second, ev.ToolCall)
    assert second.key != first.key
    answer = read("ToolResult", result)
    assert isinstance(answer, ev.ToolResult)
    assert answer.key == second.key
    assert read("TurnEnd", {}) == ev.TurnEnd("done")
    ended = {"reason": "error", "kind": ""}
    assert read("TurnEnd", ended | {"limit": "steps"}) == ev.TurnEnd("error", kind="steps")
    assert read("TurnEnd", ended | {"limit": ["?"]}) == ev.TurnEnd("error")
    assert read("CompactionBegin", {}) == ev.CompactionBegin(0, False)
    assert read("CompactionEnd", {}) == ev.CompactionEnd(0, 0)
    assert read("ApprovalRequestResolved", {"request_id": "r", "response": "reject"}) == (
        ev.ApprovalResolved("r", "no")
    )
    assert read("QuestionRequest", {"id": "q"}) is None


def test_a_diff_of_kimi_cli_is_shown_as_one() -> None:
    record = {
        "type": "diff",
        "path": "/w/a.py",
        "old_text": "a\nb\nc",
        "new_text": "a\nB\nc",
        "old_start": 4,
        "new_start": 4,
        "is_summary": False,
    }
    call = {"tool_call_id": "c", "return_value": {"is_error": False, "display": [record]}}
    event = Decoder().decode({"type": "ToolResult", "payload": call})
    assert isinstance(event, ev.ToolResult)
    (block,) = event.display
    assert block == DiffBlock(
        "/w/a.py",
        1,
        1,
        (
            DiffLine(" ", 4, "a"),
            DiffLine("-", 5, "b"),
            DiffLine("+", 5, "B"),
            DiffLine(" ", 6, "c"),
        ),
    )


def test_arguments_are_stored_once() -> None:
    decoder = Decoder()
    decoder.decode(encode(ev.ToolCall("k", "Shell", '{"com')))
    decoder.decode(encode(ev.ToolCallPart("k", 'mand":1}')))
    started = {"type": "ToolStarted", "payload": {"key": "k", "name": "Shell"}}
    assert decoder.decode(started) == ev.ToolStarted("k", "Shell", '{"command":1}')


def test_the_wire_and_the_journal_know_the_same_operations() -> None:
    assert get_args(ev.Operation) == get_args(schema.Operation)
