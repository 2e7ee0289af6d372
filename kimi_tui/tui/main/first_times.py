"""A hint when something happens for the first time: a line at the prompt, once per account.

Which were shown stands in one small file in the data folder. A hint that has no place just then, because something is
asked, another one stands or the prompt is covered, has not been shown: it comes with the next time. Imported after the
first picture.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from string import Formatter
from typing import Any, Literal, cast

from kimi_tui.app_paths import make_private
from kimi_tui.filesystem import Storage, read_regular
from kimi_tui.tui.keyboard import key_of

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


def hints_file(data_dir: Path) -> Path:
    """Where it stands which hints were shown."""
    return data_dir / "hints.json"


def read_seen(path: Path) -> set[FirstTime]:
    """The hints that were shown; none where that cannot be read."""
    try:
        found = json.loads(read_regular(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
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
    except OSError:
        return


class FirstTimes:
    """Shows hints, and knows which were shown.

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
