"""How far a reader has to walk: files, functions and calls that one thing done by the user or the model passes through.

Run with `python -m bench.journeys`, or `make journeys`; with `--list WORDS` it prints the functions by file of the journeys whose
names hold these words. Each journey runs once to import and warm up what it needs, then once more under `sys.setprofile`, which
counts the calls of our own functions: for the screen those below `kimi_tui/tui`, for the engine all others. A jump is a call from one
of these files into another. Comprehensions are no functions of their own, whatever the version of Python makes of them (PEP 709).
Nothing is timed: the figures are the same on any machine, but for how often a picture is drawn while something is awaited.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.chat_answers import Answer, Request, call, say
from support.chat_server import ChatServer
from support.screens import Desk, desk
from support.soul import stage

import kimi_tui
from kimi_tui.wire.events import ApprovalRequest, TextPart

PACKAGE = str(Path(kimi_tui.__file__).parent) + "/"
SCREEN = PACKAGE + "tui/"
INLINED = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>"))


class Walk:
    """The functions and files that one journey passed through.

    Args:
        counts: whether a file, named by its whole path, belongs to the journey.
    """

    def __init__(self, counts: Callable[[str], bool]) -> None:
        self._counts = counts
        self._known: dict[CodeType, str | None] = {}
        self.files: set[str] = set()
        self.functions: Counter[CodeType] = Counter()
        self.jumps = 0

    def _file(self, code: CodeType) -> str | None:
        if code not in self._known:
            name = code.co_filename
            self._known[code] = name if name.startswith(PACKAGE) and self._counts(name) else None
        return self._known[code]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count one event of the profiler."""
        code = frame.f_code
        if event != "call" or code.co_name in INLINED or (file := self._file(code)) is None:
            return
        self.files.add(file)
        self.functions[code] += 1
        caller = frame.f_back
        while caller is not None and self._file(caller.f_code) is None:
            caller = caller.f_back
        if caller is not None and self._file(caller.f_code) != file:
            self.jumps += 1

    def listing(self) -> str:
        """Return the functions by file, each with its line and how often it was called (coroutines: also how often resumed)."""
        lines: list[str] = []
        by_file: dict[str, list[CodeType]] = {}
        for code in self.functions:
            by_file.setdefault(code.co_filename, []).append(code)
        for file, codes in sorted(by_file.items()):
            lines.append(f"  {file.removeprefix(PACKAGE)}  {len(codes)}")
            for code in sorted(codes, key=lambda code: code.co_firstlineno):
                times = self.functions[code]
                lines.append(f"    {code.co_firstlineno:5} {code.co_qualname}  {times}")
        return "\n".join(lines)

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Count while this context is entered, in every thread that begins in it and in this one."""
        threading.setprofile_all_threads(self) if sys.version_info >= (
            3,
            12,
        ) else threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile_all_threads(None) if sys.version_info >= (
                3,
                12,
            ) else threading.setprofile(None)


def screen_walk() -> Walk:
    """Return a walk that counts files below `kimi_tui/tui`."""
    return Walk(lambda file: file.startswith(SCREEN))


def engine_walk() -> Walk:
    """Return a walk that counts all other files of ours."""
    return Walk(lambda file: not file.startswith(SCREEN))


class QuietDesk(Desk):
    """A desk whose reading of the screen does not count."""

    def text(self) -> str:
        """Return the text on the screen."""
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            return super().text()
        finally:
            sys.setprofile(profile)


async def walked(walk: Walk, journey: Callable[[], Awaitable[object]]) -> Walk:
    """Take a journey twice, and count the second time."""
    await journey()
    with walk.under_way():
        await journey()
    return walk


async def on_the_screen(folder: Path) -> dict[str, Walk]:
    """Take the journeys that begin with a key, a click or an event and end with a picture; return them by name."""
    walks: dict[str, Walk] = {}
    async with ChatServer() as server, desk(folder, server.base_url) as opened:
        at = QuietDesk(opened.app, opened.pilot)
        await at.ready()
        for n in range(6):
            server.script(say(f"Answer number {n}."))
            await at.say(f"question {n}")
            await at.sees(f"Answer number {n}.")
            await at.idle()

        soul = at.screen.conversation.soul
        assert soul is not None
        count = iter(range(100))

        async def delta() -> None:
            word = f"delta-{next(count)}"
            soul.wire.publish(TextPart(word + " "))
            await at.sees(word)

        walks["one streamed text delta until pixels"] = await walked(screen_walk(), delta)

        async def preview() -> None:
            await click_row(at, "question 3")
            await at.sees("Rewind to #")

        async def closed_preview() -> None:
            await preview()
            await at.pilot.press("escape")
            await at.pilot.pause()

        await closed_preview()
        walk = screen_walk()
        with walk.under_way():
            await preview()
        walks["click on a timeline row until the preview stands"] = walk
        await at.pilot.press("escape")
        await at.pilot.pause()

        async def rewind(question: str) -> None:
            await at.pilot.press("enter")
            await at.until(lambda: at.screen.prompt.area.text == question)
            await at.pilot.pause()

        await click_row(at, "question 4")
        await at.sees("Rewind to #")
        await rewind("question 4")
        await click_row(at, "question 2")
        await at.sees("Rewind to #")
        walk = screen_walk()
        with walk.under_way():
            await rewind("question 2")
        walks["Enter in the preview until all is updated"] = walk

        async def written_usage() -> None:
            at.screen.bench.chat_pane.dismiss()
            at.screen.prompt.area.put("/usage")
            await at.pilot.pause()

        async def usage() -> None:
            await at.pilot.press("enter")
            await at.sees("Session: ")

        await written_usage()
        await usage()
        await written_usage()
        walk = screen_walk()
        with walk.under_way():
            await usage()
        walks["/usage, Enter, until the notice stands"] = walk

        async def theme() -> None:
            light = at.app.theme != "kimi-light"
            at.app.theme = "kimi-light" if light else "kimi-dark"
            await at.pilot.pause()

        walks["change of theme"] = await walked(screen_walk(), theme)
    return walks


async def click_row(at: Desk, words: str) -> None:
    """Click the row of the timeline that contains these words."""
    lines = (await at.sees(words)).split("\n")
    y, x = next((y, line.find(words, 82)) for y, line in enumerate(lines) if words in line[82:])
    await at.pilot.click(offset=(x, y))
    await at.pilot.pause()


async def in_the_engine(folder: Path) -> dict[str, Walk]:
    """Take the journeys of the soul alone, with a real socket and real files; return them by name."""
    walks: dict[str, Walk] = {}

    async with stage(folder / "a") as on:

        async def turn() -> None:
            on.server.script(say("Yes."))
            await on.soul.run("Is it?")

        walks["a plain turn"] = await walked(engine_walk(), turn)

    async with stage(folder / "b") as on:

        def letter(request: Request) -> Answer:
            newest = int(re.findall(r"CHECKPOINT (\d+)", request.raw.decode())[-1])
            mail = {"message": "Do not read it.", "checkpoint_id": newest}
            return call("SendDMail", mail)

        async def dmail() -> None:
            on.server.script(letter, say("Done."))
            await on.soul.run("Read it.")

        walks["a D-Mail"] = await walked(engine_walk(), dmail)

    async with stage(folder / "c", mode="ask") as on:

        async def shell() -> None:
            on.server.script(call("Shell", {"command": "true"}), say("Done."))
            heard = on.soul.wire.subscribe()
            turn = asyncio.create_task(on.soul.run("Do it."))
            async for record in heard:
                if isinstance(record.event, ApprovalRequest):
                    on.soul.answer(record.event.id, "once")
                    break
            await turn

        walks["a Shell call with its approval"] = await walked(engine_walk(), shell)

    async with stage(folder / "d") as on:

        async def fill() -> None:
            for _ in range(3):
                on.server.script(say("word " * 200))
                await on.soul.run("more")
            on.server.script(say("A summary."))

        await fill()
        await on.soul.compact()
        await fill()
        walk = engine_walk()
        with walk.under_way():
            await on.soul.compact()
        walks["a compaction"] = walk
    return walks


async def measured(folder: Path) -> dict[str, Walk]:
    """Take all journeys; return them by name."""
    for name in ("screen", "a", "b", "c", "d"):
        (folder / name).mkdir()
    return {**await on_the_screen(folder / "screen"), **await in_the_engine(folder)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.journeys")
    parser.add_argument("--list", metavar="WORDS", help="print what these journeys pass through")
    words = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder:
        walks = asyncio.run(measured(Path(folder)))
    width = max(len(name) for name in walks)
    print(f"{'journey':{width}}  files  functions  jumps between files")
    for name, walk in walks.items():
        print(f"{name:{width}}  {len(walk.files):5}  {len(walk.functions):9}  {walk.jumps:5,}")
    for name, walk in walks.items():
        if words is not None and words in name:
            print(f"\n{name}\n{walk.listing()}")


if __name__ == "__main__":
    main()
