"""How a tool call of an external agent looks here: as a call of our own tools where it is one of their kind, else as a plain card."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from acp import schema

from kimi_tui import lenient_json
from kimi_tui.foreign_text import one_line
from kimi_tui.tool_cards import Card
from kimi_tui.tools.outcome import FileEdit

CHANGING = frozenset(("edit", "delete", "move", "execute", "other", "switch_mode"))
"""The kinds of calls after which the files are looked at."""
MOST_OUTPUT = 60_000
"""Characters of a result that are kept, as of our own tools."""
MOST_DIFF = 2_000_000
"""Characters of each side of a change that are compared."""
_MOST_ARGUMENT = 4_000
_MOST_TITLE = 500
_OUTPUT_KEYS = (
    *("formatted_output", "aggregated_output", "output", "stdout", "content", "text"),
    *("result", "message", "error", "stderr"),
)


class CallLook(NamedTuple):
    """The look of a call.

    Attributes:
        name: the tool's name on its card and in the context.
        arguments: its arguments, as plain values.
        card: its card; None for those of our own tools.
    """

    name: str
    arguments: dict[str, Any]
    card: Card | None = None

    @property
    def as_json(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.arguments, ensure_ascii=False)


class CallFacts:
    """The facts that an agent has told of a call so far; an update replaces those that it names.

    Args:
        call_id: its id at the agent.

    Attributes:
        title, kind, status: as it says; `kind` is `other` if it does not say.
        content, locations, raw_input, raw_output: likewise.
    """

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.title = ""
        self.kind = "other"
        self.status = ""
        self.content: Sequence[Any] = ()
        self.locations: Sequence[schema.ToolCallLocation] = ()
        self.raw_input: Any = None
        self.raw_output: Any = None
        self._told: Mapping[str, Any] = {}
        """The arguments of a command that were told as text, by agents that show them while the model writes them."""

    def take(self, update: Any) -> None:
        """Take over what an update says."""
        self.title = one_line((update.title or "")[:_MOST_TITLE]) or self.title
        self.kind = str(update.kind or "") or self.kind
        self.status = str(update.status or "") or self.status
        if update.content is not None:
            # Many agents show the change before they make it, and only a sentence afterwards.
            new = tuple(update.content)
            changes = [one for one in new if isinstance(one, schema.FileEditToolCallContent)]
            kept = () if changes else self.content
            self.content = (
                *(one for one in kept if isinstance(one, schema.FileEditToolCallContent)),
                *new,
            )
            if self.kind == "execute" and not self.has_ended:
                self._told = _arguments_in(new) or self._told
        if update.locations is not None:
            self.locations = tuple(update.locations)
        if update.raw_input is not None:
            self.raw_input = update.raw_input
        if update.raw_output is not None:
            self.raw_output = update.raw_output

    @property
    def has_ended(self) -> bool:
        """Whether the agent said that it ended."""
        return self.status in ("completed", "failed")

    @property
    def terminals(self) -> tuple[str, ...]:
        """The terminals in it."""
        return tuple(
            one.terminal_id
            for one in self.content
            if isinstance(one, schema.TerminalToolCallContent)
        )

    @property
    def command(self) -> str:
        """The command that it runs, or its title if it does not say which; empty if it runs none."""
        return self._given_command() or (self.title.strip("`") if self.kind == "execute" else "")

    @property
    def says_command(self) -> bool:
        """Whether it says in full what it runs."""
        return self.kind == "execute" and bool(self._given_command())

    def _given_command(self) -> str:
        for key in ("command", "cmd", "script"):
            value: object = self._given.get(key)
            if isinstance(value, str) and value.strip():
                return value
            words = lenient_json.listing(value)
            if words and all(isinstance(one, str) for one in words):
                return _plain_command(words)
        return ""

    @property
    def is_told(self) -> bool:
        """Whether it is known what the call is about, so that it can be shown; else a later update says so."""
        if self.is_being_written:
            return False
        if self.status not in ("", "pending"):
            return True
        match self.kind:
            case "read" | "edit":
                return bool(self.paths())
            case "execute":
                return self.says_command
            case "think":
                # A sub-agent's task is in the arguments.
                return self.raw_input is not None
            case _:
                return True

    @property
    def is_being_written(self) -> bool:
        """Whether the arguments of a command are told as text that has no end yet."""
        if self.kind != "execute" or self.raw_input is not None or self._told or self.has_ended:
            return False
        return any(one.lstrip().startswith("{") for one in _texts(self.content))

    def edits(self, work_dir: str) -> tuple[FileEdit, ...]:
        """Return the changes in it, without those that are too long to be compared."""
        found: list[FileEdit] = []
        for one in self.content:
            if isinstance(one, schema.FileEditToolCallContent):
                old, new = one.old_text, one.new_text
                if len(old or "") <= MOST_DIFF and len(new) <= MOST_DIFF:
                    found.append(FileEdit(shown_path(one.path, work_dir), old, new))
        return tuple(found)

    def paths(self) -> tuple[str, ...]:
        """Return the files that it names, as the agent writes them."""
        diffs = (
            one.path for one in self.content if isinstance(one, schema.FileEditToolCallContent)
        )
        return tuple(dict.fromkeys((*diffs, *(one.path for one in self.locations))))

    def text(self) -> str:
        """Return its result as text."""
        texts = [one for one in _texts(self.content) if not self._is_input(one)]
        if self.is_being_written:
            return ""
        if not any(texts):
            texts = [_raw_text(self.raw_output)]
        return "\n".join(filter(None, texts))

    def _is_input(self, text: str) -> bool:
        """Return whether a text repeats the arguments, as some agents show a call before it has a result."""
        if not self._given or len(text) > MOST_OUTPUT or not lenient_json.is_object(text):
            return False
        return lenient_json.parse(text) == self._given

    @property
    def _given(self) -> Mapping[str, Any]:
        """The arguments of the call, as fields or told as text."""
        return lenient_json.mapping(self.raw_input) or self._told

    @property
    def exit_code(self) -> int | None:
        """The exit code of its command, if it says one."""
        facts = lenient_json.mapping(self.raw_output)
        for key in ("exit_code", "exitCode"):
            value: object = facts.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    def look(self, work_dir: str) -> CallLook:
        """Return its look.

        Args:
            work_dir: the work folder, to which paths are relative.
        """
        paths = [shown_path(path, work_dir) for path in self.paths()]
        given = _plain(lenient_json.mapping(self.raw_input))
        match self.kind:
            case "execute":
                return CallLook("Shell", {"command": self.command[:MOST_OUTPUT]})
            case "read" if paths:
                return CallLook("ReadFile", {"path": paths[0]})
            case "edit" if paths:
                return CallLook("StrReplaceFile", {"path": paths[0]})
            case "search":
                pattern = next(
                    (
                        value
                        for key in ("pattern", "query", "regex", "glob")
                        if isinstance(value := given.get(key), str) and value
                    ),
                    self.title,
                )
                return CallLook("Grep", {"pattern": pattern})
            case "fetch":
                url = given.get("url")
                return CallLook("FetchURL", {"url": url if isinstance(url, str) else self.title})
            case _:
                pass
        if (task := _task_of(given)) and self.kind in ("think", "other"):
            return CallLook(_SUBAGENT, {**given, "description": task}, _SUBAGENT_CARD)
        short = _SHORT.get(self.kind, "Tool")
        # An argument of that name may be anything; the title is what the agent says of its call.
        title = self.title or str(given.get("description") or "") or ", ".join(paths)
        card = Card(short, ("description",))
        return CallLook(short, {**given, "description": title}, card)


_SUBAGENT = "Subagent"
"""The tool of a call that starts a sub-agent of the agent; it is not that of our own sub-agents."""
_SUBAGENT_CARD = Card("Sub-agent", ("description",), shows="answer", does="think")


def _task_of(given: Mapping[str, Any]) -> str:
    """Return what a sub-agent is to do, `explore: find the callers`, if these are the arguments of a call that starts one; else
    empty.
    """
    found = [given.get(key) for key in ("description", "prompt")]
    if not all(isinstance(one, str) and one.strip() for one in found):
        return ""
    kinds = (given.get(key) for key in ("subagent_type", "kind", "agent_type", "agent"))
    kind = next((one for one in kinds if isinstance(one, str) and one.strip()), "")
    return ": ".join(filter(None, (one_line(kind[:40]), one_line(str(found[0])[:_MOST_TITLE]))))


_SHORT: Mapping[str, str] = {
    "delete": "Delete",
    "move": "Move",
    "think": "Think",
    "switch_mode": "Change mode",
    "edit": "Change",
    "read": "Look at",
}


def shown_path(path: str, work_dir: str) -> str:
    """Return a path as cards show it: relative to the work folder, if it is in it."""
    if not os.path.isabs(path):
        return one_line(path)[:_MOST_ARGUMENT]
    path = os.path.normpath(path)
    inside = path.startswith(work_dir.rstrip("/") + "/")
    return one_line(os.path.relpath(path, work_dir) if inside else path)[:_MOST_ARGUMENT]


def _plain_command(words: Sequence[str]) -> str:
    """Return a command of words as a line for a shell; without the shell that some agents put before it."""
    is_shell = len(words) == 3 and words[1] in ("-c", "-lc") and words[0].endswith("sh")
    return words[2] if is_shell else shlex.join(words)


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with long texts cut, for a card and the context."""
    found: dict[str, Any] = {}
    for key, value in list(given.items())[:20]:
        if isinstance(value, str):
            found[key[:64]] = value[:_MOST_ARGUMENT]
        elif isinstance(value, bool | int | float) or value is None:
            found[key[:64]] = value
    return found


def _texts(content: Iterable[Any]) -> Iterable[str]:
    for one in content:
        if not isinstance(one, schema.ContentToolCallContent):
            continue
        match one.content:
            case schema.TextContentBlock(text=text):
                yield unfenced(text)
            case schema.ResourceContentBlock(uri=uri):
                yield uri[:_MOST_ARGUMENT]
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as it):
                yield it.text
            case schema.ImageContentBlock(mime_type=kind):
                yield f"[image {kind[:60]}]"
            case _:
                pass


def unfenced(text: str) -> str:
    """Return a text without the code fence that is all around it, as agents put it around output for editors."""
    lines = text.strip("\n").split("\n")
    first = lines[0].rstrip()
    fence = first[: len(first) - len(first.lstrip("`"))]
    if len(lines) < 2 or len(fence) < 3 or lines[-1].rstrip() != fence:
        return text
    inner = lines[1:-1]
    return text if any(line.startswith(fence) for line in inner) else "\n".join(inner)


def _arguments_in(content: Iterable[Any]) -> dict[str, Any]:
    """Return the arguments of a command that a content consists of; empty if it is something else, or has no end yet."""
    texts = list(_texts(content))
    if len(texts) != 1 or len(texts[0]) > MOST_OUTPUT or not lenient_json.is_object(texts[0]):
        return {}
    found = lenient_json.mapping(lenient_json.parse(texts[0]))
    return found if isinstance(found.get("command"), str) else {}


def _raw_text(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    facts = lenient_json.mapping(raw)
    for key in _OUTPUT_KEYS:
        value: object = facts.get(key)
        if isinstance(value, str) and value.strip():
            return value
    if not raw:
        return ""
    try:
        return json.dumps(raw, ensure_ascii=False)[:MOST_OUTPUT]
    except (TypeError, ValueError, RecursionError):
        return ""
