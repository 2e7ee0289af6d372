"""A dialog over the page that asks for a text: a D-Mail, wishes for a summary, a name. The model may draft it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, Literal, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from kimi_tui.foreign_text import clean
from kimi_tui.tools.credentials import words_of_keys
from kimi_tui.tui.faults import reported
from kimi_tui.tui.frame import hint_row
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.frame_rows import SHORT_BELOW, Hint
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.key_names import newline_keys
from kimi_tui.tui.keyboard import QUIET_S, TOO_EARLY
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.row_list import Words, plain
from kimi_tui.tui.screens import AnswersOnce, app_of, sheets
from kimi_tui.tui.terminal_input import PaintWatch, has_extended_keys
from kimi_tui.tui.textual_patches.app import keymap_of

Kind = Literal["", "dmail", "compaction"]
AROUND = 8
"""Cells of the frame and its padding."""


KEY_REFUSED = (
    "This text looks like an API key and was not accepted, because it would be stored and shown."
)


class TextQuestion(NamedTuple):
    """The question of a dialog.

    Attributes:
        title: the title in the frame.
        question: the question, in strong text.
        consequence: one sentence about the effect of the text.
        text: the initial text.
        placeholder: the placeholder of the empty field.
        quote: a text that is sent along, read only.
        verb: the effect of Enter, in one word.
        kind: the kind whose colour the title has.
        may_be_empty: whether Enter works with an empty text, too.
        low: whether the field is one row high at first: it asks for a name or a value, in which keys are masked and refused.
    """

    title: str
    question: str
    consequence: str
    text: str = ""
    placeholder: str = ""
    quote: str = ""
    verb: str = "send"
    kind: Kind = ""
    may_be_empty: bool = False
    low: bool = False


def text_with_draft(written: str, draft: str) -> str:
    """Return the text after a draft came: the draft follows the text that the user wrote meanwhile, which is never lost."""
    return "\n\n".join(part for part in (written.strip(), draft.strip()) if part)


def can_send(question: TextQuestion, text: str) -> bool:
    """Return whether Enter sends the text."""
    return question.may_be_empty or bool(text.strip())


def dialog_keys(
    question: TextQuestion, *, can_draft: bool, drafting: bool, line_break: str = "Ctrl+J"
) -> tuple[Hint, ...]:
    """Return the last row: keys with their effects, the most used first; `line_break` is the key that begins a new line."""
    if drafting:
        return (("Esc", "stop the draft"),)
    # These words are short, and come before the keys of every editor: in a narrow terminal nothing else would mention them.
    draft = (("Ctrl+L", "ask for a draft"),) if can_draft else ()
    more = () if question.low or not line_break else ((line_break, "new line"),)
    return (("Enter", question.verb), *draft, *more, ("Esc", "cancel"))


class Drafting(NamedTuple):
    """The model's draft of a text: `draft` asks for it, `stop` cancels it."""

    draft: Callable[[], Awaitable[str]]
    stop: Callable[[], Awaitable[None]]


class DialogWords(Words):
    """A line of text in the box of a dialog."""


class DialogFrame(Vertical):
    """The box in the middle of a text dialog."""


class TextDialog(ModalScreen[str | None], AnswersOnce[str | None]):
    """A dialog that asks for a text. Its result is the text, or None if it was cancelled.

    Args:
        question: the question.
        drafting: the model's draft; None if it cannot write one.
        refusal: returns the reason why a text cannot be sent, empty if it can; None if every text can.

    Attributes:
        area: the field.
    """

    QUIET_S: ClassVar[float] = QUIET_S
    """Seconds in which typed letters may be the rest of a word whose first letter opened this dialog; Enter is not meant for
    the dialog then.
    """
    CSS_PATH = [*sheets("rows", "text_dialog")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="dmail.cancel", show=False),
        Binding("ctrl+l", "draft", "Draft", id="dmail.draft", show=False, priority=True),
    ]

    def __init__(
        self,
        question: TextQuestion,
        drafting: Drafting | None = None,
        refusal: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self._question = question
        self._refusal = refusal
        self._drafting = drafting
        self._is_drafting = False
        self._paint = PaintWatch(self, self._shown)
        self._waits_since = float("inf")
        """The monotonic time since which it is visible, or of the newest Enter that came too early; infinite before it is visible."""
        self._is_doubtful = False
        """Whether text was typed before anyone could have read the question: Enter must be pressed twice then."""
        self.area = PromptArea(
            placeholder=question.placeholder, is_answer=True, masks_keys=question.low
        )
        self._status = DialogWords()
        self._keys = DialogWords()

    @property
    def subject(self) -> object:
        """The title."""
        return self._question.title

    def compose(self) -> ComposeResult:
        """Return the frame."""
        question = self._question
        app = app_of(self)
        self.set_class(app.size.height < SHORT_BELOW, "-short")
        self.area.set_class(question.low, "-low")
        parts = [DialogWords(plain(clean(question.question), "strong"))]
        if question.consequence:
            parts.append(DialogWords(plain(question.consequence, "quiet")))
        if question.quote:
            quote = plain(clean(question.quote), "quiet")
            parts.append(DialogWords(quote, widget_id="dialog-quote"))
        frame = DialogFrame(*parts, self.area, self._status, self._keys)
        frame.border_title = frame_label(app, question.title)
        frame.set_class(glyphs_of(app) is ASCII, "-ascii")
        if question.kind:
            frame.add_class(f"-{question.kind}")
        self._status.display = False
        yield frame

    def on_mount(self) -> None:
        """Put the initial text into the field."""
        self.area.put(self._question.text)
        self.area.focus()
        self._show_keys()
        self._paint.begin()

    def _shown(self) -> None:
        self._waits_since = self._paint.seen_at

    def ignore_early_keys(self) -> None:
        """Ignore keys that were pressed before the dialog is on the terminal again."""
        self._waits_since = float("inf")
        self._paint.begin()

    @property
    def _comes_early(self) -> bool:
        """Whether the newest key was read before anyone could have read the question; only time travel waits so."""
        if not self._question.kind:
            return False
        return self.area.key_at - self._waits_since < self.QUIET_S

    @on(PromptArea.Changed)
    def _written(self) -> None:
        if self._comes_early:
            self._is_doubtful = self.area.text != self._question.text

    def on_resize(self) -> None:
        """Show the keys that fit."""
        self.set_class(app_of(self).size.height < SHORT_BELOW, "-short")
        self._show_keys()

    def _show_keys(self) -> None:
        bound = keymap_of(app_of(self))
        keys = dialog_keys(
            self._question,
            can_draft=self._drafting is not None,
            drafting=self._is_drafting,
            line_break=next(iter(newline_keys(bound, extended=has_extended_keys(self))), ""),
        )
        width = min(88, app_of(self).size.width * 96 // 100) - AROUND
        self._keys.show(hint_row(keys, width))

    def _say(self, words: str, style: str) -> None:
        self._status.display = bool(words)
        self._status.show(plain(clean(words), style))

    @on(PromptArea.Sent)
    def _sent(self, event: PromptArea.Sent) -> None:
        event.stop()
        if self._is_drafting:
            return
        if self._comes_early or self._is_doubtful:
            again = f"Press Enter again to {self._question.verb} this text."
            self._say(again if self._is_doubtful else f"{TOO_EARLY.capitalize()}.", "warn")
            self._is_doubtful = False
            # An Enter that is held down does not answer either; one from before the dialog was visible starts no wait.
            self._waits_since = max(self._waits_since, self.area.key_at)
        elif self._question.low and words_of_keys(event.text):
            self._say(KEY_REFUSED, "error")
        elif self._refusal is not None and (why := self._refusal(event.text.strip())):
            self._say(why, "error")
        elif can_send(self._question, event.text):
            self.dismiss(event.text.strip())
        else:
            self._say("The text is empty.", "quiet")

    def action_cancel(self) -> None:
        """Stop the draft, or close the dialog."""
        if self._is_drafting and self._drafting is not None:
            self.run_worker(reported(self, self._drafting.stop))
        else:
            self.dismiss(None)

    def action_draft(self) -> None:
        """Let the model write a draft."""
        if self._drafting is None or self._is_drafting:
            return
        self._is_drafting = True
        # The draft begins after the letters typed before the key, which wait for the field, as the key overtakes them.
        self.area.call_later(self._begin_draft, self._drafting)

    def _begin_draft(self, drafting: Drafting) -> None:
        self.area.read_only = True
        self._say("The model is writing a draft.", "quiet")
        self._show_keys()
        work = reported(self, partial(self._draft, drafting), self._show_outcome)
        self.run_worker(work, name="draft")

    async def _draft(self, drafting: Drafting) -> None:
        from kimi_tui.llm.errors import LLMError
        from kimi_tui.soul.errors import SoulBusy, SoulError

        draft = words = ""
        try:
            draft = await drafting.draft()
        except (LLMError, SoulError, SoulBusy) as error:
            words = str(error)
        except KeyError as error:
            words = str(error.args[0]) if error.args else str(error)
        finally:
            self._is_drafting = False
            self.area.read_only = False
        if draft:
            self.area.put(text_with_draft(self.area.text, draft))
        self._show_outcome(words)

    def _show_outcome(self, words: str) -> None:
        """Accept keys again, and say what kept the model from writing a draft; nothing for no error."""
        self._say(words, "error")
        self._show_keys()
        self.area.focus()
