"""A world line in the place of the chat: what is said there, and what a fault leaves of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.left_line import left_line
from support.screens import Desk
from support.still_screen import still_screen
from support.story import whole_story

from kimi_tui.projection.blocks import Change
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.world_line_view import WorldLineView
from kimi_tui.wire.events import EventRecord, TurnBegin

LINE = left_line(2, "rewind", 4, at="", tokens_before=47_200, messages=14, shared=4)


@asynccontextmanager
async def reading(
    home: Path, records: Sequence[EventRecord] = ()
) -> AsyncIterator[tuple[Desk, WorldLineView]]:
    """Yield the app with a visible world line."""
    async with still_screen(home) as one:
        view = WorldLineView(LINE, str(home), {})
        one.screen.bench.line = view
        one.screen.viewer._reading = view  # pyright: ignore[reportPrivateUsage]
        await one.screen.bench.chat_pane.read(view)
        one.screen.bench.focus_prompt()
        await view.show(records or whole_story().records, -1)
        yield one, view


@pytest.mark.exhaustive
async def test_what_is_copied_is_said(tmp_path: Path) -> None:
    async with reading(tmp_path) as (one, _):
        await one.pilot.press("tab", "y")
        await one.sees("Copied ")
        assert one.app.clipboard
        await one.pilot.press("Y")
        await one.sees("There is no code block to copy here.")


@pytest.mark.exhaustive
async def test_what_cannot_be_shown_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    apply = TranscriptModel.apply

    def fails_at_one(self: TranscriptModel, record: EventRecord, *more: Any) -> Change:
        if record.seq < 0:
            raise RuntimeError("cannot be drawn")
        return apply(self, record, *more)

    monkeypatch.setattr(TranscriptModel, "apply", fails_at_one)
    broken = EventRecord(-1, 0.0, TurnBegin("This is lost"))
    async with reading(tmp_path, [broken, *whole_story().records]) as (one, view):
        await one.sees("kimi-tui had an internal error")
        assert view.transcript.blocks
        assert "cannot be drawn" in caplog.text
        await one.pilot.press("escape")
        await one.until(lambda: not one.screen.bench.reading)
