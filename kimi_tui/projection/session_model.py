"""`SessionModel`, the one reducer of a session: everything that its events tell, for whoever listens.

A screen shows its parts, a replay keeps them by the moment, a caller without a screen reads its `state`. The views know what is
drawn, and how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kimi_tui.display_names import titled
from kimi_tui.foreign_text import one_line
from kimi_tui.projection.blocks import NOTHING, Change
from kimi_tui.projection.session_state import Queued, SessionState
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.tokens import GaugeModel
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tool_cards import card_of
from kimi_tui.wire import events as wire
from kimi_tui.wire.events import EventRecord

Report = Callable[[Exception], object]
"""Called with an error that an event has caused in one part of the model."""


def _raise(error: Exception) -> None:
    raise error


class Applied(NamedTuple):
    """The changes by an event: of the chat, and whether timeline and gauge may look different."""

    chat: Change = NOTHING
    timeline: bool = False
    gauge: bool = False


class SessionModel:
    """One session, reduced from its events: first those of a history, then those that follow.

    Args:
        work_dir: paths of the chat below it are shown relative to it.
        state: the state that is known before any event.

    Attributes:
        state: title, model, mode, marks, tools, questions, what waits, and what runs.
        chat: the messages, as blocks.
        timeline: the checkpoints, on all world lines, with their token figures.
        gauge: what the window holds.
    """

    def __init__(self, work_dir: str = "", state: SessionState | None = None) -> None:
        self.state = state or SessionState()
        self.chat = TranscriptModel(work_dir=work_dir)
        self.timeline = TimelineModel()
        self.gauge = GaugeModel()

    def apply(self, record: EventRecord, report: Report = _raise) -> Applied:
        """Apply an event. One of an agent beside that of the session changes nothing here.

        Args:
            record: the event.
            report: called where a part of the model cannot take it; the others do. By default it is raised.
        """
        if record.source:
            return Applied()

        timeline, is_moved, change, is_measured = self.timeline, True, NOTHING, True
        # The timeline comes first: it keeps the world lines, whose change the chat follows.
        try:
            is_moved = timeline.apply(record)
        except Exception as error:
            report(error)
        try:
            change = self.chat.apply(record, timeline.changed, timeline.lines.figures)
        except Exception as error:
            report(error)
        try:
            is_measured = self.gauge.apply(record)
        except Exception as error:
            report(error)
        try:
            self.state = reduce(self.state, record)
        except Exception as error:
            report(error)
        return Applied(change, is_moved, is_measured)

    def take_state(self, other: SessionModel) -> None:
        """Take the state of another model of the same session, and show the sub-agents that it knows: no record has those."""
        for agent in other.state.agents:
            self.apply(EventRecord(0, 0.0, agent))
        self.state = other.state

    def settle(self, *, running: bool) -> None:
        """The history is over: what it left open, as that of a killed program does, is over, too, unless something runs."""
        self.state = settled(self.state, running=running)


_NOT_WAITING: dict[str, Any] = {"asked_at": 0.0, "prompt_read": -1.0}
"""The fields of a state in which no answer is waited for."""
TITLE_CHARS = 60


def title_from(said: wire.TurnBegin, title: str = "") -> str:
    """A session's title from the first thing said in it; a command of the user's own names it until something else is said."""
    text = titled(said.text, [image.name for image in said.images])
    is_better = not title or (title.startswith("!") and not text.startswith("!"))
    line = one_line(text)
    if len(line) > TITLE_CHARS:
        line = f"{line[: TITLE_CHARS - 1].rstrip()}…"
    return line or title if is_better else title


def title_of(records: Iterable[EventRecord]) -> str:
    """The title that the first messages of these events make; empty where nothing was said."""
    title = ""
    for record in records:
        if isinstance(record.event, wire.TurnBegin):
            title = title_from(record.event, title)
            if title and not title.startswith("!"):
                break
    return title


_PLACES = {name: place for place, name in enumerate(SessionState._fields)}


def _with(state: SessionState, **changed: Any) -> SessionState:
    """The state with other values in some fields, as `_replace`, in a third of its time: nearly every event changes the state."""
    values = list[Any](state)
    for name, value in changed.items():
        values[_PLACES[name]] = value
    return SessionState._make(values)


def reduce(state: SessionState, record: EventRecord) -> SessionState:
    """The state after one event."""
    match record.event:
        case wire.TextPart() | wire.ThinkPart() | wire.ToolCall():
            if state.retry_until or state.asked_at or state.prompt_read >= 0:
                return _with(state, retry_until=0.0, **_NOT_WAITING)
            return state
        case wire.CheckpointCreated(kind="step", was=""):
            return _with(state, asked_at=record.at, prompt_read=-1.0)
        case wire.CheckpointCreated():
            return state
        case wire.PromptProgress(read=read, total=total):
            return _with(state, prompt_read=read / total if total else -1.0)
        case wire.TurnBegin() as said:
            return _with(
                state,
                title=state.title if state.is_named else title_from(said, state.title),
                running=True,
                turn_at=record.at,
                step=0,
                can_resume=False,
                own_command=False,
                has_messages=True,
            )
        case wire.TurnEnd(reason=reason):
            return _with(
                state,
                running=False,
                compacting=False,
                retry_until=0.0,
                approvals=(),
                commands=frozenset(),
                **_NOT_WAITING,
                can_resume=reason in ("error", "interrupted") and not state.own_command,
            )
        case wire.StepBegin(n=n):
            return _with(state, step=n)
        case wire.StepRetry(wait_s=wait_s):
            until = record.at + wait_s
            return _with(state, retry_until=until, asked_at=until, prompt_read=-1.0)
        case wire.StepInterrupted():
            return _with(state, **_NOT_WAITING)
        case wire.CompactionBegin():
            return _with(state, compacting=True, **_NOT_WAITING)
        case wire.CompactionEnd():
            return _with(state, compacting=False, retry_until=0.0, **_NOT_WAITING)
        case wire.ContextReverted(reason="rewind", prompt=prompt):
            return _with(state, can_resume=not prompt)
        case wire.ContextReverted(reason="dmail", author="person") if not state.running:
            return _with(state, can_resume=True)
        case wire.LineChanged(op="undo" | "redo" | "jump" | "clear", is_open=is_open):
            return _with(state, can_resume=is_open)
        case wire.StatusUpdate() as usage:
            return _with(state, usage=usage)
        case wire.ApprovalRequest() as request:
            return _with(state, approvals=(*state.approvals, request))
        case wire.ApprovalResolved(id=request_id):
            left = tuple(asked for asked in state.approvals if asked.id != request_id)
            return _with(state, approvals=left)
        case wire.ModeChanged(mode=mode):
            return _with(state, mode=mode)
        case wire.TitleChanged(title=title, named=named):
            return _with(state, title=title, is_named=named)
        case wire.ModelChanged() as model:
            return _with(state, model=model)
        case wire.MarksChanged() as marks:
            return _with(state, marks=marks)
        case wire.SteerQueued(id=said_id, text=text, when=when):
            if any(one.id == said_id for one in state.queued):
                return state
            return _with(state, queued=(*state.queued, Queued(said_id, text, when != "now")))
        case wire.ToolStarted(key=key, name=name) if card_of(name).is_command:
            # The agent's come with a step.
            own = state.own_command or not state.step
            return _with(state, commands=state.commands | {key}, own_command=own)
        case wire.ToolResult(key=key) if key in state.commands:
            return _with(state, commands=state.commands - {key})
        case wire.ToolsChanged() as changed:
            kept = (name for name in state.tool_names if name not in changed.removed)
            names = changed.names or (*kept, *changed.added)
            return _with(state, tools=changed.form or state.tools, tool_names=names)
        case wire.JobsChanged(running=jobs):
            return _with(state, jobs=jobs)
        case wire.Notice(topic=topic, solved=solved) if topic == wire.DISK_TOPIC:
            return _with(state, unsaved=not solved)
        case wire.FutureChanged() as future:
            return _with(state, futures=_with_future(state.futures, future))
        case wire.AgentChanged() as agent:
            return _with(state, agents=_with_agent(state.agents, agent))
        case wire.SteerTaken(id=steer_id):
            return _with(state, queued=tuple(q for q in state.queued if q.id != steer_id))
        case _:
            return state


def _with_future(
    futures: tuple[wire.FutureChanged, ...], changed: wire.FutureChanged
) -> tuple[wire.FutureChanged, ...]:
    """The futures of a session after one of them has changed, began, or was removed."""
    if changed.removed_at:
        return tuple(one for one in futures if one.key != changed.key)
    if any(one.key == changed.key for one in futures):
        return tuple(changed if one.key == changed.key else one for one in futures)
    return (*futures, changed)


def _with_agent(
    agents: tuple[wire.AgentChanged, ...], changed: wire.AgentChanged
) -> tuple[wire.AgentChanged, ...]:
    """The sub-agents of a session after one of them has changed, began, or was removed."""
    if changed.removed_at:
        return tuple(one for one in agents if one.name != changed.name)
    if any(one.name == changed.name for one in agents):
        return tuple(changed if one.name == changed.name else one for one in agents)
    return (*agents, changed)


def settled(state: SessionState, *, running: bool) -> SessionState:
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
        **_NOT_WAITING,
    )
