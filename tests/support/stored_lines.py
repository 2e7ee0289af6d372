"""A slow and simple reader of a session's files, which uses nothing of the program but the names of things on disk.

A line is the file `context.jsonl` (0) or `context_N.jsonl`: checkpoints, each followed by the messages up to the next one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["user", "agent", "tool", "dmail", "summary"]
Record = dict[str, Any]

STEER = "steer"
"""The beginning of messages that the user types while the agent works (`time_traveller`)."""
_STARTS: dict[str, str] = {
    "<system>CHECKPOINT ": "marker",
    "<system>You just got a D-Mail from your future self.": "dmail",
    "<system>Previous context has been compacted.": "summary",
    "<system-reminder>": "aside",
    "<system>": "aside",
}


@dataclass(frozen=True)
class Said:
    """One thing that the model is sent, as a reader would name it.

    Attributes:
        kind: the kind of the thing.
        text: the words; of a tool its name.
        result: the tool's result; None without one.
    """

    kind: Kind
    text: str
    result: str | None = None


@dataclass(frozen=True)
class Place:
    """The place of a thing: its checkpoint, and its number among the messages after that (markers not counted)."""

    id: int
    uid: str
    number: int


@dataclass
class Segment:
    """A checkpoint and the messages after it.

    Attributes:
        was: the first name of a checkpoint that a summary renumbered.
        messages: without the marker.
        tokens: the first figure of a server after it, for the context sent there; None if there is none.
    """

    id: int
    uid: str
    was: str = ""
    messages: list[Record] = field(default_factory=list[Record])
    tokens: int | None = None

    @property
    def kind(self) -> str:
        """Return what began at the checkpoint."""
        kinds = [kind_of(message) for message in self.messages]
        first = next((kind for kind in kinds if kind != "aside"), "")
        if "dmail" in kinds and (self.id or first != "summary"):
            return "dmail"
        if "summary" in kinds:
            return "summary" if self.id else "compaction"
        return "user" if first == "user" else "step"

    @property
    def is_measured(self) -> bool:
        """Return whether a server has counted the tokens; for renumbered checkpoints the program wrote the figure."""
        return self.kind == "step" and self.tokens is not None and not self.was

    @property
    def holds_steers_only(self) -> bool:
        """Return whether the step failed, and only the user's messages of that time follow it."""
        kinds = {kind_of(message) for message in self.messages} - {"aside"}
        return kinds == {"user"} and text(self.messages[-1]).startswith(STEER)


@dataclass
class Line:
    """One file, cut at its checkpoints. `records` are all messages, markers included, as they are sent."""

    segments: list[Segment] = field(default_factory=list[Segment])
    records: list[Record] = field(default_factory=list[Record])

    @property
    def uids(self) -> list[str]:
        """Return the uids of its checkpoints, oldest first."""
        return [segment.uid for segment in self.segments]

    def said(self) -> list[tuple[Said, Place]]:
        """Return everything on the line that a reader should see, in order, and its place."""
        return [each for segment in self.segments for each in said_in(segment)]


def read_line(folder: Path, n: int = 0, size: int | None = None) -> Line:
    """Read a line, or its first `size` bytes. The result is cached, and must not be changed."""
    data = (folder / (f"context_{n}.jsonl" if n else "context.jsonl")).read_bytes()
    return _read(data[:size])


@lru_cache(maxsize=32)
def _read(data: bytes) -> Line:
    line = Line()
    for raw in data.splitlines():
        record = json.loads(raw)
        role = record["role"]
        if role == "_checkpoint":
            line.segments.append(Segment(record["id"], record["uid"], record.get("was", "")))
        elif role == "_usage":
            segment = line.segments[-1] if line.segments else None
            # The figure after an answer is that of the window then; the program wrote it for answers that a summary kept.
            answered = segment is None or any(m["role"] == "assistant" for m in segment.messages)
            if segment is not None and segment.tokens is None and not answered:
                segment.tokens = record["token_count"]
        elif not role.startswith("_"):
            line.records.append(record)
            if line.segments and kind_of(record) != "marker":
                line.segments[-1].messages.append(record)
    return line


def world_lines(folder: Path) -> list[int]:
    """Return the numbers of the lines that were left."""
    live = (folder / "context.jsonl").stat().st_ino
    return sorted(
        int(path.stem.removeprefix("context_"))
        for path in folder.glob("context_*.jsonl")
        if path.stat().st_ino != live
    )


def replaced_by(folder: Path) -> dict[str, list[str]]:
    """Return for each summary that began a new line, by its uid, the checkpoints that it stands for.

    A line was left by a compaction at a known size; the summary's checkpoint is the first of the line that followed,
    which is the live one or was left itself later.
    """
    found: dict[str, list[str]] = {}
    entries = journal(folder)
    lines = {n: read_line(folder, n) for n in [0, *world_lines(folder)]}
    for entry in entries:
        if entry["op"] != "compaction" or entry.get("checkpoint_id", 0) or not entry.get("n"):
            continue
        old = read_line(folder, entry["n"], entry["size"]).uids
        for line in lines.values():
            first = line.segments[0] if line.segments else None
            if first is not None and first.kind == "compaction" and first.uid not in old:
                summary = next(text(m) for m in first.messages if kind_of(m) == "summary")
                if summary == entry.get("text") and first.uid not in found:
                    found[first.uid] = old
    return found


def journal(folder: Path) -> list[Record]:
    """Return every operation that happened, oldest first."""
    path = folder / "worldlines.jsonl"
    records = [json.loads(raw) for raw in path.read_bytes().splitlines()] if path.exists() else []
    done = {record["of"] for record in records if record["op"] == "done"}
    return [record for record in records if record.get("id") in done]


def kind_of(record: Record) -> str:
    """Return the kind of a message: user, agent, tool, dmail, summary, marker, or an aside of the program."""
    if record["role"] == "assistant":
        return "agent"
    if record["role"] != "user":
        return str(record["role"])
    whole = _whole_text(record)
    if record.get("by") != "person":
        for start, kind in _STARTS.items():
            if whole.startswith(start):
                return kind
    return "user"


def text(record: Record) -> str:
    """Return the words of a message without those that the program put around them."""
    whole = _whole_text(record)
    match kind_of(record):
        case "dmail":
            return whole.partition("D-Mail content:\n\n")[2].removesuffix("</system>")
        case "summary":
            return whole.partition("compaction output:</system>")[2].strip("\n")
        case _:
            return whole


def _whole_text(record: Record) -> str:
    content = record.get("content") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if record["role"] == "tool" and texts and texts[0].startswith("<system>"):
        # The first text of a result is the program's line on how the call went.
        del texts[0]
    return "".join(texts)


def said_in(segment: Segment) -> list[tuple[Said, Place]]:
    """Return the things after one checkpoint, calls with their results."""
    found: list[tuple[Said, Place]] = []
    results = iter([m for m in segment.messages if m["role"] == "tool"])
    for number, message in enumerate(segment.messages):
        kind, place = kind_of(message), Place(segment.id, segment.uid, number)
        words = text(message)
        if kind == "agent":
            if words.strip():
                found.append((Said("agent", words), place))
            for call in message.get("tool_calls") or ():
                result = next(results, None)
                given = None if result is None else text(result)
                found.append((Said("tool", call["function"]["name"], given), place))
        elif kind in ("user", "dmail", "summary"):
            found.append((Said(kind, words), place))  # type: ignore[arg-type]
    return found
