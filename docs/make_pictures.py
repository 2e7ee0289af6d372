"""Makes the pictures of the README from the program itself: `python docs/make_pictures.py`.

It plays the demo in a pty, answers as a user would, and saves what the screen shows at a few moments as SVG. With
`--recording` the whole story becomes a GIF too (that needs `pip install resvg-py pillow`).
"""

from __future__ import annotations

import argparse
import io
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.picture import svg_of  # noqa: E402 - needs the path above
from support.terminal import ScreenTimeout, Terminal  # noqa: E402

PICTURES = Path(__file__).resolve().parent / "pictures"
_FRAME_S = 0.35
QUIET_S = 0.7
"""Seconds without a key after which a preview and a world line take one."""

_GIF_WIDTH = 980
PROGRAM = str(Path(sys.executable).parent / "kimi-tui")


class Camera:
    """Takes stills, and frames of the recording whenever it is asked to look."""

    def __init__(self, terminal: Terminal, folder: Path, *, recording: bool) -> None:
        self._terminal = terminal
        self._folder = folder
        self._recording = recording
        self._began = time.monotonic()
        self.frames: list[tuple[float, str]] = []

    def still(self, name: str) -> None:
        """Save the screen as it is when nothing moves."""
        self._terminal.wait_quiet(0.4, 20)
        self.look()
        self._terminal.save_svg(self._folder / f"{name}.svg")
        print(self._folder / f"{name}.svg")

    def look(self) -> None:
        """Add a frame if the screen has changed."""
        if not self._recording:
            return
        with suppress(ScreenTimeout):
            self._terminal.wait_quiet(0.015, 0.4)  # between two frames, not in the middle of one
        picture = svg_of(self._terminal.cells())
        if not self.frames or self.frames[-1][1] != picture:
            self.frames.append((time.monotonic() - self._began, picture))

    def until(self, text: str, timeout_s: float = 90.0) -> None:
        """Watch until `text` is on the screen, answering every approval with yes."""
        deadline = time.monotonic() + timeout_s
        while text not in self._terminal.screen_text():
            if time.monotonic() > deadline:
                raise SystemExit(f"{text!r} never came:\n{self._terminal.screen_text()}")
            if "Yes, once" in self._terminal.screen_text():
                self.answer()
            self.look()
            time.sleep(0.12)

    def answer(self) -> None:
        """Say yes, once the approval listens."""
        self._terminal.wait_quiet(0.8)
        self.look()
        self._terminal.key("y")
        self._terminal.wait_gone("Yes, once")


def play(folder: Path, *, recording: bool) -> list[tuple[float, str]]:
    """Play the story and take the pictures; returns the frames of the recording."""
    with tempfile.TemporaryDirectory() as home:
        command = [PROGRAM, "--demo", "--speed", "2" if recording else "10"]
        with Terminal(command, env={"KIMI_TUI_HOME": home}, cwd=Path(home)) as terminal:
            camera = Camera(terminal, folder, recording=recording)
            camera.until("Rows with")
            terminal.key("enter")
            camera.until("Make this edit?")
            camera.still("dmail")
            camera.answer()
            camera.until("Run this command?")
            camera.still("approval")
            camera.until("All six tests pass")
            camera.until("Do all the samples")
            camera.still("main")
            if not recording:
                look_beside(terminal, camera)
            terminal.key("enter")
            camera.until("1,420 rows")
            camera.until("Say in the README")
            terminal.key("enter")
            camera.until("it is your turn")
            camera.until("Ctrl+T timeline")
            camera.still("timeline")
            line = next(
                y
                for y, text in enumerate(terminal.lines())
                if "Say in the README" in text[84:] or "Say in the R" in text[84:]
            )
            terminal.click(95, line)
            terminal.wait_for("Rewind the conversation")
            camera.still("rewind")
            terminal.wait_quiet(QUIET_S)
            terminal.key("enter")
            terminal.wait_gone("Rewind the conversation")
            camera.still("rewound")
            play_back(terminal, camera)
            terminal.key("ctrl+q")
            terminal.wait_exit()
            return camera.frames


def look_beside(terminal: Terminal, camera: Camera) -> None:
    """The world line that the D-Mail left behind: read, and compared with now."""
    terminal.click_text("├─◊ 1")
    terminal.wait_for("left by")
    terminal.key("ctrl+t")
    terminal.wait_for("Enter preview")
    terminal.key("w")
    terminal.wait_for("read only")
    camera.still("world-line")
    terminal.wait_quiet(QUIET_S)
    terminal.key("c")
    terminal.wait_for("Compare")
    camera.still("compare")
    terminal.key("escape")
    terminal.wait_gone("Compare")
    terminal.key("escape")
    terminal.wait_gone("read only")
    terminal.wait_for("Enter preview")
    terminal.key("escape")
    terminal.wait_gone("Enter preview")


def play_back(terminal: Terminal, camera: Camera) -> None:
    """The whole session once more, stopped in the middle."""
    terminal.key("ctrl+t")
    terminal.wait_for("Enter preview")
    terminal.key("p")
    terminal.wait_for("paused")
    terminal.key(*["right"] * 7)
    camera.still("replay")
    terminal.key("escape")
    terminal.wait_gone("continue from here")


def save_gif(frames: list[tuple[float, str]], path: Path) -> None:
    """Write the frames as an animated GIF, pauses of the story no longer than two seconds."""
    import resvg_py
    from PIL import Image

    kept = [frames[0]]
    for frame in frames[1:]:
        if frame[0] - kept[-1][0] >= _FRAME_S:
            kept.append(frame)
    frames = [*kept, frames[-1]]
    pictures = [
        Image.open(
            io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_string=svg, width=_GIF_WIDTH)))
        ).convert("RGB")
        for _, svg in frames
    ]
    # One palette for all, so that a frame holds only what has changed since the one before; made of the theme's own
    # colours, since a statistical one would lose the few cells of amber and violet that the story is about.
    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette([svg for _, svg in frames]))
    images = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    times = [at for at, _ in frames] + [frames[-1][0] + 4.0]
    pauses = [min(2_000, max(40, int(1000 * (b - a)))) for a, b in itertools.pairwise(times)]
    pauses[-1] = 4_000
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=pauses, loop=0, optimize=True
    )


def _palette(pictures: list[str]) -> list[int]:
    """Every colour of the pictures, and what lies between each and the page (the edges of letters), as bytes."""
    found = Counter(colour for svg in pictures for colour in re.findall(r'fill="#(\w{6})"', svg))
    page = bytes.fromhex("101318")
    values: list[int] = []
    for colour, _ in found.most_common(85):
        whole = bytes.fromhex(colour)
        for share in (1.0, 0.66, 0.33):
            values += [round(a * share + b * (1 - share)) for a, b in zip(whole, page, strict=True)]
    return values


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(prog="docs/make_pictures.py")
    parser.add_argument("--recording", action="store_true", help="also make demo.gif")
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    frames = play(PICTURES, recording=options.recording)
    if options.recording:
        save_gif(frames, PICTURES / "demo.gif")
        print(PICTURES / "demo.gif")


if __name__ == "__main__":
    main()
