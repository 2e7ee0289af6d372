"""Blocks below each other: positions stay true through any changes, and far blocks cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import first_only
from support.conversation import Conversation
from support.effort import n_calls, n_steps
from textual.strip import Strip

from kimi_tui.projection.blocks import AgentBlock, Block, ThoughtBlock, ToolBlock, UserBlock
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.tui.rows import BLANK, LayoutRoom, Line, Span
from kimi_tui.tui.slices import drained
from kimi_tui.tui.transcript import viewport as viewport_module
from kimi_tui.tui.transcript.code import colour
from kimi_tui.tui.transcript.layout import rows_of
from kimi_tui.tui.transcript.markdown_stream import whole_answer
from kimi_tui.tui.transcript.text_position import TextPosition
from kimi_tui.tui.transcript.viewport import MEASURED, Flow, Viewport
from kimi_tui.wire.events import TextPart

ROOM = LayoutRoom(80)


def long_talk(turns: int) -> Conversation:
    talk = Conversation()
    for n in range(turns):
        talk.user(f"Question {n}")
        talk.step(text=f"Answer {n}.\n\n" + "word " * 100)
        talk.tool("Glob", {"pattern": "*"})
        talk.tool("Shell", {"command": "ls"}, "a\nb\nc", error=True)
        talk.end()
    return talk


def flow_of(talk: Conversation) -> tuple[TranscriptModel, Flow]:
    model = TranscriptModel()
    for record in talk.records:
        model.apply(record)
    flow = Flow(ROOM)
    flow.update(model.blocks, 0)
    return model, flow


def all_lines(flow: Flow) -> list[Line]:
    for index in range(len(flow.views)):
        flow.lay_out(index)
    return [flow.line(row)[2] for row in range(flow.height)]


def expected(model: TranscriptModel, room: LayoutRoom = ROOM) -> list[str]:
    out: list[str] = []
    before = None
    height = 0
    for block in model.blocks:
        rows = rows_of(block, room)
        close = isinstance(before, ToolBlock) and isinstance(block, ToolBlock) and height == 1
        if before is not None and not close:
            out.append("")
        out += [row.text.rstrip() for row in rows]
        before, height = block, len(rows)
    return out


def test_rows_are_the_blocks_with_blank_rows_between() -> None:
    model, flow = flow_of(long_talk(3))
    assert [line.text.rstrip() for line in all_lines(flow)] == expected(model)


def test_only_what_is_asked_for_is_laid_out() -> None:
    _, flow = flow_of(long_talk(200))
    flow.line(flow.height - 1)
    assert sum(view.laid for view in flow.views) == 1


def test_of_a_flood_only_the_code_that_is_seen_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    fence = "```python\ndef part(n: int) -> str:\n    return 'x' * n  # so many\n```\n\nand\n\n"
    talk = Conversation()
    talk.user("Write much")
    talk.tell(TextPart(fence * 80))
    coloured: list[object] = []

    def count(lines: Sequence[str], language: str) -> list[list[Span]]:
        coloured.append(lines)
        return colour(lines, language)

    monkeypatch.setattr("kimi_tui.tui.transcript.markdown.colour", count)
    monkeypatch.setattr("kimi_tui.tui.transcript.markdown_stream.colour", count)
    _, flow = flow_of(talk)
    while flow.lay_out(1) or flow.behind:
        pass
    assert not coloured
    last = range(flow.height - 8, flow.height)
    assert any(
        "code-keyword@raised" in (span.style for span in flow.line(row)[2].spans) for row in last
    )
    assert len(coloured) <= 2
    # A reader of all rows gets the same as from one layout.
    shown = [flow.line(row)[2] for row in range(flow.start(1) + 1, flow.height - 1)]
    assert [line._replace(late=None) for line in shown] == whole_answer(fence * 80, ROOM.width)[
        : len(shown)
    ]


def test_where_a_row_is_found() -> None:
    _, flow = flow_of(long_talk(5))
    all_lines(flow)
    for row in range(flow.height):
        index, offset = flow.find(row)
        assert flow.start(index) + offset == row
        assert 0 <= offset < flow.views[index].rows


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows are kept at least; fewer than in the program, that a short chat has more."""
    monkeypatch.setattr(viewport_module, "KEPT_ROWS", 1_000)
    return 1_000


def test_far_rows_are_forgotten_and_come_back(few_kept: int) -> None:
    model, flow = flow_of(long_talk(150))
    height = len(all_lines(flow))
    assert height > few_kept + 200
    flow.evict(height - 40, height)
    kept = sum(len(view.lines) for view in flow.views)
    assert kept < few_kept + 200
    assert flow.height == height
    assert flow.line(0)[2].text.strip().startswith("▌")
    assert [line.text.rstrip() for line in all_lines(flow)] == expected(model)


def test_strips_far_from_the_screen_are_dropped_and_rows_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(viewport_module, "KEPT_STRIPS", 100)
    _, flow = flow_of(long_talk(40))
    height, rows = flow.height, all_lines(flow)
    assert height > 400
    painted = Strip.blank(1)
    for view, index, _ in flow.lines(0, height):
        if view is not None and index >= 0:
            flow.keep_strip(view, index, painted)
    flow.evict(height - 40, height)

    def kept(first: int, last: int) -> int:
        places = [place for place in flow.lines(first, last) if place[0] is not None]
        return sum(view.strips[at] is not None for view, at, _ in places if view and at >= 0)

    assert kept(0, height) < 200
    assert kept(height - 40, height) > 20
    assert [len(view.strips) for view in flow.views] == [len(view.lines) for view in flow.views]
    assert all_lines(flow) == rows


@pytest.mark.exhaustive
def test_blocks_exchanged_under_the_same_key_count_once(few_kept: int) -> None:
    model, flow = flow_of(long_talk(80))
    height = len(all_lines(flow))
    assert few_kept < height < 2 * few_kept
    for _ in range(2):
        flow.update([replace(block) for block in model.blocks], 0)
        all_lines(flow)
        flow.evict(0, 40)
        assert all(view.laid for view in flow.views)
    flow.update(model.blocks, 0)
    assert [line.text.rstrip() for line in all_lines(flow)] == expected(model)


def test_a_mark_stays_with_its_text_where_its_block_is_exchanged() -> None:
    block = UserBlock(1, text="one\n" * 5 + "here\nand there")
    flow = Flow(ROOM)
    flow.update([block], 0)
    flow.lay_out(0)
    mark = flow.position_at(5)
    assert mark is not None
    flow.positions.append(mark)
    flow.update([replace(block, text="zero\n" + block.text)], 0)
    flow.lay_out(0)
    assert "here" in flow.views[0].lines[mark.row].text


def test_another_width() -> None:
    model, flow = flow_of(long_talk(3))
    all_lines(flow)
    narrow = LayoutRoom(40)
    flow.resize(narrow)
    assert [line.text.rstrip() for line in all_lines(flow)] == expected(model, narrow)


@pytest.mark.exhaustive
def test_an_answer_that_takes_long_is_laid_out_in_slices_at_another_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(viewport_module, "AT_ONCE_S", 0.0)
    talk = Conversation()
    talk.user("Question")
    text = "```python\n" + "def f(x): return x + 1\n" * 500 + "```"
    talk.step(text=text)
    talk.end()
    _, viewport = viewport_of(talk)
    answer = viewport.flow.views[1]
    assert 0 < answer.taken < len(text) / 4
    while viewport.flow.behind:
        viewport.settle()
    assert visible(viewport)[-2].strip() == "def f(x): return x + 1"
    assert len(answer.lines) == len(whole_answer(text, ROOM.width))


@pytest.mark.sample
@pytest.mark.parametrize("follows", [True, False])
def test_another_width_measures_what_is_on_view_and_the_rest_in_slices(
    follows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, viewport = viewport_of(long_talk(MEASURED))
    assert len(model.blocks) > 3 * MEASURED
    if not follows:
        viewport.show_row(viewport.top // 2)
    measured = 0
    measure = viewport_module.probable_height

    def count(block: Block, room: LayoutRoom) -> int:
        nonlocal measured
        measured += 1
        return measure(block, room)

    monkeypatch.setattr(viewport_module, "probable_height", count)
    narrow = LayoutRoom(30)
    viewport.resize(narrow)
    shown, top, slices = visible(viewport), viewport.top, [measured]
    while not viewport.flow.is_measured:
        # Meanwhile nothing moves.
        assert (visible(viewport), viewport.top) == (shown, top)
        measured = 0
        viewport.measure()
        slices.append(measured)
    assert len(slices) > 3
    assert max(slices) <= MEASURED
    assert visible(viewport) == shown
    assert viewport.top != top
    assert not viewport.n_new
    assert viewport.follows == follows
    anew = Flow(narrow)
    anew.update(model.blocks, 0)
    unseen = [index for index, view in enumerate(viewport.flow.views) if not view.laid]
    assert len(unseen) > 3 * MEASURED
    assert [viewport.flow.views[at].rows for at in unseen] == [anew.views[at].rows for at in unseen]
    assert viewport.flow.height == sum(view.rows for view in viewport.flow.views)


@pytest.mark.exhaustive
def test_what_comes_while_another_width_is_measured_has_its_height() -> None:
    talk = long_talk(MEASURED)
    model, viewport = viewport_of(talk)
    told = len(talk.records)
    narrow = LayoutRoom(30)
    viewport.resize(narrow)
    talk.user("One more " * 20)
    grow(model, viewport, talk, told)
    model.toggle(model.blocks[2])
    viewport.update(model.blocks, 2)
    viewport.settle()
    while not viewport.flow.is_measured:
        viewport.measure()
    anew = Flow(narrow)
    anew.update(model.blocks, 0)
    for view, other in zip(viewport.flow.views, anew.views, strict=True):
        assert view.laid or view.rows == other.rows


def test_a_growing_answer_is_laid_out_in_slices() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step(text="Well. ")
    model, flow = flow_of(talk)
    flow.lay_out(1)
    for _ in range(1_000):
        talk.tell(TextPart("word " * 10))
    for record in talk.records[-1_000:]:
        model.apply(record)
    flow.update(model.blocks, 1)
    flow.lay_out(1)
    assert flow.behind
    rounds = 1
    while flow.behind:
        flow.lay_out(1)
        rounds += 1
    assert 10 < rounds < 30
    block = model.blocks[1]
    assert isinstance(block, AgentBlock)
    shown = [line.text.rstrip().removesuffix("▌").rstrip() for line in flow.views[1].lines]
    assert shown == [row.text.rstrip() for row in rows_of(block, ROOM)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "text", "tool", "letter", "end", "fold", "lay_out"]), st.integers(0, 9)),
        max_size=40,
    )
)  # fmt: skip
def test_positions_stay_true(steps: list[tuple[str, int]]) -> None:
    talk = Conversation()
    model = TranscriptModel()
    flow = Flow(ROOM)
    for step, number in steps:
        first: int | None = None
        match step:
            case "user":
                talk.user("Words\n" * (number + 1))
            case "text":
                talk.step(text="Some *text*.\n\n" * number + "more")
            case "tool":
                talk.tool("Shell", {"command": "x"}, "o\n" * number, error=bool(number % 2))
            case "letter" if talk.checkpoint > number:
                talk.letter(number, "Do not.")
            case "end":
                talk.end()
            case "fold" if model.blocks:
                first = model.toggle(model.blocks[number % len(model.blocks)]).first
            case "lay_out" if flow.views:
                flow.lay_out(number % len(flow.views))
            case _:
                pass
        for record in talk.take():
            change = model.apply(record)
            if change.first is not None:
                first = change.first if first is None else min(first, change.first)
        if first is not None:
            flow.update(model.blocks, first)
        assert [view.block for view in flow.views] == model.blocks
        assert flow.height == sum(view.rows for view in flow.views)
    lines = [line.text.rstrip().removesuffix("▌").rstrip() for line in all_lines(flow)]
    assert lines == [row.removesuffix("▌").rstrip() for row in expected(model)]
    assert flow.line(flow.height)[2] is BLANK


def test_rows_of_a_picture_are_those_that_are_asked_for_one_by_one() -> None:
    talk = long_talk(6)
    _, at_once = flow_of(talk)
    _, singly = flow_of(talk)
    # Nothing is laid out yet: where blocks stand changes on the way.
    for start, end in ((-2, 40), (17, 18), (30, 30), (40, 500)):
        found = [(index, line) for _, index, line in at_once.lines(start, end)]
        assert found == [singly.line(row)[1:] for row in range(start, end)]
    assert at_once.height == singly.height


LONG_LINES = "A line of the log that was pasted here, 中文 and all of it.\n" * 3_000
LONG_LINE = "word " * 40_000


def long_blocks() -> list[Block]:
    thought = ThoughtBlock(2, unfolded=True, open=False)
    thought.stream.add(LONG_LINES)
    tool = ToolBlock(3, tool="Shell", state="done", unfolded=True)
    tool.output = (LONG_LINE[:4_000] + "\n") * 100
    answer = AgentBlock(4, open=False)
    lines, line = LONG_LINES[: len(LONG_LINES) // 3], LONG_LINE[: len(LONG_LINE) // 3]
    answer.stream.add(f"See [one].\n\n{lines}\n\n{line}\n\n[one]: https://a.b")
    pinned = AgentBlock(5, open=False, pinned=True, checkpoint=3)
    pinned.stream.add(lines)
    return [
        UserBlock(1, text=LONG_LINES, unfolded=True),
        UserBlock(6, text=LONG_LINE, unfolded=True),
        thought,
        tool,
        answer,
        pinned,
    ]


@pytest.mark.sample
@pytest.mark.parametrize(
    "block",
    [*long_blocks()[:4], *first_only(long_blocks()[4:])],
    ids=lambda block: f"{type(block).__name__}-{block.key}",
)
def test_what_is_long_is_laid_out_in_slices(block: Block) -> None:
    flow = Flow(ROOM)
    flow.update([block], 0)
    spent = [n_calls(lambda: flow.lay_out(0))]
    assert flow.behind
    height = flow.height
    while flow.behind:
        flow.update([block], 0)
        spent.append(n_calls(lambda: flow.lay_out(0)))
        height = max(height, flow.height)
    assert len(spent) > 4
    whole = n_calls(lambda: rows_of(block, ROOM))
    # Each of them is a small part of the whole, and all of them together are not much more than that.
    assert max(spent) < whole / 2
    assert sum(spent) < 3 * whole
    flow.lay_out_whole(0)
    assert flow.views[0].lines == rows_of(block, ROOM)
    assert flow.height == len(flow.views[0].lines)


N_CHARS = 6_000
"""Two slices."""
BESIDE_A_KEY = 70_000
"""Calls in which a key gets its turn: some milliseconds."""


@pytest.mark.sample
@pytest.mark.parametrize(
    "line",
    [
        "```python\nx = 'a' + 1\n",
        "| a | b |\n|---|\n",
        *first_only(["> - a\n", "> - > - a\n", "> a\n", "1. a\n", "- a\n"]),
        *first_only(["word " * 10_000, "```python\n" + "x" * 50_000]),
        *first_only(["*a **b\n", "*a*b", "![", "[[a]", "<b@c.d>", "~~a"]),
    ],
    ids=lambda line: line[:9],
)
def test_a_key_waits_for_no_more_than_a_slice_of_what_comes(line: str) -> None:
    colour(["import what it needs"], "python")
    lead, _, body = line.rpartition("```python\n")
    fence = "```python" if lead or body != line else ""
    assert max(slices(f"\n\n{fence}\n", body, HEIGHT)) < BESIDE_A_KEY


@pytest.mark.exhaustive
def test_a_key_waits_no_longer_where_the_pane_is_high(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kimi_tui.tui.transcript.viewport.thread_time", lambda: 0.0)
    low, high = (max(slices("\n\n", "- - - a\n", height)) for height in (HEIGHT, 10 * HEIGHT))
    assert high < 1.5 * low


def slices(lead: str, line: str, height: int) -> list[int]:
    """Return the calls of each slice in which many characters are laid out that come in one go, and then end."""
    block = AgentBlock(1)
    block.stream.add("So: ")
    flow = Flow(ROOM)
    flow.update([block], 0)
    viewport = Viewport(flow)
    viewport.height = height
    viewport.settle()
    block.stream.add(lead)
    block.stream.add(line * (N_CHARS // len(line) + 1))
    spent: list[int] = []
    for is_open in (True, False):
        block.open = is_open
        block.touch()
        viewport.update([block], 0)
        spent.append(n_calls(lambda: viewport.settle(whole=False)))
        while flow.behind:
            viewport.update([block], 0)
            spent.append(n_calls(lambda: viewport.settle(whole=False)))
    rows = range(viewport.top, viewport.top + viewport.height)
    assert [flow.line(row)[2] for row in rows] == rows_of(block, ROOM)[-len(rows) :]
    return spent


@pytest.mark.exhaustive
def test_what_went_by_unseen_is_laid_out_in_steps_for_who_wants_all_of_it() -> None:
    block = AgentBlock(1, open=False)
    block.stream.add("A *word* of it, and `more` of that.\n\n- one\n- two\n\n" * 150 + "The end.")
    flow = Flow(ROOM)
    flow.update([block], 0)
    while flow.behind or not flow.views[0].laid:
        flow.lay_out(0)
    mark = TextPosition(1, len(flow.views[0].lines) - 1, 0)
    flow.positions.append(mark)
    assert flow.views[0].late is not None
    steps = flow.whole_in_steps(flow.views[0])
    spent: list[int] = []
    while flow.views[0].late is not None:
        spent.append(n_calls(lambda: next(steps)))
    assert len(spent) > 300
    assert max(spent) < BESIDE_A_KEY / 10
    assert flow.views[0].lines == rows_of(block, ROOM)
    assert flow.views[0].lines[mark.row].text.strip() == "The end."


def test_an_unfolded_thought_grows_by_what_comes() -> None:
    def spent(start: int) -> int:
        block = ThoughtBlock(1, unfolded=True)
        block.stream.add("word " * start)
        flow = Flow(ROOM)
        flow.update([block], 0)
        flow.lay_out(0)
        while flow.behind:
            flow.lay_out(0)

        def grow() -> None:
            for _ in range(50):
                block.stream.add("more words\n and ")
                block.touch()
                flow.update([block], 0)
                flow.lay_out(0)

        calls = n_calls(grow)
        block.open = False
        block.touch()
        assert [line.text.rstrip() for line in flow.views[0].lines[1:]] == [
            line.text.rstrip() for line in rows_of(block, ROOM)[1:]
        ]
        return calls

    assert spent(30_000) < 1.5 * spent(100)


HEIGHT = 20


def viewport_of(talk: Conversation) -> tuple[TranscriptModel, Viewport]:
    model, flow = flow_of(talk)
    viewport = Viewport(flow)
    viewport.height = HEIGHT
    viewport.settle()
    return model, viewport


def visible(viewport: Viewport) -> list[str]:
    rows = range(viewport.top, viewport.top + viewport.height)
    return [viewport.flow.line(row)[2].text.rstrip() for row in rows]


def grow(model: TranscriptModel, viewport: Viewport, talk: Conversation, told: int) -> None:
    first = len(model.blocks)
    for record in talk.records[told:]:
        change = model.apply(record)
        first = min(first, first if change.first is None else change.first)
    viewport.update(model.blocks, first)
    viewport.settle()


def test_the_end_is_followed_until_it_is_left_and_what_comes_then_is_new() -> None:
    talk = long_talk(6)
    model, viewport = viewport_of(talk)
    assert viewport.top == viewport.last_top > 0
    told = len(talk.records)
    talk.user("One more")
    grow(model, viewport, talk, told)
    assert viewport.top == viewport.last_top
    assert "One more" in visible(viewport)[-1]
    assert not viewport.n_new

    old, viewport.top = viewport.top, viewport.top - 5
    viewport.scrolled(old, at_end=False)
    before, told, height = visible(viewport), len(talk.records), viewport.flow.height
    talk.step(text="word " * 200)
    grow(model, viewport, talk, told)
    assert visible(viewport) == before
    assert viewport.n_new == viewport.flow.height - height > 0
    viewport.show_end()
    assert viewport.top == viewport.last_top
    assert not viewport.n_new


@pytest.mark.exhaustive
def test_of_a_flood_only_what_is_on_view_is_laid_out() -> None:
    text = "".join(
        f"## Part {n}\n\n- *first* of {n}\n- second\n\n{'word ' * 60}\n\n| a | b |\n|---|---|\n| {n} | x |\n\n"
        for n in range(80)
    )
    talk = Conversation()
    talk.user("Write much")
    talk.tell(TextPart(text))
    model, flow = flow_of(talk)
    viewport = Viewport(flow)
    viewport.height = HEIGHT
    viewport.settle()
    while flow.behind:
        viewport.settle()
    answer = model.blocks[-1]
    assert isinstance(answer, AgentBlock)
    whole = [line.text.rstrip() for line in whole_answer(text, ROOM.width)]
    spent = flow.views[1].answer.spent if flow.views[1].answer is not None else 0
    assert spent < len(text) / 3
    assert visible(viewport)[:-1] == whole[-HEIGHT:-1]
    # Page by page up to the top: each is what stands so far from the end, and follows the one before.
    at = flow.height - viewport.top
    while viewport.top:
        old, viewport.top = viewport.top, max(0, viewport.top - HEIGHT + 1)
        is_first = not viewport.top
        viewport.scrolled(old, at_end=False)
        before, at = at, flow.height - viewport.top
        assert at == before + HEIGHT - 1 or is_first
        assert visible(viewport)[2:-1] == ["", "", *whole][-at:][2 : HEIGHT - 1]
        assert not viewport.n_new
    assert flow.height == len(whole) + 2


def test_what_is_read_stands_still_whatever_is_unfolded_above_it_and_at_another_width() -> None:
    talk = Conversation()
    talk.user("Question")
    talk.tool("Shell", {"command": "make"}, "\n".join(f"row {n}" for n in range(30)))
    talk.step(text="\n\n".join(f"Paragraph {n} of the answer, and some words." for n in range(60)))
    talk.end()
    model, viewport = viewport_of(talk)
    all_lines(viewport.flow)
    viewport.settle()
    viewport.show_row(40)
    before = visible(viewport)
    model.toggle(model.blocks[1])
    viewport.update(model.blocks, 1)
    viewport.settle()
    assert visible(viewport) == before
    assert not viewport.n_new
    viewport.resize(LayoutRoom(24))
    assert visible(viewport)[0].split()[:2] == before[0].split()[:2]
    assert not viewport.n_new


def test_an_unfolded_block_opens_where_it_is_seen() -> None:
    talk = Conversation()
    for n in range(8):
        talk.user(f"Question {n}")
        talk.tool("Shell", {"command": f"make {n}"}, "\n".join(f"row {n}-{k}" for k in range(30)))
        talk.end()
    model, viewport = viewport_of(talk)
    index = len(model.blocks) - 1
    row = viewport.flow.start(index) + viewport.flow.views[index].gap - viewport.top
    model.toggle(model.blocks[index])
    viewport.toggled(model.blocks, index)
    viewport.settle()
    viewport.stay()
    assert "make" in visible(viewport)[row]
    assert visible(viewport)[row + 1].strip() == "row 7-0"
    assert not viewport.follows
    assert not viewport.n_new

    viewport.show_row(viewport.flow.start(index) + 12)
    assert "make" not in visible(viewport)[0]
    model.toggle(model.blocks[index])
    viewport.toggled(model.blocks, index)
    viewport.settle()
    assert any("make 7" in row for row in visible(viewport))


def test_where_what_was_read_is_gone_the_next_visible_block_stays_in_its_place() -> None:
    model, viewport = viewport_of(long_talk(12))
    all_lines(viewport.flow)
    index = 20
    viewport.show_row(viewport.flow.start(index) + viewport.flow.views[index].gap)
    next_key = model.blocks[index + 1].key
    at = viewport.flow.start(index + 1) - viewport.top
    del model.blocks[index]
    viewport.update(model.blocks, index)
    viewport.settle()
    assert model.blocks[index].key == next_key
    assert viewport.flow.start(index) - viewport.top == at


def test_turns_are_gone_to_from_the_first_visible_row() -> None:
    _, viewport = viewport_of(long_talk(6))
    all_lines(viewport.flow)
    viewport.show_row(viewport.turn_row(-1))
    first = visible(viewport)[0]
    viewport.show_row(viewport.turn_row(-1))
    assert visible(viewport)[0] != first
    viewport.show_row(viewport.turn_row(1))
    assert visible(viewport)[0] == first


def test_one_card_that_changes_costs_no_more_among_many() -> None:
    spent: list[int] = []
    for count in (50, 500):
        talk = Conversation()
        talk.user("Go on.")
        talk.step()
        for n in range(count):
            talk.tool("Glob", {"pattern": f"*{n}"})
        model, flow = flow_of(talk)
        flow.lay_out(1)
        model.blocks[1].touch()
        spent.append(n_calls(lambda flow=flow, blocks=model.blocks: flow.update(blocks, 1)))
    assert spent[1] <= spent[0] + 5


def test_a_block_is_found_by_its_key_without_looking_through_the_others() -> None:
    def work(turns: int) -> int:
        model, flow = flow_of(long_talk(turns))
        for index, block in enumerate(model.blocks):
            assert flow.index_of_key(block.key) == index
        half = len(model.blocks) // 2
        middle, gone = model.blocks[half].key, model.blocks.pop().key
        flow.update(model.blocks, len(model.blocks))
        assert flow.index_of_key(gone) is None
        model.blocks.insert(0, model.blocks.pop())
        flow.update(model.blocks, 0)
        assert flow.index_of_key(model.blocks[0].key) == 0
        assert flow.index_of_key(middle) == half + 1
        return n_steps(lambda: [flow.index_of(TextPosition(key, 0, 0)) for key in (middle, gone)])

    assert work(300) < 2 * work(20)


def arrange(flow: Flow, blocks: Sequence[Block]) -> bool:
    """Run the arrangement and take it; return whether it was not disturbed."""
    arranged = drained(flow.arranged(blocks))
    if arranged is not None:
        drained(flow.take(arranged))
    return arranged is not None


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.booleans()), max_size=5))
def test_what_is_arranged_in_steps_is_as_if_it_were_updated_at_once(
    changes: list[tuple[int, int, bool]],
) -> None:
    every = flow_of(long_talk(12))[0].blocks
    blocks, others = every[:31], every[31:]
    flow = Flow(ROOM)
    shown: list[Block] = list(blocks)
    with pytest.MonkeyPatch.context() as few:
        few.setattr(viewport_module, "ARRANGED", 5)
        few.setattr(viewport_module, "CHUNK", 4)
        flow.update(blocks, 0)
        for kept, more, goes_back in changes:
            shown = list(blocks) if goes_back else [*shown[:kept], *others[:more]]
            shown = list(dict.fromkeys(shown))
            if flow.views:
                flow.lay_out(min(kept, len(flow.views) - 1))
            assert arrange(flow, shown)
            at_once = Flow(ROOM)
            at_once.update(shown, 0)
            for index, view in enumerate(flow.views):
                assert view.block is shown[index] is flow.views[index].block
                assert flow.index_of_key(view.block.key) == index
                if view.laid:
                    at_once.lay_out(index)
            places = range(len(shown) + 1)
            assert [flow.start(n) for n in places] == [at_once.start(n) for n in places]
            rows = range(flow.height)
            assert [flow.find(row) for row in rows] == [at_once.find(row) for row in rows]
            assert flow._laid_rows == at_once._laid_rows  # pyright: ignore[reportPrivateUsage]


def test_rows_that_change_while_others_are_arranged_are_where_they_are_drawn() -> None:
    talk = Conversation()
    for n in range(400):
        talk.user(f"Question {n}")
        talk.step(text="# Answer\n" + "word " * 40 + "\n\n| a | b |\n|---|---|\n| 1 | 2 |")
        talk.end()
    model, flow = flow_of(talk)
    work = flow.arranged(model.blocks[:700])
    next(work)
    next(work)
    # Laid out, answers have other heights than those that were estimated.
    before = flow.height
    for index in range(450):
        flow.lay_out(index)
    assert flow.height != before
    arranged = drained(work)
    assert arranged is not None
    drained(flow.take(arranged))
    heights = [view.rows for view in flow.views]
    assert flow.height == sum(heights)
    assert flow.find(sum(heights[:500])) == (500, 0)


def test_what_is_arranged_is_given_up_where_the_blocks_are_updated_meanwhile() -> None:
    model, flow = flow_of(long_talk(200))
    work = flow.arranged(model.blocks[:700])
    next(work)
    flow.update(model.blocks[:750], 0)
    assert drained(work) is None
    assert [view.block for view in flow.views] == list(model.blocks[:750])


def test_no_step_of_arranging_takes_longer_with_more_blocks() -> None:
    costs: list[int] = []
    for turns in (200, 400):
        model, flow = flow_of(long_talk(turns))
        work = flow.arranged(model.blocks[:100] + model.blocks[300:])
        most = 0

        for _ in range(3):
            most = max(most, n_steps(partial(next, work, None)))
        costs.append(most)
    assert costs[1] < costs[0] * 1.2


def test_an_arrangement_that_is_given_up_leaves_every_gap_as_it_was() -> None:
    model, flow = flow_of(long_talk(4))
    before = [view.rows for view in flow.views]
    # Between a card and the next one is no gap, which there is after anything else.
    cards = [n for n, one in enumerate(model.blocks) if isinstance(one, ToolBlock)]
    others = [one for n, one in enumerate(model.blocks) if n not in cards[::2]]
    for end in (flow.update, lambda *_: flow.resize(ROOM), lambda *_: arrange(flow, model.blocks)):
        drained(flow.arranged(others))
        assert [view.rows for view in flow.views] != before
        end(model.blocks, 0)
        assert [view.rows for view in flow.views] == before
        assert flow.height == sum(before)


@pytest.mark.parametrize("is_resized", [False, True])
@pytest.mark.parametrize("is_cut", [False, True])
def test_laid_rows_are_counted_once_while_former_ones_are_freed(
    is_resized: bool, is_cut: bool
) -> None:
    model, flow = flow_of(long_talk(100))
    all_lines(flow)
    arranged = drained(flow.arranged(model.blocks[:300]))
    assert arranged is not None
    freeing = flow.take(arranged)
    if is_resized:
        flow.resize(ROOM._replace(width=60))
        flow.lay_out(290)
    if is_cut:
        flow.update(model.blocks[:200], 200)
    drained(freeing)
    laid = [len(view.lines) for view in flow.views if view.laid]
    assert flow._laid_rows == sum(laid)  # pyright: ignore[reportPrivateUsage]
