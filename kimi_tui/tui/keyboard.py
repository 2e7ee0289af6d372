"""Keys: type-ahead, and the decision whether a pressed key counts as an answer, a command or prose.

A key that was pressed before a question was visible was not meant to answer it (`QuietKeyboard`, `SeenQuestion`); a key that
was pressed before the opened widget could have the focus was meant for that widget (`TypeAhead`).

Where no text is written, letters are keys, and must be distinguished from prose that is typed there and meant for the prompt.
A letter with an action waits a quarter of a second (`DEBOUNCE_S`): letters that follow one another sooner are prose, except a
key that is held down. Letters that only move something act at once. Times are those at which keys were read, so that a busy
program does not confuse the two.

| where | a letter that does something | any other letter | prose |
|---|---|---|---|
| bindings of a screen: `LetterGate` | is pressed, debounced | is no key, which is said | written |
| a cursor in the chat: `main.keystrokes` | moves it, at once; ends it, debounced | is no key, which is said | written |
| a question: `SeenQuestion` | answers, debounced, if all could be read before | begins prose | answers nothing |

All of them debounce letters with a `LetterRun`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.screen import Screen, ScreenResultType
from textual.widget import Widget
from textual.widgets import TextArea

from kimi_tui.tui.key_sequences import CHORDS
from kimi_tui.tui.screens import AnswersOnce, app_of
from kimi_tui.tui.terminal_input import PaintWatch
from kimi_tui.tui.typed_bursts import BURST_S

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.timer import Timer
    from textual.widgets import Input


QUIET_S = 0.5
"""Seconds without a key after which the user may answer a question."""
OPENING_KEYS = frozenset(
    (
        *("commands", "complete", "help", "search", "timeline"),
        *("chat.preview", "line.compare", "line.jump", "line.send"),
        *("future.answer", "future.message", "future.page", "subagent.answer"),
        *("timeline.bookmark", "timeline.choose", "timeline.filter", "timeline.keys"),
        *("timeline.read", "timeline.replay"),
    )
)
"""Actions, by their names in `[keys]`, that open something or go to it."""
ROUNDS = 3
"""The number of times that messages of a key go up from the focused widget to the app: the key, its message, and an answer to that."""
LONGEST_ROUND_S = 0.5
"""Seconds after which a round counts as over, if a widget was removed during it."""
LONGEST_WAIT_S = 1.0
"""Seconds after which text that the user types is shown in the prompt, whatever is still to be opened."""
READY_ROUNDS = 3
"""Refreshes of a new screen in which one of its widgets may take the focus."""
ENDING = ("ctrl+c", "ctrl+q")
PASSED = (*ENDING, "escape")
"""Keys that are not held back, and that release held keys. On a screen of fields and lists nothing takes long, and Esc is
handled in order.
"""

LEAVING = ("tab", "shift+tab", "enter")
"""Keys that lead from one field to another."""
LEAVING_S = 0.2
"""Seconds. Keys that follow one another sooner are one burst, during which nobody sees where they go."""

_LATE_S = 0.1
"""Seconds of delay from which on a timer may have fired after the program was stopped."""
_RECHECK_S = 0.25
"""Seconds by which a flush is then postponed; `InputResumed` has come by then if the program was stopped."""
LetterAction = Callable[[int], Awaitable[None] | None]
"""Carries out the action of a letter; the argument is the number of times that it was typed."""
MOVES = frozenset(
    (
        *("chat.above", "chat.below", "chat.fold", "search.before", "search.next"),
        *("compare.down", "compare.next", "compare.unfold", "compare.up"),
        *("futures.down", "futures.unfold", "futures.up"),
        *("replay.timeline", "timeline.down", "timeline.fold", "timeline.up"),
    )
)
"""Actions, by their names in `[keys]`, that only move a selection, scroll or focus: their letters act at once."""


LEADS = {"chat.copy_mode": frozenset("hjklwbGV0$^[]")}
"""Letters that may follow the letter of an action, which then does not begin a word."""

# --- keys that were pressed before a question was visible


class QuietKeyboard:
    """Decides whether a key may answer a question: only if no key was pressed for half a second.

    Text that the user types for the prompt while a question appears must not answer it, so keys that come too early are
    dropped and restart the wait.

    Args:
        now: the monotonic time from which on the question could be seen.
        last_key_at: the monotonic time at which the newest key was read.
        quiet_s: the seconds without a key.
    """

    def __init__(self, now: float, last_key_at: float, quiet_s: float = QUIET_S) -> None:
        self._last = max(now, last_key_at)
        self._quiet_s = quiet_s

    def remaining_s(self, now: float) -> float:
        """Return the seconds from `now` after which a key is accepted, if none comes before."""
        return max(0.0, self._last + self._quiet_s - now)

    def accepts(self, now: float) -> bool:
        """Return whether a key that was read at this monotonic time is accepted. A refused key restarts the wait.

        A key that was read earlier than one before it never shortens the wait.
        """
        ready = self.remaining_s(now) == 0.0
        if not ready:
            self._last = max(self._last, now)
        return ready

    def restart(self, now: float) -> None:
        """Restart the wait: the next keys may have been meant for something else."""
        self._last = max(self._last, now)


# --- letters that are keys


def row_of_digit(letter: str, n_rows: int) -> int | None:
    """Return the row of answers that a digit chooses, as other programs number them; None if it is no digit, or there is no such row."""
    return int(letter) - 1 if letter in frozenset("123456789"[:n_rows]) else None


def unhandled(event: events.Key, node: MessagePump) -> events.Key:
    """Return a copy of a key event that no widget has handled yet, with the time at which it was read."""
    again = event.copy()
    again.time = event.time
    # With any other sender it would go up no higher than that, and the app looks bindings up.
    again.set_sender(app_of(node))
    return again


class LetterRun:
    """Debounces letters that are keys: runs the action of a letter that stays alone, and passes on those of a burst as prose.

    Args:
        node: the widget or screen in whose message queue a pending action runs.
        write: called with the letters of a burst.
        typed_at: the monotonic time of text written elsewhere that the first letters may continue; 0 for none.
    """

    DEBOUNCE_S: ClassVar[float] = 0.25
    """Seconds without another letter after which the action of one runs; 0 for at once."""

    def __init__(
        self, node: MessagePump, write: Callable[[str], None], typed_at: float = 0.0
    ) -> None:
        self._node = node
        self._write = write
        self._text = ""
        self._last = typed_at
        self._is_prose = typed_at > 0
        self._only_moves = False
        self._act: LetterAction | None = None
        self._times = 0
        self._timer: Timer | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the action of a letter has not run yet."""
        return self._act is not None

    def follows(self, at: float) -> bool:
        """Return whether a key read at a monotonic time is within `DEBOUNCE_S` of the newest letter."""
        return bool(self._text or self._is_prose) and at - self._last < self.DEBOUNCE_S

    def is_prose(self, at: float) -> bool:
        """Return whether a key read at a monotonic time continues a burst that was passed on as prose."""
        return self._is_prose and self.follows(at)

    def is_of_burst(self, at: float) -> bool:
        """Return whether a key read at a monotonic time came at once with the newest letter, so that nobody saw what that did."""
        return bool(self._text) and at - self._last < BURST_S

    def continue_prose(self, at: float) -> None:
        """Treat letters within `DEBOUNCE_S` of this monotonic time as prose; the pending action is cancelled."""
        self.cancel()
        self._text, self._is_prose, self._last = "", True, at

    def add(self, letter: str, at: float, act: LetterAction | None, *, moves: bool = False) -> bool:
        """Make the action of a letter pending, or pass a burst on as prose. Flush an overdue action before the call.

        Args:
            letter: the letter.
            at: the monotonic time at which it was read.
            act: its action; None if it is no key, and so begins prose.
            moves: whether the action only moves a selection, scrolls or focuses.

        Returns:
            False if the letter only moves something, so that the caller must run its action at once.
        """
        if not self.follows(at):
            self._text, self._is_prose = "", False
        elif self._only_moves and len(self._text) > 1 and not moves:
            self._text = ""  # a user who has moved about does not begin a word so
        self._last = at
        before, self._text = self._text, self._text + letter
        self._only_moves = moves and (self._only_moves or not before)
        is_held = set(self._text) == {letter}
        if self._is_prose or act is None or not (is_held or self._only_moves):
            text = self._text
            self.continue_prose(at)
            self._write(text)
        elif moves:
            return False
        else:
            self._times = self._times + 1 if self.is_pending else 1
            self._act = act
            self.schedule(at + self.DEBOUNCE_S - time.monotonic())
        return True

    @property
    def is_held(self) -> bool:
        """Whether the pending letter was repeated so often that its key is held down."""
        return self.is_pending and self._times > 2

    def schedule(self, wait_s: float | None) -> None:
        """Flush after `wait_s` seconds (None: not until scheduled again), after the keys that have been read by then."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if wait_s is not None and wait_s > 0:
            due = time.monotonic() + wait_s
            self._timer = self._node.set_timer(wait_s, partial(self._timer_fired, due))
        elif wait_s is not None:
            self._queue_flush()

    def _timer_fired(self, due: float) -> None:
        if time.monotonic() - due > _LATE_S:
            self.schedule(_RECHECK_S)
        else:
            self._queue_flush()

    def _queue_flush(self) -> None:
        app_of(self._node).call_later(self._node.call_later, self._flush_if_newest, self._last)

    async def _flush_if_newest(self, last: float) -> None:
        if last == self._last:
            await self.flush()

    def cancel(self) -> None:
        """Cancel the pending action."""
        self._act = None
        self.schedule(None)

    def pop_pending(self) -> str:
        """Cancel the pending action and return its letters; empty for none."""
        text = self._text if self.is_pending else ""
        self._text = ""
        self.cancel()
        return text

    async def flush(self) -> None:
        """Run the pending action now."""
        act, times = self._act, self._times
        self.cancel()
        if act is not None and isawaitable(done := act(times)):
            await done


class LetterGate:
    """Debounces the letters that are bound on a screen, so that a word typed there is prose and no series of commands.

    Args:
        screen: the screen.
        write: called with prose.
        forward: passes a debounced key to the app at once; without, it is queued behind the keys read meanwhile.
        unknown: called with a single letter that is bound to nothing; without it, such a letter is passed on like a key.
    """

    def __init__(
        self,
        screen: Screen[Any],
        write: Callable[[str], None],
        forward: Callable[[events.Key], Awaitable[None]] | None = None,
        unknown: Callable[[str], None] | None = None,
    ) -> None:
        self._screen = screen
        self._forward = forward
        self._unknown = unknown
        self._handed: deque[events.Key] = deque(maxlen=4)
        self._led: frozenset[str] = frozenset()
        """The letters that may follow the pending one as keys."""
        self.run = LetterRun(screen, write)

    async def intercept(self, event: events.Key) -> bool:
        """Handle a key that is debounced or prose; return False for one that is to be handled as usual."""
        if event in self._handed:
            return False
        run, letter = self.run, event.character or ""
        if run.is_pending and not run.follows(event.time):
            await run.flush()
        if run.is_pending and letter in self._led:
            await run.flush()
            return False
        bound = self._screen.active_bindings.get(event.key)
        is_text = event.is_printable and not event.key.startswith(CHORDS)
        is_sign = bound is not None and not letter.isalnum()
        goes_on = run.follows(event.time) and (letter == " " or run.is_prose(event.time))
        if not is_text or (is_sign and not goes_on):
            # Passed on after other keys, it would be pressed in the place to which those have led.
            run.cancel() if self._forward is None else await run.flush()
            return False
        act: LetterAction | None = partial(self._press, event, self._screen.focused)
        if bound is None and self._unknown is not None:
            # Other characters and scripts cannot be meant as keys.
            is_letter = letter.isascii() and letter.isalnum()
            act = partial(self._tell, letter) if is_letter else None
        moves = bound is not None and bound.binding.id in MOVES
        is_taken = run.add(letter, event.time, act, moves=moves)
        self._led = LEADS.get(bound.binding.id or "", frozenset()) if bound else frozenset()
        if run.is_held or not run.DEBOUNCE_S:
            await run.flush()
        return is_taken

    def _tell(self, letter: str, _: int) -> None:
        if self._unknown is not None and self._screen.is_active:
            self._unknown(letter)

    async def _press(self, event: events.Key, focused: Widget | None, times: int) -> None:
        for _ in range(times):
            if self._screen.is_active and self._screen.focused is focused:
                again = unhandled(event, self._screen)
                self._handed.append(again)
                if self._forward is not None:
                    await self._forward(again)
                else:
                    app_of(self._screen).post_message(again)


TOO_EARLY = "the key was pressed too early; press it again"
"""The text of a screen about a key that came too early to be an answer."""


class SeenQuestion:
    """Decides whether a key may answer a screen: only after the terminal has drawn it, and no key came for a while.

    A letter answers if no other one follows soon: a word that begins with it was meant for the prompt.

    Args:
        screen: the screen.
    """

    QUIET_S: ClassVar[float] = QUIET_S
    """Seconds without a key before an unexpected question accepts one."""

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen
        self._paint = PaintWatch(screen, self._painted)
        self._quiet: QuietKeyboard | None = None
        self._is_expected = False
        self._letters = LetterRun(screen, lambda _: self._painted())

    def ask(self, *, is_expected: bool = False) -> None:
        """Start the wait: the screen is mounted, asks a question from now on, or must be read again.

        Args:
            is_expected: whether the user has opened the question, and may answer it as soon as it is visible.
        """
        self._quiet, self._is_expected = None, is_expected
        self._letters.cancel()
        self._paint.begin()

    def _painted(self) -> None:
        quiet_s = 0.0 if self._is_expected else self.QUIET_S
        self._quiet = QuietKeyboard(time.monotonic(), 0.0, quiet_s)

    def pasted(self) -> None:
        """Cancel the answer by a letter that has not been given yet: it was the beginning of a pasted text."""
        self._letters.cancel()

    def entered(self, at: float) -> None:
        """Cancel the answer by a letter that came at once with an Enter, read at this monotonic time: both were pasted."""
        if self._letters.is_of_burst(at):
            self._letters.cancel()

    @property
    def is_open(self) -> bool:
        """Whether a key would count now."""
        return self._quiet is not None and self._quiet.remaining_s(time.monotonic()) == 0.0

    def accepts(self, at: float) -> bool:
        """Return whether a key counts, by the monotonic time at which it was read. A key that does not restarts the wait."""
        return self._quiet is not None and self._quiet.accepts(at)

    async def answer_with(self, letter: events.Key, answer: Callable[[], None] | None) -> bool:
        """Answer with a letter after the debounce time; return False if it came too early.

        Args:
            letter: the key event.
            answer: gives the answer of this letter; None for a letter without an answer, which restarts the wait as prose.
        """
        letters, at = self._letters, letter.time
        if letters.is_pending and not letters.follows(at):
            await letters.flush()
        if not self.accepts(at):
            letters.cancel()
            return False

        def give(_: int) -> None:
            if answer is not None and self._screen.is_current:
                answer()

        letters.add(letter.character or "", at, None if answer is None else give)
        if not letters.DEBOUNCE_S:
            await letters.flush()
        return True


class AskingScreen(AnswersOnce[ScreenResultType]):
    """A screen on which only keys count that were pressed when it was visible: a letter that answers, Enter in a list.

    `AnswersOnce` says at which place of the base classes it belongs.
    """

    IS_EXPECTED: ClassVar[bool] = False
    """Whether the user has opened it to choose something. If not, the keyboard must be quiet for a while before a key counts."""

    @cached_property
    def seen(self) -> SeenQuestion:
        """Decides whether a key was pressed when this screen was visible."""
        return SeenQuestion(self)

    def on_mount(self) -> None:
        """Ignore keys that were pressed before this screen is on the terminal."""
        self.ignore_early_keys()

    def on_paste(self, event: events.Paste) -> None:
        """Take a letter shortly before for a part of the pasted text, and for no answer."""
        del event
        self.seen.pasted()

    def on_key(self, event: events.Key) -> object:
        """Take a letter that came at once with an Enter for no answer."""
        if event.key == "enter":
            self.seen.entered(event.time)
        return None

    def ignore_early_keys(self) -> None:
        """Restart the wait, because this screen is to be drawn, at first or again."""
        self.seen.ask(is_expected=self.IS_EXPECTED)


class OneKeyScreen(AskingScreen[ScreenResultType]):
    """A screen that one key answers, so that several characters at once are prose."""

    def takes_typed(self, text: str) -> bool:
        """Return whether characters that came at once are a pasted text: they always are here."""
        del text
        return True


# --- keys after one that opens something, and on screens of fields and lists


class KeyList(Widget, can_focus=True):
    """A list that handles the arrows, and perhaps letters. All other keys belong to its screen; keys after one of these wait
    (`TypeAhead`).
    """


class FormField:
    """A field of a form whose keys in `LEAVES` lead to another field, or change which fields there are; keys after one of these
    wait (`TypeAhead`).
    """

    LEAVES: ClassVar[frozenset[str]] = frozenset({"up", "down", "tab", "shift+tab"})


class TypeAhead:
    """Holds keys back after one that runs a command, until the command has run and the opened widget has the focus.

    On a screen of fields and lists it does so after every key that the focused widget leaves to its parents: they handle it
    when it has bubbled up, and later keys would be handled before. If such a screen asks for a secret, keys after Tab or
    Enter are dropped if the focus stays where it was: they were meant for the field that hides them.

    Args:
        screen: the screen of the commands.
        forward: passes a key that was held back to the app.
        of_fields: whether it is a screen of fields and lists.

    Attributes:
        screen: as above.
        is_holding: whether keys are held back.
    """

    def __init__(
        self,
        screen: Screen[Any],
        forward: Callable[[events.Key | events.Paste], Awaitable[None]],
        *,
        of_fields: bool = False,
    ) -> None:
        self._of_fields = of_fields
        self.screen = screen
        self._forward = forward
        self._held: list[events.Key | events.Paste] = []
        self._openings: set[object] = set()
        """A token for everything that is being opened."""
        self._n_hold = 0
        """The number of holds, so that the end of an earlier one does not end this one."""
        self.is_holding = False
        self._limits: tuple[Timer, ...] = ()
        """Timers that end a hold that lasts too long."""
        self._is_leaving = False
        """Whether another session is about to replace this one, so that typed text is meant for the other."""
        self._left: Widget | None = None
        """The widget that had the focus when a key that leaves a field was pressed."""
        self._dropped_at = 0.0
        """The monotonic time at which the newest dropped key was read."""
        self._shown: PaintWatch | None = None
        """Tells since when the opened widget, or text written meanwhile, is visible; None before the first opening."""
        self._refused_at = float("-inf")
        """The monotonic time at which the newest key was read that would have sent a text blindly."""

    def intercept(self, event: events.Key | events.Paste) -> bool:
        """Hold a key back; return False for one that is to be handled as usual."""
        if not self.is_holding:
            if not self.screen.is_current:
                return False
            key = event.key if isinstance(event, events.Key) else ""
            is_of_burst = event.time - self._dropped_at < LEAVING_S and key not in PASSED
            if is_of_burst and self.screen.focused is self._left:
                self._dropped_at = event.time
                return True
            if self._of_fields:
                is_leaving = key in LEAVING and bool(_inputs(self.screen))
                self._left = self.screen.focused if is_leaving else None
                holds = is_leaving or (bool(key) and self._bubbles_up(event))
            else:
                holds = bool(key) and self._opens(key)
            if holds:
                self._hold()
            return False
        passed = ENDING if self._of_fields else PASSED
        if isinstance(event, events.Key) and event.key in passed:
            self._n_hold += 1
            self.is_holding = False
            self._held.clear()
            return False
        self._held.append(event)
        return True

    def _bubbles_up(self, event: events.Key | events.Paste) -> bool:
        """Return whether a parent of the focused widget may handle a key on a screen of fields or lists."""
        from textual.widgets import Input

        focused = self.screen.focused
        if isinstance(focused, FormField):
            return isinstance(event, events.Key) and event.key in focused.LEAVES
        is_field = isinstance(focused, Input)
        if not isinstance(event, events.Key) or (is_field and event.is_printable):
            return False
        if not isinstance(focused, Input | KeyList):
            return False
        bound = self.screen.active_bindings.get(event.key)
        if bound is None:
            return not event.is_printable
        return bound.node is not focused

    def _opens(self, key: str) -> bool:
        """Return whether a key opens something at the present focus, or may: Enter does after some of the commands."""
        if len(key) == 1 and isinstance(self.screen.focused, TextArea):
            return False  # a lookup of bindings would take 60 µs for each letter
        bound = self.screen.active_bindings.get(key)
        if bound is None or not bound.enabled:
            return False
        if bound.binding.id == "send":
            # Text that was typed just before may still be on its way to the prompt.
            return isinstance(bound.node, TextArea) and bound.node.text[:1] in ("", "/")
        return bound.binding.id in OPENING_KEYS

    def hold_back(self) -> None:
        """Hold back keys for what was begun to be opened by text, which no binding tells."""
        if not self.is_holding:
            self._hold()

    def _hold(self) -> None:
        """Hold back later keys until all effects of this key have happened."""
        self.is_holding = True
        self._n_hold += 1
        # This comes after the key, which is passed on when this returns.
        app_of(self.screen).call_next(self._begin, self._n_hold)

    def opening(self) -> Callable[[], None]:
        """Begin to open something: keys are held back until its screen is open, or until the returned function is called."""
        token = object()
        self._openings.add(token)
        self._show()

        def opened() -> None:
            self._openings.discard(token)
            if not self._openings and self.screen.is_current:
                self._release(self._n_hold)

        return opened

    def _show(self) -> None:
        self._shown = self._shown or PaintWatch(self.screen)
        self._shown.begin()

    def is_blind(self, at: float) -> bool:
        """Return whether a text was sent from the prompt before its writer could have seen that something else is being opened.

        It does not matter how the keys got there: a program that was stopped for a while releases them too early.

        Args:
            at: the monotonic time at which the key that sent it was read. A refused key restarts the wait.
        """
        if self._shown is None or (not self._openings and self.screen.is_current):
            return False
        if at - max(self._shown.seen_at, self._refused_at) >= QUIET_S:
            return False
        self._refused_at = max(self._refused_at, at)
        return True

    def leave(self) -> None:
        """Hold back all keys from now on, for the session that replaces this one."""
        self._is_leaving = self.is_holding = True

    def stay(self) -> None:
        """Flush the keys held back by `leave` to the present session, which stays."""
        if self._is_leaving:
            self._is_leaving = False
            self._release(self._n_hold)

    async def hand_over(self) -> None:
        """Flush the keys held back by `leave` to the other session, which is on the screen now."""
        self._is_leaving = False
        await self._flush(self._n_hold)

    def screen_opened(self) -> None:
        """Wait until the opened screen has the focus."""
        self._openings.clear()
        if self.is_holding:
            self._await_focus(self._n_hold, READY_ROUNDS)

    def _begin(self, hold: int) -> None:
        focused = self.screen.focused or self.screen
        self._pass_up(list(focused.ancestors_with_self) * ROUNDS, 0, hold)
        # The app owns the timers, as the effects of the key may close the screen.
        self._limits = (
            app_of(self.screen).set_timer(LONGEST_ROUND_S, lambda: self._done(hold)),
            self.screen.set_timer(LONGEST_WAIT_S, lambda: self._wait_no_longer(hold)),
        )

    def _pass_up(self, pumps: Sequence[MessagePump], at: int, hold: int) -> None:
        """Call `_done` when each of these has handled the messages that were in its queue."""
        while at < len(pumps):
            if pumps[at].call_later(self._pass_up, pumps, at + 1, hold):
                return
            at += 1
        self._done(hold)

    def _done(self, hold: int) -> None:
        """Release the held keys, since all messages of the key were handled, unless something is still being opened."""
        if not self._openings and (self.screen.is_current or self._of_fields):
            self._release(hold)

    def _wait_no_longer(self, hold: int) -> None:
        if not isinstance(self.screen.focused, TextArea):
            return
        if self._openings and hold == self._n_hold:
            # The widget being opened may ask a question: text that was typed blindly is shown, and waits for an Enter that is
            # pressed then.
            self._show()
        self._release(hold)

    def _await_focus(self, hold: int, rounds: int) -> None:
        top = app_of(self.screen).screen
        if top.focused is None and rounds:
            top.call_after_refresh(self._await_focus, hold, rounds - 1)
        else:
            self._release(hold)

    def _release(self, hold: int) -> None:
        if self.is_holding and hold == self._n_hold and not self._is_leaving:
            # The release goes through the queue of keys: keys that wait there were held back before, and keep their order.
            app_of(self.screen).call_later(self._flush, hold)

    async def _flush(self, hold: int) -> None:
        if not self.is_holding or hold != self._n_hold:
            return
        held, self._held, self.is_holding = self._held, [], False
        for limit in self._limits:
            limit.stop()
        if held and self._would_show():
            self._dropped_at = held[-1].time
            return
        for event in held:
            await self._forward(event)

    def _would_show(self) -> bool:
        """Return whether text that was typed for another field, and may be a secret, would be readable."""
        left = self._left
        if left is None or not self.screen.is_current or self.screen.focused is not left:
            return False
        secret = [field for field in _inputs(self.screen) if field.password]
        return bool(secret) and left not in secret


def _inputs(screen: Screen[Any]) -> list[Input]:
    """Return the fields of one line on a screen. Their class is imported with the first of these screens, and not at the start."""
    from textual.widgets import Input

    return list(screen.query(Input))
