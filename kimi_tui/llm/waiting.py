"""Limits the wait for an answer: the limits depend on where the server is, and one clock runs per answer.

Until the first piece of the answer every byte is a sign of life, comments and empty events too: a server may read a long
prompt for many minutes. After it only events count; otherwise occasional comments would keep a dead stream open. When a limit
is reached, the stream yields an `Overdue`, and its reader decides whether to wait on. No limit repeats the request by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kimi_tui.base_url import is_near
from kimi_tui.llm.provider import Overdue

T = TypeVar("T")

FIRST_ANSWER_S = 1_800.0
"""Seconds to wait for the first piece of the answer, if bytes come and the user has set no other limit."""


class WaitedTooLong(TimeoutError):
    """A limit was reached, and nobody decided to wait on. Its text ends a sentence that begins with the host.

    Attributes:
        again: the decision was to make the request again.
    """

    def __init__(self, words: str, *, again: bool = False) -> None:
        super().__init__(words)
        self.again = again


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The limits of the wait for one answer, in seconds; None for no limit.

    Attributes:
        host: the server's host, for texts.
        piece_s: the time between two events, once the answer has begun.
        silence_s: the time without a byte before the answer has begun.
        first_s: the time from the request to the beginning of the answer.
        near: the server is on this machine or in this network, where another request would not be answered sooner.
    """

    host: str
    piece_s: float
    silence_s: float | None
    first_s: float | None
    near: bool = False

    @classmethod
    def of(cls, host: str, stream_timeout_s: float, first_answer_timeout_s: float) -> WaitLimits:
        """Return the limits for a server.

        Args:
            host: the server's name or address.
            stream_timeout_s: the seconds between two pieces of an answer.
            first_answer_timeout_s: the seconds until the first piece; 0 for the default, which is no limit for near servers.
        """
        if is_near(host):
            return cls(host, stream_timeout_s, None, first_answer_timeout_s or None, near=True)
        return cls(
            host, stream_timeout_s, stream_timeout_s, first_answer_timeout_s or FIRST_ANSWER_S
        )


class AnswerWait:
    """The clock of one answer, started when the request is made.

    Args:
        limits: the limits of the wait.
    """

    def __init__(self, limits: WaitLimits) -> None:
        self._limits = limits
        self._has_begun = False
        self._began = self._heard = time.monotonic()
        self._overdue: Overdue | None = None
        self._is_silent = False
        """Whether the limit that was reached is one of silence, which any byte ends."""

    def came(self) -> None:
        """Note that bytes came."""
        if not self._has_begun:
            self._heard = time.monotonic()
            if self._is_silent:
                self.close()

    def happened(self, *, is_answer: bool) -> None:
        """Note that an event came, and whether it was a piece of the answer."""
        self._heard = time.monotonic()
        if is_answer:
            self._has_begun = True
        if self._has_begun or self._is_silent:
            self.close()

    def close(self) -> None:
        """Withdraw the pending `Overdue`, if there is one."""
        overdue, self._overdue, self._is_silent = self._overdue, None, False
        if overdue is not None and overdue.decision is not None:
            overdue.decision.cancel()

    async def next(self, take: Callable[[], Awaitable[T]]) -> T | Overdue:
        """Return the result of `take`, or an `Overdue` if a limit is reached first.

        Args:
            take: makes the awaitable, which may be cancelled and made anew.

        Raises:
            WaitedTooLong: nobody set a decision on the last `Overdue`, or the decision was to make the request again.
        """
        while (overdue := self._overdue) is not None:
            if overdue.decision is None:
                raise WaitedTooLong(self._words())
            taking = asyncio.ensure_future(take())
            try:
                await asyncio.wait({taking, overdue.decision}, return_when=asyncio.FIRST_COMPLETED)
                if taking.done():
                    return taking.result()
            finally:
                taking.cancel()
            if not overdue.decision.result():
                raise WaitedTooLong(self._words(), again=True)
            self._overdue, self._is_silent = None, False
            self._began = self._heard = time.monotonic()
        try:
            async with asyncio.timeout(self._left_s()):
                return await take()
        except TimeoutError:
            limit_s = self._limits.first_s
            is_long = limit_s is not None and self._began + limit_s <= time.monotonic()
            self._is_silent = self._has_begun or not is_long
            self._overdue = Overdue(f"{self._limits.host} {self._words()}", near=self._limits.near)
            return self._overdue

    def _left_s(self) -> float | None:
        """Return the seconds until a limit is reached; None if there is none."""
        now, limits = time.monotonic(), self._limits
        if self._has_begun:
            return self._heard + limits.piece_s - now
        ends = [
            since + limit_s - now
            for since, limit_s in ((self._heard, limits.silence_s), (self._began, limits.first_s))
            if limit_s is not None
        ]
        return min(ends, default=None)

    def _words(self) -> str:
        """Return the end of a sentence that begins with the host and says how long the wait has been."""
        limits = self._limits
        if self._has_begun:
            return f"sent nothing for {limits.piece_s:g} s."
        if self._is_silent and limits.silence_s is not None:
            return f"sent nothing for {limits.silence_s:g} s."
        limit_s = limits.first_s or 0.0
        how_long = f"{limit_s / 60:g} min" if limit_s >= 60 else f"{limit_s:g} s"
        return f"has not begun to answer for {how_long}."
