"""A world line in the place of the chat: what is said there, and what a fault leaves of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.left_line import left_line
from support.screens import Desk
from support.still_screen import still_screen
from support.story import whole_story

from kimi_tui.tui.world_line_view import WorldLineTranscript, WorldLineView
from kimi_tui.wire.events import EventRecord

LINE = left_line(2, "rewind", 4, at="", tokens_before=47_200, messages=14, shared=4)


@asynccontextmanager
async def reading(home: Path) -> AsyncIterator[tuple[Desk, WorldLineView]]:
    """Yield the app with a visible world line."""
    async with still_screen(home) as one:
        view = WorldLineView(LINE, str(home), {})
        one.screen.bench.line = view
        one.screen.viewer._reading = view  # pyright: ignore[reportPrivateUsage]
        await one.screen.bench.chat_pane.read(view)
        one.screen.bench.focus_prompt()
        await view.show(whole_story().records, -1)
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
    apply = WorldLineTranscript.apply
    faults = 1

    def fails_once(
        self: WorldLineTranscript, records: Sequence[EventRecord], *, live: bool
    ) -> None:
        nonlocal faults
        if faults:
            faults -= 1
            raise RuntimeError("cannot be drawn")
        apply(self, records, live=live)

    monkeypatch.setattr(WorldLineTranscript, "apply", fails_once)
    async with reading(tmp_path) as (one, view):
        await one.sees("kimi-tui had an internal error")
        assert view.transcript.blocks
        assert "cannot be drawn" in caplog.text
        await one.pilot.press("escape")
        await one.until(lambda: not one.screen.bench.reading)
