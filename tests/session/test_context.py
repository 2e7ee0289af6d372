"""The context: what is in its files after each thing that can be done with it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.effort import most_in_a_callback

from kimi_tui.llm.message import FunctionCall, Message, TextPart, ThinkPart, ToolCall, user_message
from kimi_tui.llm.tokens import message_tokens
from kimi_tui.session.context import Context, KnownTokens
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.schema import NewCheckpoint, SystemPrompt, TokenCount
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def texts(context: Context) -> list[str]:
    return [message.text for message in context.messages]


def assistant(text: str, *calls: str) -> Message:
    made = [ToolCall(id=name, function=FunctionCall(name=name, arguments="{}")) for name in calls]
    return Message(role="assistant", content=text, tool_calls=made or None)


async def turn(context: Context, words: str, answer: str, tokens: int) -> None:
    await context.checkpoint(True)
    await context.append([user_message(words)])
    await context.checkpoint(True)
    await context.append([TokenCount(tokens, estimated=False)])
    await context.append([assistant(answer)])
    await context.append([TokenCount(tokens + 10, estimated=False)])
    assert await context.sync()


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    session = SessionStore(tmp_path).create(Path("/work dir"))
    await session.open()
    yield session
    await session.aclose()


@pytest.fixture
def context(session: Session) -> Context:
    return session.context


async def reopened(session: Session) -> Session:
    await session.aclose()
    again = Session(session.dir, session.work_dir)
    await again.open()
    return again


async def test_the_file_holds_one_record_a_line_in_order(context: Context) -> None:
    await context.append([SystemPrompt("Be brief.")])
    await turn(context, "hello", "hi", 100)
    found = records(context.folder / "context.jsonl")
    assert [record["role"] for record in found] == [
        "_system_prompt",
        "_checkpoint",
        "user",
        "user",
        "_checkpoint",
        "user",
        "_usage",
        "assistant",
        "_usage",
    ]
    assert found[0]["content"] == "Be brief."
    assert [found[1]["id"], found[4]["id"]] == [0, 1]
    assert found[2]["content"] == "<system>CHECKPOINT 0</system>"
    assert found[6] == {"role": "_usage", "token_count": 100}
    assert found[1]["uid"] != found[4]["uid"]
    assert found[1]["at"].endswith("Z")


async def test_files_are_for_their_owner_only(context: Context) -> None:
    await turn(context, "a", "b", 1)
    await context.revert_to(0, reason="rewind")
    for path in context.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for folder in (context.folder, context.folder.parent, context.folder.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_everything_is_there_after_opening_again(session: Session) -> None:
    context = session.context
    await context.append([SystemPrompt("Be brief.")])
    message = Message(
        role="assistant",
        content=[ThinkPart(think="hm", field="reasoning"), TextPart(text="yes\u2028no")],
        tool_calls=[ToolCall(id="c", function=FunctionCall(name="Shell", arguments='{"a": 1}'))],
    )
    await turn(context, "one", "two", 500)
    await context.append([message, Message(role="tool", content="out", tool_call_id="c")])
    expected = list(context.messages)
    checkpoints, tokens = list(context.checkpoints), context.token_count
    again = (await reopened(session)).context
    assert list(again.messages) == expected
    assert expected[-2] == message
    assert again.system_prompt == "Be brief."
    assert list(again.checkpoints) == checkpoints
    assert again.token_count == tokens
    assert again.n_checkpoints == 2
    await again.aclose()


async def test_revert_cuts_before_the_checkpoint_and_keeps_the_old_file_whole(
    context: Context,
) -> None:
    for number in range(3):
        await turn(context, f"q{number}", f"a{number}", 100 * (number + 1))
    before = (context.folder / "context.jsonl").read_bytes()
    target = context.index.checkpoint(3)
    done = await context.revert_to(3, reason="rewind")
    assert (context.folder / "context_1.jsonl").read_bytes() == before
    assert (context.folder / "context.jsonl").read_bytes() == before[: target.offset]
    entry = done.entry
    assert (entry.checkpoint_id, entry.uid, entry.from_checkpoint) == (3, target.uid, 5)
    assert entry.n == 1
    # The answer of turn 2 and all of turn 3; markers do not count.
    assert entry.messages_dropped == 3
    assert done.messages_kept == 6
    assert entry.tokens_before == 310
    assert entry.tokens_after == context.token_count
    assert texts(context)[-1] == "q1"
    made = await context.checkpoint(False)
    assert made.id == 3
    assert made.uid != target.uid


async def test_tokens_after_a_revert_are_the_last_usage_kept_and_an_estimate(
    context: Context,
) -> None:
    await turn(context, "first", "answer", 1_000)
    await turn(context, "second", "answer", 5_000)
    await context.revert_to(3, reason="rewind")
    assert 1_010 < context.token_count < 1_050
    await context.revert_to(2, reason="rewind")
    assert context.token_count == 1_010


async def test_tokens_of_a_checkpoint_are_what_its_step_sent(context: Context) -> None:
    await turn(context, "first", "answer", 1_000)
    await turn(context, "second", "answer", 5_000)
    assert [point.tokens for point in context.checkpoints] == [None, 1_000, None, 5_000]
    await context.revert_to(2, reason="rewind")
    assert [point.tokens for point in context.checkpoints] == [None, 1_000]


async def test_a_dmail_is_one_step(context: Context) -> None:
    await turn(context, "read it", "reading", 1_000)
    await turn(context, "more", "much more", 9_000)
    dmail = Message(role="user", content="<system>the dmail</system>")
    done = await context.revert_to(
        1, reason="dmail", text="the dmail", then=[NewCheckpoint(marker=True), dmail]
    )
    assert [point.id for point in context.checkpoints] == [0, 1]
    assert texts(context) == [
        "<system>CHECKPOINT 0</system>",
        "read it",
        "<system>CHECKPOINT 1</system>",
        "<system>the dmail</system>",
    ]
    assert done.entry.text == "the dmail"
    assert done.entry.messages_dropped == 3
    assert (await context.checkpoint(False)).id == 2


async def test_a_compaction_is_one_step(context: Context) -> None:
    await context.append([SystemPrompt("Be brief.")])
    await turn(context, "one", "two", 1_000)
    old = list(context.checkpoints)
    done = await context.clear(
        reason="compaction",
        text="all of it",
        then=[
            NewCheckpoint(),
            user_message("summary"),
            NewCheckpoint(was=old[1].uid),
            user_message("kept"),
            TokenCount(40),
        ],
    )
    assert context.system_prompt == "Be brief."
    assert texts(context) == ["summary", "kept"]
    assert [point.id for point in context.checkpoints] == [0, 1]
    assert context.find_uid(old[1].uid) == context.checkpoints[1]
    assert context.token_count == 40
    assert (done.entry.tokens_before, done.entry.tokens_after) == (1_010, 40)
    assert done.entry.messages_dropped == 2


async def test_an_estimate_is_marked_in_the_file_and_told_from_the_servers_figure(
    session: Session,
) -> None:
    context = session.context
    await context.append([user_message("one"), TokenCount(7), TokenCount(8, estimated=False)])
    await context.append([TokenCount(9)])
    lines = (context.folder / "context.jsonl").read_bytes().splitlines()
    figures = [json.loads(line) for line in lines if b"token_count" in line]
    assert [one.get("estimated") for one in figures] == [True, None, True]
    for index in (context.index, (await reopened(session)).context.index):
        measured = index.first_usage()
        assert measured is not None
        assert measured[0] == 8
        assert index.is_estimated_before(context.size_bytes)
    await context.clear(reason="clear")
    await context.append([user_message("one"), TokenCount(7)])
    assert context.index.first_usage() is None


async def test_a_context_of_nothing_can_be_cleared(context: Context) -> None:
    done = await context.clear(reason="clear")
    assert (done.entry.op, done.entry.n, context.size_bytes) == ("clear", 1, 0)


async def test_what_was_estimated_of_a_line_that_was_cut_is_counted_anew(session: Session) -> None:
    context = session.context
    for words in ("one", "two"):
        await context.checkpoint(False)
        await context.append([user_message(words * 500)])
    assert context.token_count > 200
    await context.revert_to(1, reason="rewind")
    for words in ("a", "b", "c"):
        await context.append([user_message(words)])
    counted = context.token_count
    assert (await reopened(session)).context.token_count == counted


async def test_unknown_checkpoints_are_refused_and_nothing_changes(context: Context) -> None:
    with pytest.raises(UnknownCheckpoint, match="no checkpoint"):
        await context.revert_to(0, reason="rewind")
    await turn(context, "a", "b", 1)
    before = sorted(path.name for path in context.folder.iterdir())
    with pytest.raises(UnknownCheckpoint, match="#0 to #1"):
        await context.revert_to(2, reason="rewind")
    assert sorted(path.name for path in context.folder.iterdir()) == before


async def test_what_is_not_known_survives_byte_for_byte(session: Session) -> None:
    odd = (
        b'{"role": "user", "content": "hi", "mood": null, "n": 1e2}\n'
        b'{"role":"_later","x":[1, 2]}\n'
        b'{"role":"user","content":[{"type":"audio_url","audio_url":{"url":"u"}}]}\n'
        b'{"role": "_checkpoint", "id": 0}\n'
        b"broken {\n"
    )
    await session.aclose()
    session.dir.mkdir(parents=True, exist_ok=True)
    (session.dir / "context.jsonl").write_bytes(odd)
    again = Session(session.dir, session.work_dir)
    report = await again.open()
    assert [(line.line, line.byte) for line in report.skipped] == [(5, odd.index(b"broken"))]
    assert "line 5" in report.sentences()[0]
    await again.context.checkpoint(False)
    await again.context.revert_to(1, reason="rewind")
    assert (again.dir / "context.jsonl").read_bytes() == odd
    await again.aclose()


async def test_checkpoints_without_a_uid_are_named_by_the_bytes_through_their_line(
    session: Session,
) -> None:
    await session.aclose()
    session.dir.mkdir(parents=True, exist_ok=True)
    first = b'{"role": "user", "content": "hi"}\n{"role": "_checkpoint", "id": 0}\n'
    second = b'{"role": "_checkpoint", "id": 1}\n'
    (session.dir / "context.jsonl").write_bytes(first + second)
    again = Session(session.dir, session.work_dir)
    await again.open()
    assert [point.uid for point in again.context.checkpoints] == [
        hashlib.sha256(first).hexdigest(),
        hashlib.sha256(first + second).hexdigest(),
    ]
    await again.aclose()


async def test_a_torn_end_is_kept_aside_and_never_joined(session: Session) -> None:
    await turn(session.context, "a", "b", 1)
    await session.aclose()
    path = session.dir / "context.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"role":"user","content":"ha')
    again = Session(session.dir, session.work_dir)
    report = await again.open()
    assert report.torn_bytes == 28
    assert path.read_bytes() == whole
    assert (session.dir / "context.jsonl.torn").read_bytes() == b'{"role":"user","content":"ha\n'
    await again.context.append([user_message("next")])
    assert records(path)[-1] == {"role": "user", "content": "next"}
    await again.aclose()


async def test_empty_sessions_leave_nothing(tmp_path: Path) -> None:
    session = SessionStore(tmp_path).create(Path("/w"))
    await session.open()
    await session.context.append([SystemPrompt("Be brief.")])
    await session.aclose()
    assert not session.dir.exists()
    assert not list((tmp_path / "sessions").iterdir())


async def test_a_cancelled_operation_is_carried_through(context: Context) -> None:
    await turn(context, "a", "b", 1)
    await turn(context, "c", "d", 2)
    task = asyncio.create_task(context.revert_to(2, reason="rewind"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await context.append([user_message("after")])
    await context.sync()
    disk = [r["content"] for r in records(context.folder / "context.jsonl") if "content" in r]
    assert disk == texts(context)
    assert disk[-1] == "after"
    assert "c" not in disk


async def test_appends_while_syncing_and_reverting_keep_their_order(context: Context) -> None:
    await turn(context, "a", "b", 1)

    async def say(words: str) -> None:
        await context.append([user_message(words)])

    await asyncio.gather(
        context.sync(),
        say("1"),
        context.revert_to(1, reason="rewind"),
        say("2"),
        context.sync(),
        say("3"),
    )
    await context.sync()
    disk = [r["content"] for r in records(context.folder / "context.jsonl") if "content" in r]
    assert disk == texts(context)
    left = [r.get("content") for r in records(context.folder / "context_1.jsonl")]
    assert {"1", "2", "3"} <= {*disk, *left}


async def test_a_revert_lets_go_of_thousands_of_messages_beside_the_event_loop(
    tmp_path: Path,
) -> None:
    context = Context(tmp_path)
    await context.restore()
    await context.checkpoint(False)
    n_messages = 2_000
    await context.append([user_message(f"words {n}") for n in range(n_messages)])
    assert sum(map(message_tokens, context.messages)) > n_messages
    with most_in_a_callback() as most:
        await context.revert_to(0, reason="rewind", tokens=KnownTokens(1, 1))
    assert len(context.messages) == 0
    assert most.n_calls < n_messages
    await context.append([user_message("others")])
    assert texts(context) == ["others"]
    await context.aclose()


ODD_VALUES: dict[str, object] = {
    "a number": 1.5,
    "not a number": float("nan"),
    "endless": -math.inf,
    "of many digits": 10**5_000,
    "half a surrogate pair": "\ud800",
    "both halves": "\ud83d\ude00",
    "half a pair as a key": {"\udc00": 1},
    **{
        f"{depth} deep": json.loads('{"a":' * depth + "1" + "}" * depth)
        for depth in (100, 210, 300, 900)
    },
}


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
async def test_a_message_is_in_memory_what_its_line_says(context: Context, value: object) -> None:
    """Values for which JSON has no form are no exception: a request must be the one that a resumed session would send."""
    part = ThinkPart(think="x", field="reasoning_details", details=[{"value": value}])
    call = ToolCall(id="a", function=FunctionCall(name="f", arguments="{}"), extras={"v": value})
    bare = ToolCall(id="a", function=FunctionCall(name="f"))
    said = Message(
        role="user", content=[TextPart(text="one"), TextPart(text="note", attached="a file")]
    )
    await context.append([said, NewCheckpoint(marker=True)])
    await context.append([Message(role="assistant", content=[TextPart(text="alone")])])
    await context.append([Message(role="assistant", content=[part], tool_calls=[call])])
    await context.append([Message(role="assistant", tool_calls=[bare])])
    kept = list(context.messages)
    again = Context(context.folder)
    await again.restore()
    assert list(again.messages) == kept
    # NaN is not equal to itself.
    assert repr(list(again.messages)) == repr(kept)
    assert again.index == context.index
    await again.aclose()
