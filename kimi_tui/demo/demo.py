"""The demo: a temporary folder with a small project, the scripted model that works on it, and what it suggests to say."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kimi_tui.demo.project import newest_change, take_away, write_project
from kimi_tui.llm.scripted import ScriptedProvider
from kimi_tui.soul.model_slot import LoopLimits


class Suggestions:
    """Follows the user through a list of messages, also when they rewind or say something of their own.

    A message is offered again until its turn is done: one that was stopped or refused has not told its part of the story.
    """

    def __init__(self, messages: Sequence[str]) -> None:
        self._messages = tuple(messages)
        self._next = 0
        self._running = False
        self._stopped = False

    @property
    def next(self) -> str:
        """What to offer now; empty when the list is at its end."""
        return self._messages[self._next] if self._next < len(self._messages) else ""

    def said(self, text: str) -> None:
        """The user sent this. Going on from a message that was said before begins there again."""
        if text.strip() in self._messages:
            self._next = self._messages.index(text.strip())
            self._running, self._stopped = True, False
        elif self._stopped:
            # In place of going on: what was stopped will not be done by this.
            self._running = False

    def ended(self, *, is_done: bool) -> None:
        """The agent stopped; one that was interrupted may still go on with the same message."""
        self._stopped = not is_done
        if is_done and self._running:
            self._next += 1
            self._running = False


@dataclass(frozen=True, slots=True)
class Demo:
    """Everything that the demo has in place of a user's own: the rest is the product as it is.

    `work_dir` is what the agent works on, `data_dir` where the session is kept: both lie in one temporary `folder`, which
    was written until `made_at` (seconds since 1970, as its files tell it).
    """

    folder: Path
    made_at: float
    work_dir: Path
    data_dir: Path
    provider: ScriptedProvider
    limits: LoopLimits
    suggestions: Suggestions

    def leave(self, clean: bool) -> str:
        """Take the folder away. Reads and writes files: call it in a thread, when the session is closed.

        Args:
            clean: the program ended as it should; else the folder stays, for whoever looks into what happened.

        Returns:
            where it is, as a sentence, if it stays.
        """
        if clean and take_away(self.folder, self.work_dir, self.data_dir, self.made_at):
            return ""
        return f"The demo's folder stays, with what was done in it: {self.folder}"


def prepare(speed: float = 1.0) -> Demo:
    """Write the project and load the story. Reads and writes files: call it in a thread.

    Args:
        speed: how many times faster the model speaks.

    Raises:
        OSError: the temporary folder cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix="kimi-")).resolve()
    work_dir = folder / "importer"
    work_dir.mkdir()
    write_project(work_dir)
    story = (files("kimi_tui.demo") / "story.toml").read_text(encoding="utf-8")
    provider = ScriptedProvider.from_text(story, speed=speed, name="story.toml")
    return Demo(
        folder=folder,
        made_at=newest_change(work_dir),
        work_dir=work_dir,
        data_dir=folder / "data",
        provider=provider,
        limits=LoopLimits(),
        suggestions=Suggestions(provider.suggestions),
    )
