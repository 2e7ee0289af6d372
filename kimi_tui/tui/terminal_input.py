"""Reads the terminal's input so that no byte of it ends the program and no pasted text presses keys.

Textual decodes strictly, and takes the letters after an escape within a pasted text for typed ones, Enter included. It also
takes Alt+Enter for Enter in terminals without kitty's protocol, as most are.

The terminal is also asked whether it is light or dark and which graphics it draws. It answers among the keys, late, in pieces
or not at all, so nothing waits for its answer, and no part of it becomes a key. If it can, it reports later changes of its
colours.

Output may be under way for long: the system holds 20 kB between a program and its terminal, a slow line far more. So a
terminal that answers is asked whether it has drawn a question (`WriteAcknowledgements`). The answer comes among the keys:
keys before it were pressed before the question was visible.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, cast

from textual import events
from textual.message import Message
from textual.messages import TerminalSupportsSynchronizedOutput

from kimi_tui.config.keymap import EDITING
from kimi_tui.foreign_text import clean
from kimi_tui.tui.faults import Callbacks, report_of
from kimi_tui.tui.key_sequences import (
    BEGINNINGS,
    ESC,
    PASTE_END,
    PASTE_START,
    SequenceReader,
    sequence_keys,
)
from kimi_tui.tui.palette import is_light
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.shutdown import lose_terminal
from kimi_tui.tui.textual_patches.app import driver_of
from kimi_tui.tui.textual_patches.terminal import (
    ANSI_SEQUENCES_KEYS,
    ParseError,
    PatchedDriver,
    PatchedParser,
)
from kimi_tui.tui.typed_bursts import BURST_S, Bursts, TypedPaste

if TYPE_CHECKING:
    from threading import Event

    from textual.app import App
    from textual.message_pump import MessagePump

    from kimi_tui.instant.typed import Ahead

ASK = "\x1b]11;?\x07\x1b[?2031h"
"""Asks for the colour of the background, and to be notified when the terminal turns light or dark."""
NO_MORE = "\x1b[?2031l"
CUT_S = 1.0
"""Seconds to wait for the rest of an incomplete answer."""
_BODY = "[rgba:#0-9A-Fa-f/]{0,40}+"
_BACKGROUND_ANSWER = re.compile(
    rf"\x1b\]1(\d);({_BODY})(?:(\x07|\x1b\\)|(?=[^\x1b])|(?=\x1b[^\\]))|\x1b\[\?997;(\d)n",
    re.DOTALL,
)
"""An answer, or an incomplete one: the text after it was typed."""
_BEGUN_BACKGROUND = re.compile(
    rf"(?:\x1b\](?:1(?:\d(?:;{_BODY}\x1b?)?)?)?|\x1b\[(?:\?(?:9(?:9(?:7(?:;\d?)?)?)?)?)?)\Z"
)
_BACKGROUND = "1"
_LIGHT = "2"


class InputResumed(Message):
    """The program was stopped, or could not read: keys that come now may have been pressed at any time since."""


class ExtendedKeysTold(Message):
    """The terminal has reported, or shown, that it sends Shift+Enter as a key of its own."""


class InstantTerminal(Protocol):
    """The terminal in the hands of the instant prompt (`kimi_tui.instant.prompt`).

    Attributes:
        attributes: the settings of the terminal before it was taken.
    """

    attributes: list[Any]

    def hand_over(self, ends: Event) -> Ahead:
        """Wait until the first frame can be drawn or the program ends, stop, and return what was typed."""
        ...

    def let_go(self) -> None:
        """Leave the restoring of the terminal to the driver."""


class TextTypedAhead(Message):
    """The user typed this text before the app read the terminal. It comes before all keys; `at` is a monotonic time."""

    def __init__(self, text: str, at: float) -> None:
        super().__init__()
        self.text = text
        self.at = at


class AheadPassedOn(Message):
    """Keys that were pressed before the app read the terminal were passed on.

    Attributes:
        n_pieces: the number of pieces of the input (`Ahead.rest`) with which they were pressed.
        is_all: whether these are all.
    """

    def __init__(self, n_pieces: int, *, is_all: bool) -> None:
        super().__init__()
        self.n_pieces = n_pieces
        self.is_all = is_all


class BackgroundTold(Message):
    """The terminal has reported whether it is light."""

    def __init__(self, *, light: bool) -> None:
        super().__init__()
        self.light = light


class BackgroundAnswers:
    """Removes the terminal's answers from the typed text."""

    def __init__(self) -> None:
        self._held = ""
        self._held_at = 0.0

    @property
    def is_holding(self) -> bool:
        """Whether a text waits for its continuation."""
        return bool(self._held)

    def take(self, text: str, now: float) -> tuple[str, bool | None]:
        """Return the rest of a text, and whether the terminal is light if it says so.

        Args:
            text: the new input.
            now: the monotonic time.
        """
        if not self._held and "\x1b" not in text:
            return text, None
        text, self._held = self._held + text, ""
        told: bool | None = None

        def read(found: re.Match[str]) -> str:
            nonlocal told
            kind, colour, end, changed = found.groups()
            light = changed == _LIGHT if changed else None
            if kind == _BACKGROUND and end:
                light = is_light(colour)
            told = told if light is None else light
            return ""

        text = _BACKGROUND_ANSWER.sub(read, text)
        begun = _BEGUN_BACKGROUND.search(text)
        start = len(text) if begun is None else begun.start()
        if text.endswith("\x1b"):
            # This may be the beginning of an answer or notice whose rest is under way, or the key: the next moment will show.
            start = min(start, len(text) - 1)
        self._held, self._held_at = text[start:], now
        return text[:start], told

    def let_go(self, now: float) -> str:
        """Release the input that waited, if nothing has followed it; nothing of an incomplete answer."""
        is_answer = len(self._held) > len("\x1b]11")
        if is_answer and now - self._held_at < CUT_S:
            return ""
        held, self._held = self._held, ""
        return "" if is_answer else held


_READ_BYTES = 4096
_LOOK_S = 0.1
_WRITTEN_S = 0.02
"""The least number of seconds between two checks whether the terminal has accepted the drawn output."""
_WRITTEN_SHARE = 0.125
"""What the time until the next check is of the time that it has taken already."""
_SELDOM_S = 1.0
"""The largest number of seconds between two of these checks."""
_STALLED_S = 0.4
"""Seconds of delay of the next check that occur only if the program did not run.

Terminals do not report when a key was pressed, only when it is read. After a shorter stop the key was pressed at most
`_LOOK_S` plus this time before, which is less than the time that a question has been visible by then (`QUIET_S` after it was
painted).
"""

Graphics = Literal["", "kitty", "sixel"]
"""The graphics that a terminal draws by itself; empty for text only."""
_GRAPHICS_QUESTION = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"
"""Asks for kitty's graphics; and for the attributes that every terminal reports, in which 4 means sixels."""
_GRAPHICS_ANSWER = re.compile(r"\x1b_G([^\x1b]{0,200})\x1b\\|\x1b\[\?([0-9;]{0,60})c")
_BEGUN_GRAPHICS = re.compile(r"\x1b(?:_(?:G[^\x1b]{0,200}\x1b?)?|\[(?:\?[0-9;]{0,60})?)?$")

_STATUS_QUESTION = "\x1b[5n"
"""Asks for the status of the terminal, which answers when it has drawn everything that was written before."""
_STATUS_ANSWERS = frozenset({"\x1b[0n", "\x1b[3n"})
FIRST_ANSWER_S = 5.0
"""Seconds in which a newly taken terminal must give its first answer; one that gives none is not waited for."""
LONGEST_ANSWER_S = 60.0
LAST_ANSWER_S = 5.0
"""A terminal that answered before, and owes an answer for `LONGEST_ANSWER_S`, counts as silent if it gives none for this many
seconds after a key either: after a broken line is restored, keys come at once, and the answers with them.
"""

MOST_LOST = 8
"""The largest number of answers that are assumed to be lost or late."""

_ALT_ENTER = frozenset({"\x1b\r", "\x1b\n"})
"""Alt+Enter as most terminals send it: an escape before the character of the key alone."""
_OWN_KEY = "shift+enter"
"""A key that an older terminal cannot send."""
_REPORT = re.compile(
    r"\x1b\[(?:200~|201~|[IO]|<[-\d;]{1,24}[mM]|\?\d{1,5};\d\$y|48;[\d:;]{1,24}t)\Z"
)
"""Reports that Textual reads besides keys: marks of pastes, focus, the mouse, modes and sizes."""
_KITTY_ANSWER = re.compile(r"\x1b\[\?(\d{1,4})u\Z")
_OTHER_KEYS_ANSWER = re.compile(r"\x1b\[>4;(\d)m\Z")
_KITTY_KEYS = "\x1b[=4;2u"
"""Asks kitty's protocol to report the key of the same place on a Latin keyboard as well, which Textual does not."""
_OTHER_KEYS = "\x1b[>4;1m"
"""Asks xterm's modifyOtherKeys for keys that are otherwise sent as others, such as Shift+Enter; usual keys are sent as usual."""
_KITTY_KEYS_QUESTION, _OTHER_KEYS_QUESTION = "\x1b[?u", "\x1b[?4m"
_OTHER_KEYS_GIVEN_BACK = "\x1b[>4m"
_ANY_KITTY_KEYS = "\x1b[=29;1u"
"""Kitty's protocol as Textual and this program request it, set anew and not pushed once more, because it is popped only once."""
_MODES = "\x1b[?25l\x1b[?1004h\x1b[?2004h\x1b[?7l"
"""The modes of the terminal: hide its cursor, report the focus, mark pastes, break no lines."""
_MOUSE = "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h"
_SCREEN_QUESTION = "\x1b[?1049$p"
_SCREEN_LOST = "\x1b[?1049;2$y"
_KITTY_PUSHED = "\x1b[>25u"
"""Kitty's protocol as Textual requests it at its start."""
_OTHER_SCREEN = "\x1b[?1049h"
_OTHER_SCREEN_AS_IT_IS = "\x1b[?1047h"
"""Switches to the other screen like the sequence above, for a terminal that cannot be asked; it leaves the cursor saved for
the end unchanged.
"""
_OLD_MOUSE = re.compile(r"\x1b\[M(...)\Z", re.DOTALL)
_RXVT_MOUSE = re.compile(r"\x1b\[(\d{1,3});(\d{1,4});(\d{1,4})M\Z")


def _as_sgr_mouse(sequence: str, pressed: int) -> tuple[str, int]:
    """Convert a mouse report of early xterms and rxvt to the form that Textual reads; empty for any other sequence.

    Args:
        sequence: a complete sequence.
        pressed: the code of the button that was pressed last, as a release does not name its button.

    Returns:
        the report, and the code of the button that is pressed now or was.
    """
    if (found := _RXVT_MOUSE.match(sequence)) is not None:
        code, column, row = (int(one) for one in found.groups())
    elif (old := _OLD_MOUSE.match(sequence)) is not None:
        code, column, row = (ord(one) for one in old[1])
        column, row = column - 32, row - 32
    else:
        return "", pressed
    code = max(0, code - 32)
    is_up = code & 3 == 3 and not code & 96
    if is_up:
        code = code & ~3 | pressed
    elif not code & 96:
        pressed = code & 3
    return f"\x1b[<{code};{column};{row}{'m' if is_up else 'M'}", pressed


class KeyParser(PatchedParser):
    """Textual's parser, which gets only input that it knows; keys that it does not know or takes for others are handled here.

    Attributes:
        splits_alt: whether a letter after an escape means Esc and that letter, and not the letter with Alt.

    Args:
        debug: whether Textual logs its input.
        chords: the names of keys that the user has given to actions.
        arrived: called when the terminal answers that it has drawn everything that was written before the question.
        extended: called when the terminal is known to send Shift+Enter as a key of its own.
        screen_lost: called when the terminal reports that it shows its usual screen.
    """

    splits_alt = False

    def __init__(
        self,
        debug: bool = False,
        chords: frozenset[str] = frozenset(),
        arrived: Callable[[], object] = lambda: None,
        extended: Callable[[], object] = lambda: None,
        screen_lost: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(debug)
        self._bound = chords | EDITING
        self._arrived = arrived
        self._extended = extended
        self._screen_lost = screen_lost
        self._sequences = SequenceReader()
        self._pressed = 0

    def feed(self, data: str) -> Iterable[Message]:
        """Yield the keys, pastes and other messages in the input that can be passed on (see `Incoming.text`)."""
        if not data:
            yield from super().feed(data)  # the end, to Textual
            return
        for piece in self._sequences.feed(data, time.monotonic()):
            yield from self._messages_of_piece(piece)

    def tick(self) -> Iterable[Message]:
        """Yield the keys whose sequence could have been the beginning of another one."""
        for piece in self._sequences.let_go(time.monotonic()):
            yield from self._messages_of_piece(piece)

    def _messages_of_piece(self, piece: str) -> Iterable[Message]:
        if piece[0] != ESC:
            return super().feed(piece)
        if piece == ESC:
            return (events.Key("escape", ESC),)
        if piece in _ALT_ENTER:
            return (events.Key("alt+enter", None),)
        if len(piece) == len("\x1bd") or (self.splits_alt and piece.startswith("\x1bO")):
            return self._behind_escape(piece)
        if piece in _STATUS_ANSWERS:
            self._arrived()
        elif piece == _SCREEN_LOST:
            self._screen_lost()
        elif (found := _KITTY_ANSWER.match(piece) or _OTHER_KEYS_ANSWER.match(piece)) is not None:
            if int(found[1]):
                self._extended()
        elif piece.startswith(ESC + ESC):
            return sequence_keys(f"\x1b[1;3{piece[-1]}") or ()
        elif _REPORT.match(piece):
            return super().feed(piece)
        else:
            mouse, self._pressed = _as_sgr_mouse(piece, self._pressed)
            return super().feed(mouse) if mouse else self._keys_of(piece)
        return ()

    def _behind_escape(self, piece: str) -> Iterable[Message]:
        """Return the meaning of one character after an escape: a key with Alt, or Esc and that character."""
        if self.splits_alt and (known := self._keys_of(piece)) and len(piece) > len("\x1bd"):
            return known
        if self.splits_alt:
            typed = [key for one in piece[1:] for key in self.typed(one)]
            return (events.Key("escape", ESC), *typed)
        # Textual takes some digits with Alt for what one keyboard of a Mac writes with them.
        if not isinstance(ANSI_SEQUENCES_KEYS.get(piece), str) and (known := self._keys_of(piece)):
            return known
        # Characters other than letters are included, which Textual would write.
        plain = self.typed(piece[1], alt=True)
        held = [
            key if key.key.startswith("alt+") else events.Key(f"alt+{key.key}", None)
            for key in plain
        ]
        if piece[1] not in BEGINNINGS and not any(key.key in self._bound for key in held):
            # Nothing has this key with Alt. So these are Esc and the next key, which the terminal sends in the same way: both
            # would be lost, and they may be Esc to stop and Ctrl+Q to quit, or Esc and the slash of a command.
            return (events.Key("escape", ESC), *self.typed(piece[1]))
        return held

    def _keys_of(self, sequence: str) -> tuple[events.Key, ...]:
        """Return the keys of a complete sequence; none for an unknown one."""
        found = sequence_keys(sequence)
        if found is None:
            known = ANSI_SEQUENCES_KEYS.get(sequence)
            if isinstance(known, str):
                return tuple(self.typed(known))
            found = (
                tuple(events.Key(key.value, None) for key in known)
                if isinstance(known, tuple)
                else ()
            )
        if any(key.key == _OWN_KEY for key in found):
            self._extended()
        return found


class Incoming:
    """Converts bytes to text for Textual's parser: always text, and a paste in one piece without terminal sequences.

    Args:
        answers: removes the terminal's reports about itself.
        tell: called with whether the terminal is light, when it reports that.
    """

    def __init__(self, answers: BackgroundAnswers, tell: Callable[[bool], None]) -> None:
        self._answers = answers
        self._tell = tell
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._tail = ""
        """The newest characters, as a mark may be split in two."""
        self._is_pasted = False
        self._pasted: list[str] = []

    def text(self, data: bytes) -> str:
        """Return the text that can be passed on after these bytes; a paste only when it is complete."""
        text = self._decoder.decode(data)
        out: list[str] = []
        while text:
            mark = PASTE_END if self._is_pasted else PASTE_START
            seen = self._tail + text
            place = seen.find(mark)
            end = len(text) if place < 0 else place + len(mark) - len(self._tail)
            self._tail = seen[1 - len(mark) :] if place < 0 else ""
            if self._is_pasted:
                self._pasted.append(text[:end])
            else:
                typed, light = self._answers.take(text[:end], time.monotonic())
                out.append(typed)
                if light is not None:
                    self._tell(light)
            text = text[end:]
            if place < 0:
                continue
            if self._is_pasted:
                body = "".join(self._pasted).removesuffix(mark)
                self._pasted.clear()
                out += [clean(body) if "\x1b" in body else body, mark]
            self._is_pasted = not self._is_pasted
        return "".join(out)


class GraphicsAnswerFilter:
    """Filters the terminal's answer to the graphics query out of the input, once the query was sent."""

    def __init__(self) -> None:
        self._told: Callable[[Graphics], object] | None = None
        self._waits = False
        self._is_kitty = False
        self._begun = ""

    def await_it(self, told: Callable[[Graphics], object]) -> None:
        """Expect the terminal's answer, and pass it to a function, in the thread that reads."""
        self._waits, self._told = True, told

    def stop_waiting(self) -> None:
        """Hold nothing back any more for an answer that does not come."""
        self._waits = False

    def rest(self, text: str, *, more: bool = True) -> str:
        """Return the rest of a text for keys and pastes.

        Args:
            text: the new input.
            more: whether the end of an answer may still come; if not, an apparent beginning of one is text.
        """
        if self._told is None:
            return text
        rest = _GRAPHICS_ANSWER.sub(self._take, self._begun + text)
        self._begun = ""
        # A late answer is no text either, but nothing is held back for it.
        if self._waits and more and (begun := _BEGUN_GRAPHICS.search(rest)):
            self._begun, rest = begun[0], rest[: begun.start()]
        return rest

    def _take(self, found: re.Match[str]) -> str:
        if found[1] is not None:
            self._is_kitty = found[1].endswith(";OK")
        elif self._waits and self._told is not None:
            self._waits = False
            has_sixels = "4" in found[2].split(";")[1:]
            self._told("kitty" if self._is_kitty else "sixel" if has_sixels else "")
        return ""


class WriteAcknowledgements:
    """Finds out whether output has arrived at a terminal that answers: a question is written after the output, and answers come in order.

    An answer does not name its question. A lost answer, such as one that another program read, is compensated by a further
    question: output before a question has arrived when there are more answers than questions before it.

    Args:
        ask: sends the question.
        now: the monotonic time at which the terminal was taken; it is asked at once, to find out whether it answers.
    """

    def __init__(self, ask: Callable[[], None], now: float) -> None:
        self._ask = ask
        self._began_at = now
        self._n_asked = 0
        self._n_answered = 0
        """The number of answers; only the reading thread writes it."""
        self._n_lost = 0
        """The number of questions whose answers may be lost."""
        self._answers = False
        """Whether the terminal is known to answer."""
        self._silent_since = now
        """The monotonic time since which it owes an answer and has given none."""
        self._key_at = float("inf")
        """The monotonic time of the first key after that has lasted too long; infinite for none."""
        self._ask_behind(now)

    def begin_again(self, now: float) -> None:
        """Ask anew after a stop: earlier questions may have been answered to another program, or their answers may still come.

        A terminal that never answered is not given `FIRST_ANSWER_S` again.
        """
        n_owed = self._n_asked - self._n_answered
        if not self._answers or n_owed > MOST_LOST:
            self._n_asked, n_owed = self._n_answered, 0
        self._n_lost = n_owed
        self._ask_behind(now)

    def mark(self, now: float) -> int:
        """Ask after the output so far; return the mark for `has_arrived`, 0 if the terminal does not answer."""
        return self._ask_behind(now) if self._may_answer(now) else 0

    def _ask_behind(self, now: float) -> int:
        """Ask as often as necessary for one answer more than is owed by then; return the number of that answer."""
        n_owed = self._n_asked - self._n_answered
        self._n_lost = min(self._n_lost, n_owed)
        if n_owed == self._n_lost:
            self._silent_since = now
        n_questions, mark = 1 + self._n_lost, self._n_asked + 1
        self._n_asked += n_questions
        for _ in range(n_questions):
            self._ask()
        return mark

    def has_arrived(self, mark: int, now: float) -> bool | None:
        """Return whether the terminal has drawn the output before a mark; None if it does not answer."""
        if not mark or not self._may_answer(now):
            return None
        return mark <= self._n_answered

    def answered(self, now: float) -> None:
        """Note an answer of the terminal. Called in the reading thread."""
        self._answers, self._silent_since, self._key_at = True, now, float("inf")
        self._n_answered = min(self._n_answered + 1, self._n_asked)

    def key_read(self, now: float) -> None:
        """Note a key, which shows that the line is not dead. Called in the reading thread."""
        if now - self._silent_since > LONGEST_ANSWER_S:
            self._key_at = min(self._key_at, now)

    def _may_answer(self, now: float) -> bool:
        n_owed = self._n_asked - self._n_answered
        if self._answers and n_owed > self._n_lost and now - self._key_at > LAST_ANSWER_S:
            # The terminal may be another one, or an answer was lost: it is asked once more like a newly taken one.
            self._answers, self._began_at = False, now
            self.begin_again(now)
        return self._answers or now - self._began_at < FIRST_ANSWER_S


class TerminalGone(Message):
    """The terminal is gone, as when its window is closed (SIGHUP may be ignored)."""


class Outgoing:
    """The terminal as Textual's writing thread sees it, counting the accepted output. A terminal that is gone accepts everything.

    Nothing is raised: an error would end that thread, and the event loop would then wait for ever for room in its queue,
    without restoring the terminal. Output that the file does not accept is written to the descriptor directly.

    Args:
        file: the terminal.
        failed: called in that thread with the first error other than the terminal being gone.
    """

    def __init__(self, file: TextIO, failed: Callable[[Exception], None]) -> None:
        self._file = file
        self._failed = failed
        self._has_failed = False
        self._n_written = 0
        self.n_taken = 0
        """The number of characters that were accepted."""

    def write(self, text: str) -> int:
        """Pass text on to the terminal."""
        self._n_written += len(text)
        if not self._does(lambda: self._file.write(text)):
            with suppress(OSError):
                _write_all(self._file.fileno(), text.encode("utf-8", "replace"))
        return len(text)

    def flush(self) -> None:
        """Wait until everything is written."""
        if self._does(self._file.flush):
            self.n_taken = self._n_written

    def _wait_for_room(self) -> None:
        """Make writing wait for room: an editor or another program of the shell, which share the terminal, may have disabled that."""
        os.set_blocking(self._file.fileno(), True)

    def _does(self, act: Callable[[], object]) -> bool:
        """Return whether the terminal accepts the action; one that is gone does."""
        try:
            self._wait_for_room()
            act()
        except Exception as error:
            if isinstance(error, OSError) and lose_terminal():
                return True
            if not self._has_failed:
                self._has_failed = True
                self._failed(error)
            return False
        return True

    def fileno(self) -> int:
        """Return the terminal's descriptor."""
        return self._file.fileno()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class TerminalInput(PatchedDriver):
    """Textual's driver with our own reading of the input, and a count of the output.

    Args:
        app: the app of the driver.
        key_read: called with every key in the reading thread, as the event loop may be blocked.
        asks_background: whether to ask the terminal if it is light, and to report changes.
        splits_alt: whether Esc may be followed quickly by other keys, as with vim keys.
        chords: the names of keys that the user has given to actions.
        instant: the instant prompt that has the terminal; None if none was painted.
        settings: the settings by Textual.

    Attributes:
        has_extended_keys: whether the terminal sends Shift+Enter as a key of its own, as far as it has reported or shown so.
    """

    def __init__(
        self,
        app: App[object],
        *,
        key_read: Callable[[str], None],
        asks_background: bool,
        splits_alt: bool,
        chords: frozenset[str] = frozenset(),
        instant: InstantTerminal | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(app, **settings)  # pyright: ignore[reportUnknownMemberType]
        self._key_read = key_read
        self._asks_background = asks_background
        self.splits_alt = splits_alt
        self._chords = chords
        self._instant = instant
        self._takes_over = False
        """Whether the terminal is being taken over from the instant prompt, which has set its modes."""
        self._outgoing: Outgoing | None = None
        self._arrivals: WriteAcknowledgements | None = None
        self._n_drawn = 0
        self._graphics: GraphicsAnswerFilter | None = None
        self.has_extended_keys = False
        self._tells_modes = False
        """Whether the terminal reports which of its modes are on."""
        self._has_terminal = False

    def process_message(self, message: Message) -> None:
        """Pass on a message that was read."""
        keys = message.keys if isinstance(message, TypedPaste) else [message]
        for key in keys:
            if isinstance(key, events.Key):
                self._key_read(key.key)
                if self._arrivals is not None:
                    self._arrivals.key_read(time.monotonic())
        self._tells_modes |= isinstance(message, TerminalSupportsSynchronizedOutput)
        super().process_message(message)

    def start_application_mode(self) -> None:
        """Take over the terminal, at first or again."""
        assert sys.__stderr__ is not None
        self._n_drawn = 0
        self._outgoing = Outgoing(sys.__stderr__, self._failed_to_write)
        self.write_to(cast("TextIO", self._outgoing))
        self._answers = BackgroundAnswers()
        instant = self._instant
        self._takes_over = instant is not None
        super().start_application_mode()
        if instant is not None:
            self._takes_over = False
            self.keep_attributes(instant.attributes)
            instant.let_go()
        self._has_terminal = True
        self.write(_KITTY_KEYS + _KITTY_KEYS_QUESTION)
        if _has_other_keys(os.environ):
            self.write(_OTHER_KEYS + _OTHER_KEYS_QUESTION)
        if self._arrivals is None:
            # The method is looked up each time: while another program has the terminal, nothing is written.
            self._arrivals = WriteAcknowledgements(
                lambda: self.write(_STATUS_QUESTION), time.monotonic()
            )
        else:
            self._arrivals.begin_again(time.monotonic())
        # Textual reads the size in the signal handler, which the next signal interrupts: of two sizes in quick succession the
        # older one could be reported last, and would stay.
        Callbacks(report_of(self.app)).on_signal(signal.SIGWINCH, self._tell_size)
        if self._asks_background:
            self.ask_background()

    def _failed_to_write(self, error: Exception) -> None:
        """Report, on the event loop, an error of the writing thread, which continues."""
        self.app.call_later(report_of(self.app), error)

    def _tell_size(self) -> None:
        self.renew_modes()
        size = self.terminal_size()
        # A size that is reported among the keys comes by itself, but not if another terminal was attached instead of the first.
        if not self.tells_size_in_band or size != self.app.size:
            self.app.post_message(events.Resize(size, size))

    def renew_modes(self, *, is_asked: bool = False) -> None:
        """Set the terminal's modes again: it may be another one, attached instead of the first.

        Args:
            is_asked: whether the user wants the screen redrawn.
        """
        if not self._has_terminal:
            return
        self.write(_MODES + (_MOUSE if self.takes_mouse else ""))
        self.write(_ANY_KITTY_KEYS)
        if _has_other_keys(os.environ):
            self.write(_OTHER_KEYS)
        if self._tells_modes:
            self.write(_SCREEN_QUESTION)
        elif is_asked:
            self.write(_OTHER_SCREEN_AS_IT_IS)

    def _screen_lost(self) -> None:
        """Switch to the other screen again, in the reading thread: the terminal reports that it shows its usual one."""
        self.app.call_later(self._take_screen)

    def _take_screen(self) -> None:
        if not self._has_terminal:
            return
        self.write(_OTHER_SCREEN)
        self.renew_modes()
        self.app.refresh(layout=True)

    def _knows_extended(self) -> None:
        """Note, in the reading thread, that Shift+Enter is a key of its own here."""
        if not self.has_extended_keys:
            self.has_extended_keys = True
            self.process_message(ExtendedKeysTold())

    def stop_application_mode(self) -> None:
        """Restore the terminal."""
        self._has_terminal = False
        if self._asks_background:
            self.write(NO_MORE)
        if _has_other_keys(os.environ):
            self.write(_OTHER_KEYS_GIVEN_BACK)
        super().stop_application_mode()

    def ask_background(self) -> None:
        """Ask the terminal whether it is light, from now on."""
        self._asks_background = True
        self.write(ASK)

    def write(self, data: str) -> None:
        """Write to the terminal."""
        if self._takes_over:
            # Many terminals clear the other screen when it is taken once more, and what is pushed twice must be popped twice.
            data = {_OTHER_SCREEN: "", _KITTY_PUSHED: "\x1b[=25;1u"}.get(data, data)
        self._n_drawn += len(data)
        super().write(data)

    @property
    def has_written(self) -> bool:
        """Whether the terminal has accepted everything that was drawn so far."""
        return self._outgoing is None or self._outgoing.n_taken >= self._n_drawn

    def mark_written(self) -> int:
        """Have the terminal report when it has drawn the output so far; return the mark for `has_arrived`."""
        return 0 if self._arrivals is None else self._arrivals.mark(time.monotonic())

    def has_arrived(self, mark: int) -> bool:
        """Return whether the terminal has drawn the output before a mark; one that does not answer has at least accepted it."""
        arrivals = self._arrivals
        told = None if arrivals is None else arrivals.has_arrived(mark, time.monotonic())
        return self.has_written if told is None else told

    def _has_answered(self) -> None:
        if self._arrivals is not None:
            self._arrivals.answered(time.monotonic())

    def ask_for_graphics(self, told: Callable[[Graphics], object]) -> None:
        """Ask the terminal which graphics it draws.

        Args:
            told: called in the reading thread if the terminal answers.
        """
        if self._graphics is not None:
            self._graphics.await_it(told)
            self.write(_GRAPHICS_QUESTION)

    def expect_no_graphics(self) -> None:
        """Stop expecting the answer to the graphics query, which did not come in time."""
        if self._graphics is not None:
            self._graphics.stop_waiting()

    def run_input_thread(self) -> None:
        """Read until the program ends."""
        answers = self._answers
        incoming = Incoming(
            answers, lambda light: self.process_message(BackgroundTold(light=light))
        )
        parser = KeyParser(
            self.is_debugged,
            self._chords,
            self._has_answered,
            self._knows_extended,
            self._screen_lost,
        )
        bursts = Bursts()
        graphics = self._graphics = GraphicsAnswerFilter()

        def take(data: bytes, at: float) -> None:
            if text := graphics.rest(incoming.text(data)):
                for message in bursts.take(parser.feed(text), at):
                    self.process_message(message)

        def end_burst() -> None:
            for message in bursts.end():
                self.process_message(message)

        if (instant := self._instant) is not None:
            self._instant = None
            ahead = instant.hand_over(self.exit_event)
            parser.splits_alt = self.splits_alt
            now = time.monotonic()
            if ahead.text:
                self.process_message(TextTypedAhead(ahead.text, now))
            before = now
            for n, (at, data) in enumerate(ahead.rest):
                if at - before > BURST_S:
                    end_burst()
                    self.process_message(AheadPassedOn(n, is_all=False))
                take(data, at)
                before = at
            if now - before > BURST_S:
                end_burst()
            self.process_message(AheadPassedOn(len(ahead.rest), is_all=True))
        # Textual starts another such thread when the program continues after a stop, so its first check is late too.
        looked_at = 0.0
        is_gone = False
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            # Bytes that are there already were typed before raw mode began; until then the terminal makes a line feed of Enter.
            is_from_before = instant is None and bool(selector.select(0))
            while not self.exit_event.is_set():
                is_ready = bool(selector.select(BURST_S if bursts.waits else _LOOK_S))
                if not is_ready and bursts.waits:
                    end_burst()
                    continue
                before, looked_at = looked_at, time.monotonic()
                if looked_at - before > _STALLED_S:
                    self.process_message(InputResumed())
                if is_ready:
                    parser.splits_alt = self.splits_alt
                    data = b""
                    with suppress(OSError):
                        data = os.read(self.fileno, _READ_BYTES)
                    if is_from_before:
                        is_from_before, data = False, data.replace(b"\n", b"\r")
                    if not data:
                        if not is_gone and (is_gone := lose_terminal()):
                            self.process_message(TerminalGone())
                        self.exit_event.wait(_LOOK_S)
                    else:
                        take(data, looked_at)
                elif text := graphics.rest(
                    answers.let_go(looked_at) if answers.is_holding else "", more=False
                ):
                    # The parser would wait once more to decide whether Esc is a key.
                    is_escape = text == "\x1b"
                    for message in (
                        (events.Key("escape", text),) if is_escape else parser.feed(text)
                    ):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
            end_burst()
        with suppress(EOFError, ParseError):
            for _ in parser.feed(""):
                pass


def _has_other_keys(environ: Mapping[str, str]) -> bool:
    """Return whether modifyOtherKeys may be requested: two terminals would draw with it, and kitty logs that it has its own protocol."""
    has_own = environ.get("TERM") in ("linux", "xterm-kitty")
    return not has_own and environ.get("TERM_PROGRAM") != "Apple_Terminal"


def has_extended_keys(node: MessagePump) -> bool:
    """Return whether the terminal is known to send Shift+Enter as a key of its own, by kitty's protocol or modifyOtherKeys."""
    driver = _driver_of(node)
    return driver is not None and driver.has_extended_keys


def _driver_of(node: MessagePump) -> TerminalInput | None:
    """Return the driver; None without a terminal."""
    driver = driver_of(app_of(node))
    return driver if isinstance(driver, TerminalInput) else None


def has_arrived(node: MessagePump, mark: int) -> bool:
    """Return whether the output before a mark is visible on the terminal, as far as that can be known."""
    driver = _driver_of(node)
    return driver is None or driver.has_arrived(mark)


class PaintWatch:
    """Tells when the terminal has painted the content of a widget or screen: from then on it is visible.

    Args:
        node: the widget or screen.
        painted: called at that time, once for each `begin` that is not followed by another one.

    Attributes:
        seen_at: the monotonic time since which it is visible; infinite before that is known.
    """

    def __init__(self, node: MessagePump, painted: Callable[[], object] = lambda: None) -> None:
        self._node = node
        self._painted = painted
        self._n_begun = 0
        self.seen_at = float("inf")

    @property
    def waits(self) -> bool:
        """Whether it has not been painted yet, as far as that can be known."""
        return self.seen_at == float("inf")

    def begin(self) -> None:
        """Wait until the next drawn content, or content that is drawn already, is painted, as far as that can be known."""
        self._n_begun += 1
        self.seen_at = float("inf")
        self._node.call_after_refresh(self._drawn, self._n_begun)

    def _drawn(self, begun: int) -> None:
        if begun == self._n_begun:
            driver = _driver_of(self._node)
            mark = 0 if driver is None else driver.mark_written()
            self._look(begun, mark, time.monotonic())

    def _look(self, begun: int, mark: int, drawn_at: float) -> None:
        if begun != self._n_begun:
            return
        now = time.monotonic()
        if has_arrived(self._node, mark):
            self.seen_at = now
            self._painted()
        else:
            # A line that is dead, or has lost the answer, stays silent until the next key.
            wait_s = min(max(_WRITTEN_S, (now - drawn_at) * _WRITTEN_SHARE), _SELDOM_S)
            self._node.set_timer(wait_s, partial(self._look, begun, mark, drawn_at))
