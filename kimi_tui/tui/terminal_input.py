"""What the terminal sends, read so that no byte of it ends the program and no pasted text presses keys.

Textual decodes strictly, and takes the letters behind an escape within a pasted text for typed ones, Enter included.
It also takes Alt+Enter for Enter where a terminal does not speak the protocol of kitty, as most do not.

The terminal is asked, too, whether it is light or dark and what it draws. It answers among the keys, late, in pieces or
not at all, so nothing waits for it, and nothing of it becomes a key. Where it can it tells of later changes of its colours.

What was written may be on its way for long: the system holds 20 kB between a program and its terminal, a slow line far more.
So a terminal that answers is asked whether it has come to the picture of a question (`WriteAcknowledgements`). The answer stands among the
keys: what was read before it was pressed before the picture was there.
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
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message
from textual.messages import TerminalSupportsSynchronizedOutput

from kimi_tui.foreign_text import clean
from kimi_tui.tui.faults import Callbacks, report_of
from kimi_tui.tui.key_sequences import ESC, PASTE_END, PASTE_START, SequenceReader, sequence_keys
from kimi_tui.tui.screens import app_of
from kimi_tui.tui.shutdown import lose_terminal
from kimi_tui.tui.typed_bursts import BURST_S, Bursts, TypedPaste

if TYPE_CHECKING:
    from textual.app import App
    from textual.message_pump import MessagePump

ASK = "\x1b]11;?\x07\x1b[?2031h"
"""Asks for the colour of the background, and to be told when the terminal turns light or dark."""
NO_MORE = "\x1b[?2031l"
CUT_S = 1.0
"""For so long the rest of an answer that has begun is waited for."""
LIGHT_FROM = 0.18
"""The luminance from which on black is easier to read on a background than white."""
_BODY = "[rgba:#0-9A-Fa-f/]{0,40}+"
_BACKGROUND_ANSWER = re.compile(
    rf"\x1b\]1(\d);({_BODY})(?:(\x07|\x1b\\)|(?=[^\x1b])|(?=\x1b[^\\]))|\x1b\[\?997;(\d)n",
    re.DOTALL,
)
"""An answer, or one that is broken off: what follows it is typed."""
_BEGUN_BACKGROUND = re.compile(
    rf"(?:\x1b\](?:1(?:\d(?:;{_BODY}\x1b?)?)?)?|\x1b\[(?:\?(?:9(?:9(?:7(?:;\d?)?)?)?)?)?)\Z"
)
_COLOUR = re.compile(
    r"(?:rgba?:([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})/([0-9A-Fa-f]{1,4})(?:/.*)?|#(.*))\Z"
)
_BACKGROUND = "1"
_LIGHT = "2"


class InputResumed(Message):
    """The program was stopped, or could not read: keys that come now may have been pressed at any time since."""


class ExtendedKeysTold(Message):
    """The terminal has said, or shown, that it sends Shift+Enter as a key of its own."""


class BackgroundTold(Message):
    """The terminal has said whether it is light."""

    def __init__(self, *, light: bool) -> None:
        super().__init__()
        self.light = light


def is_light(colour: str) -> bool | None:
    """Whether the terminal's background colour, as it tells it, is light (theme `auto`); None where it cannot be read."""
    found = _COLOUR.match(colour)
    if found is None:
        return None
    parts = found.groups()[:3]
    if (digits := found[4]) is not None:
        size = len(digits) // 3
        if not digits or len(digits) % 3 or size > 4 or re.search("[^0-9A-Fa-f]", digits):
            return None
        parts = (digits[:size], digits[size : 2 * size], digits[2 * size :])
    red, green, blue = (_linear(int(part, 16) / (16 ** len(part) - 1)) for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > LIGHT_FROM


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4


def guess_light(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is light, as far as variables tell before it is asked."""
    return environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


class BackgroundAnswers:
    """Takes the terminal's answers out of what is typed."""

    def __init__(self) -> None:
        self._held = ""
        self._held_at = 0.0

    @property
    def is_holding(self) -> bool:
        """Whether something waits for what follows it."""
        return bool(self._held)

    def take(self, text: str, now: float) -> tuple[str, bool | None]:
        """What is left of a text, and whether the terminal is light where it says so.

        Args:
            text: what came.
            now: in monotonic time.
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
            # The beginning of an answer or notice whose rest is on its way, or the key: that is known in a moment.
            start = min(start, len(text) - 1)
        self._held, self._held_at = text[start:], now
        return text[:start], told

    def let_go(self, now: float) -> str:
        """Release the input that waited, if nothing has followed it; of an answer that was broken off, nothing."""
        is_answer = len(self._held) > len("\x1b]11")
        if is_answer and now - self._held_at < CUT_S:
            return ""
        held, self._held = self._held, ""
        return "" if is_answer else held


_READ_BYTES = 4096
_LOOK_S = 0.1
_WRITTEN_S = 0.02
"""How often it is asked whether the terminal has taken what was drawn."""
_STALLED_S = 0.4
"""So much later than it was to be the next look comes only where the program did not run.

Terminals do not say when a key was pressed, only when it is read. Behind a shorter stop it was pressed up to `_LOOK_S` and
this before that, which is less than a question has stood by then (`QUIET_S` from when it was painted): never before.
"""

Graphics = Literal["", "kitty", "sixel"]
"""What a terminal draws by itself; empty for nothing but text."""
_GRAPHICS_QUESTION = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"
"""Does it know the graphics of kitty; and, which every terminal answers, what it can do: 4 is sixels."""
_GRAPHICS_ANSWER = re.compile(r"\x1b_G([^\x1b]{0,200})\x1b\\|\x1b\[\?([0-9;]{0,60})c")
_BEGUN_GRAPHICS = re.compile(r"\x1b(?:_(?:G[^\x1b]{0,200}\x1b?)?|\[(?:\?[0-9;]{0,60})?)?$")

_STATUS_QUESTION = "\x1b[5n"
"""Is the terminal in order? It answers when it has drawn what was written before."""
_STATUS_ANSWERS = frozenset({"\x1b[0n", "\x1b[3n"})
FIRST_ANSWER_S = 5.0
"""For how long a terminal that was just taken may think about its first answer; one that gives none is not waited for."""
LONGEST_ANSWER_S = 60.0
LAST_ANSWER_S = 5.0
"""A terminal that has answered before, and owes an answer for so long (`LONGEST_ANSWER_S`), is taken for one that does not
when it gives none for this long behind a key either: behind a broken line keys come at once when it is whole again, and the
answers with them."""

MOST_LOST = 8
"""Of so many answers at most it is minded that they may be lost, or come late."""

_ALT_ENTER = frozenset({"\x1b\r", "\x1b\n"})
"""Enter with Alt as most terminals send it: with an escape before what the key alone sends."""
_OWN_KEY = "shift+enter"
"""A key that a terminal of the old kind cannot send."""
_REPORT = re.compile(
    r"\x1b\[(?:200~|201~|[IO]|<[-\d;]{1,24}[mM]|\?\d{1,5};\d\$y|48;[\d:;]{1,24}t)\Z"
)
"""What Textual reads besides keys: marks of pastes, focus, the mouse, modes and sizes."""
_KITTY_ANSWER = re.compile(r"\x1b\[\?(\d{1,4})u\Z")
_OTHER_KEYS_ANSWER = re.compile(r"\x1b\[>4;(\d)m\Z")
_KITTY_KEYS = "\x1b[=4;2u"
"""Asks kitty's protocol for the key in the same place of a Latin keyboard, too, which Textual does not."""
_OTHER_KEYS = "\x1b[>4;1m"
"""Asks xterm's modifyOtherKeys for keys that are else sent as others, such as Shift+Enter; what is usual is sent as usual."""
_KITTY_KEYS_QUESTION, _OTHER_KEYS_QUESTION = "\x1b[?u", "\x1b[?4m"
_OTHER_KEYS_GIVEN_BACK = "\x1b[>4m"
_ANY_KITTY_KEYS = "\x1b[=29;1u"
"""Kitty's protocol as Textual and this program ask for it, set anew and not once more: it is taken back once."""
_MODES = "\x1b[?25l\x1b[?1004h\x1b[?2004h\x1b[?7l"
"""What the terminal is to do: hide its cursor, tell of its focus, mark pastes, break no lines."""
_MOUSE = "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h"
_SCREEN_QUESTION = "\x1b[?1049$p"
_SCREEN_LOST = "\x1b[?1049;2$y"
_OTHER_SCREEN = "\x1b[?1049h"
_OTHER_SCREEN_AS_IT_IS = "\x1b[?1047h"
"""As the one before for a terminal that cannot be asked: it leaves the cursor that is kept for the end as it is."""
_OLD_MOUSE = re.compile(r"\x1b\[M(...)\Z", re.DOTALL)
_RXVT_MOUSE = re.compile(r"\x1b\[(\d{1,3});(\d{1,4});(\d{1,4})M\Z")


def _as_sgr_mouse(sequence: str, pressed: int) -> tuple[str, int]:
    """A report of the mouse as first xterms and rxvt send it, in the form that Textual reads; empty for any other sequence.

    Args:
        sequence: a whole sequence.
        pressed: the code of the button that was pressed last, for one that is let go is not named.

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


class KeyParser(XTermParser):
    """Textual's parser, given only what it knows, with the keys that it does not know or takes for others.

    Attributes:
        splits_alt: whether a letter behind an escape is Esc and that letter, and not the letter with Alt.

    Args:
        debug: whether Textual logs what it reads.
        arrived: called when the terminal answers that it has drawn what was written before its question.
        extended: called when it is known that the terminal sends Shift+Enter as a key of its own.
        screen_lost: called when the terminal says that it shows its usual screen.
    """

    splits_alt = False

    def __init__(
        self,
        debug: bool = False,
        arrived: Callable[[], object] = lambda: None,
        extended: Callable[[], object] = lambda: None,
        screen_lost: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(debug)
        self._arrived = arrived
        self._extended = extended
        self._screen_lost = screen_lost
        self._sequences = SequenceReader()
        self._pressed = 0

    def feed(self, data: str) -> Iterable[Message]:
        """The keys, pastes and other messages in what can be handed on (see `Incoming.text`)."""
        if not data:
            yield from super().feed(data)  # the end, to Textual
            return
        for piece in self._sequences.feed(data, time.monotonic()):
            yield from self._read(piece)

    def tick(self) -> Iterable[Message]:
        """The keys whose sequence could have been the beginning of another one."""
        for piece in self._sequences.let_go(time.monotonic()):
            yield from self._read(piece)

    def _read(self, piece: str) -> Iterable[Message]:
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
        """What one character behind an escape is: a key with Alt, or Esc and that character."""
        if self.splits_alt and (known := self._keys_of(piece)) and len(piece) > len("\x1bd"):
            return known
        if self.splits_alt:
            typed = [key for one in piece[1:] for key in self._sequence_to_key_events(one)]
            return (events.Key("escape", ESC), *typed)
        if known := self._keys_of(piece):
            return known
        # Signs, too, which Textual would write.
        plain = self._sequence_to_key_events(piece[1], alt=True)
        return [
            key if key.key.startswith("alt+") else events.Key(f"alt+{key.key}", None)
            for key in plain
        ]

    def _keys_of(self, sequence: str) -> tuple[events.Key, ...]:
        """The keys of a whole sequence; none for one that is not known."""
        found = sequence_keys(sequence)
        if found is None:
            known = ANSI_SEQUENCES_KEYS.get(sequence)
            if isinstance(known, str):
                return tuple(self._sequence_to_key_events(known))
            found = (
                tuple(events.Key(key.value, None) for key in known)
                if isinstance(known, tuple)
                else ()
            )
        if any(key.key == _OWN_KEY for key in found):
            self._extended()
        return found


class Incoming:
    """Bytes as text for Textual's parser: always text, and a paste in one piece without terminal sequences.

    Args:
        answers: takes out what the terminal says of itself.
        tell: given whether the terminal is light, when it says so.
    """

    def __init__(self, answers: BackgroundAnswers, tell: Callable[[bool], None]) -> None:
        self._answers = answers
        self._tell = tell
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._tail = ""
        """The newest characters: a mark may be cut in two."""
        self._is_pasted = False
        self._pasted: list[str] = []

    def text(self, data: bytes) -> str:
        """What can be handed on after these bytes; a paste only when all of it is there."""
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
        """What is left of a text for keys and pastes.

        Args:
            text: what came.
            more: whether the end of an answer may come yet; else what looks like the beginning of one is none.
        """
        if self._told is None:
            return text
        rest = _GRAPHICS_ANSWER.sub(self._take, self._begun + text)
        self._begun = ""
        # An answer that comes late is no text either, but nothing is held back for it.
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
    """Whether what was written has arrived at a terminal that answers: it is asked behind it, and answers in turn.

    An answer does not say what it is to. One that is lost, as to another program that had the terminal meanwhile, is made up
    for by a further question: what was written before a question has arrived when there are more answers than were asked for
    before it.

    Args:
        ask: sends the question.
        now: in monotonic time, when the terminal was taken; it is asked at once, so that it is known whether it answers.
    """

    def __init__(self, ask: Callable[[], None], now: float) -> None:
        self._ask = ask
        self._began_at = now
        self._n_asked = 0
        self._n_answered = 0
        """Written in the thread that reads alone."""
        self._n_lost = 0
        """How many of the questions may have lost their answers."""
        self._answers = False
        """Whether the terminal is known to."""
        self._silent_since = now
        """Since when it owes an answer and has given none."""
        self._key_at = float("inf")
        """When the first key was read after that had lasted too long; infinite for none."""
        self._ask_behind(now)

    def begin_again(self, now: float) -> None:
        """Ask anew behind a stop: what was asked before may have been answered to another program, or is answered yet.

        A terminal that never answered is not given `FIRST_ANSWER_S` again.
        """
        n_owed = self._n_asked - self._n_answered
        if not self._answers or n_owed > MOST_LOST:
            self._n_asked, n_owed = self._n_answered, 0
        self._n_lost = n_owed
        self._ask_behind(now)

    def mark(self, now: float) -> int:
        """Ask behind what has been written; what `has_arrived` is to be asked about. 0 where the terminal does not answer."""
        return self._ask_behind(now) if self._may_answer(now) else 0

    def _ask_behind(self, now: float) -> int:
        """Ask as often as it takes to have one answer more than is owed by then; returns the number of that answer."""
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
        """Whether the terminal has come to what was written before a mark; None where it does not say."""
        if not mark or not self._may_answer(now):
            return None
        return mark <= self._n_answered

    def answered(self, now: float) -> None:
        """Note an answer of the terminal. Called in the thread that reads."""
        self._answers, self._silent_since, self._key_at = True, now, float("inf")
        self._n_answered = min(self._n_answered + 1, self._n_asked)

    def key_read(self, now: float) -> None:
        """Note a key: the line is no dead one. Called in the thread that reads."""
        if now - self._silent_since > LONGEST_ANSWER_S:
            self._key_at = min(self._key_at, now)

    def _may_answer(self, now: float) -> bool:
        n_owed = self._n_asked - self._n_answered
        if self._answers and n_owed > self._n_lost and now - self._key_at > LAST_ANSWER_S:
            # It may be another one, or have lost an answer: it is asked once more as one that was just taken.
            self._answers, self._began_at = False, now
            self.begin_again(now)
        return self._answers or now - self._began_at < FIRST_ANSWER_S


class TerminalGone(Message):
    """The terminal was taken away, as when its window is closed (SIGHUP may be ignored)."""


class Outgoing:
    """The terminal as Textual's writing thread sees it, counting what it has taken. One that is gone takes everything.

    Nothing is raised: an error would be the end of that thread, and the event loop would then wait for room in its queue for
    ever, with the terminal as it is. What the file does not take is written past it.

    Args:
        file: the terminal.
        failed: told, in that thread, of the first error that is not the terminal's being gone.
    """

    def __init__(self, file: TextIO, failed: Callable[[Exception], None]) -> None:
        self._file = file
        self._failed = failed
        self._has_failed = False
        self._n_written = 0
        self.n_taken = 0
        """Characters that are out."""

    def write(self, text: str) -> int:
        """Pass text on to the terminal."""
        self._n_written += len(text)
        if not self._does(lambda: self._file.write(text)):
            with suppress(OSError):
                _write_all(self._file.fileno(), text.encode("utf-8", "replace"))
        return len(text)

    def flush(self) -> None:
        """Wait until all of it is out."""
        if self._does(self._file.flush):
            self.n_taken = self._n_written

    def _wait_for_room(self) -> None:
        """Have the terminal wait for room: an editor or another program of the shell, which share it, may have ended that."""
        os.set_blocking(self._file.fileno(), True)

    def _does(self, act: Callable[[], object]) -> bool:
        """Whether the terminal takes it; one that is gone does."""
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
        """The terminal's descriptor."""
        return self._file.fileno()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class TerminalInput(LinuxDriver):
    """Textual's driver with our own reading of the input, and a count of what was written.

    Args:
        app: that it is for.
        key_read: told of every key in the thread that reads: the event loop may be blocked.
        asks_background: whether the terminal is asked if it is light, and to tell when that changes.
        splits_alt: whether Esc is a key with which other keys are typed close behind one another, as with vim's.
        settings: what Textual sets.

    Attributes:
        has_extended_keys: whether the terminal sends Shift+Enter as a key of its own, as far as it has said or shown so.
    """

    def __init__(
        self,
        app: App[object],
        *,
        key_read: Callable[[str], None],
        asks_background: bool,
        splits_alt: bool,
        **settings: Any,
    ) -> None:
        super().__init__(app, **settings)  # pyright: ignore[reportUnknownMemberType]
        self._key_read = key_read
        self._asks_background = asks_background
        self.splits_alt = splits_alt
        self._outgoing: Outgoing | None = None
        self._arrivals: WriteAcknowledgements | None = None
        self._n_drawn = 0
        self._graphics: GraphicsAnswerFilter | None = None
        self.has_extended_keys = False
        self._tells_modes = False
        """Whether the terminal says which of its modes are on."""
        self._has_terminal = False

    def process_message(self, message: Message) -> None:
        """Hand on what was read."""
        keys = message.keys if isinstance(message, TypedPaste) else [message]
        for key in keys:
            if isinstance(key, events.Key):
                self._key_read(key.key)
                if self._arrivals is not None:
                    self._arrivals.key_read(time.monotonic())
        self._tells_modes |= isinstance(message, TerminalSupportsSynchronizedOutput)
        super().process_message(message)

    def start_application_mode(self) -> None:
        """Take the terminal, at first or again."""
        assert sys.__stderr__ is not None
        self._n_drawn = 0
        self._outgoing = Outgoing(sys.__stderr__, self._failed_to_write)
        self._file = cast("TextIO", self._outgoing)
        self._answers = BackgroundAnswers()
        super().start_application_mode()
        self._has_terminal = True
        self.write(_KITTY_KEYS + _KITTY_KEYS_QUESTION)
        if _has_other_keys(os.environ):
            self.write(_OTHER_KEYS + _OTHER_KEYS_QUESTION)
        if self._arrivals is None:
            # Looked up each time: while another program has the terminal, nothing is written.
            self._arrivals = WriteAcknowledgements(
                lambda: self.write(_STATUS_QUESTION), time.monotonic()
            )
        else:
            self._arrivals.begin_again(time.monotonic())
        # Textual reads the size where the signal is handled, which the next signal interrupts: of two sizes close behind
        # one another the older one could be told last, and would stay.
        Callbacks(report_of(self._app)).on_signal(signal.SIGWINCH, self._tell_size)
        if self._asks_background:
            self.ask_background()

    def _failed_to_write(self, error: Exception) -> None:
        """Report, on the event loop, what the thread that writes came upon; it goes on."""
        self._app.call_later(report_of(self._app), error)

    def _tell_size(self) -> None:
        self.renew_modes()
        size = Size(*self._get_terminal_size())
        # Told among the keys it comes by itself, but not from another terminal that was attached in place of the first.
        if not self._in_band_window_resize or size != self._app.size:
            self._app.post_message(events.Resize(size, size))

    def renew_modes(self, *, is_asked: bool = False) -> None:
        """Have the terminal do what it was told at the start: it may be another one, attached in place of the first.

        Args:
            is_asked: the user wants the screen drawn anew.
        """
        if not self._has_terminal:
            return
        self.write(_MODES + (_MOUSE if self._mouse else ""))
        self.write(_ANY_KITTY_KEYS)
        if _has_other_keys(os.environ):
            self.write(_OTHER_KEYS)
        if self._tells_modes:
            self.write(_SCREEN_QUESTION)
        elif is_asked:
            self.write(_OTHER_SCREEN_AS_IT_IS)

    def _screen_lost(self) -> None:
        """Take the other screen again, in the thread that reads: the terminal says that it shows its usual one."""
        self._app.call_later(self._take_screen)

    def _take_screen(self) -> None:
        if not self._has_terminal:
            return
        self.write(_OTHER_SCREEN)
        self.renew_modes()
        self._app.refresh(layout=True)

    def _knows_extended(self) -> None:
        """Note, in the thread that reads, that Shift+Enter is a key of its own here."""
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

    def _sigcont_application(self, *_: object) -> None:
        """Go on after a stop, also one that nothing told of: begun on top of itself, it would read with two threads."""
        if self._auto_restart and self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application()  # pyright: ignore[reportUnknownMemberType]

    def ask_background(self) -> None:
        """Ask the terminal if it is light, from now on."""
        self._asks_background = True
        self.write(ASK)

    def write(self, data: str) -> None:
        """Write to the terminal."""
        self._n_drawn += len(data)
        super().write(data)

    @property
    def has_written(self) -> bool:
        """Whether the terminal has taken all that was drawn so far."""
        return self._outgoing is None or self._outgoing.n_taken >= self._n_drawn

    def mark_written(self) -> int:
        """Have the terminal say when it has drawn what was written so far; what `has_arrived` is to be asked about."""
        return 0 if self._arrivals is None else self._arrivals.mark(time.monotonic())

    def has_arrived(self, mark: int) -> bool:
        """Whether the terminal has drawn what was written before a mark; one that does not answer has at least taken all."""
        arrivals = self._arrivals
        told = None if arrivals is None else arrivals.has_arrived(mark, time.monotonic())
        return self.has_written if told is None else told

    def _has_answered(self) -> None:
        if self._arrivals is not None:
            self._arrivals.answered(time.monotonic())

    def ask_for_graphics(self, told: Callable[[Graphics], object]) -> None:
        """Ask the terminal what it draws by itself.

        Args:
            told: called in the thread that reads, where the terminal answers.
        """
        if self._graphics is not None:
            self._graphics.await_it(told)
            self.write(_GRAPHICS_QUESTION)

    def expect_no_graphics(self) -> None:
        """Stop expecting the answer to the graphics query, which did not come in time."""
        if self._graphics is not None:
            self._graphics.stop_waiting()

    def _run_input_thread(self) -> None:
        """Read; a fault ends the program as any other does. Textual would write its traceback on the screen, keys and all."""
        try:
            self.run_input_thread()
        except Exception as error:
            # Textual's own way to take what nobody has caught.
            handle = self._app._handle_exception  # pyright: ignore[reportPrivateUsage]
            self._app.call_later(handle, error)

    def run_input_thread(self) -> None:
        """Read until the program ends."""
        answers = self._answers
        incoming = Incoming(
            answers, lambda light: self.process_message(BackgroundTold(light=light))
        )
        parser = KeyParser(self._debug, self._has_answered, self._knows_extended, self._screen_lost)
        bursts = Bursts()
        graphics = self._graphics = GraphicsAnswerFilter()
        # Textual begins another such thread when the program goes on after a stop: its first look comes late too.
        looked_at = 0.0
        is_gone = False
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            # Bytes that are there already were typed before raw mode began; until then the terminal makes a line feed of Enter.
            is_from_before = bool(selector.select(0))
            while not self.exit_event.is_set():
                is_ready = bool(selector.select(BURST_S if bursts.waits else _LOOK_S))
                if not is_ready and bursts.waits:
                    for message in bursts.end():
                        self.process_message(message)
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
                    elif text := graphics.rest(incoming.text(data)):
                        for message in bursts.take(parser.feed(text), looked_at):
                            self.process_message(message)
                elif text := graphics.rest(
                    answers.let_go(looked_at) if answers.is_holding else "", more=False
                ):
                    # The parser would wait once more whether Esc is a key.
                    is_escape = text == "\x1b"
                    for message in (
                        (events.Key("escape", text),) if is_escape else parser.feed(text)
                    ):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
            for message in bursts.end():
                self.process_message(message)
        with suppress(EOFError, ParseError):
            for _ in parser.feed(""):
                pass


def _has_other_keys(environ: Mapping[str, str]) -> bool:
    """Whether modifyOtherKeys may be asked for: two terminals would draw with it, and kitty logs that it has its own."""
    has_own = environ.get("TERM") in ("linux", "xterm-kitty")
    return not has_own and environ.get("TERM_PROGRAM") != "Apple_Terminal"


def has_extended_keys(node: MessagePump) -> bool:
    """Whether the terminal is known to send Shift+Enter as a key of its own, by kitty's protocol or modifyOtherKeys."""
    driver = _driver_of(node)
    return driver is not None and driver.has_extended_keys


def _driver_of(node: MessagePump) -> TerminalInput | None:
    """The driver; None without a terminal."""
    driver = app_of(node)._driver  # pyright: ignore[reportPrivateUsage]
    return driver if isinstance(driver, TerminalInput) else None


def has_arrived(node: MessagePump, mark: int) -> bool:
    """Whether what was drawn before a mark of the terminal is on it, as far as that can be known."""
    driver = _driver_of(node)
    return driver is None or driver.has_arrived(mark)


class PaintWatch:
    """Tells when what a widget or screen shows has been painted by the terminal: from then on it can be seen.

    Args:
        node: the widget or screen.
        painted: called then, once for each `begin`, unless that was followed by another one.

    Attributes:
        seen_at: since when it can be seen, in monotonic time; infinite before that is known.
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
        """Wait for what is to be drawn next, or is drawn already, as far as it can be known whether it was painted."""
        self._n_begun += 1
        self.seen_at = float("inf")
        self._node.call_after_refresh(self._drawn, self._n_begun)

    def _drawn(self, begun: int) -> None:
        if begun == self._n_begun:
            driver = _driver_of(self._node)
            self._look(begun, 0 if driver is None else driver.mark_written())

    def _look(self, begun: int, mark: int) -> None:
        if begun != self._n_begun:
            return
        if has_arrived(self._node, mark):
            self.seen_at = time.monotonic()
            self._painted()
        else:
            self._node.set_timer(_WRITTEN_S, partial(self._look, begun, mark))
