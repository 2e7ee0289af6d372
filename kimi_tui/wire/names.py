"""Which events have a name at kimi-cli and which are ours, and the fixed words of both.

Encoder and decoder share these tables, so that what one writes the other reads.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kimi_tui.wire import events as ev

OWN: tuple[type, ...] = (
    ev.ToolStarted,
    ev.ToolOutput,
    ev.CheckpointCreated,
    ev.ContextReverted,
    ev.SteerQueued,
    ev.FilesChanged,
    ev.FilesRestored,
    ev.LineChanged,
    ev.Notice,
)
"""Events that kimi-cli has no name for: stored field by field."""

WITH_FIELDS: tuple[type, ...] = (
    ev.TurnEnd,
    ev.StepInterrupted,
    ev.CompactionBegin,
    ev.CompactionEnd,
)
"""Events that kimi-cli has with an empty payload: its name, our fields."""

BY_NAME = {kind.__name__: kind for kind in (*OWN, *WITH_FIELDS)}
ANSWERS = {"once": "approve", "session": "approve_for_session", "no": "reject"}
ANSWERS_BACK = {"approve": "once", "approve_for_session": "session", "reject": "no"}
_OPERATIONS = frozenset({"rewind", "dmail", "compaction", "clear", "jump", "undo", "redo", "files"})
CHOICES: dict[str, frozenset[str]] = {
    "FailureKind": frozenset({"", "model", "tools"}),
    "CheckpointKind": frozenset(
        {"user", "step", "dmail", "compaction", "summary", "interrupted", "error"}
    ),
    "Operation": _OPERATIONS,
    "Literal['done', 'interrupted', 'rejected', 'error']": frozenset(
        {"done", "interrupted", "rejected", "error"}
    ),
    "Literal['info', 'warning', 'error']": frozenset({"info", "warning", "error"}),
    "Literal['agent', 'person']": frozenset({"agent", "person"}),
}
EARLIER: dict[type, dict[str, Any]] = {
    ev.TurnEnd: {"reason": "done"},
    ev.CompactionBegin: {"tokens_before": 0, "automatic": False},
    ev.CompactionEnd: {"tokens_before": 0, "tokens_after": 0},
}
"""What stands in for fields that kimi-cli does not write."""


STATUS_FIELDS = tuple(
    field.name for field in fields(ev.StatusUpdate) if field.name not in {"used", "limit"}
)
