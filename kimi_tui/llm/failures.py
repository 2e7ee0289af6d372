"""From whatever a server answers in place of an answer to one typed error in its own words.

The sentence is dug out of any body shape, cut to size and freed of keys; advice says what to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kimi_tui.llm import loose
from kimi_tui.llm.errors import APIStatusError, ContextOverflowError, LLMError, ToolsNotSupported
from kimi_tui.llm.overflow import is_overflow, named_window
from kimi_tui.llm.waits import wait_asked_for

MAX_SENTENCE = 600
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})

_KEY_LIKE = re.compile(r"\b(sk|pk|key|gsk|xai|AIza)[-_]?[A-Za-z0-9_\-]{12,}")
_FINAL_CODES = {"insufficient_quota", "exceeded_current_quota_error", "access_terminated_error"}
_OUT_OF_MONEY = re.compile(r"\b(insufficient balance|balance|arrears|recharge|credits?)\b", re.I)
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
class Answered:
    """What is known about a response, for error texts. `secret` is never shown."""

    host: str
    model: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secret: str = ""
    now: float = 0.0
    """The time in seconds since 1970, for waits that are named as dates."""

    @property
    def request_id(self) -> str:
        """The provider's own name for this request, to be told to its support."""
        for name in ("x-request-id", "x-trace-id", "x-msh-trace-id", "request-id", "cf-ray"):
            if found := self.headers.get(name, ""):
                return _one_line(found, 80)
        return ""


@dataclass(frozen=True, slots=True)
class Dug:
    """What a body said: its sentence, the provider's code or type, and the status it named (0: none)."""

    sentence: str
    code: str
    status: int


def dig(body: Any) -> Dug:
    """The sentence and codes in a body of any shape."""
    sentence, code, status = "", "", 0
    seen = 0
    queue: list[Any] = [body]
    while queue and seen < 50:
        value = queue.pop(0)
        seen += 1
        if isinstance(value, str):
            sentence = sentence or value.strip()
            continue
        if isinstance(value, list):
            queue[:0] = loose.listing(value)[:10]
            continue
        found = loose.mapping(value)
        for key in ("status", "code", "error_code"):
            number = loose.count(found.get(key))
            if number is None and loose.text(found.get(key)).isdigit():
                number = int(found[key])
            if number is not None and 400 <= number < 600:
                status = status or number
            elif isinstance(found.get(key), str | int) and found.get(key):
                code = code or str(found[key])
        code = code or loose.text(found.get("type"))
        metadata = loose.mapping(found.get("metadata"))
        raw = metadata.get("raw")
        if isinstance(raw, str) and raw:
            # A reseller: the truth is what the provider behind it said, as JSON in a string.
            queue.append(_json_or_text(raw))
            sentence = ""
            continue
        for key in ("error", "errors", "message", "msg", "detail", "error_message", "error_msg"):
            if found.get(key):
                queue.append(found[key])
    return Dug(sentence, code, status)


def _json_or_text(raw: str) -> Any:
    try:
        return loose.parse(raw)
    except ValueError:
        return raw


def of_response(raw: bytes, answered: Answered) -> LLMError:
    """The error for a response whose status is not 2xx."""
    text = raw.decode("utf-8", "replace")
    try:
        body: Any = loose.parse(raw)
    except ValueError:
        body = None
    if body is None or isinstance(body, int | float | bool):
        return _classified(Dug(_plain(text, answered), "", 0), text, answered)
    return _classified(dig(body), text, answered)


def of_stream_event(body: Any, answered: Answered) -> LLMError:
    """The error for an error event inside a stream that began with status 200."""
    dug = dig(body)
    status = dug.status or (429 if "rate_limit" in dug.code else 0)
    if not status and _TRANSIENT_TYPE.search(dug.code + " " + dug.sentence):
        status = 500
    named = Answered(
        answered.host,
        answered.model,
        status or 200,
        answered.headers,
        answered.secret,
        answered.now,
    )
    return _classified(dug, str(body), named, in_stream=True)


def of_wrong_content(content_type: str, raw: bytes, answered: Answered) -> LLMError:
    """The error for a 200 that holds neither a stream nor JSON."""
    kind = "a web page" if "html" in content_type else content_type or "something unnamed"
    return APIStatusError(
        f"{answered.host} answered with {kind} and not with a model's answer"
        + (f": {_plain(raw.decode('utf-8', 'replace'), answered)}" if raw else "."),
        status=answered.status,
        request_id=answered.request_id,
        advice="Check the base URL: it usually ends in /v1.",
    )


def overflow(sentence: str, answered: Answered, window: int | None = None) -> ContextOverflowError:
    """The error for a request longer than the window."""
    return ContextOverflowError(
        sentence,
        status=answered.status,
        window=window,
        advice="Compact the context, or rewind to an earlier checkpoint.",
    )


def _classified(dug: Dug, text: str, answered: Answered, *, in_stream: bool = False) -> LLMError:
    status = answered.status
    said = _shown(dug.sentence, answered) or f"no reason given ({status})"
    where = f"{answered.host}: " if in_stream and status == 200 else f"{answered.host} {status}: "
    sentence = where + said
    if answered.request_id:
        sentence += f" (request {answered.request_id})"
    whole = f"{dug.code} {text}"
    if (status in {400, 413, 422, 500} or in_stream) and is_overflow(whole):
        return overflow(sentence, answered, named_window(text))
    if _NO_TOOLS.search(whole) and status in {400, 404, 500, 501}:
        return ToolsNotSupported(
            sentence, advice="This model cannot call tools here; choose one that can."
        )
    wait_s = wait_asked_for(answered.headers, text, answered.now, limited=status == 429)
    retryable = status in RETRIED
    if status == 429 and _is_final_limit(dug, whole, wait_s):
        retryable = False
    if (status == 500 and _PERMANENT_500.search(whole)) or _FILTER.search(whole):
        retryable = False
    if status == 413 and re.search(r"tokens per minute|TPM", text):
        retryable = False
    if dug.code == "tool_use_failed" or "tool_use_failed" in text[:2000]:
        retryable = True
    return APIStatusError(
        sentence,
        status=status,
        code=dug.code,
        request_id=answered.request_id,
        retry_after_s=wait_s,
        retryable=retryable,
        advice=_advice(status, dug, whole, answered),
    )


def _is_final_limit(dug: Dug, whole: str, wait_s: float | None) -> bool:
    if dug.code in _FINAL_CODES or any(code in whole for code in _FINAL_CODES):
        return True
    # A named wait is better than any word: it says that waiting helps.
    return (wait_s is None and bool(_OUT_OF_MONEY.search(whole))) or dug.code == "1113"


def _advice(status: int, dug: Dug, whole: str, answered: Answered) -> str:
    host = answered.host
    if dug.code == "access_terminated_error" or "only available for coding agents" in whole.lower():
        return (
            "This plan admits only the agents on its list, and kimi-tui may not be one of them; "
            "a platform key for api.moonshot.ai or api.moonshot.cn works."
        )
    bad_key = status == 401 or (status == 400 and "api key not valid" in whole.lower())
    if bad_key and host in _MOONSHOT:
        others = " or ".join(other for other in _MOONSHOT if other != host)
        return f"Keys are not interchangeable: this one may belong to {others}. Check key and URL."
    if bad_key:
        return (
            "Check the API key and that it belongs to this server, or choose another model with "
            "/model."
        )
    if status in {402, 429} and (status == 402 or _is_final_limit(dug, whole, None)):
        return "Add credit or raise the limit at the provider, or choose another model."
    if status == 403:
        return "This key may not use this model here; check the plan, or choose another model."
    if status == 404:
        return f"Check that {answered.model!r} exists at this server, and the base URL."
    if status == 413:
        return "Compact the context, or rewind to an earlier checkpoint."
    if status in {301, 302, 303, 307, 308}:
        target = _shown(answered.headers.get("location", ""), answered)
        moved = f"It points to {target}; if" if target else "The server has moved; if"
        return f"{moved} you trust that, set it as the base URL."
    if _FILTER.search(whole):
        return "Say it in other words, or rewind to before the message."
    if status == 429:
        return "Wait a while, then go on."
    if status in RETRIED:
        return "The server has trouble; go on later, or choose another model."
    return "Change the request or the model; waiting will not help." if status == 400 else ""


def _plain(text: str, answered: Answered) -> str:
    """A sentence from a body that is not JSON: a page's title, or its first words."""
    if "<html" in text[:2000].lower() or "<!doctype" in text[:2000].lower():
        title = re.search(r"<title[^>]*>(.{1,200}?)</title>", text[:20_000], re.I | re.S)
        named = _one_line(title.group(1), 200) if title else ""
        return f"a web page, “{named}”" if named else "a web page in place of an answer"
    return _shown(text, answered)


def _shown(text: str, answered: Answered) -> str:
    return redact(_one_line(text, MAX_SENTENCE), answered.secret)


def redact(text: str, secret: str) -> str:
    """The text without this key and without anything that looks like one."""
    if len(secret) >= 6:
        text = text.replace(secret, "[key]")
        text = text.replace(secret[:12], "[key") if len(secret) > 16 else text
    return _KEY_LIKE.sub("[key]", text)


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
