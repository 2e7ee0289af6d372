"""The timeline that results from the events of a session."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from support.conversation import named
from support.story import TRIGGER, Teller, until_arrived, whole_story

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.timeline.layout import (
    checkpoint_details,
    figure_of,
    label_of,
    line_details,
    whole_label,
)
from kimi_tui.wire.events import (
    ApprovalRequest,
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    EventRecord,
    FilesChanged,
    LineChanged,
    StepRetry,
    TextPart,
    ToolCall,
    ToolCallPart,
    ToolResult,
    ToolStarted,
)


def model_of(teller: Teller) -> TimelineModel:
    model = TimelineModel()
    for record in teller.records:
        model.apply(record)
    return model


def ids(model: TimelineModel) -> list[int]:
    return [checkpoint.id for checkpoint in model.tree.live]


def test_the_story_has_its_lines_and_steps() -> None:
    model = model_of(whole_story())
    assert ids(model) == list(range(17))
    assert model.n_steps == 16
    assert {n: (line.reason, len(line.checkpoints)) for n, line in model.tree.lines.items()} == {
        1: ("compaction", 64),
        2: ("rewind", 14),
        3: ("dmail", 5),
    }
    assert model.tree.base(model.tree.live[0]) is model.tree.lines[1]
    assert model.running
    assert model.running
    assert model.trigger == TRIGGER


def test_steps_take_their_words_from_what_happened() -> None:
    model = model_of(whole_story())
    live = model.tree.live
    assert [(c.name, c.target) for c in live[15].calls or ()] == [("Shell", "pytest -q tests/csv")]
    assert live[15].state == "failed"
    assert live[14].files == 1
    assert live[5].words == "I split the line at its commas, then join what is quoted."
    assert live[5].calls is None


def test_what_commands_changed_counts_with_what_tools_showed() -> None:
    t = Teller()
    t.turn("Work")
    t.step(("WriteFile", {"path": "a"}), files=("a",))
    model = model_of(t)
    (turn, step) = model.tree.live
    before, revision = model.revision, step.revision
    model.apply(EventRecord(99, 0.0, FilesChanged(step.uid, ("a", "b", "c"))))
    assert step.files == 3
    assert model.revision > before
    assert step.revision > revision
    model.apply(EventRecord(100, 0.0, FilesChanged(turn.uid, ("x",))))
    assert (turn.files, step.files) == (1, 3)
    model.apply(EventRecord(101, 0.0, FilesChanged("nobody", ("x",))))


def test_the_change_of_a_step_is_what_the_next_one_starts_with() -> None:
    model = model_of(whole_story())
    live = model.tree.live
    assert (live[13].change, live[13].change_measured) == (2_100, True)
    # Only the next call counts the output of a tool, so the last step of a turn stays an estimate.
    assert (live[10].change, live[10].change_measured) == (6_000, False)
    # An answer without tools is counted by its own call.
    assert (live[5].change, live[5].change_measured) == (2_900, True)
    # The steps that were cut away keep their own figures, and so does the step below the cut.
    assert (live[7].change, live[7].change_measured) == (300, True)
    assert [p.change for p in model.tree.lines[3].checkpoints] == [1_100, 800, 1_900, 14_200, 700]


def test_a_flooding_tool_result_counts_for_its_own_step() -> None:
    t = Teller()
    t.turn("Read it")
    flood = t.step(("ReadFile", {"path": "big"}), cost=40_000)
    t.step(text="Done.", cost=100)
    model = model_of(t)
    assert model.tree.live[flood].change == 40_000
    assert model.tree.live[flood + 1].change == 100


def test_a_d_mail_tells_where_it_came_from_and_what_it_saved() -> None:
    model = model_of(until_arrived())
    mail = model.tree.live[8]
    assert (mail.kind, mail.from_id, mail.from_line, mail.saved) == ("dmail", 12, 3, -18_400)
    assert model.frees(mail) == model.used - mail.tokens


def test_a_line_is_called_by_what_was_said_there_and_not_by_what_was_brought_along() -> None:
    model = TimelineModel()
    for seq, event in enumerate(
        [
            CheckpointCreated(0, "a", "user", "Count the apples"),
            ContextReverted(
                "dmail", 0, "a", 0, 1, 1, 0, 9, 9, text="Weigh them", carried=("Count the apples",)
            ),
            CheckpointCreated(0, "d", "dmail"),
            CheckpointCreated(1, "e", "user", "And the pears"),
            ContextReverted("rewind", 0, "d", 1, 2, 1, 0, 9, 9),
            CheckpointCreated(0, "f", "user", "Begin with plums"),
            CheckpointCreated(1, "g", "user", "Pinned"),
            CheckpointCreated(0, "h", "compaction"),
            CheckpointCreated(1, "i", "user", "Pinned", was="g", kept=(0,), said=("Pinned",)),
            CompactionEnd(900, 400, "The plums were counted.", world_line=3),
            CheckpointCreated(2, "j", "user", "What of cherries?"),
            ContextReverted("clear", 0, "", 2, 4, 1, 0, 9, 9),
        ],
        1,
    ):
        model.apply(EventRecord(seq, 1.0, event))
    names = {n: line.own_words for n, line in model.tree.lines.items()}
    assert names[2] == "And the pears"
    assert names[4] == "What of cherries?"


def test_a_compaction_tells_its_ratio() -> None:
    model = model_of(until_arrived())
    summary = model.tree.live[0]
    assert figure_of(summary, UNICODE)[0] == "211k→21k"
    summary.saved = -40
    assert figure_of(summary, UNICODE)[0] == "211k −40"
    summary.saved = 21_000 - 210_580
    assert summary.is_summary
    assert (summary.before, summary.before + (summary.saved or 0)) == (210_580, 21_000)


def test_a_person_s_letter_is_the_person_s() -> None:
    t = Teller()
    t.turn("One")
    t.step(cost=900)
    t.step(cost=900)
    before = t.used
    left = t.store()
    uid = t.line[1][0]
    del t.line[1:]
    t.tell(
        ContextReverted(
            "dmail", 1, uid, 2, left, 4, 0, before, before - 900, "No.", author="person"
        )
    )
    t.checkpoint("dmail", "Your D-Mail")
    model = model_of(t)
    mail = model.tree.live[1]
    words = "".join(span.text for span in label_of(mail, 40, UNICODE))
    assert (words, whole_label(mail)) == ("Your D-Mail", "Your D-Mail")
    facts = checkpoint_details(model, mail, None, width=60, rows=1, glyphs=UNICODE)
    assert not any("sent from" in span.text for row in facts for span in row)
    shown = line_details(model.tree.lines[left], 1.0, "", 34, UNICODE)
    told = "".join(span.text for row in shown for span in row)
    assert "created by your D-Mail to #1" in told


@pytest.mark.parametrize("number", [0, 2])
def test_a_changed_summary_keeps_what_the_compaction_saved(number: int) -> None:
    t = Teller()
    for words in ("One", "Two", "Three"):
        t.turn(words)
        t.step(cost=20_000)
    before = t.used
    for was, change in (("", 12_000 - before), ("first", -1_000)):
        start = before if not was else t.used
        if number:
            uid = model_of(t).tree.live[number].uid
            t.tell(ContextReverted("compaction", number, uid, 5, 1, 3, 0, start, start))
        name = "changed" if was else "first"
        t.tell(CheckpointCreated(number, name, "summary" if number else "compaction", was=was))
        t.tell(CompactionEnd(start, start + change, "S", 2 if was else 1))
        # The talk goes on meanwhile.
        t.used = start + change + 5_000
    summary = model_of(t).tree.live[number]
    assert summary.uid == "changed"
    assert summary.before == before
    assert figure_of(summary, UNICODE)[0].endswith("→~11k")


def test_a_compaction_told_without_a_revert_still_keeps_the_line() -> None:
    t = Teller()
    t.turn("One")
    t.step(cost=900)
    t.tell(CheckpointCreated(0, "new", "compaction"))
    t.tell(CompactionEnd(6_100, 2_000, "S", world_line=4))
    model = model_of(t)
    assert ids(model) == [0]
    assert [checkpoint.id for checkpoint in model.tree.lines[4].checkpoints] == [0, 1]


def test_undoing_a_rewind_brings_the_line_back_and_keeps_what_came_after() -> None:
    t = Teller()
    t.turn("One")
    for _ in range(4):
        t.step(cost=900)
    before = [uid for uid, _ in t.line]
    left = t.rewind(2)
    t.step(text="Another way", cost=50)
    t.n_lines += 1
    t.tell(LineChanged("undo", t.n_lines, left, ""))
    model = model_of(t)
    assert [p.uid for p in model.tree.live] == before
    assert [p.index for p in model.tree.live] == list(range(5))
    assert list(model.tree.lines) == [t.n_lines]
    assert [p.words for p in model.tree.lines[t.n_lines].checkpoints] == ["Another way"]


def test_undo_and_redo_leave_a_line_for_the_reason_it_was_left_for() -> None:
    t = Teller()
    t.turn("One")
    t.step()
    uid = t.line[1][0]
    left = t.rewind(1)
    t.turn("Two")
    t.tell(LineChanged("undo", left + 1, left, ""))
    t.tell(LineChanged("redo", left, left + 1, ""))
    model = model_of(t)
    assert uid not in [p.uid for p in model.tree.live]
    line = model.tree.lines[left]
    assert line.reason == "rewind"
    # The time stays as well: the redo left nothing that had not been left before.
    rewind = next(r for r in t.records if isinstance(r.event, ContextReverted))
    assert (line.at, line.to_id) == (rewind.at, 1)


def test_undoing_a_compaction_brings_the_whole_conversation_back() -> None:
    t = Teller()
    t.turn("One")
    t.step(cost=900)
    before = [uid for uid, _ in t.line]
    left = t.compact(2_000)
    t.turn("Two")
    t.n_lines += 1
    t.tell(LineChanged("undo", t.n_lines, left, ""))
    model = model_of(t)
    assert [p.uid for p in model.tree.live] == before
    assert [p.kind for p in model.tree.lines[t.n_lines].checkpoints] == ["compaction", "user"]
    # After the redo the compacted line is as it was, below the compaction, and its past is in the curve.
    t.tell(LineChanged("redo", left, t.n_lines, ""))
    model = model_of(t)
    assert [p.kind for p in model.tree.live] == ["compaction", "user"]
    assert model.tree.base(model.tree.live[0]) is model.tree.lines[left]
    assert [p.uid for p in model.tree.before_now()] == before
    assert [row.kind for row in model.rows] == ["base", "checkpoint", "checkpoint"]


def test_a_line_has_the_newest_reason_for_which_it_was_left() -> None:
    t = Teller()
    t.turn("One")
    t.step()
    left = t.rewind(1)
    t.tell(LineChanged("undo", 0, left, ""))
    t.tell(CheckpointCreated(0, "sum", "compaction"))
    t.tell(CompactionEnd(6_100, 2_000, "S", world_line=left))
    (line,) = model_of(t).tree.lines.values()
    assert (line.n, line.reason, line.is_base) == (left, "compaction", True)


def test_a_jump_into_the_middle_leaves_the_rest_as_a_line() -> None:
    t = Teller()
    t.turn("One")
    for _ in range(4):
        t.step(cost=900)
    left = t.rewind(1)
    uid = next(
        e.uid
        for e in (r.event for r in t.records)
        if isinstance(e, CheckpointCreated) and e.id == 3
    )
    t.tell(LineChanged("jump", 0, left, uid))
    model = model_of(t)
    assert ids(model) == [0, 1, 2]
    assert [p.id for p in model.tree.lines[left].checkpoints] == [3, 4]


def test_a_rewind_to_an_unknown_checkpoint_changes_no_rows() -> None:
    t = Teller()
    t.turn("One")
    t.tell(ContextReverted("rewind", 7, "nobody", 7, 1, 0, 0, 10, 5))
    model = model_of(t)
    assert ids(model) == [0]
    assert len(model.tree.lines) == 0


def test_arguments_may_come_in_pieces_or_never_be_valid() -> None:
    t = Teller()
    t.turn("One")
    t.begin_step()
    t.tell(ToolCall("a", "Shell", '{"comm'))
    t.tell(ToolCallPart("a", 'and": "ls -l"}'))
    t.tell(ToolResult("a", is_error=True, output="rejected"))
    t.tell(ToolCall("b", "Grep"))
    t.tell(ToolStarted("b", "Grep", "not json"))
    t.tell(ToolResult("zzz", is_error=False, output="of no call"))
    calls = model_of(t).tree.live[1].calls or []
    assert [(c.name, c.target, c.failed) for c in calls] == [
        ("Shell", "ls -l", True),
        ("Grep", "", False),
    ]


def test_a_call_that_waits_says_what_it_is_about_and_a_no_is_no_failure() -> None:
    t = Teller()
    t.turn("One")
    t.begin_step()
    t.tell(ToolCall("a", "WriteFile", '{"path": "a.txt", '))
    t.tell(ToolCallPart("a", '"content": "x"}'))
    t.tell(ApprovalRequest("1", "a", "WriteFile", "Create this file?", "a.txt"))
    model = model_of(t)
    checkpoint = model.tree.live[1]
    assert [call.target for call in checkpoint.calls or []] == ["a.txt"]
    t.tell(ToolResult("a", is_error=True, output="no", rejected=True))
    checkpoint = model_of(t).tree.live[1]
    assert checkpoint.state == "stopped"
    assert [call.failed for call in checkpoint.calls or []] == [False]


def test_what_a_failed_attempt_streamed_is_dropped() -> None:
    t = Teller()
    t.turn("One")
    t.begin_step()
    t.tell(TextPart("I begin"))
    t.tell(ToolCall("a", "Shell"))
    t.tell(StepRetry(1, 1, 3, 0.3, "connection lost"))
    t.tell(TextPart("Again."))
    t.end()
    checkpoint = model_of(t).tree.live[1]
    assert checkpoint.calls is None
    assert checkpoint.words == "Again."


@pytest.mark.parametrize(
    ("reason", "state"), [("done", "done"), ("interrupted", "stopped"), ("error", "failed")]
)
def test_how_a_turn_ended_is_on_its_last_step(reason: str, state: str) -> None:
    t = Teller()
    t.turn("One")
    t.begin_step()
    t.end(reason)
    model = model_of(t)
    assert model.tree.live[1].state == state
    assert not model.running


def test_hostile_words_reach_no_screen() -> None:
    t = Teller()
    t.turn("One\x1b]52;c;evil\x07\nsecond line [bold]x[/]")
    t.step(("Shell", {"command": "echo \x1b[31m\x9b2J; rm\n-rf"}))
    model = model_of(t)
    heading, step = model.tree.live
    assert heading.words == "One second line [bold]x[/]"
    assert "\x1b" not in (step.calls or [])[0].target
    assert "\x9b" not in (step.calls or [])[0].target
    assert "\n" not in (step.calls or [])[0].target


def test_a_bookmark_stays_with_its_checkpoint_on_whatever_line() -> None:
    t = Teller()
    t.turn("One")
    t.step()
    uid = t.line[1][0]
    model = model_of(t)
    model.apply(named((uid, "Here it worked")))
    told = len(t.records)
    t.rewind(1)
    for record in t.records[told:]:
        model.apply(record)
    line = model.tree.lines[1]
    assert [p.bookmark for p in line.checkpoints] == ["Here it worked"]
    # A line is found by its name, too.
    model.apply(named((line.mark, "The  long way")))
    model.rows.filter("long way")
    assert [(row.kind, row.line) for row in model.rows] == [("line", line)]
    assert model.line_name(1) == "The long way"
    assert [p.bookmark for p in line.checkpoints] == [""]
    model.apply(named())
    assert len(model.rows) == 0


@pytest.mark.parametrize("author", ["agent", "person"])
def test_a_line_is_called_by_what_stands_on_it(author: Literal["agent", "person"]) -> None:
    t = Teller()
    t.turn("One")
    t.step(text="My own first words")
    t.cut(1, "dmail", "Use re.finditer")
    last = t.records[-1]
    assert isinstance(last.event, ContextReverted)
    t.records[-1] = last._replace(event=replace(last.event, author=author))
    t.checkpoint("dmail", "D-Mail")
    t.tell(TextPart("after it"))
    t.step(text="The step behind")
    # The agent wrote its D-Mail on the line that it left; the user's stands on the one that followed.
    assert (
        model_of(t).line_name(1)
        == {
            "agent": "Use re.finditer",
            "person": "My own first words",
        }[author]
    )


def test_another_model_is_arranged_as_the_user_arranged_the_one_before() -> None:
    t = whole_story()
    model = model_of(t)
    model.toggle(next(row for row in model.rows if row.kind == "line"))
    model.toggle(next(r for r in model.rows if r.checkpoint is not None and r.checkpoint.id == 11))
    before = [row.key[1] for row in model.rows if row.kind in ("line", "foot")]
    assert before
    count = len(model.rows)
    again = model_of(t)
    again.arrange(model.arrangement)
    assert len(again.rows) == count


def test_events_that_only_stream_change_nothing_that_is_drawn() -> None:
    t = whole_story()
    model = model_of(t)
    revision = model.revision
    t.tell(TextPart("more"))
    assert not model.apply(t.records[-1])
    assert model.revision == revision


def test_a_fold_does_not_hide_that_the_line_was_cut_in_it() -> None:
    t = Teller()
    t.turn("One")
    for _ in range(4):
        t.step(("Shell", {"command": "ls"}))
    model = model_of(t)
    model.toggle(model.rows[0])
    assert len(model.rows) == 1
    first = len(t.records)
    t.rewind(3)
    for record in t.records[first:]:
        model.apply(record)
    assert [(row.kind, row.hidden) for row in model.rows] == [("checkpoint", 2), ("line", 0)]


def test_a_cut_in_what_another_line_began_with_makes_that_line_longer() -> None:
    t = Teller()
    t.turn("One")
    for _ in range(4):
        t.step(("Shell", {"command": "ls"}))
    t.rewind(1)
    t.jump(1, stop=4)
    t.rewind(2)
    model = model_of(t)
    assert ids(model) == [0, 1]
    assert {n: [p.id for p in line.checkpoints] for n, line in model.tree.lines.items()} == {
        1: [2, 3, 4]
    }


def test_messages_without_a_checkpoint_of_their_own_are_rows_and_a_filter_finds_letters() -> None:
    t = Teller()
    t.turn("One")
    t.step()
    t.turn("Two")
    t.step()
    t.dmail(1, "only line 412 matters", carried=("Two", "And three"))
    t.step()
    t.steer("Rather four")
    model = model_of(t)
    rows = [(row.kind, row.checkpoint.id, row.said) for row in model.rows if row.checkpoint]
    assert rows == [
        ("checkpoint", 0, -1),
        ("said", 1, 0),
        ("said", 1, 1),
        ("checkpoint", 1, -1),
        ("checkpoint", 2, -1),
        ("said", 2, 0),
    ]
    # Later steps belong to the newest message, and a fold of it holds no more than these.
    assert model.rows.heading_of(2) is model.tree.live[1]
    model.rows.filter("412 MATTERS")
    # The line that it left bears its words for a name.
    assert [row.kind for row in model.rows] == ["line", "checkpoint"]
    assert model.rows[1].checkpoint is model.tree.live[1]
    assert model.rows.n_found == 2
    model.rows.filter("three")
    assert [row.said for row in model.rows] == [1]


def test_the_most_tokens_of_the_live_line_are_known_without_looking_through_it() -> None:
    model, looked_at = TimelineModel(), 0
    for record in whole_story().records:
        model.apply(record)
        live = model.tree.live
        figures = [figure for one in live for figure in (one.tokens, one.tokens_end)]
        assert model.most_tokens() == max(figures, default=0)
        looked_at += 1
    assert looked_at > 100
