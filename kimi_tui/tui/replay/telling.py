"""Reaches the reading of a session from the screen, without importing the engine before the first paint."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from kimi_tui.launch import Launch

if TYPE_CHECKING:
    from kimi_tui.session.session import Session
    from kimi_tui.tui.replay.source import Told


def told_by(launch: Launch, session: Session | None) -> Told:
    """What a session tells (None: the one that the command line names). Imports the engine: call it in a thread.

    Raises:
        SessionNotFound: there is none.
    """
    source = import_module("kimi_tui.tui.replay.source")
    find: Callable[[Launch], Session] = source.find
    read: Callable[[Session], Told] = source.read
    return read(session if session is not None else find(launch))


def is_ours(error: Exception) -> bool:
    """Whether an error's text is meant for the person."""
    return type(error).__module__.startswith("kimi_tui.")
