"""Letters on the main screen with the real engine: reviewed before they are sent, and what they leave standing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.chat_app import is_drawn
from support.chat_server import ChatServer, call, say
from support.screens import Desk, desk

from kimi_tui.config.settings import Config, DMailConfig
from kimi_tui.projection.blocks import AgentBlock, DMailBlock, ToolBlock
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.soul.parts import DMails
from kimi_tui.tui.approval.panel import ApprovalPanel
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.wire.events import ApprovalRequest, ApprovalResolved

REVIEWED = Config(dmail=DMailConfig(review=True))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def mail(text: str, checkpoint_id: int) -> Any:
    """Return an answer of the model that sends a D-Mail."""
    return call("SendDMail", {"message": text, "checkpoint_id": checkpoint_id})


def told(server: ChatServer) -> str:
    """Return the text of the newest request, without the system prompt."""
    return str(server.requests[-1].body["messages"][1:])


async def asked(one: Desk) -> ApprovalPanel:
    """Return the question about the letter, when keys count."""
    await one.sees("Let the agent rewind to #1 with this note")
    panel = one.screen.query_one(ApprovalPanel)
    await one.until(lambda: panel.accepts_keys)
    return panel


async def a_letter(one: Desk, server: ChatServer) -> None:
    """The agent looks, and wants to write to its past self."""
    server.script(call("Glob", {"pattern": "*"}, text="I look."), mail("Nothing is there.", 1))
    await one.ready()
    await one.say("go")


@pytest.mark.exhaustive
async def test_a_letter_is_changed_before_it_is_sent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=REVIEWED) as one:
        await a_letter(one, server)
        await asked(one)
        await one.sees("waiting for your answer")
        # As before a rewind, its cost is shown in words, on the gauge and in the chat.
        shown = await one.sees("Removes 2 steps, 4 messages; frees ~")
        assert "now at #2; files unchanged; /undo reverses it" in shown
        await one.until(lambda: one.screen.transcript._dropped_from == 1)  # pyright: ignore[reportPrivateUsage]
        gauge = next(row for row in shown.split("\n") if " / 32.0k" in row)
        assert "→" in gauge
        # Another question after it changes nothing.
        soul = one.screen.conversation.soul
        assert soul is not None
        foreseen: list[bool] = []
        monkeypatch.setattr(
            one.screen.viewer, "show_prospect", lambda *_, **__: foreseen.append(True)
        )
        for event in (
            ApprovalRequest("x", "", "Shell", "Run it?", "ls"),
            ApprovalResolved("x", "no"),
        ):
            waiting = len(one.screen.conversation.state.approvals)
            soul.wire.publish(event)
            await one.until(lambda n=waiting: len(one.screen.conversation.state.approvals) != n)
        assert not foreseen
        monkeypatch.undo()
        monkeypatch.setenv("KIMI_TUI_HOME", str(home))
        server.script(say("So I ask."))
        await one.pilot.press("c", "ctrl+j", *"/Ask instead.")
        await one.sees("/Ask instead.")
        assert one.screen.completion.command is None
        await one.pilot.press("enter")
        await one.sees("So I ask.")
        await one.idle()
        assert "Nothing is there.\\n/Ask instead." in told(server)
        assert "I look." not in [
            message.get("content") for message in server.requests[-1].body["messages"]
        ]
        assert one.screen.transcript._dropped_from is None  # pyright: ignore[reportPrivateUsage]
        (card,) = [b for b in one.screen.transcript.blocks if isinstance(b, DMailBlock)]
        assert card.text == "Nothing is there.\n/Ask instead."
        assert one.screen.prompt.display


@pytest.mark.exhaustive
async def test_what_a_letter_takes_is_not_told_when_nobody_asks_any_more(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, told_of = asyncio.Event(), asyncio.Event()

    async def late(*_: object) -> None:
        await stopped.wait()
        told_of.set()
        raise UnknownCheckpoint("There is no checkpoint #1 here; there is only #0.")

    async with ChatServer() as server, desk(home, server.base_url, config=REVIEWED) as one:
        monkeypatch.setattr(DMails, "preview", late)
        await a_letter(one, server)
        await asked(one)
        await one.pilot.press("escape")
        await one.idle()
        stopped.set()
        await told_of.wait()
        await one.pilot.pause()
        assert "no checkpoint" not in one.text()
        # If the question is still asked, one line says which part cannot be shown.
        server.script(mail("Nothing is there.", 1))
        await one.say("again")
        await one.sees("Checkpoint #1 of this D-Mail is not on the current world line.")


@pytest.mark.exhaustive
async def test_a_letter_is_turned_down_with_a_reason(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=REVIEWED) as one:
        await a_letter(one, server)
        await asked(one)
        server.script(say("Then I go on."))
        await one.pilot.press("e", *"look again", "enter")
        shown = await one.sees("Then I go on.")
        await one.idle()
        assert "refused it and says: look again" in told(server)
        assert "I look." in told(server)
        assert "you said no" in shown
        assert "You: look again" in shown


@pytest.mark.exhaustive
async def test_a_question_that_is_stopped_leaves_a_stopped_letter(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=REVIEWED) as one:
        await a_letter(one, server)
        panel = await asked(one)
        await one.pilot.press("e")
        await one.until(lambda: panel.query_one(PromptArea).has_focus)
        await one.pilot.press("escape")
        await one.until(lambda: one.app.focused is panel)
        await one.pilot.press("escape")
        await one.idle()
        await one.sees("stopped by you")
        assert not [b for b in one.screen.transcript.blocks if isinstance(b, DMailBlock)]


@pytest.mark.exhaustive
async def test_what_is_pinned_stays_in_sight_and_with_the_model(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(
            call("Glob", {"pattern": "*.a"}, text="Worth keeping."),
            call("Glob", {"pattern": "*.b"}, text="Not worth it."),
            say("Looked."),
        )
        await one.ready()
        await one.say("go")
        await one.idle()
        await one.say("/pin 1")
        await one.sees("‡ #1")
        server.script(say("On it."))
        await one.say("/dmail 1 go on")
        await one.confirm("enter", "Enter send")
        await one.sees("On it.")
        await one.idle()
        assert "Worth keeping." in told(server)
        # Only the facts for the D-Mail tell about the folded part.
        roles = [m["role"] for m in server.requests[-1].body["messages"]]
        assert roles.count("tool") == 1
        for _ in range(2):
            blocks = one.screen.transcript.blocks
            kept = [b for b in blocks if isinstance(b, (AgentBlock, ToolBlock)) and b.pinned]
            assert [type(b).__name__ for b in kept] == ["AgentBlock", "ToolBlock"]
            shown = one.text()
            assert "Worth keeping." in shown
            assert "Not worth it." not in shown
            assert shown.count("‡ #1") >= 2
            # The same from what is stored.
            one.screen.conversation.rebuild()
            await one.until(lambda: one.screen.transcript.blocks[0] is not blocks[0])  # noqa: B023
            await one.until(lambda: is_drawn(one.screen.transcript))
        # The whole part comes back, and the pin is where it was.
        await one.say("/undo")
        await one.confirm("u", "Undo the D-Mail")
        await one.sees("Not worth it.")
        await one.sees("‡ #1")


@pytest.mark.exhaustive
async def test_the_persons_own_letter_is_called_so(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("The apple is red."), say("Plums, then."))
        await one.ready()
        await one.say("Tell me of apples")
        await one.sees("The apple is red.")
        await one.idle()
        await one.say("/dmail 1 plums")
        await one.confirm("enter", "Enter send")
        await one.sees("Plums, then.")
        shown = await one.sees("Your D-Mail  to #1")
        assert "from #1 to #1" not in shown


@pytest.mark.exhaustive
async def test_what_the_user_said_is_not_greyed_while_a_letter_waits(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, config=REVIEWED) as one:
        server.script(say("I began."), mail("Begin otherwise.", 1))
        await one.ready()
        await one.say("go")
        await one.idle()
        await one.say("rather in blue")
        await asked(one)
        chat = one.screen.transcript
        await one.until(lambda: chat._dropped_from == 1)  # pyright: ignore[reportPrivateUsage]
        lost = chat.get_component_rich_style("transcript--lost").color
        greyed = [
            "".join(s.text for s in strip if s.style is not None and s.style.color == lost)
            for strip in chat.render_lines(chat.size.region)
        ]
        assert any("I began." in row for row in greyed)
        assert not any("rather in blue" in row for row in greyed)
