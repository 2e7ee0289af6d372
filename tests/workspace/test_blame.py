"""Tests of blame: the version that each line of a text came from, and the versions of a file among snapshots."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.workspace.blame import LineOrigins, line_origin, versions_of
from kimi_tui.workspace.common_lines import common_lines
from kimi_tui.workspace.diff import StoredTexts
from kimi_tui.workspace.manifest import ManifestEntry
from kimi_tui.workspace.snapshots import By, SnapshotLog
from kimi_tui.workspace.store import BlobStore, hash_of


def _origins(*texts: str) -> list[int]:
    blame = LineOrigins()
    for version, text in enumerate(texts):
        blame.advance(text, version)
    return list(blame.origins)


def test_a_line_has_the_version_that_wrote_it() -> None:
    assert _origins("a\nb\nc\n", "a\nB\nc\n", "a\nB\nnew\nc\nend\n") == [0, 1, 2, 0, 2]


def test_a_line_without_its_line_feed_is_another_one() -> None:
    assert _origins("a\nb", "a\nb\n") == [0, 1]
    assert _origins("a\nb\n", "a\nb") == [0, 1]
    assert _origins("", "a") == [1]
    assert _origins("a", "") == []
    assert _origins("a\nb", "a\nb\nc") == [0, 1, 1]


def test_equal_lines_around_a_change_keep_their_origin() -> None:
    assert _origins("x\n\n\ny\n", "x\n\n\n\ny\n") == [0, 0, 0, 1, 0]
    assert _origins("same\n" * 4, "same\n" * 3) == [0, 0, 0]


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=12)


@given(versions=st.lists(st.tuples(LINES, st.sampled_from(["", "end"])), min_size=1, max_size=6))
def test_an_origin_has_the_line_and_so_does_every_version_since(
    versions: list[tuple[list[str], str]],
) -> None:
    texts = ["".join(lines) + end for lines, end in versions]
    origins = _origins(*texts)
    lines = texts[-1].splitlines(keepends=True)
    assert len(origins) == len(lines)
    for line, origin in zip(lines, origins, strict=True):
        assert all(line in text.splitlines(keepends=True) for text in texts[origin:])


@given(LINES, LINES, st.sampled_from(["", "end"]))
def test_common_lines_are_equal_and_in_order(one: list[str], other: list[str], end: str) -> None:
    old, new = [*one, *filter(None, [end])], [*one[:3], *other, *one[3:]]
    at = (0, 0)
    runs = [*common_lines("".join(old), "".join(new))]
    assert runs == [*common_lines("".join(old), "".join(new), len(old))]
    assert runs[-1] == (len(old), len(new), 0)
    for run in runs:
        assert (run.old, run.new) >= at
        assert run.old >= at[0]
        assert run.new >= at[1]
        assert old[run.old : run.old + run.n] == new[run.new : run.new + run.n]
        assert len(old[run.old : run.old + run.n]) == run.n
        at = (run.old + run.n, run.new + run.n)


def test_changes_far_apart_in_a_long_file_are_found() -> None:
    lines = [f"line {n}\n" for n in range(9_000)]
    changed = [*lines]
    changed[10:12] = ["one\n"]
    changed[4_000:4_000] = ["two\n", "three\n"]
    del changed[8_000:8_003]
    changed[-2] = "last\n"
    origins = _origins("".join(lines), "".join(changed))
    assert {changed[n] for n, origin in enumerate(origins) if origin} == {
        "one\n",
        "two\n",
        "three\n",
        "last\n",
    }


def test_a_long_file_whose_halves_change_places_keeps_one_of_them() -> None:
    first = [f"first {n}\n" for n in range(3_000)]
    second = [f"second {n}\n" for n in range(2_000)]
    origins = _origins("".join(first + second), "".join(second + first))
    assert origins == [1] * 2_000 + [0] * 3_000


def test_a_long_file_of_repeated_lines_that_changes_everywhere_is_compared_in_bounded_time() -> (
    None
):
    old = "".join(f"{n % 7}\n" for n in range(20_000))
    new = "".join(f"{n % 5} changed\n" for n in range(20_000))
    assert set(_origins(old, new)) == {1}


# -- the versions of a file ----------------------------------------------------------------------


def _log(folder: Path, *changes: tuple[By, dict[str, str | None]]) -> SnapshotLog:
    log = SnapshotLog(folder / "snapshots.jsonl")
    for at, (by, changed) in enumerate(changes):
        entries = {
            path: None
            if text is None
            else ManifestEntry("file", hash_of(text.encode()), 0o644, len(text))
            for path, text in changed.items()
        }
        log.add(entries, by=by, at=float(at))
    return log


def test_versions_follow_renames_back(tmp_path: Path) -> None:
    log = _log(
        tmp_path,
        ("first", {"old.py": "a", "other.py": "b"}),
        ("agent", {"old.py": "aa", "other.py": None}),
        ("agent", {"old.py": None, "src/new.py": "aa"}),
        ("agent", {"src/new.py": "aaa"}),
    )
    found = [(one.position, one.path) for one in versions_of(log, "src/new.py")]
    assert found == [(0, "old.py"), (1, "old.py"), (2, "src/new.py"), (3, "src/new.py")]


def test_versions_follow_a_file_that_was_renamed_and_edited_at_once(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(20))
    now = text.replace("line 3\n", "three\n")
    store = BlobStore(tmp_path / "store", 1 << 20)
    for one in (text, now, "far\n" * 30):
        store.put(one.encode())
    store.flush()
    texts = StoredTexts(store)
    log = _log(
        tmp_path,
        ("first", {"a.py": text, "far.py": "far\n" * 30}),
        ("agent", {"a.py": None, "far.py": None, "b.py": now}),
    )
    assert [one.path for one in versions_of(log, "b.py", texts)] == ["a.py", "b.py"]
    assert [one.path for one in versions_of(log, "b.py")] == ["b.py"]
    was = [line_origin(log, texts, "b.py", range(1, 2), n, "") for n in (3, 4)]
    assert [one and (one.position, one.path) for one in was] == [(0, "a.py"), (1, "b.py")]
    gone = line_origin(log, texts, "a.py", range(1), 4, "line 3")
    assert gone is not None
    assert gone.position == 0
    assert line_origin(log, texts, "b.py", range(1, 2), 4, "line 3") is None


def test_a_new_file_beside_a_deleted_one_is_no_rename(tmp_path: Path) -> None:
    log = _log(
        tmp_path,
        ("first", {"a.py": "a", "empty": ""}),
        ("agent", {"a.py": None, "b.py": "b", "empty": None, "void": ""}),
    )
    assert [one.path for one in versions_of(log, "b.py")] == ["b.py"]
    assert [one.path for one in versions_of(log, "void")] == ["void"]


def test_a_file_that_was_deleted_and_came_back_has_both_lives(tmp_path: Path) -> None:
    log = _log(
        tmp_path,
        ("first", {"a": "1"}),
        ("agent", {"a": None}),
        ("other", {"a": "2"}),
        ("agent", {"b": "3"}),
    )
    assert [(one.position, one.entry is None) for one in versions_of(log, "a")] == [
        (0, False),
        (1, True),
        (2, False),
    ]


def test_a_change_belongs_to_the_checkpoint_before_it(tmp_path: Path) -> None:
    log = _log(tmp_path, ("first", {"a": "1"}))
    log.mark("one")
    log.add({"a": None}, by="agent", at=1.0)
    log.mark("two")
    log.mark("three")
    log.add({"b": None}, by="agent", at=2.0)
    assert [log.checkpoint_before(n) for n in range(3)] == ["", "one", "three"]
