"""The demo's project: it has the bug that the story tells of, and its folder goes unless it holds something of the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kimi_tui.demo import BAD_ROW, LOG_ROWS, SAMPLE_ROWS, Demo, prepare
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.events import Event, EventRecord, FilesChanged, FilesRestored, TurnEnd


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Demo:
    """The demo, in a folder of the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return prepare()


def _run(demo: Demo, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=demo.work_dir,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_own_tests_pass_and_rows_are_skipped(demo: Demo) -> None:
    tests = _run(demo, "-m", "unittest")
    assert tests.returncode == 0
    assert "Ran 5 tests" in tests.stderr
    imported = _run(demo, "-m", "importer", "samples/people.csv")
    assert f"{SAMPLE_ROWS - 7} rows" in imported.stdout
    assert "4 fields, not 3" in imported.stderr


def test_the_log_names_one_row(demo: Demo) -> None:
    lines = (demo.work_dir / "import.log").read_text().splitlines()
    assert len(lines) == LOG_ROWS
    (bad,) = [line for line in lines if " ok, " not in line]
    assert lines.index(bad) == BAD_ROW - 1
    assert f"row {BAD_ROW} skipped" in bad


def test_two_demos_do_not_meet(demo: Demo) -> None:
    other = prepare(speed=0)
    assert other.work_dir != demo.work_dir
    assert not demo.data_dir.is_relative_to(demo.work_dir)


LATER_S = 3_600.0


def told(demo: Demo, *events: tuple[float, Event]) -> None:
    """Write a session's record: events, each some seconds after the beginning."""
    folder = demo.data_dir / "sessions" / "folder" / "id"
    folder.mkdir(parents=True)
    lines = [
        json.dumps(encode_record(EventRecord(number, demo.made_at + after_s, event)))
        for number, (after_s, event) in enumerate(events, 1)
    ]
    (folder / "wire.jsonl").write_text("\n".join(["not json", *lines]) + "\n", encoding="utf-8")


def write(demo: Demo, name: str, after_s: float) -> None:
    """Change a file of the project, some seconds after the beginning."""
    path = demo.work_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed", encoding="utf-8")
    os.utime(path, (demo.made_at + after_s, demo.made_at + after_s))


def test_nothing_is_left_behind(demo: Demo) -> None:
    assert demo.work_dir.is_dir()
    assert demo.leave(clean=True) == ""
    assert not demo.folder.exists()


def test_what_the_agent_did_goes_with_it(demo: Demo) -> None:
    told(
        demo,
        (10.0, FilesChanged("u", ("importer/tokenizer.py", "new.py"))),
        (15.0, FilesRestored("u", ("README.md",))),
        (20.0, TurnEnd("done")),
    )
    write(demo, "importer/tokenizer.py", 10.0)
    write(demo, "new.py", 10.0)
    write(demo, "README.md", 15.0)
    write(demo, "importer/__pycache__/tokenizer.pyc", 12.0)
    assert demo.leave(clean=True) == ""
    assert not demo.folder.exists()


@pytest.mark.parametrize("name", ["mine.txt", "README.md"])
def test_what_the_person_wrote_stays_and_is_named(demo: Demo, name: str) -> None:
    told(demo, (10.0, FilesChanged("u", ("new.py",))), (20.0, TurnEnd("done")))
    write(demo, name, 1.0)
    assert str(demo.folder) in demo.leave(clean=True)
    assert (demo.work_dir / name).read_text(encoding="utf-8") == "changed"


def test_what_they_changed_after_the_agent_stays_too(demo: Demo) -> None:
    told(demo, (10.0, FilesChanged("u", ("new.py",))), (20.0, TurnEnd("done")))
    write(demo, "new.py", LATER_S)
    assert str(demo.folder) in demo.leave(clean=True)
    assert demo.folder.is_dir()


def test_after_a_crash_all_of_it_stays(demo: Demo) -> None:
    assert str(demo.folder) in demo.leave(clean=False)
    assert demo.folder.is_dir()
