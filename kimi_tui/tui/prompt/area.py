"""`PromptArea`, the text field of the prompt: sending, history, completion, chips for long pastes and images, vim keys.

It knows nothing of the agent: it posts messages about the user's actions, and the screen acts on them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from rich.text import Text
from textual import events, on
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kimi_tui.tui.api_key_mask import ApiKeyMask
from kimi_tui.tui.formatting import counted, grapheme_after, grapheme_before
from kimi_tui.tui.key_sequences import CHORDS
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.textual_patches.compositor import DrawsColumns
from kimi_tui.tui.textual_patches.widgets import LateStyled, PatchedTextArea
from kimi_tui.tui.transcript.transcript import copy_selection

if TYPE_CHECKING:
    from textual.widgets.text_area import EditResult, Location, TextAreaTheme

    from kimi_tui.tui.prompt.completion import Offered, PromptCompletion, Written
    from kimi_tui.tui.prompt.history import PromptHistory
    from kimi_tui.tui.prompt.image_chips import ImageChips
    from kimi_tui.tui.prompt.menu import CommandMenu, MenuOffer
    from kimi_tui.tui.prompt.vim import Mode, VimKeys

HELD_S = 0.7
KEYS_SIGN = "?"
KEYS_AFTER_S = 0.25
"""Seconds without another key after which a `?` in the empty field asks for the keys, and does not begin a message."""
LONG_PASTE = 20
"""A paste of more lines than this is shown in the field as a chip."""
_BEHIND_PATH = ("#", ":")
"""Characters that begin the line numbers of a file, directly after its path."""
WITH_PASTE_S = 0.05
"""Seconds after a paste in which an Enter counts as part of the paste."""
MOST_SENT = 50
"""The largest number of sent messages with chips whose full texts are remembered."""
LONGEST = 50_000
"""A longer text is put into the field as a chip: drawing a million characters would take many seconds."""
NEWLINE_KEYS = (
    "shift+enter,alt+enter,ctrl+j,ctrl+enter,alt+shift+enter,ctrl+shift+enter,alt+ctrl+enter,"
    "alt+ctrl+shift+enter"
)


class Draft(NamedTuple):
    """The text of the field, and the texts behind its chips."""

    text: str = ""
    pastes: Mapping[str, str] = MappingProxyType({})


def _line_count(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def chip_of(text: str, number: int = 1) -> str:
    """Return the chip of a pasted text: `[Pasted 12 lines]`; `number` tells apart those of the same length."""
    further = f", {number}" if number > 1 else ""
    return f"[Pasted {counted(_line_count(text), 'line')}{further}]"


READING = "[reading the clipboard]"
"""The placeholder in the field while the clipboard is being read."""
IMAGE_ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".gif", ".webp"),
    *(".heic", ".heif", ".avif", ".tif", ".tiff", ".bmp"),  # no model takes these
)
_LONGEST_PATHS = 8_000


def may_be_path(text: str) -> bool:
    """Return whether a text may be the path of an image, as terminals write it for a dragged file; the file's contents decide."""
    if len(text) > _LONGEST_PATHS:
        return False
    from kimi_tui.foreign_text import without_invisible

    return without_invisible(text).rstrip().rstrip("'\"").lower().endswith(IMAGE_ENDINGS)


@lru_cache(maxsize=32)
def _tokens_of(pasted: str) -> int:
    from kimi_tui.llm.tokens import text_tokens

    return text_tokens(pasted)


class PromptArea(LateStyled, DrawsColumns, PatchedTextArea):
    """The text field of the prompt.

    Args:
        placeholder: the text shown while the field is empty.
        is_answer: whether it is the field of a question: a long paste is shown in full, and Enter leaves the text in the
            field until the question is closed.
        masks_keys: whether API keys are masked in any text, and not only in the argument of a command.
        images: the images behind chips; None in a field that takes none.
        completion: the completion menu, which gets Enter, Tab and the arrows first; None in a field without completion.

    Attributes:
        past: the history of sent messages; None until it is loaded.
        images, completion: as above.
        key_at: the monotonic time at which the newest key was read.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", id="send", show=False),
        Binding(NEWLINE_KEYS, "newline", "New line", id="newline", show=False),
        Binding("up", "earlier", "Earlier", id="history-back", show=False),
        Binding("down", "later", "Later", id="history-forward", show=False),
        Binding("ctrl+c", "copy_or_leave", "Copy, stop or quit", id="interrupt", show=False),
        Binding("pageup", "page(-1)", "Scroll up", id="page-up", show=False),
        Binding("pagedown", "page(1)", "Scroll down", id="page-down", show=False),
        Binding("tab", "complete", "Complete", id="complete", show=False),
        # The key is bound here and not only by the screen, because the text typed directly after it is the search text.
        Binding("ctrl+r", "screen.command('history')", "History", id="history", show=False),
        Binding("ctrl+d", "delete_or_leave", "Delete, or quit", id="delete-or-quit", show=False),
        # A text area would undo with this key; here it suspends, as in every other program.
        Binding("ctrl+z", "screen.command('suspend')", "Suspend", id="suspend", show=False),
        Binding("ctrl+underscore,ctrl+minus,super+z", "undo", "Undo", id="undo-typing", show=False),
        # A text area would delete a word with this key.
        Binding("ctrl+f", "screen.command('search')", "Search", id="search", show=False),
        # These keys are as in readline: Ctrl+Y inserts the deleted text elsewhere; a text area would redo with it.
        Binding("ctrl+k", "kill_line_right", "Cut to the end of the line", show=False),
        Binding("ctrl+u,super+backspace", "kill_line_left", "Cut to its beginning", show=False),
        Binding(
            "ctrl+w,alt+backspace,ctrl+backspace",
            "kill_word_left",
            "Cut the word before",
            show=False,
        ),
        Binding("alt+d,alt+delete,ctrl+delete", "kill_word_right", "Cut the word", show=False),
        Binding("ctrl+y", "yank", "Put back what was cut", show=False),
        Binding("ctrl+v", "paste_clipboard", "Paste an image or text", id="paste", show=False),
        Binding("alt+e,ctrl+shift+z,super+y", "redo", "Redo", show=False),
        Binding("alt+b,alt+left", "cursor_word_left", "Word before", show=False),
        Binding("alt+f,alt+right", "cursor_word_right", "Next word", show=False),
    ]

    class Sent(Message):
        """Enter was pressed, and the field has been emptied.

        `text` is what was in the field, maybe empty. `chosen` is the name of the command that was chosen in the menu; empty
        for none. `pasted` is `lines` if the text begins with a paste of several lines, `now` if it begins with one line that
        was pasted so recently that the Enter was part of the paste and not pressed by the user. `at` is the monotonic time at
        which the key was read.
        """

        def __init__(
            self,
            text: str,
            chosen: str = "",
            pasted: Literal["", "lines", "now"] = "",
            at: float = float("inf"),
        ) -> None:
            super().__init__()
            self.text = text
            self.chosen = chosen
            self.pasted = pasted
            self.at = at

    class Paged(Message):
        """A page of the chat was requested: -1 up, 1 down."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    class RecallPressed(Message):
        """Up was pressed in the empty field: it asks for the last queued message, or the history."""

    class ExitPressed(Message):
        """Ctrl+C was pressed with nothing to copy, which also stops a running turn; or Ctrl+D with nothing to delete."""

        def __init__(self, key: str, *, stops: bool) -> None:
            super().__init__()
            self.key = key
            self.stops = stops

    class TabPressed(Message):
        """Tab was pressed in the field, and there is nothing to complete."""

    class PathPasted(Message):
        """A text that may be the path of an image was pasted; `written` is what the field shows for it."""

        def __init__(self, written: str, pasted: str) -> None:
            super().__init__()
            self.written = written
            self.pasted = pasted

    class ClipboardPressed(Message):
        """The key that pastes the desktop's clipboard was pressed; `written` is the placeholder in the field."""

        def __init__(self, written: str) -> None:
            super().__init__()
            self.written = written

    class ImageOpened(Message):
        """The chip of an image was opened."""

        def __init__(self, chip: str) -> None:
            super().__init__()
            self.chip = chip

    class MenuMade(Message):
        """The completion menu was created and must be mounted above the field."""

        def __init__(self, menu: CommandMenu) -> None:
            super().__init__()
            self.menu = menu

    class KeysAsked(Message):
        """`?` was typed into the empty field, and nothing after it; the field has been emptied again."""

    class OffersChanged(Message):
        """The completions or the hint above the field may have changed."""

    class ModeChanged(Message):
        """The meaning of keys has changed: by the mode of vim keys, by the offers of the menu, or because the field is empty or not."""

    def __init__(
        self,
        *,
        placeholder: str = "",
        is_answer: bool = False,
        masks_keys: bool = False,
        images: ImageChips | None = None,
        completion: PromptCompletion | None = None,
    ) -> None:
        self._masks_keys = masks_keys
        self._is_answer = is_answer
        # Textual reads the mask as soon as there is a text.
        self._key_mask = ApiKeyMask(self)
        self._styled: TextAreaTheme | None = None
        """The theme whose styles were computed last."""
        # Textual reads this as soon as there is any text, which a text area has from its beginning.
        self._room = 0
        """Cells that are left free at the end of every row."""
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=placeholder,
            tab_behavior="focus",
        )
        self.be_compact()
        # A blinking cursor alone would wake an idle program twenty times a second.
        self.cursor_blink = False
        self.key_at = 0.0
        self.past: PromptHistory | None = None
        self.images = images
        self.completion = completion
        self._before_search: Draft | None = None
        """The draft before a search of the history; None while none is running."""
        self._vim: VimKeys | None = None
        self._mode: tuple[Mode | None, str, Offered, bool] = (None, "", "", True)
        """The state that `ModeChanged` was posted for last: mode, recorded macro, what is offered, and whether the field is empty."""
        self._pastes: dict[str, str] = {}
        """The texts of pastes, by chip."""
        self._offered_end: Location | None = None
        """The location after the space of a path that was chosen, until the next key."""
        self._pasted_head = ""
        """The paste with which the text may begin; empty if nothing was pasted at its beginning."""
        self._pasted_at = 0.0
        """The monotonic time at which the newest paste was read."""
        self._sent: dict[str, Draft] = {}
        """The drafts of sent messages with long pastes, by message."""
        self._clippings: set[str] = set()
        """Placeholders for the clipboard while it is read: one for each key press, as a message sent meanwhile may hold one."""
        self._recalled = ("", "")
        """A sent message, and its text with chips in the field."""
        self._is_chord = False
        """Whether Ctrl+X was pressed, and the next key completes a chord."""
        self._deleted_at = -HELD_S
        self._killed = ""
        self._killed_where: tuple[str, Location] | None = None
        self._beside = Strip.blank(0)

    @property
    def wrap_width(self) -> int:
        """The width in which the text is wrapped."""
        return max(0, super().wrap_width - self._room)

    def show_beside(self, words: Strip, room: int) -> None:
        """Show text at the right end of the first row, such as the running clock.

        Args:
            words: the painted text; empty for none.
            room: cells that the text of the field leaves free for it.
        """
        room = room if words.cell_length else 0
        if room != self._room:
            self._room = room
            self.rewrap()
        if words != self._beside:
            width = max(words.cell_length, self._beside.cell_length)
            self._beside = words
            right = self.scrollable_content_region.width
            self.refresh(Region(max(0, right - width), 0, width, 1))

    def notify_style_update(self) -> None:
        """Forget the computed styles. Textual calls this when the colours may have changed."""
        super().notify_style_update()
        self._styled = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the rows of a region. Styles are cached: Textual would compute them again for each frame and key."""
        theme = self.styled_theme
        if self._styled is not theme:
            theme.apply_css(self)
            self._styled = theme
        if crop.height == 1 and (beside := self._beside_in(crop)) is not None:
            return [beside]
        return Widget.render_lines(self, crop)

    def _beside_in(self, crop: Region) -> Strip | None:
        """Return what stands beside the text if a part of a row has nothing else: a beat of the clock paints no text."""
        gutter, length = self.gutter, self._beside.cell_length
        left = gutter.left + max(0, self.scrollable_content_region.width - length)
        if crop.y != gutter.top or crop.x < left or crop.right > left + length:
            return None
        return self._beside.crop(crop.x - left, crop.right - left)

    def render_line(self, y: int) -> Strip:
        """Return a row of the field."""
        strip = super().render_line(y)
        if y or not self._beside.cell_length:
            return strip
        left = max(0, self.scrollable_content_region.width - self._beside.cell_length)
        return Strip.join([strip.adjust_cell_length(left, self.rich_style), self._beside])

    @property
    def _hides_keys(self) -> bool:
        """Whether API keys are masked in the present text: in commands, but not in messages."""
        return self._masks_keys or (not self._is_answer and self.document.get_line(0)[:1] == "/")

    def get_line(self, line_index: int) -> Text:
        """Return a line of the text as it is drawn."""
        line = super().get_line(line_index)
        if not self._hides_keys:
            return line
        # The word of a command is not masked.
        words = 0 if self._masks_keys or line_index else line.plain.find(" ") + 1 or len(line)
        row, column = self.selection.end
        at = column if row == line_index else len(line)
        shown = self._key_mask.masked(line.plain[words:], at - words)
        return Text(line.plain[:words] + shown, end="", no_wrap=True)

    @on(ApiKeyMask.BurstEnded)
    def _burst_ended(self, event: ApiKeyMask.BurstEnded) -> None:
        self._key_mask.settle(event.typed_at)

    @on(ApiKeyMask.Unmasked)
    def _unmasked(self) -> None:
        self.notify_style_update()  # it also drops the cached rows
        self.refresh()

    def on_resize(self) -> None:
        """Wrap the text for the new width; Textual does so only if the number of rows changes."""
        if self.text:
            self.refresh()

    def put(self, text: str) -> None:
        """Replace the text of the field, and move the cursor to its end."""
        from kimi_tui.foreign_text import clean

        # The pastes are kept, as the present draft may come back with its chips.
        text = clean(text)
        if not self._is_answer and len(text) > LONGEST:
            text = self._new_chip(text)
        self.load_text(text)
        self.move_cursor(self.document.end)

    def put_sent(self, *texts: str) -> None:
        """Replace the text of the field by messages sent before, each with its long pastes as chips, or whole as one chip."""
        shown = [self._with_chips(text) for text in texts]
        if len(texts) == 1 and texts[0] != shown[0]:
            self._recalled = (texts[0], shown[0])
        self.put("\n\n".join(shown))

    def _with_chips(self, text: str) -> str:
        if text == self.message.strip():
            return self.text.strip()
        draft = self._sent.get(text)
        if draft is None and not self._is_answer and _line_count(text) > LONG_PASTE:
            chip = next((chip for chip, kept in self._pastes.items() if kept == text), "")
            draft = Draft(chip or self._new_chip(text))
        if draft is None:
            return text
        shown = draft.text
        # The present draft may come back, so its chips keep their meaning.
        taken = {
            chip for chip, kept in draft.pastes.items() if self._pastes.get(chip, kept) != kept
        }
        self._pastes |= {chip: kept for chip, kept in draft.pastes.items() if chip not in taken}
        for chip in taken:
            kept = draft.pastes[chip]
            shown = shown.replace(chip, self._new_chip(kept))
        return shown

    def load_text(self, text: str) -> None:
        """Replace the text of the field; this cannot be undone."""
        super().load_text(text)
        if self._vim is not None:
            self._vim.replaced(self.chips)
            self.mode_changed()

    def write(self, text: str) -> None:
        """Insert a text that was typed elsewhere and is meant for the prompt; with vim keys, enter insert mode."""
        if self._vim is not None:
            self._vim.write(self.chips)
            self.mode_changed()
        self.insert(text)

    # --- vim

    def use_vim(self, *, on: bool) -> None:
        """Turn vim keys on or off."""
        if on and self._vim is None:
            from kimi_tui.tui.prompt.vim import VimKeys

            self._vim = VimKeys(self, self.chips)
        elif not on:
            self._vim = None
        self.mode_changed()

    def _takes_vim(self, event: events.Key) -> bool:
        """Return whether a key is a command of vim, and was carried out."""
        vim = self._vim
        if vim is None:
            return False
        is_choosing, is_searching = self._is_choosing, self.is_searching
        outcome = vim.handle_key(
            event, self.chips, is_choosing=is_choosing, is_searching=is_searching
        )
        if outcome == "write":
            self.write("/")  # so that `:q` does what it does in vim, and does not resume a turn
        elif outcome == "earlier":
            self.action_earlier()
            vim.follow(self.chips)
        elif outcome == "later":
            self.action_later()
            vim.follow(self.chips)
        self.mode_changed()
        return bool(outcome)

    @property
    def mode(self) -> Mode | None:
        """The mode of vim keys; None if they are off."""
        return self._vim.mode if self._vim is not None else None

    @property
    def recording(self) -> str:
        """The name of the macro of vim's keys that is being recorded; empty for none."""
        return self._vim.recording if self._vim is not None else ""

    def mode_changed(self) -> None:
        """Post `ModeChanged` if vim's mode, or what the menu offers, has changed, or the field became empty or not empty."""
        told = (self.mode, self.recording, self.offered, not self.text)
        if told != self._mode:
            self._mode = told
            self.post_message(self.ModeChanged())

    @property
    def selected_text(self) -> str:
        """The selected text; empty for none."""
        chosen = self._vim.selected_text if self._vim is not None else None
        return super().selected_text if chosen is None else chosen

    @property
    def chips(self) -> Collection[str]:
        """The texts of all chips that may be in the field."""
        images = self.images.of(self.text) if self.images is not None else ()
        return [*self._pastes, *images]

    @property
    def chip_tokens(self) -> int:
        """The estimated tokens of the pastes and images behind the chips in the field."""
        text = self.text
        if "[" not in text:  # every chip begins with this character
            return 0
        found = [self._pastes[chip] for chip in self._pastes if chip in text]
        # The text of a sent message may have chips of images.
        images = self.images.tokens_in(self.message) if self.images is not None else 0
        return images + sum(map(_tokens_of, found))

    @property
    def message(self) -> str:
        """The text of the field, with chips of pastes replaced by their texts."""
        # Chips are replaced from left to right, because a paste may contain text that looks like another chip.
        text, pieces, at = self.text, list[str](), 0
        while found := [
            (where, chip) for chip in self._pastes if (where := text.find(chip, at)) >= 0
        ]:
            where, chip = min(found)
            pieces += [text[at:where], self._pastes[chip]]
            at = where + len(chip)
        return "".join([*pieces, text[at:]])

    @property
    def draft(self) -> Draft:
        """The text that was written but not sent. A message of the history that is shown unchanged is no draft."""
        if self._before_search is not None:
            return self._before_search
        text = self.past.draft if self.past is not None and self.is_recalled else self.text
        return Draft(text, {chip: kept for chip, kept in self._pastes.items() if chip in text})

    def put_draft(self, draft: Draft) -> None:
        """Replace the text of the field by a draft with its chips."""
        self._pastes |= draft.pastes
        self.put(draft.text)

    @property
    def typed(self) -> str:
        """The current line up to the cursor."""
        row, column = self.selection.end
        return self.document.get_line(row)[:column]

    def take(self) -> str:
        """Empty the field and return its message."""
        text, draft = self.message, self.draft
        if draft.pastes and draft.text == self.text:
            # The key is the text as the history stores it.
            self._sent[text.strip()] = draft._replace(text=draft.text.strip())
            while len(self._sent) > MOST_SENT:
                del self._sent[next(iter(self._sent))]
        self._pastes.clear()
        self._pasted_head = ""
        if self._vim is not None:
            self._vim.write(self.chips)
        self.load_text("")
        if self._vim is not None:
            self.mode_changed()
        if self.past is not None:
            self.past.rewind()
        return text

    async def on_key(self, event: events.Key) -> None:
        """Carry out keys that have a meaning here; Textual writes the others."""
        # Textual reports the letter of Alt+D as its character, but it is not typed.
        is_chord = event.key.startswith(CHORDS)
        writes = event.is_printable and not is_chord
        self.key_at = event.time
        was_chord, self._is_chord = self._is_chord, False
        if was_chord and event.key == "ctrl+e":
            event.stop()
            event.prevent_default()
            await app_of(self).run_action("screen.command('editor')", self)
            return
        if event.key == "ctrl+x" and not self.selected_text:
            self._is_chord = True
            event.stop()
            event.prevent_default()
            return
        is_taken = self._takes_vim(event)
        if writes and event.character in _BEHIND_PATH and self.selection.end == self._offered_end:
            row, column = self.selection.end
            self.replace("", (row, column - 1), (row, column))
        self._offered_end = None
        if event.character == KEYS_SIGN and not (self.text or is_taken or self._is_answer):
            self.set_timer(KEYS_AFTER_S, self._ask_for_keys)
        if writes:
            self._key_mask.typed(event.character or "", event.time)
        else:
            self._key_mask.ended()
        if is_taken or self._takes_chip(event.key, writes=writes):
            event.stop()
            event.prevent_default()
            return
        bound = None if writes else self.screen.active_bindings.get(event.key)
        if bound is not None and (bound.node is self or self._acts_first(event.key)):
            # Otherwise a binding runs only after the key has bubbled up, and letters typed directly after Enter or Ctrl+U
            # would overtake it: they would become part of the sent message, or be deleted.
            event.stop()
            event.prevent_default()
            if bound.enabled:
                await app_of(self).run_action(bound.binding.action, bound.node)
            return
        if is_chord and bound is None:
            event.stop()
            event.prevent_default()
            return
        from kimi_tui.foreign_text import JOINERS, joins_letters

        if event.character and event.character in JOINERS:
            # Textual does not count this character as printable; Persian and the scripts of India are spelled with it.
            event.stop()
            event.prevent_default()
            row, column = self.selection.end
            if joins_letters(self.document.get_line(row)[:column][-1:]):
                self._type(event.character, *self.selection)

    def _ask_for_keys(self) -> None:
        if self.text == KEYS_SIGN and self.has_focus and not self.is_searching:
            self.load_text("")
            self.post_message(self.KeysAsked())

    def _acts_first(self, key: str) -> bool:
        """Return whether a key that is bound by the screen acts before the next key: the slash behind Esc opens another menu."""
        return key == "escape" and not self._is_answer

    async def on_paste(self, event: events.Paste) -> None:
        """Insert a pasted text, cleaned; a long one as a chip."""
        from kimi_tui.foreign_text import clean_pasted

        event.prevent_default()
        event.stop()
        if not event.text and self.images is not None:
            # Some terminals send an empty paste for an image in the clipboard.
            self.action_paste_clipboard()
            return
        text = clean_pasted(event.text)
        self._key_mask.pasted(text)
        if self.images is not None and may_be_path(event.text):
            self.post_message(self.PathPasted(text, event.text))
        if min(self.selection) == (0, 0):
            self._pasted_head, self._pasted_at = text, event.time
        self._put_pasted(text)

    def _type(self, text: str, start: Location, end: Location) -> EditResult | None:
        """Replace a part of the text as keys do, with the cursor after it. Return None if the field is read-only."""
        if self.read_only:
            return None
        return self.replace(text, start, end, maintain_selection_offset=False)

    def _put_pasted(self, text: str) -> None:
        if not self._is_answer and _line_count(text) > LONG_PASTE:
            text = self._new_chip(text)
        if result := self._type(text, *self.selection):
            self.move_cursor(result.end_location)
            self.focus()

    def exchange(self, written: str, text: str) -> bool:
        """Replace a piece of the text, such as a placeholder, if it is still in the field; the cursor stays.

        Args:
            written: the piece, on one line.
            text: the replacement; a long text becomes a chip.

        Returns:
            whether the piece was found.
        """
        from kimi_tui.display_names import CHIP_START

        self._clippings.discard(written)
        for row in range(self.document.line_count):
            line = self.document.get_line(row)
            if (start := line.find(written)) < 0:
                continue
            end = start + len(written)
            if _line_count(text) > LONG_PASTE:
                text = self._new_chip(text)
            at_end = self.selection.end == (row, end)
            if text.startswith(CHIP_START) and end == len(line):
                text += " "
            result = self.replace(text, (row, start), (row, end))
            if at_end:
                self.move_cursor(result.end_location)
            return True
        return False

    def _new_chip(self, text: str) -> str:
        written = self.text
        chip, number = chip_of(text), 1
        while chip in self._pastes or chip in written:
            number += 1
            chip = chip_of(text, number)
        self._pastes[chip] = text
        return chip

    @property
    def chip(self) -> tuple[str, int, int] | None:
        """The chip that contains or precedes the cursor, with its begin and end in the line; None for none."""
        return self._chip_at(self.selection.end[1])

    def _chip_at(self, column: int) -> tuple[str, int, int] | None:
        line = self.document.get_line(self.selection.end[0])
        if "[" not in line:  # every chip begins with this character
            return None
        for chip in self._pastes:
            start = line.find(chip)
            if 0 <= start < column <= start + len(chip):
                return chip, start, start + len(chip)
        return self.images.around(line, column) if self.images is not None else None

    def _takes_chip(self, key: str, *, writes: bool) -> bool:
        """Return whether a key acted on the chip under the cursor: a chip is opened or deleted as a whole, never changed."""
        row, column = self.selection.end
        # Deleting to the right begins at the cursor.
        is_delete = key in ("delete", "ctrl+d")
        found = self._chip_at(column + is_delete)
        if found is None or self.selected_text:
            return False
        chip, start, end = found
        if key == "backspace" or (is_delete and column < end):
            self._type("", (row, start), (row, end))
            return True
        if column < end and key in ("enter", "space") and chip not in self._pastes:
            self.post_message(self.ImageOpened(chip))
            return True
        if column < end and key in ("enter", "space"):
            self._type(self._pastes[chip], (row, start), (row, end))
            return True
        if column < end and writes:
            self.move_cursor((row, end))
        return False

    def get_cursor_left_location(self) -> Location:
        """Return the location of the cursor after moving left by one displayed character, such as an emoji with a skin colour."""
        row, column = self.cursor_location
        if column == 0:
            return super().get_cursor_left_location()
        return row, grapheme_before(self.document.get_line(row), column)

    def get_cursor_right_location(self) -> Location:
        """Return the location of the cursor after moving right by one displayed character."""
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if column >= len(line):
            return super().get_cursor_right_location()
        return row, grapheme_after(line, column)

    def action_send(self) -> None:
        """Send the text, or insert the entry that is chosen in the menu."""
        if self._is_answer:
            self.post_message(self.Sent(self.text))
            return
        if self._take_offer() or self.is_searching:
            return
        pasted = self._pasted
        # The field is emptied here and not by the receiver: text that is typed until then must neither be sent nor be lost.
        # Emptying it closes the menu, so the menu's command is read first.
        command = self.completion.command if self.completion is not None else None
        chosen = command.name if command is not None else ""
        self.post_message(self.Sent(self.take(), chosen, pasted, self.key_at))

    @property
    def _pasted(self) -> Literal["", "lines", "now"]:
        """Whether the text begins with a paste, as described at `Sent`."""
        head, _, rest = self._pasted_head.partition("\n")
        if not head or not self.message.startswith(head):
            return ""
        if rest.strip():
            return "lines"
        return "now" if self.key_at - self._pasted_at < WITH_PASTE_S else ""

    def action_newline(self) -> None:
        """Begin a new line."""
        start, end = self.selection
        self._type("\n", start, end)

    def action_kill_word_left(self) -> None:
        """Cut the word before the cursor, with the spaces after it; a chip as a whole."""
        chip = self._chip_at(len(self.typed.rstrip()))
        if chip is not None:
            self._kill((self.selection.end[0], chip[1]))
        else:
            self._kill(self.get_cursor_word_left_location())

    def action_kill_word_right(self) -> None:
        """Cut to the end of the word, with the spaces before it."""
        row, column = self.selection.end
        line = self.document.get_line(row)
        if column == len(line):
            self._kill(self.get_cursor_right_location())
            return
        end = column
        while end < len(line) and not line[end].isalnum():
            end += 1
        while end < len(line) and line[end].isalnum():
            end += 1
        self._kill((row, end))

    def action_kill_line_left(self) -> None:
        """Cut to the beginning of the line; at the beginning, join it to the line before."""
        if self.cursor_at_start_of_line:
            self._kill(self.get_cursor_left_location())
        else:
            self._kill((self.selection.end[0], 0))

    def action_kill_line_right(self) -> None:
        """Cut to the end of the line; at the end, join the next line to it."""
        if self.cursor_at_end_of_line:
            self._kill(self.get_cursor_right_location())
        else:
            row = self.selection.end[0]
            self._kill((row, len(self.document.get_line(row))))

    def action_paste_clipboard(self) -> None:
        """Paste the clipboard of the desktop."""
        if self.images is not None:
            # The placeholder is inserted at once, so that later keys, even Enter, come after it.
            written, number = READING, 1
            while written in self._clippings:
                number += 1
                written = f"{READING[:-1]}, {number}]"
            self._clippings.add(written)
            self._put_pasted(written)
            self.post_message(self.ClipboardPressed(written))
        else:
            self.action_paste()

    def action_yank(self) -> None:
        """Insert the text that was cut last at the cursor."""
        self._type(self._killed, *self.selection)

    def _kill(self, to: Location) -> None:
        """Cut from the cursor to a location, or the selection; successive cuts are yanked as one text."""
        start, end = self.selection
        if start == end:
            start = to
        first, last = sorted((start, end))
        text = self.get_text_range(first, last)
        if not text:
            return
        if self._killed_where == (self.text, end):
            self._killed = self._killed + text if last != end else text + self._killed
        else:
            self._killed = text
        self._type("", first, last)
        self._killed_where = (self.text, self.selection.end)

    def action_earlier(self) -> None:
        """Move the cursor a line up; from the first line, show the message that was sent before."""
        if self._choose(-1):
            return
        if self.cursor_location[0] > 0 or self._is_wrapped_above():
            self.action_cursor_up()
        elif not self.text and not self._walking:
            self.post_message(self.RecallPressed())
        else:
            self.recall()

    def action_later(self) -> None:
        """Move the cursor a line down; from the last line, show the message that was sent after."""
        if self._choose(1):
            return
        past = self.past
        at_end = self.cursor_location[0] == self.document.line_count - 1
        if not at_end or self._is_wrapped_below() or past is None:
            self.action_cursor_down()
        elif (text := past.later()) is not None:
            if past.walking:
                self.put_sent(text)
            else:
                self.put(text)

    def recall(self) -> None:
        """Put the message before this one into the field; its present text is kept as the draft."""
        if self.past is None:
            return
        if (text := self.past.earlier(self.text)) is not None:
            self.put_sent(text)

    def action_copy_or_leave(self) -> None:
        """Copy the selection of the field or the chat; without one, post `ExitPressed`."""
        if self.selected_text:
            self.action_copy()
        elif not copy_selection(self.screen):
            self.post_message(self.ExitPressed("Ctrl+C", stops=True))

    def action_delete_or_leave(self) -> None:
        """Delete to the right; in an empty field, post `ExitPressed`."""
        now = monotonic()
        if self.text:
            self._deleted_at = now
            self.action_delete_right()
        elif now - self._deleted_at > HELD_S:
            self.post_message(self.ExitPressed("Ctrl+D", stops=False))
        else:
            # The key is still held down: the text to delete has run out, which does not mean that the user wants to leave.
            self._deleted_at = now

    def action_page(self, direction: int) -> None:
        """Scroll the chat by a page."""
        self.post_message(self.Paged(direction))

    def action_complete(self) -> None:
        """Complete the typed text; if there is nothing to complete, post `TabPressed`."""
        if self._take_offer():
            return
        words = self.completion.written_out if self.text and self.completion is not None else ""
        if words:
            self.put(words)
        else:
            self.post_message(self.TabPressed())

    # --- completion

    @property
    def written(self) -> Written:
        """The state of the field, for the completion."""
        from kimi_tui.tui.prompt.completion import Written

        past, is_search = self.past, self._before_search is not None
        sent = past.entries if is_search and past is not None else ()
        return Written(self.text, self.typed, self.selection, self.is_recalled, is_search, sent)

    @property
    def is_searching(self) -> bool:
        """Whether the text is a search of the history."""
        return self._before_search is not None

    @property
    def offered(self) -> Offered:
        """The menu's state, on which Enter, Tab, Esc and the arrows act while it is shown."""
        return self.completion.offered if self.completion is not None else ""

    @property
    def _is_choosing(self) -> bool:
        return self.completion is not None and self.completion.is_choosing

    def offer(self, *, anew: bool = True) -> None:
        """Update the completion menu for the present text.

        Called before a key acts on the menu, too: the message about the last change may not have been handled yet.

        Args:
            anew: whether to update it also for a text that it was updated for already: the offers may have changed.
        """
        completion, written = self.completion, self.written
        if completion is None or not (anew or completion.followed != written):
            return
        if completion.follow(written) and completion.menu is not None:
            self.post_message(self.MenuMade(completion.menu))
        self.mode_changed()

    def _choose(self, step: int) -> bool:
        self.offer(anew=False)
        is_chosen = self.completion is not None and self.completion.choose(step)
        if is_chosen:
            self.mode_changed()
        return is_chosen

    def _take_offer(self) -> bool:
        """Put the chosen file or sent message into the field; return False if it is there already, or none is chosen."""
        if self.completion is None:
            return False
        self.offer(anew=False)
        offer = self.completion.taken
        if offer is not None:
            self._put_offer(offer)
        return offer is not None

    def _put_offer(self, offer: MenuOffer) -> None:
        """Insert an offer in place of the path that is being typed, else of the whole text."""
        from kimi_tui.tui.prompt.completion import typed_mention

        row, column = self.selection.end
        found = typed_mention(self.typed)
        if offer.is_path and found is not None:
            self.replace(offer.text, (row, found[0]), (row, column))
            self.move_cursor((row, found[0] + len(offer.text)))
            self._offered_end = self.selection.end if offer.text.endswith(" ") else None
            if may_be_path(offer.shown):
                self.post_message(self.PathPasted(offer.text.rstrip(), offer.shown))
        elif self.is_searching:
            self._before_search = None
            self.put_sent(offer.text)
            self.offer()
        else:
            self.put(offer.text)

    def take_clicked(self) -> str:
        """Take the clicked entry of the menu; return the name of the command to run, empty for an offer."""
        offered = self.completion
        if offered is not None and offered.offer is not None:
            self._put_offer(offered.offer)
        elif offered is not None and offered.command is not None:
            name = offered.command.name
            self.take()
            return name
        return ""

    def search_sent(self) -> bool:
        """Begin a search of the history of this folder; during a search, choose the message before and return False."""
        if self.is_searching:
            self._choose(1)
            return False
        self._before_search = self.draft
        self.put("")
        self.write("")
        if self.completion is not None:
            self.completion.open()
        self.offer()
        return True

    def end_offers(self) -> bool:
        """End the search of the history, or close the menu; return False if there is neither."""
        if self._before_search is not None:
            draft, self._before_search = self._before_search, None
            self.put_draft(draft)
            self.offer()
            return True
        if self._is_choosing and self.has_focus and self.completion is not None:
            self.completion.close(self.text)
            self.mode_changed()
            return True
        return False

    @property
    def is_recalled(self) -> bool:
        """Whether the field shows a message of the history, unchanged, so that the arrows move on in the history."""
        sent, shown = self._recalled
        return self.past is not None and self.past.shows(sent if self.text == shown else self.text)

    @property
    def _walking(self) -> bool:
        return self.past is not None and self.past.walking

    def _is_wrapped_above(self) -> bool:
        return self.wrapped_document.location_to_offset(self.cursor_location).y > 0

    def _is_wrapped_below(self) -> bool:
        here = self.wrapped_document.location_to_offset(self.cursor_location).y
        return here < self.wrapped_document.height - 1
