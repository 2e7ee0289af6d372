"""Tests that need an inotify instance are skipped where none is free: all programs of a user share a small number of them."""

from __future__ import annotations

import pytest

from kimi_tui.workspace.inotify import Inotify


def need_an_instance() -> None:
    """Skip the running test if the system gives no inotify instance now."""
    try:
        Inotify().close()
    except OSError as error:
        pytest.skip(f"no inotify instance is free: {error}")
