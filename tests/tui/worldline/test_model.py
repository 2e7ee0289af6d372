"""What is said about a world line that is read, and which stored message a block of it shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kimi_tui.soul.travel_protocol import LineMessage, WorldLineInfo
from kimi_tui.tui.chat.blocks import AgentBlock, MarkBlock, ToolBlock, UserBlock
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.worldline.model import banner, left_words, message_of, newest_words

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def info(reason: str = "rewind", checkpoint_id: int = 4, at: str = "") -> WorldLineInfo:
    """A line that was left two hours ago."""
    at = at or (NOW - timedelta(hours=2)).isoformat()
    return WorldLineInfo(2, reason, checkpoint_id, "u4", at, 47_200, 30_000, 9, "", 8, 4, 8, 9, 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (info(), "left by your rewind to #4, 2 h ago"),
        (info("dmail"), "left by a D-Mail to #4, 2 h ago"),
        (info("undo"), "left by your undo, 2 h ago"),
        (info("foreign", at="nonsense"), "left by a change of line"),
        (info(at=NOW.isoformat()), "left by your rewind to #4, now"),
    ],
)
def test_why_a_line_was_left(line: WorldLineInfo, words: str) -> None:
    assert left_words(line, NOW) == words


@pytest.mark.parametrize("width", [30, 40, 60, 81, 120])
def test_the_banner_fits(width: int) -> None:
    for row in banner(info(), width, UNICODE, NOW):
        assert sum(len(text) for text, _ in row) <= width
    first, second = banner(info(), 81, UNICODE, NOW)
    assert "left by your rewind" in str(first)
    assert "Esc" in str(second)


def test_which_message_a_block_shows() -> None:
    messages = [
        LineMessage(1, "a", 0, "user", "hello"),
        LineMessage(2, "b", 0, "agent", "on it"),
        LineMessage(2, "b", 1, "tool", "one", name="Shell"),
        LineMessage(2, "b", 2, "tool", "two", name="Shell"),
    ]
    blocks = [
        UserBlock(1, 1, "a"),
        AgentBlock(2, 2, "b"),
        ToolBlock(3, 2, "b"),
        ToolBlock(4, 2, "b"),
        MarkBlock(5, 2, "b"),
    ]
    found = [message_of(block, blocks, messages) for block in blocks]
    assert found == [*messages, None]
    assert message_of(None, blocks, messages) is None
    assert message_of(UserBlock(9, 9, "z"), blocks, messages) is None
    assert newest_words(messages) is messages[1]
    assert newest_words(messages[:1]) is messages[0]
    assert newest_words([]) is None


@pytest.mark.parametrize("width", [30, 60, 81])
def test_the_banner_names_the_way_back_at_every_width(width: int) -> None:
    _, keys = banner(info(), width, UNICODE, NOW)
    assert "".join(text for text, _ in keys).endswith("Esc back to now")
