"""Input besides messages and commands: files, the user's own commands, notes, the past, follow-ups, the editor."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from support.chat_server import ChatServer, gate, say, stall, status
from support.screens import desk
from textual import events

from kimi_tui.launch import NEWEST
from kimi_tui.projection.blocks import ToolBlock, UserBlock
from kimi_tui.session.unsent import WAITING
from kimi_tui.tui.main.drafts import DRAFT
from kimi_tui.tui.main.prompt_modes import append_note, edited, is_command, is_note, usual_editor
from kimi_tui.tui.typed_bursts import TypedPaste


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.exhaustive
async def test_a_long_paste_outlives_a_search_and_the_session(home: Path) -> None:
    long = "".join(f"line {n}\n" for n in range(30))
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        before, area = one.screen, one.screen.prompt.area
        area.post_message(events.Paste(long))
        await one.until(lambda: area.text == "[Pasted 30 lines]")
        await one.pilot.press("ctrl+r")
        await one.sees("No message was sent yet")
        await one.pilot.press("escape")
        assert (area.text, area.message) == ("[Pasted 30 lines]", long)
        before.action_command("new")
        await one.until(lambda: one.screen is not before)
        await one.until(lambda: one.screen.prompt.area.message == long)
        await one.ready()


@pytest.mark.exhaustive
async def test_a_command_of_the_user_is_a_card_and_a_follow_up_waits(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(gate(2, say("first")), say("second"))
        await one.ready()
        await one.pilot.press(*"!echo 'from me'")
        await one.sees("the agent sees the output")
        await one.pilot.press("enter")
        await one.until(
            lambda: any(
                isinstance(block, ToolBlock) and block.state == "done"
                for block in one.screen.transcript.blocks
            )
        )
        await one.idle()
        assert server.requests == []
        await one.say("hello")
        await server.at_gate.wait()
        assert "from me" in json.dumps(server.requests[0].body)
        # Tab queues for after the turn, Up takes back, and what waits is on the disk.
        area = one.screen.prompt.area
        for text in ("one more", "and another"):
            area.put(text)
            await one.sees("Tab queues it")
            await one.pilot.press("tab")
        await one.sees("queued until the turn ends: and another")
        await one.pilot.press("up")
        assert area.text == "and another"
        area.put("")
        soul = one.screen.conversation.soul
        assert soul is not None
        kept = soul.session.dir / WAITING
        await one.until(lambda: kept.exists() and json.loads(kept.read_text()) == ["one more"])
        server.release()
        await one.sees("second")
        await one.until(lambda: not kept.exists())
        said = [b.text for b in one.screen.transcript.blocks if isinstance(b, UserBlock)]
        assert said == ["!echo 'from me'", "hello", "one more"]
    # A program that was ended with something waiting gives it back, and keeps it until it is stored as the draft.
    kept.write_text('["left behind"]')
    async with ChatServer() as server, desk(home, server.base_url, resume=NEWEST) as one:
        await one.ready()
        await one.until(lambda: one.screen.prompt.area.text == "left behind")
        await one.until(lambda: not kept.exists())
        assert "left behind" in (kept.parent / DRAFT).read_text()


async def test_what_is_stopped_leaves_nothing_waiting(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(stall())
        await one.ready()
        area = one.screen.prompt.area
        # A command of the user's own: nothing is there for the agent to go on with.
        await one.pilot.press(*"!echo begun; sleep 100", "enter")
        await one.until(lambda: bool(one.screen.conversation.state.commands))
        await one.pilot.press("escape")
        await one.idle()
        assert "to continue" not in str(area.placeholder)
        await one.pilot.press("enter")
        await one.pilot.pause()
        assert server.requests == []
        assert one.screen.conversation.state.title.startswith("!echo")
        # A turn: what waited for its end is the user's again, and goes by the words, not the command, from here on.
        await one.say("hello")
        await one.until(lambda: len(server.requests) == 1)
        assert one.screen.conversation.state.title == "hello"
        for text in ("!one", "two"):
            area.put(text)
            await one.sees("after the turn" if text[0] == "!" else "Tab queues it")
            await one.pilot.press("tab")
        await one.sees("queued until the turn ends: two")
        await one.pilot.press("escape")
        await one.idle()
        # Together they are a message: a blank before it makes no command of it.
        await one.until(lambda: area.text == " !one\n\ntwo")
        assert "after the turn" not in one.text()
        # After an error Enter tries again, so it waits on; Esc gives it back.
        server.script(status(401, {"error": {"message": "no such key"}}))
        area.put("")
        await one.say("again")
        await one.sees("Nothing was lost. Press Enter to try")
        one.screen.conversation.say("later", "after the turn")
        await one.sees("queued until the turn ends: later")
        await one.pilot.press("escape")
        await one.until(lambda: area.text == "later")


@pytest.mark.exhaustive
async def test_a_message_that_looks_like_a_command_stays_one(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        area = one.screen.prompt.area
        for n, text in enumerate((" !touch made", "\n/quit now "), 1):
            server.script(say(f"answer {n}"))
            await one.say(text)
            await one.sees(f"answer {n}")
            await one.idle()
            await one.pilot.press("up")
            assert area.text == f" {text.strip()}"
            await one.say(f"/rewind {2 * n - 2}")
            await one.confirm("enter")
            await one.until(lambda text=text: area.text == f" {text.strip()}")
            # It goes as a message once more, also after it was given back.
            server.script(say(f"again {n}"))
            one.screen.bench.give_back([area.take()])
            await one.pilot.press("enter")
            await one.sees(f"again {n}")
            await one.idle()
        assert not (home / "app" / "made").exists()
        said = [request.messages[-1]["content"] for request in server.requests]
        assert ["!touch made" in str(said[0]), "/quit now" in str(said[-1])] == [True, True]


async def test_a_note_is_asked_about_and_then_written(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        notes = Path(one.screen.transcript.work_dir) / "AGENTS.md"
        notes.write_text("# About\nno end")
        await one.pilot.press(*"#use tabs")
        await one.sees("Adds a line to")
        await one.pilot.press("enter")
        await one.sees("Add this line to")
        assert notes.read_text() == "# About\nno end"
        await one.pilot.press("enter")
        await one.sees("Added to")
        assert notes.read_text() == "# About\nno end\n- use tabs\n"
        # Users of other agents write it like this; without words nothing is noted, and nothing is sent.
        await one.pilot.press(*"# name tests well", "enter")
        await one.sees("Add this line to")
        await one.pilot.press("enter")
        await one.until(lambda: notes.read_text().endswith("- use tabs\n- name tests well\n"))
        await one.pilot.press(*"# ", "enter")
        await one.sees("Type a note after the #")
        assert one.screen.prompt.area.text == "#"
        assert server.requests == []


def test_what_a_note_is(tmp_path: Path) -> None:
    assert is_note("#use tabs")
    assert is_note("# use tabs")
    assert not any(map(is_note, ("## Part", "# Title\n\nText", "#define A\n#define B", " #x")))
    (tmp_path / "AGENTS.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        append_note(tmp_path / "AGENTS.md", "x")
    (tmp_path / "elsewhere").write_text("theirs\n")
    os.link(tmp_path / "elsewhere", tmp_path / "CLAUDE.md")
    with pytest.raises(OSError, match="second hard link"):
        append_note(tmp_path / "CLAUDE.md", "x")
    assert (tmp_path / "elsewhere").read_text() == "theirs\n"


def test_the_editor_gets_the_draft_and_gives_it_back(tmp_path: Path) -> None:
    script = tmp_path / "ed.sh"
    script.write_text("#!/bin/sh\nprintf ' and more\\n' >> \"$1\"\n")
    script.chmod(0o755)
    assert edited([str(script)], "a draft") == "a draft and more"
    assert edited(["false"], "a draft") is None
    # An editor that removes its file has written nothing, and the message does not mention the file.
    assert edited(["rm"], "a draft") is None


@pytest.mark.exhaustive
async def test_long_pastes_come_back_as_the_chips_that_they_were(home: Path) -> None:
    long, other = ("".join(f"{word} {n}\n" for n in range(30)) for word in ("line", "row"))
    async with ChatServer() as server:
        server.script(say("Seen."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            area = one.screen.prompt.area
            await one.pilot.press(*"see ")
            area.post_message(events.Paste(long))
            await one.until(lambda: "Pasted" in area.text)
            await one.pilot.press(*"here", "enter")
            await one.sees("Seen.")
            await one.idle()
            said = f"see {long}here"
            # The draft beside it has a chip of the same name, which the message's chip got afterwards.
            area.post_message(events.Paste(other))
            await one.until(lambda: area.text == "[Pasted 30 lines]")
            await one.pilot.press("home", "up")
            assert (area.text, area.message) == ("see [Pasted 30 lines, 2]here", said)
            assert one.screen.prompt.area.draft.text == "[Pasted 30 lines]"
            await one.pilot.press("down")
            assert (area.text, area.message) == ("[Pasted 30 lines]", other)
            area.take()
            await one.pilot.press("ctrl+r", *"see", "enter")
            await one.until(lambda: area.message == said)
            assert area.text == "see [Pasted 30 lines]here"
            area.take()
        # A message of another run, whose pastes nobody knows, is one chip, which opens.
        async with desk(home, server.base_url) as one:
            await one.ready()
            area = one.screen.prompt.area
            await one.pilot.press("up")
            await one.until(lambda: area.text == "[Pasted 31 lines]")
            assert area.message == said
            await one.pilot.press("up", "down", "up")
            assert area.text == "[Pasted 31 lines]"
            await one.pilot.press("left", "enter")
            assert area.text == said


def test_what_is_pasted_is_no_command() -> None:
    for text in (
        "!ls",
        "!!ls",
        "! ls",
        "!./run",
        "!/bin/ls",
        "!~/bin/x",
        "!",
        "!!",
        "!ls\n",
        "!échos",
    ):
        assert is_command(text), text
    for text in (
        *(
            "!!! danger\n    touch pwned\n    ls",
            "!!! danger",
            "![diagram](a.png)",
            "![a](b)\nExplain",
        ),
        *("!important note\nsecond line", "!=", "!?", "!1", "!\x1b[", " !ls", "x", ""),
    ):
        assert not is_command(text), text


@pytest.mark.exhaustive
async def test_several_pasted_lines_are_a_message_whatever_they_begin_with(home: Path) -> None:
    pasted = [
        "!!! danger\n    touch pwned\n    ls",
        "!touch pwned\n!touch pwned",
        "#x\ny",
        "/quit 1\n2",
    ]
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(*(say("Read.") for _ in pasted))
        await one.ready()
        for n, text in enumerate(pasted, 1):
            keys = [events.Key("x", sign) for sign in text]
            for key in keys:
                if key.character == "\n":
                    key.key = "enter"
            paste = events.Paste(text) if n % 2 else TypedPaste(keys)
            paste.set_sender(one.app)
            one.app.post_message(paste)
            await one.until(lambda text=text: one.screen.prompt.area.text == text)
            await one.pilot.press("enter")
            await one.idle()
            await one.until(lambda n=n: len(server.requests) >= n)
            assert text in json.dumps(server.requests[-1].body, ensure_ascii=False).replace(
                "\\n", "\n"
            )
        assert not await asyncio.to_thread(lambda: [*home.rglob("pwned")])
        # The row over the prompt says so.
        one.screen.prompt.area.put("!!! note")
        await one.sees("This is sent to the agent")


@pytest.mark.exhaustive
async def test_a_pasted_line_is_run_by_no_enter_that_came_with_it(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        server.script(say("Read."))
        await one.ready()
        area = one.screen.prompt.area

        async def send(text: str, apart_s: float) -> None:
            paste, key = events.Paste(text), events.Key("enter", "\r")
            key.time = paste.time + apart_s
            for event in (paste, key):
                event.set_sender(one.app)
                one.app.post_message(event)
                await one.pilot.pause()

        for text in ("!touch ran", "/quit", "#note"):
            await send(text, 0.001)
            await one.sees("was not run")
            assert area.text == text
            await one.pilot.press("ctrl+u")
        # A path is no command; a line that the user's own Enter sends is one.
        await send(f"{home}/a b", 0.001)
        await one.until(lambda: len(server.requests) == 1)
        await one.idle()
        await send("!touch ran", 1.0)
        await one.until((home / "app" / "ran").exists)


def test_where_no_editor_is_set_it_is_vi_or_nano(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, work = tmp_path / "bin", tmp_path / "app"
    for folder, name in ((programs, "nano"), (work, "vi")):
        folder.mkdir()
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}:{programs}")
    # An editor in the work folder is not run.
    assert usual_editor(work) == [str(programs / "nano")]
    (programs / "vi").write_text("#!/bin/sh\n")
    (programs / "vi").chmod(0o755)
    assert usual_editor(work) == [str(programs / "vi")]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert usual_editor(work) == []
