"""Glob: finds the files and folders whose paths match a pattern, except those that `.gitignore` excludes.

A pattern has its braces expanded first, then each is split into folder parts, each part a regular expression; `**` is any
number of folders without a leading dot.

No program is run: names and rules are read in folders that are opened one by one from a descriptor without following links,
so nothing outside the requested folder can be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import heapq
import os
import re
import threading
import time
import unicodedata
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.filesystem import open_folder
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.files import missing, searched
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.paths import (
    ResolvedPath,
    SearchRequest,
    ask_to_read,
    locate,
    read_approval_on_error,
    shown_on_a_line,
)

if TYPE_CHECKING:
    from kimi_tui.workspace.ignore import IgnoreStack


_MAGIC = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ALTERNATIVES = 64
_PATTERN_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern without braces. `folder` is its literal beginning; `parts` match the names below it, `None` is `**`."""

    folder: str
    parts: tuple[re.Pattern[str] | None, ...]
    dotted: tuple[bool, ...]

    def begin(self) -> frozenset[int]:
        """Return the state before anything is matched: positions in `parts`."""
        return self._open({0})

    def step(self, state: frozenset[int], name: str) -> frozenset[int]:
        """Return the state after one more name; empty if nothing below can match."""
        hidden = name.startswith(".")
        if not name.isascii():
            # macOS may write a name decomposed, which no pattern is.
            name = unicodedata.normalize("NFC", name)
        reached: set[int] = set()
        for position in state:
            if position == len(self.parts):
                continue
            part = self.parts[position]
            if part is None:
                if not hidden:
                    reached.add(position)
            elif (not hidden or self.dotted[position]) and part.match(name):
                reached.add(position + 1)
        return self._open(reached)

    def matched(self, state: frozenset[int]) -> bool:
        """Return whether the names so far are a match."""
        return len(self.parts) in state

    def goes_on(self, state: frozenset[int]) -> bool:
        """Return whether a path below can match."""
        return any(position < len(self.parts) for position in state)

    def _open(self, positions: set[int]) -> frozenset[int]:
        # `**` also matches no folder at all, so the next part is reachable too.
        opened = set(positions)
        for start in positions:
            position = start
            while position < len(self.parts) and self.parts[position] is None:
                position += 1
                opened.add(position)
        return frozenset(opened)


def patterns_of(text: str) -> list[Pattern]:
    """Return all patterns that a text with braces stands for.

    Raises:
        ToolProblem: the text is empty or has too many alternatives.
    """
    singles = expand_braces(text)
    # A name may contain such braces itself.
    return [_pattern(single) for single in (*singles, *([text] if len(singles) > 1 else ()))]


def expand_braces(text: str) -> list[str]:
    """Return the texts without braces that a text with `{a,b}` stands for.

    Raises:
        ToolProblem: the text has too many alternatives, or is too long.
    """
    if len(text) > _PATTERN_CHARS:
        raise ToolProblem(
            f"The pattern is longer than any path: {len(text):,} characters.", brief="bad pattern"
        )
    waiting, done = [text], list[str]()
    while waiting:
        current = waiting.pop()
        found = next((one for one in _BRACES.finditer(current) if "," in one[1]), None)
        if found is None:
            done.append(current)
        else:
            before, after = current[: found.start()], current[found.end() :]
            waiting += [f"{before}{choice}{after}" for choice in found[1].split(",")]
        if len(waiting) + len(done) > _ALTERNATIVES:
            raise ToolProblem(
                f"The pattern has more than {_ALTERNATIVES} alternatives.", brief="bad pattern"
            )
    return done


def _pattern(text: str) -> Pattern:
    names = [name for name in text.split("/") if name not in ("", ".")]
    names = [name if name.isascii() else unicodedata.normalize("NFC", name) for name in names]
    if not names:
        raise ToolProblem("The pattern is empty; `*` matches every name.", brief="bad pattern")
    n_literal = 0
    while n_literal < len(names) - 1 and not _MAGIC.search(names[n_literal]):
        n_literal += 1
    folder = ("/" if text.startswith("/") else "") + "/".join(names[:n_literal])
    rest = names[n_literal:]
    # A name that contains the signs of a pattern, such as `[id]`, also matches literally.
    parts = tuple(
        None if name == "**" else re.compile(rf"{fnmatch.translate(name)}|{re.escape(name)}\Z")
        for name in rest
    )
    return Pattern(folder, parts, tuple(name.startswith(".") for name in rest))


MAX_MATCHES = 1000
LIMIT_S = 20.0
_CHECKED_NAMES = 1000
_SORTED_NAMES = 5000


class GlobParams(BaseModel):
    """The arguments of Glob: the pattern and the folder."""

    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(description="Such as `src/**/*.{ts,tsx}`.", min_length=1)
    directory: str = Field(default=".", description="Where to look.", min_length=1)
    include_dirs: bool = Field(default=True, description="List folders too.")


class Glob(TypedTool[GlobParams]):
    """Finds files by name."""

    name = "Glob"
    changes: Changes = "nothing"
    params = GlobParams

    async def run(self, params: GlobParams, env: ToolEnv) -> ToolOutcome:
        """List the matches; ask first if they are outside the work folder."""
        search = _Search(params.include_dirs)
        asked: set[Path] = set()
        patterns = patterns_of(params.pattern)
        start = await asyncio.to_thread(locate, params.directory, env.work_dir, env.environ)
        for pattern in patterns:
            async with read_approval_on_error(start, env):
                target = await asyncio.to_thread(_folder, start, pattern, params, env)
            if target is None:
                continue
            if target.real not in asked:
                await ask_to_read(target, env, search=_as_asked(params, pattern))
                asked.add(target.real)
            try:
                await asyncio.to_thread(search.walk, target, pattern)
            except asyncio.CancelledError:
                search.cancelled.set()
                raise
        return _outcome(search)


def _as_asked(params: GlobParams, pattern: Pattern) -> SearchRequest:
    """Describe the search for the question to the user."""
    depth = (
        f"{len(pattern.parts)} folders deep" if len(pattern.parts) > 1 else "only in this folder"
    )
    deep = "in this folder and all below" if None in pattern.parts else depth
    return SearchRequest((f"pattern  {shown_on_a_line(params.pattern)}",), f"lists names {deep}")


def _folder(
    start: ResolvedPath, pattern: Pattern, params: GlobParams, env: ToolEnv
) -> ResolvedPath | None:
    """Return the folder in which a pattern starts; None if its literal beginning does not exist."""
    folder = os.path.join(params.directory, pattern.folder)
    target = locate(folder, env.work_dir, env.environ) if pattern.folder else start
    if target.real.is_dir():
        return target
    if start.real.is_dir():
        return None
    if start.real.exists():
        raise ToolProblem(f"{params.directory} is a file, not a folder.", brief="not a folder")
    raise missing(start)


class _Stop(Exception):
    """The search was cancelled, or its time is up."""


@dataclass(slots=True)
class _Search:
    include_dirs: bool
    matches: set[str] = field(default_factory=set[str])
    cancelled: threading.Event = field(default_factory=threading.Event)
    left_s: float = field(default_factory=lambda: LIMIT_S)
    """Seconds left for searching; waiting for an approval does not count."""
    out_of_time: bool = False
    unreadable: int = 0
    _deadline: float = 0.0

    @property
    def full(self) -> bool:
        return len(self.matches) > MAX_MATCHES

    def walk(self, target: ResolvedPath, pattern: Pattern) -> None:
        """Descend from the folder as far as the pattern can match, in the order of names, following no links."""
        started = time.monotonic()
        self._deadline = started + self.left_s
        top = target.root if target.inside else target.real
        with (
            contextlib.suppress(_Stop),
            searched(target, target.real) as start,
            searched(target, top) as holder,
        ):
            names = target.real.relative_to(top).parts
            self._walk(target, pattern, start, "/".join(names), _stack_down_to(holder, names))
        self.left_s -= time.monotonic() - started

    def _walk(
        self,
        target: ResolvedPath,
        pattern: Pattern,
        start: int,
        relative: str,
        stack: IgnoreStack | None,
    ) -> None:
        top = target.root if target.inside else target.real
        waiting = [(tuple[str, ...](), relative, stack, pattern.begin())]
        while waiting and not self.full:
            self._check()
            parts, prefix, above, state = waiting.pop()
            rules = _entered(above, prefix, start, parts) if above is not None else None
            deeper: list[tuple[tuple[str, ...], str, IgnoreStack | None, frozenset[int]]] = []
            for name, is_folder in self._listed(start, parts, pattern, state):
                reached = pattern.step(state, name)
                path = f"{prefix}/{name}" if prefix else name
                if rules is not None and rules.ignores(path, is_folder=is_folder):
                    continue
                if pattern.matched(reached) and (self.include_dirs or not is_folder):
                    shown = path if target.inside else str(top / path)
                    self.matches.add(f"{shown}/" if is_folder else shown)
                    if self.full:
                        return
                if is_folder and pattern.goes_on(reached):
                    deeper.append(((*parts, name), path, rules, reached))
            waiting += reversed(deeper)

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise _Stop
        if time.monotonic() > self._deadline:
            self.out_of_time = True
            raise _Stop

    def _listed(
        self, start: int, parts: tuple[str, ...], pattern: Pattern, state: frozenset[int]
    ) -> Iterator[tuple[str, bool]]:
        """Yield the names in a folder that can be a part of a match, in order, and whether each is a folder.

        The folder is opened from a descriptor, as a folder in its path may have become a link.
        """
        # A folder may hold a million names: sorting all at once would block the event loop.
        sorted_parts: list[list[tuple[str, bool]]] = []
        part: list[tuple[str, bool]] = []
        try:
            with _readable(start, parts) as folder, os.scandir(folder) as entries:
                for number, entry in enumerate(entries, start=1):
                    if number % _CHECKED_NAMES == 0:
                        self._check()
                    if pattern.step(state, entry.name):
                        part.append((entry.name, entry.is_dir(follow_symlinks=False)))
                    if len(part) == _SORTED_NAMES:
                        part.sort()
                        sorted_parts.append(part)
                        part = []
        except OSError:
            self.unreadable += 1
        part.sort()
        sorted_parts.append(part)
        for number, found in enumerate(heapq.merge(*sorted_parts)):
            if number % _CHECKED_NAMES == 0:
                self._check()
            yield found


@contextlib.contextmanager
def _readable(start: int, parts: tuple[str, ...]) -> Generator[int]:
    folder = open_folder(start, parts)
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _stack_down_to(top: int, names: tuple[str, ...]) -> IgnoreStack | None:
    """Return the ignore rules above a folder; None if the folder is itself ignored, because the user then asked for it by name."""
    # Only a search needs this import, so it is not at the top of the module.
    from kimi_tui.workspace.ignore import IgnoreStack

    stack = IgnoreStack()
    for depth in range(len(names)):
        above = names[:depth]
        stack = _entered(stack, "/".join(above), top, above)
        if stack.ignores("/".join(names[: depth + 1]), is_folder=True):
            return None
    return stack


def _entered(stack: IgnoreStack, prefix: str, start: int, parts: tuple[str, ...]) -> IgnoreStack:
    """Return the rules inside a folder, opened from a descriptor; none are added if a folder in its path is a link by now."""
    from kimi_tui.workspace.ignore import RULES_NAME, read_rules

    try:
        folder = open_folder(start, parts)
    except OSError:
        return stack
    try:
        return stack.entered(prefix, read_rules(RULES_NAME, folder, stack.room))
    finally:
        os.close(folder)


def _outcome(search: _Search) -> ToolOutcome:
    found = sorted(search.matches)
    facts: list[str] = []
    if search.full:
        found = found[:MAX_MATCHES]
        facts.append(f"The first {MAX_MATCHES:,} matches; there are more. Narrow the pattern.")
    elif not found:
        facts.append(
            "No match so far."
            if search.out_of_time
            else "No match. Names that begin with a dot and what .gitignore excludes are found only if the "
            "pattern names them."
        )
    else:
        facts.append("1 match." if len(found) == 1 else f"{len(found):,} matches.")
    if search.out_of_time:
        facts.append(
            f"Stopped after {LIMIT_S:.0f} s; there may be more. Start in a smaller folder."
        )
    if search.unreadable:
        facts.append(f"{search.unreadable} folders could not be read.")
    n_files = sum(not path.endswith("/") for path in found)
    brief = f"{len(found)} matches" if n_files != len(found) else f"{n_files} files"
    if not found:
        brief = "out of time" if search.out_of_time else "no match"
    elif len(found) == 1:
        brief = "1 file" if n_files else "1 folder"
    shown = (path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in found)
    return ToolOutcome(output="\n".join(shown), message=" ".join(facts), brief=brief)
