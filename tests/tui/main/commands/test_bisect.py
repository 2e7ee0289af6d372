"""`/bisect`: the search with its marks on the timeline, and what it offers at its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import desk

from kimi_tui.tui.dialogs.diff_screen import DiffScreen
from kimi_tui.tui.dialogs.list_screen import ListScreen
from kimi_tui.tui.dialogs.text_dialog import TextDialog
from kimi_tui.tui.preview.screen import RewindScreen


async def test_the_search_ends_on_its_row_and_offers_a_rewind_a_dmail_and_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url, mode="all") as one:
        await one.ready()
        work = Path(one.screen.transcript.work_dir)
        (work / "a.py").write_text("sound\n")
        server.script(
            call("WriteFile", {"path": "a.py", "content": "still sound\n"}),
            call("WriteFile", {"path": "a.py", "content": "broken\n"}),
            call("WriteFile", {"path": "b.py", "content": "more\n"}),
            say("Done."),
        )
        await one.say("go on")
        await one.idle()
        await one.say("/bisect --often make")
        await one.sees('"--often" is not an option of /bisect')
        await one.say("/bisect --timeout 0 make")
        await one.sees("--timeout takes a number from 1 to 604,800, not 0")
        await one.say("/bisect --world-line 7 make")
        await one.sees("world line 7")
        hold = tmp_path / "hold"
        await one.say(f"/bisect --timeout 60 --times 1 touch {hold}; sleep 50")
        await one.sees("Test 1 of at most")
        await one.say("/bisect true")
        await one.sees("A bisect is already running")
        assert "running" in {
            point.trial for point in one.screen.bench.views.timeline.model.tree.live
        }
        await one.pilot.press("escape")
        await one.sees("The search was stopped")
        await one.say("/bisect true")
        await one.sees("The command does not fail")
        await one.say("/bisect echo it is $(cat a.py); ! grep -q broken a.py")
        await one.sees("in the step of checkpoint #2")
        await one.until(lambda: "Esc stops the search" not in one.text())
        await one.asked(DiffScreen)
        await one.sees("broken")
        timeline = one.screen.bench.views.timeline
        trials = {point.id: point.trial for point in timeline.model.tree.live if point.trial}
        assert trials[2] == "good"
        assert trials[3] == "bad"
        await one.pilot.press("enter")
        await one.asked(ListScreen)
        await one.sees("Rewind to #2")
        await one.sees("it is broken")
        await one.pilot.press("down", "enter")
        await one.until(lambda: isinstance(one.app.screen, TextDialog | RewindScreen))
        if isinstance(one.app.screen, RewindScreen):
            await one.confirm("d")
            await one.until(lambda: isinstance(one.app.screen, TextDialog))
        dialog = one.app.screen
        assert isinstance(dialog, TextDialog)
        # The dialog is on top before it is mounted, and has no text until then.
        await one.until(lambda: bool(dialog.area.text))
        draft = dialog.area.text
        assert "The check: echo it is" in draft
        assert "broken" in draft
