"""`/blame`: who wrote each line of a file, and the way to the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import Desk, desk

from kimi_tui.tui.dialogs.diff_screen import DiffScreen
from kimi_tui.tui.dialogs.list_screen import ListScreen
from kimi_tui.tui.preview.screen import RewindScreen


async def test_lines_lead_to_the_checkpoint_that_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        soul = one.screen.conversation.soul
        assert soul is not None
        # A file that comes later is made by others; one that the first look finds was there before.
        await soul.files_ready()
        work = Path(one.screen.transcript.work_dir)
        (work / "a.py").write_text("one\ntwo\n")
        server.script(
            say("Hello."),
            call("StrReplaceFile", {"path": "a.py", "edit": {"old": "two", "new": "TWO\x1b[2J"}}),
            say("Done."),
        )
        await one.say("hi")
        await one.idle()
        await one.say("change it")
        await one.sees("Make this edit?")
        panel = one.screen.bench.question
        assert panel is not None
        await one.until(lambda: panel.accepts_keys)
        await one.pilot.press("y")
        await one.idle()
        await one.say("/blame ../../etc/passwd")
        await one.sees("is outside the work folder")
        await one.say("/blame b.py")
        await one.sees('No file snapshot of this session has "b.py".')
        await one.say("/blame a.py:7-9")
        await one.sees('"a.py" has no such lines.')
        await one.say("/blame a.py")
        await one.sees("Blame a.py")
        await one.sees("others")
        await one.sees("#3")
        await one.asked(ListScreen)
        await one.pilot.press("down", "enter")
        await one.sees("TWO")
        assert one.screen.is_current
        await one.until(lambda: one.screen.transcript.has_focus)
        await lines_of_a_diff_lead_to_their_writers(one)


async def lines_of_a_diff_lead_to_their_writers(one: Desk) -> None:
    chat = one.screen.transcript

    def row(sign: str) -> int:
        rows = (y for y in range(chat.size.height) if chat.hit(9, y).startswith("line:"))
        return next(
            y for y in rows if chat.flow and f" {sign} " in chat.flow.line(chat.top + y)[2].text
        )

    # A row that is clicked stays where it is only once all is drawn.
    await one.shown()
    await one.pilot.pause()
    await one.pilot.click(chat, offset=(9, row("+")))
    await one.sees("Line 2 of a.py was written at checkpoint #3 (StrReplaceFile, now).")
    await one.pilot.pause()
    await one.pilot.click(chat, offset=(9, row("−")))
    await one.sees("Line 2 of a.py was changed outside kimi-tui (now).")
    chat.scroll_to_end()
    await one.pilot.press("v", "G", "a")
    await one.sees("The cursor is not on a line of a diff.")
    for _ in range(20):
        await one.pilot.press("up", "a")
        if not chat.is_copying:
            break
    await one.sees("Line 2 of a.py was written at checkpoint #3")
    one.screen.prompt.area.focus()
    await one.say("/diff")
    await one.sees("j, k line")
    await one.asked(DiffScreen)
    await one.pilot.press("y")
    await one.sees("The patch cannot be copied.")
    await one.pilot.press("j", "j", "k", "j", "j", "enter")
    await one.sees("Line 2 of a.py was written at checkpoint #3")
    await one.until(lambda: chat.has_focus)
    one.screen.prompt.area.focus()
    await one.say("/rewind 3")
    await one.until(
        lambda: isinstance(one.app.screen, RewindScreen) and one.app.screen.accepts_keys
    )
    await one.pilot.press("tab", "enter", "right", "right")
    await one.sees("Line 2 of a.py was changed outside kimi-tui")
    await one.pilot.press("right")
    await one.sees("Line 2 of a.py was written at checkpoint #3")
    await one.pilot.press("escape", "escape")
