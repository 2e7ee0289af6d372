"""A session keeps the name that its first words gave it, also when a compaction took them out of the context."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.llm.message import user_message
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore

SUMMARY = "<system>Previous context has been compacted. Here is the compaction output:</system>\nIt was about birds."


async def _compacted(tmp_path: Path) -> Session:
    session = SessionStore(tmp_path / "home").create(tmp_path)
    await session.open()
    await session.context.append([user_message("Tell me about birds")])
    await session.context.append([user_message("And about owls")])
    await session.context.clear(reason="compaction", text="It was about birds.")
    await session.context.append([user_message(SUMMARY), user_message("And about owls")])
    return session


async def test_while_it_is_open_and_after(tmp_path: Path) -> None:
    session = await _compacted(tmp_path)
    assert session.title == "Tell me about birds"
    await session.aclose()
    again = SessionStore(tmp_path / "home").newest(tmp_path)
    assert again is not None
    await again.open()
    assert again.title == "Tell me about birds"
    await again.aclose()


@pytest.mark.parametrize("noted", [True, False])
async def test_in_the_list(tmp_path: Path, noted: bool) -> None:
    session = await _compacted(tmp_path)
    await session.aclose()
    if not noted:  # as after a crash: nobody wrote down what a list shows
        for path in session.dir.glob("*.json"):
            path.unlink()
    (info,) = SessionStore(tmp_path / "home").list()
    assert info.title == "Tell me about birds"


async def test_a_new_beginning_gives_a_new_title(tmp_path: Path) -> None:
    session = SessionStore(tmp_path / "home").create(tmp_path)
    await session.open()
    point = await session.context.checkpoint(add_user_message=False)
    await session.context.append([user_message("Tell me about birds")])
    await session.context.revert_to(point.id, reason="rewind")
    await session.context.append([user_message("Tell me about fish")])
    assert session.title == "Tell me about fish"
    await session.aclose()
