"""Everything that can be done with a session, in any order, against a simple model of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.quick_disk import memory_folder

from kimi_tui.llm.message import user_message
from kimi_tui.session.errors import AlreadyThere, NothingToUndo
from kimi_tui.session.rotation import stored_world_lines, world_line_path
from kimi_tui.session.schema import NewCheckpoint, TokenCount
from kimi_tui.session.session import Session
from kimi_tui.session.undo import jump, redo, undo

T = TypeVar("T")

# A line is a tuple of what was written: ("say", text), ("point", id, serial), ("usage", n). The serial stands for the uid.
Line = tuple[tuple[object, ...], ...]


@dataclass
class Model:
    """The session as it ought to be."""

    live: Line = ()
    stored: dict[int, Line] = field(default_factory=dict[int, Line])
    largest: int = 0
    undo: list[tuple[int, Line]] = field(default_factory=list[tuple[int, Line]])
    redo: list[tuple[int, Line]] = field(default_factory=list[tuple[int, Line]])
    serial: int = 0

    def next_id(self) -> int:
        """Return the id of the next checkpoint."""
        return sum(1 for entry in self.live if entry[0] == "point")

    def add(self, *entry: object) -> None:
        """Write something."""
        self.live = (*self.live, entry)
        self.redo.clear()

    def point(self) -> tuple[object, ...]:
        """Return a new checkpoint's entry."""
        self.serial += 1
        return ("point", self.next_id(), self.serial)

    def leave(self) -> Line:
        """Keep the live line, unless a stored one begins with it."""
        left = self.live
        if not any(line[: len(left)] == left for line in self.stored.values()):
            self.largest += 1
            self.stored[self.largest] = left
        return left

    def change(self, line: Line) -> None:
        """Carry an operation out."""
        self.undo.append((0, self.leave()))
        self.redo.clear()
        self.live = line

    def before(self, checkpoint_id: int, line: Line | None = None) -> Line:
        """What precedes a checkpoint."""
        entries = self.live if line is None else line
        place = next(
            place for place, entry in enumerate(entries) if entry[:2] == ("point", checkpoint_id)
        )
        return entries[:place]


class Sessions(RuleBasedStateMachine):
    """One session driven at random."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.place = Path(tempfile.mkdtemp(dir=memory_folder()))
        self.model = Model()
        self.uids: dict[int, str] = {}
        self.session = Session(self.place / "bucket" / "0", Path("/w"))
        self.forks = 0

    def teardown(self) -> None:
        """Clean up."""
        self.do(self.session.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.place)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something to its end."""
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.do(self.session.open())

    def name_points(self) -> None:
        """Remember which uid each new checkpoint of the model got."""
        mine = [entry for entry in self.model.live if entry[0] == "point"]
        for entry, point in zip(mine, self.session.context.checkpoints, strict=True):
            serial = entry[2]
            assert isinstance(serial, int)
            assert self.uids.setdefault(serial, point.uid) == point.uid

    @rule(text=st.sampled_from(["a", "b", "\u2028", "longer text\nof two lines"]))
    def say(self, text: str) -> None:
        self.do(self.session.context.append([user_message(text)]))
        self.model.add("say", text)

    @rule()
    def checkpoint(self) -> None:
        entry = self.model.point()
        point = self.do(self.session.context.checkpoint(False))
        assert point.id == entry[1]
        self.model.add(*entry)

    @rule(tokens=st.integers(8, 10_000))
    def usage(self, tokens: int) -> None:
        self.do(self.session.context.append([TokenCount(tokens, estimated=False)]))
        self.model.add("usage", tokens)

    @rule()
    def sync(self) -> None:
        assert self.do(self.session.sync())

    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        if not self.model.next_id():
            return
        target = data.draw(st.integers(0, self.model.next_id() - 1))
        self.do(self.session.context.revert_to(target, reason="rewind"))
        self.model.change(self.model.before(target))

    @rule(data=st.data())
    def dmail(self, data: st.DataObject) -> None:
        if not self.model.next_id():
            return
        target = data.draw(st.integers(0, self.model.next_id() - 1))
        then = [NewCheckpoint(), user_message("dmail")]
        self.do(self.session.context.revert_to(target, reason="dmail", text="l", then=then))
        self.model.change(self.model.before(target))
        self.model.live = (*self.model.live, self.model.point())
        self.model.live = (*self.model.live, ("say", "dmail"))

    @rule()
    def clear(self) -> None:
        self.do(self.session.context.clear(reason="clear"))
        self.model.change(())

    @rule()
    def compact(self) -> None:
        then = [NewCheckpoint(), user_message("summary"), TokenCount(7)]
        self.do(self.session.context.clear(reason="compaction", text="s", then=then))
        self.model.change(())
        self.model.live = (self.model.point(), ("say", "summary"), ("usage", 7))

    @precondition(lambda self: self.model.stored)
    @rule(data=st.data())
    def jump(self, data: st.DataObject) -> None:
        n = data.draw(st.sampled_from(sorted(self.model.stored)))
        line = self.model.stored[n]
        points = [entry[1] for entry in line if entry[0] == "point"]
        target = data.draw(st.sampled_from([None, *points]))
        assert target is None or isinstance(target, int)
        goal = line if target is None else self.model.before(target, line)
        if goal == self.model.live:
            with pytest.raises(AlreadyThere):
                self.do(jump(self.session.context, n, target))
            return
        self.do(jump(self.session.context, n, target))
        self.model.change(goal)

    @rule()
    def undo(self) -> None:
        if not self.model.undo:
            with pytest.raises(NothingToUndo):
                self.do(undo(self.session.context))
            return
        self.do(undo(self.session.context))
        _, line = self.model.undo.pop()
        self.model.redo.append((0, self.model.leave()))
        self.model.live = line

    @rule()
    def redo(self) -> None:
        if not self.model.redo:
            with pytest.raises(NothingToUndo):
                self.do(redo(self.session.context))
            return
        self.do(redo(self.session.context))
        _, line = self.model.redo.pop()
        self.model.undo.append((0, self.model.leave()))
        self.model.live = line

    @rule()
    def reload(self) -> None:
        self.do(self.session.aclose())
        self.open_anew()

    @rule(torn=st.binary(max_size=12).filter(lambda data: b"\n" not in data))
    def crash(self, torn: bytes) -> None:
        # The process is gone without a word, perhaps in the middle of a record.
        self.session.lock.release()
        self.do(self.session.context.sync())
        with (self.session.dir / "context.jsonl").open("ab") as file:
            file.write(torn)
        self.open_anew()

    @rule()
    def fork(self) -> None:
        copy = self.do(self.session.fork())
        self.do(self.session.aclose())
        self.session = copy
        self.do(copy.open())

    def open_anew(self) -> None:
        """Open the same folder in a new object."""
        folder = self.session.dir
        if not folder.exists():
            # Nothing was ever said in it.
            assert not [entry for entry in self.model.live if entry[0] == "say"]
            assert not self.model.stored
            self.model.live = ()
        self.session = Session(folder, Path("/w"))
        self.do(self.session.open())

    @invariant()
    def agrees(self) -> None:
        context = self.session.context
        model = self.model
        if not self.session.dir.exists():
            return
        assert [message.text for message in context.messages] == [
            entry[1] for entry in model.live if entry[0] == "say"
        ]
        assert [point.id for point in context.checkpoints] == [
            entry[1] for entry in model.live if entry[0] == "point"
        ]
        assert context.n_checkpoints == model.next_id()
        self.name_points()
        usages = [place for place, entry in enumerate(model.live) if entry[0] == "usage"]
        after = model.live[usages[-1] :] if usages else model.live
        if not any(entry[0] == "say" for entry in after):
            expected = model.live[usages[-1]][1] if usages else 0
            assert context.token_count == expected
        # The files say the same as the memory, and every offset is the beginning of its record.
        data = (self.session.dir / "context.jsonl").read_bytes()
        assert len(data) == context.size_bytes
        for point in context.checkpoints:
            record = json.loads(data[point.offset :].split(b"\n", 1)[0])
            assert (record["id"], record["uid"]) == (point.id, point.uid)
        assert sorted(stored_world_lines(self.session.dir)) == sorted(model.stored)
        for n, line in model.stored.items():
            stored = [json.loads(row) for row in world_line_path(self.session.dir, n).open("rb")]
            assert [record.get("content") for record in stored if record["role"] == "user"] == [
                entry[1] for entry in line if entry[0] == "say"
            ]


Sessions.TestCase.settings = settings(stateful_step_count=40)
TestSessions = Sessions.TestCase
