"""The origin of each line of a file: checkpoint, tool, time and world line, from the session's snapshots and record.

Lines are found by snapshots and not by calls, since commands and people change files without one; the call is found from the
checkpoint of the snapshot.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kimi_tui.app_paths import reason_of
from kimi_tui.filesystem import read_regular
from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.session.session import Session
from kimi_tui.soul.checkpoint_table import timeline_of
from kimi_tui.soul.history import session_history
from kimi_tui.wire.events import EventRecord, FilesChanged, ToolCall
from kimi_tui.workspace.blame import FileBlame, line_origin
from kimi_tui.workspace.diff import MOST_COMPARED_BYTES, StoredTexts, text_of
from kimi_tui.workspace.snapshots import Snapshot, SnapshotLog

Who = Literal["before", "agent", "task", "other"]


@dataclass(frozen=True, slots=True)
class LineAuthor:
    """The author of a line.

    Attributes:
        who: `agent`; `before`: the line was there before the session; `task`: it changed while a background task ran;
            `other`: somebody else wrote it, such as the user or another program.
        at: When it was first seen, in seconds since the epoch; 0 if it is in no snapshot yet.
        uid: The checkpoint of the agent's step; empty for others, or if it is not known.
        checkpoint_id: Its number; -1 if it has none.
        world_line: The number of its world line; 0 is the current one.
        tool: The name of the tool that changed the file.
        agent: The agent beside the session's own that wrote it; empty for the session's own.
    """

    who: Who
    at: float = 0.0
    uid: str = ""
    checkpoint_id: int = -1
    world_line: int = 0
    tool: str = ""
    agent: str = ""


class BlamedLine(NamedTuple):
    """A line without its line feed, and who wrote it."""

    text: str
    author: LineAuthor


class NoBlame(Exception):
    """The lines of a file have no known authors; the message is a sentence for the user."""


def file_and_lines(text: str) -> tuple[str, int, int]:
    """Parse `FILE`, `FILE:10` or `FILE:10-20`; 0 stands for an end that is not given.

    Raises:
        ValueError: the lines are no range.
    """
    found = re.fullmatch(r"(.+):([0-9]{1,9})(?:-([0-9]{1,9}))?", text, re.DOTALL)
    if found is None:
        return text, 0, 0
    name, first, last = found[1], int(found[2]), int(found[3] or found[2])
    if not 0 < first <= last:
        raise ValueError(f"{text!r} names no lines; write FILE:FIRST-LAST, counted from line 1")
    return name, first, last


class Authors:
    """Finds the author of a snapshot's changes.

    Args:
        history: the events of the session.
        timeline: the timeline that they make.
    """

    def __init__(self, history: Iterable[EventRecord], timeline: TimelineModel) -> None:
        self._nodes: dict[str, tuple[int, CheckpointNode]] = {}
        # The current line is last, so that a checkpoint it shares with others is shown there.
        for line in (*timeline.left_lines, 0):
            self._nodes |= {point.uid: (line, point) for point in timeline.path_of(line)}
        self._names: dict[str, str] = {}
        self._changes: dict[str, list[tuple[float, FilesChanged]]] = {}
        for record in history:
            match record.event:
                case ToolCall(key=key, name=name):
                    self._names[key] = name
                case FilesChanged(uid=uid) as event:
                    self._changes.setdefault(uid, []).append((record.at, event))
                case _:
                    pass

    def of(self, log: SnapshotLog, position: int, path: str) -> LineAuthor:
        """Return the author of the change of a file in the snapshot at a place of the log."""
        snapshot = log.snapshots[position]
        match snapshot.by:
            case "first":
                return LineAuthor("before", snapshot.at)
            case "job":
                return LineAuthor("task", snapshot.at)
            case "agent":
                return self._agent(log.checkpoint_before(position), path, snapshot)
            case _:
                return LineAuthor("other", snapshot.at)

    def _agent(self, uid: str, path: str, snapshot: Snapshot) -> LineAuthor:
        line, point = self._nodes.get(uid, (0, None))
        changes = [one for one in self._changes.get(uid, ()) if path in one[1].paths]
        # A change is published as soon as its snapshot is taken.
        after = [change for at, change in changes if at >= snapshot.at]
        tool = self._names.get(after[0].key, "") if after else ""
        return LineAuthor(
            "agent", snapshot.at, uid, point.id if point else -1, line, tool, snapshot.author
        )


class SessionAuthors:
    """The authors of a session's changes, read from its record again only after that has changed. It blocks.

    Args:
        session: the session, whose record is written out.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: tuple[object, Authors] | None = None

    def read(self) -> Authors:
        """Return the authors as they are known now."""
        stamp = self._stamp()
        if self._known is None or self._known[0] != stamp:
            history = session_history(self._session)
            self._known = (stamp, Authors(history, timeline_of(self._session, history)))
        return self._known[1]

    def _stamp(self) -> object:
        """Return what differs after any event was recorded, and after any change of the conversation."""
        found: list[object] = []
        for path in sorted(self._session.dir.glob("*.jsonl")):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((path.name, status.st_ino, status.st_size, status.st_mtime_ns))
        return found


class LineOfDiff(NamedTuple):
    """A line of a diff: its file, the sign, its number on its own side (from 1), and its text or the beginning of it."""

    path: str
    sign: str
    number: int
    text: str


def step_line_author(
    line: LineOfDiff, uid: str, log: SnapshotLog, texts: StoredTexts, authors: Authors
) -> LineAuthor:
    """Return who wrote a line of the diff of a step: a removed one as it was before, any other one as it was after.

    Args:
        line: the line.
        uid: the checkpoint of the step.
        log: the snapshots.
        texts: their contents.
        authors: the authors of the snapshots.

    Raises:
        NoBlame: no snapshot of the step has the line.
    """
    places = log.step_places(uid)
    if places is None:
        raise NoBlame(f'There is no file snapshot of the step that changed "{line.path}".')
    return line_author(line, places[:-1] if line.sign == "-" else places[1:], log, texts, authors)


def line_author(
    line: LineOfDiff, span: range, log: SnapshotLog, texts: StoredTexts, authors: Authors
) -> LineAuthor:
    """Return who wrote a line of a file as it was at one of some snapshots.

    Raises:
        NoBlame: none of them has the line.
    """
    found = line_origin(log, texts, line.path, span, line.number, line.text)
    if found is None:
        raise NoBlame(
            f'No file snapshot has line {line.number} of "{line.path}", so its author is unknown.'
        )
    return authors.of(log, found.position, found.path)


def blame_lines(
    path: str, log: SnapshotLog, blame: FileBlame, authors: Authors, *, root: Path
) -> list[BlamedLine]:
    """Return the lines of a file as it is now, each with its author. Reads files: call it in the thread of the snapshots.

    Args:
        path: the file, relative to the work folder.
        log: the snapshots.
        blame: what is known of the file's lines; it is continued.
        authors: the authors of the snapshots.
        root: the work folder.

    Raises:
        NoBlame: there is no such text file, or no snapshot has it.
    """
    versions = blame.versions()
    if not any(one.entry is not None for one in versions):
        raise NoBlame(f'No file snapshot of this session has "{path}".')
    try:
        content = read_regular(root / path, MOST_COMPARED_BYTES)
    except FileNotFoundError:
        raise NoBlame(
            f'"{path}" does not exist now. Restore it first: rewind to a checkpoint that has the file.'
        ) from None
    except OSError as error:
        raise NoBlame(
            f'"{path}" cannot be read: {reason_of(error, named_in_text=root / path)}.'
        ) from error
    text = text_of(content)
    if text is None:
        raise NoBlame(f'"{path}" is not a text file.')
    names: Mapping[int, str] = {one.position: one.path for one in versions}
    found: dict[int, LineAuthor] = {}
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    blamed: list[BlamedLine] = []
    for line, position in zip(lines, blame.origins(versions, text), strict=True):
        if position not in found:
            is_new = position >= len(log)
            found[position] = (
                LineAuthor("other") if is_new else authors.of(log, position, names[position])
            )
        blamed.append(BlamedLine(line, found[position]))
    return blamed
