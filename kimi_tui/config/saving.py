"""Writing a chosen model into `config.toml`, keeping what else stands there, comments too.

The file is for its owner alone (0600), is replaced in one rename, and is read again before that: what does not come
back as it was meant is not written.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.config.choosing import Choice, provider_type
from kimi_tui.config.model import Config, ConfigError, ModelConfig, ProviderConfig
from kimi_tui.config.reading import parse_config, read_config

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Table


def save_choice(path: Path, choice: Choice) -> Config:
    """Make `choice` the default model in the file at `path`; blocks on the disk, so call it in a thread.

    Returns:
        The configuration as it is now.

    Raises:
        ConfigError: the file there is not TOML, or the result would not say what was meant.
        OSError: the disk refused; the old file is as it was.
    """
    before = read_config(path)
    provider_name = _provider_name(before, choice)
    model_name = _model_name(before, provider_name, choice)
    text = _edited(path, provider_name, model_name, choice)
    after = parse_config(text.encode(), path)
    _check(after, provider_name, model_name, choice)
    _replace(path, text)
    return after


def _edited(path: Path, provider_name: str, model_name: str, choice: Choice) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        text = path.read_text("utf-8-sig") if path.exists() else ""
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(f"{path.name} was not changed, edit it: {error}") from error
    document["default_model"] = model_name
    provider = _table(document, "providers", provider_name)
    provider["type"] = provider_type(choice.base_url)
    provider["base_url"] = choice.base_url
    provider["api_key"] = choice.api_key
    if choice.dialect:
        provider["dialect"] = choice.dialect
    model = _table(document, "models", model_name)
    model["provider"] = provider_name
    model["model"] = choice.model
    if choice.window:
        model["max_context_size"] = choice.window
    if choice.capabilities:
        model["capabilities"] = list(choice.capabilities)
    return tomlkit.dumps(document)


def _table(document: TOMLDocument, section: str, name: str) -> Table:
    """`[section.name]`, made where it is missing."""
    import tomlkit
    from tomlkit.items import Table

    if section not in document:
        document[section] = tomlkit.table(is_super_table=True)
    parent = document[section]
    if not isinstance(parent, Table):
        raise ConfigError(f"config.toml: {section} is written in a way that cannot be added to")
    if name not in parent:
        parent[name] = tomlkit.table()
    entry = parent[name]
    if not isinstance(entry, Table):
        raise ConfigError(f"config.toml: {section}.{name} cannot be changed; edit the file")
    return entry


def _provider_name(config: Config, choice: Choice) -> str:
    """A name for the provider: its own, unless that one belongs to another server."""
    taken = config.providers.get(choice.provider)
    if taken is None or taken.base_url == choice.base_url:
        return choice.provider
    number = 2
    while (other := config.providers.get(f"{choice.provider}-{number}")) is not None:
        if other.base_url == choice.base_url:
            break
        number += 1
    return f"{choice.provider}-{number}"


def _model_name(config: Config, provider_name: str, choice: Choice) -> str:
    taken = config.models.get(choice.model)
    if taken is None or taken.provider == provider_name:
        return choice.model
    return f"{provider_name}/{choice.model}"


def _check(after: Config, provider_name: str, model_name: str, choice: Choice) -> None:
    provider = after.providers.get(provider_name)
    model = after.models.get(model_name)
    meant_provider = ProviderConfig(
        name=provider_name,
        base_url=choice.base_url,
        api_key=choice.api_key,
        type=provider_type(choice.base_url),
        dialect=choice.dialect or (provider.dialect if provider else None),
    )
    meant_model = ModelConfig(
        name=model_name,
        provider=provider_name,
        model=choice.model,
        max_context_size=choice.window or (model.max_context_size if model else None),
        capabilities=choice.capabilities or (model.capabilities if model else ()),
        prices=model.prices if model else None,
    )
    if (after.default_model, provider, model) != (model_name, meant_provider, meant_model):
        raise ConfigError("config.toml was not changed: it would not say what was chosen; edit it")


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = path.resolve()  # a config that is a link into someone's dotfiles stays one
    # mkstemp makes the file 0600, so the key is never readable by others, not even for a moment.
    handle, temporary = tempfile.mkstemp(prefix=".config-", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
