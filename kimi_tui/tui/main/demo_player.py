"""The demo on the main screen: the hints in its empty chat, and a player that types and sends the story's messages.

The player stops for good when the user presses a key.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kimi_tui.app_paths import short
from kimi_tui.tui.faults import reported
from kimi_tui.tui.first_page import known
from kimi_tui.tui.frame_rows import Hint
from kimi_tui.tui.key_names import key_of
from kimi_tui.tui.main.workbench import Workbench

if TYPE_CHECKING:
    from kimi_tui.launch import Launch

NAME = "kimi-tui"
PAUSE_S = 1.5
PER_LETTER_S = 0.04
DEMO_QUESTION = "This is a demo. Press Enter to start."
PLAYED_QUESTION = "This is a demo."


def demo_end() -> str:
    """Say how to start one's own work after the demo, with a command that works on this machine."""
    from kimi_tui.tools.programs import find_program

    command = NAME
    if find_program(NAME, os.environ) is None:
        # The program was started by `make run`, or from an environment that is not active.
        program = Path(sys.executable).with_name(NAME)
        command = (
            short(program) if program.exists() else f"{short(Path(sys.executable))} -m kimi_tui"
        )
    return f"To start your own work: press Ctrl+Q, then run {command} in your project."


def demo_hints(keys: Mapping[str, str], *, plays: bool) -> tuple[Hint, ...]:
    """Return the hints in the chat of the demo before its first message."""
    if plays:
        return known(
            ("Any key", "takes over; until then the demo plays by itself"),
            (key_of("quit", keys), "quits"),
        )
    return known(
        ("Enter", "sends the message below"),
        (key_of("timeline", keys), "opens the timeline, to rewind to any step"),
        (key_of("quit", keys), "quits"),
    )


class DemoPlayer:
    """Types and sends the messages of the demo's story.

    Args:
        bench: the workbench whose prompt is typed into.
        launch: says whether the demo plays by itself, and how fast.
    """

    def __init__(self, bench: Workbench, launch: Launch) -> None:
        self._bench = bench
        self._plays = launch.demo and launch.plays
        self._pace = 1 / launch.speed
        self._since = time.monotonic()

    def play(self, text: str) -> bool:
        """Type and send the next message of the story; return False if the user does that.

        Args:
            text: the message; empty at the end of the story.
        """
        if not self._is_playing():
            return False
        screen = self._bench.screen
        screen.run_worker(reported(screen, partial(self._type, text)), name="play the demo")
        return True

    def _is_playing(self) -> bool:
        """Return whether nobody has pressed a key since the demo began to play."""
        if self._plays and self._bench.last_key_at > self._since:
            self._plays = False
            self._bench.tell("You have taken over from the demo.", advice=demo_end())
        return self._plays

    async def _type(self, text: str) -> None:
        """Type a message at reading speed and send it; after the last one, show how to continue."""
        if not text:
            self._plays = False
            self._bench.tell("That was the demo.", advice=demo_end(), topic="demo")
            return
        area = self._bench.prompt.area
        await asyncio.sleep(PAUSE_S * self._pace)
        for end in range(1, len(text) + 1):
            if not self._is_playing():
                break
            area.put(text[:end])
            await asyncio.sleep(PER_LETTER_S * self._pace)
        await asyncio.sleep(PAUSE_S * self._pace)
        if self._is_playing():
            area.action_send()
        elif text.startswith(area.text):
            area.put(text)
