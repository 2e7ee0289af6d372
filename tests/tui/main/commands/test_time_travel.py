"""D-Mails, jumps and world lines on the main screen with the real engine, and what the server is told then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from support.cases import first_only
from support.chat_server import ChatServer, call, gate, say, stall
from support.screens import Desk, desk, talk, two_turns

from kimi_tui.config.settings import Config, DMailConfig
from kimi_tui.soul.errors import SoulBusy
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.operations import Operations
from kimi_tui.soul.rewind_values import END, Target
from kimi_tui.tui.approval.panel import AWAY
from kimi_tui.tui.compare.screen import CompareScreen
from kimi_tui.tui.dialogs.list_screen import ListScreen
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.dialogs.text_screen import SummaryScreen
from kimi_tui.tui.main.commands import rewind as rewind_commands
from kimi_tui.tui.main.commands.rewind import preview
from kimi_tui.tui.preview.layout import PreviewAnswer
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.world_line_view import WorldLineTranscript
from kimi_tui.wire.events import Notice


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def told(server: ChatServer, number: int = -1) -> str:
    """Return the text of a request, without the system prompt."""
    return str(server.requests[number].body["messages"][1:])


def chat(one: Desk) -> str:
    """Return the text left of the timeline."""
    return "\n".join(line[:81] for line in one.text().split("\n"))


async def answered(one: Desk, key: str) -> None:
    """Answer the question on the screen, once it takes keys."""
    panel = one.screen.bench.question  # pyright: ignore[reportPrivateUsage]
    assert panel is not None

    def is_gone() -> bool:
        return one.screen.bench.question is not panel  # pyright: ignore[reportPrivateUsage]

    while not is_gone():
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press(key)
        # On a slow machine, a key that came before the question was painted is dropped, and the wait begins again.
        await one.until(lambda: is_gone() or not panel.accepts_keys)


async def a_world_line(one: Desk, server: ChatServer) -> None:
    """Make two turns, leave the second one, and make another in its place."""
    await two_turns(one, server)
    await one.say("/rewind 2")
    await one.confirm("r")
    await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")
    server.script(say("The plum is blue."))
    one.screen.prompt.area.put("")
    await one.say("Tell me of plums")
    await one.sees("The plum is blue.")
    await one.idle()


@asynccontextmanager
async def a_line_that_is_read(home: Path) -> AsyncIterator[tuple[Desk, ChatServer]]:
    """Yield the first world line, read in the place of the chat."""
    async with talk(home, a_world_line) as (one, server):
        await one.say("/worldline 1")
        await one.sees("Reading world line 1")
        await one.sees("The pear is green.")
        yield one, server


@pytest.mark.exhaustive
async def test_a_letter_from_the_preview_goes_to_the_past_and_the_agent_goes_on(
    home: Path,
) -> None:
    async with talk(home) as (one, server):
        await one.say("/rewind 2")
        await one.confirm("d", "Send a D-Mail here")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.sees("D-Mail to #2")
        server.script(say("So it is plums."))
        await one.pilot.press(*"plums!", "enter")
        await one.sees("So it is plums.")
        await one.idle()
        assert "plums!" in told(server)
        # The message is no separate message any more.
        roles = [message["role"] for message in server.requests[-1].body["messages"]]
        assert roles.count("assistant") == 1


async def test_a_letter_is_drafted_by_the_model_stopped_and_given_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def faulty(*_: object) -> str:
        raise ZeroDivisionError

    async with talk(home) as (one, server):
        await one.say("/dmail 2")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        screen = one.app.screen
        assert isinstance(screen, TextDialog)
        await one.pilot.press("enter")
        await one.sees("The text is empty.")
        server.script(say("Pears are green."))
        await one.pilot.press("ctrl+l")
        await one.until(lambda: screen.area.text == "Pears are green.")
        # Escape stops the next draft and keeps what was written; the second one leaves.
        server.script(stall())
        sent = len(server.requests)
        screen.area.put("mine")
        await one.pilot.press("ctrl+l")
        await one.until(lambda: len(server.requests) > sent)
        await one.pilot.press("escape")
        await one.until(lambda: not screen.area.read_only)
        assert one.app.screen is screen
        assert screen.area.text == "mine"
        # A fault is told, and the editor takes keys again.
        soul = one.screen.conversation.soul
        assert soul is not None
        monkeypatch.setattr(soul.dmails, "draft", faulty)
        await one.pilot.press("ctrl+l")
        await one.sees("kimi-tui had an internal error")
        await one.pilot.press(*" too")
        await one.until(lambda: screen.area.text == "mine too")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        assert "The pear is green." in one.text()


@pytest.mark.exhaustive
async def test_a_letter_by_command(home: Path) -> None:
    async with talk(home) as (one, server):
        await one.say("/dmail 2 think of grapes")
        # Its cost is shown before, as for a rewind.
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.sees("Removes 1 step")
        assert len(server.requests) == 2
        server.script(say("Grapes, then."))
        await one.confirm("enter")
        await one.sees("Grapes, then.")
        await one.idle()
        assert "think of grapes" in told(server)
        # Nothing of it is lost if the user chooses something else after the question.
        rewound = PreviewAnswer("rewind")
        with patch.object(rewind_commands, "choose", return_value=(Target(2), rewound)):
            await one.say("/dmail 2 think of plums")
            await one.sees("Rewound")
        await one.pilot.press("up")
        await one.until(lambda: one.screen.prompt.area.text == "/dmail 2 think of plums")
        one.screen.prompt.area.put("")
        await one.say("/dmail nowhere")
        await one.sees('"nowhere" is not a checkpoint.')


@pytest.mark.exhaustive
async def test_a_part_is_compacted_with_words_on_what_to_keep(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk(home) as (one, server):
        await one.say("/rewind 2")
        await one.confirm("p")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.sees("Compact up to #2")
        server.script(say("Apples were talked of."))
        await one.pilot.press(*"colours", "enter")
        await one.sees("Apples were talked of.")
        await one.idle()
        assert "colours" in told(server)
        assert "The pear is green." in one.text()
        # Before what stayed there is only the summary now: nothing of it is left to compact.
        await one.say("/rewind 1")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        shown = await one.sees("Compact from here on")
        assert "Compact up to here" not in shown
        # A failed action loses no text.
        await one.pilot.press("c")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))

        async def busy(*_: object, **__: object) -> bool:
            raise SoulBusy("The agent is working.")

        monkeypatch.setattr(KimiSoul, "compact", busy)
        await one.pilot.press(*"colours", "enter")
        await one.sees("The agent is working.")
        assert one.screen.prompt.area.text == "colours"


@pytest.mark.exhaustive
async def test_a_world_line_is_read_while_now_goes_on(home: Path) -> None:
    async with talk(home, a_world_line) as (one, server):
        await one.say("/worldline 1")
        shown = await one.sees("World line 1  Tell me of pears")
        await one.sees("The pear is green.")
        assert "The plum is blue." not in chat(one)
        await one.sees(
            "Reading world line 1 (Tell me of pears). Esc returns to the current conversation."
        )
        assert "created by your rewind to #2" in shown
        assert isinstance(one.app.focused, WorldLineTranscript)
        # Later events come after it.
        server.script(say("The fig is violet."))
        one.screen.conversation.say("Tell me of figs")
        await one.until(lambda: len(server.requests) == 4)
        await one.idle()
        assert "The fig is violet." not in chat(one)
        await one.pilot.press("escape")
        await one.until(lambda: "The fig is violet." in chat(one))
        assert "The pear is green." not in chat(one)
        assert one.app.focused is one.screen.prompt.area


@pytest.mark.exhaustive
async def test_a_question_while_a_world_line_is_read(home: Path) -> None:
    async with a_line_that_is_read(home) as (one, server):
        server.script(call("Shell", {"command": "true"}), say("Done."))
        one.screen.conversation.say("Run it")
        await one.sees("Run this command?")
        await one.pilot.click("ApprovalPanel")
        await answered(one, "y")
        await one.idle()
        # The keys return to the line.
        await one.sees("Current   ● the agent is done, 2 steps")
        assert isinstance(one.app.focused, WorldLineTranscript)
        assert "j switch here" in one.text()
        n_asked = len(server.requests)
        server.script(call("Shell", {"command": "echo a"}), call("Shell", {"command": "echo b"}))
        one.screen.conversation.say("Run both")
        # Its keys stay with the line, whose banner says that it waits.
        await one.sees("! the agent is waiting for your answer")
        assert "j switch here" in await one.sees(AWAY)
        # A user who clicks on the question gives it the keys, and gets back those of the line after the answer.
        await one.pilot.click("ApprovalPanel")
        await one.sees("y/n/e answer")
        await answered(one, "y")
        await one.until(lambda: len(server.requests) == n_asked + 2)
        await one.sees(AWAY)
        await one.pilot.press("escape")
        await one.sees("y/n/e answer")
        assert not one.screen.bench.reading
        server.script(say("All of it ran."))
        await answered(one, "y")
        await one.idle()
        assert one.screen.prompt.area.has_focus


@pytest.mark.exhaustive
async def test_what_is_said_of_now_is_true_where_a_line_was_glanced_at_first(home: Path) -> None:
    async with talk(home, a_world_line) as (one, server):
        server.script(gate(1, say("There.")))
        await one.say("Go on")
        await server.at_gate.wait()
        await one.pilot.press("ctrl+t")
        await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
        await one.pilot.press("right_curly_bracket", "left_curly_bracket")
        await one.sees("w read world line")
        await one.sees("the agent works")
        server.release()
        await one.idle()
        await one.sees("the agent is done")
        await one.pilot.press("w")
        assert "the agent works" not in await one.sees("j switch here")
        # The line is shown at its end: the next message is one that is on view.
        top = one.screen.bench.on_view.top
        await one.pilot.press("tab")
        assert one.screen.bench.on_view.chosen is not None
        assert one.screen.bench.on_view.top == top


@pytest.mark.exhaustive
async def test_a_world_line_is_opened_searched_compared_and_left(home: Path) -> None:
    async with talk(home, a_world_line) as (one, _):
        # The header says that another line can only be read.
        assert one.text().splitlines()[0].rstrip().endswith(" ask")
        await one.pilot.press("ctrl+t")
        timeline = one.screen.bench.views.timeline
        await one.until(lambda: timeline.has_focus)
        timeline.select(("line", 1))
        await one.pilot.press("enter")
        await one.sees("The pear is green.")
        assert one.screen.bench.reading == 1
        assert one.text().splitlines()[0].rstrip().endswith("read-only")
        await one.pilot.press("c")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        await one.sees("in common")
        assert one.text().splitlines()[0].rstrip().endswith("read-only")
        await one.pilot.press("escape")
        await one.until(lambda: not isinstance(one.app.screen, CompareScreen))
        await one.pilot.press("escape")
        await one.until(lambda: not one.screen.bench.reading)
        await one.sees("kimi-test   ask")
        # The line is searched.
        one.screen.bench.return_to_prompt()
        await one.say("/worldline 1")
        await one.sees("Reading world line 1")
        await one.pilot.press("ctrl+f", *"pear")
        await one.sees("1 of 2")
        await one.pilot.press("enter")
        assert "↑ previous" in await one.sees("2 of 2")
        # The first Escape ends the search, the second one goes back to now.
        await one.pilot.press("tab")
        await one.sees("n next   N previous")
        await one.pilot.press("escape")
        await one.sees("c compare")
        assert one.screen.bench.reading == 1
        await one.pilot.press("escape")
        assert one.screen.bench.reading == 0
        # The chat is searched, too, and the search key leaves the user's draft alone.
        one.screen.prompt.area.put("a draft")
        await one.pilot.press("ctrl+f", *"plum")
        await one.sees("1 of 2")
        await one.pilot.press("escape")
        assert one.screen.prompt.area.text == "a draft"
        assert one.screen.prompt.area.has_focus
        one.screen.prompt.area.put("")
        await one.say("/search apple")
        await one.sees("1 of 2")
        await one.pilot.press("escape")
        # The program is left while it is read.
        one.screen.bench.return_to_prompt()
        await one.say("/worldline 1")
        await one.sees("Reading world line 1")
        await one.pilot.press("ctrl+c")
        await one.sees("Press Ctrl+C again to quit.")
        assert one.screen.bench.reading == 1
        await one.pilot.press("ctrl+d")
        await one.until(lambda: one.app.return_code == 0)


@pytest.mark.exhaustive
async def test_what_was_sent_to_now_is_undone_and_done_again(home: Path) -> None:
    async with a_line_that_is_read(home) as (one, _):
        await one.pilot.press("s")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.pilot.press("enter")
        await one.sees("The message is at the end of the conversation.")
        await one.until(lambda: "The pear is green." in chat(one))
        await one.pilot.press("ctrl+t", "u")
        await one.sees("Undid the copied messages.")
        await one.until(lambda: "The pear is green." not in chat(one))
        assert "The plum is blue." in chat(one)
        await one.pilot.press("U")
        await one.until(lambda: "The pear is green." in chat(one))


@pytest.mark.exhaustive
async def test_a_warning_stands_once(home: Path) -> None:
    async with talk(home, size=(120, 20)) as (one, _):
        soul = one.screen.conversation.soul
        assert soul is not None
        soul.wire.publish(Notice("warning", "The folder is gone.", "Bring it back."))
        await one.sees("The folder is gone.")
        await one.idle()
        assert one.text().count("The folder is gone.") == 1
        # If the end of the chat is not visible, the notice is above it.
        await one.say("/worldline")
        one.screen.transcript.hold()
        soul.wire.publish(Notice("warning", "The disk is slow."))
        await one.until(lambda: one.text().count("The disk is slow.") >= 1)


async def test_what_is_no_number_is_refused_in_the_same_words(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        for command in ("rewind", "fork", "dmail", "switch", "pin"):
            await one.say(f"/{command} {command[0]}")
            what = "world line" if command == "switch" else "checkpoint"
            await one.sees(f'"{command[0]}" is not a {what}.')
            await one.sees(f"Use a number from the timeline (Ctrl+T), for example /{command} ")
        for command in ("worldline", "compare"):
            await one.say(f"/{command}")
            await one.sees("There is no other world line")


@pytest.mark.exhaustive
async def test_a_jump_from_the_line_that_is_read(home: Path) -> None:
    async with a_line_that_is_read(home) as (one, server):
        await one.pilot.press("j")
        await one.confirm("r", "Switch to the end of world line 1 (Tell me of pears)")
        await one.sees("Switched to world line 1 (Tell me of pears).")
        await one.sees("The pear is green.")
        assert not one.screen.bench.reading
        assert "The plum is blue." not in one.text()
        server.script(say("Yes."))
        await one.say("So?")
        await one.sees("Yes.")
        await one.idle()
        assert "The pear is green." in told(server)


@pytest.mark.exhaustive
async def test_a_jump_to_a_chosen_message_puts_it_into_the_prompt(home: Path) -> None:
    async with a_line_that_is_read(home) as (one, _):
        await one.pilot.press("shift+tab", "shift+tab", "j")
        await one.confirm("r")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")


@pytest.mark.exhaustive
async def test_a_message_of_another_line_is_sent_to_now(home: Path) -> None:
    async with a_line_that_is_read(home) as (one, server):
        await one.pilot.press("s")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.sees("The pear is green.")
        await one.pilot.press(*"mind", "enter")
        await one.until(lambda: not one.screen.bench.reading)
        await one.sees("The message is at the end of the conversation.")
        server.script(say("I do."))
        await one.say("Go")
        await one.sees("I do.")
        await one.idle()
        assert "The pear is green." in told(server)
        assert "mind" in told(server)
        assert "The plum is blue." in told(server)


@pytest.mark.exhaustive
async def test_a_jump_by_command(home: Path) -> None:
    async with talk(home, a_world_line) as (one, _):
        await one.say("/jump 1:2")
        # From a checkpoint of it to its end, and what is there already needs no way there.
        await one.confirm("e", "Switch to #2 of world line 1 (Tell me of pears)")
        await one.sees("Switch to the end of world line 1 (Tell me of pears)")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        await one.say("/jump 1:2")
        await one.confirm("r")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")
        one.screen.prompt.area.put("")
        await one.say("/jump 1:2")
        await one.confirm("y", "The conversation stays as it is.")
        copied = "**You:** Tell me of apples\n\n**Agent:** The apple is red.\n"
        await one.until(lambda: one.app.screen is one.screen and one.app.clipboard == copied)
        await one.say("/jump 1:x")
        await one.sees('"1:x" is not a world line.')
        assert Target(2, 1) != Target(2)


@pytest.mark.exhaustive
async def test_two_lines_side_by_side(home: Path) -> None:
    async with talk(home, a_world_line) as (one, _):
        # A message of the other one can be sent from there.
        await one.say("/compare 1")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        await one.pilot.press("n", "n", "s")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.sees("The pear is green.")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)
        await one.say("/worldline 1")
        await one.sees("Reading world line 1")
        await one.pilot.press("c")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        for said in (
            "in common: #0 to #1",
            "The pear is green.",
            "The plum is blue.",
            "Neither world line has changed a file since they diverged.",
        ):
            await one.sees(said)
        # From the other side's second message: jump to before it.
        await one.pilot.press("down", "down", "j")
        await one.confirm("r")
        await one.sees("Switched to world line 1 (Tell me of pears) at #3; press")
        assert not one.screen.bench.reading


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", first_only([(60, 20), (120, 40)]))
async def test_the_files_of_both_lines_are_compared(home: Path, size: tuple[int, int]) -> None:
    async with ChatServer() as server, desk(home, server.base_url, size=size) as one:
        server.script(
            call("WriteFile", {"path": "a.txt", "content": "1\n2\n3\n"}),
            say("Written."),
            say("Otherwise."),
        )
        await one.ready()
        await one.say("Write")
        await one.until(lambda: one.screen.bench.question is not None)  # pyright: ignore[reportPrivateUsage]
        await answered(one, "y")
        await one.idle()
        await one.say("/rewind 0")
        await one.confirm("f", "1 file deleted")
        await one.until(lambda: one.screen.prompt.area.text == "Write")
        (home / "app" / "b.txt").write_text("mine\n")
        await one.say("/compare 1")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        shown = [line.split() for line in (await one.sees("b.txt")).split("\n")]
        assert ["a.txt", "new", "+3"] in [line[:3] for line in shown]
        assert any("new outside" in " ".join(line) for line in shown if line[:1] == ["b.txt"])
        await one.pilot.press("tab", "tab", "enter")
        await one.sees("+ 1")
        # Whatever is unfolded, the keys stay on the screen.
        assert one.text().split("\n")[-1].strip().startswith("Tab other side")
        await one.pilot.press("enter", "down", "enter")
        await one.sees("+ mine")


@pytest.mark.exhaustive
async def test_an_unfolded_answer_is_brought_into_view(home: Path) -> None:
    async with talk(home, size=(60, 20)) as (one, server):
        await one.say("/rewind 2")
        await one.confirm("r")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")
        server.script(say("\n\n".join(f"Part {n} of **it**." for n in range(20))))
        await one.pilot.press("enter")
        await one.sees("Part 19 of it.")
        await one.idle()
        await one.say("/compare 1")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        await one.sees("+36 lines")
        assert "Tell me of pears" in one.text()
        await one.pilot.press("tab", "down", "down", "enter")
        # The block is higher than the pane, so the text above it scrolls away.
        await one.until(lambda: "Tell me of pears" not in one.text())
        await one.sees("Part 0 of it.")


@pytest.mark.exhaustive
async def test_a_line_whose_messages_are_all_here_has_none_to_send(home: Path) -> None:
    async with talk(home) as (one, _):
        await one.say("/rewind 2")
        await one.confirm("r")
        await one.sees("Rewound; edit your message in the prompt.")
        await one.say("/undo")
        await one.sees("Undid the rewind to #2.")
        await one.say("/compare 1")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        await one.pilot.press("s")
        await one.sees("World line 1 has nothing new: the current world line has all its messages.")


@pytest.mark.exhaustive
@pytest.mark.sample
@pytest.mark.parametrize(
    ("keys", "said", "prompt"),
    [
        (
            ("down", "j"),
            "Switched to world line 1 (Tell me of pears) at #2; edit your",
            "Tell me of pears",
        ),
        (("j",), "Switched to world line 1 (Tell me of pears).", ""),
        (("down", "J"), "Switched to world line 1 (Tell me of pears).", ""),
    ],
    ids=["to its first message", "nothing chosen", "whole"],
)
async def test_a_jump_from_the_comparison(
    home: Path, keys: tuple[str, ...], said: str, prompt: str
) -> None:
    async with talk(home, a_world_line) as (one, _):
        await one.say("/compare 1")
        await one.until(lambda: isinstance(one.app.screen, CompareScreen))
        await one.sees("The pear is green.")
        await one.pilot.press(*keys)
        await one.confirm("r")
        shown = await one.sees(said)
        assert one.screen.prompt.area.text == prompt
        assert ("The pear is green." in shown) == (not prompt)


@pytest.mark.exhaustive
async def test_bookmarks_and_pins_are_kept(home: Path) -> None:
    async with ChatServer() as server:
        async with desk(home, server.base_url, size=(120, 40)) as one:
            await two_turns(one, server)
            await one.pilot.press("ctrl+t")
            timeline = one.screen.bench.views.timeline
            await one.until(lambda: timeline.has_focus)
            await one.pilot.press("b")
            await one.until(lambda: isinstance(one.app.screen, TextDialog))
            await one.pilot.press(*"good", "enter")
            await one.sees("* good")
            await one.until(lambda: timeline.has_focus)
            await one.pilot.press("down", "P")
            await one.sees("Pinned. Compactions")
            await one.until(lambda: "‡" in one.text())
            await one.pilot.press("escape")
            await one.say("/pin 0")
            await one.until(lambda: "‡ #0" in chat(one))
            session = one.screen.conversation.soul
            assert session is not None
            session_id = session.session.id
        async with desk(home, server.base_url, size=(120, 40), resume=session_id) as one:
            await one.ready()
            await one.sees("* good")
            assert "‡ #0" in chat(one)
            await one.say("/bookmark 2 better")
            await one.sees("* better")
            await one.sees("Checkpoint #2 is bookmarked as better.")
            await one.say("/pin 0")
            await one.sees("Unpinned this message.")
            assert "‡ #0" not in chat(one)


@pytest.mark.exhaustive
async def test_a_summary_is_read_edited_and_the_edit_undone(home: Path) -> None:
    async with talk(home, size=(120, 40)) as (one, server):
        server.script(say("Fruit was talked of."))
        await one.say("Tell me of nuts")
        await one.sees("Fruit was talked of.")
        await one.idle()
        server.script(say("They like fruit."))
        await one.say("/compact")
        await one.sees("They like fruit.")
        await one.idle()
        await one.pilot.press("ctrl+t", "end")
        timeline = one.screen.bench.views.timeline
        live = timeline.model.tree.live if timeline.model is not None else []
        timeline.select(live[0].row_key)
        await one.pilot.press("enter")
        await one.until(
            lambda: isinstance(one.app.screen, SummaryScreen) and one.app.screen.seen.is_open
        )
        await one.sees("Summary at #0")
        await one.pilot.press("e")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.pilot.press("ctrl+end", *" Nuts too.", "enter")
        await one.sees("The agent now has your summary.")
        await one.sees("They like fruit. Nuts too.")
        await one.say("/undo")
        await one.until(lambda: "Nuts too." not in chat(one))
        await one.say("/summary")
        await one.until(
            lambda: isinstance(one.app.screen, SummaryScreen) and one.app.screen.seen.is_open
        )
        await one.pilot.press("u")
        await one.sees("The apple is red.")


@pytest.mark.exhaustive
async def test_a_jump_to_a_step_through_the_preview_goes_on_with_enter(home: Path) -> None:
    async with a_line_that_is_read(home) as (one, server):
        one.screen.bench.start(preview(one.screen.parts, Target(3, 1)))
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.sees("Switch to #3 of world line 1 (Tell me of pears)")
        await one.sees("r  Switch the conversation")
        await one.sees("Leaves 2 steps, 2 messages")
        assert "Rewind" not in await one.sees("Left as a world line")
        await one.pilot.press("enter")
        await one.sees("Switched to world line 1 (Tell me of pears) at #3; press Enter in the")
        assert not one.screen.bench.reading
        await one.until(lambda: one.screen.conversation.state.can_resume)
        server.script(say("Pears are green, I say."))
        await one.pilot.press("enter")
        await one.sees("Pears are green, I say.")
        await one.idle()
        assert "Tell me of pears" in told(server)
        assert "plum" not in told(server)


@pytest.mark.exhaustive
async def test_a_message_chosen_in_a_world_line_stays_on_view_when_there_is_less_room(
    home: Path,
) -> None:
    async with talk(home, a_world_line) as (one, server):
        # All of it fits into the larger terminal, so its end is on view, too.
        server.script(say("A fruit.  " * 120))
        await one.say("More of them")
        await one.sees("A fruit.")
        await one.idle()
        await one.say("/rewind 4")
        await one.confirm("r")
        await one.until(lambda: one.screen.prompt.area.text == "More of them")
        one.screen.prompt.area.put("")
        await one.say("/worldline 2")
        await one.sees("World line 2")
        line = one.screen.bench.on_view
        assert isinstance(line, WorldLineTranscript)
        line.show_checkpoint(4)
        assert "More of them" in chat(one)
        await one.pilot.resize_terminal(60, 20)
        await one.pilot.pause()
        assert "More of them" in one.text()


@pytest.mark.exhaustive
async def test_the_row_of_the_first_turn_and_its_preview_say_the_same_figure(home: Path) -> None:
    async def same_figure(one: Desk) -> None:
        model, soul = one.screen.bench.views.timeline.model, one.screen.conversation.soul
        assert model is not None
        assert soul is not None
        preview = await soul.travel.preview(Target(0))
        freed = preview.tokens_before - preview.tokens_after
        assert abs(model.frees(model.tree.live[0]) - freed) <= 1
        assert preview.estimated
        assert not model.tree.live[0].measured

    async with ChatServer() as server:
        # Far from what was guessed before the server had said anything.
        server.script(say("Well.", usage=(9_000, 40)), say("Well.", usage=(9_100, 40)))
        async with desk(home, server.base_url) as one:
            await one.say("What is a plum?")
            await one.sees("Well.")
            await one.idle()
            await one.say("And a pear?")
            await one.until(lambda: len(server.requests) == 2)
            await one.idle()
            await same_figure(one)
        async with desk(home, server.base_url, resume="newest") as again:
            await again.ready()
            await same_figure(again)


@pytest.mark.exhaustive
async def test_clear_empties_the_chat_and_undo_brings_it_back(home: Path) -> None:
    async with talk(home) as (one, server):
        await one.say("/clear")
        await one.sees("Cleared. The agent no longer sees")
        await one.until(lambda: "The pear is green." not in chat(one))
        await one.until(lambda: one.screen.bench.views.timeline.model is not None)
        await one.sees("◊ 1   Tell me of")
        await one.say("/clear")
        await one.sees("There is nothing to clear.")
        server.script(say("The plum is blue."))
        await one.say("Tell me of plums")
        await one.sees("The plum is blue.")
        await one.idle()
        assert "apple" not in told(server)
        # The messages since then are undone with it: they are named before, and are in the chat after it.
        await one.say("/undo")
        await one.confirm("escape", "Undo /clear")
        await one.until(lambda: one.app.screen is one.screen)
        assert "The plum is blue." in chat(one)
        await one.say("/undo")
        # The line is called before there is one as it is called then.
        toll = "2 steps since then stay as world line 2 (Tell me of plums)"
        await one.confirm("u", f"{toll}.")
        await one.sees("The pear is green.")
        await one.sees(f"◊ Undo: {toll}")
        # The row of the chat says it, and no notice again.
        assert not any("Undid" in notice.text for notice in one.screen.bench.notices)
        assert one.screen.bench.views.timeline.model.line_name(2) == "Tell me of plums"
        assert "The plum is blue." not in chat(one)
        await one.say("/redo")
        await one.until(lambda: "The pear is green." not in chat(one))


@pytest.mark.exhaustive
async def test_without_dmails_no_key_offers_one(home: Path) -> None:
    config = Config(dmail=DMailConfig(enabled=False))
    async with talk(home, config=config) as (one, server):
        await one.say("/rewind 2")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        assert "D-Mail" not in one.text()
        await one.pilot.press("d")
        assert isinstance(one.app.screen, RewindScreen)
        await one.pilot.press("escape")
        await one.until(lambda: not isinstance(one.app.screen, RewindScreen))
        await one.say("/dmail 2")
        await one.sees("D-Mails are off")
        assert "SendDMail" not in str(server.requests[-1].body)


@pytest.mark.exhaustive
async def test_tools_are_listed_and_turned_off_and_on(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        await one.say("/tools")
        await one.sees("All tools are on: ReadFile")
        await one.say("/tools off")
        await one.sees("gets no tools from the next request on")
        server.script(say("The apple is red."))
        await one.say("Tell me of apples")
        await one.sees("The apple is red.")
        await one.idle()
        assert "tools" not in server.requests[-1].body
        await one.say("/tools")
        await one.sees("Tools are off: ReadFile")
        await one.say("/tools on")
        await one.sees("gets all tools from the next request on")
        await one.say("/tools lean")
        await one.sees("gets a short system prompt and a few tools")
        await one.sees("kimi-test lean")
        await one.say("/tools add glob")
        await one.sees("these tools from the next request on: ReadFile")
        await one.say("/tools add Nothing")
        await one.sees('"Nothing" is not a tool.')
        await one.say("/tools most")
        await one.sees('"most" is not a setting of /tools.')
        server.script(say("Pears are green."))
        await one.say("Tell me of pears")
        await one.sees("Pears are green.")
        assert len(server.requests[-1].body["tools"]) == 6


@pytest.mark.exhaustive
async def test_what_a_dmail_carried_over_are_rows_of_which_one_comes_back(home: Path) -> None:
    async with talk(home) as (one, server):
        server.script(
            call("SendDMail", {"message": "Skip fruit.", "checkpoint_id": 1}), say("No fruit then.")
        )
        await one.say("Tell me of plums")
        await one.sees("No fruit then.")
        await one.idle()
        shown = await one.sees("D-Mail from")
        pane = [line[82:] for line in shown.split("\n")]
        rows = [row for row in pane if "#1 " in row or "● │" in row or "─◊" in row]
        said = [next(w for w in ("D-Mail", "plums", "pears", "◊") if w in row) for row in rows]
        # The newest comes first; the D-Mail comes after the messages that it carried over, and has the number of all three.
        assert said == ["D-Mail", "plums", "pears", "◊"], pane
        await one.pilot.press("ctrl+t")
        await one.sees("▌● │     Tell me of plums")
        await one.pilot.press("left_square_bracket", "enter")
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        preview = await one.sees("● Tell me of plums")
        assert "● Tell me of pears" not in preview
        await one.pilot.press("r")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of pears")


@pytest.mark.exhaustive
async def test_a_preview_ends_where_the_line_becomes_another_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, undo = asyncio.Event(), Operations.undo

    async def slow(self: Operations, line_name: str) -> str:
        await go_on.wait()
        return await undo(self, line_name)

    def jump() -> None:
        one.screen.bench.start(preview(one.screen.parts, Target(END, 1)), opens=True)

    async with talk(home) as (one, _):
        soul = one.screen.conversation.soul
        assert soul is not None
        await soul.travel.rewind(Target(2))
        await one.until(lambda: "The pear is green." not in one.text())
        monkeypatch.setattr(Operations, "undo", slow)
        # Undone, and at once what was selected is to be jumped to; and undone once more.
        one.screen.action_command("undo")
        await one.until(lambda: soul.running)
        jump()
        one.screen.action_command("undo")
        go_on.set()
        await one.sees("The pear is green.")
        shown = await one.sees("There is nothing to undo")
        assert "working" not in shown
        assert one.app.screen is one.screen
        # This jumps to a visible line.
        jump()
        await one.until(
            lambda: isinstance(one.app.screen, RewindScreen) and one.app.screen.accepts_keys
        )
        await soul.travel.redo()
        await one.sees("The conversation has changed since you chose.")
        assert one.app.screen is one.screen
        # A D-Mail that is being written to it: the words are not lost.
        await one.say("/dmail 1")
        await one.until(lambda: isinstance(one.app.screen, TextDialog))
        await one.pilot.press(*"plums")
        go_on.set()
        await soul.travel.undo()
        await one.until(lambda: one.app.screen is one.screen)
        await one.until(lambda: one.screen.prompt.area.text == "plums")


def _offered(one: Desk) -> str:
    """What `/compare` without a number has led to; empty while there is nothing."""
    if isinstance(one.app.screen, CompareScreen):
        return "compared"
    if isinstance(one.app.screen, ListScreen):
        return "list"
    text = one.text()
    return (
        "none" if "There is no other world line" in text else "busy" if "is working" in text else ""
    )


@pytest.mark.exhaustive
async def test_a_comparison_without_a_number_always_shows_something(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, mode="all") as one:

        def is_clear() -> bool:
            one.screen.bench.chat_pane.dismiss()
            return not _offered(one)

        async def offers(expected: str) -> None:
            """Ask twice for a comparison, each time with the same outcome."""
            for _ in range(2):
                await one.until(is_clear)
                await one.say("/compare")
                await one.until(lambda: _offered(one) == expected)
                for _ in range(2):
                    if one.app.screen is not one.screen:
                        await one.pilot.press("escape")
                        await one.pilot.pause()
            await one.until(is_clear)

        await one.ready()
        await offers("none")
        for fruit in ("apples", "pears", "plums", "limes"):
            server.script(say(f"Of {fruit}. " * 400))
            await one.say(f"Tell me of {fruit}")
            await one.idle()
        await offers("none")
        # A compaction leaves one line, which is compared without a question.
        server.script(say("About fruit."))
        await one.say("/compact")
        await one.until(lambda: bool(one.screen.bench.views.timeline.model.tree.lines))
        await one.idle()
        await offers("compared")
        # A D-Mail leaves another one.
        server.script(call("SendDMail", {"checkpoint_id": 3, "message": "Be short."}), say("Red."))
        await one.say("Tell me of cherries")
        await one.idle()
        await one.until(lambda: len(one.screen.bench.views.timeline.model.tree.lines) == 2)
        await offers("list")
        await one.say("/undo")
        await one.confirm("u", "Undo the D-Mail")
        await one.sees("Undo: ")
        await offers("list")
        server.script(gate(1, say("Green.")))
        await one.say("Tell me of kiwis")
        await one.until(lambda: one.screen.conversation.running)
        await offers("busy")
        server.release()
        await one.idle()
        # From the list it goes on to the comparison.
        await one.say("/compare")
        await one.asked(ListScreen)
        await one.pilot.press("down", "enter")
        await one.until(lambda: _offered(one) == "compared")
        await one.sees("World line 1")


async def test_a_world_line_is_named_by_its_number_or_by_the_name_that_is_shown(home: Path) -> None:
    async with talk(home, a_world_line) as (one, _):
        await one.say("/name 1 the First try")
        await one.sees("the First try")
        for name in ("the first TRY", "000000000001", "1"):
            await one.say(f"/compare {name}")
            await one.until(lambda: isinstance(one.app.screen, CompareScreen))
            await one.pilot.press("escape")
            await one.until(lambda: not isinstance(one.app.screen, CompareScreen))
        await one.say("/compare 7")
        await one.sees("There is no world line 7. The timeline lists them.")
        # The beginning of a number is another number.
        await one.say("/compare 1000000000")
        await one.sees('"1000000000" is not a world line.')
        await one.say("/worldline 8")
        await one.sees("There is no world line 8. The timeline lists them.")
        await one.say("/rewind 2")
        await one.confirm("r")
        await one.until(lambda: one.screen.prompt.area.text == "Tell me of plums")
        one.screen.prompt.area.put("")
        await one.say("/name 2 The first try")
        await one.sees("The first try")
        await one.say("/compare the first try")
        await one.sees('"the first try" is the name of 2 world lines.')
