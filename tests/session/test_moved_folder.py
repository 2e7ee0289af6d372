"""Sessions of a work folder that was renamed or moved: offered, taken along, gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.launch import NEWEST, CannotOpen, Launch
from kimi_tui.llm.message import user_message
from kimi_tui.session import moved_folder
from kimi_tui.session.errors import SessionLocked
from kimi_tui.session.metadata import SessionMetadata, read_state
from kimi_tui.session.moved_folder import former_folders, take_along
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.opening import open_session
from kimi_tui.tui.sessions.catalog import SessionCatalog


async def made(store: SessionStore, work_dir: Path, word: str = "hi") -> Session:
    """Return a closed session in which this message was sent."""
    session = store.create(work_dir)
    session.storage.make_folder(work_dir)
    await session.open()
    await session.context.checkpoint(True)
    await session.context.append([user_message(word)])
    await session.aclose()
    return session


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "data")


async def test_a_renamed_folder_is_known_again_by_its_inode(
    store: SessionStore, tmp_path: Path
) -> None:
    first = await made(store, tmp_path / "one", "first")
    second = await made(store, tmp_path / "one", "second")
    await made(store, tmp_path / "beside")
    assert former_folders(store, tmp_path / "beside") == []
    new = (tmp_path / "one").rename(tmp_path / "deep").rename(tmp_path / "beside" / "two")
    (former,) = former_folders(store, new)
    assert (former.path, former.is_same) == (str(tmp_path / "one"), True)
    assert {folder.name for folder in former.sessions} == {first.id, second.id}
    moved = take_along(store, former, new)
    assert {one.id for one in moved} == {one.id for one in store.list(new)}
    state = read_state(store.find(first.id).dir)
    assert (state.work_dir, state.moved_from) == (str(new), str(tmp_path / "one"))
    assert former_folders(store, new) == []
    assert not store.bucket(tmp_path / "one").exists()


async def test_a_session_without_a_note_comes_along_and_only_one_of_a_folder_is_read(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [await made(store, tmp_path / "one", word) for word in "abc"]
    new = (tmp_path / "one").rename(tmp_path / "two")
    newest = store.newest_first()[0]
    read: list[Path] = []

    def counted(folder: Path) -> SessionMetadata:
        read.append(folder)
        return read_state(folder)

    monkeypatch.setattr(moved_folder, "read_state", counted)
    (former,) = former_folders(store, new)
    assert read == [newest]
    for one in sessions:
        if one.dir != newest:
            (one.dir / "state.json").unlink()
    assert len(take_along(store, former, new)) == len(sessions)
    assert {read_state(one.dir).moved_from for one in store.list(new)} == {str(tmp_path / "one")}


async def test_a_copy_is_known_by_its_name_and_an_old_session_by_its_place(
    store: SessionStore, tmp_path: Path
) -> None:
    old = await made(store, tmp_path / "a" / "app")
    # Another disk gives another inode.
    elsewhere = tmp_path / "b" / "app"
    elsewhere.mkdir(parents=True)
    renamed = tmp_path / "a" / "renamed"
    renamed.mkdir()
    assert former_folders(store, elsewhere) == []  # the folder is there still
    (tmp_path / "a" / "app").rmdir()
    assert [one.is_same for one in former_folders(store, elsewhere)] == [False]
    # Its inode is known, and it is not that of the folder beside it.
    assert former_folders(store, renamed) == []
    state = old.dir / "state.json"
    state.write_text(state.read_text().replace('"folder_inode"', '"folder_inode_of_old"'))
    assert [one.path for one in former_folders(store, renamed)] == [str(tmp_path / "a" / "app")]


async def test_what_is_open_elsewhere_stays_where_it_is(
    store: SessionStore, tmp_path: Path
) -> None:
    session = await made(store, tmp_path / "one")
    new = (tmp_path / "one").rename(tmp_path / "two")
    (former,) = former_folders(store, new)
    await session.open()
    with pytest.raises(SessionLocked):
        take_along(store, former, new)
    await session.aclose()
    # Killed after the move, before the note.
    target = store.bucket(new) / session.id
    target.parent.mkdir(parents=True)
    session.dir.rename(target)
    assert store.newest(new) is not None
    assert store.find(session.id, new).work_dir == new


async def test_the_sessions_screen_lists_them_and_says_so(
    store: SessionStore, tmp_path: Path
) -> None:
    await made(store, tmp_path / "one", "said there")
    new = (tmp_path / "one").rename(tmp_path / "two")
    catalog = SessionCatalog(store.root, new)
    (row,) = catalog.described(catalog.folders(everywhere=False))
    assert row.title == "said there"
    assert row.facts.startswith(
        "its folder was renamed or moved; Enter continues it in this folder"
    )
    new.rename(tmp_path / "elsewhere")
    (tmp_path / "other" / "one").mkdir(parents=True)
    catalog = SessionCatalog(store.root, tmp_path / "other" / "one")
    (row,) = catalog.described(catalog.folders(everywhere=False))
    assert row.facts.startswith("its folder no longer exists; Enter continues it in this folder")
    catalog = SessionCatalog(store.root, tmp_path / "elsewhere" / "deep")
    (row,) = catalog.described(
        [*catalog.folders(everywhere=False), *catalog.folders(everywhere=True)]
    )
    assert row.facts.startswith("its folder no longer exists")


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_session_whose_folder_is_there_stays_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "data"))
    session = await made(SessionStore(tmp_path / "data"), tmp_path / "one", "said there")
    other = tmp_path / "other"
    other.mkdir()
    choice = ModelChoice("server", "http://127.0.0.1:9/v1", "m", window=9000)
    launch = Launch(other, tmp_path / "config.toml", choice=choice, resume=session.id)
    opened = await open_session(launch._replace(work_dir_given=is_named))
    try:
        assert opened.folder == tmp_path / "one"
        assert session.dir.is_dir()
    finally:
        await opened.soul.aclose()


async def test_the_app_goes_on_with_the_newest_or_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "data"))
    store = SessionStore(tmp_path / "data")
    session = await made(store, tmp_path / "one", "said there")
    new = (tmp_path / "one").rename(tmp_path / "two")
    choice = ModelChoice("server", "http://127.0.0.1:9/v1", "m", window=9000)
    launch = Launch(new, tmp_path / "config.toml", choice=choice, resume=NEWEST)
    other = tmp_path / "other"
    other.mkdir()
    # From an unrelated folder the session is opened by its name.
    with pytest.raises(CannotOpen, match="--work-dir FOLDER") as refused:
        await open_session(launch._replace(work_dir=other, resume=session.id))
    assert "no longer exists" in str(refused.value)
    opened = await open_session(launch)
    try:
        assert opened.folder == new
        assert any("and 1 session came with it." in notice for notice in opened.notices)
    finally:
        await opened.soul.aclose()
    new.rename(tmp_path / "three")
    opened = await open_session(
        launch._replace(work_dir=other, work_dir_given=True, resume=session.id)
    )
    try:
        assert opened.folder == other
    finally:
        await opened.soul.aclose()
