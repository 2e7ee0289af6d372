"""`kimi-tui checkpoints` and `kimi-tui worldlines`: list the checkpoints and the world lines of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kimi_tui.commands.console import DONE, command, line_number, print_json, print_table, say
from kimi_tui.commands.sessions import (
    age_of,
    chosen_session,
    line_facts,
    opened,
    print_lines,
    reason_words,
)
from kimi_tui.session.session import Session
from kimi_tui.soul.checkpoint_table import CheckpointRow, list_checkpoints, shown_lines
from kimi_tui.tui.formatting import change, cut, tokens


def run(name: str, arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui NAME ARGUMENTS`; returns the exit code."""
    if name == "worldlines":
        options = command(name, "List the lines that were left.").parse_args(arguments)
        return asyncio.run(_worldlines(chosen_session(options.session), as_json=options.json))
    parser = command(name, "List the checkpoints of a session, oldest first.")
    parser.add_argument(
        "--world-line",
        metavar="K",
        type=line_number,
        default=0,
        help="those of a line that was left (default: the live line)",
    )
    options = parser.parse_args(arguments)
    session = chosen_session(options.session)
    return asyncio.run(_checkpoints(session, options.world_line, as_json=options.json))


async def _checkpoints(session: Session, world_line: int, *, as_json: bool) -> int:
    async with opened(session):
        rows = await asyncio.to_thread(list_checkpoints, session, world_line)
    if as_json:
        print_json([row_facts(row) for row in rows])
    elif rows:
        _print_rows(rows)
    else:
        say("There is no checkpoint yet.")
    return DONE


def row_facts(row: CheckpointRow) -> dict[str, Any]:
    """The JSON object of a checkpoint, for scripts."""
    return {
        "id": row.id,
        "world_line": row.world_line,
        "kind": row.kind,
        "label": row.label,
        "at": row.at or None,
        "tokens": row.tokens,
        "tokens_change": row.tokens_change,
        "files_changed": row.files_changed,
        "bookmark": row.bookmark or None,
        "said": row.said if row.said >= 0 else None,
    }


def _print_rows(rows: Sequence[CheckpointRow]) -> None:
    now = datetime.now(UTC)
    print_table(
        ["", "kind", "tokens", "change", "files", "age", "what"],
        [
            [
                f"#{row.id}",
                reason_words(row.kind),
                # A message that has no checkpoint of its own has no figures either.
                "" if row.said >= 0 else tokens(row.tokens, estimated=row.estimated),
                "" if row.said >= 0 else change(row.tokens_change, estimated=row.change_estimated),
                f"±{row.files_changed}" if row.files_changed else "",
                age_of(row.at, now),
                cut(f"[{row.bookmark}] {row.label}" if row.bookmark else row.label, 60),
            ]
            for row in rows
        ],
        right=(0, 2, 3, 4),
    )


async def _worldlines(session: Session, *, as_json: bool) -> int:
    async with opened(session):
        lines = await asyncio.to_thread(session.world_lines.list, session.context.world_line)
        shown = await asyncio.to_thread(shown_lines, session) if lines else {}
    if as_json:
        print_json([line_facts(line, shown.get(line.n)) for line in lines])
    elif lines:
        print_lines(lines, shown)
    else:
        say("No line was ever left here.")
    return DONE
