"""SearchWeb: asks the search service that the user has configured, with the user's key. Without one there is no such tool.

Each service has its own request and its own form of answer (`_SERVICES`). A key is sent to the origin of its service alone,
follows no redirect, and is part of no text.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2
from pydantic import BaseModel, ConfigDict, Field

from kimi_tui import lenient_json
from kimi_tui.base_url import host_of
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.llm.errors import LLMError
from kimi_tui.llm.provider import NO_HEADERS, check_origin
from kimi_tui.llm.transport import CONNECT_S, RestrictedClient, connection_error
from kimi_tui.prompts import prompt
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.text import counted, without_our_tags

MAX_RESULTS = 20
MAX_BYTES = 2_000_000
TOTAL_S = 40.0
_QUERY_CHARS = 400
_TITLE_CHARS = 200
_EXCERPT_CHARS = 600
_URL_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class SearchService:
    """A search service of the user.

    Attributes:
        provider: one of `_SERVICES`.
        base_url: its base URL; empty for the usual one.
        key: the key; or returns it, in a thread, when it is needed first. It raises a ToolProblem if there is none.
        headers: more headers, as secret as the key.
    """

    provider: str
    base_url: str = ""
    key: str | Callable[[], str] = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS, repr=False)


class SearchResult(NamedTuple):
    """One result: title, URL, excerpt and date, each cleaned and bounded; empty where the service says nothing."""

    title: str
    url: str
    excerpt: str
    date: str = ""


class _SearchRequest(NamedTuple):
    text: str
    limit: int
    key: str


@dataclass(frozen=True, slots=True)
class _Service:
    """How a service is asked, and where its answer has the results.

    Attributes:
        base_url: the usual base URL; empty if each user has another one.
        path: the path below it.
        headers: the headers with the key.
        parameters: what a GET carries in its URL; None for a POST.
        body: the JSON that a POST carries.
        results: the keys that lead to the list of results.
        excerpts: the keys of an excerpt, the best first.
        date: the key of the date.
    """

    base_url: str
    path: str
    headers: Callable[[_SearchRequest], dict[str, str]]
    results: tuple[str, ...]
    excerpts: tuple[str, ...]
    date: str
    parameters: Callable[[_SearchRequest], dict[str, str | int]] | None = None
    body: Callable[[_SearchRequest], dict[str, Any]] | None = None


def _bearer(query: _SearchRequest) -> dict[str, str]:
    return {"Authorization": f"Bearer {query.key}"} if query.key else {}


_SERVICES: Mapping[str, _Service] = {
    # github.com/searxng/searxng, docs/dev/search_api.rst
    "searxng": _Service(
        "",
        "/search",
        _bearer,
        ("results",),
        ("content",),
        "publishedDate",
        parameters=lambda query: {"q": query.text, "format": "json"},
    ),
    # api-dashboard.search.brave.com/docs
    "brave": _Service(
        "https://api.search.brave.com",
        "/res/v1/web/search",
        lambda query: {"X-Subscription-Token": query.key},
        ("web", "results"),
        ("description",),
        "page_age",
        parameters=lambda query: {"q": query.text, "count": query.limit},
    ),
    # tavily-python 0.8.5, tavily.py
    "tavily": _Service(
        "https://api.tavily.com",
        "/search",
        _bearer,
        ("results",),
        ("content",),
        "published_date",
        body=lambda query: {"query": query.text, "max_results": query.limit},
    ),
    # exa-py 2.28.0, api.py
    "exa": _Service(
        "https://api.exa.ai",
        "/search",
        lambda query: {"x-api-key": query.key},
        ("results",),
        ("highlights", "summary", "text"),
        "publishedDate",
        body=lambda query: {
            "query": query.text,
            "numResults": query.limit,
            "contents": {"highlights": True},
        },
    ),
    # kimi-cli 1.51, tools/web/search.py; its base URL is the whole address
    "kimi": _Service(
        "https://api.kimi.com/coding/v1/search",
        "",
        _bearer,
        ("search_results",),
        ("snippet", "content"),
        "date",
        body=lambda query: {
            "text_query": query.text,
            "limit": query.limit,
            "enable_page_crawling": False,
            "timeout_seconds": 30,
        },
    ),
}


class SearchWebParams(BaseModel):
    """The words to search for, and the number of results."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=_QUERY_CHARS)
    limit: int = Field(default=5, ge=1, le=MAX_RESULTS)


class SearchWeb(TypedTool[SearchWebParams]):
    """Searches the web with the user's search service.

    Args:
        service: the service.
    """

    name = "SearchWeb"
    changes: Changes = "nothing"
    params = SearchWebParams

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._kind = _SERVICES[service.provider]
        self._base_url = (service.base_url or self._kind.base_url).rstrip("/")

    async def run(self, params: SearchWebParams, env: ToolEnv) -> ToolOutcome:
        """Ask the service; the user has chosen it, so no question is asked."""
        key = self._service.key
        if callable(key):
            key = await asyncio.to_thread(key)
        query = _SearchRequest(params.query.strip(), params.limit, key)
        try:
            async with asyncio.timeout(TOTAL_S):
                data = await self._answer(query)
        except TimeoutError as error:
            said = f"{host_of(self._base_url)} did not answer within {TOTAL_S:.0f} s."
            raise ToolProblem(said, brief="no answer") from error
        found = await asyncio.to_thread(self._results, data, query.limit)
        if not found:
            return ToolOutcome(message="Nothing was found.", brief="nothing found")
        listed = "\n\n".join(_listed(n, one) for n, one in enumerate(found, 1))
        output = prompt(
            "web_results",
            QUERY=json.dumps(query.text, ensure_ascii=False),
            MARK=secrets.token_hex(4),
            TEXT=without_our_tags(listed),
        )
        count = counted(len(found), "result")
        return ToolOutcome(output, f"{count}.", brief=count)

    async def _answer(self, query: _SearchRequest) -> bytes:
        """Return the body of the service's answer.

        Raises:
            ToolProblem: there is none; the text has no key.
        """
        service, kind, host = self._service, self._kind, host_of(self._base_url)
        secret = (query.key, *service.headers.values())
        own = {**service.headers, **kind.headers(query)}
        url = f"{self._base_url}{kind.path}"
        try:
            check_origin(self._base_url, query.key, service.headers)
            client = await asyncio.to_thread(
                lambda: RestrictedClient(self._base_url, own, connect_s=CONNECT_S, read_s=TOTAL_S)
            )
        except LLMError as error:
            raise ToolProblem(
                f"{error.message} {error.advice}".strip(), brief="not sent"
            ) from error
        async with client:
            headers = {"Accept": "application/json"}
            if kind.body is not None:
                request = client.build_request("POST", url, json=kind.body(query), headers=headers)
            else:
                asked = kind.parameters(query) if kind.parameters is not None else {}
                request = client.build_request("GET", url, params=asked, headers=headers)
            try:
                response = await client.send(request, stream=True)
                if response.status_code >= 300:
                    raise _refused(host, response.status_code, service.provider)
                return await _bounded(response, host)
            except httpx2.HTTPError as error:
                known = connection_error(host, error, secret, client.proxy)
                said = known.message if known else f"{host} closed the connection."
                raise ToolProblem(said, brief="unreachable") from error

    def _results(self, data: bytes, limit: int) -> list[SearchResult]:
        """Return the results in an answer; entries without a web address are left out.

        Raises:
            ToolProblem: it is not the answer of such a service.
        """
        host = host_of(self._base_url)
        try:
            place: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ToolProblem(
                f"{host} did not answer with JSON. Is it a {self._service.provider} service?",
                brief="broken answer",
            ) from error
        for key in self._kind.results:
            place = lenient_json.mapping(place).get(key)
        found: list[SearchResult] = []
        for entry in map(lenient_json.mapping, lenient_json.listing(place)):
            url = one_line(lenient_json.text(entry.get("url")))
            if not url.startswith(("https://", "http://")) or len(url) > _URL_CHARS:
                continue
            excerpt = next(filter(None, (_text(entry.get(key)) for key in self._kind.excerpts)), "")
            found.append(
                SearchResult(
                    one_line(lenient_json.text(entry.get("title"))[: 4 * _TITLE_CHARS])[
                        :_TITLE_CHARS
                    ],
                    url,
                    _shortened(excerpt),
                    one_line(lenient_json.text(entry.get(self._kind.date))[:40]),
                )
            )
            if len(found) == limit:
                break
        return found


def _refused(host: str, status: int, provider: str) -> ToolProblem:
    why = {
        401: "It does not accept the API key in [web.search].",
        403: "The instance does not offer JSON: its settings.yml must list json under search.formats."
        if provider == "searxng"
        else "The API key in [web.search] is wrong, or the service blocks kimi-tui.",
        402: "The account has no credit.",
        429: "Too many searches: wait a while.",
    }.get(status, "")
    return ToolProblem(f"{host} answered {status}. {why}".strip(), brief=str(status))


async def _bounded(response: httpx2.Response, host: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in response.aiter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_BYTES:
                raise ToolProblem(
                    f"{host} sent more data than kimi-tui accepts for search results.",
                    brief="broken answer",
                )
    finally:
        await response.aclose()
    return b"".join(pieces)


def _text(value: Any) -> str:
    """Return a text, or the texts of a list."""
    if isinstance(value, str):
        return value
    parts = [one for one in lenient_json.listing(value) if isinstance(one, str)]
    return " … ".join(parts[:5])


def _shortened(text: str) -> str:
    text = " ".join(clean(text[: 4 * _EXCERPT_CHARS]).split())
    return text if len(text) <= _EXCERPT_CHARS else f"{text[:_EXCERPT_CHARS]}…"


def _listed(number: int, one: SearchResult) -> str:
    date = f" ({one.date})" if one.date else ""
    return "\n".join(
        filter(None, (f"{number}. {one.title or one.url}{date}", one.url, one.excerpt))
    )
