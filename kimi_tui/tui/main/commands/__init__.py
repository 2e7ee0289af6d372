"""The commands of the main screen, and `MainParts`, the argument of their functions."""

from __future__ import annotations

from dataclasses import dataclass

from kimi_tui.tui.main.beside import BesideViewer
from kimi_tui.tui.main.conversation import ConversationController
from kimi_tui.tui.main.futures import FuturesController
from kimi_tui.tui.main.keystrokes import Keystrokes
from kimi_tui.tui.main.prompt_modes import PromptModes
from kimi_tui.tui.main.subagents import SubagentsController
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.main.world_line_viewer import WorldLineViewer


@dataclass(frozen=True, slots=True)
class MainParts:
    """The parts of the main screen that a command may act on.

    Attributes:
        bench: the panes, the prompt, notices, questions and the focus.
        conversation: the session.
        viewer: shows a world line instead of the chat, and the prospect of a rewind.
        beside: shows a future or sub-agent in place of the chat.
        futures: the futures of the session.
        subagents: the sub-agents of the session.
        keystrokes: routes typed keys.
        prompt_modes: shell commands (`!`), notes (`#`) and the editor of the prompt.
    """

    bench: Workbench
    conversation: ConversationController
    viewer: WorldLineViewer
    beside: BesideViewer
    futures: FuturesController
    subagents: SubagentsController
    keystrokes: Keystrokes
    prompt_modes: PromptModes
