"""Pictures of screens, compared with those in `snapshots/`: SVG as Textual exports it, without its random names."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation
from textual.app import App
from textual.pilot import Pilot

from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.theme import KIMI_DARK, KIMI_LIGHT

FOLDER = Path(__file__).parents[2] / "snapshots"


class PictureExtension(SingleFileSnapshotExtension):
    """One SVG per picture, at `snapshots/<part>/<test file>/<test>[<case>].svg`."""

    file_extension = "svg"
    _write_mode = WriteMode.TEXT

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        test_file = Path(test_location.filepath)
        return str(FOLDER / test_file.parent.name / test_location.basename)

    def serialize(self, data: Any, **_: Any) -> str:
        return re.sub(r"terminal-\d+", "terminal", str(data))


async def darken(running: App[Any], pilot: Pilot[Any]) -> None:
    """Turn a light program dark: what keeps the light colours that it was drawn with stands out in a picture.

    A picture in each theme shows no more: that they differ in nothing but their colours is a test of the themes.
    """
    assert running.theme == KIMI_LIGHT.name
    await pilot.pause()
    running.theme = KIMI_DARK.name
    await pilot.pause()


def still(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """For pictures of the main screen: no engine, the same home and zone everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KIMI_TUI_HOME", str(home))
    monkeypatch.setattr(MainScreen, "_open", lambda self: self.bench.views)
