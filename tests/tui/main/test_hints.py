"""Which keys the footer of the main screen lists."""

from __future__ import annotations

from rich.cells import cell_len

from kimi_tui.tui.frame import fit_hints
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.keyboard import key_of
from kimi_tui.tui.main.hints import hints
from kimi_tui.tui.state import MainState


def test_at_sixty_cells_the_timeline_can_be_filtered() -> None:
    shown = fit_hints(hints("timeline", MainState(), {}, UNICODE, 0.0), 56)
    assert [key for key, _ in shown] == ["↑↓", "Enter", "/", "Esc"]


def test_the_footer_follows_what_happens() -> None:
    def said(state: MainState, place: str = "prompt") -> str:
        pairs = hints(place, state, {}, UNICODE, 1000.0)  # type: ignore[arg-type]
        return "   ".join(f"{key} {meaning}" for key, meaning in pairs)

    assert said(MainState(running=True)) == (
        "Enter steer   Esc stop   Ctrl+T timeline   Ctrl+O compact   Ctrl+P commands   F1 help"
    )
    assert "compact" not in said(MainState())
    assert "go on" in said(MainState(can_resume=True))
    assert "try now" in said(MainState(running=True, retry_until=1002.0))
    waiting = MainState(running=True, commands=frozenset({"key"}))
    assert "background" in said(waiting._replace(step=1))
    # A command of the user's own is one that no agent waits for.
    assert "background" not in said(waiting)
    # While it runs there is no agent to steer.
    assert said(waiting._replace(own_command=True)).startswith("Enter send after it   Esc stop")
    assert said(waiting._replace(own_command=True, step=1)).startswith("Enter steer")
    assert said(MainState(), "timeline").startswith("↑↓ move   Enter preview   / filter")
    assert cell_len(said(MainState(), "timeline")) <= 116
    # While a filter is typed, letters and brackets are what it looks for.
    assert said(MainState(), "filter") == "Enter go there   Esc all steps   Ctrl+U clear"
    assert "fold" not in said(MainState(), "found")


def test_changed_keys_are_the_ones_that_are_shown() -> None:
    assert key_of("compact", {"compact": "ctrl+k"}) == "Ctrl+K"
    pairs = hints("prompt", MainState(running=True), {"compact": ""}, UNICODE, 0.0)
    assert "compact" not in [meaning for _, meaning in pairs]
