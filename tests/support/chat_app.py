"""A small app with the chat alone, as wide as it is beside the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.pilot import Pilot

from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.first_page import first_hints
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK, KIMI_LIGHT, KIMI_SIXTEEN
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.wire.events import EventRecord
from support.conversation import Conversation


def is_drawn(transcript: Transcript) -> bool:
    """Return whether everything that a chat was told is on the screen."""
    return transcript._changed_from is None


class ChatApp(App[None]):
    """An app that shows a `Transcript` and remembers the messages it posts."""

    CSS_PATH: ClassVar = sheets("chat")
    CSS = "Screen { background: $page; } #pane { width: 1fr; height: 1fr; padding: 1 0; }"

    def __init__(
        self, *, theme: str = "kimi-dark", glyphs: Glyphs = UNICODE, ansi: bool = False
    ) -> None:
        super().__init__(ansi_color=ansi)
        for one in (KIMI_DARK, KIMI_LIGHT, KIMI_SIXTEEN):
            self.register_theme(one)
        self.theme = theme
        self.glyphs = glyphs
        self.transcript = Transcript(id="chat", hints=first_hints({}, "ask"))
        self.posted: list[Message] = []
        self.copied: list[tuple[str, str]] = []

    def compose(self) -> ComposeResult:
        with Container(id="pane"):
            yield self.transcript

    def on_transcript_checkpoint_clicked(self, message: Transcript.CheckpointClicked) -> None:
        self.posted.append(message)

    def on_transcript_copied(self, message: Transcript.Copied) -> None:
        self.copied.append((message.text, message.words))

    def on_transcript_link_clicked(self, message: Transcript.LinkClicked) -> None:
        self.posted.append(message)

    def on_transcript_pin_toggled(self, message: Transcript.PinToggled) -> None:
        self.posted.append(message)

    def on_transcript_rebuild_needed(self, message: Transcript.RebuildNeeded) -> None:
        self.posted.append(message)

    @property
    def rows(self) -> list[str]:
        """Return the text of the visible rows of the chat."""
        view = self.transcript
        from textual.geometry import Region

        width, height = view.outer_size.width, view.size.height
        return [strip.text.rstrip() for strip in view.render_lines(Region(0, 0, width, height))]


def show_history(transcript: Transcript, records: Sequence[EventRecord]) -> None:
    """Show these events instead of the present ones."""
    model = TranscriptModel(work_dir=transcript.work_dir)
    for record in records:
        model.apply(record)
    transcript.show_model(model)


async def drawn(app: ChatApp, pilot: Pilot[None]) -> None:
    """Wait until everything that the chat was told is on the screen."""
    await pilot.pause()
    while not is_drawn(app.transcript):
        await pilot.pause()
    await pilot.pause()


async def feed(app: ChatApp, pilot: Pilot[None], talk: Conversation) -> None:
    """Give the chat the conversation's new events, and wait until they are on the screen."""
    app.transcript.apply(talk.take())
    await drawn(app, pilot)
