from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.tool_env import Bench
from support.watching import alive, loop_waits, n_descriptors, peak_bytes, reset_peak_bytes, until

from kimi_tui.tool_cards import ShellBlock
from kimi_tui.tools import process, shell, supervised
from kimi_tui.tools.base import TO_RUN
from kimi_tui.tools.command_groups import find_shfmt
from kimi_tui.tools.outcome import ToolRejected
from kimi_tui.tools.shell import command_that_ran


def zombies() -> list[str]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in children if not alive(int(pid))]


def pids_in(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except OSError:
        return []


async def test_output_exit_code_and_time_are_told(bench: Bench) -> None:
    outcome = await bench.run("Shell", command="echo out; echo err >&2; exit 3")
    assert outcome.output == "out\nerr\n"
    assert outcome.is_error
    assert outcome.message.startswith("Exit code 3 after 0.")
    assert outcome.brief == "exit 3"
    (effect,) = outcome.effects
    assert isinstance(effect, ShellBlock)
    assert (effect.command, effect.exit_code) == ("echo out; echo err >&2; exit 3", 3)
    assert 0 < effect.duration_s < 5


async def test_a_quick_command_waits_for_no_grace(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "EOF_GRACE_S", 3_600)
    assert (await bench.run("Shell", command="true")).brief == "exit 0"


async def test_the_question_shows_exactly_what_runs(bench: Bench) -> None:
    bench.environ["HOME"] = str(bench.work_dir.parent)
    await bench.run("Shell", command="echo  'a  b'\n#x", timeout=9)
    (ask,) = bench.approver.asks
    assert (ask.asks, ask.detail) == (TO_RUN, "echo  'a  b'\n#x")
    assert ask.where == "in ~/work, at most 9 s; can change files"
    assert ask.session_key == ask.session_offer == ""


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ("off", "OUTSIDE THE SANDBOX, with all your permissions. The agent's reason: It pushes."),
        ("network", "can change files and use the network. The agent's reason: It pushes."),
    ],
)
async def test_what_a_command_wants_and_why_is_on_the_card_where_no_sandbox_runs_it(
    bench: Bench, asked: str, where: str
) -> None:
    """In `ask` mode, and where the machine has no sandbox: the model asks for what it would ask for there."""
    await bench.run("Shell", command="git push", sandbox=asked, why="It\x1b[2J\npushes.")
    (ask,) = bench.approver.asks
    assert ask.where.endswith(f"; {where}")
    # A reason is asked for where something is wanted, and nobody is asked without one.
    refused = await bench.run("Shell", command="git push", sandbox=asked, why=" ")
    assert "needs `why`" in refused.message
    assert len(bench.approver.asks) == 1


async def test_a_description_which_other_tools_ask_for_is_no_mistake(bench: Bench) -> None:
    outcome = await bench.run("Shell", command="echo hi", description="Says hi")
    assert (outcome.output, outcome.is_error) == ("hi\n", False)
    assert (await bench.run("Shell", command="echo hi", shell="zsh")).is_error


async def test_after_a_no_nothing_runs(bench: Bench) -> None:
    bench.approver.refuse = "not now"
    with pytest.raises(ToolRejected, match="not now"):
        await bench.run("Shell", command="touch made")
    assert not (bench.work_dir / "made").exists()


async def test_a_command_that_the_person_changed_runs_and_is_told(bench: Bench) -> None:
    bench.approver.instead = "echo careful\ntouch made"
    outcome = await bench.run("Shell", command="rm -rf .")
    assert (outcome.output, outcome.is_error) == ("careful\n", False)
    assert (bench.work_dir / "made").exists()
    assert "The user changed the command before it ran." in outcome.message
    assert command_that_ran("rm -rf .", outcome.message) == bench.approver.instead
    (effect,) = outcome.effects
    assert isinstance(effect, ShellBlock)
    assert effect.command == bench.approver.instead


@pytest.fixture
def talkative_input() -> Iterator[None]:
    """This process has an input with text in it, as a terminal app has."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"typed by the user\n")
    kept = os.dup(0)
    os.dup2(read_end, 0)
    yield
    os.dup2(kept, 0)
    for descriptor in (read_end, write_end, kept):
        os.close(descriptor)


@pytest.mark.usefixtures("talkative_input")
async def test_input_is_empty_and_there_is_no_terminal(bench: Bench) -> None:
    outcome = await bench.run(
        "Shell",
        command="cat; read x || echo no-input; [ -t 0 ] || echo no-tty; (: </dev/tty) 2>/dev/null || echo none",
    )
    assert outcome.output == "no-input\nno-tty\nnone\n"


async def test_it_runs_in_a_session_of_its_own(bench: Bench) -> None:
    outcome = await bench.run("Shell", command="ps -o sid=,pgid= -p $$; echo $$")
    sid, pgid, pid = outcome.output.split()
    assert sid == pgid == pid != str(os.getsid(0))


async def test_the_environment_is_a_short_list_without_keys(bench: Bench) -> None:
    hostile: dict[str, str] = dict.fromkeys(
        (
            "OPENAI_API_KEY",
            "KIMI_API_KEY",
            "MOONSHOT_API_KEY",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "OPENAI_CUSTOM_HEADERS",
            "LD_AUDIT",
            "GIT_SSH_COMMAND",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "PROMPT_COMMAND",
            "SSH_AUTH_SOCK",
        ),
        "sk-secret",
    )
    started = bench.write("start.sh", "echo STARTED")
    bench.environ.update(hostile)
    bench.environ.update(BASH_ENV=str(started), ENV=str(started), LC_ALL="C.UTF-8")
    bench.environ["HTTPS_PROXY"] = "http://user:sk-secret@proxy"
    outcome = await bench.run("Shell", command="env")
    seen = dict(line.split("=", 1) for line in outcome.output.splitlines())
    assert "sk-secret" not in outcome.output
    assert "STARTED" not in outcome.output
    assert not {*hostile, "BASH_ENV", "ENV", "HTTPS_PROXY"} & set(seen)
    assert seen["LC_ALL"] == "C.UTF-8"
    assert (seen["PAGER"], seen["GIT_PAGER"], seen["EDITOR"]) == ("cat", "cat", "false")
    assert seen["GIT_TERMINAL_PROMPT"] == "0"


async def test_nothing_is_left_of_an_earlier_command(bench: Bench) -> None:
    (bench.work_dir / "sub").mkdir()
    await bench.run("Shell", command="cd sub; export X=1; alias ls='echo bad'; f() { :; }")
    outcome = await bench.run("Shell", command='echo "[$X]"; pwd; type f 2>&1 | head -1')
    assert outcome.output.splitlines()[:2] == ["[]", str(bench.work_dir)]
    assert "not found" in outcome.output


async def test_a_timeout_ends_everything_it_started(tmp_path: Path) -> None:
    ways = {
        "plain": "sleep 60",
        "ignores TERM": "trap '' TERM; sleep 60; sleep 60",
        "child ignores TERM": "(trap '' TERM; sleep 60; sleep 60) & sleep 60",
        "own session": "setsid sh -c 'trap \"\" TERM; sleep 60; sleep 60' & sleep 60",
        "daemon": "nohup setsid sleep 60 >/dev/null 2>&1 & sleep 60",
    }

    async def one(name: str, way: str) -> None:
        bench = Bench(tmp_path / name)
        bench.work_dir.mkdir()
        outcome = await bench.run("Shell", command=f"echo begun; {way}", timeout=1)
        assert outcome.output == "begun\n"
        assert outcome.is_error
        assert "Stopped after 1 s (its timeout)" in outcome.message
        assert isinstance(outcome.effects[0], ShellBlock)
        assert outcome.effects[0].exit_code is None
        assert await until(lambda: _sleepers(bench.work_dir) == []), name

    await asyncio.gather(*(one(name, way) for name, way in ways.items()))


def _sleepers(folder: Path) -> list[int]:
    """Return the processes that still run in a folder."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink() == folder and alive(int(entry.name)):
                    found.append(int(entry.name))
    return found


@pytest.mark.parametrize("obeys", [True, False], ids=["obeys TERM", "ignores TERM"])
async def test_an_interrupt_ends_everything_before_it_returns(bench: Bench, obeys: bool) -> None:
    trap = "" if obeys else "trap '' TERM;"
    line = (
        f"{trap} echo $$ > pids; (echo $BASHPID >> pids; sleep 60; sleep 60) & sleep 60; sleep 60"
    )
    running = asyncio.create_task(bench.run("Shell", command=line))
    assert await until(lambda: len(pids_in(bench.work_dir / "pids")) == 2)
    pids = pids_in(bench.work_dir / "pids")
    running.cancel()
    # Two seconds are left to them, then they are killed. Until then their changes of files are those of the call.
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(process.TERM_GRACE_S + 2):
            await running
    assert not any(alive(pid) for pid in pids)
    assert await until(lambda: _sleepers(bench.work_dir) == [])


async def test_a_cancel_while_the_question_stands_runs_nothing(bench: Bench) -> None:
    bench.approver.answered.clear()
    running = asyncio.create_task(bench.run("Shell", command="touch made"))
    assert await until(lambda: bench.approver.asks != [])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not (bench.work_dir / "made").exists()


async def test_a_background_child_that_keeps_the_pipe_open_is_not_waited_for(bench: Bench) -> None:
    outcome = await bench.run("Shell", command="sleep 3600 & echo $!; echo done")
    pid, done = outcome.output.split()
    assert done == "done"
    assert "1 background process kept the output open and had to be ended" in outcome.message
    assert not outcome.is_error
    assert await until(lambda: not alive(int(pid)))


async def test_a_background_child_with_its_own_output_runs_on(bench: Bench) -> None:
    outcome = await bench.run("Shell", command="sleep 60 >/dev/null 2>&1 & echo $!")
    pid = int(outcome.output)
    try:
        assert alive(pid)
        assert "background" not in outcome.message
    finally:
        os.kill(pid, 9)


async def test_a_hundred_megabytes_pass_in_bounded_memory(bench: Bench) -> None:
    await bench.run("Shell", command="echo warm")
    line = "yes 'sixty characters of the same text over and over, sixty' | head -c 100000000"
    before = reset_peak_bytes()
    async with loop_waits() as waits:
        outcome = await bench.run("Shell", command=f"echo first; {line}; echo; echo last")
    assert peak_bytes() - before < 30_000_000
    assert len(waits) > 5, "the event loop goes on meanwhile"
    assert outcome.output.startswith("first\nsixty")
    assert outcome.output.endswith("\nlast\n")
    assert len(outcome.output) < 50_000
    assert "bytes left out …" in outcome.output
    assert "The output of 100.0 MB was shortened" in outcome.message
    assert sum(map(len, bench.live)) < 5_000_000


async def test_binary_and_invalid_utf8_output(bench: Bench) -> None:
    outcome = await bench.run("Shell", command=r"printf 'caf\xe9 \xff\xfe ok\n'")
    assert outcome.output == "caf\ufffd \ufffd\ufffd ok\n"
    outcome = await bench.run("Shell", command="head -c 3000 /dev/urandom")
    outcome.output.encode()
    assert "The output looks binary." in outcome.message
    outcome = await bench.run("Shell", command=r"printf '\033[31mred\033[0m \033]0;t\007x\n'")
    assert outcome.output == "red x\n"


async def test_a_progress_display_leaves_only_its_last_state(bench: Bench) -> None:
    outcome = await bench.run("Shell", command=r"printf '10%%\r50%%\r100%%\nend\r\n'")
    assert outcome.output == "100%\nend\n"


async def test_output_is_live(bench: Bench) -> None:
    running = asyncio.create_task(
        bench.run(
            "Shell", command="printf 'one é'; while [ ! -e go ]; do sleep 0.02; done; echo two"
        )
    )
    assert await until(lambda: "".join(bench.live) == "one é")
    assert not running.done()
    bench.write("go", "")
    outcome = await running
    assert outcome.output == "one étwo\n"
    assert "".join(bench.live) == "one étwo\n"


async def test_live_characters_are_never_cut(bench: Bench) -> None:
    line = r"for i in 1 2 3; do printf '\xe2\x82'; sleep 0.08; printf '\xac'; sleep 0.08; done"
    await bench.run("Shell", command=line)
    assert "".join(bench.live) == "€€€"


async def test_a_signal_is_named(bench: Bench) -> None:
    outcome = await bench.run("Shell", command="kill -SEGV $$")
    assert "Ended by SIGSEGV (exit code 139)" in outcome.message
    assert outcome.brief == "exit 139"


async def test_no_output_is_said(bench: Bench) -> None:
    assert "No output." in (await bench.run("Shell", command="true")).message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"command": "true", "timeout": 601}, "`timeout` should be less than or equal to 600"),
        ({"command": "true", "timeout": 0}, "`timeout` should be greater than or equal to 1"),
        ({"command": "  "}, "empty"),
        ({"command": "echo \0"}, "characters that a command line cannot contain"),
        ({"command": "echo \ud800"}, "`command` should be a valid string"),
        ({"command": "x" * 100_001}, "write it to a script"),
    ],
)
async def test_what_cannot_run_is_an_error_and_never_asked(
    bench: Bench, arguments: dict[str, object], says: str
) -> None:
    outcome = await bench.run("Shell", **arguments)
    assert outcome.is_error
    assert says in outcome.message
    assert bench.approver.asks == []


async def test_a_work_folder_that_is_gone_is_an_error(bench: Bench) -> None:
    bench.work_dir.rmdir()
    outcome = await bench.run("Shell", command="true")
    assert outcome.is_error
    assert "no longer exists" in outcome.message


@pytest.mark.exhaustive
async def test_several_commands_at_once_keep_apart(bench: Bench) -> None:
    outcomes = await asyncio.gather(
        *(bench.run("Shell", command=f"seq {n}000 {n}999") for n in range(1, 6))
    )
    for n, outcome in enumerate(outcomes, start=1):
        assert outcome.output.split() == [str(i) for i in range(n * 1000, n * 1000 + 1000)]


@pytest.mark.exhaustive
async def test_no_descriptor_or_zombie_is_left(bench: Bench) -> None:
    await bench.run("Shell", command="true")
    before = n_descriptors()
    for _ in range(10):
        await bench.run("Shell", command="echo x | cat")
    assert n_descriptors() == before
    assert not zombies()


ESCAPES = {
    "an empty environment": "env -i setsid sleep 300 & echo $! > child; sleep 300",
    "a daemon": (
        f"exec {sys.executable} -c 'import os, time\n"
        "if os.fork() == 0:\n"
        "  os.setsid()\n"
        "  if os.fork(): os._exit(0)\n"
        '  open("child", "w").write(str(os.getpid()))\n'
        f'  os.execve("{shutil.which("sleep")}", ["sleep", "300"], {{}})\n'
        "time.sleep(300)'"
    ),
    "a daemon that ignores TERM": (
        "env -i setsid /bin/sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1; done' & sleep 300"
    ),
    "a stop of what watches over it": (
        "env -i setsid sleep 300 >/dev/null 2>&1 & kill -STOP $PPID; echo $! > child; sleep 300"
    ),
}


@pytest.mark.parametrize("then", ["sleep 300", "exec >/dev/null 2>&1; sleep 300"])
async def test_who_ends_what_watches_over_it_is_told_of(bench: Bench, then: str) -> None:
    outcome = await bench.run("Shell", command=f"echo $$; kill -9 $PPID; {then}", timeout=2)
    assert "processes that it started may still run" in outcome.message
    assert "with everything it started" not in outcome.message
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(outcome.output.split()[0]), 9)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
async def test_nothing_gets_away_from_a_timeout(
    bench: Bench, escape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_KILL_WAIT_S", 1.0)
    child = bench.work_dir / "child"
    running = asyncio.create_task(bench.run("Shell", command=escape, timeout=2))
    assert await until(lambda: child.exists() and child.read_text().strip() != "")
    outcome = await running
    assert "with everything it started" in outcome.message
    assert not alive(int(child.read_text()))


FORGE = """
forge() {
  for one in /proc/$PPID/fdinfo/*; do
    grep -q '^flags:.*1$' $one && %s > /proc/$PPID/fd/${one##*/}
  done
}
"""
"""Reports in the name of the supervisor, into each pipe that this writes to."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the pipes of others")
@pytest.mark.parametrize("report", ["echo L 0", "echo L x", "printf 'L %05000d\\n' 1"])
async def test_what_a_command_reports_in_the_name_of_its_supervisor_counts_for_nothing(
    bench: Bench, report: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_KILL_WAIT_S", 0.5)
    monkeypatch.setattr(process, "TERM_GRACE_S", 1.0)
    script = f"{FORGE % report}\nenv -i setsid sleep 300 > /dev/null 2>&1 &\necho $! > child\n"
    script += "trap 'kill -STOP $PPID; forge' TERM\nwhile :; do sleep 0.1; done"
    outcome = await bench.run("Shell", command=script, timeout=1)
    pid = int((bench.work_dir / "child").read_text())
    is_alive = alive(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)
    assert not is_alive
    assert "with everything it started" in outcome.message


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the pipes of others")
@pytest.mark.parametrize("report", ["X x", "E x", "X 99999999999", "E 99999999999", "X"])
async def test_a_report_of_no_form_is_none(bench: Bench, report: str) -> None:
    script = f"{FORGE % f'echo {report}'}\nforge\nexit 7"
    outcome = await bench.run("Shell", command=script)
    assert "Exit code 7" in outcome.message


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no endless file")
def test_reports_without_end_are_not_listened_to_for_longer() -> None:
    listening = object.__new__(supervised.Supervised)
    listening.reports = os.open("/dev/zero", os.O_RDONLY)
    listening._heard, listening._exit, listening._left = b"", None, None
    try:
        assert listening._next_report("L", 0.1) is None
        assert len(listening._heard) <= supervised._REPORT_BYTES
    finally:
        os.close(listening.reports)


TRACED = """
import ctypes, os, signal
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's way to be traced")
async def test_a_command_that_has_itself_traced_and_stops_is_ended_by_its_timeout(
    bench: Bench,
) -> None:
    (bench.work_dir / "traced.py").write_text(TRACED)
    command = f"echo before; exec {sys.executable} traced.py"
    outcome = await bench.run("Shell", command=command, timeout=2)
    assert "with everything it started" in outcome.message
    assert outcome.output.strip() == "before"


@pytest.mark.parametrize("deed", ["kill -KILL $PPID", "kill -STOP $PPID"])
async def test_a_command_that_ends_or_stops_its_supervisor_is_ended_all_the_same(
    bench: Bench, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_KILL_WAIT_S", 0.5)
    outcome = await bench.run(
        "Shell", command=f"sleep 300 & echo $! > child; {deed}; sleep 300", timeout=1
    )
    assert outcome.is_error
    pid = int((bench.work_dir / "child").read_text())
    assert await until(lambda: not alive(pid))


async def test_what_cannot_be_started_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "shell_argv", lambda *_: ["/no/such/shell"])
    outcome = await bench.run("Shell", command="true")
    assert (outcome.is_error, outcome.brief) == (True, "not started")
    assert "No such file" in outcome.message


OWNER = """
import asyncio, os, sys
from pathlib import Path
from kimi_tui.tools.process import RunningCommand
running = RunningCommand(["/bin/sh", "-c", sys.argv[1]], work_dir=Path.cwd(), environ=dict(os.environ), timeout_s=300,
    on_output=lambda text: None)
asyncio.run(running.run())
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo $! > child; wait",
        "setsid env -i sleep 300 & echo $! > child; sleep 300",
        "trap '' TERM HUP; echo $$ > child; while :; do sleep 1; done",
    ],
)
async def test_a_killed_program_takes_its_command_with_it(bench: Bench, command: str) -> None:
    child = bench.work_dir / "child"
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, command, cwd=bench.work_dir
    )
    assert await until(lambda: child.exists() and child.read_text().strip() != "")
    owner.kill()
    await owner.wait()
    pid = int(child.read_text())
    assert await until(lambda: not alive(pid))


def test_descendants_are_found_by_ps() -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"])
    try:
        end = time.monotonic() + 50
        while len(supervised.descendants_by_ps(child.pid)) < 2 and time.monotonic() < end:
            pass
        found = supervised.descendants_by_ps(child.pid)
        assert len(found) == 2
        assert all(alive(pid) for pid in found)
    finally:
        for pid in [*supervised.descendants_by_ps(child.pid), child.pid]:
            os.kill(pid, 9)
        child.wait()


@pytest.mark.exhaustive
async def test_in_plan_mode_no_yes_stands_for_what_runs_the_folder(
    bench: Bench, tmp_path: Path
) -> None:
    if find_shfmt(bench.environ, bench.work_dir) is None:
        pytest.skip("there is no shfmt")
    (programs := tmp_path / "programs").mkdir()
    (programs / "pytest").write_text("#!/bin/sh\n")
    (programs / "pytest").chmod(0o755)
    bench.environ["PATH"] = f"{programs}:{bench.environ['PATH']}"
    bench.approver.refuse = ""
    for reads_only in (False, True):
        for command in ("ls", "pytest"):
            with contextlib.suppress(ToolRejected):
                arguments = json.dumps({"command": command})
                await bench.tools.run("Shell", arguments, replace(bench.env, reads_only=reads_only))
    assert [bool(ask.session_key) for ask in bench.approver.asks] == [True, True, True, False]
