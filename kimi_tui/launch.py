"""What the command line asked for, as one value that is handed to the app."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from kimi_tui.config.choosing import Choice, NeedsChoice
from kimi_tui.config.model import Config


class Launch(NamedTuple):
    """How to start.

    `resume` is None for a new session, `newest` or a session's id. `notices` are shown once the screen stands.
    With `replay` the session is played back, not gone on with.
    """

    work_dir: Path
    config_path: Path
    config: Config = Config()
    choice: Choice | NeedsChoice = NeedsChoice()
    resume: str | None = None
    fork: bool = False
    mode: Literal["ask", "edits", "all"] = "ask"
    demo: bool = False
    speed: float = 1.0
    notices: tuple[str, ...] = ()
    replay: bool = False


NEWEST = "newest"
"""`Launch.resume` for the newest session of the folder."""
