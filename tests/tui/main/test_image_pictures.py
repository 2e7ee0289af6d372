"""Pictures of images: in the prompt, in the chat, on the card of a tool, and on a screen of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import ImageDraw
from support.made_images import flat, saved
from support.pictures import Pictures, still
from support.still_screen import show_records
from support.story import Teller
from textual.pilot import Pilot

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import Config
from kimi_tui.images import Image, read_image
from kimi_tui.launch import Launch
from kimi_tui.tool_cards import BriefBlock, ImageBlock
from kimi_tui.tui.app import KimiApp
from kimi_tui.tui.dialogs.picture import PictureView
from kimi_tui.tui.main.screen import MainScreen
from kimi_tui.tui.pictures import USUAL_CELL
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.wire.events import ToolCall, ToolResult, ToolStarted, TurnBegin, TurnEnd

SIZES = [(120, 40), (80, 24), (60, 20)]


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine, the same home and zone everywhere."""
    still(monkeypatch, tmp_path)


def a_window() -> Image:
    """Return a screenshot of few colours, which every version of Pillow makes the same cells of."""
    shot = flat(1280, 800)
    draw = ImageDraw.Draw(shot)
    draw.rectangle((0, 0, 1280, 120), fill=(32, 37, 46))
    draw.rectangle((80, 200, 520, 720), fill=(250, 250, 247))
    draw.rectangle((600, 200, 1200, 420), fill=(18, 120, 220))
    draw.ellipse((760, 470, 1040, 750), fill=(177, 39, 37))
    return read_image(saved(shot), "Screenshot 2026-03-02.png")


def told(images: tuple[ImageBlock, ...]) -> Teller:
    """Return a conversation about an image."""
    teller = Teller()
    teller.checkpoint("user", "what is wrong")
    teller.tell(TurnBegin("What is wrong with this page?", images=images))
    teller.checkpoint("step")
    teller.tell(ToolCall("c", "ReadFile", '{"path": "docs/logo.png"}'))
    teller.tell(ToolStarted("c", "ReadFile", "{}"))
    logo = ImageBlock("logo.png", "image/png", 64, 64, 1_800, "0" * 64)
    teller.tell(ToolResult("c", False, "image, 64x64", display=(BriefBlock("image"), logo)))
    teller.tell(TurnEnd("done"))
    return teller


async def show(home: Path, pilot: Pilot[None], theme: str) -> MainScreen:
    """Let the main screen show it, with an image in the prompt."""
    running, shot = pilot.app, a_window()
    assert isinstance(running, KimiApp)
    running.theme = theme
    screen = running.screen
    assert isinstance(screen, MainScreen)

    async def load(facts: ImageBlock) -> bytes | None:
        return shot.data if facts.sha256 == shot.sha256 else saved(flat(64, 64))

    pytest.MonkeyPatch().setattr(screen.conversation, "load_image", load)
    records = told((ImageBlock.of(shot),)).records
    await show_records(running, pilot, records, "What is wrong")
    screen.prompt.area.put(f"And here? {running.images.add(shot)} ")
    await pilot.pause()
    thumbnails = screen.transcript._thumbnails  # pyright: ignore[reportPrivateUsage]
    while thumbnails is not None and thumbnails._making:  # pyright: ignore[reportPrivateUsage]
        await pilot.pause(0.01)
    await pilot.pause()
    return screen


def app(home: Path) -> KimiApp:
    """Return the program in `~/work/shop`."""
    work = home / "work" / "shop"
    work.mkdir(parents=True)
    return KimiApp(
        Launch(
            work_dir=work,
            config_path=home / ".config" / "kimi-tui" / "config.toml",
            config=Config(theme="dark", reduced_motion=True, hints=False),
            choice=ModelChoice("moonshot", "http://127.0.0.1:9/v1", "kimi-k2"),
        )
    )


@pytest.mark.sample
@pytest.mark.parametrize(
    ("size", "theme"),
    [*((size, "kimi-dark") for size in SIZES), (SIZES[0], "kimi-light")],
    ids=["120", "80", "60", "120-light"],
)
async def test_images_in_chat_and_prompt(
    picture: Pictures, tmp_path: Path, size: tuple[int, int], theme: str
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        await show(tmp_path, pilot, theme)
        picture(running)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", SIZES, ids=["120", "80", "60"])
async def test_an_image_on_a_screen_of_its_own(
    picture: Pictures, tmp_path: Path, size: tuple[int, int]
) -> None:
    running = app(tmp_path)
    async with running.run_test(size=size) as pilot:
        screen = await show(tmp_path, pilot, "kimi-dark")
        screen.transcript.post_message(Transcript.ImageOpened(ImageBlock.of(a_window())))
        await pilot.pause()
        view = running.screen.query_one(PictureView)
        while not view._drawing.rows:  # pyright: ignore[reportPrivateUsage]
            await pilot.pause(0.01)
        await pilot.pause()
        picture(running)


@pytest.mark.sample
@pytest.mark.parametrize("graphics", ["kitty", "sixel"])
async def test_a_terminal_with_graphics_draws_it_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphics: str
) -> None:
    drawn: list[tuple[int, int, str]] = []

    async def known(self: KimiApp) -> str:
        del self
        return graphics

    monkeypatch.setattr(KimiApp, "graphics", known)
    monkeypatch.setattr(KimiApp, "draw_at", lambda _, *what: drawn.append(what))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr("kimi_tui.tui.dialogs.picture.cell_of_terminal", lambda: USUAL_CELL)
    running = app(tmp_path)
    async with running.run_test(size=(80, 24)) as pilot:
        screen = await show(tmp_path, pilot, "kimi-dark")
        screen.transcript.post_message(Transcript.ImageOpened(ImageBlock.of(a_window())))

        async def until(n: int) -> str:
            while len(drawn) < n:
                await pilot.pause(0.01)
            assert drawn[n - 1][:2] in ((2, 2), (0, 0))
            return drawn[n - 1][2]

        begins = {"kitty": "\x1b_Ga=T,f=100,", "sixel": "\x1bP0;1q"}[graphics]
        first = await until(1)
        assert first.startswith(begins)
        assert "▀▀" not in running.export_screenshot()
        await pilot.resize_terminal(60, 20)
        if graphics == "kitty":
            # The old image is deleted before the new one is drawn, so that nothing of it stays on the screen.
            number = first.partition("i=")[2].partition(",")[0]
            assert f"d=I,i={number}," in await until(2)
            assert (await until(3)).startswith(begins)
            await pilot.press("escape")
            assert "a=d,d=I" in await until(4)
        else:
            assert (await until(2)).startswith(begins)
            await pilot.press("escape")
        await pilot.pause()
        assert running.screen is screen
