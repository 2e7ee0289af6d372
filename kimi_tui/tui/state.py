"""The words for the state of a session: its modes and its model; and `Prospect`, a state that an action would lead to.

This module has no widget and imports nothing of the engine, since it is imported before the first paint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kimi_tui.agent_parts import MODE_TITLES, Mode

if TYPE_CHECKING:
    from kimi_tui.soul.rewind_values import Target


MODE_WORDS = MODE_TITLES
NO_SANDBOX = "no sandbox"
"""The words after a mode in which commands run without asking and without a sandbox."""

_UNASKED: dict[Mode, str] = {
    "plan": "the agent reads and plans. It changes nothing until you approve a plan.",
    "ask": "the agent asks before it edits a file or runs a command.",
    "edits": "the agent edits files in this folder without asking. It asks before it runs a command.",
    "sandboxed": "the agent edits files in this folder and runs sandboxed commands without asking.",
    "all": "the agent does everything without asking, except what leaves this folder or the sandbox.",
}
_UNCONFINED = (
    "the agent runs commands outside any sandbox and edits files in this folder without asking."
)


def unasked_words(mode: Mode, *, sandbox: bool) -> str:
    """Return what the agent may do without asking, after the mode's title: `Mode ask: the agent asks before ...`.

    Args:
        mode: the mode.
        sandbox: whether there is a sandbox for commands.
    """
    words = _UNASKED[mode] if sandbox or mode != "all" else _UNCONFINED
    return f"Mode {MODE_WORDS[mode]}: {words}"


class Prospect(NamedTuple):
    """The state that a rewind, jump or D-Mail would lead to, shown in chat and gauge before it is done.

    `used` is the number of tokens that would be in the window; None if that is the present number, or unknown. With
    `words_stay` the user's messages and pinned messages stay, as after a D-Mail. A target with the id -1 drops nothing.
    """

    target: Target
    used: int | None = None
    estimated: bool = False
    words_stay: bool = False
