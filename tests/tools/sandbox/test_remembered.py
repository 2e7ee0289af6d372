"""What the policy of a command keeps of an earlier one's, and what makes it look again."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kimi_tui.filesystem import links_to, note_path
from kimi_tui.tools.paths import ResolvedPath, locate, protected_reason
from kimi_tui.tools.sandbox import remembered
from kimi_tui.tools.sandbox.policy import FolderMemory, NoSandbox, SandboxSettings, policy_for
from kimi_tui.tools.sandbox.remembered import Remembered

_SETTLED_S = 0.03
"""Seconds for the two that a folder must be unchanged: longer than the coarsest clock of a file system that is tested on."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "SETTLED_NS", int(_SETTLED_S * 1e9))


def settle() -> None:
    time.sleep(2 * _SETTLED_S)


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder of this test has been unchanged for long enough, however busy the machine is."""
    monkeypatch.setattr(remembered, "SETTLED_NS", 60_000_000_000)


def tick() -> None:
    """Have later changes get another time than those before."""
    time.sleep(3 * remembered._TICK_NS / 1e9)


class Asked:
    """A result about one path, and how often it was computed."""

    def __init__(self, path: Path, *, lists: bool = True) -> None:
        self.path, self.lists, self.kept, self.n = str(path), lists, Remembered(), 0

    def __call__(self, key: str = "") -> object:
        def compute() -> object:
            self.n += 1
            note_path(self.path)
            listed = None
            if self.lists:
                note_path(f"{self.path}/")
                listed = os.listdir(self.path) if os.path.isdir(self.path) else None
            return links_to(self.path), os.path.isfile(self.path), listed

        return self.kept.look().at("one", key, compute)


def test_no_result_holds_once_something_was_mounted(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    asked = Asked(tmp_path / "a")
    settle()
    asked()
    asked()
    assert asked.n == 1
    # No time of a folder that was looked at tells of it.
    place = tmp_path / "a/b"
    mounted = ["mount", "-t", "tmpfs", "none", place]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("only root mounts")
    try:
        asked()
        assert asked.n == 2
    finally:
        subprocess.run(["umount", place], check=True)
    asked()
    assert asked.n == 3


def test_a_home_folder_that_is_a_link_to_another_one_now_has_its_own_secrets(
    tmp_path: Path,
) -> None:
    for name in ("first", "second"):
        (tmp_path / name / ".cache/pip").mkdir(parents=True)
        (tmp_path / name / ".config").mkdir()
    (tmp_path / "second/.ssh").mkdir()
    (tmp_path / "second/.env").touch()
    (tmp_path / "work").mkdir()
    home = tmp_path / "home"
    home.symlink_to("first")
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "KIMI_TUI_HOME": str(tmp_path / "a")}
    memory = FolderMemory()
    settle()

    def policy(memory: FolderMemory) -> dict[str, object]:
        found = policy_for(tmp_path / "work", SandboxSettings(), environ, memory=memory)
        names = ("hidden", "kept", "links", "pinned", "writable", "caches", "home")
        return {name: getattr(found, name) for name in names}

    assert policy(memory) == policy(memory) == policy(FolderMemory())
    (tmp_path / "new").symlink_to("second")
    os.replace(tmp_path / "new", home)
    now, fresh = policy(memory), policy(FolderMemory())
    for name, want in fresh.items():
        assert now[name] == want, name


def test_a_link_to_an_empty_home_folder_that_leads_to_another_empty_one_is_noticed(
    tmp_path: Path,
) -> None:
    for name in ("first", "second", "work/.git", "links"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "links/home"
    home.symlink_to(tmp_path / "first")
    environ = {"HOME": str(home), "PATH": "/usr/bin", "KIMI_TUI_HOME": str(tmp_path / "app")}
    target = locate("hooks/pre-commit", tmp_path / "work", environ)
    kept = FolderMemory(), Remembered()

    def found(memory: FolderMemory, outside: Remembered) -> tuple[object, object, str]:
        policy = policy_for(tmp_path / "work", SandboxSettings(), environ, memory=memory)
        return policy.caches, policy.home, protected_reason(target, environ, look=outside.look())

    settle()
    assert found(*kept) == found(*kept) == found(FolderMemory(), Remembered())
    (tmp_path / "second/.gitconfig").write_text("[core]\n\thooksPath = hooks\n")
    (tmp_path / "links/new").symlink_to(tmp_path / "second")
    os.replace(tmp_path / "links/new", home)
    now = found(*kept)
    assert now == found(FolderMemory(), Remembered())
    assert now[2]


def test_a_secret_is_where_the_last_link_on_the_way_to_it_leads_by_now(tmp_path: Path) -> None:
    for name in ("home", "work/first", "work/second"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work/now").symlink_to("first")
    (tmp_path / "home/.env").symlink_to(tmp_path / "work/now/values")
    environ = {"HOME": str(tmp_path / "home"), "KIMI_TUI_HOME": str(tmp_path / "app")}
    first, second = (
        locate(f"{name}/values", tmp_path / "work", environ) for name in ("first", "second")
    )
    kept = Remembered()
    settle()

    def is_guarded(target: ResolvedPath) -> bool:
        return protected_reason(target, environ, look=kept.look()) != ""

    assert is_guarded(first)
    assert not is_guarded(second)
    (tmp_path / "work/new").symlink_to("second")
    os.replace(tmp_path / "work/new", tmp_path / "work/now")
    assert is_guarded(second)


def test_a_result_is_kept_until_its_arguments_or_its_files_change(tmp_path: Path) -> None:
    asked = Asked(tmp_path / "a/b")
    settle()
    before = asked()
    assert asked() == before
    assert asked.n == 1
    asked("other arguments")
    assert asked.n == 2

    def change(what: Callable[[], object]) -> None:
        settle()
        asked("other arguments")
        n = asked.n
        what()
        asked("other arguments")
        assert asked.n == n + 1

    change((tmp_path / "a").mkdir)
    change(lambda: (tmp_path / "a/b").symlink_to("c"))
    change(lambda: (tmp_path / "a/c").write_text("x"))
    change(lambda: (tmp_path / "a/c").write_text("more"))
    change(lambda: os.replace(tmp_path / "a", tmp_path / "other"))


def test_a_result_about_the_names_in_a_folder_that_just_changed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle()
    # On a busy machine two seconds may pass before the folder is looked at.
    monkeypatch.setattr(remembered, "SETTLED_NS", 60_000_000_000)
    (tmp_path / "new").mkdir()
    asked = Asked(tmp_path / "new")
    asked()
    asked()
    assert asked.n == 2


@pytest.mark.usefixtures("restless")
def test_a_missing_name_in_a_folder_that_just_changed_is_looked_at_itself(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    tick()
    asked = Asked(tmp_path / "new/missing", lists=False)
    before = asked()
    assert asked() == before
    assert asked.n == 1
    for n, make in enumerate((Path.mkdir, Path.rmdir, Path.touch, Path.unlink), start=2):
        make(tmp_path / "new/missing")
        tick()
        asked()
        assert asked.n == n
        asked()
        assert asked.n == n
    # The folder has the time that it had when it was looked at, as after changes within one tick of the clock.
    times = (tmp_path / "new").stat()
    (tmp_path / "new/missing").symlink_to("nowhere")
    os.utime(tmp_path / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
    asked()
    assert asked.n == 6


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("change", [Path.mkdir, Path.touch, Path.unlink])
def test_a_name_that_changes_after_the_look_at_it_is_not_taken_for_seen(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    name = tmp_path / "new/name"
    name.parent.mkdir()
    if change is Path.unlink:
        name.touch()
    tick()
    kept, is_hostile = Remembered(), True

    def compute() -> bool:
        note_path(str(name))
        seen = name.exists()
        if is_hostile:
            change(name)
        return seen

    def seen() -> bool:
        return kept.look().at("one", "", compute)

    assert seen() == (change is Path.unlink)
    is_hostile = False
    assert seen() == name.exists()


@pytest.mark.usefixtures("restless")
def test_names_that_somebody_changes_all_the_time_are_seen_as_they_are_at_last(
    tmp_path: Path,
) -> None:
    (tmp_path / "new").mkdir()
    names = [str(tmp_path / "new" / str(n)) for n in range(6)]
    dice = random.Random(1)

    def found() -> list[bool]:
        for name in names:
            note_path(name)
        return [os.path.lexists(name) for name in names]

    kept = Remembered()
    for _ in range(8):
        ended = threading.Event()

        def disturb(ended: threading.Event = ended) -> None:
            while not ended.is_set():
                name = dice.choice(names)
                os.unlink(name) if os.path.lexists(name) else open(name, "x").close()
                # It rests now and then, so that some results are kept.
                time.sleep(dice.choice((0.0, 0.0, 0.0, 0.012)))

        other = threading.Thread(target=disturb)
        other.start()
        for _ in range(60):
            kept.look().at("one", "", found)
        ended.set()
        other.join()
        assert kept.look().at("one", "", found) == found()


@pytest.mark.parametrize("is_restless", [False, True])
def test_a_folder_behind_a_link_is_seen_when_it_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_restless: bool
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "home/.aws").symlink_to(tmp_path / "disk/aws")
    if is_restless:
        monkeypatch.setattr(remembered, "SETTLED_NS", 60_000_000_000)
        tick()
    else:
        settle()
    place, kept = str(tmp_path / "home/.aws/credentials"), Remembered()

    def is_there() -> bool:
        note_path(place)
        return os.path.lexists(place)

    assert not kept.look().at("one", "", is_there)
    (tmp_path / "disk/aws").mkdir()
    (tmp_path / "disk/aws/credentials").touch()
    assert kept.look().at("one", "", is_there)


def test_a_result_about_many_missing_names_in_a_folder_that_just_changed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle()
    # On a busy machine two seconds may pass before the folder is looked at.
    monkeypatch.setattr(remembered, "SETTLED_NS", 60_000_000_000)
    (tmp_path / "new").mkdir()
    kept, n_computed = Remembered(), 0

    def compute() -> None:
        nonlocal n_computed
        n_computed += 1
        for n in range(200):
            note_path(str(tmp_path / "new" / str(n)))

    for _ in range(2):
        kept.look().at("many", "", compute)
    assert n_computed == 2


def test_in_one_look_a_result_is_found_once(tmp_path: Path) -> None:
    settle()
    (tmp_path / "new").mkdir()
    n_computed = 0

    def compute() -> int:
        nonlocal n_computed
        n_computed += 1
        note_path(f"{tmp_path}/new/")
        return n_computed

    kept = Remembered()
    look = kept.look()
    assert [look.at("one", key, compute) for key in ("a", "a", "b", "b")] == [1, 1, 2, 2]
    # Nothing is kept of a folder that has just changed.
    assert kept.look().at("one", "b", compute) == 3


@pytest.mark.usefixtures("restless")
def test_names_that_exist_in_a_folder_that_always_changes_are_looked_at_themselves(
    tmp_path: Path,
) -> None:
    (tmp_path / "tool").mkdir()
    tick()
    asked = Asked(tmp_path / "tool", lists=False)
    asked()
    for n in range(3):
        (tmp_path / str(n)).touch()
        tick()
        asked()
    assert asked.n == 1
    shutil.rmtree(tmp_path / "tool")
    (tmp_path / "tool").write_text("a file")
    asked()
    assert asked.n == 2


def test_a_link_in_a_folder_that_always_changes_is_another_one_once_it_was_replaced(
    tmp_path: Path,
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "tool").symlink_to("real")
    settle()
    asked = Asked(tmp_path / "tool")
    (tmp_path / "x").touch()
    tick()
    asked()
    (tmp_path / "y").touch()
    asked()
    assert asked.n == 1
    # It leads to the same folder by another way, which a command may be able to change.
    (tmp_path / "z").symlink_to("./real")
    os.replace(tmp_path / "z", tmp_path / "tool")
    asked()
    assert asked.n == 2


def test_a_result_does_not_outlive_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(tmp_path)
    settle()
    asked()
    monkeypatch.setattr(remembered, "_MOST_AGE_S", -1)
    asked()
    assert asked.n == 2


def test_nothing_is_kept_that_was_found_without_a_free_descriptor(tmp_path: Path) -> None:
    # The lists of this program are read once.
    Home(tmp_path / "other", random.Random(1)).policy(None)
    home = Home(tmp_path, random.Random(1))
    for name in _NAMES:
        path = home.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[core]\n\thooksPath = ~/.m2\n# token = 1\n")
    (home.home / ".config/tool/deep").mkdir(parents=True)
    (home.home / ".config/tool/deep/id_rsa").touch()
    settle()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        poor = home.policy(home.memory)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    now = home.policy(home.memory)
    # With another time no folder is the one that was read.
    for folder, _, names in os.walk(home.home):
        for name in (".", *names):
            os.utime(os.path.join(folder, name))
    fresh = home.policy(None)
    assert now == fresh
    assert poor != fresh


_NAMES = (
    *(".gitconfig", ".ssh", ".aws/credentials", ".cargo/bin/tool", ".local/bin/tool", ".npmrc"),
    *(".cache/pip/x", ".cache/uv/.env", ".config/git/config", ".config/ruff/ruff.toml", "bin/tool"),
    *(".vimrc", "bin/.netrc", ".m2/repository/x", ".local/share/uv/tools/x/uv-receipt.toml"),
)


class Home:
    """A home folder in which a person changes things at random."""

    def __init__(self, base: Path, dice: random.Random) -> None:
        self.home, self.work, self.dice = base / "home", base / "home/work", dice
        self.work.mkdir(parents=True)
        self.environ = {
            "HOME": str(self.home),
            "KIMI_TUI_HOME": str(base / "app"),
            "PATH": f"{self.home}/bin:{self.home}/.local/bin:/usr/bin:/bin",
        }
        self.memory = FolderMemory()

    def change(self) -> str:
        name = self.dice.choice(_NAMES)
        parts = name.split("/")
        path = self.home.joinpath(*parts[: self.dice.randint(1, len(parts))])
        what = self.dice.choice(("write", "link", "remove", "move", "text", "work"))
        if what == "work":
            (self.work / self.dice.choice((".env", "tool", ".git"))).mkdir(exist_ok=True)
        elif os.path.lexists(path) and what in ("remove", "move", "link"):
            if what == "move":
                shutil.rmtree(self.home / "moved", ignore_errors=True)
                os.replace(path, self.home / "moved")
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        elif what == "link":
            path.parent.mkdir(parents=True, exist_ok=True)
            target = self.dice.choice(("moved", "work/tool", ".ssh", ".cargo", "bin"))
            path.symlink_to(self.home / target)
        else:
            whole = self.home / name
            text = f"[core]\n\thooksPath = ~/{self.dice.choice(_NAMES)}\n# token = {self.dice.random()}\n"
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_text(text)
        return f"{what} {path}"

    def policy(self, memory: FolderMemory | None) -> object:
        try:
            found = policy_for(self.work, SandboxSettings(), self.environ, memory=memory)
        except NoSandbox as no:
            return str(no)
        parts = ("writable", "kept", "links", "pinned", "hidden", "caches", "home")
        return [(name, getattr(found, name)) for name in parts]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_a_kept_policy_is_the_one_that_would_be_found_anew(tmp_path: Path, seed: int) -> None:
    walk(Home(tmp_path, random.Random(seed)), 60)


def test_a_kept_policy_is_the_one_that_would_be_found_anew_for_a_few_changes(
    tmp_path: Path,
) -> None:
    walk(Home(tmp_path, random.Random(1)), 15)


def walk(home: Home, n_steps: int) -> None:
    done: list[str] = []
    for _ in range(n_steps):
        if home.dice.random() < 0.4:
            settle()
            home.policy(home.memory)
        for _ in range(home.dice.randint(1, 2)):
            # Moving a folder into itself, or writing below a file, is nothing that a person could do.
            try:
                done.append(home.change())
            except OSError:
                continue
        assert home.policy(home.memory) == home.policy(None), done
