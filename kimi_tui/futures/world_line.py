"""A future that has ended becomes a world line of its session: its conversation, its images, and the snapshots of its files.

Until then it is a session of its own in a hidden folder beside the session, a fork with a note (`NOTE_NAME`) that says whose it is.
`adopt` carries it over in steps that can be repeated after a kill: first the journal names the line, then its file appears under that
number (older versions and kimi-cli keep such a file and pass over it), then come images, sub-agents and snapshots; the fork is removed
last.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimi_tui import lenient_json
from kimi_tui.filesystem import TRANSIENT_ERRORS, Storage, read_regular, remove_tree
from kimi_tui.futures import PREFIX
from kimi_tui.futures.own_agents import carry_agents
from kimi_tui.session.context import scan_world_line
from kimi_tui.session.errors import SessionLocked, UnknownWorldLine
from kimi_tui.session.images import IMAGES_NAME
from kimi_tui.session.journal import FUTURE, Journal
from kimi_tui.session.lock import SessionLock
from kimi_tui.session.rotation import next_number, stored_world_lines, world_line_path
from kimi_tui.session.schema import MessageKind
from kimi_tui.session.session import Session
from kimi_tui.session.world_lines import shared_checkpoints
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.rebuilt_history import line_added
from kimi_tui.soul.stored_agents import has_agents
from kimi_tui.soul.tool_results import pending_calls
from kimi_tui.tools.base import RESULTS_NAME
from kimi_tui.wire.codec import decode_event, encode_event
from kimi_tui.wire.events import FutureChanged, WorldLineAdded
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.tracker import LOG_NAME

if TYPE_CHECKING:
    from kimi_tui.soul.kimisoul import KimiSoul

log = logging.getLogger(__name__)

NOTE_NAME = "future.json"
_MOST_NOTE = 1 << 20
_ANSWERS = frozenset({MessageKind.ANSWER, MessageKind.WORDS})


@dataclass(frozen=True, slots=True)
class FutureNote:
    """The facts about a future that are not in its session, on the disk before its process starts.

    Attributes:
        parent: the id of the session.
        since: the snapshot of the files with which it began.
        n_before: the number of checkpoints with which it began.
        first_line: the number of the first world line that it may leave itself.
        state: its state when the note was written.
    """

    parent: str
    since: str
    n_before: int
    first_line: int
    state: FutureChanged


def write_note(storage: Storage, folder: Path, note: FutureNote) -> None:
    """Write the note of a future, and sync it.

    Raises:
        OSError: the disk refused.
    """
    facts = {**asdict(note), "state": encode_event(note.state)}
    data = json.dumps(facts, ensure_ascii=True).encode()
    temporary = folder / f".{NOTE_NAME}.tmp"
    storage.write_file(temporary, data)
    storage.replace(temporary, folder / NOTE_NAME)
    storage.sync_folder(folder)


def read_note(folder: Path) -> FutureNote | None:
    """Read the note of a future; None if there is none that can be read.

    Raises:
        OSError: it cannot be read at this moment.
    """
    try:
        found: object = json.loads(read_regular(folder / NOTE_NAME, _MOST_NOTE))
    except OSError as error:
        if error.errno in TRANSIENT_ERRORS:
            raise
        return None
    except (ValueError, RecursionError):
        return None
    facts = lenient_json.mapping(found)
    state = decode_event("FutureChanged", lenient_json.mapping(facts.get("state")))
    if not isinstance(state, FutureChanged):
        return None
    count, first = (lenient_json.count(facts.get(name)) or 0 for name in ("n_before", "first_line"))
    parent, since = (lenient_json.text(facts.get(name)) for name in ("parent", "since"))
    return FutureNote(parent, since, count, first, state)


def left_behind(bucket: Path) -> Iterator[tuple[Path, FutureNote | None]]:
    """Yield the sessions of futures in the folder of a work folder's sessions, with their notes. One whose note cannot be read at
    this moment is left out. It reads files.
    """
    with contextlib.suppress(OSError):
        with os.scandir(bucket) as listing:
            names = sorted(
                item.name
                for item in listing
                if item.name.startswith(PREFIX) and item.is_dir(follow_symlinks=False)
            )
        for name in names:
            try:
                note = read_note(bucket / name)
            except OSError as error:
                log.warning("the note of a future cannot be read", exc_info=error)
                continue
            yield bucket / name, note


def is_running(folder: Path) -> bool:
    """Return whether a process has the session of a future open, or that cannot be told at this moment."""
    lock = SessionLock(folder)
    try:
        lock.acquire()
    except SessionLocked:
        return True
    except OSError as error:
        return error.errno in TRANSIENT_ERRORS
    lock.release()
    return False


def n_checkpoints(folder: Path) -> int:
    """Return the number of checkpoints in the session of a future; 0 if it cannot be read."""
    with contextlib.suppress(OSError):
        return len(scan_world_line(Storage(), folder, 0).checkpoints)
    return 0


def next_line(folder: Path) -> int:
    """Return the number of the first world line that the session of a future may leave. It reads files."""
    journal = Journal(folder)
    journal.load()
    return next_number(folder, journal)


def has_step(folder: Path, n_before: int, first_line: int) -> bool:
    """Return whether the session of a future has an answer of a model after its first `n_before` checkpoints.

    A D-Mail of the future may have gone back to one of these; the line that it left, from number `first_line` on, has the answer.

    Raises:
        OSError: the disk refused, so that it is not known.
    """
    if first_line and any(n >= first_line for n in stored_world_lines(folder)):
        return True
    with contextlib.suppress(FileNotFoundError):
        index = scan_world_line(Storage(), folder, 0)
        points = index.checkpoints
        if len(points) > n_before:
            kinds = index.kinds(points[n_before].message_index, index.n_messages)
            return not _ANSWERS.isdisjoint(map(MessageKind, kinds))
        # A compaction leaves fewer checkpoints than there were.
        return 0 < len(points) < n_before
    return False


async def adopt(soul: KimiSoul, fork: Path, state: FutureChanged, since: str) -> FutureChanged:
    """Make a future a world line when nothing runs in its session, and publish the line; return its state with the number of it.

    Lines that the future has left itself, by a D-Mail or a compaction, become world lines too. It may be called again after it failed.

    Args:
        soul: the engine of the session.
        fork: the folder of the future's session; no process has it open.
        state: its last state.
        since: the snapshot with which its files began.

    Raises:
        SoulBusy: the session is being closed.
        OSError: the disk refused; the fork stays.
    """
    state, added = await soul.when_idle(lambda: _adopted(soul, fork, state, since))
    for one in added:
        soul.wire.publish(one)
    return state


async def _adopted(
    soul: KimiSoul, fork: Path, state: FutureChanged, since: str
) -> tuple[FutureChanged, Sequence[WorldLineAdded]]:
    """Make a future a world line; return its state, and the events that tell of the lines."""
    session, folder = soul.session, soul.folder
    if not await asyncio.to_thread(_is_carried_over, session, state.key):
        # Opening it repairs what a killed process has left. A file with a name in another folder is not opened to be written.
        own = Session(fork, session.work_dir, session.storage)
        await own.open()
        await own.aclose()
    state = await asyncio.to_thread(_named, session, state, since)
    left = await asyncio.to_thread(_left_lines, session, fork, state.key)
    await asyncio.to_thread(_carried_over, session, fork, {0: state.world_line, **left})
    if await asyncio.to_thread(_carried_agents, session, fork, state.world_line):
        await soul.take_in_agents()
    if folder.is_on:
        await asyncio.to_thread(_note_checkpoints, fork)
        await folder.run(folder.tracker.adopt, fork / FILES_NAME, since, folder.others)
    lines = [state.world_line, *left.values()]
    added = [
        await asyncio.to_thread(_added, session, n, state.uid, lines[place:])
        for place, n in enumerate(lines)
    ]
    await asyncio.to_thread(remove_tree, fork)
    return state, added


def _is_carried_over(session: Session, key: str) -> bool:
    """Return whether the conversation of a future is a world line already."""
    return any(
        note.get("key") == key and os.path.lexists(world_line_path(session.dir, n))
        for n, note in session.context.journal.futures.items()
    )


def _named(session: Session, state: FutureChanged, since: str) -> FutureChanged:
    """Note in the journal which line a future becomes, unless it has the note already; return the state with that number."""
    journal = session.context.journal
    for n, note in journal.futures.items():
        if note.get("key") == state.key:
            return replace(state, world_line=n)
    n = next_number(session.dir, journal)
    state = replace(state, world_line=n)
    journal.note({"op": FUTURE, "n": n, "since": since, **encode_event(state)})
    journal.file.sync()
    if journal.file.trouble is not None:
        raise journal.file.trouble
    return state


def _left_lines(session: Session, fork: Path, key: str) -> dict[int, int]:
    """Return the world lines that a future has left itself, by their numbers in it, with their numbers in the session, which the
    journal notes.
    """
    note, journal = read_note(fork), session.context.journal
    if note is None or not note.first_line:
        return {}
    known = {one.get("line"): n for n, one in journal.futures.items() if one.get("left_by") == key}
    found: dict[int, int] = {}
    for line in stored_world_lines(fork):
        if line >= note.first_line:
            found[line] = known.get(line) or next_number(session.dir, journal)
            if line not in known:
                journal.note({"op": FUTURE, "n": found[line], "left_by": key, "line": line})
    journal.file.sync()
    if journal.file.trouble is not None:
        raise journal.file.trouble
    return found


def of_future(session: Session, key: str) -> list[int]:
    """Return the world lines of a session that are a future, or were left by it. It reads the session's folder."""
    there = stored_world_lines(session.dir)
    notes = session.context.journal.futures
    return [
        n
        for n, note in notes.items()
        if n in there and key in (note.get("key"), note.get("left_by"))
    ]


def _carried_over(session: Session, fork: Path, lines: Mapping[int, int]) -> None:
    """Link the files of a future's lines, by their numbers in it, its images and its long results, into the session."""
    storage = session.storage
    for line, n in lines.items():
        if not os.path.lexists(target := world_line_path(session.dir, n)):
            storage.link_or_copy(world_line_path(fork, line), target)
    for kind in (IMAGES_NAME, RESULTS_NAME):
        with contextlib.suppress(FileNotFoundError):
            for one in sorted((fork / kind).iterdir()):
                beside = session.dir / kind / one.name
                if one.is_file() and not one.is_symlink() and not os.path.lexists(beside):
                    storage.make_folder(beside.parent)
                    storage.link_or_copy(one, beside)
            storage.sync_folder(session.dir / kind)
    storage.sync_folder(session.dir)


def _carried_agents(session: Session, fork: Path, world_line: int) -> bool:
    """Move the sub-agents of a future into the session; return whether it had some."""
    if not has_agents(fork):
        return False
    line = session.world_lines.read(world_line)
    return carry_agents(session, fork, pending_calls(line)) > 0


def _note_checkpoints(fork: Path) -> None:
    """Give the newest checkpoints of a future its last snapshot if its log lacks them.

    The log's note of a checkpoint is synced with the next snapshot only, so a power cut may take it; no file was changed after it.
    """
    log = SnapshotLog(fork / FILES_NAME / LOG_NAME)
    points = scan_world_line(Storage(), fork, 0).checkpoints
    missing = list(takewhile(lambda point: log.marked_at(point.uid) < 0, reversed(points)))
    if log.last is not None and len(missing) < len(points):
        for point in reversed(missing):
            log.mark(point.uid)


def _added(session: Session, added: int, uid: str, unknown: Collection[int]) -> WorldLineAdded:
    """Return the event for a new line: it begins with the line that shares most checkpoints with it.

    Args:
        session: open.
        added: the number of the line.
        uid: the checkpoint with which its future began.
        unknown: the lines of which no event has told yet.
    """
    lines = session.world_lines
    line = lines.read(added)
    best, n_best, shared = session.context.world_line, 0, -1
    others = [n for n in stored_world_lines(session.dir) if n not in unknown]
    for n in (0, *others):
        with contextlib.suppress(UnknownWorldLine):
            one = session.context.world_line if not n else lines.read(n)
            if (count := shared_checkpoints(one, line)) > shared:
                best, n_best, shared = one, n, count
        if shared and uid in {point.uid for point in best.checkpoints[shared : shared + 1]}:
            break
    return line_added(session, added, line, n_best, best.checkpoints, max(0, shared))


def stored_states(session: Session) -> list[tuple[FutureChanged, Mapping[str, Any]]]:
    """Return the futures that are world lines of a session, with their notes."""
    there = stored_world_lines(session.dir)
    found: list[tuple[FutureChanged, Mapping[str, Any]]] = []
    for n, note in session.context.journal.futures.items():
        state = decode_event("FutureChanged", note)
        if n in there and isinstance(state, FutureChanged):
            found.append((state, note))
    return found
