"""WriteFile on a disk that refuses one call after another: what is told is what is on the disk, and the snapshots have it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from support.chat_answers import Answer
from support.chat_server import call, say
from support.soul import Stage, stage

from kimi_tui import filesystem
from kimi_tui.wire import events as ev

_WRITING = ("write", "fsync", "fchmod", "mkdir", "link", "rename")
_CALLS = ("open", "stat", "fstat", "lstat", "readlink", "read", "pread", "scandir", "listdir")


class _Refusals:
    """Refuses one call in the thread of the snapshots: the one with this number since the last `aim`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self._errno = number
        self._left = -1
        self.refused = ""
        self.n_calls = 0
        self._readlink = os.readlink
        # What cannot be read for another reason is a remark in the snapshot.
        for name in _WRITING + (_CALLS if number == errno.EMFILE else ()):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        monkeypatch.setattr(filesystem.write_all, "__defaults__", (os.write,))

    def aim(self, number: int, *, keeps: bool = False) -> None:
        self._left = number
        if not keeps:
            self.refused, self.n_calls = "", 0

    def _is_of_watch(self, handle: int) -> bool:
        return self._readlink(f"/proc/self/fd/{handle}").endswith("inotify")

    def _wrapped(self, name: str, real: Any) -> Any:
        is_of_watch = self._is_of_watch

        def refusing(*args: Any, **options: Any) -> Any:
            is_queue = name == "read" and is_of_watch(args[0])
            if threading.current_thread().name == "files" and not is_queue:
                self.n_calls += 1
                if self._left == 0:
                    self._left = -1
                    self.refused = name
                    raise OSError(self._errno, os.strerror(self._errno), args[0])
                self._left -= 1
            return real(*args, **options)

        return refusing


def _write(path: str, content: str) -> Answer:
    return call("WriteFile", {"path": path, "content": content})


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC], ids=["EMFILE", "ENOSPC"])
@pytest.mark.parametrize("kind", ["new", "replaced", "replaced by another", "in a new folder"])
async def test_a_write_that_is_refused_somewhere_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        refusals = _Refusals(monkeypatch, number)
        faults: list[str] = []
        found, n_calls = await _refused_at(on, refusals, kind, 1_000_000)
        assert not found
        assert n_calls > 4
        for place in range(n_calls):
            found, _ = await _refused_at(on, refusals, kind, place)
            faults += [f"{place} {refusals.refused}: {one}" for one in found]
        assert faults == [], "\n".join(faults)


async def _refused_at(
    on: Stage, refusals: _Refusals, kind: str, number: int
) -> tuple[list[str], int]:
    """Write with one call refused; return the faults, and the number of calls that were made."""
    path = f"{kind.replace(' ', '-')}-{number}" + ("/below/x" if "folder" in kind else "")
    place = on.work / path
    folder = on.soul.folder
    if "replaced" in kind:
        place.write_text("before\n")
        await folder.take("other")
        if "another" in kind:
            place.write_text("by hand\n")
    before = place.read_bytes() if place.exists() else None
    log = folder.tracker.log
    n_before = len(log)
    on.server.script(_write(path, f"after {number}\n"), say("done"))
    on.ear.forget()
    refusals.aim(number)
    await on.soul.run("write")
    n_calls = refusals.n_calls
    refusals.aim(-1, keeps=True)
    await folder.take("other")
    (result,) = on.ear.of(ev.ToolResult)
    after = place.read_bytes() if place.exists() else None
    found: list[str] = []
    wanted = before if result.is_error else f"after {number}\n".encode()
    if after != wanted:
        found.append(f"{result.message!r} but {after!r}")
    entry = log.latest.get(path)
    kept = None
    if entry is not None and entry.kept:
        kept = folder.tracker.texts.content(entry)
    if kept != after:
        found.append(f"the snapshot has {kept!r}, the disk {after!r}")
    if before is not None:
        said = {
            folder.tracker.texts.content(one.changed[path])
            for one in log.snapshots
            if one.changed.get(path) is not None and one.changed[path].kept
        }
        if before not in said and not (log.snapshots[0].changed.get(path)):
            found.append(f"{before!r} is in no snapshot")
    left = [one.name for one in place.parent.iterdir()] if place.parent.exists() else []
    if any(map(filesystem.is_temporary_name, left)):
        found.append("a temporary file is left")
    told = [event.paths for event in on.ear.of(ev.FilesChanged)]
    by = [one.by for one in log.snapshots[n_before:] if path in one.changed]
    if not result.is_error and by[-1:] != ["agent"] and not on.ear.of(ev.Notice):
        found.append(f"recorded by {by}, told {told}")
    return found, n_calls
