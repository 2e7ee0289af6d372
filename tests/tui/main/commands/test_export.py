"""`/export`: the conversation as Markdown in a file that was not there before."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chat_server import ChatServer, call, say
from support.screens import desk


async def test_the_conversation_is_written_to_a_new_file_and_none_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        await one.say("/export")
        await one.sees("nothing to export yet")
        work = Path(one.screen.transcript.work_dir)
        (work / "mine.md").write_text("mine")
        server.script(call("Glob", {"pattern": "*.md"}), say("The apple\x1b[2J is red."))
        await one.say("Tell me of apples")
        await one.idle()
        soul = one.screen.conversation.soul
        assert soul is not None
        name = f"conversation-{soul.session.id[:8]}"
        for command, made in (
            ("/export", f"{name}.md"),
            ("/export", f"{name}-2.md"),
            ("/export mine.md", ""),
            ("/export gone/a.md", ""),
            ("/export notes.md", "notes.md"),
        ):
            await one.say(command)
            if made:
                await one.sees(made)
                text = (work / made).read_text("utf-8")
                assert text.startswith("**You:** Tell me of apples\n\n**Glob** `*.md`\n")
                assert text.endswith("**Agent:** The apple is red.\n")
                assert (work / made).stat().st_mode & 0o777 == 0o600
            else:
                await one.sees("already exists" if "mine" in command else "No such file")
        assert (work / "mine.md").read_text() == "mine"
        assert not (work / "gone").exists()


@pytest.mark.exhaustive
async def test_the_session_is_written_as_a_page_and_as_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with ChatServer() as server, desk(tmp_path, server.base_url) as one:
        await one.ready()
        work = Path(one.screen.transcript.work_dir)
        server.script(say("The apple is red."))
        await one.say("Tell me of apples")
        await one.idle()
        await one.say("/export html")
        await one.sees('Exported "Tell me of apples" to tell-me-of-apples.html')
        page = (work / "tell-me-of-apples.html").read_text("utf-8")
        assert "The apple is red." in page
        await one.say("/export html")
        await one.sees("already exists")
        await one.say("/export --evil.cast")
        await one.sees("to --evil.cast")
