"""`worldlines.jsonl`: the append-only journal of every operation on a session.

An operation is written before it is carried out and closed by a `done` or a `void` record afterwards. If a process died
between the two, `rotation.recover` finds out which of them holds: the line left has its file, or the live line has the
intended size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from kimi_tui import lenient_json
from kimi_tui.filesystem import Storage
from kimi_tui.session.jsonl import JsonlLog
from kimi_tui.session.schema import Operation, count_of, new_uid, now

JOURNAL_NAME = "worldlines.jsonl"
FUTURE = "future"
"""The kind of the note that a future became a world line. It is no operation: nothing is undone with it."""
PRUNE = "prune"
"""The kind of the note that world lines are about to be deleted, with the keys of the sub-agents that go with them."""
_OPERATIONS = frozenset(get_args(Operation))


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An operation in the journal, with its world line and checkpoint.

    Attributes:
        id: The unique name of the operation.
        op: The kind of operation; for an undo or redo, `reason` is the kind of operation undone or redone.
        n: The world line whose first `size` bytes are the line left. It is 0 if no line was left: with a `size`, records were
            appended after that many bytes of the live line; without one, only files were changed.
        stored: Whether the operation created that world line (else the line left was a prefix of an existing one).
        to_size: The size of the live line after the operation.
        checkpoint_id: The id of the target; -1 for none.
        from_checkpoint: The newest checkpoint of the line left.
        of: The id of the operation undone or redone, for an undo or redo.
        source: The target world line of a jump.
        snapshot_before, snapshot_after, paths: The changes to the working files.
        text: The text of the D-Mail, the summary, or another text that came with the operation.
        done: Whether the operation is known to have happened.
    """

    op: Operation
    id: str = ""
    n: int = 0
    size: int = 0
    stored: bool = False
    to_size: int = 0
    reason: str = ""
    checkpoint_id: int = -1
    uid: str = ""
    from_checkpoint: int = -1
    at: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    messages_dropped: int = 0
    tool_calls_dropped: int = 0
    text: str = ""
    of: str = ""
    source: int = 0
    snapshot_before: str = ""
    snapshot_after: str = ""
    paths: tuple[str, ...] = ()
    done: bool = False

    @property
    def changes_line(self) -> bool:
        """Whether the operation replaced the live line."""
        return self.n > 0

    @property
    def grows_line(self) -> bool:
        """Whether the operation appended records to the live line and removed none."""
        return self.n == 0 and self.size > 0

    def record(self) -> dict[str, Any]:
        """Return the journal's line; empty fields are left out."""
        reason = self.reason or self.op
        record: dict[str, Any] = {"op": self.op, "id": self.id, "n": self.n, "reason": reason}
        if self.changes_line:
            record |= {"size": self.size, "stored": self.stored}
        elif self.grows_line:
            record["size"] = self.size
        record["to_size"] = self.to_size
        if self.checkpoint_id >= 0:
            record |= {"checkpoint_id": self.checkpoint_id, "uid": self.uid}
        record |= {
            "from_checkpoint": self.from_checkpoint,
            "at": self.at,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "messages_dropped": self.messages_dropped,
            "tool_calls_dropped": self.tool_calls_dropped,
        }
        optional = {
            "text": self.text,
            "of": self.of,
            "source": self.source,
            "snapshot_before": self.snapshot_before,
            "snapshot_after": self.snapshot_after,
            "paths": list(self.paths),
        }
        return record | {key: value for key, value in optional.items() if value}

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> JournalEntry | None:
        """Return the operation in a line; None for anything else."""
        op, name = record.get("op"), lenient_json.text(record.get("id"))
        if not isinstance(op, str) or op not in _OPERATIONS or not name:
            return None
        paths: object = record.get("paths")
        checkpoint_id = count_of(record.get("checkpoint_id"))
        newest = count_of(record.get("from_checkpoint"))
        return cls(
            op=cast("Operation", op),
            id=name,
            n=count_of(record.get("n")) or 0,
            size=count_of(record.get("size")) or 0,
            stored=record.get("stored") is True,
            to_size=count_of(record.get("to_size")) or 0,
            reason=lenient_json.text(record.get("reason")),
            checkpoint_id=-1 if checkpoint_id is None else checkpoint_id,
            uid=lenient_json.text(record.get("uid")),
            from_checkpoint=-1 if newest is None else newest,
            at=lenient_json.text(record.get("at")),
            tokens_before=count_of(record.get("tokens_before")) or 0,
            tokens_after=count_of(record.get("tokens_after")) or 0,
            messages_dropped=count_of(record.get("messages_dropped")) or 0,
            tool_calls_dropped=count_of(record.get("tool_calls_dropped")) or 0,
            text=lenient_json.text(record.get("text")),
            of=lenient_json.text(record.get("of")),
            source=count_of(record.get("source")) or 0,
            snapshot_before=lenient_json.text(record.get("snapshot_before")),
            snapshot_after=lenient_json.text(record.get("snapshot_after")),
            paths=tuple(lenient_json.text(path) for path in cast("list[object]", paths))
            if isinstance(paths, list)
            else (),
        )


class Journal:
    """The journal of one session, read once and then kept in memory.

    Args:
        folder: The session's folder.
        storage: The disk.

    Attributes:
        file: The file of the journal; the owner of the journal syncs and closes it.
    """

    def __init__(self, folder: Path, storage: Storage | None = None) -> None:
        self.file = JsonlLog(folder / JOURNAL_NAME, storage, metadata=None)
        self._entries: list[JournalEntry] = []
        self._void: set[str] = set()
        self._foreign: set[int] = set()
        self._futures: dict[int, Mapping[str, Any]] = {}
        self._pruned_agents: set[str] = set()
        self._numbers: set[int] = set()

    def load(self) -> None:
        """Read the journal. Unreadable lines and unknown records are ignored."""
        self._entries.clear()
        self._void.clear()
        self._foreign.clear()
        self._futures.clear()
        self._pruned_agents.clear()
        self._numbers.clear()
        done: set[str] = set()
        for record in self.file.read():
            kind = record.get("op")
            self._numbers.add(count_of(record.get("n")) or 0)
            if kind == "void":
                self._void.add(lenient_json.text(record.get("of")))
            elif kind == "done":
                done.add(lenient_json.text(record.get("of")))
            elif kind in ("foreign", FUTURE, PRUNE):
                self._take_note(record)
            elif (entry := JournalEntry.parse(record)) is not None:
                self._entries.append(entry)
        self._entries = [replace(entry, done=entry.id in done) for entry in self._entries]

    @property
    def numbers(self) -> Set[int]:
        """The numbers of all world lines that the journal has ever named, done or not. They may be larger than any line's."""
        return self._numbers

    @property
    def foreign(self) -> frozenset[int]:
        """The world lines that are files of another program, which it wrote over ours."""
        return frozenset(self._foreign)

    @property
    def futures(self) -> Mapping[int, Mapping[str, Any]]:
        """The notes of the futures that became world lines, by the numbers of these; some may have been deleted since."""
        return self._futures

    @property
    def pruned_agents(self) -> Set[str]:
        """The keys of the sub-agents that went, or were to go, with deleted world lines."""
        return self._pruned_agents

    @property
    def entries(self) -> Sequence[JournalEntry]:
        """Every operation that was not voided, oldest first."""
        return [entry for entry in self._entries if entry.id not in self._void]

    def intend(self, entry: JournalEntry) -> JournalEntry:
        """Write an operation before it is carried out, and sync it to the disk; return it with its name and time.

        Raises:
            StorageTrouble: The entry could not be written; the operation must not happen.
        """
        named = replace(entry, id=entry.id or new_uid(), at=entry.at or now())
        self.file.append(named.record())
        self._numbers.add(named.n)
        self._entries.append(named)
        try:
            if self.file.trouble is not None:
                raise self.file.trouble
            self.file.sync()
        except OSError:
            self._void.add(named.id)
            self.file.append({"op": "void", "of": named.id, "at": now()})
            raise
        return named

    def finish(self, entry: JournalEntry) -> None:
        """Close an operation that happened."""
        self._entries = [
            replace(known, done=True) if known.id == entry.id else known for known in self._entries
        ]
        self._close("done", entry)

    def void(self, entry: JournalEntry) -> None:
        """Void an operation that did not happen."""
        self._void.add(entry.id)
        self._close("void", entry)

    def record_files(self, entry: JournalEntry) -> JournalEntry:
        """Write an operation that changed only working files and has already happened.

        Raises:
            StorageTrouble: The entry could not be written.
        """
        named = self.intend(replace(entry, n=0, size=0, stored=False))
        self.finish(named)
        return named

    def note(self, record: Mapping[str, Any]) -> None:
        """Write a record that is no operation (a pruning, another program's file set aside, a future)."""
        self._take_note(record)
        self.file.append({**record, "at": now()})

    def _take_note(self, record: Mapping[str, Any]) -> None:
        n = count_of(record.get("n")) or 0
        self._numbers.add(n)
        if record.get("op") == "foreign" and n:
            self._foreign.add(n)
        if record.get("op") == FUTURE and n:
            self._futures[n] = record
        if record.get("op") == PRUNE:
            keys = map(lenient_json.text, lenient_json.listing(record.get("agents")))
            self._pruned_agents.update(filter(None, keys))

    def _close(self, how: str, entry: JournalEntry) -> None:
        self.file.append({"op": how, "of": entry.id, "at": now()})
        try:
            self.file.sync()
        except OSError:
            # The record is written later; until then `recover` would find out whether the operation happened.
            return
