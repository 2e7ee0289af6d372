"""The protocol that every model implements, and the plain values of its stream.

A provider turns (system prompt, tools, history) into a stream of items and raises only the errors of `llm.errors`.
`completion` retries, collects the message and counts tokens. `check_origin` says where a key may be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
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
        provider: the provider's name in the config.
        model: the model's id at the provider.
        window: the size of its context in tokens.
        window_estimated: the size is guessed from the name, or a default.
        capabilities: the kinds of input it accepts, and the features it has.
        thinking: the model is asked to think, or always does.
        effort: the effort, if the request names one.
        one_at_a_time: its server answers one request after another, as far as is known, so a second request delays the next one.
        lean: whether the configuration asks for the lean form of prompt and tools; None if it does not say.
        larger: a sentence that says how the user can give the model a larger window; empty if its server has no way.
        enlarged: the window in tokens that `ChatProvider.enlarge` can have the server make; 0 if it cannot.
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
    """A piece of reasoning. `field` is the key under which it came, `details` the raw `reasoning_details` entries of its chunk."""

    text: str
    field: str = "reasoning_content"
    details: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TextWasThought:
    """All text of this answer up to here was reasoning: the closing tag came, and the server had left out the opening one."""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of one tool call. `position` counts the calls of this answer from 0; the decoder assigns it (by index, by a new
    id, or by a second complete object). `id` and `name` come once, `arguments` in pieces.
    """

    position: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    extras: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `cached` is part of `input`. `estimated` is true if the server did not send both figures,
    `input_estimated` if it did not send the figure of the input.

    `prompt_cut` is true where the figures show that the server silently cut the prompt (it counted far fewer tokens than were
    sent); the user must be told.
    """

    input: int
    output: int
    cached: int = 0
    estimated: bool = False
    prompt_cut: bool = False
    input_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The stream ended in order. `reason` is normalised to stop, tool_calls, length or content_filter."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class PromptRead:
    """The number of prompt tokens that the server has read so far, and their total; tokens cached from an earlier call are
    not counted.
    """

    read: int
    total: int


@dataclass(slots=True)
class Overdue:
    """A limit of the wait for the answer was reached. If nobody sets `decision`, the stream ends with an `AnswerOverdueError`.

    Attributes:
        text: one sentence that says for what the program waited.
        near: the server is on this machine or in this network.
        decision: a task whose result says whether to wait on; if not, the request is made again. It is cancelled if the
            answer comes first.
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
    """One whole answer: the message to store, its usage, and the reason for its end."""

    message: Message
    usage: Usage
    finish: FinishReason


class ChatProvider(Protocol):
    """The interface of a model. Implementations: `openai_compatible`, `scripted`.

    Attributes:
        use_tools: whether requests carry tools; some models think only without them.
    """

    use_tools: bool = True

    @property
    def info(self) -> ModelInfo:
        """The model as it is known now (a refusal may teach its real window)."""
        ...

    def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncGenerator[StreamItem]:
        """Ask once, without retrying.

        Args:
            system: the system prompt; may be empty.
            tools: the tools that the model may call; may be empty.
            history: the stored messages, in order; the provider turns them into the messages that it sends.
            most_tokens: the limit of the answer in tokens, reasoning included, if the server accepts a limit; 0 for none.

        Raises:
            LLMError: any of `llm.errors`; a stream that ends without a `Finished` raises `APIStreamError`.
        """
        ...

    @property
    def thinking_choices(self) -> tuple[str, ...]:
        """The words that `set_thinking` accepts for this model: `on`, `off` and efforts; empty if nothing can be set."""
        return ()

    @property
    def thinking_setting(self) -> str:
        """The setting of thinking that the user made; empty for none."""
        return ""

    def set_thinking(self, word: str) -> None:
        """Set from the next call on whether the model thinks: `on`, `off`, or an effort (`low`, `high` ...).

        Raises:
            LLMError: the model does not have this setting; the text names those it has.
        """
        raise LLMError(f"{self.info.model} has no setting for reasoning.")

    async def prepare(self) -> tuple[str, ...]:
        """Ask the server for facts about the model. The work is done once, takes seconds at most, and never fails.

        Returns:
            sentences for the user.
        """
        return ()

    @property
    def prepares_first(self) -> bool:
        """Whether a request waits for `prepare` anyway, so that other callers that need the facts may wait for them too."""
        return False

    async def enlarge(self) -> str:
        """Have the server make a copy of this model with a window of `ModelInfo.enlarged` tokens; return its name.

        Raises:
            LLMError: the server cannot make it, or refused.
        """
        raise LLMError(
            f"The server of {self.info.model} cannot make a copy of it with a larger context window."
        )

    def beside(self, session_id: str) -> ChatProvider:
        """Return a provider of the same model with the same settings, for an agent beside the one that uses this one.

        Closing either leaves the other open; by default it is this one, whose connections no agent beside it closes.

        Args:
            session_id: tells the server's cache apart from that of other conversations.
        """
        del session_id
        return BorrowedProvider(self)

    @property
    def made_with(self) -> Mapping[str, Any] | None:
        """The facts with which another process can make the same model, its key among them; None if none can."""
        return None

    async def aclose(self) -> None:
        """Close connections."""
        ...


class BorrowedProvider(ChatProvider):
    """A provider that another agent owns, and that stays open.

    Args:
        owned: the provider.
    """

    def __init__(self, owned: ChatProvider) -> None:
        self._owned = owned

    @property
    def info(self) -> ModelInfo:
        """See `ChatProvider.info`."""
        return self._owned.info

    def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncGenerator[StreamItem]:
        """See `ChatProvider.generate`."""
        return self._owned.generate(system, tools, history, most_tokens=most_tokens)

    async def prepare(self) -> tuple[str, ...]:
        """See `ChatProvider.prepare`."""
        return await self._owned.prepare()

    @property
    def prepares_first(self) -> bool:
        """See `ChatProvider.prepares_first`."""
        return self._owned.prepares_first

    async def aclose(self) -> None:
        """Leave it open."""


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def no_base_url(url: str) -> LLMError:
    """Return the error for a text that is not the base URL of a server."""
    return LLMError(
        f"{shown_url(url)!r} is not a base URL.",
        advice="A base URL looks like https://api.moonshot.ai/v1.",
    )


def check_origin(base_url: str, api_key: str, headers: Mapping[str, str] = NO_HEADERS) -> str:
    """Return the host of a base URL to which a key, the user's own headers and a login in the URL may be sent.

    Raises:
        LLMError: the URL is no web address or has a part after its path, or one of them would cross a network unencrypted or
            has characters that no header can hold.
    """
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").lower()
        _ = parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise no_base_url(base_url)
    if parts.query or parts.fragment:
        # The path of a request would be appended to it, and a key in it would stand in the logs of each server.
        raise LLMError(
            f"The base URL of {host} has a part after its path, which cannot be used.",
            advice="Remove everything from the ? or # on. A key has a setting of its own.",
        )
    secret = "key" if api_key else "configured headers" if headers else ""
    if "@" in parts.netloc:
        # The HTTP library sends what stands before the host with each request, in place of a key.
        secret = secret or "user name and password in the base URL"
    if parts.scheme == "http" and secret and not is_loopback(host):
        raise LLMError(
            f"The {secret} would be sent to {host} unencrypted.",
            advice=f"Use https; or, for a server in your own network, remove the {secret}.",
        )
    for what, value in (("key", api_key), *((f"header {name}", headers[name]) for name in headers)):
        if not (value.isascii() and value.isprintable()):
            # Some HTTP libraries name such a text in their error, and some send the part after a line end as another header.
            raise LLMError(
                f"The {what} for {host} contains characters that cannot be sent.",
                advice="Copy the value again; it may contain a line break or a non-ASCII letter.",
            )
    return host
