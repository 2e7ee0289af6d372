"""Usage: what a session did, how many tokens its calls took, by checkpoint and by model, and what they cost.

`Ledger` counts tokens from the events of a session. The record of a stored session and what is published now go
through the same counting, so that a resumed session knows the same as one that was never left. Prices come with the
configuration. `statistics` counts turns, tools and seconds from the record alone: the same for a live session and for
one on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kimi_tui.config.settings import ModelPrices
from kimi_tui.projection.tokens import CheckpointTokens, DMailCuts, saved_by
from kimi_tui.session.context_index import ContextIndex
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.soul.history import read_history
from kimi_tui.soul.tasks import TimeSlices
from kimi_tui.wire.events import (
    ApprovalRequest,
    ApprovalResolved,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    StatusUpdate,
    StepBegin,
    StepInterrupted,
    ToolCall,
    ToolResult,
    ToolStarted,
    TurnBegin,
    TurnEnd,
)

_PER_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Tokens that calls of one model took; `cached` is part of `input`.

    `is_exact` is false where some of it is an estimate, or where it is not known how much of it was cached.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    is_exact: bool = True

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.is_exact and other.is_exact,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount of money for each currency, in the order in which they were met.

    `is_whole` is false where a model was called whose price is not known: it cost at least this.
    """

    amounts: tuple[tuple[str, float], ...]
    is_exact: bool = True
    is_whole: bool = True


def cost_of(
    spent: Mapping[str, ModelUsage], prices: Mapping[str, ModelPrices], model_now: str = ""
) -> Cost | None:
    """What these calls cost.

    Args:
        spent: tokens by model; under an empty name those whose model is not known.
        prices: by model.
        model_now: the model in use, whose price stands in where the model is not known.

    Returns:
        None where no price is known of any of it (or of the model in use, where nothing was called).
    """
    amounts: dict[str, float] = {}
    is_exact = is_whole = True
    for model, tokens in spent.items():
        price = prices.get(model or model_now)
        if price is None:
            is_whole = False
            continue
        is_exact = is_exact and tokens.is_exact and bool(model)
        amount = (
            price.input * (tokens.input - tokens.cached)
            + price.cached_input * tokens.cached
            + price.output * tokens.output
        ) / _PER_TOKENS
        amounts[price.currency] = amounts.get(price.currency, 0.0) + amount
    if not spent and (price := prices.get(model_now)) is not None:
        amounts[price.currency] = 0.0
    return Cost(tuple(amounts.items()), is_exact, is_whole) if amounts else None


_Totals = tuple[int, int, int]


class Ledger:
    """Tokens and cost of the model calls behind each checkpoint.

    Args:
        prices: by model; empty where none are set, then nothing costs anything.
    """

    def __init__(self, prices: Mapping[str, ModelPrices] | None = None) -> None:
        self.prices = prices or {}
        self._model = ""
        self._newest = ""
        self._known: set[str] = set()
        self._totals: _Totals = (0, 0, 0)
        self._spent: dict[str, dict[str, ModelUsage]] = {}

    def follow(self, event: Event) -> None:
        """Take in an event: what the totals grow by was spent at the newest checkpoint."""
        match event:
            # What only moves behind a summary spends nothing there.
            case CheckpointCreated(uid=uid, was=""):
                self._newest = uid
                self._known.add(uid)
            case StatusUpdate():
                self._count(event, self._newest)
            case _:
                pass

    def begin(self, status: StatusUpdate) -> None:
        """Begin with an opened session: totals beyond its record were spent at no checkpoint that is known."""
        self._count(status, "")

    def _count(self, status: StatusUpdate, uid: str) -> None:
        self._model = status.model or self._model
        before = self._totals
        now = (status.total_input, status.total_cached, status.total_output)
        if now == before:
            return
        self._totals = now
        grown = [new - old for new, old in zip(now, before, strict=True)]
        # Totals that fall are those of another count; where it began is not known.
        if min(grown) < 0:
            return
        # Figures of tokens in use are estimates after tools ran; those of the call are when it has just returned.
        is_exact = status.step_input is None or not status.estimated
        spent = ModelUsage(grown[0], grown[1], grown[2], is_exact)
        models = self._spent.setdefault(uid, {})
        known = models.get(status.model)
        models[status.model] = spent if known is None else known + spent

    def total_cost(self) -> Cost | None:
        """What the whole session cost; None where no prices are set."""
        spent: dict[str, ModelUsage] = {}
        for models in self._spent.values():
            _add(spent, models)
        return cost_of(spent, self.prices, self._model)

    async def cost_of(self, points: Sequence[Checkpoint], index: ContextIndex) -> Cost | None:
        """What the calls of these checkpoints cost; None where no prices are set.

        Args:
            points: neighbours on the live world line, oldest first, up to its end.
            index: of the live context; its usage records stand in for what the record does not hold.
        """
        if not self.prices:
            return None
        spent: dict[str, ModelUsage] = {}
        size, slices = index.size, TimeSlices()
        for place, point in enumerate(points):
            last = place + 1 == len(points)
            end = size if last else points[place + 1].offset
            _add(spent, self._spent_at(point, index, end))
            if place % 64 == 0:
                await slices.yield_if_over()
        return cost_of(spent, self.prices, self._model)

    def _spent_at(
        self, point: Checkpoint, index: ContextIndex, end: int
    ) -> Mapping[str, ModelUsage]:
        for uid in (point.uid, point.was or ""):
            if uid in self._spent and uid:
                return self._spent[uid]
            if uid in self._known and any(self._totals):
                return {}
        figures = index.usages_between(point.offset, end)
        if not figures:
            return {}
        # Two a step: what was sent, and that with what came back.
        output = max(0, figures[1] - figures[0]) if len(figures) > 1 else 0
        return {"": ModelUsage(figures[0], 0, output, is_exact=False)}


def _add(spent: dict[str, ModelUsage], more: Mapping[str, ModelUsage]) -> None:
    for model, tokens in more.items():
        spent[model] = spent.get(model, ModelUsage()) + tokens


class CompactionTokens(NamedTuple):
    """The tokens before and after a compaction; whether the latter is the server's own figure."""

    before: int
    after: int
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts, tokens and seconds of a session.

    `dmail_tokens_saved` is the sum over all D-Mails. `model_s`,
    `tools_s` and `user_s` are the seconds spent waiting for the model, for tools, and for an answer of the user.
    `cost` is for who has prices to fill in; None where there are none. `is_fork`: all figures count what came along
    from another session too.
    """

    turns: int = 0
    steps: int = 0
    tool_calls: Mapping[str, int] = field(default_factory=dict[str, int])
    tool_failures: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    dmails: int = 0
    dmail_tokens_saved: int = 0
    compactions: tuple[CompactionTokens, ...] = ()
    rewinds: int = 0
    model_s: float = 0.0
    tools_s: float = 0.0
    user_s: float = 0.0
    cost: Cost | None = None
    is_fork: bool = False


@dataclass(slots=True)
class _Clock:
    """Adds up the time between events: the user's while a question is open, else that of a running tool, else the model's."""

    at: float = 0.0
    asked: set[str] = field(default_factory=set[str])
    running: set[str] = field(default_factory=set[str])
    asking_model: bool = False
    model_s: float = 0.0
    tools_s: float = 0.0
    user_s: float = 0.0

    def advance(self, at: float) -> None:
        passed = max(0.0, at - self.at) if self.at else 0.0
        if self.asked:
            self.user_s += passed
        elif self.running:
            self.tools_s += passed
        elif self.asking_model:
            self.model_s += passed
        self.at = at

    def stop(self) -> None:
        self.asked.clear()
        self.running.clear()
        self.asking_model = False


def statistics(records: Iterable[EventRecord]) -> Statistics:
    """Count a session's events, given in order."""
    clock = _Clock()
    tools: Counter[str] = Counter()
    status: StatusUpdate | None = None
    turns = steps = failures = dmails = rewinds = 0
    figures, sent, summary = CheckpointTokens(), DMailCuts(), ""
    compactions: list[CompactionTokens] = []
    made: dict[str, int] = {}
    for record in records:
        event = record.event
        sent.apply(event)
        figures.apply(event)
        if isinstance(event, TurnBegin):
            # A program that was killed in mid-turn left it open; the time until the next turn was nobody's waiting.
            clock.stop()
        clock.advance(record.at)
        match event:
            case TurnBegin(resumed=resumed):
                turns += not resumed
            case TurnEnd() | StepInterrupted():
                clock.stop()
            case StepBegin():
                steps += 1
                clock.stop()
                clock.asking_model = True
            case ToolCall(name=name):
                tools[name] += 1
            case ToolStarted(key=key):
                clock.running.add(key)
            case ToolResult(key=key, is_error=is_error):
                clock.running.discard(key)
                failures += is_error
            case ApprovalRequest(id=name):
                clock.asked.add(name)
            case ApprovalResolved(id=name):
                clock.asked.discard(name)
            case StatusUpdate():
                status = event
            case ContextReverted(reason="dmail"):
                dmails += 1
            case ContextReverted(reason="rewind"):
                rewinds += 1
            case CompactionBegin():
                clock.asking_model = True
            case CheckpointCreated(kind="compaction" | "summary", uid=uid):
                summary = uid
            case CompactionEnd(tokens_before=before, tokens_after=after, error=""):
                made[summary] = len(compactions)
                compactions.append(CompactionTokens(before, after))
            case _:
                pass
    for uid, place in made.items():
        # What the server has counted since, where it has.
        if (figure := figures.left_by(uid)) is not None:
            before = compactions[place].before
            compactions[place] = CompactionTokens(before, figure.tokens, figure.measured)
    return Statistics(
        turns=turns,
        steps=steps,
        tool_calls=dict(tools.most_common()),
        tool_failures=failures,
        input_tokens=status.total_input if status else 0,
        cached_tokens=status.total_cached if status else 0,
        output_tokens=status.total_output if status else 0,
        dmails=dmails,
        dmail_tokens_saved=sum(saved_by(uid, cut, figures) for uid, cut in sent.all),
        compactions=tuple(compactions),
        rewinds=rewinds,
        model_s=clock.model_s,
        tools_s=clock.tools_s,
        user_s=clock.user_s,
    )


def session_statistics(session: Session, prices: Mapping[str, ModelPrices]) -> Statistics:
    """What an open session did and cost. Reads files: call it in a thread.

    Args:
        session: the session; its record must be written out.
        prices: by model; where there are none, there is no cost.
    """
    history = read_history(session)
    ledger = Ledger(prices)
    for record in history.stored:
        ledger.follow(record.event)
    counted = statistics(history.stored)
    if history.shown is not history.stored:
        # The figures of the cards that the chat shows of them.
        drawn = statistics(history.shown)
        counted = replace(counted, dmails=drawn.dmails, dmail_tokens_saved=drawn.dmail_tokens_saved)
    counted = with_journal(counted, session.context.journal.entries)
    is_fork = bool(session.state.forked_from)
    return replace(counted, cost=ledger.total_cost(), is_fork=is_fork)


def with_journal(counted: Statistics, entries: Iterable[JournalEntry]) -> Statistics:
    """Statistics completed by the journal of operations, where the record that they were counted from is lost or imported."""
    by_kind: dict[str, list[tuple[int, int]]] = {"dmail": [], "compaction": [], "rewind": []}
    for entry in entries:
        if entry.op in by_kind:
            # One that only put something at the end took nothing away.
            after = entry.tokens_before if entry.grows_line else entry.tokens_after
            by_kind[entry.op].append((entry.tokens_before, after))
    dmails, compactions, rewinds = by_kind["dmail"], by_kind["compaction"], by_kind["rewind"]
    if len(dmails) > counted.dmails:
        saved = sum(max(0, before - after) for before, after in dmails)
        counted = replace(counted, dmails=len(dmails), dmail_tokens_saved=saved)
    # kimi-cli records a compaction without figures.
    if len(compactions) > sum(one.before > 0 for one in counted.compactions):
        counted = replace(counted, compactions=tuple(CompactionTokens(*one) for one in compactions))
    return replace(counted, rewinds=max(counted.rewinds, len(rewinds)))
