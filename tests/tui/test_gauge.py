"""The gauge: figures, bar, what it says after a fold, and that it stays within its row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.story import Teller, until_folding, whole_story
from support.time_travel_app import TimeTravelApp
from textual.geometry import Region

from kimi_tui.projection.tokens import FreedTokens
from kimi_tui.tui.gauge import (
    Gauge,
    GaugeLayout,
    alarm_of,
    bar_spans,
    details,
    figure_spans,
    forecast,
    prospect_spans,
)
from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.rows import Span
from kimi_tui.wire.events import StatusUpdate

LOOKS = StatusUpdate(
    used=58_300, limit=262_144, trigger=212_144, system=7_000, talk=20_600, tools=30_700
)


def text(spans: list[Span]) -> str:
    return "".join(span.text for span in spans)


def test_the_bar_of_the_pictures() -> None:
    bar = bar_spans(LOOKS, 58_300, 77, UNICODE, freed=None, mono=False)
    assert text(bar) == "━" * 17 + "─" * 45 + "≡" + "─" * 14
    assert [span.style for span in bar] == ["system", "talk", "tools", "free", "mark", "free"]
    mono = text(bar_spans(LOOKS, 58_300, 77, UNICODE, freed=None, mono=True))
    assert mono.startswith("┅┅━━━━━━═════════─")


def test_where_bar_and_figures_stand() -> None:
    assert GaugeLayout.of(120, 38) == GaugeLayout(2, 77, 83, 37)
    assert GaugeLayout.of(80, 0) == GaugeLayout(2, 41, 45, 33)
    assert GaugeLayout.of(60, 0) == GaugeLayout(2, 36, 40, 18)


def test_what_was_freed_is_marked_in_its_colour() -> None:
    freed = FreedTokens("dmail", 49_800, 31_400, 1)
    status = StatusUpdate(used=31_400, limit=262_144, trigger=212_144)
    bar = bar_spans(status, 31_400, 77, UNICODE, freed=freed, mono=False)
    assert Span("╌" * 6, "dmail") in bar
    assert "◆ −18.4k" in text(figure_spans(status, 31_400, 37, UNICODE, freed=freed))
    assert "@ -18.4k" in text(figure_spans(status, 31_400, 37, ASCII, freed=freed))


def test_what_the_prompt_adds_is_said_first_and_stands_out_if_it_does_not_fit() -> None:
    status = StatusUpdate(used=5_200, limit=60_000, trigger=45_000)

    def shown(to_send: int, width: int) -> list[Span]:
        return figure_spans(status, 5_200, width, UNICODE, freed=None, to_send=to_send)

    assert text(shown(2_000, 40)).rstrip().endswith("+~2.0k  ≡ at 45k")
    assert Span("+~114k", "error") in shown(114_000, 28)
    assert "≡" not in text(shown(114_000, 28))
    assert Span("+~2.0k", "ink") in shown(2_000, 40)


def test_a_large_folder_that_is_being_taken_in_is_named() -> None:
    for width, words in ((37, "file snapshot: 40%"), (33, "snapshot: 40%"), (18, "")):
        told = text(figure_spans(LOOKS, 58_300, width, UNICODE, freed=None, files_known=40))
        assert told.split("%", 1)[1].strip() == words
    assert any("is 40% done" in line for line in details(LOOKS, files_known=40))


@pytest.mark.parametrize(
    ("used", "per_step", "words"),
    [
        (58_300, 17_500, "in ~9 steps"),
        (58_300, 0, "at 212k"),
        (200_000, 17_500, "next step"),
        (230_000, 10, "next step"),
    ],
)
def test_the_forecast(used: int, per_step: int, words: str) -> None:
    assert forecast(used, 212_144, per_step) == words


def test_what_would_be_left_stands_beside_what_is_used() -> None:
    now = StatusUpdate(used=58_300, limit=262_144, trigger=212_144)
    status = now._replace(used=53_700)

    def text(width: int) -> str:
        return "".join(span.text for span in prospect_spans(status, now, width, UNICODE))

    assert text(33) == "58.3k → 53.7k / 262k  20%        "
    assert text(18) == "58.3k → 53.7k  20%"
    assert text(15) == "58.3k → 53.7k  "
    status = now._replace(used=53_700, estimated=True)
    assert text(15) == "58.3k → ~53.7k "
    status = now._replace(used=58_260)
    assert text(26) == "58.3k −40 / 262k  22%     "
    status = status._replace(estimated=True)
    assert text(26) == "58.3k ~−40 / 262k  22%    "


@pytest.mark.sample(2)
@pytest.mark.parametrize(("used", "style"), [(100_000, ""), (184_000, "warn"), (223_000, "error")])
def test_colour_and_percentage_warn(used: int, style: str) -> None:
    status = StatusUpdate(used=used, limit=262_144, trigger=250_000, talk=used)
    assert alarm_of(status) == style
    bar = bar_spans(status, used, 77, UNICODE, freed=None, mono=False)
    assert bar[0].style == (style or "talk")
    figures = figure_spans(status, used, 37, UNICODE, freed=None)
    assert next(one.style for one in figures if one.text.endswith("%")) == (style or "ink")


@given(
    st.integers(0, 3_000_000),
    st.integers(0, 3_000_000),
    st.integers(0, 3_000_000),
    st.integers(1, 200),
    st.booleans(),
)
def test_nothing_is_ever_wider_than_its_place(
    used: int, limit: int, trigger: int, width: int, estimated: bool
) -> None:
    status = StatusUpdate(
        used, limit, trigger, estimated, system=used // 3, talk=used // 3, tools=used // 3
    )
    for glyphs in (UNICODE, ASCII):
        bar = bar_spans(
            status, used, width, glyphs, freed=FreedTokens("rewind", limit, 0, 1), mono=True
        )
        assert cell_len(text(bar)) == width
        figures = figure_spans(status, used, max(24, width), glyphs, freed=None)
        assert cell_len(text(figures)) == max(24, width)


def test_details_name_split_and_totals() -> None:
    status = StatusUpdate(
        58_300, 262_144, 212_144, True, False, 7_000, 20_600, 30_700, 0, 700_000, 6_000, 70
    )
    assert details(status) == [
        "System prompt and tools  7.0k tokens",
        "Conversation  20.6k tokens",
        "Tool results  30.7k tokens",
        "Free  204k tokens",
        "Compaction at 212k tokens",
        "",
        "This session: input 700k tokens (6.0k cached)",
        "output 70 tokens",
        "~ marks an estimate, which the next answer corrects.",
    ]
    assert details(status, "about $0.42")[-3:-1] == ["output 70 tokens", "cost about $0.42"]


async def test_on_the_screen() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        assert app.gauge_text == (
            "  " + "━" * 14 + "─" * 48 + "≡" + "─" * 14 + "    47.5k / 262k  18%  ≡ in ~10 steps"
        )
        app.gauge.viewed = 210_000
        await pilot.pause()
        assert "210k / 262k  80%" in app.gauge_text
        app.gauge.viewed = None
        await pilot.pause()
        assert "47.5k" in app.gauge_text


@pytest.mark.exhaustive
@pytest.mark.parametrize("motion", [True, False])
async def test_the_fall_is_told_and_ends_where_the_model_is(motion: bool) -> None:
    story: Teller = until_folding()
    app = TimeTravelApp(story.records, motion=motion)
    async with app.run_test(size=(120, 40)) as pilot:
        before = app.gauge.shown
        first = len(story.records)
        story.dmail(8)
        app.feed(story.records[first:])
        assert "◆ ~−18k" in app.gauge_text
        assert app.gauge.shown == (before if motion else story.used)
        await pilot.wait_for_animation()
        assert app.gauge.shown == story.used
        assert "~31.6k / 262k" in app.gauge_text
        # With the server's own figure it is no estimate any more.
        first = len(story.records)
        story.step(cost=0)
        app.feed(story.records[first:])
        assert "◆ −18.4k" in app.gauge_text
        # The line of which that was told is not shown any more.
        first = len(story.records)
        story.jump(max(story.stored), op="undo")
        app.feed(story.records[first:])
        assert "18.4k" not in app.gauge_text


@pytest.mark.exhaustive
async def test_what_leaves_the_bar_as_it_is_does_not_move() -> None:
    story = until_folding()
    app = TimeTravelApp(story.records, motion=True)
    async with app.run_test(size=(120, 40)):
        # A cell of the bar stands for more than three thousand tokens.
        for tokens, moves in ((1_000, False), (9_000, True)):
            first = len(story.records)
            story.used += tokens
            story.status()
            app.feed(story.records[first:])
            assert (app.gauge.shown < story.used) is moves


@pytest.mark.exhaustive
async def test_only_pictures_that_differ_are_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kimi_tui.tui.gauge.MOVE_FRAME_S", 0.0)
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.wait_for_animation()
        await pilot.pause()
        painted = 0
        refresh = app.gauge.refresh

        def count(*regions: Region) -> Gauge:
            nonlocal painted
            painted += 1
            return refresh(*regions)

        monkeypatch.setattr(app.gauge, "refresh", count)
        for tokens in range(47_500, 47_530):
            app.gauge.shown = float(tokens)
        assert painted == 0
        app.gauge.shown = 52_000.0
        assert painted == 1


async def test_hover_tells_the_rest() -> None:
    app = TimeTravelApp(whole_story().records)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.hover("Gauge", offset=(5, 0))
        await pilot.pause()
        assert "Tool results" in str(app.gauge.tooltip)


async def test_before_the_session_is_open() -> None:
    app = TimeTravelApp()
    async with app.run_test(size=(80, 24)):
        assert app.gauge_text.strip() == "─" * 41
