"""How many tokens a line is thought to hold where no server has said so yet.

Kept cheap enough for the event loop: long texts are sampled, what was estimated once is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.llm.message import Message, TextPart, ThinkPart
from kimi_tui.llm.tokens import estimate
from kimi_tui.session.line import LineIndex

_SAMPLE = 8_192
_BYTES_A_TOKEN = 4
# More than this since the last usage is estimated by its size alone.
_LOOKED_AT_BYTES = 1 << 18
_IMAGE_TOKENS = 1_000
_MESSAGE_TOKENS = 4


def text_tokens(text: str) -> int:
    """An estimate for one text."""
    if len(text) <= 2 * _SAMPLE:
        return estimate(text)
    sample = text[:_SAMPLE] + text[-_SAMPLE:]
    return round(estimate(sample) * len(text) / len(sample))


def message_tokens(message: Message) -> int:
    """An estimate for one message with everything in it that is sent."""
    total = _MESSAGE_TOKENS
    for part in message.parts:
        if isinstance(part, TextPart):
            total += text_tokens(part.text)
        elif isinstance(part, ThinkPart):
            total += text_tokens(part.think)
        elif part.type == "image_url":
            total += _IMAGE_TOKENS
    for call in message.tool_calls or ():
        total += _MESSAGE_TOKENS + text_tokens(call.function.name)
        total += text_tokens(call.function.arguments or "")
    return total


class LineTokens:
    """The tokens of a line up to a place: the last usage before it, and an estimate of the messages since."""

    def __init__(self) -> None:
        self._prompt: tuple[str, int] = ("", 0)
        # Estimated last: the messages from one number up to before another.
        self._first = self._last = self._tokens = 0

    def before(self, index: LineIndex, offset: int, messages: Sequence[Message]) -> int:
        """Tokens of what begins before `offset`."""
        last = index.messages_before(offset)
        usage = index.usage_before(offset)
        if usage is not None:
            tokens, first = usage
            return tokens + self._estimate(index, first, last, messages)
        prompt = index.system_prompt or ""
        if prompt != self._prompt[0]:
            self._prompt = (prompt, text_tokens(prompt))
        return self._prompt[1] + self._estimate(index, 0, last, messages)

    def cut(self, n_messages: int) -> None:
        """Forget what was estimated of messages from a number on."""
        if self._last > n_messages:
            self._first = self._last = self._tokens = 0

    def _estimate(
        self, index: LineIndex, first: int, last: int, messages: Sequence[Message]
    ) -> int:
        if first >= last:
            return 0
        size_bytes = sum(index.place(last - 1)) - index.place(first)[0]
        if size_bytes > _LOOKED_AT_BYTES:
            return size_bytes // _BYTES_A_TOKEN
        if self._first != first or self._last > last:
            self._first, self._last, self._tokens = first, first, 0
        for place in range(self._last, last):
            self._tokens += message_tokens(messages[place])
        self._last = last
        return self._tokens
