"""`AgentModel`: stands for the model of an external agent where this program's own would be, so that its name and window are shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

from kimi_tui.llm.errors import LLMNotSupported
from kimi_tui.llm.provider import Capability, ChatProvider, ModelInfo, StreamItem


class AgentModel(ChatProvider):
    """The model of an agent, which only the agent can ask.

    Args:
        title: the name of the agent, which is the model's as long as the agent does not name it.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._info = ModelInfo(
            title, title, 0, window_estimated=True, capabilities=frozenset({"tools", "image_in"})
        )
        self.on_prepare: Callable[[], Awaitable[tuple[str, ...]]] | None = None

    @property
    def info(self) -> ModelInfo:
        """The known facts about the model."""
        return self._info

    def learn(
        self, *, name: str | None = None, window: int | None = None, sees: bool | None = None
    ) -> None:
        """Take over the facts that the agent tells of its model.

        Args:
            name: the name of its model.
            window: the size of the context in tokens.
            sees: whether prompts may have images.
        """
        if name is not None:
            self._info = replace(self._info, model=name or self._title)
        if window is not None:
            self._info = replace(self._info, window=window, window_estimated=window <= 0)
        if sees is not None:
            able: set[Capability] = {"tools", "image_in"} if sees else {"tools"}
            self._info = replace(self._info, capabilities=frozenset(able))

    async def generate(self, *_: object, **_options: object) -> AsyncGenerator[StreamItem]:
        """Refuse: the program has no way to ask the model itself.

        Raises:
            LLMNotSupported: always.
        """
        raise LLMNotSupported(
            f"This needs a model, and kimi-tui has no access to the model of {self._title}."
        )
        yield

    async def aclose(self) -> None:
        """Nothing is open here."""
