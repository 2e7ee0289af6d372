"""Sessions of Claude Code: `~/.claude/projects/FOLDER/UUID.jsonl`, one line a record, a tree by `parentUuid`.

An answer is several lines with one message id, and each result follows the line of its call: calls at the same time look
like forks in the tree. So the lines of an answer, and the results of its calls, are one entry here. After a compaction the
tree begins anew, with `logicalParentUuid` for what came before. Sub-agents are in files of their own and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kimi_tui import lenient_json
from kimi_tui.migration import foreign_files as files
from kimi_tui.migration.plain import FoundSession, PlainCall, PlainEntry, PlainSession

_NOT_NAMED = re.compile(r"[^a-zA-Z0-9]")
# Claude shortens the names of longer folders, and adds a hash.
_MOST_NAME = 200
# Messages of the program in the name of the user: what commands said, and the words around them.
_NOT_SAID = (
    "<local-command-",
    "<command-message>",
    "<system-reminder>",
    "<task-notification>",
    "Caveat: ",
)
_COMMAND = re.compile(r"<command-name>(/[^<\n]{1,100})</command-name>")
_ARGUMENTS = re.compile(r"<command-args>([^<]{0,10000})</command-args>")
_SHELL = re.compile(r"<bash-input>([^<]{1,10000})</bash-input>")
_SUMMARY_START = "This session is being continued from a previous conversation"
_STOPPED = "[Request interrupted by user"
_SYNTHETIC = "<synthetic>"
_IGNORED = frozenset({"summary", "custom-title", "ai-title", "agent-name", "last-prompt"})


def home(environ: Mapping[str, str], home_folder: Path) -> Path:
    """Return the folder of Claude Code."""
    given = environ.get("CLAUDE_CONFIG_DIR", "")
    return Path(given) if given.startswith("/") else home_folder / ".claude"


def find(folder: Path, work_dir: str) -> list[FoundSession]:
    """Return the sessions of a work folder, or all for an empty one."""
    projects = files.folders_of(folder / "projects")
    if work_dir:
        name = _NOT_NAMED.sub("-", work_dir)
        projects = [
            one
            for one in projects
            if one.name == name
            or (len(name) > _MOST_NAME and one.name[:_MOST_NAME] == name[:_MOST_NAME])
        ]
    return files.sessions_in(projects, _described, work_dir)


def _described(path: Path) -> FoundSession | None:
    size, updated = files.size_and_time(path)
    work_dir, title = "", ""
    has_messages = False
    for record in files.head_records(path):
        kind = files.kind_of(record)
        work_dir = work_dir or files.real_folder(record.get("cwd"))
        if kind in ("user", "assistant"):
            has_messages = has_messages or record.get("isSidechain") is not True
        if kind == "user" and not title:
            title = files.title_from(_said(record)[0])
        if title and work_dir:
            break
    if has_messages:
        named = (found for one in files.tail_records(path) if (found := _title_in(one)))
        title = next(named, title)
    if not has_messages or not work_dir:
        return None
    return FoundSession("claude", path.stem, path, work_dir, title, updated, size)


def _title_in(record: files.Json) -> str:
    match record.get("type"):
        case "summary":
            return files.title_from(record.get("summary"))
        case "custom-title":
            return files.title_from(record.get("customTitle"))
        case _:
            return ""


def read(found: FoundSession) -> PlainSession:
    """Read a session.

    Raises:
        CannotRead: It cannot be read at all.
    """
    reader = _ClaudeReader(PlainSession(found))
    for record in files.records(found.path, reader.plain.losses):
        reader.take(record)
    return reader.finished()


class _ClaudeReader:
    def __init__(self, plain: PlainSession) -> None:
        self.plain = plain
        # The entry that each line belongs to, by its uuid.
        self._places: dict[str, int] = {}
        self._answers: dict[str, int] = {}
        self._calls: dict[str, PlainCall] = {}
        self._boundary: dict[str, files.Json] = {}
        self._leaf = ""

    def take(self, record: files.Json) -> None:
        kind = files.kind_of(record)
        if record.get("isSidechain") is True:
            self.plain.losses["sub-agent message"] += kind in ("user", "assistant")
            return
        name = lenient_json.text(record.get("uuid"))
        if not name:
            self.plain.title = _title_in(record) or self.plain.title
            if kind == "last-prompt":
                self._leaf = lenient_json.text(record.get("leafUuid")) or self._leaf
            return
        if name in self._places:
            # A resumed session may repeat lines that it has already.
            return
        parent = self._parent(record)
        # A note on where the conversation stands holds until more is said.
        self._leaf = ""
        self.plain.version = files.name_of(record.get("version"), 40) or self.plain.version
        place = parent
        match kind:
            case "user":
                place = self._user(record, parent)
            case "assistant":
                place = self._assistant(record, parent)
            case "system" if record.get("subtype") == "compact_boundary":
                self._boundary[name] = record
            case "system" | "attachment" | "progress":
                pass
            case _ if kind not in _IGNORED:
                self.plain.losses["record of an unknown type"] += 1
            case _:
                pass
        self._places[name] = place

    def _parent(self, record: files.Json) -> int:
        name = record.get("parentUuid")
        if name is None:
            name = record.get("logicalParentUuid")
            if name is None:
                return -1
        if isinstance(name, str) and name in self._places:
            return self._places[name]
        # The line before was lost or compacted away, so this one belongs behind the line that was read last.
        return len(self.plain.entries) - 1

    def _user(self, record: files.Json, parent: int) -> int:
        at = files.time_of(record.get("timestamp"))
        if self._take_results(record, at):
            return parent
        if record.get("isCompactSummary") is True:
            return self._summary(record, parent, at)
        if record.get("isMeta") is True:
            return parent
        text, images = _said(record, self.plain)
        if text.startswith(_STOPPED):
            if 0 <= parent < len(self.plain.entries):
                self.plain.entries[parent].stopped = self.plain.entries[parent].kind == "answer"
            return parent
        if not text.strip() and not images:
            return parent
        entry = PlainEntry("said", parent, at, text, images=images)
        return self.plain.add(entry)

    def _take_results(self, record: files.Json, at: float) -> bool:
        message = lenient_json.mapping(record.get("message"))
        has_results = False
        for part in map(lenient_json.mapping, lenient_json.listing(message.get("content"))):
            if part.get("type") != "tool_result":
                continue
            has_results = True
            call = self._calls.pop(lenient_json.text(part.get("tool_use_id")), None)
            if call is None:
                self.plain.losses["tool result without a call"] += 1
                continue
            text, images = _content(part.get("content"), self.plain)
            call.result, call.images = files.output_of(text), images
            call.failed, call.at = part.get("is_error") is True, at
        return has_results

    def _summary(self, record: files.Json, parent: int, at: float) -> int:
        text, _ = _content(lenient_json.mapping(record.get("message")).get("content"), self.plain)
        boundary = self._boundary.get(lenient_json.text(record.get("parentUuid")), {})
        kept = lenient_json.mapping(lenient_json.mapping(boundary.get("compactMetadata")))
        names = lenient_json.listing(
            lenient_json.mapping(kept.get("preservedMessages")).get("uuids")
        )
        places = {self._places.get(name, -1) for name in names if isinstance(name, str)}
        stay = tuple(sorted(place for place in places if place >= 0))
        entry = PlainEntry("summary", parent, at, _summary_text(text), kept=stay)
        return self.plain.add(entry)

    def _assistant(self, record: files.Json, parent: int) -> int:
        message = lenient_json.mapping(record.get("message"))
        name = lenient_json.text(message.get("id"))
        if message.get("model") == _SYNTHETIC:
            # A line that Claude Code wrote itself: an error of the server, or that nothing was asked.
            self.plain.losses["API error message"] += record.get("isApiErrorMessage") is True
            return parent
        place = self._answers.get(name, -1) if name else -1
        if place < 0 or place != parent:
            usage = lenient_json.mapping(message.get("usage"))
            sent = sum(
                lenient_json.count(usage.get(key)) or 0
                for key in (
                    "input_tokens",
                    "cache_read_input_tokens",
                    "cache_creation_input_tokens",
                )
            )
            entry = PlainEntry(
                "answer",
                parent,
                files.time_of(record.get("timestamp")),
                model=files.name_of(message.get("model")),
                tokens=files.tokens_of(
                    sent, usage.get("cache_read_input_tokens"), usage.get("output_tokens")
                ),
            )
            place = self.plain.add(entry)
            if place < 0:
                return parent
            self._answers[name] = place
        self._add_parts(self.plain.entries[place], message.get("content"))
        return place

    def _add_parts(self, entry: PlainEntry, content: object) -> None:
        if isinstance(content, str):
            entry.text += files.text_of(content, self.plain.losses)
        for part in map(lenient_json.mapping, lenient_json.listing(content)):
            match part.get("type"):
                case "text":
                    entry.text += files.text_of(part.get("text"), self.plain.losses)
                case "thinking":
                    entry.thinking += files.text_of(part.get("thinking"), self.plain.losses)
                case "tool_use" | "server_tool_use":
                    call = PlainCall(
                        files.name_of(part.get("id")),
                        files.name_of(part.get("name")) or "tool",
                        files.arguments_of(part.get("input")),
                    )
                    entry.calls.append(call)
                    if call.id:
                        self._calls[call.id] = call
                case "redacted_thinking":
                    self.plain.losses["encrypted reasoning part"] += 1
                case _:
                    self.plain.losses["unreadable message part"] += 1

    def finished(self) -> PlainSession:
        self.plain.live = self._places.get(self._leaf, -1) if self._leaf else -1
        return self.plain


def _said(record: files.Json, plain: PlainSession | None = None) -> tuple[str, list[str]]:
    """Return the words and images of the user in a line; nothing for what the program said in the user's name."""
    content: Any = lenient_json.mapping(record.get("message")).get("content")
    if record.get("isMeta") is True or record.get("isCompactSummary") is True:
        return "", []
    text, images = _content(content, plain)
    start = text.lstrip()
    if command := _COMMAND.search(start[:2_000]) if start.startswith("<command-") else None:
        given = _ARGUMENTS.search(start)
        # A command of the program itself is no message; one with arguments usually is a prompt.
        words = given[1].strip() if given else ""
        return (f"{command[1]} {words}" if words and command[1] != "/compact" else ""), images
    if shell := _SHELL.match(start):
        return f"!{shell[1]}", images
    if start.startswith(("<bash-stdout>", "<bash-stderr>")):
        return "The command printed:\n\n" + re.sub(r"</?bash-std(?:out|err)>", "", start), images
    if start.startswith(_NOT_SAID):
        return "", images
    return text, images


def _content(content: object, plain: PlainSession | None) -> tuple[str, list[str]]:
    losses = plain.losses if plain is not None else None
    if isinstance(content, str):
        return files.text_of(content, losses), []
    texts: list[str] = []
    images: list[str] = []
    for part in map(lenient_json.mapping, lenient_json.listing(content)):
        match part.get("type"):
            case "text":
                texts.append(files.text_of(part.get("text"), losses))
            case "image" if losses is not None:
                source = lenient_json.mapping(part.get("source"))
                if url := files.image_url(source.get("media_type"), source.get("data"), losses):
                    images.append(url)
            case "document" if losses is not None:
                losses["attached document"] += 1
            case _:
                pass
    return "\n\n".join(filter(None, texts)), images


def _summary_text(text: str) -> str:
    """Return a summary without Claude Code's own words around it."""
    if not text.startswith(_SUMMARY_START):
        return text
    _, _, body = text.partition("\n\n")
    end = body.rfind("\n\nIf you need specific details from before compaction")
    return (body[:end] if end >= 0 else body).strip() or text
