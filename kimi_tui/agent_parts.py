"""The parts that an agent may have or lack, by name: for the engine that has them and the screen that offers them.

This stands apart from `soul.soul`, because widgets that are drawn before a session is open name parts, too, and load nothing
of the engine.
"""

from __future__ import annotations

from typing import Literal, get_args

PartName = Literal["travel", "lines", "marks", "tasks", "dmails"]
"""Time travel; the world lines; bookmarks and pins; commands in the background; D-Mails of the user."""
PARTS: frozenset[PartName] = frozenset(get_args(PartName))
PART_WORDS: dict[PartName, str] = {
    "travel": "time travel",
    "lines": "world lines",
    "marks": "bookmarks and pins",
    "tasks": "commands in the background",
    "dmails": "D-Mails",
}
"""What each is called where one reads that an agent lacks it."""
