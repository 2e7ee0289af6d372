"""What file snapshots tell of the calls of a world line, for events that are made from its messages, which have no displays."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from kimi_tui.projection.tool_calls import NAMED_LOST, target
from kimi_tui.tool_cards import DiffBlock, card_of
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import Event
from kimi_tui.workspace.diff import StoredTexts
from kimi_tui.workspace.manifest import ManifestEntry, omitted
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.store import BlobDamaged
from kimi_tui.workspace.tracker import stored_snapshots

_MOST_ROWS = 400
_COUNTED_FILES = 100
"""The largest number of files of a step in which lines are counted, beside those whose cards have a difference."""
_States = tuple[ManifestEntry | None, ManifestEntry | None]
"""The states of a file before a step and after it."""


def with_displays(folder: Path, work_dir: str, events: Sequence[Event]) -> list[Event]:
    """Return the events with the differences that calls made to files, and with the files that each step changed.

    A step whose end no further checkpoint marks stays as it is, and so does a file that several calls of a step changed.

    Args:
        folder: the folder of the session's snapshots. It is read.
        work_dir: the work folder.
        events: the events of a world line in order.
    """
    points = [n for n, one in enumerate(events) if isinstance(one, ev.CheckpointCreated)]
    if not any(isinstance(one, ev.ToolResult) for one in events) or len(points) < 2:
        return list(events)
    log, texts = stored_snapshots(folder)
    found = list(events[: points[0]])
    for n, begin in enumerate(points):
        end = points[n + 1] if n + 1 < len(points) else len(events)
        step, here = events[begin:end], events[begin]
        assert isinstance(here, ev.CheckpointCreated)
        changes: Mapping[str, _States] = {}
        if n + 1 < len(points):
            after = events[end]
            assert isinstance(after, ev.CheckpointCreated)
            changes = _changes(log, here.uid, after.uid)
        found += _step_with(step, here.uid, changes, texts, work_dir) if changes else step
    return found


def _changes(log: SnapshotLog, uid: str, following: str) -> dict[str, _States]:
    """Return the changes of the agent between two checkpoints, by path; empty if they are not known."""
    begin, end = log.marked_at(uid), log.marked_at(following)
    if begin < 0:
        return {}
    found: dict[str, _States] = {}
    for snapshot in log.snapshots[begin + 1 : end + 1]:
        if snapshot.by == "agent":
            before = log.manifest_before(snapshot, snapshot.changed)
            for path, now in snapshot.changed.items():
                found[path] = found[path][0] if path in found else before[path], now
    return {path: states for path, states in found.items() if states[0] != states[1]}


def _step_with(
    step: Sequence[Event],
    uid: str,
    changes: Mapping[str, _States],
    texts: StoredTexts,
    work_dir: str,
) -> list[Event]:
    """Return the events of one step with displays, and the event of its changed files after the last result."""
    arguments: dict[str, str] = {}
    names: dict[str, str] = {}
    paths: dict[str, str] = {}
    last = commands = ""
    for event in step:
        match event:
            case ev.ToolCall(key=key, name=name, arguments=text):
                names[key], arguments[key] = name, text
            case ev.ToolCallPart(key=key, arguments=text):
                arguments[key] = arguments.get(key, "") + text
            case ev.ToolResult(key=key) if key in names:
                card = card_of(names[key])
                last = key
                if card.is_command:
                    commands = key
                elif card.shows == "diff" and not event.is_error:
                    paths[key] = target(card, arguments[key], work_dir)
            case _:
                pass
    then = {path: before for path, (before, _) in changes.items()}
    left_out = omitted(then, {path: after for path, (_, after) in changes.items()})
    called = list(paths.values())
    shown = {path for path in called if path in changes and called.count(path) == 1}
    diffs: dict[str, DiffBlock] = {}
    added = removed = 0
    for path in shown | {*islice(changes, _COUNTED_FILES)}:
        before, after = changes[path]
        diff = None
        with contextlib.suppress(BlobDamaged, OSError):
            diff = texts.compared(before, after, _MOST_ROWS)
        if diff is not None:
            added, removed = added + diff.added, removed + diff.removed
            diffs[path] = DiffBlock(path, diff.added, diff.removed, diff.rows, before is None)
    found: list[Event] = []
    own = shown & diffs.keys()
    # A card with a difference says itself what was changed.
    others = sorted(changes.keys() - {*left_out.ignored} - (own if commands else set[str]()))
    for event in step:
        path = paths.get(event.key, "") if isinstance(event, ev.ToolResult) else ""
        if isinstance(event, ev.ToolResult) and path in own and not event.display:
            found.append(replace(event, display=(diffs[path],)))
        else:
            found.append(event)
        if isinstance(event, ev.ToolResult) and event.key == last and (others or left_out.ignored):
            changed = ev.FilesChanged(
                uid,
                tuple(others),
                added,
                removed,
                len(left_out.lost),
                commands or last,
                tuple(left_out.lost[:NAMED_LOST]),
                len(left_out.ignored),
                tuple(left_out.ignored[:NAMED_LOST]),
            )
            found.append(changed)
    return found
