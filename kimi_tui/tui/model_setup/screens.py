"""The screens for choosing a model: with an API key for its server, of a server on this machine, or another one by /model."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input

from kimi_tui.app_paths import short
from kimi_tui.base_url import clean_url, is_url, shown_url, with_scheme
from kimi_tui.config.model_choice import ModelChoice, needs_key
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.launch import Launch
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import counted
from kimi_tui.tui.frame import Footer
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.keyboard import TOO_EARLY, AskingScreen
from kimi_tui.tui.line_field import LineField
from kimi_tui.tui.model_setup.models import (
    SERVERS,
    ModelEntry,
    ModelPick,
    choice_of,
    has_no_list,
    listed_models,
    local_servers,
    model_facts,
    model_options,
    save,
    server_of,
    stored_headers,
    stored_key,
    where,
)
from kimi_tui.tui.painter import is_web_address
from kimi_tui.tui.pick_list import MODEL_KEYS, SERVER_KEYS, Entry, PickList
from kimi_tui.tui.row_list import Words, plain
from kimi_tui.tui.rows import Line, Span
from kimi_tui.tui.screens import app_of, push_once, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.llm.models import FoundModel, LocalServer

PASTED_CHARS = 8
"""The number of characters by which a field grows at once when text is pasted into it."""

KEY_MOVED = 'This looks like an API key, so it was moved to the field "Key".'
URL_MOVED = 'This is a URL, so it was moved to the field "Base URL". The key is still missing.'
URL_REFUSED = (
    'This is a URL, not a key, so the field is unchanged. "Base URL" is already filled in.'
)
KEY_REFUSED = 'This looks like an API key, so the field is unchanged. "Key" is already filled in.'

NONE_FOUND = (
    "No server answers on its usual port: Ollama 11434, llama.cpp 8080, LM Studio 1234, vLLM 8000."
)
NOT_ASKED = 'Nothing was sent yet. Press Enter in the field "Key" to check it at {url}.'
HOW_TO_GO_ON = 'Start a server and press Ctrl+R. For one on another port or machine, press Esc and choose "Paste a key".'

ANOTHER_KEY = Entry(
    "Paste another key",
    "Kimi, OpenAI, Anthropic, Gemini, OpenRouter or any compatible server",
    shortly="",
)
LOCAL = Entry(
    "Use a local server", "Ollama, llama.cpp, LM Studio or vLLM on its usual port", shortly=""
)
ROWS = 12


def can_be_taken(text: str) -> bool:
    """Return whether a pasted text is a key or an address, each of which has a field of its own."""
    from kimi_tui.tools.credentials import is_key

    return is_web_address(text.strip()) or is_key(text)


class KeyForm(NamedTuple):
    """The contents of the fields of a `KeyScreen` that was left.

    Attributes:
        server: the index of the chosen server in `SERVERS`.
        url: the text of the base URL.
        key: the API key.
    """

    server: int
    url: str
    key: str

    def __repr__(self) -> str:
        return "KeyForm"  # a bug report shows values, and this one contains a key


class KeyScreen(AskingScreen[Launch | KeyForm]):
    """Asks for a key and a model. Its result is the launch, or the typed texts if the user went back.

    Args:
        launch: the launch of the program; if it names this server with its key, only the model is asked for.
        base_url: the server whose key is needed; empty if the user chooses.
        typed: the contents of the fields when the screen was left; None the first time.
        pasted: a key or an address that was pasted before, and the time; it is put into its field, and nothing is sent yet.
    """

    HELP_TITLE = "Lists: settings, models, servers"
    IS_EXPECTED = True
    CSS_PATH = sheets("rows", "model_setup")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", show=False)]

    def __init__(
        self,
        launch: Launch,
        base_url: str = "",
        typed: KeyForm | None = None,
        *,
        pasted: tuple[str, float] | None = None,
    ) -> None:
        super().__init__()
        self._launch = launch
        self._pasted = pasted
        chosen = server_of(base_url) if base_url else 0
        if typed is not None:
            chosen = typed.server
        entries = [
            Entry(server.title, server.base_url, shortly=server.base_url.removeprefix("https://"))
            for server in SERVERS
        ]
        self._server = PickList(self.seen, entries, folds=True, chosen=chosen, widget_id="server")
        url = typed.url if typed is not None else base_url
        self._url = LineField(url, placeholder="https://host/v1", is_address=True, id="url")
        known = launch.choice
        self._known = (
            known if isinstance(known, ModelChoice) and known.base_url == base_url else None
        )
        key = typed.key if typed is not None else self._known.api_key if self._known else ""
        self._key = _field("paste it here; it is never shown", "key", value=key, password=True)
        self._status = Words(widget_id="status")
        self._models_list = PickList(self.seen, rows=6, widget_id="models")
        self._model_name = _field("the model's name at this server", "name")
        self._models: Sequence[FoundModel] = ()
        self._checked: tuple[str, str] | None = None
        self._length = len(key)
        self._is_key_refused = False
        """Whether the note says that a second key was ignored."""
        self._is_url_refused = False
        """Whether the note says that a second address was ignored."""
        self._check_failed = False
        self._insisted = ""
        """The name of a model that was entered although the check failed, and that a second Enter uses."""

    def compose(self) -> ComposeResult:
        """Compose one row per field."""
        path = short(self._launch.config_path)
        title, saved = "Paste a key", f"Your choice is saved in {path}, readable by you alone."
        if self._known is not None:
            title = "Which model should be used?"
        if self._known is not None and self._known.api_key != stored_key(self._launch, self._known):
            saved = f"Your choice is saved in {path}. The key stays in the environment and is not written to the file."
        with VerticalScroll(id="form", can_focus=False) as form:
            use_thin_scrollbar(form, glyphs_of(self))
            yield Words(plain(title, "strong"), classes="title")
            yield Horizontal(_label("Server"), self._server, classes="row picks")
            yield Horizontal(_label("Base URL"), self._url, classes="row", id="url-row")
            yield Words(widget_id="note", classes="row")
            yield Horizontal(_label("Key"), self._key, classes="row joined")
            yield Horizontal(_label(""), self._status, classes="row")
            yield Horizontal(
                _label("Model"), self._models_list, classes="row picks", id="models-row"
            )
            yield Horizontal(_label("Model"), self._model_name, classes="row", id="name-row")
            yield Words(plain(saved, "quiet"), classes="title")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the first unknown field."""
        self.query_one("#models-row").display = False
        self.query_one("#name-row").display = False
        self._show_url()
        if self._url.value:
            self.set_focus(self._key)
        else:
            self.set_focus(self._server)
        if self._pasted is not None:
            self.call_after_refresh(self._take, *self._pasted)
        elif self._key.value:
            # The fields have posted their contents before that.
            self.call_after_refresh(self._check)

    def on_descendant_focus(self) -> None:
        """List the keys of the field or list that has the focus."""
        glyphs, focused = glyphs_of(self), self.focused
        is_list = isinstance(focused, PickList)
        is_last = focused in (self._models_list, self._model_name)
        enter = "check the key" if focused is self._key else "start" if is_last else "continue"
        moves = ((f"{glyphs.up}{glyphs.down}", "choose"), ("letters", "filter")) if is_list else ()
        self.query_one(Footer).hints = (
            ("Enter", enter),
            *moves,
            ("Tab", "next field"),
            ("Esc", "back"),
        )

    # --- the server

    @property
    def _base_url(self) -> str:
        return SERVERS[self._server.chosen].base_url or with_scheme(clean_url(self._url.value))

    def _show_url(self) -> None:
        server = SERVERS[self._server.chosen]
        self.query_one("#url-row").display = not server.base_url
        self._note(server.note)

    def _note(self, words: str) -> None:
        """Show a text below the server and its URL; empty for nothing."""
        note = self.query_one("#note", Words)
        note.display = bool(words)
        note.show(plain(words, "warn"))

    @on(PickList.Moved, "#server")
    def _server_moved(self) -> None:
        self._show_url()
        self._forget()

    @on(PickList.Picked, "#server")
    def _server_picked(self) -> None:
        self.set_focus(self._key if SERVERS[self._server.chosen].base_url else self._url)

    @on(Input.Changed, "#url")
    def _url_changed(self) -> None:
        """Clear the results of the former server, and the note about an address that was ignored for it."""
        if self._is_url_refused:
            self._is_url_refused = False
            self._note(SERVERS[self._server.chosen].note)
        self._forget()

    @on(Input.Submitted, "#url")
    def _url_given(self) -> None:
        if self._is_sound(self._base_url):
            self.set_focus(self._key)

    # --- the key

    @on(LineField.KeyEntered)
    def _key_entered(self, event: LineField.KeyEntered) -> None:
        """Handle a key that was entered into a field that shows its text."""
        with self.prevent(Input.Changed):
            event.field.take_out(event.key)
        self._move_key(event.key)

    def takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are a pasted key or address, which does not filter a list."""
        return isinstance(self.focused, PickList) and can_be_taken(text)

    def on_paste(self, event: events.Paste) -> None:
        """Handle a paste into a list, which is meant for the field of a key or an address."""
        if isinstance(self.focused, PickList) and can_be_taken(event.text):
            event.stop()
            self._take(event.text, event.time)

    def _take(self, text: str, at: float) -> None:
        """Put a pasted key or address into its field.

        Args:
            text: the key or the address.
            at: the time of the paste: a key is not sent before its server was visible on the screen.
        """
        text = text.strip()
        if is_web_address(text):
            self._move_url(text)
            return
        self._key.key_at = at
        self._move_key(text)

    def _move_url(self, url: str) -> None:
        """Choose the server without a fixed URL, with this address; an address that was typed before is not overwritten."""
        own = next(at for at, server in enumerate(SERVERS) if not server.base_url)
        is_free = self._server.chosen != own or self._url.value.strip() in ("", url)
        if is_free:
            self._server.choose(own)
            self._show_url()
            self._url.value = url
        self._is_url_refused = not is_free
        self._note(URL_MOVED if is_free else URL_REFUSED)
        self.set_focus(self._key)

    def _move_key(self, key: str) -> None:
        self._is_key_refused = self._key.value.strip() not in ("", key)
        if self._is_key_refused:
            self._note(KEY_REFUSED)
            return
        self._note(KEY_MOVED)
        field = self._key
        field.value = key
        # The rest of a key that comes in pieces must be appended: otherwise the focus would select the present text.
        field.select_on_focus = False
        self.set_focus(field)
        field.cursor_position = len(key)
        field.call_later(setattr, field, "select_on_focus", True)

    @on(Input.Changed, "#key")
    def _key_changed(self, event: Input.Changed) -> None:
        """Check a key at once that was pasted, as it came in one piece. An address is no key, and must not be sent to a server as one."""
        grown = len(event.value) - self._length
        if grown >= PASTED_CHARS and self._takes_address(event.value):
            return
        self._length = len(event.value)
        if self._is_key_refused:
            # The note about a second key does not apply to the present one.
            self._is_key_refused = False
            self._note(SERVERS[self._server.chosen].note)
        self._forget()
        if grown >= PASTED_CHARS and (self._url.value or SERVERS[self._server.chosen].base_url):
            self._check()

    @on(Input.Submitted, "#key")
    def _key_given(self) -> None:
        self._check()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        """Check the key when its field is left."""
        if event.widget is self._key and self._key.value.strip():
            self._check()

    def _forget(self) -> None:
        self._checked = None
        self._check_failed, self._insisted = False, ""
        self._models = ()
        self._status.show()
        self.query_one("#models-row").display = False
        self.query_one("#name-row").display = False

    def _takes_address(self, value: str) -> bool:
        """Return whether the text in the key's field is an address, which is moved to its own field."""
        if not is_web_address(value.strip()):
            return False
        with self.prevent(Input.Changed):
            self._key.value = ""
        self._length = 0
        self._move_url(value.strip())
        return True

    def _check(self) -> None:
        if self._takes_address(self._key.value):
            return
        url, key = self._base_url, self._key.value.strip()
        if (url, key) == self._checked:
            return
        if not self._is_sound(url):
            return
        if not key and needs_key(url):
            advice = "If the server needs no key, type any word."
            if url.lower().startswith("http:"):
                advice = "Begin the base URL with https://, or the key will not be sent."
            known = SERVERS[self._server.chosen].base_url
            self._say("Enter a key.", "" if known else advice, bad=True)
            return
        if self._key.key_at and not self.seen.accepts(self._key.key_at):
            # The user has not seen to which server the key would be sent.
            self._say(NOT_ASKED.format(url=shown_url(url)), "", bad=False)
            return
        self._checked = (url, key)
        self._status.show(plain(f"asking {shown_url(url)} …", "quiet"))
        work = reported(self, partial(self._ask, url, key), self._failed)
        self.run_worker(work, group="check", exclusive=True)

    def _is_sound(self, url: str) -> bool:
        """Return whether this can be a server's URL; if not, its field says so."""
        if is_url(url):
            return True
        self._say("The base URL must begin with https:// or http://.", "", bad=True)
        self.set_focus(self._url)
        return False

    async def _ask(self, url: str, key: str) -> None:
        from kimi_tui.llm.errors import LLMError

        try:
            headers = stored_headers(self._launch.config, url)
            found = await listed_models(url, key, headers)
        except LLMError as error:
            if (url, key) != self._checked:
                return
            self._say(error.message, error.advice, bad=True)
            if has_no_list(error):
                self._check_failed = True
                self._ask_for_name()
            else:
                self._checked = None
            return
        if (url, key) != self._checked:
            return  # another server or key has been entered by now
        at = ""
        if not SERVERS[self._server.chosen].base_url and self._url.value != found.base_url:
            # The field is corrected, so that it shows the URL that is saved.
            with self.prevent(Input.Changed):
                self._url.value = found.base_url
            self._checked = (found.base_url, key)
            if self._known is not None:
                self._known = self._known._replace(base_url=found.base_url)
            at = f" at {shown_url(found.base_url)}"
        if not found.models:
            kind = "no chat models are" if found.others else "no models are"
            self._say(f"The key is accepted, but {kind} listed{at}.", "", bad=False)
            self._ask_for_name()
            return
        self._offer(found.models, at)

    def _offer(self, models: Sequence[FoundModel], at: str = "") -> None:
        glyphs = glyphs_of(self)
        count = f"{counted(len(models), 'model')}{clean(at)}"
        self._status.show(Line((Span(glyphs.done, "ok"), Span(f" accepted, {count}", "quiet"))))
        self._models = models
        wanted = self._launch.choice.model
        names = [model.id for model in models]
        chosen = names.index(wanted) if wanted in names else 0
        self._models_list.show([_entry_of(model) for model in models], chosen)
        self.query_one("#models-row").display = True
        # The list gets the focus without a key press, so an Enter that was meant for the key must not choose a model.
        self.seen.ask()
        self.set_focus(self._models_list)

    def _ask_for_name(self) -> None:
        self.query_one("#name-row").display = True
        self.set_focus(self._model_name)

    def _say(self, words: str, advice: str, *, bad: bool) -> None:
        said = plain(clean(words), "error" if bad else "ink")
        self._status.show(said, *([plain(clean(advice))] if advice else []))

    def _failed(self, words: str) -> None:
        """Report an unexpected error; Enter in the key's field asks again."""
        self._checked = None
        self._say(words, "", bad=True)

    # --- the model

    @on(PickList.Picked, "#models")
    def _model_picked(self) -> None:
        found = self._models[self._models_list.chosen]
        self._finish(choice_of(found, self._provider, self._base_url, self._key.value.strip()))

    @on(Input.Submitted, "#name")
    def _name_given(self) -> None:
        name = self._model_name.value.strip()
        if name and self._check_failed and name != self._insisted:
            self._insisted = name
            words = f'"{name}" at {shown_url(self._base_url)} was not found: no models are listed there.'
            self._say(words, "Press Enter again to use it anyway.", bad=True)
        elif name:
            url, key = self._base_url, self._key.value.strip()
            self._finish(ModelChoice(self._provider, url, name, key))

    @property
    def _provider(self) -> str:
        return SERVERS[self._server.chosen].name

    def _finish(self, choice: ModelChoice) -> None:
        work = reported(self, partial(self._save, choice), self._failed)
        self.run_worker(work, group="save", exclusive=True)

    async def _save(self, choice: ModelChoice) -> None:
        known = self._known
        if known is None or (choice.base_url, choice.api_key) != (known.base_url, known.api_key):
            self.dismiss(await save(self._launch, choice))
            return
        # A key of the environment is not saved.
        used = known._replace(
            model=choice.model,
            window=known.window or choice.window,
            capabilities=choice.capabilities,
        )
        kept = choice._replace(provider=known.provider, api_key=stored_key(self._launch, choice))
        self.dismiss((await save(self._launch, kept))._replace(choice=used))

    def action_back(self) -> None:
        """Go back to the screen where this was chosen, which keeps the typed texts."""
        self.dismiss(KeyForm(self._server.chosen, self._url.value, self._key.value))


class LocalScreen(AskingScreen[Launch | None]):
    """Asks for a model of a local server. Its result is the launch, or None for going back."""

    HELP_TITLE = "Local servers"
    IS_EXPECTED = True
    CSS_PATH = sheets("rows", "model_setup")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", SERVER_KEYS["escape"], show=False),
        # The key is not a letter, as letters narrow the list if there are many models.
        Binding("ctrl+r", "look", SERVER_KEYS["ctrl+r"], show=False),
    ]

    def __init__(self, launch: Launch, servers: tuple[LocalServer, ...]) -> None:
        super().__init__()
        self._launch = launch
        self._servers = servers
        self._options: list[tuple[LocalServer, int]] = []
        self._list = PickList(self.seen, rows=10)
        self._words = Words(widget_id="status")

    def compose(self) -> ComposeResult:
        """Compose one list of all models."""
        saved = f"Your choice is saved in {short(self._launch.config_path)}, readable by you alone."
        with VerticalScroll(id="form", can_focus=False) as form:
            use_thin_scrollbar(form, glyphs_of(self))
            yield Words(plain("Use a local server", "strong"), classes="title")
            yield self._words
            yield self._list
            yield Words(plain(saved, "quiet"), classes="title")
        yield Footer()

    def on_mount(self) -> None:
        """Show the found servers; search again if there are none."""
        self._list.focus()
        self._show()
        if not self._servers or any(server.loading for server in self._servers):
            self.action_look()

    def _show(self) -> None:
        before = self._options[self._list.chosen] if self._options else None
        if before is None:
            self.seen.ask(is_expected=self.IS_EXPECTED)  # nobody has seen the coming list
        self._options = [
            (server, index) for server in self._servers for index in range(len(server.models))
        ]
        entries: list[Entry] = []
        for server, index in self._options:
            model = server.models[index]
            entries.append(Entry(model.id, (server.name, *model_facts(model))))
        self._list.show(entries, self._options.index(before) if before in self._options else 0)
        glyphs = glyphs_of(self)
        moves = ((f"{glyphs.up}{glyphs.down}", "choose"),) if len(entries) > 1 else ()
        choosing = (("Enter", "start"), *moves) if entries else ()
        self.query_one(Footer).hints = (*choosing, ("Ctrl+R", "search again"), ("Esc", "back"))
        loading = [where(server) for server in self._servers if server.loading]
        if loading:
            verb = "is loading its model" if len(loading) == 1 else "are loading their models"
            words = f"{' and '.join(loading)} {verb} and will be listed when it is done."
            self._words.show(plain(clean(words)))
        elif entries:
            self._words.show()
        elif self._servers:
            names = ", ".join(server.name for server in self._servers)
            words = f"{names}: running, but no chat model is loaded. Load one and press Ctrl+R."
            self._words.show(plain(clean(words)))
        else:
            self._words.show(plain(NONE_FOUND), plain(HOW_TO_GO_ON, "quiet"))

    def action_look(self) -> None:
        """Ask the usual ports again."""
        self._words.show(plain("looking …", "quiet"))
        self.run_worker(reported(self, self._look, self._failed), group="look", exclusive=True)

    async def _look(self) -> None:
        async for servers in local_servers():
            self._servers = servers
            self._show()

    @on(PickList.Picked)
    def _picked(self) -> None:
        server, index = self._options[self._list.chosen]
        provider = server.name.lower().replace(" ", "-").replace(".", "")
        choice = choice_of(server.models[index], provider, server.base_url)
        work = reported(self, partial(self._save, choice), self._failed)
        self.run_worker(work, group="save", exclusive=True)

    async def _save(self, choice: ModelChoice) -> None:
        self.dismiss(await save(self._launch, choice))

    def _failed(self, words: str) -> None:
        self._words.show(plain(clean(words), "error"))

    def action_back(self) -> None:
        """Go back to the three ways."""
        self.dismiss(None)


class ModelScreen(AskingScreen[ModelPick | None]):
    """Asks for another model. Its result is the pick, or None for no change.

    Args:
        launch: the present launch.
        thinking: the present thinking setting; empty for none.
        taken: the thinking settings of the model in use.
    """

    HELP_TITLE = "Models"
    IS_EXPECTED = True
    CSS_PATH = sheets("rows", "model_setup")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", MODEL_KEYS["escape"], show=False),
        Binding("ctrl+s", "use_here", MODEL_KEYS["ctrl+s"], show=False),
        Binding("left", "think(-1)", MODEL_KEYS["left"], show=False),
        Binding("right", "think(1)", MODEL_KEYS["right"], show=False),
    ]

    def __init__(self, launch: Launch, thinking: str = "", taken: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._launch = launch
        self._now = thinking
        self._taken = taken
        self._wanted: dict[str, str] = {}
        """The thinking that was set on this screen, by the name in the list."""
        self._options: list[ModelEntry] = []
        self._typed: KeyForm | None = None
        """The typed texts of another key that was not used."""
        self._list = PickList(self.seen, rows=ROWS, narrows=True)
        self._thinking = Words(classes="title")
        self._words = Words(classes="title")

    def _show(self, options: list[ModelEntry]) -> None:
        """Offer these models; a choice that the user made stays."""
        before, at = len(self._options), self._list.chosen
        chosen = self._options[at].name if at < before else ""
        self._options = options
        used = self._used()
        entries = [
            Entry(option.name, option.facts, holds=index == used, shortly=option.shortly)
            for index, option in enumerate(self._options)
        ]
        names = [option.name for option in self._options]
        if chosen in names:
            place = names.index(chosen)
        else:
            place = at - before + len(names) if before else max(used, 0)
        self._list.show([*entries, ANOTHER_KEY, LOCAL], place)
        self._show_thinking()

    def _used(self) -> int:
        """Return the index of the model in use; -1 if it is not in the list."""
        now = self._launch.choice
        places = {
            (there.model, there.base_url): index
            for index, option in reversed(list(enumerate(self._options)))
            if option.launch is not None and isinstance(there := option.launch.choice, ModelChoice)
        }
        return places.get((now.model, now.base_url), -1)

    @property
    def _option(self) -> ModelEntry | None:
        """The chosen model; None on the rows after the models."""
        chosen = self._list.chosen
        return self._options[chosen] if chosen < len(self._options) else None

    def compose(self) -> ComposeResult:
        """Compose one list."""
        with VerticalScroll(id="form", can_focus=False) as form:
            use_thin_scrollbar(form, glyphs_of(self))
            yield Words(plain("Which model should be used?", "strong"), classes="title")
            yield self._list
            yield self._thinking
            yield self._words
        yield Footer()

    def on_mount(self) -> None:
        """Focus the list, and ask the server for its models."""
        self._list.most = min(ROWS, app_of(self).size.height - 13)
        self._list.focus()
        self._show(model_options(self._launch, ()))
        if isinstance(self._launch.choice, ModelChoice):
            self._say("Asking the server which models it has …")
            self.run_worker(reported(self, partial(self._ask, self._launch.choice), self._say))
        else:
            self._say()

    def _say(self, words: str = "") -> None:
        lasting = "The agent uses the chosen model from its next request on."
        if any(option.facts[3] not in ("", "free") for option in self._options):
            lasting += " Prices are per million tokens."
        self._words.show(plain(f"{lasting} {words}".rstrip(), "quiet"))

    async def _ask(self, choice: ModelChoice) -> None:
        from kimi_tui.llm.errors import LLMError

        try:
            found = await listed_models(choice.base_url, choice.api_key, choice.headers)
        except LLMError as error:
            self._say(f"The server lists no models: {one_line(error.message)}")
            return
        # Computing the facts of thousands of models takes a while.
        self._show(await asyncio.to_thread(model_options, self._launch, found.models))
        self._say()

    # --- thinking

    def _steps(self) -> tuple[str, ...]:
        """Return the thinking settings of the chosen model, the least first; the first leaves it to the model."""
        option = self._option
        if option is None:
            return ()
        taken = option.thinking
        if self._list.chosen == self._used():
            taken = self._taken or taken  # a local server may have reported more since
        return ("", *sorted(taken, key=lambda word: word != "off")) if taken else ()

    def _set(self) -> str:
        """Return the setting of the chosen model."""
        option = self._option
        word = self._wanted.get(option.name, self._now) if option is not None else ""
        return word if word in self._steps() else ""

    def action_think(self, step: int) -> None:
        """Set more or less thinking for the chosen model."""
        option, steps = self._option, self._steps()
        if option is not None and steps:
            place = steps.index(self._set()) + step
            if 0 <= place < len(steps):
                self._wanted[option.name] = steps[place]
                self._show_thinking()

    @on(PickList.Moved)
    def _show_thinking(self) -> None:
        glyphs = glyphs_of(self)
        steps, now = self._steps(), self._set()
        # The note shows the facts completely that a narrow list shortens.
        facts = option.facts if (option := self._option) is not None else ()
        whole = f" {glyphs.pending} ".join(filter(None, facts))
        row: list[Span] = [Span("Reasoning effort", "quiet")] if steps else []
        for word in steps:
            is_set = word == now
            shown = f"[{word or 'default'}]" if is_set else f" {word or 'default'} "
            row.append(Span(f" {shown}", "strong" if is_set else "quiet"))
        self._thinking.show(plain(one_line(whole)), *([Line(tuple(row))] if row else []))
        effort = ((f"{glyphs.back}{glyphs.to}", "reasoning"),) if steps else ()
        is_model = option is not None and option.launch is not None
        using = (("Enter", "use"), ("Ctrl+S", "this folder")) if is_model else ()
        opening = (("Enter", "continue"),) if option is None else ()
        self.query_one(Footer).hints = (
            *using,
            *opening,
            *effort,
            ("Esc", "back"),
            (f"{glyphs.up}{glyphs.down}", "choose"),
            ("letters", "filter"),
        )

    # --- choosing

    def on_key(self, event: events.Key) -> None:
        """Accept the key of `use_here` only if the list was visible long enough, as for Enter in the list."""
        if event.key == "ctrl+s" and not self.seen.accepts(event.time):
            event.stop()
            self._say(f"{TOO_EARLY.capitalize()}.")

    @on(PickList.Picked)
    def _picked(self) -> None:
        self._use(here=False)

    def action_use_here(self) -> None:
        """Use the chosen model in this folder only."""
        self._use(here=True)

    def _use(self, *, here: bool) -> None:
        option = self._option
        if option is not None:
            if option.launch is not None:
                self.dismiss(ModelPick(option.launch, self._wanted.get(option.name), here))
            else:
                self._say(f"{one_line(option.name)} cannot be used because its key is missing.")
        elif self._list.chosen == len(self._options):
            push_once(self, KeyScreen(self._launch, typed=self._typed), self._chosen)
        else:
            push_once(self, LocalScreen(self._launch, ()), self._chosen)

    def _chosen(self, answer: Launch | KeyForm | None) -> None:
        if isinstance(answer, KeyForm):
            self._typed = answer
        elif answer is not None:
            self.dismiss(ModelPick(answer))

    def action_back(self) -> None:
        """Leave the model unchanged."""
        self.dismiss(None)


def _entry_of(model: FoundModel) -> Entry:
    """Return a model as a row of the list."""
    return Entry(model.id, model_facts(model))


def _label(text: str) -> Words:
    return Words(plain(text, "quiet"), classes="label")


def _field(placeholder: str, name: str, *, value: str = "", password: bool = False) -> LineField:
    return LineField(value, placeholder=placeholder, password=password, id=name)
