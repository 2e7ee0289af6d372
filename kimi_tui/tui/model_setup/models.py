"""The models that can be chosen: those of the configuration and of servers, and the effects of a choice.

This module knows no widget. Functions that ask a server or write the configuration import other modules when they are called.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.app_paths import reason_of
from kimi_tui.base_url import host_of, is_loopback, origin_of
from kimi_tui.config.file import save_choice, save_default, save_setting
from kimi_tui.config.model_choice import (
    KIMI_CODE_URL,
    MOONSHOT_CHINA_URL,
    MOONSHOT_URL,
    OPENAI_URL,
    FolderModel,
    ModelChoice,
    Overrides,
    choose_model,
    in_folder,
    keep_folder_model,
    read_folder_model,
)
from kimi_tui.config.settings import Config, ConfigError, ModelPrices
from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.foreign_text import one_line
from kimi_tui.launch import Launch
from kimi_tui.tui.formatting import money, tokens

if TYPE_CHECKING:
    from kimi_tui.llm.errors import LLMError
    from kimi_tui.llm.models import ChatModels, FoundModel, LocalServer
    from kimi_tui.llm.provider import Capability

NAME_CHARS = 80
"""The number of characters of a typed name that are repeated in a sentence."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server by name. If `base_url` is empty, the user is asked for it; `note` is shown before they are asked for its key."""

    name: str
    title: str
    base_url: str
    note: str = ""


SERVERS: tuple[Server, ...] = (
    Server("moonshot", "Moonshot (Kimi), global", MOONSHOT_URL),
    Server("moonshot-cn", "Moonshot (Kimi), China", MOONSHOT_CHINA_URL),
    Server(
        "kimi-code",
        "Kimi Code plan",
        KIMI_CODE_URL,
        "This plan is meant for certain agents. Its server may list models and still refuse kimi-tui (error 403).",
    ),
    Server("openai", "OpenAI", OPENAI_URL),
    Server("server", "Another server", ""),
    Server("openrouter", "OpenRouter", "https://openrouter.ai/api/v1"),
    Server("anthropic", "Anthropic", "https://api.anthropic.com/v1"),
    Server("gemini", "Gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
    Server("deepseek", "DeepSeek", "https://api.deepseek.com/v1"),
    Server("glm", "GLM (Z.ai)", "https://api.z.ai/api/paas/v4"),
    Server("glm-coding", "GLM coding plan (Z.ai)", "https://api.z.ai/api/coding/paas/v4"),
    Server("qwen", "Qwen, global", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
    Server("qwen-cn", "Qwen, China", "https://dashscope.aliyuncs.com/compatible-mode/v1"),
    Server("mistral", "Mistral", "https://api.mistral.ai/v1"),
    Server("groq", "Groq", "https://api.groq.com/openai/v1"),
    Server("xai", "xAI", "https://api.x.ai/v1"),
)


def server_of(base_url: str) -> int:
    """Return the index of the server with a base URL; the one whose URL is asked for if there is none."""
    known = [server.base_url for server in SERVERS]
    if base_url in known:
        return known.index(base_url)
    origins = [origin_of(url) for url in known]
    there = origin_of(base_url)
    return origins.index(there) if there and there in origins else known.index("")


def where(server: LocalServer) -> str:
    """Return the host and port of a server, for the list."""
    return f"{server.name} on port {server.base_url.rsplit(':', 1)[-1].split('/')[0]}"


def model_facts(
    model: FoundModel,
    price: ModelPrices | None = None,
    *,
    thinks: bool = False,
    shortly: bool = False,
) -> tuple[str, ...]:
    """Return the facts beside a model: `262k`, `sees`, `thinks`, `$0.60 in, $2.50 out`; a guessed window has a `~`.

    Args:
        model: the model as its server lists it.
        price: the configured price; None to use the server's.
        thinks: whether it is known to think, if the server does not say.
        shortly: whether to write the price as `$0.60/$2.50`.
    """
    from kimi_tui.llm.models import known_to_see

    window, is_guessed = model.likely_window
    can = model.capabilities
    sees = known_to_see(model.id) if can is None else "image_in" in can
    thinks = thinks if can is None else "thinking" in can
    if price is None and model.price is not None:
        price = ModelPrices(model.price[0], model.price[0], model.price[1])
    size = tokens(window, estimated=is_guessed) if window else ""
    cost = _price_words(price, shortly=shortly) if price else ""
    return (size, "sees" if sees else "", "thinks" if thinks else "", cost)


def _price_words(price: ModelPrices, *, shortly: bool) -> str:
    if not price.input and not price.output:
        return "free"
    if shortly:
        return f"{money(price.input, price.currency)}/{money(price.output, price.currency)}"
    return f"{money(price.input, price.currency)} in, {money(price.output, price.currency)} out"


class ModelEntry(NamedTuple):
    """A model that can be chosen: its name in the list, facts about it, the launch with it (None: its key is missing), its
    thinking settings, and the facts in few cells.
    """

    name: str
    facts: tuple[str, ...]
    launch: Launch | None
    thinking: tuple[str, ...] = ()
    shortly: tuple[str, ...] = ()


class ModelPick(NamedTuple):
    """The launch with another model, the thinking that was set for it (None: none), and whether both hold in this folder alone."""

    launch: Launch
    thinking: str | None = None
    here: bool = False


def model_options(launch: Launch, listed: Sequence[FoundModel]) -> list[ModelEntry]:
    """Return the models of the configuration, then the other models that the server in use lists."""
    from kimi_tui.llm.models import FoundModel

    used = launch.choice
    said = {model.id: model for model in listed}
    options: list[ModelEntry] = []
    for name, model in launch.config.models.items():
        provider = launch.config.providers[model.provider]
        is_here = isinstance(used, ModelChoice) and provider.base_url == used.base_url
        found = (
            said.get(model.model, FoundModel(model.model)) if is_here else FoundModel(model.model)
        )
        if model.max_context_size:
            found = replace(found, window=model.max_context_size)
        if model.capabilities:
            found = replace(found, capabilities=_capabilities(model.capabilities))
        changed = _configured_model(launch, name)
        asked = ModelChoice(
            model.provider, provider.base_url, model.model, dialect=provider.dialect
        )
        options.append(_option(name, found, asked, changed, model.prices))
    known = {model.model for model in launch.config.models.values()}
    for found in listed:
        if found.id not in known and isinstance(used, ModelChoice):
            changed = _listed_model(launch, found)
            options.append(_option(found.id, found, used._replace(model=found.id), changed))
    return options


def _option(
    name: str,
    found: FoundModel,
    asked: ModelChoice,
    launch: Launch | None,
    prices: ModelPrices | None = None,
) -> ModelEntry:
    from kimi_tui.llm import dialects
    from kimi_tui.llm.errors import LLMError

    try:
        how = dialects.dialect_for(asked.base_url, asked.model, asked.dialect).thinking
    except LLMError:
        how = dialects.Thinking()  # an unknown dialect is reported on use
    taken = () if how.not_with_tools else how.choices
    thinks = how.always or bool(taken)
    facts = model_facts(found, prices, thinks=thinks)
    shortly = model_facts(found, prices, thinks=thinks, shortly=True)
    if found.capabilities is not None and "thinking" not in found.capabilities and not how.always:
        taken = ()
    return ModelEntry(name, (*facts, asked.provider), launch, taken, shortly)


def _capabilities(words: Sequence[str]) -> frozenset[Capability]:
    found: set[Capability] = {"tools"}
    if "image_in" in words:
        found.add("image_in")
    if "thinking" in words or "always_thinking" in words:
        found.add("thinking")
    return frozenset(found)


def _kept_window(model: FoundModel, base_url: str) -> int | None:
    """Return the window to store with a choice. A server on this machine is asked each time, as its window depends on how it
    is started.
    """
    return None if is_loopback(host_of(base_url)) else model.window


def choice_of(model: FoundModel, provider: str, base_url: str, key: str = "") -> ModelChoice:
    """Return a listed model in the form in which it is saved and used."""
    known = model.capabilities
    words = tuple(sorted(known - {"tools"})) if known is not None else None
    return ModelChoice(
        provider=provider,
        base_url=base_url,
        model=model.id,
        api_key=key,
        window=_kept_window(model, base_url),
        capabilities=words,
    )


async def save(launch: Launch, choice: ModelChoice) -> Launch:
    """Save the choice and return the launch with it; an error of the disk becomes a notice."""
    notices = launch.notices
    config: Config = launch.config
    try:
        config = await asyncio.to_thread(save_choice, launch.config_path, choice)
        await asyncio.to_thread(keep_folder_model, launch.work_dir, None)
    except ConfigError as error:
        notices = (*notices, f"{error}. The model is used for this session only.")
    except OSError as error:
        words = f"The choice could not be saved: {reason_of(error)}. The model is used for this session only."
        notices = (*notices, words)
    choice = choice._replace(headers=stored_headers(config, choice.base_url))
    return launch._replace(choice=choice, config=config, notices=notices)


def stored_key(launch: Launch, choice: ModelChoice) -> str:
    """Return the key of the server in the configuration; empty if there is none."""
    stored = launch.config.providers.values()
    return next((one.api_key for one in stored if one.base_url == choice.base_url), "")


def stored_headers(config: Config, base_url: str) -> Mapping[str, str]:
    """Return the headers of the server in the configuration, which must be of the same origin."""
    for one in config.providers.values():
        if origin_of(one.base_url) == origin_of(base_url):
            return one.headers
    return {}


class ModelChange(NamedTuple):
    """The launch with another model, and a sentence about how long it holds."""

    launch: Launch
    holds: str = ""


def _configured_model(launch: Launch, name: str) -> Launch | None:
    """Return the launch with a model of the configuration; None if that name cannot be used."""
    try:
        choice = choose_model(launch.config, Overrides(model=name), os.environ)
    except ConfigError:
        return None
    if not isinstance(choice, ModelChoice):
        return None
    if isinstance(launch.choice, ModelChoice):
        choice = choice._replace(thinking=launch.choice.thinking)
    return launch._replace(choice=choice)


def _listed_model(launch: Launch, model: FoundModel) -> Launch | None:
    """Return the launch with another model of the server in use; None if no server is in use."""
    choice = launch.choice
    if not isinstance(choice, ModelChoice):
        return None
    capabilities = None if model.capabilities is None else tuple(sorted(model.capabilities))
    return launch._replace(
        choice=choice._replace(
            model=model.id,
            window=_kept_window(model, choice.base_url),
            capabilities=capabilities,
            lean=None,
        )
    )


async def listed_models(
    base_url: str, api_key: str, headers: Mapping[str, str] = MappingProxyType({})
) -> ChatModels:
    """Return the models of a server that can chat.

    Raises:
        LLMError: the server cannot be asked, or has no list.
    """
    await _import_discovery()
    from kimi_tui.config.keyring import real_key
    from kimi_tui.llm.errors import LLMError
    from kimi_tui.llm.models import chat_models

    try:
        key = await asyncio.to_thread(real_key, api_key)
    except ConfigError as error:
        raise LLMError(str(error)) from error
    return await chat_models(base_url, key, headers)


async def why_refused(launch: Launch) -> LLMError | None:
    """Return why the model of a launch cannot be used as it is configured; None if it can, as far as that is known without its server."""
    choice = launch.choice
    if not isinstance(choice, ModelChoice):
        return None
    await _import_discovery()
    from kimi_tui.llm.dialects import dialect_named
    from kimi_tui.llm.errors import LLMError
    from kimi_tui.llm.provider import check_origin

    try:
        check_origin(choice.base_url, choice.api_key, choice.headers)
        if choice.dialect:
            dialect_named(choice.dialect)
    except LLMError as error:
        return error
    return None


def has_no_list(error: LLMError) -> bool:
    """Return whether a server answered that it has no list of models, so that a name has to be typed."""
    from kimi_tui.llm.errors import APIStatusError
    from kimi_tui.llm.models import NO_LIST_STATUSES

    return isinstance(error, APIStatusError) and error.status in NO_LIST_STATUSES


async def local_servers() -> AsyncGenerator[tuple[LocalServer, ...]]:
    """Yield the servers found on this machine, and again whenever one of them has finished loading its model."""
    await _import_discovery()
    from kimi_tui.llm.models import local_servers_until_ready

    async for servers in local_servers_until_ready():
        yield tuple(servers)


async def _import_discovery() -> None:
    """Import `llm.models` in a thread, as it takes half a second for which no key should wait."""
    await in_daemon_thread(import_module, "kimi_tui.llm.models")


async def model_by_name(launch: Launch, name: str) -> Launch | str:
    """Return the launch with the model of this name, or a sentence that says why it is not possible.

    A name of the configuration is used at once. Any other name is looked up at the server, and used unchanged if the server
    has no list.
    """
    from difflib import get_close_matches

    from kimi_tui.llm.errors import LLMError

    config, choice = launch.config, launch.choice
    if name in config.models or any(one.model == name for one in config.models.values()):
        return (
            _configured_model(launch, name) or f"{name} cannot be used because its key is missing."
        )
    if not isinstance(choice, ModelChoice):
        return f'There is no model "{name[:NAME_CHARS]}".'
    try:
        models = (await listed_models(choice.base_url, choice.api_key, choice.headers)).models
    except LLMError:
        return launch._replace(
            choice=choice._replace(model=name, window=None, capabilities=None, lean=None)
        )
    found = next((model for model in models if model.id == name), None)
    if found is not None:
        return _listed_model(launch, found) or f"{name} cannot be used."
    known = [*config.models, *(model.id for model in models)]
    near = [one for one in known if name.lower() in one.lower()][:3]
    near = near or get_close_matches(name[:NAME_CHARS], known, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(one_line, near))}?" if near else ""
    return f"{choice.provider} has no model {one_line(name[:NAME_CHARS])}.{hint}"


async def remember_model(
    before: Launch, pick: ModelPick, environ: Mapping[str, str]
) -> ModelChange:
    """Save the new model for this folder, or as the default of the configuration if the former model came from there.

    A model from the command line or the environment holds for this session alone, and so does its replacement.
    """
    after, choice = pick.launch, pick.launch.choice
    if not isinstance(choice, ModelChoice) or before.config != after.config:
        return ModelChange(after)  # another key or server has been saved by its own screen
    if choice == before.choice and pick.thinking is None and not pick.here:
        return ModelChange(after)
    if pick.thinking is not None:
        choice = choice._replace(thinking=pick.thinking)
        after = after._replace(choice=choice)
    if environ.get("KIMI_MODEL_NAME"):
        return ModelChange(
            after, "It applies to this session only, because KIMI_MODEL_NAME names another model."
        )
    save = _save_for_folder if pick.here else _save_as_default
    try:
        config = await asyncio.to_thread(save, before, choice, pick.thinking)
    except (ConfigError, OSError) as error:
        words = (
            f"It applies to this session only, because it could not be saved: {reason_of(error)}"
        )
        return ModelChange(after, words)
    if config is None:
        why = "an option or an environment variable sets the model at the start."
        return ModelChange(after, f"It applies to this session only: {why}")
    holds = "This folder uses it from now on." if pick.here else "It is now the default model."
    return ModelChange(after._replace(config=config), holds)


def _plain(config: Config) -> ModelChoice | None:
    """Return the choice of the configuration alone."""
    try:
        choice = choose_model(config, Overrides(), {})
    except ConfigError:
        return None
    return choice if isinstance(choice, ModelChoice) else None


def _same(plain: ModelChoice, choice: object) -> bool:
    return isinstance(choice, ModelChoice) and (plain.base_url, plain.model, plain.api_key) == (
        choice.base_url,
        choice.model,
        choice.api_key,
    )


def _save_as_default(launch: Launch, choice: ModelChoice, thinking: str | None) -> Config | None:
    """Save this default and return the configuration; None if the former model did not come from it. The folder's own choice
    is deleted.
    """
    plain = _plain(in_folder(launch.config, read_folder_model(launch.work_dir)))
    if plain is None or not _same(plain, launch.choice):
        return None
    name = _configured_name(launch.config, choice)
    path = launch.config_path
    config = save_choice(path, choice) if name is None else save_default(path, name)
    if thinking is not None:
        config = save_setting(path, "default_thinking", thinking or None)
    here = read_folder_model(launch.work_dir)
    # Thinking that `/thinking` set for this folder holds with any model, until it is changed.
    stays = thinking is None and here is not None and not here.model
    keep_folder_model(launch.work_dir, here if stays else None)
    return config


def _save_for_folder(launch: Launch, choice: ModelChoice, thinking: str | None) -> Config | None:
    """Save the model for the folder and return the configuration that contains it; None if the configuration does not have its key."""
    config, name = launch.config, _configured_name(launch.config, choice)
    if name is None:
        stored = ((one.base_url, one.api_key) for one in config.providers.values())
        if (choice.base_url, choice.api_key) not in stored:
            return None
        config = save_choice(launch.config_path, choice, default=False)
        name = _configured_name(config, choice) or choice.model
    if thinking is None:
        before = read_folder_model(launch.work_dir)
        thinking = before.thinking if before is not None and before.model in (name, "") else ""
    keep_folder_model(launch.work_dir, FolderModel(name, thinking))
    return config


def _configured_name(config: Config, choice: ModelChoice) -> str | None:
    """Return the name of the model in the configuration."""
    for name, model in config.models.items():
        provider = config.providers.get(model.provider)
        if (
            model.model == choice.model
            and provider is not None
            and provider.base_url == choice.base_url
        ):
            return name
    return None
