"""The demo: a temporary folder with a small project, the scripted model that works on it, and suggested messages.

Only the model is scripted (`story.toml`); the files are real. The project is a CSV importer with a bug. Its sources lie
beside this module as `.txt` files; the long log and the samples are made here, always the same. At the end the folder is
removed. The session's record lists the files that the agent's tools wrote; if another file changed, it is the user's own, and
the folder stays.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, cast

from kimi_tui.llm.scripted import ScriptedProvider
from kimi_tui.wire.codec import Decoder
from kimi_tui.wire.events import EventRecord, FilesChanged, FilesRestored, TurnEnd

LOG_ROWS = 1_000
BAD_ROW = 412
"""The only interesting row of the log."""
SAMPLE_ROWS = 560
PLACE_ROWS = 300

_FIRST = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Alan", "Radia", "Ken", "Lynn")
_LAST = ("Lovelace", "Hopper", "Dijkstra", "Liskov", "Knuth", "Allen", "Turing", "Perlman")
_CITIES = ("London", "Arlington", "Austin", "Boston", "Stanford", "Peru", "Wilmslow", "Seattle")
_GOODS = ("lamp", "chair", "desk", "shelf", "clock", "rug", "vase")
LEFT_BY_PYTHON = frozenset({"__pycache__", ".pytest_cache"})
SLACK_S = 2.0
"""Seconds by which the file system's clock may differ from that of the record."""


class Suggestions:
    """Follows the user through a list of messages, even when they rewind or send a message of their own.

    A message is offered again until its turn is done, as a stopped or refused one has not told its part of the story.
    """

    def __init__(self, messages: Sequence[str]) -> None:
        self._messages = tuple(messages)
        self._next = 0
        self._running = False
        self._stopped = False

    @property
    def next(self) -> str:
        """The message to offer now; empty at the end of the list."""
        return self._messages[self._next] if self._next < len(self._messages) else ""

    def said(self, text: str) -> None:
        """Note a message that the user sent. Sending an earlier message of the demo again continues from there."""
        if text.strip() in self._messages:
            self._next = self._messages.index(text.strip())
            self._running, self._stopped = True, False
        elif self._stopped:
            # The user sent another message instead of continuing, so the end of this turn does not complete the stopped one.
            self._running = False

    def ended(self, *, is_done: bool) -> None:
        """Note that the agent stopped. An interrupted turn may continue with the same message."""
        self._stopped = not is_done
        if is_done and self._running:
            self._next += 1
            self._running = False


@dataclass(frozen=True, slots=True)
class Demo:
    """The parts of the demo that replace the user's own; everything else is the real product.

    `work_dir` is the agent's work folder, `data_dir` the folder of the session: both are in one temporary `folder`, whose
    newest file was written at `made_at` (seconds since 1970, by the file system's clock).
    """

    folder: Path
    made_at: float
    work_dir: Path
    data_dir: Path
    provider: ScriptedProvider
    suggestions: Suggestions

    def leave(self, clean: bool) -> str:
        """Remove the folder. It reads and writes files, so call it in a thread when the session is closed.

        Args:
            clean: whether the program ended normally; if not, the folder stays for an investigation.

        Returns:
            a sentence about the place of the folder, if it stays.
        """
        if clean and remove_project(self.folder, self.work_dir, self.data_dir, self.made_at):
            return ""
        return f"The demo's folder is kept, because files in it were changed: {self.folder}"


def prepare(speed: float = 1.0) -> Demo:
    """Write the project and load the story. It reads and writes files, so call it in a thread.

    Args:
        speed: the factor by which the model answers faster.

    Raises:
        OSError: the temporary folder cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix="kimi-")).resolve()
    work_dir = folder / "importer"
    work_dir.mkdir()
    write_project(work_dir)
    story = (files("kimi_tui.demo") / "story.toml").read_text(encoding="utf-8")
    provider = ScriptedProvider.from_text(story, speed=speed, name="story.toml")
    return Demo(
        folder=folder,
        made_at=newest_change(work_dir),
        work_dir=work_dir,
        data_dir=folder / "data",
        provider=provider,
        suggestions=Suggestions(provider.suggestions),
    )


def write_project(folder: Path) -> None:
    """Write the whole project into an empty folder.

    Raises:
        OSError: the folder cannot be written.
    """
    for name, text in _sources(files("kimi_tui.demo") / "files", ""):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    # Python's cache files are not the agent's work, but would be counted as such.
    (folder / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    samples = folder / "samples"
    samples.mkdir(exist_ok=True)
    (folder / "import.log").write_text("".join(_log()), encoding="utf-8")
    (samples / "people.csv").write_text("".join(_people()), encoding="utf-8")
    (samples / "orders.csv").write_text("".join(_orders()), encoding="utf-8")
    (samples / "places.csv").write_text("".join(_places()), encoding="utf-8")


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".txt"):
            yield f"{prefix}{entry.name.removesuffix('.txt')}", entry.read_text(encoding="utf-8")


def _log() -> Iterator[str]:
    for row in range(1, LOG_ROWS + 1):
        clock = f"09:{row // 600:02}:{row // 10 % 60:02}"
        if row == BAD_ROW:
            yield f'{clock} row {row} skipped: 4 fields, not 3: 412,"Grace ""Amazing"" Hopper",Arlington\n'
        else:
            yield f"{clock} row {row} ok, 3 fields\n"


def _people() -> Iterator[str]:
    yield "id,name,city\n"
    for row in range(1, SAMPLE_ROWS + 1):
        name = f"{_FIRST[row % len(_FIRST)]} {_LAST[row * 3 % len(_LAST)]}"
        if row % 80 == 0:
            name = f'"{_FIRST[row // 80]} ""The Great"" {_LAST[row // 80]}"'
        yield f"{row},{name},{_CITIES[row * 5 % len(_CITIES)]}\n"


def _orders() -> Iterator[str]:
    yield "order,day,goods,pieces\n"
    for row in range(1, SAMPLE_ROWS + 1):
        yield f"{10_000 + row},2026-03-{row % 28 + 1:02},{_GOODS[row % len(_GOODS)]},{row % 9 + 1}\n"


def _places() -> Iterator[str]:
    yield "city,latitude,longitude,note\n"
    for row in range(1, PLACE_ROWS + 1):
        north, east = 30 + row * 7 % 40, row * 11 % 180
        yield f'{_CITIES[row % len(_CITIES)]} {row},{north}.{row % 10},{east}.{row % 7},"near, but not in, town"\n'


def remove_project(folder: Path, work_dir: Path, data_dir: Path, made_at: float) -> bool:
    """Remove the folder of the demo, with everything created in it.

    Args:
        folder: the folder of the whole demo.
        work_dir: the agent's work folder.
        data_dir: the folder of its sessions.
        made_at: the time of the newest file in `work_dir` before anyone worked on it, by the file system's clock.

    Returns:
        False if it stays, because a file in it is not the demo's or cannot be removed.
    """
    try:
        if has_own_files(work_dir, data_dir, made_at):
            return False
        shutil.rmtree(folder)
    except OSError:
        return False
    return True


def newest_change(folder: Path) -> float:
    """Return the time of the newest file in a folder, by the clock of its file system.

    Raises:
        OSError: the folder cannot be read.
    """
    return max(path.lstat().st_mtime for path in folder.rglob("*"))


def has_own_files(work_dir: Path, data_dir: Path, made_at: float) -> bool:
    """Return whether a file changed that no tool of the agent changed, or changed again after the agent was done.

    Raises:
        OSError: a folder cannot be read.
    """
    by_agent: set[str] = set()
    done_at = made_at
    for record in _records(data_dir):
        match record.event:
            case FilesChanged(paths=paths):
                by_agent.update(paths)
            case FilesRestored(restored=restored):
                by_agent.update(restored)
                done_at = max(done_at, record.at)
            case TurnEnd():
                done_at = max(done_at, record.at)
            case _:
                pass
    for path in sorted(work_dir.rglob("*")):
        name = path.relative_to(work_dir)
        if LEFT_BY_PYTHON.intersection(name.parts) or path.is_dir():
            continue
        limit = done_at + SLACK_S if name.as_posix() in by_agent else made_at
        if path.lstat().st_mtime > limit:
            return True
    return False


def _records(data_dir: Path) -> Iterator[EventRecord]:
    """Yield all events of the sessions; unreadable lines are ignored."""
    for file in sorted(data_dir.glob("sessions/*/*/wire.jsonl")):
        decoder = Decoder()
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                record = decoder.decode_record(cast("dict[str, Any]", value), number)
                if record is not None:
                    yield record
