"""An image from a path that is pasted to the model's server, and on the screen."""

from __future__ import annotations

import base64
import json

from support.chat_server import ChatServerThread, say
from support.made_images import flat, saved
from support.program import Program

READY = "Ctrl+T timeline"
QUESTION = b"\x1b_Gi=31"


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
    # What a terminal answers late is no text, and letters are.
    terminal.write(b"\x1b_Gi=31;OK\x1b\\\x1b[?62;4cdone")
    terminal.wait_for("› done")
    terminal.key("ctrl+q")
    assert terminal.wait_exit() == 0
