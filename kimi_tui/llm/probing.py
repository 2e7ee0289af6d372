"""What a server says of itself: the model's window, what it can do, and (on this machine) what program it is.

Nothing here fails: what cannot be found out stays unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kimi_tui.llm import loose
from kimi_tui.llm.asking import Asker, asking, origin_of
from kimi_tui.llm.dialects import DIALECTS, Dialect, dialect_of_host, host_of
from kimi_tui.llm.discovery import FoundModel, read_models
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.provider import Capability
from kimi_tui.llm.transport import is_loopback

_REMOTE_TIMEOUT_S = 8.0
_LOCAL_TIMEOUT_S = 1.0
_LOAD_TIMEOUT_S = 120.0
SMALL_WINDOW = 16_384
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}


@dataclass(frozen=True, slots=True)
class Probed:
    """What was found out; None: nothing."""

    dialect: Dialect | None = None
    window: int | None = None
    capabilities: frozenset[Capability] | None = None
    notices: tuple[str, ...] = ()


async def probe(base_url: str, api_key: str, model: str) -> Probed:
    """Ask a server about itself and a model."""
    host = host_of(base_url)
    local = is_loopback(host) and dialect_of_host(host).name == "generic"
    timeout_s = _LOCAL_TIMEOUT_S if local else _REMOTE_TIMEOUT_S
    try:
        async with asking(base_url, api_key, timeout_s=timeout_s) as asker:
            if local:
                return await _local(asker, base_url.rstrip("/"), model)
            return await _by_list(asker, base_url.rstrip("/"), model, timeout_s)
    except LLMError:
        return Probed()


async def _by_list(asker: Asker, base_url: str, model: str, timeout_s: float) -> Probed:
    models = read_models(await asker.ask_or_none(f"{base_url}/models", timeout_s=timeout_s))
    return _listed(models or [], model)


def _listed(models: list[FoundModel], model: str) -> Probed:
    entry = next((one for one in models if one.id == model), None)
    owners = {one.owned_by.lower() for one in models}
    name = next((_OWNERS[owner] for owner in owners if owner in _OWNERS), None)
    dialect = DIALECTS[name] if name else None
    if entry is None:
        return Probed(dialect)
    return Probed(dialect, entry.window, entry.capabilities)


async def _local(asker: Asker, base_url: str, model: str) -> Probed:
    origin = origin_of(base_url)
    props, lmstudio, version, models = await asyncio.gather(
        asker.ask_or_none(f"{origin}/props", timeout_s=_LOCAL_TIMEOUT_S),
        asker.ask_or_none(f"{origin}/api/v0/models", timeout_s=_LOCAL_TIMEOUT_S),
        asker.ask_or_none(f"{origin}/api/version", timeout_s=_LOCAL_TIMEOUT_S),
        asker.ask_or_none(f"{base_url}/models", timeout_s=_LOCAL_TIMEOUT_S),
    )
    if "default_generation_settings" in loose.mapping(props):
        return await _llamacpp(asker, origin, model, loose.mapping(props))
    entries = [loose.mapping(one) for one in loose.listing(loose.mapping(lmstudio).get("data"))]
    if any("max_context_length" in one for one in entries):
        return _lmstudio(entries, model)
    if loose.text(loose.mapping(version).get("version")):
        return await _ollama(asker, origin, model)
    return _listed(read_models(models) or [], model)


async def _llamacpp(asker: Asker, origin: str, model: str, props: dict[str, Any]) -> Probed:
    window = _n_ctx(props)
    if not window:
        # A router serves several models and tells of one by name; it must not be loaded for that.
        url = f"{origin}/props?model={quote(model, safe='')}&autoload=false"
        props = loose.mapping(await asker.ask_or_none(url, timeout_s=_LOCAL_TIMEOUT_S))
        window = _n_ctx(props)
    can: set[Capability] = {"tools"}
    if loose.mapping(props.get("modalities")).get("vision"):
        can.add("image_in")
    notices = (
        (f"llama.cpp gives this model {window} tokens; start it with a larger -c for long work.",)
        if window and window < SMALL_WINDOW
        else ()
    )
    return Probed(DIALECTS["llamacpp"], window, frozenset(can), notices)


def _n_ctx(props: dict[str, Any]) -> int | None:
    return loose.count(loose.mapping(props.get("default_generation_settings")).get("n_ctx")) or None


def _lmstudio(entries: list[dict[str, Any]], model: str) -> Probed:
    entry = next((one for one in entries if one.get("id") == model), loose.mapping(None))
    window = loose.count(entry.get("loaded_context_length")) or None
    can: set[Capability] = {"tools"}
    if entry.get("type") == "vlm":
        can.add("image_in")
    notices = (
        (
            f"LM Studio loaded this model with {window} tokens; load it with a larger context "
            "length for long work.",
        )
        if window and window < SMALL_WINDOW
        else ()
    )
    return Probed(DIALECTS["lmstudio"], window, frozenset(can) if entry else None, notices)


async def _ollama(asker: Asker, origin: str, model: str) -> Probed:
    dialect = DIALECTS["ollama"]
    shown = loose.mapping(
        await asker.ask_or_none(f"{origin}/api/show", {"model": model}, timeout_s=_LOCAL_TIMEOUT_S)
    )
    told = loose.listing(shown.get("capabilities"))
    can: set[Capability] = set()
    if "tools" in told:
        can.add("tools")
    if "thinking" in told:
        can.add("thinking")
    if "vision" in told:
        can.add("image_in")
    window = await _ollama_window(asker, origin, model)
    if window is None and shown:
        # Its window is only known once it is loaded; a request without a prompt does no more than that.
        await asker.ask_or_none(
            f"{origin}/api/generate", {"model": model}, timeout_s=_LOAD_TIMEOUT_S
        )
        window = await _ollama_window(asker, origin, model)
    notices: list[str] = []
    if window is not None and window < SMALL_WINDOW:
        notices.append(
            f"Ollama gives this model {window} tokens and cuts longer prompts without a word: "
            "start it with OLLAMA_CONTEXT_LENGTH=32768 or more."
        )
    if told and "tools" not in told:
        notices.append(f"Ollama says that {model} cannot call tools.")
    return Probed(dialect, window, frozenset(can) if told else None, tuple(notices))


async def _ollama_window(asker: Asker, origin: str, model: str) -> int | None:
    running = loose.mapping(await asker.ask_or_none(f"{origin}/api/ps", timeout_s=_LOCAL_TIMEOUT_S))
    for one in map(loose.mapping, loose.listing(running.get("models"))):
        names = {loose.text(one.get("name")), loose.text(one.get("model"))}
        if model in names or f"{model}:latest" in names:
            return loose.count(one.get("context_length")) or None
    return None
