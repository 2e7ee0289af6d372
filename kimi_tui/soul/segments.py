"""Segments: a world line split at its checkpoints, with the kind and label of each, read from its messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kimi_tui.foreign_text import one_line
from kimi_tui.image_names import titled
from kimi_tui.llm.message import Message, ToolCall
from kimi_tui.projection.tokens import TokenFigure
from kimi_tui.session.context_index import ContextIndex, MessageKind, WorldLineContent
from kimi_tui.session.schema import Checkpoint
from kimi_tui.soul.messages import dmail_text, internal_kind, is_user_words, summary_text
from kimi_tui.soul.tool_results import call_arguments
from kimi_tui.tool_names import short_name
from kimi_tui.wire.events import CheckpointCreated, CheckpointKind

MAX_LABEL = 200
_BEGINNING = 4_096
_SAID = bytes([MessageKind.SAID])
_SUMMARY = bytes([MessageKind.SUMMARY])
_ASIDES = bytes([MessageKind.MARKER, MessageKind.ASIDE])
_UNTOLD = frozenset({MessageKind.MARKER, MessageKind.RESULT, MessageKind.FAILED})
_TARGET_KEYS = ("path", "command", "pattern", "query", "url", "message")


@dataclass(frozen=True, slots=True)
class Segment:
    """A checkpoint and the messages up to the next one, without its marker."""

    point: Checkpoint
    messages: tuple[Message, ...]

    @property
    def kind(self) -> CheckpointKind:
        """The kind of the checkpoint."""
        kinds = [internal_kind(message) for message in self.messages]
        # A D-Mail may bring a pinned summary along, but what begins with a summary is a compaction that kept a D-Mail.
        begins = next((kind for kind in kinds if kind != "note"), None)
        if "dmail" in kinds and (self.point.id or begins != "compaction"):
            return "dmail"
        if "compaction" in kinds:
            return "compaction" if self.point.id == 0 else "summary"
        first = next((m for m in self.messages if internal_kind(m) is None), None)
        return "user" if first is not None and is_user_words(first) else "step"

    @property
    def words(self) -> tuple[Message, ...]:
        """The messages of the user in the segment."""
        return tuple(filter(is_user_words, self.messages))

    @property
    def said(self) -> tuple[str, ...]:
        """The texts of the user's messages."""
        return tuple(m.text for m in self.words)

    @property
    def carried(self) -> tuple[str, ...]:
        """What of that was carried over with a D-Mail, and stands before it; an older D-Mail may be among it."""
        if self.kind != "dmail":
            return ()
        last = max(n for n, m in enumerate(self.messages) if dmail_text(m) is not None)
        return tuple(m.text for m in self.messages[:last] if is_user_words(m))

    @property
    def first(self) -> int:
        """The number of the first message that is said in it: the program may have put a word before it."""
        said = (n for n, m in enumerate(self.messages) if internal_kind(m) != "note")
        return next(said, 0)

    @property
    def user_words(self) -> str:
        """What the user said in it."""
        return "\n\n".join(text for text in self.said if text.strip())

    @property
    def label(self) -> str:
        """What it was, in one line of text."""
        match self.kind:
            case "user":
                return label_of_message(next(m for m in self.messages if is_user_words(m)))
            case "dmail":
                dmails = [text for m in self.messages if (text := dmail_text(m)) is not None]
                # Several that were sent at once stand below one another, each under its target.
                return label_of(" ".join(dmails[-1][:_BEGINNING].split())) if dmails else ""
            case "compaction" | "summary":
                texts = [text for m in self.messages if (text := summary_text(m)) is not None]
                return label_of(texts[0]) if texts else ""
            case _:
                return self._step_label()

    def _step_label(self) -> str:
        for message in self.messages:
            if message.role != "assistant":
                continue
            if message.tool_calls:
                # Each gives the label a character at least, and there may be thousands.
                calls = (
                    f"{short_name(c.function.name)} {call_target(c)}"
                    for c in message.tool_calls[:MAX_LABEL]
                )
                return label_of(", ".join(map(str.strip, calls)))
            return label_of(message.text)
        return ""


def segments(line: WorldLineContent, first: int = 0, end: int | None = None) -> list[Segment]:
    """The segments of a world line from its checkpoint at place `first` on, to before that at `end`."""
    points, messages = line.checkpoints, line.messages
    found: list[Segment] = []
    for place in range(first, len(points) if end is None else end):
        start = points[place].message_index
        stop = points[place + 1].message_index if place + 1 < len(points) else len(messages)
        inside = tuple(m for m in messages[start:stop] if internal_kind(m) != "marker")
        found.append(Segment(points[place], inside))
    return found


def segment_at(line: WorldLineContent, point: Checkpoint) -> Segment:
    """The segment of a checkpoint without the results of its tools, which may be large and say nothing of what it began."""
    first = point.message_index
    kinds = kinds_behind(line.index, point)
    wanted = [n for n, kind in enumerate(kinds, first) if kind not in _UNTOLD]
    return Segment(point, tuple(line.messages[n] for n in wanted))


def kinds_behind(index: ContextIndex, point: Checkpoint) -> bytes:
    """The kinds of the messages behind a checkpoint, up to the next one."""
    following = index.checkpoints[place_of(point, index.checkpoints) + 1 :][:1]
    end = following[0].message_index if following else index.n_messages
    return index.kinds(point.message_index, end)


def place_of(point: Checkpoint, checkpoints: Sequence[Checkpoint]) -> int:
    """Where a checkpoint stands in the list of its world line, found by its offset."""
    return bisect_left(checkpoints, point.offset, key=lambda one: one.offset)


def kind_of(kinds: bytes, checkpoint_id: int) -> CheckpointKind:
    """What a checkpoint began, by the kinds of the messages behind it (`Segment.kind` without reading them)."""
    begins = kinds.lstrip(_ASIDES)[:1]
    if MessageKind.DMAIL in kinds and (checkpoint_id or begins != _SUMMARY):
        return "dmail"
    if MessageKind.SUMMARY in kinds:
        return "summary" if checkpoint_id else "compaction"
    return "user" if begins == _SAID else "step"


def checkpoint_created(
    point: Checkpoint,
    kind: CheckpointKind,
    label: str,
    figure: TokenFigure,
    *,
    first: int = 0,
    was: str = "",
    kept: tuple[int, ...] = (),
    said: tuple[str, ...] = (),
    carried: int = 0,
) -> CheckpointCreated:
    """The `CheckpointCreated` of a checkpoint; `figure` is of what precedes it, the other arguments as in that event."""
    return CheckpointCreated(
        point.id,
        point.uid,
        kind,
        label,
        figure.tokens,
        point.at,
        was,
        first,
        kept,
        said,
        carried,
        figure.measured,
        figure.fitted,
    )


def label_of(text: str) -> str:
    """The label of a checkpoint from a text: its first line that is not blank, cut to `MAX_LABEL` characters."""
    # A text may be megabytes; nearly always its beginning is enough.
    for size in (_BEGINNING, len(text)):
        for line in text[:size].splitlines():
            if short := one_line(line):
                return short if len(short) <= MAX_LABEL else short[: MAX_LABEL - 1] + "…"
        if size >= len(text):
            break
    return ""


def label_of_message(message: Message) -> str:
    """The label of a checkpoint that a message of the user began; one of images alone has their names."""
    return label_of(titled(message.text, [part.image_url.name or "" for part in message.images]))


def call_target(call: ToolCall) -> str:
    """What a call is about: its path, command or pattern; empty where it has none."""
    arguments = call_arguments(call.function.arguments)
    for key in _TARGET_KEYS:
        if isinstance(arguments.get(key), str):
            return one_line(arguments[key])[:MAX_LABEL]
    return ""
