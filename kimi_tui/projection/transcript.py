"""The reducer of the transcript: from the engine's events to blocks, the same for live events, resume and replay.

Nothing here draws or knows a width. `Reverts` handles the operations that remove, replace and bring back blocks; tool calls
are reduced in `tool_calls.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

from kimi_tui.display_names import some_of
from kimi_tui.foreign_text import clean, one_line, shown_name
from kimi_tui.projection.blocks import (
    NOTHING,
    AgentBlock,
    Block,
    BlockList,
    Change,
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    MarkGlyph,
    NoticeBlock,
    RetryBlock,
    Stretch,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
    both,
    common_start,
    copied,
    first_from,
)
from kimi_tui.projection.session_lines import LinesChange, SessionLines, change_alone
from kimi_tui.projection.timeline_tree import TO_EARLIER
from kimi_tui.projection.tokens import Changed, CheckpointTokens
from kimi_tui.projection.tool_calls import ToolCalls
from kimi_tui.projection.world_lines import CheckpointLike, CheckpointName, LineEdit
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.wire.events import (
    SUMMARIES,
    AgentChanged,
    AnswerBroken,
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
    MarksChanged,
    NextMessage,
    Notice,
    RuleApplied,
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

_BACK = "restored"
_NAMED = 3
_PATH_CHARS = 4_096
"""The largest number of characters of a path; a damaged record may have longer ones."""

TITLES: dict[FailureKind, str] = {
    "": "The turn stopped",
    "model": "Model request failed",
    "tools": "This model does not support tools",
    "steps": "The turn reached its step limit",
    "budget": "The turn reached its token or cost limit",
}
_NOT_COMPACTED = "Not compacted"
WAYS_ON: dict[FailureKind, str] = {
    "": "",
    "model": "Nothing was lost. Press Enter to try again.",
    "tools": "Nothing was lost. /tools off continues without tools.",
    "steps": "",
    "budget": "",
}
_CONTINUE = "The part that arrived is kept. Press Enter to continue the answer."
_MESSAGES = (UserBlock, ThoughtBlock, AgentBlock, ToolBlock, DMailBlock, CompactionBlock)

B = TypeVar("B", bound=Block)


class Reverts:
    """Applies reverts, compactions, jumps, undo and redo to the blocks of the live line and of the lines that were left."""

    def __init__(self, blocks: BlockList) -> None:
        self._list = blocks
        self._left: dict[int, _LeftBlocks] = {}
        self._has_partial = False
        """Whether a part of a line was ever summarised."""
        self._summary: SummaryPoint | None = None

    def created(self, event: CheckpointCreated) -> None:
        """Apply a new checkpoint, or one that was renumbered after a summary."""
        self._list.begin_point(event.id, event.uid, event.first)

    def _keep(self, world_line: int, blocks: Sequence[Block]) -> None:
        if world_line:
            kept = blocks[: _end_of_line(blocks, self._list.base)]
            self._left[world_line] = _LeftBlocks(kept, self._list.base, self._list.stretches)

    def files_back(self, paths: Collection[str]) -> Change:
        """Note files that a D-Mail has restored: its card does not list them as kept."""
        card = self._list.last
        if not isinstance(card, DMailBlock) or card.uid:
            return NOTHING
        card.kept = tuple(one for one in card.kept if one[0] not in paths)
        return self._list.touched(card)

    def reverted(self, event: ContextReverted, edit: LineEdit[Any] | None, at: float) -> Change:
        """Remove the blocks from a checkpoint on; for a D-Mail insert its card there."""
        blocks = self._list
        if edit is not None:
            self._keep(edit.left, blocks.blocks[: blocks.end])
        if event.reason == "clear":
            gone = tuple(blocks.blocks[: blocks.end])
            del blocks.blocks[: blocks.end]
            blocks.base, blocks.stretches = 0, (Stretch(),)
            blocks.forget_point()
            return Change(0, gone)
        first = blocks.end if edit is None else blocks.first_from(event.checkpoint_id)
        gone = tuple(blocks.blocks[first : blocks.end])
        stays: list[Block] = []
        if event.reason == "dmail":
            pinned = frozenset(event.pinned)
            keeps_words = bool(event.carried)
            carried = _carry_over(gone, event.checkpoint_id, pinned, keeps_words=keeps_words)
            if not any(isinstance(block, UserBlock) for block in carried.blocks):
                # The user's messages are not among the blocks if the history of the line begins with the D-Mail, so the
                # event's text is used.
                carried = self._with_words(carried, event, at)
            number = carried.messages if edit is not None or not event.uid else blocks.number
            card = _dmail_block(event, carried, number, blocks.new_key(), at)
            card.stretch = blocks.stretches[-1]
            stays = [*carried.blocks, card]
        blocks.blocks[first : blocks.end] = stays
        if edit is not None or not event.uid:
            blocks.forget_point()
        return both(Change(first, gone, gone_at=first), self._recount())

    def resized(self, changed: Changed, figures: CheckpointTokens) -> Change:
        """Update the token figures on the cards of D-Mails and compactions."""
        change = NOTHING
        for uid, more in changed.ends:
            figure = figures.left_by(uid)
            for card in reversed(self._list.blocks[: self._list.end]):
                if isinstance(card, (DMailBlock, CompactionBlock)) and card.uid == uid != "":
                    card.resize(more, estimated=figure is None or not figure.measured)
                    change = both(change, self._list.touched(card))
                    break
        return change

    def _recount(self) -> Change:
        """Update the number of kept messages on the card of every summary of the live line."""
        blocks, change = self._list, NOTHING
        # A summary of the whole line is its first block; only those of parts are elsewhere.
        places = range(blocks.base, blocks.end if self._has_partial else blocks.base + 1)
        for place in places[: blocks.end - blocks.base]:
            card = blocks.blocks[place]
            if not isinstance(card, CompactionBlock) or not card.below:
                continue
            stays: list[Block] = []
            for one in islice(blocks.blocks, place + 1, blocks.end):
                if one.key in card.below and not one.replaced:
                    stays.append(one)
                    if len(stays) == len(card.below):
                        break
            if (kept := n_messages(stays)) != card.kept:
                card.kept = kept
                change = both(change, blocks.touched(card))
        return change

    def _with_words(self, carried: CarriedOver, event: ContextReverted, at: float) -> CarriedOver:
        words = [self._list.new(UserBlock, at) for _ in event.carried]
        for number, block in enumerate(words, carried.messages):
            block.checkpoint, block.uid, block.number = event.checkpoint_id, "", number
        for block, text in zip(words, event.carried, strict=True):
            block.write(text)
        return CarriedOver((*carried.blocks, *words), carried.messages + len(words), carried.folded)

    def dmail_named(self, event: CheckpointCreated) -> Change:
        """Assign the D-Mail's card, and the blocks carried over with it, to its checkpoint, which is new."""
        blocks, first = self._list, None
        for index in range(blocks.end - 1, blocks.base - 1, -1):
            block = blocks.blocks[index]
            if block.uid or block.checkpoint != event.id:
                break
            block.uid = event.uid
            block.touch()
            first = index
        return Change(first)

    def compacting(self, event: CompactionBegin, at: float) -> Change:
        """Add the card of a summary that is being written."""
        block = self._list.new(CompactionBlock, at)
        # The summary's own checkpoint comes with the new line.
        block.checkpoint, block.uid, block.number = None, "", 0
        block.tokens_before = event.tokens_before
        block.automatic = event.automatic
        return self._list.append(block)

    def carried(self, summary: str, at: float) -> Change:
        """Insert the card of a pinned summary that was carried over to this line."""
        card = self._list.new(CompactionBlock, at)
        card.running, card.summary = False, clean(summary).strip()
        return self._list.append(card)

    def parted(self, edit: LineEdit[Any] | None) -> None:
        """Keep the blocks after a checkpoint, before a summary replaces them."""
        if edit is not None:
            blocks, running = self._list.blocks[: self._list.end], self._running()
            self._keep(edit.left, [one for one in blocks if one is not running])
        self._list.forget_point()

    def moved(self, event: CheckpointCreated) -> bool:
        """Apply a renumbered checkpoint; return False if it is the checkpoint of the summary itself, which the others follow."""
        if self._summary is None:
            return False
        self._summary.moved[event.was] = event
        return True

    def compaction_point(self, event: CheckpointCreated) -> Change:
        """Assign the summary's card to its checkpoint, which is new; further events may follow before the compaction ends."""
        blocks = self._list
        self._summary = SummaryPoint(event.id, event.uid, event.was)
        if event.was:
            return NOTHING
        last = blocks.last
        card = self._running() or (last if isinstance(last, CompactionBlock) else None)
        if card is not None and not card.uid:
            card.checkpoint, card.uid = blocks.checkpoint, blocks.uid
            return blocks.touched(card)
        return blocks.append(blocks.new(CompactionBlock, 0.0))

    def compacted(self, event: CompactionEnd, told: LinesChange, at: float) -> Change:
        """Replace blocks by the summary's card, followed by those that were kept."""
        blocks, base = self._list, self._list.base
        change = NOTHING
        card = self._running()
        summary, self._summary = self._summary, None
        left = told.edit.left if told.edit is not None else 0
        if event.error:
            if card is None:
                return NOTHING
            change = blocks.remove(card)
            error = blocks.new(ErrorBlock, at)
            error.title = _NOT_COMPACTED
            error.reason = one_line(event.error)
            error.advice = one_line(event.advice)
            return both(change, blocks.append(error))
        if card is None:
            card = blocks.new(CompactionBlock, at)
            card.checkpoint, card.uid = None, ""
            change = blocks.append(card)
        place = blocks.at(card).first or 0
        before, after = blocks.blocks[:place], blocks.blocks[place + 1 : blocks.end]
        self._keep(left, before)
        if summary is None:
            summary = SummaryPoint(0, card.uid, "")
        else:
            card.checkpoint, card.uid = summary.checkpoint, summary.uid
        self._has_partial |= bool(summary.checkpoint)
        past = blocks.stretches
        if summary.is_whole:
            blocks.stretches = (*past, Stretch())
        laid = _rearrange(before, base, summary, told.replaced, blocks.stretches[-1])
        _fill(card, event)
        card.below = frozenset(one.key for one in laid.kept)
        named = before if summary.was else ()
        old = next((one for one in named if one.uid == summary.was), None)
        if isinstance(old, CompactionBlock):
            # The edit changed only the text: the saving is still that of the original summary.
            card.edited, card.automatic, card.below = True, old.automatic, old.below
            card.tokens_before = old.tokens_before
            card.tokens_after = old.tokens_after + event.tokens_after - event.tokens_before
        if summary.is_whole:
            past[-1].turn(live=False)
            blocks.base = len(laid.lead)
            for one in (card, *after):
                one.stretch = blocks.stretches[-1]
        blocks.blocks[: blocks.end] = [*laid.lead, card, *laid.kept, *after]
        change = both(change, self._recount())
        return both(change, Change(min(base, len(laid.lead)), laid.gone))

    def _running(self) -> CompactionBlock | None:
        for block in reversed(self._list.blocks):
            if isinstance(block, CompactionBlock) and block.running:
                return block
        return None

    def switched(self, event: LineChanged, edit: LineEdit[Any] | None) -> Change:
        """Replace the blocks by those of another line; ask for a rebuild if these are unknown."""
        if edit is None:
            is_of_files = event.op in ("undo", "redo") and not (event.to_line or event.from_line)
            return self._forget_files(event.uid) if is_of_files else NOTHING
        known = self._left.get(edit.back) if edit.is_known else None
        if known is None:
            return Change(rebuild=True)
        blocks = self._list
        self._keep(edit.left, blocks.blocks[: blocks.end])
        kept = list(known.blocks)
        if edit.stop is not None:
            del kept[first_from(kept, known.base, len(kept), edit.stop.id) :]
        # The lines may have tens of thousands of blocks in common.
        old = blocks.blocks[: blocks.end]
        first = common_start(old, kept)
        kept[first:] = [_recalled(one) for one in kept[first:]]
        *past, newest = known.stretches
        turned = [one.turn(live=False) for one in past]
        if newest.turn(live=True) or any(turned):
            first = min(first, blocks.base, known.base)
        blocks.base, blocks.stretches = known.base, known.stretches
        blocks.blocks[: blocks.end] = kept
        blocks.forget_point()
        return both(Change(first), self._recount())

    def _forget_files(self, uid: str) -> Change:
        """Remove the rows about an operation on files alone, which was undone or redone."""
        blocks = self._list
        end = _end_of_line(blocks.blocks[: blocks.end], blocks.base)
        gone = blocks.blocks[end : blocks.end]
        gone += [
            b
            for b in blocks.blocks[:end]
            if isinstance(b, MarkBlock) and uid and b.operation == uid
        ][-1:]
        change = NOTHING
        for block in gone:
            change = both(change, blocks.remove(block))
        return change


def n_messages(blocks: Iterable[Block]) -> int:
    """Return the number of messages of the conversation in these blocks; a call and its result count as two."""
    found: set[tuple[str, int]] = set()
    results = 0
    for block in blocks:
        if isinstance(block, _MESSAGES):
            found.add((block.uid, block.number))
            results += isinstance(block, ToolBlock)
    return len(found) + results


def _end_of_line(blocks: Sequence[Block], base: int) -> int:
    """Return the index after the last block, from `base` on, that does not only report an undo, redo or jump."""
    end = len(blocks)
    while end > base and isinstance(last := blocks[end - 1], MarkBlock) and last.passes:
        end -= 1
    return end


@dataclass(frozen=True, slots=True)
class _LeftBlocks:
    """The blocks of a line that was left, the index of the first one whose checkpoint is on that line, and its stretches."""

    blocks: Sequence[Block]
    base: int
    stretches: tuple[Stretch, ...]


def _recalled(block: Block) -> Block:
    """Return a copy of a D-Mail's tool call for the live line, to which it belongs again; the D-Mail's card keeps the original."""
    if isinstance(block, ToolBlock) and block.card.is_letter and block.state == "done":
        return copied(block, state="recalled")
    return block


def _fill(card: CompactionBlock, event: CompactionEnd) -> None:
    card.running = False
    card.tokens_before, card.tokens_after = event.tokens_before, event.tokens_after
    card.summary = clean(event.summary).strip()
    card.touch()


_RULE_WORDS = {
    ("fired", "remind"): "{rule}: the agent was reminded that it can send a D-Mail",
    ("fired", "draft"): "{rule}: a D-Mail to #{id} is being drafted",
    ("fired", "send"): "{rule}: a D-Mail to #{id} is being drafted",
    ("refused", ""): "{rule}: you refused the D-Mail to #{id}",
    ("failed", ""): "{rule}: no D-Mail was drafted",
}


def _rule_words(event: RuleApplied) -> str:
    """Return a sentence about a rule; empty for a fact that another row shows."""
    words = _RULE_WORDS.get((event.did, event.then)) or _RULE_WORDS.get((event.did, ""))
    if words is None:
        return ""
    rule = f'D-Mail rule "{one_line(event.rule)}"'
    why = one_line(event.text)
    return f"{words.format(rule=rule, id=event.checkpoint_id)}. {why}".strip()


def _dmail_block(
    event: ContextReverted, carried: CarriedOver, number: int, key: int, at: float
) -> DMailBlock:
    """Return the card of a delivered D-Mail, which is the message with index `number` after its checkpoint."""
    folded = carried.folded
    tools = [block for block in folded if isinstance(block, ToolBlock) and not block.card.is_letter]
    edits: Counter[str] = Counter()
    for tool in tools:
        for shown in tool.display:
            if isinstance(shown, DiffBlock):
                edits[shown_name(shown.path)] += 1
    return DMailBlock(
        key=key,
        checkpoint=event.checkpoint_id,
        uid=event.uid if event.from_checkpoint < event.checkpoint_id else "",
        number=number,
        at=at,
        text=clean(event.text).strip(),
        from_checkpoint=event.from_checkpoint,
        tokens_changed=event.tokens_after - event.tokens_before,
        world_line=event.world_line,
        facts=clean(event.facts).strip(),
        rule=one_line(event.rule),
        author=event.author,
        tool_calls=len(tools) if folded else event.tool_calls_dropped,
        steps=max(0, event.from_checkpoint - event.checkpoint_id + 1),
        kept=tuple(edits.items()),
        folded=folded,
    )


@dataclass(slots=True)
class SummaryPoint:
    """A summary's checkpoint, and those after it, collected from events until the compaction ends.

    Attributes:
        checkpoint, uid: the summary's.
        was: the uid of the summary that it edits; empty for a new one.
        moved: the checkpoints after it, by the uid that they had before.
    """

    checkpoint: int
    uid: str
    was: str
    moved: dict[str, CheckpointCreated] = field(default_factory=dict[str, CheckpointCreated])

    @property
    def is_whole(self) -> bool:
        """Whether the summary replaces everything except the kept messages."""
        return not (self.checkpoint or self.was)


@dataclass(frozen=True, slots=True)
class RearrangedBlocks:
    """The blocks of a compacted conversation: those before the summary's card, those after it, and those that were removed."""

    lead: list[Block]
    kept: list[Block]
    gone: tuple[Block, ...]


def _rearrange(
    before: Sequence[Block],
    base: int,
    summary: SummaryPoint,
    points: Sequence[CheckpointLike],
    stretch: Stretch,
) -> RearrangedBlocks:
    """Divide the blocks of the line into those before the summary's card, those after it, and removed ones.

    Args:
        before: all blocks, without the new card.
        base: the index of the first one to whose checkpoint a rewind is possible.
        summary: the summary's checkpoint and those after it.
        points: the checkpoints of the line so far.
        stretch: the stretch of the blocks after the card.
    """
    moved = _moved_points(summary, points)
    if summary.was:
        moved[summary.checkpoint] = CheckpointCreated(
            summary.checkpoint, summary.uid, "summary", was=summary.was
        )
    cut = _card_index(before, base, summary, moved)
    kept: list[Block] = []
    gone: list[Block] = []
    for block in islice(before, max(base, cut), None):
        if isinstance(block, CompactionBlock) and summary.was == block.uid != "":
            continue
        event = moved.get(block.checkpoint) if block.checkpoint is not None else None
        if block.checkpoint is None and moved and not block.replaced:
            # The line that was left keeps the block itself in its own stretch.
            kept.append(block if block.stretch is stretch else copied(block, stretch=stretch))
        elif event is not None and (not event.kept or block.number in event.kept):
            # The block is copied, as the line that was left keeps it with its own number.
            copy = copied(block, stretch=stretch)
            copy.checkpoint = event.id
            if block.uid == event.was:
                copy.uid = event.uid
            if event.kept:
                copy.number = event.kept.index(block.number)
            if isinstance(copy, DMailBlock) and event.id != block.checkpoint:
                # The distance between the D-Mail and the checkpoint from which it came stays the same.
                copy.from_checkpoint += event.id - (block.checkpoint or 0)
                copy.is_moved = True
            if isinstance(copy, ToolBlock) and copy.card.is_letter and copy.target:
                copy.target = TO_EARLIER if event.id != block.checkpoint else copy.target
            kept.append(copy)
        else:
            gone.append(block)
    if summary.is_whole:
        # The replaced blocks stay readable, in their order.
        return RearrangedBlocks([*before[:cut], *gone], kept, ())
    if summary.was:
        return RearrangedBlocks(list(before[:cut]), kept, tuple(gone))
    past = (copied(one, replaced=True, checkpoint=None) for one in gone)
    return RearrangedBlocks([*before[:cut], *past], kept, ())


def _moved_points(
    summary: SummaryPoint, points: Sequence[CheckpointLike]
) -> dict[int, CheckpointCreated]:
    """Return the checkpoints after a summary by their former numbers: they are nearly always the newest of the line."""
    moved: dict[int, CheckpointCreated] = {}
    left = dict(summary.moved)
    for point in reversed(points):
        if not left:
            break
        if (event := left.pop(point.uid, None)) is not None:
            moved[point.id] = event
    return moved


def _card_index(
    before: Sequence[Block], base: int, summary: SummaryPoint, moved: Mapping[int, object]
) -> int:
    """Return the index of the card, or of the first block that is moved after it."""
    end = len(before)
    if summary.was:
        places = (n for n in range(base, end) if _is_card(before[n], summary.was))
        return next(places, end)
    first = summary.checkpoint or min(moved, default=-1)
    if first < 0:
        return end
    at = first_from(before, base, end, first)
    while at < end:
        point = before[at].checkpoint
        if point is not None and (point in moved if not summary.checkpoint else point >= first):
            return at
        at += 1
    return end


def _is_card(block: Block, uid: str) -> bool:
    return isinstance(block, CompactionBlock) and block.uid == uid


@dataclass(frozen=True, slots=True)
class CarriedOver:
    """The blocks that stay before a D-Mail, their number of messages, and the blocks that are folded into its card."""

    blocks: tuple[Block, ...]
    messages: int
    folded: tuple[Block, ...]


def _carry_over(
    gone: Sequence[Block], checkpoint: int, pinned: Collection[str], *, keeps_words: bool = True
) -> CarriedOver:
    """Divide the blocks that a D-Mail dropped. Those that stay are copied: the line that was left keeps its blocks.

    Args:
        gone: the dropped blocks, in order.
        checkpoint: the checkpoint of the D-Mail.
        pinned: the messages that are pinned, as `ContextReverted` names them.
        keeps_words: whether the user's messages stay; kimi-cli drops them, so the model does not get them.
    """
    stays: list[Block] = []
    folded: list[Block] = []
    messages = 0
    group: tuple[str, int] | None = None
    place = 0
    for block in gone:
        if block.replaced:
            continue
        if isinstance(block, NoticeBlock) or (isinstance(block, UserBlock) and block.unsent):
            stays.append(_moved(block, checkpoint, 0))
        elif isinstance(block, UserBlock) and keeps_words:
            stays.append(_moved(block, checkpoint, messages))
            messages += 1
        elif _is_pinned(block, pinned) and (
            # Blocks that only report about a message stay with it.
            (is_same := (block.uid, block.number) == group) or isinstance(block, _MESSAGES)
        ):
            if not is_same:
                group, place = (block.uid, block.number), messages
                messages += 1
            # A call is followed by its result.
            messages += isinstance(block, ToolBlock)
            kept = _moved(block, checkpoint, place)
            kept.pinned = True
            stays.append(kept)
        else:
            folded.append(block)
    return CarriedOver(tuple(stays), messages, tuple(folded))


def _is_pinned(block: Block, pinned: Collection[str]) -> bool:
    """Whether this block was pinned: a D-Mail's checkpoint may have messages other than the D-Mail."""
    if f"{block.uid}:{block.number}" in pinned:
        return True
    return block.uid in pinned and (block.pinned or not isinstance(block, DMailBlock))


def _moved(block: B, checkpoint: int, number: int) -> B:
    return copied(block, checkpoint=checkpoint, uid="", number=number)


class TranscriptModel:
    """The state of the transcript: reduces events to blocks.

    Attributes:
        streaming: whether a turn is under way.
    """

    def __init__(self, work_dir: str = "") -> None:
        self.streaming = False
        self._list = BlockList()
        self._speech = OpenText(self._list)
        self._calls = ToolCalls(self._list)
        self._reverts = Reverts(self._list)
        self._steps = StepTokens()
        self._alone: SessionLines[CheckpointName] | None = None
        """The world lines where nothing beside this chat keeps them."""
        self._has_switched = False
        """Whether the last event was an undo, redo or jump."""
        self._spare: CheckpointCreated | None = None
        """The checkpoint of a turn whose message was not published yet."""
        self._begun: UserBlock | None = None
        """The message with which the turn began, until its checkpoint is told."""
        self._is_broken = False
        """Whether the answer of the running step broke off and is kept."""
        self._had_pins = False
        """Whether a message was ever pinned."""
        self._pause: ApprovalRequest | None = None
        """The pending question of the program while the turn is paused."""
        self.work_dir = work_dir

    @property
    def blocks(self) -> list[Block]:
        """All blocks in order; queued messages are last."""
        return self._list.blocks

    @property
    def work_dir(self) -> str:
        """The work folder; paths below it are shown relative to it."""
        return self._calls.work_dir

    @work_dir.setter
    def work_dir(self, work_dir: str) -> None:
        self._calls.work_dir = work_dir

    @property
    def waiting(self) -> RetryBlock | None:
        """The countdown to the next attempt of a model call; None if there is none."""
        return self._speech.waiting

    def find(self, block: Block) -> int | None:
        """Return the index of a block; None if it is not in the list."""
        return self._list.at(block).first

    def dropped_by(self, checkpoint: int) -> range:
        """Return the indices of the blocks that a rewind to a checkpoint would drop."""
        return range(self._list.first_from(checkpoint), self._list.end)

    def apply(
        self,
        record: EventRecord,
        told: LinesChange | None = None,
        figures: CheckpointTokens | None = None,
    ) -> Change:
        """Apply one event; return what changed. Never raises on content.

        Args:
            record: the event.
            told: what it changed of the session's world lines and figures; None where this chat is shown alone.
            figures: the session's token figures, likewise.
        """
        if told is None:
            self._alone = self._alone or SessionLines[CheckpointName]()
            told, figures = change_alone(self._alone, record), self._alone.figures
        change = self._apply(record, told)
        if told.figures.ends and figures is not None:
            # The cards of D-Mails and compactions say what was left.
            change = both(change, self._reverts.resized(told.figures, figures))
        return change

    def apply_beside(self, record: EventRecord) -> Change:
        """Apply an event of a sub-agent, `record.source`: what it streams is the last line of its card."""
        match record.event:
            case TextPart(text) | ThinkPart(text):
                kind = type(record.event)
                return self._calls.agent_said(record.source, text, record.at, kind)
            case StepBegin():
                return self._calls.agent_said(record.source, "", record.at, StepBegin)
            case _:
                return NOTHING

    def _apply(self, record: EventRecord, told: LinesChange) -> Change:
        event, at = record.event, record.at
        match event:
            case TextPart(text):
                return self._speech.add(AgentBlock, text, at)
            case ThinkPart(text):
                return self._speech.add(ThoughtBlock, text, at)
            case StatusUpdate():
                return self._cost(self._steps.status(event))
            case CheckpointCreated():
                return self._created(event)
            case TurnBegin():
                return self._turn_begin(event, at)
            case TurnEnd():
                return self._turn_end(event, at)
            case StepBegin():
                self._list.keep_attempts()
                self._is_broken = False
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
            case AgentChanged():
                return self._calls.agent_changed(event)
            case NextMessage(number, summary):
                self._list.number = number
                change = self._speech.settle(at)
                return both(change, self._reverts.carried(summary, at)) if summary else change
            case StepRetry():
                return both(self._calls.dropped(), self._speech.retry(event, at))
            case StepInterrupted(failed=failed):
                # The end of the turn reports the failure.
                return NOTHING if failed else self._speech.stopped(at)
            case AnswerBroken():
                self._is_broken = True
                return self._speech.broken(at)
            case ContextReverted():
                return self._reverted(event, told, at)
            case CompactionBegin():
                return both(self._speech.settle(at), self._reverts.compacting(event, at))
            case CompactionEnd():
                dropped = NOTHING
                if not event.error:
                    self._steps.cut(0)
                    # The model found the context too long within an answer, which it begins anew.
                    dropped = self._list.drop_replaced()
                dropped = both(dropped, self._speech.end_retry())
                return both(dropped, self._reverts.compacted(event, told, at))
            case ApprovalRequest(kind="dmail"):
                return self._calls.dmails_wait()
            case ApprovalRequest(kind="pause"):
                self._pause = event
                return NOTHING
            case ApprovalResolved(id=name) if self._pause is not None and self._pause.id == name:
                return self._paused(event, at)
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
            case RuleApplied():
                return self._mark("rule", _rule_words(event), at)
            case LineChanged():
                change = self._switched(event, told, at)
                # The blocks that come back have the pins of the time when their line was left.
                return both(change, self._pin(self._list.pins)) if self._had_pins else change
            case MarksChanged(pins=pins):
                # A bookmark changes no block.
                told_pins = frozenset(pins)
                return self._pin(told_pins) if told_pins != self._list.pins else NOTHING
            case _:
                return NOTHING

    def _pin(self, pins: frozenset[tuple[str, int]]) -> Change:
        """Set the pinned messages, each as the uid of its checkpoint and its index after that."""
        self._list.pins, change = pins, NOTHING
        self._had_pins |= bool(pins)
        uids = {uid for uid, _ in pins}
        # There may be tens of thousands of blocks, and few of them are or were pinned.
        for block in [one for one in self.blocks if one.pinned or one.uid in uids]:
            if block.pinned != ((block.uid, block.number) in pins):
                block.pinned = not block.pinned
                change = both(change, self._list.touched(block))
        return change

    def toggle(self, block: Block) -> Change:
        """Fold or unfold a block."""
        block.unfolded = not block.unfolded
        return self._list.touched(block)

    # -- turns and checkpoints

    def _turn_begin(self, event: TurnBegin, at: float) -> Change:
        self.streaming, self._has_switched = True, False
        # A killed program told no end of the turn before.
        change = both(self._not_sent(), self._speech.settle(at))
        if not event.text and not event.images:
            return change
        block = self._list.new(UserBlock, at)
        block.write(event.text)
        block.images = event.images
        block.number = 0
        spare, self._spare = self._spare, None
        block.checkpoint, block.uid = (spare.id, spare.uid) if spare is not None else (None, "")
        self._begun = block if spare is None else None
        return both(change, self._list.append(block))

    def _not_sent(self) -> Change:
        """Note that the turn is over before its message had a checkpoint."""
        block, self._begun = self._begun, None
        if block is None:
            return NOTHING
        block.unsent = True
        return self._list.touched(block)

    def _turn_end(self, event: TurnEnd, at: float) -> Change:
        self.streaming = False
        dropped = NOTHING
        if event.kind:
            dropped = both(self._calls.dropped(), self._list.drop_attempts())
        change = both(self._not_sent(), both(self._speech.settle(at), self._calls.stop()))
        change = both(dropped, change)
        change = both(change, self._calls.step_over())
        self._list.keep_attempts()
        is_broken, self._is_broken = self._is_broken, False
        if event.killed:
            change = both(change, self._speech.killed())
        if event.reason == "error":
            error = self._list.new(ErrorBlock, at)
            error.title = TITLES[event.kind]
            error.reason = one_line(event.error)
            way_on = _CONTINUE if is_broken and event.kind == "model" else WAYS_ON[event.kind]
            error.advice = f"{one_line(event.advice)} {way_on}".strip()
            last = self._list.last
            if (
                isinstance(last, ErrorBlock)
                and last.title == _NOT_COMPACTED
                and last.reason == error.reason
            ):
                # A compaction failed and ended the turn: the same words stand once, with the advice.
                change = both(change, self._list.remove(last))
            return both(change, self._list.append(error))
        if event.reason == "interrupted":
            return both(change, self._speech.stopped(at, killed=event.killed))
        return change

    def _created(self, event: CheckpointCreated) -> Change:
        self._reverts.created(event)
        if event.was and self._reverts.moved(event):
            return NOTHING
        is_step = event.kind == "step"
        change = self._cost(self._steps.begin(event.id, event.tokens, is_step=is_step))
        blocks = self._list
        if event.kind in SUMMARIES:
            return both(change, self._reverts.compaction_point(event))
        last = blocks.last
        if event.kind == "user":
            begun, self._begun = self._begun, None
            if begun is None or not begun.live:
                self._spare = event
                return change
            # A notice, as of a hook, may stand between the message and its checkpoint.
            for block in reversed(blocks.blocks[: blocks.end]):
                block.checkpoint, block.uid = event.id, event.uid
                change = both(change, blocks.touched(block))
                if block is begun:
                    break
        elif isinstance(last, DMailBlock) and not last.uid:
            change = both(change, self._reverts.dmail_named(event))
        return change

    def _cost(self, found: tuple[int, int, bool] | None) -> Change:
        if found is None:
            return NOTHING
        checkpoint, tokens, estimated = found
        return self._calls.cost(checkpoint, tokens, estimated=estimated)

    # -- queued messages, files and notices

    def _queued(self, event: SteerQueued, at: float) -> Change:
        waiting = self.blocks[self._list.end :]
        is_told = any(isinstance(one, UserBlock) and one.steer == event.id for one in waiting)
        if is_told or event.when != "now":
            return NOTHING
        block = self._list.new(UserBlock, at)
        block.write(event.text)
        block.images = event.images
        block.steer = event.id
        block.queued = True
        block.checkpoint, block.uid = None, ""
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
        # This message began the turn, so no later user message claims the spare checkpoint.
        self._spare = None
        last = self._list.last
        if isinstance(last, UserBlock) and last.uid == taken.uid and last.number >= taken.number:
            # The queued message is older than the user's present message and was not taken by the last turn, so it is
            # inserted before it.
            last.number = taken.number + 1
            last.touch()
            return both(change, self._list.insert(self._list.end - 1, taken))
        return both(change, self._list.append(taken))

    def _attached(self, event: FilesAttached) -> Change:
        for block in reversed(self.blocks):
            if isinstance(block, UserBlock) and block.uid == self._list.uid:
                if block.number == event.number:
                    block.attached = tuple(shown_name(words[:_PATH_CHARS]) for words in event.files)
                    block.images += event.images
                    return self._list.touched(block)
            elif block.uid not in (self._list.uid, ""):
                break
        return NOTHING

    def _notice(self, event: Notice, at: float) -> Change:
        # A notice with a topic is shown above the transcript until it is solved; others are also kept at the place where they
        # happened.
        if event.topic or event.solved or event.level == "info":
            return NOTHING
        notice = self._list.new(NoticeBlock, at)
        notice.level = event.level
        notice.text = one_line(event.text)
        notice.advice = one_line(event.advice)
        return both(self._speech.close(at), self._list.append(notice))

    def _paused(self, event: ApprovalResolved, at: float) -> Change:
        """Add the program's question and the user's answer; nothing if the question was withdrawn."""
        request, self._pause = self._pause, None
        if request is None or (event.answer == "no" and event.feedback == "stopped"):
            return NOTHING
        said = event.feedback if event.answer != "no" else request.no_offer
        return self._notice(Notice("warning", request.question, f"Your answer: {said}"), at)

    def _restored(self, event: FilesRestored, at: float) -> Change:
        change = self._reverts.files_back({*event.restored, *event.deleted})
        said = files_words(event.restored, event.deleted, event.conflicts)
        return both(change, self._mark("files", said, at, event.uid))

    def _mark(self, glyph: MarkGlyph, text: str, at: float, operation: str = "") -> Change:
        """Add a row that reports an operation on the conversation; nothing without a text."""
        if not text:
            return NOTHING
        block = self._list.new(MarkBlock, at)
        block.glyph, block.text, block.operation = glyph, text, operation
        block.passes = self._has_switched
        return self._list.append(block)

    # -- other lines

    def _reverted(self, event: ContextReverted, told: LinesChange, at: float) -> Change:
        change = self._speech.settle(at)
        if event.reason == "compaction":
            self._reverts.parted(told.edit)
            return change
        self._calls.forget()
        self._spare, self._has_switched = None, False
        self._steps.cut(event.checkpoint_id if event.reason != "clear" else 0)
        return both(change, self._reverts.reverted(event, told.edit, at))

    def _switched(self, event: LineChanged, told: LinesChange, at: float) -> Change:
        change = self._reverts.switched(event, told.edit)
        self._has_switched = event.op in ("undo", "redo", "jump")
        left = replace(
            event.left,
            files=(*map(one_line, event.left.files),),
            line_name=one_line(event.left.line_name),
        )
        if said := toll_words(left, event.from_line):
            change = both(change, self._mark("line", f"Undo: {said}", at))
        if change.first is not None:
            self._steps = StepTokens()
            self._calls.forget()
            change = both(change, self._calls.agents_again())
        return change


def files_words(restored: Sequence[str], deleted: Sequence[str], left: Sequence[str]) -> str:
    """Return `2 files restored, 1 deleted (made.txt)`: files that were deleted or left unchanged are named."""
    found = [
        f"{len(paths):,} {became}{_names_in_brackets(paths) if became != _BACK else ''}"
        for paths, became in ((restored, _BACK), (deleted, "deleted"), (left, "kept"))
        if paths
    ]
    if not found:
        return "No files needed to be restored"
    count, _, became = found[0].partition(" ")
    return ", ".join([f"{count} {'file' if count == '1' else 'files'} {became}", *found[1:]])


def _names_in_brackets(paths: Sequence[str]) -> str:
    shown = [shown_name(path[:_PATH_CHARS]) for path in paths[:_NAMED]]
    return f" ({some_of(shown, _NAMED, len(paths))})"


class OpenText:
    """The block of text or reasoning that is being streamed; appends to it and closes it."""

    __slots__ = ("_list", "_retry")

    def __init__(self, blocks: BlockList) -> None:
        self._list = blocks
        self._retry: RetryBlock | None = None

    @property
    def waiting(self) -> RetryBlock | None:
        """The countdown to the next attempt; None if there is none."""
        return self._retry

    def add(self, kind: type[AgentBlock] | type[ThoughtBlock], text: str, at: float) -> Change:
        """Append a chunk of text or reasoning."""
        change = self.end_retry()
        last = self._list.last
        if isinstance(last, kind) and last.open:
            last.stream.add(text)
            if isinstance(last, ThoughtBlock):
                last.seconds = max(0.0, at - last.at)
            last.touch()
            return both(change, Change(self._list.end - 1))
        if not text.strip():
            # Many models begin with line ends; the block is created with the first word.
            return change
        change = self.close(at, change)
        block = self._list.new(kind, at)
        block.stream.add(text.lstrip("\n"))
        return both(change, self._list.append_of_attempt(block))

    def close(self, at: float, change: Change = NOTHING) -> Change:
        """Close the open block, as something else begins."""
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
        """Close the open block, and end the countdown to a retry."""
        return self.close(at, self.end_retry())

    def retry(self, event: StepRetry, at: float) -> Change:
        """Close the streamed text of a failed model call, and add the countdown to the next attempt, whose text replaces it."""
        change = self.settle(at)
        self._list.retry_attempt()
        block = self._list.new(RetryBlock, at)
        block.reason = one_line(event.reason)
        block.attempt = event.attempt
        block.max_attempts = event.max_attempts
        block.wait_s = event.wait_s
        block.due = at + event.wait_s
        block.gives_up = at + event.left_s if event.left_s else 0.0
        self._retry = block
        return both(change, self._list.append(block))

    def end_retry(self) -> Change:
        """Remove the countdown to a retry, as the wait is over."""
        if self._retry is None:
            return NOTHING
        block, self._retry = self._retry, None
        return self._list.remove(block)

    def broken(self, at: float) -> Change:
        """Keep the streamed text of a failed model call, and add a row that it broke off."""
        change = self.settle(at)
        self._list.keep_attempts()
        block = self._list.new(MarkBlock, at)
        block.glyph = "stopped"
        block.text = "The answer broke off here"
        return both(change, self._list.append(block))

    def killed(self) -> Change:
        """Have the cards of the calls that were stopped say that the end of the program stopped them, and not the user."""
        change = NOTHING
        for place in range(self._list.end - 1, -1, -1):
            one = self._list.blocks[place]
            if not isinstance(one, ToolBlock):
                break
            if one.state == "stopped":
                one.stopped_by = "exit"
                change = both(change, self._list.touched(one))
        return change

    def stopped(self, at: float, *, killed: bool = False) -> Change:
        """Add a row that the turn was stopped, by the user or by the end of the program (`killed`), unless a card says so already."""
        change = self.settle(at)
        self._list.keep_attempts()
        last = self._list.last
        if isinstance(last, MarkBlock) or (isinstance(last, ToolBlock) and last.state == "stopped"):
            return change
        block = self._list.new(MarkBlock, at)
        block.glyph = "stopped"
        block.text = "kimi-tui exited here" if killed else "Stopped by you"
        return both(change, self._list.append(block))


class StepTokens:
    """Computes what each step added to the context window, from the usage figures of the live line."""

    def __init__(self) -> None:
        self._current: int | None = None
        self._is_step = False
        self._known: dict[int, int] = {}
        self._sent: set[int] = set()
        self._largest = -1

    def begin(self, checkpoint: int, tokens: int, *, is_step: bool) -> tuple[int, int, bool] | None:
        """Begin a step.

        Args:
            checkpoint: the id of its checkpoint.
            tokens: the tokens in the window before it.
            is_step: whether a model call follows; usage figures after any other checkpoint belong to the last step.

        Returns:
            the cost of the previous step as (checkpoint, tokens, whether that is an estimate); None if there is none.
        """
        before = self._current
        self._current = checkpoint
        self._is_step = is_step
        self._known[checkpoint] = tokens
        self._largest = max(self._largest, checkpoint)
        self._sent.discard(checkpoint)
        if before is not None and before in self._sent and tokens > self._known[before]:
            return before, tokens - self._known[before], True
        return None

    def status(self, event: StatusUpdate) -> tuple[int, int, bool] | None:
        """Apply usage figures; return the cost of a step as (checkpoint, tokens, whether that is an estimate), None if there is none."""
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
        """Forget the checkpoints from this one on, which were dropped."""
        self._current = None
        known, sent = self._known, self._sent
        # The time is in proportion to the smaller part, whether it is dropped or stays; but a damaged record may have any numbers.
        if max(0, checkpoint) < self._largest + 1 - checkpoint:
            stay: Iterable[int] = range(checkpoint) if checkpoint < len(known) else known
            self._known = {one: known[one] for one in stay if one < checkpoint and one in known}
            self._sent = {one for one in self._known if one in sent}
        else:
            going: Iterable[int] = range(checkpoint, self._largest + 1)
            if self._largest - checkpoint > len(known):
                going = [one for one in known if one >= checkpoint]
            for one in going:
                known.pop(one, None)
                sent.discard(one)
        self._largest = min(self._largest, checkpoint - 1)


__all__ = ["Change", "TranscriptModel"]
