"""Two lines side by side as rows: what is the same stands at the same height, and what a message and a file look like."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.projection.blocks import AgentBlock, ToolBlock, ToolState
from kimi_tui.projection.comparison import Comparison, Side
from kimi_tui.tool_cards import BriefBlock, DiffBlock, DiffLine, DisplayBlock, ShellBlock
from kimi_tui.tui.compare.layout import ComparedFiles, ComparisonRows
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.rows import LayoutRoom, Span, past_line
from kimi_tui.tui.transcript.layout import rows_of
from kimi_tui.tui.transcript.markdown_stream import MarkdownStream, whole_answer
from kimi_tui.workspace.diff import DivergedFile, Divergence, LineDiff, SideChange


def said(text: str, checkpoint: int = 1) -> AgentBlock:
    """Return an answer of the agent."""
    block = AgentBlock(checkpoint, checkpoint, f"u{checkpoint}", open=False)
    block.stream.add(text)
    block.stream.end()
    return block


def called(
    output: str = "",
    *,
    state: ToolState = "done",
    target: str = "ls",
    display: tuple[DisplayBlock, ...] = (),
) -> ToolBlock:
    """Return a call of a command."""
    block = ToolBlock(
        7, 7, "u", tool="Shell", name="Shell", target=target, state=state, display=display
    )
    block.output = output
    return block


def measured(comparison: Comparison, width: int = 40) -> ComparisonRows:
    """Return all rows of the comparison."""
    sheet = ComparisonRows(comparison, LayoutRoom(width))
    for _ in sheet.measure():
        pass
    return sheet


def texts(comparison: Comparison, width: int = 40) -> list[tuple[str, str]]:
    """Return the rows as plain text."""
    sheet = measured(comparison, width)
    rows = [(sheet.cell("other", row), sheet.cell("live", row)) for row in range(sheet.height)]
    return [(left.line.text.strip(), right.line.text.strip()) for left, right in rows]


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


def test_a_side_without_a_message_says_why_it_is_blank() -> None:
    one = Comparison([called("a\nb", state="failed")], [])
    (row,) = texts(one)
    assert row[0].startswith("× Shell ls")
    assert row[0].endswith("#7")
    assert row[1] == "This world line ends here."


def test_a_folded_call_has_its_title_and_an_unfolded_one_the_rows_of_the_chat() -> None:
    diff = DiffBlock("a.py", 1, 1, (DiffLine("-", 1, "old"), DiffLine("+", 1, "new")))
    for block in (called("a\nb"), called(display=(diff,))):
        one = Comparison([block], [said("live")])
        folded = [row.line for row in (measured(one).cell("other", 0),)]
        assert folded == rows_of(block, LayoutRoom(40))[:1]
        block.unfolded = True
        sheet = measured(one)
        rows = [sheet.cell("other", row).line for row in range(sheet.height)]
        assert rows == rows_of(block, LayoutRoom(40))
        assert len(rows) == 3


def test_long_words_are_folded_until_they_are_asked_for() -> None:
    one = Comparison([said("\n".join(f"- line {i}" for i in range(10)))], [])
    assert texts(one)[-1][0] == "+6 lines"
    one.sides["other"][0].block.unfolded = True
    assert texts(one)[-1][0] == "- line 9"


MARKED = """It is **done**, see *this*:

| what | before | now |
|---|---|---|
| a | 1 | 2 |

```python
x = "y"
```
"""


def test_an_answer_has_the_rows_that_it_has_in_the_chat() -> None:
    one = Comparison([said(MARKED)], [said("Other words.")])
    rows = [left for left, _ in texts(one, 60)]
    assert rows[:3] == ["It is done, see this:", "", "what   before   now"]
    assert rows[-1] == "+3 lines"
    one.sides["other"][0].block.unfolded = True
    sheet = measured(one, 60)
    rows = [sheet.cell("other", row).line for row in range(sheet.height)]
    assert rows == [line.shown for line in whole_answer(MARKED, 60)]


def test_what_both_said_is_quiet_but_keeps_its_shape() -> None:
    one = Comparison([said(MARKED)], [said(MARKED)])
    one.sides["other"][0].block.unfolded = True
    sheet = measured(one, 60)
    rows = [sheet.cell("other", row).line for row in range(sheet.height)]
    assert {span.style for row in rows for span in row.spans} == {
        "quiet",
        "quiet/b",
        "quiet/i",
        "quiet@raised",
    }
    assert rows == [past_line(line.shown) for line in whole_answer(MARKED, 60)]


@pytest.mark.exhaustive
def test_of_a_very_long_answer_only_the_beginning_is_laid_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: list[int] = []
    feed = MarkdownStream.feed

    def counted(layout: MarkdownStream, text: str) -> int:
        fed.append(len(text))
        return feed(layout, text)

    monkeypatch.setattr(MarkdownStream, "feed", counted)
    block = said("- one of many entries\n" * 9_000)
    sheet = measured(Comparison([block], []), 60)
    assert sum(fed) <= 1_500
    assert sheet.height == 5
    hidden = sheet.cell("other", 4).line.text.strip()
    assert re.fullmatch(r"\+1\d,\d{3} lines", hidden)
    fed.clear()
    block.unfolded = True
    assert measured(Comparison([block], []), 60).height == 1_001
    assert sum(fed) <= 25_000


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
    sheet = measured(one, width)
    for side, count in (("other", len(left)), ("live", len(right))):
        name: Side = "other" if side == "other" else "live"
        starts = sheet.starts[name]
        assert len(starts) == count
        assert starts == sorted(set(starts))
        assert all(sheet.cell(name, row).entry == i for i, row in enumerate(starts))
    shared = [i for i, entry in enumerate(one.sides["other"]) if entry.same]
    matched = [i for i, entry in enumerate(one.sides["live"]) if entry.same]
    for mine, theirs in zip(shared, matched, strict=True):
        assert sheet.starts["other"][mine] == sheet.starts["live"][theirs]


@pytest.mark.parametrize(
    ("display", "failed", "fact"),
    [
        ((ShellBlock("ls", 1, 0.1),), True, "exit 1"),
        ((DiffBlock("a", 12, 58, ()),), False, "+12 −58"),
        ((DiffBlock("a", 3, 0, ()), DiffBlock("b", 1, 0, ())), False, "+4"),
        ((BriefBlock("6 files"),), False, "6 files"),
        ((), True, "failed"),
        ((), False, ""),
    ],
)
def test_a_call_tells_what_came_of_it(
    display: tuple[DisplayBlock, ...], failed: bool, fact: str
) -> None:
    block = called(state="failed" if failed else "done", target="t " * 40, display=display)
    row = measured(Comparison([block], []), 60).cell("other", 0).line.text
    assert row.split("…")[1].split() == [*fact.split(), "#7"]
    assert len(row) == 58


def table(files: Divergence, width: int = 120, fork: int = 3) -> ComparedFiles:
    """Return the table for world line 2."""
    return ComparedFiles(files, 2, fork, width, UNICODE)


def words(rows: list[tuple[list[Span], int]]) -> list[str]:
    """Return the rows as plain text."""
    return ["".join(span.text for span in spans) for spans, _ in rows]


ROW = DiffLine("+", 4, "x")
SAME = SideChange("same")
FILES = Divergence(
    (
        DivergedFile("a/b.py", SideChange("changed", "agent", LineDiff(15, 61, (ROW,))), SAME),
        DivergedFile("new.py", SAME, SideChange("new", "agent", LineDiff(14, 0, (ROW,)))),
        DivergedFile("README", SAME, SideChange("changed", "others", LineDiff(1, 1, ()))),
        DivergedFile("c", SAME, SideChange("changed", "both", LineDiff(2, 0, ()))),
        DivergedFile("d", *[SideChange("gone", "agent", LineDiff(0, 3, (ROW,)))] * 2, alike=True),
        DivergedFile(
            "e", SideChange("changed"), SideChange("changed", "agent", LineDiff(0, 0, ()))
        ),
    ),
    ("A remark.",),
)


def test_each_side_of_the_files_has_a_column() -> None:
    rows = table(FILES).rows(frozenset())
    assert [index for _, index in rows] == [0, 1, 2, 3, 4, 5, -1]
    assert [re.split(" {2,}", row.strip(), maxsplit=2) for row in words(rows)[:2]] == [
        ["a/b.py", "+15 −61", "same as at #3"],
        ["new.py", "same as at #3", "new  +14"],
    ]
    ends = [
        "same as at #3", "new  +14", "changed outside kimi-tui", "also changed outside kimi-tui  +2", "same as on world line 2",
        "permissions",
    ]  # fmt: skip
    for row, end in zip(words(rows), ends, strict=False):
        assert row.endswith(end)
        assert len(row) == 118
    assert "gone  −3 " in words(rows)[4]
    assert "not text" in words(rows)[5]
    assert words(rows)[-1].strip() == "A remark."
    head = "".join(span.text for span in table(FILES).head())
    assert head.index("world line 2") + 12 == words(rows)[0].index("−61") + 3 == 57
    assert "unchanged" in words(table(FILES, fork=-1).rows(frozenset()))[1]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_table_says_less(width: int) -> None:
    rows = words(table(FILES, width).rows(frozenset()))
    assert all(len(row) == width - 2 for row in rows[:-1])
    assert rows[0].split()[1:] == ["+15", "−61", "same"]
    assert "same change" in rows[4]


def test_a_diff_says_which_side_it_is_of() -> None:
    rows = words(table(FILES).rows(frozenset({0})))
    assert [row.strip() for row in rows[1:3]] == ["World line 2, since #3", "4 + x"]
    rows = words(table(FILES).rows(frozenset({4})))
    assert [row.strip() for row in rows[5:7]] == ["Both, since #3", "4 + x"]
    rows = words(table(FILES).rows(frozenset({5})))
    assert [row.strip() for row in rows[6:10]] == [
        "World line 2, since #3",
        "There is no diff to show.",
        "Current, since #3",
        "There is no diff to show.",
    ]


def test_where_there_are_no_files_a_sentence_says_so() -> None:
    assert words(table(Divergence(reason="It is unknown.")).rows(frozenset())) == [
        "    It is unknown."
    ]
    (row,) = words(table(Divergence()).rows(frozenset()))
    assert row.strip() == "Neither world line has changed a file since they diverged."
    assert "now" not in str(table(Divergence()).head())


def test_no_file_name_can_move_the_cursor() -> None:
    hostile = DivergedFile(
        "a\x1b[2J\nb",
        SideChange("new", "agent", LineDiff(0, 0, (DiffLine("+", 1, "\x1b[2J\x07"),))),
        SAME,
    )
    rows = words(table(Divergence((hostile,), ("r\x1b[2J",))).rows(frozenset({0})))
    assert all(row.isprintable() for row in rows)
