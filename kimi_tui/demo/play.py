"""Sets the stage for the demo: a temporary folder with a small project, and the scripted model that works on it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kimi_tui.demo.project import write_project
from kimi_tui.demo.suggestions import Suggestions
from kimi_tui.llm.scripted import ScriptedProvider
from kimi_tui.soul.limits import LoopLimits


@dataclass(frozen=True, slots=True)
class Demo:
    """Everything that the demo has in place of a person's own: the rest is the product as it is.

    `work_dir` is what the agent works on, `data_dir` where the session is kept: both lie in one temporary folder, which
    stays, so that a person may look at what was done.
    """

    work_dir: Path
    data_dir: Path
    provider: ScriptedProvider
    limits: LoopLimits
    suggestions: Suggestions


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
        work_dir=work_dir,
        data_dir=folder / "data",
        provider=provider,
        limits=LoopLimits(),
        suggestions=Suggestions(provider.suggestions),
    )
