"""The approval in the place of the prompt: the question, all of what will happen, and the answers.

No answer is selected beforehand. A letter answers at once, Enter only after the arrows have chosen a row, and yes only
after the end of what will run was on the screen.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from kimi_tui.foreign_text import clean
from kimi_tui.tui.app_of import app_of
from kimi_tui.tui.approval.answered import ApprovalAnswered
from kimi_tui.tui.approval.model import (
    Choice,
    DetailRow,
    QuietKeyboard,
    choices,
    counts,
    detail_rows,
    visible,
    wrapped,
)
from kimi_tui.tui.glyphs import glyphs_of

if TYPE_CHECKING:
    from kimi_tui.wire.events import ApprovalRequest

DETAIL_ROWS = 12
OTHER_ROWS = 13
"""Rows that a small screen keeps for all but the detail."""
INDENT = 6
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
        self._choice_at: dict[int, int] = {}
        self._why = Input(placeholder="Why not, and what to do instead", compact=True)
        self._why.cursor_blink = False
        self._why.display = False

    def compose(self) -> ComposeResult:
        """The field for the reason; all else is drawn."""
        yield self._why

    def on_mount(self) -> None:
        """Take the keys; show when they begin to count."""
        self.focus()
        self._await_quiet()

    @property
    def armed(self) -> bool:
        """Whether a key would count now."""
        return self._quiet.remaining_s(time.monotonic()) == 0.0

    @property
    def hints(self) -> tuple[tuple[str, str], ...]:
        """What the footer says meanwhile."""
        glyphs = glyphs_of(app_of(self))
        if self._why.display:
            return (("Enter", "send"), ("Esc", "back"))
        keys = "/".join(choice.key for choice in self._choices)
        scroll = () if self._shows_all else ((f"PageDown{glyphs.down}", "read on"),)
        return (
            (keys, "answer"),
            (f"{glyphs.up}{glyphs.down}", "choose"),
            ("Enter", "answer so"),
            *scroll,
            ("Esc", "stop the turn"),
        )

    # --- keys

    async def on_key(self, event: events.Key) -> None:
        """Answer, choose or scroll; Esc is left to the screen, which stops the turn."""
        if self._why.has_focus:
            if event.key == "escape":
                event.stop()
                self._hide_why()
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
        index = self._choice_at.get(event.y)
        if index is None or self._why.display:
            return
        event.stop()
        if self._quiet.accepts(time.monotonic()):
            self._decide(self._choices[index])
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

    @on(Input.Submitted)
    def _why_given(self, event: Input.Submitted) -> None:
        event.stop()
        reason = clean(event.value).strip()
        if reason:
            self.post_message(ApprovalAnswered(self.request.id, "no", reason))

    def _decide(self, choice: Choice) -> None:
        if choice.answer is None:
            self._why.display = True
            self._why.focus()
            self.refresh(layout=True)
        elif choice.answer != "no" and not self._seen_end:
            self._asked_early = True
            self.refresh(layout=True)
        else:
            self.post_message(ApprovalAnswered(self.request.id, choice.answer))

    def _hide_why(self) -> None:
        self._why.display = False
        self.focus()
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

    # --- drawing

    @property
    def _window(self) -> int:
        """Rows of the detail that are shown at once."""
        room = max(2, app_of(self).size.height - OTHER_ROWS)
        return min(len(self._rows), DETAIL_ROWS, room)

    @property
    def _shows_all(self) -> bool:
        return self._window >= len(self._rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are to show."""
        return len(self._lines(width)) + (2 if self._why.display else 0)

    def render(self) -> Content:
        """All rows, the accent down their edge."""
        lines = self._lines(self.size.width)
        if self._top + self._window >= len(self._rows):
            self._seen_end = True
        edge = Content.styled(glyphs_of(app_of(self)).edge, "$accent")
        lines += [Content("")] * (self.size.height - len(lines))
        return Content("\n").join(edge + line for line in lines)

    def _lines(self, width: int) -> list[Content]:
        """The rows without their edge."""
        if width != self._rows_width:
            self._rows_width = width
            self._rows = detail_rows(
                self.request, max(10, width - INDENT - 3), glyphs_of(app_of(self))
            )
        tall = app_of(self).size.height >= TALL
        lines = [Content("")] if tall else []
        lines += self._question(width)
        lines.append(Content(""))
        shown = self._rows[self._top : self._top + self._window]
        lines += [self._detail(row, width) for row in shown]
        if not self._shows_all:
            last = self._top + len(shown)
            words = f"   rows {self._top + 1} to {last} of {len(self._rows)}"
            style = "$ink-quiet"
            if self._asked_early and not self._seen_end:
                words, style = f"{words}; read to the end first: PageDown", "bold $warn"
            lines.append(Content.styled(words, style))
        if self.request.where:
            where = wrapped(visible(self.request.where).replace("\n", " "), max(10, width - 6))
            lines += [Content.styled(f"   {line}", "$ink-quiet") for line in where]
        lines.append(Content(""))
        for index, choice in enumerate(self._choices):
            for line in self._choice(index, choice, width):
                self._choice_at[len(lines)] = index
                lines.append(line)
        if tall:
            lines.append(Content(""))
        return lines

    def _question(self, width: int) -> list[Content]:
        right: list[tuple[str, str] | str] = []
        changed = counts(self.request)
        if changed is not None:
            added, removed = changed
            minus = glyphs_of(app_of(self)).minus
            right += [(f"+{added}", "$ok"), " ", (f"{minus}{removed}", "$kind-error")]
        if self.waiting > 1:
            right += ["   " if right else "", (f"1 of {self.waiting}", "$ink-quiet")]
        side = Content.assemble(*right)
        room = max(10, width - 6 - side.cell_length - 2)
        question = visible(self.request.question).replace("\n", " ")
        pieces = wrapped(question, room)
        # A diff does not say where it goes; the rest of the question does, and is never cut.
        target = visible(self.request.detail).replace("\n", " ") if changed is not None else ""
        beside = (
            target
            if len(pieces) == 1 and cell_len(pieces[0]) + 2 + cell_len(target) <= room
            else ""
        )
        named = ("  ", (beside, "$ink")) if beside else ()
        first = Content.assemble("   ", (pieces[0], "bold $ink-strong"), *named)
        gap = " " * max(1, width - 1 - 2 - first.cell_length - side.cell_length)
        rest = [Content.assemble("   ", (piece, "bold $ink-strong")) for piece in pieces[1:]]
        if target and not beside:
            rest += [
                Content.assemble("   ", (piece, "$ink")) for piece in wrapped(target, width - 6)
            ]
        return [Content.assemble(first, gap, side), *rest]

    def _detail(self, row: DetailRow, width: int) -> Content:
        room = width - 1 - 3 - 2
        text = f"{row.margin}{row.text}"
        padded = "  " + text + " " * max(0, room - 2 - cell_len(text))
        if row.kind == "add":
            style = "$diff-add-fg on $diff-add-bg"
        elif row.kind == "delete":
            style = "$diff-del-fg on $diff-del-bg"
        elif row.kind == "path":
            style = "bold $ink-strong"
        else:
            style = "$ink on $page"
        return Content.assemble("   ", (padded, style))

    def _choice(self, index: int, choice: Choice, width: int) -> list[Content]:
        chosen = index == self._chosen
        back = " on $select" if chosen else ""
        key = f"bold $accent{back}" if self.armed else f"$ink-quiet{back}"
        words = f"bold $ink-strong{back}" if chosen else f"$ink{back}"
        lines: list[Content] = []
        for number, piece in enumerate(wrapped(choice.words, max(10, width - 9))):
            letter = choice.key if not number else " "
            row = Content.assemble((f"   {letter}  "[1:], key), (piece, words))
            fill = " " * max(0, width - 1 - 1 - 2 - row.cell_length)
            lines.append(Content.assemble(" ", row, (fill, f"$ink{back}")))
        return lines
