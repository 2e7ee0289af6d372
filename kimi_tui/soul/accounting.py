"""Counts tokens: the server's own figures where there are any, estimates for the rest, and what they are made of.

Estimates are by a pattern; how far they are off for this model is learned from every answer and applied to the next.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Sequence

from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ModelInfo, ToolSpec, Usage
from kimi_tui.session.line import LineIndex
from kimi_tui.session.tokens import message_tokens, text_tokens
from kimi_tui.soul.limits import LoopLimits
from kimi_tui.wire.events import StatusUpdate

log = logging.getLogger(__name__)

_LEARNING = 0.5
_FACTORS = (0.25, 4.0)
_GROWTH_STEPS = 8
# Of what is counted at once so much is looked at, the newest; of the rest only the size, but for large messages: they
# may be pictures.
_LOOKED_AT_BYTES = 1 << 20
_LARGE_BYTES = 1 << 16
_TOKENS_A_BYTE = 0.25


class Estimates:
    """Running sums of estimated tokens over the messages of the live line.

    The messages themselves are not kept: whoever cuts the line says so.
    """

    def __init__(self) -> None:
        self._talk = array("q", [0])
        self._tools = array("q", [0])

    @property
    def counted(self) -> int:
        """How many messages have been counted."""
        return len(self._talk) - 1

    def follow(self, messages: Sequence[Message]) -> None:
        """Count what was added at the end."""
        for index in range(self.counted, len(messages)):
            message = messages[index]
            self._add(message_tokens(message), is_tool=message.role == "tool")

    def follow_line(self, index: LineIndex, messages: Sequence[Message]) -> None:
        """The same for a whole line, of which the older part is counted by the size of its records.

        Args:
            index: where the messages stand.
            messages: the messages of that line.
        """
        end, left = len(messages), _LOOKED_AT_BYTES
        first = end
        while first > self.counted and left > 0:
            first -= 1
            left -= index.place(first)[1]
        if first > self.counted:
            rates = _rates(index, messages, range(first, end))
            for n in range(self.counted, first):
                size_bytes, is_tool = index.place(n)[1], index.is_result(n)
                if size_bytes > _LARGE_BYTES:
                    tokens = message_tokens(messages[n])
                else:
                    tokens = round(size_bytes * rates[is_tool])
                self._add(tokens, is_tool=is_tool)
        self.follow(messages)

    def _add(self, tokens: int, *, is_tool: bool) -> None:
        self._talk.append(self._talk[-1] + (0 if is_tool else tokens))
        self._tools.append(self._tools[-1] + (tokens if is_tool else 0))

    def cut(self, count: int) -> None:
        """Only the first `count` messages are left."""
        del self._talk[count + 1 :], self._tools[count + 1 :]

    def talk(self, start: int = 0, end: int | None = None) -> int:
        """Tokens of messages other than tool results in a range."""
        return _between(self._talk, start, end)

    def tools(self, start: int = 0, end: int | None = None) -> int:
        """Tokens of tool results in a range."""
        return _between(self._tools, start, end)

    def total(self, start: int = 0, end: int | None = None) -> int:
        """All tokens in a range."""
        return self.talk(start, end) + self.tools(start, end)


def _rates(index: LineIndex, messages: Sequence[Message], looked_at: range) -> tuple[float, float]:
    """Tokens a byte of a record: of what is said, and of results; as in the messages that are looked at."""
    tokens, sizes = [0, 0], [0, 0]
    for n in looked_at:
        size_bytes = index.place(n)[1]
        if size_bytes <= _LARGE_BYTES:
            is_tool = index.is_result(n)
            tokens[is_tool] += message_tokens(messages[n])
            sizes[is_tool] += size_bytes
    said, results = (
        counted / size if size else _TOKENS_A_BYTE
        for counted, size in zip(tokens, sizes, strict=True)
    )
    return said, results


def _between(sums: Sequence[int], start: int, end: int | None) -> int:
    last = len(sums) - 1
    stop = last if end is None else min(end, last)
    return sums[stop] - sums[min(start, stop)]


class Accounting:
    """The token figures of one session.

    Args:
        system_prompt: sent with every request.
        tools: sent with every request.
    """

    def __init__(self, system_prompt: str, tools: Sequence[ToolSpec]) -> None:
        tool_text = "".join(f"{t.name}{t.description}{t.parameters}" for t in tools)
        self._tools = text_tokens(tool_text)
        self._system = text_tokens(system_prompt) + self._tools
        self.estimates = Estimates()
        self.factor = 1.0
        self._taught = False
        self.total_input = 0
        self.total_cached = 0
        self.total_output = 0
        self._step: tuple[int, int] | None = None
        self._growth: deque[int] = deque(maxlen=_GROWTH_STEPS)
        self._last_input: int | None = None
        self._known_window: tuple[int, int, bool] = (0, 0, False)

    def restore(
        self, last: StatusUpdate | None, used: int, totals: StatusUpdate | None = None
    ) -> None:
        """Take up the totals of an earlier run, and what was learned of its estimates.

        Args:
            last: The newest figures of the line.
            used: What the line holds now.
            totals: The newest figures at all, where they are others.
        """
        counted = totals or last
        if counted is not None:
            self.total_input = counted.total_input
            self.total_cached = counted.total_cached
            self.total_output = counted.total_output
        if last is not None:
            self._known_window = (last.limit, last.trigger, last.limit_estimated)
            if last.per_step:
                self._growth.append(last.per_step)
        guess = self._system + self.estimates.total()
        if last is not None and last.correction > 0:
            self._teach(last.correction)
        elif used and guess and last is not None and not last.estimated:
            # A record that does not say: the server's own last figure does.
            self._teach(used / guess)

    def _teach(self, factor: float) -> None:
        self.factor, self._taught = _within(factor), True

    def estimated(self, raw: int) -> int:
        """An estimate with what this session has learned."""
        return round(raw * self.factor)

    def whole_estimate(self) -> int:
        """What the next request will be, without any figure of the server."""
        return self.estimated(self._system + self.estimates.total())

    def estimate_of_first(self, count: int) -> int:
        """What a request with the first `count` messages would be."""
        return self.estimated(self._system + self.estimates.total(0, count))

    def estimate_with(self, messages: Sequence[Message]) -> int:
        """What a request with only these messages would be."""
        return self.estimated(self._system + sum(map(message_tokens, messages)))

    def whole_request(self, texts: int) -> int:
        """What a request would be whose system prompt and messages hold so many tokens by the pattern."""
        return self.estimated(self._tools + texts)

    def expected(self, token_count: int, counted: int) -> int:
        """The server's figure for the first `counted` messages, plus an estimate of those after them."""
        if token_count <= 0:
            return self.whole_estimate()
        return token_count + self.estimated(self.estimates.total(counted))

    def called(self, usage: Usage, sent: int) -> None:
        """A call of `sent` messages returned."""
        self.spent(usage)
        self._step = (usage.input, usage.output)
        # What is no figure of the server, or is one for another prompt, teaches nothing.
        if usage.estimated or usage.prompt_cut:
            return
        guess = self._system + self.estimates.total(0, sent)
        log.info(
            "tokens: estimated %d, the server says %d, difference %+d (factor %.3f)",
            self.estimated(guess),
            usage.input,
            usage.input - self.estimated(guess),
            self.factor,
        )
        if guess > 0 and usage.input > 0:
            ratio = _within(usage.input / guess)
            self._teach(self.factor + _LEARNING * (ratio - self.factor))
        if self._last_input is not None and usage.input > self._last_input:
            self._growth.append(usage.input - self._last_input)
        self._last_input = usage.input

    def spent(self, usage: Usage) -> None:
        """Tokens were used, for a step or for a summary."""
        self.total_input += usage.input
        self.total_cached += usage.cached
        self.total_output += usage.output

    def cut(self) -> None:
        """The context became another one: the next call is no growth of the last."""
        self._last_input = None
        self._step = None

    def status(
        self, info: ModelInfo | None, limits: LoopLimits, used: int, *, estimated: bool
    ) -> StatusUpdate:
        """The figures for the gauge."""
        # Without a model, the window is the one that the conversation was held in.
        window, trigger, window_estimated = self._known_window
        if info is not None:
            window, window_estimated = info.window, info.window_estimated
            trigger = limits.trigger(window) if window else 0
        tools = self.estimates.tools()
        guess = self._system + self.estimates.talk() + tools
        # The parts are estimates; scaled, so that they add up to what is shown.
        scale = used / guess if guess else 0.0
        system, tool_part = round(self._system * scale), round(tools * scale)
        return StatusUpdate(
            used=used,
            limit=window,
            trigger=trigger,
            estimated=estimated,
            limit_estimated=window_estimated,
            system=system,
            talk=max(0, used - system - tool_part),
            tools=tool_part,
            per_step=round(sum(self._growth) / len(self._growth)) if self._growth else 0,
            total_input=self.total_input,
            total_cached=self.total_cached,
            total_output=self.total_output,
            step_input=self._step[0] if self._step else None,
            step_output=self._step[1] if self._step else None,
            correction=round(self.factor, 4) if self._taught else 0.0,
            model=info.model if info is not None else "",
        )


def _within(factor: float) -> float:
    return min(max(factor, _FACTORS[0]), _FACTORS[1])
