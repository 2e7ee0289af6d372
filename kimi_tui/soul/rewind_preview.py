"""Computes the preview of a rewind, jump or undo: the messages that it would drop, and the tokens that it would free. Nothing is changed.

It may be called at any time, even during a turn, and for conversations of any length: figures come from the context's index,
and only messages whose rows are drawn are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import add
from typing import overload

from kimi_tui.daemon_threads import in_daemon_thread
from kimi_tui.llm.message import Message
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.rotation import number_if_left
from kimi_tui.session.schema import Checkpoint, MessageKind
from kimi_tui.session.world_lines import StoredWorldLines
from kimi_tui.soul.conversation import Conversation
from kimi_tui.soul.messages import (
    Segment,
    call_target,
    command_report,
    dmail_text,
    image_blocks,
    is_user_words,
    kind_of,
    label_of,
    label_of_message,
    place_of,
    segment_at,
    server_called,
    summary_text,
)
from kimi_tui.soul.rewind_values import END, DroppedMessage, RewindPreview, Target
from kimi_tui.soul.tasks import TimeSlices
from kimi_tui.soul.token_meter import WorldLineTokens
from kimi_tui.soul.usage import Cost
from kimi_tui.tool_cards import CALL_TOOL, COMMANDS, ImageBlock, server_of

_LISTED = {MessageKind.SAID: 1, MessageKind.DMAIL: 1, MessageKind.SUMMARY: 1, MessageKind.WORDS: 1}

# The number of rows of a message in the list, by its kind, without those of its calls.
_ROWS = bytes(
    _LISTED.get(MessageKind(kind), 0) if kind < len(MessageKind) else 0 for kind in range(256)
)

_RESULTS = bytes([MessageKind.RESULT, MessageKind.FAILED])
_ASIDES = frozenset({MessageKind.MARKER, MessageKind.ASIDE})

_MOST_KNOWN = 1_000
_MOST_READ = 200
"""The largest number of messages that are read for the servers that they called."""


def rewind_prompt(segment: Segment, chosen: int = -1) -> str:
    """Return the text that goes back into the prompt after a rewind to this checkpoint.

    It is the `chosen` message of the user among those after the checkpoint, or else the message that began it; of messages
    before a D-Mail the newest. A message that only looks like a command of the user has a blank before it, as the user types
    it.
    """
    messages, texts = segment.messages, list[str]()
    places = [n for n, message in enumerate(messages) if is_user_words(message)]
    for place in (places[n] for n in _returned(segment, chosen)):
        text = messages[place].text
        if text.startswith("!") and not any(map(command_report, messages[place + 1 : place + 2])):
            text = f" {text}"
        texts.append(text)
    return "\n\n".join(text for text in texts if text.strip())


def rewind_images(segment: Segment, chosen: int = -1) -> tuple[ImageBlock, ...]:
    """Return the images that were pasted into that message; images that it names are attached again by their names."""
    words = segment.words
    returned = (words[n] for n in _returned(segment, chosen))
    return tuple(one for message in returned for one in image_blocks(message, pasted=True))


def _returned(segment: Segment, chosen: int) -> range:
    """Return which of the user's messages after a checkpoint `rewind_prompt` returns."""
    n_said = len(segment.said)
    if 0 <= chosen < n_said:
        return range(chosen, chosen + 1)
    if segment.kind == "user":
        return range(n_said)
    n_carried = len(segment.carried)
    return range(max(0, n_carried - 1), n_carried)


async def preview_of(
    conversation: Conversation, target: Target, stays: Collection[int] = ()
) -> RewindPreview:
    """Compute what a rewind to a checkpoint of the live world line would do.

    Args:
        conversation: the live conversation.
        target: the checkpoint.
        stays: the messages that stay nevertheless, as with a D-Mail, counted from the first dropped one.

    Raises:
        KeyError: there is no such checkpoint.
    """
    context = conversation.context
    point = context.index.checkpoint(target.id)
    place = place_of(point, context.checkpoints)
    there = segment_at(context.world_line, point)
    used, estimated = conversation.meter.used, conversation.meter.is_estimated
    after, measured, _ = conversation.figure_before(point)
    dropped = DroppedMessages(conversation, place, _returned(there, target.said), stays)
    # From here on the context may grow or be replaced; the dropped part was computed above.
    preview = await _preview(target, there, dropped, used, min(after, used))
    return replace(preview, estimated=estimated or not measured or after > used)


def preview_of_files(conversation: Conversation) -> RewindPreview:
    """Return the preview for the end of the live world line: only files can be restored."""
    dropped = DroppedMessages(conversation, len(conversation.context.checkpoints))
    used = conversation.meter.used
    estimated = conversation.meter.is_estimated
    return RewindPreview(
        Target(END), "", 0, 0, 0, used, used, estimated, dropped, "", is_there=True
    )


async def preview_of_jump(
    conversation: Conversation, world_lines: StoredWorldLines, target: Target
) -> RewindPreview:
    """Compute what a jump to a checkpoint of another world line, or its end, would do: the parts that only the live one has are dropped.

    Raises:
        KeyError: there is no such world line or checkpoint.
    """
    # The file of the other world line is read completely.
    line = await in_daemon_thread(world_lines.read, target.world_line)
    points = line.checkpoints
    place, offset = len(points), line.index.size
    if target.is_end:
        tokens = WorldLineTokens(line, conversation.meter.scale)
        figure = await in_daemon_thread(tokens.before, offset)
    else:
        point = line.index.checkpoint(target.id)
        place, offset = place_of(point, points), point.offset
        figure = await in_daemon_thread(conversation.figure_before, point, line)
    # The preview of an end shows the segment of the newest checkpoint.
    shown = min(place, len(points) - 1)
    there = await in_daemon_thread(segment_at, line, points[shown]) if points else None
    live, shared = conversation.context.checkpoints, 0
    for mine, other in zip(live, points[:place], strict=False):
        if mine.uid != other.uid:
            break
        shared += 1
    is_there = shared == place == len(live) and conversation.context.size_bytes == offset
    dropped = DroppedMessages(conversation, shared)
    preview = await _preview(target, there, dropped, conversation.meter.used, figure.tokens)
    return replace(preview, is_there=is_there)


async def preview_of_undo(
    conversation: Conversation, world_lines: StoredWorldLines, undone: JournalEntry, name: str
) -> RewindPreview:
    """Compute what happened since an operation, which its undo takes along; `name` is the name of the operation."""
    context, points = conversation.context, conversation.context.checkpoints
    # An operation that only appended records begins with a checkpoint of its own.
    done = undone.size + 1 if undone.grows_line else undone.to_size
    place = bisect_left(points, done, key=lambda one: one.offset)
    if not (undone.changes_line or undone.grows_line):
        place = len(points)
    dropped = DroppedMessages(conversation, place)
    number, own = 0, place
    if dropped.n_messages:
        own = await _first_own(conversation, world_lines, undone)
        args = (context.storage, context.folder, context.journal, context.size_bytes)
        number = await in_daemon_thread(number_if_left, *args)
    target = Target(points[place].id if place < len(points) else END)
    after = undone.tokens_before or conversation.meter.used
    preview = await _preview(target, None, dropped, conversation.meter.used, after)
    left_from = points[own].id if own < len(points) else END
    return replace(preview, label=name, left_as=number, left_from=left_from)


async def _first_own(
    conversation: Conversation, world_lines: StoredWorldLines, undone: JournalEntry
) -> int:
    """Return the place of the first live checkpoint that is not on the line that the operation left."""
    points = conversation.context.checkpoints
    if undone.grows_line:
        return bisect_left(points, undone.size, key=lambda one: one.offset)
    # The file of that line is read completely.
    left = (await in_daemon_thread(world_lines.index, undone.n)).checkpoints
    there = {point.uid for point in left if point.offset < undone.size}
    return next((n for n, one in enumerate(points) if one.uid not in there), len(points))


async def _preview(
    target: Target, there: Segment | None, dropped: DroppedMessages, used: int, after: int
) -> RewindPreview:
    """Return the preview, with estimated tokens. `there` is the segment of the checkpoint, None if it is unknown."""
    n_checkpoints, n_turns = await dropped.begun()
    label = "" if there is None else there.label
    if there is not None and 0 <= target.said < len(there.said):
        label = label_of_message(there.words[target.said])
    return RewindPreview(
        target=target,
        label=label,
        steps=n_checkpoints,
        turns=n_turns,
        messages=dropped.n_messages,
        tokens_before=used,
        tokens_after=after,
        estimated=True,
        dropped=dropped,
        prompt="" if there is None or target.is_end else rewind_prompt(there, target.said),
        cost=await dropped.cost(),
        ran_commands=dropped.ran_commands,
        servers=dropped.servers,
    )


class DroppedMessages(Sequence[DroppedMessage]):
    """Everything that a rewind drops from a checkpoint on, newest first, in the present context.

    The number of rows is known at once; a message is read when its row is accessed. If the context has been replaced since,
    rows that were not accessed before are empty.

    Args:
        conversation: the live conversation.
        place: the place of the first dropped checkpoint in the list.
        returned: the user's messages after that checkpoint that go back into the prompt, and are not listed.
        stays: the messages that stay, counted from the first dropped one.
    """

    def __init__(
        self,
        conversation: Conversation,
        place: int,
        returned: Collection[int] = (),
        stays: Collection[int] = (),
    ) -> None:
        context = conversation.context
        self._conversation = conversation
        self._index = context.index
        self._points = list(context.checkpoints[place:])
        self._first = self._points[0].message_index if self._points else context.index.n_messages
        self._kinds = self._index.kinds(self._first)
        self._calls = self._index.calls(self._first)
        self._used = conversation.meter.used
        of_any_effect = COMMANDS | conversation.all_tools.of_any_effect
        self.ran_commands = any(self._index.has_call(one, self._first) for one in of_any_effect)
        self._known: dict[tuple[int, int], DroppedMessage] = {}
        self._counted = (-1, 0)
        self._stays = frozenset(stays)
        self.n_messages = (
            len(self._kinds) - self._kinds.count(MessageKind.MARKER) - len(self._stays)
        )
        here = bytearray(self._kinds)
        if returned:
            said = [n for n in range(self._end_of(0)) if here[n] == MessageKind.SAID]
            for number in returned:
                if number < len(said):
                    here[said[number]] = MessageKind.OTHER
        if stays:
            self._calls = [0 if n in self._stays else calls for n, calls in enumerate(self._calls)]
            for number in stays:
                here[number] = MessageKind.OTHER
        listed = self._listed = bytes(here)
        # The number of rows up to and including each message.
        self._rows = list(accumulate(map(add, listed.translate(_ROWS), self._calls)))

    def __len__(self) -> int:
        return self._rows[-1] if self._rows else 0

    @overload
    def __getitem__(self, index: int) -> DroppedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DroppedMessage]: ...
    def __getitem__(self, index: int | slice) -> DroppedMessage | Sequence[DroppedMessage]:
        if isinstance(index, slice):
            return tuple(self[n] for n in range(*index.indices(len(self))))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError("there is no such message")
        # The newest row is first in the list, and last in the context.
        place = len(self) - 1 - place
        number = bisect_right(self._rows, place)
        before = self._rows[number - 1] if number else 0
        return self._entry(number, place - before)

    @property
    def servers(self) -> tuple[str, ...]:
        """The MCP servers that the dropped messages called."""
        names = map(server_of, self._index.tools_called(self._first))
        found: dict[str, None] = {server: None for server in names if server}
        for place in self._index.callers(CALL_TOOL, self._first)[-_MOST_READ:]:
            for call in self._message(place - self._first).tool_calls or ():
                if call.function.name == CALL_TOOL and (server := server_called(call)):
                    found[server] = None
        return tuple(found)

    async def begun(self) -> tuple[int, int]:
        """Return the number of dropped checkpoints, and of dropped turns: each message of the user that begins one, even before a
        D-Mail that carried it.
        """
        n_checkpoints = n_turns = 0
        slices = TimeSlices()
        start = 0
        for place, point in enumerate(self._points):
            end = self._end_of(place)
            if not self._all_stays(start, end):
                kinds = self._kinds[start:end]
                kind = kind_of(kinds, point.id)
                n_checkpoints += 1
                n_turns += kind == "user"
                if kind == "dmail":
                    before = kinds.rfind(MessageKind.DMAIL)
                    carried = (n for n in range(before) if kinds[n] == MessageKind.SAID)
                    n_turns += sum(start + n not in self._stays for n in carried)
            start = end
            if place % 256 == 0:
                await slices.yield_if_over()
        return n_checkpoints, n_turns

    def _all_stays(self, start: int, end: int) -> bool:
        """Return whether there are messages between two places, and all of them stay."""
        said = (
            [n for n in range(start, end) if self._kinds[n] not in _ASIDES] if self._stays else []
        )
        return bool(said) and self._stays.issuperset(said)

    async def cost(self) -> Cost | None:
        """Return the cost of the dropped model calls; None if no prices are set, or if nothing is dropped."""
        if not self._points:
            return None
        return await self._conversation.ledger.cost_of(self._points, self._index)

    def _end_of(self, place: int) -> int:
        """Return the number, counted from the first dropped one, after the last message of a checkpoint."""
        if place + 1 == len(self._points):
            return len(self._kinds)
        return self._points[place + 1].message_index - self._first

    def _entry(self, number: int, row: int) -> DroppedMessage:
        """Return one row of a message, in the order of the context: its text, if it has any, then its calls."""
        known = self._known.get((number, row))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[number, row] = self._message_row(number, row)
        return known

    def _message_row(self, number: int, row: int) -> DroppedMessage:
        message = self._message(number)
        kind, n_calls = self._listed[number], self._calls[number]
        order = row - (self._rows[number] - (self._rows[number - 1] if number else 0) - n_calls)
        if order < 0:
            match kind:
                case MessageKind.SAID:
                    return DroppedMessage("user", label_of_message(message))
                case MessageKind.DMAIL:
                    return DroppedMessage("dmail", label_of(dmail_text(message) or ""))
                case MessageKind.SUMMARY:
                    return DroppedMessage("summary", label_of(summary_text(message) or ""))
                case _:
                    return DroppedMessage("agent", label_of(message.text))
        n_results = self._n_results(number)
        has_result = order < n_results
        failed = has_result and self._kinds[number + 1 + order] == MessageKind.FAILED
        tokens = self._cost(number + 1 + order, is_only=n_results == 1) if has_result else None
        # Invalid calls are counted, but are not in the message.
        calls = message.tool_calls or []
        if order >= len(calls):
            return DroppedMessage("tool", "", "", failed, tokens)
        call = calls[order]
        name = call.function.name
        card = self._conversation.all_tools.card(name)
        return DroppedMessage("tool", call_target(call, card), name, failed, tokens, card)

    def _n_results(self, number: int) -> int:
        """Return the number of results that follow the calls of a message."""
        if self._counted[0] != number:
            following = self._kinds[number + 1 : number + 1 + self._calls[number]]
            self._counted = (number, len(following) - len(following.lstrip(_RESULTS)))
        return self._counted[1]

    def _cost(self, at: int, *, is_only: bool) -> int:
        """Return the tokens of a result; `is_only`: no other result follows its call."""
        cost = self._cost_of_only_result(at) if is_only else None
        if cost is not None:
            return cost
        at += self._first
        return self._conversation.meter.of_results(at, at + 1)

    def _cost_of_only_result(self, at: int) -> int | None:
        """Return the tokens that a step added, as its row shows them, if all of them were one result; None if the server
        never reported them.
        """
        place = bisect_right(self._points, at + self._first, key=lambda p: p.message_index) - 1
        point = self._points[place]
        inside = self._kinds[point.message_index - self._first : self._end_of(place)]
        n_results = inside.count(MessageKind.RESULT) + inside.count(MessageKind.FAILED)
        if point.tokens is None or n_results != 1 or kind_of(inside, point.id) != "step":
            return None
        sent = self._sent(point)
        later = (self._sent(one) for one in self._points[place + 1 :])
        end = next((tokens for tokens in later if tokens is not None), self._used)
        return max(0, end - sent) if sent is not None else None

    def _sent(self, point: Checkpoint) -> int | None:
        known = self._conversation.figures.get(point.uid)
        return known.tokens if known is not None else point.tokens

    def _message(self, number: int) -> Message:
        context = self._conversation.context
        if context.index is not self._index:
            return _GONE
        return context.messages[self._first + number]


_GONE = Message(role="assistant", content="")
