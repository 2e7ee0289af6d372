"""Restoring: the tree equals the snapshot in what it tracks, and nothing else is ever lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi_tui.workspace.coverage import Surroundings
from kimi_tui.workspace.entries import Limits
from kimi_tui.workspace.restore import Restored
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.tracker import Tracker


class Place:
    """A work folder and the tracker that follows it, as one process after another would have it."""

    def __init__(self, top: Path, limits: Limits | None = None) -> None:
        self.top = top
        self.limits = limits or Limits()
        self.root = top / "work"
        self.root.mkdir()
        self.uid = 0
        self.tracker = self.started()

    def started(self) -> Tracker:
        return Tracker(self.root, self.top / "files", self.limits, Surroundings())

    def begin(self) -> str:
        assert self.tracker.first_look()
        return self.mark()

    def mark(self) -> str:
        self.uid += 1
        self.tracker.mark(f"c{self.uid}")
        return f"c{self.uid}"

    def write(self, name: str, content: str | None) -> None:
        path = self.root / name
        if content is None:
            with contextlib.suppress(OSError):
                path.unlink()
            return
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def agent(self, *edits: tuple[str, str | None]) -> None:
        self.tracker.look("other")
        for name, content in edits:
            self.write(name, content)
        self.tracker.look("agent")

    def other(self, *edits: tuple[str, str | None]) -> None:
        for name, content in edits:
            self.write(name, content)

    def go_to(self, uid: str, chosen: set[str] | None = None) -> Restored:
        prepared = self.tracker.prepare(self.tracker.plan(uid), chosen)
        if prepared is None:
            return Restored()
        self.last = prepared
        return self.tracker.carry_out(prepared)

    def undo(self) -> Restored:
        intent = self.last.intent
        plan = self.tracker.plan_back(intent.before, intent.after, intent.paths)
        prepared = self.tracker.prepare(plan)
        if prepared is None:
            return Restored()
        self.last = prepared
        return self.tracker.carry_out(prepared)

    def planned(self, uid: str) -> dict[str, str]:
        return {one.path: one.change for one in self.tracker.plan(uid).changes}

    def files(self) -> dict[str, str]:
        return {
            path.relative_to(self.root).as_posix(): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_edits_creations_and_deletions_go_back_and_forth(place: Place) -> None:
    place.other(("edited", "before"), ("deleted", "still here"))
    start = place.begin()
    was = place.files()
    place.agent(("edited", "after"), ("deleted", None), ("new/deep/file", "new"))
    then = place.files()
    assert place.planned(start) == {
        "deleted": "create",
        "edited": "restore",
        "new/deep/file": "delete",
    }
    outcome = place.go_to(start)
    assert not outcome.failures
    assert (outcome.restored, outcome.deleted) == (("deleted", "edited"), ("new/deep/file",))
    assert place.files() == was
    assert not (place.root / "new").exists()
    assert not place.undo().failures
    assert place.files() == then
    assert not place.undo().failures
    assert place.files() == was


def test_what_someone_else_changed_is_left_alone_unless_chosen(place: Place) -> None:
    place.other(("mine", "v1"), ("yours", "v1"))
    start = place.begin()
    place.agent(("yours", "v2"))
    place.other(("mine", "by hand"))
    (one, _) = place.tracker.plan(start).changes
    assert (one.path, one.change, one.would) == ("mine", "conflict", "restore")
    place.go_to(start)
    assert place.last.left == ("mine",)
    assert place.files() == {"mine": "by hand", "yours": "v1"}
    place.go_to(start, {"mine"})
    assert place.files() == {"mine": "v1", "yours": "v1"}


def test_only_what_was_chosen_is_touched(place: Place) -> None:
    place.other(("a", "1"), ("b", "1"))
    start = place.begin()
    place.agent(("a", "2"), ("b", "2"))
    place.go_to(start, {"b"})
    assert place.files() == {"a": "2", "b": "1"}


def test_what_changed_before_the_agent_did_belongs_to_the_checkpoint(place: Place) -> None:
    place.other(("a", "1"))
    place.begin()
    place.other(("a", "2, by hand between two turns"))
    target = place.mark()
    place.agent(("a", "3"))
    place.go_to(target)
    assert place.files() == {"a": "2, by hand between two turns"}


def test_a_checkpoint_after_the_last_change_has_nothing_to_bring_back(place: Place) -> None:
    place.other(("a", "1"))
    place.begin()
    place.agent(("a", "2"))
    late = place.mark()
    assert place.planned(late) == {}
    place.agent(("a", "3"))
    assert place.planned(late) == {"a": "restore"}


def test_a_change_after_the_plan_is_never_overwritten(place: Place) -> None:
    place.other(("a", "v1"), ("b", "v1"))
    start = place.begin()
    place.agent(("a", "v2"), ("b", "v2"), ("c", "v2"))
    plan = place.tracker.plan(start)
    place.other(("a", "just typed"), ("c", "just typed"))
    prepared = place.tracker.prepare(plan)
    assert prepared
    assert set(prepared.stale) == {"a", "c"}
    place.other(("b", "typed even later"))
    outcome = place.tracker.carry_out(prepared)
    assert set(outcome.failures) == {"a", "b", "c"}
    assert place.files() == {"a": "just typed", "b": "typed even later", "c": "just typed"}


def test_ignored_and_uncovered_files_are_named_and_stay(place: Place) -> None:
    place.other((".gitignore", "*.db\n"), ("data.db", "precious"), ("venv/lib", "x"))
    start = place.begin()
    place.agent((".gitignore", "venv/\n"))
    plan = place.tracker.plan(start)
    changes = {one.path: (one.change, one.reason) for one in plan.changes}
    assert changes["data.db"] == ("skip", "ignored")
    assert changes["venv/lib"] == ("skip", "is not covered now")
    assert plan.not_covered == (("venv/", "ignored"),)
    place.go_to(start)
    assert place.files() == {".gitignore": "*.db\n", "data.db": "precious", "venv/lib": "x"}


def test_what_was_there_unseen_is_not_deleted(place: Place) -> None:
    place.other((".gitignore", "venv/\n"), ("venv/lib", "was there all the time"))
    start = place.begin()
    place.agent((".gitignore", "*.o\n"))
    changes = {one.path: (one.change, one.reason) for one in place.tracker.plan(start).changes}
    assert changes["venv/lib"] == ("skip", "was not covered then")
    place.go_to(start)
    assert place.files() == {".gitignore": "venv/\n", "venv/lib": "was there all the time"}


def test_a_file_that_grew_too_large_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path, Limits(max_file_bytes=10))
    place.other(("a", "small"))
    start = place.begin()
    place.agent(("a", "larger than that"), ("b", "also too large"))
    plan = place.tracker.plan(start)
    assert [(one.path, one.change, one.reason) for one in plan.changes] == [
        ("a", "skip", "too large")
    ]
    assert [path for path, _ in plan.not_covered] == ["a", "b"]


def test_a_folder_in_the_place_of_a_file_and_back(place: Place) -> None:
    place.other(("x", "a file"))
    os.chmod(place.root / "x", 0o750)
    start = place.begin()
    place.tracker.look("other")
    (place.root / "x").unlink()
    place.write("x/inner", "a folder now")
    place.tracker.look("agent")
    assert not place.go_to(start).failures
    assert place.files() == {"x": "a file"}
    assert (place.root / "x").stat().st_mode & 0o777 == 0o750
    assert not place.undo().failures
    assert place.files() == {"x/inner": "a folder now"}


def test_an_empty_folder_that_was_there_stays(place: Place) -> None:
    (place.root / "logs").mkdir()
    (place.root / "made").mkdir()
    place.other(("made/before", "x"))
    start = place.begin()
    place.agent(("logs/new", "x"), ("made/sub/new", "x"))
    place.go_to(start)
    assert sorted(path.name for path in place.root.iterdir()) == ["logs", "made"]
    assert place.files() == {"made/before": "x"}
    assert not (place.root / "made/sub").exists()


def test_links_are_restored_as_links_and_never_followed(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    place.other(("d/file", "inside"))
    (place.root / "link").symlink_to("d/file")
    start = place.begin()
    place.tracker.look("other")
    shutil.rmtree(place.root / "d")
    (place.root / "d").symlink_to(outside)
    (place.root / "link").unlink()
    place.tracker.look("agent")
    outcome = place.go_to(start)
    assert not outcome.failures
    assert os.readlink(place.root / "link") == "d/file"
    assert not (place.root / "d").is_symlink()
    assert (place.root / "link").read_text() == "inside"
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


def test_undo_leaves_alone_what_changed_afterwards(place: Place) -> None:
    place.other(("a", "1"), ("b", "1"))
    start = place.begin()
    place.agent(("a", "2"), ("b", "2"))
    place.go_to(start)
    place.other(("a", "typed after the restore"))
    place.undo()
    assert place.last.left == ("a",)
    assert place.files() == {"a": "typed after the restore", "b": "2"}


def test_a_damaged_blob_fails_its_own_file_only(place: Place) -> None:
    place.other(("a", "old a " * 50), ("b", "old b " * 50))
    start = place.begin()
    place.agent(("a", "2"), ("b", "2"))
    pack = sorted((place.top / "files/store").glob("*.pack"), key=lambda path: path.stat().st_size)
    content = bytearray(pack[-1].read_bytes())
    content[50] ^= 0xFF
    pack[-1].write_bytes(content)
    outcome = place.go_to(start)
    assert list(outcome.failures) == ["a"]
    assert place.files() == {"a": "2", "b": "old b " * 50}


def test_what_a_file_tool_changed_during_the_first_look_comes_back(place: Place) -> None:
    place.other(("a", "old"))
    target = place.mark()
    place.tracker.keep_early(["a", "new"])
    place.other(("a", "by the agent"), ("new", "by the agent"))
    assert place.tracker.first_look()
    place.tracker.look("agent")
    assert place.planned(target) == {"a": "restore", "new": "delete"}
    place.go_to(target)
    assert place.files() == {"a": "old"}


def test_a_command_during_the_first_look_is_told_of(place: Place) -> None:
    place.tracker.spoil()
    start = place.begin()
    assert "command ran before" in place.tracker.plan(start).remarks[0]


def test_a_checkpoint_that_was_never_seen_has_no_files(place: Place) -> None:
    place.begin()
    assert "not known" in place.tracker.plan("nobody").reason


def test_the_next_process_knows_it_all(place: Place) -> None:
    place.other(("a", "1"), ("quiet", "x"))
    start = place.begin()
    place.agent(("a", "2"))
    late = place.mark()
    place.other(("quiet", "while it was closed"))
    place.tracker = place.started()
    assert place.tracker.first_look()
    assert place.planned(start) == {"a": "restore", "quiet": "conflict"}
    # Who knows whether it was before or after the newest checkpoint: then it is not taken away.
    assert place.planned(late) == {}
    place.go_to(start)
    assert place.files() == {"a": "1", "quiet": "while it was closed"}


def test_nothing_is_brought_back_into_another_folder(place: Place, tmp_path: Path) -> None:
    place.other(("a", "old"))
    start = place.begin()
    place.agent(("a", "new"))
    prepared = place.tracker.prepare(place.tracker.plan(start))
    assert prepared
    other = tmp_path / "other"
    other.mkdir()
    place.root = other
    moved = place.started()
    assert not moved.first_look()
    assert str(tmp_path / "work") in moved.refusal
    assert list(other.iterdir()) == []


def test_the_log_survives_a_torn_line(place: Place) -> None:
    place.other(("a", "1"))
    place.begin()
    path = place.top / "files/snapshots.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "half')
    log = SnapshotLog(path)
    assert (len(log), log.skipped) == (1, 1)
    log.add({"a": None}, by="agent", at=2.0)
    again = SnapshotLog(path)
    assert (len(again), again.skipped, dict(again.latest)) == (2, 1, {})


class PowerCut(BaseException):
    """The process dies."""


@contextlib.contextmanager
def power_cut(after_calls: int) -> Iterator[None]:
    """Die at the n-th call that changes something on the disk."""
    calls = 0

    def counted(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > after_calls:
                raise PowerCut
            return real(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for verb in ("rename", "replace", "unlink", "link", "write", "mkdir", "rmdir", "fsync"):
            stack.enter_context(mock.patch.object(os, verb, counted(getattr(os, verb))))
        yield


@pytest.mark.parametrize("cut", range(40))
def test_a_restore_that_was_cut_off_is_finished_or_never_began(place: Place, cut: int) -> None:
    place.other(("a", "old a"), ("b", "old b"), ("c", "old c"))
    start = place.begin()
    was = place.files()
    place.agent(("a", "new a"), ("b", "new b"), ("c", None), ("d/e", "new d"))
    now = place.files()
    plan = place.tracker.plan(start)
    try:
        with power_cut(cut):
            prepared = place.tracker.prepare(plan)
            assert prepared
            place.tracker.carry_out(prepared)
    except PowerCut:
        pass
    place.tracker = place.started()
    assert place.tracker.first_look()
    left = place.tracker.cut_off()
    if left is None:
        assert place.files() in (was, now)
    else:
        assert not place.tracker.carry_out(left).failures
        assert place.files() == was
    assert not (place.top / "files/restore.json").exists()


NAMES = st.sampled_from(["a", "b", "dir/a", "dir/b", "dir/sub/c", "notes.md", "skip.log"])
EDIT = st.tuples(NAMES, st.text("xyz\n", max_size=6) | st.none())
ROUND = st.one_of(
    st.tuples(st.just("agent"), st.lists(EDIT, min_size=1, max_size=3)),
    st.tuples(st.just("other"), st.lists(EDIT, min_size=1, max_size=2)),
    st.tuples(st.just("restore"), st.integers(0, 6)),
    st.tuples(st.just("crash"), st.tuples(st.integers(0, 6), st.integers(0, 40))),
    st.tuples(st.just("undo"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROUND, min_size=1, max_size=8))
def test_nothing_foreign_is_ever_lost_and_what_is_tracked_comes_back(rounds: list) -> None:
    with tempfile.TemporaryDirectory() as top:
        _Story(Place(Path(top))).play(rounds)


class _Story:
    """Plays random rounds and holds, after each, what must be true."""

    def __init__(self, place: Place) -> None:
        self.place = place
        place.other((".gitignore", "*.log\n"))
        # What stood at each checkpoint, and which paths someone else touched since.
        self.then = {place.begin(): place.files()}
        self.foreign: dict[str, set[str]] = {uid: set() for uid in self.then}

    def play(self, rounds: list) -> None:
        for kind, value in rounds:
            getattr(self, f"do_{kind}")(value)
            if kind != "other":
                self.checkpoint()

    def checkpoint(self) -> None:
        self.place.tracker.look("other")
        uid = self.place.mark()
        self.then[uid] = self.place.files()
        self.foreign[uid] = set()

    def do_agent(self, edits) -> None:
        self.place.agent(*edits)

    def do_other(self, edits) -> None:
        before = self.place.files()
        self.place.other(*edits)
        self.place.tracker.look("other")
        after = self.place.files()
        changed = {
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        }
        newest = list(self.then)[-1]
        # Before the agent's next change it cannot be told from what stood at the newest checkpoint.
        self.then[newest] = after
        for uid in list(self.then)[:-1]:
            self.foreign[uid] |= changed
            if self.then[uid] == before and not self._changed_since(uid):
                self.then[uid] = after
                self.foreign[uid] -= changed

    def _changed_since(self, uid: str) -> bool:
        log = self.place.tracker._log
        state = log.at_checkpoint(uid)
        return state is not log.last

    def do_restart(self, _) -> None:
        self.place.tracker = self.place.started()
        assert self.place.tracker.first_look()

    def do_restore(self, back: int) -> None:
        uid = self._target(back)
        before = self.place.files()
        outcome = self.place.go_to(uid)
        assert not outcome.failures
        self.check(uid, before)

    def do_crash(self, value) -> None:
        back, cut = value
        uid = self._target(back)
        before = self.place.files()
        plan = self.place.tracker.plan(uid)
        with contextlib.suppress(PowerCut), power_cut(cut):
            prepared = self.place.tracker.prepare(plan)
            if prepared:
                self.place.tracker.carry_out(prepared)
        self.do_restart(None)
        left = self.place.tracker.cut_off()
        if left is not None:
            assert not self.place.tracker.carry_out(left).failures
        if self.place.files() != before:
            self.check(uid, before)

    def do_undo(self, _) -> None:
        before = self.place.files()
        if not hasattr(self.place, "last"):
            return
        intent = self.place.last.intent
        self.place.undo()
        after = self.place.files()
        for name in before.keys() | after.keys():
            assert before.get(name) == after.get(name) or name in intent.paths

    def check(self, uid: str, before: dict[str, str]) -> None:
        after, wanted = self.place.files(), self.then[uid]
        for name in before.keys() | wanted.keys() | after.keys():
            stays = name.endswith(".log") or after.get(name) == before.get(name)
            if name not in self.foreign[uid] and not name.endswith(".log"):
                assert after.get(name) == wanted.get(name), name
            else:
                assert stays, name

    def _target(self, back: int) -> str:
        uids = list(self.then)
        return uids[max(0, len(uids) - 1 - back)]
