"""`Circles`: notices within a turn that the agent goes in circles, by its calls with their results and by its D-Mails.

It only reports the circle in a sentence; the loop asks the user how the turn continues.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

from kimi_tui.foreign_text import one_line
from kimi_tui.soul.conversation import DMAIL_TOOL
from kimi_tui.soul.denwarenji import DMail
from kimi_tui.soul.messages import call_arguments
from kimi_tui.soul.tasks import TimeSlices
from kimi_tui.soul.tool_calls import Call, CallResult
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.tools.shell import STILL_RUNS

_CALL_CHARS = 500
"""The largest number of characters of a call's arguments in the question."""
_MESSAGE_CHARS = 2_000
_NUMBERS = re.compile(r"[0-9]+")


class Circles:
    """The actions of a turn so far, for recognising repetition.

    Args:
        same_calls: the number of equal calls in a row, with equal results, that are a circle; 0 for never.
        same_dmails: the number of D-Mails without a new tool result between them that are a circle, as are two in a row with
            the same text; 0 for never.
    """

    def __init__(self, same_calls: int, same_dmails: int) -> None:
        self._same_calls = same_calls
        self._same_dmails = same_dmails
        self.begin()

    def begin(self) -> None:
        """Start a turn with nothing counted."""
        self._seen: set[bytes] = set()
        """Digests of the calls with results of this turn."""
        self._last = b""
        self._n_same = 0
        self._n_dmails = 0
        self._last_dmail: tuple[str, ...] = ()

    def interrupted(self) -> None:
        """Start counting anew: the user sent a message, or chose to continue in spite of a circle."""
        self._last, self._n_same = b"", 0
        self._n_dmails, self._last_dmail = 0, ()

    async def after_calls(self, done: Sequence[CallResult]) -> tuple[str, str] | None:
        """Note the calls of a step, in order.

        Returns:
            for a circle, a sentence about it and the call; else None.
        """
        slices = TimeSlices()
        for each in done:
            await slices.yield_if_over()
            if each.call.name == DMAIL_TOOL:
                continue
            if each.outcome.brief == STILL_RUNS:
                # Reading the output of a running command repeatedly is the way to wait for it.
                self._last, self._n_same = b"", 0
                continue
            digest = call_digest(each.call, each.outcome)
            self._n_same = self._n_same + 1 if digest == self._last else 1
            self._last = digest
            if digest not in self._seen:
                self._seen.add(digest)
                self._n_dmails = 0
        if not 0 < self._same_calls <= self._n_same:
            return None
        call = done[-1].call
        text = f"The agent made the same call {self._n_same} times in a row, with the same result each time."
        return text, _shown(call)

    def before_dmails(self, mails: Sequence[DMail]) -> tuple[str, str] | None:
        """Note the D-Mails of a step before they are sent; returns as `after_calls`, which must have got the same step before."""
        texts = tuple(mail.message.strip() for mail in mails)
        is_same, self._last_dmail = texts == self._last_dmail, texts
        self._n_dmails += 1
        if not self._same_dmails:
            return None
        if is_same:
            return "The agent is sending the same D-Mail to its past self again.", texts[0]
        if self._n_dmails < self._same_dmails:
            return None
        text = f"The agent has sent {self._n_dmails} D-Mails (notes to its past self) in a row without a new tool result."
        return text, texts[0]


def _shown(call: Call) -> str:
    """Return a call as its card shows it if it has one argument, else with all arguments as they were sent."""
    given = [*call_arguments(call.arguments).values()]
    only = given[0] if len(given) == 1 and isinstance(given[0], str) else call.arguments
    return f"{call.name} {one_line(only[:_CALL_CHARS])}"


def call_digest(call: Call, outcome: ToolOutcome | None = None) -> bytes:
    """Return a digest that is equal for calls with the same name and arguments; with an outcome, also with the same result,
    in which the running time does not count.
    """
    texts = [call.name, call.arguments]
    if outcome is not None:
        said = _NUMBERS.sub("", outcome.message[:_MESSAGE_CHARS])
        texts += [outcome.brief, said, outcome.output]
    digest = blake2b(digest_size=16)
    for text in texts:
        digest.update(f"{len(text)}:".encode())
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()
