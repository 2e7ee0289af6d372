"""Glob patterns: braces spread out, split into folder parts, each part a regular expression; `**` is any folders."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from kimi_tui.tools.problem import ToolProblem

_MAGIC = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern without braces. `folder` is its literal beginning; `parts` match what is below, `None` is `**`."""

    folder: str
    parts: tuple[re.Pattern[str] | None, ...]
    dotted: tuple[bool, ...]

    def begin(self) -> frozenset[int]:
        """The state before anything was matched: positions in `parts`."""
        return self._open({0})

    def step(self, state: frozenset[int], name: str) -> frozenset[int]:
        """The state after one more name on the way down; empty where nothing below can match."""
        hidden = name.startswith(".")
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
        """Whether what led to this state is a match."""
        return len(self.parts) in state

    def goes_on(self, state: frozenset[int]) -> bool:
        """Whether something below can match."""
        return any(position < len(self.parts) for position in state)

    def _open(self, positions: set[int]) -> frozenset[int]:
        # `**` also stands for no folder at all, so the part behind it is open too.
        opened = set(positions)
        for start in positions:
            position = start
            while position < len(self.parts) and self.parts[position] is None:
                position += 1
                opened.add(position)
        return frozenset(opened)


def patterns_of(text: str) -> list[Pattern]:
    """All patterns that a text with braces stands for.

    Raises:
        ToolProblem: the text is empty or has too many alternatives.
    """
    return [_pattern(single) for single in _spread(text)]


def _spread(text: str) -> list[str]:
    waiting, done = [text], list[str]()
    while waiting:
        current = waiting.pop()
        found = _BRACES.search(current)
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
    if not names:
        raise ToolProblem("The pattern is empty; `*` matches every name.", brief="bad pattern")
    n_literal = 0
    while n_literal < len(names) - 1 and not _MAGIC.search(names[n_literal]):
        n_literal += 1
    folder = ("/" if text.startswith("/") else "") + "/".join(names[:n_literal])
    rest = names[n_literal:]
    parts = tuple(None if name == "**" else re.compile(fnmatch.translate(name)) for name in rest)
    return Pattern(folder, parts, tuple(name.startswith(".") for name in rest))
