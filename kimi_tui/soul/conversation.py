"""The live conversation: the context, and everything that has to change with it.

Messages, checkpoints and reverts all go through `Conversation`, so that token figures, the D-Mail mailbox, the memory of
tools, file snapshots and published events agree with the context.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from kimi_tui.config.settings import ModelPrices
from kimi_tui.llm.completion import RetryNotice
from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.llm.provider import PromptRead, Usage
from kimi_tui.projection.tokens import CheckpointTokens, TokenFigure
from kimi_tui.session.context import Context, KnownTokens, Reverted
from kimi_tui.session.context_index import WorldLineContent
from kimi_tui.session.errors import UnknownCheckpoint
from kimi_tui.session.images import ImageStore
from kimi_tui.session.schema import Checkpoint, MessageKind, TokenCount
from kimi_tui.soul.bookmarks import UserMarks
from kimi_tui.soul.denwarenji import DenwaRenji, DMail
from kimi_tui.soul.errors import BudgetSpent
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.messages import checkpoint_created, ends_open, kind_of, kinds_behind
from kimi_tui.soul.model_slot import LoopLimits, ModelSlot, Spent
from kimi_tui.soul.request_form import (
    RequestForm,
    ToolsWish,
    form_for,
    form_words,
    result_chars,
)
from kimi_tui.soul.system_prompt import adapted_prompt, lean_prompt
from kimi_tui.soul.tasks import TimeSlices, shielded_at_once
from kimi_tui.soul.token_meter import TokenMeter, WorldLineTokens, estimate_of
from kimi_tui.soul.tool_results import ToolMemory, pending_calls
from kimi_tui.soul.usage import Ledger
from kimi_tui.tool_cards import Card, card_of
from kimi_tui.tools.base import Tool
from kimi_tui.tools.session_tools import SendDMail
from kimi_tui.tools.toolset import Toolset
from kimi_tui.wire.events import (
    FORM_TOPIC,
    NOTHING_LEFT,
    CheckpointCreated,
    CheckpointKind,
    ContextReverted,
    Event,
    EventRecord,
    LeftBehind,
    LineChanged,
    ModelChanged,
    Notice,
    Operation,
    PromptProgress,
    StatusUpdate,
    StepRetry,
    ToolsChanged,
)
from kimi_tui.wire.queue import Wire

DMAIL_TOOL = SendDMail.name
_APPENDED_AT_ONCE = 32
_NO_TOOLS = Toolset(())
_SAME_FORM = 0.05
"""Largest relative difference between two estimates of prompt and tools in a request that count as the same form."""


class Conversation:
    """The live world line of one session. `resume` must be awaited once before anything else.

    System prompt and tool list are the same in every request of a session, because the providers' prompt caches hold
    only what begins alike. They change when a tool comes or leaves (`change_tools`), and when the user changes them: `[dmail] enabled` is read when a session is opened
    and holds for it until it is left, also where it began otherwise; `/tools` holds from the next call on, until it
    is changed again, another model is chosen or the session is left. They change with the model, too: one with a small
    window gets the lean form, one that takes no tools gets none (`request_form`). The first call after such a change is
    read anew by the provider, and paid for so. Nothing that is stored changes: the prompt is adapted when it is sent, and
    markers of checkpoints stay in the file but are left out of what is sent while the model has no tool that names
    them.

    Args:
        context: the messages.
        wire: where events are published.
        model: the model in use.
        tools: of the session.
        files: the snapshots of the working files; one is taken at every checkpoint.
        images: those that messages name.
        marks: bookmarks and pins; what an operation changed of them is published with its end.
        limits: of the loop.
        prices: what models cost, by model.
        work_dir: where the agent works, for the lean prompt.
        environ: the environment of the program, likewise.

    Attributes:
        meter: counts the tokens.
        memory: what tools remember.
        all_tools: the tools of the session, also while they are off.
        form: which of them the model is told of, and in which form.
        toolset: the tools that the model may call, and that run when it does.
        marks_checkpoints: whether checkpoints are named to the model: it has the tool that sends D-Mails to them.
        system: the system prompt as it is sent.
        denwa: the mailbox of the D-Mail tool.
        n_changes: how often the context has become another one.
        ledger: counts what calls cost.
        figures: the tokens of each checkpoint, as they were published.
    """

    def __init__(
        self,
        context: Context,
        wire: Wire,
        model: ModelSlot,
        tools: Toolset,
        files: FileHistory,
        images: ImageStore,
        marks: UserMarks,
        limits: LoopLimits,
        prices: Mapping[str, ModelPrices] | None = None,
        work_dir: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.context = context
        self.wire = wire
        self.model = model
        self.all_tools = tools
        self._place = (work_dir or Path(), environ or {})
        self._wish: ToolsWish = ""
        self._added: tuple[str, ...] = ()
        self._use(form_for(model.info()))
        self._told: tuple[str, RequestForm] | None = None
        self._told_model = self.model_facts
        self.files = files
        self.images = images
        self.marks = marks
        self.limits = limits
        self.meter = TokenMeter(context, self.system, self.toolset.specs)
        self.memory = ToolMemory(self.card_of)
        self.denwa = DenwaRenji(wire, limits.dmails_to_one_checkpoint)
        self.ledger = Ledger(prices)
        self._spent_before = Spent()
        self.n_changes = 0
        self.figures = CheckpointTokens()

    async def resume(self, stored: Sequence[EventRecord], shown: Sequence[EventRecord]) -> None:
        """Take up the token figures and costs of an earlier run, once, before anything is published.

        Args:
            stored: the record of the session.
            shown: the history that leads to the live world line (the record itself, where that does); it may lack
                totals that the record has.
        """
        last, totals = (
            next((r.event for r in reversed(records) if isinstance(r.event, StatusUpdate)), None)
            for records in (shown, stored)
        )
        index = self.context.index
        counted, known = index.n_messages, index.usage_before(index.size) or (0, 0)
        # If nothing was sent yet, a figure of no message is an estimate of prompt and tools in a form that is not stored.
        if (
            totals is not None
            and (totals.messages or totals.total_input)
            and known[1] <= totals.messages <= counted
            and (shown is stored or totals.messages == counted)
        ):
            # A line that was cut has lost the figures that the server gave for it, so the stored total is used.
            figure = TokenFigure(totals.used, not totals.estimated)
            await self.refresh(0, figure, totals.messages)
            self._refit(totals)
        else:
            await self.refresh(0)
        self.meter.restore(last, self.meter.used, totals)
        slices = TimeSlices()
        for record in shown:
            self.figures.apply(record.event)
            if record.seq % 256 == 0:
                await slices.yield_if_over()
        for record in stored:
            self.ledger.follow(record.event)
            if record.seq % 256 == 0:
                await slices.yield_if_over()
        self.ledger.begin(self.status)
        self._spent_before = self._spent_in_all()

    def _spent_in_all(self) -> Spent:
        status, cost = self.status, self.ledger.total_cost()
        money = sum(amount for _, amount in cost.amounts) if cost is not None else 0.0
        return Spent(status.total_input, status.total_cached, status.total_output, money)

    @property
    def spent(self) -> Spent:
        """The use of this run of the program: all calls since the session was opened."""
        return self._spent_in_all().since(self._spent_before)

    def pending_calls(self) -> dict[str, ToolCall]:
        """Return the calls at the end of the conversation that have no result, by their keys."""
        return pending_calls(self.context.world_line)

    def count_beside(self, usage: Usage, model: str) -> None:
        """Count a call of a sub-agent in the totals of the session, and publish them.

        Args:
            usage: the tokens of the call.
            model: the model that was called.
        """
        self.meter.add_usage(usage)
        self.publish(self.status._replace(spent_by=model))

    def check_budget(self) -> None:
        """Check before a step that the budget of this run is not used up.

        Raises:
            BudgetSpent: it is.
        """
        budget = self.limits.budget
        if budget.tokens and (used := self.spent.tokens) >= budget.tokens:
            raise BudgetSpent(
                f"The turn was stopped at its limit of {budget.tokens:,} tokens; it used {used:,}."
            )
        if budget.cost and (cost := self.spent.cost) >= budget.cost:
            raise BudgetSpent(
                f"The turn was stopped at its cost limit of {budget.cost:.4g}; it cost {cost:.4g}."
            )

    @property
    def sent(self) -> Sequence[Message]:
        """The messages to send: all but checkpoint markers that are of no use.

        Those are markers that name no checkpoint of this world line (kimi-cli's compaction left some), and all of
        them where the model has no D-Mail tool.
        """
        context = self.context
        index, messages = context.index, context.messages
        n_markers = index.n_messages - index.counts(0)[0]
        if not n_markers or (self.marks_checkpoints and n_markers <= len(context.checkpoints)):
            return messages
        points = context.checkpoints if self.marks_checkpoints else ()
        named = {point.message_index for point in points}
        return [m for n, m in enumerate(messages) if n in named or not index.is_marker(n)]

    @property
    def begins_with_summary(self) -> bool:
        """Whether a compaction made this world line: its first checkpoint holds the summary."""
        context = self.context
        if not context.checkpoints:
            return False
        first = context.checkpoints[0].message_index
        return MessageKind.SUMMARY in context.index.kinds(first, first + 2)

    @property
    def ends_open(self) -> bool:
        """Whether the conversation ends within a turn, so that the agent could continue it."""
        return ends_open(self.context.messages)

    def figure_before(self, point: Checkpoint, line: WorldLineContent | None = None) -> TokenFigure:
        """Return the tokens of what precedes a checkpoint: as published, else by the file of its world line.

        Args:
            point: the checkpoint.
            line: its world line; None for the live one.
        """
        known = self.figures.get(point.uid)
        if known is not None:
            return known
        line = line or self.context.world_line
        kind = kind_of(kinds_behind(line.index, point), point.id)
        return WorldLineTokens(line, self.meter.scale).at(point, kind)

    def known_tokens(self, point: Checkpoint | None = None) -> KnownTokens:
        """Return the figures that were published, for the journal of an operation that goes back to before a checkpoint."""
        known = None if point is None else self.figures.get(point.uid)
        return KnownTokens(self.meter.used, None if known is None else known.tokens)

    def reachable(self, checkpoint_id: int) -> Checkpoint:
        """Return the checkpoint, unless it holds the summary of everything: going back before that would leave nothing.

        Raises:
            UnknownCheckpoint: there is no such checkpoint, or it holds the summary; the text is for the user.
        """
        point = self.context.index.checkpoint(checkpoint_id)
        if point is self.context.checkpoints[0] and self.begins_with_summary:
            raise UnknownCheckpoint(
                f"#{point.id} is the summary of a compaction. Undo the compaction first (/undo)."
            )
        return point

    def send_dmail(self, message: str, checkpoint_id: int, restore_files: bool = False) -> None:
        """Queue a D-Mail of the agent for the end of this step.

        Raises:
            ValueError: it cannot be sent there; the text is for the model.
        """
        first = 1 if self.begins_with_summary else 0
        targets = range(first, self.context.n_checkpoints)
        self.denwa.send_dmail(DMail(message, checkpoint_id, restore_files), targets)

    def card_of(self, name: str) -> Card:
        """Return how calls of the tool of that name are shown."""
        return card_of(name, self.all_tools.card(name))

    @property
    def uses_tools(self) -> bool:
        """Whether requests carry tools."""
        return self.form.tools

    def wish_for(self, wish: ToolsWish, added: tuple[str, ...] = ()) -> None:
        """Set which tools the user wants the model to be told of, from the next call on.

        Args:
            wish: all, few, none, or what suits the model.
            added: the names of tools to add to the few.
        """
        self._wish, self._added = wish, added
        self.choose_form()

    def change_tools(self, added: Iterable[Tool[Any]] = (), removed: Collection[str] = ()) -> None:
        """Add and remove tools of the session from the next model call on, and publish the change.

        The provider's cache does not hold for that call.

        Args:
            added: the tools to add, after the present ones.
            removed: the names of tools to remove; unknown names are ignored.

        Raises:
            ValueError: the name of an added tool is taken or invalid; nothing was changed.
        """
        new, gone = tuple(added), tuple(name for name in removed if self.all_tools.get(name))
        if not new and not gone:
            return
        self.all_tools = self.all_tools.without(*gone).with_added(new)
        self._use(self.form)
        self.meter.set_fixed(self.system, self.toolset.specs, self._unsent_markers())
        names = tuple(tool.name for tool in new)
        self.wire.publish(ToolsChanged(self.form.name, names, gone, self.all_tools.names))
        self.publish_status()

    def choose_form(self) -> bool:
        """Choose the form for the model as it is known now, and publish a changed form; return whether it changed."""
        form = form_for(self.model.info(), self._wish, self._added)
        if (provider := self.model.current) is not None:
            provider.use_tools = form.tools
        if form == self.form:
            return False
        self._use(form)
        self.meter.set_fixed(self.system, self.toolset.specs, self._unsent_markers())
        self.wire.publish(self.tools_facts)
        self.publish_status()
        return True

    @property
    def tools_facts(self) -> ToolsChanged:
        """The tools of the session and the form in which requests carry them, as they are published."""
        return ToolsChanged(self.form.name, names=self.all_tools.names)

    @property
    def model_facts(self) -> ModelChanged:
        """The facts about the model in use and its present settings, as they are published."""
        provider = self.model.current
        if provider is None:
            return ModelChanged("")
        info = provider.info
        return ModelChanged(
            info.model,
            info.window,
            (info.effort or "on") if info.thinking else "",
            tuple(provider.thinking_choices),
            provider.thinking_setting,
        )

    def tell_model(self) -> None:
        """Publish the facts about the model if they have changed: by the user, by an answer, or by a refusal."""
        if (now := self.model_facts) != self._told_model:
            self._told_model = now
            self.wire.publish(now)

    async def follow_model(self) -> None:
        """Choose the form once the model's window is known, as far as a request would wait for that, and publish a notice of it."""
        provider = self.model.current
        if provider is not None and provider.prepares_first:
            await provider.prepare()
        self.choose_form()
        self.tell_form()

    def tell_form(self) -> None:
        """Publish a notice, once for each model, when the program has chosen a shorter form than the whole one."""
        info, form = self.model.info(), self.form
        if info is None or self._wish or (info.model, form) == self._told:
            return
        self._told = (info.model, form)
        if form.lean or not form.tools:
            text, advice = form_words(info, form)
            self.wire.publish(Notice("info", text, advice, topic=FORM_TOPIC))

    @property
    def fixed_tokens(self) -> dict[str, int]:
        """The estimated tokens of the parts that go with every request, as this server counts: `prompt` and `tools`."""
        scale = self.meter.scale
        tools = scale.tool_tokens
        return {
            "prompt": scale.corrected(self.meter.fixed_uncorrected - tools),
            "tools": scale.corrected(tools),
        }

    def result_chars(self, n_calls: int = 1) -> int | None:
        """Return the most characters of each result of a step with so many calls; None if only the tools' own limits count."""
        info = self.model.info()
        return None if info is None else result_chars(self.form, info.window, n_calls)

    def _use(self, form: RequestForm) -> None:
        self.form = form
        if not form.tools:
            self.toolset = _NO_TOOLS
        else:
            self.toolset = self.all_tools.lean(form.added) if form.lean else self.all_tools
        self.marks_checkpoints = self.toolset.get(DMAIL_TOOL) is not None
        self._adapt_prompt()

    def _adapt_prompt(self) -> None:
        stored = self.context.system_prompt or ""
        if self.form.lean:
            self.system = lean_prompt(stored, *self._place, tools=self.uses_tools)
        else:
            self.system = adapted_prompt(
                stored, tools=self.uses_tools, dmail=self.marks_checkpoints
            )

    def _unsent_markers(self) -> int:
        """Return how many stored messages are not sent: the markers of checkpoints, if the model has no use for them."""
        index = self.context.index
        return 0 if self.marks_checkpoints else index.n_messages - index.counts(0)[0]

    # -- growing ---------------------------------------------------------------------------------

    @shielded_at_once
    async def checkpoint(
        self, kind: CheckpointKind, label: str = "", *, first: int = 0
    ) -> Checkpoint:
        """Make a checkpoint at the end and publish it. A cancel does not split it."""
        # A step's figure is published again with its answer; the figure of any other checkpoint stays as it is.
        figure = TokenFigure(self.meter.used, kind != "step" and not self.meter.is_estimated)
        self.meter.begin_step()
        point = await self.context.checkpoint(self.marks_checkpoints)
        await self.meter.count_appended(TimeSlices())
        self.publish_checkpoint(checkpoint_created(point, kind, label, figure, first=first))
        return point

    @shielded_at_once
    async def append(self, messages: Iterable[Message]) -> None:
        """Append messages. A cancel does not split it; thousands of results are taken and written in parts."""
        slices, left = TimeSlices(), iter(messages)
        while part := [*islice(left, _APPENDED_AT_ONCE)]:
            await self.context.append(part)
            await self.meter.count_appended(slices)

    @property
    def messages_since_checkpoint(self) -> int:
        """The number of messages after the newest checkpoint, markers not counted."""
        context = self.context
        return context.index.counts(context.checkpoints[-1].message_index)[0]

    @shielded_at_once
    async def append_answer(self, message: Message, usage: Usage) -> None:
        """Append the answer of a step, between two usage records: tokens sent, and with the answer. A cancel does not split it."""
        sent, estimated = usage.input, usage.estimated
        if usage.input_estimated:
            # The meter knows how many tokens the server counted for the messages before these.
            sent = self.meter.used
        elif usage.prompt_cut:
            # The part of the prompt that the server read does not measure what the context holds.
            sent, estimated = max(sent, self.meter.estimate()), True
        self.meter.add_step(usage, sent)
        total = sent + usage.output
        counts = [TokenCount(tokens, estimated=estimated) for tokens in (sent, total)]
        slices = TimeSlices()
        await self.context.append([counts[0], message, counts[1]])
        await self.meter.count_appended(slices)
        self.meter.set_figure(total, estimated=estimated)

    # -- changing --------------------------------------------------------------------------------

    def _refit(self, status: StatusUpdate) -> None:
        """Take account of another form of prompt and tools, where figures of an earlier run were published with one.

        The form is not stored. It is the one, of those that a user of this model can choose, of which the part in all that was sent is
        the part that was published, or whose estimate is nearest to the figure, where that is of nothing else.
        """
        texts = self.meter.texts(status.messages)
        if not status.system:
            return
        part, factor = status.system / status.used, status.correction or 1.0

        def distance(fixed: int) -> float:
            if not texts:
                return abs(math.log(max(1.0, fixed * factor) / status.used))
            return abs(fixed / (fixed + texts) - part)

        now = self.meter.fixed_uncorrected
        if distance(now) <= _SAME_FORM:
            return
        present, info = self.form, self.model.info()
        sizes: list[int] = []
        wishes: tuple[ToolsWish, ...] = ("on", "lean", "off")
        for form in {form_for(info, wish) for wish in wishes}:
            self._use(form)
            sizes.append(estimate_of(self.system, self.toolset.specs))
        self._use(present)
        self.meter.figure_was_with(min((now, *sizes), key=distance))

    async def refresh(self, kept: int, figure: TokenFigure | None = None, count: int = 0) -> None:
        """Compute anew what depends on the context, after an operation has replaced it.

        Args:
            kept: how many of its first messages are unchanged.
            figure: the tokens of its first `count` messages; None to take the last usage in its file.
            count: how many messages the figure covers.
        """
        index = self.context.index
        self.n_changes += 1
        self._adapt_prompt()
        self.memory.forget()
        await self.meter.recount(kept)
        self.meter.set_fixed(self.system, self.toolset.specs, self._unsent_markers())
        usage, estimated = index.usage_before(index.size), index.is_estimated_before(index.size)
        if figure is not None and usage != (figure.tokens, count):
            self.meter.set_figure(figure.tokens, estimated=not figure.measured, count=count)
        elif usage is not None:
            self.meter.set_figure(usage[0], estimated=estimated, count=usage[1])

    async def load_memory(self) -> None:
        """Fill the memory of the tools, if that has not been done since `refresh`. Reads all messages."""
        if not self.memory.known:
            await asyncio.to_thread(self.memory.compute, self.context.messages)

    # -- publishing ---------------------------------------------------------------------------------

    @property
    def status(self) -> StatusUpdate:
        """The present token figures."""
        return self.meter.status(self.model.info(), self.limits)

    def publish_status(self) -> None:
        """Publish the present token figures."""
        self.publish(self.status)
        self.tell_model()

    def publish(self, event: Event) -> None:
        """Publish an event that changes the context or its figures, and count it in the ledger and the row figures."""
        self.ledger.follow(event)
        self.figures.apply(event)
        self.wire.publish(event)

    def publish_reverted(
        self,
        reverted: Reverted,
        *,
        text: str = "",
        prompt: str = "",
        facts: str = "",
        carried: tuple[str, ...] = (),
        pinned: tuple[str, ...] = (),
        author: Literal["agent", "person"] = "agent",
        rule: str = "",
    ) -> None:
        """Publish that the context was cut, as it was journaled; further facts are those of a D-Mail."""
        entry = reverted.entry
        self.publish(
            ContextReverted(
                reason=entry.op,
                checkpoint_id=entry.checkpoint_id,
                uid=entry.uid,
                from_checkpoint=entry.from_checkpoint,
                world_line=reverted.world_line,
                messages_dropped=entry.messages_dropped,
                tool_calls_dropped=entry.tool_calls_dropped,
                tokens_before=entry.tokens_before,
                tokens_after=self.meter.used,
                text=text,
                prompt=prompt,
                facts=facts,
                carried=carried,
                pinned=pinned,
                author=author,
                rule=rule,
            )
        )

    def publish_line_changed(
        self,
        op: Operation,
        from_line: int,
        to_line: int,
        uid: str,
        left: LeftBehind = NOTHING_LEFT,
    ) -> LineChanged:
        """Publish the end of an operation, and the figures after it; returns that event, which the views get.

        `left` is what an undo took along.
        """
        changed = LineChanged(op, from_line, to_line, uid, self.ends_open, left)
        self.publish(changed)
        self.marks.publish()
        self.publish_status()
        return changed

    def publish_checkpoint(self, created: CheckpointCreated) -> None:
        """Publish a checkpoint, and take a snapshot of the files if it is new."""
        if not created.was:
            self.files.mark(created.uid)
        self.publish(created)

    def publish_progress(self, item: PromptRead) -> None:
        """Publish how far the server has read the prompt."""
        self.wire.publish(PromptProgress(item.read, item.total))

    def publish_retry(self, step: int, notice: RetryNotice) -> None:
        """Publish that a call of the model failed and is repeated; the text it streamed is void."""
        self.wire.publish(
            StepRetry(
                n=step,
                attempt=notice.attempt,
                max_attempts=notice.max_attempts,
                wait_s=notice.wait_s,
                reason=notice.reason,
                status=notice.status,
                left_s=notice.left_s,
            )
        )
