"""`MainState`, the session's state as header, prompt and footer show it, and `reduce`, its next state after an event.

No widget here. It is imported before the first paint; the module of events is imported with the first event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kimi_tui.agent_parts import PARTS, PartName
from kimi_tui.display_names import titled
from kimi_tui.foreign_text import one_line
from kimi_tui.tool_cards import card_of
from kimi_tui.tui.formatting import cut

if TYPE_CHECKING:
    from kimi_tui.soul.approval import Mode
    from kimi_tui.soul.rewind_values import Target
    from kimi_tui.wire.events import ApprovalRequest, EventRecord, StatusUpdate, TurnBegin


MODE_WORDS: dict[Mode, str] = {
    "plan": "plans only",
    "ask": "asks first",
    "edits": "accepts edits",
    "sandboxed": "sandboxed",
    "all": "allows all",
}
NO_SANDBOX = "no sandbox"
"""Said behind the mode in which commands then run unasked as the user would run them."""


class Queued(NamedTuple):
    """A message, or a command, that the user said and that waits."""

    id: str
    text: str
    is_later: bool = False
    """Whether it is for after the turn."""


class Prospect(NamedTuple):
    """The state that a rewind, jump or D-Mail would lead to, shown in chat and gauge before it is done.

    `used` is how many tokens would be in the window; None where that is the present number, or unknown. With `words_stay`
    the user's messages and pinned messages stay, as with a D-Mail. A target with the id -1 drops nothing.
    """

    target: Target
    used: int | None = None
    estimated: bool = False
    words_stay: bool = False


class MainState(NamedTuple):
    """The state of the session as header, prompt and footer need it.

    Times are seconds since 1970. `turn_at` is when the running turn began, `retry_until` when the next attempt is due
    (0: none). `can_resume` is true where Enter in an empty prompt has the agent continue. `own_command` is true while a shell
    command of the user's own is running, after which the agent has nothing to continue. `tools` says
    whether requests carry all tools, few or none. `unsaved` is true while the conversation cannot be written to the disk. `commands` are the tool calls whose
    commands are running, `jobs` is the number of background commands. `asked_at` is since when the first piece of an answer is
    waited for (0: it is not), `prompt_read` the share of the prompt that the server has read by now (-1: it does not say). `parts` are those of
    the agent; all before the session is open.
    """

    title: str = ""
    model: str = ""
    tools: Literal["on", "lean", "off"] = "on"
    mode: Mode = "ask"
    ready: bool = False
    running: bool = False
    compacting: bool = False
    turn_at: float = 0.0
    step: int = 0
    retry_until: float = 0.0
    can_resume: bool = False
    own_command: bool = False
    has_messages: bool = False
    queued: tuple[Queued, ...] = ()
    approvals: tuple[ApprovalRequest, ...] = ()
    usage: StatusUpdate | None = None
    unsaved: bool = False
    commands: frozenset[str] = frozenset()
    jobs: int = 0
    asked_at: float = 0.0
    prompt_read: float = -1.0
    parts: frozenset[PartName] = PARTS

    @property
    def waits_for_own(self) -> bool:
        """Whether only a command of the user's own runs: there is no agent to steer."""
        return self.running and self.own_command and not self.step


_NOT_WAITING: dict[str, Any] = {"asked_at": 0.0, "prompt_read": -1.0}
"""The fields of a state in which no answer is waited for."""
TITLE_CELLS = 60


def title_from(said: TurnBegin, title: str = "") -> str:
    """A session's title from the first thing said in it; a command of the user's own names it until something else is said."""
    text = titled(said.text, [image.name for image in said.images])
    is_better = not title or (title.startswith("!") and not text.startswith("!"))
    return cut(one_line(text), TITLE_CELLS) or title if is_better else title


def title_of(records: Iterable[EventRecord]) -> str:
    """The title that the first messages of these events make; empty where nothing was said."""
    from kimi_tui.wire.events import TurnBegin

    title = ""
    for record in records:
        if isinstance(record.event, TurnBegin):
            title = title_from(record.event, title)
            if title and not title.startswith("!"):
                break
    return title


def reduce(state: MainState, record: EventRecord) -> MainState:
    """The state after one event."""
    from kimi_tui.wire import events as wire

    match record.event:
        case wire.TextPart() | wire.ThinkPart() | wire.ToolCall():
            if state.retry_until or state.asked_at or state.prompt_read >= 0:
                return state._replace(retry_until=0.0, **_NOT_WAITING)
            return state
        case wire.CheckpointCreated(kind="step", was=""):
            return state._replace(asked_at=record.at, prompt_read=-1.0)
        case wire.CheckpointCreated():
            return state
        case wire.PromptProgress(read=read, total=total):
            return state._replace(prompt_read=read / total if total else -1.0)
        case wire.TurnBegin() as said:
            return state._replace(
                title=title_from(said, state.title),
                running=True,
                turn_at=record.at,
                step=0,
                can_resume=False,
                own_command=False,
                has_messages=True,
            )
        case wire.TurnEnd(reason=reason):
            return state._replace(
                running=False,
                compacting=False,
                retry_until=0.0,
                approvals=(),
                commands=frozenset(),
                **_NOT_WAITING,
                can_resume=reason in ("error", "interrupted") and not state.own_command,
            )
        case wire.StepBegin(n=n):
            return state._replace(step=n, retry_until=0.0)
        case wire.StepRetry(wait_s=wait_s):
            until = record.at + wait_s
            return state._replace(retry_until=until, asked_at=until, prompt_read=-1.0)
        case wire.StepInterrupted():
            return state._replace(**_NOT_WAITING)
        case wire.CompactionBegin():
            return state._replace(compacting=True, **_NOT_WAITING)
        case wire.CompactionEnd():
            return state._replace(compacting=False, retry_until=0.0, **_NOT_WAITING)
        case wire.ContextReverted(reason="rewind", prompt=prompt):
            return state._replace(can_resume=not prompt)
        case wire.ContextReverted(reason="dmail", author="person") if not state.running:
            return state._replace(can_resume=True)
        case wire.LineChanged(op="undo" | "redo" | "jump" | "clear", is_open=is_open):
            return state._replace(can_resume=is_open)
        case wire.StatusUpdate() as usage:
            return state._replace(usage=usage)
        case wire.ApprovalRequest() as request:
            return state._replace(approvals=(*state.approvals, request))
        case wire.ApprovalResolved(id=request_id):
            left = tuple(asked for asked in state.approvals if asked.id != request_id)
            return state._replace(approvals=left)
        case wire.ModeChanged(mode=mode):
            return state._replace(mode=next((one for one in MODE_WORDS if one == mode), "ask"))
        case wire.SteerQueued(id=said_id, text=text, when=when):
            if any(one.id == said_id for one in state.queued):
                return state
            return state._replace(queued=(*state.queued, Queued(said_id, text, when != "now")))
        case wire.ToolStarted(key=key, name=name) if card_of(name).is_command:
            # The agent's come with a step.
            own = state.own_command or not state.step
            return state._replace(commands=state.commands | {key}, own_command=own)
        case wire.ToolResult(key=key) if key in state.commands:
            return state._replace(commands=state.commands - {key})
        case wire.ToolsChanged(form=form):
            return state._replace(tools=form) if form else state
        case wire.JobsChanged(running=jobs):
            return state._replace(jobs=jobs)
        case wire.Notice(topic=topic, solved=solved) if topic == wire.DISK_TOPIC:
            return state._replace(unsaved=not solved)
        case wire.SteerTaken(id=steer_id):
            return state._replace(queued=tuple(q for q in state.queued if q.id != steer_id))
        case _:
            return state


def settled(state: MainState, *, running: bool) -> MainState:
    """The state once the history has been read: what it left open (a killed program) is over."""
    if running:
        return state._replace(ready=True, unsaved=False)
    return state._replace(
        ready=True,
        unsaved=False,
        running=False,
        compacting=False,
        retry_until=0.0,
        can_resume=state.can_resume or (state.running and not state.own_command),
        queued=(),
        approvals=(),
        commands=frozenset(),
        jobs=0,
        **_NOT_WAITING,
    )
