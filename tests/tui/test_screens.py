"""A screen answers once, whatever keys were on their way when it was closed."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from kimi_tui.tui.screens import AnswersOnce, push_dialog


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


class About(Question):
    def __init__(self, about: str) -> None:
        super().__init__()
        self.about = about

    @property
    def subject(self) -> object:
        return self.about


async def test_one_screen_is_open_of_a_class_and_subject() -> None:
    answers: list[str | None] = []
    app: App[None] = App()
    async with app.run_test() as pilot:
        assert push_dialog(app, About("a"), answers.append)
        assert push_dialog(app, About("b"), answers.append)
        assert not push_dialog(app, About("a"), answers.append), "also below another one"
        assert not push_dialog(app, About("b"), answers.append)
        assert len(app.screen_stack) == 3
        await pilot.press("y")
        await pilot.pause()
        assert answers == ["yes"], "nobody answered what was not opened"
        assert push_dialog(app, About("b"), answers.append)
