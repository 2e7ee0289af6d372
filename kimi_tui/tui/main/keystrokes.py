"""Routes every key and paste of the main screen: to the focused part, or as text to the prompt.

| what has the focus | a letter or sign | what is pasted |
|---|---|---|
| the prompt | is written | is written |
| the chat, a world line in its place, the timeline | is a key of theirs, or prose: `LetterGate` | goes into the prompt |
| a future or sub-agent in place of the chat | is a key of its, or prose for it: `LetterGate` | goes into a message to it |
| a cursor in the chat | moves it, or is prose: `_CursorLetters` | goes into the prompt |
| a question, or nothing while one is asked | answers it, or is prose: `ApprovalPanel.intercept` | waits in the prompt behind it |

Keys after one that opens something wait for that: `TypeAhead`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual import events

from kimi_tui.tui.key_names import key_of, keys_of
from kimi_tui.tui.key_sequences import CHORDS
from kimi_tui.tui.keyboard import LetterGate, LetterRun
from kimi_tui.tui.main.beside import BesideViewer
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.main.world_line_viewer import WorldLineViewer
from kimi_tui.tui.prompt.area import PromptArea, may_be_path

APART_S = 0.5
"""Seconds without a key after which text typed outside the prompt begins a new word in it."""
BEHIND = "behind"
"""Topic of the notice that typed text waits in the prompt behind a question."""


class _CursorLetters:
    """Distinguishes the letters that move the cursor in the chat from prose.

    Most letters move it, and do so at once. A letter that ends copy mode, or is no key, is debounced: if another one follows,
    all letters of the burst are prose.

    Args:
        bench: the workbench, with the transcript on view.
        write: called with prose.
        unknown: called with a single letter that is no key.
    """

    ENDS = ("take", "leave")

    def __init__(
        self, bench: Workbench, write: Callable[[str], None], unknown: Callable[[str], None]
    ) -> None:
        self._bench = bench
        self._run = LetterRun(bench.screen, write)
        self._write = write
        self._unknown = unknown
        self._burst = ""
        """The letters typed in quick succession."""
        self._last = 0.0

    async def intercept(self, event: events.Key) -> bool:
        """Handle a key that is debounced or prose; return False for one that is to be handled as usual."""
        run, letter = self._run, event.character or ""
        is_text = event.is_printable and not event.key.startswith(CHORDS)
        if not is_text or event.time - self._last >= run.DEBOUNCE_S:
            await run.flush()
            self._burst = ""
        if not is_text:
            return False
        self._last = event.time
        is_held = run.is_pending and self._burst.endswith(letter)
        self._burst += letter
        if run.is_pending and not is_held:
            run.cancel()
            text, self._burst = self._burst, ""
            self._write(text)
            return True
        action = self._bench.on_view.copy_action(event.key)
        if action and action not in self.ENDS:
            return False
        if not is_held:
            run.pop_pending()
        run.add(letter, event.time, partial(self._act, action, letter))
        if not run.DEBOUNCE_S:
            await run.flush()
        return True

    def _act(self, action: str, letter: str, _: int) -> None:
        self._burst = ""
        if action:
            self._bench.on_view.act_on_cursor(action)
        elif letter.isascii() and letter.isalnum():
            self._unknown(letter)


class Keystrokes:
    """Gets every key and paste of the main screen before the focused widget does.

    Args:
        bench: the workbench, with the prompt and the focus.
        viewer: knows the world line shown instead of the chat.
        beside: knows the future or sub-agent shown instead of the chat, to which text can be written.

    Attributes:
        written_at: the monotonic time at which text was last typed into the prompt from elsewhere; 0 for never.
    """

    def __init__(self, bench: Workbench, viewer: WorldLineViewer, beside: BesideViewer) -> None:
        self._bench = bench
        self._viewer = viewer
        self._beside = beside
        screen = bench.screen
        self._letters = LetterGate(screen, self._write_here, self._act, self._tell_no_key)
        self._cursor_letters = _CursorLetters(bench, self._write_here, self._tell_no_key)
        self.written_at = 0.0
        self._writes_behind = False
        """Whether the last keys were written into the prompt behind a question: Enter ends that."""

    async def intercept(self, event: events.Key | events.Paste) -> bool:
        """Handle a key or paste that is text for the prompt, debounced or held back; return False for one for the focused widget.

        Text goes into the prompt in the order in which it was typed, and no key acts on something that opened after it was
        pressed. Keys that nothing would take go to the prompt.
        """
        bench, screen = self._bench, self._bench.screen
        if event.is_forwarded:
            return False  # the key is on its way back from the widget that got it
        view = bench.on_view
        is_copying = screen.is_current and screen.focused is view and view.is_copying
        if is_copying and isinstance(event, events.Key):
            return await self._cursor_letters.intercept(event)
        if not bench.type_ahead.is_holding and screen.is_active and await self._takes_text(event):
            return True
        if bench.type_ahead.intercept(event):
            return True
        if screen.is_current and screen.focused is None and bench.prompt.area.display:
            bench.focus_prompt()
        return False

    @property
    def answers(self) -> bool:
        """Whether a key that is pressed now answers a question."""
        panel, focused = self._bench.question, self._bench.screen.focused
        return panel is not None and (focused is None or focused is panel)

    async def _takes_text(self, event: events.Key | events.Paste) -> bool:
        """Return whether the key is taken as text, or waits for the decision, where only keys are expected."""
        bench = self._bench
        focused, view, panel = bench.screen.focused, bench.on_view, bench.question
        asks = self.answers
        if not (asks or focused is view or bench.timeline_pane.acts):
            return False
        if isinstance(event, events.Paste):
            from kimi_tui.foreign_text import clean_pasted

            # A letter shortly before is a part of the text, and no answer.
            before = panel.pop_pending() if panel is not None else ""
            self.write_to_prompt(before + event.text, tells=False)
            if may_be_path(event.text):
                pasted = PromptArea.PathPasted(clean_pasted(event.text), event.text)
                bench.prompt.area.post_message(pasted)
            return True
        if panel is not None and asks:
            return await panel.intercept(event)
        if panel is not None and event.key == "enter" and self._writes_behind:
            return True  # ends the text that waits behind the question, at any time
        is_text = event.character and event.is_printable
        if is_text and (self._viewer.comes_early(event) or self._beside.comes_early(event.time)):
            bench.prompt.area.write(event.character or "")
            return True
        is_behind = view is not bench.transcript or not bench.prompt.display
        if event.key == "slash" and focused is view and is_behind:
            bench.search("")  # no command can begin with this character
            return True
        if await self._letters.intercept(event):
            return True
        self._writes_behind = False
        return False

    # --- actions of letters

    async def _act(self, event: events.Key) -> None:
        """Carry out the action of a letter that has waited long enough to be no beginning of a word."""
        bench, view = self._bench, self._bench.on_view
        if event.key in keys_of("chat.copy_mode", bench.keys) and bench.screen.focused is view:
            # This happens at once, as the next keys are those of the cursor.
            view.action_copy_mode()
        else:
            await bench.forward(event)

    def _tell_no_key(self, letter: str) -> None:
        """Tell the user that a letter typed alone does nothing there."""
        key = key_of("help", self._bench.keys)
        self._bench.tell(
            f'"{letter}" does nothing here.',
            advice=f"{key or '/help'} lists the keys. Text that you type goes into the prompt.",
        )

    # --- text that is typed elsewhere

    def _write_here(self, text: str) -> None:
        """Write text that was typed on the timeline or in the chat into the prompt, and focus that."""
        self._bench.on_view.act_on_cursor("leave")
        self.write_to_prompt(text, tells=len(text) > 1)

    def write_to_prompt(self, text: str, *, tells: bool = True) -> None:
        """Write text that was typed where there is no field into the prompt, even behind a question.

        Args:
            text: the text.
            tells: whether a notice says so.
        """
        from kimi_tui.foreign_text import clean_pasted

        bench, area = self._bench, self._bench.prompt.area
        if bench.beside is not None and bench.question is None:
            self._beside.write(clean_pasted(text))
            return
        text, before = clean_pasted(text), area.typed
        is_apart = (at := bench.last_key_at) - self.written_at > APART_S
        joins = bool(before) and not before[-1].isspace() and not text[:1].isspace()
        area.write(f" {text}" if is_apart and joins else text)
        self.written_at = max(self.written_at, at)  # before the event that the text has changed
        panel = bench.question
        if panel is None:
            self._viewer.return_to_now()
            if tells:
                bench.tell("Your text went into the prompt. No shortcut was run.")
            return
        # The prompt is behind a question, whose answers are letters.
        self._writes_behind = True
        self._letters.run.continue_prose(bench.last_key_at)
        if bench.screen.focused is None or panel.has_focus:
            bench.screen.set_focus(panel.key_target)
            panel.note_behind()
            return
        words = "Your text is in the prompt and waits until the question is answered."
        bench.tell(words, topic=BEHIND)
