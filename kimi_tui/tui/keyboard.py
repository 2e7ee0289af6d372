"""Keys: how they are written for people, and which of those that are pressed count as what.

What is typed before something was there to be seen (`QuietKeyboard`) or could have the focus (`TypeAhead`) was not meant
to answer it, or was meant for nothing else. In a `LineField` keys act in the order in which they were pressed. Where
letters are keys `letters` tells them from prose.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import events
from textual.keys import key_to_character
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, TextArea

from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.tui.hidden_keys import KeyCover
from kimi_tui.tui.screens import app_of

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.screen import Screen
    from textual.timer import Timer


QUIET_S = 0.5
"""Seconds without a key after which one may answer a question."""
CHORDS = ("alt+", "ctrl+", "super+", "hyper+", "meta+")
"""How keys begin that write nothing, whatever character Textual gives them."""
OPENING_KEYS = frozenset(
    (
        *("commands", "complete", "help", "search", "timeline"),
        *("chat.preview", "line.compare", "line.jump", "line.send"),
        *("timeline.bookmark", "timeline.choose", "timeline.filter", "timeline.keys"),
        *("timeline.read", "timeline.replay"),
    )
)
"""Actions, by their names in `[keys]`, that open something or go to it."""
ROUNDS = 3
"""How often what a key sets off goes up from the focused widget to the app: the key, its message, and an answer to that."""
LONGEST_ROUND_S = 0.5
"""After which a round counts as over, in which a widget was taken away."""
LONGEST_WAIT_S = 1.0
"""After which a user who writes in the prompt sees it there, whatever is still to be opened."""
READY_ROUNDS = 3
"""Refreshes of a new screen in which something of it may take the focus."""
ENDING = ("ctrl+c", "ctrl+q")
PASSED = (*ENDING, "escape")
"""Keys that are not held back, and let go of what is. On a screen of fields and lists nothing takes long, and Esc has its turn."""

LEAVING = ("tab", "shift+tab", "enter")
"""Keys that lead from one field to another."""
LEAVING_S = 0.2
"""So close behind one another keys are of one burst, in which nobody sees where they go."""

_KEY_NAMES = {
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "slash": "/",
    "backslash": "\\",
    "minus": "-",
    "plus": "+",
    "underscore": "_",
    "at": "@",
}


@cache
def key_name(key: str) -> str:
    """A key as people read it: `Ctrl+T`, `F1`, `Esc`; of several keys the first."""
    first = key.split(",")[0].strip()
    if len(first) == 1:
        return first  # a letter alone; J is another key than j
    parts = first.split("+")
    return "+".join(_KEY_NAMES.get(part) or _plain_name(part) for part in parts)


def _plain_name(part: str) -> str:
    """A letter, a sign or a function key, or the word on a key that needs no other name."""
    sign = key_to_character(part) or ""
    if sign.isprintable() and sign:
        return sign.upper()
    return part.upper() if part[1:].isdigit() else part.capitalize()


def keys_of(name: str, keys: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of an action (`send`, `help`, `chat.fold`) as they are now, as events name them; none where it has none.

    Args:
        name: as it stands in `[keys]`.
        keys: those of the configuration.
    """
    bound = keys.get(name, DEFAULT_KEYS.get(name, ""))
    return tuple(key.strip() for key in bound.split(",") if key.strip())


def key_of(name: str, keys: Mapping[str, str]) -> str:
    """The first key of an action as it is now, for people; empty where it has none. See `keys_of`."""
    found = keys_of(name, keys)
    return key_name(found[0]) if found else ""


def line_break_key(keys: Mapping[str, str]) -> str:
    """The key that begins a new line in the prompt: Enter itself where it does nothing else."""
    bound = {
        key
        for name, default in DEFAULT_KEYS.items()
        if "." not in name
        for key in keys.get(name, default).split(",")
    }
    return key_of("newline", keys) if "enter" in bound else key_name("enter")


class QuietKeyboard:
    """Tells whether a key may answer: only when none was pressed for half a second.

    What the user types for the prompt while a question appears must not answer it, so keys that come too early are
    dropped and begin the wait anew.

    Args:
        now: when the question was there to be seen, in monotonic time as events have it.
        last_key_at: when a key was pressed last.
        quiet_s: for how long none must have been pressed.
    """

    def __init__(self, now: float, last_key_at: float, quiet_s: float = QUIET_S) -> None:
        self._last = max(now, last_key_at)
        self._quiet_s = quiet_s

    def remaining_s(self, now: float) -> float:
        """How long it must still be quiet."""
        return max(0.0, self._last + self._quiet_s - now)

    def accepts(self, now: float) -> bool:
        """Whether a key pressed now counts; one that does not begins the wait anew.

        Keys that were read before, and handled only now, are no quiet: they never shorten the wait.
        """
        ready = self.remaining_s(now) == 0.0
        if not ready:
            self._last = max(self._last, now)
        return ready

    def begin_anew(self, now: float) -> None:
        """Wait again: what comes next may have been meant for something else."""
        self._last = max(self._last, now)


class InputResumed(Message):
    """The program was stopped, or could not read: keys that come now may have been pressed at any time since."""


class KeyList(Widget, can_focus=True):
    """A list that takes the arrows, and perhaps letters. Keys that it has no use for are its screen's, and those behind them
    wait: see `TypeAhead`."""


class TypeAhead:
    """Holds keys back behind one that is a command, until that has been carried out and what it opens has the focus.

    So it does, on a screen of fields and lists, behind every key that what has the focus does not take by itself: its parents
    do what it stands for only when it has bubbled up, and what was typed behind it would come first. Where a secret is asked
    for, and the key leads nowhere, what was typed behind one that leaves a field is void: it was meant for a field that shows
    nothing of it.

    Args:
        screen: whose commands they are.
        hand_on: gives a key to the app again.
        of_fields: whether it may be one of fields and lists.

    Attributes:
        screen: as above.
        is_holding: whether keys are held back.
    """

    def __init__(
        self,
        screen: Screen[Any],
        hand_on: Callable[[events.Key | events.Paste], Awaitable[None]],
        *,
        of_fields: bool = False,
    ) -> None:
        self._of_fields = of_fields
        self.screen = screen
        self._hand_on = hand_on
        self._held: list[events.Key | events.Paste] = []
        self._openings: set[object] = set()
        """What is on its way."""
        self._n_hold = 0
        """Counts holds, so that what ends an earlier one does not end this one."""
        self.is_holding = False
        self._limits: tuple[Timer, ...] = ()
        """End a hold that lasts too long."""
        self._is_leaving = False
        """Whether another session is about to take the place of this one, and what is typed is meant for that."""
        self._left: Widget | None = None
        """What had the focus when a key was pressed that leaves a field."""
        self._void_at = 0.0
        """When the newest key was read that was void."""

    def takes(self, event: events.Key | events.Paste) -> bool:
        """Whether a key is held back, and must not be handed on now."""
        if not self.is_holding:
            if not self.screen.is_current:
                return False
            key = event.key if isinstance(event, events.Key) else ""
            is_of_burst = event.time - self._void_at < LEAVING_S and key not in PASSED
            if is_of_burst and self.screen.focused is self._left:
                self._void_at = event.time
                return True
            if self._of_fields:
                is_leaving = key in LEAVING and bool(self.screen.query(Input))
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
        """Whether a key on a screen of fields or lists may be taken by what these lie in."""
        focused = self.screen.focused
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
        """Whether a key opens something where the focus is now, or may: Enter does behind some of the commands."""
        if len(key) == 1 and isinstance(self.screen.focused, TextArea):
            return False  # a letter of a text: looking bindings up would cost each of them 60 µs
        bound = self.screen.active_bindings.get(key)
        if bound is None or not bound.enabled:
            return False
        if bound.binding.id == "send":
            # What was typed at once may still be on its way to the prompt.
            return isinstance(bound.node, TextArea) and bound.node.text[:1] in ("", "/")
        return bound.binding.id in OPENING_KEYS

    def _hold(self) -> None:
        """A key is being handed on: hold back what follows until all that it sets off has been done."""
        self.is_holding = True
        self._n_hold += 1
        # Behind the key, which is handed on when this returns.
        app_of(self.screen).call_next(self._begin, self._n_hold)

    def opening(self) -> Callable[[], None]:
        """Something is being opened until it is there, or until what is returned is called."""
        token = object()
        self._openings.add(token)

        def opened() -> None:
            self._openings.discard(token)
            if not self._openings and self.screen.is_current:
                self._release(self._n_hold)

        return opened

    def leave(self) -> None:
        """Hold back all that is typed from here on for the session that takes the place of this one."""
        self._is_leaving = self.is_holding = True

    def stay(self) -> None:
        """The session stays, and gets what was typed meanwhile."""
        if self._is_leaving:
            self._is_leaving = False
            self._release(self._n_hold)

    async def hand_over(self) -> None:
        """The other session is on the screen: it gets what was typed meanwhile."""
        self._is_leaving = False
        await self._flush(self._n_hold)

    def screen_opened(self) -> None:
        """Another screen is over this one, and will soon have the focus."""
        self._openings.clear()
        if self.is_holding:
            self._await_focus(self._n_hold, READY_ROUNDS)

    def _begin(self, hold: int) -> None:
        focused = self.screen.focused or self.screen
        self._pass_up(list(focused.ancestors_with_self) * ROUNDS, 0, hold)
        # Of the app, for what the key sets off may close the screen.
        self._limits = (
            app_of(self.screen).set_timer(LONGEST_ROUND_S, lambda: self._done(hold)),
            self.screen.set_timer(LONGEST_WAIT_S, lambda: self._wait_no_longer(hold)),
        )

    def _pass_up(self, pumps: Sequence[MessagePump], at: int, hold: int) -> None:
        """Go on when each of these has handled what was in its queue."""
        while at < len(pumps):
            if pumps[at].call_later(self._pass_up, pumps, at + 1, hold):
                return
            at += 1
        self._done(hold)

    def _done(self, hold: int) -> None:
        """All that the key has set off was done, but for what is still to be opened."""
        if not self._openings and (self.screen.is_current or self._of_fields):
            self._release(hold)

    def _wait_no_longer(self, hold: int) -> None:
        if isinstance(self.screen.focused, TextArea):
            self._release(hold)

    def _await_focus(self, hold: int, rounds: int) -> None:
        top = app_of(self.screen).screen
        if top.focused is None and rounds:
            top.call_after_refresh(self._await_focus, hold, rounds - 1)
        else:
            self._release(hold)

    def _release(self, hold: int) -> None:
        if self.is_holding and hold == self._n_hold and not self._is_leaving:
            # In the queue of the keys: those that wait there are held back before, and keep their order.
            app_of(self.screen).call_later(self._flush, hold)

    async def _flush(self, hold: int) -> None:
        if not self.is_holding or hold != self._n_hold:
            return
        held, self._held, self.is_holding = self._held, [], False
        for limit in self._limits:
            limit.stop()
        if held and self._would_show():
            self._void_at = held[-1].time
            return
        for event in held:
            await self._hand_on(event)

    def _would_show(self) -> bool:
        """Whether what was typed for another field, which may be a secret, would stand where it can be read."""
        left = self._left
        if left is None or not self.screen.is_current or self.screen.focused is not left:
            return False
        fields = self.screen.query(Input)
        return any(field.password for field in fields) and not (
            isinstance(left, Input) and left.password
        )


class LineField(Input):
    """As Textual's, which takes letters at once and does what Ctrl+U or Enter stand for only when these have bubbled up.

    Keys of servers are covered in it, as `hidden_keys` says.

    Args:
        args: of Textual's.
        is_address: an address is expected here.
        options: of Textual's.
    """

    class KeyEntered(Message):
        """What looks like the key of a server came in one piece, into a field that shows what is written."""

        def __init__(self, field: LineField, key: str) -> None:
            super().__init__()
            self.field = field
            self.key = key

        @property
        def control(self) -> LineField:
            """The field."""
            return self.field

    def __init__(self, *args: Any, is_address: bool = False, **options: Any) -> None:
        # Textual asks for what is shown as soon as there is a value.
        self._key_cover = KeyCover(
            self,
            lambda: "" if self.password else self.value,
            self._key_entered,
            self.refresh,
            is_address=is_address,
        )
        super().__init__(*args, compact=True, **options)
        # Nothing blinks here.
        self.cursor_blink = False

    def _key_entered(self, key: str) -> None:
        if not self.password:
            self.post_message(self.KeyEntered(self, key))

    def take_out(self, key: str) -> None:
        """Leave a key out that came in here; what it took the place of is back."""
        self.value = self._key_cover.without(key)
        self.cursor_position = len(self.value)

    @property
    def _value(self) -> Text:
        """What is shown; overrides a private one of Textual's, the only place that says so."""
        if self.password:
            return super()._value
        shown = self._key_cover.covered(self.value, self.cursor_position)
        return Text(shown, no_wrap=True, overflow="ignore", end="")

    def _on_paste(self, event: events.Paste) -> None:
        self._key_cover.pasted(next(iter(event.text.splitlines()), ""))

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable:
            self._key_cover.typed(event.character or "", event.time)
        else:
            self._key_cover.ended()
        bound = None if event.is_printable else self.screen.active_bindings.get(event.key)
        # What it has no use for, as Down, its parents may have.
        if (
            bound is not None
            and bound.node is self
            and (not bound.enabled or await app_of(self).run_action(bound.binding.action, self))
        ):
            event.stop()
            event.prevent_default()
