"""The main screen while its session is being opened: the last page of a stored one, what comes early, what cannot be opened."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatServer, call, reply, say
from support.screens import Desk, desk
from support.soul import launch_at

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.launch import FORKED, NEWEST, CannotOpen
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.session import Session
from kimi_tui.soul import assembly, opening, rebuilt_history
from kimi_tui.soul.approval import Mode
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.opening import provider_of
from kimi_tui.tui.dialogs.open_elsewhere import OpenElsewhereScreen
from kimi_tui.tui.formatting import session_words
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.wire.events import EventRecord

SEALED = Path("/sys/kernel")
"""Not even root makes a folder in it."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def session_dir(home: Path) -> Path:
    """Return the folder of the only session."""
    (session,) = home.glob("sessions/*/*/")
    return session


class Held:
    """A session that was there before, in an app whose engine waits to be let on."""

    def __init__(self, one: Desk, let_on: asyncio.Event) -> None:
        self.desk = one
        self.let_on = let_on

    async def whole(self) -> None:
        """Let the engine open."""
        self.let_on.set()
        await self.desk.ready()


@asynccontextmanager
async def held(
    home: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch, *, record: bool = True
) -> AsyncGenerator[Held]:
    """Say two things in a session, leave it, and begin to open it again."""
    server.script(say("The first answer."), say("The second answer."))
    async with desk(home, server.base_url) as one:
        await one.ready()
        for question in ("A first question", "A second question"):
            await one.say(question)
            await one.idle()
            await one.until(lambda: "answer" in one.text())
    session = session_dir(home)
    if not record:
        (session / "wire.jsonl").unlink()
    let_on = asyncio.Event()
    open_soul = assembly.open_soul

    async def opened(**parts: Any) -> Any:
        await let_on.wait()
        return await open_soul(**parts)

    monkeypatch.setattr(assembly, "open_soul", opened)
    async with desk(home, server.base_url, resume=session.name) as one:
        yield Held(one, let_on)
        let_on.set()


@pytest.mark.exhaustive
async def test_a_session_that_is_read_is_not_called_a_new_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        assert "Reading the session" in one.desk.text()
        assert "Opening the session" in one.desk.text()
        hint = "The steps of the agent"
        for _ in range(40):
            shown = one.desk.text()
            assert "What shall we work on?" not in shown
            assert "New session" not in shown
            assert hint not in shown
            if "The second answer." in shown:
                break
            await one.desk.pilot.pause(0.02)
        shown = await one.desk.sees("The second answer.")
        assert "A first question" in shown.split("\n")[0]
        await one.whole()
        await one.desk.sees("The first answer.")


@asynccontextmanager
async def open_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, offered_s: float
) -> AsyncGenerator[tuple[Desk, SessionLock, ChatServer]]:
    """Yield a session that is to be continued while another program has it open."""
    monkeypatch.setattr(opening, "OPEN_ELSEWHERE_S", offered_s)
    async with ChatServer() as server:
        server.script(say("The first answer."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("A first question")
            await one.sees("The first answer.")
            await one.idle()
        lock = SessionLock(session_dir(home))
        lock.acquire()
        try:
            async with desk(home, server.base_url, resume=NEWEST) as one:
                yield one, lock, server
        finally:
            lock.release()


@pytest.mark.exhaustive
async def test_a_session_that_is_open_elsewhere_is_said_to_be_and_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_elsewhere(home, monkeypatch, 60.0) as (one, lock, _):
        shown = await one.sees("“A first question” is open in another program")
        # The session is not shown as if it were open here.
        assert "The first answer." not in shown
        lock.release()
        await one.ready()
        await one.sees("The first answer.")


def asks(one: Desk) -> bool:
    """Return whether a key would answer the offer."""
    screen = one.app.screen
    return isinstance(screen, OpenElsewhereScreen) and screen.seen.is_open


def test_a_session_without_a_title_has_words_for_it() -> None:
    assert session_words("") == "The session"
    assert session_words("Fix it") == "“Fix it”"
    assert OpenElsewhereScreen("", "process 7")._title == "The session"  # pyright: ignore[reportPrivateUsage]


@pytest.mark.exhaustive
async def test_a_session_that_is_open_elsewhere_can_be_forked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_elsewhere(home, monkeypatch, 0.0) as (one, _, server):
        original = session_dir(home)
        # A message that was sent before goes to the fork.
        one.screen.conversation.say("And then?")
        shown = await one.sees("continue in a copy of the session (a fork)")
        assert f"“A first question” is open in process {os.getpid()} on" in shown
        server.script(say("The second answer."))
        await one.pilot.press("x")
        assert isinstance(one.app.screen, OpenElsewhereScreen)
        await one.until(lambda: asks(one))
        await one.pilot.press("f")
        shown = await one.sees("The second answer.")
        assert "The first answer." in shown
        # On a loaded machine the notice may be gone when the answer is there.
        assert FORKED in [notice.text for notice in one.screen.bench.notices]
        soul = one.screen.conversation.soul
        assert soul is not None
        assert soul.session.dir.parent == original.parent
        assert soul.session.dir != original


@pytest.mark.exhaustive
async def test_the_offer_goes_where_the_session_is_closed_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_elsewhere(home, monkeypatch, 0.0) as (one, lock, _):
        await one.sees("continue in a copy of the session (a fork)")
        lock.release()
        await one.ready()
        assert "continue in a copy" not in await one.sees("The first answer.")
        assert session_dir(home).is_dir()  # the only one


@pytest.mark.exhaustive
async def test_without_the_fork_the_program_ends(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_elsewhere(home, monkeypatch, 0.0) as (one, _, _):
        await one.sees("continue in a copy of the session (a fork)")
        await one.pilot.press("escape")
        await one.until(lambda: bool(one.app.exit_message))
        assert one.app.exit_message.startswith("This session is open in process ")
        assert one.app.return_code == opening.LOCKED


@pytest.mark.exhaustive
async def test_the_last_page_comes_first_without_a_record_too(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch, record=False) as one:
        shown = await one.desk.sees("The second answer.")
        assert "A second question" in shown
        assert one.desk.screen.conversation.soul is None
        await one.whole()
        await one.desk.sees("The second answer.")


@pytest.mark.exhaustive
async def test_what_cannot_be_glanced_at_is_named_while_it_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_session: Session) -> list[EventRecord]:
        return []

    def broken(_session: Session) -> list[EventRecord]:
        raise ZeroDivisionError

    monkeypatch.setattr(opening, "end_of_record", nothing)
    monkeypatch.setattr(rebuilt_history, "end_of_context", broken)
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        shown = await one.desk.sees("Reading A first question, 4 messages")
        assert "What shall we work on?" not in shown
        assert "ZeroDivisionError" in (home / "logs" / "kimi-tui.log").read_text()
        # The timeline does not speak to who has never had a session either.
        shown = await one.desk.sees("Reading the session")
        assert "The steps of the agent" not in shown
        await one.whole()
        shown = await one.desk.sees("The second answer.")
        assert "Reading" not in shown


@pytest.mark.exhaustive
async def test_a_folder_without_a_session_has_a_new_one_after_all(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, resume=NEWEST) as one:
        await one.ready()
        shown = await one.sees("What shall we work on?")
        assert "New session" in shown
        assert "Reading" not in shown
        await one.sees("The steps of the agent")


@pytest.mark.exhaustive
async def test_a_message_that_is_sent_early_is_seen_to_wait_and_sent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        server.script(say("The third answer."))
        await one.desk.say("Early words")
        await one.desk.sees("The second answer.")
        await one.desk.sees("Early words")
        await one.desk.say("Words to take back")
        await one.desk.sees("Words to take back")
        await one.desk.pilot.press("up")
        await one.desk.until(lambda: one.desk.screen.prompt.area.text == "Words to take back")
        one.desk.screen.prompt.area.put("")
        await one.whole()
        await one.desk.sees("The third answer.")
        # In the chat and on the timeline.
        await one.desk.until(lambda: one.desk.text().count("Early words") == 2)
        told = str(server.requests[-1].body["messages"])
        assert "Early words" in told
        assert "take back" not in told


@pytest.mark.exhaustive
async def test_commands_and_keys_that_come_early_are_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        server.script(say("## Current task\n\nA summary."), say("The third answer."))
        await one.desk.say("/mode edits")
        await one.desk.sees("The session is still opening")
        await one.desk.say("/rename Another name")
        await one.desk.pilot.press("ctrl+o")
        await one.desk.pilot.press("ctrl+t")
        await one.desk.until(lambda: one.desk.screen.bench.timeline_pane.has_keys)
        await one.desk.pilot.press("escape")
        await one.desk.until(lambda: one.desk.screen.prompt.area.has_focus)
        await one.whole()
        await one.desk.until(lambda: one.desk.screen.conversation.state.mode == "edits")
        await one.desk.sees("Compacted")
        await one.desk.until(lambda: "Another name" in one.desk.text().split("\n")[0])


@pytest.mark.exhaustive
async def test_a_question_that_comes_early_is_answered_when_the_session_is_open(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        await one.desk.say("/tools")
        await one.desk.say("/thinking")
        await one.desk.sees("The session is still opening")
        await one.whole()

        def has_told(words: str) -> bool:
            return any(words in notice.text for notice in one.desk.screen.bench.notices)

        await one.desk.until(lambda: has_told("All tools are on"))
        await one.desk.until(lambda: has_told("for reasoning") or has_told("reasons"))


@pytest.mark.exhaustive
async def test_the_mode_is_turned_as_often_as_its_key_was_pressed_early(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        modes: list[str] = []
        set_mode = KimiSoul.set_mode

        async def noted(soul: KimiSoul, mode: Mode) -> None:
            modes.append(mode)
            await set_mode(soul, mode)

        monkeypatch.setattr(KimiSoul, "set_mode", noted)
        await one.desk.pilot.press("shift+tab", "shift+tab")
        await one.desk.sees("The session is still opening")
        await one.whole()
        await one.desk.until(lambda: len(modes) == 2)
        assert modes == ["edits", "plan"]


@pytest.mark.exhaustive
async def test_what_is_copied_in_the_chat_is_told_once(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("The only answer."))
        await one.ready()
        await one.say("A question")
        await one.idle()
        await one.sees("The only answer.")
        one.screen.transcript.copy_answer()
        await one.sees("Copied the last answer")
        assert one.app.clipboard == "The only answer."
        assert [notice.text.split(",")[0] for notice in one.screen.bench.notices] == [
            "Copied the last answer"
        ]


@pytest.mark.exhaustive
async def test_a_model_that_is_wanted_early_is_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        launch = one.desk.app.launch
        assert isinstance(launch.choice, ModelChoice)
        other = launch.choice._replace(model="another-model")
        one.desk.screen.conversation.use(launch._replace(choice=other))
        await one.whole()
        await one.desk.sees("The agent now uses another-model")
        server.script(say("The third answer."))
        await one.desk.say("A third question")
        await one.desk.sees("The third answer.")
        assert server.requests[-1].body["model"] == "another-model"


@pytest.mark.exhaustive
async def test_the_header_names_the_folder_and_branch_of_the_session(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    work, other = home / "app", home / "elsewhere"
    for folder, branch in ((work, "the-branch"), (other, "another")):
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    async with ChatServer() as server:
        server.script(say("The answer."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("A question")
            await one.sees("The answer.")
            await one.idle()
        session = session_dir(home)
        async with desk(home, server.base_url, resume=session.name, work=other) as one:
            await one.ready()
            head = one.text().split("\n")[0]
            assert "~/app" in head
            assert "the-branch" in head
            # A tool of the agent changes it, and so may anybody else meanwhile.
            (work / ".git" / "HEAD").write_text("ref: refs/heads/a-third\n")
            server.script(call("ReadFile", {"path": "nothing"}), say("Another answer."))
            await one.say("Another question")
            await one.sees("Another answer.")
            await one.until(lambda: "a-third" in one.text().split("\n")[0])


@pytest.mark.skipif(not SEALED.is_dir(), reason="no folder here in which nobody can make any")
async def test_a_disk_that_takes_no_session_leaves_the_program_and_the_text(home: Path) -> None:
    (home / "sessions").symlink_to(SEALED)
    async with ChatServer() as server:
        server.script(say("The answer."))
        async with desk(home, server.base_url) as one:
            await one.pilot.press(*"precious")
            await one.sees("Could not open the session: ")
            assert "Enter tries again." in one.text()
            for _ in range(2):
                await one.pilot.press("enter")
                await one.until(lambda: one.screen.prompt.area.text == "precious")
                await one.sees("Could not open the session: ")
            (home / "sessions").unlink()
            await one.pilot.press("enter")
            await one.sees("The answer.")
            assert "Could not open" not in one.text()
        assert not one.app.exit_message
        assert "precious" in (session_dir(home) / "context.jsonl").read_text()


@pytest.mark.exhaustive
@pytest.mark.skipif(not SEALED.is_dir(), reason="no folder here in which nobody can make any")
async def test_what_was_written_without_a_session_is_printed_at_the_end(home: Path) -> None:
    (home / "sessions").symlink_to(SEALED)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.pilot.press(*"precious")
        await one.sees("Could not open the session: ")
    assert one.app.exit_message.startswith("Could not open the session: ")
    assert one.app.unsent_text.endswith("The text was:\nprecious")
    assert not one.app.resume_hint


@pytest.mark.exhaustive
async def test_cycles_are_looked_for_again_when_a_session_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, held(home, server, monkeypatch) as one:
        await one.desk.sees("The second answer.")
        assert not gc.isenabled()
        await one.whole()
        assert gc.isenabled()


@pytest.mark.exhaustive
async def test_cycles_are_looked_for_again_where_there_is_no_session(home: Path) -> None:
    launch = launch_at(home)._replace(resume="nowhere")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        with pytest.raises(CannotOpen, match="There is no session 'nowhere'"):
            await ConversationController(launch, one.screen.bench).open()
        assert gc.isenabled()


@pytest.mark.exhaustive
async def test_what_waits_for_a_session_that_was_closed_waits_until_it_is_ended(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        conversation = one.screen.conversation
        await conversation.close()
        waiting = asyncio.create_task(conversation.opened())
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.exhaustive
async def test_the_window_that_the_server_told_is_known_at_the_next_start(home: Path) -> None:
    async with ChatServer() as server:
        server.route("GET", "/props", reply({"default_generation_settings": {"n_ctx": 131_000}}))
        launch = launch_at(home)._replace(choice=ModelChoice("test", server.base_url, "kimi-test"))
        async with desk(home, server.base_url, window=None, dialect=None) as one:
            await one.ready()
            await one.sees("131k")
            await one.until((home / "windows.json").exists)
    # The server does not answer at first.
    provider = await provider_of(launch, "id")
    assert (provider.info.window, provider.info.window_estimated) == (131_000, True)
    await provider.aclose()
    for broken in ("{", "[]", '{"http://x m": true}'):
        (home / "windows.json").write_text(broken)
        provider = await provider_of(launch, "id")
        assert provider.info.window != 131_000
        await provider.aclose()
