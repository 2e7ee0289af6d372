"""The mailbox takes what can be delivered and says no with a reason to the rest."""

from __future__ import annotations

import pytest
from support.soul import Ear

from kimi_tui.soul.denwarenji import DenwaRenji, DMail
from kimi_tui.wire.events import Notice
from kimi_tui.wire.queue import Wire

ALL = range(9)


def test_mails_wait_in_order_and_are_fetched_once() -> None:
    box = DenwaRenji(Wire())
    box.send_dmail(DMail("b", 3), ALL)
    box.send_dmail(DMail("a", 0, True), ALL)
    assert box.fetch_pending() == (DMail("b", 3), DMail("a", 0, True))
    assert box.fetch_pending() == ()


@pytest.mark.parametrize(
    ("message", "target", "words"),
    [("x", 4, "no checkpoint 4"), ("x", -1, "0 or more"), (" \n", 1, "empty")],
)
def test_what_cannot_be_delivered(message: str, target: int, words: str) -> None:
    box = DenwaRenji(Wire())
    with pytest.raises(ValueError, match=words):
        box.send_dmail(DMail(message, target), range(4))
    assert box.fetch_pending() == ()


def test_a_summary_is_no_target() -> None:
    box = DenwaRenji(Wire())
    with pytest.raises(ValueError, match="summary"):
        box.send_dmail(DMail("x", 0), range(1, 3))
    box.send_dmail(DMail("x", 1), range(1, 3))


def test_five_to_one_checkpoint_in_one_turn_are_enough() -> None:
    wire = Wire()
    ear = Ear(wire)
    box = DenwaRenji(wire, 5)
    box.begin_turn()
    for _ in range(5):
        box.send_dmail(DMail("x", 2), ALL)
        box.fetch_pending()
        box.delivered(2)
    for _ in range(2):
        with pytest.raises(ValueError, match="Stop sending"):
            box.send_dmail(DMail("x", 2), ALL)
    (notice,) = ear.of(Notice)
    assert "#2" in notice.text
    box.send_dmail(DMail("x", 3), ALL)
    box.begin_turn()
    assert box.fetch_pending() == ()
    box.send_dmail(DMail("x", 2), ALL)
