"""An image through all of time travel, by the keys and commands of a user, and the requests that the server gets then."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.made_images import noise, saved
from support.screens import Desk, desk
from textual import events

from kimi_tui.cli import main
from kimi_tui.tui.compare.screen import CompareScreen
from kimi_tui.tui.dialogs.picture import PictureScreen
from kimi_tui.tui.replay.screen import ReplayScreen

CHIP = "[image shot.png 40x30 ~4]"
SHOT = saved(noise(40, 30))
URL = f"data:image/png;base64,{base64.b64encode(SHOT).decode()}"
SEES = ("image_in", "tools")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


async def asked(one: Desk, server: ChatServer, text: str, answer: str) -> list[str]:
    """Say something; returns the images that went to the server with all that was said before."""
    server.script(say(answer))
    await one.say(text)
    await one.sees(answer)
    await one.idle()
    return server.requests[-1].image_urls


@pytest.mark.exhaustive
async def test_an_image_is_there_wherever_its_message_is(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (home / "shot.png").write_bytes(SHOT)
    async with ChatServer() as server:
        async with desk(home, server.base_url, capabilities=SEES) as one:
            await one.ready()
            await asked(one, server, "hello", "first")
            area = one.screen.prompt.area
            area.post_message(events.Paste(str(home / "shot.png")))
            await one.until(lambda: area.text == f"{CHIP} ")
            (home / "shot.png").unlink()
            assert await asked(one, server, f"what {CHIP}", "a box") == [URL]
            # Rewound it is in the prompt; said in other words it is sent again, from another world line.
            await one.say("/rewind 2")
            await one.confirm("enter")
            await one.until(lambda: area.text == f"what {CHIP}")
            assert await asked(one, server, f"{CHIP} is it large", "small") == [URL]
            await one.sees("is it large")
            # Side by side both show it.
            await one.say("/compare 1")
            await one.until(lambda: isinstance(one.app.screen, CompareScreen))
            await one.until(lambda: any(row.count("▀▀▀") > 1 for row in one.text().split("\n")))
            assert one.text().count("shot.png  40x30") == 2
            await one.pilot.press("escape")
            # Undone, and on that line again by a jump.
            await one.say("/undo")
            await one.confirm("enter")
            await one.sees("a box")
            assert await asked(one, server, "and now", "boxes") == [URL]
            await one.say("/jump 2")
            await one.confirm("enter")
            await one.sees("small")
            assert await asked(one, server, "what else", "nothing") == [URL]
            # A D-Mail to after the message takes the place of the later messages.
            server.script(say("so be it"))
            await one.say("/dmail 3 look again")
            await one.confirm("enter", "Removes")
            await one.sees("so be it")
            await one.idle()
            assert server.requests[-1].image_urls == [URL]
            # In the replay it is shown as in the chat, and opens.
            await one.say("/replay")
            await one.until(lambda: isinstance(one.app.screen, ReplayScreen))
            replay = one.app.screen
            await one.until(lambda: replay.focused is not None)
            await one.pilot.press("end")
            await one.sees("so be it")
            await one.until(lambda: "▀▀▀" in one.text())
            assert isinstance(replay, ReplayScreen)
            rows = one.text().split("\n")
            y = next(y for y, row in enumerate(rows) if "▀▀▀" in row)
            await one.pilot.click(offset=(rows[y].index("▀"), y))
            await one.until(lambda: isinstance(one.app.screen, PictureScreen))
            await one.until(lambda: one.text().count("▀▀▀") > 3)
            await one.pilot.press("escape", "escape")
            await one.until(lambda: one.app.screen is one.screen)
            # A fork has it as well.
            before = one.screen
            await one.say("/fork")
            await one.until(
                lambda: one.screen is not before and one.screen.conversation.state.ready
            )
            assert await asked(one, server, "in the fork", "forked") == [URL]
            # The image is sent once more for the summary.
            server.script(say("A box was seen."))
            await one.say("/compact")
            await one.sees("A box was seen.")
            await one.idle()
            assert URL in server.requests[-1].image_urls
            soul = one.screen.conversation.soul
            assert soul is not None
            forked = soul.session.id
            # None of its rows was drawn as a failed one, not even while they went away.
            assert "A fault" not in caplog.text
        async with desk(home, server.base_url, capabilities=SEES, resume=forked) as one:
            await one.ready()
            await one.say("/undo")
            await one.sees("forked")
            assert await asked(one, server, "after all", "still there") == [URL]
    monkeypatch.chdir(home / "app")
    for command in ("sessions", "checkpoints", "worldlines"):
        assert await asyncio.to_thread(main, [command]) == 0
        shown = capsys.readouterr().out
        assert "hello" in shown or "what" in shown
        assert "[image" not in shown
