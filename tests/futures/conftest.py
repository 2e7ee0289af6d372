"""A session with a work folder and a scripted server, from which tests start futures."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import Answer, ChatServer, Request, call, say

from kimi_tui.futures.running import Futures
from kimi_tui.launch import Launch, Options, launch_of
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.opening import open_session

WORDS = ("alpha", "beta", "gamma", "wait", "ask", "mail", "port", "path", "forge")
ANSWERS = {
    "alpha": "echo alpha >> src/f1.py; rm -f src/f2.py; mkdir -p new; echo 1 > new/alpha",
    "beta": "echo bad > tests/test_a.py",
    "gamma": "mv src/f3.py moved.py",
    "wait": "touch waiting; sleep 60",
    "ask": "true",
    "port": "echo $PORT > port.txt",
    "path": "pwd",
    "forge": "python3 forge.py",
}
FORGE = """
import os, py_compile
path = "tests/judge.py"
honest, times = open(path).read(), os.stat(path)
for text in ("raise SystemExit(0)\\n", honest):
    open(path, "w").write(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if text != honest:
        py_compile.compile(path, doraise=True)
"""
"""Compiles another test in place of one that fails, which stays as it was."""


def answer(request: Request) -> Answer:
    """A model that writes a file named by the word in the last message, runs that word's command, and says so."""
    if "You compare changes" in str(request.messages[0]["content"]):
        return say("The first one adds, the second one moves.", usage=(500, 10))
    said = -1
    word = ""
    for place, message in enumerate(request.messages):
        if message["role"] == "user":
            text = json.dumps(message["content"])
            if found := [one for one in WORDS if f"do {one}" in text]:
                said, word = place, found[0]
    results = sum(message["role"] == "tool" for message in request.messages[said:])
    if not word:
        return say("Hello.", usage=(100, 5))
    if word == "mail" and "It is written." in json.dumps(request.messages):
        return say("I did mail.", usage=(1200, 10))
    if word == "mail" and results == 1:
        return call("SendDMail", {"checkpoint_id": 3, "message": "It is written."})
    if word == "path" and results == 0:
        # The path of the work folder, as the model knows it from the conversation so far.
        at = os.path.join(os.environ["TEST_WORK"], "path.txt")
        return call("WriteFile", {"path": at, "content": "path"}, usage=(1000, 20))
    if results == 0:
        return call("WriteFile", {"path": f"{word}.txt", "content": word}, usage=(1000, 20))
    if results == 1:
        more: dict[str, Any] = {"sandbox": "off", "why": "To be asked."} if word == "ask" else {}
        return call("Shell", {"command": ANSWERS[word], **more}, usage=(1100, 20))
    return say(f"I did {word}.", usage=(1200, 10))


def contents(folder: Path) -> str:
    """A hash of all files of a folder, by their paths, contents and modes."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".git" not in path.parts:
            mode = path.stat().st_mode
            found.update(f"{path.relative_to(folder)} {mode:o}\0".encode() + path.read_bytes())
    return found.hexdigest()


@dataclass
class Scene:
    """A session of one turn, its engine, and the futures of it."""

    work: Path
    home: Path
    server: ChatServer
    launch: Launch
    soul: KimiSoul
    futures: Futures

    async def again(self) -> Scene:
        """Open the session anew."""
        opened = await open_session(self.launch._replace(resume=self.soul.session.id))
        futures = Futures(opened.soul, self.launch)
        return Scene(self.work, self.home, self.server, self.launch, opened.soul, futures)

    def left(self) -> list[str]:
        """What futures have left lying about."""
        sessions = [one.name for one in self.soul.session.dir.parent.glob(".future-*")]
        places = [one.name for one in (self.home / "futures").glob("*~*")]
        mounts = [
            line
            for line in Path("/proc/self/mounts").read_text().split("\n")
            if str(self.work) in line
        ]
        return [*sessions, *places, *mounts]


def set_environment(monkeypatch: pytest.MonkeyPatch, top: Path, url: str) -> None:
    """Have the program and its children use folders of their own, and a server."""
    for name in list(os.environ):
        if name.startswith(("KIMI_", "OPENAI_")):
            monkeypatch.delenv(name)
    (top / "user").mkdir()
    monkeypatch.setenv("HOME", str(top / "user"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(top / "user" / ".cache"))
    monkeypatch.setenv("KIMI_TUI_HOME", str(top / "home"))
    monkeypatch.setenv("KIMI_BASE_URL", url)
    monkeypatch.setenv("KIMI_API_KEY", "key")
    monkeypatch.setenv("KIMI_MODEL_NAME", "stand-in")


def make_files(work: Path) -> None:
    """Make a small project."""
    (work / "src").mkdir(parents=True)
    for number in range(1, 6):
        (work / "src" / f"f{number}.py").write_text(f"x = {number}\n")
    (work / "tests").mkdir()
    (work / "tests" / "test_a.py").write_text("good\n")
    (work / ".gitignore").write_text(".venv\n")
    (work / ".venv").mkdir()
    (work / ".venv" / "lib").write_text("library\n")
    (work / ".git").mkdir()


@asynccontextmanager
async def scene_in(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[Request], Answer],
    *,
    first: str = "Say hello.",
    window: str = "",
    config: str = "",
    **options: Any,
) -> AsyncGenerator[Scene]:
    """Yield an open session in a new work folder, with a server that answers by this function.

    Args:
        folder: a folder for all files.
        monkeypatch: sets the environment.
        check: gives the answer to each request.
        first: the message of its one turn; empty for no turn.
        window: the tokens of the model's window, as a text; empty for the usual ones.
        config: the contents of config.toml; empty for none.
        options: those of the launch that are not the usual ones.
    """
    work = folder / "work"
    make_files(work)
    monkeypatch.setenv("TEST_WORK", str(work))
    async with ChatServer(check=check) as server:
        set_environment(monkeypatch, folder, server.base_url)
        if window:
            monkeypatch.setenv("KIMI_MODEL_MAX_CONTEXT_SIZE", window)
        if config:
            (folder / "home").mkdir(exist_ok=True)
            (folder / "home" / "config.toml").write_text(config)
        launch = launch_of(Options(work_dir=str(work), mode="sandboxed"))._replace(**options)
        opened = await open_session(launch)
        if opened.soul.mode != "sandboxed":
            await opened.soul.aclose()
            pytest.skip(f"Futures of these tests need a complete sandbox. {opened.no_sandbox}")
        if first:
            await opened.soul.run(first)
        await opened.soul.files_ready()
        futures = Futures(opened.soul, launch)
        yield Scene(work, folder / "home", server, launch, opened.soul, futures)
        await opened.soul.aclose()


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Scene]:
    async with scene_in(tmp_path, monkeypatch, answer) as one:
        yield one
