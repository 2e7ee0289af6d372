"""Usage: the actions of a session, the tokens of its calls by checkpoint and by model, and their cost.

`Ledger` counts tokens from the events of a session. The record of a stored session and newly published events are counted in
the same way, so that a resumed session has the same figures as one that was never left. Prices come from the configuration.
`statistics` counts turns, tools and seconds from the record alone, so it is the same for a live session and for one on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from kimi_tui.config.settings import USUAL_PRICES, ModelPrices
from kimi_tui.llm.tokens import text_tokens
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
    LineChanged,
    RuleApplied,
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
    """The tokens of calls of one model; `cached` is part of `input`.

    `is_exact` is false if a part is an estimate, or if the cached part is unknown.
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
    """An amount of money per currency, in the order in which the currencies occurred.

    `is_whole` is false if a model without a known price was called: the cost is at least this amount.
    """

    amounts: tuple[tuple[str, float], ...]
    is_exact: bool = True
    is_whole: bool = True


def cost_of(
    spent: Mapping[str, ModelUsage], prices: Mapping[str, ModelPrices], model_now: str = ""
) -> Cost | None:
    """Return the cost of these calls.

    Args:
        spent: the tokens by model; the empty name has those whose model is unknown.
        prices: the prices by model.
        model_now: the model in use, whose price is used for calls with an unknown model.

    Returns:
        None if no price is known for any of the calls (or for the model in use, if there were no calls).
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
    """The tokens and cost of the model calls after each checkpoint.

    Args:
        prices: the prices by model; if none are set, nothing costs anything.
    """

    def __init__(self, prices: Mapping[str, ModelPrices] | None = None) -> None:
        self.prices = prices or {}
        self._model = ""
        self._newest = ""
        self._known: set[str] = set()
        self._totals: _Totals = (0, 0, 0)
        self._spent: dict[str, dict[str, ModelUsage]] = {}
        self._in_all: dict[str, ModelUsage] = {}
        """The sum of `_spent`, by model."""

    def follow(self, event: Event) -> None:
        """Take in an event: tokens by which the totals grow were spent at the newest checkpoint."""
        match event:
            # A checkpoint that was only moved after a summary has no tokens there.
            case CheckpointCreated(uid=uid, was=""):
                self._newest = uid
                self._known.add(uid)
            case StatusUpdate():
                self._count(event, self._newest)
            case _:
                pass

    def begin(self, status: StatusUpdate) -> None:
        """Begin with an opened session: totals beyond its record were spent at no known checkpoint."""
        self._count(status, "")

    def _count(self, status: StatusUpdate, uid: str) -> None:
        self._model = status.model or self._model
        before = self._totals
        now = (status.total_input, status.total_cached, status.total_output)
        if now == before:
            return
        self._totals = now
        sent, cached, said = now[0] - before[0], now[1] - before[1], now[2] - before[2]
        # Falling totals belong to another count, whose beginning is unknown.
        if sent < 0 or cached < 0 or said < 0:
            return
        # The tokens in use are an estimate after tools ran; the figures of a call are exact when it has just returned.
        is_exact = status.step_input is None or not status.estimated
        more = {status.spent_by or status.model: ModelUsage(sent, cached, said, is_exact)}
        _add(self._spent.setdefault(uid, {}), more)
        _add(self._in_all, more)

    def total_cost(self) -> Cost | None:
        """Return the cost of the whole session; None if no prices are set."""
        return cost_of(self._in_all, self.prices, self._model)

    async def cost_of(self, points: Sequence[Checkpoint], index: ContextIndex) -> Cost | None:
        """Return the cost of the calls of these checkpoints; None if no prices are set.

        Args:
            points: neighbouring checkpoints on the live world line, oldest first, up to its end.
            index: the index of the live context; its usage records are used for steps that the record does not contain.
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
        # There are two figures per step: the tokens sent, and those including the answer.
        output = max(0, figures[1] - figures[0]) if len(figures) > 1 else 0
        return {"": ModelUsage(figures[0], 0, output, is_exact=False)}


def _add(spent: dict[str, ModelUsage], more: Mapping[str, ModelUsage]) -> None:
    for model, tokens in more.items():
        known = spent.get(model)
        spent[model] = tokens if known is None else known + tokens


class CompactionTokens(NamedTuple):
    """The tokens before and after a compaction, and whether the latter is the server's own figure."""

    before: int
    after: int
    measured: bool = False


@dataclass(frozen=True, slots=True)
class RuleFigures:
    """The D-Mails to which a rule led in a session, and the tokens or the money that they saved.

    Attributes:
        name: the rule's name; empty for the D-Mails that no rule led to.
        fired, drafted, sent, refused: how many times.
        taken: the tokens that its D-Mails took out of the context.
        calls: the model calls that followed them on their lines, summed over the D-Mails.
        saved: taken x calls that followed x price of a cached token, in money, or in tokens of fresh input if the models
            that took part have no prices, or prices in several currencies.
        cost: what the D-Mails and their drafts cost, in the same unit.
        currency: of both; empty for tokens.
    """

    name: str
    fired: int = 0
    drafted: int = 0
    sent: int = 0
    refused: int = 0
    taken: int = 0
    calls: int = 0
    saved: float = 0.0
    cost: float = 0.0
    currency: str = ""

    @property
    def net(self) -> float:
        """The real saving: `saved` without `cost`; less than 0 for a loss."""
        return self.saved - self.cost


@dataclass(slots=True)
class _SentByRule:
    """A D-Mail that is still in the context: the tokens that it took out, and the calls since then."""

    rule: str
    uid: str
    cut: ContextReverted
    price: ModelPrices
    calls: int = 0
    is_there: bool = True


class RuleSavings:
    """Follows the events of a session, and computes what each rule saved.

    A D-Mail saves its tokens at each call from its own on, until a compaction, or until its place in the conversation is left.

    Args:
        prices: the prices by model; a model without one has the usual ratios.
    """

    def __init__(self, prices: Mapping[str, ModelPrices]) -> None:
        self._prices = prices
        self._model = ""
        self._counts: dict[str, Counter[str]] = {}
        self._costs: dict[str, list[tuple[float, ModelPrices]]] = {}
        self._sent: list[_SentByRule] = []
        self._drafted = ""
        """The rule whose draft is not sent yet."""
        self._totals = (0, 0)
        self.figures = CheckpointTokens()
        self._cuts = DMailCuts()

    def apply(self, event: Event) -> None:
        """Apply an event."""
        self.figures.apply(event)
        self._cuts.apply(event)
        match event:
            case RuleApplied(rule=rule, did=did):
                self._counts.setdefault(rule, Counter())[did] += 1
                if did == "drafted":
                    self._cost(rule, event.input - event.cached, event.cached, event.output)
                    self._drafted = rule
            case StatusUpdate():
                self._model = event.model or self._model
                now = (event.total_input, event.total_output)
                # A status is published more than once for a call.
                is_call = event.step_input is not None and now != self._totals
                self._totals = now
                if is_call:
                    for one in self._sent:
                        one.calls += one.is_there
            case ContextReverted(reason="dmail") if event.from_checkpoint >= event.checkpoint_id:
                self._leave(event)
                self._counts.setdefault(event.rule, Counter())["sent"] += 1
                letter = text_tokens(event.text) + text_tokens(event.facts)
                # The agent wrote the D-Mail in a call of its own, which read the context before; a draft was counted above.
                is_agents = event.author == "agent" and not (
                    event.rule and event.rule == self._drafted
                )
                before = max(0, event.tokens_after - letter) if is_agents else 0
                written = text_tokens(event.text) if is_agents else 0
                self._cost(event.rule, letter, before, written)
                self._drafted = ""
                self._sent.append(_SentByRule(event.rule, event.uid, event, self._price))
            case ContextReverted():
                self._leave(event)
            case CompactionEnd(error="") | LineChanged(op="jump" | "undo" | "redo"):
                for one in self._sent:
                    one.is_there = False
            case _:
                pass

    def _leave(self, event: ContextReverted) -> None:
        for one in self._sent:
            if one.cut.checkpoint_id >= event.checkpoint_id:
                one.is_there = False

    @property
    def _price(self) -> ModelPrices:
        return self._prices.get(self._model) or USUAL_PRICES

    def _cost(self, rule: str, fresh: int, cached: int, output: int) -> None:
        price = self._price
        amount = fresh * price.input + cached * price.cached_input + output * price.output
        self._costs.setdefault(rule, []).append((amount, price))

    def rules(self) -> tuple[RuleFigures, ...]:
        """Return the figures of each rule that fired, in the order of their first firing."""
        taken: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        saved: dict[str, list[tuple[float, ModelPrices]]] = {}
        for one, (uid, cut) in zip(
            self._sent,
            [(uid, cut) for uid, cut in self._cuts.all if cut.from_checkpoint >= cut.checkpoint_id],
            strict=True,
        ):
            tokens = saved_by(uid, cut, self.figures)
            taken[one.rule] += tokens
            calls[one.rule] += one.calls
            amount = tokens * one.calls * one.price.cached_input
            saved.setdefault(one.rule, []).append((amount, one.price))
        found: list[RuleFigures] = []
        for name, counts in filter(itemgetter(0), self._counts.items()):
            of = (saved.get(name, []), self._costs.get(name, []))
            currency = _one_currency(price for amounts in of for _, price in amounts)
            found.append(
                RuleFigures(
                    name,
                    counts["fired"],
                    counts["drafted"],
                    counts["sent"],
                    counts["refused"],
                    taken[name],
                    calls[name],
                    *(_sum_of(amounts, currency) for amounts in of),
                    currency=currency,
                )
            )
        return tuple(found)


def _one_currency(prices: Iterable[ModelPrices]) -> str:
    """Return the currency of all these prices; empty if one has none, or they have several."""
    found = {price.currency for price in prices}
    return found.pop() if len(found) == 1 else ""


def _sum_of(amounts: Iterable[tuple[float, ModelPrices]], currency: str) -> float:
    """Return a sum in money, or without a currency in tokens of fresh input."""
    if currency:
        return sum(amount for amount, _ in amounts) / _PER_TOKENS
    return sum(amount / (price.input or USUAL_PRICES.input) for amount, price in amounts)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts, tokens and seconds of a session.

    `dmail_tokens_saved` is the sum over all D-Mails. `model_s`, `tools_s` and `user_s` are the seconds spent waiting for the
    model, for tools, and for an answer of the user. `cost` is filled in by callers that have prices; None if there are none.
    With `is_fork` all figures include the part that was copied from another session.
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
    dmail_rules: tuple[RuleFigures, ...] = ()
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


def statistics(
    records: Iterable[EventRecord], prices: Mapping[str, ModelPrices] | None = None
) -> Statistics:
    """Count a session's events, given in order; `prices` by model are for what the rules of D-Mails saved."""
    rules = RuleSavings(prices or {})
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
        rules.apply(event)
        if isinstance(event, TurnBegin):
            # A program that was killed in mid-turn left the turn open; nobody waited until the next turn.
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
        # The server's figure since then is used, if there is one.
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
        dmail_rules=rules.rules(),
        compactions=tuple(compactions),
        rewinds=rewinds,
        model_s=clock.model_s,
        tools_s=clock.tools_s,
        user_s=clock.user_s,
    )


def session_statistics(session: Session, prices: Mapping[str, ModelPrices]) -> Statistics:
    """Return the statistics of an open session, with its cost. It reads files, so call it in a thread.

    Args:
        session: the session; its record must be written out.
        prices: the prices by model; without prices there is no cost.
    """
    history = read_history(session)
    ledger = Ledger(prices)
    for record in history.stored:
        ledger.follow(record.event)
    counted = statistics(history.stored, prices)
    if history.shown is not history.stored:
        # These are the figures that the chat's cards show.
        drawn = statistics(history.shown)
        counted = replace(counted, dmails=drawn.dmails, dmail_tokens_saved=drawn.dmail_tokens_saved)
    counted = with_journal(counted, session.context.journal.entries)
    is_fork = bool(session.state.forked_from)
    return replace(counted, cost=ledger.total_cost(), is_fork=is_fork)


def with_journal(counted: Statistics, entries: Iterable[JournalEntry]) -> Statistics:
    """Complete statistics from the journal of operations, if the record from which they were counted is lost or imported."""
    by_kind: dict[str, list[tuple[int, int]]] = {"dmail": [], "compaction": [], "rewind": []}
    for entry in entries:
        if entry.op in by_kind:
            # An operation that only appended removed nothing.
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
