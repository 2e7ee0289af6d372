"""The session that a command is about, and how it is opened: the engine without a model, and closed in any case."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from kimi_tui.logging_setup import start_logging
from kimi_tui.places import data_dir, log_file
from kimi_tui.session.errors import SessionNotFound
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.kimi_soul import KimiSoul
from kimi_tui.soul.runtime import open_soul


def chosen_session(name: str | None) -> Session:
    """The session of that id, or the newest of the current folder; not yet opened.

    Raises:
        SessionNotFound: there is none; the text says what to do.
    """
    store = SessionStore(data_dir())
    here = Path.cwd()
    if name is not None:
        return store.find(name, here)
    newest = store.newest(here)
    if newest is None:
        raise SessionNotFound("There is no session of this folder; choose one with --session ID.")
    return newest


@contextlib.asynccontextmanager
async def opened(session: Session) -> AsyncGenerator[Session]:
    """The session, open.

    Raises:
        SessionHeld: another process has it open.
        StorageTrouble: it cannot be opened at all.
    """
    await session.open()
    try:
        yield session
    finally:
        await session.aclose()


@contextlib.asynccontextmanager
async def engine(session: Session) -> AsyncGenerator[KimiSoul]:
    """The engine on the session, with no model: operations only. What they do is recorded as in the app.

    Raises:
        SessionHeld: another process has it open.
        StorageTrouble: it cannot be opened at all.
    """
    start_logging(log_file())
    soul = await open_soul(session=session, provider=None, follow_files=False)
    try:
        yield soul
    finally:
        await soul.aclose()
