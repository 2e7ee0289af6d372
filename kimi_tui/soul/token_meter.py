"""Token counts: the server's own figures where there are any, and estimates for the rest.

A message is estimated by a pattern (`llm.tokens`); how far these estimates are off for this model is learned from
every answer and applied to the next. `TokenMeter` counts the live context, `WorldLineTokens` a stored one that is
only looked at.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from kimi_tui.llm.message import Message
from kimi_tui.llm.provider import ModelInfo, ToolSpec, Usage
from kimi_tui.llm.tokens import message_tokens, text_tokens
from kimi_tui.session.context import Context
from kimi_tui.session.context_index import ContextIndex, TokenEstimate
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.wire.events import StatusUpdate

log = logging.getLogger(__name__)

_LEARNING = 0.5
_FACTORS = (0.25, 4.0)
_GROWTH_STEPS = 8
# Of a whole context that is counted at once only the newest bytes are looked at; the rest is counted by the size of its
# records, but for large ones: they may be pictures.
_LOOKED_AT_BYTES = 1 << 20
_LARGE_BYTES = 1 << 16
_TOKENS_A_BYTE = 0.25


class TokenMeter:
    """The token figures of one session: of its live context, and the totals of all its calls.

    Args:
        system_prompt: sent with every request.
        tools: sent with every request.
    """

    def __init__(self, system_prompt: str, tools: Sequence[ToolSpec]) -> None:
        self.begins_with(system_prompt, tools)
        self._sums = MessageSums()
        # The newest figure of the context, how many messages it covers, and whether it is an estimate.
        self._figure: tuple[int, int, bool] | None = None
        self.factor = 1.0
        self._taught = False
        self.total_input = 0
        self.total_cached = 0
        self.total_output = 0
        self._step: tuple[int, int] | None = None
        # What the newest steps added, each with how many messages there were then.
        self._growth: deque[tuple[int, int]] = deque(maxlen=_GROWTH_STEPS)
        self._last_input: int | None = None
        self._known_window: tuple[int, int, bool] = (0, 0, False)

    def restore(
        self, last: StatusUpdate | None, used: int, totals: StatusUpdate | None = None
    ) -> None:
        """Take up the totals of an earlier run, and what was learned of its estimates.

        Args:
            last: the newest figures that were published for this context.
            used: what it holds now.
            totals: the newest figures at all, where they are others.
        """
        counted = totals or last
        if counted is not None:
            self.total_input = counted.total_input
            self.total_cached = counted.total_cached
            self.total_output = counted.total_output
        if last is not None:
            self._known_window = (last.limit, last.trigger, last.limit_estimated)
            if last.per_step:
                self._growth.append((0, last.per_step))
        guess = self._system + self._sums.total()
        if last is not None and last.correction > 0:
            self._teach(last.correction)
        elif used and guess and last is not None and not last.estimated:
            # A record that does not say: the server's own last figure does.
            self._teach(used / guess)

    def begins_with(self, system_prompt: str, tools: Sequence[ToolSpec]) -> None:
        """Set what is sent with every request from now on."""
        tool_text = "".join(f"{t.name}{t.description}{t.parameters}" for t in tools)
        self._tools = text_tokens(tool_text)
        self._system = text_tokens(system_prompt) + self._tools

    def _teach(self, factor: float) -> None:
        self.factor, self._taught = _within(factor), True

    def estimated(self, raw: int) -> int:
        """An estimate with what this session has learned."""
        return round(raw * self.factor)

    def whole_estimate(self) -> int:
        """What the next request will be, without any figure of the server."""
        return self.estimated(self._system + self._sums.total())

    def estimate_with(self, messages: Sequence[Message]) -> int:
        """What a request with only these messages would be."""
        return self.estimate_of(sum(map(message_tokens, messages)))

    def estimate_of(self, texts: int) -> int:
        """What a request would be whose messages hold so many tokens by the pattern."""
        return self.estimated(self._system + texts)

    def whole_request(self, texts: int) -> int:
        """What a request would be whose system prompt and messages hold so many tokens by the pattern."""
        return self.estimated(self._tools + texts)

    # -- the live context ------------------------------------------------------------------------

    def count(self, messages: Sequence[Message]) -> None:
        """Count the messages that were added at the end of the context."""
        self._sums.follow(messages)

    def count_context(self, index: ContextIndex, messages: Sequence[Message]) -> None:
        """Count a context of any length, its older part by the size of its records. Call it in a thread."""
        self._sums.follow_index(index, messages)

    def cut(self, count: int) -> None:
        """Only the first `count` messages are left; what is gone tells nothing of the steps to come."""
        self._sums.cut(count)
        left = [step for step in self._growth if step[0] <= count]
        self._growth = deque(left, maxlen=_GROWTH_STEPS)

    def set_figure(self, tokens: int, *, estimated: bool) -> None:
        """So many tokens the messages take that have been counted."""
        self._figure = (tokens, self._sums.counted, estimated)

    def reset(self, tokens: int | None, *, estimated: bool = False) -> None:
        """Another context has been counted; `tokens` is its figure, None where no server gave one."""
        # The next call is no growth of the last.
        self._last_input = self._step = self._figure = None
        if tokens is not None:
            self.set_figure(tokens, estimated=estimated)

    @property
    def used(self) -> int:
        """Tokens of the context: the newest figure, and an estimate of what was counted after it."""
        if self._figure is None or self._figure[0] <= 0:
            return self.whole_estimate()
        tokens, counted, _ = self._figure
        return tokens + self.estimated(self._sums.total(counted))

    @property
    def is_estimated(self) -> bool:
        """Whether any of `used` is an estimate."""
        figure = self._figure
        return figure is None or figure[2] or figure[1] < self._sums.counted

    def before(self, context: Context, point: Checkpoint) -> tuple[int, bool]:
        """Tokens of what precedes a checkpoint of the live context, and whether any of them are an estimate.

        What the server read in the step that begins there is known best, and is what the timeline shows.
        """
        points, index = context.checkpoints, context.index
        place = bisect_left(points, point.offset, key=lambda one: one.offset)
        if point.tokens is not None:
            end = points[place + 1].offset if place + 1 < len(points) else index.size
            return point.tokens, index.is_estimated_before(end)
        usage = index.usage_before(point.offset)
        if usage is not None and any(points[n].tokens is not None for n in reversed(range(place))):
            is_whole = usage[1] >= point.message_index
            estimated = not is_whole or index.is_estimated_before(point.offset)
            since = self._sums.total(usage[1], point.message_index)
            return usage[0] + since, estimated
        return self.estimated(self._system + self._sums.total(0, point.message_index)), True

    def of_results(self, start: int, end: int) -> int:
        """An estimate of the tool results in a range of messages."""
        return self.estimated(self._sums.between(start, end)[0])

    # -- calls -----------------------------------------------------------------------------------

    def called(self, usage: Usage) -> None:
        """Learn from a call that has sent all messages that are counted."""
        self.spent(usage)
        self._step = (usage.input, usage.output)
        # What is no figure of the server, or is one for another prompt, teaches nothing.
        if usage.estimated or usage.prompt_cut:
            return
        guess = self._system + self._sums.total()
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
            self._growth.append((self._sums.counted, usage.input - self._last_input))
        self._last_input = usage.input

    def spent(self, usage: Usage) -> None:
        """Add the tokens of a call to the totals, whatever it was for."""
        self.total_input += usage.input
        self.total_cached += usage.cached
        self.total_output += usage.output

    def status(self, info: ModelInfo | None, limits: LoopLimits) -> StatusUpdate:
        """The figures for the gauge, of a context that is counted."""
        used = self.used
        # Without a model, the window is the one that the conversation was held in.
        window, trigger, window_estimated = self._known_window
        if info is not None:
            window, window_estimated = info.window, info.window_estimated
            trigger = limits.trigger(window) if window else 0
        tools, talk = self._sums.between()
        guess = self._system + talk + tools
        # The parts are estimates; scaled, so that they add up to what is shown.
        scale = used / guess if guess else 0.0
        grown = [tokens for _, tokens in self._growth]
        system, tool_part = round(self._system * scale), round(tools * scale)
        return StatusUpdate(
            used=used,
            limit=window,
            trigger=trigger,
            estimated=self.is_estimated,
            limit_estimated=window_estimated,
            system=system,
            talk=max(0, used - system - tool_part),
            tools=tool_part,
            per_step=round(sum(grown) / len(grown)) if grown else 0,
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


class WorldLineTokens:
    """The tokens at the places of a world line that is only looked at.

    Args:
        index: its index.
        messages: its messages.
        meter: estimates the tokens where no server has given a figure yet; None to go by the messages alone.
    """

    def __init__(
        self, index: ContextIndex, messages: Sequence[Message], meter: TokenMeter | None = None
    ) -> None:
        self._index = index
        self._messages = messages
        self._meter = meter
        self._stored = TokenEstimate()
        self._sums = MessageSums()
        self._first: tuple[int, int] | None = None

    def before(self, offset: int) -> tuple[int, bool]:
        """Tokens of what precedes a place, and whether any of them are an estimate."""
        usage = self._index.usage_before(offset)
        count = self._index.messages_before(offset)
        if usage is None and self._meter is not None:
            return self._before_any_figure(count, self._meter), True
        tokens = self._stored.before(self._index, offset, self._messages)
        return tokens, usage is None or usage[1] < count

    def at(self, point: Checkpoint) -> int:
        """Tokens that were sent at a checkpoint; where nothing was sent, those of what precedes it."""
        if point.tokens is not None:
            return point.tokens
        tokens = self._stored.before(self._index, point.offset, self._messages)
        if self._index.usage_before(point.offset) is not None:
            return tokens
        # No figure yet: the first one that the server gave holds the tools too, which no message shows.
        first, estimated = self._first_figure()
        return min(first, max(tokens, first - max(0, estimated - tokens))) if first else tokens

    def _before_any_figure(self, count: int, meter: TokenMeter) -> int:
        """An estimate that fits the first figure: who wrote the session may have sent other tools than ours."""
        guess = self._request(count, meter)
        first = self._index.first_usage()
        if first is None or first[1] < count:
            return guess
        return max(0, min(guess, first[0] - (self._request(first[1], meter) - guess)))

    def _request(self, count: int, meter: TokenMeter) -> int:
        """What a request with the first `count` messages would be."""
        self._sums.follow(self._messages, count)
        return meter.estimate_of(self._sums.total(0, count))

    def _first_figure(self) -> tuple[int, int]:
        """The server's first figure, and the estimate for the same messages; zeros where it gave none."""
        if self._first is None:
            first = self._index.first_usage()
            self._first = (0, 0)
            if first is not None and first[1]:
                offset = sum(self._index.place(first[1] - 1))
                self._first = first[0], TokenEstimate().before(self._index, offset, self._messages)
        return self._first


class MessageSums:
    """Running sums of estimated tokens over the messages of a context, tool results apart from the rest.

    The messages are not kept; after a revert, `cut` says how many are left.
    """

    def __init__(self) -> None:
        self._talk = array("q", [0])
        self._tools = array("q", [0])

    @property
    def counted(self) -> int:
        """How many messages have been counted."""
        return len(self._talk) - 1

    def follow(self, messages: Sequence[Message], end: int | None = None) -> None:
        """Count the messages that were added at the end, or those before `end`."""
        for index in range(self.counted, len(messages) if end is None else end):
            message = messages[index]
            self._add(message_tokens(message), is_tool=message.role == "tool")

    def follow_index(self, index: ContextIndex, messages: Sequence[Message]) -> None:
        """The same for a whole context, of which the older part is counted by the size of its records.

        Args:
            index: where the messages stand.
            messages: its messages.
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

    def between(self, start: int = 0, end: int | None = None) -> tuple[int, int]:
        """Tokens in a range of messages: of tool results, and of the others."""
        stop = self.counted if end is None else min(end, self.counted)
        first = min(start, stop)
        return self._tools[stop] - self._tools[first], self._talk[stop] - self._talk[first]

    def total(self, start: int = 0, end: int | None = None) -> int:
        """All tokens in a range of messages."""
        return sum(self.between(start, end))


def _rates(
    index: ContextIndex, messages: Sequence[Message], looked_at: range
) -> tuple[float, float]:
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
