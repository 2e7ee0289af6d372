"""What the main screen asks of the app. Plain classes: a dataclass would take longer to define than all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from kimi_tui.launch import Launch

if TYPE_CHECKING:
    from kimi_tui.session.session import Session
    from kimi_tui.soul.statistics import Statistics


class Unopened(Message):
    """The session cannot be opened: end with these words and this exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__()
        self.words = words
        self.code = code


class ModelNeeded(Message):
    """The session cannot be opened before a model is chosen; `words` say why its server cannot be asked, or nothing."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class SessionWanted(Message):
    """The person wants another session."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


class ThemeWanted(Message):
    """The person wants other colours; `name` may be empty for the next ones."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class ModelWanted(Message):
    """The person wants another model; `name` may be empty for a list."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class PaletteWanted(Message):
    """The person wants to find a command by name."""


class StatisticsWanted(Message):
    """The person wants to see what the session did and cost."""

    def __init__(self, title: str, figures: Statistics) -> None:
        super().__init__()
        self.title = title
        self.figures = figures


class ReplayWanted(Message):
    """The person wants to see the open session played back."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session


class HelpWanted(Message):
    """The person wants to see all keys."""


class SuspendWanted(Message):
    """The person wants their shell back for a while."""


class LeaveWanted(Message):
    """The person wants to quit."""
