"""What models there are: at a server (`/models`), and on this machine's usual ports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from kimi_tui.llm import loose
from kimi_tui.llm.asking import asking
from kimi_tui.llm.errors import APIStatusError, LLMError
from kimi_tui.llm.provider import Capability

USUAL_PORTS: Mapping[str, int] = {
    "Ollama": 11434,
    "llama.cpp": 8080,
    "LM Studio": 1234,
    "vLLM": 8000,
}
LISTLESS = frozenset({200, 404, 405, 501})
"""The statuses with which a server answers that has no list of models."""
_LOCAL_TIMEOUT_S = 0.8


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that a server lists. `window` and `capabilities` are None where it does not say."""

    id: str
    window: int | None = None
    capabilities: frozenset[Capability] | None = None
    owned_by: str = ""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server found on this machine."""

    name: str
    base_url: str
    models: tuple[FoundModel, ...]


async def list_models(base_url: str, api_key: str, *, timeout_s: float = 10.0) -> list[FoundModel]:
    """The models of a server, in its order.

    Raises:
        LLMError: unreachable, refused (a 401 names what to change), or not such a server.
    """
    async with asking(base_url, api_key, timeout_s=timeout_s) as asker:
        body = await asker.ask(base_url.rstrip("/") + "/models", timeout_s=timeout_s)
    models = read_models(body)
    if models is None:
        raise APIStatusError(
            "The server answered, but not with a list of models.",
            status=200,
            advice="Check the base URL: it usually ends in /v1.",
        )
    return models


async def local_servers(
    ports: Mapping[str, int] = USUAL_PORTS, *, timeout_s: float = _LOCAL_TIMEOUT_S
) -> list[LocalServer]:
    """The servers that answer on their usual ports, asked all at once."""

    async def look(name: str, port: int) -> LocalServer | None:
        base_url = f"http://127.0.0.1:{port}/v1"
        try:
            models = await list_models(base_url, "", timeout_s=timeout_s)
        except LLMError:
            return None
        return LocalServer(name, base_url, tuple(models))

    found = await asyncio.gather(*(look(name, port) for name, port in ports.items()))
    return [server for server in found if server is not None]


def read_models(body: Any) -> list[FoundModel] | None:
    """The models in the answer of `/models`, or None if it is no such answer."""
    shape = loose.mapping(body)
    entries: object = shape.get("data", shape.get("models"))
    if isinstance(body, list):
        entries = cast("object", body)
    if not isinstance(entries, list):
        return None
    found = [_model(loose.mapping(entry)) for entry in loose.listing(entries)]
    return [model for model in found if model.id]


def _model(entry: Mapping[str, Any]) -> FoundModel:
    top = loose.mapping(entry.get("top_provider"))
    windows = (
        loose.count(source.get(key))
        for source, key in (
            (entry, "context_length"),
            (entry, "context_window"),
            (entry, "max_context_length"),
            (entry, "max_model_len"),
            (top, "context_length"),
        )
    )
    name = loose.text(entry.get("id")) or loose.text(entry.get("name"))
    return FoundModel(
        id=name.removeprefix("models/"),
        window=next((size for size in windows if size), None),
        capabilities=_capabilities(entry),
        owned_by=loose.text(entry.get("owned_by")),
    )


def _capabilities(entry: Mapping[str, Any]) -> frozenset[Capability] | None:
    """What the entry says the model can do, in Moonshot's, OpenRouter's or Mistral's words."""
    found: set[Capability] = set()
    said = False
    if "supports_image_in" in entry or "supports_reasoning" in entry:
        said = True
        found.add("tools")
        if entry.get("supports_image_in"):
            found.add("image_in")
        if entry.get("supports_reasoning"):
            found.add("thinking")
    if "supported_parameters" in entry:
        said = True
        parameters = loose.listing(entry.get("supported_parameters"))
        if "tools" in parameters:
            found.add("tools")
        if "reasoning" in parameters:
            found.add("thinking")
        inputs = loose.mapping(entry.get("architecture")).get("input_modalities")
        if "image" in loose.listing(inputs):
            found.add("image_in")
    if isinstance(entry.get("capabilities"), dict):
        said = True
        told = loose.mapping(entry.get("capabilities"))
        if told.get("function_calling"):
            found.add("tools")
        if told.get("vision"):
            found.add("image_in")
        if told.get("reasoning"):
            found.add("thinking")
    return frozenset(found) if said else None
