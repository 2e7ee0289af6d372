"""Which model is in use, for everyone who must ask at the time and not at the start."""

from __future__ import annotations

from kimi_tui.llm.provider import ChatProvider, ModelInfo


class ProviderSlot:
    """Holds the provider; None while no model is set."""

    def __init__(self, provider: ChatProvider | None) -> None:
        self.current = provider

    def exchange(self, provider: ChatProvider | None) -> ChatProvider | None:
        """Put in another one; returns the one before."""
        before, self.current = self.current, provider
        return before

    def info(self) -> ModelInfo | None:
        """What is known about the model now."""
        return self.current.info if self.current is not None else None
