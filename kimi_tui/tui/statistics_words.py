"""What a session did and cost, in words: the same on the screen and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tool_names import short_name
from kimi_tui.tui.numbers import counted, duration, money, percent, tokens

if TYPE_CHECKING:
    from kimi_tui.soul.money import Cost
    from kimi_tui.soul.statistics import Statistics

LEAST_S = 0.05
"""A shorter wait would be said to be none."""


def statistics_pairs(figures: Statistics) -> list[tuple[str, str]]:
    """Statistics as rows of a name and a sentence; what never happened is left out."""
    pairs: list[tuple[str, str]] = []
    if figures.turns or figures.steps:
        pairs.append(("turns", f"{figures.turns:,}, with {counted(figures.steps, 'step')}"))
    if figures.tool_calls:
        calls = ", ".join(
            f"{short_name(name)} {count:,}" for name, count in figures.tool_calls.items()
        )
        failed = f" ({figures.tool_failures:,} failed)" if figures.tool_failures else ""
        pairs.append(("tool calls", f"{calls}{failed}"))
    if figures.input_tokens or figures.output_tokens:
        cached = percent(figures.cached_tokens, figures.input_tokens)
        pairs.append(
            (
                "tokens",
                f"{tokens(figures.input_tokens)} input ({tokens(figures.cached_tokens)} cached, {cached}), "
                f"{tokens(figures.output_tokens)} output",
            )
        )
    if figures.cost is not None:
        pairs.append(("cost", cost_words(figures.cost)))
    if figures.dmails:
        pairs.append(
            ("D-Mails", f"{figures.dmails:,}, {tokens(figures.dmail_tokens_saved)} tokens saved")
        )
    if figures.compactions:
        each = ", ".join(
            f"{tokens(before)} to {tokens(after)} ({percent(after, before)})"
            for before, after in figures.compactions
        )
        pairs.append(("compactions", each))
    if figures.rewinds:
        pairs.append(("rewinds", f"{figures.rewinds:,}"))
    waits = (
        ("the model", figures.model_s),
        ("tools", figures.tools_s),
        ("you", figures.person_s),
    )
    waited = ", ".join(f"{who} {duration(time_s)}" for who, time_s in waits if time_s >= LEAST_S)
    if waited:
        pairs.append(("waited for", waited))
    if figures.is_fork and pairs:
        pairs.append(("a fork", "what came along from the other session is counted in all of this"))
    return pairs


def cost_words(cost: Cost) -> str:
    """`$0.42`, `about $0.42` where some tokens are not known for certain, `at least $0.42` where a price is missing."""
    amounts = " + ".join(money(amount, currency) for currency, amount in cost.amounts)
    if not cost.is_whole:
        return f"at least {amounts}"
    return amounts if cost.is_exact else f"about {amounts}"
