"""Attempts to get out of a real sandbox, from a real shell in it: none may."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import itertools
import os
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, chdir, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from support.covered import bubblewrap, command_of, whole_sandbox
from support.ordinary_rights import ordinary_rights

from kimi_tui.tools.process import RunningCommand
from kimi_tui.tools.sandbox import confine
from kimi_tui.tools.sandbox.git_watch import GitWatch, WatchedCommand
from kimi_tui.tools.sandbox.policy import NoSandbox, SandboxSettings, policy_for, refused
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.shell import _noticed
from kimi_tui.tools.supervised import marked
from kimi_tui.tools.supervisor import supervised, told

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
LOG = "log"
RUN = """
N=0
while IFS= read -r line; do
    case $line in "#"*) continue;; esac
    N=$((N + 1))
    echo "== $N"
    ( eval "$line" ) 2>&1 < /dev/null
done < escapes.sh
echo "== python"
python3 escapes.py
"""


@dataclass
class Outside:
    """A world around a work folder: secrets, a process with a terminal, ears on sockets. Not below `/tmp`, which is covered."""

    base: Path
    canary: str = field(default_factory=lambda: f"canary-{uuid4().hex}")
    secret: str = field(default_factory=lambda: f"secret-{uuid4().hex}")
    ears: list[socket.socket] = field(default_factory=list[socket.socket])

    def __post_init__(self) -> None:
        self.work, self.out = self.base / "work", self.base / "out"
        self.home = self.out / "home"
        self.app = self.base / "app"
        self.shared = Path("/dev/shm") / self.canary
        self.terminal, self.other = pty.openpty()
        self.shm_key = int.from_bytes(os.urandom(3), "big") | 0x6B000000

    def build(self, held: ExitStack) -> dict[str, str]:
        """Make it; returns the variables by which attempts know it."""
        secret = f"{self.secret}\n"
        for name in (
            *(".ssh/id_rsa", ".netrc", ".aws/credentials", ".git-credentials"),
            *(".bash_history", ".bashrc", ".profile", ".gitconfig"),
        ):
            is_secret = name not in (".bashrc", ".profile", ".gitconfig")
            written(self.home / name, secret if is_secret else "# mine\n")
        # This file is shown without its credentials. They are found by their names here: of random digits alone, one text in a
        # hundred does not look like a key.
        written(self.home / ".npmrc", f"//host.example/:_authToken={secret}")
        written(self.app / "config.toml", secret)
        written(self.app / "sessions/other/context.jsonl", secret)
        written(self.out / "file", "mine\n")
        (self.out / "empty").mkdir()
        os.mkfifo(self.out / "fifo")
        self.pipe = os.open(self.out / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        held.callback(os.close, self.pipe)
        for name, text in {
            "ok": "ok\n",
            "ok2": "ok\n",
            "ok3": "ok\n",
            "ok4": "ok\n",
            ".env": f"TOKEN={secret}",
            "app.key.bak": secret,
            ".ssh.old/id": secret,
            "node_modules/.npmrc": secret,
            "sub3/.env": f"TOKEN={secret}",
            "deploy.pem": secret,
            ".envrc": "mine\n",
            ".vscode/settings.json": "{}\n",
            "AGENTS.md": "mine\n",
            "team.gitconfig": "# mine\n",
            "tools/hooks/pre-commit": "# mine\n",
            "tools/watch": "# mine\n",
        }.items():
            written(self.work / name, text)
        for repository in (self.work, self.work / "sub"):
            subprocess.run(["git", "init", "-q", str(repository)], check=True)
        with open(self.work / ".git/config", "a") as settings:
            settings.write("[include] path = ../team.gitconfig\n[core] hooksPath = tools/hooks\n")
            settings.write("[core] fsmonitor = tools/watch --all\n")
        for name in ("escapes.sh", "escapes.py"):
            shutil.copy(HERE / name, self.work / name)
        written(self.work / "run.sh", RUN)
        written(self.shared, secret)
        held.callback(self.shared.unlink, missing_ok=True)
        segment = ctypes.CDLL(None).shmget(self.shm_key, 64, 0o1600)
        held.callback(ctypes.CDLL(None).shmctl, segment, 0, None)
        self.victim = subprocess.Popen(
            ["/bin/sh", "-c", f"sleep 600; : {self.canary}"],
            cwd=self.out,
            env={"PATH": os.environ["PATH"], "TOKEN": self.secret},
            stdin=self.other,
            start_new_session=True,
        )
        held.callback(self.victim.wait)
        # With the sleep that the shell waits for, which would hold our output open for ten minutes.
        held.callback(os.killpg, self.victim.pid, signal.SIGKILL)
        held.callback(os.close, self.terminal)
        held.callback(os.close, self.other)
        os.set_blocking(self.terminal, False)
        places = (self.out / "sock", self.home / "agent.sock", self.work / "outer.sock")
        for address in (*map(str, places), f"\0{self.canary}"):
            self._listen(held, socket.AF_UNIX, socket.SOCK_STREAM, address)
        # These do not stand under their names in the kernel's list.
        with chdir(self.work / "sub"):
            self._listen(held, socket.AF_UNIX, socket.SOCK_STREAM, "relative.sock")
        self._listen(held, socket.AF_UNIX, socket.SOCK_STREAM, str(self.work / "two\nlines.sock"))
        self._listen(held, socket.AF_UNIX, socket.SOCK_STREAM, str(self.home / "first.sock"))
        (self.home / "first.sock").rename(self.home / "moved.sock")
        port = self._listen(held, socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0))
        udp = self._listen(held, socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0))
        return {
            "OUT": str(self.out),
            "HOME": str(self.home),
            "KEPT_APP": str(self.app),
            "CANARY": self.canary,
            "VICTIM": str(self.victim.pid),
            "TTY": os.ttyname(self.other),
            "SOCK": str(places[0]),
            "PORT": str(port),
            "UDP": str(udp),
            "SHM_KEY": f"{self.shm_key:#x}",
        }

    def _listen(self, held: ExitStack, family: int, kind: int, address: object) -> int:
        ear = held.enter_context(socket.socket(family, kind))
        ear.bind(address)  # pyright: ignore[reportArgumentType]
        ear.setblocking(False)
        if kind == socket.SOCK_STREAM:
            ear.listen(64)
        self.ears.append(ear)
        return ear.getsockname()[1] if family == socket.AF_INET else 0

    def state(self) -> dict[str, object]:
        """Return all that no command may change."""
        kept = [
            *(self.work / ".git" / name for name in ("hooks", "config")),
            *(self.work / "sub/.git" / name for name in ("hooks", "config")),
            *(self.work / name for name in (".envrc", ".vscode", "AGENTS.md", ".env")),
            *(self.work / name for name in ("team.gitconfig", "tools")),
        ]
        found: dict[str, object] = {"": sorted(os.listdir(self.base))}
        for top in (self.out, self.app, self.shared, *kept):
            for path in (top, *sorted(top.rglob("*"))):
                if path.is_relative_to(self.app / "sandbox"):
                    # Private layers, which are there to be written to.
                    continue
                at = path.lstat()
                text = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                attributes = os.listxattr(path, follow_symlinks=False)
                found[str(path)] = (at.st_mode, at.st_uid, at.st_gid, at.st_ino, text, attributes)
                if path.is_file():
                    found[f"{path} was changed at"] = at.st_mtime_ns
        status = Path(f"/proc/{self.victim.pid}/status").read_text()
        found["victim"] = re.findall(r"^(?:State:\s[tTZX]|TracerPid|Uid).*", status, re.M)
        found["limits"] = Path(f"/proc/{self.victim.pid}/limits").read_text()
        found["nice"] = os.getpriority(os.PRIO_PROCESS, self.victim.pid)
        return found

    def heard(self) -> list[object]:
        """Return the data that came to the sockets and the terminal."""
        found: list[object] = []
        for ear in self.ears:
            try:
                found.append((ear.getsockname(), ear.accept() if ear.type == 1 else ear.recv(99)))
            except BlockingIOError:
                continue
        with suppress(BlockingIOError):
            found.append(os.read(self.terminal, 999))
        with suppress(BlockingIOError):
            found += filter(None, [os.read(self.pipe, 999)])
        return found


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def outside() -> Iterator[Outside]:
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".sandbox-") as base:
        yield Outside(Path(base))


async def run_in(sandbox: Sandbox, script: str, outside: Outside) -> str:
    """Return the output of a script that runs in the sandbox, with the home folder of `outside`."""
    environ = {**os.environ, "HOME": str(outside.home), "KIMI_TUI_HOME": str(outside.app)}
    here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
    try:
        shell = ["/bin/bash", "--noprofile", "--norc", "-c", script]
        confined = here.confined(shell, outside.work)
        command = command_of(confined, outside.work)
        return (await command.run()).output.text
    finally:
        here.remove_temporary()


@asynccontextmanager
async def serving(*argv: str) -> AsyncIterator[None]:
    """Run a program meanwhile; begin once it has printed a line."""
    service = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert service.stdout is not None
        assert await service.stdout.readline()
        yield
    finally:
        service.kill()
        await service.wait()


def linked(*steps: Path, text: str) -> None:
    """A file at the last of these places, and a link at each other one to the next."""
    written(steps[-1], text)
    for at, to in itertools.pairwise(steps):
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(to)


TRACED = """python3 -c '
import ctypes, os, signal
os.write(1, b"before\\n")
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
os.kill(os.getpid(), signal.SIGSTOP)
'"""


@pytest.mark.sample
async def test_a_command_that_has_itself_traced_and_stops_is_ended_with_all_of_it(
    sandbox: Sandbox, outside: Outside
) -> None:
    outside.work.mkdir()
    here = Sandbox(sandbox.backend, sandbox.settings, os.environ, sandbox.program)
    try:
        shell = ["/bin/bash", "--noprofile", "--norc", "-c", f"exec {TRACED}"]
        confined = here.confined(shell, outside.work)
        ended = await command_of(confined, outside.work, timeout_s=2).run()
    finally:
        here.remove_temporary()
    # The first process of bubblewrap takes the stop for the end.
    ending = "exited" if sandbox.backend == "bwrap" else "timeout"
    assert (ended.ending, ended.n_alive, ended.output.text) == (ending, 0, "before\n")


@pytest.mark.sample
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
async def test_devices_are_closed_wherever_they_are(sandbox: Sandbox, outside: Outside) -> None:
    places = (outside.work / "device", outside.out / "device")
    try:
        for device in places:
            device.parent.mkdir(exist_ok=True)
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 5))
            os.close(os.open(device, os.O_RDONLY))
    except OSError as error:
        pytest.skip(f"there can be none here: {error}")
    names = " ".join(map(str, places))
    said = await run_in(
        sandbox, f"for one in {names}; do head -c 1 $one; echo > $one; done", outside
    )
    assert said.count("Permission denied") == 4, said
    assert "\0" not in said


async def test_what_lies_over_a_hidden_folder_is_closed_and_stays_empty(
    sandbox: Sandbox, outside: Outside
) -> None:
    (outside.work / ".ssh").mkdir(parents=True)
    (outside.work / ".ssh/id").write_text("key\n")
    said = await run_in(sandbox, "stat -c %a .ssh; touch .ssh/x; ls .ssh 2>&1", outside)
    closed, refused_to_touch, *listed = said.splitlines()
    assert closed == "0"
    assert "cannot touch" in refused_to_touch
    assert not listed or "Permission denied" in listed[0]


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o600])
async def test_a_folder_that_a_command_closed_is_opened_by_none(
    sandbox: Sandbox, outside: Outside, mode: int
) -> None:
    for name in ("plain", "deep/1/2/3/4"):
        written(outside.work / name / ".env", outside.secret)
        (outside.work / name / "inner/.git/hooks").mkdir(parents=True)
    closes = f"chmod {mode:o} plain deep/1/2/3/4; stat -c %a plain deep/1/2/3/4"
    assert (await run_in(sandbox, closes, outside)).split() == [f"{mode:o}"] * 2
    opens = (
        "for one in plain deep/1/2/3/4; do chmod 700 $one; echo on > $one/inner/.git/hooks/pre-commit; done; "
        "cat plain/.env"
    )
    with ordinary_rights():
        said = await run_in(sandbox, opens, outside)
    assert outside.secret not in said
    for name in ("plain", "deep/1/2/3/4"):
        (outside.work / name).chmod(0o700)
        assert not (outside.work / name / "inner/.git/hooks/pre-commit").exists()


@pytest.mark.parametrize("place", ["node_modules/one/closed", "node_modules/one/closed/deep"])
async def test_a_secret_behind_a_link_into_a_closed_folder_stays_hidden(
    sandbox: Sandbox, outside: Outside, place: str
) -> None:
    written(outside.work / place / "plain", outside.secret)
    (outside.work / ".env").symlink_to(f"{place}/plain")
    closed = outside.work / "node_modules/one/closed"
    closed.chmod(0)
    with ordinary_rights():
        said = await run_in(sandbox, "chmod 700 node_modules/one/closed; cat .env", outside)
    closed.chmod(0o700)
    assert outside.secret not in said


@pytest.mark.parametrize("name", ["", ".git", ".git/hooks", ".git/modules"])
def test_a_closed_repository_or_work_folder_is_refused(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    (work / ".git/modules").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    environ = {"HOME": str(tmp_path), "KIMI_TUI_HOME": str(tmp_path / "app")}
    (work / name).chmod(0o300)
    with ordinary_rights(), pytest.raises(NoSandbox, match="cannot be read"):
        policy_for(work, SandboxSettings(), environ)
    (work / name).chmod(0o700)
    with ordinary_rights():
        policy_for(work, SandboxSettings(), environ)


async def test_no_link_on_the_way_to_what_is_guarded_is_changed(
    sandbox: Sandbox, outside: Outside
) -> None:
    work, home, secret = outside.work, outside.home, outside.secret
    chains = (
        (outside.app / "config.toml", work / "a/link.toml", home / "dots/config.toml"),
        (home / ".ssh", work / "keys", home / "dots/keys"),
        (work / ".env", work / "second", work / "plain"),
        (work / "sub/.env", home / "shared"),
    )
    for chain in chains:
        linked(*chain, text="" if chain[0].name == ".ssh" else secret)
    (home / "dots/keys").unlink()
    written(home / "dots/keys/id", secret)
    written(work / "AGENTS.md", "mine\n")
    (work / "CLAUDE.md").symlink_to("AGENTS.md")
    written(work / "evil", "evil\n")
    links = [link for chain in chains for link in chain[:-1]] + [work / "CLAUDE.md"]
    before = [os.readlink(link) for link in links]
    script = """for link in a/link.toml keys .env second sub/.env CLAUDE.md; do
        ln -sfn "$PWD/evil" $link; mv $link $link.old; rm -f $link; mv -T evil $link; echo evil > $link; cp -f evil $link
    done 2> /dev/null
    mv a a.old 2> /dev/null && mkdir a && cp evil a/link.toml; mv sub sub.old 2> /dev/null
    cat .env second plain sub/.env CLAUDE.md "$HOME/dots/keys/id" "$HOME/dots/config.toml" "$HOME/shared" 2>&1"""
    if sandbox.backend == "bwrap":
        with pytest.raises(NoSandbox, match="is a link, which bubblewrap cannot protect"):
            await run_in(sandbox, script, outside)
        return
    said = await run_in(sandbox, script, outside)
    assert "mine" in said
    assert secret not in said
    assert [os.readlink(link) for link in links] == before
    assert [chain[0].resolve() for chain in chains] == [chain[-1] for chain in chains]


async def test_a_missing_configuration_is_not_made(sandbox: Sandbox, outside: Outside) -> None:
    (outside.work / "conf").mkdir(parents=True)
    outside.app.mkdir()
    (outside.app / "config.toml").symlink_to(outside.work / "conf/config.toml")
    with pytest.raises(
        NoSandbox, match=r"\S+/conf/config\.toml does not exist, so a command could create it"
    ):
        await run_in(sandbox, "echo evil > conf/config.toml", outside)


async def test_an_entry_that_a_command_made_a_link_is_not_written(
    sandbox: Sandbox, outside: Outside
) -> None:
    for folder in (outside.work, outside.home / "made", outside.out / "other"):
        folder.mkdir(parents=True)
    (outside.home / "made/sub").symlink_to(outside.out / "other")
    names = ("~/made/sub/deep", "~/made/sub", "~/made")
    settings = SandboxSettings(writable=names)
    here = Sandbox(sandbox.backend, settings, sandbox.environ, sandbox.program)
    script = f"echo x > $HOME/made/ok; echo x > $HOME/made/sub/out; mkdir {outside.out}/other/deep"
    await run_in(here, script, outside)
    assert os.listdir(outside.out / "other") == []
    assert (outside.home / "made/ok").exists()


async def test_no_link_that_comes_after_the_look_is_followed(
    sandbox: Sandbox, outside: Outside
) -> None:
    work, elsewhere = outside.work, outside.out / "elsewhere"
    written(work / "a/b/.env", "x\n")
    written(elsewhere / "b/.env", outside.secret)
    environ = {**os.environ, "HOME": str(outside.home), "KIMI_TUI_HOME": str(outside.app)}
    here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
    script = "cat a/b/.env; echo evil > a/b/made"
    confined = here.confined(["/bin/bash", "-c", script], work)
    # A command in the background may do this between the check and the start.
    (work / "a").rename(work / "c")
    (work / "a").symlink_to(elsewhere)
    command = command_of(confined, work)
    try:
        with pytest.raises(OSError, match=f"{work}/a"):
            await command.run()
    finally:
        here.remove_temporary()
    assert os.listdir(elsewhere / "b") == [".env"]


@pytest.mark.sample
async def test_what_a_command_left_in_its_temporary_folder_is_removed(
    sandbox: Sandbox, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside.work.mkdir(parents=True)
    (outside.out / "kept").mkdir(parents=True)
    place = outside.base / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    script = f"""cd $TMPDIR; ln -s {outside.out} link; mkdir -p a/b; touch a/b/c; chmod 0 a/b a; mkfifo pipe
        python3 -c 'for _ in range(1500): __import__("os").mkdir("d"); __import__("os").chdir("d")'; chmod 0 ."""
    await run_in(sandbox, script, outside)
    assert os.listdir(place) == []
    assert (outside.out / "kept").exists()


@pytest.mark.sample
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network and writes in /run")
async def test_a_service_with_a_network_of_its_own_is_not_reached(
    sandbox: Sandbox, outside: Outside
) -> None:
    outside.work.mkdir(parents=True)
    place = Path(tempfile.mkdtemp(dir="/run"))
    listen = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind('{place}/s'); s.listen(); print(1, flush=True); s.accept()"
    try:
        async with serving("unshare", "-n", sys.executable, "-c", listen):
            connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{place}/s'); print('GOT OUT')"
            assert "GOT OUT" not in await run_in(sandbox, f'python3 -c "{connect}"', outside)
    finally:
        shutil.rmtree(place)


async def test_a_secret_that_was_renamed_since_the_look_is_not_read(
    sandbox: Sandbox, outside: Outside
) -> None:
    written(outside.work / ".env", outside.secret)
    environ = {**os.environ, "HOME": str(outside.home), "KIMI_TUI_HOME": str(outside.app)}
    here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
    confined = here.confined(["/bin/sh", "-c", "cat env .env"], outside.work)
    (outside.work / ".env").rename(outside.work / "env")
    command = command_of(confined, outside.work)
    try:
        with pytest.raises(OSError, match=r"\.env"):
            await command.run()
    finally:
        here.remove_temporary()


@pytest.mark.sample
async def test_commands_talk_to_themselves_and_are_where_they_were(
    sandbox: Sandbox, outside: Outside
) -> None:
    outside.work.mkdir(parents=True)
    talk = "import socket as s; e = s.create_server(('127.0.0.1', 0)); s.create_connection(e.getsockname()); print('heard')"
    own = "import os; print(os.getsid(0) > 0)"
    script = f'python3 -c "{talk}"; pwd -P; echo x > here; python3 -c "{own}"'
    # A session that begins outside has no number: signals to a whole group would go there.
    assert (await run_in(sandbox, script, outside)).split() == ["heard", str(outside.work), "True"]
    assert (outside.work / "here").exists()


async def test_what_may_only_look_writes_nothing_but_temporary_files(
    sandbox: Sandbox, outside: Outside
) -> None:
    outside.work.mkdir(parents=True)
    (outside.home / ".cache/pip").mkdir(parents=True)
    environ = {**os.environ, "HOME": str(outside.home), "KIMI_TUI_HOME": str(outside.app)}
    here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
    script = "for path in x ~/.cache/pip/x /tmp/x /dev/shm/x; do echo x > $path && echo $path; done 2> /dev/null"
    confined = here.confined(["/bin/bash", "-c", script], outside.work, writes=False)
    command = command_of(confined, outside.work)
    try:
        assert (await command.run()).output.text.split() == ["/tmp/x", "/dev/shm/x"]
    finally:
        here.remove_temporary()


def test_all_of_a_command_ends_with_its_supervisor(sandbox: Sandbox, outside: Outside) -> None:
    outside.work.mkdir(parents=True)
    environ = {**os.environ, "HOME": str(outside.home), "KIMI_TUI_HOME": str(outside.app)}
    here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
    confined = here.confined(["/bin/sh", "-c", "setsid sleep 60 & echo on; wait"], outside.work)
    orders, end = os.pipe()
    heard, reports = os.pipe()
    words = told(confined.words)
    try:
        with subprocess.Popen(
            supervised(orders, reports, "", words, [*confined.argv]),
            cwd=outside.work,
            env=confined.environ,
            stdout=subprocess.PIPE,
            pass_fds=(orders, reports, words),
        ) as process:
            assert process.stdout is not None
            said = process.stdout.read(3)
            process.kill()
            assert said == b"on\n"
            # At its end nobody holds the output any more.
            assert select.select([process.stdout], [], [], 20)[0]
            assert process.stdout.read() == b""
    finally:
        for descriptor in (orders, end, heard, reports, words):
            os.close(descriptor)
        here.remove_temporary()


async def test_a_socket_that_is_gone_again_is_in_nobodys_way(
    sandbox: Sandbox, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside.work.mkdir(parents=True)
    gone = [str(outside.work / "gone.sock")]
    monkeypatch.setattr("kimi_tui.tools.sandbox.policy.stray_sockets", lambda *_: gone)
    assert "goes on" in await run_in(sandbox, "echo goes on", outside)
    policy = policy_for(outside.work, sandbox.settings, {"HOME": str(outside.home)})
    assert policy.hides(policy.real(gone[0]))
    assert not policy.may_write(gone[0])


def without(sandbox: Sandbox, before: str) -> Sandbox:
    """Return the same bubblewrap, started by a shell that first does something between the check and the covers."""
    program = Path(tempfile.mkdtemp(dir=ROOT, prefix=".sandbox-program-")) / "bwrap"
    program.write_text(f'#!/bin/sh\n{before}\nexec {sandbox.program} "$@"\n')
    program.chmod(0o755)
    return Sandbox(sandbox.backend, sandbox.settings, sandbox.environ, str(program))


@pytest.fixture
def bwrap() -> Sandbox:
    return bubblewrap(HERE)


async def test_bubblewrap_starts_where_a_socket_goes_while_it_is_set_up(
    bwrap: Sandbox, outside: Outside
) -> None:
    outside.work.mkdir(parents=True)
    outside.out.mkdir()
    places = (outside.out / "sock", outside.work / "inner.sock")
    with ExitStack() as held:
        for place in places:
            ear = held.enter_context(socket.socket(socket.AF_UNIX))
            ear.bind(str(place))
            ear.listen()
        here = without(bwrap, f"rm -f {places[0]} {places[1]}")
        held.callback(shutil.rmtree, Path(here.program).parent)
        script = "echo goes on; ls /proc/self/fd; ls -d *.sock; echo error >&2; exit 7"
        assert (await run_in(here, script, outside)).split() == [
            *("goes", "on", "0", "1", "2", "3"),
            *("ls:", "cannot", "access", "'*.sock':", "No", "such", "file", "or", "directory"),
            "error",
        ]
        # Nor is anything left where one was, that would be in the way of the next one.
        ear = held.enter_context(socket.socket(socket.AF_UNIX))
        ear.bind(str(places[1]))
        ear.listen()
        assert "goes on" in await run_in(here, script, outside)
        assert os.listdir(outside.work) == []
        refusing = without(bwrap, f"echo x >> {outside.out}/tries; echo no room >&2; exit 1")
        held.callback(shutil.rmtree, Path(refusing.program).parent)
        with pytest.raises(OSError, match="no room"):
            await run_in(refusing, "echo goes on", outside)
        # Each start of the supervisor tries ten times.
        assert (outside.out / "tries").read_text().split() == ["x"] * 30


async def test_bubblewrap_starts_where_sockets_come_and_go(
    bwrap: Sandbox, outside: Outside
) -> None:
    outside.work.mkdir(parents=True)
    outside.out.mkdir()
    with ExitStack() as held:
        for n in range(40):
            ear = held.enter_context(socket.socket(socket.AF_UNIX))
            ear.bind(str(outside.out / f"{n}.sock"))
            ear.listen()
        # Whenever it starts, one of those that are to be covered has gone.
        here = without(bwrap, f"(set -- {outside.out}/*.sock; rm -f $1)")
        held.callback(shutil.rmtree, Path(here.program).parent)
        assert await run_in(here, "echo goes on", outside) == "goes on\n"
        assert len(os.listdir(outside.out)) > 35


@pytest.mark.parametrize("abi", [0, 7])
async def test_an_interpreter_starts_in_bubblewrap_for_landlock_alone(
    bwrap: Sandbox, outside: Outside, monkeypatch: pytest.MonkeyPatch, abi: int
) -> None:
    outside.work.mkdir(parents=True)
    monkeypatch.setattr(confine, "landlock_abi", lambda: abi)
    # The names of what ran before in this process.
    script = "tr '\\0' ' ' < /proc/1/cmdline; echo; echo out; echo errors >&2; echo x > $HOME/made"
    said = await run_in(bwrap, script, outside)
    assert said.split("\n")[1:3] == ["out", "errors"]
    assert ("begin_behind" in said) is bool(abi)
    assert not (outside.home / "made").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what is in closed folders of others")
async def test_bubblewrap_starts_where_another_user_has_a_socket_in_a_closed_folder(
    bwrap: Sandbox, outside: Outside
) -> None:
    outside.work.mkdir(parents=True)
    closed, half = outside.out / "closed", outside.out / "half"
    user = 0x5B000000 + os.getpid()
    with ExitStack() as held:
        for folder, group, mode in ((closed, user, 0o700), (half, 0, 0o710)):
            folder.mkdir(parents=True)
            ear = held.enter_context(socket.socket(socket.AF_UNIX))
            ear.bind(str(folder / "sock"))
            ear.listen()
            (folder / "sock").chmod(0o777)
            os.chown(folder, user, group)
            folder.chmod(mode)
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('GOT OUT')"
        script = (
            f'for path in {closed} {half}; do python3 -c "{connect}" $path/sock; done; echo goes on'
        )
        said = await run_in(bwrap, script, outside)
        assert "GOT OUT" not in said
        assert "goes on" in said


GONE = """
import os, sys
_, folder, gone, *words = sys.argv
sys.path.append(folder)
import confine
attach = confine._attach_at
def late(tree, place, path):
    path == gone and os.unlink(path)
    attach(tree, place, path)
def stay(child, _):
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
confine._attach_at = late
confine.confine(words, stay)
print("goes on")
"""


def test_a_socket_that_goes_when_it_is_to_be_covered_is_in_nobodys_way(
    outside: Outside,
) -> None:
    here = whole_sandbox(HERE)
    written(outside.work / ".env", "x\n")
    place = outside.work / "gone.sock"
    with socket.socket(socket.AF_UNIX) as ear:
        ear.bind(str(place))
        ear.listen()
        confined = here.confined(["/bin/true"], outside.work)
        said: list[str] = []
        for gone in (place, outside.work / ".env"):
            words = [str(Path(confine.__file__).parent), str(gone), *confined.words]
            tried = subprocess.run(
                [sys.executable, "-c", GONE, *words], capture_output=True, check=False
            )
            said.append(tried.stdout.decode().strip())
        here.remove_temporary()
    # A hidden file that disappeared may be somewhere else.
    assert said == ["goes on", ""]
    assert not place.exists()


@pytest.mark.sample
async def test_a_held_folder_in_the_way_of_a_rename_is_named(
    sandbox: Sandbox, outside: Outside
) -> None:
    for name in ("apps/web/.env", "apps/web/a.py", "apps/b.py"):
        written(outside.work / name, f"{outside.secret}\n")
    policy = policy_for(outside.work, sandbox.settings, {"HOME": str(outside.home)})
    rename = 'python3 -c \'import os; os.rename("%s", "%s")\''
    copy = "(files in that folder are protected; copying it works)"
    for script, what in (
        (rename % ("apps/web/a.py", "a.py"), [f"renaming apps/web/a.py {copy}"]),
        (rename % ("apps", "other"), [f"renaming apps {copy}"]),
        ("mv apps/web w", ["copying a file hidden by the sandbox to w/.env"]),
        (rename % ("apps/b.py", "apps/c.py"), []),
        ("cp -r apps/b.py b.py", []),
    ):
        assert refused(await run_in(sandbox, script, outside), policy) == what, script


@pytest.mark.sample
async def test_nothing_gets_out(sandbox: Sandbox, outside: Outside) -> None:
    with ExitStack() as held:
        known = outside.build(held)
        environ = {**os.environ, "HOME": str(outside.home), "KIMI_TUI_HOME": str(outside.app)}
        here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
        held.callback(here.remove_temporary)
        before = outside.state()
        shell = [
            "/bin/bash",
            "--noprofile",
            "--norc",
            "-c",
            f"export SUPERVISOR=$PPID; bash run.sh > {LOG} 2>&1; :",
        ]
        confined = here.confined(shell, outside.work)
        command = RunningCommand(
            confined.argv,
            work_dir=outside.work,
            environ={
                **confined.environ,
                **known,
                "PATH": f"{Path(sys.executable).parent}:/usr/sbin:{os.environ['PATH']}",
            },
            timeout_s=50,
            on_output=lambda text: None,
            confined_to=confined.words,
            ends_all=True,
        )
        ended = await command.run()
        log = (outside.work / LOG).read_text(errors="replace")
        lines = [line for line in (HERE / "escapes.sh").read_text().splitlines() if line[0] != "#"]
        attempts = re.findall(r"^(\d+) attempts made", log, re.MULTILINE)
        assert ended.ending == "exited", log[-2000:]
        assert attempts, log[-2000:]
        assert len(lines) + int(attempts[0]) >= 150
        parts = (part.partition("\n") for part in log.split("== ")[1:])
        said = {number: text for number, _, text in parts}
        assert len(said) == len(lines) + 1
        out = {
            number: (lines[int(number) - 1] if number.isdigit() else "", text[-300:])
            for number, text in said.items()
            if "GOT OUT" in text or outside.secret in text
        }
        assert not out, "\n".join(f"{one}: {line}\n    {text}" for one, (line, text) in out.items())
        assert {name: now for name, now in outside.state().items() if before.get(name) != now} == {}
        assert outside.heard() == []
        # A file that was copied from under a cover would be in the work folder.
        stolen = [
            path
            for path in outside.work.rglob("*")
            if path.is_file()
            and not path.is_symlink()
            and path.name not in (".env", "deploy.pem", "app.key.bak", "id", ".npmrc")
            and outside.secret in path.read_text(errors="replace")
        ]
        assert stolen == []
        assert marked(command.mark) == []
        beat = outside.work / "beat"
        last = beat.read_bytes() if beat.exists() else b""
        await asyncio.sleep(0.06)
        assert (beat.read_bytes() if beat.exists() else b"") == last


async def test_a_folder_that_a_command_closed_is_named(sandbox: Sandbox, outside: Outside) -> None:
    written(outside.work / "plain/file", "")
    environ = {**os.environ, "HOME": str(outside.home), "KIMI_TUI_HOME": str(outside.app)}
    here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
    try:
        shell = ["/bin/bash", "--noprofile", "--norc", "-c", "chmod 000 plain"]
        confined = here.confined(shell, outside.work)
        await command_of(confined, outside.work).run()
        with ordinary_rights():
            watch = GitWatch()
            facts, brief = _noticed(confined, WatchedCommand(confined.policy.watch), watch)
    finally:
        here.remove_temporary()
    assert "left plain without the right to read it" in facts[0]
    assert "plain" in brief
