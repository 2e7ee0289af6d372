"""The main screen with the real engine behind it: what keys and clicks do, and what the server is told."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatServer, call, gate, say, stall, status
from support.covered import has_landlock
from support.screens import Desk, desk
from textual import events
from textual.await_remove import AwaitRemove

from kimi_tui.agent_parts import MODE_TITLES
from kimi_tui.config.settings import Config
from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox, find_sandbox
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.approval.panel import AWAY, ApprovalPanel
from kimi_tui.tui.dialogs.help import HelpScreen
from kimi_tui.tui.dialogs.list_screen import ListScreen
from kimi_tui.tui.formatting import percent
from kimi_tui.tui.main.commands.custom import CustomCommandScreen
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.notices import STAYS_S
from kimi_tui.tui.prompt.menu import PaletteScreen
from kimi_tui.tui.screens import app_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def messages(server: ChatServer, number: int = -1) -> str:
    """Return the text of a request, without the system prompt."""
    return str(server.requests[number].body["messages"][1:])


@pytest.mark.exhaustive
async def test_a_message_goes_out_is_answered_and_comes_back_by_keys(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Hello **there**.", think="hm"), say("Two."), say("Three."))
        await one.ready()
        await one.say("Good day")
        shown = await one.sees("Hello there.")
        assert "Thought for" in shown
        assert "Good day" in messages(server)
        await one.idle()
        area, timeline = one.screen.prompt.area, one.screen.bench.views.timeline
        assert area.text == ""
        assert "Good day" in one.text().split("\n")[0]  # the session's title
        # Escape twice in an empty prompt leads to the timeline.
        await one.pilot.press("escape", "escape")
        assert timeline.has_focus
        await one.pilot.press("escape")
        await one.until(lambda: area.has_focus)
        area.put("text")
        await one.pilot.press("escape", "escape")
        assert area.has_focus
        area.put("")
        # A rewind puts the message back.
        await one.say("Second")
        await one.sees("Two.")
        await one.idle()
        await one.pilot.press("ctrl+t")
        await one.pilot.press("enter")
        await one.confirm("enter")
        await one.until(lambda: area.text == "Second")
        await one.until(lambda: area.has_focus)
        await one.until(lambda: "Two." not in one.text())
        await one.say("Another second")
        await one.sees("Three.")
        assert "Two." not in messages(server)
        assert "there" in messages(server)


@pytest.mark.exhaustive
async def test_what_is_typed_before_the_session_is_open_is_sent_then(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Late but here."))
        await one.say("Early bird")
        assert not one.screen.conversation.state.ready
        await one.sees("Late but here.")
        assert "Early bird" in messages(server)


@pytest.mark.exhaustive
async def test_typing_while_the_agent_works_steers(home: Path) -> None:
    (home / "app").mkdir()
    (home / "app" / "a.txt").write_text("a")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(call("Shell", {"command": "true"}), say("Both done."))
        await one.ready()
        await one.say("First")
        await one.until(lambda: bool(one.screen.conversation.state.approvals))
        # The approval has the place of the prompt; what comes in meanwhile is queued all the same.
        one.screen.conversation.say("Second")
        await one.until(lambda: bool(one.screen.conversation.state.queued))
        request = one.screen.conversation.state.approvals[0]
        one.screen.conversation.answer(request.id, "once", "")
        await one.sees("Both done.")
        assert "Second" in messages(server, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("written", ["hello", "!echo 'from me'"])
async def test_what_is_said_during_an_operation_comes_behind_it(home: Path, written: str) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Here I am, from me."))
        await one.ready()
        soul = one.screen.conversation.soul
        assert soul is not None
        is_over = asyncio.Event()

        async def operation() -> None:
            await is_over.wait()

        under_way = asyncio.create_task(soul._alone.run(operation()))
        await one.until(lambda: soul.running)
        await one.say(written)
        await one.until(lambda: not one.screen.prompt.area.text)
        is_over.set()
        await under_way
        await one.until(lambda: one.screen.conversation.state.has_messages)
        await one.idle()
        await one.sees("from me")
        assert not one.screen.conversation.inbox.waiting


@pytest.mark.exhaustive
async def test_up_takes_the_last_queued_message_back(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(stall())
        await one.ready()
        await one.say("First")
        await one.until(lambda: bool(server.requests))
        await one.say("Second")
        await one.say("Third")
        await one.until(lambda: len(one.screen.conversation.state.queued) == 2)
        await one.pilot.press("up")
        await one.until(lambda: one.screen.prompt.area.text == "Third")
        await one.pilot.press("escape")
        await one.idle()
        # Messages that are still queued after a stop come back too: nothing that was typed is lost.
        await one.until(lambda: one.screen.prompt.area.text == "Second\n\nThird")


@pytest.mark.exhaustive
async def test_enter_goes_on_behind_a_stop_and_an_error(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        refused = status(401, {"error": {"message": "no such key"}})
        server.script(stall(), say("Here I am again."), refused, say("Better now."))
        await one.ready()
        await one.say("Begin")
        await one.until(lambda: bool(server.requests))
        await one.pilot.press("escape")
        await one.idle()
        assert one.screen.conversation.state.can_resume
        await one.pilot.press("enter")
        await one.sees("Here I am again.")
        await one.idle()
        await one.say("Hello")
        await one.sees("no such key")
        await one.idle()
        await one.pilot.press("enter")
        await one.sees("Better now.")


@pytest.mark.exhaustive
async def test_an_approval_takes_the_place_of_the_prompt_and_gives_it_back(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(call("Shell", {"command": "echo out-of-it"}), say("Done."))
        await one.ready()
        await one.say("Run it")
        await one.sees("Run this command?")
        assert not one.screen.prompt.display
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        assert panel.has_focus
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.sees("Done.")
        await one.idle()
        assert one.screen.prompt.area.has_focus
        assert "out-of-it" in messages(server)
        # On its way back the focus did not come by the timeline, which selects a row when it has it.
        assert one.screen.bench.views.timeline._view.selected is None


async def an_approval(one: Desk, server: ChatServer) -> ApprovalPanel:
    """Return a question whether a file may be written, that takes keys."""
    server.script(call("WriteFile", {"path": "z.txt", "content": "z"}), say("Done."))
    await one.ready()
    await one.say("Write it")
    await one.until(lambda: one.screen.bench.question is not None)  # pyright: ignore[reportPrivateUsage]
    panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
    assert panel is not None
    await one.until(lambda: panel.accepts_keys)
    return panel


@pytest.mark.exhaustive
async def test_the_timeline_during_an_approval(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        panel = await an_approval(one, server)
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        await one.sees("Enter preview")
        await one.pilot.press("down", "up", "escape")
        await one.until(lambda: panel.has_focus)
        # Keys of before do not count: only what comes when it was quiet again.
        assert not panel.accepts_keys
        await one.until(lambda: panel.accepts_keys)
        assert not (home / "app" / "z.txt").exists()
        await one.pilot.press("y")
        await one.sees("Done.")


@pytest.mark.exhaustive
async def test_what_is_written_before_an_answer_has_the_keys_after_the_timeline(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        panel = await an_approval(one, server)
        await one.pilot.press("e", *"not")
        await one.until(lambda: panel.has_focus_within and not panel.has_focus)
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        # The keys come right after each other, and none may get lost on the way back.
        await one.pilot.press("escape", *" so", "enter")
        await one.sees("Done.")
        refused = [m["content"] for m in server.requests[-1].messages if m["role"] == "tool"]
        assert "not so" in str(refused)
        assert not (home / "app" / "z.txt").exists()


@pytest.mark.exhaustive
async def test_keys_meant_for_the_timeline_never_approve(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        panel = await an_approval(one, server)
        # The timeline is slow to come: all keys reach the panel.
        monkeypatch.setattr(one.screen.bench, "focus_timeline", lambda: None)
        await one.pilot.press("ctrl+t", "down", "enter", "y")
        assert panel.has_focus
        assert not panel.accepts_keys
        assert not (home / "app" / "z.txt").exists()
        assert one.screen.conversation.state.approvals


async def test_answers_count_only_where_the_question_has_the_keys(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        panel = await an_approval(one, server)
        chat = one.screen.transcript
        assert AWAY not in one.text()
        await one.pilot.press("tab")
        await one.until(lambda: chat.has_focus)
        shown = await one.sees(AWAY)
        assert "k j block" in shown
        assert "answer" not in shown.split("\n")[-1]
        await one.pilot.press("y", "n", "e", "up")
        assert one.screen.conversation.state.approvals
        # A slash begins a search where no command can be written.
        await one.pilot.press("slash")
        await one.until(lambda: one.screen.bench.on_view.is_searched)
        await one.pilot.press("escape")
        await one.until(lambda: chat.has_focus)
        await one.pilot.press("escape", "y")
        await one.until(lambda: panel.has_focus)
        assert AWAY not in await one.sees("n/e answer")
        await one.until(lambda: panel.accepts_keys)
        # A key that closes a page over the question, and comes right after it, is no answer either.
        await one.pilot.press("f1")
        await one.until(lambda: one.app.screen is not one.screen)
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert not panel.accepts_keys
        await one.pilot.press("y")
        assert one.screen.conversation.state.approvals
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.sees("Done.")


@pytest.mark.exhaustive
async def test_a_question_leaves_the_keys_to_who_reads(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(gate(1, call("Shell", {"command": "true"})), say("Done."))
        await one.ready()
        await one.say("Run it")
        await server.at_gate.wait()
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        server.release()
        await one.sees(AWAY)
        assert one.screen.bench.timeline_pane.has_keys
        # Their Escape leaves the timeline; it does not stop the turn.
        await one.pilot.press("escape", "y")
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        await one.until(lambda: panel.has_focus)
        assert one.screen.conversation.state.approvals
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.sees("Done.")


@pytest.mark.exhaustive
async def test_search_and_paging_during_an_approval(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("\n\n".join(f"Paragraph {n}." for n in range(80))))
        await one.ready()
        await one.say("Much")
        await one.sees("Paragraph 79.")
        await one.idle()
        panel = await an_approval(one, server)
        await one.pilot.press("pageup")
        await one.until(lambda: not one.screen.transcript.follows)
        await one.pilot.press("pagedown")
        await one.pilot.press("ctrl+f")
        await one.until(lambda: one.screen.bench.on_view.is_searched)
        await one.pilot.press(*"Paragraph 3.", "enter")
        await one.sees("Paragraph 3.")
        await one.pilot.press("escape")
        await one.until(lambda: panel.has_focus)
        assert not one.screen.bench.on_view.is_searched
        assert one.screen.conversation.state.approvals


@pytest.mark.exhaustive
async def test_the_draft_survives_an_approval(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(call("Shell", {"command": "true"}), say("Done."))
        await one.ready()
        await one.say("Run it")
        one.screen.prompt.area.put("half a thought")
        await one.sees("Run this command?")
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("n")
        await one.idle()
        assert one.screen.prompt.area.text == "half a thought"


@pytest.mark.exhaustive
async def test_compacting_while_the_agent_works_waits_for_the_turn(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("One. " * 50), say("Two."), say("## Summary\n\nWe counted."))
        await one.ready()
        await one.say("First")
        await one.sees("One.")
        await one.idle()
        one.screen.conversation.say("Second")
        one.screen.action_command("compact", "the numbers")
        await one.sees("Compacted")
        assert "the numbers" in str(server.requests[2].body)


@pytest.mark.exhaustive
async def test_keys_before_anything_is_said(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        area = one.screen.prompt.area
        # There is nothing to read.
        await one.pilot.press("pageup", "pagedown", *"text")
        await one.until(lambda: area.text == "text")
        area.put("")
        # The menu of commands.
        await one.pilot.press(*"/re")
        shown = await one.sees("/redo")
        assert "/rewind [N]" in shown
        await one.pilot.press("down", "tab")
        assert area.text == "/redo "
        area.put("")
        await one.pilot.press(*"/nothing", "enter")
        await one.sees('"/nothing" is not a command.')
        assert area.text == "/nothing"
        area.put("")
        # Palette and help.
        await one.pilot.press("ctrl+p")
        await one.until(lambda: isinstance(one.app.screen, PaletteScreen))
        await one.pilot.press(*"help", "enter")
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))
        await one.sees("Prompt")
        await one.pilot.press("end")
        await one.sees("/quit")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert area.has_focus
        # The mode, by key and by word.
        await one.pilot.press("shift+tab")
        await one.sees("kimi-test   accept edits")
        await one.pilot.press("shift+tab")
        await one.sees("kimi-test   plan")
        await one.pilot.press("shift+tab")
        await one.sees("kimi-test   ask")
        await one.say("/mode all")
        await one.sees("allow all, no sandbox")
        await one.sees("commands run with all your permissions")
        soul = one.screen.conversation.soul
        assert soul is not None
        assert soul.mode == "all"
        # Now that it was said the key comes by it, too.
        for words in ("plan", "ask", "accept edits", "allow all", "plan"):
            await one.pilot.press("shift+tab")
            await one.sees(f"kimi-test   {words}")
            assert MODE_TITLES[soul.mode] == words
        assert server.requests == []
        # Ctrl+C empties the prompt, and quits once it says so.
        await one.pilot.press(*"text", "ctrl+c")
        assert area.text == ""
        await one.sees("Press Ctrl+C again to quit.")
        await one.pilot.press(*"more")
        await one.until(lambda: "again to quit" not in one.text())
        await one.pilot.press("ctrl+c")
        await one.sees("Press Ctrl+C again to quit.")
        assert area.text == "", "a letter in between: it meant the text again"
        assert one.app.return_code is None
        await one.pilot.press("ctrl+c")
        await one.until(lambda: one.app.return_code == 0)


@pytest.mark.exhaustive
async def test_what_floats_has_a_frame_that_every_terminal_can_draw(home: Path) -> None:
    config = Config(glyphs="ascii")
    async with ChatServer() as server, desk(home, server.base_url, config=config) as one:
        await one.ready()
        for key, title in (("f1", "Help"), ("ctrl+p", "Commands")):
            await one.pilot.press(key)
            assert (await one.sees(title)).isascii()
            await one.pilot.press("escape")
            await one.until(lambda: one.app.screen is one.screen)


@pytest.mark.exhaustive
async def test_the_folder_in_figures_until_something_is_said(home: Path) -> None:
    (home / "app").mkdir()
    (home / "app" / "AGENTS.md").write_text("Use tabs.")
    (home / "app" / "main.py").write_text("")
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Good day."))
        shown = await one.sees("2 files in ")
        assert "The agent reads AGENTS.md." in shown
        await one.say("Hello")
        await one.sees("Good day.")
        assert one.screen.transcript.facts is None


@pytest.mark.exhaustive
async def test_the_mode_by_the_key_that_the_question_names(home: Path) -> None:
    config = Config(keys={"mode": "f4"})
    async with ChatServer() as server, desk(home, server.base_url, config=config) as one:
        server.script(call("WriteFile", {"path": "a.txt", "content": "a"}), say("Written."))
        await one.ready()
        await one.say("write")
        await one.sees("F4 mode   Tab chat")
        await one.pilot.press("shift+tab")
        assert one.screen.conversation.state.mode == "ask"
        await one.pilot.press("f4")
        await one.sees("The question on the screen still needs your answer.")
        assert one.screen.conversation.state.mode == "edits"
        assert not (home / "app" / "a.txt").exists(), "it was not answered by that"
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.sees("Written.")


def sandbox_here() -> Sandbox | None:
    """Return the sandbox of this machine; where Linux has no Landlock the test fails, unless that is so on purpose."""
    try:
        return find_sandbox(SandboxSettings(), os.environ)
    except NoSandbox:
        has_landlock()
        return None


@pytest.mark.exhaustive
async def test_the_sandbox_is_in_the_round_where_there_is_one(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # In a folder within the program's own there can be none.
    work = tmp_path_factory.mktemp("work")
    found = sandbox_here()
    held = found is not None and found.is_whole
    modes = ("sandboxed", "plan", "ask", "edits") if held else ("ask", "edits", "plan", "ask")
    async with (
        ChatServer() as server,
        desk(home, server.base_url, mode="sandboxed", sandbox=True, work=work) as one,
    ):
        await one.ready()
        soul = one.screen.conversation.soul
        assert soul is not None
        for mode in modes:
            assert soul.mode == one.screen.conversation.state.mode == mode
            await one.sees(MODE_TITLES[mode])
            await one.pilot.press("shift+tab")
            await one.until(lambda mode=mode: soul.mode != mode)
        if not held:
            await one.say("/mode sandboxed")
            await one.sees("There is no sandbox")


@pytest.mark.exhaustive
async def test_the_sandbox_is_shown_and_its_private_caches_are_emptied(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = tmp_path_factory.mktemp("work")
    held = sandbox_here() is not None
    async with (
        ChatServer() as server,
        desk(home, server.base_url, mode="sandboxed", sandbox=True, work=work) as one,
    ):
        await one.ready()
        await one.say("/sandbox x")
        await one.sees('"x" is not an argument of /sandbox.')
        await one.say("/sandbox")
        await one.sees("Commands can write to the work folder" if held else "There is no sandbox")
        if held:
            await one.sees("The sandbox uses ")
            await one.say("/sandbox reset")
            await one.sees("(0 bytes freed)")


async def test_what_was_allowed_is_listed_and_taken_back(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        for name in "abc":
            server.script(call("WriteFile", {"path": name, "content": name}), say(f"Wrote {name}."))
        await one.ready()
        await one.say("/permissions")
        await one.sees("There are no extra permissions.")
        await one.pilot.press("escape")
        await one.say("a")
        await one.sees("allow edits in this folder for this session")
        panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("a")
        await one.sees("Wrote a.")
        await one.say("b")
        await one.sees("Wrote b.")
        await one.say("/permissions 2")
        await one.sees('"2" is not the number of a permission.')
        await one.say("/permissions")
        await one.sees("This session")
        await one.sees("Enter revoke")
        shown = one.app.screen
        assert isinstance(shown, ListScreen)
        await one.until(lambda: shown.seen.accepts(time.monotonic()))
        await one.pilot.press("delete")
        await one.sees("Revoked: edits in this folder")
        await one.sees("There are no extra permissions.")
        await one.pilot.press("escape")
        await one.say("c")
        await one.until(lambda: one.screen.bench.question is not None)  # pyright: ignore[reportPrivateUsage]
        assert not (home / "app" / "c").exists()


@pytest.mark.exhaustive
async def test_what_the_program_was_started_with_is_in_the_round(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, mode="all") as one:
        await one.ready()
        soul = one.screen.conversation.soul
        assert soul is not None
        for mode in ("plan", "ask", "edits", "all", "plan"):
            await one.pilot.press("shift+tab")
            await one.until(lambda mode=mode: soul.mode == mode)


async def test_a_burst_of_keys_opens_a_dialog_once(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        most = 0
        for _ in range(8):
            for key in ("ctrl+p", "escape"):
                one.app.post_message(events.Key(key, None))
        await one.until(lambda: isinstance(one.app.screen, PaletteScreen))
        for _ in range(200):
            await asyncio.sleep(0)
            most = max(most, len(one.app.screen_stack))
        assert most == 2
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        await one.idle()
        assert not one.screen.bench.type_ahead.is_holding


@pytest.mark.exhaustive
async def test_keys_of_the_configuration(home: Path) -> None:
    config = Config(keys={"help": "f2", "timeline": "ctrl+g"})
    async with ChatServer() as server, desk(home, server.base_url, config=config) as one:
        await one.ready()
        assert "Ctrl+G timeline" in one.text()
        assert re.search(r"Ctrl\+G +goes back to any step", one.text())
        await one.pilot.press("/", *"time")
        await one.until(lambda: re.search(r"/timeline.*Ctrl\+G", one.text()) is not None)
        await one.pilot.press(*["backspace"] * 5, "ctrl+p")
        await one.until(lambda: isinstance(one.app.screen, PaletteScreen))
        await one.until(lambda: re.search(r"/timeline.*Ctrl\+G", one.text()) is not None)
        await one.pilot.press("escape", "f2")
        await one.until(lambda: isinstance(one.app.screen, HelpScreen))


@pytest.mark.exhaustive
async def test_continue_shows_what_was_and_goes_on(home: Path) -> None:
    async with ChatServer() as server:
        server.script(say("One."), say("Two."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("First")
            await one.sees("One.")
            await one.idle()
            # The figure of the server comes a frame after the answer, in place of an estimate, and the gauge glides to it.
            soul = one.screen.conversation.soul
            assert soul is not None
            status = soul.status
            share = percent(status.used, status.limit)
            before = await one.sees(
                f" {status.used / 1000:.1f}k / {status.limit / 1000:.1f}k  {share}"
            )
        async with desk(home, server.base_url, resume="newest") as again:
            await again.ready()
            await again.sees("One.")
            await again.until(lambda: again.text().replace("~", " ") == before.replace("~", " "))
            await again.pilot.press("up")
            await again.until(lambda: again.screen.prompt.area.text == "First")
            await again.say("Second")
            await again.sees("Two.")
            assert "One." in messages(server)


def spoil_the_line(home: Path) -> None:
    """Append an unreadable line and half a record to the files of the only session."""
    (line,) = home.glob("sessions/*/*/context.jsonl")
    line.write_bytes(line.read_bytes() + b"[]\n" + b'{"role":"user","con')


@pytest.mark.exhaustive
async def test_all_that_is_wrong_with_a_session_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.tui.notices.STAYS_S", 0.5)
    async with ChatServer() as server:
        server.script(say("One."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("First")
            await one.sees("One.")
            await one.idle()
        spoil_the_line(home)
        async with desk(home, server.base_url, resume="newest") as again:
            await again.sees("could not be read; they stay in the file")
            await again.sees("is incomplete")


@pytest.mark.exhaustive
async def test_a_new_session_takes_the_place_of_the_old_one(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("One."), say("Two."))
        await one.ready()
        await one.say("First")
        await one.sees("One.")
        await one.idle()
        old = one.screen
        await one.say("/new")
        await one.until(lambda: one.screen is not old and one.screen.conversation.state.ready)
        assert "One." not in one.text()
        await one.say("Second")
        await one.sees("Two.")
        assert "First" not in messages(server)


@pytest.mark.exhaustive
async def test_what_was_before_goes_only_when_it_is_covered(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Drawn while they go, widgets have no styles any more, and that ends the app.
    covered: list[bool] = []
    remove = MainScreen.remove

    def watched(self: MainScreen) -> AwaitRemove:
        covered.append(app_of(self).screen is not self)
        return remove(self)

    monkeypatch.setattr(MainScreen, "remove", watched)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        old = one.screen
        await one.say("/new")
        await one.until(lambda: one.screen is not old and one.screen.conversation.state.ready)
        await one.until(lambda: not old.is_running)
    assert covered == [True]


@pytest.mark.exhaustive
async def test_a_session_that_is_left_before_it_is_opened_leaves_no_coroutine(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        one.screen._open()  # pyright: ignore[reportPrivateUsage]
        opener = one.screen._opener  # pyright: ignore[reportPrivateUsage]
        assert opener is not None
        opener.cancel()
        # Python warns of a coroutine that was made and never began when it is collected.
        assert not inspect.isawaitable(opener._work)  # pyright: ignore[reportPrivateUsage]


async def test_ctrl_c_quits_as_long_as_it_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Callable[[], object]] = []
    set_timer = MainScreen.set_timer

    def kept(screen: Any, delay: float, callback: Any = None, **options: Any) -> Any:
        if delay == STAYS_S:
            # Its time is over when the test says so: on a loaded machine, not before that was seen.
            ends.append(callback)
            delay = 3_600
        return set_timer(screen, delay, callback, **options)

    monkeypatch.setattr(MainScreen, "set_timer", kept)
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.pilot.press("ctrl+c")
        await one.sees("Press Ctrl+C again to quit.")
        # The time is over.
        (end,) = ends
        end()
        await one.until(lambda: "again to quit" not in one.text())
        await one.pilot.press("ctrl+c")
        await one.sees("Press Ctrl+C again to quit.")
        assert one.app.return_code is None
        # Something else is done in between, with the mouse.
        await one.app.on_event(events.MouseDown(None, 9, 9, 0, 0, 1, False, False, False))
        await one.until(lambda: "again to quit" not in one.text())
        assert one.app.return_code is None


@pytest.mark.exhaustive
async def test_ctrl_d_twice_quits_and_stops_nothing(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(stall())
        await one.ready()
        await one.say("Go")
        await one.until(lambda: one.screen.conversation.state.running)
        await one.pilot.press("ctrl+d")
        await one.sees("Press Ctrl+D again to quit.")
        assert one.screen.conversation.state.running
        await one.pilot.press("ctrl+d")
        await one.until(lambda: one.app.return_code == 0)


async def crash(home: Path) -> KimiApp:
    """Return an app in which something breaks; Textual's test driver raises the error again at the end."""
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()

        def broken() -> None:
            raise RuntimeError("broken [/] sk-abcdefgh12345678")

        apps.append(one.app)
        one.app.call_later(broken)
        with pytest.raises(AssertionError, match="crashed"):
            await one.until(lambda: False)
    return one.app


apps: list[KimiApp] = []


async def test_a_crash_is_one_line_and_a_log(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="broken"):
        await crash(home)
    assert "logs/kimi-tui.log" in apps.pop().exit_message
    text = (home / "logs" / "kimi-tui.log").read_text()
    assert "RuntimeError: broken" in text
    assert "12345678" not in text
    assert "Traceback" not in capsys.readouterr().out


LAYOUT = [(120, 40), (104, 30), (80, 24), (60, 20)]


@pytest.mark.sample
@pytest.mark.parametrize("size", LAYOUT)
async def test_everything_stands_where_it_should(home: Path, size: tuple[int, int]) -> None:
    width, height = size
    async with ChatServer() as server, desk(home, server.base_url, size=size) as one:
        await one.ready()
        screen = one.screen
        assert screen.bench.header.region.y == 0
        assert screen.bench.footer.region.y == height - 1
        assert screen.prompt.region.height == (3 if height >= 30 else 1)
        # Widgets that are imported after the first paint are laid out with the next one.
        await one.until(lambda: screen.bench.views.gauge.region.bottom == screen.prompt.region.y)
        pane = one.screen.query_one("#timeline-pane")
        if width >= 100:
            timeline = 38 if width >= 112 else 30
            assert screen.bench.views.timeline.region.width == timeline
            assert screen.transcript.region.width == width - timeline - 1
        else:
            assert not pane.display
            assert screen.transcript.region.width == width
            await one.pilot.press("ctrl+t")
            await one.pilot.pause()
            assert pane.region.right == width
            assert pane.region.width == (42 if width >= 80 else width - 8)
            assert (pane.region.y, pane.region.bottom) == (1, screen.bench.views.gauge.region.y)
            await one.pilot.press("escape")
            await one.pilot.pause()
            assert not pane.display


async def test_hooks_of_a_folder_are_shown_and_run_after_a_yes(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = tmp_path_factory.mktemp("work")
    (work / ".kimi-tui").mkdir()
    (work / ".kimi-tui" / "hooks.toml").write_text(
        "[[hooks]]\nevent = 'PreToolUse'\nmatcher = 'Write'\ncommand = 'exit 2'\n"
    )
    (home / "config.toml").write_text("[[hooks]]\nevent = 'rewind'\ncommand = 'note it'\n")
    async with ChatServer() as server, desk(home, server.base_url, work=work) as one:
        await one.ready()
        await one.sees("This folder has a hook, which does not run until you allow it: use /hooks.")
        await one.say("/hooks")
        await one.sees("(not allowed)")
        shown = one.app.screen
        assert isinstance(shown, ListScreen)
        await one.until(lambda: shown.seen.accepts(time.monotonic()))
        # A hook of the person's own is turned off and on.
        await one.pilot.press("enter")
        await one.sees("The hook is off.")
        await one.pilot.press("enter")
        await one.sees("The hook is on.")
        await one.pilot.press("down", "enter")
        await one.until(lambda: isinstance(one.app.screen, CustomCommandScreen))
        await one.sees("PreToolUse (Write), at most 30 s:")
        question = one.app.screen
        assert isinstance(question, CustomCommandScreen)
        await one.until(lambda: question.seen.accepts(time.monotonic()))
        await one.pilot.press("y")
        await one.sees("The hooks of this folder run from now on.")
        soul = one.screen.conversation.soul
        assert soul is not None
        assert soul.hooks is not None
        assert await soul.hooks.folder_state() == "allowed"
        await one.say("/hooks x")
        await one.sees('"x" is not an argument of /hooks.')
