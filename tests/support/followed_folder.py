"""A work folder that is followed, a power cut while it is, and a clock as coarse as any in use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kimi_tui.workspace import scan
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.restore import PreparedRestore, Restored
from kimi_tui.workspace.tracker import SnapshotScope, Tracker


class Place:
    """A work folder and the tracker that follows it, as successive processes would have it."""

    def __init__(
        self, top: Path, limits: Limits | None = None, clock: CoarseClock | None = None
    ) -> None:
        self.top = top
        self.clock = clock
        self.limits = limits or Limits()
        self.root = top / "work"
        self.root.mkdir()
        self.uid = 0
        self.last: PreparedRestore | None = None
        self.tracker = self.started()

    def started(self) -> Tracker:
        return Tracker(self.root, self.top / "files", self.limits, SnapshotScope())

    def begin(self) -> str:
        assert self.tracker.first_scan()
        return self.mark()

    def mark(self) -> str:
        self.uid += 1
        self.tracker.mark(f"c{self.uid}")
        return f"c{self.uid}"

    def write(self, name: str, content: str | None) -> None:
        path = self.root / name
        was_there = path.exists()
        with contextlib.suppress(OSError):
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            if self.clock:
                self.clock.stamp(path, is_listed_anew=was_there != (content is not None))

    def agent(self, *edits: tuple[str, str | None]) -> None:
        self.tracker.take_snapshot("other")
        for name, content in edits:
            self.write(name, content)
        self.tracker.take_snapshot("agent")

    def other(self, *edits: tuple[str, str | None]) -> None:
        for name, content in edits:
            self.write(name, content)

    def go_to(self, uid: str, chosen: set[str] | None = None) -> Restored:
        prepared = self.tracker.prepare(self.tracker.plan(uid), chosen)
        if prepared is None:
            return Restored()
        self.last = prepared
        return self.tracker.carry_out(prepared)

    def undo(self) -> Restored:
        assert self.last is not None
        intent = self.last.intent
        plan = self.tracker.plan_back(intent.before, intent.after, intent.paths)
        prepared = self.tracker.prepare(plan)
        if prepared is None:
            return Restored()
        self.last = prepared
        return self.tracker.carry_out(prepared)

    def planned(self, uid: str) -> dict[str, str]:
        return {one.path: one.change for one in self.tracker.plan(uid).changes}

    def files(self) -> dict[str, str]:
        return {
            path.relative_to(self.root).as_posix(): path.read_text()
            for path in sorted(self.root.rglob("*"))
            # Files left by an interrupted restore do not count.
            if path.is_file() and path.suffix != ".restore"
        }


class CoarseClock:
    """Makes the scanner see times like those of a disk that counts in steps of two seconds; `rest` lets some time pass."""

    STEP_NS = 2_000_000_000

    def __init__(self) -> None:
        # The clock begins long ago, so that files with a real time were not stamped here, and count as written now.
        self.now_ns = 1_000 * self.STEP_NS

    @contextlib.contextmanager
    def ticking(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(scan, "os", self))
            stack.enter_context(mock.patch.object(scan, "time", self))
            yield

    def rest(self) -> None:
        self.now_ns += 2 * self.STEP_NS

    def time_ns(self) -> int:
        return self.now_ns + self.STEP_NS // 2

    def stamp(self, path: Path, *, is_listed_anew: bool) -> None:
        if path.exists():
            os.utime(path, ns=(self.now_ns, self.now_ns))
        if is_listed_anew:
            os.utime(path.parent, ns=(self.now_ns, self.now_ns))

    def stat(self, *args: Any, **kwargs: Any) -> SimpleNamespace:
        return self._coarse(os.stat(*args, **kwargs))

    def fstat(self, handle: int) -> SimpleNamespace:
        return self._coarse(os.fstat(handle))

    def _coarse(self, status: os.stat_result) -> SimpleNamespace:
        at_ns = min(status.st_mtime_ns, self.now_ns)
        return SimpleNamespace(
            st_mtime_ns=at_ns,
            st_ctime_ns=at_ns,
            st_size=status.st_size,
            st_ino=status.st_ino,
            st_dev=status.st_dev,
            st_nlink=status.st_nlink,
            st_mode=status.st_mode,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class PowerCut(BaseException):
    """The process dies here."""


@contextlib.contextmanager
def power_cut(after_calls: int) -> Iterator[None]:
    """Die at the n-th call that changes the disk."""
    calls = 0

    def counted(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > after_calls:
                raise PowerCut
            return real(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for verb in ("rename", "replace", "unlink", "link", "write", "mkdir", "rmdir", "fsync"):
            stack.enter_context(mock.patch.object(os, verb, counted(getattr(os, verb))))
        yield
