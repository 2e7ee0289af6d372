"""What calls of models cost, where the person has said what a token costs.

Pure arithmetic: which calls there were is counted in `spending`, prices come with the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_PER_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens of a model cost. `cached_input` is for the part of the input that the server had kept."""

    input: float
    cached_input: float
    output: float
    currency: str = "$"


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens that calls of one model took; `cached` is part of `input`.

    `is_exact` is false where some of it is an estimate, or where nobody told how much of it was cached.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    is_exact: bool = True

    def __add__(self, other: Spent) -> Spent:
        return Spent(
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
    spent: Mapping[str, Spent], prices: Mapping[str, Price], model_now: str = ""
) -> Cost | None:
    """What these calls cost.

    Args:
        spent: tokens by model; under an empty name those of which nobody told the model.
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
