"""The conversation draws the history of a session, and then what happens, also where a part of it cannot be drawn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk
from support.stored_sessions import store_session

from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.feed import HISTORY_SLICE_S
from kimi_tui.tui.views import Views

SAID = "Port the tests"


@pytest.fixture
def session_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stored session of two messages."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    (tmp_path / "app").mkdir()
    return store_session(tmp_path, tmp_path / "app", SAID, "Done.")


async def _said_and_answered(one: Desk, server: ChatServer) -> None:
    server.script(say("Hello."))
    await one.say("Say hello")
    await one.sees("Hello.")
    await one.idle()


async def test_the_timeline_of_a_history_is_laid_out_in_slices_before_it_is_shown(
    tmp_path: Path, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_ready: list[bool] = []
    turns = [0]

    async with ChatServer() as server, desk(tmp_path, server.base_url, resume=session_id) as one:
        conversation = one.screen.conversation

        async def others() -> None:
            while not conversation.state.ready:
                turns[-1] += 1
                await asyncio.sleep(0)

        def settle(views: Views) -> Generator[None]:
            turns.append(0)
            for _ in range(50):
                was_ready.append(conversation.state.ready)
                time.sleep(HISTORY_SLICE_S)
                yield

        monkeypatch.setattr(Views, "settle_history", settle)
        waiting = asyncio.create_task(others())
        await one.ready()
        await waiting
        assert was_ready == [False] * 50
        assert turns[-1] >= 50  # others had their turn in between
        await one.sees(SAID)
        await _said_and_answered(one, server)


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", ["the history", "its timeline", "the end of the history"])
async def test_what_follows_is_drawn_also_where_something_cannot_be(
    tmp_path: Path, session_id: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    where, name = {
        "the history": (Views, "add_history"),
        "its timeline": (Views, "settle_history"),
        "the end of the history": (ConversationController, "_caught_up"),
    }[step]
    works = getattr(where, name)

    def fails(*args: object) -> object:
        if step == "the end of the history":
            works(*args)
        raise ValueError(f"{step} fails")

    monkeypatch.setattr(where, name, fails)
    async with ChatServer() as server, desk(tmp_path, server.base_url, resume=session_id) as one:
        await one.ready()
        await one.sees("kimi-tui had an internal error. You can continue.")
        await _said_and_answered(one, server)
