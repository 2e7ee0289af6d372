"""The instant prompt: takes the terminal, paints the first page, echoes what is typed, and hands all of it to the app.

A thread reads and paints while the main thread imports Textual and the app: an import gives up the interpreter's lock between
two steps of the bytecode when it is asked to (`share_interpreter`), and a process of its own would have to share the terminal's input
with this one, and take longer to start than the app. The app's driver gets the terminal as it is, in the same modes, and the
input as it came; this thread goes on until the app's first frame can be drawn.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from kimi_tui.config.model_choice import ModelChoice
from kimi_tui.config.settings import AUTO
from kimi_tui.instant.inks import Inks, dimmed, has_own_colours
from kimi_tui.instant.typed import Ahead, TypedAhead
from kimi_tui.launch import NEWEST
from kimi_tui.tui.first_page import FirstPage, first_page, page_rows, prompt_rows
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.tui.palette import colours_of, guess_light, is_light, palettes_for
from kimi_tui.tui.rows import Line

if TYPE_CHECKING:
    from types import FrameType

    from kimi_tui.instant.stored_frame import Cells, StoredFrame
    from kimi_tui.launch import Launch

ANSWER_S = 0.004
"""Seconds to wait before the first frame for the colour of the terminal's background."""
LOOK_S = 0.05
"""Seconds between two checks whether the program ends while the app is awaited."""
LONGEST_WAIT_S = 10.0
"""Seconds after which the app gets the input also if its first frame is not ready."""
QUITS = 3
"""So many presses of Ctrl+C end the program before the app can ask."""
INTERRUPTED = 130
_READ_BYTES = 65_536
_SMALLEST = (8, 4)
"""Columns and rows below which no page is painted."""
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h"
"""Takes the other screen, hides the cursor, breaks no lines, and has pastes marked, all as the app's driver does it."""
_KITTY_KEYS = "\x1b[>1u"
"""Asks kitty's protocol to tell Shift+Enter from Enter. Letters are sent as ever."""
_BACKGROUND_QUESTION = "\x1b]11;?\x07"
_KITTY_POPPED = "\x1b[<u"
_LEAVE = f"\x1b[?2004l\x1b[?7h{_KITTY_POPPED}\x1b[?1049l\x1b[?25h"
_KEEP_S = 5.0
"""The most seconds that the end waits until typed text is stored."""
_GIVE_BACK_S = 1.0
"""The most seconds that the end waits for a terminal that accepts no output."""
_KEEP = ("-P", "-c", "from kimi_tui.instant.keep import main; main()")
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class InstantPrompt:
    """The first page and the prompt, until the app has the terminal.

    Args:
        page: the content of the page.
        glyphs: the set of signs in use.
        inks: returns how rows are painted, for a light (True), a dark (False) or a yet unknown terminal.
        stored: the last frame of the session that is continued; None for none.
        asks: whether to ask the terminal for the colour of its background.
        own_colours: whether rows are painted in the terminal's own colours.
        kept_with: where typed text is kept if the program ends before the app has it, in the words of `kimi_tui.instant.keep`:
            the data folder, the work folder, and the session to continue; empty to keep nothing.

    Attributes:
        ready: set by the app when its first frame can be drawn.
        n_taken: set by the app: of how many pieces of `Ahead.rest` its prompt has the keys; -1 while it lacks `Ahead.text`, too.
        attributes: the settings of the terminal before it was taken.
    """

    def __init__(
        self,
        page: FirstPage,
        glyphs: Glyphs,
        inks: Callable[[bool | None], Inks],
        *,
        stored: StoredFrame | None = None,
        asks: bool,
        own_colours: bool,
        kept_with: tuple[str, ...] = (),
    ) -> None:
        self.ready = Event()
        self.n_taken = -1
        self.attributes: list[Any] = []
        self._page = page
        self._glyphs = glyphs
        self._inks_of = inks
        self._inks = inks(None)
        self._stored = stored
        self._asks = asks
        self._own_colours = own_colours
        self._kept_with = kept_with
        self._typed = TypedAhead()
        self._painted: list[str] = []
        self._size = (0, 0)
        self._is_resized = False
        self._is_over = False
        self._is_ending = False
        """Whether the end has begun: signals change nothing any more."""
        self._is_stopping = False
        self._painting = Lock()
        self._has_terminal = False
        self._answered = ""
        self._enter, self._leave = _ENTER, _LEAVE
        self._is_before = False
        """Whether input was there before raw mode began."""
        self._before: dict[int, Any] = {}
        self._thread: Thread | None = None
        self._input = sys.__stdin__.fileno() if sys.__stdin__ is not None else 0
        self._output = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
        self._woken = self._wake = -1
        """The ends of a pipe that wakes the thread."""

    # --- beginning and end

    def begin(self) -> None:
        """Take the terminal, paint the page, and echo from now on.

        Raises:
            OSError, termios.error: it is no terminal, or gone; nothing was changed.
        """
        self.attributes = termios.tcgetattr(self._input)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._has_terminal = True
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._ended)
        self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._stopped)
        self._before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._resized)
        self._make_raw()
        self._is_before = bool(select.select([self._input], [], [], 0)[0])
        keys = "" if os.environ.get("TEXTUAL_DISABLE_KITTY_KEY") else _KITTY_KEYS
        if not keys:
            self._leave = _LEAVE.replace(_KITTY_POPPED, "")
        self._enter = _ENTER + keys
        first = self._enter + (_BACKGROUND_QUESTION if self._asks else "")
        # A terminal that accepts nothing must not hold up the imports: then the thread waits for it.
        if select.select([], [self._output], [], 0)[1]:
            self._write(first)
            first = ""
            if self._asks:
                # The answer is on its way while the rows are made.
                self._changes()
                self._painted = []
                self._read(ANSWER_S)
            self._write(self._changes())
        thread = Thread(target=self._run, args=(first,), name="instant prompt", daemon=True)
        thread.start()
        # A signal that comes earlier could not wait for a thread that does not run yet.
        self._thread = thread

    def _make_raw(self) -> None:
        attributes = termios.tcgetattr(self._input)
        # Textual's driver sets the same once more.
        signals = 0 if os.environ.get("TEXTUAL_ALLOW_SIGNALS") else termios.ISIG
        attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | signals)
        attributes[0] &= ~(
            termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
        )
        attributes[6][termios.VMIN] = 1
        termios.tcsetattr(self._input, termios.TCSANOW, attributes)

    def hand_over(self, ends: Event) -> Ahead:
        """Wait until the app's first frame can be drawn, stop reading and painting, and return what was typed.

        Called in the thread that reads from then on.

        Args:
            ends: set if the program ends before.
        """
        deadline = time.monotonic() + LONGEST_WAIT_S
        while not self.ready.wait(LOOK_S) and not ends.is_set():
            if time.monotonic() > deadline:
                break
        self._stop()
        return self._typed.result()

    def let_go(self) -> None:
        """Leave the restoring of the terminal to the app's driver, which has it now."""
        self._has_terminal = False

    def restore(self) -> None:
        """Stop, store typed text that the app does not have, and restore the terminal unless the app's driver does that."""
        self._is_ending = True
        self._stop()
        if self._has_terminal:
            self._has_terminal = False
            # A terminal that accepts nothing must not keep the text from being stored.
            giving = Thread(target=self._give_back, name="terminal given back", daemon=True)
            giving.start()
            giving.join(_GIVE_BACK_S)
        self.keep()
        before, self._before = self._before, {}
        for number, handler in before.items():
            if signal.getsignal(number) in (self._ended, self._resized, self._stopped):
                signal.signal(number, handler)

    def _give_back(self) -> None:
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._input, termios.TCSANOW, self.attributes)
        self._write(self._leave)

    def keep(self) -> None:
        """Have a process store the typed text that the app does not have, and wait for its end.

        It imports nothing: a signal may have come within an import.
        """
        ahead = self._typed.result()
        text = ahead.text if self.n_taken < 0 else ""
        rest = ahead.rest[max(0, self.n_taken) :]
        data = b"".join((text.encode(), *(piece for _, piece in rest)))
        kept_with, self._kept_with = self._kept_with, ()
        if not kept_with or not data:
            return
        until = time.monotonic() + _KEEP_S
        nowhere = -1
        with suppress(OSError, NotImplementedError):
            (theirs, ours), (ended, ends) = os.pipe(), os.pipe()
            try:
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                # Its session is its own, as that of a closed terminal gets signals.
                os.posix_spawn(
                    sys.executable,
                    (sys.executable, *_KEEP),
                    os.environ,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, theirs, 0),
                        (os.POSIX_SPAWN_DUP2, ends, 1),
                        (os.POSIX_SPAWN_DUP2, nowhere, 2),
                    ],
                    setsid=True,
                )
                # If the process fails, writing to it does as well.
                os.close(theirs)
                os.close(ends)
                theirs = ends = -1
                # A long paste does not fit into the pipe, and the process may hang.
                os.set_blocking(ours, False)
                told = b"\0".join((*map(os.fsencode, kept_with), data))
                while (left_s := until - time.monotonic()) > 0:
                    over, free, _ = select.select([ended], [ours] if told else [], [], left_s)
                    if over:
                        break
                    if free:
                        told = told[os.write(ours, told) :]
                    if not told and ours >= 0:
                        os.close(ours)
                        ours = -1
            finally:
                for one in (theirs, ours, ended, ends, nowhere):
                    if one >= 0:
                        os.close(one)

    @property
    def is_light(self) -> bool | None:
        """Whether the terminal is light, as it has answered; None if it has not."""
        return is_light(self._typed.colour)

    @property
    def stored(self) -> StoredFrame | None:
        """The last frame of the session, if it is shown: it has the size and the theme of the terminal."""
        stored = self._stored
        if stored is None or self._size != (stored.look.columns, stored.look.rows):
            return None
        return stored if self._inks.theme == stored.look.theme else None

    # --- in the thread

    def _run(self, first: str) -> None:
        try:
            self._write(first + self._changes())
            while not self._is_over:
                readable = select.select([self._input, self._woken], [], [])[0]
                if self._woken in readable:
                    os.read(self._woken, 64)
                if self._is_over:
                    return
                if self._input in readable and not self._read(0):
                    return  # the terminal is gone, as the app will find
                with self._painting:
                    if self._is_resized:
                        self._is_resized = False
                        self._painted = []
                    self._write(self._changes())
        except OSError:
            return

    def _read(self, wait_s: float) -> bool:
        """Take what comes within so many seconds; return False if the terminal is gone."""
        if not select.select([self._input], [], [], wait_s)[0]:
            return True
        if not (data := os.read(self._input, _READ_BYTES)):
            return False
        if self._is_before:
            # Until raw mode began, the terminal made a line feed of Enter.
            self._is_before, data = False, data.replace(b"\n", b"\r")
        self._typed.take(data, time.monotonic())
        if self._typed.n_quits >= QUITS and not self.ready.is_set():
            # The main thread restores the terminal and ends, as soon as it runs.
            os.kill(os.getpid(), signal.SIGINT)
        if self._typed.colour != self._answered:
            self._answered = self._typed.colour
            self._inks = self._inks_of(self.is_light)
        return True

    def _changes(self) -> str:
        """Return the output that paints the rows that have changed since the last time."""
        if not self._painted:
            self._size = _size_of(self._output)
        width, height = self._size
        if width < _SMALLEST[0] or height < _SMALLEST[1]:
            return ""
        text, page = self._typed.text, self._page
        if text:
            page = page._replace(footer=page.typed_footer)
        rows = page_rows(page, width, height, self._glyphs, prompt_rows(text, width, self._glyphs))
        painted = [self._inks.row(self._shown(row), width) for row in rows]
        if (stored := self.stored) is not None:
            # The header says that the session is being opened.
            above = next(y for y, row in enumerate(rows) if row.fill == "raised")
            kept = stored.rows[1:][1 - above :]
            painted[above - len(kept) : above] = map(_painted_cells, kept)
        before, self._painted = self._painted, painted
        return "".join(
            f"\x1b[{y};1H{row}"
            for y, row in enumerate(painted, 1)
            if y > len(before) or before[y - 1] != row
        )

    def _shown(self, row: Line) -> Line:
        return dimmed(row) if self._own_colours else row

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        with suppress(OSError):
            while data:
                data = data[os.write(self._output, data) :]

    def _stop(self) -> None:
        self._is_over = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._call()
        thread.join(1.0)
        if not thread.is_alive():
            os.close(self._woken)
            os.close(self._wake)
            self._wake = -1

    def _call(self) -> None:
        if self._wake >= 0:
            with suppress(OSError):
                os.write(self._wake, b"!")

    # --- signals, in the main thread

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self._is_resized = True
        self._call()

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        if self._is_ending or self._is_stopping:
            return
        # A second signal comes within this one, which has the lock.
        self._is_stopping = True
        with self._painting:
            self._give_back()
            os.kill(os.getpid(), signal.SIGSTOP)
            # The terminal may be gone by now.
            with suppress(OSError, termios.error):
                self._make_raw()
            self._is_resized = True
            self._write(self._enter)
        self._is_stopping = False
        self._call()

    def _ended(self, number: int, frame: FrameType | None) -> None:
        if not self._is_ending:
            self.restore()
            os._exit(128 + number)


def _painted_cells(row: Sequence[Cells]) -> str:
    return "".join(f"\x1b[0{codes}m{text}" for text, codes in row) + "\x1b[0m"


def _size_of(descriptor: int) -> tuple[int, int]:
    """Return columns and rows of the terminal, as Textual will find them."""
    given = [os.environ.get(name, "") for name in ("COLUMNS", "LINES")]
    if all(one.isdigit() and int(one) for one in given):
        return int(given[0]), int(given[1])
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return 80, 24
    return size.columns, size.lines


def begin(launch: Launch) -> InstantPrompt | None:
    """Paint the first page of a start and echo what is typed; None if the start has another first screen, or no terminal."""
    prompt = prompt_of(launch, os.environ)
    if prompt is not None:
        try:
            prompt.begin()
        except (OSError, termios.error):
            prompt.restore()
            return None
    return prompt


def prompt_of(launch: Launch, environ: Mapping[str, str]) -> InstantPrompt | None:
    """Return the instant prompt of a start; None if the start has another first screen.

    Args:
        launch: how the app is started.
        environ: the environment variables.
    """
    if launch.replay or launch.picks or not isinstance(launch.choice, ModelChoice):
        return None
    colours = colours_of(environ)
    own = has_own_colours(colours)
    theme = "16" if own else launch.config.theme
    palettes = palettes_for(colours)
    guess = guess_light(environ)
    grey = "NO_COLOR" in environ

    def inks(light: bool | None) -> Inks:
        name = theme
        if theme == AUTO:
            light = guess if light is None else light
            name = "" if light is None else "light" if light else "dark"
        # A theme of Textual's has colours that are not known yet.
        palette = None if grey and name == "16" else palettes.get(name)
        return Inks(palette, colours, grey=grey, theme=name if palette is not None else "")

    glyphs = ASCII if launch.config.glyphs == "ascii" else UNICODE
    stored = None
    if launch.resume == NEWEST and not (launch.fork or launch.demo):
        from kimi_tui.instant.stored_frame import FrameLook, newest_session, read_frame

        size = _size_of(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)
        look = FrameLook(*size, "" if theme == AUTO else theme, colours, grey, glyphs is ASCII)
        if (session := newest_session(launch.work_dir)) is not None:
            stored = read_frame(session, look)
    return InstantPrompt(
        first_page(launch),
        glyphs,
        inks,
        stored=stored,
        asks=theme == AUTO,
        own_colours=theme == "16",
        kept_with=_kept_with(launch),
    )


def _kept_with(launch: Launch) -> tuple[str, ...]:
    if launch.demo:
        return ()
    continued = "-" if launch.continued is None else launch.continued
    return str(launch.kept_in or ""), str(launch.work_dir), continued
