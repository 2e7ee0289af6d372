"""Texts that are kept without an open session."""

from __future__ import annotations

from pathlib import Path

from kimi_tui.session.kept_text import keep_for_next_start
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.store import SessionStore
from kimi_tui.session.unsent import DRAFT, WAITING, read_json, read_waiting


def stored(store: SessionStore, work: Path, name: str) -> Path:
    session = store.create(work).dir.with_name(name)
    session.mkdir(parents=True)
    (session / "context.jsonl").write_text(
        '{"role": "_checkpoint", "id": 0}\n{"role": "user", "content": "hello"}\n'
    )
    return session


def test_they_go_to_the_session_that_was_to_be_continued(tmp_path: Path) -> None:
    store, work = SessionStore(tmp_path), tmp_path / "w"
    older = stored(store, work, "a" * 36)
    chip = {"[Pasted 2 lines]": "one\ntwo"}
    for session_id in ("", "aaaa"):
        assert keep_for_next_start(tmp_path, work, session_id, "draft", {}, ["sent"]) == older
    # The draft that was there is kept, too.
    assert read_json(older / DRAFT) == {"text": "draft", "pastes": {}}
    assert read_waiting(older) == ["sent", "sent", "draft"]
    keep_for_next_start(tmp_path, work, "", "see [Pasted 2 lines]", chip, [])
    assert read_waiting(older)[3:] == ["see one\ntwo"]
    lock = SessionLock(older)
    lock.acquire()
    try:
        other = keep_for_next_start(tmp_path, work, "", "more", chip, ["said"])
    finally:
        lock.release()
    assert other != older
    assert read_json(other / DRAFT) == {"text": "more", "pastes": chip}
    assert read_waiting(other) == ["said"]
    assert "more" not in read_waiting(older)


def test_a_new_session_takes_them_over_and_no_list_shows_them(tmp_path: Path) -> None:
    store, work = SessionStore(tmp_path), tmp_path / "w"
    for session_id in (None, "", "unknown"):
        kept = keep_for_next_start(tmp_path, work, session_id, "draft", {}, ["sent"])
        assert not store.list(work)
        new = store.create(work)
        new.dir.mkdir(parents=True)
        assert store.take_over(new, DRAFT, WAITING)
        assert not kept.exists()
        assert read_waiting(new.dir) == ["sent"]
        assert read_json(new.dir / DRAFT) == {"text": "draft", "pastes": {}}
