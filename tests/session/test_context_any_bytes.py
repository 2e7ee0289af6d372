"""Any bytes in a session's files: it opens, says what it skipped, deletes nothing and goes on without joining lines."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.quick_disk import memory_folder

from kimi_tui.llm.message import Message, user_message
from kimi_tui.session.jsonl import encode
from kimi_tui.session.rotation import stored_world_lines, world_line_path
from kimi_tui.session.schema import is_message, message_of
from kimi_tui.session.session import Session

scalars = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "function", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
roles = st.sampled_from(
    [
        "user",
        "assistant",
        "tool",
        "system",
        "_checkpoint",
        "_usage",
        "_system_prompt",
        "_later",
        "x",
    ]
)
keys = ["content", "id", "uid", "at", "token_count", "tool_calls", "tool_call_id", "name", "by"]
odd_records = st.fixed_dictionaries(
    {"role": roles | values},
    optional=dict.fromkeys([*keys, "interrupted", "was"], values),
)
parts = st.lists(
    st.sampled_from(
        [
            {"type": "text", "text": "a"},
            {"type": "think", "think": "b", "encrypted": None},
            {"type": "text"},
            {"type": "audio_url", "audio_url": {"url": "u"}},
            "loose",
            {"no": "type"},
        ]
    ),
    max_size=3,
)
good_records = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, st.text(max_size=9)),
    st.builds(lambda some: {"role": "assistant", "content": some}, parts),
    st.builds(lambda number: {"role": "_checkpoint", "id": number}, st.integers(0, 4)),
    st.builds(lambda number: {"role": "_usage", "token_count": number}, st.integers(0, 99)),
)
pieces = st.one_of(
    good_records.map(encode),
    odd_records.map(encode),
    st.binary(max_size=20),
    st.sampled_from([b"\n", b"\0\0\0", b"\xff\n", b"{}\n", b"[]\n", b"null\n", b" \n", b"\r\n"]),
    st.integers(1, 30).map(lambda n: encode({"role": "user", "content": "cut off"})[:n]),
)


@given(st.lists(pieces, max_size=8), st.integers(0, 5), st.booleans())
@example([b'{"role":"user","content":"a"}\n' * 3 + b"\0" * 50], 0, False)
@example([encode({"role": "_checkpoint", "id": 10**30})], 0, False)
@example([b'{"role":{"a":1}}\n', b'{"role":["user"]}\n'], 0, True)
def test_any_file_opens_and_goes_on(some: list[bytes], target: int, journal: bool) -> None:
    data = b"".join(some)
    with tempfile.TemporaryDirectory(dir=memory_folder()) as place:
        folder = Path(place) / "session"
        folder.mkdir()
        (folder / "context.jsonl").write_bytes(data)
        if journal:
            (folder / "worldlines.jsonl").write_bytes(data)
            (folder / "state.json").write_bytes(data)
            (folder / "marks.json").write_bytes(data)
            (folder / "context_3.jsonl").write_bytes(data)
            (folder / "wire.jsonl").write_bytes(data)
        asyncio.run(_open_and_go_on(folder, data, target))


async def _open_and_go_on(folder: Path, data: bytes, target: int) -> None:
    session = Session(folder, Path("/w"))
    report = await session.open()
    context = session.context
    whole, _, torn = data.rpartition(b"\n")
    whole = data[: len(data) - len(torn)]
    assert (folder / "context.jsonl").read_bytes() == whole
    if torn:
        assert (folder / "context.jsonl.torn").read_bytes() == torn + b"\n"
        assert report.torn_bytes == len(torn)
    seen = list(context.messages)
    assert all(isinstance(message, Message) for message in seen)
    assert len(seen) == context.index.n_messages
    assert context.token_count >= 0
    session.world_lines.list(context.world_line)
    list(session.record.read())
    assert isinstance(session.title, str)
    made = await context.checkpoint(True)
    assert made.id == context.n_checkpoints - 1
    assert made.id > max((point.id for point in context.checkpoints[:-1]), default=-1)
    await context.append([user_message("goes on")])
    written = (folder / "context.jsonl").read_bytes()
    assert written.startswith(whole)
    added = [json.loads(line) for line in written[len(whole) :].split(b"\n") if line]
    assert [record["role"] for record in added] == ["_checkpoint", "user", "user"]
    point = next((point for point in context.checkpoints if point.id == target), None)
    if point is not None:
        await context.revert_to(target, reason="rewind")
        assert context.size_bytes == point.offset
        assert (folder / "context.jsonl").read_bytes() == written[: point.offset]
        stored = [world_line_path(folder, n).read_bytes() for n in stored_world_lines(folder)]
        assert written in stored
    await session.aclose()
    again = Session(folder, Path("/w"))
    await again.open()
    assert list(again.context.messages) == list(context.messages)
    assert again.context.n_checkpoints == context.n_checkpoints
    await again.aclose()


@given(odd_records | good_records)
def test_what_the_index_takes_for_a_message_is_one(record: dict[str, object]) -> None:
    if record.get("role") in ("user", "assistant", "tool", "system"):
        assert is_message(record) == (message_of(record) is not None)


def test_the_usual_records_are_known_without_making_messages_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call: dict[str, Any] = {
        "type": "function",
        "id": "1",
        "function": {"name": "Shell", "arguments": "{}"},
    }
    part = {"type": "text", "text": "done"}
    usual: list[dict[str, Any]] = [
        {"role": "assistant", "content": "I look.", "tool_calls": [call, call]},
        {"role": "tool", "content": [part, part], "tool_call_id": "1", "saw": {"a": "b"}},
        {"role": "user", "content": [part], "by": "person"},
    ]
    made = list[object]()
    with monkeypatch.context() as watched:
        watched.setattr(Message, "of", made.append)
        assert all(map(is_message, usual))
    assert not made
    assert None not in map(message_of, usual)
    odd: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [{**call, "id": 1}]},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "function": {"name": 5}}]},
        {"role": "assistant", "content": 7, "tool_calls": [call]},
        {"role": "assistant", "content": 7, "tool_calls": {"0": call}},
        {"role": "tool", "content": [{**part, "text": 5}], "tool_call_id": 3},
    ]
    for record in odd:
        assert is_message(record) == (message_of(record) is not None)


def test_bad_parts_and_calls_are_left_out_and_the_rest_is_kept() -> None:
    message = message_of(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "text"}, 5],
            "tool_calls": [{"id": "x", "function": {"name": "f"}}, {"id": 7}],
            "tool_call_id": 9,
        }
    )
    assert message is not None
    assert message.text == "a"
    assert [call.id for call in message.tool_calls or ()] == ["x"]
    for record, text in (
        ({"role": "user", "content": "a", "tool_calls": 5}, "a"),
        ({"role": "user", "content": [5], "name": 7}, ""),
        (
            {
                "role": "assistant",
                "content": 5,
                "tool_calls": [{"id": "x", "function": {"name": "f"}}],
            },
            "",
        ),
    ):
        message = message_of(record)
        assert message is not None
        assert message.text == text
    for nothing in ({"role": "user", "content": 5}, {"role": "user", "tool_calls": [5]}):
        assert message_of(nothing) is None


def test_a_message_with_half_a_surrogate_pair_is_kept_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        session = Session(tmp_path / "s", Path("/w"))
        await session.open()
        await session.context.append([user_message("a\ud800b")])
        await session.aclose()
        again = Session(tmp_path / "s", Path("/w"))
        assert (await again.open()).n_skipped == 0
        assert again.context.messages[0].text == "a\ud800b"
        await again.aclose()

    asyncio.run(run())
