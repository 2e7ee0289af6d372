"""The least that an app with Textual's line API can be: finished Markdown blocks by Rich, cached as strips, no agent behind it.

`python -m bench.sketch BASE_URL`: type an order for the model server and press Enter. Only the block that still grows is rendered anew,
at most thirty times a second. What lies between this and the program is what the agent, the chat's cards and its care cost.
"""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console
from rich.markdown import Markdown
from textual import work
from textual.app import App, ComposeResult
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from bench.bare_textual import Prompt, deltas

FRAME_S = 1 / 30
"""Minimum seconds between two pictures."""


class Chat(ScrollView):
    """A view of the rows of finished blocks, and those of the block that grows."""

    def __init__(self) -> None:
        super().__init__()
        self._rich = Console(force_terminal=True, color_system="truecolor")
        self._done: list[Strip] = []
        self._open: list[Strip] = []

    def show(self, finished: str, tail: str) -> None:
        """Add the finished Markdown, render the unfinished `tail` below it, and scroll to the end."""
        self._done += self._rows(finished)
        self._open = self._rows(tail)
        self.virtual_size = Size(self.size.width, len(self._done) + len(self._open))
        self.scroll_end(animate=False)
        self.refresh()

    def _rows(self, markdown: str) -> list[Strip]:
        if not markdown.strip():
            return []
        options = self._rich.options.update_width(max(1, self.size.width - 2))
        lines = self._rich.render_lines(Markdown(markdown), options, pad=False)
        return [Strip(line) for line in [*lines, []]]

    def render_line(self, y: int) -> Strip:
        """Return one row of the view."""
        y += self.scroll_offset.y
        rows, y = (self._done, y) if y < len(self._done) else (self._open, y - len(self._done))
        row = rows[y] if y < len(rows) else Strip.blank(0)
        return row.crop_extend(0, self.size.width, self.rich_style)


class Sketch(App[None]):
    """An app with a chat over a field."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Prompt { height: 3; dock: bottom; } Chat { height: 1fr; }"

    def compose(self) -> ComposeResult:
        """Return the chat and the field."""
        yield Chat()
        yield Prompt()

    def on_mount(self) -> None:
        """Give the keys to the field."""
        self.query_one(Prompt).focus()

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """Ask the model server."""
        self.ask(event.text)

    @work(exclusive=True)
    async def ask(self, order: str) -> None:
        """Stream the answer, block by block: one ends at a blank line outside a fence."""
        chat, loop = self.query_one(Chat), asyncio.get_running_loop()
        text, due = "", 0.0
        async for delta in deltas(sys.argv[1], order):
            text += delta
            if loop.time() >= due:
                end = text.rfind("\n\n") + 2
                if end < 2 or text.count("```", 0, end) % 2:
                    end = 0
                chat.show(text[:end], text[end:])
                text = text[end:]
                due = loop.time() + FRAME_S
                await asyncio.sleep(0)
        chat.show(text, "")


if __name__ == "__main__":
    Sketch().run()
