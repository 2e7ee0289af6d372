"""The message that a rewind gave back: where it stands after an undo and a redo."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import Desk, desk, talk
from textual import events

from kimi_tui.tui.main.workbench import ReturnedMessages
from kimi_tui.wire.events import LineChanged, Operation


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def rewound(one: Desk, number: int, text: str) -> None:
    """A rewind, and its message in the prompt."""
    await one.say(f"/rewind {number}")
    await one.confirm("r")
    await one.until(lambda: one.screen.prompt.area.text == text)


@pytest.mark.exhaustive
async def test_a_long_paste_in_it_is_a_chip_again(home: Path) -> None:
    long = "\n".join(f"line {n}" for n in range(30))
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("That is long."))
        await one.ready()
        area = one.screen.prompt.area
        await one.pilot.press(*"see ")
        area.post_message(events.Paste(long))
        await one.until(lambda: area.text == "see [Pasted 30 lines]")
        await one.pilot.press("enter")
        await one.sees("That is long.")
        await one.idle()
        await rewound(one, 0, "see [Pasted 30 lines]")
        one.screen.action_command("undo")
        await one.until(lambda: area.text == "")
        # The same holds if the prompt was emptied meanwhile.
        area.take()
        one.screen.action_command("redo")
        await one.until(lambda: area.message == f"see {long}")
        assert area.text == "see [Pasted 30 lines]"
        # In a fork, which has the words alone, all of it is one.
        before = one.screen
        one.screen.action_command("undo")
        await one.until(lambda: area.text == "")
        # A text that comes back before a draft is put before it, and both keep their pastes.
        area.post_message(events.Paste(f"{long}!"))
        await one.until(lambda: area.text == "[Pasted 30 lines, 2]")
        one.screen.bench.give_back([f"see {long}"])
        assert area.text == "see [Pasted 30 lines]\n\n[Pasted 30 lines, 2]"
        assert area.message == f"see {long}\n\n{long}!"
        area.put("")
        await one.say("/fork 0")
        await one.until(lambda: one.screen is not before and bool(one.screen.prompt.area.text))
        forked = one.screen.prompt.area
        assert (forked.text, forked.message) == ("[Pasted 30 lines]", f"see {long}")


@pytest.mark.exhaustive
async def test_an_undo_takes_it_away_and_a_redo_gives_it_again(home: Path) -> None:
    async with talk(home) as (one, _):
        area = one.screen.prompt.area
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
        timeline = one.screen.bench.views.timeline
        await one.until(lambda: timeline.model is not None and not timeline.model.tree.live)
        assert area.text == "Tell me of apples and more"


@pytest.mark.exhaustive
async def test_a_command_typed_behind_it_is_one(home: Path) -> None:
    async with talk(home) as (one, server):
        area = one.screen.prompt.area
        await rewound(one, 0, "Tell me of apples")
        n_asked = len(server.requests)
        area.focus()
        await one.pilot.press(*" /usage", "enter")
        await one.until(lambda: area.text == "Tell me of apples")
        await one.pilot.press(*"/undo", "enter")
        await one.sees("The apple is red.")
        await one.until(lambda: area.text == "")
        assert len(server.requests) == n_asked


def op(name: str, uid: str = "", line: int = 0) -> LineChanged:
    """Return an operation as the engine tells it."""
    return LineChanged(cast("Operation", name), 1, line, uid)


def test_what_the_user_wrote_is_left_alone() -> None:
    returned = ReturnedMessages()
    assert returned.changed(op("undo", line=1), "hello") is None, "of an operation of another day"
    returned.gave(rewind := op("rewind", "a"), "hello")
    assert returned.changed(rewind, "hello") is None, "the rewind itself"
    assert returned.changed(op("undo", line=1), "hello!") is None
    assert returned.changed(op("redo", line=1), "mine") is None
    assert returned.changed(op("undo", line=1), "mine") is None
    assert returned.changed(op("redo", line=1), "") == "hello"
    assert returned.changed(op("undo", line=1), "hello") == ""


def test_what_stands_behind_it_is_a_command_only_where_it_is_as_it_came() -> None:
    returned = ReturnedMessages()
    assert returned.command_behind("hello /undo") == ""
    returned.gave(rewind := op("rewind", "a"), "hello")
    returned.changed(rewind, "hello")
    assert returned.command_behind("hello/undo") == "/undo"
    assert returned.command_behind("hello\n/rewind 3 ") == "/rewind 3"
    assert returned.command_behind("hello!/undo") == ""
    assert returned.command_behind("hello /undo\nand go on") == ""
    assert returned.command_behind("hell /undo") == ""
    returned.turn_began()
    assert returned.command_behind("hello /undo") == ""


@pytest.mark.parametrize("heard_first", [False, True])
def test_each_operation_gives_its_own_message(heard_first: bool) -> None:
    returned = ReturnedMessages()
    for text in ("late", "early"):
        # To the same checkpoint.
        rewind = op("rewind", "a")
        if heard_first:
            returned.changed(rewind, text)
        returned.gave(rewind, text)
        if not heard_first:
            returned.changed(rewind, text)
    assert returned.changed(op("undo", line=1), "early") == ""
    assert returned.changed(op("undo", line=1), "") is None
    assert returned.changed(op("redo", line=1), "") == "late"
    assert returned.changed(op("redo", line=1), "late") == "early"
    assert returned.changed(op("redo", line=1), "early") is None, "there is no more"


@pytest.mark.parametrize("name", ["dmail", "compaction", "clear", "jump", "files", "rewind"])
def test_no_other_operation_touches_the_prompt(name: str) -> None:
    returned = ReturnedMessages()
    returned.gave(rewind := op("rewind", "a"), "old words")
    returned.changed(rewind, "old words")
    assert returned.changed(op("undo", line=1), "") is None
    # A later operation empties the redo, even if the same checkpoint goes.
    assert returned.changed(op(name, "a", line=1 if name == "jump" else 0), "") is None
    for _ in range(2):
        assert returned.changed(op("undo", line=1), "") is None
        assert returned.changed(op("redo", line=1), "") is None


def test_a_message_that_was_sent_does_not_come_again() -> None:
    returned = ReturnedMessages()
    returned.gave(rewind := op("rewind", "a"), "words")
    returned.changed(rewind, "words")
    returned.turn_began()
    assert returned.changed(op("undo", line=1), "") is None
    assert returned.changed(op("redo", line=1), "") is None, "the line that comes back holds it"


def test_the_message_of_a_jump_goes_with_its_undoing() -> None:
    returned = ReturnedMessages()
    returned.gave(jump := op("jump", "b", line=3), "there")
    assert returned.changed(jump, "there") is None
    assert returned.changed(op("undo", line=4), "there") == ""
    assert returned.changed(op("redo", line=3), "") == "there"


@pytest.mark.exhaustive
async def test_doing_a_dmail_again_never_touches_the_prompt(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        area = one.screen.prompt.area
        server.script(say("First answer."), say("Second answer."))
        await one.ready()
        for text in ("First", "Second"):
            await one.say(f"{text} plain")
            await one.sees(f"{text} answer.")
            await one.idle()
        await rewound(one, 2, "Second plain")
        area.put("")
        await one.say("/undo")
        await one.sees("Second answer.")
        server.script(
            call("SendDMail", {"message": "it is done", "checkpoint_id": 2}),
            say("After the letter."),
        )
        await one.say("Third plain")
        await one.sees("After the letter.")
        await one.idle()
        await one.say("/undo")
        await one.confirm("u", "1 step since then stays as world line 3 (it is done).")
        await one.sees("Undid the D-Mail")
        assert one.screen.bench.views.timeline.model.line_name(3) == "it is done"
        await one.say("/redo")
        await one.sees("Redid the D-Mail")
        await one.sees("After the letter.")
        assert area.text == ""
        server.script(say("Fourth answer."))
        await one.say("Fourth plain")
        await one.sees("Fourth answer.")
        assert str(server.requests[-1].body["messages"]).count("Second plain") == 1
