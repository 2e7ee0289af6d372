"""The servers found on this machine with their models, one of which is chosen."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from kimi_tui.config.choosing import Choice
from kimi_tui.foreign_text import clean
from kimi_tui.launch import Launch
from kimi_tui.places import short
from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.first_run.picking import Entry, PickList
from kimi_tui.tui.first_run.saving import save
from kimi_tui.tui.first_run.servers import model_facts
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.footer import Footer
from kimi_tui.tui.styles import sheets

if TYPE_CHECKING:
    from kimi_tui.llm.discovery import LocalServer

NONE_FOUND = (
    "No server answers on its usual port: Ollama 11434, llama.cpp 8080, LM Studio 1234, vLLM 8000."
)
HOW_TO_GO_ON = "Start one and press Ctrl+R. One on another port or machine: Esc, then Paste a key."


class LocalScreen(AnswersOnce[Launch | None]):
    """Asks for a model of a local server. Answers with how to start, or None for going back."""

    CSS_PATH = sheets("first_run")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", show=False),
        # Not a letter: with many models those narrow the list.
        Binding("ctrl+r", "look", "Look again", show=False),
    ]

    def __init__(self, launch: Launch, servers: tuple[LocalServer, ...]) -> None:
        super().__init__()
        self._launch = launch
        self._servers = servers
        self._options: list[tuple[LocalServer, int]] = []
        self._list = PickList(rows=10)
        self._words = Static(id="status", markup=False)

    def compose(self) -> ComposeResult:
        """One list of all models."""
        saved = f"Saved in {short(self._launch.config_path)}, readable by you alone."
        with VerticalScroll(id="form", can_focus=False):
            title = Content.styled("Use a local server", "bold $ink-strong")
            yield Static(title, classes="title")
            yield self._words
            yield self._list
            yield Static(Content.styled(saved, "$ink-quiet"), classes="title")
        yield Footer()

    def on_mount(self) -> None:
        """Show what was found; look again where nothing was."""
        glyphs = glyphs_of(app_of(self))
        self.query_one(Footer).hints = (
            ("Enter", "start"),
            (f"{glyphs.up}{glyphs.down}", "choose"),
            ("Ctrl+R", "look again"),
            ("Esc", "back"),
        )
        self._list.focus()
        self._show()
        if not self._servers:
            self.action_look()

    def _show(self) -> None:
        self._options = [
            (server, index) for server in self._servers for index in range(len(server.models))
        ]
        entries: list[Entry] = []
        for server, index in self._options:
            model = server.models[index]
            thinks = model.capabilities is not None and "thinking" in model.capabilities
            facts = f"{server.name}   {model_facts(model.window, thinks=thinks)}".strip()
            entries.append(Entry(model.id, facts))
        self._list.show(entries)
        if entries:
            self._words.update("")
        elif self._servers:
            names = ", ".join(server.name for server in self._servers)
            words = f"{names} answers but has no model yet. Load one there and press Ctrl+R."
            self._words.update(Content.styled(clean(words), "$ink"))
        else:
            self._words.update(
                Content.assemble((f"{NONE_FOUND}\n", "$ink"), (HOW_TO_GO_ON, "$ink-quiet"))
            )

    def action_look(self) -> None:
        """Ask the usual ports again."""
        self._words.update(Content.styled("looking …", "$ink-quiet"))
        self.run_worker(self._look(), group="look", exclusive=True)

    async def _look(self) -> None:
        await asyncio.to_thread(import_module, "kimi_tui.llm.discovery")
        from kimi_tui.llm.discovery import local_servers

        self._servers = tuple(await local_servers())
        self._show()

    @on(PickList.Picked)
    def _picked(self) -> None:
        server, index = self._options[self._list.chosen]
        model = server.models[index]
        known = model.capabilities
        choice = Choice(
            provider=server.name.lower().replace(" ", "-").replace(".", ""),
            base_url=server.base_url,
            model=model.id,
            window=model.window,
            capabilities=tuple(sorted(known - {"tools"})) if known is not None else None,
        )
        self.run_worker(self._save(choice), group="save", exclusive=True)

    async def _save(self, choice: Choice) -> None:
        self.dismiss(await save(self._launch, choice))

    def action_back(self) -> None:
        """Back to the three ways."""
        self.dismiss(None)
