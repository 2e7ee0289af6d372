"""What the engine knows of the work folder from its first look and the system prompt; nothing is looked at a second time.

The look itself is the business of `file_history`, the notes of `system_prompt`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.system_prompt import notes_in
from kimi_tui.workspace.tracker import Tracker


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """The work folder in figures.

    `n_files` is None where nobody looked, and `is_more` true where the folder has more files than are followed. `notes` is
    the name of the file of notes for agents that the model was sent; empty where there was none.
    """

    n_files: int | None = None
    is_more: bool = False
    notes: str = ""


class WorkFolder:
    """The folder of one session.

    Args:
        tracker: looks at its files.
        files: says when that has happened.
        system_prompt: what the model is sent.
    """

    def __init__(self, tracker: Tracker, files: FileHistory, system_prompt: str) -> None:
        self._tracker = tracker
        self._files = files
        self._system_prompt = system_prompt

    async def facts(self) -> FolderFacts:
        """What is known once the files have been looked at for the first time, or cannot be."""
        await self._files.ready()
        notes, extent = notes_in(self._system_prompt), self._tracker.extent
        if extent is None:
            return FolderFacts(notes=notes)
        return FolderFacts(extent.n_files, extent.is_more, notes)
