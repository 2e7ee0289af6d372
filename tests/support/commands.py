"""Helpers for tests of commands: a folder with sessions that a real engine wrote, and the commands run in it."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kimi_tui.cli import main
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore
from support.chat_server import Answer, call, calls, say
from support.soul import stage, until_end


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the command's output, parsed as JSON."""
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """Return the one line on standard error; fails if there is other output."""
        assert self.out == ""
        assert self.err.startswith("kimi-tui: ")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        return self.err.removeprefix("kimi-tui: ").rstrip("\n")


class Place:
    """A folder with sessions, in which commands are run."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self._capsys = capsys

    @property
    def store(self) -> SessionStore:
        return SessionStore(self.folder / "data")

    def run(self, *arguments: object) -> Ran:
        """Run one command, as the program runs it."""
        self._capsys.readouterr()
        code = main([*map(str, arguments)])
        said = self._capsys.readouterr()
        return Ran(code, said.out, said.err)

    def hold(self, answers: Sequence[Answer], *words: str) -> Session:
        """Hold a conversation in a new session; return it, closed."""
        return self.store.find(_hold(self.folder, answers, words))

    def three_turns(self) -> Session:
        """Hold three turns: checkpoints 0 and 1 are a turn, 2 to 5 one that reads and writes, 6 and 7 another."""
        return self.copied(_three_turns())

    def copied(self, told: HeldOnce) -> Session:
        """Return a copy of a session that was held once, with a work folder of its own."""
        shutil.copytree(told.folder / "work", self.work, dirs_exist_ok=True)
        dir_ = self.store.bucket(self.work) / told.session.name
        dir_.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(told.session, dir_)
        for path in (dir_ / "context.jsonl", dir_ / "state.json", dir_ / "files/snapshots-2.jsonl"):
            text = path.read_text().replace(str(told.folder / "work"), str(self.work))
            path.write_text(text)
        state = json.loads((dir_ / "state.json").read_text())
        state["summary"]["size"] = (dir_ / "context.jsonl").stat().st_size
        (dir_ / "state.json").write_text(json.dumps(state))
        return self.store.find(told.session.name)

    def files(self, session: Session) -> dict[str, bytes]:
        """Return the content of the session's context files by name."""
        return {path.name: path.read_bytes() for path in session.dir.glob("context*.jsonl")}


@dataclass(frozen=True)
class HeldOnce:
    """The folder in which a conversation was held, and its session's id."""

    folder: Path
    session: Path


def _hold(folder: Path, answers: Sequence[Answer], words: Sequence[str]) -> str:
    """Hold a conversation in a new session below a folder; return the session's id."""

    async def held() -> str:
        async with stage(folder, data=folder / "data") as on:
            on.server.script(*answers)
            for text in words:
                await until_end(on.soul.run(text))
        return on.session.id

    return asyncio.run(held())


@functools.cache
def _three_turns() -> HeldOnce:
    """Hold the conversation once in each process of tests. Each test gets a copy, with its own work folder."""
    folder = Path(tempfile.mkdtemp(prefix="kimi-tui-three-turns-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "work").mkdir()
    (folder / "work" / "a.txt").write_text("hello\n")
    answers = [
        say("one", usage=(100, 10)),
        call("ReadFile", {"path": "a.txt"}, text="I look.", usage=(200, 20)),
        calls(
            [
                ("WriteFile", {"path": "b.txt", "content": "b\n"}),
                ("WriteFile", {"path": "c.txt", "content": "c\n"}),
            ],
            usage=(300, 30),
        ),
        say("two", usage=(400, 40)),
        say("three", usage=(500, 50)),
    ]
    return held_once(folder, answers, "first", "second\nwith more", "third")


def held_once(folder: Path, answers: Sequence[Answer], *words: str) -> HeldOnce:
    """Hold a conversation in a new session below a folder, for copies of it."""
    _hold(folder, answers, words)
    (context,) = folder.glob("data/sessions/*/*/context.jsonl")
    return HeldOnce(folder, context.parent)
