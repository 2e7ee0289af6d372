"""Small questions to a server beside the conversation: one JSON answer each, quickly or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kimi_tui.llm import failures, loose
from kimi_tui.llm.errors import APIConnectionError, APITimeoutError, LLMError
from kimi_tui.llm.failures import Answered
from kimi_tui.llm.transport import check_origin

if TYPE_CHECKING:
    import httpx2

_MAX_BYTES = 16 * 1024 * 1024


def origin_of(base_url: str) -> str:
    """Scheme, host and port of a base URL."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


class Asker:
    """Asks one server. Made by `asking`."""

    def __init__(
        self, client: httpx2.AsyncClient, host: str, api_key: str, timeout_s: float
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._host = host
        self._api_key = api_key

    async def ask(
        self,
        url: str,
        body: Mapping[str, Any] | None = None,
        *,
        model: str = "",
        timeout_s: float | None = None,
    ) -> Any:
        """The JSON at `url`, by GET or (with a body) POST.

        Raises:
            LLMError: unreachable, refused, or not JSON.
        """
        import httpx2

        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.request(
                    "GET" if body is None else "POST",
                    url,
                    json=body,
                    headers=headers,
                    timeout=self._timeout_s if timeout_s is None else timeout_s,
                )
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise APITimeoutError(
                f"{self._host} did not answer in time.",
                advice="Check the base URL and the network.",
            ) from error
        except httpx2.ConnectError as error:
            why = failures.redact(str(error), self._api_key).strip()[:200]
            raise APIConnectionError(
                f"{self._host} cannot be reached" + (f": {why}" if why else "."),
                advice="Check the base URL and the network.",
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise APIConnectionError(
                f"{self._host} closed the connection.", advice="Check the base URL."
            ) from error
        answered = Answered(
            host=self._host,
            model=model,
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            secret=self._api_key,
            now=time.time(),
        )
        raw = response.content
        if response.status_code >= 300:
            raise failures.of_response(raw, answered)
        try:
            if len(raw) > _MAX_BYTES:
                raise ValueError("too large")
            return await asyncio.to_thread(loose.parse, raw)
        except ValueError:
            kind = response.headers.get("content-type", "").split(";")[0].lower()
            raise failures.of_wrong_content(kind, raw[:2_000], answered) from None

    async def ask_or_none(
        self, url: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """The same, with None for every failure."""
        try:
            return await self.ask(url, body, timeout_s=timeout_s)
        except LLMError:
            return None


@asynccontextmanager
async def asking(base_url: str, api_key: str, *, timeout_s: float) -> AsyncGenerator[Asker]:
    """An asker for a server, closed afterwards.

    Raises:
        LLMError: the base URL is none, or the key would cross a network unencrypted.
    """
    host = check_origin(base_url, api_key)

    def make() -> httpx2.AsyncClient:
        from kimi_tui.llm.http_client import CarefulClient

        return CarefulClient(base_url, connect_s=timeout_s, read_s=timeout_s)

    client = await asyncio.to_thread(make)
    try:
        yield Asker(client, host, api_key, timeout_s)
    finally:
        await client.aclose()
