"""A conversation as Markdown, for the clipboard: every message whole and in order, tool calls with what they gave back."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.soul.images import images_in, words_with_images
from kimi_tui.soul.internal_messages import dmail_text, internal_kind, summary_text
from kimi_tui.soul.segments import call_target
from kimi_tui.soul.tool_results import call_arguments, outcome_of

_FENCES = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)


def as_markdown(messages: Iterable[Message]) -> str:
    """The messages, oldest first; what the program told the model is left out. Reads them all: call it in a thread."""
    parts: list[str] = []
    calls: list[ToolCall] = []
    # Behind the last message one without words: calls that still run, or were killed, have no result.
    for message in (*messages, Message(role="assistant", content=[])):
        if message.role == "tool":
            call = calls.pop(0) if calls else None
            outcome = outcome_of(message)
            images = [f"[{image.label}]" for image in images_in(message)]
            texts = [outcome.message, outcome.output, *images]
            said = "\n".join(text for text in texts if text.strip())
            failed = " (failed)" if outcome.is_error else ""
            parts += [_heading(call) + failed, *_arguments(call), _fenced(said)]
            continue
        # Where the program was killed, there are calls without a result.
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
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(call: ToolCall | None) -> str:
    if call is None:
        return "**Tool**"
    target = " ".join(call_target(call).split()).replace("`", "'")
    return f"**{call.function.name}**" + (f" `{target}`" if target else "")


def _arguments(call: ToolCall | None) -> list[str]:
    """The arguments that say more than the heading: each text of several lines, or all where they make no sense."""
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
    """The text as a block of code, whatever fences it holds."""
    text = text.strip("\n")
    if not text.strip():
        return ""
    fence = "`" * max(3, *(len(found) + 1 for found in _FENCES.findall(text)), 3)
    return f"{fence}\n{text}\n{fence}"
