"""The editor over the page: takes what the person writes, or lets the model draft it, and answers with the text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from kimi_tui.foreign_text import clean
from kimi_tui.tui.answering import AnswersOnce
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.letter.area import LetterArea
from kimi_tui.tui.letter.model import Letter, can_send, keys, with_draft
from kimi_tui.tui.main.footer import fit
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.styles import sheets

SHORT_BELOW = 30
AROUND = 8
"""Cells of the frame and the air in it."""


class Drafting(NamedTuple):
    """How the model drafts a letter: `draft` asks it, `stop` ends that before its time."""

    draft: Callable[[], Awaitable[str]]
    stop: Callable[[], Awaitable[None]]


class LetterWords(Static):
    """A row of words in the frame."""


class LetterFrame(Vertical):
    """The frame."""


class LetterScreen(ModalScreen[str | None], AnswersOnce[str | None]):
    """Asks for a text. Answers with it, or None for staying where we are.

    Args:
        letter: what is asked for.
        drafting: how the model drafts it; None where it cannot.
    """

    CSS_PATH = [*sheets("letter")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="letter.cancel", show=False),
        Binding("ctrl+l", "draft", "Draft", id="letter.draft", show=False, priority=True),
    ]

    def __init__(self, letter: Letter, drafting: Drafting | None = None) -> None:
        super().__init__()
        self._letter = letter
        self._drafting = drafting
        self._is_drafting = False
        self._area = LetterArea(placeholder=letter.placeholder)
        self._status = LetterWords()
        self._keys = LetterWords()

    @property
    def area(self) -> LetterArea:
        """Where the person writes."""
        return self._area

    def compose(self) -> ComposeResult:
        """The frame."""
        letter = self._letter
        app = app_of(self)
        self.set_class(app.size.height < SHORT_BELOW, "-short")
        self._area.set_class(letter.low, "-low")
        parts = [LetterWords(Content.styled(clean(letter.question), "bold $ink-strong"))]
        if letter.consequence:
            parts.append(LetterWords(Content.styled(letter.consequence, "$ink-quiet")))
        if letter.quote:
            quote = Content.styled(clean(letter.quote), "$ink-quiet")
            parts.append(LetterWords(quote, id="letter-quote"))
        frame = LetterFrame(*parts, self._area, self._status, self._keys)
        frame.border_title = Content(letter.title)
        frame.set_class(glyphs_of(app) is ASCII, "-ascii")
        if letter.kind:
            frame.add_class(f"-{letter.kind}")
        self._status.display = False
        yield frame

    def on_mount(self) -> None:
        """Put in what stands there at first."""
        self._area.put(self._letter.text)
        self._area.focus()
        self._show_keys()

    def on_resize(self) -> None:
        """Other keys have room."""
        self.set_class(app_of(self).size.height < SHORT_BELOW, "-short")
        self._show_keys()

    def _show_keys(self) -> None:
        pairs = keys(self._letter, can_draft=self._drafting is not None, drafting=self._is_drafting)
        width = min(88, app_of(self).size.width * 96 // 100) - AROUND
        parts: list[tuple[str, str] | str] = []
        for key, meaning in fit(pairs, width):
            parts += ["   " if parts else "", (key, "$ink"), " ", (meaning, "$ink-quiet")]
        self._keys.update(Content.assemble(*parts))

    def _say(self, words: str, style: str) -> None:
        self._status.display = bool(words)
        self._status.update(Content.styled(clean(words), style))

    @on(PromptArea.Sent)
    def _sent(self, event: PromptArea.Sent) -> None:
        event.stop()
        if self._is_drafting:
            return
        if can_send(self._letter, event.text):
            self.dismiss(event.text.strip())
        else:
            self._say("There is nothing to send yet.", "$ink-quiet")

    def action_cancel(self) -> None:
        """Stop the draft, or stay where we are."""
        if self._is_drafting and self._drafting is not None:
            self.run_worker(self._drafting.stop(), exit_on_error=False)
        else:
            self.dismiss(None)

    def action_draft(self) -> None:
        """Let the model write a draft."""
        if self._drafting is None or self._is_drafting:
            return
        self._is_drafting = True
        self._area.read_only = True
        self._say("The model is writing a draft.", "$ink-quiet")
        self._show_keys()
        self.run_worker(self._draft(self._drafting), name="draft a letter")

    async def _draft(self, drafting: Drafting) -> None:
        from kimi_tui.llm.errors import LLMError
        from kimi_tui.soul.errors import SoulError
        from kimi_tui.soul.protocol import SoulBusy

        words = ""
        try:
            draft = await drafting.draft()
        except (LLMError, SoulError, SoulBusy) as error:
            draft, words = "", str(error)
        except KeyError as error:
            draft, words = "", str(error.args[0]) if error.args else str(error)
        finally:
            self._is_drafting = False
            self._area.read_only = False
        if draft:
            self._area.put(with_draft(self._area.text, draft))
        self._say(words, "$kind-error")
        self._show_keys()
        self._area.focus()
