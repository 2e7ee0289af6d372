"""The approval in the place of the prompt: the question, all of what will happen, and the answers.

No answer is selected beforehand. A letter answers at once, Enter only after the arrows have chosen a row, and yes only
after the end of what will run was on the screen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from kimi_tui.tui.approval.answered import ApprovalAnswered
from kimi_tui.tui.approval.drawing import (
    SIDES,
    answer_rows,
    detail_row,
    place_rows,
    question_rows,
    way_row,
)
from kimi_tui.tui.approval.model import (
    FIELDS,
    Choice,
    DetailRow,
    QuietKeyboard,
    Writing,
    choices,
    detail_rows,
    said_instead,
)
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.letter.area import LetterArea

if TYPE_CHECKING:
    from kimi_tui.wire.events import ApprovalRequest

DETAIL_ROWS = 12
OTHER_ROWS = 13
"""Rows that a small screen keeps for all but the detail."""
REASON_ROWS = 3
UNDER_FIELD = 3
"""Rows between the field and the panel's end: what can be done, and air above it."""
TALL = 30


class ApprovalPanel(Widget, can_focus=True):
    """One request for approval.

    Args:
        request: what is asked.
        last_key_at: monotonic time of the last key pressed anywhere.
    """

    waiting: reactive[int] = reactive(1)
    """How many requests wait, this one among them."""

    def __init__(self, request: ApprovalRequest, last_key_at: float) -> None:
        super().__init__()
        self.request = request
        self._choices = choices(request)
        self._quiet = QuietKeyboard(time.monotonic(), last_key_at)
        self._chosen: int | None = None
        self._top = 0
        self._seen_end = False
        self._asked_early = False
        self._rows: tuple[DetailRow, ...] = ()
        self._rows_width = 0
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
        """The field wraps its text in another width."""
        self.call_after_refresh(self._place_field)

    @property
    def armed(self) -> bool:
        """Whether a key would count now."""
        return self._quiet.remaining_s(time.monotonic()) == 0.0

    @property
    def hints(self) -> tuple[tuple[str, str], ...]:
        """What the footer says meanwhile."""
        glyphs = glyphs_of(app_of(self))
        if self._writing is not None:
            return (("Enter", "send"), ("Shift+Enter", "new line"), ("Esc", "back"))
        keys = "/".join(choice.key for choice in self._choices)
        scroll = () if self._shows_all else ((f"PageDown{glyphs.down}", "read on"),)
        return (
            (keys, "answer"),
            (f"{glyphs.up}{glyphs.down} Enter", "choose"),
            *scroll,
            ("Esc", "stop the turn"),
        )

    # --- keys and clicks

    async def on_key(self, event: events.Key) -> None:
        """Answer, choose or scroll; Esc is left to the screen, which stops the turn."""
        if self._field.has_focus:
            if event.key == "escape":
                event.stop()
                self._leave_field()
            return
        if event.key in ("escape", "ctrl+c", "ctrl+q", "shift+tab", "f1"):
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
        elif event.key in ("up", "down"):
            self._choose(-1 if event.key == "up" else 1)
        elif event.key in ("pageup", "pagedown", "home", "end", "ctrl+up", "ctrl+down"):
            self._scroll(event.key)

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
        self._scroll("ctrl+down", 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Read back."""
        event.stop()
        self._scroll("ctrl+up", 3)

    def _decide(self, choice: Choice) -> None:
        match choice.then:
            case "why" | "instead":
                self._write(choice.then)
            case "no":
                self.post_message(ApprovalAnswered(self.request.id, "no"))
            case answer if self._seen_end:
                self.post_message(ApprovalAnswered(self.request.id, answer))
            case _:
                self._asked_early = True
                self.refresh(layout=True)

    def _choose(self, step: int) -> None:
        last = len(self._choices) - 1
        if self._chosen is None:
            self._chosen = 0 if step > 0 else last
        else:
            self._chosen = min(last, max(0, self._chosen + step))
        self.refresh()

    def _scroll(self, key: str, rows: int = 1) -> None:
        page = self._window - 1
        step = {
            "pageup": -page,
            "pagedown": page,
            "home": -len(self._rows),
            "end": len(self._rows),
            "ctrl+up": -rows,
            "ctrl+down": rows,
        }[key]
        self._top = max(0, min(self._top + step, len(self._rows) - self._window))
        self.refresh()

    def _await_quiet(self) -> None:
        remaining_s = self._quiet.remaining_s(time.monotonic())
        if remaining_s > 0:
            self.set_timer(remaining_s + 0.01, self._await_quiet)
        self.refresh()

    # --- what is written before an answer

    def _write(self, what: Writing) -> None:
        self._writing = what
        self._field.placeholder = FIELDS[what].placeholder
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

    @property
    def _room(self) -> int:
        """Rows that the longest part may have."""
        return min(DETAIL_ROWS, max(2, app_of(self).size.height - OTHER_ROWS))

    @property
    def _window(self) -> int:
        """Rows of the detail that are shown at once."""
        return min(len(self._rows), self._room)

    @property
    def _shows_all(self) -> bool:
        return self._window >= len(self._rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are to show."""
        return len(self._lines(width))

    def render(self) -> Content:
        """All rows, the accent down their edge."""
        lines = self._lines(self.size.width)
        if self._writing is None and self._top + self._window >= len(self._rows):
            self._seen_end = True
        edge = Content.styled(glyphs_of(app_of(self)).edge, "$accent")
        lines += [Content("")] * (self.size.height - len(lines))
        return Content("\n").join(edge + line for line in lines)

    def _lines(self, width: int) -> list[Content]:
        """The rows without their edge; notes what a click on each of them does."""
        glyphs = glyphs_of(app_of(self))
        if width != self._rows_width:
            self._rows_width = width
            self._rows = detail_rows(self.request, max(10, width - SIDES - 3), glyphs)
        tall = self._is_tall
        self._clicks.clear()
        lines = [Content("")] if tall else []
        lines += question_rows(self.request, self.waiting, width, glyphs)
        lines.append(Content(""))
        if self._writing != "instead":
            lines += self._detail(width)
        if self._writing is not None:
            self._add_field(lines, self._writing, tall=tall)
            return lines
        lines += place_rows(self.request, width)
        lines.append(Content(""))
        for index, choice in enumerate(self._choices):
            rows = answer_rows(choice, width, chosen=index == self._chosen, armed=self.armed)
            for row in rows:
                self._clicks[len(lines)] = lambda choice=choice: self._decide(choice)
                lines.append(row)
        return [*lines, Content("")] if tall else lines

    def _detail(self, width: int) -> list[Content]:
        shown = self._rows[self._top : self._top + self._window]
        lines = [detail_row(row, width) for row in shown]
        if not self._shows_all:
            last = self._top + len(shown)
            words = f"   rows {self._top + 1} to {last} of {len(self._rows)}"
            style = "$ink-quiet"
            if self._asked_early and not self._seen_end:
                words, style = f"{words}; read to the end first: PageDown", "bold $warn"
            lines.append(Content.styled(words, style))
        return lines

    def _add_field(self, lines: list[Content], writing: Writing, *, tall: bool) -> None:
        """Room for the field, and under it what sends it and what does not."""
        if writing == "why":
            lines.append(Content(""))
        lines += [Content("")] * (self._field_rows(writing) + 1)
        for key, words, act in (
            ("Enter", FIELDS[writing].verb, self._hand_over),
            ("Esc", "Back to the answers", self._leave_field),
        ):
            self._clicks[len(lines)] = act
            lines.append(way_row(key, words))
        if tall:
            lines.append(Content(""))

    def _field_rows(self, writing: Writing) -> int:
        most = REASON_ROWS if writing == "why" else self._room
        least = 1 if writing == "why" else min(3, most)
        return max(least, min(most, self._field.wrapped_document.height))

    def _place_field(self) -> None:
        """The field lies over the rows that are left free for it."""
        if self._writing is not None:
            self._field.styles.height = self._field_rows(self._writing)
            self._field.styles.margin = (0, 2, UNDER_FIELD + self._is_tall, 4)
            self.refresh(layout=True)
