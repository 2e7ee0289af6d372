"""Futures that were never current in lists and exports of their session."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kimi_tui.commands import export, sessions
from kimi_tui.export.story import tell
from kimi_tui.projection.blocks import AgentBlock, Block
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tui.replay.source import recorded

from .conftest import Scene
from .test_own_agents import plan


def words_of(block: Block) -> str:
    """What stands in a block of the chat."""
    if isinstance(block, AgentBlock):
        return block.stream.text
    return f"{type(block).__name__} {getattr(block, 'text', '')}"


@pytest.mark.exhaustive
async def test_all_that_futures_said_is_exported_as_lines_of_their_own(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    futures, soul = scene.futures, scene.soul
    # Two from the end, one of which left a line itself by a D-Mail, and one from the middle of what was said since.
    first, second = await futures.start(plan("do alpha", "do mail"))
    await futures.ended()
    await soul.run("do gamma")
    (third,) = await futures.start(replace(plan("do beta"), target=Target(2)))
    await futures.ended()
    await soul.run("do path")
    await soul.travel.rewind(Target(6))
    await soul.run("do port")
    session = soul.session
    lines = {futures.state(key).world_line for key in (first, second, third)}
    live = [point.uid for point in session.context.checkpoints]
    await soul.aclose()

    records, _ = await asyncio.to_thread(recorded, session, visits_futures=True)
    story = tell(records, str(scene.work))
    assert story.faults == 0
    said = list(map(words_of, story.blocks.values()))
    for words in ("I did alpha.", "I did beta.", "I did mail.", "I did gamma.", "I did path."):
        assert sum(words in one for one in said) == 1, words
    # The end is the conversation as it is, and nothing tells of a switch that never was.
    keys, points = story.end()
    assert [story.points[place].uid for place in points] == live
    plain = tell((await asyncio.to_thread(recorded, session))[0], str(scene.work))
    shown = [words_of(story.blocks[key]) for key in keys]
    assert shown == [words_of(plain.blocks[key]) for key in plain.end()[0]]
    assert len(story.points) == len({one.uid for one in story.points})
    assert set(story.line_names) >= set(plain.line_names)
    assert max(story.line_names) < 100
    assert lines <= set(story.line_names)

    path = tmp_path / "out.html"
    assert await asyncio.to_thread(export.run, [session.id, "--html", "-o", str(path)]) == 0
    text = path.read_text()
    assert text.count("I did alpha.") >= 1
    assert "<title>" in text
    current = tmp_path / "current.html"
    arguments = [session.id, "--html", "--world-lines", "current", "-o", str(current)]
    assert await asyncio.to_thread(export.run, arguments) == 0
    assert "I did alpha." not in current.read_text()
    cast = tmp_path / "out.cast"
    assert await asyncio.to_thread(export.run, [session.id, "--cast", "-o", str(cast)]) == 0
    assert "I did alpha." in cast.read_text()

    # The list counts what each has that the conversation has not.
    capsys.readouterr()
    name = ["--session", session.id, "--json"]
    assert await asyncio.to_thread(sessions.list_in_session, "worldlines", name) == 0
    listed = {one["n"]: one for one in json.loads(capsys.readouterr().out)}
    alpha = listed[futures.state(first).world_line]
    assert (alpha["reason"], alpha["messages_dropped"], alpha["steps"]) == ("future", 6, 4)
    assert alpha["tokens_before"] == 1210
    assert re.match(r"20\d\d-", alpha["at"])
    assert all(listed[n]["messages_dropped"] for n in lines)
    # Nothing left the context, so the table has no figure for what stayed.
    assert await asyncio.to_thread(sessions.list_in_session, "worldlines", name[:2]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert "tokens before  after  age" in rows[0]
    of_futures = [row for row in rows if re.match(rf" *({'|'.join(map(str, lines))}) ", row)]
    assert len(of_futures) == len(lines)
    assert all(re.search(r" future .*\dk {9}(now|\d+ s|\d+ min)$", row) for row in of_futures)
