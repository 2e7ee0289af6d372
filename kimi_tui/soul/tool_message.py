"""What a tool gave back, as the message the model reads.

The form is kimi-cli's: a line about the call in system tags, then the output as it was.
"""

from __future__ import annotations

from kimi_tui.llm.message import ContentPart, Message, TextPart
from kimi_tui.tools.base import ToolOutcome

INTERRUPTED = "The person stopped this call before it ended. It may have taken effect in part: look before you rely on it."
_NOT_RUN = "Not run: "
_REFUSED = "The person refused this call"
NOT_RUN = f"{_NOT_RUN}the person refused another call of this step."
NOT_BEGUN = f"{_NOT_RUN}the person stopped the agent before this call began."
REJECTED = f"{_REFUSED}. Do not try to reach the same by another way; ask what they want."


def tool_message(call_id: str, outcome: ToolOutcome) -> Message:
    """The stored message for one result."""
    parts: list[ContentPart] = []
    if outcome.is_error:
        parts.append(TextPart(text=f"<system>ERROR: {outcome.message or 'It failed.'}</system>"))
    elif outcome.message:
        parts.append(TextPart(text=f"<system>{outcome.message}</system>"))
    if outcome.output:
        parts.append(TextPart(text=outcome.output))
    elif not parts:
        parts.append(TextPart(text="<system>Tool output is empty.</system>"))
    return Message(role="tool", content=parts, tool_call_id=call_id)


def outcome_of(message: Message) -> ToolOutcome:
    """The result as far as its message still tells it: for conversations whose record is missing."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    first = texts[0] if texts else ""
    if first.startswith("<system>") and first.endswith("</system>"):
        line = first.removeprefix("<system>").removesuffix("</system>")
        failed = line.startswith("ERROR: ")
        return ToolOutcome("".join(texts[1:]), line.removeprefix("ERROR: "), failed)
    return ToolOutcome("".join(texts))


def never_ran(outcome: ToolOutcome) -> bool:
    """Whether the result only says that the call was refused, or that the agent was stopped before it."""
    return outcome.message.startswith((_REFUSED, _NOT_RUN))


def rejection(feedback: str) -> ToolOutcome:
    """The result of a call that the person said no to."""
    if feedback:
        return ToolOutcome(
            message=f"{_REFUSED} and says: {feedback}",
            is_error=True,
            brief="refused",
        )
    return ToolOutcome(message=REJECTED, is_error=True, brief="refused")
