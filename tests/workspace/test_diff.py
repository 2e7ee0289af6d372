"""Differences by lines, bounded; and what two world lines made of the files since their fork, compared with it, and by whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.workspace.base import FileState, Past
from kimi_tui.workspace.diff import Divergence, diff_lines, patch_of, text_of
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.tracker import SnapshotScope, Tracker

TEXTS = st.lists(st.sampled_from(["a", "b", "", "c d"]), max_size=12).map("\n".join)


@given(TEXTS, TEXTS)
def test_the_rows_turn_the_old_text_into_the_new(before: str, after: str) -> None:
    diff = diff_lines(before, after)
    old, new = before.split("\n"), after.split("\n")
    assert sum(row.sign == "+" for row in diff.rows) == diff.added
    assert sum(row.sign == "-" for row in diff.rows) == diff.removed
    assert (diff.added == diff.removed == 0) == (before == after)
    for row in diff.rows:
        side = old if row.sign == "-" else new
        assert row.number > len(side) or side[row.number - 1] == row.text


def test_a_hopeless_comparison_is_given_up() -> None:
    before = "\n".join(f"{number * 7919 % 110}" for number in range(60_000))
    after = "\n".join(f"{number * 104_729 % 110}" for number in range(60_000))
    diff = diff_lines(before, after, 200)
    assert diff.added > 5_000
    assert diff.rows == ()


def test_what_is_no_text_is_said_so() -> None:
    assert text_of(b"\x7fELF\0\0") is None
    assert text_of(b"caf\xe9") == "caf\ufffd"
    assert text_of("\ufeffcafé\n".encode("utf-16-le")) == "café\n"


class Lines:
    """A followed folder in which the agent works on one line and then on another."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.root = top / "work"
        self.root.mkdir()
        self.tracker = self.started()

    def started(self) -> Tracker:
        return Tracker(self.root, self.top / "files", Limits(), SnapshotScope())

    def write(self, **files: str | None) -> None:
        for name, content in files.items():
            if content is None:
                (self.root / name).unlink()
            else:
                (self.root / name).write_text(content)

    def step(self, uid: str, **files: str | None) -> None:
        """The agent's step at a checkpoint."""
        self.tracker.mark(uid)
        self.tracker.take_snapshot("other")
        self.write(**files)
        self.tracker.take_snapshot("agent")

    def restore(self, uid: str) -> None:
        prepared = self.tracker.prepare(self.tracker.plan(uid))
        assert prepared is not None
        assert not self.tracker.carry_out(prepared).failures


Told = dict[str, tuple[str, str]]


def told(parting: Divergence) -> Told:
    """Return each file with what both sides made of it: `+1-2` for lines, who, and that it is alike."""
    assert not parting.reason
    found: Told = {}
    for one in parting.files:
        sides: list[str] = []
        for side in (one.left, one.now):
            lines = f" +{side.diff.added}-{side.diff.removed}" if side.diff is not None else ""
            who = "" if side.authors == "agent" else f" by {side.authors}"
            sides.append(f"{side.outcome}{lines}{who}")
        found[one.path] = (sides[0], sides[1] + (" alike" if one.alike else ""))
    return found


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    one = Lines(tmp_path)
    one.write(a="1\n2\n3\n", b="b\n", c="c\n", untouched="u\n")
    assert one.tracker.first_scan()
    one.step("shared", a="1\n2\n")
    return one


def both(lines: Lines) -> Divergence:
    return lines.tracker.divergence(["live", "left"], ["left end"])


def test_each_side_is_told_against_the_fork(lines: Lines) -> None:
    lines.step("left", a="1\nleft\nmore\n", fresh="x\ny\n", b=None)
    lines.step("left end")
    lines.restore("left")
    lines.step("live", a="1\n2\nlive\n", c="C\n")
    assert told(both(lines)) == {
        "a": ("changed +2-1", "changed +1-0"),
        "b": ("gone +0-1", "same"),
        "c": ("same", "changed +1-1"),
        "fresh": ("new +2-0", "same"),
    }


def test_what_the_newest_step_of_the_left_line_did_is_its_own(lines: Lines) -> None:
    lines.step("left")
    lines.step("left end", a="last\n")
    lines.restore("left")
    lines.step("live", b="B\n")
    assert told(both(lines)) == {"a": ("changed +1-2", "same"), "b": ("same", "changed +1-1")}


def test_files_that_were_kept_are_alike_on_both(lines: Lines) -> None:
    lines.step("left", a="left\n")
    lines.step("left end")
    lines.step("live", b="B\n")
    assert told(both(lines)) == {
        "a": ("changed +1-2", "changed +1-2 alike"),
        "b": ("same", "changed +1-1"),
    }


def test_it_is_told_who_changed_a_file(lines: Lines) -> None:
    lines.step("left", a="left\n")
    lines.step("left end")
    lines.restore("left")
    lines.step("live", b="agent\n")
    lines.write(a="person\n", b="both\n", c="person\n", made="new\n")
    assert told(both(lines)) == {
        "a": ("changed +1-2", "changed +1-2 by others"),
        "b": ("same", "changed +1-1 by both"),
        "c": ("same", "changed +1-1 by others"),
        "made": ("same", "new +1-0 by others"),
    }


def test_what_others_did_after_the_line_was_left_is_not_its_doing(lines: Lines) -> None:
    lines.step("left", a="left\n")
    lines.step("left end")
    lines.write(c="person\n")
    assert told(lines.tracker.divergence(["left"], ["left end"])) == {
        "a": ("changed +1-2", "changed +1-2 alike"),
        "c": ("same", "changed +1-1 by others"),
    }


def test_the_fork_is_where_the_older_line_went_on(lines: Lines) -> None:
    # The user went back to the older line: the one that was left is the younger.
    lines.step("live", a="older\n")
    lines.step("left", b="younger\n")
    lines.step("left end")
    lines.write(b="b\n")
    assert told(both(lines)) == {
        "a": ("changed +1-2", "changed +1-2 alike"),
        "b": ("changed +1-1", "same"),
    }


def test_it_is_known_after_a_new_start(lines: Lines) -> None:
    lines.step("left", a="left\n")
    lines.step("left end")
    lines.restore("left")
    lines.step("live", a="live\n")
    before = told(both(lines))
    lines.tracker = lines.started()
    assert lines.tracker.first_scan()
    assert told(both(lines)) == before == {"a": ("changed +1-2", "changed +1-2")}


def test_what_is_not_known_is_not_guessed(lines: Lines) -> None:
    lines.step("left", a="left\n")
    unknown = "There is no file snapshot of the checkpoint where the two world lines diverge."
    assert lines.tracker.divergence(["never"], ["left"]).reason == unknown
    assert lines.tracker.divergence(["left"], ["never"]).reason == unknown


def test_what_was_left_out_at_the_fork_may_have_been_there(lines: Lines) -> None:
    lines.write(secret="x\n", **{".gitignore": "secret\n"})
    lines.step("left")
    lines.step("live", b="B\n", **{".gitignore": "\n"})
    assert set(told(lines.tracker.divergence(["live"], ["left"]))) == {".gitignore", "b"}


def test_what_others_did_before_anybody_went_on_belongs_to_the_fork(lines: Lines) -> None:
    lines.step("left")
    lines.write(c="person\n")
    lines.step("live", c="agent\n")
    assert told(lines.tracker.divergence(["left"], ["left"])) == {"c": ("same", "changed +1-1")}


@pytest.mark.parametrize(
    ("content", "lines_told"), [(b"\0\1", False), (b"text\n", True)], ids=["bytes", "text"]
)
def test_only_texts_have_lines(lines: Lines, content: bytes, lines_told: bool) -> None:
    lines.step("left")
    lines.tracker.take_snapshot("other")
    (lines.root / "b").write_bytes(content)
    lines.tracker.take_snapshot("agent")
    (one,) = lines.tracker.divergence(["left"], ["left"]).files
    assert (one.path, one.now.diff is not None) == ("b", lines_told)


def test_a_mode_alone_is_a_change(lines: Lines) -> None:
    lines.step("left")
    (lines.root / "b").chmod(0o755)
    lines.tracker.take_snapshot("agent")
    (one,) = lines.tracker.divergence(["left"], ["left"]).files
    assert (one.left.outcome, one.alike) == ("changed", True)
    assert one.left.diff is not None
    assert (one.left.diff.added, one.left.diff.rows) == (0, ())


def test_many_rows_are_bounded_but_counted(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kimi_tui.workspace.diff._MOST_ROWS", 5)
    monkeypatch.setattr("kimi_tui.workspace.diff._MOST_FILES_COMPARED", 2)
    a, b, c = ("".join(f"{word} {i}\n" for i in range(9)) for word in "xyz")
    lines.step("left", a=a, b=b, c=c)
    files = lines.tracker.divergence(["left"], ["left"]).files
    shown = [(one.left.diff.added, len(one.left.diff.rows)) for one in files if one.left.diff]
    assert shown == [(9, 5), (9, 0)]
    assert [one.path for one in files] == ["a", "b", "c"]


def test_a_renamed_file_is_one_change_as_in_a_patch(lines: Lines) -> None:
    text = "".join(f"line {n}\n" for n in range(20))
    lines.step("begin", old=text, moved="m\n" * 9)
    lines.step("then", old=None, new=text + "more\n", moved=None, there="m\n" * 9, own="o\n")
    found = lines.tracker.changes(("then", ""))
    said = [(one.path, one.old_path, one.side.outcome) for one in found.files]
    assert said == [
        ("new", "old", "changed"),
        ("own", "", "new"),
        ("there", "moved", "changed"),
    ]
    diff = found.files[0].side.diff
    assert diff is not None
    assert (diff.added, diff.removed) == (1, 0)
    assert "=== new (renamed from old) +1 -0" in patch_of(found.files, 9_000)
    assert found.files[0].name_of("-") == "old"
    past = Past(lines.top / "files", lines.root)
    states = [FileState(one) for one in past.log.snapshots[-2:]]
    assert [(one.path, one.old_path) for one in past.differences(*states)] == [
        one[:2] for one in said
    ]
