"""What is known of a path from places elsewhere, and kept from one look to the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kimi_tui.tools.paths import (
    holds_secrets,
    is_secret_by_name,
    locate,
    look_outside,
    protected_reason,
    secrets_below,
)
from kimi_tui.tools.sandbox import remembered
from kimi_tui.workspace import protected_names


def test_a_folder_beside_that_differs_in_case_alone_is_outside(tmp_path: Path) -> None:
    work, beside = tmp_path / "work", tmp_path / "Work"
    work.mkdir()
    if beside.exists():
        pytest.skip("names that differ in case alone are one here: nothing was tried")
    beside.mkdir()
    for name in ("", "a.txt", "new/a.txt"):
        assert not locate(f"{beside}/{name}", work, {}).inside
        assert locate(f"{work}/{name}", work, {}).inside


def test_of_files_below_a_folder_only_what_a_secret_name_leads_to_is_secret(tmp_path: Path) -> None:
    for name in ("plain.txt", "other.txt"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / ".env").symlink_to("plain.txt")
    is_secret = secrets_below(locate(".", tmp_path, {}), {})
    assert is_secret is not None
    found = [name for name in (b"plain.txt", b"other.txt", b"sub/.env") if is_secret(name)]
    assert found == [b"plain.txt", b"sub/.env"]


def test_a_new_place_of_secrets_in_the_home_folder_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place of secrets is a link into the work folder: what it leads to holds secrets from then on."""
    monkeypatch.setattr(remembered, "SETTLED_NS", -(10**18))
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work / "keys"):
        folder.mkdir(parents=True)
    environ = {"HOME": str(home)}
    target = locate("keys/one", work, environ)
    place = next(
        Path(one) for one in protected_names.secret_places(environ) if Path(one).parent == home
    )
    os.utime(home, ns=(1, 1))
    assert [holds_secrets(target, environ) for _ in range(2)] == [False, False]
    place.symlink_to(work / "keys")
    assert holds_secrets(target, environ)
    place.unlink()
    os.utime(home, ns=(2, 2))
    assert not holds_secrets(target, environ)


def test_a_new_link_to_the_own_settings_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in the work folder that the settings are read from is the program's own, as soon as a link leads there."""
    monkeypatch.setattr(remembered, "SETTLED_NS", -(10**18))
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home / "ours", work / "dots"):
        folder.mkdir(parents=True)
    environ = {"HOME": str(home), "KIMI_TUI_HOME": str(home / "ours")}
    target = locate("dots/one", work, environ)
    os.utime(home / "ours", ns=(1, 1))
    for _ in range(2):
        look = look_outside()
        assert not is_secret_by_name(target, environ, look=look)
        assert not protected_reason(target, environ, look=look)
    (home / "ours/config.toml").symlink_to(work / "dots/one")
    assert protected_reason(target, environ)
    assert is_secret_by_name(target, environ)
    # The link itself may lead on.
    (work / "dots/one").symlink_to("two")
    assert protected_reason(locate("dots/two", work, environ), environ)


def test_what_git_runs_is_noticed_at_once_when_settings_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "SETTLED_NS", 0)
    home, work = tmp_path / "home", tmp_path / "work"
    git, below = work / ".git", work / "sub/deep"
    for folder in (home, below):
        folder.mkdir(parents=True)
    environ = {"HOME": str(home)}
    (below / "filter.sh").write_text("x\n")
    target = locate("sub/deep/filter.sh", work, environ)

    def is_run() -> bool:
        found = {protected_reason(target, environ) for _ in range(3)}
        assert len(found) == 1
        return "git's settings" in found.pop()

    def settings(command: str) -> str:
        return f'[filter "x"]\n\tclean = {command}\n'

    assert not is_run()
    # A command makes a repository between two edits.
    git.mkdir()
    assert not is_run()
    (git / "config").write_text(settings("sub/deep/filter.sh"))
    assert is_run()
    (git / "config").write_text(settings("sub/deep/other.shx"))
    assert not is_run()
    # The same times and the same size, but another file.
    before = (git / "config").stat()
    (git / "new").write_text(settings("sub/deep/filter.sh"))
    os.utime(git / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(git / "new", git / "config")
    assert is_run()
    (git / "config").unlink()
    assert not is_run()
    # One with the settings of the user, which count from the folder of each repository.
    (home / ".gitconfig").write_text(settings("./filter.sh"))
    assert is_run()
    (home / ".gitconfig").write_text("[include]\n\tpath = more\n")
    assert not is_run()
    (home / "more").write_text(settings("deep/filter.sh"))
    assert is_run()
    os.rename(home / "more", home / "gone")
    assert not is_run()
    # Another repository takes the place of the one that was looked at.
    other = tmp_path / "other"
    other.mkdir()
    (other / "config").write_text(settings("sub/deep/filter.sh"))
    assert not is_run()
    os.rename(git, tmp_path / "old")
    os.rename(other, git)
    assert is_run()
    # The file .git of a working tree names another repository.
    os.rename(git, work / "parts")
    assert not is_run()
    git.write_text("gitdir: parts\n")
    assert is_run()


def test_a_path_is_resolved_like_the_system_does(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "a/b").mkdir(parents=True)
    (work / "a/b/file").write_text("x\n")
    (work / "up").symlink_to("a/b")
    (work / "round").symlink_to("round")
    (tmp_path / "link").symlink_to("work")
    (work / "out").symlink_to(tmp_path)
    names = (
        *("a/b/file", "a//b/./file", "a/b/file/", "up/file", "up/../file", "a/../up/file", "./up"),
        *(
            "missing/x",
            "missing/../a",
            "a/b/file/x",
            "round",
            "round/x",
            "..",
            "../work/a",
            "out/x",
        ),
        *(".", "up/..", "out/work/up/file", f"{tmp_path}/link/up/file", f"{work}/a/b", "/", "/etc"),
    )
    for top in (work, tmp_path / "link", Path("/")):
        root = os.path.realpath(top)
        for name in names:
            found = locate(name, top, {})
            assert str(found.real) == os.path.realpath(top / name), name
            assert str(found.root) == root
            assert found.inside == found.real.is_relative_to(root)
            lexical = os.path.normpath(top / name)
            if Path(lexical).is_relative_to(top):
                lexical = os.path.normpath(Path(root) / Path(lexical).relative_to(top))
            assert found.linked == (lexical != str(found.real)), name
    # A link takes the place of a folder between two looks.
    assert str(locate("a/b/file", work, {}).real) == str(work / "a/b/file")
    os.rename(work / "a", work / "was")
    (work / "a").symlink_to(tmp_path)
    found = locate("a/b/file", work, {})
    assert (str(found.real), found.inside, found.linked) == (str(tmp_path / "b/file"), False, True)
