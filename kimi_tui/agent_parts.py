"""The parts that an agent may have or lack, and its approval modes, by name: for the engine that has them and the screen that
offers them.

This module is separate from `soul.soul`, because widgets that are drawn before a session is open also name parts and modes, and
must not load the engine.
"""

from __future__ import annotations

from typing import Literal, get_args

Mode = Literal["plan", "ask", "edits", "sandboxed", "all"]
"""The approval modes; each asks for less than the one before. In plan mode nothing may be changed at all."""
MODE_TITLES: dict[Mode, str] = {
    "plan": "plan",
    "ask": "ask",
    "edits": "accept edits",
    "sandboxed": "sandboxed",
    "all": "allow all",
}
"""The titles of the modes, the same everywhere that a person reads. Their values in settings and JSON are the keys."""
PartName = Literal["travel", "lines", "marks", "tasks", "dmails"]
"""Time travel; the world lines; bookmarks and pins; commands in the background; D-Mails of the user."""
PARTS: frozenset[PartName] = frozenset(get_args(PartName))
_WORDS: dict[PartName, str] = {
    "travel": "time travel",
    "lines": "world lines",
    "marks": "bookmarks and pins",
    "tasks": "background tasks",
    "dmails": "D-Mails",
}


def missing_words(part: PartName) -> str:
    """Return the sentence that says that an agent lacks a part."""
    return f"This agent has no {_WORDS[part]}."


def parts_of(soul: object) -> frozenset[PartName]:
    """Return the parts of a soul: those of these attributes that are not None."""
    return frozenset(name for name in PARTS if getattr(soul, name, None) is not None)
