"""Changing the model: those of the configuration, another key, or a local server."""

from __future__ import annotations

import os
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from kimi_tui.config.choosing import Choice, Overrides, choose
from kimi_tui.config.model import ConfigError
from kimi_tui.launch import Launch
from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.first_run.picking import Entry, PickList
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.footer import Footer
from kimi_tui.tui.numbers import tokens
from kimi_tui.tui.styles import sheets

ANOTHER_KEY = Entry("Paste another key", "Moonshot (Kimi), OpenAI or any compatible server")
LOCAL = Entry("Use a local server", "Ollama, llama.cpp, LM Studio or vLLM on its usual port")


class ModelScreen(AnswersOnce[Launch | None]):
    """Asks for another model. Answers with how to go on, or None for leaving it as it is."""

    CSS_PATH = sheets("first_run")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", show=False)]

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self._launch = launch
        self._names = list(launch.config.models)
        entries = [
            Entry(name, "   ".join(filter(None, (model.provider, _size(model.max_context_size)))))
            for name, model in launch.config.models.items()
        ]
        choice = launch.choice
        used = [
            index
            for index, model in enumerate(launch.config.models.values())
            if isinstance(choice, Choice) and model.model == choice.model
        ]
        self._list = PickList([*entries, ANOTHER_KEY, LOCAL], rows=12, chosen=(used or [0])[0])

    def compose(self) -> ComposeResult:
        """One list."""
        with VerticalScroll(id="form", can_focus=False):
            title = Content.styled("Which model shall be used?", "bold $ink-strong")
            yield Static(title, classes="title")
            yield self._list
            words = "The conversation goes on with it from the next message."
            yield Static(Content.styled(words, "$ink-quiet"), classes="title")
        yield Footer()

    def on_mount(self) -> None:
        """Give the list the keys."""
        glyphs = glyphs_of(app_of(self))
        self.query_one(Footer).hints = (
            ("Enter", "use"),
            (f"{glyphs.up}{glyphs.down}", "choose"),
            ("Esc", "back"),
        )
        self._list.focus()

    @on(PickList.Picked)
    def _picked(self) -> None:
        index = self._list.chosen
        if index == len(self._names):
            from kimi_tui.tui.first_run.key_screen import KeyScreen

            app_of(self).push_screen(KeyScreen(self._launch), self._chosen)
        elif index > len(self._names):
            from kimi_tui.tui.first_run.local_screen import LocalScreen

            app_of(self).push_screen(LocalScreen(self._launch, ()), self._chosen)
        else:
            self._chosen(named(self._launch, self._names[index]))

    def _chosen(self, launch: Launch | None) -> None:
        if launch is not None:
            self.dismiss(launch)

    def action_back(self) -> None:
        """Leave it as it is."""
        self.dismiss(None)


def named(launch: Launch, name: str) -> Launch | None:
    """How to go on with a model by name; None where that name cannot be used."""
    try:
        choice = choose(launch.config, Overrides(model=name), os.environ)
    except ConfigError:
        return None
    return launch._replace(choice=choice) if isinstance(choice, Choice) else None


def _size(window: int | None) -> str:
    return tokens(window) if window else ""
