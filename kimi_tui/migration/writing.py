"""Writes a plain session as one of ours: contexts, world lines, journal, record and state, all or nothing.

What was said is played in an order in which each line follows from the one before: a fork is a rewind to the checkpoint
before it, a compaction begins a new context, and what another agent undid is a world line. A fork behind which another
compaction lies is reached by a jump to the line that the compaction left. The files are those that a session has after these
operations, byte for byte in form; the events in the record are those that they publish.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from kimi_tui.filesystem import Storage
from kimi_tui.llm.message import (
    ContentPart,
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    ThinkPart,
    ToolCall,
)
from kimi_tui.llm.tokens import message_tokens
from kimi_tui.migration.plain import CannotRead, PlainCall, PlainEntry, PlainSession
from kimi_tui.migration.tool_names import display_of, translated
from kimi_tui.projection.tokens import TokenFigure
from kimi_tui.prompts import INTERRUPTED
from kimi_tui.session.aside import IMPORTED, made_aside
from kimi_tui.session.images import ImageStore, image_in, image_part
from kimi_tui.session.journal import Journal, JournalEntry
from kimi_tui.session.jsonl import METADATA, RECORD_NAME, encode, parse
from kimi_tui.session.metadata import SessionMetadata, SessionSummary, folder_inode, write_state
from kimi_tui.session.rotation import LIVE_NAME, world_line_path
from kimi_tui.session.schema import (
    Addition,
    Checkpoint,
    NewCheckpoint,
    SystemPrompt,
    TokenCount,
    added_lines,
    new_uid,
)
from kimi_tui.session.store import SessionStore
from kimi_tui.soul.messages import (
    checkpoint_created,
    image_blocks,
    label_of_message,
    summary_message,
    user_words,
)
from kimi_tui.soul.tool_results import call_key, outcome_of, tool_message, was_stopped
from kimi_tui.tools.outcome import ToolOutcome, failure
from kimi_tui.wire import events as ev
from kimi_tui.wire.codec import encode_record
from kimi_tui.wire.events import EventRecord

MOST_LINES = 200
"""World lines that are written at most: the newest."""
MOST_ON_LINES = 4_000_000
"""Entries on all world lines together, those that lines share counted for each."""
MOST_LINE_BYTES = 1 << 30
"""Bytes of all world lines together."""
_NAMESPACE = uuid.UUID("6a1c2a4e-6d0f-4f7e-9d43-7a1d5e0b5c11")
_LONGEST_CALL_S = 86_400.0


@dataclass(frozen=True, slots=True)
class WrittenSession:
    """An imported session: its folder, and how many world lines it has."""

    folder: Path
    world_lines: int


def target_of(store: SessionStore, agent: str, name: str, work_dir: Path) -> Path:
    """Return the place of a session of another agent among ours, imported or not."""
    return store.bucket(work_dir) / str(uuid.uuid5(_NAMESPACE, f"{agent}/{name}"))


def write_session(
    store: SessionStore, plain: PlainSession, work_dir: Path, system_prompt: str
) -> WrittenSession:
    """Write a session, completely or not at all. It blocks, so call it in a thread.

    Args:
        store: Where sessions are.
        plain: What was read; what is left out here is added to its losses.
        work_dir: The session's work folder.
        system_prompt: Its first record.

    Raises:
        CannotRead: There is nothing in it, or it was imported before.
        StorageTrouble: The disk refused; nothing was made.
    """
    found = plain.found
    target = target_of(store, found.agent, found.id, work_dir)
    if target.exists():
        raise CannotRead(f"This session was already imported, as session {target.name[:8]}.")
    storage = store.storage
    temporary = target.with_name(f"{IMPORTED}{target.name}")
    with made_aside(storage, temporary, target, "import the session"):
        # An import that was killed may have left it.
        shutil.rmtree(temporary, ignore_errors=True)
        storage.make_folder(temporary)
        n_lines = _SessionWriter(storage, temporary, plain, work_dir, system_prompt).write()
    return WrittenSession(target, n_lines)


def order_of(plain: PlainSession) -> list[list[int]]:
    """Return the paths to be played, from a root to a leaf each, the current one last.

    Those that share a beginning follow one another, so that each shares more with the path before it than with any other.
    """
    leaves = [*plain.leaves(), plain.last] if plain.entries else []
    # Many long lines would take more memory, and more of the disk, than anybody has use for.
    most = max(10, min(MOST_LINES, MOST_ON_LINES // max(1, len(plain.entries))))
    if len(leaves) > most:
        plain.losses["old branch of the conversation"] += len(leaves) - most
        leaves = leaves[-most:]
    paths = [plain.path_to(leaf) for leaf in leaves]
    # Below each entry the path with the newest end comes last, and that of the current conversation behind all.
    ranks: dict[int, int] = {}
    for rank, path in enumerate(paths):
        for place in path:
            ranks[place] = rank
    newest = len(paths)
    return sorted(
        paths,
        # The conversation may stand within another path: then it is reached by going back on that.
        key=lambda path: [*(ranks[place] for place in path), *[newest] * (path is paths[-1])],
    )


@dataclass(slots=True)
class _Mark:
    """Where an entry begins in a context: before its checkpoint."""

    point: Checkpoint
    size: int
    used: int
    n_messages: int
    n_calls: int
    kind: ev.CheckpointKind
    words: str = ""


@dataclass(slots=True)
class _Line:
    """A context that is being written: its records, and where its entries begin.

    Attributes:
        data: Its bytes.
        marks: The beginning of each of its entries, by place, in order.
        number: The number of the world line that has it; 0 while it has none.
        n_messages, n_calls: How many it has, markers not counted.
        n_points: The id of its next checkpoint.
        used: The tokens that it takes.
    """

    data: bytearray = field(default_factory=bytearray)
    marks: dict[int, _Mark] = field(default_factory=dict[int, _Mark])
    number: int = 0
    n_messages: int = 0
    n_calls: int = 0
    n_points: int = 0
    used: int = 0

    def cut(self, mark: _Mark) -> _Line:
        """Return the part before a mark as a line of its own."""
        marks = {place: one for place, one in self.marks.items() if one.size < mark.size}
        return _Line(
            bytearray(self.data[: mark.size]),
            marks,
            0,
            mark.n_messages,
            mark.n_calls,
            mark.point.id,
            mark.used,
        )


class _SessionWriter:
    """Plays a session into a folder."""

    def __init__(
        self,
        storage: Storage,
        folder: Path,
        plain: PlainSession,
        work_dir: Path,
        system_prompt: str,
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._plain = plain
        self._work_dir = work_dir
        self._system = system_prompt
        self._journal = Journal(folder, storage)
        self._images = ImageStore(folder, storage)
        self._record = bytearray(encode(METADATA))
        self._record_file = -1
        self._seq = 0
        self._at = 0.0
        self._line = _Line()
        # The compactions of the path that is played: the line that was left, and the summary.
        self._left: list[tuple[_Line, int]] = []
        self._n_lines = 0
        self._line_bytes = 0
        self._in_turn = False
        self._step = 0
        self._model = ""
        self._total = [0, 0, 0]
        self._title = ""

    def write(self) -> int:
        """Write all files; return the number of world lines.

        Raises:
            CannotRead: There is nothing to write.
            OSError: The disk refused.
        """
        paths = order_of(self._plain)
        entries = self._plain.entries
        if not any(entry.kind != "summary" and not entry.is_empty for entry in entries):
            raise CannotRead("The session has no messages.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._record_file = self._storage.open(self._folder / RECORD_NAME, flags)
        try:
            self._append([SystemPrompt(self._system)])
            before: list[int] = []
            for number, path in enumerate(paths):
                shared = _shared(before, path)
                if self._line_bytes > MOST_LINE_BYTES and number < len(paths) - 1:
                    self._plain.losses["old branch of the conversation"] += 1
                    continue
                if shared < len(before):
                    self._go_back(before, shared)
                for place in path[shared:]:
                    self._play(place, entries[place])
                before = path
            self._end_turn()
            self._flush(every=True)
            self._storage.fsync(self._record_file)
        finally:
            self._storage.close(self._record_file)
        self._storage.write_file(self._folder / LIVE_NAME, bytes(self._line.data), new=True)
        self._journal.file.close()
        self._write_state()
        return self._n_lines

    # -- what was said ---------------------------------------------------------------------------------

    def _play(self, place: int, entry: PlainEntry) -> None:
        if entry.kind != "answer":
            # The time since the last answer is not one in which the agent worked.
            self._end_turn("interrupted" if self._ends_open else "done")
        self._at = max(self._at, entry.at)
        match entry.kind:
            case "said":
                self._say(place, entry)
            case "answer":
                self._answer(place, entry)
            case "summary" if self._line.marks:
                self._compact(place, entry)
            case _:
                # Nothing is there that it could stand for, so it is what the conversation begins with.
                self._say(place, entry)

    def _say(self, place: int, entry: PlainEntry) -> None:
        message = user_words(entry.text)
        if images := self._pictures(entry.images):
            parts: list[ContentPart] = [TextPart(text=entry.text)] if entry.text else []
            message = message.model_copy(update={"content": [*parts, *images]})
        self._title = self._title or label_of_message(message)
        self._publish(ev.TurnBegin(message.text, images=image_blocks(message)))
        self._in_turn, self._step = True, 0
        self._checkpoint(place, entry, "user", label_of_message(message))
        self._append([message])

    def _answer(self, place: int, entry: PlainEntry) -> None:
        if not self._in_turn:
            self._publish(ev.TurnBegin("", resumed=True))
            self._in_turn, self._step = True, 0
        if entry.model and entry.model != self._model:
            self._model = entry.model
            self._publish(ev.ModelChanged(entry.model, self._plain.window))
        self._step += 1
        self._publish(ev.StepBegin(self._step))
        uid = self._checkpoint(place, entry, "step", "")
        parts: list[ContentPart] = []
        if entry.thinking.strip():
            parts.append(ThinkPart(think=entry.thinking))
            self._publish(ev.ThinkPart(entry.thinking))
        if entry.text:
            parts.append(TextPart(text=entry.text))
            self._publish(ev.TextPart(entry.text))
        calls = [_stored_call(call) for call in entry.calls]
        message = Message(
            role="assistant",
            content=entry.text if parts == [TextPart(text=entry.text)] else parts,
            tool_calls=calls or None,
            interrupted=True if entry.stopped else None,
        )
        for number, call in enumerate(calls):
            key = call_key(uid, number)
            arguments = call.function.arguments or ""
            self._publish(ev.ToolCall(key, call.function.name, arguments, call.id))
        if entry.tokens is None:
            self._append([message])
        else:
            tokens = entry.tokens
            self._append(
                [
                    TokenCount(tokens.sent),
                    message,
                    TokenCount(tokens.sent + tokens.answered),
                ]
            )
            self._line.used = tokens.sent + tokens.answered
            for place_in, count in enumerate((tokens.sent, tokens.cached, tokens.answered)):
                self._total[place_in] += count
            self._publish_status(tokens.sent, tokens.answered)
        results = [self._result(call) for call in entry.calls]
        for number, (call, result) in enumerate(zip(calls, results, strict=True)):
            key = call_key(uid, number)
            self._publish(ev.ToolStarted(key, call.function.name, call.function.arguments or ""))
            self._publish_result(key, entry, entry.calls[number], call, result)
        self._append(results)
        if entry.stopped:
            self._publish(ev.StepInterrupted())
            self._end_turn("interrupted")

    def _result(self, call: PlainCall) -> Message:
        """Return the stored result of a call; one that says that it was stopped if it has none."""
        if call.result is None:
            return tool_message(call.id, failure(INTERRUPTED))
        if call.failed:
            outcome = ToolOutcome(call.result, "The tool call failed.", is_error=True)
        else:
            outcome = ToolOutcome(call.result)
        message = tool_message(call.id, outcome)
        if images := self._pictures(call.images):
            message = message.model_copy(update={"content": [*message.parts, *images]})
        return message

    def _publish_result(
        self, key: str, entry: PlainEntry, plain: PlainCall, call: ToolCall, result: Message
    ) -> None:
        outcome = outcome_of(result)
        took = plain.at - entry.at if plain.at and entry.at else 0.0
        self._at = max(self._at, plain.at)
        display = display_of(
            call.function.name, call.function.arguments or "", failed=outcome.is_error
        )
        self._publish(
            ev.ToolResult(
                key,
                outcome.is_error,
                outcome.output,
                outcome.message,
                (*image_blocks(result), *display),
                duration_s=took if 0 < took < _LONGEST_CALL_S else 0.0,
                interrupted=was_stopped(outcome),
                id=call.id,
            )
        )

    def _pictures(self, urls: Sequence[str]) -> list[ImagePart]:
        found: list[ImagePart] = []
        for url in urls:
            image = image_in(url)
            if image is None:
                self._plain.losses["unreadable image"] += 1
                continue
            self._images.put(image)
            found.append(image_part(image))
        return found

    # -- lines -----------------------------------------------------------------------------------------

    def _compact(self, place: int, entry: PlainEntry) -> None:
        old = self._line
        self._publish(ev.CompactionBegin(old.used, automatic=False))
        message = summary_message(entry.text)
        new = _Line(used=message_tokens(message))
        kept = [
            one for one in entry.kept if one in old.marks and old.marks[one].kind != "compaction"
        ]
        if len(kept) < len(entry.kept):
            self._plain.losses["message that is missing in the file"] += len(entry.kept) - len(kept)
        left = self._leave(
            JournalEntry(
                op="compaction",
                checkpoint_id=0,
                uid=next(iter(old.marks.values())).point.uid if old.marks else "",
                text=entry.text,
                tokens_before=old.used,
                tokens_after=new.used,
                messages_dropped=old.n_messages,
                tool_calls_dropped=old.n_calls,
                at=_iso(self._at),
            )
        )
        self._left.append((old, place))
        self._line = new
        self._append([SystemPrompt(self._system)], counts=False)
        self._checkpoint(place, entry, "compaction", "", tokens=new.used)
        self._append([message])
        ends = [*sorted(mark.size for mark in old.marks.values()), len(old.data)]
        for one in kept:
            mark = old.marks[one]
            self._keep(
                one, mark, bytes(old.data[mark.size : ends[bisect_left(ends, mark.size) + 1]])
            )
        self._finish(left)
        self._publish(ev.CompactionEnd(old.used, self._line.used, entry.text, left.n))

    def _keep(self, place: int, mark: _Mark, data: bytes) -> None:
        """Write an entry again behind a summary, under a new checkpoint."""
        # A checkpoint's own record and its marker come first; a renumbered one gets its own.
        bodies = data.split(b"\n")[2:-1]
        point, entry = mark.point, self._plain.entries[place]
        messages = [body for body in bodies if not body.startswith(b'{"role":"_')]
        label = mark.words if mark.kind == "user" else ""
        self._checkpoint(
            place,
            entry,
            mark.kind,
            label,
            was=point.uid,
            kept=tuple(range(len(messages))),
            said=(mark.words,) if mark.kind == "user" else (),
        )
        for body in messages:
            self._line.data += (_answered(body) if mark.kind == "user" else body) + b"\n"
        self._line.n_messages += len(messages)
        self._line.n_calls += len(entry.calls)
        self._line.used += sum(len(body) for body in messages) // 4

    def _go_back(self, before: Sequence[int], shared: int) -> None:
        """Leave the line of one path for the part of it that the next path has too."""
        gone = set(before[shared:])
        summaries = [number for number, (_, place) in enumerate(self._left) if place in gone]
        if summaries:
            self._jump(self._left[summaries[0]][0], before[shared:])
            del self._left[summaries[0] :]
        else:
            self._rewind(before[shared])

    def _rewind(self, place: int) -> None:
        self._end_turn("interrupted" if self._ends_open else "done")
        old, mark = self._line, self._line.marks[place]
        point = mark.point
        entry = JournalEntry(
            op="rewind",
            checkpoint_id=point.id,
            uid=point.uid,
            from_checkpoint=old.n_points - 1,
            tokens_before=old.used,
            tokens_after=mark.used,
            messages_dropped=old.n_messages - mark.n_messages,
            tool_calls_dropped=old.n_calls - mark.n_calls,
            at=_iso(self._at),
        )
        left = self._leave(entry)
        self._line = old.cut(mark)
        self._finish(left)
        self._publish(
            ev.ContextReverted(
                reason="rewind",
                checkpoint_id=point.id,
                uid=point.uid,
                from_checkpoint=left.from_checkpoint,
                world_line=left.n,
                messages_dropped=left.messages_dropped,
                tool_calls_dropped=left.tool_calls_dropped,
                tokens_before=left.tokens_before,
                tokens_after=left.tokens_after,
            )
        )
        self._publish(ev.LineChanged("rewind", left.n, 0, point.uid))

    def _jump(self, back: _Line, gone: Sequence[int]) -> None:
        """Go back to a line that a compaction left, as far as the next path has it."""
        self._end_turn("interrupted" if self._ends_open else "done")
        old = self._line
        cut = next((back.marks[place] for place in gone if place in back.marks), None)
        uid = cut.point.uid if cut is not None else ""
        entry = JournalEntry(
            op="jump",
            checkpoint_id=cut.point.id if cut is not None else -1,
            uid=uid,
            from_checkpoint=old.n_points - 1,
            tokens_before=old.used,
            tokens_after=cut.used if cut is not None else back.used,
            messages_dropped=old.n_messages,
            tool_calls_dropped=old.n_calls,
            source=back.number,
            at=_iso(self._at),
        )
        left = self._leave(entry)
        number = back.number
        if cut is None:
            whole = _Line(bytearray(back.data), dict(back.marks), 0)
            whole.n_messages, whole.n_calls = back.n_messages, back.n_calls
            whole.n_points, whole.used = back.n_points, back.used
            self._line = whole
        else:
            self._line = back.cut(cut)
        self._finish(left)
        self._publish(ev.LineChanged("jump", left.n, number, uid))

    @property
    def _ends_open(self) -> bool:
        return self._in_turn and self._step == 0

    def _leave(self, entry: JournalEntry) -> JournalEntry:
        """Store the line that is left as a world line, and journal why; the caller makes the next one and finishes that."""
        self._n_lines += 1
        self._line.number = self._n_lines
        data = bytes(self._line.data)
        self._line_bytes += len(data)
        path = world_line_path(self._folder, self._n_lines)
        self._storage.write_file(path, data, new=True)
        return replace(
            entry,
            n=self._n_lines,
            size=len(data),
            stored=True,
            from_checkpoint=self._line.n_points - 1,
        )

    def _finish(self, entry: JournalEntry) -> None:
        named = self._journal.intend(replace(entry, to_size=len(self._line.data)))
        self._journal.finish(named)

    # -- records ---------------------------------------------------------------------------------------

    def _checkpoint(
        self,
        place: int,
        entry: PlainEntry,
        kind: ev.CheckpointKind,
        label: str,
        *,
        tokens: int | None = None,
        was: str = "",
        kept: tuple[int, ...] = (),
        said: tuple[str, ...] = (),
    ) -> str:
        """Write a checkpoint and publish it; return its uid."""
        line, uid = self._line, new_uid()
        at = _iso(entry.at or self._at)
        point = Checkpoint(line.n_points, uid, at, len(line.data), line.n_messages)
        line.marks[place] = _Mark(
            point, len(line.data), line.used, line.n_messages, line.n_calls, kind, label
        )
        self._append([NewCheckpoint(marker=True, uid=uid, at=at, was=was or None)], counts=False)
        figure = TokenFigure(line.used if tokens is None else tokens, False)
        self._publish(checkpoint_created(point, kind, label, figure, was=was, kept=kept, said=said))
        line.n_points += 1
        return uid

    def _append(self, additions: Sequence[Addition], *, counts: bool = True) -> None:
        line = self._line
        for added in added_lines(additions, line.n_points):
            line.data += added.data
        if counts:
            for one in additions:
                if isinstance(one, Message):
                    line.n_messages += 1
                    line.n_calls += len(one.tool_calls or ())
                    line.used += message_tokens(one)

    def _publish(self, event: ev.Event) -> None:
        self._seq += 1
        self._record += encode(encode_record(EventRecord(self._seq, self._at, event)))
        self._flush()

    def _publish_status(self, sent: int, answered: int) -> None:
        used, window = self._line.used, self._plain.window
        total_sent, total_cached, total_answered = self._total
        self._publish(
            ev.StatusUpdate(
                used,
                window,
                window,
                estimated=True,
                limit_estimated=True,
                talk=used,
                total_input=total_sent,
                total_cached=total_cached,
                total_output=total_answered,
                step_input=sent,
                step_output=answered,
                model=self._model,
            )
        )

    def _flush(self, *, every: bool = False) -> None:
        if every or len(self._record) > 1 << 20:
            self._storage.write_all(self._record_file, bytes(self._record))
            self._record.clear()

    def _end_turn(self, reason: str = "done") -> None:
        if self._in_turn:
            self._in_turn = False
            self._publish(ev.TurnEnd("interrupted" if reason == "interrupted" else "done"))

    def _write_state(self) -> None:
        plain, line = self._plain, self._line
        with contextlib.suppress(OSError):
            updated = plain.found.updated_at or self._at
            os.utime(self._folder / LIVE_NAME, (updated, updated))
        write_state(
            self._storage,
            self._folder,
            SessionMetadata(
                title=plain.title,
                work_dir=str(self._work_dir),
                folder_inode=folder_inode(self._work_dir),
                imported_from=f"{plain.found.agent} {plain.found.id}",
                summary=SessionSummary(
                    size=len(line.data),
                    messages=line.n_messages,
                    tokens=line.used,
                    title=self._title[:50],
                ),
            ),
        )


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many first entries two paths share."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _stored_call(call: PlainCall) -> ToolCall:
    name, arguments = translated(call.name, call.arguments)
    return ToolCall(id=call.id, function=FunctionCall(name=name, arguments=arguments))


def _answered(line: bytes) -> bytes:
    """Return the record of a message of the user, marked as answered: its answer is part of the summary before it."""
    record = parse(line)
    return encode({**record, "answered": True}).rstrip(b"\n") if isinstance(record, dict) else line


def _iso(at: float) -> str:
    """Return a time as records have it; empty if it is unknown."""
    if at <= 0:
        return ""
    iso = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return iso.replace("+00:00", "Z")
