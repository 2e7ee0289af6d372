"""Sessions that other agents wrote (`tests/migration/agents`), where a test can read and import them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

from kimi_tui.llm.dialects import DIALECTS
from kimi_tui.llm.message import user_message
from kimi_tui.llm.request import Recipient, sent_messages
from kimi_tui.migration.agents import AGENTS, read_session
from kimi_tui.migration.plain import FoundSession, PlainSession
from kimi_tui.migration.writing import WrittenSession, write_session
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore, opened
from kimi_tui.session.world_lines import WorldLine
from kimi_tui.soul.history import fits
from kimi_tui.soul.record import read_stored
from support.chat_server import sequence_fault

FILES = Path(__file__).parent.parent / "migration" / "agents"
PROJECT = "/home/user/project"
"""The work folder of the sessions."""
NAMES = tuple(AGENTS)


def make_database(folder: Path, rows: dict[str, list[dict[str, object]]] | None = None) -> Path:
    """Make opencode's database from the rows that it wrote; what was written last is in its log."""
    told = json.loads((FILES / "opencode" / "rows.json").read_text())
    path = folder / "opencode.db"
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = OFF")
    for table, schema in told["schema"].items():
        connection.execute(schema)
        for row in (rows or told["rows"])[table]:
            marks = ", ".join("?" * len(row))
            names = ", ".join(row)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*row.values()])
    connection.commit()
    # The log is there as long as a program has the database open, so its files are copied before it is closed.
    beside = folder / "copied"
    beside.mkdir()
    for name in ("opencode.db", "opencode.db-wal"):
        shutil.copy(folder / name, beside / name)
    connection.close()
    for name in ("opencode.db", "opencode.db-wal"):
        (beside / name).replace(folder / name)
    beside.rmdir()
    return path


def folder_of(name: str, place: Path) -> Path:
    """Return an agent's folder with its sessions, copied to a place."""
    folder = place / name
    if name == "opencode":
        make_database(folder)
    elif not folder.exists():
        shutil.copytree(FILES / name, folder)
    return folder


def found_in(name: str, folder: Path) -> list[FoundSession]:
    """Return the sessions of an agent, with most messages first."""
    return sorted(AGENTS[name].find(folder, PROJECT), key=lambda one: one.title)


def written(
    store: SessionStore, plain: PlainSession, work_dir: Path
) -> tuple[Session, WrittenSession]:
    """Write a session for a work folder that exists, and return it."""
    plain.found = replace(plain.found, work_dir=str(work_dir))
    done = write_session(store, plain, work_dir, "You are the agent of kimi-tui.")
    return store.at(done.folder), done


def read_all(name: str, place: Path) -> list[PlainSession]:
    """Return all sessions of an agent, read."""
    return [read_session(found) for found in found_in(name, folder_of(name, place))]


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file in a folder, with its time and contents."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.stat().st_ino,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


async def check_opened(session: Session) -> list[WorldLine]:
    """Open an imported session and check it as a whole; return its world lines.

    Its record leads to the live line by way of all others, nothing in it needed a repair, and a strict server accepts the
    next request.
    """
    async with opened(session):
        assert not session.remarks
        stored = read_stored(session)
        assert stored.n_skipped == 0
        assert fits(stored.records, session)
        history = [*session.context.messages, user_message("Go on.")]
        sent = sent_messages("system", history, DIALECTS["generic"], Recipient("p", "m"))
        assert sequence_fault(sent) is None
        return session.world_lines.list(session.context.world_line)
