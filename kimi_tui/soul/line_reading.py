"""Reads lines for a screen: which there are, what stands in one, and how two differ."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.session.records import Checkpoint
from kimi_tui.session.session import Session
from kimi_tui.session.worldlines import WorldLine, WorldLines, shared_checkpoints
from kimi_tui.soul.history import read_records
from kimi_tui.soul.internal_messages import dmail_text, internal_kind, summary_text
from kimi_tui.soul.line_facts import LetterFacts, LineFacts
from kimi_tui.soul.marks import Pin
from kimi_tui.soul.parted_files import parted_files
from kimi_tui.soul.rebuild import told_line
from kimi_tui.soul.restoring import Restoring
from kimi_tui.soul.segments import Segment, call_target, segments
from kimi_tui.soul.tool_message import INTERRUPTED, outcome_of
from kimi_tui.soul.travel_protocol import LineComparison, LineMessage, MessageKind, WorldLineInfo
from kimi_tui.wire.events import Record


@dataclass(frozen=True, slots=True)
class LineReading:
    """Reads the lines of one session."""

    session: Session
    restoring: Restoring

    async def world_lines(self) -> Sequence[WorldLineInfo]:
        """The lines that were left, in order of number."""
        context = self.session.context
        live = tuple(context.checkpoints)
        lines = await asyncio.to_thread(self._lines().list, live, context.messages)
        return [_info(line) for line in lines]

    async def read(self, world_line: int) -> list[Record]:
        """The events of one line.

        Raises:
            KeyError: no such world line.
        """
        return await asyncio.to_thread(self._read, world_line)

    async def messages(self, world_line: int, pins: Collection[Pin]) -> Sequence[LineMessage]:
        """All messages of a line.

        Raises:
            KeyError: no such world line.
        """
        return await asyncio.to_thread(self._messages, world_line, 0, pins, LineFacts())

    async def compare(self, world_line: int, pins: Collection[Pin]) -> LineComparison:
        """A line that was left beside the live one, from where they part.

        Raises:
            KeyError: no such world line.
        """
        context = self.session.context
        live = context.checkpoints
        lines = self._lines()
        points = (await asyncio.to_thread(lines.index, world_line)).checkpoints
        other = (points, lines.messages_of(world_line))
        shared = await asyncio.to_thread(shared_checkpoints, (live, context.messages), other)
        facts = await asyncio.to_thread(lambda: LineFacts(read_records(self.session)))
        return LineComparison(
            world_line=world_line,
            fork=live[shared - 1].id if shared else -1,
            live=tuple(await asyncio.to_thread(self._messages, 0, shared, pins, facts)),
            other=tuple(await asyncio.to_thread(self._messages, world_line, shared, pins, facts)),
            files=await parted_files(self.restoring.history, live, points, shared),
            shared_tokens=context.tokens_at(live[shared].id) if 0 < shared < len(live) else 0,
        )

    def _read(self, world_line: int) -> list[Record]:
        return told_line(self.session, read_records(self.session), world_line)

    def _messages(
        self, world_line: int, first: int, pins: Collection[Pin], facts: LineFacts
    ) -> list[LineMessage]:
        lines = self._lines()
        points: Sequence[Checkpoint] = self.session.context.checkpoints
        messages: Sequence[Message] = self.session.context.messages
        if world_line:
            points, messages = lines.index(world_line).checkpoints, lines.messages_of(world_line)
        parts = segments(points, messages, first)
        return [shown for part in parts for shown in _shown(part, pins, facts)]

    def _lines(self) -> WorldLines:
        context = self.session.context
        return WorldLines(context.folder, context.journal, context.storage)


def _info(line: WorldLine) -> WorldLineInfo:
    return WorldLineInfo(
        n=line.n,
        reason=line.reason,
        checkpoint_id=line.checkpoint_id,
        uid=line.uid,
        at=line.at,
        tokens_before=line.tokens_before,
        tokens_after=line.tokens_after,
        messages_dropped=line.messages_dropped,
        text=line.text,
        n_checkpoints=len(line.checkpoints),
        shared=line.shared,
        newest=line.checkpoints[-1].id if line.checkpoints else -1,
        n_messages=line.n_messages,
        size_bytes=line.size_bytes,
    )


def _shown(part: Segment, pins: Collection[Pin], facts: LineFacts) -> list[LineMessage]:
    point = part.point
    found: list[LineMessage] = []
    open_calls: list[ToolCall] = []
    asked = 0
    for number, message in enumerate(part.messages):
        pinned = (point.uid, number) in pins or (point.was or "", number) in pins
        if message.role == "tool":
            call = open_calls.pop(0) if open_calls else None
            outcome = outcome_of(message)
            found.append(
                LineMessage(
                    point.id,
                    point.uid,
                    number,
                    "tool",
                    outcome.output or outcome.message,
                    name=call.function.name if call is not None else "",
                    target=call_target(call) if call is not None else "",
                    failed=outcome.is_error,
                    pinned=pinned,
                    display=facts.display(point.uid, message.tool_call_id or ""),
                )
            )
            continue
        letter, summary = dmail_text(message), summary_text(message)
        came = LetterFacts() if letter is None else facts.letter(point.uid)
        if message.role == "assistant":
            open_calls, asked = list(message.tool_calls or ()), number
        found.append(
            LineMessage(
                point.id,
                point.uid,
                number,
                _kind(message),
                next((text for text in (letter, summary) if text is not None), message.text),
                calls=tuple((c.function.name, call_target(c)) for c in message.tool_calls or ()),
                pinned=pinned,
                sent_from=came.sent_from,
                saved=came.saved,
            )
        )
    # Calls without a result: their program was killed.
    found += [
        LineMessage(
            point.id,
            point.uid,
            asked,
            "tool",
            INTERRUPTED,
            name=call.function.name,
            target=call_target(call),
            failed=True,
            display=facts.display(point.uid, call.id),
        )
        for call in open_calls
    ]
    return found


def _kind(message: Message) -> MessageKind:
    kind = internal_kind(message)
    if kind == "dmail":
        return "dmail"
    if kind == "compaction":
        return "summary"
    if kind is not None:
        return "reminder"
    return "user" if message.role == "user" else "agent"
