"""Letters, jumps and world lines on the main screen with the real engine, and what the server is told then."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, say, stall
from support.screens import Desk, desk

from kimi_tui.soul.protocol import Target
from kimi_tui.tui.compare.screen import CompareScreen
from kimi_tui.tui.letter.screen import LetterScreen
from kimi_tui.tui.letter.summary import SummaryScreen
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.worldline.view import LineTranscript


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def told(server: ChatServer, number: int = -1) -> str:
    """What a request said, without the system prompt."""
    return str(server.requests[number].body["messages"][1:])


def chat(one: Desk) -> str:
    """What stands left of the timeline."""
    return "\n".join(line[:81] for line in one.text().split("\n"))


async def two_turns(one: Desk, server: ChatServer) -> None:
    """A conversation of two turns."""
    server.script(say("The apple is red."), say("The pear is green."))
    await one.ready()
    await one.say("Tell me of apples")
    await one.sees("The apple is red.")
    await one.idle()
    await one.say("Tell me of pears")
    await one.sees("The pear is green.")
    await one.idle()


async def a_world_line(one: Desk, server: ChatServer) -> None:
    """Two turns of which the second was left behind, and another in its place."""
    await two_turns(one, server)
    await one.say("/rewind 2")
    await one.until(lambda: isinstance(one.app.screen, RewindScreen))
    await one.pilot.press("r")
    await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")
    server.script(say("The plum is blue."))
    one.screen.prompt.area.put("")
    await one.say("Tell me of plums")
    await one.sees("The plum is blue.")
    await one.idle()


async def test_a_letter_from_the_preview_goes_to_the_past_and_the_agent_goes_on(
    home: Path,
) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await two_turns(one, server)
        await one.say("/rewind 2")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.sees("Send a D-Mail here")
        await one.pilot.press("d")
        await one.until(lambda: isinstance(one.app.screen, LetterScreen))
        assert "D-Mail to #2" in one.text()
        server.script(say("So it is plums."))
        await one.pilot.press(*"plums!", "enter")
        await one.sees("So it is plums.")
        await one.idle()
        assert "plums!" in told(server)
        # What it said there is no message of its own any more.
        roles = [message["role"] for message in server.requests[-1].body["messages"]]
        assert roles.count("assistant") == 1


async def test_the_model_drafts_a_letter_and_an_empty_one_is_not_sent(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await two_turns(one, server)
        await one.say("/dmail 2")
        await one.until(lambda: isinstance(one.app.screen, LetterScreen))
        await one.pilot.press("enter")
        await one.sees("nothing to send")
        server.script(say("Pears are green."))
        await one.pilot.press("ctrl+l")
        screen = one.app.screen
        assert isinstance(screen, LetterScreen)
        await one.until(lambda: screen.area.text == "Pears are green.")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert "The pear is green." in one.text()


async def test_escape_stops_a_draft_and_keeps_what_was_written(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await two_turns(one, server)
        await one.say("/dmail 2")
        await one.until(lambda: isinstance(one.app.screen, LetterScreen))
        screen = one.app.screen
        assert isinstance(screen, LetterScreen)
        server.script(stall())
        sent = len(server.requests)
        await one.pilot.press(*"mine", "ctrl+l")
        await one.until(lambda: len(server.requests) > sent)
        await one.pilot.press("escape")
        await one.until(lambda: not screen.area.read_only)
        assert one.app.screen is screen
        assert screen.area.text == "mine"


async def test_a_letter_by_command(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await two_turns(one, server)
        server.script(say("Grapes, then."))
        await one.say("/dmail 2 think of grapes")
        await one.sees("Grapes, then.")
        await one.idle()
        assert "think of grapes" in told(server)
        await one.say("/dmail nowhere")
        await one.sees("nowhere is no number.")


async def test_a_part_is_compacted_with_words_on_what_to_keep(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await two_turns(one, server)
        await one.say("/rewind 2")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.pilot.press("p")
        await one.until(lambda: isinstance(one.app.screen, LetterScreen))
        assert "Compact up to #2" in one.text()
        server.script(say("Apples were talked of."))
        await one.pilot.press(*"colours", "enter")
        await one.sees("Apples were talked of.")
        await one.idle()
        assert "colours" in told(server)
        assert "The pear is green." in one.text()


async def test_a_world_line_is_read_while_now_goes_on(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await a_world_line(one, server)
        await one.say("/worldline 1")
        shown = await one.sees("World line 1   read only")
        await one.sees("The pear is green.")
        assert "The plum is blue." not in chat(one)
        await one.sees("Reading world line 1. Esc returns to now.")
        assert "left by your rewind to #2" in shown
        assert isinstance(one.app.focused, LineTranscript)
        # What happens now happens behind it.
        server.script(say("The fig is violet."))
        one.screen.conversation.say("Tell me of figs")
        await one.until(lambda: len(server.requests) == 4)
        await one.idle()
        assert "The fig is violet." not in chat(one)
        await one.pilot.press("escape")
        await one.until(lambda: "The fig is violet." in chat(one))
        assert "The pear is green." not in chat(one)
        assert one.app.focused is one.screen.prompt.area


async def test_a_jump_from_the_line_that_is_read(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await a_world_line(one, server)
        await one.say("/worldline 1")
        await one.sees("The pear is green.")
        await one.pilot.press("j")
        await one.sees("World line 1 is live again.")
        await one.sees("The pear is green.")
        assert not one.screen.reading
        assert "The plum is blue." not in one.text()
        server.script(say("Yes."))
        await one.say("So?")
        await one.sees("Yes.")
        await one.idle()
        assert "The pear is green." in told(server)


async def test_a_jump_to_a_chosen_message_puts_it_into_the_prompt(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await a_world_line(one, server)
        await one.say("/worldline 1")
        await one.sees("The pear is green.")
        await one.pilot.press("shift+tab", "shift+tab", "j")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")


async def test_the_timeline_opens_a_world_line(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await a_world_line(one, server)
        await one.pilot.press("ctrl+t")
        timeline = one.screen.views.timeline
        await one.until(lambda: timeline.has_focus)
        timeline.select(("line", 1))
        await one.pilot.press("enter")
        await one.sees("The pear is green.")
        assert one.screen.reading == 1


async def test_a_message_of_another_line_is_sent_to_now(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await a_world_line(one, server)
        await one.say("/worldline 1")
        await one.sees("The pear is green.")
        await one.pilot.press("s")
        await one.until(lambda: isinstance(one.app.screen, LetterScreen))
        assert "The pear is green." in one.text()
        await one.pilot.press(*"mind", "enter")
        await one.until(lambda: not one.screen.reading)
        await one.sees("It stands at the end of the conversation.")
        server.script(say("I do."))
        await one.say("Go")
        await one.sees("I do.")
        await one.idle()
        assert "The pear is green." in told(server)
        assert "mind" in told(server)
        assert "The plum is blue." in told(server)


async def test_a_jump_by_command(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await a_world_line(one, server)
        await one.say("/jump 1:2")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")
        await one.say("/jump 1:x")
        await one.sees("1:x is no number.")
        assert Target(2, 1) != Target(2)


async def test_two_lines_side_by_side(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await a_world_line(one, server)
        await one.say("/worldline 1")
        await one.sees("The pear is green.")
        await one.pilot.press("c")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        shown = await one.sees("both share #0 to #1")
        assert "The pear is green." in shown
        assert "The plum is blue." in shown
        # From the other side's second message: jump to before it.
        await one.pilot.press("down", "j")
        await one.sees("World line 1 is live again at #3.")
        assert not one.screen.reading


async def test_a_message_is_sent_from_the_comparison(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await a_world_line(one, server)
        await one.say("/compare 1")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        await one.pilot.press("n", "s")
        await one.until(lambda: isinstance(one.app.screen, LetterScreen))
        assert "The pear is green." in one.text()
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)


async def test_bookmarks_and_pins_are_kept(home: Path) -> None:
    async with ChatServer() as server:
        async with desk(home, server.base_url, size=(120, 40)) as one:
            await two_turns(one, server)
            await one.pilot.press("ctrl+t")
            timeline = one.screen.views.timeline
            await one.until(lambda: timeline.has_focus)
            await one.pilot.press("b")
            await one.until(lambda: isinstance(one.app.screen, LetterScreen))
            await one.pilot.press(*"good", "enter")
            await one.sees("* good")
            await one.until(lambda: timeline.has_focus)
            await one.pilot.press("down", "P")
            await one.sees("Pinned: neither")
            await one.until(lambda: "‡" in one.text())
            await one.pilot.press("escape")
            await one.say("/pin 0")
            await one.until(lambda: "‡ #0" in chat(one))
            session = one.screen.conversation.engine.soul
            assert session is not None
            session_id = session.session.id
        async with desk(home, server.base_url, size=(120, 40), resume=session_id) as one:
            await one.ready()
            await one.sees("* good")
            assert "‡ #0" in chat(one)
            await one.say("/bookmark 2 better")
            await one.sees("* better")
            await one.say("/pin 0")
            await one.sees("No longer pinned.")
            assert "‡ #0" not in chat(one)


async def test_a_summary_is_read_edited_and_the_edit_undone(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=(120, 40)) as one:
        await two_turns(one, server)
        server.script(say("Fruit was talked of."))
        await one.say("Tell me of nuts")
        await one.sees("Fruit was talked of.")
        await one.idle()
        server.script(say("They like fruit."))
        await one.say("/compact")
        await one.sees("They like fruit.")
        await one.idle()
        await one.pilot.press("ctrl+t", "end")
        timeline = one.screen.views.timeline
        live = timeline.model.tree.live if timeline.model is not None else []
        timeline.select(live[0].row_key)
        await one.pilot.press("enter")
        await one.until(lambda: isinstance(one.app.screen, SummaryScreen))
        assert "Summary at #0" in one.text()
        await one.pilot.press("e")
        await one.until(lambda: isinstance(one.app.screen, LetterScreen))
        await one.pilot.press("ctrl+end", *" Nuts too.", "enter")
        await one.sees("The summary is yours now.")
        await one.sees("They like fruit. Nuts too.")
        await one.say("/undo")
        await one.until(lambda: "Nuts too." not in chat(one))
        await one.say("/summary")
        await one.until(lambda: isinstance(one.app.screen, SummaryScreen))
        await one.pilot.press("u")
        await one.sees("The apple is red.")
