"""A session as a sequence of frames: what is in the chat, on the timeline and in the files after each step.

The reducers of a live session make the states (`projection.replay`), so a page shows what the app showed. A frame says only
what differs from the one before it: a session of two thousand steps has some thousand blocks, and each is described once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kimi_tui.projection.blocks import Block
from kimi_tui.projection.replay import ChangedFiles, Recording
from kimi_tui.projection.session_model import SessionModel
from kimi_tui.projection.timeline_tree import CheckpointNode
from kimi_tui.wire.events import EventRecord


class Splice(NamedTuple):
    """A change of a list: its items from `start` on are replaced by these."""

    start: int
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A moment of a session.

    Attributes:
        at_s: its playing time in seconds.
        blocks: the change of the list of visible blocks, by their keys.
        n_past: the number of blocks at the beginning that a summary replaced.
        points: the change of the list of checkpoints of the current world line, as places in `Story.points`.
        tokens: the tokens in the context.
        files: the changed files that were added or whose checkpoint is another one, with its number; None for a file that is
            not changed any more.
    """

    at_s: float
    blocks: Splice
    n_past: int
    points: Splice
    tokens: int
    files: dict[str, int | None] = field(default_factory=dict[str, "int | None"])


@dataclass(slots=True)
class Story:
    """A session, ready to be written.

    Attributes:
        title: its title.
        blocks: each block in its last state, by its key, in the order in which the blocks appeared.
        points: the checkpoints, in the order in which they were made.
        lines: the number of the world line that each checkpoint is on at the end; 0 for the current one.
        line_names: the names of the world lines that were left, by number.
        frames: the moments, oldest first.
        limit: the tokens that the context may hold; 0 if unknown.
        faults: the number of events that could not be shown.
    """

    title: str
    blocks: dict[int, Block] = field(default_factory=dict[int, Block])
    points: list[CheckpointNode] = field(default_factory=list[CheckpointNode])
    lines: list[int] = field(default_factory=list[int])
    line_names: dict[int, str] = field(default_factory=dict[int, str])
    frames: list[Frame] = field(default_factory=list[Frame])
    limit: int = 0
    faults: int = 0

    def moments(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the keys of the visible blocks and the places of the checkpoints after each frame; both lists go on changing."""
        blocks: list[int] = []
        points: list[int] = []
        for frame in self.frames:
            blocks[frame.blocks.start :] = frame.blocks.items
            points[frame.points.start :] = frame.points.items
            yield blocks, points

    def end(self) -> tuple[list[int], list[int]]:
        """Return both as they are after the last frame."""
        return deque(self.moments(), maxlen=1).pop() if self.frames else ([], [])


def tell(
    records: Sequence[EventRecord], work_dir: str, *, all_lines: bool = True, title: str = ""
) -> Story:
    """Return a session as frames. It applies all records: call it in a thread.

    Args:
        records: the events of the session.
        work_dir: the work folder; paths below it are shown relative to it.
        all_lines: false to show only what is on the current world line at the end, as if nothing had ever been left.
        title: the title of the session, if the events name none.
    """
    teller = _Teller(records, work_dir)
    story = teller.told()
    story.title = teller.session.state.title or title or "Untitled session"
    if not all_lines:
        _keep_current(story)
    return story


class _Teller:
    """Applies the records and notes a frame at each stop."""

    def __init__(self, records: Sequence[EventRecord], work_dir: str) -> None:
        self.session = SessionModel(work_dir)
        self._recording = Recording(records)
        self._files = ChangedFiles(self.session.timeline.lines.world_lines)
        self._story = Story("")
        self._keys: list[int] = []
        self._places: dict[str, int] = {}
        self._live: list[CheckpointNode] = []
        self._listed: dict[str, int] = {}
        self._files_changed = False
        self._first = 0

    def told(self) -> Story:
        """Return the story."""
        recording, story = self._recording, self._story
        at = 0
        for stop in recording.stops:
            for record in recording.records[at:stop]:
                self._apply(record)
            at = max(at, stop)
            self._note(recording.time_of(stop))
        timeline = self.session.timeline
        for line in (*timeline.left_lines, 0):
            for point in timeline.path_of(line):
                if point.uid in self._places:
                    story.points[self._places[point.uid]] = point
        current = {point.uid for point in timeline.path_of(0)}
        names = {line: timeline.line_name(line) for line in timeline.left_lines}
        story.line_names = {line: name for line, name in names.items() if name}
        on = {point.uid: line for line in names for point in timeline.path_of(line)}
        story.lines = [
            0 if point.uid in current else on.get(point.uid, -1) for point in story.points
        ]
        story.limit = self.session.gauge.status.limit
        return story

    def _apply(self, record: EventRecord) -> None:
        faults: list[Exception] = []
        change = self.session.apply(record, faults.append).chat
        if change.rebuild:
            self._first = 0
        elif change.first is not None:
            self._first = min(self._first, change.first)
        try:
            self._files_changed |= self._files.apply(record)
        except Exception as error:  # A damaged record must not end an export; its fault is counted.
            faults.append(error)
        self._story.faults += len(faults)

    def _note(self, at_s: float) -> None:
        story, chat = self._story, self.session.chat
        shown = chat.blocks
        first = min(self._first, len(shown), len(self._keys))
        # Blocks that grew since are described anew.
        story.blocks |= {block.key: block for block in shown[first:]}
        keys = [block.key for block in shown[first:]]
        start = _same(self._keys, first, keys)
        blocks = Splice(start, tuple(keys[start - first :]))
        self._keys[start:] = blocks.items
        self._first = len(shown)
        n_past = 0
        while n_past < len(shown) and shown[n_past].is_past:
            n_past += 1
        live = self.session.timeline.path_of(0)
        start = len(self._live)
        # A line mostly grows; its points are compared one by one only where it was cut.
        if live[:start] != self._live:
            start = _same(self._live, 0, live)
        points = Splice(start, tuple(self._place(point) for point in live[start:]))
        self._live = [*live]
        tokens = self.session.gauge.status.used
        story.frames.append(Frame(at_s, blocks, n_past, points, tokens, self._changed_files()))

    def _place(self, point: CheckpointNode) -> int:
        place = self._places.get(point.uid)
        if place is None:
            place = self._places[point.uid] = len(self._story.points)
            self._story.points.append(point)
        return place

    def _changed_files(self) -> dict[str, int | None]:
        if not self._files_changed:
            return {}
        self._files_changed = False
        before, self._listed = self._listed, {one.path: one.id for one in self._files.files}
        return _changes(before, self._listed)


def _changes(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int | None]:
    """Return the files that were added or changed again, and None for those that are not changed any more."""
    changed: dict[str, int | None] = {
        path: number for path, number in now.items() if before.get(path) != number
    }
    return changed | dict.fromkeys(before.keys() - now.keys())


def _files_of(frames: Iterable[Frame]) -> Iterator[dict[str, int]]:
    """Yield the changed files after each frame; the same dictionary, which goes on changing."""
    files: dict[str, int] = {}
    for frame in frames:
        for path, number in frame.files.items():
            files.pop(path, None)
            if number is not None:
                files[path] = number
        yield files


def _same(before: Sequence[object], first: int, now: Sequence[object]) -> int:
    """Return the place from which a list differs, whose items from `first` on are `now`."""
    start = first
    for key, other in zip(before[first:], now, strict=False):
        if key != other:
            break
        start += 1
    return start


def _keep_current(story: Story) -> None:
    """Leave out of a story all that is not there at the end; its frames lead straight to it."""
    keys, path = story.end()
    frames: list[Frame] = []
    kept, points = set(keys), {place: n for n, place in enumerate(path)}
    seen_blocks: list[int] = []
    seen_points: list[int] = []
    last_files = dict(deque(_files_of(story.frames), maxlen=1).pop()) if story.frames else {}
    seen_files: dict[str, int] = {}
    for frame, (shown, live), files in zip(
        story.frames, story.moments(), _files_of(story.frames), strict=True
    ):
        now = [key for key in shown if key in kept]
        now_live = [points[place] for place in live if place in points]
        if now[: len(seen_blocks)] != seen_blocks or (now, now_live) == (seen_blocks, seen_points):
            continue
        blocks = Splice(len(seen_blocks), tuple(now[len(seen_blocks) :]))
        start = _same(seen_points, 0, now_live)
        # A file's change is shown if it is still the file's last one at the end.
        now_files = {path: n for path, n in files.items() if last_files.get(path) == n}
        frames.append(
            Frame(
                frame.at_s,
                blocks,
                min(frame.n_past, len(now)),
                Splice(start, tuple(now_live[start:])),
                frame.tokens,
                _changes(seen_files, now_files),
            )
        )
        seen_blocks, seen_points, seen_files = now, now_live, now_files
    if frames:
        frames[-1].files.update(_changes(seen_files, last_files))
    story.blocks = {key: story.blocks[key] for key in keys}
    story.points = [story.points[place] for place in path]
    story.lines = [0] * len(path)
    story.line_names = {}
    story.frames = frames or story.frames[-1:]
