"""Glob: the files and folders whose paths match a pattern, without what `.gitignore` leaves out."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from kimi_tui.tools.base import Tool, ToolEnv, ToolOutcome
from kimi_tui.tools.description import description_beside
from kimi_tui.tools.files import missing
from kimi_tui.tools.patterns import Pattern, patterns_of
from kimi_tui.tools.permission import ask_to_read, told_like_reading
from kimi_tui.tools.place import Place, locate
from kimi_tui.tools.problem import ToolProblem

if TYPE_CHECKING:
    from kimi_tui.workspace.ignore import IgnoreFile, IgnoreStack

MAX_MATCHES = 1000
LIMIT_S = 20.0
_RULES_BYTES = 1024 * 1024


class GlobParams(BaseModel):
    """What to look for, where."""

    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(
        description="For example `src/**/*.py`, `*.{ts,tsx}` or `**/test_*`.", min_length=1
    )
    directory: str = Field(
        default=".", description="Where to look; the work folder if left out.", min_length=1
    )
    include_dirs: bool = Field(
        default=True, description="Whether folders that match are listed too."
    )


class Glob(Tool[GlobParams]):
    """Finds files by name."""

    name: ClassVar[str] = "Glob"
    changes: ClassVar[bool] = False
    params = GlobParams

    @property
    def description(self) -> str:
        """What the model is told."""
        return description_beside(__file__)

    async def run(self, params: GlobParams, env: ToolEnv) -> ToolOutcome:
        """List what matches; asks first outside the work folder."""
        search = _Search(params.include_dirs)
        asked: set[Path] = set()
        patterns = patterns_of(params.pattern)
        start = await asyncio.to_thread(locate, params.directory, env.work_dir, env.environ)
        for pattern in patterns:
            async with told_like_reading(start, env):
                place = await asyncio.to_thread(_folder, start, pattern, params, env)
            if place is None:
                continue
            if place.real not in asked:
                await ask_to_read(place, env, folder=True)
                asked.add(place.real)
            try:
                await asyncio.to_thread(search.walk, place, pattern)
            except asyncio.CancelledError:
                search.cancelled.set()
                raise
        return _outcome(search)


def _folder(start: Place, pattern: Pattern, params: GlobParams, env: ToolEnv) -> Place | None:
    """Where a pattern starts; None where its literal beginning does not exist."""
    folder = os.path.join(params.directory, pattern.folder)
    place = locate(folder, env.work_dir, env.environ) if pattern.folder else start
    if place.real.is_dir():
        return place
    if start.real.is_dir():
        return None
    if start.real.exists():
        raise ToolProblem(f"{params.directory} is a file, not a folder.", brief="not a folder")
    raise missing(start)


@dataclass(slots=True)
class _Search:
    include_dirs: bool
    matches: set[str] = field(default_factory=set[str])
    cancelled: threading.Event = field(default_factory=threading.Event)
    deadline: float = field(default_factory=lambda: time.monotonic() + LIMIT_S)
    out_of_time: bool = False
    unreadable: int = 0

    @property
    def full(self) -> bool:
        return len(self.matches) > MAX_MATCHES

    def walk(self, place: Place, pattern: Pattern) -> None:
        """Go down from the folder as far as the pattern can match, in the order of names, following no links."""
        top = place.root if place.inside else place.real
        relative = place.real.relative_to(top).as_posix()
        relative = "" if relative == "." else relative
        stack = _stack_down_to(top, relative)
        waiting = [(str(place.real), relative, stack, pattern.begin())]
        while waiting and not self.full and not self.cancelled.is_set():
            if time.monotonic() > self.deadline:
                self.out_of_time = True
                return
            folder, prefix, above, state = waiting.pop()
            rules = above.entered(prefix, _rules_in(folder)) if above is not None else None
            deeper: list[tuple[str, str, IgnoreStack | None, frozenset[int]]] = []
            for name, is_folder in self._listed(folder):
                reached = pattern.step(state, name)
                if not reached:
                    continue
                path = f"{prefix}/{name}" if prefix else name
                if rules is not None and rules.ignores(path, is_folder=is_folder):
                    continue
                if pattern.matched(reached) and (self.include_dirs or not is_folder):
                    shown = path if place.inside else str(top / path)
                    self.matches.add(f"{shown}/" if is_folder else shown)
                    if self.full:
                        return
                if is_folder and pattern.goes_on(reached):
                    deeper.append((os.path.join(folder, name), path, rules, reached))
            waiting += reversed(deeper)

    def _listed(self, folder: str) -> list[tuple[str, bool]]:
        try:
            with os.scandir(folder) as entries:
                return sorted((e.name, e.is_dir(follow_symlinks=False)) for e in entries)
        except OSError:
            self.unreadable += 1
            return []


def _stack_down_to(top: Path, relative: str) -> IgnoreStack | None:
    """The ignore rules above a folder; None where the folder is itself ignored, for then it was meant by name."""
    # Not at the top of the module: pathspec costs 35 ms that only a search needs.
    from kimi_tui.workspace.ignore import IgnoreStack

    stack = IgnoreStack()
    folder, prefix = str(top), ""
    for name in relative.split("/") if relative else []:
        stack = stack.entered(prefix, _rules_in(folder))
        prefix = f"{prefix}/{name}" if prefix else name
        folder = os.path.join(folder, name)
        if stack.ignores(prefix, is_folder=True):
            return None
    return stack


def _rules_in(folder: str) -> IgnoreFile | None:
    from kimi_tui.workspace.ignore import IgnoreFile

    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(folder, ".gitignore"), flags)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _RULES_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return IgnoreFile(text)


def _outcome(search: _Search) -> ToolOutcome:
    found = sorted(search.matches)
    facts: list[str] = []
    if search.full:
        found = found[:MAX_MATCHES]
        facts.append(f"The first {MAX_MATCHES:,} matches; there are more. Narrow the pattern.")
    elif not found:
        facts.append(
            "Nothing matches. Names that begin with a dot and what .gitignore leaves out are only "
            "found where the pattern names them."
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
        brief = "no match"
    elif len(found) == 1:
        brief = "1 file" if n_files else "1 folder"
    shown = (path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in found)
    return ToolOutcome(output="\n".join(shown), message=" ".join(facts), brief=brief)
