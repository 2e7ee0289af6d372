"""Any server that speaks chat completions: one request, its refusals learned from, its stream decoded.

The `openai` client carries the bytes; what is sent is built by `requests`, what comes is read by `reading`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from kimi_tui.llm import failures
from kimi_tui.llm.dialects import ALWAYS_THINKING, Dialect, choose, for_model
from kimi_tui.llm.errors import (
    APIStatusError,
    ContextOverflowError,
    LLMError,
    LLMNotSet,
    LLMNotSupported,
)
from kimi_tui.llm.failures import Answered
from kimi_tui.llm.lessons import MAX_LESSONS_PER_REQUEST, lessons_for
from kimi_tui.llm.network_failures import NetworkFailures
from kimi_tui.llm.provider import (
    Capability,
    ChatProvider,
    ModelInfo,
    StreamItem,
    ToolSpec,
)
from kimi_tui.llm.reading import AnswerReader
from kimi_tui.llm.requests import Body, Wanted, build
from kimi_tui.llm.sending import Receiver
from kimi_tui.llm.transport import (
    check_origin,
    is_loopback,
    openai_client,
    preload,
    request_headers,
)
from kimi_tui.llm.windows import DEFAULT_WINDOW, known_to_see, known_window

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

    from kimi_tui.llm.message import Message

__all__ = ["OpenAICompatible", "preload"]


class OpenAICompatible(ChatProvider):
    """A model behind a base URL.

    Args:
        provider: its name in the config, written beside its reasoning.
        base_url: usually ends in `/v1`.
        api_key: sent to this origin alone; empty for none.
        model: the model's id at this server.
        window: its context in tokens, if configured; else it is found out or known.
        dialect: a dialect's name, if configured; else it is found by host, or by what a local server says.
        capabilities: what the model can do, if configured.
        thinking: ask for reasoning, where that can be asked for.
        session_id: names the conversation to providers that cache by such a key.
        stream_timeout_s: how long a stream may be silent.
        connect_timeout_s: how long connecting may take.
        max_output: limit of an answer in tokens; None leaves it to the server.
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
        thinking: bool = False,
        session_id: str = "",
        stream_timeout_s: float = 120.0,
        connect_timeout_s: float = 10.0,
        max_output: int | None = None,
    ) -> None:
        if not model:
            raise LLMNotSet("No model is set.", advice="Choose one with --model or in the config.")
        self._host = check_origin(base_url, api_key)
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._session_id = session_id
        self._stream_timeout_s = stream_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._network = NetworkFailures(self._host, api_key, connect_timeout_s, stream_timeout_s)
        self._max_output = max_output
        self._dialect = choose(self._base_url, model, dialect)
        self._dialect_is_set = dialect is not None
        self._window_is_set = window is not None
        self._lessons = lessons_for(self._base_url, model)
        self._client: AsyncOpenAI | None = None
        self._prepared: asyncio.Task[tuple[str, ...]] | None = None
        known = known_window(model)
        self._info = ModelInfo(
            provider=provider,
            model=model,
            window=window or self._lessons.window or known or DEFAULT_WINDOW,
            window_estimated=window is None and self._lessons.window is None and known is None,
            capabilities=_capabilities(capabilities, model),
            thinking=thinking or bool(ALWAYS_THINKING.search(model)),
        )
        self._thinking = thinking
        self._capabilities_are_set = capabilities is not None

    @property
    def info(self) -> ModelInfo:
        """The model as known now."""
        return self._info

    @property
    def dialect(self) -> Dialect:
        """The dialect as it is spoken now, lessons applied."""
        return self._lessons.applied(self._dialect)

    async def prepare(self) -> tuple[str, ...]:
        """Find out window, capabilities and (at a local server) the dialect by the server's own endpoints.

        Does its work once and never fails; worth calling when the app has painted.

        Returns:
            Sentences for the person, such as how to give a local model a larger window.
        """
        if self._prepared is None or self._prepared.cancelled():
            self._prepared = asyncio.create_task(self._find_out())
        return await asyncio.shield(self._prepared)

    async def _find_out(self) -> tuple[str, ...]:
        from kimi_tui.llm.probing import probe

        found = await probe(self._base_url, self._api_key, self._info.model)
        if (
            found.dialect is not None
            and not self._dialect_is_set
            and self._dialect.name == "generic"
        ):
            self._dialect = for_model(found.dialect, self._info.model)
        if found.window is not None and not self._window_is_set and self._lessons.window is None:
            self._info = replace(self._info, window=found.window, window_estimated=False)
        if found.capabilities is not None and not self._capabilities_are_set:
            self._info = replace(self._info, capabilities=found.capabilities)
        return found.notices

    async def generate(
        self, system: str, tools: Sequence[ToolSpec], history: Sequence[Message]
    ) -> AsyncIterator[StreamItem]:
        """Ask once; see `ChatProvider.generate`."""
        self._check_images(history)
        if is_loopback(self._host) and not self._dialect_is_set:
            # A local server says within milliseconds what it is, and the dialect depends on it.
            await self.prepare()
        if self._client is None:
            self._client = await asyncio.to_thread(
                openai_client,
                self._base_url,
                self._api_key,
                connect_s=self._connect_timeout_s,
                read_s=self._stream_timeout_s,
            )
        wanted = Wanted(
            system=system,
            tools=tuple(tools),
            history=tuple(history),
            receiver=Receiver(
                self._info.provider, self._info.model, "image_in" in self._info.capabilities
            ),
            thinking=self._thinking,
            session_id=self._session_id,
            max_output=self._max_output,
        )
        body, response = await self._send(self._client, wanted)
        reader = AnswerReader(
            response,
            self._answered(response),
            self._network,
            self._lessons,
            estimated_tokens=body.estimated_tokens,
            window=self._info.window,
            window_is_known=not self._info.window_estimated,
        )
        try:
            async for item in reader.items():
                yield item
        except ContextOverflowError as error:
            self._learn_window(error.window)
            raise
        finally:
            await response.aclose()

    def _check_images(self, history: Sequence[Message]) -> None:
        """New pictures that the model cannot see are an error; old ones are sent as a word."""
        if "image_in" in self._info.capabilities and self._dialect.images:
            return
        for message in reversed(history):
            if message.role == "assistant":
                return
            if any(part.type == "image_url" for part in message.parts):
                raise LLMNotSupported(
                    f"{self._info.model} is not known to take images.",
                    advice="Send it without, choose a model that sees, or add image_in to its "
                    "capabilities in the config.",
                )

    # Sending, and learning from refusals.

    async def _send(self, client: AsyncOpenAI, wanted: Wanted) -> tuple[Body, httpx2.Response]:
        for learned in range(MAX_LESSONS_PER_REQUEST + 1):
            dialect = self.dialect
            body = await asyncio.to_thread(build, wanted, dialect, frozenset(self._lessons.dropped))
            refusal, response = await self._post(client, body)
            if response is not None:
                return body, response
            assert refusal is not None
            error, text = refusal
            teachable = isinstance(error, APIStatusError) and error.status in {400, 422, 500}
            if isinstance(error, ContextOverflowError):
                self._learn_window(error.window)
            elif (
                teachable
                and learned < MAX_LESSONS_PER_REQUEST
                and self._lessons.learn(text, body.optional, dialect)
            ):
                continue
            raise error
        raise AssertionError("unreachable: the last round raises or returns")

    async def _post(
        self, client: AsyncOpenAI, body: Body
    ) -> tuple[tuple[LLMError, str] | None, httpx2.Response | None]:
        """One request: a response whose body is a stream, or the refusal and its text."""
        import httpx2
        import openai

        try:
            response = await client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                content=body.data,
                stream=True,
                stream_cls=openai.AsyncStream[object],
                options={"headers": request_headers(with_key=bool(self._api_key))},
            )
            return None, cast("httpx2.Response", response)
        except openai.APITimeoutError as error:
            raise self._network.timeout(error) from error
        except openai.APIConnectionError as error:
            raise self._network.unreachable(error) from error
        except openai.APIStatusError as error:
            raw = error.response.content
            failure = failures.of_response(raw, self._answered(error.response))
            return (failure, raw.decode("utf-8", "replace")), None

    def _answered(self, response: httpx2.Response) -> Answered:
        return Answered(
            host=self._host,
            model=self._info.model,
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            secret=self._api_key,
            now=time.time(),
        )

    def _learn_window(self, window: int | None) -> None:
        if window is None or (self._window_is_set and window >= self._info.window):
            return
        self._lessons.window = window
        self._info = replace(self._info, window=window, window_estimated=False)

    async def aclose(self) -> None:
        """Close connections."""
        if self._prepared is not None and not self._prepared.done():
            self._prepared.cancel()
            await asyncio.gather(self._prepared, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.close()


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
