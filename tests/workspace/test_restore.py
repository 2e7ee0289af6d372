"""Restoring: the tree equals the snapshot in what it tracks, and nothing else is ever lost."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.access_lists import NAME, access_list, can_have_attributes
from support.cases import each
from support.followed_folder import Place, PowerCut, power_cut

from kimi_tui.workspace import restore, scan, store, tracker
from kimi_tui.workspace.ignore import IgnoreStack
from kimi_tui.workspace.manifest import Limits, ManifestEntry
from kimi_tui.workspace.snapshots import SnapshotLog, parse_path
from kimi_tui.workspace.tracker import SnapshotScope, Tracker


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


def test_a_file_that_is_brought_back_keeps_its_access_list(place: Place) -> None:
    if not can_have_attributes(place.root):
        pytest.skip("this file system has no access lists")
    place.other(("edited", "before"))
    file = place.root / "edited"
    os.setxattr(file, NAME, access_list())
    start = place.begin()
    place.agent(("edited", "after"))
    assert not place.go_to(start).failures
    assert file.read_text() == "before"
    assert os.getxattr(file, NAME) == access_list()


def test_what_someone_else_changed_is_left_alone_unless_chosen(place: Place) -> None:
    place.other(("mine", "v1"), ("yours", "v1"))
    start = place.begin()
    place.agent(("yours", "v2"))
    place.other(("mine", "by hand"))
    (one, _) = place.tracker.plan(start).changes
    assert (one.path, one.change, one.would) == ("mine", "conflict", "restore")
    place.go_to(start)
    assert place.last is not None
    assert place.last.left == ("mine",)
    assert place.files() == {"mine": "by hand", "yours": "v1"}
    place.go_to(start, {"mine"})
    assert place.files() == {"mine": "v1", "yours": "v1"}


def test_what_the_agent_changed_last_comes_back_and_is_named(place: Place) -> None:
    place.other(("a", "v1"))
    start = place.begin()
    place.agent(("a", "v2"))
    place.other(("a", "by hand"), ("made", "by hand"))
    place.agent(("a", "v3"), ("made", "v3"))
    one, made = place.tracker.plan(start).changes
    assert (one.path, one.change, one.reason) == ("a", "restore", "also changed outside kimi-tui")
    # The agent only changed this one: it is not the agent's to delete.
    assert (made.path, made.change, made.would) == ("made", "conflict", "delete")
    place.go_to(start)
    assert place.files() == {"a": "v1", "made": "v3"}
    place.undo()
    assert place.files() == {"a": "v3", "made": "v3"}


def test_what_somebody_writes_while_a_file_is_restored_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.other(("a", "v1"))
    start = place.begin()
    place.agent(("a", "v2"), ("made", "v2"))
    prepared = place.tracker.prepare(place.tracker.plan(start))
    assert prepared
    create, current = restore.create_file, restore.current

    def created(*args: Any, **options: Any) -> None:
        create(*args, **options)
        (place.root / "a").write_text("by hand")

    def read(name: str, folder: int | None = None) -> ManifestEntry | None:
        found = current(name, folder)
        if name == "made" and (place.root / "made").read_text() == "v2":
            (place.root / "made").write_text("by hand")
        return found

    monkeypatch.setattr(restore, "create_file", created)
    monkeypatch.setattr(restore, "current", read)
    outcome = place.tracker.carry_out(prepared)
    assert sorted(outcome.failures) == ["a", "made"]
    assert place.files() == {"a": "by hand", "made": "by hand"}


@pytest.mark.parametrize("swapped", ["folder", "link", "parent", "gone"])
def test_what_is_swapped_in_at_the_last_moment_is_left_alone(place: Place, swapped: str) -> None:
    outside = place.top / "outside"
    outside.mkdir()
    (outside / "a").write_text("precious")
    place.other(("d/a", "v1"), ("b", "v1"))
    start = place.begin()
    place.agent(("d/a", "v2"), ("b", "v2"))
    prepared = place.tracker.prepare(place.tracker.plan(start))
    assert prepared
    (place.root / "d/a").unlink()
    match swapped:
        case "folder":
            (place.root / "d/a").mkdir()
        case "link":
            (place.root / "d/a").symlink_to(outside / "a")
        case "parent":
            (place.root / "d").rmdir()
            (place.root / "d").symlink_to(outside)
        case _:
            pass
    outcome = place.tracker.carry_out(prepared)
    assert list(outcome.failures) == ["d/a"]
    assert outcome.restored == ("b",)
    assert (outside / "a").read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["a"]


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


def test_secrets_are_in_no_snapshot_and_that_is_said(place: Place) -> None:
    (place.root / ".env").write_text("TOKEN=precious\n")
    place.other((".ssh/config", "Host precious"), ("src/a.pem", "precious"), ("a", "1"))
    place.tracker.back_up([".env"])
    start = place.begin()
    place.agent((".env", "TOKEN=precious too\n"), ("a", "2"))
    assert place.planned(start) == {"a": "restore"}
    assert set(place.tracker.plan(start).not_covered) == {
        (".env", "may contain secrets"),
        (".ssh/", "may contain secrets"),
        ("src/a.pem", "may contain secrets"),
    }
    place.go_to(start)
    assert (place.root / ".env").read_text() == "TOKEN=precious too\n"
    kept = b"".join(
        path.read_bytes() for path in (place.top / "files").rglob("*") if path.is_file()
    )
    assert b"precious" not in kept


def test_ignored_and_uncovered_files_are_named_and_stay(place: Place) -> None:
    place.other((".gitignore", "*.db\n"), ("data.db", "precious"), ("venv/lib", "x"))
    start = place.begin()
    place.agent((".gitignore", "venv/\n"))
    plan = place.tracker.plan(start)
    changes = {one.path: (one.change, one.reason) for one in plan.changes}
    assert changes["data.db"] == ("skip", "ignored")
    assert changes["venv/lib"] == ("skip", "there is no snapshot of its current content")
    assert plan.not_covered == (("venv/", "ignored"),)
    place.go_to(start)
    assert place.files() == {".gitignore": "*.db\n", "data.db": "precious", "venv/lib": "x"}


def test_what_was_there_unseen_is_not_deleted(place: Place) -> None:
    place.other((".gitignore", "venv/\n"), ("venv/lib", "was there all the time"))
    start = place.begin()
    place.agent((".gitignore", "*.o\n"))
    changes = {one.path: (one.change, one.reason) for one in place.tracker.plan(start).changes}
    assert changes["venv/lib"] == ("skip", "there was no snapshot of it at that time")
    place.go_to(start)
    assert place.files() == {".gitignore": "venv/\n", "venv/lib": "was there all the time"}


def test_a_secret_that_the_list_did_not_have_then_is_not_brought_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.other(("a", "v1"), (".env", "KEY=1"))
    with monkeypatch.context() as then:
        then.setattr(scan, "secrets", lambda: SimpleNamespace(covers=lambda *_, **__: False))
        start = place.begin()
        place.agent(("a", "v2"), (".env", None))
    changes = [(one.path, one.change, one.reason) for one in place.tracker.plan(start).changes]
    assert changes == [(".env", "skip", "may contain secrets"), ("a", "restore", "")]
    assert place.go_to(start).restored == ("a",)
    assert place.files() == {"a": "v1"}


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


@pytest.mark.parametrize("path", ["gone", "sub/deep/gone"])
def test_a_file_whose_room_was_taken_comes_back_and_goes_again(tmp_path: Path, path: str) -> None:
    place = Place(tmp_path, Limits(max_files=2))
    place.other((path, "was here"), ("kept", "1"))
    start = place.begin()
    place.agent((path, None))
    if "/" in path:
        shutil.rmtree(place.root / "sub")
    place.other(("a", "takes the room"))
    place.tracker.take_snapshot("other")
    outcome = place.go_to(start)
    assert (outcome.restored, outcome.failures) == ((path,), {})
    assert place.files() == {"a": "takes the room", path: "was here", "kept": "1"}
    assert place.undo().deleted == (path,)
    assert place.files() == {"a": "takes the room", "kept": "1"}


def test_a_folder_in_the_place_of_a_file_and_back(place: Place) -> None:
    place.other(("x", "a file"))
    os.chmod(place.root / "x", 0o750)
    start = place.begin()
    place.tracker.take_snapshot("other")
    (place.root / "x").unlink()
    place.write("x/inner", "a folder now")
    place.tracker.take_snapshot("agent")
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


def test_an_undo_keeps_the_folder_that_was_empty_before_the_rewind(place: Place) -> None:
    place.other(("stays/deep/a", "x"), ("goes/deep/b", "x"))
    start = place.begin()
    place.agent(("stays/deep/a", None), ("goes/deep/b", None))
    shutil.rmtree(place.root / "goes")
    place.tracker.take_snapshot("agent")
    place.go_to(start)
    assert place.files() == {"stays/deep/a": "x", "goes/deep/b": "x"}
    place.undo()
    assert place.files() == {}
    assert [one.relative_to(place.root).as_posix() for one in sorted(place.root.rglob("*"))] == [
        "stays",
        "stays/deep",
    ]


def test_links_are_restored_as_links_and_never_followed(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    place.other(("d/file", "inside"))
    (place.root / "link").symlink_to("d/file")
    start = place.begin()
    place.tracker.take_snapshot("other")
    shutil.rmtree(place.root / "d")
    (place.root / "d").symlink_to(outside)
    (place.root / "link").unlink()
    place.tracker.take_snapshot("agent")
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
    assert place.last is not None
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
    place.tracker.back_up(["a", "new"])
    place.other(("a", "by the agent"), ("new", "by the agent"))
    assert place.tracker.first_scan()
    place.tracker.take_snapshot("agent")
    assert place.planned(target) == {"a": "restore", "new": "delete"}
    place.go_to(target)
    assert place.files() == {"a": "old"}


def test_a_command_during_the_first_look_is_told_of(place: Place) -> None:
    place.tracker.command_ran()
    start = place.begin()
    assert "command ran before" in place.tracker.plan(start).remarks[0]


def test_a_checkpoint_that_was_never_seen_has_no_files(place: Place) -> None:
    place.begin()
    assert "no file snapshot of that time" in place.tracker.plan("nobody").reason


def test_the_next_process_knows_it_all(place: Place) -> None:
    place.other(("a", "1"), ("quiet", "x"))
    start = place.begin()
    place.agent(("a", "2"))
    late = place.mark()
    place.other(("quiet", "while it was closed"))
    place.tracker = place.started()
    assert place.tracker.first_scan()
    assert place.planned(start) == {"a": "restore", "quiet": "conflict"}
    # Nobody knows whether the file was made before or after the newest checkpoint, so it is not removed.
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
    assert not moved.first_scan()
    assert str(tmp_path / "work") in moved.refusal
    assert list(other.iterdir()) == []


def test_the_log_survives_a_torn_line(place: Place) -> None:
    place.other(("a", "1"))
    place.begin()
    path = place.top / "files/snapshots-2.jsonl"
    assert path.read_bytes().startswith(b"{")
    path.write_bytes(path.read_bytes() + b'{"id": "half')
    log = SnapshotLog(path)
    assert len(log) == 1
    log.add({"a": None}, by="agent", at=2.0)
    again = SnapshotLog(path)
    assert (len(again), dict(again.latest)) == (2, {})


def test_the_checkpoints_of_agents_end_their_own_steps_alone_also_when_they_are_read(
    place: Place,
) -> None:
    path = place.top / "files/snapshots-2.jsonl"
    log = SnapshotLog(path)
    log.mark("own")
    log.mark("beside", "general-1")
    log.mark("own next")
    again = SnapshotLog(path)
    for one in (log, again):
        assert one._next_marks == {"own": "own next"}
        assert one._last_marks == {"": "own next", "general-1": "beside"}
        assert one.marked_at("nobody") == -1


# File systems that ignore case, have short names and streams, or skip characters may find these files.
HOSTILE_PATHS = (
    *("../x", "/etc/passwd", "a/../b", "a//b", "./a", "a/.", "a\0b", ".git/config", ".GIT/config", ".Git/hooks/x", "sub/.git/x"),
    *("git~1/hooks/pre-commit", "GIT~1/config", "git~2/x", "hg~1/hgrc", ".git./config", ".git /config", ".git . ./x", ".hg./x"),
    *(".git::$INDEX_ALLOCATION/config", ".git:x/y", ".git .:x/y", "a\\.git\\config", ".git\\config", "a\\git~1\\x"),
    *(".g\u200cit/config", ".\u200dgit/config", "\ufeff.git/config", ".git\u200e/x", ".gi\u202et/x", ".\u206fgIt/x"),
    *(".SVN/x", ".jj./x", "svn~1/x", ".h\u200fg/hgrc", "jj~1/x"),
)  # fmt: skip


@each("path", HOSTILE_PATHS)
def test_a_path_that_a_snapshot_cannot_have_is_refused(path: str) -> None:
    entry = ManifestEntry("file", "0" * 64, 0o644, 1)
    with pytest.raises(ValueError, match=r"a path (leads|belongs)") as refusal:
        parse_path(path, entry)
    # Nor is one taken that a snapshot would lose again.
    is_passed_over = any(IgnoreStack().ignores(name, is_folder=True) for name in path.split("/"))
    assert is_passed_over == ("belongs" in str(refusal.value))


@each(
    "path",
    ["git", "git~", "a.git/x", ".github/x", ".gitignore", "x~1", "notes: git", "gitt~1", "hg"],
)
def test_ordinary_names_are_taken(path: str) -> None:
    assert parse_path(path, ManifestEntry("file", "0" * 64, 0o644, 1)) == path
    assert not IgnoreStack().ignores(path.split("/")[0], is_folder=True)


def test_a_file_without_a_snapshot_is_named_only_where_somebody_touched_it_since(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.other(("docs/passwords.txt", "x"), ("touched.pem", "x"), (".ssh/config", "x"), ("a", "1"))
    # This imitates a snapshot of a minute later.
    monkeypatch.setattr(tracker.time, "time", lambda: os.stat(place.root).st_mtime + 60)
    start = place.begin()
    os.utime(place.root / "touched.pem", (2e9, 2e9))
    place.agent(("a", "2"))
    assert set(place.tracker.plan(start).not_covered) == {
        ("touched.pem", "may contain secrets"),
        # The contents of this folder are unknown.
        (".ssh/", "may contain secrets"),
    }


@pytest.mark.sample(10)
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
    assert place.tracker.first_scan()
    left = place.tracker.unfinished_restore()
    if left is None:
        assert place.files() in (was, now)
    else:
        assert not place.tracker.carry_out(left).failures
        assert place.files() == was
    assert not (place.top / "files/restore.json").exists()


def test_what_came_back_before_the_cut_is_the_restores_doing(place: Place) -> None:
    place.other(("a", "1"), ("b", "1"))
    start = place.begin()
    place.agent(("a", "2"), ("b", "2"))
    between = place.mark()
    place.agent(("a", "3"), ("b", "3"))
    newest = place.mark()
    prepared = place.tracker.prepare(place.tracker.plan(start))
    assert prepared
    # Killed when one file was back.
    place.write("a", "1")
    place.tracker = place.started()
    assert place.tracker.first_scan()
    left = place.tracker.unfinished_restore()
    assert left
    assert not place.tracker.carry_out(left).failures
    assert place.files() == {"a": "1", "b": "1"}
    assert place.planned(between) == {"a": "restore", "b": "restore"}
    assert place.planned(newest) == {"a": "restore", "b": "restore"}


def as_somebody(work: Callable[[Path], None]) -> None:
    """Do it in a process that is not root's, to whom permissions say nothing, with a folder of its own."""
    top = Path(tempfile.mkdtemp())
    try:
        if os.geteuid() == 0:
            os.chown(top, 65534, 65534)
        said, say = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                work(top)
            except BaseException:
                os.write(say, traceback.format_exc().encode()[-4000:])
            finally:
                os._exit(0)
        os.close(say)
        with open(said, "rb") as pipe:
            trouble = pipe.read().decode()
        os.waitpid(child, 0)
        assert not trouble, trouble
    finally:
        shutil.rmtree(top)


def test_what_could_not_be_looked_at_then_is_never_deleted() -> None:
    def work(top: Path) -> None:
        place = Place(top)
        place.other(("data/precious.txt", "x"), ("data/deep/more.txt", "y"), ("a", "1"))
        folder = place.root / "data"
        folder.chmod(0o644)
        start = place.begin()
        place.tracker.take_snapshot("other")
        folder.chmod(0o755)
        (place.root / "a").write_text("2")
        place.tracker.take_snapshot("agent")
        changes = {one.path: (one.change, one.reason) for one in place.tracker.plan(start).changes}
        assert changes["data/precious.txt"] == ("skip", "cannot be read"), changes
        assert changes["data/deep/more.txt"][0] == "skip", changes
        outcome = place.go_to(start)
        assert (outcome.restored, outcome.deleted) == (("a",), ()), outcome
        assert place.files() == {"a": "1", "data/deep/more.txt": "y", "data/precious.txt": "x"}

    as_somebody(work)


def test_what_cannot_be_looked_at_now_is_left_alone() -> None:
    def work(top: Path) -> None:
        place = Place(top)
        place.other(("data/b", "1"), ("a", "1"))
        start = place.begin()
        place.agent(("data/b", "2"), ("a", "2"), ("data/new", "3"))
        folder = place.root / "data"
        folder.chmod(0o644)
        outcome = place.go_to(start)
        assert (outcome.restored, outcome.deleted) == (("a",), ()), outcome
        folder.chmod(0o755)
        assert place.files() == {"a": "1", "data/b": "2", "data/new": "3"}

    as_somebody(work)


def test_a_huge_file_is_neither_read_nor_kept(place: Place) -> None:
    with open(place.root / "huge", "wb") as file:
        file.truncate(3 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = restore.current(str(place.root / "huge"))
    assert found is not None
    assert (found.kind, found.size) == ("large", 3 << 30)
    place.tracker.back_up(["huge"])
    start = place.begin()
    assert place.tracker.is_as_seen(["huge"])
    place.agent(("huge", "small now"))
    assert place.go_to(start).restored == ()
    assert place.files() == {"huge": "small now"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_file_that_grows_without_end_is_not_read_for_ever(place: Place) -> None:
    grows, writes = os.pipe()
    os.write(writes, b"x" * 4096)
    limit = store._GROWTH_BYTES
    store._GROWTH_BYTES = 1024
    try:
        with pytest.raises(OSError, match="grows"):
            store.read_whole(grows, 10)
    finally:
        store._GROWTH_BYTES = limit
        os.close(grows)
        os.close(writes)


def test_what_runs_later_is_not_brought_back_unasked(place: Place) -> None:
    place.other(("a", "1"), ("Makefile", "1"))
    start = place.begin()
    place.agent(("a", "2"), ("Makefile", "2"), (".vscode/tasks.json", "{}"))
    assert place.tracker.prepare(place.tracker.plan(start))
    place.tracker = place.started()
    assert place.tracker.first_scan()
    left = place.tracker.unfinished_restore()
    assert left
    outcome = place.tracker.carry_out(left, unasked=True)
    assert outcome.restored == ("a",)
    assert outcome.failures.keys() == {"Makefile", ".vscode/tasks.json"}
    assert place.files() == {"a": "1", "Makefile": "2", ".vscode/tasks.json": "{}"}


def test_what_is_gone_and_was_never_kept_is_named_and_empty_folders_come_back(
    place: Place,
) -> None:
    place.other((".gitignore", "thirty.dat\nbuilt/\n"), ("thirty.dat", "x"), ("built/out", "x"))
    place.other(("kept.txt", "here"), ("full/inner.txt", "x"))
    (place.root / "empty" / "deep").mkdir(parents=True)
    os.mkfifo(place.root / "pipe")
    with socket.socket(socket.AF_UNIX) as heard:
        heard.bind(os.path.relpath(place.root / "socket"))
    with (place.root / "sparse.img").open("wb") as file:
        file.truncate(3 << 30)
    start = place.begin()
    place.tracker.take_snapshot("other")
    for path in sorted(place.root.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        elif path.name != ".gitignore":
            path.unlink()
    place.tracker.take_snapshot("agent")
    plan = {one.path: (one.change, one.reason) for one in place.tracker.plan(start).changes}
    assert plan == {
        "built": ("skip", "deleted; ignored"),
        "empty/deep": ("create", ""),
        "full/inner.txt": ("create", ""),
        "kept.txt": ("create", ""),
        "pipe": ("skip", "deleted; not a regular file"),
        "socket": ("skip", "deleted; not a regular file"),
        "sparse.img": ("skip", "deleted; too large"),
        "thirty.dat": ("skip", "deleted; ignored"),
    }
    outcome = place.go_to(start)
    assert not outcome.failures
    assert outcome.restored == ("empty/deep", "full/inner.txt", "kept.txt")
    assert (place.root / "empty" / "deep").is_dir()
    # A second undo has nothing left to do, and the other files are as gone as before.
    assert set(place.planned(start).values()) == {"skip"}
    assert not place.undo().failures


def test_what_was_left_out_and_is_seen_now_is_not_called_gone(place: Place) -> None:
    place.other((".gitignore", "built/\n"), ("built/out", "x"))
    (place.root / "empty").mkdir()
    start = place.begin()
    place.agent((".gitignore", ""), ("empty/new.txt", "x"))
    changes = place.tracker.plan(start).changes
    assert not [one for one in changes if one.reason.startswith("gone")]
    assert "empty" not in {one.path for one in changes}


def test_the_plan_of_an_undo_sees_what_others_changed_since_and_names_lost_snapshots(
    place: Place,
) -> None:
    place.other(("a", "1"), ("b", "1"))
    start = place.begin()
    place.agent(("a", "2"), ("b", "2"))
    place.go_to(start)
    assert place.last is not None
    intent = place.last.intent
    place.other(("a", "by the user"))
    plan = place.tracker.plan_back(intent.before, intent.after, intent.paths)
    assert {one.path: one.change for one in plan.changes} == {"a": "conflict", "b": "restore"}
    for before, after in (("no", intent.after), (intent.before, "no")):
        plan = place.tracker.plan_back(before, after, intent.paths)
        assert (plan.changes, plan.reason) == ((), "The file snapshots of that time were deleted.")


def test_a_point_is_found_by_its_own_name_and_by_its_former_one(place: Place) -> None:
    place.other(("a", "1"))
    former = place.begin()
    place.agent(("a", "2"))
    point = place.mark()
    place.agent(("a", "3"))
    assert place.tracker.plan(point, former) == place.tracker.plan(former)
    assert place.tracker.plan(point, "unknown") == place.tracker.plan(point)
    assert place.tracker.plan("unknown", former) == place.tracker.plan(former)
    assert place.tracker.plan(point) != place.tracker.plan(former)
    assert place.tracker.plan("unknown", "unknown").reason


def test_before_its_first_scan_a_tracker_has_nothing_to_check(place: Place) -> None:
    place.tracker.begin_check()
    assert not place.tracker.check(1.0)
    assert not place.tracker.has_suspects
    assert place.tracker.following == tracker.Following()
    place.tracker.close()


def test_stamps_are_stored_at_the_end_where_a_step_came_since_and_every_file_was_seen(
    place: Place,
) -> None:
    stored = place.top / "files/latest.table"
    place.other(("a", "1"), ("b", "1"))
    place.begin()
    at_first = stored.stat().st_ino
    place.tracker.close()
    assert stored.stat().st_ino == at_first
    place.tracker = place.started()
    assert place.tracker.first_scan()
    place.agent(("a", "2"))
    before = stored.stat().st_ino
    place.tracker.close()
    assert stored.stat().st_ino != before
    # A scan that was cancelled has seen only a part of the files.
    whole = stored.stat().st_ino
    cut_short = Tracker(
        place.root, place.top / "files", Limits(), SnapshotScope(), cancelled=lambda: True
    )
    assert not cut_short.first_scan()
    cut_short.close()
    assert stored.stat().st_ino == whole


def test_the_end_of_a_tracker_syncs_its_last_step_and_ends_its_watch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = os.listdir("/proc/self/fd")
    place.other(("a", "1"))
    place.begin()
    place.write("a", "2")
    assert place.tracker.take_snapshot("agent", later=True)
    synced: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    place.tracker.close()
    assert any(name.startswith("snapshots") for name in synced)
    assert len(os.listdir("/proc/self/fd")) == len(handles)
