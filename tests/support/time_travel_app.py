"""Small apps around the timeline, the gauge and the preview, arranged as on the main screen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.tokens import GaugeModel
from kimi_tui.tui.gauge import Gauge
from kimi_tui.tui.glyphs import UNICODE, Glyphs
from kimi_tui.tui.screens import sheets
from kimi_tui.tui.theme import KIMI_DARK, KIMI_LIGHT, KIMI_SIXTEEN
from kimi_tui.tui.timeline.timeline import Timeline
from kimi_tui.wire.events import EventRecord

RECORDS_AT_ONCE = 200
"""Records of a history that are applied in one callback of the loop; the program works in slices, too."""


class CommandScreen(Screen[None]):
    """A screen with the commands of the main screen, which remembers which were run."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []

    def action_command(self, name: str) -> None:
        """Run a command."""
        self.commands.append(name)


class TimeTravelApp(App[None]):
    """An app with a timeline at the right (below 100 columns in a frame) and a gauge under it; remembers messages and commands."""

    CSS_PATH: ClassVar = sheets("app", "timeline", "gauge")
    CSS = """
    #body { height: 1fr; margin-top: 1; layout: horizontal; }
    #chat { width: 1fr; height: 1fr; }
    #pane { width: 39; height: 1fr; margin-top: 1; border-left: solid $line; }
    #pane.-over { width: 42; margin-top: 0; border: round $line-strong;
        border-title-color: $ink-strong; border-title-style: bold; }
    #pane.-over.-narrow { width: 52; }
    #foot { height: 4; }
    """
    AUTO_FOCUS = None

    def __init__(
        self,
        records: Iterable[EventRecord] = (),
        *,
        theme: str = "kimi-dark",
        glyphs: Glyphs = UNICODE,
        timeline_width: int = 38,
        motion: bool = False,
    ) -> None:
        super().__init__()
        for one in (KIMI_DARK, KIMI_LIGHT, KIMI_SIXTEEN):
            self.register_theme(one)
        self.theme = theme
        self.glyphs = glyphs
        self.animation_level = "full" if motion else "none"
        self._width = timeline_width
        self._records = list(records)
        self.timeline = Timeline()
        self.gauge = Gauge()
        self.posted: list[Message] = []
        self._screen = CommandScreen()

    def get_default_screen(self) -> CommandScreen:
        """Return the screen of the app."""
        return self._screen

    @property
    def commands(self) -> list[str]:
        """Return the names of the commands that were run."""
        return self._screen.commands

    def compose(self) -> ComposeResult:
        pane = Container(self.timeline, id="pane")
        if self.size.width < 100:
            pane.add_class("-over")
            pane.set_class(self.size.width < 80, "-narrow")
            pane.border_title = "Timeline"
        elif self._width != 38:
            pane.styles.width = self._width + 1
        yield Container(Static(id="chat"), pane, id="body")
        yield self.gauge
        yield Static(id="foot")

    async def on_mount(self) -> None:
        self.timeline.overlay = self.size.width < 100
        self.gauge.timeline_width = 0 if self.size.width < 100 else self._width
        self.timeline.show_model(TimelineModel())
        self.gauge.show_model(GaugeModel())
        for start in range(0, len(self._records), RECORDS_AT_ONCE):
            self._apply(self._records[start : start + RECORDS_AT_ONCE])
            await asyncio.sleep(0)
        self._changed(motion=False)

    def feed(self, records: Iterable[EventRecord], *, motion: bool = True) -> None:
        """Apply records to both models, and show them."""
        self._apply(records)
        self._changed(motion=motion)

    def _apply(self, records: Iterable[EventRecord]) -> None:
        timeline, gauge = self.timeline.model, self.gauge.model
        assert timeline is not None
        assert gauge is not None
        for record in records:
            timeline.apply(record)
            gauge.apply(record)

    def _changed(self, *, motion: bool) -> None:
        self.timeline.changed(motion=motion)
        self.gauge.changed(motion=motion)

    @on(Timeline.CheckpointChosen)
    @on(Timeline.Left)
    def _remember(self, message: Message) -> None:
        self.posted.append(message)

    @property
    def chosen(self) -> list[tuple[int, int]]:
        """Return ids and world lines of the checkpoints that were chosen."""
        return [
            (message.target.id, message.target.world_line)
            for message in self.posted
            if isinstance(message, Timeline.CheckpointChosen)
        ]

    @property
    def rows(self) -> list[str]:
        """Return the text of the timeline's lines."""
        region = self.timeline.size.region
        return [strip.text.rstrip() for strip in self.timeline.render_lines(region)]

    @property
    def gauge_text(self) -> str:
        """Return the text of the gauge."""
        return self.gauge.render_lines(self.gauge.size.region)[0].text.rstrip()


def line_of(app: TimeTravelApp, words: str) -> int:
    """Return the line of the timeline that has these words."""
    return next(y for y, row in enumerate(app.rows) if words in row)


def selected_row(app: TimeTravelApp) -> str:
    """Return the text of the selected row."""
    return next((row for row in app.rows if row.startswith("▌")), "")


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, and let the app draw."""
    await pilot.press(*keys)
    await pilot.pause()
