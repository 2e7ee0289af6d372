"""The `openai` library as it carries requests here: over our own HTTP client, imported late and only in part.

It does transport, authentication and connection pooling. What it would take from the environment into a request, or tell
of this machine, is left out. It takes half a second to import: `preload` does that in a thread, after the first paint.
Most of it are types of what is sent and answered, packages that run only when a name is first asked of them:
`importlib.util.LazyLoader` would run them already where one of their modules is imported.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, cast

from kimi_tui.llm.base_url import NO_HEADERS, check_origin

if TYPE_CHECKING:
    import httpx2
    from openai import Omit

_NO_KEY = "none"
_ABOUT_THE_MACHINE = (
    "Lang",
    "Package-Version",
    "OS",
    "Arch",
    "Runtime",
    "Runtime-Version",
    "Async",
)
_SHAPES = (
    "openai.types",
    *(f"openai.types.{name}" for name in ("chat", "graders", "responses", "shared")),
)
"""What is sent and answered, as the library types it: an eighth of the memory, for what is JSON here."""
_importing = threading.Lock()


class OpenAIClient:
    """Carries requests to one origin with one key. Its constructor imports the HTTP library: call it in a thread.

    Args:
        base_url: of the API.
        api_key: sent to this origin alone; empty for none.
        headers: the user's own, sent as the key is.
        read_s: seconds of silence in an answer.

    Attributes:
        failures: makes the errors for failed connections.

    Raises:
        LLMError: the base URL is none, or the key would cross a network unencrypted.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        read_s: float,
    ) -> None:
        host = check_origin(base_url, api_key, headers)
        preload()
        from openai import AsyncOpenAI

        from kimi_tui.llm.http_client import (
            CONNECT_S,
            USER_AGENT,
            NetworkFailures,
            RestrictedClient,
        )

        self._api_key = api_key
        self.failures = NetworkFailures(host, (api_key, *headers.values()), read_s)
        self._client = AsyncOpenAI(
            api_key=api_key or _NO_KEY,
            base_url=base_url,
            # What is not named here, the library looks up in the environment.
            organization="",
            project="",
            admin_api_key="",
            webhook_secret="",
            max_retries=0,
            http_client=RestrictedClient(base_url, headers, connect_s=CONNECT_S, read_s=read_s),
            default_headers={"User-Agent": USER_AGENT},
        )

    async def post(self, body: bytes) -> httpx2.Response:
        """The response to one request: its body is a stream, or of a refusal has been read.

        Raises:
            LLMError: the server could not be reached, or did not answer in time.
        """
        import httpx2
        import openai

        try:
            response = await self._client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                content=body,
                stream=True,
                stream_cls=openai.AsyncStream[object],
                options={"headers": _request_headers(self._api_key)},
            )
            return cast("httpx2.Response", response)
        except openai.APITimeoutError as error:
            raise self.failures.timeout(error) from error
        except openai.APIConnectionError as error:
            raise self.failures.unreachable(error) from error
        except openai.APIStatusError as error:
            return error.response

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.close()


def preload() -> None:
    """Import what a request needs. Half a second of CPU: for a thread, after the first paint."""
    with _importing:
        # OPENAI_LOG makes the library write to the terminal as soon as it is imported, unless the log has a handler.
        # The variable itself stays as it is: other threads read the environment meanwhile.
        root, silent = logging.getLogger(), logging.NullHandler()
        root.addHandler(silent)
        try:
            import tenacity

            with put_off(*_SHAPES):
                from openai import AsyncOpenAI

            from kimi_tui.llm import http_client
        finally:
            root.removeHandler(silent)
        logging.getLogger("openai").setLevel(logging.WARNING)
        del tenacity, AsyncOpenAI, http_client


def _request_headers(api_key: str) -> dict[str, str | Omit]:
    """The headers of a request: what we take, and nothing about this machine or from its environment."""
    from openai import Omit

    from kimi_tui.llm.http_client import USER_AGENT

    # The library takes others out of the environment into every request.
    custom = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    headers: dict[str, str | Omit] = {
        line.partition(":")[0].strip(): Omit() for line in custom if ":" in line
    }
    headers |= {f"X-Stainless-{name}": Omit() for name in _ABOUT_THE_MACHINE}
    headers |= {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
    headers["User-Agent"] = USER_AGENT
    headers["Accept"] = "text/event-stream, application/json"
    headers["Authorization"] = f"Bearer {api_key}" if api_key else Omit()
    return headers


@contextmanager
def put_off(*names: str) -> Generator[None]:
    """Packages of these names that are found in this context run when a name is first asked of them. What they hold is theirs
    all along, and their modules are imported one by one, by who wants one."""
    finder = _PutOffFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _PutOffFinder(MetaPathFinder):
    """Finds packages as the path finder does, for `_PutOffLoader`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package, if it is one of those that wait."""
        found = PathFinder.find_spec(fullname, path) if fullname in self._names else None
        if found is not None and found.loader is not None:
            found.loader = _PutOffLoader(found.loader)
        return found


class _PutOffLoader(Loader):
    """Makes a module whose own loader runs later."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """One in which there is nothing yet."""
        return _PutOff(spec.name, self._loader)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is run when something of it is used."""


class _PutOff(ModuleType):
    """Runs when it is asked for a name that it does not have."""

    def __init__(self, name: str, loader: Loader) -> None:
        super().__init__(name)
        self._loader: Loader | None = loader
        self._running = threading.RLock()

    def __getattr__(self, name: str) -> object:
        if not name.startswith("__"):
            with self._running:
                loader, self._loader = self._loader, None
                if loader is not None:
                    loader.exec_module(self)
        return super().__getattribute__(name)
