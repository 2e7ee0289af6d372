"""Commands in the sandbox, from the model's call to its result."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import call, say
from support.covered import whole_sandbox
from support.soul import next_event, stage
from support.watching import until

from kimi_tui.soul import assembly
from kimi_tui.soul.approval import Mode
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.tool_cards import ALLOWED_BY, BriefBlock
from kimi_tui.tools import grep
from kimi_tui.tools.command_groups import judge
from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox, find_sandbox
from kimi_tui.tools.supervised import marked
from kimi_tui.wire import events as ev


@pytest.fixture(scope="module", autouse=True)
def there_is_one() -> Iterator[None]:
    found = whole_sandbox(Path.home())

    def find(settings: SandboxSettings, environ: Mapping[str, str], *work_dirs: Path) -> Sandbox:
        if not settings.enabled:
            return find_sandbox(settings, environ, *work_dirs)
        # The sandbox was tried just now, and a trial takes as long as everything else that a session here does.
        return Sandbox(found.backend, settings, environ, found.program)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "find_sandbox", find)
        yield


@pytest.mark.exhaustive
async def test_commands_run_unasked_in_the_sandbox_and_ask_to_leave_it(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    async with stage(tmp_path, mode="sandboxed", sandbox=SandboxSettings(), environ=environ) as on:
        assert on.soul.mode == "sandboxed"
        (on.work / ".git").mkdir()
        outside = tmp_path / "outside"
        reason = {"sandbox": "off", "why": "The file\x1b[2J is elsewhere."}
        on.server.script(
            call(
                "Shell",
                {
                    "command": "echo made > inside; mkdir -p sub; echo x > sub/Makefile; echo ../x > .git/commondir"
                },
            ),
            call(
                "Shell",
                {"command": f"echo 1 > {Path.home()}/kimi-test; curl -sS http://127.0.0.1:9"},
            ),
            call("Shell", {"command": f"echo 1 > {outside}", "sandbox": "off"}),
            call("Shell", {"command": f"echo 1 > {outside}", **reason}),
            call(
                "Shell", {"command": "git config a.b c", "sandbox": "network", "why": "It fetches."}
            ),
            say("Done."),
        )
        turn = asyncio.create_task(on.soul.run("Go"))
        asked = on.soul.wire.subscribe()
        seen: list[ev.ApprovalRequest] = []
        async for record in asked:
            if isinstance(record.event, ev.ApprovalRequest):
                seen.append(record.event)
                if len(seen) == 1:
                    on.soul.answer(record.event.id, "once")
                else:
                    on.soul.answer(record.event.id, "no", "Not now.")
            if isinstance(record.event, ev.TurnEnd):
                break
        await turn
        assert (on.work / "inside").read_text() == "made\n"
        first, second, third, fourth, fifth = on.ear.of(ev.ToolResult)
        assert "sub/Makefile" in first.message
        assert "kimi-tui undid what the command changed in .git/commondir" in first.message
        assert "git could have run other programs" in first.message
        assert not (on.work / ".git/commondir").exists()
        assert not (Path.home() / "kimi-test").exists()
        assert f"writing {Path.home()}/kimi-test, the network" in second.message
        # The card has room for one, beside the command.
        refused = f"exit 7 · the sandbox blocked writing {Path.home()}/kimi-test and 1 more"
        assert second.display[0] == BriefBlock(refused)
        assert "needs `why`" in third.message
        # Only what leaves the sandbox was asked about, with the reason, cleaned.
        assert [one.detail for one in seen] == [f"echo 1 > {outside}", "git config a.b c"]
        assert "OUTSIDE THE SANDBOX" in seen[0].where
        assert seen[0].where.endswith("The file is elsewhere.")
        assert "WITH THE NETWORK" in seen[1].where
        assert not fourth.is_error
        assert fourth.display[0] == BriefBlock("exit 0 · outside the sandbox")
        assert outside.read_text() == "1\n"
        assert fifth.rejected
        # Changes by a command are recorded like those by a tool, so that they can be undone.
        assert on.ear.of(ev.FilesChanged)


@pytest.mark.exhaustive
async def test_a_read_in_the_home_folder_that_is_refused_is_named_with_what_allows_it(
    tmp_path: Path,
) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    for name in ("home/notes.txt", "home/.ssh/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine\n")
    async with stage(tmp_path, mode="sandboxed", sandbox=SandboxSettings(), environ=environ) as on:
        on.server.script(
            call("Shell", {"command": "cat ~/notes.txt | head -1"}),
            call("Shell", {"command": "cat ~/.ssh/config"}),
            say("Done."),
        )
        await on.soul.run("Go")
        first, second = on.ear.of(ev.ToolResult)
    line = 'readable = ["~/notes.txt"]'
    assert f"`{line}` in the section `[sandbox]`" in first.message
    assert first.display[0] == BriefBlock(
        f"exit 0 · the sandbox blocked reading ~/notes.txt · {ALLOWED_BY}{line}"
    )
    assert "~/.ssh/config is a place for credentials: do not read it." in second.message
    assert "readable" not in second.message
    assert second.display[0] == BriefBlock(
        "exit 1 · the sandbox blocked reading ~/.ssh/config (credentials)"
    )


@pytest.mark.exhaustive
async def test_what_another_program_replaces_under_a_command_is_named(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    async with stage(tmp_path, mode="sandboxed", sandbox=SandboxSettings(), environ=environ) as on:
        for name in (".env", "server.key", "conf/.env"):
            (on.work / name).parent.mkdir(exist_ok=True)
            (on.work / name).write_text("old\n")
        wait = "while ! read line < go; do :; done 2> /dev/null; echo done"
        on.server.script(call("Shell", {"command": f": > began; {wait}"}), say("Done."))
        turn = asyncio.create_task(on.soul.run("Go"))
        assert await until((on.work / "began").exists)
        # An editor saves like this.
        for name in (".env", "conf/.env"):
            (on.work / "new").write_text("new\n")
            (on.work / "new").rename(on.work / name)
        (on.work / "go.new").write_text("go\n")
        (on.work / "go.new").rename(on.work / "go")
        await turn
        (result,) = on.ear.of(ev.ToolResult)
        assert "done" in result.output
        assert "Another program replaced .env, conf/.env while" in result.message
        assert "server.key" not in result.message


@pytest.mark.exhaustive
async def test_what_a_background_task_does_to_git_is_undone_and_told_while_it_runs(
    tmp_path: Path,
) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    async with stage(tmp_path, mode="sandboxed", sandbox=SandboxSettings(), environ=environ) as on:
        await asyncio.to_thread(subprocess.run, ["git", "init", "-q"], cwd=on.work, check=True)
        wait = "while ! read line < go; do :; done 2> /dev/null"
        lever = "echo ../x > .git/commondir; git init -q sub"
        on.server.script(
            call("Shell", {"command": f"{wait}; {lever}; sleep 60", "background": True}), say("Ok.")
        )
        await on.soul.run("Go")
        heard = on.soul.wire.subscribe()
        (on.work / "go.new").write_text("go\n")
        (on.work / "go.new").rename(on.work / "go")
        said = ""
        async for record in heard:
            if isinstance(record.event, ev.Notice):
                said += record.event.text
            if ".git/commondir" in said and "sub/.git" in said:
                break
        (job,) = on.soul.tasks.all
        assert not job.ended
        assert not (on.work / ".git/commondir").exists()
        await asyncio.to_thread(subprocess.run, ["git", "status"], cwd=on.work, check=True)
        await on.soul.tasks.stop(job.id)


def commit_all(folder: Path) -> None:
    for words in ("init -q", "add -fA", "-c user.name=a -c user.email=a@b commit -qm x"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)


@pytest.mark.sample
@pytest.mark.parametrize("asks", [False, True])
async def test_a_key_that_git_keeps_is_marked(tmp_path: Path, asks: bool) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    settings = SandboxSettings()
    async with stage(
        tmp_path, mode="sandboxed", sandbox=settings, environ=environ, asks_for_keys=asks
    ) as on:
        key = "sk-proj-abcdefgh12345678abcd"
        (on.work / ".env").write_text(f"KEY={key}\n")
        commit_all(on.work)
        ways = (
            "cat .env",
            "git show HEAD:.env",
            "git cat-file -p $(git rev-parse HEAD:.env)",
            "git archive HEAD | tar -xOf - .env",
            "git worktree add -q y; cat y/.env",
        )
        on.server.script(*(call("Shell", {"command": way}) for way in ways), say("Done."))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("Go"))
        for _ in ways[1:] if asks else ():
            asked = await next_event(heard, ev.ApprovalRequest)
            assert asked.question == "Send the result of Shell to the model, with 1 possible key?"
            on.soul.answer(asked.id, "no")
        await turn
        results = on.ear.of(ev.ToolResult)
        # The file itself is hidden; what the repository keeps of it is shown.
        shown = [key in one.output or "[key left out]" in one.output for one in results]
        assert dict(zip(ways, shown, strict=True)) == {way: way in ways[1:] for way in ways}
        assert all("1 possible key" in str(one.display) for one in results[1:])
        assert asks != any(key in str(one.body) for one in on.server.requests)


async def test_without_a_sandbox_there_is_no_such_mode(tmp_path: Path) -> None:
    settings = SandboxSettings(enabled=False)
    async with stage(tmp_path, mode="sandboxed", sandbox=settings) as on:
        assert on.soul.mode == "ask"
        assert on.soul.sandbox_gaps is None
        with pytest.raises(NoSandbox, match="turned off"):
            await on.soul.set_mode("sandboxed")


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["plan", "ask", "edits", "sandboxed", "all"])
async def test_searches_run_in_the_sandbox_in_every_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    rg = tmp_path / "bin" / "rg"
    rg.parent.mkdir()
    rg.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    rg.chmod(0o755)
    monkeypatch.setattr(grep, "bundled_rg", lambda: str(rg))
    # The home folder as work folder has no sandbox for commands.
    for number, home in enumerate(("home", "work")):
        environ = {"HOME": str(tmp_path / home), "PATH": os.environ["PATH"]}
        folder = tmp_path if home == "work" else tmp_path / f"{number}"
        folder.mkdir(exist_ok=True)
        async with stage(folder, mode=mode, sandbox=SandboxSettings(), environ=environ) as on:
            assert (on.soul.sandbox_gaps is None) is (home == "work")
            on.server.script(call("Grep", {"pattern": "x"}), say("Done."))
            await on.soul.run("Look")
            told = str(on.server.requests[1].body["messages"][-1]["content"])
            assert "The search could not be run in the sandbox" in told
            assert not (tmp_path / "ran").exists()
    async with stage(tmp_path, mode=mode, environ={"PATH": os.environ["PATH"]}) as on:
        on.server.script(call("Grep", {"pattern": "x"}), say("Done."))
        await on.soul.run("Look")
        assert (tmp_path / "ran").exists()


@pytest.mark.exhaustive
async def test_in_plan_mode_commands_only_look(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    async with stage(tmp_path, mode="plan", sandbox=SandboxSettings(), environ=environ) as on:
        on.server.script(
            call(
                "Shell", {"command": "echo 1 > made || echo kept; echo 1 > $TMPDIR/x && echo wrote"}
            ),
            call("Shell", {"command": "ls", "sandbox": "off", "why": "It is quicker."}),
            say("Done."),
        )
        await on.soul.run("Look")
        first, second = (str(one.body["messages"][-1]["content"]) for one in on.server.requests[1:])
        assert "kept\nwrote" in first
        assert "Plan mode" in second
        assert not (on.soul.session.work_dir / "made").exists()


@pytest.mark.exhaustive
async def test_a_command_in_the_background_is_confined_and_ends_with_the_session(
    tmp_path: Path,
) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    async with stage(tmp_path, mode="sandboxed", sandbox=SandboxSettings(), environ=environ) as on:
        out = Path.home() / "kimi-test"
        command = f"sleep 600 & echo 1 > {out}; echo made > inside; wait"
        on.server.script(call("Shell", {"command": command, "background": True}), say("Done."))
        await on.soul.run("Go")
        assert not on.ear.of(ev.ApprovalRequest)
        assert (on.work / "inside").exists()
        assert not out.exists()
        (job,) = on.soul.tasks.all
        assert len(marked(job.running.mark)) >= 2
        await on.soul.aclose()
        assert await until(lambda: not marked(job.running.mark))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("tool", "first", "then", "during"),
    [
        ("Shell", "ask", "all", "judge"),
        ("Shell", "ask", "sandboxed", "question"),
        ("Shell", "sandboxed", "plan", "confined"),
        ("Shell", "sandboxed", "plan", "snapshot"),
        ("WriteFile", "sandboxed", "plan", "snapshot"),
        ("WriteFile", "ask", "plan", "question"),
    ],
)
async def test_the_mode_of_the_moment_of_the_start_holds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    first: Mode,
    then: Mode,
    during: str,
) -> None:
    (tmp_path / "home").mkdir()
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    async with stage(tmp_path, mode=first, sandbox=SandboxSettings(), environ=environ) as on:
        loop = asyncio.get_running_loop()
        confined, before_change = Sandbox.confined, FileHistory.before_change

        def change_in_thread() -> None:
            asyncio.run_coroutine_threadsafe(on.soul.set_mode(then), loop).result(10)

        def judge_later(*args: Any) -> Any:
            change_in_thread()
            return judge(*args)

        def confined_later(*args: Any, **options: Any) -> Any:
            if on.soul.mode == first:
                change_in_thread()
            return confined(*args, **options)

        async def before_change_later(*args: Any) -> Any:
            change = await before_change(*args)
            await on.soul.set_mode(then)
            return change

        if during == "judge":
            monkeypatch.setattr("kimi_tui.tools.shell.judge", judge_later)
        elif during == "confined":
            monkeypatch.setattr(Sandbox, "confined", confined_later)
        elif during == "snapshot":
            monkeypatch.setattr(FileHistory, "before_change", before_change_later)
        command = f"echo x > made; echo x > {tmp_path}/outside"
        arguments = {"command": command} if tool == "Shell" else {"path": "made", "content": "x\n"}
        on.server.script(call(tool, arguments), say("Done."))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("Go"))
        if during == "question":
            asked = await next_event(heard, ev.ApprovalRequest)
            await on.soul.set_mode(then)
            on.soul.answer(asked.id, "once")
        await turn
        assert on.soul.mode == then
        assert len(on.ear.of(ev.ApprovalRequest)) == (during == "question")
        assert not (tmp_path / "outside").exists()
        assert (on.work / "made").exists() == (then != "plan")
