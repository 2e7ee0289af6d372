"""The demo's project: it has the bug that the story tells of, and the story's fix cures it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kimi_tui.demo.play import Demo, prepare
from kimi_tui.demo.project import BAD_ROW, LOG_ROWS, SAMPLE_ROWS


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Demo:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return prepare(speed=0)


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
