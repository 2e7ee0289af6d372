"""Sessions of other agents, as the real programs wrote them: what is read of each, and the session that is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.foreign_sessions import (
    NAMES,
    PROJECT,
    check_opened,
    folder_of,
    found_in,
    make_database,
    read_all,
    snapshot,
    written,
)

from kimi_tui.migration.agents import AGENTS, read_session
from kimi_tui.migration.plain import CannotRead, PlainSession
from kimi_tui.session.store import SessionStore, opened
from kimi_tui.soul.record import read_stored
from kimi_tui.wire import events as ev

FACTS = {
    # messages, calls, compactions, forks, version
    "claude": [(10, 3, 1, 1, "2.1.197")],
    "codex": [(6, 3, 0, 0, "0.171.0"), (8, 0, 1, 1, "0.171.0")],
    "opencode": [(7, 1, 1, 0, "1.18.33"), (8, 3, 0, 1, "1.18.33")],
    "pi": [(10, 3, 1, 1, "3")],
    "gemini": [(10, 2, 1, 1, "")],
    "kimi-code": [(11, 5, 1, 1, "1.5")],
}
"""What each of them has; the sessions are listed by their titles."""


def facts(plain: PlainSession) -> tuple[int, int, int, int, str]:
    messages, calls, compactions = plain.counts()
    return messages, calls, compactions, len(plain.leaves()), plain.version


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_it_tells_is_read(name: str, tmp_path: Path) -> None:
    sessions = read_all(name, tmp_path)
    assert [facts(plain) for plain in sessions] == FACTS[name]
    for plain in sessions:
        assert not plain.losses
        answers = [entry for entry in plain.entries if entry.kind == "answer"]
        assert all(entry.model and entry.tokens and entry.thinking for entry in answers)
        assert all(entry.at > 1_795_000_000 for entry in plain.entries)
        assert all(call.result is not None and call.at >= 1_795_000_000 for call in plain.calls())
        assert {plain.entries[leaf].text[:4] for leaf in [plain.last]} <= {"Echo", "All "}


@pytest.mark.parametrize("name", NAMES)
async def test_it_is_a_session_of_ours_afterwards_and_the_original_stays(
    name: str, tmp_path: Path
) -> None:
    folder = folder_of(name, tmp_path)
    before = snapshot(folder)
    store, work = SessionStore(tmp_path / "data"), tmp_path / "work"
    work.mkdir()
    for found, told in zip(found_in(name, folder), FACTS[name], strict=True):
        plain = read_session(found)
        session, done = written(store, plain, work)
        lines = await check_opened(session)
        _, _, compactions, forks, _ = told
        assert done.world_lines == len(lines) == compactions + forks
        left = ["rewind"] * forks + ["compaction"] * compactions
        assert [line.reason for line in lines] == (left[::-1] if name == "claude" else left)
        with pytest.raises(CannotRead, match="already imported"):
            written(store, plain, work)
    assert snapshot(folder) == before
    assert len(store.list(work)) == len(FACTS[name])


async def test_calls_are_those_of_our_tools_and_have_their_cards_and_times(tmp_path: Path) -> None:
    (plain,) = read_all("claude", tmp_path)
    store = SessionStore(tmp_path / "data")
    session, _ = written(store, plain, tmp_path)
    async with opened(session):
        line = session.world_line(1)
        calls = [call.function for message in line.messages for call in message.tool_calls or ()]
        assert [call.name for call in calls] == ["Shell", "ReadFile", "StrReplaceFile"]
        edit = json.loads(calls[2].arguments or "")
        assert edit == {"path": f"{PROJECT}/app.py", "edit": {"old": "hi", "new": "ho"}}
        results = [
            record.event
            for record in read_stored(session).records
            if isinstance(record.event, ev.ToolResult)
        ]
        assert [one.display != () for one in results] == [False, False, True]
        assert all(one.duration_s > 0 for one in results)
        ends = [one.at for one in read_stored(session).records if isinstance(one.event, ev.TurnEnd)]
        begins = [
            one.at for one in read_stored(session).records if isinstance(one.event, ev.TurnBegin)
        ]
        # The time between an answer and the next message is nobody's turn.
        assert all(begin - end > 1 for end, begin in zip(ends, begins[1:], strict=False))
        # The summary stands for what was said before, beside the last answer, which stays.
        messages = [
            one for one in session.context.messages if not one.text.startswith("<system>CHECK")
        ]
        assert [one.role for one in messages] == ["user", "assistant", "user", "assistant"]
        assert messages[0].text.endswith("All done after the tool.")


def test_what_a_program_writes_at_this_moment_is_read_of_its_log(tmp_path: Path) -> None:
    path = make_database(tmp_path / "opencode")
    assert path.with_name("opencode.db-wal").stat().st_size > 0
    assert len(AGENTS["opencode"].find(path.parent, PROJECT)) == 2
    assert sorted(one.name for one in path.parent.iterdir()) == ["opencode.db", "opencode.db-wal"]


def test_sessions_of_another_folder_are_not_those_of_this_one(tmp_path: Path) -> None:
    for name in NAMES:
        folder = folder_of(name, tmp_path)
        assert AGENTS[name].find(folder, "/home/user") == []
        assert AGENTS[name].find(folder, "/home/user/project/below") == []
        assert len(AGENTS[name].find(folder, "")) == len(FACTS[name])


def test_a_fork_of_codex_begins_with_what_it_was_made_of(tmp_path: Path) -> None:
    folder = folder_of("codex", tmp_path)
    day = folder / "sessions" / "2026" / "11" / "29"
    whole = next(path for path in day.iterdir() if "09-42-31" in path.name)
    base = whole.stem[-36:]
    name = "0f" + base[2:]
    meta: dict[str, Any] = {"id": name, "cwd": PROJECT, "cli_version": "0.171.0"}
    meta["history_base"] = {"thread_id": base, "end_ordinal_exclusive": 25, "end_byte_offset": 0}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fork"}]}
    lines = [
        {"ordinal": 25, "type": "session_meta", "payload": meta},
        {"ordinal": 26, "type": "response_item", "payload": said},
    ]
    path = day / whole.name.replace(base, name)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = (one for one in AGENTS["codex"].find(folder, PROJECT) if one.id == name)
    plain = read_session(found)
    assert [entry.text[:5] for entry in plain.entries] == ["Hello", "Let m", "All d", "Fork"]
    assert not plain.leaves()
    # A fork of itself, as nobody wrote it, has no beginning.
    meta["history_base"]["thread_id"] = name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [entry.text for entry in read_session(found).entries] == ["Fork"]
