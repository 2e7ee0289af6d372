"""The one function from stored messages to sent ones.

What is stored stays as it came; what is sent is valid for every server: one system message first, no two messages of
one role in a row, no call without result and no result without call, nothing null, nothing empty, no lone surrogate.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kimi_tui.llm.dialects import Dialect
from kimi_tui.llm.loose import without_surrogates
from kimi_tui.llm.message import ImagePart, Message, TextPart
from kimi_tui.llm.reasoning import reasoning_fields
from kimi_tui.llm.tool_pieces import is_object

if TYPE_CHECKING:
    from kimi_tui.llm.message import ContentPart, ToolCall

Sent = dict[str, Any]

INTERRUPTED_RESULT = "The call was interrupted; there is no result."
NO_OUTPUT = "(no output)"
BRIDGE = "I see the results."
GO_ON = "Please go on."
_IMAGES_OF_RESULTS = "Images of the results above:"
_MAX_ID = 40
_ASIDE = re.compile(
    r"\s*(<system>CHECKPOINT \d+</system>|<system-reminder>.*</system-reminder>)\s*", re.DOTALL
)
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Receiver:
    """Who the messages are for: reasoning goes back only to those who wrote it."""

    provider: str
    model: str
    image_in: bool = True


@dataclass(slots=True)
class _Step:
    """One assistant message with its calls, what came back, and what was said among the results."""

    message: Message
    number: int
    results: list[Message] = field(default_factory=list[Message])
    said_after: list[Message] = field(default_factory=list[Message])


def to_sent(
    system: str, history: Sequence[Message], dialect: Dialect, receiver: Receiver
) -> list[Sent]:
    """What is sent for this history.

    Args:
        system: the system prompt; empty for none.
        history: the stored messages in order.
        dialect: how this server wants them, lessons applied.
        receiver: provider and model they go to.
    """
    sent: list[Sent] = []
    systems = [system, *(message.text for message in history if message.role == "system")]
    if head := "\n\n".join(text for text in systems if text.strip()):
        sent.append({"role": "system", "content": without_surrogates(head)})
    writer = _Writer(sent, dialect, receiver)
    for item in _steps(history):
        if isinstance(item, _Step):
            writer.step(item)
        else:
            writer.user(item)
    writer.end()
    return sent


def _steps(history: Sequence[Message]) -> Iterator[_Step | Message]:
    """User messages as they are, assistant messages together with what belongs to their calls."""
    step: _Step | None = None
    for number, message in enumerate(history):
        if message.role == "assistant":
            if step is not None:
                yield from _closed(step)
            step = _Step(message, number)
        elif message.role == "tool":
            # A result without a call before it cannot be sent at all.
            if step is not None:
                step.results.append(message)
        elif message.role == "user":
            if step is None:
                yield message
            else:
                step.said_after.append(message)
    if step is not None:
        yield from _closed(step)


def _closed(step: _Step) -> Iterator[_Step | Message]:
    yield step
    yield from step.said_after


class _Writer:
    """Appends to what is sent, one message after the other, joining what has to be joined."""

    def __init__(self, sent: list[Sent], dialect: Dialect, receiver: Receiver) -> None:
        self._sent = sent
        self._dialect = dialect
        self._receiver = receiver

    # The person, and what was written in the person's place.

    def user(self, message: Message) -> None:
        parts = self._user_parts(message)
        if not parts:
            return
        last = self._sent[-1] if self._sent else None
        role = last["role"] if last is not None else ""
        if last is not None and role == "tool" and _is_aside(message):
            last["content"] += "\n\n" + without_surrogates(message.text.strip())
            return
        if last is not None and role == "user":
            last["content"] = _joined(last["content"], parts)
            return
        if role == "tool" and self._dialect.bridge:
            self._sent.append({"role": "assistant", "content": BRIDGE})
        self._sent.append({"role": "user", "content": _joined("", parts)})

    def _user_parts(self, message: Message) -> list[Sent]:
        found: list[Sent] = []
        for part in message.parts:
            sendable = self._sendable(part)
            if sendable is not None:
                found.append(sendable)
        return found

    def _sendable(self, part: ContentPart) -> Sent | None:
        if isinstance(part, TextPart):
            text = without_surrogates(part.text)
            return {"type": "text", "text": text} if text.strip() else None
        if isinstance(part, ImagePart):
            url = part.image_url.url
            if not self._receiver.image_in or not self._dialect.images:
                return {"type": "text", "text": "[an image that this model cannot see]"}
            if not url.startswith("data:"):
                return {"type": "text", "text": "[an image that is not stored here]"}
            return {"type": "image_url", "image_url": {"url": url}}
        return None

    # The model, and what its tools gave back.

    def step(self, step: _Step) -> None:
        message = step.message
        calls = message.tool_calls or []
        ids = self._ids(calls, step.number)
        entry: Sent = {"role": "assistant"}
        text = without_surrogates(message.text)
        fields = reasoning_fields(
            message, self._dialect, self._receiver.provider, self._receiver.model
        )
        text = fields.pop("", "") + text
        if text.strip():
            entry["content"] = text
        entry.update(fields)
        if calls:
            entry["tool_calls"] = [
                self._call(call, call_id, position)
                for position, (call, call_id) in enumerate(zip(calls, ids, strict=True))
            ]
        elif "content" not in entry:
            return  # nothing was said: an unfinished or failed turn leaves no empty message
        self._append_assistant(entry)
        if calls:
            self._results(calls, ids, step.results)

    def _append_assistant(self, entry: Sent) -> None:
        last = self._sent[-1]["role"] if self._sent else "system"
        if last in {"system", "assistant"}:
            # Strict templates want the person to speak first, and between two answers. `end` said the same when the
            # second answer was asked for, so prompt caches still hit.
            self._sent.append({"role": "user", "content": GO_ON})
        self._sent.append(entry)

    def _call(self, call: ToolCall, call_id: str, position: int) -> Sent:
        arguments = without_surrogates(call.function.arguments or "")
        if not is_object(arguments):
            lost = arguments.strip()
            arguments = json.dumps({"not_json": lost}, ensure_ascii=False) if lost else "{}"
        name = re.sub(r"[^A-Za-z0-9_-]", "_", call.function.name)[:64] or "unknown"
        sent: Sent = {
            "type": "function",
            "id": call_id,
            "function": {"name": name, "arguments": arguments},
        }
        if self._dialect.extra_content:
            extra = (call.extras or {}).get("extra_content")
            if extra:
                sent["extra_content"] = extra
            elif position == 0:
                # Gemini's own word for calls that another model made; it asks for the first of each step only.
                signature = {"thought_signature": "skip_thought_signature_validator"}
                sent["extra_content"] = {"google": signature}
        return sent

    def _ids(self, calls: Sequence[ToolCall], number: int) -> list[str]:
        """As they came where that can be; they may repeat across steps but not within one."""
        ids: list[str] = []
        came: set[str] = set()
        for position, call in enumerate(calls):
            call_id = without_surrogates(call.id)
            if not call_id or call_id in came:
                call_id = f"call_{number}_{position}"
            came.add(call_id)
            if self._dialect.short_ids:
                call_id = _short_id(f"{number}/{position}/{call_id}")
            elif len(call_id) > _MAX_ID or call_id in ids:
                digest = hashlib.sha256(f"{number}/{position}/{call_id}".encode()).hexdigest()
                call_id = f"call_{digest[:32]}"
            ids.append(call_id)
        return ids

    def _results(
        self, calls: Sequence[ToolCall], ids: Sequence[str], results: Sequence[Message]
    ) -> None:
        """One result a call, in the order of the calls: by id where ids tell, else by position."""
        left = list(results)
        chosen: list[Message | None] = [None] * len(calls)
        for position, call in enumerate(calls):
            found = next((one for one in left if call.id and one.tool_call_id == call.id), None)
            if found is not None:
                chosen[position] = found
                left.remove(found)
        known = {call.id for call in calls if call.id}
        for position, message in enumerate(chosen):
            strays = [one for one in left if one.tool_call_id not in known]
            if message is None and strays:
                chosen[position] = strays[0]
                left.remove(strays[0])
        images: list[Sent] = []
        for call_id, message in zip(ids, chosen, strict=True):
            text = INTERRUPTED_RESULT
            if message is not None:
                parts = self._user_parts(message)
                text = "\n".join(one["text"] for one in parts if one["type"] == "text") or NO_OUTPUT
                images += [one for one in parts if one["type"] == "image_url"]
            self._sent.append({"role": "tool", "tool_call_id": call_id, "content": text})
        if images:
            if self._dialect.bridge:
                self._sent.append({"role": "assistant", "content": BRIDGE})
            shown: list[Sent] = [{"type": "text", "text": _IMAGES_OF_RESULTS}, *images]
            self._sent.append({"role": "user", "content": shown})

    def end(self) -> None:
        """A request ends with the person or a result: some servers would go on writing the last answer."""
        if self._sent and self._sent[-1]["role"] in {"assistant", "system"}:
            self._sent.append({"role": "user", "content": GO_ON})


def _is_aside(message: Message) -> bool:
    """Whether the program wrote this, and not the person in the same words."""
    by_person = (message.model_extra or {}).get("by") == "person"
    return not by_person and bool(_ASIDE.fullmatch(message.text))


def _joined(before: str | list[Sent], parts: list[Sent]) -> str | list[Sent]:
    """Content with these parts added: a plain string as long as all of it is text."""
    if isinstance(before, str) and all(part["type"] == "text" for part in parts):
        texts = [before, *(part["text"] for part in parts)]
        return "\n\n".join(text for text in texts if text)
    start: list[Sent] = before if isinstance(before, list) else []
    if isinstance(before, str) and before:
        start = [{"type": "text", "text": before}]
    return [*start, *parts]


def _short_id(text: str) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    letters: list[str] = []
    for _ in range(9):
        number, rest = divmod(number, 62)
        letters.append(_BASE62[rest])
    return "".join(letters)
