"""The places of a searched text in the rows of the chat: across rows, folded or not, in either case, nothing interpreted."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

import pytest
from support.cases import each, first_only
from support.effort import n_calls, n_steps

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    DMailBlock,
    PackedText,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.tool_cards import TodoBlock, TodoItem
from kimi_tui.tui.rows import LayoutRoom, Line
from kimi_tui.tui.transcript import copied_text
from kimi_tui.tui.transcript.search import (
    CHARS_AT_ONCE,
    ROWS_AT_ONCE,
    Finder,
    FoundMatch,
    Match,
    Origin,
    SearchCount,
    drained,
    matches,
    may_hold,
    parts_in_row,
    pattern_of,
    unfolded_rows,
)

ROOM = LayoutRoom(60)
START = Origin()


def agent(text: str, key: int = 1) -> AgentBlock:
    """Return an answer of the agent."""
    block = AgentBlock(key, key, f"u{key}")
    block.stream.add(text)
    block.stream.end()
    block.open = False
    return block


def shell(output: str, key: int = 1, target: str = "make") -> ToolBlock:
    """Return a command that has run."""
    return ToolBlock(
        key,
        key,
        f"u{key}",
        tool="Shell",
        name="Shell",
        target=target,
        state="done",
        result=PackedText.of(output),
    )


def words(block: Block, query: str) -> list[list[str]]:
    """Return the matches in a block, each as the pieces of its rows."""
    pattern = pattern_of(query)
    assert pattern is not None
    rows = drained(unfolded_rows(block, ROOM))
    return [
        [rows[part.row].text[part.start : part.end] for part in match]
        for match in matches(rows, pattern)
    ]


def test_what_is_read_is_found_not_its_source() -> None:
    assert words(agent("so **very** much, _very_ much"), "VERY much") == [["very much"]] * 2
    assert words(agent("so **very** much"), "**") == []
    assert words(agent("a &lt;b&gt; c"), "<b>") == [["<b>"]]
    assert words(agent("no [red]markup[/red] here"), "[red]") == [["[red]"]]


def test_across_the_end_of_a_row() -> None:
    said = "word " * 9 + "the end of one row and the beginning of the next"
    assert words(agent(said), "word the end of") == [["word the", "end of"]]
    # The number at the right of the person's first row is no part of what was said.
    person = UserBlock(1, 4, "u", text=said)
    assert words(person, "word the end of") == [["word the", "end of"]]
    assert words(person, "#4") == []
    assert words(UserBlock(1, 4, "u", text="short"), "#4") == [["#4"]]


def whole(block: Block) -> str:
    """Return the copied text of all rows of an unfolded block."""
    rows = drained(unfolded_rows(block, ROOM))
    end = copied_text.RowPosition(len(rows) - 1, len(rows[-1].text))
    return copied_text.part_of(block, rows, copied_text.RowPosition(0, 0), end)


def test_a_line_that_was_cut_anywhere() -> None:
    line = "x" * 40 + "needle" + "y" * 60 + " needle"
    for block in (shell(line), agent(f"```\n{line}\n```")):
        assert ["".join(parts) for parts in words(block, "needle")] == ["needle"] * 2
        assert line in whole(block)


def test_blanks_at_a_cut_are_kept() -> None:
    for at in range(45, 60):
        line = "x" * at + " z" + "y" * 30
        for block in (shell(line), agent(f"```\n{line}\n```")):
            assert line in whole(block)


def test_what_is_folded_is_found() -> None:
    block = shell("\n".join(f"line {n}" for n in range(30)))
    assert words(block, "line 3") == [["line 3"]]
    assert not block.unfolded
    thought = ThoughtBlock(1, open=False)
    thought.stream.add("deep\nthinking")
    assert words(thought, "thinking") == [["thinking"]]
    letter = DMailBlock(2, 7, "u", text="Mind this", folded=(shell("lost words"),))
    assert words(letter, "lost words") == [["lost words"]]


def called(tool: str, **values: Any) -> ToolBlock:
    """Return a call that is over."""
    made = ToolBlock(1, 1, "u1", tool=tool, name=tool, state="done")
    for name, value in values.items():
        setattr(made, name, value)
    return made


PLAN = json.dumps({"plan": "1. Zitate über Zeilen\n2. tests"})
LETTER = json.dumps({"message": "Nicht über Zeilen", "checkpoint_id": 3})


@each(
    "block",
    [
        called("ExitPlanMode", arguments=PLAN),
        called("ExitPlanMode", arguments=PLAN, state="rejected", message="What of tabs?"),
        called("ExitPlanMode", arguments=PLAN, result=PackedText.of("1. Of mine")),
        called("SendDMail", arguments=LETTER),
        called("Shell", changed=("one.py", "two.py"), n_changed=3, result=PackedText.of("made")),
        called("SetTodoList", display=(TodoBlock((TodoItem("Read it", "done"),)),)),
        called("AskUserQuestion", result=PackedText.of("Tabs? Yes")),
        called("ReadFile", state="failed", message="There is no such file."),
    ],
)
def test_all_that_a_card_shows_is_found_and_copied(block: ToolBlock) -> None:
    for row in drained(unfolded_rows(block, ROOM))[1:]:
        for word in row.text.split():
            assert drained(may_hold(block, word)), word
    if block.arguments:
        shown = {
            word for row in drained(unfolded_rows(block, ROOM))[1:] for word in row.text.split()
        }
        assert set(copied_text.source_of(block).split()) <= shown


@each(
    "block, query, expected",
    [
        (agent("**foo**bar"), "foobar", True),
        (agent(r"foo\_bar"), "foo_bar", True),
        (agent("a &amp; b"), "a & b", True),
        (agent("nothing"), "something", False),
        (agent("nothing"), "**", True),
        (shell("output", target="make test"), "make TEST", True),
        (shell("output"), "puts", False),
        (agent("x" * (CHARS_AT_ONCE - 3) + "need, -le"), "needle", True),
        (agent("x" * (2 * CHARS_AT_ONCE) + "n eedl"), "needle", False),
    ],
)
def test_what_cannot_hold_it_is_not_laid_out(block: Block, query: str, expected: bool) -> None:
    assert drained(may_hold(block, query)) is expected


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "query"),
    first_only(
        [
            ("&amp; " * 150_000, "needle"),
            ("```\n" + "a needle\n" * 4_000, "needle"),
            ("```\n" + "a needle " * 8_000, "e"),
        ],
        2,
    ),
    ids=["names of letters", "lines", "a line"],
)
def test_a_flood_is_looked_through_in_steps(text: str, query: str) -> None:
    steps = Finder(query).scan([agent(text)], ROOM, START)
    spent: list[int] = []
    for _ in range(5_000):
        places: list[FoundMatch | None] = []
        spent.append(n_calls(lambda: places.extend(islice(steps, 1))))  # noqa: B023 - called at once
        if not places:
            break
    assert max(spent) < sum(spent) / 20


@pytest.mark.sample
@pytest.mark.parametrize("word", ["aab", "a ab "])
def test_of_a_long_line_the_same_is_found(word: str) -> None:
    rows = drained(unfolded_rows(agent("```\n" + word * 6_000), ROOM))
    assert len(rows) > 2 * ROWS_AT_ONCE
    for query in ("aa", "ab", "b" + "aab" * 60):
        pattern = pattern_of(query)
        assert pattern is not None
        found = ["".join(texts_of(match, rows)) for match in matches(rows, pattern)]
        assert found == [one[0] for one in re.finditer(re.escape(query), (word * 6_000).rstrip())]


def texts_of(match: Match, rows: list[Line]) -> list[str]:
    return [rows[part.row].text[part.start : part.end] for part in match]


def test_one_row_is_marked_as_the_whole_is() -> None:
    block = agent("an apple, " * 60)
    rows = drained(unfolded_rows(block, ROOM))
    pattern = pattern_of("apple, an")
    assert pattern is not None
    whole = [part for match in matches(rows, pattern) for part in match]
    assert len(whole) > 60
    single = [part for row in range(len(rows)) for part in parts_in_row(rows, row, pattern)]
    assert single == whole


def run(finder: Finder, blocks: list[Block], origin: Origin = START) -> list[FoundMatch]:
    """Return the places to go to at once."""
    return [place for place in finder.scan(blocks, ROOM, origin) if place is not None]


def test_the_nearest_below_then_round_the_ends() -> None:
    blocks: list[Block] = [agent("an apple and an apple", 1), shell("pear", 2), agent("apple", 3)]
    finder = Finder("apple")
    assert finder.count(blocks) == SearchCount("apple", 0, 0, complete=False)
    assert run(finder, blocks, Origin(1)) == [FoundMatch(3, 0)]
    finder.current = FoundMatch(3, 0)
    assert finder.count(blocks).words == "3 of 3"
    assert finder.next(blocks, 1) == FoundMatch(1, 0)
    assert finder.next(blocks, -1) == FoundMatch(1, 1)
    finder.current = FoundMatch(1, 0)
    assert finder.next(blocks, 1) == FoundMatch(1, 1)
    assert finder.next(blocks, -1) == FoundMatch(3, 0)
    # Nothing below: the nearest above.
    assert run(Finder("pear"), blocks, Origin(2)) == [FoundMatch(2, 0)]
    assert run(Finder("apple and"), blocks, Origin(2)) == [FoundMatch(1, 0)]
    assert run(Finder("  "), blocks) == []


def test_what_is_above_the_first_visible_row_is_not_below() -> None:
    blocks: list[Block] = [agent("apple\n\n" + "word\n\n" * 20 + "apple", 1)]
    assert run(Finder("apple"), blocks, Origin(0, 10)) == [FoundMatch(1, 1)]
    assert run(Finder("apple"), blocks, Origin(0, 0)) == [FoundMatch(1, 0)]
    blocks = [agent("apple\n\n" + "word\n\n" * 20, 1)]
    assert run(Finder("apple"), blocks, Origin(0, 10)) == [FoundMatch(1, 0)]


def test_what_changes_is_counted_anew() -> None:
    growing = agent("apple", 2)
    blocks: list[Block] = [agent("apple", 1), growing]
    finder = Finder("apple")
    run(finder, blocks)
    growing.stream.add(" and apple")
    growing.touch()
    run(finder, blocks)
    assert finder.count(blocks).total == 3
    assert finder.count(blocks[:1]).total == 1
    longer = finder.refined("apples")
    run(longer, blocks)
    assert longer.count(blocks).words == "none"


def test_the_search_gives_way_often() -> None:
    blocks: list[Block] = [agent("nothing", n) for n in range(60)]
    steps = sum(1 for _ in Finder("thing").scan(blocks, ROOM, Origin()))
    assert steps > 60
    long_one: list[Block] = [agent("a word " * 3_000, 1)]
    assert sum(1 for _ in Finder("word").scan(long_one, ROOM, Origin())) > 8


def work_of_going_on(n_blocks: int) -> int:
    """Return the work of going from one match to the next, and of counting them again, in so many blocks."""
    blocks: list[Block] = [agent("apple", n) for n in range(n_blocks)]
    finder = Finder("apple")
    run(finder, blocks)
    here = n_blocks // 2
    finder.current = FoundMatch(here, 0)
    assert finder.count(blocks).at == here + 1

    def go_on() -> None:
        finder.current = finder.next(blocks, 1, here)
        assert finder.current == FoundMatch(here + 1, 0)
        assert finder.count(blocks) == SearchCount("apple", here + 2, n_blocks, complete=True)

    return n_steps(go_on)


def test_going_on_takes_no_longer_in_a_long_conversation() -> None:
    assert work_of_going_on(400) < 2 * work_of_going_on(40)


def test_the_next_match_is_found_wherever_the_current_one_is() -> None:
    blocks: list[Block] = [agent(text, n) for n, text in enumerate(("pear", "apple", "apple"))]
    finder = Finder("apple")
    run(finder, blocks)
    finder.current = FoundMatch(2, 0)
    # The index belongs to another block since the blocks have changed.
    assert finder.next(blocks, -1, 0) == FoundMatch(1, 0)
    assert finder.next(blocks, 1, 7) == FoundMatch(1, 0)
    # The block of the current match is gone.
    finder.current = FoundMatch(9, 0)
    assert finder.next(blocks, 1, 2) == FoundMatch(1, 0)
    assert finder.next(blocks, -1) == FoundMatch(2, 0)


def test_counting_many_blocks_gives_way() -> None:
    blocks: list[Block] = [agent("pear", n) for n in range(5)] * 1_000
    finder = Finder("apple")
    run(finder, blocks[:5])
    assert sum(1 for _ in finder.count_in_steps(blocks)) >= 4
