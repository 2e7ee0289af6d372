"""WriteFile and StrReplaceFile: what they keep, what they refuse, and what they ask."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.access_lists import NAME, access_list, can_have_attributes
from support.tool_env import Bench
from support.watching import until

from kimi_tui import filesystem
from kimi_tui.tools import file_edit, files
from kimi_tui.tools.base import TO_EDIT, TO_EDIT_ELSEWHERE, TO_GO_OUTSIDE
from kimi_tui.tools.file_edit import Edit, replaced
from kimi_tui.tools.outcome import FileEdit, ToolProblem, ToolRejected
from kimi_tui.tools.paths import ResolvedPath, locate, protected_reason


def temporaries(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


# --- writing


async def test_a_new_file_in_new_folders(bench: Bench) -> None:
    outcome = await bench.run("WriteFile", path="a/b/c.txt", content="one\ntwo\n")
    assert (bench.work_dir / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert outcome.message == "Created a/b/c.txt; it has 2 lines now."
    assert outcome.effects == (FileEdit("a/b/c.txt", None, "one\ntwo\n"),)
    (ask,) = bench.approver.asks
    assert (ask.asks, ask.question, ask.detail) == (
        TO_EDIT,
        "Create this file?",
        "a/b/c.txt",
    )
    assert (ask.session_key, ask.protected) == ("edits", False)
    assert ask.session_offer == "Yes, and allow edits in this folder for this session"
    assert ask.edits == (FileEdit("a/b/c.txt", None, "one\ntwo\n"),)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((bench.work_dir / "a/b/c.txt").stat().st_mode) == 0o666 & ~umask


async def test_overwriting_shows_both_texts_and_appending_adds(bench: Bench) -> None:
    bench.write("a", "old\n")
    outcome = await bench.run("WriteFile", path="a", content="new\n")
    assert outcome.effects == (FileEdit("a", "old\n", "new\n"),)
    outcome = await bench.run("WriteFile", path="a", content="more", mode="append")
    assert outcome.message == "Appended to a; it has 2 lines now."
    outcome = await bench.run("WriteFile", path="a", content=" of it\n", mode="append")
    assert (bench.work_dir / "a").read_text() == "new\nmore of it\n"
    outcome = await bench.run("WriteFile", path="b", content="x\n", mode="append")
    assert outcome.message == "Created b; it has 1 line now."


async def test_a_no_changes_nothing(bench: Bench) -> None:
    bench.write("a", "old\n")
    bench.approver.refuse = ""
    with pytest.raises(ToolRejected):
        await bench.run("WriteFile", path="a", content="new")
    with pytest.raises(ToolRejected):
        await bench.run("WriteFile", path="sub/b", content="new")
    with pytest.raises(ToolRejected):
        await bench.run("StrReplaceFile", path="a", edit={"old": "old", "new": "new"})
    assert (bench.work_dir / "a").read_text() == "old\n"
    assert os.listdir(bench.work_dir) == ["a"]


@pytest.mark.parametrize("tool", ["WriteFile", "StrReplaceFile"])
async def test_the_access_list_and_noted_attributes_are_kept(bench: Bench, tool: str) -> None:
    if not can_have_attributes(bench.work_dir):
        pytest.skip("this file system has no access lists")
    file = bench.write("a", "one\n")
    os.setxattr(file, NAME, access_list())
    os.setxattr(file, "user.origin", b"elsewhere")
    arguments = (
        {"content": "two\n"} if tool == "WriteFile" else {"edit": {"old": "one", "new": "two"}}
    )
    await bench.run(tool, path="a", **arguments)
    assert file.read_text() == "two\n"
    assert os.getxattr(file, NAME) == access_list()
    assert os.getxattr(file, "user.origin") == b"elsewhere"


@pytest.mark.parametrize("tool", ["WriteFile", "StrReplaceFile"])
async def test_mode_is_kept(bench: Bench, tool: str) -> None:
    script = bench.write("run.sh", "echo old\n")
    script.chmod(0o2751)
    if tool == "WriteFile":
        await bench.run("WriteFile", path="run.sh", content="echo new\n")
    else:
        await bench.run("StrReplaceFile", path="run.sh", edit={"old": "old", "new": "new"})
    assert script.read_text() == "echo new\n"
    assert stat.S_IMODE(script.stat().st_mode) == 0o2751


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
async def test_owner_is_kept(bench: Bench) -> None:
    path = bench.write("a", "old\n")
    os.chown(path, 1234, 5678)
    await bench.run("WriteFile", path="a", content="new\n")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)


async def test_line_endings_byte_order_mark_and_final_newline_are_kept(bench: Bench) -> None:
    bench.write("crlf", b"one\r\ntwo\r\n")
    await bench.run("WriteFile", path="crlf", content="a\nb")
    assert (bench.work_dir / "crlf").read_bytes() == b"a\r\nb\r\n"
    await bench.run("WriteFile", path="crlf", content="c\n", mode="append")
    assert (bench.work_dir / "crlf").read_bytes() == b"a\r\nb\r\nc\r\n"
    await bench.run("StrReplaceFile", path="crlf", edit={"old": "a\nb", "new": "x\ny\nz"})
    assert (bench.work_dir / "crlf").read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"
    bench.write("bom", b"\xef\xbb\xbfone\n")
    await bench.run("WriteFile", path="bom", content="two")
    assert (bench.work_dir / "bom").read_bytes() == b"\xef\xbb\xbftwo\n"
    bench.write("open", b"one\ntwo")
    await bench.run("StrReplaceFile", path="open", edit={"old": "one", "new": "1"})
    assert (bench.work_dir / "open").read_bytes() == b"1\ntwo"
    await bench.run("StrReplaceFile", path="open", edit={"old": "two\n", "new": "2\n"})
    assert (bench.work_dir / "open").read_bytes() == b"1\n2"


async def test_mixed_line_ends_are_found_and_kept(bench: Bench) -> None:
    """A model sees no line ends of a file, so they may not keep a passage from being found."""
    mixed = bench.write("mixed", b"one\r\ntwo\r\nthree\nfour\r\n")
    edit = {"old": "two\nthree\nfour", "new": "two\n3\nmore\nfour"}
    assert not (await bench.run("StrReplaceFile", path="mixed", edit=edit)).is_error
    assert mixed.read_bytes() == b"one\r\ntwo\r\n3\r\nmore\r\nfour\r\n"
    # The number of lines is the same, so each keeps its own end.
    mixed.write_bytes(b"one\r\ntwo\nthree\r\n")
    await bench.run("ReadFile", path="mixed")
    edit = {"old": "one\r\ntwo\r\nthree", "new": "1\r\n2\r\nthree"}
    await bench.run("StrReplaceFile", path="mixed", edit=edit)
    assert mixed.read_bytes() == b"1\r\n2\nthree\r\n"
    # So do equal lines at both ends of a passage that gets longer.
    mixed.write_bytes(b"one\ntwo\nthree\r\nfour\n")
    await bench.run("ReadFile", path="mixed")
    edit = {"old": "one\ntwo\nthree\nfour", "new": "one\n2\nmore\nthree\nfour"}
    await bench.run("StrReplaceFile", path="mixed", edit=edit)
    assert mixed.read_bytes() == b"one\n2\nmore\nthree\r\nfour\n"


async def test_a_file_whose_lines_end_with_cr_alone_has_lines(bench: Bench) -> None:
    old_mac = bench.write("mac", b"one\rtwo\rthree\r")
    read = await bench.run("ReadFile", path="mac")
    assert read.output.splitlines() == ["     1\tone", "     2\ttwo", "     3\tthree"]
    assert "Lines end with CR." in read.message
    edit = {"old": "one\ntwo\n", "new": "one\n2\nnew\n"}
    outcome = await bench.run("StrReplaceFile", path="mac", edit=edit)
    assert old_mac.read_bytes() == b"one\r2\rnew\rthree\r"
    (effect,) = outcome.effects
    assert isinstance(effect, FileEdit)
    assert (effect.before, effect.after) == ("one\ntwo\nthree\n", "one\n2\nnew\nthree\n")
    await bench.run("WriteFile", path="mac", content="a\nb")
    assert old_mac.read_bytes() == b"a\rb\r"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
async def test_utf16_and_utf32_with_a_mark_are_read_and_written_as_they_were(
    bench: Bench, encoding: str
) -> None:
    path = bench.write("windows.txt", "\ufeffGröße 1\r\n😀 two\r\n".encode(encoding))
    read = await bench.run("ReadFile", path="windows.txt")
    assert read.output == "     1\tGröße 1\n     2\t😀 two"
    assert f"The file is {encoding[:6].upper()} text" in read.message
    edit = {"old": "1\n😀", "new": "2\n漢"}
    outcome = await bench.run("StrReplaceFile", path="windows.txt", edit=edit)
    assert path.read_bytes() == "\ufeffGröße 2\r\n漢 two\r\n".encode(encoding)
    (effect,) = outcome.effects
    assert isinstance(effect, FileEdit)
    assert (effect.before, effect.unseen) == ("Größe 1\n😀 two\n", "")
    await bench.run("WriteFile", path="windows.txt", content="anew")
    assert path.read_bytes() == "\ufeffanew\r\n".encode(encoding)


async def test_broken_utf16_is_binary(bench: Bench) -> None:
    odd = b"\xff\xfea\0\n\0\x00\xd8"
    bench.write("broken", odd)
    read = await bench.run("ReadFile", path="broken")
    assert (read.is_error, read.brief) == (True, "binary")
    outcome = await bench.run("StrReplaceFile", path="broken", edit={"old": "a", "new": "b"})
    assert outcome.is_error
    assert (bench.work_dir / "broken").read_bytes() == odd


async def test_an_edit_of_a_file_with_several_names_says_what_becomes_of_the_others(
    bench: Bench,
) -> None:
    bench.write("one", "old\n")
    os.link(bench.work_dir / "one", bench.work_dir / "two")
    await bench.run("WriteFile", path="one", content="new\n")
    (ask,) = bench.approver.asks
    assert "2 hard links: this path gets the new text, the other keeps the old" in (ask.where)
    assert (bench.work_dir / "two").read_text() == "old\n"


async def test_a_composed_name_finds_a_file_whose_letters_are_in_parts(bench: Bench) -> None:
    bench.write("cafe\u0301/re\u0301sume\u0301.txt", "one\n")
    typed = "caf\xe9/r\xe9sum\xe9.txt"
    assert (await bench.run("ReadFile", path=typed)).output == "     1\tone"
    await bench.run("WriteFile", path=typed, content="two\n")
    # If files of both forms exist, the form of the given path decides.
    bench.write("re\u0301.txt", "parts\n")
    bench.write("r\xe9.txt", "composed\n")
    assert "composed" in (await bench.run("ReadFile", path="r\xe9.txt")).output
    assert sorted(path.name for path in bench.work_dir.glob("**/*.txt")) == [
        *("re\u0301.txt", "re\u0301sume\u0301.txt", "r\xe9.txt")
    ]
    # A new name is written as it was asked for, in a folder that is there.
    await bench.run("WriteFile", path="caf\xe9/n\xe9e", content="x")
    assert (bench.work_dir / "cafe\u0301" / "n\xe9e").read_text() == "x"


async def test_bytes_that_are_no_utf8_survive_an_edit(bench: Bench) -> None:
    bench.write("latin", b"caf\xe9\nprice 1\n\xff\xfe end\n")
    outcome = await bench.run("StrReplaceFile", path="latin", edit={"old": "1", "new": "2 €"})
    assert (bench.work_dir / "latin").read_bytes() == (
        b"caf\xe9\nprice 2 \xe2\x82\xac\n\xff\xfe end\n"
    )
    (effect,) = outcome.effects
    assert isinstance(effect, FileEdit)
    effect.after.encode()


async def test_mixed_line_endings_stay_as_they_are(bench: Bench) -> None:
    bench.write("mixed", b"a\r\nb\nc\nd\r\ne\nf\n")
    await bench.run("StrReplaceFile", path="mixed", edit={"old": "b\nc", "new": "B\nC"})
    await bench.run("StrReplaceFile", path="mixed", edit={"old": "d\ne", "new": "D\nE"})
    assert (bench.work_dir / "mixed").read_bytes() == b"a\r\nB\nC\nD\r\nE\nf\n"


# --- what was changed by someone else


async def test_a_file_changed_since_it_was_read_is_refused_until_read_again(bench: Bench) -> None:
    bench.write("a", "one\n")
    await bench.run("ReadFile", path="a")
    bench.write("a", "two\n")
    for call in (
        {"path": "a", "content": "x"},
        {"path": "a", "content": "x", "mode": "append"},
    ):
        outcome = await bench.run("WriteFile", **call)
        assert (outcome.is_error, outcome.brief) == (True, "changed on disk")
    outcome = await bench.run("StrReplaceFile", path="a", edit={"old": "two", "new": "x"})
    assert "changed on disk since you last read it" in outcome.message
    assert (bench.work_dir / "a").read_text() == "two\n"
    assert bench.approver.asks == []
    await bench.run("ReadFile", path="a")
    assert not (await bench.run("WriteFile", path="a", content="x")).is_error


async def test_a_partial_read_knows_the_whole_version(bench: Bench) -> None:
    bench.write("a", "1\n2\n3\n")
    await bench.run("ReadFile", path="a", n_lines=1)
    bench.write("a", "1\n2\n4\n")
    outcome = await bench.run("StrReplaceFile", path="a", edit={"old": "1", "new": "x"})
    assert outcome.brief == "changed on disk"


async def test_own_writes_and_mere_touches_are_no_foreign_changes(bench: Bench) -> None:
    path = bench.write("a", "one\n")
    await bench.run("ReadFile", path="a")
    os.utime(path, (1, 1))
    path.chmod(0o600)
    assert not (await bench.run("WriteFile", path="a", content="two\n")).is_error
    assert not (
        await bench.run("StrReplaceFile", path="a", edit={"old": "two", "new": "3"})
    ).is_error
    assert not (await bench.run("WriteFile", path="new", content="x\n")).is_error
    assert not (await bench.run("WriteFile", path="new", content="y\n")).is_error


async def test_a_line_without_an_end_gets_line_feeds(bench: Bench) -> None:
    path = bench.write("a", "one")
    await bench.run("StrReplaceFile", path="a", edit={"old": "one", "new": "one\ntwo\n"})
    assert path.read_bytes() == b"one\ntwo\n"


async def test_a_change_while_the_question_stands_is_refused(bench: Bench) -> None:
    path = bench.write("a", "one\n")
    bench.approver.before_yes = lambda: path.write_text("mine\n")
    outcome = await bench.run("StrReplaceFile", path="a", edit={"old": "one", "new": "two"})
    assert (outcome.is_error, outcome.brief) == (True, "changed on disk")
    assert path.read_text() == "mine\n"
    new = bench.work_dir / "new"
    bench.approver.before_yes = lambda: new.write_text("mine\n")
    outcome = await bench.run("WriteFile", path="new", content="yours\n")
    assert outcome.brief == "changed on disk"
    assert new.read_text() == "mine\n"
    assert temporaries(bench.work_dir) == []


async def test_a_file_that_was_closed_to_others_while_the_question_stood_stays_closed(
    bench: Bench,
) -> None:
    path = bench.write("a", "one\n")
    path.chmod(0o644)
    bench.approver.before_yes = lambda: path.chmod(0o600)
    await bench.run("StrReplaceFile", path="a", edit={"old": "one", "new": "two"})
    assert path.read_text() == "two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_file_that_vanished_meanwhile_is_not_made_anew(bench: Bench) -> None:
    path = bench.write("a", "one\n")
    bench.approver.before_yes = path.unlink
    outcome = await bench.run("StrReplaceFile", path="a", edit={"old": "one", "new": "two"})
    assert outcome.brief == "changed on disk"
    assert not path.exists()


# --- links and other traps


async def test_what_somebody_writes_while_the_new_text_is_written_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a", "old\n")
    create = filesystem.create_file

    def created(*args: Any, **options: Any) -> None:
        create(*args, **options)
        (bench.work_dir / "a").write_text("by hand\n")

    monkeypatch.setattr(file_edit, "create_file", created)
    outcome = await bench.run("WriteFile", path="a", content="new\n")
    assert outcome.is_error
    assert "changed on disk in the meantime" in outcome.message
    assert (bench.work_dir / "a").read_text() == "by hand\n"
    assert temporaries(bench.work_dir) == []


async def test_a_link_is_followed_to_its_target_and_stays_a_link(bench: Bench) -> None:
    target = bench.write("real/a.txt", "one\n")
    link = bench.work_dir / "link.txt"
    link.symlink_to("real/a.txt")
    await bench.run("StrReplaceFile", path="link.txt", edit={"old": "one", "new": "two"})
    assert target.read_text() == "two\n"
    assert link.is_symlink()
    (ask,) = bench.approver.asks
    assert (ask.asks, ask.detail) == (TO_EDIT, "real/a.txt")
    assert "link.txt is a link to it" in ask.where


@pytest.mark.parametrize("way", ["absolute", "dots", "link", "folder link", "dangling link"])
async def test_writing_outside_always_asks_and_shows_the_real_target(
    bench: Bench, tmp_path: Path, way: str
) -> None:
    outside = tmp_path / "out"
    outside.mkdir()
    target = outside / "a.txt"
    if way != "dangling link":
        target.write_text("one\n")
    (bench.work_dir / "link").symlink_to(target)
    (bench.work_dir / "folder").symlink_to(outside)
    path = {
        "absolute": str(target),
        "dots": "../out/a.txt",
        "link": "link",
        "folder link": "folder/a.txt",
        "dangling link": "link",
    }[way]
    outcome = await bench.run("WriteFile", path=path, content="two\n")
    assert not outcome.is_error
    assert target.read_text() == "two\n"
    (ask,) = bench.approver.asks
    assert (ask.asks, ask.detail) == (TO_EDIT_ELSEWHERE, str(target))
    assert ask.protected
    assert ask.session_key == ask.session_offer == ""


async def test_a_link_put_in_the_way_while_the_question_stands(
    bench: Bench, tmp_path: Path
) -> None:
    outside = tmp_path / "out"
    outside.mkdir()
    (outside / "a").write_text("theirs\n")
    bench.write("sub/a", "mine\n")

    def swap() -> None:
        os.rename(bench.work_dir / "sub", bench.work_dir / "moved")
        (bench.work_dir / "sub").symlink_to(outside)

    bench.approver.before_yes = swap
    outcome = await bench.run("WriteFile", path="sub/a", content="x\n")
    assert (outcome.is_error, outcome.brief) == (True, "path changed")
    assert (outside / "a").read_text() == "theirs\n"
    assert (bench.work_dir / "moved/a").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("StrReplaceFile", {"path": "a", "edit": {"old": "their own secrit", "new": "x"}}),
        ("StrReplaceFile", {"path": "a", "edit": {"old": "e", "new": "x"}}),
        ("StrReplaceFile", {"path": "aa", "edit": {"old": "e", "new": "x"}}),
        ("WriteFile", {"path": "a", "content": "their own secret\n"}),
        ("WriteFile", {"path": ".", "content": "x"}),
    ],
    ids=["nearest passage", "count", "nearest name", "the same", "a folder"],
)
async def test_an_edit_outside_that_fails_tells_nothing_unasked(
    bench: Bench, tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    outside = tmp_path / "out"
    outside.mkdir()
    (outside / "a").write_text("their own secret\n")
    asked = {**arguments, "path": str(outside / arguments["path"])}
    bench.approver.refuse = ""
    with pytest.raises(ToolRejected):
        await bench.run(tool, **asked)
    (ask,) = bench.approver.asks
    assert ask.asks == TO_GO_OUTSIDE
    bench.approver.refuse = None
    assert (await bench.run(tool, **asked)).is_error


@pytest.mark.parametrize("deep", [True, False], ids=["a folder on the way", "the file itself"])
def test_a_part_that_became_a_link_after_resolving_is_refused(
    bench: Bench, tmp_path: Path, deep: bool
) -> None:
    outside = tmp_path / "out"
    outside.mkdir()
    (outside / "a").write_text("theirs\n")
    bench.write("sub/deeper/a", "mine\n")
    place = locate("sub/deeper/a", bench.work_dir, {})
    content = files.read_whole(place)
    target = bench.work_dir / ("sub/deeper" if deep else "sub/deeper/a")
    os.rename(target, bench.work_dir / "moved")
    target.symlink_to(outside if deep else outside / "a")
    with pytest.raises(ToolProblem, match="link"):
        files.open_for_reading(place)
    with pytest.raises(ToolProblem, match="link"):
        file_edit.replace_file(place, b"x", content)
    assert (outside / "a").read_text() == "theirs\n"


async def test_a_link_that_leads_elsewhere_after_the_question(bench: Bench) -> None:
    bench.write("a", "a\n")
    bench.write("b", "b\n")
    link = bench.work_dir / "link"
    link.symlink_to("a")

    def turn() -> None:
        link.unlink()
        link.symlink_to("b")

    bench.approver.before_yes = turn
    outcome = await bench.run("WriteFile", path="link", content="x\n")
    assert (outcome.is_error, outcome.brief) == (True, "path changed")
    assert (bench.work_dir / "a").read_text() == "a\n"
    assert (bench.work_dir / "b").read_text() == "b\n"


def test_a_file_that_becomes_a_link_between_look_and_open(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").write_text("secret\n")
    path = bench.write("a", "mine\n")
    real = files.stat_regular

    def look_then_swap(name: str, folder: int, place: ResolvedPath) -> os.stat_result | None:
        found = real(name, folder, place)
        path.unlink()
        path.symlink_to(tmp_path / "theirs")
        return found

    monkeypatch.setattr(files, "stat_regular", look_then_swap)
    with pytest.raises(ToolProblem):
        files.open_for_reading(locate("a", bench.work_dir, {}))


async def test_a_new_file_never_replaces_one_that_appears_at_the_last_moment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def appear(descriptor: int) -> None:
        bench.write("new", "theirs\n")
        real(descriptor)

    monkeypatch.setattr(filesystem.os, "fsync", appear)
    outcome = await bench.run("WriteFile", path="new", content="ours\n")
    assert (outcome.is_error, outcome.brief) == (True, "changed on disk")
    assert (bench.work_dir / "new").read_text() == "theirs\n"
    assert temporaries(bench.work_dir) == []


async def test_a_file_with_several_names_asks_every_time(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("one\n")
    os.link(outside, bench.work_dir / "inside")
    await bench.run("WriteFile", path="inside", content="two\n")
    (ask,) = bench.approver.asks
    assert ask.protected
    assert ask.session_offer == ""
    assert "the file has 2 hard links" in ask.where
    # A replaced file is a new one: the other name keeps what it had.
    assert outside.read_text() == "one\n"


async def test_special_files_are_refused_at_once(bench: Bench) -> None:
    os.mkfifo(bench.work_dir / "pipe")
    (bench.work_dir / "null").symlink_to("/dev/null")
    (bench.work_dir / "folder").mkdir()
    for path in ("pipe", "null", "/dev/null", "/proc/self/oom_adj", "folder", "."):
        for outcome in (
            await bench.run("WriteFile", path=path, content="x"),
            await bench.run("StrReplaceFile", path=path, edit={"old": "a", "new": "b"}),
        ):
            assert outcome.is_error, path
    assert bench.approver.asks == []


async def test_a_read_only_file_is_refused(bench: Bench) -> None:
    path = bench.write("a", "one\n")
    path.chmod(0o444)
    outcome = await bench.run("WriteFile", path="a", content="x")
    assert outcome.message == "a is read-only (mode 0444)."
    assert path.read_text() == "one\n"


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".GIT/config",
        ".vscode/settings.json",
        ".envrc",
        ".env.local",
        "AGENTS.md",
        "sub/agents.md",
        ".cursor/rules/x.mdc",
        "mcp.json",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        "tests/conftest.py",
        "sitecustomize.py",
        "Makefile",
        "build/rules.mk",
        ".husky/pre-push",
        ".pre-commit-config.yaml",
        "package.json",
    ],
)
async def test_files_that_run_later_always_ask(bench: Bench, path: str) -> None:
    content = '{"scripts": {"postinstall": "x"}}' if path == "package.json" else "x\n"
    await bench.run("WriteFile", path=path, content=content)
    (ask,) = bench.approver.asks
    assert (ask.asks, ask.protected) == (TO_EDIT_ELSEWHERE, True)
    assert ask.session_key == ask.session_offer == ""


async def test_protection_looks_through_links_and_at_the_name_written(
    bench: Bench, tmp_path: Path
) -> None:
    bench.write(".git/config", "x\n")
    (bench.work_dir / "harmless").symlink_to(".git/config")
    bench.write("plain", "x\n")
    (bench.work_dir / ".envrc").symlink_to("plain")
    bench.environ["KIMI_TUI_HOME"] = str(tmp_path / "ours")
    (tmp_path / "ours").mkdir()
    # The configuration lies elsewhere, by a link that leads through the work folder.
    (tmp_path / "ours/config.toml").symlink_to(bench.work_dir / "one")
    (bench.work_dir / "one").symlink_to("dots/two")
    (bench.work_dir / "dots").mkdir()
    (bench.work_dir / "dots/two").symlink_to(tmp_path / "elsewhere")
    for path in ("harmless", ".envrc", "dots/two"):
        bench.approver.asks.clear()
        await bench.run("WriteFile", path=path, content="y\n")
        assert [ask.asks for ask in bench.approver.asks] == [TO_EDIT_ELSEWHERE], path
    for path in ("one", "dots/two", str(tmp_path / "elsewhere"), str(tmp_path / "ours/new")):
        assert protected_reason(locate(path, bench.work_dir, bench.environ), bench.environ), path
    (tmp_path / "ours/config.toml").unlink()
    (tmp_path / "ours/config.toml").symlink_to("config.toml")
    assert not protected_reason(locate("x", bench.work_dir, bench.environ), bench.environ)


@pytest.mark.exhaustive
async def test_what_a_guarded_link_leads_to_is_guarded_as_it_is(
    bench: Bench, tmp_path: Path
) -> None:
    """A path that names the target meets no guarded name on the way, also once the link is gone."""
    home = tmp_path / "home"
    home.mkdir()
    bench.environ["HOME"] = str(home)
    links = {
        ".env": "conf/real.txt",
        "CLAUDE.md": "notes.md",
        ".vscode/tasks.json": "../x.json",
        ".git/hooks/pre-commit": "../../tools/check.sh",
        ".git/modules/lib/hooks/post-merge": "../../../../tools/merge.sh",
        "deploy/.aws": "../keys",
        "sub/server.key": "../conf/other.txt",
    }
    targets = ("conf/real.txt", "notes.md", "x.json", "tools/check.sh", "tools/merge.sh")
    targets += ("keys/config", "conf/other.txt", "bashrc", "named/pre-push")
    for name in (*targets, "conf/plain.txt", "app.py"):
        bench.write(name, "x\n")
    for name, target in links.items():
        (bench.work_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.work_dir / name).symlink_to(target)
    (home / ".bashrc").symlink_to(bench.work_dir / "bashrc")
    bench.write(".git/config", "[core]\n\thooksPath = named\n")
    for time in ("first", "second"):
        for name in targets:
            bench.approver.asks.clear()
            await bench.run("WriteFile", path=name, content=f"{time}\n")
            assert [ask.asks for ask in bench.approver.asks] == [TO_EDIT_ELSEWHERE], name
        for name in ("conf/plain.txt", "app.py", "named.txt"):
            bench.approver.asks.clear()
            await bench.run("WriteFile", path=name, content=f"{time}\n")
            assert [ask.asks for ask in bench.approver.asks] == [TO_EDIT], name
        bench.approver.asks.clear()
        for name in ("conf/real.txt", "keys/config", "conf/other.txt", "notes.md", "app.py"):
            await bench.run("ReadFile", path=name)
        secret = ["conf/real.txt", "keys/config", "conf/other.txt"]
        assert [ask.detail for ask in bench.approver.asks] == secret
        assert all(ask.protected for ask in bench.approver.asks)
        found = await bench.run("Grep", pattern="first|second", output_mode="files_with_matches")
        assert not {*secret} & {*found.output.split()}
        assert "app.py" in found.output
        for name in links:
            (bench.work_dir / name).unlink(missing_ok=True)
        (home / ".bashrc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "path",
    ["src/app.py", "src/hooks/use.ts", "env.py", "environment.md", "agents.py", "makefile.py"],
)
async def test_ordinary_names_are_not_protected(bench: Bench, path: str) -> None:
    await bench.run("WriteFile", path=path, content="x\n")
    assert [ask.asks for ask in bench.approver.asks] == [TO_EDIT]


async def test_what_no_snapshot_holds_is_said_and_asked_for(bench: Bench) -> None:
    bench.write("server.key", "old\n")
    await bench.run("WriteFile", path="server.key", content="new\n")
    (ask,) = bench.approver.asks
    assert ask.protected
    assert "cannot be restored: files that may be secret are not in snapshots" in ask.where


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            b"caf\xe9\nx\n",
            "caf\ufffd\nx\n",
            "1 line is not UTF-8: the edit replaces those bytes with �",
        ),
        (b"a\nb\n", "a\r\nb\r\n", "the edit changes line endings (CRLF or LF)"),
        (b"a\r\nb\nc\nd\n", "a\nb\nc\nd\n", "the edit changes line endings (CRLF or LF)"),
        (b"a\nb\n", "\ufeffa\nb\n", "a byte order mark is added"),
        (b"caf\xe9\nx\n", "x\n", ""),
        (
            b"caf\xe9 x\nb\n",
            "b\ncaf\ufffd z\n",
            "1 line is not UTF-8: the edit replaces those bytes with �",
        ),
        (
            b"\xc4\xe3\xba\xc3\nx\n",
            "\ufffd" * 4 + "\nz\n",
            "1 line is not UTF-8: the edit replaces those bytes with �",
        ),
        (b"caf\xe9\n\xef\xbf\xbd\n", "cafe\n\ufffd\n", ""),
        (b"a\nb\n", "a\nc\n", ""),
    ],
)
async def test_bytes_that_change_without_showing_are_named_and_asked_for(
    bench: Bench, before: bytes, after: str, says: str
) -> None:
    bench.write("a.txt", before)
    await bench.run("WriteFile", path="a.txt", content=after)
    (ask,) = bench.approver.asks
    assert ask.where == f"in the work folder{'; ' if says else ''}{says}"
    assert ask.protected == bool(says)


async def test_bytes_that_an_edit_keeps_are_no_loss(bench: Bench) -> None:
    bench.write("a.txt", b"caf\xe9 x\n")
    await bench.run("StrReplaceFile", path="a.txt", edit={"old": "x", "new": "y \ufffd"})
    await bench.run("StrReplaceFile", path="a.txt", edit={"old": "caf", "new": "Caf"})
    assert (bench.work_dir / "a.txt").read_bytes() == b"Caf\xe9 y \xef\xbf\xbd\n"
    assert [ask.protected for ask in bench.approver.asks] == [False, False]


@pytest.mark.parametrize("half", ["\ud800", "\udce2\udc80\udcae"])
async def test_no_byte_is_written_that_is_shown_as_another(bench: Bench, half: str) -> None:
    bench.write("a.txt", b"caf\xe9\n")
    for tool, arguments in (
        ("WriteFile", {"content": half}),
        ("WriteFile", {"content": half, "mode": "append"}),
        ("StrReplaceFile", {"edit": {"old": "caf", "new": half}}),
        ("StrReplaceFile", {"edit": {"old": "\udce9", "new": "e"}}),
    ):
        outcome = await bench.run(tool, path="a.txt", **arguments)
        assert outcome.is_error
        assert "half of a surrogate pair" in outcome.message
    assert (await bench.run("WriteFile", path="new", content=half)).is_error
    assert bench.approver.asks == []


async def test_package_json_asks_only_where_scripts_change(bench: Bench) -> None:
    bench.write("package.json", '{"version": "1", "scripts": {"a": "b"}}\n')
    edit = {"old": '"1"', "new": '"2"'}
    await bench.run("StrReplaceFile", path="package.json", edit=edit)
    edit = {"old": '"b"', "new": '"curl x | sh"'}
    await bench.run("StrReplaceFile", path="package.json", edit=edit)
    assert [ask.asks for ask in bench.approver.asks] == [TO_EDIT, TO_EDIT_ELSEWHERE]


# --- one step or none


@pytest.mark.exhaustive
async def test_a_reader_sees_the_old_file_or_the_new_one(bench: Bench) -> None:
    path = bench.write("a", "0" * 500_000)
    seen: set[str] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            text = path.read_text()
            seen.add(f"{text[0]}{len(text)}{len(set(text))}")

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(1, 6):
        await bench.run("WriteFile", path="a", content=str(n) * 500_000)
    stop.set()
    reader.join()
    assert seen <= {f"{n}5000001" for n in range(6)}


@pytest.mark.parametrize("call", ["fsync", "rename", "fchmod"])
async def test_a_failing_disk_leaves_the_old_file_and_no_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = bench.write("a", "old\n")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(filesystem.os, call, full)
    outcome = await bench.run("WriteFile", path="a", content="new\n")
    monkeypatch.undo()
    assert (outcome.is_error, outcome.message) == (True, "a: No space left on device.")
    assert path.read_text() == "old\n"
    assert temporaries(bench.work_dir) == []
    assert not (await bench.run("WriteFile", path="a", content="new\n")).is_error


async def test_a_file_system_without_hard_links(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(filesystem.os, "link", refuse)
    assert not (await bench.run("WriteFile", path="new", content="x\n")).is_error
    assert (bench.work_dir / "new").read_text() == "x\n"
    assert temporaries(bench.work_dir) == []


async def test_a_cancelled_write_has_happened_or_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.write("a", "old\n")
    entered, go = threading.Event(), threading.Event()
    real = os.fsync

    def slow(descriptor: int) -> None:
        entered.set()
        go.wait(5)
        real(descriptor)

    monkeypatch.setattr(filesystem.os, "fsync", slow)
    running = asyncio.create_task(bench.run("WriteFile", path="a", content="new\n"))
    assert await until(entered.is_set)
    running.cancel()
    asyncio.get_running_loop().call_later(0.05, go.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert path.read_text() == "new\n"
    assert temporaries(bench.work_dir) == []
    # The agent's own write, though nobody waited for it, is no foreign change.
    assert not (await bench.run("WriteFile", path="a", content="newer\n")).is_error


# --- edits


async def test_an_edit_that_is_not_found_shows_the_nearest_passage(bench: Bench) -> None:
    bench.write(
        "a.py", "def f(x):\n    if x:\n        return 1\n    return 2\n\n\ndef g():\n    pass\n"
    )
    outcome = await bench.run(
        "StrReplaceFile", path="a.py", edit={"old": "if x:\n    return 1", "new": "y"}
    )
    assert outcome.is_error
    assert "     2\t    if x:\n     3\t        return 1" in outcome.message
    outcome = await bench.run("StrReplaceFile", path="a.py", edit={"old": "def gg():", "new": "y"})
    assert "     7\tdef g():" in outcome.message
    outcome = await bench.run("StrReplaceFile", path="a.py", edit={"old": "@@@@", "new": "y"})
    assert "nor anything similar" in outcome.message


async def test_an_edit_that_is_not_unique_says_where(bench: Bench) -> None:
    bench.write("a", "x = 1\ny = 2\nx = 1\nz\nx = 1\n")
    outcome = await bench.run("StrReplaceFile", path="a", edit={"old": "x = 1", "new": "x = 2"})
    assert outcome.is_error
    assert "it occurs 3 times, at lines 1, 3, 5." in outcome.message
    outcome = await bench.run(
        "StrReplaceFile", path="a", edit={"old": "x = 1", "new": "x = 2", "replace_all": True}
    )
    assert outcome.message == "Edited a: 3 replacements."
    assert (bench.work_dir / "a").read_text() == "x = 2\ny = 2\nx = 2\nz\nx = 2\n"


async def test_several_edits_are_made_in_order_or_not_at_all(bench: Bench) -> None:
    path = bench.write("a", "one\n")
    outcome = await bench.run(
        "StrReplaceFile",
        path="a",
        edit=[{"old": "one", "new": "two"}, {"old": "two", "new": "three"}],
    )
    assert outcome.message == "Edited a: 2 replacements."
    assert path.read_text() == "three\n"
    outcome = await bench.run(
        "StrReplaceFile",
        path="a",
        edit=[{"old": "three", "new": "four"}, {"old": "missing", "new": "x"}],
    )
    assert outcome.message.startswith("Edit 2 of 2: `old` was not found")
    assert path.read_text() == "three\n"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"old": "", "new": "x"}, "`old` is empty"),
        ({"old": "one", "new": "one"}, "are the same"),
        ([], "`edit` List should have at least 1 item"),
        ({"old": "one"}, "`edit.0.new` is required"),
        ("one", "`edit` should be a valid list"),
    ],
)
async def test_edits_that_say_nothing(bench: Bench, edit: object, says: str) -> None:
    bench.write("a", "one\n")
    outcome = await bench.run("StrReplaceFile", path="a", edit=edit)
    assert outcome.is_error
    assert says in outcome.message


async def test_what_cannot_be_edited(bench: Bench) -> None:
    bench.write("bin", b"a\0b")
    outcome = await bench.run("StrReplaceFile", path="bin", edit={"old": "a", "new": "b"})
    assert "is a binary file (3 bytes) and cannot be edited as text" in outcome.message
    with (bench.work_dir / "large").open("wb") as file:
        file.truncate(files.HASHED_LIMIT_BYTES + 1)
    outcome = await bench.run("StrReplaceFile", path="large", edit={"old": "a", "new": "b"})
    assert "too large to edit here" in outcome.message
    outcome = await bench.run("StrReplaceFile", path="gone", edit={"old": "a", "new": "b"})
    assert "gone does not exist." in outcome.message
    assert bench.approver.asks == []


async def test_nothing_to_change_is_said_and_not_asked(bench: Bench) -> None:
    bench.write("a", "one\n")
    outcome = await bench.run("WriteFile", path="a", content="one\n")
    assert (outcome.is_error, outcome.brief) == (True, "no change")
    assert bench.approver.asks == []


plain = st.text(alphabet="ab \n", max_size=30)


def _n_places(text: str, old: str) -> int:
    return sum(text.startswith(old, at) for at in range(len(text)))


def test_places_that_overlap_are_two() -> None:
    text = "}\n}\n}\n"
    with pytest.raises(ToolProblem, match=r"occurs 2 times, at lines 1, 2\. "):
        replaced(text, Edit(old="}\n}", new="}"))
    assert replaced(text, Edit(old="}\n}", new="}", replace_all=True)) == ("}\n}\n", 1)


@given(before=plain, old=plain.filter(bool), new=plain, after=plain, crlf=st.booleans())
def test_a_replacement_is_what_str_replace_gives(
    before: str, old: str, new: str, after: str, crlf: bool
) -> None:
    text = before + old + after
    stored = text.replace("\n", "\r\n") if crlf else text
    if old == new:
        return
    if _n_places(text, old) > 1:
        with pytest.raises(ToolProblem, match="not unique"):
            replaced(stored, Edit(old=old, new=new))
        return
    result, count = replaced(stored, Edit(old=old, new=new))
    expected = text.replace(old, new)
    assert count == 1
    assert result == (expected.replace("\n", "\r\n") if "\r\n" in stored else expected)


ends = st.sampled_from(["\n", "\r\n"])


@given(lines=st.lists(st.tuples(st.sampled_from("abcd"), ends), min_size=1), data=st.data())
def test_a_replacement_in_mixed_line_ends_touches_no_other_line(
    lines: list[tuple[str, str]], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, len(lines) - 1))
    new = data.draw(st.lists(st.sampled_from("abcdxy"), max_size=5))
    old = "\n".join(line for line, _ in lines[first : last + 1])
    before, after = lines[:first], lines[last + 1 :]
    text = "".join(line + end for line, end in lines)
    if "\n".join(new) == old or _n_places(text.replace("\r\n", "\n"), old) > 1:
        return
    result, _ = replaced(text, Edit(old=old, new="\n".join(new)))
    assert result.startswith("".join(line + end for line, end in before))
    assert result.endswith(lines[last][1] + "".join(line + end for line, end in after))
    inside = result.replace("\r\n", "\n").split("\n")[first:]
    assert inside[: len(new) or 1] == (new or [""])


@given(text=st.text(max_size=300), wanted=st.text(max_size=100))
def test_the_nearest_passage_of_anything(text: str, wanted: str) -> None:
    from kimi_tui.tools.text import nearest_passage

    passage = nearest_passage(text, wanted)
    for line in passage.split("\n") if passage else []:
        number, _, shown = line.partition("\t")
        assert shown == text.split("\n")[int(number) - 1][:200]


async def test_what_is_too_large_to_be_brought_back_is_said_and_asked_for(bench: Bench) -> None:
    os.truncate(bench.write("huge", ""), 3 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await bench.run("WriteFile", path="huge", content="small now\n")
    assert not outcome.is_error
    (ask,) = bench.approver.asks
    assert "its current text cannot be restored: it is too large for a snapshot" in ask.where
    assert (ask.protected, ask.session_key) == (True, "")
    assert (
        ask.edits[0].before
        == "(3.2 GB, not shown; too large for a snapshot, so it cannot be restored)\n"
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


async def test_very_many_edits_end_with_their_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.txt", "x")
    monkeypatch.setattr(file_edit, "LIMIT_S", 0.0)
    edits = [{"old": "x" * n, "new": "x" * (n + 1)} for n in range(1, 1000)]
    outcome = await bench.run("StrReplaceFile", path="a.txt", edit=edits)
    assert (outcome.is_error, outcome.brief) == (True, "out of time")
    assert "Nothing was written" in outcome.message
    assert (bench.work_dir / "a.txt").read_text() == "x"


async def test_edits_that_nobody_waits_for_any_more_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.txt", "x")
    made = 0
    begun, ended, stop = threading.Event(), threading.Event(), threading.Event()
    real = file_edit.replaced

    def replaced(text: str, edit: Edit, which: str = "") -> tuple[str, int]:
        nonlocal made
        made += 1
        begun.set()
        stop.wait(30)
        ended.set()
        return real(text, edit, which)

    monkeypatch.setattr(file_edit, "replaced", replaced)
    edits = [{"old": "x" * n, "new": "x" * (n + 1)} for n in range(1, 1000)]
    running = asyncio.create_task(bench.run("StrReplaceFile", path="a.txt", edit=edits))
    assert await asyncio.to_thread(begun.wait, 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stop.set()
    assert await asyncio.to_thread(ended.wait, 30)
    # Other work of the pool comes after the running one.
    await asyncio.get_running_loop().shutdown_default_executor()
    assert made == 1


async def test_a_replacement_that_grows_without_end_is_refused(bench: Bench) -> None:
    bench.write("a.txt", "a" * 100_000)
    edit = {"old": "a", "new": "b" * 100_000, "replace_all": True}
    outcome = await bench.run("StrReplaceFile", path="a.txt", edit=edit)
    assert (outcome.is_error, outcome.brief) == (True, "too large")


async def test_a_name_as_long_as_a_file_system_allows_is_written(bench: Bench) -> None:
    for name in ("n" * 255, "名" * 85, "🙂" * 63):
        outcome = await bench.run("WriteFile", path=name, content="1\n")
        assert outcome.message.startswith("Created ")
        outcome = await bench.run("WriteFile", path=name, content="2\n")
        assert (bench.work_dir / name).read_text() == "2\n"


@pytest.mark.parametrize("size", [8, 9])
def test_a_written_file_has_the_version_that_reading_it_gives(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Files above the limit have a version of their stamps: reading and hashing them would take seconds."""
    for module in (files, file_edit):
        monkeypatch.setattr(module, "HASHED_LIMIT_BYTES", 8)
    synced: list[str] = []
    place = locate("new/folder/a", bench.work_dir, {})
    version = file_edit.replace_file(place, b"x" * size, None, synced.append)
    found = files.read_whole(place)
    assert found is not None
    assert version == found.version
    assert version.startswith("sha256:" if size == 8 else "stat:")
    # The name of the file and those of the new folders survive a power cut.
    root = bench.work_dir
    assert synced == [str(root / "new/folder"), str(root / "new"), str(root)]
