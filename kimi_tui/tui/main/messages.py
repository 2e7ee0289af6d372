"""What a screen tells the app. Plain classes: dataclasses would take longer to define than all of them."""

from __future__ import annotations

from textual.message import Message

from kimi_tui.launch import Launch


class OpeningFailed(Message):
    """The session cannot be opened: end with these words and this exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__()
        self.words = words
        self.code = code


class ModelMissing(Message):
    """The session cannot be opened before a model is chosen; `words` say why its server cannot be asked, or nothing."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class SessionChosen(Message):
    """Another session was chosen, to take the place of this one."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


class QuitChosen(Message):
    """The user quits."""
