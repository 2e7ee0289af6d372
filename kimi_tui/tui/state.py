"""How the state of a session is shown: the words of its modes and of its model, and `Prospect`, a state that might come.

No widget here, and nothing of the engine: it is imported before the first paint.
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
"""Said behind the mode in which commands then run unasked as the user would run them."""


class Prospect(NamedTuple):
    """The state that a rewind, jump or D-Mail would lead to, shown in chat and gauge before it is done.

    `used` is how many tokens would be in the window; None where that is the present number, or unknown. With `words_stay`
    the user's messages and pinned messages stay, as with a D-Mail. A target with the id -1 drops nothing.
    """

    target: Target
    used: int | None = None
    estimated: bool = False
    words_stay: bool = False
