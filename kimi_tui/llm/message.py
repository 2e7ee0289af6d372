"""Messages as `context.jsonl` holds them, one pydantic model each.

The JSON follows kimi-cli's final format, so its sessions parse as they are. Keys that a model here does not define are not
lost: the session keeps raw lines and copies them as bytes; models are only built to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

Role = Literal["system", "user", "assistant", "tool"]

MANY = 500
"""A message with more calls or parts than this is validated and written one by one: handling all of them in one call of
pydantic would hold the interpreter, and so the event loop, for tens of milliseconds, even from a thread.
"""


class _Stored(BaseModel):
    """Base of all stored shapes: unknown keys are kept, and values are immutable."""

    model_config = ConfigDict(extra="allow", frozen=True)


class TextPart(_Stored):
    """A run of text.

    `attached` is set on text that the program added to the user's message; it describes the text to the user.
    """

    type: Literal["text"] = "text"
    text: str
    attached: str | None = None


class ThinkPart(_Stored):
    """Reasoning the model wrote before its answer.

    `field` is the key under which it came (`reasoning_content`, `reasoning`, …); `provider` and `model` say which model wrote
    it. It is only ever sent back to the same provider and model family, in that field. `details` are OpenRouter's or
    MiniMax's `reasoning_details`, returned unchanged and in order.
    """

    type: Literal["think"] = "think"
    think: str
    encrypted: str | None = None
    field: str | None = None
    provider: str | None = None
    model: str | None = None
    details: list[dict[str, Any]] | None = None


class ImageURL(_Stored):
    """The location of an image, and its known properties.

    In a session `url` is the reference to a stored image (`session.images`), in a request it is a `data:` URL; sessions of
    other programs may hold other URLs. `width` and `height` are pixels.
    """

    url: str
    id: str | None = None
    name: str | None = None
    media_type: str | None = None
    width: int | None = None
    height: int | None = None
    n_bytes: int | None = None


class ImagePart(_Stored):
    """An image in a user message, or in the result of a tool.

    `attached` is set if the program added the image because the user's text names its file.
    """

    type: Literal["image_url"] = "image_url"
    image_url: ImageURL
    attached: bool | None = None


class UnknownPart(_Stored):
    """A part of a type that only a later version or another program knows: it is kept in the file, ignored here, and never sent."""

    type: str = ""


def _part_tag(value: Any) -> str:
    kind: object = getattr(value, "type", None)
    if isinstance(value, dict):
        kind = cast("dict[str, object]", value).get("type")
    return kind if isinstance(kind, str) and kind in {"text", "think", "image_url"} else "unknown"


ContentPart = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ThinkPart, Tag("think")]
    | Annotated[ImagePart, Tag("image_url")]
    | Annotated[UnknownPart, Tag("unknown")],
    Discriminator(_part_tag),
]


class FunctionCall(_Stored):
    """The function a model wants called; `arguments` is JSON text exactly as the model wrote it."""

    name: str
    arguments: str | None = None


class ToolCall(_Stored):
    """One call of a tool. `id` is the provider's own and may be empty or repeat across turns."""

    type: Literal["function"] = "function"
    id: str
    function: FunctionCall
    extras: dict[str, Any] | None = None


class Message(_Stored):
    """One message of the conversation, in its stored form.

    `interrupted` marks an assistant message whose stream ended early: the user stopped it, or the failure `broken`, a sentence, ended
    it. Such a message is sent without its reasoning, and without these two marks.
    """

    role: Role
    content: str | list[ContentPart] = Field(default_factory=list)
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    interrupted: bool | None = None
    broken: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Message:
        """Return the message that a stored object holds.

        Raises:
            ValidationError: the object is no message.
            RecursionError: the object is nested too deeply.
        """
        parts, calls = _many(record.get("content")), _many(record.get("tool_calls"))
        if not (parts or calls):
            return cls.model_validate(record)
        whole = dict(record)
        if parts:
            whole["content"] = [
                cls.model_validate({"role": "user", "content": [part]}).content[0] for part in parts
            ]
        if calls:
            whole["tool_calls"] = [ToolCall.model_validate(call) for call in calls]
        return cls.model_validate(whole)

    @property
    def is_long(self) -> bool:
        """Whether the message has so many calls or parts that it must not be handled in one go."""
        n_parts = 0 if isinstance(self.content, str) else len(self.content)
        return max(n_parts, len(self.tool_calls or ())) > MANY

    @property
    def parts(self) -> list[ContentPart]:
        """The content as a list of parts, whether it is stored as a list or as a string."""
        if isinstance(self.content, str):
            return [TextPart(text=self.content)] if self.content else []
        return self.content

    @property
    def text(self) -> str:
        """All text parts joined, without reasoning and without attached text."""
        # Most messages are stored so, and every request of a long conversation asks each of them.
        if isinstance(self.content, str):
            return self.content
        return "".join(
            part.text for part in self.parts if isinstance(part, TextPart) and not part.attached
        )

    @property
    def attached(self) -> tuple[str, ...]:
        """The descriptions of the message's attachments, as shown to the user."""
        if isinstance(self.content, str):
            return ()
        return tuple(
            part.attached for part in self.parts if isinstance(part, TextPart) and part.attached
        )

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The image parts of the message."""
        if isinstance(self.content, str):
            return ()
        return tuple(part for part in self.content if isinstance(part, ImagePart))

    @property
    def thinking(self) -> str:
        """The whole reasoning of the message, joined."""
        if isinstance(self.content, str):
            return ""
        return "".join(part.think for part in self.parts if isinstance(part, ThinkPart))

    def stored(self) -> dict[str, Any]:
        """Return the object that `context.jsonl` holds: nulls are left out, a lone text part is a plain string.

        `content`, and `arguments` of a call, are there even where they are empty: kimi-cli opens no session without them.
        Values are unchanged, including those that JSON cannot represent.
        """
        if not self.is_long:
            return _complete(self.model_dump(exclude_none=True))
        content: object = self.content
        if not isinstance(self.content, str):
            content = [part.model_dump(exclude_none=True) for part in self.content]
        record: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls is not None:
            record["tool_calls"] = [call.model_dump(exclude_none=True) for call in self.tool_calls]
        rest = self.model_dump(exclude_none=True, exclude={"content", "tool_calls"})
        return _complete({**record, **rest})


def _many(items: object) -> list[object]:
    """Return a list that is too long to be handled in one go; an empty list for anything else."""
    if not isinstance(items, list):
        return []
    found = cast("list[object]", items)
    return found if len(found) > MANY else []


def _complete(record: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] | str = record["content"]
    if isinstance(content, list) and len(content) == 1 and set(content[0]) == {"type", "text"}:
        record["content"] = content[0]["text"]
    for call in record.get("tool_calls", ()):
        call["function"].setdefault("arguments", "")
    return record


def user_message(text: str) -> Message:
    """Return a message of the role `user` with plain text."""
    return Message(role="user", content=text)
