"""Reads the streamed answer of a server: from bytes to server-sent events to `StreamItem`s, without blocking the event loop.

In layers, bottom up: `SSEDecoder` (bytes split anywhere to server-sent events), `ThinkTags` (`<think>...</think>` split off
the start of a text), `ChunkDecoder` (events of every shape that compatible servers are known to send to `StreamItem`s; those
of tool calls are put together in `tool_call_pieces`), and `AnswerReader`, which reads one response. `errors` makes our own
errors of those in a stream. Faults that a server does not report are detected here too: a stream without an end, an overflow
without an error, a prompt that was cut.

This decoder takes a tenth of the time of the `openai` library's typed stream and sees what that one hides: events and fields
named `error`, events without data, a stream that stops in the middle of a line.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kimi_tui import lenient_json
from kimi_tui.llm import errors
from kimi_tui.llm.dialects import LearnedQuirks
from kimi_tui.llm.errors import APIEmptyResponseError, APIStreamError, LLMError, ResponseContext
from kimi_tui.llm.provider import (
    Finished,
    FinishReason,
    Overdue,
    PromptRead,
    StreamItem,
    TextDelta,
    TextWasThought,
    ThinkDelta,
    ToolCallDelta,
    Usage,
)
from kimi_tui.llm.tool_call_pieces import ToolCallMerger
from kimi_tui.llm.waiting import AnswerWait, WaitedTooLong

if TYPE_CHECKING:
    import httpx2

    from kimi_tui.llm.transport import NetworkFailures

MAX_EVENT_BYTES = 64 * 1024 * 1024
_DATA = b"data: "


class EventTooLarge(ValueError):
    """One event is larger than `MAX_EVENT_BYTES`."""


class SSEvent(NamedTuple):
    """One event; `name` is empty for an ordinary one. `data` lines are joined by newlines."""

    name: str
    data: bytes


class SSEDecoder:
    """Decodes server-sent events from the bytes of a stream, which may be split anywhere."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._started = False

    def feed(
        self, chunk: bytes, alike: Callable[[bytes], tuple[str, int]] = lambda _: ("", 0)
    ) -> list[SSEvent | str]:
        """Return the events that are complete after this chunk.

        Args:
            chunk: the next bytes.
            alike: a function that gets bytes beginning with an event; it returns the text of as many leading events as
                contain only text, and their size in bytes. The text then replaces these events.

        Raises:
            EventTooLarge: an event is larger than `MAX_EVENT_BYTES`.
        """
        self._pending_bytes += len(chunk)
        if self._pending_bytes > MAX_EVENT_BYTES:
            raise EventTooLarge
        self._pieces.append(chunk)
        # A line may come in thousands of pieces, so they are joined only once its end has come.
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        text = b"".join(self._pieces)
        self._pieces.clear()
        if not self._started:
            self._started = True
            text = text.removeprefix(b"\xef\xbb\xbf")
        events: list[SSEvent | str] = []
        if b"\r" not in text and not self._data and not self._name:
            said, size = alike(text)
            if said:
                events.append(said)
            # Nearly all events are one line of data and a blank line.
            *plain, text = text[size:].split(b"\n\n")
            for part in plain:
                if part.startswith(_DATA) and b"\n" not in part:
                    events.append(SSEvent("", part[len(_DATA) :]))
                    continue
                events += filter(None, map(self._line, (*part.split(b"\n"), b"")))
        lines = text.splitlines(keepends=True)
        last = lines[-1] if lines else b""
        # A carriage return at the very end may be half of a line end.
        if last and not last.endswith(b"\n"):
            self._pieces.append(lines.pop())
        for line in lines:
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                events.append(event)
        self._pending_bytes = sum(map(len, self._pieces)) + self._data_bytes
        return events

    def finish(self) -> list[SSEvent]:
        """Return the events left at the end of the stream, as if the last blank line had come."""
        rest = b"".join(self._pieces).rstrip(b"\r\n")
        self._pieces.clear()
        found = [self._line(rest) if rest else None, self._line(b"")]
        return [event for event in found if event is not None]

    def _line(self, line: bytes) -> SSEvent | None:
        if not line:
            if not self._data:
                self._name = ""
                return None
            event = SSEvent(self._name, b"\n".join(self._data))
            self._name = ""
            self._data = []
            self._data_bytes = 0
            return event
        if line.startswith(b"data:"):
            self._take(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"error:"):
            # Older llama.cpp writes errors in a field `error` instead of `data`.
            self._name = "error"
            self._take(line[6:].strip())
        return None

    def _take(self, data: bytes) -> None:
        self._data.append(data)
        self._data_bytes += len(data) + 1  # an empty line takes memory too


_OPEN = "<think>"
_CLOSE = "</think>"
_TAGS = (_OPEN, _CLOSE)
_TAG = re.compile("</?think>")
_FENCE = "```"
_QUOTES = frozenset("`'\"")
_MOST_BLANKS = 256


class ThinkTags:
    """Separates reasoning in `<think>` tags from the streamed text.

    An opening tag counts only at the very start. A closing tag without an opening one counts at its first place, unless it is
    quoted, in a code block, or after an opening tag that the text mentions: chat templates that write the opening tag into
    the prompt leave it out of the answer.
    """

    def __init__(self) -> None:
        self.state: Literal["start", "thinking", "after", "open", "text"] = "start"
        """`open` is text in which a closing tag may still come; in `text` no tag is searched for any more."""
        self._held = ""
        self._before = ""
        self._in_code = False

    def takes(self, words: str) -> bool:
        """Return whether a text contains no tag and no beginning of one. Such a text need not be fed."""
        if self.state == "text":
            return True
        if self.state != "open" or self._held or "think>" in words or _half_tag(words):
            return False
        self._pass(words)
        return True

    def _pass(self, words: str) -> None:
        self._before = words or self._before
        if _FENCE in words:
            self._in_code ^= bool(words.count(_FENCE) % 2)

    def feed(self, content: str) -> list[StreamItem]:
        """Return the pieces of text and reasoning whose kind is certain now."""
        if self.state == "text":
            return [TextDelta(content)] if content else []
        self._held += content
        pieces: list[StreamItem] = []
        if self.state == "start":
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self.state = "thinking"
                self._held = begun[len(_OPEN) :].removeprefix("\n")
            elif begun.startswith(_CLOSE):
                self.state = "after"
                self._held = begun[len(_CLOSE) :]
            elif any(tag.startswith(begun) for tag in _TAGS) and len(self._held) <= _MOST_BLANKS:
                return []
            else:
                self.state = "open"
        if self.state == "thinking":
            thought, closed, rest = self._held.partition(_CLOSE)
            if not closed:
                kept = _half_tag(self._held)
                thought, rest = (
                    self._held[: len(self._held) - kept],
                    self._held[-kept:] * (kept > 0),
                )
            if thought:
                pieces.append(ThinkDelta(thought, "think_tag"))
            self._held = rest
            if closed:
                self.state = "after"
        if self.state == "open":
            pieces += self._open()
        if self.state == "after":
            self._held = self._held.lstrip()
            self.state = "text" if self._held else "after"
        if self.state == "text" and self._held:
            pieces.append(TextDelta(self._held))
            self._held = ""
        return pieces

    def _open(self) -> list[StreamItem]:
        """Return the held text, up to a possible tag; a whole tag changes the state."""
        tag = _TAG.search(self._held)
        if tag is None:
            kept = _half_tag(self._held)
            words, self._held = (
                self._held[: len(self._held) - kept],
                self._held[-kept:] * (kept > 0),
            )
            self._pass(words)
            return [TextDelta(words)] if words else []
        before, behind = self._held[: tag.start()], self._held[tag.end() :]
        self._pass(before)
        is_quoted = not _QUOTES.isdisjoint((self._before[-1:], behind[:1]))
        if tag[0] == _OPEN or is_quoted or self._in_code:
            self.state = "text"
            return []
        self.state, self._held = "after", behind
        return [*([TextDelta(before)] if before else []), TextWasThought()]

    def finish(self) -> list[StreamItem]:
        """Return the text that was held back, at the end of the stream or before a tool call; no tag is searched for afterwards."""
        held, self._held = self._held, ""
        if self.state == "open":
            self.state = "text"
        if not held or self.state == "after":
            return []
        return [ThinkDelta(held, "think_tag") if self.state == "thinking" else TextDelta(held)]


def _half_tag(held: str) -> int:
    """Return the number of characters at the end of `held` that may be the beginning of a tag."""
    place = held.rfind("<", -len(_CLOSE) + 1)
    begun = held[place:] if place >= 0 else ""
    return len(begun) if begun and any(tag.startswith(begun) for tag in _TAGS) else 0


_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "end": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "safety": "content_filter",
}
_BROKEN = {"error", "network_error", "insufficient_system_resource", "abort", "aborted"}
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_REASONING = frozenset({*_REASONING_FIELDS, "reasoning_details"})
_IN_TEXT = ("open", "text")
_WORDS_ONLY = frozenset({"role", "content"})
_MORE = ("index", "finish_reason", "usage")
_BESIDE = ("usage", "x_groq", "error")
_CONTENT = re.compile(rb'"content"[ \t]*:[ \t]*"')
_NO_FRAME = (b"\r", b"\r")
"""A frame that matches no data, as a carriage return ends a line of an event."""
_FRAME_TRIES = 4
"""The number of chunks in a row whose frame may differ before frames are given up: they save nothing if every frame differs."""


class ChunkDecoder:
    """Decodes one stream. `context` describes the response for error texts."""

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self._tags = ThinkTags()
        self._text_halves, self._thought_halves = lenient_json.Halves(), lenient_json.Halves()
        self._tools = ToolCallMerger()
        self._usage: Usage | None = None
        self._thought = self._called = self._has_first = False
        self._empty_field = ""
        self._frame = _NO_FRAME
        self._tries = _FRAME_TRIES
        self.reason: FinishReason | None = None
        """The finish reason; None until the stream has one."""
        self.done = False
        """Whether `[DONE]` has come."""
        self.chunks = 0
        """The number of chunks with choices."""
        self.said_anything = False
        """Whether text or a tool call has come."""

    def decode(self, event: SSEvent | str) -> list[StreamItem]:
        """Return the items in this event, or of this text; raises as `read` does."""
        found = event if isinstance(event, str) else self.read(event)
        return [TextDelta(found)] if isinstance(found, str) else found

    def alike(self, text: bytes) -> tuple[str, int]:
        """Return the joined text of the leading events that differ from the last event in their text alone.

        Most events of most servers do, so all events of one arrival are parsed in one go.

        Returns:
            the text, and the size of the events in bytes; ("", 0) if they differ in anything else, or have to be read one by one.
        """
        before, behind = self._frame
        begin, end = _DATA + before, behind + b"\n\n"
        if not text.startswith(begin):
            return "", 0
        parts = text[len(begin) :].split(end + begin)
        last, is_whole, rest = parts.pop().partition(end)
        size = len(text) - (len(rest) if is_whole else len(begin) + len(last))
        if is_whole:
            parts.append(last)
        joined = b'["' + b'","'.join(parts) + b'"]'
        # A text that ends with a backslash would escape the separator after it.
        if b'\\","' in joined or joined.endswith(b'\\"]'):
            return "", 0
        try:
            texts = lenient_json.parse(joined)
        except ValueError:
            return "", 0
        if len(texts) != len(parts):
            return "", 0
        # Halves of a surrogate pair are joined when events are read one by one.
        if lenient_json.can_have_halves(joined) or not self._tags.takes(words := "".join(texts)):
            return "", 0
        self._tries = _FRAME_TRIES
        return words, size

    def read(self, event: SSEvent) -> list[StreamItem] | str:
        """Return the items in this event, or only its text if it has nothing else, as nearly every event.

        Raises:
            APIStreamError: the event is not JSON.
            APIStatusError: the event is an error.
        """
        data = event.data.strip()
        if not data:
            return []
        if data.startswith(b"[DONE]"):
            self.done = True
            return []
        try:
            values = [lenient_json.parse(data)]
        except ValueError:
            values = self._several(event, data)
        if not event.name and self._tags.state in _IN_TEXT and (words := _only_words(values[0])):
            self.chunks += 1
            if self._tries and not (
                data.startswith(self._frame[0]) and data.endswith(self._frame[1])
            ):
                self._tries -= 1
                self._frame = _frame_of(data, words)
            words = self._text_halves.feed(words)
            if self._tags.takes(words):
                self.said_anything = True
                return words
            return self._noted(self._tags.feed(words))
        items: list[StreamItem] = []
        for value in values:
            if event.name == "error" or _is_error(value):
                raise errors.error_of_stream_event(value, self._context)
            items += self._chunk(lenient_json.mapping(value))
        return items

    def _several(self, event: SSEvent, data: bytes) -> list[Any]:
        """Return the values of events without the blank line between them, or of an error in plain text."""
        if event.name == "error":
            return [data.decode("utf-8", "replace")]
        lines = [line for line in data.split(b"\n") if line.strip()]
        if len(lines) > 1:
            try:
                self.done = self.done or any(line.startswith(b"[DONE]") for line in lines)
                return [
                    lenient_json.parse(line) for line in lines if not line.startswith(b"[DONE]")
                ]
            except ValueError:
                pass
        raise APIStreamError("The server sent a part of its answer that is not JSON.")

    def whole(self, body: Any) -> list[StreamItem]:
        """Return the items of an answer that came in one piece although a stream was requested."""
        return self._chunk(lenient_json.mapping(body))

    def _chunk(self, chunk: dict[str, Any]) -> list[StreamItem]:
        # Most chunks hold one word and nothing else, so each missing field costs as little as possible.
        if chunk.get("usage"):
            self._take_usage(chunk["usage"])
        if chunk.get("x_groq"):
            self._take_usage(lenient_json.mapping(chunk["x_groq"]).get("usage"))
        progress = _progress_of(chunk["prompt_progress"]) if chunk.get("prompt_progress") else []
        choice, index = _first_choice(chunk)
        if not choice or (index and self._has_first):
            return progress
        self._has_first = self._has_first or not index
        self.chunks += 1
        if choice.get("usage"):
            self._take_usage(choice["usage"])
        delta = lenient_json.mapping(choice.get("delta")) or lenient_json.mapping(
            choice.get("message")
        )
        items: list[StreamItem] = progress
        if not _REASONING.isdisjoint(delta):
            items += self._reasoning(delta)
        items += self._content(delta.get("content"))
        if refusal := self._text_halves.feed(lenient_json.text(delta.get("refusal"))):
            items.append(TextDelta(refusal))
        entries = lenient_json.listing(delta.get("tool_calls"))
        if legacy := lenient_json.mapping(delta.get("function_call")):
            entries = [*entries, {"index": 0, "function": legacy}]
        if entries:
            self._called = True
            items += self._tags.finish()
        for entry in entries:
            items += self._tools.feed(entry)
        self._take_reason(choice.get("finish_reason"))
        return self._noted(items)

    def _noted(self, items: list[StreamItem]) -> list[StreamItem]:
        for item in items:
            if isinstance(item, ThinkDelta):
                self._thought = True
            elif isinstance(item, TextWasThought):
                self._thought, self.said_anything = True, False
            elif not isinstance(item, PromptRead):
                self.said_anything = True
        return items

    def finish(self) -> list[StreamItem]:
        """Return the items that remain when the stream has ended: held text, usage, and the end itself.

        Raises:
            APIStreamError: the stream was cut off before its end.
        """
        items = [*self._rest_of_text(), *self._tools.finish()]
        reason = self.reason
        # If the reason is `stop` or missing although complete calls came, the calls count.
        calls_win = reason == "stop" or (
            reason is None and self.done and self._tools.all_complete()
        )
        if self._called and calls_win:
            reason = "tool_calls"
        if reason is None:
            raise APIStreamError("The answer ended before it was complete.")
        if self._empty_field and not (
            self._thought or any(isinstance(i, ThinkDelta) for i in items)
        ):
            # Empty reasoning is kept too: some models require the field back even then.
            items.append(ThinkDelta("", self._empty_field))
        if self._usage is not None:
            items.append(self._usage)
        items.append(Finished(reason))
        return items

    def _rest_of_text(self) -> list[StreamItem]:
        """Return the text and the reasoning that were held back."""
        items: list[StreamItem] = []
        if half := self._thought_halves.finish():
            items.append(ThinkDelta(half))
        if half := self._text_halves.finish():
            items += self._tags.feed(half)
        return [*items, *self._tags.finish()]

    def finish_leniently(self) -> list[StreamItem]:
        """Return the end of an answer of a server that never sends a finish reason: `[DONE]` is enough."""
        if self.reason is None and self.done:
            self.reason = "stop"
        return self.finish()

    def _take_reason(self, value: Any) -> None:
        reason = lenient_json.text(value).lower()
        if not reason:
            return
        if reason in _BROKEN:
            raise APIStreamError(f'The server ended the answer early: "{reason}".')
        if reason == "model_context_window_exceeded":
            raise errors.overflow("The answer filled the context of the model.", self._context)
        self.reason = _REASONS.get(reason, "stop")

    def _reasoning(self, delta: dict[str, Any]) -> list[StreamItem]:
        details = tuple(
            one
            for one in map(
                lenient_json.mapping, lenient_json.listing(delta.get("reasoning_details"))
            )
            if one
        )
        present = [key for key in _REASONING_FIELDS if isinstance(delta.get(key), str)]
        field = next((key for key in present if delta[key]), present[0] if present else "")
        words = lenient_json.text(delta.get(field)) if field else ""
        if not words and details:
            words = "".join(lenient_json.text(one.get("text")) for one in details)
        words = self._thought_halves.feed(words)
        if words or details:
            return [ThinkDelta(words, "reasoning_details" if details else field, details)]
        self._empty_field = self._empty_field or field
        return []

    def _content(self, content: Any) -> list[StreamItem]:
        if isinstance(content, str):
            return self._tags.feed(self._text_halves.feed(content))
        items: list[StreamItem] = []
        alone = lenient_json.mapping(content)
        for raw in [alone] if alone else lenient_json.listing(content):
            part = lenient_json.mapping(raw)
            if part.get("type") == "thinking":
                thought = part.get("thinking")
                words = lenient_json.text(thought) or "".join(
                    lenient_json.text(lenient_json.mapping(one).get("text"))
                    for one in lenient_json.listing(thought)
                )
                if words := self._thought_halves.feed(words):
                    items.append(ThinkDelta(words, "thinking"))
            elif words := self._text_halves.feed(lenient_json.text(part.get("text"))):
                items.append(TextDelta(words))
        return items

    def _take_usage(self, value: Any) -> None:
        # A stream may send usage several times with growing figures: the last one counts, and figures are never added up.
        self._usage = _usage_of(value) or self._usage


def _progress_of(value: Any) -> list[StreamItem]:
    """Return how far llama.cpp has read the prompt (`return_progress`); nothing if the whole prompt was cached."""
    progress = lenient_json.mapping(value)
    figures = [
        lenient_json.count(progress.get(name)) or 0 for name in ("total", "cache", "processed")
    ]
    total, cached, processed = figures
    read, to_read = processed - cached, total - cached
    return [PromptRead(min(read, to_read), to_read)] if read >= 0 < to_read else []


def _usage_of(value: Any) -> Usage | None:
    """Read the `usage` object of an answer or of a chunk of its stream, in any dialect; None if it has no figures.

    The number of tokens from the server's cache is in `prompt_tokens_details.cached_tokens` (OpenAI and most others),
    `prompt_cache_hit_tokens` (DeepSeek) or `cached_tokens` (Moonshot).
    """
    usage = lenient_json.mapping(value)
    prompt = lenient_json.count(usage.get("prompt_tokens"))
    completion = lenient_json.count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    details = lenient_json.mapping(usage.get("prompt_tokens_details"))
    cached = next(
        (
            found
            for found in (
                lenient_json.count(details.get("cached_tokens")),
                lenient_json.count(usage.get("prompt_cache_hit_tokens")),
                lenient_json.count(usage.get("cached_tokens")),
            )
            if found is not None
        ),
        0,
    )
    return Usage(prompt or 0, completion or 0, min(cached, prompt or 0))


def _first_choice(chunk: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the choice of a chunk with the lowest index, and that index; an empty choice if there is none."""
    choices = lenient_json.listing(chunk.get("choices"))
    if not choices:
        return {}, 0
    found = choices if len(choices) == 1 else sorted(choices, key=_index_of)
    return lenient_json.mapping(found[0]), _index_of(found[0])


def _index_of(choice: Any) -> int:
    return lenient_json.count(lenient_json.mapping(choice).get("index")) or 0


def _is_answer(items: Iterable[StreamItem]) -> bool:
    """Return whether the items of an event include a piece of the answer."""
    return any(not isinstance(item, PromptRead) for item in items)


def _only_words(value: Any) -> str:
    """Return the text of a chunk that contains nothing else; empty for any other chunk or shape."""
    try:
        (choice,) = value["choices"]
        delta = choice["delta"]
        words = delta["content"]
    except (KeyError, TypeError, ValueError):
        return ""
    is_more = any(map(choice.get, _MORE)) or any(map(value.get, _BESIDE))
    return "" if is_more or not _WORDS_ONLY.issuperset(delta) else lenient_json.text(words)


def _frame_of(data: bytes, words: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after the text in a chunk that contains nothing else, the quotes included.

    The next chunks of most streams differ in the text alone, so nothing else in them need be parsed.
    """
    begin = _CONTENT.search(data)
    if begin is None or data.count(b'"content"') != 1 or b"\\" in data:
        return _NO_FRAME
    # A text without a backslash contains no escaped half of a surrogate pair.
    plain = words.encode()
    end = begin.end() + len(plain)
    if data[begin.end() : end + 1] != plain + b'"':
        return _NO_FRAME
    return data[: begin.end()], data[end:]


def _is_error(value: Any) -> bool:
    if isinstance(value, list):
        return True
    chunk = lenient_json.mapping(value)
    if chunk.get("error"):
        return True
    return "choices" not in chunk and chunk.get("object") == "error"


_LOOP_SHARE_S = 0.003
_GATHERED_BYTES = 64 * 1024
"""Number of bytes of a body that are gathered before the reader gets them."""
_SMALL_BYTES = 2_048
"""Bytes. A shorter piece contained all that had arrived: a dozen tokens at most."""
_TRICKLE = 4
"""After more small pieces in a row than this, the next pieces are gathered: the answer is neither beginning nor ending."""
_TRICKLE_S = 0.02
_AFTER_FINISH_S = 5.0
_AFTER_DONE_S = 0.25
_STREAM_STARTS = (b"data:", b":", b"event:", b"id:", b"retry:")
"""Beginnings of an event stream, which JSON cannot have."""
_MAX_WHOLE_BYTES = 64 * 1024 * 1024
_WORTH_COMPARING = 5_000
"""Tokens. No server cuts shorter prompts; a difference there comes from the way of counting."""
_WORTH_LEARNING = 500
_LEAST_READ = 1_500
"""Tokens. This is less than the smallest default window of any server, so smaller figures are counted in another way."""
_MOST_ADDED = 0.5
"""The largest share of the window that a server's additions to a prompt take."""
_SHARE_OF_OTHERS = 0.6
"""A server whose figures never exceeded this share of our estimate counts in another way: words, or only part of the prompt."""


class BatchedBytes:
    """The bytes of a response, joined as far as they have arrived: many servers send each token in a piece of its own.

    Reading one token through the HTTP library costs as much as drawing it. So tokens that arrive one by one (several small
    pieces in a row, each after a wait) are read a few at a time, every `_TRICKLE_S` seconds.

    Args:
        source: the pieces of the body.
    """

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_waited = False
        self._came = asyncio.Event()
        self._taken = asyncio.Event()
        self._gathering = asyncio.create_task(self._gather(source), name="arrivals")

    async def _gather(self, source: AsyncIterator[bytes]) -> None:
        n_small = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                # Reading pieces that have already arrived never suspends this task: many small pieces at once are no trickle.
                self._has_waited = False
                waits = loop.call_soon(self._wait_is_known)
                try:
                    piece = await anext(source)
                except StopAsyncIteration:
                    break
                finally:
                    waits.cancel()
                self._pieces.append(piece)
                self._size += len(piece)
                self._came.set()
                n_small = n_small + 1 if len(piece) < _SMALL_BYTES and self._has_waited else 0
                if self._size >= _GATHERED_BYTES:
                    self._taken.clear()
                    await self._taken.wait()
                elif n_small > _TRICKLE:
                    await asyncio.sleep(_TRICKLE_S)
        finally:
            self._came.set()

    def _wait_is_known(self) -> None:
        self._has_waited = True

    async def take(self) -> bytes | None:
        """Return the bytes that arrived since the last call, once there are any; None at the end. It raises the errors of the source."""
        await self._came.wait()
        self._taken.set()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if not self._gathering.done():
            self._came.clear()
        elif not data:
            self._gathering.result()
            return None
        return data

    async def aclose(self) -> None:
        """Stop reading."""
        await end_task(self._gathering)


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task, if it runs, and wait for its end; its error is not raised."""
    # A wait for what has ended already would take a turn of the event loop.
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        # Asyncio reports errors that nobody has read.
        task.exception()


def joined(items: Iterable[StreamItem | str]) -> list[StreamItem]:
    """Join neighbouring pieces of one text, thought or call; a plain string is a piece of text."""
    runs: list[tuple[StreamItem | str, list[str]]] = []
    last: tuple[str, str | int] | None = None
    for item in items:
        run: tuple[str, str | int] | None
        match item:
            case str(piece) | TextDelta(piece):
                run = "text", ""
            case ThinkDelta(piece, field, ()) if piece:
                run = "think", field
            case ToolCallDelta(position, "", "", piece, None):
                run = "call", position
            case _:  # the item is more than a piece
                run, piece = None, ""
        if run is None or run != last:
            runs.append((item, []))
        runs[-1][1].append(piece)
        last = run
    done: list[StreamItem] = []
    for first, pieces in runs:
        match first:
            case str() | TextDelta():
                done.append(TextDelta("".join(pieces)))
            case ThinkDelta(field=field) if len(pieces) > 1:
                done.append(ThinkDelta("".join(pieces), field))
            case ToolCallDelta(position) if len(pieces) > 1:
                done.append(ToolCallDelta(position, arguments="".join(pieces)))
            case _:
                done.append(first)
    return done


class AnswerReader:
    """Reads one response to its end.

    Args:
        response: a response with status 200 and an unread body.
        context: the facts about the response, for errors.
        network: turns failures of the connection into errors.
        quirks: the learned quirks of this server and model; the reader may add one.
        estimated_tokens: the estimated tokens of the request's messages, without its tools.
        most_tokens: an upper bound of the request's tokens, whatever tokenizer the server has.
        window: the model's window in tokens.
        window_is_known: the window comes from the server itself.
        wait: the clock of the answer, running since the request was sent.
    """

    def __init__(
        self,
        response: httpx2.Response,
        context: ResponseContext,
        network: NetworkFailures,
        quirks: LearnedQuirks,
        *,
        estimated_tokens: int,
        most_tokens: int,
        window: int,
        window_is_known: bool,
        wait: AnswerWait,
    ) -> None:
        self._response = response
        self._context = context
        self._network = network
        self._quirks = quirks
        self._estimated_tokens = estimated_tokens
        self._most_tokens = most_tokens
        self._window = window
        self._window_is_known = window_is_known
        self._wait = wait
        self._decoder = ChunkDecoder(context)

    async def items(self) -> AsyncGenerator[StreamItem]:
        """Yield the items of the answer, with neighbouring pieces of text joined; then usage and the end.

        An `Overdue` is yielded when a limit of the wait is reached.

        Raises:
            LLMError: the response is no answer, or broke off.
        """
        import httpx2

        kind = self._response.headers.get("content-type", "").split(";")[0].strip().lower()
        try:
            whole = kind == "application/json"
            async with aclosing(self._unstreamed_items() if whole else self._stream(kind)) as items:
                async for item in items:
                    yield item
        except (httpx2.TimeoutException, WaitedTooLong) as error:
            if not self._decoder.reason:
                raise self._network.timeout(error) from error
        except httpx2.HTTPError as error:
            if not self._decoder.reason:
                raise APIStreamError(
                    "The connection was lost before the answer was complete."
                ) from error
        except EventTooLarge as error:
            raise APIStreamError("The server sent an event that is too large.") from error
        for item in self._end():
            yield self._marked(item)

    async def _stream(self, kind: str) -> AsyncGenerator[StreamItem]:
        decoder = self._decoder
        events = SSEDecoder()
        first = b""
        wait, began = self._wait, time.perf_counter()
        async with aclosing(BatchedBytes(self._response.aiter_bytes())) as arrivals:
            while (data := await self._next(arrivals)) is not None:
                if isinstance(data, Overdue):
                    yield data
                    continue
                wait.came()
                if len(first) < 2_000:
                    first += data[:2_000]
                batch: list[StreamItem | str] = []
                for event in events.feed(data, decoder.alike):
                    try:
                        found = event if isinstance(event, str) else decoder.read(event)
                    except LLMError:
                        for item in joined(batch):
                            yield item
                        raise
                    if isinstance(found, str):
                        batch.append(found)
                    else:
                        batch += found
                    wait.happened(is_answer=isinstance(found, str) or _is_answer(found))
                    # The event loop gets its turn by the clock, so that the screen can be drawn.
                    if time.perf_counter() - began > _LOOP_SHARE_S:
                        for item in joined(batch):
                            yield item
                        batch.clear()
                        await asyncio.sleep(0)
                        began = time.perf_counter()
                for item in joined(batch):
                    yield item
        if not decoder.chunks and not decoder.done and "event-stream" not in kind and first.strip():
            raise errors.error_of_wrong_content(kind, first, self._context)
        for event in events.finish() if not decoder.reason else ():
            try:
                items = decoder.decode(event)
            except APIStreamError:
                items = []  # the end is found missing later, so half an event does not matter
            for item in items:
                yield item

    async def _next(self, arrivals: BatchedBytes) -> bytes | Overdue | None:
        """Return the next bytes, or the limit that was reached; None at the end.

        After the whole answer only figures and the end of the stream can come. They are awaited for a short time, so that the
        connection can be used again.
        """
        if not (self._decoder.done or self._decoder.reason):
            return await self._wait.next(arrivals.take)
        try:
            async with asyncio.timeout(_AFTER_DONE_S if self._decoder.done else _AFTER_FINISH_S):
                return await arrivals.take()
        except TimeoutError:
            return None

    async def _unstreamed_items(self) -> AsyncGenerator[StreamItem]:
        """Yield the items of a response in one piece, from a server that does not stream or that reports an error with status 200."""
        pieces: list[bytes] = []
        size = 0
        async with aclosing(BatchedBytes(self._response.aiter_bytes())) as arrivals:
            while (data := await self._wait.next(arrivals.take)) is not None:
                if isinstance(data, Overdue):
                    yield data
                    continue
                self._wait.came()
                pieces.append(data)
                size += len(data)
                if size > _MAX_WHOLE_BYTES:
                    raise EventTooLarge
        raw = b"".join(pieces)
        if raw.lstrip().startswith(_STREAM_STARTS):
            # The response is a stream with the wrong content type; all of it has already come.
            for event in [*(events := SSEDecoder()).feed(raw), *events.finish()]:
                for item in self._decoder.decode(event):
                    yield item
            return
        try:
            parsed = await asyncio.to_thread(lenient_json.parse, raw)
        except ValueError:
            raise APIStreamError("The server's answer is not JSON.") from None
        if "choices" not in lenient_json.mapping(parsed):
            raise errors.error_of_stream_event(parsed, self._context)
        for item in self._decoder.whole(parsed):
            yield item

    def _end(self) -> list[StreamItem]:
        decoder = self._decoder
        if not decoder.said_anything:
            if decoder.reason in {None, "length"}:
                self._check_silent_overflow()
            if decoder.done and not decoder.reason:
                raise APIEmptyResponseError("The model sent an empty answer.")
        if decoder.done and not decoder.reason and self._quirks.ends_without_reason:
            return decoder.finish_leniently()
        try:
            return decoder.finish()
        except APIStreamError:
            # A server that ends streams twice with `[DONE]` but without a reason never sends one.
            if decoder.done:
                self._quirks.ends_without_reason = True
            raise

    def _check_silent_overflow(self) -> None:
        """Raise an overflow if the answer is empty and the request filled the window: some servers report it in no other way."""
        if self._estimated_tokens >= 0.8 * self._window:
            raise errors.overflow(
                f"{self._context.host} did not answer; the request of about {self._estimated_tokens} "
                "tokens seems to exceed the context of the model.",
                self._context,
            )

    def _marked(self, item: StreamItem) -> StreamItem:
        """Return the item; `prompt_cut` is set on usage that shows a silently cut prompt.

        A cut prompt fills the window. A figure far below both our estimate and the window comes from another way of counting,
        as does a figure from a server whose figures were never nearer to our estimate. A figure above the window means that
        the assumed window was wrong, not that the prompt was cut. A figure that is impossible for a prompt of this length is
        removed, and so is the figure of an answer longer than the window.
        """
        if not isinstance(item, Usage):
            return item
        if item.output > self._window:
            item = replace(item, output=0)
        if not item.input:
            return item
        sent = self._estimated_tokens
        if item.input > self._most_tokens + _MOST_ADDED * self._window:
            # An impossible figure, if used, would fill the window for good, and no compaction would help. If it is true all
            # the same, the server will refuse the next request as too long, and the conversation is compacted then.
            return replace(item, input=0, cached=0)
        before = self._quirks.counted_share
        far_less = sent > _WORTH_COMPARING and _LEAST_READ <= item.input <= sent // 2
        counts_otherwise = 0 < before <= _SHARE_OF_OTHERS
        if self._window_is_known and item.input < 0.45 * self._window:
            far_less = False
        full = self._window_is_known and self._window <= item.input <= 1.02 * self._window
        if (far_less and not counts_otherwise) or (full and sent > item.input):
            return replace(item, prompt_cut=True)
        if sent >= _WORTH_LEARNING:
            self._quirks.counted_share = max(before, item.input / sent)
        return item
