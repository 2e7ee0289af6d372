"""The prepared process, from which supervisors are forked: what commands find, and what is left when somebody dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.covered import search_sandbox, whole_sandbox
from support.tool_env import Bench
from support.watching import alive, memory_of, until

from kimi_tui.tools import prepared
from kimi_tui.tools.process import ProcessEnd, RunningCommand
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.supervised import marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a prepared process")

SECRET = "sk-" + "k7" * 20
STATE = """
umask; ulimit -a; pwd; env | sort; locale 2>/dev/null | sort
ls -l /proc/self/fd | sed 's/.* \\([0-9]*\\) ->/\\1 ->/; s/pipe:.*/pipe/; /\\/proc\\//d'
grep -E '^(Sig(Blk|Ign|Cgt)|Umask|NoNewPrivs|Seccomp|Threads|CapEff|Groups|Uid|Gid):' /proc/self/status
read -r line && echo read; cat /proc/self/oom_score_adj; nice
ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo leads its session
ps -o tty= -p $$
"""
"""Prints what a process has from those above it."""


@pytest.fixture
def own() -> Iterator[prepared.PreparedProcess]:
    """A prepared process for one test, in place of that of all tests."""
    before, prepared._processes[0] = prepared._processes[0], prepared.PreparedProcess()
    yield prepared._processes[0]
    prepared._processes[0]._close()
    prepared._processes[0] = before


def command(script: str, folder: Path, **environ: str) -> RunningCommand:
    return RunningCommand(
        ["/bin/bash", "--noprofile", "--norc", "-c", script],
        work_dir=folder,
        environ={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environ},
        timeout_s=60,
        on_output=lambda _: None,
    )


async def ended(script: str, folder: Path, **environ: str) -> ProcessEnd:
    return await command(script, folder, **environ).run()


async def until_dead(*pids: int) -> None:
    assert await until(lambda: not any(map(alive, pids)))


async def test_a_command_finds_what_it_would_without_it(
    own: prepared.PreparedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {"ODD": "a=b\nc\udcff", "EMPTY": "", "KIMI_TUI_COMMAND": "other"}
    first = command(STATE, tmp_path, **odd)
    second = command(STATE, tmp_path, **odd)
    second.mark = first.mark
    forked = await first.run()
    assert own.pid is not None
    monkeypatch.setattr(prepared.PreparedProcess, "start", lambda *_: None)
    alone = await second.run()
    assert forked.output.text == alone.output.text
    assert "leads its session" in forked.output.text
    assert forked.output.text.count("-> pipe") == 2
    assert (forked.exit_code, alone.exit_code) == (0, 0)


async def test_what_cannot_be_started_is_said_the_same(
    own: prepared.PreparedProcess, tmp_path: Path
) -> None:
    gone = RunningCommand(
        ["/no/such"], work_dir=tmp_path, environ={}, timeout_s=9, on_output=lambda _: None
    )
    with pytest.raises(FileNotFoundError):
        await gone.run()
    with pytest.raises(FileNotFoundError):
        await command("true", tmp_path / "gone").run()
    with pytest.raises(ValueError, match="null"):
        await command("true\0", tmp_path).run()
    pid = own.pid
    assert (await ended("exit 3", tmp_path)).exit_code == 3
    assert own.pid == pid is not None


async def test_killed_between_two_commands_it_is_started_anew(
    own: prepared.PreparedProcess, tmp_path: Path
) -> None:
    await ended("true", tmp_path)
    first = own.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until_dead(first)
    assert (await ended("echo again", tmp_path)).output.text == "again\n"
    assert own.pid not in (first, None)


async def test_killed_while_commands_run_these_go_on_and_their_ends_are_known(
    own: prepared.PreparedProcess, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    running = [
        asyncio.create_task(ended(f"echo > up{n}; read x < go; exit {n}", tmp_path))
        for n in range(4)
    ]
    assert await until(lambda: len(os.listdir(tmp_path)) == 5)
    assert own.pid is not None
    os.kill(own.pid, signal.SIGKILL)
    await until_dead(own.pid)
    # A later command that runs too long is still ended, with all that it has left behind.
    late = command("setsid sleep 300 & echo $! > left; sleep 300", tmp_path)
    late._timeout_s = 0.5
    assert (await late.run()).ending == "timeout"
    assert not alive(int((tmp_path / "left").read_text()))
    # One opening of the pipe for all: the first would let every command in, and the second find no reader.
    going = os.open(tmp_path / "go", os.O_RDWR)
    os.write(going, b"x\n" * len(running))
    assert [end.exit_code for end in await asyncio.gather(*running)] == [0, 1, 2, 3]
    os.close(going)


def confined(sandbox: Sandbox, script: str, folder: Path, timeout_s: float = 60) -> RunningCommand:
    made = sandbox.confined(["/bin/bash", "--noprofile", "--norc", "-c", script], folder)
    return RunningCommand(
        made.argv,
        work_dir=folder,
        environ=made.environ,
        timeout_s=timeout_s,
        on_output=lambda _: None,
        confined_to=made.words,
        ends_all=True,
    )


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    found = whole_sandbox(Path(__file__))
    yield found
    found.remove_temporary()


async def test_a_confined_command_is_right_below_process_1_which_outlives_no_part_of_it(
    own: prepared.PreparedProcess, sandbox: Sandbox, tmp_path: Path
) -> None:
    if sandbox.backend != "full":
        pytest.skip("there are no namespaces here: nothing was tried")
    stays = "trap '' TERM HUP INT; setsid sleep 300 & sleep 300 &"
    seen = f"echo $PPID; {stays} exec 2> /dev/null; kill -TERM 1; kill -INT 1; kill -9 1; echo on; exit 7"
    running = confined(sandbox, seen, tmp_path)
    end = await running.run()
    assert (end.output.text, end.exit_code, end.n_alive) == ("1\non\n", 7, 0)
    assert not marked(running.mark)
    late = confined(sandbox, f"{stays} echo up > up; wait", tmp_path, timeout_s=1)
    assert (await late.run()).ending == "timeout"
    assert (tmp_path / "up").exists()
    assert not marked(late.mark)
    gone = confined(sandbox, "true", tmp_path)
    gone._confined_to = (*gone._confined_to, "hide:/no/such/place")
    with pytest.raises(OSError, match=r"/no/such"):
        await gone.run()
    gone = confined(sandbox, "true", tmp_path)
    gone._argv = ["/no/such/program"]
    with pytest.raises(FileNotFoundError):
        await gone.run()


async def test_a_confined_command_goes_on_when_the_prepared_process_is_killed(
    own: prepared.PreparedProcess, sandbox: Sandbox, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    running = asyncio.create_task(
        confined(sandbox, "echo > up; read x < go; exit 3", tmp_path).run()
    )
    assert await until(lambda: (tmp_path / "up").exists())
    assert own.pid is not None
    os.kill(own.pid, signal.SIGKILL)
    await until_dead(own.pid)
    going = os.open(tmp_path / "go", os.O_RDWR)
    os.write(going, b"x\n")
    assert (await running).exit_code == 3
    os.close(going)


async def test_one_that_does_not_answer_is_replaced_and_no_command_runs_twice(
    own: prepared.PreparedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended("true", tmp_path)
    stopped = own.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(prepared, "_ANSWER_S", 0.3)
    # It takes the request up just before it is given up, and forks.
    close = own._close

    def late() -> None:
        os.kill(stopped, signal.SIGCONT)
        time.sleep(0.2)
        monkeypatch.setattr(prepared, "_ANSWER_S", 20)
        close()

    monkeypatch.setattr(own, "_close", late)
    assert (await ended("echo ran >> log; cat log", tmp_path)).output.text == "ran\n"
    monkeypatch.setattr(own, "_close", close)
    assert (await ended("cat log", tmp_path)).output.text == "ran\n"
    assert own.pid != stopped
    await until_dead(stopped)


def test_an_answer_without_a_process_is_none(own: prepared.PreparedProcess) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its, open(os.devnull) as held:
        for answer in (b"-1", b"7"):
            its.send(answer)
            assert own._answer(ours, b"C", ()) is None
            assert its.recv(10) == b"C"
        socket.send_fds(its, [b"7"], [held.fileno()])
        forked = own._answer(ours, b"C", ())
        assert forked is not None
        assert (forked.pid, forked.poll()) == (7, 0)


async def test_where_none_can_be_started_commands_run_without(
    own: prepared.PreparedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def ends_at_once(number: int) -> list[str]:
        tried.append(number)
        return ["/bin/false"]

    monkeypatch.setattr(prepared, "preparing", ends_at_once)
    for n in range(4):
        assert (await ended(f"echo {n}", tmp_path)).output.text == f"{n}\n"
    assert len(tried) == prepared._MOST_FAILURES


async def test_a_search_is_started_from_it_and_again_where_it_was_killed(
    own: prepared.PreparedProcess, bench: Bench
) -> None:
    bench.search_sandbox = search_sandbox("landlock")
    bench.write("one.txt", "parent:needle\n")
    for _ in range(2):
        outcome = await bench.run("Grep", pattern="parent:needle")
        assert outcome.output == "one.txt"
        assert own.pid is not None
        os.kill(own.pid, signal.SIGKILL)
        await until_dead(own.pid)
    both = await asyncio.gather(
        *(bench.run("Grep", pattern=f"needle|{n}") for n in range(10)),
        ended("exit 3", bench.work_dir),
    )
    assert [getattr(one, "output", None) for one in both[:-1]] == ["one.txt"] * 10


async def test_many_commands_at_once(own: prepared.PreparedProcess, tmp_path: Path) -> None:
    ends = await asyncio.gather(*(ended(f"echo {n}; exit {n}", tmp_path) for n in range(40)))
    assert [(end.output.text, end.exit_code) for end in ends] == [(f"{n}\n", n) for n in range(40)]
    assert own._n_failures == 0


async def test_it_holds_nothing_of_a_session(own: prepared.PreparedProcess, tmp_path: Path) -> None:
    secret = f"{SECRET}-{os.getpid()}"
    end = await ended("printenv KEY", tmp_path, KEY=secret)
    assert end.output.text == f"{secret}\n"
    pid = own.pid
    assert pid is not None
    sandbox = whole_sandbox(Path(__file__))
    confined = sandbox.confined(["/bin/true", secret], tmp_path)
    running = RunningCommand(
        confined.argv,
        work_dir=tmp_path,
        environ={**confined.environ, "KEY": secret},
        timeout_s=60,
        on_output=lambda _: None,
        confined_to=(*confined.words, f"socket:/{secret}"),
    )
    assert (await running.run()).exit_code == 0
    sandbox.remove_temporary()
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            _environment(pid)
        return
    assert _environment(pid) == b""
    # Between two requests it has its socket, its pipe and the program's end to listen to, and nothing else.
    held = sorted(os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd"))
    # The library below `ctypes` holds its own file in its newer versions, and has it closed in other programs.
    held = [name for name in held if not os.path.basename(name).startswith("libffi.so.")]
    assert [name.partition(":")[0] for name in held] == [
        *["/dev/null"] * 3,
        "anon_inode",
        "pipe",
        "pipe",
        "socket",
    ]
    found = [secret.encode() in part for part in memory_of(pid)]
    assert found
    assert not any(found)


def _environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


PROGRAM = """
import asyncio, os, sys, time
from pathlib import Path
from kimi_tui.tools import prepared
from kimi_tui.tools.process import RunningCommand
script = "echo $$ > child; setsid sleep 300 & echo $! > far; sleep 300"
argv, environ, words, work = ["/bin/bash", "-c", script], {}, (), Path(sys.argv[1])
if sys.argv[2] == "confined":
    from kimi_tui.tools.sandbox.sandbox import SandboxSettings, find_sandbox
    made = find_sandbox(SandboxSettings(), os.environ).confined(argv, work)
    argv, environ, words = made.argv, made.environ, made.words
running = RunningCommand(argv, work_dir=work, environ=environ,
    timeout_s=600, on_output=lambda _: None, confined_to=words)
async def main():
    task = asyncio.create_task(running.run())
    while not Path(sys.argv[1], "far").exists() or not Path(sys.argv[1], "far").read_text():
        await asyncio.sleep(0.01)
    if sys.argv[2] == "fork" and os.fork() == 0:
        # It holds the program's end of the socket for a while.
        time.sleep(3)
        os._exit(0)
    print(prepared._processes[0].pid, running.mark, flush=True)
    await task
asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["plain", "fork", "confined"])
def test_it_ends_with_the_program_and_so_does_all_of_a_command(how: str, tmp_path: Path) -> None:
    if how == "confined":
        whole_sandbox(Path(__file__)).remove_temporary()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), how], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        number, mark = program.stdout.readline().split()
        # A process that just becomes another program shows no variables for a moment.
        assert asyncio.run(until(lambda: len(marked(mark)) >= 2))
        pid, below = int(number), marked(mark)
        assert all(map(alive, (pid, *below)))
        program.kill()
        program.wait()
        asyncio.run(until_dead(pid))
        if how != "fork":
            asyncio.run(until_dead(*below))
    for one in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def test_a_forked_copy_of_the_program_has_one_of_its_own(own: prepared.PreparedProcess) -> None:
    own._opened()
    assert own.pid is not None
    child = os.fork()
    if child == 0:
        os._exit(prepared._current() is own)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert prepared._current() is own
