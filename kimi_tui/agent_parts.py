"""The parts that an agent may have or lack, and its approval modes, by name and in words: for the engine that has them and the
screen that offers them.

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
"""The titles of the modes, the same on every screen. Their values in settings and on the command line are the keys."""
LET_DECIDE = "Let the agent decide"
"""The words for no answer to a question of the agent."""
REFUSED = "You refused its request."
"""The words for why a sub-agent or a future was stopped by a no."""
NO_SANDBOX = "no sandbox"
"""The words after a mode in which commands run without asking and without a sandbox."""

UNASKED: dict[Mode, str] = {
    "plan": "The agent changes nothing until you approve its plan.",
    "ask": "The agent asks before it edits a file or runs a command.",
    "edits": "The agent edits files in this folder without asking, but asks before it runs a command.",
    "sandboxed": "The agent edits files in this folder and runs sandboxed commands without asking.",
    "all": "The agent works without asking, except for secret or protected files, files outside this folder, and anything that the sandbox does not allow.",
}
"""The sentences that say, for each mode, what the agent may do without asking."""
_UNCONFINED = (
    "Without asking, the agent runs commands outside any sandbox and edits files in this folder."
)
PartName = Literal["travel", "lines", "marks", "tasks", "dmails", "session", "model"]
"""Time travel; the world lines; bookmarks and pins; commands in the background; D-Mails of the user; a stored session with its
modes and statistics; a model that the program asks itself, with tools, compaction, skills and hooks.
"""
PARTS: frozenset[PartName] = frozenset(get_args(PartName))
_PART_WORDS: dict[PartName, str] = {
    "travel": "time travel",
    "lines": "world lines",
    "marks": "bookmarks or pins",
    "tasks": "background tasks",
    "dmails": "D-Mails",
    "session": "stored sessions, modes or statistics",
    "model": "kimi-tui's models, tools, compaction or futures",
}


def unasked_words(mode: Mode, *, sandbox: bool) -> str:
    """Return what the agent may do without asking, after the mode's title: `Mode ask: the agent asks before ...`.

    Args:
        mode: the mode.
        sandbox: whether there is a sandbox for commands.
    """
    words = UNASKED[mode] if sandbox or mode != "all" else _UNCONFINED
    return f"Mode {MODE_TITLES[mode]}: {words[0].lower()}{words[1:]}"


def missing_words(part: PartName) -> str:
    """Return the sentence that says that an agent lacks a part."""
    return f"This agent does not support {_PART_WORDS[part]}; kimi-tui's own agent does."


def parts_of(soul: object) -> frozenset[PartName]:
    """Return the parts of a soul: those of these attributes that are not None, without those in its attribute `lacks`."""
    lacks: frozenset[PartName] = getattr(soul, "lacks", frozenset())
    return frozenset(
        name for name in PARTS if name not in lacks and getattr(soul, name, None) is not None
    )
