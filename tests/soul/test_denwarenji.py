"""The mailbox takes what can be delivered and says no with a reason to the rest."""

from __future__ import annotations

import pytest
from support.soul import Ear

from kimi_tui.soul.denwarenji import DenwaRenji, DMail
from kimi_tui.wire.events import Notice
from kimi_tui.wire.queue import Wire


def mailbox(n: int, **more: int) -> DenwaRenji:
    box = DenwaRenji(Wire())
    box.set_n_checkpoints(n, **more)
    return box


def test_mails_wait_in_order_and_are_fetched_once() -> None:
    box = mailbox(4)
    box.send_dmail("b", 3)
    box.send_dmail("a", 0, restore_files=True)
    assert box.fetch_pending() == (DMail("b", 3), DMail("a", 0, True))
    assert box.fetch_pending() == ()


@pytest.mark.parametrize(
    ("message", "target", "words"),
    [("x", 4, "no checkpoint 4"), ("x", -1, "0 or more"), (" \n", 1, "empty")],
)
def test_what_cannot_be_delivered(message: str, target: int, words: str) -> None:
    box = mailbox(4)
    with pytest.raises(ValueError, match=words):
        box.send_dmail(message, target)
    assert box.fetch_pending() == ()


def test_a_summary_is_no_target() -> None:
    box = mailbox(3, first_target=1)
    with pytest.raises(ValueError, match="summary"):
        box.send_dmail("x", 0)
    box.send_dmail("x", 1)


def test_five_to_one_checkpoint_in_one_turn_are_enough() -> None:
    wire = Wire()
    ear = Ear(wire)
    box = DenwaRenji(wire, 5)
    box.set_n_checkpoints(9)
    box.begin_turn()
    for _ in range(5):
        box.send_dmail("x", 2)
        box.fetch_pending()
        box.delivered(2)
    for _ in range(2):
        with pytest.raises(ValueError, match="Stop sending"):
            box.send_dmail("x", 2)
    (notice,) = ear.of(Notice)
    assert "#2" in notice.text
    box.send_dmail("x", 3)
    box.begin_turn()
    assert box.fetch_pending() == ()
    box.send_dmail("x", 2)
