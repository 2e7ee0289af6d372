"""The words for the state of a session: its modes and its model; and `Prospect`, a state that an action would lead to.

This module has no widget and imports nothing of the engine, since it is imported before the first paint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.agent_parts import Mode

if TYPE_CHECKING:
    from kimi_tui.soul.rewind_values import Target


MODE_WORDS: dict[Mode, str] = {
    "plan": "plans only",
    "ask": "asks first",
    "edits": "accepts edits",
    "sandboxed": "sandboxed",
    "all": "allows all",
}
NO_SANDBOX = "no sandbox"
"""The words after a mode in which commands run without asking and without a sandbox."""


class Prospect(NamedTuple):
    """The state that a rewind, jump or D-Mail would lead to, shown in chat and gauge before it is done.

    `used` is the number of tokens that would be in the window; None if that is the present number, or unknown. With
    `words_stay` the user's messages and pinned messages stay, as after a D-Mail. A target with the id -1 drops nothing.
    """

    target: Target
    used: int | None = None
    estimated: bool = False
    words_stay: bool = False
