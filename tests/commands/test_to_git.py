"""`kimi-tui to-git`: commits on a new branch; index, files, current branch and hooks of the repository are left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.chat_server import call, calls, say
from support.commands import Place

from kimi_tui.session.session import Session


def git(place: Place, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=place.work, capture_output=True, text=True, check=True
    )
    return done.stdout


def repository(place: Place) -> None:
    """Make a repository with hooks that would leave a trace, and a commit of an hour ago."""
    (place.folder / ".gitconfig").write_text("[user]\nname = A Person\nemail = a@example.org\n")
    git(place, "init", "-q", "-b", "main")
    for name in ("reference-transaction", "post-commit", "pre-commit", "commit-msg"):
        hook = place.work / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {place.folder}/hook-ran\n")
        hook.chmod(0o755)
    (place.work / "a.py").write_text("one\ntwo\n")
    (place.work / "dirty.py").write_text("committed\n")
    (place.work / ".gitignore").write_text("*.log\n")
    then = {"GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z", **os.environ}
    subprocess.run(["git", "add", "-A"], cwd=place.work, check=True)
    subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", "commit", "-qm", "Begin"],
        cwd=place.work,
        env=then,
        check=True,
    )
    (place.work / "dirty.py").write_text("not committed\n")


def held(place: Place) -> Session:
    """Two turns: step 1 edits a.py and dirty.py; step 4 moves a.py, step 5 makes files that git ignores, or not."""
    answers = [
        calls(
            [
                ("WriteFile", {"path": "a.py", "content": "one\nTWO\n"}),
                ("WriteFile", {"path": "dirty.py", "content": "by the agent\n"}),
            ],
            text="I write two in capitals.\nAs you asked.",
        ),
        say("Both files are changed."),
        call("Shell", {"command": "mkdir sub; mv a.py 'sub/b b.py'; chmod +x 'sub/b b.py'"}),
        call("Shell", {"command": "echo x > x.log; echo y | tee new.txt > later.txt"}),
        say("Moved."),
    ]
    return place.hold(answers, "Make two loud", "Move it")


def state(place: Place) -> tuple[str, ...]:
    index = (place.work / ".git" / "index").read_bytes()
    return (git(place, "rev-parse", "HEAD", "main"), repr(index), git(place, "stash", "list"))


def test_turns_and_steps_become_commits_and_nothing_else_changes(place: Place) -> None:
    repository(place)
    held(place)
    with (place.work / ".gitignore").open("a") as file:
        file.write("later.txt\n")
    before = state(place)
    times = {
        one: one.stat().st_mtime_ns for one in place.work.rglob("*") if ".git" not in one.parts
    }
    look = place.run("to-git", "--dry-run", "--branch", "turns")
    assert look.code == 0
    assert "Make two loud" in look.out
    assert look.err.split("\n") == [
        'kimi-tui: "later.txt" is left out: git ignores it.',
        'kimi-tui: "x.log" is left out: file snapshots ignore it.',
        "",
    ]
    steps = place.run("to-git", "--dry-run", "--per", "step", "--branch", "steps").out
    assert "I write two in capitals." in steps
    assert "As you asked." not in steps
    asked = place.run("to-git", "--branch", "turns")
    assert asked.code == 1
    assert "use --yes" in asked.err
    assert git(place, "branch", "--list", "turns") == ""
    assert place.run("to-git", "--branch", "turns", "--yes").code == 0
    log = git(place, "log", "--format=%s|%an", "--name-status", "-M", "--reverse", "turns")
    assert [line for line in log.split("\n") if line] == [
        "Begin|A Person",
        "A\t.gitignore",
        "A\ta.py",
        "A\tdirty.py",
        "Files as they were before these steps|A Person",
        "M\tdirty.py",
        "Make two loud|A Person",
        "M\ta.py",
        "M\tdirty.py",
        "Move it|A Person",
        "A\tnew.txt",
        "R100\ta.py\tsub/b b.py",
    ]
    assert "Both files are changed." in git(place, "log", "-1", "--format=%B", "turns~1")
    assert "100755" in git(place, "ls-tree", "turns", "sub/")
    assert state(place) == before
    assert times == {one: one.stat().st_mtime_ns for one in times}
    assert not (place.folder / "hook-ran").exists()
    facts = place.run("to-git", "4..", "--per", "step", "--branch", "steps", "--yes", "--json")
    assert '"message": "Shell' in facts.out
    subjects = git(place, "log", "--format=%s", "main..steps").split("\n")
    assert len([one for one in subjects if one]) == 3
    check_refusals(place)


def check_refusals(place: Place) -> None:
    said = place.run("to-git", "--branch", "turns", "--yes").complaint
    assert said == 'The branch "turns" already exists. Choose another name with --branch NAME.'
    for name in ("-x", "a..b", "a b", "x.lock", "../x"):
        assert "cannot be the name" in place.run("to-git", f"--branch={name}", "--yes").err, name
    assert "is not a commit" in place.run("to-git", "--onto", "nowhere", "--yes").complaint
    assert place.run("to-git", "2..3", "--yes").complaint.startswith("No file changed")
    # A branch cannot be below another one; git says so, and leaves no report behind.
    assert "no new branch" in place.run("to-git", "--branch", "turns/more", "--yes").err
    assert not [*(place.work / ".git").glob("fast_import_crash*")]
    git(place, "checkout", "-q", "--detach")
    assert "HEAD is detached" in place.run("to-git", "--branch", "other", "--yes").out


def test_a_folder_without_a_repository_and_one_in_another(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(place)
    assert "is not in a git repository" in place.run("to-git", "--yes").complaint
    bare = Path(place.work)
    for name in ("objects", "refs"):
        (bare / name).mkdir()
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    assert "is a bare repository" in place.run("to-git", "--yes").complaint
    (bare / "HEAD").unlink()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=place.folder, check=True)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "x")
    (place.folder / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.org\n")
    made = place.run("to-git", "--yes", "--branch", "all")
    assert made.code == 0, made
    names = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "all"],
        cwd=place.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert names.stdout.split("\n")[:1] == ["work/dirty.py"]
