"""How long a server asks to be left alone, in any of the forms it may say so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_DURATION = re.compile(
    r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?$"
)
_IN_BODY = (
    re.compile(r"retryDelay\W+([\d.]+)s"),
    re.compile(r"(?:try again|retry) (?:in|after) ([\dhm.]+m?s)\b", re.IGNORECASE),
    re.compile(r"(?:try again|retry) (?:in|after) ([\d.]+) ?seconds?", re.IGNORECASE),
)
_RESETS = (
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "ratelimit-reset",
)
_LONGEST = 10 * 365 * 86_400.0


def wait_asked_for(
    headers: Mapping[str, str], body: str, now: float, *, limited: bool = True
) -> float | None:
    """The wait in seconds, or None where none is named.

    Args:
        headers: of the response, with names in lower case.
        body: of the response.
        now: seconds since 1970, against which dates are reckoned.
        limited: this is a rate limit: the moments at which limits are lifted count too.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1_000)
    if after := headers.get("retry-after", "").strip():
        found = _number(after)
        if found is None:
            found = _until_date(after, now)
        if found is not None:
            return _bounded(found)
    for pattern in _IN_BODY:
        if match := pattern.search(body[:20_000]):
            found = _duration(match.group(1))
            if found is not None:
                return _bounded(found)
    if not limited:
        return None
    resets = [
        found
        for name in _RESETS
        # Of several limits only those that are used up hold us back.
        if headers.get(name.replace("reset", "remaining"), "0").strip() in {"0", "0.0", ""}
        and (found := _reset(headers.get(name, ""), now)) is not None
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
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None


def _duration(text: str) -> float | None:
    number = _number(text)
    if number is not None:
        return number
    match = _DURATION.match(text.strip())
    if match is None or not any(match.groups()):
        return None
    units = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
    return sum(float(value or 0) * unit for value, unit in zip(match.groups(), units, strict=True))


def _reset(text: str, now: float) -> float | None:
    """A reset is a duration, or a moment in seconds or milliseconds since 1970."""
    found = _duration(text.strip())
    if found is None:
        return None
    if found > 1e11:
        return found / 1_000 - now
    if found > 1e8:
        return found - now
    return found
