"""The reducer: from what the wire tells to the blocks of the chat."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversation import (
    LETTER,
    TOKENIZER_DIFF,
    Conversation,
    pinned,
    quoted_fields,
    slow_import,
)

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.projection.tool_calls import NAMED, changed_words
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tool_cards import BriefBlock
from kimi_tui.tui.transcript.card_facts import title_text
from kimi_tui.wire.events import (
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalResolved,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    FailureKind,
    FilesChanged,
    LineChanged,
    MarksChanged,
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
)

B = TypeVar("B", bound=Block)


def shown(talk: Conversation, model: TranscriptModel | None = None) -> TranscriptModel:
    model = model or TranscriptModel()
    for record in talk.take():
        model.apply(record)
    return model


def kinds(model: TranscriptModel) -> list[str]:
    return [type(block).__name__.removesuffix("Block") for block in model.blocks]


def only(model: TranscriptModel, kind: type[B]) -> B:
    (found,) = [block for block in model.blocks if isinstance(block, kind)]
    return found


def test_a_turn_becomes_blocks() -> None:
    model = shown(quoted_fields())
    assert kinds(model) == ["User", "Thought", "Agent", "Tool", "Tool", "Tool", "Tool", "Agent"]
    assert [block.checkpoint for block in model.blocks] == [11, 12, 12, 12, 13, 14, 15, 16]
    thought = only(model, ThoughtBlock)
    assert not thought.open
    assert thought.seconds == 6.0
    assert model.streaming
    last = model.blocks[-1]
    assert isinstance(last, AgentBlock)
    assert last.open


@pytest.mark.parametrize("words_first", [True, False])
def test_the_words_get_their_checkpoint_in_either_order(words_first: bool) -> None:
    pair: list[Event] = [TurnBegin("Hi"), CheckpointCreated(3, "u3", "user", "Hi")]
    model = TranscriptModel()
    for n, event in enumerate(pair if words_first else reversed(pair)):
        model.apply(EventRecord(n, 0.0, event))
    assert only(model, UserBlock).checkpoint == 3
    assert only(model, UserBlock).uid == "u3"


def test_text_is_cleaned_even_where_a_sequence_is_cut() -> None:
    talk = Conversation()
    talk.user("a\x1b[31mb")
    talk.tell(TextPart("one \x1b]52;c;"))
    talk.tell(TextPart("aGk=\x07two"))
    talk.tell(ThinkPart("think\x9b6n"))
    talk.tell(TurnEnd("done"))
    model = shown(talk)
    assert only(model, UserBlock).text == "ab"
    assert only(model, AgentBlock).stream.text == "one two"
    assert only(model, ThoughtBlock).stream.text == "think"


def test_blank_beginnings_make_no_block() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tell(TextPart("\n\n"))
    talk.tell(TextPart("\nHello"))
    model = shown(talk)
    assert only(model, AgentBlock).stream.text == "Hello"


def test_costs_stand_on_the_cards_once_the_next_call_tells() -> None:
    model = shown(quoted_fields())
    cards = [block for block in model.blocks if isinstance(block, ToolBlock)]
    assert [card.tokens for card in cards] == [0, 2_100, 900, 1_200]
    assert not any(card.tokens_estimated for card in cards)


def test_the_newest_cost_is_an_estimate_and_stands_on_the_last_card() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step()
    talk.tool("Glob", {"pattern": "a"}, cost=300)
    talk.tool("Glob", {"pattern": "b"}, cost=200)
    model = shown(talk)
    first, second = [block for block in model.blocks if isinstance(block, ToolBlock)]
    assert (first.tokens, second.tokens, second.tokens_estimated) == (None, 500, True)
    talk.step()
    shown(talk, model)
    assert (second.tokens, second.tokens_estimated) == (500, False)


def test_a_cost_changes_only_the_cards_that_show_one() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step()
    for n in range(9):
        talk.call("Glob", {"pattern": f"{n}"})
    model = shown(talk)
    *cards, newest = [block for block in model.blocks if isinstance(block, ToolBlock)]
    versions = [card.version for card in cards]
    talk.tell(StatusUpdate(talk.tokens + 500, 262_144, 212_000))
    shown(talk, model)
    assert (newest.tokens, newest.tokens_estimated) == (500, True)
    assert [card.version for card in cards] == versions


def test_figures_told_again_after_the_next_words_are_no_new_cost() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step()
    sent = talk.tokens
    talk.tool("Glob", {"pattern": "*"}, cost=700)
    talk.end("interrupted")
    talk.user("Next")
    talk.tell(StatusUpdate(talk.tokens, 262_144, 212_000, step_input=sent))
    card = only(shown(talk), ToolBlock)
    assert (card.tokens, card.tokens_estimated) == (700, True)


def test_a_card_names_the_command_that_the_person_put_in_its_place() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tell(ToolCall("k", "Shell", '{"command": "ls"}'))
    talk.tell(ApprovalRequest("a", "k", "Shell", "Run?", "ls"))
    talk.tell(ApprovalResolved("a", "once", "ls -l\n"))
    talk.tell(ToolStarted("k", "Shell", '{"command": "ls"}'))
    model = shown(talk)
    card = only(model, ToolBlock)
    assert (card.state, card.target) == ("running", "ls -l")
    talk.tell(ToolResult("k", False, "total 0\n"))
    shown(talk, model)
    assert (card.state, card.target) == ("done", "ls -l")


def test_a_call_from_its_first_piece_to_its_result() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tell(ToolCall("k", "Shell"))
    talk.tell(ToolCallPart("k", '{"comm'))
    talk.tell(ToolCallPart("k", 'and": "ls'))
    model = shown(talk)
    card = only(model, ToolBlock)
    assert (card.state, card.target) == ("writing", "ls")
    talk.tell(ApprovalRequest("a", "k", "Shell", "Run?", "ls"))
    shown(talk, model)
    assert card.state == "waiting"
    talk.tell(ApprovalResolved("a", "once"))
    talk.tell(ToolStarted("k", "Shell", '{"command": "ls -l"}'))
    talk.tell(ToolOutput("k", "one\ntw"))
    talk.tell(ToolOutput("k", "o\x1b[31m\n"))
    shown(talk, model)
    assert (card.state, card.target, list(card.live_output), card.live_count) == (
        "running", "ls -l", ["one", "two", ""], 3,
    )  # fmt: skip
    talk.tell(ToolResult("k", False, "one\ntwo\n", display=(BriefBlock("2 lines"),)))
    shown(talk, model)
    assert (card.state, card.output, list(card.live_output)) == ("done", "one\ntwo\n", [])


def test_a_letter_is_shown_while_it_is_being_written() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tell(ToolCall("k", "SendDMail", '{"checkpoint_id": 3, "message": "Do'))
    model = shown(talk)
    version = only(model, ToolBlock).version
    talk.tell(ToolCallPart("k", " not"))
    shown(talk, model)
    assert only(model, ToolBlock).version > version


def test_live_output_is_bounded() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tell(ToolStarted("k", "Shell", "{}"))
    for _ in range(50):
        talk.tell(ToolOutput("k", "x" * 10_000 + "\n" * 100))
    card = only(shown(talk), ToolBlock)
    assert len(card.live_output) == 200
    assert card.live_count == 5_001
    assert max(map(len, card.live_output)) <= 4_000


@pytest.mark.parametrize(
    ("flags", "state"),
    [({"rejected": True}, "rejected"), ({"interrupted": True}, "stopped"), ({}, "failed")],
)
def test_ways_to_end(flags: dict[str, bool], state: str) -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tool("Shell", {"command": "x"}, "no", error=True, **flags)
    assert only(shown(talk), ToolBlock).state == state


def test_the_next_attempt_replaces_what_the_failed_one_streamed() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step(think="Hm", text="Half an ans")
    talk.call("Shell", {"command": "ls"})
    talk.tell(StepRetry(1, 1, 3, 4.0, "overloaded\x1b[2J", 529))
    model = shown(talk)
    assert kinds(model) == ["User", "Thought", "Agent", "Tool", "Retry"]
    assert only(model, ToolBlock).state == "stopped"
    retry = only(model, RetryBlock)
    assert retry.reason == "overloaded"
    assert retry.due == retry.at + 4.0
    assert model.waiting is retry
    talk.tell(TextPart("Whole answer"))
    shown(talk, model)
    assert kinds(model) == ["User", "Agent"]
    assert model.waiting is None
    talk.tool("Glob", {"pattern": "*"})
    talk.step(text="Again ha")
    talk.tell(StepRetry(2, 1, 3, 4.0, "dropped"))
    shown(talk, model)
    assert kinds(model) == ["User", "Agent", "Tool", "Agent", "Retry"]
    talk.tell(TextPart("Again whole"))
    shown(talk, model)
    assert kinds(model) == ["User", "Agent", "Tool", "Agent"]


def test_stopped_once() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step(text="Half")
    talk.tell(StepInterrupted())
    talk.end("interrupted")
    model = shown(talk)
    assert kinds(model) == ["User", "Agent", "Mark"]
    assert not only(model, AgentBlock).open
    assert not model.streaming


def test_a_failed_step_is_not_stopped_by_the_person() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step(text="Half")
    talk.tell(StepInterrupted(failed=True))
    talk.end("error", error="The server is gone", advice="Try again.")
    found = kinds(shown(talk))
    assert "Mark" not in found
    assert found[-1] == "Error"


def test_a_stopped_tool_says_it_itself() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tool("Shell", {"command": "x"}, "", error=True, interrupted=True)
    talk.tell(StepInterrupted())
    talk.end("interrupted")
    assert kinds(shown(talk)) == ["User", "Tool"]


def test_calls_without_results_are_stopped_at_the_end() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.call("Shell", {"command": "x"})
    talk.end("error", error="The server closed\nthe connection", advice="Try again.")
    model = shown(talk)
    assert only(model, ToolBlock).state == "stopped"
    assert only(model, ErrorBlock).reason == "The server closed the connection"


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_kind_of_error_has_a_title(kind: FailureKind) -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.tell(TurnEnd("error", "Why it stopped.", "Then do this.", kind))
    error = only(shown(talk), ErrorBlock)
    assert error.title
    assert error.reason == "Why it stopped."
    assert error.advice.startswith("Then do this.")


def test_rewind_takes_what_came_after() -> None:
    talk = quoted_fields()
    model = shown(talk)
    talk.end()
    talk.tell(ContextReverted("rewind", 14, "u", 16, 2, 4, 2, 58_000, 56_000))
    *before, last = talk.take()
    for record in before:
        model.apply(record)
    change = model.apply(last)
    assert kinds(model) == ["User", "Thought", "Agent", "Tool", "Tool"]
    assert [type(block) for block in change.gone] == [ToolBlock, ToolBlock, AgentBlock]
    talk.checkpoint = 14
    talk.user("Otherwise")
    shown(talk, model)
    assert model.blocks[-1].checkpoint == 14


def test_rewind_to_the_words_takes_them() -> None:
    talk = quoted_fields()
    model = shown(talk)
    talk.tell(ContextReverted("rewind", 11, "u", 16, 2, 4, 2, 58_000, 30_000))
    shown(talk, model)
    assert model.blocks == []


def test_a_letter_folds_what_it_undid() -> None:
    talk = slow_import()
    talk.tool("StrReplaceFile", {"path": "src/csv/tokenizer.py"}, "", TOKENIZER_DIFF)
    talk.step()
    talk.tool("SendDMail", {"message": LETTER, "checkpoint_id": 8}, "not sent")
    talk.tell(SteerTaken("s", "And be quick"))
    model = shown(talk)
    words = [block for block in model.blocks if isinstance(block, UserBlock)][-1]
    talk.letter(8, LETTER, carried=("And be quick",))
    shown(talk, model)
    assert kinds(model) == ["User", "Agent", "Tool", "User", "DMail"]
    card = only(model, DMailBlock)
    assert (card.checkpoint, card.from_checkpoint, card.steps) == (8, 12, 5)
    assert card.uid
    assert (card.tool_calls, card.tokens_changed) == (5, -18_400)
    assert card.kept == (("src/csv/tokenizer.py", 1),)
    assert card.text == LETTER
    assert not any(isinstance(block, UserBlock) for block in card.folded)
    # The person's words were carried over; the line that was left still has them with their own number.
    assert model.blocks[3].checkpoint == 8
    assert words.checkpoint == 12


def test_undo_brings_the_same_blocks_back() -> None:
    talk = slow_import()
    talk.step()
    talk.tool("SendDMail", {"message": LETTER, "checkpoint_id": 8}, "not sent")
    model = shown(talk)
    before = list(model.blocks)
    talk.letter(8, LETTER, world_line=3)
    talk.step(text="I go straight to line 212")
    shown(talk, model)
    after = list(model.blocks)
    talk.tell(LineChanged("undo", 4, 3, "u"))
    shown(talk, model)
    # The D-Mail is the exception: it was sent, and that was undone.
    assert model.blocks[:-1] == before[:-1]
    sent, recalled = before[-1], model.blocks[-1]
    assert isinstance(sent, ToolBlock)
    assert isinstance(recalled, ToolBlock)
    assert (sent.state, recalled.state) == ("done", "recalled")
    assert "withdrawn" in title_text(recalled)
    talk.tell(LineChanged("redo", 3, 4, "u"))
    shown(talk, model)
    assert model.blocks == after


def test_blocks_that_come_back_have_no_pin_that_was_taken_away_meanwhile() -> None:
    talk = quoted_fields()
    model = shown(talk)
    block = model.blocks[5]
    talk.tell(MarksChanged((), ((block.uid, block.number),)))
    shown(talk, model)
    assert block.pinned
    talk.tell(ContextReverted("rewind", 2, "u", 16, 2, 4, 2, 58_000, 30_000))
    talk.tell(MarksChanged((), ()))
    talk.tell(LineChanged("undo", 3, 2, "u"))
    shown(talk, model)
    assert model.blocks[5] is block
    assert not block.pinned


def test_all_that_comes_of_a_message_is_pinned_if_it_was_pinned_while_it_was_written() -> None:
    model = TranscriptModel()
    events: list[Event] = [
        CheckpointCreated(0, "turn", "user"),
        TurnBegin("Look."),
        CheckpointCreated(1, "step", "step"),
        ThinkPart("Where?"),
        MarksChanged((), (("step", 0),)),
        TextPart("Here."),
        ToolCall("step:0", "ReadFile", "{}"),
        TurnEnd("done"),
        CheckpointCreated(2, "next", "user"),
        TurnBegin("Thanks."),
    ]
    for event in events:
        model.apply(EventRecord(0, 0.0, event))
    of_step = [block for block in model.blocks if block.uid == "step"]
    assert [block.pinned for block in of_step] == [True] * 3
    assert [block.pinned for block in model.blocks if block not in of_step] == [False] * 2


def test_a_jump_into_a_line_takes_it_up_to_there() -> None:
    talk = quoted_fields()
    model = shown(talk)
    uid = model.blocks[5].uid
    talk.tell(ContextReverted("rewind", 11, "u", 16, 2, 4, 2, 58_000, 30_000))
    talk.tell(LineChanged("jump", 3, 2, uid))
    shown(talk, model)
    assert kinds(model) == ["User", "Thought", "Agent", "Tool", "Tool"]


def test_an_unknown_line_asks_to_be_told_anew() -> None:
    model = shown(quoted_fields())
    assert model.apply(EventRecord(1, 0.0, LineChanged("undo", 9, 8, "u"))).rebuild
    assert not model.apply(EventRecord(1, 0.0, LineChanged("rewind", 9, 0, "u"))).rebuild


@pytest.mark.parametrize("live", [True, False])
def test_compaction_parts_the_numbers(live: bool) -> None:
    talk = quoted_fields()
    talk.end()
    if live:
        talk.tell(CompactionBegin(211_000, automatic=False))
    events: list[Event] = [
        CheckpointCreated(0, "c0", "compaction", "", 21_000),
        CompactionEnd(211_000, 21_000, "What was\ndone", 4),
    ]
    for event in events:
        talk.tell(event)
    talk.checkpoint = 1
    talk.user("Go on")
    talk.step(text="Well")
    talk.tool("Glob", {"pattern": "*"})
    model = shown(talk)
    card = only(model, CompactionBlock)
    assert (card.checkpoint, card.uid, card.running) == (0, "c0", False)
    at = model.blocks.index(card)
    assert not any(block.live for block in model.blocks[:at])
    assert all(block.live for block in model.blocks[at:])
    # The numbers begin anew: #2 is the step after it, not one of long ago.
    talk.tell(ContextReverted("rewind", 2, "u", 3, 5, 1, 1, 22_000, 21_000))
    shown(talk, model)
    assert kinds(model)[at:] == ["Compaction", "User"]
    talk.tell(LineChanged("undo", 6, 4, "u"))
    shown(talk, model)
    assert all(block.live for block in model.blocks[:at])


def test_what_is_told_before_the_end_of_a_compaction_stands_below_its_card() -> None:
    talk = quoted_fields()
    talk.end()
    talk.checkpoint = 0
    talk.mark("compaction")
    talk.tell(SteerTaken("", "What was said last"))
    talk.tell(CompactionEnd(211_000, 21_000, "Summary", 4))
    model = shown(talk)
    assert kinds(model)[-2:] == ["Compaction", "User"]
    assert model.blocks[-1].live
    assert not model.blocks[-3].live
    assert only(model, CompactionBlock).summary == "Summary"


def test_a_retry_within_a_compaction_is_over_with_it() -> None:
    talk = quoted_fields()
    talk.tell(CompactionBegin(211_000, automatic=True))
    talk.tell(StepRetry(1, 2, 3, 4.0, "overloaded"))
    talk.checkpoint = 0
    talk.mark("compaction")
    talk.tell(CompactionEnd(211_000, 21_000, "Summary", 4))
    model = shown(talk)
    assert model.waiting is None
    assert kinds(model)[-1] == "Compaction"
    assert not only(model, CompactionBlock).running


def test_a_jump_to_a_point_without_blocks_of_its_own() -> None:
    talk = Conversation()
    talk.user("One")
    talk.step()
    made = talk.records[3].event
    assert isinstance(made, CheckpointCreated)
    talk.end()
    talk.user("Two")
    talk.step(text="Answer")
    model = shown(talk)
    talk.tell(ContextReverted("rewind", 0, "u", 3, 2, 4, 2, 58_000, 30_000))
    talk.tell(LineChanged("jump", 3, 2, made.uid))
    shown(talk, model)
    assert [block.text for block in model.blocks if isinstance(block, UserBlock)] == ["One"]


def test_operations_on_files_alone_change_nothing() -> None:
    model = shown(quoted_fields())
    change = model.apply(EventRecord(1, 0.0, LineChanged("undo", 0, 0, "u")))
    assert (change.first, change.rebuild) == (None, False)


def test_a_failed_compaction_says_so() -> None:
    talk = quoted_fields()
    talk.tell(CompactionBegin(211_000, automatic=True))
    talk.tell(CompactionEnd(211_000, 211_000, error="The model said nothing."))
    model = shown(talk)
    assert kinds(model)[-1] == "Error"
    assert "Compaction" not in kinds(model)


def test_a_compaction_that_fails_and_ends_the_turn_is_one_card() -> None:
    talk = Conversation()
    talk.user("a long log")
    failed = "The conversation was not compacted: it takes 115,040 of 60,000 tokens."
    talk.tell(CompactionBegin(115_040, automatic=True))
    talk.tell(CompactionEnd(115_040, 115_040, error=failed))
    talk.end("error", error=failed, advice="Rewind to an earlier checkpoint.")
    errors = [one for one in shown(talk).blocks if isinstance(one, ErrorBlock)]
    assert [(one.title, one.reason, one.advice) for one in errors] == [
        ("The turn stopped", failed, "Rewind to an earlier checkpoint.")
    ]
    # A failed compaction that did not end the turn keeps its card.
    talk.tell(CompactionBegin(115_040, automatic=True))
    talk.tell(CompactionEnd(115_040, 115_040, error="No words."))
    talk.end("error", error="The server is gone")
    titles = [one.title for one in shown(talk).blocks if isinstance(one, ErrorBlock)]
    assert titles == ["Not compacted", "The turn stopped"]


def test_steers_wait_at_the_end_until_they_go_in() -> None:
    talk = quoted_fields()
    talk.tell(SteerQueued("s1", "And tabs"))
    talk.tell(SteerQueued("s2", "No, wait"))
    talk.tell(TextPart(" check."))
    model = shown(talk)
    assert kinds(model)[-3:] == ["Agent", "User", "User"]
    talk.tell(SteerTaken("s2", "No, wait", withdrawn=True))
    talk.tell(SteerTaken("s1", "And tabs", number=2))
    talk.step(text="Tabs too")
    shown(talk, model)
    assert kinds(model)[-3:] == ["Agent", "User", "Agent"]
    steer = model.blocks[-2]
    assert isinstance(steer, UserBlock)
    assert (steer.text, steer.queued) == ("And tabs", False)
    # A pin means this message, and not the answer that began the step.
    assert model.apply(pinned((steer.uid, 2))).first is not None
    assert [block for block in model.blocks if block.pinned] == [steer]


def test_notices_without_a_topic_stay_where_they_happened() -> None:
    talk = quoted_fields()
    talk.tell(Notice("warning", "A tool was slow\x07", "Nothing to do."))
    talk.tell(Notice("error", "The disk is full", topic="disk"))
    talk.tell(Notice("info", "Saved"))
    assert only(shown(talk), NoticeBlock).text == "A tool was slow"


@pytest.mark.parametrize(
    ("answer", "said", "told"),
    [
        ("once", "Go on", "Your answer: Go on"),
        ("once", "read b.py", "Your answer: read b.py"),
        ("no", "", "Your answer: Stop the turn"),
        # The request was withdrawn, or the turn was stopped, which other words say.
        ("no", "stopped", ""),
    ],
)
def test_what_the_program_asked_stays_with_the_answer(
    answer: ApprovalAnswer, said: str, told: str
) -> None:
    talk = quoted_fields()
    pause = ApprovalRequest("p", "", "", "It goes in circles.", "", kind="pause")
    talk.tell(replace(pause, options=("Go on",), no_offer="Stop the turn"))
    talk.tell(ApprovalResolved("p", answer, said))
    notices = [one for one in shown(talk).blocks if isinstance(one, NoticeBlock)]
    assert [one.advice for one in notices] == [told] * bool(told)
    assert all(one.text == "It goes in circles." for one in notices)


def test_an_answer_that_a_notice_follows_is_closed() -> None:
    talk = quoted_fields()
    talk.step(text="Cut at the limit")
    talk.tell(Notice("warning", "The answer was cut."))
    model = shown(talk)
    assert kinds(model)[-2:] == ["Agent", "Notice"]
    answer = model.blocks[-2]
    assert isinstance(answer, AgentBlock)
    assert not answer.open


def test_clear_empties() -> None:
    talk = quoted_fields()
    talk.tell(ContextReverted("clear", 0, "u", 16, 2, 4, 2, 58_000, 0))
    assert shown(talk).blocks == []


def test_every_change_names_the_first_block_that_differs() -> None:
    talk = slow_import()
    talk.tell(SteerQueued("s1", "And tabs"))
    talk.letter(8, LETTER)
    talk.step(text="On")
    talk.tell(SteerTaken("s1", "And tabs"))
    talk.tell(CompactionBegin(1, automatic=True))
    talk.tell(CompactionEnd(1, 1, "s", 5))
    talk.tell(LineChanged("undo", 6, 5, "u"))
    talk.end("error", error="x")
    assert_changes_are_true(talk.records)


def assert_changes_are_true(records: list[EventRecord]) -> None:
    model = TranscriptModel()
    before: list[tuple[int, int]] = []
    for record in records:
        change = model.apply(record)
        after = [(id(block), block.version) for block in model.blocks]
        first = change.first if change.first is not None else len(after)
        assert after[:first] == before[:first]
        if change.first is None:
            assert after == before
        before = after


events = st.one_of(
    st.builds(TurnBegin, st.sampled_from(["", "Hi"])),
    st.builds(TurnEnd, st.sampled_from(["done", "interrupted", "rejected", "error"]), kind=st.sampled_from(get_args(FailureKind))),
    st.builds(StepBegin, st.integers(1, 3)),
    st.builds(StepRetry, st.just(1), st.just(1), st.just(3), st.just(1.0), st.just("r")),
    st.just(StepInterrupted()),
    st.builds(TextPart, st.text(max_size=5)),
    st.builds(ThinkPart, st.text(max_size=5)),
    st.builds(ToolCall, st.sampled_from("ab"), st.sampled_from(["Shell", "SendDMail"])),
    st.builds(ToolStarted, st.sampled_from("ab"), st.just("Shell"), st.text(max_size=3)),
    st.builds(ToolOutput, st.sampled_from("ab"), st.text(max_size=5)),
    st.builds(ToolResult, st.sampled_from("ab"), st.booleans(), st.text(max_size=5)),
    st.builds(StatusUpdate, st.integers(0, 99), st.just(100), st.just(80), step_input=st.none() | st.integers(0, 99)),
    st.builds(
        CheckpointCreated, st.integers(0, 5), st.sampled_from("uvwxyz"),
        st.sampled_from(["user", "step", "dmail", "compaction"]),
    ),
    st.builds(
        ContextReverted, st.sampled_from(["rewind", "dmail", "clear", "compaction", "undo"]), st.integers(0, 5),
        st.sampled_from("uvwxyz"), st.integers(0, 5), st.integers(1, 4), st.just(1), st.just(1), st.just(9), st.just(5),
    ),
    st.just(CompactionBegin(9, True)),
    st.builds(CompactionEnd, st.just(9), st.just(5), st.just("s"), st.integers(0, 4), st.sampled_from(["", "e"])),
    st.builds(SteerQueued, st.sampled_from("st"), st.just("x")),
    st.builds(SteerTaken, st.sampled_from("st"), st.just("x"), st.booleans()),
    st.builds(
        LineChanged, st.sampled_from(["rewind", "undo", "redo", "jump"]), st.integers(0, 4), st.integers(0, 4),
        st.sampled_from("uvwxyz"),
    ),
    st.builds(Notice, st.sampled_from(["info", "error"]), st.just("n")),
    st.builds(ApprovalRequest, st.just("a"), st.sampled_from("ab"), st.just("Shell"), st.just("q"), st.just("d")),
    st.builds(ApprovalResolved, st.just("a"), st.sampled_from(["once", "no"])),
)  # fmt: skip


@given(st.lists(events, max_size=40))
def test_any_order_of_events_is_taken_in(sequence: list[Event]) -> None:
    assert_changes_are_true([EventRecord(n, float(n), event) for n, event in enumerate(sequence)])


def test_marks_for_files() -> None:
    from kimi_tui.wire.events import FilesRestored

    talk = Conversation()
    talk.tell(FilesRestored("u", ("a", "b"), ("c",), ()))
    assert only(shown(talk), MarkBlock).text == "2 files restored, 1 deleted (c)"
    # A damaged record may hold paths of any length.
    damaged = Conversation()
    damaged.tell(FilesRestored("u", (), ("é" * 200_000,) * 3))
    assert len(only(shown(damaged), MarkBlock).text) < 20_000


def test_a_command_says_what_it_changed_while_that_can_be_brought_back() -> None:
    talk = Conversation(started=0.0)
    talk.user("Go")
    talk.step()
    talk.tool("Shell", {"command": "make"}, "made")
    talk.tool("WriteFile", {"path": "c"}, "written")
    model = shown(talk)
    made, written = (one for one in model.blocks if isinstance(one, ToolBlock))
    assert changed_words(made) == ""
    # The changes belong to the step in older records, and to this call in new ones.
    talk.tell(FilesChanged(made.uid, ("a\x1b[2J",)))
    talk.tell(FilesChanged(made.uid, ("c",), key=written.call))
    shown(talk, model)
    assert changed_words(made) == "1 file changed, can be restored"
    assert (made.changed, written.n_changed) == (("a<U+001B>[2J",), 0)
    talk.tell(FilesChanged(made.uid, tuple(f"{n:02}" for n in range(20)), lost=20, key=made.call))
    shown(talk, model)
    assert changed_words(made) == "21 files changed, 20 of them cannot be restored"
    assert len(made.changed) == NAMED
    made.lost = ("00", "01", "02")
    said = "21 files changed, 20 of them cannot be restored (00, 01, 02 and 17 more)"
    assert changed_words(made) == said
    made.n_lost = 21
    assert changed_words(made) == "21 files changed, cannot be restored"
    talk.tell(CompactionBegin(1000, False))
    talk.tell(CheckpointCreated(0, "sum", "compaction"))
    talk.tell(CompactionEnd(1000, 10, "It was made.", world_line=1))
    shown(talk, model)
    assert changed_words(made) == "21 files changed"


@pytest.mark.parametrize("end", ["interrupted", "error", "killed"])
def test_a_message_whose_turn_ended_before_its_checkpoint_is_no_part_of_the_conversation(
    end: str,
) -> None:
    talk = Conversation()
    talk.user("first")
    talk.step(text="one")
    talk.end()
    talk.tell(TurnBegin("never sent"))
    if end != "killed":
        talk.end(end, error="The hook refused it." if end == "error" else "")
    else:
        talk.tell(TurnBegin("", resumed=True))
        talk.step(text="on")
        talk.end()
    talk.user("third")
    talk.step(text="three")
    model = TranscriptModel()
    for record in talk.take():
        model.apply(record)
    said = [one for one in model.blocks if isinstance(one, UserBlock)]
    assert [(one.text, one.checkpoint, one.live, one.is_past) for one in said] == [
        ("first", 0, True, False),
        ("never sent", None, False, True),
        ("third", talk.checkpoint - 2, True, False),
    ]
    # Its view is told of the change.
    assert said[1].unsent
    assert said[1].n_edits > 0


def test_a_notice_before_the_checkpoint_of_a_message_takes_it_from_no_message() -> None:
    talk = Conversation()
    for words in ("first", "second"):
        talk.tell(TurnBegin(words))
        talk.tell(Notice("warning", "A hook failed."))
        talk.mark("user", words)
        talk.step(text="So.")
        talk.end()
    model = TranscriptModel()
    for record in talk.take():
        model.apply(record)
    kinds = [
        (type(one), one.checkpoint)
        for one in model.blocks
        if isinstance(one, UserBlock | NoticeBlock)
    ]
    assert kinds == [(UserBlock, 0), (NoticeBlock, 0), (UserBlock, 2), (NoticeBlock, 2)]
