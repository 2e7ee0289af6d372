"""Reads world lines for a screen: the list of them, the messages of one (also as Markdown), and a comparison with the live line."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.projection.tokens import CheckpointTokens, DMailCuts, saved_by
from kimi_tui.projection.world_lines import MessageKind, WorldLineMessage
from kimi_tui.prompts import INTERRUPTED
from kimi_tui.session.context_index import WorldLineContent
from kimi_tui.session.schema import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.session.world_lines import WorldLine, shared_checkpoints
from kimi_tui.soul.bookmarks import Pin
from kimi_tui.soul.conversation_text import as_markdown
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.history import session_history
from kimi_tui.soul.messages import (
    Segment,
    call_target,
    dmail_text,
    image_blocks,
    internal_kind,
    segments,
    summary_text,
)
from kimi_tui.soul.rebuilt_history import rebuild_world_line
from kimi_tui.soul.record import read_records, records_by_checkpoint
from kimi_tui.soul.rewind_values import Target
from kimi_tui.soul.tool_results import outcome_of
from kimi_tui.tool_cards import Card, DiffLine, DisplayBlock
from kimi_tui.wire import events as ev
from kimi_tui.wire.events import EventRecord
from kimi_tui.workspace.diff import SideChange


@dataclass(frozen=True, slots=True)
class WorldLineInfo:
    """A world line that was left.

    Attributes:
        n: Its number.
        reason: The operation that left it; `foreign` or `unknown` where it is not known.
        checkpoint_id: Where that operation went back to (-1: nowhere in particular), `uid` its name.
        at: When it was left, ISO 8601.
        text: The D-Mail or the summary of that operation.
        shared: How many of its first checkpoints are the live one's too.
        n_messages: How many messages it holds.
    """

    n: int
    reason: str
    checkpoint_id: int
    uid: str
    at: str
    tokens_before: int
    tokens_after: int
    messages_dropped: int
    text: str
    shared: int
    n_messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSide:
    """A file on one world line, compared with the fork.

    Attributes:
        state: Whether the file is the same as at the fork, changed, new or gone.
        changed_by: Who changed it.
        added, removed, rows: Its diff; the rows may be cut.
        is_text: False where there are no lines to show.
    """

    state: Literal["same", "changed", "new", "gone"]
    changed_by: Literal["agent", "others", "both"] = "agent"
    added: int = 0
    removed: int = 0
    rows: tuple[DiffLine, ...] = ()
    is_text: bool = True


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A file that one of the world lines changed; `alike` is true where it is the same on both now."""

    path: str
    other: FileSide
    live: FileSide
    alike: bool = False


@dataclass(frozen=True, slots=True)
class DivergedFiles:
    """The files that either of two world lines changed since the fork.

    `reason` says why they are unknown, empty where they are known; `remarks` are sentences for the user.
    """

    files: tuple[ComparedFile, ...] = ()
    remarks: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorldLineComparison:
    """A comparison of the live line with another world line, from the fork on.

    Attributes:
        world_line: The number of the other line, which was left.
        fork: The id of the newest checkpoint that both have, -1 where they share none.
        shared_tokens: Tokens in the window at the fork; 0 where that is not known.
        live, other: The messages of each side from the fork on, oldest first.
        files: The working files that differ from the fork on either side.
    """

    world_line: int
    fork: int
    live: tuple[WorldLineMessage, ...]
    other: tuple[WorldLineMessage, ...]
    files: DivergedFiles
    shared_tokens: int = 0


class DMailOrigin(NamedTuple):
    """From which checkpoint a D-Mail was sent, and the tokens that went with what it undid."""

    sent_from: int = -1
    saved: int = 0


class RecordedFacts:
    """Facts about messages that only `wire.jsonl` holds: what a result's card shows, and the origin of a D-Mail.

    Args:
        figures: the session's.
        records: all of it; none where that need not be known.
    """

    def __init__(self, figures: CheckpointTokens, records: Sequence[EventRecord] = ()) -> None:
        self._pieces = records_by_checkpoint(records)
        self._dmails: dict[str, DMailOrigin] = {}
        sent = DMailCuts()
        for record in records:
            sent.apply(record.event)
        for uid, cut in sent.all:
            self._dmails[uid] = DMailOrigin(cut.from_checkpoint, saved_by(uid, cut, figures))

    def display(self, uid: str, call_id: str) -> tuple[DisplayBlock, ...]:
        """What the card of a result draws beside its text; nothing where it is not known."""
        for record in self._pieces.get(uid, ()) if call_id else ():
            if isinstance(record.event, ev.ToolResult) and record.event.id == call_id:
                return record.event.display
        return ()

    def card(self, uid: str, call_id: str) -> Card | None:
        """The card of the tool of a call; None where it is not known, or is by the tool's name."""
        for record in self._pieces.get(uid, ()) if call_id else ():
            if isinstance(record.event, ev.ToolCall) and record.event.id == call_id:
                return record.event.card
        return None

    def dmail(self, uid: str) -> DMailOrigin:
        """Where the D-Mail of a checkpoint came from."""
        return self._dmails.get(uid, DMailOrigin())


@dataclass(frozen=True, slots=True)
class WorldLineReader:
    """Reads the world lines of one session. Files are read in threads."""

    session: Session
    files: FileHistory
    figures: CheckpointTokens

    async def world_lines(self) -> Sequence[WorldLineInfo]:
        """The world lines that were left, in order of number."""
        session = self.session
        lines = await asyncio.to_thread(session.world_lines.list, session.context.world_line)
        return [_info(line) for line in lines]

    async def read(self, world_line: int) -> list[EventRecord]:
        """The events of a world line, as `history` rebuilds them.

        Raises:
            KeyError: no such world line.
        """
        session = self.session
        return await asyncio.to_thread(
            lambda: rebuild_world_line(session, read_records(session), world_line)
        )

    async def messages(self, world_line: int, pins: Collection[Pin]) -> Sequence[WorldLineMessage]:
        """All messages of a world line, checkpoint markers left out.

        Raises:
            KeyError: no such world line.
        """
        line = await asyncio.to_thread(self.session.world_line, world_line)
        return await asyncio.to_thread(_messages, line, 0, pins, RecordedFacts(self.figures))

    async def markdown(self, target: Target) -> str:
        """A world line up to before a checkpoint of it, or all of it, as Markdown.

        Raises:
            KeyError: no such checkpoint or world line.
        """
        line = await asyncio.to_thread(self.session.world_line, target.world_line)
        end = None if target.is_end else line.index.checkpoint(target.id).message_index
        # What is appended meanwhile does not belong to it.
        kept = line.messages[: len(line.messages) if end is None else end]
        return await asyncio.to_thread(as_markdown, kept)

    async def compare(self, world_line: int, pins: Collection[Pin]) -> WorldLineComparison:
        """Compare a world line that was left with the live one, from the fork on.

        Raises:
            KeyError: no such world line.
        """
        line = self.session.context.world_line
        other = await asyncio.to_thread(self.session.world_line, world_line)
        shared = await asyncio.to_thread(shared_checkpoints, line, other)
        live, points = line.checkpoints, other.checkpoints
        facts = await asyncio.to_thread(
            lambda: RecordedFacts(self.figures, session_history(self.session))
        )
        figure = self.figures.get(live[shared].uid) if 0 < shared < len(live) else None
        return WorldLineComparison(
            world_line=world_line,
            fork=live[shared - 1].id if shared else -1,
            live=tuple(await asyncio.to_thread(_messages, line, shared, pins, facts)),
            other=tuple(await asyncio.to_thread(_messages, other, shared, pins, facts)),
            files=await self._diverged_files(live, points, shared),
            shared_tokens=figure.tokens if figure is not None else 0,
        )

    async def _diverged_files(
        self, live: Sequence[Checkpoint], other: Sequence[Checkpoint], shared: int
    ) -> DivergedFiles:
        """What the live world line and another one, which share their first checkpoints, made of the files."""
        if not other:
            return DivergedFiles(reason="That line has no checkpoint.")
        newest = _names(other[-1:])
        begins = [*_names(live[shared : shared + 1]), *_names(other[shared : shared + 1])]
        divergence = await self.files.divergence(begins or newest, newest)
        return DivergedFiles(
            tuple(
                ComparedFile(one.path, _side(one.left), _side(one.now), one.alike)
                for one in divergence.files
            ),
            divergence.remarks,
            divergence.reason,
        )


def _messages(
    line: WorldLineContent, first: int, pins: Collection[Pin], facts: RecordedFacts
) -> list[WorldLineMessage]:
    """The messages of a line from its checkpoint at place `first` on."""
    parts = segments(line, first)
    return [shown for part in parts for shown in _shown(part, pins, facts)]


def _info(line: WorldLine) -> WorldLineInfo:
    return WorldLineInfo(
        n=line.n,
        reason=line.reason,
        checkpoint_id=line.left_by.checkpoint_id,
        uid=line.left_by.uid,
        at=line.left_by.at,
        tokens_before=line.left_by.tokens_before,
        tokens_after=line.left_by.tokens_after,
        messages_dropped=line.left_by.messages_dropped,
        text=line.left_by.text,
        shared=line.shared,
        n_messages=line.n_messages,
        size_bytes=line.size_bytes,
    )


def _shown(part: Segment, pins: Collection[Pin], facts: RecordedFacts) -> list[WorldLineMessage]:
    point = part.point
    found: list[WorldLineMessage] = []
    open_calls: list[ToolCall] = []
    asked = 0
    for number, message in enumerate(part.messages):
        pinned = (point.uid, number) in pins or (point.was or "", number) in pins
        if message.role == "tool":
            call = open_calls.pop(0) if open_calls else None
            outcome = outcome_of(message)
            card = facts.card(point.uid, call.id) if call is not None else None
            found.append(
                WorldLineMessage(
                    point.id,
                    point.uid,
                    number,
                    "tool",
                    outcome.output or outcome.message,
                    name=call.function.name if call is not None else "",
                    target=call_target(call, card) if call is not None else "",
                    card=card,
                    failed=outcome.is_error,
                    pinned=pinned,
                    display=facts.display(point.uid, message.tool_call_id or ""),
                )
            )
            continue
        dmail, summary = dmail_text(message), summary_text(message)
        came = DMailOrigin() if dmail is None else facts.dmail(point.uid)
        if message.role == "assistant":
            open_calls, asked = list(message.tool_calls or ()), number
        found.append(
            WorldLineMessage(
                point.id,
                point.uid,
                number,
                _kind_of(message),
                next(
                    (text for text in (dmail, summary) if text is not None),
                    message.text,
                ),
                calls=tuple((c.function.name, call_target(c)) for c in message.tool_calls or ()),
                pinned=pinned,
                display=image_blocks(message),
                sent_from=came.sent_from,
                saved=came.saved,
            )
        )
    # Calls without a result: their program was killed.
    found += [
        WorldLineMessage(
            point.id,
            point.uid,
            asked,
            "tool",
            INTERRUPTED,
            name=call.function.name,
            target=call_target(call, card := facts.card(point.uid, call.id)),
            card=card,
            failed=True,
            display=facts.display(point.uid, call.id),
        )
        for call in open_calls
    ]
    return found


def _kind_of(message: Message) -> MessageKind:
    kind = internal_kind(message)
    if kind == "dmail":
        return "dmail"
    if kind == "compaction":
        return "summary"
    if kind is not None:
        return "reminder"
    return "user" if message.role == "user" else "agent"


def _names(points: Sequence[Checkpoint]) -> list[str]:
    """What they were called before a compaction, and are called now."""
    return [name for point in points for name in (point.was, point.uid) if name]


def _side(side: SideChange) -> FileSide:
    diff = side.diff
    if diff is None:
        return FileSide(side.outcome, side.authors, is_text=side.outcome == "same")
    return FileSide(side.outcome, side.authors, diff.added, diff.removed, diff.rows)
