"""Random work of agents in one folder, with a user who changes files beside it, and with views: whose each change is, and what is kept.

Every text names who wrote it. A text that an agent's tool wrote is never recorded as somebody else's, one that the user wrote far from
all commands is never recorded as an agent's, and every text that stood when a tool began is in the snapshots.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import calls, say
from support.soul import Stage, stage, until_end

from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.folder_snapshots import ChangingTool
from kimi_tui.soul.rewind_values import Target
from kimi_tui.tools.base import ApprovalQuestion, FileVersions, ToolEnv
from kimi_tui.tools.file_edit import WriteFile, WriteFileParams
from kimi_tui.tools.jobs import Jobs
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.shell import Shell, ShellParams
from kimi_tui.wire import events as ev
from kimi_tui.workspace import tracker
from kimi_tui.workspace.snapshots import FOREIGN

_TEXT = re.compile(rb"(\w+):(\d+)\n")
_NEAR_S = 0.12
_NEAR_IF_SLOW_S = 0.4
"""Seconds around a command in which a change of the user may count as the command's, and these where scans take long."""


@dataclass
class Did:
    """A tool that ran: when it began, and when the scan behind it had ended."""

    agent: str
    key: str
    is_command: bool
    began: float
    ended: float = 0.0


@dataclass
class Scene:
    """A folder with agents, a user and views.

    Args:
        on: the stage.
        chance: the random numbers.
        near_s: the seconds around a command in which a change of the user may count as the command's.
    """

    on: Stage
    chance: random.Random
    near_s: float
    n_texts: int = 0
    did: list[Did] = field(default_factory=list[Did])
    users: dict[bytes, tuple[float, float]] = field(
        default_factory=dict[bytes, tuple[float, float]]
    )
    stood: set[bytes] = field(default_factory=set[bytes])
    of_tool: dict[bytes, Did] = field(default_factory=dict[bytes, Did])
    faults: list[str] = field(default_factory=list[str])
    is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def text(self, who: str) -> bytes:
        """Return a new text of somebody."""
        with self._lock:
            self.n_texts += 1
            return f"{who}:{self.n_texts}\n".encode()

    def user(self) -> None:
        """Change files at random moments, in a thread, until all is over."""
        chance = random.Random(self.chance.random())
        while not self.is_over:
            time.sleep(chance.choice((0.0, 0.001, 0.004, 0.02, 0.1, 0.3)) * chance.random())
            path = self.on.work / chance.choice(
                ("mine-1", "mine-2", "both-1", "both-2", "sub/both-3")
            )
            text = self.text("user")
            began = time.monotonic()
            path.parent.mkdir(exist_ok=True)
            if chance.random() < 0.5:
                path.write_bytes(text)
            else:
                beside = path.with_name(f"{path.name}.new")
                beside.write_bytes(text)
                beside.rename(path)
            self.users[text] = (began, time.monotonic())

    def look(self) -> None:
        """Note the texts that stand now, and have stood for a while."""
        now = time.time()
        for path in self.on.work.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and now - path.stat().st_mtime > self.near_s:
                    self.stood.add(path.read_bytes())


class _Call:
    """A call of a tool by an agent, with the parts of the engine that a real one has."""

    def __init__(self, scene: Scene, history: FileHistory, agent: str) -> None:
        self.scene, self.history, self.agent = scene, history, agent
        self.changes: list[ChangingTool] = []
        self.is_command = False
        self.key = f"{agent or 'main'}:{scene.text('key').decode().strip()}"
        self.did = Did(agent, self.key, False, time.monotonic())

    async def ask(self, ask: ApprovalQuestion) -> str:
        paths = None if self.is_command else [edit.path for edit in ask.edits]
        self.did = Did(self.agent, self.key, self.is_command, time.monotonic())
        waits = asyncio.sleep(self.scene.chance.choice((0, 0, 0.001, 0.03)))
        if paths is None:
            self.changes.append(
                await self.history.before_change(None, asyncio.ensure_future(waits))
            )
        else:
            await waits
            self.changes.append(await self.history.before_change(paths))
        self.scene.look()
        self.scene.did.append(self.did)
        return ""

    async def write(self, work: Callable[[], None]) -> None:
        await self.history.write(self.changes[-1], work)

    def ended(self) -> None:
        for change in tuple(self.changes):
            self.history.scan_at_end(change)

    def env(self, jobs: Jobs, versions: FileVersions) -> ToolEnv:
        def nothing(*_: object, **__: object) -> Any:
            return None

        return ToolEnv(
            work_dir=self.scene.on.work,
            approver=self,
            send_dmail=nothing,
            versions=versions,
            emit=nothing,
            environ=dict(os.environ),
            key=self.key,
            jobs=jobs,
            writer=self.write,
            ended=self.ended,
        )


def _commands(scene: Scene, agent: str, texts: list[bytes]) -> str:
    """Return a random command that writes texts of an agent."""
    chance, who = scene.chance, agent or "main"
    parts: list[str] = []
    for _ in range(chance.randint(1, 3)):
        text = scene.text(who)
        texts.append(text)
        path = chance.choice((f"{who}-1", f"{who}-2", "both-1", "sub/both-3", f"deep/{who}/x"))
        write = f"mkdir -p $(dirname {path}); echo {text.decode().strip()} > {path}"
        form = chance.random()
        if form < 0.15:
            write = f"({write}) & wait"
        elif form < 0.3:
            write = f"echo {text.decode().strip()} > t-{who}; mkdir -p $(dirname {path}); mv t-{who} {path}"
        elif form < 0.4:
            write = f"trap '{write}; exit' TERM; sleep 0.0{chance.randint(1, 9)}; {write}"
        elif form < 0.5:
            write = f"(sleep 0.0{chance.randint(1, 5)}; {write}) & sleep 0.07"
        parts.append(write)
    if chance.random() < 0.2:
        parts.insert(chance.randrange(len(parts) + 1), f"rm -f {who}-1 both-2")
    return "; ".join(parts)


async def _one_call(scene: Scene, history: FileHistory, agent: str, jobs: Jobs) -> None:
    chance = scene.chance
    call, texts = _Call(scene, history, agent), list[bytes]()
    who = agent or "main"
    env = call.env(jobs, FileVersions({}))
    call.is_command = chance.random() < 0.5
    if call.is_command:
        if chance.random() < 0.7:
            history.scan_ahead()
        command = _commands(scene, agent, texts)
        work = Shell().run(ShellParams(command=command), env)
    else:
        texts.append(scene.text(who))
        path = chance.choice(
            (f"{who}-1", f"{who}-3", "both-1", "both-2", "sub/both-3", f"new/{who}/y")
        )
        mode: Any = "append" if chance.random() < 0.2 else "overwrite"
        work = WriteFile().run(
            WriteFileParams(path=path, content=texts[0].decode(), mode=mode), env
        )
    task = asyncio.create_task(work)
    is_stopped = chance.random() < 0.25
    if is_stopped:
        await asyncio.wait([task], timeout=chance.choice((0.0, 0.001, 0.004, 0.02, 0.1)))
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError, ToolProblem):
        await task
    changes, call.changes = call.changes, []
    for change in changes:
        history.after_change(change, "", call.key)
    if chance.random() < 0.5:
        await history.settled()
    call.did.ended = time.monotonic()
    for text in texts:
        scene.of_tool[text] = call.did


async def _views(scene: Scene, history: FileHistory) -> None:
    folder, chance = history.folder, scene.chance
    while not scene.is_over:
        await asyncio.sleep(chance.choice((0.001, 0.01, 0.1)))
        point = scene.on.soul.session.context.checkpoints[0]
        match chance.randrange(5):
            case 0:
                await history.changes(None)
            case 1:
                await history._plan(point)
            case 2:
                await history.divergence([point.uid], [point.uid])
            case 3:
                await folder.take("other")
            case _:
                history.follow_jobs(1)
                history.follow_jobs(0)


async def _played(tmp_path: Path, seed: int, n_calls: int, near_s: float) -> list[str]:
    """Play a random history; return the faults."""
    chance = random.Random(seed)
    async with stage(tmp_path) as on:
        for name in ("mine-1", "both-1", "main-1", "explorer-1"):
            (on.work / name).write_text(f"start:{len(name)}\n")
        await on.soul.files_ready()
        on.server.script(say("hi"))
        await on.soul.run("work")
        history = on.soul._conversation.files
        folder, log = history.folder, history.folder.tracker.log
        # What was written before the first scan is known by now.
        await folder.take("other")
        n_begun = len(log)
        scene = Scene(on, chance, near_s)
        agents = {
            "": history,
            "explorer": FileHistory(on.session, on.soul.wire, folder, "explorer"),
        }
        user = threading.Thread(target=scene.user)
        user.start()

        async def works(agent: str) -> None:
            jobs = Jobs(lambda job: None)
            for _ in range(n_calls):
                await asyncio.sleep(chance.choice((0, 0, 0.01, 0.3)) * chance.random())
                await _one_call(scene, agents[agent], agent, jobs)

        views = asyncio.create_task(_views(scene, history))
        try:
            await asyncio.gather(*(works(agent) for agent in agents))
        finally:
            scene.is_over = True
            await asyncio.to_thread(user.join)
            await views
        await history.settled()
        await folder.take("other")
        assert not folder._unseen, folder._unseen
        assert not folder._ended
        assert not folder._unwritten
        assert not folder._begun
        scene.faults += _faults(scene, log, n_begun)
        now = {path: path.read_bytes() for path in on.work.rglob("*") if path.is_file()}
        known = {
            on.work / path: folder.tracker.texts.content(entry)
            for path, entry in log.latest.items()
            if entry.kept
        }
        if known != now:
            scene.faults.append("the newest snapshot is not what is on the disk")
        return scene.faults


def _faults(scene: Scene, log: Any, n_begun: int) -> list[str]:
    found: list[str] = []
    texts = scene.on.soul.folder.tracker.texts
    commands = [did for did in scene.did if did.is_command]
    kept: set[bytes] = set()
    told = {(event.key, path) for event in scene.on.ear.of(ev.FilesChanged) for path in event.paths}
    for one in log.snapshots[:n_begun]:
        kept |= {texts.content(entry) for entry in one.changed.values() if entry and entry.kept}
    for place, one in enumerate(log.snapshots[n_begun:]):
        for path, entry in one.changed.items():
            if entry is None or not entry.kept:
                continue
            content = texts.content(entry)
            kept.add(content)
            last = [*_TEXT.finditer(content)][-1:]
            if not last:
                continue
            who, text = last[0][1].decode(), last[0][0]
            said = f"{place}: {path} {content!r} by {one.by} {one.author!r}"
            if who == "user":
                began, ended = scene.users[text]
                is_near = any(
                    began < did.ended + scene.near_s and did.began - scene.near_s < ended
                    for did in commands
                )
                # A file tool may find its file changed in its last moment.
                is_near |= any(
                    began < did.ended and did.began < ended
                    for did in scene.did
                    if "mine" not in path
                )
                if not is_near and one.by not in FOREIGN:
                    found.append(f"the user's change is an agent's, {said}")
            elif who not in ("start", "key"):
                did = scene.of_tool[text]
                if one.by != "agent":
                    found.append(f"an agent's change is somebody else's, {said} {did}")
                elif not did.is_command and one.author != did.agent:
                    found.append(f"the change of another agent, {said}, {did}")
                else:
                    keys = [other.key for other in scene.did if other.ended >= did.began]
                    is_last = content in _last_texts(scene, path)
                    if is_last and not any((key, path) in told for key in keys):
                        found.append(f"no card has it, {said} {did}")
    found += [f"not kept: {text!r}" for text in sorted(scene.stood - kept)]
    return found


def _last_texts(scene: Scene, path: str) -> list[bytes]:
    with contextlib.suppress(OSError):
        return [(scene.on.work / path).read_bytes()]
    return []


@pytest.mark.exhaustive
@pytest.mark.parametrize("scans", ["told", "walked", "slow"])
@pytest.mark.parametrize("seed", range(4))
async def test_changes_at_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scans: str, seed: int
) -> None:
    if scans == "walked":
        monkeypatch.setattr(tracker, "TreeWatch", _no_watch)
    elif scans == "slow":
        scan, chance = tracker.Tracker._scan, random.Random(seed)

        def slowly(*args: Any, **options: Any) -> None:
            time.sleep(chance.choice((0, 0.005, 0.03)))
            scan(*args, **options)
            time.sleep(chance.choice((0, 0.005, 0.03)))

        monkeypatch.setattr(tracker.Tracker, "_scan", slowly)
    near_s = _NEAR_IF_SLOW_S if scans == "slow" else _NEAR_S
    assert await _played(tmp_path, seed, 40, near_s) == []


def _no_watch() -> None:
    raise OSError("no watch")


def _of_agent(on: Stage) -> dict[str, bytes]:
    """Return the files that only the agent changes, each with its text and rights, or the target of a link."""
    found: dict[str, bytes] = {}
    for path in on.work.rglob("main*"):
        with contextlib.suppress(OSError):
            name = path.relative_to(on.work).as_posix()
            if path.is_symlink():
                found[name] = b"-> " + os.readlink(path).encode()
            elif path.is_file():
                found[name] = path.read_bytes() + oct(path.stat().st_mode).encode()
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
async def test_turns_that_are_stopped_at_random_go_back_exactly(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with stage(tmp_path) as on:
        (on.work / "main-1").write_text("start:1\n")
        await on.soul.files_ready()
        # The first scan may have come before the file was written.
        await on.soul.folder.take("other")
        n_begun = len(on.soul.folder.tracker.log)
        scene = Scene(on, chance, _NEAR_S)
        user = threading.Thread(target=scene.user)
        user.start()
        befores: list[tuple[int, dict[str, bytes]]] = []
        try:
            for _ in range(8):
                await _turn(scene, befores)
                if befores and chance.random() < 0.3:
                    await _there_and_back(on, *chance.choice(befores))
        finally:
            scene.is_over = True
            await asyncio.to_thread(user.join)
        for number, before in befores:
            await _there_and_back(on, number, before)
        folder = on.soul.folder
        await folder.take("other")
        assert not folder._unseen
        for one in folder.tracker.log.snapshots[n_begun:]:
            for path, entry in one.changed.items():
                if entry is not None and entry.kept and "main" in path and one.by != "restore":
                    assert one.by == "agent", (path, folder.tracker.texts.content(entry))


async def _turn(scene: Scene, befores: list[tuple[int, dict[str, bytes]]]) -> None:
    """Have the agent work for a step or two, and be stopped at times; note the checkpoint, and the files before it."""
    on, chance = scene.on, scene.chance
    made: list[tuple[str, dict[str, Any]]] = []
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.5:
            path = chance.choice(("main-1", "main-2", "deep/main-3"))
            text = scene.text("main").decode()
            made.append(("WriteFile", {"path": path, "content": text}))
        else:
            command = _commands(scene, "", []).replace("both-", "main-b")
            command += chance.choice(("", "; chmod 755 main-1", "; ln -sfn main-1 main-link"))
            made.append(("Shell", {"command": command}))
    n_before, before = len(on.soul.session.context.checkpoints), _of_agent(on)
    on.server.script(calls(made), say("done"))
    turn = asyncio.create_task(until_end(on.soul.run("go")))
    if chance.random() < 0.5:
        await asyncio.wait([turn], timeout=chance.choice((0.01, 0.05, 0.1, 0.2)) * chance.random())
        await on.soul.interrupt()
    await turn
    on.server._answers.clear()
    await on.soul._orphans.wait(10)
    await on.soul.folder.settled()
    points = on.soul.session.context.checkpoints
    if len(points) > n_before:
        befores.append((points[n_before].id, before))


async def _there_and_back(on: Stage, number: int, before: dict[str, bytes]) -> None:
    """Restore the files of a checkpoint, and undo that."""
    now = _of_agent(on)
    outcome = await on.soul.travel.rewind(Target(number), "only")
    assert _of_agent(on) == before, outcome
    if any(one.fate in ("restore", "create", "delete") for one in outcome.files):
        await on.soul.travel.undo()
    assert _of_agent(on) == now
