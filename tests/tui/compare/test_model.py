"""Two courses side by side: what is the same stands at the same height, and where the next difference is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.soul.protocol import FilePreview, FilesPreview
from kimi_tui.soul.travel_protocol import LineMessage
from kimi_tui.tui.compare.model import Comparison, file_rows
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.wire.display import DiffLine


def said(text: str, checkpoint: int = 1) -> LineMessage:
    """What the agent said."""
    return LineMessage(checkpoint, f"u{checkpoint}", 0, "agent", text)


def texts(comparison: Comparison, width: int = 40) -> list[tuple[str, str]]:
    """The rows as plain text."""
    rows = comparison.sheet(width, UNICODE).rows
    return [
        (
            "".join(text for text, _ in left.spans).strip(),
            "".join(text for text, _ in right.spans).strip(),
        )
        for left, right in rows
    ]


def test_what_both_have_stands_at_the_same_height() -> None:
    one = Comparison(
        [said("same"), said("only left"), said("more left"), said("end")],
        [said("same"), said("end")],
    )
    rows = texts(one)
    assert ("same", "same") in rows
    assert ("end", "end") in rows
    assert ("only left", "") in rows
    assert [entry.same for entry in one.sides["other"]] == [True, False, False, True]
    assert one.next_difference("other", 0) == 1
    assert one.next_difference("other", 2) == 1
    assert one.next_difference("live", 0) is None


def test_reminders_and_calls_without_words_are_left_out() -> None:
    call = LineMessage(1, "u", 0, "agent", "", calls=(("Shell", "ls"),))
    reminder = LineMessage(1, "u", 1, "reminder", "remember")
    result = LineMessage(1, "u", 2, "tool", "a\nb", name="Shell", target="ls", failed=True)
    one = Comparison([call, reminder, result], [])
    (row,) = texts(one)
    assert row[0].startswith("× Shell ls")
    assert row[0].endswith("#1")
    one.unfolded.add(("other", 0))
    assert len(texts(one)) == 3


def test_long_words_are_folded_until_they_are_asked_for() -> None:
    one = Comparison([said("\n".join(f"line {i}" for i in range(10)))], [])
    assert texts(one)[-1][0] == "+6 lines"
    one.unfolded.add(("other", 0))
    assert texts(one)[-1][0] == "line 9"


def test_nothing_of_a_message_can_move_the_cursor() -> None:
    one = Comparison([said("a\x1b[2Jb\x07")], [said("\x1b]52;c;eA==\x07")])
    assert all(text.isprintable() for row in texts(one) for text in row)


@given(
    st.lists(st.sampled_from(["a", "b", "c", "long " * 30]), max_size=8),
    st.lists(st.sampled_from(["a", "b", "c", "long " * 30]), max_size=8),
    st.integers(min_value=20, max_value=90),
)
def test_every_message_has_its_place(left: list[str], right: list[str], width: int) -> None:
    one = Comparison([said(text) for text in left], [said(text) for text in right])
    sheet = one.sheet(width, UNICODE)
    for place, (side, count) in enumerate((("other", len(left)), ("live", len(right)))):
        starts = sheet.starts["other" if side == "other" else "live"]
        assert len(starts) == count
        assert starts == sorted(set(starts))
        assert all(sheet.rows[row][place].entry == i for i, row in enumerate(starts))
    shared = [i for i, entry in enumerate(one.sides["other"]) if entry.same]
    matched = [i for i, entry in enumerate(one.sides["live"]) if entry.same]
    for mine, theirs in zip(shared, matched, strict=True):
        assert sheet.starts["other"][mine] == sheet.starts["live"][theirs]


def test_the_files() -> None:
    assert "unknown" in str(file_rows(FilesPreview(reason="unknown"), frozenset(), 60, UNICODE))
    change = FilePreview("a/b.py", "restore", added=3, removed=1, rows=(DiffLine("+", 4, "x"),))
    files = FilesPreview((change, FilePreview("new.py", "delete", added=2, is_new=True)))
    rows = file_rows(files, frozenset(), 60, UNICODE)
    assert [index for _, index in rows] == [0, 1]
    assert "+3 −1" in str(rows[0])
    assert "new  " in str(rows[1])
    assert "+ x" in str(file_rows(files, frozenset({0}), 60, UNICODE)[1])
