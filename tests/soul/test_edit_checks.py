"""Programs after edits: failures go to the model, changes are diffs of their own, and nothing leaves the sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, say
from support.covered import has_landlock
from support.soul import Stage, stage

from kimi_tui.config.file import parse_config
from kimi_tui.config.settings import EditCheck
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tool_cards import BriefBlock, DiffBlock
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.wire import events as ev

confined = pytest.mark.skipif(not has_landlock(), reason="there is no sandbox here")


def check(script: str, *files: str) -> EditCheck:
    return EditCheck(("sh", "-c", script, "sh", "{file}"), files)


async def ran(on: Stage, *calls: Any) -> list[ev.ToolResult]:
    on.server.script(*calls, say("Done."))
    await on.soul.run("Go")
    return on.ear.of(ev.ToolResult)


WRITE = call("WriteFile", {"path": "a.py", "content": "x=1\n"})


@confined
async def test_what_fails_goes_to_the_model_shortened(tmp_path: Path) -> None:
    checks = (
        check('for n in $(seq 30); do echo "$1:$n: bad"; done; exit 1', "*.py"),
        check("echo never", "*.md"),
        check("echo fine"),
    )
    async with stage(tmp_path, checks=checks, sandbox=SandboxSettings()) as on:
        if on.soul.no_sandbox:
            pytest.skip(on.soul.no_sandbox)
        (result,) = await ran(on, WRITE)
        assert not result.is_error
        assert "failed (exit code 1):\na.py:1: bad" in result.output
        assert "a.py:20: bad\n… 10 more lines" in result.output
        assert "a.py:21" not in result.output
        assert "never" not in result.output
        assert "fine" not in result.output
        assert "a.py:1: bad" in on.sent()[-1][1]
        (brief,) = [one for one in result.display if isinstance(one, BriefBlock)]
        assert brief.text == "1 line · sh -c failed"


@pytest.mark.exhaustive
@confined
async def test_a_formatter_has_a_diff_of_its_own_and_a_rewind_takes_it_along(
    tmp_path: Path,
) -> None:
    checks = (check('sed -i "s/=/ = /" "$1"'),)
    async with stage(tmp_path, checks=checks, sandbox=SandboxSettings()) as on:
        if on.soul.no_sandbox:
            pytest.skip(on.soul.no_sandbox)
        await on.soul.files_ready()
        edit = {"path": "a.py", "edit": [{"old": "x = 1", "new": "y = 2"}]}
        results = await ran(on, WRITE, call("StrReplaceFile", edit))
        diffs = [one for one in results[0].display if isinstance(one, DiffBlock)]
        assert [[(row.sign, row.text) for row in one.lines] for one in diffs] == [
            [("+", "x=1")],
            [("-", "x=1"), ("+", "x = 1")],
        ]
        assert "changed a.py:\n-    1 x=1\n+    1 x = 1" in results[0].output
        # The agent knows the file as it is now, and need not read it again.
        assert not results[1].is_error
        assert (on.work / "a.py").read_text() == "y  =  2\n"
        assert (await on.checkpoints())[1].id == 1
        await on.soul.travel.rewind(Target(1), "restore")
        assert not (on.work / "a.py").exists()


@confined
async def test_a_check_stays_in_the_sandbox_and_in_its_words(tmp_path: Path) -> None:
    checks = (
        check(f'echo > "{tmp_path}/outside"; cat "{tmp_path}/work/.env"; exit 1'),
        EditCheck(("echo", "{file}; touch evil")),
        EditCheck(("no-such-program", "{file}")),
        EditCheck(("sleep", "0")),
    )
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".env").write_text("KEY=secret\n")
    async with stage(tmp_path, checks=checks, sandbox=SandboxSettings()) as on:
        if on.soul.no_sandbox:
            pytest.skip(on.soul.no_sandbox)
        name = "-o; touch evil"
        (result,) = await ran(on, call("WriteFile", {"path": name, "content": "x"}))
        assert "KEY=secret" not in result.output
        assert not (tmp_path / "outside").exists()
        assert not (on.work / "evil").exists()
        (notice,) = on.ear.notices()
        assert notice.text.startswith("The check no-such-program cannot be run in the sandbox")


async def test_without_a_sandbox_checks_do_not_run_and_that_is_said_once(tmp_path: Path) -> None:
    async with stage(tmp_path, checks=(check("touch ran"),)) as on:
        await ran(on, WRITE, call("WriteFile", {"path": "b", "content": "x"}))
        assert not (on.work / "ran").exists()
        (notice,) = on.ear.notices()
        assert "they need the sandbox" in notice.text


def test_checks_are_words_of_the_persons_own_configuration() -> None:
    text = """
    [checks]
    after_edit = [
      ["ruff", "check", "{file}"],
      { files = ["*.py"], run = ["ruff", "format", "{file}"] },
      "ruff check",
      [],
      ["A=1", "x"],
      ["-x"],
      { run = 5 },
      { files = "x", run = ["a"] },
      ["a\\u0000b"],
    ]
    before_edit = 1
    """
    config = parse_config(text.encode(), Path("config.toml"))
    assert config.checks == (
        EditCheck(("ruff", "check", "{file}")),
        EditCheck(("ruff", "format", "{file}"), ("*.py",)),
    )
    assert len(config.notices) == 8
    assert any("before_edit" in one for one in config.notices)
    assert any("must begin with the name of a program" in one for one in config.notices)
    assert parse_config(b"[checks]\nafter_edit = 5", Path("c")).checks == ()
