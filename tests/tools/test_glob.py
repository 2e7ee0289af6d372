from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tool_env import Bench

from kimi_tui.tools import glob
from kimi_tui.tools.base import TO_GO_OUTSIDE, ApprovalQuestion
from kimi_tui.tools.glob import patterns_of
from kimi_tui.tools.outcome import ToolRejected


def plant(bench: Bench, *paths: str) -> None:
    for path in paths:
        bench.write(path, "x\n")


async def found(bench: Bench, pattern: str, **arguments: object) -> list[str]:
    outcome = await bench.run("Glob", pattern=pattern, **arguments)
    assert not outcome.is_error, outcome.message
    return outcome.output.splitlines()


async def test_patterns(bench: Bench) -> None:
    plant(bench, "a.py", "b.txt", "src/c.py", "src/deep/d.py", "src/deep/e.pyi", ".hidden/f.py")
    assert await found(bench, "*") == ["a.py", "b.txt", "src/"]
    assert await found(bench, "*", include_dirs=False) == ["a.py", "b.txt"]
    assert await found(bench, "*.py") == ["a.py"]
    assert await found(bench, "**/*.py") == ["a.py", "src/c.py", "src/deep/d.py"]
    assert await found(bench, "src/**/*.{py,pyi}") == [
        "src/c.py",
        "src/deep/d.py",
        "src/deep/e.pyi",
    ]
    assert await found(bench, "src/**") == [
        "src/c.py",
        "src/deep/",
        "src/deep/d.py",
        "src/deep/e.pyi",
    ]
    assert await found(bench, "**/[de].*") == ["src/deep/d.py", "src/deep/e.pyi"]
    assert await found(bench, "?.py") == ["a.py"]
    assert await found(bench, "src/deep/d.py") == ["src/deep/d.py"]
    assert await found(bench, ".hidden/*") == [".hidden/f.py"]
    assert await found(bench, ".*/*.py") == [".hidden/f.py"]
    assert await found(bench, "*.py", directory="src") == ["src/c.py"]
    assert await found(bench, str(bench.work_dir / "src" / "*.py")) == ["src/c.py"]
    assert bench.approver.asks == []


async def test_nothing_found_is_no_error(bench: Bench) -> None:
    outcome = await bench.run("Glob", pattern="missing/*.py")
    assert (outcome.is_error, outcome.brief) == (False, "no match")
    assert "No match." in outcome.message


async def test_ignored_files_are_passed_over_unless_named(bench: Bench) -> None:
    plant(
        bench, "a.py", "build/b.py", "node_modules/x/c.py", "src/gen.py", "src/keep.py", ".git/d.py"
    )
    bench.write(".gitignore", "build/\nnode_modules\n")
    bench.write("src/.gitignore", "gen.py\n")
    assert await found(bench, "**/*.py") == ["a.py", "src/keep.py"]
    assert await found(bench, "build/*.py") == ["build/b.py"]
    assert await found(bench, "*.py", directory="node_modules/x") == ["node_modules/x/c.py"]
    assert await found(bench, "src/*.py") == ["src/keep.py"]


async def test_links_are_listed_and_not_followed(bench: Bench, tmp_path: Path) -> None:
    plant(bench, "real/a.py")
    (bench.work_dir / "loop").symlink_to(".")
    (bench.work_dir / "out").symlink_to(tmp_path)
    assert await found(bench, "**/*.py") == ["real/a.py"]
    assert await found(bench, "*") == ["loop", "out", "real/"]


async def test_outside_asks(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.py").write_text("")
    for pattern, directory in (
        ("*.py", "../other"),
        ("../other/*.py", "."),
        (f"{tmp_path}/other/*", "."),
    ):
        bench.approver.asks.clear()
        assert await found(bench, pattern, directory=directory) == [
            str(tmp_path / "other" / "a.py")
        ]
        (ask,) = bench.approver.asks
        shown = f"{tmp_path / 'other'}\npattern  {pattern}"
        assert (ask.asks, ask.detail) == (TO_GO_OUTSIDE, shown)
        assert "lists names only in this folder" in ask.where


@pytest.mark.parametrize("directory", ["../othr", "../other/a.py"])
async def test_what_is_outside_is_not_even_named_unasked(
    bench: Bench, tmp_path: Path, directory: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.py").write_text("")
    bench.approver.refuse = ""
    with pytest.raises(ToolRejected):
        await bench.run("Glob", pattern="*", directory=directory)
    bench.approver.refuse = None
    assert (await bench.run("Glob", pattern="*", directory=directory)).is_error
    assert [ask.asks for ask in bench.approver.asks] == [TO_GO_OUTSIDE] * 2


async def test_a_folder_that_is_none(bench: Bench) -> None:
    plant(bench, "source/a.py")
    outcome = await bench.run("Glob", pattern="*", directory="sources")
    assert outcome.message == "sources does not exist. Nearest in that folder: source/."
    outcome = await bench.run("Glob", pattern="*", directory="source/a.py")
    assert "is a file, not a folder" in outcome.message
    outcome = await bench.run("Glob", pattern="*", directory="/proc/self")
    assert outcome.is_error
    outcome = await bench.run("Glob", pattern="{a,b}" * 7)
    assert "more than 64 alternatives" in outcome.message


@pytest.mark.exhaustive
async def test_a_thousand_matches_are_enough(bench: Bench) -> None:
    for n in range(1100):
        (bench.work_dir / f"f{n:04}.txt").touch()
    outcome = await bench.run("Glob", pattern="*.txt")
    names = outcome.output.splitlines()
    assert (len(names), names[0], names[-1]) == (1000, "f0000.txt", "f0999.txt")
    assert "The first 1,000 matches; there are more." in outcome.message


async def test_an_unreadable_name_and_a_full_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.work_dir / os.fsdecode(b"caf\xe9")).touch()
    assert await found(bench, "caf*") == ["caf\ufffd"]
    monkeypatch.setattr(glob, "LIMIT_S", -1.0)
    outcome = await bench.run("Glob", pattern="*")
    assert "there may be more" in outcome.message


async def test_a_cancelled_search_stops(bench: Bench) -> None:
    for n in range(30):
        for m in range(30):
            (bench.work_dir / f"{n}/{m}").mkdir(parents=True)
    running = asyncio.create_task(bench.run("Glob", pattern="**/*.py"))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def git_lists(folder: Path) -> list[str]:
    subprocess.run(["git", "init", "-q", folder], check=True)
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return listed.stdout.split()


async def test_the_same_files_as_git(bench: Bench) -> None:
    plant(
        bench,
        *("a.py", "b.log", "keep.log", "out/x.py", "out/keep/y.py", "deep/out/z.py", "deep/w.tmp"),
        *("vendor/a/b.py", "vendor/lib.py", "docs/_build/i.html", "docs/index.html"),
    )
    bench.write(".gitignore", "*.log\n!keep.log\n/out/*\n!/out/keep\n_build/\n*.tmp\nvendor/**\n")
    bench.write("deep/.gitignore", "!w.tmp\n")
    listed = git_lists(bench.work_dir)
    visible = sorted(path for path in listed if not re.search(r"(^|/)\.", path))
    assert await found(bench, "**", include_dirs=False) == visible


names = st.text(alphabet="ab.", min_size=1, max_size=3).filter(lambda name: name.strip("."))
parts = st.sampled_from(["**", "*", "a*", "?", "*b", "a", "b", "[ab]"])


@given(st.lists(parts, min_size=1, max_size=4), st.lists(names, min_size=1, max_size=4))
def test_a_pattern_matches_what_its_expression_says(pattern: list[str], path: list[str]) -> None:
    (compiled,) = patterns_of("/".join(["**", *pattern]))
    state = compiled.begin()
    for name in path:
        state = compiled.step(state, name)
    expected = _reference(["**", *pattern], path)
    assert compiled.matched(state) == expected


def _reference(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        if _reference(pattern[1:], path):
            return True
        return bool(path) and not path[0].startswith(".") and _reference(pattern, path[1:])
    if not path or path[0].startswith("."):
        return False
    one = re.escape(pattern[0]).replace(r"\*", ".*").replace(r"\?", ".").replace(r"\[ab\]", "[ab]")
    return re.fullmatch(one, path[0]) is not None and _reference(pattern[1:], path[1:])


async def test_the_time_for_an_answer_is_not_the_searchs(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.py").write_text("")
    passed_s = 0.0
    real_ask = bench.approver.ask

    async def ask_for_long(ask: ApprovalQuestion) -> str:
        nonlocal passed_s
        passed_s = glob.LIMIT_S * 2
        return await real_ask(ask)

    monkeypatch.setattr(bench.approver, "ask", ask_for_long)
    # Only this module gets the clock, because the event loop would run by it, too.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s)
    monkeypatch.setattr(glob, "time", clock)
    outcome = await bench.run("Glob", pattern="*", directory="../other")
    assert outcome.output == str(tmp_path / "other" / "a.py")
    assert outcome.message == "1 match."


@pytest.mark.exhaustive
async def test_a_large_folder_is_left_when_the_time_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        (bench.work_dir / f"f{n:03}.txt").touch()
    monkeypatch.setattr(glob, "_CHECKED_NAMES", 10)
    monkeypatch.setattr(glob, "_SORTED_NAMES", 7)
    assert await found(bench, "*") == [f"f{n:03}.txt" for n in range(300)]
    ticks = iter(range(1000))
    monkeypatch.setattr(glob, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    outcome = await bench.run("Glob", pattern="*")
    assert "Stopped after 20 s" in outcome.message
    assert not outcome.output


async def test_hostile_rules_and_patterns_do_not_hold_it_up(bench: Bench) -> None:
    bench.write(".gitignore", "*a*a*a*a*a*a*a*b\n" * 20_000)
    plant(bench, "a" * 200, "b.py")
    assert await found(bench, "*") == ["a" * 200, "b.py"]
    assert await found(bench, "*a" * 90 + "b") == []
    outcome = await bench.run("Glob", pattern="{" + "," * 5000)
    assert "longer than any path" in outcome.message
    (bench.work_dir / ".gitignore").unlink()
    os.mkfifo(bench.work_dir / ".gitignore")
    assert await found(bench, "b*") == ["b.py"]


async def test_a_name_with_the_signs_of_a_pattern_is_found_by_itself(bench: Bench) -> None:
    """Frameworks call folders `[id]` and `[...slug]`; a model takes these for names, as a shell does where nothing else matches."""
    for path in ("app/[id]/page.tsx", "app/[...slug]/page.tsx", "app/i/page.tsx", "{a,b}.txt"):
        bench.write(path, "x")
    outcome = await bench.run("Glob", pattern="app/[id]/page.tsx")
    assert outcome.output.splitlines() == ["app/[id]/page.tsx", "app/i/page.tsx"]
    outcome = await bench.run("Glob", pattern="app/[...slug]/*")
    assert outcome.output.splitlines() == ["app/[...slug]/page.tsx"]
    outcome = await bench.run("Glob", pattern="{a,b}.txt")
    assert outcome.output == "{a,b}.txt"


async def test_a_composed_pattern_finds_a_name_in_parts(bench: Bench) -> None:
    bench.write("cafe\u0301.txt", "x")
    for pattern in ("caf\xe9.txt", "caf?.txt", "*.txt"):
        assert (await bench.run("Glob", pattern=pattern)).output == "cafe\u0301.txt"
