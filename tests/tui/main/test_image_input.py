"""Images come into the prompt by path, by @ and from the clipboard, as chips, and go with the message wherever that goes."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatServer, gate, say
from support.made_images import flat, noise, saved
from support.screens import Desk, desk
from textual import events

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.images import Image, ImageRefused, read_image
from kimi_tui.projection.blocks import UserBlock
from kimi_tui.tui.desktop import ClipboardContent
from kimi_tui.tui.dialogs.picture import PictureScreen
from kimi_tui.tui.main import image_input
from kimi_tui.tui.main.image_input import MOST, images_at
from kimi_tui.tui.prompt.area import PromptArea, may_be_path

CHIP = "[image shot.png 40x30 ~4]"
SEES = ("image_in", "tools")


def holds(monkeypatch: pytest.MonkeyPatch, clipping: ClipboardContent) -> None:
    """Let the clipboard hold this."""

    def read(environ: object, folders: object) -> ClipboardContent:
        del environ, folders
        return clipping

    monkeypatch.setattr(image_input, "read_clipboard", read)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own with two images in it, and no desktop."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    holds(monkeypatch, ClipboardContent(trouble="Nothing there."))
    (tmp_path / "shot.png").write_bytes(saved(flat(40, 30)))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "own shot.png").write_bytes(saved(noise(20, 20)))
    return tmp_path


def shown_images(body: Any) -> list[str]:
    """Return the beginnings of the images in a request, in order."""
    parts = [
        part
        for message in body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    return [part["image_url"]["url"][:15] for part in parts if part["type"] == "image_url"]


async def paste(one: Desk, text: str, becomes: str) -> None:
    """Paste a text, and wait for what stands in the prompt then."""
    area = one.screen.prompt.area
    area.post_message(events.Paste(text))
    await one.until(lambda: area.text == becomes)


@pytest.mark.parametrize(
    "pasted",
    [
        "{home}/a b.png",
        "'{home}/a b.png'",
        '"{home}/a b.png" ',
        "{home}/a\\ b.png",
        "file://{home}/a%20b.png",
        "file://localhost{home}/a%20b.png\n",
        "~/a b.png",
        "a b.png",
        "./a\\ b.png",
        # Windows copies a path like this, and text of a page may be framed like this.
        "\u202a{home}/a b.png",
        "\ufeff'{home}/a b.png'\u202c",
    ],
)
def test_a_path_is_read_as_terminals_write_it(tmp_path: Path, pasted: str) -> None:
    (tmp_path / "a b.png").write_bytes(saved(flat(4, 4)))
    assert may_be_path(pasted)
    found = images_at(pasted.format(home=tmp_path), tmp_path, tmp_path)
    assert [(image.name, image.width) for image in found] == [("a b.png", 4)]


def test_what_cannot_be_seen_may_be_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "a\u200bb.png").write_bytes(saved(flat(4, 4)))
    assert len(images_at("a\u200bb.png", tmp_path, tmp_path)) == 1


def test_what_is_no_image_stays_text(tmp_path: Path) -> None:
    png = saved(flat(4, 4))
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(png)
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "folder.png").mkdir()
    assert len(images_at("a.png b.png", tmp_path, tmp_path)) == 2
    for pasted in (
        "see text.png",
        "folder.png",
        "gone.png",
        "see a.png",
        "'a.png",
        "file://elsewhere/a.png",
        "file://[brackets/a.png",
        "\0.png",
        " ".join(["a.png"] * (MOST + 1)),
        "",
    ):
        assert images_at(pasted, tmp_path, tmp_path) == [], pasted
    (tmp_path / "photo.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    for pasted, named in (
        ("text.png", "text.png"),
        ("a.png text.png", "text.png"),
        ("photo.HEIC", "photo.HEIC"),
    ):
        with pytest.raises(ImageRefused, match=f"^{named}: unsupported image format"):
            images_at(pasted, tmp_path, tmp_path)
    (tmp_path / "broken.png").write_bytes(png[:40])
    with pytest.raises(ImageRefused, match="broken"):
        images_at("broken.png", tmp_path, tmp_path)


async def test_a_pasted_path_is_a_chip_that_goes_with_the_message(home: Path) -> None:
    async with (
        ChatServer() as server,
        desk(home, server.base_url, capabilities=SEES) as one,
    ):
        server.script(say("a box"), gate(2, say("two")), say("later"))
        await one.ready()
        area = one.screen.prompt.area
        await one.pilot.press(*"what ")
        await paste(one, f"{home}/shot.png", f"what {CHIP} ")
        # A chip is one unit: Backspace after it removes it, cutting a word cuts it, Enter in it opens it.
        await one.pilot.press("backspace", "backspace")
        assert area.text == "what "
        await paste(one, str(home / "shot.png"), f"what {CHIP} ")
        await one.pilot.press("ctrl+w")
        assert area.text == "what "
        await one.pilot.press("ctrl+y")
        assert area.text == f"what {CHIP} "
        await one.pilot.press("home", *["right"] * 5, "delete", "delete")
        assert area.text == "what "
        await paste(one, str(home / "shot.png"), f"what {CHIP} ")
        await one.pilot.press("left", "left")
        await one.sees("opens the image")
        await one.pilot.press("enter")
        await one.until(lambda: isinstance(one.app.screen, PictureScreen))
        await one.sees("40x30")
        await one.until(lambda: "▀▀▀" in one.text())
        await one.pilot.press("escape", "end", *"is it", "enter")
        await one.sees("a box")
        assert shown_images(server.requests[0].body) == ["data:image/png;"]
        assert f"what {CHIP} is it" in json.dumps(server.requests[0].body)
        block = next(b for b in one.screen.transcript.blocks if isinstance(b, UserBlock))
        assert [image.name for image in block.images] == ["shot.png"]
        await one.until(lambda: "▀▀▀" in one.text())
        await one.idle()
        # The arrows bring the message back, with its image; a file of the folder is chosen in the menu.
        await one.pilot.press("up")
        await one.until(lambda: area.text == f"what {CHIP} is it")
        area.put("now @own")
        await one.until(lambda: bool(one.screen.completion.offers(one.screen.prompt.area.written)))
        await one.pilot.press("tab")
        await one.until(lambda: area.text.startswith("now [image own shot.png 20x20"))
        await one.pilot.press("enter")
        await server.at_gate.wait()
        assert len(shown_images(server.requests[1].body)) == 2
        # Into a turn that runs, taken back from there, and for after it: the text has it wherever it goes.
        await paste(one, str(home / "shot.png"), f"{CHIP} ")
        await one.pilot.press("enter")
        await one.until(lambda: len(one.screen.conversation.state.queued) == 1)
        await one.pilot.press("up")
        await one.until(lambda: area.text == f"{CHIP}")
        await one.pilot.press("tab")
        await one.sees(f"queued until the turn ends: {CHIP}")
        server.release()
        await one.sees("later")
        assert len(shown_images(server.requests[2].body)) == 3


@pytest.mark.exhaustive
async def test_an_image_that_comes_between_enter_and_its_message_goes_with_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = threading.Event()

    def slowly(pasted: str, folder: Path, user: Path) -> list[Image]:
        assert may_read.wait(50)
        return images_at(pasted, folder, user)

    monkeypatch.setattr(image_input, "images_at", slowly)
    async with (
        ChatServer() as server,
        desk(home, server.base_url, capabilities=SEES) as one,
    ):
        server.script(say("I see."), say("And I have read."))
        await one.ready()
        area, path = one.screen.prompt.area, f"{home}/shot.png"
        area.post_message(events.Paste(path))
        await one.until(lambda: bool(one.screen.image_input._reading))
        # These are the two steps of Enter.
        written = area.take()
        may_read.set()
        await asyncio.wait(one.screen.image_input._reading)
        area.post_message(PromptArea.Sent(written))
        await one.sees("I see.")
        assert len(shown_images(server.requests[0].body)) == 1
        await one.idle()
        # The image was for that message alone.
        await one.say(f"read {path}")
        await one.sees("And I have read.")
        assert len(shown_images(server.requests[1].body)) == 1
        assert path in json.dumps(server.requests[1].body["messages"])


async def test_enter_right_behind_a_paste_waits_for_the_image(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = saved(flat(40, 30))
    async with (
        ChatServer() as server,
        desk(home, server.base_url, capabilities=SEES) as one,
    ):
        server.script(say("I see one."), say("I see two."))
        await one.ready()
        area = one.screen.prompt.area
        area.post_message(events.Paste(f"{home}/shot.png"))
        await one.pilot.press("enter")
        await one.sees("I see one.")
        assert len(shown_images(server.requests[0].body)) == 1
        await one.idle()
        holds(monkeypatch, ClipboardContent(image))
        await one.pilot.press(*"and ", "ctrl+v", "enter")
        await one.sees("I see two.")
        assert "and [image clipboard 40x30" in json.dumps(server.requests[1].body)
        await one.idle()
        # The same holds if everything is typed faster than it can be read.
        server.script(say("I see four."))
        for key in ("a", "ctrl+v", "b", "enter"):
            area.post_message(events.Key(key, key if len(key) == 1 else None))
        await one.sees("I see four.")
        assert "a[image clipboard 40x30 ~4]b" in json.dumps(server.requests[2].body)
        await one.idle()
        # Text in the clipboard is text, and what is not there is said in a line.
        holds(monkeypatch, ClipboardContent(text="some\ntext"))
        await one.pilot.press("ctrl+v")
        await one.until(lambda: area.text == "some\ntext")
        area.put("")
        holds(monkeypatch, ClipboardContent(trouble="It is gone."))
        await one.pilot.press("ctrl+v")
        await one.sees("It is gone.")
        await one.until(lambda: area.text == "")
        (home / "broken.png").write_bytes(image[:50])
        await paste(one, f"{home}/broken.png", f"{home}/broken.png")
        await one.sees("broken PNG image")


@pytest.mark.exhaustive
async def test_an_image_goes_where_it_was_pasted_whenever_it_comes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter((10, 20, 30, 40))
    later = {20: threading.Event(), 30: threading.Event()}

    def read(environ: object, folders: object) -> ClipboardContent:
        del environ, folders
        size = next(sizes)
        if size in later:
            assert later[size].wait(30)
        return ClipboardContent(saved(flat(size, size)))

    monkeypatch.setattr(image_input, "read_clipboard", read)
    async with (
        ChatServer() as server,
        desk(home, server.base_url, capabilities=SEES) as one,
    ):
        server.script(say("A red box."), say("A blue box."))
        await one.ready()
        area = one.screen.prompt.area
        # The message with the first image waits, and the second image is in the field.
        for key in ("ctrl+v", "enter", "ctrl+v"):
            area.post_message(events.Key(key, None))
        await one.until(lambda: area.text.startswith("[reading the clipboard"))
        assert "10x10" not in area.text
        later[20].set()
        await one.sees("A red box.")
        assert "clipboard 10x10" in json.dumps(server.requests[0].body)
        await one.until(lambda: area.text == "[image clipboard 20x20 ~1] ")
        await one.idle()
        # An image that is deleted before it arrives is not part of the next message.
        area.put("")
        await one.pilot.press("ctrl+v", "ctrl+u")
        later[30].set()
        await one.until(lambda: not one.screen.image_input.reads_for(""))
        for key in ("ctrl+v", "enter"):
            area.post_message(events.Key(key, None))
        await one.sees("A blue box.")
        sent = json.dumps(server.requests[1].body)
        assert "40x40" in sent
        assert "30x30" not in sent


@pytest.mark.exhaustive
async def test_what_is_sent_right_behind_an_image_comes_after_it(home: Path) -> None:
    async with (
        ChatServer() as server,
        desk(home, server.base_url, capabilities=SEES) as one,
    ):
        server.script(say("a box"))
        await one.ready()
        area = one.screen.prompt.area
        await paste(one, str(home / "shot.png"), f"{CHIP} ")
        for key in ("a", "enter", "b", "enter", "c", "enter"):
            area.post_message(events.Key(key, key if len(key) == 1 else None))
        await one.sees("a box")
        await one.idle()
        said = [
            block.text for block in one.screen.transcript.blocks if isinstance(block, UserBlock)
        ]
        assert said == [f"{CHIP} a", "b", "c"]
        assert len(shown_images(server.requests[0].body)) == 1
        # The title has the words and no chip, and so have the rows of the timeline.
        assert one.screen.conversation.state.title == "a"
        model = one.screen.bench.views.timeline.model
        assert model is not None
        rows = [point.words for point in model.tree.live]
        assert rows[0] == "a"


async def test_what_cannot_be_sent_stays_in_the_prompt(home: Path) -> None:
    async with (
        ChatServer() as server,
        desk(home, server.base_url, capabilities=("tools",)) as one,
    ):
        await one.ready()
        area = one.screen.prompt.area
        await paste(one, f"{home}/shot.png", f"{CHIP} ")
        await one.pilot.press("enter")
        await one.sees("does not accept images")
        assert area.text == CHIP
        assert server.requests == []
        assert not one.screen.transcript.blocks
        # A chip of another run, of which nothing is left.
        area.put("see [image gone.png 4x4 ~1]")
        await one.pilot.press("enter")
        await one.sees("Image gone.png 4x4 ~1 no longer exists")
        assert area.text == "see [image gone.png 4x4 ~1]"
        drafts = one.screen.conversation.drafts
        assert drafts is not None
        await drafts.give_back()
        await one.sees("These images could not be kept with the draft: [image gone.png 4x4 ~1]")
        # The image goes along into another session.
        area.put(CHIP)
        before = one.screen
        before.action_command("new")
        await one.until(lambda: one.screen is not before and one.screen.prompt.area.text == CHIP)
        assert one.screen.bench.images[CHIP].image == read_image(saved(flat(40, 30)), "shot.png")


@pytest.mark.exhaustive
async def test_a_rewind_after_a_restart_brings_the_image_back(home: Path) -> None:
    async with ChatServer() as server:
        async with desk(home, server.base_url, capabilities=SEES) as one:
            server.script(say("first"), say("a box"))
            await one.ready()
            await one.say("hello")
            await one.sees("first")
            await one.idle()
            await paste(one, f"{home}/shot.png", f"{CHIP} ")
            await one.pilot.press("enter")
            await one.sees("a box")
            await one.idle()
            soul = one.screen.conversation.soul
            assert soul is not None
            session = soul.session.id
        (home / "shot.png").unlink()
        async with desk(home, server.base_url, capabilities=SEES, resume=session) as one:
            server.script(say("again"))
            await one.ready()
            await one.until(lambda: "▀▀▀" in one.text())
            # In the chat, o opens it.
            one.screen.bench.focus_chat()
            while not isinstance(one.screen.transcript.chosen, UserBlock):
                await one.pilot.press("k")
            await one.pilot.press("o")
            await one.until(lambda: isinstance(one.app.screen, PictureScreen))
            await one.until(lambda: one.text().count("▀▀▀") > 3)
            await one.pilot.press("escape")
            await one.say("/rewind 2")
            await one.confirm("enter")
            area = one.screen.prompt.area
            await one.until(lambda: area.text == CHIP)
            await one.pilot.press("enter")
            await one.sees("again")
            assert shown_images(server.requests[-1].body) == ["data:image/png;"]


@pytest.mark.exhaustive
async def test_a_model_that_does_not_see_is_told_of_them_by_name(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url, capabilities=SEES) as one:
        server.script(say("a box"))
        await one.ready()
        await paste(one, f"{home}/shot.png", f"{CHIP} ")
        await one.pilot.press("enter")
        await one.sees("a box")
        await one.idle()
        launch = one.app.launch
        assert isinstance(launch.choice, ModelChoice)
        blind = launch.choice._replace(model="kimi-blind", capabilities=("tools",))
        one.screen.conversation.use(launch._replace(choice=blind))
        await one.sees("kimi-blind cannot see images")
