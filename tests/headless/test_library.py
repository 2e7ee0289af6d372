"""The library: the examples of docs/library.md as they stand there, its stable names, and what its import loads."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from headless.conftest import Scripts
from support.chat_server import call, gate, say, status

import kimi_tui
from kimi_tui import library, open_session
from kimi_tui.library import AgentSession, CannotOpen, LLMError, Result, RunCancelled
from kimi_tui.wire.events import ApprovalRequest

PAGE = (Path(kimi_tui.__file__).parents[1] / "docs" / "library.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def ran(example: int, capfd: pytest.CaptureFixture[str]) -> str:
    """Run an example; return what it printed."""
    code = compile(EXAMPLES[example], f"example {example}", "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})
    return capfd.readouterr().out


def test_one_turn(scripts: Scripts, capfd: pytest.CaptureFixture[str]) -> None:
    scripts.server.script(say("It counts words."))
    assert ran(0, capfd) == "It counts words.\n"
    assert len(scripts.sessions()) == 1


def test_a_callback_answers(scripts: Scripts, capfd: pytest.CaptureFixture[str]) -> None:
    scripts.server.script(
        call("Shell", {"command": "touch made.txt"}),
        call("Shell", {"command": "rm made.txt"}),
        say("Made."),
    )
    assert ran(1, capfd) == "Made. 1\n"
    assert (scripts.work / "made.txt").exists()
    assert "Only touch is allowed here." in scripts.sent()


def test_a_listener_steers(scripts: Scripts, capfd: pytest.CaptureFixture[str]) -> None:
    (scripts.work / "a.txt").write_text("hello\n")
    scripts.server.script(call("ReadFile", {"path": "a.txt"}), say("hello"))
    assert ran(2, capfd) == "[ReadFile]hello"
    assert "Be brief." in scripts.sent()


def test_files_come_back(scripts: Scripts, capfd: pytest.CaptureFixture[str]) -> None:
    scripts.server.script(call("WriteFile", {"path": "draft.txt", "content": "x"}), say("Done."))
    assert ran(3, capfd) == "[1]\nTrue\n"
    assert (scripts.work / "draft.txt").read_text() == "x"
    assert len(scripts.sessions()) == 2


def test_a_dmail_takes_the_place_of_the_steps(
    scripts: Scripts, capfd: pytest.CaptureFixture[str]
) -> None:
    scripts.server.script(say("A long search."), say("I see."))
    assert ran(4, capfd) == "I see.\n"
    assert "The fault is in line 3" in scripts.sent()
    # The step is quoted by the D-Mail, and no message any more.
    assert {one["role"] for one in scripts.server.requests[-1].messages} == {"system", "user"}


def test_what_fails_is_raised(scripts: Scripts) -> None:
    scripts.server.script(
        status(401, {"error": {"message": "Bad key"}}), gate(1, say("never")), say("Well.")
    )

    async def main() -> Result:
        async with open_session(".", ephemeral=True) as session:
            with pytest.raises(LLMError, match="Bad key"):
                await session.run("hi")
            turn = asyncio.create_task(session.run("hi"))
            await asyncio.to_thread(scripts.server.wait_at_gate)
            await session.stop()
            with pytest.raises(RunCancelled):
                await turn
            return await session.run("and now?")

    assert asyncio.run(main()).answer == "Well."
    assert not scripts.sessions()

    async def unknown() -> None:
        async with open_session(".", session="nope"):
            pass

    with pytest.raises(CannotOpen, match="nope"):
        asyncio.run(unknown())


def test_an_error_of_the_callback_is_a_no(scripts: Scripts) -> None:
    async def answer(request: ApprovalRequest) -> library.Answer:
        raise ZeroDivisionError

    scripts.server.script(call("Shell", {"command": "touch x"}))

    async def main() -> Result:
        async with open_session(".", mode="ask", answer=answer) as session:
            return await session.run("make x")

    asyncio.run(main())
    assert not (scripts.work / "x").exists()


def test_the_stable_names_are_those_of_the_page() -> None:
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", PAGE.partition("## Stable names")[2], re.MULTILINE)
    named = {name: re.findall(r"`(\w+)`", words) for name, words in rows}
    assert named["`kimi_tui.open_session`"] == list(inspect.signature(open_session).parameters)
    public = [name for name in vars(AgentSession) if not name.startswith("_")]
    assert set(named["`kimi_tui.library.AgentSession`"]) == {*public, "soul"}
    assert named["`kimi_tui.library.Result`"] == list(Result._fields)
    for name in re.findall(r"\w+", "".join(re.findall(r"^\| (`[A-Z].+?) \|", PAGE, re.MULTILINE))):
        assert name in library.__all__


def test_the_package_is_typed_and_loads_nothing() -> None:
    assert (Path(kimi_tui.__file__).parent / "py.typed").exists()
    code = "import sys; before = set(sys.modules); import kimi_tui; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['__future__', 'kimi_tui']\n"
    with pytest.raises(AttributeError):
        _ = kimi_tui.nothing  # pyright: ignore[reportAttributeAccessIssue]
