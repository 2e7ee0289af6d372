"""The dialog that starts futures: how many, with which messages and models, and what they cost at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.futures.values import FuturesPlan, NoFutures
from kimi_tui.tools.credentials import words_of_keys
from kimi_tui.tui import formatting
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import wrap_words
from kimi_tui.tui.frame import Hint, hint_row
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.frame_rows import SHORT_BELOW, roomiest
from kimi_tui.tui.futures.form import COUNTS, FieldName, FuturesForm, estimate_rows
from kimi_tui.tui.glyphs import ASCII, glyphs_of
from kimi_tui.tui.key_names import newline_keys
from kimi_tui.tui.keyboard import TOO_EARLY, AskingScreen, FormField
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.row_list import PaintedRows, Words, plain
from kimi_tui.tui.rows import Line, Span, cells
from kimi_tui.tui.screens import app_of, sheets
from kimi_tui.tui.scrollbar import use_thin_scrollbar
from kimi_tui.tui.terminal_input import has_extended_keys
from kimi_tui.tui.textual_patches.app import keymap_of

if TYPE_CHECKING:
    from kimi_tui.futures.values import Estimate
    from kimi_tui.tui.prompt.image_chips import ImageChips

Estimating = Callable[[FuturesPlan], Awaitable["Estimate"]]
"""Computes what a plan costs; raises `NoFutures` for one that cannot be carried out."""
FRAME_CELLS = 8
"""Cells of the frame and its padding."""
AROUND, AROUND_SHORT = 9, 4
"""Rows of the frame, the status and the keys, on a high and on a low screen."""
_BESIDE = 16
"""Cells of a row beside the text of a field: its label and paddings."""
NARROW_BELOW = 40
"""Columns of a screen below which a label is above its field: beside it, a field would have no cell left for its value."""
WAIT_S = 0.3
"""Seconds without a change after which the cost is computed again."""
_LABELS: dict[FieldName, str] = {
    "count": "Futures",
    "same-message": "Message",
    "message": "",
    "same-model": "Model",
    "model": "",
    "check": "Check",
    "network": "Network",
    "limit": "Limit",
}
_OF_PLAN: dict[str, FieldName] = {
    "variants": "count",
    "message": "message",
    "model": "model",
    "check": "check",
    "caps": "limit",
}
"""The field of the dialog for each part of a plan that may be wrong."""
_CHECK = "Optional: a command that checks each future, such as make test (exit code 0: passed)"
_CHECK_SHORT = "Optional: a command (exit code 0: passed)"
_CHECK_SHORTEST = "Optional: a command"
_SAME, _EACH = "the same for all", "one for each"


class ImageReader(Protocol):
    """Reads pasted images for a field, and puts chips into its text; see `ImageInput`."""

    def read_path(self, written: str, pasted: str) -> None:
        """Replace a pasted path by chips if it is that of images."""
        ...

    def read_clipboard(self, written: str) -> None:
        """Replace a placeholder by the content of the clipboard."""
        ...

    def reads_for(self, text: str) -> bool:
        """Return whether images are being read."""
        ...

    async def settled(self, text: str) -> str:
        """Wait until they are read."""
        ...


ReadImages = Callable[[Callable[[str, str], bool], Callable[..., object]], ImageReader]
"""Makes a reader of images: of what replaces a piece of text in a field, and of what says that an image cannot be read."""


class ChoiceField(PaintedRows, FormField, can_focus=True):
    """A value that Left and Right change.

    Args:
        name: the field.
        at: the index of its future.
    """

    LEAVES = FormField.LEAVES | {"left", "right", "space"}

    class Turned(Message):
        """The value is to be the next one (1) or the one before (-1)."""

        def __init__(self, field: ChoiceField, step: int) -> None:
            super().__init__()
            self.field = field
            self.step = step

    class Digit(Message):
        """A digit was typed."""

        def __init__(self, field: ChoiceField, digit: int) -> None:
            super().__init__()
            self.field = field
            self.digit = digit

    def __init__(self, name: FieldName, at: int = 0) -> None:
        super().__init__()
        self.field: FieldName = name
        self.at = at
        self._words = self._note = ""

    def show(self, words: str, note: str = "") -> None:
        """Show a value, and a note behind it."""
        if (words, note) != (self._words, self._note):
            self._words, self._note = words, note
            self.refresh()

    def lay_out(self, width: int) -> Sequence[Line]:
        """Return the row: the value between the signs of the arrows while it has the keys."""
        glyphs = glyphs_of(self)
        left, right = (glyphs.back, glyphs.to) if self.has_focus else (" ", " ")
        words = formatting.cut(one_line(self._words), max(4, width - 5), glyphs.cut)
        spans = [
            Span(f"{left} ", "accent"),
            Span(words, "strong" if self.has_focus else "ink"),
            Span(f" {right}", "accent"),
        ]
        room = width - sum(cells(span.text) for span in spans) - 3
        if self._note and room >= cells(self._note):
            spans.append(Span(f"   {self._note}", "quiet"))
        return [Line(tuple(spans))]

    def on_focus(self) -> None:
        """Show the signs of the arrows."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide the signs of the arrows."""
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        """Change the value."""
        if event.key in ("left", "right", "space"):
            self.post_message(self.Turned(self, -1 if event.key == "left" else 1))
        elif event.character in frozenset("0123456789"):
            self.post_message(self.Digit(self, int(event.character or "0")))
        else:
            return
        event.stop()
        event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        """Change the value: to the one before if its left sign is clicked."""
        event.prevent_default()
        self.focus()
        at = event.get_content_offset(self)
        self.post_message(self.Turned(self, -1 if at is not None and at.x < 2 else 1))


class FormArea(PromptArea, FormField):
    """A text of the dialog. Up in its first line, and Down in its last one, lead to the next field.

    Args:
        name: the field.
        at: the index of its future.
        placeholder: what it shows while it is empty.
        masks_keys: whether API keys are masked.
        images: the images behind chips; None in a field that takes none.
    """

    class Passed(Message):
        """The next field (1), or the one before (-1), is to have the keys."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(
        self,
        name: FieldName,
        at: int = 0,
        *,
        placeholder: str = "",
        masks_keys: bool = False,
        images: ImageChips | None = None,
    ) -> None:
        super().__init__(
            placeholder=placeholder, is_answer=True, masks_keys=masks_keys, images=images
        )
        self.field: FieldName = name
        self.at = at

    def action_earlier(self) -> None:
        """Move the cursor a line up; from the first line, leave the field."""
        if self.cursor_location[0] > 0 or self._is_wrapped_above():
            self.action_cursor_up()
        else:
            self.post_message(self.Passed(-1))

    def action_later(self) -> None:
        """Move the cursor a line down; from the last line, leave the field."""
        is_last = self.cursor_location[0] == self.document.line_count - 1
        if not is_last or self._is_wrapped_below():
            self.action_cursor_down()
        else:
            self.post_message(self.Passed(1))


class FormScroll(VerticalScroll, can_focus=False, inherit_bindings=False):
    """The fields and the cost, which scroll where they need more rows than there are.

    It has no keys: those of its base class would scroll where Up and Down are to lead to another field.
    """

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the rows of the content beside the scrollbar.

        The base class counts the rows at the full width, with the gutter of the scrollbar: a text that needs one more row without it would
        always scroll.
        """
        return super().get_content_height(container, viewport, width - self.scrollbar_size_vertical)


class FuturesDialog(ModalScreen[FuturesPlan | None], AskingScreen[FuturesPlan | None]):
    """Asks how futures are to begin. Its result is the plan, or None if it was closed.

    Enter starts only a plan whose cost is on the screen.

    Args:
        form: the initial contents of the fields.
        estimate: computes what a plan costs.
        title: the title in the frame.
        model: the name of the model in use.
        has_message: whether the checkpoint has a message, which is used where none is written.
        images: the images behind chips in messages; None if messages take none. `reads` makes what reads pasted ones.
    """

    IS_EXPECTED = True
    CSS_PATH = [*sheets("rows", "futures")]  # noqa: RUF012 - Textual declares it so
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False),
        Binding("down", "go(1)", "Next field", show=False),
        Binding("up", "go(-1)", "Field before", show=False),
        Binding("tab", "go(1)", "Next field", show=False),
        Binding("shift+tab", "go(-1)", "Field before", show=False, priority=True),
        Binding("enter", "start", "Start", show=False),
        Binding("pageup", "page(-1)", "Scroll", show=False),
        Binding("pagedown", "page(1)", "Scroll", show=False),
    ]

    def __init__(
        self,
        form: FuturesForm,
        estimate: Estimating,
        *,
        title: str,
        model: str = "",
        has_message: bool = True,
        images: ImageChips | None = None,
        reads: ReadImages | None = None,
    ) -> None:
        super().__init__()
        self._form = form
        self._estimate = estimate
        self._title = title
        self._model = model
        empty = (
            "If empty, the message of this checkpoint is sent again"
            if has_message
            else "What should the agent do?"
        )
        most = range(COUNTS[-1])
        self._fields: dict[tuple[FieldName, int], ChoiceField | FormArea] = {}
        for name in ("count", "same-message"):
            self._fields[name, 0] = ChoiceField(name)
        for at in most:
            self._fields["message", at] = FormArea("message", at, placeholder=empty, images=images)
        self._fields["same-model", 0] = ChoiceField("same-model")
        for at in most:
            self._fields["model", at] = ChoiceField("model", at)
        self._fields["check", 0] = FormArea("check", placeholder=_CHECK, masks_keys=True)
        self._fields["network", 0] = ChoiceField("network")
        self._fields["limit", 0] = FormArea("limit")
        self._rows: dict[tuple[FieldName, int], Horizontal] = {}
        self._labels: dict[tuple[FieldName, int], Words] = {}
        self._said = ""
        self._cost = Words(widget_id="cost")
        self._status = Words(widget_id="outcome")
        self._keys = Words()
        self._scroll = FormScroll(id="futures-form")
        self._images = None if reads is None else reads(self._exchange, self._tell)
        self._computed: object = None
        """The plan for which the cost on the screen was computed; None while there is none."""

    def compose(self) -> ComposeResult:
        """Return the fields above the cost, the status and the keys."""
        use_thin_scrollbar(self._scroll, glyphs_of(self))
        with Vertical(id="futures-frame") as frame:
            frame.border_title = frame_label(self, self._title)
            frame.set_class(glyphs_of(self) is ASCII, "-ascii")
            with self._scroll:
                for key, field in self._fields.items():
                    label = self._labels[key] = Words(classes="label")
                    row = self._rows[key] = Horizontal(label, field, classes="row")
                    yield row
                yield self._cost
            yield self._status
            yield self._keys

    def on_mount(self) -> None:
        """Fill the fields, and compute the cost."""
        form = self._form
        for at, text in enumerate(form.messages):
            self._area("message", at).put(text)
        self._area("check").put(form.check)
        self._area("limit").put(form.limit)
        self._show()
        self._name_keys()
        self._cost.show(plain("Estimating the cost…", "quiet"))
        self._area("message").focus()
        # Textual would not see that its rows are more than those of the first layout if they came before that.
        self.call_after_refresh(self._compute_soon, 0.0)

    def on_resize(self) -> None:
        """Show the keys that fit; what does not fit above them scrolls."""
        height = app_of(self).size.height
        is_short = height < SHORT_BELOW
        self.set_class(is_short, "-short")
        self.set_class(app_of(self).size.width < NARROW_BELOW, "-narrow")
        self._fit()
        checks = (_CHECK, _CHECK_SHORT, _CHECK_SHORTEST)
        self._area("check").placeholder = next(
            (one for one in checks if self._width > cells(one) + _BESIDE), _CHECK_SHORTEST
        )
        limit = f"Optional, for each: 200k (tokens), {self._form.currency}0.50, 10 min or 20 steps"
        self._area("limit").placeholder = (
            limit if self._width > cells(limit) + _BESIDE else "Optional: 200k tokens, 10 min"
        )
        self._name_keys()
        self.call_after_refresh(self._name_keys)  # what scrolls is known then

    def _fit(self) -> None:
        """Leave the rows to the fields that the status and the keys do not need."""
        height = app_of(self).size.height
        around = AROUND_SHORT if height < SHORT_BELOW else AROUND
        said = wrap_words(self._said, max(10, self._width))
        self._scroll.styles.max_height = max(4, height - around - max(0, min(3, len(said)) - 1))

    @property
    def _width(self) -> int:
        return min(92, app_of(self).size.width * 96 // 100) - FRAME_CELLS

    @property
    def scrolls(self) -> bool:
        """Whether a part of the form is out of view."""
        return self._scroll.max_scroll_y > 0

    def _name_keys(self) -> None:
        glyphs = glyphs_of(self)
        breaks = newline_keys(keymap_of(app_of(self)), extended=has_extended_keys(self))
        line_break = ((breaks[0], "new line"),) if breaks else ()
        start: Hint = ("Enter", "start")
        change: Hint = (f"{glyphs.back}{glyphs.to}", "change")
        # Nobody should start what they could not know to be below.
        more = (("PageDown", "scroll"),) if self.scrolls else ()
        wordings: list[tuple[Hint, ...]] = [
            (start, ("Tab", "next field"), change, *more, *line_break, ("Esc", "cancel")),
            (start, ("Tab", "next field"), change, *more, ("Esc", "cancel")),
            (start, ("Tab", "next"), *more, ("Esc", "cancel")),
            (start, *more, ("Esc", "cancel")),
        ]
        self._keys.show(hint_row(roomiest(wordings, self._width), self._width))

    def _area(self, name: FieldName, at: int = 0) -> FormArea:
        found = self._fields[name, at]
        assert isinstance(found, FormArea)
        return found

    # --- fields

    def _show(self) -> None:
        """Show the fields for the present choices."""
        form, shown = self._form, set(self._form.fields())
        for key, row in self._rows.items():
            row.display = key in shown
            name, at = key
            is_several = name in ("message", "model") and (name, 1) in shown
            label = f"  {at + 1}" if is_several else _LABELS[name]
            self._labels[key].show(plain(label, "quiet"))
            self._labels[key].set_class(not label, "-empty")
        values: dict[FieldName, tuple[str, str]] = {
            "count": (str(form.count), f"{COUNTS[0]} to {COUNTS[-1]}"),
            "same-message": (_SAME if form.has_one_message else _EACH, ""),
            "same-model": (_SAME if form.has_one_model else _EACH, ""),
            "network": ("on" if form.has_network else "off", "only for the check"),
        }
        for (name, at), field in self._fields.items():
            if isinstance(field, ChoiceField):
                if name == "model":
                    chosen = form.models[form.chosen[at] % len(form.models)]
                    field.show(chosen or self._model, "" if chosen else "current model")
                else:
                    field.show(*values[name])

    @on(ChoiceField.Turned)
    def _turned(self, event: ChoiceField.Turned) -> None:
        self._form.turn(event.field.field, event.field.at, event.step)
        self._changed()

    @on(ChoiceField.Digit)
    def _digit(self, event: ChoiceField.Digit) -> None:
        if event.field.field != "count":
            return
        if event.digit in COUNTS:
            self._form.count = event.digit
            self._changed()
        else:
            self._say(
                f"The number of futures must be from {COUNTS[0]} to {COUNTS[-1]}, not {event.digit}.",
                "warn",
            )

    @on(PromptArea.Changed)
    def _written(self, event: PromptArea.Changed) -> None:
        area = event.text_area
        if not isinstance(area, FormArea):
            return
        form = self._form
        had_check = bool(form.check.strip())
        if area.field == "message":
            form.messages[area.at] = area.text
        elif area.field == "check":
            form.check = area.text
        else:
            form.limit = area.text
        self._say("")
        if had_check != bool(form.check.strip()):
            self._show()
        # The cost does not depend on the words of a message, but without one there is none.
        if area.field != "message" or self._computed is None:
            self._compute_soon()

    def _changed(self) -> None:
        self._say("")
        self._show()
        self._compute_soon()

    # --- focus

    def _shown(self) -> list[Widget]:
        return [self._fields[key] for key in self._form.fields()]

    def action_go(self, step: int) -> None:
        """Focus the next field, or the one before."""
        shown = self._shown()
        focused = self.focused
        at = shown.index(focused) if focused in shown else 0
        shown[(at + step) % len(shown)].focus()

    @on(FormArea.Passed)
    def _passed(self, event: FormArea.Passed) -> None:
        self.action_go(event.step)

    @on(PromptArea.TabPressed)
    def _tab_pressed(self, event: PromptArea.TabPressed) -> None:
        event.stop()
        self.action_go(1)

    @on(PromptArea.Paged)
    def _paged(self, event: PromptArea.Paged) -> None:
        event.stop()
        self.action_page(event.direction)

    @on(PromptArea.ExitPressed)
    def _exit_pressed(self, event: PromptArea.ExitPressed) -> None:
        """Ctrl+C closes the dialog, as everywhere."""
        event.stop()
        self.dismiss(None)

    def action_page(self, step: int) -> None:
        """Scroll by a page."""
        page = max(1, self._scroll.size.height - 1)
        self._scroll.scroll_relative(y=step * page, animate=False)

    def action_cancel(self) -> None:
        """Close the dialog."""
        self.dismiss(None)

    # --- cost

    def compute_again(self) -> None:
        """Compute the cost anew: the agent has stopped working, or began to."""
        if self.is_mounted:
            self._say("")
            self._compute_soon()

    def _compute_soon(self, wait_s: float = WAIT_S) -> None:
        """Compute the cost once nothing has changed for so many seconds."""
        self._computed = None
        work = reported(self, partial(self._compute, wait_s))
        self.run_worker(work, group="estimate", exclusive=True)

    async def _compute(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        try:
            plan = self._form.plan()
            found = await self._estimate(plan)
        except NoFutures as no:
            self._refuse(no, focus=False)
            return
        self._show_cost(found, plan)

    def _show_cost(self, found: Estimate, plan: FuturesPlan) -> None:
        self._cost.show(*estimate_rows(found, plan, self._form.currency))
        self._computed = _priced(plan)
        self.call_after_refresh(self._name_keys)

    def _refuse(self, no: NoFutures, *, focus: bool) -> None:
        name = _OF_PLAN.get(no.field)
        if self._computed is None:
            self._cost.show(plain("The cost is not known yet.", "quiet"))
        if not focus and name == "message":
            return  # it is being written
        self._say(str(no), "error")
        key = next((key for key in self._form.fields() if key[0] == name), None)
        if focus and key is not None:
            if name == "message":
                empty = (
                    at for at in range(self._form.count) if not self._form.messages[at].strip()
                )
                key = ("message", next(empty, 0)) if not self._form.has_one_message else key
            self._fields[key].focus()

    def _say(self, words: str, style: str = "quiet") -> None:
        self._said = clean(words)
        self._status.show(*([plain(self._said, style)] if words else []))
        self._fit()

    # --- images

    @on(PromptArea.PathPasted)
    def _path_pasted(self, event: PromptArea.PathPasted) -> None:
        event.stop()
        if self._images is not None:
            self._images.read_path(event.written, event.pasted)

    @on(PromptArea.ClipboardPressed)
    def _clipboard_pressed(self, event: PromptArea.ClipboardPressed) -> None:
        event.stop()
        if self._images is not None:
            self._images.read_clipboard(event.written)

    def _exchange(self, written: str, text: str) -> bool:
        return any(self._area("message", at).exchange(written, text) for at in range(COUNTS[-1]))

    def _tell(self, words: str, *, level: str = "") -> None:
        self._say(words, "warn" if level else "quiet")

    # --- start

    @on(PromptArea.Sent)
    def _sent(self, event: PromptArea.Sent) -> None:
        event.stop()
        area = self.focused
        self._start(area.key_at if isinstance(area, FormArea) else 0.0)

    def on_key(self, event: events.Key) -> None:
        """Start by Enter on a choice, too."""
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._start(event.time)

    def _start(self, at: float) -> None:
        if not self.seen.accepts(at):
            self._say(f"{TOO_EARLY.capitalize()}.", "warn")
            return
        form = self._form
        if words_of_keys("\n".join([form.check, form.limit])):
            self._say(
                "This text looks like an API key and was not accepted, because it would be stored and shown.",
                "error",
            )
            return
        self.run_worker(reported(self, self._start_checked), group="start", exclusive=True)

    async def _start_checked(self) -> None:
        if self._images is not None and self._images.reads_for(""):
            await self._images.settled("")
            for at in range(COUNTS[-1]):
                self._form.messages[at] = self._area("message", at).text
        try:
            plan = self._form.plan()
            found = await self._estimate(plan)
        except NoFutures as no:
            self._refuse(no, focus=True)
            return
        if self._computed != _priced(plan):
            # Nobody starts what they could not see the cost of.
            words = "The cost is shown now" if self._computed is None else "The cost has changed"
            self._show_cost(found, plan)
            self._say(f"{words}. Press Enter again to start.", "warn")
            return
        self.dismiss(plan)


def _priced(plan: FuturesPlan) -> object:
    """Return the part of a plan that its cost depends on."""
    models = tuple((one.model, one.thinking) for one in plan.variants)
    return models, plan.caps, plan.check, plan.network
