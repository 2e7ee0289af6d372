"""The welcome screen, shown at the start if no model is configured: three ways to choose one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen

from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import ModelChoice, NeedsChoice
from kimi_tui.foreign_text import clean
from kimi_tui.launch import Launch
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import counted, cut
from kimi_tui.tui.frame import Footer
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.key_sequences import CHORDS
from kimi_tui.tui.keyboard import LetterRun, row_of_digit
from kimi_tui.tui.model_setup.models import local_servers, where
from kimi_tui.tui.row_list import Look, RowList, RowModel, Words, plain
from kimi_tui.tui.rows import BLANK, Line, Span
from kimi_tui.tui.screens import QuitChosen, SessionChosen, app_of, push_once, sheets

if TYPE_CHECKING:
    from kimi_tui.llm.models import LocalServer
    from kimi_tui.tui.model_setup.screens import KeyForm

LOOK_DELAY_S = 0.15
PASTED_OTHER = "The pasted text is neither an API key nor a URL."
TYPED_OTHER = "Text cannot be typed here. Press Enter or a number to choose."
MOST_NOTICES = 3
"""The largest number of lines about the configuration."""


@dataclass(frozen=True, slots=True)
class StartOption:
    """A way to begin, with one quiet line about it."""

    title: str
    about: str


def ways(servers: tuple[LocalServer, ...] | None) -> tuple[StartOption, ...]:
    """Return the three ways; `servers` is None while they are being searched."""
    if servers is None:
        local = "looking for Ollama, llama.cpp, LM Studio and vLLM"
    elif not servers:
        local = "no Ollama, llama.cpp, LM Studio or vLLM found"
    elif loading := [server for server in servers if server.loading]:
        others = tuple(server for server in servers if not server.loading)
        found = f"found: {_found_words(others)}; " if others else ""
        local = f"{found}{where(loading[0])} is loading its model"
    else:
        local = f"found: {_found_words(servers)}"
    return (
        StartOption("Paste a key", "Kimi, OpenAI, Anthropic, Gemini, OpenRouter, others"),
        StartOption("Use a local server", local),
        StartOption("Watch the demo", "two minutes, needs no API key and no network"),
    )


def _found_words(servers: tuple[LocalServer, ...]) -> str:
    """Describe one server with its port; several by their names alone, so that all of them fit into the line."""
    first, *others = servers
    names = ", ".join(server.name for server in servers) if others else where(first)
    count = sum(len(server.models) for server in servers)
    return f"{names}; {counted(count, 'model')}"


class StartModel(RowModel):
    """The ways to begin; `options` are changed when servers were found."""

    def __init__(self) -> None:
        self.options = ways(None)

    def __len__(self) -> int:
        """Return the number of ways."""
        return len(self.options)

    def rows(self, look: Look) -> Sequence[Sequence[Line]]:
        """Return two rows for each way, with a blank one between."""
        return [self._way(index, look) for index in look.on_view]

    def _way(self, index: int, look: Look) -> list[Line]:
        option, is_chosen = self.options[index], index == look.chosen
        cut_mark = look.glyphs.cut
        title = (
            Span("  "),
            Span(f"{index + 1}  ", "accent/b" if is_chosen else "quiet"),
            Span(cut(option.title, look.width - 5, cut_mark), "strong" if is_chosen else "ink"),
        )
        about = plain("     " + cut(option.about, look.width - 5, cut_mark), "quiet")
        return [Line(title), about]


class StartOptions(RowList):
    """The list of ways to begin, of which one is chosen."""

    LETTERS = True
    GAP = 1

    model: StartModel

    class Typed(Message):
        """Text was typed, which is no key of the list."""

    def __init__(self) -> None:
        super().__init__(StartModel(), most=len(ways(None)))
        self._letters = LetterRun(self, self._typed)

    def show(self, servers: tuple[LocalServer, ...]) -> None:
        """Show the servers that were found on this machine."""
        self.model.options = ways(servers)
        self.refresh()

    def _typed(self, _: str) -> None:
        self.post_message(self.Typed())

    @on(events.Key)
    async def _pressed(self, event: events.Key) -> None:
        """Choose a way by its digit, if that was pressed alone: it may also be a character of a key that was pasted."""
        letters, letter = self._letters, event.character if event.is_printable else None
        if not letter or event.key.startswith(CHORDS):
            letters.cancel()
            return
        if letters.is_pending and not letters.follows(event.time):
            await letters.flush()
        index = row_of_digit(letter, len(self.model))
        moves = index is None and letter in "jk"
        act = None if index is None else partial(self._pick, index)
        if not letters.add(letter, event.time, act, moves=moves):
            return
        event.stop()
        event.prevent_default()
        if not letters.DEBOUNCE_S:
            await letters.flush()

    def _pick(self, index: int, _: int) -> None:
        self.select(index)
        self.post_message(self.Picked(self))


class Greeting(Words):
    """Text above and below the list; without any, the drawing of a line through time."""

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the rows of the text, or of the drawing."""
        return super().lay_out(width) if self.has_text else drawing(glyphs_of(self))


def drawing(glyphs: Glyphs) -> Sequence[Line]:
    """Return the drawing: a line through time with a fold in it."""
    rule, turn = Span(glyphs.rule * 3, "rule"), Span(glyphs.turn, "accent")
    upper = turn, rule, turn, rule, Span(glyphs.dmail, "dmail"), rule, turn
    lower = (
        Span("    "),
        Span(glyphs.corner_bottom + glyphs.rule, "rule"),
        Span(glyphs.lost, "lost"),
        Span(glyphs.rule + glyphs.foot, "dmail"),
    )
    return Line(upper), Line(lower)


class WelcomeScreen(Screen[None]):
    """Asks which model to use.

    Args:
        launch: the launch of the program.
        words: the reason why the given server or its model cannot be used; empty for none.

    Without `words` it lists the parts of the configuration that could not be used, which may be the reason why it asks.
    """

    SHEETS = sheets("rows", "model_setup")
    CSS_PATH = SHEETS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Quit", show=False),
    ]

    def __init__(self, launch: Launch, words: str = "") -> None:
        super().__init__()
        self._launch = launch
        self._words = words
        self._trouble = words or "\n".join(launch.notices[:MOST_NOTICES])
        self._ways = StartOptions()
        self._typed: KeyForm | None = None
        """The contents of the fields when the user came back from them."""
        self._servers: tuple[LocalServer, ...] | None = None

    def compose(self) -> ComposeResult:
        """Compose the greeting, the options, and the place where the choice is saved."""
        saved = f"Your choice is saved in {short(self._launch.config_path)}, readable by you alone."
        yield Container(
            Greeting(widget_id="drawing"),
            Greeting(
                plain("Welcome to kimi-tui", "strong"),
                plain("Work with a coding agent, and go back whenever you like."),
            ),
            Greeting(
                plain("Which model should the agent use?", "strong"), BLANK, widget_id="question"
            ),
            *(
                (Words(plain(clean(self._trouble), "warn"), widget_id="trouble"),)
                * bool(self._trouble)
            ),
            self._ways,
            Greeting(plain(saved, "quiet")),
            id="welcome",
        )
        yield Footer()

    def on_mount(self) -> None:
        """Search for servers on this machine, once the first frame is drawn."""
        glyphs = glyphs_of(self)
        arrows = f"{glyphs.up}{glyphs.down}"
        footer = self.query_one(Footer)
        footer.hints = (
            ("Enter or 1 to 3", "choose"),
            (arrows, "move"),
            ("Esc", "quit"),
        )
        self._ways.focus()
        self._fit(app_of(self).size)
        self.call_after_refresh(self.set_timer, LOOK_DELAY_S, self._look)
        if not self._words and self._server_url:
            self._paste_a_key(self._server_url)

    @property
    def _server_url(self) -> str:
        """The base URL of the server that was given and needs further input."""
        choice = self._launch.choice
        needs_more = self._words or isinstance(choice, NeedsChoice) or not choice.model
        return choice.base_url if needs_more else ""

    def on_resize(self, event: events.Resize) -> None:
        """Hide the drawing on small screens."""
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        self.set_class(size.height < 30, "-short")
        self.set_class(size.height < (28 if self._trouble else 22), "-low")

    def _look(self) -> None:
        work = reported(self, self._find_servers, self._unfound)
        self.run_worker(work, name="look for local servers")

    async def _find_servers(self) -> None:
        async for servers in local_servers():
            self._servers = servers
            self._ways.show(servers)

    def _unfound(self, words: str) -> None:
        """Handle an error of the search: the screen of local servers can search again."""
        del words
        self._servers = ()
        self._ways.show(())

    @on(StartOptions.Picked)
    def _way_picked(self) -> None:
        chosen = self._ways.state.chosen
        if chosen == 0:
            self._paste_a_key(self._server_url if self._words else "")
        elif chosen == 1:
            self._use_local()
        else:
            self.post_message(
                SessionChosen(
                    self._launch._replace(demo=True, mode="ask", sandbox=False, picks=False)
                )
            )

    def takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are a pasted text, and no digits that choose."""
        return len(text) > 1 and not set(text) <= set("jk")

    def on_paste(self, event: events.Paste) -> None:
        """Pass a pasted key or address to the screen that asks for it; say of anything else that it is neither."""
        from kimi_tui.tui.model_setup.screens import can_be_taken

        event.stop()
        if can_be_taken(event.text):
            url = self._server_url if self._words else ""
            self._paste_a_key(url, pasted=(event.text, event.time))
        else:
            self.query_one(Footer).urgent = PASTED_OTHER

    @on(StartOptions.Typed)
    def _typed_text(self) -> None:
        self.query_one(Footer).urgent = TYPED_OTHER

    @on(StartOptions.Moved)
    def _moved(self) -> None:
        # The user has read the words about a paste.
        self.query_one(Footer).urgent = ""

    def _paste_a_key(self, base_url: str, *, pasted: tuple[str, float] | None = None) -> None:
        from kimi_tui.tui.model_setup.screens import KeyScreen

        screen = KeyScreen(self._launch, base_url, self._typed, pasted=pasted)
        push_once(self, screen, self._key_answered)

    def _key_answered(self, answer: Launch | KeyForm | None) -> None:
        if isinstance(answer, Launch):
            self._begin(answer)
        else:
            self._typed = answer

    def _use_local(self) -> None:
        from kimi_tui.tui.model_setup.screens import LocalScreen

        push_once(self, LocalScreen(self._launch, self._servers or ()), self._begin)

    def _begin(self, launch: Launch | None) -> None:
        if launch is not None and isinstance(launch.choice, ModelChoice):
            self.post_message(SessionChosen(launch))

    def action_leave(self) -> None:
        """Quit."""
        self.post_message(QuitChosen())
