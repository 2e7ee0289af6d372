"""`ScriptedProvider`, a model whose answers come from a TOML script, for the demo and for tests without a socket.

The script is TOML. Everything is optional but one of `think`, `text`, `calls` or `error` in an answer:

    suggestions = ["What the user may say first", "and next"]   # for who offers them; see `suggestions`
    fallback = "What is said when no answer fits."

    [model]
    name = "scripted"
    provider = "demo"
    window = 32000
    thinking = true
    capabilities = ["image_in"]

    [[answer]]
    when = "parser"            # text, or a list of which one is enough: something said since the last answer holds it
    aside = false              # true: looked at before all others, does not move the script on (for a summary)
    pause_s = 0.4              # before the first piece
    rate = 60                  # pieces (about a word each) a second; 0 = at once
    think = "Reasoning, streamed first."
    text = "The answer."
    finish = "stop"            # stop, tool_calls, length or content_filter; usually right by itself
    usage = { input = 1200, output = 30, cached = 0 }   # else counted

      [[answer.calls]]
      name = "ReadFile"
      arguments = { path = "a.py" }       # a table, or text that is sent as it is
      id = "call_1"                       # else made up

    [[answer]]
    error = { kind = "status", status = 429, message = "Busy.", retry_after_s = 2 }
    error_after = 3            # pieces that come before it

Kinds of errors: status (with `status`, `code`, `retryable`), connection, timeout, stream, empty, overflow (with
`window`).

The next answer is the one after the last, if it has no `when` or its `when` fits; else the next one in a circle whose `when`
fits; else the fallback. So the script follows a user who rewinds and asks again. An answer without `when` is only ever
reached from the one before it.

In texts and arguments `{checkpoint}` is the newest checkpoint the conversation names, `{checkpoint-2}` two before it,
`{checkpoint_before:TEXT}` the newest one before the first message or call that holds TEXT, and `{said}` is what the
user said last. An argument that is nothing but a checkpoint becomes a number.
"""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kimi_tui.llm import tokens
from kimi_tui.llm.errors import (
    RETRIED,
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
    APITimeoutError,
    ContextOverflowError,
    LLMError,
)
from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import (
    Capability,
    ChatProvider,
    Finished,
    FinishReason,
    ModelInfo,
    StreamItem,
    TextDelta,
    ThinkDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
)
from kimi_tui.prompts import CHECKPOINT_MARKER


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedModel(_Strict):
    """The `[model]` table of a script."""

    name: str = "scripted"
    provider: str = "script"
    window: int = Field(default=128_000, gt=0)
    thinking: bool = False
    capabilities: list[Capability] = Field(default_factory=list[Capability])


class ScriptedCall(_Strict):
    """One tool call."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict[str, Any])
    id: str | None = None


class ScriptedUsage(_Strict):
    """The token figures of an answer."""

    input: int
    output: int
    cached: int = 0


class ScriptedError(_Strict):
    """A failure instead of an answer, or in the middle of one."""

    kind: Literal["status", "connection", "timeout", "stream", "empty", "overflow"]
    message: str = "The script says that this fails."
    status: int = 500
    code: str = ""
    retry_after_s: float | None = None
    retryable: bool | None = None
    window: int | None = None

    def raised(self) -> LLMError:
        """Return the exception to raise."""
        match self.kind:
            case "connection":
                return APIConnectionError(self.message)
            case "timeout":
                return APITimeoutError(self.message)
            case "stream":
                return APIStreamError(self.message)
            case "empty":
                return APIEmptyResponseError(self.message)
            case "overflow":
                return ContextOverflowError(self.message, status=400, window=self.window)
            case "status":
                retryable = self.status in RETRIED if self.retryable is None else self.retryable
                return APIStatusError(
                    self.message,
                    status=self.status,
                    code=self.code,
                    retry_after_s=self.retry_after_s,
                    retryable=retryable,
                )


class ScriptedAnswer(_Strict):
    """One answer of the script."""

    when: str | list[str] | None = None
    aside: bool = False
    pause_s: float = Field(default=0.0, ge=0)
    rate: float | None = Field(default=None, ge=0)
    think: str = ""
    text: str = ""
    calls: list[ScriptedCall] = Field(default_factory=list[ScriptedCall])
    usage: ScriptedUsage | None = None
    finish: FinishReason | None = None
    error: ScriptedError | None = None
    error_after: int = Field(default=0, ge=0)

    def fits(self, said: str) -> bool:
        """Return whether the text since the last answer contains one of `when`."""
        wanted = [self.when] if isinstance(self.when, str) else self.when or []
        return any(text.lower() in said.lower() for text in wanted)


class Script(_Strict):
    """A script for `ScriptedProvider`: its answers, and the suggestions that the user is offered."""

    suggestions: list[str] = Field(default_factory=list[str])
    fallback: str = "The scripted model has no answer to that."
    rate: float = Field(default=60.0, ge=0)
    model: ScriptedModel = Field(default_factory=ScriptedModel)
    answer: list[ScriptedAnswer] = Field(default_factory=list[ScriptedAnswer])


_PIECES = re.compile(r"\s*\S+|\s+$")
_PLACEHOLDER = re.compile(
    r"\{(?:(?P<said>said)|checkpoint_before:(?P<before>[^{}]+)|checkpoint(?:-(?P<back>\d+))?)\}"
)


class ScriptedProvider(ChatProvider):
    """A model that answers from a script.

    Args:
        script: the answers.
        speed: the factor by which all waits are shortened; 0 for no waiting at all.
    """

    def __init__(self, script: Script, *, speed: float = 1.0) -> None:
        self._script = script
        self._speed = speed
        self._next = 0
        self._seen: list[Message] = []
        self._n_calls = 0
        model = script.model
        self._info = ModelInfo(
            provider=model.provider,
            model=model.name,
            window=model.window,
            capabilities=frozenset({"tools", *model.capabilities}),
            thinking=model.thinking,
        )

    @classmethod
    def from_text(cls, text: str, *, speed: float = 1.0, name: str = "script") -> ScriptedProvider:
        """Return a provider for this TOML.

        Raises:
            LLMError: the text is no script; the error names the place.
        """
        try:
            script = Script.model_validate(tomllib.loads(text))
        except (tomllib.TOMLDecodeError, ValidationError) as error:
            raise LLMError(f"{name} is not a script: {error}") from error
        return cls(script, speed=speed)

    @property
    def info(self) -> ModelInfo:
        """The model as the script describes it."""
        return self._info

    @property
    def suggestions(self) -> Sequence[str]:
        """The suggestions for the user's messages, in order."""
        return self._script.suggestions

    async def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncGenerator[StreamItem]:
        """Yield the next answer of the script; see `ChatProvider.generate`."""
        said = _since_last_answer(history)
        answer = self._choose(said)
        fill = _Filler(history)
        usage = await asyncio.to_thread(self._usage, answer, system, tools, history)
        await self._sleep(answer.pause_s)
        rate = self._script.rate if answer.rate is None else answer.rate
        items = self._items(answer, fill)
        for sent, item in enumerate(items):
            if answer.error is not None and sent >= answer.error_after:
                raise answer.error.raised()
            yield item
            await self._sleep(1 / rate if rate else 0.0)
        if answer.error is not None:
            raise answer.error.raised()
        output = sum(tokens.estimate(_streamed_text(item)) for item in items)
        yield usage if answer.usage is not None else Usage(usage.input, output or 1, usage.cached)
        yield Finished(answer.finish or ("tool_calls" if answer.calls else "stop"))

    def _choose(self, said: str) -> ScriptedAnswer:
        answers = self._script.answer
        # An aside (a request for a summary) contains the words of the conversation, so it is recognised before `when` is
        # searched in them.
        for answer in answers:
            if answer.aside and answer.fits(said):
                return answer
        order = [*range(self._next, len(answers)), *range(min(self._next, len(answers)))]
        for position in order:
            answer = answers[position]
            if answer.aside:
                continue
            if (position == self._next and answer.when is None) or answer.fits(said):
                self._next = position + 1
                return answer
        return ScriptedAnswer(text=self._script.fallback)

    def _items(self, answer: ScriptedAnswer, fill: _Filler) -> list[StreamItem]:
        items: list[StreamItem] = [ThinkDelta(one) for one in _pieces(fill.text(answer.think))]
        items += [TextDelta(one) for one in _pieces(fill.text(answer.text))]
        for position, call in enumerate(answer.calls):
            self._n_calls += 1
            items.append(ToolCallDelta(position, call.id or f"scripted_{self._n_calls}", call.name))
            if isinstance(call.arguments, str):
                written = fill.text(call.arguments)
            else:
                written = json.dumps(fill.value(call.arguments), ensure_ascii=False)
            items += [ToolCallDelta(position, arguments=one) for one in _pieces(written)]
        return items

    def _usage(
        self,
        answer: ScriptedAnswer,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
    ) -> Usage:
        """Return token figures as a server with a prompt cache would report them."""
        if answer.usage is not None:
            return Usage(answer.usage.input, answer.usage.output, answer.usage.cached)
        head = tokens.estimate_fixed(system, tools)
        sizes = [tokens.message_tokens(message) for message in history]
        shared = 0
        for before, now in zip(self._seen, history, strict=False):
            if before is not now and before != now:
                break
            shared += 1
        cached = head + sum(sizes[:shared]) if shared else 0
        self._seen = list(history)
        return Usage(head + sum(sizes), 1, cached)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed if self._speed else 0.0)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


class _Filler:
    """Replaces placeholders by values from the conversation."""

    def __init__(self, history: Sequence[Message]) -> None:
        self._history = history

    def text(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: str(self._fact(found)), text)

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            whole = _PLACEHOLDER.fullmatch(value)
            return self._fact(whole) if whole else self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list):
            return [self.value(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
        return value

    def _fact(self, found: re.Match[str]) -> str | int:
        if found["said"]:
            said = [one.text for one in self._history if one.role == "user"]
            return next((text for text in reversed(said) if not text.startswith("<system")), "")
        if found["before"]:
            return self._checkpoint_before(found["before"])
        ids = self._checkpoints(self._history)
        back = int(found["back"] or 0)
        return ids[-1 - back] if back < len(ids) else 0

    def _checkpoint_before(self, text: str) -> int:
        for position, message in enumerate(self._history):
            calls = message.tool_calls or ()
            if text in message.text or any(text in (c.function.arguments or "") for c in calls):
                ids = self._checkpoints(self._history[:position])
                return ids[-1] if ids else 0
        return 0

    @staticmethod
    def _checkpoints(messages: Sequence[Message]) -> list[int]:
        return [
            int(found[1])
            for message in messages
            if message.role == "user" and (found := CHECKPOINT_MARKER.fullmatch(message.text))
        ]


def _since_last_answer(history: Sequence[Message]) -> str:
    texts: list[str] = []
    for message in reversed(history):
        if message.role == "assistant":
            break
        texts.append(message.text)
    return "\n".join(reversed(texts))


def _pieces(text: str) -> list[str]:
    return _PIECES.findall(text)


def _streamed_text(item: StreamItem) -> str:
    match item:
        case TextDelta(text):
            return text
        case ThinkDelta(text):
            return text
        case ToolCallDelta(arguments=text):
            return text
        case _:
            return ""
