"""The errors of model calls: their hierarchy, and classifying a server's answer as one of them.

Texts are written for the user: they say what happened, in the provider's own words if there are any, then what to change. No
text ever holds a key.

`error_of_response`, `error_of_stream_event` and `error_of_wrong_content` classify answers of any shape: they take the
sentence out of the body, shorten it and remove keys. `overflow_of` recognises, in the words of many servers, that a request
was longer than the window. An overflow compacts the conversation, so a sentence counts as one only if it cannot mean another
limit, such as the size of a picture, the length of a name or the number of tools. `retry_after` reads how long a server asks
to wait, from its headers and body.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.logging_setup import written_forms

LEAST_WINDOW = 1_024
"""Tokens. A smaller figure in a text cannot be the context window of a usable model."""


class LLMError(Exception):
    """Base of all errors of model calls. `advice` says in one sentence what to change; it may be empty."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        # Texts of servers may contain lone surrogates, which can be neither written nor drawn.
        self.message = lenient_json.without_surrogates(message)
        self.advice = lenient_json.without_surrogates(advice)
        super().__init__(self.message)


class LLMNotSet(LLMError):
    """No model is configured."""


class LLMNotSupported(LLMError):
    """The model cannot take this content. If that is known in advance, the error is raised before any request.

    Attributes:
        missing: the capabilities that the model lacks, by their names in `provider.Capability`.
    """

    def __init__(self, message: str, *, advice: str = "", missing: Collection[str] = ()) -> None:
        super().__init__(message, advice=advice)
        self.missing = frozenset(missing)


class ToolsNotSupported(LLMNotSupported):
    """The server says that this model calls no tools; without tools it may answer."""

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message, advice=advice, missing={"tools"})


class ModelCannotSee(LLMNotSupported):
    """A message has images and the model accepts none; nothing was sent or stored.

    Args:
        model: the name of the model.
        seeing: the names of configured models that accept images.
    """

    def __init__(self, model: str, seeing: Sequence[str]) -> None:
        names = ", ".join(seeing)
        super().__init__(
            f"{model} does not accept images.",
            advice=f"These models do: {names}. Choose one with /model."
            if names
            else "Choose a model with image input (/model), or add image_in to the capabilities of this model in config.toml.",
            missing={"image_in"},
        )

    def __str__(self) -> str:
        return f"{self.message} {self.advice}"


class APIConnectionError(LLMError):
    """The server could not be reached, or closed the connection before an answer. Retried."""


class APITLSError(LLMError):
    """The server's certificate is not trusted, or it does not speak TLS. Final."""


class NetworkSettingError(LLMError):
    """A variable of the environment names a proxy or certificates that cannot be used. Final."""


class ProxyError(LLMError):
    """The proxy refuses the connection: it requires another login, or does not allow this server. Final."""


class APITimeoutError(LLMError):
    """The server accepted no connection in time. Retried."""


class AnswerOverdueError(APITimeoutError):
    """A limit of the wait for an answer was reached. Retried only if the user asked for it.

    The server reads and bills another request from its beginning, and may take as long again.

    Attributes:
        again: whether the user asked for another request.
    """

    def __init__(self, message: str, *, advice: str = "", again: bool = False) -> None:
        super().__init__(message, advice=advice)
        self.again = again


class APIEmptyResponseError(LLMError):
    """The stream ended in order but contained neither text nor a tool call. Retried."""


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
        self.code = lenient_json.without_surrogates(code)
        self.request_id = lenient_json.without_surrogates(request_id)
        self.retry_after_s = retry_after_s
        self.retryable = retryable


class ContextOverflowError(APIStatusError):
    """The request was longer than the model's window. `window` is the size the server named, in tokens."""

    def __init__(
        self, message: str, *, status: int, window: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, status=status, code="context_overflow", advice=advice)
        self.window = window


_MOST_CHARS = 20_000
"""Number of characters of an answer that are read. The error's sentences are at its beginning; the rest may repeat the request."""
_MOST_TOKENS = 100_000_000

_CODES = frozenset(
    (
        *("context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"),
        *("context_window_exceeded", "contextwindowexceedederror", "context_length_error"),
        *("model_max_prompt_tokens_exceeded", "tokens_limit_reached"),
    )
)
_OTHER_CODES = frozenset(
    (
        *("string_above_max_length", "array_above_max_length", "invalid_image", "image_too_large"),
        *("invalid_image_format", "invalid_base64", "rate_limit_exceeded", "tool_use_failed"),
        *("string_too_long", "too_long", "unsupported_file", "integer_above_max_value"),
    )
)

# Each gap is bounded, so that a hostile text is not searched again from each possible beginning.
_TEXTS = (
    r"exceeded model token limit",
    r"input token length too long",
    r"context_length_exceeded",
    r"contextwindowexceedederror",
    r"maximum context length (?:is|of) \d",
    r"exceeds?(?: the)?(?: model'?s)?(?: maximum)? context (?:window|length|limit|size)",
    r"input tokens exceed the configured limit",
    r"your prompt contains at least \d{1,12} input tokens",
    r"requested \d{1,12} output tokens",
    r"input \(\d{1,12} tokens\) is longer than the model'?s context length",
    r"must be less than max_seq_len",
    r"too large for model with \d{1,12} maximum context length",
    r"input token count.{0,80}exceeds the maximum",
    r"reduce the length of the messages",
    r"exceed_context_size_error",
    r"exceeds the available context size",
    r"context size has been exceeded",
    r"greater than the context length",
    r"trying to keep the first \d{1,12} tokens",
    r"cannot truncate prompt with n_keep",
    r"context window exceeds limit",
    r"range of input length should be",
    r"model_context_window_exceeded",
    r"prompt too long; exceeded (max )?context length",
    r"prompt is too long",
    r"maximum prompt length is \d",
    r"maximum allowed input length",
    # Anthropic (also through Databricks and Bedrock); Vertex; GitHub; Volcengine.
    r"input length and .{0,4}max_tokens.{0,4} exceed context limit",
    r"input token count is \d{1,12} but .{0,40}only supports up to \d",
    r"request body too large for .{0,80}max size: ?\d{1,12} tokens",
    r"exceed max message tokens",
    # TGI and Together; vLLM; TensorRT; Cohere, whose "too many tokens, please wait" means a rate limit at Bedrock.
    r"inputs.{0,4} tokens \+ .{0,4}max_new_tokens.{0,4} must be <= ?\d",
    r"inputs.{0,4} must have less than \d{1,12} tokens",
    r"longer than the maximum model length",
    r"exceeds (?:the )?max_model_len",
    r"max_tokens must be at least 1, got -",
    r"prompt length \(\d{1,12}[\d.]{0,4}\).{0,80}(?:exceed|max_tokens)",
    r"too many tokens: (?:size limit|total number)",
)
_OVERFLOW = re.compile("|".join(_TEXTS), re.IGNORECASE)
_LOOSE = re.compile(
    r"exceeds max length|exceeds the limit of [\d,]|input is too long"
    r"|(?:exceeds?|exceeded|too (?:long|large|many))[^\n]{0,80}\blimit: ?\d",
    re.IGNORECASE,
)
_ABOUT_THE_WINDOW = re.compile(
    r"\btokens?\b|\bcontext\b|\bprompt\b|input length|for (?:the )?requested model", re.IGNORECASE
)
_ABOUT_OTHERS = re.compile(
    r"\b(?:characters?|chars|strings?|images?|pictures?|pixels?|dimensions?|videos?|audio|files?"
    r"|bytes?|[kmg]i?b|tools?|functions?|items?|arrays?|elements?|names?|descriptions?|urls?"
    r"|max_tokens|max_completion_tokens|completion tokens|output tokens)\b",
    re.IGNORECASE,
)
_RATE = re.compile(r"rate.?limit|too many requests|quota|per minute|\bTPM\b", re.IGNORECASE)

_FIGURE = r"(\d[\d,]{0,14})"
# Each pattern has one group: the window. The first plausible one counts.
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\"?n_ctx\"?[\s:=(>]{{0,6}}{_FIGURE}",
        rf"context length (?:is|of)(?: only)? {_FIGURE}",
        rf"token limit[:\s]{{1,4}}{_FIGURE}",
        rf"with (?:a )?(?:maximum (?:of )?)?{_FIGURE} maximum",
        rf"context length \({_FIGURE} tokens\)",
        rf"max_seq_len \({_FIGURE}\)",
        rf"(?:tokens )?allowed \({_FIGURE}\)",
        rf"range of input length should be \[\d{{1,12}}, ?{_FIGURE}\]",
        rf"maximum prompt length is {_FIGURE}",
        rf"exceeds the limit of {_FIGURE}",
        rf"> ?{_FIGURE} maximum",
        rf"available context size \({_FIGURE} tokens\)",
        rf"exceed context limit: [\d,]{{1,15}} \+ [\d,]{{1,15}} > {_FIGURE}",
        rf"context (?:length|window|limit)(?: is| of)?:? {_FIGURE}",
        rf"while limit is {_FIGURE}",
        rf"only supports up to {_FIGURE}",
        rf"max size: ?{_FIGURE} tokens",
        rf"max_new_tokens.{{0,4}} must be <= ?{_FIGURE}",
        rf"must have less than {_FIGURE} tokens",
        rf"maximum model length of {_FIGURE}",
        rf"max_model_len[ =:(]{{1,4}}{_FIGURE}",
        rf"maximum input length \({_FIGURE}\)",
        rf"should not exceed max_(?:num_tokens|seq_len) \({_FIGURE}\)",
        rf"limit for this model is {_FIGURE}",
        rf"in the prompt cannot exceed {_FIGURE}",
        rf"limit: ?{_FIGURE}",
    )
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request was longer than the window. `window` is its size in tokens; None if the text names no plausible size."""

    window: int | None = None


def overflow_of(code: str, said: str, body: str = "", *, accepted: int = 0) -> Overflow | None:
    """Return the overflow that an error reports, or None if the error is about something else.

    Args:
        code: the provider's own code or type.
        said: the sentences of the error.
        body: the whole answer, for a size in a field of its own.
        accepted: the number of input tokens that the server accepted last time; the window cannot be smaller.
    """
    name = code.lower()
    if name in _OTHER_CODES:
        return None
    text = f"{code} {said}"[:_MOST_CHARS]
    windows = _windows(text, accepted) or _windows(_fields(body), accepted)
    window = windows[0] if windows else None
    if name in _CODES:
        return Overflow(window)
    if _RATE.search(text):
        return None
    if _OVERFLOW.search(text):
        return Overflow(window)
    if not _LOOSE.search(text) or not _ABOUT_THE_WINDOW.search(text) or _ABOUT_OTHERS.search(text):
        return None
    # A figure that cannot be the window shows that the sentence is about another limit.
    return Overflow(window) if window is not None or not any(map(str.isdigit, said)) else None


def _windows(text: str, accepted: int) -> list[int]:
    found: list[int] = []
    for pattern in _WINDOWS:
        if match := pattern.search(text):
            size = int(match.group(1).replace(",", ""))
            if max(LEAST_WINDOW, accepted) <= size <= _MOST_TOKENS:
                found.append(size)
    return found


def _fields(body: str) -> str:
    """Return the body's field that names the window, as llama.cpp has it."""
    place = body[:_MOST_CHARS].find('"n_ctx"')
    return body[place : place + 40] if place >= 0 else ""


_UNITS: Mapping[str, float] = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PIECE = (
    r"\d{1,12}(?:\.\d{1,12})? ?(?:m(?:illi)?s(?:ec(?:ond)?s?)?|s(?:ec(?:ond)?s?)?"
    r"|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?)(?![a-z])"
)
_SPAN = rf"{_PIECE}(?:(?:,? and |, ?| )?{_PIECE}){{0,4}}"
_DURATION = re.compile(_SPAN, re.IGNORECASE)
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,12})?) ?(milli|ms|[smhd])", re.IGNORECASE)
_IN_BODY = (
    re.compile(r"retryDelay[\\\"': ]{1,8}(\d{1,12}(?:\.\d{0,12})?s)"),
    re.compile(
        rf"(?:try again|retry|available|wait)(?: again)?(?: in| after| for)?(?: about)? ({_SPAN})",
        re.IGNORECASE,
    ),
)
_RESETS = (
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset-requests-day",
    "x-ratelimit-reset-tokens-minute",
    "ratelimit-reset",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-reset",
)
_LONGEST = 10 * 365 * 86_400.0
_LONGEST_TEXT = 64


def retry_after(
    headers: Mapping[str, str], body: str, now: float, *, limited: bool = True
) -> float | None:
    """Return the wait in seconds that a server asks for, or None.

    Args:
        headers: the headers of the response, with names in lower case.
        body: the body of the response.
        now: the current time in seconds since 1970, to which dates are compared.
        limited: the response reports a rate limit, so the headers that say when limits reset count too.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1_000)
    if after := headers.get("retry-after", "").strip():
        # If a server and a proxy in front of it both send the header, the longer wait counts. Dates contain commas themselves.
        parts = re.split(r",(?![^,]{0,30}GMT)" if "GMT" in after else ",", after[:256])
        waits = [_wait(part.strip(), now) for part in parts]
        found = max((wait for wait in waits if wait is not None), default=None)
        if found is not None:
            return _bounded(found)
    for pattern in _IN_BODY:
        if match := pattern.search(body[:20_000]):
            found = _parsed_duration(match.group(1))
            if found is not None:
                return _bounded(found)
    if not limited:
        return None
    resets = [
        found
        for name in _RESETS
        # A limit that is not used up does not delay the next request.
        if headers.get(name.replace("reset", "remaining"), "0").strip() in {"0", "0.0", ""}
        and (found := _wait(headers.get(name, "").strip(), now)) is not None
    ]
    return _bounded(max(resets)) if resets else None


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), _LONGEST)


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


def _until_date(text: str, now: float) -> float | None:
    """Return the seconds until a date in HTTP or ISO 8601 form; a date without a time zone is in UTC."""
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        pass
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, OverflowError):
        return None


def _parsed_duration(text: str) -> float | None:
    number = _number(text)
    if number is not None:
        return number
    text = text.strip()[:_LONGEST_TEXT]
    if _DURATION.fullmatch(text) is None:
        return None
    amounts = _AMOUNT.findall(text)
    return sum(
        float(amount) * _UNITS.get("ms" if unit.lower() == "milli" else unit.lower(), 0.0)
        for amount, unit in amounts
    )


def _wait(text: str, now: float) -> float | None:
    """Return the seconds that a header means: by a duration, a date, or a moment in seconds or milliseconds since 1970."""
    found = _parsed_duration(text)
    if found is None:
        return _until_date(text, now) if text else None
    if found > 1e11:
        return found / 1_000 - now
    if found > 1e8:
        return found - now
    return found


_WEB_PAGE = "a web page in place of an answer"
_MAX_SENTENCE = 600
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})

_ERRNO = re.compile(r"^\[Errno -?\d{1,6}\] ")
_KEY_LIKE = re.compile(r"\b(sk|pk|key|gsk|xai|AIza)[-_]?[A-Za-z0-9_\-]{12,}")
_FINAL_CODES = {"insufficient_quota", "exceeded_current_quota_error", "access_terminated_error"}
_OUT_OF_MONEY = re.compile(r"\b(insufficient balance|balance|arrears|recharge|credits?)\b", re.I)
_GLM_FINAL = {"1113", "1304", "1308", "1309", "1310"}
"""Zhipu's codes for: no balance; no more calls today; the limit of a plan's hours, of its weeks or months, or the plan itself
is used up.
"""
_SPENT = re.compile(
    r"credit balance|\b(?:any|out of|no) credits|insufficient.?balance|arrear|overdue|good standing",
    re.IGNORECASE,
)
_RENEWED = re.compile(r"usage limit|billing cycle", re.IGNORECASE)
_PERMANENT_500 = re.compile(
    r"jinja|failed to parse tool call arguments|must be at the beginning|roles must alternate"
    r"|cannot pass both content and thinking|requires --jinja",
    re.IGNORECASE,
)
_NO_TOOLS = re.compile(
    r"does not support tools?\b|no endpoints found that support tool use|--enable-auto-tool-choice"
    r"|requires --jinja|tools? (is|are) not supported",
    re.IGNORECASE,
)
_FILTER = re.compile(r"content_filter|considered high risk|content management policy", re.I)
_TRANSIENT_TYPE = re.compile(
    r"overloaded|rate_limit|too_many_requests|server_error|timeout|unavailable|tool_use_failed"
    r"|internal",
    re.IGNORECASE,
)
_MOONSHOT = ("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com")


@dataclass(frozen=True, slots=True)
class ResponseContext:
    """The facts about a response and its request that errors need. `secrets`, which include the key, are never shown."""

    host: str
    model: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: tuple[str, ...] = ()
    now: float = 0.0
    """The time in seconds since 1970, for waits given as dates."""
    accepted: int = 0
    """Input tokens that this model accepted last time: a smaller figure in a refusal is not its window."""
    through: str = ""
    """The name, within a sentence, of a proxy that can answer in place of the server, because nothing is encrypted; empty for none."""
    is_keyless: bool = False
    """Whether the request had neither a key nor headers of the user, which can hold one."""

    @property
    def request_id(self) -> str:
        """The provider's id of this request; the provider's support asks for it."""
        for name in ("x-request-id", "x-trace-id", "x-msh-trace-id", "request-id", "cf-ray"):
            if found := self.headers.get(name, ""):
                return _one_line(redact(found, self.secrets), 80)
        return ""


@dataclass(frozen=True, slots=True)
class _ErrorBody:
    """The contents of an error body.

    Attributes:
        sentence: the sentence to show.
        code: the provider's own code or type.
        status: the HTTP status that the body names; 0 for none.
        said: all sentences in the body, one per line, without repeated parts of the request.
    """

    sentence: str
    code: str
    status: int
    said: str = ""


def _parse_error_body(body: Any) -> _ErrorBody:
    """Find the sentence and the codes in a body of any shape; at most 50 values are visited."""
    sentence, code, status = "", "", 0
    said: list[str] = []
    seen = 0
    queue: list[Any] = [body]
    while queue and seen < 50:
        value = queue.pop(0)
        seen += 1
        if isinstance(value, str):
            sentence = sentence or value.strip()
            said.append(value[:_MOST_CHARS])
            continue
        if isinstance(value, list):
            queue[:0] = lenient_json.listing(value)[:10]
            continue
        found = lenient_json.mapping(value)
        for key in ("status", "code", "error_code"):
            number = lenient_json.count(found.get(key))
            written = lenient_json.text(found.get(key))
            if number is None and len(written) == 3 and written.isdecimal():
                number = int(written)
            if number is not None and 400 <= number < 600:
                status = status or number
            elif isinstance(found.get(key), str | int) and found.get(key):
                code = code or str(found[key])
        code = code or lenient_json.text(found.get("type"))
        metadata = lenient_json.mapping(found.get("metadata"))
        raw = metadata.get("raw")
        if isinstance(raw, str) and raw:
            # This server resells another: the error of the provider behind it stands here as JSON in a string.
            queue.append(_json_or_text(raw))
            sentence = ""
            continue
        for key in ("error", "errors", "message", "msg", "detail", "error_message", "error_msg"):
            if found.get(key):
                queue.append(found[key])
    return _ErrorBody(sentence, code, status, "\n".join(said))


def _json_or_text(raw: str) -> Any:
    try:
        return lenient_json.parse(raw)
    except ValueError:
        return raw


def error_of_response(raw: bytes, context: ResponseContext) -> LLMError:
    """Return the error for a response whose status is not 2xx."""
    text = raw.decode("utf-8", "replace")
    try:
        body: Any = lenient_json.parse(raw)
    except ValueError:
        body = None
    if body is None or isinstance(body, int | float | bool):
        error = _classified(_ErrorBody(_plain(text, context), "", 0, text), text, context)
        if context.through and _is_page(text):
            error.advice = _page_advice(context)
        return error
    return _classified(_parse_error_body(body), text, context)


def _page_advice(context: ResponseContext) -> str:
    return (
        f"The page may come from {context.through}. "
        f"Allow {context.host} in the proxy, or add {context.host} to NO_PROXY."
    )


def error_of_stream_event(body: Any, context: ResponseContext) -> LLMError:
    """Return the error for an error event inside a stream that began with status 200."""
    body_facts = _parse_error_body(body)
    status = body_facts.status or (429 if "rate_limit" in body_facts.code else 0)
    if not status and _TRANSIENT_TYPE.search(body_facts.code + " " + body_facts.sentence):
        status = 500
    named = replace(context, status=status or 200)
    return _classified(body_facts, str(body), named, in_stream=True)


def error_of_wrong_content(content_type: str, raw: bytes, context: ResponseContext) -> LLMError:
    """Return the error for a response with status 200 that is neither a stream nor JSON."""
    kind = "a web page" if "html" in content_type else _shown(content_type, context)
    kind = kind or "content of an unknown type"
    said = _plain(raw.decode("utf-8", "replace"), context)
    return APIStatusError(
        f"{context.host} answered with {kind} instead of a model's answer"
        + (f": {said}" if said not in ("", _WEB_PAGE) else "."),
        status=context.status,
        request_id=context.request_id,
        advice=_page_advice(context)
        if context.through and "html" in content_type
        else "Check the base URL: it usually ends in /v1.",
    )


def overflow(
    sentence: str, context: ResponseContext, window: int | None = None
) -> ContextOverflowError:
    """Return the error for a request longer than the window."""
    return ContextOverflowError(
        sentence,
        status=context.status,
        window=window,
        advice="Compact the context, or rewind to an earlier checkpoint.",
    )


def _classified(
    body_facts: _ErrorBody, text: str, context: ResponseContext, *, in_stream: bool = False
) -> LLMError:
    status = context.status
    said = _shown(body_facts.sentence, context) or "no reason given"
    where = f"{context.host}: " if in_stream and status == 200 else f"{context.host} {status}: "
    sentence = where + said
    if context.request_id:
        sentence += f" (request {context.request_id})"
    text = text[:_MOST_CHARS]
    whole = f"{body_facts.code} {text}"
    if status in {400, 413, 422, 500} or in_stream:
        found = overflow_of(body_facts.code, body_facts.said, text, accepted=context.accepted)
        if found is not None:
            return overflow(sentence, context, found.window)
    if _NO_TOOLS.search(whole) and status in {400, 404, 500, 501}:
        return ToolsNotSupported(
            sentence, advice="This model cannot call tools on this server. Choose another model."
        )
    wait_s = retry_after(context.headers, text, context.now, limited=status == 429)
    retryable = status in RETRIED
    if status == 429 and _is_final_limit(body_facts, whole, wait_s):
        retryable = False
    if (status == 500 and _PERMANENT_500.search(whole)) or _FILTER.search(whole):
        retryable = False
    if status == 413 and re.search(r"tokens per minute|TPM", text):
        retryable = False
    if body_facts.code == "tool_use_failed" or "tool_use_failed" in text[:2000]:
        retryable = True
    return APIStatusError(
        sentence,
        status=status,
        code=redact(body_facts.code, context.secrets),
        request_id=context.request_id,
        retry_after_s=wait_s,
        retryable=retryable,
        advice=_advice(status, body_facts, whole, context),
    )


def _is_final_limit(body_facts: _ErrorBody, whole: str, wait_s: float | None) -> bool:
    if body_facts.code in _FINAL_CODES or any(code in whole for code in _FINAL_CODES):
        return True
    # A wait that the server names overrides its words: it says that waiting helps.
    return (wait_s is None and bool(_OUT_OF_MONEY.search(whole))) or body_facts.code in _GLM_FINAL


def _advice(status: int, body_facts: _ErrorBody, whole: str, context: ResponseContext) -> str:
    host = context.host
    said = f"{body_facts.code} {body_facts.said}"[:_MOST_CHARS]
    # Providers report a plan's limit with many statuses and codes; some also use those of a refused client.
    if (status == 403 and _RENEWED.search(said)) or (
        status == 429 and body_facts.code in _GLM_FINAL - {"1113"}
    ):
        return (
            "The quota of your plan is used up. Wait until it renews, buy more at the provider, or "
            "choose another model."
        )
    if (
        body_facts.code == "access_terminated_error"
        or "only available for coding agents" in whole.lower()
    ):
        return (
            "This plan allows only certain agents, and kimi-tui may not be one of them. "
            "Use an API key from platform.moonshot.ai or platform.moonshot.cn instead."
        )
    bad_key = status == 401 or (status == 400 and "api key not valid" in whole.lower())
    # A request for the list of models comes from a form without a prompt, so no command is advised there.
    if bad_key and context.is_keyless:
        add = "Add one with /model." if context.model else "Enter one."
        return f"This server needs an API key, and none was sent. {add}"
    if bad_key and host in _MOONSHOT:
        others = " or ".join(other for other in _MOONSHOT if other != host)
        return f"Each server has its own keys, and this key may belong to {others}. Check the key and the base URL."
    if bad_key:
        or_else = ", or choose another model with /model" if context.model else ""
        return f"Check the API key and that it belongs to this server{or_else}."
    if (
        status == 402
        or (status == 429 and _is_final_limit(body_facts, whole, None))
        or (status in {400, 403} and _SPENT.search(said))
    ):
        return "Add credit or raise the limit at the provider, or choose another model."
    if status == 403 and context.is_keyless:
        add = (
            "add one or choose another model with /model"
            if context.model
            else "enter one if it does"
        )
        return f"No API key was sent, and this server may need one: {add}."
    if status == 403 and not context.model:
        return "This key has no access to the list of models. Check the key and the base URL."
    if status == 403:
        return "This key has no access to this model. Check your plan, or choose another model."
    if status == 404 and not context.model:
        return "Check the base URL: it usually ends in /v1."
    if status == 404:
        return f"Check that the server has the model {context.model!r}, and check the base URL."
    if status == 413:
        return "Compact the context, or rewind to an earlier checkpoint."
    if status == 407:
        return "A proxy needs a login: set HTTPS_PROXY to http://NAME:PASSWORD@HOST:PORT."
    if status in {301, 302, 303, 307, 308}:
        target = _shown(context.headers.get("location", ""), context)
        moved = (
            f"The server has moved to {target}; if you trust that address, set it"
            if target
            else "The server has moved; find its new address and set it"
        )
        return f"{moved} as the base URL."
    if _FILTER.search(whole):
        return "Rephrase the message, or rewind to the step before it."
    if status == 429:
        return "Wait a while, then try again."
    if status in RETRIED:
        return "The server has a problem. Try again later, or choose another model."
    return "Change the message or the model first; waiting does not help." if status == 400 else ""


def _plain(text: str, context: ResponseContext) -> str:
    """Return a sentence from a body that is not JSON: a page's title, or the first words."""
    if _is_page(text):
        title = re.search(r"<title[^>]{0,200}>(.{1,200}?)</title>", text[:20_000], re.I | re.S)
        named = _one_line(redact(title.group(1), context.secrets), 200) if title else ""
        return f"a web page, “{named}”" if named else _WEB_PAGE
    return _shown(text, context)


def _is_page(text: str) -> bool:
    return "<html" in text[:2000].lower() or "<!doctype" in text[:2000].lower()


def _shown(text: str, context: ResponseContext) -> str:
    # Keys are removed before the text is shortened: half a key would no longer be recognised.
    return _one_line(redact(text[: 8 * _MAX_SENTENCE], context.secrets), _MAX_SENTENCE)


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with these keys, and with anything that looks like a key, replaced by `[key]`."""
    for form in (form for one in secrets if len(one) >= 6 for form in written_forms(one)):
        text = text.replace(form, "[key]")
        if len(form) > 16:
            # The server may have shortened the key.
            text = re.sub(rf"{re.escape(form[:12])}[^\s\"']{{0,{len(form)}}}", "[key]", text)
    return _KEY_LIKE.sub("[key]", text)


def cannot_be_reached(host: str, error: BaseException, secrets: tuple[str, ...]) -> str:
    """Say in one sentence that this host cannot be reached, with the system's reason but without its error number."""
    why = redact(_ERRNO.sub("", str(error)), secrets).strip()[:200]
    return f"{host} cannot be reached" + (f": {why}" if why else ".")


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
