"""Which changed files a check may depend on."""

from __future__ import annotations

import pytest

from kimi_tui.futures.own_checks import judging, may_judge

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


def test_the_scripts_of_the_check_may_judge_and_its_other_words_do_not() -> None:
    changed = ["check.sh", "tool.py", "run", "out.txt"]
    assert judging(changed, "./run && sh check.sh; env A=1 python tool.py | cat out.txt") == (
        "check.sh",
        "run",
        "tool.py",
    )
    assert judging(changed, "test -f out.txt") == ()
