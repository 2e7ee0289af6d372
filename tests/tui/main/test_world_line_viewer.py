"""The effect of a rewind is visible while rows of the timeline are selected: in the chat, in the gauge, on a world line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio
from support.chat_server import ChatServer, say
from support.screens import Desk, talk

from kimi_tui.soul.parts import Lines
from kimi_tui.tui import world_line_view
from kimi_tui.tui.main import world_line_viewer
from kimi_tui.tui.preview.screen import RewindScreen
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.tui.world_line_view import WorldLineTranscript
from kimi_tui.wire.events import EventRecord


async def four_turns(one: Desk, server: ChatServer) -> None:
    """More rows than the chat shows."""
    await one.ready()
    for turn in range(4):
        server.script(say("\n\n".join(f"Words {turn}.{row}" for row in range(12))))
        await one.say(f"Message {turn}")
        await one.sees(f"Words {turn}.11")
        await one.idle()


@pytest_asyncio.fixture
async def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """Four turns that were said."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    async with talk(tmp_path, four_turns) as (running, _):
        yield running


def chat(one: Desk) -> list[str]:
    """Return the rows of what stands in the place of the chat."""
    return [line[:80].rstrip() for line in one.text().split("\n")[1:-6]]


def grey(one: Desk, kind: type[Transcript] = Transcript) -> list[str]:
    """Return the visible rows of text that are grey, behind an edge."""
    found = one.screen.query_one(kind)
    lost = found.get_component_rich_style("transcript--lost").color
    strips = found.render_lines(found.size.region)
    return [
        strip.text.rstrip(" ▐")
        for strip in strips
        if all(s.style is None or s.style.color == lost for s in strip if s.text.strip(" ▐"))
        and strip.text.startswith("▌")
        and strip.text.strip("▌ ▐")
    ]


def gauge(one: Desk) -> str:
    """Return the figures over the prompt."""
    return next(line for line in one.text().split("\n") if "━" in line).rpartition("─ ")[2].strip()


@pytest.mark.exhaustive
async def test_a_preview_by_command_or_click_shows_what_would_go_as_the_timeline_does(
    one: Desk,
) -> None:
    before = chat(one), gauge(one)
    for opens in ("/rewind 4", ""):
        if opens:
            await one.say(opens)
        else:
            one.screen.on_transcript_checkpoint_clicked(
                Transcript.CheckpointClicked(one.screen.transcript, 4)
            )
        await one.until(lambda: isinstance(one.app.screen, RewindScreen))
        await one.until(lambda: bool(grey(one)))
        assert grey(one)[0].startswith("▌   Message 2")
        foreseen = one.screen.bench.views.gauge.prospect
        assert foreseen is not None
        assert foreseen[0] < one.screen.bench.views.gauge.model.status.used
        await one.pilot.press("escape")
        await one.until(lambda: not grey(one) and (chat(one), gauge(one)) == before)


@pytest.mark.exhaustive
async def test_moving_over_rows_shows_what_would_go_and_leaving_shows_what_was_read(
    one: Desk,
) -> None:
    press = one.pilot.press
    before = chat(one)
    await press("ctrl+t", "left_square_bracket")
    await one.until(lambda: bool(grey(one)))
    shown = grey(one)
    assert shown[0].startswith("▌   Message 2")
    assert "▌   Words 2.3" in shown
    assert "    Words 1.11" in chat(one)
    assert "→" in gauge(one)
    assert gauge(one).split(" / ")[0] in one.text()

    # One row further, the turn before goes too; one row back, it stays, and so does the place on the screen.
    await press("left_square_bracket")
    await one.until(lambda: grey(one)[:1] != shown[:1])
    assert grey(one)[0].startswith("▌   Message 1")
    await press("up")
    await one.until(lambda: "Words 1.0" in grey(one)[0])
    # Now: nothing goes.
    await press("home")
    await one.until(lambda: not grey(one))
    assert chat(one) == before
    await press("down", "down")
    await one.until(lambda: bool(grey(one)))
    await press("escape")
    await one.until(lambda: not grey(one))
    assert chat(one) == before
    assert "→" not in gauge(one)


@pytest.mark.exhaustive
async def test_the_preview_confirms_what_was_seen(one: Desk) -> None:
    press = one.pilot.press
    await press("ctrl+t", "left_square_bracket")
    await one.until(lambda: bool(grey(one)))
    figures = gauge(one).split(" / ")[0]
    await press("enter")
    assert figures in "".join(await one.sees("Rewind to #4")).replace("~", "")
    await press("escape")
    await one.until(lambda: one.app.screen is one.screen)
    assert grey(one)
    await press("enter")
    await one.sees("Rewind to #4")
    await press("enter")
    await one.until(lambda: "Rewound" in one.text() and not grey(one))
    await one.until(lambda: any("Words 1.11" in row for row in chat(one)))
    # The user's draft is in the prompt again, but the dropped messages are not there any more.
    await press("ctrl+t", "down")
    await press("escape")
    await one.until(lambda: not grey(one))

    # The row of the line that was left shows it, those of its steps show where they are, and those of the live line show the
    # chat.
    await press("ctrl+t", "home", "down")
    await one.sees("World line 1  Message 2")
    assert one.screen.bench.reading == 0
    # The notice about the rewind covers the last row for some seconds.
    one.screen.bench.chat_pane.dismiss()
    await one.until(lambda: any("Words 3.11" in row for row in chat(one)))
    await press("space", "up", "up", "up")
    await one.until(lambda: "Message 3" in "".join(grey(one, WorldLineTranscript)[:1]))
    await press("down")
    await one.until(lambda: "Words 2.0" in grey(one, WorldLineTranscript)[0])
    await press("home")
    await one.until(lambda: not one.screen.query(WorldLineTranscript))
    await one.until(lambda: any("Words 1.11" in row for row in chat(one)))
    # Read, it takes the keys; Esc leads back to its row.
    await press("down")
    await one.sees("◊ World line 1")
    await press("w")
    await one.until(lambda: one.screen.bench.reading == 1)
    assert not grey(one, WorldLineTranscript)
    await press("escape")
    await one.until(lambda: one.screen.bench.timeline_pane.has_keys)
    await one.sees("◊ World line 1")
    await press("escape")
    await one.until(lambda: not one.screen.query(WorldLineTranscript))


@pytest.mark.exhaustive
async def test_a_click_on_a_row_is_a_look_too_until_something_is_typed(one: Desk) -> None:
    y = next(y for y, line in enumerate(one.text().split("\n")) if "Message 1" in line[81:])
    await one.pilot.click(offset=(95, y))
    await one.sees("Rewind to #2")
    assert grey(one)
    await one.pilot.press("escape")
    await one.until(lambda: not grey(one))


@pytest.mark.exhaustive
async def test_a_glance_that_is_clicked_is_read(one: Desk) -> None:
    press = one.pilot.press
    await press("ctrl+t", "enter")
    await one.sees("Rewind to #6")
    await press("enter")
    await one.sees("Rewound")
    await press("ctrl+t", "home", "down")
    await one.sees("◊ World line 1")
    # The notice about the rewind covers the last row for some seconds.
    one.screen.bench.chat_pane.dismiss()
    await one.until(lambda: any("Words 3.11" in row for row in chat(one)))
    # The line is named by its first message until it is given a name.
    assert "├─◊ 1   Message 3" in one.text()
    await press("b")
    await one.sees("Name world line 1")
    await press(*"quotes", "enter")
    await one.sees("├─◊ 1   quotes")
    await one.pilot.click(WorldLineTranscript, offset=(10, 12))
    await one.until(lambda: one.screen.bench.reading == 1)
    assert one.screen.query_one(WorldLineTranscript).has_focus
    await press("escape", "escape")
    await one.say("/name 1 one regex")
    await one.sees("├─◊ 1   one regex")


@pytest.mark.exhaustive
async def test_where_the_timeline_floats_what_stays_is_at_full_strength(one: Desk) -> None:
    transcript = one.screen.transcript
    await one.pilot.resize_terminal(80, 24)

    def ink(words: str) -> set[object]:
        strips = transcript.render_lines(transcript.size.region)
        return {
            s.style.color for t in strips if words in t.text for s in t if s.style and "W" in s.text
        }

    await one.pilot.press(
        "ctrl+t", "left_square_bracket", "left_square_bracket", "left_square_bracket"
    )
    await one.until(lambda: bool(grey(one)))
    await one.pilot.press("right_square_bracket")
    await one.until(lambda: "Message 1" in grey(one)[0])
    assert transcript.behind
    assert ink("Words 0.11") == {transcript.get_component_rich_style("transcript--ink").color}


@pytest.mark.exhaustive
async def test_of_the_lines_that_the_arrows_pass_only_the_newest_is_read(
    one: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    soul = await one.screen.conversation.opened()
    read: list[int] = []
    goes_on = asyncio.Event()

    async def read_line(_: Lines, world_line: int) -> list[EventRecord]:
        read.append(world_line)
        await goes_on.wait()
        raise KeyError(world_line)

    monkeypatch.setattr(Lines, "read", read_line)
    monkeypatch.setattr(world_line_viewer, "GLANCE_DELAY_S", 0)
    one.screen.viewer.glance(soul, 1, -1)
    await one.until(lambda: read == [1])
    for world_line in (2, 3, 4):
        one.screen.viewer.glance(soul, world_line, -1)
        await one.pilot.pause()
    # No second thread beside the one that reads.
    assert read == [1]
    goes_on.set()
    await one.until(lambda: len(read) == 2)
    assert read == [1, 4]


@pytest.mark.exhaustive
async def test_of_what_a_dmail_would_take_the_words_of_the_user_stay(one: Desk) -> None:
    press = one.pilot.press
    await one.say("/dmail 4")
    await one.sees("D-Mail to #4")
    await one.until(lambda: bool(grey(one)))
    assert "Message" not in "".join(grey(one))
    assert "Words 3.3" in "".join(grey(one))
    assert one.screen.bench.views.gauge.prospect is not None
    await press("escape")
    await one.until(lambda: not grey(one) and "→" not in gauge(one))
    # Opened from the timeline, which greys as a rewind would, it shows that again when it is closed.
    await press("ctrl+t", "left_square_bracket")
    await one.until(lambda: "Message 2" in "".join(grey(one)))
    await press("enter")
    await one.confirm("d", "Rewind to #4")
    await one.sees("D-Mail to #4")
    await one.until(lambda: bool(grey(one)) and "Message" not in "".join(grey(one)))
    await press("escape")
    await one.until(lambda: "Message 2" in "".join(grey(one)))


async def test_a_line_that_takes_long_is_said_to_be_read(
    one: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lets_on = asyncio.Event()
    real = world_line_view.in_slices

    async def slowly(steps: Generator[None], seconds: float) -> None:
        await lets_on.wait()
        await real(steps, seconds)

    await one.say("/rewind 4")
    await one.until(lambda: isinstance(one.app.screen, RewindScreen))
    await one.pilot.press("enter")
    await one.until(lambda: 1 in one.screen.bench.views.timeline.model.tree.lines)
    monkeypatch.setattr(world_line_view, "in_slices", slowly)
    await one.say("/worldline 1")
    await one.until(lambda: bool(one.screen.query(WorldLineTranscript)))
    line = one.screen.query_one(WorldLineTranscript)
    await one.until(lambda: line.reading == "Reading world line 1")
    assert any("Reading world line 1" in row for row in chat(one))
    lets_on.set()
    await one.sees("Words 3.10")
    assert not line.reading
    await one.pilot.press("escape")
    monkeypatch.setattr(world_line_view, "TOLD_AFTER_S", 60.0)
    await one.say("/worldline 1")
    await one.sees("Words 3.10")
    assert not one.screen.query_one(WorldLineTranscript).reading
