"""An image from a path that is pasted to the model's server, and on the screen."""

from __future__ import annotations

import base64
import json
import re
from io import BytesIO

import pytest
from PIL import Image
from support.chat_server import ChatServerThread, gate, say
from support.made_images import flat, noise, saved, sixels
from support.program import Program

READY = "Ctrl+T timeline"
QUESTION = b"\x1b_Gi=31"


@pytest.mark.exhaustive
def test_paste_a_path_send_it_and_look_at_it(configured: Program, server: ChatServerThread) -> None:
    shot = saved(flat(320, 200))
    (configured.work / "the shot.png").write_bytes(shot)
    configured.environment["KIMI_MODEL_NAME"] = "kimi-k2.5"
    server.script(say("A brown box."))
    terminal = configured.start()
    terminal.wait_for(READY)
    terminal.type("What is ")
    terminal.paste(f"'{configured.work}/the shot.png'")
    terminal.wait_for("[image the shot.png 320x200 ~96]")
    terminal.type("?")
    terminal.key("enter")
    terminal.wait_for("A brown box.")
    content = server.requests[0].messages[-1]["content"]
    url = f"data:image/png;base64,{base64.b64encode(shot).decode()}"
    at = next(n for n, part in enumerate(content) if part["type"] == "image_url")
    assert content[at] == {"type": "image_url", "image_url": {"url": url}}
    assert content[at - 1]["text"].endswith("What is [image the shot.png 320x200 ~96] ?")
    screen = terminal.wait_for("▀▀▀▀")
    assert "the shot.png  320x200" in screen
    # Stored once, by its content, and the conversation stays small.
    assert url not in json.dumps(configured.context())
    # The terminal is asked what it draws when an image is opened, not before; this one does not answer.
    assert QUESTION not in terminal.raw
    rows = [y for y, line in enumerate(screen.split("\n")) if "▀▀▀▀" in line]
    terminal.click(10, rows[1])
    terminal.wait_for(lambda shown: "Esc back" in shown and shown.count("▀▀▀▀") > 20)
    assert QUESTION in terminal.raw
    terminal.key("escape")
    terminal.wait_for("Enter send")
    # A late answer of the terminal is no text, but letters are.
    terminal.write(b"\x1b_Gi=31;OK\x1b\\\x1b[?62;4cdone")
    terminal.wait_for("› done")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("graphics", ["kitty", "sixel"])
def test_a_terminal_that_says_it_has_graphics_is_sent_the_picture(
    configured: Program, graphics: str
) -> None:
    shot = flat(320, 200)
    shot.paste((0, 0, 255), (160, 0, 320, 200))
    (configured.work / "shot.png").write_bytes(saved(shot))
    terminal = configured.start(size=(80, 24), cell=(10, 20))
    terminal.wait_for(READY)
    terminal.paste("shot.png")
    terminal.wait_for("[image shot.png 320x200 ~96]")
    terminal.key("left", "left", "enter")
    asked = terminal.wait_raw(QUESTION)
    # The answer comes in pieces.
    kitty = b"\x1b_Gi=31;OK\x1b\\" if graphics == "kitty" else b""
    terminal.write(kitty[:6])
    terminal.write(kitty[6:] + b"\x1b[?62;4;22c")
    begins, last = {"kitty": (b"\x1b_Ga=T", b"m=0;"), "sixel": (b"\x1bP0;1q", b"-")}[graphics]
    at = terminal.wait_raw(begins, start=asked)
    end = terminal.wait_raw(b"\x1b\\", start=terminal.wait_raw(last, start=at))
    start = at - len(begins)
    drawn = terminal.raw[start:end].decode()
    if graphics == "kitty":
        pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", drawn)
        keys = dict(pair.split("=") for pair in pieces[0][0].split(","))
        with Image.open(BytesIO(base64.b64decode("".join(data for _, data in pieces)))) as shown:
            picture = shown.convert("RGB")
        assert picture.size == (int(keys["c"]) * 10, int(keys["r"]) * 20)
        gone = f"\x1b_Ga=d,d=I,i={keys['i']}".encode()
    else:
        found = re.match(r'\x1bP0;1q"1;1;(\d+);(\d+)(.*)\x1b\\', drawn, re.DOTALL)
        assert found is not None
        picture = Image.new("RGB", (int(found[1]), int(found[2])))
        rows = sixels(found[3], *picture.size)
        picture.putdata([pixel for row in rows for pixel in row])
        gone = b""
    # The image is at the cursor's place below the heading, in its own shape, and fits the space.
    assert re.search(rb"\x1b7\x1b\[\d+;\d+H$", terminal.raw[:start])
    width, height = picture.size
    assert abs(width / height - 1.6) < 0.1
    assert 300 < height <= 480
    for y in (5, height // 2, height - 5):
        for x, colour in ((5, (200, 120, 40)), (width - 5, (0, 0, 255))):
            seen = picture.getpixel((x, y))
            assert isinstance(seen, tuple)
            assert all(abs(a - b) < 8 for a, b in zip(seen, colour, strict=True)), (x, y, seen)
    if graphics == "sixel":
        # No cells are written over it: that of kitty lies above them.
        terminal.wait_quiet()
        behind = terminal.raw[terminal.raw.rindex(begins) :].partition(b"\x1b8")[2]
        rows = [int(row) for row in re.findall(rb"\x1b\[(\d+);\d+H", behind)]
        assert not [row for row in rows if 3 <= row <= 22]
    terminal.key("escape")
    terminal.wait_raw(gone, start=end)
    # The answer was no text, and the question is asked once.
    terminal.wait_for("Enter send")
    assert terminal.raw.count(QUESTION) == 1
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0


@pytest.mark.exhaustive
def test_images_that_were_not_sent_outlive_a_kill(
    configured: Program, server: ChatServerThread
) -> None:
    names = ["sent.png", "steered.png", "later.png", "draft.png"]
    shots = [saved(noise(30, 20 + n)) for n in range(4)]
    for name, shot in zip(names, shots, strict=True):
        (configured.work / name).write_bytes(shot)
    configured.environment["KIMI_MODEL_NAME"] = "kimi-k2.5"
    server.script(gate(6, say("Half of this was said when it went down.")))
    terminal = configured.start()
    terminal.wait_for(READY)
    for name, key, then in zip(
        names,
        ("enter", "enter", "tab", ""),
        ("Half of this", "queued", "after the turn", ""),
        strict=True,
    ):
        terminal.paste(name)
        terminal.wait_for(f"› [image {name} 30x")
        if key:
            terminal.key(key)
        terminal.wait_for(then)
    configured.wait_kept("draft.json", "draft.png")
    session = configured.wait_kept("follow_ups.json", "later.png")
    assert len(list((session / "unsent_images").iterdir())) == 4
    terminal.kill()
    for name in names:
        (configured.work / name).unlink()
    server.script(say("Three noises."))
    terminal = configured.start("--continue")
    # A message that waited for the next step is the user's again, too, and waits nowhere.
    terminal.wait_for(lambda shown: all(f"image {name}" in shown for name in names[1:]))
    terminal.wait_gone("queued")
    terminal.key("enter")
    terminal.wait_for("Three noises.")
    urls = [f"data:image/png;base64,{base64.b64encode(shot).decode()}" for shot in shots]
    assert server.requests[-1].image_urls == urls
    configured.wait_kept("unsent_images", "")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
