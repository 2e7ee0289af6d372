"""The form of a set of futures without a widget: its fields, the plan that they make, and the sentences about an estimate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.futures.values import MOST, Caps, FuturesPlan, NoFutures, Variant
from kimi_tui.tui import formatting
from kimi_tui.tui.rows import Line, Span

if TYPE_CHECKING:
    from kimi_tui.futures.values import Estimate
    from kimi_tui.soul.rewind_values import Target

LEAST = 2
COUNTS = tuple(range(LEAST, MOST + 1))
FieldName = Literal[
    "count", "same-message", "message", "same-model", "model", "check", "network", "limit"
]
_LIMIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)(?: tokens)?", re.ASCII)
_TOKENS = {"k": 1e3, "K": 1e3, "M": 1e6, "tokens": 1.0, "token": 1.0}
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LIMIT_CHARS = 100
_MOST_NAMED = 6
"""Paths that a sentence of the dialog names before it counts the rest."""


@dataclass(slots=True)
class FuturesForm:
    """The choices and texts of the user.

    Attributes:
        target: the checkpoint before which the futures begin.
        models: the names of the models that can be chosen, the one in use first, by an empty name.
        currency: the sign of amounts.
        count: the number of futures.
        has_one_message, has_one_model: whether all futures have the first message, the first model.
        messages, chosen: the message, and the index of the model, of each future that there can be.
        check: the command that judges each of them.
        has_network: whether that command may use the network.
        limit: the limits of each, as they were written.
    """

    target: Target
    models: Sequence[str] = ("",)
    currency: str = "$"
    count: int = 3
    has_one_message: bool = True
    has_one_model: bool = True
    messages: list[str] = field(default_factory=lambda: [""] * MOST)
    chosen: list[int] = field(default_factory=lambda: [0] * MOST)
    check: str = ""
    has_network: bool = False
    limit: str = ""

    def fields(self) -> list[tuple[FieldName, int]]:
        """Return the fields that are shown, from the top, each with the index of its future."""
        several = range(self.count)
        messages = several[:1] if self.has_one_message else several
        models = several[:1] if self.has_one_model else several
        one_model = len(self.models) < 2
        return [
            ("count", 0),
            ("same-message", 0),
            *((("message"), at) for at in messages),
            *(() if one_model else (("same-model", 0), *(("model", at) for at in models))),
            ("check", 0),
            *((("network", 0),) if self.check.strip() else ()),
            ("limit", 0),
        ]

    def turn(self, name: FieldName, at: int, step: int) -> None:
        """Go to the next value of a field, or to the one before."""
        match name:
            case "count":
                self.count = max(LEAST, min(self.count + step, MOST))
            case "same-message":
                self.has_one_message = not self.has_one_message
            case "same-model":
                self.has_one_model = not self.has_one_model
            case "model":
                self.chosen[at] = (self.chosen[at] + step) % len(self.models)
            case "network":
                self.has_network = not self.has_network
            case _:
                pass

    def plan(self) -> FuturesPlan:
        """Return the plan that the fields make.

        Raises:
            NoFutures: a field cannot be used; its text is one line.
        """
        variants = [
            Variant(
                self.messages[0 if self.has_one_message else at].strip(),
                self.models[self.chosen[0 if self.has_one_model else at]],
            )
            for at in range(self.count)
        ]
        check = self.check.strip()
        caps = parsed_limits(self.limit, self.currency)
        return FuturesPlan(
            self.target, tuple(variants), check, caps, bool(check) and self.has_network
        )


def parsed_limits(written: str, currency: str) -> Caps:
    """Return the limits that a text names, such as `200k, $0.50, 10 min, 20 steps`; an empty one names none.

    Raises:
        NoFutures: a part of it is no limit.
    """
    caps = Caps()
    if len(written) > _LIMIT_CHARS:
        raise NoFutures(
            "The text of the limit is too long. Use for example 200k (tokens), $0.50 or 10 min.",
            "caps",
        )
    for part in filter(None, (piece.strip() for piece in written.split(","))):
        bare = part.removeprefix(currency).strip()
        found = _LIMIT.fullmatch(bare)
        figure = float(found[1]) if found else 0.0
        unit = found[2] if found else "?"
        # 5m could be minutes or millions, so it is neither.
        is_money = bare != part and unit == ""
        if not figure:
            unit = "?"
        if is_money and figure:
            caps = caps._replace(cost=figure)
        elif unit in _TOKENS:
            caps = caps._replace(tokens=int(figure * _TOKENS[unit]))
        elif unit in _SECONDS:
            caps = caps._replace(seconds=figure * _SECONDS[unit])
        elif unit in ("step", "steps"):
            caps = caps._replace(steps=int(figure))
        else:
            raise NoFutures(
                f'"{formatting.cut(one_line(part), 20)}" is not a limit. Use tokens (200k), money ({currency}0.50), '
                "a time (10 min) or a number of steps (20 steps).",
                "caps",
            )
    return caps


def estimate_rows(found: Estimate, plan: FuturesPlan, currency: str) -> list[Line]:
    """Return what the dialog says before the start: the cost, then what is shared, copied and not isolated."""
    rows = [_strong(_first_cost(found, currency)), _quiet(_most_cost(found, plan, currency))]
    if found.at_once < len(found.futures):
        at_once = "one future" if found.at_once == 1 else f"{found.at_once} futures"
        rows.append(_quiet(f"The server works on {at_once} at a time; the others wait."))
    if found.tier_words:
        rows.append(_quiet(found.tier_words))
    if found.shared:
        rows.append(
            _quiet(
                f"Shared by the futures; a future that writes gets its own copy: {_named(found.shared)}"
            )
        )
    if found.copied:
        rows.append(_quiet(f"Copied for each: {_named(found.copied)}"))
    if found.not_isolated:
        rows.append(
            Line((Span("Not isolated: ", "warn"), Span(clean(" ".join(found.not_isolated)), "ink")))
        )
    rows += [_quiet(clean(remark)) for remark in found.remarks]
    return rows


def _strong(text: str) -> Line:
    return Line((Span(text, "strong"),))


def _quiet(text: str) -> Line:
    return Line((Span(text, "quiet"),))


def _first_cost(found: Estimate, currency: str) -> str:
    said = f"The first requests together send {formatting.tokens(found.tokens)} tokens, the conversation so far once for each future"
    if found.cached:
        said += f", {formatting.tokens(found.cached)} of them probably cached"
    if found.cost >= 0:
        said += f": about {formatting.money(found.cost, currency)}"
    return f"{said}."


def _most_cost(found: Estimate, plan: FuturesPlan, currency: str) -> str:
    parts: list[str] = []
    if found.most_cost >= 0:
        parts.append(formatting.money(found.most_cost, currency))
    if found.most_tokens:
        parts.append(f"{formatting.tokens(found.most_tokens)} tokens")
    others: list[str] = []
    if plan.caps.seconds:
        others.append(formatting.duration(plan.caps.seconds))
    if plan.caps.steps:
        others.append(formatting.counted(plan.caps.steps, "step"))
    each = f" Each stops after {' or '.join(others)}." if others else ""
    if parts:
        return f"All futures together use at most {' or '.join(parts)}.{each}"
    if others:
        return f"There is no cost limit.{each}"
    return "There is no limit: each future works until it is done."


def _named(paths: Sequence[str]) -> str:
    return some_of([one_line(one) for one in paths[:_MOST_NAMED]], _MOST_NAMED, len(paths))
