"""The parts of the main screen, as its commands use them. A module of its own: the commands and the screen, which runs them, both know it."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_tui.tui.main.conversation import Conversation
from kimi_tui.tui.main.keystrokes import Keystrokes
from kimi_tui.tui.main.prompt_modes import PromptModes
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.main.world_line_viewer import WorldLineViewer


@dataclass(frozen=True, slots=True)
class MainParts:
    """What a command acts on.

    Attributes:
        bench: the places, notices, questions, and who has the keys.
        conversation: the session that is shown.
        viewer: a world line in the place of the chat, and what a rewind would leave.
        keystrokes: where what is typed lands.
        prompt_modes: what is written in the prompt besides messages and commands.
    """

    bench: Workbench
    conversation: Conversation
    viewer: WorldLineViewer
    keystrokes: Keystrokes
    prompt_modes: PromptModes
