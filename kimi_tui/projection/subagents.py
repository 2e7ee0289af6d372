"""Sub-agents as they are shown: in what words, and which call of the tool `Agent` each one belongs to.

A sub-agent is an agent beside the session's own, which a call of that tool started; its state is `wire.events.AgentChanged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kimi_tui.display_names import counted
from kimi_tui.foreign_text import one_line
from kimi_tui.wire.events import AgentChanged, EventRecord, ToolResult, ToolStarted

NAME_CHARS = 200
"""The largest number of characters of a title: more never fit in a row."""
_KIND_CHARS = 40


def agent_title(one: AgentChanged) -> str:
    """Return what a sub-agent is to do, in one line; its name if the model gave it nothing."""
    return one_line(one.title[: 2 * NAME_CHARS])[:NAME_CHARS] or agent_name(one)


def agent_name(one: AgentChanged) -> str:
    """Return the name of a sub-agent, in one line: `explore-1`."""
    return one_line(one.name[:NAME_CHARS])


def agent_kind(one: AgentChanged) -> str:
    """Return the kind of a sub-agent, in one line."""
    return one_line(one.kind[:_KIND_CHARS])


def agent_target(one: AgentChanged) -> str:
    """Return kind and title of a sub-agent: `explore: find the callers`."""
    return ": ".join(filter(None, (agent_kind(one), agent_title(one))))


def agent_model(one: AgentChanged) -> str:
    """Return the model of a sub-agent, without the name of who made it."""
    return one_line(one.model[:NAME_CHARS]).rpartition("/")[2]


def agent_state_words(one: AgentChanged) -> str:
    """Return what a sub-agent does, or how it ended, in a few words: `step 4`, `waiting for you`, `12 steps`."""
    match one.state:
        case "waiting":
            return "waiting"
        case "asking":
            return "waiting for you"
        case "working":
            return f"step {one.step}" if one.step else "starting"
        case "paused":
            return "paused"
        case "done":
            return counted(one.step, "step")
        case _:
            return one.state


def agent_news(one: AgentChanged) -> str:
    """Return in one line what a sub-agent does now, or why it waits, is paused, failed or was stopped; empty for nothing."""
    if one.state == "working":
        return one_line(one.doing[:NAME_CHARS])
    return one_line(one.why[: 2 * NAME_CHARS]) if one.state != "done" else ""


def asker_words(name: str, agents: Sequence[AgentChanged]) -> str:
    """Return who asks, by the name of a sub-agent: `Sub-agent explore-1: find the callers`; empty for the session's own agent."""
    if not name:
        return ""
    one = next((each for each in agents if each.name == name), None)
    title = f": {agent_title(one)}" if one is not None and one.title else ""
    return f"Sub-agent {one_line(name[:NAME_CHARS])}{title}"


def with_agents(
    records: Sequence[EventRecord], states: Iterable[AgentChanged]
) -> Sequence[EventRecord]:
    """Return the recorded events of a session with the states of its sub-agents, which the record lacks: at their calls.

    Args:
        records: the events.
        states: the last state of each sub-agent, by the keys of calls; of a key that is there twice the last one counts.
    """
    by_call = {one.key: one for one in states}
    if not by_call:
        return records
    found: list[EventRecord] = []
    for record in records:
        found.append(record)
        match record.event:
            case ToolStarted(key=key) if key in by_call and not record.source:
                begun = replace(by_call[key], state="working", step=0, input=0, output=0, cost=-1.0)
                found.append(record._replace(event=replace(begun, why="", doing="")))
            case ToolResult(key=key) if key in by_call and not record.source:
                found.append(record._replace(event=by_call.pop(key)))
            case _:
                pass
    # A call without a result belongs to a sub-agent that was killed, or that can go on.
    last = records[-1] if records else EventRecord(0, 0.0, next(iter(by_call.values())))
    return [*found, *(last._replace(event=one, source="") for one in by_call.values())]
