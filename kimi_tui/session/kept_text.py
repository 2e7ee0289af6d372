"""Unsent texts that are kept without an open session, because the program ended before there was one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kimi_tui.session.errors import SessionLocked, SessionNotFound, StorageTrouble
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.session.unsent import (
    DRAFT,
    WAITING,
    finish_writing,
    read_waiting,
    write_draft_text,
    write_waiting,
)


def keep_for_next_start(
    root: Path,
    work_dir: Path,
    session_id: str | None,
    draft: str,
    pastes: Mapping[str, str],
    waiting: Sequence[str],
) -> Path:
    """Store unsent texts, which the next start puts into the prompt; return the folder of the session that has them. It blocks.

    They go to the session that was to be continued. If there is none, or another program has it open, they go to a new one
    without messages, from which the next new session of the work folder takes them over.

    Args:
        root: the data folder of the sessions.
        work_dir: the work folder.
        session_id: the session that was to be continued: its id, or empty for the newest of the work folder; None for none.
        draft: the text of the prompt; empty for none.
        pastes: the pasted texts behind its chips.
        waiting: the messages that were not sent, oldest first.

    Raises:
        OSError: they could not be stored.
    """
    store = SessionStore(root)
    if session_id is not None:
        with contextlib.suppress(SessionNotFound, SessionLocked, StorageTrouble):
            found = store.find(session_id, work_dir) if session_id else store.newest(work_dir)
            if found is not None:
                return _keep_in(found, draft, pastes, waiting)
    session = store.create(work_dir)
    store.storage.make_folder(session.dir)
    return _keep_in(session, draft, pastes, waiting)


def _keep_in(
    session: Session, draft: str, pastes: Mapping[str, str], waiting: Sequence[str]
) -> Path:
    """Add texts to what a session keeps already; return its folder.

    Raises:
        SessionLocked: another process has it open.
        OSError: they could not be stored.
    """
    session.lock.acquire()
    try:
        finish_writing(session.dir / DRAFT, session.dir / WAITING)
        texts = [*read_waiting(session.dir), *waiting]
        if draft and os.path.lexists(session.dir / DRAFT):
            # The draft of an earlier end stays as it is.
            for chip, pasted in pastes.items():
                draft = draft.replace(chip, pasted, 1)
            texts.append(draft)
        elif draft:
            write_draft_text(session.dir, draft, pastes)
        if texts:
            write_waiting(session.dir, texts)
    finally:
        session.lock.release()
    return session.dir
