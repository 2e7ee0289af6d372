"""Which reasoning goes back with a stored message, and in which field: only to the family of models that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kimi_tui.llm.dialects import Dialect, family
from kimi_tui.llm.loose import without_surrogates
from kimi_tui.llm.message import ThinkPart

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message


def reasoning_fields(
    message: Message, dialect: Dialect, provider: str, model: str
) -> dict[str, Any]:
    """The fields to add to a sent assistant message. The field named "" is a prefix of its text (think tags)."""
    if dialect.reasoning == "never":
        return {}
    # A thought that was cut off is worth nothing to a server, and its signature is not there.
    parts = [] if message.interrupted else _own(message, dialect, provider, model)
    if dialect.reasoning == "reasoning_details":
        details = [entry for part in parts for entry in part.details or ()]
        if details:
            return {"reasoning_details": details}
    words = without_surrogates("".join(part.think for part in parts))
    if words or (parts and dialect.reasoning_missing is None):
        name = _field(parts, dialect)
        if name == "think_tag":
            return {"": f"<think>\n{words.strip()}\n</think>\n\n"} if words.strip() else {}
        return {name: words}
    if dialect.reasoning_missing is None:
        return {}
    if not message.tool_calls and not dialect.reasoning_missing_everywhere:
        return {}
    name = dialect.reasoning if dialect.reasoning != "as_came" else "reasoning_content"
    return {name: dialect.reasoning_missing}


def _own(message: Message, dialect: Dialect, provider: str, model: str) -> list[ThinkPart]:
    """The parts that this provider's family of models wrote."""
    own: list[ThinkPart] = []
    for part in message.parts:
        if not isinstance(part, ThinkPart):
            continue
        if part.provider is None:
            # Sessions of kimi-cli do not say who thought; it talked to one family of models above all.
            if dialect.name == "moonshot":
                own.append(part)
        elif part.provider == provider and family(part.model or "") == family(model):
            own.append(part)
    return own


def _field(parts: list[ThinkPart], dialect: Dialect) -> str:
    came = next((part.field for part in parts if part.field), None) or "reasoning_content"
    if dialect.reasoning == "as_came":
        return "reasoning" if came in {"reasoning_details", "thinking"} else came
    if dialect.reasoning == "reasoning_details":
        return "reasoning"
    return dialect.reasoning
