"""Random histories of what programs do to files: editors, git, package managers, databases, links, moves of folders."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

_GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
_NAMES = ("a", "b.py", "c.txt", "d", "e.log", ".env", "node", "é", "x y")


class FileHistory:
    """Changes a folder at random.

    Args:
        root: the folder.
        outside: another folder on the same disk.
        seed: the same seed makes the same history.
    """

    def __init__(self, root: Path, outside: Path, seed: int) -> None:
        self.root, self.outside = root, outside
        self.chance = random.Random(seed)
        self.count = 0
        self.steps: list[Callable[[], object]] = [
            *(self.write, self.write, self.append, self.save_by_rename, self.save_with_backup),
            *(self.delete, self.move, self.move, self.new_tree, self.drop_tree, self.rename_storm),
            *(self.move_out_and_in, self.replace_folder, self.link, self.hard_link, self.cut),
            *(self.write_by_link, self.hard_link_from_outside, self.rights, self.rules, self.map),
            *(self.database, self.same_size, self.swap, self.empty_folder, self.deep, self.clone),
            *(self.exchange_kind, self.into_deleted),
        ]
        if shutil.which("git"):
            self.steps += [self.git, self.git]

    def step(self) -> str:
        """Do one thing; return its name."""
        self.count += 1
        step = self.chance.choice(self.steps)
        with contextlib.suppress(OSError, subprocess.CalledProcessError, sqlite3.Error):
            step()
        return getattr(step, "__name__", "")

    # -- where ------------------------------------------------------------------------------------

    def folders(self) -> list[Path]:
        found = [self.root]
        for above, names, _ in os.walk(self.root):
            names[:] = sorted(name for name in names if name != ".git")
            found += [Path(above, name) for name in names if not Path(above, name).is_symlink()]
        return found

    def folder(self) -> Path:
        return self.chance.choice(self.folders())

    def files(self) -> list[Path]:
        found: list[Path] = []
        for above, names, files in os.walk(self.root):
            names[:] = sorted(name for name in names if name != ".git")
            found += [Path(above, name) for name in sorted(files)]
        return found

    def file(self) -> Path:
        files = [one for one in self.files() if one.is_file() and not one.is_symlink()]
        return self.chance.choice(files) if files else self.new()

    def new(self) -> Path:
        return self.folder() / self.chance.choice(_NAMES)

    def text(self) -> str:
        return f"{self.count} {'x' * self.chance.randrange(300)}\n"

    # -- what -------------------------------------------------------------------------------------

    def write(self) -> None:
        self.new().write_text(self.text())

    def append(self) -> None:
        with open(self.file(), "a") as file:
            file.write(self.text())

    def same_size(self) -> None:
        path = self.file()
        status = path.stat()
        path.write_bytes(os.urandom(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def cut(self) -> None:
        os.truncate(self.file(), self.chance.randrange(5))

    def save_by_rename(self) -> None:
        path = self.file()
        new = path.with_name(f".{path.name}.swp")
        new.write_text(self.text())
        new.rename(path)

    def save_with_backup(self) -> None:
        path = self.file()
        path.rename(f"{path}~")
        path.write_text(self.text())
        Path(f"{path}~").unlink()

    def delete(self) -> None:
        self.file().unlink()

    def move(self) -> None:
        source = self.chance.choice([*self.folders()[1:], *self.files()] or [self.new()])
        source.rename(self.folder() / self.chance.choice([source.name, *_NAMES]))

    def new_tree(self) -> None:
        top = self.new()
        for _ in range(self.chance.randrange(1, 12)):
            path = top.joinpath(*(self.chance.choice(_NAMES) for _ in range(3)), "package.json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text())

    def drop_tree(self) -> None:
        folders = self.folders()[1:]
        if folders:
            shutil.rmtree(self.chance.choice(folders))

    def replace_folder(self) -> None:
        folders = self.folders()[1:]
        if folders:
            path = self.chance.choice(folders)
            names = os.listdir(path)
            shutil.rmtree(path)
            path.mkdir()
            for name in names:
                (path / name).write_text(self.text())

    def exchange_kind(self) -> None:
        path = self.chance.choice([*self.folders()[1:], *self.files()] or [self.new()])
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            path.write_text(self.text())
        else:
            path.unlink()
            (path / "inner").mkdir(parents=True)
            (path / "inner" / "f").write_text(self.text())

    def rename_storm(self) -> None:
        path = self.file()
        for _ in range(self.chance.randrange(2, 30)):
            target = path.with_name(self.chance.choice(_NAMES) + ".s")
            path.rename(target)
            path = target

    def swap(self) -> None:
        folders = self.folders()[1:]
        if len(folders) > 1:
            one, two = self.chance.sample(folders, 2)
            aside = self.root / "aside"
            one.rename(aside)
            two.rename(one)
            aside.rename(two)

    def move_out_and_in(self) -> None:
        inside = self.folders()[1:]
        kept = sorted(self.outside.iterdir())
        if kept and self.chance.random() < 0.5:
            self.chance.choice(kept).rename(self.new())
        elif inside:
            path = self.chance.choice(inside)
            out = self.outside / f"out{self.count}"
            path.rename(out)
            if self.chance.random() < 0.5:
                (out / "changed outside").write_text(self.text())
                out.rename(path)

    def link(self) -> None:
        self.new().symlink_to(self.chance.choice(["nowhere", "a", "/", str(self.outside)]))

    def hard_link(self) -> None:
        os.link(self.file(), self.new())

    def hard_link_from_outside(self) -> None:
        source = self.outside / f"store{self.count % 3}"
        if not source.is_file():
            source.write_text(self.text())
        os.link(source, self.new())

    def write_by_link(self) -> None:
        stored = [one for one in self.outside.iterdir() if one.is_file()]
        for path in stored[:1]:
            with open(path, "a") as file:
                file.write(self.text())

    def into_deleted(self) -> None:
        path = self.file()
        with open(path, "a") as file:
            os.link(path, self.new())
            path.unlink()
            file.write(self.text())

    def rights(self) -> None:
        self.file().chmod(self.chance.choice([0o600, 0o644, 0o755]))

    def rules(self) -> None:
        rules = self.chance.choice(["*.log\n", "d/\n", "!a\n", "c.txt\nnode\n", ""])
        (self.folder() / ".gitignore").write_text(rules)

    def map(self) -> None:
        path = self.file()
        path.write_bytes(b"-" * 5_000)
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            file.close()
            mapped[4_500:4_510] = os.urandom(10)

    def database(self) -> None:
        with contextlib.closing(sqlite3.connect(self.root / "data.db")) as base:
            base.execute("pragma journal_mode = " + self.chance.choice(["wal", "delete"]))
            base.execute("create table if not exists t (x)")
            base.execute("insert into t values (?)", (self.text(),))
            base.commit()

    def empty_folder(self) -> None:
        (self.folder() / self.chance.choice(_NAMES)).mkdir()

    def deep(self) -> None:
        path = self.folder().joinpath(*["deep"] * 9)
        path.mkdir(parents=True)
        (path / "f").write_text(self.text())
        path.parents[4].rename(self.new())

    def clone(self) -> None:
        """Copy a folder by hard links, as `cp -al` and pnpm do."""
        folders = self.folders()[1:]
        if folders:
            source, target = self.chance.choice(folders), self.new()
            if source not in target.parents and sum(1 for _ in source.rglob("*")) < 100:
                shutil.copytree(source, target, copy_function=os.link, symlinks=True)

    def git(self) -> None:
        if not (self.root / ".git").exists():
            self._git("init", "-q")
        name = self.chance.choice(["one", "two"])
        what = self.chance.choice(["commit", "checkout", "stash", "mv", "clean"])
        if what == "commit":
            self._git("add", "-A")
            self._git("commit", "-qm", "x", "--no-verify")
        elif what == "checkout":
            self._git("checkout", "-qfB", name)
            self._git("checkout", "-qf", self.chance.choice(["one", "two", "main"]))
        elif what == "stash":
            self._git("stash", "-q")
        elif what == "clean":
            self._git("clean", "-qfd", "d")
        else:
            self._git("mv", "-kf", str(self.file()), str(self.new()))

    def _git(self, *words: str) -> None:
        subprocess.run([*_GIT, *words], cwd=self.root, check=True, capture_output=True)
