"""A screen answers once, whatever keys were on their way when it was closed."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from kimi_tui.tui.screens import AnswersOnce


class Question(ModalScreen[str], AnswersOnce[str]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "answer", "Yes")]

    def action_answer(self) -> None:
        self.dismiss("yes")
        self.dismiss("yes again")


async def test_only_the_first_answer_counts() -> None:
    answers: list[str | None] = []
    app: App[None] = App()
    async with app.run_test() as pilot:
        app.push_screen(Question(), answers.append)
        app.push_screen(Question(), answers.append)
        await pilot.press("y")
        assert answers == ["yes"]
        assert isinstance(app.screen, Question), "the one below stays"
        await pilot.press("y", "y")
        assert answers == ["yes", "yes"]
        assert app.is_running
