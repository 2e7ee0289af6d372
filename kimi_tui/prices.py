"""The prices that the configuration says, as the engine reckons with them.

Stands between the two because neither knows the other.
"""

from __future__ import annotations

from kimi_tui.config.model import Config, ConfigError
from kimi_tui.config.reading import read_config
from kimi_tui.places import config_file
from kimi_tui.soul.money import Price


def prices_of(config: Config) -> dict[str, Price]:
    """The prices by the name that a server knows the model by; where two entries name one, the default's count."""
    default = config.models.get(config.default_model)
    entries = [*config.models.values(), *([default] if default is not None else [])]
    return {
        entry.model: Price(
            entry.prices.input,
            entry.prices.cached_input,
            entry.prices.output,
            entry.prices.currency,
        )
        for entry in entries
        if entry.prices is not None
    }


def stored_prices() -> dict[str, Price]:
    """The prices in the person's file (kimi-cli's has none); none where it cannot be read: that is told elsewhere."""
    try:
        return prices_of(read_config(config_file()))
    except ConfigError:
        return {}
