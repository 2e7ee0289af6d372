"""What a session did and what it cost, counted from its record alone: the same for a live one and for one on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kimi_tui.session.journal import Entry
from kimi_tui.session.session import Session
from kimi_tui.soul.record import read_records
from kimi_tui.soul.usage import Cost, Ledger, Price
from kimi_tui.wire.events import (
    ApprovalRequest,
    ApprovalResolved,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
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


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts, tokens and seconds of a session.

    `dmail_tokens_saved` is the sum over all D-Mails; `compactions` are pairs of tokens before and after. `model_s`,
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
    compactions: tuple[tuple[int, int], ...] = ()
    rewinds: int = 0
    model_s: float = 0.0
    tools_s: float = 0.0
    user_s: float = 0.0
    cost: Cost | None = None
    is_fork: bool = False


@dataclass(slots=True)
class _Clock:
    """Shares out the time between events: an open question counts for the user, else a running tool, else the model."""

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
    turns = steps = failures = dmails = saved = rewinds = 0
    compactions: list[tuple[int, int]] = []
    for record in records:
        event = record.event
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
            case ContextReverted(reason="dmail", tokens_before=before, tokens_after=after):
                dmails += 1
                saved += max(0, before - after)
            case ContextReverted(reason="rewind"):
                rewinds += 1
            case CompactionBegin():
                clock.asking_model = True
            case CompactionEnd(tokens_before=before, tokens_after=after, error=error):
                if not error:
                    compactions.append((before, after))
            case _:
                pass
    return Statistics(
        turns=turns,
        steps=steps,
        tool_calls=dict(tools.most_common()),
        tool_failures=failures,
        input_tokens=status.total_input if status else 0,
        cached_tokens=status.total_cached if status else 0,
        output_tokens=status.total_output if status else 0,
        dmails=dmails,
        dmail_tokens_saved=saved,
        compactions=tuple(compactions),
        rewinds=rewinds,
        model_s=clock.model_s,
        tools_s=clock.tools_s,
        user_s=clock.user_s,
    )


def session_statistics(session: Session, prices: Mapping[str, Price]) -> Statistics:
    """What an open session did and cost. Reads files: call it in a thread.

    Args:
        session: the session; its record must be written out.
        prices: by model; where there are none, there is no cost.
    """
    records = read_records(session)
    ledger = Ledger(prices)
    for record in records:
        ledger.follow(record.event)
    counted = with_journal(statistics(records), session.context.journal.entries)
    is_fork = bool(session.state.forked_from)
    return replace(counted, cost=ledger.total_cost(), is_fork=is_fork)


def with_journal(counted: Statistics, entries: Iterable[Entry]) -> Statistics:
    """The same, with what the journal of operations knows and the record does not (it is lost, or was imported)."""
    by_kind: dict[str, list[tuple[int, int]]] = {"dmail": [], "compaction": [], "rewind": []}
    for entry in entries:
        if entry.op in by_kind:
            by_kind[entry.op].append((entry.tokens_before, entry.tokens_after))
    dmails, compactions, rewinds = by_kind["dmail"], by_kind["compaction"], by_kind["rewind"]
    if len(dmails) > counted.dmails:
        saved = sum(max(0, before - after) for before, after in dmails)
        counted = replace(counted, dmails=len(dmails), dmail_tokens_saved=saved)
    # kimi-cli records a compaction without figures.
    if len(compactions) > sum(before > 0 for before, _ in counted.compactions):
        counted = replace(counted, compactions=tuple(compactions))
    return replace(counted, rewinds=max(counted.rewinds, len(rewinds)))
