"""From the engine's events to the timeline: checkpoints, world lines, tokens, and the rows that show them.

Every event costs a constant amount of work, but for rewinds, which cost what they take away. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Iterable

from kimi_tui.foreign_text import one_line
from kimi_tui.tui.timeline.points import Fold, Key, Point, WorldLine, seconds_of
from kimi_tui.tui.timeline.rows import Row, Rows
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


class TimelineModel:
    """What the timeline shows.

    Attributes:
        tree: the lines and their checkpoints.
        rows: the tree as rows.
        revision: rises with every change that a screen may want to draw.
        running: whether a turn is under way; the newest checkpoint is then "now".
        used, limit, trigger, per_step: the newest state of the window, in tokens.
        fold: the newest operation that took something away; None before the first.
        is_fold_new: nothing was streamed since then, so its motion holds nothing up.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._bookmarks: dict[str, str] = {}
        self._pins: frozenset[str] = frozenset()
        self._clear()

    def _clear(self) -> None:
        self.tree = Tree()
        self.rows = Rows(self.tree)
        self.running = False
        self.used = 0
        self.estimated = False
        self.limit = 0
        self.trigger = 0
        self.per_step = 0
        self.fold: Fold | None = None
        self.is_fold_new = False
        self._steps = Steps()
        self._last_cut: ContextReverted | None = None
        self._replaced: WorldLine | None = None
        self._compaction: Point | None = None

    # Reading

    @property
    def head(self) -> Point | None:
        """The newest checkpoint."""
        return self.tree.head

    @property
    def n_steps(self) -> int:
        """Checkpoints on the live line, without a summary in place of older ones."""
        live = self.tree.live
        return len(live) - (1 if live and live[0].is_summary else 0)

    @property
    def n_lines(self) -> int:
        """World lines that were left."""
        return len(self.tree.lines)

    @property
    def knows_now(self) -> bool:
        """Whether the newest checkpoint is "now" itself; else a row of its own stands above it."""
        return self.running and bool(self.tree.live)

    def frees(self, point: Point) -> int:
        """How many tokens a rewind to this live checkpoint frees."""
        return max(0, self.used - point.tokens)

    # Changing

    def rebuild(self, records: Iterable[Record]) -> None:
        """Forget everything but bookmarks and what the person unfolded, and apply these records."""
        unfolded = {(line.n, line.is_whole) for line in self.tree.lines.values() if line.is_open}
        folded = {point.uid for point in self.tree.live if point.folded}
        typed = self.rows.typed
        self._clear()
        for record in records:
            self.apply(record)
        for n, is_whole in unfolded:
            if n in self.tree.lines:
                self.tree.lines[n].is_open = True
                self.tree.lines[n].is_whole = is_whole
        for point in self.tree.live:
            point.folded = point.uid in folded
        self.rows.filter(typed)
        self.revision += 1

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

    def set_bookmark(self, uid: str, name: str) -> None:
        """Show a bookmark at a checkpoint, on whatever line it is; an empty name takes it away."""
        if name:
            self._bookmarks[uid] = one_line(name)
        else:
            self._bookmarks.pop(uid, None)
        for points in (self.tree.live, *(line.points for line in self.tree.lines.values())):
            for point in points:
                if point.uid == uid:
                    point.bookmark = self._bookmarks.get(uid, "")
                    point.touch()
        if self.rows.needle:
            self.rows.reset()
        self.revision += 1

    def set_pins(self, uids: frozenset[str]) -> None:
        """Show at which checkpoints a message is pinned."""
        self._pins = uids
        for points in (self.tree.live, *(line.points for line in self.tree.lines.values())):
            for point in points:
                if point.pinned != (point.uid in uids):
                    point.pinned = not point.pinned
                    point.touch()
        self.revision += 1

    @property
    def bookmarks(self) -> frozenset[str]:
        """The uids of checkpoints with a name."""
        return frozenset(self._bookmarks)

    def toggle(self, row: Row) -> Key | None:
        """Fold or unfold what this row stands for; returns the key of the row that should be selected then."""
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
        if row.point is None:
            return None
        heading = self.rows.heading_of(row.point.index)
        if heading is None:
            return None
        heading.folded = not heading.folded
        heading.touch()
        self.rows.refold(heading)
        return heading.row_key

    def filter(self, needle: str) -> None:
        """Show only rows that hold the text."""
        self.rows.filter(needle)
        self.revision += 1

    # Events

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
            bookmark=self._bookmarks.get(event.uid, ""),
            pinned=event.uid in self._pins,
        )
        is_moved = bool(event.was) and self._compaction is not None
        if is_moved and (old := self.tree.find_left(event.was)) is not None:
            point.take_over(old)
        if point.kind in ("interrupted", "error"):
            point.state = "stopped" if point.kind == "interrupted" else "failed"
        self._steps.begin()
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

    def _link(self, point: Point) -> None:
        """Tell a D-Mail or a compaction what it took away."""
        cut, self._last_cut = self._last_cut, None
        if point.is_summary:
            self._compaction = point
        if cut is None:
            return
        if point.kind == "dmail" and cut.reason == "dmail":
            point.from_line, point.from_id = cut.world_line, cut.from_checkpoint
            point.saved = cut.tokens_after - cut.tokens_before
        elif point.is_summary and cut.reason == "compaction":
            point.before = cut.tokens_before
            point.saved = cut.tokens_after - cut.tokens_before

    def _status(self, event: StatusUpdate) -> None:
        self.used, self.estimated = event.used, event.estimated
        self.limit, self.trigger, self.per_step = event.limit, event.trigger, event.per_step
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
        point.before = event.tokens_before
        point.saved = event.tokens_after - event.tokens_before
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
        if not self.tree.switch(event.to_line, left, event.uid):
            # A line from before what was told here: all that is known is where the live line ends now.
            index = self.tree.find(event.uid, -1) if event.uid else None
            if index is None:
                return
            self.tree.cut(index, left)
        self._last_cut = None
        self.rows.reset()
        self._touch_head()
