"""A conversation as one text: shortened to the window of a model that summarises it or drafts a D-Mail, or complete, as Markdown.

`conversation_text` makes the text for a model, `as_markdown` what `/export` and `kimi-tui sessions export` write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import ImagePart, Message, TextPart, ThinkPart, ToolCall
from kimi_tui.llm.tokens import estimate
from kimi_tui.soul.messages import (
    call_arguments,
    call_target,
    dmail_text,
    image_block,
    image_blocks,
    internal_kind,
    summary_text,
    words_with_images,
)
from kimi_tui.soul.tool_results import outcome_of
from kimi_tui.tool_cards import AGENT_NAMES

_CHARS_PER_TOKEN = 4
_AGENT = re.compile(r"([a-z][a-z0-9-]{0,39}-[0-9]{1,6}), [0-9]")
"""The beginning of the result of a sub-agent: its name, and the number of its steps."""
_FENCES = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Caps:
    """The largest number of characters of each kind of text."""

    result: int
    arguments: int
    think: int
    text: int


_LEVELS = (
    _Caps(8_000, 6_000, 1_500, 40_000),
    _Caps(3_000, 3_000, 500, 16_000),
    _Caps(1_000, 1_000, 200, 6_000),
    _Caps(300, 300, 0, 2_000),
    _Caps(120, 120, 0, 600),
)


def conversation_text(messages: Sequence[Message], budget: int) -> str:
    """Return the messages as one text.

    Every omission is marked: calls have their arguments, reasoning and images are shortened, and shortened or dropped texts
    say so. The middle of long results is dropped first, the oldest messages last.

    Args:
        messages: the messages.
        budget: the approximate number of tokens that the text may have; it always has at least one message.
    """
    parts: list[str] = []
    for caps in _LEVELS:
        names = _call_names(messages)
        parts = [part for m in messages if (part := _written(m, caps, names))]
        if sum(map(estimate, parts)) <= budget:
            return "\n\n".join(parts)
    return _newest(parts, budget)


def _newest(parts: Sequence[str], budget: int) -> str:
    """Return the newest parts that fit; a summary at the very beginning stays, as it stands for everything before it."""
    left = budget - 20
    head: list[str] = []
    rest = list(parts)
    if rest and rest[0].startswith("[Summary"):
        head.append(rest.pop(0))
        left -= estimate(head[0])
    kept: list[str] = []
    for part in reversed(rest):
        left -= estimate(part)
        if left < 0 and kept:
            break
        kept.append(part)
    n_dropped = len(rest) - len(kept)
    if n_dropped:
        head.append(f"[{n_dropped} older messages left out: too long]")
    whole = "\n\n".join([*head, *reversed(kept)])
    return shortened(whole, max(400, budget * _CHARS_PER_TOKEN))


def shortened(text: str, most: int) -> str:
    """Return `text` with its middle cut out if it has more than `most` characters; it then says how many were dropped."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    gone = len(text) - head - tail
    end = text[-tail:] if tail else ""
    return f"{text[:head]}\n[… {gone:,} characters left out …]\n{end}"


def _call_names(messages: Sequence[Message]) -> dict[str, str]:
    return {call.id: call.function.name for m in messages for call in m.tool_calls or ()}


def _written(message: Message, caps: _Caps, names: dict[str, str]) -> str:
    kind = internal_kind(message)
    if kind in ("marker", "reminder"):
        return ""
    dmail, summary = dmail_text(message), summary_text(message)
    if dmail is not None:
        return f"[D-Mail from the agent's future self]\n{shortened(dmail, caps.text)}"
    if summary is not None:
        return f"[Summary of what came before]\n{shortened(summary, 4 * caps.text)}"
    if message.role == "tool":
        name = names.get(message.tool_call_id or "", "tool")
        return f"[Result of {name}]\n{shortened(_body(message, caps), caps.result)}"
    heading = {"user": "User", "assistant": "Agent", "system": "Program"}[message.role]
    lines = [shortened(_body(message, caps), caps.text)]
    lines += [_call(call, caps) for call in message.tool_calls or ()]
    if message.interrupted:
        lines.append(
            f"(the answer broke off here: {one_line(message.broken)})"
            if message.broken
            else "(stopped by the user here)"
        )
    body = "\n".join(line for line in lines if line)
    return f"[{heading}]\n{body}" if body else ""


def _body(message: Message, caps: _Caps) -> str:
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ThinkPart) and caps.think and part.think.strip():
            texts.append(f"(thought: {shortened(part.think.strip(), caps.think)})")
        elif isinstance(part, ImagePart):
            texts.append(f"[{image_block(part).label}]")
    return "\n".join(texts)


def _call(call: ToolCall, caps: _Caps) -> str:
    arguments = call.function.arguments or ""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict) and len(arguments) > caps.arguments:
        # Short arguments (the path) must stay beside a long one (the content).
        short = {
            key: shortened(value, caps.arguments) if isinstance(value, str) else value
            for key, value in cast("dict[str, Any]", values).items()
        }
        arguments = json.dumps(short, ensure_ascii=False)
    return f"(calls {call.function.name} {shortened(arguments, 2 * caps.arguments)})"


def as_markdown(messages: Iterable[Message], agents: Mapping[str, str] | None = None) -> str:
    """Return the messages as Markdown, oldest first, without the reminders to the model. It reads all messages, so call it in
    a thread.

    Args:
        messages: the messages.
        agents: the conversations of sub-agents as Markdown, by their names; they are folded below their results.
    """
    parts: list[str] = []
    calls: list[ToolCall] = []
    # An empty message at the end flushes calls without a result, which still run or were killed.
    for message in (*messages, Message(role="assistant", content=[])):
        if message.role == "tool":
            call = calls.pop(0) if calls else None
            outcome = outcome_of(message)
            images = [f"[{image.label}]" for image in image_blocks(message)]
            texts = [outcome.message, outcome.output, *images]
            said = "\n".join(text for text in texts if text.strip())
            failed = " (failed)" if outcome.is_error else ""
            parts += [_heading(call) + failed, *_arguments(call)]
            name = _AGENT.match(outcome.message) if agents else None
            if agents and name is not None and (steps := agents.get(name[1], "")):
                # Markdown within HTML needs a blank line on both sides.
                title = f"The steps of {name[1]}"
                parts += [f"<details><summary>{title}</summary>", steps.strip(), "</details>"]
            parts.append(_fenced(said))
            continue
        # If the program was killed, some calls have no result.
        for call in calls:
            parts += [f"{_heading(call)} (no result)", *_arguments(call)]
        calls = list(message.tool_calls or ())
        kind = internal_kind(message)
        if kind == "dmail":
            parts.append(f"**D-Mail:** {(dmail_text(message) or '').strip()}")
        elif kind == "compaction":
            parts.append(f"**Summary:** {(summary_text(message) or '').strip()}")
        elif kind is None and (said := words_with_images(message).strip()):
            who = "You" if message.role == "user" else "Agent"
            parts.append(f"**{who}:** {said}")
        if message.interrupted:
            broken = one_line(message.broken or "")
            parts.append(
                f"*(The answer broke off here: {broken})*" if broken else "*(Stopped by you)*"
            )
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(call: ToolCall | None) -> str:
    if call is None:
        return "**Tool**"
    target = " ".join(call_target(call).split()).replace("`", "'")
    # The model itself is called the agent here.
    name = "Sub-agent" if call.function.name in AGENT_NAMES else call.function.name
    return f"**{name}**" + (f" `{target}`" if target else "")


def _arguments(call: ToolCall | None) -> list[str]:
    """Return the arguments that the heading does not show: each text of several lines, or all of them if they are invalid."""
    if call is None:
        return []
    written = call.function.arguments or ""
    arguments = call_arguments(written)
    if not arguments:
        return [_fenced(written)] if written.strip(" {}") else []
    target = call_target(call)
    return [
        f"{name}:\n\n{_fenced(str(value))}"
        for name, value in arguments.items()
        if str(value) != target
    ]


def _fenced(text: str) -> str:
    """Return the text as a code block, whatever fences it contains."""
    text = text.strip("\n")
    if not text.strip():
        return ""
    fence = "`" * max(3, *(len(found) + 1 for found in _FENCES.findall(text)), 3)
    return f"{fence}\n{text}\n{fence}"
