"""Nothing that was said is lost: disks that refuse, leaving with something unsaved, titles, statistics, two at once."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say, stall
from support.screens import Desk, desk

from kimi_tui.filesystem import Storage
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.record import read_records
from kimi_tui.soul.usage import statistics, with_journal
from kimi_tui.tui.dialogs.text_screen import TextScreen
from kimi_tui.tui.formatting import statistics_pairs
from kimi_tui.workspace.tracker import Tracker


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


class Disk:
    """The disk, which refuses with `error` while that is set."""

    error = 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that can be made to refuse."""
    disk = Disk()
    write, opened = Storage.write, Storage.open

    def refusing(self: Storage, fd: int, data: bytes | memoryview) -> int:
        if disk.error:
            raise OSError(disk.error, os.strerror(disk.error))
        return write(self, fd, data)

    def not_opening(self: Storage, path: Path, flags: int) -> int:
        if disk.error in (errno.EACCES, errno.EROFS) and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(disk.error, os.strerror(disk.error))
        return opened(self, path, flags)

    monkeypatch.setattr(Storage, "write", refusing)
    monkeypatch.setattr(Storage, "open", not_opening)
    return disk


def folder_of(one: Desk) -> Path:
    soul = one.screen.conversation.soul
    assert soul is not None
    return soul.session.dir


async def turn(one: Desk, text: str, answer: str) -> None:
    await one.say(text)
    await one.sees(answer)
    await one.idle()


async def said(folder: Path) -> list[str]:
    """Return the user's messages in the session's files."""
    session = Session(folder, Path("/w"))
    assert not (await session.open()).sentences()
    texts = [m.text for m in session.context.messages if m.role == "user"]
    await session.aclose()
    return [text for text in texts if not text.startswith("<")]


@pytest.mark.exhaustive
async def test_a_disk_that_refuses_is_told_once_and_made_up_for(home: Path, disk: Disk) -> None:
    n_turns = 0

    async def another_turn(one: Desk) -> None:
        nonlocal n_turns
        await turn(one, f"Message {n_turns}", f"Answer {n_turns}.")
        n_turns += 1

    async with ChatServer() as server:
        server.script(*(say(f"Answer {n}.") for n in range(10)))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await another_turn(one)
            for error in (errno.ENOSPC, errno.EROFS, errno.EACCES):
                disk.error = error
                await another_turn(one)
                await another_turn(one)
                shown = await one.sees(os.strerror(error))
                assert shown.count("Could not save the conversation") == 1
                folder = folder_of(one)
                disk.error = 0
                await another_turn(one)
                shown = await one.sees("The conversation can be saved again.")
                assert "Could not save" not in shown
        assert await said(folder) == [f"Message {n}" for n in range(n_turns)]
        async with desk(home, server.base_url, size=(120, 60), resume="newest") as again:
            await again.ready()
            for n in range(n_turns):
                assert f"Answer {n}." in again.text()


@pytest.mark.exhaustive
async def test_a_folder_that_is_deleted_is_made_again(home: Path) -> None:
    async with ChatServer() as server:
        server.script(say("Answer 0."), say("Answer 1."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await turn(one, "First", "Answer 0.")
            folder = folder_of(one)
            shutil.rmtree(folder)
            await turn(one, "Second", "Answer 1.")
        assert await said(folder) == ["First", "Second"]


async def test_leaving_with_something_unsaved_is_told_and_needs_to_be_meant(
    home: Path, disk: Disk
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Answer 0."))
        await one.ready()
        disk.error = errno.ENOSPC
        await turn(one, "First", "Answer 0.")
        await one.pilot.press("ctrl+q")
        await one.sees("2 messages are not saved.")
        assert one.app.return_code is None
        await one.pilot.press("ctrl+q")
        await one.until(lambda: one.app.return_code is not None)
        assert one.app.return_code == 1
        assert "2 messages are not saved" in one.app.exit_message


async def test_what_the_last_sync_could_not_do_is_told_once_the_screen_is_gone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(tracker: Tracker) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Answer 0."))
        await one.ready()
        await turn(one, "First", "Answer 0.")
        monkeypatch.setattr(Tracker, "sync", refused)
        await one.pilot.press("ctrl+q")
        await one.until(lambda: one.app.return_code is not None)
        assert one.app.return_code == 1
        assert "The files cannot be saved for a rewind: Input/output error." in one.app.exit_message
        assert one.app.resume_hint


@pytest.mark.exhaustive
async def test_what_can_be_saved_by_then_is_no_reason_to_stay(home: Path, disk: Disk) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Answer 0."))
        await one.ready()
        disk.error = errno.ENOSPC
        await turn(one, "First", "Answer 0.")
        folder = folder_of(one)
        disk.error = 0
        await one.pilot.press("ctrl+q")
        await one.until(lambda: one.app.return_code == 0)
        assert one.app.exit_message == ""
        assert await said(folder) == ["First"]


@pytest.mark.exhaustive
async def test_a_new_session_does_not_drop_what_is_unsaved(home: Path, disk: Disk) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Answer 0."))
        await one.ready()
        disk.error = errno.ENOSPC
        await turn(one, "First", "Answer 0.")
        old = one.screen
        await one.say("/new")
        await one.sees("2 messages are not saved.")
        assert one.screen is old
        disk.error = 0
        await one.say("/new")
        await one.until(lambda: one.screen is not old and one.screen.conversation.state.ready)


async def test_a_new_session_does_not_stop_the_agent_unasked(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        server.script(stall())
        await one.say("First")
        await server.at_gate.wait()
        old = one.screen
        soul = old.conversation.soul
        assert soul is not None
        await one.say("/new")
        await one.sees("Leaving this session stops it.")
        assert one.screen is old
        assert soul.running
        await one.say("/new")
        await one.until(lambda: one.screen is not old and one.screen.conversation.state.ready)
        assert not soul.running


async def test_enter_in_the_empty_prompt_does_not_drop_a_redo_unasked(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        server.script(stall())
        await one.say("First")
        await server.at_gate.wait()
        await one.pilot.press("escape")
        await one.idle()
        await one.say("/rewind 0")
        await one.confirm("enter")
        await one.until(lambda: one.screen.prompt.area.text == "First")
        one.screen.prompt.area.put("")
        await one.say("/undo")
        await one.until(lambda: one.screen.conversation.state.can_resume)
        n_calls = len(server.requests)
        await one.pilot.press("enter")
        await one.sees("After that, /redo is not")
        assert len(server.requests) == n_calls
        server.script(say("On it goes."))
        await one.pilot.press("enter")
        await one.sees("On it goes.")


@pytest.mark.exhaustive
async def test_rename(home: Path, disk: Disk) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Answer 0."))
        await one.ready()
        await turn(one, "First", "Answer 0.")
        await one.say("/rename The  [b]parser")
        await one.sees("is now called The [b]parser")
        assert "The [b]parser" in one.text().split("\n")[0]
        disk.error = errno.ENOSPC
        await one.say("/rename Other")
        await one.sees("Could not save the session's title")
        assert "The [b]parser" in one.text().split("\n")[0]
        disk.error = 0
        (info,) = SessionStore(home).list(home / "app")
        assert info.title == "The [b]parser"
        # Alone it keeps what was chosen, and asks; an empty title is the first message.
        await one.say("/rename")
        await one.sees("What should this session be called?")
        await one.pilot.press("escape")
        assert "The [b]parser" in one.text().split("\n")[0]
        await one.say("/rename")
        await one.sees("What should this session be called?")
        await one.pilot.press("ctrl+u", "enter")
        await one.until(lambda: "First" in one.text().split("\n")[0])


@pytest.mark.exhaustive
async def test_statistics_are_those_of_the_command_line(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/stats")
        await one.sees("The session has no turns yet.")
        read = call("ReadFile", {"path": "a"}, usage=(1_000, 10))
        server.script(read, say("Answer 0.", usage=(2_000, 20)))
        await turn(one, "First", "Answer 0.")
        await one.say("/stats")
        await one.until(lambda: isinstance(one.app.screen, TextScreen))
        shown = await one.sees("1, 1 failed: Read 1")
        assert "1, with 2 steps" in shown
        assert "3.0k input" in shown
        soul = one.screen.conversation.soul
        assert soul is not None
        figures = with_journal(
            statistics(read_records(soul.session)), soul.session.context.journal.entries
        )
        for name, text in statistics_pairs(figures):
            assert name in shown
            assert text[:40] in shown
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert one.screen.prompt.area.has_focus


@pytest.mark.exhaustive
async def test_a_session_that_is_open_elsewhere_is_refused_with_who_has_it(home: Path) -> None:
    async with ChatServer() as server:
        server.script(say("Answer 0."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await turn(one, "First", "Answer 0.")
            folder = folder_of(one)
        held = SessionLock(folder)
        held.acquire()
        try:
            async with desk(home, server.base_url, resume="newest") as second:
                await second.sees("continue in a copy")
                await second.pilot.press("escape")
                await second.until(lambda: second.app.return_code == 4)
                assert f"process {os.getpid()}" in second.app.exit_message
                assert "--fork" in second.app.exit_message
        finally:
            held.release()
        # A program that is gone holds no lock, whatever the lock file says.
        assert (folder / "lock").exists()
        async with desk(home, server.base_url, resume="newest") as third:
            await third.ready()
            await third.sees("Answer 0.")
