"""The permissions of the sandbox, and its words on refused operations."""

from __future__ import annotations

import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import covered
from support.cases import each
from support.covered import (
    bubblewrap,
    is_hidden,
    needs_landlock,
    search_sandbox,
    whole_sandbox,
)

import kimi_tui
from kimi_tui.config.settings import SandboxConfig
from kimi_tui.tools.paths import holds_secrets, locate, protected_reason
from kimi_tui.tools.process import RunningCommand, child_environment
from kimi_tui.tools.sandbox import confine
from kimi_tui.tools.sandbox import policy as policy_module
from kimi_tui.tools.sandbox import sandbox as sandbox_module
from kimi_tui.tools.sandbox.home import HomeView
from kimi_tui.tools.sandbox.policy import (
    FolderMemory,
    NoSandbox,
    Policy,
    SandboxSettings,
    has_parts_elsewhere,
    is_own_repository,
    paths_in_error,
    policy_for,
    refused,
)
from kimi_tui.tools.sandbox.sandbox import (
    Confined,
    Sandbox,
    bwrap_arguments,
    find_sandbox,
    macos_profile,
    trouble_with,
)
from kimi_tui.tools.sandbox.search import shut_below


def git(*words: str, within: Path) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *settings, *words], cwd=within, check=True, capture_output=True)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    for folder in (".ssh", ".cache/pip", ".config/gh"):
        (home / folder).mkdir(parents=True)
    return {"HOME": str(home), "KIMI_TUI_HOME": str(tmp_path / "app"), "PATH": os.environ["PATH"]}


@pytest.fixture
def policy(environ: dict[str, str], tmp_path: Path) -> Policy:
    work = tmp_path / "work"
    (work / "tests").mkdir(parents=True)
    git("init", "-q", within=work)
    for name in (".env", "tests/.env.local", "Makefile", "tests/conftest.py", "app.py"):
        (work / name).write_text("x\n")
    return policy_for(work, SandboxSettings(), environ)


def test_the_work_folder_is_writable_but_for_what_runs_later(
    policy: Policy, tmp_path: Path
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    assert policy.writable == (str(work),)
    assert policy.caches.covered == (str(home / ".cache"), str(home / ".cache/pip"))
    assert policy.may_write("app.py")
    assert policy.may_write(str(home / ".cache/pip/x"))
    assert not policy.may_write("/root/.bashrc")
    assert policy.may_write("tests/new")
    assert policy.may_write(".git/index")
    for name in (".git/hooks/pre-commit", ".git/config", "Makefile", "/opt/x", "/etc/hosts"):
        assert not policy.may_write(name), name
    # A hidden file would be open under another name if the folder above it were renamed.
    assert policy.pinned == (str(work / ".git"), str(work / "tests"))
    for place in (".env", "tests/.env.local", home / ".ssh" / "id_rsa", home / ".config/gh"):
        assert is_hidden(policy, str(place)), place
    assert not is_hidden(policy, "/etc/hosts")
    # Deeper down it is looked at afterwards; what changed is named.
    (work / "tests/conftest.py").write_text("import os\n")
    (work / ".git/commondir").write_text("../elsewhere\n")
    (work / "sub").mkdir()
    (work / "sub/.envrc").write_text("x\n")
    later = ["AGENTS.md", "sub/.github/workflows/ci.yml", "sub/.vscode/tasks.json"]
    later += [".git/rebase-merge/git-rebase-todo", ".git/modules/lib/config"]
    for name in (*later, ".git/modules/lib/HEAD"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x\n")
    later += [".git/commondir", "sub/.envrc", "tests/conftest.py"]
    assert policy.watch.changed() == sorted(later, key=lambda path: (path.count("/"), path))


def test_what_a_package_manager_runs_is_named_when_a_command_changed_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    package, project, cargo = (
        work / name for name in ("package.json", "pyproject.toml", "Cargo.toml")
    )

    def changed() -> Callable[[], list[str]]:
        return policy_for(work, SandboxSettings(), environ).watch.changed

    package.write_text('{"version": "1", "scripts": {"test": "jest"}}')
    project.write_text('[project]\nversion = "1"\n')
    look = changed()
    package.write_text('{"version": "22", "scripts": {"test": "jest"}, "dependencies": {"a": "1"}}')
    project.write_text('[project]\nversion = "22"\ndependencies = ["a"]\n')
    assert look() == []
    look = changed()
    package.write_text('{"version": "22", "scripts": {"test": "jest", "postinstall": "evil"}}')
    project.write_text('[project]\nversion = "22"\n[build-system]\nbackend-path = ["."]\n')
    cargo.write_text('[package]\nbuild = "evil.rs"\n')
    assert look() == ["Cargo.toml", "package.json", "pyproject.toml"]
    look = changed()
    for path, text in ((package, "{"), (project, "x" * (2 << 20)), (cargo, "")):
        path.write_text(text)
    assert look() == ["Cargo.toml", "package.json", "pyproject.toml"]
    look = changed()
    package.unlink()
    os.mkfifo(package)
    assert look() == ["package.json"]


def test_what_the_settings_of_git_name_is_held_still(
    policy: Policy, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    named = (
        "team.cfg",
        "more.cfg",
        "tools/hooks/pre-push",
        "tools/watch",
        "tools/clean.sh",
        "tools/a.sh",
        "said/hooks/x",
        "commented.cfg",
        "continued.cfg",
        "build.sh",
        "scripts/x.sh",
        "system/hooks/x",
    )
    (tmp_path / "gitconfig").write_text("[core]\n\thooksPath = system/hooks\n")
    assert policy_module.SYSTEM_GIT_SETTINGS == "/etc/gitconfig"
    monkeypatch.setattr(policy_module, "SYSTEM_GIT_SETTINGS", str(tmp_path / "gitconfig"))
    (tmp_path / "home/.gitconfig").write_text("[core]\n\thooksPath = said/hooks\n")
    for name in (*named, "free/a.sh", "main.c", "main"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("[Include]\npath = more.cfg\n" if name == "team.cfg" else "x\n")
    with open(work / ".git/config", "a") as settings:
        settings.write(
            "[include]\n\tpath = ../team.cfg\n\tpath = ../missing.cfg\n[include] path = /etc/hosts\n"
            "[core] hooksPath = tools/hooks\n\tFSMonitor = tools/watch --all\n"
            '[filter "x"]\n\tclean = "sh -c \\"tools/clean.sh %f\\""\n[alias]\n\ta = !tools/a.sh "$@"\n'
            '\tb = !sh build.sh main\n\tx = "!$(git rev-parse --show-toplevel)/scripts/x.sh"\n'
            "[init]\n\tdefaultBranch = main.c\n"
            '[remote "origin"]\n\turl = free/a.sh\n[extensions]\n\tworktreeConfig = true\n'
            '[include]\n\tpath = "../commented.cfg" ; x\n\tpath = ../con\\\ntinued.cfg # "y\n'
            "[core]\n\tattributesFile = .\n\tattributesFile = .git\n\tx = ./ ../.. //\n"
        )
    found = policy_for(work, SandboxSettings(), environ)
    for name in (*named, "tools/hooks/new", ".git/config.worktree"):
        assert not found.may_write(name), name
    for name in ("free/a.sh", "app.py", ".git/index", "tools/b.sh", "main.c", "main"):
        assert found.may_write(name), name
    assert {str(work / "tools"), str(work / ".git")} <= set(found.pinned)
    # A file that did not exist is named when it is made.
    (work / "missing.cfg").write_text("x\n")
    (work / ".git/commondir").write_text("../elsewhere\n")
    assert found.watch.changed() == ["missing.cfg", ".git/commondir"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variable", "place", "settings"),
    [
        ("XDG_CONFIG_HOME", "elsewhere", "elsewhere/git/config"),
        ("XDG_CONFIG_HOME", "elsewhere", "home/.config/git/config"),
        ("XDG_CONFIG_HOME", "work/dot", "work/dot/git/config"),
        ("GIT_CONFIG_GLOBAL", "elsewhere/mine", "elsewhere/mine"),
        ("GIT_CONFIG_SYSTEM", "elsewhere/all", "elsewhere/all"),
    ],
)
def test_what_settings_of_git_name_that_the_environment_has_elsewhere_is_held_still(
    variable: str, place: str, settings: str, environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git("init", "-q", within=work)
    for name in ("said/hooks/x", "tools/clean.sh"):
        (work / name).parent.mkdir(parents=True)
        (work / name).write_text("x\n")
    (tmp_path / settings).parent.mkdir(parents=True)
    (tmp_path / settings).write_text(
        '[core]\nhooksPath = said/hooks\n[filter "x"]\nclean = tools/clean.sh %f\nsmudge = tools/new\n'
    )
    environ[variable] = str(tmp_path / place)
    found = policy_for(work, SandboxSettings(), environ)
    for name in ("said/hooks/x", "said/hooks/new", "tools/clean.sh"):
        assert not found.may_write(name), name
        assert protected_reason(locate(name, work, environ), environ), name
    assert not settings.startswith("work/") or not found.may_write(str(tmp_path / settings))
    assert found.may_write("tools/other")
    (work / "tools/new").write_text("x\n")
    assert found.watch.changed() == ["tools/new"]


def test_nothing_that_a_repository_names_is_waited_for(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "own").mkdir(parents=True)
    (work / ".git").write_text("gitdir: own\n")
    os.mkfifo(work / "own/gitdir")
    assert policy_for(work, SandboxSettings(), environ).writable[0] == str(work)


@pytest.fixture
def linked(policy: Policy, tmp_path: Path) -> Path:
    """A linked working tree of the repository that the policy is for."""
    place = tmp_path / "linked"
    git("commit", "-q", "--allow-empty", "-m", "x", within=Path(policy.work))
    git("worktree", "add", "-q", str(place), within=Path(policy.work))
    return place


def test_a_linked_working_tree_may_write_its_repository_and_no_other_folder(
    linked: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    found = policy_for(linked, SandboxSettings(), environ)
    assert found.may_write(str(work / ".git/objects"))
    for name in ("hooks", "config", "worktrees/linked/gitdir", "worktrees/linked/commondir"):
        assert not found.may_write(str(work / ".git" / name)), name
    assert not found.may_write(".git")
    # A repository's own statement of where it is does not count.
    liar = tmp_path / "liar"
    liar.mkdir()
    (liar / ".git").write_text(f"gitdir: {work}/.git/worktrees/linked\n")
    assert policy_for(liar, SandboxSettings(), environ).writable == (str(liar),)


def test_repositories_without_a_working_tree_and_steps_of_a_rebase_are_held_still(
    policy: Policy, environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    git("init", "-q", "--bare", "sub/store", within=work)
    (work / "sub/store/hooks/pre-receive").write_text("x\n")
    for name in (
        *("modules/lib/HEAD", "modules/lib/config", "rebase-merge/git-rebase-todo"),
        *("x/in.git/HEAD", "x/in.git/config", "x/in.git/objects/x", "x/in.git/refs/x"),
    ):
        (work / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (work / ".git" / name).write_text("x\n")
    # In a folder that is passed over, but named by the repository.
    deep = work / "a/b/c/d/e/node_modules/f"
    deep.mkdir(parents=True)
    git("init", "-q", within=deep)
    (work / ".gitmodules").write_text(
        '[submodule "f"]\n\tpath = a/b/c/d/e/node_modules/f\n\tpath = ../../x\n'
    )
    found = policy_for(work, SandboxSettings(), environ)
    for name in (
        *("sub/store/hooks/pre-receive", "sub/store/config", ".git/modules/lib/hooks/new"),
        *(
            ".git/x/in.git/config",
            ".git/rebase-merge/git-rebase-todo",
            ".git/rebase-merge/strategy",
        ),
        *("a/b/c/d/e/node_modules/f/.git/hooks/new", "a/b/c/d/e/node_modules/f/.git/config"),
    ):
        assert not found.may_write(name), name
    assert found.may_write("sub/store/objects/x")
    # Any folder can look like one, so nothing is created in it.
    shutil.rmtree(work / "sub/store/hooks")
    policy_for(work, SandboxSettings(), environ)
    assert not (work / "sub/store/hooks").exists()
    git("init", "-q", "--bare", "sub/store", within=work)
    (work / "sub/store/hooks/pre-receive").write_text("x\n")
    found = policy_for(work, SandboxSettings(), environ)
    assert found.may_write("a/b/c/d/e/node_modules/f/x")
    # A file system that ignores case shows it like this.
    (work / ".GIT/hooks").mkdir(parents=True)
    (work / ".GIT/hooks/pre-push").write_text("x\n")
    assert found.watch.changed() == [".GIT/hooks/pre-push"]
    shutil.rmtree(work / ".GIT")
    # New files are named; the next command can continue a rebase that an earlier one began.
    git("init", "-q", "--bare", "sub/new", within=work)
    (work / "sub/new/hooks/post-update").write_text("x\n")
    (work / ".git/sequencer").mkdir()
    (work / ".git/sequencer/todo").write_text("pick\n")
    new = ["sub/new/config", ".git/sequencer/todo", "sub/new/hooks/post-update"]
    assert found.watch.changed() == sorted(new, key=lambda path: (path.count("/"), path))
    found = policy_for(work, SandboxSettings(), environ)
    assert found.may_write(".git/sequencer/todo")
    assert not found.may_write(".git/rebase-merge/git-rebase-todo")
    assert not found.may_write("sub/new/hooks/post-update")


def test_settings_of_a_linked_working_tree_are_held_still_or_named(
    linked: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    own = tmp_path / "work/.git/worktrees/linked/config.worktree"
    found = policy_for(linked, SandboxSettings(), environ)
    # Git reads the file only if the repository says so; a command that makes it now may have that said later.
    own.write_text("[core]\n\tfsmonitor = evil\n")
    assert [os.path.basename(path) for path in found.watch.changed()] == ["config.worktree"]
    own.unlink()
    git("config", "extensions.worktreeConfig", "true", within=linked)
    found = policy_for(linked, SandboxSettings(), environ)
    assert not found.may_write(str(own))
    assert own.read_text() == ""
    assert found.watch.changed() == []


def test_steps_begun_in_a_linked_working_tree_are_named(
    linked: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    found = policy_for(linked, SandboxSettings(), environ)
    steps = work / ".git/worktrees/linked/rebase-merge"
    steps.mkdir()
    (steps / "git-rebase-todo").write_text("exec x\n")
    (named,) = found.watch.changed()
    assert named.endswith("worktrees/linked/rebase-merge/git-rebase-todo")


def test_a_repository_behind_a_file_is_held_still(environ: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git("init", "-q", "--separate-git-dir", ".bare", within=work)
    (work / "tools").mkdir()
    (work / "tools/watch").write_text("x\n")
    with open(work / ".bare/config", "a") as settings:
        settings.write("[core]\n\tfsmonitor = tools/watch\n")
    (work / ".git").write_text("gitdir: ./.bare\n")
    found = policy_for(work, SandboxSettings(), environ)
    for name in (".git", ".bare/config", ".bare/hooks/pre-commit", "tools/watch"):
        assert not found.may_write(name), name
    assert found.may_write(".bare/index")
    (work / ".git").unlink()
    (work / ".git").symlink_to(".bare")
    with pytest.raises(NoSandbox, match="is a link"):
        policy_for(work, SandboxSettings(), environ)


def test_what_guarded_links_lead_to_is_guarded(environ: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "conf").mkdir(parents=True)
    for name, target in ((".env", "conf/env.real"), ("Makefile", "conf/make.real")):
        (work / target).write_text("x\n")
        (work / name).symlink_to(target)
    (work / "conf/bashrc").write_text("x\n")
    (tmp_path / "home/.bashrc").symlink_to(work / "conf/bashrc")
    for _ in range(2):
        found = policy_for(work, SandboxSettings(), environ)
        assert is_hidden(found, "conf/env.real")
        assert not found.may_write("conf/make.real")
        assert not found.may_write("conf/bashrc")
        # A command can remove the links, and the next one would find what they led to.
        for name in (work / ".env", work / "Makefile", tmp_path / "home/.bashrc"):
            name.unlink(missing_ok=True)


@pytest.mark.parametrize("name", [".bashrc", ".env"])
def test_a_link_in_the_work_folder_on_the_way_from_a_guarded_one_is_held_still(
    environ: dict[str, str], tmp_path: Path, name: str
) -> None:
    home, work = Path(environ["HOME"]), tmp_path / "work"
    (work / "first").mkdir(parents=True, exist_ok=True)
    (work / "now").symlink_to("first")
    (work / "direct").symlink_to("now/target")
    (work / "first/target").touch()
    (home / name).symlink_to(work / "direct")
    found = policy_for(work, SandboxSettings(), environ)
    assert {str(work / "now"), str(work / "direct")} <= {*found.kept} & {*found.links}


def test_a_repository_whose_hooks_are_a_link_is_held_whole(
    policy: Policy, environ: dict[str, str]
) -> None:
    hooks = Path(policy.work, ".git/hooks")
    shutil.rmtree(hooks)
    Path(policy.work, "tests/hooks").mkdir()
    hooks.symlink_to("../tests/hooks")
    found = policy_for(Path(policy.work), SandboxSettings(), environ)
    assert not found.may_write(".git/index")


def test_no_entry_is_written_behind_a_link_in_another_one(
    environ: dict[str, str], tmp_path: Path
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (work, home / "made", home / "other"):
        folder.mkdir()
    (home / "first").symlink_to("made")
    (home / "made/second").symlink_to("../other")
    settings = SandboxSettings(writable=("~/first", "~/first/second"))
    assert policy_for(work, settings, environ).writable == (str(work), str(home / "made"))


def test_a_folder_that_changed_just_now_is_listed_again(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work, memory = tmp_path / "work", FolderMemory()
    work.mkdir()
    policy_for(work, SandboxSettings(), environ, memory=memory)
    # Within one tick of the clock it could change again, with the same times.
    assert memory.of(str(work))[str(work)].stamp is None


def test_secrets_are_found_to_a_depth_of_four_folders(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "a/b/c/d/e").mkdir(parents=True)
    for name in ("a/b/c/d/.env", "a/b/c/d/e/.env"):
        (work / name).write_text("x\n")
    found = policy_for(work, SandboxSettings(), environ)
    assert is_hidden(found, "a/b/c/d/.env")
    assert not is_hidden(found, "a/b/c/d/e/.env")


def test_without_room_for_temporary_files_there_is_no_sandbox_and_that_is_said(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(
        NoSandbox, match=r"could not write its files: No such file or directory \(.*/missing/"
    ):
        find_sandbox(SandboxSettings(), environ, tmp_path)


def test_no_command_starts_while_descriptors_lack_to_look_for_secrets(
    environ: dict[str, str], policy: Policy, tmp_path: Path
) -> None:
    own, work = Sandbox("full", SandboxSettings(), environ), tmp_path / "work"
    (work / "tests/inner").mkdir()
    assert str(work / "tests/.env.local") in own.confined(["true"], work).policy.hidden
    (work / "tests/inner/.env").write_text("x\n")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            own.confined(["true"], work)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    hidden = own.confined(["true"], work).policy.hidden
    assert {*policy.hidden, str(work / "tests/inner/.env")} <= {*hidden}
    own.remove_temporary()


@pytest.mark.skipif(sys.platform == "darwin", reason="there it goes by the name")
@pytest.mark.parametrize("name", [".env", ".git/config"])
def test_what_is_covered_no_more_is_named(policy: Policy, name: str) -> None:
    assert policy.replaced() == []
    new = Path(policy.work, "new")
    new.write_text("x\n")
    new.replace(Path(policy.work, name))
    assert policy.replaced() == [os.path.join(policy.work, name)]


def test_no_link_in_the_work_folder_opens_what_the_settings_name(
    environ: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    work = home / "proj"
    (work / "certs").mkdir(parents=True)
    (work / "certs/dev.key").write_text("x\n")
    (work / "out").mkdir()
    settings = SandboxSettings(writable=("proj/out",), readable=("~/proj/certs/dev.key",))
    policy = policy_for(work, settings, environ)
    assert not is_hidden(policy, "certs/dev.key")
    assert policy.writable == (str(work),)
    (work / "certs/dev.key").unlink()
    (work / "certs/dev.key").symlink_to(home / ".ssh")
    (work / "out").rmdir()
    (work / "out").symlink_to(home)
    policy = policy_for(work, settings, environ)
    assert is_hidden(policy, "certs/dev.key/id_rsa")
    assert policy.writable == (str(work),)


def test_what_changed_is_named_where_the_folder_was_filled_meanwhile(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_module, "_MOST_LOOKED_AT", 0)
    (tmp_path / "work/tests/conftest.py").write_text("another\n")
    (tmp_path / "work/setup.py").write_text("new\n")
    assert policy.watch.changed() == ["setup.py", "tests/conftest.py"]


def test_no_link_in_a_cache_opens_what_the_settings_name(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    key = tmp_path / "home/.cache/pip/key.pem"
    settings = SandboxSettings(writable=("~/.cache/pip",), readable=("~/.cache/pip/key.pem",))
    key.symlink_to(tmp_path / "home/.ssh")
    policy = policy_for(tmp_path / "work", settings, environ)
    assert is_hidden(policy, str(tmp_path / "home/.ssh/id_rsa"))


def test_what_is_secret_by_its_name_in_the_home_folder_is_hidden(
    environ: dict[str, str], tmp_path: Path
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    for place in ("server.pem", ".env", ".config/credentials.json", ".electrum"):
        (home / place).write_text("x\n")
    (work / "config.toml").write_text("x\n")
    (tmp_path / "app").mkdir()
    (tmp_path / "app/config.toml").symlink_to(work / "config.toml")
    policy = policy_for(work, SandboxSettings(), environ)
    for place in ("server.pem", ".env", ".config/credentials.json", ".electrum"):
        assert is_hidden(policy, str(home / place)), place
    # A configuration that is a link into the work folder is the program's own all the same.
    assert is_hidden(policy, "config.toml")
    assert not policy.may_write("config.toml")


@pytest.mark.exhaustive
def test_the_code_of_this_program_is_held_still(environ: dict[str, str], tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    package = Path(kimi_tui.__file__).parent
    shutil.copytree(package, work / "src/kimi_tui", ignore=shutil.ignore_patterns("__pycache__"))
    for place in (
        work / "lib/site-packages/own-1.dist-info",
        home / ".cache/uv/archive-v0/linked/own-1.dist-info",
        home / ".cache/uv/archive-v0/another/other-1.dist-info",
        home / ".cache/uv/archive-v0/run/site-packages",
    ):
        place.mkdir(parents=True)
    installed = work / "lib/site-packages/own-1.dist-info/METADATA"
    installed.write_text("x\n")
    os.link(installed, home / ".cache/uv/archive-v0/linked/own-1.dist-info/METADATA")
    (home / ".cache/uv/archive-v0/another/other-1.dist-info/METADATA").write_text("x\n")
    script = """
import os, sys
from pathlib import Path
from kimi_tui.tools.sandbox.policy import SandboxSettings, policy_for
settings = SandboxSettings(writable=("~/.cache/uv",))
policy = policy_for(Path(sys.argv[1]), settings, os.environ)
print([path for path in sys.argv[2:] if policy.may_write(path)])
"""
    uv = home / ".cache/uv/archive-v0"
    paths = (work / "src", work / "lib/site-packages", uv / "run/site-packages", work / "zip/x.zip")
    names = ["src/kimi_tui/tools/supervisor.py", "src/kimi_tui/new.py", "lib/site-packages/new.py"]
    names += [f"{uv}/linked/x.py", f"{uv}/run/site-packages/new.py", "zip/x.zip"]
    free = ["app.py", "lib/x.py", f"{uv}/another/x.py", f"{uv}/new/x.py"]
    (work / "zip").mkdir()
    said = subprocess.run(
        [sys.executable, "-c", script, str(work), *names, *free],
        env={**environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == str(free)
    with pytest.raises(NoSandbox, match="inside kimi-tui's own program folder"):
        policy_for(package / "tools", SandboxSettings(), environ)


PLACES = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".oci",
    ".fly",
    ".vercel",
    ".kaggle",
    ".age",
    ".password-store",
    ".huggingface",
    ".terraform.d",
    ".claude",
    ".codex",
    ".gemini",
    ".cursor",
    ".netlify",
    ".config/solana",
    ".config/age",
    ".config/opencode",
    ".local/share/opencode",
    ".electrum",
    ".ethereum",
    ".bitcoin",
    ".heroku",
    ".aliyun",
    ".openai",
    ".qwen",
    ".continue",
    ".config/hcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/gcloud",
    ".config/doctl",
    ".config/rclone",
    ".config/sops",
    ".config/op",
    ".config/1Password",
    ".config/Bitwarden",
    ".config/github-copilot",
    ".config/anthropic",
    ".config/heroku",
    ".config/netlify",
    ".config/fly",
    ".config/configstore",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/Slack",
    ".config/discord",
    ".config/Signal",
    ".mozilla",
    ".thunderbird",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".local/share/com.vercel.cli",
    ".local/share/atuin",
    ".local/share/containers",
    ".local/share/gopass",
    ".mongosh",
    ".nuget/NuGet",
    "Library/Keychains",
    "Library/Cookies",
    "Library/Messages",
    "Library/Mail",
]
FILES_IN_HOME = [
    ".netrc",
    ".pypirc",
    ".npmrc",
    ".yarnrc.yml",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".curlrc",
    ".wgetrc",
    ".smbcredentials",
    ".vault-token",
    ".terraformrc",
    ".claude.json",
    ".Xauthority",
    ".ICEauthority",
    ".databrickscfg",
    ".authinfo",
    ".msmtprc",
    ".mbsyncrc",
    ".composer/auth.json",
    ".config/containers/auth.json",
    ".config/pypoetry/auth.toml",
    ".config/composer/auth.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".bundle/config",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".config/git/credentials",
    ".config/hub",
    ".config/pulse/cookie",
    ".cache/huggingface/token",
    ".local/share/fish/fish_history",
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".node_repl_history",
    ".irb_history",
    ".lesshst",
    ".viminfo",
    ".config/GH.bak/hosts.yml",
]
"""Files that have been hidden in a home folder, by name or place, since there is a sandbox; and a backup."""


@pytest.mark.exhaustive
def test_every_secret_place_counts_below_the_home_folder_alone(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "home/work"
    work.mkdir(parents=True)
    environ = {"HOME": str(home), "KIMI_TUI_HOME": str(tmp_path / "app")}
    for name in (*PLACES, *FILES_IN_HOME):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("token = x\n") if name in FILES_IN_HOME else (home / name).mkdir()
    policy = policy_for(work, SandboxSettings(), environ)
    for name in (*PLACES, *FILES_IN_HOME):
        inner = name if name in FILES_IN_HOME else f"{name}/x"
        # The part of the settings that is not secret is shown.
        text = dict(policy.home.texts).get(str(home / inner))
        assert text == b"" or is_hidden(policy, str(home / inner)), name
        for spelling in (f"~/{inner}", f"~/{inner}".upper()):
            target = locate(spelling, work, environ)
            assert holds_secrets(target, environ), spelling
    for name in (".claude/commands/x.md", ".docker/Dockerfile", ".cursor/x", ".config/discord/x"):
        assert not holds_secrets(locate(name, work, environ), environ), name
    assert holds_secrets(locate("/etc/shadow", work, environ), environ)


def test_secrets_and_caches_count_where_the_environment_has_them(
    environ: dict[str, str], tmp_path: Path
) -> None:
    home, moved, work = (tmp_path / name for name in ("home", "moved", "work"))
    environ |= {
        "XDG_CONFIG_HOME": str(moved / "config"),
        "XDG_CACHE_HOME": str(moved / "cache"),
        "XDG_DATA_HOME": str(work / "share"),
        "XDG_STATE_HOME": "state",
    }
    secret = ("config/gh/x", "config/hub", "config/op/x", "cache/huggingface/token", "config/x.pem")
    within = ("share/opencode/x", "share/containers/x", "share/keyrings/x")
    places = [*(moved / name for name in secret), *(work / name for name in within)]
    for path in (*places, moved / "cache/pip/x", home / ".config/op/x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    policy = policy_for(work, SandboxSettings(), environ)
    for path in (*places, home / ".config/gh/x", home / ".config/op/x"):
        assert is_hidden(policy, str(path)), path
        assert holds_secrets(locate(str(path), work, environ), environ), path
    assert policy.writable == (str(work),)
    for place in (home / ".cache", moved / "cache"):
        assert str(place) in policy.caches.plain
        assert str(place / "pip") in policy.caches.overlaid
    shut = set(shut_below(moved, environ))
    assert {"config/gh", "config/hub", "config/op", "cache/huggingface/token"} <= shut
    passed = child_environment(environ)
    assert passed["XDG_CONFIG_HOME"] == str(moved / "config")
    assert "XDG_STATE_HOME" not in passed


def test_no_project_is_a_cache_where_the_environment_has_caches_in_the_home_folder(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "home/ruff").mkdir()
    environ["XDG_CACHE_HOME"] = environ["HOME"]
    (tmp_path / "work").mkdir()
    policy = policy_for(tmp_path / "work", SandboxSettings(), environ)
    assert policy.writable == (str(tmp_path / "work"),)
    home = str(tmp_path / "home")
    assert policy.caches.covered == (f"{home}/.cache", f"{home}/.cache/pip")


@pytest.mark.parametrize("place", ["dot", "."])
def test_what_runs_later_in_a_folder_of_configurations_counts_as_in_the_home_folder(
    place: str, environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    own = work / place
    (own / "fish").mkdir(parents=True)
    environ["XDG_CONFIG_HOME"] = str(own)
    look = policy_for(work, SandboxSettings(), environ).watch.changed
    (own / "fish/config.fish").touch()
    (own / "zsh").mkdir()
    (own / "zsh/rc").touch()
    (own / "notes").touch()
    assert look() == [
        os.path.normpath(f"{place}/{name}") for name in ("fish/config.fish", "zsh/rc")
    ]
    for name, is_guarded in (("zsh/rc", True), ("zsh/new", True), ("notes", False)):
        target = locate(f"{place}/{name}", work, environ)
        assert bool(protected_reason(target, environ)) is is_guarded, name
    # A folder in it is no home of all these names.
    target = locate("rc", own / "zsh", environ)
    assert not protected_reason(target, environ)


def test_what_comes_into_a_known_folder_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    work, memory = tmp_path / "work", FolderMemory()
    for name in ("a", "a/b", "node_modules/x", "target"):
        (work / name).mkdir(parents=True)
    for name in ("node_modules/.env", "node_modules/x/cert.pem", "target/prod.key"):
        (work / name).touch()
    long_ago = (1_000_000_000, 1_000_000_000)
    for folder in ("", "a", "a/b"):
        os.utime(work / folder, long_ago)

    def hidden() -> set[str]:
        policy = policy_for(work, SandboxSettings(), environ, memory=memory)
        return {os.path.relpath(path, work) for path in policy.hidden if path.startswith(str(work))}

    packages = {"node_modules/.env", "target/prod.key"}
    # Certificates that programs need are files of packages, below the top of their folders.
    assert hidden() == packages
    for step in ("a/b/.env", "a/.env.bak", "server.key"):
        (work / step).touch()
        # Setting the time back does not hide the change.
        os.utime(work / step.rpartition("/")[0], long_ago)
        packages.add(step)
        assert hidden() == packages
    (work / "a/.env.bak").rename(work / "a/notes")
    assert hidden() == packages - {"a/.env.bak"}


def test_a_folder_that_is_known_is_not_listed_again(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, memory = tmp_path / "work", FolderMemory()
    (work / "a").mkdir(parents=True)
    (work / "a/.env").touch()
    monkeypatch.setattr(policy_module, "SETTLED_NS", -(10**12))
    first = policy_for(work, SandboxSettings(), environ, memory=memory)
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(str(path)), scandir(path))[1])
    assert policy_for(work, SandboxSettings(), environ, memory=memory).hidden == first.hidden
    assert not [path for path in listed if path.startswith(str(work))]
    # Another work folder is judged by its own names.
    assert policy_for(work / "a", SandboxSettings(), environ, memory=memory).watch.secrets


def test_a_folder_that_is_filled_with_files_is_hidden_and_the_sandbox_stays(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    for path in ("src/app.py", "z/deep/.env", "data/1"):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).touch()
    monkeypatch.setattr(policy_module, "_MOST_LOOKED_AT", 60)
    monkeypatch.setattr(policy_module, "_MOST_IN_FOLDER", 30)
    memory = FolderMemory()
    first = policy_for(work, SandboxSettings(), environ, memory=memory)
    (work / "aaa").mkdir()
    for n in range(50):
        (work / "aaa" / str(n)).touch()
        (work / "b" / str(n)).mkdir(parents=True)
        (work / str(n)).touch()
    assert first.watch.changed() == []
    for known in (memory, None):
        found = policy_for(work, SandboxSettings(), environ, memory=known)
        for name in ("aaa/1", "b/1", "z/deep/.env"):
            assert is_hidden(found, name), name
        for name in ("1", "z/x") if known else ("1",):
            assert not is_hidden(found, name), name
        assert found.may_write("new")
    assert {os.path.relpath(one, work) for one in memory.unseen} >= {"aaa", "b"}
    shown = SandboxSettings(readable=(str(work / "aaa"),))
    assert not is_hidden(policy_for(work, shown, environ), "aaa/1")
    # There are too many folders to cover one by one, so the folder that holds them is covered.
    monkeypatch.setattr(policy_module, "_MOST_IN_FOLDER", 60)
    monkeypatch.setattr(policy_module, "_MOST_UNSEEN", 20)
    found = policy_for(work, SandboxSettings(), environ, memory=memory)
    assert is_hidden(found, "b/1")
    assert not is_hidden(found, "src/app.py")
    assert len(found.hidden) < 25
    # At the top nothing holds them.
    for n in range(50):
        (work / f"c{n}").mkdir()
        (work / f"c{n}/x").touch()
    with pytest.raises(NoSandbox, match="more than 60 files"):
        policy_for(work, SandboxSettings(), environ, memory=memory)


@pytest.mark.sample(2)
@pytest.mark.parametrize("much", ["secrets", "words", "length", "modules", "trees"])
def test_there_is_none_where_too_much_would_have_to_be_looked_at(
    much: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git("init", "-q", within=work)
    policy_for(work, SandboxSettings(), environ)
    for limit in ("_MOST_LOOKED_AT", "_MOST_NAMED", "_MOST_REPOSITORIES"):
        monkeypatch.setattr(policy_module, limit, 9)
    for n in range(12):
        if much == "secrets":
            monkeypatch.setattr(policy_module, "_MOST_LOOKED_AT", 99)
            monkeypatch.setattr(policy_module, "_MOST_GUARDED", 9)
            (work / f"{n}.pem").touch()
        elif much in ("modules", "trees"):
            (work / ".git" / {"trees": "worktrees"}.get(much, much) / str(n)).mkdir(parents=True)
    (work / "new").mkdir()
    settings = {"words": f"[alias]\n\ta = {'a/b ' * 12}\n", "length": "#" * (1 << 18)}
    with open(work / ".git/config", "a") as file:
        file.write(settings.get(much, ""))
    with pytest.raises(NoSandbox, match=r"more than 9|too long"):
        policy_for(work, SandboxSettings(), environ)


def test_there_is_none_where_all_that_is_secret_lies(
    environ: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for folder, why in ((home, "home folder"), (tmp_path, "home folder"), (home / ".ssh", ".ssh")):
        with pytest.raises(NoSandbox, match=why):
            policy_for(folder, SandboxSettings(), environ)


def test_the_settings_open_what_they_name(environ: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    settings = SandboxSettings(
        writable=("~/made", "~/.ssh", "~", "/"), readable=("~/.config/gh",), network=True
    )
    (tmp_path / "home" / "made").mkdir()
    found = policy_for(work, settings, environ)
    assert found.writable == (str(work), str(tmp_path / "home" / "made"))
    assert not is_hidden(found, str(tmp_path / "home/.config/gh/hosts.yml"))
    assert found.network
    assert SandboxSettings(*SandboxConfig()) == SandboxSettings()
    assert SandboxSettings._fields == SandboxConfig._fields


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("cat: /a/b: No such file or directory", ["/a/b"]),
        ("cat: /a/b: Permission denied", ["/a/b"]),
        ("touch: cannot touch '/etc/x': Read-only file system", []),
        ("it works", []),
    ],
)
def test_what_could_not_be_read_is_named_in_a_line(line: str, paths: list[str]) -> None:
    assert list(dict.fromkeys(paths_in_error(line))) == paths


@each(
    "output, what",
    [
        ("touch: cannot touch '/etc/x': Read-only file system", ["writing /etc/x"]),
        ("OSError: [Errno 30] Read-only file system: '/opt/x'", ["writing /opt/x"]),
        ("/bin/sh: 1: cannot create /opt/x: Permission denied", ["writing /opt/x"]),
        ("/bin/bash: line 1: Makefile: Read-only file system", ["writing Makefile"]),
        ("/bin/bash: line 12: /opt/x y: Read-only file system", ["writing /opt/x y"]),
        ("/bin/bash: line 1: made: Permission denied", []),
        ("/bin/sh: 1: cannot create Makefile: Permission denied", ["writing Makefile"]),
        ("cat: .env: Permission denied", ["reading .env"]),
        ("cat: .env: No such file or directory", ["reading .env"]),
        ("ls: cannot access '/opt/x': No such file or directory", []),
        ("bash: ./run.sh: Permission denied", []),
        (
            "error: could not write config file .git/config: Device or resource busy",
            ["writing .git/config"],
        ),
        ("EROFS: read-only file system, open '/opt/x'", ["writing /opt/x"]),
        ("npm error errno EAI_AGAIN\ncurl: (6) Could not resolve host: x.y", ["the network"]),
        ("AssertionError: 1 != 2", []),
        (
            "mv: cannot move 'tests' to 'x': Device or resource busy",
            ["renaming tests (files in that folder are protected; copying it works)"],
        ),
        ("mv: cannot move 'sub' to 'x': Invalid cross-device link", []),
        ("mv: cannot move 'sub' to '/tmp/x': Invalid cross-device link", []),
        (
            "cp: cannot create special file 'copy/.env': Operation not permitted",
            ["copying a file hidden by the sandbox to copy/.env"],
        ),
        (
            "\n".join(f"touch: cannot touch '/opt/{n}': Read-only file system" for n in "abcbd"),
            ["writing /opt/a", "writing /opt/b", "writing /opt/c"],
        ),
    ],
)
def test_what_was_refused_is_told_from_the_output(
    policy: Policy, output: str, what: list[str]
) -> None:
    assert refused(output, policy) == what


def test_a_sandbox_that_does_not_hold_fails_the_tests_that_need_one(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> Sandbox:
        raise NoSandbox("the test did not end")

    monkeypatch.setattr(covered, "find_sandbox", none)
    monkeypatch.setattr(covered, "trouble_with", lambda _: "the test did not end")
    tries = bubblewrap if sandbox.backend == "bwrap" else lambda: whole_sandbox(Path(__file__))
    with pytest.raises(pytest.fail.Exception, match="does not hold: the test did not end"):
        tries()


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
@pytest.mark.parametrize(
    "tries",
    [needs_landlock, lambda: whole_sandbox(Path.home()), lambda: search_sandbox("landlock")],
    ids=["landlock", "commands", "searches"],
)
def test_without_landlock_the_tests_that_need_it_fail_unless_the_machine_is_said_to_have_none(
    tries: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(covered, "is_covered", lambda _: False)
    monkeypatch.setattr(confine, "landlock_abi", lambda: -1)
    monkeypatch.delenv(covered.WITHOUT, raising=False)
    with pytest.raises(pytest.fail.Exception, match="has no Landlock"):
        tries()
    monkeypatch.setenv(covered.WITHOUT, "landlock")
    with pytest.raises(pytest.skip.Exception, match="says that there is no Landlock"):
        tries()


async def test_with_the_network_a_command_reaches_it(
    sandbox: Sandbox, environ: dict[str, str], policy: Policy
) -> None:
    here = Sandbox(sandbox.backend, sandbox.settings, environ, sandbox.program)
    with socket.create_server(("127.0.0.1", 0)) as ear:
        said = f"echo hello > /dev/tcp/127.0.0.1/{ear.getsockname()[1]}"
        for network in (True, False):
            confined = here.confined(["/bin/bash", "-c", said], Path(policy.work), network=network)
            command = RunningCommand(
                confined.argv,
                work_dir=Path(policy.work),
                environ=confined.environ,
                timeout_s=20,
                on_output=lambda text: None,
                confined_to=confined.words,
            )
            assert (await command.run()).exit_code == (0 if network else 1)
    here.remove_temporary()


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_bubblewrap_is_told_the_same(policy: Policy) -> None:
    arguments = " ".join(bwrap_arguments(policy, "/tmp/own"))
    assert re.search(rf"--bind-fd \d+ {policy.work} ", arguments)
    assert re.search(rf"--ro-bind-fd \d+ {policy.work}/.git/hooks ", arguments)
    assert "--ro-bind-try /proc/sys /proc/sys" in arguments
    assert "--unshare-net" in arguments
    assert "--unshare-net" not in bwrap_arguments(replace(policy, network=True), "/tmp/own")
    assert "--seccomp" in arguments


def test_bubblewrap_empties_the_home_folder_before_it_shows_and_hides_the_rest_after(
    policy: Policy, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for name in ("keys/one", "keys/two", "tools/x", "secret"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("x\n")
    view = HomeView(
        str(home),
        emptied=(str(home),),
        shown=(f"{home}/tools",),
        links=((f"{home}/.vimrc", "dotfiles/vimrc"),),
        texts=((f"{home}/.gitconfig", b"a\n"), (f"{home}/.npmrc", b"b\n")),
    )
    hidden = (f"{home}/keys", f"{home}/keys/one", f"{home}/secret", f"{home}/gone")
    policy = replace(policy, home=view, hidden=hidden)
    given = bwrap_arguments(policy, "/tmp/own")
    binds = [
        number
        for number, (flag, path) in enumerate(zip(given, given[2:], strict=False))
        if flag.endswith("bind-fd") and path.startswith(policy.work)
    ]
    # The descriptors of the texts follow those of the paths that are mounted.
    first = max(int(given[number + 1]) for number in binds) + 1
    steps = [
        ["--ro-bind", "/", "/"],
        ["--bind", "/tmp/own", "/tmp"],
        ["--perms", "755", "--tmpfs", str(home)],
        ["--ro-bind-try", f"{home}/tools", f"{home}/tools"],
        ["--perms", "644", "--ro-bind-data", str(first), f"{home}/.gitconfig"],
        ["--perms", "644", "--ro-bind-data", str(first + 1), f"{home}/.npmrc"],
        ["--symlink", "dotfiles/vimrc", f"{home}/.vimrc"],
        given[binds[0] : binds[0] + 3],
        given[binds[-1] : binds[-1] + 3],
        ["--remount-ro", str(home)],
        ["--perms", "000", "--tmpfs", f"{home}/keys", "--remount-ro", f"{home}/keys"],
        ["--ro-bind", "/dev/null", f"{home}/secret"],
        ["--unshare-ipc", "--unshare-pid", "--unshare-user-try", "--cap-drop", "ALL"],
    ]
    places = [
        next(n for n in range(len(given)) if given[n : n + len(step)] == step) for step in steps
    ]
    assert places == sorted(places)
    # What is covered by a folder, or missing, needs no cover of its own, which would fail.
    assert not {f"{home}/keys/one", f"{home}/gone"}.intersection(given)
    if os.path.exists("/proc/keys"):
        assert given[given.index("/proc/keys") - 2 :][:2] == ["--ro-bind", "/dev/null"]


def test_behind_bubblewrap_a_command_is_confined_by_landlock_too(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "_COVERED", ("/nowhere/",))
    monkeypatch.setattr(confine, "landlock_abi", lambda: 1)
    for network, word in ((True, "on"), (False, "off")):
        argv = sandbox_module._behind_bubblewrap(
            ["/bin/true", "x"], replace(policy, network=network)
        )
        words = [f"network:{word}", *(f"write:{path}" for path in policy.writable)]
        assert argv[-len(words) - 3 :] == [str(len(words)), *words, "/bin/true", "x"]
        assert argv[0] == sys.executable
    # Without it, or where the interpreter would be missing, a shell begins.
    for name, value in (("landlock_abi", lambda: 0), ("landlock_abi", lambda: 1)):
        monkeypatch.setattr(confine, name, value)
        shell = sandbox_module._behind_bubblewrap(["/bin/true", "x"], policy)
        assert shell[0] == "/bin/sh"
        assert shell[-2:] == ["/bin/true", "x"]
        monkeypatch.setattr(sandbox_module, "_COVERED", ("/",))


def test_macos_shows_what_is_readable_and_its_private_folder(
    policy: Policy, tmp_path: Path
) -> None:
    home = str(tmp_path / "home")
    view = HomeView(home, emptied=(home,), shown=(f"{home}/tools",))
    policy = replace(policy, home=view, sockets=("/a.sock",), hidden=(f"{home}/tools/key",))
    rules = macos_profile(policy, "/tmp/own", f"{home}/app/private").split("\n")
    order = [
        f'(deny file-read* (subpath "{home}"))',
        f'(allow file-read-metadata (subpath "{home}"))',
        f'(allow file-read* (subpath "{home}/tools"))',
        f'(allow file-read* (subpath "{policy.work}"))',
        '(allow file-read* (subpath "/tmp/own"))',
        f'(deny file-read* file-write* (subpath "{home}/tools/key"))',
        '(deny file-read* file-write* (subpath "/a.sock"))',
        f'(allow file-read* file-write* (subpath "{home}/app/private"))',
        f'(deny file-write-unlink (literal "{home}/app/private"))',
    ]
    places = [rules.index(rule) for rule in order]
    assert places == sorted(places)
    rules = macos_profile(replace(policy, home=HomeView(home)), "/tmp/own").split("\n")
    assert not any(rule.startswith("(allow file-read* ") for rule in rules)


def test_macos_is_told_the_same(policy: Policy) -> None:
    # Other tests may have sockets with odd names at this moment.
    policy = replace(policy, sockets=())
    rules = macos_profile(policy, "/tmp/own").split("\n")
    work = policy.work

    def at(rule: str) -> int:
        return rules.index(rule)

    assert all(rule.count("(") == rule.count(")") and rule.count('"') % 2 == 0 for rule in rules)
    allowed = at(f'(allow file-write* (subpath "{work}"))')
    assert allowed < at(f'(deny file-write* (subpath "{work}/.git/hooks"))')
    # Neither the folders on the way nor the folder itself can be renamed, because the rules go by path.
    for path in (work, f"{work}/.git", f"{work}/tests"):
        assert allowed < at(f'(deny file-write-unlink (literal "{path}"))'), path
    assert at(f'(deny file-read* file-write* (subpath "{work}/tests/.env.local"))')
    # The own end of every connection is a local one.
    assert not any("network" in rule and "ip" in rule for rule in rules)
    assert at("(deny network*)") < at(
        '(allow network-outbound (remote unix-socket (subpath "/tmp/own")))'
    )
    # `target others` is passed over by newer systems.
    assert at("(deny signal)") < at("(allow signal (target same-sandbox))")
    assert at("(deny process-info*)") < at("(allow process-info* (target same-sandbox))")
    online = macos_profile(replace(policy, network=True), "/tmp/own").split("\n")
    assert "(deny network*)" not in online
    assert "(deny network-outbound (remote unix-socket))" in online
    odd = macos_profile(replace(policy, hidden=('/a"b\\c',)), "/tmp/own")
    assert r'(subpath "/a\"b\\c")' in odd


OPERATIONS = {
    *(
        "appleevent-send",
        "default",
        "file-read*",
        "file-read-metadata",
        "file-write*",
        "job-creation",
    ),
    *(
        "file-write-unlink",
        "file-write-setugid",
        "lsopen",
        "mach-lookup",
        "mach-priv-task-port",
        "network*",
        "signal",
    ),
    *("network-bind", "network-outbound", "process-info*"),
}
"""Operations that Apple's own profiles name."""
FILTERS = {"global-name": str, "literal": str, "subpath": str, "target": list, "local": list}
FILTERS["remote"] = list


def forms(profile: str) -> list[Any]:
    """Return the rules of a profile: lists of words and, in a tuple each, strings. Fails if it is not balanced."""
    found: list[list[Any]] = [[]]
    for token in re.finditer(
        r'\s+|[()]|"((?:[^"\\]|\\["\\])*)"|[^\s()";#]+|(.)', profile, re.DOTALL
    ):
        assert token[2] is None, token
        if token[0] == "(":
            found.append([])
        elif token[0] == ")":
            ended = found.pop()
            found[-1].append(ended)
        elif token[1] is not None:
            found[-1].append((re.sub(r"\\(.)", r"\1", token[1]),))
        elif not token[0].isspace():
            found[-1].append(token[0])
    (whole,) = found
    return whole


@pytest.mark.parametrize("network", [False, True])
def test_what_macos_is_told_can_be_read(policy: Policy, network: bool) -> None:
    odd = '/a"b\\c (d) ; #e\nf'
    told = replace(policy, network=network, hidden=(*policy.hidden, odd), kept=(odd,))
    version, default, *rules = forms(macos_profile(told, odd))
    assert (version, default) == (["version", "1"], ["allow", "default"])
    for verb, *said in rules:
        assert verb in ("allow", "deny")
        operations = [one for one in said if isinstance(one, str)]
        assert operations
        assert OPERATIONS.issuperset(operations)
        for name, *of in said[len(operations) :]:
            assert FILTERS[name] is not str or [type(one) for one in of] == [tuple]
    assert ["deny", "file-read*", "file-write*", ["subpath", (odd,)]] in rules


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_bubblewrap_comes_before_landlock_alone(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bwrap = tmp_path / "bin" / "bwrap"
    bwrap.parent.mkdir()
    bwrap.write_text("#!/bin/sh\n")
    bwrap.chmod(0o755)
    tried: list[str] = []

    def trouble(one: Sandbox) -> str:
        tried.append(one.backend)
        return "" if one.backend == "bwrap" else "no namespaces"

    monkeypatch.setattr("kimi_tui.tools.sandbox.sandbox.trouble_with", trouble)
    found = find_sandbox(SandboxSettings(), {**environ, "PATH": str(bwrap.parent)})
    assert (found.backend, found.program, found.is_whole) == ("bwrap", str(bwrap), True)
    assert tried == ["full", "bwrap"]
    # A program in the work folder is not asked to confine anything.
    with pytest.raises(NoSandbox):
        find_sandbox(SandboxSettings(), {**environ, "PATH": str(bwrap.parent)}, tmp_path)
    assert tried[2:] == ["full", "landlock"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("held", "trouble"),
    [
        # The shell of the trial runs this first, so that its attempts seem refused; it is not confined otherwise.
        ("cd /proc", "the test could not write in the work folder"),
        ("TMPDIR=/proc", "the test had no temporary folder"),
        ("", "the test could read secrets"),
        ("read() { return 1; }", "the test could signal other processes"),
        (
            "read() { return 1; }; kill() { return 1; }",
            "the test could write outside the work folder",
        ),
        (
            "read() { return 1; }; kill() { return 1; }; set -- /proc/1/no",
            "the test could write git hooks",
        ),
        (
            'read() { return 1; }; kill() { return 1; }; shift; set -- "$1"',
            "the test could write outside the work folder",
        ),
        ("echo held; exit", ""),
        ("exit", "the test could not be run"),
    ],
)
def test_a_trial_says_what_does_not_hold(
    held: str,
    trouble: str,
    environ: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unconfined(_: Sandbox, argv: list[str], work_dir: Path) -> Confined:
        shell, option, script, *rest = argv
        policy = policy_for(work_dir, SandboxSettings(), environ)
        said = (shell, option, f"{held}\n{script}", *rest)
        return Confined(said, {**environ, "TMPDIR": str(tmp_path)}, (), policy)

    monkeypatch.setattr(Sandbox, "confined", unconfined)
    assert trouble_with(Sandbox("full", SandboxSettings(), environ)) == trouble
    # The files of the trial are removed.
    assert [path for path in (tmp_path / "home").iterdir() if "trial" in path.name] == []


_ENDS_IN_TRIAL = """
import os, threading
from contextlib import suppress
from itertools import count
from kimi_tui import temporary_folders
from kimi_tui.tools.sandbox.sandbox import Sandbox, SandboxSettings, trouble_with

temporary_folders._AWAITED_S = 0.05
begun = threading.Event()

def writes(_, argv, work_dir):
    for n in count():
        with suppress(OSError):
            (work_dir / str(n % 200)).mkdir()
        if n == 100:
            begun.set()

Sandbox.confined = writes
tried = Sandbox("full", SandboxSettings(), dict(os.environ))
threading.Thread(target=trouble_with, args=(tried,), daemon=True).start()
begun.wait()
"""


def test_a_program_that_ends_during_a_trial_says_nothing_about_its_files(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_IN_TRIAL],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert ended.stderr == b""


_STOPS_IN_TRIAL = """
import os, threading
from kimi_tui.cli import _end_at_once
from kimi_tui import temporary_folders
from kimi_tui.tools.sandbox.sandbox import Sandbox, SandboxSettings, trouble_with

temporary_folders._AWAITED_S = 0.05
begun = threading.Event()
usual = Sandbox.confined

def stops(self, *arguments):
    usual(self, *arguments)
    begun.set()
    threading.Event().wait()

Sandbox.confined = stops
tried = Sandbox("landlock", SandboxSettings(), dict(os.environ))
threading.Thread(target=trouble_with, args=(tried,), daemon=True).start()
begun.wait()
print(os.listdir(os.environ["TMPDIR"]))
_end_at_once(0)
"""


def test_a_run_that_ends_during_a_trial_leaves_no_temporary_folder(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _STOPS_IN_TRIAL],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert b"kimi-tui-run-trial-" in ended.stdout
    assert ended.stderr == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("held", ["output", "itself"])
def test_a_trial_that_does_not_end_is_ended(
    held: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, pid = tmp_path / "pipe", tmp_path / "pid"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    # Stopped, the supervisor neither reports nor kills; its output is closed, so that all there is to say was said.
    stop = "kill -STOP $PPID; exec >&-; " if held == "itself" else ""
    script = f"echo $$ > {pid}; exec 3> {pipe}; echo held; {stop}exec sleep 60"

    def hangs(_: Sandbox, _argv: list[str], work_dir: Path) -> Confined:
        policy = policy_for(work_dir, SandboxSettings(), environ)
        return Confined(("/bin/sh", "-c", script), environ, (), policy)

    monkeypatch.setattr(Sandbox, "confined", hangs)
    monkeypatch.setattr("kimi_tui.tools.sandbox.sandbox._TRIAL_S", 1.0)
    monkeypatch.setattr("kimi_tui.tools.sandbox.sandbox._END_S", 1.0)
    assert trouble_with(Sandbox("full", SandboxSettings(), environ)) == "the test did not end"
    if held == "itself":
        os.kill(int(pid.read_text()), signal.SIGKILL)
    # Nobody holds the other end any more.
    assert select.select([reading], [], [], 10)[0]
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_what_runs_later_in_folders_of_packages_is_named(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    changed = (
        "node_modules/.bin/eslint",
        "venv/bin/activate",
        "packages/app/node_modules/.bin/x",
        "venv/lib/python3.12/site-packages/y.pth",
        ".tox/py312/bin/pytest",
    )
    for name in (*changed, "venv/lib/python3.12/site-packages/z.py", "vite.config.ts", "sub/.lenv"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("old\n")
    program = work / "node_modules/prettier/bin.js"
    program.parent.mkdir()
    program.write_text("old\n")
    (work / "node_modules/.bin/prettier").symlink_to("../prettier/bin.js")
    look = policy_for(work, SandboxSettings(), environ).watch
    assert look.changed() == []
    for path in (*(work / name for name in changed), program):
        times = path.stat()
        path.write_text("new\n")
        # `touch -r` does this; the other time of a file cannot be set.
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for name in (
        ".venv/bin/activate",
        ".terraform/providers/a/b/c/d/x",
        "sub/.lenv",
        "web/vite.config.ts",
    ):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("new\n")
    (work / "venv/lib/python3.12/site-packages/z.py").write_text("new\n")
    assert sorted(look.changed()) == sorted(
        (
            *changed,
            "node_modules/.bin/prettier",
            ".venv/bin/activate",
            ".terraform/providers/a/b/c/d/x",
            "sub/.lenv",
            "web/vite.config.ts",
        )
    )


def test_repositories_deep_in_the_folder_are_held_still_and_new_ones_named(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    deep = work / "a/b/c/d/e/f/g"
    deep.mkdir(parents=True)
    git("init", "-q", within=deep)
    found = policy_for(work, SandboxSettings(), environ)
    for name in ("hooks/new", "config", "remotes/origin"):
        assert not found.may_write(str(deep / ".git" / name)), name
    assert found.may_write(str(deep / ".git/index"))
    assert str(deep / ".git") in found.watch.git_folders()
    git("init", "-q", "--bare", "a/b/c/d/e/x/y", within=work)
    assert found.watch.changed() == ["a/b/c/d/e/x/y/config"]


def test_in_an_added_folder_no_repository_is_written_and_secrets_are_hidden(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work, added = tmp_path / "work", tmp_path / "added"
    work.mkdir()
    for name in ("deep/sub/.git/HEAD", ".env", "deep/.env", "Makefile", "deep/x", "filled/.env"):
        (added / name).parent.mkdir(parents=True, exist_ok=True)
        (added / name).write_text("x\n")
    git("init", "-q", within=added)
    found = policy_for(work, SandboxSettings(), environ, added=[str(added)])
    for name in ("x", "deep/x", "deep/sub/y"):
        assert found.may_write(str(added / name)), name
    for name in (".git/index", "deep/sub/.git/index", "Makefile"):
        assert not found.may_write(str(added / name)), name
        assert not is_hidden(found, str(added / name)), name
    for name in (".env", "deep/.env"):
        assert is_hidden(found, str(added / name)), name
    # The user's setting opens one of them.
    settings = SandboxSettings(readable=(str(added / ".env"),))
    found = policy_for(work, settings, environ, added=[str(added)])
    assert not is_hidden(found, str(added / ".env"))
    assert is_hidden(found, str(added / "deep/.env"))


def test_a_repository_is_a_folders_own_only_if_nothing_of_it_comes_from_elsewhere(
    tmp_path: Path,
) -> None:
    top, other = tmp_path / "top", tmp_path / "other"
    for place in (top, other):
        place.mkdir()
        git("init", "-q", within=place)
        git("commit", "-q", "--allow-empty", "-m", "x", within=place)
    git("worktree", "add", "-q", str(tmp_path / "tree"), within=top)
    assert is_own_repository(str(top))
    assert is_own_repository(str(tmp_path / "tree"))
    for name, text in (("objects/info/alternates", f"{other}/.git/objects\n"), ("commondir", ".")):
        (top / ".git" / name).write_text(text)
        assert has_parts_elsewhere(str(top / ".git"))
        assert not is_own_repository(str(top))
        (top / ".git" / name).unlink()
    (top / ".git/refs/heads").rename(top / "heads")
    (top / ".git/refs/heads").symlink_to(top / "heads")
    assert not is_own_repository(str(top))
    link = tmp_path / "link"
    link.mkdir()
    (link / ".git").symlink_to(other / ".git")
    assert not is_own_repository(str(link))
    # A file `.git` may name a repository in the folder, or one that names the folder.
    (link / ".git").unlink()
    (link / ".git").write_text(f"gitdir: {other}/.git\n")
    assert not is_own_repository(str(link))
    git("config", "core.worktree", str(top), within=other)
    assert not is_own_repository(str(link))
    git("config", "core.worktree", "../../link", within=other)
    assert is_own_repository(str(link))
    git("config", "--unset", "core.worktree", within=other)
    (other / ".git").rename(link / "own")
    (link / ".git").write_text("gitdir: own\n")
    assert is_own_repository(str(link))


def test_a_path_in_a_file_of_gits_is_read_as_git_reads_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "work"
    # A line end within belongs to the name.
    for name in ("own", "own\nx"):
        (work / name).mkdir(parents=True)
        (work / name / "config").write_text("x\n")
    (work / ".git").write_text("gitdir: own\nx\n")
    found = policy_for(work, SandboxSettings(), environ)
    assert not found.may_write(str(work / "own\nx/config"))
    (work / ".git").write_bytes(b"gitdir: own\0x\n")
    assert not policy_for(work, SandboxSettings(), environ).may_write(str(work / "own/config"))
