"""Everything that can go wrong when a model is asked, as one small hierarchy.

Messages are written for the person who reads them: what happened, in the provider's own words where there are
any, then what to change. None ever holds a key.
"""

from __future__ import annotations


class LLMError(Exception):
    """Base of all errors here. `advice` says what to change, in one sentence, or is empty."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class LLMNotSet(LLMError):
    """No model is configured."""


class LLMNotSupported(LLMError):
    """The model cannot take this content; where that is known, it is raised before any request."""


class ToolsNotSupported(LLMNotSupported):
    """The server says that this model calls no tools; without them it may answer."""


class APIConnectionError(LLMError):
    """The server could not be reached, or closed the connection before an answer. Retried."""


class APITimeoutError(LLMError):
    """No byte came for longer than the limit. Retried."""


class APIEmptyResponseError(LLMError):
    """The stream ended in order but held neither text nor a tool call. Retried."""


class APIStreamError(LLMError):
    """The stream broke: cut off before a finish reason, or a chunk that is not JSON. Retried."""


class APIStatusError(LLMError):
    """The server answered with an error status, or with an error event inside a stream.

    `status` is the HTTP status (for an error event: the code it names, else 200), `code` the provider's own code
    or type, `request_id` its trace id, `retry_after_s` the wait it asked for. `retryable` follows the rules of the
    dialects: 408, 409, 429, 5xx, except where the words say that waiting will not help.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "",
        request_id: str = "",
        retry_after_s: float | None = None,
        retryable: bool = False,
        advice: str = "",
    ) -> None:
        super().__init__(message, advice=advice)
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.retryable = retryable


class ContextOverflowError(APIStatusError):
    """The request was longer than the model's window. `window` is the size the server named, in tokens."""

    def __init__(
        self, message: str, *, status: int, window: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, status=status, code="context_overflow", advice=advice)
        self.window = window
