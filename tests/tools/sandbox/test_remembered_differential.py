"""Results that are kept from one look to the next are those of a fresh look, whatever a hostile process changes in between."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.paths import ResolvedPath, is_secret_by_name, locate, protected_reason
from kimi_tui.tools.sandbox import home as home_module
from kimi_tui.tools.sandbox import policy as policy_module
from kimi_tui.tools.sandbox import remembered
from kimi_tui.tools.sandbox.policy import FolderMemory, NoSandbox, SandboxSettings, policy_for
from kimi_tui.tools.sandbox.remembered import Remembered
from kimi_tui.workspace import protected_names

_SETTLED_S = 0.02
_TICK_S = 0.01
_NAMES = (
    *("home/.gitconfig", "home/.ssh/id_rsa", "home/.aws/credentials", "home/.env", "home/.npmrc"),
    *("home/.config/gh/hosts.yml", "home/.config/git/config", "xdg/git/config", "xdg/gh/hosts.yml"),
    *("global", "home/bin/tool", "home/.bashrc", "home/work/.env", "home/work/conf/a"),
    *("home/work/first/x", "home/work/second/x", "home/work/now/x", "home/work/tools/run.sh"),
    *("home/work/hooks/pre-commit", "home/work/sub/f", "home/work/more.cfg", "app1/config.toml"),
    *("home/.docker/config.json", "other/r/config", "home/.netrc", "home/.kimi/config.toml"),
)
_TARGETS = (
    *("home/work/tools/run.sh", "home/work/hooks/pre-commit", "home/work/more.cfg"),
    *("home/work/sub/f", "home/work/sub/tools/run.sh", "home/work/conf/a", "home/work/now/x"),
    *("home/work/attributes", "app1/config.toml", "home/.netrc", "home/.config/gh/hosts.yml"),
    *("xdg/gh/hosts.yml", "home/work/bare/config"),
)
_SETTINGS = (
    *("home/.gitconfig", "home/work/.git/config", "home/work/.git/config.worktree", "global"),
    *(
        "xdg/git/config",
        "home/.config/git/config",
        "home/work/more.cfg",
        "home/work/sub/.git/config",
    ),
)
_LINES = (
    *("[include]\n\tpath = ../more.cfg", "[include]\n\tpath = more.cfg"),
    *('[includeIf "gitdir:~/"]\n\tpath = ~/work/more.cfg', "[core]\n\thooksPath = hooks"),
    *("[core]\n\thooksPath = ~/bin", "[core]\n\tworktree = ../sub"),
    *('[filter "x"]\n\tclean = ./tools/run.sh %f', "[core]\n\tattributesFile = attributes"),
)
_ENVIRONS: tuple[Mapping[str, str], ...] = (
    {},
    {"XDG_CONFIG_HOME": "xdg"},
    {"GIT_CONFIG_GLOBAL": "global"},
    {"HOME": "link"},
    {"KIMI_TUI_HOME": "app"},
)
_LINKS = {
    "link": ("home", "home/../home", "other"),
    "app": ("app1", "app2", "missing"),
    "home/work/now": ("first", "second", "../.config", "conf"),
}
_PARENTS = ("home/.config", "home/work/conf", "home/.ssh", "home/bin", "home/work/tools", "xdg")


class Hostile:
    """A home folder, and a process that changes it, with the work folder in it and what links and variables lead to."""

    def __init__(self, base: Path, dice: random.Random) -> None:
        self.base, self.dice, self.work = base, dice, base / "home/work"
        for name in ("home/work", "xdg", "other", "app1", "app2"):
            (base / name).mkdir(parents=True)
        subprocess.run(["git", "init", "-q", self.work], check=True)
        (base / "link").symlink_to("home")
        (base / "app").symlink_to("app1")
        self.environ: dict[str, str] = {}
        self._take_environ({})

    def _take_environ(self, other: Mapping[str, str]) -> None:
        self.environ = {
            "HOME": str(self.base / "home"),
            "KIMI_TUI_HOME": str(self.base / "app0"),
            "PATH": f"{self.base}/home/bin:/usr/bin:/bin",
            **{name: str(self.base / place) for name, place in other.items()},
        }

    def change(self) -> str:
        """Change something; return what."""
        ways = (self.write, self.link, self.remove, self.move, self.configure, self.configure)
        others = (self.exchange_parent, self.redirect, self.attach, self.set_times, self.recreate)
        way, path = self.dice.choice((*ways, *others)), self.base / self.dice.choice(_NAMES)
        if self.dice.random() < 0.1:
            self._take_environ(self.dice.choice(_ENVIRONS))
        way(path)
        return f"{way.__name__} {path}"

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"x{self.dice.randrange(9)}")

    def link(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = self.base / self.dice.choice(_NAMES)
        self._replace(
            path, target if self.dice.random() < 0.7 else os.path.relpath(target, path.parent)
        )

    def _replace(self, path: Path, target: str | Path) -> None:
        (self.base / "new").unlink(missing_ok=True)
        (self.base / "new").symlink_to(target)
        os.replace(self.base / "new", path)

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif self.dice.random() < 0.3 and path.parent not in (
            self.work,
            self.base / "home",
            self.base,
        ):
            shutil.rmtree(path.parent)
        else:
            path.unlink()

    def move(self, path: Path) -> None:
        os.replace(path, self.base / self.dice.choice(_NAMES))

    def configure(self, _: Path) -> None:
        """Write settings of git, often with the size and the time of the former ones."""
        path = self.base / self.dice.choice(_SETTINGS)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(self.dice.choices(_LINES, k=self.dice.randrange(4)))
        before = path.stat() if path.exists() else None
        path.write_text(text.ljust(before.st_size)[: before.st_size] if before else text)
        if before:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def exchange_parent(self, _: Path) -> None:
        path, other = self.base / self.dice.choice(_PARENTS), self.base / "aside"
        if other.exists():
            os.rename(path, self.base / "between")
            os.rename(other, path)
            os.rename(self.base / "between", other)
        else:
            os.rename(path, other)

    def redirect(self, _: Path) -> None:
        name = self.dice.choice([*_LINKS])
        self._replace(self.base / name, self.dice.choice(_LINKS[name]))

    def attach(self, _: Path) -> None:
        """Make the folder `sub` a submodule or a linked working tree, whose `.git` is a file."""
        for name in ("modules/sub", "worktrees/one"):
            place = self.work / ".git" / name
            place.mkdir(parents=True, exist_ok=True)
            (place / "HEAD").write_text("ref: x")
            (place / "config").write_text("[core]\n\thooksPath = ../../../tools\n")
        (self.work / ".git/worktrees/one/commondir").write_text(self.dice.choice(("../..", "")))
        (self.work / "sub").mkdir(exist_ok=True)
        leads_to = self.dice.choice(("../.git/modules/sub", "../.git/worktrees/one", "../bare"))
        (self.work / "sub/.git").write_text(f"gitdir: {leads_to}")

    def set_times(self, path: Path) -> None:
        os.utime(path.parent, ns=(10**18, 10**18))

    def recreate(self, path: Path) -> None:
        status = path.lstat()
        path.unlink()
        path.write_text("y" * status.st_size)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def policy(self, memory: FolderMemory) -> object:
        try:
            found = policy_for(self.work, SandboxSettings(), self.environ, memory=memory)
        except NoSandbox as no:
            return str(no)
        parts = ("writable", "kept", "links", "pinned", "hidden", "caches", "home")
        return [(name, getattr(found, name)) for name in parts]

    def judged(self, outside: Remembered) -> dict[str, object]:
        """Return what the tools think of files; the links that were found before count too, so that they are left out."""
        look = outside.look()
        judged: dict[str, object] = {}
        for name in _TARGETS:
            target: ResolvedPath | None = None
            with contextlib.suppress(ToolProblem):
                target = locate(str(self.base / name), self.work, self.environ)
            if target is not None:
                why = protected_reason(target, self.environ, [], look)
                judged[name] = why, is_secret_by_name(target, self.environ, look=look)
        return judged


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(8))
def test_no_change_between_two_looks_is_missed(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (remembered, policy_module, protected_names, home_module):
        monkeypatch.setattr(module, "SETTLED_NS", int(_SETTLED_S * 1e9))
    dice = random.Random(seed)
    hostile, memory, outside = Hostile(tmp_path, dice), FolderMemory(), Remembered()
    done: list[str] = []
    for _ in range(50):
        # What is kept depends on how long nothing has changed.
        time.sleep(dice.choice((0.0, _TICK_S, 2 * _SETTLED_S + _TICK_S)))
        hostile.policy(memory)
        hostile.judged(outside)
        for _ in range(dice.randint(1, 3)):
            # Some changes are impossible, such as one below a file.
            with contextlib.suppress(OSError):
                done.append(hostile.change())
        assert hostile.policy(memory) == hostile.policy(FolderMemory()), done
        assert hostile.judged(outside) == hostile.judged(Remembered()), done
