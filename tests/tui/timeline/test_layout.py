"""Rows as text: columns at every width, lanes, and nothing wider than its row."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from support.cases import each
from support.conversation import named
from support.story import LIMIT, Teller, until_arrived, whole_story
from textual.strip import Strip

from kimi_tui.foreign_text import one_line
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_rows import TimelineRow
from kimi_tui.projection.timeline_tree import CheckpointNode, WorldLineNode
from kimi_tui.tui import formatting as numbers
from kimi_tui.tui.glyphs import ASCII, UNICODE, Glyphs
from kimi_tui.tui.rows import Span
from kimi_tui.tui.timeline import layout
from kimi_tui.tui.timeline.layout import Columns, RowSurroundings, now_spans, row_spans
from kimi_tui.tui.timeline.viewport import TimelineViewport
from kimi_tui.wire.events import EventRecord, StatusUpdate


def model_of(teller: Teller) -> TimelineModel:
    model = TimelineModel()
    for record in teller.records:
        model.apply(record)
    return model


def painted(model: TimelineModel, width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    lines: list[str] = []
    for row in reversed([*model.rows]):
        look = RowSurroundings(
            scale=LIMIT,
            is_head=row.checkpoint is model.tree.head and row.checkpoint is not None,
            used=model.used,
            name=model.tree.name_of(row.line) if row.line is not None else "",
            has_arc=row.line is not None and row.line.reason == "dmail"
            if row.kind == "line"
            else row.checkpoint is not None and row.checkpoint.kind == "dmail",
        )
        spans = row_spans(row, Columns.of(width), glyphs, look)
        lines.append("".join(span.text for span in spans))
    assert {cell_len(line) for line in lines} == {width - 1}
    return [line.rstrip() for line in lines]


@each("width", range(32, 60))
def test_a_dmail_that_was_not_sent_says_so_in_the_narrowest_row(width: int) -> None:
    t = Teller()
    t.turn("One")
    dmail = ("SendDMail", {"message": "x", "checkpoint_id": 0})
    t.step(dmail, ("Shell", {"command": "true"}), text="Both")
    t.turn("Two")
    (row,) = [line for line in painted(model_of(t), width) if "D-Mail" in line]
    assert "D-Mail not sent" in row


@each("width", (30, 38, 60))
def test_a_number_is_on_one_row_only(width: int) -> None:
    t = Teller()
    t.turn("One")
    t.step()
    t.turn("Two")
    t.step()
    t.dmail(1, "only line 412 matters", carried=("Two", "And three"))
    t.step()
    t.steer("Rather four")
    rows = painted(model_of(t), width)
    numbered = [word for row in rows for word in row.split() if word.startswith("#")]
    assert [numbered.count(number) for number in ("#0", "#1", "#2")] == [1, 1, 1], rows
    assert sum("Two" in row or "three" in row or "four" in row for row in rows) >= 3


def test_the_story_at_its_full_width() -> None:
    assert painted(model_of(whole_story()), 38) == [
        "●   #16 now                 47.5k ▂",
        "×   #15 Shell pytest -q te… +1.2k ▂",
        "│   #14 Edit tokenizer.py   +0.9k ▂",
        "│   #13 Read tokenizer.py   +2.1k ▂",
        "│   #12 Todo 1 of 3 done    +0.4k ▂",
        '●   #11 Fields with "" ins… 42.9k ▂',
        "│",
        "│   #10 Shell git diff       ~+6k ▂",
        '│    #9 Grep "find("        +5.3k ▂',
        "◆─╮  #8 D-Mail from #12    −18.4k ▁",
        "├─◊ 3   Use re.finditer.  5 steps",
        "│    #7 Glob src/csv/*      +0.3k ▁",
        "●    #6 Why is the import…  31.0k ▁",
        "│",
        "│    #5 I split the line a… +2.9k ▁",
        "●    #4 Split at the comma… 28.1k ▁",
        "│",
        "├─◊ 2   Use a regular e… 14 steps",
        "│    #3 Shell make test      ~+2k ▁",
        "│    #2 Write importer.py   +3.1k ▁",
        "●    #1 Add a CSV importer  22.8k ▁",
        "≡    #0 Compacted        211k→21k ▁",
        "┆ ◊ 1   Build an import… 64 steps",
    ]


def test_the_story_in_thirty_and_twenty_four_columns() -> None:
    model = model_of(whole_story())
    thirty, narrow = painted(model, 30), painted(model, 24)
    assert thirty[1] == "×   #15 Shell pytest -… +1.2k"
    assert thirty[2] == "│   #14 Edit tokeni….py +0.9k"
    assert thirty[10] == "├─◊ 3   Use re.findi… 5 steps"
    assert narrow[1] == "× #15 Shell pyte… +1.2k"
    assert narrow[9] == "◆  #8 D-Mail fr… −18.4k"
    assert narrow[10] == "◊ 3 Use re.fin… 5 steps"


def test_the_story_in_ascii() -> None:
    lines = painted(model_of(whole_story()), 38, ASCII)
    assert all(line.isascii() for line in lines)
    assert lines[9] == "@-+  #8 D-Mail from #12    -18.4k _"
    assert lines[21] == "=    #0 Compacted        211k>21k _"


def test_an_opened_world_line_closes_the_loop_of_the_arc() -> None:
    model = model_of(until_arrived())
    model.toggle(next(row for row in model.rows if row.line is not None and row.line.n == 3))
    assert painted(model, 38)[1:9] == [
        "◆─╮  #8 D-Mail from #12     ~−18k ▁",
        "│ ◊ #12 D-Mail to #8        ~+700",
        "│ │ #11 Read import.log    +14.2k",
        "│ │ #10 Shell head import.… +1.9k",
        '│ │  #9 Grep "slow"         +0.8k',
        "│ │  #8 Read importer.py    +1.1k",
        "├─╯ 3   Use re.finditer.  5 steps",
        "│    #7 Glob src/csv/*      +0.3k ▁",
    ]


def test_a_long_world_line_opens_in_two_steps() -> None:
    model = model_of(until_arrived())
    model.toggle(next(row for row in model.rows if row.line is not None and row.line.n == 2))
    lines = painted(model, 38)
    at = lines.index("├─╯ 2   Use a regular e… 14 steps")
    assert lines[at - 6 : at] == [
        "│ ◊     +9 steps",
        "│ ×  #8 Shell pytest -q     +2.9k",
        "│ │  #7 Edit tokenizer.py   +1.1k",
        "│ ×  #6 Shell pytest -q     +2.9k",
        "│ │  #5 Edit tokenizer.py   +1.1k",
        "│ ●  #4 Use a regular expr… 28.1k",
    ]
    model.toggle(next(row for row in model.rows if row.kind == "more"))
    assert not any("+9 steps" in line for line in painted(model, 38))
    assert sum(line.startswith("│ ") and "#" in line for line in painted(model, 38)) > 13


def test_the_line_before_a_compaction_stands_below_it() -> None:
    model = model_of(until_arrived())
    model.toggle(next(row for row in model.rows if row.line is not None and row.line.n == 1))
    lines = painted(model, 38)
    at = lines.index("┆ ◊ 1   Build an import… 64 steps")
    assert lines[at - 1].startswith("≡    #0")
    assert lines[at + 1].startswith("┆ │ #63 Shell make check-62")
    assert lines[-1] == "┆ │     +59 steps"


def test_a_line_that_parted_from_an_open_line_takes_a_third_lane() -> None:
    t = Teller()
    t.turn("One")
    for _ in range(4):
        t.step(("Shell", {"command": "a"}))
    t.rewind(3)
    t.step(("Shell", {"command": "b"}))
    t.rewind(1)
    model = model_of(t)
    model.toggle(next(row for row in model.rows if row.kind == "line"))
    assert painted(model, 38)[:6] == [
        "│ ◊  #3 Shell b             ~+900",
        "│ ├─◊ 1   Shell a  rewind 2 steps",
        "│ │  #2 Shell a             +0.9k",
        "│ │  #1 Shell a             +0.9k",
        "├─╯ 2   Shell a  rewind   3 steps",
        "●    #0 One                 ~5.2k ▁",
    ]
    model.toggle(next(row for row in model.rows if row.line is not None and row.line.n == 1))
    assert "│ ├─╯ 1   Shell a  rewind 2 steps" in painted(model, 38)


def test_of_several_calls_the_telling_one_names_the_step() -> None:
    t = Teller()
    t.turn("One")
    todo: tuple[str, dict[str, object]] = ("SetTodoList", {"todos": [{"status": "done"}]})
    t.step(todo, ("ReadFile", {"path": "a.py"}), ("Glob", {"pattern": "*"}))
    t.step(todo)
    lines = painted(model_of(t), 38)
    assert lines[0].startswith("●    #2 Todo 1 of 1 done")
    assert lines[1].startswith("│    #1 Read a.py +2")


def test_a_bookmark_stands_in_place_of_what_happened_there() -> None:
    t = Teller()
    t.turn("One")
    t.step(("ReadFile", {"path": "a.py"}))
    model = model_of(t)
    model.apply(named(*((one.uid, "Here it worked") for one in model.tree.live)))
    lines = painted(model, 38)
    assert lines[0].startswith("●    #1 * Here it worked")
    assert lines[1].startswith("●    #0 * Here it worked")


def test_a_line_that_was_just_left_does_not_say_now() -> None:
    model = model_of(until_arrived())
    line = model.tree.lines[3]
    line.at, line.text = time.time() - 5, "Oh"
    view = TimelineViewport(
        lambda spans, width, ground: Strip([Segment(span.text) for span in spans])
    )
    view.show(model)
    view.full_width = view.width = 38
    view.height = view.screen_height = 40
    assert "3   Oh  <1 min" in "\n".join(strip.text for strip in view.lines(0, 40))


def test_now_stands_above_while_nothing_runs() -> None:
    look = RowSurroundings(scale=LIMIT, used=58_300)
    spans = now_spans(Columns.of(38), UNICODE, look)
    assert "".join(span.text for span in spans).rstrip() == "●       now                 58.3k ▂"


@given(
    st.text(max_size=60).map(one_line),
    st.integers(0, 30_000),
    st.integers(-2_000_000, 2_000_000),
    st.sampled_from(["user", "step", "dmail", "compaction", "error"]),
    st.sampled_from([24, 29, 30, 37, 38, 40, 50]),
    st.integers(0, 1_000),
)
def test_no_row_is_ever_wider_than_its_pane(
    words: str, number: int, change: int, kind: str, width: int, files: int
) -> None:
    checkpoint = CheckpointNode(1, number, "u", kind, 0, 0.0, words=words, files=files)
    checkpoint.tokens, checkpoint.tokens_end, checkpoint.measured, checkpoint.end_measured = (
        0,
        change,
        True,
        True,
    )
    if kind in ("dmail", "compaction"):
        checkpoint.saved, checkpoint.before = change, 1_999_999
    columns = Columns.of(width, digits=len(str(number)))
    for glyphs in (UNICODE, ASCII):
        row = TimelineRow("checkpoint", 0, checkpoint=checkpoint, hidden=files)
        text = "".join(
            s.text for s in row_spans(row, columns, glyphs, RowSurroundings(scale=LIMIT))
        )
        assert cell_len(text) == width - 1
        # Numbers are never cut.
        assert f"#{number}" in text


@pytest.mark.parametrize(
    ("name", "width", "age", "words"),
    [
        ("fix quotes", 46, "2 h", "1 fix quotes rewind 2 h 5 steps"),
        ("fix quotes", 38, "2 h", "1 fix quotes 2 h 5 steps"),
        ("fix the quotes in one regex", 38, "2 h", "1 fix the quo… 2 h 5 steps"),
        ("fix the quotes in one regex", 38, "23 min", "1 fix the quotes i… 5 steps"),
        ("fix the quotes in one regex", 41, "23 min", "1 fix the quo… 23 min 5 steps"),
        ("fix the quotes in one regex", 24, "2 h", "1 fix the qu… 5 steps"),
        ("", 38, "2 h", "1 world line 2 h 5 steps"),
    ],
)
def test_a_folded_line_says_its_name_then_why_and_when_it_was_left(
    name: str, width: int, age: str, words: str
) -> None:
    line = WorldLineNode(
        1, "rewind", 0.0, checkpoints=[CheckpointNode(n, n, "", "step", n, 0.0) for n in range(5)]
    )
    look = RowSurroundings(name=name, age=age)
    text = "".join(
        span.text
        for span in row_spans(TimelineRow("line", 1, line=line), Columns.of(width), UNICODE, look)
    )
    assert text.split("◊ ")[-1].split() == words.split()
    assert len(text) == width - 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "now"),
        (59, "now"),
        (60, "1 min"),
        (7_300, "2 h"),
        (90_000, "1 d"),
        (1.3e6, "2 w"),
        (1e7, ""),
    ],
)
def test_a_short_age_has_at_most_six_cells(seconds: float, words: str) -> None:
    assert numbers.short_age(seconds) == words
    assert len(words) <= 6


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def text_of(lines: list[list[Span]]) -> list[str]:
    return ["".join(span.text for span in line) for line in lines]


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (35, "Timeline   16 steps · 3 world lines"),
        (29, "Timeline       16 steps · 3 ◊"),
        (23, "Timeline       16 steps"),
    ],
)
def test_the_title_says_as_much_as_fits(width: int, words: str) -> None:
    assert text_of([layout.title_spans(16, 3, width, UNICODE)]) == [words]


def test_the_facts_of_a_turn() -> None:
    model = model_of(whole_story())
    lines = layout.checkpoint_details(
        model, model.tree.live[6], None, width=34, rows=2, glyphs=UNICODE
    )
    assert text_of(lines)[1:] == ["Why is the import slow?", "Rewinding here frees 16.5k tokens"]
    assert "min" in text_of(lines)[0] or " s" in text_of(lines)[0]


def test_the_facts_of_a_d_mail() -> None:
    model = model_of(until_arrived())
    lines = layout.checkpoint_details(
        model, model.tree.live[8], None, width=34, rows=2, glyphs=UNICODE
    )
    first = text_of(lines)[0]
    assert first[2] == ":"
    assert "sent from #12" in first
    assert text_of(lines)[2] == "Rewinding here frees ~300 tokens"


def test_a_step_of_several_tools_says_what_each_cost() -> None:
    t = Teller()
    t.turn("One")
    t.step(
        ("ReadFile", {"path": "a.py"}),
        ("ReadFile", {"path": "b.py"}),
        cost=8_000,
    )
    checkpoint = model_of(t).tree.live[1]
    assert layout.whole_label(checkpoint) == "Read a.py ~4.0k tokens, Read b.py ~4.0k"


def test_of_several_tools_the_one_that_cost_most_comes_first() -> None:
    t = Teller()
    t.turn("One")
    t.step(("Grep", {"pattern": "x"}), ("ReadFile", {"path": "b.py"}), cost=8_000)
    checkpoint = model_of(t).tree.live[1]
    assert checkpoint.calls is not None
    checkpoint.calls[0].size_chars = checkpoint.calls[1].size_chars // 3
    assert layout.whole_label(checkpoint) == 'Read b.py ~6.0k tokens, Grep "x" ~2.0k'


def test_a_world_line_tells_why_it_was_left() -> None:
    model = model_of(whole_story())
    line = model.tree.lines[2]
    told = layout.line_details(line, line.at + 7_300, model.tree.name_of(line), 34, UNICODE)
    assert text_of(told) == [
        "Use a regular expression for the",
        "whole line.",
        "World line 2  2 h ago",
        "created by your rewind to #4",
        "14 steps, ~53.2k tokens",
    ]
    assert (
        text_of(layout.line_details(model.tree.lines[3], line.at, "", 34, UNICODE))[1]
        == "created by a D-Mail from #12"
    )


def test_a_line_that_an_undo_left_tells_its_tokens_too() -> None:
    t = Teller()
    t.turn("One")
    for _ in range(2):
        t.step(("Shell", {"command": "ls"}), cost=2_000)
    left = t.rewind(1)
    t.step(("Shell", {"command": "pwd"}), cost=9_000)
    used = t.used
    t.jump(left, op="undo")
    line = model_of(t).tree.lines[2]
    assert (line.reason, line.tokens_before) == ("undo", used)
    told = text_of(layout.line_details(line, line.at, "", 34, UNICODE))
    assert told[-3:] == ["World line 2  just now", "created by your undo", "1 step, ~14.2k tokens"]


def test_the_forecast_in_words() -> None:
    model = TimelineModel()
    for used, trigger, per_step, words in (
        (10, 100, 30, "Compaction in ~3 steps"),
        (99, 100, 30, "Compaction before the next step"),
        (10, 212_000, 0, "Compaction at 212k tokens"),
        (10, 212_000, 100, "Compaction at 212k tokens"),
        (100, 100, 5, "Compaction before the next step"),
    ):
        status = StatusUpdate(used=used, limit=262_144, trigger=trigger, per_step=per_step)
        model.apply(EventRecord(1, 0.0, status))
        assert text_of(layout.now_details(model))[1] == words


def test_a_long_label_is_wrapped_then_cut() -> None:
    t = Teller()
    t.turn("alpha beta gamma delta " * 8)
    model = model_of(t)
    lines = text_of(
        layout.checkpoint_details(model, model.tree.live[0], None, width=20, rows=2, glyphs=UNICODE)
    )
    assert lines[1] == "alpha beta gamma"
    assert lines[2].endswith("…")
    assert len(lines) == 4
