"""Cycles are not looked for while a session is read; behind a long one its objects are looked at no more."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from kimi_tui.tui.collector import LONG, Collector


@pytest.fixture(autouse=True)
def as_it_was() -> Generator[None]:
    """Leave Python's collector as it was, but for what others froze."""
    threshold, enabled = gc.get_threshold(), gc.isenabled()
    gc.unfreeze()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()
    gc.unfreeze()


def test_nothing_is_collected_while_a_session_is_read() -> None:
    collector = Collector()
    collector.hold()
    collector.begin()
    assert not gc.isenabled()
    collector.release(1)
    assert gc.isenabled()
    assert not gc.get_freeze_count()


def test_what_a_long_history_left_is_looked_at_again_with_the_next_one() -> None:
    collector = Collector()
    collector.begin()
    collector.hold()
    collector.release(LONG)
    assert gc.isenabled()
    assert gc.get_freeze_count()
    collector.hold()
    assert not gc.get_freeze_count()
    collector.release()
    assert gc.isenabled()


def test_what_was_not_held_is_not_released() -> None:
    gc.disable()
    Collector().release(LONG)
    assert not gc.isenabled()
    assert not gc.get_freeze_count()
