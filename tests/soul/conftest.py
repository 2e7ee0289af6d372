"""Fixtures of the engine's tests."""

from __future__ import annotations

import os

import pytest

from kimi_tui.llm.dialects import learned_quirks


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("OPENAI_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _no_quirks() -> None:
    """Forget the quirks that a server at the same port showed in an earlier test."""
    learned_quirks.clear()
