"""The history of a stored session: the events that bring a new subscriber to the session's present state.

Where the record (`record`) leads to the conversation that the context holds, it is the history. The end that a killed
program did not write is found in the context then. Where the record does not lead there, because it is missing, damaged,
older, or kimi-cli's, or where it lacks a line, the history is rebuilt from the context files (`rebuilt_history`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.llm.message import ContentPart, Message, TextPart, ThinkPart, ToolCall
from kimi_tui.projection.world_lines import CheckpointName, WorldLines
from kimi_tui.prompts import KILLED
from kimi_tui.session.context_index import WorldLineContent
from kimi_tui.session.rotation import stored_world_lines
from kimi_tui.session.schema import MessageKind
from kimi_tui.session.session import Session
from kimi_tui.soul.messages import internal_kind, is_user_words, label_of, segments
from kimi_tui.soul.rebuilt_history import events_from_messages, rebuild_history, with_futures_told
from kimi_tui.soul.record import (
    closing_events,
    follow_line,
    half_answer,
    of_lines,
    read_stored,
    records_by_checkpoint,
)
from kimi_tui.soul.record_repair import repair_record
from kimi_tui.soul.tool_results import pending_calls, tool_message
from kimi_tui.tool_cards import DisplayBlock, ImageBlock
from kimi_tui.tools.outcome import ToolOutcome
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.events import (
    SWITCHES,
    CheckpointCreated,
    CheckpointKind,
    Event,
    EventRecord,
    StepBegin,
    TurnBegin,
    TurnEnd,
)

log = logging.getLogger(__name__)

_BESIDE_SUMMARY = frozenset({MessageKind.SUMMARY, MessageKind.MARKER, MessageKind.ASIDE})
_SAID = (ev.SteerTaken, ev.TextPart, ev.ThinkPart, ev.ToolResult)
# The events that the record of a killed program may lack begin with one of these.
_BEGINS = (
    ev.TurnBegin,
    ev.StepBegin,
    CheckpointCreated,
    ev.ContextReverted,
    ev.CompactionBegin,
    ev.LineChanged,
)
_BEFORE_CHECKPOINT = TurnBegin | StepBegin | ev.SESSION_FACTS
_MOST_MISSING = 16


class History(NamedTuple):
    """The history of a stored session: the events a new listener gets first.

    Attributes:
        stored: the records of `wire.jsonl` that can be read.
        shown: the events for a new subscriber.
        remarks: sentences for the user on what could not be read.
        half: the beginning of an answer that only the record has, since the program was killed; None for none.
        results: the first results of the newest answer's calls that only the record has: the program was killed while a later call
            of it ran.
        beside: what happened to agents beside that of the session, of which `stored` and `shown` tell nothing.
        unrecorded: the records that the file of the record lacks, of which `stored` tells too.
        is_recorded: whether the record leads to the present state, with what futures said at the switches to them.
        is_behind: whether the record lacks operations that led to the conversation.
        newest: the highest number of an event in the record.
    """

    stored: list[EventRecord]
    shown: list[EventRecord]
    remarks: tuple[str, ...] = ()
    half: Message | None = None
    beside: Sequence[EventRecord] = ()
    unrecorded: Sequence[EventRecord] = ()
    is_recorded: bool = False
    is_behind: bool = False
    newest: int = 0
    results: Sequence[Message] = ()

    @property
    def told(self) -> list[EventRecord]:
        """All events that a new subscriber gets: `shown`, with those of other agents in between."""
        if not self.beside:
            return self.shown
        return list(heapq.merge(self.shown, self.beside, key=lambda one: one.seq))


async def take_up_history(session: Session) -> History:
    """Return the history of a session that was just opened, and end in its record what a killed program left running there.

    It never raises because of the record.
    """
    repaired = await repair_record(session)
    history = await in_daemon_thread(read_history, session, end=True)
    if pending := await asyncio.to_thread(pending_calls, session.context.world_line):
        history = history._replace(results=_shown_results(history.shown, pending))
    if history.unrecorded:
        await asyncio.to_thread(session.record.append, *map(encode_record, history.unrecorded))
    return history._replace(remarks=(repaired, *history.remarks)) if repaired else history


def read_history(session: Session, *, end: bool = False, newest: float = math.inf) -> History:
    """Return the history of an open session. Reads files: call it in a thread. Never raises.

    A view is no reason not to open a session: whatever is wrong with its record, it is rebuilt from the messages
    then, and where even that cannot be done, there is none.

    Args:
        session: open.
        end: what a killed program left running in the record is ended in `History.stored`.
        newest: the number of the newest event to be read of the record.
    """
    stored, n_skipped, ended_at, beside, incomplete, is_behind, last = read_stored(session, newest)
    remarks: list[str] = []
    if n_skipped:
        what = "1 record" if n_skipped == 1 else f"{n_skipped:,} records"
        remarks.append(f"Skipped {what} of the event log (wire.jsonl) that could not be read.")
    elif incomplete:
        remarks.append(
            "The event log (wire.jsonl) lacks some records. The chat shows the steps around them without times and diffs."
        )
    is_whole, half = not is_behind and _leads_here(stored, session), None
    unrecorded: list[EventRecord] = []
    pieces = [] if is_whole else _with_rest_of_step(stored, session)
    if end:
        missing = [] if is_behind else _missing_end(stored, session, is_whole=is_whole)
        is_whole = is_whole or bool(missing)
        # If the record lags behind the conversation, the turn that it tells of last may have continued.
        ours = [record for record in stored if not record.foreign]
        endings = closing_events([*ours, *missing], missing[-1].at if missing else ended_at)
        half = _half_answer([*stored, *missing], session)
        last = max(last, stored[-1].seq if stored else 0)
        for record in (*missing, *endings):
            if is_whole or not isinstance(record.event, TurnEnd):
                last += 1
                unrecorded.append(record._replace(seq=last))
        stored += unrecorded
    if is_whole and incomplete:
        pieces = stored
    elif is_whole:
        shown = _with_futures(stored, session)
        if shown is stored or (_tells_switches(shown) and _fits([*shown], session)):
            return History(
                stored,
                [*shown],
                tuple(remarks),
                half,
                beside,
                unrecorded,
                is_recorded=True,
                newest=last,
            )
        # A future that was current was deleted, and what it said cannot be told at each switch.
        pieces = stored
    else:
        is_behind = True
    shown = _rebuilt(session, pieces, incomplete)
    if shown is None:
        stored, shown = [], _rebuilt(session, [])
    if shown is None:
        remarks.append("Earlier messages cannot be shown, but the agent still has them.")
        stored, shown, half = [], [], None
    elif end:
        shown += closing_events(shown)
    return History(
        stored,
        shown,
        tuple(remarks),
        half,
        beside,
        unrecorded,
        is_behind=is_behind,
        newest=last,
    )


def without_deleted(records: list[EventRecord], session: Session) -> list[EventRecord]:
    """Leave out the lines of futures that were deleted, unless another line began with one, or it was the current one."""
    begins: dict[int, int] = {}
    needed: set[int] = set()
    for record in records:
        match record.event:
            case ev.WorldLineAdded(n=n, from_line=begun):
                begins[n] = begun
            case ev.LineChanged(to_line=n):
                needed.add(n)
            case _:
                pass
    if not begins:
        return records
    kept: set[int] = set()
    waiting = [*needed, *stored_world_lines(session.dir)]
    while waiting:
        n = waiting.pop()
        if n in begins and n not in kept:
            kept.add(n)
            waiting.append(begins[n])
    gone = begins.keys() - kept
    return [
        one
        for one in records
        if not (isinstance(one.event, ev.WorldLineAdded) and one.event.n in gone)
    ]


def _with_futures(records: list[EventRecord], session: Session) -> Sequence[EventRecord]:
    """Return the record with what it lacks of futures that were current; the record itself if there are none."""
    try:
        return with_futures_told(session, without_deleted(records, session))
    except Exception:
        log.exception("what futures said cannot be told")
        return records


def _rebuilt(
    session: Session, records: Sequence[EventRecord], incomplete: Collection[str] = ()
) -> list[EventRecord] | None:
    """Return the history made anew; None if it cannot be made."""
    try:
        return rebuild_history(session, records, incomplete)
    except Exception:
        log.exception("the history cannot be read")
        return None


def _half_answer(records: list[EventRecord], session: Session) -> Message | None:
    """Return what was published of an answer and is not in the context."""
    half = half_answer(records)
    context = session.context
    if not (half.text.strip() or half.thought.strip()) or not context.checkpoints:
        return None
    newest = context.checkpoints[-1]
    asked = next(one.event for one in reversed(records) if isinstance(one.event, CheckpointCreated))
    since = context.messages[newest.message_index :]
    if asked.uid != newest.uid or any(message.role == "assistant" for message in since):
        return None
    thought: list[ContentPart] = [ThinkPart(think=half.thought)] if half.thought.strip() else []
    said: list[ContentPart] = [TextPart(text=half.text)] if half.text.strip() else []
    content = half.text if not thought else [*thought, *said]
    return Message(role="assistant", content=content, interrupted=True, broken=KILLED)


def _shown_results(shown: Sequence[EventRecord], pending: Mapping[str, ToolCall]) -> list[Message]:
    """Return the results that are shown of calls, up to the first one that has none: results are stored in the order of their calls.

    A result is published when its call has ended, and stored when all calls of the answer have.

    Args:
        shown: the history.
        pending: calls without a result in the context, by their keys.
    """
    ended = {
        one.event.key: one.event
        for one in shown
        if isinstance(one.event, ev.ToolResult) and one.event.key in pending
    }
    found: list[Message] = []
    for key, call in pending.items():
        event = ended.get(key)
        # The record does not have the image itself.
        if event is None or event.interrupted or any(map(_is_image, event.display)):
            break
        outcome = ToolOutcome(event.output, event.message, event.is_error)
        found.append(tool_message(call.id, outcome))
    return found


def _is_image(block: DisplayBlock) -> bool:
    return isinstance(block, ImageBlock)


def _fits(records: list[EventRecord], session: Session) -> bool:
    try:
        return fits(records, session)
    except Exception:
        log.exception("the record cannot be followed")
        return False


def _leads_here(records: list[EventRecord], session: Session) -> bool:
    """Return whether a record leads to the live world line, by itself or with what it lacks of futures that were current."""
    if _fits(records, session):
        return True
    told = _with_futures(records, session)
    return told is not records and _fits([*told], session)


def _tells_switches(records: Iterable[EventRecord]) -> bool:
    """Return whether these events tell of each line, as one that was left, before a switch to it.

    A chat knows no other ones. It would show what followed such a switch as if that had happened on the line before.
    """
    lines = WorldLines[CheckpointName]()
    left: set[int] = set()
    for record in of_lines(records):
        edit = follow_line(lines, record)
        match record.event:
            case ev.WorldLineAdded(n=n):
                left.discard(n)
            case ev.LineChanged(op=op, to_line=n) if op in SWITCHES and n and n not in left:
                return False
            case _:
                pass
        if edit is not None:
            left.add(edit.left)
    return True


def _with_rest_of_step(stored: list[EventRecord], session: Session) -> list[EventRecord]:
    """Return a record with what it lacks of its newest step, which may be one of long ago if its last part was lost."""
    if not stored or any(record.foreign for record in stored):
        return stored
    try:
        rest = _rest_of_step(stored, session)
    except Exception:
        log.exception("what the record lacks cannot be found")
        return stored
    last = stored[-1]
    return [*stored, *(last._replace(seq=last.seq + n, event=e) for n, e in enumerate(rest, 1))]


def _missing_end(
    stored: Sequence[EventRecord], session: Session, *, is_whole: bool
) -> list[EventRecord]:
    """Return what happened between the record's last write and the end of a program that was killed, by the context files.

    What is said, and each operation, is in the context before it is published, so the record may lack the newest of it.

    Args:
        stored: the record.
        session: open.
        is_whole: the record leads to the live world line as it is, and at most lacks what the newest step did.

    Returns:
        the records that lead from where the record ends to where the context stands, with numbers and times that rise;
        none where no few of them do.
    """
    if not stored or any(record.foreign for record in stored):
        # kimi-cli records no checkpoints, so nothing says where its record meets the context.
        return []
    points = session.context.checkpoints
    if not is_whole and not _untold(stored).isdisjoint(point.uid for point in points):
        # The record lacks what a future said, so its line is told from the context then.
        return []
    seq, at = stored[-1].seq, stored[-1].at
    try:
        rest = [EventRecord(0, at, event) for event in _rest_of_step(stored, session)]
        if not is_whole:
            ends = _possible_ends(stored, session)
            end = next((end for end in ends if _is_end(stored, end, session)), None)
            if end is None:
                return []
            rest += end
    except Exception:
        log.exception("what the record lacks cannot be found")
        return []
    return [
        one._replace(seq=number, at=max(at, one.at)) for number, one in enumerate(rest, seq + 1)
    ]


def _is_end(stored: Sequence[EventRecord], end: Sequence[EventRecord], session: Session) -> bool:
    """Return whether a record leads with these events to the live line, and leaves the lines of which they tell as these are."""
    records = [*stored, *end]
    if not fits(records, session):
        return False
    lines = WorldLines[CheckpointName]()
    for record in of_lines(records):
        follow_line(lines, record)
    for record in end:
        match record.event:
            case (
                ev.ContextReverted(world_line=n)
                | ev.CompactionEnd(world_line=n)
                | ev.LineChanged(from_line=n)
            ) if n in lines.left:
                # Of two operations in quick succession only the later one may have left a file.
                told = [point.uid for point in lines.left[n].path.points]
                if told != [point.uid for point in session.world_lines.index(n).checkpoints]:
                    return False
            case _:
                pass
    return True


def _possible_ends(
    stored: Sequence[EventRecord], session: Session
) -> Iterator[Sequence[EventRecord]]:
    """Yield the parts that a record may lack after its newest step, the shortest first; nothing if it lacks earlier events."""
    context, rebuilt = session.context, rebuild_history(session, stored)
    begun = _begun(stored, len(stored))
    recorded = _made_in(stored)
    starts = [place for place, one in enumerate(rebuilt) if isinstance(one.event, _BEGINS)]
    # Events that the record has already are not added twice. A fork has such ones: its other lines went on without it.
    starts = [
        place for place in starts[-_MOST_MISSING:] if recorded.isdisjoint(_made_in(rebuilt[place:]))
    ]
    known = recorded | _made_in(rebuilt[starts[0] :] if starts else ())
    if any(point.uid not in known for point in context.checkpoints):
        return
    # Nor is anything passed over: a line that was left may have what the one after it carried along.
    untold = (
        n
        for n, one in enumerate(rebuilt)
        if isinstance(one.event, CheckpointCreated) and one.event.uid not in recorded
    )
    first = next(untold, len(rebuilt))
    starts = [place for place in starts if place <= first]
    is_inside = _is_in_compaction(stored, len(stored))
    for place in reversed(starts):
        # A turn and a step are published just before their checkpoint, and only once. What a compaction kept is told before its end.
        if begun == _begun(rebuilt, place) and is_inside == _is_in_compaction(rebuilt, place):
            yield _as_begun(stored, rebuilt, place)
    # The line left by an undo or a jump may be the beginning of the line that is live now; no file tells of that.
    changes = [entry for entry in context.journal.entries if entry.changes_line]
    if not changes or (newest := changes[-1]).op not in SWITCHES:
        return
    uids = [point.uid for point in context.checkpoints]
    for n in stored_world_lines(context.folder):
        names = [point.uid for point in session.world_lines.index(n).checkpoints]
        if names[: len(uids)] == uids:
            goes = names[len(uids)] if len(names) > len(uids) else ""
            left = newest.n if newest.stored else 0
            changed = ev.LineChanged(newest.op, left, n, goes)
            yield [EventRecord(0, ev.iso_seconds(newest.at), changed)]


def _as_begun(
    stored: Sequence[EventRecord], rebuilt: Sequence[EventRecord], place: int
) -> Sequence[EventRecord]:
    """Return the rebuilt records from a place on, with which the turn goes on whose beginning the record has.

    Its message may follow others that had waited; in what is rebuilt the first of them begins the turn.
    """
    end = list(rebuilt[place:])
    told, made = _turn_begun(stored, len(stored)), _turn_begun(rebuilt, place)
    created = end[0].event if end else None
    if told is None or made is None or told.text == made.text:
        return end
    if not isinstance(created, CheckpointCreated):
        return end
    for n, record in enumerate(end[1:], 1):
        match record.event:
            case CheckpointCreated():
                break
            case ev.SteerTaken(text=told.text):
                del end[n]
                taken = ev.SteerTaken("", made.text, images=made.images)
                end.insert(1, end[0]._replace(event=taken))
                created = replace(created, label=label_of(told.text))
                end[0] = end[0]._replace(event=created)
                break
            case _:
                pass
    return end


def _turn_begun(records: Sequence[EventRecord], end: int) -> TurnBegin | None:
    """Return the beginning of a turn that is told of directly before a place, and has no checkpoint yet; None for none."""
    while end and isinstance(event := records[end - 1].event, _BEFORE_CHECKPOINT):
        if isinstance(event, TurnBegin):
            return event
        end -= 1
    return None


def _rest_of_step(stored: Sequence[EventRecord], session: Session) -> list[Event]:
    """Return the events of the newest recorded step that are in the context, and not in the record, which is written a moment later.
    The line of the step may have been left since.
    """
    piece = list[Event]()
    begun: CheckpointCreated | None = None
    is_void = False
    backwards = reversed(stored)
    for record in backwards:
        match record.event:
            case CheckpointCreated() as begun:
                break
            case ev.LineChanged(to_line=0):
                # A D-Mail is told of with its checkpoint before this; the messages after it are the rest.
                pass
            case ev.ContextReverted() | ev.LineChanged() | ev.CompactionBegin():
                return []
            case ev.StepRetry():
                is_void = True
            case event:
                piece += [] if is_void else [event]
    if begun is None or begun.was:
        return []
    found = _place_in_lines(begun.uid, session)
    if found is None:
        return []
    line, place = found
    piece.reverse()
    points, index = line.checkpoints, line.index
    point = points[place]
    end = points[place + 1].offset if place + 1 < len(points) else index.size
    (segment,) = segments(line, place, place + 1)
    # What is left of the iterator came before the checkpoint.
    turn = next((one.event for one in backwards if isinstance(one.event, TurnBegin)), None)
    said = turn.text if begun.kind == "user" and turn is not None else ""
    told = _told(begun.kind, segment.messages, said)
    if told is None:
        return []
    end_told = told.stop
    made = [
        *events_from_messages(segment.messages[: told.start], point.uid),
        *events_from_messages(segment.messages[end_told:], point.uid, end_told, said),
    ]
    rest = _rest_of_texts(piece, made)
    if rest and isinstance(rest[0], ev.StepRetry):
        # The calls that were being written went with the attempt.
        piece = [one for one in piece if not isinstance(one, ev.ToolCall | ev.ToolCallPart)]
    rest += _rest_of_calls(piece, made)
    rest += _rest_of_steers(stored, piece, made)
    ends = (ev.AnswerBroken, ev.StepInterrupted)
    if not any(isinstance(one, ends) for one in piece):
        rest += [one for one in made if isinstance(one, ends)]
    usages = index.usages_between(point.offset, end)
    last = next((r.event for r in reversed(stored) if isinstance(r.event, ev.StatusUpdate)), None)
    is_recorded = any(isinstance(e, ev.StatusUpdate) and e.step_output is not None for e in piece)
    if len(usages) == 2 and last is not None and not is_recorded:
        sent, used = usages
        rest.append(
            last._replace(
                used=used,
                estimated=index.is_estimated_before(end),
                talk=max(0, used - last.system - last.tools),
                total_input=last.total_input + sent,
                total_output=last.total_output + used - sent,
                step_input=sent,
                step_output=used - sent,
                messages=index.messages_before(end),
            )
        )
    return rest


def _told(kind: CheckpointKind, messages: Sequence[Message], said: str) -> range | None:
    """Return which of the messages of a checkpoint are told of with its beginning; None if that cannot be said.

    Args:
        kind: the kind of the checkpoint.
        messages: its messages.
        said: the message with which its turn began: others may have waited, and come before it.
    """
    match kind:
        case "step":
            return range(0)
        case "user":
            words = (n for n, m in enumerate(messages) if is_user_words(m) and m.text == said)
            return None if (place := next(words, None)) is None else range(place, place + 1)
        case "dmail":
            return range(len(messages) - [*map(internal_kind, messages)][::-1].index("dmail"))
        case _:
            return None


def _rest_of_steers(
    stored: Sequence[EventRecord], piece: Sequence[Event], made: Sequence[Event]
) -> Iterator[Event]:
    """Return the messages that went in after a checkpoint, `made` from its messages, that are not among its recorded events.

    Args:
        stored: the record.
        piece: its events since the checkpoint.
        made: the events of all messages after the checkpoint.
    """
    n_taken = sum(isinstance(one, ev.SteerTaken) and not one.withdrawn for one in piece)
    places = [place for place, one in enumerate(made) if isinstance(one, ev.SteerTaken)][n_taken:]
    if not places:
        return
    # A message may have been typed long before.
    waiting: dict[str, str] = {}
    for record in stored:
        if isinstance(event := record.event, ev.SteerQueued):
            waiting[event.id] = event.text
        elif isinstance(event, ev.SteerTaken):
            waiting.pop(event.id, None)
    for place in places:
        one = made[place]
        assert isinstance(one, ev.SteerTaken)
        known = next((key for key, text in waiting.items() if text == one.text), "")
        waiting.pop(known, None)
        yield replace(one, id=known)
        if isinstance(attached := made[min(place + 1, len(made) - 1)], ev.FilesAttached):
            yield attached


def _place_in_lines(uid: str, session: Session) -> tuple[WorldLineContent, int] | None:
    """Return the line that has a checkpoint, the live one first, and the place of it there; None if no line has it."""
    left = (session.world_lines.read(n) for n in reversed(stored_world_lines(session.dir)))
    for line in itertools.chain([session.context.world_line], left):
        for place, point in enumerate(line.checkpoints):
            if point.uid == uid:
                return line, place
    return None


def _rest_of_texts(piece: Sequence[Event], made: Sequence[Event]) -> list[Event]:
    """Return what was said in a step, `made` from its messages, and is not among its recorded events.

    If these tell of another attempt, of which nothing was kept, a retry comes first.
    """
    rest = list[Event]()
    is_other = False
    for kind in (ev.ThinkPart, ev.TextPart):
        recorded, whole = (
            "".join(one.text for one in events if isinstance(one, kind)) for events in (piece, made)
        )
        is_other = is_other or not whole.startswith(recorded)
        if whole.startswith(recorded) and whole != recorded:
            rest.append(kind(whole[len(recorded) :]))
    said = [one for one in made if isinstance(one, ev.ThinkPart | ev.TextPart)]
    return [ev.StepRetry(1, 1, 1, 0.0, ""), *said] if is_other and said else rest


def _rest_of_calls(piece: Sequence[Event], made: Sequence[Event]) -> Iterator[Event]:
    """Return the calls and results of a step, `made` from its messages, that are not among its recorded ones."""
    arguments: dict[str, str] = {}
    for event in piece:
        match event:
            case ev.ToolCall(key=key, arguments=text) | ev.ToolCallPart(key=key, arguments=text):
                arguments[key] = arguments.get(key, "") + text
            case _:
                pass
    begun = {event.key for event in piece if isinstance(event, ev.ToolStarted)}
    ended = {event.key for event in piece if isinstance(event, ev.ToolResult)}
    wanted = {e.key for e in made if isinstance(e, ev.ToolResult) and not e.interrupted} - ended
    for event in made:
        match event:
            case ev.ToolCall(key=key, arguments=whole):
                recorded = arguments.get(key)
                if recorded is None:
                    yield event
                elif whole.startswith(recorded) and whole != recorded:
                    yield ev.ToolCallPart(key, whole[len(recorded) :])
            case ev.ToolStarted(key=key) if key in wanted and key not in begun:
                yield event
            case ev.ToolResult(key=key) if key in wanted:
                yield event
            case _:
                pass


def _untold(records: Sequence[EventRecord]) -> set[str]:
    """Return the uids of checkpoints that came with the line of a future, and of which nothing else is told."""
    found: set[str] = set()
    for record in records:
        if isinstance(record.event, ev.WorldLineAdded):
            found.update(record.event.uids)
    return found - _made_in(records) if found else found


def _made_in(records: Iterable[EventRecord]) -> set[str]:
    """Return the uids of the checkpoints that were made in these records."""
    return {one.event.uid for one in records if isinstance(one.event, CheckpointCreated)}


def _begun(records: Sequence[EventRecord], end: int) -> list[type[Event]]:
    """Return the turn and the step that are told of directly before a place, and have no checkpoint yet."""
    found: list[type[Event]] = []
    while end and isinstance(event := records[end - 1].event, _BEFORE_CHECKPOINT):
        if isinstance(event, TurnBegin | StepBegin):
            found.append(type(event))
        end -= 1
    return found


def _is_in_compaction(records: Sequence[EventRecord], end: int) -> bool:
    """Return whether a place is after the checkpoint of a summary and before the end of its compaction."""
    for place in range(end - 1, -1, -1):
        match records[place].event:
            case ev.CheckpointCreated(was="", kind=kind):
                return kind in ev.SUMMARIES
            case ev.CompactionBegin() | ev.CompactionEnd() | ev.TurnBegin():
                return False
            case _:
                pass
    return False


def session_history(session: Session) -> list[EventRecord]:
    """Return the events that a listener of an open session should hear of its agent. Reads files: call it in a thread."""
    return read_history(session).shown


def history_until(session: Session, newest: int, is_followed: bool) -> list[EventRecord]:
    """Return the events that a listener of an open session should hear up to an event. Reads files: call it in a thread.

    Args:
        session: open.
        newest: the number of that event. A history that is made anew is not cut, as its numbers are its own.
        is_followed: something is running and the record tells of it: it needs no comparison with the context, which may be
            ahead of that event.
    """
    if is_followed:
        stored = read_stored(session, newest)
        shown = [*_with_futures(stored.records, session)]
        return History(stored.records, shown, beside=stored.beside).told
    return read_history(session, newest=newest).told


def _line_without_gap(changes: Iterable[EventRecord]) -> list[str] | None:
    """Return the uids of the world line at which these events end; None if some of the events in between are missing."""
    lines = WorldLines[CheckpointName]()
    for record in changes:
        points = lines.live.points
        match record.event:
            # Operations that a killed program did not record change what follows, also where a later one goes back to a known line.
            case ev.CheckpointCreated(id=number, kind=kind) if number != len(points):
                if number or kind not in ev.SUMMARIES:
                    return None
            case ev.ContextReverted(from_checkpoint=newest) if newest != len(points) - 1:
                return None
            case _:
                pass
        follow_line(lines, record)
    return None if lines.is_lost else [point.uid for point in lines.live.points]


def fits(records: list[EventRecord], session: Session) -> bool:
    """Return whether these events lead to the live world line as it is, by way of all the others, with what compactions kept.

    Those that kimi-cli recorded never do, since they tell of no checkpoint.
    """
    points, index = session.context.checkpoints, session.context.index
    if any(record.foreign for record in records):
        return False
    changes = of_lines(records)
    if _line_without_gap(changes) != [point.uid for point in points]:
        return False
    lines: set[int] = set()
    told: set[str] = set()
    # A pinned summary is also found after checkpoints of other kinds; there the pins tell what is beside it.
    compacted: set[str] = set()
    # The last records of a killed program may be missing: without the end of a compaction what it replaced stays on view.
    unended: set[str] = set()
    summary = ""
    for record in changes:
        match record.event:
            case ev.CheckpointCreated(uid=uid, kind=kind, was=was):
                told.add(uid)
                if kind in ev.SUMMARIES:
                    compacted.add(uid)
                    if not was:
                        summary = uid
                        unended.add(uid)
            case ev.CompactionEnd(world_line=n, error=error):
                lines.add(n)
                if not error:
                    unended.discard(summary)
            case ev.ContextReverted(world_line=n):
                lines.add(n)
            case ev.LineChanged(from_line=n) | ev.WorldLineAdded(n=n):
                lines.add(n)
            case _:
                pass
    if not unended.isdisjoint(point.uid for point in points):
        return False
    # The record has only the checkpoints of a line that came from elsewhere, such as a future, and not what was said at them.
    if not told.issuperset(point.uid for point in points):
        return False
    # The record of a fork ends where the fork was made; lines that were left later are among its world lines all the same.
    if not lines.issuperset(stored_world_lines(session.dir)):
        return False
    ends = [*(point.message_index for point in points[1:]), index.n_messages]
    kept = [
        point.uid
        for point, end in zip(points, ends, strict=False)
        if point.uid in compacted
        and MessageKind.SUMMARY in (kinds := index.kinds(point.message_index, end))
        and not set(kinds) <= _BESIDE_SUMMARY
    ]
    recorded = records_by_checkpoint(records) if kept else {}
    return all(any(isinstance(one.event, _SAID) for one in recorded.get(uid, ())) for uid in kept)
