from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
import time
from pathlib import Path

import pytest
from support.tool_env import Bench
from support.watching import until

from kimi_tui.tools import grep_engine
from kimi_tui.tools.base import ToolRejected

REAL_RG = shutil.which("rg")


@pytest.fixture(params=["wheel", "rg"])
def searched(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """A work folder, searched by either engine."""
    if request.param == "rg" and REAL_RG is None:
        pytest.skip("rg is not installed")
    if request.param == "wheel":
        bench.environ["PATH"] = "/nowhere"
    bench.write("src/a.py", "import os\n\ndef find(x):\n    return x\n\n\nfind(1)\n")
    bench.write("src/b.ts", "function find() {}\nconst FIND = 1\n")
    bench.write("notes.md", "how to find it\n")
    bench.write("ignored/c.py", "find\n")
    bench.write(".hidden/d.py", "find\n")
    bench.write("data.bin", b"find\0find\n")
    bench.write(".gitignore", "ignored/\n")
    (bench.work_dir / ".git").mkdir()
    return bench


async def test_files(searched: Bench) -> None:
    outcome = await searched.run("Grep", pattern="find")
    assert outcome.output.splitlines() == ["notes.md", "src/a.py", "src/b.ts"]
    assert (outcome.message, outcome.brief) == ("3 files.", "3 files")
    assert searched.asker.asks == []


async def test_content_under_the_files_path(searched: Bench) -> None:
    outcome = await searched.run("Grep", pattern=r"find\(", output_mode="content")
    assert outcome.output == (
        "src/a.py\n3:def find(x):\n7:find(1)\n\nsrc/b.ts\n1:function find() {}"
    )
    assert outcome.message == "3 lines in 2 files."


async def test_context(searched: Bench) -> None:
    outcome = await searched.run(
        "Grep", pattern=r"find\(", path="src/a.py", output_mode="content", context=1
    )
    assert outcome.output == ("src/a.py\n2-\n3:def find(x):\n4-    return x\n--\n6-\n7:find(1)")
    assert outcome.message == "2 lines in 1 file."
    arguments = {"pattern": "return", "path": "src", "output_mode": "content", "-B": 1, "-i": True}
    outcome = await searched.run("Grep", **arguments)
    assert outcome.output == "src/a.py\n3-def find(x):\n4:    return x"


async def test_counts(searched: Bench) -> None:
    outcome = await searched.run("Grep", pattern="find", output_mode="count_matches")
    assert outcome.output.splitlines() == ["notes.md:1", "src/a.py:2", "src/b.ts:1"]


async def test_narrowing(searched: Bench) -> None:
    assert (await searched.run("Grep", pattern="find", glob="*.md")).output == "notes.md"
    assert (await searched.run("Grep", pattern="find", glob="!src/**")).output == "notes.md"
    assert (await searched.run("Grep", pattern="find", type="py")).output == "src/a.py"
    assert (await searched.run("Grep", pattern="find", type="py", glob="b*")).output == ""
    assert (await searched.run("Grep", pattern="find", type="TS", glob="b*")).output == "src/b.ts"
    assert (await searched.run("Grep", pattern="find", path="src/b.ts")).output == "src/b.ts"
    assert (await searched.run("Grep", pattern="find", path="ignored")).output == "ignored/c.py"
    assert (await searched.run("Grep", pattern="find", path=".hidden")).output == ".hidden/d.py"


async def test_case_and_multiline(searched: Bench) -> None:
    outcome = await searched.run(
        "Grep", pattern="const find", ignore_case=True, output_mode="content"
    )
    assert outcome.output == "src/b.ts\n2:const FIND = 1"
    outcome = await searched.run(
        "Grep", pattern="find.*return", multiline=True, output_mode="content"
    )
    assert outcome.output == "src/a.py\n3:def find(x):\n4:    return x"
    assert (await searched.run("Grep", pattern="find.*return")).output == ""


async def test_windows_of_the_answer(searched: Bench) -> None:
    searched.write("many.txt", "".join(f"hit {n}\n" for n in range(500)))
    outcome = await searched.run("Grep", pattern="hit", output_mode="content", head_limit=3)
    assert outcome.output == "many.txt\n1:hit 0\n2:hit 1"
    assert "go on with offset=3" in outcome.message
    outcome = await searched.run(
        "Grep", pattern="hit", output_mode="content", head_limit=2, offset=3
    )
    assert outcome.output == "3:hit 2\n4:hit 3"
    outcome = await searched.run("Grep", pattern="hit", output_mode="content", offset=900)
    assert "offset 900 is past the end" in outcome.message


async def test_a_bad_pattern_is_explained(searched: Bench) -> None:
    outcome = await searched.run("Grep", pattern="find(")
    assert (outcome.is_error, outcome.brief) == (True, "bad pattern")
    assert "unclosed group" in outcome.message


async def test_no_match(searched: Bench) -> None:
    outcome = await searched.run("Grep", pattern="nowhere to be seen")
    assert (outcome.is_error, outcome.message, outcome.brief) == (False, "No match.", "no match")


async def test_text_that_is_not_utf8_is_found(searched: Bench) -> None:
    searched.write("latin.txt", b"first\ncaf\xe9 find\n")
    outcome = await searched.run("Grep", pattern="find", glob="*.txt", output_mode="content")
    assert outcome.output == "latin.txt\n2:caf\ufffd find"


async def test_long_lines_are_cut(searched: Bench) -> None:
    searched.write("min.js", "x" * 100_000 + "find" + "y" * 100_000 + "\n")
    outcome = await searched.run("Grep", pattern="x+find", glob="*.js", output_mode="content")
    assert len(outcome.output) < 1000


async def test_odd_names(searched: Bench) -> None:
    searched.write("we ird-3:x.txt", "needle\n")
    searched.write("-dash.txt", "needle\n")
    outcome = await searched.run("Grep", pattern="needle", output_mode="content")
    assert outcome.output == "-dash.txt\n1:needle\n\nwe ird-3:x.txt\n1:needle"
    assert (await searched.run("Grep", pattern="-d", path="-dash.txt")).output == ""
    assert (await searched.run("Grep", pattern="needle", path="-dash.txt")).output == "-dash.txt"


async def test_what_cannot_be_searched(bench: Bench) -> None:
    os.mkfifo(bench.work_dir / "pipe")
    bench.write("source.py", "x")
    cases = {
        "pipe": "is a named pipe",
        "sources.py": "does not exist. Nearest in that folder: source.py.",
        "/proc/self": "leads to /proc",
        "/dev/zero": "leads to /dev",
    }
    started = time.monotonic()
    for path, says in cases.items():
        outcome = await bench.run("Grep", pattern="x", path=path)
        assert outcome.is_error
        assert says in outcome.message
    assert time.monotonic() - started < 1
    outcome = await bench.run("Grep", pattern="x", type="pyy")
    assert "Did you mean py" in outcome.message


async def test_outside_asks(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    outcome = await bench.run("Grep", pattern="needle", path="..", glob="*.txt")
    assert outcome.output == str(tmp_path / "a.txt")
    (ask,) = bench.asker.asks
    assert (ask.action, ask.question, ask.detail) == (
        "read outside",
        "Search this folder?",
        str(tmp_path),
    )


async def test_what_is_outside_is_not_even_named_unasked(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("")
    bench.asker.refuse = ""
    with pytest.raises(ToolRejected):
        await bench.run("Grep", pattern="x", path="../secret.txt")
    bench.asker.refuse = None
    outcome = await bench.run("Grep", pattern="x", path="../secret.txt")
    assert outcome.is_error
    assert "secrets.txt" in outcome.message
    assert [ask.action for ask in bench.asker.asks] == ["read outside"] * 2


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


async def test_rg_on_the_path_is_used_with_the_short_environment(
    bench: Bench, tmp_path: Path
) -> None:
    program(
        tmp_path / "bin" / "rg",
        f"import json, os, sys\njson.dump([sys.argv, dict(os.environ)], open({str(tmp_path / 'seen')!r}, 'w'))\n"
        "sys.stdout.write('./x.py\\x00' + '7:hit\\n')\n",
    )
    bench.environ.update(
        PATH=f"{tmp_path}/bin:/usr/bin", OPENAI_API_KEY="sk-secret", RIPGREP_CONFIG_PATH="/x"
    )
    outcome = await bench.run("Grep", pattern="-hit", output_mode="content")
    assert outcome.output == "x.py\n7:hit"
    seen = (tmp_path / "seen").read_text()
    assert "--no-config" in seen
    assert "--regexp=-hit" in seen
    assert "sk-secret" not in seen
    assert "RIPGREP_CONFIG_PATH" not in seen


async def test_an_rg_in_the_work_folder_is_never_run(bench: Bench) -> None:
    program(bench.work_dir / "bin" / "rg", "open('ran', 'w')")
    bench.write("a.txt", "needle\n")
    bench.environ["PATH"] = f"{bench.work_dir}/bin:bin:."
    assert (await bench.run("Grep", pattern="needle")).output == "a.txt"
    assert not (bench.work_dir / "ran").exists()


def slow_rg(bench: Bench, folder: Path, text: str) -> None:
    program(
        folder / "bin" / "rg",
        f"import os, sys, time\nopen({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))\n{text}",
    )
    bench.environ["PATH"] = f"{folder}/bin"


def ended(folder: Path) -> bool:
    return not Path("/proc", (folder / "pid").read_text(), "exe").exists()


async def test_a_search_is_stopped_after_its_time(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_rg(bench, tmp_path, "print('./a\\0', end='', flush=True); time.sleep(60)")
    monkeypatch.setattr(grep_engine, "LIMIT_S", 0.5)
    outcome = await bench.run("Grep", pattern="x")
    assert outcome.output == "a"
    assert "there may be more" in outcome.message
    assert ended(tmp_path)


async def test_a_flood_of_matches_is_bounded(bench: Bench, tmp_path: Path) -> None:
    slow_rg(bench, tmp_path, "while True: print('./a\\0001:hit', 'x' * 200)")
    outcome = await bench.run("Grep", pattern="x", output_mode="content")
    assert len(outcome.output) <= 50_000
    assert "far more than can be shown" in outcome.message
    assert ended(tmp_path)


async def test_a_cancelled_search_ends_its_process(bench: Bench, tmp_path: Path) -> None:
    slow_rg(bench, tmp_path, "time.sleep(60)")
    running = asyncio.create_task(bench.run("Grep", pattern="x"))
    assert await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended(tmp_path)


async def test_an_engine_that_dies_is_an_error(bench: Bench, tmp_path: Path) -> None:
    slow_rg(bench, tmp_path, "os.abort()")
    outcome = await bench.run("Grep", pattern="x")
    assert (outcome.is_error, outcome.brief) == (True, "search failed")
