"""Results of refused or stopped calls are known again, also as older versions stored them; diffs say what changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.prompts import INTERRUPTED, NOT_BEGUN
from kimi_tui.soul.tool_results import (
    NOT_RUN,
    REJECTED,
    blocks_of,
    diff_block,
    diffs_of,
    never_ran,
    outcome_of,
    rejection,
    tool_message,
    was_stopped,
)
from kimi_tui.tool_cards import BriefBlock, DiffBlock, DiffLine, ShellBlock, TodoBlock, TodoItem
from kimi_tui.tools.outcome import FileEdit, ToolOutcome
from kimi_tui.tools.shell import command_that_ran

TEXTS = st.lists(st.sampled_from("abcd "), max_size=12).map("\n".join) | st.text(
    "ab\n", max_size=20
)


@pytest.mark.parametrize("user", ["user", "person"])
def test_what_the_user_did_to_a_call_is_read_back(user: str) -> None:
    def read(text: str) -> ToolOutcome:
        stored = ToolOutcome(message=text.replace("user", user), is_error=True)
        return outcome_of(tool_message("c", stored))

    refused = [REJECTED, rejection("no").message, NOT_RUN]
    assert [(never_ran(read(one)), was_stopped(read(one))) for one in refused] == [
        (True, False)
    ] * 3
    assert (never_ran(read(NOT_BEGUN)), was_stopped(read(NOT_BEGUN))) == (True, True)
    assert (never_ran(read(INTERRUPTED)), was_stopped(read(INTERRUPTED))) == (False, True)
    said = f"Exit 0.\nThe {user} changed the command before it ran. What ran is:\nls -a"
    assert command_that_ran("ls", said) == "ls -a"
    assert command_that_ran("ls", "Exit 0.") == "ls"


@given(TEXTS | st.none(), TEXTS)
def test_a_diff_turns_the_old_text_into_the_new(before: str | None, after: str) -> None:
    block = diff_block(FileEdit("f", before, after), None)
    old, new = (before or "").split("\n"), after.split("\n")
    if old[-1] == "" and new[-1] == "":
        old, new = old[:-1], new[:-1]
    if (before or "") == "":
        old = []
    if after == "":
        new = []
    removed = {line.number for line in block.lines if line.sign == "-"}
    added = {line.number: line.text for line in block.lines if line.sign == "+"}
    rebuild_history: list[str] = []
    kept = iter([text for number, text in enumerate(old, 1) if number not in removed])
    for number in range(1, len(old) - len(removed) + len(added) + 1):
        rebuild_history.append(added[number] if number in added else next(kept))
    assert rebuild_history == new
    assert (block.added, block.removed) == (len(added), len(removed))
    assert all(new[line.number - 1] == line.text for line in block.lines if line.sign != "-")
    assert all(old[line.number - 1] == line.text for line in block.lines if line.sign == "-")
    assert block.created is (before is None)


def test_a_final_newline_is_a_change() -> None:
    block = diff_block(FileEdit("f", "a\nb", "a\nb\n"))
    assert (block.added, block.removed) == (1, 0)


def test_cards_keep_few_rows_and_whole_counts() -> None:
    before = "".join(f"{i}\n" for i in range(1000))
    after = before.replace("5", "five")
    card = diff_block(FileEdit("f", before, after), 20)
    assert len(card.lines) == 20
    assert card.added == card.removed == sum("5" in str(i) for i in range(1000))


@pytest.mark.exhaustive
def test_what_is_too_much_to_compare_is_counted_at_once() -> None:
    before = "".join(f"old {i % 110}\n" for i in range(60_000))
    after = "".join(f"new {i % 109}\n" for i in range(50_000))
    block = diff_block(FileEdit("f", before, after))
    assert (block.added, block.removed, block.lines) == (50_000, 60_000, ())
    # Before a yes all of it is there.
    assert len(diff_block(FileEdit("f", before, after), None).lines) == 110_000


async def test_effects_become_blocks() -> None:
    blocks = await blocks_of(
        [
            FileEdit("a.py", None, "x\n"),
            ShellBlock("ls", 0, 0.5),
            TodoBlock((TodoItem("one", "done"),)),
        ],
        "1 line",
    )
    assert blocks == (
        BriefBlock("1 line"),
        DiffBlock("a.py", 1, 0, (DiffLine("+", 1, "x"),), created=True),
        ShellBlock("ls", 0, 0.5),
        TodoBlock((TodoItem("one", "done"),)),
    )
    (block,) = await diffs_of([FileEdit("a", "x\n" * 9_000, "y\n" * 3)])
    assert isinstance(block, DiffBlock)
    assert len(block.lines) == 9_003
