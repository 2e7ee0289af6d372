"""A model behind any server that speaks chat completions.

`OpenAICompatible` makes one request, learns from its refusals and reads its stream. `request` builds the request, `transport`
sends the bytes, `stream` reads the answer, `completion` retries, and `dialects` holds the differences of servers as data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kimi_tui.base_url import is_loopback
from kimi_tui.llm import errors
from kimi_tui.llm.dialects import (
    MAX_LEARNED_PER_REQUEST,
    OFF,
    ON,
    UNSET,
    Dialect,
    dialect_for,
    for_model,
    quirks_of,
)
from kimi_tui.llm.errors import (
    LEAST_WINDOW,
    APIStatusError,
    ContextOverflowError,
    LLMError,
    LLMNotSet,
    LLMNotSupported,
    ResponseContext,
)
from kimi_tui.llm.models import (
    DEFAULT_WINDOW,
    ServerFacts,
    base_urls,
    known_to_see,
    known_window,
    larger_window,
    probe,
    with_larger_window,
)
from kimi_tui.llm.provider import (
    NO_HEADERS,
    Capability,
    ChatProvider,
    ModelInfo,
    Overdue,
    StreamItem,
    ToolSpec,
    Usage,
    check_origin,
)
from kimi_tui.llm.request import ChatRequest, EncodedRequest, Recipient, RequestBuilder
from kimi_tui.llm.stream import AnswerReader, end_task
from kimi_tui.llm.waiting import AnswerWait, WaitedTooLong, WaitLimits

if TYPE_CHECKING:
    import httpx2

    from kimi_tui.llm.message import Message
    from kimi_tui.llm.transport import OpenAIClient

    Sent = tuple[EncodedRequest, httpx2.Response]
    """A request, and the response to it, whose body has not been read."""

_FEW_NEW = 64
"""The number of newest messages that are looked at on the event loop."""


class OpenAICompatible(ChatProvider):
    """A model behind a base URL.

    Args:
        provider: its name in the config, written beside its reasoning.
        base_url: the URL of the API, which usually ends in `/v1`; that is added if the API is found only there.
        api_key: sent to this origin alone; empty for none.
        model: the model's id at this server.
        window: its context window in tokens, if configured; else it is probed or taken from the table of names.
        dialect: a dialect's name, if configured; else it is found by host, or by what a local server says.
        capabilities: the model's capabilities, if configured.
        thinking: `on`, `off` or an effort, if the model has this setting; empty to ask only models that are configured as thinking.
        headers: the user's own headers, sent wherever the key is.
        session_id: the cache key for providers that have one.
        lean: whether the lean form of prompt and tools is configured; None to decide by the window.
        stream_timeout_s: the seconds that a stream may be silent between two pieces of an answer.
        window_before: the window in tokens that the server reported at an earlier start; it counts as an estimate until the
            server confirms it.
        first_answer_timeout_s: the seconds to wait for the first piece; 0 for the default (`waiting.FIRST_ANSWER_S`,
            without a limit in the same network).
    """

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str,
        model: str,
        window: int | None = None,
        dialect: str | None = None,
        capabilities: Iterable[str] | None = None,
        thinking: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
        session_id: str = "",
        lean: bool | None = None,
        stream_timeout_s: float = 120.0,
        first_answer_timeout_s: float = 0.0,
        window_before: int | None = None,
    ) -> None:
        if not model:
            raise LLMNotSet(
                "No model is configured.",
                advice="Choose one with /model, with --model or in config.toml.",
            )
        self._made_with: dict[str, Any] = {
            "provider": provider,
            "base_url": base_url,
            "api_key": api_key,
            "model": model,
            "window": window,
            "dialect": dialect,
            "capabilities": capabilities,
            "headers": headers,
            "lean": lean,
            "stream_timeout_s": stream_timeout_s,
            "first_answer_timeout_s": first_answer_timeout_s,
            "window_before": window_before,
        }
        self._host = check_origin(base_url, api_key, headers)
        self._is_local = is_loopback(self._host)
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._headers = headers
        self._secrets = (api_key, *headers.values())
        self._session_id = session_id
        self._requests = RequestBuilder()
        self._limits = WaitLimits.of(self._host, stream_timeout_s, first_answer_timeout_s)
        self._dialect = dialect_for(self._base_url, model, dialect)
        self._dialect_is_set = dialect is not None
        self._window_is_set = window is not None
        self._dialect_name = dialect or ""
        self._quirks = quirks_of(self._base_url, model, self._dialect_name)
        self._reported_window: int | None = None
        self._one_at_a_time = False
        self._window_is_learned = False
        self._client: OpenAIClient | None = None
        self._prepared: asyncio.Task[tuple[str, ...]] | None = None
        self.facts: ServerFacts | None = None
        """The facts that the server told of itself and the model; set before `prepare` if another process has asked it."""
        self._info: ModelInfo = ModelInfo(
            provider=provider,
            model=model,
            window=window
            or self._quirks.window
            or window_before
            or known_window(model)
            or DEFAULT_WINDOW,
            window_estimated=window is None and self._quirks.window is None,
            capabilities=_capabilities(capabilities, model),
            lean=lean,
        )
        self._told: tuple[tuple[object, ...], ModelInfo] | None = None
        """The newest result of `info`, and the values that it was made of."""
        self._native_root = ""
        """The URL of Ollama's native API; empty for another server, or until it is known."""
        self._thinking = self._thinking_wished = thinking
        self._capabilities_are_set = capabilities is not None

    @property
    def info(self) -> ModelInfo:
        """The model as it is known now."""
        dialect = self.dialect
        # A step asks a dozen times, and what it is made of hardly ever changes.
        made_of = (
            *(self._info, dialect, self._thinking, frozenset(self._quirks.dropped)),
            *(self.use_tools, self._one_at_a_time),
        )
        if self._told is None or self._told[0] != made_of:
            self._told = made_of, self._info_now(dialect)
        return self._told[1]

    def _info_now(self, dialect: Dialect) -> ModelInfo:
        can = self._info.capabilities
        thinks, effort = dialect.thinking.in_use(
            self._thinking_set, self._quirks.dropped, has_tools=self.use_tools
        )
        if not dialect.images:
            can -= {"image_in"}
        return replace(
            self._info,
            thinking=thinks,
            effort=effort,
            capabilities=can,
            one_at_a_time=self._one_at_a_time or dialect.one_at_a_time,
        )

    @property
    def _thinking_set(self) -> str:
        """The setting in use: without one, a model that is configured as thinking is asked to think."""
        if self._thinking == UNSET and "thinking" in self._info.capabilities:
            return ON
        return self._thinking

    @property
    def thinking_choices(self) -> tuple[str, ...]:
        """See `ChatProvider.thinking_choices`."""
        known = self.dialect.thinking
        return () if known.not_with_tools and self.use_tools else known.choices

    @property
    def thinking_setting(self) -> str:
        """See `ChatProvider.thinking_setting`."""
        return self._thinking_wished

    def set_thinking(self, word: str) -> None:
        """See `ChatProvider.set_thinking`."""
        known = self.dialect.thinking
        if known.not_with_tools and self.use_tools and word.strip().lower() != OFF:
            raise LLMError(
                f"{self._info.model} cannot use reasoning together with tools on this server, so reasoning is off. To get reasoning back, turn the tools off with /tools off."
            )
        self._thinking = self._thinking_wished = known.checked(word, self._info.model)
        # The server refused these fields before; now that the user sets thinking, they are tried again.
        names = known.fields(self._thinking, has_tools=False)
        self._quirks.dropped.difference_update(names)

    @property
    def dialect(self) -> Dialect:
        """The dialect in use, with the learned quirks."""
        return self._quirks.applied(self._dialect)

    async def prepare(self) -> tuple[str, ...]:
        """Import what a request needs, and find out window, capabilities and (at a local server) the dialect by the server's
        own endpoints.

        It works once and never fails. Call it after the first paint; without that call the first message waits for it.

        Returns:
            Sentences for the user, such as how to give a local model a larger window.
        """
        if self._prepared is None or self._prepared.cancelled():
            self._prepared = asyncio.create_task(self._find_out())
        return await asyncio.shield(self._prepared)

    async def _find_out(self) -> tuple[str, ...]:
        await asyncio.to_thread(_preload)
        found = self.facts
        if found is None:
            found = await probe(self._base_url, self._api_key, self._info.model, self._headers)
            self.facts = found
        if (
            found.dialect is not None
            and not self._dialect_is_set
            and self._dialect.name == "generic"
        ):
            self._dialect = for_model(found.dialect, self._info.model)
        self._one_at_a_time = found.one_at_a_time
        if found.base_url is not None:
            self._base_url = found.base_url
            # No client is connected to the other one: the first request waits for this (`prepares_first`).
            self._quirks = quirks_of(found.base_url, self._info.model, self._dialect_name)
        if found.window is not None and found.window >= LEAST_WINDOW and not self._window_is_set:
            self._reported_window = found.window
            if not self._window_is_learned:
                # The server may have changed since the window was learned.
                self._quirks.window = None
                self._info = replace(self._info, window=found.window, window_estimated=False)
        if found.capabilities is not None:
            can = found.capabilities
            if self._capabilities_are_set:
                # The user configured the capabilities; that list never says anything about tools.
                can = self._info.capabilities - ({"tools"} - can)
            self._info = replace(self._info, capabilities=can)
        self._native_root = found.root
        self._info = replace(self._info, larger=found.larger, enlarged=found.enlarged)
        return (*found.notices, *self._check_thinking())

    def _check_thinking(self) -> tuple[str, ...]:
        """Replace a configured effort that the model does not have by `on`; return the notices about it."""
        word = self._thinking
        known = self.dialect.thinking
        if word in (UNSET, ON, OFF) or word in known.efforts:
            return ()
        self._thinking = ON
        try:
            known.checked(word, self._info.model)
        except LLMError as error:
            return (f"Reasoning effort: {error.message}",)
        return ()

    @property
    def prepares_first(self) -> bool:
        """See `ChatProvider.prepares_first`.

        A local server answers the probe within milliseconds, and the dialect depends on the answer. If the base URL seems to
        lack its end, the location of the API is not known yet.
        """
        return (self._is_local and not self._dialect_is_set) or len(base_urls(self._base_url)) > 1

    def beside(self, session_id: str) -> OpenAICompatible:
        """See `ChatProvider.beside`. It need not ask the server again for what this one knows."""
        other = OpenAICompatible(
            **self._made_with, thinking=self._thinking_wished, session_id=session_id
        )
        other.facts = self.facts
        return other

    @property
    def made_with(self) -> Mapping[str, Any]:
        """See `ChatProvider.made_with`: the arguments of the constructor, with the present setting of thinking."""
        return {**self._made_with, "thinking": self._thinking_wished}

    async def enlarge(self) -> str:
        """See `ChatProvider.enlarge`."""
        if not (self._native_root and self._info.enlarged):
            return await super().enlarge()
        return await with_larger_window(
            self._native_root,
            self._api_key,
            self._headers,
            self._info.model,
            self._info.enlarged,
        )

    async def generate(
        self,
        system: str,
        tools: Sequence[ToolSpec],
        history: Sequence[Message],
        *,
        most_tokens: int = 0,
    ) -> AsyncGenerator[StreamItem]:
        """Ask once; see `ChatProvider.generate`."""
        if any(message.role == "assistant" for message in islice(reversed(history), _FEW_NEW)):
            self._check_images(history)
        else:
            # An answer with thousands of calls is followed by as many results.
            await asyncio.to_thread(self._check_images, history)
        if self.prepares_first:
            await self.prepare()
        if self._client is None:
            self._client = await asyncio.to_thread(self._connect)
        request = ChatRequest(
            system=system,
            tools=tuple(tools),
            history=history,
            recipient=Recipient(
                self._info.provider, self._info.model, "image_in" in self._info.capabilities
            ),
            thinking=self._thinking_set,
            session_id=self._session_id,
            most_tokens=most_tokens,
        )
        client, wait = self._client, AnswerWait(self._limits)
        sending = asyncio.create_task(self._send(client, request), name="request")

        def answered() -> asyncio.Future[Sent]:
            # A limit of the wait must not cancel the request: the user may decide to wait on.
            return asyncio.shield(sending)

        try:
            while isinstance(sent := await wait.next(answered), Overdue):
                yield sent
            body, response = sent
            reader = AnswerReader(
                response,
                self._context(response, client),
                client.failures,
                self._quirks,
                estimated_tokens=body.estimated_tokens,
                most_tokens=body.most_tokens,
                window=self._info.window,
                window_is_known=self._info.window == self._reported_window,
                wait=wait,
            )
            async with aclosing(reader.items()) as items:
                async for item in items:
                    if isinstance(item, Usage):
                        self._learn_from(item)
                    yield item
        except WaitedTooLong as error:
            raise client.failures.timeout(error) from error
        except ContextOverflowError as error:
            self._learn_window(error.window)
            raise
        finally:
            wait.close()
            await _end(sending)

    def _connect(self) -> OpenAIClient:
        from kimi_tui.llm.transport import OpenAIClient

        return OpenAIClient(self._base_url, self._api_key, self._headers)

    def _check_images(self, history: Sequence[Message]) -> None:
        """Raise `LLMNotSupported` for new images that the model cannot accept; earlier images are sent as a text."""
        if "image_in" in self._info.capabilities and self._dialect.images:
            return
        for message in reversed(history):
            if message.role == "assistant":
                return
            # An image that a tool returned to another model's call is sent as a text too.
            if message.role == "user" and message.images:
                raise LLMNotSupported(
                    f"{self._info.model} is not known to accept images.",
                    advice="Send the message without images, choose a model with image input, or "
                    "add image_in to its capabilities in config.toml.",
                    missing={"image_in"},
                )

    # Sending, and learning from refusals.

    async def _send(self, client: OpenAIClient, request: ChatRequest) -> Sent:
        """Send the request until it is accepted, changed by what each refusal teaches.

        Returns:
            the accepted request, and its response with an unread body.
        """
        for learned in range(MAX_LEARNED_PER_REQUEST + 1):
            dialect = self.dialect
            dropped = frozenset(self._quirks.dropped)
            body = self._requests.build_soon(request, dialect, dropped)
            if body is None:
                body = await asyncio.to_thread(self._requests.build, request, dialect, dropped)
            response = await client.post(body.data)
            if response.is_success:
                return body, response
            error = errors.error_of_response(response.content, self._context(response, client))
            teachable = isinstance(error, APIStatusError) and error.status in {400, 422, 500}
            if isinstance(error, ContextOverflowError):
                self._learn_window(error.window)
            elif (
                teachable
                and learned < MAX_LEARNED_PER_REQUEST
                and self._quirks.learn(
                    response.content.decode("utf-8", "replace"), body.optional, dialect
                )
            ):
                continue
            raise error
        raise AssertionError("unreachable: the last round raises or returns")

    def _context(self, response: httpx2.Response, client: OpenAIClient) -> ResponseContext:
        proxy = client.failures.proxy
        return ResponseContext(
            host=self._host,
            model=self._info.model,
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            secrets=self._secrets,
            now=time.time(),
            accepted=self._quirks.accepted,
            through="" if proxy is None else proxy.answers_for(self._base_url),
            is_keyless=not any(self._secrets),
        )

    def _learn_window(self, window: int | None) -> None:
        if window is None or (self._window_is_set and window >= self._info.window):
            return
        self._quirks.window = window
        self._window_is_learned = True
        self._info = replace(self._info, window=window, window_estimated=False)

    def _learn_from(self, usage: Usage) -> None:
        """Enlarge the window if the model accepted more input than that."""
        self._quirks.accepted = usage.input
        if usage.input <= self._info.window or usage.prompt_cut:
            return
        is_learned = self._quirks.window is not None
        if self._window_is_set and not is_learned:
            return  # the user's own limit stands, whatever the model could accept
        self._quirks.window = None
        self._window_is_learned = False
        window = larger_window(usage.input, self._reported_window, known_window(self._info.model))
        is_reported = window == self._reported_window
        self._info = replace(self._info, window=window, window_estimated=not is_reported)

    async def aclose(self) -> None:
        """Close connections."""
        if self._prepared is not None:
            await end_task(self._prepared)
        await self._close_client()

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


async def _end(sending: asyncio.Task[Sent]) -> None:
    """Abandon a request: cancel it, or close its response if there is one."""
    await end_task(sending)
    if not sending.cancelled() and sending.exception() is None:
        await sending.result()[1].aclose()


def _preload() -> None:
    from kimi_tui.llm.transport import preload

    preload()


def _capabilities(configured: Iterable[str] | None, model: str) -> frozenset[Capability]:
    found: set[Capability] = {"tools"}
    if configured is None and known_to_see(model):
        found.add("image_in")
    for name in configured or ():
        match name:
            case "image_in":
                found.add("image_in")
            case "thinking" | "always_thinking":
                found.add("thinking")
            case _:
                pass
    return frozenset(found)
