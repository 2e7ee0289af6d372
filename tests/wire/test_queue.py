"""A subscriber that drains is woken when there is something new to draw. A notice without listeners is delivered later; an
unsolved one is delivered to every subscriber.
"""

from __future__ import annotations

from kimi_tui.wire.events import Event, Notice, StatusUpdate, TextPart, TurnEnd
from kimi_tui.wire.queue import Subscription, Wire

FULL = Notice("error", "No space.", topic="disk")
SAVED = Notice("info", "Saved again.", topic="disk", solved=True)
REMARK = Notice("warning", "Look.")


def heard(subscription: Subscription) -> list[Event]:
    return [record.event for record in subscription.drain()]


def test_what_was_said_before_anybody_listened_is_said_to_the_first() -> None:
    wire = Wire()
    recorder = wire.subscribe(records=True)
    wire.publish(REMARK)
    wire.publish(FULL)
    woken: list[bool] = []
    first = wire.subscribe(wake=lambda _: woken.append(True))
    assert heard(first) == [REMARK, FULL]
    assert woken == [True]
    assert heard(wire.subscribe()) == [FULL]
    assert heard(recorder) == [REMARK, FULL]


def test_a_standing_notice_ends_when_it_is_solved() -> None:
    wire = Wire()
    first = wire.subscribe()
    wire.publish(FULL)
    again = Notice("error", "Read-only.", topic="disk")
    wire.publish(again)
    assert heard(first) == [FULL, again]
    assert heard(wire.subscribe()) == [again]
    wire.publish(SAVED)
    assert heard(wire.subscribe()) == []


def test_a_passing_notice_is_not_repeated_to_those_who_come_later() -> None:
    wire = Wire()
    first = wire.subscribe()
    wire.publish(REMARK)
    assert heard(first) == [REMARK]
    second = wire.subscribe()
    assert heard(second) == []
    for one in (first, first, second):
        wire.unsubscribe(one)
    wire.publish(REMARK)
    assert heard(wire.subscribe()) == [REMARK]


def test_after_each_drain_the_first_event_and_the_first_that_is_no_figure_wake() -> None:
    wire, woken = Wire(), list[Event]()
    subscription = wire.subscribe(woken.append)
    figures, text, end = StatusUpdate(1, 2, 3), TextPart("a"), TurnEnd("done")
    for _ in range(2):
        for event in (figures, figures, text, text, figures, REMARK, end):
            wire.publish(event)
        assert woken == [figures, text, end]
        woken.clear()
        subscription.drain()
    wire.publish(text)
    wire.publish(REMARK)
    assert woken == [text]
