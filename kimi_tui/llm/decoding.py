"""From the events of a stream to what the model said: text, reasoning, tool calls, usage, and why it ended.

Every shape that compatible servers are known to send is read here; errors in a stream become our own by `failures`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from kimi_tui.llm import failures, loose
from kimi_tui.llm.errors import APIStreamError
from kimi_tui.llm.failures import Answered
from kimi_tui.llm.provider import Finished, StreamItem, TextDelta, ThinkDelta, Usage
from kimi_tui.llm.sse import SSEvent
from kimi_tui.llm.think_tags import ThinkTags
from kimi_tui.llm.tool_pieces import ToolPieces

Reason = Literal["stop", "tool_calls", "length", "content_filter"]

_REASONS: dict[str, Reason] = {
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


class ChunkDecoder:
    """Decodes one stream. `answered` describes the response for error texts."""

    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self._tags = ThinkTags()
        self._tools = ToolPieces()
        self._reason: Reason | None = None
        self._usage: Usage | None = None
        self._thought = False
        self._empty_field = ""
        self.done = False
        """`[DONE]` was seen."""
        self.chunks = 0
        """How many chunks with choices there were."""
        self.said_anything = False
        """Whether text or a tool call came."""

    @property
    def reason(self) -> Reason | None:
        """The finish reason, if one was seen."""
        return self._reason

    @property
    def finished(self) -> bool:
        """Whether a finish reason was seen."""
        return self._reason is not None

    def decode(self, event: SSEvent) -> list[StreamItem]:
        """What this event adds.

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
            values = [loose.parse(data)]
        except ValueError:
            values = self._several(event, data)
        items: list[StreamItem] = []
        for value in values:
            if event.name == "error" or _is_error(value):
                raise failures.of_stream_event(value, self._answered)
            items += self._chunk(loose.mapping(value))
        return items

    def _several(self, event: SSEvent, data: bytes) -> list[Any]:
        """Events that lack the blank line between them, or an error that is plain text."""
        if event.name == "error":
            return [data.decode("utf-8", "replace")]
        lines = [line for line in data.split(b"\n") if line.strip()]
        if len(lines) > 1:
            try:
                self.done = self.done or any(line.startswith(b"[DONE]") for line in lines)
                return [loose.parse(line) for line in lines if not line.startswith(b"[DONE]")]
            except ValueError:
                pass
        raise APIStreamError("The server sent a piece of its answer that is not JSON.")

    def whole(self, body: Any) -> list[StreamItem]:
        """The items of an answer that came in one piece although a stream was asked for."""
        return self._chunk(loose.mapping(body))

    def _chunk(self, chunk: dict[str, Any]) -> list[StreamItem]:
        # Most chunks are one word and nothing else, so what is not there costs as little as can be.
        if chunk.get("usage"):
            self._take_usage(chunk["usage"])
        if chunk.get("x_groq"):
            self._take_usage(loose.mapping(chunk["x_groq"]).get("usage"))
        choices = loose.listing(chunk.get("choices"))
        choice = loose.mapping(choices[0]) if choices else {}
        if not choice:
            return []
        self.chunks += 1
        if choice.get("usage"):
            self._take_usage(choice["usage"])
        delta = loose.mapping(choice.get("delta")) or loose.mapping(choice.get("message"))
        items: list[StreamItem] = []
        if not _REASONING.isdisjoint(delta):
            items += self._reasoning(delta)
        items += self._content(delta.get("content"))
        if delta.get("refusal"):
            items += self._text(loose.text(delta["refusal"]))
        entries = loose.listing(delta.get("tool_calls"))
        if legacy := loose.mapping(delta.get("function_call")):
            entries = [*entries, {"index": 0, "function": legacy}]
        if entries:
            items += self._tagged(self._tags.finish())
        for entry in entries:
            items += self._tools.feed(entry)
        self.said_anything = self.said_anything or self._tools.any
        self._take_reason(choice.get("finish_reason"))
        return items

    def finish(self) -> list[StreamItem]:
        """What remains when the stream has ended: held text, usage, and the end itself.

        Raises:
            APIStreamError: the stream did not come to its end.
        """
        items = self._tagged(self._tags.finish())
        reason = self._reason
        # `stop`, or no reason at all, beside whole calls: the calls win.
        calls_win = reason == "stop" or (
            reason is None and self.done and self._tools.all_complete()
        )
        if self._tools.any and calls_win:
            reason = "tool_calls"
        if reason is None:
            raise APIStreamError("The answer broke off before its end.")
        if self._empty_field and not self._thought:
            # Reasoning that stayed empty is kept too: some models want the field back even so.
            items.append(ThinkDelta("", self._empty_field))
        if self._usage is not None:
            items.append(self._usage)
        items.append(Finished(reason))
        return items

    def finish_leniently(self) -> list[StreamItem]:
        """The same for a server that is known never to give a finish reason: `[DONE]` is enough."""
        if self._reason is None and self.done:
            self._reason = "stop"
        return self.finish()

    def _take_reason(self, value: Any) -> None:
        reason = loose.text(value).lower()
        if not reason:
            return
        if reason in _BROKEN:
            raise APIStreamError(f"The server ended its answer with “{reason}”.")
        if reason == "model_context_window_exceeded":
            raise failures.overflow("The answer ran out of the model's context.", self._answered)
        self._reason = _REASONS.get(reason, "stop")

    def _reasoning(self, delta: dict[str, Any]) -> Iterable[StreamItem]:
        details = tuple(
            one for one in map(loose.mapping, loose.listing(delta.get("reasoning_details"))) if one
        )
        present = [key for key in _REASONING_FIELDS if isinstance(delta.get(key), str)]
        field = next((key for key in present if delta[key]), present[0] if present else "")
        words = loose.text(delta.get(field)) if field else ""
        if not words and details:
            words = "".join(loose.text(one.get("text")) for one in details)
        if words or details:
            self._thought = True
            return [ThinkDelta(words, "reasoning_details" if details else field, details)]
        self._empty_field = self._empty_field or field
        return []

    def _content(self, content: Any) -> list[StreamItem]:
        if isinstance(content, str):
            return self._tagged(self._tags.feed(content))
        items: list[StreamItem] = []
        for raw in loose.listing(content):
            part = loose.mapping(raw)
            if part.get("type") == "thinking":
                thought = part.get("thinking")
                words = loose.text(thought) or "".join(
                    loose.text(loose.mapping(one).get("text")) for one in loose.listing(thought)
                )
                if words:
                    self._thought = True
                    items.append(ThinkDelta(words, "thinking"))
            else:
                items += self._text(loose.text(part.get("text")))
        return items

    def _tagged(self, pieces: list[tuple[Literal["text", "think"], str]]) -> list[StreamItem]:
        items: list[StreamItem] = []
        for kind, words in pieces:
            if kind == "think":
                self._thought = True
                items.append(ThinkDelta(words, "think_tag"))
            else:
                items += self._text(words)
        return items

    def _text(self, words: str) -> list[StreamItem]:
        if not words:
            return []
        self.said_anything = True
        return [TextDelta(words)]

    def _take_usage(self, value: Any) -> None:
        usage = loose.mapping(value)
        prompt = loose.count(usage.get("prompt_tokens"))
        completion = loose.count(usage.get("completion_tokens"))
        if prompt is None and completion is None:
            return
        details = loose.mapping(usage.get("prompt_tokens_details"))
        cached = next(
            (
                found
                for found in (
                    loose.count(details.get("cached_tokens")),
                    loose.count(usage.get("prompt_cache_hit_tokens")),
                    loose.count(usage.get("cached_tokens")),
                )
                if found is not None
            ),
            0,
        )
        # Figures come again and again, growing: the last ones count, and are never added up.
        self._usage = Usage(prompt or 0, completion or 0, min(cached, prompt or 0))

    @property
    def usage(self) -> Usage | None:
        """The newest figures."""
        return self._usage


def _is_error(value: Any) -> bool:
    if isinstance(value, list):
        return True
    chunk = loose.mapping(value)
    if chunk.get("error"):
        return True
    return "choices" not in chunk and chunk.get("object") == "error"
