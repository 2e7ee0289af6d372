"""Pins and bookmarks: pinned messages survive what drops others, and marks follow their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.chat_server import call, calls, say
from support.soul import Stage, stage

from kimi_tui.llm.request import ANSWERED, SUMMARY_READ
from kimi_tui.prompts import COMPACTION_START
from kimi_tui.session.metadata import Marks
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.bookmarks import UserMarks
from kimi_tui.soul.rewind_values import Target
from kimi_tui.wire.queue import Wire


class Unread(Sequence[Checkpoint]):
    """Checkpoints that nobody may look through."""

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError

    def __len__(self) -> int:
        return 20_000


def test_where_nothing_is_marked_no_checkpoint_is_looked_at() -> None:
    session: Any = SimpleNamespace(marks=Marks(), context=SimpleNamespace(checkpoints=Unread()))
    marks = UserMarks(session, Wire())
    assert not marks.bookmarks
    assert not marks.pins


async def turns(on: Stage) -> None:
    (on.work / "a.txt").write_text("hello\n")
    on.server.script(
        say("one"),
        calls(
            [("ReadFile", {"path": "a.txt"}), ("Glob", {"pattern": "*"})],
            text="I look.",
        ),
        say("two"),
        say("three"),
        say("four"),
    )
    for text in ("first", "second", "third", "fourth"):
        await on.soul.run(text)


def uid(on: Stage, number: int) -> str:
    return on.session.context.index.checkpoint(number).uid


async def test_pinned_messages_survive_compactions(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await turns(on)
        await on.soul.marks.pin(uid(on, 0), 0)
        # The result of the second call; neither its call nor the first result can be parted from it.
        await on.soul.marks.pin(uid(on, 3), 2)
        await on.soul.marks.pin(uid(on, 1), 0)
        await on.soul.marks.pin(uid(on, 1), 0, pinned=False)
        on.server.script(say("SUMMARY"), say("five"), say("AGAIN"), say("six"), say("LAST"))
        await on.soul.compact()
        await on.soul.run("fifth")
        sent = on.sent()
        # A pinned message stays a message of its own, so that the model can tell it from the summary.
        assert [text for _, text in sent[:4]] == [
            f"{COMPACTION_START}\n\nSUMMARY",
            SUMMARY_READ,
            "first",
            'I look.\nReadFile({"path": "a.txt"})\nGlob({"pattern": "*"})',
        ]
        assert [role for role, _ in sent[4:7]] == ["tool", "tool", "user"]
        assert "hello" in sent[4][1]
        assert "one" not in [text for _, text in sent]
        # Its checkpoint came along, and with it whatever names it.
        kinds = [(row.id, row.kind) for row in await on.checkpoints()]
        assert kinds[:4] == [(0, "compaction"), (1, "user"), (2, "step"), (3, "user")]
        # The next compactions, also a partial one, know the pins by their new places.
        await on.soul.compact()
        await on.soul.run("sixth")
        again = on.sent()
        assert again[0][1] == f"{COMPACTION_START}\n\nAGAIN"
        assert again[1:6] == sent[1:6]
        pinned = [(m.kind, m.checkpoint_id, m.number) for m in await on.messages() if m.pinned]
        assert pinned == [("user", 1, 0), ("tool", 2, 2)]
        await on.reopen()
        shown = [(m.kind, m.checkpoint_id, m.number) for m in await on.messages() if m.pinned]
        assert shown == pinned


@pytest.mark.exhaustive
async def test_pinned_messages_survive_partial_compactions(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await turns(on)
        await on.soul.marks.pin(uid(on, 1))
        await on.soul.marks.pin(uid(on, 5))
        on.server.script(say("SUMMARY"), say("SECOND"), say("five"))
        await on.soul.compact(until=Target(2))
        pinned = [(m.checkpoint_id, m.text) for m in await on.messages() if m.pinned]
        assert pinned == [(1, "one"), (5, "third")]
        await on.soul.compact(start=Target(5))
        await on.soul.run("on")
        texts = [text for _, text in on.sent()]
        assert texts[1] == "one"
        # The question is neither part of the summary nor asked again, since its answer is in the summary.
        assert texts[-5:] == [
            f"{COMPACTION_START}\n\nSECOND",
            SUMMARY_READ,
            "third",
            ANSWERED,
            "on",
        ]
        await on.soul.travel.undo()
        await on.soul.travel.undo()
        pinned = [(m.checkpoint_id, m.text) for m in await on.messages() if m.pinned]
        assert pinned == [(1, "one"), (5, "third")]


async def test_pinned_messages_survive_dmails(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await turns(on)
        await on.soul.marks.pin(uid(on, 3), 0)
        on.server.script(
            calls([("SendDMail", {"message": "go on", "checkpoint_id": 1})]), say("five")
        )
        await on.soul.run("fifth")
        sent = on.sent()
        assert sent[0] == ("user", "first\n\nsecond")
        assert sent[1][1].startswith("I look.")
        assert [role for role, _ in sent[2:]] == ["tool", "tool", "user"]
        assert "hello" in sent[2][1]
        assert "third\n\nfourth\n\nfifth" in sent[4][1]
        assert "go on" in sent[4][1]
        assert "pinned come before" in sent[4][1]
        # The same happens again: the pin is after the D-Mail's checkpoint now.
        on.server.script(call("SendDMail", {"message": "once more", "checkpoint_id": 1}), say("x"))
        await on.soul.run("sixth")
        assert on.sent()[:4] == sent[:4]
        # A rewind is the person's own.
        await on.soul.travel.rewind(Target(1))
        assert not [m for m in await on.messages() if m.pinned]


@pytest.mark.exhaustive
async def test_bookmarks_follow_their_checkpoints(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await turns(on)
        old = uid(on, 5)
        await on.soul.marks.bookmark(old, " before \n the third ")
        on.server.script(say("ONE"), say("TWO"))
        await on.soul.compact(until=Target(2))
        await on.soul.compact(until=Target(3))
        now = on.session.context.find_uid(old)
        assert now is not None
        assert now.id == 2
        assert on.soul.marks.bookmarks[now.uid] == "before the third"
        rows = {row.id: row.bookmark for row in await on.checkpoints()}
        assert rows == {0: "", 1: "", 2: "before the third", 3: "", 4: "", 5: ""} | {
            n: "" for n in rows if n > 5
        }
        await on.soul.marks.bookmark(now.uid, "new name")
        await on.reopen()
        assert on.soul.marks.bookmarks[now.uid] == on.soul.marks.bookmarks[old] == "new name"
        await on.soul.marks.bookmark(now.uid, "")
        assert not on.soul.marks.bookmarks
