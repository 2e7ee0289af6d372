"""Token counts: the server's own figures if there are any, and estimates for the rest.

A message is estimated by a pattern (`llm.tokens`); the error of these estimates for this model is learned from every answer
and corrects the next ones. `TokenMeter` counts the live context; its figures are published, and `projection.tokens` keeps
them for each checkpoint. `WorldLineTokens` gives the figures of a line from its file alone, if none were published.
`window_parts` divides the window into its parts.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice

from kimi_tui.llm.message import ImagePart, Message, user_message
from kimi_tui.llm.provider import ModelInfo, ToolSpec, Usage
from kimi_tui.llm.tokens import (
    count_in_steps,
    estimate_fixed,
    message_tokens,
    said_tokens,
    text_tokens,
)
from kimi_tui.projection.tokens import TokenFigure, fitted
from kimi_tui.session.context import Context
from kimi_tui.session.context_index import TokenEstimate, TokenScale, TokenSums, WorldLineContent
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.messages import internal_kind
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.project_notes import brought_by, notes_in
from kimi_tui.soul.tasks import TimeSlices
from kimi_tui.tools.skill import Skill
from kimi_tui.tools.toolset import default_toolset
from kimi_tui.wire.events import SUMMARIES, CheckpointKind, StatusUpdate

log = logging.getLogger(__name__)

_LEARNING = 0.5
_FACTORS = (0.25, 4.0)
_GROWTH_STEPS = 8
# The message of such a checkpoint is sent with the next step, so the last figure is that of the context before it.
_UNSENT: frozenset[CheckpointKind] = frozenset({"user", "dmail"})
_MARKER_TOKENS = message_tokens(user_message("<system>CHECKPOINT 12</system>"))


class TokenMeter:
    """The token figures of one session: of its live context, and the totals of all its calls.

    Args:
        context: the live line; after each append call `count_appended`.
        system_prompt: sent with every request.
        tools: sent with every request.

    Attributes:
        scale: the correction of the context's estimates, which every answer updates.
    """

    def __init__(self, context: Context, system_prompt: str, tools: Sequence[ToolSpec]) -> None:
        self._context = context
        self.scale = context.scale
        # These are the newest figure of the context, the number of messages that it covers, and whether it is an estimate.
        self._figure: tuple[int, int, bool] | None = None
        # These tokens (system prompt and tools) were part of the request when that figure was taken.
        self._figure_fixed = 0
        self.set_fixed(system_prompt, tools)
        self._sums = TokenSums()
        self._taught = False
        self.total_input = 0
        self.total_cached = 0
        self.total_output = 0
        self._step: tuple[int, int] | None = None
        # The growth of each of the newest steps, with the number of messages at that time.
        self._growth: deque[tuple[int, int]] = deque(maxlen=_GROWTH_STEPS)
        self._last_input: int | None = None
        self._known_window: tuple[int, int, bool] = (0, 0, False)

    def restore(
        self, last: StatusUpdate | None, used: int, totals: StatusUpdate | None = None
    ) -> None:
        """Restore the totals of an earlier run, and the learned correction of its estimates.

        Args:
            last: the newest figures that were published for this context.
            used: the tokens that it holds now.
            totals: the newest figures of the session, if they are others.
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
        guess = self.uncorrected
        if last is not None and last.correction > 0:
            self._teach(last.correction)
        elif used and guess and last is not None and not last.estimated:
            # The record has no correction, so it is computed from the server's last figure.
            self._teach(used / guess)

    def set_fixed(self, system_prompt: str, tools: Sequence[ToolSpec], n_unsent: int = 0) -> None:
        """Set the fixed part of every request from now on.

        Args:
            system_prompt: the system prompt as it is sent.
            tools: the tools as they are sent.
            n_unsent: the number of stored messages that are markers and are not sent.
        """
        self.scale.tool_tokens = _tokens_of(tools)
        self._system = _fixed_tokens(system_prompt) + self.scale.tool_tokens
        self._unsent = n_unsent * _MARKER_TOKENS

    def _teach(self, factor: float, share: float = 1.0) -> None:
        least, most = _FACTORS
        self.scale.factor += share * (min(max(factor, least), most) - self.scale.factor)
        self._taught = True

    @property
    def uncorrected(self) -> int:
        """The estimate of the next request by the pattern alone, without any figure of a server."""
        return self._system + self._texts

    @property
    def fixed_uncorrected(self) -> int:
        """The estimate of system prompt and tools by the pattern alone."""
        return self._system

    @property
    def _texts(self) -> int:
        """The estimate of the messages that are sent."""
        return max(0, self._sums.total() - self._unsent)

    def estimate(self, texts: int | None = None) -> int:
        """Return the corrected estimate of the next request.

        Args:
            texts: the estimate of its messages by the pattern; None for the context's messages.
        """
        return self.scale.corrected(self.uncorrected if texts is None else self._system + texts)

    # -- the live context ------------------------------------------------------------------------

    async def count_appended(self, slices: TimeSlices) -> None:
        """Count the messages that were appended since the last call, in slices, so that thousands do not block the event loop."""
        messages = self._context.messages
        for place in range(self._sums.counted, len(messages)):
            await slices.yield_if_over()
            # The messages are parsed and cached here; an answer with thousands of calls is counted one call at a time.
            for _ in count_in_steps(messages[place]):
                await slices.yield_if_over()
            self._sums.add(messages, place + 1)

    async def recount(self, kept: int) -> None:
        """Count the context anew after an operation has replaced it. The server has given no figure for it yet.

        Args:
            kept: the number of its first messages that are unchanged.
        """
        self._sums.cut(kept)
        left = [step for step in self._growth if step[0] <= kept]
        self._growth = deque(left, maxlen=_GROWTH_STEPS)
        context = self._context
        # Counting a long line here would block the event loop.
        await asyncio.to_thread(self._sums.add_sampled, context.index, context.messages)
        # The difference to the last call is no growth of a step.
        self._last_input = self._step = self._figure = None

    def set_figure(self, tokens: int, *, estimated: bool, count: int | None = None) -> None:
        """Set the tokens of the first `count` messages (None: of all), from the server or as an estimate."""
        counted = self._sums.counted
        self._figure = (tokens, counted if count is None else min(count, counted), estimated)
        self._figure_fixed = self._fixed

    def figure_was_with(self, fixed: int) -> None:
        """Note the estimated tokens of the other prompt and tools with which the figure was taken."""
        self._figure_fixed = fixed - self._unsent

    def texts(self, count: int) -> int:
        """Return the estimate, by the pattern alone, of the first `count` messages."""
        return self._sums.total(0, count)

    @property
    def _fixed(self) -> int:
        return self._system - self._unsent

    def begin_step(self) -> None:
        """Begin a step: the figures of the last call belong to another step."""
        self._step = None

    @property
    def used(self) -> int:
        """The tokens of the context: the newest figure, plus an estimate of the messages after it."""
        if self._figure is None or self._figure[0] <= 0:
            return self.estimate()
        tokens, counted, _ = self._figure
        if self._figure_fixed != self._fixed:
            # Prompt or tools have changed since the server counted, so its figure changes in proportion to the estimates of then and now.
            texts = self._sums.total(0, counted)
            then, now = self._figure_fixed + texts, self._fixed + texts
            tokens = round(tokens * now / then) if then > 0 else tokens
        return max(1, tokens + self.scale.corrected(self._sums.total(counted)))

    @property
    def fixed(self) -> int:
        """The part of `used` that no compaction frees: everything but the messages."""
        return self.used - self.scale.corrected(self._texts)

    @property
    def is_estimated(self) -> bool:
        """Whether a part of `used` is an estimate."""
        figure = self._figure
        if figure is None or self._figure_fixed != self._fixed:
            return True
        return figure[2] or figure[1] < self._sums.counted

    def of_results(self, start: int, end: int) -> int:
        """Return an estimate of the tool results in a range of messages."""
        return self.scale.corrected(self._sums.between(start, end)[0])

    # -- calls -----------------------------------------------------------------------------------

    def add_step(self, usage: Usage, sent: int) -> None:
        """Add a call that sent the whole context, and learn the correction from it.

        Args:
            usage: the usage of the call.
            sent: the tokens of the context: the server's figure, or an estimate if there is none.
        """
        self.add_usage(usage)
        self._step = (sent, usage.output)
        # An estimate, or a figure for a cut prompt, teaches nothing.
        if usage.estimated or usage.prompt_cut:
            return
        guess = self.uncorrected
        log.info(
            "tokens: estimated %d, the server says %d, difference %+d (factor %.3f)",
            self.scale.corrected(guess),
            usage.input,
            usage.input - self.scale.corrected(guess),
            self.scale.factor,
        )
        if guess > 0 and usage.input > 0:
            self._teach(usage.input / guess, _LEARNING)
        if self._last_input is not None and usage.input > self._last_input:
            self._growth.append((self._sums.counted, usage.input - self._last_input))
        self._last_input = usage.input

    def add_usage(self, usage: Usage) -> None:
        """Add the tokens of any call to the totals."""
        self.total_input += usage.input
        self.total_cached += usage.cached
        self.total_output += usage.output

    def status(self, info: ModelInfo | None, limits: LoopLimits) -> StatusUpdate:
        """Return the token figures for the gauge."""
        used = self.used
        # Without a model, the window is that of the model with which the conversation was held.
        window, trigger, window_estimated = self._known_window
        if info is not None:
            window, window_estimated = info.window, info.window_estimated
            trigger = limits.compaction_trigger(window) if window and limits.compacts else 0
        tools, talk = self._sums.between()
        guess = self._system + talk + tools
        # The parts are estimates, scaled so that their sum is the shown figure.
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
            correction=round(self.scale.factor, 4) if self._taught else 0.0,
            model=info.model if info is not None else "",
            messages=self._sums.counted,
        )


class WorldLineTokens:
    """The tokens at the places of a world line, from its file alone.

    Args:
        line: the world line.
        scale: the correction of estimates; None for the usual one.
    """

    def __init__(self, line: WorldLineContent, scale: TokenScale | None = None) -> None:
        self._index, self._messages = line.index, line.messages
        self._scale = scale if scale is not None else _usual_scale()
        self._stored = TokenEstimate()
        self._first: tuple[int, int] | None = None

    def before(self, offset: int) -> TokenFigure:
        """Return the tokens before a place: the last figure before it, plus an estimate of the messages after that."""
        usage = self._index.usage_before(offset)
        if usage is None:
            return self._before_any(offset)
        tokens, count = usage
        since = self._stored.before(self._index, offset, self._messages) - tokens
        is_whole = count >= self._index.messages_before(offset)
        measured = is_whole and not self._index.is_estimated_before(offset)
        return TokenFigure(tokens + self._scale.corrected(since), measured)

    def at(self, point: Checkpoint, kind: CheckpointKind) -> TokenFigure:
        """Return the tokens that were sent at a checkpoint; if nothing was sent, those before it."""
        if point.tokens is None or kind in _UNSENT:
            return self.before(point.offset)
        # The program wrote the figure of a compaction, and shifted those of the checkpoints after it; neither comes from a
        # server.
        by_program = kind in SUMMARIES or point.was is not None
        return TokenFigure(
            point.tokens, not by_program and not self._index.is_estimated_behind(point.offset)
        )

    def _before_any(self, offset: int) -> TokenFigure:
        """Return an estimate that fits the line's first figure (`projection.tokens`): the program that wrote it may have sent
        other tools.
        """
        tokens = self._scale.tool_tokens + self._stored.before(self._index, offset, self._messages)
        if self._first is None:
            self._first = (0, 0)
            if (first := self._index.first_usage()) is not None:
                points = self._index.checkpoints
                place = bisect_left(points, first[1], key=lambda one: one.offset) - 1
                if place >= 0:
                    offset = points[place].offset
                    texts = TokenEstimate().before(self._index, offset, self._messages)
                    self._first = self._scale.tool_tokens + texts, first[0]
        estimate, figure = self._first
        if not figure:
            return TokenFigure(self._scale.corrected(tokens), measured=False)
        return TokenFigure(fitted(tokens, estimate, figure), measured=False, fitted=True)


@cache
def _usual_scale() -> TokenScale:
    return TokenScale(tool_tokens=_tokens_of(default_toolset().specs))


def estimate_of(system_prompt: str, tools: Sequence[ToolSpec]) -> int:
    """Return the estimate, by the pattern, of a system prompt and tools."""
    return _fixed_tokens(system_prompt) + _tokens_of(tools)


def _tokens_of(tools: Sequence[ToolSpec]) -> int:
    return _fixed_tokens("".join(f"{t.name}{t.description}{t.parameters}" for t in tools))


# The results are cached: counting the tools takes a millisecond at every opening of a session.
_fixed_tokens = lru_cache(maxsize=8)(text_tokens)


# -- the parts of the window, for the user

_OF_PROGRAM = {
    "marker": "checkpoint markers",
    "dmail": "D-Mails",
    "compaction": "summaries",
    "reminder": "reminders",
    "notification": "reminders",
    "note": "reminders",
}
_ORDER = (
    *("your messages", "answers", "thoughts", "tool results", "attachments"),
    *("D-Mails", "summaries", "reminders", "checkpoint markers"),
)


@dataclass(frozen=True, slots=True)
class WindowPart:
    """One part of the context window: its name, tokens, count (0: none), and whether it belongs to the part above."""

    name: str
    tokens: int
    count: int = 0
    is_inside: bool = False


def window_parts(
    system: str, tools: Sequence[ToolSpec], messages: Sequence[Message], used: int
) -> list[WindowPart]:
    """Return the parts of a request in their order, as estimates scaled to the tokens in use. Call it in a thread."""
    tokens: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    below: dict[str, int] = {}
    # Messages that are appended meanwhile are not counted.
    for message in islice(messages, len(messages)):
        whole = message_tokens(message)
        name = _part_name(message)
        if n_images := sum(isinstance(part, ImagePart) for part in message.parts):
            words = [part for part in message.parts if not isinstance(part, ImagePart)]
            said = message_tokens(message.model_copy(update={"content": words}))
            tokens["attachments"] += whole - said
            counts["attachments"] += n_images
            whole = said
        if thought := whole - said_tokens(message) if message.thinking else 0:
            tokens["thoughts"] += thought
            counts["thoughts"] += 1
        tokens[name] += whole - thought
        counts[name] += 1
        if path := brought_by(message):
            below[path] = whole
    parts = [WindowPart("system prompt", text_tokens(system))]
    parts += [
        WindowPart(notes.path, text_tokens(notes.text), is_inside=True)
        for notes in notes_in(system)
    ]
    parts.append(WindowPart("tools", estimate_fixed("", tools), len(tools)))
    parts += [
        WindowPart("skills", estimate_fixed("", [one]), is_inside=True)
        for one in tools
        if one.name == Skill.name
    ]
    for name in _ORDER:
        if counts[name]:
            parts.append(WindowPart(name, tokens[name], counts[name]))
        if name == "reminders":
            parts += [WindowPart(path, size, is_inside=True) for path, size in below.items()]
    guess = sum(part.tokens for part in parts if not part.is_inside)
    scale = used / guess if guess else 0.0
    return [replace(part, tokens=round(part.tokens * scale)) for part in parts]


def _part_name(message: Message) -> str:
    if message.role == "tool":
        return "tool results"
    if message.role == "assistant":
        return "answers"
    return _OF_PROGRAM.get(internal_kind(message) or "", "your messages")
