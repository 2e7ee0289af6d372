"""Blocks below each other: positions stay true through any changes, and far blocks cost nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.conversation import Conversation

from kimi_tui.tui.chat.blocks import AgentBlock, ToolBlock
from kimi_tui.tui.chat.flow import KEPT_ROWS, Flow
from kimi_tui.tui.chat.layout import rows_of
from kimi_tui.tui.chat.lines import BLANK, Line
from kimi_tui.tui.chat.model import ChatModel
from kimi_tui.tui.chat.rows import Room
from kimi_tui.wire.events import TextPart

ROOM = Room(80)


def long_talk(turns: int) -> Conversation:
    talk = Conversation()
    for n in range(turns):
        talk.user(f"Question {n}")
        talk.step(text=f"Answer {n}.\n\n" + "word " * 100)
        talk.tool("Glob", {"pattern": "*"})
        talk.tool("Shell", {"command": "ls"}, "a\nb\nc", error=True)
        talk.end()
    return talk


def flow_of(talk: Conversation) -> tuple[ChatModel, Flow]:
    model = ChatModel()
    for record in talk.records:
        model.apply(record)
    flow = Flow(ROOM)
    flow.update(model.blocks, 0)
    return model, flow


def all_lines(flow: Flow) -> list[Line]:
    for index in range(len(flow.views)):
        flow.ensure(index)
    return [flow.line(row)[2] for row in range(flow.height)]


def expected(model: ChatModel, room: Room = ROOM) -> list[str]:
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


def test_where_a_row_is_found() -> None:
    _, flow = flow_of(long_talk(5))
    all_lines(flow)
    for row in range(flow.height):
        index, offset = flow.find(row)
        assert flow.start(index) + offset == row
        assert 0 <= offset < flow.views[index].rows


def test_far_rows_are_forgotten_and_come_back() -> None:
    model, flow = flow_of(long_talk(1_500))
    height = len(all_lines(flow))
    flow.evict(height - 40, height)
    kept = sum(len(view.lines) for view in flow.views)
    assert kept < KEPT_ROWS + 200
    assert flow.height == height
    assert flow.line(0)[2].text.strip().startswith("▌")
    assert [line.text.rstrip() for line in all_lines(flow)] == expected(model)


def test_another_width() -> None:
    model, flow = flow_of(long_talk(3))
    all_lines(flow)
    narrow = Room(40)
    flow.resize(narrow)
    assert [line.text.rstrip() for line in all_lines(flow)] == expected(model, narrow)


def test_a_growing_answer_is_laid_out_in_slices() -> None:
    talk = Conversation()
    talk.user("Hi")
    talk.step(text="Well. ")
    model, flow = flow_of(talk)
    flow.ensure(1)
    for _ in range(1_000):
        talk.tell(TextPart("word " * 10))
    for record in talk.records[-1_000:]:
        model.apply(record)
    flow.update(model.blocks, 1)
    flow.ensure(1)
    assert flow.behind
    rounds = 1
    while flow.behind:
        flow.ensure(1)
        rounds += 1
    assert 10 < rounds < 30
    block = model.blocks[1]
    assert isinstance(block, AgentBlock)
    shown = [line.text.rstrip().removesuffix("▌").rstrip() for line in flow.views[1].lines]
    assert shown == [row.text.rstrip() for row in rows_of(block, ROOM)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "text", "tool", "letter", "end", "fold", "ensure"]), st.integers(0, 9)),
        max_size=40,
    )
)  # fmt: skip
def test_positions_stay_true(steps: list[tuple[str, int]]) -> None:
    talk = Conversation()
    model = ChatModel()
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
            case "ensure" if flow.views:
                flow.ensure(number % len(flow.views))
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
