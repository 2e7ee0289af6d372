"""Working files beside the conversation: seen whoever changes them, brought back with a rewind, a D-Mail or an undo."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.chat_answers import Answer
from support.chat_server import ChatServer, call, calls, say, strict
from support.soul import PATIENCE_S, Ear, Stage, next_event, stage, until_end

from kimi_tui.llm.openai_compatible import OpenAICompatible
from kimi_tui.projection.blocks import MarkBlock, ToolBlock
from kimi_tui.projection.tool_calls import changed_words, ignored_words
from kimi_tui.projection.transcript import TranscriptModel
from kimi_tui.session.errors import StorageTrouble
from kimi_tui.session.journal import JournalEntry
from kimi_tui.session.session import Session
from kimi_tui.soul import folder_snapshots
from kimi_tui.soul.assembly import open_soul
from kimi_tui.soul.errors import FilesUnknown
from kimi_tui.soul.file_history import FileHistory
from kimi_tui.soul.folder_snapshots import ChangingTool
from kimi_tui.soul.kimisoul import KimiSoul
from kimi_tui.soul.operations import NotForked
from kimi_tui.soul.rewind_values import END, FileOutcome, FilesChoice, Target
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.wire import events as ev
from kimi_tui.workspace import scan as scan_module
from kimi_tui.workspace import tracker as tracker_module
from kimi_tui.workspace.manifest import Limits
from kimi_tui.workspace.snapshots import SnapshotLog
from kimi_tui.workspace.tracker import Tracker
from kimi_tui.workspace.tree_watch import Told


def files(on: Stage) -> dict[str, str]:
    return {
        path.relative_to(on.work).as_posix(): path.read_text()
        for path in sorted(on.work.rglob("*"))
        if path.is_file()
    }


def write(path: str, content: str):
    return call("WriteFile", {"path": path, "content": content})


def shell(command: str):
    return call("Shell", {"command": command})


async def worked(on: Stage) -> dict[str, str]:
    """Run a turn that edits, creates and deletes, by tool and by command; return the files before it."""
    (on.work / "edited").write_text("one\ntwo\nthree\n")
    (on.work / "gone").write_text("bye\n")
    before = files(on)
    await on.soul.files_ready()
    on.server.script(
        write("edited", "one\n2\nthree\nfour\n"),
        shell("rm gone; mkdir -p sub; echo made > sub/new"),
        say("done"),
    )
    await on.soul.run("work")
    return before


@pytest.mark.exhaustive
async def test_a_rewind_brings_back_what_tools_and_commands_changed(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        after = files(on)
        outcome = await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == before
        assert outcome.files == (
            FileOutcome("edited", "restore"),
            FileOutcome("gone", "create"),
            FileOutcome("sub/new", "delete"),
        )
        told = on.ear.of(ev.FilesRestored)[-1]
        assert (told.restored, told.deleted) == (("edited", "gone"), ("sub/new",))
        assert "2 files restored, 1 deleted" in (await on.soul.travel.undo()).text
        assert files(on) == after
        assert on.soul.session.context.messages
        assert "2 files restored, 1 deleted" in (await on.soul.travel.redo()).text
        assert files(on) == before
        assert "2 files restored, 1 deleted" in (await on.soul.travel.undo()).text
        assert files(on) == after


@pytest.mark.exhaustive
async def test_what_the_agent_changed_is_told_with_its_step(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        steps = [point.uid for point in on.soul.session.context.checkpoints]
        assert on.ear.of(ev.FilesChanged) == [
            ev.FilesChanged(steps[1], ("edited",), 2, 1, key=f"{steps[1]}:0"),
            ev.FilesChanged(steps[2], ("gone", "sub/new"), 1, 1, key=f"{steps[2]}:0"),
        ]
        await on.reopen()
        told = [record.event for record in on.soul.opened_with]
        assert [event.uid for event in told if isinstance(event, ev.FilesChanged)] == steps[1:3]


async def test_a_command_s_card_says_what_it_changed_and_what_comes_back(tmp_path: Path) -> None:
    def said(events: Iterable[ev.Event]) -> list[tuple[str, tuple[str, ...]]]:
        model = TranscriptModel()
        for event in events:
            model.apply(ev.EventRecord(0, 0.0, event))
        cards = [one for one in model.blocks if isinstance(one, ToolBlock)]
        return [(changed_words(one), one.changed) for one in cards]

    async with stage(tmp_path, file_limits=Limits(max_file_bytes=10)) as on:
        await on.soul.files_ready()
        commands = ("echo 1 > a; echo 2 > b", "true")
        twice = calls([("Shell", {"command": command}) for command in commands])
        on.server.script(twice, shell("echo more than ten > b; rm a"), say("done"))
        await on.soul.run("go")
        told = [
            ("2 files changed, can be restored", ("a", "b")),
            ("", ()),
            ("2 files changed, 1 of them cannot be restored (b)", ("a", "b")),
        ]
        assert said(on.ear.events) == told
        await on.reopen()
        assert said(one.event for one in on.soul.opened_with) == told


async def test_a_new_cache_is_no_loss_and_an_ignored_file_that_goes_is_one(tmp_path: Path) -> None:
    def card(on: Stage) -> ToolBlock:
        model = TranscriptModel()
        for event in on.ear.events:
            model.apply(ev.EventRecord(0, 0.0, event))
        return [one for one in model.blocks if isinstance(one, ToolBlock)][-1]

    async with stage(tmp_path) as on:
        (on.work / ".gitignore").write_text("__pycache__/\n*.log\nout/\n")
        (on.work / "out.txt").write_text("1\n")
        await on.soul.files_ready()
        on.server.script(shell("mkdir __pycache__; echo 1 > __pycache__/a.pyc"), say("done"))
        await on.soul.run("make a cache")
        made = card(on)
        assert changed_words(made) == ""
        assert ignored_words(made) == "A rewind does not delete new ignored files: __pycache__"
        on.server.script(shell("rm -r __pycache__; echo 2 > x.log; echo 2 > out.txt"), say("done"))
        await on.soul.run("remove it")
        made = card(on)
        assert changed_words(made) == "2 files changed, 1 of them cannot be restored (__pycache__)"
        assert ignored_words(made).endswith(": x.log")
        # What was kept, and is ignored from now on, is no cache.
        on.server.script(shell("mkdir kept; echo 1 > kept/a"), say("done"))
        await on.soul.run("more")
        on.server.script(shell("echo kept/ >> .gitignore"), say("done"))
        await on.soul.run("ignore it")
        assert "(kept)" in changed_words(card(on))


@pytest.mark.exhaustive
async def test_files_stay_where_they_are_not_asked_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        after = files(on)
        assert (await on.soul.travel.rewind(Target(0))).files == ()
        assert files(on) == after
        await on.soul.travel.undo()
        assert files(on) == after


@pytest.mark.exhaustive
async def test_only_the_files_go_back_and_that_can_be_undone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        after = files(on)
        n_messages = len(on.soul.session.context.messages)
        await on.soul.travel.rewind(Target(2), "only")
        assert files(on) == {"edited": after["edited"], "gone": before["gone"]}
        assert len(on.soul.session.context.messages) == n_messages
        assert on.file("worldlines.jsonl")[0]["paths"] == ["gone", "sub/new"]
        await on.reopen()
        await on.soul.files_ready()
        await on.soul.travel.undo()
        assert files(on) == after


async def test_the_preview_shows_what_changed_and_what_is_not_covered(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / ".gitignore").write_text("cache/\n")
        (on.work / "cache").mkdir()
        (on.work / "cache/x").write_text("x")
        (on.work / "script").write_text("#!/bin/sh\n")
        await worked(on)
        (on.work / "script").chmod(0o700)
        (on.work / "edited").write_text("one\n2\nthree\nfour\nfive\n")
        (on.work / "picture").write_bytes(b"\0\1")
        found = (await on.soul.travel.preview(Target(0))).files
        assert found is not None
        rows = {one.path: one for one in found.files}
        assert [(one.path, one.fate, one.would) for one in found.files] == [
            ("edited", "conflict", "restore"),
            ("gone", "create", "skip"),
            ("picture", "conflict", "delete"),
            ("script", "conflict", "restore"),
            ("sub/new", "delete", "skip"),
        ]
        assert [path for path, one in rows.items() if one.only_rights] == ["script"]
        assert (rows["edited"].added, rows["edited"].removed) == (3, 1)
        assert [(row.sign, row.text) for row in rows["edited"].rows][:3] == [
            (" ", "one"),
            ("-", "two"),
            ("+", "2"),
        ]
        assert rows["sub/new"].is_new
        assert rows["gone"].is_gone
        assert not rows["picture"].is_text
        assert found.not_covered == (("cache/", "ignored"),)
        assert found.ran_commands
        assert found.reason == ""


@pytest.mark.exhaustive
async def test_conflicts_stay_unless_chosen(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        (on.work / "edited").write_text("mine\n")
        outcome = await on.soul.travel.rewind(Target(0), "restore")
        assert [one.path for one in outcome.files if one.fate == "conflict"] == ["edited"]
        assert files(on) == {**before, "edited": "mine\n"}
        await on.soul.travel.undo()
        await on.soul.travel.rewind(Target(0), "restore", chosen={"edited"})
        assert (on.work / "edited").read_text() == before["edited"]
        assert (on.work / "sub/new").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("tool", [write("a", "3\n"), shell("echo 3 > a")])
async def test_what_the_person_changed_before_a_tool_ran_is_theirs(
    tmp_path: Path, tool: Answer
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a").write_text("1\n")
        (on.work / "theirs").write_text("1\n")
        await on.soul.files_ready()
        on.server.script(write("a", "2\n"), say("done"))
        await on.soul.run("go")
        (on.work / "theirs").write_text("by hand\n")
        on.server.script(tool, say("done"))
        await on.soul.run("go on")
        assert [event.paths for event in on.ear.of(ev.FilesChanged)] == [("a",), ("a",)]
        outcome = await on.soul.travel.rewind(Target(0), "restore")
        assert [one.path for one in outcome.files if one.fate == "conflict"] == ["theirs"]
        assert files(on) == {"a": "1\n", "theirs": "by hand\n"}


async def test_what_the_person_changed_while_a_file_tool_ran_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Tracker.is_as_seen

    def and_then_by_hand(self: Tracker, paths: Iterable[str]) -> bool:
        found = real(self, paths)
        (on.work / "theirs").write_text("by hand\n")
        return found

    async with stage(tmp_path) as on:
        (on.work / "theirs").write_text("1\n")
        await on.soul.files_ready()
        monkeypatch.setattr(Tracker, "is_as_seen", and_then_by_hand)
        on.server.script(write("a", "2\n"), say("done"))
        await on.soul.run("go")
        assert [event.paths for event in on.ear.of(ev.FilesChanged)] == [("a",)]
        await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == {"theirs": "by hand\n"}


async def test_nothing_is_written_over_what_the_scan_before_could_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, n_refused = scan_module.read_whole, 0

    def failing(handle: int, size_bytes: int) -> bytes:
        nonlocal n_refused
        if n_refused == 0 and size_bytes == len("by hand\n"):
            n_refused += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(handle, size_bytes)

    async with stage(tmp_path) as on:
        (on.work / "a").write_text("1\n")
        await on.soul.files_ready()
        (on.work / "a").write_text("by hand\n")
        monkeypatch.setattr(scan_module, "read_whole", failing)
        on.server.script(write("a", "of the agent\n"), write("a", "again\n"), say("done"))
        await on.soul.run("go")
        first, second = on.ear.of(ev.ToolResult)
        assert n_refused == 1
        assert (first.is_error, second.is_error) == (True, False)
        assert first.message == (
            "a could not be read, so no snapshot has its contents. Nothing was written: try again."
        )
        await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == {"a": "by hand\n"}


async def test_what_changed_since_the_preview_is_left_alone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        await on.soul.travel.preview(Target(0))
        (on.work / "edited").write_text("typed while the preview was open\n")
        outcome = await on.soul.travel.rewind(Target(0), "restore", chosen={"edited", "gone"})
        assert [one.path for one in outcome.files if one.reason] == ["edited"]
        assert files(on)["edited"] == "typed while the preview was open\n"
        assert files(on)["gone"] == before["gone"]


@pytest.mark.exhaustive
async def test_a_jump_brings_the_files_of_another_line(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        await on.soul.travel.rewind(Target(0), "restore")
        on.server.script(write("other", "x\n"), say("done"))
        await on.soul.run("else")
        await on.soul.travel.rewind(Target(2, world_line=1), "restore")
        assert files(on) == {**before, "edited": "one\n2\nthree\nfour\n"}
        await on.soul.travel.undo()
        assert files(on) == {**before, "other": "x\n"}


async def test_all_of_a_line_comes_back_with_the_files_it_ended_with(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        after = files(on)
        await on.soul.travel.rewind(Target(0), "restore")
        (on.work / "mine").write_text("by hand\n")
        seen = await on.soul.travel.preview(Target(END, 1))
        assert seen.files is not None
        assert not seen.is_there
        # A file that only the user made does not count as the agent's.
        assert {one.path: (one.fate, one.reason) for one in seen.files.files} == {
            "edited": ("restore", ""),
            "gone": ("delete", ""),
            "mine": ("conflict", "changed outside kimi-tui"),
            "sub/new": ("create", ""),
        }
        on.ear.forget()
        outcome = await on.soul.travel.rewind(Target(END, 1), "restore")
        assert [one.path for one in outcome.files] == ["edited", "gone", "mine", "sub/new"]
        assert files(on) == {**after, "mine": "by hand\n"}
        # The files are told of on the line that is live then.
        names = on.ear.names(ev.StatusUpdate)
        assert names.index("LineChanged") < names.index("FilesRestored")
        assert outcome.tokens_after == seen.tokens_after
        assert (await on.soul.travel.preview(Target(END, 1))).is_there
        await on.soul.travel.undo()
        assert files(on) == {**before, "mine": "by hand\n"}


async def test_a_fork_brings_the_files_along_and_both_sessions_can_undo_that(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        after = files(on)
        made = await on.soul.travel.fork(Target(2), "restore")
        assert [one.path for one in made.files] == ["gone", "sub/new"]
        assert files(on) == {"edited": after["edited"], "gone": "bye\n"}
        await on.soul.aclose()
        on.session = on.store.find(made.session_id, on.work)
        await on.open()
        await on.soul.files_ready()
        assert "1 file restored, 1 deleted" in (await on.soul.travel.undo()).text
        assert files(on) == after


async def test_a_fork_that_the_disk_refuses_says_that_the_files_were_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        after = files(on)

        async def refused(*_: object) -> Session:
            raise StorageTrouble("No space left on the disk.")

        monkeypatch.setattr(on.session, "fork", refused)
        with pytest.raises(StorageTrouble):
            await on.soul.travel.fork(Target(2))
        assert files(on) == after
        with pytest.raises(NotForked, match="its files were restored; /undo reverses that"):
            await on.soul.travel.fork(Target(2), "restore")
        assert files(on) != after
        await on.soul.travel.undo()
        assert files(on) == after


async def test_a_letter_of_the_user_brings_the_files_back_and_says_so(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        after = files(on)
        (on.work / "edited").write_text("by hand\n")
        await on.soul.travel.preview(Target(1))
        outcome = await on.soul.dmails.send(Target(1), "other words", "restore", ["edited", "gone"])
        assert [(one.path, one.fate) for one in outcome.files] == [
            ("edited", "restore"),
            ("gone", "create"),
        ]
        assert files(on) == {**before, "sub/new": after["sub/new"]}
        (reverted,) = on.ear.of(ev.ContextReverted)
        assert "Restored: `edited`, `gone`." in reverted.facts
        assert "`sub/new`" in reverted.facts.partition("and not restored")[2]
        assert "Kept" not in reverted.facts
        await on.soul.travel.undo()
        assert files(on) == {**after, "edited": "by hand\n"}


@pytest.mark.sample
@pytest.mark.parametrize("files", ["restore", "keep"])
async def test_an_undo_names_the_files_that_its_steps_leave(
    tmp_path: Path, files: FilesChoice
) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        await on.soul.travel.rewind(Target(2), files)
        on.server.script(shell("echo more >made.txt"), say("on"))
        await on.soul.resume()
        (on.work / "of the user").write_text("not theirs\n")
        toll = await on.soul.travel.preview_undo()
        assert toll.files is not None
        assert toll.files.goes_along is (files == "restore")
        assert toll.files.is_effect is (files == "restore")
        stays = [(one.path, one.added) for one in toll.files.files if one.fate == "skip"]
        assert stays == [("made.txt", 1)]
        said = (await on.soul.travel.undo()).text
        words = "2 steps since then stay as world line 2; made.txt stays as it is"
        assert f"{words}." in said
        assert (on.work / "made.txt").is_file()
        assert on.ear.of(ev.LineChanged)[-1].left.files == ("made.txt",)
        transcript = TranscriptModel()
        for record in await on.soul.history():
            transcript.apply(record)
        marks = [block.text for block in transcript.blocks if isinstance(block, MarkBlock)]
        assert f"Undo: {words}" in marks


async def test_an_undo_names_what_goes_with_it_before_and_after(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        await on.soul.travel.rewind(Target(2), "restore")
        assert (await on.soul.travel.preview_undo()).messages == 0
        on.server.script(shell("true"), say("on"), say("and on"))
        await on.soul.resume()
        await on.soul.run("more")
        toll = await on.soul.travel.preview_undo()
        assert (toll.label, toll.steps, toll.turns, toll.left_as) == ("the rewind to #2", 4, 1, 2)
        assert toll.files is not None
        assert toll.files.goes_along
        fates = {one.path: one.fate for one in toll.files.files}
        assert fates == {"gone": "delete", "sub/new": "create"}
        # The figures are those of what the undo does: lines of a file that it creates come, those of one that it deletes go.
        figures = {one.path: (one.added, one.removed) for one in toll.files.files}
        assert figures == {"gone": (0, 1), "sub/new": (1, 0)}
        signs = {one.path: {row.sign for row in one.rows} for one in toll.files.files}
        assert signs == {"gone": {"-"}, "sub/new": {"+"}}
        assert [one.text for one in toll.dropped] == ["and on", "more", "on", "true"]
        said = (await on.soul.travel.undo()).text
        assert said == (
            "Undid the rewind to #2. 4 steps since then stay as world line 2. 1 file restored, 1 deleted."
        )
        transcript = TranscriptModel()
        for record in await on.soul.history():
            transcript.apply(record)

        def marks() -> list[str]:
            return [block.text for block in transcript.blocks if isinstance(block, MarkBlock)]

        stays = [
            "Undo: 4 steps since then stay as world line 2",
            "1 file restored, 1 deleted (gone)",
        ]
        assert marks() == stays
        # A row about an undo is gone once that is undone, however often it goes to and fro.
        for _ in range(2):
            heard = on.soul.wire.subscribe()
            await on.soul.travel.redo()
            await on.soul.travel.undo()
            for record in heard.drain():
                transcript.apply(record)
            assert marks() == stays


async def test_what_is_said_of_files_alone_goes_when_that_is_undone(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        transcript = TranscriptModel()
        heard = on.soul.wire.subscribe()

        def marks() -> list[str]:
            for record in heard.drain():
                transcript.apply(record)
            return [block.text for block in transcript.blocks if isinstance(block, MarkBlock)]

        await on.soul.travel.rewind(Target(2), "only")
        assert marks() == ["1 file restored, 1 deleted (sub/new)"]
        for step, gone in (
            (on.soul.travel.undo, "gone"),
            (on.soul.travel.redo, "sub/new"),
            (on.soul.travel.undo, "gone"),
        ):
            await step()
            assert marks() == [f"1 file restored, 1 deleted ({gone})"]


async def test_a_home_folder_is_left_alone_and_says_so(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "work")}
    async with stage(tmp_path, environ=environ) as on:
        on.server.script(write("a", "1\n"), say("done"))
        await on.soul.run("go")
        assert files(on) == {"a": "1\n"}
        assert not (on.soul.session.dir / "files").exists()
        assert [n.text for n in on.ear.of(ev.Notice) if "home folder" in n.text]
        found = (await on.soul.travel.preview(Target(0))).files
        assert found is not None
        assert "home folder" in found.reason
        with pytest.raises(FilesUnknown, match="home folder"):
            await on.soul.travel.rewind(Target(0), "restore")
        assert on.soul.session.context.messages, "nothing changed"
        await on.soul.travel.rewind(Target(0))


async def cut_off_in_a_rewind(soul: KimiSoul) -> None:
    """The program ends when the conversation has gone back to its beginning, and the files have not."""
    restoring = soul._conversation.files
    context = soul.session.context
    prepared = await restoring.prepare(await restoring.plan(context.checkpoints[0]))
    async with restoring.journaled(prepared, "rewind") as entry:
        await context.revert_to(0, reason="rewind", files=entry)


async def test_a_session_opened_elsewhere_touches_nothing_there(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        await cut_off_in_a_rewind(on.soul)
        on.work = tmp_path / "elsewhere"
        on.work.mkdir()
        on.session = on.soul.session
        await on.soul.aclose()
        on.session = Session(on.session.dir, on.work)
        await on.open()
        await on.soul.files_ready()
        assert list(on.work.iterdir()) == []
        found = (
            (await on.soul.travel.preview(Target(0))).files
            if on.session.context.checkpoints
            else None
        )
        assert found is None or str(tmp_path / "work") in found.reason


async def test_limits_are_told_once_and_in_the_preview(tmp_path: Path) -> None:
    async with stage(tmp_path, file_limits=Limits(max_files=3)) as on:
        for number in range(5):
            (on.work / f"f{number}").write_text("x")
        await on.soul.files_ready()
        on.server.script(write("f0", "1\n"), write("f0", "2\n"), say("done"))
        await on.soul.run("go")
        assert len([n for n in on.ear.of(ev.Notice) if "3 files" in n.text]) == 1
        found = (await on.soul.travel.preview(Target(0))).files
        assert found is not None
        assert "3 files" in found.remarks[0]
        assert [one.path for one in found.restorable] == ["f0"]
        await on.soul.travel.rewind(Target(0), "restore")
        assert files(on)["f0"] == "x"


async def test_a_session_in_which_nothing_was_said_leaves_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a").write_text("1")
        await on.soul.files_ready()
        folder = on.soul.session.dir
        assert (folder / "files").exists()
        await on.soul.aclose()
        assert not folder.exists()


# -- the first look ------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Holds the first look back until it is set."""
    opened = threading.Event()
    real = Tracker.first_scan

    def first_scan(self: Tracker) -> bool:
        assert opened.wait(20)
        return real(self)

    monkeypatch.setattr(Tracker, "first_scan", first_scan)
    return opened


async def test_a_file_tool_does_not_wait_for_the_first_look(
    tmp_path: Path, gate: threading.Event
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a").write_text("old\n")
        on.server.script(write("a", "new\n"), write("b", "new\n"), say("done"))
        await on.soul.run("go")
        found = (await on.soul.travel.preview(Target(0))).files
        assert found is not None
        assert "not finished" in found.reason
        heard = on.soul.wire.subscribe()
        gate.set()
        await on.soul.files_ready()
        # Somebody had to do without it, so its end is news.
        await next_event(heard, ev.Notice, lambda one: "first file snapshot" in one.text)
        await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == {"a": "old\n"}


async def test_a_command_waits_for_the_first_look(tmp_path: Path, gate: threading.Event) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a").write_text("old\n")
        on.server.script(shell("echo new > a"), say("done"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        await next_event(heard, ev.ToolCall)
        await asyncio.sleep(0.1)
        assert (on.work / "a").read_text() == "old\n"
        gate.set()
        await turn
        assert (on.work / "a").read_text() == "new\n"
        await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == {"a": "old\n"}


async def test_a_command_that_waited_long_enough_runs_and_the_snapshot_says_so(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimi_tui.soul.folder_snapshots._PATIENCE_S", 0.05)
    async with stage(tmp_path) as on:
        on.server.script(shell("echo new > a"), say("done"))
        await on.soul.run("go")
        folder = on.soul.folder
        assert folder.patience_s == 0, "the next command does not wait again"
        monkeypatch.setattr("kimi_tui.soul.folder_snapshots._TOLD_EVERY_S", 0.01)
        told = folder.progress()
        assert 0 <= await anext(told) <= 1
        gate.set()
        assert all([0 <= part <= 1 async for part in told])
        await on.soul.files_ready()
        found = (await on.soul.travel.preview(Target(0))).files
        assert found is not None
        assert "A command ran before" in found.remarks[0]


# -- crashes -------------------------------------------------------------------------------------


async def test_a_restore_cut_off_after_the_journal_is_finished_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        before = await worked(on)
        await cut_off_in_a_rewind(on.soul)
        os.unlink(on.work / "sub/new")
        await on.reopen()
        await on.soul.files_ready()
        assert files(on) == before
        assert "2 files restored, 1 deleted" in (await on.soul.travel.undo()).text
        assert "sub/new" in files(on)


HOSTILE_PATHS = (
    "../outside",
    "sub/../../outside",
    "/outside",
    ".git/hooks/post-checkout",
    ".GIT/config",
    ".git",
)


async def test_a_crafted_session_writes_nothing_but_what_a_scan_finds(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    async with stage(tmp_path) as on:
        await worked(on)
        await cut_off_in_a_rewind(on.soul)
        intent = on.soul.session.dir / "files/restore.json"
        good = intent.read_text()
        row = next(row for row in json.loads(good)["changes"] if row[3])
        blob = row[3][1]
        crafted = [[path, "create", None, ["file", blob, 0o4777, 4], ""] for path in HOSTILE_PATHS]
        crafted += [
            ["x", "create", None, ["file", f"../../outside/{blob}", 0, 4], ""],
            ["sub", "create", None, ["file", blob[:20], 0, 4], ""],
        ]
        after = files(on)
        for one in crafted:
            intent.write_text(json.dumps({**json.loads(good), "changes": [one]}))
            await on.reopen()
            await on.soul.files_ready()
            assert files(on) == after, one
        assert (tmp_path / "outside").read_text() == "precious"
        # Nor is it believed of a snapshot.
        log = on.soul.session.dir / "files/snapshots-2.jsonl"
        with log.open("a") as file:
            for path in HOSTILE_PATHS:
                changed = {path: ["file", blob, 0o644, 4]}
                file.write(json.dumps({"id": path, "at": 1.0, "by": "agent", "changed": changed}))
                file.write("\n")
        read = SnapshotLog(log)
        assert not any(read.get(path) for path in HOSTILE_PATHS)
        assert read.latest.keys().isdisjoint(HOSTILE_PATHS)


@pytest.mark.sample
@pytest.mark.parametrize("name", ["files", "files/store"])
async def test_a_link_in_the_place_of_the_snapshots_is_not_followed(
    tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for held in ("mine.tmp", "restore.json"):
        (elsewhere / held).write_text("precious")
    async with stage(tmp_path) as on:
        await worked(on)
        place = on.soul.session.dir / name
        place.rename(place.with_name("away"))
        place.symlink_to(elsewhere)
        await on.reopen()
        heard = on.soul.wire.subscribe()
        await on.soul.files_ready()
        on.server.script(write("edited", "anew"), say("Done."))
        await on.soul.run("go on")
        assert await next_event(heard, ev.Notice, lambda one: "is a link" in one.text)
    assert {held.name for held in elsewhere.iterdir()} == {"mine.tmp", "restore.json"}


@pytest.mark.sample
@pytest.mark.parametrize(
    "shared", ["", "files", "files/restore.json", "../../../restore.key", "changed", "plan"]
)
async def test_what_others_may_have_written_is_shown_and_not_done(
    tmp_path: Path, shared: str
) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        await cut_off_in_a_rewind(on.soul)
        after = files(on)
        why = "other users can write"
        if shared == "plan":
            on.options["mode"], why = "plan", "plan mode"
        elif shared == "changed":
            # An unpacked session looks like this: its owner is this account, and nobody else can write there.
            intent = on.soul.session.dir / "files/restore.json"
            record = json.loads(intent.read_text())
            intent.write_text(json.dumps({**record, "before": record["before"] + "0"}))
        else:
            (on.soul.session.dir / shared).chmod(0o777)
        await on.reopen()
        heard = on.soul.wire.subscribe()
        told = await next_event(heard, ev.Notice, lambda one: why in one.text)
        assert "edited, gone, sub/new" in told.text
        assert files(on) == after


async def test_what_is_finished_at_the_next_start_says_what_was_not(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        await cut_off_in_a_rewind(on.soul)
        (on.work / "edited").write_text("by hand\n")
        await on.reopen()
        heard = on.soul.wire.subscribe()
        told = await next_event(heard, ev.Notice, lambda one: "kimi-tui exited" in one.text)
        assert told.text.endswith("; the remaining files have now been restored.")
        said = [one.text for one in on.ear.of(ev.Notice)]
        assert any("Not restored: edited (changed during the restore" in text for text in said)
        assert files(on) == {"edited": "by hand\n", "gone": "bye\n"}


@pytest.mark.exhaustive
async def test_a_restore_cut_off_before_the_journal_never_was(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        after = files(on)
        restoring = on.soul._conversation.files
        await restoring.prepare(await restoring.plan(on.soul.session.context.checkpoints[0]))
        await on.reopen()
        await on.soul.files_ready()
        assert files(on) == after
        assert not (on.soul.session.dir / "files/restore.json").exists()


async def test_where_the_conversation_cannot_go_back_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        await worked(on)
        after = files(on)

        async def refuse(*args: object, **kwargs: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(on.soul.session.context, "revert_to", refuse)
        with pytest.raises(OSError, match="disk full"):
            await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == after
        assert not (on.soul.session.dir / "files/restore.json").exists()


async def test_a_failing_store_is_told_and_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()

        def refuse(*args: object, **kwargs: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tracker_module.SnapshotLog, "add", refuse)
        on.server.script(write("a", "1\n"), say("done"))
        await on.soul.run("go")
        assert files(on) == {"a": "1\n"}
        assert [n for n in on.ear.of(ev.Notice) if "No space left" in n.text]
        monkeypatch.undo()
        await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == {"a": "1\n"}, "who changed it is not known any more: it stays"


async def test_a_stopped_command_is_looked_at_too(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a").write_text("old\n")
        await on.soul.files_ready()
        on.server.script(shell("echo new > a; echo go; sleep 30"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("go")))
        await next_event(heard, ev.ToolOutput)
        await on.soul.interrupt()
        await turn
        await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == {"a": "old\n"}


@pytest.mark.exhaustive
async def test_what_a_stopped_command_writes_before_its_end_is_the_agent_s(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        late = "echo 1 > asked; sleep 1; echo 1 > late; exit"
        on.server.script(shell(f"trap '{late}' TERM; echo go; while :; do sleep 0.05; done"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("go")))
        await next_event(heard, ev.ToolOutput)
        await on.soul.interrupt()
        await turn
        # The turn ends before the command does, whose changes are then told with its call.
        assert "late" not in files(on)
        (result,) = on.ear.of(ev.ToolResult)
        told = await next_event(heard, ev.FilesChanged)
        assert (told.key, told.paths) == (result.key, ("asked", "late"))
        assert [one.by for one in on.soul.folder.tracker.log.snapshots[1:]] == ["agent"]


# -- D-Mails -------------------------------------------------------------------------------------


def mail(message: str, to: int):
    return call("SendDMail", {"message": message, "checkpoint_id": to, "restore_files": True})


async def test_a_dmail_brings_the_files_back_after_a_yes_that_names_each(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        (on.work / "a").write_text("old\n")
        (on.work / "theirs").write_text("old\n")
        await on.soul.files_ready()
        on.server.script(
            calls(
                [
                    ("WriteFile", {"path": "a", "content": "new\n"}),
                    ("WriteFile", {"path": "theirs", "content": "new\n"}),
                ]
            ),
            mail("try another way", 1),
            say("done"),
        )
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        for _ in range(2):
            asked = await next_event(heard, ev.ApprovalRequest)
            on.soul.answer(asked.id, "once")
        await next_event(heard, ev.ToolCall, lambda event: event.name == "SendDMail")
        (on.work / "theirs").write_text("by hand\n")
        asked = await next_event(heard, ev.ApprovalRequest)
        assert asked.question == "Restore the files of checkpoint #1?"
        assert "restore  a" in asked.detail
        assert "keep  theirs (also changed outside kimi-tui)" in asked.detail
        assert [getattr(block, "path", "") for block in asked.display] == ["a"]
        on.soul.answer(asked.id, "once")
        await turn
        assert files(on) == {"a": "old\n", "theirs": "by hand\n"}
        facts = on.ear.of(ev.ContextReverted)[0].facts
        assert "Restored: `a`" in facts
        assert "also changed outside kimi-tui: `theirs`" in facts
        assert "`a` (1 edit)" not in facts
        await on.soul.travel.undo()
        assert files(on) == {"a": "new\n", "theirs": "by hand\n"}


@pytest.mark.exhaustive
async def test_a_letter_names_what_commands_changed_and_leaves_what_others_did(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        for name in ("a", "kept", "theirs"):
            (on.work / name).write_text("old\n")
        await on.soul.files_ready()
        to_past = {"message": "again", "checkpoint_id": 1}
        on.server.script(
            calls([("WriteFile", {"path": str(on.work / "a"), "content": "new\n"})]),
            shell("echo new > theirs; echo made > made; touch kept"),
            call("SendDMail", to_past),
            say("done"),
        )
        await on.soul.run("go")
        facts = on.ear.of(ev.ContextReverted)[0].facts
        assert "`a` (1 edit), `made`, `theirs`." in facts
        on.server.script(shell("echo two > theirs"), say("done"))
        await on.soul.run("and this")
        (on.work / "theirs").write_text("by hand\n")
        on.server.script(
            shell("echo more >> theirs; echo newest > a"),
            call("SendDMail", {**to_past, "restore_files": True}),
            say("done"),
        )
        await on.soul.run("go on")
        # The agent changed it after the person; that does not make it the agent's to take back.
        assert (on.work / "theirs").read_text() == "by hand\nmore\n"
        assert (on.work / "a").read_text() == "new\n"
        assert "also changed outside kimi-tui: `theirs`" in on.ear.of(ev.ContextReverted)[1].facts


async def test_a_dmail_goes_without_the_files_where_the_person_says_no(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="edits") as on:
        await on.soul.files_ready()
        on.server.script(write("a", "new\n"), mail("again", 1), say("done"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("go"))
        asked = await next_event(heard, ev.ApprovalRequest)
        on.soul.answer(asked.id, "no", "keep them")
        await turn
        assert files(on) == {"a": "new\n"}
        facts = on.ear.of(ev.ContextReverted)[0].facts
        assert "The user said no: keep them" in facts
        assert on.ear.of(ev.FilesRestored) == []


async def test_a_protected_file_is_asked_for_even_where_all_is_allowed(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="all") as on:
        (on.work / "Makefile").write_text("all:\n")
        await on.soul.files_ready()
        on.server.script(shell("echo x >> Makefile"), mail("again", 1), say("done"))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(until_end(on.soul.run("go")))
        asked = await next_event(heard, ev.ApprovalRequest)
        assert "Makefile" in asked.detail
        await on.soul.interrupt()
        await turn
        assert on.ear.of(ev.ContextReverted) == []
        assert files(on) == {"Makefile": "all:\nx\n"}


@pytest.mark.parametrize("seen", [True, False], ids=["after the first look", "before it"])
async def test_a_work_folder_that_is_gone_is_told_once(tmp_path: Path, seen: bool) -> None:
    async with stage(tmp_path) as on:
        if seen:
            await on.soul.files_ready()
            on.work.rmdir()
        else:
            await on.soul.aclose()
            on.work.rmdir()
            await on.open()
        on.server.script(shell("true"), say("one"), write("a.txt", "x"), say("two"))
        await on.soul.run("first")
        await on.soul.run("second")
        await on.soul.files_ready()
        told = [one.text for one in on.ear.notices()]
        assert told == ["The files cannot be saved for a rewind: the work folder is gone."]
        shown = await on.soul.travel.preview(Target(0))
        assert shown.files is not None
        assert shown.files.reason


async def test_a_first_look_that_fails_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(log: SnapshotLog, root: str, *, moved: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SnapshotLog, "begin", refuse)
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(shell("true"), say("one"))
        await on.soul.run("first")
        await on.soul.files_ready()
        assert [one.text for one in on.ear.of(ev.Notice)] == [
            "The files cannot be saved for a rewind: No space left on device."
        ]


async def test_the_end_does_not_wait_for_a_look_that_never_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, back = threading.Event(), threading.Event()

    def look(self: Tracker, *args: object, **options: object) -> None:
        stuck.set()
        back.wait()

    try:
        async with stage(tmp_path) as on:
            await on.soul.files_ready()
            monkeypatch.setattr(Tracker, "take_snapshot", look)
            monkeypatch.setattr(folder_snapshots, "_END_PATIENCE_S", 0.02)
            on.server.script(shell("echo hi > new"), say("done"))
            turn = asyncio.create_task(until_end(on.soul.run("work")))
            await asyncio.to_thread(stuck.wait)
            looking = [one for one in threading.enumerate() if one.name == "files"]
            async with asyncio.timeout(PATIENCE_S):
                await on.soul.aclose()
                await turn
            # Nor does the interpreter, which would join it otherwise.
            assert looking
            assert all(one.is_alive() and one.daemon for one in looking)
    finally:
        back.set()


async def test_a_fault_while_the_files_are_looked_at_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(self: Tracker, *args: object) -> None:
        raise RuntimeError("a fault of ours")

    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        heard = on.soul.wire.subscribe()
        monkeypatch.setattr(Tracker, "mark", look)
        on.server.script(say("done"))
        await on.soul.run("work")
        told = await next_event(heard, ev.Notice)
        assert told.level == "error"
        assert "RuntimeError" in told.text


@pytest.mark.parametrize("old_s", [0.0, 60.0])
async def test_a_scan_that_was_made_long_before_a_command_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old_s: float
) -> None:
    monkeypatch.setattr("kimi_tui.soul.file_history._OLD_S", old_s)
    scanned = asyncio.Event()
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(say("hi"))
        await on.soul.run("work")
        uid = on.soul.session.context.checkpoints[-1].uid
        history = on.soul._conversation.files  # pyright: ignore[reportPrivateUsage]
        take = history.folder.take

        async def taken(*given: Any, **options: Any) -> Any:
            found = await take(*given, **options)
            scanned.set()
            return found

        monkeypatch.setattr(history.folder, "take", taken)
        disk = asyncio.get_running_loop().create_future()
        starting = asyncio.create_task(history.before_change(None, disk))
        await scanned.wait()
        (on.work / "theirs").write_text("by hand\n")
        assert not history.folder.under_way
        disk.set_result(None)
        command = await starting
        assert history.folder.under_way == [command]
        (on.work / "a").write_text("by the command\n")
        history.after_change(command, uid, f"{uid}:0")
        await history.settled()
        theirs = [] if old_s == 0 else ["theirs"]
        assert [event.paths for event in on.ear.of(ev.FilesChanged)] == [("a", *theirs)]


async def test_what_others_changed_before_a_write_is_theirs_and_a_write_is_scanned_behind_it(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a").write_text("1\n")
        await on.soul.files_ready()
        on.server.script(say("hi"))
        await on.soul.run("work")
        uid = on.soul.session.context.checkpoints[-1].uid
        history, folder = on.soul._conversation.files, on.soul.folder
        log = folder.tracker.log

        async def written(work: Callable[[], object] | None) -> list[tuple[str, list[str]]]:
            n_before = len(log)
            change = await history.before_change(["a"])
            try:
                if work is not None:
                    await history.write(change, work)
                    # The scan needs no further word from the event loop.
                    await folder.run(lambda: None)
                    assert len(log) > n_before
            finally:
                history.after_change(change, uid, f"{uid}:0")
                await history.settled()
                assert not folder.under_way
                assert not folder._unseen
            return [(one.by, sorted(one.changed)) for one in log.snapshots[n_before:]]

        # The first scan may have come before the file was written.
        history.after_change(await history.before_change(None), uid, "none:0")
        await history.settled()
        assert await written(lambda: (on.work / "a").write_text("2\n")) == [("agent", ["a"])]
        (on.work / "a").write_text("by hand\n")
        assert await written(lambda: (on.work / "a").write_text("3\n")) == [
            ("other", ["a"]),
            ("agent", ["a"]),
        ]
        # A tool that got no further than to its question changed nothing, and one that was refused did not change the file either.
        (on.work / "a").write_text("by hand again\n")
        assert await written(None) == []
        n_before = len(log)

        def refused() -> None:
            raise ToolProblem("changed on disk")

        with pytest.raises(ToolProblem):
            await written(refused)
        assert [one.by for one in log.snapshots[n_before:]] == ["other"]

        def refused_too() -> None:
            (on.work / "a").write_text("by hand meanwhile\n")
            raise ToolProblem("changed on disk")

        with pytest.raises(ToolProblem):
            await written(refused_too)
        await folder.take("other")
        assert [one.by for one in log.snapshots[n_before:]] == ["other", "other"]
        # No event tells of what a program elsewhere writes through a mapping.
        (on.work / "a").write_text("by hand, untold\n")
        assert folder.tracker._watch is not None
        await folder.run(folder.tracker._watch.tell, Told())
        assert await written(lambda: (on.work / "a").write_text("4\n")) == [
            ("other", ["a"]),
            ("agent", ["a"]),
        ]
        n_before = len(log) - 1
        # What another agent's running tool changed is not somebody else's, and is kept before it is overwritten.
        beside = FileHistory(on.session, on.soul.wire, folder, "explorer")
        other = await beside.before_change(None)
        (on.work / "a").write_text("by the other agent\n")
        change = await history.before_change(["a"])
        await history.write(change, lambda: (on.work / "a").write_text("4\n"))
        history.after_change(change, uid, f"{uid}:0")
        await history.settled()
        assert [(one.by, one.author) for one in log.snapshots[n_before:]] == [
            ("agent", ""),
            ("agent", "explorer"),
            ("agent", ""),
        ]
        on.ear.forget()
        beside.after_change(other, uid, f"{uid}:1")
        await history.settled()
        assert [event.paths for event in on.ear.of(ev.FilesChanged)] == [("a",)]


async def test_what_a_running_tool_changes_is_its_own_whoever_looks(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(say("hi"))
        await on.soul.run("work")
        point = on.soul.session.context.checkpoints[-1]
        history, folder = on.soul._conversation.files, on.soul.folder
        beside = FileHistory(on.session, on.soul.wire, folder, "explorer")
        log = folder.tracker.log
        # The first scan may have come before the file was written.
        await folder.take("other")
        n_before = len(log)
        looks: dict[str, Callable[[], Any]] = {
            "changes": lambda: history.changes(None),
            "plan": lambda: history.preview(point, after=False, ran_commands=False, binding=False),
            "lines": lambda: history.divergence([point.uid], [point.uid]),
            "job": lambda: history._scan("job"),
            "check": lambda: folder.take("other"),
            "before": lambda: beside.before_change(None),
        }
        command = await beside.before_change(None)
        tools: list[ChangingTool] = []
        for name, look in looks.items():
            (on.work / name).write_text("by the command\n")
            found = await look()
            tools += [found] if isinstance(found, ChangingTool) else []
        on.ear.forget()
        (on.work / "last").write_text("by the command\n")
        beside.after_change(command, point.uid, "command:0")
        # What another agent asks for takes nothing from the scan behind a tool, although nobody has waited for that yet.
        history.scan_ahead()
        for tool in tools:
            beside.after_change(tool, point.uid, "tool:0")
        await history.settled()
        made = log.snapshots[n_before:]
        assert {(one.by, one.author) for one in made} == {("agent", "explorer")}
        assert {path for one in made for path in one.changed} == {*looks, "last"}
        (told, *_) = on.ear.of(ev.FilesChanged)
        assert (told.key, told.paths) == ("command:0", tuple(sorted({*looks, "last"})))
        # What a tool can change is its files alone, and before it writes not even these.
        change = await history.before_change(["a"])
        (on.work / "a").write_text("by hand\n")
        (on.work / "b").write_text("by hand\n")
        await history.changes(None)
        assert (log.snapshots[-1].by, {*log.snapshots[-1].changed}) == ("other", {"a", "b"})
        history.after_change(change, point.uid, "edit:0")
        assert not folder._unseen


async def test_a_write_that_waits_when_its_call_is_stopped_never_happens(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(write("a", "1\n"))
        heard = on.soul.wire.subscribe()
        busy = threading.Event()
        writing, real = asyncio.Event(), on.soul.folder.write

        def asked(*args: Any, **options: Any) -> Any:
            writing.set()
            return real(*args, **options)

        on.soul.folder.write = asked  # pyright: ignore[reportAttributeAccessIssue]
        turn = asyncio.create_task(until_end(on.soul.run("work")))
        waits = asyncio.create_task(on.soul.folder.run(busy.wait))
        await writing.wait()
        stopping = asyncio.create_task(on.soul.interrupt())
        result = await next_event(heard, ev.ToolResult)
        assert result.interrupted
        busy.set()
        await asyncio.gather(waits, turn, stopping)
        await on.soul.folder.settled()
        assert files(on) == {}


async def test_what_the_user_changes_while_a_question_is_asked_again_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        approval, history = on.soul._approval, on.soul._conversation.files
        before, asked = history.before_change, list[str]()

        async def begun(*args: Any) -> ChangingTool:
            change = await before(*args)
            if len(asked) == 1:
                approval.set_mode("edits")
            return change

        async def ask(question: Any, **_: Any) -> str:
            asked.append(question.detail)
            if len(asked) == 2:
                assert not on.soul.folder.under_way
                await history.settled()
                (on.work / "theirs").write_text("by hand\n")
            return ""

        monkeypatch.setattr(history, "before_change", begun)
        monkeypatch.setattr(approval, "ask", ask)
        on.server.script(shell("echo 1 > a"), say("done"))
        await on.soul.run("work")
        assert asked == ["echo 1 > a"] * 2
        assert [event.paths for event in on.ear.of(ev.FilesChanged)] == [("a",)]


@pytest.mark.parametrize("since", ["soon", "late", "another tool"])
async def test_a_scan_that_began_ahead_counts_for_a_command_that_begins_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    monkeypatch.setattr("kimi_tui.soul.file_history._OLD_S", 0.0 if since == "late" else 60.0)
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        history = on.soul._conversation.files  # pyright: ignore[reportPrivateUsage]
        folder = history.folder
        history.scan_ahead()
        assert history._ahead is not None  # pyright: ignore[reportPrivateUsage]
        await asyncio.wrap_future(history._ahead.scan)  # pyright: ignore[reportPrivateUsage]
        if since == "another tool":
            folder.begin(other := ChangingTool(frozenset()))
            folder.end(other)
            folder.covered(other)
            await folder.run(int)
        n_scans = folder.tracker.following.n_scans
        command = await history.before_change(None)
        assert folder.tracker.following.n_scans == n_scans + (since != "soon")
        # The next command has its own.
        again = await history.before_change(None)
        assert folder.tracker.following.n_scans == n_scans + (since != "soon") + 1
        for one in (command, again):
            history.after_change(one, "", "")
        await history.settled()


async def test_a_command_s_changes_are_scanned_before_its_result_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        history = on.soul._conversation.files  # pyright: ignore[reportPrivateUsage]
        end, had_begun = history.folder.end, list[bool]()

        def ended(change: ChangingTool) -> Any:
            had_begun.append(change in history.folder._begun)  # pyright: ignore[reportPrivateUsage]
            return end(change)

        monkeypatch.setattr(history.folder, "end", ended)
        monkeypatch.setattr("kimi_tui.soul.file_history._OLD_S", 60.0)
        on.server.script(shell("echo made > new"), say("done"))
        await on.soul.run("work")
        assert [event.paths for event in on.ear.of(ev.FilesChanged)] == [("new",)]
        # The scan of a command that goes on in the background is that of the end of its call.
        command = await history.before_change(None)
        history.after_change(command, "", "")
        await history.settled()
        n_scans = history.folder.tracker.following.n_scans
        history.scan_at_end(command)
        await history.folder.run(int)
        assert history.folder.tracker.following.n_scans == n_scans
        assert had_begun == [True, False]


async def test_files_are_checked_when_the_last_of_several_tools_has_ended(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        history, folder = on.soul._conversation.files, on.soul.folder
        first, second = [await history.before_change(None) for _ in range(2)]
        for change, is_last in ((first, False), (second, True)):
            folder.end(change)
            folder.covered(change)
            assert (folder._resting is not None) is is_last
        # A tool stops the check that waits, and one that ends before files are followed leaves nothing to wait for.
        assert folder._resting is not None
        third = await history.before_change(None)
        assert folder._resting.cancelled()
        folder.first_scan = None
        history.after_change(third, "", "none:0")
        assert not folder._unseen


async def test_an_agent_beside_the_session_s_own_shares_its_snapshots(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.work / "a").write_text("as it was\n")
        await on.soul.files_ready()
        on.server.script(say("hi"))
        await on.soul.run("work")
        before, uid = files(on), on.soul.session.context.checkpoints[-1].uid
        history = on.soul._conversation.files  # pyright: ignore[reportPrivateUsage]
        stored = on.session.dir / "files" / "snapshots-2.jsonl"
        # The first scan may have come before the file was written.
        history.after_change(await history.before_change(None), uid, "none:0")
        await history.settled()
        n_before = len(SnapshotLog(stored))
        command = await history.before_change(None)
        (on.work / "a").write_text("by a command of the session's agent\n")
        beside = FileHistory(on.session, on.soul.wire, on.soul.folder, "explorer")
        other = await beside.before_change(None)
        (on.work / "b").write_text("by the other\n")
        beside.after_change(other, uid, "other:0")
        await history.settled()
        (on.work / "c").write_text("by the command\n")
        history.after_change(command, uid, f"{uid}:0")
        await history.settled()
        made = SnapshotLog(stored)._snapshots[n_before:]  # pyright: ignore[reportPrivateUsage]
        # Nothing was taken for someone else's, who would be in the way of a rewind.
        assert [(one.by, one.author, sorted(one.changed)) for one in made] == [
            ("agent", "", ["a"]),
            ("agent", "explorer", ["b"]),
            ("agent", "", ["c"]),
        ]
        lines = stored.read_text().splitlines()
        assert ["author" in json.loads(line) for line in lines[-2:]] == [True, False]
        assert [event.paths for event in on.ear.of(ev.FilesChanged)][-2:] == [("b",), ("a", "c")]
        outcome = await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == before
        assert {one.fate for one in outcome.files} == {"restore", "delete"}


@pytest.mark.exhaustive
async def test_two_agents_work_in_one_folder_and_a_rewind_finds_no_conflict(tmp_path: Path) -> None:
    async with stage(tmp_path) as on, ChatServer(check=strict) as server:
        (on.work / "a").write_text("as it was\n")
        before = files(on)
        await on.soul.files_ready()
        provider = OpenAICompatible(
            provider="other", base_url=server.base_url, api_key="k", model="m", window=200_000
        )
        session = on.store.create(on.work)
        two = await open_soul(
            session=session,
            provider=provider,
            mode="all",
            environ={},
            folder=on.soul.folder,
            agent="explorer",
        )
        heard = Ear(two.wire)
        on.server.script(
            write("a", "one\n"),
            shell("sleep 0.05; echo one > by_one"),
            write("b", "1"),
            say("done"),
        )
        server.script(
            shell("echo two > by_two; sleep 0.05"), write("c", "2"), shell("echo > d"), say("done")
        )
        await asyncio.gather(on.soul.run("work"), two.run("work too"))
        await on.soul.folder.settled()
        # While both work, the first scan that sees a change tells it.
        server.script(write("e", "2"), say("done"))
        await two.run("go on alone")
        await on.soul.folder.settled()
        assert heard.of(ev.FilesChanged)[-1].paths == ("e",)
        told = (*heard.of(ev.FilesChanged), *on.ear.of(ev.FilesChanged))
        changed = {path for one in told for path in one.paths}
        assert changed == {"a", "b", "c", "d", "e", "by_one", "by_two"}
        # The agent ends, and the snapshots of the session go on.
        await two.aclose()
        assert not (session.dir / "files").exists()
        outcome = await on.soul.travel.rewind(Target(0), "restore")
        assert files(on) == before
        assert not outcome.conflicts


@pytest.mark.sample
@pytest.mark.parametrize("cut_off", ["before the journal", "in the switch", "before the files"])
async def test_a_restore_of_a_second_agent_is_finished_after_a_kill_if_its_conversation_went_back(
    tmp_path: Path, cut_off: str
) -> None:
    async with stage(tmp_path) as on, ChatServer(check=strict) as server:
        before = await worked(on)
        provider = OpenAICompatible(
            provider="other", base_url=server.base_url, api_key="k", model="m", window=200_000
        )
        session = on.store.create(on.work)
        two = await open_soul(
            session=session,
            provider=provider,
            mode="all",
            environ={},
            folder=on.soul.folder,
            agent="explorer",
        )
        after = files(on)
        server.script(write("edited", "by two\n"), shell("rm sub/new; echo > more"), say("done"))
        await two.run("work too")
        await on.soul.folder.settled()
        left = files(on)
        if cut_off == "before the files":
            await cut_off_in_a_rewind(two)
        else:
            restoring, context = two._conversation.files, session.context
            prepared = await restoring.prepare(await restoring.plan(context.checkpoints[0]))
            assert prepared is not None
            if cut_off == "in the switch":
                intent, size = prepared.intent, context.size_bytes
                context.journal.intend(
                    JournalEntry(
                        op="rewind", n=1, size=size, stored=True, snapshot_after=intent.after
                    )
                )
        await two.aclose()
        await on.reopen()
        heard = on.soul.wire.subscribe()
        if cut_off == "before the files":
            told = await next_event(heard, ev.FilesRestored, lambda _: True)
            assert (told.restored, told.deleted) == (("edited", "sub/new"), ("more",))
        await on.soul.files_ready()
        assert files(on) == (after if cut_off == "before the files" else left)
        assert not (on.session.dir / "files/restore.json").exists()
        # The other agent's conversation opens as its journal says, and the session's own is as it was.
        await session.open()
        assert bool(session.context.messages) is (cut_off != "before the files")
        await session.aclose()
        await on.soul.travel.rewind(Target(0), "restore")
        assert {name: text for name, text in files(on).items() if name != "more"} == before


async def test_an_agent_that_outlives_the_session_s_own_does_without_snapshots(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        point = on.soul.session.context.checkpoints
        beside = FileHistory(on.session, on.soul.wire, on.soul.folder, "explorer")
        on.server.script(say("hi"))
        await on.soul.run("work")
        await on.soul.aclose()
        beside.after_change(await beside.before_change(None), "uid", "uid:0")
        beside.mark("uid")
        await beside.settled()
        assert "has ended" in (await beside.plan(point[0])).reason
