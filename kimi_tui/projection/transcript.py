"""From the engine's events to the blocks of the transcript: the same reducer for live events, resume and replay.

Nothing here draws or knows a width. Tool calls are `tool_calls.py`'s; what is cut, replaced and brought back is
`reverts.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.foreign_text import one_line
from kimi_tui.projection.blocks import (
    NOTHING,
    AgentBlock,
    Block,
    BlockList,
    Change,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    MarkGlyph,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
    both,
)
from kimi_tui.projection.reverts import Reverts
from kimi_tui.projection.row_figures import RowFigures
from kimi_tui.projection.tool_calls import ToolCalls
from kimi_tui.wire.events import (
    ApprovalRequest,
    ApprovalResolved,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    EventRecord,
    FailureKind,
    FilesAttached,
    FilesChanged,
    FilesRestored,
    LineChanged,
    NextMessage,
    Notice,
    StatusUpdate,
    SteerQueued,
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
    toll_words,
)

_BACK = "brought back"
_NAMED = 3
_PATH_CHARS = 4_096
"""No system has longer paths; a damaged record may."""
_SUMMARIES = frozenset({"compaction", "summary"})

TITLES: dict[FailureKind, str] = {
    "": "The turn stopped",
    "model": "Model call failed",
    "tools": "This model calls no tools",
}
WAYS_ON: dict[FailureKind, str] = {
    "": "",
    "model": "Nothing was lost: Enter tries again.",
    "tools": "Nothing was lost: /tools off goes on without them.",
}


class TranscriptModel:
    """The blocks of the conversation.

    Attributes:
        streaming: whether a turn is under way.
    """

    def __init__(self, work_dir: str = "") -> None:
        self.streaming = False
        self._list = BlockList()
        self._speech = Speech(self._list)
        self._calls = ToolCalls(self._list)
        self._reverts = Reverts(self._list)
        self._steps = StepTokens()
        self._figures = RowFigures()
        self._has_switched = False
        """An undo, redo or jump was the last thing that happened."""
        self._spare: CheckpointCreated | None = None
        """A checkpoint of a user's turn whose words have not come yet."""
        self.work_dir = work_dir

    @property
    def blocks(self) -> list[Block]:
        """In the order in which they stand; queued steers are last."""
        return self._list.blocks

    @property
    def work_dir(self) -> str:
        """Paths below it are shown relative to it."""
        return self._calls.work_dir

    @work_dir.setter
    def work_dir(self, work_dir: str) -> None:
        self._calls.work_dir = work_dir

    @property
    def waiting(self) -> RetryBlock | None:
        """The countdown to the next attempt of a model call, while there is one."""
        return self._speech.waiting

    def find(self, block: Block) -> int | None:
        """Where a block stands now."""
        return self._list.at(block).first

    def going(self, checkpoint: int) -> range:
        """The blocks that a rewind to a checkpoint would take, by their places."""
        return range(self._list.first_from(checkpoint), self._list.end)

    def apply(self, record: EventRecord) -> Change:
        """Take one event in. Never raises on content."""
        event, at = record.event, record.at
        match event:
            case TextPart(text):
                return self._speech.add(AgentBlock, text, at)
            case ThinkPart(text):
                return self._speech.add(ThoughtBlock, text, at)
            case StatusUpdate():
                return both(self._cost(self._steps.status(event)), self._sized(event))
            case CheckpointCreated():
                return self._created(event)
            case TurnBegin():
                return self._turn_begin(event, at)
            case TurnEnd():
                return self._turn_end(event, at)
            case StepBegin():
                self._list.attempt.clear()
                return both(self._calls.step_over(), self._speech.settle(at))
            case ToolOutput(key, text):
                return self._calls.output(key, text)
            case ToolCallPart(key, arguments):
                return self._calls.more(key, arguments)
            case ToolCall():
                return both(self._speech.settle(at), self._calls.begin(event, at))
            case ToolStarted():
                return both(self._speech.settle(at), self._calls.started(event, at))
            case ToolResult():
                return self._calls.result(event, at)
            case NextMessage(number, summary):
                self._list.number = number
                change = self._speech.settle(at)
                return both(change, self._reverts.carried(summary, at)) if summary else change
            case StepRetry():
                self._calls.dropped()
                return self._speech.retry(event, at)
            case StepInterrupted(failed=failed):
                # What failed is said by the end of the turn.
                return NOTHING if failed else self._speech.stopped(at)
            case ContextReverted():
                return self._reverted(event, at)
            case CompactionBegin():
                return both(self._speech.settle(at), self._reverts.compacting(event, at))
            case CompactionEnd():
                self._figures.apply(event)
                if not event.error:
                    self._steps.cut(0)
                return both(self._speech.end_retry(), self._reverts.compacted(event, at))
            case ApprovalRequest(kind="dmail"):
                return self._calls.dmails_wait()
            case ApprovalRequest(key=key):
                return self._calls.waits(key)
            case ApprovalResolved():
                return self._calls.answered(event)
            case SteerQueued():
                return self._queued(event, at)
            case SteerTaken():
                return self._taken(event, at)
            case FilesAttached():
                return self._attached(event)
            case FilesRestored():
                return self._restored(event, at)
            case FilesChanged():
                return self._calls.changed(event)
            case Notice():
                return self._notice(event, at)
            case LineChanged():
                return self._switched(event, at)
            case _:
                return NOTHING

    def set_pins(self, pins: frozenset[tuple[str, int]]) -> Change:
        """Show what is pinned, by the checkpoints where it stands and the number of its message there."""
        change = NOTHING
        for block in self.blocks:
            if block.pinned != ((block.uid, block.number) in pins):
                block.pinned = not block.pinned
                change = both(change, self._list.touched(block))
        return change

    def toggle(self, block: Block) -> Change:
        """Fold or unfold a block."""
        block.unfolded = not block.unfolded
        return self._list.touched(block)

    # Turns and checkpoints

    def _turn_begin(self, event: TurnBegin, at: float) -> Change:
        self.streaming, self._has_switched = True, False
        change = self._speech.settle(at)
        if not event.text and not event.images:
            return change
        block = self._list.new(UserBlock, at)
        block.write(event.text)
        block.images = event.images
        block.number = 0
        spare, self._spare = self._spare, None
        block.checkpoint, block.uid = (spare.id, spare.uid) if spare is not None else (None, "")
        return both(change, self._list.append(block))

    def _turn_end(self, event: TurnEnd, at: float) -> Change:
        self.streaming = False
        dropped = NOTHING
        if event.kind:
            self._calls.dropped()
            dropped = self._speech.drop_attempt()
        change = both(dropped, both(self._speech.settle(at), self._calls.stop()))
        change = both(change, self._calls.step_over())
        self._list.attempt.clear()
        if event.reason == "error":
            error = self._list.new(ErrorBlock, at)
            error.title = TITLES[event.kind]
            error.reason = one_line(event.error)
            error.advice = f"{one_line(event.advice)} {WAYS_ON[event.kind]}".strip()
            return both(change, self._list.append(error))
        if event.reason == "interrupted":
            return both(change, self._speech.stopped(at))
        return change

    def _created(self, event: CheckpointCreated) -> Change:
        self._reverts.created(event)
        ends = self._sized(event)
        if event.was and self._reverts.moved(event):
            return ends
        is_step = event.kind == "step"
        change = both(ends, self._cost(self._steps.begin(event.id, event.tokens, is_step=is_step)))
        blocks = self._list
        if event.kind in _SUMMARIES:
            return both(change, self._reverts.compaction_point(event))
        last = blocks.last
        if event.kind == "user":
            if isinstance(last, UserBlock) and last.checkpoint is None and last.live:
                last.checkpoint, last.uid = event.id, event.uid
                return both(change, blocks.touched(last))
            self._spare = event
        elif isinstance(last, DMailBlock) and not last.uid:
            change = both(change, self._reverts.dmail_named(event))
        return change

    def _sized(self, event: CheckpointCreated | StatusUpdate) -> Change:
        """New figures; what D-Mails and compactions left may be another number of tokens now."""
        changed = self._figures.apply(event)
        return self._reverts.resized(changed, self._figures) if changed.ends else NOTHING

    def _cost(self, found: tuple[int, int, bool] | None) -> Change:
        if found is None:
            return NOTHING
        checkpoint, tokens, estimated = found
        return self._calls.cost(checkpoint, tokens, estimated=estimated)

    # What the user queued, and what they should know

    def _queued(self, event: SteerQueued, at: float) -> Change:
        block = self._list.new(UserBlock, at)
        block.write(event.text)
        block.images = event.images
        block.steer = event.id
        block.queued = True
        block.checkpoint, block.uid = None, ""
        block.live = False
        return self._list.queue(block)

    def _taken(self, event: SteerTaken, at: float) -> Change:
        change = NOTHING
        for block in self.blocks[self._list.end :]:
            if isinstance(block, UserBlock) and block.steer == event.id:
                change = self._list.remove(block)
                break
        if event.withdrawn:
            return change
        change = both(change, self._speech.close(at))
        taken = self._list.new(UserBlock, at)
        taken.write(event.text)
        taken.images = event.images
        taken.steer = event.id
        taken.number = event.number
        # Of a turn that began with what had waited these are the words.
        self._spare = None
        last = self._list.last
        if isinstance(last, UserBlock) and last.uid == taken.uid and last.number >= taken.number:
            # Typed before what the user says now, and not taken up by the turn before: it stands there before it.
            last.number = taken.number + 1
            last.touch()
            return both(change, self._list.insert(self._list.end - 1, taken))
        return both(change, self._list.append(taken))

    def _attached(self, event: FilesAttached) -> Change:
        for block in reversed(self.blocks):
            if isinstance(block, UserBlock) and block.uid == self._list.uid:
                if block.number == event.number:
                    files = (one_line(words[:_PATH_CHARS]) for words in event.files)
                    block.attached = ", ".join(files)
                    block.images += event.images
                    return self._list.touched(block)
            elif block.uid not in (self._list.uid, ""):
                break
        return NOTHING

    def _notice(self, event: Notice, at: float) -> Change:
        # What has a topic stands over the transcript until it is solved; the rest is also kept where it happened.
        if event.topic or event.solved or event.level == "info":
            return NOTHING
        notice = self._list.new(NoticeBlock, at)
        notice.level = event.level
        notice.text = one_line(event.text)
        notice.advice = one_line(event.advice)
        return both(self._speech.close(at), self._list.append(notice))

    def _restored(self, event: FilesRestored, at: float) -> Change:
        change = self._reverts.files_back({*event.restored, *event.deleted})
        said = files_words(event.restored, event.deleted, event.conflicts)
        return both(change, self._mark("files", said, at, event.uid))

    def _mark(self, glyph: MarkGlyph, text: str, at: float, operation: str = "") -> Change:
        """Leave a row about what an operation on the conversation did."""
        block = self._list.new(MarkBlock, at)
        block.glyph, block.text, block.operation = glyph, text, operation
        block.passes = self._has_switched
        return self._list.append(block)

    # Other lines

    def _reverted(self, event: ContextReverted, at: float) -> Change:
        change = self._speech.settle(at)
        self._figures.apply(event)
        if event.reason == "compaction":
            self._reverts.parted(event, at)
            return change
        self._calls.forget()
        self._spare, self._has_switched = None, False
        self._steps.cut(event.checkpoint_id if event.reason != "clear" else 0)
        return both(change, self._reverts.reverted(event, at))

    def _switched(self, event: LineChanged, at: float) -> Change:
        self._figures.apply(event)
        change = self._reverts.switched(event, at)
        self._has_switched = event.op in ("undo", "redo", "jump")
        if said := toll_words(
            event.steps_left,
            event.messages_left,
            event.from_line,
            [*map(one_line, event.files_left)],
            name=one_line(event.line_name),
        ):
            change = both(change, self._mark("line", f"Undone: {said}", at))
        if change.first is not None:
            self._steps = StepTokens()
            self._calls.forget()
        return change


def files_words(restored: Sequence[str], deleted: Sequence[str], left: Sequence[str]) -> str:
    """`2 files brought back, 1 deleted (made.txt)`: what is not there any more, or was left alone, is named."""
    found = [
        f"{len(paths):,} {became}{_named(paths) if became != _BACK else ''}"
        for paths, became in ((restored, _BACK), (deleted, "deleted"), (left, "left alone"))
        if paths
    ]
    if not found:
        return "No file had to be changed"
    count, _, became = found[0].partition(" ")
    return ", ".join([f"{count} {'file' if count == '1' else 'files'} {became}", *found[1:]])


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return f" ({', '.join(one_line(path[:_PATH_CHARS]) for path in paths[:_NAMED])}{more})"


class Speech:
    """Grows the open block of text or reasoning, and ends it."""

    __slots__ = ("_list", "_retry")

    def __init__(self, blocks: BlockList) -> None:
        self._list = blocks
        self._retry: RetryBlock | None = None

    @property
    def waiting(self) -> RetryBlock | None:
        """The countdown to the next attempt, while there is one."""
        return self._retry

    def add(self, kind: type[AgentBlock] | type[ThoughtBlock], text: str, at: float) -> Change:
        """More text or reasoning."""
        change = self.end_retry()
        last = self._list.last
        if isinstance(last, kind) and last.open:
            last.stream.add(text)
            if isinstance(last, ThoughtBlock):
                last.seconds = max(0.0, at - last.at)
            last.touch()
            return both(change, Change(self._list.end - 1))
        if not text.strip():
            # Many models begin with line ends; a block appears with the first word.
            return change
        change = self.close(at, change)
        block = self._list.new(kind, at)
        block.stream.add(text.lstrip("\n"))
        self._list.attempt.add(block.key)
        return both(change, self._list.append(block))

    def close(self, at: float, change: Change = NOTHING) -> Change:
        """Something else begins: the open block is complete."""
        last = self._list.last
        if isinstance(last, (AgentBlock, ThoughtBlock)) and last.open:
            last.open = False
            last.stream.end()
            if isinstance(last, ThoughtBlock):
                last.seconds = max(0.0, at - last.at)
            last.touch()
            return both(change, Change(self._list.end - 1))
        return change

    def settle(self, at: float) -> Change:
        """Close the open block and end a wait for a retry."""
        return self.close(at, self.end_retry())

    def retry(self, event: StepRetry, at: float) -> Change:
        """A call failed: what it had streamed goes, a countdown comes."""
        change = both(self.drop_attempt(), self.end_retry())
        block = self._list.new(RetryBlock, at)
        block.reason = one_line(event.reason)
        block.attempt = event.attempt
        block.max_attempts = event.max_attempts
        block.wait_s = event.wait_s
        block.due = at + event.wait_s
        block.gives_up = at + event.left_s if event.left_s else 0.0
        self._retry = block
        return both(change, self._list.append(block))

    def drop_attempt(self) -> Change:
        """A call failed: what it had streamed is in no context, so it goes from here too."""
        blocks = self._list.blocks
        first = len(blocks)
        for index in range(len(blocks) - 1, -1, -1):
            if blocks[index].key in self._list.attempt:
                del blocks[index]
                first = index
        self._list.attempt.clear()
        return Change(first)

    def end_retry(self) -> Change:
        """The wait is over."""
        if self._retry is None:
            return NOTHING
        block, self._retry = self._retry, None
        return self._list.remove(block)

    def stopped(self, at: float) -> Change:
        """The user stopped it: one row says so, unless a card says it already."""
        change = self.settle(at)
        self._list.attempt.clear()
        last = self._list.last
        if isinstance(last, MarkBlock) or (isinstance(last, ToolBlock) and last.state == "stopped"):
            return change
        block = self._list.new(MarkBlock, at)
        block.glyph = "stopped"
        block.text = "Stopped by you"
        return both(change, self._list.append(block))


class StepTokens:
    """Follows checkpoints and usage figures of the live line."""

    def __init__(self) -> None:
        self._current: int | None = None
        self._is_step = False
        self._known: dict[int, int] = {}
        self._sent: set[int] = set()

    def begin(self, checkpoint: int, tokens: int, *, is_step: bool) -> tuple[int, int, bool] | None:
        """A checkpoint was made with so many tokens before it; may tell what the step before it cost, as an estimate.

        Only a step is followed by a model call: figures that come after another checkpoint are those of the last one.
        """
        before = self._current
        self._current = checkpoint
        self._is_step = is_step
        self._known[checkpoint] = tokens
        self._sent.discard(checkpoint)
        if before is not None and before in self._sent and tokens > self._known[before]:
            return before, tokens - self._known[before], True
        return None

    def status(self, event: StatusUpdate) -> tuple[int, int, bool] | None:
        """New figures; may tell what a step cost: (checkpoint, tokens, whether that is an estimate)."""
        current = self._current
        if current is None or not self._is_step:
            return None
        if event.step_input is not None and current not in self._sent:
            self._known[current] = event.step_input
            self._sent.add(current)
            before = current - 1
            if before in self._sent:
                return before, event.step_input - self._known[before], event.estimated
            return None
        if current in self._sent and event.used > self._known[current]:
            return current, event.used - self._known[current], True
        return None

    def cut(self, checkpoint: int) -> None:
        """Checkpoints from this one on are no more."""
        self._current = None
        self._known = {known: tokens for known, tokens in self._known.items() if known < checkpoint}
        self._sent = {known for known in self._sent if known < checkpoint}


__all__ = ["Change", "TranscriptModel"]
