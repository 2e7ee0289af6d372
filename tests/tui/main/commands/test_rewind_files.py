"""A rewind with files, from the key to the disk, in the whole app."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from support.cases import first_only
from support.chat_server import ChatServer, call, say
from support.screens import Desk, desk
from textual.events import Key

from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.replay.source import forked, read


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def allow_all(one: Desk) -> KimiSoul:
    """Allow everything from here on, once the present files are known; return the engine."""
    await one.ready()
    soul = one.screen.conversation.soul
    assert soul is not None
    await soul.files_ready()
    await soul.set_mode("all")
    return soul


@pytest.mark.exhaustive
async def test_f_brings_conversation_and_files_back_and_undo_takes_that_back(home: Path) -> None:
    work = home / "app"
    work.mkdir()
    (work / "a.txt").write_text("old\n")
    (work / "b.txt").write_text("old\n")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(call("Shell", {"command": "echo new > a.txt; echo x > made"}), say("Done."))
        await allow_all(one)
        await one.say("Change it")
        await one.sees("Done.")
        await one.idle()
        (work / "b.txt").write_text("by hand\n")
        await one.say("/rewind 0")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        shown = await one.sees("Files changed since")
        assert "1 file restored, 1 deleted" in shown
        # The agent never touched it.
        assert "! b.txt" in shown
        assert " changed outside kimi-tui; kept" in shown
        assert "also changed outside kimi-tui" not in shown
        await one.pilot.press("f")
        await one.until(lambda: one.screen.prompt.area.text == "Change it")
        await one.sees("1 deleted (made), 1 kept (b.txt)")
        assert sorted(path.name for path in work.iterdir()) == ["a.txt", "b.txt"]
        assert (work / "a.txt").read_text() == "old\n"
        assert (work / "b.txt").read_text() == "by hand\n"
        one.screen.prompt.area.text = ""
        await one.say("/undo")
        await one.until(lambda: (work / "made").exists())
        await one.until(lambda: (work / "a.txt").read_text() == "new\n")
        assert (work / "b.txt").read_text() == "by hand\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", first_only([(60, 20), (80, 24), (120, 40)]))
async def test_what_an_undo_left_alone_is_seen_where_the_timeline_floats(
    home: Path, size: tuple[int, int]
) -> None:
    work = home / "app"
    work.mkdir()
    (work / "a.txt").write_text("old\n")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.pilot.resize_terminal(*size)
        server.script(call("Shell", {"command": "echo new > a.txt; echo x > made"}), say("Done."))
        soul = await allow_all(one)
        await one.say("Change it")
        await one.sees("Done.")
        await one.idle()
        await soul.travel.rewind(Target(0), "restore")
        (work / "a.txt").write_text("by hand\n")
        await one.pilot.press("ctrl+t", "u")
        shown = await one.sees("Undid the rewind to #0.")
        words = " ".join(row.rpartition("▌")[2].strip(" │") for row in shown.splitlines())
        # The timeline of a narrow screen covers the row of the chat.
        is_covered = "Undid the rewind to #0. 1 file restored. Not restored: a.txt." in words
        assert is_covered == (size[0] < 100)
        await one.pilot.press("escape")
        await one.sees("1 file restored, 1 kept (a.txt)")


@pytest.mark.exhaustive
async def test_a_key_that_comes_after_the_answer_answers_nothing(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("The apple is red."))
        await one.ready()
        await one.say("Tell me of apples")
        await one.sees("The apple is red.")
        await one.idle()
        await one.say("/rewind 0")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        preview = one.app.screen
        for _ in range(3):
            # The terminal sends keys like this while a key is held down.
            preview.post_message(Key("r", "r"))
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of apples")
        assert one.app.screen is one.screen


@pytest.mark.exhaustive
async def test_a_fork_takes_the_files_along_and_gives_its_message_to_the_prompt(
    home: Path,
) -> None:
    work = home / "app"
    work.mkdir()
    (work / "a.txt").write_text("old\n")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Hello."), call("Shell", {"command": "echo new > a.txt"}), say("Done."))
        await allow_all(one)
        await one.say("First")
        await one.sees("Hello.")
        await one.idle()
        await one.say("Change it")
        await one.sees("Done.")
        await one.idle()
        origin = one.screen
        await one.say("/fork 2")
        await one.sees("Fork at #2")
        await one.sees("1 file changed since then. Restore it as well?")
        await one.pilot.press("f")
        await one.until(lambda: one.screen is not origin and one.screen.conversation.state.ready)
        assert (work / "a.txt").read_text() == "old\n"
        shown = await one.sees("Fork at #2: First")
        assert any("1 file restored." in told.text for told in one.screen.bench.notices)
        # A message that the agent never gets is not in the chat, but in the prompt, from where it can be sent again.
        assert one.screen.prompt.area.text == "Change it"
        assert "Change it" not in shown.partition("› ")[0]
        # The file's way back came along.
        soul = one.screen.conversation.soul
        assert soul is not None
        await soul.files_ready()
        await soul.travel.undo()
        assert (work / "a.txt").read_text() == "new\n"


@pytest.mark.exhaustive
async def test_where_a_replay_is_gone_on_with_the_files_of_that_moment_are_offered(
    home: Path,
) -> None:
    work = home / "app"
    work.mkdir()
    (work / "a.txt").write_text("old\n")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Hello."), call("Shell", {"command": "echo new > a.txt"}), say("Done"))
        soul = await allow_all(one)
        await one.say("First")
        await one.sees("Hello.")
        await one.idle()
        await one.say("Change it")
        await one.sees("Done")
        await one.idle()
        await soul.flush()
        uid = soul.session.context.checkpoints[2].uid
        recorded = await asyncio.to_thread(read, soul.session)
        launch = await forked(one.app.launch, recorded, uid, whole=False)
        origin = one.screen
        one.screen.bench.leave_for(launch)
        await one.until(lambda: one.screen is not origin)
        await one.sees("Changed files")
        assert "1 file restored" in one.text()
        assert "Nothing is removed from the conversation." in one.text()
        await one.pilot.press("o")
        await one.until(lambda: (work / "a.txt").read_text() == "old\n")
        await one.sees("1 file restored.")
        assert one.screen.prompt.area.text == "Change it"


async def test_what_cannot_come_back_is_named_before_and_after(home: Path) -> None:
    work = home / "app"
    (work / "empty").mkdir(parents=True)
    os.mkfifo(work / "pipe")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(call("Shell", {"command": "rm -r pipe empty"}), say("Done."))
        await allow_all(one)
        await one.say("Clean up")
        await one.sees("Done.")
        await one.idle()
        await one.say("/rewind 0")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        shown = await one.sees("deleted; not a regular file")
        assert "empty folder" in shown
        await one.pilot.press("f")
        await one.sees("1 kept (pipe)")
        assert [path.name for path in work.iterdir()] == ["empty"]
