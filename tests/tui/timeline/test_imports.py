"""The widgets on the screen before a session is open must not import the engine."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.exhaustive
def test_widgets_import_nothing_heavy() -> None:
    code = (
        "import sys, kimi_tui.tui.gauge, kimi_tui.tui.timeline.timeline\n"
        "heavy = ('pydantic', 'openai', 'markdown_it', 'pygments', "
        "'kimi_tui.soul', 'kimi_tui.session', 'kimi_tui.llm')\n"
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
