"""Sessions of kimi-code: `$KIMI_CODE_HOME/sessions/wd_NAME_HASH/SESSION/agents/main/wire.jsonl`.

Its records are conversation and log in one. `context.undo` takes back the last turns, and `agent.switched` (newer versions,
beside it) continues behind an earlier line: what was left is a world line. Images are in files beside the log.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from kimi_tui import lenient_json
from kimi_tui.filesystem import read_regular
from kimi_tui.migration import foreign_files as files
from kimi_tui.migration.plain import FoundSession, PlainCall, PlainEntry, PlainSession

_MAIN = Path("agents") / "main"
_WIRE = "wire.jsonl"
_MOST_IMAGE_BYTES = 32 << 20
_HASH = re.compile(r"[0-9a-f]{64}")


def home(environ: Mapping[str, str], home_folder: Path) -> Path:
    """Return the folder of kimi-code."""
    given = environ.get("KIMI_CODE_HOME", "")
    return Path(given) if given.startswith("/") else home_folder / ".kimi-code"


def find(folder: Path, work_dir: str) -> list[FoundSession]:
    """Return the sessions of a work folder, or all for an empty one."""
    projects = [one for one in files.folders_of(folder / "sessions") if one.name.startswith("wd_")]
    if work_dir:
        digest = hashlib.sha256(work_dir.encode(errors="surrogateescape")).hexdigest()[:12]
        projects = [one for one in projects if one.name.endswith(f"_{digest}")]
    known = _index(folder) if projects else {}
    found: list[FoundSession] = []
    for project in projects:
        for session in files.folders_of(project):
            path = session / _MAIN / _WIRE
            size, updated = files.size_and_time(path)
            if not size:
                continue
            state = files.read_object(session / "state.json")
            place = files.real_folder(state.get("cwd")) or known.get(session.name, "") or work_dir
            title = files.title_from(state.get("title")) or _first_words(path)
            if place and title:
                found.append(
                    FoundSession("kimi-code", session.name, path, place, title, updated, size)
                )
    return found


def _index(folder: Path) -> dict[str, str]:
    """Return the work folders of sessions, by their names."""
    found: dict[str, str] = {}
    for record in files.head_records(folder / "session_index.jsonl"):
        name = record.get("sessionId")
        if isinstance(name, str):
            found[name] = files.real_folder(record.get("workDir"))
    return found


def _first_words(path: Path) -> str:
    for record in files.head_records(path):
        if record.get("type") == "turn.prompt":
            parts = map(lenient_json.mapping, lenient_json.listing(record.get("input")))
            if title := files.title_from(
                " ".join(lenient_json.text(one.get("text")) for one in parts)
            ):
                return title
    return ""


def read(found: FoundSession) -> PlainSession:
    """Read a session.

    Raises:
        CannotRead: It cannot be read at all.
    """
    plain = PlainSession(found)
    session = found.path.parent.parent.parent
    state = files.read_object(session / "state.json")
    if state.get("isCustomTitle") is True:
        plain.title = files.title_from(state.get("title"))
    others = [one for one in files.folders_of(session / "agents") if one.name != "main"]
    plain.losses["sub-agent conversation"] += len(others)
    reader = _KimiCodeReader(plain)
    for record in files.records(found.path, plain.losses):
        reader.take(record)
    plain.live = reader.head
    return plain


class _KimiCodeReader:
    def __init__(self, plain: PlainSession) -> None:
        self.plain = plain
        self.head = -1
        # The place of the conversation behind each line of the file, from 1 on.
        self._heads: list[int] = [-1]
        self._paired: set[int] = set()
        self._floor = -1
        self._open: PlainEntry | None = None
        self._model = ""
        self._calls: dict[str, PlainCall] = {}

    def take(self, record: files.Json) -> None:
        line = len(self._heads)
        self._take(record, line)
        self._heads.append(self.head)

    def _take(self, record: files.Json, line: int) -> None:
        at = files.time_of(record.get("time"))
        match record.get("type"):
            case "metadata":
                self.plain.version = files.name_of(record.get("protocol_version"), 40)
            case "context.append_message":
                self._message(lenient_json.mapping(record.get("message")), at)
            case "context.append_loop_event":
                self._event(lenient_json.mapping(record.get("event")), at)
            case "llm.request":
                self._model = files.name_of(record.get("model")) or self._model
            case "usage.record":
                self._usage(lenient_json.mapping(record.get("usage")))
            case "context.undo" if line not in self._paired:
                self._undo(lenient_json.count(record.get("count")) or 0)
            case "agent.switched":
                self._switch(record)
            case "context.clear":
                self._open, self.head, self._floor = None, -1, len(self.plain.entries) - 1
            case "context.apply_compaction":
                self._compact(record, at)
            case "turn.cancel":
                if self._open is not None:
                    self._open.stopped = True
            case _:
                pass

    def _switch(self, record: files.Json) -> None:
        base = lenient_json.mapping(record.get("base"))
        line = lenient_json.count(base.get("line"))
        if (paired := lenient_json.count(record.get("legacyUndoLine"))) is not None:
            self._paired.add(paired)
        if line is not None and line < len(self._heads):
            self.head, self._open = self._heads[line], None

    def _undo(self, n_turns: int) -> None:
        self._open = None
        self.head = self.plain.without_turns(self.head, n_turns)

    def _added(self, entry: PlainEntry) -> None:
        place = self.plain.add(entry)
        self.head = place if place >= 0 else self.head

    def _message(self, message: files.Json, at: float) -> None:
        origin = lenient_json.mapping(message.get("origin"))
        role, kind = message.get("role"), origin.get("kind")
        if role == "assistant":
            # Older versions append answers whole.
            entry = PlainEntry("answer", self.head, at, model=self._model)
            self._add_parts(entry, message.get("content"))
            for one in map(lenient_json.mapping, lenient_json.listing(message.get("toolCalls"))):
                self._add_call(entry, one.get("id"), one.get("name"), one.get("arguments"))
            if not entry.is_empty:
                self._added(entry)
            return
        if role == "tool":
            self._result(
                lenient_json.text(message.get("toolCallId")),
                _texts(message.get("content")),
                False,
                at,
            )
            return
        if role != "user" or kind not in (None, "user", "skill_activation", "plugin_command"):
            return
        self._open = None
        entry = PlainEntry("said", self.head, at)
        self._add_parts(entry, message.get("content"))
        if not entry.is_empty:
            self._added(entry)

    def _add_parts(self, entry: PlainEntry, content: object) -> None:
        parts = lenient_json.listing(content)
        if isinstance(content, str):
            parts = [{"type": "text", "text": content}]
        for part in map(lenient_json.mapping, parts):
            match part.get("type"):
                case "text":
                    text = files.text_of(part.get("text"), self.plain.losses)
                    if text.startswith("<system-reminder>") and entry.kind == "said":
                        continue
                    entry.text += f"\n\n{text}" if entry.text and text else text
                case "think":
                    entry.thinking += files.text_of(part.get("think"), self.plain.losses)
                case "image_url":
                    place = part.get("imageUrl") or part.get("image_url")
                    if url := self._image(lenient_json.mapping(place).get("url")):
                        entry.images.append(url)
                case _:
                    self.plain.losses["unreadable message part"] += 1

    def _image(self, url: object) -> str:
        """Return an image as a `data:` URL, also one that is in a file; empty, and a loss, if it cannot be read."""
        if isinstance(url, str) and url.startswith("data:image/"):
            return url
        if isinstance(url, str) and url.startswith("blobref:"):
            kind, _, name = url.removeprefix("blobref:").partition(";")
            if _HASH.fullmatch(name):
                try:
                    path = self.plain.found.path.parent / "blobs" / name
                    data = read_regular(path, _MOST_IMAGE_BYTES)
                    return files.image_url(kind, base64.b64encode(data).decode(), self.plain.losses)
                except OSError:
                    pass
        self.plain.losses["unreadable image"] += 1
        return ""

    def _event(self, event: files.Json, at: float) -> None:
        match event.get("type"):
            case "step.begin":
                self._open = None
            case "content.part":
                self._add_parts(self._answer(at), [event.get("part")])
            case "tool.call":
                self._add_call(
                    self._answer(at), event.get("toolCallId"), event.get("name"), event.get("args")
                )
            case "tool.result":
                result = lenient_json.mapping(event.get("result"))
                output = result.get("output")
                text = output if isinstance(output, str) else _texts(output)
                failed = result.get("isError") is True
                self._result(lenient_json.text(event.get("toolCallId")), text, failed, at)
            case "step.end":
                if self._open is not None:
                    self._usage(lenient_json.mapping(event.get("usage")))
                self._open = None
            case _:
                pass

    def _answer(self, at: float) -> PlainEntry:
        if self._open is None:
            self._open = PlainEntry("answer", self.head, at, model=self._model)
            self._added(self._open)
        return self._open

    def _add_call(self, entry: PlainEntry, call_id: object, name: object, given: object) -> None:
        call = PlainCall(
            files.name_of(call_id), files.name_of(name) or "tool", files.arguments_of(given)
        )
        entry.calls.append(call)
        if call.id:
            self._calls[call.id] = call

    def _result(self, call_id: str, text: str, failed: bool, at: float) -> None:
        call = self._calls.pop(call_id, None)
        if call is None:
            self.plain.losses["tool result without a call"] += 1
            return
        call.result = files.output_of(text, self.plain.losses)
        call.failed, call.at = failed, at

    def _usage(self, usage: files.Json) -> None:
        sent = sum(
            lenient_json.count(usage.get(key)) or 0
            for key in ("inputOther", "inputCacheRead", "inputCacheCreation")
        )
        tokens = files.tokens_of(sent, usage.get("inputCacheRead"), usage.get("output"))
        if self._open is not None and tokens is not None:
            self._open.tokens = tokens

    def _compact(self, record: files.Json, at: float) -> None:
        self._open = None
        summary = record.get("summary")
        text = (
            summary if isinstance(summary, str) else lenient_json.text(record.get("contextSummary"))
        )
        if isinstance(summary, dict):
            text = _texts(lenient_json.mapping(summary).get("content"))
        kept: tuple[int, ...] = ()
        n_kept = lenient_json.count(record.get("keptUserMessageCount")) or 0
        if n_kept and self.head >= 0:
            path = self.plain.before(self.head)
            said = [place for place in path if self.plain.entries[place].kind == "said"]
            n_head = min(lenient_json.count(record.get("keptHeadUserMessageCount")) or 0, n_kept)
            n_tail = n_kept - n_head
            kept = tuple(dict.fromkeys((*said[:n_head], *(said[-n_tail:] if n_tail else ()))))
        words = files.text_of(text, self.plain.losses) or "(no summary available)"
        self._added(PlainEntry("summary", self.head, at, words, kept=kept))


def _texts(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = map(lenient_json.mapping, lenient_json.listing(content))
    return "\n".join(filter(None, (lenient_json.text(one.get("text")) for one in parts)))
