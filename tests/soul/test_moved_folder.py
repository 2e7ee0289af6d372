"""A session whose work folder was renamed: its model is told, and its files still come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import call, say
from support.soul import stage

from kimi_tui.session.moved_folder import former_folders, take_along
from kimi_tui.soul.rewind_values import Target


@pytest.mark.exhaustive
async def test_a_session_goes_on_in_the_renamed_folder_with_its_files(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(
            call("WriteFile", {"path": "a.txt", "content": "one\n"}),
            call("WriteFile", {"path": "a.txt", "content": "two\n"}),
            *[say("done")] * 4,
        )
        await on.soul.run("write")
        await on.soul.aclose()
        former = on.work
        on.work = on.work.rename(tmp_path / "renamed")
        (found,) = former_folders(on.store, on.work)
        (on.session,) = take_along(on.store, found, on.work)
        await on.open()
        await on.soul.run("go on")
        told = [text for _, text in on.sent() if "renamed or moved the work folder" in text]
        assert len(told) == 1
        assert f"`{former}` and is now `{on.work}`" in told[0]
        await on.reopen()
        await on.soul.run("and on")
        assert len([text for _, text in on.sent() if "renamed or moved" in text]) == 1
        # On a line that never heard of it, it is said again.
        await on.soul.travel.rewind(Target(2), "restore")
        assert (on.work / "a.txt").read_text() == "one\n"
        await on.soul.run("anew")
        assert len([text for _, text in on.sent() if "renamed or moved" in text]) == 1
