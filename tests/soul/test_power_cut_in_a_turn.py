"""A power cut at any moment of a turn: nothing in the middle is lost, and nothing was changed whose call is not on the disk.

A cut at every call in its turn is for `make test-all`; else it is at every few of them.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.chat_server import calls, say
from support.faulty_storage import CHANGING, PowerStorage, files_in
from support.soul import stage

from kimi_tui.session.session import Session

STEPS = (
    calls([("Shell", {"command": "echo shell >> log"})]),
    calls([("ReadFile", {"path": "log"}), ("Glob", {"pattern": "*"})]),
    calls([("WriteFile", {"path": "log", "content": "shell\nwrite\n"})]),
    calls(
        [
            ("ReadFile", {"path": "log"}),
            ("StrReplaceFile", {"path": "log", "edit": [{"old": "write", "new": "write\nedit"}]}),
            ("Shell", {"command": "echo last >> log"}),
        ]
    ),
    say("done"),
)
MARKS = {"shell": "echo shell", "write": "WriteFile", "edit": "StrReplaceFile", "last": "echo last"}
"""For each call, by the word that it leaves in the file: the words that tell it from others."""


class Cut(NamedTuple):
    folder: Path
    done: frozenset[str]
    """The words that calls had left by then."""


@pytest.mark.parametrize(
    ("how", "every"),
    [
        ("lost", 5),
        *(pytest.param(how, 1, marks=pytest.mark.exhaustive) for how in ("lost", "zeros", "kept")),
    ],
)
async def test_no_change_without_its_call_and_nothing_lost_in_the_middle(
    tmp_path: Path, how: str, every: int
) -> None:
    storage = PowerStorage(tmp_path / "none")
    cuts: list[Cut] = []
    n_calls = 0
    one_by_one = threading.Lock()
    log = tmp_path / "work" / "log"

    def before(name: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal n_calls
        if name not in CHANGING:
            return
        with one_by_one:
            n_calls += 1
            if n_calls % every:
                return
            done = frozenset(log.read_text().split()) if log.exists() else frozenset[str]()
            folder = tmp_path / f"cut{len(cuts)}"
            storage.cut(folder, how)
            cuts.append(Cut(folder, done))

    async with stage(tmp_path, data=tmp_path / "data", storage=storage) as on:
        # That a new session is on the disk is tested where it is made.
        storage.folder = on.session.dir
        storage.names = files_in(on.session.dir)
        on.server.script(*STEPS)
        storage.before = before
        # A changing call waits for the disk, the next request does not.
        await on.soul.run("go")
        storage.before = lambda _name, _arguments: None
        whole = [message.model_dump_json() for message in on.session.context.messages]
        await on.session.sync()
    # Records that are ready at the same time are written together, so a busy machine makes fewer calls.
    assert n_calls > 20
    assert cuts[-1].done == {*MARKS}
    for cut in cuts:
        session = Session(cut.folder, tmp_path / "work")
        await session.open()
        found = [message.model_dump_json() for message in session.context.messages]
        await session.aclose()
        assert found == whole[: len(found)], cut
        for mark in cut.done:
            assert any(MARKS[mark] in message for message in found), (cut, mark)


async def test_a_result_is_synced_after_what_it_tells_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        name = path.suffix if path.suffix == ".pack" else path.name
        if name == "context.jsonl":
            n_results = path.read_bytes().count(b'"role":"tool"')
            name = f"{n_results} results"
        fsync(handle)
        synced.append(name)

    async with stage(tmp_path, data=tmp_path / "data") as on:
        await on.soul.files_ready()
        monkeypatch.setattr(os, "fsync", noted)
        on.server.script(
            calls([("WriteFile", {"path": "in/one", "content": "first"})]),
            calls([("WriteFile", {"path": "in/two", "content": "second"})]),
            say("done"),
        )
        await on.soul.run("go")
        monkeypatch.setattr(os, "fsync", fsync)
    for n in (1, 2):
        before = synced[: synced.index(f"{n} results")]
        counts = [before.count(name) for name in ("in", ".pack", "store", "snapshots-2.jsonl")]
        assert counts == [n] * 4, synced
