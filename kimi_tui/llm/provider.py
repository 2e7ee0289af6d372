"""The protocol every model speaks here, and the plain values of a stream.

A provider turns (system prompt, tools, history) into a stream of deltas and raises only the errors of
`llm.errors`. Retrying, collecting a message and counting are done by those who call it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from kimi_tui.llm.message import Message

Capability = Literal["image_in", "thinking", "tools"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known about the model in use.

    `window` is its context size in tokens; `window_estimated` is true where nobody told us and a default stands in.
    """

    provider: str
    model: str
    window: int
    window_estimated: bool = False
    capabilities: frozenset[Capability] = frozenset({"tools"})
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkDelta:
    """More reasoning. `field` is the key it came under, `details` raw `reasoning_details` entries of this chunk."""

    text: str
    field: str = "reasoning_content"
    details: tuple[Mapping[str, Any], ...] = ()


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
    """Tokens of one call. `cached` is part of `input`. `estimated` is true where the server sent no figures.

    `prompt_cut` is true where the figures show that the server cut the prompt without a word (it saw far less than
    was sent): the person should be told.
    """

    input: int
    output: int
    cached: int = 0
    estimated: bool = False
    prompt_cut: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The stream ended in order. `reason` is normalised: stop, tool_calls, length or content_filter."""

    reason: Literal["stop", "tool_calls", "length", "content_filter"]


StreamItem = TextDelta | ThinkDelta | ToolCallDelta | Usage | Finished


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer: the message to store, what it cost, and why it ended."""

    message: Message
    usage: Usage
    finish: Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """A failed attempt that will be tried again after `wait_s` seconds; its partial text counts for nothing."""

    attempt: int
    max_attempts: int
    wait_s: float
    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a call is repeated (defaults as in kimi-cli)."""

    max_attempts: int = 3
    initial_s: float = 0.3
    max_s: float = 5.0
    jitter_s: float = 0.5
    longest_wait_s: float = 60.0


class ChatProvider(Protocol):
    """A model that can be asked. Implementations: `openai_compat`, `scripted`.

    Attributes:
        use_tools: false: whoever asks names no tools, because this model calls none.
    """

    use_tools: bool = True

    @property
    def info(self) -> ModelInfo:
        """The model, as known now (a refusal may teach its real window)."""
        ...

    def generate(
        self, system: str, tools: Sequence[ToolSpec], history: Sequence[Message]
    ) -> AsyncIterator[StreamItem]:
        """Ask once, without retrying.

        Args:
            system: the system prompt, may be empty.
            tools: what the model may call, may be empty.
            history: the stored messages, in order; turning them into what is sent is the provider's part.

        Raises:
            LLMError: any of `llm.errors`; a stream that ends without a `Finished` raises `APIStreamError`.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
