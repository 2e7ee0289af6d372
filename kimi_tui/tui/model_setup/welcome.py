"""The welcome screen, shown at the start where no model is configured: three ways to choose one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from kimi_tui.app_paths import short
from kimi_tui.config.model_choice import Choice, NeedsChoice
from kimi_tui.foreign_text import clean
from kimi_tui.launch import Launch
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import counted
from kimi_tui.tui.frame import Footer
from kimi_tui.tui.glyphs import Glyphs, glyphs_of
from kimi_tui.tui.model_setup.models import local_servers, where
from kimi_tui.tui.screens import QuitChosen, SessionChosen, app_of, push_once, sheets

if TYPE_CHECKING:
    from kimi_tui.llm.models import LocalServer
    from kimi_tui.tui.model_setup.screens import KeyForm

LOOK_DELAY_S = 0.15
PASTED_OTHER = "What was pasted is neither a key nor an address."
MOST_NOTICES = 3
"""How many lines about the configuration there is room for."""


@dataclass(frozen=True, slots=True)
class StartOption:
    """A way to begin, with one quiet line about it."""

    title: str
    about: str


def ways(servers: tuple[LocalServer, ...] | None) -> tuple[StartOption, ...]:
    """The three ways; `servers` is None while they are looked for."""
    if servers is None:
        local = "looking for Ollama, llama.cpp, LM Studio and vLLM"
    elif not servers:
        local = "none found of Ollama, llama.cpp, LM Studio, vLLM"
    elif loading := [server for server in servers if server.loading]:
        others = tuple(server for server in servers if not server.loading)
        found = f"found: {_found(others)}; " if others else ""
        local = f"{found}{where(loading[0])} is loading its model"
    else:
        local = f"found: {_found(servers)}"
    return (
        StartOption("Paste a key", "Kimi, OpenAI, Anthropic, Gemini, OpenRouter, others"),
        StartOption("Use a local server", local),
        StartOption("Watch the demo", "two minutes, no key, no network"),
    )


def _found(servers: tuple[LocalServer, ...]) -> str:
    """One server with its port; of several the names alone, so that all of them fit into the line."""
    first, *others = servers
    names = ", ".join(server.name for server in servers) if others else where(first)
    count = sum(len(server.models) for server in servers)
    return f"{names}; {counted(count, 'model')}"


class StartOptions(Widget, can_focus=True):
    """The list of ways to begin, of which one is chosen."""

    @dataclass
    class Chosen(Message):
        """Enter, a digit or a click on a way."""

        index: int

    class Moved(Message):
        """Another way is chosen, but not begun."""

    def __init__(self) -> None:
        super().__init__()
        self._ways = ways(None)
        self._chosen = 0

    def show(self, servers: tuple[LocalServer, ...]) -> None:
        """Tell what was found on this machine."""
        self._ways = ways(servers)
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Two rows a way, and a blank one between."""
        return 3 * len(self._ways) - 1

    def render(self) -> Content:
        """The rows; the chosen way has the accent."""
        glyphs = glyphs_of(self)
        width = self.content_size.width
        lines: list[Content] = []
        for index, way in enumerate(self._ways):
            is_chosen = index == self._chosen
            back = " on $select" if is_chosen else ""
            edge = glyphs.edge if is_chosen else " "
            title = "bold $ink-strong" if is_chosen else "$ink"
            number = "bold $accent" if is_chosen else "$ink-quiet"
            rows = (
                Content.assemble(
                    (f"{edge} ", f"$accent{back}"),
                    (f"{index + 1}  ", f"{number}{back}"),
                    (way.title, f"{title}{back}"),
                ),
                Content.assemble(
                    (f"{edge}    ", f"$accent{back}"), (way.about, f"$ink-quiet{back}")
                ),
            )
            for row in rows:
                shown = row.truncate(width, ellipsis=True)
                fill = " " * max(0, width - shown.cell_length)
                lines.append(Content.assemble(shown, (fill, f"$ink{back}")))
            lines.append(Content(""))
        return Content("\n").join(lines[:-1])

    def on_key(self, event: events.Key) -> None:
        """Arrows choose, Enter and digits begin."""
        if event.key in ("up", "down", "k", "j"):
            step = 1 if event.key in ("down", "j") else -1
            self._chosen = max(0, min(len(self._ways) - 1, self._chosen + step))
            self.refresh()
            self.post_message(self.Moved())
        elif event.key == "enter":
            self.post_message(self.Chosen(self._chosen))
        elif event.character in ("1", "2", "3"):
            self._chosen = int(event.character) - 1
            self.refresh()
            self.post_message(self.Chosen(self._chosen))
        else:
            return
        event.stop()

    def on_click(self, event: events.Click) -> None:
        """Choose the option that was clicked."""
        index, row = divmod(event.y, 3)
        if row < 2 and index < len(self._ways):
            self._chosen = index
            self.refresh()
            self.post_message(self.Chosen(index))


class Greeting(Widget):
    """Words above and below the list; without any, the drawing of a line through time."""

    def __init__(self, words: tuple[tuple[str, str], ...] = (), *, widget_id: str = "") -> None:
        super().__init__(id=widget_id or None)
        self._words = words

    def render(self) -> Content:
        """The rows."""
        lines = [Content.styled(text, style) for text, style in self._words]
        lines = lines or drawing(glyphs_of(self))
        return Content("\n").join(lines)


def drawing(glyphs: Glyphs) -> list[Content]:
    """A line through time with a fold in it."""
    rule = (glyphs.rule * 3, "$line-strong")
    turn = (glyphs.turn, "$accent")
    upper = Content.assemble(turn, rule, turn, rule, (glyphs.dmail, "$kind-dmail"), rule, turn)
    lower = Content.assemble(
        "    ",
        (glyphs.corner_bottom + glyphs.rule, "$line-strong"),
        (glyphs.lost, "$kind-lost"),
        (glyphs.rule + glyphs.foot, "$kind-dmail"),
    )
    return [upper, lower]


class WelcomeScreen(Screen[None]):
    """Asks which model shall be used.

    Args:
        launch: how the program was started.
        words: why the server that was named cannot be asked, or nothing.

    Without `words` it says what of the configuration could not be used, which may be why it asks.
    """

    SHEETS = sheets("model_setup")
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
        """What stood in the fields when the user came back from them."""
        self._servers: tuple[LocalServer, ...] | None = None

    def compose(self) -> ComposeResult:
        """The greeting, the options, and where the choice is saved."""
        saved = f"Saved in {short(self._launch.config_path)}, readable by you alone."
        yield Container(
            Greeting(widget_id="drawing"),
            Greeting(
                (
                    ("Welcome to kimi-tui", "bold $ink-strong"),
                    ("Work with a coding agent, and go back whenever you like.", "$ink"),
                )
            ),
            Greeting(
                (("Which model shall it use?", "bold $ink-strong"), ("", "$ink")),
                widget_id="question",
            ),
            *((Static(clean(self._trouble), id="trouble", markup=False),) * bool(self._trouble)),
            self._ways,
            Greeting(((saved, "$ink-quiet"),)),
            id="welcome",
        )
        yield Footer()

    def on_mount(self) -> None:
        """Look for servers on this machine, once the first picture stands."""
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
        """The server that was named, of which something is still missing."""
        choice = self._launch.choice
        return choice.base_url if isinstance(choice, NeedsChoice) or not choice.model else ""

    def on_resize(self, event: events.Resize) -> None:
        """Small screens do without the drawing."""
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
        """Looking for them failed: the screen of local servers can look again."""
        del words
        self._servers = ()
        self._ways.show(())

    async def on_start_options_chosen(self, event: StartOptions.Chosen) -> None:
        """Go the chosen way."""
        if event.index == 0:
            self._paste_a_key(self._server_url if self._words else "")
        elif event.index == 1:
            self._use_local()
        else:
            self.post_message(
                SessionChosen(
                    self._launch._replace(demo=True, mode="ask", sandbox=False, picks=False)
                )
            )

    def on_paste(self, event: events.Paste) -> None:
        """A key or an address goes to the screen that asks for it; anything else is said to be none."""
        from kimi_tui.tui.model_setup.screens import can_be_taken

        event.stop()
        if can_be_taken(event.text):
            url = self._server_url if self._words else ""
            self._paste_a_key(url, pasted=(event.text, event.time))
        else:
            self.query_one(Footer).urgent = PASTED_OTHER

    def on_start_options_moved(self) -> None:
        """What was said of a paste is read."""
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
        if launch is not None and isinstance(launch.choice, Choice):
            self.post_message(SessionChosen(launch))

    def action_leave(self) -> None:
        """Quit."""
        self.post_message(QuitChosen())
