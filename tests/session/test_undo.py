"""Jump, undo and redo: lines come back byte for byte, in this process and in the next, and nothing is kept twice."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kimi_tui.llm.message import user_message
from kimi_tui.session.context import Context
from kimi_tui.session.errors import AlreadyThere, NothingToUndo, UnknownCheckpoint, UnknownWorldLine
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.rotation import repaired_entries, stored_world_lines
from kimi_tui.session.schema import NewCheckpoint
from kimi_tui.session.session import Session
from kimi_tui.session.store import disk_use, prune
from kimi_tui.session.undo import journaled_append, jump, next_redo, next_undo, redo, undo


def texts(context: Context) -> list[str]:
    return [message.text for message in context.messages]


async def say(context: Context, *words: str) -> None:
    for word in words:
        await context.checkpoint(False)
        await context.append([user_message(word)])


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    session = Session(tmp_path / "session", Path("/w"))
    await session.open()
    yield session
    await session.aclose()


@pytest.fixture
def context(session: Session) -> Context:
    return session.context


async def test_undo_and_redo_of_a_rewind(context: Context) -> None:
    await say(context, "a", "b", "c")
    before = (context.folder / "context.jsonl").read_bytes()
    await context.revert_to(1, reason="rewind")
    await say(context, "d")
    other = (context.folder / "context.jsonl").read_bytes()
    done = await undo(context)
    assert (context.folder / "context.jsonl").read_bytes() == before
    assert done.entry.op == "rewind"
    assert done.reverted is not None
    assert done.reverted.messages_kept == 1
    assert done.reverted.entry.messages_dropped == 1
    with pytest.raises(NothingToUndo):
        await undo(context)
    await redo(context)
    assert (context.folder / "context.jsonl").read_bytes() == other
    assert sorted(stored_world_lines(context.folder)) == [1, 2]


async def test_undo_goes_back_through_everything_and_redo_forward(context: Context) -> None:
    await say(context, "a", "b", "c")
    seen = [texts(context)]
    await context.revert_to(2, reason="rewind")
    seen.append(texts(context))
    dmail = [NewCheckpoint(), user_message("dmail")]
    await context.revert_to(1, reason="dmail", text="dmail", then=dmail)
    seen.append(texts(context))
    summary = [NewCheckpoint(), user_message("summary")]
    await context.clear(reason="compaction", text="summary", then=summary)
    seen.append(texts(context))
    await jump(context, 1, 2)
    seen.append(texts(context))
    for state in reversed(seen[:-1]):
        await undo(context)
        assert texts(context) == state
    for state in seen[1:]:
        await redo(context)
        assert texts(context) == state
    with pytest.raises(NothingToUndo):
        next_redo(context)


async def test_undo_in_a_new_process(session: Session) -> None:
    await say(session.context, "a", "b")
    await session.context.revert_to(1, reason="rewind")
    await session.aclose()
    again = Session(session.dir, session.work_dir)
    await again.open()
    assert next_undo(again.context).op == "rewind"
    await undo(again.context)
    assert texts(again.context) == ["a", "b"]
    await again.aclose()
    third = Session(session.dir, session.work_dir)
    await third.open()
    await redo(third.context)
    assert texts(third.context) == ["a"]
    await third.aclose()


@pytest.mark.parametrize("what", ["message", "operation"])
async def test_something_new_empties_redo(context: Context, what: str) -> None:
    await say(context, "a", "b", "c")
    await context.revert_to(1, reason="rewind")
    await undo(context)
    if what == "message":
        await context.append([user_message("new")])
    else:
        await context.revert_to(2, reason="rewind")
    with pytest.raises(NothingToUndo):
        await redo(context)


async def test_a_line_that_is_the_beginning_of_a_stored_one_is_not_stored_again(
    context: Context,
) -> None:
    await say(context, "a", "b", "c")
    first = await context.revert_to(2, reason="rewind")
    second = await context.revert_to(1, reason="rewind")
    assert (first.entry.n, second.entry.n) == (1, 1)
    assert sorted(stored_world_lines(context.folder)) == [1]
    await undo(context)
    assert texts(context) == ["a", "b"]
    await undo(context)
    assert texts(context) == ["a", "b", "c"]
    assert sorted(stored_world_lines(context.folder)) == [1]


async def test_a_line_of_the_same_length_is_not_taken_for_the_stored_one(
    context: Context,
) -> None:
    await say(context, "a")
    dmail = [NewCheckpoint(), user_message("x")]
    await context.revert_to(0, reason="dmail", then=dmail)
    await undo(context)
    await context.revert_to(0, reason="dmail", then=dmail)
    left = (context.folder / "context.jsonl").read_bytes()
    await context.clear(reason="clear")
    stored = [path.read_bytes() for path in context.folder.glob("context_*.jsonl")]
    assert left in stored


async def test_jump_makes_the_bytes_of_a_line_live_and_leaves_it_there(context: Context) -> None:
    await say(context, "a", "b", "c")
    whole = (context.folder / "context.jsonl").read_bytes()
    await context.revert_to(1, reason="rewind")
    await say(context, "d")
    done = await jump(context, 1, 2)
    assert whole.startswith((context.folder / "context.jsonl").read_bytes())
    assert texts(context) == ["a", "b"]
    assert (done.messages_kept, done.entry.messages_dropped) == (1, 1)
    assert (context.folder / "context_1.jsonl").read_bytes() == whole
    await jump(context, 1)
    assert (context.folder / "context.jsonl").read_bytes() == whole
    await say(context, "e")
    assert (context.folder / "context_1.jsonl").read_bytes() == whole


async def test_jumps_to_what_is_not_there(context: Context) -> None:
    await say(context, "a", "b")
    with pytest.raises(UnknownWorldLine):
        await jump(context, 1)
    await context.revert_to(1, reason="rewind")
    with pytest.raises(UnknownCheckpoint):
        await jump(context, 1, 7)
    with pytest.raises(AlreadyThere):
        await jump(context, 1, 1)
    assert texts(context) == ["a"]
    assert len(context.journal.entries) == 1


async def test_operations_on_files_alone_are_undone_in_their_turn(context: Context) -> None:
    await say(context, "a", "b")
    await context.revert_to(1, reason="rewind")
    files = JournalEntry(op="files", snapshot_before="s1", snapshot_after="s2", paths=("x.py",))
    context.journal.record_files(files)
    entry = next_undo(context)
    assert (entry.op, entry.paths, entry.snapshot_before) == ("files", ("x.py",), "s1")
    done = await undo(context, files=JournalEntry(op="undo", paths=("x.py",)))
    assert done.reverted is None
    assert next_undo(context).op == "rewind"
    assert next_redo(context).op == "files"
    await undo(context)
    assert texts(context) == ["a", "b"]
    await redo(context)
    assert next_redo(context).op == "files"
    await redo(context)
    assert next_undo(context).op == "files"


async def test_pruned_lines_cannot_be_brought_back_and_say_so(session: Session) -> None:
    context = session.context
    await say(context, "a", "b")
    await context.revert_to(1, reason="rewind")
    await say(context, "c")
    size = (session.dir / "context_1.jsonl").stat().st_size
    assert disk_use(session.dir).world_lines == size
    with pytest.raises(UnknownWorldLine):
        prune(session, [1, 2])
    assert prune(session) == size
    assert not stored_world_lines(session.dir)
    with pytest.raises(NothingToUndo, match="was deleted"):
        await undo(context)
    done = await context.revert_to(1, reason="rewind")
    # Its number is never given again.
    assert done.entry.n == 2
    assert texts(context) == ["a"]


async def test_a_stored_line_that_lost_its_end_is_not_brought_back(session: Session) -> None:
    context = session.context
    await say(context, "a", "b")
    await context.revert_to(1, reason="rewind")
    stored = session.dir / "context_1.jsonl"
    os.truncate(stored, stored.stat().st_size - 1)
    with pytest.raises(NothingToUndo, match="World line 1"):
        next_undo(context)
    with pytest.raises(NothingToUndo):
        await undo(context)
    assert texts(context) == ["a"]


async def test_a_damaged_journal_does_not_stop_anything(session: Session) -> None:
    await say(session.context, "a", "b")
    await session.context.revert_to(1, reason="rewind")
    await session.aclose()
    (session.dir / "worldlines.jsonl").write_bytes(b'\0\0 rubbish\n{}\n[1]\n{"op":"rewind"')
    again = Session(session.dir, session.work_dir)
    assert not (await again.open()).sentences()
    (line,) = again.world_lines.list(again.context.world_line)
    assert (line.n, line.reason, line.left_by.checkpoint_id) == (1, "rewind", 1)
    assert [message.text for message in again.world_lines.read(1).messages] == ["a", "b"]
    await jump(again.context, 1)
    assert texts(again.context) == ["a", "b"]
    # The unreadable line is still there, and did not swallow the new record.
    assert b"rubbish" in (session.dir / "worldlines.jsonl").read_bytes()
    assert next_undo(again.context).op == "jump"
    await again.aclose()


@pytest.mark.parametrize("happened", [False, True])
async def test_a_kill_at_a_switch_between_lines_of_one_size(
    session: Session, *, happened: bool
) -> None:
    context, folder = session.context, session.dir
    await say(context, "a", "b")
    await context.sync()
    size = context.size_bytes
    meant = JournalEntry(op="rewind", n=1, size=size, stored=True, to_size=size, checkpoint_id=1)
    context.journal.intend(meant)
    await session.aclose()
    live, line = folder / "context.jsonl", folder / "context_1.jsonl"
    # The copy is that of a file system without hard links; of the switch only the new contents tell.
    line.write_bytes(live.read_bytes())
    if happened:
        live.write_bytes(live.read_bytes().replace(b'"content":"b"', b'"content":"c"'))
    again = Session(folder, Path("/w"))
    await again.open()
    try:
        assert texts(again.context) == ["a", "c" if happened else "b"]
        assert line.exists() == happened
        if happened:
            assert next_undo(again.context).n == 1
        else:
            with pytest.raises(NothingToUndo):
                next_undo(again.context)
    finally:
        await again.aclose()


async def test_appends_that_never_happened_are_passed_over(context: Context) -> None:
    await say(context, "a", "b")
    await context.revert_to(1, reason="rewind")
    # The program was killed before the first record, and a later operation followed.
    context.journal.intend(JournalEntry(op="dmail", size=context.size_bytes))
    files = JournalEntry(op="files", snapshot_before="s1", snapshot_after="s2", paths=("x.py",))
    context.journal.record_files(files)
    assert next_undo(context).op == "files"
    await undo(context, files=JournalEntry(op="undo", paths=("x.py",)))
    assert next_undo(context).op == "rewind"
    # One that happened is next again, as is what came before it.
    async with journaled_append(context, "dmail", "text"):
        await say(context, "c")
    assert next_undo(context).op == "dmail"
    await undo(context)
    assert texts(context) == ["a"]
    await undo(context)
    assert texts(context) == ["a", "b"]


async def test_an_operation_whose_line_is_gone_before_it_was_known_to_be_done_is_passed_over(
    context: Context,
) -> None:
    await say(context, "a", "b")
    await context.revert_to(1, reason="rewind")
    size = context.size_bytes
    context.journal.intend(JournalEntry(op="clear", n=7, size=size, stored=True, to_size=size))
    context.journal.record_files(JournalEntry(op="files", paths=("x.py",)))
    await undo(context, files=JournalEntry(op="undo", paths=("x.py",)))
    assert next_undo(context).op == "rewind"
    (context.folder / "context_7.jsonl").write_bytes(bytes(size))
    assert next_undo(context).op == "clear"


async def test_the_operations_of_a_session_that_is_not_open_are_repaired_first(
    session: Session, tmp_path: Path
) -> None:
    await say(session.context, "a", "b")
    await session.context.revert_to(1, reason="rewind")
    size = session.context.size_bytes
    meant = JournalEntry(op="clear", n=2, size=size, stored=True, to_size=size)
    session.context.journal.intend(meant)
    # This process has it open, so it repairs it itself.
    assert [entry.op for entry in repaired_entries(session.dir)] == ["rewind", "clear"]
    await session.aclose()
    assert [entry.op for entry in repaired_entries(session.dir)] == ["rewind"]
    assert [entry.op for entry in repaired_entries(session.dir)] == ["rewind"]
    assert repaired_entries(tmp_path / "gone") == ()
    assert not (tmp_path / "gone").exists()
    # Nothing is held afterwards.
    again = Session(session.dir, Path("/w"))
    await again.open()
    await again.aclose()


async def test_the_disk_use_is_told_by_purpose(session: Session) -> None:
    await say(session.context, "a")
    await session.context.sync()
    live = session.context.size_bytes
    for name, size in {
        "context_1.jsonl": 10,
        "context_2.jsonl": 20,
        "wire.jsonl": 300,
        "marks.json": 4_000,
        "files/context.jsonl": 50_000,
        "files/context_1.jsonl": 600_000,
        "files/wire.jsonl": 7_000_000,
    }.items():
        (session.dir / name).parent.mkdir(exist_ok=True)
        (session.dir / name).write_bytes(bytes(size))
    others = [session.dir / name for name in ("lock", "state.json", "worldlines.jsonl")]
    small = sum(path.stat().st_size for path in others if path.exists())
    found = disk_use(session.dir)
    assert (found.live, found.world_lines, found.record) == (live, 30, 300)
    assert found.other == 7_654_000 + small
    assert found.total == live + 30 + 300 + found.other


@pytest.mark.parametrize("number", [999_999_999, 1_000_000_000, (1 << 53) - 1])
async def test_a_number_that_no_line_can_have_hides_no_line(
    context: Context, session: Session, number: int
) -> None:
    await say(context, "a", "b")
    context.journal.note({"op": "future", "n": number, "key": "k"})
    for _ in range(2):
        await context.revert_to(1, reason="rewind")
        await say(context, "b")
    assert len(stored_world_lines(context.folder)) == 2
    await context.revert_to(1, reason="rewind")
    await say(context, "c")
    await context.revert_to(1, reason="rewind")
    assert len(stored_world_lines(context.folder)) == 4
    await session.aclose()
    await session.open()
    await undo(session.context)
    assert texts(session.context) == ["a", "c"]
