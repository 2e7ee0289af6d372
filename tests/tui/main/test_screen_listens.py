"""The screen knows of a session what any other listener knows, whoever changed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import desk

from kimi_tui.projection.session_model import SessionModel
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.frame import Header
from kimi_tui.wire import events as ev


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.exhaustive
async def test_the_screen_shows_what_the_engine_was_told_by_another(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("One."), say("Two."))
        await one.ready()
        await one.say("first")
        await one.idle()
        await one.say("second")
        await one.idle()
        soul = await one.screen.conversation.opened()
        await soul.rename("Named by another")
        await soul.set_mode("edits")
        soul.use_tools("off")
        uid = soul.session.context.checkpoints[0].uid
        await soul.marks.bookmark(uid, "Here")
        await soul.marks.pin(uid)
        await soul.travel.rewind(Target(2))
        await soul.travel.undo()
        session = one.screen.bench.views.session
        await one.until(lambda: session.state.mode == "edits" and not session.state.can_resume)
        told, heard = await soul.listen()
        other = SessionModel()
        for record in told:
            other.apply(record)
        soul.wire.unsubscribe(heard)
        await one.until(lambda: session.state.usage == other.state.usage)
        other.settle(running=False)
        assert session.state == other.state == one.screen.conversation.state
        assert session.gauge.freed == other.gauge.freed
        assert session.timeline.bookmarks == other.timeline.bookmarks == {uid: "Here"}
        assert [block.pinned for block in session.chat.blocks] == [
            block.pinned for block in other.chat.blocks
        ]
        heading = one.screen.query_one(Header).heading
        assert (heading.title, heading.mode) == ("Named by another", "edits")
        assert heading.model.endswith("without tools")


@pytest.mark.exhaustive
async def test_an_agent_beside_the_sessions_own_changes_nothing_on_its_screen(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        soul = await one.screen.conversation.opened()
        for event in (
            ev.TurnBegin("words of the other"),
            ev.Notice("warning", "words of the other", topic="the other"),
            ev.SteerTaken("1", "words of the other", withdrawn=True, handed_back=True),
            ev.TurnEnd("done"),
        ):
            soul.wire.publish(event, "explorer")
        await soul.rename("Named afterwards")
        assert "words of the other" not in await one.sees("Named afterwards")
        assert one.screen.prompt.area.text == ""
