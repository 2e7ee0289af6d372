"""Images in the running engine: what the model is sent, what is stored, and that nothing which moves messages loses one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture
from support.chat_server import call, calls, gate, say
from support.faulty_storage import FullStorage
from support.made_images import flat, noise, saved
from support.soul import Stage, next_event, stage

from kimi_tui.config.settings import DMailConfig
from kimi_tui.filesystem import Storage
from kimi_tui.images import Image, image_tokens, read_image
from kimi_tui.llm.errors import ModelCannotSee
from kimi_tui.llm.message import ImagePart, ImageURL, Message, TextPart
from kimi_tui.projection.blocks import ToolBlock, UserBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session import images as session_images
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.images import IMAGES_NAME
from kimi_tui.soul.history import session_history
from kimi_tui.soul.messages import image_blocks
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tool_cards import BriefBlock, ImageBlock
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import images_of

SEES = ["image_in"]
MARKERS = re.compile(r"\s*<system>CHECKPOINT \d+</system>\s*")
SHOT = read_image(saved(flat(560, 280)), "shot.png")
NOISE = read_image(saved(noise(90, 70)), "noise.png")


def contents(on: Stage, number: int = -1) -> list[list[str]]:
    """Return the user's content in one request, message by message: texts, and images by name."""
    names = {one.data: one.name for one in (SHOT, NOISE)}
    found: list[list[str]] = []
    for message in on.server.requests[number].messages[1:]:
        if message["role"] != "user":
            continue
        content: Any = message["content"]
        parts: list[dict[str, Any]] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        row: list[str] = []
        for part in parts:
            if part["type"] == "text":
                row += [text for text in [MARKERS.sub("\n\n", part["text"]).strip()] if text]
                continue
            head, _, data = part["image_url"]["url"].partition(";base64,")
            assert head == "data:image/png"
            assert part.keys() == {"type", "image_url"}
            assert part["image_url"].keys() == {"url"}
            row.append(names[base64.b64decode(data)])
        found.append(row)
    return found


def images_behind(on: Stage, words: str) -> list[str]:
    """Return the images that were sent last behind these words, up to the next words."""
    parts = [part for row in contents(on) for part in row]
    behind = parts[parts.index(words) + 1 :]
    return list(takewhile(lambda part: part.endswith(".png"), behind))


def stored(on: Stage) -> list[str]:
    folder = on.session.dir / IMAGES_NAME
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def shown(on: Stage) -> list[tuple[str, list[str]]]:
    model = TranscriptModel()
    for record in session_history(on.session):
        model.apply(record)
    return [(b.text, [i.label for i in b.images]) for b in model.blocks if isinstance(b, UserBlock)]


async def test_images_go_with_words_are_stored_once_and_told_of_by_facts(tmp_path: Path) -> None:
    async with stage(tmp_path, capabilities=SEES) as on:
        (on.work / "named.jpg").write_bytes(NOISE.data)
        on.server.script(gate(3, call("Glob", {"pattern": "*"})), say("seen"), say("again"))
        turn = asyncio.create_task(on.soul.run("look at @named.jpg, and this", [SHOT]))
        await on.server.at_gate.wait()
        on.soul.say("and once more", [SHOT])
        taken_back = on.soul.inbox.take_back(on.soul.say("not this", [NOISE]))
        assert taken_back is not None
        assert taken_back.images == (NOISE,)
        on.server.release()
        await turn
        before = on.soul.used
        await on.soul.run("", [SHOT])
        # The pasted images come first after the text; a message may be an image alone.
        assert contents(on) == [
            ["look at @named.jpg, and this", "shot.png", "noise.png"],
            ["and once more", "shot.png"],
            ["shot.png"],
        ]
        assert stored(on) == sorted(f"{one.sha256}.png" for one in (SHOT, NOISE))
        context, record = (
            (on.session.dir / name).read_bytes() for name in ("context.jsonl", "wire.jsonl")
        )
        for written in (context, record):
            assert b"base64" not in written
            assert len(written) < 30_000
        # kimi-cli reads the same keys of an image.
        part = json.loads(context.splitlines()[3])["content"][1]
        assert part["type"] == "image_url"
        assert part["image_url"]["url"] == f"images/{SHOT.sha256}.png"
        (begun, last) = on.ear.of(ev.TurnBegin)
        assert begun.images == (ImageBlock.of(SHOT),)
        assert [one.name for one in on.ear.of(ev.FilesAttached)[0].images] == ["named.jpg"]
        assert on.ear.of(ev.SteerTaken)[-1].images == (ImageBlock.of(SHOT),)
        assert not last.resumed
        assert (await on.soul.image(begun.images[0])) == SHOT
        assert image_tokens(SHOT.width, SHOT.height) == 200
        assert before + 150 < on.soul.used
        told = [
            ("look at @named.jpg, and this", ["image shot.png 560x280", "image named.jpg 90x70"]),
            ("and once more", ["image shot.png 560x280"]),
            ("", ["image shot.png 560x280"]),
        ]
        assert shown(on) == told
        assert [row.label for row in await on.checkpoints()][-2] == "Image shot.png"
        # From the context alone, and as a new process sends it.
        sent = contents(on)
        await on.soul.aclose()
        (on.session.dir / "wire.jsonl").unlink()
        await on.reopen()
        assert shown(on) == told
        on.server.script(say("fine"))
        await on.soul.run("well?")
        assert contents(on)[:3] == sent


async def test_a_model_that_sees_nothing_gets_none_and_nothing_is_stored(tmp_path: Path) -> None:
    async with stage(tmp_path, seeing=("kimi", "gpt")) as on:
        (on.work / "big.png").write_bytes(saved(noise(200, 200)))
        (on.work / "app.py").write_text("x\n")
        with pytest.raises(ModelCannotSee, match=r"stand-in does not accept images.*: kimi, gpt"):
            await on.soul.run("look", [SHOT])
        with pytest.raises(ModelCannotSee):
            await on.soul.run("look at @big.png and @app.py")
        with pytest.raises(ModelCannotSee):
            on.soul.say("look", [SHOT])
        assert not on.ear.of(ev.TurnBegin)
        assert not on.session.context.messages
        assert not stored(on)
        on.server.script(
            gate(2, call("ReadFile", {"path": "big.png"})), say("I cannot see it"), say("well")
        )
        turn = asyncio.create_task(on.soul.run("look at @app.py and the image"))
        await on.server.at_gate.wait()
        on.soul.say("that is @big.png")
        on.server.release()
        await turn
        assert "not text, and you cannot see images" in str(on.sent(1))
        assert on.ear.of(ev.FilesAttached)[-1].files == (
            "big.png not attached: this model cannot see images",
        )


async def test_an_earlier_image_is_a_text_to_a_model_that_sees_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, capabilities=SEES) as on:
        on.server.script(say("seen"), say("go on"))
        await on.soul.run("look", [SHOT])
        on.capabilities = []
        await on.reopen()
        await on.soul.run("what was it?")
        assert "[an image that this model cannot see]" in on.sent()[0][1]


async def test_an_image_that_a_tool_reads_follows_the_results_of_its_step(tmp_path: Path) -> None:
    async with stage(tmp_path, capabilities=SEES) as on:
        (on.work / "noise.png").write_bytes(NOISE.data)
        (on.work / "app.py").write_text("x\n")
        (on.work / "broken.png").write_bytes(NOISE.data[:-100])
        (on.work / "large.png").write_bytes(saved(flat(2_400, 240)))
        on.server.script(
            calls([("ReadFile", {"path": p}) for p in ("noise.png", "broken.png", "app.py")]),
            calls([("ReadFile", {"path": "large.png"})]),
            say("seen"),
        )
        await on.soul.run("look")
        second, third = on.server.requests[1].messages, on.server.requests[2].messages
        assert [m["role"] for m in second][2:] == ["assistant", "tool", "tool", "tool", "user"]
        assert "An image, 90x70, 19.0 kB" in second[3]["content"]
        assert "broken.png is a broken PNG image" in second[4]["content"]
        assert contents(on, 1)[-1] == ["Images of the results above:", "noise.png"]
        assert "2000x200" in third[8]["content"]
        assert "of a file of" in third[8]["content"]
        assert len(stored(on)) == 2
        displays = [result.display for result in on.ear.of(ev.ToolResult)]
        assert (BriefBlock("90x70"), ImageBlock.of(NOISE)) in displays
        assert "base64" not in str(on.file())
        await on.soul.aclose()
        (on.session.dir / "wire.jsonl").unlink()
        model = TranscriptModel()
        for record in session_history(on.session):
            model.apply(record)
        cards = [block.display for block in model.blocks if isinstance(block, ToolBlock)]
        assert cards[0] == (ImageBlock.of(NOISE),)


async def test_reading_an_image_asks_where_reading_a_text_does(tmp_path: Path) -> None:
    outside = tmp_path / "outside.png"
    outside.write_bytes(SHOT.data)
    async with stage(tmp_path, capabilities=SEES, mode="ask") as on:
        (on.work / ".env").write_bytes(SHOT.data)
        (on.work / "link.png").symlink_to(outside)
        on.server.script(
            calls([("ReadFile", {"path": p}) for p in (".env", "link.png")]), say("ok")
        )
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("use @.env and @link.png and @../outside.png"))
        for _ in range(2):
            on.soul.answer((await next_event(heard, ev.ApprovalRequest)).id, "no", "no")
        await turn
        assert not stored(on)
        assert "base64" not in str([r.messages for r in on.server.requests])


async def test_time_travel_takes_images_along(tmp_path: Path) -> None:
    async with stage(tmp_path, capabilities=SEES) as on:
        (on.work / "named.png").write_bytes(NOISE.data)
        on.server.script(say("one"), say("two"), say("three"), say("four"), say("five"))
        await on.soul.run("first")
        await on.soul.run("second @named.png", [SHOT])
        outcome = await on.soul.travel.rewind(Target(2))
        # Pasted images come back; named ones are read again.
        assert outcome.prompt == "second @named.png"
        assert outcome.images == (ImageBlock.of(SHOT),)
        await on.soul.travel.undo()
        assert [label for _, labels in shown(on) for label in labels] == [
            "image shot.png 560x280",
            "image named.png 90x70",
        ]
        assert "second @named.png\n[image shot.png 560x280]" in await on.soul.lines.markdown(
            Target(-1)
        )
        # The user's D-Mail undoes nothing that they said.
        await on.soul.dmails.send(Target(1), "be brief")
        await on.soul.resume()
        assert images_behind(on, "second @named.png") == ["shot.png", "noise.png"]
        forked = await on.soul.travel.fork()
        jump = await on.soul.travel.fork(Target(2, world_line=1))
        assert jump.images == (ImageBlock.of(SHOT),)
        # A message of another line, with its image, to the present.
        (there,) = [m for m in await on.messages(1) if m.text.startswith("second")]
        await on.soul.travel.rewind(Target(0))
        await on.soul.dmails.carry(1, there.uid, there.number)
        await on.soul.resume()
        (row,) = contents(on)
        assert row[-2:] == ["shot.png", "noise.png"]
        await on.soul.aclose()
        on.session = on.store.find(forked.session_id, on.work)
        await on.open()
        await on.soul.run("still there?")
        assert images_behind(on, "second @named.png") == ["shot.png", "noise.png"]
        path = on.session.dir / IMAGES_NAME / f"{SHOT.sha256}.png"
        assert path.stat().st_nlink == 3


async def test_an_agents_dmail_keeps_the_images_of_what_the_user_said(tmp_path: Path) -> None:
    async with stage(tmp_path, capabilities=SEES) as on:
        on.server.script(
            say("one"),
            gate(2, call("Glob", {"pattern": "*"})),
            calls([("SendDMail", {"message": "it is orange", "checkpoint_id": 1})]),
            say("done"),
        )
        await on.soul.run("first")
        turn = asyncio.create_task(on.soul.run("second", [SHOT]))
        await on.server.at_gate.wait()
        on.soul.say("this too", [NOISE])
        on.server.release()
        await turn
        assert images_behind(on, "second") == ["shot.png"]
        assert images_behind(on, "this too") == ["noise.png"]


async def test_a_summary_is_made_of_images_and_keeps_what_was_pinned(tmp_path: Path) -> None:
    async with stage(
        tmp_path, capabilities=SEES, limits=LoopLimits(dmail=DMailConfig(enabled=False))
    ) as on:
        on.server.script(say("one"), say("two"), say("three"), say("THE SUMMARY"), say("four"))
        await on.soul.run("first", [SHOT])
        await on.soul.run("second", [NOISE])
        await on.soul.run("third " * 300)
        pinned = on.session.context.checkpoints[2]
        await on.soul.marks.pin(pinned.uid, 0)
        assert await on.soul.compact()
        (asked,) = contents(on)
        assert "[image shot.png 560x280]" in asked[0]
        assert asked[1:] == ["shot.png", "noise.png"]
        await on.soul.run("go on")
        kept = [part for row in contents(on) for part in row]
        assert kept.count("noise.png") == 1
        assert "shot.png" not in kept
        assert any("THE SUMMARY" in part for part in kept)


async def test_where_the_disk_refuses_an_image_nothing_is_said(tmp_path: Path) -> None:
    storage = FullStorage()
    async with stage(tmp_path, capabilities=SEES, storage=storage) as on:
        on.server.script(say("hello"))
        await on.soul.run("hello")
        storage.room = 0
        n_messages = len(on.session.context.messages)
        with pytest.raises(StorageTrouble, match=r"save shot\.png"):
            await on.soul.run("look", [SHOT])
        assert len(on.ear.of(ev.TurnBegin)) == 1
        assert len(on.session.context.messages) == n_messages
        storage.room = 1 << 40


@pytest.mark.parametrize("large", [10**400, 2**60, -1])
def test_made_up_facts_are_bounded_and_clean(large: int) -> None:
    facts = {"name": "a\x1b]0;x\x07", "media_type": "image/\x1b[2Jpng", "width": large}
    url = f"images/{'0' * 64}.png"
    part = {"type": "image_url", "image_url": {**facts, "url": url, "n_bytes": large}}
    said = Message.model_validate({"role": "user", "content": [part]})
    assert image_blocks(said) == (ImageBlock("a", "image/png", 0, 0, 0, "0" * 64),)
    record = [{"type": "image", **facts, "n_bytes": large, "sha256": "0" * 64}]
    assert images_of(record) == image_blocks(said)


@pytest.mark.sample(2)
@pytest.mark.parametrize("spoil", ["gone", "changed", "a link", "another way"])
async def test_what_is_not_stored_is_said_and_nothing_else_is_sent(
    tmp_path: Path, spoil: str
) -> None:
    async with stage(tmp_path, capabilities=SEES) as on:
        on.server.script(say("seen"), say("no"))
        await on.soul.run("look", [SHOT])
        path = on.session.dir / IMAGES_NAME / f"{SHOT.sha256}.png"
        if spoil == "another way":
            secret = on.session.dir.parent / "secret.png"
            secret.write_bytes(SHOT.data)
            part = ImagePart(image_url=ImageURL(url="images/../../secret.png"))
            await on.session.context.append([Message(role="user", content=[part])])
        else:
            path.unlink()
        if spoil == "changed":
            path.write_bytes(NOISE.data)
        elif spoil == "a link":
            (tmp_path / "secret").write_bytes(SHOT.data)
            path.symlink_to(tmp_path / "secret")
        await on.soul.run("and?")
        assert "[an image whose file is missing]" in str(on.sent())


async def test_what_cannot_be_decoded_is_named_and_not_sent(tmp_path: Path) -> None:
    spoilt = (
        NOISE.data[:-100],
        NOISE.data[:8] + b"?" * 99,
        saved(Picture.new("1", (9_000, 6_000))),
    )
    async with stage(tmp_path, capabilities=SEES) as on:
        on.server.script(*[say("well")] * 4)
        await on.soul.run("look", [SHOT])
        folder = on.session.dir / IMAGES_NAME
        for data in spoilt:
            url = f"{IMAGES_NAME}/{hashlib.sha256(data).hexdigest()}.png"
            (on.session.dir / url).write_bytes(data)
            where = ImageURL(url=url, name="a\x1b[2J\nplan.png" * 99)
            said = Message(role="user", content=[ImagePart(image_url=where)])
            await on.session.context.append([said])
        # Another program stores images like this; the second is of a wrong kind.
        for url in ("data:image/png;base64,AAAA", "data:text/html,x", "data:image/png;base64,é"):
            part = ImagePart(image_url=ImageURL(url=url))
            await on.session.context.append([Message(role="user", content=[part])])
        jpeg = saved(flat(9, 9), "JPEG")
        url = f"{IMAGES_NAME}/{hashlib.sha256(jpeg).hexdigest()}.png"
        (folder / Path(url).name).write_bytes(jpeg)
        part = ImagePart(image_url=ImageURL(url=url))
        await on.session.context.append([Message(role="user", content=[part])])
        await on.soul.run("and?")
        sent = json.dumps(on.server.requests[-1].messages)
        assert sent.count("which cannot be read]") == len(spoilt)
        assert sent.count("[an image that cannot be read]") == 3
        assert "u001b" not in sent
        urls = re.findall('"url": "([^,"]*)', sent)
        assert sorted(urls) == ["data:image/jpeg;base64", "data:image/png;base64"]


def test_no_more_is_sent_than_a_server_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_images, "MAX_SENT_BYTES", 2_000)
    store = session_images.ImageStore(tmp_path, Storage())
    store.put(SHOT)
    part = session_images.image_part(SHOT)
    said = [Message(role="user", content=[TextPart(text=f"{n}"), part, part]) for n in range(9)]
    sent = store.expanded(said)
    size = len(SHOT.data_url())
    assert sum(len(message.images) for message in sent) == 2_000 // size + 1
    assert [one.image_url.url[:5] for one in sent[-1].images] == ["data:", "data:"]
    assert "a request has a limit of images" in sent[0].text
    assert [message.text[0] for message in sent] == [f"{n}" for n in range(9)]


def test_nothing_is_stored_behind_a_link(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "session"
    elsewhere.mkdir()
    folder.mkdir()
    (folder / IMAGES_NAME).symlink_to(elsewhere)
    with pytest.raises(StorageTrouble, match="its folder is a link"):
        session_images.ImageStore(folder, Storage()).put(SHOT)
    assert not [*elsewhere.iterdir()]


@pytest.mark.exhaustive
async def test_large_images_cost_the_context_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, capabilities=SEES, window=1_000_000) as on:
        body = noise(60, 60)
        large: list[Image] = []
        for n in range(5):
            body.putpixel((0, 0), (n, 0, 0))
            data = saved(body) + bytes(2_000_000)
            large.append(Image("image/png", data, 60, 60, f"{n}.png"))
        on.server.script(say("seen", usage=(9_000, 5)), say("again"))
        await on.soul.run("look", large)
        assert on.session.context.size_bytes < 20_000
        await on.soul.travel.rewind(Target(0))
        await on.soul.travel.undo()
        await on.reopen()
        await on.soul.run("and?")
        request = on.server.requests[-1]
        assert len(request.raw) == int(request.headers["content-length"]) > 5 * 2_600_000
        assert [part["type"] for part in request.messages[1]["content"]].count("image_url") == 5
