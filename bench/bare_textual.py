"""What Textual does by itself, to compare with: a Markdown widget fed by MarkdownStream over a TextArea.

`python -m bench.bare_textual BASE_URL`: type an order for the model server and press Enter.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from urllib.parse import urlsplit

from textual import events, work
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Markdown, TextArea


class Prompt(TextArea):
    """A text area in which Enter sends; nothing else differs from a TextArea."""

    @dataclass
    class Sent(Message):
        """Enter was pressed."""

        text: str

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.prevent_default()
            self.post_message(self.Sent(self.text))
            self.text = ""
            return
        await super()._on_key(event)


async def deltas(base_url: str, order: str) -> AsyncGenerator[str]:
    """Send an order to the model server; yield the pieces of its answer as they come."""
    url = urlsplit(base_url)
    body = json.dumps({"messages": [{"role": "user", "content": order}]}).encode()
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        while (line := await reader.readline()) and not line.startswith(b"data: [DONE]"):
            if line.startswith(b"data: "):
                choices = json.loads(line[6:])["choices"]
                if choices and "content" in choices[0]["delta"]:
                    yield choices[0]["delta"]["content"]
    finally:
        writer.close()


class BareTextual(App[None]):
    """An app that shows answers the usual way: a Markdown widget in a scroll view."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Prompt { height: 3; dock: bottom; }"

    def compose(self) -> ComposeResult:
        yield VerticalScroll(id="chat")
        yield Prompt()

    def on_mount(self) -> None:
        self.query_one("#chat").anchor()
        self.query_one(Prompt).focus()

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        self.ask(event.text)

    @work(exclusive=True)
    async def ask(self, order: str) -> None:
        """Send the order and stream the answer into a widget of its own."""
        answer = Markdown()
        await self.query_one("#chat").mount(answer)
        stream = Markdown.get_stream(answer)
        try:
            async for delta in deltas(sys.argv[1], order):
                await stream.write(delta)
        finally:
            await stream.stop()


if __name__ == "__main__":
    BareTextual().run()
