"""Reads and writes `config.toml`.

Reading needs only the standard library and the tables of `settings`, which is fast enough for before the first paint. A file
that is not TOML is an error; an unknown key, or one with an invalid value, is ignored and named in a notice.

Writing keeps the rest of the file, including comments. Only the owner can read the file (0600). It is replaced in one rename,
and the new text is parsed before that: a text that does not give the intended configuration is not written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard, cast

from kimi_tui.app_paths import make_private, reason_of, short
from kimi_tui.base_url import is_url
from kimi_tui.config.checks import STRIPPED
from kimi_tui.config.model_choice import ModelChoice, provider_type
from kimi_tui.config.settings import (
    KEYRING_PREFIX,
    RULE_ACTIONS,
    RULE_CONDITIONS,
    TABLES,
    Config,
    ConfigError,
    DMailRule,
    EditCheck,
    ExternalAgentConfig,
    ModelConfig,
    ModelPrices,
    ProviderConfig,
    SearchConfig,
    Setting,
    declared,
)
from kimi_tui.filesystem import Storage, read_regular

MAX_CONFIG_BYTES = 4 << 20
TomlTable = Mapping[str, Any]

# kimi-cli's own keys have a meaning for kimi-cli and none here, so they cause no notice.
_KIMI_CLI = frozenset(
    (
        *("default_yolo", "default_plan_mode", "default_editor", "skip_afk_prompt_injection"),
        *("show_thinking_stream", "merge_all_available_skills", "extra_skill_dirs", "telemetry"),
        *("background", "services", "mcp", "hooks", "notifications", "oauth", "custom_headers"),
        *("env", "reasoning_key", "display_name", "max_ralph_iterations", "max_steps_per_run"),
    )
)
_MAX_HEADERS = 20
_MOST_CHECKS = 20
_MOST_RULES = 20
_MAX_RULE_NAME = 40
_MAX_HEADER_CHARS = 4_096
# The patterns are strings: most files name no header, and compiling them would delay the first paint.
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_OWN_HEADERS = (
    r"(?i:authorization|cookie2?|host|user-agent|accept.*|content-.*|connection|expect|keep-alive|proxy-.*|te|trailer"
    r"|transfer-encoding|upgrade)"
)
"""Headers that the request or the connection needs unchanged, or that would claim another identity."""
_FIGURES = ("input", "output", "cached_input")
_SECTIONS = frozenset({*TABLES, "models", "providers", "keys", "checks", "external_agents"})
_AGENT_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
_PLACE = r"\(at line (\d+), column \d+\)$"


# --- reading


def read_config(path: Path) -> Config:
    """Read the configuration from a file; without one, the defaults. Fast enough for before the first paint.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    try:
        # Dotfiles are often links into a folder that is kept elsewhere.
        data = read_regular(path, MAX_CONFIG_BYTES, links=True)
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {reason_of(error, named_in_text=path)}"
        ) from error
    config = parse_config(data, path)
    with suppress(OSError):
        if path.stat().st_mode & 0o077 and _holds_key(config):
            words = f"{path.name} contains an API key and can be read by other users. Run: chmod 600 {short(path)}"
            config = config._replace(notices=(*config.notices, words))
    return config


def _holds_key(config: Config) -> bool:
    search = config.search
    return any(
        one.headers or (one.api_key and not one.api_key.startswith(KEYRING_PREFIX))
        for one in (*config.providers.values(), *([search] if search is not None else []))
    )


def parse_config(data: bytes, path: Path) -> Config:
    """Parse the configuration in a file's bytes.

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
        found = re.search(_PLACE, message)
        line = found.group(1) if found else str(text.count("\n") + 1)
        said = re.sub(_PLACE, "", message).strip().removesuffix("(at end of document)").strip()
        raise ConfigError(f"{path}, line {line}: not TOML: {said}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}, line 1: nested too deeply") from error
    return _Reader(path).config(table)


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))


class _Reader:
    """Takes values out of tables and remembers those that it could not use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._notices: list[str] = []

    def config(self, table: TomlTable) -> Config:
        values = self._values(table, "", declared(Config), also=_SECTIONS)
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
        default = values.pop("default_model", "")
        if default and default not in models:
            self._say("default_model", f"names [models.{default}], which is missing or wrong")
            default = ""
        for name, kind in TABLES.items():
            also = {"web": ("search",), "dmail": ("rules",)}.get(name, ())
            entry = self._table(table, name)
            found = self._values(entry, name, declared(kind), also=also)
            if name == "dmail" and "rules" in entry:
                found["rules"] = self._rules(entry["rules"])
            values[name] = kind(**found)
        return Config(
            default_model=default or (next(iter(models)) if len(models) == 1 else ""),
            search=self._search(table),
            models=models,
            providers=providers,
            keys=self._keys(self._table(table, "keys")),
            checks=self._checks(self._table(table, "checks")),
            external_agents={
                name: agent
                for name, entry in self._tables(table, "external_agents").items()
                if (agent := self._external_agent(name, entry)) is not None
            },
            source=self._path,
            notices=tuple(self._notices),
            **values,
        )

    def _search(self, table: TomlTable) -> SearchConfig | None:
        """Return the search service: that of `[web.search]`, else kimi-cli's own if it has a key."""
        entry = self._table(self._table(table, "web"), "search", "web.search")
        if not entry:
            return self._kimi_search(table)
        place = "web.search"
        values = self._values(entry, place, declared(SearchConfig), also=("headers",))
        provider = values.get("provider")
        if provider is None:
            if "provider" not in entry:
                self._say(f"{place}.provider", "is missing")
            return None
        needed = "base_url" if provider == "searxng" else "api_key"
        if not values.get(needed):
            if needed not in entry or needed in values:
                self._say(f"{place}.{needed}", f"is missing, and {provider} needs it")
            return None
        return SearchConfig(headers=self._headers(entry, place), **values)

    def _kimi_search(self, table: TomlTable) -> SearchConfig | None:
        services = table.get("services")
        entry = (
            cast(TomlTable, services).get("moonshot_search")
            if isinstance(services, Mapping)
            else None
        )
        if not isinstance(entry, Mapping):
            return None
        found = cast(TomlTable, entry)
        key, url = found.get("api_key"), found.get("base_url")
        if (
            not isinstance(key, str)
            or not key.strip()
            or not isinstance(url, str)
            or not is_url(url.strip())
        ):
            return None  # kimi-cli's login has no key of its own
        headers = self._headers(
            {"headers": found.get("custom_headers", {})}, "services.moonshot_search"
        )
        return SearchConfig("kimi", url.strip(), key.strip(), headers)

    def _provider(self, name: str, table: TomlTable) -> ProviderConfig | None:
        place = f"providers.{name}"
        values = self._values(table, place, declared(ProviderConfig), also=("headers",))
        if "base_url" not in values:
            if "base_url" not in table:
                self._say(f"{place}.base_url", "is missing")
            return None
        base_url = values["base_url"]
        if (written := table["base_url"].strip().rstrip("/")) != base_url:
            extra = written.strip("\"'`<> ").removeprefix(base_url)[:40]
            self._say(
                f"{place}.base_url",
                f"must not end with {extra}; kimi-tui ignores that part"
                if extra
                else "contains quotes",
            )
        values["dialect"] = values.get("dialect") or None
        return ProviderConfig(name=name, headers=self._headers(table, place), **values)

    def _headers(self, table: TomlTable, provider: str) -> dict[str, str]:
        """Return the headers that can be sent; each of the others is named in a notice."""
        place = f"{provider}.headers"
        found: dict[str, str] = {}
        room = _MAX_HEADER_CHARS
        for name, value in self._table(table, "headers", place).items():
            shown = f"{place}.{name[:40]}"
            if not re.fullmatch(_HEADER_NAME, name):
                self._say(shown, "is not a valid header name")
            elif re.fullmatch(_OWN_HEADERS, name):
                self._say(shown, "is set by kimi-tui and cannot be changed")
            elif not isinstance(value, str) or not (value.isascii() and value.isprintable()):
                self._say(shown, "must be one line of ASCII text")
            elif len(found) == _MAX_HEADERS or (room := room - len(name) - len(value)) < 0:
                most = f"{_MAX_HEADERS} headers or {_MAX_HEADER_CHARS:,} characters"
                self._say(place, f"has more than {most}")
                break
            elif name.lower() in map(str.lower, found):
                self._say(shown, "is given twice")
            else:
                found[name] = value.strip()
        return found

    def _model(
        self, name: str, table: TomlTable, providers: Mapping[str, ProviderConfig]
    ) -> ModelConfig | None:
        place = f"models.{name}"
        values = self._values(table, place, declared(ModelConfig), also=("prices",))
        if not values.get("model"):
            self._say(f"{place}.model", "is missing")
            return None
        provider = values.get("provider", "")
        if provider not in providers:
            self._say(
                f"{place}.provider", f"names [providers.{provider}], which is missing or wrong"
            )
            return None
        return ModelConfig(name=name, prices=self._prices(table, place), **values)

    def _external_agent(self, name: str, table: TomlTable) -> ExternalAgentConfig | None:
        place = f"external_agents.{name[:40]}"
        if not re.fullmatch(_AGENT_NAME, name):
            self._say(place, "must be a name of letters, digits, dots and dashes")
            return None
        values = self._values(table, place, declared(ExternalAgentConfig))
        if "command" in table and "command" not in values:
            # The usual program of the agent must not run in the place of one that the user misspelt.
            return None
        return ExternalAgentConfig(name=name, **values)

    def _prices(self, table: TomlTable, model: str) -> ModelPrices | None:
        """Return all required prices or None: an incomplete price would make every sum of money wrong."""
        if "prices" not in table:
            return None
        place = f"{model}.prices"
        entry = table["prices"]
        if not isinstance(entry, Mapping):
            self._say(place, "must be a table")
            return None
        prices = cast(TomlTable, entry)
        values = self._values(prices, place, declared(ModelPrices))
        missing = [key for key in ("input", "output") if key not in prices]
        for key in missing:
            self._say(f"{place}.{key}", "is missing")
        if missing or any(key in prices and key not in values for key in _FIGURES):
            return None
        values.setdefault("cached_input", values["input"])
        return ModelPrices(**values)

    def _keys(self, table: TomlTable) -> dict[str, str]:
        if not table:
            return {}
        from kimi_tui.config.keymap import usable_keys  # most files change no key

        table = dict(_dotted(table))
        wanted = self._values(table, "keys", dict.fromkeys(table, Setting("", STRIPPED)))
        return usable_keys(wanted, lambda name, what: self._say(f"keys.{name}", what))

    def _checks(self, table: TomlTable) -> tuple[EditCheck, ...]:
        """Return the checks after edits; each that cannot be used is named in a notice."""
        for name in table:
            if name != "after_edit":
                self._say(f"checks.{name[:40]}", "is unknown")
        entries = table.get("after_edit", [])
        if not isinstance(entries, list):
            self._say("checks.after_edit", "must be a list of lists of words")
            return ()
        found: list[EditCheck] = []
        for number, entry in enumerate(cast("list[Any]", entries), 1):
            place = f"checks.after_edit, entry {number},"
            facts = cast(TomlTable, entry if isinstance(entry, Mapping) else {"run": entry})
            words, files = facts.get("run"), facts.get("files", [])
            if not (_are_texts(words) and words) or not _are_texts(files):
                self._say(place, 'must be words, such as ["ruff", "check", "{file}"]')
            elif not words[0] or words[0].startswith("-") or "=" in words[0]:
                self._say(place, "must begin with the name of a program")
            elif any("\0" in word for word in (*words, *files)):
                self._say(place, "contains the character U+0000, which a command cannot contain")
            else:
                found.append(EditCheck(tuple(words), tuple(files)))
        return tuple(found[:_MOST_CHECKS])

    def _rules(self, entries: Any) -> tuple[DMailRule, ...] | None:
        """Return the rules of D-Mails; each that cannot be used as a whole is left out and named in a notice.

        Returns:
            None, which means the built-in rules, if they are no list of tables.
        """
        if not isinstance(entries, list):
            self._say("dmail.rules", "must be written as [[dmail.rules]]")
            return None
        found: dict[str, DMailRule] = {}
        for number, entry in enumerate(cast("list[Any]", entries), 1):
            place = f"dmail.rules, rule {number}"
            if number > _MOST_RULES:
                self._say("dmail.rules", f"has more than {_MOST_RULES} rules")
                break
            try:
                rule = _rule(entry)
                if rule.name in found:
                    raise ValueError(f'has the name "{rule.name}", which another rule has')
            except ValueError as error:
                self._say(f"{place},", f"{error}, so this rule is off")
            else:
                found[rule.name] = rule
        return tuple(found.values())

    def _tables(self, table: TomlTable, key: str) -> dict[str, TomlTable]:
        found: dict[str, TomlTable] = {}
        for name, entry in self._table(table, key).items():
            if isinstance(entry, Mapping):
                found[name] = cast(TomlTable, entry)
            else:
                self._say(f"{key}.{name}", "must be a table")
        return found

    def _table(self, table: TomlTable, key: str, place: str = "") -> TomlTable:
        entry = table.get(key, {})
        if isinstance(entry, Mapping):
            return cast(TomlTable, entry)
        self._say(place or key, "must be a table")
        return {}

    def _values(
        self,
        table: TomlTable,
        place: str,
        settings: Mapping[str, Setting],
        *,
        also: Collection[str] = (),
    ) -> dict[str, Any]:
        """Return the values of a table's keys. Unknown and invalid keys are left out and named in a notice.

        Args:
            table: a table of the file.
            place: the dotted name of the table; empty for the whole file.
            settings: the settings of its keys.
            also: other known keys.
        """
        former = [one.former_name for one in settings.values() if one.former_name]
        before = f"{place}." if place else ""
        for key in table:
            if key not in settings and key not in (*former, *also) and key not in _KIMI_CLI:
                meant = _meant(key, (*settings, *also))
                self._say(f"{before}{key[:40]}", f"is not a known key{meant}")
        found: dict[str, Any] = {}
        for name, setting in settings.items():
            key = name if name in table else setting.former_name
            if key in table:
                try:
                    found[name] = setting.check.read(table[key])
                except ValueError as error:
                    self._say(f"{before}{key}", str(error))
        return found

    def _say(self, key: str, what: str) -> None:
        self._notices.append(f"{self._path.name}: {key} {what}; the rest of the file is used.")


def _rule(entry: Any) -> DMailRule:
    """Return a rule of D-Mails.

    Raises:
        ValueError: it cannot be used; the text is the rest of a sentence about it.
    """
    if not isinstance(entry, Mapping):
        raise ValueError("must be a table")
    facts = cast(TomlTable, entry)
    if unknown := next((key for key in facts if key not in ("name", "when", "then")), None):
        meant = _meant(unknown, ("name", "when", "then"))
        raise ValueError(f"has {unknown[:40]!r}, which is not a known key{meant}")
    when, name = facts.get("when"), facts.get("name", "")
    if not isinstance(when, Mapping):
        raise ValueError("needs a table of conditions, such as when = { result_tokens = 10000 }")
    if not isinstance(name, str) or len(name) > _MAX_RULE_NAME or not (name + "x").isprintable():
        raise ValueError(f"needs a name of one line and at most {_MAX_RULE_NAME} characters")
    conditions: dict[str, Any] = {}
    for key, value in cast(TomlTable, when).items():
        check = RULE_CONDITIONS.get(key)
        if check is None:
            meant = _meant(key, tuple(RULE_CONDITIONS))
            raise ValueError(f"has the condition {key[:40]!r}, which is not known{meant}")
        try:
            conditions[key] = check.read(value)
        except ValueError as error:
            raise ValueError(f"{key} {error}, not {str(value)[:40]!r}") from None
    if not any(conditions.values()):
        raise ValueError("needs at least one condition, such as when = { result_tokens = 10000 }")
    try:
        then: Any = RULE_ACTIONS.read(facts.get("then", "remind"))
    except ValueError as error:
        raise ValueError(f"has then = {str(facts['then'])[:40]!r}, which {error}") from None
    shown = name.strip() or " + ".join(key.replace("_", " ") for key in conditions)
    return DMailRule(shown, then, **conditions)


def _dotted(table: TomlTable) -> Iterator[tuple[str, Any]]:
    """Yield the entries of `[keys]` by the names of actions: to TOML an unquoted `chat.copy` is a table of its own."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            inside = cast(TomlTable, value)
            yield from ((f"{name}.{inner}", one) for inner, one in inside.items())
        else:
            yield name, value


def _meant(key: str, known: Collection[str]) -> str:
    """Return the known key that an unknown one resembles, as the end of a notice; empty if it resembles none."""
    from difflib import get_close_matches  # most files have no unknown key

    near = get_close_matches(key[:40], known, n=1, cutoff=0.7)
    return f": did you mean `{near[0]}`?" if near else ""


# --- writing


def save_choice(path: Path, choice: ModelChoice, *, default: bool = True) -> Config:
    """Add `choice` to the file at `path`; blocks on the disk, so call it in a thread.

    Args:
        path: the configuration.
        choice: the model with its server.
        default: whether it becomes the default model.

    Returns:
        The configuration as it is now.

    Raises:
        ConfigError: the file is not TOML, or the new text would not give the intended configuration.
        OSError: the disk refused; the old file is unchanged.
    """
    before = read_config(path)
    provider_name = _provider_name(before, choice)
    model_name = _model_name(before, provider_name, choice)
    default_model = model_name if default else before.default_model
    text = _edited(path, provider_name, model_name, choice, default_model)
    after = parse_config(text.encode(), path)
    _check(after, provider_name, model_name, choice, default_model)
    _replace(path, text)
    return after


def save_setting(path: Path, key: str, value: Any, *, base: Path | None = None) -> Config:
    """Write one value of the configuration; blocks on the disk, so call it in a thread.

    Args:
        path: the configuration.
        key: the dotted name of the key, such as `loop_control.max_steps_per_turn`.
        value: the TOML value; None removes the key, so that its default applies.
        base: a file that is copied first if there is none at `path`: kimi-cli's, which ours replaces.

    Returns:
        The configuration as it is now.

    Raises:
        ConfigError: the file is not TOML, or the value is invalid for this key; the message says why.
        OSError: the disk refused; the old file is unchanged.
    """
    import tomlkit

    document = _document(base if base is not None and not path.exists() else path)
    before = parse_config(tomlkit.dumps(document).encode(), path)
    # For an action's key the part after the first dot is one name: `keys."chat.copy"`.
    section, _, name = key.rpartition(".") if not key.startswith("keys.") else key.partition(".")
    table: MutableMapping[str, Any] = _table(document, section) if section else document
    place, _, inner = name.partition(".")
    nested = table.get(place)
    if inner and isinstance(nested, MutableMapping) and inner in nested:
        table, name = cast("MutableMapping[str, Any]", nested), inner
    if value is not None:
        table[name] = value
    elif name in table:
        del table[name]
    text = tomlkit.dumps(document)
    after = parse_config(text.encode(), path)
    for notice in after.notices:
        # The key may be taken from an action further down in the file.
        is_about = f" {key} " in notice or (section == "keys" and f" {section}." in notice)
        if is_about and notice not in before.notices:
            raise ConfigError(
                notice.partition(": ")[2].removesuffix("; the rest of the file is used.")
            )
    _replace(path, text)
    return after


def add_hook(path: Path, entry: Mapping[str, Any]) -> None:
    """Append a table to `[[hooks]]`; blocks on the disk, so call it in a thread.

    Raises:
        ConfigError: the file is not TOML, or has hooks in another form; it is unchanged.
        OSError: the disk refused; the old file is unchanged.
    """
    import tomlkit
    from tomlkit.items import AoT

    document = _document(path)
    if "hooks" not in document:
        document["hooks"] = tomlkit.aot()
    hooks = document["hooks"]
    if not isinstance(hooks, AoT):
        raise ConfigError(f"{path.name}: hooks must be written as [[hooks]]")
    table = tomlkit.table()
    for key, value in entry.items():
        table[key] = value
    cast("Any", hooks).append(table)
    _replace(path, tomlkit.dumps(document))


def save_default(path: Path, name: str) -> Config:
    """Make a model of the file at `path` the default one; blocks on the disk, so call it in a thread.

    Args:
        path: the configuration.
        name: the name of the model in the file.

    Returns:
        The configuration as it is now.

    Raises:
        ConfigError: the file is not TOML, or has no such model.
        OSError: the disk refused; the old file is unchanged.
    """
    if name not in read_config(path).models:
        raise ConfigError(f'{path.name} has no model "{name[:80]}"')
    return save_setting(path, "default_model", name)


def _document(path: Path) -> MutableMapping[str, Any]:
    """Parse the file with its comments; an empty document if there is none.

    Raises:
        ConfigError: the file is not TOML.
        OSError: the file cannot be read.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(path.read_text("utf-8-sig") if path.exists() else "")
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path.name} was not changed, because it has an error. Fix it first: {error}"
        ) from error


def _edited(
    path: Path, provider_name: str, model_name: str, choice: ModelChoice, default_model: str
) -> str:
    import tomlkit

    document = _document(path)
    if default_model:
        document["default_model"] = default_model
    provider = _table(_table(document, "providers", is_super=True), provider_name)
    provider["type"] = provider_type(choice.base_url)
    provider["base_url"] = choice.base_url
    provider["api_key"] = choice.api_key
    if choice.dialect:
        provider["dialect"] = choice.dialect
    model = _table(_table(document, "models", is_super=True), model_name)
    model["provider"] = provider_name
    model["model"] = choice.model
    if choice.window:
        model["max_context_size"] = choice.window
    if choice.capabilities:
        model["capabilities"] = list(choice.capabilities)
    return tomlkit.dumps(document)


def _table(
    parent: MutableMapping[str, Any], name: str, *, is_super: bool = False
) -> MutableMapping[str, Any]:
    """Return a table of the file by name, including inline tables and tables of scattered dotted keys; create it if it is missing.

    With `is_super` the new table contains only tables.
    """
    import tomlkit

    if name not in parent:
        parent[name] = tomlkit.table(is_super_table=is_super or None)
    entry = parent[name]
    if not isinstance(entry, MutableMapping):
        raise ConfigError(f"config.toml: {name} is not a table")
    return cast("MutableMapping[str, Any]", entry)


def _provider_name(config: Config, choice: ModelChoice) -> str:
    """Return a name for the provider: its own, unless that belongs to another server."""
    taken = config.providers.get(choice.provider)
    if taken is None or taken.base_url == choice.base_url:
        return choice.provider
    number = 2
    while (other := config.providers.get(f"{choice.provider}-{number}")) is not None:
        if other.base_url == choice.base_url:
            break
        number += 1
    return f"{choice.provider}-{number}"


def _model_name(config: Config, provider_name: str, choice: ModelChoice) -> str:
    taken = config.models.get(choice.model)
    if taken is None or taken.provider == provider_name:
        return choice.model
    return f"{provider_name}/{choice.model}"


def _check(
    after: Config, provider_name: str, model_name: str, choice: ModelChoice, default_model: str
) -> None:
    provider = after.providers.get(provider_name)
    model = after.models.get(model_name)
    meant_provider = ProviderConfig(
        name=provider_name,
        base_url=choice.base_url,
        api_key=choice.api_key,
        type=provider_type(choice.base_url),
        dialect=choice.dialect or (provider.dialect if provider else None),
        headers=provider.headers if provider else {},
    )
    meant_model = ModelConfig(
        name=model_name,
        provider=provider_name,
        model=choice.model,
        max_context_size=choice.window or (model.max_context_size if model else None),
        capabilities=choice.capabilities or (model.capabilities if model else ()),
        prices=model.prices if model else None,
        lean=model.lean if model else None,
    )
    is_default = after.default_model == default_model or not default_model
    if not is_default or (provider, model) != (meant_provider, meant_model):
        entry = (
            f"[models.{model_name}]"
            if provider == meant_provider
            else f"[providers.{provider_name}]"
        )
        if not is_default:
            entry = "default_model"
        raise ConfigError(
            f"The choice was not saved: {entry} in config.toml overrides it. Change it there"
        )


def _replace(path: Path, text: str) -> None:
    make_private(path.parent)
    # A file that is a link to the user's dotfiles stays a link. Another process may be saving its choice at the same time.
    Storage().replace_file(path.resolve(), text.encode(), shared=True)
