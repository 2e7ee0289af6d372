"""Reading `config.toml` with the standard library and checks by hand, fast enough for before the first paint.

A file that is not TOML is an error; a key that is unknown or has a wrong value costs only itself and is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from kimi_tui.config.model import (
    LEAST_WINDOW,
    Config,
    ConfigError,
    DMailConfig,
    LoopControl,
    ModelConfig,
    ModelPrices,
    ProviderConfig,
)

Value = TypeVar("Value")
Table = Mapping[str, Any]

THEMES = ("dark", "light", "16")
GLYPHS = ("unicode", "ascii")

# kimi-cli's own keys mean something to it and nothing here, so they are no reason for a notice.
_KIMI_CLI = frozenset(
    (
        *("default_yolo", "default_plan_mode", "default_editor", "skip_afk_prompt_injection"),
        *("show_thinking_stream", "merge_all_available_skills", "extra_skill_dirs", "telemetry"),
        *("background", "services", "mcp", "hooks", "notifications", "oauth", "custom_headers"),
        *("env", "reasoning_key", "display_name", "max_ralph_iterations", "max_steps_per_run"),
    )
)
_PLACE = re.compile(r"\(at line (\d+), column \d+\)$")


def read_config(path: Path) -> Config:
    """The configuration in a file; an absent file is the default one.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_config(data, path)


def parse_config(data: bytes, path: Path) -> Config:
    """The configuration in a file's bytes.

    Raises:
        ConfigError: they are not TOML.
    """
    import tomllib  # 6 ms, and most first runs have no file

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8 text") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = _PLACE.search(message)
        line = found.group(1) if found else str(text.count("\n") + 1)
        said = _PLACE.sub("", message).strip().removesuffix("(at end of document)").strip()
        raise ConfigError(f"{path}, line {line}: not TOML: {said}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}, line 1: nested too deeply") from error
    return _Reader(path).config(table)


class _Reader:
    """Takes values out of tables and remembers what it could not use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._notices: list[str] = []

    def config(self, table: Table) -> Config:
        known = {
            "default_model",
            "default_thinking",
            "models",
            "providers",
            "loop_control",
            "dmail",
            "keys",
            "theme",
            "glyphs",
            "reduced_motion",
            "stream_timeout_s",
        }
        self._unknown(table, known, "")
        providers = {
            name: provider
            for name, entry in self._tables(table, "providers").items()
            if (provider := self._provider(name, entry)) is not None
        }
        models = {
            name: model
            for name, entry in self._tables(table, "models").items()
            if (model := self._model(name, entry, providers)) is not None
        }
        default = self._take(table, "", "default_model", "", _text)
        if default and default not in models:
            self._say("default_model", f"names [models.{default}], which cannot be used")
            default = ""
        return Config(
            default_model=default or (next(iter(models)) if len(models) == 1 else ""),
            models=models,
            providers=providers,
            loop=self._loop(self._table(table, "loop_control")),
            dmail=self._dmail(self._table(table, "dmail")),
            keys=self._keys(self._table(table, "keys")),
            theme=self._take(table, "", "theme", "dark", _one_of(THEMES)),
            glyphs=self._take(table, "", "glyphs", "unicode", _one_of(GLYPHS)),
            reduced_motion=self._take(table, "", "reduced_motion", False, _flag),
            thinking=self._take(table, "", "default_thinking", False, _flag),
            stream_timeout_s=self._take(table, "", "stream_timeout_s", 120.0, _number(1, 3600)),
            source=self._path,
            notices=tuple(self._notices),
        )

    def _provider(self, name: str, table: Table) -> ProviderConfig | None:
        place = f"providers.{name}"
        self._unknown(table, {"type", "base_url", "api_key", "dialect"}, place)
        base_url = self._take(table, place, "base_url", "", _url)
        if not base_url:
            if "base_url" not in table:
                self._say(f"{place}.base_url", "is missing")
            return None
        return ProviderConfig(
            name=name,
            base_url=base_url,
            api_key=self._take(table, place, "api_key", "", _text).strip(),
            type=self._take(table, place, "type", "openai_legacy", _text),
            dialect=self._take(table, place, "dialect", "", _text) or None,
        )

    def _model(
        self, name: str, table: Table, providers: Mapping[str, ProviderConfig]
    ) -> ModelConfig | None:
        place = f"models.{name}"
        known = {"provider", "model", "max_context_size", "capabilities", "prices"}
        self._unknown(table, known, place)
        provider = self._take(table, place, "provider", "", _text)
        model = self._take(table, place, "model", "", _text)
        if not model:
            self._say(f"{place}.model", "is missing")
            return None
        if provider not in providers:
            self._say(f"{place}.provider", f"names [providers.{provider}], which cannot be used")
            return None
        size = self._take(table, place, "max_context_size", 0, _whole(LEAST_WINDOW, 100_000_000))
        return ModelConfig(
            name=name,
            provider=provider,
            model=model,
            max_context_size=size or None,
            capabilities=self._take(table, place, "capabilities", (), _texts),
            prices=self._prices(table, place),
        )

    def _prices(self, table: Table, model: str) -> ModelPrices | None:
        """All that is needed or none: half a price would make every sum of money wrong."""
        if "prices" not in table:
            return None
        place = f"{model}.prices"
        entry = table["prices"]
        if not isinstance(entry, Mapping):
            self._say(place, "must be a table")
            return None
        prices = cast(Table, entry)
        self._unknown(prices, {"input", "cached_input", "output", "currency"}, place)
        figures: dict[str, float] = {}
        for key in ("input", "output", "cached_input"):
            if key in prices:
                figure = self._take(prices, place, key, -1.0, _number(0, 1_000_000))
            elif key == "cached_input":
                figure = figures["input"]
            else:
                self._say(f"{place}.{key}", "is missing")
                return None
            if figure < 0:
                return None
            figures[key] = figure
        currency = self._take(prices, place, "currency", "$", _currency)
        return ModelPrices(**figures, currency=currency)

    def _loop(self, table: Table) -> LoopControl:
        place, plain = "loop_control", LoopControl()
        names = {
            "max_steps_per_turn",
            "max_retries_per_step",
            "reserved_context_size",
            "compaction_trigger_ratio",
        }
        self._unknown(table, names, place)
        steps = self._take(
            table, place, "max_steps_per_run", plain.max_steps_per_turn, _whole(1, 1_000_000)
        )
        return LoopControl(
            max_steps_per_turn=self._take(
                table, place, "max_steps_per_turn", steps, _whole(1, 1_000_000)
            ),
            max_retries_per_step=self._take(
                table, place, "max_retries_per_step", plain.max_retries_per_step, _whole(1, 100)
            ),
            reserved_context_size=self._take(
                table,
                place,
                "reserved_context_size",
                plain.reserved_context_size,
                _whole(0, 100_000_000),
            ),
            compaction_trigger_ratio=self._take(
                table,
                place,
                "compaction_trigger_ratio",
                plain.compaction_trigger_ratio,
                _number(0.1, 1.0),
            ),
        )

    def _dmail(self, table: Table) -> DMailConfig:
        place, plain = "dmail", DMailConfig()
        self._unknown(table, {"enabled", "nudge_tokens", "review"}, place)
        return DMailConfig(
            enabled=self._take(table, place, "enabled", plain.enabled, _flag),
            nudge_tokens=self._take(
                table, place, "nudge_tokens", plain.nudge_tokens, _whole(0, 100_000_000)
            ),
            review=self._take(table, place, "review", plain.review, _flag),
        )

    def _keys(self, table: Table) -> dict[str, str]:
        if not table:
            return {}
        from kimi_tui.config.keys import usable  # most files change no key

        texts = {name: self._take(table, "keys", name, "", _text).strip() for name in table}
        return usable(texts, lambda name, what: self._say(f"keys.{name}", what))

    def _tables(self, table: Table, key: str) -> dict[str, Table]:
        found: dict[str, Table] = {}
        for name, entry in self._table(table, key).items():
            if isinstance(entry, Mapping):
                found[name] = cast(Table, entry)
            else:
                self._say(f"{key}.{name}", "must be a table")
        return found

    def _table(self, table: Table, key: str) -> Table:
        entry = table.get(key, {})
        if isinstance(entry, Mapping):
            return cast(Table, entry)
        self._say(key, "must be a table")
        return {}

    def _take(
        self, table: Table, place: str, key: str, default: Value, check: Callable[[Any], Value]
    ) -> Value:
        if key not in table:
            return default
        try:
            return check(table[key])
        except ValueError as error:
            self._say(f"{place}.{key}" if place else key, str(error))
            return default

    def _unknown(self, table: Table, known: set[str], place: str) -> None:
        for key in table:
            if key not in known and key not in _KIMI_CLI:
                self._say(f"{place}.{key}" if place else key, "is not known here")

    def _say(self, key: str, what: str) -> None:
        self._notices.append(f"{self._path.name}: {key} {what}; the rest is used.")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text in quotes")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    items = cast("list[Any]", value) if isinstance(value, list) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of texts")
    return tuple(items)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _currency(value: Any) -> str:
    text = _text(value).strip()
    if not 1 <= len(text) <= 4 or not text.isprintable():
        raise ValueError("must be a sign or a code of one to four letters")
    return text


def _url(value: Any) -> str:
    text = _text(value).strip().rstrip("/")
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s]*", text):
        raise ValueError("must begin with https:// or http://")
    return text


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return check


def _number(least: float, most: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise ValueError(f"must be a number from {least} to {most}")
        return float(value)

    return check


def _one_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return str(value)

    return check
