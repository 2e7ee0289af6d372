"""The content store beside a plain table, with disks that refuse, write in part, or end with the program."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kimi_tui.workspace import store as store_module
from kimi_tui.workspace.store import BlobDamaged, BlobStore, packs_in

_BUFFER = 4096
_SIZES = (0, 1, 159, 160, 700, _BUFFER - 50, _BUFFER - 8, _BUFFER, _BUFFER + 1, 3 * _BUFFER)


class _Killed(BaseException):
    """The program was killed in this call."""


class _Disk:
    """Refuses calls of a store, or ends the program in them.

    Args:
        chance: the random numbers.
        refuses, kills: how probable each is.
    """

    def __init__(self, chance: random.Random, refuses: float, kills: float) -> None:
        self._chance, self._refuses, self._kills = chance, refuses, kills
        self.is_well = False
        self.n_refused = self.n_killed = 0

    def may_fail(self, before: Callable[[], object] = lambda: None) -> None:
        """Refuse the call, or end the program, at times; `before` does a part of the call first."""
        if self.is_well:
            return
        found = self._chance.random()
        if found < self._refuses:
            before()
            self.n_refused += 1
            raise OSError(self._chance.choice((errno.ENOSPC, errno.EIO, errno.EDQUOT)), "refused")
        if found > 1 - self._kills:
            before()
            self.n_killed += 1
            raise _Killed

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the store's calls fail."""
        write_all = store_module.write_all

        def write(handle: int, data: bytes) -> None:
            part = data[: self._chance.randrange(len(data) + 1)]
            self.may_fail(lambda: os.write(handle, part))

            def short(number: int, left: memoryview) -> int:
                return os.write(number, left[: self._chance.choice((1, 100, len(left)))])

            write_all(handle, data, short)

        monkeypatch.setattr(store_module, "write_all", write)
        for where, name in ((os, "rename"), (os, "pread"), (store_module, "fsync")):
            real = getattr(where, name)

            def call(*args: Any, _real: Any = real, **options: Any) -> Any:
                self.may_fail()
                return _real(*args, **options)

            monkeypatch.setattr(where, name, call)
        created = store_module._created

        def create(*args: Any) -> int:
            self.may_fail()
            return created(*args)

        monkeypatch.setattr(store_module, "_created", create)


def _play(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Use a store at random and compare it with a table; return how often the disk refused, and the program was killed."""
    chance = random.Random(seed)
    disk = _Disk(chance, *chance.choice(((0.0, 0.0), (0.1, 0.0), (0.3, 0.0), (0.1, 0.03))))
    monkeypatch.setattr(store_module, "_BUFFER_BYTES", _BUFFER)
    monkeypatch.setattr(store_module, "_MOST_BODIES", chance.choice((3, 10_000)))
    disk.patch(monkeypatch)
    store = BlobStore(folder, 1 << 30)
    safe: dict[str, bytes] = {}
    put: dict[str, bytes] = {}

    def check(one: BlobStore) -> None:
        disk.is_well = True
        for name, content in safe.items():
            assert one.has(name)
            assert one.get(name) == content
        disk.is_well = False

    for _ in range(chance.randint(5, 60)):
        try:
            match chance.randrange(10):
                case 0 | 1 | 2 | 3 | 4:
                    size = chance.choice(_SIZES)
                    content = chance.randbytes(size) if chance.random() < 0.7 else bytes(size)
                    name = store.put(content, again=chance.random() < 0.1)
                    put[name] = content
                case 5 | 6:
                    known = put | safe
                    if known:
                        name = chance.choice([*known])
                        assert store.get(name) == known[name]
                case 7 | 8:
                    store.flush(later=chance.random() < 0.5)
                    safe |= put
                    put.clear()
                case _:
                    store.sync()
        except BlobDamaged:
            # The disk could not be read; a pack that is given up for that is told with the next flush.
            assert disk.n_refused
        except OSError:
            # What was put since the last flush may be lost now, unless it is flushed.
            lost, put = put, {}
            for name, content in lost.items():
                if store.has(name):
                    put[name] = content
        except _Killed:
            store, put = BlobStore(folder, 1 << 30), {}
            check(store)
    check(store)
    check(BlobStore(folder, 1 << 30))
    disk.is_well = True
    with contextlib.suppress(OSError):
        store.flush()
    after = BlobStore(folder, 1 << 30)
    after.put(b"the first after the end")
    after.flush()
    assert {path.suffix for path in folder.iterdir()} == {".pack"}
    assert len(packs_in(folder)) == len([*folder.iterdir()])
    return disk.n_refused, disk.n_killed


def test_a_store_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        with monkeypatch.context() as patched:
            _play(tmp_path / str(seed), seed, patched)
