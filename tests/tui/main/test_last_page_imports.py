"""The last page of a session waits only for the modules that draw it, not for the agent, and no key waits for them."""

from __future__ import annotations

import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest
from support.chat_server import ChatServer
from support.screens import desk

_HEAVY = ("pydantic.main", "openai", "kimi_tui.llm.message", "kimi_tui.tools")
_LOADED = f"print([m for m in sys.modules if m.startswith({_HEAVY!r})])"


def _printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.exhaustive
def test_what_reads_the_end_of_a_session_is_imported_without_the_agent() -> None:
    code = "import sys, kimi_tui.soul.opening, kimi_tui.tui.transcript.transcript; " + _LOADED
    assert _printed(code) == "[]"


@pytest.mark.exhaustive
def test_what_an_answer_needs_is_imported_before_it_is_drawn() -> None:
    code = """
import sys
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.transcript.transcript import import_for
from kimi_tui.wire import events as ev
told = [ev.EventRecord(n, 0.0, event) for n, event in enumerate([
    ev.TurnBegin("How?"),
    ev.TextPart("# So\\n\\n- *one*\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n```python\\ndef f(): ...\\n```\\n"),
    ev.TurnEnd("done"),
], 1)]
import_for(told)
before = set(sys.modules)
from kimi_tui.tui.transcript.viewport import Flow
from kimi_tui.tui.rows import LayoutRoom

import pytest
"""
    seen = """
print([name for name in set(sys.modules) - before if "kimi_tui" in name])
print('pygments.lexers.python' in before, 'markdown_it.main' in before)
"""
    assert _printed(code + seen) == "[]\nTrue True"


class _Noted:
    """Finds no module, and notes the thread that looks for one."""

    def __init__(self) -> None:
        self.threads: dict[str, int] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        self.threads.setdefault(name, threading.get_ident())


@pytest.mark.exhaustive
async def test_what_a_command_shows_is_imported_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = ("dialogs.settings", "prompt.menu", "preview.screen", "preview.layout")
    names, noted = [f"kimi_tui.tui.{one}" for one in shown], _Noted()
    async with ChatServer() as server, desk(tmp_path, server.base_url) as at:
        for name in names:
            package, module = import_module(name.rpartition(".")[0]), import_module(name)
            monkeypatch.setattr(package, name.rpartition(".")[2], module)
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [noted, *sys.meta_path])
        await at.ready()
        await at.until(lambda: "kimi_tui.tui.prompt.menu" in sys.modules)
        await at.pilot.press(*"/settings", "enter")
        await at.sees("Settings")
        await at.pilot.press("escape")
        await at.until(lambda: at.app.screen is at.screen)
        at.screen.action_command("rewind", "0")
        await at.until(lambda: "kimi_tui.tui.preview.layout" in sys.modules)
    assert {name: noted.threads[name] != threading.get_ident() for name in names} == dict.fromkeys(
        names, True
    )
