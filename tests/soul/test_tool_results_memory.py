"""The memory of tools is read from a resumed session only before the first tool call, and is the same as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, call, say
from support.soul import Stage, stage

from kimi_tui.llm.message import FunctionCall, Message, ToolCall
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.tool_results import ToolMemory

EDIT: dict[str, Any] = {"path": "notes", "edit": {"old": "two", "new": "2"}}


def memory_of(on: Stage) -> ToolMemory:
    """Return the memory of the session's tools."""
    return on.soul._conversation.memory  # pyright: ignore[reportPrivateUsage]


async def turn(on: Stage, *calls: Answer) -> str:
    """Run one turn with these calls; return the result of the last one."""
    on.server.script(*calls, say("Done."))
    await on.soul.run("Go on")
    return next(text for role, text in reversed(on.sent()) if role == "tool")


async def have_read(on: Stage) -> Path:
    """Return a file that the agent has read, in a session that was closed and opened again since."""
    path = on.soul.session.work_dir / "notes"
    path.write_text("one\ntwo\n")
    await turn(on, call("ReadFile", {"path": "notes"}))
    await on.reopen()
    assert not memory_of(on).known
    return path


@pytest.mark.parametrize(
    ("arguments", "todos"),
    [
        ('{"todos": [{"title": " a ", "status": "done"}, {"title": 1}]}', [("a", "done")]),
        ('{"todos": "none"}', [("kept", "pending")]),
        ("{}", [("kept", "pending")]),
    ],
)
def test_the_list_of_a_call_is_known_again(arguments: str, todos: list[tuple[str, str]]) -> None:
    kept = '{"todos": [{"title": "kept", "status": "pending"}]}'
    calls = [
        ToolCall(id=str(n), function=FunctionCall(name="SetTodoList", arguments=text))
        for n, text in enumerate((kept, arguments))
    ]
    memory = ToolMemory()
    memory.compute(
        [
            Message(role="assistant", content="", tool_calls=calls),
            *(Message(role="tool", content="ok", tool_call_id=one.id) for one in calls),
        ]
    )
    assert memory.todos is not None
    assert [(one.title, one.status) for one in memory.todos] == todos


async def test_opening_and_talking_read_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await have_read(on)
        on.server.script(say("Yes."))
        await on.soul.run("Are you there?")
        assert not memory_of(on).known


@pytest.mark.exhaustive
async def test_a_file_that_is_as_it_was_read_may_be_changed(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        path = await have_read(on)
        await turn(on, call("StrReplaceFile", EDIT))
        assert path.read_text() == "one\n2\n"
        assert memory_of(on).known


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ["closed", "open"])
async def test_a_file_that_changed_since_is_not(tmp_path: Path, when: str) -> None:
    async with stage(tmp_path) as on:
        path = await have_read(on)
        if when == "open":
            # Something was called already, so the memory stands.
            await turn(on, call("Glob", {"pattern": "*"}))
            assert memory_of(on).known
        path.write_text("one\ntwo\nthree\n")
        assert "changed on disk since you last read it" in await turn(
            on, call("StrReplaceFile", EDIT)
        )
        assert path.read_text() == "one\ntwo\nthree\n"
        await turn(on, call("ReadFile", {"path": "notes"}), call("StrReplaceFile", EDIT))
        assert path.read_text() == "one\n2\nthree\n"


@pytest.mark.exhaustive
async def test_what_was_read_after_a_checkpoint_is_forgotten_with_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        path = await have_read(on)
        again = on.soul.session.context.n_checkpoints
        path.write_text("one\ntwo\nthree\n")
        await turn(on, call("ReadFile", {"path": "notes"}))
        await on.soul.travel.rewind(Target(again))
        assert not memory_of(on).known
        assert "changed on disk" in await turn(on, call("StrReplaceFile", EDIT))
        await on.soul.travel.undo()
        await turn(on, call("StrReplaceFile", EDIT))
        assert path.read_text() == "one\n2\nthree\n"


@pytest.mark.exhaustive
async def test_two_calls_of_one_step_share_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        path = await have_read(on)
        more = {"path": "notes", "edit": {"old": "one", "new": "1"}}
        await turn(on, call("StrReplaceFile", EDIT), call("StrReplaceFile", more))
        assert path.read_text() == "1\n2\n"
