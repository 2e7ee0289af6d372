"""Chooses the model, its server and its API key from configuration file, environment and command line.

A key is sent only to its own server: a stored one to its provider's origin, `KIMI_API_KEY` and `OPENAI_API_KEY` to the
servers of their families. For a server without a key the user is asked, unless it can be used without one (`needs_key`). A model
may be chosen for one work folder alone (`FolderModel`). `config.keyring` reads a key in the system's keyring when it is needed.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from kimi_tui.app_paths import data_dir, make_private, reason_of, short
from kimi_tui.base_url import clean_url, host_of, is_loopback, is_url, origin_of
from kimi_tui.config.settings import LEAST_WINDOW, Config, ConfigError, ModelConfig, ProviderConfig
from kimi_tui.filesystem import Storage, read_regular

MOONSHOT_URL = "https://api.moonshot.ai/v1"
MOONSHOT_CHINA_URL = "https://api.moonshot.cn/v1"
KIMI_CODE_URL = "https://api.kimi.com/coding/v1"
OPENAI_URL = "https://api.openai.com/v1"

MOONSHOT_MODEL = "kimi-k3"
KIMI_CODE_MODEL = "kimi-for-coding"

_LONGEST_NUMBER = 12


class Family(NamedTuple):
    """Environment variables of one provider, and the host to which their key may be sent by default."""

    name: str
    key_variable: str
    url_variable: str
    default_url: str
    origins: frozenset[str]


KIMI = Family(
    "moonshot",
    "KIMI_API_KEY",
    "KIMI_BASE_URL",
    MOONSHOT_URL,
    frozenset(map(origin_of, (MOONSHOT_URL, MOONSHOT_CHINA_URL, KIMI_CODE_URL))),
)
OPENAI = Family(
    "openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", OPENAI_URL, frozenset({origin_of(OPENAI_URL)})
)


class Overrides(NamedTuple):
    """The model settings of the command line; None for each that was not given."""

    model: str | None = None
    base_url: str | None = None
    thinking: bool | None = None


class ModelChoice(NamedTuple):
    """The model to use. `model` is empty if the server must be asked for its models; `remarks` are notices for the user."""

    provider: str
    base_url: str
    model: str
    api_key: str = ""
    window: int | None = None
    dialect: str | None = None
    capabilities: tuple[str, ...] | None = None
    thinking: str = ""
    remarks: tuple[str, ...] = ()
    headers: Mapping[str, str] = MappingProxyType({})
    lean: bool | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that are never shown and never logged."""
        return (self.api_key, *self.headers.values())

    def __repr__(self) -> str:
        return f"ModelChoice({self.provider!r}, {self.base_url!r}, {self.model!r})"


class NeedsChoice(NamedTuple):
    """No model can be used yet. With a `base_url` only its key is missing; without one, everything."""

    base_url: str = ""
    model: str = ""


def choose_model(
    config: Config, overrides: Overrides, environ: Mapping[str, str]
) -> ModelChoice | NeedsChoice:
    """Choose the model from file, environment and command line.

    Raises:
        ConfigError: a value of the environment or the command line cannot be used.
    """
    wanted = overrides.model or environ.get("KIMI_MODEL_NAME") or ""
    named = _model_named(config, overrides.model) or (
        _model_named(config, environ.get("KIMI_MODEL_NAME"))
        or config.models.get(config.default_model)
    )
    stored = config.providers.get(named.provider) if named else None
    family = _family(stored, environ, configured=named is not None)
    provider = _provider(stored, family, environ)
    if overrides.base_url:
        provider = _elsewhere(overrides.base_url, config, provider, family, environ)
    if provider is None:
        return NeedsChoice(model=wanted)
    if not provider.api_key and needs_key(provider.base_url):
        return NeedsChoice(provider.base_url, wanted)

    same_server = stored is not None and origin_of(stored.base_url) == origin_of(provider.base_url)
    model = named if named and (same_server or named.name == overrides.model) else None
    if wanted and not (model and wanted in (model.name, model.model)):
        model = None
    name = model.model if model else wanted or _default_model(provider)
    thinking = config.default_thinking
    if overrides.thinking is not None:
        thinking = "on" if overrides.thinking else "off"
    return ModelChoice(
        provider=provider.name,
        base_url=provider.base_url,
        api_key=provider.api_key,
        model=name,
        window=_window(environ) or (model.max_context_size if model else None),
        dialect=environ.get("KIMI_DIALECT") or provider.dialect,
        capabilities=(model.capabilities or None) if model else None,
        thinking=thinking,
        remarks=_remarks(provider.base_url, overrides, family, environ),
        headers=provider.headers,
        lean=model.lean if model else None,
    )


def _remarks(
    used: str, overrides: Overrides, family: Family | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a line for each base URL that was given but is not used."""
    source, given = "--base-url", overrides.base_url or ""
    if not given and family is not None:
        source, given = family.url_variable, environ.get(family.url_variable, "")
    written = given.strip().rstrip("/")
    is_changed = bool(written) and written != used and clean_url(written) == used
    return (f"{source}: the base URL is {used}; the text around it was ignored.",) * is_changed


def needs_key(base_url: str) -> bool:
    """Return whether a server must be given a key before it is asked anything.

    A server on this machine needs none. Another server on plain HTTP is used without a key, because a key is never sent
    unencrypted; the address of a known provider is the exception, because `http://` is a typing error there.
    """
    if is_loopback(host_of(base_url)):
        return False
    encrypted = f"https://{host_of(base_url)}"
    return urlsplit(base_url).scheme != "http" or any(
        origin_of(encrypted) in family.origins for family in (KIMI, OPENAI)
    )


def provider_type(base_url: str) -> str:
    """Return the `type` that kimi-cli would write for this server."""
    return "kimi" if origin_of(base_url) in KIMI.origins else "openai_legacy"


def _model_named(config: Config, name: str | None) -> ModelConfig | None:
    if not name:
        return None
    if name in config.models:
        return config.models[name]
    same = [model for model in config.models.values() if model.model == name]
    default = config.models.get(config.default_model)
    return next((m for m in same if default and m.provider == default.provider), None) or next(
        iter(same), None
    )


def _family(
    stored: ProviderConfig | None, environ: Mapping[str, str], *, configured: bool
) -> Family | None:
    """Return the family whose variables count. This program's own always count; OpenAI's, which many shells set for other
    programs, count only if they fit the configuration or if there is none.
    """
    if environ.get(KIMI.key_variable) or environ.get(KIMI.url_variable):
        return KIMI
    url = environ.get(OPENAI.url_variable)
    if not (environ.get(OPENAI.key_variable) or url):
        return None
    if not configured or stored is None:
        return OPENAI
    fits = origin_of(stored.base_url) in OPENAI.origins or (
        url and stored.type.startswith("openai")
    )
    return OPENAI if fits else None


def _provider(
    stored: ProviderConfig | None, family: Family | None, environ: Mapping[str, str]
) -> ProviderConfig | None:
    """Return the provider after applying the environment."""
    if family is None:
        return stored
    key = environ.get(family.key_variable, "").strip()
    url = _checked_url(environ.get(family.url_variable, ""), family.url_variable)
    if stored is not None:
        there = origin_of(stored.base_url)
        if url and origin_of(url) == there:
            return stored._replace(base_url=url, api_key=key or stored.api_key)
        if not url and (there in family.origins or (family is KIMI and stored.type == "kimi")):
            return stored._replace(api_key=key or stored.api_key)
    used = url or family.default_url
    return ProviderConfig(
        name=family.name if origin_of(used) in family.origins else host_of(used) or "server",
        base_url=used,
        api_key=key,
        type="kimi" if family is KIMI else "openai_legacy",
    )


def _elsewhere(
    base_url: str,
    config: Config,
    provider: ProviderConfig | None,
    family: Family | None,
    environ: Mapping[str, str],
) -> ProviderConfig:
    """Return the provider that `--base-url` names, with the key that belongs to it and no other."""
    url = _checked_url(base_url, "--base-url")
    there = origin_of(url)
    if provider is not None and origin_of(provider.base_url) == there:
        return provider._replace(base_url=url)
    for stored in config.providers.values():
        if origin_of(stored.base_url) == there:
            return stored._replace(base_url=url)
    key = ""
    if family is not None and (there in family.origins or is_loopback(host_of(url))):
        key = environ.get(family.key_variable, "").strip()
    return ProviderConfig(
        name=host_of(url) or "server", base_url=url, api_key=key, type=provider_type(url)
    )


def _default_model(provider: ProviderConfig) -> str:
    if origin_of(provider.base_url) not in KIMI.origins:
        return ""
    same_plan = origin_of(provider.base_url) == origin_of(KIMI_CODE_URL)
    return KIMI_CODE_MODEL if same_plan else MOONSHOT_MODEL


def _window(environ: Mapping[str, str]) -> int | None:
    text = environ.get("KIMI_MODEL_MAX_CONTEXT_SIZE", "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise ConfigError(f"KIMI_MODEL_MAX_CONTEXT_SIZE: {text[:40]!r} is not a number of tokens")
    if int(text) < LEAST_WINDOW:
        raise ConfigError(
            f"KIMI_MODEL_MAX_CONTEXT_SIZE: {text} is too small; the minimum is {LEAST_WINDOW:,} tokens"
        )
    return int(text)


def _checked_url(url: str, source: str) -> str:
    url = clean_url(url)
    if url and (not is_url(url) or not url.isprintable() or " " in url):
        raise ConfigError(
            f"{source}: {url[:80]!r} is not a URL that starts with https:// or http://"
        )
    return url


# -- the model and the thinking of one work folder -----------------------------------------------------
# Each folder has a small file in the app's data folder. It names a model of the configuration, or none, so it holds no key, and
# nothing in the work folder can change it.

_MAX_BYTES = 4_096
_LONGEST_THINKING = 16


class FolderModel(NamedTuple):
    """The model that a work folder remembers, by its name in the configuration, and its thinking; each is empty for the default."""

    model: str
    thinking: str = ""


def in_folder(config: Config, here: FolderModel | None) -> Config:
    """Return the configuration for a folder for which `here` was chosen."""
    if here is None or (here.model and here.model not in config.models):
        return config
    return config._replace(
        default_model=here.model or config.default_model,
        default_thinking=here.thinking or config.default_thinking,
    )


def read_folder_model(work_dir: Path) -> FolderModel | None:
    """Read the choice for a folder; None if there is none, or none that can be read. Fast enough for before the first paint."""
    try:
        return _folder_model(work_dir)
    except (OSError, ValueError, RecursionError):
        return None


def folder_model_trouble(work_dir: Path) -> str:
    """Say in one sentence why the choice for a folder cannot be read; empty if it can, or if there is none."""
    try:
        _folder_model(work_dir)
    except (OSError, ValueError, RecursionError) as error:
        path = _file(data_dir() / "models", work_dir)
        why = "the file is damaged"
        if isinstance(error, OSError):
            why = reason_of(error, named_in_text=path)
        return f"The model that was chosen for this folder cannot be read ({short(path)}: {why}). Choose it again with /model."
    return ""


def _folder_model(work_dir: Path) -> FolderModel | None:
    folder = data_dir() / "models"
    if not folder.is_dir():
        return None  # the rest needs imports, and few folders have a choice
    try:
        data = read_regular(_file(folder, work_dir), _MAX_BYTES)
    except FileNotFoundError:
        return None
    import json

    from kimi_tui import lenient_json

    table = lenient_json.mapping(json.loads(data))
    model, thinking = table.get("model"), table.get("thinking", "")
    if not isinstance(model, str) or not isinstance(thinking, str):
        raise ValueError("the file has no model name")
    is_word = thinking.isalpha() and len(thinking) <= _LONGEST_THINKING
    return FolderModel(model, thinking if is_word else "")


def keep_folder_model(work_dir: Path, chosen: FolderModel | None) -> None:
    """Store the choice for a folder, or delete it. It blocks on the disk, so call it in a thread.

    Raises:
        OSError: the disk refused; the earlier choice is unchanged.
    """
    path = _file(data_dir() / "models", work_dir)
    if chosen is None:
        with suppress(FileNotFoundError):
            path.unlink()
        return
    make_private(path.parent)
    import json

    # The entry `folder` is only for people who read the file.
    table = {"folder": str(work_dir), **chosen._asdict()}
    Storage().replace_file(path, json.dumps(table).encode(), shared=True)


def keep_folder_thinking(work_dir: Path, thinking: str) -> None:
    """Store the thinking for a folder, whichever model it uses. It blocks on the disk, so call it in a thread.

    Raises:
        OSError: the disk refused; the earlier choice is unchanged.
    """
    here = (read_folder_model(work_dir) or FolderModel(""))._replace(thinking=thinking)
    keep_folder_model(work_dir, here if any(here) else None)


def _file(folder: Path, work_dir: Path) -> Path:
    import hashlib

    name = hashlib.md5(str(work_dir).encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return folder / f"{name.hexdigest()}.json"
