"""Changes of commands to caches of package managers stay with these commands, and existing files can be read."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.covered import command_of, is_covered, needs_landlock, whole_sandbox
from support.sandbox_targets import USERS, give, number_of
from support.watching import until

from kimi_tui.filesystem import remove_tree
from kimi_tui.tools.sandbox import confine, layers
from kimi_tui.tools.sandbox.layers import (
    Caches,
    caches_of,
    folder_of,
    layers_dir,
    made_folder,
    risk_of,
    size_of,
    trim,
    variables_folder,
    work_folders,
)
from kimi_tui.tools.sandbox.policy import SandboxSettings
from kimi_tui.tools.sandbox.sandbox import Sandbox

HERE = Path(__file__).parent
PLANTED = (
    # Other projects run these: environments, toolchains, scripts and compiled files.
    ".cache/pypoetry/virtualenvs/x/bin/python",
    ".cache/pypoetry/virtualenvs/x/bin/git",
    ".cache/pypoetry/virtualenvs/x/lib/site-packages/x.pth",
    ".cache/pre-commit/repo1/py_env-python3/lib/hk.py",
    ".cache/node/corepack/v1/yarn/4.0.0/yarn.js",
    ".cache/uv/archive-v0/abc/pkg/__init__.py",
    ".cache/uv/environments-v2/x/bin/python",
    ".cache/pip/http-v2/a/b/entry",
    ".cache/go-build/00/x-d",
    ".cache/ccache/0/1/result",
    ".cache/yarn/v6/x/index.js",
    "go/pkg/mod/golang.org/toolchain@v0.0.1/bin/go",
    ".cargo/registry/src/index/crate-1.0/build.rs",
    ".gradle/caches/modules-2/files-2.1/x/x.jar",
    ".m2/repository/x/x.jar",
    ".local/share/pnpm/store/v3/files/00/x",
    ".npm/_cacache/content-v2/sha512/aa/bb",
)
CHANGES = """
cd ~
for path in {names}; do
    echo evil >> $path; echo evil > $path; chmod 700 $path; ln -f $path $path.link
    echo evil > $path.new; mv -f $path.new $path; rm -f $path; mkdir -p $path.d; touch $(dirname $path)/evil
    rm -rf $(dirname $path)
    cp -r {work} ~/.cache/copied
done
mv .cache/pip .cache/gone; rm -rf .cache/uv .npm; ln -sf / .cache/pip/root
true
"""


@pytest.fixture
def top() -> Iterator[Path]:
    """A place that the sandbox does not cover."""
    with tempfile.TemporaryDirectory(dir=HERE.parents[2], prefix=".sandbox-") as place:
        os.chmod(place, 0o755)
        yield Path(place)


@pytest.fixture
def environ(top: Path) -> dict[str, str]:
    home = top / "home"
    for name in PLANTED:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("theirs\n")
    (home / ".cache/unknown").mkdir()
    (home / ".cache/unknown/x").write_text("theirs\n")
    # A package that uv linked into the environment of another project.
    (home / "other/.venv").mkdir(parents=True)
    os.link(home / ".cache/uv/archive-v0/abc/pkg/__init__.py", home / "other/.venv/__init__.py")
    (top / "work").mkdir()
    return {**os.environ, "HOME": str(home), "KIMI_TUI_HOME": str(home / ".local/share/kimi-tui")}


def contents(folder: Path) -> dict[str, object]:
    """Return all of a home folder that commands must not change."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        if ".local/share/kimi-tui" not in str(path):
            at = path.lstat()
            text = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = (at.st_mode, at.st_ino, text and at.st_nlink, text)
    return found


async def said(sandbox: Sandbox, script: str, top: Path) -> str:
    shell = ["/bin/bash", "--noprofile", "--norc", "-c", script]
    confined = await asyncio.to_thread(sandbox.confined, shell, top / "work")
    return (await command_of(confined, top / "work").run()).output.text.strip()


@pytest.fixture
def here(sandbox: Sandbox, environ: dict[str, str]) -> Iterator[Sandbox]:
    """The sandbox with the home folder of the test."""
    own = Sandbox(sandbox.backend, SandboxSettings(), environ, sandbox.program)
    yield own
    own.remove_temporary()


@pytest.mark.sample
async def test_no_cache_is_changed(here: Sandbox, environ: dict[str, str], top: Path) -> None:
    home = Path(environ["HOME"])
    before = contents(home)
    script = CHANGES.format(names=" ".join(PLANTED), work=top / "work")
    await said(here, script, top)
    assert contents(home) == before
    # Nor is anything of this program's own folder shown.
    listed = await said(here, f"ls -R {layers_dir(environ)} ~/.local/share/kimi-tui", top)
    assert "upper" not in listed
    assert "folder" not in listed


@pytest.mark.sample
async def test_what_is_there_is_read_and_what_is_written_stays_with_the_agent(
    here: Sandbox, top: Path
) -> None:
    every = " ".join(f"~/{name}" for name in PLANTED)
    assert set((await said(here, f"cat {every}", top)).split()) == {"theirs"}
    if here.is_layered:
        assert await said(here, "cat ~/.cache/unknown/x", top) != "theirs"
        await said(here, "echo mine > ~/.cache/pip/x; echo mine > ~/.cache/fresh", top)
        assert await said(here, "cat ~/.cache/pip/x ~/.cache/fresh", top) == "mine\nmine"
    place = '"${PIP_CACHE_DIR:-$HOME/.cache/pip}"'
    await said(here, f"mkdir -p {place} && echo mine > {place}/y", top)
    assert await said(here, f"cat {place}/y", top) == "mine"
    # Another work folder has a layer of its own.
    other = top / "other"
    other.mkdir()
    shell = ["/bin/bash", "-c", f"cat {place}/y"]
    confined = await asyncio.to_thread(here.confined, shell, other)
    assert "mine" not in (await command_of(confined, other).run()).output.text
    assert work_folders(here.environ) == {str(top / "work"), str(other)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("readable", [(), ("~/.gradle",)])
async def test_logs_beside_caches_are_not_shown_and_have_a_private_place(
    sandbox: Sandbox, environ: dict[str, str], top: Path, readable: tuple[str, ...]
) -> None:
    home = Path(environ["HOME"])
    logs = (".gradle/daemon/8.5/daemon-1.out.log", ".gradle/daemon/8.5/registry.bin")
    for name in (*logs, ".npm/_logs/1-debug-0.log"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("theirs\n")
    own = Sandbox(sandbox.backend, SandboxSettings(readable=readable), environ, sandbox.program)
    try:
        assert "theirs" not in await said(own, "cat ~/.gradle/daemon/*/* ~/.npm/_logs/*", top)
        assert await said(own, f"cat ~/{PLANTED[13]}", top) == "theirs"
        if own.is_layered and not readable:
            write = "mkdir -p ~/.gradle/daemon/8.5 && echo mine > ~/.gradle/daemon/8.5/x"
            assert await said(own, write, top) == ""
            assert await said(own, "cat ~/.gradle/daemon/8.5/*", top) == "mine"
    finally:
        own.remove_temporary()
    assert [(home / name).read_text() for name in logs] == ["theirs\n"] * 2


def layered(environ: dict[str, str]) -> Sandbox:
    """Return a sandbox with layers over caches; the test is skipped where there are none."""
    own = Sandbox("full", SandboxSettings(), environ) if whole_sandbox(HERE) else None
    assert own is not None
    if not own.is_layered:
        pytest.skip("there are no overlays on this machine: nothing was tried")
    return own


async def test_commands_at_the_same_time_write_to_layers_of_their_own(
    environ: dict[str, str], top: Path
) -> None:
    own = layered(environ)
    await said(own, "echo first > ~/.cache/pip/first", top)
    for name in ("up", "go"):
        os.mkfifo(top / "work" / name)
    script = "echo one > ~/.cache/pip/one; echo up > up; cat go ~/.cache/pip/one"
    background = asyncio.create_task(said(own, script, top))
    assert await asyncio.to_thread((top / "work/up").read_text) == "up\n"
    # The files of the other layer can be read, and a change of them stays in the second layer.
    read = "cat ~/.cache/pip/first ~/.cache/pip/one; echo two > ~/.cache/pip/two; echo x >> ~/.cache/pip/one"
    assert await said(own, read, top) == "first\none"
    reset = await asyncio.to_thread(own.reset, top / "work")
    assert reset.is_used
    await asyncio.to_thread((top / "work/go").write_text, "on\n")
    assert await background == "on\none"
    # The second layer was dropped, the one that was in use was not.
    assert (
        await said(own, "cat ~/.cache/pip/one; ls ~/.cache/pip", top) == "one\nfirst\nhttp-v2\none"
    )
    gone = await asyncio.to_thread(own.reset, top / "work")
    assert not gone.is_used
    assert gone.n_bytes > 0
    assert await said(own, "ls ~/.cache/pip", top) == "http-v2"
    own.remove_temporary()


def test_resets_at_the_same_time_wait_for_one_another(
    environ: dict[str, str], top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = str(top / "work")
    folder = Path(made_folder(environ, work))
    (folder / "0.lock").touch()
    (folder / "0/upper").mkdir(parents=True)
    (folder / "0/upper/file").write_text("x" * 10_000)
    begins, goes_on = threading.Event(), threading.Event()
    moved = layers._move_away

    def slowly(*args: Any) -> None:
        begins.set()
        goes_on.wait(20)
        moved(*args)

    monkeypatch.setattr(layers, "_move_away", slowly)
    with ThreadPoolExecutor() as pool:
        one = pool.submit(layers.reset, environ, work)
        assert begins.wait(20)
        # Others that are at it are waited for, but not for ever.
        monkeypatch.setattr(layers, "_OTHERS_S", 0.01)
        assert layers.reset(environ, work) == layers.Reset(0, is_used=True)
        monkeypatch.setattr(layers, "_OTHERS_S", 20.0)
        other = pool.submit(layers.reset, environ, work)
        # What another one is deleting is none of this one's business; what a killed one left is.
        deleting, left = folder / "gone-a", folder / "gone-b"
        for gone in (deleting, left):
            (gone / "0").mkdir(parents=True)
        lock = os.open(deleting, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        goes_on.set()
        assert one.result() == layers.Reset(one.result().n_bytes, is_used=False)
        assert one.result().n_bytes >= 10_000
        assert other.result() == layers.Reset(0, is_used=False)
    names = ["0.lock", "folder", "reset", "variables"]
    assert sorted(os.listdir(folder)) == [names[0], names[1], deleting.name, *names[2:]]
    os.close(lock)
    layers.reset(environ, work)
    assert sorted(os.listdir(folder)) == names


async def test_a_command_that_begins_during_a_reset_finds_its_folders(
    environ: dict[str, str], top: Path
) -> None:
    own = layered(environ)
    script = ["/bin/sh", "-c", "echo x > ~/.cache/x && echo x > ~/.cache/pip/x && echo ran"]
    work = top / "work"
    confined = await asyncio.to_thread(own.confined, script, work)
    folder = Path(folder_of(environ, str(work)))
    (folder / "variables/npm").mkdir()
    await asyncio.to_thread(own.reset, work)
    assert os.listdir(folder / "variables") == []
    assert (await command_of(confined, work).run()).output.text == "ran\n"
    reset = os.open(folder / "reset", os.O_RDONLY)
    fcntl.flock(reset, fcntl.LOCK_EX)
    waiting = asyncio.create_task(command_of(confined, work).run())
    blocked, inode = Path("/proc/locks"), f":{os.fstat(reset).st_ino} "
    assert await until(
        lambda: any("->" in line and inode in line for line in blocked.read_text().splitlines())
    )
    # Another program removes all of it if nothing used it for a day.
    await asyncio.to_thread(remove_tree, folder)
    os.close(reset)
    assert (await waiting).output.text == "ran\n"
    assert sorted(os.listdir(folder)) == ["0", "0.lock", "plain", "reset", "variables"]
    own.remove_temporary()


@pytest.mark.sample
@pytest.mark.parametrize("user", USERS)
def test_layers_work_for_each_user(user: str, environ: dict[str, str], top: Path) -> None:
    """The supervisor makes, joins and removes layers, as root and as somebody whose namespace has one user."""
    if is_covered(top):
        pytest.skip(f"{top} lies below /tmp, which the sandbox covers: nothing was tried")
    needs_landlock()
    number, home, work = number_of(user), Path(environ["HOME"]), str(top / "work")
    folder = made_folder(environ, work)
    (top / "tmp").mkdir()
    give((top, *top.rglob("*")), number)
    caches = caches_of(environ, (work,), work)
    words = ["level:full", "network:off", f"tmp:{top}/tmp", f"write:{work}", *caches.words(folder)]
    words += [f"hide:{home}/.local/share/kimi-tui", f"private:{variables_folder(folder)}"]

    def run(script: str) -> str:
        told = {"confine": str(Path(confine.__file__).parent), "user": number, "work": work}
        told |= {"words": words, "script": f"HOME={home}; {script}"}
        ended = subprocess.run(
            [sys.executable, "-S", str(HERE / "layered.py"), json.dumps(told)],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert not ended.stderr, ended.stderr
        return ended.stdout.strip()

    before = contents(home)
    name = PLANTED[3]
    assert run(f"cat ~/{name}; echo mine > ~/{name}; rm ~/{PLANTED[4]}") == "theirs"
    assert run(f"cat ~/{name}; ls $(dirname ~/{PLANTED[4]}); touch ~/.bashrc") == (
        "mine\ntouch: cannot touch '" + str(home / ".bashrc") + "': Read-only file system"
    )
    run(CHANGES.format(names=" ".join(PLANTED), work=work))
    run(f"echo mine > {confine.PRIVATE_AT}/x")
    assert run(f"cat {confine.PRIVATE_AT}/x") == "mine"
    assert contents(home) == before
    assert size_of(folder) > 0


def test_a_machine_without_overlays_has_private_caches_by_variables(
    environ: dict[str, str], top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "can_layer", lambda environ: False)
    own = Sandbox("full", SandboxSettings(), environ)
    confined = own.confined(["/bin/true"], top / "work")
    own.remove_temporary()
    names = (
        *("npm_config_cache", "PIP_CACHE_DIR", "UV_CACHE_DIR", "CARGO_HOME", "GOPATH", "GOCACHE"),
        *("GOMODCACHE", "YARN_CACHE_FOLDER", "YARN_GLOBAL_FOLDER", "pnpm_config_store_dir"),
        *("GRADLE_USER_HOME", "POETRY_CACHE_DIR", "CCACHE_DIR", "SCCACHE_DIR", "DENO_DIR"),
        *("BUN_INSTALL_CACHE_DIR", "NUGET_PACKAGES", "PUB_CACHE", "COMPOSER_CACHE_DIR"),
    )
    for name in names:
        assert confined.environ[name].startswith(f"{confine.PRIVATE_AT}/"), name
    home = environ["HOME"]
    maven = (
        f"-Dmaven.repo.local={confine.PRIVATE_AT}/m2 -Dmaven.repo.local.tail={home}/.m2/repository"
    )
    assert confined.environ["MAVEN_OPTS"] == maven
    assert confined.environ["GRADLE_RO_DEP_CACHE"] == f"{home}/.gradle/caches"
    # Existing environments run from where they are, and so do the hooks of pre-commit.
    assert confined.environ["POETRY_VIRTUALENVS_PATH"] == f"{home}/.cache/pypoetry/virtualenvs"
    assert "PRE_COMMIT_HOME" not in confined.environ
    assert not [word for word in confined.words if word.startswith(("layer:", "plain:"))]
    # If nothing can be stored, caches are read-only.
    monkeypatch.setattr(layers, "made_folder", lambda *_: (_ for _ in ()).throw(OSError))
    own = Sandbox("full", SandboxSettings(), environ)
    confined = own.confined(["/bin/true"], top / "work")
    own.remove_temporary()
    assert "PIP_CACHE_DIR" not in confined.environ


def test_a_tool_whose_cache_the_user_does_not_have_gets_a_private_one(
    environ: dict[str, str], top: Path
) -> None:
    home = top / "bare"
    (home / ".cargo").mkdir(parents=True)
    (home / ".cargo/config.toml").write_text("[source]\n")
    environ |= {"HOME": str(home), "GOMODCACHE": str(top / "gomods")}
    (top / "gomods").mkdir()
    caches = caches_of(environ, (), str(top / "work"))
    assert caches.overlaid == (str(top / "gomods"),)
    found = caches.variables("/p", is_layered=True)
    assert found["npm_config_cache"] == "/p/npm"
    assert found["XDG_CACHE_HOME"] == "/p/cache"
    assert "GOMODCACHE" not in found
    folder = made_folder(environ, str(top / "work"))
    # Its settings, such as the mirror of a registry, go on counting.
    assert Path(variables_folder(folder), "cargo/config.toml").read_text() == "[source]\n"
    # Nothing of what commands write anyway, or do not see, and no home folder that is called a cache.
    environ |= {"XDG_CACHE_HOME": str(home), "HOME": str(home)}
    assert str(home) not in caches_of(environ, (), str(top / "work")).plain
    (home / ".cache/pip").mkdir(parents=True)
    assert caches_of(environ, (str(home / ".cache"),), str(top / "work")).overlaid == (
        str(top / "gomods"),
    )


def filled(place: Path, size: int, at: float) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"x" * size)
    os.utime(place, (at, at))
    os.utime(place.parent, (at, at))


def test_the_oldest_is_dropped_when_there_is_too_much(
    environ: dict[str, str], top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = str(top / "work")
    folder = Path(made_folder(environ, work))
    (folder / "0.lock").touch()
    upper = folder / "0/upper/home/.cache/pip"
    for n in range(10):
        filled(upper / f"http-v2/{n}/entry", 100_000, 1_000_000 + n)
    filled(folder / "plain/x/tool/y", 100_000, 999_000)
    (folder / "0/work/left/x/incompat").mkdir(parents=True)
    (folder / "0/work/left/x").chmod(0)
    # A hook's environment goes whole, a cache that is not known goes whole.
    for name in ("repo1/py_env/bin/x", "repo1/py_env/lib/y", "repo1/.install_state"):
        filled(upper.parent / "pre-commit" / name, 1000, 990_000)
    for name in ("a/b/c", "d/e"):
        filled(upper.parent / "ms-playwright" / name, 1000, 991_000)
    assert trim(environ, work) == 0
    assert not (folder / "0/work/left").exists()
    monkeypatch.setattr(layers, "MOST_BYTES", 600_000)
    assert trim(environ, work) >= 500_000
    assert size_of(str(folder)) <= 600_000
    assert not (folder / "plain/x/tool/y").exists()
    assert not (upper.parent / "pre-commit/repo1").exists()
    assert not (upper.parent / "ms-playwright").exists()
    left = sorted(path.name for path in (upper / "http-v2").iterdir())
    assert left == sorted(left)[-len(left) :]
    assert "9" in left
    assert "0" not in left
    # A layer that a command uses stays.
    lock = os.open(folder / "0.lock", os.O_RDONLY)
    layers.fcntl.flock(lock, layers.fcntl.LOCK_EX)
    monkeypatch.setattr(layers, "MOST_BYTES", 1)
    assert trim(environ, work) == 0
    os.close(lock)
    # Among other work folders, the one that was used longest ago is removed first, completely.
    for n, name in enumerate(("old", "new")):
        other = Path(made_folder(environ, str(top / name)))
        filled(other / "0/upper/home/x/y/z/file", 300_000, 1_000_000)
        (other / "0.lock").touch()
        os.utime(other / "0.lock", (1_000_000 + n, 1_000_000 + n))
    monkeypatch.setattr(layers, "MOST_BYTES", 10_000_000)
    monkeypatch.setattr(layers, "MOST_BYTES_IN_ALL", size_of(layers_dir(environ)) - 100_000)
    assert trim(environ, work) >= 300_000
    assert not os.path.exists(folder_of(environ, str(top / "old")))
    assert os.path.exists(folder_of(environ, str(top / "new")))


@pytest.mark.exhaustive
def test_a_layer_that_commands_left_closed_and_deep_can_be_removed(
    environ: dict[str, str], top: Path
) -> None:
    folder = Path(made_folder(environ, str(top / "work")))
    (folder / "0.lock").touch()
    place = folder / "0/upper/home"
    place.mkdir(parents=True)
    at = os.open(place, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", 0o700, dir_fd=at)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert size_of(str(folder)) > 0
    assert not layers.reset(environ, str(top / "work")).is_used
    assert not (folder / "0").exists()
    assert layers.reset(environ, "/nowhere").n_bytes == 0


@pytest.mark.sample
async def test_what_the_settings_name_is_really_written(
    here: Sandbox, environ: dict[str, str], top: Path
) -> None:
    home = Path(environ["HOME"])
    settings = SandboxSettings(writable=("~/.cache/pip", "~/notes"))
    (home / "notes").mkdir()
    own = Sandbox(here.backend, settings, environ, here.program)
    await said(
        own, "echo mine > ~/notes/x; echo mine > ~/.cache/pip/x; echo mine > ~/.cache/uv/x", top
    )
    own.remove_temporary()
    assert (home / "notes/x").read_text() == "mine\n"
    assert (home / ".cache/pip/x").read_text() == "mine\n"
    assert not (home / ".cache/uv/x").exists()
    # Unset and empty are the same: nothing of the home folder.
    own = Sandbox(here.backend, SandboxSettings(writable=()), environ, here.program)
    await said(own, "echo no > ~/notes/x", top)
    own.remove_temporary()
    assert (home / "notes/x").read_text() == "mine\n"


def test_settings_that_open_caches_are_told_once(environ: dict[str, str]) -> None:
    assert risk_of(("~/notes", "/opt/x"), environ) == ""
    told = risk_of(("~/notes", "~/.cache/pip", "~/.cargo"), environ)
    assert "config.toml has ~/.cache/pip, ~/.cargo: commands can change" in told
    assert risk_of(("~/notes", "~/.cache/pip", "~/.cargo"), environ) == ""
    assert "~/.m2" in risk_of(("~/.m2",), environ)


async def test_a_plan_writes_to_no_cache(here: Sandbox, environ: dict[str, str], top: Path) -> None:
    shell = ["/bin/bash", "-c", "echo x > ~/.cache/pip/x; cat ~/.cache/pip/http-v2/a/b/entry"]
    confined = await asyncio.to_thread(here.confined, shell, top / "work", writes=False)
    output = (await command_of(confined, top / "work").run()).output.text
    assert output.endswith("theirs\n")
    assert "ead-only" in output or "denied" in output
    assert confined.policy.caches == Caches()


def test_trimming_runs_beside_and_not_at_every_command(
    environ: dict[str, str], top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    go = threading.Event()

    def slow(environ: object, work: str) -> int:
        runs.append(work)
        go.wait(10)
        return 0

    monkeypatch.setattr(layers, "trim", slow)
    own = Sandbox("full", SandboxSettings(), environ)
    policy = own.policy_for(top / "work")
    for _ in range(3):
        own.trim(policy)
    go.set()
    own.trim(policy)
    assert runs == [str(top / "work")]


@contextlib.contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Have this process do what another user may, if root runs the tests."""
    own = os.geteuid()
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(own)


@pytest.mark.parametrize("mode", [0o000, 0o555, 0o600])
def test_a_reset_removes_what_a_command_has_closed_and_follows_no_link(
    environ: dict[str, str], top: Path, mode: int
) -> None:
    user, key = number_of(USERS[-1]), Path(environ["HOME"], "key")
    key.touch()
    key.chmod(0o400)
    folder = Path(made_folder(environ, work := str(top / "work")))
    (folder / "0.lock").touch()
    closed = folder / "variables", folder / "plain/.cache", folder / "0/upper/home/.cache/pip"
    for place in closed:
        (place / "wheel").mkdir(parents=True)
        (place / "a link").symlink_to(key)
        (place / "wheel/file").write_text("x")
    give((top, *top.rglob("*")), user)
    for place in closed:
        (place / "wheel").chmod(mode)
        place.chmod(mode)
    with acting_as(user):
        assert not layers.reset(environ, work).is_used
    assert key.stat().st_mode & 0o777 == 0o400
    left = [path for path in folder.rglob("*") if not path.is_dir() or path.name == "wheel"]
    assert sorted(path.name for path in left) == ["0.lock", "folder", "reset"]


def test_what_links_in_a_layer_lead_to_is_not_dropped_when_there_is_too_much(
    environ: dict[str, str], top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(made_folder(environ, work := str(top / "work")))
    (folder / "0.lock").touch()
    precious = top / "precious"
    for n in range(3):
        filled(precious / f"{n}/file", 100, 1000)
        filled(precious / str(n + 3), 100, 1000)
    upper = folder / "0/upper/home"
    for place in (
        *(upper / ".cache/pip", upper / ".cache/pip/inner", upper / ".npm/_cacache"),
        *(upper / ".cargo/registry/a", folder / "plain/.cache/x", folder / "variables/x"),
    ):
        filled(place / "own", 100_000, 2_000_000)
        (place / "link").symlink_to(precious)
        (place / "file").symlink_to(precious / "0/file")
    (upper / ".m2").mkdir()
    (upper / ".m2/repository").symlink_to(precious)
    monkeypatch.setattr(layers, "MOST_BYTES", 1)
    assert trim(environ, work) >= 600_000
    assert len([path for path in precious.rglob("*") if path.is_file()]) == 6


def test_tools_that_only_read_their_cache_get_another_one_if_they_have_none(tmp_path: Path) -> None:
    environ, work = {"HOME": str(tmp_path)}, str(tmp_path / "work")
    (tmp_path / ".cache/pre-commit").mkdir(parents=True)
    missing = layers.caches_of(environ, [work], work).missing
    assert missing.get("COREPACK_HOME") == "node/corepack"
    assert "PRE_COMMIT_HOME" not in missing
    (tmp_path / ".cache/pre-commit").rmdir()
    missing = layers.caches_of(environ, [work], work).missing
    assert missing["PRE_COMMIT_HOME"] == "pre-commit"
