"""Everything that can be done with a conversation, in any order: what is shown is what the files say.

What stands in the chat at full strength is what the model is sent; everything else is visibly not.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.quick_disk import memory_folder
from support.soul import until_end
from support.stored_lines import read_line, world_lines
from support.time_traveller import Answer, TimeTraveller, Views
from support.truth import (
    untrue_of_chat,
    untrue_of_curve,
    untrue_of_gauge,
    untrue_of_list,
    untrue_of_names,
    untrue_of_preview,
    untrue_of_request,
    untrue_of_rows,
    untrue_of_world_lines,
)

from kimi_tui.commands.session_details import line_facts, row_facts
from kimi_tui.llm.message import Message
from kimi_tui.session.errors import SessionError
from kimi_tui.soul.checkpoint_table import list_checkpoints
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.history import fits
from kimi_tui.soul.rebuilt_history import rebuild_history
from kimi_tui.soul.record import read_records
from kimi_tui.soul.rewind_values import END, Target

T = TypeVar("T")

STEPS = st.lists(
    st.builds(
        Answer,
        speaks=st.booleans(),
        thinks=st.booleans(),
        n_calls=st.sampled_from([1, 1, 2, 0]),
        dmails=st.lists(st.integers(0, 9), max_size=2).map(tuple),
        steer=st.sampled_from([False, False, False, True]),
        end=st.sampled_from(["", "", "", "", "error", "stop"]),
    ),
    max_size=3,
)
ANY = st.integers(0, 11)
"""Chooses among whatever there is, by counting round."""


class TimeTravels(RuleBasedStateMachine):
    """One session, driven at random."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.place = Path(tempfile.mkdtemp(dir=memory_folder()))
        self.on = TimeTraveller(self.place, self.look)
        self.untrue: list[str] = []
        self.do(self.on.open())

    def teardown(self) -> None:
        """Look at everything once more, and clean up."""
        try:
            self.look_everywhere()
        finally:
            self.end()

    def end(self) -> None:
        """Clean up."""
        self.do(self.on.soul.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.place)

    def do(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run something to its end; what cannot be done is passed over."""
        try:
            return self.loop.run_until_complete(work)
        except (SessionError, SoulError, KeyError):
            return None

    def look(self, sent: Sequence[Message]) -> None:
        """The model is asked."""
        messages = [message.stored() for message in sent]
        self.untrue += untrue_of_request(messages, read_line(self.on.folder))

    def points(self, n: int = 0) -> list[tuple[int, str]]:
        """Return the checkpoints of a line."""
        return [(one.id, one.uid) for one in read_line(self.on.folder, n).segments]

    def target(self, at: int, n: int = 0) -> Target | None:
        """Return a checkpoint of a line."""
        points = self.points(n) if n or (self.on.folder / "context.jsonl").exists() else []
        return Target(points[at % len(points)][0], n) if points else None

    def line(self, at: int) -> int:
        """Return a world line; 0 if there is none."""
        lines = world_lines(self.on.folder) if self.on.folder.exists() else []
        return lines[at % len(lines)] if lines else 0

    # -- what can be done

    @rule(steps=STEPS)
    def turn(self, steps: list[Answer]) -> None:
        self.on.model.answers.extend(steps)
        self.do(until_end(self.on.soul.run(self.on.words())))
        self.on.model.answers.clear()

    @rule()
    def go_on(self) -> None:
        self.do(until_end(self.on.soul.resume()))

    @rule(at=ANY)
    def rewind(self, at: int) -> None:
        if target := self.target(at):
            self.do(self.on.soul.travel.rewind(target))

    @rule(at=ANY, go_on=st.booleans())
    def dmail(self, at: int, go_on: bool) -> None:
        if target := self.target(at):
            self.do(self.on.soul.dmails.send(target, self.on.words()))
            if go_on:
                self.do(until_end(self.on.soul.resume()))

    @rule(line=ANY, at=st.none() | ANY)
    def jump(self, line: int, at: int | None) -> None:
        if n := self.line(line):
            target = None if at is None else self.target(at, n)
            self.do(self.on.soul.travel.rewind(Target(END if target is None else target.id, n)))

    @rule(times=st.integers(1, 2))
    def undo(self, times: int) -> None:
        for _ in range(times):
            self.do(self.on.soul.travel.undo())

    @rule(times=st.integers(1, 2))
    def redo(self, times: int) -> None:
        for _ in range(times):
            self.do(self.on.soul.travel.redo())

    @rule(start=st.none() | ANY, until=st.none() | ANY)
    def compact(self, start: int | None, until: int | None) -> None:
        first = None if start is None else self.target(start)
        end = None if until is None else self.target(until)
        self.do(self.on.soul.compact(start=first, until=end))

    @rule(at=ANY, number=st.integers(0, 2))
    def pin(self, at: int, number: int) -> None:
        points = self.points() if (self.on.folder / "context.jsonl").exists() else []
        if points:
            self.do(self.on.soul.marks.pin(points[at % len(points)][1], number))

    @rule()
    def clear(self) -> None:
        self.do(self.on.soul.travel.clear())

    @rule(at=st.none() | ANY)
    def fork(self, at: int | None) -> None:
        target = None if at is None else self.target(at)
        if copy := self.do(self.on.soul.travel.fork(target)):
            self.do(self.on.reopen(copy.session_id))

    @rule()
    def restart(self) -> None:
        self.do(self.on.reopen())

    # -- what must hold

    @invariant()
    def what_is_shown_is_true(self) -> None:
        if not (self.on.folder / "context.jsonl").exists():
            return
        self.do(self.on.follow())
        self.check("asked", self.untrue)
        self.check("live", self.of_views(self.on.views, has_record=self.has_record()))
        self.check("gauge", untrue_of_gauge(self.on.views, self.on.soul.used))

    @rule()
    def look_everywhere(self) -> None:
        if not (self.on.folder / "context.jsonl").exists():
            return
        restarted = Views(self.do(self.on.soul.history()) or ())
        without_record = Views(rebuild_history(self.on.session, []))
        self.check("restarted", self.of_views(restarted, has_record=self.has_record()))
        self.check("without a record", self.of_views(without_record, has_record=False))
        self.check("read", self.of_reading())
        self.check("preview", self.of_previews())
        self.check("listed", self.of_lists())

    def has_record(self) -> bool:
        """Return whether the record leads to what is live; one that was cut for a fork does not."""
        self.do(self.on.soul.flush())
        return fits(read_records(self.on.session), self.on.session)

    def check(self, where: str, untrue: Iterable[str]) -> None:
        """Nothing of it may be untrue."""
        told = list(untrue)
        assert not told, "\n".join([where, *told])

    def of_views(self, views: Views, *, has_record: bool) -> Iterable[str]:
        """Yield the faults of views that show the present session.

        Without a record the views are made from the messages, which lack the size of the context at every step.
        """
        line = read_line(self.on.folder)
        yield from untrue_of_chat(views.chat, line)
        yield from untrue_of_rows(views.timeline, line)
        yield from untrue_of_world_lines(views.timeline, self.on.folder)
        if has_record:
            yield from untrue_of_curve(views.timeline, self.on.folder)
            yield from untrue_of_names(views.timeline, self.on.folder)

    def of_previews(self) -> Iterable[str]:
        """Yield the faults of the previews of rewinds."""
        self.do(self.on.follow())
        line = read_line(self.on.folder)
        for n, _ in self.points():
            preview = self.do(self.on.soul.travel.preview(Target(n)))
            if preview is not None:
                yield from untrue_of_preview(preview, line, self.on.views.timeline)

    def of_reading(self) -> Iterable[str]:
        """Yield the faults of the views in which world lines are read."""
        for n in world_lines(self.on.folder):
            views = Views(self.do(self.on.soul.lines.read(n)) or ())
            line = read_line(self.on.folder, n)
            yield from untrue_of_chat(views.chat, line)
            yield from untrue_of_rows(views.timeline, line)

    def of_lists(self) -> Iterable[str]:
        """Yield the faults of the lists on the command line."""
        session, lines = self.on.session, world_lines(self.on.folder)
        for n in [0, *lines]:
            yield from untrue_of_list(
                [row_facts(row) for row in list_checkpoints(session, n)],
                read_line(self.on.folder, n),
            )
        listed = session.world_lines.list(session.context.world_line)
        facts = {one["n"]: one["checkpoints"] for one in map(line_facts, listed)}
        stored = {n: len(read_line(self.on.folder, n).segments) for n in lines}
        if facts != stored:
            yield f"listed are {facts} where the files have {stored}"


def test_what_compactions_keep_of_a_checkpoint() -> None:
    letter = Answer(speaks=False, n_calls=1, dmails=(0,))
    apart = TimeTravels()
    # The messages that a D-Mail carried begin a turn.
    apart.turn([letter])
    apart.go_on()
    apart.pin(0, 0)
    apart.compact(None, None)
    apart.what_is_shown_is_true()
    apart.teardown()
    # The same happens after a part of the line, which is read when it was left.
    left = TimeTravels()
    left.turn([letter])
    left.pin(0, 0)
    left.compact(0, None)
    left.dmail(1, go_on=False)
    left.teardown()
    # A message that had waited comes before the one with which a turn begins.
    waited = TimeTravels()
    waited.turn([Answer(speaks=False, n_calls=1, steer=True, end="error")])
    waited.turn([])
    waited.compact(None, 1)
    waited.clear()
    waited.teardown()


@pytest.mark.exhaustive
def test_what_forks_and_pins_make_of_a_history() -> None:
    letter = Answer(speaks=False, n_calls=1, dmails=(0,))
    # A line that was left later than where the fork begins; then nothing of the old line is left.
    later = TimeTravels()
    later.turn([letter])
    later.turn([])
    later.rewind(2)
    later.turn([])
    later.fork(1)
    later.dmail(0, go_on=False)
    later.teardown()
    # Before a summary nothing stands that it replaced.
    bare = TimeTravels()
    bare.turn([letter])
    bare.compact(None, None)
    bare.fork(11)
    bare.fork(4)
    bare.what_is_shown_is_true()
    bare.teardown()
    # In the middle of what a compaction kept.
    kept = TimeTravels()
    kept.turn([])
    kept.turn([])
    kept.compact(None, None)
    kept.go_on()
    kept.fork(2)
    kept.jump(0, None)
    kept.teardown()
    # A word of the program cannot be pinned: nobody sees it.
    note = TimeTravels()
    note.go_on()
    note.go_on()
    note.pin(1, 0)
    note.turn([Answer(speaks=False, n_calls=0, dmails=(1,))])
    note.what_is_shown_is_true()
    note.teardown()
    # A D-Mail brings a pinned step, an older D-Mail and a summary along; then a rewind goes to before it.
    much = TimeTravels()
    much.turn([Answer(n_calls=2)])
    much.dmail(1, go_on=True)
    much.compact(2, None)
    much.turn([Answer(n_calls=1), Answer(n_calls=1)])
    for at in range(6):
        much.pin(at, 0)
    much.dmail(1, go_on=True)
    much.what_is_shown_is_true()
    much.rewind(1)
    much.teardown()


@pytest.mark.exhaustive
def test_what_was_cut_is_not_what_was_left_last() -> None:
    letter = Answer(speaks=False, n_calls=1, dmails=(0,))
    # A pinned summary comes along with a D-Mail, after the user's messages before it.
    brought = TimeTravels()
    brought.turn([])
    brought.turn([])
    brought.compact(1, 2)
    brought.pin(1, 0)
    brought.turn([Answer(speaks=False, dmails=(1, 5))])
    brought.what_is_shown_is_true()
    brought.teardown()
    # Steps without messages are kept like others: one failed, one was stopped.
    bare = TimeTravels()
    bare.turn([Answer(n_calls=1, end="error")])
    bare.turn([Answer(speaks=False, n_calls=1, end="stop")])
    bare.turn([])
    bare.compact(0, 1)
    bare.teardown()
    # The stopped step went with those that a D-Mail removed.
    stopped = TimeTravels()
    stopped.turn([])
    stopped.turn([Answer(speaks=False, thinks=True, n_calls=1, end="stop")])
    stopped.dmail(1, go_on=False)
    stopped.turn([letter])
    stopped.teardown()
    # A fork ends in the middle of a line that it has, and is cut there.
    forked = TimeTravels()
    forked.turn([])
    forked.turn([Answer(dmails=(1,))])
    forked.fork(1)
    forked.dmail(0, go_on=True)
    forked.rewind(1)
    forked.teardown()
    # A D-Mail brings messages along; only an older D-Mail and the later messages are kept of them.
    older = TimeTravels()
    older.turn([Answer(speaks=False, dmails=(6,))])
    older.turn([])
    older.pin(0, 1)
    older.turn([])
    older.dmail(1, go_on=False)
    older.pin(1, 1)
    older.turn([Answer(n_calls=1, dmails=(0,))])
    older.compact(None, 1)
    older.teardown()
    # The same with D-Mails alone: the line is not named by the one that was summarised.
    named = TimeTravels()
    named.turn([])
    named.dmail(1, go_on=False)
    named.pin(1, 0)
    named.dmail(1, go_on=False)
    named.turn([])
    named.compact(1, 2)
    named.rewind(1)
    named.teardown()
    # Undone twice, a line is live again that is older than the one that was left last.
    undone = TimeTravels()
    undone.turn([])
    undone.turn([Answer(n_calls=1), Answer(speaks=False, n_calls=1)])
    undone.rewind(5)
    undone.turn([Answer(speaks=False, n_calls=1, dmails=(1, 0))])
    undone.fork(0)
    undone.undo(2)
    undone.dmail(1, go_on=True)
    undone.rewind(11)
    undone.teardown()


class TestTimeTravels(TimeTravels.TestCase):
    settings = settings(
        max_examples=6,
        stateful_step_count=15,
        deadline=None,
        derandomize=True,
        database=None,
        # A walk is short enough to be read; making it shorter takes minutes.
        phases=[Phase.generate],
    )


@pytest.mark.exhaustive
@pytest.mark.timeout(1_800)
class TestLongTimeTravels(TimeTravels.TestCase):
    settings = settings(
        max_examples=400,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=tuple(HealthCheck),  # pyright: ignore[reportArgumentType]
    )
