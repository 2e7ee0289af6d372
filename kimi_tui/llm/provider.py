"""The protocol that every model implements, and the plain values of its stream.

A provider turns (system prompt, tools, history) into a stream of items and raises only the errors of `llm.errors`.
Retrying, collecting a message and counting are done by `completion`. `check_origin` says where a key may be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from kimi_tui.base_url import is_loopback, shown_url
from kimi_tui.llm.errors import LLMError

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

Capability = Literal["image_in", "thinking", "tools"]
FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model in use: names, context window and capabilities, as far as they are known.

    Attributes:
        provider: its name in the config.
        model: its id at the provider.
        window: its context size in tokens.
        window_estimated: the size is guessed from the name, or a default.
        capabilities: what it can take and do.
        thinking: it is asked to think, or always does.
        effort: how much, if the request says so.
        one_at_a_time: its server answers one request after another, as far as is known: a second one holds up the next.
        lean: whether the configuration asks for the lean form of prompt and tools; None where it does not say.
        larger: a sentence on how the user gives the model a larger window, where its server has a way; else empty.
        enlarged: the window in tokens that `ChatProvider.enlarge` can have the server make; 0 where it cannot.
    """

    provider: str
    model: str
    window: int
    window_estimated: bool = False
    capabilities: frozenset[Capability] = frozenset({"tools"})
    thinking: bool = False
    effort: str = ""
    one_at_a_time: bool = False
    lean: bool | None = None
    larger: str = ""
    enlarged: int = 0


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is described to the model; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the streamed text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkDelta:
    """A piece of reasoning. `field` is the key it came under, `details` raw `reasoning_details` entries of this chunk."""

    text: str
    field: str = "reasoning_content"
    details: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TextWasThought:
    """All text of this answer up to here was reasoning: its end came, and the server had left out its beginning."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of one tool call. `position` counts the calls of this answer from 0 and is settled by the decoder
    (merged by index, new id or a second complete object); `id` and `name` come once, `arguments` in pieces."""

    position: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    extras: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `cached` is part of `input`. `estimated` is true where the server did not send both figures,
    `input_estimated` where it did not send that of the input either.

    `prompt_cut` is true where the figures show that the server silently cut the prompt (it counted far less than
    was sent): the user is to be told.
    """

    input: int
    output: int
    cached: int = 0
    estimated: bool = False
    prompt_cut: bool = False
    input_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The stream ended in order. `reason` is normalised: stop, tool_calls, length or content_filter."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class PromptRead:
    """How far the server has read the prompt, in tokens; those it still had from an earlier call are not counted."""

    read: int
    total: int


@dataclass(slots=True)
class Overdue:
    """A limit of the wait for the answer was reached. Where nobody sets `decision`, the stream ends with an `AnswerOverdueError`.

    Attributes:
        text: what was waited for, in one sentence.
        near: the server is on this machine or in this network.
        decision: decides whether to wait on, else the request is made again. It is cancelled where the answer comes before it
            has decided.
    """

    text: str
    near: bool = False
    decision: asyncio.Task[bool] | None = None


StreamItem = (
    TextDelta
    | ThinkDelta
    | TextWasThought
    | ToolCallDelta
    | Usage
    | Finished
    | PromptRead
    | Overdue
)


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer: the message to store, what it cost, and why it ended."""

    message: Message
    usage: Usage
    finish: FinishReason


class ChatProvider(Protocol):
    """The interface of a model that can be asked. Implementations: `openai_compatible`, `scripted`.

    Attributes:
        use_tools: whether requests carry tools; some models think only without them.
    """

    use_tools: bool = True

    @property
    def info(self) -> ModelInfo:
        """The model, as known now (a refusal may teach its real window)."""
        ...

    def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncIterator[StreamItem]:
        """Ask once, without retrying.

        Args:
            system: the system prompt, may be empty.
            tools: what the model may call, may be empty.
            history: the stored messages, in order; turning them into what is sent is the provider's part.
            most_tokens: how long the answer may be, reasoning counted, where the server takes a limit; 0 for none of ours.

        Raises:
            LLMError: any of `llm.errors`; a stream that ends without a `Finished` raises `APIStreamError`.
        """
        ...

    @property
    def thinking_choices(self) -> tuple[str, ...]:
        """What `set_thinking` takes of this model: `on`, `off` and efforts; empty where nothing can be set."""
        return ()

    @property
    def thinking_setting(self) -> str:
        """The setting of thinking that the user made; empty for none."""
        return ""

    def set_thinking(self, word: str) -> None:
        """Set from the next call on whether the model thinks: `on`, `off`, or an effort (`low`, `high` ...).

        Raises:
            LLMError: the model does not take that; the text names what it takes.
        """
        raise LLMError(f"{self.info.model} takes no setting for thinking.")

    async def prepare(self) -> tuple[str, ...]:
        """Find out what the server tells of the model. Does its work once, takes seconds at most, and never fails.

        Returns:
            sentences for the user.
        """
        return ()

    @property
    def prepares_first(self) -> bool:
        """Whether a request waits for `prepare` anyway, so that whoever needs the facts before it may wait for them too."""
        return False

    async def enlarge(self) -> str:
        """Have the server make a model like this one with a window of `ModelInfo.enlarged` tokens; returns its name.

        Raises:
            LLMError: the server has no way, or refused.
        """
        raise LLMError(f"{self.info.model} cannot be given a larger window from here.")

    async def aclose(self) -> None:
        """Close connections."""
        ...


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def check_origin(base_url: str, api_key: str, headers: Mapping[str, str] = NO_HEADERS) -> str:
    """The host of a base URL that a key and the user's own headers may be sent to.

    Raises:
        LLMError: this is no web address, one of them would cross a network unencrypted, or cannot stand in a header.
    """
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").lower()
        _ = parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise LLMError(
            f"{shown_url(base_url)!r} is no base URL.",
            advice="It looks like https://api.moonshot.ai/v1.",
        )
    if parts.scheme == "http" and (api_key or headers) and not is_loopback(host):
        what = "key" if api_key else "configured headers"
        raise LLMError(
            f"The {what} would go to {host} unencrypted.",
            advice=f"Use https, or no {what} for a server in your own network.",
        )
    for what, value in (("key", api_key), *((f"header {name}", headers[name]) for name in headers)):
        if not (value.isascii() and value.isprintable()):
            # Of those that send it, some name the text in their error, and some send what follows a line's end.
            raise LLMError(
                f"The {what} for {host} has characters that no header can hold.",
                advice="Copy it again: it may hold a line's end, or a letter of another script.",
            )
    return host
