"""The figures of the gauge that result from the events of a session."""

from __future__ import annotations

from support.story import until_folding

from kimi_tui.projection.tokens import CheckpointTokens, FreedTokens, GaugeModel
from kimi_tui.wire.events import (
    CheckpointCreated,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    StatusUpdate,
    StepRetry,
    TextPart,
    ThinkPart,
    ToolCall,
    ToolCallPart,
)


def test_it_falls_at_once_with_a_revert() -> None:
    model = GaugeModel()
    for record in until_folding().records:
        model.apply(record)
    before = model.status
    event = ContextReverted("dmail", 8, "u", 12, 3, 5, 4, before.used, 31_400)
    assert model.apply(EventRecord(1, 0.0, event))
    assert model.status.used == 31_400
    assert model.status.estimated
    freed = FreedTokens("dmail", before.used, 31_400, model.freed.serial, estimated=True)
    assert model.freed == freed
    assert model.status.system + model.status.talk + model.status.tools == 31_400
    assert not model.apply(EventRecord(2, 0.0, TextPart("x")))


def test_what_was_freed_is_known_by_the_next_figure_of_the_server() -> None:
    model, story = GaugeModel(), until_folding()

    def left() -> tuple[int, bool]:
        for record in story.records:
            model.apply(record)
        story.records.clear()
        return model.freed.after, model.freed.estimated

    left()
    story.dmail(8)
    assert left() == (31_600, True)
    story.used = 32_000
    story.step()
    assert left() == (32_000, False)
    story.step()
    assert left() == (32_000, False)
    # Nothing of another line tells what was left, and there nothing was taken away.
    story.dmail(9)
    left()
    story.jump(3)
    serial = model.freed.serial
    assert (left(), model.freed) == ((0, False), FreedTokens(serial=serial + 1))


def test_what_a_compaction_left_is_an_estimate_until_the_next_answer() -> None:
    """Also where the next request holds more than that, as a message of the user."""
    story = until_folding()
    story.compact()
    figures = CheckpointTokens()
    for record in story.records:
        figures.apply(record.event)
    *_, uid = [
        record.event.uid
        for record in story.records
        if isinstance(record.event, CheckpointCreated) and record.event.kind == "compaction"
    ]

    def is_estimate() -> bool:
        left = figures.left_by(uid)
        assert left is not None
        return not left.measured

    assert is_estimate()
    story.records.clear()
    story.turn("And now?")
    story.step()
    for record in story.records:
        figures.apply(record.event)
    assert not is_estimate()


def test_a_failed_compaction_changes_nothing() -> None:
    model = GaugeModel()
    for record in until_folding().records:
        model.apply(record)
    before = (model.status, model.freed)
    assert not model.apply(EventRecord(1, 0.0, CompactionEnd(9, 0, error="The model said no.")))
    assert (model.status, model.freed) == before


def test_it_moves_while_an_answer_streams() -> None:
    model, told = GaugeModel(), StatusUpdate(used=1_000, limit=2_048, trigger=1_700, talk=400)

    def apply(event: Event) -> bool:
        return model.apply(EventRecord(1, 0.0, event))

    apply(told)
    assert not apply(TextPart(""))
    assert model.status == told
    assert apply(ThinkPart("word " * 80))
    used = model.status.used
    assert 1_080 < used < 1_120
    assert model.status == told._replace(used=used, talk=used - 600, estimated=True)
    apply(ToolCall("k", "WriteFile", "x" * 400))
    apply(ToolCallPart("k", "世界" * 100))
    assert 1_320 < model.status.used < 1_380
    # A failed attempt leaves nothing; the figure of the server replaces the estimate.
    assert apply(StepRetry(1, 2, 3, 0.1, "busy"))
    assert model.status == told
    apply(TextPart("word " * 80))
    assert model.status.used == used
    final = told._replace(used=1_210)
    apply(final)
    assert model.status == final
    # The estimate of an answer is corrected like all estimates of the session.
    apply(final._replace(correction=2.0))
    apply(TextPart("word " * 80))
    assert model.status.used - final.used == 2 * (used - told.used)
