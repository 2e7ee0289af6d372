"""Which changed files a check may depend on."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.ordinary_rights import ordinary_rights

from kimi_tui.futures.own_checks import judging, may_judge, remove_new_caches

JUDGING = [
    "tests/test_a.py",
    "pkg/__tests__/a.js",
    "src/a.test.ts",
    "src/a.spec.tsx",
    "a_test.go",
    "test_a.py",
    "src/WidgetTest.java",
    "conftest.py",
    "pyproject.toml",
    "package.json",
    "Makefile",
    "jest.config.js",
    ".github/workflows/ci.yml",
    ".gitlab-ci.yml",
]
OTHERS = [
    "src/a.py",
    "latest.py",
    "contest/a.py",
    "src/protest.js",
    "docs/testing.md",
    "README.md",
    "tests/__pycache__/test_a.cpython-311.pyc",
    "tests/.pytest_cache/v/cache/lastfailed",
]


@pytest.mark.parametrize("path", JUDGING)
def test_tests_and_settings_of_ci_may_judge(path: str) -> None:
    assert may_judge(path)


@pytest.mark.parametrize("path", OTHERS)
def test_other_files_do_not(path: str) -> None:
    assert not may_judge(path)


def test_what_was_cached_since_a_time_is_made_again_and_the_rest_stays(tmp_path: Path) -> None:
    def write(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        return path

    stay = [write("__pycache__/old.pyc"), write(".mypy_cache/3.11/old.json"), write("src/a.py")]
    time.sleep(0.02)  # the clock of the file system is that much coarser
    since = time.time()
    time.sleep(0.02)
    outside = write("outside/kept.txt")
    stay += [outside, write("src/new.py"), write("src/pycache/kept")]
    new = [
        write(f"{cache}/deep/new")
        for cache in ("__pycache__", "t/.ruff_cache", ".venv/__pycache__")
    ]
    # A time that a command sets does not count, nor does a folder that is read-only.
    os.utime(new[0], (1, 1))
    new[1].parent.chmod(0o500)
    (tmp_path / "src" / "__pycache__").symlink_to(outside.parent)
    (tmp_path / "__pycache__" / "link").symlink_to(outside.parent)
    remove_new_caches(tmp_path, since)
    assert all(path.is_file() for path in stay)
    assert not any(path.exists() for path in new)
    assert not os.path.lexists(tmp_path / "src" / "__pycache__")
    assert not os.path.lexists(tmp_path / "__pycache__" / "link")


def test_a_cache_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    hidden = tmp_path / "__pycache__"
    hidden.mkdir()
    hidden.chmod(0o300)
    with ordinary_rights():
        remove_new_caches(tmp_path, time.time() + 1)
        with pytest.raises(PermissionError):
            remove_new_caches(tmp_path, time.time() - 1)
    hidden.chmod(0o700)


def test_a_forged_compiled_test_does_not_decide(tmp_path: Path) -> None:
    """Python runs a compiled file whose header has the time and the size of its source."""
    source = tmp_path / "tests" / "check_it.py"
    source.parent.mkdir()
    source.write_text("raise SystemExit(1)\n")
    honest = source.read_bytes()
    since = time.time() - 1
    times = (source.stat().st_atime_ns, source.stat().st_mtime_ns)
    source.write_text("raise SystemExit(0)\n")
    os.utime(source, ns=times)
    py_compile.compile(str(source), doraise=True)
    source.write_bytes(honest)
    os.utime(source, ns=times)

    def run() -> int:
        command = [sys.executable, "-c", "import check_it"]
        return subprocess.run(
            command, cwd=source.parent, check=False, capture_output=True
        ).returncode

    assert run() == 0
    remove_new_caches(tmp_path, since)
    assert run() == 1


def test_the_scripts_of_the_check_may_judge_and_its_other_words_do_not() -> None:
    changed = ["check.sh", "tool.py", "run", "out.txt"]
    assert judging(changed, "./run && sh check.sh; env A=1 python tool.py | cat out.txt") == (
        "check.sh",
        "run",
        "tool.py",
    )
    assert judging(changed, "test -f out.txt") == ()
