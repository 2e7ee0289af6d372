"""Files that commands can write are never run: programs are found elsewhere, also before there is a policy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kimi_tui.tools import programs
from kimi_tui.tools.command_groups import judge
from kimi_tui.tools.programs import (
    find_program,
    is_planted,
    planted_in,
    trusted_path,
    written_roots,
)
from kimi_tui.tools.sandbox import remembered
from kimi_tui.tools.sandbox.layers import layers_dir, made_folder
from kimi_tui.tools.sandbox.policy import SandboxSettings, policy_for

NAMES = ("git", "rg", "bwrap", "tmux", "xdg-open", "wl-copy", "xclip", "vim", "shfmt", "bash")
PLACES = {
    "the work folder": "home/work/bin",
    "the repository around it": "home/repo/tools/bin",
    "another work folder": "home/other/.venv/bin",
    "an environment of Poetry": "home/.cache/pypoetry/virtualenvs/x/bin",
    "an environment of pre-commit": "home/.cache/pre-commit/repo1/py_env/bin",
    "a cache elsewhere": "moved/uv/environments-v2/x/bin",
    "a toolchain of Go": "home/go/pkg/mod/golang.org/toolchain@v1/bin",
    "the modules of Go elsewhere": "gomods/x/bin",
    "what npx fetched": "home/.npm/_npx/1/node_modules/.bin",
    "a folder that the settings name": "home/tools/bin",
    "a private layer": "home/.local/share/kimi-tui/sandbox/x/0/upper/home/bin",
    "a folder of temporary files": "tmp/bin",
    "the folder that TMPDIR names": "own-tmp/bin",
    "the repository of a working tree": "main/.git/bin",
}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A home folder with all that commands write to, a work folder, and a folder of programs of the user."""
    home = tmp_path / "home"
    for folder in ("work", "other", ".config/kimi-tui", "repo/.git", "repo/sub", "tools", "bin"):
        (home / folder).mkdir(parents=True)
    (home / ".config/kimi-tui/config.toml").write_text('[sandbox]\nwritable = ["~/tools", "/"]\n')
    main = tmp_path / "main"
    for words in ("init -q", "commit -q --allow-empty -m x", f"worktree add -q {home}/linked"):
        settings = ("-c", "user.name=a", "-c", "user.email=a@b")
        main.mkdir(exist_ok=True)
        subprocess.run(
            ["git", *settings, *words.split()], cwd=main, check=True, capture_output=True
        )
    monkeypatch.setattr(programs, "TEMPORARY", (str(tmp_path / "tmp"),))
    environ = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_CACHE_HOME": str(tmp_path / "moved"),
        "GOMODCACHE": str(tmp_path / "gomods"),
        "TMPDIR": str(tmp_path / "own-tmp"),
    }
    made_folder(environ, str(home / "other"))
    return environ


def planted(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.exhaustive
def test_no_program_is_taken_from_where_commands_can_write(
    environ: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    works = [home / "work", home / "repo/sub", home / "linked"]
    theirs = planted(home / "bin", *NAMES)
    for n, place in enumerate(PLACES):
        folder = planted(tmp_path / PLACES[place], *NAMES)
        # The folder itself, a link to it, a link to the program, and one by way of a third folder.
        linked, links, way = (tmp_path / f"{name}-{n}" for name in ("linked", "links", "way"))
        linked.symlink_to(folder)
        links.mkdir()
        way.symlink_to(folder)
        for name in NAMES:
            (links / name).symlink_to(way / name)
        for entry in (folder, linked, links):
            environ["PATH"] = str(entry)
            # The place of a program counts, and not its name: all names are tried at one of the places.
            for name in NAMES if not n else NAMES[:2]:
                assert find_program(name, environ, *works) is None, (entry, name)
                assert find_program(str(entry / name), environ, *works) is None
                assert is_planted(str(entry / name), environ, *works)
            environ["PATH"] = f"{entry}{os.pathsep}{theirs}"
            assert find_program("git", environ, *works) == str(theirs / "git"), place
            if entry != links:
                assert trusted_path(environ, *works) == str(theirs), place


def test_no_link_that_commands_can_turn_leads_to_a_program(
    environ: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "home/work"
    (work / "sh").symlink_to("/bin/sh")
    (tmp_path / "home/bin/sh").symlink_to(work / "sh")
    environ["PATH"] = f"{tmp_path}/home/bin"
    assert os.path.realpath(f"{tmp_path}/home/bin/sh") == os.path.realpath("/bin/sh")
    assert find_program("sh", environ, work) is None
    # The same, turned into a folder on the path.
    (work / "bin").symlink_to("/usr/bin")
    environ["PATH"] = f"{work}/bin"
    assert find_program("sh", environ, work) is None
    assert trusted_path(environ, work) == ""


def test_the_programs_of_the_user_and_the_system_are_taken(
    environ: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for place in ("bin", ".local/bin", ".cargo/bin", "go/bin", ".nvm/versions/node/v1/bin"):
        environ["PATH"] = str(planted(home / place, "rg"))
        assert find_program("rg", environ, home / "work") == str(home / place / "rg"), place
        assert find_program(str(home / place / "rg"), environ, home / "work")
    environ["PATH"] = "relative:/usr/bin"
    assert find_program("sh", environ, home / "work") == "/usr/bin/sh"
    assert find_program("bin/sh", environ) is None
    # Settings that cannot be read are said at the start, and are no reason to trust less or more.
    (home / ".config/kimi-tui/config.toml").write_text("[sandbox\n")
    assert find_program("sh", environ, home / "work") == "/usr/bin/sh"


def test_all_that_the_policy_lets_commands_write_is_passed_over(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """The list of places that are not trusted is the list of those that commands can write."""
    home = tmp_path / "home"
    planted(home / ".cache/pip", "git")
    for work in (home / "work", home / "linked"):
        policy = policy_for(work, SandboxSettings(writable=("~/tools",)), environ)
        for root in (*policy.writable, *policy.caches.covered, layers_dir(environ)):
            assert is_planted(f"{root}/x/git", environ, work), root


def test_a_planted_program_is_neither_run_nor_offered_for_the_session(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """Findings: a command wrote `git` into an environment of Poetry that is first on the path."""
    work = tmp_path / "home/work"
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    folder = planted(tmp_path / PLACES["an environment of Poetry"], "git")
    seen = tmp_path / "seen"
    (folder / "git").write_text(f'#!/bin/sh\necho "$@" >> {seen}\nexec /usr/bin/git "$@"\n')
    environ["PATH"] = f"{folder}:/usr/bin:/bin"
    verdict = judge("git status", work, environ)
    assert not verdict.group
    assert not verdict.offer
    assert "sandboxed commands can change" in verdict.reason
    assert not seen.exists()
    assert planted_in("cd x && git status", environ, work) == [str(folder / "git")]
    assert planted_in("ls -la", environ, work) == []
    environ["PATH"] = "/usr/bin:/bin"
    assert judge("git status", work, environ).group


def test_a_folder_that_commands_may_write_to_is_noticed_after_an_earlier_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "SETTLED_NS", -(10**18))
    home = tmp_path / "home"
    for name in ("ours/sandbox", "work", "elsewhere"):
        (home / name).mkdir(parents=True)
    environ = {"HOME": str(home), "KIMI_TUI_HOME": str(home / "ours")}

    def roots() -> frozenset[str]:
        return written_roots(environ, home / "work")

    assert roots() == roots()
    assert str(home / "other") not in roots()
    # Another program is about to run a command in a folder of its own.
    made = home / "ours/sandbox/abc"
    made.mkdir()
    assert str(home / "other") not in roots()
    (made / "folder").write_text(str(home / "other"))
    assert str(home / "other") in roots()
    # A cache becomes a link.
    assert str(home / "elsewhere") not in roots()
    (home / ".npm").symlink_to("elsewhere")
    assert str(home / "elsewhere") in roots()
