"""Files that let a command choose what the user's git runs are undone while the command lives; git's own work continues."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from support.kernel_events import need_an_instance

from kimi_tui.filesystem import all_is_read
from kimi_tui.tools.sandbox import git_watch as module
from kimi_tui.tools.sandbox.git_levers import (
    ASIDE,
    held_levers,
    inner_repositories,
    is_of_objects,
    levers,
    put_aside,
)
from kimi_tui.tools.sandbox.git_watch import GitNews, GitWatch, WatchedCommand
from kimi_tui.tools.sandbox.policy import SandboxSettings, policy_for
from kimi_tui.workspace.folder_watch import LOST, FolderWatch, NameEvent

_WAIT_S = 20.0


def git(*words: str, within: Path) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *settings, *words], cwd=within, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}


@pytest.fixture(scope="session")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of one commit, which tests copy."""
    place = tmp_path_factory.mktemp("committed")
    git("init", "-q", within=place)
    (place / "a").write_text("a\n")
    git("add", ".", within=place)
    git("commit", "-q", "-m", "x", within=place)
    return place


@pytest.fixture
def work(tmp_path: Path, committed: Path) -> Path:
    return Path(shutil.copytree(committed, tmp_path / "work", symlinks=True))


@pytest.fixture
def command(work: Path, environ: dict[str, str]) -> Callable[[], WatchedCommand]:
    return lambda: WatchedCommand(policy_for(work, SandboxSettings(), environ).watch)


def write(path: Path, text: str = "x\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def bare(path: Path) -> None:
    for name in ("objects", "refs"):
        (path / name).mkdir(parents=True)
    write(path / "HEAD", "ref: refs/heads/main\n")


def linked(path: Path) -> None:
    """Turn the repository into a linked working tree, whose settings would be elsewhere."""
    write(path / "HEAD", "ref: refs/heads/main\n")
    write(path / "commondir", "../../../x\n")


def behind_a_link(path: Path) -> None:
    path.rename(path.parent / "moved")
    write(path.parent.parent / "x/attributes")
    path.symlink_to("../x")


_LEVERS: dict[str, Callable[[Path], None]] = {
    "commondir": lambda git: write(git / "commondir", "../x\n"),
    "commondir by a link": lambda git: (git / "commondir").symlink_to("../a"),
    "commondir by a rename": lambda git: (write(git / "y"), (git / "y").rename(git / "commondir"))[
        0
    ],
    "commondir of a working tree": lambda git: linked(git / "worktrees/e"),
    "commondir with a line end": lambda git: write(git / "worktrees/e/commondir", "../..\nx"),
    "remotes/origin": lambda git: write(git / "remotes/origin", "URL: .git/ev.git\n"),
    "branches/origin": lambda git: write(git / "branches/origin"),
    "info/attributes": lambda git: write(git / "info/attributes"),
    "info by a link": lambda git: behind_a_link(git / "info"),
    "objects/info/alternates": lambda git: write(git / "objects/info/alternates"),
    "a repository within": lambda git: bare(git / "ev.git"),
    "a repository deeper within": lambda git: bare(git / "x/y/ev.git"),
    "a repository among references": lambda git: bare(git / "refs/ev.git"),
    "one of a submodule": lambda git: write(git / "modules/lib/commondir", "../x"),
    "addresses of a submodule": lambda git: write(git / "modules/lib/remotes/origin"),
    "a repository in a submodule's": lambda git: bare(git / "modules/lib/x.git"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("by_kernel", [True, False], ids=["watched", "looked for"])
@pytest.mark.parametrize("lever", _LEVERS)
def test_a_lever_is_undone_while_a_command_lives(
    lever: str,
    by_kernel: bool,
    work: Path,
    command: Callable[[], WatchedCommand],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if by_kernel:
        need_an_instance()
    else:

        def none(*_: object, **__: object) -> None:
            raise OSError("no inotify")

        monkeypatch.setattr(module, "FolderWatch", none)
    bare(work / ".git/modules/lib")
    write(work / ".git/modules/lib/config", "")
    (work / ".git/remotes").mkdir()
    told: SimpleQueue[GitNews] = SimpleQueue()
    watch = GitWatch()
    watch.listen(told.put)
    first = command()
    with watch.around(first):
        _LEVERS[lever](work / ".git")
        if not by_kernel:
            # The news comes when any other command begins.
            with watch.around(command()):
                pass
        news = told.get(timeout=_WAIT_S)
        assert news.undone
        assert not news.is_ended
        left = [*levers(f"{work}/.git"), *levers(f"{work}/.git/modules/lib", is_module=True)]
        assert left == []
    assert first.undone == [*news.undone]
    if lever != "a repository among references":
        git("status", within=work)


def hard_link(git: Path) -> None:
    write(git / "worktrees/e/commondir", "../..\n")
    os.link(git / "worktrees/e/commondir", git / "y")


def test_each_lever_is_found_by_itself(tmp_path: Path) -> None:
    made = {
        **{name: make for name, make in _LEVERS.items() if "submodule" not in name},
        "commondir with another name": hard_link,
        "commondir as a link": lambda git: (git / "worktrees/e/commondir").symlink_to("../../y"),
        "long commondir": lambda git: write(git / "worktrees/e/commondir", "../.." + "/" * 9_000),
        "remotes by a link": lambda git: (git / "remotes").symlink_to("x"),
        "worktrees by a link": lambda git: (git / "worktrees").symlink_to("x"),
    }
    for number, (name, make) in enumerate(made.items()):
        repository = tmp_path / str(number) / ".git"
        (repository / "worktrees/e").mkdir(parents=True)
        (repository / "objects/info").mkdir(parents=True)
        (repository / "info").mkdir()
        if name == "worktrees by a link":
            shutil.rmtree(repository / "worktrees")
        assert [*levers(str(repository))] == []
        make(repository)
        (found,) = levers(str(repository))
        # A link is what can be put aside, and nothing behind it.
        if name.endswith(" by a link"):
            assert found == name.partition(" ")[0]
    # git writes the file of a new working tree in two steps; a submodule's repositories are those of the one around it.
    repository = tmp_path / "good/.git"
    write(repository / "worktrees/e/commondir", "")
    write(repository / "worktrees/f/commondir", "../..\n")
    bare(repository / "modules/lib")
    assert [*levers(str(repository))] == []
    bare(repository / "x.git")
    assert [*levers(str(repository))] == ["x.git/HEAD"]
    assert [*levers(str(repository), is_module=True)] == []


def test_folders_of_objects_alone_are_not_looked_into(tmp_path: Path) -> None:
    for place, name, wanted in (
        ("objects", "0f", True),
        ("x.git/lfs/objects", "0f", True),
        ("refs/heads", "0f", False),
        ("objects", "abc", False),
        ("objects", "a", False),
        ("objects", "..", False),
    ):
        assert is_of_objects(place, name) == wanted, (place, name)
    repository = tmp_path / ".git"
    for name in (
        "objects/0f",
        "objects/info",
        "a.git",
        "b/c.git",
        "modules/lib",
        "modules/x/d.git",
    ):
        bare(repository / name)
    assert {*inner_repositories(str(repository))} == {
        *("objects/info", "a.git", "b/c.git"),
    }


class Kernel:
    """Plays the kernel: it watches no folder, and tells what the test says."""

    def __init__(self, tell: Callable[[list[NameEvent]], None], *, most: int) -> None:
        self.tell, self.watched, self.most = tell, dict[str, bool](), most

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(self.watched)

    def add(self, path: str, _folder: int, *, writes: bool = False) -> bool:
        self.watched[path] = writes
        return True

    def remove(self, path: str) -> None:
        del self.watched[path]


def test_events_of_folders_that_are_watched_no_more_hide_none_behind_them(
    work: Path, command: Callable[[], WatchedCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Kernel] = []

    def kernel(*given: Any, **options: Any) -> Kernel:
        made.append(Kernel(*given, **options))
        return made[-1]

    monkeypatch.setattr(module, "FolderWatch", kernel)
    told: list[GitNews] = []
    watch = GitWatch()
    watch.listen(told.append)
    (work / "sub").mkdir()
    with watch.around(command()):
        repository = work / ".git"
        watched = made[0].watched
        # Files of a repository are watched for writes too.
        assert watched[str(repository)]
        assert not watched[str(work / "sub")]
        assert str(repository / "objects/info") in watched
        write(repository / "commondir", ".")
        made[0].tell([NameEvent(str(repository), "x", False)])
        assert told == []
        made[0].tell(
            [
                NameEvent("/gone", "x", False),
                NameEvent(str(repository / "objects"), "0f", True),
                NameEvent(str(repository), "commondir", False),
            ]
        )
        assert [news.undone for news in told] == [(".git/commondir",)]
        # What was lost may have been anything.
        write(repository / "info/attributes")
        made[0].tell([NameEvent(str(work), "x", False)])
        assert len(told) == 1
        made[0].tell([LOST])
        assert told[1].undone == (".git/info/attributes",)
        # A folder that comes with all that is in it is looked through.
        bare(work / "new/deep/store")
        write(work / "new/other/.git/HEAD")
        write(work / "new/node_modules/x/.git/HEAD")
        made[0].tell([NameEvent(str(work), "new", True)])
        assert {*told[2].made} == {"new/deep/store", "new/other/.git"}
        assert str(work / "new/deep") in watched
        assert str(work / "new/node_modules") not in watched
        made[0].tell([NameEvent(str(work), "new", True)])
        assert len(told) == 3
        shutil.rmtree(work / "new")
        # So is one in a repository, where another repository may be in it by now.
        bare(repository / "x/y.git")
        made[0].tell([NameEvent(str(repository), "x", True)])
        assert told[3].undone == (".git/x/y.git/HEAD",)
        assert str(repository / "x/y.git") in watched
        assert str(repository / "refs/heads") in watched
        assert str(repository / "objects/pack") in watched
    write(repository / "commondir", ".")
    made[0].tell([NameEvent(str(repository), "commondir", False)])
    assert len(told) == 4
    # With the next command, what is there no more is no longer watched.
    shutil.rmtree(repository)
    with watch.around(command()):
        assert not any(path.startswith(str(repository)) for path in watched)
        assert str(work / "sub") in watched


def test_what_is_held_still_are_addresses_and_files_that_git_only_reads(tmp_path: Path) -> None:
    repository = tmp_path / ".git"
    write(repository / "remotes/origin")
    write(repository / "info/attributes")
    write(repository / "commondir")
    own = {*held_levers(str(repository))}
    assert own >= {"remotes", "branches"}
    assert not any(one.startswith("remotes/") for one in own)
    of_module = {*held_levers(str(repository), is_module=True)}
    assert "remotes/origin" in of_module
    assert of_module.isdisjoint({"remotes", "branches"})
    assert "info/attributes" in own & of_module
    shutil.rmtree(repository / "remotes")
    (repository / "remotes").symlink_to(tmp_path)
    assert "remotes" not in {*held_levers(str(repository))}


def test_what_was_there_before_is_left_alone(
    work: Path, command: Callable[[], WatchedCommand]
) -> None:
    for name in ("info/attributes", "remotes/mine", "objects/info/alternates"):
        write(work / ".git" / name, "")
    bare(work / ".git/mine.git")
    before = [*levers(str(work / ".git"))]
    assert len(before) == 4
    watch = GitWatch()
    first = command()
    with watch.around(first), watch.around(command()):
        write(work / ".git/commondir", ".")
    assert [*levers(str(work / ".git"))] == before
    assert first.undone == [".git/commondir"]
    # Nothing is lost, should it have been the user who made it.
    (kept,) = (work / ".git" / ASIDE).iterdir()
    assert kept.name.endswith("-commondir")
    assert kept.read_text() == "."


@pytest.mark.parametrize("works", [True, False])
def test_the_kernel_is_asked_once_to_watch(
    works: bool,
    command: Callable[[], WatchedCommand],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    def one_more(*given: Any, **options: Any) -> FolderWatch:
        made.append(given)
        if not works:
            raise OSError("no inotify")
        return FolderWatch(*given, **options)

    monkeypatch.setattr(module, "FolderWatch", one_more)
    watch = GitWatch()
    for _ in range(2):
        with watch.around(command()):
            pass
    assert len(made) == 1


@pytest.mark.exhaustive
def test_what_git_does_itself_goes_on(
    work: Path, tmp_path: Path, command: Callable[[], WatchedCommand]
) -> None:
    git("init", "-q", "--bare", str(tmp_path / "other"), within=work)
    git("push", "-q", str(tmp_path / "other"), "HEAD:refs/heads/main", within=work)
    git("symbolic-ref", "HEAD", "refs/heads/main", within=tmp_path / "other")
    watch = GitWatch()
    watched = command()
    with watch.around(watched):
        (work / "a").write_text("b\n")
        git("stash", within=work)
        git("stash", "pop", within=work)
        git("commit", "-q", "-am", "y", within=work)
        git("worktree", "add", "-q", "-b", "side", str(work / "tree"), within=work)
        git("commit", "-q", "--allow-empty", "-m", "z", within=work / "tree")
        git("branch", "deep/er/one", within=work)
        git("rebase", "-q", "--apply", "--force-rebase", "HEAD~1", within=work)
        git("rebase", "-q", "--force-rebase", "HEAD~1", within=work)
        git("submodule", "add", "-q", str(tmp_path / "other"), "a/../lib", within=work)
        git("clone", "-q", "--shared", str(tmp_path / "other"), str(work / "copy"), within=work)
        git("gc", "-q", within=work)
        git("worktree", "remove", "tree", within=work)
        git("worktree", "add", "-q", str(work / "again"), within=work)
    assert watched.undone == []
    assert git("status", "--porcelain", within=work / "again") == ""
    # Files of the command that can run something later are named.
    changed = watched.found.changed()
    assert {"copy/.git/config", "copy/.git/objects/info/alternates", ".git/modules/lib/config"} <= {
        *changed
    }


def test_a_new_repository_is_told_while_a_command_lives(
    work: Path, command: Callable[[], WatchedCommand]
) -> None:
    need_an_instance()
    told: SimpleQueue[GitNews] = SimpleQueue()
    watch = GitWatch()
    watch.listen(told.put)
    (work / "sub").mkdir()
    with watch.around(command()):
        git("init", "-q", "sub/one", within=work)
        assert told.get(timeout=_WAIT_S).made == ("sub/one/.git",)
        bare(work / "sub/two")
        assert told.get(timeout=_WAIT_S).made == ("sub/two",)
        # Files that run later are reported when another command begins.
        write(work / "sub/.envrc")
        with watch.around(command()):
            news = told.get_nowait()
        assert {"sub/.envrc", "sub/one/.git/config"} <= {*news.made}
        with watch.around(command()):
            assert told.empty()
        # Nor is what the card of a command has named.
        write(work / "sub/conftest.py")
        watch.has_named(["sub/conftest.py"])
        with watch.around(command()):
            assert told.empty()


def test_commands_that_make_levers_again_and_again_are_ended(
    work: Path, command: Callable[[], WatchedCommand]
) -> None:
    need_an_instance()
    told: SimpleQueue[GitNews] = SimpleQueue()
    watch = GitWatch()
    watch.listen(told.put)
    ended: list[str] = []
    watched = command()
    watched.end = lambda: ended.append("x")
    with watch.around(watched):
        write(work / ".git/commondir", ".")
        assert told.get(timeout=_WAIT_S) == GitNews(undone=(".git/commondir",))
        for number in range(5):
            # The change is undone when the next command begins, if not before.
            write(work / ".git/commondir", str(number))
            with watch.around(command()):
                pass
    # One report says that it was undone, and that it was too much; another before or behind it may say that it was made.
    while not (news := told.get(timeout=_WAIT_S)).is_ended:
        assert not news.undone
    while not told.empty():
        behind = told.get()
        assert not behind.is_ended
        assert not behind.undone
    assert ended
    assert watched.is_ended
    assert watched.undone == [".git/commondir"]


def test_nothing_is_moved_behind_a_link(work: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "attributes", "mine\n")
    info = work / ".git/info"
    info.rename(work / "info")
    info.symlink_to(elsewhere)
    assert not put_aside(str(work / ".git"), "info/attributes")
    assert (elsewhere / "attributes").read_text() == "mine\n"
    # Nor where the folder for it is a link; then it is removed.
    write(work / ".git/commondir", ".")
    (work / ".git" / ASIDE).symlink_to(elsewhere)
    assert put_aside(str(work / ".git"), "commondir")
    assert sorted(path.name for path in elsewhere.iterdir()) == ["attributes"]
    assert not (work / ".git/commondir").exists()


def test_what_the_user_has_stays_where_descriptors_lack_to_see_it(
    work: Path, command: Callable[[], WatchedCommand]
) -> None:
    mine = work / ".git/branches/mine"
    write(mine)
    watch, one = GitWatch(), command()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"), watch.around(one):
            # Without the error the command would run now, and find descriptors again.
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert mine.exists()
    with watch.around(one):
        pass
    assert mine.exists()


def test_a_linked_working_tree_whose_file_cannot_be_opened_now_is_no_lever(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(work / ".git/worktrees/e/commondir", "../..\n")

    def lacking(path: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr("kimi_tui.tools.sandbox.git_levers.open_regular", lacking)
    assert list(levers(str(work / ".git"))) == []
    with pytest.raises(OSError, match="Too many open files"), all_is_read():
        list(levers(str(work / ".git")))
