"""The kinds of sub-agents of a session's folder: those of the program, of the user's files and of the repository's.

A kind is a Markdown file with front matter (`name`, `description`, `tools`, `model`; Claude's and kimi-code's keys), whose text
is a part of the system prompt. The user's are told to the model as they are; those of the work folder only after the user was
shown their text and said yes, and the yes is for exactly that text, as with skills (`soul.skills`). The program's kinds may be
replaced by the user's of the same name, not by a repository's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from kimi_tui.app_paths import config_dir, data_dir, home_dir
from kimi_tui.config.custom_commands import (
    MAX_BYTES,
    MAX_FILES,
    Origin,
    markdown_files,
    note_shown,
    parted,
    read_of_repository,
    were_shown,
)
from kimi_tui.filesystem import read_regular
from kimi_tui.foreign_text import clean_source, one_line
from kimi_tui.hooks.payload import our_tool
from kimi_tui.soul.project_notes import repository_root
from kimi_tui.text_encoding import as_shown
from kimi_tui.tool_cards import KNOWN
from kimi_tui.tools.agent_kind import NEVER, SHIPPED, AgentKind
from kimi_tui.tools.skill import Skill
from kimi_tui.tools.toolset import default_toolset

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_FOLDERS = (
    (".agents", "agents"),
    (".claude", "agents"),
    (".kimi-code", "agents"),
    (".kimi", "agents"),
)
_OWN = (".kimi-tui", "agents")
_MAX_DESCRIPTION = 1_024
_MOST_TOOLS = 100
_INHERITS = frozenset({"", "inherit", "default"})


class SessionKinds:
    """The kinds of sub-agents that can be used in a folder. Everything here reads or writes files, so call it in a thread.

    Args:
        work_dir: the session's folder.

    Attributes:
        waiting: the number of kinds that wait for a yes of the user, when they were looked for last.
    """

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self.waiting = 0

    def found(self) -> list[AgentKind]:
        """Return the kinds: those of the program first, then the user's, then the work folder's."""
        kinds = {one.name: one for one in SHIPPED}
        n_files = 0
        shown: set[str] | None = None
        for root, parts, origin in self._places():
            for name, path in markdown_files(root, parts, origin):
                n_files += 1
                if n_files > MAX_FILES:
                    break
                kind = _kind_in(root, name, path, origin)
                if kind is None:
                    continue
                before = kinds.get(kind.name)
                if before is not None and (before.origin != "shipped" or origin == "folder"):
                    continue
                if origin == "folder" and kind.state == "usable":
                    shown = set(were_shown(data_dir())) if shown is None else shown
                    if kind.digest not in shown:
                        kind = replace(kind, state="not allowed")
                kinds[kind.name] = kind
        self.waiting = sum(one.state == "not allowed" for one in kinds.values())
        return list(kinds.values())

    def usable(self) -> list[AgentKind]:
        """Return the kinds that the model may use."""
        return [one for one in self.found() if one.state == "usable"]

    @property
    def waiting_words(self) -> str:
        """The sentence about the kinds that wait for a yes; empty for none."""
        if not self.waiting:
            return ""
        kinds, them = (
            ("defines a sub-agent type", "it")
            if self.waiting == 1
            else (f"defines {self.waiting} sub-agent types", "them")
        )
        return f"This folder {kinds} that the agent cannot use until you allow {them}. To review and allow {them}, run /agents allow in the app."

    def allow(self, kinds: Iterable[AgentKind]) -> None:
        """Note that the user was shown these kinds and allowed them."""
        for one in kinds:
            note_shown(data_dir(), one.digest)

    def _places(self) -> Iterator[tuple[Path, tuple[str, ...], Origin]]:
        home, work_dir = home_dir(), self._work_dir
        yield config_dir(), ("agents",), "user"
        if home is not None:
            for parts in _FOLDERS:
                yield home, parts, "user"
        root = repository_root(work_dir)
        folders = [work_dir] if root is None or root == work_dir else [work_dir, root]
        for folder in folders:
            if folder != home:
                for parts in (_OWN, *_FOLDERS):
                    yield folder, parts, "folder"


def _kind_in(root: Path, word: str, path: Path, origin: Origin) -> AgentKind | None:
    """Return the kind in a file; None if the file cannot be read or has no text."""
    try:
        data = (
            read_regular(path, MAX_BYTES, links=True)
            if origin == "user"
            else read_of_repository(root, path)
        )
    except OSError:
        return None
    facts, body = parted(clean_source(as_shown(data)).strip())
    if not body:
        return None
    name = one_line(facts.get("name", word)).lower().replace("_", "-").replace(" ", "-")
    if not _NAME.fullmatch(name):
        name = word.rpartition(":")[2]
    said = [facts.get("description", ""), facts.get("whentouse", "")]
    description = one_line(" ".join(filter(None, said))[: 4 * _MAX_DESCRIPTION])[:_MAX_DESCRIPTION]
    tools, unknown = _tools(facts)
    model = one_line(facts.get("model", ""))[:120]
    kind = AgentKind(
        name,
        description,
        body,
        tools,
        "" if model.lower() in _INHERITS else model,
        one_line(facts.get("effort", ""))[:20],
        _whole(facts.get("maxturns", "") or facts.get("maxsteps", "")),
        origin,
        path,
        digest=hashlib.sha256(f"agent\0{name}\0{origin}\0".encode() + data).hexdigest(),
    )
    if not description:
        return replace(
            kind, state="broken", why="It has no description, so the model is not told of it."
        )
    if tools is not None and not tools:
        return replace(kind, state="broken", why="None of its tools exists here.")
    if unknown:
        named = ", ".join(unknown[:5])
        return replace(kind, why=f"It asks for tools that do not exist here: {named}.")
    return kind


def _tools(facts: Mapping[str, str]) -> tuple[tuple[str, ...] | None, list[str]]:
    """Return the tools of a kind in our names, None for all, and the names of tools that are not known here."""
    unknown: list[str] = []
    refused = {our_tool(one) for one in _words(facts.get("disallowedtools", ""))}
    listed = _words(facts.get("tools", "") or facts.get("allowedtools", ""))
    if not listed or "*" in listed:
        if not refused:
            return None, unknown
        return tuple(name for name in _known() if name not in refused), unknown
    tools: list[str] = []
    for word in listed[:_MOST_TOOLS]:
        name = our_tool(word)
        if name in NEVER or name in refused or name in tools:
            continue
        if name in _known() or name.startswith("mcp__"):
            tools.append(name)
        else:
            unknown.append(one_line(word)[:40])
    return tuple(tools), unknown


@cache
def _known() -> tuple[str, ...]:
    """Return the tools that a kind may name: all of the program's, in their order, but those that no sub-agent has."""
    names = dict.fromkeys([*default_toolset().names, *KNOWN, Skill.name])
    return tuple(name for name in names if name not in NEVER)


def _words(text: str) -> Sequence[str]:
    """Return the words of a list, which is written with commas, in brackets, or as items behind hyphens."""
    for sign in ",[]\"'":
        text = text.replace(sign, " ")
    # `Bash(git:*)` allows one command of a tool; the tool asks all the same.
    return [word.partition("(")[0] for word in text.split() if word != "-"]


def _whole(text: str) -> int:
    """Return a positive number; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
