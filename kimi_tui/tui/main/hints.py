"""Hints of the main screen: the keys in its footer, by what has the focus and what the agent does, and a line for first times.

That line stands at the prompt when something happens for the first time, once per account; which were shown stands in one
small file in the data folder. One that has no place just then, because something is asked, another one stands or the
prompt is covered, has not been shown: it comes with the next time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from string import Formatter
from typing import Any, Literal, cast

from textual.binding import Binding

from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.tui.frame import Hint
from kimi_tui.tui.glyphs import Glyphs
from kimi_tui.tui.keyboard import key_of, line_break_key
from kimi_tui.tui.state import MainState

log = logging.getLogger(__name__)

Place = Literal[
    "prompt",
    "chat",
    "timeline",
    "begun",
    "filter",
    "missed",
    "found",
    "line",
    "search",
    "matches",
    "copy",
]


MODES: Mapping[str, Hint] = {
    "insert": ("INSERT", "Esc: commands"),
    "replace": ("REPLACE", "Esc: commands"),
    "normal": ("NORMAL", "i: write"),
    "visual": ("VISUAL", "Esc: end"),
    "lines": ("V-LINE", "Esc: end"),
}
"""What is said of vim's modes of the prompt."""


HELP_TITLES: Mapping[Place, str] = {
    "chat": "Chat",
    "timeline": "Timeline",
    "begun": "Timeline",
    "filter": "Timeline",
    "missed": "Timeline",
    "found": "Timeline",
    "line": "World line",
    "search": "Search",
    "matches": "Search",
    "copy": "Selecting with a cursor",
}
"""What stands over the keys of a place in the help; it begins with those of the prompt."""


def hints(
    place: Place, state: MainState, keys: Mapping[str, str], glyphs: Glyphs, now: float
) -> tuple[Hint, ...]:
    """The keys of the focused area, most used first."""
    if place == "chat":
        return _in_chat(keys)

    def key(name: str) -> str:
        return key_of(name, keys)

    arrows = f"{glyphs.up}{glyphs.down}"
    if place == "timeline":
        return known(
            (arrows, "move"),
            (key("timeline.choose"), "preview"),
            (key("timeline.filter"), "filter"),
            (key("timeline.fold"), "unfold"),
            (_both("timeline.older_turn", "timeline.newer_turn", keys), "turn"),
            (key("timeline.leave"), "close"),
            (key("timeline.read"), "read"),
            (key("timeline.bookmark"), "bookmark"),
            (key("timeline.undo"), "undo"),
            (key("timeline.keys"), "keys"),
        )
    if place == "begun":
        return (("Esc", "all steps"),)
    if place == "missed":
        return (("Esc", "all steps"), ("Ctrl+U", "clear"))
    if place == "filter":
        return (("Enter", "go there"), ("Esc", "all steps"), ("Ctrl+U", "clear"))
    if place == "found":
        return known(
            (arrows, "move"),
            (key("timeline.choose"), "preview"),
            (key("timeline.filter"), "change the filter"),
            (key("timeline.leave"), "all steps"),
            (key("timeline.bookmark"), "bookmark"),
            (key("timeline.keys"), "keys"),
        )
    if place == "line":
        return known(
            (key("line.jump"), "jump back"),
            (key("line.compare"), "compare"),
            (key("line.send"), "send to now"),
            (key("search"), "search"),
            (key("line.leave"), "back"),
            (key("help"), "help"),
            (key("line.next"), "next message"),
            (_both("chat.turn_before", "chat.turn_after", keys), "turn"),
        )
    if place == "search":
        return known(
            ("Enter", "next"),
            (key("search.up"), "before"),
            (key("search.end"), "end"),
            (
                key("search.text"),
                f"to the text, {key('search.next')} and {key('search.before')} go on there",
            ),
        )
    if place == "copy":
        return known(
            (arrows, "move"),
            (key("copy.take"), "copy"),
            (_both("copy.mark", "copy.lines", keys), "characters, lines"),
            ("Esc", "end"),
            (_both("copy.word", "copy.back", keys), "word"),
            (_both("copy.turn_before", "copy.turn_after", keys), "turn"),
            (key("copy.swap"), "other end"),
        )
    if place == "matches":
        return known(
            (key("search.next"), "next"),
            (key("search.before"), "before"),
            (key("search"), "search"),
            ("Esc", "end"),
        )
    timeline = (key_of("timeline", keys), "timeline")
    compact = (key_of("compact", keys), "compact")
    more: tuple[Hint, ...] = (
        (key_of("commands", keys), "commands"),
        (key_of("help", keys), "help"),
    )
    send, stop = key("send"), (key("escape"), "stop")
    jobs: tuple[Hint, ...] = ()
    if state.jobs:
        jobs = ((f"{state.jobs} {'job' if state.jobs == 1 else 'jobs'}", "/jobs"),)
    if state.running:
        first: tuple[Hint, ...] = (
            (send, "send after it" if state.waits_for_own else "steer"),
            stop,
        )
        if state.retry_until > now:
            first = ((send, "steer, or try now"), stop)
        if state.commands and state.step:  # the user's own are waited for by no agent
            first = (*first, (key("background"), "background"))
        return known(*first, *jobs, timeline, compact, *more)
    if state.compacting:
        return known(stop, *jobs, timeline, *more)
    line_break = (line_break_key(keys), "new line")
    first = ((send, "send, or go on" if state.can_resume else "send"), line_break)
    if not state.has_messages:
        return known(*first, timeline, *more)
    return known(*first, *jobs, timeline, compact, *more)


_PAIRS = (
    ("chat.above", "chat.below", "block"),
    ("chat.turn_before", "chat.turn_after", "turn"),
)
_SHORT = {"chat.preview": "go back", "chat.fold": "unfold", "chat.copy": "copy", "chat.pin": "pin"}


def _in_chat(keys: Mapping[str, str]) -> tuple[Hint, ...]:
    """The keys of the chat, from its bindings: those of a pair as one, the way out before what is rare."""
    from kimi_tui.tui.transcript.transcript import Transcript

    paired = {name for first, second, _ in _PAIRS for name in (first, second)}
    bound = [one for one in Transcript.BINDINGS if isinstance(one, Binding) and one.id]
    words = {
        one.id: _SHORT.get(one.id, one.description.lower())
        for one in bound
        if one.id and one.id not in paired
    }
    often = [name for name in _SHORT if name in words]
    rest = [name for name in words if name not in often]
    return known(
        *((_both(first, second, keys), meaning) for first, second, meaning in _PAIRS),
        *((key_of(name, keys), words[name]) for name in often),
        ("Esc", "back"),
        *((key_of(name, keys), words[name]) for name in rest),
    )


def _both(first: str, second: str, keys: Mapping[str, str]) -> str:
    return " ".join(filter(None, (key_of(first, keys), key_of(second, keys))))


def first_hints(keys: Mapping[str, str]) -> tuple[Hint, ...]:
    """What stands in the chat before anything was said."""
    return known(
        ("/", "lists the commands"),
        (key_of("escape", keys), "stops the agent; what is complete is kept"),
        (key_of("timeline", keys), "goes back to any step; nothing is ever lost"),
    )


def known(*pairs: Hint) -> tuple[Hint, ...]:
    """Without those that have no key."""
    return tuple(pair for pair in pairs if pair[0])


FirstTime = Literal[
    "turn", "help", "dmail", "context", "stopped", "steered", "pasted", "refused", "early"
]
READ_S = 2.0
"""A key that comes sooner was not pressed by someone who has read the hint, which goes with a later one."""
FULL = 0.6
"""The share of the window from which on it is worth knowing how to make room."""
WORDS: Mapping[FirstTime, str] = {
    "turn": "{timeline} goes back to any step, its files too",
    "help": "{help} lists the keys of every place",
    "dmail": "A D-Mail took steps back; /undo brings them here again",
    "context": "{compact} makes room: older messages become a summary",
    "stopped": "{history-back} has the message again, to edit it",
    "steered": "{history-back} takes it back; {complete} would queue it behind the turn",
    "pasted": "Left, then {send}, opens what was pasted",
    "refused": "/settings has what commands may do in the sandbox",
    "early": "Too early: answers wait until you have stopped typing",
}
"""Names of actions stand for their keys. Each fits over the prompt of a terminal of 60 columns."""
_MAX_BYTES = 4_096


def read_seen(path: Path) -> set[FirstTime]:
    """The hints that were shown; none where that cannot be read."""
    try:
        found = json.loads(read_regular(path, _MAX_BYTES))
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, RecursionError) as error:
        log.warning("which hints were shown cannot be read: %s: %s", path, error)
        return set()
    names = cast("list[object]", found) if isinstance(found, list) else []
    return {name for name in WORDS if name in names}


def keep_seen(path: Path, seen: FirstTime) -> None:
    """Add a hint to those that were shown; a disk that refuses costs only that it is shown again. Blocks."""
    try:
        make_private(path.parent)
        # Another program may have shown others meanwhile.
        names = sorted(read_seen(path) | {seen})
        Storage().replace_file(path, json.dumps(names).encode("ascii"), shared=True)
    except OSError as error:
        log.warning("that a hint was shown is not kept: %s: %s", path, error)


class FirstTimeHints:
    """Hints that are shown the first time something happens; a file says which were shown.

    Args:
        file: where that stands.
        keys: those of the configuration, by action.
        start: carries out work in the background.
    """

    def __init__(
        self,
        file: Path,
        keys: Mapping[str, str],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._file = file
        self._keys = keys
        self._start = start
        self._seen: set[FirstTime] | None = None
        """None until the file was read: until then nothing is shown."""
        self._take_away: Callable[[str], None] | None = None
        """Shows words where the hint stands; None while there is none."""
        self._shown_at = 0.0

    async def learn(self) -> None:
        """Read which were shown."""
        self._seen = await asyncio.to_thread(read_seen, self._file)

    def happened(self, what: FirstTime, show: Callable[[str], None]) -> bool:
        """Something happened; whether its hint is shown now, by `show`, which is given nothing at its end."""
        if self._seen is None or what in self._seen or self._take_away is not None:
            return False
        words = ""
        for said, action, *_ in Formatter().parse(WORDS[what]):
            key = key_of(action, self._keys) if action else ""
            if action and not key:
                return False
            words += said + key
        self._seen.add(what)
        self._take_away, self._shown_at = show, time.monotonic()
        show(words)
        self._start(asyncio.to_thread(keep_seen, self._file, what))
        return True

    def key_pressed(self) -> None:
        """The hint that stands goes, where it can have been read."""
        if self._take_away is not None and time.monotonic() - self._shown_at >= READ_S:
            self._take_away("")
            self._take_away = None
