"""The draft in the prompt outlives the program: as it was written, once, and for nobody else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.made_images import noise, saved
from support.screens import Desk, desk
from textual import events

from kimi_tui.filesystem import temporary_of
from kimi_tui.images import read_image
from kimi_tui.launch import NEWEST
from kimi_tui.session.store import SessionStore
from kimi_tui.session.unsent import WAITING, finish_writing, read_waiting, write_waiting
from kimi_tui.soul import assembly
from kimi_tui.tui.main.drafts import (
    DRAFT,
    IMAGES,
    Unsent,
    read_draft,
    read_images,
    write_draft,
    write_images,
)
from kimi_tui.tui.prompt.area import Draft, chip_of

SEES = ("image_in", "tools")
LONG = "".join(f"line {n}\n" for n in range(30))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    return tmp_path


def folders(home: Path) -> list[Path]:
    """Return the folders of all sessions."""
    return sorted(home.glob("sessions/*/*"))


def left_over(home: Path) -> list[Path]:
    """Return the temporary files of drafts that never got their name."""
    return [*home.rglob(f".{DRAFT}.tmp")]


def session_dir(one: Desk) -> Path:
    """Return the folder of the session on the screen."""
    soul = one.screen.conversation.soul
    assert soul is not None
    return soul.session.dir


@pytest.mark.exhaustive
async def test_a_draft_is_kept_with_its_chips_and_goes_when_it_is_sent(home: Path) -> None:
    async with ChatServer() as server:
        server.script(say("first"), say("second"))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("hello")
            await one.sees("first")
            await one.idle()
            area = one.screen.prompt.area
            await one.pilot.press(*"see ")
            area.post_message(events.Paste(LONG))
            await one.until(lambda: "Pasted" in area.text)
            kept = session_dir(one) / DRAFT
            await one.until(lambda: kept.exists() and "Pasted" in kept.read_text())
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            # A sent message that is only shown is no draft, and neither is the text of a search.
            await one.pilot.press("home", "up")
            assert (area.text, one.screen.prompt.area.draft.text) == (
                "hello",
                "see [Pasted 30 lines]",
            )
            await one.pilot.press("ctrl+r", *"xyz")
            assert one.screen.prompt.area.draft.text == "see [Pasted 30 lines]"
            await one.pilot.press("escape")
            await one.pilot.press(*"!")
        async with desk(home, server.base_url, resume=NEWEST) as one:
            await one.ready()
            area = one.screen.prompt.area
            await one.until(lambda: area.text == "see [Pasted 30 lines]!")
            assert area.message == f"see {LONG}!"
            await one.pilot.press("enter")
            await one.until(lambda: not kept.exists())
            await one.sees("second")
            await one.idle()
        assert [path for path in kept.parent.iterdir() if DRAFT in path.name] == []


@pytest.mark.exhaustive
async def test_the_draft_of_a_session_without_messages_is_the_next_ones(home: Path) -> None:
    async with ChatServer() as server:
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.pilot.press(*"not yet")
            first = session_dir(one)
            await one.until(lambda: (first / DRAFT).exists())
            # Nobody else gets it while this one is open.
            store = SessionStore(home)
            other = store.create(home / "app")
            other.dir.mkdir(parents=True)
            assert not store.take_over(other, DRAFT)
            other.dir.rmdir()
        assert folders(home) == [first]
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.until(lambda: one.screen.prompt.area.text == "not yet")
            second = session_dir(one)
            assert folders(home) == [second]
            # The draft goes along into another session, and no part of it stays.
            before = one.screen
            before.action_command("new")
            await one.until(lambda: one.screen is not before)
            await one.ready()
            await one.until(lambda: one.screen.prompt.area.text == "not yet")
            third = session_dir(one)
            await one.until(lambda: (third / DRAFT).exists())
            assert folders(home) == [third]
            await one.pilot.press("ctrl+u")
        assert folders(home) == []


@pytest.mark.exhaustive
async def test_a_draft_does_not_come_behind_a_message_that_was_sent_meanwhile(home: Path) -> None:
    async with ChatServer() as server:
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.pilot.press(*"not yet")
            kept = session_dir(one) / DRAFT
            await one.until(kept.exists)
        server.script(say("Heard."))
        async with desk(home, server.base_url) as one:
            one.screen.conversation.say("hello")
            await one.sees("Heard.")
            await one.sees("Text that you did not send last time is in the prompt's history.")
            assert one.screen.prompt.area.text == ""
            await one.pilot.press("up")
            await one.until(lambda: one.screen.prompt.area.text == "not yet")


@pytest.mark.exhaustive
async def test_the_images_of_what_was_not_sent_are_kept_and_go_with_it(home: Path) -> None:
    shot = saved(noise(30, 20))
    async with ChatServer() as server:
        server.script(say("first"))
        async with desk(home, server.base_url, capabilities=SEES) as one:
            await one.ready()
            await one.pilot.press(*"not ")
            first = session_dir(one)
            one.screen.prompt.area.insert(one.app.images.add(read_image(shot, "a b.png")) + " said")
            await one.until(
                lambda: (first / DRAFT).exists() and "a b.png" in (first / DRAFT).read_text()
            )
            assert len(list((first / IMAGES).iterdir())) == 2
            # The figures count it before it is sent.
            await one.sees("+~2 ")
        # The draft of a session without messages belongs to the next session.
        async with desk(home, server.base_url, capabilities=SEES) as one:
            await one.ready()
            area = one.screen.prompt.area
            await one.until(lambda: area.text == "not [image a b.png 30x20 ~2] said")
            kept = session_dir(one)
            assert folders(home) == [kept]
            await one.pilot.press("enter")
            await one.sees("first")
            await one.idle()
            assert server.requests[0].image_urls == [read_image(shot, "").data_url()]
            await one.until(lambda: not (kept / IMAGES).exists())


def test_kept_images_of_anything_are_no_harm(tmp_path: Path) -> None:
    shot, other = (read_image(saved(noise(30, side)), "a.png") for side in (20, 21))
    images = {"[image a.png 30x20 ~2]": shot, "[image a.png 30x21 ~2]": other}
    write_images(tmp_path, images)
    assert read_images(tmp_path) == images
    place = tmp_path / IMAGES
    (place / shot.sha256).write_bytes(b"something else")
    assert [*read_images(tmp_path).values()] == [other]
    secret = tmp_path / "secret"
    secret.write_bytes(shot.data)
    (place / "b").symlink_to(secret)
    fine = {"sha256": other.sha256, "name": "\x1b[2Ja.png"}
    for sha256 in ("../secret", "b", hashlib.sha256(b"no image").hexdigest(), 7):
        index = {"[image a.png 30x20 ~2]": {**fine, "sha256": sha256}, "no chip": fine}
        (place / "index.json").write_text(json.dumps(index))
        assert read_images(tmp_path) == {}
    (place / "index.json").write_text(json.dumps({"[image a.png 30x20 ~2]": fine}))
    assert [image.name for image in read_images(tmp_path).values()] == ["a.png"]
    # Images that are not named any more are deleted, but no files of others.
    write_images(tmp_path, {})
    assert [path.name for path in place.iterdir()] == ["b"]
    (place / "b").unlink()
    write_images(tmp_path, images)
    write_images(tmp_path, {})
    assert not place.exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / shot.sha256).write_bytes(shot.data)
    (elsewhere / "index.json").write_text("precious")
    place.symlink_to(elsewhere)
    for named in (images, {}):
        write_images(tmp_path, named)
        assert {path.name for path in elsewhere.iterdir()} == {shot.sha256, "index.json"}
        assert (elsewhere / "index.json").read_text() == "precious"


def test_a_file_of_anything_is_no_harm(tmp_path: Path) -> None:
    draft = Draft("a [Pasted 30 lines]", {"[Pasted 30 lines]": "x\n" * 30})
    write_draft(tmp_path, draft)
    assert read_draft(tmp_path) == draft
    for content in ("", "[]", '{"text": 7}', "[" * 9_999, '{"pastes": 7}'):
        (tmp_path / DRAFT).write_text(content)
        assert read_draft(tmp_path) == Draft("", {})
    pastes = {
        "x": "y",
        "[Pasted 30 lines]": 7,
        "[Pasted 2 lines, 2]": "\x1b[2Jb\r\nc\n",
        # These chips do not match their texts.
        "[Pasted 1 line]": "a\nb",
        "[Pasted 2 line]": "a\nb",
        "[Pasted 2 lines, 02]": "a\nb",
    }
    (tmp_path / DRAFT).write_text(json.dumps({"text": "t\x1b[31mu", "pastes": pastes}))
    found = read_draft(tmp_path)
    assert "\x1b" not in found.text
    assert found.pastes == {"[Pasted 2 lines, 2]": "b\nc\n"}
    write_draft(tmp_path, Draft())
    assert not (tmp_path / DRAFT).exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [DRAFT, WAITING])
def test_a_large_file_of_anything_costs_no_seconds(tmp_path: Path, name: str) -> None:
    read = read_draft if name == DRAFT else read_waiting
    marks = [("\u202e", 300_000), ("\\u200d", 300_000), ("\x7f", 1_900_000), ("\\u001b", 300_000)]
    for mark, count in marks:
        text = f'"{mark * count}"'
        content = f'{{"text": {text}}}' if name == DRAFT else f"[{text}]"
        (tmp_path / name).write_text(content, "utf-8")
        begun = time.thread_time()
        assert read(tmp_path) in (Draft("", {}), [])
        assert time.thread_time() - begun < 0.4
    # Nobody's disk is filled by what would not be read again.
    with pytest.raises(OSError, match="too long"):
        write_draft(tmp_path, Draft("x" * 3_000_000))
    with pytest.raises(OSError, match="too long"):
        write_waiting(tmp_path, ["x" * 3_000_000])
    assert not (tmp_path / DRAFT).exists()
    assert not (tmp_path / WAITING).exists()
    # As much is stored of ordinary drafts as before.
    long = Draft(
        "see " + chip_of("line\n" * 200_000), {chip_of("line\n" * 200_000): "line\n" * 200_000}
    )
    write_draft(tmp_path, long)
    assert read_draft(tmp_path) == long
    write_waiting(tmp_path, ["a\x1b[2Jb", "c"])
    assert read_waiting(tmp_path) == ["ab", "c"]


@pytest.mark.exhaustive
async def test_a_draft_that_the_disk_does_not_take_is_told_of_and_printed_at_the_end(
    home: Path,
) -> None:
    async with ChatServer() as server:
        server.script(say("first"))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("hello")
            await one.idle()
            in_its_place = session_dir(one) / DRAFT
            in_its_place.mkdir()
            (in_its_place / "x").touch()
            await one.pilot.press(*"precious")
            await one.sees("The text in the prompt cannot be saved as a draft: ")
            (in_its_place / "x").unlink()
            in_its_place.rmdir()
            await one.pilot.press(*" more")
            await one.until(lambda: "cannot be saved" not in one.text())
            assert read_draft(in_its_place.parent).text == "precious more"
            in_its_place.unlink()
            in_its_place.mkdir()
            one.screen.prompt.area.post_message(events.Paste(LONG))
            await one.sees("The text in the prompt cannot be saved as a draft: ")
        lost = one.app.unsent_text
        assert lost.startswith("your unsent text could not be saved: ")
        assert "The text was:\nprecious more" in lost
        assert LONG.strip() in lost
        assert "--session" in one.app.resume_hint  # what was said is there


async def test_trouble_that_the_watchdog_met_first_is_told_of_once(home: Path) -> None:
    async with ChatServer() as server, desk(home, server.base_url) as one:
        await one.ready()
        drafts = one.screen.conversation.drafts
        assert drafts is not None
        (session_dir(one) / DRAFT).mkdir()
        (session_dir(one) / DRAFT / "x").touch()
        await one.pilot.press(*"pre")
        drafts.keep_at_once()
        assert drafts.trouble
        await one.pilot.press(*"cious")
        await one.sees("The text in the prompt cannot be saved as a draft: ")
        assert one.text().count("cannot be saved") == 1
        # Deleted text need not be stored.
        await one.pilot.press("ctrl+u")
        await one.until(lambda: "cannot be saved" not in one.text())
        assert not drafts.trouble


@asynccontextmanager
async def never_open(
    home: Path, server: ChatServer, resume: str | None = None
) -> AsyncIterator[Desk]:
    """Yield an app whose session is not open before its end."""

    async def opened(**parts: object) -> None:
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "open_soul", opened)
        async with desk(home, server.base_url, resume=resume, capabilities=SEES) as one:
            yield one


async def test_text_from_before_the_session_is_open_is_kept_and_given_back(home: Path) -> None:
    async with ChatServer() as server:
        async with never_open(home, server) as one:
            await one.say("a message")
            await one.pilot.press(*"draft ")
            one.screen.prompt.area.post_message(events.Paste(LONG))
            await one.until(lambda: "[Pasted 30 lines]" in one.screen.prompt.area.text)
        assert not one.app.unsent_text
        # It is kept with the session that is continued, if there is one; none is listed.
        assert not SessionStore(home).list()
        async with desk(home, server.base_url, capabilities=SEES) as one:
            await one.ready()
            await one.until(lambda: "a message" in one.screen.prompt.area.text)
            assert one.screen.prompt.area.text.count("draft [Pasted 30 lines]") == 1
            assert one.screen.prompt.area.draft.pastes == {"[Pasted 30 lines]": LONG}


@pytest.mark.exhaustive
async def test_text_from_before_a_session_is_continued_is_kept_with_it(home: Path) -> None:
    async with ChatServer() as server:
        server.script(say("Well."))
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.say("hello")
            await one.idle()
            await one.pilot.press(*"old")
        async with never_open(home, server, NEWEST) as one:
            image = read_image(saved(noise(8, 8)), "a.png")
            await one.pilot.press(*"new ")
            one.screen.prompt.area.insert(one.screen.bench.images.add(image))
        assert not one.app.unsent_text
        async with desk(home, server.base_url, resume=NEWEST, capabilities=SEES) as one:
            await one.ready()
            await one.until(lambda: "new [image " in one.screen.prompt.area.text)
            assert "old" in one.screen.prompt.area.text
            assert not one.screen.bench.images.lost(one.screen.prompt.area.text)


async def test_text_that_cannot_be_kept_without_a_session_is_printed(home: Path) -> None:
    async with ChatServer() as server:
        async with never_open(home, server) as one:
            await one.pilot.press(*"precious")
            (home / "sessions").write_text("no folder")
        assert one.app.unsent_text.endswith("The text was:\nprecious")
        assert "could not be saved: " in one.app.unsent_text


@pytest.mark.exhaustive
async def test_what_a_killed_program_left_of_a_draft_is_given_back_or_removed(home: Path) -> None:
    async with ChatServer() as server:
        async with desk(home, server.base_url) as one:
            await one.ready()
            folder = session_dir(one)
            await one.pilot.press(*"old")
            await one.until(lambda: (folder / DRAFT).exists())
            # The disk is as after a kill before the rename, of a draft and of the first one.
            write_draft(folder, Draft("precious"))
            left = temporary_of(folder / DRAFT)
            kept = (folder / DRAFT).read_bytes()
        (folder / "context.jsonl").touch()
        folder.mkdir(exist_ok=True)
        left.write_bytes(kept)
        async with desk(home, server.base_url) as one:
            await one.ready()
            await one.until(lambda: one.screen.prompt.area.text == "precious")
        assert not left_over(home)


@pytest.mark.parametrize("name", [DRAFT, WAITING, f"{IMAGES}/index.json"])
def test_half_a_file_that_a_killed_program_left_is_removed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('["a"]')
    temporary_of(path).write_text('["a", "b')
    finish_writing(path)
    assert not temporary_of(path).exists()
    assert path.read_text() == '["a"]'
    temporary_of(path).write_text('["a", "b"]')
    finish_writing(path)
    assert path.read_text() == '["a", "b"]'
    # An empty draft leaves nothing either.
    temporary_of(tmp_path / DRAFT).write_text("x")
    write_draft(tmp_path, Draft())
    assert not temporary_of(tmp_path / DRAFT).exists()


@pytest.mark.parametrize("key", ["sk-" + "abcdefgh12345678" * 2, "sk-ab", "a1" * 16])
def test_a_key_behind_a_command_is_not_kept(tmp_path: Path, key: str) -> None:
    write_draft(tmp_path, Draft(f"/model {key}"))
    assert key not in (tmp_path / DRAFT).read_text("utf-8")
    assert read_draft(tmp_path).text == "/model "
    assert key not in Unsent(Draft(f"/model {key}")).words("")
    # A key in a message is a part of the user's text, and is stored.
    write_draft(tmp_path, Draft(f"Look at {key}"))
    assert read_draft(tmp_path).text == f"Look at {key}"
