"""Finds tool calls that a model wrote as text instead of making them, at the end of its answer.

Small models, and servers that do not parse what a model's template prints, answer with a code block of JSON, with
`<tool_call>` tags as Hermes and Qwen write them, or with a bare JSON object. Only calls at the end of an answer count: a call
within an explanation is an example. Nothing is run here: the caller asks the user first.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

from kimi_tui import lenient_json

_MOST_CHARS = 200_000
_MOST_CALLS = 8
_FENCE = "```"
_TAG, _END_TAG = "<tool_call>", "</tool_call>"
_LANGUAGES = frozenset({"", "json", "tool_call", "tool_calls", "tool", "xml", "jsonc"})


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call that was written as text: the name of the tool, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class WrittenCalls:
    """The calls at the end of an answer, in order, and the text before them.

    Attributes:
        calls: the calls.
        before: the text before them.
        is_end: whether nothing follows them.
    """

    calls: tuple[WrittenCall, ...]
    before: str
    is_end: bool = True


def written_calls(text: str, names: Collection[str]) -> WrittenCalls | None:
    """Return the calls of tools with these names that end a text; else one that stands alone in it, followed by other text.

    Args:
        text: the answer.
        names: the names of the existing tools; a text with another name is no call.
    """
    if len(text) > _MOST_CHARS:
        return None
    rest, found = text.rstrip(), list[WrittenCall]()
    while len(found) < _MOST_CALLS:
        before, some = _last(rest, names)
        if not some:
            break
        found[:0] = some
        rest = before.rstrip()
    if found:
        return WrittenCalls(tuple(found), rest)
    inside = _inside(text, names)
    return WrittenCalls(tuple(inside), "", is_end=False) if len(inside) == 1 else None


def _last(text: str, names: Collection[str]) -> tuple[str, list[WrittenCall]]:
    """Return the text before the calls that end a text, and these calls."""
    if text.endswith(_END_TAG) or (_TAG in text and _END_TAG not in text[text.rfind(_TAG) :]):
        start = text.rfind(_TAG)
        if start < 0:
            return text, []
        inner = text[start + len(_TAG) :].removesuffix(_END_TAG)
        return text[:start], _calls(inner, names)
    if text.endswith(_FENCE):
        start = text.rfind(_FENCE, 0, len(text) - len(_FENCE))
        if start < 0 or (start and text[start - 1] != "\n"):
            return text, []
        return text[:start], _calls(_fenced(text[start : -len(_FENCE)]), names)
    return ("", _calls(text, names)) if text.lstrip()[:1] in ("{", "[") else (text, [])


def _inside(text: str, names: Collection[str]) -> list[WrittenCall]:
    """Return the calls in the code blocks and tags of a text, at any place."""
    found: list[WrittenCall] = []
    blocks = (
        text.split(f"\n{_FENCE}")
        if not text.startswith(_FENCE)
        else f"\n{text}".split(f"\n{_FENCE}")
    )
    for block in blocks[1::2]:
        found += _calls(_fenced(_FENCE + block), names)
    for part in text.split(_TAG)[1:]:
        found += _calls(part.partition(_END_TAG)[0], names)
    return found


def _fenced(block: str) -> str:
    """Return the content of a code block; empty if its language is not JSON."""
    language, _, inner = block.removeprefix(_FENCE).partition("\n")
    return inner if language.strip().lower() in _LANGUAGES else ""


def _calls(text: str, names: Collection[str]) -> list[WrittenCall]:
    """Return the calls in a JSON text, which is an object or a list of objects; nothing if any of it is no call."""
    text = text.strip().removeprefix(_TAG).removesuffix(_END_TAG).strip()
    if text[:1] not in ("{", "["):
        return []
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return []
    entries = cast("list[object]", value) if isinstance(value, list) else [value]
    calls = [_call(entry, names) for entry in entries[: _MOST_CALLS + 1]]
    whole = [call for call in calls if call is not None]
    return whole if len(whole) == len(calls) <= _MOST_CALLS else []


def _call(entry: object, names: Collection[str]) -> WrittenCall | None:
    table = lenient_json.mapping(entry)
    inner = lenient_json.mapping(table.get("function"))
    table = inner or table
    name = lenient_json.text(table.get("name"))
    arguments: Any = table.get("arguments", table.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return None
    if name not in names or not isinstance(arguments, dict):
        return None
    return WrittenCall(name, json.dumps(arguments, ensure_ascii=False))
