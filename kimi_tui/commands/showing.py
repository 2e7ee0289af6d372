"""`kimi-tui sessions show`: everything about one session, its statistics and the lines it left included."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kimi_tui.commands.arguments import DONE
from kimi_tui.commands.checkpoints import line_facts, print_lines
from kimi_tui.commands.chosen import opened
from kimi_tui.commands.output import print_json, print_pairs, say
from kimi_tui.commands.sizes import size_words
from kimi_tui.places import short
from kimi_tui.prices import stored_prices
from kimi_tui.session.lock import holder_of
from kimi_tui.session.peeking import peeked
from kimi_tui.session.pruning import DiskUse, disk_use
from kimi_tui.session.session import Session
from kimi_tui.session.worldlines import WorldLine
from kimi_tui.soul.money import Cost
from kimi_tui.soul.statistics import Statistics, session_statistics
from kimi_tui.tui.numbers import counted, tokens
from kimi_tui.tui.statistics_words import statistics_pairs


@dataclass(frozen=True, slots=True)
class _Findings:
    title: str
    messages: int
    tokens: int
    checkpoints: int
    use: DiskUse
    lines: list[WorldLine]
    figures: Statistics


async def show(session: Session, *, as_json: bool) -> int:
    """Print it, also of a session that another process has open; returns the exit code.

    Raises:
        StorageTrouble: it cannot be opened at all.
    """
    is_held = holder_of(session.dir) is not None
    async with peeked(session) if is_held else opened(session) as read:
        found = await asyncio.to_thread(_look, read, session.dir)
    if as_json:
        print_json(_facts(read, found))
    else:
        _print(read, found)
    return DONE


def _look(session: Session, folder: Path) -> _Findings:
    context = session.context
    return _Findings(
        title=session.title or "Untitled",
        messages=context.index.counts(0)[0],
        tokens=context.token_count,
        checkpoints=len(context.checkpoints),
        use=disk_use(folder),
        lines=session.world_lines.list(context.checkpoints, context.messages),
        figures=session_statistics(session, stored_prices()),
    )


def _facts(session: Session, found: _Findings) -> dict[str, Any]:
    use = found.use
    return {
        "id": session.id,
        "title": found.title,
        "work_dir": str(session.work_dir),
        "archived": session.state.archived,
        "forked_from": session.state.forked_from or None,
        "imported_from": session.state.imported_from or None,
        "messages": found.messages,
        "tokens": found.tokens,
        "checkpoints": found.checkpoints,
        "size_bytes": use.total,
        "live_bytes": use.live,
        "world_lines_bytes": use.world_lines,
        "record_bytes": use.record,
        "other_bytes": use.other,
        "world_lines": [line_facts(line) for line in found.lines],
        "statistics": statistics_facts(found.figures),
        "remarks": session.remarks,
    }


def statistics_facts(figures: Statistics) -> dict[str, Any]:
    """Statistics as scripts read them."""
    return {
        "turns": figures.turns,
        "steps": figures.steps,
        "tool_calls": dict(figures.tool_calls),
        "tool_failures": figures.tool_failures,
        "input_tokens": figures.input_tokens,
        "cached_tokens": figures.cached_tokens,
        "output_tokens": figures.output_tokens,
        "dmails": figures.dmails,
        "dmail_tokens_saved": figures.dmail_tokens_saved,
        "compactions": [
            {"tokens_before": before, "tokens_after": after, "ratio": _ratio(before, after)}
            for before, after in figures.compactions
        ],
        "rewinds": figures.rewinds,
        "cost": _cost_facts(figures.cost),
        "model_s": round(figures.model_s, 3),
        "tools_s": round(figures.tools_s, 3),
        "person_s": round(figures.person_s, 3),
    }


def _cost_facts(cost: Cost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    amounts = {currency: round(amount, 6) for currency, amount in cost.amounts}
    return {"amounts": amounts, "exact": cost.is_exact, "whole": cost.is_whole}


def _ratio(before: int, after: int) -> float | None:
    return round(after / before, 4) if before > 0 else None


def _print(session: Session, found: _Findings) -> None:
    use = found.use
    say(found.title)
    say(f"{session.id}, in {short(session.work_dir)}")
    print()
    pairs = [
        (
            "conversation",
            f"{counted(found.messages, 'message')}, {tokens(found.tokens)} tokens, "
            f"{counted(found.checkpoints, 'checkpoint')}",
        ),
        (
            "on disk",
            f"{size_words(use.total)}: {size_words(use.live)} live, {size_words(use.world_lines)} "
            f"world lines, {size_words(use.record)} record, {size_words(use.other)} other",
        ),
        *statistics_pairs(found.figures),
    ]
    if session.state.imported_from:
        pairs.append(("imported from", session.state.imported_from))
    if session.state.forked_from:
        pairs.append(("forked from", session.state.forked_from))
    print_pairs(pairs)
    if found.lines:
        print()
        print_lines(found.lines)
    for remark in session.remarks:
        say(f"! {remark}")
