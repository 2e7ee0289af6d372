"""The checkpoints of a world line as a table, for `kimi-tui checkpoints`: the first message after each, its tokens, its changes.

The table is made from the files of a session without an engine, so that it changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from kimi_tui.projection.timeline import TimelineModel
from kimi_tui.projection.timeline_tree import NOT_SENT, CheckpointNode
from kimi_tui.projection.tokens import TokenFigure
from kimi_tui.prompts import KILLED
from kimi_tui.session.context_index import WorldLineContent
from kimi_tui.session.session import Session
from kimi_tui.soul.history import session_history
from kimi_tui.soul.messages import Segment, label_of, label_of_message, segments
from kimi_tui.soul.record import records_by_checkpoint
from kimi_tui.soul.token_meter import WorldLineTokens
from kimi_tui.soul.tool_results import files_written
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import CheckpointKind, EventRecord


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint.

    Attributes:
        world_line: The number of the line that lists the checkpoint; 0 is the live one.
        at: When the checkpoint was made, ISO 8601; empty if unknown.
        tokens: The tokens sent there; `estimated` is true if that is not the server's own figure.
        tokens_change: The tokens that the next checkpoint (for the last one, the end of the line) has more;
            `change_estimated` is true if either is an estimate.
        files_changed: The number of files that its step changed.
        bookmark: The user's name for the checkpoint; empty without one.
        said: The index of the user's message after the checkpoint, if the row is for such a message and not for the checkpoint.
    """

    id: int
    uid: str
    world_line: int
    kind: CheckpointKind
    label: str
    at: str
    tokens: int
    estimated: bool
    tokens_change: int
    change_estimated: bool
    files_changed: int
    bookmark: str
    said: int = -1


def list_checkpoints(session: Session, world_line: int = 0) -> list[CheckpointRow]:
    """Return the checkpoints of a world line, oldest first. Reads files: call it in a thread.

    Args:
        session: open; its record must be written out.
        world_line: its number; 0 is the live one.

    Raises:
        UnknownWorldLine: there is none of that number.
    """
    records = session_history(session)
    return checkpoint_rows(
        session.world_line(world_line),
        world_line=world_line,
        recorded=records_by_checkpoint(records),
        files=files_by_checkpoint(records),
        bookmarks=session.marks.bookmarks,
        shown={point.uid: point for point in _timeline(records).path_of(world_line)},
    )


class ShownLine(NamedTuple):
    """A world line as the timeline shows it: its name, the steps that are its own (without any it is not shown there), and the
    tokens that were left when it had been left, the server's figure with `after_measured`; 0 if it does not tell."""

    name: str
    n_steps: int
    tokens_after: int = 0
    after_measured: bool = False


def shown_timeline(session: Session) -> TimelineModel:
    """Return the timeline of a session, as the screen has it. Reads files: call it in a thread."""
    return timeline_of(session, session_history(session))


def timeline_of(session: Session, records: Iterable[EventRecord]) -> TimelineModel:
    """Return the timeline that the events of a session make, with its marks."""
    model = _timeline(records)
    marks = ev.MarksChanged(tuple(session.marks.bookmarks.items()))
    model.apply(EventRecord(0, 0.0, marks))
    return model


def tokens_now(session: Session, model: TimelineModel) -> int:
    """Return the tokens that the window holds, as the gauge shows them. Reads files: call it in a thread."""
    line = session.context.world_line
    is_told = model.used and model.used_is_told
    return model.used if is_told else WorldLineTokens(line).before(line.index.size).tokens


def shown_lines(session: Session, model: TimelineModel | None = None) -> dict[int, ShownLine]:
    """Return each world line that was left, by number, as far as the timeline knows it. Reads files: call it in a thread."""
    model = model or shown_timeline(session)
    drawn = model.tree.lines
    return {
        n: ShownLine(
            model.line_name(n),
            len(drawn[n].checkpoints) if n in drawn else 0,
            *model.tokens_after(n),
        )
        for n in model.left_lines
    }


def checkpoint_rows(
    line: WorldLineContent,
    *,
    world_line: int = 0,
    recorded: Mapping[str, Sequence[EventRecord]] = MappingProxyType({}),
    files: Mapping[str, Collection[str]] = MappingProxyType({}),
    bookmarks: Mapping[str, str] = MappingProxyType({}),
    shown: Mapping[str, CheckpointNode] = MappingProxyType({}),
) -> list[CheckpointRow]:
    """Return every checkpoint of a world line and every message of the user, oldest first, shared ones included.

    Args:
        line: the world line.
        world_line: its number.
        recorded: the records of each checkpoint, by its uid.
        files: the files that were seen to change in its step, by uid.
        bookmarks: names by uid.
        shown: the checkpoints as the timeline shows them, by uid: its figures go before those that the files
            give; of a turn it shows no change.
    """
    parts = segments(line)
    tokens_of = WorldLineTokens(line)
    kinds: list[CheckpointKind] = [_kind(part, recorded.get(part.point.uid, ())) for part in parts]
    figures = [
        TokenFigure(known.tokens, known.measured)
        if (known := shown.get(part.point.uid)) is not None
        else tokens_of.at(part.point, kind)
        for part, kind in zip(parts, kinds, strict=True)
    ]
    figures.append(tokens_of.before(line.index.size))
    rows: list[CheckpointRow] = []
    for place, part in enumerate(parts):
        point, (tokens, measured, _) = part.point, figures[place]
        events = recorded.get(point.uid, ())
        change = figures[place + 1][0] - tokens
        is_guess = not (measured and figures[place + 1].measured)
        known = shown.get(point.uid)
        if known is not None and not known.is_heading and (known.change or known.change_measured):
            change, is_guess = known.change, not known.change_measured
        elif is_guess and kinds[place] not in ("dmail", "compaction", "summary"):
            change = max(0, change)
        row = CheckpointRow(
            id=point.id,
            uid=point.uid,
            world_line=world_line,
            kind=kinds[place],
            label=_dmail_calls(known) or part.label or _label(events),
            at=point.at or _at(events),
            tokens=tokens,
            estimated=not measured,
            tokens_change=change,
            change_estimated=is_guess,
            files_changed=len(_files(part, events, files.get(point.uid, ()))),
            bookmark=bookmarks.get(point.uid, bookmarks.get(point.was or "", "")),
        )
        rows += _with_said(row, part)
    return rows


def _with_said(row: CheckpointRow, part: Segment) -> list[CheckpointRow]:
    """Return a checkpoint's row between rows for the user's messages before and after its D-Mail.

    The message that the checkpoint began with has no row of its own.
    """
    said = [
        replace(
            row, kind="user", label=label_of_message(m), tokens_change=0, files_changed=0, said=n
        )
        for n, m in enumerate(part.words)
    ]
    if row.kind == "user":
        return [row]
    n_before = len(part.carried)
    return [*said[:n_before], row, *said[n_before:]]


def _timeline(records: Iterable[EventRecord]) -> TimelineModel:
    model = TimelineModel()
    for record in records:
        model.apply(record)
    return model


def _kind(part: Segment, recorded: Sequence[EventRecord]) -> CheckpointKind:
    """Return what began at the checkpoint; of a step that did not end well, how it ended."""
    kind = part.kind
    if kind != "step":
        return kind
    for message in part.messages:
        if message.interrupted:
            return "error" if message.broken and message.broken != KILLED else "interrupted"
    for record in recorded:
        match record.event:
            case (
                ev.StepInterrupted(failed=False)
                | ev.ToolResult(interrupted=True)
                | ev.TurnEnd(killed=True)
            ):
                return "interrupted"
            case ev.TurnEnd(reason="error"):
                return "error"
            case _:
                pass
    return kind


def _dmail_calls(known: CheckpointNode | None) -> str:
    """Describe the D-Mails that a step called for: each with its target, and whether it was sent."""
    calls = known.calls or () if known is not None else ()
    if not any(call.card.is_letter for call in calls):
        return ""
    words: list[str] = []
    for call in calls:
        is_unsent = call.card.is_letter and call.failed and NOT_SENT not in call.target
        target = ", ".join(filter(None, (NOT_SENT * is_unsent, call.target)))
        words.append(" ".join(filter(None, (call.name, target))))
    return label_of(", ".join(words))


def _label(recorded: Sequence[EventRecord]) -> str:
    """Return the label of a step that left no message: the error that ended it."""
    errors = (r.event.error for r in recorded if isinstance(r.event, ev.TurnEnd))
    return label_of(next((error for error in errors if error), ""))


def _at(recorded: Sequence[EventRecord]) -> str:
    if not recorded:
        return ""
    try:
        made = datetime.fromtimestamp(recorded[0].at, UTC)
    except (OverflowError, OSError, ValueError):
        return ""
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def files_by_checkpoint(records: Iterable[EventRecord]) -> dict[str, set[str]]:
    """Return the files that were seen to change in each step, commands' changes included, by the uid of its checkpoint."""
    found: dict[str, set[str]] = {}
    for record in records:
        if isinstance(record.event, ev.FilesChanged):
            found.setdefault(record.event.uid, set()).update(record.event.paths)
    return found


def _files(part: Segment, recorded: Sequence[EventRecord], seen: Collection[str]) -> set[str]:
    """Return the files that the step changed: those seen to change and those in its results, else those that its messages tell."""
    shown = {
        block.path
        for record in recorded
        if isinstance(record.event, ev.ToolResult) and not record.event.is_error
        for block in record.event.display
        if isinstance(block, DiffBlock)
    }
    return shown.union(seen) or set(files_written(part.messages))
