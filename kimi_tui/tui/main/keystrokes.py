"""Routes every key and paste of the main screen: to what has the focus, or as text to the prompt.

| what has the focus | a letter or sign | what is pasted |
|---|---|---|
| the prompt | is written | is written |
| the chat, a world line in its place, the timeline | is a key of theirs, or prose: `LetterGate` | goes into the prompt |
| a cursor in the chat | moves it, or is prose: `CursorLetters` | goes into the prompt |
| a question, or nothing while one is asked | answers it, or is prose: `ApprovalPanel.takes` | waits in the prompt behind it |

What is typed behind a key that opens something waits for that: `TypeAhead`.
"""

from __future__ import annotations

from textual import events

from kimi_tui.tui.keyboard import CursorLetters, LetterGate, key_of, keys_of
from kimi_tui.tui.main.workbench import Workbench
from kimi_tui.tui.main.world_line_viewer import WorldLineViewer
from kimi_tui.tui.prompt.area import PromptArea, may_be_path

APART_S = 0.5
"""Seconds without a key after which text typed outside the prompt begins a new word in it."""
BEHIND = "behind"
"""Topic of the notice that typed text waits in the prompt behind a question."""


class Keystrokes:
    """Gets every key and paste of the main screen before the focused widget does.

    Args:
        bench: the workbench, with the prompt and what has the focus.
        viewer: knows the world line shown in place of the chat.

    Attributes:
        written_at: monotonic time at which text was last typed into the prompt from elsewhere; 0 where none was.
    """

    def __init__(self, bench: Workbench, viewer: WorldLineViewer) -> None:
        self._bench = bench
        self._viewer = viewer
        screen = bench.screen
        self._letters = LetterGate(screen, self._write_here, self._act, self._tell_no_key)
        self._cursor_letters = CursorLetters(
            screen, self._cursor_action, self._act_on_cursor, self._write_here, self._tell_no_key
        )
        self.written_at = 0.0
        self._writes_behind = False
        """Whether the last keys were written into the prompt behind a question: Enter ends that."""

    async def takes(self, event: events.Key | events.Paste) -> bool:
        """Whether a key or paste was handled here, or is held back, so that the focused widget must not get it.

        Text goes into the prompt in the order in which it was typed, and no key acts on something that opened after it was
        pressed. Keys that nothing would take go to the prompt.
        """
        bench, screen = self._bench, self._bench.screen
        if event.is_forwarded:
            return False  # on its way back from what it was handed on to
        view = bench.on_view
        is_copying = screen.is_current and screen.focused is view and view.is_copying
        if is_copying and isinstance(event, events.Key):
            return await self._cursor_letters.takes(event)
        if not bench.type_ahead.is_holding and screen.is_active and await self._takes_text(event):
            return True
        if bench.type_ahead.takes(event):
            return True
        if screen.is_current and screen.focused is None and bench.prompt.area.display:
            bench.focus_prompt()
        return False

    async def _takes_text(self, event: events.Key | events.Paste) -> bool:
        """Whether this is taken as text, or waits whether it is, where only keys are expected."""
        bench = self._bench
        focused, view, panel = bench.screen.focused, bench.on_view, bench.question
        asks = panel is not None and (focused is None or focused is panel)
        if not (asks or focused is view or bench.timeline_pane.acts):
            return False
        if isinstance(event, events.Paste):
            from kimi_tui.foreign_text import clean_pasted

            self.write_on(event.text, tells=False)
            if may_be_path(event.text):
                pasted = PromptArea.PathPasted(clean_pasted(event.text), event.text)
                bench.prompt.area.post_message(pasted)
            return True
        if panel is not None and asks:
            return await panel.takes(event)
        if panel is not None and event.key == "enter" and self._writes_behind:
            return True  # the end of what waits behind the question, however late
        is_text = event.character and event.is_printable
        if is_text and self._viewer.comes_early(event):
            bench.prompt.area.write(event.character or "")
            return True
        is_behind = bench.reading or not bench.prompt.display
        if event.key == "slash" and focused is view and is_behind:
            bench.search("")  # no command can begin there
            return True
        if await self._letters.takes(event):
            return True
        self._writes_behind = False
        return False

    # --- what letters do

    async def _act(self, event: events.Key) -> None:
        """Do what a letter does that has waited whether it begins a word."""
        bench, view = self._bench, self._bench.on_view
        if event.key in keys_of("chat.copy_mode", bench.keys) and bench.screen.focused is view:
            # At once: the keys behind it are those of the cursor.
            view.action_copy_mode()
        else:
            await bench.hand_on(event)

    def _cursor_action(self, key: str) -> str:
        return self._bench.on_view.copy_action(key)

    def _act_on_cursor(self, action: str) -> None:
        self._bench.on_view.act_on_cursor(action)

    def _tell_no_key(self, letter: str) -> None:
        """Tell the user that a letter typed alone does nothing there."""
        key = key_of("help", self._bench.keys)
        self._bench.tell(
            f"{letter} is no key here.",
            advice=f"{key or '/help'} lists the keys; a word goes into the prompt.",
        )

    # --- what is written elsewhere

    def _write_here(self, text: str) -> None:
        """Write text that was typed on the timeline or in the chat into the prompt, and focus that."""
        self._act_on_cursor("leave")
        self.write_on(text, tells=len(text) > 1)

    def write_on(self, text: str, *, tells: bool = True) -> None:
        """Write text that was typed where there is no field into the prompt; what is typed next goes there as well."""
        from kimi_tui.foreign_text import clean_pasted

        bench, area = self._bench, self._bench.prompt.area
        text, before = clean_pasted(text), area.typed
        is_apart = (at := bench.last_key_at) - self.written_at > APART_S
        joins = bool(before) and not before[-1].isspace() and not text[:1].isspace()
        area.write(f" {text}" if is_apart and joins else text)
        self.written_at = max(self.written_at, at)  # before it is heard that the text has changed
        panel = bench.question
        if panel is None:
            self._viewer.return_to_now()
            if tells:
                bench.tell("Nothing was done: what you write goes into the prompt.")
            return
        # The prompt is behind a question, whose answers are letters.
        self._writes_behind = True
        self._letters.run.go_on(bench.last_key_at)
        if bench.screen.focused is None or panel.has_focus_within:
            bench.screen.set_focus(bench.on_view)
        words = "Nothing was done: what you write waits behind the question."
        bench.tell(words, topic=BEHIND)
