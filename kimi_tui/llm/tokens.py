"""Estimates of token counts by one pattern, with an error of ten to twenty percent: there is no tokenizer.

The session multiplies the estimates by a correction factor of its own, learned from the servers' figures.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

from kimi_tui.images import image_tokens

if TYPE_CHECKING:
    from kimi_tui.llm.message import ImagePart, Message
    from kimi_tui.llm.provider import ToolSpec

_CJK = "\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_SYMBOLS = r"[!-/:-@\[-`{-~]+"
_PIECES = re.compile(
    r"([A-Za-z]+)"  # 1: a word
    r"|([0-9]{1,3})"  # 2: up to three digits
    r"|(\n\s*)"  # 3: line ends with their indentation; blanks before them cost nothing
    rf"|([{_CJK}]+)"  # 4: CJK
    r"|([^\W\d_\x00-\x7f]+)"  # 5: other letters (CJK was taken before)
    rf"|({_SYMBOLS})"  # 6: a run of ASCII symbols
    r"|[^\s\x00-\x7f]"  # any other character
)
_ASCII_PIECES = re.compile(rf"[A-Za-z]+|[0-9]{{1,3}}|\n\s*|{_SYMBOLS}")
_LONG_WORDS = re.compile(r"[A-Za-z]{8,}")
_SAMPLE = 8_192
_MESSAGE_OVERHEAD = 4
_IMAGE_TOKENS = 1_000
"""The estimated tokens of an image of unknown size."""


def estimate(text: str) -> int:
    """Estimate the tokens of a text. The speed is 13 MB/s, for ASCII 35 MB/s; use a thread for megabytes."""
    if text.isascii():
        # This path gives the same result without creating an object for each piece.
        longer = sum((len(word) - 1) // 6 for word in _LONG_WORDS.findall(text))
        return len(_ASCII_PIECES.findall(text)) + longer or int(bool(text))
    total = 0.0
    for piece in _PIECES.finditer(text):
        group = piece.lastindex
        if group == 1:
            size = piece.end() - piece.start()
            total += 1 if size <= 7 else (size + 5) // 6
        elif group == 4:
            total += 0.8 * (piece.end() - piece.start())
        elif group == 5:
            total += 0.3 * (piece.end() - piece.start())
        else:
            total += 1
    return round(total) if total or not text else 1


@lru_cache(maxsize=8)
def _of_short(text: str) -> int:
    # A result is estimated for the rules of D-Mails and again when it is in the context, and the names of tools repeat.
    return estimate(text)


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text; a long text is sampled, so that it never takes more than a millisecond."""
    if len(text) <= 2 * _SAMPLE:
        return _of_short(text)
    sample = text[:_SAMPLE] + text[-_SAMPLE:]
    return round(estimate(sample) * len(text) / len(sample))


def stored_image_tokens(width: object, height: object) -> int:
    """Estimate the tokens of an image by its width and height in a message."""
    if isinstance(width, int) and isinstance(height, int) and min(width, height) > 0:
        return image_tokens(width, height)
    return _IMAGE_TOKENS


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a stored message when it is sent, reasoning and calls included; texts are sampled."""
    said, thought = _counted(message)
    return said + thought


def said_tokens(message: Message) -> int:
    """Estimate the tokens of a stored message without its reasoning, which is not sent back to every model."""
    return _counted(message)[0]


def estimate_fixed(system: str, tools: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of the system prompt and the tools, which are the same in every request."""
    described = (
        f"{tool.name} {tool.description} {json.dumps(dict(tool.parameters))}" for tool in tools
    )
    return estimate(system) + sum(map(estimate, described))


def estimate_request(system: str, tools: Sequence[ToolSpec], history: Sequence[Message]) -> int:
    """Estimate the tokens of a whole request."""
    return estimate_fixed(system, tools) + sum(map(message_tokens, history))


def is_counted(message: Message) -> bool:
    """Return whether this message was counted before, so that its estimate takes no time."""
    known = _known.get(id(message))
    return known is not None and known[0]() is message


# Every call sends the conversation again; each message is counted once, as messages never change.
_Known = dict[int, tuple["weakref.ref[Message]", tuple[int, int]]]
_known: _Known = {}


def _forget(name: int, known: _Known, _ended: object) -> None:
    known.pop(name, None)


def count_in_steps(message: Message) -> Iterator[None]:
    """Count a message that was not counted before, one part or call per step; afterwards its estimate takes no time."""
    if is_counted(message):
        return
    said, thought = _MESSAGE_OVERHEAD, 0
    for part in message.parts:
        kind = part.type
        if kind == "text":
            said += text_tokens(getattr(part, "text", ""))
        elif kind == "think":
            thought += text_tokens(getattr(part, "think", ""))
        elif kind == "image_url":
            where = cast("ImagePart", part).image_url
            said += stored_image_tokens(where.width, where.height)
        yield
    for call in message.tool_calls or ():
        said += _MESSAGE_OVERHEAD + text_tokens(call.function.name)
        said += text_tokens(call.function.arguments or "")
        yield
    name = id(message)
    # The arguments are bound now, because at interpreter exit this module's names may be gone before the messages.
    _known[name] = (weakref.ref(message, partial(_forget, name, _known)), (said, thought))


def _counted(message: Message) -> tuple[int, int]:
    """Return the tokens of a message's text and calls, and those of its reasoning."""
    if not is_counted(message):
        for _ in count_in_steps(message):
            pass
    return _known[id(message)][1]
