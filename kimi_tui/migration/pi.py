"""Sessions of pi: `~/.pi/agent/sessions/--FOLDER--/TIME_UUID.jsonl`, a tree by `parentId`.

The last line is where the conversation stands, every other leaf is a branch that was left. Results are entries of the tree
there, and parts of their answer here. Version 1 has no tree: each entry follows the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kimi_tui import lenient_json
from kimi_tui.migration import foreign_files as files
from kimi_tui.migration.plain import FoundSession, PlainCall, PlainEntry, PlainSession

_BESIDE = frozenset(
    {
        "model_change",
        "thinking_level_change",
        "custom",
        "label",
        "session_info",
        "usage",
        "context_edit",
    }
)


def home(environ: Mapping[str, str], home_folder: Path) -> Path:
    """Return the folder of pi."""
    given = environ.get("PI_CODING_AGENT_DIR", "")
    return Path(given) if given.startswith("/") else home_folder / ".pi" / "agent"


def find(folder: Path, work_dir: str) -> list[FoundSession]:
    """Return the sessions of a work folder, or all for an empty one."""
    projects = files.folders_of(folder / "sessions")
    if work_dir:
        name = "--" + work_dir.lstrip("/").replace("/", "-").replace(":", "-") + "--"
        projects = [one for one in projects if one.name == name]
    return files.sessions_in(projects, _described, work_dir)


def _described(path: Path) -> FoundSession | None:
    size, updated = files.size_and_time(path)
    name, work_dir, title = "", "", ""
    for record in files.head_records(path):
        if record.get("type") == "session":
            name = files.name_of(record.get("id"))
            work_dir = files.real_folder(record.get("cwd"))
        elif record.get("type") == "session_info":
            title = files.title_from(record.get("name"))
        elif record.get("type") == "message" and not title:
            message = lenient_json.mapping(record.get("message"))
            if message.get("role") == "user":
                title = files.title_from(_content(message.get("content"), None)[0])
                break
    if not (name and work_dir and title):
        return None
    return FoundSession("pi", name, path, work_dir, title, updated, size)


def read(found: FoundSession) -> PlainSession:
    """Read a session.

    Raises:
        CannotRead: It cannot be read at all.
    """
    reader = _PiReader(PlainSession(found))
    for record in files.records(found.path, reader.plain.losses):
        reader.take(record)
    reader.plain.live = reader.head
    return reader.plain


class _PiReader:
    def __init__(self, plain: PlainSession) -> None:
        self.plain = plain
        self.head = -1
        self._places: dict[str, int] = {}
        self._calls: dict[str, PlainCall] = {}

    def take(self, record: files.Json) -> None:
        kind = files.kind_of(record)
        if kind == "session":
            self.plain.version = str(lenient_json.count(record.get("version")) or "")
            return
        name, parent_name = record.get("id"), record.get("parentId")
        parent = self.head
        if isinstance(parent_name, str):
            parent = self._places.get(parent_name, self.head)
        elif "parentId" in record and parent_name is None and name:
            parent = -1
        place = self._entry(record, kind, parent)
        if isinstance(name, str):
            self._places[name] = place
        self.head = place

    def _entry(self, record: files.Json, kind: str, parent: int) -> int:
        at = files.time_of(record.get("timestamp"))
        match kind:
            case "message":
                return self._message(lenient_json.mapping(record.get("message")), parent, at)
            case "compaction":
                text = files.text_of(record.get("summary"), self.plain.losses)
                first = self._places.get(lenient_json.text(record.get("firstKeptEntryId")), -1)
                kept: list[int] = []
                if first >= 0:
                    path = self.plain.before(parent)
                    kept = path[path.index(first) :] if first in path else []
                    kept = [place for place in kept if self.plain.entries[place].kind != "summary"]
                return self._added(PlainEntry("summary", parent, at, text, kept=tuple(kept)))
            case "branch_summary":
                text = files.text_of(record.get("summary"), self.plain.losses)
                words = f"Summary of a branch of the conversation that was left:\n\n{text}"
                return self._added(PlainEntry("said", parent, at, words)) if text else parent
            case "custom_message":
                text, images = _content(record.get("content"), self.plain)
                if not text and not images:
                    return parent
                return self._added(PlainEntry("said", parent, at, text, images=images))
            case "session_info":
                self.plain.title = files.title_from(record.get("name"))
                return parent
            case _ if kind in _BESIDE:
                return parent
            case _:
                self.plain.losses["record of an unknown type"] += 1
                return parent

    def _added(self, entry: PlainEntry) -> int:
        place = self.plain.add(entry)
        return place if place >= 0 else entry.parent

    def _message(self, message: files.Json, parent: int, at: float) -> int:
        at = files.time_of(message.get("timestamp")) or at
        match message.get("role"):
            case "user" | "custom":
                text, images = _content(message.get("content"), self.plain)
                if not text and not images:
                    return parent
                return self._added(PlainEntry("said", parent, at, text, images=images))
            case "assistant":
                return self._assistant(message, parent, at)
            case "toolResult":
                self._result(message, at)
                return parent
            case "bashExecution":
                command = files.text_of(message.get("command"), self.plain.losses)
                output = files.output_of(message.get("output"), self.plain.losses)
                words = f"I ran this command:\n\n    {command}\n\nIt printed:\n\n{output}"
                return self._added(PlainEntry("said", parent, at, words))
            case "branchSummary" | "compactionSummary":
                text = files.text_of(message.get("summary"), self.plain.losses)
                return self._added(PlainEntry("said", parent, at, text)) if text else parent
            case "system":
                return parent
            case _:
                self.plain.losses["record of an unknown type"] += 1
                return parent

    def _assistant(self, message: files.Json, parent: int, at: float) -> int:
        usage = lenient_json.mapping(message.get("usage"))
        sent = sum(
            lenient_json.count(usage.get(key)) or 0 for key in ("input", "cacheRead", "cacheWrite")
        )
        entry = PlainEntry(
            "answer",
            parent,
            at,
            model=files.name_of(message.get("model")),
            tokens=files.tokens_of(sent, usage.get("cacheRead"), usage.get("output")),
            stopped=message.get("stopReason") == "aborted",
        )
        for part in map(lenient_json.mapping, lenient_json.listing(message.get("content"))):
            match part.get("type"):
                case "text":
                    entry.text += files.text_of(part.get("text"), self.plain.losses)
                case "thinking":
                    entry.thinking += files.text_of(part.get("thinking"), self.plain.losses)
                case "toolCall":
                    call = PlainCall(
                        files.name_of(part.get("id")),
                        files.name_of(part.get("name")) or "tool",
                        files.arguments_of(part.get("arguments")),
                    )
                    entry.calls.append(call)
                    if call.id:
                        self._calls[call.id] = call
                case _:
                    self.plain.losses["unreadable message part"] += 1
        if entry.is_empty:
            self.plain.losses["failed model request"] += 1
            return parent
        return self._added(entry)

    def _result(self, message: files.Json, at: float) -> None:
        call = self._calls.get(lenient_json.text(message.get("toolCallId")))
        if call is None:
            self.plain.losses["tool result without a call"] += 1
            return
        if call.result is not None:
            # Two branches that begin behind one call have a result each; the first is the one that was sent.
            self.plain.losses["repeated tool result"] += 1
            return
        text, call.images = _content(message.get("content"), self.plain)
        call.result = files.output_of(text)
        call.failed, call.at = message.get("isError") is True, at


def _content(content: object, plain: PlainSession | None) -> tuple[str, list[str]]:
    losses = plain.losses if plain is not None else None
    if isinstance(content, str):
        return files.text_of(content, losses), []
    texts: list[str] = []
    images: list[str] = []
    for part in map(lenient_json.mapping, lenient_json.listing(content)):
        if part.get("type") == "text":
            texts.append(files.text_of(part.get("text"), losses))
        elif part.get("type") == "image" and losses is not None:
            url = files.image_url(part.get("mimeType"), part.get("data"), losses)
            images += [url] if url else []
    return "\n".join(texts), images
