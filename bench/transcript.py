"""What the chat costs: streamed answers, a long history, scrolling; beside one plain Rich render of the same text.

Run with `python bench/transcript.py`. Times are medians of three runs in this process, without a terminal; what counts
is the ratio, for machines differ.
"""

from __future__ import annotations

import asyncio
import io
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from rich.console import Console
from rich.markdown import Markdown
from support.chat_app import ChatApp, is_drawn
from support.conversation import Conversation
from textual.geometry import Region

from kimi_tui.tui.transcript.code import warm_up
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.wire.events import EventRecord, TextPart, TurnEnd

SIZE = (120, 40)
RUNS = 3
BATCH = 50
"""Tokens that come at once before the loop gets its turn."""

SLICE = 32
"""Records of a history that are passed on at once."""

SECTION = """## Part {n}: what the importer does

The tokenizer **ends a field** at the first quote. It never looks at the *next* character, so an escaped quote ends
the field too early, and `_field(start, i)` is called with the wrong index. See https://example.org/csv for the rules.

- one thing that holds for every line of the file, however long it may be
- another, with `code` in it
- a third one

```python
def read(self, text: str, start: int = 0) -> list[str]:
    # Look one character ahead before closing a field.
    for i, ch in enumerate(text):
        if ch == QUOTE and text[i + 1 : i + 2] != QUOTE:
            return self._field(start, i)
    return []
```

| what | before | after |
|------|-------:|------:|
| rows | 1,200 | 1,200 |
| time | 41.2 s | 0.9 s |

1. Write a test
2. Change the code
3. Run the whole suite

"""


def answer(tokens: int) -> list[str]:
    """Return an answer of mixed Markdown in so many pieces of about six characters."""
    text = ""
    n = 0
    while len(text) < tokens * 6:
        n += 1
        text += SECTION.format(n=n)
    text = text[: tokens * 6]
    return [text[at : at + 6] for at in range(0, len(text), 6)]


async def streamed(pieces: list[str]) -> tuple[float, float, float]:
    """Return CPU and wall time of a streamed answer, and the longest single call, in seconds."""
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        talk = Conversation()
        talk.user("Go on.")
        talk.step()
        app.transcript.apply(talk.take())
        await pilot.pause()
        longest = 0.0
        cpu, wall = time.process_time(), time.perf_counter()
        for at in range(0, len(pieces), BATCH):
            for piece in pieces[at : at + BATCH]:
                started = time.perf_counter()
                app.transcript.apply([EventRecord(1, time.time(), TextPart(piece))])
                longest = max(longest, time.perf_counter() - started)
            await asyncio.sleep(0)
        app.transcript.apply([EventRecord(1, time.time(), TurnEnd("done"))])
        await _drawn(app.transcript)
        await pilot.pause()
        return time.process_time() - cpu, time.perf_counter() - wall, longest


async def _drawn(view: Transcript) -> None:
    while not is_drawn(view):  # noqa: ASYNC110  (each turn of the loop is part of what is measured)
        await asyncio.sleep(0)


def by_rich(text: str) -> float:
    """Return the seconds of one render of the whole text by Rich."""
    console = Console(file=io.StringIO(), width=88, force_terminal=True)
    started = time.process_time()
    console.print(Markdown(text))
    return time.process_time() - started


async def history(messages: int) -> tuple[float, float, float]:
    """Return the seconds for reading a stored conversation, for its first picture, and for one page up."""
    talk = Conversation(started=0.0)
    for n in range(messages // 4):
        talk.user(f"Question {n}")
        talk.step(text=SECTION.format(n=n))
        talk.tool("ReadFile", {"path": "src/a.py"}, "x\n" * 100)
        talk.step(text="That is what it does.")
        talk.end()
    app = ChatApp()
    async with app.run_test(size=SIZE) as pilot:
        view = app.transcript
        started = time.perf_counter()
        for at in range(0, len(talk.records), SLICE):
            view.apply(talk.records[at : at + SLICE])
            await asyncio.sleep(0)
        await _drawn(view)
        taken = time.perf_counter() - started
        area = Region(0, 0, view.outer_size.width, view.size.height)
        started = time.perf_counter()
        view.render_lines(area)
        first = time.perf_counter() - started
        await pilot.pause()
        pages: list[float] = []
        for _ in range(20):
            started = time.perf_counter()
            view.action_page_up()
            view.render_lines(area)
            pages.append(time.perf_counter() - started)
            await pilot.pause()
        return taken, first, max(pages)


async def main() -> None:
    """Print the table."""
    warm_up()
    for tokens in (2_000, 20_000, 40_000):
        pieces = answer(tokens)
        cpu, wall, longest = await _median(lambda pieces=pieces: streamed(pieces))
        rich = statistics.median(by_rich("".join(pieces)) for _ in range(RUNS))
        print(
            f"{tokens:>6} tokens   cpu {cpu * 1000:7.1f} ms   wall {wall * 1000:7.1f} ms   longest call "
            f"{longest * 1000:5.1f} ms   Rich once {rich * 1000:7.1f} ms   ratio {cpu / rich:5.2f}"
        )
    for messages in (1_000, 10_000, 50_000):
        taken, first, page = await _median(lambda messages=messages: history(messages))
        print(
            f"{messages:>6} messages taken in {taken * 1000:7.1f} ms   first picture {first * 1000:5.1f} ms   "
            f"slowest page {page * 1000:5.1f} ms"
        )


async def _median(
    run: Callable[[], Awaitable[tuple[float, float, float]]],
) -> tuple[float, float, float]:
    runs = [await run() for _ in range(RUNS)]
    first, second, third = (statistics.median(column) for column in zip(*runs, strict=True))
    return first, second, third


if __name__ == "__main__":
    asyncio.run(main())
