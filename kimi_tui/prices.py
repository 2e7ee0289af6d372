"""The configured prices in the form the engine calculates with: a module of its own because config and soul do not know each other."""

from __future__ import annotations

from kimi_tui.app_paths import config_file
from kimi_tui.config.file import read_config
from kimi_tui.config.settings import Config, ConfigError
from kimi_tui.soul.usage import Price


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
    """The prices in the user's file (kimi-cli's has none); none where it cannot be read, which is reported elsewhere."""
    try:
        return prices_of(read_config(config_file()))
    except ConfigError:
        return {}
