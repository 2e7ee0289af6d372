"""The approval in the place of the prompt: the question, all of what will happen, and the answers.

No answer is selected beforehand. A letter answers at once, Enter only after the arrows have chosen a row, and yes only
after the end of what will run was on the screen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from kimi_tui.foreign_text import clean
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.approval.answered import ApprovalAnswered, ApprovalKeysChanged
from kimi_tui.tui.approval.beside import Beside
from kimi_tui.tui.approval.detail import Detail
from kimi_tui.tui.approval.drawing import (
    SIDES,
    answer_rows,
    detail_row,
    key_hints,
    way_row,
)
from kimi_tui.tui.approval.model import (
    Choice,
    QuietKeyboard,
    Writing,
    choices,
    field_of,
    may_be_changed,
    said_instead,
)
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.letter.area import LetterArea
from kimi_tui.tui.main.commands import key_of, keys_of

if TYPE_CHECKING:
    from kimi_tui.wire.events import ApprovalRequest

REASON_ROWS = 3
UNDER_FIELD = 3
"""Rows between the field and the panel's end: what can be done, and air above it."""
TALL = 30
CHANGE_KEY = "ctrl+g"
PASSED = ("mode", "help", "quit")
"""Commands whose keys are left to the screen."""


class ApprovalPanel(Widget, can_focus=True):
    """One request for approval.

    Args:
        request: what is asked.
        last_key_at: monotonic time of the last key pressed anywhere.
        keys: those of the configuration, by command.
    """

    waiting: reactive[int] = reactive(1)
    """How many requests wait, this one among them."""

    def __init__(
        self, request: ApprovalRequest, last_key_at: float, keys: Mapping[str, str]
    ) -> None:
        super().__init__()
        self.request = request
        self._keys = keys
        self._passed = [key for name in PASSED for key in keys_of(name, keys)]
        self._choices = choices(request)
        self._quiet = QuietKeyboard(time.monotonic(), last_key_at)
        self._chosen: int | None = None
        self._detail = Detail(request)
        self._asked_early = False
        self._clicks: dict[int, Callable[[], None]] = {}
        self._writing: Writing | None = None
        self._written: dict[Writing, str] = {"instead": request.detail}
        self._field = LetterArea()
        self._field.display = False

    def compose(self) -> ComposeResult:
        """The field for what is written; all else is drawn."""
        yield self._field

    def on_mount(self) -> None:
        """Take the keys; show when they begin to count."""
        self.focus()
        self._await_quiet()

    def on_resize(self) -> None:
        """The field wraps its text in another width, and more or fewer rows may be shown."""
        self.call_after_refresh(self._place_field)
        self.post_message(ApprovalKeysChanged())

    @property
    def armed(self) -> bool:
        """Whether a key would count now."""
        return self._quiet.remaining_s(time.monotonic()) == 0.0

    @property
    def hints(self) -> tuple[tuple[str, str], ...]:
        """What the footer says meanwhile."""
        glyphs = glyphs_of(app_of(self))
        if self._writing is not None:
            does = field_of(self.request, self._writing).short
            return (("Enter", does), ("Shift+Enter", "new line"), ("Esc", "back"))
        return key_hints(
            self._choices,
            glyphs,
            can_change=may_be_changed(self.request),
            mode_key=key_of("mode", self._keys),
            reads_on=not self._detail.shows_all,
            tab_words=self._detail.more_words,
        )

    # --- keys and clicks

    async def on_key(self, event: events.Key) -> None:
        """Answer, choose or scroll; Esc is left to the screen, which stops the turn."""
        if self._field.has_focus:
            if event.key == "escape":
                event.stop()
                self._leave_field()
            return
        if event.key in ("escape", "ctrl+c", *self._passed):
            return
        event.stop()
        event.prevent_default()
        if not self._quiet.accepts(time.monotonic()):
            self._await_quiet()
            return
        letters = {choice.key: choice for choice in self._choices}
        if event.character in letters:
            self._decide(letters[event.character])
        elif event.key == "enter" and self._chosen is not None:
            self._decide(self._choices[self._chosen])
        elif event.key == CHANGE_KEY and may_be_changed(self.request):
            if self._has_read():
                self._write("instead")
        elif event.key == "tab":
            self._detail.toggle_whole()
            self.refresh(layout=True)
            self.post_message(ApprovalKeysChanged())
        elif event.key in ("up", "down"):
            self._choose(-1 if event.key == "up" else 1)
        elif event.key in ("pageup", "pagedown", "home", "end", "ctrl+up", "ctrl+down"):
            self._detail.scroll(event.key)
            self.refresh()

    def on_click(self, event: events.Click) -> None:
        """A click on an answer gives it, under the same conditions as a key."""
        act = self._clicks.get(event.y) if event.widget is self else None
        if act is None:
            return
        event.stop()
        if self._quiet.accepts(time.monotonic()):
            act()
        else:
            self._await_quiet()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Read on."""
        event.stop()
        self._detail.scroll("ctrl+down", 3)
        self.refresh()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Read back."""
        event.stop()
        self._detail.scroll("ctrl+up", 3)
        self.refresh()

    def _decide(self, choice: Choice) -> None:
        match choice.then:
            case "why" | "instead":
                self._write(choice.then)
            case "no":
                self.post_message(ApprovalAnswered(self.request.id, "no"))
            case answer:
                if self._has_read():
                    self.post_message(ApprovalAnswered(self.request.id, answer))

    def _has_read(self) -> bool:
        """Whether all that will run was on the screen; says so where it was not."""
        if not self._detail.seen_end:
            self._asked_early = True
            self.refresh(layout=True)
        return self._detail.seen_end

    def _choose(self, step: int) -> None:
        last = len(self._choices) - 1
        if self._chosen is None:
            self._chosen = 0 if step > 0 else last
        else:
            self._chosen = min(last, max(0, self._chosen + step))
        self.refresh()

    def _await_quiet(self) -> None:
        remaining_s = self._quiet.remaining_s(time.monotonic())
        if remaining_s > 0:
            self.set_timer(remaining_s + 0.01, self._await_quiet)
        self.refresh()

    # --- what is written before an answer

    def _write(self, what: Writing) -> None:
        self._writing = what
        self._field.placeholder = field_of(self.request, what).placeholder
        self._field.put(self._written.get(what, ""))
        self._field.display = True
        self._field.focus()
        self._place_field()

    def _leave_field(self) -> None:
        """Back to the answers; what was written is kept for the next time."""
        if self._writing is not None:
            self._written[self._writing] = self._field.text
        self._writing = None
        self._field.display = False
        self.focus()
        self.refresh(layout=True)

    @on(LetterArea.Sent)
    def _sent(self, event: LetterArea.Sent) -> None:
        event.stop()
        self._hand_over()

    def _hand_over(self) -> None:
        text = clean(self._field.text).strip()
        if not text:
            return
        if self._writing == "why":
            self.post_message(ApprovalAnswered(self.request.id, "no", text))
        elif self._writing == "instead":
            instead = said_instead(self.request, text)
            self.post_message(ApprovalAnswered(self.request.id, "once", instead))

    @on(LetterArea.Changed)
    def _grown(self, event: LetterArea.Changed) -> None:
        """More or fewer rows; and no menu of commands, which a slash opens in the prompt."""
        event.stop()
        self._place_field()

    @on(LetterArea.CompletionRequested)
    @on(LetterArea.EditQueued)
    @on(LetterArea.Paged)
    def _not_the_prompt(self, event: Message) -> None:
        event.stop()

    # --- drawing

    @property
    def _is_tall(self) -> bool:
        return app_of(self).size.height >= TALL

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are to show."""
        return len(self._lines(width))

    def render(self) -> Content:
        """All rows, the accent down their edge."""
        lines = self._lines(self.size.width)
        if self._writing is None and self._detail.at_end and len(lines) < app_of(self).size.height:
            self._detail.seen_end = True
        edge = Content.styled(glyphs_of(app_of(self)).edge, "$accent")
        lines += [Content("")] * (self.size.height - len(lines))
        return Content("\n").join(edge + line for line in lines)

    def _lines(self, width: int) -> list[Content]:
        """The rows without their edge; notes what a click on each of them does."""
        glyphs = glyphs_of(app_of(self))
        tall = self._is_tall
        answers = [
            answer_rows(choice, width, chosen=index == self._chosen, armed=self.armed)
            for index, choice in enumerate(self._choices)
        ]
        beside = Beside(
            self.request,
            zip(self._choices, answers, strict=True),
            width,
            glyphs,
            waiting=self.waiting,
            tall=tall,
        )
        self._detail.fit(
            max(10, width - SIDES - 3),
            app_of(self).size.height,
            glyphs,
            beside=beside.n_rows,
            moved_here=tuple(beside.moved),
        )
        self._clicks.clear()
        lines = [Content("")] if tall else []
        lines += beside.question
        lines.append(Content(""))
        if self._writing != "instead":
            lines += self._detail_lines(width)
        if self._writing is not None:
            self._add_field(lines, self._writing, tall=tall)
            return lines
        lines += beside.place
        lines.append(Content(""))
        for choice, rows in beside.answers:
            for row in rows:
                self._clicks[len(lines)] = lambda choice=choice: self._decide(choice)
                lines.append(row)
        return [*lines, Content("")] if tall else lines

    def _detail_lines(self, width: int) -> list[Content]:
        detail = self._detail
        lines = [detail_row(row, width) for row in detail.shown]
        if not detail.shows_all:
            words, style = f"   {detail.place_words}", "$ink-quiet"
            if self._asked_early and not detail.seen_end:
                words, style = f"{words}; read to the end first: PageDown", "bold $warn"
            lines.append(Content.styled(words, style))
        return lines

    def _add_field(self, lines: list[Content], writing: Writing, *, tall: bool) -> None:
        """Room for the field, and under it what sends it and what does not."""
        if writing == "why":
            lines.append(Content(""))
        lines += [Content("")] * (self._field_rows(writing) + 1)
        for key, words, act in (
            ("Enter", field_of(self.request, writing).verb, self._hand_over),
            ("Esc", "Back to the answers", self._leave_field),
        ):
            self._clicks[len(lines)] = act
            lines.append(way_row(key, words))
        if tall:
            lines.append(Content(""))

    def _field_rows(self, writing: Writing) -> int:
        most = REASON_ROWS if writing == "why" else self._detail.room
        least = 1 if writing == "why" else min(3, most)
        return max(least, min(most, self._field.wrapped_document.height))

    def _place_field(self) -> None:
        """The field lies over the rows that are left free for it."""
        if self._writing is not None:
            self._field.styles.height = self._field_rows(self._writing)
            self._field.styles.margin = (0, 2, UNDER_FIELD + self._is_tall, 4)
            self.refresh(layout=True)
