"""The page that is painted before Textual is imported has the cells of the app's first frame."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyte.screens import Char
from rich.console import Console
from support.emulator import QuickScreen, QuickStream
from textual._wrap import compute_wrap_offsets

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config, StatuslineConfig
from kimi_tui.instant import prompt as instant_prompt
from kimi_tui.instant.prompt import prompt_of
from kimi_tui.launch import NEWEST, Launch
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.first_page import wrapped
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.palette import FEW, MANY, TRUE_COLOUR

SYSTEMS = {FEW: "standard", MANY: "256", TRUE_COLOUR: "truecolor"}
ENVIRONMENTS = {
    FEW: {"TERM": "xterm"},
    MANY: {"TERM": "xterm-256color"},
    TRUE_COLOUR: {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
}
LONG = "a word and another one that is so long that the field wraps it " * 3


def launch_with(theme: str, folder: Path, **changes: object) -> Launch:
    config = Config(theme=theme)._replace(glyphs=str(changes.pop("glyphs", "unicode")))
    if changes.pop("status", False):
        config = config._replace(statusline=StatuslineConfig(("branch",)))
    choice = ModelChoice("p", "http://127.0.0.1:9/v1", "kimi-k3")
    made = Launch(folder, folder / "config.toml", config, choice, mode="sandboxed")
    return made._replace(**changes)


def cells_of(output: str, size: tuple[int, int]) -> list[list[Char]]:
    screen = QuickScreen(*size)
    QuickStream(screen).feed(output.encode())
    return [[_seen(screen.buffer[y][x]) for x in range(size[0])] for y in range(size[1])]


def _seen(cell: Char) -> Char:
    """Return a cell without the ink of a blank, which nobody sees."""
    return cell if cell.data != " " or cell.reverse else cell._replace(fg="", bold=False)


async def app_cells(
    launch: Launch, size: tuple[int, int], colours: int, text: str
) -> list[list[Char]]:
    app = KimiApp(launch, colours=colours)
    console = Console(color_system=SYSTEMS[colours], file=io.StringIO(), force_terminal=True)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        screen = app.screen
        assert isinstance(screen, MainScreen)
        if text:
            screen.prompt.area.write(text)
        await pilot.pause()
        for _ in range(3 if text == LONG else 0):
            # While the field grows it has a scrollbar for a moment.
            await pilot.pause(0.1)
        strips = screen._compositor.render_strips()
    rows = (f"\x1b[{y};1H{strip.render(console)}" for y, strip in enumerate(strips, 1))
    return cells_of("".join(rows), size)


def instant_cells(
    launch: Launch, size: tuple[int, int], environ: dict[str, str], text: str
) -> list[list[Char]]:
    made = prompt_of(launch, environ)
    assert made is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instant_prompt, "_size_of", lambda _: size)
        made._typed.take(text.encode(), 0.0)
        return cells_of(made._changes(), size)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("theme", "colours", "size", "text", "changes"),
    [
        ("dark", TRUE_COLOUR, (120, 40), "", {}),
        ("dark", TRUE_COLOUR, (160, 50), "Add a test", {"status": True}),
        ("light", TRUE_COLOUR, (80, 24), "/mo", {}),
        ("dark", MANY, (110, 28), LONG, {}),
        ("light", MANY, (60, 20), "é 你好 fine", {"mode": "all"}),
        ("dark", FEW, (100, 30), "x", {"mode": "plan"}),
        ("dark", TRUE_COLOUR, (20, 5), "abc", {"glyphs": "ascii"}),
        ("dark", TRUE_COLOUR, (40, 10), "", {"glyphs": "ascii"}),
        ("dark", TRUE_COLOUR, (100, 33), "hello", {"resume": NEWEST}),
        ("light", TRUE_COLOUR, (24, 9), "", {}),
        ("nogrey", TRUE_COLOUR, (120, 40), "abc", {}),
    ],
)
async def test_the_instant_frame_is_the_first_one_of_the_app(
    theme: str,
    colours: int,
    size: tuple[int, int],
    text: str,
    changes: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = dict(ENVIRONMENTS[colours])
    if theme == "nogrey":
        theme, environ["NO_COLOR"] = "dark", "1"
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(MainScreen, "_open", lambda _: None)
    launch = launch_with(theme, tmp_path, **changes)
    app = await app_cells(launch, size, colours, text)
    instant = instant_cells(launch, size, environ, text)
    offered = text.startswith("/")
    for y, (one, other) in enumerate(zip(instant, app, strict=True)):
        if offered and "".join(cell.data for cell in one) != "".join(cell.data for cell in other):
            continue  # the menu of commands, and its keys
        assert one == other, (
            f"row {y}: {''.join(c.data for c in one)!r}\n{''.join(c.data for c in other)!r}"
        )


@given(st.text(st.sampled_from("ab é你 \u0301x"), max_size=60), st.integers(2, 14))
def test_the_prompt_wraps_as_the_field_of_the_app(line: str, width: int) -> None:
    cuts = [0, *compute_wrap_offsets(line, width, 4), len(line)]
    rows = [line[a:b] for a, b in pairwise(cuts)]
    assert wrapped(line, width) == rows
