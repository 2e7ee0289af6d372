"""The history of a session from its context files, for the parts that its record lacks.

The history has each world line that was left, followed by the operation that left it, and the live line last. The events
after a checkpoint come from the pieces of the record that belong to it, if there are any (also of kimi-cli's); the rest is
made from the messages, without times and diffs. `end_of_context` is the short form: the last turns of the live file alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from kimi_tui import lenient_json
from kimi_tui.filesystem import open_regular
from kimi_tui.foreign_text import one_line
from kimi_tui.llm.message import Message, TextPart, ThinkPart
from kimi_tui.projection.world_lines import CheckpointName, WorldLines
from kimi_tui.prompts import INTERRUPTED, KILLED
from kimi_tui.session.context import Context, scan_world_line
from kimi_tui.session.context_index import EMPTY_WORLD_LINE, StoredMessages, WorldLineContent
from kimi_tui.session.errors import UnknownWorldLine
from kimi_tui.session.journal import FUTURE, JournalEntry
from kimi_tui.session.jsonl import parse
from kimi_tui.session.rotation import LIVE_NAME, stored_world_lines, world_line_path
from kimi_tui.session.schema import CHECKPOINT, MESSAGE_ROLES, Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.session.world_lines import StoredWorldLines, WorldLine, shared_checkpoints
from kimi_tui.soul.bookmarks import root_of
from kimi_tui.soul.folder_snapshots import FILES_NAME
from kimi_tui.soul.messages import (
    Segment,
    answered_words,
    author_of,
    checkpoint_created,
    command_report,
    dmail_text,
    ends_open,
    image_blocks,
    internal_kind,
    is_user_words,
    label_of_message,
    segments,
    summary_text,
    words_with_images,
)
from kimi_tui.soul.record import (
    END_BYTES,
    LARGE_END_BYTES,
    KimiCliRecord,
    RecordedUnit,
    follow_line,
    records_by_checkpoint,
)
from kimi_tui.soul.snapshot_displays import with_displays
from kimi_tui.soul.token_meter import WorldLineTokens
from kimi_tui.soul.tool_results import call_key, outcome_of, was_stopped
from kimi_tui.tool_cards import OWN_COMMAND
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import (
    SUMMARIES,
    SWITCHES,
    CheckpointCreated,
    CheckpointKind,
    Event,
    EventRecord,
    LineChanged,
    Operation,
    StepBegin,
    TurnBegin,
    TurnEnd,
)

log = logging.getLogger(__name__)

_Named = Checkpoint | CheckpointName
_VISITOR = 1 << 30
"""The number of the live line while a future is visited; no file has this number."""
_REASONS = frozenset({"rewind", "dmail", "compaction", "clear", "jump", "undo", "redo"})


def rebuild_history(
    session: Session, records: Sequence[EventRecord], incomplete: Collection[str] = ()
) -> list[EventRecord]:
    """Rebuild the history of a session: each world line that was left, how it was left, and the live one last.

    Args:
        session: open.
        records: the record, as far as it can be read.
        incomplete: the uids of checkpoints of which the record lacks something: the messages tell of them.
    """
    context = session.context
    # One reader serves all lines, since it remembers what it read.
    world_lines = StoredWorldLines(context.folder, context.journal, context.storage)
    builder = _HistoryBuilder(session, records, incomplete=incomplete)
    shown = EMPTY_WORLD_LINE
    shown_as: WorldLine | None = None
    left: dict[int, WorldLine] = {}
    cuts = _cuts(context.journal.entries)
    lines = world_lines.list(context.world_line)
    others = [one for one in lines if one.reason != FUTURE]
    futures = _after_lines([one for one in lines if one.reason == FUTURE], others, context)
    for place, world_line in enumerate([*others, None]):
        line = context.world_line if world_line is None else world_lines.read(world_line.n)
        builder.begin_world_line(line)
        made = cuts.get(0 if world_line is None else world_line.n)
        if made and shown_as and (was := {**left, shown_as.n: shown_as}.get(made.n)):
            # The line that was cut then need not be the one shown now: the user may have gone back to another line, or to the
            # beginning of this one.
            there = world_lines.read(was.n)
            n_there = sum(point.offset < made.size for point in there.checkpoints)
            if was is not shown_as:
                builder.add_switch(shown_as, was, n_there)
                left[shown_as.n] = shown_as
            elif n_there < len(shown.checkpoints):
                builder.add_revert(shown_as, shown, n_there, ())
            shown = _first_of(there, n_there)
            shown_as = replace(was, reason=made.op, left_by=made, left_before=())
        shared = shared_checkpoints(shown, line)
        parts = segments(line, shared)
        if shared < len(shown.checkpoints) and shown_as is not None:
            back, most = _parted_later(world_lines, left, line, shared)
            if back is None:
                builder.add_revert(shown_as, shown, shared, parts)
            else:
                parts = segments(line, most)
                builder.add_switch(shown_as, back, most)
            left[shown_as.n] = shown_as
        following: Sequence[Segment] = ()
        if parts:
            builder.add_segment(parts[0])
            following = builder.end_compaction(parts[1:], segments(shown))
        for segment in following:
            builder.add_segment(segment)
        shown, shown_as = line, world_line
        for one in futures[place]:
            there = world_lines.read(one.n)
            n_shared = shared_checkpoints(shown, there)
            from_line = 0
            for known in left.values():
                if (more := shared_checkpoints(world_lines.read(known.n), there)) > n_shared:
                    n_shared, from_line = more, known.n
            builder.add_future(one, there, shown if not from_line else left[from_line], n_shared)
            left[one.n] = one
    return builder.finish(is_open=ends_open(context.messages))


def _after_lines(
    futures: Sequence[WorldLine], others: Sequence[WorldLine], context: Context
) -> list[list[WorldLine]]:
    """Return the futures by the place of the line behind which each is told; the live line is the last place.

    A future begins like a line that was shown before the next one took its place. One that was made current, and went on, has
    its checkpoints in that line too, so it is told behind the line that has most of them, as a beginning of it.
    """
    shown = [*(one.checkpoints for one in others), context.checkpoints]
    found: list[list[WorldLine]] = [[] for _ in shown]
    for future in futures:
        common = [_n_common(line, future.checkpoints) for line in shown]
        by_number = sum(one.n < future.n for one in others)
        found[max(by_number, common.index(max(common)))].append(future)
    return found


def _n_common(one: Sequence[_Named], other: Sequence[_Named]) -> int:
    """Return how many first checkpoints two lines have in common, by their uids."""
    # Lines that share a checkpoint share all before it.
    both = range(min(len(one), len(other)))
    return bisect_left(both, True, key=lambda place: one[place].uid != other[place].uid)


def _first_of(line: WorldLineContent, n_checkpoints: int) -> WorldLineContent:
    """Return the checkpoints and messages that precede a checkpoint of a line, by its place; the whole line if it has no more."""
    following = line.checkpoints[n_checkpoints:]
    if not following:
        return line
    point = following[0]
    return WorldLineContent(line.index.prefix(point.offset), line.messages[: point.message_index])


def _cuts(entries: Iterable[JournalEntry]) -> dict[int, JournalEntry]:
    """Return the operations that cut a line and so began another one, by that one's present number (0: the live one)."""
    found: dict[int, JournalEntry] = {}
    last: JournalEntry | None = None
    for entry in (one for one in entries if one.changes_line):
        if entry.stored and last is not None:
            found.setdefault(entry.n, last)
        last = entry
    if last is not None:
        found[0] = last
    return {n: entry for n, entry in found.items() if entry.op not in SWITCHES}


def with_futures_told(session: Session, records: Sequence[EventRecord]) -> Sequence[EventRecord]:
    """Return the record of a session with what it lacks of the futures to which the user switched.

    The record has only the checkpoints of a future. So at a switch to one its messages are told, from the file of its line, which
    never changes: the record may be that of a session in which a turn runs, whose context is ahead of it. It reads files.

    Args:
        session: it may be open elsewhere.
        records: its record, up to any event.
    """
    added = {one.event.n for one in records if isinstance(one.event, ev.WorldLineAdded)}
    if not added or not any(
        isinstance(event := one.event, LineChanged)
        and event.op in SWITCHES
        and event.to_line in added
        for one in records
    ):
        return records
    lines = WorldLines[CheckpointName]()
    stored = StoredWorldLines(session.context.folder, session.context.journal, session.storage)
    found: list[EventRecord] = []
    untold: dict[int, _Untold] = {}
    for record in records:
        told = [record]
        match record.event:
            case ev.WorldLineAdded(n=n) as event:
                untold[n] = _Untold(event)
            case LineChanged(op=op, to_line=n) if op in SWITCHES and n in untold:
                # A line that was deleted since cannot be read if no other one began with all of it.
                with contextlib.suppress(UnknownWorldLine):
                    told = _switch_told(session, records, record, lines, stored, untold)
            case _:
                pass
        for one in told:
            edit = follow_line(lines, one)
            if edit is not None:
                # The line that was left was the current one as a whole, so all of it was told.
                untold.pop(edit.left, None)
        found += told
    return found


def with_futures_visited(session: Session, records: Sequence[EventRecord]) -> Sequence[EventRecord]:
    """Return the record of a session as if the user had switched to each future when it became a world line, and back at once.

    The record has only the checkpoints of a future that was never current, and `with_futures_told` tells its messages at a switch.
    Lines that were deleted are not visited.

    Args:
        session: it may be open elsewhere.
        records: its record.
    """
    there = stored_world_lines(session.dir)
    lines = WorldLines[CheckpointName]()
    found: list[EventRecord] = []
    for record in records:
        follow_line(lines, record)
        found.append(record)
        event = record.event
        if isinstance(event, ev.WorldLineAdded) and event.n in there and event.n in lines.left:
            live, path = lines.live.points, lines.left[event.n].path.points
            found += [record._replace(event=one) for one in _visit(event.n, live, path)]
    return found


def _visit(n: int, live: Sequence[_Named], path: Sequence[_Named]) -> list[Event]:
    """Return the events of a switch to line `n`, whose checkpoints are `path`, and back to the live line."""
    shared = _n_common(live, path)
    if shared == len(path):
        return []
    if shared == len(live):
        # The live line has no file of its own then, as it is the beginning of this one.
        away = LineChanged("jump", 0, n, "")
        return [away, LineChanged("undo", n, n, path[shared].uid)]
    away, back = LineChanged("jump", _VISITOR, n, ""), LineChanged("undo", n, _VISITOR, "")
    left = ev.FutureChanged("", "", 0, world_line=_VISITOR, removed_at=1.0)
    return [away, back, left]


def _line_added(
    session: Session, stored: StoredWorldLines, added: ev.WorldLineAdded, until: str
) -> WorldLineContent:
    """Return the line that an event tells of: from its file, or from that of a line that went on behind it if it was deleted.

    Of a deleted one only what is before the checkpoint `until` is sure to be returned; empty for all of it. The live line is read
    from its file as well, as a turn may be appending to its index.

    Raises:
        UnknownWorldLine: it cannot be read.
    """
    try:
        return stored.read(added.n)
    except UnknownWorldLine:
        uids = added.uids[: added.uids.index(until)] if until in added.uids else added.uids
        if not uids:
            raise
    storage, folder = session.storage, session.context.folder
    for n in (0, *stored_world_lines(folder)):
        with contextlib.suppress(UnknownWorldLine, OSError):
            index = scan_world_line(storage, folder, 0) if not n else stored.index(n)
            places = {point.uid: place for place, point in enumerate(index.checkpoints)}
            if (place := places.get(uids[-1])) is not None:
                messages = StoredMessages(storage, world_line_path(folder, n), index)
                return _first_of(WorldLineContent(index, messages), place + 1)
    raise UnknownWorldLine(f"World line {added.n} was deleted.")


@dataclass(slots=True)
class _Untold:
    """A line of which the record has only the checkpoints; the messages at the first `n_told` of them were told at a switch to it."""

    added: ev.WorldLineAdded
    n_told: int = 0


def _switch_told(
    session: Session,
    records: Sequence[EventRecord],
    switch: EventRecord,
    lines: WorldLines[CheckpointName],
    stored: StoredWorldLines,
    untold: Mapping[int, _Untold],
) -> list[EventRecord]:
    """Return the events of a switch to a line, with its messages, which the record lacks.

    Args:
        session: open.
        records: the whole record.
        switch: the switch.
        lines: the lines before it.
        stored: reads lines.
        untold: the lines of futures of which only the checkpoints were told, by number.

    Raises:
        UnknownWorldLine: the line cannot be read.
    """
    event = switch.event
    assert isinstance(event, LineChanged)
    n, live = event.to_line, lines.live.points
    line = _line_added(session, stored, untold[n].added, event.uid)
    points = line.checkpoints
    end = len(points)
    if event.uid:
        end = next((place for place, one in enumerate(points) if one.uid == event.uid), end)
    shared = min(_n_common(live, points), end)
    builder = _HistoryBuilder(session, records)
    builder.begin_world_line(line)
    if shared < len(live):
        builder.add_cut(live[shared], live[-1].id, event.from_line, line, shared)
    for segment in segments(line, shared, end):
        builder.add_segment(segment)
    ended = _end_of_future(session, n, line) if end == len(points) else None
    made = [one.event for one in builder.finish(ended=ended)]
    try:
        told = with_displays(session.dir / FILES_NAME, str(session.work_dir), made)
    except Exception:
        log.exception("what a future changed cannot be read from the snapshots")
        told = list(made)
    if end > untold[n].n_told:
        untold[n].n_told = end
        # The current line is now a beginning of this one, or this one of it. The lines that fork off this one are told again, too.
        rest = line_added(session, n, line, 0, points[:end], end)
        told.append(replace(rest, uid="", key=untold[n].added.key))
        renewed = {n}
        for number, one in untold.items():
            if one.added.from_line in renewed:
                renewed.add(number)
                told.append(one.added)
    told.append(replace(event, op="jump", to_line=0))
    return [switch._replace(event=one) for one in told]


def _parted_later(
    world_lines: StoredWorldLines,
    left: Mapping[int, WorldLine],
    line: WorldLineContent,
    shared: int,
) -> tuple[WorldLine | None, int]:
    """Return the line that was left and shares most checkpoints with `line`, more than `shared`, and how many they share.

    The user went back to that line by a jump, an undo or a redo. A future is none: only its checkpoints are told before it is shown.
    """
    points = line.checkpoints
    found: WorldLine | None = None
    for one in left.values():
        # A uid comes only once, so a look at one place is nearly always enough.
        if (
            one.reason != FUTURE
            and shared < min(len(points), len(one.checkpoints))
            and one.checkpoints[shared].uid == points[shared].uid
        ):
            most = shared_checkpoints(world_lines.read(one.n), line)
            if most > shared:
                found, shared = one, most
    return found, shared


def line_added(
    session: Session,
    n: int,
    line: WorldLineContent,
    from_line: int,
    beginning: Sequence[Checkpoint],
    shared: int,
) -> ev.WorldLineAdded:
    """Return the event for a future that became a world line.

    Args:
        session: open.
        n: the number of the line; `line` is its content.
        from_line: the line with which it begins; `beginning` are the checkpoints of that one.
        shared: how many of them it shares.
    """
    own = segments(line, shared)
    note = session.context.journal.futures.get(n, {})
    return ev.WorldLineAdded(
        n=n,
        key=lenient_json.text(note.get("key")) or lenient_json.text(note.get("left_by")),
        from_line=from_line,
        uid=beginning[shared].uid if shared < len(beginning) else "",
        ids=tuple(one.point.id for one in own),
        uids=tuple(one.point.uid for one in own),
        kinds=tuple(one.kind for one in own),
        labels=tuple("" if one.kind in SUMMARIES else one.label for one in own),
    )


def rebuild_world_line(
    session: Session,
    records: Sequence[EventRecord],
    n: int,
    dmails: Mapping[str, ev.ContextReverted] | None = None,
    first: int = 0,
    incomplete: Collection[str] = (),
) -> list[EventRecord]:
    """Rebuild the events of one world line, as it was when it was left.

    Args:
        session: open.
        records: the record, as far as it can be read.
        n: the number of the line; 0 for the live one.
        dmails: how D-Mails were delivered, as far as that is known, by the uids of their checkpoints.
        first: the place of the checkpoint to begin at.
        incomplete: the uids of checkpoints of which the record lacks something.

    Raises:
        KeyError: there is no such world line.
    """
    context = session.context
    world_lines = StoredWorldLines(context.folder, context.journal, context.storage)
    line = world_lines.read(n) if n else context.world_line
    builder = _HistoryBuilder(session, records, dmails, incomplete)
    builder.begin_world_line(line)
    for segment in segments(line, first):
        builder.add_segment(segment)
    # If the agent left the line by a D-Mail, the step that sent it ended there.
    is_open = any(entry.op == "dmail" and entry.n == n for entry in context.journal.entries)
    return builder.finish(is_open=is_open, ended=_end_of_future(session, n, line))


def _end_of_future(session: Session, n: int, line: WorldLineContent) -> TurnEnd | None:
    """Return the end of the last turn of line `n`, which has no answer, if the line is a future and its note says why; else None."""
    note = session.context.journal.futures.get(n)
    if note is None or not ends_open(line.messages):
        return None
    why = lenient_json.text(note.get("why"))
    match note.get("state"):
        case "failed":
            return TurnEnd("error", why)
        case "stopped" if not why:
            return TurnEnd("interrupted")
        case _:
            return None


class _HistoryBuilder:
    """Collects the records of a history, numbers them and keeps their times in order.

    Args:
        session: open.
        records: the record, as far as it can be read.
        dmails: how D-Mails were delivered whose line is not among those that are added, by the uids of their checkpoints.
        incomplete: the uids of checkpoints of which the record lacks something.
    """

    def __init__(
        self,
        session: Session,
        records: Sequence[EventRecord],
        dmails: Mapping[str, ev.ContextReverted] | None = None,
        incomplete: Collection[str] = (),
    ) -> None:
        self._session = session
        self._dmails = dmails or {}
        self._recorded = records_by_checkpoint(records, incomplete)
        self._restored = [one for one in records if isinstance(one.event, ev.FilesRestored)]
        self._kimi_cli = KimiCliRecord(records)
        entries = session.context.journal.entries
        self._compactions = {entry.text: entry for entry in entries if entry.op == "compaction"}
        self._records: list[EventRecord] = []
        self._at = 0.0
        self._in_turn = False
        self._n = 0
        self._stopped = False
        self._cut = False
        """Whether the program was killed before this: an answer says so, or a call has no result."""
        self._failed = False
        """Whether the model call of the last step failed: what it had said and is not kept goes with the end of the turn."""
        self._broken: str | None = None
        """Why the newest answer broke off; None if it did not."""
        self._compaction: ev.CompactionEnd | None = None
        self._dmail_published = False
        self._tokens = WorldLineTokens(EMPTY_WORLD_LINE)

    def begin_world_line(self, line: WorldLineContent) -> None:
        """Begin a world line: the segments that are added from now on belong to it."""
        self._tokens = WorldLineTokens(line)

    def add_revert(
        self,
        world_line: WorldLine,
        was_shown: WorldLineContent,
        shared: int,
        parts: Sequence[Segment],
    ) -> None:
        """Add that the live world line was cut back to its first `shared` checkpoints.

        Args:
            world_line: the line that was live until then.
            was_shown: the content of that line.
            shared: how many of the checkpoints stay.
            parts: the segments that follow after the cut.
        """
        shown, left_by, was = was_shown.checkpoints, world_line.left_by, world_line.reason
        is_compacted = bool(parts) and parts[0].kind in SUMMARIES
        if world_line.left_before and is_compacted != (was == "compaction"):
            # The line was live again later; this call is about the time before.
            left_by = world_line.left_before[-1]
            was = left_by.op
        at = self._left_at(left_by)
        dmail = _dmail_of(parts[0]) if parts and was == "dmail" else None
        fits = {"compaction": is_compacted, "clear": shared == 0, "dmail": dmail is not None}
        if not fits.get(was, was in _REASONS):
            # The operation does not fit what follows, so the next line did not come from it.
            was = "rewind"
        if was == "compaction":
            # This event is added when the summary's checkpoint is there.
            self._compaction = ev.CompactionEnd(
                left_by.tokens_before,
                left_by.tokens_after,
                left_by.text,
                world_line.n,
            )
            if shared == 0:
                # This event ends the text before it. The files do not tell who asked for the compaction.
                self._add(ev.CompactionBegin(left_by.tokens_before, automatic=False), at)
                return
        cut = shown[shared]
        self._dmail_published = dmail is not None
        self._add(
            ev.ContextReverted(
                reason=cast("Operation", was),
                checkpoint_id=cut.id,
                uid=cut.uid,
                from_checkpoint=shown[-1].id,
                world_line=world_line.n,
                messages_dropped=left_by.messages_dropped,
                tool_calls_dropped=0,
                tokens_before=left_by.tokens_before,
                tokens_after=left_by.tokens_after,
                text="" if dmail is None else dmail_text(dmail) or "",
                carried=() if dmail is None else _carried_with(dmail, parts[0]),
                pinned=()
                if dmail is None
                else _names(_before(dmail, parts[0]), segments(was_shown, shared)),
                author="agent" if dmail is None else author_of(dmail),
            ),
            at,
        )
        if left_by.op == was:
            self._add_files(left_by, cut.uid, at)

    def add_cut(
        self, cut: CheckpointName, newest: int, left: int, line: WorldLineContent, shared: int
    ) -> None:
        """Add that the live world line was cut back for a switch.

        Args:
            cut: its first checkpoint that is gone.
            newest: the number of its newest one.
            left: the number of the line that was left.
            line: the line to which the user switched.
            shared: how many checkpoints both have.
        """
        points = line.checkpoints
        offset = points[shared].offset if shared < len(points) else line.index.size
        tokens = self._tokens.before(offset).tokens
        reverted = ev.ContextReverted(
            reason="jump",
            checkpoint_id=cut.id,
            uid=cut.uid,
            from_checkpoint=newest,
            world_line=left,
            messages_dropped=0,
            tool_calls_dropped=0,
            tokens_before=tokens,
            tokens_after=tokens,
        )
        self._add(reverted, self._at)

    def _left_at(self, left_by: JournalEntry) -> float:
        """Return when a line was left, in seconds since 1970.

        For kimi-cli's lines this is the time of a file, which a copy may have made later than the next events.
        """
        return min(ev.iso_seconds(left_by.at), self._kimi_cli.next_at)

    def _add_files(self, entry: JournalEntry, uid: str, at: float) -> None:
        """Add that working files came back with an operation: as it was recorded, else as it was journaled."""
        if not entry.paths:
            return
        wanted = frozenset(entry.paths)
        for record in self._restored:
            restored = record.event
            assert isinstance(restored, ev.FilesRestored)
            if (
                restored.uid == uid
                and record.at >= at
                and wanted.issuperset(restored.restored + restored.deleted)
            ):
                break
        else:
            restored = ev.FilesRestored(uid, entry.paths)
        self._add(restored, at)

    def add_future(
        self,
        future: WorldLine,
        line: WorldLineContent,
        beginning: WorldLineContent | WorldLine,
        shared: int,
    ) -> None:
        """Add a line that was never the live one.

        Args:
            future: the line; `line` is its content.
            beginning: the line that has its first checkpoints, the one that is shown or one that was left.
            shared: how many of them it shares.
        """
        n = beginning.n if isinstance(beginning, WorldLine) else 0
        self._add(
            line_added(self._session, future.n, line, n, beginning.checkpoints, shared), self._at
        )

    def add_switch(self, world_line: WorldLine, back: WorldLine, shared: int) -> None:
        """Add that the first `shared` checkpoints of `back` took the place of `world_line` (jump, undo or redo)."""
        op = world_line.reason if world_line.reason in SWITCHES else "jump"
        goes = back.checkpoints[shared].uid if shared < len(back.checkpoints) else ""
        self._dmail_published = False
        changed = ev.LineChanged(op, world_line.n, back.n, goes)
        at = ev.iso_seconds(world_line.left_by.at)
        self._add(changed, at)
        if world_line.left_by.op == op:
            self._add_files(world_line.left_by, "", at)

    def end_compaction(
        self, parts: Sequence[Segment], shown: Sequence[Segment]
    ) -> Sequence[Segment]:
        """Add, after the segment of a summary, the end of the compaction that made it, if one did.

        Args:
            parts: the segments that follow; those whose checkpoints were renumbered move after the summary.
            shown: the segments that were shown until then.

        Returns:
            The segments that have not been added yet.
        """
        compaction, self._compaction = self._compaction, None
        if compaction is None:
            return parts
        names = {root_of(one.point): one for one in shown}
        times = {one.point.at: one for one in shown}
        n_moved = 0
        for segment in parts:
            # If not all of the checkpoint was kept it has no earlier name, but it has the earlier one's time.
            point = segment.point
            old = names.get(point.was) if point.was else times.get(point.at)
            kept = _kept_of(old, segment) if old is not None else None
            if old is None or kept is None:
                break
            said = tuple(map(label_of_message, segment.words))
            moved = replace(self._created(segment), was=old.point.uid, kept=kept, said=said)
            self._add(replace(moved, carried=len(segment.carried)), self._at)
            n_moved += 1
        self._add(compaction, self._at)
        return parts[n_moved:]

    def add_segment(self, segment: Segment) -> None:
        """Add the events after a checkpoint: as recorded, else made from the messages."""
        recorded = self._recorded.get(segment.point.uid)
        dmail, is_published = _dmail_of(segment), self._dmail_published
        self._dmail_published = False
        if dmail is not None and not is_published:
            before = _before(dmail, segment)
            if not all(map(is_user_words, before)):
                self._add_dmail(segment, dmail, before, recorded)
                return
            at = recorded[0].at if recorded else ev.iso_seconds(segment.point.at)
            tokens, carried = (
                self._tokens.before(segment.point.offset).tokens,
                _carried_with(dmail, segment),
            )
            event = _dmail_event(dmail, segment.point, tokens, carried)
            sent = self._dmails.get(segment.point.uid)
            if sent is not None and sent.checkpoint_id == event.checkpoint_id:
                event = replace(
                    event,
                    from_checkpoint=sent.from_checkpoint,
                    tool_calls_dropped=sent.tool_calls_dropped,
                    tokens_before=sent.tokens_before,
                    tokens_after=sent.tokens_after,
                )
            self._add(event, at)
        texts = () if dmail is not None else map(summary_text, segment.messages)
        summary = next(filter(None, texts), "")
        if summary and self._compaction is None:
            self._add_summary(segment, summary)
            return
        # Old records lack the messages that a compaction kept beside its summary.
        self._add_events(segment, None if summary else recorded)

    def _add_dmail(
        self,
        segment: Segment,
        dmail: Message,
        before: Sequence[Message],
        recorded: Sequence[EventRecord] | None,
    ) -> None:
        """Add a D-Mail with the pinned messages before it, whose first places no line tells."""
        point, at = segment.point, ev.iso_seconds(segment.point.at)
        rest = list(recorded or ())
        while rest and not isinstance(rest[0].event, CheckpointCreated):
            del rest[0]
        self._add(rest[0].event if rest else self._created(segment), at)
        self._add_messages(point, segment.messages if not rest else [*before, dmail], at)
        for record in rest[1:]:
            self._add(record.event, record.at)

    def _add_summary(self, segment: Segment, summary: str) -> None:
        """Add a summary of which no line tells the replaced part, with the messages that were kept beside it."""
        point, at = segment.point, ev.iso_seconds(segment.point.at)
        created = self._created(segment)
        self._add(created, at)
        made = self._compactions.get(summary)
        figures = (
            (created.tokens, created.tokens)
            if made is None
            else (made.tokens_before, made.tokens_after)
        )
        self._add(ev.CompactionEnd(*figures, summary), at)
        lead = next(n for n, m in enumerate(segment.messages) if summary_text(m) is not None)
        self._add_messages(point, segment.messages, at, lead + 1)

    def _add_messages(
        self, point: Checkpoint, messages: Sequence[Message], at: float, first: int = 0
    ) -> None:
        """Add the messages after a checkpoint, from message `first` on, including D-Mails and carried summaries."""
        tokens = self._tokens.before(point.offset).tokens
        for place, message in enumerate([*messages[first:], None], first):
            if message is not None and internal_kind(message) not in ("dmail", "compaction"):
                continue
            for event in events_from_messages(messages[first:place], point.uid, first):
                self._add(event, at)
            self._cut = _was_killed(messages[first:place])
            first = place + 1
            if message is None:
                return
            summary = summary_text(message) or ""
            self._add(ev.NextMessage(place, summary), at)
            if dmail_text(message) is not None:
                self._add(_dmail_event(message, point, tokens, uid=point.uid), at)

    def _add_events(self, segment: Segment, recorded: Sequence[EventRecord] | None) -> None:
        if recorded:
            for record in recorded:
                self._add(record.event, record.at)
            return
        unit = self._kimi_cli_unit(segment)
        at = ev.iso_seconds(segment.point.at) or (unit.at if unit is not None else 0.0)
        place = 0
        for event in self._events_of(segment):
            if isinstance(event, ev.ToolResult) and unit is not None:
                self._add(replace(event, display=unit.display(place)), at)
                place += 1
            else:
                self._add(event, at)
        self._cut = _was_killed(segment.messages)

    def _kimi_cli_unit(self, segment: Segment) -> RecordedUnit | None:
        if segment.kind == "user":
            return self._kimi_cli.turn(segment.user_words)
        if segment.kind != "step":
            return None
        calls = [call for m in segment.messages for call in m.tool_calls or ()]
        return self._kimi_cli.step([call.function.name for call in calls])

    def finish(self, *, is_open: bool = False, ended: TurnEnd | None = None) -> list[EventRecord]:
        """Return the records.

        Args:
            is_open: whether the conversation ends within a turn.
            ended: how its last turn ended, if that is known.
        """
        # A turn without an end had its program killed: no listener heard the turn end.
        if self._in_turn and ended is not None and not self._stopped and self._broken is None:
            self._add(replace(ended, killed=self._cut), self._at)
        elif self._in_turn and (
            self._stopped or self._failed or self._broken is not None or not is_open
        ):
            self._add(self._end_of_turn, self._at)
        return self._records

    @property
    def _end_of_turn(self) -> TurnEnd:
        """The end of the turn that is open, as far as its messages tell it."""
        if self._broken is not None:
            return TurnEnd("error", self._broken, kind="model")
        killed = (self._cut or self._failed) and not self._stopped
        kind = "model" if self._failed else ""
        reason = "interrupted" if self._stopped or killed else "done"
        return TurnEnd(reason, kind=kind, killed=killed)

    def _add(self, event: Event, at: float) -> None:
        if isinstance(event, ev.TurnBegin) and self._in_turn:
            # The time without events belongs to the user.
            self._records.append(self._record(self._end_of_turn))
        if (
            isinstance(event, StepBegin)
            and self._in_turn
            and (self._cut or self._broken is not None)
        ):
            # The user had the turn continue that was killed, or whose answer broke off.
            self._records.append(self._record(self._end_of_turn))
            self._records.append(self._record(TurnBegin("", resumed=True)))
            self._cut = False
        self._at = max(self._at, at)
        match event:
            case ev.TurnBegin():
                self._in_turn, self._n, self._broken = True, 0, None
                self._stopped = self._cut = self._failed = False
            case ev.TurnEnd():
                if not self._in_turn:
                    return
                self._in_turn = False
            case ev.StepBegin(n):
                if not self._in_turn:
                    # A D-Mail's checkpoint begins no turn, but an error in its steps ends one all the same.
                    self._records.append(self._record(ev.TurnBegin("", resumed=True)))
                    self._in_turn = True
                self._n = n
                self._stopped, self._failed, self._broken = False, False, None
            case ev.StepInterrupted(failed=failed):
                self._stopped, self._failed = not failed, failed
            case ev.AnswerBroken(reason):
                self._broken = reason
            case ev.ContextReverted():
                # The stopped step was dropped with the messages after the cut.
                self._stopped = self._cut = self._failed = False
                self._broken = None
            case _:
                pass
        self._records.append(self._record(event))

    def _record(self, event: Event) -> EventRecord:
        return EventRecord(len(self._records) + 1, self._at, event)

    def _created(self, segment: Segment) -> CheckpointCreated:
        point, kind = segment.point, segment.kind
        label = "" if kind in SUMMARIES else segment.label
        figure = self._tokens.at(point, kind)
        return checkpoint_created(point, kind, label, figure, first=segment.first)

    def _events_of(self, segment: Segment) -> Iterator[Event]:
        point, kind, created = segment.point, segment.kind, self._created(segment)
        if kind == "user":
            words = next(n for n, m in enumerate(segment.messages) if is_user_words(m))
            said = segment.messages[words]
            yield ev.TurnBegin(said.text, images=image_blocks(said))
            yield created
            if said.attached:
                yield ev.FilesAttached(0, said.attached)
            yield from events_from_messages(
                segment.messages[words + 1 :], point.uid, words + 1, said.text
            )
            return
        if kind != "step":
            yield created
            dmail = _dmail_of(segment)
            first = 0 if dmail is None else len(_before(dmail, segment)) + 1
            yield from events_from_messages(segment.messages[first:], point.uid, first)
            return
        if not self._in_turn:
            yield ev.TurnBegin("", resumed=True)
        yield ev.StepBegin(self._n + 1)
        yield created
        yield from events_from_messages(segment.messages, point.uid)


def _kept_of(old: Segment, kept: Segment) -> tuple[int, ...] | None:
    """Return the numbers in `old` of the messages that a compaction kept; None if they are no part of it."""
    if kept.point.was:
        # This holds for a step without messages, too.
        return tuple(range(len(kept.messages)))
    before, found = list(map(answered_words, old.messages)), list[int]()
    for message in map(answered_words, kept.messages):
        first = found[-1] + 1 if found else 0
        if message not in before[first:]:
            return None
        found.append(before.index(message, first))
    return tuple(found) or None


def _dmail_of(segment: Segment) -> Message | None:
    """Return the D-Mail that a segment brought; None if it brought none."""
    if segment.kind != "dmail":
        return None
    # A pinned D-Mail may stand before the one that arrived.
    return next((m for m in reversed(segment.messages) if dmail_text(m) is not None), None)


def _carried_with(dmail: Message, segment: Segment) -> tuple[str, ...]:
    """Return the user's words that stand before a D-Mail. kimi-cli carried none over: its D-Mail is the first."""
    return tuple(map(words_with_images, filter(is_user_words, _before(dmail, segment))))


def _before(dmail: Message, segment: Segment) -> Sequence[Message]:
    # The D-Mail is compared by identity, since a pinned one may have the same text.
    return segment.messages[: next(n for n, m in enumerate(segment.messages) if m is dmail)]


def _names(carried: Sequence[Message], gone: Sequence[Segment]) -> tuple[str, ...]:
    """Return the former places of messages that were carried over, as `ContextReverted` names them."""
    dropped = [(f"{part.point.uid}:{n}", m) for part in gone for n, m in enumerate(part.messages)]
    found: list[str] = []
    first = 0
    for message in carried:
        place = next((n for n in range(first, len(dropped)) if dropped[n][1] == message), None)
        if place is not None:
            found.append(dropped[place][0])
            first = place + 1
    return tuple(found)


def _dmail_event(
    dmail: Message, point: Checkpoint, tokens: int, carried: tuple[str, ...] = (), uid: str = ""
) -> ev.ContextReverted:
    """Return the event of a D-Mail whose dropped part is unknown, or does not matter here.

    With a `uid` the D-Mail belongs to that checkpoint, with other messages; without one it begins the next checkpoint.
    """
    return ev.ContextReverted(
        reason="dmail",
        checkpoint_id=point.id,
        uid=uid,
        from_checkpoint=point.id - 1,
        world_line=0,
        messages_dropped=0,
        tool_calls_dropped=0,
        tokens_before=tokens,
        tokens_after=tokens,
        text=dmail_text(dmail) or "",
        carried=carried,
        author=author_of(dmail),
    )


def events_from_messages(
    messages: Sequence[Message], uid: str, first: int = 0, said: str = ""
) -> Iterator[Event]:
    """Yield the answers, calls, results and steers among some messages.

    Args:
        messages: the messages of one checkpoint.
        uid: the uid of their checkpoint.
        first: the number of the first of them after it.
        said: the user's message before them.
    """
    open_calls: deque[tuple[str, str]] = deque()
    # Each call follows a message of its own, so that its key is that of no other call of the checkpoint.
    n_calls = first
    for number, message in enumerate(messages, first):
        if message.role == "assistant":
            if number:
                yield ev.NextMessage(number)
            yield from _answer(message, uid, n_calls)
            open_calls = deque(
                (call_key(uid, n_calls + place), call.id)
                for place, call in enumerate(message.tool_calls or ())
            )
            n_calls += len(open_calls)
            if message.broken and message.broken != KILLED:
                yield ev.AnswerBroken(one_line(message.broken))
            elif message.interrupted and not message.broken:
                yield ev.StepInterrupted()
        elif message.role == "tool":
            if open_calls:
                key, call_id = open_calls.popleft()
                outcome = outcome_of(message)
                yield ev.ToolResult(
                    key,
                    outcome.is_error,
                    outcome.output,
                    outcome.message,
                    image_blocks(message),
                    interrupted=was_stopped(outcome),
                    id=call_id,
                )
        elif is_user_words(message):
            said = message.text
            yield ev.SteerTaken("", said, number=number, images=image_blocks(message))
            if message.attached:
                yield ev.FilesAttached(number, message.attached)
        elif said.startswith("!") and (told := command_report(message)) is not None:
            yield from _own_command(said[1:], *told, call_key(uid, number - 1))
    for key, call_id in open_calls:
        yield ev.ToolResult(key, True, "", INTERRUPTED, interrupted=True, id=call_id)


def _was_killed(messages: Sequence[Message]) -> bool:
    """Return whether the last answer among some messages of a checkpoint ended with the program: it says so, or a call of it has no
    result.
    """
    n_results = 0
    for message in reversed(messages):
        if message.role == "tool":
            n_results += 1
        elif message.role == "assistant":
            return message.broken == KILLED or n_results < len(message.tool_calls or ())
    return False


def _own_command(command: str, facts: str, output: str, key: str) -> Iterator[Event]:
    """Yield the events of a command that the user ran."""
    yield ev.ToolStarted(key, OWN_COMMAND, json.dumps({"command": command}))
    yield ev.ToolResult(
        key, not facts.startswith("Exit code 0 "), output, facts, interrupted=facts == INTERRUPTED
    )


def _answer(message: Message, uid: str, n_calls: int) -> Iterator[Event]:
    """Yield the events of an answer; `n_calls` calls have been made at the same checkpoint before."""
    for part in message.parts:
        if isinstance(part, ThinkPart) and part.think:
            yield ev.ThinkPart(part.think)
        elif isinstance(part, TextPart) and part.text:
            yield ev.TextPart(part.text)
    for place, call in enumerate(message.tool_calls or ()):
        key = call_key(uid, n_calls + place)
        arguments = call.function.arguments or ""
        yield ev.ToolCall(key, call.function.name, arguments, call.id)
        yield ev.ToolStarted(key, call.function.name, arguments)


def end_of_context(session: Session) -> list[EventRecord]:
    """Return the last turns of the live file, without times and diffs, the first of them perhaps without its beginning.

    Sessions without a record show this until all of their history is read. The session need not be open.
    """
    events: list[Event] = []
    for size_bytes in (END_BYTES, LARGE_END_BYTES):
        events = events or _events_of(_tail(session.dir / LIVE_NAME, size_bytes))
    return [EventRecord(place, 0.0, event) for place, event in enumerate(events, 1)]


def _events_of(records: Iterable[dict[str, Any]]) -> list[Event]:
    """Return the events of the last records of a context."""
    events: list[Event] = []
    messages: list[Message] = []
    kept: list[Message] = []
    uid, point, n_steps, said = "", -1, 0, ""

    def add_kept() -> None:
        events.extend(events_from_messages(kept, uid, said=said))
        kept.clear()

    for record in records:
        role = record.get("role")
        if role == CHECKPOINT:
            add_kept()
            number = record.get("id")
            point = number if isinstance(number, int) else -1
            uid = str(record.get("uid") or f"end-{number}")
        elif role in MESSAGE_ROLES:
            try:
                message = Message.of(record)
            except ValueError:
                continue
            messages.append(message)
            if is_user_words(message):
                add_kept()
                said = message.text
                events.append(TurnBegin(said, images=image_blocks(message)))
                n_steps = 0
            elif command_report(message) is not None and uid:
                kept.append(message)
                continue
            elif internal_kind(message) is not None or not uid:
                continue
            else:
                if not events:
                    events.append(TurnBegin("", resumed=True))
                kept.append(message)
            if point >= 0:
                kind: CheckpointKind = "user" if is_user_words(message) else "step"
                if kind == "step":
                    n_steps += 1
                    events.append(StepBegin(n_steps))
                label = words_with_images(message) if kind == "user" else message.text
                events.append(CheckpointCreated(point, uid, kind, label))
                point = -1
    add_kept()
    # If a D-Mail at the very end was sent and taken back, no listener heard that turn end.
    if events and not ends_open(messages):
        events.append(TurnEnd("done"))
    return events


def _tail(path: Path, size_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the last records of a file, from the first whole line of its last `size_bytes` bytes on."""
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - size_bytes))
        data = file.read(size_bytes)
    lines = data.split(b"\n")
    for line in lines[size > size_bytes :]:
        record = parse(line) if line else None
        if isinstance(record, dict):
            yield record
