"""The sessions screen: what it lists and finds, what is done with a session, and that nothing is lost by it."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.pictures import Pictures
from support.screens import Desk, desk
from support.stored_sessions import store_session

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.launch import Launch
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.store import SessionStore
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.keyboard import LetterRun, SeenQuestion
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.sessions.catalog import SessionCatalog, SessionRow
from kimi_tui.tui.sessions.screen import SessionsScreen

URL = "http://127.0.0.1:9/v1"
BROKEN = "Fields with quotes inside break the import"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sessions of two folders, one of them put away."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    work, other = tmp_path / "importer", tmp_path / "site"
    work.mkdir()
    other.mkdir()
    # Days long past are dates, which no test comes near the end of.
    quoted = store_session(
        tmp_path,
        work,
        *(BROKEN, "I add a check.", "And the tests?", "They pass now: 14 of them."),
        at=time.time() - 10,
        custom_title="Fix quoted fields",
    )
    store_session(tmp_path, work, "Port the tests", "Done.", at=1.2e9, forked_from=quoted)
    store_session(tmp_path, work, "Why does CI wait for a lock?", at=1.1e9)
    store_session(tmp_path, work, "An old idea", "No.", at=1.05e9, archived=True)
    store_session(tmp_path, other, "Release the site", "Yes.", at=1e9)
    return tmp_path


@asynccontextmanager
async def listed(
    home: Path, size: tuple[int, int] = (120, 40), theme: str = "dark"
) -> AsyncIterator[tuple[Desk, SessionsScreen]]:
    """`kimi-tui --resume`."""
    launch = Launch(
        work_dir=home / "importer",
        config_path=home / "config.toml",
        config=Config(theme=theme, reduced_motion=True),
        choice=ModelChoice("test", URL, "kimi-test", window=32_000),
        picks=True,
    )
    app = KimiApp(launch)
    async with app.run_test(size=size) as pilot:
        one = Desk(app, pilot)
        await one.sees("Fix quoted fields")
        screen = app.screen
        assert isinstance(screen, SessionsScreen)
        yield one, screen


def state(home: Path, row: SessionRow | None) -> dict[str, object]:
    """Return a session's title, and whether it is archived."""
    assert row is not None
    return json.loads((row.folder / "state.json").read_text())


def folder_of(home: Path, words: str) -> Path:
    """Return the session of which its state holds these words."""
    (found,) = (f.parent for f in home.glob("sessions/*/*/state.json") if words in f.read_text())
    return found


async def test_found_by_what_was_said_and_gone_on_with(home: Path) -> None:
    async with listed(home) as (one, _):
        await one.sees("4 here, 5 in all")
        seen = await one.sees("They pass now: 14 of them.")
        assert "Release the site" not in seen
        assert "An old idea" not in seen
        assert "├ Port the tests" in seen
        await one.pilot.press("tab")
        assert "~/site" in await one.sees("Release the site")
        await one.pilot.press("tab", "v")
        assert "archived" in await one.sees("An old idea")
        # The search finds a text in the middle of a session that is not in its title.
        await one.pilot.press("v", "slash", *"BREAK")
        await one.sees("1 found")
        await one.sees("Fix quoted fields")
        await one.pilot.press("enter")
        await one.until(lambda: isinstance(one.app.screen, MainScreen))
        await one.ready()
        assert one.screen.conversation.state.title == "Fix quoted fields"
        await one.screen.conversation.close()


async def test_renamed_put_away_and_thrown_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listed(home) as (one, screen):
        await one.pilot.press("down")
        await one.until(lambda: screen.list.chosen is not None)
        row = screen.list.chosen
        assert row is not None
        await one.pilot.press("n")
        await one.pilot.press(*"Tests", "enter")
        await one.sees("The session is now called Tests.")
        assert state(home, row)["custom_title"] == "Tests"
        await one.pilot.press("a")
        await one.sees("v shows archived sessions")
        assert state(home, row)["archived"] is True
        assert row not in (screen.list.chosen,)
        await one.pilot.press("v", "up", "up", "down", "a")
        await one.sees("in the list again")
        assert state(home, row)["archived"] is False
        # Another key than y keeps it.
        await one.pilot.press("d")
        assert "trash for 30 days" in await one.sees("Delete Tests?")
        await one.pilot.press("escape", "y")
        assert row.folder.exists()
        # n is a no, and not the key that renames.
        await one.pilot.press("d")
        await one.sees("Delete Tests?")
        await one.pilot.press("n")
        await one.until(lambda: "Delete Tests?" not in one.text())
        assert "Rename" not in one.text().split("Enter continue")[0]
        assert row.folder.exists()
        await one.pilot.press("d")
        await one.sees("Delete Tests?")
        await one.pilot.press("enter", "y")
        await one.until(lambda: "Delete Tests?" not in one.text())
        assert one.app.screen is screen
        assert row.folder.exists()
        # A key that was typed before the question could be seen is no answer.
        await one.pilot.press("d", "y")
        await one.sees("Delete Tests?  The key was pressed too early; press it again.")
        assert row.folder.exists()
        monkeypatch.setattr(SeenQuestion, "QUIET_S", 60.0)
        await one.pilot.press("escape", "d")
        await one.sees("Delete Tests?")
        await one.pilot.press("y")
        assert row.folder.exists()
        monkeypatch.setattr(SeenQuestion, "QUIET_S", 0.0)
        await one.pilot.press("escape", "d")
        await one.until(lambda: screen.seen.is_open)
        # Nor is a word that begins with the letter.
        with monkeypatch.context() as slow:
            slow.setattr(LetterRun, "DEBOUNCE_S", 60.0)
            await one.pilot.press("y", "e", "s")
        assert row.folder.exists()
        monkeypatch.setattr(LetterRun, "DEBOUNCE_S", 0.0)
        await one.pilot.press("y")
        await one.sees("Deleted Tests.")
        assert not row.folder.exists()
        assert "Tests" not in [left.title for left in screen.list.rows]
        back = SessionStore(home).restore(row.id[:12])
        assert back.dir == row.folder
        assert row.folder.exists()


async def test_one_that_is_open_elsewhere_is_refused(home: Path) -> None:
    lock = SessionLock(folder_of(home, "quoted"))
    lock.acquire()
    try:
        async with listed(home) as (one, screen):
            await one.sees("open elsewhere")
            await one.pilot.press("enter")
            assert "Press f to continue in a copy" in await one.sees(
                "This session is open in process"
            )
            # The notice comes before a name is typed, not after.
            screen.tell("")
            await one.pilot.press("n")
            assert "Press f to continue in a copy" in await one.sees(
                "This session is open in process"
            )
            assert "Rename" not in one.text()
            assert one.app.screen is screen
            await one.pilot.press("f")
            await one.until(lambda: isinstance(one.app.screen, MainScreen))
            await one.sees("This is a fork")
            await one.ready()
            await one.screen.conversation.close()
    finally:
        lock.release()


async def test_over_a_running_session(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, work=home / "importer") as one:
        server.script(say("Hello."))
        await one.ready()
        # The session that is open is none yet to choose: it is not counted, neither here nor among all.
        await one.say("/sessions")
        await one.sees("4 here, 5 in all")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        await one.say("Say hello, please")
        await one.idle()
        own = one.screen.conversation.soul.session.id  # pyright: ignore[reportOptionalMemberAccess]
        await one.say("/sessions")
        await one.sees("● Say hello, please")
        screen = one.app.screen
        assert isinstance(screen, SessionsScreen)
        await one.pilot.press("d")
        await one.sees("This is the session you are in.")
        await one.pilot.press("n", *"Greeting", "enter")
        await one.sees("● Greeting")
        await one.until(lambda: one.screen.conversation.state.title == "Greeting")
        await one.pilot.press("enter")
        await one.until(lambda: one.app.screen is one.screen)
        await one.say("/sessions")
        await one.sees("● Greeting")
        await one.pilot.press("down", "enter")
        await one.until(
            lambda: (
                isinstance(one.app.screen, MainScreen)
                and one.screen.conversation.state.title == "Fix quoted fields"
            )
        )
        await one.ready()
        assert folder_of(home, "Greeting").name == own


@pytest.mark.exhaustive
async def test_the_open_session_keeps_its_title_where_the_disk_refuses_another_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with ChatServer() as server, desk(home, server.base_url, work=home / "importer") as one:
        server.script(say("Hello."))
        await one.ready()
        await one.say("Say hello, please")
        await one.idle()
        await one.say("/sessions")
        await one.sees("● Say hello, please")
        with monkeypatch.context() as full:
            full.setattr("kimi_tui.session.session.write_state", refuse)
            await one.pilot.press("n", "ctrl+u", *"Greeting", "enter")
            await one.sees("Could not save the session's title")
        assert "is now called" not in one.text()
        await one.sees("● Say hello, please")
        assert one.screen.conversation.state.title == "Say hello, please"


@pytest.mark.sample
@pytest.mark.parametrize(
    ("size", "theme"),
    [((120, 40), "dark"), ((80, 24), "light"), ((60, 20), "dark")],
    ids=["120-dark", "80-light", "60-dark"],
)
async def test_looks(home: Path, size: tuple[int, int], theme: str, picture: Pictures) -> None:
    async with listed(home, size, theme) as (one, _):
        await one.pilot.press("tab")
        await one.sees("Release the site")
        if size[0] >= 80:
            await one.sees("They pass now")
            await one.sees("And the tests?")
        if size[0] == 60:
            await one.pilot.press("d")
            await one.sees("Delete Fix")
            await one.sees("days.")
        picture(one.app)


def test_a_session_names_no_other_folder(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    name = store_session(tmp_path, work, "Hello")
    store_session(tmp_path, other, "Elsewhere", at=1.1e9)
    path = SessionStore(tmp_path).bucket(work) / name / "state.json"
    said = {"work_dir": str(other), "forked_from": "\x1b[8m\x9dab"}
    path.write_text(json.dumps({**json.loads(path.read_text()), **said}))
    catalog = SessionCatalog(tmp_path, work)
    rows = catalog.described(catalog.folders(everywhere=True))
    assert [(row.title, row.work_dir) for row in rows] == [
        ("Elsewhere", str(other)),
        ("Hello", str(work)),
    ]
    assert all(row.forked_from.isprintable() for row in rows)
