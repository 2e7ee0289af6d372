"""`kimi-tui import --from AGENT`: copies sessions of another agent, with what it undid as world lines. The originals are only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from kimi_tui.app_paths import data_dir, short
from kimi_tui.commands.console import complain, print_json, print_table, say
from kimi_tui.migration.agents import (
    AGENTS,
    FILES_WORDS,
    Agent,
    find_sessions,
    import_session,
    losses_words,
    place_of,
    read_session,
)
from kimi_tui.migration.plain import CannotRead, FoundSession, PlainSession
from kimi_tui.program import DONE, FAILED
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.store import SessionStore
from kimi_tui.tui.formatting import age, cut

_State = Literal["imported", "new", "present", "failed"]
_WORDS: dict[_State, str] = {
    "imported": "imported",
    "new": "would be imported",
    "present": "already imported",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class _ForeignRow:
    """A session with what became of it. The figures are unknown where it was not read."""

    found: FoundSession
    target: Path
    state: _State
    messages: int = 0
    calls: int = 0
    forks: int = 0
    compactions: int = 0
    version: str = ""
    losses: Counter[str] = field(default_factory=Counter[str])
    error: str = ""


def run(agent_name: str, *, everywhere: bool, dry_run: bool, as_json: bool) -> int:
    """Carry out `kimi-tui import --from AGENT`; return the exit code."""
    agent = AGENTS[agent_name]
    try:
        found = find_sessions(agent, None if everywhere else Path.cwd())
    except CannotRead as trouble:
        complain(str(trouble))
        return FAILED
    store = SessionStore(data_dir())
    rows = [_take(store, one, dry_run=dry_run) for one in found]
    if as_json:
        print_json([_facts(row) for row in rows])
    else:
        _print(rows, agent, everywhere=everywhere)
    for row in rows:
        if row.error:
            complain(f"{row.found.title!r} was not imported. {row.error}")
    return FAILED if any(row.error for row in rows) else DONE


def _take(store: SessionStore, found: FoundSession, *, dry_run: bool) -> _ForeignRow:
    target = place_of(store, found)
    if target.exists():
        return _ForeignRow(found, target, "present")
    try:
        plain = read_session(found)
        if dry_run:
            return _row(plain, target, "new")
        import_session(store, plain)
        return _row(plain, target, "imported")
    except CannotRead as trouble:
        return _ForeignRow(found, target, "failed", error=str(trouble))
    except StorageTrouble as trouble:
        error = f"{trouble.message} {trouble.advice}".strip()
        return _ForeignRow(found, target, "failed", error=error)
    except (OSError, ValueError) as error:
        # A work folder that no disk can have fails one odd session and not all of them.
        return _ForeignRow(
            found, target, "failed", error=f"The session cannot be imported: {error}."
        )


def _row(plain: PlainSession, target: Path, state: _State) -> _ForeignRow:
    messages, calls, compactions = plain.counts()
    return _ForeignRow(
        plain.found,
        target,
        state,
        messages,
        calls,
        len(plain.leaves()),
        compactions,
        plain.version,
        plain.losses,
    )


def _facts(row: _ForeignRow) -> dict[str, Any]:
    found = row.found
    return {
        "id": row.target.name,
        "agent": found.agent,
        "foreign_id": found.id,
        "version": row.version or None,
        "title": found.title,
        "work_dir": found.work_dir,
        "updated_at": datetime.fromtimestamp(found.updated_at, UTC).isoformat(timespec="seconds"),
        "messages": row.messages,
        "tool_calls": row.calls,
        "forks": row.forks,
        "compactions": row.compactions,
        "losses": dict(sorted(row.losses.items())),
        "state": row.state,
        "error": row.error or None,
    }


def _print(rows: Sequence[_ForeignRow], agent: Agent, *, everywhere: bool) -> None:
    if not rows:
        whose = "" if everywhere else " for this folder (--all imports from every folder)"
        say(f"{agent.title} has no sessions{whose}.")
        return
    now = datetime.now(UTC)
    head = ["id", "title", "age", "messages", "calls", "forks", "compactions", ""]
    print_table(
        [*head, *(["folder"] if everywhere else [])],
        [
            [
                row.target.name[:8],
                cut(row.found.title or "Untitled", 48),
                age(datetime.fromtimestamp(row.found.updated_at, UTC), now),
                *(
                    f"{n:,}" if row.messages else ""
                    for n in (row.messages, row.calls, row.forks, row.compactions)
                ),
                _WORDS[row.state],
                *([short(Path(row.found.work_dir))] if everywhere else []),
            ]
            for row in rows
        ],
        right=(3, 4, 5, 6),
    )
    for row in rows:
        if words := losses_words(row.losses):
            say(f"{row.target.name[:8]}: {words}")
    if any(row.state in ("new", "imported") for row in rows):
        say(FILES_WORDS)
