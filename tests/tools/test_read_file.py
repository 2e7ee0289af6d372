from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import pwd
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_images import flat, saved
from support.tool_env import Bench
from support.watching import loop_waits, n_descriptors, peak_bytes, reset_peak_bytes, until

from kimi_tui.tools import read_file
from kimi_tui.tools.base import (
    RESULTS_NAME,
    SESSION_STANDS_FOR,
    TO_GO_OUTSIDE,
    lasting_name,
)
from kimi_tui.tools.files import HASHED_LIMIT_BYTES, open_for_reading
from kimi_tui.tools.outcome import ToolRejected
from kimi_tui.tools.paths import ResolvedPath
from kimi_tui.tools.text import LINE_CHARS, WINDOW_BYTES, LineWindow


def numbered(first: int, *lines: str) -> str:
    return "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(lines, start=first))


async def test_a_file_with_another_name_is_asked_for(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key\n")
    (bench.work_dir / "notes.txt").hardlink_to(secret)
    await bench.run("ReadFile", path="notes.txt")
    assert "it may also be a file elsewhere" in bench.approver.asks[-1].where
    bench.approver.refuse = "no"
    with pytest.raises(ToolRejected):
        await bench.run("ReadFile", path="notes.txt")


async def test_a_sub_agents_version_of_a_file_is_read_without_asking_where_the_conversation_went(
    bench: Bench, tmp_path: Path
) -> None:
    own, other = (
        tmp_path / home / "sessions" / "bucket" / name / RESULTS_NAME
        for home, name in (("home", "fork"), ("former/home", "session"))
    )
    version = own / "general-101" / "src" / "f1.py"
    version.parent.mkdir(parents=True)
    version.write_text("its version\n")
    env = replace(bench.env, results=own)

    async def read(path: Path) -> str:
        text = json.dumps({"path": str(path)})
        return (await bench.tools.run("ReadFile", text, env)).output

    # The second path is that of the session with which a copy began, in a data folder that has moved.
    for path in (version, other / "general-101" / "src" / "f1.py"):
        assert "its version" in await read(path)
    assert not bench.approver.asks
    # Links, secrets and paths elsewhere are asked about.
    secret, link = tmp_path / "secret", own / "general-101" / "link"
    secret.write_text("key\n")
    link.symlink_to(secret)
    (own / "general-101" / ".env").write_text("KEY=1\n")
    elsewhere = tmp_path / "other" / RESULTS_NAME / "general-101" / "src" / "f1.py"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("of the user\n")
    for path, words in (
        (link, "key"),
        (own / "general-101" / ".env", "KEY"),
        (elsewhere, "of the user"),
    ):
        assert words in await read(path)
        assert len(bench.approver.asks) == 1
        bench.approver.asks.clear()


async def test_a_long_result_is_found_by_its_name_in_the_session_that_has_it(
    bench: Bench, tmp_path: Path
) -> None:
    own, other = (tmp_path / name / RESULTS_NAME for name in ("fork", "session"))
    for folder in (own, other):
        folder.mkdir(parents=True)
    env = replace(bench.env, results=own)
    named = other / "0123456789ab.txt"
    (own / named.name).write_text("all of it\n")

    async def read(path: Path) -> str:
        text = json.dumps({"path": str(path)})
        return (await bench.tools.run("ReadFile", text, env)).output

    # The session that the path names is gone.
    assert "all of it" in await read(named)
    assert not bench.approver.asks
    # Any other name is a path like all others, and so is a link.
    secret = tmp_path / "secret"
    secret.write_text("key\n")
    for name in ("notes.txt", "0123456789ac.txt"):
        (own / name).symlink_to(secret)
        (other / name).write_text("of the other\n")
        assert "of the other" in await read(other / name)
        assert len(bench.approver.asks) == 1
        bench.approver.asks.clear()
    environ = {SESSION_STANDS_FOR: f"{own.parent}\n{other.parent}"}
    assert lasting_name(own / "a.txt", environ) == str(other / "a.txt")
    assert lasting_name(tmp_path / "forked" / "a.txt", environ) == str(tmp_path / "forked/a.txt")
    assert lasting_name(own / "a.txt", {}) == str(own / "a.txt")


async def test_a_yes_for_a_folder_outside_is_none_to_a_file_with_another_name(
    bench: Bench, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("a\n")
    (tmp_path / "secret").write_text("key\n")
    (docs / "plain").hardlink_to(tmp_path / "secret")
    for tool, more in (("ReadFile", {}), ("Grep", {"pattern": "k"})):
        await bench.run(tool, path=str(docs / "a.txt"), **more)
        assert bench.approver.asks[-1].session_key == f"read outside:{docs}"
        bench.approver.asks.clear()
        await bench.run(tool, path=str(docs / "plain"), **more)
        ask = bench.approver.asks[-1]
        assert "it may also be a file elsewhere" in ask.where
        assert ask.session_key == ask.session_offer == ""
        # A file that is read needs one question; a search in such files asks again when it has found something.
        assert len(bench.approver.asks) == (1 if tool == "ReadFile" else 2)
    bench.approver.asks.clear()
    await bench.run("Grep", path=str(docs), pattern="k")
    assert [ask.session_key for ask in bench.approver.asks] == [f"search outside:{docs}", ""]


async def test_a_whole_file(bench: Bench) -> None:
    bench.write("a.txt", "one\ntwo\n\nfour")
    outcome = await bench.run("ReadFile", path="a.txt")
    assert outcome.output == numbered(1, "one", "two", "", "four")
    assert outcome.message == "The whole file, 4 lines."
    assert (outcome.brief, outcome.is_error) == ("4 lines", False)
    assert bench.approver.asks == []


async def test_a_part_says_how_to_go_on(bench: Bench) -> None:
    bench.write("a.txt", "".join(f"line {n}\n" for n in range(1, 51)))
    outcome = await bench.run("ReadFile", path="a.txt", line_offset=10, n_lines=3)
    assert outcome.output == numbered(10, "line 10", "line 11", "line 12")
    assert outcome.message == "Lines 10 to 12 of 50. Continue with line_offset=13."
    assert outcome.brief == "lines 10–12"
    outcome = await bench.run("ReadFile", path="a.txt", line_offset=49)
    assert outcome.message == "Lines 49 to 50 of 50."
    # Models that count from 0 mean the first line.
    outcome = await bench.run("ReadFile", path="a.txt", line_offset=0, n_lines=1)
    assert outcome.output == numbered(1, "line 1")


async def test_the_end_by_a_negative_offset(bench: Bench) -> None:
    bench.write("a.txt", "".join(f"line {n}\n" for n in range(1, 51)))
    outcome = await bench.run("ReadFile", path="a.txt", line_offset=-2)
    assert outcome.output == numbered(49, "line 49", "line 50")
    assert outcome.message == "Lines 49 to 50 of 50."
    outcome = await bench.run("ReadFile", path="a.txt", line_offset=-1000)
    assert outcome.message == "The whole file, 50 lines."
    outcome = await bench.run("ReadFile", path="a.txt", line_offset=-5, n_lines=2)
    assert outcome.output == numbered(46, "line 46", "line 47")
    assert "Continue with line_offset=48." in outcome.message


async def test_limits_of_lines_and_bytes(bench: Bench) -> None:
    bench.write("many.txt", "x\n" * 1500)
    outcome = await bench.run("ReadFile", path="many.txt")
    assert outcome.output.count("\n") == 999
    assert outcome.message == "Lines 1 to 1000 of 1,500. Continue with line_offset=1001."
    bench.write("long.txt", "a" * 5000 + "\nshort\n")
    outcome = await bench.run("ReadFile", path="long.txt")
    assert outcome.output == numbered(1, "a" * LINE_CHARS + " …", "short")
    assert "Lines over 2000 characters are cut" in outcome.message
    bench.write("wide.txt", ("y" * 1999 + "\n") * 100)
    outcome = await bench.run("ReadFile", path="wide.txt")
    assert len(outcome.output) < WINDOW_BYTES + 2000
    assert "Stopped at 100 KiB." in outcome.message
    assert "Continue with line_offset=52." in outcome.message


@pytest.mark.exhaustive
async def test_a_huge_file_is_streamed(bench: Bench, tmp_path: Path) -> None:
    block = b"".join(b"line %07d of a big log file\n" % n for n in range(100_000))
    path = bench.work_dir / "big.log"
    with path.open("wb") as file:
        for _ in range(20):
            file.write(block)
    assert path.stat().st_size > HASHED_LIMIT_BYTES * 5
    async with loop_waits() as waits:
        head = await bench.run("ReadFile", path="big.log", n_lines=2)
        middle = await bench.run("ReadFile", path="big.log", line_offset=1_000_001, n_lines=1)
        tail = await bench.run("ReadFile", path="big.log", line_offset=-1)
    assert head.output.startswith("     1\tline 0000000")
    assert "Lines 1 to 2 of 2,000,000." in head.message
    assert middle.output == "1000001\tline 0000000 of a big log file"
    assert tail.output == "2000000\tline 0099999 of a big log file"
    assert len(waits) > 5, "the event loop goes on meanwhile"


async def test_one_endless_line_takes_no_memory(bench: Bench) -> None:
    with (bench.work_dir / "line").open("wb") as file:
        file.write(b"z")
        file.truncate(1)
        file.seek(0)
        for _ in range(64):
            file.write(b"z" * 1_000_000)
    before = reset_peak_bytes()
    outcome = await bench.run("ReadFile", path="line")
    assert outcome.output == f"     1\t{'z' * LINE_CHARS} …"
    assert peak_bytes() - before < 20_000_000


async def test_crlf_invalid_bytes_and_byte_order_mark(bench: Bench) -> None:
    bench.write("a.txt", b"one\r\ncaf\xe9\r\n")
    outcome = await bench.run("ReadFile", path="a.txt")
    assert outcome.output == numbered(1, "one", "caf\ufffd")
    assert "Bytes that are not UTF-8" in outcome.message
    assert "Lines end with CR LF." in outcome.message


async def test_an_empty_file_and_an_offset_past_the_end(bench: Bench) -> None:
    bench.write("empty", "")
    outcome = await bench.run("ReadFile", path="empty")
    assert (outcome.message, outcome.is_error) == ("empty is empty.", False)
    bench.write("two", "a\nb\n")
    outcome = await bench.run("ReadFile", path="two", line_offset=3)
    assert outcome.is_error
    assert "has only 2 lines; line_offset 3 is past its end" in outcome.message


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so the test gives its rights away."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_what_is_no_readable_text_is_an_error_at_once(bench: Bench) -> None:
    bench.write("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(50))
    bench.write("data.bin", b"abc\0def" * 100)
    bench.write("folder/readme.txt", "x")
    os.mkfifo(bench.work_dir / "pipe")
    (bench.work_dir / "nowhere").symlink_to("gone")
    (bench.work_dir / "circle").symlink_to("circle")
    (bench.work_dir / "device").symlink_to("/dev/zero")
    (bench.work_dir / "self").symlink_to("/proc/self")
    listening = socket.socket(socket.AF_UNIX)
    with tempfile.TemporaryDirectory() as short:
        listening.bind(f"{short}/s")
        os.rename(f"{short}/s", bench.work_dir / "socket")
    cases = {
        "picture.png": ("is a PNG image (58 bytes), not text", "this model cannot see images"),
        "data.bin": ("is a binary file (700 bytes), not text", "binary"),
        "folder": ("is a folder, not a file", "a folder"),
        ".": ("is a folder, not a file", "a folder"),
        "pipe": ("is a named pipe", "not a file"),
        "socket": ("is a socket", "not a file"),
        "nowhere": ("does not exist", "no such file"),
        "circle": ("is a link that leads nowhere or in a circle", "broken link"),
        "device": ("leads to /dev", "not a file"),
        "self/environ": ("leads to /proc", "not a file"),
        "/dev/zero": ("leads to /dev", "not a file"),
        "/dev/stdin": ("leads to /dev", "not a file"),
        "/proc/self/environ": ("leads to /proc", "not a file"),
        "/sys/kernel/mm": ("leads to /sys", "not a file"),
        "picture.png/x": ("picture.png is a file, not a folder", "no such file"),
        "a" * 300: ("name is too long", "bad path"),
        "a\0b": ("characters that no file name can have", "bad path"),
        "  ": ("path is empty", "no path"),
    }
    for path, (says, brief) in cases.items():
        outcome = await bench.run("ReadFile", path=path)
        assert outcome.is_error, path
        assert says in outcome.message, (path, outcome.message)
        assert outcome.brief == brief, path
        assert outcome.output == ""
    assert bench.approver.asks == []
    listening.close()


async def test_a_path_that_cannot_be_followed_is_refused_in_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.work_dir / "link").symlink_to("other")
    readlink = os.readlink

    def swapped(path: str, **more: Any) -> str:
        if str(path).endswith("/link"):
            # The former link is a file by now.
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return readlink(path, **more)

    monkeypatch.setattr(os, "readlink", swapped)
    for tool in ("ReadFile", "Glob", "Grep", "WriteFile"):
        # Which of them depends on how Python follows links.
        for path, says in (
            ("link", "Invalid argument|leads nowhere|does not exist"),
            ("/proc/1/cwd/x", "leads to /proc"),
        ):
            more = {"directory": path} if tool == "Glob" else {"path": path}
            more |= {"pattern": "x"} if tool in ("Glob", "Grep") else {}
            more |= {"content": "x"} if tool == "WriteFile" else {}
            outcome = await bench.run(tool, **more)
            assert outcome.is_error, (tool, path)
            assert re.search(says, outcome.message), (tool, path)
            assert "\n" not in outcome.message


async def test_a_missing_file_names_the_nearest(bench: Bench) -> None:
    bench.write("src/tokenizer.py", "")
    bench.write("src/other.txt", "")
    outcome = await bench.run("ReadFile", path="src/tokeniser.py")
    assert (
        outcome.message == "src/tokeniser.py does not exist. Nearest in that folder: tokenizer.py."
    )
    outcome = await bench.run("ReadFile", path="scr/tokenizer.py")
    assert "Nearest in that folder: src/." in outcome.message


async def test_an_unreadable_file() -> None:
    # Not in pytest's own folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        bench = Bench(Path(folder))
        secret = bench.write("secret", "x")
        secret.chmod(0o000)
        bench.write("closed/inner", "x")
        (bench.work_dir / "closed").chmod(0o000)
        with as_nobody():
            outcome = await bench.run("ReadFile", path="secret")
            inner = await bench.run("ReadFile", path="closed/inner")
        (bench.work_dir / "closed").chmod(0o755)
    assert (outcome.is_error, outcome.message) == (True, "secret: no permission.")
    assert (inner.is_error, inner.message) == (True, "closed/inner: no permission.")


async def test_outside_the_work_folder_asks(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "other" / "a.txt"
    outside.parent.mkdir()
    outside.write_text("far\n")
    (bench.work_dir / "link").symlink_to(outside)
    for path in (str(outside), "../other/a.txt", "link"):
        bench.approver.asks.clear()
        outcome = await bench.run("ReadFile", path=path)
        assert outcome.output == numbered(1, "far")
        (ask,) = bench.approver.asks
        assert (ask.asks, ask.detail) == (TO_GO_OUTSIDE, str(outside))
        assert ask.session_key == f"read outside:{outside.parent}"
        assert not ask.protected
    assert "link is a link to it" in bench.approver.asks[0].where
    bench.approver.refuse = ""
    with pytest.raises(ToolRejected):
        await bench.run("ReadFile", path="link")


async def test_a_file_that_vanishes_while_the_question_stands_is_missing(
    bench: Bench, tmp_path: Path
) -> None:
    outside = tmp_path / "a.txt"
    outside.write_text("far\n")
    bench.approver.before_yes = outside.unlink
    outcome = await bench.run("ReadFile", path=str(outside))
    assert (outcome.is_error, outcome.brief) == (True, "no such file")


async def test_the_neighbour_with_a_longer_name_is_outside(bench: Bench) -> None:
    neighbour = bench.work_dir.with_name("work2")
    neighbour.mkdir()
    (neighbour / "a").write_text("x")
    await bench.run("ReadFile", path=str(neighbour / "a"))
    assert [ask.asks for ask in bench.approver.asks] == [TO_GO_OUTSIDE]


async def test_places_with_keys_ask_every_time(bench: Bench, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("key\n")
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "config.toml").write_text("x\n")
    bench.environ.update(HOME=str(home), KIMI_TUI_HOME=str(ours))
    await bench.run("ReadFile", path="~/.ssh/id")
    await bench.run("ReadFile", path=str(ours / "config.toml"))
    assert [ask.detail for ask in bench.approver.asks] == ["~/.ssh/id", str(ours / "config.toml")]
    for ask in bench.approver.asks:
        assert ask.protected
        assert ask.session_offer == ""


@pytest.mark.parametrize("named", [None, ""])
async def test_places_with_keys_are_known_where_no_variable_names_the_home_folder(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    (tmp_path / ".curlrc").write_text("key\n")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path)))
    del bench.environ["HOME"]
    bench.environ.update({} if named is None else {"HOME": named})
    await bench.run("ReadFile", path=str(tmp_path / ".curlrc"))
    assert [ask.protected for ask in bench.approver.asks] == [True]


async def test_work_folder_reached_by_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "alias").symlink_to(real)
    bench = Bench(tmp_path / "alias")
    bench.write("a", "x\n")
    for path in ("a", str(tmp_path / "alias" / "a"), str(real / "a")):
        assert not (await bench.run("ReadFile", path=path)).is_error
    assert bench.approver.asks == []


async def test_a_cancelled_read_leaves_no_descriptor(bench: Bench) -> None:
    with (bench.work_dir / "big").open("wb") as file:
        file.truncate(200_000_000)
        file.seek(0)
        file.write(b"text\n" * 2000)
    before = n_descriptors()
    running = asyncio.create_task(bench.run("ReadFile", path="big", line_offset=999_999_999))
    assert await until(lambda: n_descriptors() > before)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await until(lambda: n_descriptors() == before)


async def test_a_cancel_while_the_file_is_opened_leaves_no_descriptor(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a", "x\n")
    entered, go = threading.Event(), threading.Event()
    opened: list[int] = []

    def slowly(place: ResolvedPath) -> tuple[int, os.stat_result]:
        entered.set()
        go.wait(5)
        found = open_for_reading(place)
        opened.append(found[0])
        return found

    monkeypatch.setattr(read_file, "open_for_reading", slowly)
    before = n_descriptors()
    running = asyncio.create_task(bench.run("ReadFile", path="a"))
    assert await until(entered.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go.set()
    # Opening ends in its thread first; only then is there something to close.
    assert await until(lambda: bool(opened) and n_descriptors() == before)


lines_of_text = st.lists(st.text(alphabet="ab\r é€", max_size=12), max_size=30)


@given(
    lines=lines_of_text,
    ends=st.booleans(),
    first=st.integers(1, 35),
    count=st.integers(1, 35),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_a_window_is_what_splitting_the_whole_gives(
    lines: list[str], ends: bool, first: int, count: int, sizes: list[int]
) -> None:
    data = "\n".join(lines).encode() + (b"\n" if ends and lines else b"")
    whole = data.decode().split("\n")
    if whole[-1] == "":
        whole.pop()
    window = LineWindow(first, count)
    position, turn = 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        window.feed(data[position : position + size])
        position, turn = position + size, turn + 1
    window.finish()
    assert [line.text for line in window.lines] == [
        line.removesuffix("\r") for line in whole[first - 1 : first - 1 + count]
    ]
    assert [line.number for line in window.lines] == list(range(first, first + len(window.lines)))
    assert window.total == len(whole)


async def test_an_image_is_shown_whatever_it_is_called_and_nothing_else_is(bench: Bench) -> None:
    bench.sees = True
    bench.write("notes.txt", saved(flat(640, 480)))
    seen = await bench.run("ReadFile", path="notes.txt")
    assert seen.message.startswith("An image, 640x480, ")
    assert (seen.brief, [one.name for one in seen.images]) == ("640x480", ["notes.txt"])
    bench.write("drawing.svg", "<svg/>\n")
    assert (await bench.run("ReadFile", path="drawing.svg")).output.endswith("<svg/>")
    with (bench.work_dir / "huge.png").open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.truncate(1 << 30)
    bench.write("cut.png", saved(flat(640, 480))[:900])
    for path, says, brief in (
        ("huge.png", "is 1,074 MB", "too large, 1,074 MB"),
        ("cut.png", "is a broken PNG image", "a broken image"),
    ):
        refused = await bench.run("ReadFile", path=path)
        assert says in refused.message
        assert (refused.is_error, refused.images, refused.brief) == (True, (), brief)
