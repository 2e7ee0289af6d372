"""Reading one response to its end: bytes to events to items, without ever holding up the loop.

What a server leaves unsaid is found here too: a stream without an end, an overflow without a word, a prompt cut short.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kimi_tui.llm import failures, loose
from kimi_tui.llm.decoding import ChunkDecoder
from kimi_tui.llm.errors import APIEmptyResponseError, APIStreamError
from kimi_tui.llm.failures import Answered
from kimi_tui.llm.lessons import Lessons
from kimi_tui.llm.network_failures import NetworkFailures
from kimi_tui.llm.provider import StreamItem, Usage
from kimi_tui.llm.sse import EventTooLarge, SSEDecoder

if TYPE_CHECKING:
    import httpx2

_LOOP_SHARE_S = 0.003
_AFTER_FINISH_S = 5.0
_AFTER_DONE_S = 0.25
_MAX_WHOLE_BYTES = 64 * 1024 * 1024
_WORTH_COMPARING = 5_000
"""Tokens: no window is so small that less than this is cut; what differs there is the way of counting."""


class AnswerReader:
    """Reads one response.

    Args:
        response: with status 200, its body not read yet.
        answered: the same for error texts.
        network: words what the network does.
        lessons: of this server and model; one is learned here.
        estimated_tokens: of the request.
        window: of the model.
        window_is_known: the server or the config told it.
    """

    def __init__(
        self,
        response: httpx2.Response,
        answered: Answered,
        network: NetworkFailures,
        lessons: Lessons,
        *,
        estimated_tokens: int,
        window: int,
        window_is_known: bool,
    ) -> None:
        self._response = response
        self._answered = answered
        self._network = network
        self._lessons = lessons
        self._estimated_tokens = estimated_tokens
        self._window = window
        self._window_is_known = window_is_known
        self._decoder = ChunkDecoder(answered)

    async def items(self) -> AsyncIterator[StreamItem]:
        """Everything that was said, then usage and the end.

        Raises:
            LLMError: the answer is none, or broke.
        """
        import httpx2

        kind = self._response.headers.get("content-type", "").split(";")[0].strip().lower()
        try:
            whole = kind == "application/json"
            async for item in self._whole() if whole else self._stream(kind):
                yield item
        except httpx2.TimeoutException as error:
            if not self._decoder.finished:
                raise self._network.timeout(error) from error
        except httpx2.HTTPError as error:
            if not self._decoder.finished:
                raise APIStreamError("The connection broke in the middle of the answer.") from error
        except EventTooLarge as error:
            raise APIStreamError("The server sent an event that is too large.") from error
        for item in self._end():
            yield self._marked(item)

    async def _stream(self, kind: str) -> AsyncIterator[StreamItem]:
        decoder = self._decoder
        events = SSEDecoder()
        pieces = self._response.aiter_bytes()
        first = b""
        began = time.perf_counter()
        while (chunk := await self._next(pieces)) is not None:
            if not decoder.chunks and len(first) < 2_000:
                first += chunk[:2_000]
            for event in events.feed(chunk):
                for item in decoder.decode(event):
                    yield item
                # Bytes that are already here never suspend us: let the screen have its turn by the clock.
                if time.perf_counter() - began > _LOOP_SHARE_S:
                    await asyncio.sleep(0)
                    began = time.perf_counter()
        if not decoder.chunks and not decoder.done and "event-stream" not in kind and first.strip():
            raise failures.of_wrong_content(kind, first, self._answered)
        for event in events.finish() if not decoder.finished else ():
            try:
                items = decoder.decode(event)
            except APIStreamError:
                items = []  # half an event: the end will be found missing
            for item in items:
                yield item

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """The next bytes, or None at the end.

        Once the answer is whole only figures and the end of the stream are waited for, and not for long; they are read
        so that the connection can be used again.
        """
        patience_s: float | None = None
        if self._decoder.done:
            patience_s = _AFTER_DONE_S
        elif self._decoder.finished:
            patience_s = _AFTER_FINISH_S
        try:
            async with asyncio.timeout(patience_s):
                return await anext(pieces, None)
        except TimeoutError:
            return None

    async def _whole(self) -> AsyncIterator[StreamItem]:
        """A server that does not stream, or an error that came with status 200."""
        pieces: list[bytes] = []
        size = 0
        async for chunk in self._response.aiter_bytes():
            pieces.append(chunk)
            size += len(chunk)
            if size > _MAX_WHOLE_BYTES:
                raise EventTooLarge
        raw = b"".join(pieces)
        if raw.lstrip().startswith(b"data:"):
            # A stream under a wrong name; it has already come whole.
            for event in [*(events := SSEDecoder()).feed(raw), *events.finish()]:
                for item in self._decoder.decode(event):
                    yield item
            return
        try:
            parsed = await asyncio.to_thread(loose.parse, raw)
        except ValueError:
            raise APIStreamError("The server's answer is not JSON.") from None
        if "choices" not in loose.mapping(parsed):
            raise failures.of_stream_event(parsed, self._answered)
        for item in self._decoder.whole(parsed):
            yield item

    def _end(self) -> list[StreamItem]:
        decoder = self._decoder
        if not decoder.said_anything:
            if decoder.reason in {None, "length"}:
                self._check_silent_overflow()
            if decoder.done and not decoder.finished:
                raise APIEmptyResponseError("The model answered with nothing.")
        if decoder.done and not decoder.finished and self._lessons.ends_without_reason:
            return decoder.finish_leniently()
        try:
            return decoder.finish()
        except APIStreamError:
            # A server that ends twice in order but without a reason will never give one.
            if decoder.done:
                self._lessons.ends_without_reason = True
            raise

    def _check_silent_overflow(self) -> None:
        """Nothing was said, and the request filled the window: some servers report an overflow so."""
        if self._estimated_tokens >= 0.8 * self._window:
            raise failures.overflow(
                f"{self._answered.host} said nothing; the request of about {self._estimated_tokens} "
                "tokens seems longer than the model's window.",
                self._answered,
            )

    def _marked(self, item: StreamItem) -> StreamItem:
        """Usage that shows that the server cut the prompt without a word is marked so."""
        if not isinstance(item, Usage) or not item.input:
            return item
        sent = self._estimated_tokens
        far_less = sent > _WORTH_COMPARING and item.input <= sent // 2
        full = self._window_is_known and item.input >= self._window
        return replace(item, prompt_cut=True) if far_less or full else item
