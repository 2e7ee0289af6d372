"""The shape of a script for `scripted.ScriptedProvider`, whose docstring describes the format. Only data and its checks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.llm.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
    APITimeoutError,
    ContextOverflowError,
    LLMError,
)
from kimi_tui.llm.provider import Capability

_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedModel(_Strict):
    """What the model says it is."""

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
    """Figures the answer claims."""

    input: int
    output: int
    cached: int = 0


class ScriptedError(_Strict):
    """A failure in place of an answer, or in the middle of it."""

    kind: Literal["status", "connection", "timeout", "stream", "empty", "overflow"]
    message: str = "The script says that this fails."
    status: int = 500
    code: str = ""
    retry_after_s: float | None = None
    retryable: bool | None = None
    window: int | None = None

    def raised(self) -> LLMError:
        """The error itself."""
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
                retryable = self.status in _RETRIED if self.retryable is None else self.retryable
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
    finish: Literal["stop", "tool_calls", "length", "content_filter"] | None = None
    error: ScriptedError | None = None
    error_after: int = Field(default=0, ge=0)

    def fits(self, said: str) -> bool:
        """Whether what was said since the last answer holds one of `when`."""
        wanted = [self.when] if isinstance(self.when, str) else self.when or []
        return any(text.lower() in said.lower() for text in wanted)


class Script(_Strict):
    """A whole script."""

    suggestions: list[str] = Field(default_factory=list[str])
    fallback: str = "My script has nothing to say to that."
    rate: float = Field(default=60.0, ge=0)
    model: ScriptedModel = Field(default_factory=ScriptedModel)
    answer: list[ScriptedAnswer] = Field(default_factory=list[ScriptedAnswer])
