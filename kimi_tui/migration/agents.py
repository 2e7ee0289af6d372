"""The agents whose sessions can be imported, where they keep them, and how one is read and taken over."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from kimi_tui.app_paths import home_dir
from kimi_tui.display_names import counted
from kimi_tui.migration import claude_code, codex, gemini, kimi_code, opencode, pi
from kimi_tui.migration.plain import MOST_ENTRIES, CannotRead, FoundSession, PlainSession
from kimi_tui.migration.writing import WrittenSession, target_of, write_session
from kimi_tui.session.store import SessionStore

FILES_WORDS = "A rewind to a step from before the import restores the conversation only: there are no file snapshots of those steps."
_MOST_LOSSES = 4
_PLURALS = {
    "encrypted compaction summary": "encrypted compaction summaries",
    "end of a long text": "ends of long texts",
    f"message after the first {MOST_ENTRIES:,}": f"messages after the first {MOST_ENTRIES:,}",
    "message that is missing in the file": "messages that are missing in the file",
    "old branch of the conversation": "old branches of the conversation",
    "parent session that is missing": "parent sessions that are missing",
    "record of an unknown type": "records of unknown types",
    "tool result without a call": "tool results without a call",
}
"""The plurals of losses that do not end in an s."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent whose sessions can be imported.

    Attributes:
        name: Its name on the command line.
        title: Its name for the user.
        home: Returns its folder, from the environment and the user's home folder.
        find: Returns the sessions in its folder, of one work folder or (for an empty path) of all.
        read: Reads one of them.
    """

    name: str
    title: str
    home: Callable[[Mapping[str, str], Path], Path]
    find: Callable[[Path, str], list[FoundSession]]
    read: Callable[[FoundSession], PlainSession]


AGENTS: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent("claude", "Claude Code", claude_code.home, claude_code.find, claude_code.read),
        Agent("codex", "Codex", codex.home, codex.find, codex.read),
        Agent("opencode", "opencode", opencode.home, opencode.find, opencode.read),
        Agent("pi", "pi", pi.home, pi.find, pi.read),
        Agent("gemini", "Gemini CLI", gemini.home, gemini.find, gemini.read),
        Agent("kimi-code", "kimi-code", kimi_code.home, kimi_code.find, kimi_code.read),
    )
}


def find_sessions(
    agent: Agent, work_dir: Path | None, environ: Mapping[str, str] = os.environ
) -> list[FoundSession]:
    """Return the sessions of an agent, the newest first. It reads files, so call it in a thread.

    Args:
        agent: Whose.
        work_dir: Only those of this work folder; None for all.
        environ: The environment, which may name the agent's folder.

    Raises:
        CannotRead: They cannot be listed.
    """
    user_home = home_dir()
    if user_home is None:
        return []
    folder = agent.home(environ, user_home)
    wanted = "" if work_dir is None else os.path.abspath(work_dir)
    found = agent.find(folder, wanted)
    return sorted(found, key=lambda one: (one.updated_at, one.id), reverse=True)


def read_session(found: FoundSession) -> PlainSession:
    """Read a session of another agent. It blocks and may take seconds, so call it in a thread.

    Raises:
        CannotRead: It cannot be read at all.
    """
    plain = AGENTS[found.agent].read(found)
    plain.losses += type(plain.losses)()  # Counts of zero are removed.
    if not any(entry.kind == "said" or entry.kind == "answer" for entry in plain.entries):
        raise CannotRead("The session has no messages.")
    return plain


def losses_words(losses: Counter[str]) -> str:
    """Say in one sentence what was left out of a session; empty for nothing."""
    found = [_named(count, what) for what, count in losses.most_common() if count > 0]
    if not found:
        return ""
    rest = len(found) - _MOST_LOSSES
    named = ", ".join(found[:_MOST_LOSSES]) + (f" and {rest} other kinds" if rest > 0 else "")
    return f"Not imported: {named}."


def _named(count: int, what: str) -> str:
    return f"{count:,} {_PLURALS[what]}" if count > 1 and what in _PLURALS else counted(count, what)


def place_of(store: SessionStore, found: FoundSession) -> Path:
    """Return the place of a session among ours, imported or not."""
    return target_of(store, found.agent, found.id, Path(found.work_dir))


def import_session(
    store: SessionStore, plain: PlainSession, environ: Mapping[str, str] = os.environ
) -> WrittenSession:
    """Write a session that was read as one of ours. It blocks, so call it in a thread.

    Raises:
        CannotRead: It was imported before.
        StorageTrouble: The disk refused; nothing was made.
    """
    from kimi_tui.soul.system_prompt import build_system_prompt

    work_dir = Path(plain.found.work_dir)
    today = date.today()  # noqa: DTZ011 - the user's own day is meant
    prompt = build_system_prompt(work_dir, environ, today, no_keys=True)
    return write_session(store, plain, work_dir, prompt)
