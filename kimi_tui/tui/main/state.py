"""What the frame around chat and timeline shows, as one plain value that knows nothing of events.

It can be imported before the first paint; `reduce`, which makes the next state from an event, lives in `model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from kimi_tui.wire.events import ApprovalRequest, StatusUpdate

Mode = Literal["ask", "edits", "all"]
MODE_WORDS: dict[Mode, str] = {"ask": "asks first", "edits": "accepts edits", "all": "allows all"}


class Queued(NamedTuple):
    """A message typed while the agent works, not yet taken."""

    id: str
    text: str


class MainState(NamedTuple):
    """The state of the session as header, prompt and footer need it.

    Times are seconds since 1970. `turn_at` is when the running turn began, `retry_until` when the next try is due
    (0: none). `can_resume` is true where Enter in an empty prompt lets the agent go on. `tools` is false where the model
    is told of none.
    """

    title: str = ""
    model: str = ""
    tools: bool = True
    mode: Mode = "ask"
    ready: bool = False
    running: bool = False
    compacting: bool = False
    turn_at: float = 0.0
    step: int = 0
    retry_until: float = 0.0
    can_resume: bool = False
    has_messages: bool = False
    queued: tuple[Queued, ...] = ()
    approvals: tuple[ApprovalRequest, ...] = ()
    usage: StatusUpdate | None = None
