"""The screen knows of a session what any other listener knows, whoever changed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from soul.test_listeners import Travels, differ, facts_of
from support.chat_server import ChatServer, say
from support.screens import Desk, desk

from kimi_tui.projection.session_model import SessionModel
from kimi_tui.soul import opening
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


class Watched(Travels):
    """A session that is driven at random beside a screen, which attends to it."""

    desk: Desk

    async def attend(self) -> None:
        pass

    async def reopened(self, what: str) -> None:
        pass

    async def look(self, what: str) -> None:
        """Compare what the listeners know, and what the screen knows once it has heard as much."""
        await super().look(what)
        await self.desk.until(lambda: not self._is_behind)
        shown = self.desk.screen.bench.views.session
        differ(facts_of(shown), facts_of(self.first.model), f"on the screen after {what}")
        assert self.desk.screen.conversation.state == shown.state

    @property
    def _is_behind(self) -> bool:
        self.first.follow()
        shown = self.desk.screen.bench.views.session
        return facts_of(shown) != facts_of(self.first.model)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_the_screen_knows_the_same_after_each_of_many_operations(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    travels = Watched(home, 31, attended=True)
    await travels.open()

    async def opened(*_: object) -> opening.Opened:
        told = list(travels.soul.opened_with)
        return opening.Opened(travels.soul, told, (), travels.model, home, "")

    monkeypatch.setattr(opening, "open_session", opened)
    async with desk(home, "http://127.0.0.1:9/v1") as one:
        travels.desk = one
        await one.ready()
        await travels.go(1_000)
        print(dict(travels.counts), travels.n_joined)
        await travels.end()
