"""A turn without a screen: a caller of the engine that prints what the agent says, and what it is told where a turn ends otherwise."""

from __future__ import annotations

import asyncio
import io
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import pytest
from support.chat_server import ChatServer, call, gate, say, status
from support.soul import launch_at, stage

from kimi_tui.agent_parts import PARTS, parts_of
from kimi_tui.config.model_choice import ModelChoice, NeedsChoice
from kimi_tui.config.settings import Config, LoopControl
from kimi_tui.images import Image
from kimi_tui.launch import NEWEST, CannotOpen, Launch
from kimi_tui.llm.errors import LLMError, LLMNotSet, LLMNotSupported
from kimi_tui.soul.errors import MaxStepsReached, RunCancelled, SoulError, TurnFailed
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.model_slot import LoopLimits
from kimi_tui.soul.opening import open_session
from kimi_tui.soul.soul import Soul
from kimi_tui.wire import events as ev

# -- the caller: what a command that runs one turn comes to


async def run_turn(launch: Launch, text: str, out: TextIO, err: TextIO) -> int:
    """Run one turn in the session of a launch. The agent's words go to `out`, the rest to `err`; returns the exit code."""
    try:
        opened = await open_session(launch)
    except CannotOpen as error:
        print(error, file=err)
        return error.code
    soul = opened.soul
    printing = asyncio.create_task(_print(soul, out, err))
    try:
        result = await soul.run(text)
    except RunCancelled:
        return 130
    except (LLMError, SoulError) as error:
        print(error.message, error.advice, file=err)
        return 1
    finally:
        # The wire ends with the engine, and what is printed with the wire.
        await soul.aclose()
        await printing
    return 0 if result == "done" else 3


async def _print(soul: KimiSoul, out: TextIO, err: TextIO) -> None:
    """Print the agent's words as they come, name its calls, and refuse what it asks for."""
    async for record in soul.wire.subscribe():
        match record.event:
            case ev.TextPart(text):
                out.write(text)
            case ev.ToolCall(name=name):
                print(f"· {name}", file=err)
            case ev.ApprovalRequest(id=request_id):
                soul.answer(request_id, "no")
            case ev.Notice(level="warning" | "error", text=text, advice=advice):
                print(text, advice, file=err)
            case _:
                pass


# -- what it is told


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, which is the work folder too."""
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def launch_on(server: ChatServer, work: Path, **changes: Any) -> Launch:
    launch = launch_at(work)
    assert isinstance(launch.choice, ModelChoice)
    choice = launch.choice._replace(base_url=server.base_url, window=200_000, dialect="generic")
    return launch._replace(choice=choice, **changes)


async def said(launch: Launch, text: str) -> tuple[int, str, str]:
    """Return the exit code, what was printed, and what was said beside it."""
    out, err = io.StringIO(), io.StringIO()
    code = await run_turn(launch, text, out, err)
    return code, out.getvalue(), err.getvalue()


async def test_a_turn_prints_the_answer_and_is_stored(home: Path) -> None:
    (home / "a.txt").write_text("hello\n")
    async with ChatServer() as server:
        server.script(call("ReadFile", {"path": "a.txt"}, text="I look. "), say("It says hello."))
        launch = launch_on(server, home)
        assert await said(launch, "what is in a?") == (
            0,
            "I look. It says hello.",
            "· ReadFile\n",
        )
        server.script(say("As before."))
        code, out, _ = await said(launch._replace(resume=NEWEST), "and now?")
        assert (code, out) == (0, "As before.")
        assert "what is in a?" in str(server.requests[-1].messages)


async def test_what_ends_a_turn_is_an_exit_code_with_a_sentence(home: Path) -> None:
    async with ChatServer() as server:
        launch = launch_on(server, home)
        server.script(call("Shell", {"command": "touch x"}))
        assert await said(launch, "do it") == (3, "", "· Shell\n")
        assert not (home / "x").exists()
        server.script(status(401, {"error": {"message": "Bad key"}}))
        code, out, err = await said(launch, "hi")
        assert (code, out) == (1, "")
        assert "Bad key" in err
        few = launch._replace(config=Config(loop_control=LoopControl(max_steps_per_turn=1)))
        server.script(call("ReadFile", {"path": "a.txt"}))
        code, _, err = await said(few, "go on for ever")
        assert code == 1
        assert "limit of 1 step" in err
    code, _, err = await said(launch_at(home)._replace(choice=NeedsChoice()), "hi")
    assert code == 2
    assert "no model" in err


_UNSEEN = """
import asyncio, sys
sys.path[:0] = {path!r}
from test_headless import *

async def main():
    async with ChatServer() as server:
        server.script(say("The answer."))
        return await run_turn(launch_on(server, Path({work!r})), "hi", sys.stdout, sys.stderr)

code = asyncio.run(main())
print(code, [name for name in sys.modules if name.split(".")[0] == "textual" or name.startswith("kimi_tui.tui")])
"""


@pytest.mark.exhaustive
def test_nothing_of_the_screen_is_loaded(home: Path) -> None:
    here = Path(__file__).parent
    code = _UNSEEN.format(path=[str(here), str(here.parent)], work=str(home))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "The answer.0 []\n"


# -- what `run` raises, and tells on the wire


async def test_without_a_model_it_raises_that_none_is_set(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.soul.set_provider(None)
        with pytest.raises(LLMNotSet):
            await on.soul.run("hi")
        (end,) = on.ear.of(ev.TurnEnd)
        assert (end.reason, end.error) == ("error", "No model is configured.")


async def test_what_the_model_lacks_is_named(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        with pytest.raises(LLMNotSupported, match="does not accept images") as refused:
            await on.soul.run("look", [Image("image/png", b"x", 1, 1, "x.png")])
        assert refused.value.missing == {"image_in"}
        (notice,) = on.ear.notices()
        assert (notice.level, notice.text) == ("info", "stand-in does not accept images.")
        assert not on.ear.of(ev.TurnBegin)
        on.server.script(status(400, {"error": {"message": "stand-in does not support tools"}}))
        with pytest.raises(LLMNotSupported) as refused:
            await on.soul.run("hi")
        assert refused.value.missing == {"tools"}
        assert on.ear.of(ev.TurnEnd)[-1].kind == "tools"


async def test_steps_that_are_used_up_are_counted(tmp_path: Path) -> None:
    limits = LoopLimits(LoopControl(max_steps_per_turn=2))
    async with stage(tmp_path, limits=limits) as on:
        on.server.script(*[call("ReadFile", {"path": f"{n}"}) for n in range(2)])
        with pytest.raises(MaxStepsReached) as ended:
            await on.soul.run("go on for ever")
        assert ended.value.n_steps == 2
        assert "limit of 2 steps" in on.ear.of(ev.TurnEnd)[-1].error


async def test_a_turn_that_is_stopped_is_cancelled_for_its_caller_alone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.server.script(gate(1, say("never")), say("well"))
        turn = asyncio.create_task(on.soul.run("hi"))
        await on.server.at_gate.wait()
        await on.soul.interrupt()
        with pytest.raises(RunCancelled):
            await turn
        assert on.ear.of(ev.TurnEnd)[-1].reason == "interrupted"
        on.server.release()
        assert await on.soul.resume() == "done"


async def test_a_fault_of_the_program_is_the_cause_of_what_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:

        def broken() -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(on.soul._conversation.denwa, "begin_turn", broken)
        with pytest.raises(TurnFailed) as failed:
            await on.soul.run("hi")
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
        assert "ZeroDivisionError" in on.ear.of(ev.TurnEnd)[-1].error


async def test_what_the_system_lacked_is_no_fault_of_the_program_and_the_turn_goes_on(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        on.server.script(say("well"))

        def begin_turn() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            (tmp_path / "any").read_text()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(on.soul._conversation.denwa, "begin_turn", begin_turn)
            try:
                with pytest.raises(TurnFailed, match="Too many open files"):
                    await on.soul.run("hi")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        end = on.ear.of(ev.TurnEnd)[-1]
        assert "internal error" not in end.error
        assert "ulimit -n" in end.advice
        assert await on.soul.resume() == "done"


# -- the protocol


async def test_the_engine_is_a_soul_with_all_parts(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        soul: Soul = on.soul
        assert isinstance(soul, Soul)
        assert not isinstance(object(), Soul)
        assert parts_of(soul) == PARTS
        assert parts_of(object()) == set()
        assert (soul.name, soul.model_name, soul.message_count) == ("kimi-tui", "stand-in", 0)
        assert soul.model_capabilities == {"tools"}
        on.server.script(say("Hello.", usage=(49_990, 10)))
        assert await soul.run("hi") == "done"
        assert (soul.status.context_usage, soul.message_count) == (0.25, 2)
        assert soul.status._replace(used=300_000).context_usage == 1.0
        assert soul.status._replace(limit=0).context_usage == 0.0
        on.soul.set_provider(None)
        assert (soul.model_name, soul.model_capabilities) == ("", None)
