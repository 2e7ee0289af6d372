"""The message that a rewind gave back: where it stands after an undo and a redo."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import Desk, desk

from kimi_tui.tui.main.returned import Returned
from kimi_tui.tui.preview.screen import RewindScreen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def rewound(one: Desk, number: int, text: str) -> None:
    """A rewind, and its message in the prompt."""
    await one.say(f"/rewind {number}")
    await one.until(lambda: isinstance(one.app.screen, RewindScreen))
    await one.pilot.press("r")
    await one.until(lambda: one.screen.prompt.area.text == text)


async def test_an_undo_takes_it_away_and_a_redo_gives_it_again(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("The apple is red."), say("The pear is green."))
        await one.ready()
        area = one.screen.prompt.area
        await one.say("Tell me of apples")
        await one.sees("The apple is red.")
        await one.idle()
        await one.say("Tell me of pears")
        await one.sees("The pear is green.")
        await one.idle()
        await rewound(one, 2, "Tell me of pears")
        await rewound(one, 0, "Tell me of apples")
        one.screen.action_command("undo")
        await one.until(lambda: area.text == "")
        await one.sees("The apple is red.")
        one.screen.action_command("undo")
        await one.sees("The pear is green.")
        one.screen.action_command("redo")
        await one.until(lambda: area.text == "Tell me of pears")
        one.screen.action_command("redo")
        await one.until(lambda: area.text == "Tell me of apples")
        area.put("Tell me of apples and more")
        one.screen.action_command("undo")
        await one.sees("The apple is red.")
        assert area.text == "Tell me of apples and more"
        one.screen.action_command("redo")
        timeline = one.screen.views.timeline
        await one.until(lambda: timeline.model is not None and not timeline.model.tree.live)
        assert area.text == "Tell me of apples and more"


def test_what_the_person_wrote_is_left_alone() -> None:
    returned = Returned()
    assert returned.after({"a"}, "hello", again=False) is None
    returned.gave("a", 0, "hello")
    assert returned.after(set(), "hello", again=False) is None, "the rewind itself"
    assert returned.after({"a"}, "hello!", again=False) is None
    assert returned.after({"a"}, "hello", again=False) == ""
    assert returned.after({"a"}, "hello", again=False) is None, "typed once more"
    assert returned.after(set(), "mine", again=True) is None
    assert returned.after({"a"}, "mine", again=False) is None
    assert returned.after(set(), "", again=False) is None, "left by another rewind"


def test_of_several_the_first_is_given_again() -> None:
    returned = Returned()
    returned.gave("late", 6, "late")
    returned.after(set(), "late", again=False)
    returned.gave("early", 2, "early")
    returned.after({"late", "early"}, "", again=False)
    assert returned.after(set(), "", again=True) == "early"
    assert returned.after({"late", "early"}, "early", again=False) == ""
