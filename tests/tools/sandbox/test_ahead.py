"""Process 1 that is set up before its command is known: what changes between the two, and what others can do to it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.covered import whole_sandbox
from support.tool_env import Bench
from support.watching import alive, memory_of, until

from kimi_tui.tools import prepared, shell, supervisor
from kimi_tui.tools.base import ApprovalQuestion
from kimi_tui.tools.process import ProcessEnd, RunningCommand
from kimi_tui.tools.sandbox import policy
from kimi_tui.tools.sandbox.layers import folder_of
from kimi_tui.tools.sandbox.layers import reset as reset_of
from kimi_tui.tools.sandbox.sandbox import Confined, Sandbox
from kimi_tui.tools.shell import Shell, ShellParams
from kimi_tui.workspace import tree_watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a prepared process")
HERE = Path(__file__).parent
STATE = """
umask; ulimit -a; pwd; env | sort; locale 2>/dev/null | sort
ls /proc/self/fd /dev/shm; cut -d' ' -f5- /proc/self/mountinfo | sed 's/ [0-9]*:[0-9]* / /; s/lowerdir=.*//'; cat /proc/net/dev | wc -l
grep -E '^(Sig(Blk|Ign|Cgt)|Umask|NoNewPrivs|Seccomp|Threads|CapEff|CapBnd|Groups|Uid|Gid):' /proc/self/status
read -r line && echo read; cat /proc/self/oom_score_adj; nice; echo $PPID
ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo leads its session
"""


class Ahead:
    """A sandbox whose commands leave a process 1 behind them for the next one; it tells which commands used it."""

    def __init__(self, sandbox: Sandbox, top: Path, own: prepared.PreparedProcess) -> None:
        self.sandbox, self.work, self.home, self.own = sandbox, top / "work", top / "home", own
        self.used: list[bool] = []

    def made(self, script: str, *, network: bool = False, writes: bool = True) -> Confined:
        shell = ["/bin/bash", "--noprofile", "--norc", "-c", script]
        return self.sandbox.confined(shell, self.work, network=network, writes=writes)

    def running(
        self, confined: Confined, environ: Mapping[str, str] | None = None
    ) -> RunningCommand:
        return RunningCommand(
            confined.argv,
            work_dir=self.work,
            environ={**confined.environ, **(environ or {})},
            timeout_s=50,
            on_output=lambda _: None,
            confined_to=confined.words,
            ends_all=True,
            afterwards=lambda: prepared.set_up_ahead(confined.words, str(self.work)),
        )

    async def ended(self, script: str, *, network: bool = False, writes: bool = True) -> ProcessEnd:
        """Run a command to its end, and until there is a process 1 for the next one."""
        confined = await asyncio.to_thread(self.made, script, network=network, writes=writes)
        end = await self.running(confined).run()
        await self.is_ready()
        return end

    async def is_ready(self) -> None:
        """Wait until there is a process 1 for the next command, and waits."""
        assert await until(lambda: self.own._ahead is not None)
        waiting = Path(f"/proc/{self.pid}/status")

        def is_ready() -> bool:
            try:
                told = waiting.read_text()
            except OSError:
                return True
            return "Seccomp:\t2" in told and "(sleeping)" in told

        assert await until(is_ready)

    async def said(self, script: str, *, network: bool = False, writes: bool = True) -> str:
        return (await self.ended(script, network=network, writes=writes)).output.text

    async def waits_again(self, words: Sequence[str]) -> None:
        """Have process 1 set up anew for a command with these words, as at the end of one that ran meanwhile."""
        self.own.end_ahead()
        await asyncio.to_thread(self.own.set_up_ahead, tuple(words), str(self.work))
        if self.own._ahead is not None:
            await self.is_ready()

    @property
    def pid(self) -> int:
        """The process that waits."""
        waiting = self.own._ahead
        assert waiting is not None
        return waiting._process.pid


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    with set_up_in(str(HERE.parents[2]), monkeypatch) as made:
        yield made


@pytest.fixture
def in_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    """Its work folder is below `/tmp`, of which commands have another one."""
    with set_up_in("/tmp", monkeypatch) as made:
        yield made


@contextlib.contextmanager
def set_up_in(folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".sandbox-") as place:
        top = Path(place)
        os.chmod(top, 0o755)
        for name in ("work/sub", "home/.cache/pip"):
            (top / name).mkdir(parents=True)
        for name in ("work/.env", "work/sub/.env"):
            (top / name).write_text("TOKEN=first\n")
        (top / "home/.cache/pip/entry").write_text("theirs\n")
        found = whole_sandbox(HERE)
        if found.backend != "full":
            pytest.skip("there are no namespaces here: nothing was tried")
        environ = {
            **os.environ,
            "HOME": str(top / "home"),
            "KIMI_TUI_HOME": str(top / "home/.local/share/kimi-tui"),
        }
        before, prepared._processes[0] = prepared._processes[0], prepared.PreparedProcess()
        sandbox = Sandbox("full", found.settings, environ)
        made = Ahead(sandbox, top, prepared._processes[0])
        begun = prepared._Ahead.begun

        def noted(
            waiting: prepared._Ahead, command: prepared.SupervisedCommand, output: int
        ) -> prepared.Started | None:
            started = begun(waiting, command, output)
            made.used.append(started is not None)
            return started

        monkeypatch.setattr(prepared._Ahead, "begun", noted)
        yield made
        made.own.end_ahead()
        made.own._close()
        prepared._processes[0] = before
        sandbox.remove_temporary()


async def test_a_command_finds_what_it_would_without_it(ahead: Ahead) -> None:
    first = await ahead.said(STATE)
    second = await ahead.said(STATE)
    assert ahead.used == [True]
    lines = [
        [one for one in said.split("\n") if "KIMI_TUI_COMMAND" not in one]
        for said in (first, second)
    ]
    assert lines[0] == lines[1]
    assert "leads its session" in second
    # Each has its own mark, variables and folder for temporary files of the moment.
    confined = ahead.made("echo $ODD; cat new; echo $KIMI_TUI_COMMAND; exit 3")
    (ahead.work / "new").write_text("new\n")
    running = ahead.running(confined, {"ODD": "a=b"})
    end = await running.run()
    assert (end.output.text, end.exit_code) == (f"a=b\nnew\n{running.mark}\n", 3)
    assert ahead.used == [True, True]


def replaced(ahead: Ahead) -> None:
    (ahead.work / "saved").write_text("TOKEN=second\n")
    os.rename(ahead.work / "saved", ahead.work / ".env")


def made_anew(ahead: Ahead) -> None:
    (ahead.work / ".env").unlink()
    (ahead.work / ".env").write_text("TOKEN=second\n")


def exchanged(ahead: Ahead) -> None:
    (ahead.work / "other").write_text("TOKEN=second\n")
    libc = ctypes.CDLL(None)
    names = (os.fsencode(ahead.work / one) for one in ("other", ".env"))
    first, second = names
    assert libc.renameat2(-100, first, -100, second, 2) == 0


def moved_above(ahead: Ahead) -> None:
    os.rename(ahead.work / "sub", ahead.work / "sub2")
    (ahead.work / "sub").mkdir()
    (ahead.work / "sub/.env").write_text("TOKEN=second\n")


def linked_above(ahead: Ahead) -> None:
    os.rename(ahead.work / "sub", ahead.work / "sub2")
    (ahead.work / "sub2/.env").write_text("TOKEN=second\n")
    (ahead.work / "sub").symlink_to("sub2")


def added(ahead: Ahead) -> None:
    (ahead.work / ".env.local").write_text("TOKEN=second\n")


def folder_replaced(ahead: Ahead) -> None:
    os.rename(ahead.work, ahead.work.parent / "before")
    (ahead.work / "sub").mkdir(parents=True)
    for name in (".env", "sub/.env"):
        (ahead.work / name).write_text("TOKEN=second\n")


CHANGES = (replaced, made_anew, exchanged, moved_above, linked_above, added, folder_replaced)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_secret_that_changes_meanwhile_is_hidden_as_well(
    ahead: Ahead, change: Callable[[Ahead], None]
) -> None:
    await ahead.said("true")
    change(ahead)
    said = await ahead.said("cat .env* sub/.env sub2/.env other 2> /dev/null; echo on; touch here")
    # What was exchanged is no secret by its name any more; the new one is.
    assert "second" not in said
    assert said.endswith("on\n")
    assert (ahead.work / "here").exists()
    assert True not in ahead.used


@pytest.mark.parametrize("asked", ["as it begins", "long before", "never"])
async def test_the_table_of_mounts_alone_tells_of_a_replaced_file(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The words are those from before the change, as if the policy had been made a moment earlier."""
    await ahead.said("true")
    confined = ahead.made("cat .env; echo on")
    if asked == "long before":
        prepared.look_ahead(supervisor.MOUNTS)
        waits_until = time.monotonic() + supervisor._JUST_S
        await until(lambda: time.monotonic() > waits_until)
    if asked != "as it begins":
        monkeypatch.setattr(prepared._Ahead, "look", lambda *_: None)
    replaced(ahead)
    end = await ahead.running(confined).run()
    assert end.output.text.endswith("on\n")
    assert "second" not in end.output.text
    assert ahead.used == [False]


async def test_a_file_that_is_replaced_right_after_the_look_at_its_cover_is_hidden(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The look counts for so long that the command begins without another one.
    patched = supervisor._PREPARE.replace(
        "supervisor.prepare(", "supervisor._JUST_S = 50; supervisor.prepare("
    )
    monkeypatch.setattr(supervisor, "_PREPARE", patched)
    await ahead.said("true")
    confined = ahead.made("cat .env; echo on")
    switches = b"\nvoluntary_ctxt_switches:"

    def times_asleep() -> bytes:
        return of_process(ahead.pid, "status").partition(switches)[2]

    before = times_asleep()
    prepared.look_ahead(supervisor.MOUNTS)
    assert await until(lambda: times_asleep() != before)
    await ahead.is_ready()
    monkeypatch.setattr(prepared._Ahead, "look", lambda *_: None)
    replaced(ahead)
    end = await ahead.running(confined).run()
    assert end.output.text.endswith("on\n")
    assert "second" not in end.output.text
    assert ahead.used == [False]


async def test_what_a_command_holds_is_looked_for_but_not_in_the_processes_of_the_program(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ahead.said("true")
    ours, looked, opened = {ahead.own.pid, ahead.pid}, list[int](), tree_watch._opened

    def seen(process: int) -> Iterator[tuple[str, str]]:
        looked.append(process)
        return opened(process)

    monkeypatch.setattr(tree_watch, "_opened", seen)
    tree_watch.held_files(str(ahead.work))
    assert ours.isdisjoint(looked)
    running = ahead.running(ahead.made("exec 3> held; read -r < fifo"))
    os.mkfifo(ahead.work / "fifo")
    command = asyncio.create_task(running.run())
    assert await until(lambda: "held" in tree_watch.held_files(str(ahead.work)).opened)
    assert ours.isdisjoint(looked)
    running.end()
    await command
    assert ahead.used == [True]


async def test_a_socket_that_is_bound_meanwhile_is_covered(ahead: Ahead) -> None:
    connects = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('late'); print('reached')"
    )
    tries = f'{sys.executable} -S -c "{connects}" 2> /dev/null || echo no'
    if "no" not in await ahead.said(tries):
        pytest.skip("the interpreter cannot run in this sandbox")
    with socket.socket(socket.AF_UNIX) as late:
        late.bind(str(ahead.work / "late"))
        late.listen()
        assert await ahead.said(tries) == "no\n"
        assert ahead.used == [False]
        # It stands still now; connections to it are no new sockets.
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(ahead.work / "late"))
            taken, _ = late.accept()
            assert await ahead.said(tries) == "no\n"
            taken.close()
        assert ahead.used == [False, True]
        # The cover goes with the file that it lies over.
        (ahead.work / "late").unlink()
    with socket.socket(socket.AF_UNIX) as late:
        late.bind(str(ahead.work / "late"))
        late.listen()
        assert await ahead.said(tries) == "no\n"
        assert ahead.used == [False, True, False]


async def test_one_that_was_looked_for_long_ago_is_looked_for_again(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared._Ahead, "look", lambda *_: None)
    await ahead.said("true")
    waits_until = time.monotonic() + supervisor._FRESH_S
    await until(lambda: time.monotonic() > waits_until)
    with socket.socket(socket.AF_UNIX) as late:
        late.bind(str(ahead.work / "late"))
        late.listen()
        assert await ahead.said("test -S late || echo covered") == "covered\n"
    assert ahead.used == [False]


async def test_a_secret_that_was_gone_while_it_was_set_up_is_hidden(in_tmp: Ahead) -> None:
    await in_tmp.said("true")
    words = in_tmp.made("true").words
    (in_tmp.work / ".env").unlink()
    await in_tmp.waits_again(words)
    (in_tmp.work / ".env").write_text("TOKEN=second\n")
    assert in_tmp.made("true").words == words
    assert "second" not in await in_tmp.said("cat .env; echo on; ls -A . sub")
    assert True not in in_tmp.used


@contextlib.contextmanager
def bound_by_its_name(ahead: Ahead) -> Iterator[None]:
    """Bind a socket of which the kernel does not report where it is."""
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('late'); s.listen()\n"
        "print(flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-S", "-c", script], cwd=ahead.work, **pipes) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdout.readline()
        yield
        program.stdin.close()
    (ahead.work / "late").unlink()


async def test_a_socket_that_was_gone_while_it_was_set_up_is_covered(ahead: Ahead) -> None:
    with bound_by_its_name(ahead):
        assert await ahead.said("test -S late || echo covered") == "covered\n"
        words = ahead.made("true").words
        assert f"socket:{ahead.work}/late" in words
    await ahead.waits_again(words)
    with bound_by_its_name(ahead):
        assert ahead.made("true").words == words
        assert await ahead.said("test -S late || echo covered") == "covered\n"
    assert True not in ahead.used


async def test_a_secret_that_is_replaced_while_it_is_set_up_is_hidden(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is replaced after it was covered, before the table of mounts is read for the first time."""
    here, go = ahead.work / "sub/here", ahead.work / "sub/go"
    held_up = f"""
import os, time, confine
set_up = confine.set_up_first
def held_up(*given):
    held = set_up(*given)
    if not os.path.exists({str(here)!r}) and os.path.exists({str(here)!r} + "-wanted"):
        os.close(os.open({str(here)!r}, os.O_CREAT))
        while not os.path.exists({str(go)!r}):
            time.sleep(0.001)
    return held
confine.set_up_first = held_up
"""
    patched = supervisor._PREPARE.replace(
        "supervisor.prepare(",
        f"supervisor._import_confine(); exec({held_up!r}); supervisor.prepare(",
    )
    monkeypatch.setattr(supervisor, "_PREPARE", patched)
    await ahead.said("true")
    words = ahead.made("true").words
    ahead.own.end_ahead()
    (ahead.work / "sub/here-wanted").touch()
    await asyncio.to_thread(ahead.own.set_up_ahead, words, str(ahead.work))
    assert await until(here.exists)
    replaced(ahead)
    go.touch()
    said = await ahead.said("cat .env; echo on")
    assert said.endswith("on\n")
    assert "second" not in said
    assert True not in ahead.used


def test_an_answer_that_comes_late_is_not_that_of_the_next_request(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(ahead.ended("true"))
    first = ahead.own.pid
    assert first is not None
    ahead.own.end_ahead()
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(prepared, "_ANSWER_S", 0.1)
    confined = ahead.made("echo on; sleep 50")
    ahead.own.set_up_ahead(confined.words, str(ahead.work))
    assert ahead.own._ahead is None
    monkeypatch.undo()
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGCONT)
    output, write_end = os.pipe()
    command = prepared.SupervisedCommand(
        confined.argv, str(ahead.work), confined.environ, confined.words
    )
    started = prepared.start_supervisor(command, write_end)
    os.close(write_end)
    assert os.read(output, 3) == b"on\n"
    # The process that is told is the one that runs.
    assert started.process.poll() is None
    started.process.kill()
    assert os.read(output, 1) == b""
    started.process.wait(5)
    for descriptor in (output, started.orders, started.reports):
        os.close(descriptor)


async def test_a_layer_that_another_command_began_is_seen(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A socket that another program on this machine renames would be one more thing to hide.
    monkeypatch.setattr(policy, "stray_sockets", lambda *_: [])
    await ahead.said("true")
    layer = Path(folder_of(ahead.sandbox.environ, str(ahead.work))) / "1"
    (layer / "upper/home/.cache/pip").mkdir(parents=True)
    (layer / "upper/home/.cache/pip/theirs").write_text("theirs\n")
    assert await ahead.said("cat ~/.cache/pip/theirs") == "theirs\n"
    assert ahead.used == []
    assert await ahead.said("cat ~/.cache/pip/theirs") == "theirs\n"
    assert ahead.used == [True]


async def test_a_lock_made_while_it_was_set_up_does_not_end_it(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "stray_sockets", lambda *_: [])
    await ahead.said("true")
    words = ahead.made("true").words
    layers = Path(folder_of(ahead.sandbox.environ, str(ahead.work)))
    (layers / "1/upper/home/.cache/pip").mkdir(parents=True)
    (layers / "1/upper/home/.cache/pip/theirs").write_text("theirs\n")
    # The last command's namespaces are not taken apart yet, so the second layer is taken, which has no lock so far.
    ahead.own.end_ahead()
    with contextlib.ExitStack() as stack:
        lock = os.open(layers / "0.lock", os.O_RDONLY)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        await ahead.waits_again(words)
    assert (layers / "1.lock").exists()
    assert await ahead.said("cat ~/.cache/pip/theirs") == "theirs\n"
    assert ahead.used == [True]


async def test_a_layer_that_was_not_free_while_it_was_set_up_is_used(ahead: Ahead) -> None:
    await ahead.said("true")
    words = ahead.made("true").words
    ahead.own.end_ahead()
    layers = folder_of(ahead.sandbox.environ, str(ahead.work))
    with contextlib.ExitStack() as stack:
        for number in range(64):
            flags = os.O_RDONLY | os.O_CREAT
            lock = os.open(f"{layers}/{number}.lock", flags, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        await asyncio.to_thread(ahead.own.set_up_ahead, words, str(ahead.work))
        if ahead.own._ahead is not None:
            await ahead.is_ready()
    assert await ahead.said("echo on > ~/.cache/pip/mine; cat ~/.cache/pip/mine") == "on\n"
    assert True not in ahead.used


@pytest.mark.parametrize("is_told", [True, False])
def test_a_file_that_another_machine_replaces_is_hidden(ahead: Ahead, is_told: bool) -> None:
    (ahead.work / "shared").mkdir()
    script = HERE / "files_of_another_machine.py"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        [sys.executable, script, ahead.work / "shared"], text=True, bufsize=1, **pipes
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        if not program.stdout.readline():
            pytest.skip("only root mounts, where the kernel has this file system")
        try:
            asyncio.run(ahead.ended("true"))
            reads = "cat shared/.env; echo on"
            confined = ahead.made(reads)
            assert f"hide:{ahead.work}/shared/.env" in confined.words
            program.stdin.write("\n" if is_told else "")
            program.stdin.flush()
            if is_told:
                program.stdout.readline()
            end = asyncio.run(ahead.running(confined).run())
        finally:
            ahead.own.end_ahead()
            program.stdin.close()
    assert end.output.text.endswith("on\n")
    assert "TOKEN" not in end.output.text
    assert ahead.used == [not is_told]


SEEN = """
find . | sort | while read -r name; do
  may=; [ -r "$name" ] && may=r; [ -w "$name" ] && may=${may}w; echo "$name $may $(stat -c '%F %s' "$name")"
done
find . -type f | sort | while read -r name; do echo "$name"; cat "$name"; done
cut -d' ' -f4- /proc/self/mountinfo | sed -E 's/ [0-9]+:[0-9]+ / /; s/(lower|upper|work)dir=[^,]*//g' | sort
ls -A ~ ~/.cache; pwd; echo end
"""


def in_work(script: str) -> Callable[[Ahead], None]:
    """Return a change that another program makes in the work folder."""

    def change(ahead: Ahead) -> None:
        how = {"GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nowhere", "PATH": os.environ["PATH"]}
        command = ["/bin/sh", "-ec", script]
        subprocess.run(command, cwd=ahead.work, env=how, check=True, capture_output=True)

    return change


def folder_added(ahead: Ahead) -> None:
    other = ahead.work.parent / "other"
    (other / ".git/hooks").mkdir(parents=True)
    ahead.sandbox.added = lambda: (str(other),)


MORE_CHANGES = {
    "git": in_work("mv .git .git2; git init -q .; printf '#!' > .git/hooks/pre-commit"),
    "git copied": in_work("cp -a .git .git2; rm -r .git; mv .git2 .git"),
    "git link": in_work("mv .git sub/git; echo gitdir: sub/git > .git"),
    "hook": in_work(
        "echo > .git/hooks/pre-push; git config core.hooksPath hooks; mkdir hooks; echo > hooks/x"
    ),
    "settings": in_work("git config include.path ../more; echo '[core]' > more"),
    "nested": in_work("git init -q sub/nested; git init -q --bare sub/bare.git"),
    "submodule": in_work("git init -q a; cd a; git init -q b; cd ..; mv a/b/.git .git/modules-b"),
    "runs later": in_work(
        "echo > lefthook.toml; echo > .envrc; echo '{}' > package.json; echo > Makefile"
    ),
    "folder of secrets": in_work(
        "rm .env; mkdir .env .ssh; echo second > .env/key; echo second > .ssh/id_rsa"
    ),
    "link": in_work("mv .env real; ln -s real .env"),
    "link in place of": in_work("mv .env sub/.env.local; ln -s sub/.env.local .env"),
    "hard link": in_work("ln .env sub/id_rsa; mv sub/.env sub/x"),
    "names": in_work("mv sub/.env t; mv .env sub/.env; mv t .env"),
    "there and back": in_work("mv sub sub2; mv sub2 sub; mv .env x; mv x .env"),
    "mode": in_work("chmod 700 sub; chmod 000 .env"),
    "place of the program": lambda ahead: (ahead.home / ".kimi").mkdir(),
    "home": lambda ahead: (ahead.home / ".gitconfig").write_text("[user]\nname = a\n"),
    "cache": lambda ahead: (ahead.home / ".cache/uv").mkdir(),
    "folder": folder_added,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MORE_CHANGES)
@pytest.mark.parametrize("where", ["ahead", "in_tmp"])
async def test_whatever_changes_a_command_sees_what_it_would_without_it(
    where: str, name: str, request: pytest.FixtureRequest
) -> None:
    made: Ahead = request.getfixturevalue(where)
    await asyncio.to_thread(in_work("git init -q ."), made)
    await made.said("true")
    await asyncio.to_thread(MORE_CHANGES[name], made)
    found = await made.said(SEEN)
    made.own.end_ahead()
    assert found.endswith("end\n")
    assert found == await made.said(SEEN)
    assert len(made.used) <= 1


async def test_the_mode_and_the_network_are_those_of_the_command(ahead: Ahead) -> None:
    lists = "grep -c : /proc/net/dev; cat /proc/net/route | wc -l"
    how = {"capture_output": True, "text": True, "check": True}
    outside = await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", lists], **how)
    assert await ahead.said(lists, network=True) == outside.stdout
    assert await ahead.said(lists) == "1\n1\n"
    assert await ahead.said(lists, network=True) == outside.stdout
    assert "no" in await ahead.said("touch in-plan 2> /dev/null || echo no", writes=False)
    assert not (ahead.work / "in-plan").exists()
    assert await ahead.said("touch after && echo yes") == "yes\n"
    assert ahead.used == []


async def test_a_command_in_plan_mode_never_uses_one_that_may_write(ahead: Ahead) -> None:
    await ahead.said("true", writes=False)
    assert "no" in await ahead.said("touch in-plan 2> /dev/null || echo no", writes=False)
    assert ahead.used == [True]
    assert not (ahead.work / "in-plan").exists()


async def test_caches_are_as_they_are_then_and_stay_in_one_layer(ahead: Ahead) -> None:
    await ahead.said("echo one > ~/.cache/pip/mine")
    (ahead.home / ".cache/pip/later").write_text("later\n")
    said = await ahead.said("cd ~/.cache/pip; cat entry later mine; echo two > mine")
    assert said == "theirs\nlater\none\n"
    assert await ahead.said("cat ~/.cache/pip/mine") == "two\n"
    assert ahead.used == [True, True]
    os.rename(ahead.home / ".cache/pip", ahead.home / ".cache/old")
    (ahead.home / ".cache/pip").mkdir()
    (ahead.home / ".cache/pip/entry").write_text("new\n")
    assert await ahead.said("cat ~/.cache/pip/entry ~/.cache/pip/mine") == "new\ntwo\n"
    assert ahead.used == [True, True]
    layers = folder_of(ahead.sandbox.environ, str(ahead.work))
    assert [name for name in os.listdir(layers) if name.endswith(".lock")] == ["0.lock"]
    assert not (ahead.home / ".cache/pip/mine").exists()
    # What waits is no command that uses them.
    assert not ahead.sandbox.reset(ahead.work).is_used


async def test_another_program_gets_the_layer_that_waits_for_a_command(ahead: Ahead) -> None:
    await ahead.said("echo one > ~/.cache/pip/mine")
    waits = ahead.pid
    # Another program cannot end what waits here, as it does with its own.
    reset = await asyncio.to_thread(reset_of, ahead.sandbox.environ, str(ahead.work))
    assert not reset.is_used
    assert reset.n_bytes > 0
    assert await until(lambda: not alive(waits))
    assert await ahead.said("ls ~/.cache/pip") == "entry\n"


async def test_another_program_does_not_get_the_layer_of_a_command(ahead: Ahead) -> None:
    await ahead.ended("true")
    script = (
        "echo one > ~/.cache/pip/mine; echo > begun; while ! [ -e go ]; do :; done; ls ~/.cache/pip"
    )
    confined = await asyncio.to_thread(ahead.made, script)
    task = asyncio.create_task(ahead.running(confined).run())
    try:
        assert await until((ahead.work / "begun").exists)
        reset = await asyncio.to_thread(reset_of, ahead.sandbox.environ, str(ahead.work))
    finally:
        (ahead.work / "go").touch()
    assert ahead.used[-1]
    assert reset.is_used
    assert (await task).output.text == "entry\nmine\n"


async def test_a_process_that_is_stopped_keeps_its_layer(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ahead.ended("true")
    waits = ahead.pid
    monkeypatch.setattr("kimi_tui.tools.sandbox.layers._GIVEN_UP_S", 0.05)
    os.kill(waits, signal.SIGSTOP)
    try:
        reset = await asyncio.to_thread(reset_of, ahead.sandbox.environ, str(ahead.work))
    finally:
        os.kill(waits, signal.SIGCONT)
    assert reset.is_used
    # It gives up its layer as soon as it can.
    assert await until(lambda: not alive(waits))


def of_process(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


async def test_it_is_confined_while_it_waits_and_holds_nothing(ahead: Ahead) -> None:
    secret = "sk-" + "k7" * 20
    first = await ahead.running(ahead.made("true"), {"KEY": secret}).run()
    assert first.exit_code == 0
    await ahead.is_ready()
    told = of_process(ahead.pid, "status").decode()
    # A command in the sandbox has exactly these.
    for line in (
        await ahead.said("grep -E '^(NoNewPrivs|Seccomp|Cap...):' /proc/self/status")
    ).split("\n"):
        assert f"\n{line}" in told
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            of_process(ahead.pid, "environ")
        return
    assert of_process(ahead.pid, "environ") == b""
    assert not any(secret.encode() in part for part in memory_of(ahead.pid))


async def test_others_in_a_sandbox_neither_see_nor_reach_it(ahead: Ahead) -> None:
    await ahead.said("true")
    waiting = ahead.pid
    # Another command, in a sandbox of its own, does what it can; it has another policy, so it does not use what waits.
    tries = f"kill -9 {waiting}; kill -9 -1; ls -d /proc/{waiting} /proc/[0-9]*/root; cat /proc/{waiting}/mem"
    confined = ahead.made(tries, writes=False)
    running = RunningCommand(
        confined.argv,
        work_dir=ahead.work,
        environ=confined.environ,
        timeout_s=50,
        on_output=lambda _: None,
        confined_to=confined.words,
        ends_all=True,
    )
    await running.run()
    assert alive(waiting)
    assert await ahead.said("echo on") == "on\n"
    assert ahead.used == [True]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_one_that_is_dead_or_mute_starts_nothing(
    ahead: Ahead, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ahead.said("true")
    waiting = ahead.pid
    os.kill(waiting, how)
    if how == signal.SIGKILL:
        assert await until(lambda: not alive(waiting))
    answer, take = prepared._ANSWER_S, prepared.PreparedProcess._begun_ahead

    def impatient(*given: object) -> prepared.Started | None:
        monkeypatch.setattr(prepared, "_ANSWER_S", 0.2)
        try:
            return take(*given)  # pyright: ignore[reportArgumentType]
        finally:
            monkeypatch.setattr(prepared, "_ANSWER_S", answer)

    monkeypatch.setattr(prepared.PreparedProcess, "_begun_ahead", impatient)
    assert await ahead.said("echo ran >> log; cat log") == "ran\n"
    assert not alive(waiting)
    assert ahead.used == [False]


async def test_two_at_once_share_nothing(ahead: Ahead) -> None:
    await ahead.said("true")
    ends = await asyncio.gather(*(ahead.ended(f"echo {n}; echo $PPID") for n in range(4)))
    assert [end.output.text for end in ends] == [f"{n}\n1\n" for n in range(4)]
    assert ahead.used.count(True) >= 1


async def test_it_ends_when_something_is_mounted_outside(ahead: Ahead) -> None:
    await ahead.said("true")
    waiting = ahead.pid
    libc = ctypes.CDLL(None, use_errno=True)
    place = os.fsencode(ahead.work / "sub")
    if libc.mount(b"tmpfs", place, b"tmpfs", 0, b"size=4k") < 0:
        pytest.skip("only root mounts")
    try:
        assert await until(lambda: not alive(waiting))
        (ahead.work / "sub/mounted").write_text("seen\n")
        assert await ahead.said("cat sub/mounted") == "seen\n"
    finally:
        libc.umount2(place, 2)
    assert True not in ahead.used


@pytest.mark.parametrize("change", [replaced, made_anew, exchanged])
async def test_it_ends_when_a_cover_is_gone(ahead: Ahead, change: Callable[[Ahead], None]) -> None:
    await ahead.said("true")
    waiting = ahead.pid
    change(ahead)
    if change is exchanged:
        # The cover went along with its file, which the table of mounts tells when it is read.
        prepared.look_ahead(supervisor.MOUNTS)
    assert await until(lambda: not alive(waiting))


async def test_it_ends_where_no_command_comes(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = supervisor._PREPARE.replace(
        "supervisor.prepare(", "supervisor._MOST_IDLE_MS = 50; supervisor.prepare("
    )
    monkeypatch.setattr(supervisor, "_PREPARE", patched)
    await ahead.said("true")
    waiting = ahead.pid
    assert await until(lambda: not alive(waiting))
    assert await ahead.said("echo on") == "on\n"
    assert ahead.used == [False]


async def test_the_second_command_of_the_tool_begins_in_it(ahead: Ahead) -> None:
    env = replace(Bench(ahead.work).env, environ=ahead.sandbox.environ, sandbox=ahead.sandbox)
    for n in range(3):
        outcome = await Shell().run(ShellParams(command=f"echo {n} > file; cat file .env"), env)
        assert outcome.output.startswith(f"{n}\n")
        assert "blocked reading" in outcome.brief
        # Old files of caches are looked for once in a while, when no process 1 is set up.
        prepared.set_up_ahead(ahead.made("true").words, str(ahead.work))
        await ahead.is_ready()
    assert ahead.used == [True, True]


async def test_a_secret_that_comes_while_a_question_is_read_is_hidden(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Slow:
        async def ask(self, question: ApprovalQuestion) -> str:
            asked.append(question.where)
            added(ahead)
            return ""

    monkeypatch.setattr(shell, "_OLD_S", 0.0)
    env = replace(
        Bench(ahead.work).env,
        environ=ahead.sandbox.environ,
        sandbox=ahead.sandbox,
        approver=Slow(),
    )
    params = ShellParams(command="cat .env.local; echo on", sandbox="network", why="It fetches.")
    outcome = await Shell().run(params, env)
    assert "on\n" in outcome.output
    assert "second" not in outcome.output
    assert len(asked) == 1


PROGRAM = """
import sys
from pathlib import Path
from kimi_tui.tools import prepared
from kimi_tui.tools.process import RunningCommand
from kimi_tui.tools.sandbox.sandbox import Sandbox, SandboxSettings
import asyncio, os
work = Path(sys.argv[1])
sandbox = Sandbox("full", SandboxSettings(), os.environ)
made = sandbox.confined(["/bin/true"], work)
running = RunningCommand(made.argv, work_dir=work, environ=made.environ, timeout_s=50, on_output=lambda _: None,
    confined_to=made.words, ends_all=True, afterwards=lambda: prepared.set_up_ahead(made.words, str(work)))
asyncio.run(running.run())
while prepared._processes[0]._ahead is None:
    pass
print(prepared._processes[0]._ahead._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_it_ends_with_the_program(ahead: Ahead, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(ahead.work)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(ahead.sandbox.environ),
        text=True,
    ) as program:
        assert program.stdout is not None
        waiting = int(program.stdout.readline())
        assert alive(waiting)
        if how == "killed":
            program.kill()
    assert asyncio.run(until(lambda: not alive(waiting)))
