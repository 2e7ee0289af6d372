"""A search reads what it searches and does nothing else, whatever stands in the place of its program."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.covered import search_sandbox
from support.sandbox_targets import (
    USERS,
    give,
    number_of,
    port_at,
    run_as,
    shared_segment,
    sleeping,
    socket_at,
    targets,
)

from kimi_tui.tools.grep import bundled_rg
from kimi_tui.tools.sandbox import confine, search
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.sandbox.search import Searched, confined_search, rules_everywhere
from kimi_tui.tools.supervisor import alive_below

HERE = Path(__file__).parent


def is_within_reach(path: Path) -> bool:
    """Return whether everybody can run a program."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


@pytest.fixture(params=["landlock", "bwrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return search_sandbox(request.param)


class World:
    """The targets of the attempts: files, a process and sockets of the user that makes them."""

    def __init__(self, base: Path, user: int, held: ExitStack) -> None:
        self.base, self.work, self.home = base, base / "work", base / "home"
        self._as = run_as(user)
        mine = ("own", "gone", "moved", "deep/own", "shut/key")
        for path in (
            *(self.work / one for one in mine),
            *(base / "out/file", base / "out/beside", self.home / ".ssh/id", base / "tmp/x"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a key\n")
        os.mkfifo(self.work / "pipe")
        (self.work / "root").symlink_to("/proc/self/root")
        (self.work / "link").symlink_to(self.home / ".ssh")
        (self.work / "linked").symlink_to(self.home / ".ssh/id")
        shutil.copy(HERE / "searcher.py", base / "searcher.py")
        name = f"key-{uuid4().hex}"
        shm = Path("/dev/shm") / name
        shm.touch()
        held.callback(shm.unlink, missing_ok=True)
        key = shared_segment(held, 0o666)
        victim = sleeping(held, user, name)
        for folder in (self.work, base / "out"):
            with chdir(folder):
                socket_at(held, socket.AF_UNIX, "sock")
        socket_at(held, socket.AF_UNIX, f"\0{name}")
        rules = held.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        rules.write(b"a key\n")
        rules.flush()
        self.rules = self.made_rules = rules.fileno()
        os.fchmod(self.rules, 0o666)
        give((base, shm, *base.rglob("*")), user)
        self.told: dict[str, Any] = {
            "out": str(base / "out"),
            "work": str(self.work),
            "home": str(self.home),
            "shm": str(shm),
            "tmp": str(base / "tmp"),
            "victim": victim,
            "port": port_at(held),
            "rules": self.rules,
            "segment": key,
            "abstract": name,
        }

    def got_out(self, sandbox: Sandbox | None) -> set[str]:
        """Which attempts a program gets away with that is run as one that searches the work folder."""
        python = Path(sys.executable).resolve()
        if self._as and not is_within_reach(python):
            python = Path("/usr/bin/python3")
            if not python.exists():
                pytest.skip("no interpreter is within reach of another user")
        argv = [str(python), "-I", "-S", str(self.base / "searcher.py"), json.dumps(self.told)]
        searched = Searched(str(self.work), ".", self.rules, ("shut",))
        with pytest.MonkeyPatch.context() as patch:
            # The files of the program itself may be read, like those of any other program.
            made_of = [*search._LIBRARIES, str(self.base / "searcher.py")]  # pyright: ignore[reportPrivateUsage]
            made_of += [] if python == Path("/usr/bin/python3") else [sys.base_prefix]
            patch.setattr(search, "_LIBRARIES", made_of)
            patch.setattr(sys, "executable", str(python))
            argv = argv if sandbox is None else confined_search(sandbox, argv, searched)
        said = self._run(argv)
        assert said.stdout, said.stderr
        return {one for line in said.stdout.splitlines() for one in json.loads(line)}

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            pass_fds=(self.rules,),
            start_new_session=True,
            timeout=50,
            check=False,
            **self._as,
        )


@pytest.fixture(params=USERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with targets("search") as (base, held):
        yield World(base, number_of(request.param), held)


def test_every_attempt_gets_out_where_nothing_holds_it(world: World) -> None:
    source = (HERE / "searcher.py").read_text()
    names = source.partition("ATTEMPTS = {")[2].partition("\n}\n")[0].split("\n    ")[1:]
    assert {name.split('"')[1] for name in names} - world.got_out(None) == set()


def test_no_attempt_gets_out_of_the_sandbox(world: World, sandbox: Sandbox) -> None:
    assert world.got_out(sandbox) == set()


@pytest.mark.sample
def test_the_rules_are_read_whatever_the_number_of_their_descriptor_is(
    world: World, sandbox: Sandbox
) -> None:
    for number in (98, 99, 100):
        # An open one has another owner in this process.
        with suppress(OSError):
            os.fstat(number)
            continue
        os.dup2(world.rules, number)
        try:
            world.rules = world.told["rules"] = number
            assert world.got_out(sandbox) == set(), number
        finally:
            os.close(number)
        world.rules = world.told["rules"] = world.made_rules


# -- rg itself ------------------------------------------------------------------------------------------


class Folder:
    """A folder that is searched, and a key outside."""

    def __init__(self, base: Path) -> None:
        self.work, self.key = base / "work", base / "home/.ssh/id"
        for path in (self.work / "own.txt", self.key):
            path.parent.mkdir(parents=True)
        (self.work / "own.txt").write_text("needle\n")
        self.key.write_text("needle in a key\n")

    def rg(self, sandbox: Sandbox | None, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run rg with these arguments; return the process and its output about the folder."""
        argv = [bundled_rg() or "rg", *arguments]
        if sandbox is not None:
            argv = confined_search(sandbox, argv, Searched(str(self.work), "."))
        return subprocess.run(
            argv,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )


@pytest.fixture
def folder() -> Iterator[Folder]:
    with targets("search") as (base, _):
        yield Folder(base)


def test_a_preprocessor_is_not_run(folder: Folder, sandbox: Sandbox) -> None:
    script = folder.work / "pre"
    script.write_text(f"#!/bin/sh\ntouch {folder.key.parent}/ran\ncat {folder.key}\n")
    script.chmod(0o755)
    assert "needle in a key" in folder.rg(None, f"--pre={script}", "needle", "./own.txt").stdout
    (folder.key.parent / "ran").unlink()
    said = folder.rg(sandbox, f"--pre={script}", "needle", "./own.txt")
    assert "key" not in said.stdout
    assert not (folder.key.parent / "ran").exists()
    # Nor one that lies where programs are.
    assert "key" not in folder.rg(sandbox, "--pre=/bin/cat", "needle", f"{folder.key}").stdout


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [".ignore", ".rgignore", ".gitignore"])
def test_rules_that_are_a_link_to_a_key_are_not_read(
    name: str, folder: Folder, sandbox: Sandbox
) -> None:
    folder.key.write_text("{secret\n")
    for place in (folder.work, folder.work.parent):
        (place / name).symlink_to(folder.key)
        told = ("--no-require-git", "needle", ".")
        assert "secret" in folder.rg(None, *told).stderr
        said = folder.rg(sandbox, *told)
        assert "secret" not in said.stdout + said.stderr
        (place / name).unlink()


@pytest.mark.parametrize("target", ["/proc/self/root{}", "{}", "../home/.ssh/id"])
def test_links_that_are_followed_lead_nowhere(
    target: str, folder: Folder, sandbox: Sandbox
) -> None:
    (folder.work / "link").symlink_to(target.format(folder.key))
    assert "in a key" in folder.rg(None, "--follow", "needle", ".").stdout
    said = folder.rg(sandbox, "--follow", "needle", ".")
    assert said.stdout == "./own.txt:needle\n"


def test_a_program_with_libraries_starts(folder: Folder, sandbox: Sandbox) -> None:
    argv = confined_search(sandbox, ["/bin/cat", "own.txt"], Searched(str(folder.work), "."))
    said = subprocess.run(argv, cwd=folder.work, capture_output=True, timeout=50, check=False)
    assert (said.stdout, said.stderr) == (b"needle\n", b"")


@pytest.mark.parametrize("begun", [False, True])
def test_it_ends_with_the_program(folder: Folder, sandbox: Sandbox, *, begun: bool) -> None:
    """Whatever ended that, also before it was begun."""
    argv = confined_search(sandbox, ["/bin/sleep", "600"], Searched(str(folder.work), "."))
    argv = ["parent:{}" if word == f"parent:{os.getpid()}" else word for word in argv]
    parent = (
        "import os, subprocess, sys; "
        "argv = [word.replace('parent:{}', f'parent:{os.getpid()}') for word in sys.argv[1:]]; "
        "print(subprocess.Popen(argv).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, *argv],
        cwd=folder.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        # Bubblewrap has others below it.
        all_of_it = [child]
        while begun and "sleep" not in map(name_of, all_of_it):
            assert process.poll() is None
            all_of_it = [child, *alive_below(child)]
        held = [os.pidfd_open(pid) for pid in all_of_it]
        process.kill()
    for descriptor in held:
        waiter = select.poll()
        waiter.register(descriptor, select.POLLIN)
        assert waiter.poll(50_000)
        os.close(descriptor)


def name_of(pid: int) -> str:
    """Return the name of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_what_is_a_link_by_now_is_not_searched(folder: Folder, sandbox: Sandbox) -> None:
    (folder.work / "sub").symlink_to(folder.key.parent)
    argv = [bundled_rg() or "rg", "needle", "./sub"]
    argv = confined_search(sandbox, argv, Searched(str(folder.work), "./sub"))
    said = subprocess.run(
        argv, cwd=folder.work, capture_output=True, text=True, timeout=50, check=False
    )
    assert (said.returncode, said.stdout) == (126, "")
    assert said.stderr == "./sub: Too many levels of symbolic links\n"


@pytest.mark.parametrize(
    "kept",
    [".gitconfig", ".config/git/config", ".config/git/ignore", "xdg/git/config", "xdg/git/ignore"],
)
def test_what_git_leaves_out_everywhere_is_what_rg_leaves_out(kept: str, tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for path in (home / kept, home / "mine", *(work / f"{n}" for n in range(3))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    if kept.endswith("config"):
        (home / kept).write_text('[core]\n  ExcludesFile = "~/mine"\n[user]\n  name = x\n')
    environ = {"HOME": str(home)}
    if kept.startswith("xdg"):
        environ["XDG_CONFIG_HOME"] = str(home / "xdg")
    listed = subprocess.run(
        [bundled_rg() or "rg", "--files", "--no-require-git"],
        cwd=work,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(listed.stdout.split()) == ["0", "2"]
    assert rules_everywhere(environ) == b"1\n"
    assert rules_everywhere({"HOME": str(work), "XDG_CONFIG_HOME": ""}) == b""


def test_rules_that_are_gone_or_behind_a_link_by_now_are_empty(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/rules").touch()
    (tmp_path / "link").symlink_to("folder")
    empty, whole = os.stat(os.devnull), os.stat(tmp_path / "folder/rules")
    for name, found in (("folder/rules", whole), ("link/rules", empty), ("gone", empty)):
        opened = confine._opened_or_nothing(str(tmp_path / name))
        assert os.path.samestat(os.fstat(opened), found), name
        os.close(opened)


# -- the other programs that confine --------------------------------------------------------------------


@pytest.mark.parametrize("user", [0, 1_000])
def test_bubblewrap_is_told_what_is_searched_and_what_is_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    work = tmp_path / "top/work"
    (work / "src/keys").mkdir(parents=True)
    (work / "src/linked").symlink_to("keys")
    for name in (".ignore", "src/.gitignore", "src/.env"):
        (work / name).touch()
    (tmp_path / "top/.ignore").symlink_to("work/.ignore")
    sandbox = Sandbox("bwrap", SandboxSettings(), {}, "/usr/bin/bwrap")
    shut = ("linked", "keys", ".env", "gone")
    searched = Searched(str(work), "src", rules=141, shut=shut)
    words, argv = search.search_words(sandbox, ["/opt/rg", "x"], searched)
    read = [f"{work}/src/.gitignore", f"{work}/.ignore"]
    assert words == [
        *(f"read:{path}" for path in read),
        *("search:src", "given:141", "level:filter"),
    ]
    # Descriptors behind the one of the rules: of what is searched, of the filter, of each file that is read.
    assert argv[:19] == [
        *("/usr/bin/bwrap", "--ro-bind-fd", "142", f"{work}/src"),
        *("--perms", "000", "--tmpfs", f"{work}/src/keys", "--remount-ro", f"{work}/src/keys"),
        *("--ro-bind", "/dev/null", f"{work}/src/.env"),
        *("--dev", "/dev", "--proc", "/proc", "--ro-bind-try", "/opt/rg"),
    ]
    text = " ".join(argv)
    assert f"--ro-bind-fd 145 {work}/.ignore --unshare-ipc" in text
    assert f"{work}/src/.gitignore" not in text
    assert "linked" not in text
    assert "gone" not in text
    assert ("--cap-add CAP_DAC_READ_SEARCH" in text) == (user == 0)
    assert ("--unshare-user-try" in text) == (user != 0)
    assert text.endswith(f"--die-with-parent --seccomp 143 --chdir {work} -- /opt/rg x")
    # A program that searches nothing reads its own files alone.
    words, argv = search.search_words(sandbox, ["/opt/rg", "--version"], Searched(str(work)))
    assert words == ["level:filter"]
    assert "--ro-bind-fd" not in argv
    assert Searched("/a", "../b").path == "/b"


def test_the_profile_for_macos(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").touch()
    sandbox = Sandbox("macos", SandboxSettings(), {}, "/usr/bin/sandbox-exec")
    work = tmp_path / 'a "quoted" folder'
    work.mkdir()
    searched = Searched(str(work), ".", shut=(".ssh",))
    program, option, profile, *argv = confined_search(sandbox, ["/opt/rg", "x"], searched)
    assert (program, option, argv) == ("/usr/bin/sandbox-exec", "-p", ["/opt/rg", "x"])
    lines = profile.split("\n")
    assert lines[:5] == [
        *("(version 1)", "(allow default)", "(deny file-write*)", "(deny network*)"),
        "(deny process-fork)",
    ]
    named = str(work).replace('"', '\\"')
    order = [
        "(deny file-read*)",
        f'(allow file-read* (subpath "{named}"))',
        f'(deny file-read* (subpath "{named}/.ssh"))',
    ]
    places = [lines.index(line) for line in order]
    assert places == sorted(places)
    assert f'(literal "{tmp_path}/.gitignore")' in profile
    assert not any(line.startswith("(allow file-write") for line in lines)
    assert all(line.count("(") == line.count(")") for line in lines)
