"""`kimi-tui bisect`, `run-at` and `worktree`: commands over the files of the past, with a real sandbox and real files."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.chat_server import Answer, call, calls, say
from support.commands import HeldOnce, Place, held_once

from kimi_tui.session.session import Session
from kimi_tui.soul.bisect import state_at
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.tracker import SnapshotScope, Tracker

CHECK = "! grep -q broken src/app.py"


def write(text: str, path: str = "src/app.py") -> Answer:
    return call("WriteFile", {"path": path, "content": text})


def held(place: Place) -> Session:
    """Steps 1, 2 and 4 write; step 2 breaks the file, step 4 writes another one."""
    return place.copied(_held())


@functools.cache
def _held() -> HeldOnce:
    folder = Path(tempfile.mkdtemp(prefix="kimi-tui-bisect-"))
    atexit.register(shutil.rmtree, folder)
    work = folder / "work"
    (work / "src").mkdir(parents=True)
    (work / "src/app.py").write_text("start\n")
    (work / ".gitignore").write_text("made/\n*.log\n")
    (work / "made").mkdir()
    (work / "made/tool").write_text("tool\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(work))
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    answers = [
        write("one\n"),
        write("two, broken\n"),
        call("ReadFile", {"path": "src/app.py"}),
        write("other\n", "src/other.py"),
        say("done"),
    ]
    return held_once(folder, answers, "go on")


def times(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the times of change of everything in a folder, and of its status."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
        for path in (folder, *folder.rglob("*"))
    }


def left_over(place: Place) -> list[str]:
    """Return what runs have left in the data folder; the base may stay for the next one."""
    top = place.folder / "data/futures"
    return [str(one) for one in top.glob("*/*") if one.name not in ("base", "base.json", "lock")]


def test_the_step_that_broke_it_is_found_and_nothing_is_touched(place: Place) -> None:
    held(place)
    before = times(place.work)
    dirty = (
        "echo x > src/app.py; echo x >> made/tool; rm .gitignore; git commit -qam x; touch a.log"
    )
    ran = place.run("bisect", "--", f"{CHECK} || {{ {dirty}; echo it is broken; exit 3; }}")
    assert ran.code == 0, ran
    assert "The first change after which the command fails: the step of checkpoint #2." in ran.out
    # Each state has the name of the first checkpoint whose step began with it.
    tested = [line.partition("  ")[0] for line in ran.out.splitlines()[1:5]]
    ends = ["the files as they are now", "the first file snapshot"]
    assert tested == [*ends, "checkpoint #2", "checkpoint #3"]
    assert "it is broken" in ran.out
    assert "two, broken" in ran.out
    assert "kimi-tui rewind 2 --files restore" in ran.out
    assert times(place.work) == before
    assert left_over(place) == []


def test_all_files_of_a_step_are_one_change(place: Place) -> None:
    files = {"src/app.py": "one\n", "src/other.py": "broken\n"}
    both = [("WriteFile", {"path": path, "content": text}) for path, text in files.items()]
    place.hold([calls(both), say("done")], "go on")
    found = place.run("bisect", "--json", "--", "! test -e src/other.py").json
    (change,) = found["changes"]
    assert (change["cause"], change["files"]) == ("step", sorted(files))


@pytest.mark.exhaustive
def test_a_script_reads_what_was_found(place: Place) -> None:
    held(place)
    found = place.run("bisect", "--json", "--times", "2", "--", CHECK).json
    assert found["found"]
    (change,) = found["changes"]
    assert (change["cause"], change["checkpoint_id"], change["files"]) == (
        "step",
        2,
        ["src/app.py"],
    )
    verdicts = {one["state"]: one["verdict"] for one in found["tests"]}
    assert verdicts["the files as they are now"] == "bad"
    assert verdicts["the first file snapshot"] == "good"
    assert found["runs"] == 2 * len(found["tests"]) <= 2 * 4


@pytest.mark.exhaustive
def test_a_change_by_someone_else_is_a_change_of_its_own(place: Place) -> None:
    held(place)
    (place.work / "src/app.py").write_text("by hand, sound\n")
    (place.work / "src/more.py").write_text("by hand\n")
    found = place.run("bisect", "--json", "--", "! test -e src/more.py").json
    (change,) = found["changes"]
    assert (change["cause"], change["files"]) == ("other", ["src/app.py", "src/more.py"])


@pytest.mark.exhaustive
def test_ends_are_named_by_checkpoints_before_their_steps(place: Place) -> None:
    held(place)
    ran = place.run("bisect", "--good", "2", "--bad", "3", "--", CHECK)
    assert ran.code == 0
    assert "the step of checkpoint #2" in ran.out
    wrong = place.run("bisect", "--good", "3", "--", CHECK)
    assert wrong.code == 1
    assert "already fails on checkpoint #3" in wrong.err
    assert "no failure to search for" in place.run("bisect", "--bad", "2", "--", CHECK).err
    assert place.run("bisect", "--good", "4", "--bad", "1", "--", CHECK).code == 1
    assert "no checkpoint #99" in place.run("bisect", "--good", "99", "--", CHECK).complaint


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("exit 125", 1, "could not test"),
        ("kill -9 $$", 1, "with code 137"),
        ("exit 128", 1, "with code 128"),
        ("no-such-program-anywhere", 1, "was not found"),
        ("true", 1, "does not fail"),
        ("", 2, "Write the command after --"),
    ],
)
def test_a_command_that_finds_nothing_is_said_in_a_line(
    place: Place, command: str, code: int, said: str
) -> None:
    held(place)
    ran = place.run("bisect", "--", command)
    assert ran.code == code
    assert said in ran.err
    assert left_over(place) == []


@pytest.mark.exhaustive
def test_a_command_that_hangs_is_stopped(place: Place) -> None:
    held(place)
    ran = place.run("bisect", "--timeout", "1", "--", "sleep 100")
    assert (ran.code, "did not end within 1 s" in ran.err) == (1, True)


def test_run_at_runs_a_command_over_the_files_of_a_checkpoint(place: Place) -> None:
    held(place)
    before = times(place.work)
    ran = place.run("run-at", "1", "--json", "--", "cat src/app.py; pwd; ls src; exit 7")
    assert ran.code == 7
    assert f"start\\n{place.work}\\napp.py\\n" in ran.out
    assert times(place.work) == before
    assert left_over(place) == []


@pytest.mark.exhaustive
def test_run_at_ends_as_its_command_does(place: Place) -> None:
    held(place)
    assert place.run("run-at", "2", "--", "test", "$(cat src/app.py)", "=", "one").code == 1
    assert place.run("run-at", "2", "--", 'test "$(cat src/app.py)" = one').code == 0
    assert place.run("run-at", "#3", "sh", "-c", "exit 2", "--", "more").code == 2
    assert place.run("run-at", "2", "--", "--no-such-program").code == 127
    assert place.run("run-at", "--timeout", "1", "1", "--", "sleep 100").code == 125


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("77", "--", "true"), "no checkpoint #77"),
        (("1",), "the command after --"),
        (("1", "--"), "the command after --"),
        (("-1", "--", "true"), "not the number of a checkpoint"),
        (("1", "--jsno", "--", "true"), "'--jsno' is not an option"),
        (("1", "--json", "true"), "'--json' is not an option"),
        (("--world-line", "9", "1", "--", "true"), "no world line 9"),
        (("--session", "none", "1", "--", "true"), "no session 'none'"),
    ],
)
def test_what_cannot_be_run_is_no_failure_of_the_command(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    held(place)
    ran = place.run("run-at", *words)
    assert (ran.code, said in ran.complaint) == (125, True), ran


@pytest.mark.exhaustive
def test_the_network_is_closed_unless_it_is_opened(place: Place) -> None:
    held(place)
    command = "python3 -c 'import socket; print(sorted(n for _, n in socket.if_nameindex()))'"
    closed = place.run("run-at", "--json", "1", "--", command)
    assert closed.json["output"] == "['lo']\n"
    opened = place.run("run-at", "--json", "--network", "1", "--", command)
    assert len(opened.json["output"]) > 0


def test_worktree_writes_a_plain_folder(place: Place) -> None:
    held(place)
    target = place.folder / "copy"
    assert place.run("worktree", "2", target).code == 0
    assert sorted(p.name for p in target.rglob("*")) == [".gitignore", "app.py", "src"]
    assert (target / "src/app.py").read_text() == "one\n"
    again = place.run("worktree", "2", target)
    assert (again.code, "already exists" in again.complaint) == (1, True)
    assert list((place.folder / "data/futures").glob("unfinished-*")) == []


def test_a_session_without_that_snapshot_says_so(place: Place) -> None:
    session = held(place)
    for name in ("snapshots.jsonl", "snapshots-2.jsonl"):
        (session.dir / "files" / name).unlink(missing_ok=True)
    assert "no file snapshot" in place.run("run-at", "2", "--", "true").complaint
    assert "no file snapshot" in place.run("bisect", "--", "true").complaint
    assert "no file snapshot" in place.run("worktree", "2", "x").complaint


def test_damaged_contents_are_said_and_leave_nothing(place: Place) -> None:
    session = held(place)
    shutil.rmtree(session.dir / "files/store")
    ran = place.run("run-at", "2", "--", "true")
    assert (ran.code, "cannot be written out" in ran.complaint) == (125, True)
    assert place.run("worktree", "2", "copy").code == 1
    assert not os.path.lexists("copy")
    assert left_over(place) == []


_NO_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
_ON_AN_OVERLAY = (
    "mkdir -p $0/up $0/work && "
    "mount -t overlay overlay -o lowerdir=$1,upperdir=$0/up,workdir=$0/work $1 && "
    'shift && exec "$@"'
)
_NO_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
_MACHINES: dict[str, tuple[str, list[str]]] = {
    "an administrator": ("overlay", []),
    "an ordinary user": (
        "overlay",
        ["unshare", "-U", "--map-user=1000", "--map-group=1000", *_NO_RIGHTS],
    ),
    "data on an overlay": ("copy", ["unshare", "-m", "sh", "-c", _ON_AN_OVERLAY, "OVER", "DATA"]),
    "no namespaces": (
        "elsewhere",
        ["unshare", "-Ur", "sh", "-c", _NO_NAMESPACES, "x", *_NO_RIGHTS],
    ),
}
"""How commands see past files on a kind of machine, and the words before a command that make this one such a machine."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("machine", [*_MACHINES])
def test_each_way_to_see_past_files_finds_the_step_and_touches_nothing(
    place: Place, machine: str
) -> None:
    way, words = _MACHINES[machine]
    held(place)
    data = place.folder / "data"
    filled = {"OVER": str(place.folder / "over"), "DATA": str(data)}
    before_it = [filled.get(word) or word for word in words]
    environ = os.environ | {"KIMI_TUI_HOME": str(data), "XDG_CACHE_HOME": str(place.folder / "c")}

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*before_it, sys.executable, "-m", "kimi_tui", *arguments]
        return subprocess.run(
            command, cwd=place.work, env=environ, capture_output=True, text=True, check=False
        )

    if before_it and (
        shutil.which("setpriv") is None
        or subprocess.run([*before_it, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"this system does not let a test make a machine with {machine}")
    told = ran("doctor").stdout
    if way == "overlay" and "work folder's path (overlay)" not in told:
        pytest.skip("this system has no overlays for users")
    (place.work / "made/id_rsa").write_text("a secret")
    before = times(place.work)
    dirty = "echo x > src/app.py; rm -f .gitignore; touch a.log; echo x >> made/tool"
    found = ran("bisect", "--", f"{CHECK} || {{ {dirty}; exit 3; }}")
    assert found.returncode == 0, found
    assert "the step of checkpoint #2." in found.stdout
    seen = ran("run-at", "2", "--", "pwd; cat src/app.py made/tool; git log --format=%s")
    at, one, tool, *first = seen.stdout.splitlines()
    assert (one, tool) == ("one", "tool")
    assert (at == str(place.work)) == (way != "elsewhere")
    assert (first == ["first"]) == (way != "elsewhere")
    assert ("another path" in seen.stderr) == (way == "elsewhere")
    assert "a secret" not in ran("run-at", "2", "--", "cat made/id_rsa").stdout
    is_read_only = "Read-only" in ran("run-at", "2", "--", "echo x >> made/tool").stdout
    assert is_read_only == (way == "copy")
    assert times(place.work) == before
    assert left_over(place) == []
    assert not [*(place.folder / "c").glob("kimi-tui/futures/*/*")]


def test_the_files_of_a_checkpoint_are_found_by_the_name_that_it_had_before_a_compaction(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    tracker = Tracker(tmp_path / "work", tmp_path / "files", Limits(), SnapshotScope())
    assert tracker.first_scan()
    tracker.mark("former")
    (tmp_path / "work/a").write_text("later\n")
    tracker.take_snapshot("agent")
    tracker.mark("later")
    past = cast("Any", SimpleNamespace(log=tracker.log))
    point = cast("Any", SimpleNamespace(was="former", uid="anew", id=1))
    first, other = (
        state_at(past, cast("Any", one))
        for one in (point, SimpleNamespace(was=None, uid="later", id=2))
    )
    assert first is not None
    assert other is not None
    assert (first.snapshot, other.snapshot) == tuple(tracker.log.snapshots)
    assert state_at(past, cast("Any", SimpleNamespace(was="no", uid="neither", id=3))) is None
