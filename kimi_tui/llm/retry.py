"""Retries of a model call: which errors are retried, how long to wait before the next attempt, and when to give up.

A 429, 503 or 529 (and a server that cannot be reached, if it has answered before) is waited out for a time; every other
failure that may pass is retried a number of times. `Retry-After` of the server is respected in both. `complete` in
`completion` makes the attempts; here is what decides about them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimi_tui.llm.errors import (
    APIConnectionError,
    APIEmptyResponseError,
    APIStatusError,
    APIStreamError,
    APITimeoutError,
    ContextOverflowError,
    LLMError,
)

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """A failed attempt that will be tried again after `wait_s` seconds; its partial text counts for nothing.

    `left_s` is how much longer an overload is waited out; 0 where attempts are counted instead.
    """

    attempt: int
    max_attempts: int
    wait_s: float
    reason: str
    status: int | None = None
    left_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is repeated, and the waits: from `initial_s` growing to `max_s`, plus at random up to `jitter_s`.

    An overload is waited out for `patience_s` instead, with waits that grow to `longest_wait_s`. A server that asks for a
    longer wait than that, or than what is left of the patience, is not asked again.
    """

    max_attempts: int = 3
    initial_s: float = 0.3
    max_s: float = 5.0
    jitter_s: float = 0.5
    longest_wait_s: float = 60.0
    patience_s: float = 0.0


def is_retryable(error: BaseException) -> bool:
    """Whether a failure may pass, so that the same request is worth repeating."""
    if isinstance(error, APIStatusError):
        return error.retryable and not isinstance(error, ContextOverflowError)
    return isinstance(
        error, APIConnectionError | APITimeoutError | APIEmptyResponseError | APIStreamError
    )


_OVERLOAD = frozenset({429, 503, 529})


def is_overload(error: BaseException, *, known: bool = True) -> bool:
    """Whether a failure is an overload (429, 503, 529, or a code with that word) or, of a `known` server, a lost connection."""
    if isinstance(error, APIStatusError):
        return is_retryable(error) and (error.status in _OVERLOAD or "overloaded" in error.code)
    return known and isinstance(error, APIConnectionError | APITimeoutError)


class Retries:
    """The failed attempts of one call of a model, and what is left of its policy.

    Args:
        policy: the number of attempts, and the waits between them.
        model: the name of the model, for the log.
        known: whether the server has answered before. One that never did is not waited for where it cannot be reached.
        on_retry: called before each wait, and again with `wait_s` 0 where the wait is cut short.
        retry_now: setting it cuts a wait short.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        model: str,
        known: bool,
        on_retry: Callable[[RetryNotice], None],
        retry_now: asyncio.Event | None,
    ) -> None:
        self._policy = policy
        self._model = model
        self._known = known
        self._on_retry = on_retry
        self._retry_now = retry_now or asyncio.Event()
        self._notice: RetryNotice | None = None
        self._n_overloads = 0
        self._n_others = 0
        self._until = 0.0

    def attempts(self) -> AsyncRetrying:
        """The attempts of the call, to be iterated with `async for`; the last error is raised as it came."""
        from tenacity import AsyncRetrying, retry_if_exception

        return AsyncRetrying(
            retry=retry_if_exception(self._may_help),
            wait=self._wait_s,
            stop=self._are_over,
            before_sleep=self._announce,
            sleep=self._wait,
            reraise=True,
        )

    def final_error(self, error: APIStatusError) -> APIStatusError:
        """The error to raise for the last one: where the server asks for too long a wait, not retryable any more, with that
        wait as its advice; else the same.
        """
        if not self._is_wait_too_long(error):
            return error
        wait = _duration(error.retry_after_s or 0.0)
        return APIStatusError(
            error.message,
            status=error.status,
            code=error.code,
            request_id=error.request_id,
            retry_after_s=error.retry_after_s,
            retryable=False,
            advice=f"It asks to wait {wait}; go on after that, or choose another model.",
        )

    def _left_s(self, error: BaseException) -> float | None:
        """Seconds for which an overload is waited out from now on, counted from the first one; None for any other failure."""
        if not self._policy.patience_s or not is_overload(error, known=self._known):
            return None
        now = time.monotonic()
        self._until = self._until or now + self._policy.patience_s
        return max(0.0, self._until - now)

    def _may_help(self, error: BaseException) -> bool:
        """Whether the call is to be repeated: the failure may pass, and the server does not ask for too long a wait."""
        return is_retryable(error) and not self._is_wait_too_long(error)

    def _wait_s(self, state: RetryCallState) -> float:
        """Seconds to wait before the next attempt: doubled with each failure, at least what the server asked for."""
        error, policy = _failure(state), self._policy
        left_s = self._left_s(error)
        if left_s is not None:
            self._n_overloads += 1
            n, most_s = self._n_overloads, min(policy.longest_wait_s, left_s)
        else:
            self._n_others += 1
            n, most_s = self._n_others, policy.max_s
        grown = policy.initial_s * 2.0 ** min(n - 1, 60)
        asked_for = error.retry_after_s if isinstance(error, APIStatusError) else None
        return max(min(most_s, grown), asked_for or 0.0) + random.uniform(0.0, policy.jitter_s)

    def _are_over(self, state: RetryCallState) -> bool:
        """Whether the policy allows no further attempt. tenacity asks this after `_wait_s`, which counts the failures."""
        left_s = self._left_s(_failure(state))
        return self._n_others >= self._policy.max_attempts if left_s is None else left_s <= 0

    def _announce(self, state: RetryCallState) -> None:
        """Log the failure and report it with the wait before the next attempt."""
        error = _failure(state)
        self._notice = notice = RetryNotice(
            attempt=state.attempt_number + 1,
            max_attempts=self._policy.max_attempts,
            wait_s=state.upcoming_sleep,
            reason=error.message,
            status=error.status if isinstance(error, APIStatusError) else None,
            left_s=self._left_s(error) or 0.0,
        )
        _log.warning(
            "asking %s failed (%s): %s; attempt %d of %d in %.1f s",
            self._model,
            notice.status or type(error).__name__,
            error.message,
            notice.attempt,
            notice.max_attempts,
            notice.wait_s,
        )
        self._on_retry(notice)

    async def _wait(self, seconds: float) -> None:
        """Wait so many seconds, or until `retry_now` is set."""
        self._retry_now.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._retry_now.wait()
            if self._notice is not None:
                self._on_retry(replace(self._notice, wait_s=0.0))

    def _is_wait_too_long(self, error: BaseException) -> bool:
        """Whether the server asks for a longer wait than the policy allows."""
        if not isinstance(error, APIStatusError) or not error.retryable:
            return False
        left_s = self._left_s(error)
        most_s = self._policy.longest_wait_s if left_s is None else left_s
        return (error.retry_after_s or 0.0) > most_s


def _failure(state: RetryCallState) -> LLMError:
    outcome = state.outcome
    error = outcome.exception() if outcome is not None else None
    return error if isinstance(error, LLMError) else LLMError("The call failed.")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{round(seconds)} s"
    if seconds < 7_200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3_600)} h"
