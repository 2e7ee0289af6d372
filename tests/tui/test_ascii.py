"""With ASCII signs chosen, the program itself writes nothing but ASCII, on any of its screens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatServer, call, calls, say
from support.made_images import flat, saved
from support.screens import Desk, desk

from kimi_tui.config.settings import Config
from kimi_tui.images import read_image
from kimi_tui.tui.glyphs import ASCII, UNICODE, drawn
from kimi_tui.tui.main.commands.table import COMMANDS

LONG = (
    "A long name of something that has no end and is cut wherever it is shown, because it is long "
    * 3
)
QUESTION = {
    "question": "Which way?",
    "header": "Way",
    "options": [{"label": "Left", "description": LONG}, {"label": "Right", "description": "r"}],
}
LEAVES = frozenset(
    ("quit", "new", "suspend", "editor", "clear", "review", "commit", "init", "link")
)
"""Commands that end the session on view, start programs, or begin turns."""
ARGUMENTS = {
    "search": "name",
    "dmail": "1",
    "switch": "1",
    "worldline": "1",
    "compare": "1",
    "bookmark": f"1 {LONG}",
    "name": f"1 {LONG}",
    "pin": "1",
    "rewind": "1",
    "blame": "a.py",
    "bisect": "--world-line x",
    "rename": LONG,
    "futures": "2 try it",
    "fork": "nothing",
    "add-dir": "/nowhere",
    "export": "/nowhere/at/all.html",
    "tasks": "output 7",
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("“A na…” was deleted → /undo, 5 · 6, −3", '"A na~" was deleted > /undo, 5 - 6, -3'),
        ("naïve – 変更", "naïve – 変更"),
    ],
)
def test_a_sentence_has_the_chosen_signs(text: str, shown: str) -> None:
    assert drawn(text, ASCII) == shown
    assert drawn(text, UNICODE) == text


def odd(one: Desk) -> list[str]:
    """The rows with characters that no test has written, nor the engine into the conversation."""
    rows = one.text().splitlines()
    return [row for row in rows if not row.isascii() and "[… " not in row]


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_every_screen(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    found: dict[str, list[str]] = {}

    def look(one: Desk, where: str) -> None:
        if rows := odd(one):
            found[where] = rows

    config = Config(glyphs="ascii", reduced_motion=True)
    async with (
        ChatServer() as server,
        desk(
            tmp_path,
            server.base_url,
            config=config,
            size=size,
            hints=True,
            mode="all",
            capabilities=("image_in", "thinking"),
        ) as one,
    ):
        await one.ready()
        look(one, "start")
        image = saved(flat(56, 28))
        (tmp_path / "app" / f"{'shot' * 12}.png").write_bytes(image)
        edit: dict[str, Any] = {"path": "a.py", "edit": {"old": "x = 1", "new": "x = 2"}}
        server.script(
            calls(
                [
                    ("WriteFile", {"path": "a.py", "content": "x = 1\n" + f"# {LONG}\n" * 20}),
                    ("Shell", {"command": f"echo {LONG}; seq 40; exit 3"}),
                    ("SetTodoList", {"todos": [{"title": LONG, "status": "in_progress"}]}),
                    ("ReadFile", {"path": "nowhere.py"}),
                    ("ReadFile", {"path": f"{'shot' * 12}.png"}),
                ],
                text="I write. See https://user@an.example.org/" + "path/" * 30,
                think=LONG,
            ),
            call("StrReplaceFile", edit),
            calls([("Agent", {"description": LONG, "prompt": "look", "kind": "explore"})]),
            say("Found."),
            say(
                "# Done\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n```python\nx = 1\n```\n\n---\n"
                + LONG
            ),
        )
        await one.say(f"Write it {LONG}")
        await one.idle()
        look(one, "turn")
        server.script(call("SendDMail", {"checkpoint_id": 1, "message": LONG}), say("Folded."))
        await one.say("Send it")
        await one.idle()
        look(one, "dmail")
        server.script(call("Shell", {"command": "sleep 0; echo more"}), say("Two."))
        await one.say("More")
        await one.idle()
        soul = one.screen.conversation.soul
        assert soul is not None
        chip = one.app.images.add(read_image(image, f"{'shot' * 20}.png"))
        one.screen.prompt.area.put(f"see {chip}")
        await one.pilot.pause(0.05)
        look(one, "chip")
        await one.pilot.press("ctrl+u")
        one.screen.prompt.area.take()
        server.script(call("AskUserQuestion", {"questions": [QUESTION]}), say("Left."))
        await one.say("Ask me")
        await one.until(lambda: one.screen.bench.question is not None)
        await one.pilot.pause(0.1)
        look(one, "question")
        await one.pilot.press("escape")
        await one.idle()
        for command in COMMANDS:
            if command.name in LEAVES:
                continue
            text = f"/{command.name} {ARGUMENTS.get(command.name, '')}".rstrip()
            server.script(say("An answer."), say("Another answer."))
            one.screen.prompt.area.put(text)
            await one.pilot.pause(0.02)
            look(one, f"menu of {text}")
            await one.pilot.press("enter")
            await one.pilot.pause(0.3)
            for key in ("", "down", "tab", "down", "question_mark", "pagedown"):
                if key:
                    await one.pilot.press(key)
                    await one.pilot.pause(0.02)
                look(one, f"{text[:40]} {key}")
            for _ in range(6):
                if one.app.screen is one.screen and one.screen.prompt.area.has_focus:
                    break
                await one.pilot.press("escape")
                await one.pilot.pause(0.05)
                look(one, f"{text[:40]} escape")
            one.screen.prompt.area.take()
            if one.screen.conversation.running:
                one.screen.conversation.stop()
                await one.until(lambda: not one.screen.conversation.running)
        for key in (
            "f1",
            "f2",
            "f3",
            "f4",
            "question_mark",
            "ctrl+p",
            "ctrl+t",
            "ctrl+f",
            "ctrl+r",
            "slash",
            "at",
        ):
            await one.pilot.press(key)
            await one.pilot.pause(0.1)
            look(one, key)
            await one.pilot.press("escape", "escape", "escape")
            one.screen.prompt.area.take()
    shown = "\n".join(f"{where}: {row}" for where, rows in found.items() for row in rows)
    assert not found, (
        json.dumps(sorted({c for c in shown if not c.isascii()}), ensure_ascii=False) + "\n" + shown
    )
