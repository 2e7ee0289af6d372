"""The comparison on the screen: what is said there, and what a fault leaves of it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from support.left_line import left_line
from support.still_screen import still_screen

from kimi_tui.projection.comparison import Comparison
from kimi_tui.soul.world_line_reader import WorldLineComparison
from kimi_tui.tui.compare.layout import ComparisonRows
from kimi_tui.tui.compare.screen import CompareScreen, CompareSides
from kimi_tui.tui.frame_rows import HeaderText
from kimi_tui.wire.events import EventRecord, TextPart
from kimi_tui.workspace.diff import Divergence


def said(text: str) -> EventRecord:
    """Return the event of an answer of the agent."""
    return EventRecord(1, 0.0, TextPart(text))


def page(then: str = "what was then") -> CompareScreen:
    """Two lines that share nothing."""
    return CompareScreen(
        WorldLineComparison(
            -1,
            -1,
            (),
            (),
            Divergence(()),
            0,
        ),
        Comparison.of([said(then)], [said("what is now")]),
        left_line(2, "rewind", 0, at="", tokens_before=4_000, messages=9, shared=0),
        used=2_000,
        heading=HeaderText("Compared", "~", "main", "kimi-k2"),
    )


@pytest.mark.exhaustive
async def test_lines_with_equal_messages_are_not_said_to_share_nothing(tmp_path: Path) -> None:
    """A compaction begins a line anew, and what it kept stands on both sides."""
    async with still_screen(tmp_path) as one:
        one.app.push_screen(page("what is now"))
        await one.sees("no steps in common")
        one.app.push_screen(page())
        await one.sees("nothing in common")


@pytest.mark.exhaustive
async def test_what_is_copied_is_said(tmp_path: Path) -> None:
    async with still_screen(tmp_path) as one:
        one.app.push_screen(page())
        await one.sees("what was then")
        one.app.screen.query_one("#sides-head").text_select_all()
        await one.pilot.press("ctrl+c")
        await one.sees("Copied ")
        assert "Compare" in one.app.clipboard
        assert "what was then" in one.text()


@pytest.mark.exhaustive
async def test_a_second_click_selects_a_word_and_a_third_the_row_of_a_side(tmp_path: Path) -> None:
    async with still_screen(tmp_path) as one:
        one.app.push_screen(page())
        await one.sees("what was then")
        rows = one.text().split("\n")
        y = next(y for y, row in enumerate(rows) if "what was then" in row)
        sides = one.app.screen.query_one(CompareSides)
        at = (rows[y].index("then") + 1, y - sides.region.y)
        await one.pilot.click(sides, offset=at, times=2)
        await one.pilot.press("ctrl+c")
        assert one.app.clipboard == "then"
        assert sides.selected == 0
        await one.pilot.click(sides, offset=at, times=3)
        await one.pilot.press("ctrl+c")
        assert one.app.clipboard == "what was then"


@pytest.mark.exhaustive
async def test_a_fault_while_it_is_measured_is_told_and_it_can_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def measure(sheet: ComparisonRows) -> Generator[None]:
        raise RuntimeError("cannot be measured")
        yield

    async with still_screen(tmp_path) as one:
        with monkeypatch.context() as patch:
            patch.setattr(ComparisonRows, "measure", measure)
            one.app.push_screen(page())
            await one.sees("kimi-tui had an internal error")
            assert isinstance(one.app.screen, CompareScreen)
            await one.pilot.press("down", "enter", "n", "tab", "pagedown")
        assert "cannot be measured" in caplog.text
        await one.pilot.resize_terminal(100, 30)
        await one.sees("what was then")
        await one.pilot.press("escape")
        await one.until(lambda: one.app.screen is one.screen)


async def test_what_is_unfolded_stays_as_it_was_until_it_is_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with still_screen(tmp_path) as one:
        one.app.push_screen(page("what was then\n\n" + "\n\n".join(f"Part {n}" for n in range(20))))
        await one.sees("what was then")
        sides = one.app.screen.query_one(CompareSides)
        await one.pilot.press("down")
        assert "Part 9" not in one.text()
        for is_unfolded in (True, False):
            shown = one.text()
            sides.toggle()
            # The change may be painted at any time.
            assert one.text() == shown
            await one.until(lambda unfolded=is_unfolded: ("Part 9" in one.text()) is unfolded)
    assert "A fault" not in caplog.text
