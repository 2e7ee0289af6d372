"""Facts about models: listing those of a server, their context windows and capabilities, and finding and probing servers.

`chat_models` lists what a user can choose from: it corrects the base URL and leaves out models that cannot chat.
`local_servers` looks on this machine's usual ports. `probe` finds out about the one model in use and never fails: unknown
facts are None. All of them use small requests beside the conversation, each with one JSON answer and a short timeout. For
servers that do not report them, `known_window` and `known_to_see` go by a model's name. Windows are in tokens, timeouts in
seconds.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from kimi_tui import lenient_json
from kimi_tui.base_url import host_of, is_loopback, root_of, shown_url
from kimi_tui.llm import errors
from kimi_tui.llm.dialects import DIALECTS, Dialect, dialect_of_host
from kimi_tui.llm.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    LLMError,
    ResponseContext,
)
from kimi_tui.llm.provider import NO_HEADERS, Capability, check_origin

if TYPE_CHECKING:
    import httpx2

    from kimi_tui.llm.transport import RestrictedClient

_MAX_BYTES = 8 * 1024 * 1024
"""Bytes. The longest known list of models has 1 MiB."""


class _JsonClient:
    """Small requests to one server. Create it with `_json_client`."""

    def __init__(
        self,
        client: RestrictedClient,
        host: str,
        api_key: str,
        secrets: tuple[str, ...],
        timeout_s: float,
        *,
        is_keyless: bool,
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._host = host
        self._api_key = api_key
        self._secrets = secrets
        self._is_keyless = is_keyless

    async def request(
        self,
        url: str,
        body: Mapping[str, Any] | None = None,
        *,
        model: str = "",
        timeout_s: float | None = None,
    ) -> Any:
        """Return the JSON at `url`, by GET or (with a body) POST.

        Raises:
            LLMError: unreachable, refused, or not JSON.
        """
        import httpx2

        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                request = self._client.build_request(
                    "GET" if body is None else "POST",
                    url,
                    json=body,
                    # A small compressed answer could unpack to any size before its bytes are counted.
                    headers={**headers, "Accept-Encoding": "identity"},
                    timeout=self._timeout_s if timeout_s is None else timeout_s,
                )
                response = await self._client.send(request, stream=True)
                try:
                    raw, is_whole = await _bounded_body(response)
                finally:
                    await response.aclose()
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise APITimeoutError(
                f"{self._host} did not answer in time.",
                advice="Check the base URL and the network.",
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            from kimi_tui.llm.transport import connection_error

            proxy = self._client.proxy
            raise connection_error(self._host, error, self._secrets, proxy) or APIConnectionError(
                f"{self._host} closed the connection.", advice="Check the base URL."
            ) from error
        if response.status_code == 407 and self._client.proxy is not None:
            raise self._client.proxy.wants_login()
        context = ResponseContext(
            host=self._host,
            model=model,
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            secrets=self._secrets,
            now=time.time(),
            through="" if (proxy := self._client.proxy) is None else proxy.answers_for(url),
            is_keyless=self._is_keyless,
        )
        if response.status_code >= 300:
            raise errors.error_of_response(raw, context)
        try:
            if not is_whole:
                raise ValueError("too large")
            return await asyncio.to_thread(_parsed, raw)
        except ValueError:
            kind = response.headers.get("content-type", "").split(";")[0].lower()
            raise errors.error_of_wrong_content(kind, raw[:2_000], context) from None

    async def request_or_none(
        self, url: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """Like `request`, but return None for every failure."""
        try:
            return await self.request(url, body, timeout_s=timeout_s)
        except LLMError:
            return None


def _parsed(raw: bytes) -> Any:
    value = lenient_json.parse(raw)
    # Names go to the screen and into the configuration; neither accepts lone surrogates.
    return lenient_json.text_only(value) if lenient_json.can_have_halves(raw) else value


async def _bounded_body(response: httpx2.Response) -> tuple[bytes, bool]:
    """Read the body up to the largest size of a small answer; return it, and whether it is complete."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_BYTES:
            return b"".join(pieces)[:_MAX_BYTES], False
    return b"".join(pieces), True


@asynccontextmanager
async def _json_client(
    base_url: str, api_key: str, headers: Mapping[str, str], *, timeout_s: float
) -> AsyncGenerator[_JsonClient]:
    """Yield a client for one server, and close it afterwards.

    Raises:
        LLMError: the base URL is invalid, the key would cross a network unencrypted, or the environment names a proxy or
            certificates that cannot be used.
    """
    host = check_origin(base_url, api_key, headers)

    def make() -> RestrictedClient:
        from kimi_tui.llm.transport import RestrictedClient, preload_connection

        preload_connection()
        return RestrictedClient(base_url, headers, connect_s=timeout_s, read_s=timeout_s)

    client = await asyncio.to_thread(make)
    try:
        secrets = (api_key, *headers.values(), *(client.proxy.secrets if client.proxy else ()))
        keyless = not (api_key or headers)
        yield _JsonClient(client, host, api_key, secrets, timeout_s, is_keyless=keyless)
    finally:
        await client.aclose()


_USUAL_PORTS: Mapping[str, int] = {
    "Ollama": 11434,
    "llama.cpp": 8080,
    "LM Studio": 1234,
    "vLLM": 8000,
}
NO_LIST_STATUSES = frozenset({200, 404, 405, 501})
"""The statuses with which servers answer that have no list of models."""
_LOOPBACK_TIMEOUT_S = 0.8
_PAUSE_S = 2.0
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that a server lists. `window`, `capabilities` and `price` are None if the server does not tell them.

    `price` is the cost of a million input tokens and of a million output tokens, in US dollars.
    `chats` is false for models that make embeddings, rankings, images or audio.
    """

    id: str
    window: int | None = None
    capabilities: frozenset[Capability] | None = None
    owned_by: str = ""
    chats: bool = True
    price: tuple[float, float] | None = None

    @property
    def likely_window(self) -> tuple[int | None, bool]:
        """The window in tokens (None: unknown) and whether it is only guessed from the name."""
        if self.window is not None:
            return self.window, False
        return known_window(self.id), True


@dataclass(frozen=True, slots=True)
class ChatModels:
    """The models of a server that can chat, in the server's order.

    `base_url` is the URL that answered; it may differ from the requested URL, as a missing `/v1` is added. `others` is the
    number of models that were left out because they do not chat.
    """

    base_url: str
    models: tuple[FoundModel, ...]
    others: int = 0


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server found on this machine; `loading` is true while it answers that its model is not ready yet."""

    name: str
    base_url: str
    models: tuple[FoundModel, ...]
    loading: bool = False


async def chat_models(
    base_url: str,
    api_key: str,
    headers: Mapping[str, str] = NO_HEADERS,
    *,
    timeout_s: float = 10.0,
) -> ChatModels:
    """Return a server's models that can chat, with their windows if those are known.

    If the base URL lists nothing, the usual paths of this host's API and of most servers (`/v1`) are tried. All these URLs
    have the same origin, so the key is sent nowhere else.

    Args:
        base_url: the base URL as the user wrote it.
        api_key: the key to send; empty for none.
        headers: the user's own headers, sent wherever the key is.
        timeout_s: seconds for each request.

    Raises:
        LLMError: the server cannot be reached, refuses (the text for a 401 says what to change), or lists no models.
    """
    first: LLMError | None = None
    async with _json_client(base_url, api_key, headers, timeout_s=timeout_s) as client:
        for url in base_urls(base_url):
            try:
                found = await _listed_models(client, url, timeout_s)
            except LLMError as error:
                if not _has_no_model_list(error):
                    if first is not None and isinstance(error, APIStatusError):
                        # This URL has the API, which refuses; its error says more than the 404 of the URL that was given.
                        ends = (
                            f"Base URLs usually end in /v1; the API answered at {shown_url(url)}."
                        )
                        error.advice = f"{error.advice} {ends}".strip()
                        raise error from None
                    raise first or error from None
                first = first or error
                continue
            if is_loopback(host_of(url)):
                found = await _with_program_facts(client, url, found)
            chatting = tuple(model for model in found if model.chats)
            return ChatModels(url, chatting, len(found) - len(chatting))
    raise first or LLMError("The list of models could not be requested.")


async def _listed_models(client: _JsonClient, base_url: str, timeout_s: float) -> list[FoundModel]:
    held = [await client.request(f"{base_url}/models", timeout_s=timeout_s)]
    # A list may have thousands of models; reading it, and freeing those beyond the limit, is done in a thread.
    models = await asyncio.to_thread(lambda: read_models(held.pop()))
    if models is None:
        raise APIStatusError(
            "The server answered, but not with a list of models.",
            status=200,
            advice="Check the base URL: it usually ends in /v1.",
        )
    return models


def _has_no_model_list(error: LLMError) -> bool:
    """Return whether the server answered, but has no list of models at this URL."""
    return isinstance(error, APIStatusError) and error.status in NO_LIST_STATUSES


def base_urls(base_url: str) -> list[str]:
    """Return the URLs at which a server's API may be, the given one first; at most four, all with one origin."""
    given = base_url.rstrip("/")
    places = [given]
    path = [part for part in urlsplit(given).path.split("/") if part]
    if not any(part[:1] == "v" and part[1:2].isdigit() for part in path):
        if standing := dialect_of_host(host_of(given)).path:
            places.append(root_of(given) + standing)
        places.append(f"{given}/v1")
        if not path:
            places.append(f"{given}/api/v1")
    return list(dict.fromkeys(places))


async def _with_program_facts(
    client: _JsonClient, base_url: str, models: list[FoundModel]
) -> list[FoundModel]:
    """Return the models with the windows and kinds that LM Studio and Ollama list at endpoints of their own."""
    origin = root_of(base_url)
    lmstudio, running = await asyncio.gather(
        client.request_or_none(f"{origin}/api/v0/models", timeout_s=_LOOPBACK_TIMEOUT_S),
        client.request_or_none(f"{origin}/api/ps", timeout_s=_LOOPBACK_TIMEOUT_S),
    )
    stated: dict[str, FoundModel] = {}
    for entry in map(
        lenient_json.mapping, lenient_json.listing(lenient_json.mapping(lmstudio).get("data"))
    ):
        model = _model(entry)
        loaded = lenient_json.count(entry.get("loaded_context_length"))
        stated[model.id] = replace(model, window=loaded or model.window)
    for entry in map(
        lenient_json.mapping, lenient_json.listing(lenient_json.mapping(running).get("models"))
    ):
        name = lenient_json.text(entry.get("name")) or lenient_json.text(entry.get("model"))
        stated[name] = FoundModel(name, lenient_json.count(entry.get("context_length")) or None)
    more = ((model, stated.get(model.id)) for model in models)
    return [
        model
        if known is None
        else replace(model, window=known.window or model.window, chats=model.chats and known.chats)
        for model, known in more
    ]


async def local_servers(ports: Mapping[str, int] = _USUAL_PORTS) -> list[LocalServer]:
    """Return the servers that answer on the usual ports; all ports are asked at once."""

    async def look(name: str, port: int) -> LocalServer | None:
        base_url = f"http://127.0.0.1:{port}/v1"
        try:
            found = await chat_models(base_url, "", timeout_s=_LOOPBACK_TIMEOUT_S)
        except LLMError as error:
            return LocalServer(name, base_url, (), loading=True) if _is_loading(error) else None
        return LocalServer(name, base_url, found.models)

    found = await asyncio.gather(*(look(name, port) for name, port in ports.items()))
    return [server for server in found if server is not None]


async def local_servers_until_ready() -> AsyncGenerator[list[LocalServer]]:
    """Yield the servers of this machine: a list at once, and another whenever one of them has finished loading its model.

    The iteration ends when no server is loading any more, or after ten minutes. Servers send no notification, so those that
    are loading are polled every two seconds.
    """
    deadline = time.monotonic() + _PATIENCE_S
    found = await local_servers()
    yield found
    while any(server.loading for server in found) and time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE_S)
        loading = {one.name: urlsplit(one.base_url).port or 80 for one in found if one.loading}
        asked = {one.name: one for one in await local_servers(loading)}
        now = [asked.get(one.name, one) for one in found if not one.loading or one.name in asked]
        if now != found:
            found = now
            yield found


def _is_loading(error: LLMError) -> bool:
    """Return whether the server runs but is not ready yet, as llama.cpp answers on every path."""
    busy = isinstance(error, APIStatusError) and error.status == 503
    return busy and "loading" in error.message.lower()


MOST_MODELS = 2_000
"""Several times the number of models of any server. The event loop visits each model when a list of them is shown or narrowed."""


def read_models(body: Any) -> list[FoundModel] | None:
    """Read the models in an answer of `/models`, at most `MOST_MODELS`; None if it is not such an answer."""
    shape = lenient_json.mapping(body)
    entries: object = shape.get("data", shape.get("models"))
    if isinstance(body, list):
        entries = cast("object", body)
    if not isinstance(entries, list):
        return None
    listed = lenient_json.listing(entries)[:MOST_MODELS]
    found = [_model(lenient_json.mapping(entry)) for entry in listed]
    return [model for model in found if model.id]


def _model(entry: Mapping[str, Any]) -> FoundModel:
    top = lenient_json.mapping(entry.get("top_provider"))
    windows = (
        lenient_json.count(source.get(key))
        for source, key in (
            (entry, "context_length"),
            (entry, "context_window"),
            (entry, "max_context_length"),
            (entry, "max_model_len"),
            (entry, "max_input_tokens"),
            (top, "context_length"),
            (lenient_json.mapping(entry.get("model_info")), "max_input_tokens"),
        )
    )
    name = lenient_json.text(entry.get("id")) or lenient_json.text(entry.get("name"))
    name = name.removeprefix("models/")
    return FoundModel(
        id=name,
        window=next((size for size in windows if size), None),
        capabilities=_capabilities(entry),
        owned_by=lenient_json.text(entry.get("owned_by")),
        chats=_chats(name, entry),
        price=_price(entry),
    )


def _price(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """Read the price from OpenRouter's entry: texts in dollars per token; a negative number there means a price that varies."""
    stated = lenient_json.mapping(entry.get("pricing"))
    found: list[float] = []
    for key in ("prompt", "completion"):
        try:
            amount = float(lenient_json.text(stated.get(key))[:_LONGEST_PRICE]) * 1_000_000
        except ValueError:
            return None
        if not 0 <= amount <= _HIGHEST_PRICE:
            return None
        found.append(amount)
    return found[0], found[1]


_LONGEST_PRICE = 40
_HIGHEST_PRICE = 1_000_000


# These are words of a model's name between its separators. They must match whole, so that `embedded-coder` does not count.
_NO_CHAT_WORDS = frozenset(
    (
        *("embed", "embedding", "embeddings", "embedder", "minilm", "bge", "gte", "e5", "rerank"),
        *("reranker", "whisper", "tts", "transcribe", "asr", "speech", "voice", "moderation"),
        *("diffusion", "sdxl", "flux", "imagen", "veo", "sora", "dalle", "clip", "colbert"),
        *("realtime", "babbage", "davinci", "ocr", "lyria", "kolors", "cosyvoice", "sensevoice"),
    )
)
_NO_CHAT_PAIRS = (
    *("dall-e", "gpt-image", "wanx", "text-embedding", "nomic-embed", "bge-m3", "mxbai-embed"),
    *("arctic-embed", "voyage-", "seedream", "qwen-image", "cogview", "stable-diffusion"),
)
_NO_CHAT_KINDS = frozenset(
    (
        *("embedding", "embeddings", "rerank", "reranker", "image", "audio", "moderation"),
        *("transcribe", "transcription", "speech", "video", "image_generation", "text-to-speech"),
        *("audio_transcription", "audio_speech", "text-embedding", "feature-extraction"),
    )
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 500


def _chats(name: str, entry: Mapping[str, Any]) -> bool:
    """Return whether the model has text as input and output: by its entry in the list, else by its name."""
    stated = lenient_json.mapping(entry.get("capabilities"))
    if isinstance(stated.get("completion_chat"), bool):
        return bool(stated["completion_chat"])
    outputs = lenient_json.listing(
        lenient_json.mapping(entry.get("architecture")).get("output_modalities")
    )
    if outputs and "text" not in outputs:
        return False
    info = lenient_json.mapping(entry.get("model_info"))
    kinds = (entry.get("type"), entry.get("mode"), entry.get("task"), info.get("mode"))
    if any(lenient_json.text(kind).lower() in _NO_CHAT_KINDS for kind in kinds):
        return False
    last = name.rstrip("/").rsplit("/", 1)[-1].lower()[:_LONGEST_NAME]
    return not any(pair in last for pair in _NO_CHAT_PAIRS) and _NO_CHAT_WORDS.isdisjoint(
        _SEPARATORS.split(last)
    )


def _capabilities(entry: Mapping[str, Any]) -> frozenset[Capability] | None:
    """Read the capabilities in a model's entry, as Moonshot, OpenRouter or Mistral name them."""
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
        parameters = lenient_json.listing(entry.get("supported_parameters"))
        if "tools" in parameters:
            found.add("tools")
        if "reasoning" in parameters:
            found.add("thinking")
        inputs = lenient_json.mapping(entry.get("architecture")).get("input_modalities")
        if "image" in lenient_json.listing(inputs):
            found.add("image_in")
    if isinstance(entry.get("capabilities"), dict):
        said = True
        stated = lenient_json.mapping(entry.get("capabilities"))
        # A list without an entry for function calls takes no capability away.
        if stated.get("function_calling", True):
            found.add("tools")
        if stated.get("vision"):
            found.add("image_in")
        if stated.get("reasoning"):
            found.add("thinking")
    return frozenset(found) if said else None


_REMOTE_TIMEOUT_S = 8.0
_LOCAL_TIMEOUT_S = 1.0
_LOAD_TIMEOUT_S = 120.0
_ENLARGED = 32_768
"""Tokens of the window that is offered if Ollama gives a model less: enough for the whole prompt and some work."""
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts that probing found out about a server and a model; None for each that the server did not tell.

    `base_url` is the API's URL if it differs from the given one. `larger` says how the user gets a larger window; `enlarged`
    is the window in tokens that `with_larger_window` can make at `root`, 0 for none. With `one_at_a_time` the server answers
    one request after another.
    """

    dialect: Dialect | None = None
    window: int | None = None
    capabilities: frozenset[Capability] | None = None
    notices: tuple[str, ...] = ()
    base_url: str | None = None
    one_at_a_time: bool = False
    larger: str = ""
    enlarged: int = 0
    root: str = ""


async def probe(
    base_url: str, api_key: str, model: str, headers: Mapping[str, str] = NO_HEADERS
) -> ServerFacts:
    """Ask a server about itself and a model."""
    host = host_of(base_url)
    local = is_loopback(host) and dialect_of_host(host).name == "generic"
    timeout_s = _LOCAL_TIMEOUT_S if local else _REMOTE_TIMEOUT_S
    try:
        async with _json_client(base_url, api_key, headers, timeout_s=timeout_s) as client:
            if local:
                return await _probe_local(client, base_url.rstrip("/"), model)
            return await _probe_list(client, base_url.rstrip("/"), model, timeout_s)
    except LLMError:
        return ServerFacts()


async def _probe_list(
    client: _JsonClient, base_url: str, model: str, timeout_s: float
) -> ServerFacts:
    url, models = await _find_list(client, base_url, timeout_s)
    return _facts_at(url, base_url, _facts_in_list(models, model))


async def _find_list(
    client: _JsonClient, base_url: str, timeout_s: float
) -> tuple[str, list[FoundModel]]:
    """Return the base URL under which models are listed, and these models; the given URL if no URL lists any."""
    for url in base_urls(base_url):
        try:
            models = read_models(await client.request(f"{url}/models", timeout_s=timeout_s))
        except LLMError as error:
            if _has_no_model_list(error):
                continue
            break
        if models is not None:
            return url, models
    return base_url, []


def _facts_at(url: str, base_url: str, found: ServerFacts) -> ServerFacts:
    if url == base_url:
        return found
    words = f"The API of this server is at {url}, which is used instead of {base_url}."
    return replace(found, base_url=url, notices=(words, *found.notices))


def _facts_in_list(models: list[FoundModel], model: str) -> ServerFacts:
    entry = next((one for one in models if one.id == model), None)
    owners = {one.owned_by.lower() for one in models}
    name = next((_OWNERS[owner] for owner in owners if owner in _OWNERS), None)
    dialect = DIALECTS[name] if name else None
    if entry is None:
        return ServerFacts(dialect)
    return ServerFacts(dialect, entry.window, entry.capabilities)


async def _probe_local(client: _JsonClient, base_url: str, model: str) -> ServerFacts:
    (url, models), programs = await asyncio.gather(
        _find_list(client, base_url, _LOCAL_TIMEOUT_S),
        asyncio.gather(*(_program(client, root, model) for root in _roots(base_url))),
    )
    known = next((found for found in programs if found is not None), None)
    return _facts_at(url, base_url, known or _facts_in_list(models, model))


def _roots(base_url: str) -> list[str]:
    """Return the URLs at which a local program's own endpoints can be: below the path before `/v1`, or at the server's root."""
    path = urlsplit(base_url).path.rstrip("/").removesuffix("/v1").rstrip("/")
    return [*([root_of(base_url) + path] if path else []), root_of(base_url)]


async def _program(client: _JsonClient, root: str, model: str) -> ServerFacts | None:
    """Ask llama.cpp, LM Studio or Ollama about itself and the model; None if the server is none of them."""
    props, lmstudio, version = await asyncio.gather(
        client.request_or_none(f"{root}/props", timeout_s=_LOCAL_TIMEOUT_S),
        client.request_or_none(f"{root}/api/v0/models", timeout_s=_LOCAL_TIMEOUT_S),
        client.request_or_none(f"{root}/api/version", timeout_s=_LOCAL_TIMEOUT_S),
    )
    if "default_generation_settings" in lenient_json.mapping(props):
        return await _llamacpp(client, root, model, lenient_json.mapping(props))
    entries = [
        lenient_json.mapping(one)
        for one in lenient_json.listing(lenient_json.mapping(lmstudio).get("data"))
    ]
    if any("max_context_length" in one for one in entries):
        return _lmstudio(entries, model)
    # A server that answers here need not be Ollama: Open WebUI answers too.
    shown = await _ollama_shown(client, root, model) if _has_version(version) else None
    return await _ollama(client, root, model, shown) if shown is not None else None


def _has_version(answer: Any) -> bool:
    return bool(lenient_json.text(lenient_json.mapping(answer).get("version")))


async def _llamacpp(
    client: _JsonClient, origin: str, model: str, props: dict[str, Any]
) -> ServerFacts:
    window = _n_ctx(props)
    if not window:
        # A router serves several models and describes one by name; the request must not make it load the model.
        url = f"{origin}/props?model={quote(model, safe='')}&autoload=false"
        props = lenient_json.mapping(await client.request_or_none(url, timeout_s=_LOCAL_TIMEOUT_S))
        window = _n_ctx(props)
    can: set[Capability] = {"tools"}
    # A chat template without support for tools drops them: the model would not see them.
    if lenient_json.mapping(props.get("chat_template_caps")).get("supports_tools") is False:
        can.clear()
    if lenient_json.mapping(props.get("modalities")).get("vision"):
        can.add("image_in")
    return ServerFacts(
        DIALECTS["llamacpp"],
        window,
        frozenset(can),
        larger="For a larger context window, start llama.cpp with a larger -c, for example -c 32768.",
        one_at_a_time=lenient_json.count(props.get("total_slots")) == 1,
    )


def _n_ctx(props: dict[str, Any]) -> int | None:
    return (
        lenient_json.count(
            lenient_json.mapping(props.get("default_generation_settings")).get("n_ctx")
        )
        or None
    )


def _lmstudio(entries: list[dict[str, Any]], model: str) -> ServerFacts:
    entry = next((one for one in entries if one.get("id") == model), lenient_json.mapping(None))
    window = lenient_json.count(entry.get("loaded_context_length")) or None
    can: set[Capability] = {"tools"}
    if entry.get("type") == "vlm":
        can.add("image_in")
    larger = (
        "For a larger context window, load the model in LM Studio with a larger context length."
    )
    return ServerFacts(
        DIALECTS["lmstudio"], window, frozenset(can) if entry else None, larger=larger
    )


async def _ollama_shown(client: _JsonClient, root: str, model: str) -> dict[str, Any] | None:
    """Return Ollama's description of a model; empty if it does not know the model, None if the server is not Ollama."""
    try:
        shown = await client.request(
            f"{root}/api/show", {"model": model}, timeout_s=_LOCAL_TIMEOUT_S
        )
    except APIStatusError as error:
        is_no_model = error.status == 404 and "model" in error.message.lower()
        running = await client.request_or_none(f"{root}/api/ps", timeout_s=_LOCAL_TIMEOUT_S)
        return {} if is_no_model or "models" in lenient_json.mapping(running) else None
    except LLMError:
        return {}
    return lenient_json.mapping(shown)


async def _ollama(
    client: _JsonClient, origin: str, model: str, shown: dict[str, Any]
) -> ServerFacts:
    dialect = DIALECTS["ollama"]
    stated = lenient_json.listing(shown.get("capabilities"))
    can: set[Capability] = set()
    if "tools" in stated:
        can.add("tools")
    if "thinking" in stated:
        can.add("thinking")
    if "vision" in stated:
        can.add("image_in")
    window = await _ollama_window(client, origin, model)
    if window is None and shown:
        # Ollama knows the window only after loading the model; a request without a prompt only loads it.
        await client.request_or_none(
            f"{origin}/api/generate", {"model": model}, timeout_s=_LOAD_TIMEOUT_S
        )
        window = await _ollama_window(client, origin, model)
    trained = _trained_window(shown)
    enlarged = min(_ENLARGED, trained or _ENLARGED)
    return ServerFacts(
        dialect,
        window,
        frozenset(can) if stated else None,
        larger="For a larger context window, start Ollama with OLLAMA_CONTEXT_LENGTH=32768.",
        enlarged=enlarged if shown and window is not None and enlarged > window else 0,
        root=origin,
    )


def _trained_window(shown: dict[str, Any]) -> int | None:
    """Return the window in tokens with which a model of Ollama was trained; None if Ollama does not say."""
    info = lenient_json.mapping(shown.get("model_info"))
    sizes = (value for key, value in info.items() if key.endswith(".context_length"))
    return next(filter(None, map(lenient_json.count, sizes)), None)


def enlarged_name(model: str, window: int) -> str:
    """Return the name of an Ollama model with a larger window: `qwen3:8b-32k` for `qwen3:8b`."""
    size = f"{window // _K}k" if window >= _K else str(window)
    last = model.rsplit("/", 1)[-1]
    return f"{model}-{size}" if ":" in last else f"{model}:{size}"


async def with_larger_window(
    root: str, api_key: str, headers: Mapping[str, str], model: str, window: int
) -> str:
    """Have Ollama make a copy of a model with a window of that many tokens; return its name.

    Only the setting `num_ctx` is new: both models share the weights. An existing model with that name is replaced.

    Args:
        root: the URL of Ollama's native API, without `/api`.
        api_key: the key to send; empty for none.
        headers: the user's own headers.
        model: the name of the model.
        window: the size of the window in tokens.

    Raises:
        LLMError: Ollama cannot be reached, or refuses.
    """
    name = enlarged_name(model, window)
    body = {"model": name, "from": model, "parameters": {"num_ctx": window}, "stream": False}
    async with _json_client(root, api_key, headers, timeout_s=_LOAD_TIMEOUT_S) as client:
        answer = await client.request(f"{root}/api/create", body, model=name)
    status = lenient_json.text(lenient_json.mapping(answer).get("status"))
    if status != "success":
        raise LLMError(
            f"Ollama did not create the model {name}; it answered {status[:80] or 'nothing'!r}.",
            advice="Start Ollama with OLLAMA_CONTEXT_LENGTH=32768 in its environment.",
        )
    return name


async def _ollama_window(client: _JsonClient, origin: str, model: str) -> int | None:
    running = lenient_json.mapping(
        await client.request_or_none(f"{origin}/api/ps", timeout_s=_LOCAL_TIMEOUT_S)
    )
    for one in map(lenient_json.mapping, lenient_json.listing(running.get("models"))):
        names = {lenient_json.text(one.get("name")), lenient_json.text(one.get("model"))}
        if model in names or f"{model}:latest" in names:
            return lenient_json.count(one.get("context_length")) or None
    return None


# -- what is known of models by their names, for servers that do not say: windows (in tokens) and image input

DEFAULT_WINDOW = 128_000
_K = 1_024

# The first pattern that matches the last path segment of the model's name counts; sizes are in tokens.
_KNOWN_WINDOWS: tuple[tuple[str, int], ...] = (
    (r"kimi-k3", 1_024 * _K),
    (r"k3($|-)", 1_024 * _K),
    (r"kimi-(k2\.|for-coding)", 256 * _K),
    (r"kimi-k2", 256 * _K),
    (r"moonshot-v1-8k", 8 * _K),
    (r"moonshot-v1-32k", 32 * _K),
    (r"moonshot-v1", 128 * _K),
    (r"gpt-5\.[4-9]", 1_050_000),
    (r"gpt-5", 400_000),
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-4o|chatgpt-4o", 128_000),
    (r"gpt-4-turbo", 128_000),
    (r"gpt-4-32k", 32_768),
    (r"gpt-4", 8_192),
    (r"gpt-3\.5", 16_385),
    (r"gpt-oss", 131_072),
    (r"o[134]($|-)", 200_000),
    (r"deepseek-v4", 1_024 * _K),
    (r"deepseek", 128 * _K),
    (r"gemini-(1\.5|[2-9])", 1_024 * _K),
    (r"glm-4\.[67]|glm-[5-9]", 200_000),
    (r"glm-4", 128_000),
    (r"qwen3-coder-plus|qwen-plus|qwen3\.\d-plus|qwen-flash", 1_000_000),
    (r"qwen3-max", 256 * _K),
    (r"qwen3-coder", 256 * _K),
    (r"qwen", 128 * _K),
    (r"minimax-m[12]", 200_000),
    (r"(devstral|mistral-(large|medium))", 128 * _K),
    (r"codestral", 256 * _K),
    (r"mistral|ministral|magistral", 128 * _K),
    (r"claude", 200_000),
    (r"grok-4", 256 * _K),
)

_USUAL = (8, 16, 32, 64, 128, 200, 256, 400, 512, 1_024, 2_048)
"""Common sizes of windows, in thousands of tokens."""

_COMPILED = tuple((re.compile(pattern), size) for pattern, size in _KNOWN_WINDOWS)


def known_window(model: str) -> int | None:
    """Return the window of a model by its name, or None."""
    name = model.rsplit("/", 1)[-1].lower()
    for pattern, size in _COMPILED:
        if pattern.match(name):
            return size
    return None


def larger_window(read: int, *candidates: int | None) -> int:
    """Return the window of a model that accepted `read` tokens: the first candidate that is no smaller, else a common size."""
    for size in (*candidates, DEFAULT_WINDOW, *(one * 1_000 for one in _USUAL)):
        if size is not None and size >= read:
            return size
    return round(read * 1.25)


_SEEING = re.compile(
    r"gpt-(4o|4\.1|4-turbo|5)|chatgpt-4o|o[134]($|-2)|gemini-|claude-|kimi-(k2\.[56]|k3)|k3($|-)|"
    r"moonshot-v1-.*vision|pixtral|qwen.*-vl|grok-4|llama-4|glm-.*v($|-)"
)


def known_to_see(model: str) -> bool:
    """Return whether a model with this name accepts images."""
    return bool(_SEEING.match(model.rsplit("/", 1)[-1].lower()))
