"""Recognising, in the words of many servers, that a request was longer than the model's window. Data and two functions."""

from __future__ import annotations

import re

_TEXTS = (
    r"exceeded model token limit",
    r"input token length too long",
    r"context_length_exceeded",
    r"maximum context length is [\d,]+",
    r"exceeds the context window",
    r"input tokens exceed the configured limit",
    r"your prompt contains at least \d+ input tokens",
    r"requested \d+ output tokens",
    r"input \(\d+ tokens\) is longer than the model'?s context length",
    r"must be less than max_seq_len",
    r"too large for model with \d+ maximum context length",
    r"input token count.*exceeds the maximum",
    r"reduce the length of the messages",
    r"exceed_context_size_error",
    r"exceeds the available context size",
    r"context size has been exceeded",
    r"greater than the context length",
    r"trying to keep the first \d+ tokens",
    r"cannot truncate prompt with n_keep",
    r"context window exceeds limit",
    r"range of input length should be",
    r"model_context_window_exceeded",
    r"exceeds max length",
    r"prompt too long; exceeded (max )?context length",
    r"prompt is too long",
    r"maximum prompt length is \d+",
    r"exceeds the limit of \d+",
    r"input is too long",
    r"maximum allowed input length",
)
_OVERFLOW = re.compile("|".join(_TEXTS), re.IGNORECASE)
_RATE = re.compile(r"rate.?limit|too many requests|quota|per minute|\bTPM\b", re.IGNORECASE)

# Each has one group: the window. The first that matches counts.
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\"?n_ctx\"?\s*[:=(>]*\s*\(?(\d[\d,]*)",
        r"context length (?:is|of)(?: only)? ([\d,]+)",
        r"token limit[:\s]+([\d,]+)",
        r"with (?:a )?(?:maximum (?:of )?)?([\d,]+) maximum",
        r"context length \((\d[\d,]*) tokens\)",
        r"max_seq_len \((\d[\d,]*)\)",
        r"(?:tokens )?allowed \(([\d,]+)\)",
        r"range of input length should be \[\d+, ?([\d,]+)\]",
        r"maximum prompt length is ([\d,]+)",
        r"exceeds the limit of ([\d,]+)",
        r"> ?([\d,]+) maximum",
        r"available context size \((\d[\d,]*) tokens\)",
        r"limit: ?([\d,]+)",
    )
)


def is_overflow(text: str) -> bool:
    """Whether the text says that the request is too long for the window, and not merely too much for a minute."""
    return bool(_OVERFLOW.search(text)) and not _RATE.search(text)


def named_window(text: str) -> int | None:
    """The window that the text names, in tokens, or None."""
    for pattern in _WINDOWS:
        if found := pattern.search(text):
            digits = found.group(1).replace(",", "")
            if digits.isdigit() and 256 <= int(digits) <= 100_000_000:
                return int(digits)
    return None
