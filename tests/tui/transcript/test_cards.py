"""The text of a tool card, and the parts of it that stay if room is short."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi_tui.projection.blocks import ToolBlock, UserBlock
from kimi_tui.tool_cards import (
    ALLOWED_BY,
    BriefBlock,
    DiffBlock,
    DiffLine,
    ShellBlock,
    TodoBlock,
    TodoItem,
)
from kimi_tui.tui.rows import LayoutRoom, cells
from kimi_tui.tui.transcript.layout import user_message
from kimi_tui.tui.transcript.tool_card import tool_card

WIDE = LayoutRoom(81)


def block(tool: str = "Shell", name: str = "Shell", **values: Any) -> ToolBlock:
    made = ToolBlock(key=1, checkpoint=5, uid="u", tool=tool, name=name)
    made.state = "done"
    for key, value in values.items():
        setattr(made, key, value)
    return made


def rows(made: ToolBlock, room: LayoutRoom = WIDE) -> list[str]:
    return [line.text.rstrip() for line in tool_card(made, room)]


def shell(output: str, code: int | None = 0, **values: Any) -> ToolBlock:
    state = "done" if code == 0 else "failed"
    values = {"target": "make test", "state": state, **values}
    return block(output=output, display=(ShellBlock("make test", code, 2.4),), **values)


def test_a_plan_is_drawn_from_its_markdown_once_its_question_is_answered() -> None:
    arguments = json.dumps({"plan": "# Plan\n\n1. Split `reader.py`\n2. **Test** it\n"})
    made = block("ExitPlanMode", "Plan", arguments=arguments)
    assert rows(made)[1:] == ["      Plan", "", "      1. Split reader.py", "      2. Test it"]
    made.state = "waiting"
    assert len(rows(made)) == 1


def test_a_command_that_went_well_shows_its_last_lines() -> None:
    assert rows(shell("one\ntwo\nthree\nfour\n\n")) == [
        "  ✓ Shell make test                                        exit 0   2.4 s    #5",
        "      two",
        "      three",
        "      four   +1 line",
    ]


@pytest.mark.parametrize("code", [0, 1])
def test_a_command_of_the_users_own_shows_what_it_said(code: int) -> None:
    """It was run to be read."""
    made = shell("a\n\nb\n", code, is_own=True)
    assert rows(made)[1:] == ["      a", "", "      b"]
    said = [f"line {n}" for n in range(20)]
    assert rows(shell("\n".join(said), code, is_own=True))[1:] == [f"      {s}" for s in said]
    long = shell("\n".join(f"line {n}" for n in range(500)), code, is_own=True)
    shown = rows(long)[1:]
    assert (shown[0], shown[-1], len(shown)) == ("      line 0", "      line 499", 20)
    assert shown[9] == "      +481 lines"
    named = rows(long, LayoutRoom(60, unfold_keys="Tab, then Space"))
    assert named[10] == "      +481 lines   Tab, then Space shows all"
    assert len(rows(long, LayoutRoom(80, lowest=True))) < 6


def test_a_command_that_failed_shows_three_and_why_in_red() -> None:
    made = shell("a\nb\nFAILED tests/test_x.py\n1 failed\n", 1)
    assert rows(made)[1:] == ["      b", "      FAILED tests/test_x.py", "      1 failed   +1 line"]
    styles = [line.spans[1].style for line in list(tool_card(made, WIDE))[1:]]
    assert styles == ["quiet", "error", "quiet"]


def test_a_command_says_what_it_changed_under_its_output() -> None:
    made = shell("made\n", changed=("a.py", "sub/b.py"), n_changed=3)
    said = "      3 files changed, can be restored: a.py, sub/b.py …"
    assert rows(made)[1:] == ["      made", said]
    assert rows(made, LayoutRoom(50))[2] == "      3 files changed, can be restored: a.py, s…"
    assert rows(shell("", changed=("a",), n_changed=1, n_lost=1))[1:] == [
        "      1 file changed, cannot be restored: a"
    ]
    # A cache is named where somebody looks for it.
    made = shell("", n_ignored=1, ignored=("__pycache__",))
    assert rows(made)[1:] == []
    made.unfolded = True
    assert "A rewind does not delete new ignored files: __pycache__" in rows(made)[1]


def test_the_setting_that_allows_a_read_stands_whole_under_the_output() -> None:
    setting = f'{ALLOWED_BY}readable = ["~/notes.txt", "~/a/long/way/to/another/place"]'
    made = shell("cat: no\n", 1)
    made.display = (*made.display, BriefBlock(f"exit 1 · the sandbox blocked x · {setting}"))
    title, said, *below = rows(made)
    assert title.endswith("exit 1   the sandbox blocked x   2.4 s    #5")
    assert said == "      cat: no"
    assert " ".join(" ".join(below).split()) == setting
    assert len(rows(made, LayoutRoom(50))) > len(rows(made))


def test_answers_stand_whole_behind_their_questions() -> None:
    asked = (
        "Which of these should the importer read in its first version, given that each costs a day?"
    )
    answer = "CSV with quoted fields; and what I wrote: " + "more of it " * 6
    arguments = json.dumps(
        {"questions": [{"question": asked, "options": []}, {"question": "Tabs?"}]}
    )
    made = block(
        "AskUserQuestion",
        "Ask",
        arguments=arguments,
        output=f"{asked} {answer}\nwith a row\nTabs? Yes",
    )
    shown = rows(made, LayoutRoom(50))[1:]
    words = " ".join(" ".join(shown).split())
    assert words == " ".join(f"{asked} {answer} with a row Tabs? Yes".split())
    assert max(map(len, shown)) <= 50
    last = list(tool_card(made, LayoutRoom(50)))[-1]
    assert [(span.text, span.style) for span in last.spans[1:]] == [
        ("Tabs?", "quiet"),
        (" Yes", "ink"),
    ]
    # The title does not repeat them, nor does it repeat a single answer; of several it has their number.
    made.target = asked
    made.display = (BriefBlock("2 answers"),)
    assert [rows(made)[0].count(one) for one in ("Which", "2 answers")] == [0, 1]
    made.output, made.display = f"{asked} {answer}", (BriefBlock("CSV with"),)
    assert "CSV" not in rows(made)[0]
    assert " ".join(" ".join(rows(made, LayoutRoom(50))[1:]).split()) == f"{asked} {answer}".strip()
    # Very long ones are folded, and whole when that is undone.
    made.output = "Tabs? " + "row\n" * 60
    assert rows(made)[-1].strip() == "+36 lines"
    made.unfolded = True
    assert len(rows(made)) == 61


def test_unfolded_shows_all() -> None:
    made = shell("one\n\ntwo\n")
    made.unfolded = True
    assert rows(made)[1:] == ["      one", "", "      two"]


def test_a_very_long_output_is_bounded() -> None:
    made = shell("x\n" * 5_000)
    made.unfolded = True
    shown = rows(made)
    assert len(shown) < 1_010
    assert shown[-1] == "      +4,000 lines more"


@pytest.mark.parametrize("width", [40, 60, 69, 70, 81, 120])
def test_exit_codes_are_never_cut(width: int) -> None:
    made = shell("", 137, target="python -m something " + "long " * 30, tokens=12_300)
    (row,) = rows(made, LayoutRoom(width))
    assert "exit 137" in row
    assert "#5" in row
    assert cells(row) <= width


def test_narrow_cards_keep_one_fact() -> None:
    made = block(
        "ReadFile",
        "Read",
        target="src/csv/tokenizer.py",
        display=(BriefBlock("184 lines"),),
        tokens=2_100,
    )
    assert rows(made, LayoutRoom(60)) == [
        "  ✓ Read  src/csv/tokenizer.py                 +2.1k    #5"
    ]


def test_paths_lose_their_middle() -> None:
    made = block("ReadFile", "Read", target="src/" + "very/" * 20 + "long/tokenizer.py")
    assert "src/…/tokenizer.py" in rows(made)[0]


def diff(lines: int) -> DiffBlock:
    return DiffBlock(
        "a.py", lines, 0, tuple(DiffLine("+", n + 1, f"    line {n}") for n in range(lines))
    )


def test_a_diff_loses_common_indentation_and_folds_after_twelve_rows() -> None:
    made = block("StrReplaceFile", "Edit", target="a.py", display=(diff(20),))
    shown = rows(made)
    assert shown[1] == "       1 + line 0"
    assert len(shown) == 1 + 12 + 1
    assert shown[-1] == "      +8 lines"
    made.unfolded = True
    assert len(rows(made)) == 21


def said(text: str, **values: Any) -> list[str]:
    made = UserBlock(key=1, text=text)
    for key, value in values.items():
        setattr(made, key, value)
    return [line.text.rstrip() for line in user_message(made, WIDE)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Add a cache", ["Add a cache    not sent"]),
        ("Use the big set in place", ["Use the big set", "in place       not sent"]),
        ("One word too many", ["One word too many", "               not sent"]),
    ],
)
def test_the_words_not_sent_stand_beside_the_text_or_below_it(text: str, shown: list[str]) -> None:
    made = UserBlock(key=1, text=text, unsent=True)
    rows = [line.text.rstrip()[4:] for line in user_message(made, LayoutRoom(29))]
    assert rows == shown


def test_what_went_with_a_message_breaks_between_files_and_counts_the_rest() -> None:
    two = ("importer/quoting.py 124 lines", "tests/test_quoting.py lines 10–40")
    assert said("Fix", attached=two)[1:] == [f"▌   {', '.join(two)}"]
    names = tuple(f"importer/readers/reader{n:02}.py {n} lines" for n in range(20))
    shown = said("Fix", attached=names)
    assert len(shown) == 1 + 3
    named = sum(row.count("reader/") or row.count(".py") for row in shown)
    assert shown[-1].endswith(f", +{20 - named} more")
    assert all(row.endswith(",") for row in shown[1:-1])
    assert max(map(len, shown)) <= WIDE.width - 2
    whole = "".join(
        row.removeprefix("▌   ") + " " for row in said("Fix", attached=names, unfolded=True)[1:]
    )
    assert whole.strip() == ", ".join(names)
    # A name that has no room by itself is cut, and the others are shown all the same.
    assert said("Fix", attached=("x" * 300, "b.py 1 line"))[2] == "▌   b.py 1 line"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        # Every line takes two rows: six of them fit.
        ("\n".join(["word " * 25] * 200), "+194 lines"),
        ("short\n" * 500 + "end", "+489 lines"),
        ("short\n" * 9_000 + "end", "+8,989 lines"),
        # One line continues after the fold.
        ("short\n" + "word " * 400, "+1 line"),
        ("a" * 3_000, "+2,172 characters"),
    ],
)
def test_what_a_person_pasted_is_counted_in_its_own_lines(text: str, last: str) -> None:
    shown = said(text)
    assert shown[-1] == f"▌   {last}"
    assert len(shown) == 12 + 1
    assert len(said(text, unfolded=True)) > 13


def test_a_diff_that_was_cut_says_what_is_missing() -> None:
    cut = DiffBlock("a.py", 500, 3, diff(5).lines)
    made = block("WriteFile", "Write", target="a.py", display=(cut,))
    assert rows(made)[-1] == "      +498 lines"
    assert "+500 −3" in rows(made)[0]


def test_lists() -> None:
    todo = TodoBlock(
        (TodoItem("A", "done"), TodoItem("B", "in_progress"), TodoItem("C", "pending"))
    )
    made = block("SetTodoList", "Todo", display=(todo, BriefBlock("1 of 3 done")))
    assert rows(made) == [
        "  ✓ Todo  1 of 3 done                                                        #5",
        "      ✓ A",
        "      • B",
        "      · C",
    ]
    assert len(rows(made, LayoutRoom(80, low=True))) == 1


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        ("waiting", "waiting for your answer"),
        ("rejected", "you said no"),
        ("stopped", "stopped by you"),
    ],
)
def test_what_the_person_did(state: str, fact: str) -> None:
    assert fact in rows(block(target="x", state=state))[0]


def test_a_call_that_the_end_of_the_program_stopped_was_not_stopped_by_the_person() -> None:
    (row,) = rows(block(target="x", state="stopped", stopped_by="exit"))
    assert "kimi-tui exited" in row
    assert "by you" not in row


def test_a_failure_without_output_tells_its_message() -> None:
    made = block("ReadFile", "Read", target="x", state="failed", message="There is no such file.")
    assert rows(made)[1] == "      There is no such file."


def test_what_a_check_after_an_edit_found_is_on_its_card() -> None:
    diff = DiffBlock("a.py", 1, 0, (DiffLine("+", 1, "x=1"),), created=True)
    own = DiffBlock("a.py", 1, 1, (DiffLine("-", 1, "x=1"), DiffLine("+", 1, "x = 1")))
    made = block(
        "WriteFile",
        "Write",
        target="a.py",
        display=(BriefBlock("1 line · ruff check failed"), diff, own),
        output="ruff check a.py failed (exit code 1):\na.py:1: bad",
    )
    shown = rows(made)
    assert "+2 −1" in shown[0]
    assert "ruff check failed" in shown[0]
    assert [row.strip() for row in shown[1:]] == ["1 + x=1", "1 − x=1", "1 + x = 1"]
    made.unfolded = True
    assert rows(made)[-1].strip() == "a.py:1: bad"
