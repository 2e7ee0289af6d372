"""What a session did and cost, in words: the same on the screen and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.tui.numbers import counted, duration, percent, tokens

if TYPE_CHECKING:
    from kimi_tui.soul.statistics import Statistics


def statistics_pairs(figures: Statistics) -> list[tuple[str, str]]:
    """Statistics as rows of a name and a sentence; what never happened is left out."""
    pairs: list[tuple[str, str]] = []
    if figures.turns or figures.steps:
        pairs.append(("turns", f"{figures.turns:,}, with {counted(figures.steps, 'step')}"))
    if figures.tool_calls:
        calls = ", ".join(f"{name} {count:,}" for name, count in figures.tool_calls.items())
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
    if figures.model_s + figures.tools_s + figures.person_s >= 0.1:
        pairs.append(
            (
                "waited for",
                f"the model {duration(figures.model_s)}, tools {duration(figures.tools_s)}, "
                f"you {duration(figures.person_s)}",
            )
        )
    return pairs
