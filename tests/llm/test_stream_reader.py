from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any, cast

import pytest

from kimi_tui.llm.dialects import LearnedQuirks
from kimi_tui.llm.errors import (
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
    ResponseContext,
)
from kimi_tui.llm.provider import Finished, StreamItem, TextDelta, ThinkDelta, ToolCallDelta
from kimi_tui.llm.stream import AnswerReader, BatchedBytes
from kimi_tui.llm.transport import NetworkFailures
from kimi_tui.llm.waiting import AnswerWait, WaitLimits


class Arrived:
    """A response whose whole body is here already, so that reading it never suspends."""

    def __init__(
        self, body: bytes, kind: str = "text/event-stream", piece_bytes: int = 65_536
    ) -> None:
        self.headers = {"content-type": kind}
        self._body = body
        self._piece_bytes = piece_bytes

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), self._piece_bytes):
            yield self._body[start : start + self._piece_bytes]


def reader(response: Arrived) -> AnswerReader:
    return AnswerReader(
        cast("Any", response),
        ResponseContext("host", "m"),
        NetworkFailures("host", ()),
        LearnedQuirks(),
        estimated_tokens=10,
        most_tokens=1_000,
        window=1_000,
        window_is_known=True,
        wait=AnswerWait(WaitLimits("host", 30.0, 30.0, 30.0)),
    )


def body(n: int) -> bytes:
    chunk: dict[str, Any] = {"choices": [{"delta": {"content": "word "}, "finish_reason": None}]}
    end: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in [*[chunk] * n, end])


@pytest.mark.parametrize("piece_bytes", [65_536, 1 << 30], ids=["pieces", "at once"])
async def test_bytes_that_are_already_here_do_not_hold_the_loop(piece_bytes: int) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    words = [
        item.text
        async for item in reader(Arrived(body(20_000), piece_bytes=piece_bytes)).items()
        if isinstance(item, TextDelta)
    ]
    counting.cancel()
    assert "".join(words) == "word " * 20_000
    # A run of text for what came together, and no item for each token.
    assert len(words) < 2_000
    assert turns > 5  # some 60 ms of work, a turn at least every 3


async def test_what_comes_together_is_joined_up_to_where_it_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No turn of the loop comes between, however long others keep the processor.
    monkeypatch.setattr("kimi_tui.llm.stream._LOOP_SHARE_S", 1_000.0)
    deltas: list[dict[str, Any]] = [
        *({"reasoning_content": word} for word in ("so", " it", " is")),
        *({"role": "assistant", "content": word} for word in ("One", " two")),
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "Run", "arguments": '{"'}}]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in ('a"', ":")),
        {"content": "three", "reasoning": "hm"},
    ]
    events = [json.dumps({"choices": [{"delta": one}]}) for one in deltas]
    events.append(json.dumps({"error": {"message": "No credit left", "code": 402}}))
    items: list[StreamItem] = []
    body = "".join(f"data: {one}\n\n" for one in events).encode()

    async def read() -> None:
        async for item in reader(Arrived(body)).items():
            items.append(item)

    with pytest.raises(APIStatusError):
        await read()
    assert items == [
        ThinkDelta("so it is"),
        TextDelta("One two"),
        ToolCallDelta(0, "c", "Run", '{"'),
        ToolCallDelta(0, arguments='a":'),
        ThinkDelta("hm", "reasoning"),
        TextDelta("three"),
    ]


async def test_a_stream_under_a_wrong_name_is_read_all_the_same() -> None:
    for kind in ("application/json", "text/plain", ""):
        items = [item async for item in reader(Arrived(body(3), kind)).items()]
        assert items[-1] == Finished("stop")
        assert "".join(item.text for item in items if isinstance(item, TextDelta)) == "word " * 3
    for start in (b": a comment\n\n", b"\n:\n\n", b"event: message\n", b"retry: 3\n\n", b"id: 1\n"):
        response = Arrived(start + body(3), "application/json")
        items = [item async for item in reader(response).items()]
        assert items[-1] == Finished("stop")


async def test_an_empty_answer_under_a_wrong_name_is_no_wrong_content() -> None:
    for said, kind, error in (
        (b"data: [DONE]\n\n", "text/plain", APIEmptyResponseError),
        (b" \n\n", "text/plain", APIStreamError),
        (b"", "text/html", APIStreamError),
        (b"<html>Sign in</html>", "text/html", APIStatusError),
        (b"hello", "text/event-stream", APIStreamError),
    ):
        with pytest.raises(error) as raised:
            _ = [item async for item in reader(Arrived(said, kind)).items()]
        assert type(raised.value) is error, said


async def test_tokens_that_trickle_in_are_read_a_few_at_a_time() -> None:
    read_at: list[float] = []

    async def source(size: int, suspends: bool) -> AsyncIterator[bytes]:
        for n in range(8):
            # A read of the connection waits in the same way; data that came with earlier data is returned without waiting.
            await asyncio.sleep(0) if suspends else None
            read_at.append(asyncio.get_running_loop().time())
            yield bytes([n]) * size

    for suspends in (True, False):
        read_at.clear()
        arrivals = BatchedBytes(source(100, suspends))
        came = [piece async for piece in taken(arrivals)]
        assert b"".join(came) == b"".join(bytes([n]) * 100 for n in range(8))
        pauses = [after - before for before, after in pairwise(read_at)]
        # Data that has arrived already does not wait, however small its pieces are.
        assert sum(pause > 0.015 for pause in pauses) >= 3 if suspends else len(came) == 1
        await arrivals.aclose()


async def taken(arrivals: BatchedBytes) -> AsyncIterator[bytes]:
    while (data := await arrivals.take()) is not None:
        yield data


class Lingering(Arrived):
    """A response of which everything is here, and that does not end."""

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        async for piece in super().aiter_bytes():
            yield piece
        await asyncio.Event().wait()


@pytest.mark.parametrize("is_done", [False, True])
async def test_the_figures_after_an_answer_and_its_end_are_waited_for_with_a_limit_each(
    is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"_AFTER_DONE_S": 0.01 if is_done else 600.0}
    limits["_AFTER_FINISH_S"] = 600.0 if is_done else 0.01
    for name, seconds in limits.items():
        monkeypatch.setattr(f"kimi_tui.llm.stream.{name}", seconds)
    response = Lingering(body(1) + b"data: [DONE]\n\n" * is_done)
    async with asyncio.timeout(20):
        items = [item async for item in reader(response).items()]
    assert items == [TextDelta("word "), Finished("stop")]
