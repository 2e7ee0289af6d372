"""Changes of the session and of git, reviewed in a turn that changes nothing, and the message of a commit."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.chat_server import call, gate, say, status
from support.soul import next_event, stage

from kimi_tui.llm.errors import LLMError
from kimi_tui.soul import git_changes
from kimi_tui.soul.errors import SoulError
from kimi_tui.soul.git_changes import NoGitChanges, changes_against, changes_to_commit
from kimi_tui.tui.main.commands.changes import commit_command
from kimi_tui.wire import events as ev
from kimi_tui.workspace.diff import Changes, FileDifference, SideChange, diff_lines, patch_of

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}


def git(folder: Path, *arguments: str) -> str:
    own = {**ENVIRON, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, env=own, check=True, capture_output=True, text=True
    ).stdout


def write(name: str, text: str) -> object:
    return call("WriteFile", {"path": name, "content": text})


def said(changes: Changes) -> list[tuple[str, str, int, int]]:
    return [
        (
            one.path,
            one.side.outcome,
            *((0, 0) if one.side.diff is None else (one.side.diff.added, one.side.diff.removed)),
        )
        for one in changes.files
    ]


async def test_changes_since_the_start_since_a_turn_and_between_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old").write_text("1\n2\n")
    (tmp_path / "work" / ".env").write_text("KEY=1\n")
    async with stage(tmp_path) as on:
        await on.soul.files_ready()
        on.server.script(write("a", "1\n"), write("old", "1\n2\n3\n"), say("Done."))
        await on.soul.run("One")
        (on.work / ".env").write_text("KEY=22\n")
        on.server.script(write("b", "other\n"), call("Shell", {"command": "rm a"}), say("Done."))
        await on.soul.run("Two")
        of_session = await on.soul.changes.of_session()
        assert said(of_session.changes)[-2:] == [("b", "new", 1, 0), ("old", "changed", 1, 0)]
        assert "KEY" not in patch_of(of_session.changes.files, 10_000)
        turn = await on.soul.changes.of_turn()
        assert [one for one in said(turn.changes) if one[0] != ".env"] == [
            ("a", "gone", 0, 1),
            ("b", "new", 1, 0),
        ]
        assert turn.what.startswith("since your last message, #")
        # From the first step to the second: only what the first one wrote.
        between = await on.soul.changes.between(1, 2)
        assert said(between.changes) == [("a", "new", 1, 0)]
        assert said((await on.soul.changes.between(2, 1)).changes) == []
        with pytest.raises(KeyError):
            await on.soul.changes.between(99, None)


async def test_a_review_shows_the_changes_and_can_change_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        await on.soul.files_ready()
        on.server.script(write("a", "1\n"), write("b", "1\n"), say("Done."))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.run("One"))
        on.soul.answer((await next_event(heard, ev.ApprovalRequest)).id, "session")
        await turn
        assert on.soul.permissions.of_session
        on.server.script(write("c", "1\n"), call("Shell", {"command": "ls"}), say("Fine."))
        found = await on.soul.changes.of_session()
        turn = asyncio.create_task(on.soul.review(found))
        request = await next_event(heard, ev.ApprovalRequest)
        assert on.soul.mode == "plan"
        on.soul.answer(request.id, "no", "not needed")
        await turn
        assert not (on.work / "c").exists()
        sent = "\n".join(text for _, text in on.sent(3))
        assert "Review the changes below (since the session began)" in sent
        assert "=== a (new) +1 -0" in sent
        # Mode and permissions are as before.
        assert (on.soul.mode, len(on.soul.permissions.of_session)) == ("ask", 1)


async def test_a_mode_that_is_chosen_during_a_review_stays(tmp_path: Path) -> None:
    async with stage(tmp_path, mode="ask") as on:
        on.server.script(call("Shell", {"command": "ls"}), say("Fine."))
        heard = on.soul.wire.subscribe()
        turn = asyncio.create_task(on.soul.review(await on.soul.changes.of_session()))
        request = await next_event(heard, ev.ApprovalRequest)
        await on.soul.set_mode("edits")
        on.soul.answer(request.id, "no", "x")
        await turn
        assert on.soul.mode == "edits"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    work = tmp_path / "repo"
    work.mkdir()
    git(work, "init", "-q")
    (work / "a").write_text("1\n2\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "First")
    return work


def test_changes_against_a_branch_begin_where_it_was_left(repository: Path) -> None:
    git(repository, "checkout", "-qb", "topic")
    (repository / "b").write_text("new\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "Second")
    git(repository, "checkout", "-q", "main")
    (repository / "elsewhere").write_text("on main\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "Third")
    git(repository, "checkout", "-q", "topic")
    (repository / "a").write_text("1\n3\n")
    (repository / "untracked").write_text("x\n")
    found = changes_against(repository, ENVIRON, "main")
    assert said(found.changes) == [
        ("a", "changed", 1, 1),
        ("b", "new", 1, 0),
        ("untracked", "new", 1, 0),
    ]
    assert found.subjects == ("Second", "First")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "base",
    [
        "",
        "--output=x",
        "-p",
        "nothing",
        "main..topic",
        "main:a",
        "HEAD; id",
        "a\nb",
        "x" * 300,
        "$(id)",
    ],
)
def test_a_base_that_is_no_commit_is_refused(repository: Path, base: str) -> None:
    with pytest.raises(NoGitChanges, match="is not a branch or a commit"):
        changes_against(repository, ENVIRON, base)
    assert not (repository / "x").exists()


def test_what_is_staged_is_committed_and_else_all_but_secrets(repository: Path) -> None:
    (repository / "a").write_text("1\n2\n3\n")
    (repository / ".env").write_text("KEY=1\n")
    (repository / "odd *name'").write_text("x\n")
    found = changes_to_commit(repository, ENVIRON)
    assert said(found.changes) == [("a", "changed", 1, 0), ("odd *name'", "new", 1, 0)]
    assert ".env" in found.changes.remarks[0]
    command = commit_command(found, "Subject\n\nIt's $(why)\nand more")
    assert command == (
        """git add -- a ':(top,literal)odd *name'"'"'' && git commit -m Subject -m 'It'"'"'s $(why)\nand more'"""
    )
    own = {
        **ENVIRON,
        "GIT_AUTHOR_NAME": "n",
        "GIT_AUTHOR_EMAIL": "e",
        "GIT_COMMITTER_NAME": "n",
        "GIT_COMMITTER_EMAIL": "e",
    }
    subprocess.run(["sh", "-c", command], cwd=repository, env=own, check=True, capture_output=True)
    assert git(repository, "log", "-1", "--format=%B").strip() == "Subject\n\nIt's $(why)\nand more"
    assert git(repository, "status", "--short") == "?? .env\n"
    # Only staged files count, also a secret that the person has staged.
    (repository / "a").write_text("other\n")
    git(repository, "add", "-f", ".env")
    found = changes_to_commit(repository, ENVIRON)
    assert found.staged
    assert [(one.path, one.is_secret) for one in found.changes.files] == [(".env", True)]
    assert commit_command(found, "x") == "git commit -m x"


def test_all_files_share_the_room_for_rows(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_changes, "_MOST_ROWS", 30)
    for name in ("one", "two"):
        (repository / name).write_text("line\n" * 25)
    one, two = (one.side.diff for one in changes_to_commit(repository, ENVIRON).changes.files)
    assert one is not None
    assert two is not None
    assert (len(one.rows), len(two.rows)) == (25, 5)


def test_nothing_to_commit_and_no_repository(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(NoGitChanges, match="There is nothing to commit"):
        changes_to_commit(repository, ENVIRON)
    (tmp_path / "bare").mkdir()
    with pytest.raises(NoGitChanges, match="not in a git repository"):
        changes_to_commit(tmp_path / "bare", ENVIRON)
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q")
    (tmp_path / "new" / "x").write_text("1\n")
    assert said(changes_to_commit(tmp_path / "new", ENVIRON).changes) == [("x", "new", 1, 0)]


def test_no_program_of_the_repository_runs(repository: Path) -> None:
    mark = repository.parent / "ran"
    (repository / "a").write_text("changed\n")
    for key, value in (
        ("core.fsmonitor", f"touch {mark}"),
        ("diff.external", f"touch {mark}"),
        ("diff.x.textconv", f"touch {mark}"),
        ("core.pager", f"touch {mark}"),
        ("log.showSignature", "true"),
        ("gpg.program", f"touch {mark}"),
    ):
        git(repository, "config", key, value)
    (repository / ".gitattributes").write_text("* diff=x filter=evil\n")
    assert [one[0] for one in said(changes_to_commit(repository, ENVIRON).changes)] == [
        ".gitattributes",
        "a",
    ]
    changes_against(repository, ENVIRON, "main")
    assert not mark.exists()
    git(repository, "config", "filter.evil.clean", f"touch {mark}")
    with pytest.raises(NoGitChanges, match="git would run filters"):
        changes_to_commit(repository, ENVIRON)
    assert not mark.exists()


def test_links_lead_nowhere(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside\n")
    (repository / "link").symlink_to(tmp_path / "secret")
    (repository / "folder").symlink_to(tmp_path)
    found = changes_against(repository, ENVIRON, "main")
    assert "outside" not in patch_of(found.changes.files, 10_000)


async def test_a_message_is_drafted_and_unwrapped(tmp_path: Path, repository: Path) -> None:
    (repository / "a").write_text("1\n2\n3\n")
    found = changes_to_commit(repository, ENVIRON)
    async with stage(tmp_path) as on:
        on.server.script(say("```\nAdd \x1b[31mthree\n\nWhy.\n```"), say("```\n```"), status(400))
        assert await on.soul.changes.draft_message(found) == "Add three\n\nWhy."
        asked = str(on.server.requests[0].body["messages"])
        assert "- First" in asked
        assert "=== a (changed) +1 -0" in asked
        assert not on.server.requests[0].body.get("tools")
        with pytest.raises(SoulError, match="wrote no message"):
            await on.soul.changes.draft_message(found)
        with pytest.raises(LLMError):
            await on.soul.changes.draft_message(found)
        on.server.script(gate(0, say("Add three")))
        drafting = asyncio.create_task(on.soul.changes.draft_message(found))
        await on.server.at_gate.wait()
        await on.soul.interrupt()
        assert await drafting == ""


def changed(*texts: tuple[str, str]) -> Sequence[FileDifference]:
    return [
        FileDifference(f"f{n}", SideChange("changed", diff=diff_lines(*pair)))
        for n, pair in enumerate(texts)
    ]


def test_a_patch_is_bounded() -> None:
    files = changed(("a\n", "b\n"), ("a\n", "x\n" * 1000))
    text = patch_of(files, 200)
    assert len(text) < 300
    assert "the rest is left out" in text
    assert text.startswith("=== f0 (changed) +1 -1\n-    1 a\n+    1 b\n")
