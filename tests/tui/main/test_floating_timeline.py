"""The chat recedes while the timeline floats over it, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, say
from support.screens import desk

from kimi_tui.tui.transcript.transcript import Transcript


async def test_the_chat_recedes_only_behind_a_floating_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url, size=(80, 24)) as one:
        server.script(say("Plain words."))
        await one.ready()
        await one.say("Hello")
        await one.sees("Plain words.")
        await one.idle()
        chat = one.screen.query_one(Transcript)

        def ink() -> set[object]:
            return {
                segment.style.color
                for strip in chat.render_lines(chat.region.at_offset((0, 0)))
                for segment in strip
                if segment.style is not None and "Plain" in segment.text
            }

        before = ink()
        one.screen.bench.focus_timeline()
        assert chat.behind
        assert ink() != before
        await one.pilot.resize_terminal(120, 40)
        await one.until(lambda: not chat.behind)
        await one.pilot.resize_terminal(80, 24)
        await one.until(lambda: chat.behind)
        one.screen.bench.return_to_prompt()
        assert not chat.behind
        await one.until(lambda: ink() == before)
