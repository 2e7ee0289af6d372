"""The parts of the window add up to the used tokens, whatever a conversation consists of."""

from __future__ import annotations

from pathlib import Path

from support.chat_server import call, say
from support.soul import stage

from kimi_tui.soul.token_meter import WindowPart


async def test_the_parts_of_a_window(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "AGENTS.md").write_text("Use make. " * 50)
    (work / "src" / "AGENTS.md").write_text("Tabs only. " * 40)
    (work / "src" / "a.py").write_text("x = 1\n" * 300)
    async with stage(tmp_path) as on:
        on.server.script(
            call("ReadFile", {"path": "src/a.py"}, text="I look.", think="Hmm. " * 30),
            say("It says nothing.", usage=(9_000, 20)),
        )
        await on.soul.run("What does it say?")
        parts = await on.soul.window_parts()
        names = [part.name for part in parts]
        assert names == [
            *("system prompt", "AGENTS.md", "tools", "your messages", "answers", "thoughts"),
            *("tool results", "reminders", "src/AGENTS.md", "checkpoint markers"),
        ]
        by_name: dict[str, WindowPart] = {part.name: part for part in parts}
        assert by_name["your messages"].count == 1
        assert by_name["answers"].count == 2
        assert by_name["checkpoint markers"].count == 3
        assert by_name["tool results"].tokens > by_name["your messages"].tokens
        assert by_name["AGENTS.md"].is_inside
        assert 100 < by_name["src/AGENTS.md"].tokens <= by_name["reminders"].tokens
        whole = sum(part.tokens for part in parts if not part.is_inside)
        assert abs(whole - on.soul.used) < len(parts)
