"""Folders for temporary files: removed at the end of the program, and after a kill at the next start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from kimi_tui import temporary_folders
from kimi_tui.temporary_folders import TemporaryFolder, sweep


@pytest.fixture(autouse=True)
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files of a test, and of the programs that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def program(code: str) -> subprocess.Popen[str]:
    """Start a program; it has done its work when it has written a line."""
    begin = "import os, sys, threading\nfrom kimi_tui.temporary_folders import TemporaryFolder\n"
    started = subprocess.Popen(
        [sys.executable, "-c", begin + code],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "made\n"
    return started


def test_a_killed_program_leaves_its_folder_to_the_next_start(top: Path) -> None:
    code = "one = TemporaryFolder('tmp')\nos.mkdir(one.path + '/closed', 0)\nprint('made', flush=True)\ninput()"
    with program(code) as running, program(code) as killed:
        killed.kill()
        killed.wait()
        assert len(list(top.iterdir())) == 2
        assert sweep() == 1
        (kept,) = top.iterdir()
        # Its program uses it, and removes it at its end.
        assert sweep() == 0
        running.communicate("\n", timeout=60)
        assert not kept.exists()


def test_the_end_waits_for_a_thread_that_still_writes(top: Path) -> None:
    code = """
def work():
    with TemporaryFolder("trial", awaited=True) as one:
        print("made", flush=True)
        ending.wait()
        os.makedirs(one.path + "/a/b")

ending = threading.Event()
threading.Thread(target=work, daemon=True).start()
input()
from kimi_tui import temporary_folders
usual = TemporaryFolder.end
def end(self):
    threading.Timer(0.05, ending.set).start()
    usual(self)
TemporaryFolder.end = end
"""
    with program(code) as running:
        running.communicate("\n", timeout=60)
    assert running.returncode == 0
    assert list(top.iterdir()) == []


def test_the_end_waits_for_a_thread_that_is_removing_it(top: Path) -> None:
    code = """
from kimi_tui import temporary_folders
removed, usual = threading.Event(), temporary_folders.remove_tree

def slowly(path):
    removed.set()
    threading.Event().wait(0.2)
    usual(path)

def work():
    with TemporaryFolder("trial", awaited=True):
        print("made", flush=True)

temporary_folders.remove_tree = slowly
threading.Thread(target=work, daemon=True).start()
removed.wait()
"""
    with program(code) as running:
        running.wait(60)
    assert list(top.iterdir()) == []


def test_a_fork_that_ends_leaves_the_folder_of_its_parent() -> None:
    with TemporaryFolder("tmp") as one:
        if not (child := os.fork()):
            temporary_folders.remove_all()
            os._exit(0)
        os.waitpid(child, 0)
        assert os.path.isdir(one.path)
    assert not os.path.exists(one.path)


def test_what_is_not_ours_stays(top: Path) -> None:
    (top / "elsewhere").mkdir()
    (top / "kimi-tui-run-tmp-link").symlink_to("elsewhere")
    (top / "kimi-tui-run-tmp-file").write_text("")
    (top / "kimi-tui-other").mkdir()
    # Earlier versions had no locks, so the age tells.
    for name, age_s in (("old", 7200), ("new", 60)):
        former = top / f"kimi-tui-trial-{name}"
        former.mkdir()
        os.utime(former, (0, time.time() - age_s))
    assert sweep() == 1
    assert sorted(one.name for one in top.iterdir()) == [
        "elsewhere",
        "kimi-tui-other",
        "kimi-tui-run-tmp-file",
        "kimi-tui-run-tmp-link",
        "kimi-tui-trial-new",
    ]


def test_folders_of_others_stay(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "kimi-tui-run-tmp-a").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert sweep() == 0


def test_no_sweep_takes_a_folder_that_is_just_being_made(top: Path) -> None:
    stop = threading.Event()

    def sweeps() -> None:
        while not stop.is_set():
            sweep()

    sweeping = threading.Thread(target=sweeps)
    sweeping.start()
    try:
        for _ in range(200):
            with TemporaryFolder("tmp") as one:
                os.mkdir(os.path.join(one.path, "a"))
    finally:
        stop.set()
        sweeping.join()
    assert list(top.iterdir()) == []


def test_it_is_private_and_removed_twice() -> None:
    one = TemporaryFolder("tmp")
    assert os.stat(one.path).st_mode & 0o777 == 0o700
    one.remove()
    one.remove()
    assert not os.path.exists(one.path)


def test_the_work_folder_is_no_place_for_temporary_files(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = top / f"{temporary_folders.PREFIX}mine"
    mine.mkdir()
    monkeypatch.chdir(top)
    # Python takes the current folder where all others are full.
    monkeypatch.delenv("TMPDIR")
    with pytest.raises(OSError, match="No space left"):
        TemporaryFolder("tmp")
    assert sweep() == 0
    assert list(top.iterdir()) == [mine]
    # The user may have named it.
    monkeypatch.setenv("TMPDIR", str(top))
    with TemporaryFolder("tmp") as one:
        assert Path(one.path).parent == top
