"""The blocks that a D-Mail leaves in the chat, and the origin on its card."""

from __future__ import annotations

from dataclasses import replace

from support.conversation import Conversation, pinned

from kimi_tui.projection.blocks import AgentBlock, Block, CompactionBlock, DMailBlock, NoticeBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.rows import LayoutRoom
from kimi_tui.tui.transcript.layout import compaction_card, dmail_card, rows_of
from kimi_tui.tui.transcript.viewport import revert_animation_of
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    EventRecord,
    LineChanged,
    Notice,
)

ROOM = LayoutRoom(80)


def played(talk: Conversation, model: TranscriptModel | None = None) -> TranscriptModel:
    """Return the chat after these events."""
    model = model or TranscriptModel()
    for record in talk.take():
        model.apply(record)
    return model


def two_steps() -> Conversation:
    """Return a turn of two steps, each with words and a call: #0, #1, #2."""
    talk = Conversation()
    talk.user("Look")
    for word in ("Keep", "Drop"):
        talk.step(text=f"{word} this.")
        talk.tool("Glob", {"pattern": f"*.{word}"}, "a.py")
    return talk


def uid_of(talk: Conversation, checkpoint: int) -> str:
    """Return the uid of a checkpoint."""
    events = [record.event for record in talk.records]
    return next(e.uid for e in events if isinstance(e, CheckpointCreated) and e.id == checkpoint)


def letter(to: int, frm: int, *pinned: str, **more: object) -> ContextReverted:
    """Return a letter that arrives."""
    whole = ContextReverted("dmail", to, "u", frm, 3, 8, 5, 50_000, 30_000, "Go on.", pinned=pinned)
    return replace(whole, **more)  # type: ignore[arg-type]


def arrive(talk: Conversation, event: ContextReverted) -> None:
    """The letter, and its checkpoint."""
    talk.tell(event)
    talk.tell(CheckpointCreated(event.checkpoint_id, "new", "dmail"))
    talk.tell(LineChanged("dmail", 3, 0, "new"))


def names(blocks: list[Block] | tuple[Block, ...]) -> list[str]:
    """Return the names of the blocks."""
    return [type(block).__name__.removesuffix("Block") for block in blocks]


def words(block: DMailBlock) -> str:
    """Return the card, on one line."""
    return " ".join(" ".join(line.text for line in dmail_card(block, ROOM)).split())


def test_a_letter_to_the_newest_checkpoint_has_the_checkpoint_at_which_it_arrives() -> None:
    talk = two_steps()
    arrive(talk, letter(2, 2, uid=uid_of(talk, 2)))
    card = played(talk).blocks[-1]
    assert isinstance(card, DMailBlock)
    assert (card.uid, card.checkpoint) == ("new", 2)


def test_what_is_pinned_stands_before_the_letter_under_its_checkpoint() -> None:
    talk = two_steps()
    model = played(talk)
    arrive(talk, letter(1, 2, uid_of(talk, 1)))
    played(talk, model)
    assert names(model.blocks) == ["User", "Agent", "Tool", "DMail"]
    _, agent, tool, card = model.blocks
    assert isinstance(card, DMailBlock)
    assert names(card.folded) == ["Agent", "Tool"]
    assert card.tool_calls == 1
    assert agent.pinned
    assert tool.pinned
    # The answer is the first message after the D-Mail's checkpoint, its result the second, the D-Mail the third.
    assert [(b.checkpoint, b.uid, b.number) for b in (agent, tool, card)] == [
        (1, "new", 0),
        (1, "new", 0),
        (1, "new", 2),
    ]
    assert not card.pinned
    model.apply(pinned(("new", 2)))
    assert [block.pinned for block in model.blocks] == [False, False, False, True]


def test_words_that_were_said_keep_their_place_among_what_is_pinned() -> None:
    talk = two_steps()
    talk.user("More")
    talk.step(text="Kept too.")
    model = played(talk)
    pinned = uid_of(talk, 1), uid_of(talk, 4)
    arrive(talk, letter(0, 4, *pinned, carried=("Look", "More")))
    played(talk, model)
    assert names(model.blocks) == ["User", "Agent", "Tool", "User", "Agent", "DMail"]
    assert [block.number for block in model.blocks] == [0, 1, 1, 3, 4, 5]
    assert {block.uid for block in model.blocks} == {"new"}


def test_undo_brings_back_the_very_blocks_that_were_folded_away() -> None:
    talk = two_steps()
    model = played(talk)
    before = list(model.blocks)
    arrive(talk, letter(1, 2, uid_of(talk, 1)))
    talk.tell(LineChanged("undo", 4, 3, ""))
    played(talk, model)
    assert model.blocks == before
    assert [block.checkpoint for block in before] == [0, 1, 1, 2, 2]


def test_a_letter_folds_an_earlier_letter_away_but_not_what_that_kept() -> None:
    talk = two_steps()
    model = played(talk)
    arrive(talk, letter(1, 2, uid_of(talk, 1)))
    played(talk, model)
    talk.tell(letter(1, 1, "new"))
    talk.tell(CheckpointCreated(1, "newer", "dmail"))
    played(talk, model)
    assert names(model.blocks) == ["User", "Agent", "Tool", "DMail"]
    card = model.blocks[-1]
    assert isinstance(card, DMailBlock)
    assert names(card.folded) == ["DMail"]


def test_a_notice_that_stays_is_not_taken_for_a_later_step() -> None:
    talk = two_steps()
    talk.tell(Notice("warning", "Slow."))
    model = played(talk)
    arrive(talk, letter(1, 2))
    talk.checkpoint = 2
    talk.step(text="On.")
    talk.tell(ContextReverted("rewind", 2, "u", 2, 4, 1, 0, 30_000, 30_000))
    played(talk, model)
    assert names(model.blocks) == ["User", "Notice", "DMail"]
    assert isinstance(model.blocks[1], NoticeBlock)


def test_a_card_says_whose_letter_it_is_and_where_it_came_from() -> None:
    def card(event: ContextReverted) -> DMailBlock:
        talk = two_steps()
        talk.tell(event)
        (found,) = [b for b in played(talk).blocks if isinstance(b, DMailBlock)]
        return found

    by_agent = words(card(letter(1, 2)))
    assert "◆ D-Mail from #2 to #1" in by_agent
    assert "1 step" not in words(card(letter(1, 2))).replace("+2 steps", "")
    assert "◆ Your D-Mail to #1" in words(card(letter(1, 2, author="person")))
    nothing_cut = {"tokens_before": 30_000, "world_line": 0, "tool_calls_dropped": 0}
    source = "what the agent said, at checkpoint #4 of world line 2"
    carried = card(letter(3, 2, author="person", facts=source, **nothing_cut))
    assert "◆ Your D-Mail copied from another world line" in words(carried)
    assert "What the agent said, at checkpoint #4 of world line 2" in words(carried)
    assert not carried.unfolds
    for said in ("from #", "olded away", "−", "+0"):
        assert said not in words(carried)
    # A letter of which it is not known what it undid.
    assert "◆ D-Mail to #3" in words(card(letter(3, 2, **nothing_cut)))


def test_what_stays_does_not_dim_while_the_rest_goes() -> None:
    from kimi_tui.tui.transcript.viewport import Flow

    talk = two_steps()
    model = played(talk)
    flow = Flow(ROOM)
    flow.update(model.blocks, 0)
    model.apply(pinned((uid_of(talk, 1), 0)))
    arrive(talk, letter(0, 2, uid_of(talk, 1)))
    played(talk, model)
    motion = revert_animation_of(flow, 0, 0, 40, model.blocks)
    assert motion is not None
    now = [motion.row(row, 0.7, ROOM.glyphs).text for row in range(len(motion.rows))]
    first = [line.text for line in motion.rows]
    kept = [now[row] == first[row] for row in range(len(first)) if first[row].strip()]
    assert kept == [True, True, True, False, False]


def test_a_pin_is_seen_on_prose_also_where_its_number_finds_no_room() -> None:
    for text, sign in (("Short.", "‡ #1"), ("x" * 68, "‡ #1"), ("```\ncode\n```", "‡ #1")):
        block = AgentBlock(key=1, checkpoint=1, uid="a", pinned=True, open=False)
        block.stream.add(text)
        rows = rows_of(block, ROOM)
        assert sum(sign in line.text for line in rows) == 1
        assert all(line.width <= ROOM.width for line in rows)
    block.checkpoint = 12_345
    block.stream.add("\n")
    assert any("‡" in line.text for line in rows_of(block, ROOM))
    block.replaced = True
    assert any(line.text.endswith("‡") for line in rows_of(block, ROOM))


def test_an_edited_summary_keeps_what_the_first_one_gained() -> None:
    model = TranscriptModel()
    talk = two_steps()
    talk.tell(CompactionBegin(50_000, automatic=False))
    talk.tell(CheckpointCreated(0, "sum", "compaction"))
    talk.tell(CompactionEnd(50_000, 9_000, "The summary.", 1))
    talk.tell(ContextReverted("compaction", 0, "x", 0, 0, 1, 0, 9_000, 9_000))
    talk.tell(CheckpointCreated(0, "mine", "compaction", was="sum"))
    # The talk has gone on meanwhile.
    talk.tell(CompactionEnd(11_000, 10_000, "My summary.", 2))
    for number, record in enumerate(talk.take(), 1):
        model.apply(EventRecord(number, record.at, record.event))
    (card,) = [block for block in model.blocks if isinstance(block, CompactionBlock)]
    assert (card.tokens_before, card.tokens_after, card.summary) == (50_000, 8_000, "My summary.")
    title = " ".join(compaction_card(card, ROOM)[0].text.split())
    assert title.startswith("▌ ≡ Compacted 50k → ~8k edited by you")
