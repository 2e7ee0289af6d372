"""What the frame around chat and timeline shows, after each event."""

from __future__ import annotations

from dataclasses import replace

from rich.cells import cell_len
from support.cases import each

from kimi_tui.projection.session_model import reduce, settled
from kimi_tui.projection.session_state import SessionState
from kimi_tui.wire.events import (
    ApprovalRequest,
    ApprovalResolved,
    CheckpointCreated,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    LineChanged,
    PromptProgress,
    SteerQueued,
    SteerTaken,
    StepBegin,
    StepInterrupted,
    StepRetry,
    TextPart,
    ToolCall,
    TurnBegin,
    TurnEnd,
)

BEGIN = SessionState()


def after(*events: Event, state: SessionState = BEGIN) -> SessionState:
    """Return the state after some events, a second apart."""
    for number, event in enumerate(events, 1):
        state = reduce(state, EventRecord(number, 1000.0 + number, event))
    return state


REVERT = ContextReverted("rewind", 1, "u", 2, 1, 1, 0, 10, 5)


def test_a_turn_from_its_begin_to_its_end() -> None:
    state = after(TurnBegin("Fix  the\nparser"), StepBegin(1), StepBegin(2))
    assert (state.title, state.running, state.turn_at, state.step) == (
        "Fix the parser",
        True,
        1001.0,
        2,
    )
    assert not after(TurnEnd("done"), state=state).running


def test_since_when_an_answer_is_waited_for() -> None:
    step = CheckpointCreated(1, "u", "step")
    asked = after(TurnBegin("a"), StepBegin(1), step)
    assert (asked.asked_at, asked.prompt_read) == (1003.0, -1.0)
    reading = after(PromptProgress(31, 100), state=asked)
    assert (reading.asked_at, reading.prompt_read) == (1003.0, 0.31)
    for event in (TextPart("x"), ToolCall("k", "Shell"), StepInterrupted(), TurnEnd("done")):
        done = after(event, state=reading)
        assert (done.asked_at, done.prompt_read) == (0.0, -1.0)
    again = after(StepRetry(1, 2, 3, 5.0, "busy"), state=reading)
    assert (again.asked_at, again.prompt_read) == (1006.0, -1.0)
    assert settled(reading, running=False).asked_at == 0.0
    # One that a compaction renumbers asks nothing, nor does the prompt of a turn.
    assert not after(replace(step, was="v"), CheckpointCreated(2, "w", "user")).asked_at


def test_the_title_is_the_first_thing_said() -> None:
    assert after(TurnBegin("one"), TurnBegin("two")).title == "one"
    assert cell_len(after(TurnBegin("x" * 500)).title) <= 60
    assert after(TurnBegin("\x1b[2Jhi"), state=SessionState()).title == "hi"


@each(
    "events, can",
    [
        ([TurnBegin("a"), TurnEnd("done")], False),
        ([TurnBegin("a"), TurnEnd("error", "x")], True),
        ([TurnBegin("a"), TurnEnd("interrupted")], True),
        ([TurnBegin("a"), TurnEnd("error"), TurnBegin("", resumed=True)], False),
        ([TurnBegin("a"), TurnEnd("done"), REVERT], True),
        ([TurnBegin("a"), TurnEnd("done"), REVERT, LineChanged("undo", 2, 1, "")], False),
        ([TurnBegin("a"), TurnEnd("done"), LineChanged("jump", 2, 1, "", is_open=True)], True),
        ([TurnBegin("a"), TurnEnd("error"), LineChanged("undo", 2, 1, "", is_open=True)], True),
    ],
)
def test_when_enter_goes_on(events: list[Event], can: bool) -> None:
    assert after(*events).can_resume is can


def test_a_rewind_to_a_message_leaves_nothing_to_go_on_from() -> None:
    import dataclasses

    assert not after(dataclasses.replace(REVERT, prompt="again")).can_resume


def test_a_retry_counts_down_until_something_comes() -> None:
    state = after(TurnBegin("a"), StepRetry(1, 2, 3, 4.0, "overloaded", 529))
    assert state.retry_until == 1006.0
    assert after(TextPart("x"), state=state).retry_until == 0.0


def test_approvals_and_steers_come_and_go() -> None:
    asked = ApprovalRequest("r", "k", "Shell", "Run?", "ls")
    state = after(asked, SteerQueued("s", "more"))
    assert state.approvals == (asked,)
    assert [queued.text for queued in state.queued] == ["more"]
    state = after(ApprovalResolved("r", "once"), SteerTaken("s", "more"), state=state)
    assert (state.approvals, state.queued) == ((), ())
    assert after(TurnEnd("interrupted"), state=after(asked)).approvals == ()


def test_compacting() -> None:
    state = after(CompactionBegin(10, False))
    assert state.compacting
    assert not after(CompactionEnd(10, 2), state=state).compacting


def test_a_history_that_breaks_off_is_over() -> None:
    asked = ApprovalRequest("r", "k", "Shell", "Run?", "ls")
    state = settled(after(TurnBegin("a"), SteerQueued("s", "b"), asked), running=False)
    assert (state.running, state.can_resume, state.ready) == (False, True, True)
    assert (state.queued, state.approvals) == ((), ())
