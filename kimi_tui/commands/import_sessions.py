"""`kimi-tui import`: copies sessions of kimi-cli, with their lost futures. The originals are only read.

`--from` names another agent, whose sessions `import_foreign` copies, or kimi-cli's data folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from kimi_tui.app_paths import data_dir, expanded, kimi_cli_share_dir, reason_of, short
from kimi_tui.commands.console import CommandLineParser, complain, print_json, print_table, say
from kimi_tui.program import DONE, FAILED, USAGE
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.kimi_cli_import import (
    FOLDER_LIST_NAME,
    AlreadyImported,
    KimiSession,
    find_sessions,
    folder_list_error,
    futures_of,
    import_session,
    target_of,
)
from kimi_tui.session.store import SessionStore
from kimi_tui.tui.formatting import age, counted, cut, tokens

AGENT_NAMES = ("claude", "codex", "opencode", "pi", "gemini", "kimi-code")
"""The agents whose sessions can be imported besides kimi-cli's, so that their readers are not imported for the help."""
_State = Literal["imported", "new", "present", "failed"]
_WORDS: dict[_State, str] = {
    "imported": "imported",
    "new": "would be imported",
    "present": "already imported",
    "failed": "failed",
}
_REASONS = {
    "dmail": "D-Mail",
    "compaction": "compaction",
    "clear": "clear",
    "rewind": "rewind",
}


@dataclass(frozen=True, slots=True)
class _Row:
    found: KimiSession
    target: Path
    state: _State
    futures: tuple[JournalEntry, ...] = ()
    error: str = ""


def run(arguments: Sequence[str]) -> int:
    """Carry out `kimi-tui import ARGUMENTS`; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.share in AGENT_NAMES:
        from kimi_tui.commands import import_foreign

        return import_foreign.run(
            options.share,
            everywhere=options.all,
            dry_run=options.dry_run,
            as_json=options.json,
        )
    if options.share and "/" not in options.share and not expanded(options.share).exists():
        complain(
            f"{options.share!r} is neither an agent nor a folder. Use {', '.join(AGENT_NAMES)}, or the data folder of kimi-cli."
        )
        return USAGE
    share = expanded(options.share) if options.share else kimi_cli_share_dir()
    if not (share / "sessions").is_dir():
        if options.share:
            complain(f"kimi-cli has no sessions in {options.share}.")
            return USAGE
        found: list[KimiSession] = []
    else:
        found = find_sessions(share, None if options.all else Path.cwd())
    store = SessionStore(data_dir())
    rows = [_take(store, session, dry_run=options.dry_run) for session in found]
    if options.json:
        print_json([_facts(row) for row in rows])
    else:
        _print(rows, share, everywhere=options.all)
    if reason := folder_list_error(share):
        complain(
            f"{short(share / FOLDER_LIST_NAME)}, kimi-cli's list of work folders, cannot be read: {reason}. "
            "Repair the file, or run this command in the folder whose sessions are missing."
        )
    for row in rows:
        if row.error:
            complain(f"{row.found.title!r} was not imported. {row.error}")
    return FAILED if any(row.error for row in rows) else DONE


def _parser() -> CommandLineParser:
    parser = CommandLineParser(
        prog="kimi-tui import",
        description="Import the sessions of kimi-cli, or of another agent, for this folder. The original files are not changed.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--from",
        dest="share",
        metavar="AGENT",
        help=f"{', '.join(AGENT_NAMES)}; or the data folder of kimi-cli (default: $KIMI_SHARE_DIR, else ~/.kimi)",
    )
    parser.add_argument("--all", action="store_true", help="import the sessions of every folder")
    parser.add_argument(
        "--dry-run", action="store_true", help="list the sessions without importing them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _take(store: SessionStore, found: KimiSession, *, dry_run: bool) -> _Row:
    target = target_of(store, found)
    try:
        if target.exists() or dry_run:
            state: _State = "present" if target.exists() else "new"
            return _Row(found, target, state, futures_of(found, store.storage))
        done = import_session(store, found)
        return _Row(found, done.folder, "imported", done.futures)
    except AlreadyImported:
        return _Row(found, target, "present")
    except StorageTrouble as trouble:
        return _Row(found, target, "failed", error=f"{trouble.message} {trouble.advice}".strip())
    except OSError as error:
        return _Row(
            found, target, "failed", error=f"The session cannot be read: {reason_of(error)}."
        )
    except ValueError as error:
        # A path that no file can have, or a date outside the calendar, fails one odd session and not all of them.
        return _Row(found, target, "failed", error=f"The session cannot be imported: {error}.")


def _facts(row: _Row) -> dict[str, Any]:
    found = row.found
    return {
        "id": row.target.name,
        "kimi_cli_id": found.id,
        "title": found.title,
        "work_dir": found.work_dir or None,
        "updated_at": datetime.fromtimestamp(found.updated_at, UTC).isoformat(timespec="seconds"),
        "messages": found.messages,
        "tokens": found.tokens,
        "state": row.state,
        "error": row.error or None,
        "world_lines": [
            {
                "n": future.n,
                "reason": future.op,
                "checkpoint_id": future.checkpoint_id if future.checkpoint_id >= 0 else None,
                "tokens_before": future.tokens_before,
                "tokens_after": future.tokens_after,
                "messages_dropped": future.messages_dropped,
                "text": future.text,
            }
            for future in row.futures
        ],
    }


def _print(rows: Sequence[_Row], share: Path, *, everywhere: bool) -> None:
    if not rows:
        whose = "" if everywhere else " for this folder (--all imports from every folder)"
        say(f"kimi-cli has no sessions{whose} in {short(share)}.")
        return
    now = datetime.now(UTC)
    head = ["id", "title", "age", "messages", "tokens", "world lines", ""]
    print_table(
        [*head, *(["folder"] if everywhere else [])],
        [
            [
                row.target.name[:8],
                cut(row.found.title, 48),
                age(datetime.fromtimestamp(row.found.updated_at, UTC), now),
                "" if row.found.messages is None else f"{row.found.messages:,}",
                "" if row.found.tokens is None else tokens(row.found.tokens),
                _lost(row.futures),
                _WORDS[row.state],
                *([short(Path(row.found.work_dir))] if everywhere and row.found.work_dir else []),
                *([""] if everywhere and not row.found.work_dir else []),
            ]
            for row in rows
        ],
        right=(3, 4),
    )


def _lost(futures: Sequence[JournalEntry]) -> str:
    """Return `2 D-Mails, 1 rewind`: the operations that left the lost futures."""
    if not futures:
        return ""
    counts = Counter(_REASONS.get(future.op, "unknown") for future in futures)
    return ", ".join(counted(count, reason) for reason, count in counts.items())
