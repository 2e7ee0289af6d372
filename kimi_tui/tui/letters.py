"""Letters as keys, where nothing is written, told from prose that is typed there and meant for the prompt.

One that does something waits a moment whether another one follows: those that come close behind one another are prose, but
for one that is held. What only moves about is done at once. Times are those at which keys were read, so that a busy program
takes neither for the other.

| where | a letter that does something | any other letter | prose |
|---|---|---|---|
| bindings of a screen: `LetterGate` | pressed when it has settled | is no key, which is said | written |
| the cursor in a text: `CursorLetters` | moves it at once, ends it when it has settled | is no key, which is said | written |
| a question: `SeenQuestion` | answers when it has settled, if all could be read before | begins prose | answers nothing |

All of them have a `LetterRun`, which knows what was typed last.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.screen import Screen, ScreenResultType
from textual.widget import Widget

from kimi_tui.tui.keyboard import CHORDS, QUIET_S, QuietKeyboard
from kimi_tui.tui.screens import AnswersOnce, app_of
from kimi_tui.tui.terminal_input import when_written

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.timer import Timer

_LATE_S = 0.1
"""A timer that comes so much later than it was to may come behind a stop of the program."""
_LOOKS_S = 0.25
"""By then it is known whether it was one: see `InputResumed`."""
Act = Callable[[int], Awaitable[None] | None]
"""Does what a letter does, so many times."""
MOVES = frozenset(
    (
        *("chat.above", "chat.below", "chat.fold", "search.before", "search.next"),
        *("compare.down", "compare.next", "compare.unfold", "compare.up"),
        *("replay.timeline", "timeline.down", "timeline.fold", "timeline.up"),
    )
)
"""Actions, by their names in `[keys]`, that only move about; signs act at once whatever they do."""


LEADS = {"chat.copy_mode": frozenset("hjklwbGV0$^[]")}
"""Actions whose letter goes on with others: with these behind it, it begins no word."""


def row_of_digit(letter: str, n_rows: int) -> int | None:
    """Which of some rows of answers a digit chooses, as other programs number them; None where it is none, or there is no such row."""
    return int(letter) - 1 if letter in frozenset("123456789"[:n_rows]) else None


def unhandled(event: events.Key, node: MessagePump) -> events.Key:
    """The same key as the app gets it from the terminal, read at the same time."""
    again = event.copy()
    again.time = event.time
    # Sent by anyone else it would go up no higher than there, and the app looks bindings up.
    again.set_sender(app_of(node))
    return again


class LetterRun:
    """The letters that were read close behind one another, of which the newest may wait.

    Args:
        node: in whose queue a letter acts that has waited.
        write: given what is prose.
        typed_at: when something was written last that this may go on with; 0 for never.
    """

    SETTLE_S: ClassVar[float] = 0.25
    """Seconds without another letter after which one acts; 0 for at once."""

    def __init__(
        self, node: MessagePump, write: Callable[[str], None], typed_at: float = 0.0
    ) -> None:
        self._node = node
        self._write = write
        self._text = ""
        self._last = typed_at
        self._is_prose = typed_at > 0
        self._only_moves = False
        self._act: Act | None = None
        self._times = 0
        self._timer: Timer | None = None

    @property
    def waits(self) -> bool:
        """Whether a letter has not acted yet."""
        return self._act is not None

    def follows(self, at: float) -> bool:
        """Whether a key that was read at a monotonic time is close behind a letter."""
        return bool(self._text or self._is_prose) and at - self._last < self.SETTLE_S

    def is_prose(self, at: float) -> bool:
        """Whether a key that was read at a monotonic time goes on with prose."""
        return self._is_prose and self.follows(at)

    def go_on(self, at: float) -> None:
        """Take letters for prose that are close behind what was written at a monotonic time."""
        self.drop()
        self._text, self._is_prose, self._last = "", True, at

    def take(self, letter: str, at: float, act: Act | None, *, moves: bool = False) -> bool:
        """Take a letter as one that waits, or as prose; False for one that acts at once, as it only moves about.

        Args:
            letter: what was typed. One that waits longer than it must is to have settled before.
            at: when it was read, in monotonic time.
            act: what it does; None where it is no key and so begins prose.
            moves: it only moves about.
        """
        if not self.follows(at):
            self._text, self._is_prose = "", False
        elif self._only_moves and len(self._text) > 1 and not moves:
            self._text = ""  # nobody begins a word so who has moved about
        self._last = at
        before, self._text = self._text, self._text + letter
        self._only_moves = moves and (self._only_moves or not before)
        is_held = set(self._text) == {letter}
        if self._is_prose or act is None or not (is_held or self._only_moves):
            text = self._text
            self.go_on(at)
            self._write(text)
        elif moves:
            return False
        else:
            self._times = self._times + 1 if self.waits else 1
            self._act = act
            self.wait(at + self.SETTLE_S - time.monotonic())
        return True

    @property
    def is_held(self) -> bool:
        """Whether the letter that waits came so often that a key is held."""
        return self.waits and self._times > 2

    def wait(self, wait_s: float | None) -> None:
        """Let the letter that waits act after so long (None: not yet), behind the keys that have been read by then."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if wait_s is not None and wait_s > 0:
            due = time.monotonic() + wait_s
            self._timer = self._node.set_timer(wait_s, partial(self._come_round, due))
        elif wait_s is not None:
            self._go_round()

    def _come_round(self, due: float) -> None:
        if time.monotonic() - due > _LATE_S:
            self.wait(_LOOKS_S)
        else:
            self._go_round()

    def _go_round(self) -> None:
        app_of(self._node).call_later(self._node.call_later, self._settle_due, self._last)

    async def _settle_due(self, last: float) -> None:
        if last == self._last:
            await self.settle()

    def drop(self) -> None:
        """Let the letter that waits do nothing."""
        self._act = None
        self.wait(None)

    def withdraw(self) -> str:
        """The letters that wait, which do nothing and begin nothing; empty for none."""
        text = self._text if self.waits else ""
        self._text = ""
        self.drop()
        return text

    async def settle(self) -> None:
        """Let the letter that waits act now."""
        act, times = self._act, self._times
        self.drop()
        if act is not None and isawaitable(done := act(times)):
            await done


class CursorLetters:
    """Tells prose from the letters that move a cursor.

    Most letters move it, and do so at once. One that ends it, or is no key, waits whether another one follows: then all
    that was typed close behind one another is prose.

    Args:
        node: in whose queue a letter acts that has waited.
        action_of: what a key does to the cursor; empty for nothing.
        act: does that.
        write: given what is prose.
        unknown: told of a letter that is no key, where no other one came behind it.
    """

    ENDS = ("take", "leave")

    def __init__(
        self,
        node: MessagePump,
        action_of: Callable[[str], str],
        act: Callable[[str], None],
        write: Callable[[str], None],
        unknown: Callable[[str], None],
    ) -> None:
        self._run = LetterRun(node, write)
        self._action_of = action_of
        self._act = act
        self._write = write
        self._unknown = unknown
        self._burst = ""
        """What was typed close behind one another."""
        self._last = 0.0

    async def takes(self, event: events.Key) -> bool:
        """Whether a key waits or was prose, and must not be handed on now."""
        run, letter = self._run, event.character or ""
        is_text = event.is_printable and not event.key.startswith(CHORDS)
        if not is_text or event.time - self._last >= run.SETTLE_S:
            await run.settle()
            self._burst = ""
        if not is_text:
            return False
        self._last = event.time
        is_held = run.waits and self._burst.endswith(letter)
        self._burst += letter
        if run.waits and not is_held:
            run.drop()
            text, self._burst = self._burst, ""
            self._write(text)
            return True
        action = self._action_of(event.key)
        if action and action not in self.ENDS:
            return False
        if not is_held:
            run.withdraw()
        run.take(letter, event.time, partial(self._settled, action, letter))
        if not run.SETTLE_S:
            await run.settle()
        return True

    def _settled(self, action: str, letter: str, _: int) -> None:
        self._burst = ""
        if action:
            self._act(action)
        elif letter.isascii() and letter.isalnum():
            self._unknown(letter)


class LetterGate:
    """Holds letters back that are bound where the focus is on a screen.

    Args:
        screen: whose bindings they are.
        write: given what is prose.
        hand_on: gives the app a key that was held back; None for behind those that were read meanwhile.
        unknown: told of a letter that is bound to nothing, where no other one came behind it; without, nobody is.
    """

    def __init__(
        self,
        screen: Screen[Any],
        write: Callable[[str], None],
        hand_on: Callable[[events.Key], Awaitable[None]] | None = None,
        unknown: Callable[[str], None] | None = None,
    ) -> None:
        self._screen = screen
        self._hand_on = hand_on
        self._unknown = unknown
        self._handed: deque[events.Key] = deque(maxlen=4)
        self._led: frozenset[str] = frozenset()
        """The letters that may follow the one that waits."""
        self.run = LetterRun(screen, write)

    async def takes(self, event: events.Key) -> bool:
        """Whether a key waits or was prose, and must not be handed on now."""
        if event in self._handed:
            return False
        run, letter = self.run, event.character or ""
        if run.waits and not run.follows(event.time):
            await run.settle()
        if run.waits and letter in self._led:
            await run.settle()
            return False
        bound = self._screen.active_bindings.get(event.key)
        is_text = event.is_printable and not event.key.startswith(CHORDS)
        is_sign = bound is not None and not letter.isalnum()
        goes_on = run.follows(event.time) and (letter == " " or run.is_prose(event.time))
        if not is_text or (is_sign and not goes_on):
            # Handed on behind other keys, it would be pressed where those have led.
            run.drop() if self._hand_on is None else await run.settle()
            return False
        act: Act | None = partial(self._press, event, self._screen.focused)
        if bound is None and self._unknown is not None:
            # Other signs and scripts are no keys that anyone could mean.
            is_letter = letter.isascii() and letter.isalnum()
            act = partial(self._tell, letter) if is_letter else None
        moves = bound is not None and bound.binding.id in MOVES
        is_taken = run.take(letter, event.time, act, moves=moves)
        self._led = LEADS.get(bound.binding.id or "", frozenset()) if bound else frozenset()
        if run.is_held or not run.SETTLE_S:
            await run.settle()
        return is_taken

    def _tell(self, letter: str, _: int) -> None:
        if self._unknown is not None and self._screen.is_active:
            self._unknown(letter)

    async def _press(self, event: events.Key, focused: Widget | None, times: int) -> None:
        for _ in range(times):
            if self._screen.is_active and self._screen.focused is focused:
                again = unhandled(event, self._screen)
                self._handed.append(again)
                if self._hand_on is not None:
                    await self._hand_on(again)
                else:
                    app_of(self._screen).post_message(again)


TOO_EARLY = "that came too early: press it again"
"""What a screen says of a key that answers nothing yet."""


class SeenQuestion:
    """Tells whether a key may answer a screen: when the terminal has taken its picture, and no key came for a while.

    A letter answers when no other one has come close behind it: a word that begins with it was meant for the prompt.

    Args:
        screen: what asks.
    """

    QUIET_S: ClassVar[float] = QUIET_S

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen
        self._quiet: QuietKeyboard | None = None
        self._letters = LetterRun(screen, lambda _: self.begin_anew())

    def ask(self) -> None:
        """The screen is mounted, or asks something from now on."""
        self._quiet = None
        self._letters.drop()
        self._screen.call_after_refresh(when_written, self._screen, self._painted)

    def _painted(self) -> None:
        self._quiet = QuietKeyboard(time.monotonic(), 0.0, self.QUIET_S)

    @property
    def is_open(self) -> bool:
        """Whether a key would count now."""
        return self._quiet is not None and self._quiet.remaining_s(time.monotonic()) == 0.0

    def accepts(self, event: events.Key) -> bool:
        """Whether a key counts, by when it was read; one that does not begins the wait anew."""
        return self._quiet is not None and self._quiet.accepts(event.time)

    async def takes(self, letter: events.Key, answer: Callable[[], None] | None) -> bool:
        """Take a letter that was typed; False where it came too early.

        Args:
            letter: that.
            answer: gives the answer that it stands for, when it has settled; None for one that stands for none.
        """
        letters, at = self._letters, letter.time
        if letters.waits and not letters.follows(at):
            await letters.settle()
        if not self.accepts(letter):
            letters.drop()
            return False

        def settled(_: int) -> None:
            if answer is not None and self._screen.is_current:
                answer()

        letters.take(letter.character or "", at, None if answer is None else settled)
        if not letters.SETTLE_S:
            await letters.settle()
        return True

    def begin_anew(self) -> None:
        """What comes now may have been typed while the program was stopped, or meant for something else."""
        self._letters.drop()
        if self._quiet is not None:
            self._painted()


class LetterAnswerScreen(AnswersOnce[ScreenResultType]):
    """A screen with a question that letters answer. `AnswersOnce` says in which place this stands among the bases."""

    @cached_property
    def seen(self) -> SeenQuestion:
        """Tells whether a letter was pressed when the question could be read."""
        return SeenQuestion(self)

    def woken(self) -> None:
        """The question is to be read anew."""
        self.seen.begin_anew()
