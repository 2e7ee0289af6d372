"""The facts of git about the work folder, for which nothing of a hostile repository is run."""

from __future__ import annotations

import os
import subprocess
from datetime import date
from pathlib import Path

import pytest

from kimi_tui.soul import system_prompt
from kimi_tui.soul.system_prompt import build_system_prompt, repository_facts

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-b", "trunk")
    (folder / "a").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "Begin it")
    return folder


@pytest.mark.exhaustive
def test_branch_changed_files_and_commits(repo: Path, tmp_path: Path) -> None:
    assert repository_facts(tmp_path, ENVIRON) == ""
    (repo / "sub").mkdir()
    (repo / "a").write_text("2\n")
    (repo / "new\x1b[2J").write_text("")
    facts = repository_facts(repo / "sub", ENVIRON)
    assert "## trunk" in facts
    assert "\n M a\n" in facts
    assert "?? " in facts
    assert "\x1b" not in facts
    assert " Begin it\n" in facts
    for number in range(60):
        (repo / f"file{number}").write_text("")
    facts = repository_facts(repo, ENVIRON)
    assert "… and more" in facts
    assert len(facts) < 4_000
    assert repository_facts(repo, {"PATH": "/nonexistent"}) == ""


@pytest.mark.parametrize("no_keys", [True, False])
def test_keys_in_what_git_says_and_in_names_stay_out_where_they_are_asked_about(
    repo: Path, no_keys: bool
) -> None:
    keys = [f"sk-{one * 12}4" for one in ("ab", "cd", "ef")]
    git(repo, "commit", "--allow-empty", "-m", f"Rotate {keys[0]}")
    git(repo, "checkout", "-qb", f"try-{keys[1]}")
    (repo / keys[2]).touch()
    written = build_system_prompt(repo, ENVIRON, date(2026, 1, 1), no_keys=no_keys)
    assert [key for key in keys if key in written] == ([] if no_keys else keys)


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "-b", "trunk")
    assert "No commits yet on trunk" in repository_facts(tmp_path, ENVIRON)


def test_what_takes_too_long_is_left_out(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_prompt, "_GIT_LIMIT_S", 0.2)
    slow = repo.parent / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    assert repository_facts(repo, {"PATH": f"{slow.parent}:{ENVIRON['PATH']}"}) == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ["status", "log"])
def test_settings_moved_between_two_gits_do_nothing(repo: Path, when: str) -> None:
    """A command that runs beside it makes git look elsewhere, after it was asked whether there are filters."""
    ran, evil, own = (repo.parent / name for name in ("ran", "evil", "bin/git"))
    git(repo.parent, "clone", "-q", str(repo), str(evil))
    for key in ("filter.x.clean", "diff.external", "core.fsmonitor", "alias.log", "gpg.program"):
        git(evil, "config", key, f"touch {ran}; cat")
    (repo / ".gitattributes").write_text("* filter=x\n")
    (repo / "a").write_text("2\n")
    own.parent.mkdir()
    own.write_text(
        f"""#!/bin/sh
case "$*" in *\\ {when}\\ *) echo {evil}/.git > {repo}/.git/commondir;; esac
PATH={ENVIRON["PATH"]} exec git "$@"
"""
    )
    own.chmod(0o755)
    facts = repository_facts(repo, {**ENVIRON, "PATH": f"{own.parent}:{ENVIRON['PATH']}"})
    assert (repo / ".git/commondir").exists()
    assert "## trunk" in facts
    assert not ran.exists()


@pytest.mark.sample(3)
@pytest.mark.parametrize("trap", ["monitor", "hooks", "filter", "signature", "process", "include"])
def test_nothing_of_the_repository_is_run(repo: Path, trap: str) -> None:
    evil = repo.parent / "evil"
    ran = repo.parent / "ran"
    evil.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    evil.chmod(0o755)
    (repo / ".gitattributes").write_text("* filter=x\n")
    match trap:
        case "monitor":
            git(repo, "config", "core.fsmonitor", str(evil))
        case "hooks":
            git(repo, "config", "core.hooksPath", str(repo / "hooks"))
            (repo / "hooks").mkdir()
            (repo / "hooks" / "post-index-change").symlink_to(evil)
        case "filter":
            git(repo, "config", "filter.x.clean", str(evil))
        case "process":
            git(repo, "config", "filter.x.process", str(evil))
        case "include":
            (repo / "more").write_text(f'[filter "x"]\n\tclean = {evil}\n')
            git(repo, "config", "include.path", "../more")
        case _:
            git(repo, "config", "log.showSignature", "true")
            git(repo, "config", "gpg.program", str(evil))
    (repo / "a").write_text("3\n")
    facts = repository_facts(repo, ENVIRON)
    assert "Begin it" in facts
    assert not ran.exists()
    assert (" M a" in facts) == (trap in ("monitor", "hooks", "signature"))


def test_files_elsewhere_are_not_listed(repo: Path) -> None:
    private = repo.parent / "private"
    private.mkdir()
    (private / "diary").write_text("")
    git(repo, "config", "core.worktree", str(private))
    assert "diary" not in repository_facts(repo, ENVIRON)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "how", ["file", "liar", "link", "commondir", "alternates", "objects", "folder"]
)
def test_nothing_is_told_of_a_repository_that_another_folder_names(repo: Path, how: str) -> None:
    other = repo.parent / "other"
    other.mkdir()
    own = other / ".git"
    match how:
        case "file":
            own.write_text(f"gitdir: {repo}/.git\n")
        case "liar":
            git(repo, "worktree", "add", "-q", str(repo.parent / "linked"))
            own.write_text("gitdir: ../repo/.git/worktrees/linked\n")
        case "link":
            own.symlink_to("../repo/.git")
        case _:
            git(other, "init", "-b", "trunk")
            (own / "refs/heads/trunk").write_bytes((repo / ".git/refs/heads/trunk").read_bytes())
            if how == "commondir":
                (own / "commondir").write_text("../../repo/.git\n")
            elif how == "alternates":
                (own / "objects/info/alternates").write_text(f"{repo}/.git/objects\n")
            elif how == "objects":
                (own / "objects/pack").rmdir()
                (own / "objects/info").rmdir()
                (own / "objects").rmdir()
                (own / "objects").symlink_to(repo / ".git/objects")
            else:
                own.rename(other / "kept")
                own.write_text("gitdir: kept\n")
                (other / "kept/commondir").write_text("../../repo/.git\n")
    assert repository_facts(other, ENVIRON) == ""


@pytest.mark.exhaustive
def test_a_working_tree_and_a_submodule_tell_of_theirs(repo: Path) -> None:
    linked, parent = repo.parent / "linked", repo.parent / "parent"
    git(repo, "worktree", "add", "-q", "-b", "side", str(linked))
    assert "## side" in repository_facts(linked, ENVIRON)
    parent.mkdir()
    git(parent, "init", "-b", "trunk")
    git(parent, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo), "sub")
    assert (parent / "sub/.git").is_file()
    assert "Begin it" in repository_facts(parent / "sub", ENVIRON)
    own = repo.parent / "own"
    own.mkdir()
    git(own, "init", "-q", "-b", "apart", "--separate-git-dir", ".bare")
    assert "apart" in repository_facts(own, ENVIRON)
