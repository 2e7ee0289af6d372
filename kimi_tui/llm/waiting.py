"""How long an answer is waited for: the limits by where the server is, and the clock of one answer.

Until the first piece of the answer every byte is a sign of life, comments and empty events too: a server may read a long
prompt for many minutes. Behind it only events count, or a comment now and then would keep a dead stream open. Where a limit
is reached the stream yields an `Overdue`, and whoever reads it decides whether it is waited on. No limit makes the request again by itself.
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
"""Seconds for which the first piece of an answer is waited for, where bytes come and the user has set no other limit."""


class WaitedTooLong(TimeoutError):
    """A limit was reached, and nobody has said to wait on. Its text ends a sentence that begins with the host.

    Attributes:
        again: it was decided to make the request again.
    """

    def __init__(self, words: str, *, again: bool = False) -> None:
        super().__init__(words)
        self.again = again


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The limits of one answer, in seconds; None for none.

    Attributes:
        host: of the server, for what is said.
        piece_s: between two events, once the answer has begun.
        silence_s: without a byte before that.
        first_s: from the request to the beginning of the answer.
        near: the server is on this machine or in this network, where another request would not be answered sooner.
    """

    host: str
    piece_s: float
    silence_s: float | None
    first_s: float | None
    near: bool = False

    @classmethod
    def of(cls, host: str, stream_timeout_s: float, first_answer_timeout_s: float) -> WaitLimits:
        """The limits for a server.

        Args:
            host: its name or address.
            stream_timeout_s: between two pieces of an answer.
            first_answer_timeout_s: for the first of them; 0 for the default, which near servers do not have.
        """
        if is_near(host):
            return cls(host, stream_timeout_s, None, first_answer_timeout_s or None, near=True)
        return cls(
            host, stream_timeout_s, stream_timeout_s, first_answer_timeout_s or FIRST_ANSWER_S
        )


class AnswerWait:
    """The clock of one answer, from the request on.

    Args:
        limits: what is waited for how long.
    """

    def __init__(self, limits: WaitLimits) -> None:
        self._limits = limits
        self._has_begun = False
        self._began = self._heard = time.monotonic()
        self._overdue: Overdue | None = None
        self._is_silent = False
        """Whether what is overdue is any byte at all."""

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
        """Withdraw the question that stands, where there is one."""
        overdue, self._overdue, self._is_silent = self._overdue, None, False
        if overdue is not None and overdue.decision is not None:
            overdue.decision.cancel()

    async def next(self, take: Callable[[], Awaitable[T]]) -> T | Overdue:
        """What `take` gives, or what is overdue where a limit is reached before.

        Args:
            take: makes something to wait for, which may be cancelled and made anew.

        Raises:
            WaitedTooLong: the last `Overdue` was taken up by nobody, or the decision was to make the request again.
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
        """Seconds until a limit is reached; None where there is none."""
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
        """What was waited for in vain, to be said behind the name of the host."""
        limits = self._limits
        if self._has_begun:
            return f"was silent for {limits.piece_s:g} s."
        if self._is_silent and limits.silence_s is not None:
            return f"was silent for {limits.silence_s:g} s."
        limit_s = limits.first_s or 0.0
        how_long = f"{limit_s / 60:g} min" if limit_s >= 60 else f"{limit_s:g} s"
        return f"has not begun to answer for {how_long}."
