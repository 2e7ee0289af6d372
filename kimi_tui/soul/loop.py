"""The agent loop of a turn: steps until the model calls no more tools; compactions, D-Mails, steers and reminders between.

A step is a checkpoint, one call of the model, and the tools that its answer calls. A steer is a message that the user sends
while the agent works; it waits in the `Inbox` until the next step begins. The program's own messages to the model are
`Reminders`.
"""

from __future__ import annotations

import asyncio
import os.path
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal
from uuid import uuid4

from kimi_tui.agent_parts import Mode
from kimi_tui.foreign_text import one_line
from kimi_tui.hooks.runner import MOST_STOPS, Hooks
from kimi_tui.images import Image
from kimi_tui.llm.completion import AnswerItem, Collector, RetryNotice, complete
from kimi_tui.llm.errors import ContextOverflowError, LLMError
from kimi_tui.llm.message import FunctionCall, Message, user_message
from kimi_tui.llm.message import TextPart as MessageTextPart
from kimi_tui.llm.message import ThinkPart as MessageThinkPart
from kimi_tui.llm.message import ToolCall as MessageToolCall
from kimi_tui.llm.provider import (
    ChatProvider,
    PromptRead,
    TextDelta,
    TextWasThought,
    ThinkDelta,
    ToolCallDelta,
    Usage,
)
from kimi_tui.llm.tokens import text_tokens
from kimi_tui.prompts import CUT_OFF, INTERRUPTED, NOT_BEGUN, prompt
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.attachments import Attachments
from kimi_tui.soul.circles import Circles
from kimi_tui.soul.compaction import Compactor, advice_when_full, figures_when_full
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.denwarenji import BackToTheFuture, DMail
from kimi_tui.soul.dmail import DMailDelivery, NoDraft, drafted
from kimi_tui.soul.dmail_rules import DMailRules, Firing, StepFacts, fired
from kimi_tui.soul.errors import (
    CompactionFailed,
    MaxStepsReached,
    NothingToCompact,
    RefusedByHook,
    SoulError,
)
from kimi_tui.soul.inbox import Inbox, Said
from kimi_tui.soul.messages import (
    ends_with_answer,
    image_block,
    is_user_words,
    label_of_message,
    quoted,
)
from kimi_tui.soul.project_notes import (
    left_out_words,
    notes_below,
    reminder,
    unreadable_words,
)
from kimi_tui.soul.request_form import LEAN_BELOW, SLOW_PROMPT_S
from kimi_tui.soul.tasks import OrphanedTasks, TimeSlices, shielded
from kimi_tui.soul.tool_calls import Call, CallResult, ToolBatch, ToolRuntime
from kimi_tui.soul.tool_results import call_key, tool_message, with_versions
from kimi_tui.soul.written_calls import WrittenCalls, written_calls
from kimi_tui.tool_cards import AGENT_NAMES
from kimi_tui.tools.credentials import find_keys, redact_keys
from kimi_tui.tools.jobs import Job
from kimi_tui.tools.outcome import failure
from kimi_tui.wire.events import (
    AnswerBroken,
    FilesAttached,
    Notice,
    RuleApplied,
    StepBegin,
    StepInterrupted,
    StepRetry,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolCallPart,
    ToolResult,
)

_COMMAND_CHARS = 200
INTERNAL_ERROR = "An internal error in kimi-tui ended the answer."
"""Why an answer broke off that no failure of the model ended."""
_SYNCED_WITHIN_S = 0.05
"""The seconds within which results of steps that changed no file are synced, together."""
_RUN = "Yes, run it"
_RUN_ALL = "Yes, and in this session treat such text as calls"
_WRITTEN_KEY = "calls written as text"
StepEnd = Literal["go on", "done", "rejected", "interrupted"]
TurnOutcome = Literal["done", "rejected", "interrupted"]
GO_ON = "Continue"
GO_ON_QUESTION = "Continue?"
"""The end of the question about an agent that repeats itself; the sentence before it says how."""
_TELL = "Tell the agent something and continue"

_ENDINGS = {
    "length": (
        "The answer was cut off: the model reached its output limit.",
        "Ask it to continue, or to answer in smaller parts.",
    ),
    "content_filter": (
        "The provider's content filter cut off the answer.",
        "Write the message in other words.",
    ),
}


class StreamedAnswer:
    """The answer of one step while it streams. Each part is published, and kept for the case of a stop.

    Args:
        conversation: where events are published.
        collector: collects the parts that come; it may have earlier attempts of the step.
        n: the step's number.
        checkpoint_uid: names the tool calls.
    """

    def __init__(
        self, conversation: Conversation, collector: Collector, n: int, checkpoint_uid: str
    ) -> None:
        self._conversation = conversation
        self._wire = conversation.wire
        self._n = n
        self._uid = checkpoint_uid
        self._asked_at = time.monotonic()
        self._first_at = 0.0
        self.collector = collector
        self._reason = ""
        """Why the last attempt that failed did so."""
        self._published: dict[int, ToolCallDelta] = {}
        self._nameless: dict[int, ToolCallDelta] = {}

    def open_calls(self) -> list[tuple[str, str]]:
        """Return keys and provider's ids of the tool calls that were published."""
        return [
            (call_key(self._uid, position), call.id) for position, call in self._published.items()
        ]

    @property
    def waited_s(self) -> float:
        """The seconds that the server took for the first piece of its answer."""
        return max(0.0, self._first_at - self._asked_at)

    def publish(self, item: AnswerItem) -> None:
        """Publish one more item of the stream; a retry makes the earlier items void."""
        if isinstance(item, TextDelta | ThinkDelta | ToolCallDelta):
            self._first_at = self._first_at or time.monotonic()
        match item:
            case TextDelta(text) if text:
                self._wire.publish(TextPart(text))
            case ThinkDelta(text) if text:
                self._wire.publish(ThinkPart(text))
            case TextWasThought():
                # The reasoning was published as text. A retry makes views drop that text, and this takes its place.
                self._wire.publish(
                    StepRetry(self._n, 1, 1, 0.0, "Only reasoning had arrived so far.")
                )
                self._wire.publish(ThinkPart(self.collector.thinking))
            case ToolCallDelta():
                self._on_call(item)
            case RetryNotice():
                self._asked_at, self._first_at = time.monotonic() + item.wait_s, 0.0
                self._reason = item.reason
                self._published.clear()
                self._nameless.clear()
                self._conversation.publish_retry(self._n, item)
            case PromptRead():
                self._conversation.publish_progress(item)
            case _:
                pass

    async def kept(self, broken: str = "") -> Message | None:
        """Return what is kept of an answer that no attempt completed: the message of the attempt that brought most.

        If that is an earlier attempt, it is published again, so that what is seen is what is kept.

        Args:
            broken: the failure that ended it; empty if the user did.
        """
        is_earlier = self.collector.take_longest()
        message = await self.collector.whole(interrupted=True, broken=broken)
        if is_earlier and message is not None:
            self._published.clear()
            self._wire.publish(StepRetry(self._n, 1, 1, 0.0, self._reason))
            for part in message.parts:
                if isinstance(part, MessageThinkPart):
                    self._wire.publish(ThinkPart(part.think))
                elif isinstance(part, MessageTextPart):
                    self._wire.publish(TextPart(part.text))
            for position, call in enumerate(message.tool_calls or ()):
                function = call.function
                self._on_call(
                    ToolCallDelta(position, call.id, function.name, function.arguments or "")
                )
        return message

    def _on_call(self, item: ToolCallDelta) -> None:
        position = item.position
        key = call_key(self._uid, position)
        if position in self._published:
            if item.arguments:
                self._wire.publish(ToolCallPart(key, item.arguments))
            return
        before = self._nameless.pop(position, None)
        if before is not None:
            item = ToolCallDelta(
                position,
                before.id or item.id,
                before.name or item.name,
                before.arguments + item.arguments,
            )
        if not item.name:
            self._nameless[position] = item
            return
        self._published[position] = item
        card = self._conversation.all_tools.card(item.name)
        self._wire.publish(ToolCall(key, item.name, item.arguments, item.id, card))


class Reminders:
    """Makes `user` messages of the program to the model: a changed mode, a moved work folder, notes of a folder, background commands that ended.

    They are not in the system prompt, which stays the same to the byte for the provider's cache. They are appended before the
    next step, after the user's message or the last results, and only if this world line does not have them yet: after a
    rewind to before a reminder it is sent again.

    Args:
        runtime: the live conversation, the approval mode, the background commands.

    Attributes:
        are_off: whether there are none: the agent is told nothing by the program.
    """

    def __init__(self, runtime: ToolRuntime) -> None:
        self.are_off = False
        self._runtime = runtime
        self._conversation = runtime.conversation
        self._told_jobs: tuple[int, set[int]] = (0, set())
        self._told_added: tuple[int, frozenset[str]] = (0, frozenset())
        # The system prompt says nothing of plan mode.
        self._first_mode = "ask" if runtime.approval.mode == "plan" else runtime.approval.mode

    def begins_in(self, mode: Mode) -> None:
        """Take this for the mode in which the session was opened, of which the model need not be told."""
        self._first_mode = mode

    async def due(self) -> list[Message]:
        """Return the reminders to append before the next step."""
        if self.are_off:
            return []
        memory, approval = self._conversation.memory, self._runtime.approval
        moved_from, folder = self._runtime.moved_from, str(self._runtime.work_dir)
        if approval.mode != self._first_mode or moved_from:
            await self._conversation.load_memory()
        due: list[Message] = []
        if moved_from and memory.known and memory.folder != folder:
            memory.folder = folder
            text = prompt("folder_moved", BEFORE=quoted(moved_from), NOW=quoted(folder))
            due.append(
                Message.model_validate({"role": "user", "content": text, "work_dir": folder})
            )
        mode = approval.mode
        if memory.known and mode != (memory.mode or self._first_mode):
            memory.mode = mode
            lean = self._conversation.form.lean and mode == "plan"
            text = prompt("lean/mode_plan" if lean else f"mode/{mode}")
            due.append(Message.model_validate({"role": "user", "content": text, "mode": mode}))
        due += map(user_message, self._of_added())
        if self._runtime.jobs.all:
            due += map(user_message, self._of_jobs())
        return due

    def _of_added(self) -> Iterator[str]:
        """Yield a text about the folders that the user added and that this world line was not told of."""
        added = () if self._runtime.added is None else self._runtime.added.paths
        if not added:
            return
        n_changes, told = self._told_added
        if n_changes != self._conversation.n_changes:
            told = frozenset[str]()
        news = [path for path in added if path not in told]
        if news:
            yield prompt("folder_added", FOLDERS=quoted(", ".join(map(one_line, news))))
        self._told_added = self._conversation.n_changes, told.union(news)

    async def of_folders(self, done: Sequence[CallResult]) -> list[Message]:
        """Return the notes of the folders whose files these calls used."""
        memory = self._conversation.memory
        used = {path for each in done for path in each.noted or ()}
        top = str(self._runtime.work_dir)
        if not self._runtime.reads_notes or all(os.path.dirname(path) == top for path in used):
            # The notes of the work folder itself are in the system prompt.
            return []
        known = frozenset(memory.notes)
        notes = await asyncio.to_thread(
            notes_below,
            self._runtime.work_dir,
            used,
            known,
            no_keys=self._runtime.asks_for_keys,
        )
        if self._runtime.asks_for_keys and (words := left_out_words(notes)):
            self._conversation.wire.publish(Notice("info", words))
        if words := unreadable_words(notes):
            self._conversation.wire.publish(Notice("warning", words))
        memory.notes.update(one.path for one in notes)
        most = self._conversation.result_chars()
        return [reminder(one, most) for one in notes]

    def _of_jobs(self) -> Iterator[str]:
        """Yield a text for each background command that has ended, and one for running commands that another world line began."""
        for job in self._runtime.jobs.take_ended():
            how = job.how_it_ended
            if self._runtime.asks_for_keys:
                how = redact_keys(how, find_keys(how))
            yield prompt("job_ended", ID=str(job.id), COMMAND=_command(job), HOW=quoted(how))
        conversation = self._conversation
        n_changes, told = self._told_jobs
        if n_changes != conversation.n_changes:
            told = set[int]()
        running = [job for job in self._runtime.jobs.running if job.id not in told]
        if running:
            uids = {point.uid for point in conversation.context.checkpoints}
            running = [job for job in running if job.key.rpartition(":")[0] not in uids]
        if running:
            listed = "\n".join(f"- {job.id}: `{_command(job)}`" for job in running)
            yield prompt("jobs_running", JOBS=listed)
        self._told_jobs = conversation.n_changes, told.union(job.id for job in running)


def _command(job: Job) -> str:
    return quoted(one_line(job.command)[:_COMMAND_CHARS])


class AgentLoop:
    """Runs the steps of turns.

    Args:
        tools: runs the tools, and has the live conversation.
        orphans: takes over the tasks of stopped tools.
        compactor: compacts the conversation when the window is nearly full.
        dmails: delivers the agent's D-Mails.
        inbox: holds the steers.
        attachments: makes user messages, with the files that their text names.

    Attributes:
        reminders: makes the program's own messages to the model.
        hooks: the hooks that hear of the user's messages and the ends of turns; None for none.
        opening: returns what hooks said at the start of the session, for the model; None once it was told.
    """

    def __init__(
        self,
        tools: ToolRuntime,
        orphans: OrphanedTasks,
        compactor: Compactor,
        dmails: DMailDelivery,
        inbox: Inbox,
        attachments: Attachments,
    ) -> None:
        self._attachments = attachments
        self._tools = tools
        self._conversation = tools.conversation
        self._orphans = orphans
        self._compactor = compactor
        self._dmails = dmails
        self._inbox = inbox
        self.reminders = Reminders(tools)
        self.hooks: Hooks | None = None
        self.opening: Callable[[], Awaitable[str]] | None = None
        control = self._conversation.limits.control
        self._circles = Circles(control.same_call_limit, control.same_dmail_limit)
        self._rules = DMailRules(
            self._conversation.limits.dmail.active_rules, control.same_call_limit
        )
        self._user_messages: list[Message] = []
        self._published_full = False
        self._published_prompt_cut = False
        self._asked_for_tools = False
        self._offered_lean: set[str] = set()

    async def run(
        self,
        text: str = "",
        images: Sequence[Image] = (),
        older: Sequence[Said] = (),
        piped: str = "",
        piped_as: str = "standard input",
    ) -> TurnOutcome:
        """Take steps until the agent stops.

        Args:
            text: the user's message. Without text and images the steers that wait begin the turn; if there are none
                either, the agent continues from the present context.
            images: the images pasted into the message.
            older: the steers that were said before the message.
            piped: a text that came with the message, in which no names of files are looked for; `piped_as` says what it is.

        Raises:
            LLMError: the model could not be asked.
            SoulError: a limit was reached.
            asyncio.CancelledError: stopped.
        """
        # A missing model is reported before any message is added.
        self._conversation.model.require()
        self._conversation.denwa.begin_turn()
        self._circles.begin()
        self._rules.begin()
        # The user's messages of this turn survive every compaction unchanged.
        self._user_messages = []
        if self._tools.paused() and (refused := await self._finish_calls()) is not None:
            return refused
        if text.strip() or images:
            context = await self._check_prompt(text)
            await self._append_prompt(text, images, older, (piped, piped_as), context)
        elif not await self._take_steers(begin=True):
            self._user_messages = self._last_user_message()
        self._published_full = self._asked_for_tools = False
        # The user's message is shown before this: a local server may load the model for a while before it reports its window.
        await self._conversation.follow_model()
        n, n_calls, n_stops = 1, 0, 0
        while True:
            if n_calls >= self._conversation.limits.control.max_steps_per_turn:
                raise MaxStepsReached(n_calls)
            self._conversation.check_budget()
            n_calls += 1
            await self._take_steers()
            if reminders := await self.reminders.due():
                await self._conversation.append(reminders)
            self._conversation.wire.publish(StepBegin(n))
            try:
                end = await self._step(n)
            except BackToTheFuture as back:
                self._rules.sent()
                if await self._dmails.send(back):
                    # The past self takes the step again; it counts as a call all the same.
                    continue
                end = "go on"
            except Exception:
                # Every step that was begun has an end on the wire. The end of a stopped step is published by the code that
                # stops it.
                self._conversation.wire.publish(StepInterrupted(failed=True))
                raise
            context = self._conversation.context
            if end in ("rejected", "interrupted"):
                await context.sync()
                return end
            if end == "done" and not self._inbox.steers:
                await context.sync()
                if not await self._is_kept_on(n_stops):
                    return "done"
                n_stops += 1
            else:
                # The next request does not wait for the disk: a power cut would lose the end of what was said, and nothing in
                # its middle. Only a tool waits until the disk has its call (`ToolBatch`).
                is_synced = self._conversation.files.folder.is_synced
                context.sync_soon(_SYNCED_WITHIN_S if is_synced else 0.0)
            n += 1

    async def _finish_calls(self) -> TurnOutcome | None:
        """Have the sub-agents go on whose calls at the end of the conversation have no result, and append the results.

        Returns:
            the end of the turn, if the user refused what one asked for; None to go on with the turn.
        """
        pending, paused = self._conversation.pending_calls(), self._tools.paused()
        if not any(key in paused for key in pending):
            return None
        all_calls = [
            Call(key, call.id, call.function.name, call.function.arguments or "")
            for key, call in pending.items()
        ]
        batch = ToolBatch(self._tools, [one for one in all_calls if one.name in AGENT_NAMES])
        try:
            await self._conversation.load_memory()
            done = {each.call.key: each for each in await batch.run()}
        except asyncio.CancelledError:
            self._orphans.adopt(await batch.stop())
            done = {each.call.key: each for each in batch.results}
            await self._append_finished(all_calls, done)
            self._conversation.wire.publish(StepInterrupted())
            raise
        await self._append_finished(all_calls, done)
        self._conversation.publish_status()
        is_rejected = any(each.rejected and not each.feedback for each in done.values())
        return "rejected" if is_rejected else None

    async def _append_finished(self, calls: Sequence[Call], done: Mapping[str, CallResult]) -> None:
        """Append the results of calls in their order; what else had not run when the turn ended is not run now."""
        results: list[CallResult] = []
        for call in calls:
            each = done.get(call.key)
            if each is None:
                each = CallResult(call, failure(INTERRUPTED, brief="stopped"), interrupted=True)
                self._conversation.wire.publish(
                    ToolResult(call.key, True, "", INTERRUPTED, interrupted=True, id=call.id)
                )
            results.append(each)
        await self._conversation.append(_results(results))

    async def _check_prompt(self, text: str) -> str:
        """Run the hooks before a message of the user; return what they, and those of the session's start, say to the model.

        Raises:
            RefusedByHook: a hook refused the message.
        """
        hooks = self.hooks
        if hooks is None:
            return ""
        opening = ""
        if self.opening is not None:
            opening = await self.opening()
            self.opening = None
        said = await hooks.prompt(text)
        if said.by:
            raise RefusedByHook("your message", said.by, said.reason)
        return "\n".join(filter(None, (opening, said.context)))

    @shielded
    async def _append_prompt(
        self,
        text: str,
        images: Sequence[Image],
        older: Sequence[Said],
        piped: tuple[str, str],
        context: str,
    ) -> None:
        """Append the user's message after a new checkpoint, preceded by the steers that came before it."""
        conversation = self._conversation
        words = await self._attachments.user_message(text, images, *piped)
        await conversation.checkpoint("user", label_of_message(words))
        await self._take_steers(older)
        self._user_messages = [words]
        place = conversation.messages_since_checkpoint
        await conversation.append([words])
        if context:
            await conversation.append([hook_message("the user's message", context)])
        self._inbox.arrived()
        self._publish_attached(place, [words])
        conversation.publish_status()

    async def _take_steers(
        self, only: Sequence[Said] | None = None, *, begin: bool = False
    ) -> bool:
        """Append waiting steers: all, or those of `only`.

        Args:
            only: the steers to append; None for all.
            begin: whether they begin a turn, after a new checkpoint.

        Returns:
            whether any steers waited.
        """
        # They are taken before the first await: from here on they are on their way into the context, and cannot be taken back.
        steers = self._inbox.take(self._inbox.steers if only is None else only)
        contexts: list[str] = []
        for one in steers if self.hooks is not None else ():
            try:
                contexts.append(await self._check_prompt(one.text))
            except RefusedByHook as refused:
                self._inbox.put_back([one])
                self._inbox.hand_back([one])
                steers = tuple(other for other in steers if other is not one)
                self._conversation.wire.publish(Notice("warning", refused.message, refused.advice))
            except BaseException:
                self._inbox.put_back(steers)
                raise
        if steers:
            self._circles.interrupted()
            await self._append_steers(steers, begin=begin)
            if context := "\n".join(filter(None, contexts)):
                await self._conversation.append([hook_message("the user's message", context)])
        return bool(steers)

    async def _is_kept_on(self, n_before: int) -> bool:
        """Run the hooks at the end of a turn; return whether one has the agent go on, with its reason appended.

        Args:
            n_before: how many times they have done so in this turn.
        """
        hooks, conversation = self.hooks, self._conversation
        if hooks is None or not hooks.has("Stop"):
            return False
        files = conversation.files
        last = conversation.context.messages[-1] if conversation.context.messages else None
        change = await files.before_change(None)
        try:
            said = await hooks.stop(n_before, last.text if last is not None else "")
        finally:
            points = conversation.context.checkpoints
            files.after_change(change, points[-1].uid if points else "", "")
        await files.settled()
        if not said.by or said.stops:
            return False
        if n_before >= MOST_STOPS:
            conversation.wire.publish(
                Notice(
                    "warning",
                    f"The hook {said.by} kept the turn from ending {MOST_STOPS} times, so the turn ends now.",
                    "You can turn the hook off in /hooks.",
                )
            )
            return False
        text = f"{said.by}: {said.reason}"
        await conversation.append([user_message(prompt("hook_stop", TEXT=quoted(text)))])
        return True

    @shielded
    async def _append_steers(self, steers: tuple[Said, ...], *, begin: bool) -> None:
        try:
            messages = [
                await self._attachments.user_message(one.text, one.images) for one in steers
            ]
            self._user_messages += messages
            if begin:
                await self._conversation.checkpoint("user", label_of_message(messages[0]))
            place = self._conversation.messages_since_checkpoint
            await self._conversation.append(messages)
        except BaseException:
            self._inbox.put_back(steers)
            raise
        self._inbox.arrived(steers, place)
        self._publish_attached(place, messages)

    def _publish_attached(self, place: int, messages: Sequence[Message]) -> None:
        """Publish the files and images that were attached because messages name them.

        Args:
            place: the number of the first message after the newest checkpoint.
            messages: messages of the user.
        """
        for number, message in enumerate(messages, place):
            images = tuple(image_block(part) for part in message.images if part.attached)
            if message.attached or images:
                self._conversation.wire.publish(FilesAttached(number, message.attached, images))

    def _last_user_message(self) -> list[Message]:
        messages = self._conversation.context.messages
        for place in range(len(messages) - 1, -1, -1):
            if is_user_words(messages[place]):
                return [messages[place]]
        return []

    async def _step(self, n: int) -> StepEnd:
        """Take step `n`.

        Raises:
            LLMError: the model could not be asked.
            BackToTheFuture: D-Mails were sent.
            asyncio.CancelledError: the step was stopped; complete parts are in the context, where every call has its result.
        """
        async with self._conversation.model.call() as provider:
            await self._compact_if_needed(provider, n)
            is_compacted = False
            collector = Collector(provider.info.provider, provider.info.model)
            while True:
                try:
                    point, calls = await self._call_model(n, provider, collector)
                    break
                except ContextOverflowError as error:
                    try:
                        if self._conversation.choose_form():
                            # The refusal has named a window that has room for few tools only.
                            self._conversation.tell_form()
                            self._publish_refused(n, error)
                            await self._compact_if_needed(provider, n)
                        elif is_compacted:
                            raise
                        else:
                            is_compacted = True
                            await self._compact_refused(n, provider, error)
                    except BaseException as failure:
                        point = self._conversation.context.checkpoints[-1]
                        answer = StreamedAnswer(self._conversation, collector, n, point.uid)
                        await self._keep_broken(answer, point, failure)
                        raise
        # The model has answered, and may be replaced while its tools run.
        return await self._run_tools(point, calls)

    async def _compact_if_needed(self, provider: ChatProvider, n: int) -> None:
        meter, window = self._conversation.meter, provider.info.window
        trigger = self._conversation.limits.compaction_trigger(window)
        if meter.used < trigger:
            return
        if meter.fixed >= trigger:
            # The server counts otherwise, or adds much text of its own: there would be a compaction in every step.
            await self._go_on_full(provider, n)
            return
        try:
            await self._compactor.compact(
                provider, automatic=True, turn=self._user_messages, step=n
            )
        except NothingToCompact:
            # The newest messages alone are this long. If they fit the window, the model may still answer them.
            await self._go_on_full(provider, n)
            return
        if min(meter.used, meter.uncorrected) >= trigger:
            if await self._goes_without_tools(window, trigger):
                return
            raise CompactionFailed(
                f"The conversation was compacted, but it still takes {figures_when_full(self._conversation, window)}.",
                advice=advice_when_full(self._conversation),
            )

    async def _go_on_full(self, provider: ChatProvider, n: int) -> None:
        """Go on with a context that no compaction makes smaller, as far as it fits the window; without tools if the user says so.

        Raises:
            CompactionFailed: the context does not fit the window.
        """
        meter, window = self._conversation.meter, provider.info.window
        # A server's figure alone stops no turn, since it may be wrong: the server refuses what is really too long.
        fits = min(meter.used, meter.uncorrected) < window
        if await self._goes_without_tools(window, window):
            await self._compact_if_needed(provider, n)
            return
        if not fits:
            raise CompactionFailed(
                f"A request takes {figures_when_full(self._conversation, window)}, and nothing older is left to compact.",
                advice=advice_when_full(self._conversation),
            )
        if not self._published_full:
            self._published_full = True
            self._conversation.wire.publish(
                Notice(
                    "warning",
                    "The context is nearly full, and nothing older is left to compact.",
                    advice_when_full(self._conversation),
                )
            )

    async def _goes_without_tools(self, window: int, most: int) -> bool:
        """Ask the user whether to go on without tools, if a small window then has room for the rest; return whether they say so.

        Once a turn: who wants to try it with the tools is not asked again.

        Args:
            window: the model's window in tokens.
            most: the number of tokens that the rest must stay below.

        Raises:
            CompactionFailed: the user stops the turn.
        """
        conversation = self._conversation
        freed = conversation.fixed_tokens["tools"]
        used = min(conversation.meter.used, conversation.meter.uncorrected)
        if not freed or window >= LEAN_BELOW or used - freed >= most or self._asked_for_tools:
            return False
        self._asked_for_tools = True
        without = f"Continue without tools, which frees {freed:,} tokens"
        keeps = ("Try again with the tools",) if used < window else ()
        said = await self._tools.approval.pause(
            f"The context window is too small for the tools: a request takes {figures_when_full(conversation, window)}.",
            (without, *keeps),
            where="/tools on turns them on again",
            topic="window",
        )
        if said is None:
            raise CompactionFailed(
                f"The context window is too small: a request takes {figures_when_full(conversation, window)}.",
                advice=advice_when_full(conversation),
            )
        if said != without:
            return False
        conversation.wish_for("off")
        return True

    def _publish_refused(self, n: int, error: ContextOverflowError) -> None:
        """Publish that the model refused the context, and is asked again with a shorter one."""
        self._conversation.wire.publish(StepRetry(n, 2, 2, 0.0, error.message, error.status))
        # The refusal may have named the real window.
        self._conversation.publish_status()

    async def _compact_refused(
        self, n: int, provider: ChatProvider, error: ContextOverflowError
    ) -> None:
        """Compact after the model refused the context as too long. Once: if it refuses again, the user must decide."""
        self._publish_refused(n, error)
        try:
            await self._compactor.compact(
                provider, automatic=True, turn=self._user_messages, refused=True, step=n
            )
        except NothingToCompact:
            raise CompactionFailed(
                f"The context is too long for the model, and nothing older is left to compact. {error.message}",
                advice=advice_when_full(self._conversation),
            ) from error

    async def _call_model(
        self, n: int, provider: ChatProvider, collector: Collector
    ) -> tuple[Checkpoint, list[Call]]:
        """Run the first half of a step: make its checkpoint, ask the model and append the answer; return its tool calls.

        Args:
            n: the number of the step.
            provider: the model.
            collector: collects the answer. If the model finds the context too long, nothing of it is appended.

        Raises:
            LLMError: the model could not be asked.
        """
        conversation = self._conversation
        needs = ends_with_answer(conversation.context.messages)
        point = await conversation.checkpoint("step", first=int(needs))
        if needs:
            # The message comes after the checkpoint, so that a rewind to the checkpoint drops it.
            await conversation.append([user_message(prompt("go_on"))])
        answer = StreamedAnswer(conversation, collector, n, point.uid)
        try:
            asked = conversation.model.ask(
                provider,
                conversation.system,
                conversation.toolset.specs,
                conversation.sent,
                answer.collector,
            )
            completion = await complete(asked, answer.publish)
        except asyncio.CancelledError:
            await self._keep_partial(answer, point)
            conversation.wire.publish(StepInterrupted())
            raise
        except ContextOverflowError:
            # The answer to the compacted context takes its place.
            collector.begin_again()
            raise
        except Exception as error:
            await self._keep_broken(answer, point, error)
            raise
        try:
            message = await self._with_written_calls(completion.message, point)
        except asyncio.CancelledError:
            await conversation.append_answer(completion.message, completion.usage)
            conversation.wire.publish(StepInterrupted())
            raise
        try:
            await conversation.append_answer(message, completion.usage)
            calls = await _calls(message, point)
        except asyncio.CancelledError:
            await self._stop(ToolBatch(self._tools, await _calls(message, point)))
            raise
        conversation.publish_status()
        self._publish_prompt_cut(completion.usage)
        self._offer_lean(provider, answer.waited_s)
        if completion.finish in _ENDINGS:
            text, advice = _ENDINGS[completion.finish]
            conversation.wire.publish(Notice("warning", text, advice))
        return point, calls

    async def _with_written_calls(self, message: Message, point: Checkpoint) -> Message:
        """Return the answer, with tool calls in place of those that the model wrote as text, if the user lets them be run."""
        text, known = message.text, self._conversation.all_tools.names
        if message.tool_calls or not any(name in text for name in known):
            return message
        found = await asyncio.to_thread(written_calls, text, known)
        if found is None:
            return message
        toolset, name = self._conversation.toolset, found.calls[0].name
        if not all(toolset.accepts(one.name, one.arguments) for one in found.calls):
            why = "Its arguments do not fit the tool."
            if toolset.get(name) is None:
                why = (
                    "/tools on gives the model all tools."
                    if toolset.names
                    else "The model has no tools now."
                )
            self._publish_no_call(name, why)
            return message
        if not found.is_end:
            self._publish_no_call(name, "More text follows it, so it may be an example.")
            return message
        if not await self._may_run_written(found):
            return message
        calls = [
            MessageToolCall(
                id=f"call_{uuid4().hex[:12]}",
                function=FunctionCall(name=one.name, arguments=one.arguments),
            )
            for one in found.calls
        ]
        for position, call in enumerate(calls):
            key, function = call_key(point.uid, position), call.function
            self._conversation.wire.publish(
                ToolCall(
                    key,
                    function.name,
                    function.arguments or "",
                    call.id,
                    toolset.card(function.name),
                )
            )
        # The text of the calls is left out: the model would go on writing calls that way.
        thoughts = [part for part in message.parts if isinstance(part, MessageThinkPart)]
        said = [MessageTextPart(text=found.before)] if found.before.strip() else []
        return message.model_copy(update={"content": [*thoughts, *said], "tool_calls": calls})

    def _publish_no_call(self, name: str, why: str) -> None:
        words = f"The answer has a call of {name} written as text: nothing was run."
        self._conversation.wire.publish(Notice("warning", words, why))

    async def _may_run_written(self, found: WrittenCalls) -> bool:
        """Return whether to run calls that were written as text. Asks the user, unless they have allowed it for the session."""
        approval = self._tools.approval
        if approval.allows(_WRITTEN_KEY):
            return True
        what = f"a call of {found.calls[0].name}"
        if len(found.calls) > 1:
            what = f"{len(found.calls)} calls"
        said = await approval.pause(
            f"The model wrote {what} as text instead of calling the tool. Run it?",
            (_RUN, _RUN_ALL),
            detail="\n".join(f"{one.name} {one.arguments}" for one in found.calls),
            where="the call still needs your approval as usual",
            no_offer="No, it is only text",
            topic="written calls",
        )
        if said == _RUN_ALL:
            approval.allow(_WRITTEN_KEY, _RUN_ALL)
        return said is not None

    async def _run_tools(self, point: Checkpoint, calls: Sequence[Call]) -> StepEnd:
        """Run the second half of a step: run the tools that the answer calls, and append their results."""
        if not calls:
            return "done"
        batch = ToolBatch(self._tools, calls)
        try:
            await self._conversation.load_memory()
            done = await batch.run()
            reminders = await self.reminders.of_folders(done)
            firing = await self._apply_rules(done, point)
        except asyncio.CancelledError:
            await self._stop(batch)
            raise
        hooks = [
            hook_message(f"the call of {each.call.name}", each.hooks_say)
            for each in done
            if each.hooks_say
        ]
        if firing is not None and firing.rule.then == "remind":
            reminders = [*reminders, self._reminder(firing, done)]
        await self._conversation.append(chain(_results(done), hooks, reminders))
        self._conversation.publish_status()
        pending = self._conversation.denwa.fetch_pending()
        is_rejected = any((each.rejected and not each.feedback) or each.ends_turn for each in done)
        circle = await self._circles.after_calls(done)
        done.clear()
        await batch.release()
        if is_rejected:
            return "rejected"
        if pending:
            circle = self._circles.before_dmails(pending) or circle
        if circle is not None and (end := await self._ask_in_circle(*circle)) is not None:
            return end
        if pending:
            raise BackToTheFuture(pending, rule=self._rules.reminded_by)
        if firing is not None and firing.rule.then != "remind":
            back = await self._draft_by(firing)
            if back is not None:
                raise back
        return "go on"

    async def _ask_in_circle(self, text: str, detail: str) -> StepEnd | None:
        """Ask the user whether an agent that repeats itself continues; a text in the answer is appended before the next step.

        Args:
            text: a sentence on the repetition.
            detail: the call or the D-Mail.

        Returns:
            the end of the step, whose waiting D-Mails are not sent; None to continue as without the question.
        """
        try:
            said = await self._tools.approval.pause(
                f"{text} {GO_ON_QUESTION}",
                [GO_ON],
                detail=detail,
                words_offer=_TELL,
                topic="circles",
            )
        except asyncio.CancelledError:
            self._conversation.wire.publish(StepInterrupted())
            raise
        self._circles.interrupted()
        if said is None:
            return "interrupted"
        if said == GO_ON:
            return None
        self._inbox.say(said)
        self._inbox.publish_waiting()
        return "go on"

    def _publish_prompt_cut(self, usage: Usage) -> None:
        """Publish, once until it reads all again, that the server answers without having read the whole prompt."""
        if usage.prompt_cut and not self._published_prompt_cut:
            self._conversation.wire.publish(
                Notice(
                    "warning",
                    f"The server cut the prompt without an error: it read only {usage.input:,} tokens of it.",
                    "Compact with /compact, or give the model a larger context window at the server "
                    "(with Ollama: OLLAMA_CONTEXT_LENGTH).",
                )
            )
        self._published_prompt_cut = usage.prompt_cut

    def _offer_lean(self, provider: ChatProvider, waited_s: float) -> None:
        """Publish, once for each model, that a short prompt is read sooner, if a local server takes long to read the whole one."""
        info, form = provider.info, self._conversation.form
        is_local = provider.prepares_first or bool(info.larger)
        if (
            waited_s < SLOW_PROMPT_S
            or not is_local
            or form.lean
            or info.model in self._offered_lean
        ):
            return
        self._offered_lean.add(info.model)
        taken = sum(self._conversation.fixed_tokens.values())
        self._conversation.wire.publish(
            Notice(
                "info",
                f"{info.model} took {waited_s:.0f} s to read the first prompt: system prompt and tools take {taken:,} tokens of it.",
                "/tools lean sends a short prompt and few tools instead.",
            )
        )

    async def _keep_broken(
        self, answer: StreamedAnswer, point: Checkpoint, failure: BaseException
    ) -> None:
        """Append what had come of an answer that a failure ended, and publish that it broke off; likewise of one that the user
        stopped while no attempt was running.
        """
        if isinstance(failure, asyncio.CancelledError):
            await self._keep_partial(answer, point)
            return
        words = failure.message if isinstance(failure, LLMError | SoulError) else INTERNAL_ERROR
        if await self._keep_partial(answer, point, one_line(words)):
            self._conversation.wire.publish(AnswerBroken(one_line(words)))

    async def _keep_partial(
        self, answer: StreamedAnswer, point: Checkpoint, broken: str = ""
    ) -> bool:
        """Append what had come of an answer that is not completed; return whether there is any of it.

        Args:
            answer: the answer.
            point: the checkpoint of its step.
            broken: the failure that ended it; empty if the user did.
        """
        message = await answer.kept(broken)
        result = CUT_OFF if broken else NOT_BEGUN
        if message is not None:
            # Complete calls stay in the context, and each call needs a result.
            calls = await _calls(message, point)
            unbegun = (CallResult(one, failure(result)) for one in calls)
            await self._conversation.append(chain([message], _results(unbegun)))
        slices = TimeSlices()
        for key, call_id in answer.open_calls():
            self._conversation.wire.publish(
                ToolResult(key, True, "", result, interrupted=True, id=call_id)
            )
            await slices.yield_if_over()
        return message is not None

    async def _stop(self, batch: ToolBatch) -> None:
        """Give every call a result, so that the history stays valid, and publish that the step was stopped."""
        self._orphans.adopt(await batch.stop())
        self._conversation.denwa.fetch_pending()
        await self._conversation.append(_results(batch.results))
        self._conversation.wire.publish(StepInterrupted())

    async def _apply_rules(self, done: Sequence[CallResult], point: Checkpoint) -> Firing | None:
        """Return the rule of D-Mails that fires after the results of a step, which are not in the context yet; publishes it."""
        conversation = self._conversation
        if not conversation.limits.dmail.active_rules or not conversation.marks_checkpoints:
            return None
        scale = conversation.meter.scale
        sizes: list[int] = []
        slices = TimeSlices()
        for each in done:
            sizes.append(scale.corrected(text_tokens(each.outcome.output)))
            await slices.yield_if_over()
        info = conversation.model.info()
        facts = StepFacts(
            point.id,
            point.uid,
            sizes,
            conversation.meter.used + sum(sizes),
            info.window if info else 0,
            conversation.ledger.prices.get(info.model) if info else None,
            [each.outcome.check_passed for each in done],
        )
        # A rule seldom fires, so the checkpoints are gone through only then, the newest first.
        points = conversation.context.checkpoints
        firing = self._rules.after_step(
            done, facts, lambda uid: any(one.uid == uid for one in reversed(points))
        )
        if firing is not None:
            there = (one.id for one in reversed(points) if one.uid == firing.uid)
            conversation.wire.publish(fired(firing, next(there, point.id)))
        return firing

    def _reminder(self, firing: Firing, done: Sequence[CallResult]) -> Message:
        """Return the message with which a rule reminds the agent of D-Mails."""
        target = next(
            one.id for one in self._conversation.context.checkpoints if one.uid == firing.uid
        )
        rule = firing.rule
        if rule.result_tokens or rule.result_share or rule.payback:
            scale = self._conversation.meter.scale
            total = sum(scale.corrected(text_tokens(each.outcome.output)) for each in done)
            return user_message(prompt("dmail_nudge", TOKENS=f"{total:,}", CHECKPOINT=str(target)))
        return user_message(prompt("dmail_rule", WHY=firing.why, CHECKPOINT=str(target)))

    async def _draft_by(self, firing: Firing) -> BackToTheFuture | None:
        """Have the model draft the D-Mail of a rule; None if it could not, which is published."""
        conversation, rule = self._conversation, firing.rule
        point = next(one for one in conversation.context.checkpoints if one.uid == firing.uid)
        undone = conversation.context.messages[point.message_index :]
        try:
            completion = await drafted(conversation, undone)
        except asyncio.CancelledError:
            conversation.wire.publish(StepInterrupted())
            raise
        except (LLMError, NoDraft) as error:
            conversation.wire.publish(
                RuleApplied(rule.name, "failed", rule.then, point.id, error.message)
            )
            return None
        usage = completion.usage
        conversation.wire.publish(
            RuleApplied(
                rule.name,
                "drafted",
                rule.then,
                point.id,
                input=usage.input,
                cached=usage.cached,
                output=usage.output,
            )
        )
        mail = DMail(completion.message.text.strip(), point.id)
        return BackToTheFuture([mail], rule=rule.name, by_program=True, asks=rule.then == "draft")


def hook_message(what: str, text: str) -> Message:
    """Return the message that tells the model what hooks say about something."""
    return user_message(prompt("hook_context", WHAT=what, TEXT=quoted(text)))


async def _calls(message: Message, point: Checkpoint) -> list[Call]:
    calls: list[Call] = []
    slices = TimeSlices()
    for i, call in enumerate(message.tool_calls or ()):
        key, function = call_key(point.uid, i), call.function
        calls.append(Call(key, call.id, function.name, function.arguments or ""))
        await slices.yield_if_over()
    return calls


def _results(done: Iterable[CallResult]) -> Iterator[Message]:
    """Yield the messages of results, made as they are taken: there may be thousands."""
    for each in done:
        yield with_versions(tool_message(each.call.id, each.outcome), each.noted or {})
