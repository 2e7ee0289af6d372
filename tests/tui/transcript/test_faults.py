"""A fault in the layout or the painting of one block concerns that block alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chat_app import ChatApp, is_drawn
from support.conversation import Conversation

from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.tui import faults, painter, rows
from kimi_tui.tui.faults import not_shown
from kimi_tui.tui.rows import LayoutRoom, Line, plain_rows
from kimi_tui.tui.transcript import layout, search, tool_card
from kimi_tui.tui.transcript.layout import rows_of
from kimi_tui.tui.transcript.search import Finder, Origin
from kimi_tui.tui.transcript.viewport import Flow

ROOM = LayoutRoom(80)


@pytest.fixture(autouse=True)
def _nothing_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(faults, "_logged", set[tuple[str, str, str]]())
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    root = logging.getLogger()
    before = list(root.handlers)
    for handler in before:
        if isinstance(handler, logging.FileHandler):
            root.removeHandler(handler)
    yield
    root.handlers[:] = before


def test_what_is_said_to_be_in_the_log_is_there_before_any_model_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "iter_rows", broken)
    rows_of(blocks()[0], ROOM)
    assert "a broken layout" in (tmp_path / "logs" / "kimi-tui.log").read_text()


def broken(*_: object, **__: object) -> Iterator[Line]:
    raise RuntimeError("a broken layout")


def blocks() -> list[Block]:
    answer, thought = AgentBlock(3, open=False), ThoughtBlock(4, open=False, unfolded=True)
    answer.stream.add("what the agent said")
    thought.stream.add("what it thought")
    tool = ToolBlock(5, tool="Shell", name="Shell", state="done", message="what it gave")
    return [
        UserBlock(1, text="what was asked"),
        NoticeBlock(2, text="to be noted"),
        answer,
        thought,
        tool,
        DMailBlock(6, text="a letter"),
        CompactionBlock(7, running=False, summary="a summary"),
        RetryBlock(8, reason="no answer"),
        ErrorBlock(9, title="went wrong"),
        MarkBlock(10, text="stopped"),
    ]


@pytest.mark.parametrize("block", blocks(), ids=lambda block: type(block).__name__)
def test_every_kind_of_block_is_plain_text_where_its_layout_fails(
    block: Block, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = layout.plain_text(block)
    assert words
    monkeypatch.setattr(layout, "iter_rows", broken)
    shown = "\n".join(line.text for line in rows_of(block, ROOM))
    assert "Shown as plain text" in shown
    assert all(word in shown for word in words.split())
    rows_of(block, ROOM)
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize(
    "name",
    [
        "tool_card", "whole_answer", "user_message", "thought", "dmail_card",
        "compaction_card", "error_card", "mark_row", "notice",
        "title_row", "band_rows", "expand_tabs", "paragraph",
    ],
)  # fmt: skip
def test_the_rest_of_the_chat_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layout, tool_card):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, broken)
    flow = Flow(ROOM)
    flow.update(blocks(), 0)
    for index in range(len(flow.views)):
        flow.lay_out(index)
        assert flow.views[index].height == len(flow.views[index].lines) > 0
    assert not flow.behind


def test_a_growing_answer_goes_on_as_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from kimi_tui.tui.transcript.markdown_stream import MarkdownStream

    block = AgentBlock(1)
    block.stream.add("first words ")
    flow = Flow(ROOM)
    flow.update([block], 0)
    flow.lay_out(0)
    with monkeypatch.context() as patch:
        patch.setattr(MarkdownStream, "feed", broken)
        block.stream.add("and more ")
        block.touch()
        flow.lay_out(0)
    block.stream.add("to the end")
    block.touch()
    flow.lay_out(0)
    assert "first words and more to the end" in flow.views[0].lines[-1].text
    flow.resize(LayoutRoom(60))
    flow.lay_out(0)
    assert "Shown as plain text" not in flow.views[0].lines[0].text


def test_where_even_plain_text_fails_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "clean", broken)
    (line,) = plain_rows("text", 300)
    assert not_shown() in line.text


async def test_the_program_goes_on_when_rows_cannot_be_painted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Conversation()
    talk.user("Question")
    talk.step(text="An answer that cannot be pàinted.")
    talk.tool("Shell", {"command": "ls"}, "out")
    talk.end()
    width_of = painter.cell_len

    def fails(text: str) -> int:
        if "cannot" in text:
            raise RuntimeError("a broken colour")
        return width_of(text)

    monkeypatch.setattr(painter, "cell_len", fails)
    app = ChatApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.transcript.apply(talk.take())
        await pilot.pause()
        assert is_drawn(app.transcript)
        assert any("An answer that cannot be pàinted." in row for row in app.rows)
        assert any("Question" in row for row in app.rows)


def test_a_search_goes_on_past_a_block_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finder("asked")
    places = [place for place in found.scan(blocks(), ROOM, Origin()) if place is not None]
    assert [place.key for place in places] == [1]
    monkeypatch.setattr(search, "matches_by_line", broken)
    assert not [place for place in Finder("asked").scan(blocks(), ROOM, Origin()) if place]


def test_a_compared_message_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from kimi_tui.projection.comparison import Comparison
    from kimi_tui.tui.compare import layout

    monkeypatch.setattr(layout, "_rows_of", broken)
    made = layout.ComparisonRows(
        Comparison([UserBlock(1, 1, "u1", text="what was said")], []), ROOM
    )
    for _ in made.measure():
        pass
    rows = [made.cell("other", row).line.text for row in range(made.height)]
    assert any("what was said" in row for row in rows)
