"""Pasting a key: for which server, the key, checked at once by asking for the models, one of which is chosen."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from kimi_tui.config.choosing import Choice, is_loopback, is_url
from kimi_tui.foreign_text import clean
from kimi_tui.launch import Launch
from kimi_tui.places import short
from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.first_run.picking import Entry, PickList
from kimi_tui.tui.first_run.saving import save
from kimi_tui.tui.first_run.servers import SERVERS, model_facts, server_of
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.main.footer import Footer
from kimi_tui.tui.styles import sheets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.llm.discovery import FoundModel

PASTED_CHARS = 8


class KeyScreen(AnswersOnce[Launch | None]):
    """Asks for a key and a model. Answers with how to start, or None for going back.

    Args:
        launch: how the program was started; where that names this server with its key, only the model is asked for.
        base_url: the server whose key is wanted; empty where the person chooses.
    """

    CSS_PATH = sheets("first_run")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", show=False)]

    def __init__(self, launch: Launch, base_url: str = "") -> None:
        super().__init__()
        self._launch = launch
        chosen = server_of(base_url) if base_url else 0
        entries = [Entry(server.title, server.base_url) for server in SERVERS]
        self._server = PickList(entries, folds=True, chosen=chosen, widget_id="server")
        self._url = _field("https://host/v1", "url", value=base_url)
        known = launch.choice
        self._known = known if isinstance(known, Choice) and known.base_url == base_url else None
        key = self._known.api_key if self._known else ""
        self._key = _field("paste it here; it is never shown", "key", value=key, password=True)
        self._status = Static(id="status", markup=False)
        self._models_list = PickList(rows=6, widget_id="models")
        self._name = _field("the model's name at this server", "name")
        self._models: Sequence[FoundModel] = ()
        self._checked: tuple[str, str] | None = None
        self._length = len(key)

    def compose(self) -> ComposeResult:
        """A row a field."""
        path = short(self._launch.config_path)
        title, saved = "Paste a key", f"Saved in {path}, readable by you alone."
        if self._known is not None:
            title = "Which model shall be used?"
            saved = f"Saved in {path}; the key stays where it came from."
        with VerticalScroll(id="form", can_focus=False):
            yield Static(Content.styled(title, "bold $ink-strong"), classes="title")
            yield Horizontal(_label("Server"), self._server, classes="row picks")
            yield Horizontal(_label("Base URL"), self._url, classes="row", id="url-row")
            yield Horizontal(_label("Key"), self._key, classes="row joined")
            yield Horizontal(_label(""), self._status, classes="row")
            yield Horizontal(
                _label("Model"), self._models_list, classes="row picks", id="models-row"
            )
            yield Horizontal(_label("Model"), self._name, classes="row", id="name-row")
            yield Static(Content.styled(saved, "$ink-quiet"), classes="title")
        yield Footer()

    def on_mount(self) -> None:
        """Begin with what is not known yet."""
        glyphs = glyphs_of(app_of(self))
        self.query_one(Footer).hints = (
            ("Enter", "go on"),
            (f"{glyphs.up}{glyphs.down}", "choose"),
            ("Tab", "next field"),
            ("Esc", "back"),
        )
        self.query_one("#models-row").display = False
        self.query_one("#name-row").display = False
        self._show_url()
        if self._url.value:
            self.set_focus(self._key)
        else:
            self.set_focus(self._server)
        if self._known is not None:
            # The fields have told of what they hold before that.
            self.call_after_refresh(self._check)

    # --- the server

    @property
    def _base_url(self) -> str:
        return SERVERS[self._server.chosen].base_url or self._url.value.strip().rstrip("/")

    def _show_url(self) -> None:
        self.query_one("#url-row").display = not SERVERS[self._server.chosen].base_url

    @on(PickList.Moved, "#server")
    def _server_moved(self) -> None:
        self._show_url()
        self._forget()

    @on(PickList.Picked, "#server")
    def _server_picked(self) -> None:
        self.set_focus(self._key if SERVERS[self._server.chosen].base_url else self._url)

    @on(Input.Changed, "#url")
    def _url_changed(self) -> None:
        """What was asked of another server is not true of this one."""
        self._forget()

    @on(Input.Submitted, "#url")
    def _url_given(self) -> None:
        if self._is_sound(self._base_url):
            self.set_focus(self._key)

    # --- the key

    @on(Input.Changed, "#key")
    def _key_changed(self, event: Input.Changed) -> None:
        """A key that came in one piece was pasted: it is checked at once."""
        grown = len(event.value) - self._length
        self._length = len(event.value)
        self._forget()
        if grown >= PASTED_CHARS:
            self._check()

    @on(Input.Submitted, "#key")
    def _key_given(self) -> None:
        self._check()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        """Leaving the key checks it."""
        if event.widget is self._key and self._key.value.strip():
            self._check()

    def _forget(self) -> None:
        self._checked = None
        self._models = ()
        self._status.update("")
        self.query_one("#models-row").display = False
        self.query_one("#name-row").display = False

    def _check(self) -> None:
        url, key = self._base_url, self._key.value.strip()
        if (url, key) == self._checked:
            return
        if not self._is_sound(url):
            return
        if not key and not is_loopback(url):
            advice = "Where the server wants none, any word will do."
            known = SERVERS[self._server.chosen].base_url
            self._say("A key is needed here.", "" if known else advice, bad=True)
            return
        self._checked = (url, key)
        self._status.update(Content.styled(f"asking {url} …", "$ink-quiet"))
        self.run_worker(self._ask(url, key), group="check", exclusive=True)

    def _is_sound(self, url: str) -> bool:
        """Whether this can be a server's URL; else that is said, where it can be mended."""
        if is_url(url):
            return True
        self._say("The base URL must begin with https:// or http://.", "", bad=True)
        self.set_focus(self._url)
        return False

    async def _ask(self, url: str, key: str) -> None:
        await asyncio.to_thread(import_module, "kimi_tui.llm.discovery")
        from kimi_tui.llm.discovery import LISTLESS, list_models
        from kimi_tui.llm.errors import APIStatusError, LLMError

        try:
            models = await list_models(url, key)
        except LLMError as error:
            if (url, key) != self._checked:
                return
            unlisted = isinstance(error, APIStatusError) and error.status in LISTLESS
            self._say(error.message, error.advice, bad=True)
            if unlisted:
                self._ask_for_name()
            else:
                self._checked = None
            return
        if (url, key) != self._checked:
            return  # another server or key stands there by now
        if not models:
            self._say("The key is accepted, but no models are listed.", "", bad=False)
            self._ask_for_name()
            return
        self._offer(models)

    def _offer(self, models: Sequence[FoundModel]) -> None:
        glyphs = glyphs_of(app_of(self))
        count = f"{len(models)} model{'' if len(models) == 1 else 's'}"
        self._status.update(
            Content.assemble((glyphs.done, "$ok"), (f" accepted, {count}", "$ink-quiet"))
        )
        self._models = models
        wanted = getattr(self._launch.choice, "model", "")
        names = [model.id for model in models]
        chosen = names.index(wanted) if wanted in names else 0
        self._models_list.show([entry_of(model) for model in models], chosen)
        self.query_one("#models-row").display = True
        self.set_focus(self._models_list)

    def _ask_for_name(self) -> None:
        self.query_one("#name-row").display = True
        self.set_focus(self._name)

    def _say(self, words: str, advice: str, *, bad: bool) -> None:
        style = "$kind-error" if bad else "$ink"
        parts = [Content.styled(clean(words), style)]
        if advice:
            parts.append(Content.styled(clean(advice), "$ink"))
        self._status.update(Content("\n").join(parts))

    # --- the model

    @on(PickList.Picked, "#models")
    def _model_picked(self) -> None:
        found = self._models[self._models_list.chosen]
        self._finish(choice_of(found, self._provider, self._base_url, self._key.value.strip()))

    @on(Input.Submitted, "#name")
    def _name_given(self) -> None:
        name = self._name.value.strip()
        if name:
            url, key = self._base_url, self._key.value.strip()
            self._finish(Choice(self._provider, url, name, key))

    @property
    def _provider(self) -> str:
        return SERVERS[self._server.chosen].name

    def _finish(self, choice: Choice) -> None:
        self.run_worker(self._save(choice), group="save", exclusive=True)

    async def _save(self, choice: Choice) -> None:
        known = self._known
        if known is None or (choice.base_url, choice.api_key) != (known.base_url, known.api_key):
            self.dismiss(await save(self._launch, choice))
            return
        # A key of the environment stays there.
        used = known._replace(
            model=choice.model,
            window=known.window or choice.window,
            capabilities=choice.capabilities,
        )
        kept = choice._replace(provider=known.provider, api_key=_stored_key(self._launch, choice))
        self.dismiss((await save(self._launch, kept))._replace(choice=used))

    def action_back(self) -> None:
        """Back to the three ways."""
        self.dismiss(None)


def _stored_key(launch: Launch, choice: Choice) -> str:
    """The key that the configuration has for the server already."""
    stored = launch.config.providers.values()
    return next((one.api_key for one in stored if one.base_url == choice.base_url), "")


def entry_of(model: FoundModel) -> Entry:
    """A model as a row of the list."""
    thinks = model.capabilities is not None and "thinking" in model.capabilities
    return Entry(model.id, model_facts(model.window, thinks=thinks))


def choice_of(model: FoundModel, provider: str, base_url: str, key: str) -> Choice:
    """A listed model as what is saved and used."""
    known = model.capabilities
    words = tuple(sorted(known - {"tools"})) if known is not None else None
    return Choice(
        provider=provider,
        base_url=base_url,
        model=model.id,
        api_key=key,
        window=model.window,
        capabilities=words,
        thinking="thinking" in (words or ()),
    )


def _label(text: str) -> Static:
    return Static(Content.styled(text, "$ink-quiet"), classes="label")


def _field(placeholder: str, name: str, *, value: str = "", password: bool = False) -> Input:
    field = Input(value, placeholder=placeholder, password=password, id=name, compact=True)
    field.cursor_blink = False
    return field
