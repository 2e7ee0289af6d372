"""Sessions of Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-*.jsonl` (older: one `.json` object each).

A message is written again when its calls have ended, `$set` replaces the whole list (a resumed session, a compression), and
`$rewindTo` drops a message and all behind it: those are a world line here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kimi_tui import lenient_json
from kimi_tui.migration import foreign_files as files
from kimi_tui.migration.plain import CannotRead, FoundSession, PlainCall, PlainEntry, PlainSession

_NOT_SAID = ("<session_context>", "<state_snapshot>", "<system-reminder>")
_SUMMARY = "<state_snapshot>"
_THANKS = "Got it. Thanks for the additional context!"
"""The answer to the summary of a compression that stands under the name of the model."""


def home(environ: Mapping[str, str], home_folder: Path) -> Path:
    """Return the folder of Gemini CLI."""
    given = environ.get("GEMINI_CLI_HOME", "")
    return (Path(given) if given.startswith("/") else home_folder) / ".gemini"


def find(folder: Path, work_dir: str) -> list[FoundSession]:
    """Return the sessions of a work folder, or all whose folder is known for an empty one."""
    wanted = hashlib.sha256(work_dir.encode(errors="surrogateescape")).hexdigest()
    listed = lenient_json.mapping(files.read_object(folder / "projects.json").get("projects"))
    names = {name: path for path, name in listed.items() if isinstance(name, str)}
    found: list[FoundSession] = []
    for project in files.folders_of(folder / "tmp"):
        path = _root_of(project) or files.real_folder(names.get(project.name))
        if not path and project.name == wanted:
            path = work_dir
        if not path or (work_dir and not files.same_folder(path, work_dir)):
            continue
        for suffix in (".jsonl", ".json"):
            for chat in files.files_of(project / "chats", suffix):
                session = _described(chat, path)
                if session is not None:
                    found.append(session)
    return found


def _root_of(project: Path) -> str:
    from kimi_tui.filesystem import read_regular

    try:
        data = read_regular(project / ".project_root", 8_192)
    except OSError:
        return ""
    return files.real_folder(data.decode("utf-8", "replace").strip())


def _described(path: Path, work_dir: str) -> FoundSession | None:
    size, updated = files.size_and_time(path)
    name, title = "", ""
    records = [files.read_object(path)] if path.suffix == ".json" else files.head_records(path)
    for record in records:
        if record.get("kind") == "subagent":
            return None
        name = name or files.name_of(record.get("sessionId"))
        messages = lenient_json.listing(record.get("messages")) or [record]
        for message in map(lenient_json.mapping, messages):
            if message.get("type") == "user" and not title:
                title = files.title_from(_text(message.get("content")))
    if not (name and title):
        return None
    return FoundSession("gemini", name, path, work_dir, title, updated, size)


def read(found: FoundSession) -> PlainSession:
    """Read a session.

    Raises:
        CannotRead: It cannot be read at all.
    """
    plain = PlainSession(found)
    reader = _GeminiReader(plain)
    if found.path.suffix == ".json":
        record = files.read_object(found.path, files.MOST_SESSION_BYTES)
        if not record:
            raise CannotRead("The session cannot be read: it is not valid JSON.")
        reader.set_all(record.get("messages"))
    else:
        for record in files.records(found.path, plain.losses):
            reader.take(record)
    plain.live = reader.head
    return plain


class _GeminiReader:
    def __init__(self, plain: PlainSession) -> None:
        self.plain = plain
        self.head = -1
        self._places: dict[str, int] = {}
        self._befores: dict[str, int] = {}

    def take(self, record: files.Json) -> None:
        if "$set" in record:
            changed = lenient_json.mapping(record.get("$set"))
            if isinstance(changed.get("messages"), list):
                self.set_all(changed["messages"])
            self.plain.title = files.title_from(changed.get("summary")) or self.plain.title
        elif "$rewindTo" in record:
            name = lenient_json.text(record.get("$rewindTo"))
            if name in self._befores:
                self.head = self._befores[name]
        elif "sessionId" not in record:
            self.head = self._message(record, self.head)

    def set_all(self, messages: object) -> None:
        """Take a list of all messages: those that are known stay as they are, others are new.

        Where none is known, and the model thanks for a summary, the list is what a compression made.
        """
        listed = [lenient_json.mapping(one) for one in lenient_json.listing(messages)]
        is_known = any(self._places.get(_id_of(one) or "\0", -1) >= 0 for one in listed)
        thanks = next((n for n, one in enumerate(listed) if n and _is_thanks(one)), None)
        if thanks is not None and not is_known and self.head >= 0:
            self._compress(listed[thanks - 1], listed[thanks], listed[thanks + 1 :])
            return
        head = -1
        for message in listed:
            known = self._places.get(_id_of(message)) if _id_of(message) else None
            if known is None:
                head = self._message(message, head)
            elif known >= 0:
                head = known
        self.head = head

    def _compress(
        self, summary: files.Json, thanks: files.Json, kept: Sequence[files.Json]
    ) -> None:
        """Take a summary, with the newest messages, which are written again under new names behind it."""
        path = self.plain.before(self.head)
        said = [(self.plain.entries[at].kind, self.plain.entries[at].text.strip()) for at in path]
        stay: list[int] = []
        copies: list[files.Json] = []
        new: list[files.Json] = []
        first = 0
        for message in kept:
            kind = "said" if message.get("type") == "user" else "answer"
            words = (kind, _whole(message.get("content")).strip())
            place = next((n for n in range(first, len(said)) if said[n] == words), None)
            if place is None or new:
                new.append(message)
                continue
            stay.append(path[place])
            copies.append(message)
            first = place + 1
        text = files.text_of(_whole(summary.get("content")), self.plain.losses)
        at = files.time_of(summary.get("timestamp"))
        entry = PlainEntry("summary", self.head, at, text, kept=tuple(stay))
        self.head = self._added(entry)
        for name in filter(None, map(_id_of, (summary, thanks, *copies))):
            self._places[name] = self._befores[name] = self.head
        for message in new:
            self.head = self._message(message, self.head)

    def _message(self, message: files.Json, parent: int) -> int:
        name = lenient_json.text(message.get("id"))
        known = self._places.get(name, -1) if name else -1
        if known >= 0 and self.plain.entries[known].kind == "summary":
            return self.head
        at = files.time_of(message.get("timestamp"))
        if known >= 0:
            # A message again, with the results of its calls.
            entry = self.plain.entries[known]
            calls = self._calls(message)
            entry.calls = calls if len(calls) >= len(entry.calls) else entry.calls
            return self.head if self._is_behind(known) else known
        place = parent
        match message.get("type"):
            case "user":
                place = self._user(message, parent, at)
            case "gemini":
                place = self._answer(message, parent, at)
            case "info" | "error" | "warning":
                pass
            case _:
                self.plain.losses["record of an unknown type"] += 1
        if name:
            self._places[name] = place
            self._befores[name] = parent
        return place

    def _is_behind(self, place: int) -> bool:
        """Return whether the conversation stands at an entry or behind it."""
        return next((at == place for at in self.plain.back(self.head) if at <= place), True)

    def _added(self, entry: PlainEntry) -> int:
        place = self.plain.add(entry)
        return place if place >= 0 else entry.parent

    def _user(self, message: files.Json, parent: int, at: float) -> int:
        content = message.get("content")
        whole = _whole(content)
        if whole.lstrip().startswith(_SUMMARY):
            text = files.text_of(whole, self.plain.losses)
            return self._added(PlainEntry("summary", parent, at, text))
        images: list[str] = []
        for part in map(lenient_json.mapping, lenient_json.listing(content)):
            data = lenient_json.mapping(part.get("inlineData"))
            if data and (
                url := files.image_url(data.get("mimeType"), data.get("data"), self.plain.losses)
            ):
                images.append(url)
        text = files.text_of(_text(content), self.plain.losses)
        if not text.strip() and not images:
            return parent
        return self._added(PlainEntry("said", parent, at, text, images=images))

    def _answer(self, message: files.Json, parent: int, at: float) -> int:
        tokens = lenient_json.mapping(message.get("tokens"))
        answered = (lenient_json.count(tokens.get("output")) or 0) + (
            lenient_json.count(tokens.get("thoughts")) or 0
        )
        thoughts = map(lenient_json.mapping, lenient_json.listing(message.get("thoughts")))
        words = [
            "\n".join(
                filter(
                    None,
                    (
                        lenient_json.text(one.get("subject")),
                        lenient_json.text(one.get("description")),
                    ),
                )
            )
            for one in thoughts
        ]
        content = message.get("content")
        entry = PlainEntry(
            "answer",
            parent,
            at,
            files.text_of(_whole(content), self.plain.losses),
            files.text_of("\n\n".join(filter(None, words)), self.plain.losses),
            self._calls(message),
            model=files.name_of(message.get("model")),
            tokens=files.tokens_of(tokens.get("input"), tokens.get("cached"), answered),
        )
        return parent if entry.is_empty else self._added(entry)

    def _calls(self, message: files.Json) -> list[PlainCall]:
        found: list[PlainCall] = []
        for one in map(lenient_json.mapping, lenient_json.listing(message.get("toolCalls"))):
            call = PlainCall(
                files.name_of(one.get("id")),
                files.name_of(one.get("name")) or "tool",
                files.arguments_of(one.get("args")),
            )
            results = lenient_json.listing(one.get("result"))
            texts = [text for part in results if (text := _result_text(part))]
            if one.get("status") in ("success", "error", "cancelled") and texts:
                call.result = files.output_of("\n".join(texts), self.plain.losses)
                call.failed = one.get("status") != "success"
            call.at = files.time_of(one.get("timestamp"))
            found.append(call)
        return found


def _id_of(message: files.Json) -> str:
    return lenient_json.text(message.get("id"))


def _is_thanks(message: files.Json) -> bool:
    return message.get("type") == "gemini" and _whole(message.get("content")).strip() == _THANKS


def _result_text(part: object) -> str:
    answer = lenient_json.mapping(lenient_json.mapping(part).get("functionResponse"))
    response = lenient_json.mapping(answer.get("response"))
    for key in ("output", "error", "content"):
        if isinstance(response.get(key), str):
            return response[key]
    return lenient_json.text(lenient_json.mapping(part).get("text"))


def _text(content: object) -> str:
    """Return the words of the user; nothing for what the program said."""
    text = _whole(content)
    return "" if text.lstrip().startswith(_NOT_SAID) else text


def _whole(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = map(lenient_json.mapping, lenient_json.listing(content))
    texts = [lenient_json.text(part.get("text")) for part in parts if not part.get("thought")]
    return "\n\n".join(filter(None, texts))
