"""`AgentAnswer`: the updates of an external agent as steps of the conversation, while they come.

A step is what the agent says and the calls that follow; what comes after all of them have ended begins the next one, with a
checkpoint. The messages of a step are in the context when it has ended, and its changes of files are known by then.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from typing import Any

from acp import schema

from kimi_tui.external.looks import CHANGING, MOST_OUTPUT, CallFacts, CallLook
from kimi_tui.foreign_text import Cleaner, one_line
from kimi_tui.llm.message import ContentPart, FunctionCall, Message, TextPart, ThinkPart, ToolCall
from kimi_tui.prompts import INTERRUPTED
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.conversation_text import shortened
from kimi_tui.soul.folder_snapshots import ChangingTool
from kimi_tui.soul.messages import ends_with_answer
from kimi_tui.soul.tool_calls import LiveOutput
from kimi_tui.soul.tool_results import blocks_of, call_key, tool_message
from kimi_tui.tool_cards import ShellBlock, TodoBlock, TodoItem, card_of
from kimi_tui.tools.outcome import Effect, ToolOutcome, failure
from kimi_tui.wire import events as ev

log = logging.getLogger(__name__)

_MOST_CHARS = 2_000_000
"""Characters of the text, and of the reasoning, of a step; more is left out."""
_MOST_PLANS = 100
_MOST_ENTRIES = 100
_MOST_CALLS = 500
"""Calls of a step."""
_LONGEST_ID = 200
_PLAN_STATES = {"pending": "pending", "in_progress": "in_progress", "completed": "done"}
_NO_END = "The agent did not say how this call ended."


class ReadCall:
    """A call of the step.

    Args:
        key: its key.
        facts: what the agent says of it.
        look: its look when it was first shown.

    Attributes:
        began: when it began (monotonic, seconds).
        is_shown: whether it was published at all.
        is_started: whether it was published as running.
        outcome: its result; None while it runs.
        output: publishes its live output; None without any.
        shown: the output that was published.
        served: whether this program runs its command, so that its end is ours to tell.
        allowed: whether the user allowed it when the agent asked; `allowed_command` is the command that they saw, empty for none.
    """

    def __init__(self, key: str, facts: CallFacts, look: CallLook) -> None:
        self.key = key
        self.facts = facts
        self.look = look
        self.began = time.monotonic()
        self.is_shown = self.is_started = False
        self.outcome: ToolOutcome | None = None
        self.output: LiveOutput | None = None
        self.shown = ""
        self.served = False
        self.allowed = False
        self.allowed_command = ""


class AgentAnswer:
    """Reads the answer to one prompt.

    Args:
        conversation: the live conversation.
        change: the change of files that was begun before the prompt.
        step: the number of the turn's first step, which is published already.
        work_dir: the work folder.
    """

    def __init__(
        self, conversation: Conversation, change: ChangingTool, step: int, work_dir: str
    ) -> None:
        self._conversation = conversation
        self._wire = conversation.wire
        self._change = change
        self._n = step
        self._is_first = True
        self._work_dir = work_dir
        self._point: Checkpoint | None = None
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._chars = [0, 0]
        self._calls: dict[str, ReadCall] = {}
        self._cleaners = Cleaner(), Cleaner()
        self._plan: tuple[TodoItem, ...] = ()
        self._n_plans = 0

    @property
    def calls(self) -> Sequence[ReadCall]:
        """The calls of the step."""
        return tuple(self._calls.values())

    @property
    def running(self) -> Sequence[ReadCall]:
        """The calls that have no result yet."""
        return tuple(one for one in self._calls.values() if one.outcome is None)

    async def take(self, update: Any) -> None:
        """Take an update."""
        match update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
                await self._said(text, 0)
            case schema.AgentThoughtChunk(content=schema.TextContentBlock(text=text)):
                await self._said(text, 1)
            case schema.AgentMessageChunk(content=content) if not isinstance(
                content, schema.TextContentBlock
            ):
                await self._said(f"[{one_line(str(content.type))}]", 0)
            case schema.ToolCallStart() | schema.ToolCallProgress():
                await self.call(update)
            case schema.AgentPlanUpdate(entries=entries):
                await self._planned(entries)
            case _:
                pass

    # -- steps -------------------------------------------------------------------------------------

    async def _begin_step(self) -> Checkpoint:
        """Return the checkpoint of the step, which begins if there is none."""
        if self._point is not None:
            return self._point
        if not self._is_first:
            self._n += 1
            self._wire.publish(ev.StepBegin(self._n))
        self._is_first = False
        self._cleaners = Cleaner(), Cleaner()
        self._point = await self._conversation.checkpoint("step")
        return self._point

    async def _ready_for_more(self) -> Checkpoint:
        """End the step if all its calls have ended; return the checkpoint of the one that goes on."""
        if self._calls and not self.running:
            await self.end_step()
        return await self._begin_step()

    async def end_step(self, *, interrupted: bool = False, broken: str = "") -> None:
        """Append the messages of the step to the context; nothing if no step has begun.

        Args:
            interrupted: the step ended early.
            broken: the failure that ended it; empty if the user did.
        """
        if self._point is None:
            return
        for call in self.running:
            await self._end(call, interrupted=interrupted)
        await self._conversation.files.settled()
        parts: list[ContentPart] = []
        if thoughts := "".join(self._thoughts).strip():
            parts.append(ThinkPart(think=thoughts))
        if text := "".join(self._text):
            parts.append(TextPart(text=text))
        calls = self.calls
        answer = Message(
            role="assistant",
            content=parts,
            tool_calls=[
                ToolCall(
                    id=call.key,
                    function=FunctionCall(name=call.look.name, arguments=call.look.as_json),
                )
                for call in calls
            ]
            or None,
            interrupted=True if interrupted else None,
            broken=broken or None,
        )
        results = [
            tool_message(call.key, call.outcome) for call in calls if call.outcome is not None
        ]
        self._point = None
        self._text, self._thoughts, self._chars = [], [], [0, 0]
        self._calls = {}
        if parts or calls:
            await self._conversation.append([answer, *results])
            self._conversation.context.sync_soon()
            self._conversation.publish_status()
            if broken:
                self._wire.publish(ev.AnswerBroken(broken))

    async def finish(self, *, interrupted: bool, broken: str = "") -> None:
        """End the last step, at the end of the prompt; the arguments are those of `end_step`."""
        await self.end_step(interrupted=interrupted, broken=broken)

    async def leave_files(self) -> None:
        """Look at the files once more, for what the agent changed outside of its calls."""
        files, points = self._conversation.files, self._conversation.context.checkpoints
        files.after_change(self._change, points[-1].uid if points else "", "")
        await files.settled()

    # -- what it says ------------------------------------------------------------------------------

    async def _said(self, text: str, which: int) -> None:
        if not text:
            return
        await self._ready_for_more()
        room = _MOST_CHARS - self._chars[which]
        if room <= 0:
            return
        self._chars[which] += len(text)
        text = text[:room]
        if piece := self._cleaners[which].feed(text):
            (self._thoughts if which else self._text).append(piece)
            self._wire.publish(ev.ThinkPart(piece) if which else ev.TextPart(piece))
        if room <= len(text):
            words = f"The agent wrote more than {_MOST_CHARS:,} characters in one step; the rest of it is left out."
            self._wire.publish(ev.Notice("warning", words))

    async def _planned(self, entries: Sequence[schema.PlanEntry]) -> None:
        """Show a plan as a list of tasks; the same one is shown once."""
        items = tuple(
            TodoItem(one_line(one.content[:500]), _PLAN_STATES.get(str(one.status), "pending"))  # pyright: ignore[reportArgumentType]
            for one in entries[:_MOST_ENTRIES]
        )
        if items == self._plan or self._n_plans >= _MOST_PLANS:
            return
        self._plan = items
        self._n_plans += 1
        point = await self._ready_for_more()
        key = call_key(point.uid, len(self._calls))
        todos = [{"title": one.title, "status": one.status} for one in items]
        call = ReadCall(key, CallFacts(key), CallLook("SetTodoList", {"todos": todos}))
        self._calls[f"\0{key}"] = call
        call.is_shown = True
        self._wire.publish(ev.ToolCall(key, "SetTodoList", json.dumps({"todos": todos}), key))
        call.outcome = ToolOutcome(message="The plan was updated.", effects=(TodoBlock(items),))
        await self._publish_result(call, interrupted=False)

    # -- calls -------------------------------------------------------------------------------------

    async def call(self, update: Any, *, is_question: bool = False) -> ReadCall | None:
        """Take what the agent says of a call, which may be new; return it, None if it is unknown or there are too many.

        A call that has ended is not changed any more. The text of a question about a call (`is_question`) is no output of it.
        """
        name = update.tool_call_id[:_LONGEST_ID]
        call = self._calls.get(name)
        if call is None:
            is_new = not isinstance(update, schema.ToolCallProgress) or bool(update.title)
            if len(self._calls) >= _MOST_CALLS or not is_new:
                return None
            point = await self._ready_for_more()
            facts = CallFacts(name)
            facts.take(update)
            key = call_key(point.uid, len(self._calls))
            call = self._calls[name] = ReadCall(key, facts, facts.look(self._work_dir))
        elif call.outcome is not None:
            return call
        else:
            call.facts.take(update)
        if call.served:
            return call
        if call.facts.is_told:
            self.show(call)
        if call.facts.status == "in_progress" and call.facts.is_told:
            self.started(call)
        if call.facts.has_ended:
            await self._end(call)
        elif call.is_started and not is_question:
            self._show_output(call)
        return call

    def show(self, call: ReadCall) -> None:
        """Publish a call, once, as it is known now. Its tool does not change after that."""
        if not call.is_shown:
            call.is_shown = True
            look = call.look = call.facts.look(self._work_dir)
            self._wire.publish(
                ev.ToolCall(call.key, look.name, look.as_json, call.facts.id, look.card)
            )

    def started(self, call: ReadCall) -> None:
        """Publish that a call runs, once."""
        self.show(call)
        look = call.facts.look(self._work_dir)
        # A card keeps its tool; what it is about may have come since.
        if look.name == call.look.name:
            call.look = look
        if not call.is_started:
            call.is_started = True
            self._wire.publish(ev.ToolStarted(call.key, call.look.name, call.look.as_json))

    def emit(self, call: ReadCall, text: str) -> None:
        """Publish live output of a call."""
        if call.outcome is None:
            call.output = call.output or LiveOutput(self._wire, call.key)
            call.output.emit(text)

    def _show_output(self, call: ReadCall) -> None:
        text = call.facts.text()
        if call.look.card is not None and call.look.card.shows == "answer":
            # A sub-agent tells what it does now; each is a line of its own.
            if text and text != call.shown and "\n" not in text.strip():
                self.emit(call, f"\n{text.strip()}" if call.shown else text.strip())
                call.shown = text
            return
        if call.facts.kind != "execute":
            return
        if len(text) > len(call.shown) and text.startswith(call.shown):
            self.emit(call, text[len(call.shown) :])
            call.shown = text

    async def end_served(self, call: ReadCall, outcome: ToolOutcome) -> None:
        """End a call whose command this program ran."""
        if call.outcome is None:
            call.outcome = outcome
            await self._close(call, interrupted=False)

    async def _end(self, call: ReadCall, *, interrupted: bool = False) -> None:
        self.started(call)
        facts = call.facts
        if interrupted:
            call.outcome = failure(INTERRUPTED, brief="stopped")
        else:
            call.outcome = self._outcome(call)
        await self._close(call, interrupted=interrupted and not facts.has_ended)

    def _outcome(self, call: ReadCall) -> ToolOutcome:
        facts = call.facts
        output = shortened(facts.text(), MOST_OUTPUT)
        failed, brief = facts.status == "failed", ""
        # A call that failed has changed nothing, whatever it was to change.
        effects: list[Effect] = [] if failed else [*facts.edits(self._work_dir)]
        if card_of(call.look.name).is_command:
            code = facts.exit_code
            effects.append(ShellBlock(facts.command, code, time.monotonic() - call.began))
            brief = f"exit {code}" if code is not None else ""
            failed = failed or bool(code)
        if failed and not brief:
            brief = "failed"
        message = "" if facts.has_ended else _NO_END
        changed = [one.path for one in facts.edits(self._work_dir)]
        if changed and not (output or message or failed):
            # The text of the conversation says it, where an agent is told of the conversation as text.
            message = f"Changed {', '.join(changed[:20])}."
        return ToolOutcome(output, message, failed, brief, tuple(effects))

    async def _close(self, call: ReadCall, *, interrupted: bool) -> None:
        if call.output is not None:
            call.output.close()
        if call.facts.kind in CHANGING or call.served:
            self.note_changes(call.key)
        await self._publish_result(call, interrupted=interrupted)

    def note_changes(self, key: str) -> None:
        """Have the files looked at: what changed since the last look is the work of this call."""
        files = self._conversation.files
        # The next span begins before this one ends, so that nothing falls between them.
        following = ChangingTool(None)
        files.folder.begin(following)
        files.after_change(self._change, key.rpartition(":")[0], key)
        self._change = following

    async def _publish_result(self, call: ReadCall, *, interrupted: bool) -> None:
        outcome = call.outcome
        assert outcome is not None
        self._wire.publish(
            ev.ToolResult(
                key=call.key,
                is_error=outcome.is_error,
                output=outcome.output,
                message=outcome.message,
                display=await blocks_of(outcome.effects, outcome.brief),
                duration_s=time.monotonic() - call.began,
                interrupted=interrupted,
                id=call.facts.id,
            )
        )

    @property
    def needs_note(self) -> bool:
        """Whether the context ends with an answer, so that a step without a message of the user follows it."""
        return ends_with_answer(self._conversation.context.messages)
