"""Sessions of Codex: `$CODEX_HOME/sessions/YYYY/MM/DD/rollout-TIME-UUID.jsonl`, what was sent and what happened, in order.

`response_item` has the conversation; reasoning, words and calls of one step are items of their own. A part that was undone is a
world line: up to version 0.170 `thread_rolled_back` undoes the last turns, later a rewind begins another file of the same
session (`rollout-TIME-UUID_SEGMENT.jsonl`), whose `history_base` says up to which record the files before are its past. That
may be another session, for a fork. `compacted` has the messages that took the place of everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kimi_tui import lenient_json
from kimi_tui.migration import foreign_files as files
from kimi_tui.migration.plain import FoundSession, PlainCall, PlainEntry, PlainSession

_ROLLOUT = re.compile(
    r"rollout-.{10,40}?-([0-9a-fA-F]{8}-[0-9a-fA-F-]{27})(_[0-9a-fA-F-]{36})?\.jsonl"
)
_MOST_LISTED = 5_000
_MOST_BASES = 20
"""Forks of forks that are followed to their beginning."""
# Messages in the user's name that the program wrote.
_NOT_SAID = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<skills_instructions>",
    "<skill>",
    "<turn_aborted>",
    "<subagent_notification>",
    "# AGENTS.md instructions",
)
_FAILED = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
_SUMMARY_START = re.compile(
    r"\AAnother language model started to solve this problem[^\n]{0,1000}:\n"
)
_CALLS = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}
)
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})


def home(environ: Mapping[str, str], home_folder: Path) -> Path:
    """Return the folder of Codex."""
    given = environ.get("CODEX_HOME", "")
    return Path(given) if given.startswith("/") else home_folder / ".codex"


def find(folder: Path, work_dir: str) -> list[FoundSession]:
    """Return the sessions of a work folder, or all for an empty one."""
    parts: dict[str, list[Path]] = {}
    for path in _rollouts(folder):
        if (named := _ROLLOUT.fullmatch(path.name)) is not None:
            parts.setdefault(named[1], []).append(path)
    found: list[FoundSession] = []
    for paths in parts.values():
        session = _described(paths[0], work_dir)
        if session is not None:
            facts = [files.size_and_time(path) for path in paths]
            size, updated = sum(n for n, _ in facts), max(at for _, at in facts)
            found.append(replace(session, size=size, updated_at=updated))
    return found


def _rollouts(folder: Path) -> list[Path]:
    """Return the newest files, in the order of their times."""
    found: list[Path] = []
    for year in reversed(files.folders_of(folder / "sessions")):
        for month in reversed(files.folders_of(year)):
            for day in reversed(files.folders_of(month)):
                if len(found) < _MOST_LISTED:
                    found += files.files_of(day, ".jsonl")
    found += files.files_of(folder / "archived_sessions", ".jsonl")
    return sorted(found, key=lambda path: path.name)[-_MOST_LISTED:]


def _described(path: Path, wanted: str) -> FoundSession | None:
    named = _ROLLOUT.fullmatch(path.name)
    size, updated = files.size_and_time(path)
    work_dir, title, name = "", "", named[1] if named else ""
    for record in files.head_records(path):
        payload = lenient_json.mapping(record.get("payload"))
        if record.get("type") == "session_meta":
            work_dir = work_dir or files.real_folder(payload.get("cwd"))
            if wanted and not files.same_folder(work_dir, wanted):
                return None
            source = payload.get("source")
            if isinstance(source, dict) and "subagent" in source:
                return None
        if record.get("type") == "response_item" and payload.get("role") == "user":
            title = files.title_from(_said(payload))
            if title:
                break
    if not (work_dir and name and title):
        return None
    return FoundSession("codex", name, path, work_dir, title, updated, size)


def read(found: FoundSession) -> PlainSession:
    """Read a session.

    Raises:
        CannotRead: It cannot be read at all.
    """
    reader = _CodexReader(PlainSession(found))
    _read_thread(reader, _rollouts(_home_of(found.path)), found.id, None, [])
    reader.plain.live = reader.head
    return reader.plain


def _home_of(path: Path) -> Path:
    """Return Codex' folder from the path of a session in it."""
    above = {one.name: one for one in path.parents}
    inside = above.get("sessions") or above.get("archived_sessions") or path.parent
    return inside.parent


def _read_thread(
    reader: _CodexReader, paths: Sequence[Path], name: str, end: int | None, seen: list[str]
) -> None:
    """Read all files of a session, or up to a record: what a fork of it has in common with it."""
    if name in seen or len(seen) >= _MOST_BASES:
        reader.plain.losses["parent session that is missing"] += 1
        return
    seen.append(name)
    own = [path for path in paths if (named := _ROLLOUT.fullmatch(path.name)) and named[1] == name]
    if not own:
        reader.plain.losses["parent session that is missing"] += 1
    for path in own:
        for number, record in enumerate(files.records(path, reader.plain.losses)):
            ordinal = lenient_json.count(record.get("ordinal"))
            if end is not None and ordinal is not None and ordinal >= end:
                break
            if record.get("type") == "session_meta" and number == 0:
                payload = lenient_json.mapping(record.get("payload"))
                base = lenient_json.mapping(payload.get("history_base"))
                before = lenient_json.text(base.get("thread_id"))
                until = lenient_json.count(base.get("end_ordinal_exclusive"))
                if before and until is not None:
                    if before != name:
                        _read_thread(reader, paths, before, until, seen)
                    reader.go_back(until)
            reader.take(record, ordinal)


class _CodexReader:
    def __init__(self, plain: PlainSession) -> None:
        self.plain = plain
        self.head = -1
        self._open: PlainEntry | None = None
        self._last: PlainEntry | None = None
        self._model = ""
        self._calls: dict[str, PlainCall] = {}
        # The server's figures come once a step, behind its last item.
        self._is_step_over = False
        # The place of the conversation behind each numbered record.
        self._heads: dict[int, int] = {}

    def go_back(self, end: int) -> None:
        """Continue behind the records before number `end`."""
        self._end()
        self._last = None
        self._heads = {number: head for number, head in self._heads.items() if number < end}
        self.head = self._heads[max(self._heads)] if self._heads else -1

    def take(self, record: files.Json, ordinal: int | None = None) -> None:
        """Take the next record, which has this number in newer files."""
        self._take(record)
        if ordinal is not None:
            self._heads[ordinal] = self.head

    def _take(self, record: files.Json) -> None:
        payload = lenient_json.mapping(record.get("payload"))
        at = files.time_of(record.get("timestamp"))
        match record.get("type"):
            case "session_meta":
                self.plain.version = files.name_of(payload.get("cli_version"), 40)
            case "turn_context":
                self._model = files.name_of(payload.get("model")) or self._model
            case "response_item":
                self._item(payload, at)
            case "compacted":
                self._compacted(payload, at)
            case "event_msg":
                self._event(payload)
            case "token_usage_record":
                self._is_step_over = True
            case "world_state" | "inter_agent_communication":
                pass
            case _:
                self.plain.losses["record of an unknown type"] += 1

    def _event(self, payload: files.Json) -> None:
        match payload.get("type"):
            case "thread_rolled_back":
                self._undo(lenient_json.count(payload.get("num_turns")) or 0)
            case "turn_aborted":
                if self._last is not None:
                    self._last.stopped = True
                self._end()
            case "token_count":
                info = lenient_json.mapping(payload.get("info"))
                window = lenient_json.count(info.get("model_context_window")) or 0
                self.plain.window = min(window, files.MOST_TOKENS) or self.plain.window
                usage = lenient_json.mapping(info.get("last_token_usage"))
                tokens = files.tokens_of(
                    usage.get("input_tokens"),
                    usage.get("cached_input_tokens"),
                    usage.get("output_tokens"),
                )
                if self._last is not None and tokens is not None:
                    self._last.tokens = tokens
                    self._is_step_over = True
            case "thread_name_updated":
                self.plain.title = files.title_from(payload.get("thread_name"))
            case _:
                pass

    def _undo(self, n_turns: int) -> None:
        """Go back to before the last turns: what follows is another line."""
        self._end()
        self.head = self.plain.without_turns(self.head, n_turns)

    def _end(self) -> None:
        self._open = None

    def _answer(self, at: float) -> PlainEntry:
        if self._open is None or self._is_step_over:
            entry = PlainEntry("answer", self.head, at, model=self._model)
            place = self.plain.add(entry)
            if place >= 0:
                self.head = place
            self._open = self._last = entry
            self._is_step_over = False
        return self._open

    def _item(self, payload: files.Json, at: float) -> None:
        kind = files.kind_of(payload)
        if kind == "message":
            self._message(payload, at)
        elif kind == "reasoning":
            texts = [*_texts(payload.get("summary")), *_texts(payload.get("content"))]
            if texts:
                self._begin_step()
                self._answer(at).thinking += files.text_of("\n\n".join(texts), self.plain.losses)
            elif payload.get("encrypted_content"):
                self.plain.losses["encrypted reasoning part"] += 1
        elif kind in _CALLS:
            self._call(payload, at)
        elif kind in _RESULTS:
            self._result(payload, at)
        elif kind not in ("ghost_snapshot", "compaction_summary", "context_compaction"):
            self.plain.losses["record of an unknown type"] += 1

    def _begin_step(self) -> None:
        """A step ends with its calls: reasoning or words behind their results begin another one."""
        if self._open is not None and self._open.calls:
            self._end()

    def _message(self, payload: files.Json, at: float) -> None:
        role = payload.get("role")
        if role == "assistant":
            self._begin_step()
            text = "\n\n".join(_texts(payload.get("content")))
            answer = self._answer(at)
            joined = f"{answer.text}\n\n{text}" if answer.text and text else answer.text or text
            answer.text = files.text_of(joined, self.plain.losses)
        elif role == "user":
            text, images = files.text_of(_said(payload), self.plain.losses), self._images(payload)
            if not text.strip() and not images:
                return
            self._end()
            place = self.plain.add(PlainEntry("said", self.head, at, text, images=images))
            self.head = place if place >= 0 else self.head
            self._last = None

    def _images(self, payload: files.Json) -> list[str]:
        found: list[str] = []
        for part in map(lenient_json.mapping, lenient_json.listing(payload.get("content"))):
            if part.get("type") == "input_image":
                url = part.get("image_url")
                if isinstance(url, str) and url.startswith("data:image/"):
                    found.append(url)
                else:
                    self.plain.losses["unreadable image"] += 1
        return found

    def _call(self, payload: files.Json, at: float) -> None:
        kind = files.kind_of(payload)
        name, arguments = files.name_of(payload.get("name")), payload.get("arguments")
        if kind == "custom_tool_call":
            arguments = {"input": payload.get("input")}
        elif kind == "local_shell_call":
            name, arguments = "shell", lenient_json.mapping(payload.get("action"))
        elif kind == "web_search_call":
            name, arguments = "web_search", lenient_json.mapping(payload.get("action"))
        answer = self._answer(at)
        call_id = files.name_of(payload.get("call_id") or payload.get("id"))
        call = PlainCall(call_id, name or "tool", files.arguments_of(arguments))
        if kind == "web_search_call":
            call.result = "The search ran at the provider; its results are not stored."
        answer.calls.append(call)
        if call.id:
            self._calls[call.id] = call

    def _result(self, payload: files.Json, at: float) -> None:
        call = self._calls.pop(lenient_json.text(payload.get("call_id")), None)
        if call is None:
            self.plain.losses["tool result without a call"] += 1
            return
        output = payload.get("output")
        if isinstance(output, dict):
            call.failed = lenient_json.mapping(output).get("success") is False
            output = lenient_json.mapping(output).get("content")
        if isinstance(output, list):
            for part in map(lenient_json.mapping, lenient_json.listing(output)):
                if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
                    call.images.append(part["image_url"])
            output = "\n".join(_texts(lenient_json.listing(output)))
        text = lenient_json.text(output)
        code = _FAILED.search(text[:400])
        call.failed = call.failed or (code is not None and code[1] != "0")
        call.result, call.at = files.output_of(text, self.plain.losses), at

    def _compacted(self, payload: files.Json, at: float) -> None:
        self._end()
        text = files.text_of(payload.get("message"), self.plain.losses)
        if not text.strip():
            said = lenient_json.listing(payload.get("replacement_history"))
            texts = ["\n".join(_texts(lenient_json.mapping(one).get("content"))) for one in said]
            text = files.text_of("\n\n".join(filter(None, texts[-3:])), self.plain.losses)
        if not text.strip():
            text = "(The summary is encrypted by its provider and cannot be read.)"
            self.plain.losses["encrypted compaction summary"] += 1
        self._drop_request(text)
        text = _SUMMARY_START.sub("", text, count=1)
        kept = self._kept(payload.get("replacement_history"))
        place = self.plain.add(PlainEntry("summary", self.head, at, text, kept=kept))
        self.head = place if place >= 0 else self.head
        self._last = None

    def _drop_request(self, summary: str) -> None:
        """Drop the answer to the request for a summary, if it was stored: it is the summary."""
        entries = self.plain.entries
        if not entries or self.head != len(entries) - 1:
            return
        newest = entries[-1]
        words = newest.text.strip()
        if newest.kind == "answer" and words and not newest.calls and summary.endswith(words):
            self.head = newest.parent
            entries.pop()

    def _kept(self, history: object) -> tuple[int, ...]:
        """Return the entries of the user's messages that stand beside a summary."""
        said = [
            _said(lenient_json.mapping(one))
            for one in lenient_json.listing(history)
            if lenient_json.mapping(one).get("role") == "user"
        ]
        path = [at for at in self.plain.before(self.head) if self.plain.entries[at].kind == "said"]
        found: list[int] = []
        first = 0
        for words in filter(None, said):
            place = next(
                (n for n in range(first, len(path)) if self.plain.entries[path[n]].text == words),
                None,
            )
            if place is not None:
                found.append(path[place])
                first = place + 1
        return tuple(found)


def _said(payload: files.Json) -> str:
    """Return the user's words in a message; nothing for what the program wrote."""
    texts = [
        text for text in _texts(payload.get("content")) if not text.lstrip().startswith(_NOT_SAID)
    ]
    return "\n\n".join(texts)


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content] if content else []
    parts = map(lenient_json.mapping, lenient_json.listing(content))
    return [text for part in parts if (text := lenient_json.text(part.get("text")))]
