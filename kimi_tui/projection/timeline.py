"""The reducer of the timeline: from events to checkpoints, world lines, token figures, and rows, folded and filtered.

Every event takes constant time, except reverts, whose time is proportional to what they drop.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kimi_tui.display_names import titled, unmarked
from kimi_tui.foreign_text import one_line
from kimi_tui.projection.session_lines import NO_CHANGE, LinesChange, SessionLines
from kimi_tui.projection.subagents import agent_title
from kimi_tui.projection.timeline_rows import SHORT, TimelineRow, TimelineRows
from kimi_tui.projection.timeline_tree import (
    LABEL_LIMIT,
    NOT_SENT,
    CallNode,
    CheckpointNode,
    Key,
    Revert,
    Tree,
    Trial,
    WorldLineNode,
)
from kimi_tui.projection.token_peaks import TokenPeaks
from kimi_tui.projection.tokens import Changed
from kimi_tui.projection.tool_calls import target
from kimi_tui.projection.world_lines import LeftLine, LineEdit
from kimi_tui.tool_cards import AGENT_NAMES, DiffBlock, card_of, short_name
from kimi_tui.wire.events import (
    AgentChanged,
    AnswerBroken,
    ApprovalRequest,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    EventRecord,
    FilesChanged,
    FutureChanged,
    LineChanged,
    MarksChanged,
    StatusUpdate,
    SteerTaken,
    StepBegin,
    StepInterrupted,
    StepRetry,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolCallPart,
    ToolOutput,
    ToolResult,
    ToolStarted,
    TurnBegin,
    TurnEnd,
    WorldLineAdded,
    iso_seconds,
)

_PARTS_LIMIT = 10_000
# The files that a step changed may become known only after a few later steps.
_LATEST = 50


@dataclass(slots=True)
class _OpenCall:
    checkpoint: CheckpointNode
    call: CallNode
    parts: list[str] = field(default_factory=list[str])


class StepTracker:
    """Makes the label of the running step from its events. Methods return the checkpoint whose label changed, or None."""

    def __init__(self) -> None:
        self._said = ""
        self._is_kept = False
        """Whether the answer of the step broke off and is kept."""
        self._open: dict[str, _OpenCall] = {}
        self._files: set[str] = set()
        self._dmails: list[CallNode] = []
        """The D-Mails of the running step, while they may still be delivered."""
        self._agents: dict[str, AgentChanged] = {}
        self._agent_calls: dict[str, tuple[CheckpointNode, CallNode]] = {}
        """The calls that may have started sub-agents, by their keys."""

    def begin(self) -> None:
        """Begin a step at a new checkpoint."""
        self._said = ""
        self._is_kept = False
        self._files = set()

    def end(self) -> None:
        """End the turn: calls without a result get none any more."""
        self._open.clear()

    def said(self, text: str) -> None:
        """Append text of the answer; only its beginning is used."""
        if len(self._said) < 2 * LABEL_LIMIT:
            self._said += text[: 2 * LABEL_LIMIT]

    def settle(self, head: CheckpointNode | None) -> CheckpointNode | None:
        """End the step: its text becomes the label if no tool was called."""
        said, self._said = self._said, ""
        if head is None or not said or head.words or head.calls:
            return None
        head.words = one_line(unmarked(said))[:LABEL_LIMIT]
        return head

    def broken(self, head: CheckpointNode | None) -> CheckpointNode | None:
        """Keep what was streamed of an answer that broke off."""
        self._is_kept = True
        return self.settle(head)

    def undelivered(self, head: CheckpointNode | None) -> CheckpointNode | None:
        """End the step without a revert: its D-Mails were not delivered."""
        unsent, self._dmails = self._dmails, []
        for call in unsent:
            # The mark comes first, so that no narrow row cuts it off.
            call.target, call.failed = ", ".join(filter(None, (NOT_SENT, call.target))), True
        return head if unsent else None

    def cut(self) -> None:
        """Forget the step: its D-Mails were delivered, and the line was reverted."""
        self._dmails = []

    def drop_attempt(self, head: CheckpointNode | None) -> CheckpointNode | None:
        """Drop the streamed text of the model call, which is retried."""
        if self._is_kept:
            return None
        self._said = ""
        self._open.clear()
        if head is None or not head.calls or any(call.size_chars for call in head.calls):
            return None
        head.calls = None
        return head

    def call(self, event: ToolCall, head: CheckpointNode | None) -> CheckpointNode | None:
        """Add a tool call; its target is read from the arguments."""
        if head is None or event.key in self._open:
            return None
        card = card_of(event.name, event.card)
        call = CallNode(short_name(event.name, card)[:40], card)
        if head.calls is None:
            head.calls = []
        head.calls.append(call)
        if event.name in AGENT_NAMES:
            self._agent_calls[event.key] = head, call
            self._show_agent(event.key)
        self._open[event.key] = _OpenCall(head, call, [event.arguments])
        return head

    def more_arguments(self, event: ToolCallPart) -> None:
        """Append a chunk of a call's arguments."""
        known = self._open.get(event.key)
        if known is not None and len(known.parts) < _PARTS_LIMIT:
            known.parts.append(event.arguments)

    def agent_changed(self, event: AgentChanged) -> CheckpointNode | None:
        """Note at a call how far the sub-agent is that it started."""
        self._agents[event.key] = event
        return self._show_agent(event.key)

    def _show_agent(self, key: str) -> CheckpointNode | None:
        one, known = self._agents.get(key), self._agent_calls.get(key)
        if one is None or known is None:
            return None
        checkpoint, call = known
        title = agent_title(one)[:LABEL_LIMIT]
        if (call.agent_steps, call.target or title) == (one.step, call.target):
            return None
        call.agent_steps, call.target = one.step, call.target or title
        return checkpoint

    def waits(self, key: str) -> CheckpointNode | None:
        """Note that the call waits for approval: its arguments are complete, so its target is set."""
        known = self._open.get(key)
        if known is None or known.call.target:
            return None
        known.call.target = target(known.call.card, "".join(known.parts))[:LABEL_LIMIT]
        return known.checkpoint

    def started(self, event: ToolStarted, head: CheckpointNode | None) -> CheckpointNode | None:
        """Note that a tool runs: its arguments are complete."""
        uid = event.key.rpartition(":")[0]
        if event.key not in self._open and head is not None and head.uid == uid and head.calls:
            # A sub-agent goes on whose call had ended with a stop.
            head.state = "done"
            return head
        if event.key not in self._open:
            self.call(ToolCall(event.key, event.name), head)
        known = self._open.get(event.key)
        if known is None:
            return None
        known.parts.clear()
        known.call.target = target(known.call.card, event.arguments)[:LABEL_LIMIT]
        return known.checkpoint

    def changed(self, event: FilesChanged, live: Sequence[CheckpointNode]) -> CheckpointNode | None:
        """Note files that a step changed, by a tool or a command."""
        for checkpoint in reversed(live[-_LATEST:]):
            if checkpoint.uid == event.uid:
                known = self._files if checkpoint is live[-1] else set[str]()
                known.update(event.paths)
                checkpoint.files = max(checkpoint.files, len(known))
                return checkpoint
        return None

    def result(self, event: ToolResult, head: CheckpointNode | None) -> CheckpointNode | None:
        """Note that a tool has ended."""
        known = self._open.pop(event.key, None)
        if known is None:
            return None
        checkpoint, call = known.checkpoint, known.call
        if not call.target and known.parts:
            call.target = target(known.call.card, "".join(known.parts))[:LABEL_LIMIT]
        ended = event.interrupted or event.rejected
        call.failed = event.is_error and not ended
        call.size_chars = len(event.output) + 1
        if call.card.is_letter and not call.failed:
            self._dmails.append(call)
        if ended:
            checkpoint.state = "stopped"
        elif call.failed and checkpoint.state != "stopped":
            checkpoint.state = "failed"
        if checkpoint is head:
            self._files.update(b.path for b in event.display if isinstance(b, DiffBlock))
            checkpoint.files = len(self._files)
        return checkpoint


class Arrangement(NamedTuple):
    """The view state of a timeline: unfolded world lines by number (with whether all steps are shown), folded turns, and the filter."""

    unfolded: frozenset[tuple[int, bool]]
    folded: frozenset[str]
    typed: str

    def __bool__(self) -> bool:
        return any(self)


class TimelineModel:
    """The state of the timeline: checkpoints, world lines, token figures, and the user's folds, filter, bookmarks and pins.

    Attributes:
        tree: the lines and their checkpoints.
        rows: the tree as rows.
        revision: incremented with every change that may be drawn.
        running: whether a turn is under way; the newest checkpoint is then "now".
        used, limit, trigger, per_step: the newest state of the window, in tokens.
        used_is_told: whether `used` was reported since the newest checkpoint. A history that is made from messages reports it
            only with D-Mails and compactions.
        estimated: whether `used` is an estimate, and not the server's figure.
        revert: the newest operation that dropped checkpoints; None before the first.
        is_revert_new: whether nothing was streamed since that revert, so that it may be animated.
        bookmarks, pins: the marks by uid; a checkpoint gets its own when it is created.
        lines: the world lines and token figures of the session.
        changed: what the newest event changed of these.
        peaks: the largest figures of the live line.
        futures: the futures that run, or ran, beside the current line, by their keys.
    """

    def __init__(self) -> None:
        self.revision: int = 0
        self.bookmarks: dict[str, str] = {}
        self.pins: frozenset[str] = frozenset()
        self.lines = SessionLines[CheckpointNode]()
        self.changed = NO_CHANGE
        self.tree = Tree(self.lines.world_lines, self.bookmarks)
        self.rows = TimelineRows(self.tree)
        self.running = False
        self.used = 0
        self.used_is_told = False
        # A record does not contain the estimates before its first turn.
        self.estimated = True
        # The lines that D-Mails and compactions left, by the uids of their checkpoints.
        self._left_by: dict[str, LeftLine[CheckpointNode]] = {}
        self.limit = 0
        self.trigger = 0
        self.per_step = 0
        self.revert: Revert | None = None
        self.is_revert_new = False
        self.peaks = TokenPeaks()
        self._steps = StepTracker()
        self._last_cut: ContextReverted | None = None
        self._compaction: CheckpointNode | None = None
        self._edited: CheckpointNode | None = None
        # The number of the first message after the newest checkpoint that is not the program's own.
        self._first = 0
        self.futures: dict[str, FutureChanged] = {}
        # The lines that futures became or left, by the keys of these.
        self._lines_of: dict[str, list[int]] = {}
        # The checkpoints after which futures branch off, by the futures' keys; None is the beginning of the line.
        self._grown_after: dict[str, CheckpointNode | None] = {}
        # The indexes of the live checkpoints before which futures branch off.
        self._grown_at: frozenset[int] = frozenset()

    def held(self) -> list[object]:
        """Return the objects of which a long session has thousands."""
        return [*self.tree.live, *self.lines.figures.held(), *self.rows.built]

    def apply(self, record: EventRecord) -> bool:
        """Apply one event; return whether anything that is drawn may have changed."""
        self.changed = NO_CHANGE
        match record.event:
            case TextPart(text):
                self._steps.said(text)
                return self._end_motion()
            case StatusUpdate() as event:
                self._status(event)
            case CheckpointCreated() as event:
                self._checkpoint(event, record.at)
                self.used_is_told = False
            case StepBegin():
                return False
            case ThinkPart() | ToolOutput():
                return self._end_motion()
            case ToolCallPart() as event:
                self._steps.more_arguments(event)
                return False
            case ToolCall() as event:
                self._relabel(self._steps.call(event, self.tree.head))
                self._end_motion()
            case ApprovalRequest(key=key):
                self._relabel(self._steps.waits(key))
            case ToolStarted() as event:
                self._relabel(self._steps.started(event, self.tree.head))
            case ToolResult() as event:
                self._relabel(self._steps.result(event, self.tree.head))
            case FilesChanged() as event:
                self._relabel(self._steps.changed(event, self.tree.live))
            case TurnBegin():
                self.running = True
                self._touch_head()
            case TurnEnd(reason, kind=kind):
                if kind:
                    self._relabel(self._steps.drop_attempt(self.tree.head))
                self._end_turn(reason, record.at)
            case SteerTaken(text=text, withdrawn=False, number=number, images=images) if (
                self.tree.head is not None
            ):
                head = self.tree.head
                text = text if text.strip() else titled("", [image.name for image in images])
                # A turn may begin with a queued message, which is then its heading and not another message.
                at = number - self._first if head.is_heading else -1
                if at or not one_line(titled(text)).startswith(head.words.removesuffix("…")):
                    head.say((text,), at=at)
                    self.rows.relabelled(head)
            case StepInterrupted(failed=False):
                self._relabel(self._steps.settle(self.tree.head))
                if self.tree.head is not None:
                    self.tree.head.state = "stopped"
                    self.tree.head.touch()
            case StepRetry():
                self._relabel(self._steps.drop_attempt(self.tree.head))
            case AnswerBroken():
                self._relabel(self._steps.broken(self.tree.head))
            case ContextReverted() as event:
                self._reverted(event, record.at)
            case CompactionEnd() as event:
                self._compacted(event, record.at)
            case LineChanged() as event:
                self._switched(event, record.at)
            case WorldLineAdded() as event:
                self._added(event, record.at)
            case MarksChanged(names, pins):
                self._mark(dict(names), frozenset(uid for uid, _ in pins))
            case FutureChanged() as event:
                self._future(event)
            case AgentChanged() as event:
                changed = self._steps.agent_changed(event)
                if changed is None:
                    return False
                self._relabel(changed)
            case _:
                return False
        self.revision += 1
        return True

    def most_tokens(self) -> int:
        """The largest number of tokens before or after any checkpoint of the live line."""
        return self.peaks.most(self.tree.live)

    def settle(self) -> Generator[None]:
        """Compute what a view of the whole timeline needs, as a generator that yields between small steps."""
        yield from self.rows.settle()
        yield from self.peaks.settle(self.tree.live)

    def _end_motion(self) -> bool:
        """Note that a text was streamed, which ends the animation of a revert."""
        was_new, self.is_revert_new = self.is_revert_new, False
        return was_new

    def _relabel(self, checkpoint: CheckpointNode | None) -> None:
        if checkpoint is not None:
            checkpoint.touch()
            if checkpoint is self.tree.head:
                self.rows.relabelled(checkpoint)

    def _touch_head(self) -> None:
        if self.tree.head is not None:
            self.tree.head.touch()

    def _checkpoint(self, event: CheckpointCreated, at: float) -> None:
        self._relabel(self._steps.settle(self.tree.head))
        self._relabel(self._steps.undelivered(self.tree.head))
        head = self.tree.head
        when = iso_seconds(event.at, at)
        key = self.tree.new_key()
        uid = event.uid or f"~{key}"
        figures = self.lines.figures
        changed = figures.apply(event if event.uid else replace(event, uid=uid))
        self.changed = LinesChange(figures=changed)
        figure = figures.get(uid)
        assert figure is not None
        tokens = figure.tokens
        if len(changed.rows) > 1 or changed.ends:
            self._show_figures(changed._replace(rows=changed.rows[1:]))
        if head is not None:
            if not head.end_measured:
                head.tokens_end = tokens
            if not head.is_heading:
                head.ended_at = head.ended_at or when
            head.state = "done" if head.state == "open" else head.state
            head.touch()
        checkpoint = CheckpointNode(
            key=key,
            id=event.id,
            uid=uid,
            kind=event.kind,
            index=len(self.tree.live),
            at=when,
            words=one_line(titled(event.label))[:LABEL_LIMIT] if event.label else "",
            tokens=tokens,
            tokens_end=tokens,
            measured=figure.measured,
            bookmark=self.bookmarks.get(event.uid, ""),
            pinned=event.uid in self.pins,
            is_kept=bool(event.was),
        )
        is_moved = bool(event.was) and self._compaction is not None
        old = self.tree.find_left(event.was) if is_moved else None
        # Only a queued message after the step, or the messages that a D-Mail carried, may have been kept; the old step is not
        # restored then.
        if old is not None and old.sort != checkpoint.sort:
            old = None
        # The first message of a step or a D-Mail decides its kind, even if the program's own message precedes it.
        if old is not None and (not checkpoint.is_heading or 0 in (event.kept or (0,))):
            checkpoint.take_over(old)
        if is_moved and event.kept:
            checkpoint.keep_said(event.said, event.carried)
            label = event.label.removesuffix("…")
            if event.kind == "dmail" and not " ".join(checkpoint.text.split()).startswith(label):
                # Only an older D-Mail was kept, which the newer one had carried over.
                checkpoint.text = event.label
        if checkpoint.kind in ("interrupted", "error"):
            checkpoint.state = "stopped" if checkpoint.kind == "interrupted" else "failed"
        self._steps.begin()
        self._first = event.first
        if checkpoint.is_summary:
            self._edited = self._known(event.was) if event.was and not is_moved else None
        if not is_moved:
            self._link(checkpoint)
        if self.lines.world_lines.add(event, checkpoint):
            checkpoint.index = 0
            self.peaks.cut()
            self.tree.lay()
            self.rows.reset()
            self._regrow()
        else:
            self.rows.appended(checkpoint)
            if checkpoint.kind == "step":
                self._measure_previous(checkpoint)

    def _known(self, uid: str) -> CheckpointNode | None:
        """The checkpoint with this uid, on the live line or one that was left."""
        index = self.find(uid, -1)
        return self.tree.find_left(uid) if index is None else self.tree.live[index]

    def _link(self, checkpoint: CheckpointNode) -> None:
        """Set the line that a D-Mail or a compaction left, at its checkpoint."""
        cut, self._last_cut = self._last_cut, None
        if checkpoint.is_summary:
            self._compaction = checkpoint
        if cut is None:
            return
        if checkpoint.kind == "dmail" and cut.reason == "dmail":
            if cut.from_checkpoint >= cut.checkpoint_id:
                checkpoint.from_line = cut.world_line
                # A D-Mail of the user comes from no step.
                checkpoint.from_id = cut.from_checkpoint if cut.author == "agent" else -1
                checkpoint.saved = cut.tokens_after - cut.tokens_before
                self._leaves(checkpoint, cut.world_line)
            checkpoint.text = cut.text
            checkpoint.say(cut.carried, carried=True)
        elif checkpoint.is_summary and cut.reason == "compaction":
            checkpoint.before = cut.tokens_before
            checkpoint.saved = cut.tokens_after - cut.tokens_before

    def _leaves(self, checkpoint: CheckpointNode, world_line: int) -> None:
        """Note at a checkpoint which line its operation left."""
        left = self.lines.world_lines.left.get(world_line)
        if left is not None:
            self._left_by[checkpoint.uid] = left

    def _status(self, event: StatusUpdate) -> None:
        self.used, self.estimated = event.used, event.estimated
        self.used_is_told = True
        self.limit, self.trigger, self.per_step = event.limit, event.trigger, event.per_step
        head = self.tree.head
        changed = self.lines.figures.apply(event)
        self.changed = LinesChange(figures=changed)
        self._show_figures(changed)
        if head is None or self._last_cut is not None:
            return
        if head.uid in changed.rows:
            self._measure_previous(head)
        head.tokens_end = event.used
        # The server has not counted the results of tools yet.
        head.end_measured = head.measured and not event.estimated and not head.calls
        head.touch()

    def _show_figures(self, changed: Changed) -> None:
        """Update the rows whose token figures changed, on any line."""
        for uid, more in changed.ends:
            self._show_end(uid, more)
        if not changed.rows:
            return
        live, head, uids = self.tree.live, self.tree.head, set(changed.rows)
        if head is not None and uids == {head.uid}:
            self._show_figure(head)
            return
        # The figures that change are nearly always those of the newest checkpoints.
        place, first, left = len(live), len(live), set(uids)
        while left and place:
            place -= 1
            if live[place].uid in left:
                left.discard(live[place].uid)
                self._show_figure(live[place])
                first = place
        self.peaks.cut(first)
        for line in self.tree.lines.values():
            for checkpoint in line.checkpoints:
                if checkpoint.uid in uids:
                    self._show_figure(checkpoint)

    def _show_figure(self, checkpoint: CheckpointNode) -> None:
        """Update the row of a checkpoint whose token figure may have changed."""
        figure = self.lines.figures.get(checkpoint.uid)
        if figure is None:
            return
        if checkpoint.tokens and not checkpoint.end_measured:
            # The growth of a step was estimated with the same scale as its beginning.
            end = checkpoint.tokens_end * figure.tokens / checkpoint.tokens
            checkpoint.tokens_end = round(end)
        checkpoint.tokens, checkpoint.measured = figure.tokens, figure.measured
        checkpoint.touch()

    def _show_end(self, uid: str, more: int) -> None:
        """Update the number of tokens that a D-Mail or a compaction left."""
        checkpoint, figure = self._known(uid), self.lines.figures.left_by(uid)
        if checkpoint is not None and checkpoint.saved is not None and figure is not None:
            checkpoint.saved += more
            checkpoint.saved_measured = figure.measured
            checkpoint.touch()
        if (line := self._left_by.get(uid)) is not None:
            line.tokens_after += more
            line.after_measured = figure is not None and figure.measured

    def _measure_previous(self, head: CheckpointNode) -> None:
        if head.measured and head.index > 0:
            previous = self.tree.live[head.index - 1]
            if not previous.is_heading:
                previous.tokens_end, previous.end_measured = head.tokens, True
                previous.touch()

    def _end_turn(self, reason: str, at: float) -> None:
        self.running = False
        self._relabel(self._steps.settle(self.tree.head))
        self._relabel(self._steps.undelivered(self.tree.head))
        self._steps.end()
        head = self.tree.head
        if head is None:
            return
        head.ended_at = head.ended_at or at
        heading = self.rows.heading_of(head.index)
        if heading is not None and heading.is_heading:
            heading.ended_at = at
        if reason == "interrupted":
            head.state = "stopped"
        elif reason == "error":
            head.state = "failed"
        elif head.state == "open":
            head.state = "done"
        head.touch()

    # --- reverts, compactions and changes of the line

    def _edit(
        self, event: ContextReverted | CompactionEnd | LineChanged, at: float
    ) -> LineEdit[CheckpointNode] | None:
        """Update token figures and world lines by an event; return the edit of the live line, None if there is none."""
        self.changed = self.lines.operated(event, at)
        edit = self.changed.edit
        if isinstance(event, CompactionEnd):
            # It renumbers and replaces checkpoints; any other operation leaves those before its target as they are.
            self.peaks.cut()
        elif edit is not None:
            self.peaks.cut(edit.kept)
        return edit

    def _reverted(self, event: ContextReverted, at: float) -> None:
        self._relabel(self._steps.settle(self.tree.head))
        self._steps.cut()
        head = self.tree.head
        edit = self._edit(event, at)
        self.used, self.used_is_told = event.tokens_after, True
        if edit is not None or (event.reason == "dmail" and not event.uid):
            self._last_cut = event
        elif head is not None and head.kind == "dmail":
            # The event comes after its checkpoint, which has the messages before the D-Mail already.
            head.text, head.n_carried = event.text, len(head.said)
            self.rows.reset(head.index)
        if edit is None:
            return
        if head is not None:
            head.tokens_end = event.tokens_before
            head.ended_at = head.ended_at or at
            head.state = "done" if head.state == "open" else head.state
            head.touch()
        line = self.tree.attach(edit)
        if line is None:
            line = WorldLineNode(0, event.reason, at, list(edit.gone))
            self.rows.reset(min(edit.kept, self.tree.lay()))
        self.rows.cut(edit.kept)
        self.is_revert_new = True
        self.revert = Revert(event.reason, line, self.revert.serial + 1 if self.revert else 1)
        self._touch_head()
        self._regrow()

    def _compacted(self, event: CompactionEnd, at: float) -> None:
        checkpoint, self._compaction = self._compaction, None
        edit = self._edit(event, at)
        if event.error or checkpoint is None:
            return
        change = event.tokens_after - event.tokens_before
        old, self._edited = self._edited, None
        if old is not None and old.before:
            # The summary of the same part was edited: the saving is that of the compaction, plus the difference that the edit
            # made.
            checkpoint.before, checkpoint.saved = old.before, (old.saved or 0) + change
        elif change:
            checkpoint.before, checkpoint.saved = event.tokens_before, change
        if checkpoint is self.tree.head:
            checkpoint.tokens_end = event.tokens_after
        checkpoint.text = event.summary
        self._leaves(checkpoint, event.world_line)
        self.used, self.used_is_told = event.tokens_after, True
        if edit is not None:
            self.tree.lay()
            self.rows.reset()
            self._regrow()
        checkpoint.touch()

    def _switched(self, event: LineChanged, at: float) -> None:
        self._relabel(self._steps.settle(self.tree.head))
        self._steps.cut()
        edit = self._edit(event, at)
        if edit is None:
            return
        self._last_cut = None
        self.rows.reset(min(edit.kept, self.tree.lay()))
        self._touch_head()
        self._regrow()

    def _added(self, event: WorldLineAdded, at: float) -> None:
        """Add a line that was never the live one; its steps have no token figures."""
        own = zip(event.ids, event.uids, event.kinds, event.labels, strict=False)
        nodes = [
            CheckpointNode(
                key=self.tree.new_key(),
                id=number,
                uid=uid,
                kind=kind,
                index=0,
                at=at,
                words=one_line(titled(label))[:LABEL_LIMIT],
                state="done",
                bookmark=self.bookmarks.get(uid, ""),
                pinned=uid in self.pins,
            )
            for number, uid, kind, label in own
        ]
        self.lines.world_lines.add_line(event, nodes, at)
        self._lines_of.setdefault(event.key, []).append(event.n)
        for place, node in enumerate(nodes, len(self.path_of(event.n)) - len(nodes)):
            node.index = place
        self.rows.reset(self.tree.lay())
        self._regrow()

    # --- queries

    def find(self, uid: str, checkpoint_id: int) -> int | None:
        """Return the index on the live line of the checkpoint with this uid, else of the one with this id; None if there is neither."""
        return self.lines.world_lines.find(uid, checkpoint_id)

    def path_of(self, world_line: int) -> Sequence[CheckpointNode]:
        """Return all checkpoints of a line by its number (0: the live one), those shared with other lines included."""
        if not world_line:
            return self.lines.world_lines.live.points
        left = self.lines.world_lines.left.get(world_line)
        return left.path.points if left is not None else ()

    @property
    def left_lines(self) -> Collection[int]:
        """The numbers of all lines that were left, including lines without checkpoints of their own."""
        return self.lines.world_lines.left.keys()

    @property
    def n_steps(self) -> int:
        """The number of checkpoints on the live line, without a summary's."""
        live = self.tree.live
        return len(live) - (1 if live and live[0].is_summary else 0)

    def tokens_after(self, world_line: int) -> tuple[int, bool]:
        """Return the tokens in the window after a line was left, and whether that is the server's figure; 0 if it is unknown."""
        left = self.lines.world_lines.left.get(world_line)
        return (left.tokens_after, left.after_measured) if left is not None else (0, False)

    def line_name(self, world_line: int) -> str:
        """Return the name of a line that was left; empty if it has no name, or no checkpoint of its own."""
        line = self.tree.lines.get(world_line)
        return self.tree.name_of(line) if line is not None else ""

    def name_from(self, checkpoint_id: int) -> str:
        """Return the name that the live line from a checkpoint on will have once it is left; empty if there is none."""
        index = self.find("", checkpoint_id)
        own = self.tree.live[index:] if index is not None else []
        return self.tree.name_of(WorldLineNode(0, "", 0.0, own))

    def frees(self, checkpoint: CheckpointNode) -> int:
        """Return the number of tokens that a rewind to this checkpoint of the live line frees."""
        return max(0, self.used - checkpoint.tokens)

    # --- user actions

    @property
    def arrangement(self) -> Arrangement:
        """The folds, unfolded lines and filter of the user."""
        lines = self.tree.lines.values()
        return Arrangement(
            frozenset((line.n, line.is_whole) for line in lines if line.is_open),
            frozenset(checkpoint.uid for checkpoint in self.tree.live if checkpoint.folded),
            self.rows.typed,
        )

    def arrange(self, kept: Arrangement) -> None:
        """Apply an `Arrangement` of another timeline, as far as its lines and turns exist here."""
        for n, is_whole in kept.unfolded:
            if n in self.tree.lines:
                self.tree.lines[n].is_open = True
                self.tree.lines[n].is_whole = is_whole
        for checkpoint in self.tree.live:
            checkpoint.folded = checkpoint.uid in kept.folded
        self.rows.filter(kept.typed)
        self.revision += 1

    def _mark(self, names: Mapping[str, str], pins: frozenset[str]) -> None:
        """Set the bookmarks and pins of all lines, by the uids of their checkpoints; omitted ones are removed."""
        names = {uid: one_line(name) for uid, name in names.items() if name}
        changed = {uid for uid, _ in names.items() ^ self.bookmarks.items()} | (pins ^ self.pins)
        self.bookmarks.clear()
        self.bookmarks.update(names)
        self.pins = pins
        lines = (line.checkpoints for line in self.tree.lines.values())
        for checkpoints in (self.tree.live, *lines) if changed else ():
            for checkpoint in [one for one in checkpoints if one.uid in changed]:
                checkpoint.bookmark = names.get(checkpoint.uid, "")
                checkpoint.pinned = checkpoint.uid in pins
                checkpoint.touch()
        if self.rows.needle:
            self.rows.reset()

    def show_trials(self, trials: Mapping[str, Trial]) -> None:
        """Mark the current line's checkpoints with what a search has found out, by their uids; all others lose their marks."""
        for checkpoint in self.tree.live:
            trial = trials.get(checkpoint.uid, "")
            if checkpoint.trial != trial:
                checkpoint.trial = trial
                checkpoint.touch()
        self.revision += 1

    def show_futures(self, futures: Iterable[FutureChanged]) -> None:
        """Show futures as branches, as if they had been heard of now."""
        for one in futures:
            self._future(one)
        self.revision += 1

    def _future(self, changed: FutureChanged) -> None:
        """Show a future as a branch of the line that it continues, until it is a world line."""
        if changed.removed_at:
            self.futures.pop(changed.key, None)
            left = self.lines.world_lines.left
            lines = {changed.world_line, *self._lines_of.pop(changed.key, ())} & left.keys()
            for n in lines:
                del left[n]
            if lines:
                self.rows.reset(self.tree.lay())
        else:
            was = self.futures.get(changed.key)
            self.futures[changed.key] = changed
            is_placed = changed.key in self._grown_after
            # The end of the line becomes known when no turn runs any more.
            is_moved = changed.after != (was.after if was is not None else None)
            if not changed.world_line and (is_moved or not is_placed):
                self._grown_after[changed.key] = self._before_future(changed)
        self._grow()

    def _before_future(self, one: FutureChanged) -> CheckpointNode | None:
        """Return the checkpoint after which a future begins, as the lines are now; None for the beginning of a line."""
        live = self.tree.live
        points = self.path_of(one.from_line) or live
        uid = one.uid or one.after
        if not uid:
            return points[-1] if points and one.after is None else None
        # Its line may have been left, or deleted, since it began.
        left = reversed(self.lines.world_lines.left.values())
        for path in (points, live, *(line.path.points for line in left)):
            for place in range(len(path) - 1, -1, -1):
                if path[place].uid == uid:
                    if not one.uid:
                        return path[place]
                    return path[place - 1] if place else None
        return live[-1] if live else None

    def future_of(self, world_line: int) -> FutureChanged | None:
        """Return the future that became a world line; None if the line was none."""
        return next((one for one in self.futures.values() if one.world_line == world_line), None)

    def _regrow(self) -> None:
        if self.futures:
            self._grow()

    def _grow(self) -> None:
        """Attach the futures to the lines, which may have changed; where their checkpoint is gone, to the end of the current one."""
        before = self._grown_at
        growing = [
            (one, self._grown_after.get(one.key))
            for one in self.futures.values()
            if not (one.world_line or (one.is_over and not one.step))
        ]
        self._grown_at = places = self.tree.grow(growing)
        if places == before:
            for index in places:
                self.rows.regrow(index)
        else:
            self.rows.reset(min(*before, *places, len(self.tree.live)))

    def toggle(self, row: TimelineRow) -> Key | None:
        """Fold or unfold the line or turn of a row; return the key of the row to select then."""
        self.revision += 1
        if row.line is not None:
            line = row.line
            if row.kind == "more":
                line.is_whole = True
                self.rows.reopen(row)
                return line.row_key
            line.is_open = not line.is_open
            line.is_whole = line.is_whole and line.is_open
            self.rows.reopen(row)
            return line.row_key
        if row.checkpoint is None:
            return None
        heading = self.rows.heading_of(row.checkpoint.index)
        if heading is None:
            return None
        heading.folded = not heading.folded
        heading.touch()
        self.rows.refold(heading)
        return heading.row_key

    def reveal(self, checkpoint: CheckpointNode) -> Key | None:
        """Unfold the compacted line so that a checkpoint has a row; return the key of that row."""
        live = self.tree.live
        base = self.tree.base(live[0]) if live else None
        if base is None:
            return None
        if checkpoint not in base.checkpoints:
            return base.row_key
        if not (base.is_open and (base.is_whole or checkpoint in base.checkpoints[1 - SHORT :])):
            base.is_open = base.is_whole = True
            self.rows.reset()
            self.revision += 1
        return checkpoint.row_key

    def search(self, needle: str) -> Generator[None]:
        """Filter the rows by a text, as a generator that yields between small steps."""
        yield from self.rows.search(needle)
        self.revision += 1
