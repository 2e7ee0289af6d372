"""The index of a line without a session: figures by offsets, checkpoints by number, and messages by place."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from kimi_tui.llm.tokens import message_tokens
from kimi_tui.session import context_index
from kimi_tui.session.context_index import ContextIndex, MessageCache, MessageList, parse_message
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.schema import FAILED_START, SYSTEM_END, MessageKind


class Line:
    """Records as bytes, their offsets, and the reads of them."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.offsets: list[int] = []
        self.data = b""
        self.reads: list[int] = []
        for record in records:
            self.offsets.append(len(self.data))
            self.data += json.dumps(record).encode() + b"\n"
        self.index = ContextIndex.scan(self._bytes)

    def _bytes(self, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size]

    def read(self, size: int, offset: int) -> bytes:
        self.reads.append(self.offsets.index(offset))
        return self._bytes(size, offset)

    def messages(self, first: int = 0, last: int | None = None) -> MessageList:
        return MessageList(self.index, self.read, MessageCache(), first, last)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def usage(tokens: int, *, estimated: bool = False) -> dict[str, Any]:
    return {"role": "_usage", "token_count": tokens, "estimated": estimated}


def checkpoint(number: int) -> dict[str, Any]:
    return {"role": "_checkpoint", "id": number, "uid": f"u{number}", "at": ""}


def test_figures_before_and_behind_an_offset() -> None:
    line = Line(
        user("0"), usage(10, estimated=True), user("1"), user("2"), usage(20), user("3"), usage(30)
    )
    index = line.index
    first, second, third = line.offsets[1], line.offsets[4], line.offsets[6]
    for offset, before, estimated_before, estimated_behind in (
        (0, None, False, True),
        (first, None, False, True),
        (first + 1, (10, 1), True, False),
        (second, (10, 1), True, False),
        (second + 1, (20, 3), False, False),
        (third, (20, 3), False, False),
        (index.size, (30, 4), False, False),
    ):
        assert index.usage_before(offset) == before, offset
        assert index.is_estimated_before(offset) == estimated_before, offset
        assert index.is_estimated_behind(offset) == estimated_behind, offset
    assert index.first_usage() == (20, second)
    assert index.usages_between(first, third) == [10, 20]
    assert index.usages_between(first + 1, index.size) == [20, 30]
    index.cut(second)
    assert (index.first_usage(), index.usage_before(index.size)) == (None, (10, 1))
    assert (index.n_messages, index.size) == (3, second)
    assert not ContextIndex().is_estimated_behind(0)


def called(*names: str) -> dict[str, Any]:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in names
    ]
    return {"role": "assistant", "content": "x", "tool_calls": calls}


def test_which_messages_call_a_tool() -> None:
    line = Line(called("a", "b"), user("1"), called("a"), called("c"))
    index = line.index
    for first, names in ((0, {"a", "b", "c"}), (1, {"a", "c"}), (3, {"c"}), (4, set[str]())):
        assert {*index.tools_called(first)} == names
        for name in ("a", "b", "c", "never"):
            assert index.has_call(name, first) == (name in names)
    assert index.callers("a", 0) == [0, 2]
    assert index.callers("a", 1) == [2]
    assert index.callers("never", 0) == []
    index.cut(line.offsets[2])
    assert not index.has_call("c")
    assert index.callers("a", 0) == [0]


def test_a_result_failed_if_the_program_said_so_and_nothing_else() -> None:
    whole = f"{FAILED_START}no{SYSTEM_END}"
    line = Line(
        *(
            {"role": "tool", "content": text, "tool_call_id": "c"}
            for text in (whole, f"{FAILED_START}no", f"no{SYSTEM_END}", f"a {whole}")
        )
    )
    kinds = [MessageKind.FAILED, *[MessageKind.RESULT] * 3]
    assert [*line.index.kinds()] == kinds
    assert all(line.index.is_result(n) for n in range(4))


def test_a_list_of_messages_is_a_sequence_that_reads_what_is_asked_for() -> None:
    line = Line(*(user(str(n)) for n in range(12)))
    everything = [str(n) for n in range(12)]
    for messages, wanted in (
        (line.messages(), everything),
        (line.messages(3), everything[3:]),
        (line.messages(3, 9), everything[3:9]),
    ):
        assert [one.text for one in messages] == wanted
        for part in (slice(None), slice(2, 4), slice(4, 2), slice(-3, None), slice(1, 99)):
            assert [one.text for one in messages[part]] == wanted[part]
            assert len(messages[part]) == len(wanted[part])
        for part in (slice(1, None, 2), slice(None, None, -1)):
            assert [one.text for one in messages[part]] == wanted[part]
        for place in (0, 1, len(wanted) - 1, -1, -len(wanted)):
            assert messages[place].text == wanted[place]
        for place in (len(wanted), -len(wanted) - 1):
            with pytest.raises(IndexError):
                messages[place]
    line.reads.clear()
    messages = line.messages(3, 9)
    assert [messages[5].text, messages[5].text] == ["8", "8"]
    assert line.reads == [8]
    # A part without steps is not read before it is used.
    assert len(messages[1:]) == 5
    assert line.reads == [8]


def test_the_newest_messages_are_read_in_advance_up_to_a_size() -> None:
    line = Line(*(user(str(n)) for n in range(9)))
    length = line.index.place(0)[1]
    for room, read in ((3 * length, [6, 5, 4]), (3 * length - 1, [6, 5]), (999, [6, 5, 4, 3, 2])):
        line.reads.clear()
        messages = line.messages(2, 7)
        messages.preload(room)
        assert line.reads == read
        assert [one.text for one in messages] == ["2", "3", "4", "5", "6"]


def test_messages_that_replace_others_do_not_pile_up_for_one_long_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, kept = 6_000, 3_000
    monkeypatch.setattr(context_index, "CACHE_BYTES", kept * 80)
    cache, most = MessageCache(), 0

    def heard(phase: str, info: dict[str, int]) -> None:
        nonlocal most
        if phase == "start":
            most = max(most, len(gc.get_objects(generation=0)))

    was_enabled, thresholds = gc.isenabled(), gc.get_threshold()
    gc.collect()
    gc.set_threshold(2_000, 5, 1_000)
    gc.enable()
    gc.callbacks.append(heard)
    try:
        for place in range(count):
            message = parse_message(json.dumps(user(f"message {place}")).encode())
            message_tokens(message)
            cache.put(place, message, 80)
            del message
        gc.collect(0)
    finally:
        gc.callbacks.remove(heard)
        gc.set_threshold(*thresholds)
        if not was_enabled:
            gc.disable()
    assert 0 < most < 9 * 1_000


def test_a_checkpoint_is_found_by_its_number_and_an_unknown_one_is_named_with_those_there_are() -> (
    None
):
    for numbers, there in (
        ((), "no checkpoint"),
        ((0,), "only #0"),
        ((0, 1), "#0 to #1"),
        ((2, 3, 4), "#0 to #4"),
        # Two of one number, and a gap: a damaged file.
        ((0, 1, 1, 4, 2), "#0 to #4"),
    ):
        line = Line(*map(checkpoint, numbers), user("x"))
        index = line.index
        for number in numbers:
            found = index.checkpoint(number)
            assert (found.id, found.offset) == (number, line.offsets[numbers.index(number)])
        assert index.n_checkpoints == max(numbers, default=-1) + 1
        for absent in {-1, 5, 9}.difference(numbers):
            with pytest.raises(UnknownCheckpoint, match=f"#{absent}; this world line has {there}"):
                index.checkpoint(absent)
    # Without the part that is damaged the numbers are regular again.
    index.cut(line.offsets[2])
    assert index.n_checkpoints == 2
    assert index.checkpoint(1).offset == line.offsets[1]
