"""Any tree of what was said becomes a session of ours: every path of it is a line with just its messages."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.foreign_sessions import check_opened, written
from support.made_images import flat, saved

from kimi_tui.migration.plain import (
    FoundSession,
    Kind,
    PlainCall,
    PlainEntry,
    PlainSession,
    PlainTokens,
)
from kimi_tui.migration.tool_names import translated
from kimi_tui.session.session import Session
from kimi_tui.session.store import SessionStore, opened
from kimi_tui.soul.messages import internal_kind, summary_text

AT = 1_795_000_000.0


def found(name: str = "s") -> FoundSession:
    return FoundSession("pi", name, Path("/nowhere"), "/home/user/project", "title", AT)


def session_of(*entries: PlainEntry, live: int = -1) -> PlainSession:
    plain = PlainSession(found())
    for entry in entries:
        plain.add(entry)
    plain.live = live
    return plain


@st.composite
def trees(draw: st.DrawFn) -> PlainSession:
    """Any tree: messages, answers with calls that have results or not, summaries that keep entries."""
    plain = PlainSession(found())
    for number in range(draw(st.integers(1, 12))):
        near = st.integers(max(-1, number - 3), number - 1)
        parent = draw(st.just(number - 1) | near)
        kind: Kind = draw(st.sampled_from(["said", "answer", "answer", "summary"]))
        path = plain.path_to(parent)
        entry = PlainEntry(kind, parent, AT + draw(st.integers(-50, 500)), f"{kind} {number}")
        if kind == "summary":
            entry.kept = tuple(path[draw(st.integers(0, len(path))) :])
        elif kind == "answer":
            for place in range(draw(st.integers(0, 2))):
                result = draw(st.sampled_from([None, "", "result"]))
                entry.calls.append(PlainCall(f"c{place}", "anything", "{}", result))
            entry.tokens = draw(st.sampled_from([None, PlainTokens(1_000, 10, 20)]))
            entry.stopped = draw(st.booleans())
            entry.thinking = draw(st.sampled_from(["", "thought"]))
        plain.add(entry)
    plain.live = draw(st.integers(-1, len(plain.entries) - 1))
    return plain


def texts_of(plain: PlainSession, place: int) -> list[str]:
    """Return what the model sees behind an entry: since the last summary, with what that kept."""
    line: list[int] = []
    for at in plain.path_to(place):
        entry = plain.entries[at]
        # With nothing before it, a summary is a message.
        if entry.kind == "summary" and line:
            stays = [one for one in entry.kept if one in line]
            line = [at, *(one for one in stays if _is_said(plain.entries[one]))]
        else:
            line.append(at)
    return [plain.entries[at].text for at in line]


def _is_said(entry: PlainEntry) -> bool:
    return entry.kind != "summary" or entry.parent < 0


def line_texts(session: Session, number: int) -> list[str]:
    found: list[str] = []
    for message in session.world_line(number).messages:
        if message.role != "tool" and internal_kind(message) in (None, "compaction"):
            found.append(summary_text(message) or message.text)
    return found


async def check(plain: PlainSession, folder: Path) -> None:
    if all(entry.kind == "summary" for entry in plain.entries):
        return
    session, done = written(SessionStore(folder / "data"), plain, folder)
    lines = await check_opened(session)
    assert done.world_lines == len(lines)
    async with opened(session):
        stored = [line_texts(session, line.n) for line in lines]
        assert line_texts(session, 0) == texts_of(plain, plain.last)
        for leaf in plain.leaves():
            assert texts_of(plain, leaf) in stored, leaf
        times = [record["timestamp"] for record in session.record.read() if "timestamp" in record]
        assert times == sorted(times)


@given(trees())
def test_every_path_is_a_line_and_the_record_leads_to_the_current_one(plain: PlainSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(plain, Path(folder)))


async def test_a_fork_from_before_a_compaction_is_a_jump_to_the_line_that_it_left(
    tmp_path: Path,
) -> None:
    plain = session_of(
        PlainEntry("said", -1, AT, "one"),
        PlainEntry("answer", 0, AT + 1, "first"),
        PlainEntry("summary", 1, AT + 2, "all of it"),
        PlainEntry("said", 2, AT + 3, "two"),
        PlainEntry("said", 1, AT + 4, "two another way"),
    )
    session, _ = written(SessionStore(tmp_path / "data"), plain, tmp_path)
    lines = await check_opened(session)
    assert [line.reason for line in lines] == ["compaction", "jump"]
    async with opened(session):
        assert line_texts(session, 0) == ["one", "first", "two another way"]
        assert line_texts(session, 2) == ["all of it", "two"]


async def test_a_call_without_a_result_was_stopped_and_images_are_stored_once(
    tmp_path: Path,
) -> None:

    url = f"data:image/png;base64,{base64.b64encode(saved(flat(8, 8))).decode()}"
    call = PlainCall("c", "Bash", '{"command": "ls"}')
    plain = session_of(
        PlainEntry("said", -1, AT, "", images=[url, url, "data:image/png;base64,AAAA"]),
        PlainEntry("answer", 0, AT, "", calls=[call]),
    )
    session, done = written(SessionStore(tmp_path / "data"), plain, tmp_path)
    await check_opened(session)
    assert plain.losses == {"unreadable image": 1}
    assert len([*(done.folder / "images").iterdir()]) == 1
    async with opened(session):
        message = session.context.messages[-1]
        assert message.role == "tool"
        assert "stopped this call" in message.text


def test_only_calls_that_mean_the_same_get_our_names() -> None:
    assert translated("Bash", '{"command": "ls", "timeout": 5}') == (
        "Shell",
        '{"command": "ls", "timeout": 5}',
    )
    assert translated("shell", '{"command": ["bash", "-lc", "ls | wc"]}') == (
        "Shell",
        '{"command": "ls | wc"}',
    )
    assert translated("shell", '{"command": ["cat", "a b"]}')[1] == '{"command": "cat \'a b\'"}'
    for name, arguments in (
        ("Bash", "{}"),
        ("Bash", '{"command": 5}'),
        ("Bash", "not JSON"),
        ("Edit", '{"file_path": "a", "old_string": "b"}'),
        ("apply_patch", '{"input": "*** Begin Patch"}'),
        ("mcp__server__tool", "{}"),
    ):
        assert translated(name, arguments) == (name, arguments)
