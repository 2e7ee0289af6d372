"""What the terminal shows of a session besides its screen: the title of its window, progress, and a word to whoever looks away.

All of it are sequences of control, of which a terminal that does not know one shows nothing. What of it may be written is
told by the environment, and every text in it is cleaned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Literal

from kimi_tui.config.settings import NotifyConfig
from kimi_tui.foreign_text import one_line
from kimi_tui.tui.formatting import cut

Way = Literal["bell", "osc9", "osc777", "osc99", "off"]

TITLE_CELLS = 80
WORDS_CELLS = 120
APP = "kimi-tui"
_END = "\x1b\\"
_KEEP_TITLE, _GIVE_TITLE_BACK = "\x1b[22;2t", "\x1b[23;2t"
_WORKS, _RESTS = f"\x1b]9;4;3;0{_END}", f"\x1b]9;4;0;0{_END}"
# From this one on GNOME's terminals draw progress; before, they ignored it.
_VTE_WITH_PROGRESS = 7900


def way_of(how: str, environ: Mapping[str, str]) -> Way:
    """How a terminal tells its user something: the way that is configured, or the best that it is known to take."""
    if how != "auto":
        return how  # pyright: ignore[reportReturnType] - checked where the file is read
    if _in_multiplexer(environ):
        return "bell"
    if environ.get("KITTY_WINDOW_ID") or environ.get("TERM") == "xterm-kitty":
        return "osc99"
    if environ.get("TERM_PROGRAM") in ("iTerm.app", "ghostty", "WezTerm"):
        return "osc9"
    if environ.get("TERM", "").startswith(("foot", "rxvt")) or environ.get("VTE_VERSION"):
        return "osc777"
    return "bell"


def _in_multiplexer(environ: Mapping[str, str]) -> bool:
    """Whether tmux or screen stands between the program and the terminal."""
    return bool(environ.get("TMUX") or environ.get("STY"))


def draws_progress(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is known to draw progress; others may take the sequence for a message."""
    if _in_multiplexer(environ):
        return False
    if environ.get("WT_SESSION") or environ.get("ConEmuANSI") == "ON":
        return True
    vte = environ.get("VTE_VERSION", "")
    is_new_vte = vte.isascii() and vte.isdigit() and int(vte[:9]) >= _VTE_WITH_PROGRESS
    return is_new_vte or environ.get("TERM_PROGRAM") == "ghostty"


def through_tmux(sequence: str, environ: Mapping[str, str]) -> str:
    """A sequence for the terminal behind tmux, which hands it on where `allow-passthrough` is on."""
    if not environ.get("TMUX"):
        return sequence
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}{_END}"


def notification(way: Way, words: str, environ: Mapping[str, str]) -> str:
    """The bytes that tell the user these words."""
    # A semicolon parts the fields of OSC 777 and 99.
    said = cut(one_line(words), WORDS_CELLS).replace(";", ",")
    match way:
        case "bell":
            return "\x07"
        case "osc9":
            return through_tmux(f"\x1b]9;{said}{_END}", environ)
        case "osc777":
            return through_tmux(f"\x1b]777;notify;{APP};{said}{_END}", environ)
        case "osc99":
            return through_tmux(f"\x1b]99;;{said}{_END}", environ)
        case "off":
            return ""


class Attention:
    """Writes it, each thing only where it is another one.

    Args:
        write: hands bytes to the terminal between two frames.
        settings: when the user is told of what.
        environ: of the process.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        settings: NotifyConfig,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._write = write
        self._settings = settings
        self._environ = environ
        self._way: Way = way_of(settings.how, environ)
        self._draws_progress = draws_progress(environ)
        self._title: str | None = None
        self._works = False

    def follow(self, *, folder: str, title: str, working: bool, asking: bool) -> None:
        """Have the window's title say what the session is and does."""
        sign = "? " if asking else "* " if working else ""
        name = f"{one_line(folder)}: {one_line(title)}" if title else one_line(folder)
        words = cut(f"{sign}{name}", TITLE_CELLS)
        if words != self._title:
            kept = _KEEP_TITLE if self._title is None else ""
            self._title = words
            self._write(f"{kept}\x1b]2;{words}{_END}")
        works = working and not asking
        if works != self._works and self._draws_progress:
            self._works = works
            self._write(_WORKS if works else _RESTS)

    def tell(self, words: str, *, asking: bool) -> None:
        """Tell the user, who looks elsewhere, as far as they want that."""
        if self._settings.asking if asking else self._settings.finished:
            self._write(notification(self._way, words, self._environ))

    def end(self) -> None:
        """Give the window its title back. May be called again."""
        if self._title is not None:
            self._title = None
            rests = _RESTS if self._works else ""
            self._write(f"{rests}\x1b]2;{_END}{_GIVE_TITLE_BACK}")
