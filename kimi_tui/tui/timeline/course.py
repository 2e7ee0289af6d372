"""The course of a session, event by event: its checkpoints, world lines, tokens, and the rows that show them.

Every event costs a constant amount of work, but for rewinds, which cost what they take away. What the person folds,
filters and marks is in `model`.
"""

from __future__ import annotations

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.timeline.points import Fold, Point, WorldLine, seconds_of
from kimi_tui.tui.timeline.rows import Rows
from kimi_tui.tui.timeline.steps import LABEL_LIMIT, Steps
from kimi_tui.tui.timeline.tree import Tree
from kimi_tui.wire.events import (
    ApprovalRequest,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    FilesChanged,
    LineChanged,
    Record,
    StatusUpdate,
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
)


class Course:
    """What happened so far.

    Attributes:
        tree: the lines and their checkpoints.
        rows: the tree as rows.
        revision: rises with every change that a screen may want to draw.
        running: whether a turn is under way; the newest checkpoint is then "now".
        used, limit, trigger, per_step: the newest state of the window, in tokens.
        correction: by what estimates are multiplied now.
        fold: the newest operation that took something away; None before the first.
        is_fold_new: nothing was streamed since then, so its motion holds nothing up.
        bookmarks, pins: the marks that a checkpoint gets when it comes, by uid.
    """

    def __init__(self) -> None:
        self.revision: int = 0
        self.bookmarks: dict[str, str] = {}
        self.pins: frozenset[str] = frozenset()
        self.begin()

    def begin(self) -> None:
        """Forget everything but the marks."""
        self.tree = Tree()
        self.rows = Rows(self.tree)
        self.running = False
        self.used = 0
        # A record does not tell what was estimated before its first turn.
        self.estimated = True
        self.correction = 1.0
        self.limit = 0
        self.trigger = 0
        self.per_step = 0
        self.fold: Fold | None = None
        self.is_fold_new = False
        self._steps = Steps()
        self._last_cut: ContextReverted | None = None
        self._replaced: WorldLine | None = None
        self._compaction: Point | None = None
        self._edited: Point | None = None

    @property
    def head(self) -> Point | None:
        """The newest checkpoint."""
        return self.tree.head

    def apply(self, record: Record) -> bool:
        """Take in one event; tells whether anything that is drawn may have changed."""
        match record.event:
            case TextPart(text):
                self._steps.said(text)
                return self._end_fold()
            case ThinkPart() | ToolOutput():
                return self._end_fold()
            case ToolCallPart() as event:
                self._steps.more_arguments(event)
                return False
            case ToolCall() as event:
                self._relabel(self._steps.call(event, self.head))
                self._end_fold()
            case ApprovalRequest(key=key):
                self._relabel(self._steps.waits(key))
            case ToolStarted() as event:
                self._relabel(self._steps.started(event, self.head))
            case ToolResult() as event:
                self._relabel(self._steps.result(event, self.head))
            case FilesChanged() as event:
                self._relabel(self._steps.changed(event, self.tree.live))
            case StatusUpdate() as event:
                self._status(event)
            case CheckpointCreated() as event:
                self._checkpoint(event, record.at)
            case TurnBegin():
                self.running = True
                self._touch_head()
            case TurnEnd(reason, kind=kind):
                if kind:
                    self._relabel(self._steps.drop_attempt(self.head))
                self._end_turn(reason, record.at)
            case StepInterrupted():
                self._relabel(self._steps.settle(self.head))
                if self.head is not None:
                    self.head.state = "stopped"
                    self.head.touch()
            case StepRetry():
                self._relabel(self._steps.drop_attempt(self.head))
            case ContextReverted() as event:
                self._reverted(event, record.at)
            case CompactionEnd() as event:
                self._compacted(event)
            case LineChanged() as event:
                self._switched(event, record.at)
            case _:
                return False
        self.revision += 1
        return True

    def _end_fold(self) -> bool:
        """What is streamed is drawn elsewhere; but the first of it ends the motion here."""
        was_new, self.is_fold_new = self.is_fold_new, False
        return was_new

    def _relabel(self, point: Point | None) -> None:
        if point is not None:
            point.touch()
            if point is self.head:
                self.rows.relabelled(point)

    def _touch_head(self) -> None:
        if self.head is not None:
            self.head.touch()

    def _checkpoint(self, event: CheckpointCreated, at: float) -> None:
        self._relabel(self._steps.settle(self.head))
        head = self.head
        when = seconds_of(event.at, at)
        tokens = event.tokens or self.used
        if head is not None:
            if not head.end_measured:
                head.tokens_end = tokens
            if not head.is_heading:
                head.ended_at = head.ended_at or when
            head.state = "done" if head.state == "open" else head.state
            head.touch()
        key = self.tree.new_key()
        point = Point(
            key=key,
            id=event.id,
            uid=event.uid or f"~{key}",
            kind=event.kind,
            index=0,
            at=when,
            words=one_line(event.label)[:LABEL_LIMIT],
            tokens=tokens,
            tokens_end=tokens,
            # A turn's checkpoint stands before the person's words, so the last report is what was sent up to it.
            measured=event.kind == "user" and not self.estimated,
            correction=self.correction,
            bookmark=self.bookmarks.get(event.uid, ""),
            pinned=event.uid in self.pins,
        )
        is_moved = bool(event.was) and self._compaction is not None
        if is_moved and (old := self.tree.find_left(event.was)) is not None:
            point.take_over(old)
        if point.kind in ("interrupted", "error"):
            point.state = "stopped" if point.kind == "interrupted" else "failed"
        self._steps.begin()
        if point.is_summary:
            self._edited = self._known(event.was) if event.was and not is_moved else None
        if point.is_summary and self._replaced is None and event.id == 0 and self.tree.live:
            # Told only by the checkpoint: what stood here is the line that the summary replaces.
            self._replaced = WorldLine(0, "compaction", when, tokens_before=self.used)
            self.tree.replace(self._replaced)
        if not is_moved:
            self._link(point)
        replaced, self._replaced = self._replaced, None
        self.tree.append(point)
        if replaced is not None:
            self.tree.set_base(point, replaced)
            self.rows.reset()
        else:
            self.rows.appended(point)

    def _known(self, uid: str) -> Point | None:
        """The checkpoint with this uid, on the live line or one that was left."""
        index = self.tree.find(uid, -1)
        return self.tree.find_left(uid) if index is None else self.tree.live[index]

    def _link(self, point: Point) -> None:
        """Tell a D-Mail or a compaction what it took away."""
        cut, self._last_cut = self._last_cut, None
        if point.is_summary:
            self._compaction = point
        if cut is None:
            return
        if point.kind == "dmail" and cut.reason == "dmail":
            point.from_line = cut.world_line
            # A person's letter comes from no step.
            point.from_id = cut.from_checkpoint if cut.author == "agent" else -1
            point.saved = cut.tokens_after - cut.tokens_before
        elif point.is_summary and cut.reason == "compaction":
            point.before = cut.tokens_before
            point.saved = cut.tokens_after - cut.tokens_before

    def _status(self, event: StatusUpdate) -> None:
        self.used, self.estimated = event.used, event.estimated
        self.limit, self.trigger, self.per_step = event.limit, event.trigger, event.per_step
        self.correction = event.correction or 1.0
        head = self.head
        if head is None or self._last_cut is not None:
            return
        sent = event.step_input
        if not head.measured and not head.is_heading:
            if sent is not None:
                head.tokens, head.measured = sent, not event.estimated
            elif not event.estimated and head.tokens == head.tokens_end:
                head.tokens, head.measured = event.used, True
            self._measure_previous(head)
        head.tokens_end = event.used
        # The server has not seen yet what tools gave back.
        head.end_measured = head.measured and not event.estimated and not head.calls
        head.touch()

    def _measure_previous(self, head: Point) -> None:
        if head.measured and head.index > 0:
            previous = self.tree.live[head.index - 1]
            if not previous.is_heading:
                previous.tokens_end, previous.end_measured = head.tokens, True
                previous.touch()

    def _end_turn(self, reason: str, at: float) -> None:
        self.running = False
        self._relabel(self._steps.settle(self.head))
        self._steps.end()
        head = self.head
        if head is None:
            return
        head.ended_at = head.ended_at or at
        heading = self.rows.heading_of(head.index)
        if heading is not None:
            heading.ended_at = at
        if reason == "interrupted":
            head.state = "stopped"
        elif reason == "error":
            head.state = "failed"
        elif head.state == "open":
            head.state = "done"
        head.touch()

    # Lines

    def _reverted(self, event: ContextReverted, at: float) -> None:
        self._relabel(self._steps.settle(self.head))
        index = self.tree.find(event.uid, event.checkpoint_id)
        self.used = event.tokens_after
        if index is None:
            return
        self._last_cut = event
        line = WorldLine(
            event.world_line,
            event.reason,
            at,
            tokens_before=event.tokens_before,
            tokens_after=event.tokens_after,
            text=one_line(event.text)[:LABEL_LIMIT],
            from_id=event.from_checkpoint,
            to_id=event.checkpoint_id,
            by_person=event.author == "person",
        )
        self.is_fold_new = True
        self.fold = Fold(event.reason, line, self.fold.serial + 1 if self.fold else 1)
        head = self.head
        if head is not None:
            head.tokens_end = event.tokens_before
            head.ended_at = head.ended_at or at
            head.state = "done" if head.state == "open" else head.state
            head.touch()
        if event.reason == "compaction" and index == 0:
            self.tree.replace(line)
            self._replaced = line
            self.rows.reset()
            return
        self.tree.cut(index, line)
        self.rows.cut(index)
        self._touch_head()

    def _compacted(self, event: CompactionEnd) -> None:
        point, self._compaction = self._compaction, None
        if event.error or point is None:
            return
        change = event.tokens_after - event.tokens_before
        old, self._edited = self._edited, None
        if old is not None and old.before:
            # Other words for the same part: the compaction saved what it had, and what the words make of it.
            point.before, point.saved = old.before, (old.saved or 0) + change
        else:
            point.before, point.saved = event.tokens_before, change
        if point is self.head:
            point.tokens_end = event.tokens_after
            point.tokens = point.tokens if point.index else event.tokens_after
        self.used = event.tokens_after
        base = self.tree.base(point)
        if base is not None:
            base.tokens_before, base.tokens_after = event.tokens_before, event.tokens_after
            if base.n == 0:
                n_points = len(base.points)
                self.tree.number_base(base, event.world_line)
                if len(base.points) != n_points:
                    self.rows.reset()
        point.touch()

    def _switched(self, event: LineChanged, at: float) -> None:
        if event.op not in ("jump", "undo", "redo") or not event.to_line:
            return
        self._relabel(self._steps.settle(self.head))
        left = WorldLine(event.from_line, event.op, at, tokens_before=self.used)
        left.from_id = self.head.id if self.head is not None else -1
        start = self.tree.switch(event.to_line, left, event.uid)
        if start is None:
            # A line from before what was told here: all that is known is where the live line ends now.
            index = self.tree.find(event.uid, -1) if event.uid else None
            if index is None:
                return
            self.tree.cut(index, left)
            start = 0
        self._last_cut = None
        self.rows.reset(start)
        self._touch_head()
