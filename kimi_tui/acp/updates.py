"""`Updates`: the events of a session as the updates that an editor shows, while they happen and when a session is loaded.

The shapes are those of the Agent Client Protocol, version 1 (agentclientprotocol.com, schema 1.19). One event may give none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from acp import helpers, schema

from kimi_tui import lenient_json
from kimi_tui.foreign_text import Cleaner, clean
from kimi_tui.projection.subagents import agent_news, agent_state_words, agent_target
from kimi_tui.projection.tool_calls import target
from kimi_tui.tool_cards import (
    Card,
    DiffBlock,
    DiffLine,
    DisplayBlock,
    ShellBlock,
    TodoBlock,
    card_of,
    short_name,
)
from kimi_tui.wire import events as ev

Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
    | schema.AgentPlanUpdate
    | schema.AvailableCommandsUpdate
    | schema.CurrentModeUpdate
    | schema.ConfigOptionUpdate
    | schema.SessionInfoUpdate
    | schema.UsageUpdate
)
Content = schema.ContentToolCallContent | schema.FileEditToolCallContent

_TODO_STATES: Mapping[str, schema.PlanEntryStatus] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "done": "completed",
}
_MOST_CHARS = 20_000
"""Characters of a tool's output that are sent; the model gets no more of most tools either."""
_LIVE_CHARS = 4_000
"""Characters of the end of the output of a command that still runs."""
_LIVE_S = 0.25
"""Seconds between two updates about the output of a command that still runs."""
_TITLE_CHARS = 200


@dataclass(slots=True)
class _ToldCall:
    """A tool call whose result has not come.

    Attributes:
        name: the name of the tool.
        card: its look.
        arguments: the JSON text so far.
        is_told: whether the editor knows the call.
        output: the end of the live output.
        shown_at: the time (monotonic, seconds) of the newest update about the output.
        does: what the sub-agent of the call does, as it was told last; `agent` is its kind and task, as the title names them.
    """

    name: str
    card: Card
    arguments: str = ""
    is_told: bool = True
    output: str = ""
    shown_at: float = field(default=0.0)
    does: str = ""
    agent: str = ""


class Updates:
    """Makes updates of events; it knows the calls that run.

    Args:
        work_dir: the work folder, to which paths are relative.
        past: whether the events are those of a stored session, whose user messages the editor has to be told.
    """

    def __init__(self, work_dir: str, *, past: bool = False) -> None:
        self._work_dir = work_dir
        self._past = past
        self._is_unsent = False
        """Whether a turn began whose message is not in the conversation yet."""
        self._calls: dict[str, _ToldCall] = {}
        self._text, self._thought = Cleaner(), Cleaner()

    def of(self, event: ev.Event) -> list[Update]:
        """Return the updates that tell of an event, in order; none for an event that an editor has no place for."""
        return list(self._of(event))

    def knows(self, key: str) -> bool:
        """Return whether the editor was told of a call that has no result yet."""
        call = self._calls.get(key)
        return call is not None and call.is_told

    def asked(self, key: str, content: Sequence[Content], title: str = "") -> schema.ToolCallUpdate:
        """Return a call as a question about it names it, with what will run or be written.

        Args:
            key: the key of the call.
            content: what the person decides about.
            title: the question itself, where it is about no call of a tool; some editors show nothing else of it.
        """
        call = self._calls.get(key)
        if call is None:
            return schema.ToolCallUpdate(
                tool_call_id=key, title=title[:_TITLE_CHARS] or None, content=list(content)
            )
        # Its arguments are whole by now.
        return schema.ToolCallUpdate(
            tool_call_id=key,
            title=title[:_TITLE_CHARS] or self._title(call),
            kind=call.card.does,
            content=list(content),
            locations=self._locations(call, ()),
            raw_input=_object(call.arguments),
        )

    def _of(self, event: ev.Event) -> Iterator[Update]:
        match event:
            case ev.TurnBegin(text=text, resumed=resumed, images=images) if self._past:
                self._is_unsent = not resumed
                for said in (text, *(f"[{image.label}]" for image in images)):
                    if said.strip():
                        yield helpers.update_user_message_text(said)
            case ev.SteerTaken(text=text, withdrawn=False) if self._past and text.strip():
                yield helpers.update_user_message_text(text)
            case ev.CheckpointCreated():
                self._is_unsent = False
            case ev.StepBegin():
                self._text, self._thought = Cleaner(), Cleaner()
            case ev.TextPart(text):
                if piece := self._text.feed(text):
                    yield helpers.update_agent_message_text(piece)
            case ev.ThinkPart(text):
                if piece := self._thought.feed(text):
                    yield helpers.update_agent_thought_text(piece)
            case ev.ToolCall():
                yield from self._begun(event)
            case ev.ToolCallPart(key, arguments):
                if (call := self._calls.get(key)) is not None:
                    call.arguments += arguments
            case ev.ToolStarted(key=key, name=name, arguments=arguments):
                yield from self._started(key, name, arguments)
            case ev.ToolOutput(key, text):
                yield from self._output(key, text)
            case ev.ToolResult():
                yield from self._ended(event)
            case ev.AgentChanged(key=key) if key in self._calls and not self._past:
                yield from self._agent_does(self._calls[key], event)
            case ev.StepRetry(wait_s=wait_s, reason=reason) if wait_s and not self._past:
                yield helpers.update_agent_thought_text(
                    f"\n(Retrying in {wait_s:.0f} s: {reason})\n"
                )
            case ev.ContextReverted(reason="dmail"):
                yield remark(_dmail_words(event))
            case ev.CompactionEnd(error=""):
                before, after = event.tokens_before, event.tokens_after
                yield remark(
                    f"Compacted: the context had {before:,} tokens and has {after:,} now. "
                    "/undo restores the messages."
                )
            case ev.Notice(level="warning" | "error", solved=False) if not self._past:
                yield remark(f"{event.text} {event.advice}".strip())
            case ev.TurnEnd(reason=reason, error=error) if self._past:
                if self._is_unsent:
                    yield remark("This message was not sent.")
                self._is_unsent = False
                if reason == "error" and error:
                    yield remark(f"{error} {event.advice}".strip())
            case ev.TitleChanged(title=title):
                yield schema.SessionInfoUpdate(session_update="session_info_update", title=title)
            case _:
                return

    # -- tool calls --------------------------------------------------------------------------------

    def _begun(self, event: ev.ToolCall) -> Iterator[Update]:
        card = card_of(event.name, event.card)
        # A list of tasks is the editor's plan; the call says nothing more.
        call = _ToldCall(event.name, card, event.arguments, is_told=card.shows != "list")
        self._calls[event.key] = call
        # A past call is told once, with its result.
        if call.is_told and not self._past:
            yield helpers.start_tool_call(
                event.key,
                self._title(call),
                kind=card.does,
                status="pending",
            )

    def _started(self, key: str, name: str, arguments: str) -> Iterator[Update]:
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _ToldCall(name, card_of(name))
            call.is_told = call.card.shows != "list"
            if call.is_told and not self._past:
                yield helpers.start_tool_call(key, self._title(call), kind=call.card.does)
        call.arguments = arguments
        if call.is_told and not self._past:
            yield helpers.update_tool_call(
                key,
                title=self._title(call),
                status="in_progress",
                raw_input=_object(arguments),
                locations=self._locations(call, ()),
            )

    def _output(self, key: str, text: str) -> Iterator[Update]:
        call = self._calls.get(key)
        if call is None or not call.is_told or self._past:
            return
        call.output = (call.output + text)[-_LIVE_CHARS:]
        now = time.monotonic()
        if now - call.shown_at >= _LIVE_S:
            call.shown_at = now
            yield helpers.update_tool_call(key, content=[_fenced(call.output.strip("\n"))])

    def _agent_does(self, call: _ToldCall, one: ev.AgentChanged) -> Iterator[Update]:
        """Tell what a sub-agent does, if it is something else than before."""
        does = ": ".join(filter(None, (agent_state_words(one), agent_news(one))))
        if one.is_over or does == call.does:
            return
        call.does, call.agent = does, agent_target(one)
        yield helpers.update_tool_call(
            one.key,
            title=self._title(call),
            status="pending" if one.state == "waiting" else "in_progress",
            raw_input=_object(call.arguments),
            content=[_text(clean(does))],
        )

    def _ended(self, event: ev.ToolResult) -> Iterator[Update]:
        call = self._calls.pop(event.key, None)
        for block in event.display:
            if isinstance(block, TodoBlock):
                yield helpers.update_plan(
                    helpers.plan_entry(item.title, status=_TODO_STATES[item.status])
                    for item in block.items
                )
        if call is None or not call.is_told:
            return
        status: schema.ToolCallStatus = "failed" if event.is_error else "completed"
        content = self._result(call, event)
        locations = self._locations(call, event.display)
        if self._past:
            yield helpers.start_tool_call(
                event.key,
                self._title(call),
                kind=call.card.does,
                status=status,
                content=content,
                locations=locations,
                raw_input=_object(call.arguments),
            )
            return
        yield helpers.update_tool_call(
            event.key,
            title=self._title(call),
            status=status,
            content=content,
            locations=locations,
        )

    def _result(self, call: _ToldCall, event: ev.ToolResult) -> list[Content]:
        diffs = [one for one in event.display if isinstance(one, DiffBlock)]
        if diffs and not event.is_error:
            return [piece for diff in diffs for piece in diff_contents(diff, self._work_dir)]
        output = clean(event.output[:_MOST_CHARS]).strip("\n")
        if len(event.output) > _MOST_CHARS:
            output += "\n…"
        shells = [one for one in event.display if isinstance(one, ShellBlock)]
        if call.card.is_command or shells:
            code = next((one.exit_code for one in shells), None)
            words = f"exit code {code}" if code is not None and code != 0 else ""
            found: list[Content] = [_fenced(output)] if output else []
            return [*found, _text(words)] if words else found
        if call.card.shows in ("answers", "answer", "text", "letter"):
            return [_text(output)] if output else []
        if call.card.kind == "path" and not event.is_error:
            # The editor has the file; a copy of it in the conversation only takes room.
            return [_text(event.message)] if event.message else []
        return [_fenced(output)] if output else []

    def _title(self, call: _ToldCall) -> str:
        what = call.agent or target(call.card, call.arguments, self._work_dir)
        if call.card.is_command and what:
            return what[:_TITLE_CHARS]
        return f"{short_name(call.name, call.card)} {what}".strip()[:_TITLE_CHARS]

    def _locations(
        self, call: _ToldCall, display: Sequence[DisplayBlock]
    ) -> list[schema.ToolCallLocation] | None:
        found = [
            schema.ToolCallLocation(path=absolute(one.path, self._work_dir), line=_first_line(one))
            for one in display
            if isinstance(one, DiffBlock)
        ]
        if not found and call.card.kind == "path":
            arguments = _object(call.arguments)
            named = next((arguments[key] for key in call.card.keys if key in arguments), None)
            if isinstance(named, str) and named:
                found = [schema.ToolCallLocation(path=absolute(named, self._work_dir))]
        return found or None


def absolute(path: str, work_dir: str) -> str:
    """Return a path of a call as the absolute one that the protocol wants."""
    return os.path.normpath(os.path.join(work_dir, os.path.expanduser(path)))


def diff_contents(block: DiffBlock, work_dir: str) -> Iterator[schema.FileEditToolCallContent]:
    """Yield a change of a file as the protocol has it, old and new text: one for each run of lines that belong together."""
    path = absolute(block.path, work_dir)
    for lines in _hunks(block.lines):
        old = [line.text for line in lines if line.sign != "+"]
        new = [line.text for line in lines if line.sign != "-"]
        yield helpers.tool_diff_content(
            path,
            "\n".join(new),
            None if block.created else "\n".join(old),
        )


def _hunks(lines: Sequence[DiffLine]) -> Iterator[list[DiffLine]]:
    """Yield the lines in runs without a gap in the numbers of either side."""
    run: list[DiffLine] = []
    next_old = next_new = -1
    longer = 0
    """The lines that the new side has more up to here."""
    for line in lines:
        follows = next_old if line.sign == "-" else next_new
        if run and line.number != follows:
            yield run
            run = []
        run.append(line)
        if line.sign == "-":
            longer -= 1
            next_old, next_new = line.number + 1, line.number + 1 + longer
        else:
            longer += line.sign == "+"
            next_old, next_new = line.number + 1 - longer, line.number + 1
    if run:
        yield run


def _first_line(block: DiffBlock) -> int | None:
    return next((line.number for line in block.lines if line.sign != " "), None)


def remark(text: str) -> Update:
    """Return a remark of the program, which is no word of the model, as a quoted paragraph."""
    quoted = clean(text).strip().replace("\n", "\n> ")
    return helpers.update_agent_message_text(f"\n\n> {quoted}\n\n")


def _dmail_words(event: ev.ContextReverted) -> str:
    calls = event.tool_calls_dropped
    what = f"{calls:,} tool call{'s' if calls != 1 else ''} removed from the context"
    return f"D-Mail to checkpoint #{event.checkpoint_id}: {what}.\n{event.text}"


def _text(text: str) -> schema.ContentToolCallContent:
    return helpers.tool_content(helpers.text_block(text))


def _fenced(text: str) -> schema.ContentToolCallContent:
    """Return output as a code block whose fence is longer than any in it."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence = "`" * max(3, longest + 1)
    return _text(f"{fence}\n{text}\n{fence}")


def _object(arguments: str) -> dict[str, Any]:
    try:
        found: object = lenient_json.parse(arguments) if arguments else None
    except (ValueError, RecursionError):
        return {}
    # It must be plain JSON on the way out, too.
    try:
        json.dumps(found)
    except (ValueError, TypeError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
