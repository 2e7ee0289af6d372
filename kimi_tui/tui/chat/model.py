"""From the engine's events to the blocks of the chat: the same reducer for live events, resume and replay.

Nothing here draws or knows a width.
"""

from __future__ import annotations

from kimi_tui.foreign_text import clean, one_line
from kimi_tui.tui.chat.blocklist import NOTHING, BlockList, Change, both
from kimi_tui.tui.chat.blocks import (
    AgentBlock,
    Block,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    UserBlock,
)
from kimi_tui.tui.chat.calls import Calls
from kimi_tui.tui.chat.reverting import Lines
from kimi_tui.tui.chat.speech import Speech
from kimi_tui.tui.chat.steps import StepTokens
from kimi_tui.tui.numbers import counted
from kimi_tui.wire.events import (
    ApprovalRequest,
    ApprovalResolved,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    FailureKind,
    FilesRestored,
    LineChanged,
    Notice,
    Record,
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
)

__all__ = ["Change", "ChatModel"]

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


class ChatModel:
    """The blocks of the conversation.

    Attributes:
        streaming: whether a turn is under way.
    """

    def __init__(self, work_dir: str = "") -> None:
        self.streaming = False
        self._list = BlockList()
        self._speech = Speech(self._list)
        self._calls = Calls(self._list)
        self._lines = Lines(self._list)
        self._steps = StepTokens()
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

    def apply(self, record: Record) -> Change:
        """Take one event in. Never raises on content."""
        event, at = record.event, record.at
        match event:
            case TextPart(text):
                return self._speech.add(AgentBlock, text, at)
            case ThinkPart(text):
                return self._speech.add(ThoughtBlock, text, at)
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
            case StatusUpdate():
                return self._cost(self._steps.status(event))
            case CheckpointCreated():
                return self._created(event)
            case TurnBegin():
                return self._turn_begin(event, at)
            case TurnEnd():
                return self._turn_end(event, at)
            case StepBegin():
                self._list.attempt.clear()
                return self._speech.settle(at)
            case StepRetry():
                self._calls.dropped()
                return self._speech.retry(event, at)
            case StepInterrupted():
                return self._speech.stopped(at)
            case ContextReverted():
                return self._reverted(event, at)
            case CompactionBegin():
                return both(self._speech.settle(at), self._lines.compacting(event, at))
            case CompactionEnd():
                if not event.error:
                    self._steps.cut(0)
                return both(self._speech.end_retry(), self._lines.compacted(event, at))
            case ApprovalRequest(kind="dmail"):
                return self._calls.letters_wait()
            case ApprovalRequest(key=key):
                return self._calls.waits(key)
            case ApprovalResolved():
                return self._calls.answered(event)
            case SteerQueued():
                return self._queued(event, at)
            case SteerTaken():
                return self._taken(event, at)
            case FilesRestored():
                return self._restored(event, at)
            case Notice():
                return self._notice(event, at)
            case LineChanged():
                return self._switched(event)
            case _:
                # Of what the agent's tools changed the cards tell; the rest is for the timeline.
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
        self.streaming = True
        change = self._speech.settle(at)
        if not event.text and not event.images:
            return change
        block = self._list.new(UserBlock, at)
        block.text = clean(event.text)
        block.images = event.images
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
        if event.was and self._lines.moved(event):
            self._list.begin_point(event.id, event.uid)
            return NOTHING
        is_step = event.kind == "step"
        change = self._cost(self._steps.begin(event.id, event.tokens, is_step=is_step))
        blocks = self._list
        blocks.begin_point(event.id, event.uid)
        if event.kind in _SUMMARIES:
            return both(change, self._lines.compaction_point(event))
        last = blocks.last
        if event.kind == "user":
            if isinstance(last, UserBlock) and last.checkpoint is None and last.live:
                last.checkpoint, last.uid = event.id, event.uid
                return both(change, blocks.touched(last))
            self._spare = event
        elif isinstance(last, DMailBlock) and not last.uid:
            change = both(change, self._lines.letter_named(event))
        return change

    def _cost(self, found: tuple[int, int, bool] | None) -> Change:
        if found is None:
            return NOTHING
        checkpoint, tokens, estimated = found
        return self._calls.cost(checkpoint, tokens, estimated=estimated)

    # What the person queued, and what they should know

    def _queued(self, event: SteerQueued, at: float) -> Change:
        block = self._list.new(UserBlock, at)
        block.text = clean(event.text)
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
        taken.text = clean(event.text)
        taken.steer = event.id
        taken.number = event.number
        return both(change, self._list.append(taken))

    def _notice(self, event: Notice, at: float) -> Change:
        # What has a topic stands over the chat until it is solved; the rest is also kept where it happened.
        if event.topic or event.solved or event.level == "info":
            return NOTHING
        notice = self._list.new(NoticeBlock, at)
        notice.level = event.level
        notice.text = one_line(event.text)
        notice.advice = one_line(event.advice)
        return both(self._speech.close(at), self._list.append(notice))

    def _restored(self, event: FilesRestored, at: float) -> Change:
        block = self._list.new(MarkBlock, at)
        block.glyph = "files"
        parts = [counted(len(event.restored), "file") + " brought back"]
        if event.deleted:
            parts.append(f"{len(event.deleted)} deleted")
        if event.conflicts:
            parts.append(f"{len(event.conflicts)} left alone")
        block.text = ", ".join(parts)
        return self._list.append(block)

    # Other lines

    def _reverted(self, event: ContextReverted, at: float) -> Change:
        change = self._speech.settle(at)
        if event.reason == "compaction":
            self._lines.parted(event)
            return change
        self._calls.forget()
        self._spare = None
        self._steps.cut(event.checkpoint_id if event.reason != "clear" else 0)
        return both(change, self._lines.reverted(event, at))

    def _switched(self, event: LineChanged) -> Change:
        change = self._lines.switched(event)
        if change.first is not None:
            self._steps = StepTokens()
            self._calls.forget()
        return change
