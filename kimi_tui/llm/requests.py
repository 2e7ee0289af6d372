"""The body of one request: the smallest that a server takes, plus what its dialect wants. Pure; run it in a thread."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kimi_tui.llm import tokens
from kimi_tui.llm.dialects import Dialect
from kimi_tui.llm.lessons import REASONING_FIELDS
from kimi_tui.llm.provider import ToolSpec
from kimi_tui.llm.schemas import tools_sent
from kimi_tui.llm.sending import Receiver, Sent, to_sent

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

_SAMPLE_CHARS = 100_000
_ALWAYS_SENT = {"model", "messages", "stream", "tools"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one request is to ask for."""

    system: str
    tools: tuple[ToolSpec, ...]
    history: tuple[Message, ...]
    receiver: Receiver
    thinking: bool = False
    session_id: str = ""
    max_output: int | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """A request, ready to go. `optional` names the fields a server might refuse, those of messages too."""

    data: bytes
    optional: frozenset[str]
    estimated_tokens: int


def build(wanted: Wanted, dialect: Dialect, dropped: frozenset[str] = frozenset()) -> Body:
    """The body for this dialect (lessons applied); top-level fields in `dropped` are left out."""
    messages = to_sent(wanted.system, wanted.history, dialect, wanted.receiver)
    tools = tools_sent(wanted.tools, dialect)
    fields: dict[str, Any] = {"model": wanted.receiver.model, "messages": messages, "stream": True}
    if tools:
        fields["tools"] = tools
    if dialect.stream_options:
        fields["stream_options"] = {"include_usage": True}
    if wanted.max_output is not None:
        fields[dialect.output_limit] = wanted.max_output
    if dialect.cache_key and wanted.session_id:
        fields["prompt_cache_key"] = wanted.session_id
    fields.update(_thinking(dialect, wanted.thinking, bool(tools)))
    fields.update(dialect.extra)
    for name in dropped - _ALWAYS_SENT:
        fields.pop(name, None)
    in_messages = {name for message in messages for name in REASONING_FIELDS if name in message} | {
        "extra_content"
        for message in messages
        for call in message.get("tool_calls", ())
        if "extra_content" in call
    }
    return Body(
        _encoded(fields),
        frozenset(fields.keys() - _ALWAYS_SENT | in_messages),
        _estimate(messages, tools),
    )


def _thinking(dialect: Dialect, thinking: bool, has_tools: bool) -> dict[str, Any]:
    switch = "enabled" if thinking else "disabled"
    match dialect.thinking:
        case "type":
            return {"thinking": {"type": switch}}
        case "type_kept":
            kept = {"clear_thinking": False} if thinking else {}
            return {"thinking": {"type": switch, **kept}}
        case "enable_thinking":
            return {"enable_thinking": thinking}
        case "effort_object":
            return {"reasoning": {"effort": "medium"}} if thinking else {}
        case "effort_none_with_tools":
            return {"reasoning_effort": "none"} if has_tools else {}
        case "none":
            return {}


def _encoded(fields: dict[str, Any]) -> bytes:
    """The JSON, message by message, so that the interpreter's lock is let go between them."""
    pieces: list[bytes] = []
    for name, value in fields.items():
        if name == "messages":
            whole = b",".join(_json(message) for message in value)
            pieces.append(b'"messages":[' + whole + b"]")
        else:
            pieces.append(_json(name) + b":" + _json(value))
    return b"{" + b",".join(pieces) + b"}"


def _json(value: Any) -> bytes:
    # A lone surrogate that got this far (a tool's description) must not end the request.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def _estimate(messages: Sequence[Sent], tools: Sequence[dict[str, Any]]) -> int:
    """About how many tokens the request is, from a sample of it: good enough to notice that half of it got lost."""
    texts = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    for message in messages:
        content = message.get("content", "")
        if isinstance(content, str):
            texts.append(content)
        else:
            texts += [part.get("text", "") for part in content]
        texts += [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        texts += [message[name] for name in ("reasoning_content", "reasoning") if name in message]
    total_chars = sum(map(len, texts))
    if total_chars <= _SAMPLE_CHARS:
        counted = sum(map(tokens.estimate, texts))
    else:
        # The same share of every text, so that code, prose and logs are in the sample as they are in the whole.
        share = _SAMPLE_CHARS / total_chars
        sample = [text[: max(1, round(len(text) * share))] for text in texts if text]
        counted = round(sum(map(tokens.estimate, sample)) * total_chars / sum(map(len, sample)))
    return counted + 4 * len(messages)
