"""Makes the pictures of the README and the guide from the program itself: `python docs/make_pictures.py`.

It plays the demo in a pty, answers as a user would, and saves what the screen shows at a few moments as SVG; then it shows the
other screens beside a scripted model. With `--recording` the whole story becomes a GIF too (that needs
`pip install resvg-py pillow`). `--into`, `--theme` and `--size` are for looking at all of it otherwise.
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

from support.chat_server import (  # noqa: E402 - needs the path above
    Answer,
    ChatServerThread,
    Request,
    call,
    calls,
    gate,
    say,
)
from support.picture import svg_of  # noqa: E402
from support.stored_sessions import store_session  # noqa: E402
from support.terminal import ScreenTimeout, Terminal  # noqa: E402

PICTURES = Path(__file__).resolve().parent / "pictures"
_FRAME_S = 0.35
QUIET_S = 0.7
"""Seconds without a key after which a preview and a world line take one."""

_GIF_WIDTH = 980
PROGRAM = str(Path(sys.executable).parent / "kimi-tui")
SIZE = (120, 40)
GUIDE_SIZE = (100, 30)
WIDE = 110
"""Columns from which the timeline stands beside the chat."""

QUESTION = {
    "question": "Where should the limit be?",
    "options": [
        {"label": "In the configuration", "description": "Everyone can change it."},
        {"label": "In the code", "description": "One place, and no new setting."},
    ],
}
SUBAGENTS = [
    ("Agent", {"description": title, "prompt": f"{title}.", "kind": "explore"})
    for title in ("Find the callers of the parser", "Find tests of long fields")
]
PLAN = """1. `src/parser.py`: read a quoted field to its closing quote.
2. `tests/test_parser.py`: a field with a line break in it.
3. Run the tests.
"""
MODELS = (
    {
        "id": "kimi-k3",
        "context_length": 262_144,
        "supported_parameters": ["tools", "reasoning"],
        "architecture": {"input_modalities": ["text", "image"]},
        "pricing": {"prompt": "0.0000006", "completion": "0.0000025"},
    },
    {"id": "kimi-k3-fast", "context_length": 131_072, "supported_parameters": ["tools"]},
)


class Camera:
    """Takes stills, and frames of the recording whenever it is asked to look."""

    def __init__(self, terminal: Terminal, folder: Path, *, recording: bool) -> None:
        self._terminal = terminal
        self._folder = folder
        self._recording = recording
        self._began = time.monotonic()
        self.frames: list[tuple[float, str]] = []

    def still(self, name: str, *, moving: bool = False) -> None:
        """Save the screen as it is when nothing moves, or with `moving` while the clock beside the prompt does."""
        if moving:
            time.sleep(QUIET_S)
        else:
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
        asked = _question(self._terminal.screen_text())
        self._terminal.key("y")
        # The next one may follow at once.
        self._terminal.wait_for(
            lambda screen: "Yes, once" not in screen or _question(screen) not in ("", asked)
        )


def _question(screen: str) -> str:
    """The first row of what is asked in the place of the prompt; empty where none stands there."""
    asked = re.findall(r"^▌ +([A-Z].*\?) *$", screen, re.MULTILINE)
    return asked[-1] if asked else ""


def play(folder: Path, theme: str, *, recording: bool) -> list[tuple[float, str]]:
    """Play the story and take the pictures; returns the frames of the recording."""
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.toml").write_text(f'theme = "{theme}"\n')
        command = [PROGRAM, "--demo", "--speed", "2" if recording else "10"]
        with Terminal(command, env={"KIMI_TUI_HOME": home}, cwd=Path(home), size=SIZE) as terminal:
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
    terminal.wait_for("created by")
    terminal.key("ctrl+t")
    terminal.wait_for("Enter preview")
    terminal.key("w")
    terminal.wait_for("c compare")
    camera.still("world-line")
    terminal.wait_quiet(QUIET_S)
    terminal.key("c")
    terminal.wait_for("Compare")
    camera.still("compare")
    terminal.key("escape")
    terminal.wait_gone("Compare")
    terminal.key("escape")
    terminal.wait_gone("c compare")
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


def tour(folder: Path, theme: str, size: tuple[int, int]) -> None:
    """The screens that the story does not come by, for the guide."""
    with tempfile.TemporaryDirectory() as home, ChatServerThread(models=MODELS) as server:
        environment = {"KIMI_TUI_HOME": home, "HOME": home}
        work = Path(home) / "importer"
        (work / "src").mkdir(parents=True)
        (work / "tests").mkdir()
        for name in ("src/parser.py", "src/writer.py", "tests/test_parser.py", "README.md"):
            (work / name).write_text("x = 1\n")
        (work / "serve.sh").write_text("echo Listening on port 8000\nsleep 600\n")
        (Path(home) / "config.toml").write_text(f'theme = "{theme}"\n')
        (Path(home) / "config.toml").chmod(0o600)
        with Terminal([PROGRAM], env=environment, cwd=work, size=size) as terminal:
            terminal.wait_for("Which model should the agent use?")
            terminal.wait_gone("looking for")
            Camera(terminal, folder, recording=False).still("first-run")
            terminal.key("1")
            terminal.wait_for("OpenRouter")
            terminal.wait_quiet(QUIET_S)
            terminal.key("down", "down")
            terminal.wait_for("This plan is meant for")
            Camera(terminal, folder, recording=False).still("first-key")
        now = time.time()
        store_session(
            Path(home), work, "Read the export of 2019", "It has two encodings.", at=now - 5e5
        )
        store_session(
            Path(home), work, "Why is the import slow?", "The parser copies.", at=now - 9e4
        )
        (Path(home) / "config.toml").write_text(
            f'theme = "{theme}"\nmode = "ask"\ndefault_model = "kimi-k3"\n'
            f'[providers.local]\ntype = "openai_legacy"\nbase_url = "{server.base_url}"\n'
            'api_key = "k"\n[models.kimi-k3]\nprovider = "local"\nmodel = "kimi-k3"\n'
            'max_context_size = 262144\ncapabilities = ["thinking", "image_in"]\n'
        )
        with Terminal([PROGRAM], env=environment, cwd=work, size=size) as terminal:
            look_around(terminal, Camera(terminal, folder, recording=False), server)


def _looks(request: Request) -> Answer:
    """The first step of a sub-agent."""
    text = "I look for who calls it." if "callers" in str(request.messages) else "I list the tests."
    return call("Grep", {"pattern": "x = "}, text=text)


def _reports(request: Request) -> Answer:
    """The answer of a sub-agent, of which the picture has the beginning."""
    if "callers" in str(request.messages):
        return gate(8, say("The writer calls it once, after each row, and keeps no field."))
    return gate(8, say("There are no tests of long fields, and none of quoted ones."))


def look_around(terminal: Terminal, camera: Camera, server: ChatServerThread) -> None:
    """One session, from the first file that is named to its place among the others."""

    def ask(words: str) -> None:
        terminal.wait_for("send")
        terminal.type(words)
        terminal.key("enter")
        # With more behind it in one burst, Enter would break the line.
        terminal.wait_quiet(QUIET_S)

    def show(words: str, until: str, name: str) -> None:
        ask(words)
        terminal.wait_for(until)
        camera.still(name)
        terminal.key("escape")
        terminal.wait_gone(until)

    def answer(key: str) -> None:
        terminal.wait_quiet(0.8)
        terminal.key(key)

    server.script(
        call("AskUserQuestion", {"questions": [QUESTION]}),
        say("Then it is in `config.toml`."),
        call("ExitPlanMode", {"plan": PLAN}),
        call("Shell", {"command": "wc -l src/parser.py"}),
        call("Shell", {"command": "sh serve.sh", "background": True}),
        say("The server runs in the background, as task 1."),
    )
    server.server.title = say("Bound the length of a field")
    terminal.wait_for("Ctrl+T timeline")
    terminal.type("/se")
    terminal.wait_for("▌ /se")
    camera.still("menu")
    terminal.key("ctrl+u")
    terminal.type("Bound a field in @prs")
    terminal.wait_for("src/parser.py")
    camera.still("files")
    terminal.key("tab")
    terminal.wait_gone("tests/test_parser.py")
    terminal.key("ctrl+u")
    ask("!wc -l src/*.py")
    terminal.wait_for("exit 0")
    ask("Bound the length of a field in @src/parser.py")
    terminal.wait_for("Other (your own answer)")
    camera.still("question")
    answer("1")
    terminal.wait_for("Then it is in")
    ask("/plan")
    ask("Plan it")
    terminal.wait_for("Carry out this plan?")
    camera.still("plan")
    answer("2")
    terminal.wait_for("wc -l src/parser.py")
    answer("a")
    terminal.wait_for("sh serve.sh")
    answer("y")
    terminal.wait_for("The server runs in")
    server.script(
        calls(SUBAGENTS, text="Two sub-agents look at once."),
        *(_looks for _ in SUBAGENTS),
        *(_reports for _ in SUBAGENTS),
        say("Nothing else depends on the length."),
    )
    terminal.wait_for("send")
    terminal.type("Who depends on it?")
    terminal.wait_quiet(QUIET_S)
    terminal.key("enter")
    terminal.wait_for(re.compile(r"step 2.*step 2", re.DOTALL))
    camera.still("subagents", moving=True)
    server.release()
    terminal.wait_for("Nothing else depends")
    terminal.key("ctrl+f")
    terminal.wait_for("/ Search")
    terminal.type("field")
    terminal.wait_for(re.compile(r"\d of [2-9]"))
    camera.still("search")
    terminal.key("escape")
    terminal.wait_gone("/ field")
    show("/permissions", "Enter revoke", "permissions")
    show("/tasks", "/tasks output N", "jobs")
    show("/context", "system prompt", "context")
    show("/settings", "Theme", "settings")
    show("/model", "kimi-k3-fast", "models")
    show("/help", "Esc close", "help")
    show("/sessions", "Why is the import", "sessions")
    terminal.key("ctrl+q")
    terminal.wait_for("background task is running")
    terminal.wait_quiet(QUIET_S)
    terminal.key("ctrl+q")
    terminal.wait_exit()


FUTURES = {
    "Refuse the file with its line": (
        {"path": "src/parser.py", "content": "LIMIT = 1_000_000\n\n\ndef parse(text):\n    ...\n"},
        "A field over a million letters ends the import, with its line.",
    ),
    "Cut the field and warn": (
        {
            "path": "src/parser.py",
            "content": "x = 1\n\n\ndef cut(field):\n    return field[:1000]\n",
        },
        "A long field is cut, and the warning says where.",
    ),
    "Make it a setting": (
        {"path": "tests/test_parser.py", "content": "x = 2\n"},
        "The limit is a setting now, and the test allows for it.",
    ),
}
"""What each future does: the file that it writes, and its last words."""


def _future(request: Request) -> Answer:
    """Answer as the model of a future, which waits before its last words."""
    said = [one for one in request.messages if one["role"] == "user"]
    words = next((one for one in FUTURES if one in str(said[-1]["content"])), "")
    if not words:
        return say("The parser reads a field to its closing quote, however long it is.")
    written, last = FUTURES[words]
    if request.messages[-1]["role"] != "tool":
        return call("WriteFile", written, usage=(24_310, 140))
    return gate(1, say(last, usage=(24_700, 60)))


def futures(folder: Path, theme: str, size: tuple[int, int]) -> None:
    """Three futures of one session: the dialog, the timeline while they run, and the page at their end."""
    with tempfile.TemporaryDirectory() as home, ChatServerThread(check=_future) as server:
        environment = {"KIMI_TUI_HOME": f"{home}/data", "HOME": home}
        work = Path(home) / "importer"
        for name in ("src/parser.py", "src/writer.py", "tests/test_parser.py", "README.md"):
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text("x = 1\n")
        (Path(home) / "data").mkdir(mode=0o700)
        config = Path(home) / "data" / "config.toml"
        config.write_text(
            f'theme = "{theme}"\nmode = "sandboxed"\ndefault_model = "kimi-k3"\n'
            f'[providers.local]\ntype = "openai_legacy"\nbase_url = "{server.base_url}"\n'
            'api_key = "k"\nmax_parallel = 3\n[models.kimi-k3]\nprovider = "local"\nmodel = "kimi-k3"\n'
            "max_context_size = 262144\n[models.kimi-k3.prices]\ninput = 0.6\noutput = 2.5\n"
        )
        config.chmod(0o600)
        with Terminal([PROGRAM], env=environment, cwd=work, size=size) as terminal:
            camera = Camera(terminal, folder, recording=False)
            terminal.wait_for("send")
            terminal.type("How long may a field be?")
            terminal.key("enter")
            terminal.wait_for("closing quote")
            terminal.wait_quiet(QUIET_S)
            terminal.type("/futures 3")
            terminal.wait_quiet(QUIET_S)
            terminal.key("enter")
            terminal.wait_for("The cost is not known yet")
            for key in ("up", "right", "down"):
                terminal.wait_quiet(QUIET_S)
                terminal.key(key)
            for words in FUTURES:
                terminal.wait_quiet(QUIET_S)
                terminal.type(words)
                terminal.wait_for(words)
                terminal.key("tab")
            terminal.wait_quiet(QUIET_S)
            terminal.type("grep -q def src/parser.py")
            terminal.wait_for("requests together send")
            camera.still("futures-dialog")
            terminal.wait_quiet(QUIET_S)
            terminal.key("enter")
            terminal.wait_for("started")
            if size[0] < WIDE:
                terminal.key("ctrl+t")
            # A gate lets all go that wait at it, so each future waits there before the first is let go.
            terminal.wait_for(lambda screen: screen.count("step 2") == len(FUTURES))
            camera.still("futures-timeline")
            if size[0] < WIDE:
                terminal.key("escape")
            server.release()
            terminal.wait_for("The futures have ended")
            terminal.wait_quiet(QUIET_S)
            terminal.type("/futures")
            terminal.wait_quiet(QUIET_S)
            terminal.key("enter")
            terminal.wait_for("3 futures")
            camera.still("futures-page")
            terminal.key("escape")
            terminal.wait_quiet(QUIET_S)
            terminal.key("ctrl+q")
            terminal.wait_exit()


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
    parser.add_argument("--into", type=Path, default=PICTURES, help="the folder of the pictures")
    parser.add_argument("--theme", default="dark")
    parser.add_argument("--size", default="x".join(map(str, GUIDE_SIZE)), help="of the guide's")
    parser.add_argument("--guide", action="store_true", help="only the pictures of the guide")
    options = parser.parse_args()
    options.into.mkdir(exist_ok=True, parents=True)
    columns, rows = map(int, options.size.split("x"))
    tour(options.into, options.theme, (columns, rows))
    futures(options.into, options.theme, (columns, rows))
    if options.guide:
        return
    frames = play(options.into, options.theme, recording=options.recording)
    if options.recording:
        save_gif(frames, options.into / "demo.gif")
        print(options.into / "demo.gif")


if __name__ == "__main__":
    main()
